//! The next deadline and the next wake-up.

use crate::checked::Checked;
use crate::common::{Numbers, long};
use tickwheel::{Mode, Wheel};

in_each_mode! {
    an_empty_wheel_has_none: "next none; wakes none; to 2^40; next none; wakes none",
    far_timeout_does_not_hide_a_near_one,
    // The wheel stands in the middle of a coarse bucket, and one whole round before a deadline.
    far_timeout_in_the_bucket_under_way_does_not_hide_a_near_one:
        "for x in 8 64 256 512 4096 2^18 2^36 2^60; o@x; to x: o@x; a@2x b@2x-1 c@9x d@x+1; "
        "next x+1; wakes x+1; wake 2x: d@x+1 b@2x-1 a@2x",
    one_timeout_is_the_next_at_any_distance:
        "for x in 2^0..62; a@x; next x; wakes x; to x-1; next x; wakes x; -a; next none; "
        "wakes none; a@2x; next 2x; wakes 2x",
    the_next_of_one_coarse_bucket_is_its_earliest:
        "a@70_003 b@70_001 c@70_007 d@70_002; next 70_001; to 70_000; next 70_001; -b; "
        "next 70_002; d>70_009; next 70_003; to 70_003: a@70_003; next 70_007; "
        "to 70_009: c@70_007 d@70_009",
    the_next_follows_what_comes_out:
        "a@4 b@2 c@2 d@900 e@3; next 2; take 900: b@2; next 2; take 900: c@2; next 3; "
        "take 900: e@3; next 4; take 900: a@4; next 900; take 900: d@900; next none",
    peeking_shows_what_comes_out_next_and_leaves_it,
    of_many_at_one_deadline_the_first_is_next_though_one_before_was_cancelled,
    the_next_is_known_before_the_first_drive:
        "a@100 b@100; next 100; wakes 100; to 99; to 100: a@100 b@100",
    the_next_is_due_now_while_something_is_due:
        "to 50; b@90 a@20; next 50; wakes 50; to 50: a@50; next 90; wakes 90",
    the_next_after_a_cancel_is_the_second,
    waking_up_always_makes_progress,
    waking_up_skips_no_timeout_and_no_distance,
    one_wake_up_a_deadline_where_none_is_cancelled:
        "a@3 b@3 c@10 d@700 e@701 f@70_000 g@2^33; wakes 3; to 3: a@3 b@3; wakes 10; "
        "to 10: c@10; wakes 700; to 700: d@700; wakes 701; to 701: e@701; wakes 70_000; "
        "to 70_000: f@70_000; wakes 2^33; to 2^33: g@2^33; wakes none",
    a_new_earliest_deadline_brings_the_wake_up_forward:
        "a@2^20; to 99; wakes 2^20; b@300; wakes 300; a>200; wakes 200; c@100; wakes 100; "
        "to 99; to 100: c@100; walk 300: a@200 b@300",
    emptied_wheel_asks_for_no_wake_up,
    an_hour_away_is_a_handful_of_wake_ups,
}

/// They are in one bucket, whose noted deadline is that of the one that is gone.
fn of_many_at_one_deadline_the_first_is_next_though_one_before_was_cancelled(mode: Mode) {
    let mut wheel = Wheel::with_capacity(mode, 2_000);
    let gone = wheel.schedule(1 << 40, 0);
    let deadline = (1 << 40) + (1 << 20);
    let keys: Vec<_> = (1..1_000).map(|value| wheel.schedule(deadline, value)).collect();
    wheel.cancel(gone);
    assert_eq!(wheel.peek(), Some((keys[0], deadline, &1)));
    wheel.check();
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

fn peeking_shows_what_comes_out_next_and_leaves_it(mode: Mode) {
    let mut numbers = Numbers(9);
    let mut wheel = Checked::new(mode);
    assert_eq!(wheel.unchecked().peek(), None);
    let mut keys = Vec::new();
    for value in 0..long(200, 400) {
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
