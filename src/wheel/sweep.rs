//! Sweep: searches for stale entries, some at a time.

use super::Wheel;
use super::bucket::CHUNK;
use super::ready::MOST_ALONE;

/// The number of stale entries, and how far the search for them has come.
///
/// The search goes through all buckets from the highest number down, and then through what is
/// ready. Entries move to buckets of lower numbers, and from buckets to what is ready. So they move
/// towards the search, and none escapes it. A search drops every entry that was stale when it
/// began, and each timeout that leaves pays for `SWEPT` looks. So the number of stale entries is
/// bounded. A sweep takes no bucket apart.
///
/// A wheel of few needs no search but for stamps that come round: its array is small, and lets go
/// of stale entries when it is full.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    /// The number of entries whose timeouts were cancelled or moved.
    pub(super) stale: usize,
    /// The place where the search goes on. None if no search is under way.
    pub(super) place: Option<Place>,
    /// The entries that the search still has to look at.
    pub(super) owed: usize,
}

/// The pieces that the search has yet to look at, in this order. Each number counts what is left of
/// its kind. If a visit takes chunks out from the front, the search looks at some twice and skips
/// none.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    /// The first `chunks` chunks of `bucket`, of which there is one at least, and all buckets of
    /// lower numbers.
    Table { bucket: u32, chunks: usize },
    /// The first runs of what is ready.
    Runs(usize),
    /// The first chunks of what is due.
    Due(usize),
    /// The first entries of what is sorted.
    Sorted(usize),
}

impl Place {
    /// The place where a search begins.
    pub(super) const BEGIN: Self = Self::Table { bucket: u32::MAX, chunks: usize::MAX };
}

impl<T> Wheel<T> {
    /// Keeps the stale entries few, after a timeout has left.
    #[inline]
    pub(super) fn tidy_or_forget(&mut self) {
        if self.is_empty() {
            self.forget_entries();
        } else {
            self.tidy();
        }
    }

    /// Keeps the stale entries few, after a timeout has moved.
    #[inline]
    pub(super) fn tidy(&mut self) {
        let most = FEW_STALE + STALE_PER_LIVE * self.len();
        if most < self.sweep.stale || self.sweep.place.is_some() {
            self.sweep.owed += SWEPT;
            // Many at once, because to begin and to leave off costs something, too.
            if CHUNK.min(4 * most) <= self.sweep.owed {
                self.sweep_some();
            }
        }
    }

    /// Looks at as many entries as are owed, and drops the stale ones.
    #[cold]
    fn sweep_some(&mut self) {
        let is_small = self.is_of_few() && self.ready.is_small();
        if is_small && self.sweep.place.is_none() {
            self.sweep.owed = 0;
            return;
        }
        let mut place = self.sweep.place.unwrap_or(Place::BEGIN);
        while 0 < self.sweep.stale {
            self.sweep.place = Some(place);
            let Some(next) = self.sweep_piece(place) else { return };
            match next {
                Place::Sorted(0) => break,
                next => place = next,
            }
        }
        (self.sweep.place, self.sweep.owed) = (None, 0);
    }

    /// Drops the stale entries of the piece at `place`, and returns the place where to go on.
    /// Returns None if too little is owed for a look at the piece.
    fn sweep_piece(&mut self, place: Place) -> Option<Place> {
        // All of a wheel of few at once, at the last tick too, so that to sort them hides none.
        let is_small = self.cursor == u64::MAX && self.ready.sorted().len() <= MOST_ALONE;
        let most_sorted = if is_small { MOST_ALONE } else { CHUNK };
        let Self { table, ready, arena, sweep, .. } = self;
        let mut is_paid = |entries: usize| {
            let rest = sweep.owed.checked_sub(entries.max(LEAST_COST));
            sweep.owed = rest.unwrap_or(sweep.owed);
            rest.is_some()
        };
        let stale = &mut sweep.stale;
        let keep = |entry| {
            let is_stale = arena.is_stale(entry);
            *stale -= usize::from(is_stale);
            !is_stale
        };
        Some(match place {
            Place::Table { bucket, chunks } => {
                let Some(number) = table.last(bucket) else { return Some(Place::Runs(usize::MAX)) };
                let bucket_mut = table.bucket_mut(number);
                let chunks = if number < bucket { usize::MAX } else { chunks };
                let at = chunks.min(bucket_mut.chunks()) - 1;
                if !is_paid(bucket_mut.chunk(at).len()) {
                    return None;
                }
                let is_gone = bucket_mut.retain_chunk(at, keep);
                let (chunks, is_empty) = (bucket_mut.chunks(), bucket_mut.is_empty());
                match table.visit() {
                    // The visit goes on from the chunk where it was. If the bucket is empty, the
                    // visit finds that and ends.
                    Some(mut visit) if visit.number() == number => {
                        if is_gone {
                            visit.chunk_is_gone(at, chunks);
                        }
                        if visit.may_join(at) && 0 < table.bucket_mut(number).merge(at) {
                            visit.chunk_is_gone(at + 1, chunks - 1);
                        }
                        table.note_visit(Some(visit));
                    }
                    _ if !is_empty => _ = table.bucket_mut(number).merge(at),
                    _ => table.close(number, u64::MAX),
                }
                match (number, at) {
                    (0, 0) => Place::Runs(usize::MAX),
                    (_, 0) => Place::Table { bucket: number - 1, chunks: usize::MAX },
                    _ => Place::Table { bucket: number, chunks: at },
                }
            }
            Place::Runs(count) => {
                let Some((at, runs)) = count.checked_sub(1).zip(ready.runs_mut()) else {
                    return Some(Place::Due(usize::MAX));
                };
                let at = at.min(runs.last());
                if !is_paid(runs.run(at).len()) {
                    return None;
                }
                runs.retain(at, keep);
                Place::Runs(at)
            }
            Place::Due(chunks) => {
                let Some((at, due)) = chunks.checked_sub(1).zip(ready.due_mut()) else {
                    return Some(Place::Sorted(usize::MAX));
                };
                let at = at.min(due.chunks() - 1);
                if !is_paid(due.chunk(at).len()) {
                    return None;
                }
                due.retain_chunk(at, keep);
                Place::Due(at)
            }
            Place::Sorted(entries) => {
                let sorted = ready.sorted();
                let end = entries.min(sorted.end);
                let start = sorted.start.max(end.saturating_sub(most_sorted));
                if end <= start {
                    return Some(Place::Sorted(0));
                }
                if !is_paid(end - start) {
                    return None;
                }
                ready.retain(start..end, keep);
                if start <= sorted.start { Place::Sorted(0) } else { Place::Sorted(start) }
            }
        })
    }
}

/// Stale entries that begin no sweep, however few timeouts there are.
pub(super) const FEW_STALE: usize = 8;
/// Stale entries for each timeout that begin no sweep.
pub(super) const STALE_PER_LIVE: usize = 3;
/// Entries that a sweep looks at for each timeout that leaves.
pub(super) const SWEPT: usize = 16;
/// The least cost of a look at a piece, in entries. So small that a sweep of pieces of one entry
/// each is over before most of the timeouts are gone that were live when it began: otherwise those
/// that leave meanwhile would leave as many stale entries behind.
const LEAST_COST: usize = 2;

#[cfg(test)]
mod tests {
    use super::{CHUNK, FEW_STALE, Place, STALE_PER_LIVE};
    use crate::wheel::{MOST_ALONE, Wheel};
    use alloc::vec::Vec;

    /// More than are looked at together.
    const CROWD: u64 = 5000;

    /// Cancels all of `keys` but every hundredth. Panics unless the sweep keeps up, and leaves
    /// nothing that was stale when it began.
    fn cancel_most(wheel: &mut Wheel<u64>, keys: &[super::super::Key]) {
        // Entries that have become stale since the sweep began, if one is under way.
        let mut since = None;
        for (at, &key) in keys.iter().enumerate() {
            if at % 100 != 0 {
                wheel.cancel(key);
                let more = since.map_or(0, |since| since + 1);
                let is_over = wheel.sweep.place.is_none();
                assert!(since.is_none() || !is_over || wheel.sweep.stale <= more, "none escapes");
                since = (!is_over).then_some(more);
            }
            if at % 64 == 0 {
                wheel.check();
            }
        }
        let most = 2 * (FEW_STALE + STALE_PER_LIVE * wheel.len());
        assert!(wheel.sweep.stale <= most, "{} of {}", wheel.sweep.stale, wheel.len());
        assert!(wheel.len() < CROWD as usize / 50);
    }

    /// Hands all out, and panics unless they come by deadline.
    fn expire_all(wheel: &mut Wheel<u64>) {
        let (mut last, len) = (0, wheel.len());
        for _ in 0..len {
            let expired = wheel.expire(u64::MAX).expect("it is due");
            assert!(last <= expired.deadline);
            last = expired.deadline;
        }
        assert!(wheel.is_empty());
    }

    /// Goes on until the sweep is over, while no entry becomes stale. Panics unless none is left.
    fn sweep_all(wheel: &mut Wheel<u64>) {
        assert!(wheel.sweep.place.is_some(), "it is under way");
        wheel.schedule(1 << 50, 0);
        while wheel.sweep.place.is_some() {
            let stale = wheel.sweep.stale;
            assert!(0 < stale, "it is over as soon as none is left");
            let key = wheel.schedule(1 << 50, 0);
            wheel.cancel(key);
            assert!(wheel.sweep.stale <= stale, "it is taken back");
        }
        assert_eq!(wheel.sweep.stale, 0, "none escapes");
        wheel.check();
    }

    /// Cancels from the last on until the sweep is under way and `is_there` says so.
    fn cancel_until(
        wheel: &mut Wheel<u64>,
        keys: &[super::super::Key],
        is_there: impl Fn(&Wheel<u64>, Place) -> bool,
    ) {
        for &key in keys.iter().rev() {
            wheel.cancel(key);
            if wheel.sweep.place.is_some_and(|place| is_there(wheel, place)) {
                return;
            }
        }
        panic!("the sweep does not come there");
    }

    /// Wheels with a crowd in one bucket, at one tick, gathered by a jump, and sorted as a whole.
    fn crowds() -> impl Iterator<Item = (Wheel<u64>, Vec<super::super::Key>)> {
        let crowds = [
            ("hierarchical:64", (|_| 1 << 40) as fn(u64) -> u64, 0),
            ("hashed:8", |_| 1 << 40, 0),
            ("hashed:8", |value| (1 << 40) + value, 0),
            ("hierarchical:64", |_| 7, 7),
            ("hashed:8", |_| 7, 7),
            ("hashed:8", |value| 1 + value * 7, CROWD * 8),
            ("hierarchical:64", |value| 64 + value % 64, 64),
        ];
        crowds.into_iter().map(|(mode, deadline, tick)| {
            let mut wheel = Wheel::new(mode.parse().expect("a mode"));
            let keys = (0..CROWD).map(|at| wheel.schedule(deadline(at), at)).collect();
            assert_eq!(wheel.expire(tick).is_some(), tick > 0);
            (wheel, keys)
        })
    }

    #[test]
    fn a_sweep_that_is_over_has_left_no_entry_out() {
        for (mut wheel, keys) in crowds() {
            cancel_until(&mut wheel, &keys, |_, _| true);
            sweep_all(&mut wheel);
        }
    }

    #[test]
    fn what_a_sweep_has_not_spent_is_lost_when_it_is_over() {
        for (mut wheel, keys) in crowds() {
            cancel_until(&mut wheel, &keys, |_, _| true);
            sweep_all(&mut wheel);
            assert_eq!(wheel.sweep.owed, 0, "{}", wheel.mode());
        }
    }

    #[test]
    fn a_sweep_joins_the_chunks_that_it_has_made_small() {
        let (mut wheel, keys) = crowds().next().expect("there is one");
        cancel_most(&mut wheel, &keys);
        let (number, _) = wheel.table.first().expect("it is occupied");
        assert!(wheel.table.bucket(number).chunks() <= 2, "they were ten");
    }

    #[test]
    fn a_sweep_of_buckets_of_one_entry_is_as_short_as_any_and_over_in_time() {
        for text in ["hashed:65536", "hierarchical:65536"] {
            let mut wheel = Wheel::new(text.parse().expect("a mode"));
            let key = |value| wheel.schedule(1 + 11 * value, value);
            let keys: Vec<_> = (0..CROWD).map(key).collect();
            for &key in &keys[1..] {
                let before = wheel.sweep.stale;
                wheel.cancel(key);
                let dropped = before - before.min(wheel.sweep.stale);
                assert!(dropped <= CHUNK * 2 / 3, "{text}: {dropped} at once");
            }
            let (stale, len) = (wheel.sweep.stale, wheel.len());
            assert!(stale <= CHUNK / 2, "{text}: {stale} are left beside {len}");
        }
    }

    #[test]
    fn a_sweep_keeps_up_wherever_the_crowd_is() {
        for (mut wheel, keys) in crowds() {
            cancel_most(&mut wheel, &keys);
            expire_all(&mut wheel);
        }
    }

    #[test]
    fn nothing_stale_escapes_where_one_is_inserted_before_it() {
        let mode = "hierarchical:256".parse().expect("a mode");
        let mut wheel = Wheel::with_capacity(mode, 2 * MOST_ALONE);
        // Four per tick, and so few that others are inserted among them.
        let keys: Vec<_> = (0..1000).map(|at| wheel.schedule(256 + at / 4, at)).collect();
        assert!(wheel.expire(256).is_some());
        let sorted = |wheel: &Wheel<u64>| wheel.ready.sorted().end;
        let is_there = |wheel: &Wheel<u64>, place| match place {
            Place::Sorted(at) => at < sorted(wheel),
            _ => false,
        };
        cancel_until(&mut wheel, &keys[..keys.len() - 10], is_there);
        let Some(Place::Sorted(at)) = wheel.sweep.place else { unreachable!("it is there") };
        let len = sorted(&wheel);
        assert!(at <= len && len < at + 16, "few are behind");
        let (before, _) = wheel.ready.entries()[at - 1..].split_first().expect("one is before");
        assert!(wheel.arena.is_stale(*before));
        wheel.schedule(before.deadline - 1, 0);
        assert_eq!(sorted(&wheel), len + 1, "it moves those behind it");
        sweep_all(&mut wheel);
    }

    /// The last chunk vanishes as the scan comes to it, and the one before, which was scanned, is
    /// the last one then and has room.
    #[test]
    fn a_scan_misses_nothing_where_its_chunk_vanishes() {
        for mode in ["hashed:1", "hashed:8", "hashed:512"] {
            let mode = mode.parse().expect("a mode");
            let mut wheel = Wheel::with_capacity(mode, 2 * MOST_ALONE);
            let round = wheel.mode().buckets() as u64;
            let due = wheel.schedule(round, 0);
            let far = |value| wheel.schedule(round * 1_000_000, value);
            let keys: Vec<_> = (1..2 * CHUNK as u64).map(far).collect();
            wheel.cancel(due);
            for _ in 0..2 {
                assert!(wheel.expire_bounded(round, &mut 1).is_none());
            }
            for (at, &key) in keys.iter().enumerate().rev() {
                if at != 5 {
                    wheel.cancel(key);
                }
            }
            assert!(wheel.table.visit().is_some(), "the scan is under way");
            wheel.schedule(3 * round, 42);
            for _ in 0..CHUNK + 100 {
                wheel.schedule(round * 2_000_000, 1);
            }
            wheel.check();
            assert_eq!(wheel.expire(3 * round).map(|expired| expired.value), Some(42));
            wheel.check();
        }
    }

    #[test]
    fn a_scan_misses_nothing_where_chunks_before_it_vanish() {
        const CHUNKS: usize = 8;
        for mode in ["hashed:1", "hashed:8"] {
            let mode = mode.parse().expect("a mode");
            let mut wheel = Wheel::with_capacity(mode, 2 * MOST_ALONE);
            let round = wheel.mode().buckets() as u64;
            let is_due = |at: usize| [5 * CHUNK + 7, 6 * CHUNK + 7].contains(&at);
            let deadline = |at| if is_due(at) { round } else { 1_000_000 * round };
            let keys: Vec<_> =
                (0..CHUNKS * CHUNK).map(|at| wheel.schedule(deadline(at), at as u64)).collect();
            for _ in 0..3 {
                assert!(wheel.expire_bounded(round, &mut 1).is_none());
            }
            for (at, &key) in keys.iter().enumerate() {
                if !(is_due(at) || 3 * CHUNK < at && at % 64 == 0) {
                    wheel.cancel(key);
                }
            }
            assert!(wheel.table.visit().is_some(), "the scan is under way");
            let (number, _) = wheel.table.first().expect("it is occupied");
            assert!(wheel.table.bucket(number).chunks() < CHUNKS - 2, "some have vanished");
            wheel.check();
            let due = core::iter::from_fn(|| wheel.expire(round));
            assert!(due.map(|expired| expired.deadline).eq([round; 2]));
            wheel.check();
        }
    }

    /// In each chunk that the scan has yet to come to, one is due.
    #[test]
    fn a_scan_misses_nothing_where_chunks_around_it_are_joined() {
        const CHUNKS: usize = 8;
        const SCANNED: usize = 3;
        for mode in ["hashed:1", "hashed:8"] {
            let mode = mode.parse().expect("a mode");
            let mut wheel = Wheel::with_capacity(mode, 2 * MOST_ALONE);
            let round = wheel.mode().buckets() as u64;
            let is_due = |at: usize| SCANNED * CHUNK < at && at % CHUNK == 7;
            let deadline = |at| if is_due(at) { round } else { 1_000_000 * round };
            let keys: Vec<_> =
                (0..CHUNKS * CHUNK).map(|at| wheel.schedule(deadline(at), at as u64)).collect();
            for _ in 0..SCANNED {
                assert!(wheel.expire_bounded(round, &mut 1).is_none());
            }
            for (at, &key) in keys.iter().enumerate() {
                if !is_due(at) && at % 64 != 0 {
                    wheel.cancel(key);
                }
            }
            assert!(wheel.table.visit().is_some(), "the scan is under way");
            let (number, _) = wheel.table.first().expect("it is occupied");
            assert_eq!(
                wheel.table.bucket(number).chunks(),
                2,
                "what was scanned, and what was not"
            );
            wheel.check();
            let due = core::iter::from_fn(|| wheel.expire(round));
            assert!(due.map(|expired| expired.deadline).eq([round; CHUNKS - SCANNED]));
            wheel.check();
        }
    }

    #[test]
    fn a_sweep_looks_at_all_of_the_bucket_below_one_that_is_gone_meanwhile() {
        let mut wheel = Wheel::new("hashed:8".parse().expect("a mode"));
        for value in 0..600 {
            wheel.schedule(7, value);
        }
        let keys: Vec<_> = (0..2 * CROWD).map(|at| wheel.schedule((1 << 20) + 2, at)).collect();
        let is_there = |_: &_, place| matches!(place, Place::Table { bucket: 7, chunks: 1 });
        cancel_until(&mut wheel, &keys, is_there);
        // A jump takes all of bucket 7 out, and hands none out meanwhile.
        while !wheel.table.bucket(7).is_empty() {
            assert!(wheel.expire_bounded(15, &mut 1).is_none());
        }
        assert!(2 < wheel.table.bucket(2).chunks(), "more than are left of the one above");
        sweep_all(&mut wheel);
    }

    /// There the cursor is where that of a wheel of few is.
    #[test]
    fn a_sweep_keeps_up_with_what_is_sorted_at_the_end_of_time() {
        let mut wheel = Wheel::with_capacity(crate::Mode::default(), 2 * MOST_ALONE);
        wheel.schedule(u64::MAX - 100, CROWD);
        let keys: Vec<_> =
            (0..CROWD).map(|at| wheel.schedule(u64::MAX - 1 - at % 60, at)).collect();
        assert!(wheel.expire(u64::MAX - 100).is_some());
        assert!(wheel.expire(u64::MAX - 60).is_some());
        assert!(MOST_ALONE < wheel.ready.sorted().len(), "all are sorted");
        cancel_most(&mut wheel, &keys);
        expire_all(&mut wheel);
    }

    #[test]
    fn a_sweep_begins_when_eight_and_three_per_timeout_are_stale_and_one_more() {
        let mut wheel = Wheel::with_capacity(crate::Mode::default(), 2 * MOST_ALONE);
        let keys: Vec<_> = (0..500).map(|at| wheel.schedule(1 << 40, at)).collect();
        for &key in &keys[..377] {
            wheel.cancel(key);
        }
        assert_eq!((wheel.sweep.stale, wheel.len()), (8 + 3 * 123, 123));
        assert_eq!(wheel.sweep.owed, 0);
        wheel.cancel(keys[377]);
        assert_ne!(wheel.sweep.owed, 0);
    }

    /// Sorting moves entries from where the sweep has yet to come to where it has been.
    #[test]
    fn nothing_stale_escapes_where_a_bucket_is_sorted_meanwhile() {
        let mut wheel = Wheel::new("hierarchical:64".parse().expect("a mode"));
        let far = |value| wheel.schedule((1 << 30) - value, value);
        let keys: Vec<_> = (0..2 * CROWD).map(far).collect();
        let mut latest = keys.into_iter();
        while wheel.sweep.place.is_none() {
            wheel.cancel(latest.next().expect("it begins before"));
        }
        for key in latest.by_ref().take(200) {
            wheel.cancel(key);
        }
        let old = wheel.sweep.stale;
        for _ in 0..40 {
            let _ = wheel.next_deadline();
        }
        let mut least = old;
        for value in 0..CROWD {
            let key = wheel.schedule(1 << 40, value);
            wheel.cancel(key);
            least = least.min(wheel.sweep.stale);
        }
        assert!(least < old / 10, "{least} of {old} are left");
        wheel.check();
    }

    #[test]
    fn what_was_owed_is_not_lost_where_it_is_too_little() {
        let mut wheel = Wheel::new("hierarchical:64".parse().expect("a mode"));
        wheel.schedule(1 << 40, 0);
        for value in 0..CROWD {
            let key = wheel.schedule((1 << 40) + 1, value);
            wheel.cancel(key);
            assert!(wheel.sweep.stale <= 100, "{} are stale", wheel.sweep.stale);
        }
        wheel.check();
    }
}
