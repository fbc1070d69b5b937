//! Much work in short calls: what is promised holds between any two of them.

use crate::checked::Checked;
use crate::common::Numbers;
use crate::pair::Pair;
use tickwheel::{Mode, Wheel, steps};

in_each_hierarchical_mode! {
    too_many_to_be_sorted_at_once_are_demoted,
    a_call_demotes_no_more_than_its_work_and_a_step,
}

in_each_hashed_mode! {
    a_call_looks_at_no_more_than_its_work_and_a_step,
    scheduled_now_it_comes_after_all_that_a_jump_has_gathered,
}

/// One in each row of buckets comes and one stays, so that the tree of deadlines is wrong in each
/// row that is passed.
#[test]
fn a_call_puts_no_more_of_the_tree_right_than_a_path() {
    /// Looks at the tree for a step: those that find a bucket, and those that put right.
    const LOOKS: u64 = 12;
    for mode in ["hashed:4096", "hashed:65536", "hashed:1048576"] {
        let mut wheel = Wheel::with_capacity(mode.parse().expect("a mode"), 2_000);
        let (round, row) = (wheel.mode().buckets() as u64, wheel.mode().buckets() as u64 >> 12);
        for at in (0..round).step_by(16 * row as usize) {
            wheel.schedule(at + 1, 0);
            wheel.schedule(1000 * round + at + 5, 1);
        }
        for now in (0..round + 64).step_by(8) {
            let mut is_over = false;
            while !is_over {
                let (before, mut work) = (steps(), 1);
                let expired = wheel.expire_bounded(now, &mut work);
                // A bucket holds two at most, and each is looked at, moved and handed out.
                assert!(steps() - before <= LOOKS + 8, "{} steps in {mode}", steps() - before);
                is_over = expired.is_none() && work > 0;
            }
        }
    }
}

/// As above: what is looked at in the tree is work, but for the look that finds the next bucket.
#[test]
fn nodes_that_are_put_right_are_work() {
    const FINDS: u64 = 8;
    for mode in ["hashed:65536", "hashed:1073741824"] {
        let mut wheel = Wheel::new(mode.parse().expect("a mode"));
        let round = wheel.mode().buckets() as u64;
        for at in (0..round).step_by(round as usize >> 10) {
            wheel.schedule(at + 1, 0);
            wheel.schedule(1000 * round + at + 5, 1);
        }
        let mut most = 0;
        for now in (0..round + 64).step_by(round as usize >> 11) {
            let mut is_some = true;
            while is_some {
                let (before, mut work) = (steps(), 1_000);
                is_some = wheel.expire_bounded(now, &mut work).is_some();
                let (taken, counted) = (steps() - before, 1_000 - work as u64);
                most = most.max(taken.saturating_sub(counted));
            }
        }
        assert!(most <= FINDS, "{mode}: {most} steps that are no work");
    }
}

in_each_mode! {
    a_crowd_at_one_tick_comes_in_order_in_steps,
    a_coarse_bucket_comes_in_order_in_steps,
    between_two_steps_anything_can_be_done,
    work_of_one_comes_to_an_end,
    no_work_moves_the_time_and_nothing_else,
    an_earlier_now_in_the_middle_hands_out_what_was_due_then,
    a_later_now_in_the_middle_hands_out_all,
    scheduled_in_the_middle_for_the_same_tick_comes_last,
    cancelled_in_the_middle_never_comes,
    cleared_away_in_the_middle_what_is_due_comes,
    cancelled_to_the_last_in_the_middle_leaves_an_empty_wheel,
    drained_in_the_middle_it_gives_all_that_is_left,
    cleared_in_the_middle_it_starts_afresh,
    shrunk_in_the_middle_it_goes_on,
    shrunk_after_cancels_in_the_middle_nothing_is_late,
    dropped_in_the_middle_it_drops_what_is_left,
    a_jump_of_many_rounds_in_steps,
    a_jump_of_many_rounds_in_steps_with_others_in_between,
    up_to_the_end_of_time_in_steps,
    too_many_to_be_sorted_at_once_come_in_order,
    a_call_does_no_more_than_its_work_and_a_step,
    what_was_passed_is_not_passed_again_after_a_cancel_of_the_latest,
    cancelling_takes_no_bucket_apart,
    what_is_not_due_yet_is_sorted_only_while_it_is_little,
}

/// Timeouts that the last step of [`Wheel::expire_bounded`] may take beyond its work, as
/// documented.
fn step_of(mode: Mode) -> usize {
    if mode.is_hashed() { 512 } else { 1024 }
}

fn crowded(mode: Mode, deadline: fn(u64) -> u64) -> Pair {
    let mut pair = Pair::new(mode);
    (0..CROWD).for_each(|value| pair.schedule(deadline(value)));
    pair.check();
    pair
}

/// A crowd for each of these, of which so many steps of one unit of work have been taken at `now`.
fn in_the_middle(mode: Mode, steps: usize, now: u64) -> [Pair; 3] {
    [at_one_tick, in_one_bucket, over_many_rounds].map(|deadline| {
        let mut pair = crowded(mode, deadline);
        pair.steps(steps, now);
        pair
    })
}

fn at_one_tick(_: u64) -> u64 {
    FAR + 5
}

/// In one bucket of several coarse levels, each tick several times.
fn in_one_bucket(value: u64) -> u64 {
    FAR + value * 7 % 900
}

fn over_many_rounds(value: u64) -> u64 {
    FAR + value * value * 13 % 1_000_003
}

fn a_crowd_at_one_tick_comes_in_order_in_steps(mode: Mode) {
    for work in [1, 2, 100, 700, 5000] {
        let mut pair = crowded(mode, at_one_tick);
        pair.jump(FAR + 4, work);
        while !pair.expire_bounded(FAR + 5, work) {
            pair.look_for_next();
        }
        assert!(pair.wheel.is_empty());
    }
}

fn a_coarse_bucket_comes_in_order_in_steps(mode: Mode) {
    for work in [1, 100, 700] {
        for now in [FAR, FAR + 450, FAR + 899] {
            let mut pair = crowded(mode, in_one_bucket);
            pair.jump(now, work);
            pair.jump(4 * FAR, work);
        }
    }
}

fn between_two_steps_anything_can_be_done(mode: Mode) {
    let mut numbers = Numbers(31);
    for mut pair in in_the_middle(mode, 0, 0) {
        let mut now = FAR - 1;
        for turn in 0_u64.. {
            now += numbers.below(30) * u64::from(turn % 8 == 0);
            pair.expire_bounded(now, numbers.below(40) as usize);
            for _ in 0..numbers.below(4) {
                let deadline = FAR + numbers.below(1000);
                let some = numbers.below(pair.timeouts.len() as u64) as usize;
                match numbers.below(3) {
                    0 if pair.scheduled < 3 * CROWD / 2 => pair.schedule(deadline),
                    1 => pair.reschedule(some, deadline),
                    _ => pair.cancel(some),
                }
            }
            pair.look_for_next();
            if turn % 64 == 0 {
                pair.wheel.check();
            }
            if pair.pending.is_empty() {
                break;
            }
            if turn > 4000 {
                now += 1 << 16;
            }
        }
    }
}

fn work_of_one_comes_to_an_end(mode: Mode) {
    for mut pair in in_the_middle(mode, 0, 0) {
        let calls = (1..).take_while(|_| !pair.expire_bounded(1 << 40, 1)).count();
        assert!(calls < 100 * CROWD as usize, "it gets on");
        assert!(pair.wheel.is_empty());
    }
}

fn no_work_moves_the_time_and_nothing_else(mode: Mode) {
    let mut pair = crowded(mode, in_one_bucket);
    for now in [5, FAR - 1, FAR, FAR + 10, FAR + 10, 1 << 40] {
        let before = pair.wheel.stats();
        assert!(!pair.expire_bounded(now, 0));
        assert_eq!((pair.wheel.stats(), pair.wheel.now()), (before, now));
        pair.look_for_next();
    }
    assert_eq!(pair.wheel.len() as u64, CROWD);
    pair.jump(1 << 40, 100);
}

fn an_earlier_now_in_the_middle_hands_out_what_was_due_then(mode: Mode) {
    for steps in [1, 3, 8] {
        let mut pair = crowded(mode, in_one_bucket);
        pair.steps(steps, FAR + 800);
        for now in [0, FAR - 1, FAR, FAR + 1, FAR + 100, 2 * FAR] {
            pair.jump(now, 10);
        }
        assert!(pair.wheel.is_empty());
    }
}

fn a_later_now_in_the_middle_hands_out_all(mode: Mode) {
    for mut pair in in_the_middle(mode, 0, 0) {
        (0..20).for_each(|nth| pair.steps(1, FAR + 500 + nth));
        pair.jump(u64::MAX - 1, usize::MAX);
        assert!(pair.wheel.is_empty());
    }
}

fn scheduled_in_the_middle_for_the_same_tick_comes_last(mode: Mode) {
    for steps in [1, 5, 6, 7, 600] {
        let mut pair = crowded(mode, at_one_tick);
        for nth in 0..steps {
            pair.steps(1, FAR + 5);
            if nth % 100 < 10 {
                pair.schedule(FAR + nth % 10);
            }
        }
        pair.jump(FAR + 9, 50);
        assert!(pair.wheel.is_empty());
    }
}

/// Though a sweep leaves room among those that come first.
fn scheduled_now_it_comes_after_all_that_a_jump_has_gathered(mode: Mode) {
    let mut pair = Pair::new(mode);
    (0..CROWD).for_each(|value| pair.schedule(1 + value * 7));
    let now = 8 * CROWD + 2 * mode.buckets() as u64;
    while pair.wheel.len() == CROWD as usize {
        pair.steps(1, now);
    }
    (0..CROWD as usize).filter(|value| value % 20 != 0).for_each(|value| pair.cancel(value));
    pair.schedule(now);
    pair.schedule(0);
    pair.check();
    pair.jump(now, 7);
    assert!(pair.wheel.is_empty());
}

fn cancelled_in_the_middle_never_comes(mode: Mode) {
    for steps in [1, 4, 30] {
        for mut pair in in_the_middle(mode, steps, 2 * FAR) {
            (0..CROWD as usize).filter(|id| id % 3 != 0).for_each(|id| pair.cancel(id));
            pair.check();
            pair.jump(2 * FAR, 20);
        }
    }
}

/// Most of the bucket goes while a part of it has been looked at, so that it closes up.
fn cleared_away_in_the_middle_what_is_due_comes(mode: Mode) {
    let round = mode.buckets() as u64;
    for steps in [1, 2, 4, 6] {
        let mut pair = Pair::new(mode);
        for value in 0..CROWD {
            pair.schedule(if value % 50 == 49 { FAR } else { FAR + 5 * round });
        }
        pair.steps(steps, FAR);
        (0..CROWD as usize).filter(|value| value % 50 < 45).for_each(|value| pair.cancel(value));
        pair.check();
        pair.jump(FAR, 100);
        pair.jump(2 * FAR, 100);
    }
}

fn cancelled_to_the_last_in_the_middle_leaves_an_empty_wheel(mode: Mode) {
    for mut pair in in_the_middle(mode, 3, 2 * FAR) {
        (0..CROWD as usize).for_each(|value| pair.cancel(value));
        assert_eq!((pair.wheel.len(), pair.wheel.stats().stale), (0, 0));
        [2 * FAR + 1, FAR].into_iter().for_each(|deadline| pair.schedule(deadline));
        pair.jump(3 * FAR, 1);
    }
}

fn drained_in_the_middle_it_gives_all_that_is_left(mode: Mode) {
    for mut pair in in_the_middle(mode, 5, 2 * FAR) {
        let left: Vec<_> = pair.wheel.drain().collect();
        for expired in left {
            assert_eq!(pair.take(expired.value), Some(expired.deadline));
        }
        pair.check();
        pair.schedule(3 * FAR);
        pair.jump(3 * FAR, 1);
    }
}

fn cleared_in_the_middle_it_starts_afresh(mode: Mode) {
    for mut pair in in_the_middle(mode, 5, 2 * FAR) {
        pair.clear();
        (0..20).for_each(|value| pair.schedule(2 * FAR + value * 50));
        pair.jump(3 * FAR, 1);
    }
}

fn shrunk_in_the_middle_it_goes_on(mode: Mode) {
    for steps in [1, 9] {
        for mut pair in in_the_middle(mode, steps, 2 * FAR) {
            pair.wheel.shrink_to_fit();
            assert_eq!(pair.wheel.stats().stale, 0);
            pair.jump(2 * FAR, 10);
        }
    }
}

/// What was looked at before shrinks away, so what was not looked at yet moves to the front.
fn shrunk_after_cancels_in_the_middle_nothing_is_late(mode: Mode) {
    let every_other = |value: u64| FAR + 5 + value % 2 * 4 * FAR;
    for (deadline, cancelled) in [
        (every_other as fn(u64) -> u64, (|value| value % 2 == 1) as fn(u64) -> bool),
        (in_one_bucket, |value| 2 * CROWD / 3 <= value),
    ] {
        let mut pair = crowded(mode, deadline);
        (0..CROWD).for_each(|_| pair.schedule(1 << 40));
        pair.steps(2, 2 * FAR);
        (0..CROWD).filter(|&value| cancelled(value)).for_each(|value| pair.cancel(value as usize));
        pair.wheel.shrink_to_fit();
        pair.jump(2 * FAR, 10);
    }
}

fn dropped_in_the_middle_it_drops_what_is_left(mode: Mode) {
    let value = std::rc::Rc::new(());
    for deadline in [at_one_tick, in_one_bucket, over_many_rounds] {
        let mut wheel = Wheel::new(mode);
        for id in 0..CROWD {
            wheel.schedule(deadline(id), value.clone());
        }
        let taken: Vec<_> = (0..5).filter_map(|_| wheel.expire_bounded(FAR * 2, &mut 1)).collect();
        assert_eq!(std::rc::Rc::strong_count(&value), CROWD as usize + 1);
        drop(wheel);
        assert_eq!(std::rc::Rc::strong_count(&value), taken.len() + 1);
    }
}

fn a_jump_of_many_rounds_in_steps(mode: Mode) {
    for work in [1, 30, 511, 512, 513] {
        let mut pair = crowded(mode, over_many_rounds);
        pair.jump(FAR + 500_000, work);
        pair.jump(3 * FAR, work);
    }
}

fn a_jump_of_many_rounds_in_steps_with_others_in_between(mode: Mode) {
    let mut pair = crowded(mode, over_many_rounds);
    let now = FAR + 500_000;
    for nth in 0..200 {
        pair.expire_bounded(now, 25);
        pair.look_for_next();
        if nth % 4 == 0 {
            pair.schedule(now + nth % 8 * 100);
        }
    }
    pair.jump(2 * now, 25);
}

fn up_to_the_end_of_time_in_steps(mode: Mode) {
    for first in [1 << 63, u64::MAX - 100, u64::MAX - 1] {
        let mut pair = crowded(mode, |value| u64::MAX - value * 7 % 900);
        pair.jump(first, 20);
        pair.jump(u64::MAX, 20);
        pair.schedule(0);
        pair.jump(u64::MAX, 1);
    }
}

fn too_many_to_be_sorted_at_once_come_in_order(mode: Mode) {
    // In one bucket of the second level, where more are sorted than on others.
    let span = mode.buckets() as u64;
    let deadline = |value| span + value * 7 % span;
    let mut expected: Vec<_> = (0..HUGE).map(|value| (deadline(value), value)).collect();
    expected.sort_unstable();
    for work in [100, usize::MAX] {
        let mut wheel = Checked::new(mode);
        for value in 0..HUGE {
            wheel.unchecked().schedule(deadline(value), value);
        }
        assert_eq!(wheel.jump_in_steps(2 * span, work), expected);
    }
}

fn too_many_to_be_sorted_at_once_are_demoted(mode: Mode) {
    // In one bucket of the third level, and so in several of the finer ones.
    let span = (mode.buckets() * mode.buckets()) as u64;
    let mut wheel = Checked::new(mode);
    for value in 0..HUGE {
        wheel.unchecked().schedule(span + value * 7 % span, value);
    }
    assert_eq!(wheel.jump_in_steps(2 * span, usize::MAX).len(), HUGE as usize);
    assert!(0 < wheel.stats().demotions);
}

fn a_call_does_no_more_than_its_work_and_a_step(mode: Mode) {
    for work in [1, 64, 1000] {
        let mut wheel = Wheel::new(mode);
        for value in 0..HUGE {
            wheel.schedule(at_one_tick(value), value);
        }
        let mut next = 0;
        while !wheel.is_empty() {
            let before = (wheel.stats(), wheel.len());
            let mut left = work;
            while let Some(expired) = wheel.expire_bounded(FAR + 5, &mut left) {
                assert_eq!(expired.value, next);
                next += 1;
            }
            let stats = wheel.stats();
            let handed = before.1 - wheel.len();
            let demoted = (stats.demotions - before.0.demotions) as usize;
            let sorted = (stats.sorted + handed).saturating_sub(before.0.sorted);
            assert!(handed <= work);
            let moved = demoted + sorted;
            assert!(moved <= work + step_of(mode), "{moved} moved with {work}");
        }
        assert_eq!(next, HUGE);
    }
}

fn a_call_demotes_no_more_than_its_work_and_a_step(mode: Mode) {
    for work in [1, 64, 1000] {
        let mut wheel = Wheel::new(mode);
        for value in 0..HUGE {
            wheel.schedule(FAR + value * 7 % 4096, value);
        }
        let mut latest = 0;
        while !wheel.is_empty() {
            let demotions = wheel.stats().demotions;
            let mut left = work;
            while let Some(expired) = wheel.expire_bounded(FAR + 4096, &mut left) {
                assert!(latest <= expired.deadline);
                latest = expired.deadline;
            }
            let demoted = (wheel.stats().demotions - demotions) as usize;
            assert!(demoted <= work + step_of(mode), "{demoted} demoted with {work}");
        }
        assert!(0 < wheel.stats().demotions);
    }
}

/// Where stale entries become too many while a bucket is being taken apart, they are swept in
/// place.
fn cancelling_takes_no_bucket_apart(mode: Mode) {
    let mut wheel = Wheel::new(mode);
    let schedule = |value| wheel.schedule(FAR + value * 7 % 4096, value);
    let keys: Vec<_> = (0..HUGE).map(schedule).collect();
    for _ in 0..3 {
        assert!(wheel.expire_bounded(FAR, &mut 1).is_none_or(|expired| expired.deadline == FAR));
    }
    let work = |wheel: &Wheel<u64>| {
        let stats = wheel.stats();
        (stats.demotions, stats.buckets_visited, stats.rounds_waited)
    };
    let (before, mut most_stale) = (work(&wheel), 0);
    for (nth, key) in keys.into_iter().rev().take(HUGE as usize * 9 / 10).enumerate() {
        wheel.cancel(key);
        if nth % 16 == 0 {
            most_stale = most_stale.max(wheel.stats().stale);
        }
    }
    assert_eq!(work(&wheel), before);
    assert!(wheel.stats().stale < most_stale, "some were swept");
    wheel.check();
}

/// A bucket with 300 at a tick each, of which all but the last were cancelled, and enough
/// elsewhere that nothing is swept.
fn passed_over(mode: Mode) -> Wheel<u64> {
    let mut wheel = Wheel::new(mode);
    (0..CROWD).for_each(|value| _ = wheel.schedule(u64::MAX, value));
    let schedule = |value| wheel.schedule(FAR + value * apart(mode), value);
    let keys: Vec<_> = (0..300).map(schedule).collect();
    // The latest comes last, so no entry is taken back.
    keys.iter().rev().skip(1).for_each(|&key| assert!(wheel.cancel(key).is_some()));
    wheel
}

/// Ticks between two timeouts that share a bucket.
fn apart(mode: Mode) -> u64 {
    if mode.is_hashed() { mode.buckets() as u64 } else { 1 }
}

/// The latest is there while the next is looked for, and is taken back then.
fn what_was_passed_is_not_passed_again_after_a_cancel_of_the_latest(mode: Mode) {
    let mut wheel = passed_over(mode);
    let last = wheel.next_deadline().expect("one is pending");
    let soon = last - apart(mode);
    let mut next = wheel.schedule(soon, 0);
    for turn in 0..100 {
        let before = steps();
        let second = wheel.schedule(soon, turn);
        let latest = wheel.schedule(last, turn);
        assert!(wheel.cancel(next).is_some());
        assert_eq!(wheel.next_deadline(), Some(soon));
        assert!(wheel.cancel(latest).is_some());
        next = second;
        let taken = steps() - before;
        assert!(turn == 0 || taken <= 500, "{mode}: {taken} steps in turn {turn}");
        wheel.check();
    }
}

/// Where nothing is due, looking at it is work too.
fn a_call_looks_at_no_more_than_its_work_and_a_step(mode: Mode) {
    let round = mode.buckets() as u64;
    let mut wheel = Wheel::new(mode);
    let waiting = FAR + 5 * round;
    for value in 0..HUGE {
        wheel.schedule(waiting, value);
    }
    wheel.schedule(FAR, HUGE);
    let mut out = Vec::new();
    let work_of_each = 100;
    let mut calls = 0;
    loop {
        let mut work = work_of_each;
        out.extend(wheel.expire_bounded(FAR, &mut work));
        if 0 < work && out.len() == 1 && wheel.next_wake() > Some(FAR) {
            break;
        }
        calls += 1;
    }
    assert_eq!((out.len(), out[0].value), (1, HUGE));
    assert!(HUGE as usize / (work_of_each + step_of(mode)) <= calls, "{calls} calls");
}

/// What has been sorted and is not due can need to be put back: no more than one step takes.
fn what_is_not_due_yet_is_sorted_only_while_it_is_little(mode: Mode) {
    const BUCKET: u64 = 1 << 8;
    let end = BUCKET + mode.buckets() as u64 - 1;
    let mut wheel = Checked::new(mode);
    wheel.schedule(BUCKET, 0);
    wheel.schedule(end.max(BUCKET + 1), 0);
    assert_eq!(wheel.jump(BUCKET), [(BUCKET, 0)]);
    for value in 1..HUGE {
        wheel.unchecked().schedule(end.max(BUCKET + 1), value);
        if value % 64 == 0 {
            let sorted = wheel.stats().sorted;
            assert!(sorted <= 1024, "{sorted} sorted");
        }
    }
    wheel.unchecked().check();
    let mut next = 0;
    while let Some(expired) = wheel.unchecked().expire(2 * end) {
        assert_eq!(expired.value, next);
        next += 1;
    }
    assert_eq!(next, HUGE);
}

#[test]
fn each_stale_entry_before_the_next_is_work_of_who_asks() {
    let mut wheel = Wheel::with_capacity(Mode::hierarchical(), 2_000);
    let keys: Vec<_> = (0..1_000).map(|at| wheel.schedule(64 + at / 16, at)).collect();
    assert!(wheel.expire(64).is_some());
    // So few that no sweep begins.
    keys[1..700].iter().for_each(|&key| _ = wheel.cancel(key));
    let (mut work, mut calls) = (100, 1);
    while wheel.next_deadline_bounded(&mut work).is_none() {
        assert_eq!(work, 0);
        (work, calls) = (100, calls + 1);
    }
    assert_eq!(calls, 7);
}

/// In a tree of several tiers, what came out leaves nodes that the next call puts right.
#[test]
fn what_a_call_puts_right_in_the_tree_counts_as_work() {
    let mut wheel = Wheel::with_capacity(Mode::hashed(1 << 20).expect("a mode"), 2_000);
    [1, 1 << 19].into_iter().for_each(|deadline| _ = wheel.schedule(deadline, ()));
    assert!(wheel.expire(1).is_some());
    let mut work = 100;
    assert!(wheel.expire_bounded(100, &mut work).is_none());
    assert!((90..100).contains(&work), "{work} is left");
}

/// More than a few chunks, and more than are sorted at once.
const CROWD: u64 = 2000;
/// Far enough to be on a coarse level.
const FAR: u64 = 1 << 20;

/// A crowd that is too large to be sorted at once.
const HUGE: u64 = if cfg!(debug_assertions) { 8_000 } else { 20_000 };
