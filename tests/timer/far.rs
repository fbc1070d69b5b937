//! Delays of years, and of more than there are.

use crate::common::long;
use crate::help::{Manual, ms};
use std::time::{Duration, Instant};
use tickwheel::{Mode, Status, Timer};

in_each_mode! {
    the_longest_delay_does_not_fire,
    huge_delays_neither_fire_nor_spin,
    years_go_by_in_no_time,
    a_far_one_does_not_hide_a_near_one,
    more_years_than_a_u64_has_nanoseconds_go_by,
    time_ends_where_an_instant_does,
    what_an_instant_holds_fires_before_time_ends,
}

fn the_longest_delay_does_not_fire(manual: Manual) {
    let timeout = manual.timer.schedule(Duration::MAX, manual.log.task(1)).expect("it runs");
    assert_eq!(timeout.deadline(), None);
    assert_eq!(manual.advance(1_000), []);
    manual.clock.advance(Duration::from_secs(1 << 40));
    assert_eq!(manual.log.take(), []);
    assert_eq!(timeout.status(), Status::Pending);
    assert!(timeout.cancel());
}

fn huge_delays_neither_fire_nor_spin(mode: Mode) {
    for tick in [Duration::from_micros(1), ms(1), Duration::from_secs(3_600)] {
        let manual = Manual::built(mode, |builder| builder.tick(tick));
        let millis = [1 << 32, (1 << 32) + 254, 1 << 61, u64::MAX].map(ms);
        let seconds = [1 << 61, u64::MAX].map(Duration::from_secs);
        let delays = millis.into_iter().chain(seconds).chain([Duration::MAX]);
        let timeouts: Vec<_> =
            delays.map(|delay| manual.timer.schedule(delay, || unreachable!()).unwrap()).collect();
        let before = manual.timer.stats().wake_ups;
        manual.clock.advance(ms((1 << 32) - 1));
        assert!(timeouts.iter().all(|timeout| timeout.status() == Status::Pending));
        // One for each time it was told, and then some, as those in the way come up.
        assert!(manual.timer.stats().wake_ups - before < 100);
        assert!(timeouts.iter().all(tickwheel::Timeout::cancel));
        assert_eq!(manual.timer.stats().panics, 0);
    }
}

fn years_go_by_in_no_time(manual: Manual) {
    const DAY: u64 = 86_400_000;
    let expected: Vec<_> =
        (1..=3_650).step_by(long(50, 1)).map(|day| (u64::from(day) * DAY, day)).collect();
    for &(delay, day) in &expected {
        manual.once(delay, day);
    }
    assert_eq!(manual.advance(3_650 * DAY), expected);
}

fn a_far_one_does_not_hide_a_near_one(manual: Manual) {
    manual.once(1 << 36, 1);
    manual.advance(1 << 30);
    manual.once(60_000, 2);
    assert_eq!(manual.advance(60_000), [((1 << 30) + 60_000, 2)]);
    assert_eq!(manual.advance(1 << 36), [(1 << 36, 1)]);
}

fn more_years_than_a_u64_has_nanoseconds_go_by(manual: Manual) {
    const YEAR: u64 = 31_557_600_000;
    for (number, years) in [(1, 584), (2, 585), (3, 10_000)] {
        assert_eq!(manual.once(years * YEAR, number).deadline(), Some(manual.at(years * YEAR)));
    }
    assert_eq!(manual.advance(584 * YEAR), [(584 * YEAR, 1)]);
    assert_eq!(manual.advance(YEAR - 1), []);
    assert_eq!(manual.advance(1), [(585 * YEAR, 2)]);
    manual.once(7, 4);
    assert_eq!(manual.advance(7), [(585 * YEAR + 7, 4)]);
    assert_eq!(manual.advance(9_415 * YEAR), [(10_000 * YEAR, 3)]);
}

fn time_ends_where_an_instant_does(manual: Manual) {
    manual.timer.schedule(Duration::MAX, || unreachable!()).expect("it runs");
    manual.once(10, 1);
    manual.clock.advance(Duration::MAX);
    assert_eq!(manual.log.take(), [(10, 1)]);
    manual.clock.advance(Duration::MAX);
    manual.clock.jump(Duration::MAX);
    // There is no later instant, and there may be no such tick: nothing fires, and all goes on.
    let timeout = manual.after(1, || unreachable!());
    manual.clock.advance(ms(1));
    assert!(timeout.cancel());
}

fn what_an_instant_holds_fires_before_time_ends(mode: Mode) {
    let manual = Manual::built(mode, |builder| builder.tick(Duration::from_secs(3_600)));
    let delay = Duration::from_secs(6_000_000_000_000_000_000);
    let timeout = manual.timer.schedule(delay, || {}).expect("it runs");
    manual.clock.advance(Duration::MAX);
    assert_eq!(timeout.status(), Status::Fired);
    assert_eq!(manual.clock.now().checked_add(Duration::from_nanos(1)), None);
}

#[test]
fn far_instants_are_deadlines_on_the_systems_clock_too() {
    let timer = Timer::new();
    let mut step = Duration::from_secs(1 << 62);
    let mut latest = Instant::now();
    while step > Duration::ZERO {
        latest = latest.checked_add(step).unwrap_or(latest);
        step /= 2;
    }
    let timeout = timer.schedule_at(latest, || unreachable!()).expect("it runs");
    assert_eq!(timeout.status(), Status::Pending);
    assert!(timeout.reschedule_at(latest - ms(1)));
    assert_eq!(timer.stop().expect("outside").len(), 1);
}
