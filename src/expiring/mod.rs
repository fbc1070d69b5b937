//! A map of values with deadlines that any number of threads and tasks share.

mod builder;
mod receiver;
mod shard;

pub use builder::ExpiringMapBuilder;
pub use receiver::ExpiredReceiver;

use crate::names::{ODD, bits_of};
use crate::panics::{Payload, catch};
use crate::platform::Instant;
use crate::timer::{Hub, PendingLimit, Shard};
use crate::{DelaySender, Due, Expired, Key, Timer, WheelMap, timer};
use InsertErrorKind::{Full, Occupied};
use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use alloc::task::Wake;
use alloc::vec::Vec;
use core::borrow::Borrow;
use core::fmt;
use core::hash::{BuildHasher, Hash};
use core::iter::once;
use core::mem::{needs_drop, replace, take};
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::{AcqRel, Relaxed};
use core::time::Duration;
use crossbeam_utils::CachePadded;
use receiver::Unread;
use shard::{Batch, Locked, Map, MapShard, Stored};
use std::hash::RandomState;
use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};
use std::thread::panicking;

/// Holds values under keys of the caller's own, each until its deadline, for any number of threads
/// and tasks: a session store, a cache, pending requests by their numbers, leases.
///
/// Clones are the same map, and the thread that drops the last one drops the values. Each value has
/// a deadline of its own, and may have a [time to idle](ExpiringMapBuilder::time_to_idle). A value
/// that expires is dropped, or goes to a [hook](ExpiringMapBuilder::on_expired), or to a
/// [receiver](ExpiringMapBuilder::build_with_receiver). A program that holds a map in one place
/// takes a [`DelayMap`](crate::DelayMap), which needs no lock and hands values out in order.
///
/// - No call returns a value whose deadline has passed, however late the timer's worker is: each
///   call judges by the clock as it was before the call took the lock, and finds no value that
///   another call has found expired. A deadline is rounded up to the timer's tick.
/// - Each value has exactly one end: a call returns or drops it, or it expires. A value that has
///   expired counts as absent for all calls but [`len`](Self::len) and [`drain`](Self::drain).
/// - The worker takes expired values out in bounded batches, and other timeouts fire in between. No
///   caller waits for more than a batch, unless another thread calls [`iter`](Self::iter),
///   [`retain`](Self::retain) or [`shrink_to_fit`](Self::shrink_to_fit). Values expire in no
///   particular order, except that none expires early.
/// - A delay may be of any length. A delay too long for [`Instant`] never ends.
///
/// # Cost
///
/// Each call locks one shard at a time, for constant time, however many values the map holds. A call
/// that finds the map full locks each shard, and takes time for each value there that was moved to
/// later since the worker last looked at it.
/// Each shard of the map has a single timeout in its timer, whatever the number of values, which the
/// timer's [limit](crate::TimerBuilder::max_pending) counts and does not refuse. Moving a deadline
/// to later, and reading a value that has a time to idle, writes a number: the worker looks at the
/// value once at the earlier time, and files it anew. The call, or the turn of the worker, that
/// takes out the last of many values gives back their memory, with no lock held, which takes
/// milliseconds after a million. To drop the last handle is O(n + p).
///
/// # Code of the caller
///
/// Hashing a key, and the `Drop` of a key or a value, run with no lock held. Comparing keys, and
/// what a call says that it runs under a lock, run under the lock of one shard. Calls for other keys
/// may wait for this code, and so may the timer's worker, with all timeouts of that timer. So it
/// must be short, and must not wait for other threads.
///
/// - It must not call the same map, nor take turns of the timer's [`Driver`](crate::Driver). It may
///   call another map, unless code under the lock of that one calls this map, directly or by others,
///   or the `Drop` of a key or a value that the other map may drop.
/// - It may use channels and timers. A call that would wait for a timer or for a value does not
///   wait: it returns an error, as [`Timer`] says. Moving a
///   [`ManualClock`](crate::ManualClock) does not wait either, as inside a task.
/// - If it panics, the panic reaches the caller, and the map is consistent. The timer is told of a
///   panic in the `Drop` of what has expired, and no caller. If a call drops several keys and
///   values that panic in their `Drop`, all are dropped: the first panic reaches the caller, and
///   the timer is told of the others. A `Drop` that panics while a panic of other code passes
///   through the call aborts the process. Keys that misbehave have the consequences that
///   [`WheelMap`] states.
///
/// # After the timer was stopped
///
/// The map does not keep the timer alive. After the timer was stopped or dropped, the map works on,
/// and no call returns a value whose deadline has passed. Nothing takes such values out, until a
/// call stores a value under the same key, which drops the expired one or leaves it to the receiver,
/// or finds the map full, or takes all out. A value that such a call had left to the worker before
/// the stop stays until a call finds the map full or takes all out. The hook is not called any more,
/// but for values that an [`Executor`](crate::Executor) had yet to get: these are in a task that
/// [`stop`](Timer::stop) returns, which calls the hook if it is run.
///
/// ```
/// use std::time::Duration;
/// use tickwheel::{ExpiringMap, ManualClock, Timer};
///
/// let clock = ManualClock::new();
/// let timer = Timer::builder().clock(clock.clone()).build()?;
/// let sessions = ExpiringMap::with_timer(&timer);
/// let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
///
/// sessions.insert("ann", 7, minutes(30))?;
/// let shared = sessions.clone();
/// std::thread::spawn(move || shared.insert("bob", 8, minutes(10))).join().unwrap()?;
///
/// clock.advance(minutes(20));
/// assert_eq!(sessions.get("bob"), None);
/// assert_eq!(sessions.get_and_reset("ann", minutes(30)), Some(7)); // a sign of life
/// clock.advance(minutes(20));
/// assert_eq!(sessions.get("ann"), Some(7));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ExpiringMap<K, V, S = RandomState>(Arc<Shared<K, V, S>>);

struct Shared<K, V, S> {
    /// A power of two.
    shards: Box<[CachePadded<MapShard<K, V>>]>,
    /// Where the shards have their timeouts.
    timer: Arc<Shard>,
    hasher: S,
    time_to_idle: Option<Duration>,
    /// How many values there may be, those included that are to be handed over.
    limit: Option<Arc<PendingLimit>>,
    outlet: Outlet<K, V>,
    /// How many handles there are. The worker, which owns all this during a turn, is none.
    handles: AtomicUsize,
}

/// What becomes of expired values.
enum Outlet<K, V> {
    Drops,
    Hook(Arc<Hook<K, V>>),
    Receiver(DelaySender<Unread<K, V>>),
}

type Hook<K, V> = dyn Fn(Due<V, K>) + Send + Sync;

/// Calls of the hook. If they are left out, each value is dropped by itself.
struct Calls<K, V> {
    batch: Batch<K, V>,
    hook: Arc<Hook<K, V>>,
    hub: Arc<Hub>,
}

/// All that was taken out of a map.
struct Drained<K, V> {
    maps: Vec<Map<K, V>>,
    met: Batch<K, V>,
    hub: Arc<Hub>,
}

/// Looks at a shard when the timer wakes it.
struct Turn<K, V, S> {
    shared: Weak<Shared<K, V, S>>,
    number: usize,
}

/// The lock of a shard in which a key has no value.
struct Vacant<'a, K, V> {
    shard: &'a MapShard<K, V>,
    state: Locked<'a, K, V>,
    hash: u64,
    /// The value to store has its place in the limit of the map.
    has_place: bool,
    /// It has expired. To hand over with no lock held.
    expired: Option<Handed<'a, K, V>>,
}

/// A value that has expired, and where it goes.
type Handed<'a, K, V> = (Expired<V, K>, &'a Outlet<K, V>);

/// A value that a call found, and the lock of its shard.
struct Found<'a, K, V> {
    shard: &'a MapShard<K, V>,
    state: Locked<'a, K, V>,
    named: Key,
    /// The tick at which it ended when the call began.
    end: u64,
}

impl<K, V> ExpiringMap<K, V>
where
    K: Hash + Eq + Send + 'static,
    V: Send + 'static,
{
    /// Makes an empty map on the [timer of the process](crate::timer()).
    #[must_use]
    pub fn new() -> Self {
        Self::with_timer(timer())
    }

    /// Makes an empty map on `timer`, which it does not keep alive.
    #[must_use]
    pub fn with_timer(timer: &Timer) -> Self {
        Self::builder().build(timer)
    }
}

impl<K, V> ExpiringMap<K, V> {
    /// Returns a builder for a map that differs from [`ExpiringMap::new`].
    pub fn builder() -> ExpiringMapBuilder<K, V> {
        ExpiringMapBuilder::new()
    }
}

impl<K, V, S> ExpiringMap<K, V, S>
where
    K: Hash + Eq + Send + 'static,
    V: Send + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Stores `value` under `key`, to expire `delay` from now. Returns the value that `key` had, if
    /// it had one: the new value takes its place and has its own deadline. The map keeps the key
    /// that it has.
    ///
    /// Cost: O(1) amortised, O(n) in one call.
    ///
    /// # Errors
    ///
    /// If the map has as many values as its [limit](ExpiringMapBuilder::max_len) allows, and `key`
    /// has none. The error gives key and value back.
    pub fn insert(
        &self,
        key: K,
        value: V,
        delay: Duration,
    ) -> Result<Option<V>, InsertError<K, V>> {
        let (nanos, stored) = self.stored_after(value, delay);
        self.store(key, nanos, stored)
    }

    /// Stores `value` under `key`, to expire at `deadline`, and is like [`insert`](Self::insert)
    /// otherwise. A value whose deadline has passed expires at once.
    ///
    /// Cost: O(1) amortised, O(n) in one call.
    ///
    /// # Errors
    ///
    /// Those of [`insert`](Self::insert).
    pub fn insert_at(
        &self,
        key: K,
        value: V,
        deadline: Instant,
    ) -> Result<Option<V>, InsertError<K, V>> {
        let (nanos, stored) = self.stored_at(value, deadline);
        self.store(key, nanos, stored)
    }

    /// Stores `value` under `key`, to expire `delay` from now, unless `key` has a value.
    ///
    /// Cost: O(1) amortised, O(n) in one call.
    ///
    /// # Errors
    ///
    /// If `key` has a value, or the map has as many values as its
    /// [limit](ExpiringMapBuilder::max_len) allows. The error gives key and value back.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tickwheel::{ExpiringMap, InsertErrorKind};
    ///
    /// let leases = ExpiringMap::new();
    /// let term = Duration::from_secs(10);
    /// leases.insert_if_absent("lock", "ann", term)?;
    /// let refused = leases.insert_if_absent("lock", "bob", term).unwrap_err();
    /// assert_eq!(refused.kind(), InsertErrorKind::Occupied);
    /// assert_eq!(refused.into_entry(), ("lock", "bob"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn insert_if_absent(
        &self,
        key: K,
        value: V,
        delay: Duration,
    ) -> Result<(), InsertError<K, V>> {
        let (nanos, stored) = self.stored_after(value, delay);
        match self.look_for(&key, nanos) {
            Ok(_found) => Err(InsertError::new(Occupied, key, stored.value)),
            Err(vacant) => self.store_new(vacant, key, stored),
        }
    }

    /// Returns a clone of the value of `key`. If `key` has none, stores the value that `make`
    /// returns, to expire `delay` from now.
    ///
    /// `make` runs with no lock held. If another thread stores a value meanwhile, the call returns
    /// that value, and drops the one from `make`. Cloning runs under the lock.
    ///
    /// Cost: O(1) amortised, O(n) in one call.
    ///
    /// # Errors
    ///
    /// Those of [`insert`](Self::insert).
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let cache = tickwheel::ExpiringMap::new();
    /// let hour = Duration::from_secs(3_600);
    /// assert_eq!(cache.get_or_insert_with("answer", hour, || 42)?, 42);
    /// assert_eq!(cache.get_or_insert_with("answer", hour, || unreachable!())?, 42);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn get_or_insert_with(
        &self,
        key: K,
        delay: Duration,
        make: impl FnOnce() -> V,
    ) -> Result<V, InsertError<K, V>>
    where
        V: Clone,
    {
        if let Some(value) = self.get(&key) {
            return Ok(self.keep(value, [catch(|| drop(key)), catch(|| drop(make))]));
        }
        let value = make();
        let made = value.clone();
        let mut stored = self.insert_if_absent(key, value, delay);
        loop {
            let (key, value) = match stored {
                Ok(()) => return Ok(made),
                Err(error) if error.kind == Full => {
                    let Err(panic) = catch(|| drop(made)) else { return Err(error) };
                    let (key, value) = error.into_entry();
                    self.hub().guarded(|| drop(key));
                    self.hub().guarded(|| drop(value));
                    resume_unwind(panic)
                }
                Err(error) => error.into_entry(),
            };
            if let Some(first) = self.get(&key) {
                let needless = [value, made].into_iter().map(|value| catch(|| drop(value)));
                return Ok(self.keep(first, once(catch(|| drop(key))).chain(needless)));
            }
            stored = self.insert_if_absent(key, value, delay);
        }
    }

    /// Returns a clone of the value of `key`, or None if there is none. Cloning runs under the lock.
    #[must_use]
    pub fn get<Q: ?Sized + Hash + Eq>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        V: Clone,
    {
        self.with(key, V::clone)
    }

    /// Returns a clone of the value of `key`, and does not count as reading it: its
    /// [time to idle](ExpiringMapBuilder::time_to_idle) goes on. Cloning runs under the lock.
    #[must_use]
    pub fn peek<Q: ?Sized + Hash + Eq>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        V: Clone,
    {
        Some(self.find(key)?.stored().value.clone())
    }

    /// Returns a clone of the value of `key`, and moves its deadline to `delay` from now. It is
    /// [`get`](Self::get) and [`reset`](Self::reset) in one look.
    pub fn get_and_reset<Q: ?Sized + Hash + Eq>(&self, key: &Q, delay: Duration) -> Option<V>
    where
        K: Borrow<Q>,
        V: Clone,
    {
        let (nanos, to) = self.stored_after((), delay);
        let mut found = self.find_at(nanos, key)?;
        let value = found.stored().value.clone();
        self.move_to(found, &to);
        Some(value)
    }

    /// Returns what `read` makes of the value of `key`, or None if there is none. `read` runs under
    /// the lock of the key's shard, so that calls for other keys may wait for it.
    pub fn with<Q: ?Sized + Hash + Eq, R>(&self, key: &Q, read: impl FnOnce(&V) -> R) -> Option<R>
    where
        K: Borrow<Q>,
    {
        self.update(key, |value| read(value))
    }

    /// Changes the value of `key` in place. Returns what `change` returns, or None if there is no
    /// value. The deadline stays. `change` runs under the lock of the key's shard, so that calls
    /// for other keys may wait for it.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let visits = tickwheel::ExpiringMap::new();
    /// visits.insert("ann", 1, Duration::from_secs(60))?;
    /// let count = visits.update("ann", |count| {
    ///     *count += 1;
    ///     *count
    /// });
    /// assert_eq!(count, Some(2));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn update<Q: ?Sized + Hash + Eq, R>(
        &self,
        key: &Q,
        change: impl FnOnce(&mut V) -> R,
    ) -> Option<R>
    where
        K: Borrow<Q>,
    {
        let nanos = self.hub().nanos();
        let idle = self.idle_from(nanos);
        let mut found = self.find_at(nanos, key)?;
        let stored = found.stored();
        stored.note_read(idle);
        Some(change(&mut stored.value))
    }

    /// Counts as reading the value of `key`, for its
    /// [time to idle](ExpiringMapBuilder::time_to_idle). Returns whether there is one.
    pub fn touch<Q: ?Sized + Hash + Eq>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.with(key, |_| ()).is_some()
    }

    /// Moves the deadline of the value of `key` to `delay` from now, earlier or later than it was,
    /// and returns whether there is one.
    pub fn reset<Q: ?Sized + Hash + Eq>(&self, key: &Q, delay: Duration) -> bool
    where
        K: Borrow<Q>,
    {
        let (nanos, to) = self.stored_after((), delay);
        self.find_at(nanos, key).map(|found| self.move_to(found, &to)).is_some()
    }

    /// Moves the deadline to `delay` from now if `is_it` returns true for the value, as one step.
    /// Returns whether it did; otherwise nothing changes, and the value does not count as read.
    /// `is_it` runs under the lock of the key's shard.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let leases = tickwheel::ExpiringMap::new();
    /// leases.insert_if_absent("printer", "ann", Duration::from_secs(60))?;
    /// assert!(!leases.reset_if("printer", Duration::from_secs(60), |owner| *owner == "bob"));
    /// assert_eq!(leases.remove_if("printer", |owner| *owner == "bob"), None);
    /// assert_eq!(leases.remove_if("printer", |owner| *owner == "ann"), Some("ann"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reset_if<Q: ?Sized + Hash + Eq>(
        &self,
        key: &Q,
        delay: Duration,
        is_it: impl FnOnce(&V) -> bool,
    ) -> bool
    where
        K: Borrow<Q>,
    {
        let (nanos, to) = self.stored_after((), delay);
        let found = self.find_at(nanos, key).and_then(|found| found.filter(is_it));
        found.map(|found| self.move_to(found, &to)).is_some()
    }

    /// Moves the deadline to `deadline`, and is like [`reset`](Self::reset) otherwise. With a
    /// deadline in the past the value expires at once.
    pub fn reset_at<Q: ?Sized + Hash + Eq>(&self, key: &Q, deadline: Instant) -> bool
    where
        K: Borrow<Q>,
    {
        let (nanos, to) = self.stored_at((), deadline);
        self.find_at(nanos, key).map(|found| self.move_to(found, &to)).is_some()
    }

    /// Removes the value of `key`, and returns it. Returns None if there is none.
    ///
    /// Cost: O(1) amortised, O(p) in one call.
    pub fn remove<Q: ?Sized + Hash + Eq>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let (key, value) = self.remove_entry(key)?;
        Some(self.keep(value, [catch(|| drop(key))]))
    }

    /// Removes the value of `key` if `is_it` returns true for it, as one step, and returns it.
    /// Returns None if there is none, or `is_it` returns false: then nothing changes, and the value
    /// does not count as read. `is_it` runs under the lock of the key's shard.
    ///
    /// Cost: O(1) amortised, O(p) in one call.
    pub fn remove_if<Q: ?Sized + Hash + Eq>(
        &self,
        key: &Q,
        is_it: impl FnOnce(&V) -> bool,
    ) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let (key, value) = self.remove_found(self.find(key)?.filter(is_it)?)?;
        Some(self.keep(value, [catch(|| drop(key))]))
    }

    /// Removes the value of `key`, and returns it with the key that the map had. Returns None if
    /// there is none.
    ///
    /// Cost: O(1) amortised, O(p) in one call.
    pub fn remove_entry<Q: ?Sized + Hash + Eq>(&self, key: &Q) -> Option<(K, V)>
    where
        K: Borrow<Q>,
    {
        self.remove_found(self.find(key)?)
    }

    /// Returns whether there is a value of `key`. Does not count as reading it.
    #[must_use]
    pub fn contains_key<Q: ?Sized + Hash + Eq>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.find(key).is_some()
    }

    /// Returns when the value of `key` expires, rounded up to the timer's tick: at its deadline, or
    /// when its time to idle is over. Returns None if there is no value, or it never expires. Does
    /// not count as reading it.
    #[must_use]
    pub fn deadline<Q: ?Sized + Hash + Eq>(&self, key: &Q) -> Option<Instant>
    where
        K: Borrow<Q>,
    {
        self.hub().ticks.instant(self.find(key)?.end)
    }

    /// Returns the number of values, with those that have expired and that the worker has not taken
    /// out yet. Counts shard by shard: while other threads insert, the sum may be above
    /// [`max_len`](ExpiringMapBuilder::max_len), though there are never so many at once.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    /// Returns whether there are no values, as [`len`](Self::len) counts them.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns an iterator over clones of all values, each with its key and with what
    /// [`deadline`](Self::deadline) returns, in no particular order.
    ///
    /// The iterator clones one shard after the other, each under its lock, when it comes to it. A
    /// value that is there all the time comes once.
    ///
    /// Cost: O(n + p).
    pub fn iter(&self) -> impl Iterator<Item = (K, Option<Instant>, V)>
    where
        K: Clone,
        V: Clone,
    {
        self.0.shards.iter().flat_map(move |shard| {
            // If a clone panics, the others are dropped after the lock is released.
            let (mut keys, mut values) = (Vec::new(), Vec::new());
            let (state, now) = shard.lock_at(self.now());
            for (key, _, stored) in state.map.iter().filter(|(_, _, stored)| now < stored.end()) {
                keys.push(key.clone());
                values.push((self.hub().ticks.instant(stored.end()), stored.value.clone()));
            }
            drop(state);
            keys.into_iter().zip(values).map(|(key, (deadline, value))| (key, deadline, value))
        })
    }

    /// Returns an iterator that takes all values out, each with its key and the
    /// [instant](Self::deadline) at which it would have ended, those included that have expired and
    /// that the worker has not taken out yet. They come in no particular order. The values have left
    /// the map when the call returns, and dropping the iterator drops those that are left.
    ///
    /// Cost: O(n + p).
    pub fn drain(&self) -> impl Iterator<Item = (K, Option<Instant>, V)> + use<K, V, S> {
        self.0.drain()
    }

    /// Drops all values, with no lock held.
    ///
    /// Cost: O(n + p).
    pub fn clear(&self) {
        drop(self.drain());
    }

    /// Drops each value for which `keeps` returns false. Asks in no particular order, and not about
    /// values that have expired. `keeps` runs under the lock of one shard after the other, and the
    /// values are dropped with no lock held.
    ///
    /// If `keeps` panics, the values of that shard and of those not asked yet stay. If the `Drop`
    /// of a value panics, the others that were rejected go, and those not asked yet stay.
    ///
    /// Cost: O(n + p).
    pub fn retain(&self, mut keeps: impl FnMut(&K, &mut V) -> bool) {
        for shard in &self.0.shards {
            let (mut state, now) = shard.lock_at(self.now());
            let rejects = |key: &K, stored: &mut Stored<V>| {
                now < stored.end() && !keeps(key, &mut stored.value)
            };
            let rejected = state.map.names_of(rejects);
            let rejected: Vec<_> =
                rejected.into_iter().map(|named| state.map.remove_named(named)).collect();
            let memory = state.take_memory_if_emptied();
            drop(state);
            self.0.give_back(rejected.len());
            drop(memory);
            drop_each(self.hub(), rejected.into_iter().flatten());
        }
    }

    /// Gives back the memory that the present values do not need, with one shard locked after the
    /// other.
    ///
    /// Cost: O(n + p).
    pub fn shrink_to_fit(&self) {
        for shard in &self.0.shards {
            shard.lock().map.shrink_to_fit();
        }
    }

    /// Locks the shard of `key`, and finds its value.
    #[inline]
    fn find<Q: ?Sized + Hash + Eq>(&self, key: &Q) -> Option<Found<'_, K, V>>
    where
        K: Borrow<Q>,
    {
        self.find_at(self.hub().nanos(), key)
    }

    /// Locks the shard of `key`, and finds its value, for a call that began at `nanos`.
    #[inline]
    fn find_at<Q: ?Sized + Hash + Eq>(&self, nanos: u64, key: &Q) -> Option<Found<'_, K, V>>
    where
        K: Borrow<Q>,
    {
        let hash = self.0.hasher.hash_one(key);
        let shard = self.shard_of(hash);
        let (mut state, now) = shard.lock_at(self.hub().tick_at(nanos));
        let named = state.map.find_hashed(bits_of(hash), key)?;
        let end = state.map.named(named)?.end();
        (now < end).then_some(Found { shard, state, named, end })
    }

    fn store(&self, key: K, nanos: u64, stored: Stored<V>) -> Result<Option<V>, InsertError<K, V>> {
        match self.look_for(&key, nanos) {
            Ok(mut found) => {
                let end = stored.end();
                let replaced = replace(found.stored(), stored);
                self.refile(found, end);
                Ok(Some(self.keep(replaced.value, [catch(|| drop(key))])))
            }
            Err(vacant) => self.store_new(vacant, key, stored).map(|()| None),
        }
    }

    /// Locks the shard of a key that is to be stored, and finds its value. Otherwise returns the
    /// vacant place, from which a value that has expired was taken.
    fn look_for(&self, key: &K, nanos: u64) -> Result<Found<'_, K, V>, Vacant<'_, K, V>> {
        let hash = self.0.hasher.hash_one(key);
        let Some(limit) = &self.0.limit else { return self.look_at(hash, key, nanos) };
        if limit.is_full() {
            self.0.make_room(limit);
        }
        match self.look_at(hash, key, nanos) {
            // Other calls took the last places meanwhile.
            Err(Vacant { has_place: false, state, expired, .. }) => {
                drop(state);
                if let Some((expired, outlet)) = expired {
                    self.0.hand_over(alloc::vec![expired], outlet);
                }
                self.0.make_room(limit);
                self.look_at(hash, key, nanos)
            }
            looked => looked,
        }
    }

    /// Does what [`look_for`](Self::look_for) does, and makes no room in a map that is full.
    fn look_at(&self, hash: u64, key: &K, nanos: u64) -> Result<Found<'_, K, V>, Vacant<'_, K, V>> {
        let shard = self.shard_of(hash);
        let (mut state, now) = shard.lock_at(self.hub().tick_at(nanos));
        let mut expired = None;
        if let Some(named) = state.map.find_hashed(bits_of(hash), key) {
            let end = state.map.named(named).map_or(0, |stored| stored.end());
            if now < end {
                return Ok(Found { shard, state, named, end });
            }
            if let Some(removed) = state.take_out(named) {
                match self.0.outlet_of_callers() {
                    None => state.leave(removed),
                    Some(outlet) => {
                        self.0.make_vacant(1, outlet);
                        expired = Some((removed, outlet));
                    }
                }
            }
        }
        let has_place = self.0.limit.as_ref().is_none_or(|limit| limit.take());
        Err(Vacant { shard, state, hash, has_place, expired })
    }

    fn store_new(
        &self,
        vacant: Vacant<'_, K, V>,
        key: K,
        stored: Stored<V>,
    ) -> Result<(), InsertError<K, V>> {
        let Vacant { shard, mut state, hash, has_place, expired } = vacant;
        let stored = if has_place {
            let end = stored.end();
            state.store(bits_of(hash), key, stored);
            shard.release(&self.0.timer, state, end);
            Ok(())
        } else {
            drop(state);
            Err(InsertError::new(Full, key, stored.value))
        };
        if let Some((expired, outlet)) = expired {
            self.0.hand_over(alloc::vec![expired], outlet);
        }
        stored
    }

    /// Moves the deadline of a value that was found, which counts as reading it.
    fn move_to(&self, mut found: Found<'_, K, V>, to: &Stored<()>) {
        let stored = found.stored();
        stored.note_read(to.idle);
        stored.deadline = to.deadline;
        let end = stored.end();
        self.refile(found, end);
    }

    fn remove_found(&self, found: Found<'_, K, V>) -> Option<(K, V)> {
        let Found { mut state, named, .. } = found;
        let (key, stored) = state.map.remove_named(named)?;
        let memory = state.take_memory_if_emptied();
        drop(state);
        self.0.give_back(1);
        drop(memory);
        Some((key, stored.value))
    }

    /// Files a value that was found, and that ends at `end` now.
    #[inline]
    fn refile(&self, mut found: Found<'_, K, V>, end: u64) {
        // It is filed for the old end, or for a tick before that.
        if end < found.end {
            found.state.map.bring_forward(found.named, end);
        }
        found.shard.release(&self.0.timer, found.state, end);
    }

    /// Returns the present, and a value as it is in the map if it is stored or moved now, to end
    /// `delay` from now. Before any lock is taken: the clock is foreign code.
    #[inline]
    fn stored_after<T>(&self, value: T, delay: Duration) -> (u64, Stored<T>) {
        let nanos = self.hub().nanos();
        (nanos, self.stored(value, nanos, self.hub().deadline_from(nanos, delay)))
    }

    /// Returns the same for a value that is to end at `deadline`.
    #[inline]
    fn stored_at<T>(&self, value: T, deadline: Instant) -> (u64, Stored<T>) {
        let nanos = self.hub().nanos();
        (nanos, self.stored(value, nanos, self.hub().ticks.deadline(deadline)))
    }

    #[inline]
    fn stored<T>(&self, value: T, nanos: u64, deadline: u64) -> Stored<T> {
        Stored { value, deadline, idle: self.idle_from(nanos) }
    }

    /// Returns the tick at which a value ends that is read now.
    #[inline]
    fn idle_from(&self, nanos: u64) -> u64 {
        let deadline_from = |idle| self.hub().deadline_from(nanos, idle);
        self.0.time_to_idle.map_or(u64::MAX, deadline_from)
    }

    /// Returns `value`, unless the drop of what a call has no use for panicked: then it goes, too.
    fn keep<T>(&self, value: T, drops: impl IntoIterator<Item = Result<(), Payload>>) -> T {
        match first_panic(self.hub(), drops) {
            None => value,
            Some(panic) => {
                self.hub().guarded(|| drop(value));
                resume_unwind(panic)
            }
        }
    }

    #[inline]
    fn shard_of(&self, hash: u64) -> &MapShard<K, V> {
        // Other bits choose the line of the table within the shard.
        let mixed = (hash.wrapping_mul(ODD) >> 50) as usize;
        &self.0.shards[mixed & (self.0.shards.len() - 1)]
    }

    fn now(&self) -> u64 {
        self.hub().tick_at(self.hub().nanos())
    }
}

impl<K, V, S> ExpiringMap<K, V, S> {
    #[inline]
    fn hub(&self) -> &Hub {
        &self.0.timer.hub
    }
}

impl<K: Send + 'static, V: Send + 'static, S> Shared<K, V, S> {
    /// Takes expired values out of a shard, and hands them over.
    fn turn(&self, number: usize, outlet: &Outlet<K, V>) {
        let now = self.timer.hub.tick_at(self.timer.hub.nanos());
        let (batch, memory) = self.shards[number].turn(&self.timer, now);
        self.make_vacant(batch.len(), outlet);
        if !batch.is_empty() {
            self.hand_over(batch, outlet);
        }
        drop(memory);
    }

    fn hand_over(&self, batch: Batch<K, V>, outlet: &Outlet<K, V>) {
        let hub = &self.timer.hub;
        match outlet {
            Outlet::Drops => {
                batch.into_iter().for_each(|expired| let_go(hub, expired));
            }
            Outlet::Hook(hook) => {
                let calls = Calls { batch, hook: Arc::clone(hook), hub: Arc::clone(hub) };
                let call = move || calls.call();
                if !hub.has_executor {
                    call();
                } else if let Err(call) = self.timer.run_soon(Box::new(call)) {
                    // The timer was stopped during this turn.
                    call();
                }
            }
            Outlet::Receiver(sender) => {
                for expired in batch {
                    let deadline = expired.deadline;
                    let unread = Unread::new(expired, self.limit.clone());
                    // There is no receiver.
                    if let Err(refused) = sender.insert_at_tick(unread, deadline) {
                        let_go(hub, refused.into_value().into_expired());
                    }
                }
            }
        }
    }

    /// Takes out expired values, until one can be stored, if these are dropped.
    #[cold]
    fn make_room(&self, limit: &PendingLimit) {
        let now = self.timer.hub.tick_at(self.timer.hub.nanos());
        for (number, shard) in self.shards.iter().enumerate() {
            let Some(outlet @ Outlet::Drops) = self.outlet_of_callers() else { return };
            // A turn may take none out, and file values anew that were moved to later.
            while limit.is_full() && shard.is_behind(now) {
                self.turn(number, outlet);
            }
        }
    }
}

impl<K, V, S> Shared<K, V, S> {
    /// Takes all out.
    fn drain(&self) -> Drained<K, V> {
        let (mut maps, mut met) = (Vec::new(), Vec::new());
        for shard in &self.shards {
            let (map, mut expired) = shard.lock().take_all();
            self.give_back(map.len() + expired.len());
            maps.push(map);
            met.append(&mut expired);
        }
        Drained { maps, met, hub: Arc::clone(&self.timer.hub) }
    }

    /// Returns where a caller puts a value that it finds expired, or None if it leaves it to the
    /// worker.
    fn outlet_of_callers(&self) -> Option<&Outlet<K, V>> {
        match &self.outlet {
            Outlet::Hook(_) if !self.timer.is_stopped() => None,
            Outlet::Receiver(sender) if !sender.takes_none() => Some(&self.outlet),
            _ => Some(&Outlet::Drops),
        }
    }

    /// Says that so many values have left for that outlet. What a receiver has not got keeps its
    /// place.
    fn make_vacant(&self, places: usize, outlet: &Outlet<K, V>) {
        if !matches!(outlet, Outlet::Receiver(_)) {
            self.give_back(places);
        }
    }

    fn give_back(&self, places: usize) {
        if let Some(limit) = &self.limit {
            limit.give_back(places);
        }
    }
}

impl<K, V> Iterator for Drained<K, V> {
    type Item = (K, Option<Instant>, V);

    fn next(&mut self) -> Option<Self::Item> {
        let ticks = self.hub.ticks;
        if let Some(Expired { key, deadline, value }) = self.met.pop() {
            return Some((key, ticks.instant(deadline), value));
        }
        while let Some(map) = self.maps.last_mut() {
            if let Some(Expired { key, value: stored, .. }) = map.expire(u64::MAX) {
                return Some((key, ticks.instant(stored.end()), stored.value));
            }
            self.maps.pop();
        }
        None
    }
}

impl<K, V> Drop for Drained<K, V> {
    fn drop(&mut self) {
        if needs_drop::<(K, V)>() {
            let kept = self.maps.iter_mut().flat_map(WheelMap::drain);
            let kept = kept.map(|Expired { key, value, .. }| (key, value.value));
            let met = self.met.drain(..).map(|Expired { key, value, .. }| (key, value));
            drop_each(&self.hub, kept.chain(met));
        }
    }
}

impl<K, V> Calls<K, V> {
    fn call(mut self) {
        for expired in take(&mut self.batch) {
            self.hub.guarded(|| (self.hook)(Due::of(expired, &self.hub)));
        }
    }
}

impl<K, V> Drop for Calls<K, V> {
    fn drop(&mut self) {
        take(&mut self.batch).into_iter().for_each(|expired| let_go(&self.hub, expired));
    }
}

impl<K, V, S> Wake for Turn<K, V, S>
where
    K: Send + 'static,
    V: Send + 'static,
    S: Send + Sync + 'static,
{
    fn wake(self: Arc<Self>) {
        let Some(shared) = self.shared.upgrade() else { return };
        // Stopping the timer wakes it, too.
        if !shared.timer.is_stopped() {
            shared.turn(self.number, &shared.outlet);
        }
    }
}

impl<K, V> Found<'_, K, V> {
    #[inline]
    fn stored(&mut self) -> &mut Stored<V> {
        self.state.map.named(self.named).expect("it was found under this lock")
    }

    /// Releases the lock unless `is_it` returns true for the value.
    fn filter(mut self, is_it: impl FnOnce(&V) -> bool) -> Option<Self> {
        is_it(&self.stored().value).then_some(self)
    }
}

/// Drops what has expired. The timer is told of panics.
fn let_go<K, V>(hub: &Hub, Expired { key, value, .. }: Expired<V, K>) {
    hub.guarded(|| drop(key));
    hub.guarded(|| drop(value));
}

/// Drops each, whichever of them panic. The first panic reaches the caller, unless its thread
/// panics already: then the timer is told of it, as of the others.
fn drop_each<K, V>(hub: &Hub, all: impl Iterator<Item = (K, V)>) {
    let drops = all.flat_map(|(key, value)| [catch(|| drop(key)), catch(|| drop(value))]);
    match first_panic(hub, drops) {
        Some(panic) if panicking() => hub.panicked(panic),
        Some(panic) => resume_unwind(panic),
        None => {}
    }
}

/// Returns the first panic. The timer is told of the others.
fn first_panic(hub: &Hub, drops: impl IntoIterator<Item = Result<(), Payload>>) -> Option<Payload> {
    let mut panics = drops.into_iter().filter_map(Result::err);
    let first = panics.next();
    panics.for_each(|panic| hub.panicked(panic));
    first
}

/// Says why a value was not stored, from [`ExpiringMap::insert`], and gives key and value back:
/// [`into_entry`](Self::into_entry).
///
/// `?` makes a `Box<dyn Error + Send + Sync>` of it if key and value are `Send`.
pub struct InsertError<K, V> {
    kind: InsertErrorKind,
    /// Never locked: it lets threads share the error, whether or not they can share the value.
    entry: Mutex<(K, V)>,
}

/// Says why a value was not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InsertErrorKind {
    /// The map has as many values as its [limit](ExpiringMapBuilder::max_len) allows.
    Full,
    /// The key has a value.
    Occupied,
}

impl<K, V> InsertError<K, V> {
    fn new(kind: InsertErrorKind, key: K, value: V) -> Self {
        Self { kind, entry: Mutex::new((key, value)) }
    }

    /// Returns why the value was not stored.
    #[must_use]
    pub fn kind(&self) -> InsertErrorKind {
        self.kind
    }

    /// Returns the key and the value that were not stored.
    #[must_use]
    pub fn into_entry(self) -> (K, V) {
        self.entry.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K, V> fmt::Debug for InsertError<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InsertError").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl<K, V> fmt::Display for InsertError<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)
    }
}

impl core::error::Error for InsertErrorKind {}

impl fmt::Display for InsertErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Full => "the map has as many values as its limit allows",
            Occupied => "the key has a value",
        })
    }
}

impl<K, V> core::error::Error for InsertError<K, V> {}

/// The same map.
impl<K, V, S> Clone for ExpiringMap<K, V, S> {
    fn clone(&self) -> Self {
        self.0.handles.fetch_add(1, Relaxed);
        Self(Arc::clone(&self.0))
    }
}

/// With the last handle, this thread drops the values: all timeouts would wait for the worker.
impl<K, V, S> Drop for ExpiringMap<K, V, S> {
    fn drop(&mut self) {
        if self.0.handles.fetch_sub(1, AcqRel) == 1 {
            drop(self.0.drain());
        }
    }
}

/// On the [timer of the process](crate::timer()).
impl<K, V, S> Default for ExpiringMap<K, V, S>
where
    K: Hash + Eq + Send + 'static,
    V: Send + 'static,
    S: BuildHasher + Default + Send + Sync + 'static,
{
    fn default() -> Self {
        ExpiringMapBuilder::new().hasher(S::default()).build(timer())
    }
}

impl<K, V, S> fmt::Debug for ExpiringMap<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExpiringMap").field("shards", &self.0.shards.len()).finish_non_exhaustive()
    }
}
