//! One connection, and the check that watches it.

use crate::frame::{Frame, Kind};
use crate::room::{Held, Room, Share, within};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tickwheel::{Next, Timer};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::yield_now;
use tokio_util::io::{InspectReader, InspectWriter};

/// What a server or a client goes by.
#[derive(Clone)]
pub struct Settings {
    /// Watches all connections.
    pub timer: Timer,
    /// How long a connection may be quiet before the client asks. After three it is given up.
    pub interval: Duration,
    /// Is told what happens. It is called on the timer's worker, too, so it should be quick. A
    /// panic ends nothing.
    pub tell: Arc<dyn Fn(Event) + Send + Sync>,
}

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

/// What waits for a connection. What another side has asked for holds room until it is answered.
pub(super) type Queued = (Frame, Option<Held>);

/// When something was read and written.
pub(super) struct Link {
    timer: Timer,
    pub(super) start: Instant,
    /// Silence of this length ends the connection, and a frame takes no longer.
    limit: Duration,
    share: Share,
    /// In nanoseconds since the start.
    read: AtomicU64,
    written: AtomicU64,
}

impl Link {
    pub(super) fn new(settings: &Settings, room: &Room) -> Arc<Self> {
        let (timer, share) = (settings.timer.clone(), room.share());
        let (read, written) = Default::default();
        let limit = settings.interval.saturating_mul(SILENT);
        Arc::new(Self { start: timer.now(), timer, limit, share, read, written })
    }

    /// Keeps the connection until it ends.
    pub(super) async fn run(
        self: &Arc<Self>,
        mut stream: TcpStream,
        role: Role,
        settings: &Settings,
        sender: &mpsc::Sender<Queued>,
        frames: &mut mpsc::Receiver<Queued>,
    ) {
        let interval = settings.interval;
        let (gives_up, mut given_up) = mpsc::channel(1);
        let (link, asks, told) = (Arc::clone(self), sender.clone(), settings.clone());
        let silence = self.limit;
        let check = self.timer.schedule_with(interval, move |_| {
            let now = link.timer.now();
            let (read, written) = (now - link.at(&link.read), now - link.at(&link.written));
            if silence <= read {
                // It takes one.
                let _ = gives_up.try_send(now);
                return Next::After(interval);
            }
            let left = silence - read;
            if role == Role::Server {
                return Next::After(left);
            }
            let mut quiet = read.max(written);
            if interval <= quiet {
                // If the queue is full, there is something to write already.
                let _ = asks.try_send((Frame::heartbeat(Kind::Heartbeat), None));
                told.told(Event::Asked(now));
                quiet = Duration::ZERO;
            }
            Next::After(left.min(interval - quiet))
        });
        // However the connection ends, nothing watches it any more.
        let Ok(_check) = check.map(|check| check.cancel_on_drop()) else { return };
        settings.told(Event::Connected(self.start));

        let (input, output) = stream.split();
        let input = InspectReader::new(input, |_| self.stamp(&self.read));
        let output = InspectWriter::new(output, |_| self.stamp(&self.written));
        let mut reads = pin!(self.read(input, sender, settings));
        let mut writes = pin!(self.write(output, frames));
        loop {
            // Where this task was late, what has come is read before the silence is believed.
            let silent = async {
                let at = given_up.recv().await;
                yield_now().await;
                at
            };
            tokio::select! {
                biased;
                _ = &mut reads => break,
                _ = &mut writes => break,
                () = self.share.closed() => break,
                silent = silent => match silent {
                    // Told here, so that a connection that breaks just then ends once.
                    Some(at) if silence <= at - self.at(&self.read) => {
                        settings.told(Event::Silent(at));
                        return;
                    }
                    Some(_) => {}
                    // The timer was stopped: nobody watches the connection.
                    None => break,
                },
            }
        }
        settings.told(Event::Closed(self.timer.now()));
    }

    async fn read(
        &self,
        input: impl AsyncRead + Unpin,
        sender: &mpsc::Sender<Queued>,
        settings: &Settings,
    ) -> io::Result<()> {
        let mut input = BufReader::new(input);
        while let Some((frame, held)) =
            Frame::receive(&mut input, &self.share, &self.timer, self.limit).await?
        {
            let answer = match frame.kind {
                Kind::Heartbeat => Frame::heartbeat(Kind::Alive),
                Kind::Request => Frame { kind: Kind::Response, ..frame },
                Kind::Alive => {
                    settings.told(Event::Alive(self.at(&self.read)));
                    continue;
                }
                Kind::Response => continue,
            };
            if sender.send((answer, Some(held))).await.is_err() {
                break;
            }
        }
        Ok(())
    }

    async fn write(
        &self,
        mut output: impl AsyncWrite + Unpin,
        frames: &mut mpsc::Receiver<Queued>,
    ) -> io::Result<()> {
        while let Some((frame, _held)) = frames.recv().await {
            let mut bytes = Vec::new();
            frame.write_to(&mut bytes)?;
            drop(frame);
            within(&self.timer, self.limit, output.write_all(&bytes)).await?;
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

impl Settings {
    pub(super) fn told(&self, event: Event) {
        // Whoever is told has said so.
        let _ = catch_unwind(AssertUnwindSafe(|| (self.tell)(event)));
    }
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings").field("interval", &self.interval).finish_non_exhaustive()
    }
}

/// A connection is given up after this many intervals without a sign of life.
pub const SILENT: u32 = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use tickwheel::ManualClock;

    #[test]
    fn a_frame_that_is_not_read_ends_after_three_intervals_and_not_before() {
        let clock = ManualClock::new();
        let timer = Timer::builder().clock(clock.clone()).build().unwrap();
        let interval = Duration::from_secs(1);
        let settings = Settings { timer: timer.clone(), interval, tell: Arc::new(|_| {}) };
        let link = Link::new(&settings, &Room::default());
        let (sender, mut frames) = mpsc::channel(2);
        for _ in 0..2 {
            sender.try_send((Frame::heartbeat(Kind::Alive), None)).unwrap();
        }
        // One fits, and nobody reads.
        let (output, _input) = tokio::io::duplex(20);
        let mut write = pin!(link.write(output, &mut frames));
        assert!(write.as_mut().now_or_never().is_none());
        assert_eq!(timer.pending(), 1, "it has a limit");
        clock.advance(3 * interval - Duration::from_nanos(1));
        assert!(write.as_mut().now_or_never().is_none());
        clock.advance(Duration::from_nanos(1));
        let end = write.now_or_never().expect("its limit has come");
        assert_eq!(end.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
