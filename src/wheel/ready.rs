//! Ready: holds the timeouts that come out next, sorted.

use super::arena::{Arena, Entry};
use super::bucket::{Bucket, CHUNK};
use super::digit::{Counts, Digit, MOST_COUNTED};
use super::runs::Runs;
use crate::steps;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::iter::repeat_n;
use core::ops::Range;

/// The timeouts whose deadlines are not after the cursor, in the order in which they come out.
///
/// The entries of `sorted` come first, then those of `runs`, then those of `due`. If there is any
/// entry, `sorted` has one, unless a visit is under way, or `refill` has passed many runs in vain.
///
/// A wheel of few timeouts has all of them in `sorted`, and nothing else. New ones are put behind,
/// and sorted only when one of them comes next: most that are cancelled are never sorted. So a
/// batch costs one sort, and a timeout that is scheduled among others no search for its place.
///
/// What a caller may do, and when:
///
/// | when | calls |
/// |---|---|
/// | there are no entries, and the wheel is one of few | `gather`, once; from then on `insert_alone`, `make_room`, `grow`, `take_back`, and, while `gathered` tells of some, `sort_gathered` |
/// | there are no entries, and the cursor comes to a bucket | `fill` or `sort`, once |
/// | there were none when a visit of one tick began | `push`, until the visit ends |
/// | there were none when a visit of many ticks began | `push_run`; then `close_runs` |
/// | at any time, for a timeout that is due at the cursor or before | `insert` |
/// | at any time | `first`, `pop`, `retain` and their like |
///
/// While `runs` has entries, the cursor is before `now`, so `insert` puts none at the cursor: it
/// would come before those of `runs`.
#[derive(Debug)]
pub(super) struct Ready {
    /// Sorted by deadline. These are never many, so no call has much to put back.
    sorted: Vec<Entry>,
    /// The number of entries at the front of `sorted` that were taken out. Their room serves
    /// timeouts that are scheduled before all others. `GATHERS` if none was, and none is sorted.
    head: usize,
    /// The entries before this place in `sorted` are sorted, and none behind is due before them.
    /// Only a wheel of few has some behind, in the order in which they were scheduled.
    end: usize,
    /// What comes after `sorted`. Boxed, because a wheel of few never has it.
    later: Option<Box<Later>>,
    /// The most timeouts that are sorted at once. It rises with each sorted bucket, and falls when
    /// the sorted ones go back into buckets.
    most_sorted: u32,
    /// The slots of the entries before this place in `sorted` have been read ahead.
    read: u32,
}

#[derive(Debug, Default)]
struct Later {
    /// The entries that a jump of a hashed wheel takes out of its buckets.
    runs: Runs,
    /// More entries at the cursor, or at the tick that the cursor comes to when the visit ends.
    due: Bucket,
}

impl Default for Ready {
    fn default() -> Self {
        let most_sorted = FEW_SORTED as u32;
        Self { sorted: Vec::new(), head: 0, end: 0, later: None, most_sorted, read: 0 }
    }
}

impl Ready {
    /// Returns the first entry.
    #[inline]
    pub(super) fn first(&self) -> Option<Entry> {
        self.sorted.get(self.head).copied()
    }

    /// Gathers entries from now on, without sorting them. There must be none.
    #[inline]
    pub(super) fn gather(&mut self) {
        debug_assert!(self.iter().next().is_none(), "there are no others");
        (self.head, self.end) = (GATHERS, 0);
    }

    /// Returns the number of entries if the first is not known.
    #[inline]
    pub(super) fn gathered(&self) -> Option<usize> {
        (self.head == GATHERS).then_some(self.sorted.len())
    }

    /// Returns the room that is left in front of so many entries when they are sorted. Without it,
    /// each one that comes before all others would have all sorted again.
    pub(super) fn front(entries: usize) -> usize {
        entries / MOST_MOVED
    }

    /// Sorts all entries, of which the first is not known. Equal deadlines keep their order.
    pub(super) fn sort_gathered(&mut self) {
        let len = self.sorted.len();
        steps::count(len);
        self.sorted.sort_by_key(|entry| entry.deadline);
        let front = Self::front(len).min(MOST_ALONE.saturating_sub(len));
        self.sorted.reserve_exact(front);
        self.sorted.splice(..0, repeat_n(Entry::default(), front));
        (self.head, self.end, self.read) = (front, self.sorted.len(), 0);
    }

    /// Sorts all entries, if some are not.
    pub(super) fn settle(&mut self) {
        if self.end < self.sorted.len() {
            self.forget_taken();
            self.head = GATHERS;
            self.sort_gathered();
        }
    }

    /// Takes out the last entry if it has this index and stamp. Returns whether it did.
    pub(super) fn take_back(&mut self, index: u32, stamp: u32) -> bool {
        let is_back = self.sorted.last().is_some_and(|last| last.is(index, stamp));
        if is_back {
            self.sorted.pop();
            self.end = self.end.min(self.sorted.len());
        }
        is_back
    }

    /// Returns whether these are the entries of a wheel of few, and there is no room for another.
    pub(super) fn is_full(&self) -> bool {
        self.room() <= self.sorted.len() && self.is_small()
    }

    /// Returns whether all entries are in one array, and are no more than a wheel of few may have.
    pub(super) fn is_small(&self) -> bool {
        self.sorted.len() <= MOST_ALONE && self.is_last()
    }

    /// Returns whether no entries come after `sorted`.
    fn is_last(&self) -> bool {
        self.later.as_ref().is_none_or(|later| later.runs.is_empty() && later.due.is_empty())
    }

    /// Returns whether there are runs.
    #[inline]
    pub(super) fn has_runs(&self) -> bool {
        self.later.as_ref().is_some_and(|later| !later.runs.is_empty())
    }

    #[inline]
    fn has_due(&self) -> bool {
        self.later.as_ref().is_some_and(|later| !later.due.is_empty())
    }

    #[inline]
    fn later_mut(&mut self) -> &mut Later {
        self.later.get_or_insert_default()
    }

    /// Returns the runs, if there ever were any.
    pub(super) fn runs_mut(&mut self) -> Option<&mut Runs> {
        self.later.as_mut().map(|later| &mut later.runs)
    }

    /// Appends an entry to the runs.
    pub(super) fn push_run(&mut self, entry: Entry) {
        self.later_mut().runs.push(entry);
    }

    /// Makes the first entries of the runs ready, as all of them were put in.
    pub(super) fn close_runs(&mut self) {
        self.later_mut().runs.close();
        self.refill();
    }

    /// Returns for how many entries of a wheel of few there is room.
    #[inline]
    fn room(&self) -> usize {
        self.sorted.capacity().min(MOST_ALONE)
    }

    /// Drops the `stale` entries, which `keep` rejects, and those that were taken out, if these are
    /// many. Returns the number of stale ones, if it did.
    pub(super) fn make_room(
        &mut self,
        stale: usize,
        keep: impl FnMut(Entry) -> bool,
    ) -> Option<usize> {
        let (start, len) = (self.start(), self.sorted.len());
        if len < SEVERAL || 3 * (start + stale) < len {
            return None;
        }
        let dropped = self.retain(start..len, keep);
        self.forget_taken();
        Some(dropped)
    }

    /// Makes the array larger, unless it has as much room as a wheel of few may use. Returns
    /// whether it did.
    pub(super) fn grow(&mut self) -> bool {
        let room = self.room();
        // All from a third on, so that it does not grow once more just before it is full.
        let additional =
            if room < MOST_ALONE / 3 { room.max(LEAST_ROOM) } else { MOST_ALONE - room };
        self.sorted.reserve_exact(additional);
        0 < additional
    }

    /// Takes out the first entry, and returns the entry that is the first then.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<Entry> {
        self.head += 1;
        if self.end <= self.head {
            self.refill();
        }
        self.first()
    }

    /// Appends an entry at the cursor.
    #[inline]
    pub(super) fn push(&mut self, entry: Entry) {
        debug_assert!(!self.has_runs(), "those at the cursor come last");
        if !self.has_due() && self.sorted.len() < CHUNK {
            self.reclaim();
            let is_sorted = self.head != GATHERS && self.end == self.sorted.len();
            self.end += usize::from(is_sorted);
            self.sorted.push(entry);
        } else {
            self.later_mut().due.push(entry);
        }
    }

    /// Takes over a bucket of entries at the cursor. There must be no others.
    pub(super) fn fill(&mut self, bucket: Bucket) {
        debug_assert!(self.first().is_none() && !self.has_due(), "there are no others");
        self.later_mut().due = bucket;
        self.refill();
    }

    /// Reads the timeouts that come next ahead, if it is their turn. The processor then waits for
    /// them together and not for one after the other.
    #[inline]
    pub(super) fn prefetch<T>(&mut self, arena: &Arena<T>) {
        if self.is_to_read() {
            self.read_ahead(arena);
        }
    }

    #[inline]
    fn is_to_read(&self) -> bool {
        self.read as usize <= self.head && NOT_READ < self.sorted.len()
    }

    #[inline(never)]
    fn read_ahead<T>(&mut self, arena: &Arena<T>) {
        let end = self.sorted.len().min(self.head + PREFETCHED);
        // The slots of fewer are in the processor's cache.
        if PREFETCHED < arena.places() {
            arena.prefetch(&self.sorted[self.head..end]);
        }
        self.read = end as u32;
    }

    /// Fills `sorted` with the next chunk, if all of it was taken out. If a sweep has emptied many
    /// runs, the call passes some of them and finds none: then call it again.
    #[inline(never)]
    pub(super) fn refill(&mut self) {
        if self.head < self.end || self.head == GATHERS {
            return;
        }
        if self.end < self.sorted.len() {
            self.sorted.drain(..self.head);
            (self.head, self.end) = (GATHERS, 0);
            return;
        }
        (self.head, self.read) = (0, 0);
        self.sorted.clear();
        let mut passed = 0;
        if let Some(Later { runs, due }) = self.later.as_deref_mut() {
            while !runs.is_empty() && self.sorted.len() < CHUNK && passed < MOST_PASSED {
                let popped = runs.pop().flatten();
                passed += usize::from(popped.is_none());
                self.sorted.extend(popped);
            }
            if self.sorted.is_empty() && runs.is_empty() {
                self.sorted.extend_from_slice(&due.pop_chunk());
                steps::count(self.sorted.len());
            }
        }
        if self.sorted.is_empty() && !self.has_runs() && CHUNK < self.sorted.capacity() {
            self.sorted = Vec::new();
        }
        self.end = self.sorted.len();
    }

    /// Returns whether to sort a bucket of so many `entries` on `level` instead of demoting it.
    /// Levels have 2^`bits` buckets.
    #[inline]
    pub(super) fn sorts(&self, entries: usize, level: u32, bits: u32) -> bool {
        let is_fine = level == 1 && 1 << bits <= MOST_COUNTED;
        entries <= if is_fine { MOST_SORTED_FINE } else { self.most_sorted as usize }
    }

    /// Takes over the entries of a bucket and sorts them by deadline. Equal deadlines keep their
    /// order. All of `sorted` must have been taken out. The deadlines may differ only in their
    /// lowest `digits` digits of `bits` bits.
    pub(super) fn sort(&mut self, mut bucket: Bucket, bits: u32, digits: u32) {
        debug_assert!(self.first().is_none() && !self.has_due(), "all was taken out");
        self.most_sorted = (MOST_SORTED as u32).min(self.most_sorted + self.most_sorted / 64);
        self.read = 0;
        let len = bucket.len();
        self.end = self.sorted.len() + len;
        steps::count(len);
        // Many short digits would be many looks at each entry.
        let (all, bits) = (bits * digits, bits.max(FEWEST_BITS));
        let digits = all.div_ceil(bits);
        // Sorting by a digit looks at all its counters, so it is worth it only for enough entries.
        let most = 4 * len / digits as usize;
        let entries = &mut self.sorted;
        let Some(first) = Digit::new(0, bits).filter(|_| 1 << bits <= most) else {
            while !bucket.is_empty() {
                entries.extend_from_slice(&bucket.pop_chunk());
            }
            entries.sort_by_key(|entry| entry.deadline);
            return;
        };
        // Sorts by each digit in turn, the lowest first.
        let mut counts = Counts::new(first);
        (0..bucket.chunks()).for_each(|at| counts.add(bucket.chunk(at)));
        counts.begin();
        entries.resize(len, Entry::default());
        while !bucket.is_empty() {
            counts.put(&bucket.pop_chunk(), entries);
        }
        for digit in (1..digits).filter_map(|digit| Digit::new(digit * bits, bits)) {
            let unsorted = entries.clone();
            let mut counts = Counts::new(digit);
            counts.add(&unsorted);
            counts.begin();
            counts.put(&unsorted, entries);
        }
    }

    /// Puts an entry in its place, behind those of equal deadlines, and returns true. The deadline
    /// must not be after `cursor`. Returns false if too many entries would have to move, or if many
    /// wait that are not due at `now`.
    pub(super) fn insert(&mut self, entry: Entry, cursor: u64, now: u64) -> bool {
        if entry.deadline == cursor {
            let has_room = cursor <= now || !self.has_due();
            if has_room {
                self.push(entry);
            }
            return has_room;
        }
        let sorted = &self.sorted[self.head..];
        let ahead = sorted.partition_point(|at| at.deadline <= entry.deadline);
        let behind = sorted.len() - ahead;
        steps::count(1);
        if 0 < self.head && ahead <= MOST_MOVED.min(behind) {
            self.head -= 1;
            self.sorted.copy_within(self.head + 1..self.head + 1 + ahead, self.head);
            self.sorted[self.head + ahead] = entry;
            return true;
        }
        let is_full = now < cursor && MOST_INSERTED <= sorted.len();
        if is_full || MOST_MOVED < behind {
            return false;
        }
        self.reclaim();
        self.sorted.insert(self.head + ahead, entry);
        self.end = self.sorted.len();
        true
    }

    /// Puts an entry of a wheel of few in, and returns true. Returns false if there is no room.
    #[inline(always)]
    pub(super) fn insert_alone(&mut self, entry: Entry) -> bool {
        let len = self.sorted.len();
        if self.room() <= len {
            return false;
        }
        steps::count(1);
        if self.head == GATHERS {
            self.sorted.push(entry);
            return true;
        }
        let sorted = &self.sorted[self.head..self.end];
        let is_last = sorted.last().is_none_or(|last| last.deadline <= entry.deadline);
        if is_last {
            self.end += usize::from(self.end == len);
            self.sorted.push(entry);
            return true;
        }
        let ahead = sorted.partition_point(|at| at.deadline <= entry.deadline);
        if 0 < self.head && ahead <= MOST_MOVED {
            self.head -= 1;
            self.sorted.copy_within(self.head + 1..self.head + 1 + ahead, self.head);
            self.sorted[self.head + ahead] = entry;
            return true;
        }
        self.sorted.push(entry);
        self.end = self.head + ahead;
        // Nothing is sorted any more if the new one comes first.
        self.refill();
        true
    }

    /// Uses the room of entries that were taken out again, if there is no other room, and these are
    /// at least half of all.
    #[inline]
    fn reclaim(&mut self) {
        let (len, start) = (self.sorted.len(), self.start());
        if len == self.sorted.capacity() && 0 < start && len <= 2 * start {
            self.forget_taken();
        }
    }

    /// Drops the entries at the front that were taken out.
    fn forget_taken(&mut self) {
        if self.head != GATHERS {
            steps::count(self.sorted.len() - self.head);
            self.sorted.drain(..self.head);
            self.end -= core::mem::take(&mut self.head);
            self.read = 0;
        }
    }

    /// Returns the sorted entries whose deadlines are not after `tick`, and all that are not sorted.
    pub(super) fn until(&self, tick: u64) -> [&[Entry]; 2] {
        let end = if self.head == GATHERS { 0 } else { self.end };
        let (sorted, behind) = self.sorted.split_at(end);
        let sorted = sorted.get(self.head..).unwrap_or_default();
        [&sorted[..sorted.partition_point(|entry| entry.deadline <= tick)], behind]
    }

    /// Returns the range of the entries of `sorted` that were not taken out.
    pub(super) fn sorted(&self) -> Range<usize> {
        self.start()..self.sorted.len()
    }

    fn start(&self) -> usize {
        if self.head == GATHERS { 0 } else { self.head }
    }

    /// Returns all of `sorted`, those that were taken out included.
    #[cfg(test)]
    pub(super) fn entries(&self) -> &[Entry] {
        &self.sorted
    }

    /// Returns the entries at the cursor that come after `sorted`, if there ever were any.
    pub(super) fn due_mut(&mut self) -> Option<&mut Bucket> {
        self.later.as_mut().map(|later| &mut later.due)
    }

    /// Drops the entries of `sorted` within `range` that `keep` rejects, and returns their number.
    pub(super) fn retain(
        &mut self,
        range: Range<usize>,
        mut keep: impl FnMut(Entry) -> bool,
    ) -> usize {
        steps::count(range.len());
        let end = self.end.clamp(range.start, range.end);
        let entries = &mut self.sorted[..range.end];
        let mut retain = |part: Range<usize>, mut kept: usize| {
            for at in part {
                let entry = entries[at];
                entries[kept] = entry;
                kept += usize::from(keep(entry));
            }
            kept
        };
        let sorted = retain(range.start..end, range.start);
        let kept = retain(end..range.end, sorted);
        self.end -= end - sorted;
        self.sorted.drain(kept..range.end);
        self.refill();
        range.end - kept
    }

    /// Returns all entries but the first `kept`, and keeps these, which are sorted.
    pub(super) fn split_off(&mut self, kept: usize) -> Self {
        let mut all = core::mem::take(self);
        if 0 < kept {
            let later = all.sorted.split_off(all.head + kept);
            self.sorted = core::mem::replace(&mut all.sorted, later);
            (self.head, self.end) = (core::mem::take(&mut all.head), self.sorted.len());
            self.read = all.read.min(self.end as u32);
            (all.end, all.read) = (all.sorted.len(), 0);
        }
        all
    }

    /// Drops all entries, and gives back their memory.
    pub(super) fn clear(&mut self) {
        let is_unused = |later: &Later| later.memory() == 0 && later.due.is_empty();
        let is_alone = self.later.as_deref().is_none_or(is_unused);
        // A wheel of few keeps its array.
        if is_alone && self.sorted.capacity() <= MOST_ALONE {
            self.sorted.clear();
            (self.head, self.end) = (0, 0);
            return;
        }
        if let Some(later) = &mut self.later {
            **later = Later::default();
        }
        let later = self.later.take();
        *self = Self { later, most_sorted: self.most_sorted, ..Self::default() };
    }

    /// Drops the entries that `keep` rejects, and gives back the memory that the others do not
    /// need.
    pub(super) fn shrink(&mut self, mut keep: impl FnMut(Entry) -> bool) {
        if let Some(Later { runs, due }) = self.later.as_deref_mut() {
            for run in 0..=runs.last() {
                runs.retain(run, &mut keep);
            }
            due.shrink(&mut keep);
        }
        self.retain(self.sorted(), keep);
        while self.first().is_none() && self.has_runs() {
            self.refill();
        }
        if self.is_last() {
            self.later = None;
        }
        self.forget_taken();
        self.sorted.shrink_to_fit();
    }

    /// Returns the entries: those of `sorted` and `due` in order, those of `runs` in no particular
    /// order.
    pub(super) fn iter(&self) -> impl Iterator<Item = Entry> {
        let later = self.later.iter().flat_map(|later| later.runs.iter().chain(later.due.iter()));
        self.sorted[self.start()..].iter().copied().chain(later)
    }

    /// Returns the bytes that are allocated.
    pub(super) fn memory(&self) -> usize {
        let later = self.later.as_ref().map_or(0, |later| size_of::<Later>() + later.memory());
        self.sorted.capacity() * size_of::<Entry>() + later
    }

    /// Panics unless the entries are in order, none is after `end`, and the first is at hand,
    /// unless a visit is under way or runs are being passed.
    pub(super) fn check<T>(&self, arena: &Arena<T>, end: u64, is_visited: bool) {
        let gathers = self.head == GATHERS;
        assert!(gathers || self.head <= self.sorted.len());
        let is_at_hand = gathers || self.first().is_some() || self.iter().next().is_none();
        let is_passing = self.has_runs();
        assert!(is_at_hand || is_visited || is_passing, "the first entry is at hand");
        assert!(gathers || self.head <= self.end && self.end <= self.sorted.len());
        let (sorted, behind) = self.sorted.split_at(if gathers { 0 } else { self.end });
        let sorted = sorted.get(self.start()..).unwrap_or_default();
        assert!(sorted.is_sorted_by_key(|entry| entry.deadline), "it is sorted");
        let last = sorted.last().map_or(0, |last| last.deadline);
        assert!(behind.iter().all(|entry| last <= entry.deadline), "what is behind comes later");
        assert!(behind.is_empty() || end == u64::MAX, "only a wheel of few has some behind");
        assert!(self.iter().all(|entry| entry.deadline <= end), "none is after the cursor");
        let Some(Later { runs, due: bucket }) = self.later.as_deref() else { return };
        let due = bucket.iter().next().map(|entry| entry.deadline);
        assert!(bucket.iter().all(|entry| Some(entry.deadline) == due), "all are at the cursor");
        let last = sorted.iter().copied().chain(runs.iter()).map(|entry| entry.deadline).max();
        assert!(due.is_none() || last <= due, "those at the cursor come last");
        runs.check();
        bucket.check(arena);
    }
}

impl Later {
    /// Returns the bytes that are allocated, its own excluded.
    fn memory(&self) -> usize {
        self.runs.memory() + self.due.memory()
    }
}

/// The place of the first entry where nothing is sorted: there is none.
const GATHERS: usize = usize::MAX;
/// The most entries of a wheel of few, stale ones and those that were taken out included. When they
/// have no room any more, one call puts them all into buckets.
pub(super) const MOST_ALONE: usize = 1056;
/// Entries for which there is room at first.
const LEAST_ROOM: usize = 4;
/// So few entries that it is cheaper to make the array larger than to look for stale ones.
const SEVERAL: usize = 32;
/// The most entries that are moved to put another one in its place.
const MOST_MOVED: usize = 32;
/// So many sorted entries that no others are inserted, if some are not due: these are put back.
const MOST_INSERTED: usize = 2 * CHUNK;
/// The most runs that are passed at once because they have lost what came next.
const MOST_PASSED: usize = 16;
/// Timeouts that are read ahead at once.
const PREFETCHED: usize = 256;
/// The bits of the shortest digit to sort by.
const FEWEST_BITS: u32 = 6;
/// So few that to read them ahead costs more than it saves.
const NOT_READ: usize = 8;
/// Timeouts of a bucket that are few enough to be sorted instead of demoted, even if others are
/// scheduled among them.
const FEW_SORTED: usize = 128;
/// The same, if those that were sorted before did not go back into buckets.
const MOST_SORTED: usize = 4096;
/// The same for a bucket of level 1, which has few ticks to tell apart.
const MOST_SORTED_FINE: usize = 8192;

#[cfg(test)]
mod tests {
    use super::{
        Arena, CHUNK, Entry, FEW_SORTED, MOST_ALONE, MOST_INSERTED, MOST_MOVED, MOST_PASSED,
        MOST_SORTED, PREFETCHED, Ready,
    };
    use crate::steps::steps;
    use crate::wheel::bucket::Bucket;
    use crate::wheel::runs::RUN;
    use alloc::vec::Vec;

    /// Numbered in the order in which they are put in, so that equal deadlines can be told apart.
    fn entry(index: usize, deadline: u64) -> Entry {
        Entry { index: index as u32, stamp: 0, deadline }
    }

    fn sorted(deadlines: impl IntoIterator<Item = u64>, bits: u32, digits: u32) -> Ready {
        let mut bucket = Bucket::default();
        for (index, deadline) in deadlines.into_iter().enumerate() {
            bucket.push(entry(index, deadline));
        }
        let mut ready = Ready::default();
        ready.sort(bucket, bits, digits);
        ready
    }

    fn take(ready: &mut Ready) -> Vec<(u64, u32)> {
        let mut taken = Vec::new();
        while let Some(entry) = ready.first() {
            taken.push((entry.deadline, entry.index));
            ready.pop();
        }
        taken
    }

    #[test]
    fn the_room_of_a_few_that_were_taken_out_is_not_worth_moving_all_others() {
        let mut ready = Ready::default();
        let push = |ready: &mut Ready, number| ready.push(entry(number, 5));
        (0..CHUNK / 2).for_each(|number| push(&mut ready, number));
        let before = steps();
        for number in 0..CHUNK / 4 {
            ready.pop();
            push(&mut ready, CHUNK + number);
        }
        let moved = steps() - before;
        assert!(moved <= 2 * CHUNK as u64, "{moved} are moved");
    }

    #[test]
    fn a_bucket_is_sorted_and_equal_deadlines_keep_their_order() {
        for (bits, digits) in [(1, 3), (6, 1), (6, 2), (6, 5), (8, 1), (12, 2), (30, 2)] {
            for len in [1, 2, 40, 300, 5000] {
                let span = 1_u64 << (bits * digits).min(62);
                let deadline =
                    |index: u64| (7 << 62) + index.wrapping_mul(0x9e37_79b9_7f4a_7c15) % span;
                let mut expected: Vec<_> =
                    (0..len).map(|index| (deadline(index), index as u32)).collect();
                expected.sort();
                let mut ready = sorted((0..len).map(deadline), bits, digits);
                ready.check(&Arena::<()>::new(), u64::MAX, false);
                assert_eq!(take(&mut ready), expected);
                assert_eq!(ready.memory() / size_of::<Entry>() / (CHUNK + 1), 0);
            }
        }
    }

    #[test]
    fn inserted_it_comes_behind_its_equals_and_few_are_moved() {
        for taken in [0, 1, 20, 60] {
            let mut ready = sorted((0..64).map(|at| at / 2), 6, 1);
            for _ in 0..taken {
                ready.pop();
            }
            let mut expected: Vec<_> = (taken..64).map(|at| (at / 2, at as u32)).collect();
            for index in 64..200 {
                let deadline = index * 7 % 32;
                let before = ready.sorted();
                let ahead = expected.partition_point(|&(at, _)| at <= deadline);
                let behind = expected.len() - ahead;
                let is_in = ready.insert(entry(index as usize, deadline), 50, 0);
                let is_easy = behind <= MOST_MOVED || 0 < before.start && ahead <= MOST_MOVED;
                assert_eq!(is_in, is_easy, "{ahead} ahead, {behind} behind");
                if is_in {
                    expected.insert(ahead, (deadline, index as u32));
                    assert_eq!(ready.sorted().len(), before.len() + 1);
                }
                ready.check(&Arena::<()>::new(), 50, false);
            }
            assert_eq!(take(&mut ready), expected);
        }
    }

    #[test]
    fn while_none_is_inserted_larger_buckets_are_sorted() {
        let mut ready = Ready::default();
        let most = |ready: &Ready| (0..).take_while(|&len| ready.sorts(len, 2, 6)).count() - 1;
        assert_eq!(most(&ready), FEW_SORTED);
        (0..10).for_each(|_| ready.sort(Bucket::default(), 6, 2));
        assert!((FEW_SORTED + 10..2 * FEW_SORTED).contains(&most(&ready)), "step by step");
        for _ in 0..300 {
            ready.sort(Bucket::default(), 6, 2);
        }
        assert_eq!(most(&ready), MOST_SORTED);
    }

    /// One comes and one goes, for ever, before one that stays: so the array is never empty.
    #[test]
    fn room_before_the_first_is_used_again() {
        for ahead in [1, 5, MOST_MOVED + 5] {
            let mut ready = sorted([1 << 40], 6, 9);
            let before = steps();
            for index in 0..100_000_u64 {
                assert!(ready.insert(entry(0, index), 1 << 41, 0));
                if ahead as u64 <= index {
                    assert_eq!(
                        ready.first().map(|entry| entry.deadline),
                        Some(index - ahead as u64)
                    );
                    ready.pop();
                }
            }
            assert!(ready.memory() <= 8 * (ahead + 2) * size_of::<Entry>(), "{}", ready.memory());
            assert!(steps() - before <= 4 * 100_000, "not all are moved for each");
        }
    }

    #[test]
    fn at_the_cursor_any_number_that_is_due_comes_in_order_and_few_that_are_not() {
        for now in [99, 100] {
            let mut ready = sorted([90, 95], 6, 2);
            let most =
                (0..5 * CHUNK).take_while(|&index| ready.insert(entry(index, 100), 100, now));
            let most = most.count();
            ready.check(&Arena::<()>::new(), 100, false);
            assert_eq!(most == 5 * CHUNK, now == 100, "{most} with {now}");
            assert!(now == 100 || (CHUNK / 2..=MOST_INSERTED).contains(&most));
            let expected = (0..most as u32).map(|index| (100, index));
            assert!(take(&mut ready).into_iter().skip(2).eq(expected));
        }
    }

    /// Though what is sorted is less than a chunk.
    #[test]
    fn at_the_cursor_it_comes_behind_all_that_wait_there() {
        let mut bucket = Bucket::default();
        for index in 0..3 * CHUNK {
            bucket.push(entry(index, 100));
        }
        bucket.retain_chunk(0, |entry| entry.index == 0);
        let mut ready = Ready::default();
        ready.fill(bucket);
        assert!(ready.insert(entry(3 * CHUNK, 100), 100, 100));
        let expected = [0].into_iter().chain(CHUNK as u32..=3 * CHUNK as u32);
        assert!(take(&mut ready).into_iter().eq(expected.map(|index| (100, index))));
    }

    /// A wheel of few that has these.
    fn few(deadlines: impl IntoIterator<Item = u64>) -> Ready {
        let mut ready = Ready::default();
        ready.gather();
        for (index, deadline) in deadlines.into_iter().enumerate() {
            assert!(ready.insert_alone(entry(index, deadline)) || ready.grow());
            if ready.sorted().len() == index {
                assert!(ready.insert_alone(entry(index, deadline)), "there is room then");
            }
        }
        ready
    }

    #[test]
    fn few_are_not_sorted_until_one_comes_next_and_then_once() {
        let mut ready = few([10, 30, 20]);
        assert!(ready.first().is_none());
        assert_eq!(ready.gathered(), Some(3));
        ready.sort_gathered();
        assert_eq!(ready.gathered(), None);
        let before = steps();
        ready.settle();
        assert_eq!(steps(), before, "they are sorted");
        assert!(ready.insert_alone(entry(3, 15)));
        ready.settle();
        assert_eq!(take(&mut ready), [(10, 0), (15, 3), (20, 2), (30, 1)]);
    }

    #[test]
    fn one_of_few_is_put_in_its_place_if_that_moves_few_to_room_that_is_there() {
        let unsorted = |ready: &Ready| ready.until(0)[1].len();
        let less = MOST_MOVED - 1;
        let cases = [(less, 0, 0), (less, 0, 2), (less, 1, 0), (100, 0, 0), (100, 1, MOST_MOVED)];
        for (len, taken, ahead) in cases.into_iter().chain([(100, 1, MOST_MOVED + 1)]) {
            let mut ready = few((1..=len as u64).map(|at| 10 * at));
            assert_eq!(unsorted(&ready), len, "none is sorted");
            ready.sort_gathered();
            (0..taken).for_each(|_| _ = ready.pop());
            assert_eq!(ready.until(40)[0].len(), 4 - taken);
            let deadline = 10 * (taken + ahead) as u64 + 5;
            assert!(ready.insert_alone(entry(len, deadline)));
            ready.check(&Arena::<()>::new(), u64::MAX, false);
            let is_easy = (less < len || 0 < taken) && ahead <= MOST_MOVED;
            assert_eq!(unsorted(&ready) == 0, is_easy, "{taken} of {len} taken, {ahead} ahead");
            ready.settle();
            assert_eq!(unsorted(&ready), 0);
            let expected = (taken as u64 + 1..=len as u64).map(|at| 10 * at).chain([deadline]);
            let mut expected: Vec<_> = expected.collect();
            expected.sort_unstable();
            assert!(take(&mut ready).iter().map(|taken| taken.0).eq(expected));
        }
    }

    #[test]
    fn a_small_bucket_is_read_ahead_too() {
        for (len, expected) in [(1, 0), (8, 0), (9, 1), (FEW_SORTED, 1), (2 * PREFETCHED, 2)] {
            let mut ready = sorted(0..len as u64, 6, 2);
            let reads = (0..len).filter(|_| {
                let is_read = ready.is_to_read();
                ready.prefetch(&Arena::<()>::new());
                ready.pop();
                is_read
            });
            assert_eq!(reads.count(), expected, "{len} entries");
        }
    }

    #[test]
    fn no_entry_is_read_ahead_twice_where_one_is_put_before_it_and_taken_in_turns() {
        let mut ready = few((1..=300).map(|at| 10 * at));
        ready.sort_gathered();
        let front = ready.sorted().start;
        (0..front).for_each(|_| assert!(ready.insert_alone(entry(300, 5))));
        assert!(ready.is_to_read());
        ready.prefetch(&Arena::<()>::new());
        for _ in 0..10 {
            ready.pop();
            assert!(ready.insert_alone(entry(300, 5)));
            assert!(ready.sorted().start == 0 && !ready.is_to_read());
        }
        (0..PREFETCHED).for_each(|_| _ = ready.pop());
        assert!(ready.is_to_read());
    }

    #[test]
    fn at_the_last_tick_one_comes_behind_those_of_few_that_are_not_sorted() {
        let mut ready = few([10, 12, 20, 30, 25]);
        ready.sort_gathered();
        assert!(ready.insert_alone(entry(5, 15)));
        assert!(ready.insert(entry(6, u64::MAX), u64::MAX, u64::MAX));
        ready.check(&Arena::<()>::new(), u64::MAX, false);
        ready.settle();
        let expected = [10, 12, 15, 20, 25, 30, u64::MAX];
        assert!(take(&mut ready).iter().map(|taken| taken.0).eq(expected));
    }

    #[test]
    fn among_many_that_are_not_due_none_is_inserted() {
        for (now, is_inserted) in [(0, false), (1 << 20, true)] {
            let mut ready = sorted(0..MOST_INSERTED as u64, 6, 2);
            let last = entry(0, MOST_INSERTED as u64 - 2);
            assert_eq!(ready.insert(last, 1 << 20, now), is_inserted);
            let mut ready = sorted(0..MOST_INSERTED as u64 - 1, 6, 2);
            assert!(ready.insert(last, 1 << 20, now));
        }
    }

    #[test]
    fn cleared_it_keeps_the_array_of_few_and_no_other() {
        let mut ready = few(0..10);
        ready.clear();
        assert_ne!(ready.memory(), 0);
        let mut ready = sorted(0..2 * MOST_ALONE as u64, 6, 2);
        ready.clear();
        assert_eq!(ready.memory(), 0);
    }

    #[test]
    fn few_take_no_more_room_than_they_may_have() {
        let ready = few(0..MOST_ALONE as u64);
        assert!(ready.is_full());
        assert_eq!(ready.memory(), MOST_ALONE * size_of::<Entry>());
    }

    #[test]
    fn a_refill_passes_few_of_the_runs_that_were_emptied() {
        let runs = 10 * MOST_PASSED;
        let mut ready = Ready::default();
        (0..runs * RUN).for_each(|index| ready.push_run(entry(index, index as u64)));
        ready.close_runs();
        let later = ready.runs_mut().expect("there are some");
        (0..runs - 1).for_each(|number| later.retain(number, |_| false));
        (0..CHUNK).for_each(|_| _ = ready.pop());
        let mut calls = 1;
        while ready.first().is_none() {
            ready.refill();
            calls += 1;
        }
        assert_eq!(calls, 10);
        assert_eq!(take(&mut ready).len(), RUN);
    }

    #[test]
    fn shrunk_it_has_the_first_at_hand_behind_any_number_of_emptied_runs() {
        let runs = 3 * MOST_PASSED;
        let mut ready = Ready::default();
        (0..runs * RUN).for_each(|index| ready.push_run(entry(index, index as u64)));
        ready.close_runs();
        let last = ((runs - 1) * RUN) as u64;
        ready.shrink(|entry| last <= entry.deadline);
        assert_eq!(ready.first().map(|entry| entry.deadline), Some(last));
        assert_eq!(take(&mut ready).len(), RUN);
    }

    #[test]
    fn the_last_of_few_is_taken_back_and_no_other() {
        let mut ready = few([30, 10, 20]);
        assert!(!ready.take_back(0, 0));
        assert!(ready.take_back(2, 0));
        assert!(!ready.take_back(2, 0), "it is gone");
        ready.sort_gathered();
        assert!(ready.take_back(0, 0), "it is the last now");
        assert_eq!(take(&mut ready), [(10, 1)]);
    }

    #[test]
    fn what_is_dropped_from_the_middle_does_not_come() {
        for range in [0..10, 3..9, 60..100, 0..100] {
            let mut ready = sorted(0..100, 8, 1);
            for _ in 0..20 {
                ready.pop();
            }
            for index in 0..2 * CHUNK {
                ready.insert(entry(index, 100), 100, 100);
            }
            let range = range.start.max(20)..range.end.max(20);
            let is_kept =
                |deadline: u64| deadline % 3 == 0 || !range.contains(&(deadline as usize));
            ready.retain(range.clone(), |entry| is_kept(entry.deadline));
            ready.check(&Arena::<()>::new(), 100, false);
            let expected = (20..100).filter(|&deadline| is_kept(deadline));
            let taken: Vec<_> = take(&mut ready).iter().map(|taken| taken.0).collect();
            assert!(taken[..taken.len() - 2 * CHUNK].iter().copied().eq(expected));
        }
    }
}
