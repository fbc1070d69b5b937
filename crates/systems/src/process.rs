//! A process that is killed when it is no longer needed.

use rustix::process::{Pid, Signal, kill_process};
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

/// A child process. Dropping it kills the process and waits for its end.
#[derive(Debug)]
pub struct Process {
    child: Child,
    answers: Option<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts `command`.
    ///
    /// # Errors
    ///
    /// If the program does not start.
    pub fn start(command: &mut Command) -> io::Result<Self> {
        let mut child = command.spawn()?;
        let answers = child.stdout.take().map(BufReader::new);
        Ok(Self { child, answers })
    }

    /// Starts `command` with pipes, for [`tell`](Self::tell) and [`answer`](Self::answer).
    ///
    /// # Errors
    ///
    /// If the program does not start.
    pub fn talk(command: &mut Command) -> io::Result<Self> {
        Self::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()))
    }

    /// Writes a line to the process.
    ///
    /// # Errors
    ///
    /// If the process is gone, or has no pipe.
    pub fn tell(&mut self, word: &str) -> io::Result<()> {
        let input = self.child.stdin.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        writeln!(input, "{word}")
    }

    /// Waits for the next line of the process and returns it, without its end.
    ///
    /// # Errors
    ///
    /// If the process has ended, or has no pipe.
    pub fn answer(&mut self) -> io::Result<String> {
        let answers = self.answers.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        let mut line = String::new();
        if answers.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_owned())
    }

    /// Sends a signal to the process.
    ///
    /// # Errors
    ///
    /// If the system refuses.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }

    /// Kills the process and waits for its end.
    ///
    /// # Errors
    ///
    /// If the system refuses.
    pub fn kill(&mut self) -> io::Result<ExitStatus> {
        self.child.kill()?;
        self.child.wait()
    }

    /// Waits for the end of the process.
    ///
    /// # Errors
    ///
    /// If the system refuses.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait()
    }

    /// Returns how the process ended; None if it runs.
    ///
    /// # Errors
    ///
    /// If the system refuses.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Returns the number of the process.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.kill();
    }
}
