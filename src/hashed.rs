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
    /// Mostly that of `wake`. If its timeout was cancelled, a walk from the cursor's bucket once
    /// around finds the first whose earliest timeout is due when the cursor comes by in this
    /// round. Failing that, the earliest of all.
    pub(crate) fn next(self, table: &Table, cursor: u64, wake: u64) -> Option<(u32, u64)> {
        let number = self.bucket(wake);
        if table.earliest(number) == Some(wake) {
            return Some((number, wake));
        }
        let begin = cursor.wrapping_add(1) & !(self.round() - 1);
        let ahead = table.rows(self.bucket(cursor.wrapping_add(1))).map(|row| (begin, row));
        let next_round = table.rows(0).map(|row| (begin.wrapping_add(self.round()), row));
        let mut soonest = None;
        for (begin, row) in ahead.chain(next_round) {
            let tick = begin.wrapping_add(row.first.into());
            for (at, earliest) in row {
                if earliest == tick.wrapping_add(at) {
                    return Some((self.bucket(earliest), earliest));
                }
                soonest = Some(soonest.map_or(earliest, |soonest: u64| soonest.min(earliest)));
            }
        }
        soonest.map(|soonest| (self.bucket(soonest), soonest))
    }
}
