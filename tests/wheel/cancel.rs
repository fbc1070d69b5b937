//! Taking timeouts back: one, all, siblings of what comes out, and what is due already.

use crate::checked::Checked;
use crate::common::{Numbers, long};
use tickwheel::Mode;

in_each_mode! {
    cancels_once: "a@63; -a; !a; waits 0",
    cancelled_never_comes: "a@63; walk 62; -a; walk 128; to max",
    cancelled_before_the_first_drive_never_comes: "for x in 0 1 5 2^40 max; a@x; -a; work 0 0; to max",
    cancel_after_expiry_finds_nothing: "a@5; to 5: a@5; !a; waits 0",
    due_but_not_yet_handed_out_can_be_cancelled:
        "to 10; a@5; -a; to 10; b@20 c@30; take 1000: b@20; -c; to 1000",
    the_middle_of_three_can_be_cancelled:
        "a@5 b@6 c@7; -b; walk 10: a@5 c@7; d@100 e@100 f@100; -e; walk 100: d@100 f@100",
    any_of_a_crowd_can_be_cancelled,
    siblings_of_what_just_came_out_can_be_cancelled:
        "a@100 b@100 c@100 d@100 e@100 f@100 g@100 h@100; take 100: a@100; -b -e -h; "
        "to 100: c@100 d@100 f@100 g@100",
    sibling_on_a_boundary_can_be_cancelled_after_the_first_of_the_pair:
        "for x in 2 8 64 256 512 4096 65_536 262_144; a@x b@x; to x-1; take x: a@x; -b; to 2x",
    one_due_cancels_the_other_due: "a@10 b@10; take 10: a@10; !a; -b; to 10",
    // `k` is in another bucket, and what came out arms itself again.
    head_middle_and_last_of_a_due_batch_can_be_cancelled:
        "a@128 b@128 c@128 d@128 e@128 f@129 g@129 h@129 i@129 j@129 k@700; take 200: a@128; "
        "-b -e -f -h -j -k; a@328; to 200: c@128 d@128 g@129 i@129; walk 1000: a@328",
    cancelled_where_it_was_moved_to:
        "for x in 10 70 600 5000; a@5; a>x; b@x; walk x-1; -a; to x: b@x; c@2x; c>3x; d@3x-1; "
        "take 3x: d@3x-1; -c; to 3x",
    cancelling_the_last_empties_the_wheel: "a@10 b@2000; -a; next 2000; -b; next none; wakes none",
    cancelling_all_at_random_leaves_nothing,
    cancelling_half_at_random_leaves_exactly_the_others,
    clearing_leaves_nothing_and_the_time:
        "a@15 b@23 c@4000 d@2^50; to 20: a@15; clear; waits 0; now 20; next none; wakes none; "
        "!a !b !c !d; to 5000; e@5001; walk 5002: e@5001",
    dropping_the_wheel_half_way_through_a_batch_is_fine,
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
    let half = long(2_000, 5_000);
    for value in 0..2 * half {
        let deadline = numbers.below(5000);
        let key = wheel.unchecked().schedule(deadline, value);
        left.push((deadline, value, key));
    }
    let mut armed_again = Vec::new();
    for index in (0..half).rev() {
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

fn dropping_the_wheel_half_way_through_a_batch_is_fine(mode: Mode) {
    let mut wheel = Checked::new(mode);
    let keys = [10, 10, 10, 90].map(|deadline| wheel.schedule(deadline, Box::new(deadline)));
    assert_eq!(wheel.expire(10).map(|expired| *expired.value), Some(10));
    assert!(wheel.cancel(keys[1]).is_some());
    drop(wheel);
}
