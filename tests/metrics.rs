//! What a timer publishes through the crate `metrics`.
#![cfg(all(feature = "metrics", not(loom)))]

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, SharedString, Unit};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tickwheel::{ManualClock, Timer, TimerMetrics};

/// Adds up what is published under each name.
#[derive(Default)]
struct Published(Mutex<BTreeMap<String, Arc<AtomicU64>>>);

impl metrics::Recorder for Published {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let mut counts = self.0.lock().expect("no panics");
        Counter::from_arc(Arc::clone(counts.entry(key.name().into()).or_default()))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(Arc::new(Counted(Arc::clone(
            self.0.lock().expect("no panics").entry("lateness".into()).or_default(),
        ))))
    }
}

/// Counts what is recorded.
struct Counted(Arc<AtomicU64>);

impl metrics::HistogramFn for Counted {
    fn record(&self, _: f64) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// Two threads may take theirs in one order and publish them in the other.
#[test]
fn what_is_published_in_another_order_counts_once() {
    let published = Published::default();
    let of = |name: &str| published.0.lock().expect("no panics")[name].load(SeqCst);
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
        let counts = ["tickwheel_scheduled_total", "tickwheel_fired_total", "lateness"].map(of);
        assert_eq!(counts, [30, 30, 30]);
        assert!(format!("{metrics:?}").starts_with("TimerMetrics"));
    });
}
