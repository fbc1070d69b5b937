//! Sleeps, timeouts, intervals and a delay queue under smol, on the timer of the process.
//!
//!     cargo run --release --example smol

use std::error::Error;
use std::time::Duration;
use tickwheel::{DelayQueue, MissedTick};

fn main() -> Result<(), Box<dyn Error>> {
    smol::block_on(async {
        tickwheel::sleep(Duration::from_millis(10)).await?;
        println!("after 10 ms");

        // A request whose answer takes too long.
        let answer = smol::spawn(async {
            tickwheel::sleep(Duration::from_secs(60)).await?;
            Ok::<_, tickwheel::ScheduleErrorKind>("answer")
        });
        match tickwheel::timeout(Duration::from_millis(10), answer).await {
            Ok(answer) => println!("{}", answer?),
            Err(elapsed) => println!("no answer: {elapsed}"),
        }

        let mut interval = tickwheel::interval(Duration::from_millis(5));
        interval.set_missed_tick(MissedTick::Skip);
        let start = interval.tick().await?;
        for _ in 0..3 {
            println!("a tick after {:?}", interval.tick().await? - start);
        }

        let mut sessions = DelayQueue::new();
        let short = sessions.insert("short", Duration::from_millis(5));
        let long = sessions.insert("long", Duration::from_secs(3_600));
        sessions.insert("other", Duration::from_millis(10));
        sessions.reset(short, Duration::from_millis(20));
        sessions.remove(long);
        while let Some(due) = sessions.next().await {
            println!("session {} is over", due?.value);
        }
        Ok(())
    })
}
