//! Geometry: a mode with its arithmetic ready.

use super::hashed::Hashed;
use super::hierarchical::Hierarchical;
use super::table::Table;
use crate::mode::Mode;

/// What differs between the modes: which bucket holds a deadline, and which bucket comes up next.
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

    /// How many buckets there are on all levels.
    pub(super) fn buckets(self) -> u32 {
        match self {
            Self::Hierarchical(levels) => levels.levels() << levels.bits,
            Self::Hashed(level) => 1 << level.bits,
        }
    }

    /// The bucket that holds `deadline`, which is after `cursor`.
    #[inline]
    pub(super) fn bucket(self, deadline: u64, cursor: u64) -> u32 {
        match self {
            Self::Hierarchical(levels) => levels.bucket(deadline, cursor),
            Self::Hashed(level) => level.bucket(deadline),
        }
    }

    /// The bucket that comes up next after `cursor`, and a tick that no deadline in any bucket is
    /// before.
    #[inline]
    pub(super) fn next(self, table: &mut Table, cursor: u64) -> Option<(u32, u64)> {
        match self {
            Self::Hierarchical(_) => table.first(),
            Self::Hashed(level) => level.next(table, cursor),
        }
    }

    /// Whether bucket `number`, which comes up next and in which nothing is due before `tick`, begins
    /// after `now`, so that the cursor can come to `now` before it.
    #[inline]
    pub(super) fn begins_after(self, now: u64, number: u32, tick: u64) -> bool {
        match self {
            Self::Hierarchical(levels) => now < levels.start(number, tick),
            Self::Hashed(_) => now < tick,
        }
    }

    /// The level that a bucket is on.
    #[inline]
    pub(super) fn level(self, number: u32) -> u32 {
        match self {
            Self::Hierarchical(levels) => levels.level(number),
            Self::Hashed(_) => 0,
        }
    }
}
