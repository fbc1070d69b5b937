//! Sleeps, timeouts, intervals and a delay queue under smol: on the timer of the process, and on a
//! timer that has no thread, because a task of smol's drives it.
//!
//!     cargo run --release --example smol

use std::error::Error;
use std::time::Duration;
use tickwheel::{DelayQueue, MissedTick, Timer};

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

        // The driver waits with smol's own timer, for the earliest deadline of all.
        let (timer, driver) = Timer::builder().build_driven()?;
        let driven = smol::spawn(driver.run(smol::Timer::at));
        let sleeps = (0..1_000).map(|number| timer.sleep(Duration::from_micros(number * 10)));
        for sleep in sleeps.collect::<Vec<_>>() {
            sleep.await?;
        }
        println!("1000 sleeps, {} turns of the driver", timer.stats().wake_ups);
        timer.stop()?;
        driven.await;
        Ok(())
    })
}
