//! `Limits`: when a mode is stopped, and what is said of one that was.

use super::units;
use serde::{Serialize, Serializer};
use std::fmt;
use std::time::Duration;
use tickwheel::Mode;

/// How much each mode may take before it is stopped.
///
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest time that a mode may run. All three of its wheels count, and what is kept beside
    /// them.
    pub time: Duration,
    /// The most bytes that a mode may hold. All three of its wheels count, and what is kept beside
    /// them.
    pub memory: u64,
    /// How many times longer the calls of a mode may take than those of the cheapest mode that has
    /// come as far. A mode is compared when it has run for a quarter of a second.
    pub slower: u32,
}

/// Where a mode was stopped, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stopped {
    /// The limit that the mode was over.
    pub limit: Limit,
    /// How long the mode had run.
    pub time: Duration,
    /// The bytes that the mode held.
    pub memory: u64,
}

/// A limit that a mode was over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limit {
    /// The mode was over [`Limits::slower`] times slower than another mode.
    Slower {
        /// The limit.
        times: u32,
        /// The cheapest mode at that point.
        than: Mode,
    },
    /// The mode ran for longer than [`Limits::time`].
    Time(Duration),
    /// The mode held more than [`Limits::memory`].
    Memory(u64),
}

impl Limits {
    /// How long a mode runs before it is compared: what a wheel costs when it begins says little.
    pub(super) const GRACE: Duration = Duration::from_millis(250);
}

/// 30 seconds, 2 GiB, 20 times.
impl Default for Limits {
    fn default() -> Self {
        Self { time: Duration::from_secs(30), memory: 2 << 30, slower: 20 }
    }
}

/// As in "stopped when it was ...".
impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Slower { times, than } => {
                write!(f, "over {times} times slower than {than}")
            }
            Self::Time(limit) => write!(f, "over the limit of {}", units::time(*limit)),
            Self::Memory(limit) => write!(f, "over the limit of {}", units::memory(*limit)),
        }
    }
}

impl Serialize for Stopped {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.limit.serialize(serializer)
    }
}

impl Serialize for Limit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
