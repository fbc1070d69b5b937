//! A map that hands out each value when its time has come.

use crate::awaited::{Awaited, Due, Source};
use crate::future::{Elapsed, timer};
use crate::{Expired, ScheduleErrorKind, Timer, WheelMap};
use alloc::vec::Vec;
use core::borrow::Borrow;
use core::fmt;
use core::future::poll_fn;
use core::hash::{BuildHasher, Hash};
use core::iter::FusedIterator;
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::hash::RandomState;
use std::time::Instant;

/// Holds values under keys of the caller's own, and hands out each when its time has come: to a
/// task that [awaits](Self::next) it, or to a thread that [blocks](Self::recv).
///
/// A `DelayMap` is a [`DelayQueue`](crate::DelayQueue) and a hash map in one: sessions by their
/// names, leases by what they lock, requests by their numbers. Inserting a key that is there
/// replaces its value and its deadline. The map stores each key once. A [`WheelMap`] is the same
/// without a timer, driven by its caller, and says what happens to keys and values that misbehave.
///
/// - A value never comes out early, by the timer's clock, counted from the call that inserted it.
///   It is late by less than a tick of the timer, plus the time to wake the worker and the task.
/// - Values come out by deadline, rounded up to the tick. Values of equal deadlines come out in the
///   order in which they were inserted, replaced or moved.
/// - A delay may be of any length. A delay too long for [`Instant`] never ends.
///
/// The map has a single timeout in its timer, and only while a task or a thread waits. What
/// [`DelayQueue`](crate::DelayQueue) says about waiting goes for the map too: changing the map
/// needs `&mut` access, a change wakes the task that waits if that task has to look again, and
/// dropping a future loses no value.
///
/// # Errors
///
/// While the timer is stopped, or has no room, or no worker, no thread wakes a task that waits.
/// Then waiting gives an error. If no value is due at the next call, that call returns None, so
/// that a loop over the map ends; a batch gives the error each time. Values that are due come out
/// nevertheless, and the others stay.
///
/// ```
/// # futures::executor::block_on(async {
/// use std::time::Duration;
/// use tickwheel::DelayMap;
///
/// let mut sessions = DelayMap::new();
/// sessions.insert(String::from("ann"), 1, Duration::from_millis(1));
/// sessions.insert(String::from("bob"), 2, Duration::from_millis(3));
/// sessions.insert(String::from("eve"), 3, Duration::from_secs(3_600));
///
/// // The same key replaces the value, and its deadline.
/// assert_eq!(sessions.insert(String::from("ann"), 7, Duration::from_millis(5)), Some(1));
/// assert!(sessions.reset("bob", Duration::from_millis(4))); // a sign of life
/// assert_eq!(sessions.remove("eve"), Some(3));
/// while let Some(due) = sessions.next().await {
///     let due = due?;
///     println!("the session of {} is over, it had {}", due.key, due.value); // bob, then ann
/// }
/// # Ok::<(), tickwheel::ScheduleErrorKind>(())
/// # }).unwrap();
/// ```
pub struct DelayMap<K, V, S = RandomState>(Awaited<WheelMap<K, V, S>>);

impl<K, V> DelayMap<K, V> {
    /// Makes an empty map on the [timer of the process](crate::timer()). Allocates nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::with_timer(timer())
    }

    /// Makes an empty map on `timer`, which it does not keep alive. Allocates nothing.
    #[must_use]
    pub fn with_timer(timer: &Timer) -> Self {
        Self::with_hasher(timer, RandomState::new())
    }
}

impl<K, V, S> DelayMap<K, V, S> {
    /// Makes an empty map on `timer` that hashes its keys with `hasher`.
    #[must_use]
    pub fn with_hasher(timer: &Timer, hasher: S) -> Self {
        Self(Awaited::new(timer, WheelMap::with_hasher(timer.shard().mode(), hasher)))
    }

    /// Waits for the next value, and returns it with its key. Returns None if the map is empty.
    ///
    /// The caller may drop the future of this call at any time, and no value is lost.
    ///
    /// # Errors
    ///
    /// If no thread can wake the task in time: see [`DelayMap`].
    pub async fn next(&mut self) -> Option<Result<Due<V, K>, ScheduleErrorKind>> {
        poll_fn(|context| self.poll_expired(context)).await
    }

    /// Waits for the next value, and goes on waiting while the map is empty, as
    /// [`DelayQueue::next_due`](crate::DelayQueue::next_due) does: for a `select!` with what fills
    /// the map.
    ///
    /// # Errors
    ///
    /// Those of [`next`](Self::next). Each call gives the error anew.
    pub async fn next_due(&mut self) -> Result<Due<V, K>, ScheduleErrorKind> {
        poll_fn(|context| self.0.poll_due(context)).await
    }

    /// Waits for the next value, and appends it to `batch` with those that are due by then, up to
    /// `max`. Returns how many: 0 where [`next`](Self::next) returns None, and if `max` is 0.
    ///
    /// # Errors
    ///
    /// Those of [`next`](Self::next).
    pub async fn next_batch(
        &mut self,
        batch: &mut Vec<Due<V, K>>,
        max: usize,
    ) -> Result<usize, ScheduleErrorKind> {
        poll_fn(|context| self.0.poll_batch(context, batch, max)).await
    }

    /// Returns the next value if it is due, or None if the map is empty. Otherwise the task wakes
    /// up when a value is due, or one is inserted that is due earlier, or the map becomes empty.
    ///
    /// # Errors
    ///
    /// Those of [`next`](Self::next).
    pub fn poll_expired(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Due<V, K>, ScheduleErrorKind>>> {
        self.0.poll_next(context)
    }

    /// Blocks the thread until the next value is due, and returns it. Returns None if the map is
    /// empty.
    ///
    /// Do not call this inside a task of the timer: the thread would wait for itself for ever.
    ///
    /// # Errors
    ///
    /// Those of [`next`](Self::next).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tickwheel::DelayMap;
    ///
    /// let mut leases = DelayMap::new();
    /// leases.insert("printer", "ann", Duration::from_millis(2));
    /// let due = leases.recv().expect("it is not empty")?;
    /// assert_eq!((due.key, due.value), ("printer", "ann"));
    /// # Ok::<(), tickwheel::ScheduleErrorKind>(())
    /// ```
    pub fn recv(&mut self) -> Option<Result<Due<V, K>, ScheduleErrorKind>> {
        self.0.recv()
    }

    /// Blocks the thread until the next value is due, as [`recv`](Self::recv) does, but no longer
    /// than `timeout`, by the timer's clock.
    ///
    /// # Errors
    ///
    /// If no value was due in that time, or no thread can wake this one in time.
    pub fn recv_timeout(&mut self, timeout: Duration) -> Option<Result<Due<V, K>, Elapsed>> {
        self.0.recv_timeout(timeout)
    }

    /// Blocks the thread until the next value is due, and appends it to `batch` with those that are
    /// due by then, as [`next_batch`](Self::next_batch) does.
    ///
    /// # Errors
    ///
    /// Those of [`next`](Self::next).
    pub fn recv_batch(
        &mut self,
        batch: &mut Vec<Due<V, K>>,
        max: usize,
    ) -> Result<usize, ScheduleErrorKind> {
        self.0.recv_batch(batch, max)
    }

    /// Returns an iterator that blocks the thread until the next value is due, and ends when the
    /// map is empty: [`recv`](Self::recv) again and again.
    pub fn blocking_iter(&mut self) -> impl Iterator<Item = Result<Due<V, K>, ScheduleErrorKind>> {
        self.0.blocking_iter()
    }

    /// Returns an iterator that takes all values out, each with its key, in no particular order.
    /// Dropping it drops those that are left, and leaking it does what it does in
    /// [`WheelMap::drain`].
    pub fn drain(&mut self) -> impl ExactSizeIterator<Item = (K, V)> + FusedIterator {
        // Before a value is dropped, because that might panic. The task cannot look yet.
        self.0.wake();
        self.0.source.drain().map(|expired| (expired.key, expired.value))
    }

    /// Drops all values. The map keeps its memory.
    pub fn clear(&mut self) {
        drop(self.drain());
    }

    /// Drops each value for which `keeps` returns false, as [`WheelMap::retain`] does.
    pub fn retain(&mut self, keeps: impl FnMut(&K, &mut V) -> bool) {
        self.0.wake();
        self.0.source.retain(keeps);
    }

    /// Makes room for `additional` values more. Does nothing if there is not enough memory.
    pub fn reserve(&mut self, additional: usize) {
        self.0.source.reserve(additional);
    }

    /// Frees memory that the present values do not need. O(n).
    pub fn shrink_to_fit(&mut self) {
        self.0.source.shrink_to_fit();
    }

    /// Returns the deadline of the value that comes out next, rounded up to the timer's tick.
    /// Returns None if there is none, or it never comes out.
    ///
    /// The answer is exact, so the map may have to look at many values.
    #[must_use]
    pub fn next_deadline(&mut self) -> Option<Instant> {
        let tick = self.0.source.next_deadline()?;
        self.0.hub().ticks.instant(tick)
    }

    /// Returns an iterator over all values, as key and value, in no particular order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&K, &V)> + FusedIterator + Clone {
        self.0.source.iter().map(|(key, _, value)| (key, value))
    }

    /// Returns the number of values, with those that are due.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.source.len()
    }

    /// Returns whether there are no values.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.source.is_empty()
    }
}

impl<K: Hash + Eq, V, S: BuildHasher> DelayMap<K, V, S> {
    /// Inserts `value` under `key`, to come out `delay` from now. Returns the value that `key` had,
    /// if it had one: the new value takes its place, and counts as inserted anew.
    pub fn insert(&mut self, key: K, value: V, delay: Duration) -> Option<V> {
        self.schedule(key, value, self.0.hub().deadline_after(delay))
    }

    /// Inserts `value` under `key`, to come out at `deadline`, or at once if that has passed, and
    /// is like [`insert`](Self::insert) otherwise.
    pub fn insert_at(&mut self, key: K, value: V, deadline: Instant) -> Option<V> {
        self.schedule(key, value, self.0.hub().ticks.deadline(deadline))
    }

    /// Moves the deadline of the value of `key` to `delay` from now, earlier or later than it was,
    /// and returns whether there is one.
    ///
    /// The value counts as inserted anew: among equal deadlines it comes out last.
    pub fn reset<Q: ?Sized + Hash + Eq>(&mut self, key: &Q, delay: Duration) -> bool
    where
        K: Borrow<Q>,
    {
        self.reschedule(key, self.0.hub().deadline_after(delay))
    }

    /// Moves the deadline to `deadline`, and is like [`reset`](Self::reset) otherwise. A deadline
    /// in the past is due at once.
    pub fn reset_at<Q: ?Sized + Hash + Eq>(&mut self, key: &Q, deadline: Instant) -> bool
    where
        K: Borrow<Q>,
    {
        self.reschedule(key, self.0.hub().ticks.deadline(deadline))
    }

    /// Removes the value of `key`, and returns it. Returns None if there is none.
    pub fn remove<Q: ?Sized + Hash + Eq>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        Some(self.remove_entry(key)?.1)
    }

    /// Removes the value of `key`, and returns it with the key that the map had. Returns None if
    /// there is none.
    pub fn remove_entry<Q: ?Sized + Hash + Eq>(&mut self, key: &Q) -> Option<(K, V)>
    where
        K: Borrow<Q>,
    {
        let removed = self.0.source.remove_entry(key)?;
        if self.is_empty() {
            self.0.wake();
        }
        Some(removed)
    }

    /// Returns the value of `key`, or None if there is none.
    #[must_use]
    pub fn get<Q: ?Sized + Hash + Eq>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.0.source.get(key)
    }

    /// Returns the value of `key`, to change it in place, or None if there is none.
    #[must_use]
    pub fn get_mut<Q: ?Sized + Hash + Eq>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        self.0.source.get_mut(key)
    }

    /// Returns whether there is a value of `key`.
    #[must_use]
    pub fn contains_key<Q: ?Sized + Hash + Eq>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.0.source.contains_key(key)
    }

    /// Returns the deadline of the value of `key`, rounded up to the timer's tick. Returns None if
    /// there is no value, or it never comes out.
    #[must_use]
    pub fn deadline<Q: ?Sized + Hash + Eq>(&self, key: &Q) -> Option<Instant>
    where
        K: Borrow<Q>,
    {
        self.0.hub().ticks.instant(self.0.source.deadline(key)?)
    }

    fn schedule(&mut self, key: K, value: V, deadline: u64) -> Option<V> {
        let replaced = self.0.source.replace(key, value, deadline);
        // Before the key that is not needed is dropped, because that might panic.
        self.0.hurry(deadline);
        Some(replaced?.1)
    }

    fn reschedule<Q: ?Sized + Hash + Eq>(&mut self, key: &Q, deadline: u64) -> bool
    where
        K: Borrow<Q>,
    {
        let is_there = self.0.source.reschedule(key, deadline);
        if is_there {
            self.0.hurry(deadline);
        }
        is_there
    }
}

impl<K, V, S> Source for WheelMap<K, V, S> {
    type Key = K;
    type Value = V;

    fn expire(&mut self, now: Option<u64>) -> Option<Expired<V, K>> {
        self.expire(now.unwrap_or_else(|| self.now()))
    }

    fn is_over(&self) -> bool {
        self.is_empty()
    }

    fn watch(&mut self, _: &Waker) -> Option<u64> {
        self.next_wake()
    }
}

/// On the [timer of the process](crate::timer()).
impl<K, V, S: Default> Default for DelayMap<K, V, S> {
    fn default() -> Self {
        Self::with_hasher(timer(), S::default())
    }
}

impl<K: fmt::Debug, V: fmt::Debug, S> fmt::Debug for DelayMap<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// Ends when the map is empty, and after an error. Goes on when there are values again.
#[cfg(feature = "stream")]
impl<K, V, S> futures_core::Stream for DelayMap<K, V, S> {
    type Item = Result<Due<V, K>, ScheduleErrorKind>;

    fn poll_next(
        mut self: core::pin::Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Self::Item>> {
        self.poll_expired(context)
    }
}
