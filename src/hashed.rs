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

    /// The bucket that comes up next with something that could be due, and when, given that nothing
    /// is due before `wake`.
    ///
    /// Mostly that of `wake`. If its timeout was cancelled, or that is all that was known, a walk
    /// from the cursor's bucket once around finds the first whose earliest timeout is due when the
    /// cursor comes by in this round. Failing that, the earliest of all.
    pub(crate) fn next(self, table: &mut Table, cursor: u64, wake: u64) -> Option<(u32, u64)> {
        let number = self.bucket(wake);
        if table.earliest(number) == Some(wake) {
            return Some((number, wake));
        }
        let start = cursor.wrapping_add(1);
        let from = self.bucket(start);
        let begin = start - u64::from(from);
        let tick = table
            .pass(from, u32::MAX, begin)
            .or_else(|| table.pass(0, from, begin.wrapping_add(self.round())))
            .or_else(|| table.soonest())?;
        Some((self.bucket(tick), tick))
    }
}
