//! What can be seen of a [`Turning`] wheel besides where its timeouts are.

use crate::turning::Turning;
use tickwheel::WheelStats;

/// What a wheel held and had done at some moment.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) stats: WheelStats,
    pub(super) fired: u64,
}

impl Turning {
    /// The bucket of `level` that tick `now` falls in.
    pub(super) fn cursor(&self, level: usize) -> usize {
        let bits = level as u32 * self.mode().buckets().trailing_zeros();
        self.wheel.now().checked_shr(bits).unwrap_or(0) as usize % self.mode().buckets()
    }

    /// The level and the bucket of the timeout of this place in the plan, and the rounds that it
    /// waits there. None if it is gone or sorted.
    pub(super) fn place(&self, place: u32) -> Option<(usize, usize, u64)> {
        let key = *self.keys.get(&place)?;
        let (level, bucket) = self.wheel.bucket(key)?;
        Some((level, bucket, self.rounds(self.wheel.deadline(key)?)))
    }

    pub(super) fn pending(&self) -> usize {
        self.wheel.len()
    }

    pub(super) fn see(&self) -> Seen {
        Seen { stats: self.wheel.stats(), fired: self.fired }
    }
}
