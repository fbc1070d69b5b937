//! How delays are distributed. They are the same for every subject, in every run.

#![allow(dead_code, reason = "`benches/modes` has it too, and does not need all of it")]

use fastrand::Rng;

/// In ticks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delays {
    pub(crate) longest: u64,
    /// Whether there are as many short ones as long ones: each power of ten is as likely as any
    /// other.
    log_uniform: bool,
}

impl Delays {
    pub(crate) const fn uniform(longest: u64) -> Self {
        Self { longest, log_uniform: false }
    }

    pub(crate) const fn log_uniform(longest: u64) -> Self {
        Self { longest, log_uniform: true }
    }

    pub(crate) fn draw(self, rng: &mut Rng) -> u64 {
        match self.log_uniform {
            true => ((self.longest as f64).powf(rng.f64()) as u64).max(1),
            false => rng.u64(1..=self.longest),
        }
    }

    pub(crate) fn many(self, count: usize) -> Vec<u64> {
        let mut rng = Rng::with_seed(1);
        (0..count).map(|_| self.draw(&mut rng)).collect()
    }
}

pub(crate) const SECOND: u64 = 1_000;
pub(crate) const MINUTE: u64 = 60 * SECOND;
pub(crate) const HOUR: u64 = 60 * MINUTE;
pub(crate) const DAY: u64 = 24 * HOUR;
pub(crate) const YEAR: u64 = 365 * DAY;
