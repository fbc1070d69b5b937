//! What can go wrong, giving back what was to be scheduled.

use super::Task;
use alloc::string::String;
use core::fmt;
use core::time::Duration;
use std::io;
use std::sync::{Mutex, PoisonError};

/// Why nothing was scheduled. Gives the task back: [`into_task`](Self::into_task).
///
/// ```
/// use std::time::Duration;
/// use tickwheel::{ScheduleErrorKind, Timer};
///
/// let timer = Timer::builder().max_pending(1).build()?;
/// timer.schedule(Duration::from_secs(1), || println!("first"))?;
/// let error = timer.schedule(Duration::from_secs(1), || println!("second")).unwrap_err();
/// assert_eq!(error.kind(), ScheduleErrorKind::Full);
/// assert_eq!(error.to_string(), "the timer has as many timeouts pending as it may have");
/// error.into_task()(); // run it now, say
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ScheduleError<F = Task> {
    kind: ScheduleErrorKind,
    /// Whether or not a task can be shared between threads, an error should be.
    task: Mutex<F>,
}

/// Why nothing was scheduled, or a future could not wait until its time had come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ScheduleErrorKind {
    /// The timer was stopped.
    Stopped,
    /// As many timeouts are pending as may be: see
    /// [`max_pending`](crate::TimerBuilder::max_pending). Also if there are 2^32 - 2 in one shard.
    Full,
    /// The worker thread could not be started. The next attempt tries again.
    Worker(io::ErrorKind),
}

impl<F> ScheduleError<F> {
    pub(super) fn new(kind: ScheduleErrorKind, task: F) -> Self {
        Self { kind, task: Mutex::new(task) }
    }

    /// Why nothing was scheduled.
    #[must_use]
    pub fn kind(&self) -> ScheduleErrorKind {
        self.kind
    }

    /// The task that was to be scheduled.
    pub fn into_task(self) -> F {
        self.task.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl core::error::Error for ScheduleErrorKind {}

impl fmt::Display for ScheduleErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped => f.write_str("the timer was stopped"),
            Self::Full => f.write_str("the timer has as many timeouts pending as it may have"),
            Self::Worker(kind) => {
                write!(f, "the timer's worker thread could not be started: {kind}")
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

/// Why there is no such timer, from [`TimerBuilder::build`](crate::TimerBuilder::build).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildError {
    /// A tick is from 1 microsecond to 1 hour long.
    Tick(Duration),
    /// At least one timeout must be allowed to be pending.
    MaxPending,
    /// There are from 1 to 1024 shards.
    Shards(usize),
    /// A thread's name has no zero byte.
    ThreadName(String),
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tick(tick) => {
                write!(f, "a tick is from 1 microsecond to 1 hour long, not {tick:?}")
            }
            Self::MaxPending => f.write_str("at least 1 timeout must be allowed to be pending"),
            Self::Shards(shards) => write!(f, "there are from 1 to 1024 shards, not {shards}"),
            Self::ThreadName(name) => write!(f, "a thread's name has no zero byte: {name:?}"),
        }
    }
}

impl core::error::Error for BuildError {}

/// Why the timer was not stopped: [`Timer::stop`](crate::Timer::stop) was called from inside one of
/// its tasks, which it would have to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StopError;

impl fmt::Display for StopError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a timer cannot be stopped from inside one of its own tasks")
    }
}

impl core::error::Error for StopError {}
