//! How many timeouts consumers may take in a span of time.

use std::collections::VecDeque;

use crate::keeper::words::Rate;

/// What consumers took of late. What they may take counts as well, so that they never take more
/// than the rate, however long it waits for them.
#[derive(Debug)]
pub(super) struct Pace {
    rate: Rate,
    /// The steady times at which consumers took something, the oldest first, and how much.
    taken: VecDeque<(u64, usize)>,
    /// How much that is together.
    count: usize,
}

impl Pace {
    pub(super) fn new(rate: Rate) -> Self {
        Self { rate, taken: VecDeque::new(), count: 0 }
    }

    /// What was taken counts for the span of the new rate.
    pub(super) fn with(self, rate: Rate) -> Self {
        Self { rate, ..self }
    }

    /// Sets how many consumers may take from now on.
    pub(super) fn set(&mut self, timeouts: usize) {
        self.rate.timeouts = timeouts;
    }

    /// Notes that a consumer took something. All that is taken in one part of the span counts as
    /// taken at the end of that part, so memory is bounded whatever the rate is.
    pub(super) fn note(&mut self, steady: u64) {
        let part = (self.rate.per / PARTS).max(1);
        let end = steady.div_ceil(part).saturating_mul(part);
        self.count += 1;
        match self.taken.back_mut() {
            Some((last, count)) if *last == end => *count += 1,
            _ => self.taken.push_back((end, 1)),
        }
    }

    /// Returns when the next may be handed out, where so many are ready to be taken. `None`: when
    /// one of these was taken.
    pub(super) fn next(&mut self, steady: u64, ready: usize) -> Option<u64> {
        // A steady time is rounded down: it may have been taken nearly a millisecond after it.
        let ends = |taken: u64| taken.saturating_add(self.rate.per).saturating_add(1);
        while let Some(&(taken, count)) = self.taken.front()
            && ends(taken) <= steady
        {
            self.count -= count;
            self.taken.pop_front();
        }
        let room = self.rate.timeouts.checked_sub(ready).filter(|&room| 0 < room)?;
        let mut newer = self.count;
        let in_the_way = self.taken.iter().find(|(_, count)| {
            newer -= count;
            newer < room
        });
        let in_the_way = in_the_way.filter(|_| room <= self.count);
        Some(in_the_way.map_or(steady, |(taken, _)| ends(*taken)))
    }
}

/// What is taken within one of so many parts of a span is not told apart.
const PARTS: u64 = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_comes_when_the_oldest_in_its_way_is_over_or_one_that_is_ready_was_taken() {
        let mut pace = Pace::new(Rate { timeouts: 3, per: 100 });
        assert_eq!(pace.next(7, 0), Some(7));
        assert_eq!(pace.next(7, 2), Some(7));
        assert_eq!(pace.next(7, 3), None, "all that may be taken are ready");
        pace.note(10);
        pace.note(20);
        pace.note(30);
        assert_eq!(pace.next(30, 0), Some(111), "a part of a millisecond is not told");
        assert_eq!(pace.next(30, 1), Some(121));
        assert_eq!(pace.next(30, 3), None);
        assert_eq!(pace.next(110, 0), Some(111));
        assert_eq!(pace.next(111, 0), Some(111));
        assert_eq!(pace.next(111, 1), Some(121), "the first is over");
        assert_eq!(pace.next(u64::MAX, 0), Some(u64::MAX));
        pace.note(u64::MAX);
        assert_eq!(pace.next(u64::MAX, 2), Some(u64::MAX));
    }

    #[test]
    fn many_in_a_long_span_take_little_memory_and_none_counts_for_less_than_the_span() {
        let (timeouts, per) = (1_000_000, 86_400_000);
        let mut pace = Pace::new(Rate { timeouts, per });
        let taken = |n: u64| n * 50;
        for n in 0..timeouts as u64 {
            assert_eq!(pace.next(taken(n), 0), Some(taken(n)));
            pace.note(taken(n));
        }
        assert!(pace.taken.len() as u64 <= PARTS, "{}", pace.taken.len());
        for (ready, n) in [(0, 0), (500_000, 500_000), (999_999, 999_999)] {
            let next = pace.next(taken(1_000_000), ready).unwrap();
            let after = taken(n) + per;
            assert!((after + 1..=after + 1 + per / PARTS).contains(&next), "{ready}: {next}");
        }
    }
}
