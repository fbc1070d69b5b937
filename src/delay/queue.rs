//! A queue that hands out each value when its time has come.

use super::{Delayed, Source};
use crate::future::timer;
use crate::platform::Instant;
use crate::{Expired, Key, Timer, Wheel};
use core::fmt;
use core::iter::FusedIterator;
use core::task::Waker;
use core::time::Duration;

/// Holds values, and hands out each when its time has come, in one of the ways of [`Delayed`].
///
/// The queue has its own [`Wheel`], in the mode of the timer's wheels. Inserting, removing and
/// moving a value costs the same whatever the delay, takes no lock unless a poll waits, and
/// allocates nothing beyond that wheel. Keys are generational: a stale key finds nothing. No call
/// panics, unless the `Drop` of a value does, or a waker where it is cloned. Dropping the queue
/// drops its values.
///
/// ```
/// # futures::executor::block_on(async {
/// use std::time::Duration;
/// use tickwheel::DelayQueue;
///
/// let mut sessions = DelayQueue::new();
/// let short = sessions.insert("short", Duration::from_millis(1));
/// let long = sessions.insert("long", Duration::from_secs(3_600));
/// sessions.insert("other", Duration::from_millis(2));
///
/// assert!(sessions.reset(short, Duration::from_millis(4))); // a sign of life
/// assert_eq!(sessions.remove(long), Some("long"));
/// while let Some(due) = sessions.next().await {
///     println!("{} is over", due?.value); // other, then short
/// }
/// assert!(sessions.is_empty());
/// # Ok::<(), tickwheel::ScheduleErrorKind>(())
/// # }).unwrap();
/// ```
pub type DelayQueue<T> = Delayed<Wheel<T>>;

impl<T> Delayed<Wheel<T>> {
    /// Makes an empty queue on the [timer of the process](crate::timer()). Allocates nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::with_timer(timer())
    }

    /// Makes an empty queue on `timer`, which it does not keep alive. Allocates nothing.
    #[must_use]
    pub fn with_timer(timer: &Timer) -> Self {
        Self::on(timer, Wheel::new(timer.shard().mode()))
    }

    /// Inserts `value`, to come out `delay` from now, and returns its key.
    ///
    /// Cost: O(1) amortised, O(p) in one call.
    pub fn insert(&mut self, value: T, delay: Duration) -> Key {
        self.schedule(value, self.hub().deadline_after(delay))
    }

    /// Inserts `value`, to come out at `deadline`, or at once if that has passed, and returns its
    /// key.
    ///
    /// Cost: O(1) amortised, O(p) in one call.
    pub fn insert_at(&mut self, value: T, deadline: Instant) -> Key {
        self.schedule(value, self.hub().ticks.deadline(deadline))
    }

    /// Removes the value that `key` names, and returns it. Returns None if it is gone.
    ///
    /// Cost: O(1) amortised, O(p) in one call.
    pub fn remove(&mut self, key: Key) -> Option<T> {
        let value = self.source.cancel(key)?;
        if self.source.is_empty() {
            self.sleep.wake();
        }
        Some(value)
    }

    /// Moves the deadline of the value that `key` names to `delay` from now, earlier or later than
    /// it was, and returns whether the value is there. The key stays good.
    ///
    /// The value counts as inserted anew: among equal deadlines it comes out last.
    ///
    /// Cost: O(1) amortised, O(p) in one call.
    pub fn reset(&mut self, key: Key, delay: Duration) -> bool {
        self.reschedule(key, self.hub().deadline_after(delay))
    }

    /// Moves the deadline to `deadline`, and is like [`reset`](Self::reset) otherwise. A deadline
    /// in the past is due at once.
    ///
    /// Cost: O(1) amortised, O(p) in one call.
    pub fn reset_at(&mut self, key: Key, deadline: Instant) -> bool {
        self.reschedule(key, self.hub().ticks.deadline(deadline))
    }

    /// Returns an iterator that takes all values out, each with its key and its deadline, in no
    /// particular order. The deadline is None if the value never comes out. Dropping the iterator
    /// drops those that are left, and leaking it does what it does in [`Wheel::drain`].
    ///
    /// Cost: O(n + p / 4096).
    pub fn drain(
        &mut self,
    ) -> impl ExactSizeIterator<Item = (Key, Option<Instant>, T)> + FusedIterator {
        // Before a value is dropped, because that might panic. The task cannot look yet.
        self.sleep.wake();
        let ticks = self.hub().ticks;
        let drained = self.source.drain();
        drained.map(move |Expired { key, deadline, value }| (key, ticks.instant(deadline), value))
    }

    /// Drops all values. The queue keeps its memory.
    ///
    /// Cost: O(n + p / 4096).
    pub fn clear(&mut self) {
        drop(self.drain());
    }

    /// Drops each value for which `keeps` returns false, as [`Wheel::retain`] does. The deadline is
    /// None if the value never comes out.
    ///
    /// Cost: O(n + p / 4096).
    pub fn retain(&mut self, mut keeps: impl FnMut(Key, Option<Instant>, &mut T) -> bool) {
        self.sleep.wake();
        let ticks = self.hub().ticks;
        self.source.retain(|key, deadline, value| keeps(key, ticks.instant(deadline), value));
    }

    /// Makes room for `additional` values more, and writes it, as
    /// [`Wheel::reserve`](crate::Wheel::reserve) does. If memory ends, it makes less room, or none.
    ///
    /// Cost: O(n + p + additional).
    pub fn reserve(&mut self, additional: usize) {
        self.source.reserve(additional);
    }

    /// Returns an iterator over all values, each with its key and its deadline, in no particular
    /// order. The deadline is None if the value never comes out.
    ///
    /// Cost: O(n + p / 4096).
    pub fn iter(
        &self,
    ) -> impl ExactSizeIterator<Item = (Key, Option<Instant>, &T)> + FusedIterator + Clone {
        let ticks = self.hub().ticks;
        self.source.iter().map(move |(key, deadline, value)| (key, ticks.instant(deadline), value))
    }

    /// Returns an iterator over all values, to change them in place. It is like
    /// [`iter`](Self::iter) otherwise.
    ///
    /// Cost: O(n + p / 4096).
    pub fn iter_mut(
        &mut self,
    ) -> impl ExactSizeIterator<Item = (Key, Option<Instant>, &mut T)> + FusedIterator {
        let ticks = self.hub().ticks;
        let all = self.source.iter_mut();
        all.map(move |(key, deadline, value)| (key, ticks.instant(deadline), value))
    }

    /// Returns the deadline of the value that `key` names, rounded up to the timer's tick. Returns
    /// None if the value is gone, or never comes out.
    #[must_use]
    pub fn deadline(&self, key: Key) -> Option<Instant> {
        self.hub().ticks.instant(self.source.deadline(key)?)
    }

    /// Returns the deadline of the value that comes out next, rounded up to the timer's tick.
    /// Returns None if there is none, or it never comes out.
    ///
    /// The answer is exact, so the queue may have to look at many values.
    ///
    /// Cost: O(log n) amortised, O(n) in one call.
    #[must_use]
    pub fn next_deadline(&mut self) -> Option<Instant> {
        let tick = self.source.next_deadline()?;
        self.hub().ticks.instant(tick)
    }

    /// Returns the key of the value that comes out next, unless the queue changes before.
    ///
    /// The answer is exact, so the queue may have to look at many values.
    ///
    /// Cost: O(log n) amortised, O(n) in one call.
    #[must_use]
    pub fn peek(&mut self) -> Option<Key> {
        Some(self.source.peek()?.0)
    }

    /// Returns the value that `key` names, or None if it is gone.
    #[must_use]
    pub fn get(&self, key: Key) -> Option<&T> {
        self.source.get(key)
    }

    /// Returns the value that `key` names, to change it in place, or None if it is gone.
    #[must_use]
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        self.source.get_mut(key)
    }

    fn schedule(&mut self, value: T, deadline: u64) -> Key {
        let key = self.source.schedule(deadline, value);
        self.hurry(deadline);
        key
    }

    fn reschedule(&mut self, key: Key, deadline: u64) -> bool {
        let is_there = self.source.reschedule(key, deadline);
        if is_there {
            self.hurry(deadline);
        }
        is_there
    }
}

impl<T> Source for Wheel<T> {
    type Key = Key;
    type Value = T;

    fn expire(&mut self, now: Option<u64>, work: &mut usize) -> Option<Expired<T>> {
        self.expire_bounded(now.unwrap_or_else(|| self.now()), work)
    }

    fn watch(&mut self, _: &Waker) -> Option<u64> {
        self.next_wake()
    }

    fn len(&self) -> usize {
        self.len()
    }

    fn shrink_to_fit(&mut self) {
        self.shrink_to_fit();
    }
}

/// On the [timer of the process](crate::timer()).
impl<T> Default for Delayed<Wheel<T>> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: fmt::Debug> fmt::Debug for Delayed<Wheel<T>> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DelayQueue").field("values", &self.source.iter()).finish_non_exhaustive()
    }
}
