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

    /// The bucket that comes up next with something that could be due, and when.
    ///
    /// A walk from the cursor's bucket once around: the first bucket whose earliest timeout is due
    /// when the cursor comes by, in this round. Failing that, the earliest of all.
    pub(crate) fn next(self, table: &Table, cursor: u64) -> Option<(u32, u64)> {
        let start = self.bucket(cursor);
        let mut soonest: Option<(u32, u64)> = None;
        // The cursor's own bucket comes last, a whole round from now.
        let wrapped = table.iter(0).take_while(|&(number, _)| number <= start);
        for (number, earliest) in table.iter(start + 1).chain(wrapped) {
            let ahead = self.bucket(u64::from(number).wrapping_sub(cursor).wrapping_sub(1)) + 1;
            if earliest - cursor <= u64::from(ahead) {
                return Some((number, earliest));
            }
            if soonest.is_none_or(|(_, tick)| earliest < tick) {
                soonest = Some((number, earliest));
            }
        }
        soonest
    }
}
