//! Hashed: one level, in which a timeout waits in its bucket for its round.
//!
//! Scheme 6 of G. Varghese and T. Lauck, *Hashed and Hierarchical Timing Wheels* (1987), as in
//! Netty's `HashedWheelTimer`, with one difference: rounds follow from the deadlines and are not
//! counted down, so a turn at which nothing is due writes nothing.

use super::table::{ROW, Table};

/// A wheel of 2^`bits` buckets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hashed {
    pub(super) bits: u32,
}

impl Hashed {
    /// Returns the ticks of one round.
    #[inline]
    pub(super) fn round(self) -> u64 {
        1 << self.bits
    }

    /// Returns the bucket that holds `deadline`.
    #[inline]
    pub(super) fn bucket(self, deadline: u64) -> u32 {
        (deadline & (self.round() - 1)) as u32
    }

    /// Returns the bucket that comes up next, and a tick that is not after any deadline in any
    /// bucket. No deadline may be at `cursor`.
    #[inline]
    pub(super) fn next(self, table: &mut Table, cursor: u64) -> Option<(u32, u64)> {
        // If timeouts are close together, a look at the buckets up to the end of this row and of
        // the next one is enough.
        let begin = cursor.saturating_add(1);
        let next_row = (begin | (ROW as u64 - 1)).saturating_add(1);
        let mut near = table.pass(self.bucket(begin), begin);
        if near.is_none() && ROW as u64 <= self.round() / 2 {
            near = table.pass(self.bucket(next_row), next_row);
        }
        near.or_else(|| self.soonest(table))
    }

    /// Returns the occupied bucket with the earliest noted tick, and that tick.
    ///
    /// What is noted for a bucket is the deadline of an entry that is or was there, so the tick
    /// tells the bucket: no row is read to find it.
    #[inline]
    pub(super) fn soonest(self, table: &mut Table) -> Option<(u32, u64)> {
        let tick = table.soonest()?;
        Some((self.bucket(tick), tick))
    }
}
