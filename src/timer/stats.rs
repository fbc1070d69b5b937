//! Statistics of a timer: counters, and how late it was.

use crate::WheelStats;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::time::Duration;

/// The timeouts that a [`Timer`](crate::Timer) holds and what it has done, from
/// [`Timer::stats`](crate::Timer::stats).
///
/// The timer reads the counters one after the other while threads go on, so they need not add up.
/// It measures time up to 584 years after its ticks began: whatever fires later counts as in time,
/// and as done at once.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct TimerStats {
    /// Timeouts that are pending now: see [`Timer::pending`](crate::Timer::pending).
    pub pending: usize,
    /// Timeouts scheduled since the timer was built, and waits of futures. A repeating timeout
    /// counts once.
    pub scheduled: u64,
    /// Timeouts fired since the timer was built. Each run of a repeating timeout counts, also one
    /// that a caller cancels when it was taken out of the wheel and has not begun.
    pub fired: u64,
    /// Timeouts cancelled since the timer was built, and waits of futures that were given up.
    pub cancelled: u64,
    /// How often a waiting timeout was moved to another deadline since the timer was built.
    pub rescheduled: u64,
    /// Timeouts and waits of futures that the timer refused since it was built, each with a
    /// [`ScheduleErrorKind`](crate::ScheduleErrorKind).
    pub rejected: u64,
    /// Runs of repeating timeouts and ticks of intervals that were missed since the timer was
    /// built, whatever [`MissedTick`](crate::MissedTick) did about them, and runs of repeating
    /// timeouts that the executor dropped.
    pub missed: u64,
    /// Panics caught since the timer was built: of tasks, of captured values when dropped, of the
    /// executor, and of wakers but that of a [`Driver`](crate::Driver).
    pub panics: u64,
    /// How often the worker thread woke up, or how many turns the [`Driver`](crate::Driver) took.
    pub wake_ups: u64,
    /// How late timeouts were when they fired, counted from their deadlines in whole ticks.
    ///
    /// If a timeout was later than a tick and the time it takes to wake a thread, then other tasks
    /// ran before it on the worker: look at `longest_task`, and give the timer an executor.
    ///
    /// The worker reads the clock after each task. If 16 timeouts or more are due at once, it does
    /// so after every fourth: a timeout counts as late as it was at the last reading.
    pub lateness: Lateness,
    /// The longest time that the worker spent on one task, by the timer's clock: from taking it out
    /// of the wheel until it ended, or until the executor had it. Up to four tasks of 16 that are
    /// due at once count as one.
    pub longest_task: Duration,
    /// Tasks that ran for at least as long as [`slow_task`](crate::TimerBuilder::slow_task) says,
    /// by the timer's clock, on the worker or an executor. Each run of a repeating timeout counts.
    pub slow_tasks: u64,
    /// How long tasks waited for the [executor](crate::TimerBuilder::executor), by the timer's
    /// clock: from when the worker took the timeout out of the wheel until the task began to run. A
    /// task counts when it has ended, or was found cancelled; one that the executor dropped does
    /// not.
    pub executor_wait: Lateness,
    /// The statistics of each shard's wheel.
    pub shards: Vec<WheelStats>,
}

/// A distribution of durations, exact to one part in eight.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Lateness {
    /// One for each class, or none as long as there is no duration.
    counts: Vec<u64>,
    sum: u64,
    max: u64,
}

impl Lateness {
    pub(super) fn record(&mut self, nanos: u64) {
        self.counts.resize(CLASSES, 0);
        self.counts[class(nanos)] += 1;
        self.sum = self.sum.saturating_add(nanos);
        self.max = self.max.max(nanos);
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.counts.resize(self.counts.len().max(other.counts.len()), 0);
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.sum = self.sum.saturating_add(other.sum);
        self.max = self.max.max(other.max);
    }

    /// Keeps the larger of each number, of the same counters.
    #[cfg(feature = "metrics")]
    pub(super) fn raise(&mut self, other: &Self) {
        self.counts.resize(self.counts.len().max(other.counts.len()), 0);
        for (count, other) in self.counts.iter_mut().zip(&other.counts) {
            *count = (*count).max(*other);
        }
        self.sum = self.sum.max(other.sum);
        self.max = self.max.max(other.max);
    }

    /// Returns the durations that are not among the `earlier` ones of the same counters, as
    /// [`iter`](Self::iter) does.
    #[cfg(feature = "metrics")]
    pub(super) fn since<'a>(
        &'a self,
        earlier: &'a Self,
    ) -> impl Iterator<Item = (Duration, u64)> + 'a {
        self.counts.iter().enumerate().filter_map(|(index, &count)| {
            let more = count.saturating_sub(earlier.counts.get(index).copied().unwrap_or(0));
            (0 < more).then(|| (upper_bound(index).min(self.max()), more))
        })
    }

    /// Returns how many durations there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the sum of all durations, exactly, up to 584 years.
    #[must_use]
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.sum)
    }

    /// Returns the longest duration, exactly; zero if there is none.
    #[must_use]
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.max)
    }

    /// Returns a duration that a share `quantile` of them, from 0 to 1, does not exceed: 0.5 for
    /// the median. The answer is at most an eighth too long; zero if there is none.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> Duration {
        let count = self.count();
        // At least one, so that 0 is the shortest. NaN counts as 0.
        let rank = ((quantile.clamp(0.0, 1.0) * count as f64).ceil() as u64).max(1);
        let mut seen = 0;
        for (duration, count) in self.iter() {
            seen += count;
            if rank <= seen {
                return duration;
            }
        }
        self.max()
    }

    /// Returns a cumulative histogram, as Prometheus has them: bounds, the shortest first, each
    /// with the number of durations that are not longer.
    ///
    /// The bounds are always the same 14, each four times the one before: from about a microsecond
    /// (2^10 ns, less 1 ns) to about a minute. The numbers are exact. [`count`](Self::count) is the
    /// number for the bound `+Inf`, and [`sum`](Self::sum) the sum.
    ///
    /// ```
    /// use tickwheel::Timer;
    ///
    /// let lateness = Timer::new().stats().lateness;
    /// for (bound, count) in lateness.buckets() {
    ///     println!("timer_lateness_seconds_bucket{{le=\"{}\"}} {count}", bound.as_secs_f64());
    /// }
    /// println!("timer_lateness_seconds_bucket{{le=\"+Inf\"}} {}", lateness.count());
    /// println!("timer_lateness_seconds_sum {}", lateness.sum().as_secs_f64());
    /// println!("timer_lateness_seconds_count {}", lateness.count());
    /// ```
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> {
        (10..=36).step_by(2).map(|bits| {
            let longest = (1 << bits) - 1;
            let classes = self.counts.iter().take(class(longest) + 1);
            (Duration::from_nanos(longest), classes.sum())
        })
    }

    /// Returns durations, the shortest first, each with the number of those up to it and above the
    /// one before. Leaves out durations without any.
    pub fn iter(&self) -> impl Iterator<Item = (Duration, u64)> {
        let counts = self.counts.iter().enumerate().filter(|&(_, &count)| count > 0);
        counts.map(|(index, &count)| (upper_bound(index).min(self.max()), count))
    }
}

/// As its count, sum, maximum and [`buckets`](Lateness::buckets).
#[cfg(feature = "serde")]
impl serde::Serialize for Lateness {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;

        let mut fields = serializer.serialize_struct("Lateness", 4)?;
        fields.serialize_field("count", &self.count())?;
        fields.serialize_field("sum", &self.sum())?;
        fields.serialize_field("max", &self.max())?;
        fields.serialize_field("buckets", &self.buckets().collect::<Vec<_>>())?;
        fields.end()
    }
}

impl fmt::Debug for Lateness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lateness")
            .field("count", &self.count())
            .field("p50", &self.quantile(0.5))
            .field("p99", &self.quantile(0.99))
            .field("max", &self.max())
            .finish()
    }
}

/// Any thread writes the first four counters; only the worker writes the others.
#[derive(Default)]
pub(crate) struct Counters {
    pub(super) panics: AtomicU64,
    pub(super) rejected: AtomicU64,
    pub(super) missed: AtomicU64,
    pub(super) slow_tasks: AtomicU64,
    pub(super) fired: AtomicU64,
    pub(super) wake_ups: AtomicU64,
    longest_task: AtomicU64,
    late: AtomicU64,
    most_late: AtomicU64,
    lateness: Box<[AtomicU64]>,
}

impl Counters {
    pub(super) fn new() -> Self {
        let lateness = (0..CLASSES).map(|_| AtomicU64::new(0)).collect();
        Self { lateness, ..Self::default() }
    }

    /// Counts a timeout that fires so many nanoseconds `late`.
    pub(super) fn fires(&self, late: u64) {
        count(&self.fired);
        self.late.store(self.late.load(Relaxed).saturating_add(late), Relaxed);
        raise(&self.most_late, late);
        // Last, so that a thread that reads the count does not read a shorter longest one.
        let counted = &self.lateness[class(late)];
        counted.store(counted.load(Relaxed) + 1, Release);
    }

    pub(super) fn took(&self, nanos: u64) {
        raise(&self.longest_task, nanos);
    }

    pub(crate) fn misses(&self, runs: u64) {
        if runs > 0 {
            let add = |missed: u64| Some(missed.saturating_add(runs));
            let _ = self.missed.fetch_update(Relaxed, Relaxed, add);
        }
    }

    pub(super) fn wakes_up(&self) {
        count(&self.wake_ups);
    }

    pub(super) fn lateness(&self) -> Lateness {
        let counts: Vec<u64> = self.lateness.iter().map(|count| count.load(Acquire)).collect();
        Lateness {
            counts: if counts.iter().any(|&count| 0 < count) { counts } else { Vec::new() },
            sum: self.late.load(Relaxed),
            max: self.most_late.load(Relaxed),
        }
    }

    pub(super) fn longest_task(&self) -> Duration {
        Duration::from_nanos(self.longest_task.load(Relaxed))
    }
}

/// Adds one, where no other thread writes.
fn count(counter: &AtomicU64) {
    counter.store(counter.load(Relaxed) + 1, Relaxed);
}

/// Raises to at least `value`, where no other thread writes.
fn raise(most: &AtomicU64, value: u64) {
    most.store(most.load(Relaxed).max(value), Relaxed);
}

/// Returns the class that counts a duration. Durations below `STEPS` have one each, and above that
/// each power of two has `STEPS`.
fn class(nanos: u64) -> usize {
    let Some(shift) = nanos.checked_ilog2().and_then(|log| log.checked_sub(STEP_BITS)) else {
        return nanos as usize;
    };
    let step = (nanos >> shift) as usize - STEPS;
    STEPS * (shift as usize + 1) + step
}

/// Returns the longest duration of a class.
fn upper_bound(class: usize) -> Duration {
    if class + 1 == CLASSES {
        return Duration::from_nanos(u64::MAX);
    }
    let next = class + 1;
    Duration::from_nanos(match (next / STEPS).checked_sub(1) {
        None => class as u64,
        Some(shift) => (((STEPS + next % STEPS) as u64) << shift) - 1,
    })
}

/// The number of classes for the durations of one power of two.
const STEPS: usize = 1 << STEP_BITS;
const STEP_BITS: u32 = 3;
const CLASSES: usize = STEPS * (u64::BITS - STEP_BITS + 1) as usize;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_duration_is_within_its_class() {
        let edges = (0..64).flat_map(|log| {
            let power = 1_u64 << log;
            [power - 1, power, power + 1, power + power / 2, power + (power - 1)]
        });
        for nanos in edges {
            let class = class(nanos);
            let duration = Duration::from_nanos(nanos);
            assert!(duration <= upper_bound(class), "{nanos}");
            assert!(class == 0 || upper_bound(class - 1) < duration, "{nanos}");
        }
    }

    #[test]
    fn classes_are_an_eighth_wide() {
        for class in 1..CLASSES - 1 {
            let (before, last) = (upper_bound(class - 1), upper_bound(class));
            assert!(before < last);
            assert!(last <= before * 9 / 8 + Duration::from_nanos(1), "{class}");
        }
    }

    #[test]
    fn quantiles_are_at_most_an_eighth_too_long() {
        let counters = Counters::new();
        for micros in 1..=1_000 {
            counters.fires(micros * 1_000);
        }
        let lateness = counters.lateness();
        assert_eq!(lateness.count(), 1_000);
        assert_eq!(lateness.max(), Duration::from_millis(1));
        assert_eq!(lateness.sum(), Duration::from_micros(500_500));
        let mut recorded = Lateness::default();
        for micros in 1..=500 {
            recorded.record(micros * 1_000);
        }
        let mut others = Lateness::default();
        others.add(&recorded);
        recorded = Lateness::default();
        for micros in 501..=1_000 {
            recorded.record(micros * 1_000);
        }
        others.add(&recorded);
        assert_eq!(others, lateness);
        for (quantile, exact) in [(0.0, 1), (0.5, 500), (0.99, 990), (1.0, 1_000), (7.0, 1_000)] {
            let (found, exact) = (lateness.quantile(quantile), Duration::from_micros(exact));
            assert!(exact <= found && found <= exact * 9 / 8, "{quantile}: {found:?}");
        }
        assert_eq!(Counters::new().lateness().quantile(0.5), Duration::ZERO);
    }

    #[test]
    fn a_quantile_of_hours_and_of_centuries_is_at_most_an_eighth_too_long() {
        for nanos in (0..62).map(|bits| 3 << bits >> 1) {
            let mut lateness = Lateness::default();
            lateness.record(nanos);
            lateness.record(u64::MAX);
            let (median, exact) = (lateness.quantile(0.5), Duration::from_nanos(nanos));
            assert!(exact <= median && median <= exact * 9 / 8, "{exact:?}: {median:?}");
        }
    }

    /// Each is longer than those before. All are of the last class, which is read last.
    #[test]
    fn what_is_counted_is_not_longer_than_the_longest() {
        let (counters, most) = (&Counters::new(), if cfg!(miri) { 100 } else { 1_000_000 });
        let before = u64::MAX - most;
        std::thread::scope(|scope| {
            scope.spawn(|| (1..=most).for_each(|late| counters.fires(before + late)));
            loop {
                let lateness = counters.lateness();
                let count = lateness.count();
                assert!(count == 0 || before + count <= lateness.max, "{count}");
                if count == most {
                    return;
                }
            }
        });
    }

    #[test]
    fn the_numbers_of_the_buckets_are_exact() {
        let mut lateness = Lateness::default();
        let durations = (0..40).flat_map(|bits| [(1_u64 << bits) - 1, 1 << bits, 3 << bits]);
        let durations: Vec<_> = durations.collect();
        for &nanos in &durations {
            lateness.record(nanos);
        }
        let buckets: Vec<_> = lateness.buckets().collect();
        assert_eq!(buckets.len(), 14);
        for (bound, count) in buckets {
            let expected =
                durations.iter().filter(|&&nanos| Duration::from_nanos(nanos) <= bound).count();
            assert_eq!(count, expected as u64, "{bound:?}");
        }
        assert!(Lateness::default().buckets().all(|(_, count)| count == 0));
    }
}
