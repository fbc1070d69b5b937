//! What is sorted ahead instead of being demoted, and what is not looked at.

use crate::checked::Checked;
use tickwheel::{Mode, steps};

in_each_hierarchical_mode! {
    few_in_one_far_bucket_are_sorted_at_once:
        "a@2^20+7000 b@2^20+5 c@2^20+300; to 2^21: b@2^20+5 c@2^20+300 a@2^20+7000; work 1 0",
    many_in_a_bucket_of_the_second_level_are_sorted_at_once,
    what_is_stale_does_not_go_back_into_buckets,
}

in_each_hashed_mode! {
    a_jump_of_rounds_scans_no_bucket_with_nothing_due,
}

in_each_mode! {
    one_alone_in_a_far_bucket_comes_straight_out_of_it,
    a_crowd_of_any_size_in_a_far_bucket_comes_in_order,
    one_alone_that_is_not_due_hides_nothing_before_it,
    a_bucket_emptied_by_a_cancel_is_looked_at_once_at_most,
    too_many_to_insert_among_go_back_into_buckets,
    what_is_overdue_stays_when_the_rest_goes_back_into_buckets,
    scheduled_among_those_sorted_comes_after_its_equals,
    equal_deadlines_of_a_few_in_a_far_bucket_come_as_scheduled,
    // After the time went on, an earlier `now` is the one that counts, whatever was cancelled.
    what_is_due_now_is_not_what_is_due_later:
        "a@100 b@110 c@120; take 130: a@100; -b; to 119; to 120: c@120",
    an_emptied_wheel_forgets_when_it_was_to_wake_up: "a@10; -a; b@1_000_000; wakes 1_000_000",
}

fn many_in_a_bucket_of_the_second_level_are_sorted_at_once(mode: Mode) {
    const CROWD: u64 = 500;
    let span = mode.buckets() as u64;
    let mut wheel = Checked::new(mode);
    for value in 0..CROWD {
        wheel.unchecked().schedule(span + value * 7 % span, ());
    }
    assert_eq!(wheel.jump_in_steps(2 * span, usize::MAX).len(), CROWD as usize);
    assert_eq!(wheel.work(), (1, 0));
}

#[test]
fn a_crowd_in_a_bucket_of_the_second_level_comes_in_order_where_a_level_has_many() {
    let mode: Mode = "hierarchical:1024".parse().expect("a mode");
    let mut wheel = Checked::new(mode);
    for value in 0..2_000 {
        wheel.unchecked().schedule(1024 + value * 7 % 1024, value);
    }
    let came = wheel.jump_in_steps(2047, usize::MAX);
    assert_eq!(came.len(), 2_000);
    let rounds = |(deadline, value): &(u64, u64)| (*deadline, *value);
    assert!(came.is_sorted_by_key(rounds), "by deadline, and of one as scheduled");
}

fn one_alone_in_a_far_bucket_comes_straight_out_of_it(mode: Mode) {
    for bit in 0..63 {
        let deadline = (1 << bit) + (0x5a5a_5a5a_5a5a_5a5a & ((1 << bit) - 1));
        let mut wheel = Checked::new(mode);
        wheel.schedule(deadline, ());
        assert_eq!(wheel.jump(1 << (bit + 1)), [(deadline, ())]);
        assert_eq!(wheel.work(), (1, 0));
    }
}

fn one_alone_that_is_not_due_hides_nothing_before_it(mode: Mode) {
    let (first, last) = (1 << 40, (1 << 40) + (1 << 35));
    let mut wheel = Checked::new(mode);
    wheel.schedule(last, "last");
    // Those that came first are gone, and cleared away.
    let keys: Vec<_> = (0..40).map(|_| wheel.schedule(first, "gone")).collect();
    for key in keys {
        wheel.cancel(key);
    }
    wheel.shrink_to_fit();
    assert_eq!(wheel.jump(first + 20), []);
    wheel.schedule(last - (1 << 32), "before it");
    assert_eq!(wheel.jump(last), [(last - (1 << 32), "before it"), (last, "last")]);
}

fn a_crowd_of_any_size_in_a_far_bucket_comes_in_order(mode: Mode) {
    for crowd in (5..12).flat_map(|bit| (1_u64 << bit) - 1..=(1 << bit) + 1) {
        let mut wheel = Checked::new(mode);
        let deadline = |value| (1 << 20) + crowd - value;
        for value in 0..crowd {
            wheel.unchecked().schedule(deadline(value), value);
        }
        let expected: Vec<_> = (0..crowd).rev().map(|value| (deadline(value), value)).collect();
        assert_eq!(wheel.jump_in_steps(1 << 21, usize::MAX), expected);
    }
}

fn a_bucket_emptied_by_a_cancel_is_looked_at_once_at_most(mode: Mode) {
    let mut wheel = Checked::new(mode);
    let first = wheel.schedule(10, "first");
    wheel.schedule(300, "second");
    wheel.cancel(first);
    assert_eq!(wheel.jump(10), []);
    let (visits, _) = wheel.work();
    assert!(visits <= 1);
    assert_eq!(wheel.jump(299), []);
    assert_eq!(wheel.jump(300), [(300, "second")]);
    assert!(wheel.work().0 <= 2 + visits);
}

fn a_jump_of_rounds_scans_no_bucket_with_nothing_due(mode: Mode) {
    let round = mode.buckets() as u64;
    let mut wheel = Checked::new(mode);
    wheel.schedule(5 * round, "due");
    for bucket in 1..round.min(20) {
        wheel.schedule((1 << 40) + bucket, "in another bucket");
    }
    assert_eq!(wheel.jump(10 * round), [(5 * round, "due")]);
    assert_eq!((wheel.work(), wheel.stats().rounds_waited), ((1, 0), 0));
}

/// What has been sorted is few or it is due: no schedule moves more than a few entries.
fn too_many_to_insert_among_go_back_into_buckets(mode: Mode) {
    const CROWD: u64 = 60;
    const BUCKET: u64 = 1 << 8;
    let mut wheel = Checked::new(mode);
    wheel.schedule(BUCKET + 1, 0);
    wheel.schedule(BUCKET + 63, 0);
    assert_eq!(wheel.jump(BUCKET + 1), [(BUCKET + 1, 0)]);
    for value in 1..CROWD {
        wheel.schedule(BUCKET + 63 - value, value);
        assert!(wheel.stats().sorted <= 40, "{} sorted", wheel.stats().sorted);
    }
    let expected: Vec<_> = (0..CROWD).rev().map(|value| (BUCKET + 63 - value, value)).collect();
    assert_eq!(wheel.jump(2 * BUCKET), expected);
}

/// A stale entry would move to where a sweep has been.
fn what_is_stale_does_not_go_back_into_buckets(mode: Mode) {
    const BUCKET: u64 = 1 << 8;
    let mut wheel = Checked::new(mode);
    wheel.schedule(BUCKET + 1, 0);
    for value in 1..=40 {
        wheel.schedule(BUCKET + 60, value);
    }
    let keys: Vec<_> = (41..=100).map(|value| wheel.schedule(BUCKET + 63, value)).collect();
    assert_eq!(wheel.jump(BUCKET + 1), [(BUCKET + 1, 0)]);
    for key in keys {
        wheel.cancel(key);
    }
    let stats = wheel.stats();
    assert_eq!((stats.sorted, stats.stale), (100, 60));
    wheel.schedule(BUCKET + 61, 101);
    let stats = wheel.stats();
    assert_eq!((stats.sorted, stats.stale), (0, 0));
    let expected: Vec<_> = (1..=40).map(|value| (BUCKET + 60, value)).collect();
    assert_eq!(wheel.jump(BUCKET + 60), expected);
    assert_eq!(wheel.jump(BUCKET + 61), [(BUCKET + 61, 101)]);
}

/// A whole bucket was sorted, of which a part is due and not handed out yet.
fn what_is_overdue_stays_when_the_rest_goes_back_into_buckets(mode: Mode) {
    const CROWD: u64 = 5000;
    let bucket = mode.buckets() as u64;
    let deadline = |value| bucket + value % bucket;
    for overdue in [1, bucket / 2, bucket - 1] {
        let mut wheel = Checked::new(mode);
        let mut expected = Vec::new();
        for value in 0..CROWD {
            wheel.unchecked().schedule(deadline(value), value);
            expected.push((deadline(value), value));
        }
        expected.sort_unstable();
        let first = wheel.expire(bucket).map(|expired| (expired.deadline, expired.value));
        assert_eq!(first, Some(expected.remove(0)));
        let now = bucket + overdue.min(bucket - 1);
        assert!(wheel.expire_bounded(now, &mut 0).is_none());
        for value in CROWD..CROWD + 100 {
            let deadline = (deadline(value) + 1).max(now);
            wheel.schedule(deadline, value);
            expected.push((deadline, value));
        }
        expected.sort_unstable();
        assert_eq!(wheel.jump_in_steps(4 * bucket, 1000), expected);
    }
}

/// Of a bucket that was sorted as a whole nearly all is.
#[test]
fn what_is_overdue_costs_nothing_when_the_rest_goes_back_into_buckets() {
    const CROWD: u64 = 5000;
    let mut wheel = Checked::new(Mode::hierarchical());
    let bucket = wheel.mode().buckets() as u64;
    for value in 0..CROWD {
        wheel.unchecked().schedule(bucket, value);
    }
    wheel.schedule(2 * bucket - 1, CROWD);
    assert_eq!(wheel.expire(bucket).map(|expired| expired.value), Some(0));
    assert_eq!(wheel.stats().sorted as u64, CROWD);
    let before = steps();
    wheel.unchecked().schedule(2 * bucket - 2, CROWD + 1);
    let taken = steps() - before;
    assert!(taken <= 500, "{taken} steps");
    let mut expected: Vec<_> = (1..CROWD).map(|value| (bucket, value)).collect();
    expected.extend([(2 * bucket - 2, CROWD + 1), (2 * bucket - 1, CROWD)]);
    assert_eq!(wheel.jump_in_steps(4 * bucket, 1000), expected);
}

fn scheduled_among_those_sorted_comes_after_its_equals(mode: Mode) {
    const BUCKET: u64 = 1 << 8;
    // The largest crowd is more than entries are moved for.
    for crowd in [1, 5, 50] {
        let mut wheel = Checked::new(mode);
        wheel.schedule(BUCKET + 1, 0);
        for value in 0..crowd {
            wheel.schedule(BUCKET + 40, value);
            wheel.schedule(BUCKET + 60, value);
        }
        assert_eq!(wheel.jump(BUCKET + 1), [(BUCKET + 1, 0)]);
        wheel.schedule(BUCKET + 40, crowd);
        wheel.schedule(BUCKET + 60, crowd);
        wheel.schedule(BUCKET + 40, crowd + 1);
        let of = |deadline, values| (0..values).map(move |value| (deadline, value));
        let expected: Vec<_> =
            of(BUCKET + 40, crowd + 2).chain(of(BUCKET + 60, crowd + 1)).collect();
        assert_eq!(wheel.jump(BUCKET + 60), expected);
    }
}

fn equal_deadlines_of_a_few_in_a_far_bucket_come_as_scheduled(mode: Mode) {
    for bit in [8, 12, 16, 18, 24, 30] {
        for crowd in [10, 25, 45, 60, 120] {
            let mut wheel = Checked::new(mode);
            let mut expected = Vec::new();
            for value in 0..crowd {
                let deadline = (1 << bit) + 4 - value * 3 % 5;
                wheel.unchecked().schedule(deadline, value);
                expected.push((deadline, value));
            }
            expected.sort_unstable();
            assert_eq!(wheel.jump(2 << bit), expected, "{crowd} at 2^{bit}");
        }
    }
}
