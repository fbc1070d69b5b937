//! Clocks.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};
use tickwheel::{Clock, Follower};

/// A clock that does what it is told.
pub(crate) struct OddClock {
    now: Box<dyn Fn() -> Instant + Send + Sync>,
    wait: Box<dyn Fn(Duration) -> Option<Duration> + Send + Sync>,
    follow: Box<dyn Fn(Follower) + Send + Sync>,
}

impl OddClock {
    /// A clock that tells this present.
    pub(crate) fn new(now: impl Fn() -> Instant + Send + Sync + 'static) -> Self {
        Self { now: Box::new(now), wait: Box::new(Some), follow: Box::new(drop) }
    }

    /// A clock by which `step` passes at each `often`th look: it stalls in between, and jumps.
    pub(crate) fn passing(start: Instant, step: Duration, often: u32) -> Self {
        let looks = AtomicU32::new(0);
        Self::new(move || start + step * (looks.fetch_add(1, SeqCst) / often))
    }

    /// It answers so how long to sleep.
    pub(crate) fn waiting(
        self,
        wait: impl Fn(Duration) -> Option<Duration> + Send + Sync + 'static,
    ) -> Self {
        Self { wait: Box::new(wait), ..self }
    }

    /// It does this with a timer's follower.
    pub(crate) fn following(self, follow: impl Fn(Follower) + Send + Sync + 'static) -> Self {
        Self { follow: Box::new(follow), ..self }
    }
}

impl Clock for OddClock {
    fn now(&self) -> Instant {
        (self.now)()
    }

    fn wait(&self, duration: Duration) -> Option<Duration> {
        (self.wait)(duration)
    }

    fn follow(&self, follower: Follower) {
        (self.follow)(follower);
    }
}

/// Returns the instant to which `left` can be added, and not more.
pub(crate) fn edge(left: Duration) -> Instant {
    let (mut last, mut step) = (Instant::now(), Duration::MAX);
    while !step.is_zero() {
        match last.checked_add(step) {
            Some(later) => last = later,
            None => step /= 2,
        }
    }
    last - left
}
