//! A Redis of its own for a program or a test, from the distribution's package.

use crate::process::Process;
use redis::{Client, Connection, RedisResult};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use std::{fs, io};
use tempfile::TempDir;

/// A Redis server on a free port of the loopback address, with its files in a temporary folder. It
/// writes each change to its file before it answers, and so a kill loses none; it does not wait for
/// the disk. Dropping it kills the server and removes the folder.
#[derive(Debug)]
pub struct RedisServer {
    folder: TempDir,
    port: u16,
    process: Process,
}

impl RedisServer {
    /// Starts a server and waits until it answers.
    ///
    /// # Errors
    ///
    /// If there is no program `redis-server`, or it does not answer within five minutes.
    pub fn start() -> io::Result<Self> {
        let folder = tempfile::tempdir()?;
        // Free now: if another process takes it first, the server ends, and this says so.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let process = spawn(&folder, port)?;
        let mut server = Self { folder, port, process };
        server.wait()?;
        Ok(server)
    }

    /// Kills the server and starts it again on the same port, with what it had written to disk, or
    /// with nothing.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub fn restart(&mut self, keeps: bool) -> io::Result<()> {
        self.process.kill()?;
        if !keeps {
            fs::remove_dir_all(self.folder.path().join("appendonlydir"))?;
        }
        self.process = spawn(&self.folder, self.port)?;
        self.wait()
    }

    /// Returns where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Returns the address, as the crate `redis` wants it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    /// Returns the id of the server's process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Returns a new connection.
    ///
    /// # Errors
    ///
    /// If the server does not answer within a minute.
    pub fn connect(&self) -> RedisResult<Connection> {
        Client::open(self.url())?.get_connection_with_timeout(Duration::from_secs(60))
    }

    fn wait(&mut self) -> io::Result<()> {
        let begun = Instant::now();
        loop {
            let ready = self.connect().and_then(|mut redis| redis::cmd("PING").exec(&mut redis));
            match (ready, self.process.ended()?) {
                (_, Some(status)) => return Err(io::Error::other(format!("it ended: {status}"))),
                (Ok(()), None) => return Ok(()),
                (Err(error), None) if Duration::from_secs(300) < begun.elapsed() => {
                    return Err(io::Error::other(error));
                }
                (Err(_), None) => sleep(Duration::from_millis(5)),
            }
        }
    }
}

fn spawn(folder: &TempDir, port: u16) -> io::Result<Process> {
    let mut command = Command::new("redis-server");
    command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", ""]);
    command.args(["--appendonly", "yes", "--appendfsync", "no", "--dir"]).arg(folder.path());
    Process::start(command.stdin(Stdio::null()).stdout(Stdio::null()))
}
