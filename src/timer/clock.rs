//! What tells a timer the time.

use super::follower::Follower;
use core::time::Duration;
use std::time::Instant;

/// Tells a [`Timer`](crate::Timer) the time.
///
/// A clock never goes back. The timer reads it for every timeout that is scheduled and every task
/// that runs, so [`now`](Self::now) should be quick.
///
/// | Called | where | must not |
/// |---|---|---|
/// | `now`, `wait` | on the worker, and on each thread that uses the timer; the timer holds no lock | call the timer, or panic: a panic would end the worker, and nothing would fire any more |
/// | `follow` | on the thread that builds the timer, before the builder returns | wait for the timer; if it panics, the panic reaches the caller and the timer is dropped |
///
/// Time is an [`Instant`], because nearly all code that deals with deadlines takes one. A clock
/// that does not run like the system's counts from some instant, as
/// [`ManualClock`](crate::ManualClock) does:
///
/// ```
/// use std::time::{Duration, Instant};
/// use tickwheel::{Clock, Timer};
///
/// /// Runs at a thousand times the speed.
/// struct Fast(Instant);
///
/// impl Clock for Fast {
///     fn now(&self) -> Instant {
///         self.0 + self.0.elapsed() * 1_000
///     }
///
///     fn wait(&self, duration: Duration) -> Option<Duration> {
///         Some(duration / 1_000)
///     }
/// }
///
/// let timer = Timer::builder().clock(Fast(Instant::now())).build()?;
/// let (sender, receiver) = std::sync::mpsc::channel();
/// timer.schedule(Duration::from_secs(30), move || sender.send("after 30 ms").unwrap())?;
/// assert_eq!(receiver.recv(), Ok("after 30 ms"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Clock: Send + Sync + 'static {
    /// Returns the present.
    fn now(&self) -> Instant;

    /// Returns how long a thread has to sleep until `duration` has passed on this clock. None means
    /// until the clock tells the timer: see [`follow`](Self::follow).
    ///
    /// An answer that is too short costs a wake-up. One that is too long makes timeouts late. The
    /// default is `duration` itself.
    fn wait(&self, duration: Duration) -> Option<Duration> {
        Some(duration)
    }

    /// Receives a [`Follower`] of each timer that is built on this clock, so that a clock that
    /// jumps can tell the timers. The default drops it.
    fn follow(&self, follower: Follower) {
        drop(follower);
    }
}

/// The system's monotonic clock: [`Instant::now`].
///
/// It does not go back when somebody sets the time. The system decides what this clock does while
/// the machine is suspended. On Linux and macOS the clock stands still: a timeout of an hour comes
/// after the machine was awake for an hour. On a system where the clock goes on, timeouts that came
/// due meanwhile fire late, when the machine wakes up, and none is lost. A clock that includes the
/// time asleep is a few lines of [`Clock`].
#[derive(Clone, Copy, Debug, Default)]
pub struct MonotonicClock;

impl Clock for MonotonicClock {
    #[inline]
    fn now(&self) -> Instant {
        Instant::now()
    }
}
