//! Times that are no whole ticks: nothing may come before its time, however short of it.

use crate::case::Sample;
use crate::clock::Time;
use crate::log::{Faults, Log, value};
use crate::random::{Delays, SECOND};
use crate::subject::{Setup, Subject};

/// Of the caller's unit of time.
const TICK: u64 = 16;

pub(super) fn run<S: Subject>(count: usize) -> Sample {
    let delays = Delays::uniform(10 * SECOND * TICK);
    let setup = Setup::new(delays.longest, count);
    let mut subject = S::between_ticks(&setup).expect("one that takes times");
    let mut pending = Vec::with_capacity(count);
    for (id, delay) in (0..).zip(delays.many(count)) {
        pending.push(value(delay, id));
        subject.schedule_for_good(delay, pending[id]);
    }
    let mut log = Log::with_capacity(count);
    let end = delays.longest + TICK;
    let started = Time::now();
    for now in 1..=end {
        subject.expire(now, &mut log);
        // Up to a tick late is all that can be asked for.
        log.end_batch(now, now.saturating_sub(TICK));
    }
    let each = started.elapsed().as_nanos() as f64 / end as f64;

    let mut faults = Faults::default();
    faults.judge_all(&log, &mut pending);
    faults.judge_rest(&pending);
    // Within a tick there is no order to be had.
    faults.disordered = 0;
    Sample::of(faults, &[("poll", each)])
}
