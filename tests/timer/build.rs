//! Settings that can be built, and settings that cannot.

use crate::help::{Count, wait_until};
use std::time::Duration;
use tickwheel::{BuildError, Mode, Timer};

#[test]
fn numbers_out_of_range_are_errors() {
    let error = |tick| Timer::builder().tick(tick).build().expect_err("out of range");
    for tick in
        [Duration::ZERO, Duration::from_nanos(999), Duration::from_secs(3_601), Duration::MAX]
    {
        assert_eq!(error(tick), BuildError::Tick(tick));
    }
    for shards in [0, 1_025, usize::MAX] {
        let error = Timer::builder().shards(shards).build().expect_err("out of range");
        assert_eq!(error, BuildError::Shards(shards));
    }
    let error = Timer::builder().max_pending(0).build().expect_err("out of range");
    assert_eq!(error, BuildError::MaxPending);
    let error = Timer::builder().thread_name("a\0b").build().expect_err("no such name");
    assert_eq!(error, BuildError::ThreadName("a\0b".to_owned()));
    for error in [
        BuildError::Tick(Duration::ZERO),
        BuildError::Shards(0),
        BuildError::MaxPending,
        BuildError::ThreadName("a\0b".to_owned()),
    ] {
        assert!(error.to_string().is_ascii() && !error.to_string().is_empty());
    }
}

#[test]
fn numbers_at_the_ends_of_their_ranges_work() {
    for (tick, shards) in [(Duration::from_micros(1), 1), (Duration::from_secs(3_600), 1_024)] {
        let timer = Timer::builder()
            .tick(tick)
            .shards(shards)
            .max_pending(usize::MAX)
            .mode(Mode::hashed(1).expect("in range"))
            .build()
            .expect("in range");
        let timeout = timer.schedule(Duration::from_secs(60), || {}).expect("it runs");
        assert!(timeout.cancel());
    }
}

/// A thread is started by the first timeout, and not before.
#[test]
fn the_thread_starts_with_the_first_timeout() {
    let timer = Timer::builder().thread_name("lazy-thread").build().expect("in range");
    let Some(threads) = crate::help::threads_named("lazy-thread") else { return };
    assert_eq!(threads, 0);
    let fired = Count::default();
    timer.schedule(Duration::ZERO, fired.task()).expect("it runs");
    wait_until(|| fired.get() == 1);
    assert_eq!(crate::help::threads_named("lazy-thread"), Some(1));
    for _ in 0..10 {
        timer.schedule(Duration::ZERO, fired.task()).expect("it runs");
    }
    wait_until(|| fired.get() == 11);
    assert_eq!(crate::help::threads_named("lazy-thread"), Some(1));
}

#[test]
fn handles_and_errors_go_to_other_threads() {
    fn is_sent_and_shared<T: Send + Sync>() {}
    fn is_sent<T: Send>() {}
    is_sent_and_shared::<Timer>();
    is_sent_and_shared::<tickwheel::Timeout>();
    is_sent_and_shared::<tickwheel::ManualClock>();
    is_sent_and_shared::<tickwheel::ScheduleError<tickwheel::Task>>();
    is_sent::<tickwheel::Unfired>();
    is_sent::<tickwheel::TimerBuilder>();
}
