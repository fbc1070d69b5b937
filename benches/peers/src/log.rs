//! What a subject handed out, and the judgement of it.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// The values that came out, in their order, and when they did.
///
/// Values are written one after the other while time is taken, and judged when it no longer is.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// What a subject writes to.
    pub(crate) values: Vec<u64>,
    batches: Vec<Batch>,
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
        Self { values: Vec::with_capacity(values), batches: Vec::with_capacity(values) }
    }

    /// The values since the last batch came out at `now`, at a call that was to hand out all that
    /// is due; those due before `since` should have come out at an earlier one.
    pub(crate) fn end_batch(&mut self, now: u64, since: u64) {
        let end = self.values.len();
        if self.batches.last().map_or(0, |last| last.end) < end {
            self.batches.push(Batch { now, since, end });
        }
    }

    pub(crate) fn clear(&mut self) {
        self.values.clear();
        self.batches.clear();
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

/// What can be wrong with an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Fault {
    Early,
    Late,
    Lost,
    /// Came out twice, or after it was cancelled or moved.
    Duplicated,
    /// Came out after one with a later deadline.
    Disordered,
    /// Cancelled or moved something else, or nothing.
    Wrong,
    /// Other timeouts did not come out after the task of one panicked.
    Died,
    /// Not a fault, because few promise it: came out after one that was scheduled later for the
    /// same tick.
    NotFirstInFirstOut,
}

/// What was wrong with the answers of a subject: of each fault how many, and how far off in ticks,
/// or in microseconds where real time is taken.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Faults(BTreeMap<Fault, (u64, u64)>);

impl Faults {
    pub(crate) fn any(&self) -> bool {
        self.0.keys().any(|&fault| fault != Fault::NotFirstInFirstOut)
    }

    pub(crate) fn count(&self, fault: Fault) -> u64 {
        self.0.get(&fault).map_or(0, |&(count, _)| count)
    }

    /// Adds so many, or one if it is true.
    pub(crate) fn add(&mut self, fault: Fault, count: impl Into<u64>) {
        self.add_far(fault, count, 0);
    }

    pub(crate) fn add_far(&mut self, fault: Fault, count: impl Into<u64>, far: u64) {
        let count = count.into();
        if 0 < count {
            let (total, farthest) = self.0.entry(fault).or_default();
            *total += count;
            *farthest = far.max(*farthest);
        }
    }

    pub(crate) fn forgive(&mut self, fault: Fault) {
        self.0.remove(&fault);
    }

    /// Judges a timeout that came out at `now`: it is late if it was due before `since`.
    pub(crate) fn judge(&mut self, deadline: u64, now: u64, since: u64) {
        self.add_far(Fault::Early, now < deadline, deadline.saturating_sub(now));
        self.add_far(Fault::Late, deadline < since, now.saturating_sub(deadline));
    }

    /// Judges all that is in `log`, where `pending` has the value of each timeout that was
    /// scheduled; what came out is taken out of it.
    pub(crate) fn judge_all(&mut self, log: &Log, pending: &mut [u64]) {
        let (mut start, mut last) = (0, 0);
        for batch in &log.batches {
            for &value in &log.values[start..batch.end] {
                self.judge(deadline(value), batch.now, batch.since);
                match pending.get_mut(id(value)) {
                    Some(expected) if *expected == value => *expected = NOTHING,
                    _ => self.add(Fault::Duplicated, true),
                }
                if deadline(value) < deadline(last) {
                    self.add(Fault::Disordered, true);
                } else {
                    self.add(Fault::NotFirstInFirstOut, value < last);
                    last = value;
                }
            }
            start = batch.end;
        }
    }

    /// What should have come out by now, and did not.
    pub(crate) fn judge_rest(&mut self, pending: &[u64]) {
        let left = pending.iter().filter(|&&value| value != NOTHING).count();
        self.add(Fault::Lost, left as u64);
    }

    /// Adds those of another repetition, which are the same again if all goes well.
    pub(crate) fn merge(&mut self, other: &Self) {
        for (&fault, &(count, far)) in &other.0 {
            let (most, farthest) = self.0.entry(fault).or_default();
            (*most, *farthest) = (count.max(*most), far.max(*farthest));
        }
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut marks = Vec::new();
        for (fault, &(count, farthest)) in &self.0 {
            let word = match fault {
                Fault::Early => "early",
                Fault::Late => "late",
                Fault::Lost => "lost",
                Fault::Duplicated => "duplicated",
                Fault::Disordered => "out of order",
                Fault::Wrong => "wrongly cancelled",
                Fault::Died => "timer ended by a task that panics",
                Fault::NotFirstInFirstOut => continue,
            };
            marks.push(match farthest {
                0 => format!("{count} {word}"),
                _ => format!("{count} {word} (by up to {farthest})"),
            });
        }
        f.write_str(&marks.join(", "))
    }
}

/// Enough for 10 M timeouts; the other bits do for a deadline of 34 years.
const ID_BITS: u32 = 24;

/// In place of a value: none is pending.
pub(crate) const NOTHING: u64 = u64::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(values: &[(u64, u64)]) -> Faults {
        let mut log = Log::default();
        for &(value, now) in values {
            log.values.push(value);
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
        assert!(faults.any());
        let marks = "1 early (by up to 1), 2 late (by up to 3), 1 lost, 1 duplicated";
        assert_eq!(faults.to_string(), marks);
    }

    #[test]
    fn finds_what_is_out_of_order() {
        let swapped = [(value(20, 2), 20), (value(10, 0), 20), (value(10, 1), 20)];
        assert_eq!(judged(&swapped).count(Fault::Disordered), 2);
        let ties = [(value(10, 1), 10), (value(10, 0), 10), (value(20, 2), 20)];
        assert_eq!(judged(&ties).count(Fault::NotFirstInFirstOut), 1);
        assert!(!judged(&ties).any());
    }
}
