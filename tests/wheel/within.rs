//! Any tick of a range will do: the wheel takes one that costs least.

use crate::checked::Checked;
use crate::common::Numbers;
use std::collections::BTreeSet;
use tickwheel::Mode;

in_each_hierarchical_mode! {
    something_due_in_the_range_is_found_at_any_distance,
    something_beyond_the_range_hides_nothing,
    what_is_sorted_ahead_is_found,
}

in_each_hashed_mode! {
    something_due_in_the_coming_round_is_found,
}

in_each_mode! {
    the_tick_is_in_the_range_whatever_waits,
    alone_it_comes_at_the_coarsest_tick,
    a_range_that_has_begun_is_what_is_left_of_it,
    a_range_that_is_over_is_due_now,
    a_range_turned_round_is_its_start,
    the_whole_of_time_is_a_range,
    ranges_that_overlap_meet,
    what_is_cancelled_leaves_the_tick_in_the_range,
    in_the_range_it_is_not_moved,
    out_of_the_range_it_is_moved,
    a_stale_key_moves_nothing,
    in_the_middle_of_a_step_the_tick_is_in_the_range,
}

fn the_tick_is_in_the_range_whatever_waits(mode: Mode) {
    let mut numbers = Numbers(5);
    let mut wheel = Checked::at(mode, 12_345);
    for value in 0..1_000 {
        let earliest = wheel.now() + numbers.of_any_size() / 2;
        let latest = earliest + numbers.of_any_size() / 4;
        let key = wheel.unchecked().schedule_within(earliest..=latest, value);
        let deadline = wheel.deadline(key).expect("it is pending");
        assert!((earliest..=latest).contains(&deadline), "{deadline}: {earliest}..={latest}");
        wheel.unchecked().schedule(numbers.of_any_size(), value);
        if value % 50 == 0 {
            wheel.check();
            let now = wheel.now() + numbers.below(1_000);
            wheel.expire(now);
        }
    }
    wheel.check();
}

fn alone_it_comes_at_the_coarsest_tick(mode: Mode) {
    for (range, coarsest) in [
        (30_000..=31_000, 30_720),
        (30_000..=30_000, 30_000),
        (1..=1_000_000, 524_288),
        (65..=127, 96),
        (u64::MAX - 5..=u64::MAX, u64::MAX - 3),
        (u64::MAX..=u64::MAX, u64::MAX),
    ] {
        let mut wheel = Checked::new(mode);
        let key = wheel.unchecked().schedule_within(range, ());
        assert_eq!(wheel.deadline(key), Some(coarsest));
        wheel.check();
        assert!(wheel.expire(coarsest - 1).is_none());
        assert!(wheel.expire(coarsest).is_some());
    }
}

/// It may be due now, but then it costs a wake-up of its own.
fn a_range_that_has_begun_is_what_is_left_of_it(mode: Mode) {
    let mut wheel = Checked::at(mode, 1_000);
    let key = wheel.unchecked().schedule_within(500..=1_010, ());
    assert_eq!(wheel.deadline(key), Some(1_008));
}

fn something_due_in_the_range_is_found_at_any_distance(mode: Mode) {
    for bit in 4..63 {
        for (before, after) in [(0, 3), (3, 0), (2, 2), (1 << (bit - 2), 1 << (bit - 1))] {
            let mut wheel = Checked::at(mode, 7);
            // One that is due sooner, and one later, hide nothing.
            wheel.schedule(8, 0);
            let due = (1 << bit) + 11;
            wheel.schedule(due, 1);
            wheel.schedule(u64::MAX, 2);
            let range = due.saturating_sub(before)..=due + after;
            let key = wheel.unchecked().schedule_within(range.clone(), 3);
            assert_eq!(wheel.deadline(key), Some(due), "in {range:?}");
            // It comes behind the one that it meets.
            assert!(wheel.jump(due).into_iter().map(|(_, value)| value).eq([0, 1, 3]));
        }
    }
}

fn something_due_in_the_coming_round_is_found(mode: Mode) {
    let round = mode.buckets() as u64;
    for distance in 2..round.min(100) {
        let mut wheel = Checked::at(mode, round);
        wheel.schedule(round + distance, 0);
        let range = round + distance - 1..=round + distance;
        let key = wheel.unchecked().schedule_within(range, 1);
        assert_eq!(wheel.deadline(key), Some(round + distance));
    }
}

fn something_beyond_the_range_hides_nothing(mode: Mode) {
    let span = (mode.buckets() as u64).pow(3);
    let mut wheel = Checked::new(mode);
    wheel.schedule(3 * span + 1, 0);
    // In the bucket of the last tick.
    wheel.schedule(5 * span + 2, 1);
    let key = wheel.unchecked().schedule_within(3 * span..=5 * span + 1, 2);
    assert_eq!(wheel.deadline(key), Some(3 * span + 1));
}

/// A bucket was sorted as a whole, so its later ticks are in no bucket any more.
fn what_is_sorted_ahead_is_found(mode: Mode) {
    let far = 1 << 40;
    let mut wheel = Checked::new(mode);
    for deadline in [far + 1, far + 3, far + 3] {
        wheel.schedule(deadline, deadline);
    }
    assert!(wheel.expire(far + 1).is_some());
    let key = wheel.unchecked().schedule_within(far + 2..=far + 3, 0);
    assert_eq!(wheel.deadline(key), Some(far + 3));
    let key = wheel.unchecked().schedule_within(far + 2..=far + 2, 0);
    assert_eq!(wheel.deadline(key), Some(far + 2));
    wheel.check();
}

fn a_range_that_is_over_is_due_now(mode: Mode) {
    let mut wheel = Checked::at(mode, 1_000);
    for range in [0..=0, 0..=999, 5..=1_000, 1_000..=1_000] {
        let key = wheel.unchecked().schedule_within(range, ());
        assert_eq!(wheel.deadline(key), Some(1_000));
    }
    assert_eq!(wheel.jump(1_000).len(), 4);
}

#[expect(clippy::reversed_empty_ranges, reason = "that is what it is about")]
fn a_range_turned_round_is_its_start(mode: Mode) {
    let mut wheel = Checked::at(mode, 100);
    wheel.schedule(300, ());
    let key = wheel.unchecked().schedule_within(500..=200, ());
    assert_eq!(wheel.deadline(key), Some(500), "never early");
    let key = wheel.unchecked().schedule_within(50..=20, ());
    assert_eq!(wheel.deadline(key), Some(100));
    assert!(wheel.unchecked().reschedule_within(key, u64::MAX..=0));
    assert_eq!(wheel.deadline(key), Some(u64::MAX));
    let mut exhausted = 200..=210;
    assert_eq!(exhausted.by_ref().count(), 11);
    let key = wheel.unchecked().schedule_within(exhausted, ());
    assert!(wheel.deadline(key).is_some_and(|deadline| (200..=210).contains(&deadline)));
    wheel.check();
}

fn the_whole_of_time_is_a_range(mode: Mode) {
    let mut wheel = Checked::new(mode);
    for now in [0, 1, 1 << 40, u64::MAX - 1, u64::MAX] {
        wheel.jump(now);
        let key = wheel.unchecked().schedule_within(0..=u64::MAX, now);
        assert!(wheel.deadline(key).is_some_and(|deadline| now <= deadline));
        wheel.check();
    }
}

/// 500 beats whose ranges are a thousand ticks long, over ten thousand ticks.
fn ranges_that_overlap_meet(mode: Mode) {
    let mut numbers = Numbers(3);
    let mut wheel = Checked::new(mode);
    for value in 0..500 {
        let earliest = 30_000 + numbers.below(10_000);
        wheel.unchecked().schedule_within(earliest..=earliest + 1_000, value);
    }
    wheel.check();
    let ticks: BTreeSet<_> = wheel.iter().map(|(_, deadline, _)| deadline).collect();
    assert!(ticks.len() <= 11_000 / 512 + 1, "a tick for each 512: {ticks:?}");
}

fn what_is_cancelled_leaves_the_tick_in_the_range(mode: Mode) {
    let mut numbers = Numbers(17);
    let mut wheel = Checked::at(mode, 3);
    let mut keys = Vec::new();
    for value in 0..600 {
        let earliest = 100 + numbers.below(5_000);
        let latest = earliest + numbers.below(50);
        let key = wheel.schedule(earliest + numbers.below(50), value);
        keys.push(wheel.unchecked().schedule_within(earliest..=latest, value));
        assert!((earliest..=latest).contains(&wheel.deadline(keys[value]).expect("it is new")));
        let gone = numbers.below(keys.len() as u64) as usize;
        wheel.cancel(keys[gone]);
        wheel.cancel(key);
    }
}

fn in_the_range_it_is_not_moved(mode: Mode) {
    let mut wheel = Checked::new(mode);
    let (first, second) = (wheel.schedule(100, 1), wheel.schedule(100, 2));
    for range in [100..=100, 0..=100, 99..=101, 100..=u64::MAX] {
        assert!(wheel.unchecked().reschedule_within(first, range));
        assert_eq!((wheel.deadline(first), wheel.deadline(second)), (Some(100), Some(100)));
    }
    assert_eq!(wheel.stats().stale, 0, "it left nothing behind");
    assert_eq!(wheel.jump(100), [(100, 1), (100, 2)], "in its place");
    // Due and not handed out, it is in a range that has begun.
    let due = wheel.schedule(150, 3);
    wheel.schedule(140, 4);
    assert_eq!(wheel.expire(200).map(|expired| expired.value), Some(4));
    assert!(wheel.unchecked().reschedule_within(due, 150..=300));
    assert_eq!(wheel.jump(200), [(150, 3)]);
}

fn out_of_the_range_it_is_moved(mode: Mode) {
    let mut wheel = Checked::new(mode);
    let key = wheel.schedule(100, 1);
    for range in [101..=120, 121..=300, 10..=119, 5..=5] {
        assert!(wheel.unchecked().reschedule_within(key, range.clone()));
        assert!(range.contains(&wheel.deadline(key).expect("it is pending")));
        wheel.check();
    }
    assert_eq!(wheel.walk(400), [(5, 1)]);
}

fn a_stale_key_moves_nothing(mode: Mode) {
    let mut wheel = Checked::new(mode);
    let key = wheel.schedule(100, 1);
    wheel.cancel(key);
    wheel.schedule(100, 2);
    assert!(!wheel.unchecked().reschedule_within(key, 0..=u64::MAX));
    assert!(!wheel.unchecked().reschedule_within(key, 500..=600));
    assert_eq!(wheel.jump(u64::MAX), [(100, 2)]);
}

fn in_the_middle_of_a_step_the_tick_is_in_the_range(mode: Mode) {
    const FAR: u64 = 1 << 20;
    for work in [1, 600, 2_100, 3_500] {
        let mut wheel = Checked::new(mode);
        for value in 0..5_000 {
            wheel.unchecked().schedule(FAR + value * 7 % 900, value);
        }
        let mut work = work;
        wheel.expire_bounded(FAR + 300, &mut work);
        for earliest in (FAR..FAR + 1_000).step_by(83) {
            for width in [0, 1, 40, 5_000] {
                let key = wheel.unchecked().schedule_within(earliest..=earliest + width, 0);
                let deadline = wheel.deadline(key).expect("it is pending");
                let latest = (earliest + width).max(FAR + 300);
                assert!((earliest.max(FAR + 300)..=latest).contains(&deadline));
            }
        }
        wheel.check();
        let out = wheel.jump(u64::MAX);
        assert!(out.is_sorted_by_key(|&(deadline, _)| deadline));
    }
}
