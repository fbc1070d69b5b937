//! The timeouts of one shard that are due, out of the wheel, and have not begun to run.

use crate::sync::{AtomicBool, Condvar, Mutex, MutexGuard, Ordering, Rank, lock, wait};
use crate::{Expired, Key, steps};
use alloc::collections::VecDeque;
use core::mem::replace;

/// The timeouts of one shard that are due, out of the wheel, and have not begun to run: a few, so
/// that the worker takes the lock of the shard once for all of them. They can still be cancelled,
/// moved, and taken out by `stop`, also while the worker runs a slow task.
///
/// A timeout comes here from the wheel, and goes back there if it is moved, under the shard's lock.
/// So a thread that has that lock, and finds a timeout neither in the wheel nor here, knows that
/// the timeout has ended. The worker takes the next one out under the lock of this place alone.
pub(super) struct DueList<T> {
    state: Mutex<DueState<T>>,
    /// There may be some: cleared by the worker, under the lock of this place, and set under that of
    /// the shard. So a thread that has that lock and finds it cleared need not look.
    has_some: AtomicBool,
    /// Tells the threads that wait that `running` is another.
    ran: Condvar,
}

pub(super) struct DueState<T> {
    queue: VecDeque<Expired<T>>,
    /// The timeout that the worker took out last. Its task runs, until the worker takes the next.
    running: Option<Key>,
    /// How many threads wait until `running` is another.
    waiting: usize,
    /// The repeating timeouts that were taken out to run, and have neither ended since nor gone back
    /// into the wheel. Grows under this lock alone, and shrinks with the shard's lock held.
    away: usize,
}

impl<T> DueList<T> {
    pub(super) fn new() -> Self {
        let state = DueState { queue: VecDeque::new(), running: None, waiting: 0, away: 0 };
        let has_some = AtomicBool::new(false);
        Self { state: Mutex::new(Rank::Due, state), has_some, ran: Condvar::new() }
    }

    /// Locks the place. A thread that wants to know about a timeout has the shard's lock.
    pub(super) fn lock(&self) -> MutexGuard<'_, DueState<T>> {
        lock(&self.state)
    }

    /// Takes out the next to run. Returns it after the key of the one before, which has run, or is
    /// handed over. A timeout that `repeats` is away from then on.
    pub(super) fn next(
        &self,
        repeats: impl FnOnce(&T) -> bool,
    ) -> (Option<Key>, Option<Expired<T>>) {
        let mut state = self.lock();
        let next = state.queue.pop_front();
        state.away += usize::from(next.as_ref().is_some_and(|next| repeats(&next.value)));
        if next.is_none() {
            self.has_some.store(false, Ordering::Release);
        }
        let ran = replace(&mut state.running, next.as_ref().map(|expired| expired.key));
        if state.waiting > 0 {
            steps::count(1);
            self.ran.notify_all();
        }
        (ran, next)
    }

    /// Says that some were put in. The caller has the shard's lock.
    pub(super) fn fills(&self) {
        self.has_some.store(true, Ordering::Release);
    }

    /// Returns whether this one is here. The caller has the shard's lock.
    #[inline]
    pub(super) fn holds(&self, key: Key) -> bool {
        self.has_some.load(Ordering::Acquire) && self.has(key)
    }

    #[cold]
    fn has(&self, key: Key) -> bool {
        self.lock().get_mut(key).is_some()
    }

    /// Takes out one that is not to run. The caller has the shard's lock.
    #[cold]
    pub(super) fn take(&self, key: Key) -> Option<T> {
        let queue = &mut self.lock().queue;
        let index = queue.iter().position(|due| due.key == key)?;
        queue.remove(index).map(|due| due.value)
    }

    /// Says that a repeating timeout that was away has ended, or goes back. The caller has the
    /// shard's lock.
    pub(super) fn is_back(&self) {
        self.lock().away -= 1;
    }

    /// Returns whether the worker runs the task of this timeout.
    pub(super) fn runs(&self, key: Key) -> bool {
        self.lock().running == Some(key)
    }

    /// Waits until the worker does not run the task of this timeout.
    pub(super) fn wait_for(&self, key: Key) {
        let mut state = self.lock();
        state.waiting += 1;
        while state.running == Some(key) {
            state = wait(&self.ran, state);
        }
        state.waiting -= 1;
    }
}

impl<T> DueState<T> {
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn away(&self) -> usize {
        self.away
    }

    /// Returns the earliest deadline.
    pub(super) fn next_deadline(&self) -> Option<u64> {
        self.queue.front().map(|expired| expired.deadline)
    }

    pub(super) fn push(&mut self, expired: Expired<T>) {
        self.queue.push_back(expired);
    }

    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        self.queue.iter_mut().find(|due| due.key == key).map(|due| &mut due.value)
    }

    pub(super) fn pop(&mut self) -> Option<Expired<T>> {
        self.queue.pop_front()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn who_has_waited_for_a_run_is_told_of_no_more() {
        let due = DueList::<()>::new();
        due.wait_for(Key::from_bits(1 << 32));
        assert_eq!(due.lock().waiting, 0);
    }

    /// Else each task would cost a call of the system.
    #[test]
    fn where_nobody_waits_for_a_run_nobody_is_told() {
        let due = DueList::<()>::new();
        let told = |due: &DueList<()>| {
            let before = steps();
            due.next(|()| false);
            steps() - before
        };
        assert_eq!(told(&due), 0);
        due.lock().waiting = 1;
        assert_eq!(told(&due), u64::from(cfg!(debug_assertions)));
    }
}
