//! The statistics of a timer as Prometheus reads them.
//!
//! `cargo run --example statistics`

use std::time::Duration;
use tickwheel::{ManualClock, MissedTick, Timer};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let clock = ManualClock::new();
    let timer = Timer::builder().clock(clock.clone()).max_pending(1_000).build()?;
    let second = Duration::from_secs(1);
    timer.schedule_repeating(second, MissedTick::Skip, || std::ops::ControlFlow::Continue(()))?;
    // The clock stands still, so none of these is due meanwhile.
    for delay in 1..=999 {
        assert!(timer.schedule(Duration::from_millis(delay), || {})?.reschedule(second));
    }
    assert!(timer.schedule(second, || {}).is_err(), "one too many");
    clock.jump(second * 4); // everything is late

    let stats = timer.stats();
    for (name, value) in [
        ("scheduled", stats.scheduled),
        ("rescheduled", stats.rescheduled),
        ("fired", stats.fired),
        ("cancelled", stats.cancelled),
        ("rejected", stats.rejected),
        ("missed", stats.missed),
    ] {
        println!("timeouts_{name}_total {value}");
    }
    println!("timeouts_pending {}", stats.pending);
    for (bound, count) in stats.lateness.buckets() {
        println!("timeout_lateness_seconds_bucket{{le=\"{}\"}} {count}", bound.as_secs_f64());
    }
    println!("timeout_lateness_seconds_bucket{{le=\"+Inf\"}} {}", stats.lateness.count());
    println!("timeout_lateness_seconds_sum {}", stats.lateness.sum().as_secs_f64());
    println!("timeout_lateness_seconds_count {}", stats.lateness.count());
    Ok(())
}
