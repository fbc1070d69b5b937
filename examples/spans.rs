//! A span for each task, and an event for each slow one.
//!
//! `cargo run --features tracing --example spans`

use std::thread;
use std::time::Duration;
use tickwheel::Timer;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::FmtSpan;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt()
        .with_max_level(LevelFilter::TRACE) // spans; for slow tasks alone, WARN
        .with_span_events(FmtSpan::CLOSE)
        .init();
    let timer = Timer::builder().slow_task(Duration::from_millis(10)).build()?;
    timer.schedule(Duration::from_millis(5), || println!("at once"))?;
    // The next is late, because this one runs before it.
    timer.schedule(Duration::from_millis(10), || thread::sleep(Duration::from_millis(20)))?;
    timer.schedule(Duration::from_millis(15), || println!("late"))?;
    thread::sleep(Duration::from_millis(50));
    timer.stop()?;
    Ok(())
}
