//! The server as a process of its own, so that it can be killed.

use super::{Server, Settings};
use cpu_time::ProcessTime;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::error::Error;
use std::io::{self, BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tickwheel::Timer;

/// A server in a child process. Dropping it kills the process, and so does the end of this one.
#[derive(Debug)]
pub struct ServerProcess {
    pub address: SocketAddr,
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl ServerProcess {
    /// Starts `program server ADDRESS MILLISECONDS`, which calls [`serve`].
    ///
    /// # Errors
    ///
    /// If the program does not start, or cannot have the address.
    pub fn start(program: &Path, address: SocketAddr, interval: Duration) -> io::Result<Self> {
        let arguments = ["server", &address.to_string(), &interval.as_millis().to_string()];
        let mut command = Command::new(program);
        let mut child =
            command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.take().expect("it is piped");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut process = Self { address, child, input, output };
        process.address = process.line()?.parse().map_err(io::Error::other)?;
        Ok(process)
    }

    /// Returns the CPU time that the server has taken.
    ///
    /// # Errors
    ///
    /// If the server is gone.
    pub fn cpu_time(&mut self) -> io::Result<Duration> {
        self.input.write_all(b"\n")?;
        Ok(Duration::from_micros(self.line()?.parse().map_err(io::Error::other)?))
    }

    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        line.truncate(line.trim_end().len());
        Ok(line)
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
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
