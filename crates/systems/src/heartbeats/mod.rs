//! Heartbeats, as Dubbo's `HeaderExchange` has them: one timer watches all connections, asks where
//! it is quiet, and gives up where nobody answers.

mod link;
mod process;

pub use link::Event;
pub use process::{ServerProcess, open_files, serve};

use crate::accept::accept;
use crate::frame::Frame;
use link::{Link, Role};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tickwheel::Timer;
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};

/// What a server or a client goes by.
#[derive(Clone)]
pub struct Settings {
    /// Watches all connections.
    pub timer: Timer,
    /// How long a connection may be quiet before the client asks. After three it is given up.
    pub interval: Duration,
    /// Is told what happens. It is called on the timer's worker, too, so it should be quick.
    pub tell: Arc<dyn Fn(Event) + Send + Sync>,
}

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
    frames: mpsc::Sender<Frame>,
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
            let mut connections = JoinSet::new();
            loop {
                let stream = accept(&listener).await;
                let (link, settings) = (Link::new(&settings), settings.clone());
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
            loop {
                let connecting = settings
                    .timer
                    .timeout(settings.interval.saturating_mul(SILENT), TcpStream::connect(server));
                if let Ok(Ok(stream)) = connecting.await {
                    let link = Link::new(&settings);
                    if link.run(stream, Role::Client, &settings, &sender, &mut queue).await {
                        continue;
                    }
                }
                // All clients of a server that was killed are here at once, so they spread out.
                let half = settings.interval / 2;
                if settings.timer.sleep(half + half.mul_f64(fastrand::f64())).await.is_err() {
                    return; // the timer was stopped
                }
            }
        });
        Self { frames, keeps }
    }

    /// Sends a frame over the present connection, or the next.
    pub async fn send(&self, frame: Frame) {
        // The client has the other end for as long as it lives.
        let _ = self.frames.send(frame).await;
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

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings").field("interval", &self.interval).finish_non_exhaustive()
    }
}

/// A connection is given up after this many intervals without a sign of life.
pub const SILENT: u32 = 3;
/// How many clients may come at once. The system keeps to a limit of its own.
const BACKLOG: u32 = 4_096;
/// How many frames wait for a connection.
const QUEUED: usize = 64;
