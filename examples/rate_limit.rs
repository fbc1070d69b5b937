//! Each client may have a number of requests within a window of time: each request that is let
//! through holds one of the client's places, until a timeout gives the place back.
//!
//! `cargo run --example rate_limit`

use std::collections::HashMap;
use std::time::Duration;
use tickwheel::{Mode, Ticks, Wheel};

struct RateLimit {
    most: u32,
    window: Duration,
    ticks: Ticks<Duration>,
    /// The client of each request that was let through less than a window ago.
    recent: Wheel<&'static str>,
    /// How many of them each client has.
    counts: HashMap<&'static str, u32>,
}

impl RateLimit {
    fn new(most: u32, window: Duration) -> Self {
        Self {
            most,
            window,
            ticks: Ticks::new(Duration::ZERO, Duration::from_millis(1)),
            recent: Wheel::new(Mode::hierarchical()),
            counts: HashMap::new(),
        }
    }

    /// Returns whether the client may have one more request now.
    fn allows(&mut self, client: &'static str, now: Duration) -> bool {
        while let Some(expired) = self.recent.expire(self.ticks.now(now)) {
            let count = self.counts.get_mut(expired.value).expect("it has a request");
            *count -= 1;
            if *count == 0 {
                self.counts.remove(expired.value);
            }
        }
        let count = self.counts.entry(client).or_default();
        if self.most <= *count {
            return false;
        }
        *count += 1;
        self.recent.schedule(self.ticks.after(now, self.window), client);
        true
    }
}

fn main() {
    // The time since the program began; a real one asks a clock.
    let ms = Duration::from_millis;
    let mut limit = RateLimit::new(2, ms(1_000));
    assert!(limit.allows("ann", ms(0)) && limit.allows("ann", ms(600)));
    assert!(!limit.allows("ann", ms(999)), "two within a second");
    assert!(limit.allows("bob", ms(999)), "bob has a limit of his own");
    assert!(limit.allows("ann", ms(1_000)), "the first is a second ago");
    assert!(!limit.allows("ann", ms(1_599)), "the second is not");

    assert!(limit.allows("eve", ms(10_000)));
    println!("{} client is remembered after ten seconds", limit.counts.len());
    assert_eq!(limit.counts.len(), 1, "nothing is kept of those who have gone");
}
