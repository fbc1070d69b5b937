//! The handle to one timeout.

use super::repeat::Repeating;
use super::shard::Shard;
use crate::Key;
use crate::sync::{AtomicBool, AtomicU64, Ordering};
use alloc::sync::Arc;
use core::fmt;
use core::time::Duration;
use std::time::Instant;

/// The handle to one timeout of a [`Timer`](crate::Timer): to cancel it, to move it, and to ask
/// what became of it.
///
/// Dropping the handle changes nothing: the task runs when it is due. The handle can outlive the
/// timer.
///
/// ```
/// use std::time::Duration;
/// use tickwheel::{ManualClock, Timer};
///
/// let clock = ManualClock::new();
/// let timer = Timer::builder().clock(clock.clone()).build()?;
/// let request = timer.schedule(Duration::from_secs(30), || println!("no answer"))?;
///
/// clock.advance(Duration::from_secs(20));
/// assert!(request.reschedule(Duration::from_secs(30))); // a sign of life
/// clock.advance(Duration::from_secs(20));
/// assert!(request.is_pending());
/// assert!(request.cancel()); // the answer
/// assert!(!request.cancel());
/// assert!(request.is_cancelled());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Timeout {
    shard: Arc<Shard>,
    kind: Kind,
}

enum Kind {
    Once {
        key: Key,
        deadline: AtomicU64,
        /// Written under the shard's lock.
        cancelled: AtomicBool,
    },
    Repeating(Arc<Repeating>),
}

/// What became of a timeout. It has exactly one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Status {
    /// It waits; a repeating one also while it runs.
    Pending,
    /// Its task was run, or is about to be, or was handed to the executor. A repeating one ended
    /// itself.
    Fired,
    /// It was cancelled.
    Cancelled,
    /// The timer was stopped or dropped before it was due.
    Stopped,
    /// A repeating one panicked, and does not fire again.
    Panicked,
}

impl Timeout {
    pub(super) fn once(shard: Arc<Shard>, key: Key, deadline: u64) -> Self {
        let (deadline, cancelled) = (AtomicU64::new(deadline), AtomicBool::new(false));
        Self { shard, kind: Kind::Once { key, deadline, cancelled } }
    }

    pub(super) fn repeating(shard: Arc<Shard>, repeating: Arc<Repeating>) -> Self {
        Self { shard, kind: Kind::Repeating(repeating) }
    }

    /// Takes the timeout back, and returns whether that was in time.
    ///
    /// True means that this call ended it: the task never runs, and it is dropped by now, with all
    /// that it captured. False means that it had its end before.
    ///
    /// A repeating timeout can be cancelled while its task runs, also from inside it: that run goes
    /// on to its end, no other follows, and the task is dropped after it.
    ///
    /// # Panics
    ///
    /// If dropping what the task captured does. It is cancelled nevertheless.
    pub fn cancel(&self) -> bool {
        match &self.kind {
            Kind::Once { key, cancelled, .. } => {
                let entry = self.shard.cancel(*key, || cancelled.store(true, Ordering::Release));
                entry.is_some()
            }
            Kind::Repeating(repeating) => repeating.cancel(&self.shard),
        }
    }

    /// Makes the timeout due `delay` from now instead, sooner or later than it was, and returns
    /// whether that was in time. Allocates nothing.
    ///
    /// For a repeating timeout it is the next run that is moved, and those that follow with it.
    /// While its task runs that is the run after.
    pub fn reschedule(&self, delay: Duration) -> bool {
        self.move_to(self.shard.hub.clock.now().checked_add(delay))
    }

    /// Like [`reschedule`](Self::reschedule), to an instant. One in the past is due at once.
    pub fn reschedule_at(&self, deadline: Instant) -> bool {
        self.move_to(Some(deadline))
    }

    fn move_to(&self, due: Option<Instant>) -> bool {
        let tick = self.shard.hub.ticks.deadline_of(due);
        match &self.kind {
            Kind::Once { key, deadline, .. } => {
                self.shard.reschedule(*key, tick, || deadline.store(tick, Ordering::Relaxed))
            }
            Kind::Repeating(repeating) => repeating.reschedule(&self.shard, due, tick),
        }
    }

    /// When it is due, or was: the instant asked for, rounded up to the timer's tick. None if that
    /// is more than an [`Instant`] can hold, and so never.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.shard.hub.ticks.instant(match &self.kind {
            Kind::Once { deadline, .. } => deadline.load(Ordering::Relaxed),
            Kind::Repeating(repeating) => repeating.deadline(),
        })
    }

    /// What became of it.
    #[must_use]
    pub fn status(&self) -> Status {
        match &self.kind {
            Kind::Once { key, cancelled, .. } => match self.shard.status(*key) {
                // Whoever cancelled it wrote so before the shard was looked at.
                Status::Fired if cancelled.load(Ordering::Acquire) => Status::Cancelled,
                status => status,
            },
            Kind::Repeating(repeating) => repeating.status(),
        }
    }

    /// Whether it still waits; a repeating one also while it runs.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        self.status() == Status::Pending
    }

    /// Whether it fired. A repeating one: whether its task ended it, also by a panic.
    #[must_use]
    pub fn is_fired(&self) -> bool {
        matches!(self.status(), Status::Fired | Status::Panicked)
    }

    /// Whether [`cancel`](Self::cancel) ended it.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.status() == Status::Cancelled
    }

    /// Whether it was pending when the timer was stopped or dropped.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.status() == Status::Stopped
    }
}

impl fmt::Debug for Timeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timeout")
            .field("status", &self.status())
            .field("deadline", &self.deadline())
            .finish_non_exhaustive()
    }
}
