//! The judgement: what the figures of a few rounds say, and how sure that is.

use serde::Serialize;
use statrs::distribution::{Binomial, DiscreteCDF};

/// Where the median of a figure lies, with a confidence of 99 %.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Interval {
    /// It is hardly less.
    pub least: f64,
    /// The median of what was measured.
    pub median: f64,
    /// It is hardly more.
    pub most: f64,
}

/// What the rounds say about a configuration beside the one that it is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    /// It costs less, by more than [`COUNTS`] as far as can be told.
    Better,
    /// It does not cost less by more than [`COUNTS`].
    NotBetter,
    /// The rounds do not say.
    Unknown,
}

impl Interval {
    /// The interval of the median of `samples`, whatever their distribution is; None if these are
    /// too few for [`CONFIDENCE`].
    ///
    /// Each sample is above the median with a probability of a half. So the number of samples above
    /// it is binomial, and that says which of them, in order, the median hardly lies beyond.
    pub(super) fn of(samples: &[f64]) -> Option<Self> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let above = Binomial::new(0.5, sorted.len() as u64).ok()?;
        let is_rare = |&beyond: &usize| 2.0 * above.cdf(beyond as u64) <= 1.0 - CONFIDENCE;
        let beyond = (0..sorted.len() / 2).take_while(is_rare).last()?;
        let last = sorted.len() - 1;
        let median = (sorted[last / 2] + sorted[last.div_ceil(2)]) / 2.0;
        Some(Self { least: sorted[beyond], median, most: sorted[last - beyond] })
    }

    /// Judges the cost of a configuration by that of another, as their quotient.
    ///
    /// It is better if it surely costs less, and probably less by more than [`COUNTS`]. To be sure of
    /// both would leave modes that cost much less, where a busy machine makes the interval wide.
    pub(super) fn finding(quotient: Option<Self>) -> Finding {
        match quotient {
            Some(quotient) if quotient.most < 1.0 && quotient.median < 1.0 - COUNTS => {
                Finding::Better
            }
            Some(quotient) if 1.0 - COUNTS <= quotient.least => Finding::NotBetter,
            _ => Finding::Unknown,
        }
    }

    /// Whether more rounds would hardly change the finding.
    pub(super) fn is_settled(quotient: Option<Self>) -> bool {
        let border = 1.0 - COUNTS;
        quotient.is_some_and(|quotient| quotient.most < border || border <= quotient.least)
    }
}

/// How sure an interval is.
pub(super) const CONFIDENCE: f64 = 0.99;

/// A configuration is taken if it costs less by this share: less is not worth a line of code.
pub(super) const COUNTS: f64 = 0.05;

#[cfg(test)]
mod tests {
    use super::{Finding, Interval};

    #[test]
    fn under_eight_samples_say_nothing() {
        let samples: Vec<_> = (0..8).map(f64::from).collect();
        assert_eq!(Interval::of(&[]), None);
        assert_eq!(Interval::of(&samples[..1]), None);
        assert_eq!(Interval::of(&samples[..7]), None);
        let all = Interval { least: 0.0, median: 3.5, most: 7.0 };
        assert_eq!(Interval::of(&samples), Some(all));
    }

    #[test]
    fn an_interval_is_as_wide_as_the_binomial_distribution_says() {
        // P(at most 2 of 15 heads) is 0.0037, and P(at most 3) is 0.0176.
        let samples: Vec<_> = (1..=15).rev().map(f64::from).collect();
        let interval = Interval { least: 3.0, median: 8.0, most: 13.0 };
        assert_eq!(Interval::of(&samples), Some(interval));
    }

    #[test]
    fn few_rounds_that_were_interrupted_change_nothing() {
        let mut samples = vec![0.8; 20];
        samples.extend([9.0; 4]);
        assert_eq!(Interval::finding(Interval::of(&samples)), Finding::Better);
    }

    #[test]
    fn better_surely_costs_less_and_probably_by_more_than_five_percent() {
        let finding = |least, median, most| {
            let quotient = Some(Interval { least, median, most });
            (Interval::finding(quotient), Interval::is_settled(quotient))
        };
        assert_eq!(finding(0.80, 0.90, 0.94), (Finding::Better, true));
        assert_eq!(finding(0.80, 0.94, 0.99), (Finding::Better, false));
        assert_eq!(finding(0.80, 0.96, 0.99), (Finding::Unknown, false));
        assert_eq!(finding(0.80, 0.90, 1.01), (Finding::Unknown, false));
        assert_eq!(finding(0.96, 1.10, 1.40), (Finding::NotBetter, true));
        assert_eq!(Interval::finding(None), Finding::Unknown);
        assert!(!Interval::is_settled(None));
    }
}
