//! Timeouts that fire again and again.

use super::RepeatingTask;
use super::shard::{Entry, Shard};
use super::timeout::Status;
use crate::Key;
use crate::clock::Ticks;
use crate::sync::{Mutex, lock};
use alloc::sync::Arc;
use core::fmt;
use core::ops::ControlFlow;
use core::time::Duration;
use std::time::Instant;

/// What a repeating timeout of fixed rate does when it could not run in time: a run is missed if
/// the task was still running, or waiting for the worker, when the next was due as well.
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
    /// Runs as often as was missed, at once: as many runs as periods have passed.
    #[default]
    Burst,
    /// Begins anew: the next run is one period from now.
    Delay,
    /// Leaves out what was missed: the next run is at the next multiple of the period.
    Skip,
}

/// When a repeating timeout fires again.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cadence {
    /// So long after it was due.
    Rate(Duration, MissedTick),
    /// So long after it ended.
    Delay(Duration),
}

/// A timeout that fires again and again: in the wheel while it waits, with its runner while it
/// runs, and its handle has it too.
pub(crate) struct Repeating {
    cadence: Cadence,
    /// Empty while it runs, and once it ended. Never locked while another lock is taken.
    task: Mutex<Option<RepeatingTask>>,
    /// Locked inside the shard's lock; nothing is locked inside this one.
    state: Mutex<State>,
}

#[derive(Clone, Copy, Debug)]
struct State {
    phase: Phase,
    /// When the present or next run is or was due, exactly; None if that is beyond all instants.
    due: Option<Instant>,
    /// The same in ticks.
    deadline: u64,
    /// It was rescheduled during its run: `deadline` is that of the next.
    moved: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// In the wheel.
    Waiting(Key),
    /// Out of the wheel, to be run.
    Due,
    Running,
    Ended(Status),
}

/// How a run ended.
pub(super) type Outcome = Option<ControlFlow<()>>;

impl Repeating {
    /// Not yet in a wheel.
    pub(super) fn new(
        cadence: Cadence,
        due: Option<Instant>,
        deadline: u64,
        task: RepeatingTask,
    ) -> Self {
        Self {
            cadence,
            task: Mutex::new(Some(task)),
            state: Mutex::new(State { phase: Phase::Due, due, deadline, moved: false }),
        }
    }

    /// It is in the wheel now. Under the shard's lock, as all that follows.
    pub(super) fn waits(&self, key: Key) {
        lock(&self.state).phase = Phase::Waiting(key);
    }

    /// It is out of the wheel, to be run.
    pub(super) fn is_due(&self) {
        lock(&self.state).phase = Phase::Due;
    }

    /// It is out of the wheel, as the timer was stopped.
    pub(super) fn is_stopped(&self) {
        lock(&self.state).phase = Phase::Ended(Status::Stopped);
    }

    pub(super) fn take_task(&self) -> Option<RepeatingTask> {
        lock(&self.task).take()
    }

    pub(super) fn status(&self) -> Status {
        match lock(&self.state).phase {
            Phase::Waiting(_) | Phase::Due | Phase::Running => Status::Pending,
            Phase::Ended(status) => status,
        }
    }

    pub(super) fn deadline(&self) -> u64 {
        lock(&self.state).deadline
    }

    /// Ends it, and returns whether it had not ended. If it is running, its task is dropped when
    /// that is over, otherwise now.
    pub(super) fn cancel(&self, shard: &Shard) -> bool {
        let mut shard_state = shard.lock();
        let mut state = lock(&self.state);
        let entry = match state.phase {
            Phase::Waiting(key) => shard_state.wheel().cancel(key),
            Phase::Due | Phase::Running => None,
            Phase::Ended(_) => return false,
        };
        state.phase = Phase::Ended(Status::Cancelled);
        shard_state.count_cancelled();
        drop(state);
        drop(shard_state);
        drop(entry);
        shard.give_back();
        // While it runs its runner has it.
        drop(self.take_task());
        true
    }

    /// Moves the next run, and with it all that follow.
    pub(super) fn reschedule(&self, shard: &Shard, due: Option<Instant>, deadline: u64) -> bool {
        let mut shard_state = shard.lock();
        let mut state = lock(&self.state);
        match state.phase {
            Phase::Waiting(key) => {
                if shard_state.is_stopped() || !shard_state.wheel().reschedule(key, deadline) {
                    return false;
                }
            }
            Phase::Due | Phase::Running => state.moved = true,
            Phase::Ended(_) => return false,
        }
        (state.due, state.deadline) = (due, deadline);
        let is_running = state.moved;
        drop(state);
        if !is_running {
            shard.release(shard_state, deadline);
        }
        true
    }

    /// Runs the task once, unless it was cancelled meanwhile. What it left behind, if the timer was
    /// stopped meanwhile.
    pub(super) fn run(self: &Arc<Self>, shard: &Shard) -> Option<RepeatingTask> {
        let mut task = {
            let mut state = lock(&self.state);
            if state.phase != Phase::Due {
                return None;
            }
            state.phase = Phase::Running;
            drop(state);
            self.take_task()?
        };
        let outcome = shard.hub.guarded(&mut task);
        *lock(&self.task) = Some(task);
        self.end_run(shard, outcome)
    }

    /// Puts it back into the wheel after a run, unless it ended. What it left behind, if that was
    /// because the timer was stopped.
    pub(super) fn end_run(
        self: &Arc<Self>,
        shard: &Shard,
        outcome: Outcome,
    ) -> Option<RepeatingTask> {
        let hub = &shard.hub;
        let now = hub.clock.now();
        let mut shard_state = shard.lock();
        let mut state = lock(&self.state);
        // By being cancelled during the run.
        let has_ended = matches!(state.phase, Phase::Ended(_));
        let end = match outcome {
            Some(ControlFlow::Continue(())) if !has_ended => {
                if !state.moved {
                    state.due = self.cadence.next(state.due, now, &hub.ticks);
                    state.deadline = hub.ticks.deadline_of(state.due);
                }
                state.moved = false;
                if !shard_state.is_stopped() {
                    let deadline = state.deadline;
                    let entry = Entry::Repeating(Arc::clone(self));
                    state.phase = Phase::Waiting(shard_state.wheel().schedule(deadline, entry));
                    drop(state);
                    shard.release(shard_state, deadline);
                    return None;
                }
                Status::Stopped
            }
            Some(ControlFlow::Continue(())) => Status::Cancelled,
            Some(ControlFlow::Break(())) => Status::Fired,
            None => Status::Panicked,
        };
        if !has_ended {
            state.phase = Phase::Ended(end);
        }
        drop(state);
        drop(shard_state);
        let task = self.take_task();
        if !has_ended {
            shard.give_back();
            if end == Status::Stopped {
                return task;
            }
        }
        hub.guarded(|| drop(task));
        None
    }
}

impl fmt::Debug for Repeating {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Repeating").field("cadence", &self.cadence).finish_non_exhaustive()
    }
}

impl Cadence {
    /// When a timeout is due next that was due at `due` and whose run has ended `now`.
    pub(crate) fn next(self, due: Option<Instant>, now: Instant, ticks: &Ticks) -> Option<Instant> {
        let (period, missed) = match self {
            Self::Rate(period, missed) => (period, missed),
            Self::Delay(delay) => return now.checked_add(delay),
        };
        let next = due?.checked_add(period)?;
        // What is due in the tick that has begun fires at its end: it is not missed yet.
        let tick = ticks.instant(ticks.present(now)).unwrap_or(now);
        if tick <= next {
            return Some(next);
        }
        match missed {
            MissedTick::Burst => Some(next),
            MissedTick::Delay => now.checked_add(period),
            MissedTick::Skip => {
                let behind = tick.saturating_duration_since(next).as_nanos();
                let over = behind % period.as_nanos().max(1);
                let over = Duration::from_nanos(u64::try_from(over).unwrap_or(u64::MAX));
                if over.is_zero() { Some(tick) } else { tick.checked_add(period - over) }
            }
        }
    }
}
