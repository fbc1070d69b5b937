//! Tasks, and what becomes of them.

use super::inside;
use crate::platform::Instant;
use crate::ticks::{Ticks, duration_of};
use alloc::boxed::Box;
use core::fmt;
use core::mem::replace;
use core::time::Duration;

/// A task as the timer holds it.
#[non_exhaustive]
pub enum Task {
    /// The task of [`Timer::schedule`](crate::Timer::schedule) or
    /// [`Timer::schedule_at`](crate::Timer::schedule_at).
    Once(Box<dyn FnOnce() + Send>),
    /// The task of a repeating timeout: of [`Timer::schedule_with`](crate::Timer::schedule_with)
    /// and its special cases.
    Repeating(Box<dyn FnMut(&Run) -> Next + Send>),
}

pub(super) type OnceTask = Box<dyn FnOnce() + Send>;
pub(super) type RepeatingTask = Box<dyn FnMut(&Run) -> Next + Send>;

impl Task {
    /// Runs the task once, on the calling thread. A repeating task is told that this is its first
    /// run and that it had no deadline.
    pub fn run(self) {
        match self {
            Self::Once(task) => task(),
            Self::Repeating(mut task) => {
                // When it wants to run again makes no difference here.
                let _: Next = task(&Run::without_deadline());
            }
        }
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Once(_) => "Once",
            Self::Repeating(_) => "Repeating",
        })
    }
}

/// A timeout that was pending when its timer was stopped, from
/// [`Timer::stop`](crate::Timer::stop).
///
/// To drop it counts as inside a task of its timer: a value that the task captured may wait for
/// what the same thread drops next.
#[derive(Debug)]
pub struct Unfired {
    pub(super) deadline: Option<Instant>,
    pub(super) task: Task,
    /// The timer's number.
    pub(super) timer: u64,
}

impl Unfired {
    /// Returns the timeout's deadline, rounded up to the timer's tick. If it had passed when the
    /// timeout was scheduled or moved, it may be a later one, which had passed by then, too. None
    /// means never.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Returns the task, which the timer does not run.
    #[must_use]
    pub fn into_task(mut self) -> Task {
        self.take_task()
    }

    /// Leaves a task that captures nothing.
    fn take_task(&mut self) -> Task {
        replace(&mut self.task, Task::Once(Box::new(|| {})))
    }
}

impl Drop for Unfired {
    fn drop(&mut self) {
        let _inside = inside::enter(self.timer);
        drop(self.take_task());
    }
}

/// What became of a timeout. Each timeout has exactly one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Status {
    /// The timeout waits. A repeating one is pending while it runs, too.
    Pending,
    /// The worker has run the task, or is about to, or has handed it to the executor. Of a
    /// repeating timeout: its task ended it, or the executor had it when the timer was stopped.
    Fired,
    /// [`Timeout::cancel`](crate::Timeout::cancel) ended it.
    Cancelled,
    /// It was pending when the timer was stopped or dropped.
    Stopped,
    /// The task of a repeating timeout panicked. It does not fire again.
    Panicked,
}

/// Says what a repeating timeout of fixed rate does about runs that it missed. A run is missed if
/// the task was still running, or waiting for the worker, when the run after it was due as well.
///
/// With a period of 100 ms, and a first run that lasts until 350 ms after the start:
///
/// | | the next runs are at |
/// |---|---|
/// | `Burst` | 350, 350, 400, 500 |
/// | `Delay` | 450, 550, 650 |
/// | `Skip` | 400, 500, 600 |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MissedTick {
    /// Makes up for missed runs at once: there are as many runs as periods have passed.
    #[default]
    Burst,
    /// Begins anew: the next run is one period from now.
    Delay,
    /// Leaves missed runs out: the next run is at the next multiple of the period, after now.
    Skip,
}

/// Says when a repeating timeout runs again: the answer of a task of
/// [`Timer::schedule_with`](crate::Timer::schedule_with).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Next {
    /// Never: this run was the last.
    Stop,
    /// This long after the end of this run. Zero counts as one tick, and a delay too long for
    /// [`Instant`] never fires.
    After(Duration),
    /// At this instant, or at once if it has passed.
    At(Instant),
    /// One period after this run was due, so that the rate does not drift. [`MissedTick`] says
    /// what happens if that has passed, too. Zero counts as one tick.
    Every(Duration, MissedTick),
}

/// One run of a repeating timeout, as its task sees it.
#[derive(Clone, Debug)]
pub struct Run {
    deadline: Option<Instant>,
    late: Duration,
    count: u64,
}

impl Run {
    pub(super) fn new(deadline: Option<Instant>, now: Instant, count: u64) -> Self {
        let late = deadline.map_or(Duration::ZERO, |due| now.saturating_duration_since(due));
        Self { deadline, late, count }
    }

    /// What [`Task::run`] tells a task.
    fn without_deadline() -> Self {
        Self { deadline: None, late: Duration::ZERO, count: 1 }
    }

    /// Returns when the run was due: the instant that was asked for, not rounded to the timer's
    /// tick. Returns None if no timer runs the task, but [`Task::run`](crate::Task::run).
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Returns how long after its deadline the run began, by the timer's clock.
    #[must_use]
    pub fn late(&self) -> Duration {
        self.late
    }

    /// Returns how many times the task ran, this run included: 1 in the first run.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }
}

impl MissedTick {
    /// Returns when a timeout is due next that was due at `due`, if that run has ended `now`, and
    /// how many runs it missed.
    pub(crate) fn next(
        self,
        due: Option<Instant>,
        period: Duration,
        now: Instant,
        ticks: &Ticks<Instant>,
    ) -> (Option<Instant>, u64) {
        let Some(next) = due.and_then(|due| due.checked_add(period)) else { return (None, 0) };
        // A run that is due within the tick that has begun comes at its end: the last is in time.
        let tick = ticks.instant(ticks.now(now)).unwrap_or(now);
        if tick < next {
            return (Some(next), 0);
        }
        let (behind, period_nanos) =
            (tick.saturating_duration_since(next).as_nanos(), period.as_nanos().max(1));
        let missed =
            u64::try_from(behind / period_nanos).map_or(u64::MAX, |more| more.saturating_add(1));
        match self {
            Self::Burst => (Some(next), 1),
            Self::Delay => (now.checked_add(period), missed),
            Self::Skip => {
                let left = duration_of(period_nanos - behind % period_nanos);
                (left.and_then(|left| tick.checked_add(left)), missed)
            }
        }
    }
}
