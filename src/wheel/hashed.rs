//! One level; a timeout waits in its bucket for its round.
//!
//! Scheme 6 of G. Varghese and T. Lauck, *Hashed and Hierarchical Timing Wheels* (1987), as in
//! Netty's `HashedWheelTimer`, with one difference: rounds are read off the deadlines instead of
//! being counted down, so that a turn at which nothing is due writes nothing.

use super::table::{ROW, Table};

/// A wheel of 2^`bits` buckets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hashed {
    pub(super) bits: u32,
}

impl Hashed {
    /// Ticks in one round.
    #[inline]
    pub(super) fn round(self) -> u64 {
        1 << self.bits
    }

    /// The bucket that holds `deadline`.
    #[inline]
    pub(super) fn bucket(self, deadline: u64) -> u32 {
        (deadline & (self.round() - 1)) as u32
    }

    /// The bucket that comes up next, and a tick that no deadline in any bucket is before, given that
    /// none is at `cursor`.
    #[inline]
    pub(super) fn next(self, table: &mut Table, cursor: u64) -> Option<(u32, u64)> {
        // Where timeouts are close together, no more is needed than a look at the buckets up to the
        // end of their row and of the one after that, if it is another.
        let begin = cursor.saturating_add(1);
        let next_row = (begin | (ROW as u64 - 1)).saturating_add(1);
        let mut near = table.pass(self.bucket(begin), begin);
        if near.is_none() && ROW as u64 <= self.round() / 2 {
            near = table.pass(self.bucket(next_row), next_row);
        }
        near.or_else(|| table.soonest())
    }
}
