//! Timeouts that fire again and again.

use super::task::{Next, RepeatingTask, Run, Status};
use crate::Key;
use crate::platform::Instant;
use crate::sync::{Condvar, Mutex, MutexGuard, Rank, lock, wait};
use crate::ticks::Ticks;
use core::mem::replace;
use core::ptr;

/// A timeout that fires again and again. The wheel has it while it waits, the runner while it runs,
/// and the handle all the time.
pub(crate) struct Repeating {
    state: Mutex<RepeatState>,
    /// Tells the threads that wait that no thread has the task any more.
    let_go: Condvar,
}

pub(super) struct RepeatState {
    pub(super) phase: Phase,
    /// When the present or next run is or was due, exactly; None if an instant cannot hold it.
    pub(super) due: Option<Instant>,
    /// The same in ticks.
    pub(super) deadline: u64,
    /// When the run after the present one is due, exactly and in ticks, if a handle moved it.
    pub(super) moved: Option<(Option<Instant>, u64)>,
    /// A thread has the task: to run it, or to drop it.
    pub(super) is_held: bool,
    /// The number of runs that began.
    runs: u64,
    /// When another run follows one that the executor left out.
    pub(super) again: Next,
}

/// Changes under the shard's lock, but for the step to `Running`.
pub(super) enum Phase {
    /// In the wheel, or out of it, to run: then the key is stale.
    Waiting(Key, RepeatingTask),
    /// The runner has the task.
    Running,
    /// It runs no more. The runner may still have the task: see `is_held`.
    Ended(Status),
}

impl Repeating {
    /// Makes one that is not yet in a wheel, and has no task.
    pub(super) fn new(due: Option<Instant>, deadline: u64, again: Next) -> Self {
        let (phase, moved, is_held, runs) = (Phase::Running, None, false, 0);
        let state = RepeatState { phase, due, deadline, moved, is_held, runs, again };
        Self { state: Mutex::new(Rank::Repeating, state), let_go: Condvar::new() }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, RepeatState> {
        lock(&self.state)
    }

    /// Takes the task for a run, unless the timeout was cancelled. The runner has it until
    /// [`let_go`](Self::let_go), or until it waits again.
    pub(super) fn take_to_run(&self) -> Option<RepeatingTask> {
        let mut state = self.lock();
        let task = state.take_task(Phase::Running)?;
        state.is_held = true;
        Some(task)
    }

    /// Takes the task because the timer stops, unless the timeout was cancelled.
    pub(super) fn take_unfired(&self) -> Option<RepeatingTask> {
        self.lock().take_task(Phase::Ended(Status::Stopped))
    }

    /// Begins a run at `now`.
    pub(super) fn begin_run(&self, now: Instant) -> Run {
        let mut state = self.lock();
        state.runs += 1;
        Run::new(state.due, now, state.runs)
    }

    /// Says to the threads that wait that the one that had the task has dropped it, or has given
    /// it back. [`Awaiting::wake`](super::awaiting::Awaiting::wake) says so to tasks of async code.
    pub(super) fn let_go(&self) {
        self.lock().is_held = false;
        self.let_go.notify_all();
    }

    /// What names its runs among those that tasks of async code wait for.
    pub(super) fn run(&self) -> u64 {
        ptr::from_ref(self).addr() as u64
    }

    /// Waits until no thread has the task of a timeout that has ended.
    pub(super) fn wait_for_end(&self) {
        let mut state = self.lock();
        while state.is_held {
            state = wait(&self.let_go, state);
        }
    }
}

impl RepeatState {
    fn take_task(&mut self, then: Phase) -> Option<RepeatingTask> {
        match replace(&mut self.phase, then) {
            Phase::Waiting(_, task) => Some(task),
            phase => {
                self.phase = phase;
                None
            }
        }
    }

    /// Returns the key with which it waits, or did until the worker took it out.
    pub(super) fn key(&self) -> Option<Key> {
        match self.phase {
            Phase::Waiting(key, _) => Some(key),
            Phase::Running | Phase::Ended(_) => None,
        }
    }

    /// Returns the deadline of the run that waits, or of the present one, unless a handle has moved
    /// the run after that.
    pub(super) fn next_deadline(&self) -> u64 {
        self.moved.map_or(self.deadline, |(_, deadline)| deadline)
    }

    /// Goes back into the wheel, as `key`.
    pub(super) fn waits(&mut self, key: Key, task: RepeatingTask) {
        (self.phase, self.is_held) = (Phase::Waiting(key, task), false);
    }

    /// Sets the deadline of the next run, after a run that ended `now`, and returns how many runs
    /// were missed.
    pub(super) fn set_next(&mut self, next: Next, now: Instant, ticks: &Ticks<Instant>) -> u64 {
        let (due, missed) = match next {
            Next::Stop => (None, 0),
            Next::After(delay) => (now.checked_add(ticks.not_zero(delay)), 0),
            Next::At(instant) => (Some(instant), 0),
            Next::Every(period, missed) => {
                missed.next(self.due, ticks.not_zero(period), now, ticks)
            }
        };
        self.again = match next {
            Next::At(instant) => Next::After(instant.saturating_duration_since(now)),
            next => next,
        };
        let chosen = (due, ticks.deadline_of(due));
        (self.due, self.deadline) = self.moved.take().unwrap_or(chosen);
        missed
    }
}
