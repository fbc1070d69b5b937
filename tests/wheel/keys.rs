//! Keys: what they name, for how long, and what never happens through a stale one.

use crate::checked::Checked;
use crate::common::Numbers;
use std::collections::HashSet;
use tickwheel::Mode;

in_each_mode! {
    a_key_names_its_own_timeout,
    a_stale_key_names_nothing_when_its_place_is_taken: "a@5; to 5: a@5; b@9; !a; walk 20: b@9",
    stale_keys_of_every_way_out_find_nothing,
    no_key_is_given_twice,
    keys_stay_good_when_the_wheel_grows,
    keys_stay_good_when_the_wheel_shrinks,
    stale_keys_stay_stale_when_the_wheel_shrinks,
    a_key_that_shrinking_left_behind_can_be_moved:
        "a@10 b@3000 c@40; -a; shrink; b>20; c>5000; walk 5000: b@20 c@5000",
    shrinking_while_some_are_due_keeps_their_order,
    values_can_be_changed_in_place,
    the_time_left_is_known_as_long_as_it_is_pending,
    cancelled_and_scheduled_again_is_another_timeout,
}

fn a_key_names_its_own_timeout(mode: Mode) {
    let mut wheel = Checked::new(mode);
    let keys: Vec<_> = (0..50).map(|value| wheel.schedule(value * 37 % 100, value)).collect();
    for (value, &key) in (0..).zip(&keys) {
        assert_eq!(wheel.get(key), Some(&value));
        assert_eq!(wheel.deadline(key), Some(value * 37 % 100));
    }
    while let Some(expired) = wheel.expire(1000) {
        assert_eq!(expired.key, keys[expired.value as usize]);
    }
}

fn stale_keys_of_every_way_out_find_nothing(mode: Mode) {
    let mut wheel = Checked::new(mode);
    let mut stale = Vec::new();
    let key = wheel.schedule(5, 0);
    wheel.cancel(key);
    stale.push(key);
    stale.push(wheel.schedule(6, 1));
    assert_eq!(wheel.jump(6), [(6, 1)]);
    stale.push(wheel.schedule(7, 2));
    assert_eq!(wheel.drain().count(), 1);
    stale.push(wheel.schedule(8, 3));
    wheel.clear();
    stale.push(wheel.schedule(9, 4));
    drop(wheel.drain());
    for round in 0..20 {
        let live = wheel.schedule(1000, 100 + round);
        for &key in &stale {
            assert_eq!(wheel.cancel(key), None);
            assert!(!wheel.reschedule(key, 0));
        }
        assert_eq!(wheel.get(live), Some(&(100 + round)));
        if round % 2 == 0 {
            stale.push(live);
            assert_eq!(wheel.cancel(live), Some(100 + round));
        }
    }
    assert_eq!(wheel.len(), 10);
}

fn no_key_is_given_twice(mode: Mode) {
    let mut numbers = Numbers(8);
    let mut wheel = Checked::new(mode);
    let mut given = HashSet::new();
    let mut live = Vec::new();
    for step in 0..3000 {
        if numbers.below(3) == 0 && !live.is_empty() {
            let key = live.swap_remove(numbers.below(live.len() as u64) as usize);
            assert!(wheel.unchecked().cancel(key).is_some());
        } else {
            let key = wheel.unchecked().schedule(numbers.of_any_size(), ());
            assert!(given.insert(key));
            live.push(key);
        }
        match step % 500 {
            100 => wheel.shrink_to_fit(),
            200 => {
                wheel.clear();
                live.clear();
                wheel.shrink_to_fit();
            }
            _ => {}
        }
    }
}

fn keys_stay_good_when_the_wheel_grows(mode: Mode) {
    let mut wheel = Checked::<u64>::new(mode);
    wheel.reserve(4);
    let keys: Vec<_> = (0..5).map(|value| wheel.schedule(10 + value, value)).collect();
    for value in 5..2000 {
        wheel.unchecked().schedule(10 + value, value);
    }
    for (value, &key) in (0..).zip(&keys) {
        assert_eq!((wheel.get(key), wheel.deadline(key)), (Some(&value), Some(10 + value)));
    }
    assert_eq!(wheel.jump(14), (0..5).map(|value| (10 + value, value)).collect::<Vec<_>>());
}

fn keys_stay_good_when_the_wheel_shrinks(mode: Mode) {
    let mut wheel = Checked::new(mode);
    let mut keys: Vec<_> =
        (0..1000).map(|value| wheel.unchecked().schedule(value * value, value)).collect();
    let kept = keys.split_off(990);
    for key in keys.drain(100..) {
        wheel.unchecked().cancel(key);
    }
    wheel.shrink_to_fit();
    for (value, &key) in (990..).zip(&kept).chain((0..).zip(&keys)) {
        assert_eq!((wheel.get(key), wheel.deadline(key)), (Some(&value), Some(value * value)));
    }
    for (value, &key) in (0..).zip(&keys) {
        assert_eq!(wheel.cancel(key), Some(value));
    }
    wheel.shrink_to_fit();
    let expected: Vec<_> = (990..1000).map(|value| (value * value, value)).collect();
    assert_eq!(wheel.jump(1_000_000), expected);
}

fn stale_keys_stay_stale_when_the_wheel_shrinks(mode: Mode) {
    let mut wheel = Checked::new(mode);
    let mut stale = Vec::new();
    for round in 0..5 {
        for value in 0..20 {
            stale.push(wheel.schedule(100 * round + value, value));
        }
        match round {
            0 | 3 => wheel.clear(),
            _ => assert_eq!(wheel.jump(100 * round + 50).len(), 20),
        }
        wheel.shrink_to_fit();
        let live: Vec<_> = (0..20).map(|value| wheel.schedule(10_000, value)).collect();
        for &key in &stale {
            assert_eq!(wheel.cancel(key), None);
        }
        for (value, key) in (0..).zip(live) {
            assert_eq!(wheel.cancel(key), Some(value));
            stale.push(key);
        }
        wheel.shrink_to_fit();
    }
    assert_eq!(wheel.stats().memory, 0);
}

fn shrinking_while_some_are_due_keeps_their_order(mode: Mode) {
    let mut wheel = Checked::new(mode);
    let keys: Vec<_> = (0..30).map(|value| wheel.schedule(10 + value / 10, value)).collect();
    let later = wheel.schedule(70, 30);
    assert_eq!(wheel.expire(50).map(|expired| expired.value), Some(0));
    assert_eq!(wheel.cancel(keys[5]), Some(5));
    wheel.shrink_to_fit();
    assert!(wheel.reschedule(later, 60));
    assert_eq!(wheel.cancel(keys[15]), Some(15));
    wheel.shrink_to_fit();
    let expected = (1..30).filter(|value| value % 10 != 5 || *value == 25);
    let out: Vec<_> = wheel.jump(50).into_iter().map(|(_, value)| value).collect();
    assert_eq!(out, expected.collect::<Vec<_>>());
    assert_eq!(wheel.walk(70), [(60, 30)]);
}

fn values_can_be_changed_in_place(mode: Mode) {
    let mut wheel = Checked::new(mode);
    let key = wheel.schedule(700, 1);
    *wheel.unchecked().get_mut(key).expect("it is pending") += 1;
    assert_eq!(wheel.get(key), Some(&2));
    assert!(wheel.reschedule(key, 800));
    *wheel.unchecked().get_mut(key).expect("it is pending") += 1;
    assert_eq!(wheel.jump(800), [(800, 3)]);
    assert_eq!(wheel.unchecked().get_mut(key), None);
}

fn the_time_left_is_known_as_long_as_it_is_pending(mode: Mode) {
    let mut wheel = Checked::new(mode);
    let key = wheel.schedule(700, ());
    for tick in (0..700).step_by(7) {
        assert_eq!(wheel.jump(tick), []);
        assert_eq!(wheel.deadline(key).map(|deadline| deadline - wheel.now()), Some(700 - tick));
    }
    assert_eq!(wheel.jump(700), [(700, ())]);
    assert_eq!((wheel.deadline(key), wheel.get(key)), (None, None));
}

fn cancelled_and_scheduled_again_is_another_timeout(mode: Mode) {
    let mut wheel = Checked::new(mode);
    let mut value = String::from("the same object");
    for round in 1..50 {
        let key = wheel.schedule(round * 3, value);
        assert_eq!(wheel.walk(round * 3 - 2), []);
        value = wheel.cancel(key).expect("it is pending");
        assert_eq!(wheel.cancel(key), None);
    }
    wheel.schedule(200, value);
    assert_eq!(wheel.walk(300), [(200, String::from("the same object"))]);
}
