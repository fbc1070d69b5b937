//! How long a single call can take.

use super::live::Server;
use super::{Metric, Unit};
use crate::case::Sample;
use crate::random::{Delays, MINUTE, Random};
use crate::subject::{Setup, Subject};
use hdrhistogram::Histogram;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// The quantiles of each kind of call.
pub(crate) const QUANTILES: [(&str, f64); 6] = [
    ("p50", 0.5),
    ("p99", 0.99),
    ("p99.9", 0.999),
    ("p99.99", 0.9999),
    ("p99.999", 0.99999),
    ("max", 1.0),
];

/// What is called. The last two tell the noise of the machine: a loop that does nothing, and one that
/// reads a word of memory that nobody has read for long. An interrupt takes longer where the
/// kernel's own memory has left the cache as well.
pub(crate) const CALLS: [&str; 6] =
    ["schedule", "cancel", "reschedule", "expire", "nothing", "far read"];

macro_rules! metrics {
    ($($call:literal)*) => {
        &[$(
            metric(concat!($call, " p50")),
            metric(concat!($call, " p99")),
            metric(concat!($call, " p99.9")),
            metric(concat!($call, " p99.99")),
            metric(concat!($call, " p99.999")),
            metric(concat!($call, " max")),
        )*]
    };
}

pub(super) const METRICS: &[Metric] =
    metrics!("schedule" "cancel" "reschedule" "expire" "nothing" "far read");

const fn metric(name: &'static str) -> Metric {
    Metric { name, unit: Unit::Duration }
}

/// All but a tenth have delays of up to 10 minutes, and that tenth the same one. While time goes
/// on, for every few that come out one is cancelled, one moved and one scheduled, so that these
/// meet the subject in all of its states.
pub(super) fn run<S: Subject>(count: usize) -> Sample {
    let delays = Delays::uniform(10 * MINUTE);
    let setup = Setup { short_calls: true, ..Setup::new(delays.longest, count) };
    let mut server = Server::<S>::empty(S::new(&setup), delays, count);
    let mut random = Random(5);
    let mut calls = Calls::new();

    for which in 0..count {
        let deadline = if which % 10 == 0 { SHARED } else { delays.draw(&mut random) };
        calls.time(SCHEDULE, || server.schedule(which, deadline));
    }
    let mut left = count;
    while let Some(wake) = server.subject.next_wake().filter(|_| 0 < left) {
        server.now = wake.max(server.now + 1);
        server.subject.pass_time(server.now);
        loop {
            let (subject, log, now) = (&mut server.subject, &mut server.log, server.now);
            log.clear();
            let more = calls.time(EXPIRE, || subject.expire_some(now, log));
            server.take_fired(now);
            left = left.saturating_sub(server.fired.len());
            for _ in 0..server.fired.len().div_ceil(EACH) {
                let which = random.below(count as u64) as usize;
                if server.places[which].key.is_some() {
                    calls.time(CANCEL, || server.cancel(which));
                    let deadline = server.now + delays.draw(&mut random);
                    calls.time(SCHEDULE, || server.schedule(which, deadline));
                }
                let which = random.below(count as u64) as usize;
                if server.places[which].key.is_some() {
                    let deadline = server.now + delays.draw(&mut random);
                    calls.time(RESCHEDULE, || server.reschedule(which, deadline));
                }
            }
            if !more {
                break;
            }
        }
    }
    for _ in 0..count {
        calls.time(NOTHING, || black_box(()));
    }
    let far = vec![1_u64; count * FAR_WORDS];
    for _ in 0..count {
        let at = random.below(far.len() as u64) as usize;
        calls.time(FAR_READ, || black_box(far[at]));
    }
    // Calls for one timeout after the other need not come out in the order of a whole tick.
    calls.finish(server.finish(&[]))
}

/// A histogram for each kind of call, in ns.
struct Calls(Vec<Histogram<u64>>);

const SCHEDULE: usize = 0;
const CANCEL: usize = 1;
const RESCHEDULE: usize = 2;
const EXPIRE: usize = 3;
const NOTHING: usize = 4;
const FAR_READ: usize = 5;

impl Calls {
    fn new() -> Self {
        let longest = Duration::from_secs(3_600).as_nanos() as u64;
        let histogram = Histogram::new_with_max(longest, 2).expect("bounds that make sense");
        Self(vec![histogram; CALLS.len()])
    }

    #[inline]
    fn time<R>(&mut self, call: usize, work: impl FnOnce() -> R) -> R {
        let started = Instant::now();
        let result = work();
        let elapsed = started.elapsed().as_nanos() as u64;
        self.0[call].saturating_record(elapsed);
        result
    }

    fn finish(self, sample: Sample) -> Sample {
        let mut values = Vec::new();
        for (call, histogram) in CALLS.iter().zip(&self.0) {
            for (name, quantile) in QUANTILES {
                let value = histogram.value_at_quantile(quantile) as f64;
                values.push((format!("{call} {name}"), value));
            }
        }
        Sample { values, ..sample }
    }
}

/// The tick that a tenth share.
const SHARED: u64 = 8 * MINUTE;

/// 64 bits each, for each timeout: about what the smallest subjects take.
const FAR_WORDS: usize = 4;

/// Of those that come out, how many for each call of the other kinds.
const EACH: usize = 8;
