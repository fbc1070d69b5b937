//! `Delays`: how the delays of a trace are distributed.

use crate::units;
use hdrhistogram::Histogram;
use std::fmt;

/// How the delays of a trace are distributed, in ms, to three digits.
#[derive(Clone)]
pub struct Delays {
    histogram: Histogram<u64>,
    least: u64,
    most: u64,
}

impl Delays {
    pub(crate) fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, u64::MAX, 3).expect("these bounds are sound");
        Self { histogram, least: u64::MAX, most: 0 }
    }

    pub(crate) fn record(&mut self, delay_ms: u64) {
        self.histogram.saturating_record(delay_ms);
        self.least = self.least.min(delay_ms);
        self.most = self.most.max(delay_ms);
    }

    /// How many delays there are.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.histogram.len()
    }

    /// Whether nothing was ever scheduled.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.histogram.is_empty()
    }

    /// The delay that this share of all delays, from 0 to 1, does not exceed; None if there are
    /// none. The least and the most are exact.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Option<u64> {
        if self.is_empty() {
            return None;
        }
        Some(self.histogram.value_at_quantile(share).clamp(self.least, self.most))
    }

    /// The delays that occur, as ms and number, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        let counted = self.histogram.iter_recorded();
        counted.map(|at| {
            (at.value_iterated_to().clamp(self.least, self.most), at.count_since_last_iteration())
        })
    }
}

impl fmt::Display for Delays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHARES: [(&str, f64); 5] =
            [("min", 0.0), ("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0)];
        for (number, (name, share)) in SHARES.into_iter().enumerate() {
            let Some(delay_ms) = self.quantile(share) else { return f.write_str("none") };
            let comma = if number == 0 { "" } else { ", " };
            write!(f, "{comma}{name} {}", units::milliseconds(delay_ms))?;
        }
        Ok(())
    }
}

impl fmt::Debug for Delays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Delays({self})")
    }
}
