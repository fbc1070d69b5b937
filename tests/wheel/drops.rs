//! Every value is dropped exactly once, and as soon as it can be; a `Drop` that panics costs
//! nothing but its own value.

use crate::checked::Checked;
use crate::common::long;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any, resume_unwind};
use std::rc::Rc;
use tickwheel::{Key, Mode, Wheel};

in_each_mode! {
    each_way_out_drops_once,
    dropping_the_wheel_drops_all_that_is_left,
    clearing_drops_all_and_keeps_the_wheel,
    a_drain_dropped_half_way_drops_the_rest,
    a_drain_never_started_drops_all,
    a_leaked_drain_drops_nothing_twice,
    retaining_drops_the_others_at_once,
    extracting_drops_nothing,
    shrinking_and_moving_drop_nothing,
    cancelling_gives_the_value_back_and_keeps_nothing_of_it,
    expiring_gives_the_value_out_and_keeps_nothing_of_it,
    a_panic_in_clear_leaves_the_wheel_in_order,
    a_panic_in_dropping_a_drain_leaves_the_wheel_in_order,
    a_panic_of_a_drained_value_leaves_the_wheel_in_order,
    a_panic_of_a_rejected_value_leaves_the_wheel_in_order,
    a_panic_of_an_expired_value_leaves_the_wheel_in_order,
    a_panic_of_a_cancelled_value_leaves_the_wheel_in_order,
    a_panic_in_dropping_the_wheel_drops_the_others,
    what_a_crowd_leaves_when_it_is_cancelled_is_dropped_at_once,
}

/// How often each value was dropped.
#[derive(Clone, Default)]
struct Drops(Rc<RefCell<Vec<u32>>>);

struct Value {
    id: usize,
    drops: Drops,
    panics: bool,
}

impl Drops {
    fn value(&self) -> Value {
        let mut counts = self.0.borrow_mut();
        counts.push(0);
        Value { id: counts.len() - 1, drops: self.clone(), panics: false }
    }

    fn of(&self, id: usize) -> u32 {
        self.0.borrow()[id]
    }

    fn so_far(&self) -> u32 {
        self.0.borrow().iter().sum()
    }

    #[track_caller]
    fn assert_all_dropped_once(&self) {
        let counts = self.0.borrow();
        assert!(counts.iter().all(|&count| count == 1), "once each: {counts:?}");
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        self.drops.0.borrow_mut()[self.id] += 1;
        if self.panics {
            panic_any(PANIC);
        }
    }
}

/// A wheel of so many values, on all levels and in all rounds; some are due at tick 0 already.
fn filled(mode: Mode, values: u64) -> (Checked<Value>, Vec<Key>, Drops) {
    let drops = Drops::default();
    let mut wheel = Checked::new(mode);
    let keys = (0..values).map(|id| wheel.schedule(id * id * id, drops.value())).collect();
    (wheel, keys, drops)
}

fn each_way_out_drops_once(mode: Mode) {
    let (mut wheel, keys, drops) = filled(mode, 50);
    drop(wheel.expire(0));
    assert_eq!((drops.of(0), drops.so_far()), (1, 1));
    drop(wheel.cancel(keys[49]));
    assert_eq!((drops.of(49), drops.so_far()), (1, 2));
    drop(wheel.jump(100));
    assert_eq!(drops.so_far(), 2 + 4);
    drop(wheel.expire(10_000));
    drop(wheel.cancel(keys[6]));
    assert_eq!((drops.of(6), drops.so_far()), (1, 8));
    drop(wheel.drain().nth(1));
    assert!(wheel.is_empty());
    drops.assert_all_dropped_once();
    wheel.schedule(20_000, drops.value());
    wheel.clear();
    drops.assert_all_dropped_once();
    wheel.schedule(20_000, drops.value());
    drop(wheel);
    drops.assert_all_dropped_once();
}

fn dropping_the_wheel_drops_all_that_is_left(mode: Mode) {
    let (mut wheel, keys, drops) = filled(mode, 50);
    let kept = wheel.expire(1000).expect("one is due");
    drop(wheel.cancel(keys[30]));
    drop(wheel);
    assert_eq!(drops.of(kept.value.id), 0);
    drop(kept);
    drops.assert_all_dropped_once();
}

fn clearing_drops_all_and_keeps_the_wheel(mode: Mode) {
    let (mut wheel, _, drops) = filled(mode, 50);
    wheel.clear();
    drops.assert_all_dropped_once();
    wheel.clear();
    wheel.schedule(9, drops.value());
    assert_eq!(wheel.jump(9).len(), 1);
    drops.assert_all_dropped_once();
}

fn a_drain_dropped_half_way_drops_the_rest(mode: Mode) {
    let (mut wheel, _, drops) = filled(mode, 50);
    let taken: Vec<_> = wheel.drain().take(20).collect();
    assert_eq!(drops.so_far(), 30);
    assert!(taken.iter().all(|expired| drops.of(expired.value.id) == 0));
    drop(taken);
    drops.assert_all_dropped_once();
    wheel.clear();
    drop(wheel);
    drops.assert_all_dropped_once();
}

fn a_drain_never_started_drops_all(mode: Mode) {
    let (mut wheel, _, drops) = filled(mode, 50);
    drop(wheel.drain());
    drops.assert_all_dropped_once();
    wheel.clear();
}

fn a_leaked_drain_drops_nothing_twice(mode: Mode) {
    let (mut wheel, keys, drops) = filled(mode, 50);
    let mut drain = wheel.drain();
    drop(drain.by_ref().take(20).collect::<Vec<_>>());
    std::mem::forget(drain);
    assert_eq!((drops.so_far(), wheel.len()), (20, 30));
    drop(wheel.jump(10_000));
    for key in keys {
        drop(wheel.cancel(key));
    }
    drops.assert_all_dropped_once();
    wheel.clear();
    drop(wheel);
    drops.assert_all_dropped_once();
}

fn retaining_drops_the_others_at_once(mode: Mode) {
    let (mut wheel, _, drops) = filled(mode, 50);
    wheel.unchecked().retain(|_, _, value| {
        assert_eq!(drops.of(value.id), 0);
        assert_eq!(
            drops.so_far() as usize,
            value.id.div_ceil(2),
            "each is dropped before the next look"
        );
        value.id % 2 == 1
    });
    wheel.check();
    assert_eq!((drops.so_far(), wheel.len()), (25, 25));
    drop(wheel);
    drops.assert_all_dropped_once();
}

fn extracting_drops_nothing(mode: Mode) {
    let (mut wheel, _, drops) = filled(mode, 50);
    let taken: Vec<_> = wheel.unchecked().extract_due(10_000).take(20).collect();
    assert_eq!((drops.so_far(), wheel.len()), (0, 30));
    drop(taken);
    assert_eq!(drops.so_far(), 20);
    drop(wheel);
    drops.assert_all_dropped_once();
}

fn shrinking_and_moving_drop_nothing(mode: Mode) {
    let (mut wheel, keys, drops) = filled(mode, 50);
    for (at, &key) in keys.iter().enumerate() {
        assert!(wheel.reschedule(key, at as u64 * 1000));
    }
    wheel.shrink_to_fit();
    wheel.reserve(1000);
    assert_eq!(drops.so_far(), 0);
    drop(wheel);
    drops.assert_all_dropped_once();
}

fn cancelling_gives_the_value_back_and_keeps_nothing_of_it(mode: Mode) {
    let mut wheel = Checked::new(mode);
    let shared = Rc::new(());
    for deadline in [0, 1, 700, u64::MAX] {
        let key = wheel.schedule(deadline, Rc::clone(&shared));
        wheel.schedule(deadline, Rc::new(()));
        assert_eq!(Rc::strong_count(&shared), 2);
        let value = wheel.cancel(key).expect("it is pending");
        assert!(Rc::ptr_eq(&value, &shared));
        drop(value);
        assert_eq!(Rc::strong_count(&shared), 1, "freed at once, not at its deadline");
    }
}

fn expiring_gives_the_value_out_and_keeps_nothing_of_it(mode: Mode) {
    let mut wheel = Checked::new(mode);
    let shared = Rc::new(());
    wheel.schedule(700, Rc::clone(&shared));
    wheel.schedule(700, Rc::new(()));
    drop(wheel.expire(700));
    assert_eq!(Rc::strong_count(&shared), 1);
}

/// Lets one value's drop panic in `act`, whichever of them it is, and looks at what is left.
fn with_one_that_panics(mode: Mode, act: impl Fn(&mut Checked<Value>, &[Key])) {
    for panicking in [0, 1, 10, 18, 19] {
        let (mut wheel, keys, drops) = filled(mode, 20);
        // Some are due and not yet handed out.
        assert_eq!(wheel.jump(0).len(), 1);
        let again = wheel.schedule(0, drops.value());
        let keys = [&[again], &keys[1..]].concat();
        let value = wheel.unchecked().get_mut(keys[panicking]).expect("it is pending");
        value.panics = true;

        let unwound = catch_unwind(AssertUnwindSafe(|| act(&mut wheel, &keys)));
        let payload = unwound.expect_err("the panic reaches the caller");
        if payload.downcast_ref() != Some(&PANIC) {
            resume_unwind(payload);
        }
        wheel.unchecked().check();

        // The wheel goes on as if nothing had happened.
        let left = wheel.len();
        wheel.schedule(wheel.now(), drops.value());
        wheel.schedule(u64::MAX, drops.value());
        assert_eq!(wheel.jump(u64::MAX).len(), left + 2);
        drops.assert_all_dropped_once();
        wheel.schedule(0, drops.value());
        drop(wheel);
        drops.assert_all_dropped_once();
    }
}

fn a_panic_in_clear_leaves_the_wheel_in_order(mode: Mode) {
    with_one_that_panics(mode, |wheel, _| {
        let cleared = catch_unwind(AssertUnwindSafe(|| wheel.clear()));
        wheel.unchecked().check();
        assert!(wheel.is_empty(), "the others are dropped nevertheless");
        resume_unwind(cleared.expect_err("one panics"));
    });
}

fn a_panic_in_dropping_a_drain_leaves_the_wheel_in_order(mode: Mode) {
    with_one_that_panics(mode, |wheel, _| {
        let mut taken = Vec::new();
        let dropped = catch_unwind(AssertUnwindSafe(|| {
            let mut drain = wheel.drain();
            taken.extend(drain.next());
            drop(drain);
        }));
        wheel.unchecked().check();
        assert!(wheel.is_empty(), "the others are dropped nevertheless");
        drop(taken);
        resume_unwind(dropped.expect_err("one panics, or it was taken"));
    });
}

fn a_panic_of_a_drained_value_leaves_the_wheel_in_order(mode: Mode) {
    with_one_that_panics(mode, |wheel, _| wheel.drain().for_each(drop));
}

fn a_panic_of_a_rejected_value_leaves_the_wheel_in_order(mode: Mode) {
    with_one_that_panics(mode, |wheel, _| wheel.unchecked().retain(|_, _, _| false));
}

fn a_panic_of_an_expired_value_leaves_the_wheel_in_order(mode: Mode) {
    with_one_that_panics(mode, |wheel, _| {
        for now in 0..10_000 {
            while let Some(expired) = wheel.unchecked().expire(now) {
                drop(expired);
            }
        }
    });
    with_one_that_panics(mode, |wheel, _| {
        while let Some(expired) = wheel.expire(u64::MAX) {
            drop(expired);
        }
    });
}

fn a_panic_of_a_cancelled_value_leaves_the_wheel_in_order(mode: Mode) {
    with_one_that_panics(mode, |wheel, keys| {
        for &key in keys {
            drop(wheel.cancel(key));
        }
    });
}

fn a_panic_in_dropping_the_wheel_drops_the_others(mode: Mode) {
    for panicking in [0, 1, 10, 18, 19] {
        let (mut wheel, keys, drops) = filled(mode, 20);
        let value = wheel.unchecked().get_mut(keys[panicking]).expect("it is pending");
        value.panics = true;
        assert!(catch_unwind(AssertUnwindSafe(|| drop(wheel))).is_err());
        drops.assert_all_dropped_once();
    }
}

fn what_a_crowd_leaves_when_it_is_cancelled_is_dropped_at_once(mode: Mode) {
    let many = long(10_000, 1_000_000);
    let shared = Rc::new(());
    let mut wheel = Wheel::new(mode);
    let keys: Vec<_> =
        (0..many).map(|value| wheel.schedule(1 + value * 3600, Rc::clone(&shared))).collect();
    assert_eq!(Rc::strong_count(&shared), 1 + many as usize);
    for (left, key) in (1..=many as usize).rev().zip(keys) {
        assert_eq!(Rc::strong_count(&shared), 1 + left);
        drop(wheel.cancel(key));
    }
    assert_eq!(Rc::strong_count(&shared), 1);
    assert_eq!((wheel.len(), wheel.next_wake()), (0, None));
    assert_eq!(wheel.stats().buckets_visited, 0, "without a look at any other");
    wheel.check();
}

/// Tells a drop that panics from an assertion that fails.
const PANIC: &str = "the value's drop fails";
