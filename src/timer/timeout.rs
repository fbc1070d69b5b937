//! The handle to one timeout.

use super::repeat::{Phase, Repeating, State};
use super::shard::{self, Entry, Shard};
use super::task::{OnceTask, Status};
use crate::sync::{AtomicBool, AtomicU64, Ordering};
use crate::{Key, Wheel};
use alloc::sync::Arc;
use core::fmt;
use core::mem::replace;
use core::time::Duration;
use std::time::Instant;

/// The handle to one timeout of a [`Timer`](crate::Timer): cancels it, moves it, and tells what
/// became of it.
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
    pub(super) shard: Arc<Shard>,
    pub(super) kind: Kind,
}

pub(super) enum Kind {
    Once {
        key: Key,
        deadline: AtomicU64,
        /// Written under the shard's lock.
        cancelled: AtomicBool,
    },
    Repeating(Arc<Repeating>),
}

impl Kind {
    /// Puts a task into the wheel.
    pub(super) fn once(wheel: &mut Wheel<Entry>, deadline: u64, task: OnceTask) -> Self {
        let key = wheel.schedule(deadline, Entry::Once(task));
        let (deadline, cancelled) = (AtomicU64::new(deadline), AtomicBool::new(false));
        Self::Once { key, deadline, cancelled }
    }
}

impl Timeout {
    /// Cancels the timeout, and returns whether it was still pending.
    ///
    /// True means that this call ended the timeout: the task never runs, and has been dropped with
    /// all that it captured. False means that the timeout had ended before.
    ///
    /// A repeating timeout can be cancelled while its task runs, from inside the task too: that run
    /// goes on to its end, no other begins, and the task is dropped after it.
    ///
    /// # Panics
    ///
    /// If dropping a value that the task captured panics. The timeout is cancelled nevertheless.
    pub fn cancel(&self) -> bool {
        match &self.kind {
            Kind::Once { key, cancelled, .. } => {
                let entry = self.shard.cancel(*key, || cancelled.store(true, Ordering::Release));
                entry.is_some()
            }
            Kind::Repeating(repeating) => self.cancel_repeating(repeating),
        }
    }

    fn cancel_repeating(&self, repeating: &Repeating) -> bool {
        let mut shard_state = self.shard.lock();
        let mut state = repeating.lock();
        if self.status_of(&shard_state, &state) != Status::Pending {
            return false;
        }
        let phase = replace(&mut state.phase, Phase::Ended(Status::Cancelled));
        if let Phase::Waiting(key, _) = phase {
            // The handle has it too.
            drop(shard_state.wheel.cancel(key));
        }
        shard_state.cancelled += 1;
        drop(state);
        drop(shard_state);
        self.shard.hub.give_back();
        // With the task, unless it runs: then its runner drops it.
        drop(phase);
        true
    }

    /// Returns what became of a repeating timeout.
    fn status_of(&self, shard_state: &shard::State, state: &State) -> Status {
        match state.phase {
            Phase::Ended(status) => status,
            Phase::Waiting(key, _) if shard_state.wheel.get(key).is_some() => Status::Pending,
            // As any task that the executor has when the timer is stopped.
            _ if self.shard.hub.has_executor && shard_state.stopped => Status::Fired,
            _ => Status::Pending,
        }
    }

    /// Moves the deadline to `delay` from now, earlier or later than it was, and returns whether
    /// the timeout was still pending. Allocates nothing.
    ///
    /// Of a repeating timeout it moves the next run, and the runs after that follow it. While the
    /// task runs, the next run is the one after.
    pub fn reschedule(&self, delay: Duration) -> bool {
        self.move_to(self.shard.hub.clock.now().checked_add(delay))
    }

    /// Moves the deadline to `deadline`, and is like [`reschedule`](Self::reschedule) otherwise. A
    /// deadline in the past is due at once.
    pub fn reschedule_at(&self, deadline: Instant) -> bool {
        self.move_to(Some(deadline))
    }

    fn move_to(&self, due: Option<Instant>) -> bool {
        let tick = self.shard.hub.ticks.deadline_of(due);
        match &self.kind {
            Kind::Once { key, deadline, .. } => {
                self.shard.reschedule(*key, tick, || deadline.store(tick, Ordering::Relaxed))
            }
            Kind::Repeating(repeating) => self.move_repeating(repeating, due, tick),
        }
    }

    pub(super) fn move_repeating(
        &self,
        repeating: &Repeating,
        due: Option<Instant>,
        deadline: u64,
    ) -> bool {
        let mut shard_state = self.shard.lock();
        if shard_state.stopped {
            return false;
        }
        let mut state = repeating.lock();
        let is_waiting = match state.phase {
            Phase::Waiting(key, _) => shard_state.wheel.reschedule(key, deadline),
            Phase::Running => false,
            Phase::Ended(_) => return false,
        };
        state.moved = !is_waiting;
        (state.due, state.deadline) = (due, deadline);
        drop(state);
        if is_waiting {
            self.shard.release(shard_state, deadline);
        }
        true
    }

    /// Returns the deadline, past or to come: the instant asked for, rounded up to the timer's
    /// tick. Returns None if an [`Instant`] cannot hold it, so that it never comes.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.shard.hub.ticks.instant(match &self.kind {
            Kind::Once { deadline, .. } => deadline.load(Ordering::Relaxed),
            Kind::Repeating(repeating) => repeating.lock().deadline,
        })
    }

    /// Returns what became of the timeout.
    #[must_use]
    pub fn status(&self) -> Status {
        match &self.kind {
            Kind::Once { key, cancelled, .. } => match self.shard.status(*key) {
                // The thread that cancelled it wrote so before this one looked at the shard.
                Status::Fired if cancelled.load(Ordering::Acquire) => Status::Cancelled,
                status => status,
            },
            Kind::Repeating(repeating) => self.status_of(&self.shard.lock(), &repeating.lock()),
        }
    }

    /// Returns whether it still waits. A repeating timeout is pending while it runs, too.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        self.status() == Status::Pending
    }

    /// Returns whether it fired. Of a repeating timeout: whether its task ended it, by a panic too,
    /// or the executor had it when the timer was stopped.
    #[must_use]
    pub fn is_fired(&self) -> bool {
        matches!(self.status(), Status::Fired | Status::Panicked)
    }

    /// Returns whether [`cancel`](Self::cancel) ended it.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.status() == Status::Cancelled
    }

    /// Returns whether it was pending when the timer was stopped or dropped.
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
