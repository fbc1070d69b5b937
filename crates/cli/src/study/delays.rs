//! `Delays`: how the delays of a trace are distributed.

use crate::units;
use serde::{Serialize, Serializer};
use std::fmt;

/// How the delays of a trace are distributed, in ms.
#[derive(Clone, Default)]
pub struct Delays {
    sorted: Vec<u64>,
}

impl Delays {
    pub(crate) fn new(delays_ms: impl Iterator<Item = u64>) -> Self {
        let mut sorted: Vec<_> = delays_ms.collect();
        sorted.sort_unstable();
        Self { sorted }
    }

    /// How many delays there are.
    pub(crate) fn len(&self) -> u64 {
        self.sorted.len() as u64
    }

    /// The delay that this share of all delays, from 0 to 1, does not exceed; None if there are
    /// none.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Option<u64> {
        let number = (share * self.sorted.len() as f64).ceil() as usize;
        self.sorted.get(number.saturating_sub(1)).copied()
    }

    /// The delays that occur, as ms and number, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.sorted.chunk_by(u64::eq).map(|same| (same[0], same.len() as u64))
    }
}

impl fmt::Display for Delays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (name, share)) in SHARES.into_iter().enumerate() {
            let Some(delay_ms) = self.quantile(share) else { return f.write_str("none") };
            let comma = if number == 0 { "" } else { ", " };
            write!(f, "{comma}{name} {}", units::milliseconds(delay_ms))?;
        }
        Ok(())
    }
}

/// An object of `min`, `p50`, `p90`, `p99` and `max` in ms; null if there are no delays.
impl Serialize for Delays {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.sorted.is_empty() {
            true => serializer.serialize_none(),
            false => {
                serializer.collect_map(SHARES.map(|(name, share)| (name, self.quantile(share))))
            }
        }
    }
}

impl fmt::Debug for Delays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Delays({self})")
    }
}

/// What is said of the delays: names, and the shares that do not exceed them.
const SHARES: [(&str, f64); 5] =
    [("min", 0.0), ("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0)];
