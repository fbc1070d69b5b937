//! One shard of a map that threads share: its values behind a lock, and its place in the timer.
//!
//! A shard has one timeout in the timer, for a look at the tick of its earliest value. The worker
//! looks in a [turn](MapShard::turn), takes a bounded number of expired values out, and places the
//! timeout anew. A caller that stores a value which ends before the look moves the timeout, tells
//! the worker, and only then lowers `watched`. So does a caller that looks in the worker's place.
//! One that loses its core in between holds up no value of another, because that caller finds the
//! old `watched` and tells the worker too.
//!
//! | case | what happens | `tests/loom.rs` |
//! |---|---|---|
//! | stored or moved earlier while the worker looks, or falls asleep | the look finds it, or the caller moves the timeout | `stored_in_a_map_as_the_worker_looks_it_expires`, `moved_earlier_in_a_map_as_the_worker_looks_it_expires` |
//! | stored by two threads, each before the look | both tell the worker, and the earlier tick stays | `stored_in_a_map_by_two_threads_both_expire`, `stored_in_a_map_as_another_thread_tells_of_a_later_one_it_expires` |
//! | removed, replaced or prolonged while the worker takes it out | the caller has it, or hears that it is gone | `removed_from_a_map_as_it_expires_it_has_one_end`, `replaced_in_a_map_as_it_expires_it_has_one_end`, `prolonged_in_a_map_as_it_expires_it_stays_or_is_gone` |
//! | stored while the timer stops | it stays in the map, or expires | `stored_in_a_map_as_the_timer_is_stopped_it_stays_or_expires` |
//! | dropped while the worker looks | what was not taken out is dropped | `a_map_is_dropped_as_the_worker_looks`, `a_map_is_dropped_as_the_worker_looks_and_its_receiver_ends` |
//! | handed to a receiver that falls asleep, or goes | it comes, or is dropped | `handed_over_by_the_worker_as_a_receiver_of_a_map_falls_asleep_it_comes`, `the_receiver_of_a_map_is_dropped_as_the_worker_hands_over` |

use crate::sync::{Mutex, MutexGuard, Rank, lock};
use crate::ticks::NEVER;
use crate::timer::{Drops, Ready, Shard, waits_for_none};
use crate::{Expired, Key, Mode, WheelMap};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem::{replace, take};
use core::ops::{Deref, DerefMut};
use core::task::Waker;

pub(super) struct MapShard<K, V> {
    state: Mutex<ShardState<K, V>>,
    /// Makes a turn of this shard.
    turn: Waker,
}

/// The state of a shard, locked. This thread waits for no timer meanwhile, because the worker of one
/// may wait for this lock.
pub(super) struct Locked<'a, K, V> {
    state: MutexGuard<'a, ShardState<K, V>>,
    _waits_for_none: Drops,
}

pub(super) struct ShardState<K, V> {
    /// By the ticks of the timer. A value may be filed for a tick before that of its end.
    pub(super) map: Map<K, V>,
    /// Expired values that callers came upon, for the worker's next turn.
    met: Batch<K, V>,
    /// The worker looks at this tick at the latest, and knows it. A value ends earlier only while
    /// the worker looks, or the caller that stored it tells the worker.
    watched: u64,
    /// How often the worker, or a caller in its place, has looked, and placed the timeout.
    looks: u64,
    place: Place,
    /// The last tick by which a call, or a turn, judged what has expired.
    judged: u64,
    /// How many values were stored since the map last gave back its memory.
    stored: u64,
}

pub(super) type Map<K, V> = WheelMap<K, Stored<V>, ()>;

/// Expired values that are out of the map.
pub(super) type Batch<K, V> = Vec<Expired<V, K>>;

/// A value as it is in the map.
pub(super) struct Stored<V> {
    pub(super) value: V,
    /// The tick it was stored for.
    pub(super) deadline: u64,
    /// The tick at which it ends if no call reads it before.
    pub(super) idle: u64,
}

/// The timeout in the timer.
struct Place {
    timer: Arc<Shard>,
    key: Option<Key>,
    /// The worker is to look at this tick, or before.
    tick: u64,
}

impl<K, V> MapShard<K, V> {
    pub(super) fn new(timer: &Arc<Shard>, mode: Mode, turn: Waker) -> Self {
        let state = ShardState {
            map: WheelMap::with_hasher(mode, ()),
            met: Vec::new(),
            watched: NEVER,
            looks: 0,
            judged: 0,
            place: Place { timer: Arc::clone(timer), key: None, tick: NEVER },
            stored: 0,
        };
        Self { state: Mutex::new(Rank::Map, state), turn }
    }

    #[inline]
    pub(super) fn lock(&self) -> Locked<'_, K, V> {
        Locked { state: lock(&self.state), _waits_for_none: waits_for_none() }
    }

    /// Locks the shard for a call that read the clock at tick `now`. Returns the tick by which it
    /// judges: what another call has found expired meanwhile stays so.
    #[inline]
    pub(super) fn lock_at(&self, now: u64) -> (Locked<'_, K, V>, u64) {
        let mut state = self.lock();
        let now = now.max(state.judged);
        state.judged = now;
        (state, now)
    }

    /// Takes a bounded number of expired values out, and places the timeout for the next look.
    /// Returns memory too, to free with no lock held.
    pub(super) fn turn(&self, timer: &Shard, now: u64) -> (Batch<K, V>, Option<Map<K, V>>) {
        let ready = timer.ready();
        let mut batch = Vec::new();
        let (mut state, now) = self.lock_at(now);
        let next = if state.take_expired(now, &mut batch) {
            now
        } else {
            state.map.next_wake().unwrap_or(NEVER)
        };
        let looks = ready.map(|ready| state.place_look(ready, timer, next, &self.turn));
        let memory = state.take_memory_if_emptied();
        drop(state);
        if let Some(looks) = looks {
            self.tell_of(timer, looks, next);
        }
        (batch, memory)
    }

    /// Tells the worker of a look at `tick`, and only then lowers `watched`, unless the worker has
    /// looked since.
    fn tell_of(&self, timer: &Shard, looks: u64, tick: u64) {
        timer.tell_of(tick);
        let mut state = self.lock();
        if state.looks == looks && state.place.key.is_some() {
            state.watched = state.watched.min(tick);
        }
    }

    /// Returns whether a turn has something to do at tick `now`.
    pub(super) fn is_behind(&self, now: u64) -> bool {
        let (state, now) = self.lock_at(now);
        !state.met.is_empty() || state.map.next_wake().is_some_and(|next| next <= now)
    }

    /// Releases the lock after a value was stored that ends at `end`, and tells the worker if it
    /// would look too late.
    #[inline]
    pub(super) fn release(&self, timer: &Shard, state: Locked<'_, K, V>, end: u64) {
        if end < state.watched {
            let looks = state.looks;
            drop(state);
            self.tell(timer, looks, end);
        }
    }

    /// Tells the worker of a value that ends at `end`, stored after so many looks.
    #[cold]
    fn tell(&self, timer: &Shard, looks: u64, end: u64) {
        let Some(ready) = timer.ready() else { return };
        let mut state = self.lock();
        let mut tick = end;
        // A look meanwhile found the value, or that it has gone, and placed the timeout. Who looked
        // may not have told the worker yet.
        if state.looks == looks {
            tick = end.min(state.place.tick);
            state.place.key = timer.place(ready, state.place.key, tick, &self.turn);
            if state.place.key.is_none() {
                return;
            }
            state.place.tick = tick;
        }
        drop(state);
        self.tell_of(timer, looks, tick);
    }
}

impl<K, V> ShardState<K, V> {
    /// Places the timeout after a look, for a look at tick `next`. Returns how many looks there were.
    fn place_look(&mut self, ready: Ready, timer: &Shard, next: u64, turn: &Waker) -> u64 {
        self.looks += 1;
        // Until the worker is told, each caller tells it.
        (self.place.tick, self.watched) = (next, NEVER);
        if next < NEVER {
            self.place.key = timer.place(ready, self.place.key, next, turn);
        }
        self.looks
    }

    /// Stores a value under a key that is not there.
    pub(super) fn store(&mut self, hash: u32, key: K, stored: Stored<V>) {
        let end = stored.end();
        self.map.insert_new(hash, key, stored, end);
        self.stored += 1;
    }

    /// Takes a value out.
    pub(super) fn take_out(&mut self, named: Key) -> Option<Expired<V, K>> {
        let (key, stored) = self.map.remove_named(named)?;
        let deadline = stored.end();
        Some(Expired { key, deadline, value: stored.value })
    }

    /// Leaves a value that has expired to the worker, which is about to look.
    pub(super) fn leave(&mut self, expired: Expired<V, K>) {
        self.met.push(expired);
    }

    /// Returns the number of values, with those that have expired.
    pub(super) fn len(&self) -> usize {
        self.map.len() + self.met.len()
    }

    /// Appends a bounded number of expired values to `batch`. Returns whether there may be more.
    fn take_expired(&mut self, now: u64, batch: &mut Batch<K, V>) -> bool {
        let met = self.met.len().saturating_sub(MOST);
        batch.extend(self.met.drain(met..));
        if self.met.is_empty() {
            self.met = Vec::new();
        }
        let mut work = BATCH;
        while batch.len() < MOST {
            let Some(expired) = self.map.expire_by(now, &mut work, Stored::end) else { break };
            let Expired { key, deadline, value: stored } = expired;
            batch.push(Expired { key, deadline, value: stored.value });
        }
        // If met values are left, the batch is full of others.
        batch.len() == MOST || work == 0
    }

    /// Takes all out.
    pub(super) fn take_all(&mut self) -> (Map<K, V>, Batch<K, V>) {
        (self.take_map(), take(&mut self.met))
    }

    /// Takes the memory out of a map that was emptied. Returns None unless there were many values
    /// since the last time, because the next ones need memory again.
    pub(super) fn take_memory_if_emptied(&mut self) -> Option<Map<K, V>> {
        (self.map.is_empty() && MANY <= self.stored).then(|| self.take_map())
    }

    fn take_map(&mut self) -> Map<K, V> {
        self.stored = 0;
        let mode = self.map.mode();
        replace(&mut self.map, WheelMap::with_hasher(mode, ()))
    }
}

impl<V> Stored<V> {
    /// Returns the tick at which it expires.
    #[inline]
    pub(super) fn end(&self) -> u64 {
        self.deadline.min(self.idle)
    }

    /// Notes that a call read it, so that it ends at tick `idle` if no other call does.
    #[inline]
    pub(super) fn note_read(&mut self, idle: u64) {
        // A thread that lost its core may come late with what it read.
        self.idle = self.idle.max(idle);
    }
}

impl<K, V> Deref for Locked<'_, K, V> {
    type Target = ShardState<K, V>;

    #[inline]
    fn deref(&self) -> &ShardState<K, V> {
        &self.state
    }
}

impl<K, V> DerefMut for Locked<'_, K, V> {
    #[inline]
    fn deref_mut(&mut self) -> &mut ShardState<K, V> {
        &mut self.state
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.timer.cancel(key, drop);
        }
    }
}

/// The work of a wheel in one turn, under the lock.
const BATCH: usize = 128;

/// The most values that one turn takes out.
const MOST: usize = 64;

/// A map that is emptied gives back its memory after so many values, or more.
const MANY: u64 = 1_024;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::Timer;
    use core::sync::atomic::{AtomicUsize, Ordering};

    fn map_shard(timer: &Timer) -> MapShard<u32, u32> {
        MapShard::new(timer.shard(), Mode::default(), Waker::noop().clone())
    }

    #[test]
    fn until_the_worker_was_told_of_a_look_each_caller_tells_it() {
        let (timer, _driver) = Timer::builder().build_driven().expect("in range");
        let (shard, timer) = (map_shard(&timer), timer.shard());
        let ready = timer.ready().expect("it runs");
        let looks = shard.lock().place_look(ready, timer, 50, &shard.turn);
        assert_eq!(shard.lock().watched, NEVER);
        shard.tell_of(timer, looks, 50);
        assert_eq!(shard.lock().watched, 50);
    }

    #[test]
    fn who_stored_a_value_before_a_look_of_which_the_worker_was_not_told_tells_it() {
        let (timer, mut driver) = Timer::builder().build_driven().expect("in range");
        let told = Arc::new(AtomicUsize::new(0));
        let woken = Arc::clone(&told);
        driver.on_wake(move |_| _ = woken.fetch_add(1, Ordering::Relaxed));
        assert_eq!(driver.turn(), None);
        let (shard, timer) = (map_shard(&timer), timer.shard());
        let stored_after = shard.lock().looks;
        let ready = timer.ready().expect("it runs");
        shard.lock().place_look(ready, timer, 50, &shard.turn);
        shard.tell(timer, stored_after, 50);
        assert_eq!(told.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_look_that_could_not_start_the_worker_does_not_count() {
        let timer = Timer::builder().build().expect("in range");
        timer.stop().expect("outside");
        assert!(timer.shard().ready().is_none());
        let shard = map_shard(&timer);
        shard.turn(timer.shard(), 0);
        assert_eq!(shard.lock().looks, 0);
    }

    #[test]
    fn who_tells_the_worker_of_an_earlier_look_leaves_the_later_one_alone() {
        let (timer, _driver) = Timer::builder().build_driven().expect("in range");
        let (shard, timer) = (map_shard(&timer), timer.shard());
        let look = |tick| {
            let ready = timer.ready().expect("it runs");
            shard.lock().place_look(ready, timer, tick, &shard.turn)
        };
        let (earlier, later) = (look(50), look(90));
        shard.tell_of(timer, earlier, 50);
        assert_eq!(shard.lock().watched, NEVER);
        shard.tell_of(timer, later, 90);
        assert_eq!(shard.lock().watched, 90);
    }
}
