//! Ticks at a fixed rate.

use super::{Duration, Instant, MissedTickBehavior, Sleep, at_most_30_years, sleep_until};
use futures_core::Stream;
use futures_core::stream::FusedStream;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// Ticks now and then each `period`: [`tokio::time::interval`].
///
/// # Panics
///
/// As tokio's: if `period` is zero, outside of a runtime, or in one without timers.
#[track_caller]
pub fn interval(period: Duration) -> Interval {
    interval_at(Instant::now(), period)
}

/// Ticks at `start` and then each `period`: [`tokio::time::interval_at`].
///
/// # Panics
///
/// As tokio's: if `period` is zero, outside of a runtime, or in one without timers.
#[track_caller]
pub fn interval_at(start: Instant, period: Duration) -> Interval {
    assert!(!period.is_zero(), "`period` must be non-zero.");
    let missed = MissedTickBehavior::default();
    Interval { sleep: sleep_until(start), period: at_most_30_years(period), missed }
}

/// Ticks at a fixed rate: [`tokio::time::Interval`], from [`interval()`] and [`interval_at`].
#[derive(Debug)]
pub struct Interval {
    /// Until the next tick.
    sleep: Sleep,
    period: Duration,
    missed: MissedTickBehavior,
}

impl Interval {
    /// Waits for the next tick, and returns the instant at which it was due. Dropping the future
    /// before that loses no tick.
    pub async fn tick(&mut self) -> Instant {
        poll_fn(|context| self.poll_tick(context)).await
    }

    /// Polls for the next tick.
    pub fn poll_tick(&mut self, context: &mut Context<'_>) -> Poll<Instant> {
        ready!(self.sleep.poll_once(context));
        let due = self.sleep.deadline();
        let now = Instant::now();
        let next = if due + LATE < now { self.after_missed(due, now) } else { due + self.period };
        self.sleep.move_to(next);
        Poll::Ready(due)
    }

    /// Returns the next tick after one that was due at `due` and came as late as `now`.
    fn after_missed(&self, due: Instant, now: Instant) -> Instant {
        match self.missed {
            MissedTickBehavior::Delay => now + self.period,
            MissedTickBehavior::Skip => {
                let over = (now - due).as_nanos() % self.period.as_nanos();
                let over = u64::try_from(over)
                    .expect("too much time has elapsed since the interval was supposed to tick");
                now + (self.period - Duration::from_nanos(over))
            }
            MissedTickBehavior::Burst => due + self.period,
        }
    }

    /// Makes the next tick come a period from now.
    pub fn reset(&mut self) {
        self.reset_after(self.period);
    }

    /// Makes the next tick come at once.
    pub fn reset_immediately(&mut self) {
        self.reset_at(Instant::now());
    }

    /// Makes the next tick come `after` from now.
    pub fn reset_after(&mut self, after: Duration) {
        self.reset_at(Instant::now() + at_most_30_years(after));
    }

    /// Makes the next tick come at `deadline`.
    pub fn reset_at(&mut self, deadline: Instant) {
        self.sleep.move_to(deadline);
    }

    /// Returns what follows a tick that was missed.
    #[must_use]
    pub fn missed_tick_behavior(&self) -> MissedTickBehavior {
        self.missed
    }

    /// Sets what follows a tick that was missed.
    pub fn set_missed_tick_behavior(&mut self, behavior: MissedTickBehavior) {
        self.missed = behavior;
    }

    /// Returns the period.
    #[must_use]
    pub fn period(&self) -> Duration {
        self.period
    }
}

/// The ticks of an [`Interval`], without end: tokio-stream's `IntervalStream`.
#[derive(Debug)]
pub struct IntervalStream(Interval);

impl IntervalStream {
    /// Makes a stream of the ticks.
    #[must_use]
    pub fn new(interval: Interval) -> Self {
        Self(interval)
    }

    /// Returns the interval.
    pub fn into_inner(self) -> Interval {
        self.0
    }
}

impl Stream for IntervalStream {
    type Item = Instant;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Instant>> {
        self.0.poll_tick(context).map(Some)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (usize::MAX, None)
    }
}

impl FusedStream for IntervalStream {
    fn is_terminated(&self) -> bool {
        false
    }
}

impl AsRef<Interval> for IntervalStream {
    fn as_ref(&self) -> &Interval {
        &self.0
    }
}

impl AsMut<Interval> for IntervalStream {
    fn as_mut(&mut self) -> &mut Interval {
        &mut self.0
    }
}

/// A tick that is later than that was missed.
const LATE: Duration = Duration::from_millis(5);
