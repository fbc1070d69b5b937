//! An event loop that sleeps until the next deadline, or until something comes in.
//!
//! Requests go out, each with a timeout; replies come in over a channel, and all but a few come in
//! time. The loop never polls: it waits for a reply, and no longer than until the next deadline.
//!
//!     cargo run --example event_loop

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};
use tickwheel::{Key, Mode, Wheel};

/// One tick is a millisecond.
const TIMEOUT: u64 = 40;
const REQUESTS: usize = 20;

fn main() {
    let start = Instant::now();
    // The present rounds down, so that nothing is taken for due early.
    let ticks = || u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);

    let (reply, replies) = mpsc::channel();
    let mut wheel = Wheel::new(Mode::hierarchical());
    let mut pending: Vec<Option<Key>> = Vec::new();
    for request in 0..REQUESTS {
        // Counted from a present that was rounded down: one tick more makes up for it.
        pending.push(Some(wheel.schedule(ticks() + TIMEOUT + 1, request)));
        let reply = reply.clone();
        thread::spawn(move || {
            // Every seventh server is too slow.
            let delay = if request % 7 == 3 { 2 * TIMEOUT } else { TIMEOUT / 4 };
            thread::sleep(Duration::from_millis(delay));
            // Nobody listens any more once all requests have ended.
            let _ = reply.send(request);
        });
    }

    let (mut answered, mut timed_out) = (0, 0);
    while let Some(deadline) = wheel.next_deadline() {
        let patience = Duration::from_millis(deadline.saturating_sub(ticks()));
        match replies.recv_timeout(patience) {
            Ok(request) => {
                // The timeout of a request that has timed out is gone, and its key finds nothing.
                if pending[request].take().and_then(|key| wheel.cancel(key)).is_some() {
                    answered += 1;
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => unreachable!("this thread can reply too"),
        }
        let now = ticks();
        while let Some(expired) = wheel.expire(now) {
            timed_out += 1;
            println!("request {} timed out at {now} ms", expired.value);
        }
    }
    println!("{answered} answered, {timed_out} timed out");
    assert_eq!(answered + timed_out, REQUESTS);
}
