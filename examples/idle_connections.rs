//! Connections that close when they are idle: looking at all of them, and taking out what is due.
//!
//!     cargo run --example idle_connections

use std::time::Duration;
use tickwheel::{Ticks, Wheel};

struct Connection {
    tenant: &'static str,
    packets: u32,
}

fn main() {
    // The time since the program began; a real one asks a clock.
    let second = Duration::from_secs(1);
    let ticks = Ticks::new(Duration::ZERO, Duration::from_millis(1));
    let mut wheel = Wheel::default();
    for number in 0..9 {
        let tenant = ["red", "green", "blue"][number as usize % 3];
        wheel
            .schedule(ticks.after(second * number, 60 * second), Connection { tenant, packets: 0 });
    }

    // Each connection sends something.
    wheel.iter_mut().for_each(|(_, _, connection)| connection.packets += 1);
    // A tenant leaves, and all its connections with it.
    wheel.retain(|_, _, connection| connection.tenant != "red");

    let (_, deadline, next) = wheel.peek().expect("six are left");
    println!("{} is next, at {:?}", next.tenant, ticks.instant(deadline));
    // The server was busy until 65 s. It closes at most two connections in each turn.
    let now = ticks.now(65 * second);
    while wheel.next_deadline().is_some_and(|deadline| deadline <= now) {
        for expired in wheel.extract_due(now).take(2) {
            let Connection { tenant, packets } = expired.value;
            println!("{tenant} was idle, after {packets} packets");
        }
    }
    println!("{} connections are left", wheel.len());
}
