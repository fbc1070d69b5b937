//! All are scheduled, and all fire.

use super::LEAST;
use crate::case::Sample;
use crate::log::{Faults, Log, value};
use crate::random::Delays;
use crate::subject::{Setup, Subject};
use cpu_time::ThreadTime;

pub(super) fn run<S: Subject>(delays: Delays, count: usize) -> Sample {
    passes::<S>(delays.longest, &delays.many(count))
}

pub(super) fn run_one_bucket<S: Subject>(delay: u64, count: usize) -> Sample {
    passes::<S>(delay, &vec![delay; count])
}

/// One pass to warm up, and as many more as make up for few timeouts.
fn passes<S: Subject>(longest: u64, delays: &[u64]) -> Sample {
    let mut subject = S::new(&Setup::new(longest, delays.len()));
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

/// A year goes by in each, and values hold deadlines of 34 years.
const MOST_PASSES: usize = 10;
