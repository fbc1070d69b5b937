//! The tasks of async code that wait until a timeout of one shard does not run.

use super::hub::Hub;
use crate::sync::{AtomicUsize, Mutex, Ordering, Rank, lock};
use alloc::collections::BTreeMap;
use core::task::Waker;

/// The tasks of async code that wait until a timeout of one shard does not run.
///
/// A task is here before it asks whether the timeout runs, which a lock tells. A thread that ends a
/// run says so under that lock, and looks here then. So it finds the task, or the task sees the end.
pub(super) struct Awaiting {
    /// How many there are.
    count: AtomicUsize,
    state: Mutex<AwaitingState>,
}

struct AwaitingState {
    /// By what they wait for, and their own numbers.
    wakers: BTreeMap<Place, Waker>,
    /// The last number that was given to one.
    last: u64,
}

/// What a task waits for, and its own number.
pub(super) type Place = (u64, u64);

impl Awaiting {
    pub(super) fn new() -> Self {
        let state = AwaitingState { wakers: BTreeMap::new(), last: 0 };
        Self { count: AtomicUsize::new(0), state: Mutex::new(Rank::Awaiting, state) }
    }

    /// Adds a task that waits for the end of `run`, and returns its place.
    pub(super) fn add(&self, run: u64, waker: Waker) -> Place {
        let mut state = lock(&self.state);
        state.last += 1;
        let place = (run, state.last);
        state.wakers.insert(place, waker);
        self.count.fetch_add(1, Ordering::Relaxed);
        place
    }

    /// Takes a task out, unless it was woken.
    pub(super) fn remove(&self, place: Place) -> Option<Waker> {
        let waker = lock(&self.state).wakers.remove(&place)?;
        self.count.fetch_sub(1, Ordering::Relaxed);
        Some(waker)
    }

    /// Wakes the tasks that wait for the end of `run`, which has come. Call this with no lock held.
    #[inline]
    pub(super) fn wake(&self, hub: &Hub, run: u64) {
        if 0 < self.count.load(Ordering::Relaxed) {
            self.wake_those(hub, run);
        }
    }

    #[cold]
    fn wake_those(&self, hub: &Hub, run: u64) {
        // Not those that wait anew when they are woken: the executor may have the task by now.
        let last = lock(&self.state).last;
        loop {
            let state = lock(&self.state);
            let next = state.wakers.range((run, 0)..=(run, last)).next().map(|(&place, _)| place);
            drop(state);
            let Some(place) = next else { return };
            let Some(waker) = self.remove(place) else { continue };
            hub.guarded(|| waker.wake());
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{ManualClock, Timer};

    /// Hangs if this takes the lock.
    #[test]
    fn the_end_of_a_run_for_which_no_task_waits_takes_no_lock() {
        let timer = Timer::builder().clock(ManualClock::new()).build().expect("in range");
        let awaiting = Awaiting::new();
        let held = lock(&awaiting.state);
        awaiting.wake(&timer.shard().hub, 1);
        drop(held);
    }
}
