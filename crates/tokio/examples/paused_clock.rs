//! Tests of code that waits for hours, in no time: tokio's paused clock moves our timeouts, too.
//!
//!     cargo run --all-features --example paused_clock

use tickwheel_tokio::time::{self, Duration, Instant, MissedTickBehavior};

/// Retries after 1, 2, 4 ... minutes, for at most a day.
async fn deliver(mut send: impl AsyncFnMut() -> bool) -> Result<u32, time::error::Elapsed> {
    let tries = async {
        let (mut pause, mut tries) = (Duration::from_secs(60), 1);
        while !send().await {
            time::sleep(pause).await;
            (pause, tries) = (pause * 2, tries + 1);
        }
        tries
    };
    time::timeout(DAY, tries).await
}

/// As `#[tokio::test(start_paused = true)]`.
#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() {
    let start = Instant::now();
    let mut answers = [false, false, false, true].into_iter();
    let tries = deliver(async || answers.next().expect("it gave up")).await;
    assert_eq!(tries.ok(), Some(4));
    let took = start.elapsed();
    assert!((MINUTE * 7..MINUTE * 7 + SECOND).contains(&took));
    println!("delivered after 4 tries and {} minutes", took.as_secs() / 60);

    let start = Instant::now();
    assert!(deliver(async || false).await.is_err());
    assert!((DAY..DAY + SECOND).contains(&start.elapsed()));
    println!("given up after {} hours", start.elapsed().as_secs() / 3_600);

    // The test moves the clock itself.
    let mut report = time::interval(MINUTE * 60);
    report.set_missed_tick_behavior(MissedTickBehavior::Skip);
    report.tick().await;
    time::advance(MINUTE * 150).await;
    let late = report.tick().await.elapsed();
    let next = report.tick().await.elapsed();
    println!("a report {} minutes late, and the next {} s", late.as_secs() / 60, next.as_secs());
}

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(86_400);
