//! What the statistics count.

use crate::help::{BoxedTask, Hand, Kept, Manual, ms, taken};
use std::ops::ControlFlow;
use std::time::Duration;
use tickwheel::{MissedTick, Mode, Next, Run, Timer};

in_each_mode! {
    what_is_scheduled_moved_cancelled_and_refused_is_counted,
    a_repeating_timeout_is_scheduled_once,
    however_many_runs_were_missed_the_count_does_not_decrease,
    waits_of_futures_count,
}

fn what_is_scheduled_moved_cancelled_and_refused_is_counted(mode: Mode) {
    let manual = Manual::built(mode, |builder| builder.max_pending(3));
    let handles = [1, 2, 3].map(|delay| manual.idle(delay));
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

fn a_repeating_timeout_is_scheduled_once(manual: Manual) {
    let timeout = manual.timer.schedule_with(ms(1), |_: &Run| Next::After(ms(1))).expect("runs");
    manual.advance(10);
    assert!(timeout.reschedule(ms(3)));
    manual.advance(3);
    let stats = manual.timer.stats();
    assert_eq!((stats.scheduled, stats.fired, stats.rescheduled), (1, 11, 1));
}

fn however_many_runs_were_missed_the_count_does_not_decrease(manual: Manual) {
    let beat = manual.every(1, MissedTick::Skip, || ControlFlow::Continue(()));
    manual.jump(10);
    assert_eq!(manual.timer.stats().missed, 9);
    // Windows has no such instant.
    let Some(past) = manual.at(0).checked_sub(Duration::from_secs(1 << 62)) else { return };
    for _ in 0..2 {
        assert!(beat.reschedule_at(past));
        manual.advance(1);
        assert!(1 << 62 < manual.timer.stats().missed);
    }
}

fn waits_of_futures_count(mode: Mode) {
    let manual = Manual::built(mode, |builder| builder.max_pending(1));
    let mut sleeps = [1, 2].map(|delay| manual.timer.sleep(ms(delay)));
    assert!(Hand::new().poll(&mut sleeps[0]).is_pending());
    assert!(Hand::new().poll(&mut sleeps[1]).is_ready(), "refused");
    drop(sleeps);
    let stats = manual.timer.stats();
    assert_eq!((stats.scheduled, stats.cancelled, stats.rejected), (1, 1, 1));
}

#[test]
fn an_interval_counts_the_ticks_it_missed() {
    let (manual, hand) = (Manual::new(Mode::default()), Hand::new());
    let mut interval = manual.timer.interval(ms(10));
    interval.set_missed_tick(MissedTick::Skip);
    assert!(interval.poll_tick(&mut hand.context()).is_ready());
    manual.jump(45);
    assert!(interval.poll_tick(&mut hand.context()).is_ready());
    // Those at 20, 30 and 40.
    assert_eq!(manual.timer.stats().missed, 3);
}

#[test]
fn how_long_tasks_waited_for_the_executor_is_told() {
    let kept = Kept::default();
    let manual = Manual::with(|builder| builder.executor(kept.executor()));
    (0..3).for_each(|_| drop(manual.idle(1)));
    manual.advance(1);
    let [first, second, third] = [(); 3].map(|()| taken(&kept));
    manual.advance(40);
    first();
    manual.advance(60);
    second();
    drop(third);
    let waits = manual.timer.stats().executor_wait;
    assert_eq!((waits.count(), waits.sum(), waits.max()), (2, ms(140), ms(100)));
    assert_eq!(Timer::new().stats().executor_wait.sum(), Duration::ZERO);
}

#[test]
fn tasks_as_long_as_the_threshold_are_slow_on_the_worker_and_elsewhere() {
    for is_elsewhere in [false, true] {
        let manual = Manual::with(|builder| match is_elsewhere {
            true => builder.slow_task(ms(10)).executor(|task: BoxedTask| task()),
            false => builder.slow_task(ms(10)),
        });
        // Inside a task, the clock moves and does not wait.
        let takes = |micros| {
            let clock = manual.clock.clone();
            move || clock.advance(Duration::from_micros(micros))
        };
        for (at, micros) in [(100, 9_999), (200, 10_000), (300, 50_000)] {
            manual.after(at, takes(micros));
        }
        let panics = takes(10_000);
        let task = move || {
            panics();
            panic!("as the test wants it");
        };
        manual.after(400, task);
        let repeats = takes(12_000);
        let task = move |run: &Run| {
            repeats();
            if run.count() == 3 { Next::Stop } else { Next::After(ms(10)) }
        };
        manual.timer.schedule_with(ms(500), task).expect("it runs");
        manual.advance(1_000);
        assert_eq!(manual.timer.stats().slow_tasks, 6, "elsewhere: {is_elsewhere}");
    }
}
