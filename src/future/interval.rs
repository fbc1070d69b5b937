//! Ticks at a fixed rate.

use super::sleep::Sleep;
use crate::timer::Cadence;
use crate::{MissedTick, ScheduleErrorKind};
use core::fmt;
use core::future::poll_fn;
use core::task::{Context, Poll};
use core::time::Duration;
use std::time::Instant;

/// Ticks at a fixed rate, from [`Timer::interval`](crate::Timer::interval).
///
/// A tick never comes before it is due, by the timer's clock; late, by less than a tick of the timer,
/// plus waking the timer's thread and the task. The rate does not drift, whether the period is a
/// multiple of the timer's tick or not.
///
/// A tick is missed if nobody took it before the next was due as well; [`MissedTick`] says what
/// happens then.
///
/// Dropping what [`tick`](Self::tick) returned loses nothing, and so an interval can be used in
/// `select!`. Dropping the interval takes it out of the timer at once. Nothing is in the timer while
/// nobody waits. With the feature `stream` it is a `Stream`.
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
    /// To the instant of `due`.
    sleep: Sleep,
    /// When the next tick is due, exactly; None if that is beyond all instants.
    due: Option<Instant>,
    /// Not zero.
    period: Duration,
    missed: MissedTick,
    /// The stream gave an error and has to end now.
    #[cfg(feature = "stream")]
    ends: bool,
}

impl Interval {
    pub(super) fn new(sleep: Sleep, start: Instant, period: Duration) -> Self {
        Self {
            sleep,
            due: Some(start),
            period,
            missed: MissedTick::default(),
            #[cfg(feature = "stream")]
            ends: false,
        }
    }

    /// Waits for the next tick, and returns when it was due. That is at once if it is due already.
    ///
    /// # Errors
    ///
    /// As [`Sleep`]: if the timer was stopped, say. Another call tries again.
    pub async fn tick(&mut self) -> Result<Instant, ScheduleErrorKind> {
        poll_fn(|context| self.poll_tick(context)).await
    }

    /// Whether the next tick is due, and if so, when it was. Otherwise the task is woken then.
    ///
    /// # Errors
    ///
    /// As [`tick`](Self::tick).
    pub fn poll_tick(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Instant, ScheduleErrorKind>> {
        // If several were missed, the next is due as well: no need to have the timer wake anybody.
        let is_due =
            !self.sleep.is_waiting() && self.due.is_some_and(|due| due <= self.sleep.shard().now());
        if !is_due {
            match self.sleep.poll_by(context.waker()) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => {
                    self.sleep.move_to(self.sleep.tick());
                    return Poll::Ready(Err(error));
                }
            }
        }
        let now = self.sleep.shard().now();
        // What is never due does not complete.
        let tick = self.due.unwrap_or(now);
        let cadence = Cadence::Rate(self.period, self.missed);
        self.set(cadence.next(self.due, now, self.sleep.shard().ticks()));
        Poll::Ready(Ok(tick))
    }

    /// Makes the next tick due one period from now, and those after it with it.
    pub fn reset(&mut self) {
        self.reset_after(self.period);
    }

    /// Makes the next tick due now.
    pub fn reset_immediately(&mut self) {
        self.set(Some(self.sleep.shard().now()));
    }

    /// Makes the next tick due `delay` from now.
    pub fn reset_after(&mut self, delay: Duration) {
        self.set(self.sleep.shard().now().checked_add(delay));
    }

    /// Makes the next tick due at `deadline`.
    pub fn reset_at(&mut self, deadline: Instant) {
        self.set(Some(deadline));
    }

    fn set(&mut self, due: Option<Instant>) {
        self.due = due;
        self.sleep.move_to(self.sleep.shard().ticks().deadline_of(due));
    }

    /// When the next tick is due, exactly; None if that is beyond what an [`Instant`] can hold.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.due
    }

    /// The time from one tick to the next.
    #[must_use]
    pub fn period(&self) -> Duration {
        self.period
    }

    /// What happens when ticks are missed; by default [`MissedTick::Burst`].
    #[must_use]
    pub fn missed_tick(&self) -> MissedTick {
        self.missed
    }

    /// Says what happens when ticks are missed.
    pub fn set_missed_tick(&mut self, missed: MissedTick) {
        self.missed = missed;
    }
}

/// Ticks without end, but that an error is followed by None once.
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
