//! An event loop that sleeps until the next deadline, or until a reply comes in.
//!
//!     cargo run --example event_loop

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};
use tickwheel::{Key, Mode, Ticks, Wheel};

fn main() {
    let ticks = Ticks::new(Instant::now(), Duration::from_millis(1));
    let (reply, replies) = mpsc::channel();
    let mut wheel = Wheel::new(Mode::hierarchical());
    let mut pending: Vec<Key> = Vec::new();
    for request in 0..20 {
        pending.push(wheel.schedule(ticks.after(Instant::now(), TIMEOUT), request));
        let reply = reply.clone();
        // Every seventh server is too slow. The loop may have ended by then.
        let delay = if request % 7 == 3 { 2 * TIMEOUT } else { TIMEOUT / 4 };
        thread::spawn(move || (thread::sleep(delay), reply.send(request).is_ok()));
    }

    while let Some(deadline) = wheel.next_deadline().and_then(|tick| ticks.instant(tick)) {
        match replies.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(request) => {
                println!("{request} answered: {}", wheel.cancel(pending[request]).is_some())
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => unreachable!("this thread can reply too"),
        }
        let now = ticks.now(Instant::now());
        while let Some(expired) = wheel.expire(now) {
            println!("{} timed out at {now} ms", expired.value);
        }
    }
}

const TIMEOUT: Duration = Duration::from_millis(40);
