//! Heartbeats, as Dubbo's `HeaderExchange` has them: one timer watches all connections, asks where
//! it is quiet, and gives up where nobody answers.

mod link;
mod process;

pub use link::{Event, SILENT, Settings};
pub use process::{ServerProcess, open_files, serve};

use crate::accept::accept;
use crate::frame::Frame;
use crate::room::Room;
use link::{Link, Queued, Role};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};

/// Answers heartbeats and requests, and closes what was silent for three intervals. Dropping it
/// closes all connections.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    accepts: JoinHandle<()>,
}

/// Keeps one connection to a server: asks when it was quiet for an interval, and connects again
/// after three without a sign of life, or when the connection is closed. Dropping it closes it.
#[derive(Debug)]
pub struct Client {
    frames: mpsc::Sender<Queued>,
    keeps: JoinHandle<()>,
}

impl Server {
    /// Starts a server; port 0 stands for a free one. Belongs to the runtime that runs it.
    ///
    /// # Errors
    ///
    /// If the address is taken.
    pub async fn start(address: SocketAddr, settings: Settings) -> io::Result<Self> {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        let listener = socket.listen(BACKLOG)?;
        let address = listener.local_addr()?;
        let accepts = tokio::spawn(async move {
            let (mut connections, room) = (JoinSet::new(), Room::default());
            loop {
                let stream = accept(&listener).await;
                let (link, settings) = (Link::new(&settings, &room), settings.clone());
                let (sender, mut frames) = mpsc::channel(QUEUED);
                connections.spawn(async move {
                    link.run(stream, Role::Server, &settings, &sender, &mut frames).await
                });
                while connections.try_join_next().is_some() {}
            }
        });
        Ok(Self { address, accepts })
    }

    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Client {
    /// Starts a client, which connects as soon as it can. Call this in a runtime.
    #[must_use]
    pub fn start(server: SocketAddr, settings: Settings) -> Self {
        let (frames, mut queue) = mpsc::channel(QUEUED);
        let sender = frames.clone();
        let keeps = tokio::spawn(async move {
            let (room, mut failures) = (Room::default(), 0);
            loop {
                let limit = settings.interval.saturating_mul(SILENT);
                let connecting = settings.timer.timeout(limit, TcpStream::connect(server));
                if let Ok(Ok(stream)) = connecting.await {
                    let link = Link::new(&settings, &room);
                    link.run(stream, Role::Client, &settings, &sender, &mut queue).await;
                    if longest_pause(settings.interval) < settings.timer.now() - link.start {
                        failures = 0;
                    }
                }
                let pause = pause(settings.interval, failures, fastrand::f64());
                failures += 1;
                if settings.timer.sleep(pause).await.is_err() {
                    return; // the timer was stopped
                }
            }
        });
        Self { frames, keeps }
    }

    /// Sends a frame over the present connection, or the next.
    pub async fn send(&self, frame: Frame) {
        // The client has the other end for as long as it lives.
        let _ = self.frames.send((frame, None)).await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepts.abort();
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.keeps.abort();
    }
}

/// How long a client waits before it connects again: one interval after the first failure, then
/// twice as long each time, and as much as half less, by chance. All clients of a server that died
/// or was stopped are there at once, and what they cost must fall while they do not succeed, or a
/// server that is just too slow for all of them never sees the end of it.
fn pause(interval: Duration, failures: u32, chance: f64) -> Duration {
    let longest = interval.saturating_mul(2_u32.saturating_pow(failures));
    let longest = longest.min(longest_pause(interval));
    longest - longest.mul_f64(chance / 2.0)
}

fn longest_pause(interval: Duration) -> Duration {
    interval.saturating_mul(LONGEST_PAUSE)
}

/// In intervals. A connection that lived longer than this ends a series of failures.
const LONGEST_PAUSE: u32 = 16;
/// How many clients may come at once. The system keeps to a limit of its own.
const BACKLOG: u32 = 4_096;
/// How many frames wait for a connection.
const QUEUED: usize = 64;
