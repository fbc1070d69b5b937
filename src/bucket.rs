//! Bucket: the first-in-first-out list both modes share.

use crate::arena::Arena;
use smallvec::SmallVec;

/// A vacated place in a bucket.
const HOLE: u32 = u32::MAX;
/// Holes that a bucket may have whatever else is in it.
const FREE_HOLES: usize = 4;
/// Holes that a bucket may have for each live entry.
const HOLES_PER_LIVE: usize = 3;

/// Entries among which one is looked for rather than all timeouts told where they are.
const MOST_SEARCHED: usize = 64;
/// Live entries among which another is put in its place by moving those behind it.
const MOST_MOVED: usize = 32;
/// Values of a digit by which entries are sorted by counting them.
pub(crate) const MOST_COUNTED: usize = 256;

/// Timeouts that are read ahead at once.
const PREFETCHED: usize = 256;

/// Stands in a bucket for one timeout.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// The timeout's place in the arena, or `HOLE`.
    pub(crate) index: u32,
    /// The low half of its deadline: who moves or scans entries seldom needs to look further.
    low: u32,
}

impl Entry {
    pub(crate) fn new(index: u32, deadline: u64) -> Self {
        Self { index, low: deadline as u32 }
    }

    /// How far the deadline is after `from`, if that is less than 2^32.
    #[inline]
    pub(crate) fn distance(self, from: u64) -> u64 {
        self.low.wrapping_sub(from as u32).into()
    }

    /// The deadline, which is not before `from`; without a look into the arena if it is near, that
    /// is, less than 2^32 ticks after `from`.
    #[inline]
    pub(crate) fn deadline<T>(self, from: u64, is_near: bool, arena: &Arena<T>) -> u64 {
        if is_near { from + self.distance(from) } else { arena.deadline(self.index) }
    }
}

/// The timeouts that come up together, in the order in which they were put in.
///
/// A contiguous array. A timeout remembers the position of its entry, and removing it leaves a hole
/// there. Entries are moved about without a look at their timeouts; the next removal tells all
/// timeouts of the bucket where they are now. That is paid for by what moved them: a bucket is
/// filled at once when another is taken apart, its holes are closed when they outnumber the live
/// entries by far, and where one is put between others there are few.
#[derive(Debug, Default)]
pub(crate) struct Bucket {
    entries: SmallVec<[Entry; 2]>,
    /// The position of `entries[0]`: entries taken off the front take their positions with them.
    first: u32,
    /// Everything before `entries[head]` is a hole; that entry itself is live, if any is.
    head: u32,
    live: u32,
    /// Whether an entry may be elsewhere than its timeout remembers.
    moved: bool,
}

impl Bucket {
    /// Appends an entry, and returns its position for its timeout to remember.
    #[inline]
    pub(crate) fn push(&mut self, entry: Entry) -> u32 {
        let position = self.first.wrapping_add(self.entries.len() as u32);
        self.entries.push(entry);
        self.live += 1;
        position
    }

    /// Makes room for so many entries more, and none to spare.
    pub(crate) fn reserve_exact(&mut self, additional: usize) {
        self.entries.reserve_exact(additional);
    }

    /// Appends an entry from another bucket, and does not tell its timeout.
    #[inline]
    pub(crate) fn append(&mut self, entry: Entry) {
        self.push(entry);
        self.moved = true;
    }

    /// Takes out the entry of the timeout at `index`, which is in this bucket and remembers
    /// `position`.
    #[inline]
    pub(crate) fn remove<T>(&mut self, index: u32, position: u32, arena: &mut Arena<T>) {
        let at = match self.moved {
            true => self.search(index, arena),
            false => position.wrapping_sub(self.first) as usize,
        };
        let entry = &mut self.entries[at];
        debug_assert_eq!(entry.index, index, "a timeout remembers the position of its entry");
        entry.index = HOLE;
        self.live -= 1;
        if at == self.head as usize || most_entries(self.len()) < self.entries.len() {
            self.tidy();
        }
    }

    /// Where the entry of the timeout at `index` is. In a long bucket, all timeouts are told.
    #[cold]
    fn search<T>(&mut self, index: u32, arena: &mut Arena<T>) -> usize {
        if MOST_SEARCHED < self.entries.len() {
            self.renumber(arena);
        }
        let mut places = self.entries.iter();
        let at = places.position(|entry| entry.index == index);
        at.expect("a timeout is in the bucket of its deadline")
    }

    /// Tells every timeout its position.
    fn renumber<T>(&mut self, arena: &mut Arena<T>) {
        self.moved = false;
        for (at, entry) in (0..).zip(&self.entries) {
            if entry.index != HOLE {
                arena.set_position(entry.index, self.first.wrapping_add(at));
            }
        }
    }

    /// Reads the timeouts that are next to be taken out, all at once, if that is due again: one
    /// after the other, each would have to be waited for.
    #[inline]
    pub(crate) fn prefetch<T>(&self, arena: &Arena<T>) {
        let head = self.head as usize;
        if head % PREFETCHED == 0 {
            let next = &self.entries[head..self.entries.len().min(head + PREFETCHED)];
            core::hint::black_box(next.iter().fold(0, |sum, entry| sum ^ arena.touch(entry.index)));
        }
    }

    /// The first entry.
    #[inline]
    pub(crate) fn front(&self) -> Option<Entry> {
        if self.live == 0 { None } else { Some(self.entries[self.head as usize]) }
    }

    /// Takes out the first entry.
    #[inline]
    pub(crate) fn pop_front(&mut self) {
        let at = self.head as usize;
        self.entries[at].index = HOLE;
        self.live -= 1;
        match self.entries.get(at + 1) {
            Some(next) if next.index != HOLE && self.entries.len() <= most_entries(self.len()) => {
                self.head += 1;
            }
            _ => self.tidy(),
        }
    }

    /// Restores what must hold after entries have left.
    fn tidy(&mut self) {
        if self.live == 0 {
            *self = Self::default();
            return;
        }
        self.skip_holes();
        if most_entries(self.len()) < self.entries.len() {
            self.close_holes();
        }
    }

    #[inline]
    fn skip_holes(&mut self) {
        while self.entries[self.head as usize].index == HOLE {
            self.head += 1;
        }
    }

    /// Moves the entries together, in their order, and gives back memory that is not needed.
    #[cold]
    fn close_holes(&mut self) {
        // Off the front the others keep their positions.
        self.entries.drain(..self.head as usize);
        self.first = self.first.wrapping_add(self.head);
        self.head = 0;
        if self.entries.len() > 2 * self.len() {
            self.entries.retain(|entry| entry.index != HOLE);
            self.moved = true;
        }
        if 2 * most_entries(self.len()) < self.entries.capacity() {
            self.entries.grow(most_entries(self.len()));
        }
    }

    /// The live entries, in order.
    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = Entry> {
        self.entries[self.head as usize..].iter().copied().filter(|entry| entry.index != HOLE)
    }

    /// The earliest deadline, given that none is before `from` or after `latest`; `u64::MAX` if the
    /// bucket is empty.
    pub(crate) fn earliest<T>(&self, from: u64, latest: u64, arena: &Arena<T>) -> u64 {
        let is_near = latest - from <= u32::MAX.into();
        let mut earliest = u64::MAX;
        for entry in self.iter() {
            earliest = earliest.min(entry.deadline(from, is_near, arena));
            if earliest == from {
                break;
            }
        }
        earliest
    }

    /// Moves the timeouts whose deadlines are in `from..=to` to the end of `due`, given that no
    /// deadline is before `from` or after `latest`, and returns the earliest that is left,
    /// `u64::MAX` if none is.
    pub(crate) fn take_due<T>(
        &mut self,
        from: u64,
        to: u64,
        latest: u64,
        due: &mut Self,
        arena: &Arena<T>,
    ) -> u64 {
        let is_near = latest - from <= u32::MAX.into();
        let mut earliest = u64::MAX;
        for entry in &mut self.entries[self.head as usize..] {
            if entry.index == HOLE {
                continue;
            }
            let deadline = entry.deadline(from, is_near, arena);
            if to < deadline {
                earliest = earliest.min(deadline);
            } else {
                due.append(*entry);
                entry.index = HOLE;
                self.live -= 1;
            }
        }
        self.tidy();
        earliest
    }

    /// Sorts by deadline; equal deadlines keep their order.
    pub(crate) fn sort<T>(&mut self, arena: &Arena<T>) {
        self.entries.retain(|entry| entry.index != HOLE);
        self.entries.sort_by_cached_key(|entry| arena.deadline(entry.index));
        self.first = 0;
        self.head = 0;
        self.moved = true;
    }

    /// Sorts by deadline, given that the deadlines differ in their lowest `digits` digits of `bits`
    /// bits only; equal deadlines keep their order.
    pub(crate) fn sort_digits(&mut self, bits: u32, digits: u32) {
        let mut sorted: SmallVec<_> = self.iter().collect();
        let counters = 1 << bits;
        if MOST_COUNTED < counters || 4 * sorted.len() < digits as usize * counters {
            let key = |entry: &Entry| entry.low & (u32::MAX >> (u32::BITS - bits * digits));
            sorted.sort_by_key(key);
        } else {
            // By each digit in turn, the lowest first: where a digit starts, by counting those
            // before it.
            let mut unsorted = sorted.clone();
            for shift in (0..digits).map(|digit| digit * bits) {
                let digit = |entry: &Entry| (entry.low >> shift) as usize & (counters - 1);
                core::mem::swap(&mut sorted, &mut unsorted);
                let mut starts = [0; MOST_COUNTED];
                for entry in &unsorted {
                    starts[digit(entry)] += 1;
                }
                let mut start = 0;
                for count in &mut starts[..counters] {
                    start += core::mem::replace(count, start);
                }
                for entry in &unsorted {
                    let at = &mut starts[digit(entry)];
                    sorted[*at] = *entry;
                    *at += 1;
                }
            }
        }
        self.entries = sorted;
        self.first = 0;
        self.head = 0;
        self.moved = true;
    }

    /// Puts an entry behind those of its deadline and earlier ones, given that the bucket is sorted
    /// and that no deadline is after `last`, and returns its position; None if too many entries
    /// would have to move.
    #[inline]
    pub(crate) fn insert(&mut self, entry: Entry, last: u64) -> Option<u32> {
        let before_last = |low: u32| (last as u32).wrapping_sub(low);
        let sorted = &self.entries[self.head as usize..];
        if sorted.last().is_none_or(|end| before_last(entry.low) <= before_last(end.low)) {
            return Some(self.push(entry));
        }
        if MOST_MOVED < self.len() {
            return None;
        }
        let ahead = sorted.partition_point(|at| before_last(entry.low) <= before_last(at.low));
        let at = self.head + ahead as u32;
        self.entries.insert(at as usize, entry);
        self.live += 1;
        self.moved = true;
        Some(self.first.wrapping_add(at))
    }

    /// Gives back the memory that the live entries do not need.
    pub(crate) fn shrink_to_fit(&mut self) {
        self.entries.retain(|entry| entry.index != HOLE);
        self.entries.shrink_to_fit();
        self.first = 0;
        self.head = 0;
        self.moved = true;
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.live as usize
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Bytes allocated.
    pub(crate) fn memory(&self) -> usize {
        if self.entries.spilled() { self.entries.capacity() * size_of::<Entry>() } else { 0 }
    }

    /// Panics unless every entry and its timeout name each other, and the holes are few.
    pub(crate) fn check<T>(&self, arena: &Arena<T>) {
        let live = self.iter().count();
        assert_eq!(live, self.len(), "the count of live entries is right");
        assert!(self.entries.len() <= most_entries(live), "holes are closed in time");
        if live > 0 {
            assert_ne!(self.entries[self.head as usize].index, HOLE, "the head is live");
        } else {
            assert_eq!(self.memory(), 0, "an empty bucket holds no memory");
        }
        for (at, entry) in (0..).zip(&self.entries) {
            if entry.index != HOLE {
                let timeout = arena.timeout(entry.index);
                assert_eq!(
                    arena.deadline(entry.index) as u32,
                    entry.low,
                    "an entry knows its deadline"
                );
                let remembered = timeout.position == self.first.wrapping_add(at);
                assert!(self.moved || remembered, "a timeout remembers the position of its entry");
                assert!(self.head <= at, "what is before the head is a hole");
            }
        }
    }
}

/// How long the array may be for so many live entries, holes included.
#[inline]
fn most_entries(live: usize) -> usize {
    FREE_HOLES + (1 + HOLES_PER_LIVE) * live
}
