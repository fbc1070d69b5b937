//! `Plan`: a trace at one tick, as the calls of a wheel.

use crate::replay::{Action, NEVER, Operation, Tick};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Duration;

/// What a program does to its wheel at one tick, worked out beforehand: with so little work beside
/// the wheel's, what a plan costs is what the wheel costs.
///
/// Whether an operation finds its timeout pending depends on the tick and not on the mode, because
/// every mode hands out a timeout at its deadline.
pub(super) struct Plan {
    pub(super) tick: Tick,
    pub(super) calls: Vec<Call>,
    /// How many places there are for the keys of timeouts.
    pub(super) places: usize,
    pub(super) lateness: Lateness,
}

/// An operation on a wheel that was driven to tick `now`.
pub(super) struct Call {
    pub(super) now: u64,
    pub(super) deadline: u64,
    /// Where the key of the timeout is kept.
    pub(super) place: u32,
    pub(super) kind: Kind,
}

pub(super) enum Kind {
    Schedule,
    Reschedule,
    Cancel,
}

/// How long after they were due timeouts are handed out, by the times of the trace.
#[derive(Default)]
pub(super) struct Lateness {
    pub(super) fired: u64,
    sum_ns: u128,
    most_ns: u128,
}

#[derive(Clone, Copy)]
struct Pending {
    place: u32,
    /// None if nothing is pending at this place.
    due: Option<Due>,
}

#[derive(Clone, Copy)]
struct Due {
    ms: u64,
    deadline: u64,
}

impl Plan {
    pub(super) fn new(operations: &[Operation], tick: Tick) -> Self {
        let mut plan = Self { tick, calls: Vec::new(), places: 0, lateness: Lateness::default() };
        plan.calls.reserve(operations.len());
        let mut pending = HashMap::new();
        for operation in operations {
            plan.add(operation, &mut pending);
        }
        for due in pending.into_values().filter_map(|pending| pending.due) {
            if due.deadline < NEVER {
                plan.lateness.record(due, tick);
            }
        }
        plan.calls.shrink_to_fit();
        plan
    }

    fn add(&mut self, operation: &Operation, pending: &mut HashMap<u32, Pending>) {
        let now = self.tick.present(operation.time_ms);
        let at = match pending.entry(operation.key) {
            Entry::Occupied(at) => at.into_mut(),
            Entry::Vacant(at) => {
                let place = self.places as u32;
                self.places += 1;
                at.insert(Pending { place, due: None })
            }
        };
        if let Some(due) = at.due.filter(|due| due.deadline <= now) {
            self.lateness.record(due, self.tick);
            at.due = None;
        }
        let (is_pending, place) = (at.due.is_some(), at.place);
        at.due = operation.action.delay_ms().map(|delay_ms| {
            let ms = operation.time_ms.saturating_add(delay_ms);
            Due { ms, deadline: self.tick.deadline(ms) }
        });
        let deadline = at.due.map_or(0, |due| due.deadline);
        let mut call = |kind| self.calls.push(Call { now, deadline, place, kind });
        match (operation.action, is_pending) {
            (Action::Schedule { .. }, true) => {
                call(Kind::Cancel);
                call(Kind::Schedule);
            }
            (Action::Reschedule { .. }, true) => call(Kind::Reschedule),
            (Action::Schedule { .. } | Action::Reschedule { .. }, false) => call(Kind::Schedule),
            (Action::Cancel, true) => call(Kind::Cancel),
            // The timeout fired before: a program finds that out without its wheel.
            (Action::Cancel, false) => {}
        }
    }
}

impl Lateness {
    fn record(&mut self, due: Due, tick: Tick) {
        let late = u128::from(due.deadline) * tick.length().as_nanos();
        let late = late.saturating_sub(u128::from(due.ms) * 1_000_000);
        self.fired += 1;
        self.sum_ns += late;
        self.most_ns = self.most_ns.max(late);
    }

    pub(super) fn mean(&self) -> Duration {
        nanoseconds(self.sum_ns / u128::from(self.fired.max(1)))
    }

    pub(super) fn most(&self) -> Duration {
        nanoseconds(self.most_ns)
    }
}

/// A tick is an hour at most, so no lateness saturates.
fn nanoseconds(number: u128) -> Duration {
    Duration::from_nanos(number.try_into().unwrap_or(u64::MAX))
}
