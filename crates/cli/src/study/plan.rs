//! `Plan`: a trace at one tick, as the calls of a wheel. Nothing else interprets a trace.

use crate::tick::{NEVER, Tick};
use crate::trace::{Action, Operation};
use serde::Serialize;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Duration;

/// What a program does to its wheel at one tick, worked out beforehand: with so little work beside
/// the wheel's, what a plan costs is what the wheel costs.
///
/// Whether an operation finds its timeout pending depends on the tick and not on the mode, because
/// every mode hands out a timeout at its deadline.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) tick: Tick,
    pub(crate) calls: Vec<Call>,
    /// The number of keys, each of which has a place.
    pub(crate) places: usize,
    pub(crate) counts: Counts,
    pub(crate) lateness: Lateness,
    /// The tick at which the recording ended, if the trace says so.
    pub(crate) end: Option<u64>,
}

/// Makes the calls of a plan, operation by operation.
#[derive(Debug)]
pub struct Planner {
    tick: Tick,
    keys: HashMap<u32, Pending>,
    /// The places that ever were in use, and those of them that no key has any more.
    places: u32,
    free: Vec<u32>,
    pub counts: Counts,
    pub lateness: Lateness,
}

/// A call of a wheel that was driven to tick `now`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    pub now: u64,
    pub deadline: u64,
    /// Where the key of the timeout is kept.
    pub place: u32,
    pub kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Schedule,
    Reschedule,
    Cancel,
    /// The timeout fired before: a program finds that out without its wheel.
    Nothing,
}

/// The operations of a trace by what they do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Counts {
    /// Operations that scheduled.
    pub scheduled: u64,
    /// Operations that rescheduled.
    pub rescheduled: u64,
    /// Operations that cancelled a timeout which was pending.
    pub cancelled: u64,
    /// Of the operations that scheduled: those of a pending key, whose timeout was cancelled first.
    pub replaced: u64,
    /// Operations that found no timeout to cancel, because it was gone.
    pub late_cancels: u64,
    /// Of the operations that rescheduled: those that scheduled a timeout anew that was gone.
    pub late_reschedules: u64,
}

/// How long after they were due timeouts are handed out, by the times of the trace.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lateness {
    fired: u64,
    sum_ns: u128,
    most_ns: u128,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    place: u32,
    /// When the timeout at this place is due; None if nothing is pending there.
    due_ms: Option<u64>,
}

impl Plan {
    pub(crate) fn new(operations: &[Operation], tick: Tick, end_ms: Option<u64>) -> Self {
        let mut planner = Planner::new(tick);
        let mut calls = Vec::with_capacity(operations.len());
        operations.iter().for_each(|operation| calls.extend(planner.calls(operation)));
        calls.shrink_to_fit();
        let (places, counts) = (planner.places as usize, planner.counts);
        let end = end_ms.map(|ms| tick.present(ms));
        Self { tick, calls, places, counts, lateness: planner.finish(), end }
    }
}

impl Planner {
    pub fn new(tick: Tick) -> Self {
        let (counts, lateness) = (Counts::default(), Lateness::default());
        Self { tick, keys: HashMap::new(), places: 0, free: Vec::new(), counts, lateness }
    }

    /// The calls of the next operation: one, or two to replace a timeout.
    pub fn calls(&mut self, operation: &Operation) -> impl Iterator<Item = Call> + use<> {
        let now = self.tick.present(operation.time_ms);
        if FEWEST_KEYS <= self.keys.len() && self.keys.len() == self.keys.capacity() {
            self.forget(now);
        }
        let at = match self.keys.entry(operation.key) {
            Entry::Occupied(at) => at.into_mut(),
            Entry::Vacant(at) => {
                let place = self.free.pop().unwrap_or_else(|| {
                    self.places += 1;
                    self.places - 1
                });
                at.insert(Pending { place, due_ms: None })
            }
        };
        if let Some(ms) = at.due_ms.filter(|&ms| self.tick.deadline(ms) <= now) {
            self.lateness.record(ms, self.tick);
            at.due_ms = None;
        }
        let (is_pending, place) = (at.due_ms.is_some(), at.place);
        let delay_ms = operation.action.delay_ms();
        at.due_ms = delay_ms.map(|delay_ms| operation.time_ms.saturating_add(delay_ms));
        let deadline = at.due_ms.map_or(0, |ms| self.tick.deadline(ms));
        let kinds = self.counts.count(operation.action, is_pending);
        kinds.iter().map(move |&kind| Call { now, deadline, place, kind })
    }

    /// Forgets what is gone by tick `now`. It is called when so many keys are new as were left the
    /// last time, so that it costs each of them little.
    fn forget(&mut self, now: u64) {
        let Self { keys, free, lateness, tick, .. } = self;
        keys.retain(|_, pending| {
            let is_gone = pending.due_ms.is_none_or(|ms| tick.deadline(ms) <= now);
            if is_gone {
                free.push(pending.place);
                pending.due_ms.into_iter().for_each(|ms| lateness.record(ms, *tick));
            }
            !is_gone
        });
        keys.reserve(keys.len().max(FEWEST_KEYS));
    }

    /// Ends the trace: what is pending fires at its time.
    fn finish(self) -> Lateness {
        let Self { keys, mut lateness, tick, .. } = self;
        let due_ms = keys.into_values().filter_map(|pending| pending.due_ms);
        due_ms.filter(|&ms| tick.deadline(ms) < NEVER).for_each(|ms| lateness.record(ms, tick));
        lateness
    }
}

impl Counts {
    /// Counts an operation, and returns the calls that it makes.
    fn count(&mut self, action: Action, is_pending: bool) -> &'static [Kind] {
        let (found, gone) = (u64::from(is_pending), u64::from(!is_pending));
        let (calls, calls_when_gone): (&[Kind], &[Kind]) = match action {
            Action::Schedule { .. } => {
                self.scheduled += 1;
                self.replaced += found;
                (&[Kind::Cancel, Kind::Schedule], &[Kind::Schedule])
            }
            Action::Reschedule { .. } => {
                self.rescheduled += 1;
                self.late_reschedules += gone;
                (&[Kind::Reschedule], &[Kind::Schedule])
            }
            Action::Cancel => {
                self.cancelled += found;
                self.late_cancels += gone;
                (&[Kind::Cancel], &[Kind::Nothing])
            }
        };
        if is_pending { calls } else { calls_when_gone }
    }

    /// The timeouts that came to be.
    pub fn timeouts(&self) -> u64 {
        self.scheduled + self.late_reschedules
    }

    pub fn operations(&self) -> u64 {
        self.scheduled + self.rescheduled + self.cancelled + self.late_cancels
    }
}

impl Lateness {
    /// Notes a timeout that is due at `ms`.
    pub fn record(&mut self, ms: u64, tick: Tick) {
        let late = u128::from(tick.deadline(ms)) * tick.length().as_nanos();
        let late = late.saturating_sub(u128::from(ms) * 1_000_000);
        self.fired += 1;
        self.sum_ns += late;
        self.most_ns = self.most_ns.max(late);
    }

    pub fn mean(&self) -> Duration {
        nanoseconds(self.sum_ns / u128::from(self.fired.max(1)))
    }

    pub fn most(&self) -> Duration {
        nanoseconds(self.most_ns)
    }
}

/// A tick is an hour at most, so no lateness saturates.
fn nanoseconds(number: u128) -> Duration {
    Duration::from_nanos(number.try_into().unwrap_or(u64::MAX))
}

/// So many keys are kept without a look.
const FEWEST_KEYS: usize = 1 << 10;
