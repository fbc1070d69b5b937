//! What it costs that many wait, none of which is due.

use crate::case::Sample;
use crate::clock::Time;
use crate::log::{Faults, Log, value};
use crate::random::{Delays, HOUR, MINUTE};
use crate::subject::{Setup, Subject};
use std::time::Duration;

pub(super) fn run<S: Subject>(count: usize) -> Sample {
    let setup = Setup { buckets: Some(512), ..Setup::new(2 * HOUR, count) };
    let mut subject = S::new(&setup);
    let mut pending = Vec::with_capacity(count);
    for (id, delay) in (0..).zip(Delays::uniform(HOUR).many(count)) {
        let deadline = HOUR + delay;
        pending.push(value(deadline, id));
        subject.schedule_for_good(deadline, pending[id]);
    }
    let mut log = Log::with_capacity(count);
    let started = Time::now();
    for now in 1..=MINUTE {
        subject.expire(now, &mut log);
        log.end_batch(now, now);
    }
    let busy = started.elapsed();

    let mut faults = Faults::default();
    // The rest is a test of its own.
    faults.judge_all(&log, &mut pending);
    Sample::of(
        faults,
        &[("core", busy.as_secs_f64() / Duration::from_millis(MINUTE).as_secs_f64())],
    )
}
