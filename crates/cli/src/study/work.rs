//! `Figures`: what a wheel does in a run, counted. It is the same on every machine, busy or not.

use super::limits::Limit;
use super::plan::{Counts, Plan};
use super::run::{Driver, Observer, Run};
use cpu_time::ThreadTime;
use serde::Serialize;
use std::time::Duration;
use tickwheel::{Expired, Key, Mode, Wheel};

/// What a configuration does, counted. The figures are the same in every run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Figures {
    /// Operations.
    pub ops: u64,
    /// The operations by what they do.
    #[serde(flatten)]
    pub counts: Counts,
    /// Timeouts handed out up to the last operation, and before it; up to the end of the recording,
    /// if the trace says when that was.
    pub fired_in_span: u64,
    /// Timeouts pending after the last operation, or at the end of the recording.
    pub live_at_end: u64,
    /// Timeouts handed out in all.
    pub fired_total: u64,
    /// Timeouts handed out before their deadlines.
    pub early: u64,
    /// How many ticks after its deadline the latest timeout was handed out.
    pub max_late_ticks: u64,
    /// How late timeouts fired by the tick, in the mean, in nanoseconds.
    pub mean_lateness_ns: u64,
    /// How late the latest timeout fired by the tick, in nanoseconds.
    pub max_lateness_ns: u64,
    /// How often the wheel was woken up.
    pub wakeups: u64,
    /// Timeouts handed out, moved, or looked at in vain, as `expire_bounded` counts them.
    pub work: u64,
    /// The most of this work in one call of `Wheel::expire`. A `Timer` caps its calls.
    pub longest_call: u64,
    /// Buckets taken apart or scanned.
    pub buckets_visited: u64,
    /// Timeouts moved to a finer level.
    pub demotions: u64,
    /// Timeouts that a visit to their bucket left waiting for a later round.
    pub rounds_waited: u64,
    /// How often a timeout was put into a bucket that was in no cache, by a model of one.
    pub far_reads: u64,
    /// The most bytes that the wheel held.
    pub memory_bytes: u64,
    /// The most timeouts pending at once.
    pub peak_live: u64,
    /// The score by the counted work alone, in nanoseconds per operation. Infinite, and null as
    /// JSON, if it was stopped.
    pub counted_score: f64,
}

/// Counts the work of `plan` in `mode`. Of a run that is stopped, it is the work up to there.
///
/// The wheel may hold `most_memory` bytes. `most_work` is the most that [`Figures::counted_ns`] may
/// return, and the limit that this is.
pub(super) fn count(
    plan: &Plan,
    mode: Mode,
    most_memory: u64,
    most_work: Option<(f64, Limit)>,
) -> (Figures, Option<Limit>) {
    let counter = Counter {
        figures: Figures {
            ops: plan.counts.operations(),
            counts: plan.counts,
            mean_lateness_ns: plan.lateness.mean().as_nanos() as u64,
            max_lateness_ns: plan.lateness.most().as_nanos() as u64,
            ..Figures::default()
        },
        lines: vec![u64::MAX; LINES],
        most_memory,
        most_work,
        started: ThreadTime::now(),
        until_look: STEPS_PER_LOOK,
        next_look: 1,
    };
    // A timer takes the same steps in shorter calls. The last step of each may exceed the cap, and
    // the wheel does not say by how much.
    let mut run = Run::new(mode, Driver::Wheel, plan.places, counter);
    let done = run.advance(plan, 0..usize::MAX);
    run.observer.look_at(&run.wheel);
    // The last steps, or all of a short run, are fewer than those between two looks.
    let within = done.and_then(|()| run.observer.look_at_limits(&run.wheel));
    (run.observer.figures, within.err())
}

/// Counts what a wheel does.
struct Counter {
    figures: Figures,
    /// A cache of buckets: the bucket that each line holds.
    lines: Vec<u64>,
    most_memory: u64,
    most_work: Option<(f64, Limit)>,
    started: ThreadTime,
    until_look: u32,
    /// The number of pending timeouts at which the memory is looked at again.
    next_look: usize,
}

impl Figures {
    /// What the calls cost by this count, in nanoseconds, on a wheel with so many buckets per
    /// level.
    pub(super) fn counted_ns(&self, buckets: usize) -> f64 {
        let parts = [
            (self.ops, OPERATION_NS),
            (self.fired_total, FIRED_NS),
            (self.work, UNIT_NS),
            (self.buckets_visited, VISIT_NS * (buckets as f64).powf(VISIT_POWER)),
            (self.wakeups, WAKE_NS),
            (self.far_reads, FAR_NS),
        ];
        parts.iter().map(|&(count, ns)| count as f64 * ns).sum()
    }
}

impl Counter {
    /// Looks at what only the wheel as a whole can tell.
    fn look_at(&mut self, wheel: &Wheel<u32>) {
        let stats = wheel.stats();
        self.figures.memory_bytes = self.figures.memory_bytes.max(stats.memory as u64);
        self.figures.buckets_visited = stats.buckets_visited;
        self.figures.demotions = stats.demotions;
        self.figures.rounds_waited = stats.rounds_waited;
    }

    #[cold]
    fn look_at_limits(&mut self, wheel: &Wheel<u32>) -> Result<(), Limit> {
        self.until_look = STEPS_PER_LOOK;
        let counted_ns = self.figures.counted_ns(wheel.mode().buckets());
        match self.most_work {
            _ if self.most_memory < self.figures.memory_bytes => {
                Err(Limit::Memory(self.most_memory))
            }
            Some((most_ns, limit)) if most_ns < counted_ns => Err(limit),
            _ if TO_COUNT < self.started.elapsed() => Err(Limit::Time(TO_COUNT)),
            _ => Ok(()),
        }
    }
}

impl Observer for Counter {
    type Stopped = Limit;

    fn placed(&mut self, wheel: &Wheel<u32>, key: Key) {
        self.figures.peak_live = self.figures.peak_live.max(wheel.len() as u64);
        if self.next_look <= wheel.len() {
            self.look_at(wheel);
            self.next_look = wheel.len() + wheel.len().div_ceil(8);
        }
        let Some((level, bucket)) = wheel.bucket(key) else { return };
        let bucket = (level as u64) << 32 | bucket as u64;
        let line = &mut self.lines[(bucket.wrapping_mul(SPREAD) >> LINE_SHIFT) as usize];
        self.figures.far_reads += u64::from(*line != bucket);
        *line = bucket;
    }

    fn wakes(&mut self) {
        self.figures.wakeups += 1;
    }

    fn worked(&mut self, now: u64, units: usize, expired: Option<&Expired<u32>>) {
        self.figures.work += units as u64;
        self.figures.longest_call = self.figures.longest_call.max(units as u64);
        let Some(expired) = expired else { return };
        self.figures.fired_total += 1;
        self.figures.early += u64::from(now < expired.deadline);
        self.figures.max_late_ticks =
            self.figures.max_late_ticks.max(now.saturating_sub(expired.deadline));
    }

    fn ends(&mut self, wheel: &Wheel<u32>) {
        self.figures.fired_in_span = self.figures.fired_total;
        self.figures.live_at_end = wheel.len() as u64;
    }

    fn step(&mut self, wheel: &Wheel<u32>) -> Result<(), Limit> {
        self.until_look -= 1;
        if self.until_look != 0 {
            return Ok(());
        }
        self.look_at(wheel);
        self.look_at_limits(wheel)
    }
}

/// What each step costs on a common machine, in nanoseconds. These weights leave out what is
/// hopeless and choose the tick. They decide nothing between modes that cost about the same.
const OPERATION_NS: f64 = 30.0;
const FIRED_NS: f64 = 20.0;
const UNIT_NS: f64 = 5.0;
const WAKE_NS: f64 = 20.0;
const FAR_NS: f64 = 20.0;
/// To find the next bucket takes the longer, the more there are.
const VISIT_NS: f64 = 50.0;
const VISIT_POWER: f64 = 0.25;

/// Buckets that a cache of the second level holds.
const LINES: usize = 1 << LINE_BITS;
const LINE_BITS: u32 = 13;
const LINE_SHIFT: u32 = u64::BITS - LINE_BITS;
/// Spreads the buckets over the lines: 2^64 by the golden ratio.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// The processor time that a mode may take.
const TO_COUNT: Duration = Duration::from_secs(10);

/// The clock of processor time takes a system call.
const STEPS_PER_LOOK: u32 = 4096;
