//! What waits for a consumer, and what a consumer holds.

use std::collections::VecDeque;

use crate::store::Row;

/// The timeouts that were handed out and that no consumer has taken.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    waiting: VecDeque<(Row, u64)>,
    /// The steady time at which too little is left of the leases. `None`: they do not run out.
    until: Option<u64>,
    /// The steady time at which somebody asked last for what is due, or at which something came
    /// when nothing waited. `None`: nobody receives.
    asked: Option<u64>,
    /// Whether somebody asked since something came, and found nothing.
    missed: bool,
    /// The numbers of what was taken since the keeper looked, and when.
    pub(super) taken: Vec<(u64, u64)>,
    /// How many wait for something.
    pub(crate) listeners: usize,
    /// Whether the keeper waits until something is taken.
    pub(crate) is_paced: bool,
}

impl Outbox {
    pub(crate) fn push(&mut self, steady: u64, row: Row, epoch: u64) {
        if self.waiting.is_empty() && self.asked.is_some() {
            self.asked = Some(steady);
        }
        self.missed = false;
        self.waiting.push_back((row, epoch));
    }

    /// How many are wanted.
    pub(super) fn wanted(&self) -> usize {
        self.listeners.max(usize::from(self.missed))
    }

    /// Whether somebody found nothing.
    pub(crate) fn is_missed(&self) -> bool {
        self.missed
    }

    /// Lets nothing be taken from this steady time on.
    pub(crate) fn close_at(&mut self, until: Option<u64>) {
        self.until = until;
    }

    /// Whether somebody asks for what is due.
    pub(crate) fn is_asked(&self) -> bool {
        self.asked.is_some()
    }

    /// The steady time since which nobody has taken what waits.
    pub(super) fn asked(&self) -> Option<u64> {
        self.asked
    }

    /// Notices that nobody has asked since that steady time, if something waits. Returns when
    /// somebody asked last, if so.
    pub(super) fn notice_abandoned(&mut self, since: u64, waits: bool) -> Option<u64> {
        self.asked.take_if(|asked| waits && *asked < since)
    }

    /// Takes the first, with the epoch it was handed out under. The keeper may be late to see that
    /// the leases are over: the process may have been stopped.
    pub(crate) fn take(&mut self, steady: u64) -> Option<(Row, u64)> {
        self.asked = Some(steady);
        if self.until.is_some_and(|until| until <= steady) {
            return None;
        }
        let taken = self.waiting.pop_front();
        self.missed |= taken.is_none();
        self.taken.extend(taken.iter().map(|(row, _)| (row.number, steady)));
        taken
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
    pub(crate) fn waiting(&self) -> impl DoubleEndedIterator<Item = &(Row, u64)> {
        self.waiting.iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use super::Outbox;
    use crate::store::Row;
    use std::sync::Arc;

    #[test]
    fn who_found_nothing_is_noted_until_something_comes() {
        let mut outbox = Outbox::default();
        assert_eq!((outbox.is_missed(), outbox.wanted()), (false, 0));
        assert!(outbox.take(0).is_none());
        assert_eq!((outbox.is_missed(), outbox.wanted()), (true, 1));
        let row = Row {
            name: "a".into(),
            deadline: 1,
            payload: Arc::from([]),
            metadata: Arc::default(),
            attempt: 0,
            number: 1,
            partition: 0,
        };
        outbox.push(1, row, 1);
        assert_eq!((outbox.is_missed(), outbox.wanted()), (false, 0));
        assert!(outbox.take(1).is_some());
        assert!(!outbox.is_missed());
    }
}
