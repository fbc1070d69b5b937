//! How many timeouts consumers may take in a span of time.

use std::collections::VecDeque;

use crate::keeper::words::Rate;

/// What consumers took of late. What they may take counts as well, so that they never take more
/// than the rate, however long it waits for them.
#[derive(Debug)]
pub(super) struct Pace {
    rate: Rate,
    /// The steady times at which consumers took something, the oldest first.
    taken: VecDeque<u64>,
}

impl Pace {
    pub(super) fn new(rate: Rate) -> Self {
        Self { rate, taken: VecDeque::new() }
    }

    /// Sets how many consumers may take from now on.
    pub(super) fn set(&mut self, timeouts: usize) {
        self.rate.timeouts = timeouts;
    }

    pub(super) fn note(&mut self, steady: u64) {
        self.taken.push_back(steady);
    }

    /// Returns when the next may be handed out, where so many are ready to be taken. `None`: when
    /// one of these was taken.
    pub(super) fn next(&mut self, steady: u64, ready: usize) -> Option<u64> {
        // A steady time is rounded down: it may have been taken nearly a millisecond after it.
        let ends = |taken: u64| taken.saturating_add(self.rate.per).saturating_add(1);
        while self.taken.front().is_some_and(|&taken| ends(taken) <= steady) {
            self.taken.pop_front();
        }
        let room = self.rate.timeouts.checked_sub(ready).filter(|&room| 0 < room)?;
        let in_the_way = self.taken.len().checked_sub(room);
        Some(in_the_way.map_or(steady, |oldest| ends(self.taken[oldest])))
    }
}

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
}
