//! What does less than is asked for, and cannot be expected to be beaten.

use crate::log::Log;
use crate::subject::{Setup, Subject};
use voracious_radix_sort::{RadixSort, Radixable};

/// The limit for what fires: an array of deadlines and values, sorted once and walked; by
/// `sort_unstable`, or by voracious's radix sort.
///
/// Nothing that is asked for one timeout after the other can do this.
pub(crate) struct SortAndWalk<const BY_DIGITS: bool>(Vec<Due>);

/// Ordered by its deadline.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    deadline: u64,
    value: u64,
}

impl Radixable<u64> for Due {
    type Key = u64;

    fn key(&self) -> u64 {
        self.deadline
    }
}

impl<const BY_DIGITS: bool> Subject for SortAndWalk<BY_DIGITS> {
    type Key = ();

    fn new(_setup: &Setup) -> Self {
        Self(Vec::new())
    }

    fn schedule(&mut self, deadline: u64, value: u64) {
        self.0.push(Due { deadline, value });
    }

    fn expire_some(&mut self, now: u64, log: &mut Log) -> bool {
        match BY_DIGITS {
            true => self.0.voracious_stable_sort(),
            false => self.0.sort_unstable(),
        }
        let due = self.0.partition_point(|due| due.deadline <= now);
        log.values.extend(self.0.drain(..due).map(|due| due.value));
        false
    }

    fn next_wake(&mut self) -> Option<u64> {
        self.0.iter().map(|due| due.deadline).min()
    }

    fn drive(&mut self, _now: u64, log: &mut Log) -> u64 {
        self.expire_some(u64::MAX, log);
        let end = log.values.last().map_or(0, |&value| crate::log::deadline(value));
        log.end_batch(end, 0);
        end
    }
}

/// The limit for what cancels: a bare `slab::Slab`, which forgets the deadlines.
pub(crate) struct Slab(slab::Slab<u64>);

impl Subject for Slab {
    type Key = usize;

    const FIRES: bool = false;

    fn new(_setup: &Setup) -> Self {
        Self(slab::Slab::new())
    }

    fn schedule(&mut self, _deadline: u64, value: u64) -> usize {
        self.0.insert(value)
    }

    fn cancel(&mut self, key: usize, value: u64) -> bool {
        self.0.try_remove(key) == Some(value)
    }

    fn expire_some(&mut self, _now: u64, _log: &mut Log) -> bool {
        false
    }

    fn next_wake(&mut self) -> Option<u64> {
        None
    }
}

/// The limit for a poll at which nothing is due: now is compared with the only deadline.
pub(crate) struct Compare(u64, u64);

impl Subject for Compare {
    type Key = ();

    fn new(_setup: &Setup) -> Self {
        Self(u64::MAX, 0)
    }

    fn schedule(&mut self, deadline: u64, value: u64) {
        *self = Self(deadline, value);
    }

    fn expire_some(&mut self, now: u64, log: &mut Log) -> bool {
        if self.0 <= now {
            log.values.push(self.1);
            self.0 = u64::MAX;
        }
        false
    }

    fn next_wake(&mut self) -> Option<u64> {
        Some(self.0).filter(|&deadline| deadline < u64::MAX)
    }
}
