//! Scheduling, cancelling and driving on between two timeouts that come out.

use crate::checked::Checked;
use tickwheel::Mode;

in_each_mode! {
    scheduled_while_handing_out_comes_in_its_turn:
        "a@10 c@30; take 20: a@10; b@25 d@20; to 20: d@20; walk 40: b@25 c@30",
    scheduled_while_handing_out_delays_nothing,
    scheduled_for_now_while_handing_out_comes_last:
        "a@10 b@20 c@30; take 30: a@10; d@5; to 30: b@20 c@30 d@30",
    arming_itself_again_comes_once_a_period,
    arming_itself_again_across_rounds_keeps_the_period,
    arming_itself_until_it_has_had_enough,
    due_items_that_add_themselves_again_come_once_a_run,
    a_chain_within_one_jump_comes_in_order,
    cancelling_others_between_two_is_safe,
    moving_others_between_two_is_safe,
    driving_within_driving_hands_out_each_once,
    driving_on_while_some_are_due_keeps_the_order,
    clearing_between_two_ends_it: "a@0 b@7 c@35 d@42 e@63; take 40: a@0; clear; to 1000",
    now_is_never_before_what_comes_out,
}

fn scheduled_while_handing_out_delays_nothing(mode: Mode) {
    let mut wheel = Checked::new(mode);
    for value in 0..10 {
        wheel.schedule(100, value);
    }
    let mut out = Vec::new();
    while let Some(expired) = wheel.expire(100) {
        out.push(expired.value);
        wheel.schedule(101 + expired.value, 100 + expired.value);
    }
    assert_eq!(out, (0..10).collect::<Vec<_>>());
    assert_eq!(
        wheel.walk(200),
        (0..10).map(|value| (101 + value, 100 + value)).collect::<Vec<_>>()
    );
}

fn arming_itself_again_comes_once_a_period(mode: Mode) {
    const PERIOD: u64 = 5;
    let mut wheel = Checked::new(mode);
    wheel.schedule(PERIOD, ());
    let mut out = Vec::new();
    for tick in 0..500 {
        while let Some(expired) = wheel.expire(tick) {
            out.push(tick);
            wheel.schedule(expired.deadline + PERIOD, ());
        }
    }
    assert_eq!(out, (1..100).map(|turn| turn * PERIOD).collect::<Vec<_>>());
    assert_eq!(wheel.len(), 1, "the pending one is left");
}

fn arming_itself_again_across_rounds_keeps_the_period(mode: Mode) {
    let round = mode.buckets() as u64;
    for period in [round, round + 1, 3 * round, 3 * round + round / 2, 100] {
        let mut wheel = Checked::new(mode);
        wheel.schedule(period, ());
        let mut out = Vec::new();
        for tick in 0..=4 * period {
            while let Some(expired) = wheel.unchecked().expire(tick) {
                assert_eq!(expired.deadline, tick);
                out.push(tick);
                wheel.schedule(tick + period, ());
            }
        }
        assert_eq!(out, [1, 2, 3, 4].map(|turn| turn * period));
    }
}

fn arming_itself_until_it_has_had_enough(mode: Mode) {
    let mut wheel = Checked::new(mode);
    wheel.schedule(7, 3);
    let mut out = Vec::new();
    while let Some(wake) = wheel.next_wake() {
        while let Some(expired) = wheel.expire(wake) {
            out.push((wake, expired.value));
            if 0 < expired.value {
                wheel.schedule(wake + 600, expired.value - 1);
            }
        }
    }
    assert_eq!(out, [(7, 3), (607, 2), (1207, 1), (1807, 0)]);
}

fn due_items_that_add_themselves_again_come_once_a_run(mode: Mode) {
    let mut wheel = Checked::new(mode);
    for value in ["a", "b", "c"] {
        wheel.schedule(10, value);
    }
    // A run takes what is due when it starts, though everything is due again at once.
    for _ in 0..5 {
        let mut out = Vec::new();
        for _ in 0..wheel.len() {
            let expired = wheel.expire(10).expect("all are due");
            wheel.schedule(10, expired.value);
            out.push(expired.value);
        }
        assert_eq!(out, ["a", "b", "c"]);
    }
    assert_eq!(wheel.len(), 3);
}

fn a_chain_within_one_jump_comes_in_order(mode: Mode) {
    let mut wheel = Checked::new(mode);
    wheel.schedule(1, 0);
    wheel.schedule(1 << 50, u64::MAX);
    let mut links = Vec::new();
    // Each asks for a deadline that is long past, which counts as now.
    while let Some(expired) = wheel.expire(1 << 50) {
        links.push((expired.deadline, expired.value));
        if expired.value < 5 {
            wheel.schedule(2, expired.value + 1);
        }
    }
    let end = 1 << 50;
    let chain = [(1, 0), (end, u64::MAX), (end, 1), (end, 2), (end, 3), (end, 4), (end, 5)];
    assert_eq!(links, chain);
}

fn cancelling_others_between_two_is_safe(mode: Mode) {
    let mut wheel = Checked::new(mode);
    let mut keys: Vec<_> = (0..40).map(|value| wheel.schedule(100 + value % 4, value)).collect();
    let mut left: Vec<_> = (0..40).map(|value| (100 + value % 4, value)).collect();
    left.sort_unstable();
    while !left.is_empty() {
        let expired = wheel.expire(1000).expect("some are left, and all are due");
        assert_eq!((expired.deadline, expired.value), left.remove(0));
        // The last of all that were scheduled goes, whether due with this one or later.
        let (key, value) =
            (keys.pop().expect("no more come out than there are"), keys.len() as u64);
        let at = left.iter().position(|timeout| timeout.1 == value);
        assert_eq!(wheel.cancel(key), at.map(|at| left.remove(at).1));
    }
    assert!(wheel.expire(1000).is_none());
}

fn moving_others_between_two_is_safe(mode: Mode) {
    let mut wheel = Checked::new(mode);
    let keys: Vec<_> = (0..30).map(|value| wheel.schedule(64 + value / 10, value)).collect();
    let mut out = Vec::new();
    while let Some(expired) = wheel.expire(66) {
        out.push(expired.value);
        if expired.value % 3 == 0 && expired.value < 28 {
            assert!(wheel.reschedule(keys[expired.value as usize + 1], 500));
            assert!(wheel.reschedule(keys[expired.value as usize + 2], 0));
        }
    }
    let first = (0..30).filter(|value| value % 3 == 0);
    let moved = (0..30).filter(|value| value % 3 == 2);
    assert_eq!(out, first.chain(moved).collect::<Vec<_>>());
    let later = (0..30).filter(|value| value % 3 == 1).map(|value| (500, value));
    assert_eq!(wheel.walk(500), later.collect::<Vec<_>>());
}

fn driving_within_driving_hands_out_each_once(mode: Mode) {
    fn drive(wheel: &mut Checked<u64>, now: u64, out: &mut Vec<u64>) {
        while let Some(expired) = wheel.expire(now) {
            out.push(expired.value);
            drive(wheel, now, out);
            drive(wheel, now + 100, out);
        }
    }
    let mut wheel = Checked::new(mode);
    for value in 0..12 {
        wheel.schedule(10 + value * 60, value);
    }
    let mut out = Vec::new();
    drive(&mut wheel, 200, &mut out);
    assert_eq!(out, (0..12).collect::<Vec<_>>());
    assert!(wheel.is_empty());
}

fn driving_on_while_some_are_due_keeps_the_order(mode: Mode) {
    let mut wheel = Checked::new(mode);
    for value in 0..20 {
        wheel.schedule(value * 100, value);
    }
    let mut out = Vec::new();
    for now in (100..).step_by(100) {
        // One a call, while two come due.
        let Some(expired) = wheel.expire(2 * now) else { break };
        out.push(expired.value);
        if now == 300 {
            wheel.schedule(2 * now, 20);
        }
    }
    assert_eq!(out, [0, 1, 2, 3, 4, 5, 6, 20, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19]);
}

fn now_is_never_before_what_comes_out(mode: Mode) {
    let mut wheel = Checked::new(mode);
    for value in 0..100 {
        wheel.schedule(value * 13 % 1000, ());
    }
    for step in 0..40 {
        while let Some(expired) = wheel.expire(step * 25) {
            assert_eq!(wheel.now(), step * 25);
            assert!(expired.deadline <= wheel.now());
            assert!(step == 0 || (step - 1) * 25 < expired.deadline, "and never late");
        }
    }
}
