//! A process that holds a lock, to be stopped and killed.

use super::Locks;
use crate::process::Process;
use redis::Client;
use std::error::Error;
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tickwheel::Timer;

/// Starts `program`, which calls [`hold`] with these words, and waits until it has locked `stock`.
/// It writes there for each word that it is told.
///
/// # Errors
///
/// If the process does not start, or does not get the lock.
pub fn start_holder(program: &Path, url: &str, lease: Duration) -> io::Result<Process> {
    let words = ["hold", url, &lease.as_millis().to_string()];
    let mut holder = Process::talk(Command::new(program).args(words))?;
    match holder.answer()?.as_str() {
        "locked" => Ok(holder),
        other => Err(io::Error::other(format!("the holder says {other:?}"))),
    }
}

/// Locks `stock` and writes to it for each line of the input, until the input ends. The line
/// `write` writes if the lock is held, and `write unchecked` writes without a look, as a process
/// does that was stopped right after it had looked. Answers each line by what became of it.
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

/// What every resource behind a lock must do: refuse a fencing number below the largest it has
/// seen.
const WRITE: &str = "
    if tonumber(ARGV[1]) < tonumber(redis.call('GET', KEYS[1]) or 0) then return 0 end
    redis.call('SET', KEYS[1], ARGV[1])
    return 1";
