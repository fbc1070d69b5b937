//! A lease of a server ends by the server's clock, also while this machine is suspended. On a
//! `BootClock` the timeout counts that time, too:
//!
//! `cargo run --features boot-clock --example boot_clock`

use std::sync::mpsc;
use std::time::Duration;
use tickwheel::{BootClock, Clock, MonotonicClock, Timer};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // After the machine wakes up, a timeout that came due meanwhile is at most a second late.
    let clock = BootClock::new().with_look(Duration::from_secs(1));
    let (boot, monotonic) = (clock.now(), MonotonicClock.now());

    let timer = Timer::builder().clock(clock).build()?;
    let (sender, receiver) = mpsc::channel();
    timer.schedule(Duration::from_millis(20), move || {
        sender.send("the lease is over").expect("the program waits");
    })?;
    println!("{}", receiver.recv()?);

    // Both went on alike, unless somebody closed the lid in these 20 ms.
    let (boot, monotonic) = (clock.now() - boot, MonotonicClock.now() - monotonic);
    println!("suspended for {:?}", boot.saturating_sub(monotonic));
    assert!(boot >= Duration::from_millis(20));
    Ok(())
}
