//! The wheel: schedules, cancels and hands out timeouts.

mod arena;
mod bucket;
mod check;
mod digit;
mod earliest;
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
mod within;

pub use arena::Key;
pub(crate) use growing::Growing;
pub use iter::{Drain, ExtractDue, Iter, IterMut};

use crate::mode::Mode;
use crate::steps;
use alloc::collections::TryReserveError;
use alloc::vec;
use alloc::vec::Vec;
use arena::{Arena, Entry};
use bucket::CHUNK;
use geometry::Geometry;
use ready::{MOST_ALONE, Ready};
use sweep::{Place, Sweep};
use table::Table;
use within::Choices;

/// Holds values until their deadlines, and hands them out in order.
///
/// The caller drives the wheel: the wheel reads no clock, starts no thread and calls no callback.
/// Time is a number of *ticks*. The caller decides how long a tick is and when tick 0 was, and
/// passes the present to [`expire`](Self::expire). Every `u64` is a valid deadline and a valid
/// `now`.
///
/// # Guarantees
///
/// In either [`Mode`], for any order of calls:
///
/// - `expire(now)` never returns a timeout whose deadline is after `now`, and returns every timeout
///   with `deadline <= now` before it returns None.
/// - Timeouts come out by deadline. Timeouts of equal deadlines come out in the order in which they
///   were scheduled. A deadline at or before [`now`](Self::now) counts as `now`, and is reported as
///   `now`.
/// - Every value leaves once: expired, cancelled, drained, or dropped with the wheel.
/// - A jump in time costs what comes due in it, and not its length.
/// - Memory stays within a constant factor of the most timeouts that were pending at once since the
///   last [`shrink_to_fit`](Self::shrink_to_fit), however many operations there were. The places
///   that it kept count as timeouts.
/// - No call panics, unless memory runs out, or the wheel would hold more than 2^32 - 1 timeouts.
/// - The cost of a call does not grow with what the wheel holds or has held, unless the call says
///   so in a sentence that begins with "Cost". In such a sentence, n is the number of pending
///   timeouts, p is the most that were pending at once since the last
///   [`shrink_to_fit`](Self::shrink_to_fit), with the places that it kept, and "if hashed" means a
///   hashed wheel of that many buckets. What earlier calls left to do may come in one call, which
///   "amortised" leaves out.
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
/// A wheel of few timeouts holds them in one array, in either mode, which takes less memory than
/// buckets. Once the array would take more than 1056 entries, all go into buckets. A wheel that is
/// empty, and has room for at most 1056 timeouts, begins with an array again.
///
/// The schemes are those of G. Varghese and T. Lauck, *Hashed and Hierarchical Timing Wheels*
/// (1987).
#[derive(Debug)]
pub struct Wheel<T> {
    mode: Mode,
    geometry: Geometry,
    arena: Arena<T>,
    /// The timeouts whose deadlines are after `cursor`. Each is in the bucket that its deadline and
    /// `cursor` determine, so timeouts of equal deadlines are always in the same bucket.
    table: Table,
    /// The timeouts whose deadlines are not after `cursor`, in the order in which they come. If
    /// these are few, all are here, and `cursor` is the last tick.
    ready: Ready,
    sweep: Sweep,
    /// The last tick the wheel was driven to.
    now: u64,
    /// The tick up to which buckets have been taken apart; the last one if there are no buckets,
    /// because timeouts are few. It stays behind `now` while nothing is
    /// due in the bucket that `now` falls in. It is ahead of `now` while timeouts that were sorted
    /// together wait in `ready`.
    cursor: u64,
    /// A tick that is not after any deadline. It is the earliest deadline until that timeout is
    /// cancelled, moved or handed out.
    wake: u64,
    /// The place and the stamp of the timeout that comes out first, if it is pending and its
    /// deadline is `wake`.
    first: (u32, u32),
    /// Whether there are so many buckets that most timeouts have a row of the table to themselves.
    is_wide: bool,
    choices: Choices,
    work: Work,
}

/// The work of a wheel since it was made, as [`WheelStats`] reports it.
#[derive(Clone, Copy, Debug, Default)]
struct Work {
    buckets_visited: u64,
    demotions: u64,
    rounds_waited: u64,
}

/// A timeout that a wheel handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Expired<T, K = Key> {
    /// The key of the timeout, which names nothing any more. In a [`WheelMap`](crate::WheelMap),
    /// the caller's own key.
    pub key: K,
    /// The tick at which the timeout was due.
    pub deadline: u64,
    /// The value that was scheduled.
    pub value: T,
}

/// Reports what a [`Wheel`] holds and what it has done, from [`Wheel::stats`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct WheelStats {
    /// The entries on each level, the finest level first: of timeouts that wait there, and stale
    /// ones. A hashed wheel has one level.
    pub timeouts_per_level: Vec<usize>,
    /// The entries on no level: taken out of their buckets and sorted, to be handed out next, or
    /// all of a wheel of few timeouts.
    pub sorted: usize,
    /// The number of these entries that are stale: their timeouts were cancelled or moved, and a
    /// sweep will drop them.
    pub stale: usize,
    /// The buckets that were taken apart or scanned since the wheel was made. A bucket that the
    /// cursor passes while nothing in it is due does not count.
    pub buckets_visited: u64,
    /// How often an entry was moved to a finer level since the wheel was made, a stale one, too; 0
    /// for a hashed wheel.
    pub demotions: u64,
    /// How often a scan of a bucket left an entry waiting for a later round since the wheel was made,
    /// a stale one, too; 0 for a hierarchical wheel.
    pub rounds_waited: u64,
    /// The bytes that are allocated now, besides the `Wheel` itself.
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
            sweep: Sweep::default(),
            now: 0,
            cursor: 0,
            wake: u64::MAX,
            first: NOWHERE,
            is_wide: FEW_BUCKETS < geometry.buckets(),
            choices: Choices::default(),
            work: Work::default(),
        }
    }

    /// Returns an empty wheel at tick 0 with room for `timeouts`, as by [`reserve`](Self::reserve).
    #[must_use]
    pub fn with_capacity(mode: Mode, timeouts: usize) -> Self {
        let mut wheel = Self::new(mode);
        wheel.reserve(timeouts);
        wheel
    }

    /// Schedules `value` at tick `deadline` and returns its key. O(1), amortised.
    ///
    /// If `deadline` is at or before [`now`](Self::now), it counts as `now`: the next calls of
    /// [`expire`](Self::expire) return the timeout, after those that were due before.
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
        self.schedule_made(deadline, || value)
    }

    /// Does what [`schedule`](Self::schedule) does with what `value` returns, which is made in its
    /// place: a value that was written a moment ago is slow to copy. It must not panic.
    #[inline]
    pub(crate) fn schedule_made(&mut self, deadline: u64, value: impl FnOnce() -> T) -> Key {
        if self.is_empty() {
            self.begin();
        }
        let (key, entry) = self.arena.insert(deadline.max(self.now), value);
        self.wake_for(entry);
        self.place(entry);
        key
    }

    /// Takes the timeout that `key` names out of the wheel and returns its value. Returns None if
    /// the timeout is gone. O(1), amortised.
    ///
    /// ```
    /// let mut wheel = tickwheel::Wheel::new(tickwheel::Mode::hierarchical());
    /// let key = wheel.schedule(10, "value");
    /// assert_eq!(wheel.cancel(key), Some("value"));
    /// assert_eq!(wheel.cancel(key), None);
    /// ```
    #[inline(always)]
    pub fn cancel(&mut self, key: Key) -> Option<T> {
        self.cancel_into(key, |value| value)
    }

    /// Does what [`cancel`](Self::cancel) does, and returns what `into` makes of the value, which is
    /// copied less often if that is smaller. `into` must not panic.
    #[inline(always)]
    pub(crate) fn cancel_into<R>(&mut self, key: Key, into: impl FnOnce(T) -> R) -> Option<R> {
        let (value, stamp) = self.arena.remove(key, into)?;
        if !(self.arena.is_latest(stamp) && self.take_back(key.index(), stamp)) {
            self.sweep.stale += 1;
        }
        self.tidy_or_forget();
        Some(value)
    }

    /// Moves the timeout that `key` names to tick `deadline`. Returns false if the timeout is gone.
    /// The key stays valid. O(1), amortised.
    ///
    /// Moving counts as scheduling anew: among equal deadlines, the timeout comes last. A timeout
    /// that is due but not yet handed out can be moved, too.
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
        if self.is_wide {
            self.take_alone(key);
        }
        let Some(entry) = self.arena.reschedule(key, deadline) else { return false };
        self.sweep.stale = self.sweep.stale.wrapping_add(1);
        self.wake_for(entry);
        self.place(entry);
        self.tidy();
        true
    }

    /// Drives the wheel to tick `now` and returns the next timeout that is due. Returns None if
    /// none is left: call it until then.
    ///
    /// If `now` is earlier than in a call before, the wheel's time stays where it is, and only
    /// timeouts that are due at the earlier `now` come out.
    ///
    /// The cost goes by what comes due, and not by the distance from the last `now`. A timeout is
    /// demoted at most once per level. One call may demote all timeouts of a coarse bucket;
    /// [`expire_bounded`](Self::expire_bounded) spreads that over several calls. A hashed wheel
    /// scans all of a bucket in each round in which a timeout of that bucket is due, or was due
    /// before it was cancelled or moved. All rounds of a jump count as one.
    ///
    /// Cost: O(n).
    ///
    /// ```
    /// let mut wheel = tickwheel::Wheel::new(tickwheel::Mode::hierarchical());
    /// wheel.schedule(20, "b");
    /// wheel.schedule(10, "a");
    ///
    /// let mut values = Vec::new();
    /// while let Some(expired) = wheel.expire(1_000) {
    ///     values.push(expired.value); // the loop may schedule, cancel and reschedule
    /// }
    /// assert_eq!(values, ["a", "b"]);
    /// ```
    #[inline]
    pub fn expire(&mut self, now: u64) -> Option<Expired<T>> {
        self.expire_while(now, now, |_| true)
    }

    /// Returns the next timeout that is due, as [`expire`](Self::expire) does, and caps the work of
    /// the call, however many timeouts are pending.
    ///
    /// The call subtracts its work from `work`. If it returns None with `work` at 0, there may be
    /// more to do, and the next call goes on from there.
    ///
    /// Each timeout that is handed out, moved, or looked at in vain is one unit of work. So is a
    /// node that is put right in the tree that finds the next bucket, and a step that does nothing
    /// else; one that passes what a sweep has emptied counts as 512. A bucket is a list of pieces of
    /// 512 timeouts: where one is taken out, each 16 that move up are a unit.
    ///
    /// The last step may exceed `work`: it takes up to 1024 timeouts of a bucket, or up to 8192 if
    /// it sorts them. In a hashed wheel it looks at up to 512, joins those that stay to the piece
    /// before, and moves up one piece for each 512 timeouts of the bucket at most. After a jump of a
    /// round or more it also sorts up to 1536 that were found due, and takes out the first 512.
    /// Finding the bucket for a step takes at most 8 looks, which are not counted. Nor is the sweep
    /// that a timeout pays for as it leaves, here as in [`cancel`](Self::cancel): one call looks at
    /// up to 512 entries for stale ones, or at all of a wheel of few.
    ///
    /// ```
    /// let mut wheel = tickwheel::Wheel::new(tickwheel::Mode::hierarchical());
    /// for value in 0..1_000 {
    ///     wheel.schedule(5, value);
    /// }
    /// let mut values = Vec::new();
    /// loop {
    ///     let mut work = 64; // a caller may release a lock after each 64
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
        self.expire_until(now, now, work)
    }

    /// Does what [`expire_bounded`](Self::expire_bounded) does, and leaves what is due after `until`
    /// in the wheel, ready. Driven in short steps from one deadline to the next, a hashed wheel would
    /// scan its buckets for each.
    #[inline]
    pub(crate) fn expire_until(
        &mut self,
        now: u64,
        until: u64,
        work: &mut usize,
    ) -> Option<Expired<T>> {
        self.expire_while(now, until, |units| {
            *work = work.saturating_sub(units);
            0 < *work
        })
    }

    /// Does what `expire` does while `spends`, which is told the work of each step, returns true.
    // A closure, so that a call without a bound counts nothing.
    #[inline(always)]
    fn expire_while(
        &mut self,
        now: u64,
        until: u64,
        mut spends: impl FnMut(usize) -> bool,
    ) -> Option<Expired<T>> {
        if self.now < now {
            self.now = now;
        }
        if now < self.wake || !spends(0) {
            return None;
        }
        loop {
            let is_over;
            if let Some(entry) = self.ready.first() {
                if until < entry.deadline && !self.arena.is_stale(entry) {
                    self.wake = entry.deadline;
                    return None;
                }
                self.ready.prefetch(&self.arena);
                let next = self.ready.pop();
                is_over = !spends(1);
                if let Some((key, value)) = self.arena.take(entry) {
                    self.wake = next.map_or(entry.deadline, |next| next.deadline);
                    self.tidy_or_forget();
                    return Some(Expired { key, deadline: entry.deadline, value });
                }
                self.sweep.stale -= 1;
            } else {
                let step = self.make_ready(now);
                let (Ok(units) | Err(units)) = step;
                is_over = !spends(units);
                step.ok()?;
            }
            if is_over {
                return None;
            }
        }
    }

    /// Does a step towards making ready what is due at `now`, because nothing is ready. Returns the
    /// work of the step, as an error if nothing is due.
    #[inline(never)]
    fn make_ready(&mut self, now: u64) -> Result<usize, usize> {
        let repairs = self.table.repairs();
        let step = self.step(now);
        let repairs = self.table.repairs().wrapping_sub(repairs);
        step.map(|step| step.max(1) + repairs).ok_or(repairs)
    }

    /// Does the step, and returns its work, but for the nodes that it has put right.
    #[inline(always)]
    fn step(&mut self, now: u64) -> Option<usize> {
        if let Some(visit) = self.table.visit() {
            return Some(self.visit_step(visit));
        }
        if let Some(gathered) = self.sort_gathered() {
            return Some(gathered);
        }
        if self.ready.has_runs() {
            self.ready.refill();
            return Some(CHUNK);
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

    /// Takes back the entry that was made last, with this place and stamp, if it is the last of its
    /// bucket. Returns whether it was: otherwise the entry is stale.
    ///
    /// So a caller that cancels what it scheduled last leaves no entries to sweep.
    fn take_back(&mut self, index: u32, stamp: u32) -> bool {
        let deadline = self.arena.deadline_at(index);
        if self.cursor < deadline {
            let number = self.geometry.bucket(deadline, self.cursor);
            return self.table.take_back(number, index, stamp);
        }
        self.cursor == u64::MAX && self.ready.take_back(index, stamp)
    }

    /// Takes out the entry of a timeout that is about to move, if it is alone in its bucket, so
    /// that it keeps no row of the table. The caller counts it as stale.
    #[cold]
    fn take_alone(&mut self, key: Key) {
        let Some(stamp) = self.arena.stamp_of(key) else { return };
        let deadline = self.arena.deadline_at(key.index());
        if deadline <= self.cursor || self.table.visit().is_some() {
            return;
        }
        let number = self.geometry.bucket(deadline, self.cursor);
        if self.table.take_alone(number, key.index(), stamp) {
            self.sweep.stale = self.sweep.stale.wrapping_sub(1);
        }
    }

    /// Begins anew, because there are no timeouts. A wheel of few has nothing in buckets: all is
    /// ready, though it is not due. At the last tick all is due.
    #[inline(never)]
    fn begin(&mut self) {
        (self.cursor, self.wake) = (self.now, u64::MAX);
        if self.now < u64::MAX && self.arena.room() <= MOST_ALONE {
            self.cursor = u64::MAX;
            self.ready.gather();
        }
    }

    /// Notes that a new entry comes out first, if it does.
    #[inline(always)]
    fn wake_for(&mut self, entry: Entry) {
        if entry.deadline < self.wake {
            (self.wake, self.first) = (entry.deadline, (entry.index, entry.stamp));
        }
    }

    /// Puts an entry into the bucket of its deadline, or among what is ready.
    #[inline(always)]
    fn place(&mut self, entry: Entry) {
        if self.cursor < entry.deadline {
            let number = self.geometry.bucket(entry.deadline, self.cursor);
            self.table.push(number, entry);
        } else {
            self.place_ready(entry);
        }
        if entry.stamp % STAMPS_PER_SWEEP == 0 {
            self.sweep.place.get_or_insert(Place::BEGIN);
            self.first = NOWHERE;
        }
    }

    /// Puts an entry among what is ready, because its deadline is not after the cursor.
    #[inline(never)]
    fn place_ready(&mut self, entry: Entry) {
        let is_in = match self.is_of_few() {
            true => self.ready.insert_alone(entry),
            false => self.ready.insert(entry, self.cursor, self.now),
        };
        if !is_in {
            return self.place_without_room(entry);
        }
        if let Some(Place::Sorted(entries)) = &mut self.sweep.place {
            // One that the sweep has yet to look at may have moved.
            *entries = entries.saturating_add(1);
        }
    }

    /// Returns whether all timeouts are ready, though they may not be due: then they are few, or will
    /// go into buckets when there are more.
    #[inline]
    fn is_of_few(&self) -> bool {
        self.now < self.cursor && self.cursor == u64::MAX
    }

    /// Makes room among what is ready for an entry, or puts what is not due back into buckets.
    #[cold]
    fn place_without_room(&mut self, entry: Entry) {
        let Self { ready, arena, sweep, .. } = self;
        if self.cursor == u64::MAX && ready.is_full() {
            // All entries are in this array.
            let dropped = ready.make_room(sweep.stale, |entry| !arena.is_stale(entry));
            sweep.stale -= dropped.unwrap_or(0);
            if dropped.is_some() || ready.grow() {
                return self.place_ready(entry);
            }
        }
        self.put_back();
        self.place(entry);
    }

    /// Sorts the timeouts of a wheel of few if the first is not known, or puts them into buckets if
    /// they leave no room for others in front. Returns the work.
    fn sort_gathered(&mut self) -> Option<usize> {
        let gathered = self.ready.gathered()?;
        if gathered + Ready::front(gathered) <= MOST_ALONE {
            self.ready.sort_gathered();
            return Some(gathered);
        }
        self.put_back();
        // If some are due, all were sorted, too.
        Some(2 * gathered)
    }

    /// Puts what is ready and not due back into buckets, because they are too many. The cursor is
    /// after `now` only while the bucket that `now` falls in was sorted as a whole, so every other
    /// bucket holds the same deadlines for either.
    #[cold]
    fn put_back(&mut self) {
        debug_assert!(self.table.visit().is_none(), "it was sorted ahead");
        let mut due = 0;
        if self.wake <= self.now {
            self.ready.settle();
            due = self.ready.until(self.now)[0].len();
        }
        self.cursor = self.now;
        for entry in self.ready.split_off(due).iter() {
            steps::count(1);
            // A stale entry would move away from a sweep, and be placed in vain.
            if self.arena.is_stale(entry) {
                self.sweep.stale -= 1;
            } else {
                self.place(entry);
            }
        }
    }

    /// Drops all entries, because there are no timeouts.
    #[cold]
    fn forget_entries(&mut self) {
        self.ready.clear();
        self.table.clear();
        self.sweep = Sweep::default();
    }

    /// Returns the earliest deadline, exactly. Returns None if the wheel is empty.
    ///
    /// If something is due, the answer is at or before [`now`](Self::now).
    ///
    /// The call costs O(1) if the timeout that was the earliest at the last call is still pending,
    /// or if an earlier one was scheduled since that is. Otherwise the call looks for the earliest
    /// one, and keeps what it finds: that is why it takes `&mut self`. Whatever is done between the
    /// calls, this costs O(log n) for each operation, amortised. A single call may look through the
    /// bucket that comes up next, and finishes what [`expire_bounded`](Self::expire_bounded) has
    /// begun; [`next_deadline_bounded`](Self::next_deadline_bounded) spreads that over several
    /// calls.
    ///
    /// A loop that sleeps between deadlines should use [`next_wake`](Self::next_wake), which is
    /// cheaper, and may wake the loop in vain now and then.
    ///
    /// Cost: O(log n) amortised, O(n) in one call.
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
        self.next_deadline_bounded(&mut { usize::MAX })
    }

    /// Returns the earliest deadline, as [`next_deadline`](Self::next_deadline) does, and caps the
    /// work of the call, however many timeouts are pending.
    ///
    /// The call subtracts its work from `work`. If it returns None with `work` at 0, it has not
    /// found the deadline, and the next call goes on from there. Work is counted, and the last step
    /// may exceed it, as by [`expire_bounded`](Self::expire_bounded). A step that looks for the
    /// earliest timeout of a bucket looks at up to 1168, in two pieces.
    ///
    /// ```
    /// let mut wheel = tickwheel::Wheel::new(tickwheel::Mode::hierarchical());
    /// for value in 0..10_000 {
    ///     wheel.schedule(20_000 - value, value);
    /// }
    /// let deadline = loop {
    ///     let mut work = 64; // a caller may release a lock after each 64
    ///     let deadline = wheel.next_deadline_bounded(&mut work);
    ///     if deadline.is_some() || work > 0 {
    ///         break deadline;
    ///     }
    /// };
    /// assert_eq!(deadline, Some(10_001));
    /// ```
    #[must_use]
    pub fn next_deadline_bounded(&mut self, work: &mut usize) -> Option<u64> {
        Some(self.next_entry(work)?.deadline)
    }

    /// Returns the timeout that comes out next, as key, deadline and value, and leaves it in the
    /// wheel. Returns None if the wheel is empty.
    ///
    /// The next call of [`expire`](Self::expire) that returns a timeout returns this one, unless
    /// the caller schedules, cancels or moves timeouts before. The call costs as much as
    /// [`next_deadline`](Self::next_deadline), and takes `&mut self` for the same reason.
    ///
    /// Cost: O(log n) amortised, O(n) in one call.
    ///
    /// ```
    /// let mut wheel = tickwheel::Wheel::new(tickwheel::Mode::hierarchical());
    /// assert_eq!(wheel.peek(), None);
    /// wheel.schedule(20, "late");
    /// let soon = wheel.schedule(10, "soon");
    /// assert_eq!(wheel.peek(), Some((soon, 10, &"soon")));
    /// assert_eq!(wheel.len(), 2);
    /// ```
    #[must_use]
    pub fn peek(&mut self) -> Option<(Key, u64, &T)> {
        let entry = self.next_entry(&mut { usize::MAX })?;
        let (key, value) = self.arena.at(entry.index)?;
        Some((key, entry.deadline, value))
    }

    /// Returns the entry of the timeout that comes out next.
    fn next_entry(&mut self, work: &mut usize) -> Option<Entry> {
        if self.is_empty() {
            return None;
        }
        if let Some(entry) = self.known_first() {
            return Some(entry);
        }
        let entry = self.find_first(work)?;
        (self.wake, self.first) = (entry.deadline, (entry.index, entry.stamp));
        Some(entry)
    }

    /// Returns the entry of the timeout that comes out first, if it is known.
    fn known_first(&self) -> Option<Entry> {
        let (index, stamp) = self.first;
        let first = Entry { index, stamp, deadline: self.wake };
        let is_it = !self.arena.is_stale(first) && self.arena.deadline_at(index) == self.wake;
        is_it.then_some(first)
    }

    /// Looks for the entry of the timeout that comes out first, until `work` ends.
    fn find_first(&mut self, work: &mut usize) -> Option<Entry> {
        let mut looks = 0;
        while 0 < *work {
            let repairs = self.table.repairs();
            if let Some(visit) = self.table.visit() {
                let step = self.visit_step(visit).max(1);
                let repairs = self.table.repairs().wrapping_sub(repairs);
                *work = work.saturating_sub(step + repairs);
                continue;
            }
            if let Some(entry) = self.ready.first() {
                if !self.arena.is_stale(entry) {
                    return Some(entry);
                }
                self.ready.pop();
                self.sweep.stale -= 1;
                *work -= 1;
                continue;
            }
            if let Some(gathered) = self.sort_gathered() {
                *work = work.saturating_sub(gathered);
                continue;
            }
            if self.ready.has_runs() {
                self.ready.refill();
                *work = work.saturating_sub(CHUNK);
                continue;
            }
            let Self { table, arena, sweep, geometry, wake, .. } = self;
            // A look at what is due after `until` may be in vain, because what another bucket of a
            // hashed wheel has may come before it. But if much is stale, it saves most looks.
            let (number, noted, until) = match geometry {
                Geometry::Hierarchical(_) => {
                    let (number, tick) = table.first()?;
                    (number, tick, u64::MAX)
                }
                Geometry::Hashed(level) => {
                    let there = level.bucket(*wake);
                    let (number, tick) = match table.noted(there) {
                        Some(tick) if tick == *wake => (there, tick),
                        _ => level.soonest(table)?,
                    };
                    table.prefetch(number);
                    (number, tick, if looks < FEW_LOOKS { tick } else { u64::MAX })
                }
            };
            looks += 1;
            let bucket = table.bucket_mut(number);
            let (tick, first) = bucket.earliest(noted, until, arena, &mut sweep.stale, work)?;
            if first.is_none() || tick != noted {
                table.close(number, tick);
            }
            *work = work.saturating_sub(1 + table.repairs().wrapping_sub(repairs));
            // Nothing is due before `noted`.
            if first.is_some() && (tick == noted || matches!(geometry, Geometry::Hierarchical(_))) {
                return first;
            }
        }
        None
    }

    /// Returns the tick at which to call [`expire`](Self::expire) next. Returns None if the wheel
    /// is empty. O(1).
    ///
    /// The tick is never after [`next_deadline`](Self::next_deadline). It is the next deadline
    /// itself, unless an earlier one was cancelled, moved or handed out. After `expire(now)` has
    /// returned None, the tick is after `now`. Calling `expire` at it makes progress: either
    /// something is due, or the next answer is later.
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

    /// Returns the value that `key` names, or None if the timeout is gone.
    #[inline]
    #[must_use]
    pub fn get(&self, key: Key) -> Option<&T> {
        self.arena.get(key)
    }

    /// Returns the timeout at a place.
    #[inline]
    pub(crate) fn at(&self, place: u32) -> Option<(Key, &T)> {
        self.arena.at(place)
    }

    /// Returns the value that `key` names, to change it in place, or None if the timeout is gone.
    #[inline]
    #[must_use]
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        self.arena.get_mut(key)
    }

    /// Returns the deadline of the timeout that `key` names, or None if the timeout is gone.
    #[inline]
    #[must_use]
    pub fn deadline(&self, key: Key) -> Option<u64> {
        self.arena.get(key)?;
        Some(self.arena.deadline_at(key.index()))
    }

    /// Returns the level and the bucket in which the timeout that `key` names waits, both counted
    /// from 0. Returns None if the timeout is gone, or if it is in no bucket, as
    /// [`WheelStats::sorted`] counts: because it is sorted to be handed out next, or because the
    /// wheel holds few timeouts, in one array.
    ///
    /// With [`iter`](Self::iter) it tells how the timeouts are spread over the buckets. While
    /// [`expire_bounded`](Self::expire_bounded) has taken a bucket apart only in part, the answer
    /// is that bucket for all of its timeouts.
    ///
    /// ```
    /// let mut wheel = tickwheel::Wheel::with_capacity(tickwheel::Mode::hierarchical(), 2_000);
    /// let near = wheel.schedule(3, "near");
    /// let far = wheel.schedule(64 + 3, "far");
    /// assert_eq!(wheel.bucket(near), Some((0, 3)));
    /// assert_eq!(wheel.bucket(far), Some((1, 1)));
    /// ```
    #[must_use]
    pub fn bucket(&self, key: Key) -> Option<(usize, usize)> {
        let deadline = self.deadline(key)?;
        if deadline <= self.cursor {
            return None;
        }
        let number = self.geometry.bucket(deadline, self.cursor);
        let level = self.geometry.level(number) as usize;
        Some((level, number as usize % self.mode.buckets()))
    }

    /// Returns the number of pending timeouts, including those that are due and not yet handed out.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.arena.len()
    }

    /// Returns whether there are no timeouts.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.arena.is_empty()
    }

    /// Returns the last tick that the wheel was driven to: the largest `now` that
    /// [`expire`](Self::expire) was called with, and 0 before the first call.
    #[inline]
    #[must_use]
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Returns the mode of the wheel.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Returns an iterator over all timeouts, as key, deadline and value, in no particular order.
    ///
    /// It looks at each timeout, and at a word for each 4096 places: as many as there were timeouts at
    /// once since the last [`shrink_to_fit`](Self::shrink_to_fit).
    ///
    /// Cost: O(n + p / 4096).
    ///
    /// ```
    /// let mut wheel = tickwheel::Wheel::new(tickwheel::Mode::hierarchical());
    /// let key = wheel.schedule(10, "value");
    /// assert_eq!(wheel.iter().collect::<Vec<_>>(), [(key, 10, &"value")]);
    /// ```
    pub fn iter(&self) -> Iter<'_, T> {
        Iter { wheel: self, index: 0, left: self.len() }
    }

    /// Returns an iterator over all timeouts, as key, deadline and value, to change the values. In
    /// no particular order.
    ///
    /// It looks at as many places as [`iter`](Self::iter).
    ///
    /// Cost: O(n + p / 4096).
    ///
    /// ```
    /// let mut wheel = tickwheel::Wheel::new(tickwheel::Mode::hierarchical());
    /// let key = wheel.schedule(10, 1);
    /// for (_, _, value) in wheel.iter_mut() {
    ///     *value += 1;
    /// }
    /// assert_eq!(wheel.get(key), Some(&2));
    /// ```
    pub fn iter_mut(&mut self) -> IterMut<'_, T> {
        let left = self.len();
        IterMut { live: self.arena.iter_mut(), left }
    }

    /// Drops each timeout for which `keep(key, deadline, &mut value)` returns false. The others
    /// keep their keys and their order. Looks at the timeouts in no particular order, and at as
    /// many places as [`iter`](Self::iter).
    ///
    /// If `keep` panics, the timeouts that it has rejected are gone, and all others stay, as with
    /// `Vec::retain`. If a rejected value panics in its `Drop`, that one is gone too. The wheel is
    /// consistent in either case, and the panic reaches the caller.
    ///
    /// Cost: O(n + p / 4096).
    ///
    /// ```
    /// let mut wheel = tickwheel::Wheel::new(tickwheel::Mode::hierarchical());
    /// wheel.schedule(10, "connection 1");
    /// let other = wheel.schedule(20, "connection 2");
    /// wheel.retain(|_, _, value| *value != "connection 1");
    /// assert_eq!((wheel.len(), wheel.deadline(other)), (1, Some(20)));
    /// ```
    pub fn retain(&mut self, mut keep: impl FnMut(Key, u64, &mut T) -> bool) {
        let mut index = 0;
        for _ in 0..self.len() {
            let Some((key, deadline, _)) = self.arena.next_live(index) else { break };
            index = key.index().saturating_add(1);
            let is_kept = self.get_mut(key).is_none_or(|value| keep(key, deadline, value));
            if !is_kept {
                drop(self.cancel(key));
            }
        }
    }

    /// Returns an iterator that takes out what is due at `now`, in order, as
    /// [`expire`](Self::expire) called until None.
    ///
    /// Each step of the iterator is a call of `expire`, and the first one drives the wheel to
    /// `now`. Dropping the iterator half-way leaves the rest in the wheel, still due: so leaving
    /// the loop by `break`, by `?` or by a panic loses nothing, and `take(n)` limits what one call
    /// hands out. Leaking it is the same. If the loop has to schedule or cancel, call `expire`
    /// instead.
    ///
    /// Cost: O(n).
    ///
    /// ```
    /// let mut wheel = tickwheel::Wheel::new(tickwheel::Mode::hierarchical());
    /// [10, 20, 30, 40].map(|deadline| wheel.schedule(deadline, deadline));
    /// let some: Vec<_> = wheel.extract_due(35).take(2).map(|expired| expired.value).collect();
    /// assert_eq!(some, [10, 20]);
    /// let rest: Vec<_> = wheel.extract_due(35).map(|expired| expired.value).collect();
    /// assert_eq!(rest, [30]);
    /// ```
    #[inline]
    pub fn extract_due(&mut self, now: u64) -> ExtractDue<'_, T> {
        ExtractDue { wheel: self, now }
    }

    /// Returns an iterator that takes all timeouts out, in no particular order.
    ///
    /// Dropping the iterator drops the timeouts that are left. Leaking it leaves them in the wheel;
    /// the next call that looks for the earliest may then pass one entry for each that was taken.
    /// [`Drain`] says what happens if a value panics in its `Drop`.
    ///
    /// Cost: O(n + p / 4096).
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

    /// Drops all timeouts. The wheel keeps its time, and its room for timeouts.
    ///
    /// If one value panics in its `Drop`, all others are dropped, the wheel is empty and
    /// consistent, and the panic reaches the caller. If a second value panics in the same call, the
    /// process aborts, as with the collections of std.
    ///
    /// Cost: O(n + p / 4096).
    pub fn clear(&mut self) {
        drop(self.drain());
    }

    /// Makes room for `additional` timeouts, so that storing them allocates only for the buckets
    /// that they fall in. If memory ends, it makes less room, or none.
    ///
    /// The call also writes the new room once, all of it, so that the system provides its pages now,
    /// and not while timeouts are scheduled.
    ///
    /// A wheel whose room is used up doubles it by itself, a little with each
    /// [`schedule`](Self::schedule), so that no call takes long. On Linux, from 32 MB on, the wheel
    /// leaves this to the system's allocator, which moves whole pages and copies nothing. Another
    /// allocator may copy.
    ///
    /// Cost: O(n + p + additional).
    pub fn reserve(&mut self, additional: usize) {
        // If there is no room now, `schedule` asks again when it needs it.
        let _ = self.try_reserve(additional);
    }

    pub(crate) fn try_reserve(&mut self, additional: usize) -> Result<(), TryReserveError> {
        self.arena.try_reserve(additional)
    }

    /// Gives back the memory that the pending timeouts do not need. Their keys stay valid. O(n).
    ///
    /// A key is a place in an array, so the wheel keeps the room before a live timeout, and uses it
    /// again. The call finishes what [`expire_bounded`](Self::expire_bounded) has begun.
    ///
    /// Cost: O(n + p).
    pub fn shrink_to_fit(&mut self) {
        while let Some(visit) = self.table.visit() {
            self.visit_step(visit);
        }
        let Self { arena, table, ready, .. } = self;
        table.shrink(|entry| !arena.is_stale(entry));
        ready.shrink(|entry| !arena.is_stale(entry));
        self.sweep = Sweep::default();
        self.arena.shrink_to_fit();
        if self.is_empty() {
            self.choices = Choices::default();
        }
    }

    /// Takes the memory out of the wheel, which must be empty. No old key names what comes next.
    /// O(1).
    ///
    /// The places of timeouts stay if the generations of one are half used up: then only
    /// [`shrink_to_fit`](Self::shrink_to_fit) gives them back, and [`end`](Self::end).
    #[cfg(feature = "std")]
    pub(crate) fn take_memory(&mut self) -> Memory<T> {
        let arena = self.arena.renew();
        let table = core::mem::replace(&mut self.table, Table::new(self.geometry.buckets()));
        self.ready = Ready::default();
        self.choices = Choices::default();
        Memory { arena: arena.unwrap_or(Arena::new()), table }
    }

    /// Takes all memory out of the wheel, which must be empty, and never holds a timeout again.
    /// O(1).
    #[cfg(feature = "std")]
    pub(crate) fn end(&mut self) -> Memory<T> {
        let arena = core::mem::replace(&mut self.arena, Arena::new());
        let table = core::mem::replace(&mut self.table, Table::new(self.geometry.buckets()));
        self.ready = Ready::default();
        self.choices = Choices::default();
        Memory { arena, table }
    }

    /// Makes as if one place had been used very often.
    #[cfg(all(test, feature = "std"))]
    pub(crate) fn use_up_generations(&mut self) {
        self.arena.use_up_generations();
    }

    /// Returns what the wheel holds and what it has done. Looks at every occupied bucket.
    ///
    /// Cost: O(n + p).
    #[must_use]
    pub fn stats(&self) -> WheelStats {
        let mut timeouts_per_level = vec![0; self.mode.levels()];
        for number in self.table.iter() {
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
            memory: self.arena.memory()
                + self.table.memory()
                + self.ready.memory()
                + self.choices.memory(),
        }
    }
}

/// The memory of a wheel that was emptied, from [`Wheel::take_memory`]. To drop it takes as long as
/// there were timeouts at once, so a caller that holds a lock releases it before.
#[cfg(feature = "std")]
pub(crate) struct Memory<T> {
    arena: Arena<T>,
    table: Table,
}

#[cfg(feature = "std")]
impl<T> Memory<T> {
    /// Frees a bounded part, and returns whether there is more.
    pub(crate) fn free_some(&mut self) -> bool {
        self.arena.free_some()
    }

    /// Returns the bytes that are allocated.
    pub(crate) fn allocated(&self) -> usize {
        self.arena.memory() + self.table.memory()
    }
}

#[cfg(feature = "std")]
impl<T> Drop for Memory<T> {
    fn drop(&mut self) {
        steps::count(self.arena.places());
    }
}

/// The default is a hierarchical wheel of 64 buckets per level.
impl<T> Default for Wheel<T> {
    fn default() -> Self {
        Self::new(Mode::default())
    }
}

/// Buckets so few that the rows which stale entries keep in the table take little memory.
const FEW_BUCKETS: u32 = 1 << 16;

/// Looks of a question after which it finds out of each bucket of a hashed wheel what is live there.
const FEW_LOOKS: u32 = 4;

/// The place and the stamp of no timeout.
const NOWHERE: (u32, u32) = (u32::MAX, 0);

/// Stamps after which a sweep looks at all entries, because stamps come round.
const STAMPS_PER_SWEEP: u32 = 1 << 30;

#[cfg(test)]
mod tests {
    use super::bucket::CHUNK;
    use super::sweep::{FEW_STALE, Place};
    use super::{Entry, MOST_ALONE, STAMPS_PER_SWEEP, Wheel};
    use crate::mode::Mode;
    use alloc::collections::BTreeSet;
    use alloc::vec::Vec;

    #[test]
    #[cfg(feature = "std")]
    fn past_half_of_the_generations_buckets_are_given_back_and_at_the_end_all() {
        for mode in modes() {
            let mut wheel = Wheel::new(mode);
            wheel.use_up_generations();
            let keys: Vec<_> = (0..10_000).map(|tick| wheel.schedule(tick * 7, tick)).collect();
            keys.iter().for_each(|&key| assert!(wheel.cancel(key).is_some()));
            drop(wheel.take_memory());
            assert_eq!((wheel.table.memory(), wheel.ready.memory()), (0, 0), "{mode}");
            assert_ne!(wheel.arena.memory(), 0, "{mode}: places stay, which know generations");
            wheel.check();
            let key = wheel.schedule(10, 10);
            assert!(!keys.contains(&key));
            assert_eq!(wheel.cancel(key), Some(10));
            drop(wheel.end());
            assert_eq!(wheel.stats().memory, 0, "{mode}");
        }
    }

    #[test]
    #[cfg(feature = "std")]
    fn the_memory_of_many_is_freed_in_bounded_parts() {
        const MANY: u64 = 200_000;
        for mode in modes() {
            let mut wheel = Wheel::new(mode);
            let keys: Vec<_> = (0..MANY).map(|tick| wheel.schedule(tick * 7, [tick; 3])).collect();
            keys.iter().for_each(|&key| assert!(wheel.cancel(key).is_some()));
            let mut memory = wheel.take_memory();
            let (mut parts, mut most, begin) = (0, 0, crate::steps::steps());
            let mut is_more = true;
            while is_more {
                let before = crate::steps::steps();
                is_more = memory.free_some();
                most = most.max(crate::steps::steps() - before);
                parts += 1;
            }
            let freed = crate::steps::steps() - begin;
            drop(memory);
            assert_eq!(crate::steps::steps() - begin, freed, "nothing is left");
            let is_counted = MANY <= freed || !cfg!(debug_assertions);
            assert!(is_counted && most <= 64 << 10, "{mode}: {freed}, {most} at once");
            assert!(10 < parts, "{mode}: {parts}");
        }
    }

    #[test]
    #[cfg(feature = "std")]
    fn what_was_taken_out_of_a_wheel_knows_its_memory_and_counts_when_it_goes() {
        const MANY: u64 = 5_000;
        for mode in modes() {
            let mut wheel = Wheel::new(mode);
            let keys: Vec<_> = (0..MANY).map(|tick| wheel.schedule(tick * 7, tick)).collect();
            keys.iter().for_each(|&key| assert!(wheel.cancel(key).is_some()));
            let before = wheel.stats().memory - wheel.ready.memory();
            let memory = wheel.take_memory();
            assert_eq!((memory.allocated(), wheel.stats().memory), (before, 0), "{mode}");
            assert!(memory.arena.memory() < before, "{mode}: the table has some");
            let before = crate::steps::steps();
            drop(memory);
            let steps = crate::steps::steps() - before;
            assert!(MANY <= steps || !cfg!(debug_assertions), "{mode}: {steps} steps");
        }
    }

    #[test]
    fn at_the_last_tick_one_more_comes_after_all_that_are_due() {
        const MANY: u64 = 3 * MOST_ALONE as u64;
        for mode in modes() {
            let mut wheel = Wheel::new(mode);
            (0..MANY).for_each(|value| _ = wheel.schedule(u64::MAX, value));
            assert_eq!(wheel.expire(u64::MAX).map(|expired| expired.value), Some(0));
            assert_eq!(wheel.next_deadline(), Some(u64::MAX));
            assert!(wheel.table.visit().is_none(), "all are ready");
            wheel.schedule(u64::MAX, MANY);
            wheel.check();
            let due = core::iter::from_fn(|| wheel.expire(u64::MAX));
            assert!(due.map(|expired| expired.value).eq(1..=MANY), "{mode}");
        }
    }

    #[test]
    fn gathered_ones_that_leave_no_room_in_front_go_into_buckets() {
        for (gathered, is_sorted) in [(1_024, true), (1_025, false), (MOST_ALONE as u64, false)] {
            let mut wheel = Wheel::new(Mode::default());
            let first = wheel.schedule(1, 1);
            (2..=gathered).for_each(|tick| _ = wheel.schedule(tick, tick));
            wheel.cancel(first);
            assert_eq!(wheel.next_deadline(), Some(2));
            assert_eq!(wheel.stats().sorted > 0, is_sorted, "{gathered}");
        }
    }

    #[test]
    fn a_call_that_sorts_for_the_next_deadline_has_done_its_work() {
        let mut wheel = Wheel::new(Mode::default());
        let keys: Vec<_> = (0..500).map(|value| wheel.schedule(1_000 - value, value)).collect();
        wheel.cancel(keys[499]);
        assert_eq!(wheel.next_deadline_bounded(&mut 1), None);
        assert_eq!(wheel.next_deadline_bounded(&mut 1), Some(502));
    }

    #[test]
    fn a_call_for_the_next_deadline_goes_on_with_a_visit_for_a_step() {
        const CROWD: u64 = 10_000;
        let mut wheel = Wheel::new(Mode::default());
        let first = wheel.schedule(1 << 30, 0);
        (0..CROWD).for_each(|value| _ = wheel.schedule((1 << 30) + value % 4_000, value));
        wheel.cancel(first);
        assert!(wheel.expire_bounded(1 << 30, &mut 1).is_none());
        assert!(wheel.table.visit().is_some(), "it is under way");
        let mut calls = 0;
        while wheel.table.visit().is_some() {
            assert_eq!(wheel.next_deadline_bounded(&mut 1), None);
            calls += 1;
        }
        assert!(CROWD as usize / (4 * CHUNK) <= calls, "{calls} calls");
    }

    /// One in each row of the table.
    #[test]
    fn what_a_jump_puts_right_is_work_of_who_asks_for_the_next_deadline() {
        const ROUND: u64 = 1 << 16;
        const ROWS: u64 = 1 << 10;
        let mut wheel =
            Wheel::with_capacity(Mode::hashed(1 << 16).expect("a mode"), 2 * MOST_ALONE);
        let first = wheel.schedule(ROUND, 0);
        (1..ROWS).for_each(|row| _ = wheel.schedule(ROUND + row * ROUND / ROWS, row));
        wheel.cancel(first);
        assert!(wheel.expire_bounded(3 * ROUND, &mut 1).is_none());
        assert!(wheel.table.visit().is_some(), "the jump is under way");
        let (mut work, before) = (1 << 20, wheel.table.repairs());
        assert_eq!(wheel.next_deadline_bounded(&mut work), Some(ROUND + ROUND / ROWS));
        let (work, repairs) = ((1 << 20) - work, wheel.table.repairs() - before);
        assert!(ROWS as usize <= repairs, "{repairs}");
        assert!(ROWS as usize + repairs - 2 <= work, "{work} units, {repairs} put right");
    }

    #[test]
    fn to_find_each_bucket_is_work_beside_the_look_at_it() {
        let mut wheel = Wheel::with_capacity(Mode::hashed(64).expect("a mode"), 2 * MOST_ALONE);
        let keys: Vec<_> = (0..30).map(|tick| wheel.schedule((1 << 20) + tick, tick)).collect();
        (0..10).for_each(|value| _ = wheel.schedule((1 << 40) + 50, value));
        keys.into_iter().for_each(|key| _ = wheel.cancel(key));
        let (mut work, before) = (1 << 20, wheel.table.repairs());
        assert_eq!(wheel.next_deadline_bounded(&mut work), Some((1 << 40) + 50));
        let (work, repairs) = ((1 << 20) - work, wheel.table.repairs() - before);
        assert!(2 * 30 + repairs <= work, "{work} units, {repairs} put right");
    }

    /// Three of four in each bucket are stale, and come first there.
    #[test]
    fn where_much_is_stale_a_bucket_is_not_found_anew_for_each() {
        const BUCKETS: u64 = 64;
        const EACH: u64 = 100;
        let mut wheel = Wheel::with_capacity(Mode::hashed(64).expect("a mode"), 10_000);
        let tick = |value: u64| (1 << 20) + value;
        let keys: Vec<_> =
            (0..EACH * BUCKETS).map(|value| wheel.schedule(tick(value), value)).collect();
        let stale = (EACH - EACH / 4) * BUCKETS;
        keys[..stale as usize].iter().for_each(|&key| _ = wheel.cancel(key));
        let before = crate::steps();
        assert_eq!(wheel.next_deadline(), Some(tick(stale)));
        let steps = crate::steps() - before;
        assert!(steps <= 5 * EACH * BUCKETS, "{steps} steps");
    }

    /// Another bucket has the next one, and what is behind the one that is gone is stale, too.
    #[test]
    fn the_first_looks_go_no_further_than_the_tick_that_is_noted() {
        const ROUND: u64 = 64;
        let mut wheel = Wheel::with_capacity(Mode::hashed(64).expect("a mode"), 2 * MOST_ALONE);
        let tick = |round: u64| (1 << 20) + round * ROUND;
        let keys: Vec<_> = (0..512).map(|round| wheel.schedule(tick(round), round)).collect();
        wheel.cancel(keys[0]);
        assert_eq!(wheel.next_deadline(), Some(tick(1)));
        wheel.schedule(tick(1) + 1, 0);
        (0..200).for_each(|value| _ = wheel.schedule((1 << 40) + 5, value));
        keys[1..400].iter().for_each(|&key| _ = wheel.cancel(key));
        let before = crate::steps();
        assert_eq!(wheel.next_deadline(), Some(tick(1) + 1));
        let steps = crate::steps() - before;
        assert!(steps <= 150, "{steps} steps");
    }

    fn modes() -> impl Iterator<Item = Mode> {
        let modes = ["hierarchical:2", "hierarchical:64", "hashed:1", "hashed:8", "hashed:512"];
        modes.into_iter().map(|mode| mode.parse().expect("a mode"))
    }

    #[test]
    fn what_was_taken_back_stays_out_when_stamps_come_round() {
        const FAR: u64 = (1 << 40) + 1_000;
        let mut wheel = Wheel::with_capacity(Mode::hierarchical(), 2 * MOST_ALONE);
        wheel.schedule(5, 0);
        (0..70).for_each(|value| _ = wheel.schedule(FAR, value));
        assert!(wheel.expire(5).is_some());
        // The 72nd.
        let first = wheel.schedule(FAR - 5, 0);
        assert_eq!(wheel.next_deadline(), Some(FAR - 5));
        assert!(wheel.cancel(first).is_some());
        wheel.check();
        wheel.arena.set_stamp(71);
        // In the same place.
        let last = wheel.schedule(1 << 50, 7);
        assert_eq!((wheel.deadline(last), wheel.next_deadline()), (Some(1 << 50), Some(FAR)));
        wheel.check();
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
        for (mode, room) in modes().flat_map(|mode| [(mode, 0), (mode, 2 * MOST_ALONE)]) {
            for turn in 1..=4_u32 {
                let mut wheel = Wheel::with_capacity(mode, room);
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
                let old = wheel.table.iter().flat_map(|number| wheel.table.bucket(number).iter());
                let old = old.chain(wheel.ready.iter()).filter(|&entry| is_old(entry));
                assert_eq!(old.count(), 0, "{mode}");
                wheel.check();
            }
        }
    }

    #[test]
    #[cfg(feature = "std")]
    fn few_that_go_into_buckets_are_work() {
        for mode in modes() {
            let mut wheel = Wheel::new(mode);
            (0..1_040).for_each(|value| _ = wheel.schedule(5 + value * 7919 % 2_000, value));
            let (mut work, before) = (1 << 20, crate::steps());
            assert!(wheel.expire_bounded(5, &mut work).is_some());
            let (work, steps) = ((1 << 20) - work as u64, crate::steps() - before);
            assert!(steps <= work + 100, "{mode}: {steps} steps, {work} units of work");
        }
    }

    /// No time is left, so the array is not one of few, but it is not sorted yet.
    #[test]
    fn at_the_last_tick_nothing_escapes_a_sweep_that_is_sorted_meanwhile() {
        let mut wheel = Wheel::new(Mode::default());
        let keys: Vec<_> =
            (0..1_000).map(|value| wheel.schedule(u64::MAX - value, value)).collect();
        assert!(wheel.expire_bounded(u64::MAX, &mut 0).is_none());
        keys[100..110].iter().for_each(|&key| _ = wheel.cancel(key));
        let stale: Vec<_> =
            wheel.ready.iter().filter(|&entry| wheel.arena.is_stale(entry)).collect();
        wheel.arena.set_stamp(STAMPS_PER_SWEEP - 1);
        wheel.schedule(0, 0);
        let mut others = keys[900..].iter();
        let mut sweep = |wheel: &mut Wheel<u64>, is_far: fn(Place) -> bool| {
            while wheel.sweep.place.is_some_and(|place| !is_far(place)) {
                wheel.cancel(*others.next().expect("there is one"));
            }
        };
        sweep(&mut wheel, |place| matches!(place, Place::Sorted(at) if at < 1_000));
        assert!(wheel.next_deadline().is_some());
        sweep(&mut wheel, |_| false);
        let is_there =
            |old: &&Entry| wheel.ready.iter().any(|entry| entry.is(old.index, old.stamp));
        assert_eq!(stale.iter().filter(is_there).count(), 0);
    }
}
