//! Bucket: the first-in-first-out list that both modes share.

use super::arena::{Arena, Entry};
use crate::steps;
use alloc::boxed::Box;
use alloc::collections::{BinaryHeap, VecDeque};
use core::cmp::Reverse;
use smallvec::SmallVec;

pub(super) type Chunk = SmallVec<[Entry; 1]>;

/// The timeouts that come up together. Those of equal deadlines are in the order in which they were
/// put in.
///
/// A bucket is made of chunks of entries. So it never copies much when it grows, and a visit can
/// take it apart a chunk at a time.
#[derive(Debug, Default)]
pub(super) struct Bucket {
    /// What only a bucket of many has. Boxed, because few have many.
    many: Option<Box<Many>>,
    /// The last chunk, which is empty only if the bucket is.
    last: Chunk,
}

/// The chunks of a bucket before the last one, and what is known of all.
#[derive(Debug, Default)]
struct Many {
    chunks: VecDeque<Numbered>,
    /// The number of entries in all of `chunks`.
    len: usize,
    /// The number of the next chunk.
    next: u64,
    /// A tick and the number of its chunk, for each chunk below `looked`: nothing in the chunk is
    /// due before that tick. Some are of chunks that are gone.
    looks: BinaryHeap<Reverse<(u64, u64)>>,
    /// The number from which on `earliest` has looked at no chunk.
    looked: u64,
    /// What `earliest` knows of the last chunk of the bucket.
    seen: Option<Seen>,
}

/// A look at the first `len` entries of the last chunk. Others are put in behind them, and what
/// takes one of them out says so.
#[derive(Debug)]
struct Seen {
    len: usize,
    firsts: Firsts,
}

/// For each block of entries of a chunk, the one that comes first, but for some that are stale.
#[derive(Debug)]
struct Firsts {
    each: [Entry; CHUNK / BLOCK],
    /// The block whose entry comes first.
    at: usize,
}

/// A chunk before the last one, which is not empty. Numbers rise from chunk to chunk.
#[derive(Debug)]
struct Numbered {
    number: u64,
    entries: Chunk,
    /// None where `earliest` has not looked since the entries came to their places.
    firsts: Option<Box<Firsts>>,
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
        let is_it = |last: &Entry| last.is(index, stamp);
        let is_back = 1 < self.last.len() && self.last.last().is_some_and(is_it);
        if is_back {
            self.last.pop();
            if let Some(many) = &mut self.many {
                many.take_back(index, stamp, &self.last);
            }
        }
        is_back
    }

    /// Takes out the only entry if it has this index and stamp. Returns whether it did.
    pub(super) fn take_alone(&mut self, index: u32, stamp: u32) -> bool {
        let is_it = matches!(self.last.as_slice(), [only] if only.is(index, stamp));
        let is_taken = self.chunks() == 1 && is_it;
        if is_taken {
            *self = Self::default();
        }
        is_taken
    }

    /// Appends entries, in order.
    pub(super) fn extend(&mut self, mut entries: &[Entry]) {
        steps::count(entries.len());
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
        let entries = core::mem::replace(&mut self.last, Chunk::with_capacity(CHUNK));
        let many = self.many.get_or_insert_default();
        many.len += entries.len();
        // What is known of it stays known, or where one is put in and goes again, each would cost a
        // look at all of the chunk.
        let is_known = |seen: &Seen| seen.len == entries.len();
        let firsts = many.seen.take().filter(is_known).map(|seen| Box::new(seen.firsts));
        if let Some(firsts) = firsts.as_ref().filter(|_| many.looked == many.next) {
            many.looks.push(Reverse((firsts.each[firsts.at].deadline, many.next)));
            many.looked += 1;
        }
        many.chunks.push_back(Numbered { number: many.next, entries, firsts });
        many.next += 1;
    }

    /// Makes room for `entries`, but at most for one chunk, if the bucket is empty.
    pub(super) fn reserve(&mut self, entries: usize) {
        if self.last.is_empty() {
            self.last.reserve_exact(entries.min(CHUNK));
        }
    }

    /// Takes out the first chunk, which is empty if the bucket is.
    pub(super) fn pop_chunk(&mut self) -> Chunk {
        if self.many.is_none() { core::mem::take(&mut self.last) } else { self.remove_chunk(0) }
    }

    /// Takes out chunk `at`.
    fn remove_chunk(&mut self, at: usize) -> Chunk {
        let Some(many) = &mut self.many else { return core::mem::take(&mut self.last) };
        steps::count(1 + moves(at, many.chunks.len()));
        let chunk = match many.chunks.remove(at) {
            Some(chunk) => {
                many.len -= chunk.entries.len();
                chunk.entries
            }
            None => {
                let last = many.chunks.pop_back();
                let (last, firsts) =
                    last.map_or_else(Default::default, |it| (it.entries, it.firsts));
                many.len -= last.len();
                many.seen = firsts.map(|firsts| Seen { len: last.len(), firsts: *firsts });
                core::mem::replace(&mut self.last, last)
            }
        };
        if many.chunks.is_empty() {
            match many.seen.take() {
                None => self.many = None,
                seen => **many = Many { seen, ..Many::default() },
            }
        } else if many.chunks.len() <= FEW_CHUNKS && many.chunks.capacity() > 4 * many.chunks.len()
        {
            // Once for many that were taken out, and while there is little to move.
            many.chunks.shrink_to(2 * many.chunks.len());
            many.forget_looks();
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
        self.many.as_ref().map_or(0, |many| many.chunks.len()) + 1
    }

    /// Returns the entries of chunk `at`.
    pub(super) fn chunk(&self, at: usize) -> &[Entry] {
        let chunk = self.many.as_ref().and_then(|many| many.chunks.get(at));
        chunk.map_or(&self.last, |chunk| &chunk.entries)
    }

    /// Drops the entries of chunk `at` that `keep` rejects, and the chunk if none is left. Returns
    /// whether the chunk is gone; chunk `at` is then the one that followed.
    pub(super) fn retain_chunk(&mut self, at: usize, keep: impl FnMut(Entry) -> bool) -> bool {
        let chunk = match self.many.as_mut().and_then(|many| many.chunks.get_mut(at)) {
            Some(chunk) => {
                chunk.firsts = None;
                &mut chunk.entries
            }
            None => &mut self.last,
        };
        let before = chunk.len();
        retain(chunk, keep);
        let dropped = before - chunk.len();
        let is_gone = chunk.is_empty();
        if let Some(many) = &mut self.many {
            // Or what was seen could outlive its stamp.
            many.seen = None;
        }
        if let Some(many) = self.many.as_mut().filter(|many| at < many.chunks.len()) {
            many.len -= dropped;
        }
        if is_gone {
            self.remove_chunk(at);
        }
        is_gone
    }

    /// Puts the chunk that follows chunk `at` behind its entries, if there is one and it fits.
    /// Returns the number of entries that were moved.
    pub(super) fn merge(&mut self, at: usize) -> usize {
        if self.chunks() <= at + 1 || CHUNK < self.chunk(at).len() + self.chunk(at + 1).len() {
            return 0;
        }
        let next = self.remove_chunk(at + 1);
        steps::count(next.len());
        match &mut self.many {
            Some(many) if at < many.chunks.len() => {
                let Numbered { number, entries, firsts } = &mut many.chunks[at];
                if let (true, Some((_, first))) = (*number < many.looked, earliest(&next)) {
                    many.looks.push(Reverse((first.deadline, *number)));
                }
                entries.extend_from_slice(&next);
                many.len += next.len();
                *firsts = None;
                many.limit_looks();
            }
            _ => self.last.extend_from_slice(&next),
        }
        next.len()
    }

    /// Returns the entries, in order.
    #[inline]
    pub(super) fn iter(&self) -> impl Iterator<Item = Entry> {
        self.all().flatten().copied()
    }

    /// Returns a tick before which nothing in the bucket is due, the last tick if the bucket is
    /// empty, and the first of the entries that are due then, if it is known: it is unless the tick
    /// is after `until`. Nothing in the bucket is due before `noted`. Drops stale entries that would
    /// come first, and counts them down in `stale`. Returns None if `work` ends before; the next
    /// call goes on from there.
    ///
    /// The call looks at each chunk once, and from then on at a block of the one that seems to come
    /// first, and at what is new in the last one. So cancelling the earliest and asking, again and
    /// again, costs O(log n) each.
    pub(super) fn earliest<T>(
        &mut self,
        noted: u64,
        until: u64,
        arena: &Arena<T>,
        stale: &mut usize,
        work: &mut usize,
    ) -> Option<(u64, Option<Entry>)> {
        let mut first = (u64::MAX, None);
        while let Some(many) = &mut self.many {
            let Some(look) = many.next_look() else { break };
            if let Some(later) = look.noted.filter(|&tick| until < tick) {
                first = (later, None);
                break;
            }
            if *work == 0 {
                return None;
            }
            *work = work.saturating_sub(1);
            let at = many.place(look.number);
            let found = match at.map(|at| many.look(at, look.noted.unwrap_or(0), arena, work)) {
                Some(Ok(live)) => {
                    first = (live.deadline, Some(live));
                    break;
                }
                Some(Err(tick)) => tick,
                None => None,
            };
            many.note(&look, found);
            if let (None, Some(at)) = (found, at) {
                *stale -= self.chunk(at).len();
                self.remove_chunk(at);
                *work = work.saturating_sub(moves(at, self.chunks()));
            }
        }
        if first.1.is_some_and(|live| live.deadline <= noted) {
            // What the last chunk has comes after it.
            return Some(first);
        }
        if first.1.is_none() && *work == 0 {
            // The looks are noted, so the next call begins with the last chunk.
            return None;
        }
        let last = self.earliest_of_last(until, arena, stale, work)?;
        let is_last = last.0 < first.0 || last.0 == first.0 && first.1.is_none();
        Some(if is_last { last } else { first })
    }

    /// As `earliest`, of the last chunk.
    fn earliest_of_last<T>(
        &mut self,
        until: u64,
        arena: &Arena<T>,
        stale: &mut usize,
        work: &mut usize,
    ) -> Option<(u64, Option<Entry>)> {
        while FEW < self.last.len() || self.many.is_some() {
            let many = self.many.get_or_insert_default();
            match many.look_at_last(&self.last, until, arena, work) {
                Ok(live) => return Some((live.deadline, Some(live))),
                Err(Some(tick)) => return (until < tick).then_some((tick, None)),
                Err(None) => {
                    *stale -= self.last.len();
                    self.remove_chunk(self.chunks() - 1);
                    if *work == 0 && !self.is_empty() {
                        return None;
                    }
                }
            }
        }
        let mut met_stale = false;
        while let Some((at, first)) = earliest(&self.last) {
            let is_paid = 0 < *work;
            *work = work.saturating_sub(self.last.len());
            if until < first.deadline {
                return Some((first.deadline, None));
            }
            if !arena.is_stale(first) {
                return Some((first.deadline, Some(first)));
            }
            if !is_paid {
                return None;
            }
            // Mostly the next one is live. If it is not, many may be stale, so all go that are.
            let entries = self.last.len();
            match met_stale {
                false => {
                    self.last.remove(at);
                    give_back(&mut self.last);
                }
                true => retain(&mut self.last, |entry| !arena.is_stale(entry)),
            }
            *stale -= entries - self.last.len();
            met_stale = true;
        }
        *self = Self::default();
        Some((u64::MAX, None))
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
        if let Some(many) = &mut kept.many {
            many.chunks.shrink_to_fit();
        }
        kept.last.shrink_to_fit();
        *self = kept;
    }

    /// Returns the number of entries.
    pub(super) fn len(&self) -> usize {
        self.many.as_ref().map_or(0, |many| many.len) + self.last.len()
    }

    /// Returns the chunks, in order.
    #[inline]
    fn all(&self) -> impl Iterator<Item = &Chunk> {
        let many = self.many.iter().flat_map(|many| &many.chunks);
        many.map(|chunk| &chunk.entries).chain([&self.last])
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
        let list = self.many.as_ref().map_or(0, |many| {
            size_of::<Many>()
                + many.chunks.capacity() * size_of::<Numbered>()
                + many.chunks.iter().filter(|chunk| chunk.firsts.is_some()).count()
                    * size_of::<Firsts>()
                + many.looks.capacity() * size_of::<Reverse<(u64, u64)>>()
        });
        self.all().map(array).sum::<usize>() + list
    }

    /// Panics unless the chunks are in order.
    pub(super) fn check<T>(&self, arena: &Arena<T>) {
        let Some(many) = &self.many else {
            assert!(!self.is_empty() || self.memory() == 0, "an empty bucket holds none");
            return;
        };
        assert_eq!(self.len(), self.iter().count(), "entries are counted");
        assert!(self.all().all(|chunk| !chunk.is_empty()), "none is empty");
        assert!(many.chunks.iter().is_sorted_by(|a, b| a.number < b.number), "numbers rise");
        assert!(many.chunks.iter().all(|chunk| chunk.number < many.next), "the next is new");
        let check_firsts = |firsts: &Firsts, entries: &[Entry]| {
            for (first, block) in firsts.each.iter().zip(entries.chunks(BLOCK)) {
                let at = block.iter().position(|entry| entry.is(first.index, first.stamp));
                let is_nothing = first.index == NOTHING.index;
                assert!(at.is_some() || is_nothing, "it is there");
                let is_one = first.index != NOTHING.index;
                for (place, &entry) in block.iter().enumerate() {
                    let is_after = (first.deadline, at) <= (entry.deadline, Some(place));
                    assert!(is_one && is_after || arena.is_stale(entry), "none comes before");
                }
            }
        };
        if let Some(seen) = &many.seen {
            check_firsts(&seen.firsts, &self.last[..seen.len]);
        }
        for Numbered { number, entries, firsts } in &many.chunks {
            firsts.iter().for_each(|firsts| check_firsts(firsts, entries));
            if many.looked <= *number {
                continue;
            }
            let looks = many.looks.iter().filter(|look| look.0.1 == *number);
            let noted = looks.map(|look| look.0.0).min().unwrap_or(u64::MAX);
            let is_known = |&entry: &Entry| noted <= entry.deadline || arena.is_stale(entry);
            assert!(entries.iter().all(is_known), "what comes first is noted");
        }
    }
}

/// What `earliest` is to look at: a chunk before the last one, which may be gone.
struct Look {
    number: u64,
    /// The tick before which nothing in the chunk is due, if it was looked at before.
    noted: Option<u64>,
}

impl Many {
    /// Returns the first chunk that was not looked at, or else the one that seems to come first.
    fn next_look(&mut self) -> Option<Look> {
        self.limit_looks();
        if self.chunks.back().is_some_and(|last| self.looked <= last.number) {
            let new = self.chunks.partition_point(|chunk| chunk.number < self.looked);
            return Some(Look { number: self.chunks[new].number, noted: None });
        }
        let &Reverse((noted, number)) = self.looks.peek()?;
        Some(Look { number, noted: Some(noted) })
    }

    /// Forgets all looks if there are too many.
    fn limit_looks(&mut self) {
        if LOOKS_PER_CHUNK * (self.chunks.len() + CHUNK) < self.looks.len() {
            (self.looks, self.looked) = (BinaryHeap::new(), 0);
        }
    }

    /// Forgets the looks at chunks that are gone.
    fn forget_looks(&mut self) {
        self.limit_looks();
        steps::count(self.looks.len());
        let mut looks = core::mem::take(&mut self.looks);
        looks.retain(|look| self.place(look.0.1).is_some());
        looks.shrink_to_fit();
        self.looks = looks;
    }

    /// Returns the place of a chunk, if it is still there.
    fn place(&self, number: u64) -> Option<usize> {
        // Mostly no chunk is gone between the first one and this one.
        let guess = number.wrapping_sub(self.chunks.front()?.number) as usize;
        match self.chunks.get(guess) {
            Some(chunk) if chunk.number == number => Some(guess),
            _ => self.chunks.binary_search_by_key(&number, |chunk| chunk.number).ok(),
        }
    }

    /// Returns the live entry that comes first in chunk `at`, if it is due by `until`. Otherwise
    /// returns the tick to note: nothing in the chunk is due before. None if all of its entries are
    /// stale.
    fn look<T>(
        &mut self,
        at: usize,
        until: u64,
        arena: &Arena<T>,
        work: &mut usize,
    ) -> Result<Entry, Option<u64>> {
        let Numbered { entries, firsts, .. } = &mut self.chunks[at];
        let firsts = firsts.get_or_insert_with(|| {
            let mut firsts = Box::new(Firsts::NOTHING);
            firsts.add(entries, 0, work);
            firsts
        });
        firsts.first(entries, until, arena, work)
    }

    /// Returns the live entry that comes first in the last chunk, which has these entries, if it is
    /// due by `until`. Otherwise returns a tick as `look` does.
    fn look_at_last<T>(
        &mut self,
        entries: &[Entry],
        until: u64,
        arena: &Arena<T>,
        work: &mut usize,
    ) -> Result<Entry, Option<u64>> {
        let seen = self.seen.get_or_insert(Seen::NOTHING);
        seen.firsts.add(entries, seen.len, work);
        seen.len = entries.len();
        seen.firsts.first(entries, until, arena, work)
    }

    /// Keeps what was seen of the last chunk, whose last entry had this index and stamp and was
    /// taken out, so that these entries are left.
    fn take_back(&mut self, index: u32, stamp: u32, entries: &[Entry]) {
        let seen = self.seen.as_mut().filter(|seen| entries.len() < seen.len);
        let Some(seen) = seen else { return };
        seen.len = entries.len();
        let block = entries.len() / BLOCK;
        if seen.firsts.each[block].is(index, stamp) {
            // No sweep comes by, so it could outlive its stamp.
            let left = earliest(&entries[block * BLOCK..]);
            seen.firsts.note(block, left.map(|(_, first)| first));
        }
    }

    /// Notes the tick before which nothing in a chunk is due, or that all in it is stale.
    fn note(&mut self, look: &Look, noted: Option<u64>) {
        let new = noted.map(|noted| Reverse((noted, look.number)));
        match (look.noted, new) {
            (None, _) => {
                self.looked = look.number + 1;
                self.looks.extend(new);
            }
            (Some(_), None) => _ = self.looks.pop(),
            (Some(_), Some(new)) => {
                if let Some(mut first) = self.looks.peek_mut() {
                    *first = new;
                }
            }
        }
    }
}

impl Seen {
    const NOTHING: Self = Self { len: 0, firsts: Firsts::NOTHING };
}

impl Firsts {
    const NOTHING: Self = Self { each: [NOTHING; CHUNK / BLOCK], at: 0 };

    /// Looks at the entries from place `from` on.
    fn add(&mut self, entries: &[Entry], mut from: usize, work: &mut usize) {
        *work = work.saturating_sub(entries.len() - from);
        while from < entries.len() {
            let (at, to) = (from / BLOCK, entries.len().min((from / BLOCK + 1) * BLOCK));
            let Some((_, new)) = earliest(&entries[from..to]) else { return };
            if new.comes_before(self.each[at]) {
                self.each[at] = new;
                if new.comes_before(self.each[self.at]) {
                    self.at = at;
                }
            }
            from = to;
        }
    }

    /// Notes what comes first in a block.
    fn note(&mut self, block: usize, first: Option<Entry>) {
        self.each[block] = first.unwrap_or(NOTHING);
        self.at = first_by(&self.each, |first| first.deadline).unwrap_or(0);
        if self.each[self.at].deadline == u64::MAX {
            let is_there = |first: &Entry| first.index != NOTHING.index;
            self.at = self.each.iter().position(is_there).unwrap_or(0);
        }
    }

    /// Returns the live entry that comes first, if it is due by `until` and `work` does not end
    /// before. Otherwise returns a tick before which nothing is due. None if all entries are stale.
    fn first<T>(
        &mut self,
        entries: &[Entry],
        until: u64,
        arena: &Arena<T>,
        work: &mut usize,
    ) -> Result<Entry, Option<u64>> {
        let mut passed = 0;
        loop {
            let first = self.each[self.at];
            let tick = first.deadline;
            if first.index == NOTHING.index {
                return Err(None);
            }
            if until < tick || FEWEST <= passed && *work == 0 {
                return Err(Some(tick));
            }
            // While the processor waits for the slot, it reads the block too, which is looked at as
            // soon as this timeout is gone.
            let block = entries.chunks(BLOCK).nth(self.at).unwrap_or_default();
            if !arena.is_stale(first) {
                let lines = block.iter().step_by(64 / size_of::<Entry>());
                core::hint::black_box(lines.fold(0, |sum, entry| sum ^ entry.index));
                return Ok(first);
            }
            *work = work.saturating_sub(block.len());
            // Mostly the next one is live. If it is not, many may be stale, so all slots of a block
            // are read.
            let next = match passed {
                0 => after(tick, block, arena),
                _ => first_live(block, arena),
            };
            passed += 1;
            self.note(self.at, next);
        }
    }
}

impl Entry {
    /// Returns whether it comes before an entry that was put in earlier, or that is none.
    fn comes_before(self, other: Self) -> bool {
        self.deadline < other.deadline || other.index == NOTHING.index
    }
}

/// Returns the work of taking chunk `at` out where `chunks` are left: those on one side move up.
pub(super) fn moves(at: usize, chunks: usize) -> usize {
    at.min(chunks - at) / MOVED
}

/// Returns the place of the first of the entries with the earliest deadline, and that entry.
fn earliest(entries: &[Entry]) -> Option<(usize, Entry)> {
    let at = first_by(entries, |entry| entry.deadline)?;
    Some((at, entries[at]))
}

/// Returns the first of the entries that are due at `tick` or later, but for stale ones at `tick`.
fn after<T>(tick: u64, entries: &[Entry], arena: &Arena<T>) -> Option<Entry> {
    // Those that are due before come last.
    let distance = |entry: &Entry| match entry.deadline.wrapping_sub(tick) {
        0 if arena.is_stale(*entry) => u64::MAX,
        distance => distance,
    };
    let next = entries[first_by(entries, distance)?];
    (tick < next.deadline || distance(&next) == 0).then_some(next)
}

/// Returns the first of the live entries with the earliest deadline.
fn first_live<T>(entries: &[Entry], arena: &Arena<T>) -> Option<Entry> {
    steps::count(entries.len());
    let live = entries.iter().filter(|&&entry| !arena.is_stale(entry));
    live.min_by_key(|entry| entry.deadline).copied()
}

/// Returns the place of the first of the entries with the smallest key.
#[inline]
fn first_by(entries: &[Entry], key: impl Fn(&Entry) -> u64) -> Option<usize> {
    steps::count(entries.len());
    let keys = entries.iter().map(key).enumerate();
    keys.min_by_key(|&(_, key)| key).map(|(at, _)| at)
}

/// Drops the entries of a chunk that `keep` rejects, and the room that is far too much then.
fn retain(chunk: &mut Chunk, mut keep: impl FnMut(Entry) -> bool) {
    steps::count(chunk.len());
    let entries = chunk.as_mut_slice();
    let mut kept = entries.iter().position(|&entry| !keep(entry)).unwrap_or(entries.len());
    for next in kept + 1..entries.len() {
        let entry = entries[next];
        entries[kept] = entry;
        kept += usize::from(keep(entry));
    }
    chunk.truncate(kept);
    give_back(chunk);
}

/// Gives back the room of a chunk that is far too much, unless the chunk is empty: then the caller
/// drops it.
fn give_back(chunk: &mut Chunk) {
    let entries = chunk.len();
    if 0 < entries && 4 * entries < chunk.capacity() {
        chunk.grow(2 * entries);
    }
}

/// Blocks that a call looks at, however little its work: the last of them is left without stale
/// entries that come first, so that the next calls get on.
const FEWEST: usize = 2;

/// Stands for an entry where there is none. No timeout has its place.
const NOTHING: Entry = Entry { index: u32::MAX, stamp: 0, deadline: u64::MAX };

/// The entries of one chunk, which are the most that are copied when a bucket grows.
pub(super) const CHUNK: usize = 512;

/// The entries that one look goes through, of a chunk that was looked at before.
const BLOCK: usize = 32;

/// Chunks that move up in the list of a bucket for a unit of work.
const MOVED: usize = 16;

/// Entries of an only chunk that a look goes through as a whole.
const FEW: usize = 64;

/// So few chunks that their list is cheap to move.
const FEW_CHUNKS: usize = 64;

/// Looks for each chunk that `earliest` notes before it notes all anew: some are of chunks that are
/// gone.
const LOOKS_PER_CHUNK: usize = 2;

#[cfg(test)]
mod tests {
    use super::{
        Arena, BLOCK, Bucket, CHUNK, Chunk, Entry, FEW, FEW_CHUNKS, Many, Numbered, Reverse,
    };
    use crate::wheel::Key;
    use alloc::{collections::BTreeMap, vec::Vec};
    use core::iter::repeat_n;

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
        bucket.check(&Arena::<()>::new());
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
        for gone in 0..4 {
            let mut bucket = bucket(5 * CHUNK);
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
    fn what_a_look_drops_gives_its_memory_back() {
        let (mut arena, mut bucket) = (Arena::new(), Bucket::default());
        let mut put = |deadline| {
            let (key, entry) = arena.insert(deadline, || ());
            bucket.push(entry);
            key
        };
        let keys: Vec<_> = (1..=64).map(&mut put).collect();
        let full = bucket.memory();
        keys[..61].iter().for_each(|&key| assert!(arena.remove(key, drop).is_some()));
        let mut stale = 61;
        let found = bucket.earliest(1, u64::MAX, &arena, &mut stale, &mut { usize::MAX });
        assert_eq!((found.map(|(tick, _)| tick), stale), (Some(62), 0));
        assert!(bucket.memory() <= full / 8, "{} of {full}", bucket.memory());
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

    /// The earliest is asked for again and again while it is cancelled, others are put in, and
    /// chunks are swept and merged: the answers are those of a search.
    #[test]
    fn the_earliest_is_that_of_a_search_whatever_was_done_between() {
        let mut arena = Arena::new();
        let mut bucket = Bucket::default();
        let mut live = BTreeMap::new();
        let mut numbers =
            (0_u64..).map(|at| (1 + (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52), at));
        let mut schedule =
            |bucket: &mut Bucket, arena: &mut Arena<()>, live: &mut BTreeMap<_, _>| {
                let (deadline, at) = numbers.next().expect("for ever");
                let (key, entry) = arena.insert(deadline, || ());
                bucket.push(entry);
                live.insert((deadline, at), (entry.stamp, key));
            };
        for _ in 0..20 * CHUNK {
            schedule(&mut bucket, &mut arena, &mut live);
        }
        let (mut stale, mut noted) = (0, 0);
        for turn in 0..40 * CHUNK {
            if turn % 3 == 0 {
                schedule(&mut bucket, &mut arena, &mut live);
            }
            // Now and then in many steps.
            let mut steps = 0;
            let entry = loop {
                let mut work = if turn % 7 == 0 { 1 } else { usize::MAX };
                match bucket.earliest(noted, noted, &arena, &mut stale, &mut work) {
                    Some((tick, None)) if tick < u64::MAX => {
                        assert!(noted < tick, "it gets on");
                        (noted, steps) = (tick, 0);
                    }
                    Some((_, entry)) => break entry,
                    None => {
                        assert_eq!(work, 0);
                        steps += 1;
                    }
                }
            };
            noted = 0;
            assert!(steps <= 3 * bucket.chunks(), "each step gets on");
            let Some(((deadline, _), (stamp, key))) = live.pop_first() else {
                assert!(entry.is_none() && bucket.is_empty());
                break;
            };
            let found = entry.map(|entry| (entry.deadline, entry.stamp));
            assert_eq!(found, Some((deadline, stamp)), "turn {turn}");
            arena.remove(key, drop);
            stale += 1;
            if turn % 5 == 0 {
                let at = turn % bucket.chunks();
                let is_gone = bucket.retain_chunk(at, |entry| {
                    let is_stale = arena.is_stale(entry);
                    stale -= usize::from(is_stale);
                    !is_stale
                });
                if !is_gone {
                    bucket.merge(at);
                }
            }
            if turn % 100 == 0 {
                bucket.check(&arena);
                let entries = bucket.iter().filter(|&entry| arena.is_stale(entry)).count();
                assert_eq!(entries, stale, "stale entries are counted");
            }
        }
    }

    #[test]
    fn what_was_seen_of_the_last_chunk_holds_while_its_entries_stay() {
        let mut arena = Arena::new();
        let mut bucket = Bucket::default();
        for _ in 0..CHUNK + 1 {
            bucket.push(arena.insert(9, || ()).1);
        }
        let earliest = |bucket: &mut Bucket, arena: &Arena<()>| {
            let found = bucket.earliest(0, 9, arena, &mut 0, &mut { usize::MAX });
            found.map(|(tick, _)| tick)
        };
        let (key, newest) = arena.insert(9, || ());
        bucket.push(newest);
        assert_eq!(earliest(&mut bucket, &arena), Some(9));
        assert!(bucket.take_back(newest.index, newest.stamp));
        arena.remove(key, drop);
        bucket.push(arena.insert(5, || ()).1);
        assert_eq!(earliest(&mut bucket, &arena), Some(5));
    }

    /// Puts in so many timeouts of one deadline, and returns their keys.
    fn put(bucket: &mut Bucket, arena: &mut Arena<()>, entries: usize, deadline: u64) -> Vec<Key> {
        let mut put = || {
            let (key, entry) = arena.insert(deadline, || ());
            bucket.push(entry);
            key
        };
        (0..entries).map(|_| put()).collect()
    }

    #[test]
    fn what_comes_first_is_found_where_a_part_of_a_full_chunk_was_seen() {
        let (mut arena, mut bucket) = (Arena::new(), Bucket::default());
        let mut earliest = |entries, deadline| {
            put(&mut bucket, &mut arena, entries, deadline);
            let found = bucket.earliest(0, 9, &arena, &mut 0, &mut { usize::MAX });
            bucket.check(&arena);
            found.map(|(tick, _)| tick)
        };
        assert_eq!(earliest(2 * FEW, 9), Some(9));
        put(&mut bucket, &mut arena, 1, 5);
        put(&mut bucket, &mut arena, CHUNK, 9);
        let found = bucket.earliest(0, 9, &arena, &mut 0, &mut { usize::MAX });
        assert_eq!(found.map(|(tick, _)| tick), Some(5));
    }

    #[test]
    fn what_comes_first_is_found_where_one_behind_it_was_taken_back_unseen() {
        let (mut arena, mut bucket) = (Arena::new(), Bucket::default());
        put(&mut bucket, &mut arena, 2 * FEW, 9);
        let earliest = |bucket: &mut Bucket, arena: &Arena<()>| {
            bucket.earliest(0, 9, arena, &mut 0, &mut { usize::MAX }).map(|(tick, _)| tick)
        };
        assert_eq!(earliest(&mut bucket, &arena), Some(9));
        put(&mut bucket, &mut arena, 1, 5);
        let (key, entry) = arena.insert(7, || ());
        bucket.push(entry);
        assert!(bucket.take_back(entry.index, entry.stamp));
        arena.remove(key, drop);
        bucket.check(&arena);
        assert_eq!(earliest(&mut bucket, &arena), Some(5));
    }

    #[test]
    fn what_was_seen_of_a_chunk_is_not_looked_at_again_when_it_is_full() {
        let (mut arena, mut bucket) = (Arena::new(), Bucket::default());
        put(&mut bucket, &mut arena, CHUNK - 2, 9);
        let mut looks = |bucket: &mut Bucket| {
            put(bucket, &mut arena, 1, 9);
            let (mut work, before) = (2 * CHUNK, crate::steps::steps());
            let found = bucket.earliest(0, 8, &arena, &mut 0, &mut work);
            assert_eq!(found.map(|(tick, _)| tick), Some(9));
            let (work, steps) = (2 * CHUNK - work, crate::steps::steps() - before);
            assert!(steps <= work as u64, "{steps} steps, {work} units of work");
            work
        };
        assert_eq!(looks(&mut bucket), CHUNK - 1, "all are new");
        for at in CHUNK..CHUNK + 3 {
            assert_eq!(looks(&mut bucket), 1, "{at} are there, and one is new");
        }
    }

    #[test]
    fn a_tick_that_was_asked_for_is_told_with_its_timeout_or_not_at_all() {
        let (mut arena, mut bucket) = (Arena::new(), Bucket::default());
        // Of each of three blocks the first one is gone. One is left at their tick.
        for _ in 0..3 {
            let keys = put(&mut bucket, &mut arena, 1, 5);
            keys.into_iter().for_each(|key| _ = arena.remove(key, drop));
            put(&mut bucket, &mut arena, BLOCK - 1, 9);
        }
        put(&mut bucket, &mut arena, 1, 5);
        let (mut stale, mut calls) = (3, 1);
        let found = loop {
            match bucket.earliest(5, 5, &arena, &mut stale, &mut 1) {
                Some(found) => break found,
                None => calls += 1,
            }
        };
        assert_eq!((found.0, found.1.map(|entry| entry.deadline)), (5, Some(5)));
        assert_eq!(calls, 2, "the first passes two blocks");
    }

    #[test]
    fn of_a_few_a_call_passes_one_stale_entry_when_its_work_ends() {
        let (mut arena, mut bucket) = (Arena::new(), Bucket::default());
        let stale = put(&mut bucket, &mut arena, 5, 3);
        put(&mut bucket, &mut arena, 5, 7);
        stale.into_iter().for_each(|key| _ = arena.remove(key, drop));
        let mut stale = 5;
        let found = bucket.earliest(0, u64::MAX, &arena, &mut stale, &mut 1);
        assert!(found.is_none() && (bucket.len(), stale) == (9, 4));
        let found = bucket.earliest(0, u64::MAX, &arena, &mut stale, &mut 100);
        assert_eq!((found.map(|(tick, _)| tick), stale), (Some(7), 0));
    }

    #[test]
    fn at_the_last_tick_they_come_one_after_the_other() {
        let mut arena = Arena::new();
        let mut bucket = Bucket::default();
        let mut keys = Vec::new();
        for _ in 0..2 * CHUNK + 3 {
            let (key, entry) = arena.insert(u64::MAX, || ());
            bucket.push(entry);
            keys.push((entry.stamp, key));
        }
        let mut stale = 0;
        let earliest = |bucket: &mut Bucket, arena: &Arena<()>, stale: &mut usize| loop {
            match bucket.earliest(u64::MAX, u64::MAX, arena, stale, &mut 1) {
                Some((tick, entry)) => break (tick, entry.map(|entry| entry.stamp)),
                None => assert!(!bucket.is_empty(), "its row knows nothing of that"),
            }
        };
        for (stamp, key) in keys {
            assert_eq!(earliest(&mut bucket, &arena, &mut stale), (u64::MAX, Some(stamp)));
            arena.remove(key, drop);
            stale += 1;
        }
        assert_eq!(earliest(&mut bucket, &arena, &mut stale), (u64::MAX, None));
        assert!(bucket.is_empty() && stale == 0);
        bucket.check(&arena);
    }

    /// Each of the last chunks has one entry, which is stale.
    #[test]
    fn a_call_passes_one_chunk_of_stale_entries() {
        const CHUNKS: usize = 20;
        let mut arena = Arena::new();
        let mut bucket = Bucket::default();
        let mut keys = Vec::new();
        for at in 0..CHUNKS * CHUNK {
            let (key, entry) = arena.insert(if at < CHUNK { 7 } else { 9 }, || ());
            bucket.push(entry);
            keys.push(key);
        }
        for at in 1..CHUNKS {
            bucket.retain_chunk(at, |entry| entry.index as usize % CHUNK == 0);
        }
        let earliest = |bucket: &mut Bucket, arena: &Arena<()>, stale: &mut usize| {
            bucket.earliest(0, u64::MAX, arena, stale, &mut 1).map(|(tick, _)| tick)
        };
        while earliest(&mut bucket, &arena, &mut 0).is_none() {}
        let mut stale = CHUNKS - 1;
        (1..CHUNKS).for_each(|at| _ = arena.remove(keys[at * CHUNK], drop));
        for left in (1..CHUNKS).rev() {
            assert_eq!(earliest(&mut bucket, &arena, &mut stale), None);
            assert_eq!((bucket.chunks(), stale), (left, left - 1));
        }
        assert_eq!(earliest(&mut bucket, &arena, &mut stale), Some(7));
    }

    #[test]
    fn the_list_of_chunks_goes_with_them_and_so_does_what_is_noted_of_them() {
        let few = 2 * CHUNK as u32;
        for is_looked_at in [false, true] {
            let (mut arena, mut bucket) = (Arena::new(), Bucket::default());
            put(&mut bucket, &mut arena, 100 * CHUNK, 9);
            if is_looked_at {
                let found = bucket.earliest(0, 9, &arena, &mut 0, &mut { usize::MAX });
                assert!(found.is_some());
            }
            retain(&mut bucket, |index| index < few && index % CHUNK as u32 == 0);
            check(&bucket, [0, CHUNK as u32]);
            assert_eq!(bucket.chunks(), 2);
            assert!(bucket.memory() < 1 << 10, "{}", bucket.memory());
        }
    }

    #[test]
    fn the_list_of_chunks_shrinks_while_it_is_short_and_once_for_half_of_them() {
        let mut bucket = bucket(300 * CHUNK);
        let room = |bucket: &Bucket| bucket.many.as_ref().map_or(0, |many| many.chunks.capacity());
        let mut shrinks = 0;
        while 2 < bucket.chunks() {
            let before = room(&bucket);
            bucket.pop_chunk();
            if room(&bucket) < before {
                assert!(bucket.chunks() - 1 <= FEW_CHUNKS, "a longer one would be much to move");
                shrinks += 1;
            }
        }
        assert!(0 < shrinks && shrinks <= FEW_CHUNKS.ilog2(), "it shrinks {shrinks} times");
    }

    #[test]
    fn looks_are_forgotten_when_most_are_of_chunks_that_are_gone() {
        for chunks in [1, 2_000] {
            let all = (0..chunks).map(|number| Numbered {
                number,
                entries: Chunk::from_elem(entry(0, 7), 1),
                firsts: None,
            });
            let mut many = Many { next: chunks, looked: chunks, ..Many::default() };
            many.chunks.extend(all);
            let chunks = chunks as usize;
            let mut is_known = |looks: usize| {
                many.looks.extend(repeat_n(Reverse((7, 0)), looks - many.looks.len()));
                many.next_look().is_some_and(|look| look.noted.is_some())
            };
            assert!(is_known(2 * chunks), "as many may be of those that are there");
            assert!(!is_known(3 * (chunks + CHUNK)), "{chunks} chunks are noted all anew");
        }
    }

    /// Chunks come and go for ever behind one that comes first, and each is looked at.
    #[test]
    fn looks_at_chunks_that_are_gone_are_few() {
        let mut arena = Arena::new();
        let mut bucket = Bucket::default();
        let (_, first) = arena.insert(1, || ());
        bucket.push(first);
        for _ in 0..10 * CHUNK {
            while bucket.chunks() < 3 {
                bucket.push(arena.insert(7, || ()).1);
            }
            let found = bucket.earliest(0, 1, &arena, &mut 0, &mut { usize::MAX });
            assert_eq!(found.map(|(tick, _)| tick), Some(1));
            bucket.retain_chunk(1, |_| false);
        }
        assert!(bucket.memory() < 256 << 10, "{}", bucket.memory());
    }
}
