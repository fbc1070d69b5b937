//! `Player`: a trace under several wheels at once, event by event.

use super::follow::State;
use super::turning::{Seen, Turning};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Instant;
use tickwheel::Mode;
use tickwheel_cli::study::{Kind, Lateness, Planner};
use tickwheel_cli::tick::{NEVER, Tick};
use tickwheel_cli::trace::{Gaps, Operation, TraceError};

/// What a [`Player`] plays.
pub(super) type Operations = Box<dyn Iterator<Item = Result<Operation, TraceError>>>;

pub(super) struct Player {
    pub(super) wheels: Vec<Turning>,
    pub(super) tick: Tick,
    pub(super) planner: Planner,
    /// How late by the tick all that was scheduled is.
    pub(super) lateness: Lateness,
    /// What was applied last, the latest in front.
    pub(super) recent: VecDeque<Applied>,
    operations: Operations,
    /// Of operations that a thread reads.
    pub(super) state: Option<Arc<State>>,
    next: Option<Operation>,
    now: u64,
}

/// An operation that was applied.
#[derive(Clone, Copy, Debug)]
pub(super) struct Applied {
    pub(super) operation: Operation,
    /// Whether its timeout was pending.
    pub(super) found: bool,
    /// The place of its timeout in the plan.
    pub(super) place: u32,
}

/// What happened at a tick: an operation, or, if there was none, one wheel or more woke up.
#[derive(Debug)]
pub(super) struct Event {
    pub(super) tick: u64,
    pub(super) operation: Option<Applied>,
    pub(super) changes: Vec<Change>,
}

/// A wheel before and after something happened.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) mode: Mode,
    pub(super) before: Seen,
    pub(super) after: Seen,
}

impl Player {
    pub(super) fn new(
        mut operations: Operations,
        modes: &[Mode],
        tick: Tick,
    ) -> Result<Self, TraceError> {
        let next = operations.next().transpose()?;
        let mut player = Self { next, ..Self::empty(operations, modes, tick) };
        // A trace may begin long after its time 0.
        player.rest_at(player.next.map_or(0, |next| tick.present(next.time_ms)));
        Ok(player)
    }

    /// Returns a player of operations that are still to come.
    pub(super) fn empty(operations: Operations, modes: &[Mode], tick: Tick) -> Self {
        let wheels = modes.iter().map(|&mode| Turning::new(mode)).collect();
        let planner = Planner::new(tick);
        let (lateness, recent) = Default::default();
        let (state, next) = (None, None);
        Self { wheels, tick, planner, lateness, recent, operations, state, next, now: 0 }
    }

    /// Whether the next operation is not read yet, so that nobody knows what comes before it.
    pub(super) fn is_waiting(&self) -> bool {
        let is_over = |state: &Arc<State>| state.is_over.load(Ordering::Relaxed);
        self.next.is_none() && !self.state.as_ref().is_none_or(is_over)
    }

    /// What the trace lacks as far as it was read, and the time at which it ends.
    pub(super) fn known(&self) -> (Gaps, Option<u64>) {
        self.state.as_ref().map_or_else(Default::default, |state| {
            *state.known.lock().unwrap_or_else(PoisonError::into_inner)
        })
    }

    /// Reads the next operation, if it is there.
    pub(super) fn read(&mut self) -> Result<(), TraceError> {
        if self.next.is_none() {
            self.next = self.operations.next().transpose()?;
        }
        Ok(())
    }

    pub(super) fn now(&self) -> u64 {
        self.now
    }

    /// The present, in nanoseconds of the trace.
    pub(super) fn now_ns(&self) -> f64 {
        self.now as f64 * self.tick.length().as_nanos() as f64
    }

    /// The tick of the next event; None when the trace is over and nothing is pending.
    pub(super) fn next_event(&self) -> Option<u64> {
        let operation = self.next.map(|next| self.tick.present(next.time_ms));
        let wakes = self.wheels.iter().filter_map(Turning::next_wake);
        wakes.chain(operation).min().filter(|&tick| tick < NEVER)
    }

    /// Lets the next event happen, and returns it.
    pub(super) fn step(&mut self) -> Result<Option<Event>, TraceError> {
        let before: Vec<_> = self.wheels.iter().map(Turning::see).collect();
        let Some((tick, operation)) = self.advance()? else { return Ok(None) };
        let pairs = self.wheels.iter().zip(before);
        let changes = pairs
            .map(|(wheel, before)| Change { mode: wheel.mode(), before, after: wheel.see() })
            .collect();
        Ok(Some(Event { tick, operation, changes }))
    }

    /// Lets everything happen that happens up to tick `to`, or until `deadline`. Returns the number
    /// of operations.
    pub(super) fn play(&mut self, to: u64, deadline: Instant) -> Result<u64, TraceError> {
        const EVENTS_A_LOOK: u64 = 64;
        // At the last tick all would be due that is never reached.
        let to = to.min(NEVER - 1);
        let mut operations = 0;
        for number in 1.. {
            self.read()?;
            if self.is_waiting() {
                break;
            }
            if self.next_event().is_none_or(|next| to < next) {
                self.rest_at(to);
                break;
            }
            let happened = self.advance()?;
            operations += u64::from(happened.is_some_and(|(_, operation)| operation.is_some()));
            if number % EVENTS_A_LOOK == 0 && deadline <= Instant::now() {
                break;
            }
        }
        Ok(operations)
    }

    /// Lets everything happen up to the last operation that there is so far, or until `deadline`.
    /// What the program did after it is not known yet. Returns the number of operations.
    pub(super) fn catch_up(&mut self, deadline: Instant) -> Result<u64, TraceError> {
        let mut operations = 0;
        while Instant::now() < deadline {
            self.read()?;
            let Some(next) = self.next else {
                if let (false, (_, Some(end_ms))) = (self.is_waiting(), self.known()) {
                    self.play(self.tick.present(end_ms), deadline)?;
                }
                break;
            };
            operations += self.play(self.tick.present(next.time_ms), deadline)?;
        }
        Ok(operations)
    }

    /// Lets the next event happen. At one tick, what is due comes before operations.
    fn advance(&mut self) -> Result<Option<(u64, Option<Applied>)>, TraceError> {
        self.read()?;
        let Some(tick) = self.next_event().filter(|_| !self.is_waiting()) else { return Ok(None) };
        let is_wake = self.wheels.iter().any(|wheel| wheel.next_wake() == Some(tick));
        self.rest_at(tick);
        if is_wake {
            return Ok(Some((tick, None)));
        }
        let following = self.operations.next().transpose()?;
        let Some(operation) = std::mem::replace(&mut self.next, following) else { return Ok(None) };
        if let Some(delay_ms) = operation.action.delay_ms() {
            let due_ms = operation.time_ms.saturating_add(delay_ms);
            self.lateness.record(due_ms, self.tick);
        }
        let mut applied = Applied { operation, found: false, place: 0 };
        for call in self.planner.calls(&operation) {
            applied.place = call.place;
            applied.found |= matches!(call.kind, Kind::Reschedule | Kind::Cancel);
            self.wheels.iter_mut().for_each(|wheel| wheel.run.make(&call));
        }
        self.recent.truncate(MOST_RECENT - 1);
        self.recent.push_front(applied);
        Ok(Some((tick, Some(applied))))
    }

    /// Drives all wheels to tick `now`, up to which only they have something to do.
    fn rest_at(&mut self, now: u64) {
        self.now = now.max(self.now);
        for wheel in &mut self.wheels {
            wheel.run.come_to(now);
        }
    }
}

/// As many operations are kept to be shown.
const MOST_RECENT: usize = 100;
