//! The recorded workloads in `data/`.

use crate::case::Sample;
use crate::clock::Time;
use crate::log::{Faults, Log, NOTHING};
use crate::random::YEAR;
use crate::subject::{Cancelled, Setup, Subject};
use std::collections::HashMap;
use std::path::Path;
use tickwheel_cli::replay::{Action, Trace};

pub(super) fn run<S: Subject>(name: &str) -> Sample {
    let steps = read(name);
    let keys = steps.iter().map(|step| step.which + 1).max().unwrap_or(0);
    let longest = steps.iter().filter_map(|step| step.action.delay_ms()).max().unwrap_or(0);
    let mut faults = Faults::default();
    // One to warm up.
    replay::<S>(&steps, keys, longest, &mut faults);
    let each = replay::<S>(&steps, keys, longest, &mut faults);
    Sample::of(faults, &[("operation", each)])
}

/// An operation, with its key made small.
struct Step {
    time: u64,
    which: usize,
    action: Action,
}

fn read(name: &str) -> Vec<Step> {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data");
    let path = data.join(format!("{name}.csv.gz"));
    let mut trace = Trace::open(&path).unwrap_or_else(|error| panic!("{error}"));
    let (mut steps, mut batch, mut names) = (Vec::new(), Vec::new(), HashMap::new());
    while trace.read_batch(&mut batch, 4096).unwrap_or_else(|error| panic!("{error}")) {
        steps.extend(batch.iter().map(|operation| {
            let next = names.len();
            let which = *names.entry(operation.key).or_insert(next);
            // Deadlines are never at the tick that is now.
            Step { time: operation.time_ms + 1, which, action: operation.action }
        }));
    }
    steps
}

/// Returns the nanoseconds an operation, until the last one is done.
fn replay<S: Subject>(steps: &[Step], keys: usize, longest: u64, faults: &mut Faults) -> f64 {
    let mut subject = S::new(&Setup::new(longest.min(YEAR), keys));
    let mut places: Vec<(Option<S::Key>, u64)> = (0..keys).map(|_| (None, NOTHING)).collect();
    let mut log = Log::with_capacity(keys);
    let mut now = 0;
    let mut last = 0;

    let mut take =
        |subject: &mut S, places: &mut [(Option<S::Key>, u64)], log: &mut Log, now, since| {
            for &mut id in log.values() {
                let (key, deadline) = &mut places[id as usize];
                match key.take() {
                    Some(key) => {
                        faults.judge(*deadline, now, since);
                        faults.disordered += u64::from(*deadline < last);
                        last = last.max(*deadline);
                        subject.retire(key);
                    }
                    None => faults.duplicated += 1,
                }
            }
            log.clear();
        };

    let mut wrong = 0;
    let started = Time::now();
    for step in steps {
        if now < step.time {
            let since = now + 1;
            now = step.time;
            subject.expire(now, &mut log);
            take(&mut subject, &mut places, &mut log, now, since);
        }
        let (key, deadline) = &mut places[step.which];
        match (step.action, key.take()) {
            (Action::Cancel, None) => {}
            (Action::Cancel, Some(pending)) => {
                let cancelled = subject.cancel(pending);
                let value = Cancelled::Value(step.which as u64);
                wrong += u64::from(cancelled != value && cancelled != Cancelled::Done);
            }
            (Action::Schedule { delay_ms } | Action::Reschedule { delay_ms }, pending) => {
                *deadline = now + delay_ms;
                *key = Some(match pending {
                    Some(pending) => subject.reschedule(pending, *deadline, step.which as u64),
                    None => subject.schedule(*deadline, step.which as u64),
                });
            }
        }
    }
    let each = started.elapsed().as_nanos() as f64 / steps.len() as f64;

    while let Some(later) = subject.wait(now, &mut log) {
        now = later;
        take(&mut subject, &mut places, &mut log, now, now);
    }
    faults.wrong += wrong;
    faults.lost += places.iter().filter(|(key, _)| key.is_some()).count() as u64;
    for key in places.into_iter().filter_map(|(key, _)| key) {
        subject.retire(key);
    }
    each
}
