//! Futures on a timer, for any executor: sleep, timeout, interval.

mod interval;
mod sleep;
mod timeout;

pub use interval::Interval;
pub use sleep::Sleep;
pub use timeout::{Elapsed, Timed};

use crate::Timer;
use core::time::Duration;
use std::sync::OnceLock;
use std::time::Instant;

/// Futures. They are of any executor: the timer's own thread wakes them.
impl Timer {
    /// A future that completes `delay` from now: counted from this call, not from the first poll.
    ///
    /// One longer than an [`Instant`] can hold, as [`Duration::MAX`] is, completes only when the
    /// timer is stopped. See [`Sleep`].
    pub fn sleep(&self, delay: Duration) -> Sleep {
        let shard = self.shard();
        Sleep::new(shard, shard.ticks().after(shard.now(), delay))
    }

    /// A future that completes at `deadline`, or at once if that has passed. See [`Sleep`].
    pub fn sleep_until(&self, deadline: Instant) -> Sleep {
        let shard = self.shard();
        Sleep::new(shard, shard.ticks().deadline(deadline))
    }

    /// `future`, for no longer than `delay` from now. See [`Timed`].
    pub fn timeout<F: IntoFuture>(&self, delay: Duration, future: F) -> Timed<F::IntoFuture> {
        Timed::new(future.into_future(), self.sleep(delay))
    }

    /// `future`, until `deadline` at the latest. See [`Timed`].
    pub fn timeout_at<F: IntoFuture>(&self, deadline: Instant, future: F) -> Timed<F::IntoFuture> {
        Timed::new(future.into_future(), self.sleep_until(deadline))
    }

    /// Ticks at once, and then every `period`. See [`Interval`].
    ///
    /// A period of zero counts as one tick of the timer.
    pub fn interval(&self, period: Duration) -> Interval {
        let start = self.shard().now();
        Interval::new(self.sleep_until(start), start, self.not_zero(period))
    }

    /// Ticks at `start`, and then every `period`. See [`Interval`].
    ///
    /// A period of zero counts as one tick of the timer.
    pub fn interval_at(&self, start: Instant, period: Duration) -> Interval {
        Interval::new(self.sleep_until(start), start, self.not_zero(period))
    }
}

/// The timer of the process: one for all who need no other, built with the first call, as
/// [`Timer::new`] does. Its thread starts when the first timeout is pending.
///
/// It lives as long as the process, and is not stopped by dropping anything. Who stops it with
/// [`Timer::stop`] stops it for all, and for ever.
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
    TIMER.get_or_init(Timer::new)
}

/// A future that completes `delay` from now, on the timer of the process: [`Timer::sleep`] of
/// [`timer`].
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

/// A future that completes at `deadline`, on the timer of the process: [`Timer::sleep_until`] of
/// [`timer`].
pub fn sleep_until(deadline: Instant) -> Sleep {
    timer().sleep_until(deadline)
}

/// `future`, for no longer than `delay` from now, on the timer of the process: [`Timer::timeout`] of
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

/// `future`, until `deadline` at the latest, on the timer of the process: [`Timer::timeout_at`] of
/// [`timer`].
pub fn timeout_at<F: IntoFuture>(deadline: Instant, future: F) -> Timed<F::IntoFuture> {
    timer().timeout_at(deadline, future)
}

/// Ticks at once, and then every `period`, on the timer of the process: [`Timer::interval`] of
/// [`timer`].
pub fn interval(period: Duration) -> Interval {
    timer().interval(period)
}

/// Ticks at `start`, and then every `period`, on the timer of the process: [`Timer::interval_at`] of
/// [`timer`].
pub fn interval_at(start: Instant, period: Duration) -> Interval {
    timer().interval_at(start, period)
}
