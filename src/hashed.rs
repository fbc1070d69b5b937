//! One level; a timeout waits in its bucket for its round.
//!
//! Scheme 6 of G. Varghese and T. Lauck, *Hashed and Hierarchical Timing Wheels* (1987), as in
//! Netty's `HashedWheelTimer`, with one difference: rounds are read off the deadlines instead of
//! being counted down, so that a turn at which nothing is due writes nothing.

use crate::table::Table;

/// A wheel of 2^`bits` buckets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hashed {
    pub(crate) bits: u32,
}

impl Hashed {
    /// Ticks in one round.
    #[inline]
    pub(crate) fn round(self) -> u64 {
        1 << self.bits
    }

    /// The bucket that holds `deadline`.
    #[inline]
    pub(crate) fn bucket(self, deadline: u64) -> u32 {
        (deadline & (self.round() - 1)) as u32
    }

    /// The bucket that comes up next, and a tick that nothing in any of them is due before.
    #[inline]
    pub(crate) fn next(self, table: &mut Table) -> Option<(u32, u64)> {
        table.soonest()
    }
}
