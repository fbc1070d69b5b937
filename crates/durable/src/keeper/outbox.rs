//! What waits for a consumer, and what a consumer holds.

use std::collections::VecDeque;

use crate::store::Row;

/// The timeouts that were handed out and that no consumer has taken.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    waiting: VecDeque<(Row, u64)>,
}

impl Outbox {
    pub(crate) fn push(&mut self, row: Row, epoch: u64) {
        self.waiting.push_back((row, epoch));
    }

    /// Takes the first, with the epoch it was handed out under.
    pub(crate) fn take(&mut self) -> Option<(Row, u64)> {
        self.waiting.pop_front()
    }

    /// Takes back the one of this number. False: a consumer has it.
    pub(crate) fn take_back(&mut self, number: u64) -> bool {
        match self.waiting.iter().position(|(row, _)| row.number == number) {
            Some(index) => self.waiting.remove(index).is_some(),
            None => false,
        }
    }

    /// Takes all back, and returns their numbers.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = u64> + '_ {
        self.waiting.drain(..).map(|(row, _)| row.number)
    }

    /// Returns what waits, the first first.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> impl DoubleEndedIterator<Item = &(Row, u64)> {
        self.waiting.iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }
}
