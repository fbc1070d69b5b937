//! The statistics of a timer, through the crate `metrics`.

use super::stats::{Lateness, TimerStats};
use alloc::string::String;
use core::fmt;
use metrics::{Counter, Gauge, Histogram, Unit};

/// Publishes the [statistics](crate::Timer::stats) of a timer through the crate `metrics`, to
/// whichever recorder the program has installed: Prometheus, StatsD and others.
///
/// The timer counts anyway, and publishing reads the counters. So the feature `metrics` makes no
/// call of the timer dearer. Publish when the metrics are read, as in a scrape, or every few
/// seconds.
///
/// | Metric | | |
/// |---|---|---|
/// | `tickwheel_pending` | gauge | timeouts that are pending |
/// | `tickwheel_scheduled_total` | counter | timeouts scheduled |
/// | `tickwheel_rescheduled_total` | counter | timeouts moved |
/// | `tickwheel_cancelled_total` | counter | timeouts cancelled |
/// | `tickwheel_fired_total` | counter | timeouts fired |
/// | `tickwheel_rejected_total` | counter | timeouts refused |
/// | `tickwheel_missed_total` | counter | runs of repeating timeouts that were missed |
/// | `tickwheel_panics_total` | counter | panics caught |
/// | `tickwheel_slow_tasks_total` | counter | tasks as long as [`slow_task`](crate::TimerBuilder::slow_task) says, or longer |
/// | `tickwheel_wake_ups_total` | counter | times that the worker thread woke up |
/// | `tickwheel_demotions_total` | counter | timeouts moved to a finer level |
/// | `tickwheel_lateness_seconds` | histogram | how late timeouts fired |
///
/// Each has the label `timer`. [`TimerStats`] says what counts. Timers of one label add up, but for
/// `tickwheel_pending`, which is that of the timer that was published last. A lateness counts as up
/// to an eighth longer than it was; it is in the right bucket if the buckets have the bounds of
/// [`Lateness::buckets`].
///
/// ```
/// use std::time::Duration;
/// use tickwheel::{Timer, TimerMetrics};
///
/// // First install a recorder.
/// let timer = Timer::builder().slow_task(Duration::from_millis(10)).build()?;
/// let mut metrics = TimerMetrics::new("requests");
///
/// // Whenever the metrics are read:
/// metrics.publish(&timer.stats());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TimerMetrics {
    pending: Gauge,
    lateness: Histogram,
    counters: [Counter; COUNTERS.len()],
    /// What was published.
    counts: [u64; COUNTERS.len()],
    late: Lateness,
}

impl TimerMetrics {
    /// Registers the metrics of a timer, which the label `timer` names, with the recorder that the
    /// program has installed. Without one they go nowhere.
    #[must_use]
    pub fn new(timer: impl Into<String>) -> Self {
        let timer = timer.into();
        let register = |(name, help, _)| {
            metrics::describe_counter!(name, Unit::Count, help);
            metrics::counter!(name, "timer" => timer.clone())
        };
        metrics::describe_gauge!(PENDING, Unit::Count, "timeouts that are pending");
        metrics::describe_histogram!(LATENESS, Unit::Seconds, "how late timeouts fired");
        Self {
            counters: COUNTERS.map(register),
            pending: metrics::gauge!(PENDING, "timer" => timer.clone()),
            lateness: metrics::histogram!(LATENESS, "timer" => timer),
            counts: [0; COUNTERS.len()],
            late: Lateness::default(),
        }
    }

    /// Publishes what happened since the last call. `stats` are those of the same timer. What was
    /// published before is not published again, if two threads come with theirs in another order.
    pub fn publish(&mut self, stats: &TimerStats) {
        self.pending.set(stats.pending as f64);
        // The recorder is foreign code: what it panics at counts as published.
        let counters = self.counters.iter().zip(&mut self.counts);
        for ((counter, published), (_, _, count)) in counters.zip(COUNTERS) {
            let more = count(stats).saturating_sub(*published);
            *published += more;
            counter.increment(more);
        }
        let earlier = self.late.clone();
        self.late.raise(&stats.lateness);
        for (duration, count) in stats.lateness.since(&earlier) {
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            self.lateness.record_many(duration.as_secs_f64(), count);
        }
    }
}

impl fmt::Debug for TimerMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimerMetrics").finish_non_exhaustive()
    }
}

/// A name, what it means, and where it comes from.
type Row = (&'static str, &'static str, fn(&TimerStats) -> u64);

const PENDING: &str = "tickwheel_pending";
const LATENESS: &str = "tickwheel_lateness_seconds";

const COUNTERS: [Row; 10] = [
    ("tickwheel_scheduled_total", "timeouts scheduled", |stats| stats.scheduled),
    ("tickwheel_rescheduled_total", "timeouts moved", |stats| stats.rescheduled),
    ("tickwheel_cancelled_total", "timeouts cancelled", |stats| stats.cancelled),
    ("tickwheel_fired_total", "timeouts fired", |stats| stats.fired),
    ("tickwheel_rejected_total", "timeouts refused", |stats| stats.rejected),
    ("tickwheel_missed_total", "runs that were missed", |stats| stats.missed),
    ("tickwheel_panics_total", "panics caught", |stats| stats.panics),
    ("tickwheel_slow_tasks_total", "tasks that were slow", |stats| stats.slow_tasks),
    ("tickwheel_wake_ups_total", "times that the worker woke up", |stats| stats.wake_ups),
    ("tickwheel_demotions_total", "timeouts moved to a finer level", |stats| {
        stats.shards.iter().map(|shard| shard.demotions).sum()
    }),
];
