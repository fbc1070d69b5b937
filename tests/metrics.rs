//! What a timer publishes through the crate `metrics`.
#![cfg(all(feature = "metrics", not(loom)))]

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, SharedString, Unit};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tickwheel::{ManualClock, Timer, TimerMetrics};

/// Adds up what is published under each name.
#[derive(Default)]
struct Published {
    counts: Mutex<BTreeMap<String, Arc<AtomicU64>>>,
    /// Whether a histogram is to panic, once.
    panics: Arc<AtomicBool>,
}

impl Published {
    fn count(&self, name: &str) -> Arc<AtomicU64> {
        Arc::clone(self.counts.lock().expect("no panics").entry(name.into()).or_default())
    }

    fn counts<const N: usize>(&self, names: [&str; N]) -> [u64; N] {
        names.map(|name| self.count(name).load(SeqCst))
    }
}

impl metrics::Recorder for Published {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.count(key.name()))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        let panics = Arc::clone(&self.panics);
        Histogram::from_arc(Arc::new(Counted { count: self.count("lateness"), panics }))
    }
}

/// Counts what is recorded.
struct Counted {
    count: Arc<AtomicU64>,
    panics: Arc<AtomicBool>,
}

impl metrics::HistogramFn for Counted {
    fn record(&self, _: f64) {
        if self.panics.swap(false, SeqCst) {
            resume_unwind(Box::new("as the test wants it"));
        }
        self.count.fetch_add(1, SeqCst);
    }
}

/// Two threads may take theirs in one order and publish them in the other.
#[test]
fn what_is_published_in_another_order_counts_once() {
    let published = Published::default();
    metrics::with_local_recorder(&published, || {
        let clock = ManualClock::new();
        let timer = Timer::builder().clock(clock.clone()).build().expect("in range");
        let (mut metrics, mut stats) = (TimerMetrics::new("one"), Vec::new());
        for _ in 0..3 {
            (0..10).for_each(|_| drop(timer.schedule(Duration::ZERO, || {})));
            clock.advance(Duration::from_millis(1));
            stats.push(timer.stats());
        }
        for at in [1, 0, 2] {
            metrics.publish(&stats[at]);
        }
        let names = ["tickwheel_scheduled_total", "tickwheel_fired_total", "lateness"];
        assert_eq!(published.counts(names), [30, 30, 30]);
        assert!(format!("{metrics:?}").starts_with("TimerMetrics"));
    });
}

#[test]
fn what_was_published_before_the_recorder_panicked_counts_once() {
    let published = Published::default();
    metrics::with_local_recorder(&published, || {
        let clock = ManualClock::new();
        let timer = Timer::builder().clock(clock.clone()).build().expect("in range");
        let mut metrics = TimerMetrics::new("one");
        (0..10).for_each(|_| drop(timer.schedule(Duration::ZERO, || {})));
        clock.advance(Duration::from_millis(1));
        published.panics.store(true, SeqCst);
        let stats = timer.stats();
        catch_unwind(AssertUnwindSafe(|| metrics.publish(&stats))).expect_err("it panics");
        metrics.publish(&stats);
        let names = ["tickwheel_scheduled_total", "tickwheel_fired_total"];
        assert_eq!(published.counts(names), [10, 10]);
    });
}
