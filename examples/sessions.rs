//! Sessions that end when their user has been silent for a while: each request moves the deadline
//! of its session, and one thread takes out the sessions that are over.
//!
//! `cargo run --example sessions`

use std::time::Duration;
use tickwheel::{DelayMap, ManualClock, ScheduleErrorKind, Timer};

struct Session {
    requests: u32,
}

/// Counts the request of a user, whose session begins with the first.
fn request(sessions: &mut DelayMap<String, Session>, user: &str) {
    match sessions.get_mut(user) {
        Some(session) => {
            session.requests += 1;
            sessions.reset(user, SILENCE);
        }
        None => _ = sessions.insert(user.into(), Session { requests: 1 }, SILENCE),
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let clock = ManualClock::new(); // so that the example does not take an hour
    let timer = Timer::builder().clock(clock.clone()).build()?;
    let mut sessions = DelayMap::with_timer(&timer);
    request(&mut sessions, "ann");
    request(&mut sessions, "bob");
    request(&mut sessions, "eve");
    clock.advance(SILENCE / 2);
    request(&mut sessions, "ann");
    assert!(sessions.remove("eve").is_some(), "eve has signed out");

    clock.advance(SILENCE / 2);
    let over = next_over(&mut sessions)?;
    assert_eq!(over.as_deref(), Some("bob"), "half an hour after the only request");
    clock.advance(SILENCE / 2);
    assert_eq!(next_over(&mut sessions)?.as_deref(), Some("ann"));
    assert_eq!(next_over(&mut sessions)?, None, "no session is left");
    Ok(())
}

/// Waits for the next session that is over.
fn next_over(
    sessions: &mut DelayMap<String, Session>,
) -> Result<Option<String>, ScheduleErrorKind> {
    let Some(due) = sessions.recv().transpose()? else { return Ok(None) };
    println!("the session of {} is over, after {} requests", due.key, due.value.requests);
    Ok(Some(due.key))
}

const SILENCE: Duration = Duration::from_secs(1_800);
