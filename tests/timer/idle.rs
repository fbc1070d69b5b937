//! Nothing to do costs nothing: the worker's wake-ups, counted.

use crate::help::{Count, Manual, build, ms, wait_until};
use std::thread;
use std::time::Duration;
use tickwheel::{Mode, Timeout, Timer};

in_each_mode! {
    an_empty_timer_never_wakes_up,
    hours_away_they_are_not_looked_at,
    cancelled_and_scheduled_again_nobody_is_woken,
    later_ones_wake_nobody,
    later_ones_of_other_threads_wake_nobody,
    an_earlier_one_wakes_the_worker_once,
    years_of_waiting_are_a_handful_of_wake_ups,
}

/// Waits until nobody is woken while `idle` goes on: what was to be done before may take a while on
/// a busy machine, but it comes to an end.
#[track_caller]
fn wait_until_nobody_is_woken_by(timer: &Timer, mut idle: impl FnMut()) {
    let start = timer.stats().wake_ups;
    wait_until(|| {
        let before = timer.stats().wake_ups;
        idle();
        timer.stats().wake_ups == before
    });
    let wake_ups = timer.stats().wake_ups - start;
    assert!(wake_ups <= TOLD, "{wake_ups} wake-ups");
}

#[track_caller]
fn wait_until_asleep(timer: &Timer) {
    wait_until_nobody_is_woken_by(timer, || thread::sleep(ms(200)));
}

/// Has its thread run a task.
fn fires_one(timer: &Timer) {
    let fired = Count::default();
    timer.schedule(Duration::ZERO, fired.task()).expect("it runs");
    fired.wait_for(1);
}

fn an_empty_timer_never_wakes_up(mode: Mode) {
    let timer = build(|builder| builder.mode(mode));
    thread::sleep(ms(20));
    assert_eq!(timer.stats().wake_ups, 0);
    fires_one(&timer);
    wait_until_asleep(&timer);
}

fn hours_away_they_are_not_looked_at(mode: Mode) {
    for timeouts in [1, 10_000] {
        let timer = build(|builder| builder.mode(mode));
        for number in 0..timeouts {
            let delay = HOUR + ms(number * 7_919 % 3_600_000);
            timer.schedule(delay, || {}).expect("it runs");
        }
        wait_until_asleep(&timer);
    }
}

fn cancelled_and_scheduled_again_nobody_is_woken(mode: Mode) {
    let timer = build(|builder| builder.mode(mode));
    assert!(timer.schedule(HOUR, || {}).expect("it runs").cancel());
    wait_until_nobody_is_woken_by(&timer, || {
        for _ in 0..10_000 {
            let timeout = timer.schedule(HOUR, || {}).expect("it runs");
            assert!(timeout.reschedule(Duration::from_secs(4_000)));
            assert!(timeout.cancel());
        }
    });
}

fn later_ones_wake_nobody(mode: Mode) {
    let timer = build(|builder| builder.mode(mode));
    timer.schedule(HOUR, || {}).expect("it runs");
    // In this thread's shard, so that what is known of that shard serves for all.
    wait_until_nobody_is_woken_by(&timer, || {
        for number in 1..=1_000 {
            timer.schedule(HOUR + ms(number), || {}).expect("it runs");
        }
        thread::sleep(ms(20));
    });
}

fn later_ones_of_other_threads_wake_nobody(mode: Mode) {
    let timer = build(|builder| builder.mode(mode).shards(2));
    timer.schedule(HOUR, || {}).expect("it runs");
    // Each is the earliest of its own shard, if that is not the shard of the first.
    let mut delay = Duration::from_secs(1_000_000);
    wait_until_nobody_is_woken_by(&timer, || {
        for _ in 0..8 {
            delay -= Duration::from_secs(1);
            let schedule = || timer.schedule(delay, || {}).expect("it runs");
            thread::scope(|scope| scope.spawn(schedule).join()).expect("it does not panic");
            thread::sleep(ms(5));
        }
    });
}

fn an_earlier_one_wakes_the_worker_once(mode: Mode) {
    let timer = build(|builder| builder.mode(mode));
    timer.schedule(HOUR, || {}).expect("it runs");
    // Its thread is there, and has looked.
    fires_one(&timer);
    wait_until_asleep(&timer);
    // On a busy machine it may come only now to what it was told before, and next time it has.
    let mut delay = HOUR;
    wait_until(|| {
        let before = timer.stats().wake_ups;
        delay -= Duration::from_secs(1);
        timer.schedule(delay, || {}).expect("it runs");
        wait_until(|| timer.stats().wake_ups > before);
        wait_until_asleep(&timer);
        timer.stats().wake_ups == before + 1
    });
}

fn years_of_waiting_are_a_handful_of_wake_ups(manual: Manual) {
    let cancelled: Vec<_> = (1..100).map(|hour| manual.idle(hour * 3_600_000)).collect();
    manual.once(1 << 40, 1);
    assert!(cancelled.iter().all(Timeout::cancel));
    assert_eq!(manual.advance(1 << 40), [(1 << 40, 1)]);
    // For each stop of the clock there are two at most, and one stop for what was cancelled.
    assert!(manual.timer.stats().wake_ups < 100, "{}", manual.timer.stats().wake_ups);
}

const HOUR: Duration = Duration::from_secs(3_600);

/// The worker is told of what is scheduled first, and on a busy machine may get to it late; more
/// than that nobody has to wake it for.
const TOLD: u64 = 2;
