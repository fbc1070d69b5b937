//! The time that work takes.

use cpu_time::ThreadTime;
use std::time::Duration;

/// A point in the time that the processor has spent on this thread: what other processes take
/// away from it is not held against what is measured.
///
/// Reading it takes a microsecond, so that single calls are timed by the wall clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Time(ThreadTime);

impl Time {
    pub(crate) fn now() -> Self {
        Self(ThreadTime::now())
    }

    pub(crate) fn since(self, earlier: Self) -> Duration {
        self.0.duration_since(earlier.0)
    }

    pub(crate) fn elapsed(self) -> Duration {
        Self::now().since(self)
    }
}
