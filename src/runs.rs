//! Runs: any number of timeouts sorted by deadline, in short steps.

use crate::arena::Entry;
use alloc::collections::BinaryHeap;
use alloc::collections::binary_heap::PeekMut;
use alloc::vec::Vec;
use core::cmp::{Ordering, Reverse};

/// Timeouts that are sorted at once.
const RUN: usize = 1024;

/// Timeouts put in by any deadline and taken out by rising ones; of equal deadlines in the order in
/// which they were put in.
///
/// Merge sort with its two halves apart: runs are sorted as they fill, and merged as they are taken
/// out. No step costs more than one run.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    /// The run that comes next on top.
    sorted: BinaryHeap<Run>,
    /// What will be the next run.
    gathered: Vec<(u64, Entry)>,
    /// Runs that were ever begun.
    begun: u32,
}

#[derive(Debug)]
struct Run {
    number: u32,
    /// The next one last; never empty.
    entries: Vec<(u64, Entry)>,
}

impl Run {
    /// What orders runs: the next deadline; of equal ones, that which was put in first.
    fn key(&self) -> Reverse<(u64, u32)> {
        Reverse((self.entries.last().map_or(u64::MAX, |&(deadline, _)| deadline), self.number))
    }
}

impl Runs {
    /// Puts a timeout in.
    pub(crate) fn push(&mut self, deadline: u64, entry: Entry) {
        self.gathered.push((deadline, entry));
        if self.gathered.len() == RUN {
            self.close();
        }
    }

    /// Sorts what was put in since the last run was closed; to be called before `pop`.
    pub(crate) fn close(&mut self) {
        let mut entries = core::mem::take(&mut self.gathered);
        if entries.is_empty() {
            return;
        }
        entries.sort_by_key(|&(deadline, _)| deadline);
        entries.reverse();
        self.sorted.push(Run { number: self.begun, entries });
        self.begun += 1;
    }

    /// Takes out the next timeout.
    pub(crate) fn pop(&mut self) -> Option<(u64, Entry)> {
        let mut run = self.sorted.peek_mut()?;
        let next = run.entries.pop();
        if run.entries.is_empty() {
            PeekMut::pop(run);
            if self.sorted.is_empty() {
                *self = Self::default();
            }
        }
        next
    }

    /// The timeout that would come next if there were only those with live entries.
    pub(crate) fn first(&self, is_live: impl Fn(Entry) -> bool) -> Option<(u64, Entry)> {
        let is_live = |&&(_, entry): &&(u64, Entry)| is_live(entry);
        let sorted = self.sorted.iter().filter_map(|run| {
            let &(deadline, entry) = run.entries.iter().rev().find(is_live)?;
            Some((deadline, run.number, entry))
        });
        let gathered = self.gathered.iter().filter(is_live);
        sorted
            .chain(gathered.map(|&(deadline, entry)| (deadline, self.begun, entry)))
            .min_by_key(|&(deadline, number, _)| (deadline, number))
            .map(|(deadline, _, entry)| (deadline, entry))
    }

    /// All of them, in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &(u64, Entry)> {
        self.sorted.iter().flat_map(|run| &run.entries).chain(&self.gathered)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.sorted.is_empty() && self.gathered.is_empty()
    }

    /// Bytes allocated.
    pub(crate) fn memory(&self) -> usize {
        let entries: usize = self.sorted.iter().map(|run| run.entries.capacity()).sum();
        (entries + self.gathered.capacity()) * size_of::<(u64, Entry)>()
            + self.sorted.capacity() * size_of::<Run>()
    }
}

impl PartialEq for Run {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Run {}

impl PartialOrd for Run {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Run {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

#[cfg(test)]
mod tests {
    use super::{RUN, Runs};
    use crate::arena::Entry;
    use alloc::vec::Vec;

    /// Puts so many in, numbered, by the deadlines that `deadline` gives them; returns them sorted.
    fn put(runs: &mut Runs, entries: u32, deadline: impl Fn(u64) -> u64) -> Vec<(u64, u32)> {
        let mut expected = Vec::new();
        for index in 0..entries {
            let deadline = deadline(index.into());
            runs.push(deadline, Entry::new(index, 0, deadline));
            expected.push((deadline, index));
        }
        runs.close();
        expected.sort();
        expected
    }

    fn take(runs: &mut Runs) -> Vec<(u64, u32)> {
        core::iter::from_fn(|| runs.pop())
            .map(|(deadline, entry)| (deadline, entry.index))
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
            assert!(runs.is_empty());
        }
    }

    #[test]
    fn the_last_tick_is_sorted_as_any_other() {
        let mut runs = Runs::default();
        let expected = put(&mut runs, 3 * RUN as u32, |index| u64::MAX - index % 3);
        assert_eq!(take(&mut runs), expected);
    }

    #[test]
    fn the_first_that_is_live_is_the_next_of_those_that_are() {
        for modulus in [1, 2, 7, 1000, 1 << 40] {
            for entries in [RUN, RUN + 1, 3 * RUN + 77] {
                let mut runs = Runs::default();
                let deadline = |index| (1 << 33) + index * 0x9e37_79b9 % modulus;
                let expected = put(&mut runs, entries as u32, deadline);
                for taken in 0..20 {
                    let is_live = |entry: Entry| entry.index % 5 == 3;
                    let next = expected[taken..].iter().find(|(_, index)| index % 5 == 3);
                    let first =
                        runs.first(is_live).map(|(deadline, entry)| (deadline, entry.index));
                    assert_eq!(first.as_ref(), next);
                    runs.pop();
                }
                assert!(runs.first(|_| false).is_none());
            }
        }
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
            assert_eq!((runs.memory(), runs.begun), (0, 0));
            assert!(runs.pop().is_none());
        }
    }

    #[test]
    fn what_is_still_gathered_counts_too() {
        let mut runs = Runs::default();
        assert!(runs.is_empty());
        runs.push(5, Entry::new(0, 0, 5));
        assert!(!runs.is_empty());
        assert_eq!(runs.first(|_| true).map(|(deadline, _)| deadline), Some(5));
        runs.close();
        assert_eq!(runs.pop().map(|(deadline, _)| deadline), Some(5));
    }
}
