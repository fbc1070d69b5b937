//! `Wheel<T>`: schedules, cancels and hands out timeouts.

mod arena;
mod bucket;
mod check;
mod digit;
mod geometry;
mod growing;
mod hashed;
mod hierarchical;
mod iter;
mod ready;
mod runs;
mod sweep;
mod table;
mod visit;

pub use arena::Key;
pub use iter::{Drain, Iter};

use crate::mode::Mode;
use alloc::vec;
use alloc::vec::Vec;
use arena::{Arena, Entry};
use geometry::Geometry;
use ready::Ready;
use sweep::{Place, Sweep};
use table::Table;
use visit::Visit;

/// A timing wheel: holds values until their deadlines.
///
/// Driven by its caller. It reads no clock, starts no thread and calls nobody back: time is a
/// number of *ticks*, of whatever length the caller likes, counted from whenever the caller likes,
/// and [`expire`](Self::expire) is told how many have passed. All of u64 is good, for deadlines and
/// for the time, in either [`Mode`].
///
/// What holds, whatever the mode and the order of calls:
///
/// - A timeout is handed out by the first `expire(now)` with `now >= deadline`: never before it,
///   and not later than when `expire(now)` returns None.
/// - Timeouts come out by deadline, those of equal deadlines in the order in which they were
///   scheduled. A deadline at or before [`now`](Self::now) counts as `now`, and is reported so.
/// - Every value leaves once: expired, cancelled, drained, or dropped with the wheel.
/// - A jump in time costs what comes due in it, not its length.
/// - No call panics, short of running out of memory, or of the 2^32 - 1 timeouts that a wheel can
///   hold.
///
/// ```
/// use tickwheel::{Mode, Wheel};
///
/// let mut wheel = Wheel::new(Mode::hierarchical());
/// let soon = wheel.schedule(30, "soon");
/// let late = wheel.schedule(86_400_000, "late");
///
/// assert!(wheel.expire(29).is_none());
/// assert_eq!(wheel.expire(30).map(|expired| expired.value), Some("soon"));
/// assert!(wheel.expire(30).is_none());
///
/// assert_eq!(wheel.next_deadline(), Some(86_400_000));
/// assert_eq!(wheel.cancel(late), Some("late"));
/// assert_eq!(wheel.cancel(soon), None); // it is gone
/// ```
///
/// The schemes are those of G. Varghese and T. Lauck, *Hashed and Hierarchical Timing Wheels*
/// (1987).
#[derive(Debug)]
pub struct Wheel<T> {
    mode: Mode,
    geometry: Geometry,
    arena: Arena<T>,
    /// The timeouts whose deadlines are after `cursor`. Each is in the bucket that its deadline
    /// and `cursor` determine, so that those of equal deadlines are always in the same one.
    table: Table,
    /// The timeouts whose deadlines are not after `cursor`, in the order in which they come.
    ready: Ready,
    /// A bucket of `table` that is being taken apart, while that takes more than one step.
    visit: Option<Visit>,
    sweep: Sweep,
    /// The last tick the wheel was driven to.
    now: u64,
    /// The tick up to which buckets have been taken apart. It stays behind `now` while the bucket
    /// that `now` falls in has nothing due yet, and it is ahead while timeouts that were sorted
    /// together wait in `ready`.
    cursor: u64,
    /// A tick that no deadline is before; exact until the earliest timeout is cancelled, moved or
    /// handed out.
    wake: u64,
    work: Work,
}

/// What a wheel has done since it was made, as in [`WheelStats`].
#[derive(Clone, Copy, Debug, Default)]
struct Work {
    buckets_visited: u64,
    demotions: u64,
    rounds_waited: u64,
}

/// Stamps after which all entries are looked at, as stamps come round.
const STAMPS_PER_SWEEP: u32 = 1 << 30;

/// A timeout that a wheel handed out, with the value that was scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Expired<T> {
    /// The key it had; stale by now.
    pub key: Key,
    /// When it was due, in ticks.
    pub deadline: u64,
    /// The value that was scheduled.
    pub value: T,
}

/// What a [`Wheel`] holds and what it has done, from [`Wheel::stats`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WheelStats {
    /// Timeouts waiting on each level, the finest first, and stale ones; one number for a hashed
    /// wheel.
    pub timeouts_per_level: Vec<usize>,
    /// Timeouts on no level: taken out of their buckets and sorted, to be handed out next.
    pub sorted: usize,
    /// How many of those above are stale: cancelled or moved since, and yet to be cleared away.
    pub stale: usize,
    /// Buckets taken apart or scanned, since the wheel was made. Passing by one in which nothing is
    /// due is not a visit.
    pub buckets_visited: u64,
    /// Times a timeout was moved to a finer level, since the wheel was made; 0 for a hashed wheel.
    pub demotions: u64,
    /// Timeouts that a visit to their bucket left waiting for a later round, since the wheel was
    /// made; 0 for a hierarchical wheel.
    pub rounds_waited: u64,
    /// Bytes allocated now, beyond the wheel itself.
    pub memory: usize,
}

impl<T> Wheel<T> {
    /// Returns an empty wheel at tick 0. Allocates nothing.
    #[must_use]
    pub fn new(mode: Mode) -> Self {
        let geometry = Geometry::new(mode);
        Self {
            mode,
            geometry,
            arena: Arena::new(),
            table: Table::new(geometry.buckets()),
            ready: Ready::default(),
            visit: None,
            sweep: Sweep::default(),
            now: 0,
            cursor: 0,
            wake: u64::MAX,
            work: Work::default(),
        }
    }

    /// An empty wheel at tick 0 with room for so many timeouts, as by [`reserve`](Self::reserve).
    #[must_use]
    pub fn with_capacity(mode: Mode, timeouts: usize) -> Self {
        let mut wheel = Self::new(mode);
        wheel.reserve(timeouts);
        wheel
    }

    /// Schedules `value` for tick `deadline`, and returns the key to it. O(1), amortised.
    ///
    /// A deadline at or before [`now`](Self::now) counts as `now`: the next
    /// [`expire`](Self::expire) hands it out, after what was due before.
    ///
    /// ```
    /// let mut wheel = tickwheel::Wheel::new(tickwheel::Mode::hierarchical());
    /// wheel.expire(100);
    /// let key = wheel.schedule(60, "overdue");
    /// assert_eq!(wheel.deadline(key), Some(100));
    /// assert_eq!(wheel.expire(100).map(|expired| expired.value), Some("overdue"));
    /// ```
    #[inline]
    pub fn schedule(&mut self, deadline: u64, value: T) -> Key {
        if self.is_empty() {
            (self.cursor, self.wake) = (self.now, u64::MAX);
        }
        let deadline = deadline.max(self.now);
        self.wake = self.wake.min(deadline);
        let (key, entry) = self.arena.insert(deadline, value);
        self.place(entry);
        key
    }

    /// Takes the timeout that `key` names out of the wheel, and returns its value; None if it is
    /// gone. O(1), amortised.
    ///
    /// ```
    /// let mut wheel = tickwheel::Wheel::new(tickwheel::Mode::hierarchical());
    /// let key = wheel.schedule(10, "value");
    /// assert_eq!(wheel.cancel(key), Some("value"));
    /// assert_eq!(wheel.cancel(key), None);
    /// ```
    #[inline(always)]
    pub fn cancel(&mut self, key: Key) -> Option<T> {
        let value = self.arena.remove(key)?;
        self.sweep.stale += 1;
        self.tidy();
        Some(value)
    }

    /// Moves the timeout that `key` names to tick `deadline`, and returns whether there was one.
    /// The key stays good. O(1), amortised.
    ///
    /// Counts as scheduling anew: among equal deadlines it comes last. A timeout that is due but
    /// not yet handed out can be moved as well.
    ///
    /// ```
    /// let mut wheel = tickwheel::Wheel::new(tickwheel::Mode::hierarchical());
    /// let key = wheel.schedule(10, "value");
    /// assert!(wheel.reschedule(key, 20));
    /// assert!(wheel.expire(10).is_none());
    /// assert!(wheel.expire(20).is_some());
    /// assert!(!wheel.reschedule(key, 30)); // it is gone
    /// ```
    #[inline]
    pub fn reschedule(&mut self, key: Key, deadline: u64) -> bool {
        let deadline = deadline.max(self.now);
        let Some(entry) = self.arena.reschedule(key, deadline) else { return false };
        self.sweep.stale += 1;
        self.wake = self.wake.min(deadline);
        self.place(entry);
        self.tidy();
        true
    }

    /// Drives the wheel to tick `now` and hands out the next timeout that is due, or None if none
    /// is left: call it until None.
    ///
    /// An earlier `now` than before leaves the wheel's time where it is, and hands out only what
    /// is due at that earlier `now`.
    ///
    /// Costs what comes due, whatever the distance from the last `now`. A timeout is demoted once a
    /// level at most, but all of a coarse bucket in one call:
    /// [`expire_bounded`](Self::expire_bounded) does it in several. A hashed wheel scans the whole
    /// of a bucket in which something is due, or was until it was cancelled or moved, once a round;
    /// all rounds of a jump are one.
    ///
    /// ```
    /// let mut wheel = tickwheel::Wheel::new(tickwheel::Mode::hierarchical());
    /// wheel.schedule(20, "b");
    /// wheel.schedule(10, "a");
    ///
    /// let mut values = Vec::new();
    /// while let Some(expired) = wheel.expire(1_000) {
    ///     values.push(expired.value); // and schedule, cancel, reschedule as you like
    /// }
    /// assert_eq!(values, ["a", "b"]);
    /// ```
    #[inline]
    pub fn expire(&mut self, now: u64) -> Option<Expired<T>> {
        self.expire_bounded(now, &mut { usize::MAX })
    }

    /// Like [`expire`](Self::expire), but does no more than `work` at once, so that a call is short
    /// whatever is pending: returns None with `work` at 0 if there may be more to do, and goes on
    /// from there the next time.
    ///
    /// A timeout handed out, moved, or looked at in vain is one unit of work; what was done is
    /// subtracted. The last step may do more than is left: it takes up to 2048 timeouts of a bucket,
    /// or up to 8192 where they are sorted at once.
    ///
    /// ```
    /// let mut wheel = tickwheel::Wheel::new(tickwheel::Mode::hierarchical());
    /// for value in 0..1_000 {
    ///     wheel.schedule(5, value);
    /// }
    /// let mut values = Vec::new();
    /// loop {
    ///     let mut work = 64; // and release a lock in between, say
    ///     while let Some(expired) = wheel.expire_bounded(5, &mut work) {
    ///         values.push(expired.value);
    ///     }
    ///     if work > 0 {
    ///         break;
    ///     }
    /// }
    /// assert_eq!(values.len(), 1_000);
    /// ```
    #[inline]
    pub fn expire_bounded(&mut self, now: u64, work: &mut usize) -> Option<Expired<T>> {
        self.now = self.now.max(now);
        if now < self.wake {
            return None;
        }
        self.expire_due(now, work)
    }

    #[inline(always)]
    fn expire_due(&mut self, now: u64, work: &mut usize) -> Option<Expired<T>> {
        while 0 < *work {
            let Some(entry) = self.ready.first() else {
                *work = work.saturating_sub(self.make_ready(now)?);
                continue;
            };
            if now < entry.deadline && !self.arena.is_stale(entry) {
                self.wake = entry.deadline;
                return None;
            }
            self.ready.prefetch(&self.arena);
            let next = self.ready.pop();
            *work -= 1;
            let Some((key, value)) = self.arena.take(entry) else {
                self.sweep.stale -= 1;
                continue;
            };
            self.wake = next.map_or(entry.deadline, |next| next.deadline);
            self.tidy();
            return Some(Expired { key, deadline: entry.deadline, value });
        }
        None
    }

    /// Does a step towards having what is due at `now` ready, as nothing is; returns how much work
    /// that was, or None if nothing is due.
    #[inline(never)]
    fn make_ready(&mut self, now: u64) -> Option<usize> {
        if let Some(visit) = self.visit {
            return Some(self.visit_step(visit));
        }
        let Some((number, tick)) = self.geometry.next(&mut self.table, self.cursor) else {
            self.wake = u64::MAX;
            return None;
        };
        self.wake = tick;
        if now < tick {
            if self.geometry.begins_after(now, number, tick) {
                self.cursor = self.cursor.max(now);
            }
            return None;
        }
        Some(self.begin_visit(number, tick, now))
    }

    /// Puts an entry where its deadline belongs.
    #[inline(always)]
    fn place(&mut self, entry: Entry) {
        if self.cursor < entry.deadline {
            let number = self.geometry.bucket(entry.deadline, self.cursor);
            self.table.bucket_for(number, entry.deadline).push(entry);
        } else {
            self.place_ready(entry);
        }
        if entry.stamp % STAMPS_PER_SWEEP == 0 {
            self.sweep.place.get_or_insert(Place::BEGIN);
        }
    }

    /// Puts an entry of a deadline that is not after the cursor among what is ready.
    #[inline(never)]
    fn place_ready(&mut self, entry: Entry) {
        if self.ready.insert(entry, self.cursor, self.now) {
            return;
        }
        // Too much is ready that is not due, to insert into or to keep: it goes back into buckets.
        // The cursor is after now only while the bucket that now falls in was sorted as a whole, so
        // all other buckets are the same for either.
        debug_assert!(self.now < self.cursor && self.visit.is_none(), "it was sorted ahead");
        self.cursor = self.now;
        for entry in core::mem::take(&mut self.ready).iter() {
            if self.arena.is_stale(entry) {
                self.sweep.stale -= 1;
            } else {
                self.place(entry);
            }
        }
        self.place(entry);
    }

    /// Drops all entries, as there are no timeouts.
    #[cold]
    fn forget_entries(&mut self) {
        self.ready.clear();
        self.table.clear();
        (self.visit, self.sweep) = (None, Sweep::default());
    }

    /// The earliest deadline, exactly; None if the wheel is empty.
    ///
    /// At or before [`now`](Self::now) if something is due. What it finds out is kept, which is why
    /// it needs `&mut self`: so to cancel the earliest timeout again and again and to ask each time
    /// costs O(log n) each, and in a hashed wheel a look at a number for each row of 16 buckets at
    /// most. It brings to its end what [`expire_bounded`](Self::expire_bounded) has begun, and it
    /// may look through the bucket that comes up next: O(n) if all timeouts are in that bucket. A
    /// loop that sleeps between deadlines, and can bear to wake up in vain now and then, does better
    /// with [`next_wake`](Self::next_wake).
    ///
    /// ```
    /// let mut wheel = tickwheel::Wheel::new(tickwheel::Mode::hierarchical());
    /// assert_eq!(wheel.next_deadline(), None);
    /// wheel.schedule(u64::MAX, "far");
    /// let near = wheel.schedule(12_345, "near");
    /// assert_eq!(wheel.next_deadline(), Some(12_345));
    /// wheel.cancel(near);
    /// assert_eq!(wheel.next_deadline(), Some(u64::MAX));
    /// ```
    #[must_use]
    pub fn next_deadline(&mut self) -> Option<u64> {
        let deadline = self.next_entry()?.deadline;
        self.wake = deadline;
        Some(deadline)
    }

    /// The key of the timeout that comes out next; None if the wheel is empty. Costs what
    /// `next_deadline` does.
    #[cfg(feature = "std")]
    pub(crate) fn next_key(&mut self) -> Option<Key> {
        let entry = self.next_entry()?;
        self.arena.key(entry)
    }

    /// The entry of the timeout that comes out next.
    fn next_entry(&mut self) -> Option<Entry> {
        if self.is_empty() {
            return None;
        }
        while let Some(visit) = self.visit {
            self.visit_step(visit);
        }
        loop {
            if let Some(entry) = self.ready.first() {
                if !self.arena.is_stale(entry) {
                    return Some(entry);
                }
                self.ready.pop();
                self.sweep.stale -= 1;
                continue;
            }
            let Self { table, arena, sweep, geometry, .. } = self;
            let (number, noted) = match geometry {
                Geometry::Hierarchical(_) => table.first()?,
                Geometry::Hashed(_) => table.soonest()?,
            };
            let Some(entry) = table.bucket_mut(number).earliest(arena, &mut sweep.stale) else {
                sweep.stale -= table.take(number).len();
                continue;
            };
            table.close(number, entry.deadline);
            if noted == entry.deadline || !self.mode.is_hashed() {
                return Some(entry);
            }
        }
    }

    /// A tick to call [`expire`](Self::expire) at next: never later than
    /// [`next_deadline`](Self::next_deadline), and None if the wheel is empty. O(1).
    ///
    /// After `expire(now)` has returned None it is after `now`, and it is the next deadline unless an
    /// earlier one was cancelled, moved or handed out. Waking up at it makes progress: either
    /// something is due, or the answer is later the next time.
    ///
    /// ```
    /// let mut wheel = tickwheel::Wheel::new(tickwheel::Mode::hierarchical());
    /// let near = wheel.schedule(1_000, "near");
    /// wheel.schedule(1_000_000, "far");
    /// wheel.cancel(near);
    ///
    /// let mut wakes = 0;
    /// while let Some(tick) = wheel.next_wake() {
    ///     wakes += 1;
    ///     while let Some(expired) = wheel.expire(tick) {
    ///         assert_eq!(expired.value, "far");
    ///     }
    /// }
    /// assert!(wakes <= 3); // not a million
    /// ```
    #[inline]
    #[must_use]
    pub fn next_wake(&self) -> Option<u64> {
        if self.is_empty() { None } else { Some(self.wake) }
    }

    /// The value that `key` names, or None if it is gone.
    #[inline]
    #[must_use]
    pub fn get(&self, key: Key) -> Option<&T> {
        self.arena.get(key)
    }

    /// The value that `key` names, to be changed in place, or None if it is gone.
    #[inline]
    #[must_use]
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        self.arena.get_mut(key)
    }

    /// The deadline of the timeout that `key` names, or None if it is gone.
    #[inline]
    #[must_use]
    pub fn deadline(&self, key: Key) -> Option<u64> {
        self.arena.get(key)?;
        Some(self.arena.deadline_at(key.index()))
    }

    /// How many timeouts there are, those that are due and not yet handed out included.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.arena.len()
    }

    /// Whether there are no timeouts.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.arena.is_empty()
    }

    /// The last tick the wheel was driven to: the largest `now` that [`expire`](Self::expire) was
    /// called with, and 0 before that.
    #[inline]
    #[must_use]
    pub fn now(&self) -> u64 {
        self.now
    }

    /// The mode the wheel was made with.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// All timeouts, as key, deadline and value, in no particular order. Looks at as many places as
    /// were ever needed at once, since the wheel was last empty.
    ///
    /// ```
    /// let mut wheel = tickwheel::Wheel::new(tickwheel::Mode::hierarchical());
    /// let key = wheel.schedule(10, "value");
    /// assert_eq!(wheel.iter().collect::<Vec<_>>(), [(key, 10, &"value")]);
    /// ```
    pub fn iter(&self) -> Iter<'_, T> {
        Iter { wheel: self, index: 0, left: self.len() }
    }

    /// Takes all timeouts out, in no particular order.
    ///
    /// When the iterator is dropped, those that are left are dropped with it. If it is leaked, they
    /// stay in the wheel.
    ///
    /// ```
    /// let mut wheel = tickwheel::Wheel::new(tickwheel::Mode::hierarchical());
    /// wheel.schedule(10, "value");
    /// assert_eq!(wheel.drain().map(|expired| expired.value).collect::<Vec<_>>(), ["value"]);
    /// assert!(wheel.is_empty());
    /// ```
    pub fn drain(&mut self) -> Drain<'_, T> {
        Drain { wheel: self, index: 0 }
    }

    /// Drops all timeouts. The time stays, and so does the memory.
    ///
    /// If dropping a value panics, the others are dropped nevertheless.
    pub fn clear(&mut self) {
        drop(self.drain());
    }

    /// Makes room for so many timeouts more, so that storing them allocates only for the buckets
    /// they fall in. Does nothing if there is not so much memory.
    ///
    /// Otherwise room doubles when it is used up: a little with each
    /// [`schedule`](Self::schedule), so that none takes long. Only from 32 MB on, on Linux, is it left
    /// to the allocator, which moves whole pages then and copies nothing: 0.8 ms at 8 million
    /// timeouts. Another allocator than the system's may copy.
    pub fn reserve(&mut self, additional: usize) {
        self.arena.reserve(additional);
    }

    /// Gives back what memory the present timeouts do not need. Their keys stay good. O(n), and
    /// what [`expire_bounded`](Self::expire_bounded) has begun is done to the end.
    ///
    /// Keys are places, so the room before a live timeout can only be used again, not given back.
    pub fn shrink_to_fit(&mut self) {
        while let Some(visit) = self.visit {
            self.visit_step(visit);
        }
        let Self { arena, table, ready, .. } = self;
        table.shrink(|entry| !arena.is_stale(entry));
        ready.shrink(|entry| !arena.is_stale(entry));
        self.sweep = Sweep::default();
        self.arena.shrink_to_fit();
    }

    /// What the wheel holds and what it has done. Looks at every bucket.
    #[must_use]
    pub fn stats(&self) -> WheelStats {
        let mut timeouts_per_level = vec![0; self.mode.levels()];
        for (number, _) in self.table.iter() {
            let level = self.geometry.level(number);
            timeouts_per_level[level as usize] += self.table.bucket(number).len();
        }
        WheelStats {
            timeouts_per_level,
            sorted: self.ready.iter().count(),
            stale: self.sweep.stale,
            buckets_visited: self.work.buckets_visited,
            demotions: self.work.demotions,
            rounds_waited: self.work.rounds_waited,
            memory: self.arena.memory() + self.table.memory() + self.ready.memory(),
        }
    }
}

/// A hierarchical wheel of 64 buckets a level.
impl<T> Default for Wheel<T> {
    fn default() -> Self {
        Self::new(Mode::default())
    }
}

#[cfg(test)]
mod tests {
    use super::sweep::FEW_STALE;
    use super::{Entry, STAMPS_PER_SWEEP, Wheel};
    use crate::mode::Mode;
    use alloc::collections::BTreeSet;
    use alloc::vec::Vec;

    fn modes() -> impl Iterator<Item = Mode> {
        let modes = ["hierarchical:2", "hierarchical:64", "hashed:1", "hashed:8", "hashed:512"];
        modes.into_iter().map(|mode| mode.parse().expect("a mode"))
    }

    #[test]
    fn stamps_that_come_round_confuse_nothing() {
        for mode in modes() {
            let mut wheel = Wheel::new(mode);
            let mut wanted = BTreeSet::new();
            let mut keys = Vec::new();
            for value in 0..20 {
                keys.push((wheel.schedule(100 + value % 3, value), 100 + value % 3, value));
                wanted.insert((100 + value % 3, value, value));
            }
            wheel.arena.set_stamp(u32::MAX - 30);
            for order in 20..100 {
                let (key, deadline, since) = &mut keys[order as usize * 7 % 20];
                let value = *wheel.get(*key).expect("it is pending");
                wanted.remove(&(*deadline, *since, value));
                (*deadline, *since) = (100 + order % 5, order);
                if order % 2 == 0 {
                    wheel.cancel(*key);
                    *key = wheel.schedule(*deadline, value);
                } else {
                    wheel.reschedule(*key, *deadline);
                }
                wanted.insert((*deadline, *since, value));
                wheel.check();
            }
            let mut wanted = wanted.into_iter();
            for tick in 0..200 {
                while let Some(expired) = wheel.expire(tick) {
                    let (deadline, _, value) = wanted.next().expect("it is wanted");
                    assert_eq!((expired.deadline, expired.value), (deadline, value));
                }
            }
            assert!(wanted.next().is_none());
        }
    }

    /// Long before the stamps that stale entries have come again, these are gone.
    #[test]
    fn now_and_then_all_entries_are_looked_at() {
        for mode in modes() {
            for turn in 1..=4_u32 {
                let mut wheel = Wheel::new(mode);
                for value in 0..FEW_STALE as u64 {
                    let key = wheel.schedule(2 << (3 * value), value);
                    wheel.schedule(1 << 50, value);
                    wheel.cancel(key);
                }
                assert_eq!(wheel.stats().stale, FEW_STALE);
                wheel.arena.set_stamp(turn.wrapping_mul(STAMPS_PER_SWEEP).wrapping_sub(3));
                for value in 0..20 {
                    let key = wheel.schedule((1 << 50) + 1, value);
                    wheel.cancel(key);
                }
                assert!(wheel.sweep.place.is_none(), "it is over");
                let is_old =
                    |entry: Entry| entry.deadline as u32 != 1 && wheel.arena.is_stale(entry);
                let old = wheel.table.iter().map(|(number, _)| wheel.table.bucket(number).iter());
                assert_eq!(old.flatten().filter(|&entry| is_old(entry)).count(), 0, "{mode}");
                wheel.check();
            }
        }
    }
}
