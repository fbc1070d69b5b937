//! How many bytes a server holds for its connections: frames that it reads, works on or writes.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;
use tickwheel::Timer;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Room for the frames of all connections of a server.
#[derive(Debug)]
pub struct Room(Arc<Semaphore>);

/// The part of it that one connection may hold.
#[derive(Debug)]
pub struct Share {
    one: Arc<Semaphore>,
    all: Arc<Semaphore>,
}

/// The room of a frame. Dropping it gives the room back.
#[derive(Debug)]
pub struct Held {
    _one: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
}

impl Room {
    /// Makes room for [`MOST_OF_ALL`] bytes.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "a room is that of a server")]
    pub fn new() -> Self {
        Self(Arc::new(Semaphore::new(MOST_OF_ALL)))
    }

    /// Returns the share of one more connection: [`MOST_OF_ONE`] bytes, of what all have.
    #[must_use]
    pub fn share(&self) -> Share {
        Share { one: Arc::new(Semaphore::new(MOST_OF_ONE)), all: Arc::clone(&self.0) }
    }
}

impl Share {
    /// Waits until this connection has room for a frame with this body, and takes it.
    ///
    /// # Errors
    ///
    /// If all connections together have no room: then this does not wait.
    pub async fn hold(&self, body: usize) -> io::Result<Held> {
        let one = Arc::clone(&self.one).acquire_many_owned(bytes(body)).await;
        self.and_of_all(one.expect("nobody closes it"), body)
    }

    /// Takes room for a frame with this body.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn try_hold(&self, body: usize) -> io::Result<Held> {
        let one = Arc::clone(&self.one).try_acquire_many_owned(bytes(body));
        self.and_of_all(one.map_err(|_| ErrorKind::OutOfMemory)?, body)
    }

    fn and_of_all(&self, one: OwnedSemaphorePermit, body: usize) -> io::Result<Held> {
        let all = Arc::clone(&self.all).try_acquire_many_owned(bytes(body));
        Ok(Held { _one: one, _all: all.map_err(|_| ErrorKind::OutOfMemory)? })
    }
}

/// Waits for `future`, for `limit` at most. The other side may take some bytes now and then: that
/// does not begin the time anew.
///
/// # Errors
///
/// Those of `future`; and [`ErrorKind::TimedOut`], also if the timer cannot tell the time.
pub async fn within<T>(
    timer: &Timer,
    limit: Duration,
    future: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    timer.timeout(limit, std::pin::pin!(future)).await.map_err(|_| ErrorKind::TimedOut)?
}

/// A body that is longer than a frame's holds as much as the longest.
fn bytes(body: usize) -> u32 {
    (body.min(LONGEST_BODY) + BESIDE_BODY) as u32
}

/// A longer body is an error: a length that makes no sense must not take all memory.
pub const LONGEST_BODY: usize = 1 << 20;
/// Of one connection: four of the longest frames.
pub const MOST_OF_ONE: usize = 4 * (LONGEST_BODY + BESIDE_BODY);
/// Of all connections.
pub const MOST_OF_ALL: usize = 64 * LONGEST_BODY;
/// What a frame takes beside its body, in lists, in a timer and in an operation that waits for it.
const BESIDE_BODY: usize = 512;
