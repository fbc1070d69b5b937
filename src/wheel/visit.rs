//! Visit: takes the bucket that comes up apart, one step at a time.
//!
//! Entries that are due become ready. The others are demoted, or wait for their round.

use super::Wheel;
use super::arena::Entry;
use super::bucket::{self, CHUNK, Chunk};
use super::digit::{Counts, Digit};
use super::geometry::Geometry;
use super::hashed::Hashed;
use super::hierarchical::Hierarchical;
use super::table::Visit;
use core::cmp::Ordering;

impl<T> Wheel<T> {
    /// Begins to take bucket `number` apart, in which nothing is due before `tick`. Returns the work:
    /// the entries that were moved or looked at, and the chunks that moved up.
    pub(super) fn begin_visit(&mut self, number: u32, tick: u64, now: u64) -> usize {
        debug_assert!(self.cursor <= tick && tick <= now, "the cursor moves forward");
        debug_assert!(self.ready.first().is_none(), "what is due earlier goes out first");
        self.work.buckets_visited += 1;
        let visit = match self.geometry {
            Geometry::Hierarchical(levels) => {
                let level = levels.level(number);
                if level == 0 {
                    self.cursor = tick;
                    self.ready.fill(self.table.take(number));
                    return 1;
                }
                let entries = self.table.bucket(number).len();
                if self.ready.sorts(entries, level, levels.bits) {
                    self.cursor = levels.end(number, tick);
                    self.ready.sort(self.table.take(number), levels.bits, level);
                    return entries;
                }
                Visit::Demote { number, tick }
            }
            Geometry::Hashed(level) => {
                // When a round or more has passed, buckets come up more than once. Going round for
                // each time would cost the distance, so all buckets are scanned once, and what is
                // due is sorted. Timeouts that are due at `now` itself come after that, because
                // more of them could be scheduled meanwhile.
                let jumps = level.round() <= now - tick;
                let to = if jumps { now - 1 } else { tick };
                Visit::Scan { number, chunk: 0, earliest: u64::MAX, from: tick, to }
            }
        };
        self.visit_step(visit)
    }

    /// Goes on with a visit for one step, and returns the work, as `begin_visit` does.
    pub(super) fn visit_step(&mut self, visit: Visit) -> usize {
        self.table.note_visit(Some(visit));
        match (self.geometry, visit) {
            (Geometry::Hierarchical(levels), Visit::Demote { number, tick }) => {
                self.demote(levels, number, tick)
            }
            (Geometry::Hashed(level), Visit::Scan { number, chunk, earliest, from, to }) => {
                self.scan(level, number, chunk, earliest, from, to)
            }
            _ => unreachable!("each mode has its own way to visit a bucket"),
        }
    }

    /// Places the first chunks of bucket `number` again, because the cursor comes to `tick`.
    #[inline(never)]
    fn demote(&mut self, levels: Hierarchical, number: u32, tick: u64) -> usize {
        let bucket = self.table.bucket_mut(number);
        let each = bucket.chunks() * CHUNK / levels.buckets();
        let mut chunks: [Chunk; DEMOTED] = core::array::from_fn(|_| bucket.pop_chunk());
        bucket.prefetch(DEMOTED);
        if bucket.is_empty() {
            self.table.close(number, u64::MAX);
            self.cursor = tick;
            self.table.note_visit(None);
        }
        let entries = chunks.iter().map(|chunk| chunk.len()).sum();
        let Self { arena, sweep, .. } = self;
        if arena.len() < sweep.stale {
            // Most entries of the wheel are stale: a look at each costs less than to move them.
            for chunk in &mut chunks {
                let before = chunk.len();
                chunk.retain(|entry| !arena.is_stale(*entry));
                sweep.stale -= before - chunk.len();
            }
        }
        let below = levels.level(number) - 1;
        let Some(digit) = Digit::new(below * levels.bits, levels.bits) else {
            chunks.iter().flatten().for_each(|&entry| self.demote_one(levels, entry, tick));
            return entries;
        };
        // Nearly all entries go one level down, so the work there is done once for each bucket.
        let mut counts = Counts::new(digit);
        chunks.iter().for_each(|chunk| counts.add(chunk));
        counts.begin();
        let mut sorted = [Entry::default(); DEMOTED * CHUNK];
        chunks.iter().for_each(|chunk| counts.put(chunk, &mut sorted));
        let own = levels.digit(below, tick);
        for (digit, run) in counts.runs(&sorted) {
            if digit <= own {
                run.iter().for_each(|&entry| self.demote_one(levels, entry, tick));
                continue;
            }
            let earliest = run.iter().map(|entry| entry.deadline).min().unwrap_or(u64::MAX);
            let bucket = self.table.note(levels.number(below, digit), earliest);
            bucket.reserve(each);
            bucket.extend(run);
            self.work.demotions += run.len() as u64;
        }
        entries
    }

    /// Places an entry on a finer level, because the cursor comes to `tick`. An entry of an earlier
    /// deadline is stale, because no timeout of the bucket is due before `tick`.
    fn demote_one(&mut self, levels: Hierarchical, entry: Entry, tick: u64) {
        match entry.deadline.cmp(&tick) {
            Ordering::Less => self.sweep.stale -= 1,
            Ordering::Equal => self.ready.push(entry),
            Ordering::Greater => {
                self.work.demotions += 1;
                let number = levels.bucket(entry.deadline, tick);
                self.table.push(number, entry);
            }
        }
    }

    /// Takes the entries that are due out of one chunk. Goes on to the next bucket after the last
    /// chunk.
    #[inline(never)]
    fn scan(
        &mut self,
        level: Hashed,
        number: u32,
        chunk: usize,
        earliest: u64,
        from: u64,
        to: u64,
    ) -> usize {
        let Self { table, ready, sweep, .. } = self;
        let bucket = table.bucket_mut(number);
        let mut work = bucket.chunk(chunk).len();
        let mut earliest = earliest;
        let is_gone = bucket.retain_chunk(chunk, |entry| {
            if to < entry.deadline {
                earliest = earliest.min(entry.deadline);
                return true;
            }
            match from == to {
                // The entry is stale, because no timeout is due before `from`.
                _ if entry.deadline < from => sweep.stale -= 1,
                true => ready.push(entry),
                false => ready.push_run(entry),
            }
            false
        });
        // Otherwise a bucket could keep a chunk for each entry, and each chunk that goes would move
        // as many up.
        let joined = match chunk.checked_sub(1) {
            Some(before) if !is_gone => bucket.merge(before),
            _ => 0,
        };
        let is_gone = is_gone || 0 < joined;
        if is_gone {
            work += joined + bucket::moves(chunk, bucket.chunks());
        }
        let chunk = chunk + usize::from(!is_gone);
        if chunk < bucket.chunks() && !bucket.is_empty() {
            let visit = Visit::Scan { number, chunk, earliest, from, to };
            self.table.note_visit(Some(visit));
            return work;
        }
        self.work.rounds_waited += bucket.len() as u64;
        self.table.close(number, earliest);
        let next = if from < to { level.soonest(&mut self.table) } else { None };
        match next {
            Some((number, tick)) if tick <= to => {
                self.work.buckets_visited += 1;
                let visit = Visit::Scan { number, chunk: 0, earliest: u64::MAX, from, to };
                self.table.note_visit(Some(visit));
            }
            _ => {
                self.table.note_visit(None);
                self.cursor = to;
                if from < to {
                    self.ready.close_runs();
                }
            }
        }
        work
    }
}

/// Chunks that are demoted at once.
const DEMOTED: usize = 2;

#[cfg(test)]
mod tests {
    use super::{CHUNK, Visit};
    use crate::mode::Mode;
    use crate::wheel::{MOST_ALONE, Wheel};
    use alloc::vec::Vec;

    #[test]
    fn a_bucket_of_one_chunk_is_scanned_once() {
        let mut wheel = Wheel::with_capacity(Mode::hashed(1).expect("a mode"), 2 * MOST_ALONE);
        wheel.schedule(1, 0);
        (1..400).for_each(|number| _ = wheel.schedule(1 << 40, number));
        assert!(wheel.expire(1).is_some());
        assert!(wheel.table.visit().is_none());
    }

    /// Half of the chunks stay, and those behind them are taken out one by one.
    #[test]
    fn chunks_that_move_up_are_work() {
        let mut wheel = Wheel::new(Mode::hashed(1).expect("a mode"));
        let chunks = 64;
        for number in 0..2 * chunks * CHUNK as u64 + 1 {
            wheel.schedule(if number < chunks * CHUNK as u64 { 1 << 40 } else { 1 }, number);
        }
        let mut work = Vec::new();
        let _ = wheel.expire_bounded(1, &mut 1);
        while let Some(visit) = wheel.table.visit() {
            assert!(matches!(visit, Visit::Scan { .. }));
            work.push(wheel.visit_step(visit));
        }
        assert_eq!(work[chunks as usize - 2], CHUNK, "all stay up to there");
        assert_eq!(work[chunks as usize - 1], CHUNK + 4, "64 move up, 16 for each unit");
        assert_eq!(work[2 * chunks as usize - 5], CHUNK, "few are behind, and move down");
        wheel.check();
    }
}
