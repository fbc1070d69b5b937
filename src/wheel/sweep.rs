//! Sweep: the search for stale entries, some at a time.

use super::Wheel;
use super::bucket::CHUNK;
use super::visit::Visit;

/// Stale entries that there may be anyway.
pub(super) const FEW_STALE: usize = 8;
/// Stale entries that there may be for each timeout.
pub(super) const STALE_PER_LIVE: usize = 3;
/// Entries that are looked at for each timeout that leaves, while there are too many stale ones.
pub(super) const SWEPT: usize = 16;
/// The least that a look at a piece costs, in entries.
const LEAST_COST: usize = 4;

/// How many entries are stale, and how far the search for them has come.
///
/// The search goes through all buckets from the highest number down, then through what is ready.
/// Entries move to buckets of lower numbers, and from buckets to what is ready: so they move towards
/// the search and none escapes it. A search drops all entries that were stale when it began, and each
/// timeout that leaves pays for `SWEPT` looks: so the number of stale entries is bounded. A sweep
/// takes no bucket apart.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    /// Entries of timeouts that were cancelled or moved.
    pub(super) stale: usize,
    /// Where the search goes on, while there is one.
    pub(super) place: Option<Place>,
    /// Entries that it is to look at.
    pub(super) owed: usize,
}

/// What the search has yet to look at, in this order. Each number counts what is left of its kind:
/// so chunks that are taken out from the front, as by a visit, make the search look at some twice
/// but skip none.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    /// The first `chunks` chunks of `bucket`, and all buckets of lower numbers.
    Table { bucket: u32, chunks: usize },
    /// The first runs of what is ready.
    Runs(usize),
    /// The first chunks of what is due.
    Due(usize),
    /// The first entries of what is sorted.
    Sorted(usize),
}

impl Place {
    /// Where a search begins.
    pub(super) const BEGIN: Self = Self::Table { bucket: u32::MAX, chunks: usize::MAX };
}

impl<T> Wheel<T> {
    /// Keeps the stale entries few, after a timeout has left or was moved.
    #[inline]
    pub(super) fn tidy(&mut self) {
        let most = FEW_STALE + STALE_PER_LIVE * self.len();
        if most < self.sweep.stale || self.sweep.place.is_some() {
            self.sweep.owed += SWEPT;
            // Many at once, as to begin and to leave off costs something too.
            if CHUNK.min(4 * most) <= self.sweep.owed {
                self.sweep_some();
            }
        }
        if self.is_empty() {
            self.forget_entries();
        }
    }

    /// Looks for stale entries, at as many entries as are owed, and drops those it finds.
    #[cold]
    fn sweep_some(&mut self) {
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

    /// Drops the stale entries of the piece at `place`, and returns where to go on; None if too
    /// little is owed for a look at it.
    fn sweep_piece(&mut self, place: Place) -> Option<Place> {
        let Self { table, ready, arena, sweep, visit, .. } = self;
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
                let Some(at) = chunks.min(bucket_mut.chunks()).checked_sub(1) else {
                    let chunks = usize::MAX;
                    let below = number.checked_sub(1).map(|bucket| Place::Table { bucket, chunks });
                    return Some(below.unwrap_or(Place::Runs(usize::MAX)));
                };
                if !is_paid(bucket_mut.chunk(at).len()) {
                    return None;
                }
                let is_gone = bucket_mut.retain_chunk(at, keep);
                let is_empty = bucket_mut.is_empty();
                match visit {
                    // Its chunks have moved. If it is empty, the visit finds that and ends.
                    Some(Visit::Scan { number: visited, chunk, .. }) if *visited == number => {
                        *chunk -= usize::from(is_gone && at < *chunk);
                    }
                    Some(visit) if visit.number() == number => {}
                    _ if is_empty => table.close(number, u64::MAX),
                    _ => {}
                }
                Place::Table { bucket: number, chunks: at }
            }
            Place::Runs(runs) => {
                let Some(at) = runs.min(ready.runs.len()).checked_sub(1) else {
                    return Some(Place::Due(usize::MAX));
                };
                if !is_paid(ready.runs.run(at).len()) {
                    return None;
                }
                ready.runs.retain(at, keep);
                Place::Runs(at)
            }
            Place::Due(chunks) => {
                let Some(at) = chunks.min(ready.chunks()).checked_sub(1) else {
                    return Some(Place::Sorted(usize::MAX));
                };
                if !is_paid(ready.chunk_len(at)) {
                    return None;
                }
                ready.retain_chunk(at, keep);
                Place::Due(at)
            }
            Place::Sorted(entries) => {
                let sorted = ready.sorted();
                let end = entries.min(sorted.end);
                let start = sorted.start.max(end.saturating_sub(CHUNK));
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
