//! The milliseconds of a trace to ticks: deadlines up, the present down.

use super::units;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The length of a tick: 1 us to 1 h.
///
/// ```
/// use std::time::Duration;
/// use tickwheel_cli::replay::Tick;
///
/// let tick: Tick = "7ms".parse()?;
/// assert_eq!(tick, Tick::new(Duration::from_millis(7))?);
/// assert!("2h".parse::<Tick>().is_err());
/// # Ok::<(), tickwheel_cli::replay::TickError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tick {
    nanoseconds: u64,
}

/// Why there is no such tick.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TickError {
    /// The length is out of range.
    Range {
        /// The length asked for.
        requested: Duration,
    },
    /// The text is no duration.
    Syntax {
        /// The text, whole.
        text: String,
    },
}

impl Tick {
    /// A tick of this length.
    ///
    /// # Errors
    ///
    /// [`TickError::Range`] unless it is 1 us to 1 h.
    pub fn new(length: Duration) -> Result<Self, TickError> {
        let range = Duration::from_micros(1)..=Duration::from_secs(3600);
        match u64::try_from(length.as_nanos()) {
            Ok(nanoseconds) if range.contains(&length) => Ok(Self { nanoseconds }),
            _ => Err(TickError::Range { requested: length }),
        }
    }

    /// The length of the tick.
    #[must_use]
    pub fn length(&self) -> Duration {
        Duration::from_nanos(self.nanoseconds)
    }

    /// The first tick that does not begin before `ms`; saturates.
    pub(crate) fn deadline(self, ms: u64) -> u64 {
        let ticks = (u128::from(ms) * NANOSECONDS_A_MS).div_ceil(u128::from(self.nanoseconds));
        ticks.try_into().unwrap_or(u64::MAX)
    }

    /// The tick that `ms` falls in; saturates before [`NEVER`].
    pub(crate) fn present(self, ms: u64) -> u64 {
        let ticks = u128::from(ms) * NANOSECONDS_A_MS / u128::from(self.nanoseconds);
        ticks.try_into().unwrap_or(u64::MAX).min(NEVER - 1)
    }

    /// Whether tick `tick` begins before `ms`.
    pub(super) fn begins_before(self, tick: u64, ms: u64) -> bool {
        u128::from(tick) * u128::from(self.nanoseconds) < u128::from(ms) * NANOSECONDS_A_MS
    }
}

/// The deadline that is not reached: what is beyond all ticks saturates to it.
pub(crate) const NEVER: u64 = u64::MAX;

const NANOSECONDS_A_MS: u128 = 1_000_000;

/// The default is 1 ms.
impl Default for Tick {
    fn default() -> Self {
        Self { nanoseconds: 1_000_000 }
    }
}

impl fmt::Display for Tick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&units::duration(self.nanoseconds as f64))
    }
}

impl FromStr for Tick {
    type Err = TickError;

    fn from_str(text: &str) -> Result<Self, TickError> {
        match humantime::parse_duration(text) {
            Ok(length) => Self::new(length),
            Err(_) => Err(TickError::Syntax { text: text.into() }),
        }
    }
}

impl fmt::Display for TickError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Range { requested } => {
                let requested = humantime::format_duration(*requested);
                write!(f, "a tick of {requested} asked for, but 1us to 1h can be had")
            }
            Self::Syntax { text } => {
                write!(f, "{text:?} is no duration: expected one like `1ms`, `500us` or `1s`")
            }
        }
    }
}

impl std::error::Error for TickError {}
