//! What comes out when, and in which order.

use crate::checked::Checked;
use crate::common::Numbers;
use crate::stamps::modes;
use tickwheel::Mode;

in_each_mode! {
    comes_at_its_deadline_and_not_before,
    due_now_comes_at_once_and_once,
    all_that_is_due_now_comes_each_once,
    past_deadlines_count_as_now,
    far_past_deadline_leaves_the_next_wake_right,
    past_for_the_caller_but_not_for_a_stale_wheel_comes_at_once,
    a_thousand_due_now_one_after_the_other,
    scheduled_and_not_driven_comes_at_the_first_drive,
    shorter_scheduled_second_comes_first,
    equal_deadlines_come_as_scheduled,
    equal_deadlines_come_as_scheduled_from_far_and_near,
    equal_deadlines_come_as_scheduled_after_a_jump,
    rescheduled_comes_last_of_its_tick,
    different_ticks_come_each_at_its_own,
    same_bucket_of_different_rounds_comes_at_different_ticks,
    a_deadline_rounds_away_comes_in_its_own_round_only,
    deadlines_a_round_or_so_away_come_at_their_tick,
    every_delay_of_a_dense_range_comes_at_its_own_tick,
    sparse_delays_come_each_at_its_own_tick,
    powers_of_two_come_each_at_its_own_tick,
    a_step_across_a_bucket_boundary_hides_nothing,
    one_taken_at_a_time_leaves_the_others_for_the_next_call,
    at_most_so_many_a_call_resumes_where_it_stopped,
    put_back_it_comes_again_and_nothing_else_is_lost,
    a_panic_of_the_caller_costs_only_what_was_taken,
    random_deadlines_split_exactly_at_now,
    what_is_rescheduled_all_the_time_comes_once,
}

fn comes_at_its_deadline_and_not_before(mode: Mode) {
    for delay in [1, 5, 6, 10, 15, 60, 500, 605] {
        let mut wheel = Checked::new(mode);
        let key = wheel.schedule(delay, "only");
        assert_eq!(wheel.deadline(key), Some(delay));
        assert_eq!(wheel.walk(delay - 1), []);
        assert_eq!(wheel.get(key), Some(&"only"));
        assert_eq!(wheel.jump(delay), [(delay, "only")]);
        assert_eq!(wheel.get(key), None);
        assert_eq!(wheel.walk(2 * delay), []);
    }
}

fn due_now_comes_at_once_and_once(mode: Mode) {
    for now in [0, 1, 1000, u64::MAX] {
        let mut wheel = Checked::at(mode, now);
        wheel.schedule(now, "now");
        assert_eq!(wheel.next_deadline(), Some(now));
        assert_eq!(wheel.jump(now), [(now, "now")]);
        assert!(wheel.is_empty());
        assert_eq!(wheel.jump(now), []);
    }
}

fn all_that_is_due_now_comes_each_once(mode: Mode) {
    let mut wheel = Checked::at(mode, 77);
    for value in ["a", "b", "c"] {
        wheel.schedule(77, value);
    }
    assert_eq!(wheel.jump(77), [(77, "a"), (77, "b"), (77, "c")]);
    assert_eq!(wheel.jump(78), []);
}

fn past_deadlines_count_as_now(mode: Mode) {
    let mut wheel = Checked::at(mode, 100);
    let first = wheel.schedule(99, 99);
    for deadline in [95, 97, 0] {
        wheel.schedule(deadline, deadline);
    }
    assert_eq!(wheel.deadline(first), Some(100));
    assert_eq!(wheel.next_deadline(), Some(100));
    assert_eq!(wheel.jump(99), [], "a deadline that counts as now is not due before");
    assert_eq!(wheel.jump(100), [(100, 99), (100, 95), (100, 97), (100, 0)]);
    assert_eq!(wheel.jump(u64::MAX), []);
}

fn far_past_deadline_leaves_the_next_wake_right(mode: Mode) {
    let mut wheel = Checked::at(mode, 500_000_000);
    wheel.schedule(500_000_002, "soon");
    wheel.schedule(0, "long ago");
    assert_eq!(wheel.next_wake(), Some(500_000_000));
    assert_eq!(wheel.jump(500_000_000), [(500_000_000, "long ago")]);
    assert_eq!(wheel.next_wake(), Some(500_000_002));
    assert_eq!(wheel.jump(500_000_001), []);
    assert_eq!(wheel.jump(500_000_002), [(500_000_002, "soon")]);
}

fn past_for_the_caller_but_not_for_a_stale_wheel_comes_at_once(mode: Mode) {
    // Nothing comes due on the way to 2000, so that buckets stay as they were at tick 0.
    let mut wheel = Checked::new(mode);
    wheel.schedule(2100, "later");
    assert_eq!(wheel.jump(2000), []);
    wheel.schedule(1500, "past");
    wheel.schedule(2000, "present");
    assert_eq!(wheel.jump(2000), [(2000, "past"), (2000, "present")]);
    assert_eq!(wheel.walk(2100), [(2100, "later")]);
}

fn a_thousand_due_now_one_after_the_other(mode: Mode) {
    let mut wheel = Checked::at(mode, 3);
    for value in 0..1000 {
        wheel.schedule(3, value);
        assert_eq!(wheel.expire(3).map(|expired| expired.value), Some(value));
    }
    assert!(wheel.expire(3).is_none());
}

fn scheduled_and_not_driven_comes_at_the_first_drive(mode: Mode) {
    let mut wheel = Checked::new(mode);
    wheel.schedule(15, "fifteen");
    wheel.schedule(40, "forty");
    assert_eq!(wheel.jump(32), [(15, "fifteen")]);
    assert_eq!(wheel.walk(40), [(40, "forty")]);
}

fn shorter_scheduled_second_comes_first(mode: Mode) {
    let mut wheel = Checked::new(mode);
    wheel.schedule(1000, "slow");
    assert_eq!(wheel.jump(2), []);
    wheel.schedule(10, "fast");
    assert_eq!(wheel.walk(1000), [(10, "fast"), (1000, "slow")]);
}

fn equal_deadlines_come_as_scheduled(mode: Mode) {
    let mut wheel = Checked::new(mode);
    for value in 0..10 {
        wheel.schedule(if value % 2 == 0 { 15 } else { 16 }, value);
    }
    let evens = [0, 2, 4, 6, 8].map(|value| (15, value));
    let odds = [1, 3, 5, 7, 9].map(|value| (16, value));
    assert_eq!(wheel.walk(16), [evens, odds].concat());
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

fn rescheduled_comes_last_of_its_tick(mode: Mode) {
    let mut wheel = Checked::new(mode);
    let keys = ["a", "b", "c", "d"].map(|value| wheel.schedule(90, value));
    assert!(wheel.reschedule(keys[0], 90), "to the tick it had");
    assert!(wheel.reschedule(keys[2], 20), "away");
    assert!(wheel.reschedule(keys[2], 90), "and back");
    assert_eq!(wheel.walk(90), [(90, "b"), (90, "d"), (90, "a"), (90, "c")]);
}

fn different_ticks_come_each_at_its_own(mode: Mode) {
    let mut wheel = Checked::new(mode);
    wheel.schedule(15, "fifteen");
    wheel.schedule(23, "twenty-three");
    assert_eq!(wheel.walk(128), [(15, "fifteen"), (23, "twenty-three")]);
}

fn same_bucket_of_different_rounds_comes_at_different_ticks(mode: Mode) {
    let buckets = mode.buckets() as u64;
    let mut wheel = Checked::new(mode);
    for round in [3, 1, 2, 0] {
        wheel.schedule(7 + round * buckets, round);
    }
    let expected: Vec<_> = (0..4).map(|round| (7 + round * buckets, round)).collect();
    assert_eq!(wheel.walk(7 + 4 * buckets), expected);
}

fn a_deadline_rounds_away_comes_in_its_own_round_only(mode: Mode) {
    let buckets = mode.buckets() as u64;
    let deadline = 4 * buckets - 1;
    let mut wheel = Checked::new(mode);
    wheel.schedule(deadline, "only");
    assert_eq!(wheel.walk(8 * buckets), [(deadline, "only")]);
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

fn a_step_across_a_bucket_boundary_hides_nothing(mode: Mode) {
    let mut wheel = Checked::at(mode, 5);
    wheel.schedule(65, "across sixty-four");
    assert_eq!(wheel.walk(70), [(65, "across sixty-four")]);
    let mut wheel = Checked::at(mode, 250);
    wheel.schedule(257, "across 256");
    wheel.schedule(513, "across 512");
    assert_eq!(wheel.walk(600), [(257, "across 256"), (513, "across 512")]);
}

fn one_taken_at_a_time_leaves_the_others_for_the_next_call(mode: Mode) {
    let mut wheel = Checked::new(mode);
    for value in ["a", "b", "c"] {
        wheel.schedule(15, value);
    }
    for (tick, value) in (16..).zip(["a", "b", "c"]) {
        let expired = wheel.expire(tick).expect("one is left");
        assert_eq!((expired.deadline, expired.value), (15, value));
    }
    assert!(wheel.expire(19).is_none());
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

fn put_back_it_comes_again_and_nothing_else_is_lost(mode: Mode) {
    let mut wheel = Checked::new(mode);
    for value in ["a", "b"] {
        wheel.schedule(15, value);
    }
    let refused = wheel.expire(15).expect("both are due");
    wheel.schedule(refused.deadline, refused.value);
    assert_eq!(wheel.len(), 2);
    assert_eq!(wheel.jump(15), [(15, "b"), (15, "a")]);
    assert_eq!(wheel.len(), 0);
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

/// One long run of all calls, drawn at random: whatever the mode, the same comes out at the same
/// moments as from a sorted list.
#[test]
fn random_calls_have_the_same_answers_in_every_mode() {
    for seed in 0..12 {
        let traces = modes().map(|mode| trace(mode, seed));
        for (mode, trace) in modes().iter().zip(&traces) {
            assert!(*trace == traces[0], "{mode} does as {} does, seed {seed}", modes()[0]);
        }
    }
}

/// The same calls on the same mode have the same answers, to the letter.
#[test]
fn random_calls_have_the_same_answers_every_time() {
    for mode in modes() {
        assert_eq!(trace(mode, 99), trace(mode, 99));
    }
}

/// Makes calls drawn at random, and compares with a sorted list at every step.
fn trace(mode: Mode, seed: u64) -> Vec<(u64, u64, u64)> {
    let mut numbers = Numbers(seed);
    let mut wheel = Checked::new(mode);
    let mut keys = Vec::new();
    // By deadline, and those of equal deadlines by the order of scheduling.
    let mut model: Vec<(u64, u64, u64)> = Vec::new();
    let mut now = 0;
    let mut out = Vec::new();
    for step in 0..1000 {
        let delay = if numbers.below(8) == 0 { numbers.of_any_size() } else { numbers.below(900) };
        let deadline: u64 =
            numbers.below(4).wrapping_sub(2).wrapping_add(now).saturating_add(delay);
        match numbers.below(8) {
            0..3 => {
                keys.push(wheel.schedule(deadline, step));
                model.push((deadline.max(now), step, step));
            }
            3 if !keys.is_empty() => {
                let id = numbers.below(keys.len() as u64) as usize;
                let value = wheel.cancel(keys[id]);
                let at = model.iter().position(|&(.., id)| Some(id) == value);
                assert_eq!(at.map(|at| model.remove(at).2), value);
            }
            4..6 if !keys.is_empty() => {
                let key = keys[numbers.below(keys.len() as u64) as usize];
                let value = wheel.get(key).copied();
                assert_eq!(wheel.reschedule(key, deadline), value.is_some());
                if let Some(timeout) = model.iter_mut().find(|&&mut (.., id)| Some(id) == value) {
                    *timeout = (deadline.max(now), step, timeout.2);
                }
            }
            _ => {
                let jump = if numbers.below(50) == 0 { 1 << 40 } else { 300 };
                now = now.saturating_add(numbers.below(jump));
                model.sort_unstable();
                for _ in 0..numbers.below(20) {
                    let expected = model.first().filter(|timeout| timeout.0 <= now).copied();
                    let expired = wheel.expire(now);
                    assert_eq!(
                        expired.map(|expired| (expired.deadline, expired.value)),
                        expected.map(|(deadline, _, value)| (deadline, value)),
                    );
                    let Some((deadline, _, value)) = expected else { break };
                    model.remove(0);
                    out.push((now, deadline, value));
                }
                now = wheel.now();
            }
        }
        assert_eq!(wheel.next_deadline(), model.iter().map(|timeout| timeout.0).min());
    }
    out
}
