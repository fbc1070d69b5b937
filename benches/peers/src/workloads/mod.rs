//! What every subject is made to do: the same numbers for all.

mod accuracy;
mod between_ticks;
mod cancel;
mod fire;
mod jump;
mod live;
mod longest_call;
mod memory;
mod polls;
#[cfg(test)]
mod tests;
mod threads;
mod trace;
mod waiting;

use crate::case::{Case, Sample};
use crate::random::{DAY, Delays, MINUTE, YEAR};
use crate::shared::Threaded;
use crate::subject::{Profile, Subject};
pub(crate) use longest_call::{CALLS, QUANTILES};

/// What is known of a workload beforehand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Workload {
    /// As on the command line.
    pub(crate) name: &'static str,
    /// One sentence for the tables; the document says more.
    pub(crate) about: &'static str,
    /// What it has sizes of.
    pub(crate) size: &'static str,
    /// In a full run. The last one is what `--quick` leaves out.
    pub(crate) sizes: &'static [usize],
    pub(crate) quick_sizes: &'static [usize],
    /// The first one is that which is compared.
    pub(crate) metrics: &'static [Metric],
    pub(crate) needs: Needs,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Metric {
    pub(crate) name: &'static str,
    pub(crate) unit: Unit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Nanoseconds,
    /// Nanoseconds that can be many.
    Duration,
    Bytes,
    /// Of the time of one core.
    Core,
    /// Millions a second: the more the better.
    Rate,
    Count,
}

/// What a subject has to be able to do, to take part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    Fire,
    Cancel,
    Reschedule,
    /// All of these.
    Everything,
    /// The limits that have no timeouts to wait for.
    Polls,
    /// Takes times and not ticks.
    Instants,
    Threads,
}

const GROWTH: &[usize] = &[1_000, 10_000, 100_000, 1_000_000, 10_000_000];
const QUICK_GROWTH: &[usize] = &[1_000, 10_000, 100_000];

pub(crate) const WORKLOADS: &[Workload] = &[
    Workload::growing(
        "fire-dense",
        "Delays of up to 60 s: all are scheduled, and all fire.",
        FIRE,
        Needs::Fire,
    ),
    Workload::growing(
        "fire-sparse",
        "Delays of up to 24 h: all are scheduled, and all fire.",
        FIRE,
        Needs::Fire,
    ),
    Workload::growing(
        "log-uniform",
        "Delays from 1 ms to a year, each power of ten as likely as any other: all are \
         scheduled, and all fire.",
        FIRE,
        Needs::Fire,
    ),
    Workload::growing(
        "cancel",
        "Delays of up to 60 s: all are scheduled, and cancelled in random order.",
        &[ns("cancel"), ns("schedule")],
        Needs::Cancel,
    ),
    Workload::growing(
        "requests",
        "Timeouts of 30 s: for each request that begins another one ends, and cancels its own; \
         1 % run into it.",
        &[ns("request")],
        Needs::Cancel,
    ),
    Workload::growing(
        "idle",
        "Timeouts of 60 s: a packet on a random connection moves its timeout; few run into it.",
        &[ns("reschedule")],
        Needs::Reschedule,
    ),
    Workload::growing(
        "mix",
        "Delays of up to 60 s: for each that fires and is scheduled again, a random one is moved, \
         and one is cancelled and scheduled again.",
        &[ns("turn")],
        Needs::Everything,
    ),
    Workload {
        sizes: &[1_000_000],
        quick_sizes: &[100_000],
        ..Workload::growing(
            "one-bucket",
            "All for the same tick, in 60 s: all are scheduled, and all fire.",
            FIRE,
            Needs::Fire,
        )
    },
    Workload {
        size: "pending",
        sizes: &[1],
        quick_sizes: &[1],
        ..Workload::growing(
            "polls",
            "Polls at which nothing is due, a tick apart, while one timeout is 37 hours away.",
            &[ns("poll")],
            Needs::Polls,
        )
    },
    Workload {
        size: "pending",
        sizes: &[1],
        quick_sizes: &[1],
        ..Workload::growing(
            "jump",
            "One timeout, 2^40 ticks away, to which time jumps at once.",
            &[Metric { name: "jump", unit: Unit::Duration }],
            Needs::Polls,
        )
    },
    Workload {
        sizes: &[1_000_000],
        quick_sizes: &[100_000],
        ..Workload::growing(
            "waiting",
            "Due in 1 to 2 h, hashed wheels with 512 buckets: polled each ms for a minute.",
            &[Metric { name: "core", unit: Unit::Core }],
            Needs::Everything,
        )
    },
    Workload {
        size: "operations",
        sizes: &[102_407],
        quick_sizes: &[102_407],
        ..Workload::growing(
            "jobs-gaia",
            "Recorded: 88 days of a cluster's job limits, up to 375 days, nearly all cancelled.",
            &[ns("operation")],
            Needs::Everything,
        )
    },
    Workload {
        size: "operations",
        sizes: &[300_000],
        quick_sizes: &[300_000],
        ..Workload::growing(
            "cache-twitter52",
            "Recorded: a cache in which each access moves an object's expiry, a day away.",
            &[ns("operation")],
            Needs::Everything,
        )
    },
    Workload {
        sizes: &[1_000_000],
        quick_sizes: &[100_000],
        ..Workload::growing(
            "memory",
            "Delays of up to 60 s: bytes a timeout, beyond its value of 8, when all are pending, and at the peak until then.",
            &[
                Metric { name: "pending", unit: Unit::Bytes },
                Metric { name: "peak", unit: Unit::Bytes },
            ],
            Needs::Cancel,
        )
    },
    Workload {
        sizes: &[10_000_000],
        quick_sizes: &[100_000],
        ..Workload::growing(
            "longest-call",
            "Each call timed; delays of up to 10 min, a tenth of them for one tick.",
            longest_call::METRICS,
            Needs::Everything,
        )
    },
    Workload {
        sizes: &[10_000],
        quick_sizes: &[1_000],
        ..Workload::growing(
            "between-ticks",
            "Times that are no whole ticks, polled 16 times a tick.",
            &[ns("poll")],
            Needs::Instants,
        )
    },
    Workload {
        size: "threads",
        sizes: &[1, 2, 4],
        quick_sizes: &[1, 2, 4],
        ..Workload::growing(
            "threads",
            "Each thread keeps 1,000 timeouts of 30 s, and cancels the oldest for each new one.",
            &[
                ns("schedule + cancel"),
                Metric { name: "rate", unit: Unit::Rate },
                Metric { name: "behind", unit: Unit::Duration },
            ],
            Needs::Threads,
        )
    },
    Workload {
        sizes: &[2_000],
        quick_sizes: &[500],
        ..Workload::growing(
            "accuracy",
            "Real time: delays of 1 to 200 ms, from one thread, and how late each fires.",
            accuracy::METRICS,
            Needs::Threads,
        )
    },
];

/// Steps that are timed at least; the tests look at answers only.
const LEAST: usize = if cfg!(test) { 2_000 } else { 100_000 };

const FIRE: &[Metric] = &[ns("schedule + fire"), ns("schedule"), ns("fire")];

const fn ns(name: &'static str) -> Metric {
    Metric { name, unit: Unit::Nanoseconds }
}

/// Runs the workload of `case` with `S`, in this process.
pub(crate) fn run<S: Subject>(case: &Case) -> Sample {
    match case.workload.as_str() {
        "fire-dense" => fire::run::<S>(Delays::uniform(MINUTE), case.size),
        "fire-sparse" => fire::run::<S>(Delays::uniform(DAY), case.size),
        "log-uniform" => fire::run::<S>(Delays::log_uniform(YEAR), case.size),
        "one-bucket" => fire::run_one_bucket::<S>(MINUTE, case.size),
        "cancel" => cancel::run::<S>(case.size),
        "requests" => live::requests::<S>(case.size),
        "idle" => live::idle::<S>(case.size),
        "mix" => live::mix::<S>(case.size),
        "polls" => polls::run::<S>(case.milliseconds),
        "jump" => jump::run::<S>(),
        "waiting" => waiting::run::<S>(case.size),
        "jobs-gaia" | "cache-twitter52" => trace::run::<S>(&case.workload),
        "memory" => memory::run::<S>(case.size),
        "longest-call" => longest_call::run::<S>(case.size),
        "between-ticks" => between_ticks::run::<S>(case.size),
        other => unreachable!("{other} is not for a subject that is driven by its caller"),
    }
}

/// Runs the workload of `case` with `T`, in this process.
pub(crate) fn run_threaded<T: Threaded>(case: &Case) -> Sample {
    match case.workload.as_str() {
        "threads" => threads::run::<T>(case.size, case.milliseconds),
        "accuracy" => accuracy::run::<T>(case.size),
        other => unreachable!("{other} is not for a subject with a thread of its own"),
    }
}

impl Workload {
    const fn growing(
        name: &'static str,
        about: &'static str,
        metrics: &'static [Metric],
        needs: Needs,
    ) -> Self {
        let (sizes, quick_sizes) = (GROWTH, QUICK_GROWTH);
        Self { name, about, size: "timeouts", sizes, quick_sizes, metrics, needs }
    }

    /// Whether cost against size is worth a picture.
    pub(crate) fn grows(&self) -> bool {
        self.sizes == GROWTH
    }

    /// Whether a subject that is driven by its caller can do the work.
    pub(crate) fn suits(&self, profile: &Profile) -> bool {
        match self.needs {
            _ if profile.name == "compare" => self.name == "polls",
            Needs::Fire => profile.fires,
            Needs::Cancel => profile.cancels,
            Needs::Reschedule => profile.reschedules,
            Needs::Everything => profile.fires && profile.cancels && profile.reschedules,
            Needs::Polls => profile.fires && profile.cancels,
            Needs::Instants => matches!(profile.name, "nexus-timer" | "delay-queue"),
            Needs::Threads => false,
        }
    }
}

pub(crate) fn by_name(name: &str) -> Option<&'static Workload> {
    WORKLOADS.iter().find(|workload| workload.name == name)
}
