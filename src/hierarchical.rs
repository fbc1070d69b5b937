//! Levels of rising span; a timeout is demoted to finer levels as the cursor comes near.
//!
//! Scheme 7 of G. Varghese and T. Lauck, *Hashed and Hierarchical Timing Wheels* (1987), as in
//! Kafka's `TimingWheel`, with the levels told apart by the highest digit in which deadline and
//! cursor differ. Every bucket then holds timeouts of the present revolution only, the levels
//! together cover all of u64, and no case is left for a wheel that wraps around.

use crate::digit::MOST_COUNTED;
use crate::table::Table;

/// Timeouts of a coarse bucket that are few enough to be sorted instead of demoted, though much may be
/// scheduled among them.
pub(crate) const FEW_SORTED: usize = 128;
/// The same where nothing was scheduled among those that were sorted before.
pub(crate) const MOST_SORTED: usize = 4096;
/// The same for a bucket of level 1, which has few ticks to tell apart.
const MOST_SORTED_FINE: usize = 8192;

/// Levels of 2^`bits` buckets each.
///
/// Level 0 has spans of one tick, and each next level's span is the whole of the level below.
/// Buckets are numbered from level 0 upwards, so that of two occupied ones that with the lower
/// number comes up first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hierarchical {
    pub(crate) bits: u32,
    /// A digit's bits.
    mask: u32,
    /// 2^16 / `bits`, rounded up: division by it as a multiplication.
    reciprocal: u32,
}

impl Hierarchical {
    pub(crate) const fn new(bits: u32) -> Self {
        Self { bits, mask: (1 << bits) - 1, reciprocal: (1_u32 << 16).div_ceil(bits) }
    }

    /// Levels needed to cover all of u64.
    pub(crate) const fn levels(self) -> u32 {
        u64::BITS.div_ceil(self.bits)
    }

    /// The bucket that holds `deadline`, which is after `cursor`.
    #[inline]
    pub(crate) fn bucket(self, deadline: u64, cursor: u64) -> u32 {
        let highest = (deadline ^ cursor).ilog2();
        let level = (highest * self.reciprocal) >> 16;
        self.number(level, self.digit(level, deadline))
    }

    /// The buckets of one level.
    pub(crate) fn buckets(self) -> usize {
        1 << self.bits
    }

    /// Which of the buckets of `level` a deadline falls in.
    #[inline]
    pub(crate) fn digit(self, level: u32, deadline: u64) -> u32 {
        (deadline >> (level * self.bits)) as u32 & self.mask
    }

    /// The number of a bucket.
    #[inline]
    pub(crate) fn number(self, level: u32, digit: u32) -> u32 {
        level << self.bits | digit
    }

    #[inline]
    pub(crate) fn level(self, number: u32) -> u32 {
        number >> self.bits
    }

    /// Whether the deadlines in one bucket of `level` are less than 2^32 ticks apart.
    #[inline]
    pub(crate) fn span_fits_u32(self, level: u32) -> bool {
        level * self.bits <= u32::BITS
    }

    /// Whether to sort the timeouts of a bucket of `level`, so many of them, instead of demoting
    /// them, where `most` are on other levels than 1.
    #[inline]
    pub(crate) fn sorts(self, level: u32, timeouts: usize, most: usize) -> bool {
        let is_fine = level == 1 && self.buckets() <= MOST_COUNTED;
        let most = if is_fine { MOST_SORTED_FINE } else { most };
        self.span_fits_u32(level) && timeouts <= most
    }

    /// The first tick of bucket `number`, which holds `deadline`.
    #[inline]
    pub(crate) fn start(self, number: u32, deadline: u64) -> u64 {
        let low_bits = self.level(number) * self.bits;
        deadline >> low_bits << low_bits
    }

    /// The last tick of bucket `number`, which holds `deadline`.
    #[inline]
    pub(crate) fn end(self, number: u32, deadline: u64) -> u64 {
        deadline | !(u64::MAX << (self.level(number) * self.bits))
    }

    /// The bucket that comes up next, and a tick that nothing in it is due before.
    #[inline]
    pub(crate) fn next(self, table: &Table) -> Option<(u32, u64)> {
        table.first()
    }
}
