//! `Turning`: a wheel that is shown.

use tickwheel::{Mode, Wheel, WheelStats};
use tickwheel_cli::picture;
use tickwheel_cli::study::{Fired, Run};

#[derive(Debug)]
pub(super) struct Turning {
    pub(super) run: Run<Fired>,
}

/// What a wheel held and had done at some moment.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) stats: WheelStats,
    pub(super) fired: u64,
}

impl Turning {
    pub(super) fn new(mode: Mode) -> Self {
        Self { run: Run::shown(mode) }
    }

    pub(super) fn wheel(&self) -> &Wheel<u32> {
        &self.run.wheel
    }

    pub(super) fn mode(&self) -> Mode {
        self.wheel().mode()
    }

    pub(super) fn next_wake(&self) -> Option<u64> {
        self.wheel().next_wake()
    }

    pub(super) fn see(&self) -> Seen {
        Seen { stats: self.wheel().stats(), fired: self.run.observer.0 }
    }

    /// The bucket of `level` that the present falls in.
    pub(super) fn cursor(&self, level: usize) -> usize {
        let bits = level as u32 * self.mode().buckets().trailing_zeros();
        self.wheel().now().checked_shr(bits).unwrap_or(0) as usize % self.mode().buckets()
    }

    /// The level and the bucket of the timeout of this place in the plan, and the rounds that it
    /// waits there. None if it is gone, or in no bucket.
    pub(super) fn place(&self, place: u32) -> Option<(usize, usize, u64)> {
        let key = (*self.run.keys.get(place as usize)?)?;
        let (level, bucket) = self.wheel().bucket(key)?;
        Some((level, bucket, picture::rounds(self.wheel(), self.wheel().deadline(key)?)))
    }
}
