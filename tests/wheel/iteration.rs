//! Looking at all timeouts, and taking all of them out.

use crate::checked::Checked;
use crate::common::{Numbers, long};
use std::panic::{AssertUnwindSafe, catch_unwind};
use tickwheel::Mode;

in_each_hierarchical_mode! {
    each_waits_on_the_level_of_its_highest_digit,
}

in_each_mode! {
    iterating_shows_each_timeout_once,
    iterating_shows_what_is_due_too,
    keys_from_iterating_cancel_exactly_that_timeout,
    iterators_know_how_many_are_left,
    an_iterator_is_printed_as_what_is_left,
    iterating_mutably_reaches_each_timeout_once,
    in_the_middle_of_a_step_all_are_reached,
    retaining_keeps_exactly_the_others,
    a_predicate_that_panics_loses_nothing_that_it_kept,
    what_is_due_comes_in_order_and_the_rest_stays,
    what_was_not_extracted_stays_due,
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

fn an_iterator_is_printed_as_what_is_left(mode: Mode) {
    let mut wheel = Checked::new(mode);
    for deadline in [1, 2, 4000] {
        wheel.schedule(deadline, ());
    }
    let mut iter = wheel.iter();
    assert!(iter.next().is_some());
    assert_eq!(format!("{iter:?}"), format!("{:?}", iter.clone().collect::<Vec<_>>()));
    let mut iter = wheel.unchecked().iter_mut();
    assert!(iter.next().is_some());
    assert_eq!(format!("{iter:?}"), "IterMut { left: 2, .. }");
}

fn iterating_mutably_reaches_each_timeout_once(mode: Mode) {
    let mut wheel = Checked::new(mode);
    let keys: Vec<_> = (0..300_u64).map(|value| wheel.schedule(value * value, value)).collect();
    for key in keys.iter().step_by(3) {
        wheel.cancel(*key);
    }
    assert_eq!(wheel.expire(1).map(|expired| expired.value), Some(1));
    let mut iter = wheel.unchecked().iter_mut();
    for left in (0..199).rev() {
        let (key, deadline, value) = iter.next().expect("one is left");
        assert_eq!((key, deadline), (keys[*value as usize], *value * *value));
        assert_eq!(iter.len(), left);
        *value += 1_000;
    }
    assert!(iter.next().is_none() && iter.next().is_none());
    wheel.check();
    let wanted =
        (2..300).filter(|value| value % 3 != 0).map(|value| (value * value, value + 1_000));
    assert_eq!(wheel.jump(u64::MAX), wanted.collect::<Vec<_>>());
}

/// Part of a bucket is still there, part of it is ready or on a finer level, and some were
/// cancelled in each part.
fn in_the_middle_of_a_step_all_are_reached(mode: Mode) {
    const FAR: u64 = 1 << 20;
    for &work in long(&[600, 2_100][..], &[1, 600, 2_100, 3_500]) {
        let mut wheel = Checked::new(mode);
        let deadline = |value: u64| FAR + value * 7 % 900;
        let keys: Vec<_> =
            (0..5_000).map(|value| wheel.unchecked().schedule(deadline(value), value)).collect();
        for key in keys.iter().step_by(7) {
            wheel.unchecked().cancel(*key);
        }
        let mut wanted: Vec<_> = (0..5_000).filter(|value| value % 7 != 0).collect();
        wanted.sort_by_key(|&value| (deadline(value), value));
        let mut work = work;
        let out = wheel.expire_bounded(FAR + 300, &mut work).map(|expired| expired.value);
        wanted.retain(|&value| Some(value) != out);

        assert_eq!(wheel.unchecked().iter_mut().count(), wanted.len());
        let mut looked = 0;
        wheel.unchecked().retain(|key, tick, &mut value| {
            looked += 1;
            assert_eq!((key, tick), (keys[value as usize], deadline(value)));
            value % 5 != 0
        });
        assert_eq!(looked, wanted.len());
        wanted.retain(|value| value % 5 != 0);
        wheel.check();
        let next = wanted[0];
        let peeked = wheel.unchecked().peek();
        assert_eq!(peeked, Some((keys[next as usize], deadline(next), &next)));
        wheel.check();
        assert!(wheel.jump(u64::MAX).into_iter().map(|(_, value)| value).eq(wanted));
    }
}

fn retaining_keeps_exactly_the_others(mode: Mode) {
    let mut numbers = Numbers(83);
    let mut wheel = Checked::new(mode);
    let mut expected = Vec::new();
    for value in 0..500 {
        let deadline = numbers.of_any_size();
        expected.push((deadline, value, wheel.unchecked().schedule(deadline, value)));
    }
    wheel.unchecked().retain(|_, deadline, value| deadline % 3 != 0 && *value < 400);
    wheel.check();
    expected.retain(|&(deadline, value, _)| deadline % 3 != 0 && value < 400);
    expected.sort_unstable();
    assert_eq!(wheel.len(), expected.len());
    assert_eq!(wheel.unchecked().peek().map(|(key, ..)| key), Some(expected[0].2));
    assert_eq!(
        wheel.jump(u64::MAX),
        expected.iter().map(|&(deadline, value, _)| (deadline, value)).collect::<Vec<_>>()
    );
    wheel.schedule(5, 5);
    wheel.unchecked().retain(|_, _, _| false);
    wheel.check();
    assert_eq!((wheel.len(), wheel.next_deadline(), wheel.next_wake()), (0, None, None));
    wheel.unchecked().retain(|_, _, _| unreachable!("nothing is left"));
}

fn a_predicate_that_panics_loses_nothing_that_it_kept(mode: Mode) {
    let mut wheel = Checked::new(mode);
    for value in 0..20 {
        wheel.schedule(value * 50, value);
    }
    let (mut rejected, mut looked) = (Vec::new(), 0);
    let retained = catch_unwind(AssertUnwindSafe(|| {
        wheel.unchecked().retain(|_, _, &mut value| {
            looked += 1;
            assert!(looked < 12, "the predicate fails");
            if value % 2 == 0 {
                rejected.push(value);
            }
            value % 2 == 1
        });
    }));
    assert!(retained.is_err());
    wheel.check();
    let left = (0..20).filter(|value| !rejected.contains(value));
    assert_eq!(rejected.len() + wheel.len(), 20);
    assert_eq!(wheel.jump(u64::MAX), left.map(|value| (value * 50, value)).collect::<Vec<_>>());
}

fn what_is_due_comes_in_order_and_the_rest_stays(mode: Mode) {
    let mut wheel = Checked::new(mode);
    for value in (0..100).rev() {
        wheel.schedule(value * value, value);
    }
    let extracted = wheel.unchecked().extract_due(2_500);
    assert_eq!(extracted.size_hint(), (0, Some(100)));
    let due: Vec<_> = extracted.map(|expired| (expired.deadline, expired.value)).collect();
    assert_eq!(due, (0..=50).map(|value| (value * value, value)).collect::<Vec<_>>());
    assert_eq!((wheel.now(), wheel.len()), (2_500, 49));
    assert_eq!(wheel.unchecked().extract_due(2_600).count(), 0);
    assert_eq!(wheel.now(), 2_600);
    wheel.check();
}

/// However the caller leaves it: the timeouts that it did not get are still due.
fn what_was_not_extracted_stays_due(mode: Mode) {
    let mut wheel = Checked::new(mode);
    for value in 0..40 {
        wheel.schedule(value * 10, value);
    }
    let _ = wheel.unchecked().extract_due(1_000);
    assert_eq!((wheel.len(), wheel.now()), (40, 0), "it has done nothing yet");
    let mut out: Vec<_> = wheel.unchecked().extract_due(1_000).take(7).map(|e| e.value).collect();
    out.extend(wheel.unchecked().extract_due(1_000).next().map(|expired| expired.value));
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        for expired in wheel.unchecked().extract_due(1_000) {
            out.push(expired.value);
            assert!(expired.value < 20, "the loop fails");
        }
    }));
    assert!(unwound.is_err());
    wheel.check();
    assert_eq!(wheel.next_deadline(), Some(210));
    out.extend(wheel.jump(1_000).into_iter().map(|(_, value)| value));
    assert_eq!(out, (0..40).collect::<Vec<_>>());
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
