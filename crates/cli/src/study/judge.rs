//! The judgement: what the figures of a few rounds say, and how sure that is.

use serde::Serialize;

/// Where the median of a figure lies. With a confidence of 99 %, all quotients of a study lie where
/// their intervals say.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Interval {
    /// The median hardly lies below this.
    pub least: f64,
    /// The median of what was measured.
    pub median: f64,
    /// The median hardly lies above this.
    pub most: f64,
}

/// What the rounds say about a configuration, compared with the baseline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    /// It costs less, by about [`COUNTS`] or more.
    Better,
    /// It does not cost less by more than [`COUNTS`].
    NotBetter,
    /// The rounds do not say.
    Unknown,
}

impl Interval {
    /// Returns the interval from the least to the most of `samples`. Returns None if they are fewer
    /// than so many `intervals` take: see [`groups`].
    pub(super) fn of(samples: &[f64], intervals: usize) -> Option<Self> {
        if samples.len() < groups(intervals) {
            return None;
        }
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len() - 1;
        let median = (sorted[last / 2] + sorted[last.div_ceil(2)]) / 2.0;
        Some(Self { least: sorted[0], median, most: sorted[last] })
    }

    /// Judges the cost of a configuration, divided by that of another; [`border`] says how low this
    /// quotient has to be.
    ///
    /// A configuration is better if it surely costs less than the other, and probably less than the
    /// border. A rule that asked to be sure of both would miss modes that cost much less, because a
    /// busy machine widens the interval.
    pub(super) fn finding(quotient: Option<Self>, border: f64) -> Finding {
        match quotient {
            Some(quotient) if quotient.most < 1.0 && quotient.median < border => Finding::Better,
            Some(quotient) if 1.0 - COUNTS <= quotient.least => Finding::NotBetter,
            _ => Finding::Unknown,
        }
    }

    /// Whether a configuration surely costs more, by over [`COUNTS`].
    pub(super) fn costs_more(quotient: Option<Self>) -> bool {
        quotient.is_some_and(|quotient| 1.0 + COUNTS <= quotient.least)
    }

    /// Whether more rounds would hardly change the finding.
    pub(super) fn is_settled(quotient: Option<Self>, border: f64) -> bool {
        quotient.is_some_and(|quotient| quotient.most < border)
            || Self::finding(quotient, border) == Finding::NotBetter
    }
}

/// Returns the measured quotient below which a configuration is taken; `counted` is the quotient by
/// counted work.
///
/// The count is the same in every run. If it says that the configuration costs less by over
/// [`COUNTS`], the time need only agree. If it says the opposite, the time has to be clearer.
pub(super) fn border(counted: f64) -> f64 {
    match counted {
        _ if counted < 1.0 - COUNTS => AGREES,
        _ if 1.0 + COUNTS < counted => DISAGREES,
        _ => TAKEN,
    }
}

/// Whether `cost` counts as the same as `least`. The default may cost as much more, too, before
/// another configuration is taken.
pub(super) fn is_alike(cost: f64, least: f64) -> bool {
    cost <= least / TAKEN
}

/// Returns how far apart two counts are, in steps of [`COUNTS`]: 0 if they count as the same.
pub(super) fn steps(counted: f64, least: f64) -> u32 {
    ((counted / least).ln() / COUNTS.ln_1p()) as u32
}

/// Returns the number of groups of rounds for so many intervals: the fewest with which, with a
/// probability of [`CONFIDENCE`], each interval has its median. The fewer groups there are, the more
/// rounds each has.
///
/// A sample is above the median with a probability of a half, whatever the distribution is. An
/// interval misses the median only if all of its samples are on one side.
pub(super) fn groups(intervals: usize) -> usize {
    1 + (intervals as f64 / (1.0 - CONFIDENCE)).log2().ceil() as usize
}

/// Returns the cost of a plan by each of so many groups of rounds. A round has a time for each part
/// of the plan.
///
/// Other programs only ever add to a time, so the least time of a part was disturbed least. The
/// cost is the sum of these least times. A busy machine gives about the same sum as a quiet one.
pub(super) fn costs(rounds: &[Vec<f64>], groups: usize) -> Vec<f64> {
    let costs = (0..groups.min(rounds.len())).map(|group| {
        let parts = 0..rounds[group].len();
        let least = |part: usize| {
            let times = rounds[group..].iter().step_by(groups).map(|times| times[part]);
            times.fold(f64::INFINITY, f64::min)
        };
        parts.map(least).sum()
    });
    costs.collect()
}

/// A configuration is taken below this quotient. If the default stays, its regret is within
/// [`COUNTS`] in spite of some noise.
const TAKEN: f64 = 0.955;

/// A quotient that agrees with work that is much less.
const AGREES: f64 = 0.98;

/// A quotient that outweighs work that is much more.
const DISAGREES: f64 = 0.95;

/// How sure an interval is.
pub(super) const CONFIDENCE: f64 = 0.99;

/// Less than this share is not worth a line of code.
pub(super) const COUNTS: f64 = 0.05;

#[cfg(test)]
mod tests {
    use super::{Finding, Interval};

    #[test]
    fn better_surely_costs_less_and_probably_by_more_than_five_percent() {
        let finding = |least, median, most| {
            let quotient = Some(Interval { least, median, most });
            (Interval::finding(quotient, 0.95), Interval::is_settled(quotient, 0.95))
        };
        assert_eq!(finding(0.80, 0.90, 0.94), (Finding::Better, true));
        assert_eq!(finding(0.80, 0.94, 0.99), (Finding::Better, false));
        assert_eq!(finding(0.80, 0.96, 0.99), (Finding::Unknown, false));
        assert_eq!(finding(0.80, 0.90, 1.01), (Finding::Unknown, false));
        assert_eq!(finding(0.96, 1.10, 1.40), (Finding::NotBetter, true));
        let costs_more = |least| {
            Interval::costs_more(Some(Interval { least, median: least + 0.1, most: least + 0.2 }))
        };
        assert_eq!([0.96, 1.04, 1.06].map(costs_more), [false, false, true]);
        assert_eq!(Interval::finding(None, 0.95), Finding::Unknown);
        assert!(!Interval::is_settled(None, 0.95));
    }
}
