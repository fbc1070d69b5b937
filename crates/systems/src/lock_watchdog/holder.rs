//! A process that holds a lock, to be stopped and killed.

use super::Locks;
use redis::Client;
use rustix::process::{Pid, Signal, kill_process};
use std::error::Error;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;
use tickwheel::Timer;

/// A process that has locked `stock`, and writes to it when it is told to. Dropping this kills it.
#[derive(Debug)]
pub struct Holder {
    child: Child,
    answers: BufReader<ChildStdout>,
}

impl Holder {
    /// Starts `program`, which calls [`hold`] with these words, and waits until it has the lock.
    ///
    /// # Errors
    ///
    /// If the process does not start, or does not get the lock.
    pub fn start(program: &Path, url: &str, lease: Duration) -> io::Result<Self> {
        let mut command = Command::new(program);
        command.args(["hold", url, &lease.as_millis().to_string()]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let answers = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut holder = Self { child, answers };
        match holder.answer()?.as_str() {
            "locked" => Ok(holder),
            other => Err(io::Error::other(format!("the holder says {other:?}"))),
        }
    }

    /// Tells the process what to do: see [`hold`].
    ///
    /// # Errors
    ///
    /// If the process is gone.
    pub fn tell(&mut self, word: &str) -> io::Result<()> {
        writeln!(self.child.stdin.as_mut().expect("it is piped"), "{word}")
    }

    /// Waits for the answer of the process.
    ///
    /// # Errors
    ///
    /// If the process is gone.
    pub fn answer(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }

    /// Sends a signal to the process.
    ///
    /// # Errors
    ///
    /// If the system refuses.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Locks `stock` and writes to it for each line of the input, until the input ends. The line `write`
/// writes if the lock is held, and `write unchecked` writes without a look, as a process does that
/// was stopped right after it had looked. Answers each line by what became of it.
///
/// # Errors
///
/// If there is no Redis at `url`, or another process has the lock.
pub fn hold(url: &str, lease: Duration) -> Result<(), Box<dyn Error>> {
    let locks = Locks::new(url, &Timer::new(), lease, |_, _| {})?;
    let lock = locks.try_lock("stock", "holder")?;
    let mut redis = Client::open(url)?.get_connection()?;
    println!("locked");
    for line in io::stdin().lines() {
        if line? == "write" && !lock.is_held() {
            println!("lost");
            continue;
        }
        let is_written: bool =
            redis::cmd("EVAL").arg(WRITE).arg(1).arg("last").arg(lock.fence()).query(&mut redis)?;
        println!("{}", if is_written { "written" } else { "refused" });
    }
    Ok(())
}

/// What every resource behind a lock must do: refuse a fencing number below the largest it has seen.
const WRITE: &str = "
    if tonumber(ARGV[1]) < tonumber(redis.call('GET', KEYS[1]) or 0) then return 0 end
    redis.call('SET', KEYS[1], ARGV[1])
    return 1";
