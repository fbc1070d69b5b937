//! The recorded workloads in `data/`.

use super::live::Server;
use crate::case::Sample;
use crate::random::YEAR;
use crate::subject::{Setup, Subject};
use cpu_time::ThreadTime;
use std::collections::HashMap;
use std::path::Path;
use tickwheel_cli::trace::{Action, Operation, Trace, TraceError};

pub(super) fn run<S: Subject>(name: &str) -> Sample {
    let steps = read(name);
    let keys = steps.iter().map(|&(_, which, _)| which + 1).max().unwrap_or(0);
    let longest = steps.iter().filter_map(|(.., action)| action.delay_ms()).max().unwrap_or(0);
    // One to warm up.
    let mut faults = replay::<S>(&steps, keys, longest).faults;
    let sample = replay::<S>(&steps, keys, longest);
    faults.merge(&sample.faults);
    Sample { faults, ..sample }
}

/// An operation: its time, its key made small, and what is done.
type Step = (u64, usize, Action);

fn read(name: &str) -> Vec<Step> {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data");
    let path = data.join(format!("{name}.csv.gz"));
    let trace = Trace::open(&path).unwrap_or_else(|error| panic!("{error}"));
    let mut names = HashMap::new();
    let step = |operation: Result<Operation, TraceError>| {
        let operation = operation.unwrap_or_else(|error| panic!("{error}"));
        let next = names.len();
        let which = *names.entry(operation.key).or_insert(next);
        // Deadlines are never at the tick that is now.
        (operation.time_ms + 1, which, operation.action)
    };
    trace.map(step).collect()
}

/// Returns the nanoseconds per operation, until the last one is done, and what was wrong.
fn replay<S: Subject>(steps: &[Step], keys: usize, longest: u64) -> Sample {
    let mut server = Server::<S>::empty(&Setup::new(longest.min(YEAR), keys));
    let started = ThreadTime::now();
    for &(time, which, action) in steps {
        if server.now < time {
            server.turn(time, server.now + 1);
        }
        match action.delay_ms() {
            Some(delay) => server.place(which, server.now + delay),
            None => server.cancel(which),
        }
    }
    let each = started.elapsed().as_nanos() as f64 / steps.len() as f64;
    server.finish(&[("operation", each)])
}
