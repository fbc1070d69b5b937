//! Nothing to do costs nothing: the worker's wake-ups, counted.

use crate::help::{Count, Manual, ms, wait_until};
use std::thread;
use std::time::Duration;
use tickwheel::{Mode, Timeout, Timer};

in_each_mode! {
    an_empty_timer_never_wakes_up,
    one_an_hour_away_is_not_looked_at,
    many_hours_away_are_not_looked_at,
    cancelled_and_scheduled_again_nobody_is_woken,
    later_ones_wake_nobody,
    an_earlier_one_wakes_the_worker_once,
    years_of_waiting_are_a_handful_of_wake_ups,
}

fn real(mode: Mode) -> Timer {
    Timer::builder().mode(mode).build().expect("in range")
}

/// The wake-ups within some time in which nobody does anything.
fn wake_ups_within(timer: &Timer, duration: Duration) -> u64 {
    let before = timer.stats().wake_ups;
    thread::sleep(duration);
    timer.stats().wake_ups - before
}

fn an_empty_timer_never_wakes_up(mode: Mode) {
    let timer = real(mode);
    assert_eq!(wake_ups_within(&timer, ms(20)), 0);
    let fired = Count::default();
    timer.schedule(Duration::ZERO, fired.task()).expect("it runs");
    wait_until(|| fired.get() == 1);
    // Going to sleep may be a wake-up if it was told of what it found anyway.
    thread::sleep(ms(5));
    assert_eq!(wake_ups_within(&timer, ms(100)), 0);
}

fn one_an_hour_away_is_not_looked_at(mode: Mode) {
    let timer = real(mode);
    let _timeout = timer.schedule(Duration::from_secs(3_600), || {}).expect("it runs");
    thread::sleep(ms(5));
    assert_eq!(wake_ups_within(&timer, ms(200)), 0);
}

fn many_hours_away_are_not_looked_at(mode: Mode) {
    let timer = real(mode);
    for number in 0..10_000 {
        let delay = Duration::from_secs(3_600) + ms(number * 7_919 % 3_600_000);
        timer.schedule(delay, || {}).expect("it runs");
    }
    thread::sleep(ms(5));
    assert_eq!(wake_ups_within(&timer, ms(200)), 0);
}

fn cancelled_and_scheduled_again_nobody_is_woken(mode: Mode) {
    let timer = real(mode);
    let first = timer.schedule(Duration::from_secs(3_600), || {}).expect("it runs");
    assert!(first.cancel());
    thread::sleep(ms(5));
    let before = timer.stats().wake_ups;
    for _ in 0..10_000 {
        let timeout = timer.schedule(Duration::from_secs(3_600), || {}).expect("it runs");
        assert!(timeout.reschedule(Duration::from_secs(4_000)));
        assert!(timeout.cancel());
    }
    assert_eq!(timer.stats().wake_ups, before);
}

fn later_ones_wake_nobody(mode: Mode) {
    let timer = real(mode);
    let mut timeouts: Vec<Timeout> = Vec::new();
    timeouts.push(timer.schedule(Duration::from_secs(60), || {}).expect("it runs"));
    thread::sleep(ms(5));
    let before = timer.stats().wake_ups;
    for number in 0..1_000 {
        timeouts.push(timer.schedule(Duration::from_secs(61) + ms(number), || {}).expect("runs"));
    }
    // In this thread's shard, so that what is known of that shard serves for all.
    thread::sleep(ms(20));
    assert_eq!(timer.stats().wake_ups, before);
}

fn an_earlier_one_wakes_the_worker_once(mode: Mode) {
    let timer = real(mode);
    let _far = timer.schedule(Duration::from_secs(3_600), || {}).expect("it runs");
    thread::sleep(ms(10));
    let before = timer.stats().wake_ups;
    let _near = timer.schedule(Duration::from_secs(1_800), || {}).expect("it runs");
    wait_until(|| timer.stats().wake_ups > before);
    assert_eq!(wake_ups_within(&timer, ms(50)), 0);
    assert_eq!(timer.stats().wake_ups, before + 1);
}

fn years_of_waiting_are_a_handful_of_wake_ups(mode: Mode) {
    let manual = Manual::new(mode);
    let cancelled: Vec<_> = (1..100)
        .map(|hour| manual.timer.schedule(ms(hour * 3_600_000), || {}).expect("it runs"))
        .collect();
    manual.timer.schedule(ms(1 << 40), manual.log.task(1)).expect("it runs");
    assert!(cancelled.iter().all(Timeout::cancel));
    assert_eq!(manual.advance(1 << 40), [(1 << 40, 1)]);
    // For each stop of the clock there are two at most, and one stop for what was cancelled.
    assert!(manual.timer.stats().wake_ups < 100, "{}", manual.timer.stats().wake_ups);
}
