//! Moving timeouts, in place.

use crate::help::{Count, Manual, build, ms};
use std::time::Duration;
use tickwheel::{Mode, Status};

in_each_mode! {
    moved_it_fires_at_its_new_deadline_and_is_silent_at_its_old_one,
    moved_to_never_it_does_not_fire,
    moved_a_thousand_times_it_does_not_drift,
    moved_among_others_it_comes_last_of_its_tick,
    moved_earlier_the_worker_is_told,
}

fn moved_it_fires_at_its_new_deadline_and_is_silent_at_its_old_one(mode: Mode) {
    for (moved, old, when, new, fires) in [
        ("later", 100, 80, 200, 200),
        ("earlier", 200_000, 0, 40, 40),
        ("into the past", 1_100, 1_000, 500, 1_000),
    ] {
        let manual = Manual::new(mode);
        let timeout = manual.once(old, 1);
        assert_eq!(manual.advance(when), [], "{moved}");
        assert!(timeout.reschedule_at(manual.at(old + 10)), "{moved}");
        assert!(timeout.reschedule_at(manual.at(new)), "{moved}");
        if when < fires {
            assert_eq!(timeout.deadline(), Some(manual.at(new)), "{moved}");
            assert_eq!(manual.advance(fires - when - 1), [], "{moved}");
        }
        assert_eq!(manual.advance(fires - manual.now()), [(fires, 1)], "{moved}");
        assert!(!timeout.reschedule(ms(1)), "{moved}");
        assert_eq!(timeout.status(), Status::Fired, "{moved}");
        assert_eq!(manual.advance(300_000), [], "{moved}");
    }
}

fn moved_to_never_it_does_not_fire(manual: Manual) {
    let timeout = manual.once(100, 1);
    assert!(timeout.reschedule(Duration::MAX));
    assert_eq!(timeout.deadline(), None);
    assert_eq!(manual.advance(1_000_000_000), []);
    assert_eq!(timeout.status(), Status::Pending);
    assert!(timeout.reschedule(ms(1)));
    assert_eq!(manual.advance(1), [(1_000_000_001, 1)]);
}

fn moved_a_thousand_times_it_does_not_drift(manual: Manual) {
    let timeout = manual.once(10, 1);
    for _ in 0..1_000 {
        assert_eq!(manual.advance(9), []);
        assert!(timeout.reschedule(ms(10)));
    }
    assert_eq!(manual.advance(10), [(9_010, 1)]);
}

fn moved_among_others_it_comes_last_of_its_tick(manual: Manual) {
    let [first, second, _] = [(10, 1), (20, 2), (10, 3)].map(|(delay, n)| manual.once(delay, n));
    assert!(second.reschedule(ms(10)) && first.reschedule(ms(10)));
    assert_eq!(manual.advance(20), [(10, 3), (10, 2), (10, 1)]);
}

/// With the system's clock, as a clock moved by hand tells the worker itself.
fn moved_earlier_the_worker_is_told(mode: Mode) {
    let (timer, fired) = (build(|builder| builder.mode(mode)), Count::default());
    let timeout = timer.schedule(ms(3_600_000), fired.task()).expect("it runs");
    std::thread::sleep(ms(5));
    assert!(timeout.reschedule(ms(1)));
    fired.wait_for(1);
}
