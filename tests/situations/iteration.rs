//! Looking at all timeouts, and taking all of them out.

use crate::common::{Checked, Numbers};
use tickwheel::Mode;

in_each_hierarchical_mode! {
    each_waits_on_the_level_of_its_highest_digit,
}

in_each_mode! {
    iterating_shows_each_timeout_once,
    iterating_shows_what_is_due_too,
    keys_from_iterating_cancel_exactly_that_timeout,
    iterators_know_how_many_are_left,
    draining_takes_each_out_once,
    draining_half_and_dropping_the_rest_empties_the_wheel,
    a_leaked_drain_leaves_the_rest_where_it_was,
    levels_add_up_to_all_that_wait,
}

fn iterating_shows_each_timeout_once(mode: Mode) {
    let mut numbers = Numbers(11);
    let mut wheel = Checked::new(mode);
    assert_eq!(wheel.iter().count(), 0);
    let mut expected = Vec::new();
    for value in 0..300 {
        let deadline = numbers.of_any_size();
        expected.push((wheel.unchecked().schedule(deadline, value), deadline, value));
    }
    for index in (0..100).rev() {
        let (key, _, value) = expected.remove(3 * index);
        assert_eq!(wheel.unchecked().cancel(key), Some(value));
    }
    expected.sort_unstable();
    let mut seen: Vec<_> = wheel.iter().map(|(key, at, &value)| (key, at, value)).collect();
    seen.sort_unstable();
    assert_eq!(seen, expected);
    let mut seen: Vec<_> = (&*wheel).into_iter().map(|(_, at, &value)| (at, value)).collect();
    seen.sort_by_key(|&(deadline, _)| deadline);
    assert_eq!(wheel.jump(u64::MAX), seen);
}

fn iterating_shows_what_is_due_too(mode: Mode) {
    let mut wheel = Checked::new(mode);
    for deadline in [10, 20, 30, 1000] {
        wheel.schedule(deadline, ());
    }
    assert!(wheel.expire(50).is_some());
    let mut deadlines: Vec<_> = wheel.iter().map(|(_, deadline, ())| deadline).collect();
    deadlines.sort_unstable();
    assert_eq!(deadlines, [20, 30, 1000]);
}

fn keys_from_iterating_cancel_exactly_that_timeout(mode: Mode) {
    let mut wheel = Checked::new(mode);
    for deadline in [15, 23, 23, 5000] {
        wheel.schedule(deadline, wheel.len());
    }
    while let Some((key, deadline, value)) = wheel.iter().map(|(k, d, v)| (k, d, *v)).last() {
        assert_eq!((wheel.deadline(key), wheel.get(key)), (Some(deadline), Some(&value)));
        let len = wheel.len();
        assert_eq!(wheel.cancel(key), Some(value));
        assert!(wheel.iter().all(|(other, ..)| other != key));
        assert_eq!(wheel.iter().count(), len - 1);
    }
    assert_eq!(wheel.jump(10_000), []);
}

fn iterators_know_how_many_are_left(mode: Mode) {
    let mut wheel = Checked::new(mode);
    let keys = [1, 2, 3, 4000, 5000].map(|deadline| wheel.schedule(deadline, ()));
    wheel.cancel(keys[1]);
    let mut iter = wheel.iter();
    let mut drained = 4;
    for left in (0..4).rev() {
        assert!(iter.next().is_some());
        assert_eq!((iter.len(), iter.clone().count()), (left, left));
    }
    assert_eq!((iter.next(), iter.next()), (None, None));
    let mut drain = wheel.drain();
    while drain.next().is_some() {
        drained -= 1;
        assert_eq!(drain.len(), drained);
    }
    assert!(drain.next().is_none());
}

fn draining_takes_each_out_once(mode: Mode) {
    let mut wheel = Checked::new(mode);
    let mut expected = Vec::new();
    for value in 0..100 {
        let key = wheel.schedule(value * value * value, value);
        expected.push((key, value * value * value, value));
    }
    assert_eq!(wheel.expire(8).map(|expired| expired.value), Some(0));
    assert_eq!(wheel.expire(8).map(|expired| expired.value), Some(1));
    let mut out: Vec<_> =
        wheel.drain().map(|expired| (expired.key, expired.deadline, expired.value)).collect();
    out.sort_by_key(|&(.., value)| value);
    assert_eq!(out, expected[2..]);
    assert!(wheel.is_empty());
    assert_eq!(wheel.jump(u64::MAX), []);
}

fn draining_half_and_dropping_the_rest_empties_the_wheel(mode: Mode) {
    let mut wheel = Checked::new(mode);
    for value in 0..20 {
        wheel.schedule(value * 50, value);
    }
    assert_eq!(wheel.drain().take(7).count(), 7);
    assert!(wheel.is_empty());
    assert_eq!((wheel.next_deadline(), wheel.next_wake()), (None, None));
    wheel.schedule(3, 3);
    assert_eq!(wheel.walk(1000), [(3, 3)]);
}

fn a_leaked_drain_leaves_the_rest_where_it_was(mode: Mode) {
    let mut wheel = Checked::new(mode);
    for value in 0..20 {
        wheel.schedule(value * 50, value);
    }
    let mut drain = wheel.drain();
    let mut out: Vec<_> = drain.by_ref().take(7).map(|e| (e.deadline, e.value)).collect();
    std::mem::forget(drain);
    assert_eq!(wheel.len(), 13);
    out.extend(wheel.walk(1000));
    out.sort_unstable();
    assert_eq!(out, (0..20).map(|value| (value * 50, value)).collect::<Vec<_>>());
}

fn levels_add_up_to_all_that_wait(mode: Mode) {
    let mut wheel = Checked::new(mode);
    for bit in 0..64 {
        wheel.schedule(1 << bit, ());
    }
    let levels = wheel.stats().timeouts_per_level;
    assert_eq!(levels.len(), mode.levels());
    assert_eq!(levels.iter().sum::<usize>(), 64);
}

fn each_waits_on_the_level_of_its_highest_digit(mode: Mode) {
    let mut wheel = Checked::new(mode);
    for bit in 0..64 {
        wheel.schedule(1 << bit, ());
    }
    let levels = wheel.stats().timeouts_per_level;
    let bits = mode.buckets().ilog2() as usize;
    let of_level = |level: usize| (64 - level * bits).min(bits);
    assert_eq!(levels, (0..levels.len()).map(of_level).collect::<Vec<_>>());
}
