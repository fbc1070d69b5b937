//! A limit that the store keeps for all its workers together.
//!
//! Each worker has a part of it, by how many there are and how many are before it. A part that
//! becomes smaller holds at once; one that grows, and that of a new worker, only when all others
//! know of theirs, because a lease is over, and what they took before is, because the span is.

use std::collections::VecDeque;

use crate::keeper::pace::Pace;
use crate::keeper::words::Rate;

/// The part that this worker has.
#[derive(Debug, Default)]
pub(super) struct Limit {
    pub(super) pace: Option<Pace>,
    rate: Option<Rate>,
    /// What was told since this worker is among them, the oldest first. The first may be older than
    /// what still counts.
    told: VecDeque<Told>,
}

#[derive(Clone, Copy, Debug)]
struct Told {
    steady: u64,
    workers: usize,
    before: usize,
}

impl Limit {
    pub(super) fn set(&mut self, rate: Option<Rate>) {
        if self.rate != rate {
            self.rate = rate;
            // What was taken under another rate counts.
            self.pace = rate.map(|rate| match self.pace.take() {
                Some(pace) => pace.with(rate),
                None => Pace::new(rate),
            });
        }
    }

    /// Takes how many workers there are, and how many are before this one.
    pub(super) fn tell(&mut self, steady: u64, workers: usize, before: usize) {
        let is_same = |last: &Told| (last.workers, last.before) == (workers, before);
        if !self.told.back().is_some_and(is_same) {
            if self.rate.is_none() {
                // What a rate that comes may need is not known.
                self.told.clear();
            }
            self.told.push_back(Told { steady, workers, before });
        }
    }

    /// This worker is not among them any more.
    pub(super) fn end(&mut self) {
        self.told.clear();
    }

    /// Sets the pace to the part of now, and returns that.
    pub(super) fn settle(&mut self, steady: u64, lease: u64) -> usize {
        let Some(rate) = self.rate else { return usize::MAX };
        let part = match steady.checked_sub(lasts(rate, lease)) {
            Some(begin) if self.told.front().is_some_and(|told| told.steady < begin) => {
                while self.told.get(1).is_some_and(|next| next.steady < begin) {
                    self.told.pop_front();
                }
                let parts = self.told.iter().map(|told| {
                    rate.timeouts.saturating_sub(told.before).div_ceil(told.workers.max(1))
                });
                parts.min().unwrap_or(0)
            }
            _ => 0,
        };
        self.pace.as_mut().expect("there is a rate").set(part);
        part
    }

    /// Returns when the part may grow.
    pub(super) fn grows_at(&self, steady: u64, lease: u64) -> Option<u64> {
        let lasts = lasts(self.rate?, lease);
        let grows =
            self.told.iter().map(|told| told.steady.saturating_add(lasts).saturating_add(1));
        grows.into_iter().find(|&grows| steady < grows)
    }
}

/// How long what was told counts.
fn lasts(rate: Rate, lease: u64) -> u64 {
    rate.per.saturating_add(lease)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A worker that takes all that it may, at once.
    struct Worker {
        number: usize,
        limit: Limit,
        /// When it asked last, and when it renews and ends.
        asked: u64,
        renews: u64,
        ends: u64,
    }

    #[test]
    fn however_workers_come_and_go_all_together_take_no_more_in_any_span() {
        let mut taken_in_all = 0;
        for seed in 0..300 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let rate = Rate { timeouts: rng.usize(1..9), per: rng.u64(1..60) };
            let lease = rng.u64(8..80);
            let (mut workers, mut taken) = (Vec::<Worker>::new(), Vec::new());
            for steady in 1_000..3_000 {
                if rng.u32(0..40) == 0 && workers.len() < 5 {
                    let mut limit = Limit::default();
                    limit.set(Some(rate));
                    let (number, ends) = (steady as usize, steady + rng.u64(1..1_000));
                    workers.push(Worker { number, limit, asked: 0, renews: steady, ends });
                }
                // What the store knows of one that has died.
                workers.retain(|worker| steady < worker.ends || steady < worker.asked + lease);
                for at in 0..workers.len() {
                    if workers[at].renews == steady && steady < workers[at].ends {
                        workers[at].asked = steady;
                        workers[at].renews = steady + rng.u64(1..=lease.div_ceil(4));
                        let among = |other: &&Worker| steady <= other.asked + lease;
                        let mine = workers[at].number;
                        let before = workers.iter().filter(among).filter(|it| it.number < mine);
                        let before = before.count();
                        let count = workers.iter().filter(among).count();
                        workers[at].limit.tell(steady, count, before);
                    }
                    let worker = &mut workers[at];
                    worker.limit.settle(steady, lease);
                    let pace = worker.limit.pace.as_mut().unwrap();
                    while steady < worker.ends && pace.next(steady, 0) == Some(steady) {
                        pace.note(steady);
                        taken.push(steady);
                    }
                }
            }
            for (n, first) in taken.iter().enumerate() {
                if let Some(next) = taken.get(n + rate.timeouts) {
                    assert!(rate.per < next - first, "{seed}: {rate:?}, lease {lease}");
                }
            }
            taken_in_all += taken.len();
        }
        assert!(10_000 < taken_in_all, "{taken_in_all}");
    }

    #[test]
    fn what_was_taken_under_one_rate_counts_under_the_next() {
        let mut limit = Limit::default();
        limit.tell(0, 1, 0);
        limit.set(Some(Rate { timeouts: 10, per: 1_000 }));
        limit.settle(5_000, 0);
        (0..10).for_each(|_| limit.pace.as_mut().unwrap().note(5_000));
        for (timeouts, next) in [(5, 6_001), (11, 5_001), (10, 6_001)] {
            limit.set(Some(Rate { timeouts, per: 1_000 }));
            limit.settle(5_001, 0);
            assert_eq!(limit.pace.as_mut().unwrap().next(5_001, 0), Some(next), "{timeouts}");
        }
    }

    #[test]
    fn a_worker_that_is_alone_has_all_after_a_lease_and_a_span() {
        let mut limit = Limit::default();
        assert_eq!(limit.settle(0, 100), usize::MAX);
        limit.set(Some(Rate { timeouts: 7, per: 10 }));
        limit.tell(1_000, 1, 0);
        assert_eq!((limit.settle(1_110, 100), limit.grows_at(1_110, 100)), (0, Some(1_111)));
        assert_eq!((limit.settle(1_111, 100), limit.grows_at(1_111, 100)), (7, None));
        limit.tell(1_200, 2, 1);
        assert_eq!(limit.settle(1_200, 100), 3);
        limit.tell(1_300, 1, 0);
        assert_eq!((limit.settle(1_300, 100), limit.grows_at(1_311, 100)), (3, Some(1_411)));
        assert_eq!(limit.settle(1_411, 100), 7);
        limit.end();
        assert_eq!(limit.settle(9_000, 100), 0);
    }
}
