//! Bucket: the first-in-first-out list that both modes share.

use super::arena::{Arena, Entry};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use smallvec::SmallVec;

/// The entries of one chunk, which are the most that are copied when a bucket grows.
pub(super) const CHUNK: usize = 512;

/// How often `earliest` looks through a bucket before it sorts it: sorting costs about as much.
const SORTED_AFTER: usize = 16;

pub(super) type Chunk = SmallVec<[Entry; 1]>;

/// The timeouts that come up together. Those of equal deadlines are in the order in which they were
/// put in.
///
/// A bucket is made of chunks of entries. So it never copies much when it grows, and a visit can
/// take it apart a chunk at a time.
#[derive(Debug, Default)]
pub(super) struct Bucket {
    /// The chunks before the last one, if there are any. Boxed, because few buckets have them.
    full: Option<Box<Full>>,
    /// The last chunk, which is empty only if the bucket is.
    last: Chunk,
}

/// The chunks of a bucket before the last one.
#[derive(Debug, Default)]
struct Full {
    /// None of them is empty.
    chunks: VecDeque<Chunk>,
    /// The number of chunks, from the first on, that are sorted by deadline as one list.
    sorted: usize,
    /// The chunks that `earliest` has looked at since it last sorted.
    looked: usize,
}

impl Bucket {
    /// Appends an entry.
    #[inline]
    pub(super) fn push(&mut self, entry: Entry) {
        if CHUNK <= self.last.len() {
            self.begin_chunk();
        }
        self.last.push(entry);
    }

    /// Takes out the last entry if it has this index and stamp, and another one of its chunk stays.
    /// Returns whether it did.
    #[inline]
    pub(super) fn take_back(&mut self, index: u32, stamp: u32) -> bool {
        // The index too, because stamps come round.
        let is_it = |entry: &Entry| (entry.index, entry.stamp) == (index, stamp);
        let is_back = 1 < self.last.len() && self.last.last().is_some_and(is_it);
        if is_back {
            self.last.pop();
        }
        is_back
    }

    /// Appends entries, in order.
    pub(super) fn extend(&mut self, mut entries: &[Entry]) {
        while CHUNK < self.last.len() + entries.len() {
            let (now, rest) = entries.split_at(CHUNK - self.last.len());
            self.last.extend_from_slice(now);
            self.begin_chunk();
            entries = rest;
        }
        self.last.extend_from_slice(entries);
    }

    #[cold]
    fn begin_chunk(&mut self) {
        let full = core::mem::replace(&mut self.last, Chunk::with_capacity(CHUNK));
        self.full.get_or_insert_default().chunks.push_back(full);
    }

    /// Makes room for `entries`, but at most for one chunk, if the bucket is empty.
    pub(super) fn reserve(&mut self, entries: usize) {
        if self.last.is_empty() {
            self.last.reserve_exact(entries.min(CHUNK));
        }
    }

    /// Takes out the first chunk, which is empty if the bucket is.
    pub(super) fn pop_chunk(&mut self) -> Chunk {
        if self.full.is_none() { core::mem::take(&mut self.last) } else { self.remove_chunk(0) }
    }

    /// Takes out chunk `at`.
    fn remove_chunk(&mut self, at: usize) -> Chunk {
        let Some(full) = &mut self.full else { return core::mem::take(&mut self.last) };
        let chunk = match full.chunks.remove(at) {
            Some(chunk) => {
                full.sorted -= usize::from(at < full.sorted);
                chunk
            }
            None => {
                let last = full.chunks.pop_back().unwrap_or_default();
                full.sorted = full.sorted.min(full.chunks.len());
                core::mem::replace(&mut self.last, last)
            }
        };
        if full.chunks.is_empty() {
            self.full = None;
        }
        chunk
    }

    /// Reads the first `chunks` chunks ahead.
    pub(super) fn prefetch(&self, chunks: usize) {
        let entries = (0..chunks.min(self.chunks())).flat_map(|at| {
            // One entry of each cache line.
            self.chunk(at).iter().step_by(64 / size_of::<Entry>())
        });
        core::hint::black_box(entries.fold(0, |sum, entry| sum ^ entry.index));
    }

    /// Returns the number of chunks, which is at least 1.
    #[inline]
    pub(super) fn chunks(&self) -> usize {
        self.full.as_ref().map_or(0, |full| full.chunks.len()) + 1
    }

    /// Returns the entries of chunk `at`.
    pub(super) fn chunk(&self, at: usize) -> &[Entry] {
        self.full.as_ref().and_then(|full| full.chunks.get(at)).unwrap_or(&self.last)
    }

    /// Drops the entries of chunk `at` that `keep` rejects, and the chunk if none is left. Returns
    /// whether the chunk is gone; chunk `at` is then the one that followed.
    pub(super) fn retain_chunk(&mut self, at: usize, keep: impl FnMut(Entry) -> bool) -> bool {
        let chunk = match &mut self.full {
            Some(full) if at < full.chunks.len() => &mut full.chunks[at],
            _ => &mut self.last,
        };
        retain(chunk, keep);
        let is_gone = chunk.is_empty();
        if is_gone {
            self.remove_chunk(at);
        }
        is_gone
    }

    /// Puts the chunk that follows chunk `at` behind its entries, if there is one and it fits.
    pub(super) fn merge(&mut self, at: usize) {
        let Some(full) = &self.full else { return };
        let (sorted, chunks) = (full.sorted, full.chunks.len() + 1);
        if chunks <= at + 1 || CHUNK < self.chunk(at).len() + self.chunk(at + 1).len() {
            return;
        }
        let next = self.remove_chunk(at + 1);
        match &mut self.full {
            Some(full) if at < full.chunks.len() => {
                full.chunks[at].extend_from_slice(&next);
                if sorted <= at + 1 {
                    full.sorted = full.sorted.min(at);
                }
            }
            _ => self.last.extend_from_slice(&next),
        }
    }

    /// Returns the entries, in order.
    #[inline]
    pub(super) fn iter(&self) -> impl Iterator<Item = Entry> {
        let full = self.full.iter().flat_map(|full| full.chunks.iter());
        full.chain([&self.last]).flatten().copied()
    }

    /// Returns the first of the entries with the earliest deadline, not counting stale ones.
    /// Returns None if all are stale. Drops stale entries among the sorted ones, and counts them
    /// down in `stale`.
    ///
    /// At first it looks at each entry. When the looks have cost as much as sorting, it sorts the
    /// entries. From then on it looks at the first of them, and at those that were put in since. So
    /// cancelling the earliest again and again, and asking each time, costs O(log n) each.
    pub(super) fn earliest<T>(&mut self, arena: &Arena<T>, stale: &mut usize) -> Option<Entry> {
        if let Some(full) = &mut self.full {
            let chunks = full.chunks.len();
            full.looked += chunks - full.sorted;
            if 1 < chunks - full.sorted && SORTED_AFTER * chunks <= full.looked {
                self.sort(|entry| {
                    let is_stale = arena.is_stale(entry);
                    *stale -= usize::from(is_stale);
                    !is_stale
                });
            }
        }
        let mut earliest = self.earliest_sorted(arena, stale);
        let rest = self.full.as_ref().map_or(0, |full| full.sorted);
        for &entry in (rest..self.chunks()).flat_map(|at| self.chunk(at)) {
            if earliest.is_none_or(|earliest| entry.deadline < earliest.deadline)
                && !arena.is_stale(entry)
            {
                earliest = Some(entry);
            }
        }
        earliest
    }

    /// Returns the first sorted entry that is not stale, and drops those before it.
    fn earliest_sorted<T>(&mut self, arena: &Arena<T>, stale: &mut usize) -> Option<Entry> {
        loop {
            let full = self.full.as_mut().filter(|full| 0 < full.sorted)?;
            let first = &mut full.chunks[0];
            let live = first.iter().position(|&entry| !arena.is_stale(entry));
            *stale -= live.unwrap_or(first.len());
            if let Some(live) = live {
                first.drain(..live);
                return first.first().copied();
            }
            self.remove_chunk(0);
        }
    }

    /// Sorts all entries but those of the last chunk by deadline. Equal deadlines keep their order.
    /// Drops the entries that are not to be kept: a sweep may have yet to look at them.
    #[cold]
    fn sort(&mut self, mut keep: impl FnMut(Entry) -> bool) {
        let Some(full) = &mut self.full else { return };
        let entries = full.chunks.iter().flatten().copied();
        let mut entries: Vec<_> = entries.filter(|&entry| keep(entry)).collect();
        entries.sort_by_key(|entry| entry.deadline);
        full.chunks = entries.chunks(CHUNK).map(Chunk::from_slice).collect();
        (full.sorted, full.looked) = (full.chunks.len(), 0);
        if full.chunks.is_empty() {
            self.full = None;
        }
    }

    /// Drops the entries that `keep` rejects, and gives back the memory that the others do not
    /// need.
    pub(super) fn shrink(&mut self, mut keep: impl FnMut(Entry) -> bool) {
        let mut kept = Self::default();
        while !self.is_empty() {
            let mut chunk = self.pop_chunk();
            retain(&mut chunk, &mut keep);
            kept.extend(&chunk);
        }
        for chunk in kept.full.iter_mut().flat_map(|full| &mut full.chunks) {
            chunk.shrink_to_fit();
        }
        if let Some(full) = &mut kept.full {
            full.chunks.shrink_to_fit();
        }
        kept.last.shrink_to_fit();
        *self = kept;
    }

    /// Returns the number of entries. Looks at each chunk.
    pub(super) fn len(&self) -> usize {
        let full = self.full.iter().flat_map(|full| &full.chunks);
        full.chain([&self.last]).map(|chunk| chunk.len()).sum()
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.last.is_empty()
    }

    /// Returns the bytes that are allocated.
    pub(super) fn memory(&self) -> usize {
        let array = |chunk: &Chunk| match chunk.spilled() {
            true => chunk.capacity() * size_of::<Entry>(),
            false => 0,
        };
        let list = self.full.as_ref().map_or(0, |full| {
            size_of::<Full>()
                + full.chunks.capacity() * size_of::<Chunk>()
                + full.chunks.iter().map(array).sum::<usize>()
        });
        array(&self.last) + list
    }

    /// Panics unless the chunks are in order.
    pub(super) fn check(&self) {
        match &self.full {
            Some(full) => {
                assert!(!full.chunks.is_empty() && !self.last.is_empty(), "no chunk is empty");
                assert!(full.chunks.iter().all(|chunk| !chunk.is_empty()), "no chunk is empty");
                let sorted = full.chunks.iter().take(full.sorted).flatten();
                assert!(sorted.is_sorted_by_key(|entry| entry.deadline), "what is sorted is");
                assert!(full.sorted <= full.chunks.len(), "the last chunk is not sorted");
            }
            None if self.is_empty() => assert_eq!(self.memory(), 0, "an empty bucket holds none"),
            None => {}
        }
    }
}

/// Drops the entries of a chunk that `keep` rejects, and the room that is far too much then.
fn retain(chunk: &mut Chunk, mut keep: impl FnMut(Entry) -> bool) {
    let entries = chunk.as_mut_slice();
    let mut kept = entries.iter().position(|&entry| !keep(entry)).unwrap_or(entries.len());
    for next in kept + 1..entries.len() {
        let entry = entries[next];
        entries[kept] = entry;
        kept += usize::from(keep(entry));
    }
    chunk.truncate(kept);
    if 4 * kept < chunk.capacity() {
        chunk.grow((2 * kept).max(chunk.inline_size()));
    }
}

#[cfg(test)]
mod tests {
    use super::{Arena, Bucket, CHUNK, Entry, SORTED_AFTER};
    use alloc::vec::Vec;

    #[test]
    fn the_last_entry_is_taken_back_by_its_own_timeout_only() {
        let mut bucket = Bucket::default();
        let entry = |index, stamp| Entry { index, stamp, deadline: 1 };
        bucket.push(entry(1, 7));
        assert!(!bucket.take_back(1, 7), "it is the only one");
        bucket.push(entry(2, 8));
        assert!(!bucket.take_back(1, 8) && !bucket.take_back(2, 7), "it is another's");
        assert!(bucket.take_back(2, 8));
        assert_eq!(bucket.len(), 1);
        (2..=CHUNK as u32 + 1).for_each(|index| bucket.push(entry(index, index)));
        assert!(!bucket.take_back(CHUNK as u32 + 1, CHUNK as u32 + 1), "its chunk would be empty");
    }

    fn entry(index: u32, deadline: u64) -> Entry {
        Entry { index, stamp: 0, deadline }
    }

    /// A bucket of entries numbered from 0, in chunks as full as can be.
    fn bucket(entries: usize) -> Bucket {
        let mut bucket = Bucket::default();
        for index in 0..entries as u32 {
            bucket.push(entry(index, 0));
        }
        bucket
    }

    fn indices(bucket: &Bucket) -> Vec<u32> {
        bucket.iter().map(|entry| entry.index).collect()
    }

    /// Panics unless the bucket is in order and holds what it should.
    fn check(bucket: &Bucket, expected: impl IntoIterator<Item = u32>) {
        bucket.check();
        let expected: Vec<_> = expected.into_iter().collect();
        assert_eq!(indices(bucket), expected);
        assert_eq!(bucket.len(), expected.len());
        assert_eq!(bucket.is_empty(), expected.is_empty());
        let chunks = (0..bucket.chunks()).map(|at| bucket.chunk(at).len());
        assert!(chunks.clone().all(|len| len <= CHUNK));
        assert_eq!(chunks.sum::<usize>(), expected.len());
    }

    /// Goes through all chunks, the last one first, and shows `keep` every entry.
    fn retain(bucket: &mut Bucket, mut keep: impl FnMut(u32) -> bool) {
        let mut seen = 0;
        let len = bucket.len();
        for at in (0..bucket.chunks()).rev() {
            bucket.retain_chunk(at, |entry| {
                seen += 1;
                keep(entry.index)
            });
        }
        assert_eq!(seen, len, "each entry is shown once");
    }

    #[test]
    fn chunks_are_filled_one_after_the_other() {
        for entries in [0, 1, 2, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK, 3 * CHUNK + 1] {
            let bucket = bucket(entries);
            check(&bucket, 0..entries as u32);
            assert_eq!(bucket.chunks(), entries.div_ceil(CHUNK).max(1));
        }
    }

    #[test]
    fn what_is_kept_stays_in_order() {
        let entries = 5 * CHUNK as u32 + 3;
        let keeps: [fn(u32) -> bool; 9] = [
            |_| true,
            |_| false,
            |index| index == 0,
            |index| index == 5 * CHUNK as u32 + 2,
            |index| index % 2 == 0,
            |index| index % 7 == 3,
            |index| index / CHUNK as u32 % 2 == 0,
            |index| index / CHUNK as u32 % 2 == 1,
            |index| index / CHUNK as u32 == 3,
        ];
        for keep in keeps {
            let mut bucket = bucket(entries as usize);
            retain(&mut bucket, keep);
            check(&bucket, (0..entries).filter(|&index| keep(index)));
            bucket.push(entry(entries, 0));
            check(&bucket, (0..=entries).filter(|&index| index == entries || keep(index)));
        }
    }

    #[test]
    fn the_first_chunk_and_the_last_may_vanish() {
        for gone in 0..3 {
            let mut bucket = bucket(3 * CHUNK);
            assert!(bucket.retain_chunk(gone, |_| false), "it is gone");
            assert_eq!(bucket.chunks(), 2);
            check(
                &bucket,
                (0..3 * CHUNK as u32).filter(|index| index / CHUNK as u32 != gone as u32),
            );
            assert!(!bucket.retain_chunk(0, |_| true), "it is there");
        }
    }

    #[test]
    fn a_chunk_that_fits_is_merged_with_the_one_before() {
        for sorted in [false, true] {
            for gone in 0..4 {
                let mut bucket = Bucket::default();
                for index in 0..5 * CHUNK as u32 {
                    bucket.push(entry(index, index.into()));
                }
                if sorted {
                    bucket.sort(|_| true);
                }
                let spared = (gone * CHUNK) as u32 + 7;
                bucket.retain_chunk(gone, |entry| entry.index < spared);
                bucket.merge(gone);
                assert_eq!(bucket.chunks(), 5, "it does not fit");
                bucket.retain_chunk(gone + 1, |entry| entry.index % 2 == 0);
                bucket.merge(gone);
                assert_eq!(bucket.chunks(), 4, "now it fits");
                for at in (0..4).rev() {
                    bucket.merge(at);
                }
                let is_gone = |index: u32| {
                    let chunk = index as usize / CHUNK;
                    chunk == gone && spared <= index || chunk == gone + 1 && index % 2 == 1
                };
                check(&bucket, (0..5 * CHUNK as u32).filter(|&index| !is_gone(index)));
            }
        }
    }

    /// What is behind the sorted chunks is in any order.
    #[test]
    fn what_is_not_sorted_is_not_merged_into_what_is() {
        let mut bucket = Bucket::default();
        for index in 0..4 * CHUNK as u32 {
            bucket.push(entry(index, index.into()));
        }
        bucket.sort(|_| true);
        for index in 0..2 * CHUNK as u32 {
            bucket.push(entry(index, 5000 - u64::from(index)));
        }
        bucket.retain_chunk(2, |entry| entry.index % 4 == 0);
        bucket.retain_chunk(3, |entry| entry.index % 4 == 0);
        bucket.merge(2);
        assert_eq!(bucket.chunks(), 5);
        bucket.check();
        assert_eq!(bucket.full.as_ref().map(|full| full.sorted), Some(2));
    }

    #[test]
    fn memory_that_what_is_kept_does_not_need_is_given_back() {
        let mut bucket = bucket(CHUNK);
        let full = bucket.memory();
        retain(&mut bucket, |index| index < 10);
        assert!(bucket.memory() <= full / 8, "{} of {full}", bucket.memory());
        retain(&mut bucket, |index| index == 3);
        bucket.shrink(|_| true);
        assert_eq!(bucket.memory(), 0, "one alone needs no array");
        check(&bucket, [3]);
    }

    #[test]
    fn shrunk_it_is_as_few_chunks_as_can_be() {
        let mut bucket = bucket(8 * CHUNK);
        retain(&mut bucket, |index| index % 4 == 0);
        assert_eq!(bucket.chunks(), 8);
        bucket.shrink(|entry| entry.index % 8 == 0);
        assert_eq!(bucket.chunks(), 1);
        check(&bucket, (0..8 * CHUNK as u32).filter(|index| index % 8 == 0));
    }

    #[test]
    fn chunks_are_taken_out_from_the_first_on() {
        let mut bucket = bucket(2 * CHUNK + 5);
        for (first, len) in [(0, CHUNK), (CHUNK, CHUNK), (2 * CHUNK, 5), (0, 0)] {
            let chunk = bucket.pop_chunk();
            assert_eq!(chunk.len(), len);
            assert!(chunk.first().is_none_or(|entry| entry.index == first as u32));
            let end = 2 * CHUNK + 5;
            check(&bucket, (first + len) as u32..if len == 0 { 0 } else { end as u32 });
        }
    }

    /// The earliest is asked for again and again while it is cancelled and others are put in: the
    /// answers are those of a search, and the bucket is sorted in between.
    #[test]
    fn the_earliest_is_right_before_and_after_sorting() {
        let mut arena = Arena::new();
        let mut bucket = Bucket::default();
        let mut live = Vec::new();
        let mut numbers = (0_u64..).map(|at| at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52);
        let mut schedule = |bucket: &mut Bucket, arena: &mut Arena<()>, live: &mut Vec<_>| {
            let (key, entry) = arena.insert(numbers.next().expect("for ever"), ());
            bucket.push(entry);
            live.push((entry.deadline, live.len(), entry.stamp, key));
        };
        for _ in 0..20 * CHUNK {
            schedule(&mut bucket, &mut arena, &mut live);
        }
        let (mut stale, mut has_sorted) = (0, 0);
        for turn in 0..40 * CHUNK {
            if turn % 3 == 0 {
                schedule(&mut bucket, &mut arena, &mut live);
            }
            let entry = bucket.earliest(&arena, &mut stale);
            let expected = live.iter().min_by_key(|(deadline, at, ..)| (deadline, at));
            let Some(&(deadline, _, stamp, key)) = expected else {
                assert!(entry.is_none());
                break;
            };
            let found = entry.map(|entry| (entry.deadline, entry.stamp));
            assert_eq!(found, Some((deadline, stamp)), "turn {turn}");
            live.retain(|&(.., other)| other != key);
            // The places are in the order in which they were put in.
            live.iter_mut().enumerate().for_each(|(at, live)| live.1 = at);
            arena.remove(key);
            stale += 1;
            if let Some(full) = &bucket.full {
                has_sorted += usize::from(full.looked == 0 && 0 < full.sorted);
            }
            if turn % 100 == 0 {
                bucket.check();
                let entries = bucket.iter().filter(|&entry| arena.is_stale(entry)).count();
                assert_eq!(entries, stale, "stale entries are counted");
            }
        }
        assert!(SORTED_AFTER < has_sorted, "it was sorted");
    }

    #[test]
    fn what_is_sorted_stays_sorted_as_chunks_come_and_go() {
        let arena = Arena::<()>::new();
        let mut stale = 0;
        for gone in 0..6 {
            let mut bucket = Bucket::default();
            for index in 0..6 * CHUNK as u32 {
                bucket.push(entry(index, (index as u64).wrapping_mul(0x9e37_79b9) % 5000));
            }
            bucket.sort(|_| true);
            assert!(bucket.full.as_ref().is_some_and(|full| full.sorted == 5));
            assert!(bucket.retain_chunk(gone, |_| false));
            bucket.check();
            bucket.pop_chunk();
            bucket.check();
            bucket.push(entry(0, 0));
            bucket.check();
        }
        let mut bucket = Bucket::default();
        assert!(bucket.earliest(&arena, &mut stale).is_none());
    }
}
