//! The server as a process of its own, so that it can be killed.

use super::{Server, Settings};
use crate::process::Process;
use cpu_time::ProcessTime;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use tickwheel::Timer;

/// A server in a child process.
#[derive(Debug)]
pub struct ServerProcess {
    pub address: SocketAddr,
    pub process: Process,
}

impl ServerProcess {
    /// Starts `program server ADDRESS MILLISECONDS`, which calls [`serve`].
    ///
    /// # Errors
    ///
    /// If the program does not start, or cannot have the address.
    pub fn start(program: &Path, address: SocketAddr, interval: Duration) -> io::Result<Self> {
        let arguments = ["server", &address.to_string(), &interval.as_millis().to_string()];
        let mut process = Process::talk(Command::new(program).args(arguments))?;
        let address = process.answer()?.parse().map_err(io::Error::other)?;
        Ok(Self { address, process })
    }

    /// Returns the CPU time that the server has taken.
    ///
    /// # Errors
    ///
    /// If the server is gone.
    pub fn cpu_time(&mut self) -> io::Result<Duration> {
        self.process.tell("")?;
        Ok(Duration::from_micros(self.process.answer()?.parse().map_err(io::Error::other)?))
    }
}

/// What the child does: serves until its input ends, and answers each line with its CPU time.
///
/// # Errors
///
/// If the arguments make no sense, or the address is taken.
pub fn serve(address: &str, millis: &str) -> Result<(), Box<dyn Error>> {
    open_files()?;
    let runtime = tokio::runtime::Runtime::new()?;
    let interval = Duration::from_millis(millis.parse()?);
    let settings = Settings { timer: Timer::new(), interval, tell: Arc::new(|_| {}) };
    let server = runtime.block_on(Server::start(address.parse()?, settings))?;
    println!("{}", server.address());
    for line in io::stdin().lines() {
        line?;
        println!("{}", ProcessTime::now().as_duration().as_micros());
    }
    Ok(())
}

/// Lets this process open as many files as the system allows, and returns how many that are.
///
/// # Errors
///
/// If the system says so.
pub fn open_files() -> io::Result<u64> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    Ok(maximum.unwrap_or(u64::MAX))
}
