//! A wheel that finds its timeouts by the caller's own keys.

use crate::names::{Names, bits_of};
use crate::{Expired, Key, Mode, Wheel, WheelStats};
#[cfg(feature = "std")]
use alloc::vec::Vec;
use core::borrow::Borrow;
use core::fmt;
use core::hash::{BuildHasher, Hash};
use core::iter::FusedIterator;
use core::mem::replace;
#[cfg(feature = "std")]
use std::hash::RandomState;

/// Without std there is no default: the caller names a hasher.
#[cfg(not(feature = "std"))]
type RandomState = ();

/// Holds values under keys of the caller's own until their deadlines, and hands them out in order.
///
/// A `WheelMap` is a [`Wheel`] and a hash map in one. Like the wheel it is driven by its caller,
/// reads no clock and works without std, and it keeps each promise of the wheel. Like
/// [`HashMap`](std::collections::HashMap) it finds a value by its key, by anything that the key
/// [borrows](Borrow) as, and with any hasher. It stores each key once. A caller that wants to await
/// values on a timer takes a [`DelayMap`](crate::DelayMap).
///
/// Inserting, finding, moving and removing a value costs O(1), amortised, whatever its deadline,
/// and no insertion moves more than a few names. A value takes four bytes for the hash of its key,
/// and about twelve for the table, beyond what it takes in a wheel. Handing out a value calls no
/// code of the caller, because the map keeps the hash. A sentence that begins with "Cost" means
/// what it does in a [`Wheel`].
///
/// # Hashers
///
/// The default hasher is that of std's `HashMap`. Without std there is no default: name one, and
/// make the map with [`with_hasher`](Self::with_hasher).
///
/// The costs are those of keys with hashes that differ: a call looks at all keys that have the hash
/// of its own. So keys that an attacker chooses need a hasher that begins at random, as std's does.
///
/// # Keys and values that misbehave
///
/// If `Hash`, `Eq`, a hasher or a `Drop` panics, the panic reaches the caller, and the map is
/// consistent: a call that takes a key did all that it does, or nothing. A second panic in the same
/// call, as of a key and its value that are dropped, aborts the process, as with the collections of
/// std. If equal keys have different hashes, or `Eq` contradicts itself, the map may fail to find a
/// key, or hold it twice. Each value comes out at its deadline nevertheless, and memory stays
/// bounded. The same goes for a key that changes while the map holds it.
///
/// ```
/// use tickwheel::{Mode, WheelMap};
///
/// let mut sessions = WheelMap::new(Mode::hierarchical());
/// sessions.insert(String::from("ann"), "first", 30);
/// sessions.insert(String::from("bob"), "only", 40);
///
/// // The same key replaces the value, and its deadline.
/// assert_eq!(sessions.insert(String::from("ann"), "second", 60), Some("first"));
/// assert!(sessions.reschedule("bob", 70)); // a sign of life
///
/// assert!(sessions.expire(59).is_none());
/// let expired = sessions.expire(60).expect("it is due");
/// assert_eq!((expired.key.as_str(), expired.value), ("ann", "second"));
/// assert_eq!(sessions.remove("bob"), Some("only"));
/// assert!(sessions.is_empty());
/// ```
pub struct WheelMap<K, V, S = RandomState> {
    wheel: Wheel<Held<K, V>>,
    /// Names each timeout of the wheel once, by the hash that is kept with it.
    names: Names<u16, 10>,
    hasher: S,
}

/// A timeout's value in the wheel.
struct Held<K, V> {
    /// Half of what the hasher made of the key at first. It is kept, so that a timeout that expires
    /// asks no code of the caller.
    hash: u32,
    key: K,
    value: V,
}

#[cfg(feature = "std")]
impl<K, V> WheelMap<K, V> {
    /// Returns an empty map at tick 0. Allocates nothing.
    #[must_use]
    pub fn new(mode: Mode) -> Self {
        Self::with_hasher(mode, RandomState::new())
    }
}

impl<K, V, S> WheelMap<K, V, S> {
    /// Returns an empty map at tick 0 that hashes its keys with `hasher`. Allocates nothing.
    ///
    /// ```
    /// use std::hash::{BuildHasherDefault, DefaultHasher};
    /// use tickwheel::{Mode, WheelMap};
    ///
    /// let hasher = BuildHasherDefault::<DefaultHasher>::default(); // or that of a crate
    /// let mut map = WheelMap::with_hasher(Mode::hierarchical(), hasher);
    /// map.insert(7, "seven", 30);
    /// assert_eq!(map.get(&7), Some(&"seven"));
    /// ```
    #[must_use]
    pub fn with_hasher(mode: Mode, hasher: S) -> Self {
        Self { wheel: Wheel::new(mode), names: Names::new(), hasher }
    }

    /// Drives the map to tick `now` and returns the next value that is due, with its key. Returns
    /// None if none is left: call it until then. It is like [`Wheel::expire`].
    ///
    /// Cost: O(n).
    ///
    /// ```
    /// let mut map = tickwheel::WheelMap::new(tickwheel::Mode::hierarchical());
    /// map.insert("b", 2, 20);
    /// map.insert("a", 1, 10);
    /// let mut keys = Vec::new();
    /// while let Some(expired) = map.expire(1_000) {
    ///     keys.push(expired.key); // the loop may insert, move and remove
    /// }
    /// assert_eq!(keys, ["a", "b"]);
    /// ```
    pub fn expire(&mut self, now: u64) -> Option<Expired<V, K>> {
        self.expire_bounded(now, &mut { usize::MAX })
    }

    /// Returns the next value that is due, as [`expire`](Self::expire) does, and caps the work of
    /// the call, as [`Wheel::expire_bounded`] does.
    pub fn expire_bounded(&mut self, now: u64, work: &mut usize) -> Option<Expired<V, K>> {
        let Expired { key: named, deadline, value } = self.wheel.expire_bounded(now, work)?;
        let Held { hash, key, value } = value;
        self.names.remove(hash, is_place(named));
        Some(Expired { key, deadline, value })
    }

    /// Returns an iterator that takes all values out, each with its key and its deadline, in no
    /// particular order.
    ///
    /// Dropping the iterator drops the values that are left. If a caller leaks it, no key finds
    /// these values any more, and they come out at their deadlines. A value that panics in its
    /// `Drop` does what it does in [`Wheel::drain`].
    ///
    /// Cost: O(n + p / 4096).
    pub fn drain(&mut self) -> impl ExactSizeIterator<Item = Expired<V, K>> + FusedIterator {
        if self.len() < self.names.lines() {
            for (named, _, held) in self.wheel.iter() {
                self.names.remove(held.hash, is_place(named));
            }
        } else {
            self.names.clear();
        }
        self.wheel.drain().map(|Expired { deadline, value: Held { key, value, .. }, .. }| Expired {
            key,
            deadline,
            value,
        })
    }

    /// Drops all values. The map keeps its time and its memory. A value that panics in its `Drop`
    /// does what it does in [`Wheel::clear`].
    ///
    /// Cost: O(n + p / 4096).
    pub fn clear(&mut self) {
        drop(self.drain());
    }

    /// Drops each value for which `keeps` returns false. Asks in no particular order. O(n).
    ///
    /// If `keeps` or the `Drop` of a value panics, the map keeps the values it has not asked about.
    ///
    /// Cost: O(n + p / 4096).
    ///
    /// ```
    /// let mut map = tickwheel::WheelMap::new(tickwheel::Mode::hierarchical());
    /// map.insert(("ann", 1), "session", 10);
    /// map.insert(("bob", 1), "session", 20);
    /// map.retain(|(user, _), _| *user != "ann");
    /// assert_eq!(map.len(), 1);
    /// ```
    pub fn retain(&mut self, mut keeps: impl FnMut(&K, &mut V) -> bool) {
        let names = &mut self.names;
        self.wheel.retain(|named, _, held| {
            let is_kept = keeps(&held.key, &mut held.value);
            if !is_kept {
                names.remove(held.hash, is_place(named));
            }
            is_kept
        });
    }

    /// Gives back the memory that the present values do not need. O(n).
    ///
    /// Cost: O(n + p).
    pub fn shrink_to_fit(&mut self) {
        self.wheel.shrink_to_fit();
        self.names.shrink_to_fit(hash_in(&self.wheel));
    }

    /// Makes room for `additional` values more, so that storing them allocates only for the buckets
    /// that they fall in and for small tables of their keys. Writes the room for values, as
    /// [`Wheel::reserve`](crate::Wheel::reserve) does. If memory ends, it makes less room, or none.
    ///
    /// Cost: O(n + p + additional).
    pub fn reserve(&mut self, additional: usize) {
        // If there is no room now, `insert` asks again when it needs it.
        let room = self.wheel.try_reserve(additional);
        let _ = room.and_then(|()| self.names.try_reserve(additional));
    }

    /// Returns the tick of the next value that comes out, or None if the map is empty. It is exact,
    /// and costs what [`Wheel::next_deadline`] costs.
    ///
    /// Cost: O(log n) amortised, O(n) in one call.
    #[must_use]
    pub fn next_deadline(&mut self) -> Option<u64> {
        self.wheel.next_deadline()
    }

    /// Returns the tick at which to call [`expire`](Self::expire) next, or None if the map is
    /// empty. O(1). It is like [`Wheel::next_wake`]: never after the next deadline.
    #[must_use]
    pub fn next_wake(&self) -> Option<u64> {
        self.wheel.next_wake()
    }

    /// Returns an iterator over all values, as key, deadline and value, in no particular order. It
    /// costs what [`Wheel::iter`] costs.
    ///
    /// Cost: O(n + p / 4096).
    ///
    /// ```
    /// let mut map = tickwheel::WheelMap::new(tickwheel::Mode::hierarchical());
    /// map.insert("a", 1, 10);
    /// assert_eq!(map.iter().collect::<Vec<_>>(), [(&"a", 10, &1)]);
    /// ```
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&K, u64, &V)> + FusedIterator + Clone {
        self.wheel.iter().map(|(_, deadline, held)| (&held.key, deadline, &held.value))
    }

    /// Returns an iterator over all values, to change them in place. It is like
    /// [`iter`](Self::iter) otherwise.
    ///
    /// Cost: O(n + p / 4096).
    pub fn iter_mut(&mut self) -> impl ExactSizeIterator<Item = (&K, u64, &mut V)> + FusedIterator {
        self.wheel.iter_mut().map(|(_, deadline, held)| (&held.key, deadline, &mut held.value))
    }

    /// Returns the number of values, with those that are due and not yet handed out.
    #[must_use]
    pub fn len(&self) -> usize {
        self.wheel.len()
    }

    /// Returns whether there are no values.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.wheel.is_empty()
    }

    /// Returns the last tick that the map was driven to, and 0 before the first call of
    /// [`expire`](Self::expire).
    #[must_use]
    pub fn now(&self) -> u64 {
        self.wheel.now()
    }

    /// Returns the mode of the wheel.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.wheel.mode()
    }

    /// Returns what the wheel holds and what it has done. Its memory includes that of the table.
    ///
    /// Cost: O(n + p).
    #[must_use]
    pub fn stats(&self) -> WheelStats {
        let mut stats = self.wheel.stats();
        stats.memory += self.names.memory();
        stats
    }

    /// Panics unless every invariant holds: a slow and obvious scan, for tests.
    #[doc(hidden)]
    pub fn check(&self) {
        self.wheel.check();
        assert_eq!(self.names.len(), self.wheel.len(), "what the wheel holds is named");
        for (named, _, held) in self.wheel.iter() {
            let found = self.names.find(held.hash, is_place(named));
            assert!(found.is_some(), "every timeout is named by its hash");
        }
    }
}

impl<K: Hash + Eq, V, S: BuildHasher> WheelMap<K, V, S> {
    /// Inserts `value` under `key`, at tick `deadline`. Returns the value that `key` had, if it had
    /// one: the new value takes its place, and counts as scheduled anew. The map keeps the key that
    /// it has. O(1), amortised.
    ///
    /// If `deadline` is at or before [`now`](Self::now), it counts as `now`.
    pub fn insert(&mut self, key: K, value: V, deadline: u64) -> Option<V> {
        // The key first: if its `Drop` panics, the value is dropped as well.
        let (key, replaced) = self.replace(key, value, deadline)?;
        drop(key);
        Some(replaced)
    }

    /// Does what `insert` does, and returns the key too that it has no use for. So the caller can
    /// finish its work before that key is dropped, which might panic.
    pub(crate) fn replace(&mut self, key: K, value: V, deadline: u64) -> Option<(K, V)> {
        let hash = bits_of(self.hasher.hash_one(&key));
        if let Some(named) = self.find_hashed(hash, &key) {
            let held = self.wheel.get_mut(named)?;
            let replaced = replace(&mut held.value, value);
            self.wheel.reschedule(named, deadline);
            return Some((key, replaced));
        }
        self.insert_new(hash, key, value, deadline);
        None
    }

    /// Returns the value of `key`, to change it in place. If `key` has none, inserts the value that
    /// `make` returns, at tick `deadline`. O(1), amortised.
    ///
    /// ```
    /// let mut visits = tickwheel::WheelMap::new(tickwheel::Mode::hierarchical());
    /// for name in ["ann", "bob", "ann"] {
    ///     *visits.get_or_insert_with(name, 60, || 0) += 1;
    /// }
    /// assert_eq!(visits.get("ann"), Some(&2));
    /// ```
    pub fn get_or_insert_with(
        &mut self,
        key: K,
        deadline: u64,
        make: impl FnOnce() -> V,
    ) -> &mut V {
        let (named, _) = self.find_or_insert_with(key, deadline, make);
        &mut self.wheel.get_mut(named).expect("it is there").value
    }

    /// Does what `get_or_insert_with` does. Returns the name of the value, and the key if it is not
    /// needed.
    pub(crate) fn find_or_insert_with(
        &mut self,
        key: K,
        deadline: u64,
        make: impl FnOnce() -> V,
    ) -> (Key, Option<K>) {
        let hash = bits_of(self.hasher.hash_one(&key));
        match self.find_hashed(hash, &key) {
            Some(named) => (named, Some(key)),
            None => (self.insert_new(hash, key, make(), deadline), None),
        }
    }

    /// Moves the value of `key` to tick `deadline`. Returns false if there is none. O(1),
    /// amortised.
    ///
    /// Moving counts as scheduling anew: among equal deadlines, the value comes out last.
    pub fn reschedule<Q: ?Sized + Hash + Eq>(&mut self, key: &Q, deadline: u64) -> bool
    where
        K: Borrow<Q>,
    {
        self.find(key).is_some_and(|named| self.wheel.reschedule(named, deadline))
    }

    /// Removes the value of `key` and returns it. Returns None if there is none. O(1), amortised.
    pub fn remove<Q: ?Sized + Hash + Eq>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        // The key first: if its `Drop` panics, the value is dropped as well.
        let (key, value) = self.remove_entry(key)?;
        drop(key);
        Some(value)
    }

    /// Removes the value of `key`, and returns it with the key that the map had. Returns None if
    /// there is none.
    pub fn remove_entry<Q: ?Sized + Hash + Eq>(&mut self, key: &Q) -> Option<(K, V)>
    where
        K: Borrow<Q>,
    {
        let hash = bits_of(self.hasher.hash_one(key));
        let named = self.names.remove(hash, key_in(&self.wheel, key))?;
        let held = self.wheel.cancel(named)?;
        Some((held.key, held.value))
    }

    /// Returns the value of `key`, or None if there is none.
    #[must_use]
    pub fn get<Q: ?Sized + Hash + Eq>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        Some(&self.wheel.get(self.find(key)?)?.value)
    }

    /// Returns the value of `key`, to change it in place, or None if there is none.
    #[must_use]
    pub fn get_mut<Q: ?Sized + Hash + Eq>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        let named = self.find(key)?;
        Some(&mut self.wheel.get_mut(named)?.value)
    }

    /// Returns whether there is a value of `key`.
    #[must_use]
    pub fn contains_key<Q: ?Sized + Hash + Eq>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.find(key).is_some()
    }

    /// Returns the deadline of the value of `key`, or None if there is none.
    #[must_use]
    pub fn deadline<Q: ?Sized + Hash + Eq>(&self, key: &Q) -> Option<u64>
    where
        K: Borrow<Q>,
    {
        self.wheel.deadline(self.find(key)?)
    }

    fn find<Q: ?Sized + Hash + Eq>(&self, key: &Q) -> Option<Key>
    where
        K: Borrow<Q>,
    {
        self.find_hashed(bits_of(self.hasher.hash_one(key)), key)
    }
}

impl<K, V, S> WheelMap<K, V, S> {
    /// Returns the timeout of the key of that hash.
    #[inline]
    pub(crate) fn find_hashed<Q: ?Sized + Eq>(&self, hash: u32, key: &Q) -> Option<Key>
    where
        K: Borrow<Q>,
    {
        self.names.find(hash, key_in(&self.wheel, key))
    }

    /// Inserts a value under a key of that hash, which is not there, and returns its name.
    pub(crate) fn insert_new(&mut self, hash: u32, key: K, value: V, deadline: u64) -> Key {
        let named = self.wheel.schedule(deadline, Held { hash, key, value });
        self.names.insert(hash, named.index(), hash_in(&self.wheel));
        named
    }
}

/// For a map that threads share: it hashes a key before it takes a lock, looks for it once, and
/// drops nothing while it holds the lock.
#[cfg(feature = "std")]
impl<K, V, S> WheelMap<K, V, S> {
    /// Returns the value of a timeout.
    #[inline]
    pub(crate) fn named(&mut self, named: Key) -> Option<&mut V> {
        Some(&mut self.wheel.get_mut(named)?.value)
    }

    /// Moves a timeout to tick `deadline`, unless it comes out before that anyway.
    #[inline]
    pub(crate) fn bring_forward(&mut self, named: Key, deadline: u64) {
        if self.wheel.deadline(named).is_some_and(|filed| deadline < filed) {
            self.wheel.reschedule(named, deadline);
        }
    }

    /// Takes a timeout out.
    pub(crate) fn remove_named(&mut self, named: Key) -> Option<(K, V)> {
        let Held { hash, key, value } = self.wheel.cancel(named)?;
        self.names.remove(hash, is_place(named));
        Some((key, value))
    }

    /// Returns the next value that is due, as [`expire_bounded`](Self::expire_bounded) does, by the
    /// deadline that `deadline_of` tells of it. That may be later than the one it was inserted
    /// with: then the value goes back, with no code of the caller that could panic.
    pub(crate) fn expire_by(
        &mut self,
        now: u64,
        work: &mut usize,
        deadline_of: impl Fn(&V) -> u64,
    ) -> Option<Expired<V, K>> {
        loop {
            let Expired { key: named, value: held, .. } = self.wheel.expire_bounded(now, work)?;
            self.names.remove(held.hash, is_place(named));
            let Held { hash, key, value } = held;
            let deadline = deadline_of(&value);
            if deadline <= now {
                return Some(Expired { key, deadline, value });
            }
            self.insert_new(hash, key, value, deadline);
        }
    }

    /// Returns the timeouts for whose keys and values `is_it` returns true.
    pub(crate) fn names_of(&mut self, mut is_it: impl FnMut(&K, &mut V) -> bool) -> Vec<Key> {
        let all = self.wheel.iter_mut();
        all.filter_map(|(named, _, held)| is_it(&held.key, &mut held.value).then_some(named))
            .collect()
    }
}

/// Returns the name of the timeout at a place, if its key is `key`.
#[inline]
fn key_in<K: Borrow<Q>, V, Q: ?Sized + Eq>(
    wheel: &Wheel<Held<K, V>>,
    key: &Q,
) -> impl Fn(u32) -> Option<Key> {
    move |place| {
        let (named, held) = wheel.at(place)?;
        (held.key.borrow() == key).then_some(named)
    }
}

/// Returns the hash of the timeout at a place.
fn hash_in<K, V>(wheel: &Wheel<Held<K, V>>) -> impl Fn(u16, u32) -> u32 {
    |_, place| wheel.at(place).expect("what is named is there").1.hash
}

fn is_place(named: Key) -> impl Fn(u32) -> Option<()> {
    move |place| (place == named.index()).then_some(())
}

/// A hierarchical map of 64 buckets per level.
impl<K, V, S: Default> Default for WheelMap<K, V, S> {
    fn default() -> Self {
        Self::with_hasher(Mode::default(), S::default())
    }
}

impl<K: fmt::Debug, V: fmt::Debug, S> fmt::Debug for WheelMap<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter().map(|(key, _, value)| (key, value))).finish()
    }
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::WheelMap;
    use crate::Key;

    fn map() -> WheelMap<u32, u32> {
        let mut map = WheelMap::default();
        (0..4).for_each(|key| assert!(map.insert(key, 10 * key, 100).is_none()));
        map
    }

    fn named(map: &mut WheelMap<u32, u32>, wanted: u32) -> Key {
        let names = map.names_of(|&key, value| (key, *value) == (wanted, 10 * wanted));
        assert_eq!(names.len(), 1);
        names[0]
    }

    #[test]
    fn the_names_are_those_of_the_timeouts_that_were_asked_for() {
        let mut map = map();
        let names = map.names_of(|key, _| key % 2 == 1);
        let mut removed: Vec<_> = names.iter().map(|&named| map.remove_named(named)).collect();
        removed.sort_unstable();
        assert_eq!(removed, [Some((1, 10)), Some((3, 30))]);
        assert_eq!(map.len(), 2);
        assert!(map.names_of(|_, _| false).is_empty());
    }

    #[test]
    fn what_is_brought_forward_moves_if_it_would_come_later() {
        for (deadline, order) in [(99, [1, 0, 2, 3]), (100, [0, 1, 2, 3]), (101, [0, 1, 2, 3])] {
            let mut map = map();
            let named = named(&mut map, 1);
            map.bring_forward(named, deadline);
            let due = core::iter::from_fn(|| map.expire(200));
            let keys: Vec<_> = due.map(|expired| (expired.key, expired.deadline)).collect();
            assert_eq!(
                keys,
                order.map(|key| (key, if key == 1 { deadline.min(100) } else { 100 }))
            );
        }
    }
}
