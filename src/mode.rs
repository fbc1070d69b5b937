//! Which kind of wheel, and how to choose.

use alloc::string::String;
use core::fmt;
use core::str::FromStr;

/// Whether a wheel is hierarchical or hashed, and of how many buckets.
///
/// Both modes keep the same promises and answer every call alike; they differ in cost.
///
/// | | hierarchical | hashed |
/// |---|---|---|
/// | a timeout waits | in a bucket of a level coarse enough for its delay | in the bucket of its deadline modulo the number of buckets |
/// | on its way it is | demoted, once a level at most | passed over, once a round at most |
/// | good for | delays of any length, and any mixture of them | delays that are short, or all alike |
/// | costs when wrong | never much | a scan of its bucket in every round in which another timeout there is due |
///
/// Buckets are allocated 64 at a time, 2.5 KB, where they are used: a wheel of very many buckets and
/// few timeouts may have as much for each timeout.
///
/// When in doubt, take [`Mode::hierarchical`]. A hashed wheel is worth a measurement where a round
/// (ticks a bucket times buckets) is longer than nearly all delays: `tickwheel replay` compares the
/// modes on a recorded workload.
///
/// # As text
///
/// `hierarchical:64` and `hashed:512` parse and print; `hierarchical` alone is the default.
///
/// ```
/// use tickwheel::Mode;
///
/// let mode: Mode = "hashed:500".parse()?;
/// assert_eq!(mode, Mode::hashed(512)?); // rounded up to a power of two
/// assert_eq!(mode.to_string(), "hashed:512");
/// assert_eq!("hierarchical".parse(), Ok(Mode::hierarchical()));
/// # Ok::<(), tickwheel::ModeError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Mode {
    kind: Kind,
    /// The number of buckets, of a level or in all, is 2^`bits`.
    bits: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Hierarchical,
    Hashed,
}

/// Why there is no such mode.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ModeError {
    /// The number of buckets is out of range.
    Buckets {
        /// The number asked for.
        requested: usize,
        /// The smallest number that this mode can have.
        least: usize,
    },
    /// The text names no mode.
    Syntax {
        /// The text, whole.
        text: String,
    },
}

/// The most buckets that a mode can have, of a level or in all.
const MOST_BUCKETS: usize = 1 << 30;

impl Mode {
    /// Levels of 64 buckets, enough of them for all of u64: the default.
    #[must_use]
    pub const fn hierarchical() -> Self {
        Self { kind: Kind::Hierarchical, bits: 6 }
    }

    /// Levels of so many buckets each, rounded up to a power of two, enough of them for all of u64.
    ///
    /// More buckets a level mean fewer demotions, and more memory for a sparse wheel.
    ///
    /// # Errors
    ///
    /// [`ModeError::Buckets`] unless there are 2 to 2^30 buckets.
    ///
    /// ```
    /// use tickwheel::Mode;
    ///
    /// let mode = Mode::hierarchical_with(256)?;
    /// assert_eq!((mode.buckets(), mode.levels()), (256, 8));
    /// assert!(Mode::hierarchical_with(1).is_err());
    /// # Ok::<(), tickwheel::ModeError>(())
    /// ```
    pub fn hierarchical_with(buckets_per_level: usize) -> Result<Self, ModeError> {
        let bits = bits(buckets_per_level, 2)?;
        Ok(Self { kind: Kind::Hierarchical, bits })
    }

    /// One level of so many buckets, rounded up to a power of two, in which a timeout waits its
    /// rounds.
    ///
    /// # Errors
    ///
    /// [`ModeError::Buckets`] unless there are 1 to 2^30 buckets.
    ///
    /// ```
    /// use tickwheel::{Mode, ModeError};
    ///
    /// assert_eq!(Mode::hashed(1000)?.buckets(), 1024);
    /// assert_eq!(Mode::hashed(0), Err(ModeError::Buckets { requested: 0, least: 1 }));
    /// # Ok::<(), ModeError>(())
    /// ```
    pub fn hashed(buckets: usize) -> Result<Self, ModeError> {
        let bits = bits(buckets, 1)?;
        Ok(Self { kind: Kind::Hashed, bits })
    }

    /// The number of buckets: of each level of a hierarchical wheel, of a hashed wheel in all.
    #[must_use]
    pub const fn buckets(&self) -> usize {
        1 << self.bits
    }

    /// The number of levels: 1 for a hashed wheel.
    #[must_use]
    pub const fn levels(&self) -> usize {
        match self.kind {
            Kind::Hierarchical => u64::BITS.div_ceil(self.bits) as usize,
            Kind::Hashed => 1,
        }
    }

    /// Whether a timeout waits its rounds in one level, instead of being demoted through several.
    #[must_use]
    pub const fn is_hashed(&self) -> bool {
        matches!(self.kind, Kind::Hashed)
    }
}

/// The default is [`Mode::hierarchical`].
impl Default for Mode {
    fn default() -> Self {
        Self::hierarchical()
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::Hierarchical => "hierarchical",
            Kind::Hashed => "hashed",
        };
        f.pad(&alloc::format!("{kind}:{}", self.buckets()))
    }
}

impl fmt::Debug for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mode({self})")
    }
}

impl FromStr for Mode {
    type Err = ModeError;

    fn from_str(text: &str) -> Result<Self, ModeError> {
        let (kind, buckets) = match text.split_once(':') {
            Some((kind, buckets)) => (kind, Some(buckets)),
            None => (text, None),
        };
        let syntax = || ModeError::Syntax { text: text.into() };
        let buckets = buckets.map(str::parse).transpose().map_err(|_| syntax())?;
        match (kind, buckets) {
            ("hierarchical", None) => Ok(Self::hierarchical()),
            ("hierarchical", Some(buckets)) => Self::hierarchical_with(buckets),
            ("hashed", Some(buckets)) => Self::hashed(buckets),
            _ => Err(syntax()),
        }
    }
}

impl fmt::Display for ModeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Buckets { requested, least } => {
                write!(f, "{requested} buckets asked for, but {least} to {MOST_BUCKETS} can be had")
            }
            Self::Syntax { text } => write!(
                f,
                "{text:?} is no mode: expected `hierarchical`, `hierarchical:BUCKETS` or \
                 `hashed:BUCKETS`, with a number of buckets up to {MOST_BUCKETS}"
            ),
        }
    }
}

impl core::error::Error for ModeError {}

fn bits(requested: usize, least: usize) -> Result<u32, ModeError> {
    if requested < least || MOST_BUCKETS < requested {
        return Err(ModeError::Buckets { requested, least });
    }
    Ok(requested.next_power_of_two().trailing_zeros())
}
