//! The kind of a wheel, and how to choose it.

use alloc::string::String;
use core::fmt;
use core::str::FromStr;

/// Chooses between a hierarchical and a hashed wheel, and the number of its buckets.
///
/// Take [`Mode::hierarchical`]: its cost depends least on the delays. Measure a hashed wheel if one
/// round (as many ticks as there are buckets) is longer than nearly all delays. The command
/// `tickwheel replay` compares modes on a recorded workload.
///
/// Both modes keep the same promises and answer every call alike. They differ in cost:
///
/// | | hierarchical | hashed |
/// |---|---|---|
/// | a timeout waits | in a bucket of a level that is coarse enough for its delay | in the bucket of its deadline modulo the number of buckets |
/// | on its way | it is demoted, at most once per level | it is passed over, at most once per round |
/// | good for | delays of any length, and any mixture of them | delays that are short, or all alike |
/// | if the delays do not suit it | it never costs much | each round in which another timeout of its bucket is due costs a scan of the bucket |
///
/// A wheel allocates its buckets in rows of 16, where timeouts wait. A wheel of very many buckets
/// and few timeouts may need a row for each timeout.
///
/// # As text
///
/// `hierarchical:64` and `hashed:512` parse and print. `hierarchical` alone is the default mode.
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

/// Says why a mode cannot be made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ModeError {
    /// The number of buckets is out of range.
    Buckets {
        /// The number that the caller asked for.
        requested: usize,
        /// The smallest number that this mode can have.
        least: usize,
    },
    /// The text names no mode.
    Syntax {
        /// The whole text.
        text: String,
    },
}

impl Mode {
    /// Returns the default mode: levels of 64 buckets, and enough levels for every `u64`.
    #[must_use]
    pub const fn hierarchical() -> Self {
        Self { kind: Kind::Hierarchical, bits: 6 }
    }

    /// Returns a hierarchical mode with `buckets_per_level`, rounded up to a power of two, and
    /// enough levels for every `u64`.
    ///
    /// With more buckets per level, timeouts are demoted less often, and a sparse wheel takes more
    /// memory.
    ///
    /// # Errors
    ///
    /// [`ModeError::Buckets`] if `buckets_per_level` is less than 2 or more than 2^30.
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

    /// Returns a hashed mode with `buckets`, rounded up to a power of two: one level, in which a
    /// timeout waits its rounds.
    ///
    /// # Errors
    ///
    /// [`ModeError::Buckets`] if `buckets` is 0 or more than 2^30.
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

    /// Returns the number of buckets: those of each level of a hierarchical wheel, or all of a
    /// hashed wheel.
    #[must_use]
    pub const fn buckets(&self) -> usize {
        1 << self.bits
    }

    /// Returns the number of levels: 1 for a hashed wheel.
    #[must_use]
    pub const fn levels(&self) -> usize {
        match self.kind {
            Kind::Hierarchical => u64::BITS.div_ceil(self.bits) as usize,
            Kind::Hashed => 1,
        }
    }

    /// Returns whether the mode is hashed.
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

/// As its text: `"hierarchical:64"`.
#[cfg(feature = "serde")]
impl serde::Serialize for Mode {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for Mode {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <alloc::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl fmt::Display for ModeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Buckets { requested, least } => {
                write!(f, "{requested} buckets asked for: expected {least} to {MOST_BUCKETS}")
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

/// The most buckets that a mode can have: per level, or in all.
const MOST_BUCKETS: usize = 1 << 30;
