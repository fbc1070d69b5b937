//! The tasks of one shard that an executor has.

use super::stats::Lateness;
use crate::names::{Names, ODD};
use crate::sync::{Condvar, Mutex, Rank, lock, wait};
use crate::{Key, steps};
use core::mem::replace;

/// The timeouts of one shard that fired and whose tasks the executor has, so that threads can wait
/// for the end of one. A lock of its own: threads that schedule do not meet those of the executor.
pub(super) struct HandedOver {
    state: Mutex<HandedOverState>,
    /// Tells the threads that wait that there is one less.
    one_less: Condvar,
}

struct HandedOverState {
    /// By hashes that tell all of one place apart.
    keys: Names<u32, 7>,
    /// How many threads wait.
    waiting: usize,
    /// How long tasks waited to run.
    waits: Lateness,
}

impl HandedOver {
    pub(super) fn new() -> Self {
        let state = HandedOverState { keys: Names::new(), waiting: 0, waits: Lateness::default() };
        Self { state: Mutex::new(Rank::HandedOver, state), one_less: Condvar::new() }
    }

    pub(super) fn insert(&self, key: Key) {
        lock(&self.state).keys.insert(hash(key), key.index(), |hash, _| hash);
    }

    /// Takes out one whose task was dropped, or has run after it `waited` so many nanoseconds.
    pub(super) fn remove(&self, key: Key, waited: Option<u64>) {
        let mut state = lock(&self.state);
        state.keys.remove(hash(key), is_place(key));
        if let Some(waited) = waited {
            state.waits.record(waited);
        }
        let is_large = state.keys.len() == 0 && KEPT < state.keys.lines();
        let emptied = is_large.then(|| replace(&mut state.keys, Names::new()));
        if state.waiting > 0 {
            steps::count(1);
            self.one_less.notify_all();
        }
        drop(state);
        drop(emptied);
    }

    pub(super) fn add_waits_to(&self, sum: &mut Lateness) {
        sum.add(&lock(&self.state).waits);
    }

    /// Returns whether the executor has the task of this timeout.
    pub(super) fn has(&self, key: Key) -> bool {
        lock(&self.state).keys.find(hash(key), is_place(key)).is_some()
    }

    /// Waits until the executor does not have the task of this timeout.
    pub(super) fn wait_for(&self, key: Key) {
        let mut state = lock(&self.state);
        state.waiting += 1;
        while state.keys.find(hash(key), is_place(key)).is_some() {
            state = wait(&self.one_less, state);
        }
        state.waiting -= 1;
    }

    /// Gives back the memory that the tasks that the executor has do not need.
    pub(super) fn shrink_to_fit(&self) {
        lock(&self.state).keys.shrink_to_fit(|hash, _| hash);
    }

    /// Returns the bytes that are allocated.
    pub(super) fn memory(&self) -> usize {
        lock(&self.state).keys.memory()
    }
}

/// Tells all keys of one place apart: their generations differ.
fn hash(key: Key) -> u32 {
    let [place, generation] = [key.to_bits() as u32, (key.to_bits() >> 32) as u32];
    let spread = place.wrapping_mul(ODD as u32);
    generation ^ spread ^ spread >> 16
}

fn is_place(key: Key) -> impl Fn(u32) -> Option<()> {
    move |place| (place == key.index()).then_some(())
}

/// The lines that are kept while the executor has no task.
const KEPT: usize = 256;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn of_two_timeouts_that_had_one_place_each_has_its_own_end() {
        let handed_over = HandedOver::new();
        let [first, second] = [1 << 32 | 5, 2 << 32 | 5].map(Key::from_bits);
        handed_over.insert(first);
        assert!(!handed_over.has(second));
        handed_over.insert(second);
        handed_over.remove(first, None);
        assert_eq!([first, second].map(|key| handed_over.has(key)), [false, true]);
    }

    #[test]
    fn what_many_needed_is_given_back_when_none_is_left() {
        let handed_over = HandedOver::new();
        let keys: Vec<_> = (0..10_000).map(|place| Key::from_bits(1 << 32 | place)).collect();
        keys.iter().for_each(|&key| handed_over.insert(key));
        let many = handed_over.memory();
        for (removed, &key) in keys.iter().enumerate() {
            assert!(keys[removed..].iter().step_by(999).all(|&key| handed_over.has(key)));
            handed_over.remove(key, None);
        }
        assert!(handed_over.memory() < many / 100, "{} of {many}", handed_over.memory());
        // And few keep theirs.
        handed_over.insert(keys[0]);
        let few = handed_over.memory();
        handed_over.remove(keys[0], None);
        assert_eq!(handed_over.memory(), few);
    }

    #[test]
    fn who_has_waited_is_told_of_no_more() {
        let handed_over = HandedOver::new();
        handed_over.wait_for(Key::from_bits(1 << 32));
        assert_eq!(lock(&handed_over.state).waiting, 0);
    }

    /// Else each task would cost a call of the system.
    #[test]
    fn where_nobody_waits_for_a_task_nobody_is_told() {
        let handed_over = HandedOver::new();
        let steps_of_one = || {
            let (key, before) = (Key::from_bits(1 << 32), steps());
            handed_over.insert(key);
            handed_over.remove(key, None);
            steps() - before
        };
        steps_of_one();
        let alone = steps_of_one();
        lock(&handed_over.state).waiting = 1;
        assert_eq!(steps_of_one() - alone, u64::from(cfg!(debug_assertions)));
    }
}
