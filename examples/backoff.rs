//! A connection is tried again after 10, 20, 40 ms and so on, with some jitter, until it works. One
//! task makes all attempts, and one handle gives up at any time.
//!
//! `cargo run --example backoff`

use std::sync::mpsc;
use std::time::Duration;
use tickwheel::{Next, Timer};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let timer = Timer::new();
    let (sender, receiver) = mpsc::channel();
    let longest = Duration::from_secs(1);
    let attempts = timer.schedule_with(Duration::ZERO, move |run| {
        println!("attempt {}, late by {:?}", run.count(), run.late());
        if connect(run.count()) {
            // Whether anyone still waits for the connection makes no difference.
            let _ = sender.send(run.count());
            return Next::Stop;
        }
        let backoff = Duration::from_millis(10 << run.count().min(10)).min(longest);
        Next::After(backoff.mul_f64(fastrand::f64() / 2.0 + 0.5))
    })?;

    let count = receiver.recv_timeout(Duration::from_secs(30))?;
    println!("connected at attempt {count}");
    // This gives up, at any time. Here there is nothing left to give up.
    attempts.cancel();
    Ok(())
}

/// Nobody answers before the fifth attempt.
fn connect(attempt: u64) -> bool {
    attempt == 5
}
