//! The bounds that other tests hold calls to are real: a call comes within a factor of two of each.
//!
//! | bound | what comes near |
//! |---|---|
//! | `SORTED` | `tight::a_call_that_drives_sorts_a_bucket_of_8192` |
//! | the same, of a call that does not drive after one that did | `tight::a_schedule_puts_back_a_bucket_of_8192` |
//! | `MOST` | `tight::a_lock_is_held_while_a_bucket_of_8192_is_sorted` |
//! | `ONE_CALL` | `tight::a_cancel_pays_for_256_pieces_of_a_sweep` |
//! | `GROWS`, `MOVED_WHOLE` | `held::while_they_grow_each_insertion_keeps_to_a_few_steps` |
//! | `AT_REST`, and `MOVED` if tests are long | what `held::a_timer_keeps_its_bounds` and its like print |
//! | `LAST_CHUNK`, with `BOUNDS_PEAK=1000000` | 601 steps for each `expire_bounded` after all were moved twice, hashed |
//! | `FEW`, with `BOUNDS_PEAK=20000` | 172 of 205 steps for each `turn` after all were moved twice |
//! | `BYTES`, `LAID_OUT` | not met: no promise has them, and they are for what grows beside it |

use crate::kept::{ONE_CALL, SORTED};
use crate::{Driven, MOST, alone};
use tickwheel::{Mode, Wheel, most_steps_under_a_lock, steps};

/// Panics unless the most that a call took is at most `bound`, and at least half of it. Steps are
/// counted with debug assertions only.
#[track_caller]
pub(crate) fn assert_tight(most: u64, bound: u64) {
    let is_tight = most <= bound && bound <= 2 * most;
    assert!(is_tight || !cfg!(debug_assertions), "{most}, and the bound is {bound}");
}

#[test]
fn a_call_that_drives_sorts_a_bucket_of_8192() {
    let mut wheel = Wheel::new(Mode::hierarchical());
    (0..8_192).for_each(|value| _ = wheel.schedule(64 + value % 64, value));
    let before = steps();
    assert!(wheel.expire(127).is_some());
    assert_tight(steps() - before, SORTED as u64);
}

/// A bucket was sorted, and the first of it is due. One that comes in the middle puts the rest back.
#[test]
fn a_schedule_puts_back_a_bucket_of_8192() {
    let mut wheel = Wheel::new(Mode::hierarchical());
    (0..8_192).for_each(|value| _ = wheel.schedule(64 + value % 64, value));
    assert!(wheel.expire(64).is_some());
    let before = steps();
    wheel.schedule(100, 0);
    assert_tight(steps() - before, SORTED as u64);
}

#[test]
fn a_lock_is_held_while_a_bucket_of_8192_is_sorted() {
    let _alone = alone();
    let mut driven = Driven::new(Mode::hierarchical());
    for number in 0..8_192 {
        driven.timer.schedule_at(driven.at(64 + number % 64), || {}).expect("it runs");
    }
    driven.drive(127);
    _ = most_steps_under_a_lock();
    driven.driver.turn();
    assert_tight(most_steps_under_a_lock(), MOST);
}

/// A sweep looks for each piece from the top of the tree: here each is one timeout, and no two have
/// a path in common but for its begin.
#[test]
fn a_cancel_pays_for_256_pieces_of_a_sweep() {
    let mut wheel = Wheel::with_capacity("hashed:1073741824".parse().expect("a mode"), 3_000);
    (0..256).for_each(|value| _ = wheel.schedule((value << 22) + 100, value));
    let keys: Vec<_> = (0..2_000).map(|value| wheel.schedule(3, value)).collect();
    let cancelled = keys.into_iter().map(|key| {
        let before = steps();
        assert!(wheel.cancel(key).is_some());
        steps() - before
    });
    assert_tight(cancelled.max().expect("some"), ONE_CALL as u64);
}
