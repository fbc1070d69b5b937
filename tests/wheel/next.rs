//! The next deadline and the next wake-up.

use crate::checked::Checked;
use crate::common::Numbers;
use tickwheel::Mode;

in_each_mode! {
    an_empty_wheel_has_none,
    far_timeout_does_not_hide_a_near_one,
    far_timeout_in_the_bucket_under_way_does_not_hide_a_near_one,
    one_timeout_is_the_next_at_any_distance,
    the_next_of_one_coarse_bucket_is_its_earliest,
    the_next_follows_what_comes_out,
    peeking_shows_what_comes_out_next_and_leaves_it,
    the_next_is_known_before_the_first_drive,
    the_next_is_due_now_while_something_is_due,
    the_next_after_a_cancel_is_the_second,
    the_next_matches_a_search_at_every_step,
    waking_up_always_makes_progress,
    waking_up_skips_no_timeout_and_no_distance,
    one_wake_up_a_deadline_where_none_is_cancelled,
    a_new_earliest_deadline_brings_the_wake_up_forward,
    emptied_wheel_asks_for_no_wake_up,
    an_hour_away_is_a_handful_of_wake_ups,
}

fn an_empty_wheel_has_none(mode: Mode) {
    let mut wheel = Checked::<()>::new(mode);
    assert_eq!((wheel.next_deadline(), wheel.next_wake()), (None, None));
    assert!(wheel.expire(1 << 40).is_none());
    assert_eq!((wheel.next_deadline(), wheel.next_wake()), (None, None));
}

fn far_timeout_does_not_hide_a_near_one(mode: Mode) {
    for far in [600, 4096, 1 << 30, 1 << 62, u64::MAX] {
        for near in [1, 2, 63, 64, 65, 511, 512, 513] {
            let mut wheel = Checked::new(mode);
            wheel.schedule(far, "far");
            wheel.schedule(near, "near");
            assert_eq!((wheel.next_deadline(), wheel.next_wake()), (Some(near), Some(near)));
            assert_eq!(wheel.jump(near), [(near, "near")]);
            assert_eq!(wheel.next_deadline(), Some(far));
        }
    }
}

fn far_timeout_in_the_bucket_under_way_does_not_hide_a_near_one(mode: Mode) {
    // The wheel stands in the middle of a coarse bucket, and one whole round before a deadline.
    for bit in [3, 6, 8, 9, 12, 18, 36, 60] {
        let span = 1_u64 << bit;
        let mut wheel = Checked::new(mode);
        wheel.schedule(span, "at the boundary");
        assert_eq!(wheel.jump(span), [(span, "at the boundary")]);
        wheel.schedule(2 * span, "a round away");
        wheel.schedule(2 * span - 1, "at the end of the bucket");
        wheel.schedule(9 * span, "in a far bucket");
        wheel.schedule(span + 1, "imminent");
        assert_eq!(wheel.next_deadline(), Some(span + 1));
        assert_eq!(wheel.next_wake(), Some(span + 1));
        let out = wheel.wake_up_until(2 * span);
        assert_eq!(out.len(), 3);
        assert_eq!(out[0], (span + 1, "imminent"));
        assert_eq!(out[1], (2 * span - 1, "at the end of the bucket"));
        assert_eq!(out[2], (2 * span, "a round away"));
    }
}

fn one_timeout_is_the_next_at_any_distance(mode: Mode) {
    for start in [0, 1, 100, 1 << 40] {
        for bit in 0..63 {
            let mut wheel = Checked::at(mode, start);
            let deadline = start + (1 << bit);
            let key = wheel.schedule(deadline, ());
            assert_eq!(
                (wheel.next_deadline(), wheel.next_wake()),
                (Some(deadline), Some(deadline))
            );
            assert_eq!(wheel.jump(deadline - 1), []);
            assert_eq!(
                (wheel.next_deadline(), wheel.next_wake()),
                (Some(deadline), Some(deadline))
            );
            assert_eq!(wheel.cancel(key), Some(()));
            assert_eq!((wheel.next_deadline(), wheel.next_wake()), (None, None));
        }
    }
}

fn the_next_of_one_coarse_bucket_is_its_earliest(mode: Mode) {
    let mut wheel = Checked::new(mode);
    let deadlines = [70_003, 70_001, 70_007, 70_002];
    let keys = deadlines.map(|deadline| wheel.schedule(deadline, deadline));
    assert_eq!(wheel.next_deadline(), Some(70_001));
    assert_eq!(wheel.jump(70_000), []);
    assert_eq!(wheel.next_deadline(), Some(70_001));
    assert_eq!(wheel.cancel(keys[1]), Some(70_001));
    assert_eq!(wheel.next_deadline(), Some(70_002));
    assert!(wheel.reschedule(keys[3], 70_009));
    assert_eq!(wheel.next_deadline(), Some(70_003));
    assert_eq!(wheel.jump(70_003), [(70_003, 70_003)]);
    assert_eq!(wheel.next_deadline(), Some(70_007));
    assert_eq!(wheel.jump(70_009), [(70_007, 70_007), (70_009, 70_002)]);
}

fn the_next_follows_what_comes_out(mode: Mode) {
    let mut wheel = Checked::new(mode);
    for deadline in [4, 2, 2, 900, 3] {
        wheel.schedule(deadline, ());
    }
    for (taken, left) in [(2, Some(2)), (2, Some(3)), (3, Some(4)), (4, Some(900)), (900, None)] {
        assert_eq!(wheel.next_deadline(), Some(taken));
        assert_eq!(wheel.expire(900).map(|expired| expired.deadline), Some(taken));
        assert_eq!(wheel.next_deadline(), left);
    }
}

fn peeking_shows_what_comes_out_next_and_leaves_it(mode: Mode) {
    let mut numbers = Numbers(9);
    let mut wheel = Checked::new(mode);
    assert_eq!(wheel.unchecked().peek(), None);
    let mut keys = Vec::new();
    for value in 0..400 {
        // Some ticks several times.
        keys.push(wheel.schedule(numbers.below(150) << numbers.below(3), value));
    }
    for turn in 0_u64.. {
        if turn % 3 == 0 {
            let at = numbers.below(keys.len() as u64) as usize;
            wheel.cancel(keys[at]);
        }
        let len = wheel.len();
        let Some((key, deadline, &value)) = wheel.unchecked().peek() else { break };
        wheel.check();
        assert_eq!(wheel.len(), len);
        let expired = wheel.expire(deadline).expect("it is due");
        assert_eq!((expired.key, expired.deadline, expired.value), (key, deadline, value));
    }
    assert!(wheel.is_empty());
}

fn the_next_is_known_before_the_first_drive(mode: Mode) {
    let mut wheel = Checked::new(mode);
    wheel.schedule(100, 100);
    wheel.schedule(100, 101);
    assert_eq!((wheel.next_deadline(), wheel.next_wake()), (Some(100), Some(100)));
    assert_eq!(wheel.jump(99), []);
    assert_eq!(wheel.jump(100), [(100, 100), (100, 101)]);
}

fn the_next_is_due_now_while_something_is_due(mode: Mode) {
    let mut wheel = Checked::at(mode, 50);
    wheel.schedule(90, "later");
    wheel.schedule(20, "overdue");
    assert_eq!((wheel.next_deadline(), wheel.next_wake()), (Some(50), Some(50)));
    assert_eq!(wheel.jump(50), [(50, "overdue")]);
    assert_eq!((wheel.next_deadline(), wheel.next_wake()), (Some(90), Some(90)));
}

fn the_next_after_a_cancel_is_the_second(mode: Mode) {
    for (first, second) in [(1, 2), (5, 5), (10, 4000), (100, u64::MAX), (1 << 40, 1 << 41)] {
        let mut wheel = Checked::new(mode);
        let key = wheel.schedule(first, "first");
        wheel.schedule(second, "second");
        assert_eq!(wheel.cancel(key), Some("first"));
        assert_eq!(wheel.next_deadline(), Some(second));
        assert_eq!(wheel.wake_up_until(second), [(second, "second")]);
    }
}

fn the_next_matches_a_search_at_every_step(mode: Mode) {
    let mut numbers = Numbers(9);
    let mut wheel = Checked::new(mode);
    let mut keys = Vec::new();
    for _ in 0..600 {
        match numbers.below(4) {
            0 | 1 => {
                let delay =
                    if numbers.below(3) == 0 { numbers.of_any_size() } else { numbers.below(2000) };
                keys.push(wheel.schedule(wheel.now().saturating_add(delay), ()));
            }
            2 if !keys.is_empty() => {
                wheel.cancel(keys.swap_remove(numbers.below(keys.len() as u64) as usize));
            }
            _ => {
                wheel.jump(wheel.now() + numbers.below(100));
            }
        }
        let earliest = keys.iter().filter_map(|&key| wheel.deadline(key)).min();
        assert_eq!(wheel.next_deadline(), earliest);
    }
}

fn waking_up_always_makes_progress(mode: Mode) {
    const CROWD: u64 = 400;
    let mut numbers = Numbers(10);
    let mut wheel = Checked::new(mode);
    let mut keys = Vec::new();
    for value in 0..CROWD {
        keys.push(wheel.unchecked().schedule(numbers.of_any_size(), value));
    }
    let mut cancelled = 0;
    for key in keys.iter().step_by(3) {
        assert!(wheel.unchecked().cancel(*key).is_some());
        cancelled += 1;
    }
    let mut wakes = 0;
    let mut out = 0;
    while let Some(wake) = wheel.next_wake() {
        wakes += 1;
        out += wheel.jump(wake).len() as u64;
        assert!(wheel.next_wake().is_none_or(|next| wake < next));
    }
    assert_eq!(out, CROWD - cancelled);
    assert!(wakes <= CROWD, "a wake-up in vain needs a cancelled timeout: {wakes}");
}

fn waking_up_skips_no_timeout_and_no_distance(mode: Mode) {
    let mut wheel = Checked::new(mode);
    let mut deadlines: Vec<u64> = (0..33).flat_map(|bit| [1 << bit, (1 << bit) + 17]).collect();
    for &deadline in &deadlines {
        wheel.schedule(deadline, deadline);
    }
    deadlines.sort_unstable();
    let expected: Vec<_> = deadlines.into_iter().map(|deadline| (deadline, deadline)).collect();
    assert_eq!(wheel.wake_up_until(1 << 40), expected);
    assert!(wheel.is_empty());
}

fn one_wake_up_a_deadline_where_none_is_cancelled(mode: Mode) {
    let mut wheel = Checked::new(mode);
    let deadlines = [3, 3, 10, 700, 701, 70_000, 1 << 33];
    for deadline in deadlines {
        wheel.schedule(deadline, ());
    }
    let mut wakes = Vec::new();
    while let Some(wake) = wheel.next_wake() {
        wakes.push(wake);
        wheel.jump(wake);
    }
    assert_eq!(wakes, [3, 10, 700, 701, 70_000, 1 << 33], "and at least a tick apart");
}

fn a_new_earliest_deadline_brings_the_wake_up_forward(mode: Mode) {
    let mut wheel = Checked::new(mode);
    let key = wheel.schedule(1 << 20, "first");
    assert_eq!(wheel.jump(99), []);
    assert_eq!(wheel.next_wake(), Some(1 << 20));
    wheel.schedule(300, "second");
    assert_eq!(wheel.next_wake(), Some(300));
    assert!(wheel.reschedule(key, 200));
    assert_eq!(wheel.next_wake(), Some(200));
    wheel.schedule(100, "third");
    assert_eq!(wheel.next_wake(), Some(100));
    assert_eq!(wheel.jump(99), [], "silent at 99");
    assert_eq!(wheel.jump(100), [(100, "third")]);
    assert_eq!(wheel.walk(300), [(200, "first"), (300, "second")]);
}

fn emptied_wheel_asks_for_no_wake_up(mode: Mode) {
    let ways: [fn(&mut Checked<u32>); 3] = [
        |wheel| assert_eq!(wheel.jump(2000).len(), 2),
        |wheel| wheel.clear(),
        |wheel| drop(wheel.drain()),
    ];
    for empty in ways {
        let mut wheel = Checked::new(mode);
        for deadline in [10, 700] {
            wheel.schedule(deadline, 0);
        }
        empty(&mut wheel);
        assert_eq!((wheel.next_deadline(), wheel.next_wake()), (None, None));
        wheel.schedule(5000, 1);
        assert_eq!(wheel.next_deadline(), Some(5000));
        assert_eq!(wheel.wake_up_until(5000), [(5000, 1)]);
    }
}

fn an_hour_away_is_a_handful_of_wake_ups(mode: Mode) {
    let mut wheel = Checked::new(mode);
    let near: Vec<_> = (1..60).map(|second| wheel.schedule(second * 1000, ())).collect();
    wheel.schedule(3_600_000, ());
    for key in near {
        assert!(wheel.cancel(key).is_some());
    }
    let mut wakes = 0;
    while let Some(wake) = wheel.next_wake() {
        wakes += 1;
        wheel.jump(wake);
    }
    assert!(wakes <= 60, "one for each that was cancelled, at most: {wakes}");
}
