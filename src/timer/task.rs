//! Tasks, and what becomes of them.

use super::repeat::{Next, Run};
use alloc::boxed::Box;
use core::fmt;
use std::time::Instant;

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
#[derive(Debug)]
pub struct Unfired {
    pub(super) deadline: Option<Instant>,
    pub(super) task: Task,
}

impl Unfired {
    /// Returns the timeout's deadline, rounded up to the timer's tick. None means never.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Returns the task, which the timer does not run.
    #[must_use]
    pub fn into_task(self) -> Task {
        self.task
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
