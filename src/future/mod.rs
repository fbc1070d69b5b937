//! Futures on a timer, for any executor: sleep, timeout, interval.

// hyper wants instants of std.
#[cfg(all(feature = "hyper", not(all(target_family = "wasm", target_os = "unknown"))))]
mod hyper;
mod interval;
mod sleep;
mod timeout;
mod turns;

pub use interval::Interval;
pub use sleep::{Sleep, Sleeps, WeakSleeps};
pub use timeout::{Elapsed, Timed};

pub(crate) use turns::{Turns, Waits, wait};

use crate::Timer;
use crate::platform::Instant;
use crate::timer::warn_if_many;
use core::time::Duration;
use std::sync::OnceLock;

/// Futures, for any async runtime: the timer's worker wakes them.
impl Timer {
    /// Returns a future that completes `delay` from now, counted from this call and not from the
    /// first poll. See [`Sleep`].
    ///
    /// A delay too long for [`Instant`], as [`Duration::MAX`] is, completes only when the timer is
    /// stopped.
    pub fn sleep(&self, delay: Duration) -> Sleep {
        let shard = self.shard();
        Sleep::new(shard, shard.hub.deadline_after(delay))
    }

    /// Returns a future that completes at `deadline`, or at once if that has passed. See [`Sleep`].
    ///
    /// If there may be no deadline, a sleep of [`Duration::MAX`] is of the same type and does not
    /// end, so that a `select!` needs no special case:
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// use std::time::{Duration, Instant};
    ///
    /// let timer = tickwheel::timer();
    /// let deadline: Option<Instant> = None;
    /// let never = || timer.sleep(Duration::MAX);
    /// let ends = deadline.map_or_else(never, |deadline| timer.sleep_until(deadline));
    /// assert!(timer.timeout(Duration::from_millis(1), ends).await.is_err());
    /// # });
    /// ```
    pub fn sleep_until(&self, deadline: Instant) -> Sleep {
        let shard = self.shard();
        Sleep::new(shard, shard.hub.ticks.deadline(deadline))
    }

    /// Returns what makes one sleep, in the shard that this thread uses now. It does not keep the
    /// timer alive.
    #[must_use]
    pub fn sleeps(&self) -> Sleeps {
        Sleeps::new(self.shard())
    }

    /// Limits `future` to `delay` from now. See [`Timed`].
    pub fn timeout<F: IntoFuture>(&self, delay: Duration, future: F) -> Timed<F::IntoFuture> {
        Timed::new(future.into_future(), self.sleep(delay))
    }

    /// Limits `future` to end at `deadline` at the latest. See [`Timed`].
    pub fn timeout_at<F: IntoFuture>(&self, deadline: Instant, future: F) -> Timed<F::IntoFuture> {
        Timed::new(future.into_future(), self.sleep_until(deadline))
    }

    /// Returns an interval that ticks at once, and then every `period`. See [`Interval`].
    ///
    /// A period of zero counts as one tick of the timer.
    pub fn interval(&self, period: Duration) -> Interval {
        self.interval_at(self.shard().hub.clock.now(), period)
    }

    /// Returns an interval that ticks at `start`, and then every `period`. See [`Interval`].
    ///
    /// A period of zero counts as one tick of the timer.
    pub fn interval_at(&self, start: Instant, period: Duration) -> Interval {
        let period = self.shard().hub.ticks.not_zero(period);
        Interval::new(self.sleep_until(start), start, period)
    }
}

/// Returns the default timer, shared by the whole process. The first call builds it, as
/// [`Timer::new`] does. Its worker starts with the first timeout.
///
/// The timer lives as long as the process: dropping a clone does not stop it. A caller that stops
/// it with [`Timer::stop`] stops it for the whole process, and for ever.
///
/// ```
/// use std::time::Duration;
///
/// let timeout = tickwheel::timer().schedule(Duration::from_secs(30), || println!("late"))?;
/// assert!(timeout.cancel());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn timer() -> &'static Timer {
    static TIMER: OnceLock<Timer> = OnceLock::new();
    if let Some(timer) = TIMER.get() {
        return timer;
    }
    let timer = TIMER.get_or_init(|| Timer::builder().assemble(true));
    // Not while it is being made, because the logger may use this timer.
    warn_if_many();
    timer
}

/// Returns a future that completes `delay` from now, on the timer of the process: [`Timer::sleep`]
/// of [`timer`].
///
/// ```
/// # futures::executor::block_on(async {
/// use std::time::{Duration, Instant};
///
/// let start = Instant::now();
/// tickwheel::sleep(Duration::from_millis(5)).await?;
/// assert!(start.elapsed() >= Duration::from_millis(5));
/// # Ok::<(), tickwheel::ScheduleErrorKind>(())
/// # }).unwrap();
/// ```
pub fn sleep(delay: Duration) -> Sleep {
    timer().sleep(delay)
}

/// Returns a future that completes at `deadline`, on the timer of the process:
/// [`Timer::sleep_until`] of [`timer`].
pub fn sleep_until(deadline: Instant) -> Sleep {
    timer().sleep_until(deadline)
}

/// Limits `future` to `delay` from now, on the timer of the process: [`Timer::timeout`] of
/// [`timer`].
///
/// ```
/// # futures::executor::block_on(async {
/// use std::future::{pending, ready};
/// use std::time::Duration;
///
/// assert_eq!(tickwheel::timeout(Duration::from_secs(30), ready("answer")).await, Ok("answer"));
/// assert!(tickwheel::timeout(Duration::from_millis(1), pending::<()>()).await.is_err());
/// # });
/// ```
pub fn timeout<F: IntoFuture>(delay: Duration, future: F) -> Timed<F::IntoFuture> {
    timer().timeout(delay, future)
}

/// Limits `future` to end at `deadline` at the latest, on the timer of the process:
/// [`Timer::timeout_at`] of [`timer`].
pub fn timeout_at<F: IntoFuture>(deadline: Instant, future: F) -> Timed<F::IntoFuture> {
    timer().timeout_at(deadline, future)
}

/// Returns an interval that ticks at once, and then every `period`, on the timer of the process:
/// [`Timer::interval`] of [`timer`].
pub fn interval(period: Duration) -> Interval {
    timer().interval(period)
}

/// Returns an interval that ticks at `start`, and then every `period`, on the timer of the process:
/// [`Timer::interval_at`] of [`timer`].
pub fn interval_at(start: Instant, period: Duration) -> Interval {
    timer().interval_at(start, period)
}
