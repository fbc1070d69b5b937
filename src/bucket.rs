//! Bucket: the first-in-first-out list both modes share.

use crate::arena::{Arena, Entry};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use smallvec::SmallVec;

/// Entries that are kept together, and so are copied at most when a bucket grows.
pub(crate) const CHUNK: usize = 512;

pub(crate) type Chunk = SmallVec<[Entry; 1]>;

/// The timeouts that come up together, in the order in which they were put in.
///
/// Chunks of entries: so there is never much to be copied when it grows, and it can be taken apart a
/// chunk at a time.
#[derive(Debug, Default)]
pub(crate) struct Bucket {
    /// The chunks before the last one; none of them is empty. Boxed, as few buckets have any.
    #[expect(clippy::box_collection, reason = "a bucket is a third smaller so")]
    full: Option<Box<VecDeque<Chunk>>>,
    /// Not empty unless the bucket is.
    last: Chunk,
}

impl Bucket {
    /// Appends an entry.
    #[inline]
    pub(crate) fn push(&mut self, entry: Entry) {
        if CHUNK <= self.last.len() {
            self.begin_chunk();
        }
        self.last.push(entry);
    }

    /// Appends entries, in order.
    pub(crate) fn extend(&mut self, mut entries: &[Entry]) {
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
        self.full.get_or_insert_default().push_back(full);
    }

    /// Makes room for so many entries, or one chunk of them, in a bucket that is empty.
    pub(crate) fn reserve(&mut self, entries: usize) {
        if self.last.is_empty() {
            self.last.reserve_exact(entries.min(CHUNK));
        }
    }

    /// The entry of a bucket that has one only.
    pub(crate) fn only(&self) -> Option<Entry> {
        match (&self.full, self.last.as_slice()) {
            (None, &[entry]) => Some(entry),
            _ => None,
        }
    }

    /// The last entry.
    #[inline]
    pub(crate) fn last(&self) -> Option<Entry> {
        self.last.last().copied()
    }

    /// Takes out the first chunk; an empty one if there is none.
    pub(crate) fn pop_chunk(&mut self) -> Chunk {
        let Some(full) = &mut self.full else { return core::mem::take(&mut self.last) };
        let chunk = full.pop_front().unwrap_or_default();
        if full.is_empty() {
            self.full = None;
        }
        chunk
    }

    /// Reads so many chunks ahead, the first ones.
    pub(crate) fn prefetch(&self, chunks: usize) {
        let entries = (0..chunks.min(self.chunks())).flat_map(|at| {
            // One of each cache line.
            self.chunk(at).iter().step_by(64 / size_of::<Entry>())
        });
        core::hint::black_box(entries.fold(0, |sum, entry| sum ^ entry.index));
    }

    /// How many chunks there are; at least 1.
    #[inline]
    pub(crate) fn chunks(&self) -> usize {
        self.full.as_ref().map_or(0, |full| full.len()) + 1
    }

    /// The entries of chunk `at`.
    pub(crate) fn chunk(&self, at: usize) -> &[Entry] {
        self.full.as_ref().and_then(|full| full.get(at)).unwrap_or(&self.last)
    }

    /// Drops the entries of chunk `at` that are not to be kept, and returns the number of the chunk
    /// that follows; the number of chunks if that was the last one.
    ///
    /// A chunk that has become empty is gone, and so is one that fits into the one before it.
    pub(crate) fn retain_chunk(&mut self, at: usize, mut keep: impl FnMut(Entry) -> bool) -> usize {
        let before = self.chunks() - 1;
        let chunk = match &mut self.full {
            Some(full) if at < before => &mut full[at],
            _ => &mut self.last,
        };
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
        self.close_up(at, kept)
    }

    /// Puts chunk `at`, of `len` entries, into the one before it, if it fits in there, and drops it
    /// if it is empty.
    fn close_up(&mut self, at: usize, len: usize) -> usize {
        let Some(full) = &mut self.full else { return 1 };
        let fits = match at.checked_sub(1) {
            Some(before) => full[before].len() + len <= CHUNK,
            None => len == 0,
        };
        if !fits {
            return at + 1;
        }
        let chunk = match full.remove(at) {
            Some(chunk) => chunk,
            None => {
                let before = full.pop_back().unwrap_or_default();
                core::mem::replace(&mut self.last, before)
            }
        };
        if !chunk.is_empty() {
            let before = full.get_mut(at - 1).unwrap_or(&mut self.last);
            before.extend_from_slice(&chunk);
        }
        if full.is_empty() {
            self.full = None;
        }
        at
    }

    /// Drops the entries that are not to be kept.
    fn retain(&mut self, mut keep: impl FnMut(Entry) -> bool) {
        let mut chunk = 0;
        while chunk < self.chunks() {
            chunk = self.retain_chunk(chunk, &mut keep);
        }
    }

    /// The entries, in order.
    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = Entry> {
        let full = self.full.iter().flat_map(|full| full.iter());
        full.chain([&self.last]).flatten().copied()
    }

    /// The earliest deadline if it is before `bound`, and the first entry that has it, given that
    /// none is before `from` or after `latest`.
    pub(crate) fn earliest<T>(
        &self,
        from: u64,
        latest: u64,
        bound: Option<u64>,
        arena: &Arena<T>,
    ) -> Option<(u64, Entry)> {
        let is_near = latest - from <= u32::MAX.into();
        let (mut earliest, mut bound) = (None, bound);
        for entry in self.iter() {
            let Some(deadline) = entry.deadline(from, is_near, arena) else { continue };
            if bound.is_none_or(|bound| deadline < bound) && !arena.is_stale(entry) {
                earliest = Some((deadline, entry));
                bound = Some(deadline);
            }
        }
        earliest
    }

    /// Drops the entries that are not to be kept, and gives back the memory the others do not need.
    pub(crate) fn shrink(&mut self, keep: impl FnMut(Entry) -> bool) {
        self.retain(keep);
        for chunk in self.full.iter_mut().flat_map(|full| full.iter_mut()) {
            chunk.shrink_to_fit();
        }
        if let Some(full) = &mut self.full {
            full.shrink_to_fit();
        }
        self.last.shrink_to_fit();
    }

    /// How many entries there are; looks at each chunk.
    pub(crate) fn len(&self) -> usize {
        let full = self.full.iter().flat_map(|full| full.iter());
        full.chain([&self.last]).map(|chunk| chunk.len()).sum()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.last.is_empty()
    }

    /// Bytes allocated.
    pub(crate) fn memory(&self) -> usize {
        let array = |chunk: &Chunk| match chunk.spilled() {
            true => chunk.capacity() * size_of::<Entry>(),
            false => 0,
        };
        let list = self.full.as_ref().map_or(0, |full| {
            size_of::<VecDeque<Chunk>>()
                + full.capacity() * size_of::<Chunk>()
                + full.iter().map(array).sum::<usize>()
        });
        array(&self.last) + list
    }

    /// Panics unless the chunks are in order, and entries that are not stale know their deadlines.
    pub(crate) fn check<T>(&self, arena: &Arena<T>) {
        match &self.full {
            Some(full) => {
                assert!(!full.is_empty() && !self.last.is_empty(), "no chunk is empty");
                assert!(full.iter().all(|chunk| !chunk.is_empty()), "no chunk is empty");
            }
            None if self.is_empty() => assert_eq!(self.memory(), 0, "an empty bucket holds none"),
            None => {}
        }
        self.iter().for_each(|entry| entry.check(arena));
    }
}

#[cfg(test)]
mod tests {
    use super::{Bucket, CHUNK};
    use crate::arena::Entry;
    use alloc::vec::Vec;

    /// A bucket of entries numbered from 0, in chunks as full as can be.
    fn bucket(entries: usize) -> Bucket {
        let mut bucket = Bucket::default();
        for index in 0..entries as u32 {
            bucket.push(Entry::new(index, 0, 0));
        }
        bucket
    }

    fn indices(bucket: &Bucket) -> Vec<u32> {
        bucket.iter().map(|entry| entry.index).collect()
    }

    /// Panics unless the bucket is in order and holds what it should.
    fn check(bucket: &Bucket, expected: impl IntoIterator<Item = u32>) {
        bucket.check::<()>(&crate::arena::Arena::new());
        let expected: Vec<_> = expected.into_iter().collect();
        assert_eq!(indices(bucket), expected);
        assert_eq!(bucket.len(), expected.len());
        assert_eq!(bucket.is_empty(), expected.is_empty());
        let chunks = (0..bucket.chunks()).map(|at| bucket.chunk(at).len());
        assert!(chunks.clone().all(|len| len <= CHUNK));
        assert_eq!(chunks.sum::<usize>(), expected.len());
    }

    /// Goes through all chunks, each by the number that the call before returned, and shows `keep`
    /// every entry.
    fn retain(bucket: &mut Bucket, mut keep: impl FnMut(u32) -> bool) {
        let mut seen = Vec::new();
        let all = indices(bucket);
        let mut at = 0;
        while at < bucket.chunks() {
            at = bucket.retain_chunk(at, |entry| {
                seen.push(entry.index);
                keep(entry.index)
            });
        }
        assert_eq!(at, bucket.chunks(), "the last chunk is followed by none");
        assert_eq!(seen, all, "each entry is shown once, in order");
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
            bucket.push(Entry::new(entries, 0, 0));
            check(&bucket, (0..=entries).filter(|&index| index == entries || keep(index)));
        }
    }

    #[test]
    fn chunks_that_fit_into_one_are_merged() {
        let mut bucket = bucket(8 * CHUNK);
        retain(&mut bucket, |index| index % 4 == 0);
        assert_eq!(bucket.chunks(), 2);
        retain(&mut bucket, |index| index % 64 == 0);
        assert_eq!(bucket.chunks(), 1);
        retain(&mut bucket, |_| false);
        assert_eq!((bucket.chunks(), bucket.memory()), (1, 0));
    }

    #[test]
    fn a_chunk_that_does_not_fit_stays() {
        let mut bucket = bucket(2 * CHUNK);
        let spared = CHUNK as u32 / 2;
        assert_eq!(bucket.retain_chunk(0, |entry| entry.index < spared + 1), 1);
        assert_eq!(bucket.retain_chunk(1, |entry| entry.index % 2 == 0), 2);
        assert_eq!((bucket.chunks(), bucket.len()), (2, CHUNK + 1));
        assert_eq!(bucket.retain_chunk(0, |entry| entry.index < spared), 1);
        assert_eq!(bucket.retain_chunk(1, |_| true), 1, "now it fits");
        assert_eq!((bucket.chunks(), bucket.len()), (1, CHUNK));
    }

    #[test]
    fn the_first_chunk_and_the_last_may_vanish() {
        for gone in 0..3 {
            let mut bucket = bucket(3 * CHUNK);
            let next = bucket.retain_chunk(gone, |_| false);
            assert_eq!((next, bucket.chunks()), (gone, 2));
            check(
                &bucket,
                (0..3 * CHUNK as u32).filter(|index| index / CHUNK as u32 != gone as u32),
            );
        }
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
    fn one_is_the_only_one_if_there_is_no_chunk_before() {
        let is_alone = |entries| bucket(entries).only().is_some();
        let alone = [0, 1, 2, CHUNK, CHUNK + 1, 2 * CHUNK + 1].map(is_alone);
        assert_eq!(alone, [false, true, false, false, false, false]);
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
}
