//! A timer where there is no thread to have: a page's event loop, or Node's, gives it its turns.

use gloo_timers::future::sleep;
use std::time::Duration;
use tickwheel::Timer;
use wasm_bindgen_futures::spawn_local;
use web_time::Instant;

/// Makes a timer that the event loop drives until the timer is stopped.
pub fn timer() -> Timer {
    let (timer, driver) = Timer::builder().shards(1).build_driven().expect("one is in range");
    // After a day the driver looks again, and waits on: the event loop counts milliseconds in 32 bits.
    spawn_local(driver.run(|at| sleep(at.saturating_duration_since(Instant::now()).min(DAY))));
    timer
}

const DAY: Duration = Duration::from_secs(86_400);
