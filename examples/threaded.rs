//! A client's requests, each with a timeout, from several threads on one timer.
//!
//! Nearly every timeout is cancelled, as the answer comes in time: that takes one short lock that
//! no other thread wants, and gives back at once what the task captured. A heartbeat repeats
//! meanwhile, and at the end `stop` hands over what is still to come.
//!
//!     cargo run --release --example threaded

use std::error::Error;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;
use tickwheel::{MissedTick, ScheduleErrorKind, Status, Timer};

/// What became of the requests of all clients.
#[derive(Default)]
struct Outcomes {
    answered: AtomicU64,
    timed_out: AtomicU64,
}

/// Sends requests, each of which has 5 ms to be answered.
fn run_client(timer: &Timer, outcomes: &Arc<Outcomes>) -> Result<(), ScheduleErrorKind> {
    for request in 1..=REQUESTS {
        let late = Arc::clone(outcomes);
        let give_up = move || {
            late.timed_out.fetch_add(1, Relaxed);
        };
        let scheduled = timer.schedule(Duration::from_millis(5), give_up);
        let timeout = scheduled.map_err(|error| error.kind())?;
        // The answer; false would mean that it came too late.
        if request % UNANSWERED != 0 && timeout.cancel() {
            outcomes.answered.fetch_add(1, Relaxed);
        }
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let timer = Timer::builder()
        .thread_name("timeouts")
        .max_pending(1_000_000)
        .on_panic(|panic| eprintln!("a task panicked: {:?}", panic.message()))
        .build()?;

    let mut beats = 0;
    let heartbeat =
        timer.schedule_repeating(Duration::from_millis(2), MissedTick::Skip, move || {
            beats += 1;
            if beats == 10 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;

    let outcomes = Arc::new(Outcomes::default());
    thread::scope(|scope| {
        let client = |_| scope.spawn(|| run_client(&timer, &outcomes));
        let clients: Vec<_> = (0..CLIENTS).map(client).collect();
        clients.into_iter().try_for_each(|client| client.join().expect("it does not panic"))
    })?;

    // The last ones to time out, and the last beat.
    let all = &outcomes;
    while all.answered.load(Relaxed) + all.timed_out.load(Relaxed) < CLIENTS * REQUESTS
        || heartbeat.status() == Status::Pending
    {
        thread::sleep(Duration::from_millis(1));
    }

    let cleanup = timer.schedule(Duration::from_secs(3_600), || println!("cleaning up early"))?;
    let stats = timer.stats();
    let unfired = timer.stop()?;
    assert!(cleanup.status() == Status::Stopped && unfired.len() == 1);
    for unfired in unfired {
        unfired.into_task().run();
    }

    println!(
        "{} requests: {} answered in time, {} timed out",
        CLIENTS * REQUESTS,
        outcomes.answered.load(Relaxed),
        outcomes.timed_out.load(Relaxed)
    );
    println!("the worker woke up {} times; late: {:?}", stats.wake_ups, stats.lateness);
    Ok(())
}

const CLIENTS: u64 = 2;
const REQUESTS: u64 = 20_000;
/// One request in so many gets no answer.
const UNANSWERED: u64 = 1_000;
