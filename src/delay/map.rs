//! A map that hands out each value when its time has come.

use super::{Delayed, Source};
use crate::future::timer;
use crate::platform::Instant;
use crate::{Expired, Timer, WheelMap};
use core::borrow::Borrow;
use core::fmt;
use core::hash::{BuildHasher, Hash};
use core::iter::FusedIterator;
use core::task::Waker;
use core::time::Duration;
use std::hash::RandomState;

/// Holds values under keys of the caller's own, and hands out each when its time has come, in one
/// of the ways of [`Delayed`].
///
/// A `DelayMap` is a [`DelayQueue`](crate::DelayQueue) and a hash map in one: sessions by their
/// names, leases by what they lock, requests by their numbers. Inserting a key that is there
/// replaces its value and its deadline. The map stores each key once. A [`WheelMap`] is the same
/// without a timer, driven by its caller, and says what happens to keys and values that misbehave.
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
pub type DelayMap<K, V, S = RandomState> = Delayed<WheelMap<K, V, S>>;

impl<K, V> Delayed<WheelMap<K, V>> {
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

impl<K, V, S> Delayed<WheelMap<K, V, S>> {
    /// Makes an empty map on `timer` that hashes its keys with `hasher`.
    #[must_use]
    pub fn with_hasher(timer: &Timer, hasher: S) -> Self {
        Self::on(timer, WheelMap::with_hasher(timer.shard().mode(), hasher))
    }

    /// Returns an iterator that takes all values out, each with its key and its deadline, in no
    /// particular order. The deadline is None if the value never comes out. Dropping the iterator
    /// drops those that are left, and leaking it does what it does in [`WheelMap::drain`].
    ///
    /// Cost: O(n + p / 4096).
    pub fn drain(
        &mut self,
    ) -> impl ExactSizeIterator<Item = (K, Option<Instant>, V)> + FusedIterator {
        // Before a value is dropped, because that might panic. The task cannot look yet.
        self.sleep.wake();
        let ticks = self.hub().ticks;
        let drained = self.source.drain();
        drained.map(move |Expired { key, deadline, value }| (key, ticks.instant(deadline), value))
    }

    /// Drops all values. The map keeps its memory.
    ///
    /// Cost: O(n + p / 4096).
    pub fn clear(&mut self) {
        drop(self.drain());
    }

    /// Drops each value for which `keeps` returns false, as [`WheelMap::retain`] does.
    ///
    /// Cost: O(n + p / 4096).
    pub fn retain(&mut self, keeps: impl FnMut(&K, &mut V) -> bool) {
        self.sleep.wake();
        self.source.retain(keeps);
    }

    /// Makes room for `additional` values more, and writes it, as
    /// [`Wheel::reserve`](crate::Wheel::reserve) does. If memory ends, it makes less room, or none.
    ///
    /// Cost: O(n + p + additional).
    pub fn reserve(&mut self, additional: usize) {
        self.source.reserve(additional);
    }

    /// Returns the deadline of the value that comes out next, rounded up to the timer's tick.
    /// Returns None if there is none, or it never comes out.
    ///
    /// The answer is exact, so the map may have to look at many values.
    ///
    /// Cost: O(log n) amortised, O(n) in one call.
    #[must_use]
    pub fn next_deadline(&mut self) -> Option<Instant> {
        let tick = self.source.next_deadline()?;
        self.hub().ticks.instant(tick)
    }

    /// Returns an iterator over all values, each with its key and its deadline, in no particular
    /// order. The deadline is None if the value never comes out.
    ///
    /// Cost: O(n + p / 4096).
    pub fn iter(
        &self,
    ) -> impl ExactSizeIterator<Item = (&K, Option<Instant>, &V)> + FusedIterator + Clone {
        let ticks = self.hub().ticks;
        self.source.iter().map(move |(key, deadline, value)| (key, ticks.instant(deadline), value))
    }

    /// Returns an iterator over all values, to change them in place. It is like
    /// [`iter`](Self::iter) otherwise.
    ///
    /// Cost: O(n + p / 4096).
    pub fn iter_mut(
        &mut self,
    ) -> impl ExactSizeIterator<Item = (&K, Option<Instant>, &mut V)> + FusedIterator {
        let ticks = self.hub().ticks;
        let all = self.source.iter_mut();
        all.map(move |(key, deadline, value)| (key, ticks.instant(deadline), value))
    }
}

impl<K: Hash + Eq, V, S: BuildHasher> Delayed<WheelMap<K, V, S>> {
    /// Inserts `value` under `key`, to come out `delay` from now. Returns the value that `key` had,
    /// if it had one: the new value takes its place, and counts as inserted anew.
    ///
    /// Cost: O(1) amortised, O(p) in one call.
    pub fn insert(&mut self, key: K, value: V, delay: Duration) -> Option<V> {
        self.schedule(key, value, self.hub().deadline_after(delay))
    }

    /// Inserts `value` under `key`, to come out at `deadline`, or at once if that has passed, and
    /// is like [`insert`](Self::insert) otherwise.
    ///
    /// Cost: O(1) amortised, O(p) in one call.
    pub fn insert_at(&mut self, key: K, value: V, deadline: Instant) -> Option<V> {
        self.schedule(key, value, self.hub().ticks.deadline(deadline))
    }

    /// Returns the value of `key`, to change it in place. If `key` has none, inserts the value that
    /// `make` returns, to come out `delay` from now.
    ///
    /// Cost: O(1) amortised, O(p) in one call.
    pub fn get_or_insert_with(
        &mut self,
        key: K,
        delay: Duration,
        make: impl FnOnce() -> V,
    ) -> &mut V {
        let deadline = self.hub().deadline_after(delay);
        let (named, needless) = self.source.find_or_insert_with(key, deadline, make);
        if needless.is_none() {
            self.hurry(deadline);
        }
        self.source.named(named).expect("it is there")
    }

    /// Moves the deadline of the value of `key` to `delay` from now, earlier or later than it was,
    /// and returns whether there is one.
    ///
    /// The value counts as inserted anew: among equal deadlines it comes out last.
    ///
    /// Cost: O(1) amortised, O(p) in one call.
    pub fn reset<Q: ?Sized + Hash + Eq>(&mut self, key: &Q, delay: Duration) -> bool
    where
        K: Borrow<Q>,
    {
        self.reschedule(key, self.hub().deadline_after(delay))
    }

    /// Moves the deadline to `deadline`, and is like [`reset`](Self::reset) otherwise. A deadline
    /// in the past is due at once.
    ///
    /// Cost: O(1) amortised, O(p) in one call.
    pub fn reset_at<Q: ?Sized + Hash + Eq>(&mut self, key: &Q, deadline: Instant) -> bool
    where
        K: Borrow<Q>,
    {
        self.reschedule(key, self.hub().ticks.deadline(deadline))
    }

    /// Removes the value of `key`, and returns it. Returns None if there is none.
    ///
    /// Cost: O(1) amortised, O(p) in one call.
    pub fn remove<Q: ?Sized + Hash + Eq>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let (key, value) = self.remove_entry(key)?;
        // That might panic. Then the value goes, too.
        drop(key);
        Some(value)
    }

    /// Removes the value of `key`, and returns it with the key that the map had. Returns None if
    /// there is none.
    ///
    /// Cost: O(1) amortised, O(p) in one call.
    pub fn remove_entry<Q: ?Sized + Hash + Eq>(&mut self, key: &Q) -> Option<(K, V)>
    where
        K: Borrow<Q>,
    {
        let removed = self.source.remove_entry(key)?;
        if self.is_empty() {
            self.sleep.wake();
        }
        Some(removed)
    }

    /// Returns the value of `key`, or None if there is none.
    #[must_use]
    pub fn get<Q: ?Sized + Hash + Eq>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.source.get(key)
    }

    /// Returns the value of `key`, to change it in place, or None if there is none.
    #[must_use]
    pub fn get_mut<Q: ?Sized + Hash + Eq>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        self.source.get_mut(key)
    }

    /// Returns whether there is a value of `key`.
    #[must_use]
    pub fn contains_key<Q: ?Sized + Hash + Eq>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.source.contains_key(key)
    }

    /// Returns the deadline of the value of `key`, rounded up to the timer's tick. Returns None if
    /// there is no value, or it never comes out.
    #[must_use]
    pub fn deadline<Q: ?Sized + Hash + Eq>(&self, key: &Q) -> Option<Instant>
    where
        K: Borrow<Q>,
    {
        self.hub().ticks.instant(self.source.deadline(key)?)
    }

    fn schedule(&mut self, key: K, value: V, deadline: u64) -> Option<V> {
        let replaced = self.source.replace(key, value, deadline);
        // Before the key that is not needed is dropped, because that might panic.
        self.hurry(deadline);
        let (key, value) = replaced?;
        drop(key);
        Some(value)
    }

    fn reschedule<Q: ?Sized + Hash + Eq>(&mut self, key: &Q, deadline: u64) -> bool
    where
        K: Borrow<Q>,
    {
        let is_there = self.source.reschedule(key, deadline);
        if is_there {
            self.hurry(deadline);
        }
        is_there
    }
}

impl<K, V, S> Source for WheelMap<K, V, S> {
    type Key = K;
    type Value = V;

    fn expire(&mut self, now: Option<u64>, work: &mut usize) -> Option<Expired<V, K>> {
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
impl<K, V, S: Default> Default for Delayed<WheelMap<K, V, S>> {
    fn default() -> Self {
        Self::with_hasher(timer(), S::default())
    }
}

impl<K: fmt::Debug, V: fmt::Debug, S> fmt::Debug for Delayed<WheelMap<K, V, S>> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.source.iter().map(|(key, _, value)| (key, value))).finish()
    }
}
