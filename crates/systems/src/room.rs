//! How many bytes a server holds for its connections: frames that it reads, works on or writes.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tickwheel::Timer;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// Room for [`MOST_OF_ALL`] bytes of all connections of a server.
///
/// Each has a fair share. If there is no room, the connection that holds most is closed, unless the
/// one that wants room would then hold as much: so it is refused only if it would hold more than
/// all connections can have alike.
#[derive(Clone, Debug, Default)]
pub struct Room(Arc<Mutex<Bytes>>);

/// What one connection may hold: [`MOST_OF_ONE`] bytes.
#[derive(Debug)]
pub struct Share {
    one: Arc<Semaphore>,
    connection: Arc<Connection>,
}

/// The room of a frame. Dropping it gives the room back.
#[derive(Debug)]
pub struct Held {
    connection: Arc<Connection>,
    bytes: usize,
    _one: OwnedSemaphorePermit,
}

#[derive(Debug)]
struct Connection {
    room: Room,
    number: u64,
    close: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Bytes {
    connections: HashMap<u64, One>,
    /// How many there were.
    known: u64,
    /// What they hold.
    held: usize,
    /// What those still hold that are being closed because they held most.
    leaving: usize,
}

#[derive(Debug)]
struct One {
    held: usize,
    close: Arc<Notify>,
}

impl Room {
    /// Returns the share of one more connection.
    #[must_use]
    pub fn share(&self) -> Share {
        let mut all = self.lock();
        let (number, close) = (all.known, Arc::<Notify>::default());
        all.known += 1;
        all.connections.insert(number, One { held: 0, close: Arc::clone(&close) });
        drop(all);
        Share::of(Arc::new(Connection { room: self.clone(), number, close }))
    }

    fn lock(&self) -> MutexGuard<'_, Bytes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Share {
    fn of(connection: Arc<Connection>) -> Self {
        Self { one: Arc::new(Semaphore::new(MOST_OF_ONE)), connection }
    }

    /// Returns as much again for the same connection: its answers do not wait for its requests.
    #[must_use]
    pub fn again(&self) -> Self {
        Self::of(Arc::clone(&self.connection))
    }

    /// Waits until this connection has room for the longest frame, and takes none.
    pub async fn until_free(&self) {
        let longest = self.one.acquire_many(bytes(LONGEST_BODY) as u32);
        drop(longest.await.expect("nobody closes it"));
    }

    /// Waits until this connection has room for a frame with this body, and takes it.
    ///
    /// # Errors
    ///
    /// If all connections together have no room: then this does not wait.
    pub async fn hold(&self, body: usize) -> io::Result<Held> {
        let one = Arc::clone(&self.one).acquire_many_owned(bytes(body) as u32).await;
        self.and_of_all(one.expect("nobody closes it"), body)
    }

    /// Takes room for a frame with this body.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn try_hold(&self, body: usize) -> io::Result<Held> {
        let one = Arc::clone(&self.one).try_acquire_many_owned(bytes(body) as u32);
        self.and_of_all(one.map_err(|_| ErrorKind::OutOfMemory)?, body)
    }

    fn and_of_all(&self, one: OwnedSemaphorePermit, body: usize) -> io::Result<Held> {
        let (connection, bytes) = (Arc::clone(&self.connection), bytes(body));
        connection.room.lock().take(connection.number, bytes)?;
        Ok(Held { connection, bytes, _one: one })
    }

    /// Has the connection closed.
    pub fn close(&self) {
        self.connection.close.notify_one();
    }

    /// Waits until the connection is to be closed.
    pub async fn closed(&self) {
        self.connection.close.notified().await;
    }
}

impl Bytes {
    fn take(&mut self, number: u64, bytes: usize) -> io::Result<()> {
        let own = self.connections.get(&number).map_or(usize::MAX, |one| one.held + bytes);
        while MOST_STAYING < self.held + bytes {
            let largest = self.connections.iter().max_by_key(|(_, one)| one.held);
            let yields = |one: &One| own < one.held && self.leaving <= MOST_LEAVING;
            let largest = largest.filter(|(_, one)| yields(one)).map(|(number, _)| *number);
            let gone = self.connections.remove(&largest.ok_or(ErrorKind::OutOfMemory)?);
            let One { held, close } = gone.expect("it was found");
            close.notify_one();
            self.held -= held;
            self.leaving += held;
        }
        // One that is being closed takes no more.
        self.connections.get_mut(&number).ok_or(ErrorKind::OutOfMemory)?.held += bytes;
        self.held += bytes;
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut all = self.connection.room.lock();
        let Bytes { connections, held, leaving, .. } = &mut *all;
        let counts = match connections.get_mut(&self.connection.number) {
            Some(one) => {
                one.held -= self.bytes;
                held
            }
            None => leaving,
        };
        *counts -= self.bytes;
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.room.lock().connections.remove(&self.number);
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
fn bytes(body: usize) -> usize {
    body.min(LONGEST_BODY) + BESIDE_BODY
}

/// A longer body is an error: a length that makes no sense must not take all memory.
pub const LONGEST_BODY: usize = 1 << 20;
/// Of one connection: four of the longest frames.
pub const MOST_OF_ONE: usize = 4 * (LONGEST_BODY + BESIDE_BODY);
/// Of all connections, those that are being closed too, however long that takes.
pub const MOST_OF_ALL: usize = 64 * LONGEST_BODY;
/// No other is closed while those that are being closed hold more.
const MOST_LEAVING: usize = 8 * LONGEST_BODY;
/// Of those that are not being closed.
const MOST_STAYING: usize = MOST_OF_ALL - MOST_LEAVING - MOST_OF_ONE;
/// What a frame takes beside its body, in lists, in a timer and in an operation that waits for it.
const BESIDE_BODY: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    /// Connections that hold all.
    fn full(connections: usize) -> (Room, Vec<Share>, Vec<Held>) {
        let room = Room::default();
        let shares: Vec<_> = (0..connections).map(|_| room.share()).collect();
        let held = shares.iter().cycle().map_while(|share| share.try_hold(10_000).ok()).collect();
        (room, shares, held)
    }

    fn is_closed(share: &Share) -> bool {
        share.closed().now_or_never().is_some()
    }

    #[test]
    fn a_connection_that_holds_less_than_others_finds_room_and_one_of_them_is_closed() {
        let (room, shares, _held) = full(100);
        let honest = room.share();
        let _frames: Vec<_> = (0..50).map(|_| honest.try_hold(10_000).expect("its own")).collect();
        let gone: Vec<_> = shares.iter().filter(|share| is_closed(share)).collect();
        assert_eq!((gone.len(), is_closed(&honest)), (1, false));
        assert!(gone[0].try_hold(0).is_err(), "it takes no more");
        assert!(honest.try_hold(LONGEST_BODY).is_err(), "more than others have");
    }

    #[test]
    fn a_connection_holds_at_most_four_of_the_longest_frames_and_then_waits() {
        let share = Room::default().share();
        let held: Vec<_> = (0..5).map_while(|_| share.try_hold(LONGEST_BODY).ok()).collect();
        assert_eq!((held.len(), share.hold(0).now_or_never().is_some()), (4, false));
        assert!(share.until_free().now_or_never().is_none());
        drop(held);
        assert!(share.until_free().now_or_never().is_some());
    }

    #[test]
    fn all_room_is_given_back_and_those_that_are_being_closed_hold_little() {
        let (room, shares, held) = full(16);
        let newcomers: Vec<_> = (0..1_000).map(|_| room.share()).collect();
        let frames = newcomers.iter().map_while(|share| share.try_hold(LONGEST_BODY).ok());
        let frames: Vec<_> = frames.collect();
        assert!(shares.iter().any(is_closed));
        let sum = |room: &Room| {
            let Bytes { held, leaving, connections, .. } = &*room.lock();
            (*held, *leaving, connections.len())
        };
        let (staying, leaving, _) = sum(&room);
        assert!((1..=MOST_LEAVING + MOST_OF_ONE).contains(&leaving), "{leaving}");
        assert!(staying + leaving <= MOST_OF_ALL, "{staying} stay, {leaving} leave");
        drop((held, frames));
        assert_eq!((sum(&room).0, sum(&room).1), (0, 0));
        drop((shares, newcomers));
        assert_eq!(sum(&room), (0, 0, 0));
    }
}
