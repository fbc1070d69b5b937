//! Waits longer after each failure.

/// When a call that failed is made again.
#[derive(Debug, Default)]
pub(super) struct Pause {
    pub(super) failures: u32,
    pub(super) until: u64,
}

impl Pause {
    pub(super) fn fail(&mut self, now: u64) {
        let pause = (FIRST << self.failures.min(16)).min(LAST);
        self.failures = self.failures.saturating_add(1);
        self.until = now.saturating_add(pause);
    }

    pub(super) fn is_over(&self, now: u64) -> bool {
        self.until <= now
    }

    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }
}

/// The first pause, in milliseconds.
pub(super) const FIRST: u64 = 100;
const LAST: u64 = 1_000;
