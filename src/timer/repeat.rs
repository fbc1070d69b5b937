//! Timeouts that fire again and again.

use super::task::{RepeatingTask, Status};
use crate::Key;
use crate::clock::Ticks;
use crate::sync::{Mutex, MutexGuard, lock};
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

/// When a repeating timeout fires again.
#[derive(Clone, Copy)]
pub(crate) enum Cadence {
    /// One period after it was due.
    Rate(Duration, MissedTick),
    /// One delay after it ended.
    Delay(Duration),
}

/// A timeout that fires again and again. The wheel has it while it waits, the runner while it runs,
/// and the handle all the time.
pub(crate) struct Repeating {
    cadence: Cadence,
    /// Locked inside the shard's lock, if both are. Nothing is locked inside this one.
    state: Mutex<State>,
}

pub(super) struct State {
    pub(super) phase: Phase,
    /// When the present or next run is or was due, exactly; None if an instant cannot hold it.
    pub(super) due: Option<Instant>,
    /// The same in ticks.
    pub(super) deadline: u64,
    /// The handle moved it during its run: `deadline` is that of the next.
    pub(super) moved: bool,
}

/// Changes under the shard's lock, but for the step to `Running`.
pub(super) enum Phase {
    /// In the wheel, or out of it, to run: then the key is stale.
    Waiting(Key, RepeatingTask),
    /// The runner has the task.
    Running,
    Ended(Status),
}

impl Repeating {
    /// Makes one that is not yet in a wheel, and has no task.
    pub(super) fn new(cadence: Cadence, due: Option<Instant>, deadline: u64) -> Self {
        let phase = Phase::Running;
        Self { cadence, state: Mutex::new(State { phase, due, deadline, moved: false }) }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Takes the task, unless the timeout was cancelled. Its next phase is `then`.
    pub(super) fn take_task(&self, then: Phase) -> Option<RepeatingTask> {
        let mut state = self.lock();
        match replace(&mut state.phase, then) {
            Phase::Waiting(_, task) => Some(task),
            phase => {
                state.phase = phase;
                None
            }
        }
    }

    /// Sets the deadline of the next run, after a run that ended `now`.
    pub(super) fn set_next(&self, state: &mut State, now: Instant, ticks: &Ticks<Instant>) {
        if !replace(&mut state.moved, false) {
            state.due = self.cadence.next(state.due, now, ticks);
            state.deadline = ticks.deadline_of(state.due);
        }
    }
}

impl Cadence {
    /// Returns when a timeout is due next that was due at `due` and whose run has ended `now`.
    pub(crate) fn next(
        self,
        due: Option<Instant>,
        now: Instant,
        ticks: &Ticks<Instant>,
    ) -> Option<Instant> {
        let (period, missed) = match self {
            Self::Rate(period, missed) => (period, missed),
            Self::Delay(delay) => return now.checked_add(delay),
        };
        let next = due?.checked_add(period)?;
        // A run that is due within the tick that has begun comes at its end: the last is in time.
        let tick = ticks.instant(ticks.now(now)).unwrap_or(now);
        if tick < next {
            return Some(next);
        }
        match missed {
            MissedTick::Burst => Some(next),
            MissedTick::Delay => now.checked_add(period),
            MissedTick::Skip => {
                let behind = tick.saturating_duration_since(next).as_nanos();
                let over = behind % period.as_nanos().max(1);
                let over = Duration::from_nanos(u64::try_from(over).unwrap_or(u64::MAX));
                tick.checked_add(period.saturating_sub(over))
            }
        }
    }
}
