//! What every subject is made to do: the same numbers for all.

mod batch;
mod burst;
mod live;
mod longest_call;
mod polls;
mod threads;
mod trace;

use crate::case::{Case, Sample};
use crate::random::{DAY, Delays, MINUTE, YEAR};
use crate::subject::{Profile, Subject};
use crate::threaded::Threaded;
pub(crate) use longest_call::{CALLS, HISTORIES, NOISE};

/// What is known of a workload beforehand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Workload {
    /// As on the command line.
    pub(crate) name: &'static str,
    /// One sentence for the tables; the document says more.
    pub(crate) about: &'static str,
    /// What it has sizes of.
    pub(crate) size: &'static str,
    /// In a full run.
    pub(crate) sizes: Sizes,
    pub(crate) quick_sizes: Sizes,
    /// The first one is that which is compared.
    pub(crate) metrics: &'static [Metric],
    /// Whether a subject can do the work.
    pub(crate) suits: Suits,
}

/// A name, and the unit: that of the tables, none for a count, or [`DURATION`].
pub(crate) type Metric = (&'static str, &'static str);

type Suits = fn(&Profile) -> bool;

type Sizes = &'static [usize];

const fn ns(name: &'static str) -> Metric {
    (name, "ns")
}

const fn workload(
    name: &'static str,
    suits: Suits,
    metrics: &'static [Metric],
    about: &'static str,
) -> Workload {
    let (sizes, quick_sizes) = (GROWTH, QUICK_GROWTH);
    Workload { name, about, size: "timeouts", sizes, quick_sizes, metrics, suits }
}

const fn longest_call(name: &'static str) -> Workload {
    let about = "Each call timed; delays of up to 10 min, a tenth of them for one tick.";
    let metrics = &[("schedule max", DURATION), ("expire max", DURATION)];
    let workload = workload(name, EVERYTHING, metrics, about);
    workload.at("timeouts", &[10_000_000], &[100_000])
}

/// Runs the workload of `case` with `S`, in this process.
pub(crate) fn run<S: Subject>(case: &Case) -> Sample {
    let fire = |delays: Delays| {
        let all = delays.many(case.size.max(batch::TOGETHER));
        batch::fire::<S>(delays.longest, case.size, &all)
    };
    match case.workload.as_str() {
        "fire-dense" => fire(Delays::uniform(MINUTE)),
        "fire-sparse" => fire(Delays::uniform(DAY)),
        "log-uniform" => fire(Delays::log_uniform(YEAR)),
        "one-bucket" => batch::fire::<S>(MINUTE, case.size, &vec![MINUTE; case.size]),
        "cancel" => batch::cancel::<S>(case.size),
        "requests" => live::requests::<S>(case.size),
        "idle" => live::idle::<S>(case.size),
        "mix" => live::mix::<S>(case.size),
        "polls" => polls::far::<S>(case.milliseconds),
        "jump" => polls::jump::<S>(),
        "waiting" => polls::waiting::<S>(case.size),
        "between-ticks" => polls::between_ticks::<S>(case.size),
        "jobs-gaia" | "cache-twitter52" => trace::run::<S>(&case.workload),
        "memory" => batch::memory::<S>(case.size),
        longest if longest.starts_with("longest-call") => longest_call::run::<S>(case),
        other => unreachable!("{other} is not for a subject that is driven by its caller"),
    }
}

/// Runs the workload of `case` with `T`, in this process.
pub(crate) fn run_threaded<T: Threaded>(case: &Case) -> Sample {
    match case.workload.as_str() {
        "threads" => threads::throughput::<T>(case.size, case.milliseconds),
        "oversubscribed" => threads::oversubscribed::<T>(case.size, case.milliseconds),
        "burst" => burst::run::<T>(case.size),
        "accuracy" => threads::accuracy::<T>(case.size),
        other => unreachable!("{other} is not for a subject with a thread of its own"),
    }
}

impl Workload {
    const fn at(self, size: &'static str, sizes: Sizes, quick_sizes: Sizes) -> Self {
        Self { size, sizes, quick_sizes, ..self }
    }

    /// Whether cost against size is worth a picture.
    pub(crate) fn grows(&self) -> bool {
        self.sizes == GROWTH
    }
}

#[cfg(test)]
mod tests;

/// Nanoseconds that can be many, so that each figure has a unit of its own.
pub(crate) const DURATION: &str = "duration";

const FIRES: Suits = |it| it.fires && it.name != "compare" && !it.has_threads;
const CANCELS: Suits = |it| it.cancels && !it.has_threads;
const EVERYTHING: Suits = |it| it.fires && it.cancels && !it.has_threads;
/// The limits that have no timeouts to wait for, too.
const POLLS: Suits = |it| EVERYTHING(it) || it.name == "compare";
/// Takes times and not ticks.
const INSTANTS: Suits = |it| matches!(it.name, "nexus-timer" | "delay-queue");
const HAS_THREADS: Suits = |it| it.has_threads;

const GROWTH: Sizes = &[10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000];
const QUICK_GROWTH: Sizes = &[10, 1_000, 10_000, 100_000];

/// Steps that are timed at least; the tests look at answers only.
const LEAST: usize = if cfg!(test) { 2_000 } else { 100_000 };

const FIRE: &[Metric] = &[ns("schedule + fire"), ns("schedule"), ns("fire")];
const THREADS: &[Metric] = &[ns("schedule + cancel"), ("behind", DURATION), ("processors", "")];
const OVERSUBSCRIBED: &[Metric] = &[
    ("call p99.9", DURATION),
    ("call p99.99", DURATION),
    ("call max", DURATION),
    ("call p50", DURATION),
    ns("schedule + cancel"),
];
const BURST: &[Metric] = &[
    ("with a caller", DURATION),
    ("alone", DURATION),
    ("idle call p50", DURATION),
    ("call p50", DURATION),
    ("call p99.9", DURATION),
    ("call max", DURATION),
];
const LATE: &[Metric] = &[
    ("late p50", DURATION),
    ("late p90", DURATION),
    ("late p99", DURATION),
    ("late max", DURATION),
];

#[rustfmt::skip] // One glance is to tell what there is.
pub(crate) const WORKLOADS: &[Workload] = &[
    workload("fire-dense", FIRES, FIRE,
        "Delays of up to 60 s: all are scheduled, and all fire."),
    workload("fire-sparse", FIRES, FIRE,
        "Delays of up to 24 h: all are scheduled, and all fire."),
    workload("log-uniform", FIRES, FIRE,
        "Delays from 1 ms to a year, each power of ten as likely as any other: all are scheduled, \
         and all fire."),
    workload("cancel", CANCELS, &[ns("cancel"), ns("schedule")],
        "Delays of up to 60 s: all are scheduled, and cancelled in random order."),
    workload("requests", CANCELS, &[ns("request")],
        "Timeouts of 30 s: for each request that begins another one ends, and cancels its own; \
         1 % run into it."),
    workload("idle", EVERYTHING, &[ns("reschedule")],
        "Timeouts of 60 s: a packet on a random connection moves its timeout; few run into it."),
    workload("mix", EVERYTHING, &[ns("turn")],
        "Delays of up to 60 s: for each that fires and is scheduled again, a random one is moved, \
         and one is cancelled and scheduled again."),
    workload("one-bucket", FIRES, FIRE,
        "All for the same tick, in 60 s: all are scheduled, and all fire.")
        .at("timeouts", &[1_000_000], &[100_000]),
    workload("polls", POLLS, &[ns("poll")],
        "Polls at which nothing is due, a tick apart, while one timeout is 37 hours away.")
        .at("pending", &[1], &[1]),
    workload("jump", EVERYTHING, &[("jump", DURATION)],
        "One timeout, 2^40 ticks away, to which time jumps at once.")
        .at("pending", &[1], &[1]),
    workload("waiting", EVERYTHING, &[("core", "share")],
        "Due in 1 to 2 h, hashed wheels with 512 buckets: polled each ms for a minute.")
        .at("timeouts", &[1_000_000], &[100_000]),
    workload("jobs-gaia", EVERYTHING, &[ns("operation")],
        "Recorded: 88 days of a cluster's job limits, up to 375 days, nearly all cancelled.")
        .at("operations", &[102_407], &[102_407]),
    workload("cache-twitter52", EVERYTHING, &[ns("operation")],
        "Recorded: a cache in which each access moves an object's expiry, a day away.")
        .at("operations", &[300_000], &[300_000]),
    workload("memory", CANCELS, &[("pending", "bytes"), ("peak", "bytes")],
        "Delays of up to 60 s: bytes per timeout, beyond its value of 8, when all are pending, and \
         at the peak until then.")
        .at("timeouts", &[1_000_000], &[100_000]),
    longest_call("longest-call"),
    longest_call("longest-call-after-cancels"),
    longest_call("longest-call-after-heartbeats"),
    workload("between-ticks", INSTANTS, &[ns("poll")],
        "Times that are no whole ticks, polled 16 times per tick.")
        .at("timeouts", &[10_000], &[1_000]),
    workload("threads", HAS_THREADS, THREADS,
        "Each thread keeps 1,000 timeouts of 30 s, and cancels the oldest for each new one.")
        .at("threads", &[1, 2, 4], &[1, 2, 4]),
    workload("oversubscribed", HAS_THREADS, OVERSUBSCRIBED,
        "Each of many threads keeps 100 timeouts of 30 s, cancels the oldest for each new one, and \
         times each such pair.")
        .at("threads", &[64, 256], &[64]),
    workload("burst", HAS_THREADS, BURST,
        "Real time: all come due at once, and it takes so long until all have run: while another \
         thread cancels and schedules without a rest, and alone.")
        .at("timeouts", &[1_000_000], &[100_000]),
    workload("accuracy", HAS_THREADS, LATE,
        "Real time: delays of 1 to 200 ms, from one thread, and how late each fires.")
        .at("timeouts", &[2_000], &[500]),
];
