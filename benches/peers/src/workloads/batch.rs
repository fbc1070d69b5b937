//! All are scheduled; then all fire, or all are cancelled, or their bytes are counted.

use super::LEAST;
use crate::allocator;
use crate::case::Sample;
use crate::log::{Fault, Faults, Log, deadline, value};
use crate::random::{Delays, MINUTE};
use crate::subject::{Setup, Subject};
use cpu_time::ThreadTime;

/// All fire. One pass to warm up, and as many more as make up for few timeouts.
pub(super) fn fire<S: Subject>(longest: u64, delays: &[u64]) -> Sample {
    let setup = Setup::new(longest, delays.len());
    let mut subject = S::new(&setup);
    let mut log = Log::with_capacity(delays.len());
    let mut pending = Vec::with_capacity(delays.len());
    let mut faults = Faults::default();
    let mut now = 0;
    let (mut schedule, mut fire) = (0.0, 0.0);
    let passes = (LEAST / delays.len()).clamp(1, MOST_PASSES);
    for pass in 0..=passes {
        pending.clear();
        pending.extend((0..).zip(delays).map(|(id, &delay)| value(now + delay, id)));
        log.clear();

        let started = ThreadTime::now();
        for (&delay, &value) in delays.iter().zip(&pending) {
            subject.schedule_for_good(now + delay, value);
        }
        let scheduled = ThreadTime::now();
        now = subject.drive(now, &mut log);
        if S::IS_NEW {
            (subject, now) = (S::new(&setup), 0);
        }
        let fired = ThreadTime::now();

        faults.judge_all(&log, &mut pending);
        faults.judge_rest(&pending);
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

/// All are cancelled, in random order.
pub(super) fn cancel<S: Subject>(count: usize) -> Sample {
    let delays = Delays::uniform(MINUTE);
    let mut subject = S::new(&Setup::new(delays.longest, count));
    let values: Vec<_> =
        (0..).zip(delays.many(count)).map(|(id, delay)| value(1 + delay, id)).collect();
    let mut faults = Faults::default();
    let mut keys = Vec::with_capacity(count);
    let mut shuffled = Vec::with_capacity(count);
    let (mut schedule, mut cancel) = (0.0, 0.0);
    let passes = (LEAST / count).max(1);
    for pass in 0..=passes {
        let started = ThreadTime::now();
        for &value in &values {
            keys.push(subject.schedule(deadline(value), value));
        }
        let scheduled = started.elapsed();

        shuffled.extend(keys.drain(..).zip(values.iter().copied()));
        fastrand::Rng::with_seed(2).shuffle(&mut shuffled);
        let mut wrong = 0;
        let started = ThreadTime::now();
        for (key, value) in shuffled.drain(..) {
            wrong += u64::from(!subject.cancel(key, value));
        }
        let cancelled = started.elapsed();

        faults.add(Fault::Wrong, wrong);
        if 0 < pass {
            schedule += scheduled.as_nanos() as f64;
            cancel += cancelled.as_nanos() as f64;
        }
    }
    let mut log = Log::default();
    subject.drive(0, &mut log);
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
