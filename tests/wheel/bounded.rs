//! Much work in short calls: what is promised holds between any two of them.

use crate::checked::Checked;
use crate::common::Numbers;
use crate::pair::Pair;
use tickwheel::{Mode, Wheel};

in_each_hierarchical_mode! {
    too_many_to_be_sorted_at_once_are_demoted,
    a_call_demotes_no_more_than_its_work_and_a_step,
}

in_each_hashed_mode! {
    a_call_looks_at_no_more_than_its_work_and_a_step,
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
    cancelling_takes_no_bucket_apart,
    what_is_not_due_yet_is_sorted_only_while_it_is_little,
}

/// More than a few chunks, and more than are sorted at once.
const CROWD: u64 = 3000;
/// Far enough to be on a coarse level.
const FAR: u64 = 1 << 20;

/// Timeouts that the last step of [`Wheel::expire_bounded`] may take beyond its work, as documented.
fn step_of(mode: Mode) -> usize {
    if mode.is_hashed() { 512 } else { 1024 }
}

/// A wheel with values `0..CROWD`, by the deadlines that `deadline` gives them.
fn crowded(mode: Mode, deadline: impl Fn(u64) -> u64) -> Checked<u64> {
    let mut wheel = Checked::new(mode);
    for value in 0..CROWD {
        wheel.unchecked().schedule(deadline(value), value);
    }
    wheel.unchecked().check();
    wheel
}

/// The same, as they should come out.
fn sorted(deadline: impl Fn(u64) -> u64) -> Vec<(u64, u64)> {
    let mut sorted: Vec<_> = (0..CROWD).map(|value| (deadline(value), value)).collect();
    sorted.sort_unstable();
    sorted
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

/// Takes one step of one unit of work.
fn step(wheel: &mut Checked<u64>, now: u64) -> Option<(u64, u64)> {
    wheel.expire_bounded(now, &mut 1).map(|expired| (expired.deadline, expired.value))
}

fn a_crowd_at_one_tick_comes_in_order_in_steps(mode: Mode) {
    for work in [1, 2, 100, 700, 5000] {
        let mut wheel = crowded(mode, at_one_tick);
        assert_eq!(wheel.jump_in_steps(FAR + 4, work), []);
        let mut out = Vec::new();
        while !wheel.is_empty() {
            let mut left = work;
            while let Some(expired) = wheel.unchecked().expire_bounded(FAR + 5, &mut left) {
                out.push((expired.deadline, expired.value));
            }
            let next = Some(FAR + 5).filter(|_| !wheel.is_empty());
            assert_eq!(wheel.next_deadline(), next);
        }
        assert_eq!(out, sorted(at_one_tick));
    }
}

fn a_coarse_bucket_comes_in_order_in_steps(mode: Mode) {
    for work in [1, 100, 700] {
        for now in [FAR, FAR + 450, FAR + 899] {
            let mut wheel = crowded(mode, in_one_bucket);
            let (due, left): (Vec<_>, Vec<_>) =
                sorted(in_one_bucket).into_iter().partition(|&(deadline, _)| deadline <= now);
            assert_eq!(wheel.jump_in_steps(now, work), due);
            assert_eq!(wheel.next_deadline(), left.first().map(|&(deadline, _)| deadline));
            assert_eq!(wheel.jump_in_steps(4 * FAR, work), left);
        }
    }
}

fn between_two_steps_anything_can_be_done(mode: Mode) {
    let mut numbers = Numbers(31);
    for deadline in [at_one_tick, in_one_bucket, over_many_rounds] {
        let mut pair = Pair::new(mode);
        (0..CROWD).for_each(|value| pair.schedule(deadline(value)));
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
    for deadline in [at_one_tick, in_one_bucket, over_many_rounds] {
        let mut wheel = crowded(mode, deadline);
        let mut out = Vec::new();
        let mut calls = 0;
        while !wheel.is_empty() {
            calls += 1;
            assert!(calls < 100 * CROWD, "it gets on");
            out.extend(
                wheel
                    .unchecked()
                    .expire_bounded(1 << 40, &mut 1)
                    .map(|expired| (expired.deadline, expired.value)),
            );
        }
        assert_eq!(out, sorted(deadline));
    }
}

fn no_work_moves_the_time_and_nothing_else(mode: Mode) {
    let mut wheel = crowded(mode, in_one_bucket);
    for now in [5, FAR - 1, FAR, FAR + 10, FAR + 10, 1 << 40] {
        let before = wheel.stats();
        assert!(wheel.expire_bounded(now, &mut 0).is_none());
        assert_eq!((wheel.stats(), wheel.now()), (before, now));
        assert_eq!(wheel.next_deadline(), Some(FAR));
    }
    assert_eq!(wheel.jump_in_steps(1 << 40, 100), sorted(in_one_bucket));
}

fn an_earlier_now_in_the_middle_hands_out_what_was_due_then(mode: Mode) {
    for steps in [1, 3, 8] {
        let mut wheel = crowded(mode, in_one_bucket);
        let mut out = Vec::new();
        for _ in 0..steps {
            out.extend(step(&mut wheel, FAR + 800));
        }
        let handed = out.len();
        for now in [0, FAR - 1, FAR, FAR + 1, FAR + 100] {
            out.extend(wheel.jump_in_steps(now, 10));
            let due = sorted(in_one_bucket).into_iter().filter(|&(deadline, _)| deadline <= now);
            assert_eq!(out.len(), due.count().max(handed), "by {now}");
            assert_eq!(wheel.now(), FAR + 800);
        }
        out.extend(wheel.jump_in_steps(2 * FAR, 10));
        assert_eq!(out, sorted(in_one_bucket));
    }
}

fn a_later_now_in_the_middle_hands_out_all(mode: Mode) {
    for deadline in [at_one_tick, in_one_bucket, over_many_rounds] {
        let mut wheel = crowded(mode, deadline);
        let mut out = Vec::new();
        for nth in 0..20 {
            out.extend(step(&mut wheel, FAR + 500 + nth));
        }
        out.extend(wheel.jump_in_steps(u64::MAX - 1, usize::MAX));
        assert_eq!(out, sorted(deadline));
    }
}

fn scheduled_in_the_middle_for_the_same_tick_comes_last(mode: Mode) {
    for steps in [1, 5, 6, 7, 600] {
        let mut wheel = crowded(mode, at_one_tick);
        let mut out = Vec::new();
        for nth in 0..steps {
            let mut work = 1;
            let expired = wheel.unchecked().expire_bounded(FAR + 5, &mut work);
            out.extend(expired.map(|expired| (expired.deadline, expired.value)));
            if nth % 100 < 10 {
                wheel.unchecked().schedule(FAR + nth % 10, CROWD + nth);
            }
        }
        out.extend(wheel.jump_in_steps(FAR + 9, 50));
        let mut expected = sorted(at_one_tick);
        let more = (0..steps).filter(|nth| nth % 100 < 10);
        expected.extend(more.map(|nth| ((FAR + nth % 10).max(FAR + 5), CROWD + nth)));
        expected.sort_by_key(|&(deadline, _)| deadline);
        assert_eq!(out, expected);
    }
}

fn cancelled_in_the_middle_never_comes(mode: Mode) {
    for deadline in [at_one_tick, in_one_bucket, over_many_rounds] {
        for steps in [1, 4, 30] {
            let mut wheel = Checked::new(mode);
            let keys: Vec<_> =
                (0..CROWD).map(|id| wheel.unchecked().schedule(deadline(id), id)).collect();
            let mut out = Vec::new();
            for _ in 0..steps {
                out.extend(step(&mut wheel, 2 * FAR));
            }
            let before = out.len();
            for (id, &key) in (0..).zip(&keys) {
                if id % 3 != 0 {
                    let was_out = out.contains(&(deadline(id), id));
                    assert_eq!(wheel.unchecked().cancel(key), (!was_out).then_some(id));
                }
            }
            wheel.unchecked().check();
            out.extend(wheel.jump_in_steps(2 * FAR, 20));
            let stays = |&&(_, id): &&(u64, u64)| id % 3 == 0;
            let expected = sorted(deadline);
            assert!(out[before..].iter().all(|entry| stays(&entry)));
            assert!(out.iter().filter(stays).eq(expected.iter().filter(stays)));
        }
    }
}

/// Most of the bucket goes while a part of it has been looked at, so that it closes up.
fn cleared_away_in_the_middle_what_is_due_comes(mode: Mode) {
    let round = mode.buckets() as u64;
    for steps in [1, 2, 4, 6] {
        let mut wheel = Checked::new(mode);
        let deadline = |value| match value % 50 {
            49 => FAR,
            _ => FAR + 5 * round,
        };
        let keys: Vec<_> =
            (0..CROWD).map(|value| wheel.unchecked().schedule(deadline(value), value)).collect();
        let mut out = Vec::new();
        for _ in 0..steps {
            out.extend(step(&mut wheel, FAR));
        }
        for (value, &key) in (0..).zip(&keys) {
            if value % 50 < 45 {
                assert_eq!(wheel.unchecked().cancel(key), Some(value));
            }
        }
        wheel.unchecked().check();
        out.extend(wheel.jump_in_steps(FAR, 100));
        let due = (0..CROWD).filter(|value| value % 50 == 49);
        assert_eq!(out, due.map(|value| (FAR, value)).collect::<Vec<_>>());
        let waits = (0..CROWD).filter(|value| (45..49).contains(&(value % 50)));
        let waits: Vec<_> = waits.map(|value| (FAR + 5 * round, value)).collect();
        assert_eq!(wheel.jump_in_steps(2 * FAR, 100), waits);
    }
}

fn cancelled_to_the_last_in_the_middle_leaves_an_empty_wheel(mode: Mode) {
    for deadline in [at_one_tick, in_one_bucket, over_many_rounds] {
        let mut wheel = Checked::new(mode);
        let keys: Vec<_> =
            (0..CROWD).map(|id| wheel.unchecked().schedule(deadline(id), id)).collect();
        for _ in 0..3 {
            step(&mut wheel, 2 * FAR);
        }
        for key in keys {
            wheel.unchecked().cancel(key);
        }
        assert!(wheel.is_empty());
        assert_eq!(wheel.stats().stale, 0);
        wheel.schedule(2 * FAR + 1, 1);
        wheel.schedule(FAR, 0);
        assert_eq!(wheel.jump_in_steps(3 * FAR, 1), [(2 * FAR, 0), (2 * FAR + 1, 1)]);
    }
}

fn drained_in_the_middle_it_gives_all_that_is_left(mode: Mode) {
    for deadline in [at_one_tick, in_one_bucket, over_many_rounds] {
        let mut wheel = crowded(mode, deadline);
        let mut out: Vec<_> = (0..5).filter_map(|_| step(&mut wheel, 2 * FAR)).collect();
        out.extend(wheel.drain().map(|expired| (expired.deadline, expired.value)));
        out.sort_unstable();
        assert_eq!(out, sorted(deadline));
        wheel.schedule(3 * FAR, 7);
        assert_eq!(wheel.jump(3 * FAR), [(3 * FAR, 7)]);
    }
}

fn cleared_in_the_middle_it_starts_afresh(mode: Mode) {
    for deadline in [at_one_tick, in_one_bucket, over_many_rounds] {
        let mut wheel = crowded(mode, deadline);
        for _ in 0..5 {
            step(&mut wheel, 2 * FAR);
        }
        wheel.clear();
        let again: Vec<_> = (0..20).map(|value| (2 * FAR + value * 50, value)).collect();
        for &(deadline, value) in &again {
            wheel.schedule(deadline, value);
        }
        assert_eq!(wheel.jump_in_steps(3 * FAR, 1), again);
    }
}

fn shrunk_in_the_middle_it_goes_on(mode: Mode) {
    for deadline in [at_one_tick, in_one_bucket, over_many_rounds] {
        for steps in [1, 9] {
            let mut wheel = crowded(mode, deadline);
            let mut out = Vec::new();
            for _ in 0..steps {
                out.extend(step(&mut wheel, 2 * FAR));
            }
            wheel.shrink_to_fit();
            assert_eq!(wheel.stats().stale, 0);
            out.extend(wheel.jump_in_steps(2 * FAR, 10));
            assert_eq!(out, sorted(deadline));
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
        let mut wheel = crowded(mode, deadline);
        for value in CROWD..2 * CROWD {
            wheel.unchecked().schedule(1 << 40, value);
        }
        let mut out: Vec<_> = (0..2).filter_map(|_| step(&mut wheel, 2 * FAR)).collect();
        let keys =
            wheel.unchecked().iter().filter(|&(.., &value)| value < CROWD && cancelled(value));
        let keys: Vec<_> = keys.map(|(key, ..)| key).collect();
        for key in keys {
            wheel.unchecked().cancel(key);
        }
        wheel.shrink_to_fit();
        out.extend(wheel.jump_in_steps(2 * FAR, 10));
        let mut expected = sorted(deadline);
        expected.retain(|entry| !cancelled(entry.1) || out[..2.min(out.len())].contains(entry));
        assert_eq!(out, expected);
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
        let mut wheel = crowded(mode, over_many_rounds);
        let now = FAR + 500_000;
        let (due, left): (Vec<_>, Vec<_>) =
            sorted(over_many_rounds).into_iter().partition(|&(deadline, _)| deadline <= now);
        assert_eq!(wheel.jump_in_steps(now, work), due);
        assert_eq!(wheel.jump_in_steps(2 * now, work), left);
    }
}

fn a_jump_of_many_rounds_in_steps_with_others_in_between(mode: Mode) {
    let mut wheel = crowded(mode, over_many_rounds);
    let now = FAR + 500_000;
    let mut expected = sorted(over_many_rounds);
    let mut out = Vec::new();
    for nth in 0..200 {
        let mut work = 25;
        while let Some(expired) = wheel.unchecked().expire_bounded(now, &mut work) {
            out.push((expired.deadline, expired.value));
        }
        assert_eq!(wheel.next_deadline(), Some(expected[out.len()].0));
        if nth % 4 == 0 {
            wheel.schedule(now + nth % 8 * 100, CROWD + nth);
            expected.push((now + nth % 8 * 100, CROWD + nth));
            expected.sort_unstable();
        }
    }
    out.extend(wheel.jump_in_steps(2 * now, 25));
    assert_eq!(out, expected);
}

fn up_to_the_end_of_time_in_steps(mode: Mode) {
    let deadline = |value| u64::MAX - value * 7 % 900;
    for first in [1 << 63, u64::MAX - 100, u64::MAX - 1] {
        let mut wheel = crowded(mode, deadline);
        let mut out = wheel.jump_in_steps(first, 20);
        assert!(out.iter().all(|&(deadline, _)| deadline <= first));
        out.extend(wheel.jump_in_steps(u64::MAX, 20));
        assert_eq!(out, sorted(deadline));
        wheel.schedule(0, 0);
        assert_eq!(step(&mut wheel, u64::MAX), Some((u64::MAX, 0)));
    }
}

/// A crowd that is too large to be sorted at once.
const HUGE: u64 = 20_000;

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

/// Where stale entries become too many while a bucket is being taken apart, they are swept in place.
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
