//! How long a single call can take.

use super::live::Server;
use crate::case::{Case, Sample};
use crate::log::Fault;
use crate::random::{Delays, HOUR, MINUTE};
use crate::subject::{Setup, Subject};
use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// All but a tenth have delays of up to 10 minutes, and that tenth the same one. While time goes
/// on, for every few that come out one is cancelled, one moved and one scheduled, so that these
/// meet the subject in all of its states.
pub(super) fn run<S: Subject>(case: &Case) -> Sample {
    let count = case.size;
    let delays = Delays::uniform(10 * MINUTE);
    let setup = Setup { short_calls: true, ..Setup::new(delays.longest, count) };
    let mut server = Server::<S>::empty(&setup);
    let mut random = fastrand::Rng::with_seed(5);
    let mut calls = Calls::new();

    // 2^23 of 10 M.
    let operations = count.next_power_of_two() as u64 / 2;
    let far = match case.workload.as_str() {
        AFTER_CANCELS => cancels(&mut server, operations),
        AFTER_HEARTBEATS => heartbeats(&mut server, operations),
        _ => Vec::new(),
    };
    let start = server.now;
    for which in 0..count {
        let delay = if which % 10 == 0 { SHARED } else { delays.draw(&mut random) };
        calls.time("schedule", || server.schedule(which, start + delay));
    }
    let mut left = count;
    while let Some(wake) = server.subject.next_wake().filter(|_| 0 < left) {
        server.now = wake.max(server.now + 1);
        server.subject.pass_time(server.now);
        let mut more = true;
        while more {
            let (subject, log, now) = (&mut server.subject, &mut server.log, server.now);
            log.clear();
            more = calls.time("expire", || subject.expire_some(now, log));
            server.take_fired(now);
            left = left.saturating_sub(server.fired.len());
            for _ in 0..server.fired.len().div_ceil(EACH) {
                let which = random.usize(..count);
                if server.places[which].is_some() {
                    calls.time("cancel", || server.cancel(which));
                    let deadline = now + delays.draw(&mut random);
                    calls.time("schedule", || server.schedule(which, deadline));
                }
                let which = random.usize(..count);
                if server.places[which].is_some() {
                    let deadline = now + delays.draw(&mut random);
                    calls.time("reschedule", || server.place(which, deadline));
                }
            }
        }
    }
    for (number, key) in (0..).zip(far) {
        server.faults.add(Fault::Wrong, !server.subject.cancel(key, number));
    }
    for _ in 0..count {
        calls.time(NOISE[0], || black_box(()));
    }
    let words = vec![1_u64; count * FAR_WORDS];
    for _ in 0..count {
        let at = random.usize(..words.len());
        calls.time(NOISE[1], || black_box(words[at]));
    }
    // Calls for one timeout after the other need not come out in the order of a whole tick.
    Sample { values: calls.values(), ..server.finish(&[]) }
}

/// Schedules what is due already and cancels it, again and again; returns what is far.
fn cancels<S: Subject>(server: &mut Server<S>, operations: u64) -> Vec<S::Key> {
    // What the default of every subject holds.
    let far = vec![server.subject.schedule(4 * HOUR, 0)];
    for value in 0..operations {
        let key = server.subject.schedule(0, value);
        server.faults.add(Fault::Wrong, !server.subject.cancel(key, value));
    }
    far
}

/// A timeout of a tick, again and again, before jobs in the same coarse bucket; returns the jobs.
fn heartbeats<S: Subject>(server: &mut Server<S>, operations: u64) -> Vec<S::Key> {
    let Server { subject, log, faults, .. } = server;
    let start = 2 * operations;
    subject.expire(start - 1, log);
    let job = |number| start + operations + (operations / 2).max(HOUR) + number * MINUTE;
    let jobs = (0..5).map(|number| subject.schedule(job(number), number)).collect();
    for now in start..start + operations {
        let key = subject.schedule(now, now);
        subject.expire(now, log);
        faults.add(Fault::Lost, log.values != [now]);
        log.clear();
        subject.retire(key);
    }
    server.now = start + operations - 1;
    jobs
}

/// A histogram for each of [`CALLS`], in ns.
struct Calls(Vec<Histogram<u64>>);

impl Calls {
    fn new() -> Self {
        let longest = Duration::from_secs(3_600).as_nanos() as u64;
        let histogram = Histogram::new_with_max(longest, 2).expect("bounds that make sense");
        Self(vec![histogram; CALLS.len()])
    }

    fn time<R>(&mut self, call: &str, work: impl FnOnce() -> R) -> R {
        let started = Instant::now();
        let result = work();
        let elapsed = started.elapsed().as_nanos() as u64;
        let at = CALLS.iter().position(|&other| other == call).expect("a call");
        self.0[at].saturating_record(elapsed);
        result
    }

    fn values(&self) -> BTreeMap<String, f64> {
        let calls = CALLS.iter().zip(&self.0);
        let value = |(call, histogram): (_, &Histogram<u64>), (name, quantile)| {
            (format!("{call} {name}"), histogram.value_at_quantile(quantile) as f64)
        };
        calls.flat_map(|call| QUANTILES.map(|quantile| value(call, quantile))).collect()
    }
}

/// The quantiles of each kind of call.
const QUANTILES: [(&str, f64); 6] = [
    ("p50", 0.5),
    ("p99", 0.99),
    ("p99.9", 0.999),
    ("p99.99", 0.9999),
    ("p99.999", 0.99999),
    ("max", 1.0),
];

/// The calls. The last two show the noise of the machine: "nothing" does nothing, and "far read"
/// reads a word of memory that has probably left the cache. An interrupt takes longer if the
/// kernel's own memory has left the cache as well.
pub(crate) const CALLS: [&str; 6] =
    ["schedule", "cancel", "reschedule", "expire", NOISE[0], NOISE[1]];

pub(crate) const NOISE: [&str; 2] = ["nothing", "far read"];

/// What the subject has been through before, as the workload's name ends: the subject may owe
/// something for it.
pub(crate) const HISTORIES: [(&str, &str); 3] = [
    ("longest-call", "-"),
    (AFTER_CANCELS, "scheduled when due and cancelled, beside one that is far"),
    (AFTER_HEARTBEATS, "heartbeats beside far jobs"),
];

const AFTER_CANCELS: &str = "longest-call-after-cancels";
const AFTER_HEARTBEATS: &str = "longest-call-after-heartbeats";

/// The tick that a tenth share.
const SHARED: u64 = 8 * MINUTE;

/// 64 bits each, for each timeout: about what the smallest subjects take.
const FAR_WORDS: usize = 4;

/// Of those that come out, how many for each call of the other kinds.
const EACH: usize = 8;
