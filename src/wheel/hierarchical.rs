//! Hierarchical: levels of rising span. A timeout is demoted to finer levels while the cursor comes
//! near.
//!
//! Scheme 7 of G. Varghese and T. Lauck, *Hashed and Hierarchical Timing Wheels* (1987), as in
//! Kafka's `TimingWheel`, with the levels told apart by the highest digit in which deadline and
//! cursor differ. Every bucket then holds timeouts of the present revolution only, the levels
//! together cover all of u64, and no case is left for a wheel that wraps around.

/// Levels of 2^`bits` buckets each.
///
/// A bucket of level 0 spans one tick. A bucket of any other level spans the whole level below.
/// Buckets are numbered from level 0 upwards, so the occupied bucket of the lowest number comes up
/// first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hierarchical {
    pub(super) bits: u32,
    /// The bits of a digit.
    mask: u32,
    /// 2^16 / `bits`, rounded up: division by it as a multiplication.
    reciprocal: u32,
}

impl Hierarchical {
    pub(super) const fn new(bits: u32) -> Self {
        Self { bits, mask: (1 << bits) - 1, reciprocal: (1_u32 << 16).div_ceil(bits) }
    }

    /// Returns the number of levels that cover every `u64`.
    pub(super) const fn levels(self) -> u32 {
        u64::BITS.div_ceil(self.bits)
    }

    /// Returns the bucket that holds `deadline`, which is after `cursor`.
    #[inline]
    pub(super) fn bucket(self, deadline: u64, cursor: u64) -> u32 {
        let highest = (deadline ^ cursor).ilog2();
        let level = (highest * self.reciprocal) >> 16;
        self.number(level, self.digit(level, deadline))
    }

    /// Returns the number of buckets of one level.
    pub(super) fn buckets(self) -> usize {
        1 << self.bits
    }

    /// Returns which of the buckets of `level` a deadline falls in.
    #[inline]
    pub(super) fn digit(self, level: u32, deadline: u64) -> u32 {
        (deadline >> (level * self.bits)) as u32 & self.mask
    }

    /// Returns the number of a bucket.
    #[inline]
    pub(super) fn number(self, level: u32, digit: u32) -> u32 {
        level << self.bits | digit
    }

    #[inline]
    pub(super) fn level(self, number: u32) -> u32 {
        number >> self.bits
    }

    /// Returns the first tick of bucket `number`, which holds `deadline`.
    #[inline]
    pub(super) fn start(self, number: u32, deadline: u64) -> u64 {
        let low_bits = self.level(number) * self.bits;
        deadline >> low_bits << low_bits
    }

    /// Returns the last tick of bucket `number`, which holds `deadline`.
    #[inline]
    pub(super) fn end(self, number: u32, deadline: u64) -> u64 {
        deadline | !(u64::MAX << (self.level(number) * self.bits))
    }
}
