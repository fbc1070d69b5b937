//! `Wheel<T>`: the one loop that visits buckets and places timeouts.

use crate::arena::{Arena, Key};
use crate::bucket::{Bucket, Entry, MOST_COUNTED};
use crate::hierarchical::Hierarchical;
use crate::mode::{Geometry, Mode};
use crate::table::Table;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::iter::FusedIterator;

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
    geometry: Geometry,
    arena: Arena<T>,
    /// The timeouts whose deadlines are after `cursor`. Each is in the bucket that its deadline
    /// and `cursor` determine, so that those of equal deadlines are always in the same one.
    table: Table,
    /// The timeouts whose deadlines are not after `cursor`, sorted: those to be handed out next.
    front: Bucket,
    /// A tick that no deadline in `front` is before, nor `cursor`.
    front_from: u64,
    /// The last tick the wheel was driven to.
    now: u64,
    /// The tick up to which buckets have been taken apart. It stays behind `now` while the bucket
    /// that `now` falls in has nothing due yet, and it is ahead while what is left of a bucket
    /// waits in `front`.
    cursor: u64,
    /// A tick that no deadline is before; exact until the earliest timeout is cancelled.
    wake: u64,
    /// A tick that no deadline is after.
    latest: u64,
    visits: u64,
    demotions: u64,
    rounds_waited: u64,
}

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
    /// Timeouts waiting on each level, the finest first; one number for a hashed wheel.
    pub timeouts_per_level: Vec<usize>,
    /// Timeouts on no level: taken out of their buckets and sorted, to be handed out next.
    pub sorted: usize,
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
    /// An empty wheel at tick 0. Allocates nothing.
    #[must_use]
    pub fn new(mode: Mode) -> Self {
        let geometry = mode.geometry();
        let buckets = match geometry {
            Geometry::Hierarchical(levels) => levels.levels() << levels.bits,
            Geometry::Hashed(level) => 1 << level.bits,
        };
        Self {
            geometry,
            arena: Arena::new(),
            table: Table::new(buckets),
            front: Bucket::default(),
            front_from: 0,
            now: 0,
            cursor: 0,
            wake: u64::MAX,
            latest: 0,
            visits: 0,
            demotions: 0,
            rounds_waited: 0,
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
            self.cursor = self.now;
            self.front_from = self.now;
            self.latest = self.now;
            self.wake = u64::MAX;
        }
        let deadline = deadline.max(self.now);
        self.wake = self.wake.min(deadline);
        self.latest = self.latest.max(deadline);
        let position = self.place(Entry::new(self.arena.next_index(), deadline), deadline);
        self.arena.insert(position, deadline, value)
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
    #[inline]
    pub fn cancel(&mut self, key: Key) -> Option<T> {
        let timeout = self.arena.remove(key)?;
        self.displace(key.index(), self.arena.deadline(key.index()), timeout.position);
        Some(timeout.value)
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
        let Some(timeout) = self.arena.get(key) else { return false };
        let deadline = deadline.max(self.now);
        let position = timeout.position;
        self.displace(key.index(), self.arena.deadline(key.index()), position);
        self.wake = self.wake.min(deadline);
        self.latest = self.latest.max(deadline);
        let position = self.place(Entry::new(key.index(), deadline), deadline);
        self.arena.reschedule(key.index(), position, deadline);
        true
    }

    /// Drives the wheel to tick `now` and hands out the next timeout that is due, or None if none
    /// is left: call it until None.
    ///
    /// An earlier `now` than before leaves the wheel's time where it is, and hands out only what
    /// is due at that earlier `now`.
    ///
    /// Costs what comes due, whatever the distance from the last `now`. A timeout is demoted once a
    /// level at most, but all of a coarse bucket in one call. A hashed wheel, to find what comes up
    /// next, passes by at most all rows of 64 buckets of which one is occupied; a jump of a round
    /// or more looks at each occupied bucket.
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
        self.now = self.now.max(now);
        if now < self.wake {
            return None;
        }
        self.expire_due(now)
    }

    /// Like [`expire`](Self::expire), but does no more than `work` at once, so that a call is short
    /// whatever is pending: returns None with `work` at 0 if there may be more to do, and goes on
    /// from there the next time.
    ///
    /// A timeout handed out, moved, or looked at in vain is one unit of work; what was done is
    /// subtracted.
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
        let left = work.checked_sub(1)?;
        let expired = self.expire(now)?;
        *work = left;
        Some(expired)
    }

    fn expire_due(&mut self, now: u64) -> Option<Expired<T>> {
        loop {
            if let Some(entry) = self.front.front() {
                let deadline = self.front_deadline(entry);
                if now < deadline {
                    self.wake = deadline;
                    return None;
                }
                self.front.prefetch(&self.arena);
                self.front.pop_front();
                if let Some(next) = self.front.front() {
                    self.wake = deadline + next.distance(deadline);
                }
                let key = self.arena.timeout(entry.index).key(entry.index);
                let timeout = self.arena.remove(key).expect("an entry names a live timeout");
                return Some(Expired { key, deadline, value: timeout.value });
            }
            let Some((number, tick)) = self.next_bucket() else {
                self.wake = u64::MAX;
                return None;
            };
            if now < tick {
                self.wake = tick;
                self.advance(now, number, tick);
                return None;
            }
            self.visit(number, tick, now);
        }
    }

    /// The deadline of an entry of the front.
    #[inline]
    fn front_deadline(&self, entry: Entry) -> u64 {
        let is_near = self.cursor - self.front_from <= u32::MAX.into();
        entry.deadline(self.front_from, is_near, &self.arena)
    }

    /// The bucket that comes up next, and a tick that no deadline is before.
    #[inline]
    fn next_bucket(&mut self) -> Option<(u32, u64)> {
        match self.geometry {
            Geometry::Hierarchical(levels) => levels.next(&self.table),
            Geometry::Hashed(level) => level.next(&mut self.table, self.cursor, self.wake),
        }
    }

    /// Moves the cursor to `now`, if bucket `number`, which comes up next, begins after that.
    fn advance(&mut self, now: u64, number: u32, tick: u64) {
        let begins_later = match self.geometry {
            Geometry::Hierarchical(levels) => now < levels.start(number, tick),
            Geometry::Hashed(_) => true,
        };
        if begins_later {
            self.cursor = self.cursor.max(now);
        }
    }

    /// Takes bucket `number` apart, in which nothing is due before `tick`: what is due then goes
    /// out, the rest lands finer or waits a round.
    fn visit(&mut self, number: u32, tick: u64, now: u64) {
        debug_assert!(self.cursor < tick && tick <= now, "the cursor moves forward");
        debug_assert!(self.front.is_empty(), "what is due earlier goes out first");
        self.front_from = tick;
        match self.geometry {
            Geometry::Hierarchical(levels) => {
                self.cursor = tick;
                self.visits += 1;
                let bucket = self.table.take(number);
                let level = levels.level(number);
                if level == 0 {
                    self.front = bucket;
                } else if let Some(deadline) = self.only_and_due(&bucket, now) {
                    self.cursor = deadline;
                    self.front = bucket;
                } else if levels.sorts(level, bucket.len()) {
                    self.cursor = levels.end(number, tick);
                    self.front = bucket;
                    self.front.sort_digits(levels.bits, level);
                } else {
                    self.demote(&bucket, levels, level);
                }
            }
            Geometry::Hashed(level) if now - self.cursor < level.round() => {
                self.cursor = tick;
                self.scan(number, tick, tick);
            }
            Geometry::Hashed(_) => {
                // More than a round has passed: buckets come up more than once, and going round
                // for each would cost the distance.
                let come_up = |&(_, earliest): &(u32, u64)| earliest <= now;
                let passed: Vec<_> = self.table.iter().filter(come_up).collect();
                self.cursor = now;
                for (number, earliest) in passed {
                    self.scan(number, earliest, now);
                }
                self.front.sort(&self.arena);
            }
        }
    }

    /// The deadline of the only timeout of a bucket, if it is due.
    fn only_and_due(&self, bucket: &Bucket, now: u64) -> Option<u64> {
        let only = bucket.front().filter(|_| bucket.len() == 1)?;
        Some(self.arena.deadline(only.index)).filter(|&deadline| deadline <= now)
    }

    /// Places the timeouts of a bucket of level `level` again, as the cursor has come to it.
    fn demote(&mut self, bucket: &Bucket, levels: Hierarchical, level: u32) {
        let (cursor, is_near) = (self.cursor, levels.span_fits_u32(level));
        // Nearly all go one level down. Counted first, no array there has to grow.
        let mut counts = [0; MOST_COUNTED];
        let below = level - 1;
        if levels.buckets() <= MOST_COUNTED {
            for entry in bucket.iter() {
                let deadline = entry.deadline(cursor, is_near, &self.arena);
                counts[levels.digit(below, deadline) as usize] += 1;
            }
        }
        let own = levels.digit(below, cursor);
        for entry in bucket.iter() {
            let deadline = entry.deadline(cursor, is_near, &self.arena);
            let digit = levels.digit(below, deadline);
            if digit == own {
                self.move_to_bucket(entry, deadline);
                continue;
            }
            let finer = self.table.bucket_for(levels.number(below, digit), deadline);
            if let (true, Some(&count)) = (finer.is_empty(), counts.get(digit as usize)) {
                finer.reserve_exact(count);
            }
            finer.append(entry);
        }
        self.demotions += (bucket.len() - self.front.len()) as u64;
    }

    /// Puts an entry that came out of a bucket into the one that `deadline` belongs in now.
    #[inline]
    fn move_to_bucket(&mut self, entry: Entry, deadline: u64) {
        match self.bucket_of(deadline) {
            Some(number) => self.table.bucket_for(number, deadline).append(entry),
            None => self.front.append(entry),
        }
    }

    /// Takes what is due up to `to` out of bucket `number`, in which nothing is due before `from`.
    fn scan(&mut self, number: u32, from: u64, to: u64) {
        self.visits += 1;
        let (front, arena) = (&mut self.front, &self.arena);
        let waiting = self.table.take_due(number, from, to, self.latest, front, arena);
        self.rounds_waited += waiting as u64;
    }

    /// Puts an entry into the bucket that `deadline` belongs in, and returns its position.
    #[inline]
    fn place(&mut self, entry: Entry, deadline: u64) -> u32 {
        match self.bucket_of(deadline) {
            Some(number) => self.table.bucket_for(number, deadline).push(entry),
            None => match self.front.insert(entry, self.cursor) {
                Some(position) => position,
                None => self.scatter(entry, deadline),
            },
        }
    }

    /// Puts what was sorted to be due next back into buckets, as it has become too much to insert
    /// into.
    #[cold]
    fn scatter(&mut self, entry: Entry, deadline: u64) -> u32 {
        self.cursor = self.now;
        let due = core::mem::take(&mut self.front);
        for entry in due.iter() {
            self.move_to_bucket(entry, self.arena.deadline(entry.index));
        }
        self.place(entry, deadline)
    }

    /// The bucket that a timeout of `deadline` is in, or None for those that are due.
    #[inline]
    fn bucket_of(&self, deadline: u64) -> Option<u32> {
        if deadline <= self.cursor {
            return None;
        }
        Some(match self.geometry {
            Geometry::Hierarchical(levels) => levels.bucket(deadline, self.cursor),
            Geometry::Hashed(level) => level.bucket(deadline),
        })
    }

    /// Takes the entry of the timeout at `index`, which has `deadline` and remembers `position`, out
    /// of its bucket.
    #[inline]
    fn displace(&mut self, index: u32, deadline: u64, position: u32) {
        match self.bucket_of(deadline) {
            Some(number) => self.table.remove(number, index, position, &mut self.arena),
            None => self.front.remove(index, position, &mut self.arena),
        }
    }

    /// The earliest deadline, exactly; None if the wheel is empty.
    ///
    /// At or before [`now`](Self::now) if something is due. O(1) while that which comes next has
    /// been sorted already; otherwise it scans the bucket that comes up next, and in a hashed wheel
    /// looks at each occupied one. A loop that sleeps between deadlines, and can bear to wake up in
    /// vain now and then, does better with [`next_wake`](Self::next_wake).
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
    pub fn next_deadline(&self) -> Option<u64> {
        if let Some(entry) = self.front.front() {
            return Some(self.front_deadline(entry));
        }
        let earliest_in = |(number, earliest)| {
            self.table.bucket(number).earliest(earliest, self.latest, &self.arena)
        };
        match self.geometry {
            Geometry::Hierarchical(levels) => levels.next(&self.table).map(earliest_in),
            Geometry::Hashed(_) => {
                let next = earliest_in(self.table.iter().min_by_key(|&(_, earliest)| earliest)?);
                let could_be_next = self.table.iter().filter(|&(_, earliest)| earliest < next);
                could_be_next.map(earliest_in).chain([next]).min()
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
        Some(&self.arena.get(key)?.value)
    }

    /// The value that `key` names, to be changed in place, or None if it is gone.
    #[inline]
    #[must_use]
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        Some(&mut self.arena.get_mut(key)?.value)
    }

    /// The deadline of the timeout that `key` names, or None if it is gone.
    #[inline]
    #[must_use]
    pub fn deadline(&self, key: Key) -> Option<u64> {
        self.arena.get(key)?;
        Some(self.arena.deadline(key.index()))
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
        self.geometry.mode()
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
    pub fn reserve(&mut self, additional: usize) {
        self.arena.reserve(additional);
    }

    /// Gives back what memory the present timeouts do not need. Their keys stay good. O(n).
    ///
    /// Keys are places, so the room before a live timeout can only be used again, not given back.
    pub fn shrink_to_fit(&mut self) {
        self.front.shrink_to_fit();
        self.table.shrink_to_fit();
        self.arena.shrink_to_fit();
    }

    /// What the wheel holds and what it has done. Looks at every bucket.
    #[must_use]
    pub fn stats(&self) -> WheelStats {
        let mut timeouts_per_level = vec![0; self.mode().levels()];
        for (number, _) in self.table.iter() {
            let level = match self.geometry {
                Geometry::Hierarchical(levels) => levels.level(number),
                Geometry::Hashed(_) => 0,
            };
            timeouts_per_level[level as usize] += self.table.bucket(number).len();
        }
        WheelStats {
            timeouts_per_level,
            sorted: self.front.len(),
            buckets_visited: self.visits,
            demotions: self.demotions,
            rounds_waited: self.rounds_waited,
            memory: self.arena.memory() + self.table.memory() + self.front.memory(),
        }
    }

    /// Panics unless every invariant holds: a slow and obvious scan, for tests.
    #[doc(hidden)]
    pub fn check(&self) {
        self.arena.check();
        self.table.check(&self.arena);
        self.front.check(&self.arena);
        let deadline = |entry: Entry| self.arena.deadline(entry.index);
        assert!(self.front.iter().is_sorted_by_key(deadline), "the front is sorted");
        assert!(
            self.front.iter().all(|entry| deadline(entry) <= self.cursor),
            "the front is before the cursor"
        );
        let mut placed = self.front.len();
        for (number, _) in self.table.iter() {
            let bucket = self.table.bucket(number);
            placed += bucket.len();
            for entry in bucket.iter() {
                assert_eq!(self.bucket_of(deadline(entry)), Some(number), "it is in its bucket");
            }
        }
        assert_eq!(placed, self.len(), "every timeout has one entry");

        let earliest = self.iter().map(|(_, deadline, _)| deadline).min();
        assert!(earliest.is_none_or(|earliest| self.wake <= earliest), "it wakes in time");
        let latest = self.iter().map(|(_, deadline, _)| deadline).max();
        assert!(latest.is_none_or(|latest| latest <= self.latest), "the latest is known");
        assert_eq!(self.next_deadline(), earliest, "the next deadline is exact");
    }
}

/// A hierarchical wheel of 64 buckets a level.
impl<T> Default for Wheel<T> {
    fn default() -> Self {
        Self::new(Mode::default())
    }
}

/// The timeouts of a wheel as key, deadline and value, from [`Wheel::iter`].
pub struct Iter<'a, T> {
    wheel: &'a Wheel<T>,
    /// The first index not yet looked at.
    index: u32,
    left: usize,
}

impl<'a, T> Iterator for Iter<'a, T> {
    type Item = (Key, u64, &'a T);

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let (index, timeout) = self.wheel.arena.next_live(self.index)?;
        self.index = index + 1;
        Some((timeout.key(index), self.wheel.arena.deadline(index), &timeout.value))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<T> ExactSizeIterator for Iter<'_, T> {}

impl<T> FusedIterator for Iter<'_, T> {}

impl<T> Clone for Iter<'_, T> {
    fn clone(&self) -> Self {
        Self { ..*self }
    }
}

impl<T: fmt::Debug> fmt::Debug for Iter<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.clone()).finish()
    }
}

impl<'a, T> IntoIterator for &'a Wheel<T> {
    type Item = (Key, u64, &'a T);
    type IntoIter = Iter<'a, T>;

    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

/// The timeouts of a wheel on their way out, from [`Wheel::drain`].
#[derive(Debug)]
pub struct Drain<'a, T> {
    wheel: &'a mut Wheel<T>,
    /// No live timeout is before this index.
    index: u32,
}

impl<T> Iterator for Drain<'_, T> {
    type Item = Expired<T>;

    fn next(&mut self) -> Option<Expired<T>> {
        if self.wheel.is_empty() {
            return None;
        }
        let (index, timeout) = self.wheel.arena.next_live(self.index)?;
        self.index = index + 1;
        let (key, deadline) = (timeout.key(index), self.wheel.arena.deadline(index));
        let value = self.wheel.cancel(key)?;
        Some(Expired { key, deadline, value })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.wheel.len(), Some(self.wheel.len()))
    }
}

impl<T> ExactSizeIterator for Drain<'_, T> {}

impl<T> FusedIterator for Drain<'_, T> {}

impl<T> Drop for Drain<'_, T> {
    fn drop(&mut self) {
        /// Goes on with the rest if dropping one value panics.
        struct Rest<'a, 'w, T>(&'a mut Drain<'w, T>);

        impl<T> Drop for Rest<'_, '_, T> {
            fn drop(&mut self) {
                self.0.for_each(drop);
            }
        }

        let rest = Rest(self);
        rest.0.for_each(drop);
    }
}
