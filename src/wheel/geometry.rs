//! Geometry: answers the two questions that the modes answer differently.

use super::hashed::Hashed;
use super::hierarchical::Hierarchical;
use super::table::Table;
use crate::mode::Mode;

/// A mode with its arithmetic ready: which bucket holds a deadline, and which bucket comes up next.
#[derive(Clone, Copy, Debug)]
pub(super) enum Geometry {
    Hierarchical(Hierarchical),
    Hashed(Hashed),
}

impl Geometry {
    pub(super) fn new(mode: Mode) -> Self {
        let bits = mode.buckets().trailing_zeros();
        match mode.is_hashed() {
            true => Self::Hashed(Hashed { bits }),
            false => Self::Hierarchical(Hierarchical::new(bits)),
        }
    }

    /// Returns the number of buckets on all levels.
    pub(super) fn buckets(self) -> u32 {
        match self {
            Self::Hierarchical(levels) => levels.levels() << levels.bits,
            Self::Hashed(level) => 1 << level.bits,
        }
    }

    /// Returns the bucket that holds `deadline`, which is after `cursor`.
    #[inline]
    pub(super) fn bucket(self, deadline: u64, cursor: u64) -> u32 {
        match self {
            Self::Hierarchical(levels) => levels.bucket(deadline, cursor),
            Self::Hashed(level) => level.bucket(deadline),
        }
    }

    /// Returns the bucket that comes up next after `cursor`, and a tick that is not after any
    /// deadline in any bucket.
    #[inline]
    pub(super) fn next(self, table: &mut Table, cursor: u64) -> Option<(u32, u64)> {
        match self {
            Self::Hierarchical(_) => table.first(),
            Self::Hashed(level) => level.next(table, cursor),
        }
    }

    /// Returns whether bucket `number` begins after `now`, so that the cursor can come to `now`
    /// before it. The bucket comes up next, and nothing in it is due before `tick`, which is after
    /// `now`.
    #[inline]
    pub(super) fn begins_after(self, now: u64, number: u32, tick: u64) -> bool {
        match self {
            Self::Hierarchical(levels) => now < levels.start(number, tick),
            Self::Hashed(_) => true,
        }
    }

    /// Returns the level that a bucket is on.
    #[inline]
    pub(super) fn level(self, number: u32) -> u32 {
        match self {
            Self::Hierarchical(levels) => levels.level(number),
            Self::Hashed(_) => 0,
        }
    }
}
