//! Taking timeouts back: one, all, siblings of what comes out, and what is due already.

use crate::checked::Checked;
use crate::common::Numbers;
use tickwheel::Mode;

in_each_mode! {
    cancels_once,
    cancelled_never_comes,
    cancelled_before_the_first_drive_never_comes,
    cancel_after_expiry_finds_nothing,
    due_but_not_yet_handed_out_can_be_cancelled,
    the_middle_of_three_can_be_cancelled,
    any_of_a_crowd_can_be_cancelled,
    siblings_of_what_just_came_out_can_be_cancelled,
    sibling_on_a_boundary_can_be_cancelled_after_the_first_of_the_pair,
    one_due_cancels_the_other_due,
    head_middle_and_last_of_a_due_batch_can_be_cancelled,
    cancelled_where_it_was_moved_to,
    cancelling_the_last_empties_the_wheel,
    cancelling_all_at_random_leaves_nothing,
    cancelling_half_at_random_leaves_exactly_the_others,
    clearing_leaves_nothing_and_the_time,
    dropping_the_wheel_half_way_through_a_batch_is_fine,
}

fn cancels_once(mode: Mode) {
    let mut wheel = Checked::new(mode);
    let key = wheel.schedule(63, "only");
    assert_eq!(wheel.cancel(key), Some("only"));
    assert_eq!(wheel.cancel(key), None);
    assert!(wheel.is_empty());
}

fn cancelled_never_comes(mode: Mode) {
    let mut wheel = Checked::new(mode);
    let key = wheel.schedule(63, "only");
    assert_eq!(wheel.walk(62), []);
    assert_eq!(wheel.cancel(key), Some("only"));
    assert_eq!(wheel.walk(128), []);
    assert_eq!(wheel.jump(u64::MAX), []);
}

fn cancelled_before_the_first_drive_never_comes(mode: Mode) {
    let mut wheel = Checked::new(mode);
    for deadline in [0, 1, 5, 1 << 40, u64::MAX] {
        let key = wheel.schedule(deadline, deadline);
        assert_eq!(wheel.cancel(key), Some(deadline));
    }
    assert_eq!(wheel.work(), (0, 0));
    assert_eq!(wheel.jump(u64::MAX), []);
}

fn cancel_after_expiry_finds_nothing(mode: Mode) {
    let mut wheel = Checked::new(mode);
    let key = wheel.schedule(5, "only");
    assert_eq!(wheel.jump(5), [(5, "only")]);
    assert_eq!(wheel.cancel(key), None);
    assert_eq!(wheel.len(), 0);
}

fn due_but_not_yet_handed_out_can_be_cancelled(mode: Mode) {
    let mut wheel = Checked::at(mode, 10);
    let key = wheel.schedule(5, "overdue when scheduled");
    assert_eq!(wheel.cancel(key), Some("overdue when scheduled"));
    assert_eq!(wheel.jump(10), []);

    wheel.schedule(20, "taken");
    let key = wheel.schedule(30, "due");
    assert_eq!(wheel.expire(1000).map(|expired| expired.value), Some("taken"));
    assert_eq!(wheel.cancel(key), Some("due"));
    assert_eq!(wheel.jump(1000), []);
}

fn the_middle_of_three_can_be_cancelled(mode: Mode) {
    let mut wheel = Checked::new(mode);
    let keys = [5, 6, 7].map(|deadline| wheel.schedule(deadline, deadline));
    assert_eq!(wheel.cancel(keys[1]), Some(6));
    assert_eq!(wheel.walk(10), [(5, 5), (7, 7)]);
    let keys = [100, 100, 100].map(|deadline| wheel.schedule(deadline, wheel.len() as u64));
    assert_eq!(wheel.cancel(keys[1]), Some(1));
    assert_eq!(wheel.walk(100), [(100, 0), (100, 2)]);
}

fn any_of_a_crowd_can_be_cancelled(mode: Mode) {
    for cancelled in 0..12 {
        let mut wheel = Checked::new(mode);
        let keys: Vec<_> = (0..12).map(|value| wheel.schedule(200, value)).collect();
        assert_eq!(wheel.cancel(keys[cancelled]), Some(cancelled));
        let others = (0..12).filter(|&value| value != cancelled).map(|value| (200, value));
        assert_eq!(wheel.jump(200), others.collect::<Vec<_>>());
    }
}

fn siblings_of_what_just_came_out_can_be_cancelled(mode: Mode) {
    let mut wheel = Checked::new(mode);
    let keys: Vec<_> = (0..8).map(|value| wheel.schedule(100, value)).collect();
    assert_eq!(wheel.expire(100).map(|expired| expired.value), Some(0));
    for value in [1, 4, 7] {
        assert_eq!(wheel.cancel(keys[value]), Some(value));
    }
    assert_eq!(wheel.jump(100), [2, 3, 5, 6].map(|value| (100, value)));
}

fn sibling_on_a_boundary_can_be_cancelled_after_the_first_of_the_pair(mode: Mode) {
    for boundary in [2, 8, 64, 256, 512, 4096, 65_536, 262_144] {
        let mut wheel = Checked::new(mode);
        wheel.schedule(boundary, "first");
        let second = wheel.schedule(boundary, "second");
        assert_eq!(wheel.jump(boundary - 1), []);
        assert_eq!(wheel.expire(boundary).map(|expired| expired.value), Some("first"));
        assert_eq!(wheel.cancel(second), Some("second"));
        assert_eq!(wheel.jump(2 * boundary), []);
    }
}

fn one_due_cancels_the_other_due(mode: Mode) {
    let mut wheel = Checked::new(mode);
    let keys = [10, 10].map(|deadline| wheel.schedule(deadline, ()));
    let taken = wheel.expire(10).expect("both are due").key;
    assert_eq!(taken, keys[0]);
    let cancelled = keys.iter().filter(|&&key| wheel.cancel(key).is_some()).count();
    assert_eq!(cancelled, 1);
    assert_eq!(wheel.jump(10), []);
}

fn head_middle_and_last_of_a_due_batch_can_be_cancelled(mode: Mode) {
    let mut wheel = Checked::new(mode);
    let mut keys = Vec::new();
    for value in 0..10 {
        keys.push(wheel.schedule(128 + value / 5, value));
    }
    let other = wheel.schedule(700, 700);
    let first = wheel.expire(200).expect("all but one are due");
    assert_eq!((first.deadline, first.value), (128, 0));
    for value in [1, 4, 5, 7, 9] {
        assert_eq!(wheel.cancel(keys[value as usize]), Some(value));
    }
    assert_eq!(wheel.cancel(other), Some(700), "one in another bucket");
    // The one that came out arms itself again.
    wheel.schedule(200 + 128, first.value);
    let left = [(128, 2), (128, 3), (129, 6), (129, 8)];
    assert_eq!(wheel.jump(200), left);
    assert_eq!(wheel.walk(1000), [(328, 0)]);
}

fn cancelled_where_it_was_moved_to(mode: Mode) {
    for moved_to in [10, 70, 600, 5000] {
        let mut wheel = Checked::new(mode);
        let key = wheel.schedule(5, "moved");
        assert!(wheel.reschedule(key, moved_to));
        wheel.schedule(moved_to, "beside it");
        assert_eq!(wheel.walk(moved_to - 1), []);
        assert_eq!(wheel.cancel(key), Some("moved"));
        assert_eq!(wheel.jump(moved_to), [(moved_to, "beside it")]);

        // At its new tick itself, due together with others.
        let key = wheel.schedule(2 * moved_to, "moved");
        assert!(wheel.reschedule(key, 3 * moved_to));
        wheel.schedule(3 * moved_to - 1, "before it");
        assert!(wheel.expire(3 * moved_to).is_some());
        assert_eq!(wheel.cancel(key), Some("moved"));
        assert_eq!(wheel.jump(3 * moved_to), []);
    }
}

fn cancelling_the_last_empties_the_wheel(mode: Mode) {
    let mut wheel = Checked::new(mode);
    let keys = [10, 2000].map(|deadline| wheel.schedule(deadline, deadline));
    assert_eq!(wheel.cancel(keys[0]), Some(10));
    assert_eq!(wheel.next_deadline(), Some(2000));
    assert_eq!(wheel.cancel(keys[1]), Some(2000));
    assert_eq!((wheel.next_deadline(), wheel.next_wake()), (None, None));
    assert_eq!(wheel.stats().timeouts_per_level.iter().sum::<usize>(), 0);
}

fn cancelling_all_at_random_leaves_nothing(mode: Mode) {
    let mut numbers = Numbers(3);
    let mut wheel = Checked::new(mode);
    let mut keys: Vec<_> = (0..1000)
        .map(|value| (wheel.unchecked().schedule(numbers.of_any_size(), value), value))
        .collect();
    while !keys.is_empty() {
        let (key, value) = keys.swap_remove(numbers.below(keys.len() as u64) as usize);
        match keys.len() % 50 {
            0 => assert_eq!(wheel.cancel(key), Some(value)),
            _ => assert_eq!(wheel.unchecked().cancel(key), Some(value)),
        }
    }
    assert!(wheel.is_empty());
    assert_eq!(wheel.next_deadline(), None);
    assert_eq!(wheel.jump(u64::MAX), []);
    assert_eq!(wheel.work(), (0, 0));
}

fn cancelling_half_at_random_leaves_exactly_the_others(mode: Mode) {
    let mut numbers = Numbers(4);
    let mut wheel = Checked::new(mode);
    let mut left = Vec::new();
    for value in 0..10_000 {
        let deadline = numbers.below(5000);
        let key = wheel.unchecked().schedule(deadline, value);
        left.push((deadline, value, key));
    }
    let mut armed_again = Vec::new();
    for index in (0..5000).rev() {
        let (deadline, value, key) = left.remove(2 * index);
        assert_eq!(wheel.unchecked().cancel(key), Some(value));
        if value % 3 == 0 {
            armed_again.push((deadline, value, wheel.unchecked().schedule(deadline, value)));
        }
    }
    left.extend(armed_again);
    left.sort_by_key(|&(deadline, ..)| deadline);
    let mut out = Vec::new();
    for tick in 0..5000 {
        while let Some(expired) = wheel.unchecked().expire(tick) {
            out.push((tick, expired.value, expired.key));
        }
        if tick % 500 == 0 {
            assert_eq!(wheel.jump(tick), []);
        }
    }
    assert_eq!(out, left);
    assert!(wheel.is_empty());
}

fn clearing_leaves_nothing_and_the_time(mode: Mode) {
    let mut wheel = Checked::new(mode);
    let mut keys = vec![];
    for deadline in [15, 23, 4000, 1 << 50] {
        keys.push(wheel.schedule(deadline, deadline));
    }
    assert_eq!(wheel.jump(20), [(15, 15)]);
    wheel.clear();
    assert_eq!((wheel.len(), wheel.now()), (0, 20));
    assert_eq!((wheel.next_deadline(), wheel.next_wake()), (None, None));
    for key in keys {
        assert_eq!((wheel.get(key), wheel.deadline(key)), (None, None));
        assert_eq!(wheel.cancel(key), None);
    }
    assert_eq!(wheel.jump(5000), []);
    wheel.schedule(5001, 5001);
    assert_eq!(wheel.walk(5002), [(5001, 5001)], "and it is as good as new");
}

fn dropping_the_wheel_half_way_through_a_batch_is_fine(mode: Mode) {
    let mut wheel = Checked::new(mode);
    let keys = [10, 10, 10, 90].map(|deadline| wheel.schedule(deadline, Box::new(deadline)));
    assert_eq!(wheel.expire(10).map(|expired| *expired.value), Some(10));
    assert!(wheel.cancel(keys[1]).is_some());
    drop(wheel);
}
