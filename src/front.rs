//! Front: the timeouts that come next, sorted.

use crate::arena::{Arena, Entry};
use crate::bucket::{Bucket, CHUNK};
use crate::digit::{Counts, Digit};
use alloc::vec::Vec;

/// Entries among which another is put in its place by moving those behind it.
const MOST_MOVED: usize = 32;
/// Timeouts that are read ahead at once.
const PREFETCHED: usize = 256;

/// The timeouts that are handed out next, in their order.
#[derive(Debug, Default)]
pub(crate) struct Front {
    entries: Vec<Entry>,
    /// Entries that were taken out already.
    head: usize,
    /// What comes after `entries`.
    rest: Bucket,
}

impl Front {
    /// Appends an entry, which comes after all others.
    #[inline]
    pub(crate) fn push(&mut self, entry: Entry) {
        if self.rest.is_empty() && self.entries.len() < CHUNK {
            self.entries.push(entry);
        } else {
            self.rest.push(entry);
        }
    }

    /// Takes over a sorted bucket, as the front is empty.
    pub(crate) fn fill(&mut self, bucket: Bucket) {
        self.rest = bucket;
        self.next_chunk();
    }

    /// The first entry.
    #[inline]
    pub(crate) fn first(&self) -> Option<Entry> {
        self.entries.get(self.head).copied()
    }

    /// Takes out the first entry, and returns the one that has become the first.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Entry> {
        self.head += 1;
        if self.entries.len() <= self.head {
            self.next_chunk();
        }
        self.first()
    }

    /// Goes on with the next chunk, as all before it were taken out.
    #[inline(never)]
    fn next_chunk(&mut self) {
        self.head = 0;
        self.entries.clear();
        self.entries.extend_from_slice(&self.rest.pop_chunk());
        if self.entries.is_empty() && CHUNK < self.entries.capacity() {
            self.entries = Vec::new();
        }
    }

    /// Reads the timeouts that come next, all at once, if it is their turn: one after the other,
    /// each would have to be waited for.
    #[inline]
    pub(crate) fn prefetch<T>(&self, arena: &Arena<T>) {
        if self.head % PREFETCHED == 0 {
            let end = self.entries.len().min(self.head + PREFETCHED);
            arena.prefetch(&self.entries[self.head..end]);
        }
    }

    /// Fills the front, which is empty, with the entries of a bucket by deadline, given that the
    /// deadlines differ in their lowest `digits` digits of `bits` bits only; equal deadlines keep
    /// their order.
    pub(crate) fn fill_sorted(&mut self, mut bucket: Bucket, bits: u32, digits: u32) {
        let len = bucket.len();
        // Sorting by a digit looks at all its counters, which takes enough entries to be worth it.
        let most = 4 * len / digits as usize;
        self.head = 0;
        let Some(first) = Digit::new(0, bits).filter(|_| 1 << bits <= most) else {
            self.entries.clear();
            self.entries.reserve(len);
            while !bucket.is_empty() {
                self.entries.extend_from_slice(&bucket.pop_chunk());
            }
            let key = |entry: &Entry| entry.low() & (u32::MAX >> (u32::BITS - bits * digits));
            self.entries.sort_by_key(key);
            return;
        };
        // By each digit in turn, the lowest first.
        let mut counts = Counts::new(first);
        (0..bucket.chunks()).for_each(|chunk| counts.add(bucket.chunk(chunk)));
        counts.begin();
        self.entries.resize(len, Entry::new(0, 0, 0));
        while !bucket.is_empty() {
            counts.put(&bucket.pop_chunk(), &mut self.entries);
        }
        for digit in (1..digits).filter_map(|digit| Digit::new(digit * bits, bits)) {
            let unsorted = self.entries.clone();
            let mut counts = Counts::new(digit);
            counts.add(&unsorted);
            counts.begin();
            counts.put(&unsorted, &mut self.entries);
        }
    }

    /// Puts an entry behind those of its deadline and earlier ones, given that no deadline is
    /// after `last`, nor 2^32 ticks or more before it unless this one is at `last`; returns whether
    /// it did: not if too many entries would have to move.
    #[inline]
    pub(crate) fn insert(&mut self, entry: Entry, last: u64) -> bool {
        let before_last = |low: u32| (last as u32).wrapping_sub(low);
        let is_after = |at: &Entry| before_last(entry.low()) <= before_last(at.low());
        let end = self.rest.last().or_else(|| self.entries.last().copied());
        if end.as_ref().is_none_or(is_after) {
            self.push(entry);
            return true;
        }
        let sorted = &self.entries[self.head..];
        if !self.rest.is_empty() || MOST_MOVED < sorted.len() {
            return false;
        }
        let ahead = sorted.partition_point(is_after);
        self.entries.insert(self.head + ahead, entry);
        true
    }

    /// Whether there is more than one chunk.
    #[inline]
    pub(crate) fn is_long(&self) -> bool {
        !self.rest.is_empty()
    }

    /// The entries, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Entry> {
        self.entries.iter().skip(self.head).copied().chain(self.rest.iter())
    }

    /// How many chunks there are; at least 1.
    pub(crate) fn chunks(&self) -> usize {
        1 + self.rest.chunks()
    }

    /// How many entries are in chunk `at`.
    pub(crate) fn chunk(&self, at: usize) -> &[Entry] {
        match at.checked_sub(1) {
            Some(at) => self.rest.chunk(at),
            None => &self.entries[self.head..],
        }
    }

    /// Drops the entries of chunk `at` that are not to be kept, and returns the number of the chunk
    /// that follows.
    pub(crate) fn retain_chunk(&mut self, at: usize, mut keep: impl FnMut(Entry) -> bool) -> usize {
        if let Some(at) = at.checked_sub(1) {
            return 1 + self.rest.retain_chunk(at, keep);
        }
        self.entries.drain(..core::mem::take(&mut self.head));
        self.entries.retain(|&entry| keep(entry));
        if self.entries.is_empty() {
            self.next_chunk();
        }
        1
    }

    /// Drops the entries that are not to be kept, and gives back the memory the others do not need.
    pub(crate) fn shrink(&mut self, keep: impl Fn(Entry) -> bool) {
        self.entries.drain(..core::mem::take(&mut self.head));
        self.entries.retain(|&entry| keep(entry));
        self.rest.shrink(keep);
        if self.entries.is_empty() {
            self.next_chunk();
        }
        self.entries.shrink_to_fit();
    }

    /// How many entries there are.
    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.head + self.rest.len()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.len() <= self.head
    }

    /// Bytes allocated.
    pub(crate) fn memory(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>() + self.rest.memory()
    }

    /// Panics unless the first entry is where it is looked for, and entries know their deadlines.
    pub(crate) fn check<T>(&self, arena: &Arena<T>) {
        assert!(!self.is_empty() || self.rest.is_empty(), "the first entry is at hand");
        self.iter().for_each(|entry| entry.check(arena));
        self.rest.check(arena);
    }
}
