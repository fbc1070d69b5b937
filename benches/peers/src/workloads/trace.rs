//! The recorded workloads in `data/`.

use super::live::Server;
use crate::case::Sample;
use crate::random::YEAR;
use crate::subject::{Setup, Subject};
use cpu_time::ThreadTime;
use std::collections::HashMap;
use std::path::Path;
use tickwheel_cli::replay::{Action, Trace};

pub(super) fn run<S: Subject>(name: &str) -> Sample {
    let steps = read(name);
    let keys = steps.iter().map(|step| step.which + 1).max().unwrap_or(0);
    let longest = steps.iter().filter_map(|step| step.action.delay_ms()).max().unwrap_or(0);
    // One to warm up.
    let mut faults = replay::<S>(&steps, keys, longest).faults;
    let sample = replay::<S>(&steps, keys, longest);
    faults.merge(&sample.faults);
    Sample { faults, ..sample }
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

/// Returns the nanoseconds an operation, until the last one is done, and what was wrong.
fn replay<S: Subject>(steps: &[Step], keys: usize, longest: u64) -> Sample {
    let mut server = Server::<S>::empty(&Setup::new(longest.min(YEAR), keys));
    let started = ThreadTime::now();
    for step in steps {
        if server.now < step.time {
            server.turn(step.time, server.now + 1);
        }
        match step.action {
            Action::Cancel => server.cancel(step.which),
            Action::Schedule { delay_ms } | Action::Reschedule { delay_ms } => {
                server.place(step.which, server.now + delay_ms);
            }
        }
    }
    let each = started.elapsed().as_nanos() as f64 / steps.len() as f64;
    server.finish(&[("operation", each)])
}
