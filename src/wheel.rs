//! `Wheel<T>`: the one loop that visits buckets and places timeouts.

use crate::arena::{Arena, Entry, Key};
use crate::bucket::{Bucket, CHUNK, Chunk};
use crate::digit::{Counts, Digit};
use crate::front::Front;
use crate::hierarchical::{FEW_SORTED, Hierarchical, MOST_SORTED};
use crate::mode::{Geometry, Mode};
use crate::runs::Runs;
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
    /// A bucket of `table` that is being taken apart, while it takes more than one step.
    visit: Option<Visit>,
    /// The timeouts whose deadlines are not after `cursor`, sorted: those to be handed out next.
    front: Front,
    /// More of them, after those in `front`.
    runs: Runs,
    /// A tick that no deadline in `front` is before, nor, unless a visit is under way, `cursor`.
    front_from: u64,
    /// The last tick the wheel was driven to.
    now: u64,
    /// The tick up to which buckets have been taken apart. It stays behind `now` while the bucket
    /// that `now` falls in has nothing due yet, and it is ahead while what is left of a bucket
    /// waits in `front`.
    cursor: u64,
    /// How many timeouts are sorted into `front` at once: the more, the longer nothing was scheduled
    /// among them.
    most_sorted: usize,
    /// A tick that no deadline is before; exact until the earliest timeout is cancelled, moved or
    /// handed out.
    wake: u64,
    /// A tick that no deadline is after.
    latest: u64,
    /// Entries of timeouts that were cancelled or moved.
    stale: usize,
    /// Where the search for stale entries goes on, while there is one.
    sweep: Option<Sweep>,
    /// Entries that it is to look at.
    owed: usize,
    visits: u64,
    demotions: u64,
    rounds_waited: u64,
}

/// How far a bucket has been taken apart. What is scheduled meanwhile goes to its end, as the cursor
/// follows at the end only; so it does not matter in how many steps that is done.
#[derive(Clone, Copy, Debug)]
enum Visit {
    /// The timeouts of bucket `number` are placed again, as the cursor comes to `tick`.
    Demote { number: u32, levels: Hierarchical, level: u32, tick: u64 },
    /// What is due in `from..=to` is taken out of bucket `number`, from `chunk` on, and, if that is
    /// more than one tick, out of all that follow.
    Scan { number: u32, chunk: usize, earliest: u64, from: u64, to: u64 },
}

impl Visit {
    /// The bucket that is being taken apart.
    fn number(self) -> u32 {
        let (Self::Demote { number, .. } | Self::Scan { number, .. }) = self;
        number
    }
}

/// The search for stale entries, a chunk at a time.
#[derive(Clone, Copy, Debug, Default)]
struct Sweep {
    /// The bucket; None for the front.
    number: Option<u32>,
    chunk: usize,
}

impl Sweep {
    /// Goes to the beginning of bucket `number`.
    fn go_to(&mut self, number: u32) {
        (self.number, self.chunk) = (Some(number), 0);
    }
}

/// Chunks that are demoted at once.
const DEMOTED: usize = 4;
/// Stale entries that there may be anyway.
const FEW_STALE: usize = 8;
/// Stale entries that there may be for each timeout.
const STALE_PER_LIVE: usize = 3;
/// Entries that are looked at for each timeout that leaves, while there are too many stale ones.
const SWEPT: usize = 16;
/// What a bucket costs to look at, in entries.
const SWEPT_PER_BUCKET: usize = 4;
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
            visit: None,
            front: Front::default(),
            runs: Runs::default(),
            front_from: 0,
            now: 0,
            cursor: 0,
            most_sorted: FEW_SORTED,
            wake: u64::MAX,
            latest: 0,
            stale: 0,
            sweep: None,
            owed: 0,
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
        let (key, stamp) = self.arena.insert(deadline, value);
        self.place(Entry::new(key.index(), stamp, deadline), deadline);
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
        self.stale += 1;
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
        let Some(stamp) = self.arena.reschedule(key, deadline) else { return false };
        self.wake = self.wake.min(deadline);
        self.latest = self.latest.max(deadline);
        self.place(Entry::new(key.index(), stamp, deadline), deadline);
        self.stale += 1;
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
        while *work > 0 {
            let Some(entry) = self.front.first() else {
                *work = work.saturating_sub(self.fill_front(now)?);
                continue;
            };
            // No deadline: it is stale.
            let deadline = self.front_deadline(entry).unwrap_or(now);
            if now < deadline && !self.arena.is_stale(entry) {
                self.wake = deadline;
                return None;
            }
            self.front.prefetch(&self.arena);
            let next = self.front.pop();
            *work -= 1;
            let Some((key, value)) = self.arena.take(entry) else {
                self.stale -= 1;
                continue;
            };
            self.wake = deadline + next.map_or(0, |next| next.distance(deadline));
            self.tidy();
            return Some(Expired { key, deadline, value });
        }
        None
    }

    /// Does a step towards filling the front, which is empty, with what is due at `now`; returns how
    /// much work that was, or None if nothing is due.
    #[inline(never)]
    fn fill_front(&mut self, now: u64) -> Option<usize> {
        if let Some(visit) = self.visit {
            return Some(self.visit_some(visit));
        }
        if !self.runs.is_empty() {
            return Some(self.refill_front());
        }
        let Some((number, tick)) = self.next_bucket() else {
            self.wake = u64::MAX;
            return None;
        };
        self.wake = tick;
        if now < tick {
            self.advance(now, number, tick);
            return None;
        }
        Some(self.begin_visit(number, tick, now))
    }

    /// The deadline of an entry of the front; None if it is known to be stale.
    #[inline]
    fn front_deadline(&self, entry: Entry) -> Option<u64> {
        let is_near = self.cursor.saturating_sub(self.front_from) <= u32::MAX.into();
        entry.deadline(self.front_from, is_near, &self.arena)
    }

    /// The bucket that comes up next, and a tick that no deadline is before.
    #[inline]
    fn next_bucket(&mut self) -> Option<(u32, u64)> {
        match self.geometry {
            Geometry::Hierarchical(levels) => levels.next(&self.table),
            Geometry::Hashed(level) => level.next(&mut self.table, self.cursor),
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

    /// Begins to take bucket `number` apart, in which nothing is due before `tick`: what is due then
    /// goes out, the rest lands finer or waits a round. Returns how many entries were looked at.
    fn begin_visit(&mut self, number: u32, tick: u64, now: u64) -> usize {
        debug_assert!(self.cursor < tick && tick <= now, "the cursor moves forward");
        debug_assert!(self.front.is_empty(), "what is due earlier goes out first");
        self.visits += 1;
        self.front_from = tick;
        let visit = match self.geometry {
            Geometry::Hierarchical(levels) => {
                let level = levels.level(number);
                let bucket = self.table.bucket(number);
                let entries = bucket.len();
                if level == 0 {
                    self.cursor = tick;
                    self.front.fill(self.table.take(number));
                    return 1;
                } else if let Some(deadline) = self.only_and_due(bucket, levels, level, tick, now) {
                    self.cursor = deadline;
                    self.front.fill(self.table.take(number));
                    return 1;
                } else if levels.sorts(level, entries, self.most_sorted) {
                    self.most_sorted = MOST_SORTED.min(self.most_sorted + self.most_sorted / 64);
                    self.cursor = levels.end(number, tick);
                    self.front.fill_sorted(self.table.take(number), levels.bits, level);
                    return entries;
                }
                Visit::Demote { number, levels, level, tick }
            }
            Geometry::Hashed(level) => {
                // When more than a round has passed, buckets come up more than once. Going round
                // for each would cost the distance, so what is due is taken out of all, and sorted.
                // What is due now comes after that, as more of it could be scheduled meanwhile.
                let jumps = level.round() <= now - tick;
                let to = if jumps { now - 1 } else { tick };
                Visit::Scan { number, chunk: 0, earliest: u64::MAX, from: tick, to }
            }
        };
        self.visit_some(visit)
    }

    /// The deadline of the only timeout of a bucket, if it is due.
    fn only_and_due(
        &self,
        bucket: &Bucket,
        levels: Hierarchical,
        level: u32,
        tick: u64,
        now: u64,
    ) -> Option<u64> {
        let only = bucket.only()?;
        let deadline = only.deadline(tick, levels.span_fits_u32(level), &self.arena);
        Some(deadline.unwrap_or(tick)).filter(|&deadline| deadline <= now)
    }

    /// Goes on with a visit for one step, and returns how many entries that were.
    fn visit_some(&mut self, visit: Visit) -> usize {
        self.visit = Some(visit);
        match visit {
            Visit::Demote { number, levels, level, tick } => {
                let bucket = self.table.bucket_mut(number);
                let each = bucket.chunks() * CHUNK / levels.buckets();
                let chunks: [_; DEMOTED] = core::array::from_fn(|_| bucket.pop_chunk());
                bucket.prefetch(DEMOTED);
                if bucket.is_empty() {
                    self.table.close(number, tick);
                    self.cursor = tick;
                    self.visit = None;
                }
                self.demote(&chunks, levels, level, tick, each);
                chunks.iter().map(|chunk| chunk.len()).sum()
            }
            Visit::Scan { number, chunk, mut earliest, from, to } => {
                let Self { table, front, runs, arena, stale, .. } = self;
                let is_near = self.latest - from <= u32::MAX.into();
                let bucket = table.bucket_mut(number);
                let entries = bucket.chunk(chunk).len();
                let chunk = bucket.retain_chunk(chunk, |entry| {
                    let Some(deadline) = entry.deadline(from, is_near, arena) else {
                        *stale -= 1;
                        return false;
                    };
                    if to < deadline {
                        earliest = earliest.min(deadline);
                        return true;
                    }
                    match from == to {
                        true => front.push(entry),
                        false => runs.push(deadline, entry),
                    }
                    false
                });
                if chunk < bucket.chunks() {
                    self.visit = Some(Visit::Scan { number, chunk, earliest, from, to });
                    return entries;
                }
                self.rounds_waited += bucket.len() as u64;
                self.table.close(number, earliest);
                let next = if from < to { self.table.soonest() } else { None };
                match next {
                    Some((number, tick)) if tick <= to => {
                        self.visits += 1;
                        let earliest = u64::MAX;
                        self.visit = Some(Visit::Scan { number, chunk: 0, earliest, from, to });
                    }
                    _ => {
                        self.runs.close();
                        self.cursor = to;
                        self.visit = None;
                    }
                }
                entries
            }
        }
    }

    /// Places entries of a bucket of level `level` again, as the cursor comes to `tick`, of which
    /// about `each` will come to each finer bucket.
    #[inline(never)]
    fn demote(
        &mut self,
        chunks: &[Chunk; DEMOTED],
        levels: Hierarchical,
        level: u32,
        tick: u64,
        each: usize,
    ) {
        let below = level - 1;
        let Some(digit) = Digit::new(below * levels.bits, levels.bits) else {
            let is_near = levels.span_fits_u32(level);
            for &entry in chunks.iter().flatten() {
                match entry.deadline(tick, is_near, &self.arena) {
                    Some(deadline) => self.demote_one(entry, deadline, levels, tick),
                    None => self.stale -= 1,
                }
            }
            return;
        };
        // Nearly all go one level down; so the work there is done once for each bucket.
        let mut counts = Counts::new(digit);
        chunks.iter().for_each(|chunk| counts.add(chunk));
        counts.begin();
        let mut sorted = [Entry::new(0, 0, 0); DEMOTED * CHUNK];
        chunks.iter().for_each(|chunk| counts.put(chunk, &mut sorted));
        let own = levels.digit(below, tick);
        for (digit, run) in counts.runs(&sorted) {
            if digit == own {
                for &entry in run {
                    self.demote_one(entry, tick + entry.distance(tick), levels, tick);
                }
                continue;
            }
            let distance = run.iter().map(|entry| entry.distance(tick)).min().unwrap_or(0);
            let bucket = self.table.bucket_for(levels.number(below, digit), tick + distance);
            bucket.reserve(each);
            bucket.extend(run);
            self.demotions += run.len() as u64;
        }
    }

    /// Places an entry on a finer level, as the cursor comes to `tick`.
    fn demote_one(&mut self, entry: Entry, deadline: u64, levels: Hierarchical, tick: u64) {
        if deadline == tick {
            self.front.push(entry);
        } else {
            self.demotions += 1;
            self.table.bucket_for(levels.bucket(deadline, tick), deadline).push(entry);
        }
    }

    /// Takes the next chunk of what is due out of what was gathered in a jump.
    fn refill_front(&mut self) -> usize {
        let mut entries = 0;
        while let Some((deadline, entry)) = self.runs.pop() {
            if self.front.is_empty() {
                self.front_from = deadline;
            }
            self.front.push(entry);
            entries += 1;
            if entries == CHUNK {
                break;
            }
        }
        entries
    }

    /// Puts an entry into the bucket that `deadline` belongs in.
    #[inline(always)]
    fn place(&mut self, entry: Entry, deadline: u64) {
        match self.bucket_of(deadline) {
            Some(number) => self.table.bucket_for(number, deadline).push(entry),
            None => self.place_in_front(entry, deadline),
        }
        if entry.stamp % STAMPS_PER_SWEEP == 0 {
            self.sweep.get_or_insert_default();
        }
    }

    /// Puts an entry of a deadline that is not after the cursor among what is due next.
    #[inline(never)]
    fn place_in_front(&mut self, entry: Entry, deadline: u64) {
        // What is not due yet is kept short, so that no call has much to put back.
        let is_full = self.now < self.cursor && self.front.is_long();
        if is_full || !self.front.insert(entry, self.cursor) {
            self.scatter(entry, deadline);
        }
    }

    /// Puts what was sorted to be due next back into buckets, as it has become too much to insert
    /// into, or to keep.
    #[cold]
    fn scatter(&mut self, entry: Entry, deadline: u64) {
        let from = self.front_from;
        // The cursor is ahead of now only after a sort, which no bucket of 2^32 ticks or more takes.
        debug_assert!(self.cursor - from <= u32::MAX.into(), "what was sorted is near");
        self.cursor = self.now;
        self.most_sorted = FEW_SORTED;
        for entry in core::mem::take(&mut self.front).iter() {
            self.place(entry, from + entry.distance(from));
        }
        self.place(entry, deadline);
    }

    /// Keeps the stale entries few, after a timeout has left or was moved.
    #[inline]
    fn tidy(&mut self) {
        let most = FEW_STALE + STALE_PER_LIVE * self.len();
        if most < self.stale || self.sweep.is_some() {
            self.owed += SWEPT;
            // Many at once, as to begin and to leave off costs something too.
            if CHUNK.min(4 * most) <= self.owed {
                self.sweep_some();
            }
        }
        if self.is_empty() {
            self.forget_entries();
        }
    }

    /// Drops all entries, as there are no timeouts.
    #[cold]
    fn forget_entries(&mut self) {
        // Mostly nothing has used them since the last time; without memory they hold nothing.
        if self.front.memory() + self.runs.memory() > 0 {
            self.front = Front::default();
            self.runs = Runs::default();
        }
        self.table.clear();
        (self.visit, self.sweep, self.stale, self.owed) = (None, None, 0, 0);
    }

    /// Drops stale entries, looking at as many entries as are owed.
    #[cold]
    fn sweep_some(&mut self) {
        let mut sweep = self.sweep.take().unwrap_or_default();
        while self.stale > 0 {
            // What is on its way out of the buckets is in none of them, and a visit must find the
            // chunks where they were.
            if self.visit.is_some() || !self.runs.is_empty() {
                let most = match self.visit {
                    Some(Visit::Demote { .. }) => DEMOTED * CHUNK,
                    _ => CHUNK,
                };
                if self.owed < most {
                    self.sweep = Some(sweep);
                    return;
                }
                self.owed -= most;
                match self.visit {
                    Some(visit) => self.visit_some(visit),
                    None => self.refill_front(),
                };
                continue;
            }
            let Self { table, front, arena, stale, .. } = self;
            let chunks = match sweep.number {
                None => front.chunks(),
                Some(number) => {
                    let Some((next, _)) = table.next(number) else { return };
                    if number < next {
                        sweep.go_to(next);
                    }
                    table.bucket(next).chunks()
                }
            };
            if chunks <= sweep.chunk {
                sweep.go_to(sweep.number.map_or(0, |number| number + 1));
                continue;
            }
            let entries = match sweep.number {
                None => front.chunk(sweep.chunk),
                Some(number) => table.bucket(number).chunk(sweep.chunk),
            };
            let cost = entries.len().max(SWEPT_PER_BUCKET);
            if self.owed < cost {
                self.sweep = Some(sweep);
                return;
            }
            self.owed -= cost;
            let keep = |entry| {
                let is_stale = arena.is_stale(entry);
                *stale -= usize::from(is_stale);
                !is_stale
            };
            let Some(number) = sweep.number else {
                sweep.chunk = front.retain_chunk(sweep.chunk, keep);
                continue;
            };
            let bucket = table.bucket_mut(number);
            sweep.chunk = bucket.retain_chunk(sweep.chunk, keep);
            if bucket.is_empty() {
                table.close(number, 0);
            }
        }
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

    /// The earliest deadline, exactly; None if the wheel is empty.
    ///
    /// At or before [`now`](Self::now) if something is due. O(1) while that which comes next has
    /// been sorted already, and was not cancelled; otherwise it scans the bucket that comes up next,
    /// and in a hashed wheel looks at each occupied one. In the middle of a jump that is done in
    /// steps, it scans all that was gathered. A loop that sleeps between deadlines, and can bear to
    /// wake up in vain now and then, does better with [`next_wake`](Self::next_wake).
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
        self.next_entry().map(|(deadline, _)| deadline)
    }

    /// The key of the timeout that comes out next; None if the wheel is empty. Costs what
    /// `next_deadline` does.
    #[cfg(feature = "std")]
    pub(crate) fn next_key(&self) -> Option<Key> {
        self.arena.key(self.next_entry()?.1)
    }

    /// The earliest deadline, exactly, and the entry that comes out first of those that have it.
    fn next_entry(&self) -> Option<(u64, Entry)> {
        let arena = &self.arena;
        let with_deadline = |entry| Some((arena.deadline(entry)?, entry));
        if let Some(first) = self.front.iter().find_map(with_deadline) {
            return Some(first);
        }
        let earliest_in = |(number, earliest), bound| {
            self.table.bucket(number).earliest(earliest, self.latest, bound, arena)
        };
        let earlier = |found: Option<(u64, Entry)>, bucket: (u32, u64)| match found {
            Some((bound, _)) if bound <= bucket.1 => found,
            _ => earliest_in(bucket, found.map(|(bound, _)| bound)).or(found),
        };
        match self.geometry {
            Geometry::Hierarchical(_) => {
                // What a visit has demoted comes before what it has not.
                let next = self.table.iter().find_map(|bucket| earliest_in(bucket, None));
                let visited = self.visit.and_then(|visit| self.table.next(visit.number()));
                visited.into_iter().fold(next, earlier)
            }
            Geometry::Hashed(_) => {
                let gathered = self.runs.first(|entry| !arena.is_stale(entry));
                self.table.iter().fold(gathered, earlier)
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
            self.visit_some(visit);
        }
        while !self.runs.is_empty() {
            self.refill_front();
        }
        let arena = &self.arena;
        self.front.shrink(|entry| !arena.is_stale(entry));
        self.table.shrink(|entry| !arena.is_stale(entry));
        (self.stale, self.sweep) = (0, None);
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
            sorted: self.front.len() + self.runs.iter().count(),
            stale: self.stale,
            buckets_visited: self.visits,
            demotions: self.demotions,
            rounds_waited: self.rounds_waited,
            memory: self.arena.memory()
                + self.table.memory()
                + self.front.memory()
                + self.runs.memory(),
        }
    }

    /// Panics unless every invariant holds: a slow and obvious scan, for tests.
    #[doc(hidden)]
    pub fn check(&self) {
        self.arena.check();
        self.table.check(&self.arena);
        self.front.check(&self.arena);
        let mut entries = 0;
        let mut placed = Vec::new();
        let mut deadline = |entry: Entry| {
            entries += 1;
            let deadline = self.arena.deadline(entry);
            placed.extend(deadline.map(|_| entry.index));
            deadline
        };

        let front: Vec<_> = self.front.iter().filter_map(&mut deadline).collect();
        assert!(front.is_sorted(), "the front is sorted");
        let visited = self.visit.map(|visit| match visit {
            Visit::Demote { tick, .. } => tick,
            Visit::Scan { to, .. } => to,
        });
        let end = visited.unwrap_or(self.cursor);
        assert!(front.iter().all(|&deadline| deadline <= end), "the front is before the cursor");
        for &(gathered, entry) in self.runs.iter() {
            assert!(gathered <= end, "what was gathered is before the cursor");
            let deadline = deadline(entry);
            assert!(deadline.is_none_or(|deadline| deadline == gathered), "it knows when");
        }
        for (number, _) in self.table.iter() {
            for deadline in self.table.bucket(number).iter().filter_map(&mut deadline) {
                let place = self.bucket_of(deadline);
                let finer = match self.visit {
                    Some(Visit::Demote { number, levels, tick, .. }) if place == Some(number) => {
                        (tick < deadline).then(|| levels.bucket(deadline, tick))
                    }
                    _ => None,
                };
                assert!([place, finer].contains(&Some(number)), "it is in its bucket");
            }
        }
        assert_eq!(entries, self.len() + self.stale, "the count of stale entries is right");
        placed.sort_unstable();
        placed.dedup();
        assert_eq!(placed.len(), self.len(), "every timeout has one entry");

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
        let next = self.wheel.arena.next_live(self.index)?;
        self.index = next.0.index().saturating_add(1);
        Some(next)
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
        let (key, deadline, _) = self.wheel.arena.next_live(self.index)?;
        self.index = key.index().saturating_add(1);
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

#[cfg(test)]
mod tests {
    use super::{Entry, FEW_STALE, STAMPS_PER_SWEEP, Wheel};
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
                assert!(wheel.sweep.is_none(), "it is over");
                let is_old = |entry: Entry| entry.low() != 1 && wheel.arena.is_stale(entry);
                let old = wheel.table.iter().map(|(number, _)| wheel.table.bucket(number).iter());
                assert_eq!(old.flatten().filter(|&entry| is_old(entry)).count(), 0, "{mode}");
                wheel.check();
            }
        }
    }
}
