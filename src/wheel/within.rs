//! Within: chooses the tick of a range at which a timeout costs least.

use super::arena::Entry;
use super::{Key, Wheel};
use crate::names::ODD;
use crate::steps;
use alloc::boxed::Box;
use core::ops::RangeInclusive;

impl<T> Wheel<T> {
    /// Schedules `value` at a tick in `range` and returns its key. Any tick of the range will do,
    /// so the wheel takes one that costs no wake-up of its own if it finds one. O(levels).
    ///
    /// Cost: O(1), with at most 256 looks.
    ///
    /// The wheel takes the tick of a pending timeout, if it finds one at once: among 64 entries of
    /// each of the last two occupied buckets, or of what is sorted, and of few that are not. Otherwise it takes the multiple
    /// of the highest power of two in the range. It takes that one, too, if something is due there
    /// and each timeout that it finds is alone at its tick, because such a timeout may be
    /// cancelled. So timeouts whose ranges overlap meet at few ticks, whether or not they find each
    /// other. A hashed wheel finds only timeouts of the coming round.
    ///
    /// The wheel remembers the last few choices. A range with the same multiple gets the same tick,
    /// or the multiple itself if that tick is not in the range. So ranges that overlap meet whatever
    /// becomes of the timeouts that were found.
    ///
    /// [`deadline`](Self::deadline) tells the tick. If all of the range is at or before
    /// [`now`](Self::now), the timeout is due now. A range whose end is before its start counts as
    /// its start alone, because no timeout is early.
    ///
    /// ```
    /// let mut wheel = tickwheel::Wheel::new(tickwheel::Mode::hierarchical());
    /// let first = wheel.schedule_within(30_000..=31_000, "heartbeat 1");
    /// let second = wheel.schedule_within(30_321..=31_321, "heartbeat 2");
    /// assert_eq!(wheel.deadline(first), Some(30_720)); // 30 times 1024
    /// assert_eq!(wheel.deadline(second), Some(30_720));
    ///
    /// wheel.schedule(60_007, "request");
    /// let third = wheel.schedule_within(60_000..=61_000, "heartbeat 3");
    /// assert_eq!(wheel.deadline(third), Some(60_007));
    /// ```
    pub fn schedule_within(&mut self, range: RangeInclusive<u64>, value: T) -> Key {
        let tick = self.choose(&range);
        self.schedule(tick, value)
    }

    /// Moves the timeout that `key` names to a tick in `range`. Returns false if the timeout is
    /// gone. The key stays valid. O(levels).
    ///
    /// Cost: O(1), with at most 256 looks.
    ///
    /// A timeout whose deadline is in the range already stays where it is, in its place among
    /// equal deadlines: this costs a look. Otherwise the wheel chooses a tick as
    /// [`schedule_within`](Self::schedule_within) does.
    ///
    /// ```
    /// let mut wheel = tickwheel::Wheel::new(tickwheel::Mode::hierarchical());
    /// let idle = wheel.schedule(60_500, "connection");
    /// // A packet at 400: idle for 60 s, give or take a second.
    /// assert!(wheel.reschedule_within(idle, 60_400..=61_400));
    /// assert_eq!(wheel.deadline(idle), Some(60_500));
    /// // And one at 20,000.
    /// assert!(wheel.reschedule_within(idle, 80_000..=81_000));
    /// assert_eq!(wheel.deadline(idle), Some(80_896)); // 158 times 512
    /// ```
    pub fn reschedule_within(&mut self, key: Key, range: RangeInclusive<u64>) -> bool {
        match self.deadline(key) {
            None => false,
            Some(deadline) if range.contains(&deadline) => true,
            Some(_) => {
                let tick = self.choose(&range);
                self.reschedule(key, tick)
            }
        }
    }

    /// Returns the tick in `range` at which a timeout costs least.
    pub(crate) fn choose(&mut self, range: &RangeInclusive<u64>) -> u64 {
        let earliest = self.now.max(*range.start());
        let latest = earliest.max(*range.end());
        let coarsest = coarsest(earliest, latest);
        let tick = match self.choices.of(coarsest) {
            Some(tick) if (earliest..=latest).contains(&tick) => return tick,
            // What is due elsewhere may be cancelled, and then each range would cost a wake-up.
            Some(_) => coarsest,
            None => self.due_within(earliest, latest, coarsest).unwrap_or(coarsest),
        };
        self.choices.note(coarsest, tick);
        tick
    }

    /// Returns a tick from `earliest` to `latest` at which something is due. Of each bucket that it
    /// looks at it takes the first such tick. One that no other timeout there shares comes after one
    /// that others share, and after `coarsest` if something is due then. What is sorted comes last.
    fn due_within(&self, earliest: u64, latest: u64, coarsest: u64) -> Option<u64> {
        let Self { table, ready, arena, geometry, cursor, .. } = self;
        let is_due = |entry: &Entry| {
            (earliest..=latest).contains(&entry.deadline) && !arena.is_stale(*entry)
        };
        let sorted = || ready.until(latest).into_iter().flat_map(tail);
        if *cursor == u64::MAX {
            // All that is pending is ready.
            let mut due = sorted().filter(|entry| is_due(entry));
            let first = due.next()?.deadline;
            let is_shared = due.any(|other| other.deadline == first);
            let is_it = |entry: &Entry| entry.deadline == coarsest && is_due(entry);
            return Some(if !is_shared && sorted().any(is_it) { coarsest } else { first });
        }
        // Those that were put in first, because most that are cancelled soon are gone there.
        let entries =
            |number: u32| table.bucket(number).iter().take(ENTRIES).inspect(|_| steps::count(1));
        let last = (*cursor < latest).then(|| geometry.bucket(latest, *cursor));
        let mut bucket = last.and_then(|number| table.last(number));
        let mut lone = None;
        for _ in 0..LOOKS {
            let Some(number) = bucket else { break };
            let mut due = entries(number).filter(is_due);
            if let Some(first) = due.next() {
                if due.any(|other| other.deadline == first.deadline) {
                    return Some(first.deadline);
                }
                lone = lone.or(Some(first.deadline));
            }
            bucket = number.checked_sub(1).and_then(|below| table.last(below));
        }
        if lone.is_some() && *cursor < coarsest {
            let number = geometry.bucket(coarsest, *cursor);
            let is_there = table.last(number) == Some(number);
            let is_it = |entry: Entry| entry.deadline == coarsest && is_due(&entry);
            if is_there && entries(number).any(is_it) {
                return Some(coarsest);
            }
        }
        let last = || sorted().rev().find(|entry| is_due(entry));
        lone.or_else(|| last().map(|entry| entry.deadline))
    }
}

impl<T> Wheel<T> {
    /// Returns the last tick up to `latest` at which something is due, if the wheel finds one at
    /// once: among 64 entries of the last bucket that may have one, and of what is sorted.
    /// O(levels), but that a wheel of few of which nothing is sorted is sorted now, and not later.
    #[cfg(feature = "std")]
    pub(crate) fn last_until(&mut self, latest: u64) -> Option<u64> {
        if self.ready.gathered().is_some_and(|few| ENTRIES < few) {
            self.sort_gathered();
        }
        let Self { table, ready, arena, geometry, cursor, .. } = self;
        let sorted = ready.until(latest).into_iter().flat_map(tail).copied();
        let number = (*cursor < latest).then(|| geometry.bucket(latest, *cursor));
        let bucket = number.and_then(|number| table.last(number)).into_iter();
        let entries = bucket.flat_map(|number| table.bucket(number).iter().take(ENTRIES));
        sorted.chain(entries).fold(None, |last, entry: Entry| {
            let is_later = last < Some(entry.deadline) && entry.deadline <= latest;
            if is_later && !arena.is_stale(entry) { Some(entry.deadline) } else { last }
        })
    }
}

/// The last choices: which tick was taken for ranges of which coarsest tick. Most wheels make none,
/// so the first one allocates.
#[derive(Debug, Default)]
pub(super) struct Choices(Option<Box<[Option<Choice>; CHOICES]>>);

#[derive(Clone, Copy, Debug)]
struct Choice {
    coarsest: u64,
    tick: u64,
}

impl Choices {
    /// Returns the tick that was taken last for ranges of this coarsest tick.
    fn of(&self, coarsest: u64) -> Option<u64> {
        let choice = self.0.as_ref()?[place(coarsest)]?;
        (choice.coarsest == coarsest).then_some(choice.tick)
    }

    fn note(&mut self, coarsest: u64, tick: u64) {
        self.0.get_or_insert_default()[place(coarsest)] = Some(Choice { coarsest, tick });
    }

    /// Returns the bytes that are allocated.
    pub(super) fn memory(&self) -> usize {
        self.0.as_ref().map_or(0, |choices| size_of_val(&**choices))
    }
}

/// Returns the last entries, as many as are worth a look.
fn tail(entries: &[Entry]) -> &[Entry] {
    &entries[entries.len().saturating_sub(ENTRIES)..]
}

/// Returns the place of a coarsest tick. Ranges of one delay and one length need one at a time.
fn place(coarsest: u64) -> usize {
    (coarsest.wrapping_mul(ODD) >> (u64::BITS - CHOICES.ilog2())) as usize
}

/// Returns the tick from `earliest` to `latest` that is a multiple of the highest power of two.
fn coarsest(earliest: u64, latest: u64) -> u64 {
    let Some(before) = earliest.checked_sub(1) else { return 0 };
    // The last tick, cut off below the highest digit in which it differs from the tick before all.
    let digit = (before ^ latest).ilog2();
    latest >> digit << digit
}

/// The choices that a wheel remembers, a power of two.
const CHOICES: usize = 8;

/// The most buckets that a choice looks at: that of the last tick of the range, and the occupied
/// one before it. In a hierarchical wheel that one is in the range as a whole, or is the bucket of
/// the first tick.
const LOOKS: usize = 2;

/// The most entries that a choice looks at in each bucket, and among what is sorted, for a timeout
/// that was not cancelled.
const ENTRIES: usize = 64;

#[cfg(test)]
mod tests {
    use super::{Choices, coarsest};

    #[test]
    fn the_last_choices_are_remembered_for_ranges_of_several_delays() {
        let mut choices = Choices::default();
        let ranges = || (1..=4).map(|delay| (delay * 10_240, delay * 10_240 + 7));
        ranges().for_each(|(coarsest, tick)| choices.note(coarsest, tick));
        let known = ranges().filter(|&(coarsest, tick)| choices.of(coarsest) == Some(tick));
        assert!(3 <= known.count(), "not all have one place");
        assert_ne!(choices.memory(), 0);
    }

    #[test]
    #[cfg(feature = "std")]
    fn the_last_tick_at_which_something_is_due_is_found_and_one_that_was_cancelled_is_not() {
        // Few are in one array, sorted or not; many are in buckets, or some of them are sorted.
        for (others, now) in [(0, 0), (0, 90), (1_000, 0), (1_000, 90), (2_000, 0), (2_000, 90)] {
            let mut wheel = super::Wheel::new(crate::Mode::hierarchical());
            let keys = [103, 110, 100, 90, 300].map(|tick| wheel.schedule(tick, ()));
            (0..others).for_each(|other| _ = wheel.schedule(100_000 + other, ()));
            while wheel.expire(now).is_some() {}
            assert_eq!(wheel.last_until(115), Some(110), "{others}, {now}");
            assert_eq!(wheel.last_until(109), Some(103), "{others}, {now}");
            // Where the cursor is if those up to there are sorted.
            assert_eq!(wheel.last_until(127), Some(110), "{others}, {now}");
            wheel.cancel(keys[1]);
            assert_eq!(wheel.last_until(115), Some(103), "{others}, {now}");
            assert_eq!(wheel.last_until(80), None, "{others}, {now}");
        }
    }

    #[test]
    fn the_coarsest_tick_is_the_one_that_a_search_finds() {
        for earliest in 0..150_u64 {
            for latest in earliest..150 {
                let zeros = |tick: &u64| tick.trailing_zeros();
                let found = (earliest..=latest).max_by_key(zeros);
                assert_eq!(Some(coarsest(earliest, latest)), found, "{earliest}..={latest}");
            }
        }
        assert_eq!(coarsest(1, u64::MAX), 1 << 63);
        assert_eq!(coarsest(u64::MAX, u64::MAX), u64::MAX);
        assert_eq!(coarsest(u64::MAX - 1, u64::MAX), u64::MAX - 1);
    }

    #[test]
    fn the_coarsest_tick_may_be_the_present() {
        for mode in ["hierarchical:64", "hashed:64"] {
            let mut wheel = super::Wheel::with_capacity(mode.parse().expect("a mode"), 2_000);
            [1_000, 5_000].into_iter().for_each(|tick| _ = wheel.schedule(tick, ()));
            while wheel.expire(1_024).is_some() {}
            assert_eq!(wheel.cursor, 1_024, "{mode}");
            wheel.schedule(1_027, ());
            assert_eq!(wheel.choose(&(1_024..=1_030)), 1_027, "{mode}");
        }
    }

    /// As the worker of a timer asks, each time that it has fired what is due.
    #[test]
    #[cfg(feature = "std")]
    fn asked_in_turns_with_one_that_comes_amid_others_not_all_are_sorted() {
        for number in [100, 700] {
            let mut wheel = super::Wheel::new(crate::Mode::hierarchical());
            (0..number).for_each(|at| _ = wheel.schedule(100_000 + 100 * at, ()));
            let (turns, before) = (1_000, crate::steps());
            for turn in 0..turns {
                let first = wheel.next_wake().expect("there are some");
                assert!(wheel.expire(first).is_some());
                wheel.schedule(first + 100 * (1 + turn * 7919 % number), ());
                while wheel.expire(first).is_some() {}
                let next = wheel.next_wake().expect("there are some");
                let _ = wheel.last_until(next + 10);
            }
            let each = (crate::steps() - before) / turns;
            assert!(each <= 100, "{each} steps a turn, {number} pending");
        }
    }
}
