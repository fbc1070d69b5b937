//! Timers that have a thread of their own, or a runtime's.

pub(crate) mod designs;
pub(crate) mod futures;
pub(crate) mod handles;
pub(crate) mod hhwt_thread;
pub(crate) mod netty;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// One timer that any number of threads share.
pub(crate) trait Threaded: Sync + Sized {
    /// Room for one timeout, empty at first.
    type Slot: Default;

    fn new() -> Self;

    /// Returns what one thread calls again and again: it cancels the timeout in a slot and
    /// schedules another one there, which counts itself in [`FIRED`] if it fires.
    fn replacer(&self) -> impl FnMut(&mut Self::Slot, Duration);

    /// Runs `task` after `delay`.
    fn after(&self, delay: Duration, task: Task);

    /// Adds one to `ran` after `delay`.
    fn count_after(&self, delay: Duration, ran: Arc<AtomicUsize>) {
        self.after(delay, Box::new(move || _ = ran.fetch_add(1, Relaxed)));
    }

    /// Returns when a timeout of 1 ms fired, or None if it did not within `patience`.
    fn fire_one(&self, patience: Duration) -> Option<Instant> {
        let (fired, waits) = mpsc::channel();
        let task = move || fired.send(Instant::now()).unwrap_or_default();
        self.after(Duration::from_millis(1), Box::new(task));
        waits.recv_timeout(patience).ok()
    }
}

pub(crate) type Task = Box<dyn FnOnce() + Send>;

/// Timeouts that fired which were to be cancelled.
pub(crate) static FIRED: AtomicU64 = AtomicU64::new(0);

/// Returns how many of them were early for sure, since a measurement `began`: none is due before it
/// has taken as long as such a timeout does.
pub(crate) fn early(began: Instant) -> u64 {
    let fired = FIRED.load(Relaxed);
    if began.elapsed() < FAR { fired } else { 0 }
}

/// A task that counts itself. It captures something, as tasks do.
fn counted() -> impl FnOnce() + Send + 'static {
    let fired = &FIRED;
    move || _ = fired.fetch_add(1, Relaxed)
}

/// How long a timeout that is to be cancelled takes.
pub(crate) const FAR: Duration = Duration::from_secs(30);
