//! All are scheduled; then all fire, or all are cancelled, or their bytes are counted.

use super::LEAST;
use crate::allocator;
use crate::case::Sample;
use crate::log::{Fault, Faults, Log, deadline, value};
use crate::random::{Delays, MINUTE};
use crate::subject::{Setup, Subject};
use cpu_time::ThreadTime;

/// All fire. One pass to warm up, and as many more as make up for few timeouts. Each `size` delays
/// are those of a subject, and the subjects take turns: a clock takes longer than a few timeouts.
pub(super) fn fire<S: Subject>(longest: u64, size: usize, delays: &[u64]) -> Sample {
    let setup = Setup::new(longest, size);
    let mut all: Vec<_> =
        delays.chunks(size).map(|delays| Batch::<S>::new(&setup, delays)).collect();
    let mut faults = Faults::default();
    let (mut schedule, mut fire) = (0.0, 0.0);
    let passes = (LEAST / delays.len()).clamp(1, MOST_PASSES);
    for pass in 0..=passes {
        all.iter_mut().for_each(Batch::prepare);
        let started = ThreadTime::now();
        all.iter_mut().for_each(Batch::schedule);
        let scheduled = ThreadTime::now();
        for one in &mut all {
            one.now = one.subject.drive(one.now, &mut one.log);
            if S::IS_NEW {
                (one.subject, one.now) = (S::new(&setup), 0);
            }
        }
        let fired = ThreadTime::now();
        for one in &mut all {
            faults.judge_all(&one.log, &mut one.pending);
            faults.judge_rest(&one.pending);
        }
        if 0 < pass {
            schedule += scheduled.duration_since(started).as_nanos() as f64;
            fire += fired.duration_since(scheduled).as_nanos() as f64;
        }
    }
    let each = (passes * delays.len()) as f64;
    let (schedule, fire) = (schedule / each, fire / each);
    let values = [("schedule + fire", schedule + fire), ("schedule", schedule), ("fire", fire)];
    Sample::of(faults, &values)
}

/// A subject, and what it is asked for.
struct Batch<'a, S> {
    subject: S,
    delays: &'a [u64],
    pending: Vec<u64>,
    log: Log,
    now: u64,
}

impl<'a, S: Subject> Batch<'a, S> {
    fn new(setup: &Setup, delays: &'a [u64]) -> Self {
        let log = Log::with_capacity(delays.len());
        let pending = Vec::with_capacity(delays.len());
        Self { subject: S::new(setup), delays, pending, log, now: 0 }
    }

    /// What each pass begins with.
    fn prepare(&mut self) {
        let values = (0..).zip(self.delays).map(|(id, &delay)| value(self.now + delay, id));
        self.pending.clear();
        self.pending.extend(values);
        self.log.clear();
    }

    fn schedule(&mut self) {
        for (&delay, &value) in self.delays.iter().zip(&self.pending) {
            self.subject.schedule_for_good(self.now + delay, value);
        }
    }
}

/// All are cancelled, in random order: those of one subject after those of another, if there are
/// so few of each that a clock takes longer.
pub(super) fn cancel<S: Subject>(size: usize) -> Sample {
    let delays = Delays::uniform(MINUTE);
    let count = size.max(TOGETHER);
    let values: Vec<_> =
        (0..).zip(delays.many(count)).map(|(id, delay)| value(1 + delay, id)).collect();
    let setup = Setup::new(delays.longest, size);
    let mut subjects: Vec<_> = values.chunks(size).map(|_| S::new(&setup)).collect();
    let mut faults = Faults::default();
    let mut keys = Vec::with_capacity(count);
    let mut shuffled = Vec::with_capacity(count);
    let (mut schedule, mut cancel) = (0.0, 0.0);
    let passes = (LEAST / count).max(1);
    for pass in 0..=passes {
        let started = ThreadTime::now();
        for (subject, values) in subjects.iter_mut().zip(values.chunks(size)) {
            keys.extend(values.iter().map(|&it| subject.schedule(deadline(it), it)));
        }
        let scheduled = started.elapsed();

        shuffled.extend(keys.drain(..).zip(values.iter().copied()));
        let mut rng = fastrand::Rng::with_seed(2);
        shuffled.chunks_mut(size).for_each(|those| rng.shuffle(those));
        let mut wrong = 0;
        let mut shuffled = shuffled.drain(..);
        let started = ThreadTime::now();
        for subject in &mut subjects {
            for (key, value) in shuffled.by_ref().take(size) {
                wrong += u64::from(!subject.cancel(key, value));
            }
        }
        let cancelled = started.elapsed();

        faults.add(Fault::Wrong, wrong);
        if 0 < pass {
            schedule += scheduled.as_nanos() as f64;
            cancel += cancelled.as_nanos() as f64;
        }
    }
    let mut log = Log::default();
    subjects.iter_mut().for_each(|subject| _ = subject.drive(0, &mut log));
    // It was cancelled.
    faults.add(Fault::Duplicated, log.values.len() as u64);
    let each = (passes * count) as f64;
    Sample::of(faults, &[("cancel", cancel / each), ("schedule", schedule / each)])
}

/// The bytes that a timeout takes beyond its value.
pub(super) fn memory<S: Subject>(count: usize) -> Sample {
    let delays = Delays::uniform(MINUTE).many(count);
    let mut keys = Vec::with_capacity(count);
    let (mut subject, bytes) = allocator::counted(|| {
        let mut subject = S::new(&Setup::new(MINUTE, count));
        keys.extend((0..).zip(&delays).map(|(value, &delay)| subject.schedule(delay, value)));
        subject
    });
    keys.into_iter().for_each(|key| subject.retire(key));
    let [pending, peak] = bytes.map(|bytes| bytes as f64 / count as f64 - size_of::<u64>() as f64);
    Sample::of(Faults::default(), &[("pending", pending), ("peak", peak)])
}

/// A year goes by in each, and values hold deadlines of 34 years.
const MOST_PASSES: usize = 10;
/// Timeouts that are timed together at least.
pub(super) const TOGETHER: usize = 1_000;
