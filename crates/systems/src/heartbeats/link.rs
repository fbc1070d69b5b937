//! One connection, and the check that watches it.

use super::{SILENT, Settings};
use crate::frame::{Frame, Header, Kind};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tickwheel::{Next, Timer};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_util::io::{InspectReader, InspectWriter};

/// What happens on a connection, and when, by the timer's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Connected(Instant),
    /// It was quiet for an interval, so the client asks.
    Asked(Instant),
    /// The other side has answered that: when the answer was read.
    Alive(Instant),
    /// Nothing came for three intervals: it is given up.
    Silent(Instant),
    /// The other side closed it, or it broke.
    Closed(Instant),
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Asks.
    Client,
    /// Answers.
    Server,
}

/// When something was read and written.
pub(super) struct Link {
    timer: Timer,
    start: Instant,
    /// In nanoseconds since the start.
    read: AtomicU64,
    written: AtomicU64,
}

impl Link {
    pub(super) fn new(settings: &Settings) -> Arc<Self> {
        let timer = settings.timer.clone();
        let (read, written) = Default::default();
        Arc::new(Self { start: timer.now(), timer, read, written })
    }

    /// Keeps the connection until it ends, and returns whether it was silent.
    pub(super) async fn run(
        self: &Arc<Self>,
        mut stream: TcpStream,
        role: Role,
        settings: &Settings,
        sender: &mpsc::Sender<Frame>,
        frames: &mut mpsc::Receiver<Frame>,
    ) -> bool {
        let Settings { timer, interval, tell } = settings;
        let (gives_up, mut given_up) = mpsc::channel(1);
        let (link, asks, told, interval) =
            (Arc::clone(self), sender.clone(), tell.clone(), *interval);
        let silence = interval.saturating_mul(SILENT);
        let check = timer.schedule_with(interval, move |_| {
            let now = link.timer.now();
            let (read, written) = (now - link.at(&link.read), now - link.at(&link.written));
            if silence <= read {
                // It takes one.
                let _ = gives_up.try_send(now);
                return Next::Stop;
            }
            let left = silence - read;
            if role == Role::Server {
                return Next::After(left);
            }
            let mut quiet = read.max(written);
            if interval <= quiet {
                // If the queue is full, there is something to write already.
                let _ = asks.try_send(Frame::heartbeat(Kind::Heartbeat));
                told(Event::Asked(now));
                quiet = Duration::ZERO;
            }
            Next::After(left.min(interval - quiet))
        });
        // However the connection ends, nothing watches it any more.
        let Ok(_check) = check.map(|check| check.cancel_on_drop()) else { return false };
        tell(Event::Connected(self.start));

        let (input, output) = stream.split();
        let input = InspectReader::new(input, |_| self.stamp(&self.read));
        let output = InspectWriter::new(output, |_| self.stamp(&self.written));
        tokio::select! {
            _ = self.read(input, sender, &**tell) => {}
            _ = write(output, frames) => {}
            // None means that the timer was stopped: nobody watches the connection.
            silent = given_up.recv() => if let Some(at) = silent {
                // Told here, so that a connection that breaks just then ends once.
                tell(Event::Silent(at));
                return true;
            },
        }
        tell(Event::Closed(timer.now()));
        false
    }

    async fn read(
        &self,
        input: impl AsyncRead + Unpin,
        sender: &mpsc::Sender<Frame>,
        tell: &(dyn Fn(Event) + Send + Sync),
    ) -> io::Result<()> {
        let mut input = BufReader::new(input);
        while !input.fill_buf().await?.is_empty() {
            let mut header = Header::default();
            input.read_exact(&mut header).await?;
            let mut frame = Frame::from_header(&header)?;
            input.read_exact(&mut frame.body).await?;
            let answer = match frame.kind {
                Kind::Heartbeat => Frame::heartbeat(Kind::Alive),
                Kind::Request => Frame { kind: Kind::Response, ..frame },
                Kind::Alive => {
                    tell(Event::Alive(self.at(&self.read)));
                    continue;
                }
                Kind::Response => continue,
            };
            if sender.send(answer).await.is_err() {
                break;
            }
        }
        Ok(())
    }

    fn stamp(&self, time: &AtomicU64) {
        let passed = self.timer.now() - self.start;
        time.store(u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }

    fn at(&self, time: &AtomicU64) -> Instant {
        self.start + Duration::from_nanos(time.load(Relaxed))
    }
}

async fn write(
    mut output: impl AsyncWrite + Unpin,
    frames: &mut mpsc::Receiver<Frame>,
) -> io::Result<()> {
    let mut bytes = Vec::new();
    while let Some(frame) = frames.recv().await {
        frame.write_to(&mut bytes)?;
        output.write_all(&bytes).await?;
        bytes.clear();
    }
    Ok(())
}
