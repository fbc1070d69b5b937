//! A process that is killed when it is no longer needed.

use rustix::process::{Pid, Signal, getpgid, getpgrp, kill_process, kill_process_group};
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

/// A child process. Dropping it kills the process, and its group if that is not the one of this
/// process, and waits for its end.
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

    /// Kills the process, and its group if that is not the one of this process, and waits for its
    /// end.
    ///
    /// # Errors
    ///
    /// If the system refuses.
    pub fn kill(&mut self) -> io::Result<ExitStatus> {
        if let Some(status) = self.child.try_wait()? {
            return Ok(status);
        }
        Target::of(Pid::from_child(&self.child)).signal(Signal::KILL)?;
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

/// What gets a signal. A child that was not reaped keeps both numbers its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// All processes of a group.
    Group(Pid),
    /// One that is in the group of this process.
    Process(Pid),
}

impl Target {
    /// Returns the group of a child, or the child itself if it has no other than this process.
    #[must_use]
    pub fn of(child: Pid) -> Self {
        match getpgid(Some(child)) {
            Ok(group) if group != getpgrp() => Self::Group(group),
            _ => Self::Process(child),
        }
    }

    /// Sends a signal.
    ///
    /// # Errors
    ///
    /// If there is no such process, or it is another user's.
    pub fn signal(self, signal: Signal) -> io::Result<()> {
        Ok(match self {
            Self::Group(group) => kill_process_group(group, signal),
            Self::Process(process) => kill_process(process, signal),
        }?)
    }
}

/// Returns the children of all threads of this process.
///
/// # Errors
///
/// If the system does not list them.
pub fn children() -> io::Result<Vec<Pid>> {
    let mut children = Vec::new();
    for thread in fs::read_dir("/proc/self/task")? {
        let thread = thread?.path();
        match fs::read_to_string(thread.join("children")) {
            Ok(pids) => {
                let pids = pids.split_whitespace().filter_map(|pid| pid.parse().ok());
                children.extend(pids.filter_map(Pid::from_raw));
            }
            // The thread has ended.
            Err(_) if !thread.exists() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(children)
}
