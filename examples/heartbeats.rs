//! A thousand heartbeats of 30 s, each with a second of slack: few wake-ups for many timeouts.
//!
//!     cargo run --example heartbeats

use std::collections::BTreeSet;
use std::error::Error;
use std::time::Duration;
use tickwheel::{ManualClock, Timer};

fn main() -> Result<(), Box<dyn Error>> {
    let second = Duration::from_secs(1);
    let clock = ManualClock::new(); // so that the example does not take a minute
    let timer = Timer::builder().clock(clock.clone()).build()?;

    // The clients come in over 30 s. Each beats 30 s later, or up to a second after that.
    let mut heartbeats = Vec::new();
    for client in 0..1_000 {
        let task = move || println!("client {client} is silent");
        heartbeats.push(timer.schedule_within(30 * second..=31 * second, task)?);
        clock.advance(Duration::from_millis(29));
    }
    let instants: BTreeSet<_> = heartbeats.iter().map(|timeout| timeout.deadline()).collect();
    println!("{} heartbeats at {} instants", heartbeats.len(), instants.len());

    // A sign of life moves a heartbeat only if it would come too soon.
    let mut moved = 0;
    for heartbeat in &heartbeats {
        let before = heartbeat.deadline();
        heartbeat.reschedule_within(20 * second..=40 * second);
        moved += usize::from(heartbeat.deadline() != before);
    }
    println!("{moved} of them were moved, so that all have 20 s left");
    Ok(())
}
