//! What a subject handed out, and the judgement of it.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The values that came out, in their order, and when they did.
///
/// Values are written one after the other while time is taken, and judged when it no longer is.
#[derive(Debug, Default)]
pub(crate) struct Log {
    values: Vec<u64>,
    batches: Vec<Batch>,
    /// Values that are in a batch.
    closed: usize,
}

/// What came out at one time.
#[derive(Clone, Copy, Debug)]
struct Batch {
    now: u64,
    /// What was due before came out too late.
    since: u64,
    /// The values up to the end of it.
    end: usize,
}

impl Log {
    pub(crate) fn with_capacity(values: usize) -> Self {
        Self { values: Vec::with_capacity(values), batches: Vec::with_capacity(values), closed: 0 }
    }

    /// What a subject writes to.
    pub(crate) fn values(&mut self) -> &mut Vec<u64> {
        &mut self.values
    }

    pub(crate) fn push(&mut self, value: u64) {
        self.values.push(value);
    }

    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    /// The values since the last batch came out at `now`, at a call that was to hand out all that
    /// is due; those due before `since` should have come out at an earlier one.
    pub(crate) fn end_batch(&mut self, now: u64, since: u64) {
        if self.closed < self.values.len() {
            self.closed = self.values.len();
            self.batches.push(Batch { now, since, end: self.closed });
        }
    }

    pub(crate) fn clear(&mut self) {
        self.values.clear();
        self.batches.clear();
        self.closed = 0;
    }

    /// Each value with the times of its batch.
    fn iter(&self) -> impl Iterator<Item = (u64, u64, u64)> {
        let mut start = 0;
        self.batches.iter().flat_map(move |batch| {
            let values = &self.values[start..batch.end];
            start = batch.end;
            values.iter().map(move |&value| (value, batch.now, batch.since))
        })
    }
}

/// The value of a timeout tells when it is due and which one it is, so that it can be judged by
/// itself.
pub(crate) fn value(deadline: u64, id: usize) -> u64 {
    debug_assert!(deadline < 1 << (64 - ID_BITS) && id < 1 << ID_BITS);
    deadline << ID_BITS | id as u64
}

pub(crate) fn id(value: u64) -> usize {
    (value & ((1 << ID_BITS) - 1)) as usize
}

pub(crate) fn deadline(value: u64) -> u64 {
    value >> ID_BITS
}

/// Enough for 10 M timeouts; the other bits do for a deadline of 34 years.
const ID_BITS: u32 = 24;

/// In place of a value: none is pending.
pub(crate) const NOTHING: u64 = u64::MAX;

/// What was wrong with the answers of a subject: how many of each, and how far off.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Faults {
    pub(crate) early: u64,
    /// In ticks, or microseconds where real time is taken.
    pub(crate) earliest: u64,
    pub(crate) late: u64,
    pub(crate) latest: u64,
    pub(crate) lost: u64,
    /// Came out twice, or after it was cancelled or moved.
    pub(crate) duplicated: u64,
    /// Came out after one with a later deadline.
    pub(crate) disordered: u64,
    /// Cancelled or moved something else, or nothing.
    pub(crate) wrong: u64,
    /// Not a fault, as few promise it: came out after one that was scheduled later for the same
    /// tick.
    pub(crate) not_first_in_first_out: u64,
    /// Other timeouts did not come out after the task of one panicked.
    pub(crate) died: bool,
}

impl Faults {
    pub(crate) fn any(&self) -> bool {
        let counts = [self.early, self.late, self.lost, self.duplicated, self.disordered];
        self.died || 0 < self.wrong + counts.iter().sum::<u64>()
    }

    fn counts(&mut self) -> [&mut u64; 9] {
        let Self { early, earliest, late, latest, lost, duplicated, disordered, wrong, .. } = self;
        let ties = &mut self.not_first_in_first_out;
        [early, earliest, late, latest, lost, duplicated, disordered, wrong, ties]
    }

    /// What came out at `now`: whether that was the time for it.
    pub(crate) fn judge(&mut self, deadline: u64, now: u64, since: u64) {
        if now < deadline {
            self.early += 1;
            self.earliest = self.earliest.max(deadline - now);
        }
        if deadline < since {
            self.late += 1;
            self.latest = self.latest.max(now - deadline);
        }
    }

    /// Judges all that is in `log`, where `pending` has the value of each timeout that was
    /// scheduled; what came out is taken out of it.
    pub(crate) fn judge_all(&mut self, log: &Log, pending: &mut [u64]) {
        let mut last = 0;
        for (value, now, since) in log.iter() {
            self.judge(deadline(value), now, since);
            match pending.get_mut(id(value)) {
                Some(expected) if *expected == value => *expected = NOTHING,
                _ => self.duplicated += 1,
            }
            if deadline(value) < deadline(last) {
                self.disordered += 1;
            } else {
                self.not_first_in_first_out += u64::from(value < last);
                last = value;
            }
        }
    }

    /// What should have come out by now, and did not.
    pub(crate) fn judge_rest(&mut self, pending: &[u64]) {
        self.lost += pending.iter().filter(|&&value| value != NOTHING).count() as u64;
    }

    /// Adds those of another repetition, which are the same again if all goes well.
    pub(crate) fn merge(&mut self, other: &Self) {
        for (mine, others) in self.counts().into_iter().zip(other.clone().counts()) {
            *mine = (*mine).max(*others);
        }
        self.died |= other.died;
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut marks = Vec::new();
        let mut mark = |count: u64, word: &str, far: u64| {
            if 0 < count {
                let far = if 0 < far { format!(" (by up to {far})") } else { String::new() };
                marks.push(format!("{count} {word}{far}"));
            }
        };
        mark(self.early, "early", self.earliest);
        mark(self.late, "late", self.latest);
        mark(self.lost, "lost", 0);
        mark(self.duplicated, "duplicated", 0);
        mark(self.disordered, "out of order", 0);
        mark(self.wrong, "wrongly cancelled", 0);
        if self.died {
            marks.push("a task that panics ends it".into());
        }
        f.write_str(&marks.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(values: &[(u64, u64)]) -> Faults {
        let mut log = Log::default();
        for &(value, now) in values {
            log.push(value);
            log.end_batch(now, now);
        }
        let mut pending = [value(10, 0), value(10, 1), value(20, 2)];
        let mut faults = Faults::default();
        faults.judge_all(&log, &mut pending);
        faults.judge_rest(&pending);
        faults
    }

    #[test]
    fn finds_nothing_wrong_where_nothing_is() {
        let right = [(value(10, 0), 10), (value(10, 1), 10), (value(20, 2), 20)];
        assert_eq!(judged(&right), Faults::default());
        assert!(!judged(&right).any());
    }

    #[test]
    fn finds_what_is_early_late_lost_and_duplicated() {
        let faults = judged(&[(value(10, 0), 9), (value(20, 2), 23), (value(20, 2), 23)]);
        assert_eq!((faults.early, faults.earliest), (1, 1));
        assert_eq!((faults.late, faults.latest), (2, 3));
        assert_eq!((faults.lost, faults.duplicated), (1, 1));
        assert!(faults.any());
        assert!(faults.to_string().contains("1 early (by up to 1)"), "{faults}");
    }

    #[test]
    fn finds_what_is_out_of_order() {
        let swapped = [(value(20, 2), 20), (value(10, 0), 20), (value(10, 1), 20)];
        assert_eq!(judged(&swapped).disordered, 2);
        let ties = [(value(10, 1), 10), (value(10, 0), 10), (value(20, 2), 20)];
        assert_eq!(judged(&ties).not_first_in_first_out, 1);
        assert!(!judged(&ties).any());
    }
}
