//! Settings that can be built, and settings that cannot.

use crate::help::{Count, Hand, build, ms, threads_named};
use std::error::Error;
use std::io::ErrorKind::PermissionDenied;
use std::process::{Command, Stdio};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};
use tickwheel::{BuildError, ManualClock, Mode, ScheduleError, Task, Timeout, Timer};
use tickwheel::{ScheduleErrorKind, Status, TimerBuilder, Unfired};

#[test]
fn numbers_out_of_range_are_errors() {
    let mut cases = vec![
        (Timer::builder().max_pending(0), BuildError::MaxPending),
        (Timer::builder().thread_name("a\0b"), BuildError::ThreadName("a\0b".to_owned())),
    ];
    for tick in [0, 999, 3_600_000_000_001, u64::MAX].map(Duration::from_nanos) {
        cases.push((Timer::builder().tick(tick), BuildError::Tick(tick)));
    }
    cases.push((Timer::builder().tick(Duration::MAX), BuildError::Tick(Duration::MAX)));
    for shards in [0, 1_025, usize::MAX] {
        cases.push((Timer::builder().shards(shards), BuildError::Shards(shards)));
    }
    for (builder, error) in cases {
        assert!(error.to_string().is_ascii() && !error.to_string().is_empty(), "{error:?}");
        assert_eq!(builder.build().expect_err("out of range"), error);
    }
}

#[test]
fn each_error_says_what_is_wrong() {
    let denied = PermissionDenied;
    for (error, words) in [
        (&BuildError::Recorder(denied) as &dyn Error, "recording could not be started: permission"),
        (&ScheduleErrorKind::Worker(denied), "worker thread: permission"),
        (&ScheduleErrorKind::Full, "as its limit allows"),
        (&ScheduleErrorKind::Deadlock, "could be for ever"),
    ] {
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn numbers_at_the_ends_of_their_ranges_work() {
    for (tick, shards) in [(Duration::from_micros(1), 1), (Duration::from_secs(3_600), 1_024)] {
        let mode = Mode::hashed(1).expect("in range");
        let timer = build(|it| it.tick(tick).shards(shards).max_pending(usize::MAX).mode(mode));
        assert!(timer.schedule(ms(3_600_000), || {}).expect("it runs").cancel());
    }
}

#[test]
fn the_default_tick_depends_on_the_mode_and_on_who_drives_the_timer() {
    let clock = ManualClock::new();
    let tick = |timer: Timer| {
        let timeout = timer.schedule(Duration::from_nanos(1), || {}).expect("it runs");
        timeout.deadline().expect("an instant holds it") - clock.now()
    };
    let builder = || Timer::builder().clock(clock.clone());
    let hashed = Mode::hashed(512).expect("in range");
    assert_eq!(tick(build(|_| builder())), Duration::from_nanos(62_500));
    assert_eq!(tick(build(|_| builder().mode(hashed))), ms(1));
    assert_eq!(tick(builder().build_driven().expect("in range").0), ms(1));
    #[cfg(feature = "record")]
    assert_eq!(tick(build(|_| builder().record(std::io::sink()))), ms(1));
}

#[test]
fn ticks_begin_where_the_caller_says() {
    let clock = ManualClock::new();
    let now = clock.now();
    let apart = [0, 1, 400, 999, 1_000, 12_345_678].map(Duration::from_micros);
    for start in apart.into_iter().flat_map(|apart| [now - apart, now + apart]) {
        let timer = build(|it| it.tick(ms(1)).clock(clock.clone()).ticks_from(start));
        for delay in [0, 300, 999, 1_000, 7_001].map(Duration::from_micros) {
            let timeout = timer.schedule(delay, || {}).expect("it runs");
            let deadline = timeout.deadline().expect("an instant holds it");
            let from_start = deadline.max(start) - deadline.min(start);
            assert_eq!(from_start.subsec_nanos() % 1_000_000, 0, "a whole tick");
            assert!((delay..delay + ms(1)).contains(&(deadline - now)), "{delay:?}");
        }
    }
    let far = build(|it| it.clock(clock.clone()).ticks_from(now + Duration::from_secs(1 << 40)));
    let timeout = far.schedule_at(now + ms(2), || {}).expect("it runs");
    clock.advance(ms(1));
    assert_eq!(timeout.status(), Status::Pending);
    clock.advance(ms(2));
    assert_eq!(timeout.status(), Status::Fired);
}

#[test]
fn ticks_are_counted_back_from_a_start_that_is_centuries_away() {
    const HOUR: Duration = Duration::from_secs(3_600);
    let clock = ManualClock::starting_at(Instant::now() + HOUR);
    let now = clock.now();
    let start = now + HOUR * 5_259_600 + HOUR / 2;
    let timer = build(|it| it.tick(HOUR).clock(clock).ticks_from(start));
    let timeout = timer.schedule(Duration::from_secs(1), || {}).expect("it runs");
    assert_eq!(timeout.deadline(), Some(now + HOUR / 2));
}

#[test]
fn the_thread_starts_with_the_first_timeout_and_not_before() {
    let timer = build(|builder| builder.thread_name("lazy-thread"));
    let Some(threads) = threads_named("lazy-thread") else { return };
    assert_eq!(threads, 0);
    let fired = Count::default();
    for (timeouts, all) in [(1, 1), (10, 11)] {
        for _ in 0..timeouts {
            timer.schedule(Duration::ZERO, fired.task()).expect("it runs");
        }
        fired.wait_for(all);
        assert_eq!(threads_named("lazy-thread"), Some(1));
    }
}

/// In a second process, where no thread finds memory for its stack.
#[cfg(target_os = "linux")]
#[test]
fn a_worker_that_cannot_start_is_an_error_that_gives_the_task_back() {
    const NAME: &str = "build::a_worker_that_cannot_start_is_an_error_that_gives_the_task_back";
    // More than there are addresses for.
    const BYTES: &str = if usize::BITS < 64 { "4000000000" } else { "1125899906842624" };
    const VARIABLE: (&str, &str) = ("RUST_MIN_STACK", BYTES);
    if std::env::var(VARIABLE.0).as_deref() != Ok(VARIABLE.1) {
        let mut child = Command::new(std::env::current_exe().expect("it runs"));
        child.args(["--exact", NAME, "--test-threads=1"]).env(VARIABLE.0, VARIABLE.1);
        let mut child = child.stdout(Stdio::piped()).spawn().expect("it starts");
        let mut rounds = 0;
        while matches!(child.try_wait(), Ok(None)) && rounds < 60_000 {
            rounds += 1;
            thread::sleep(ms(1));
        }
        let _ = child.kill();
        let output = child.wait_with_output().expect("it has ended");
        let said = String::from_utf8_lossy(&output.stdout);
        return assert!(output.status.success() && said.contains("1 passed"), "{said}");
    }
    let (clock, runs) = (ManualClock::new(), Count::default());
    let timer = build(|it| it.clock(clock.clone()).max_pending(1));
    // It leaves no place taken.
    for _ in 0..3 {
        let error = timer.schedule(ms(1), runs.task()).expect_err("there is no worker");
        assert!(matches!(error.kind(), ScheduleErrorKind::Worker(_)), "{error}");
        error.into_task()();
        assert_eq!(timer.pending(), 0);
    }
    let slept = Hand::new().poll(&mut timer.sleep(ms(1)));
    assert!(matches!(slept, Poll::Ready(Err(ScheduleErrorKind::Worker(_)))), "{slept:?}");
    clock.advance(ms(5));
    assert_eq!((runs.get(), timer.stop().expect("outside").len()), (3, 0));
}

/// Handles and errors go to other threads: it compiles.
const _: fn() = || {
    fn is_sent_and_shared<T: Send + Sync>() {}
    fn is_sent<T: Send>() {}
    is_sent_and_shared::<(Timer, Timeout, ManualClock, ScheduleError<Task>)>();
    is_sent::<(Unfired, TimerBuilder)>();
};
