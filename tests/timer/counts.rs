//! What the statistics count.

use crate::help::{Count, Manual, ms, wait_until};
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;
use tickwheel::{ManualClock, Mode, Next, Run, Timer};

type BoxedTask = Box<dyn FnOnce() + Send>;

in_each_mode! {
    what_is_scheduled_moved_cancelled_and_refused_is_counted,
    a_repeating_timeout_is_scheduled_once,
    waits_of_futures_count,
}

fn what_is_scheduled_moved_cancelled_and_refused_is_counted(mode: Mode) {
    let manual = Manual::built(mode, |builder| builder.max_pending(3));
    let handles = [1, 2, 3].map(|delay| manual.timer.schedule(ms(delay), || {}).expect("it runs"));
    assert!(manual.timer.schedule(ms(4), || {}).is_err());
    assert!(handles[2].reschedule(ms(9)) && handles[2].reschedule(ms(8)));
    assert!(handles[1].cancel() && !handles[1].cancel() && !handles[1].reschedule(ms(5)));
    manual.advance(10);
    let stats = manual.timer.stats();
    assert_eq!((stats.scheduled, stats.fired, stats.cancelled), (3, 2, 1));
    assert_eq!((stats.rescheduled, stats.rejected, stats.missed), (2, 1, 0));
    manual.timer.stop().expect("outside");
    assert!(manual.timer.schedule(ms(4), || {}).is_err());
    assert_eq!(manual.timer.stats().rejected, 2);
}

fn a_repeating_timeout_is_scheduled_once(mode: Mode) {
    let manual = Manual::new(mode);
    let timeout = manual.timer.schedule_with(ms(1), |_: &Run| Next::After(ms(1))).expect("runs");
    manual.advance(10);
    assert!(timeout.reschedule(ms(3)));
    manual.advance(3);
    let stats = manual.timer.stats();
    assert_eq!((stats.scheduled, stats.fired, stats.rescheduled), (1, 11, 1));
}

fn waits_of_futures_count(mode: Mode) {
    let manual = Manual::built(mode, |builder| builder.max_pending(1));
    let mut context = Context::from_waker(Waker::noop());
    let mut sleeps = [1, 2].map(|delay| Box::pin(manual.timer.sleep(ms(delay))));
    assert!(sleeps[0].as_mut().poll(&mut context).is_pending());
    assert!(sleeps[1].as_mut().poll(&mut context).is_ready(), "refused");
    drop(sleeps);
    let stats = manual.timer.stats();
    assert_eq!((stats.scheduled, stats.cancelled, stats.rejected), (1, 1, 1));
}

#[test]
fn an_interval_counts_the_ticks_it_missed() {
    let clock = ManualClock::new();
    let timer = Timer::builder().clock(clock.clone()).build().expect("in range");
    let mut interval = timer.interval(ms(10));
    interval.set_missed_tick(tickwheel::MissedTick::Skip);
    let mut context = Context::from_waker(Waker::noop());
    assert!(interval.poll_tick(&mut context).is_ready());
    clock.jump(ms(45));
    assert!(interval.poll_tick(&mut context).is_ready());
    // Those at 20, 30 and 40.
    assert_eq!(timer.stats().missed, 3);
}

#[test]
fn how_long_tasks_waited_for_the_executor_is_told() {
    let (clock, kept) = (ManualClock::new(), Arc::new(Mutex::new(Vec::<BoxedTask>::new())));
    let keeps = Arc::clone(&kept);
    let timer = Timer::builder()
        .clock(clock.clone())
        .executor(move |task| keeps.lock().unwrap().push(task))
        .build()
        .expect("in range");
    let runs = Count::default();
    for _ in 0..3 {
        timer.schedule(ms(1), runs.task()).expect("it runs");
    }
    clock.advance(ms(1));
    wait_until(|| kept.lock().unwrap().len() == 3);
    clock.advance(ms(40));
    let [first, second, third] = <[_; 3]>::try_from(kept.lock().unwrap().split_off(0))
        .unwrap_or_else(|_| unreachable!("it has three"));
    first();
    clock.advance(ms(60));
    second();
    drop(third);
    let waits = timer.stats().executor_wait;
    assert_eq!((waits.count(), waits.sum(), waits.max()), (2, ms(140), ms(100)));
    assert_eq!(Timer::new().stats().executor_wait.sum(), Duration::ZERO);
}

#[test]
fn tasks_as_long_as_the_threshold_are_slow_on_the_worker_and_elsewhere() {
    for is_elsewhere in [false, true] {
        let clock = ManualClock::new();
        let builder = Timer::builder().clock(clock.clone()).slow_task(ms(10));
        let timer = match is_elsewhere {
            true => builder.executor(|task: BoxedTask| task()).build(),
            false => builder.build(),
        };
        let timer = timer.expect("in range");
        // Inside a task, the clock moves and does not wait.
        let takes = |duration| {
            let clock = clock.clone();
            move || clock.advance(duration)
        };
        for (at, micros) in [(100, 9_999), (200, 10_000), (300, 50_000)] {
            timer.schedule(ms(at), takes(Duration::from_micros(micros))).expect("it runs");
        }
        let panics = clock.clone();
        let task = move || {
            panics.advance(ms(10));
            panic!("as the test wants it");
        };
        timer.schedule(ms(400), task).expect("it runs");
        let repeats = takes(ms(12));
        let task = move |run: &Run| {
            repeats();
            if run.count() == 3 { Next::Stop } else { Next::After(ms(10)) }
        };
        timer.schedule_with(ms(500), task).expect("it runs");
        clock.advance(ms(1_000));
        assert_eq!(timer.stats().slow_tasks, 6);
    }
}
