//! Errors, which give the task back.

use alloc::string::String;
use core::fmt;
use core::time::Duration;
use std::io;
use std::sync::{Mutex, PoisonError};

/// Says why a task was not scheduled, and gives it back: [`into_task`](Self::into_task).
///
/// ```
/// use std::time::Duration;
/// use tickwheel::{ScheduleErrorKind, Timer};
///
/// let timer = Timer::builder().max_pending(1).build()?;
/// timer.schedule(Duration::from_secs(1), || println!("first"))?;
/// let error = timer.schedule(Duration::from_secs(1), || println!("second")).unwrap_err();
/// assert_eq!(error.kind(), ScheduleErrorKind::Full);
/// assert_eq!(error.to_string(), "the timer has as many timeouts pending as its limit allows");
/// error.into_task()(); // run it now, say
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ScheduleError<F> {
    kind: ScheduleErrorKind,
    /// Never locked: it lets threads share the error, whether or not they can share the task.
    task: Mutex<F>,
}

/// Says why a task was not scheduled, or why a future could not wait until its time had come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ScheduleErrorKind {
    /// The timer was stopped.
    Stopped,
    /// As many timeouts are pending as [`max_pending`](crate::TimerBuilder::max_pending) allows, or
    /// 2^32 - 2 in one shard.
    Full,
    /// The timer could not start its worker thread. The next call tries again.
    Worker(io::ErrorKind),
    /// A call that blocks could wait for ever: inside a task on the timer's worker, for example.
    Deadlock,
}

impl<F> ScheduleError<F> {
    pub(super) fn new(kind: ScheduleErrorKind, task: F) -> Self {
        Self { kind, task: Mutex::new(task) }
    }

    /// Returns why the task was not scheduled.
    #[must_use]
    pub fn kind(&self) -> ScheduleErrorKind {
        self.kind
    }

    /// Returns the task, or the value of [`schedule_value`](crate::Timer::schedule_value).
    pub fn into_task(self) -> F {
        self.task.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl core::error::Error for ScheduleErrorKind {}

impl fmt::Display for ScheduleErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped => f.write_str("the timer was stopped"),
            Self::Full => f.write_str("the timer has as many timeouts pending as its limit allows"),
            Self::Worker(kind) => {
                write!(f, "the timer could not start its worker thread: {kind}")
            }
            Self::Deadlock => {
                f.write_str("on this thread, waiting for the timer could be for ever")
            }
        }
    }
}

impl<F> fmt::Display for ScheduleError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)
    }
}

impl<F> fmt::Debug for ScheduleError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScheduleError").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl<F> core::error::Error for ScheduleError<F> {}

/// Says why a timer cannot be built, from [`TimerBuilder::build`](crate::TimerBuilder::build).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildError {
    /// The tick is not from 1 microsecond to 1 hour long.
    Tick(Duration),
    /// The limit allows no pending timeout. It must allow at least one.
    MaxPending,
    /// The number of shards is not from 1 to 1024.
    Shards(usize),
    /// The thread's name has a zero byte.
    ThreadName(String),
    /// The thread that writes the recording could not be started.
    Recorder(io::ErrorKind),
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tick(tick) => {
                write!(f, "the tick must be from 1 microsecond to 1 hour long, and is {tick:?}")
            }
            Self::MaxPending => f.write_str("max_pending must be at least 1, and is 0"),
            Self::Shards(shards) => {
                write!(f, "the number of shards must be from 1 to 1024, and is {shards}")
            }
            Self::ThreadName(name) => {
                write!(f, "the thread's name must not have a zero byte, and is {name:?}")
            }
            Self::Recorder(kind) => {
                write!(f, "the thread that writes the recording could not be started: {kind}")
            }
        }
    }
}

impl core::error::Error for BuildError {}

/// Says that [`Timer::stop`](crate::Timer::stop) or
/// [`Timeout::cancel_and_wait`](crate::Timeout::cancel_and_wait) did nothing, because the call
/// could have waited for itself: inside a task of that timer, for example. The table at
/// [`Timer`](crate::Timer) has all cases. On the thread of a runtime, take
/// [`cancel_and_wait_async`](crate::Timeout::cancel_and_wait_async).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StopError;

impl fmt::Display for StopError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nothing was done: on this thread, waiting for the timer could be for ever")
    }
}

impl core::error::Error for StopError {}
