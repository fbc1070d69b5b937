//! Waits longer after each failure.

/// When a call that failed is made again.
#[derive(Clone, Debug, Default)]
pub(super) struct Pause {
    pub(super) failures: u32,
    pub(super) until: u64,
}

impl Pause {
    pub(super) fn fail(&mut self, now: u64) {
        self.fail_for(now, LAST);
    }

    /// Waits for this long at most.
    pub(super) fn fail_for(&mut self, now: u64, longest: u64) {
        let pause = (FIRST << self.failures.min(16)).min(longest);
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
