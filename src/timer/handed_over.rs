//! The tasks of one shard that an executor has.

use super::stats::Lateness;
use crate::Key;
use crate::sync::{Condvar, Mutex, Rank, lock, wait};
use std::collections::HashSet;

/// The timeouts of one shard that fired and whose tasks the executor has, so that threads can wait
/// for the end of one. A lock of its own: threads that schedule do not meet those of the executor.
pub(super) struct HandedOver {
    state: Mutex<HandedOverState>,
    /// Tells the threads that wait that there is one less.
    one_less: Condvar,
}

#[derive(Default)]
struct HandedOverState {
    keys: HashSet<Key>,
    /// How many threads wait.
    waiting: usize,
    /// How long tasks waited to run.
    waits: Lateness,
}

impl HandedOver {
    pub(super) fn new() -> Self {
        let state = Mutex::new(Rank::HandedOver, HandedOverState::default());
        Self { state, one_less: Condvar::new() }
    }

    pub(super) fn insert(&self, key: Key) {
        lock(&self.state).keys.insert(key);
    }

    /// Takes out one whose task was dropped, or has run after it `waited` so many nanoseconds.
    pub(super) fn remove(&self, key: Key, waited: Option<u64>) {
        let mut state = lock(&self.state);
        state.keys.remove(&key);
        if let Some(waited) = waited {
            state.waits.record(waited);
        }
        if state.keys.is_empty() && KEPT < state.keys.capacity() {
            state.keys.shrink_to(KEPT);
        }
        if state.waiting > 0 {
            self.one_less.notify_all();
        }
    }

    pub(super) fn add_waits_to(&self, sum: &mut Lateness) {
        sum.add(&lock(&self.state).waits);
    }

    /// Waits until the executor does not have the task of this timeout.
    pub(super) fn wait_for(&self, key: Key) {
        let mut state = lock(&self.state);
        state.waiting += 1;
        while state.keys.contains(&key) {
            state = wait(&self.one_less, state);
        }
        state.waiting -= 1;
    }
}

/// The room that is kept while the executor has no task.
const KEPT: usize = 1 << 10;
