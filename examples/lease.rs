//! A lease is renewed as long as it is held. A failed renewal is tried again sooner, no renewal
//! outlives the lease, and an early return leaves nothing behind.
//!
//! `cargo run --example lease`

use std::sync::Mutex;
use std::time::Duration;
use tickwheel::{Next, Timeout, Timer};

/// What the server knows.
static RENEWALS: Mutex<Vec<&str>> = Mutex::new(Vec::new());

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (timer, third) = (Timer::new(), Duration::from_millis(10));
    let lease: Timeout = timer.schedule_with(third, move |run| {
        let is_lost = run.count() == 2; // the second renewal is lost on its way
        RENEWALS.lock().unwrap().push(if is_lost { "lost" } else { "renewed" });
        Next::After(if is_lost { third / 5 } else { third })
    })?;

    println!("the work failed: {}", work(&timer).unwrap_err());
    assert_eq!(timer.pending(), 1, "the alarm of the work is cancelled, and the lease is held");
    while RENEWALS.lock().unwrap().len() < 4 {
        std::thread::sleep(third);
    }

    // From here on no renewal runs: not even one that had begun.
    lease.cancel_and_wait()?;
    let renewals = std::mem::take(&mut *RENEWALS.lock().unwrap());
    println!("given up after {renewals:?}");
    assert!(renewals.contains(&"renewed"));
    Ok(())
}

fn work(timer: &Timer) -> Result<(), Box<dyn std::error::Error>> {
    let alarm = || println!("the work takes long");
    let _alarm = timer.schedule(Duration::from_secs(60), alarm)?.cancel_on_drop();
    Err("the disk is full".into())
}
