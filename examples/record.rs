//! Records what a program does to its timeouts, for `tickwheel replay` and `tickwheel choose`:
//!
//! `cargo run --features record --example record > trace.csv`
//! `cargo run -p tickwheel-cli -- choose trace.csv`

use std::collections::VecDeque;
use std::io::stdout;
use std::time::Duration;
use tickwheel::{ManualClock, Timer};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // In a program of your own: a file, or an encoder such as flate2's `GzEncoder` around one. The
    // clock is here so that six minutes pass at once.
    let clock = ManualClock::new();
    let timer = Timer::builder().clock(clock.clone()).record(stdout()).build()?;

    // A request every 10 ms, and an answer after 250 ms, but for one request in a hundred.
    let mut waiting = VecDeque::new();
    for request in 0..36_000 {
        waiting.push_back((request, timer.schedule(Duration::from_secs(5), || {})?));
        if waiting.len() == 25 {
            let (request, timeout) = waiting.pop_front().expect("there are 25");
            if request % 100 != 0 {
                assert!(timeout.cancel());
            }
        }
        clock.advance(Duration::from_millis(10));
    }

    timer.stop()?; // ends the recording, and waits until it is written
    let recorded = timer.recorded().expect("it is recorded");
    eprintln!("{} operations, {} missing", recorded.operations, recorded.missing);
    Ok(())
}
