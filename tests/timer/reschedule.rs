//! Moving timeouts, in place.

use crate::help::{Count, Manual, ms, wait_until};
use std::time::Duration;
use tickwheel::{Mode, Status, Timer};

in_each_mode! {
    moved_later_it_is_silent_at_its_old_deadline,
    moved_earlier_it_fires_earlier,
    moved_into_the_past_it_fires_at_once,
    moved_to_never_it_does_not_fire,
    moved_a_thousand_times_it_does_not_drift,
    moved_among_others_it_comes_last_of_its_tick,
    moved_earlier_the_worker_is_told,
}

fn moved_later_it_is_silent_at_its_old_deadline(mode: Mode) {
    let manual = Manual::new(mode);
    let timeout = manual.timer.schedule(ms(100), manual.log.task(1)).expect("it runs");
    assert_eq!(manual.advance(80), []);
    assert!(timeout.reschedule(ms(120)));
    assert_eq!(timeout.deadline(), Some(manual.at(200)));
    assert_eq!(manual.advance(119), []);
    assert_eq!(manual.advance(1), [(200, 1)]);
    assert!(!timeout.reschedule(ms(1)));
    assert_eq!(timeout.status(), Status::Fired);
}

fn moved_earlier_it_fires_earlier(mode: Mode) {
    let manual = Manual::new(mode);
    let timeout = manual.timer.schedule(ms(200_000), manual.log.task(1)).expect("it runs");
    assert!(timeout.reschedule_at(manual.at(50)));
    assert!(timeout.reschedule_at(manual.at(40)));
    assert_eq!(manual.advance(39), []);
    assert_eq!(manual.advance(1), [(40, 1)]);
    assert_eq!(manual.advance(300_000), []);
}

fn moved_into_the_past_it_fires_at_once(mode: Mode) {
    let manual = Manual::new(mode);
    manual.advance(1_000);
    let timeout = manual.timer.schedule(ms(100), manual.log.task(1)).expect("it runs");
    assert!(timeout.reschedule_at(manual.at(500)));
    assert_eq!(manual.advance(0), [(1_000, 1)]);
}

fn moved_to_never_it_does_not_fire(mode: Mode) {
    let manual = Manual::new(mode);
    let timeout = manual.timer.schedule(ms(100), manual.log.task(1)).expect("it runs");
    assert!(timeout.reschedule(Duration::MAX));
    assert_eq!(timeout.deadline(), None);
    assert_eq!(manual.advance(1_000_000_000), []);
    assert_eq!(timeout.status(), Status::Pending);
    assert!(timeout.reschedule(ms(1)));
    assert_eq!(manual.advance(1), [(1_000_000_001, 1)]);
}

fn moved_a_thousand_times_it_does_not_drift(mode: Mode) {
    let manual = Manual::new(mode);
    let timeout = manual.timer.schedule(ms(10), manual.log.task(1)).expect("it runs");
    for _ in 0..1_000 {
        assert_eq!(manual.advance(9), []);
        assert!(timeout.reschedule(ms(10)));
    }
    assert_eq!(manual.advance(10), [(9_010, 1)]);
}

fn moved_among_others_it_comes_last_of_its_tick(mode: Mode) {
    let manual = Manual::new(mode);
    let first = manual.timer.schedule(ms(10), manual.log.task(1)).expect("it runs");
    let second = manual.timer.schedule(ms(20), manual.log.task(2)).expect("it runs");
    manual.timer.schedule(ms(10), manual.log.task(3)).expect("it runs");
    assert!(second.reschedule(ms(10)));
    assert!(first.reschedule(ms(10)));
    assert_eq!(manual.advance(20), [(10, 3), (10, 2), (10, 1)]);
}

/// With the system's clock, as a clock moved by hand tells the worker itself.
fn moved_earlier_the_worker_is_told(mode: Mode) {
    let timer = Timer::builder().mode(mode).build().expect("in range");
    let fired = Count::default();
    let timeout = timer.schedule(Duration::from_secs(3_600), fired.task()).expect("it runs");
    std::thread::sleep(ms(5));
    assert!(timeout.reschedule(ms(1)));
    wait_until(|| fired.get() == 1);
}
