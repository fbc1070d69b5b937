//! `Tick`: the length of a tick, and the milliseconds of a trace in ticks.

use crate::units;
use serde::{Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;
use tickwheel::Ticks;

/// The length of a tick: 1 us to 1 h.
///
/// ```
/// use std::time::Duration;
/// use tickwheel_cli::tick::Tick;
///
/// let tick: Tick = "7ms".parse()?;
/// assert_eq!(tick, Tick::new(Duration::from_millis(7))?);
/// assert!("2h".parse::<Tick>().is_err());
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tick {
    /// An instant is the time since the trace began.
    ticks: Ticks<Duration>,
}

impl Tick {
    /// A tick of this length.
    ///
    /// # Errors
    ///
    /// A sentence unless it is 1 us to 1 h.
    pub fn new(length: Duration) -> Result<Self, String> {
        if !(SHORTEST..=LONGEST).contains(&length) {
            let length = humantime::format_duration(length);
            return Err(format!("a tick of {length} asked for, but 1us to 1h can be had"));
        }
        Ok(Self { ticks: Ticks::new(Duration::ZERO, length) })
    }

    /// The length of the tick.
    #[must_use]
    pub fn length(&self) -> Duration {
        self.ticks.tick()
    }

    /// The first tick that does not begin before `ms`; saturates to [`NEVER`].
    #[doc(hidden)]
    #[must_use]
    pub fn deadline(self, ms: u64) -> u64 {
        self.ticks.deadline(Duration::from_millis(ms))
    }

    /// The tick that `ms` falls in; saturates before [`NEVER`].
    #[doc(hidden)]
    #[must_use]
    pub fn present(self, ms: u64) -> u64 {
        self.ticks.now(Duration::from_millis(ms))
    }
}

/// The default is 1 ms.
impl Default for Tick {
    fn default() -> Self {
        Self { ticks: Ticks::new(Duration::ZERO, Duration::from_millis(1)) }
    }
}

/// What is printed parses to the same tick.
impl fmt::Display for Tick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = units::time(self.length());
        match text.parse() == Ok(*self) {
            true => f.pad(&text),
            false => f.pad(&humantime::format_duration(self.length()).to_string()),
        }
    }
}

impl FromStr for Tick {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let length = humantime::parse_duration(text).map_err(|_| {
            format!("{text:?} is no duration: expected one like `1ms`, `500us` or `1s`")
        })?;
        Self::new(length)
    }
}

impl Serialize for Tick {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The deadline that is not reached: what is beyond all ticks saturates to it.
#[doc(hidden)]
pub const NEVER: u64 = u64::MAX;

const SHORTEST: Duration = Duration::from_micros(1);
const LONGEST: Duration = Duration::from_secs(3600);
