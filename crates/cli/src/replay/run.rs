//! `Run`: one mode under a trace, and what it costs.

use super::limits::{Limit, Limits, Stopped};
use super::tick::{NEVER, Tick};
use super::trace::{Action, Operation};
use hdrhistogram::Histogram;
use serde::{Serialize, Serializer};
use std::array;
use std::collections::HashMap;
use std::fmt::Display;
use std::time::{Duration, Instant};
use tickwheel::{Key, Mode, Wheel};

/// What one mode did with a trace, and what that cost.
///
/// `ops` is `scheduled` + `rescheduled` + `cancelled` + `late_cancels`. The figures of a mode that
/// was stopped are those up to where it was stopped.
///
/// Only calls of the wheel are timed, each for itself, and what reading the clock takes is measured
/// beforehand and subtracted. Three wheels of the mode make the same calls: they are the
/// repetitions. A call that took one wheel over four times as long as the middle wheel was
/// interrupted, and counts as long as for the middle wheel. A machine that is busy all the time
/// still makes every call longer. The length of a short call is as coarse as the steps of the clock;
/// the mean is not.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Figures {
    /// The mode.
    #[serde(serialize_with = "as_text")]
    pub mode: Mode,
    /// Why the mode was stopped before the end; None if it came to the end.
    pub stopped: Option<Stopped>,
    /// Operations.
    pub ops: u64,
    /// Operations that scheduled.
    pub scheduled: u64,
    /// Operations that rescheduled.
    pub rescheduled: u64,
    /// Operations that cancelled a timeout which was pending.
    pub cancelled: u64,
    /// Timeouts handed out up to the last operation, and before it; up to the end of the recording,
    /// if the trace says when that was.
    pub fired_in_span: u64,
    /// Timeouts pending after the last operation, or at the end of the recording.
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
    /// Mean cost of an operation, its share of expiring included: that of the middle repetition.
    pub ns_per_op: f64,
    /// The mean cost of an operation in the cheapest repetition.
    pub least_ns_per_op: f64,
    /// The mean cost of an operation in the dearest repetition.
    pub most_ns_per_op: f64,
    /// The longest call. Of the three times of each call the middle one counts.
    pub max_call_ns: u64,
    /// Half of the calls were not longer.
    pub p50_ns: u64,
    /// 99 % of the calls were not longer.
    pub p99_ns: u64,
    /// 99.9 % of the calls were not longer.
    pub p999_ns: u64,
    /// The time that one call in 10 took at least, one in 100, and so on, as far as there are that
    /// many calls.
    #[serde(skip)]
    pub tail_ns: Vec<u64>,
    /// Buckets taken apart or scanned.
    pub buckets_visited: u64,
    /// Timeouts moved to a finer level.
    pub demotions: u64,
    /// Timeouts that a visit to their bucket left waiting for a later round.
    pub rounds_waited: u64,
    /// The most bytes that the wheel held, by the most timeouts that it held. Looked at every 4096
    /// calls, and when an eighth more timeouts are pending than ever.
    pub peak_bytes_per_timeout: f64,
    /// The most timeouts pending at once.
    pub peak_live: u64,
}

/// One mode being run.
pub(super) struct Run {
    /// The repetitions. They do the same, and so make the same calls.
    lanes: [Lane; 3],
    calls: Calls,
    /// How long this mode has been run, with what is not the wheels' own time.
    spent: Duration,
    /// The timeouts handed out in the trace's own span, and those pending at its end; None before
    /// its end.
    span: Option<(u64, u64)>,
}

/// A part of the trace that all modes go through before the next part begins.
#[derive(Clone, Copy)]
pub(super) enum Work<'a> {
    /// These operations.
    Operations(&'a [Operation]),
    /// What is due up to the end of the recording, at this time in ms.
    Until(u64),
    /// All timeouts that are left.
    Rest,
}

/// One wheel being run, and what the trace says of the timeouts in it.
struct Lane {
    /// Each value is its key in the trace.
    wheel: Wheel<u32>,
    tick: Tick,
    pending: HashMap<u32, Pending>,
    /// How long each call took since the lanes were compared, the clock's share included.
    times: Vec<Duration>,
    /// The sum of `times`.
    busy: Duration,
    /// The operations done of the part of the trace that is being run.
    done: usize,
    /// The tick to which the wheel is being driven, while more may be due at it.
    waking: Option<u64>,
    counts: Counts,
    /// The number of pending timeouts at which the memory is looked at again.
    next_look: usize,
    bytes: usize,
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

/// When a lane's turn is over.
#[derive(Clone, Copy)]
struct Turn {
    most_calls: usize,
    longest: Duration,
}

impl Run {
    pub(super) fn new(mode: Mode, tick: Tick) -> Self {
        Self {
            lanes: array::from_fn(|_| Lane::new(mode, tick)),
            calls: Calls::new(),
            spent: Duration::ZERO,
            span: None,
        }
    }

    /// Begins with the next part of the trace.
    pub(super) fn begin(&mut self, work: Work<'_>) {
        for lane in &mut self.lanes {
            lane.done = 0;
        }
        if matches!(work, Work::Rest) {
            self.span = Some(self.lanes[0].span());
        }
    }

    /// Goes on with `work` for one turn, and returns whether the work is done.
    ///
    /// A turn is short, so that the caller can compare modes in the middle of the work.
    pub(super) fn take_turn(&mut self, work: Work<'_>) -> bool {
        let started = Instant::now();
        let [first, others @ ..] = &mut self.lanes;
        let is_done = first.advance(work, FIRST_TURN);
        // The others go as far as the first.
        let most_calls = if is_done { usize::MAX } else { first.times.len() };
        for lane in others {
            lane.advance(work, Turn { most_calls, longest: Duration::MAX });
        }
        self.calls.record(&mut self.lanes);
        self.lanes[0].look_at_memory();
        self.spent += started.elapsed();
        is_done
    }

    /// Returns why the mode is to be stopped, if it is over a limit. `best` is the cheapest mode
    /// that has come at least as far, with its cost.
    pub(super) fn judge(&self, limits: &Limits, best: Option<(Mode, f64)>) -> Option<Stopped> {
        let memory = self.memory();
        let limit = match best {
            Some((than, cost))
                if Limits::GRACE < self.spent && f64::from(limits.slower) * cost < self.cost() =>
            {
                Limit::Slower { times: limits.slower, than }
            }
            _ if limits.time < self.spent => Limit::Time(limits.time),
            _ if limits.memory < memory => Limit::Memory(limits.memory),
            _ => return None,
        };
        Some(Stopped { limit, time: self.spent, memory })
    }

    pub(super) fn mode(&self) -> Mode {
        self.lanes[0].wheel.mode()
    }

    /// What the calls of the middle repetition cost so far, in nanoseconds.
    pub(super) fn cost(&self) -> f64 {
        self.calls.totals()[1]
    }

    /// The bytes that the wheels hold, and what is kept beside them.
    fn memory(&self) -> u64 {
        // A hash map is at most seven eighths full, and has a byte of its own for each place.
        let place = size_of::<(u32, Pending)>() + 1;
        let lane = &self.lanes[0];
        let bytes = lane.bytes + lane.pending.capacity() * 8 / 7 * place;
        (self.lanes.len() * bytes) as u64
    }

    /// Returns what the mode did; `stopped` says why it did no more.
    pub(super) fn finish(self, stopped: Option<Stopped>) -> Figures {
        let Self { lanes: [lane, ..], calls, span, .. } = self;
        let (fired_in_span, live_at_end) = span.unwrap_or_else(|| lane.span());
        let (ops, counts, stats) = (lane.operations(), &lane.counts, lane.wheel.stats());
        let [least_ns_per_op, ns_per_op, most_ns_per_op] =
            calls.totals().map(|total| hundredths(total / ops.max(1) as f64));
        Figures {
            mode: lane.wheel.mode(),
            stopped,
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
            ns_per_op,
            least_ns_per_op,
            most_ns_per_op,
            max_call_ns: calls.longest,
            p50_ns: calls.quantile(0.5),
            p99_ns: calls.quantile(0.99),
            p999_ns: calls.quantile(0.999),
            tail_ns: calls.tail(),
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
            busy: Duration::ZERO,
            done: 0,
            waking: None,
            counts: Counts::default(),
            next_look: 1,
            bytes: 0,
            peak_bytes: 0,
            peak_live: 0,
        }
    }

    /// Goes on with `work` until it is done or the turn is over, and returns whether it is done.
    fn advance(&mut self, work: Work<'_>, turn: Turn) -> bool {
        let operations = match work {
            Work::Operations(operations) => operations,
            Work::Until(end_ms) => return self.drive(self.tick.present(end_ms), turn),
            Work::Rest => return self.drive(NEVER - 1, turn),
        };
        while let Some(operation) = operations.get(self.done) {
            let now = self.tick.present(operation.time_ms);
            if !self.drive(now, turn) || self.is_over(turn) {
                return false;
            }
            match operation.action {
                Action::Schedule { delay_ms } => self.schedule(operation, delay_ms, now),
                Action::Reschedule { delay_ms } => self.reschedule(operation, delay_ms, now),
                Action::Cancel => self.cancel(operation, now),
            }
            self.done += 1;
            self.peak_live = self.peak_live.max(self.wheel.len());
            if self.next_look <= self.wheel.len() {
                self.look_at_memory();
                self.next_look = self.wheel.len() + self.wheel.len().div_ceil(8);
            }
        }
        true
    }

    /// Wakes the wheel up as often as it asks for up to tick `to`, and hands out what is due.
    /// Returns false if the turn is over before that.
    fn drive(&mut self, to: u64, turn: Turn) -> bool {
        while let Some(now) = self.waking.or_else(|| self.wheel.next_wake()) {
            if to < now {
                break;
            }
            if self.is_over(turn) {
                return false;
            }
            let expired = self.time(|wheel| wheel.expire(now));
            self.waking = expired.is_some().then_some(now);
            let Some(expired) = expired else { continue };
            let pending = self.pending.remove(&expired.value);
            let pending = pending.expect("a timeout is handed out once");
            self.counts.fired += 1;
            if self.tick.begins_before(now, pending.due_ms) {
                self.counts.early += 1;
            }
            self.note_lateness(pending, now);
        }
        true
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
        let moved = self.time(|wheel| wheel.reschedule(pending.key, deadline));
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
        let value = self.time(|wheel| wheel.cancel(pending.key));
        assert!(value.is_some(), "what was not handed out is in the wheel");
    }

    fn insert(&mut self, operation: &Operation, delay_ms: u64) {
        let due_ms = operation.time_ms.saturating_add(delay_ms);
        let deadline = self.tick.deadline(due_ms);
        let key = self.time(|wheel| wheel.schedule(deadline, operation.key));
        self.pending.insert(operation.key, Pending { key, due_ms });
    }

    #[inline]
    fn time<R>(&mut self, call: impl FnOnce(&mut Wheel<u32>) -> R) -> R {
        let start = Instant::now();
        let result = call(&mut self.wheel);
        let time = start.elapsed();
        self.times.push(time);
        self.busy += time;
        result
    }

    fn is_over(&self, turn: Turn) -> bool {
        turn.most_calls <= self.times.len() || turn.longest < self.busy
    }

    /// Notes how late a timeout is that leaves its place in the wheel at tick `now`.
    fn note_lateness(&mut self, pending: Pending, now: u64) {
        let late = now.saturating_sub(self.tick.deadline(pending.due_ms));
        self.counts.max_late_ticks = self.counts.max_late_ticks.max(late);
    }

    fn look_at_memory(&mut self) {
        self.bytes = self.wheel.stats().memory;
        self.peak_bytes = self.peak_bytes.max(self.bytes);
    }

    /// The timeouts handed out so far, and those that are pending.
    fn span(&self) -> (u64, u64) {
        (self.counts.fired, self.wheel.len() as u64)
    }

    fn operations(&self) -> u64 {
        let Counts { scheduled, rescheduled, cancelled, late_cancels, .. } = self.counts;
        scheduled + rescheduled + cancelled + late_cancels
    }
}

/// How long the calls of a mode took.
struct Calls {
    /// In nanoseconds, the clock's share subtracted.
    histogram: Histogram<u64>,
    number: u64,
    /// Of each wheel, the clock's share included.
    totals: [Duration; 3],
    longest: u64,
    /// What one measurement adds to what it measures, in nanoseconds.
    clock_cost: f64,
}

impl Calls {
    fn new() -> Self {
        let longest = Duration::from_secs(3600).as_nanos() as u64;
        let histogram = Histogram::new_with_bounds(1, longest, 3).expect("these bounds are sound");
        let totals = [Duration::ZERO; 3];
        Self { histogram, number: 0, totals, longest: 0, clock_cost: clock_cost() }
    }

    /// Records how long each call took, and forgets the times.
    fn record(&mut self, lanes: &mut [Lane; 3]) {
        let [first, second, third] = lanes.each_mut().map(|lane| {
            lane.busy = Duration::ZERO;
            &mut lane.times
        });
        assert!(first.len() == second.len() && second.len() == third.len());
        for ((a, b), c) in first.drain(..).zip(second.drain(..)).zip(third.drain(..)) {
            let middle = a.max(b).min(a.min(b).max(c));
            let ns = (middle.as_nanos() as f64 - self.clock_cost).max(0.0).round() as u64;
            self.number += 1;
            self.longest = self.longest.max(ns);
            self.histogram.saturating_record(ns);
            for (total, time) in self.totals.iter_mut().zip([a, b, c]) {
                *total += if INTERRUPTED * middle < time { middle } else { time };
            }
        }
    }

    /// What each wheel took for all calls, the least first, in nanoseconds without the clock's
    /// share.
    fn totals(&self) -> [f64; 3] {
        let clock = self.number as f64 * self.clock_cost;
        let mut totals = self.totals.map(|total| (total.as_nanos() as f64 - clock).max(0.0));
        totals.sort_by(f64::total_cmp);
        totals
    }

    /// The time that one call in 10 took at least, one in 100, and so on.
    fn tail(&self) -> Vec<u64> {
        let one_in = (1..).map(|power| 10_u64.pow(power)).take_while(|&calls| calls <= self.number);
        one_in.map(|calls| self.quantile(1.0 - 1.0 / calls as f64)).collect()
    }

    fn quantile(&self, quantile: f64) -> u64 {
        self.histogram.value_at_quantile(quantile).min(self.longest)
    }
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

pub(crate) fn as_text<S: Serializer>(
    text: &impl Display,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_str(text)
}

fn hundredths(number: f64) -> f64 {
    (number * 100.0).round() / 100.0
}

/// When the first lane's turn is over: a comparison of the lanes, and of the modes, is due.
const FIRST_TURN: Turn = Turn { most_calls: 4096, longest: Duration::from_millis(20) };

/// A call that took so many times what it took the middle wheel was interrupted.
const INTERRUPTED: u32 = 4;
