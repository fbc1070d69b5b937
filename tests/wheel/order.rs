//! What comes out when, and in which order.

use crate::checked::Checked;
use crate::common::Numbers;
use tickwheel::Mode;

in_each_mode! {
    comes_at_its_deadline_and_not_before:
        "for x in 1 5 6 10 15 60 500 605; a@x; walk x-1; to x: a@x; !a; walk 2x",
    due_now_comes_at_once_and_once:
        "for x in 0 1 1000 max; to x; a@x; next x; to x: a@x; waits 0; to x",
    all_that_is_due_now_comes_each_once: "to 77; a@77 b@77 c@77; to 77: a@77 b@77 c@77; to 78",
    past_deadlines_count_as_now:
        "to 100; a@99 b@95 c@97 d@0; next 100; to 99; to 100: a@100 b@100 c@100 d@100; to max",
    far_past_deadline_leaves_the_next_wake_right:
        "to 500_000_000; a@500_000_002 b@0; wakes 500_000_000; to 500_000_000: b@500_000_000; "
        "wakes 500_000_002; to 500_000_001; to 500_000_002: a@500_000_002",
    // Nothing comes due on the way to 2000, so that buckets stay as they were at tick 0.
    past_for_the_caller_but_not_for_a_stale_wheel_comes_at_once:
        "c@2100; to 2000; a@1500 b@2000; to 2000: a@2000 b@2000; walk 2100: c@2100",
    a_thousand_due_now_one_after_the_other,
    scheduled_and_not_driven_comes_at_the_first_drive: "a@15 b@40; to 32: a@15; walk 40: b@40",
    shorter_scheduled_second_comes_first: "slow@1000; to 2; fast@10; walk 1000: fast@10 slow@1000",
    equal_deadlines_come_as_scheduled:
        "a@15 b@16 c@15 d@16 e@15 f@16 g@15 h@16 i@15 j@16; "
        "walk 16: a@15 c@15 e@15 g@15 i@15 b@16 d@16 f@16 h@16 j@16",
    equal_deadlines_come_as_scheduled_from_far_and_near,
    equal_deadlines_come_as_scheduled_after_a_jump,
    rescheduled_comes_last_of_its_tick:
        "a@90 b@90 c@90 d@90; a>90; c>20; c>90; walk 90: b@90 d@90 a@90 c@90",
    different_ticks_come_each_at_its_own: "a@15 b@23; walk 128: a@15 b@23",
    same_bucket_of_different_rounds_comes_at_different_ticks:
        "d@3round+7 b@round+7 c@2round+7 a@7; "
        "walk 4round+7: a@7 b@round+7 c@2round+7 d@3round+7",
    a_deadline_rounds_away_comes_in_its_own_round_only: "a@4round-1; walk 8round: a@4round-1",
    deadlines_a_round_or_so_away_come_at_their_tick,
    every_delay_of_a_dense_range_comes_at_its_own_tick,
    sparse_delays_come_each_at_its_own_tick,
    powers_of_two_come_each_at_its_own_tick,
    a_step_across_a_bucket_boundary_hides_nothing:
        "to 5; a@65; walk 70: a@65; to 250; b@257 c@513; walk 600: b@257 c@513",
    one_taken_at_a_time_leaves_the_others_for_the_next_call:
        "a@15 b@15 c@15; take 16: a@15; take 17: b@15; take 18: c@15; take 19",
    at_most_so_many_a_call_resumes_where_it_stopped,
    put_back_it_comes_again_and_nothing_else_is_lost:
        "a@15 b@15; take 15: a@15; a@15; waits 2; to 15: b@15 a@15; waits 0",
    a_panic_of_the_caller_costs_only_what_was_taken,
    random_deadlines_split_exactly_at_now,
    what_is_rescheduled_all_the_time_comes_once,
}

fn a_thousand_due_now_one_after_the_other(mode: Mode) {
    let mut wheel = Checked::at(mode, 3);
    for value in 0..1000 {
        wheel.schedule(3, value);
        assert_eq!(wheel.expire(3).map(|expired| expired.value), Some(value));
    }
    assert!(wheel.expire(3).is_none());
}

fn equal_deadlines_come_as_scheduled_from_far_and_near(mode: Mode) {
    const DEADLINE: u64 = 70_000;
    let approach = [0, 1, 63, 64, 4096, 65_535, 65_536, 69_000, 69_900, 69_996, 69_999];
    let mut wheel = Checked::new(mode);
    for now in approach {
        // Something due on the way makes the wheel take coarse buckets apart in between.
        wheel.schedule(now, u64::MAX);
        assert_eq!(wheel.jump(now), [(now, u64::MAX)]);
        wheel.schedule(DEADLINE, now);
    }
    assert_eq!(wheel.jump(DEADLINE), approach.map(|now| (DEADLINE, now)));
}

fn equal_deadlines_come_as_scheduled_after_a_jump(mode: Mode) {
    let mut wheel = Checked::new(mode);
    for value in 0..300 {
        wheel.schedule(1000 + value % 3 * 512, value);
    }
    let out = wheel.jump(1_000_000);
    assert_eq!(out.len(), 300);
    assert!(out.is_sorted_by_key(|&(deadline, value)| (deadline, value)));
}

fn deadlines_a_round_or_so_away_come_at_their_tick(mode: Mode) {
    let buckets = mode.buckets() as u64;
    for start in [0, 1, buckets / 2, buckets - 1] {
        let mut wheel = Checked::at(mode, start);
        let mut deadlines = Vec::new();
        for rounds in 1..=4 {
            for deadline in [rounds * buckets - 1, rounds * buckets, rounds * buckets + 1] {
                wheel.schedule(start + deadline, start + deadline);
                deadlines.push(start + deadline);
            }
        }
        deadlines.sort_unstable();
        let expected: Vec<_> = deadlines.into_iter().map(|deadline| (deadline, deadline)).collect();
        assert_eq!(wheel.walk(start + 5 * buckets), expected);
    }
}

fn every_delay_of_a_dense_range_comes_at_its_own_tick(mode: Mode) {
    let mut wheel = Checked::new(mode);
    let mut expected = Vec::new();
    let delays = (0..5).chain((10..100).flat_map(|delay| [delay, delay])).chain(100..500);
    for (id, delay) in delays.enumerate() {
        wheel.unchecked().schedule(delay, id);
        expected.push((delay, id));
    }
    // Of equal delays the earlier id comes first, so that the whole order is known.
    assert_eq!(wheel.walk(600), expected);
}

fn sparse_delays_come_each_at_its_own_tick(mode: Mode) {
    const END: u64 = 300_000;
    let mut delays = vec![2, 3, 65, 66, 127, 128, 1000, 1001, 4095, 4096, 4097, 10_003, 65_537];
    delays.extend([99_999, 131_072, 192_001, 262_143, 262_144, 262_145, END]);
    let mut wheel = Checked::new(mode);
    for &delay in delays.iter().rev() {
        wheel.schedule(delay, delay);
    }
    let mut out = Vec::new();
    for tick in 0..=END {
        while let Some(expired) = wheel.unchecked().expire(tick) {
            out.push((tick, expired.value));
        }
        if tick % 4096 == 0 {
            assert_eq!(wheel.jump(tick), []);
        }
    }
    assert_eq!(out, delays.into_iter().map(|delay| (delay, delay)).collect::<Vec<_>>());
}

fn powers_of_two_come_each_at_its_own_tick(mode: Mode) {
    let mut wheel = Checked::new(mode);
    let powers: Vec<u64> = (0..64).map(|bit| 1 << bit).collect();
    for &power in &powers {
        wheel.schedule(power, power);
    }
    for power in powers {
        // Ticks just before and in between hand out nothing.
        assert_eq!(
            wheel.jump(power - power / 4),
            if power < 4 { vec![(power, power)] } else { vec![] }
        );
        assert_eq!(wheel.jump(power - 1), []);
        assert_eq!(wheel.jump(power), if power < 4 { vec![] } else { vec![(power, power)] });
    }
    assert!(wheel.is_empty());
}

fn at_most_so_many_a_call_resumes_where_it_stopped(mode: Mode) {
    const LIMIT: usize = 100;
    let mut wheel = Checked::new(mode);
    for deadline in (0..950).rev() {
        wheel.unchecked().schedule(deadline * 7, deadline);
    }
    let mut batches = Vec::new();
    let mut expected = 0..950;
    while !wheel.is_empty() {
        let mut batch = 0;
        while batch < LIMIT {
            let Some(expired) = wheel.expire(1_000_000) else { break };
            assert_eq!(Some(expired.value), expected.next());
            batch += 1;
        }
        batches.push(batch);
    }
    assert_eq!(batches, [100, 100, 100, 100, 100, 100, 100, 100, 100, 50]);
    assert_eq!(wheel.now(), 1_000_000);
}

fn a_panic_of_the_caller_costs_only_what_was_taken(mode: Mode) {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    let mut wheel = Checked::new(mode);
    for (deadline, value) in [(10, "first"), (11, "second"), (300, "third")] {
        wheel.schedule(deadline, value);
    }
    let mut handled = Vec::new();
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        while let Some(expired) = wheel.expire(1000) {
            assert_ne!(expired.value, "second", "the caller's handler fails");
            handled.push(expired.value);
        }
    }));
    assert!(unwound.is_err());
    assert_eq!((handled, wheel.len(), wheel.now()), (vec!["first"], 1, 1000));
    assert_eq!(wheel.jump(1000), [(300, "third")]);
}

fn random_deadlines_split_exactly_at_now(mode: Mode) {
    let mut numbers = Numbers(17);
    for _ in 0..10 {
        let mut wheel = Checked::new(mode);
        let mut deadlines = Vec::new();
        for _ in 0..500 {
            let deadline = numbers.of_any_size();
            wheel.unchecked().schedule(deadline, ());
            deadlines.push((deadline, ()));
        }
        deadlines.sort_unstable();
        let now = numbers.of_any_size();
        let (due, later) = deadlines.split_at(deadlines.partition_point(|&(at, ())| at <= now));
        let mut out = Vec::new();
        while let Some(expired) = wheel.unchecked().expire(now) {
            out.push((expired.deadline, ()));
        }
        assert_eq!(out, due);
        assert_eq!(wheel.next_deadline(), later.first().map(|&(deadline, ())| deadline));
        assert_eq!(wheel.len(), later.len());
        assert_eq!(wheel.jump(u64::MAX), later);
    }
}

fn what_is_rescheduled_all_the_time_comes_once(mode: Mode) {
    let mut wheel = Checked::new(mode);
    let key = wheel.schedule(3, "only");
    for tick in 1..1000 {
        assert!(wheel.reschedule(key, tick + 3));
        assert!(wheel.expire(tick).is_none());
    }
    assert_eq!(wheel.walk(1100), [(1002, "only")]);
}
