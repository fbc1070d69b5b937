//! `Work`: what a wheel does in a run, counted. It is the same on every machine, busy or not.

use super::plan::Plan;
use super::run::{Driver, Observer, Run};
use cpu_time::ThreadTime;
use std::time::Duration;
use tickwheel::{Expired, Key, Mode, Wheel};

/// What a wheel did in one run, and what it held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Work {
    pub(crate) wakeups: u64,
    pub(crate) fired: u64,
    /// The timeouts handed out, moved or looked at in vain, as `expire_bounded` counts them.
    pub(crate) units: u64,
    /// The most of them in one call.
    pub(crate) longest_call: u64,
    pub(crate) buckets_visited: u64,
    pub(crate) demotions: u64,
    pub(crate) rounds_waited: u64,
    /// How often a timeout was put into a bucket that is not in a cache.
    pub(crate) far: u64,
    /// The most bytes that the wheel held.
    pub(crate) memory: u64,
    /// The most timeouts that were pending at once.
    pub(crate) most_pending: u64,
    pub(crate) fired_in_span: u64,
    pub(crate) pending_at_end: u64,
    /// Timeouts that were handed out before their deadlines.
    pub(crate) early: u64,
    pub(crate) max_late_ticks: u64,
}

/// When a run is given up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Most {
    /// Of processor time.
    pub(super) time: Duration,
    /// Of bytes that the wheel holds.
    pub(super) memory: u64,
    /// Of what [`Work::counted_ns`] returns.
    pub(super) counted_ns: f64,
}

/// Why a run was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GivenUp {
    Time,
    Memory,
    Work,
}

/// Counts the work of `plan` in `mode`. Of a run that is given up, it is the work up to there.
pub(super) fn count(
    plan: &Plan,
    mode: Mode,
    driver: Driver,
    most: Most,
) -> (Work, Option<GivenUp>) {
    let counter = Counter {
        work: Work::default(),
        lines: vec![u64::MAX; LINES],
        most,
        operations: plan.counts.operations(),
        started: ThreadTime::now(),
        until_look: STEPS_PER_LOOK,
        next_look: 1,
    };
    let mut run = Run::new(plan, mode, driver, counter);
    let given_up = run.advance(usize::MAX).err();
    run.observer.look_at(&run.wheel);
    (run.observer.work, given_up)
}

/// Counts what a wheel does.
struct Counter {
    work: Work,
    /// A cache of buckets: the bucket that each line holds.
    lines: Vec<u64>,
    most: Most,
    operations: u64,
    started: ThreadTime,
    until_look: u32,
    /// The number of pending timeouts at which the memory is looked at again.
    next_look: usize,
}

impl Work {
    /// What the calls cost by this count, in nanoseconds, for so many operations on a wheel with so
    /// many buckets per level.
    pub(super) fn counted_ns(&self, operations: u64, buckets: usize) -> f64 {
        let parts = [
            (operations, OPERATION_NS),
            (self.fired, FIRED_NS),
            (self.units, UNIT_NS),
            (self.buckets_visited, VISIT_NS * (buckets as f64).powf(VISIT_POWER)),
            (self.wakeups, WAKE_NS),
            (self.far, FAR_NS),
        ];
        parts.iter().map(|&(count, ns)| count as f64 * ns).sum()
    }
}

impl Counter {
    /// Looks at what only the wheel as a whole can tell.
    fn look_at(&mut self, wheel: &Wheel<u32>) {
        let stats = wheel.stats();
        self.work.memory = self.work.memory.max(stats.memory as u64);
        self.work.buckets_visited = stats.buckets_visited;
        self.work.demotions = stats.demotions;
        self.work.rounds_waited = stats.rounds_waited;
    }

    #[cold]
    fn look_at_limits(&mut self, wheel: &Wheel<u32>) -> Result<(), GivenUp> {
        self.until_look = STEPS_PER_LOOK;
        if self.most.memory < self.work.memory {
            return Err(GivenUp::Memory);
        }
        if self.most.counted_ns < self.work.counted_ns(self.operations, wheel.mode().buckets()) {
            return Err(GivenUp::Work);
        }
        if self.most.time < self.started.elapsed() { Err(GivenUp::Time) } else { Ok(()) }
    }
}

impl Observer for Counter {
    type GivenUp = GivenUp;

    fn placed(&mut self, wheel: &Wheel<u32>, key: Key) {
        self.work.most_pending = self.work.most_pending.max(wheel.len() as u64);
        if self.next_look <= wheel.len() {
            self.look_at(wheel);
            self.next_look = wheel.len() + wheel.len().div_ceil(8);
        }
        let Some((level, bucket)) = wheel.bucket(key) else { return };
        let bucket = (level as u64) << 32 | bucket as u64;
        let line = &mut self.lines[(bucket.wrapping_mul(SPREAD) >> LINE_SHIFT) as usize];
        self.work.far += u64::from(*line != bucket);
        *line = bucket;
    }

    fn wakes(&mut self) {
        self.work.wakeups += 1;
    }

    fn worked(&mut self, now: u64, units: usize, expired: Option<&Expired<u32>>) {
        self.work.units += units as u64;
        self.work.longest_call = self.work.longest_call.max(units as u64);
        let Some(expired) = expired else { return };
        self.work.fired += 1;
        self.work.early += u64::from(now < expired.deadline);
        self.work.max_late_ticks =
            self.work.max_late_ticks.max(now.saturating_sub(expired.deadline));
    }

    fn ends(&mut self, wheel: &Wheel<u32>) {
        self.work.fired_in_span = self.work.fired;
        self.work.pending_at_end = wheel.len() as u64;
    }

    fn step(&mut self, wheel: &Wheel<u32>) -> Result<(), GivenUp> {
        self.until_look -= 1;
        if self.until_look != 0 {
            return Ok(());
        }
        self.look_at(wheel);
        self.look_at_limits(wheel)
    }
}

/// What each step costs on a common machine, in nanoseconds. These weights leave out what is hopeless
/// and choose the tick. They decide nothing between modes that cost about the same.
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

/// The clock of processor time takes a system call.
const STEPS_PER_LOOK: u32 = 4096;
