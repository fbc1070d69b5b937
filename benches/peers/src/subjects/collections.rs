//! What std has for it.

use crate::log::Log;
use crate::subject::{Setup, Subject};
use slab::Slab;
use std::cmp::Reverse;
use std::collections::{self, BinaryHeap};

/// std's `BTreeMap`, by deadline and by a number that tells those of equal deadlines apart.
#[derive(Debug, Default)]
pub(crate) struct BTreeMap {
    pub(crate) map: collections::BTreeMap<(u64, u64), u64>,
    scheduled: u64,
}

impl Subject for BTreeMap {
    type Key = (u64, u64);

    fn new(_setup: &Setup) -> Self {
        Self::default()
    }

    fn schedule(&mut self, deadline: u64, value: u64) -> Self::Key {
        self.scheduled += 1;
        let key = (deadline, self.scheduled);
        self.map.insert(key, value);
        key
    }

    fn cancel(&mut self, key: Self::Key, value: u64) -> bool {
        self.map.remove(&key) == Some(value)
    }

    fn expire_some(&mut self, now: u64, log: &mut Log) -> bool {
        let first = self.map.first_entry().filter(|first| first.key().0 <= now);
        first.map(|first| log.values.push(first.remove())).is_some()
    }

    fn next_wake(&mut self) -> Option<u64> {
        self.map.first_key_value().map(|(&(deadline, _), _)| deadline)
    }
}

/// std's `BinaryHeap` beside a slab of values, as most programs that have a heap of their own.
///
/// A cancel takes the value and leaves the heap's entry behind, until it surfaces, or until those
/// left behind outnumber the others and are thrown out all at once.
#[derive(Debug, Default)]
pub(crate) struct LazyHeap {
    heap: BinaryHeap<Reverse<(u64, u64, usize)>>,
    /// Each with its number, which tells it from those that had its place before.
    values: Slab<(u64, u64)>,
    scheduled: u64,
}

impl LazyHeap {
    fn take(&mut self, number: u64, index: usize) -> Option<u64> {
        self.values.get(index).filter(|present| present.0 == number)?;
        Some(self.values.remove(index).1)
    }
}

impl Subject for LazyHeap {
    type Key = (u64, usize);

    fn new(_setup: &Setup) -> Self {
        Self::default()
    }

    fn schedule(&mut self, deadline: u64, value: u64) -> Self::Key {
        self.scheduled += 1;
        let index = self.values.insert((self.scheduled, value));
        self.heap.push(Reverse((deadline, self.scheduled, index)));
        (self.scheduled, index)
    }

    fn cancel(&mut self, (number, index): Self::Key, value: u64) -> bool {
        let taken = self.take(number, index);
        if self.heap.len() > 64 + 2 * self.values.len() {
            self.heap.retain(|&Reverse((_, number, index))| {
                self.values.get(index).is_some_and(|present| present.0 == number)
            });
        }
        taken == Some(value)
    }

    fn expire_some(&mut self, now: u64, log: &mut Log) -> bool {
        let is_due = |&first: &&Reverse<(u64, u64, usize)>| first.0.0 <= now;
        while let Some(&Reverse((_, number, index))) = self.heap.peek().filter(is_due) {
            self.heap.pop();
            if let Some(value) = self.take(number, index) {
                log.values.push(value);
                return true;
            }
        }
        false
    }

    fn next_wake(&mut self) -> Option<u64> {
        self.heap.peek().map(|&Reverse((deadline, ..))| deadline)
    }
}
