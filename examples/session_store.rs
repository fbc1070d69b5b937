//! A session store that all threads of a server share: a session ends when its user has been silent
//! for half an hour, and half a day after the login in any case.
//!
//! `cargo run --example session_store`

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread;
use std::time::Duration;
use tickwheel::{Due, ExpiringMap, ManualClock, Timer};

#[derive(Clone)]
struct Session {
    user: &'static str,
    requests: u32,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let clock = ManualClock::new(); // so that the example does not take a day
    let timer = Timer::builder().clock(clock.clone()).build()?;
    let ended = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&ended);
    let sessions = ExpiringMap::builder()
        .time_to_idle(Duration::from_secs(1_800))
        .max_len(10_000) // a flood of logins is refused
        .on_expired(move |due: Due<Session, u64>| {
            let (number, session) = (due.key, due.value);
            println!("{number}: {} was here for {} requests", session.user, session.requests);
            count.fetch_add(1, Relaxed);
        })
        .build(&timer);

    for (number, user) in [(1, "ann"), (2, "bob"), (3, "eve")] {
        let session = Session { user, requests: 0 };
        sessions.insert(number, session, Duration::from_secs(43_200))?;
    }
    assert!(sessions.remove(&3).is_some(), "eve has signed out");
    for _ in 0..30 {
        // Ann makes four requests at once.
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| sessions.update(&1, |session| session.requests += 1));
            }
        });
        clock.advance(Duration::from_secs(1_500));
    }
    // Bob was silent for half an hour, and ann had her half day.
    assert_eq!((sessions.len(), ended.load(Relaxed)), (0, 2));
    Ok(())
}
