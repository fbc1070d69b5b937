//! `Limit`: why a configuration was stopped.

use crate::units;
use serde::{Serialize, Serializer};
use std::fmt;
use std::time::Duration;
use tickwheel::Mode;

/// A limit that a configuration was over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limit {
    /// By its counted work it costs so many times as much as another configuration.
    Work {
        /// The limit.
        times: u32,
        /// The cheapest mode of those that were counted before it, or of all.
        than: Mode,
    },
    /// It took more processor time than this to count its work.
    Time(Duration),
    /// The wheel held more bytes than this.
    Memory(u64),
}

/// As in "stopped when it was ...".
impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Work { times, than } => write!(f, "over {times} times the work of {than}"),
            Self::Time(limit) => write!(f, "over the limit of {} of CPU time", units::time(*limit)),
            Self::Memory(limit) => write!(f, "over the limit of {}", units::memory(*limit)),
        }
    }
}

impl Serialize for Limit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
