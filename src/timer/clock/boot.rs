//! A clock that counts the time in which the machine was suspended.

use super::Clock;
use core::time::Duration;
use std::time::Instant;

/// A clock that goes on while the machine is suspended.
///
/// A timeout of an hour comes an hour later, whether or not somebody closed the laptop meanwhile.
/// [`MonotonicClock`](crate::MonotonicClock) stands still in that time on Linux and macOS. It needs
/// the feature `boot-clock`.
///
/// On Linux, Android and OpenBSD this is `CLOCK_BOOTTIME`. On Apple's systems it is
/// `CLOCK_MONOTONIC`, which goes on there. On all others it is [`Instant::now`]; on Windows that
/// goes on, too.
///
/// # After a suspend
///
/// The system wakes no thread because of a suspend, and the thread that a timer's worker is does
/// not sleep by this clock: the time in which the machine was suspended does not shorten its sleep.
/// So on this clock the worker sleeps for no longer than the [look](Self::with_look): 10 s, if the
/// caller says nothing else. A timeout that came due in a suspend fires at most that long after the
/// machine wakes up, and a timeout that was due later is not late at all. The price is one wake-up
/// for each look while any timeout waits. A timer without timeouts sleeps on. A
/// [`Driver`](crate::Driver) does not look: its page says what an event loop can do.
///
/// ```
/// use std::time::Duration;
/// use tickwheel::{BootClock, Timer};
///
/// let clock = BootClock::new().with_look(Duration::from_secs(1));
/// let timer = Timer::builder().clock(clock).build()?;
/// let lease = timer.schedule(Duration::from_secs(3_600), || println!("the lease is over"))?;
/// assert!(lease.cancel());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct BootClock {
    start: Instant,
    /// The time since boot at `start`.
    boot: Duration,
    look: Duration,
}

impl BootClock {
    /// Makes a clock that now shows what [`Instant::now`] does, and looks every 10 s.
    #[must_use]
    pub fn new() -> Self {
        Self { start: Instant::now(), boot: since_boot(), look: LOOK }
    }

    /// Sets how long a timer's worker sleeps at most before it looks at this clock: so late may a
    /// timeout fire after the machine wakes up. At least 1 ms.
    #[must_use]
    pub fn with_look(self, look: Duration) -> Self {
        Self { look: look.max(Duration::from_millis(1)), ..self }
    }
}

impl Default for BootClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for BootClock {
    fn now(&self) -> Instant {
        let passed = since_boot().saturating_sub(self.boot);
        self.start.checked_add(passed).unwrap_or(self.start)
    }

    fn wait(&self, duration: Duration) -> Option<Duration> {
        Some(duration.min(self.look))
    }
}

/// Returns the time since some start, the time in which the machine was suspended included.
#[cfg(any(
    target_os = "linux",
    target_os = "android",
    target_os = "openbsd",
    target_vendor = "apple"
))]
fn since_boot() -> Duration {
    use rustix::time::{ClockId, clock_gettime};

    #[cfg(target_vendor = "apple")]
    let id = ClockId::Monotonic;
    #[cfg(not(target_vendor = "apple"))]
    let id = ClockId::Boottime;
    // Neither number is negative.
    let time = clock_gettime(id);
    let seconds = Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or_default());
    seconds.saturating_add(Duration::from_nanos(u64::try_from(time.tv_nsec).unwrap_or_default()))
}

#[cfg(not(any(
    target_os = "linux",
    target_os = "android",
    target_os = "openbsd",
    target_vendor = "apple"
)))]
fn since_boot() -> Duration {
    use std::sync::LazyLock;

    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed()
}

/// How long a worker sleeps at most, if the caller says nothing else.
const LOOK: Duration = Duration::from_secs(10);
