//! Any tick of a range will do: the wheel takes one that costs least.

use crate::checked::Checked;
use crate::common::{Numbers, long};
use std::collections::BTreeSet;
use tickwheel::Mode;

in_each_hierarchical_mode! {
    something_due_in_the_range_is_found_at_any_distance,
    // `b` is in the bucket of the last tick.
    something_beyond_the_range_hides_nothing: "a@3cube+1 b@5cube+2; c@3cube..5cube+1; c=3cube+1",
    a_tick_that_two_share_is_taken_before_that_of_one: "a@523 b@523 c@590; d@513..600; d=523",
    // The wheel has made no choice before, which it would remember.
    what_is_due_at_the_coarsest_tick_is_found_before_one_that_is_alone:
        "a@512 b@590; c@500..600; c=512; anew; a@590 b@512; c@500..600; c=512",
    // A bucket was sorted as a whole, so its later ticks are in no bucket any more.
    what_is_sorted_ahead_is_found:
        "a@2^40+1 b@2^40+3 c@2^40+3; take 2^40+1: a@2^40+1; d@2^40+2..2^40+3; d=2^40+3; "
        "e@2^40+2..2^40+2; e=2^40+2",
}

in_each_hashed_mode! {
    something_due_in_the_coming_round_is_found,
}

in_each_mode! {
    the_tick_is_in_the_range_whatever_waits,
    alone_it_comes_at_the_coarsest_tick:
        "a@30_000..31_000; a=30_720; to 30_719; to 30_720: a@30_720; anew; a@30_000..30_000; "
        "a=30_000; anew; a@1..1_000_000; a=524_288; to 524_287; anew; a@65..127; a=96; anew; "
        "a@max-5..max; a=max-3; to max-4; to max-3: a@max-3; a@max..max; a=max; to max: a@max",
    // The one may be a request that is answered.
    the_coarsest_tick_is_taken_before_that_of_one_if_something_is_due_there:
        "a@500..600; a=512; b@590; c@500..600; c=512",
    // It may be due now, but then it costs a wake-up of its own.
    a_range_that_has_begun_is_what_is_left_of_it: "to 1000; a@500..1010; a=1008",
    a_range_that_is_over_is_due_now:
        "to 1000; a@0..0 b@0..999 c@5..1000 d@1000..1000; a=1000 b=1000 c=1000 d=1000; "
        "to 1000: a@1000 b@1000 c@1000 d@1000",
    a_range_turned_round_is_its_start,
    the_whole_of_time_is_a_range,
    ranges_that_overlap_meet,
    what_is_cancelled_leaves_the_tick_in_the_range,
    // It keeps its place. Due and not handed out, it is in a range that has begun.
    in_the_range_it_is_not_moved:
        "a@100 b@100; a>100..100 a>0..100 a>99..101 a>100..max; a=100 b=100; stale 0; "
        "to 100: a@100 b@100; c@150 d@140; take 200: d@140; c>150..300; to 200: c@150",
    out_of_the_range_it_is_moved,
    a_stale_key_moves_nothing: "a@100; -a; b@100; !a; to max: b@100",
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

fn in_the_middle_of_a_step_the_tick_is_in_the_range(mode: Mode) {
    const FAR: u64 = 1 << 20;
    for &work in long(&[600, 2_100][..], &[1, 600, 2_100, 3_500]) {
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
