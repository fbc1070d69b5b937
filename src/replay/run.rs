//! `Run`: one wheel under a trace, and what it costs.

use super::tick::{NEVER, Tick};
use super::trace::{Action, Operation};
use crate::{Key, Mode, Wheel};
use alloc::vec::Vec;
use core::array;
use core::time::Duration;
use hdrhistogram::Histogram;
use serde::{Serialize, Serializer};
use std::collections::HashMap;
use std::time::Instant;

/// What one mode did with a trace, and what that cost.
///
/// `ops` is `scheduled` + `rescheduled` + `cancelled` + `late_cancels`.
///
/// Only calls of the wheel are timed, each for itself, and what reading the clock takes is measured
/// beforehand and subtracted. Three wheels of the mode do the same, call by call, and a call counts
/// with the middle one of its three times, so that what interrupts one of them does not show. A
/// machine that is busy all the time does. The length of a short call is as coarse as the steps of
/// the clock; the mean is not.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Figures {
    /// The mode.
    #[serde(serialize_with = "as_text")]
    pub mode: Mode,
    /// Operations.
    pub ops: u64,
    /// Operations that scheduled.
    pub scheduled: u64,
    /// Operations that rescheduled.
    pub rescheduled: u64,
    /// Operations that cancelled a timeout which was pending.
    pub cancelled: u64,
    /// Timeouts handed out up to the last operation, and before it.
    pub fired_in_span: u64,
    /// Timeouts pending after the last operation.
    pub live_at_end: u64,
    /// Timeouts handed out in all.
    pub fired_total: u64,
    /// Of those scheduled: of a key that was pending, whose timeout was cancelled for it.
    pub replaced: u64,
    /// Operations that would have cancelled a timeout, but it was gone.
    pub late_cancels: u64,
    /// Of those rescheduled: of a timeout that was gone, so that it was scheduled anew.
    pub late_reschedules: u64,
    /// Timeouts handed out before the time that the trace says.
    pub early: u64,
    /// How many ticks after the first one at which it could have been handed out the latest
    /// timeout was.
    pub max_late_ticks: u64,
    /// Mean cost of an operation, its share of expiring included.
    pub ns_per_op: f64,
    /// The longest call.
    pub max_call_ns: u64,
    /// Half of the calls were not longer.
    pub p50_ns: u64,
    /// 99 % of the calls were not longer.
    pub p99_ns: u64,
    /// 99.9 % of the calls were not longer.
    pub p999_ns: u64,
    /// Buckets taken apart or scanned.
    pub buckets_visited: u64,
    /// Timeouts moved to a finer level.
    pub demotions: u64,
    /// Timeouts that a visit to their bucket left waiting for a later round.
    pub rounds_waited: u64,
    /// The most bytes that the wheel held, by the most timeouts that it held. Looked at between
    /// batches, and when an eighth more timeouts are pending than ever.
    pub peak_bytes_per_timeout: f64,
    /// The most timeouts pending at once.
    pub peak_live: u64,
}

/// One mode being run.
pub(super) struct Run {
    /// They do the same, and so make the same calls.
    lanes: [Lane; 3],
    calls: Calls,
}

/// One wheel being run.
struct Lane {
    /// Each value is its key in the trace.
    wheel: Wheel<u32>,
    tick: Tick,
    /// What the trace says of each timeout in the wheel, by its key in the trace.
    pending: HashMap<u32, Pending>,
    /// How long each call took since the lanes were compared, the clock's share included.
    times: Vec<Duration>,
    counts: Counts,
    /// The number of pending timeouts at which the memory is looked at again.
    next_look: usize,
    peak_bytes: usize,
    peak_live: usize,
}

#[derive(Clone, Copy)]
struct Pending {
    key: Key,
    /// When it is due, of the trace's own accuracy.
    due_ms: u64,
}

#[derive(Default)]
struct Counts {
    scheduled: u64,
    rescheduled: u64,
    cancelled: u64,
    fired: u64,
    replaced: u64,
    late_cancels: u64,
    late_reschedules: u64,
    early: u64,
    max_late_ticks: u64,
}

impl Run {
    pub(super) fn new(mode: Mode, tick: Tick) -> Self {
        Self { lanes: array::from_fn(|_| Lane::new(mode, tick)), calls: Calls::new() }
    }

    /// Drives the wheels through the operations, which come after those they have seen.
    pub(super) fn apply(&mut self, operations: &[Operation]) {
        for lane in &mut self.lanes {
            lane.apply(operations);
        }
        self.calls.record(&mut self.lanes);
    }

    /// Drives the wheels on to the last timeout.
    pub(super) fn finish(mut self) -> Figures {
        let fired_in_span = self.lanes[0].counts.fired;
        let live_at_end = self.lanes[0].wheel.len() as u64;
        for lane in &mut self.lanes {
            lane.drive(NEVER - 1);
        }
        self.calls.record(&mut self.lanes);
        let [lane, ..] = self.lanes;
        let (counts, stats) = (lane.counts, lane.wheel.stats());
        let ops = counts.scheduled + counts.rescheduled + counts.cancelled + counts.late_cancels;
        Figures {
            mode: lane.wheel.mode(),
            ops,
            scheduled: counts.scheduled,
            rescheduled: counts.rescheduled,
            cancelled: counts.cancelled,
            fired_in_span,
            live_at_end,
            fired_total: counts.fired,
            replaced: counts.replaced,
            late_cancels: counts.late_cancels,
            late_reschedules: counts.late_reschedules,
            early: counts.early,
            max_late_ticks: counts.max_late_ticks,
            ns_per_op: hundredths(self.calls.total() / ops.max(1) as f64),
            max_call_ns: self.calls.longest,
            p50_ns: self.calls.quantile(0.5),
            p99_ns: self.calls.quantile(0.99),
            p999_ns: self.calls.quantile(0.999),
            buckets_visited: stats.buckets_visited,
            demotions: stats.demotions,
            rounds_waited: stats.rounds_waited,
            peak_bytes_per_timeout: hundredths(
                lane.peak_bytes as f64 / lane.peak_live.max(1) as f64,
            ),
            peak_live: lane.peak_live as u64,
        }
    }
}

impl Lane {
    fn new(mode: Mode, tick: Tick) -> Self {
        Self {
            wheel: Wheel::new(mode),
            tick,
            pending: HashMap::new(),
            times: Vec::new(),
            counts: Counts::default(),
            next_look: 1,
            peak_bytes: 0,
            peak_live: 0,
        }
    }

    fn apply(&mut self, operations: &[Operation]) {
        for operation in operations {
            let now = self.tick.present(operation.time_ms);
            self.drive(now);
            match operation.action {
                Action::Schedule { delay_ms } => self.schedule(operation, delay_ms, now),
                Action::Reschedule { delay_ms } => self.reschedule(operation, delay_ms, now),
                Action::Cancel => self.cancel(operation, now),
            }
            self.peak_live = self.peak_live.max(self.wheel.len());
            if self.next_look <= self.wheel.len() {
                self.look_at_memory();
                self.next_look = self.wheel.len() + self.wheel.len().div_ceil(8);
            }
        }
        self.look_at_memory();
    }

    /// Wakes the wheel up as often as it asks for up to tick `to`, and hands out what is due.
    fn drive(&mut self, to: u64) {
        while let Some(tick) = self.wheel.next_wake().filter(|&tick| tick <= to) {
            while let Some(expired) = timed(&mut self.times, || self.wheel.expire(tick)) {
                let pending =
                    self.pending.remove(&expired.value).expect("a timeout is handed out once");
                self.counts.fired += 1;
                if self.tick.begins_before(tick, pending.due_ms) {
                    self.counts.early += 1;
                }
                self.note_lateness(pending, tick);
            }
        }
    }

    fn schedule(&mut self, operation: &Operation, delay_ms: u64, now: u64) {
        self.counts.scheduled += 1;
        if let Some(pending) = self.pending.remove(&operation.key) {
            self.counts.replaced += 1;
            self.take(pending, now);
        }
        self.insert(operation, delay_ms);
    }

    fn reschedule(&mut self, operation: &Operation, delay_ms: u64, now: u64) {
        self.counts.rescheduled += 1;
        let Some(&pending) = self.pending.get(&operation.key) else {
            self.counts.late_reschedules += 1;
            return self.insert(operation, delay_ms);
        };
        self.note_lateness(pending, now);
        let due_ms = operation.time_ms.saturating_add(delay_ms);
        let deadline = self.tick.deadline(due_ms);
        let moved = timed(&mut self.times, || self.wheel.reschedule(pending.key, deadline));
        assert!(moved, "what was not handed out is in the wheel");
        self.pending.insert(operation.key, Pending { due_ms, ..pending });
    }

    fn cancel(&mut self, operation: &Operation, now: u64) {
        let Some(pending) = self.pending.remove(&operation.key) else {
            self.counts.late_cancels += 1;
            return;
        };
        self.counts.cancelled += 1;
        self.take(pending, now);
    }

    fn take(&mut self, pending: Pending, now: u64) {
        self.note_lateness(pending, now);
        let value = timed(&mut self.times, || self.wheel.cancel(pending.key));
        assert!(value.is_some(), "what was not handed out is in the wheel");
    }

    fn insert(&mut self, operation: &Operation, delay_ms: u64) {
        let due_ms = operation.time_ms.saturating_add(delay_ms);
        let deadline = self.tick.deadline(due_ms);
        let key = timed(&mut self.times, || self.wheel.schedule(deadline, operation.key));
        self.pending.insert(operation.key, Pending { key, due_ms });
    }

    /// Notes how late a timeout is that leaves its place in the wheel at tick `now`.
    fn note_lateness(&mut self, pending: Pending, now: u64) {
        let late = now.saturating_sub(self.tick.deadline(pending.due_ms));
        self.counts.max_late_ticks = self.counts.max_late_ticks.max(late);
    }

    fn look_at_memory(&mut self) {
        self.peak_bytes = self.peak_bytes.max(self.wheel.stats().memory);
    }
}

/// How long the calls of a mode took.
struct Calls {
    /// In nanoseconds, the clock's share subtracted.
    histogram: Histogram<u64>,
    number: u64,
    /// The clock's share included.
    total: Duration,
    longest: u64,
    /// What one measurement adds to what it measures, in nanoseconds.
    clock_cost: f64,
}

impl Calls {
    fn new() -> Self {
        let longest = Duration::from_secs(3600).as_nanos() as u64;
        let histogram = Histogram::new_with_bounds(1, longest, 3).expect("these bounds are sound");
        Self { histogram, number: 0, total: Duration::ZERO, longest: 0, clock_cost: clock_cost() }
    }

    /// Records the middle time of each call, and forgets the times.
    fn record(&mut self, lanes: &mut [Lane; 3]) {
        let [a, b, c] = lanes;
        assert!(a.times.len() == b.times.len() && b.times.len() == c.times.len());
        for ((a, b), c) in a.times.drain(..).zip(b.times.drain(..)).zip(c.times.drain(..)) {
            let time = a.max(b).min(a.min(b).max(c));
            let ns = (time.as_nanos() as f64 - self.clock_cost).max(0.0).round() as u64;
            self.number += 1;
            self.total += time;
            self.longest = self.longest.max(ns);
            self.histogram.saturating_record(ns);
        }
    }

    /// In nanoseconds, without the clock's share.
    fn total(&self) -> f64 {
        (self.total.as_nanos() as f64 - self.number as f64 * self.clock_cost).max(0.0)
    }

    fn quantile(&self, quantile: f64) -> u64 {
        self.histogram.value_at_quantile(quantile).min(self.longest)
    }
}

#[inline]
fn timed<R>(times: &mut Vec<Duration>, call: impl FnOnce() -> R) -> R {
    let start = Instant::now();
    let result = call();
    times.push(start.elapsed());
    result
}

/// What one measurement adds to what it measures, in nanoseconds: the least mean of measuring
/// nothing, as whatever else the machine does can only make it longer.
fn clock_cost() -> f64 {
    const ROUNDS: u32 = 64;
    const MEASUREMENTS: u32 = 256;
    let round = |_| (0..MEASUREMENTS).map(|_| Instant::now().elapsed()).sum::<Duration>();
    let least = (0..ROUNDS).map(round).min().unwrap_or_default();
    least.as_nanos() as f64 / f64::from(MEASUREMENTS)
}

fn as_text<S: Serializer>(mode: &Mode, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(mode)
}

fn hundredths(number: f64) -> f64 {
    (number * 100.0).round() / 100.0
}
