//! Runs: sorts any number of timeouts by deadline, in short steps.

use super::arena::Entry;
use crate::steps;
use alloc::collections::BinaryHeap;
use alloc::collections::binary_heap::PeekMut;
use alloc::vec::Vec;
use core::cmp::Reverse;

/// Takes entries in any order, and gives them out by deadline. Entries of equal deadlines come out
/// in the order in which they were put in.
///
/// This is a merge sort with its two halves apart: a run is sorted when it is full, and runs are
/// merged while entries are taken out. No step costs more than one run.
#[derive(Debug, Default)]
pub(super) struct Runs {
    /// The runs by number, in the order in which they were put in. In each the next entry comes
    /// last.
    sorted: Vec<Vec<Entry>>,
    /// A deadline for each run that has entries, and the number of the run. No deadline in the run
    /// is before it. It is the run's earliest until `retain` drops that entry.
    next: BinaryHeap<Reverse<(u64, u32)>>,
    /// The run that is being filled.
    gathered: Vec<Entry>,
}

impl Runs {
    /// Puts an entry in.
    pub(super) fn push(&mut self, entry: Entry) {
        self.gathered.push(entry);
        if self.gathered.len() == RUN {
            self.close();
        }
    }

    /// Sorts the entries that were put in since the last run was closed. Call it before `pop`.
    pub(super) fn close(&mut self) {
        let mut entries = core::mem::take(&mut self.gathered);
        steps::count(entries.len());
        entries.sort_by_key(|entry| entry.deadline);
        entries.reverse();
        if let Some(next) = entries.last() {
            self.next.push(Reverse((next.deadline, self.sorted.len() as u32)));
            self.sorted.push(entries);
        }
    }

    /// Takes out the next entry. Returns `Some(None)` if the run that seemed to come next has lost
    /// its next entry: then call it again.
    pub(super) fn pop(&mut self) -> Option<Option<Entry>> {
        steps::count(1);
        let mut next = self.next.peek_mut()?;
        let Reverse((deadline, number)) = *next;
        let run = &mut self.sorted[number as usize];
        let is_next = run.last().is_some_and(|entry| entry.deadline == deadline);
        let popped = if is_next { run.pop() } else { None };
        match run.last() {
            Some(entry) => *next = Reverse((entry.deadline, number)),
            None => {
                *run = Vec::new();
                PeekMut::pop(next);
                if self.next.is_empty() {
                    *self = Self::default();
                }
            }
        }
        Some(popped)
    }

    /// Returns the number of the last run, which is the one that is being filled.
    pub(super) fn last(&self) -> usize {
        self.sorted.len()
    }

    /// Returns the entries of run `number`.
    pub(super) fn run(&self, number: usize) -> &[Entry] {
        self.sorted.get(number).unwrap_or(&self.gathered)
    }

    /// Drops the entries of run `number` that `keep` rejects.
    pub(super) fn retain(&mut self, number: usize, mut keep: impl FnMut(Entry) -> bool) {
        let run = self.sorted.get_mut(number).unwrap_or(&mut self.gathered);
        steps::count(run.len());
        run.retain(|&entry| keep(entry));
        run.shrink_to(2 * run.len());
    }

    /// Returns all entries, in no particular order.
    pub(super) fn iter(&self) -> impl Iterator<Item = Entry> {
        self.sorted.iter().chain([&self.gathered]).flatten().copied()
    }

    /// Returns whether there is nothing to take out.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.next.is_empty()
    }

    /// Returns the bytes that are allocated.
    pub(super) fn memory(&self) -> usize {
        let entries: usize = self.sorted.iter().map(Vec::capacity).sum();
        (entries + self.gathered.capacity()) * size_of::<Entry>()
            + self.sorted.capacity() * size_of::<Vec<Entry>>()
            + self.next.capacity() * size_of::<Reverse<(u64, u32)>>()
    }

    /// Panics unless the runs are sorted, and the next entry of each is known.
    pub(super) fn check(&self) {
        for (number, run) in self.sorted.iter().enumerate() {
            assert!(run.is_sorted_by_key(|entry| Reverse(entry.deadline)), "a run is sorted");
            let known = self.next.iter().find(|next| next.0.1 as usize == number);
            let next = run.last().map(|entry| entry.deadline);
            let is_known = |next| known.is_some_and(|known| known.0.0 <= next);
            assert!(next.is_none_or(is_known), "the next of a run is known");
        }
    }
}

/// Timeouts that are sorted at once.
pub(super) const RUN: usize = 1024;

#[cfg(test)]
mod tests {
    use super::{Entry, RUN, Runs};
    use alloc::vec::Vec;

    /// Puts numbered entries in, with the deadlines that `deadline` gives them, and returns them
    /// sorted.
    fn put(runs: &mut Runs, entries: u32, deadline: impl Fn(u64) -> u64) -> Vec<(u64, u32)> {
        let mut expected = Vec::new();
        for index in 0..entries {
            let deadline = deadline(index.into());
            runs.push(Entry { index, stamp: 0, deadline });
            expected.push((deadline, index));
        }
        runs.close();
        runs.check();
        expected.sort();
        expected
    }

    fn take(runs: &mut Runs) -> Vec<(u64, u32)> {
        core::iter::from_fn(|| runs.pop())
            .flatten()
            .map(|entry| (entry.deadline, entry.index))
            .collect()
    }

    #[test]
    fn runs_are_merged_by_deadline_and_equal_ones_keep_their_order() {
        let entries = 3 * RUN as u32 + 77;
        for modulus in [1, 2, 7, 1000, 1 << 40] {
            let mut runs = Runs::default();
            let deadline = |index| (1 << 33) + index * 0x9e37_79b9 % modulus;
            let expected = put(&mut runs, entries, deadline);
            assert_eq!(runs.sorted.len(), 4);
            assert_eq!(runs.iter().count(), entries as usize);
            assert_eq!(take(&mut runs), expected);
            assert_eq!(runs.iter().count(), 0);
        }
    }

    #[test]
    fn the_last_tick_is_sorted_as_any_other() {
        let mut runs = Runs::default();
        let expected = put(&mut runs, 3 * RUN as u32, |index| u64::MAX - index % 3);
        assert_eq!(take(&mut runs), expected);
    }

    #[test]
    fn what_is_dropped_does_not_come_and_the_others_do() {
        for modulus in [1, 2, 7, 1000, 1 << 40] {
            for entries in [RUN, RUN + 1, 3 * RUN + 77] {
                for kept in [0, 1, 5, 2000] {
                    let mut runs = Runs::default();
                    let deadline = |index| (1 << 33) + index * 0x9e37_79b9 % modulus;
                    let mut expected = put(&mut runs, entries as u32, deadline);
                    let taken: Vec<_> = (0..20).filter_map(|_| runs.pop()?).collect();
                    assert!(
                        taken
                            .iter()
                            .map(|entry| entry.index)
                            .eq(expected.drain(..20).map(|at| at.1))
                    );
                    let is_kept = |index| index % 2000 < kept;
                    for number in (0..=runs.last()).rev() {
                        let before = runs.memory();
                        runs.retain(number, |entry| is_kept(entry.index));
                        assert!(runs.memory() <= before);
                        runs.check();
                    }
                    expected.retain(|&(_, index)| is_kept(index));
                    assert_eq!(take(&mut runs), expected);
                    assert_eq!((runs.iter().count(), runs.memory()), (0, 0));
                }
            }
        }
    }

    #[test]
    fn runs_give_back_the_room_of_what_is_dropped_and_of_what_is_taken_out() {
        let mut runs = Runs::default();
        put(&mut runs, 4 * RUN as u32, |index| index);
        let full = runs.memory();
        assert!((0..2 * RUN).all(|_| runs.pop().is_some()));
        assert!(runs.memory() <= full * 2 / 3, "{} of {full}", runs.memory());
        for number in 0..=runs.last() {
            runs.retain(number, |entry| entry.index % 100 == 0);
        }
        assert!(runs.memory() <= full / 10, "{} of {full}", runs.memory());
    }

    #[test]
    fn exactly_one_run_is_one_run() {
        let mut runs = Runs::default();
        put(&mut runs, RUN as u32, |index| index);
        assert_eq!((runs.sorted.len(), runs.gathered.len()), (1, 0));
        put(&mut runs, 1, |_| 0);
        assert_eq!(runs.sorted.len(), 2);
    }

    #[test]
    fn emptied_runs_hold_nothing_and_start_afresh() {
        let mut runs = Runs::default();
        for _ in 0..2 {
            let expected = put(&mut runs, 2 * RUN as u32, |index| index % 5);
            assert!(0 < runs.memory());
            assert_eq!(take(&mut runs), expected);
            assert_eq!((runs.memory(), runs.last()), (0, 0));
            assert!(runs.pop().is_none());
        }
    }

    #[test]
    fn what_is_still_gathered_counts_too() {
        let mut runs = Runs::default();
        assert_eq!(runs.iter().count(), 0);
        runs.push(Entry { index: 0, stamp: 0, deadline: 5 });
        assert_eq!(runs.iter().count(), 1);
        assert_eq!(runs.run(0).len(), 1);
        runs.close();
        assert_eq!(runs.pop().flatten().map(|entry| entry.deadline), Some(5));
    }
}
