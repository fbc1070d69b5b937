//! The score: what makes one configuration better than another.

use crate::replay::units;
use serde::Serialize;
use std::time::Duration;

/// A figure that differs from one repetition to the next.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Spread {
    /// In the repetition in which it was least.
    pub least: f64,
    /// In the middle repetition.
    pub median: f64,
    /// In the repetition in which it was most.
    pub most: f64,
}

/// What one configuration takes, an operation and in all.
#[derive(Clone, Copy)]
pub(super) struct Cost {
    /// Processor time per operation, in nanoseconds.
    pub(super) cpu_ns: f64,
    pub(super) wakeups_an_operation: f64,
    pub(super) memory: u64,
    pub(super) longest_call_ns: u64,
}

impl Cost {
    /// The score, in nanoseconds per operation; less is better. [`describe`] says it in words.
    pub(super) fn score(&self, wake_cost: Duration) -> f64 {
        let wakeups = self.wakeups_an_operation * wake_cost.as_nanos() as f64;
        let doublings = doublings(self.memory, LITTLE_MEMORY)
            + doublings(self.longest_call_ns, SHORT_CALL.as_nanos() as u64);
        (self.cpu_ns + wakeups) * DOUBLING.powf(doublings)
    }
}

/// How often `free` must be doubled to make `number`.
fn doublings(number: u64, free: u64) -> f64 {
    (number.max(free) as f64 / free as f64).log2()
}

/// Says in a sentence what the score is.
pub(super) fn describe(wake_cost: Duration) -> String {
    format!(
        "Score: CPU time per operation with {} for each wake-up; each doubling of the memory beyond \
         {} and of the longest call beyond {} adds {} %.",
        units::time(wake_cost),
        units::memory(LITTLE_MEMORY),
        units::time(SHORT_CALL),
        ((DOUBLING - 1.0) * 100.0).round(),
    )
}

impl Spread {
    /// That of `numbers`, which are not none.
    pub(super) fn of(numbers: &[f64]) -> Self {
        let mut sorted = numbers.to_vec();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len() - 1;
        let median = (sorted[last / 2] + sorted[last.div_ceil(2)]) / 2.0;
        Self { least: sorted[0], median, most: sorted[last] }
    }

    pub(super) fn map(self, map: impl Fn(f64) -> f64) -> Self {
        Self { least: map(self.least), median: map(self.median), most: map(self.most) }
    }

    /// Whether this is over `times` times `other`, whatever is taken from the spreads of both.
    pub(super) fn is_clearly_over(&self, other: &Self, times: f64) -> bool {
        other.most * times < self.least
    }
}

/// What each doubling multiplies the score by.
pub(super) const DOUBLING: f64 = 1.05;

/// Memory that nobody misses.
pub(super) const LITTLE_MEMORY: u64 = 1 << 20;

/// No longer than the scheduler of a busy system makes a thread wait.
pub(super) const SHORT_CALL: Duration = Duration::from_micros(100);

#[cfg(test)]
mod tests {
    use super::{Cost, Spread};
    use std::time::Duration;

    const COST: Cost =
        Cost { cpu_ns: 50.0, wakeups_an_operation: 0.0, memory: 4096, longest_call_ns: 900 };

    #[test]
    fn a_score_is_cpu_time_and_wakeups_and_a_twentieth_for_each_doubling() {
        let wake_cost = Duration::from_micros(5);
        let score = |cost: Cost| cost.score(wake_cost);
        assert_eq!(score(COST), 50.0);
        assert_eq!(score(Cost { wakeups_an_operation: 0.01, ..COST }), 100.0);
        assert_eq!(score(Cost { memory: 2 << 20, ..COST }), 52.5);
        assert_eq!(score(Cost { longest_call_ns: 400_000, ..COST }), 50.0 * 1.05 * 1.05);
    }

    #[test]
    fn a_spread_is_from_the_least_to_the_most() {
        let spread = Spread::of(&[9.0, 2.0, 3.0]);
        assert_eq!(spread, Spread { least: 2.0, median: 3.0, most: 9.0 });
        assert_eq!(Spread::of(&[4.0]), Spread { least: 4.0, median: 4.0, most: 4.0 });
        assert_eq!(Spread::of(&[4.0, 2.0]).median, 3.0);
    }
}
