//! What is late, by how much, and how one sees it.

use crate::help::{Count, Manual, ms, wait_until};
use std::sync::mpsc;
use std::time::Duration;
use tickwheel::{Mode, Timer};

in_each_mode! {
    a_blocked_worker_skips_nothing,
    on_time_is_not_late,
    a_jump_shows_as_lateness,
}

fn a_blocked_worker_skips_nothing(mode: Mode) {
    let manual = Manual::new(mode);
    let (clock, log) = (manual.clock.clone(), manual.log.clone());
    // On the worker the clock only moves, as if the task took so long.
    let slow = move || {
        log.write(1);
        clock.advance(ms(10));
    };
    manual.timer.schedule(ms(1), slow).expect("it runs");
    manual.timer.schedule(ms(5), manual.log.task(2)).expect("it runs");
    manual.timer.schedule(ms(30), manual.log.task(3)).expect("it runs");
    assert_eq!(manual.advance(30), [(1, 1), (11, 2), (30, 3)]);
    let stats = manual.timer.stats();
    assert_eq!(stats.longest_task, ms(10));
    assert_eq!(stats.lateness.max(), ms(6));
    assert_eq!(stats.lateness.count(), 3);
}

fn on_time_is_not_late(mode: Mode) {
    let manual = Manual::new(mode);
    for delay in 1..100 {
        manual.timer.schedule(ms(delay), || {}).expect("it runs");
    }
    manual.advance(100);
    let stats = manual.timer.stats();
    assert_eq!(stats.fired, 99);
    assert_eq!((stats.lateness.count(), stats.lateness.max()), (99, Duration::ZERO));
}

fn a_jump_shows_as_lateness(mode: Mode) {
    let manual = Manual::new(mode);
    for delay in 1..=100 {
        manual.timer.schedule(ms(delay), || {}).expect("it runs");
    }
    assert_eq!(manual.jump(100).len(), 0);
    let lateness = manual.timer.stats().lateness;
    assert_eq!((lateness.count(), lateness.max()), (100, ms(99)));
    let median = lateness.quantile(0.5);
    assert!(ms(49) <= median && median <= ms(49) * 9 / 8, "{median:?}");
    assert_eq!(lateness.iter().map(|(_, count)| count).sum::<u64>(), 100);
}

#[test]
fn a_slow_task_shows_in_the_stats() {
    let timer = Timer::builder().shards(1).build().expect("in range");
    let (sender, receiver) = mpsc::channel();
    let (begun, fired) = (Count::default(), Count::default());
    let count = begun.clone();
    let slow = move || {
        count.add();
        receiver.recv().unwrap();
    };
    timer.schedule(ms(1), slow).expect("it runs");
    timer.schedule(ms(2), fired.task()).expect("it runs");
    wait_until(|| begun.get() == 1);
    std::thread::sleep(ms(40));
    assert_eq!(fired.get(), 0);
    sender.send(()).unwrap();
    wait_until(|| timer.stats().lateness.count() == 2 && fired.get() == 1);
    wait_until(|| timer.stats().longest_task >= ms(20));
    assert!(timer.stats().lateness.max() >= ms(20));
}
