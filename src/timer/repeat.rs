//! Timeouts that fire again and again.

use super::hub::Hub;
use super::task::{RepeatingTask, Status};
use crate::Key;
use crate::sync::{Condvar, Mutex, MutexGuard, lock, wait};
use crate::ticks::Ticks;
use core::mem::replace;
use core::time::Duration;
use std::time::Instant;

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
    /// What [`Task::run`](crate::Task::run) tells a task.
    pub(super) fn without_deadline() -> Self {
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

/// A timeout that fires again and again. The wheel has it while it waits, the runner while it runs,
/// and the handle all the time.
pub(crate) struct Repeating {
    /// Locked inside the shard's lock, if both are. Nothing is locked inside this one.
    state: Mutex<State>,
    /// Tells the threads that wait that the runner has let go of the task.
    let_go: Condvar,
}

pub(super) struct State {
    pub(super) phase: Phase,
    /// When the present or next run is or was due, exactly; None if an instant cannot hold it.
    pub(super) due: Option<Instant>,
    /// The same in ticks.
    pub(super) deadline: u64,
    /// The handle moved it during its run: `deadline` is that of the next.
    pub(super) moved: bool,
    /// A runner has the task: to run it, or to drop it.
    is_held: bool,
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
        let (phase, moved, is_held, runs) = (Phase::Running, false, false, 0);
        let state = State { phase, due, deadline, moved, is_held, runs, again };
        Self { state: Mutex::new(state), let_go: Condvar::new() }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
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
        let deadline = state.due;
        let late = deadline.map_or(Duration::ZERO, |due| now.saturating_duration_since(due));
        Run { deadline, late, count: state.runs }
    }

    /// Says that the runner has dropped the task, or has given it back.
    pub(super) fn let_go(&self) {
        self.lock().is_held = false;
        self.let_go.notify_all();
    }

    /// Waits until no runner has the task of a timeout that has ended. In a process that was forked
    /// meanwhile there is no runner to wait for.
    pub(super) fn wait_for_end(&self, hub: &Hub) {
        let mut state = self.lock();
        while state.is_held && hub.is_here() {
            state = wait(&self.let_go, state);
        }
    }
}

impl State {
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
        if !replace(&mut self.moved, false) {
            (self.due, self.deadline) = (due, ticks.deadline_of(due));
        }
        missed
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
                let over = u64::try_from(behind % period_nanos).unwrap_or(u64::MAX);
                let left = period.saturating_sub(Duration::from_nanos(over));
                (tick.checked_add(left), missed)
            }
        }
    }
}
