//! The way of the operations to the thread that writes them.

use alloc::boxed::Box;
use core::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use crossbeam_utils::CachePadded;
use std::sync::OnceLock;

/// The operations of one shard, on their way to the thread that writes them.
///
/// One thread at a time [pushes](Self::push), and one takes out. Neither ever waits: an operation
/// that finds no room is counted instead. Two threads that push at once would lose operations, and
/// nothing worse.
pub(super) struct Ring {
    capacity: usize,
    /// Made with the first operation, because few threads may use few of many shards.
    slots: OnceLock<Box<[OperationSlot]>>,
    pushed: CachePadded<Pushed>,
    /// How many operations were taken out. Only the thread that takes out writes it.
    taken: CachePadded<AtomicU64>,
}

/// Only the thread that pushes writes these.
#[derive(Default)]
struct Pushed {
    /// How many operations were pushed.
    count: AtomicU64,
    /// How many operations found no room.
    missing: AtomicU64,
}

/// What happened to a timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Operation {
    /// When, in ms since tick 0.
    pub(super) time_ms: u64,
    pub(super) key: u32,
    pub(super) kind: OperationKind,
    /// When the timeout is due, in ms since tick 0. It means nothing for
    /// [`OperationKind::Cancel`].
    pub(super) due_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OperationKind {
    Schedule,
    Reschedule,
    Cancel,
}

#[derive(Default)]
struct OperationSlot {
    time_ms: AtomicU64,
    due_ms: AtomicU64,
    /// The key, below the number of the kind.
    what: AtomicU64,
}

impl Ring {
    /// Makes one with room for `capacity` operations, which is a power of two.
    pub(super) fn new(capacity: usize) -> Self {
        debug_assert!(capacity.is_power_of_two());
        let (slots, pushed, taken) = Default::default();
        Self { capacity, slots, pushed, taken }
    }

    /// Adds an operation, or counts it if there is no room. Returns true if half of the room is now
    /// taken, and was not before.
    #[inline]
    pub(super) fn push(&self, operation: Operation) -> bool {
        let pushed = self.pushed.count.load(Relaxed);
        // The slots that were taken out are free from here on.
        let used = pushed - self.taken.load(Acquire);
        if used == self.capacity as u64 {
            self.misses();
            return false;
        }
        self.slot(pushed).store(operation);
        self.pushed.count.store(pushed + 1, Release);
        used + 1 == self.capacity as u64 / 2
    }

    /// Counts an operation that is not pushed.
    #[cold]
    pub(super) fn misses(&self) {
        self.pushed.missing.store(self.missing() + 1, Relaxed);
    }

    /// Returns how many operations found no room.
    pub(super) fn missing(&self) -> u64 {
        self.pushed.missing.load(Relaxed)
    }

    /// Returns how many operations were pushed so far.
    pub(super) fn pushed(&self) -> u64 {
        self.pushed.count.load(Acquire)
    }

    /// Returns how many operations were pushed and not taken out.
    pub(super) fn waiting(&self) -> u64 {
        self.pushed() - self.taken.load(Relaxed)
    }

    /// Returns whether at least half of the room is taken.
    pub(super) fn is_half_full(&self) -> bool {
        self.capacity as u64 / 2 <= self.waiting()
    }

    /// Returns the operation that comes out next, if fewer than `pushed` were taken out.
    pub(super) fn peek(&self, pushed: u64) -> Option<Operation> {
        let taken = self.taken.load(Relaxed);
        (taken < pushed).then(|| self.slot(taken).load())
    }

    /// Takes out the operation that [`peek`](Self::peek) returned.
    pub(super) fn take(&self) {
        self.taken.store(self.taken.load(Relaxed) + 1, Release);
    }

    #[inline]
    fn slot(&self, number: u64) -> &OperationSlot {
        let slots = self
            .slots
            .get_or_init(|| (0..self.capacity).map(|_| OperationSlot::default()).collect());
        &slots[number as usize & (slots.len() - 1)]
    }
}

impl OperationSlot {
    #[inline]
    fn store(&self, operation: Operation) {
        let Operation { time_ms, key, kind, due_ms } = operation;
        self.time_ms.store(time_ms, Relaxed);
        self.due_ms.store(due_ms, Relaxed);
        self.what.store((kind as u64) << 32 | u64::from(key), Relaxed);
    }

    fn load(&self) -> Operation {
        let what = self.what.load(Relaxed);
        let kind = match what >> 32 {
            0 => OperationKind::Schedule,
            1 => OperationKind::Reschedule,
            _ => OperationKind::Cancel,
        };
        let (time_ms, due_ms) = (self.time_ms.load(Relaxed), self.due_ms.load(Relaxed));
        Operation { time_ms, key: what as u32, kind, due_ms }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::thread;

    fn operation(number: u64) -> Operation {
        let kind = [OperationKind::Schedule, OperationKind::Reschedule, OperationKind::Cancel]
            [number as usize % 3];
        Operation { time_ms: number, key: !(number as u32), kind, due_ms: number * 7 }
    }

    #[test]
    fn a_full_ring_counts_what_it_does_not_take() {
        let ring = Ring::new(4);
        let half_full: Vec<_> = (0..6).map(|number| ring.push(operation(number))).collect();
        assert_eq!(half_full, [false, true, false, false, false, false]);
        assert_eq!((ring.pushed(), ring.missing()), (4, 2));
        for number in 0..4 {
            assert!(ring.is_half_full() == (number < 3));
            assert_eq!(ring.peek(4), Some(operation(number)));
            ring.take();
        }
        assert_eq!(ring.peek(4), None);
        assert!(!ring.push(operation(6)));
        assert_eq!((ring.peek(5), ring.missing()), (Some(operation(6)), 2));
    }

    #[test]
    fn two_threads_hand_over_each_operation_once_and_in_order() {
        const ALL: u64 = 200_000;
        let ring = Ring::new(64);
        thread::scope(|scope| {
            scope.spawn(|| (0..ALL).for_each(|number| _ = ring.push(operation(number))));
            let (mut taken, mut last) = (0, None);
            while taken + ring.missing() < ALL {
                let Some(found) = ring.peek(ring.pushed()) else { continue };
                assert_eq!(found, operation(found.time_ms));
                assert!(last < Some(found.time_ms));
                last = Some(found.time_ms);
                taken += 1;
                ring.take();
            }
            assert!(0 < taken);
        });
    }
}
