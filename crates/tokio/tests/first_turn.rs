//! Before the driver's task has had its first turn. One test, alone in its process: while any driver
//! is late, each poll asks tokio's timer.

use std::pin::pin;
use tickwheel_tokio::time::{sleep, sleep_until};
use tokio::runtime::Builder;
use tokio::time::{Duration, Instant, advance};

#[test]
fn what_is_due_before_the_first_turn_of_the_driver_is_ready() {
    const MS: Duration = Duration::from_millis(1);
    let mut builder = Builder::new_current_thread();
    builder.enable_time().start_paused(true).event_interval(1);
    builder.build().expect("it starts").block_on(async {
        let past = Instant::now();
        advance(5 * MS).await;
        let mut moved = pin!(sleep(60_000 * MS));
        assert!(futures::poll!(moved.as_mut()).is_pending());
        moved.as_mut().reset(past);
        // There is an earlier one, so nobody is told of it.
        assert!(futures::poll!(pin!(sleep_until(past))).is_ready());
        assert!(futures::poll!(moved).is_ready());
    });
    builder.build().expect("it starts").block_on(async {
        // They have their turns before the driver, and tokio looks at its timer after each.
        (0..20).for_each(|_| drop(tokio::spawn(async {})));
        let mut waits = pin!(sleep(MS));
        assert!(futures::poll!(waits.as_mut()).is_pending());
        advance(5 * MS).await;
        assert!(futures::poll!(waits).is_ready());
    });
}
