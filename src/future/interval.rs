//! Ticks at a fixed rate.

use super::sleep::Sleep;
use super::turns::{Turns, Waits, wait};
use crate::platform::Instant;
use crate::{MissedTick, ScheduleErrorKind};
use core::fmt;
use core::task::{Context, Poll, ready};
use core::time::Duration;

/// Ticks at a fixed rate, from [`Timer::interval`](crate::Timer::interval).
///
/// A tick never comes before it is due, by the timer's clock. It is late by less than a tick of the
/// timer, or than 1 ms by [default](crate::TimerBuilder::tick), plus the time to wake the worker and
/// the task. The rate does not drift, whether or not the period is a multiple of the timer's tick.
///
/// A tick is missed if no task took it before the next was due as well. [`MissedTick`] says what
/// happens then.
///
/// Dropping the future of [`tick`](Self::tick) loses no tick, so an interval works in `select!`.
/// Dropping the interval takes it out of the timer at once. The timer holds nothing of it while no
/// task waits. With the feature `stream` an interval is a `Stream`.
///
/// ```
/// # futures::executor::block_on(async {
/// use std::time::{Duration, Instant};
/// use tickwheel::{MissedTick, Timer};
///
/// let timer = Timer::new();
/// let mut heartbeat = timer.interval(Duration::from_millis(5));
/// heartbeat.set_missed_tick(MissedTick::Skip);
/// let first = heartbeat.tick().await?; // at once
/// let second = heartbeat.tick().await?;
/// assert_eq!(second - first, Duration::from_millis(5));
/// assert!(second <= Instant::now());
/// # Ok::<(), tickwheel::ScheduleErrorKind>(())
/// # }).unwrap();
/// ```
pub struct Interval {
    /// To the instant of `due`, rounded up to the timer's tick, or down if it was set to be due at
    /// once.
    sleep: Sleep,
    /// When the next tick is due, exactly; None if an instant cannot hold it.
    due: Option<Instant>,
    /// Not zero.
    period: Duration,
    missed: MissedTick,
    /// Of ticks that were missed, and need no wait: few, because each may be much work.
    turns: Turns<4>,
    /// The stream gave an error and has to end now.
    #[cfg(feature = "stream")]
    ends: bool,
}

impl Interval {
    pub(super) fn new(sleep: Sleep, start: Instant, period: Duration) -> Self {
        let mut interval = Self {
            sleep,
            due: None,
            period,
            missed: MissedTick::default(),
            turns: Turns::default(),
            #[cfg(feature = "stream")]
            ends: false,
        };
        interval.set(Some(start));
        interval
    }

    /// Waits for the next tick, and returns the instant at which it was due. Returns at once if it
    /// is due already.
    ///
    /// # Errors
    ///
    /// Those of [`Sleep`]: if the timer was stopped, for example. Another call tries again.
    pub async fn tick(&mut self) -> Result<Instant, ScheduleErrorKind> {
        wait(self, Self::poll_tick).await
    }

    /// Returns the instant at which the next tick was due, if it is due already. Otherwise the
    /// timer wakes the task then.
    ///
    /// # Errors
    ///
    /// Those of [`tick`](Self::tick).
    pub fn poll_tick(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Instant, ScheduleErrorKind>> {
        // If several were missed, the next is due as well: the timer need not wake the task.
        let is_due = !self.sleep.is_waiting() && self.sleep.is_elapsed();
        if is_due {
            ready!(self.turns.take(&self.sleep.shard().hub, context.waker()));
        } else {
            self.turns = Turns::default();
            match self.sleep.poll_by(context.waker()) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => {
                    self.sleep.move_to(self.sleep.tick());
                    return Poll::Ready(Err(error));
                }
            }
        }
        let now = self.sleep.shard().hub.clock.now();
        // A sleep to no instant does not complete.
        let tick = self.due.unwrap_or(now);
        let ticks = self.sleep.shard().hub.ticks;
        let missed;
        (self.due, missed) = self.missed.next(self.due, self.period, now, &ticks);
        self.sleep.shard().hub.counters.misses(missed);
        self.sleep.move_to(ticks.deadline_of(self.due));
        #[cfg(feature = "stream")]
        (self.ends = false);
        Poll::Ready(Ok(tick))
    }

    /// Makes the next tick due one period from now. The ticks after it follow.
    pub fn reset(&mut self) {
        self.reset_after(self.period);
    }

    /// Makes the next tick due now.
    pub fn reset_immediately(&mut self) {
        self.set(Some(self.sleep.shard().hub.clock.now()));
    }

    /// Makes the next tick due `delay` from now.
    pub fn reset_after(&mut self, delay: Duration) {
        self.set(self.sleep.shard().hub.clock.now().checked_add(delay));
    }

    /// Makes the next tick due at `deadline`.
    pub fn reset_at(&mut self, deadline: Instant) {
        self.set(Some(deadline));
    }

    fn set(&mut self, due: Option<Instant>) {
        self.due = due;
        let (now, ticks) = (self.sleep.shard().hub.clock.now(), self.sleep.shard().hub.ticks);
        let is_due = due.is_some_and(|due| due <= now);
        self.sleep.move_to(if is_due { ticks.now(now) } else { ticks.deadline_of(due) });
    }

    /// Returns the instant at which the next tick is due, exactly. Returns None if an [`Instant`]
    /// cannot hold it.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.due
    }

    /// Returns the time from one tick to the next.
    #[must_use]
    pub fn period(&self) -> Duration {
        self.period
    }

    /// Returns what happens when ticks are missed. The default is [`MissedTick::Burst`].
    #[must_use]
    pub fn missed_tick(&self) -> MissedTick {
        self.missed
    }

    /// Sets what happens when ticks are missed.
    pub fn set_missed_tick(&mut self, missed: MissedTick) {
        self.missed = missed;
    }
}

impl Waits for Interval {
    fn give_up(&mut self) {
        self.sleep.take_out(drop);
    }
}

/// Ticks without end, but for one None after each error.
///
/// A wait stays when a `select!` drops the future of the stream's `next`, until its time has come or
/// another poll is ready. [`tick`](Self::tick) leaves nothing behind.
#[cfg(feature = "stream")]
impl futures_core::Stream for Interval {
    type Item = Result<Instant, ScheduleErrorKind>;

    fn poll_next(
        mut self: core::pin::Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Self::Item>> {
        if core::mem::take(&mut self.ends) {
            return Poll::Ready(None);
        }
        let tick = self.poll_tick(context);
        self.ends = matches!(tick, Poll::Ready(Err(_)));
        tick.map(Some)
    }
}

impl fmt::Debug for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interval")
            .field("period", &self.period)
            .field("deadline", &self.due)
            .field("missed_tick", &self.missed)
            .finish_non_exhaustive()
    }
}
