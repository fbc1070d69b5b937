//! All are cancelled, in random order.

use super::LEAST;
use crate::case::Sample;
use crate::log::{Fault, Faults, Log, deadline, value};
use crate::random::{Delays, MINUTE};
use crate::subject::{Setup, Subject};
use cpu_time::ThreadTime;

pub(super) fn run<S: Subject>(count: usize) -> Sample {
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
