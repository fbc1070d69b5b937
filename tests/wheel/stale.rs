//! Entries that timeouts leave behind when they are cancelled or moved: they stay few, and nobody
//! takes them for others.

use crate::checked::Checked;
use crate::common::{Numbers, long};
use tickwheel::{Key, Mode, Wheel};

in_each_mode! {
    stale_ones_before_the_next_of_their_bucket_are_forgotten_as_it_comes,
    a_cancelled_one_is_cleared_away_later,
    one_cancelled_as_soon_as_scheduled_leaves_nothing_behind,
    stale_entries_stay_few_while_all_are_cancelled,
    stale_entries_stay_few_while_all_are_moved,
    stale_entries_stay_few_while_others_come_out,
    stale_entries_stay_few_whatever_is_done,
    one_moved_for_ever_leaves_little_behind,
    one_moved_for_ever_in_the_middle_of_a_visit_leaves_little_behind,
    one_moved_for_ever_while_others_are_due_leaves_little_behind,
    moved_to_its_own_tick_many_times_it_comes_last_and_once,
    moved_away_and_back_it_comes_last_and_once:
        "for x in 0 4 6 999 2^20 max; a@500 b@500 c@500; b>x; b>500; b>x; b>500; b>x; b>500; "
        "to 500: a@500 c@500 b@500; to max",
    a_place_used_again_for_the_same_tick_comes_last:
        "for x in 1 5 700 2^20 2^40; a@x b@x c@x d@x; -b -c; e@x f@x g@x; stale 2; "
        "to x: a@x d@x e@x f@x g@x",
    a_place_used_again_for_another_tick_comes_then:
        "a@5 b@5; -b; c@6; next 5; walk 10: a@5 c@6; anew; a@6 b@6; -b; c@5; next 5; "
        "walk 10: c@5 a@6; anew; a@5 b@5; -b; c@517; walk 10: a@5; to 517: c@517; anew; "
        "a@2^20 b@2^20; -b; c@3; next 3; walk 10: c@3; to 2^21: a@2^20; anew; a@3 b@3; -b; "
        "c@2^20; next 3; walk 10: a@3; to 2^21: c@2^20",
    a_place_used_again_among_those_due_comes_last:
        "a@50 b@50 c@50 d@50; take 50: a@50; -c; e@50; b>20; to 50: d@50 e@50 b@50",
    stale_entries_in_front_hide_nothing:
        "a@50 b@50 c@50 d@50 e@50 f@50 g@60; take 50: a@50; -b -c -d -e -f; next 60; to 59; "
        "wakes 60; to 60: g@60",
    a_chunk_of_stale_entries_in_front_hides_nothing,
    what_is_cleared_away_leaves_the_others_in_order,
}

/// But for the only entry of a bucket, so that the bucket stays.
fn one_cancelled_as_soon_as_scheduled_leaves_nothing_behind(mode: Mode) {
    for deadline in DEADLINES {
        let mut wheel = Checked::new(mode);
        wheel.schedule(deadline(0), 0);
        for _ in 0..100 {
            let key = wheel.schedule(deadline(0) + 1, 1);
            assert_eq!(wheel.cancel(key), Some(1));
            assert!(wheel.stats().stale <= 1);
        }
    }
}

#[track_caller]
fn assert_few(wheel: &Checked<u64>) {
    let (stale, bound) = (wheel.stats().stale, FEW + EACH * wheel.len());
    assert!(stale <= bound, "{stale} stale entries where {} are live", wheel.len());
}

/// Deadlines in many buckets, and at many distances.
fn spread(value: u64) -> u64 {
    100 + (value * value * 31 % 5000) + ((value % 7) << 20) + ((value % 3) << 34)
}

fn in_one_bucket(value: u64) -> u64 {
    (1 << 20) + value * 7 % 900
}

fn at_one_tick(_: u64) -> u64 {
    (1 << 20) + 5
}

fn filled(mode: Mode, values: u64, deadline: fn(u64) -> u64) -> (Checked<u64>, Vec<Key>) {
    let mut wheel = Checked::new(mode);
    let keys =
        (0..values).map(|value| wheel.unchecked().schedule(deadline(value), value)).collect();
    (wheel, keys)
}

fn a_cancelled_one_is_cleared_away_later(mode: Mode) {
    let (mut wheel, keys) = filled(mode, 5, spread);
    wheel.cancel(keys[3]);
    let stats = wheel.stats();
    assert_eq!(stats.stale, 1);
    assert_eq!(stats.timeouts_per_level.iter().sum::<usize>() + stats.sorted, 5);
    wheel.shrink_to_fit();
    assert_eq!(wheel.stats().stale, 0);
}

fn stale_entries_stay_few_while_all_are_cancelled(mode: Mode) {
    for deadline in DEADLINES {
        let (mut wheel, keys) = filled(mode, 4000, deadline);
        for (nth, key) in keys.into_iter().enumerate() {
            wheel.unchecked().cancel(key);
            if nth % 16 == 0 {
                assert_few(&wheel);
            }
        }
        assert_eq!(wheel.stats().stale, 0);
        assert_eq!(wheel.stats().timeouts_per_level.iter().sum::<usize>(), 0);
    }
}

fn stale_entries_stay_few_while_all_are_moved(mode: Mode) {
    for deadline in DEADLINES {
        let (mut wheel, keys) = filled(mode, 500, deadline);
        for turn in 1..20 {
            for (value, &key) in (0..).zip(&keys) {
                assert!(wheel.unchecked().reschedule(key, deadline(value + turn * 77)));
            }
            assert_few(&wheel);
            wheel.unchecked().check();
        }
    }
}

/// What is cancelled stays in its bucket; only `expire` is called from then on.
fn stale_entries_stay_few_while_others_come_out(mode: Mode) {
    let mut wheel = Checked::new(mode);
    let many = long(1_000, 4_000);
    for value in 0..many {
        wheel.unchecked().schedule(1 + value, value);
    }
    for value in 0..many {
        let key = wheel.unchecked().schedule((1 << 40) + value * 1000, value);
        wheel.unchecked().schedule(1 << 30, value);
        wheel.unchecked().cancel(key);
        let moved = wheel.unchecked().schedule((1 << 41) + value * 1000, value);
        wheel.unchecked().reschedule(moved, 1 + value);
    }
    assert_few(&wheel);
    for now in 1.. {
        while wheel.unchecked().expire(now << 4).is_some() {
            assert!(wheel.stats().stale <= FEW + EACH * wheel.len());
        }
        if many < now << 4 {
            break;
        }
    }
    wheel.unchecked().check();
    while wheel.unchecked().expire(1 << 30).is_some() {
        assert_few(&wheel);
    }
    assert!(wheel.is_empty());
    assert_eq!(wheel.stats().stale, 0);
}

fn stale_entries_stay_few_whatever_is_done(mode: Mode) {
    let mut numbers = Numbers(41);
    for most in [3, 60, 1500] {
        let mut wheel = Checked::new(mode);
        let mut keys = Vec::new();
        for step in 0..long(3_000, 10_000) {
            let near = wheel.now() + numbers.below(3000);
            let far = wheel.now() + (numbers.of_any_size() >> 20);
            let at = numbers.below(keys.len().max(1) as u64) as usize;
            match numbers.below(8) {
                0..3 if wheel.len() < most => keys.push(wheel.unchecked().schedule(near, 0)),
                3 if wheel.len() < most => keys.push(wheel.unchecked().schedule(far, 0)),
                4 if !keys.is_empty() => {
                    wheel.unchecked().reschedule(keys[at], far);
                }
                5 if !keys.is_empty() => {
                    wheel.unchecked().reschedule(keys[at], near);
                }
                6 if !keys.is_empty() => {
                    wheel.unchecked().cancel(keys.swap_remove(at));
                }
                _ => {
                    let now = wheel.now() + numbers.below(20);
                    let mut work = numbers.below(100) as usize;
                    while wheel.unchecked().expire_bounded(now, &mut work).is_some() {}
                }
            }
            keys.truncate(2 * most);
            if step % 16 == 0 {
                let stale = wheel.stats().stale;
                assert!(stale <= FEW + EACH * most, "{stale} stale where {most} were live");
            }
        }
        wheel.unchecked().check();
    }
}

fn one_moved_for_ever_leaves_little_behind(mode: Mode) {
    for deadline in DEADLINES {
        let (mut wheel, keys) = filled(mode, 2, deadline);
        for turn in 0..long(5_000, 20_000) {
            assert!(wheel.unchecked().reschedule(keys[0], deadline(turn)));
            if turn % 100 == 0 {
                assert_few(&wheel);
            }
        }
        wheel.unchecked().check();
    }
}

/// What the crowd may leave, of which the visit has taken a part.
fn one_moved_for_ever_in_the_middle_of_a_visit_leaves_little_behind(mode: Mode) {
    const CROWD: u64 = 5_000;
    for deadline in [in_one_bucket, at_one_tick] {
        let (mut wheel, keys) = filled(mode, CROWD, deadline);
        for _ in 0..3 {
            wheel.unchecked().expire_bounded(1 << 20 | 5, &mut 1);
        }
        let last = keys[CROWD as usize - 1];
        for &key in &keys[..CROWD as usize - 1] {
            wheel.unchecked().cancel(key);
        }
        for turn in 0..2 * CROWD {
            assert!(wheel.unchecked().reschedule(last, (1 << 20) + 300 + turn % 2));
        }
        assert_few(&wheel);
        wheel.unchecked().check();
        assert_eq!(wheel.next_deadline(), Some((1 << 20) + 301));
        assert_eq!(wheel.jump_in_steps(1 << 21, 10), [((1 << 20) + 301, CROWD - 1)]);
    }
}

fn one_moved_for_ever_while_others_are_due_leaves_little_behind(mode: Mode) {
    // More than a round, in steps, so that much of it waits between the buckets and the way out.
    let deadline = |value| (1 << 20) + value * 4099;
    let (mut wheel, keys) = filled(mode, 3000, deadline);
    while wheel.unchecked().expire_bounded(1 << 40, &mut 1).is_none() {}
    let (&last, others) = keys.split_last().expect("there are many");
    for &key in others {
        wheel.unchecked().cancel(key);
    }
    for turn in 0..long(5_000, 20_000) {
        assert!(wheel.unchecked().reschedule(last, (1 << 40) + turn % 3));
    }
    assert_few(&wheel);
    wheel.unchecked().check();
    assert_eq!(wheel.jump(1 << 41), [((1 << 40) + 19_999 % 3, 2999)]);
}

fn moved_to_its_own_tick_many_times_it_comes_last_and_once(mode: Mode) {
    for tick in [0, 1, 5, 700, 1 << 20, 1 << 40] {
        for turns in [1, 2, 20, 2000] {
            let mut wheel = Checked::new(mode);
            let key = wheel.schedule(tick, 0);
            for value in 1..4 {
                wheel.schedule(tick, value);
            }
            for _ in 0..turns {
                assert!(wheel.unchecked().reschedule(key, tick));
            }
            assert_eq!(wheel.deadline(key), Some(tick));
            let expected: Vec<_> = [1, 2, 3, 0].map(|value| (tick, value)).into();
            assert_eq!(wheel.jump(tick), expected);
            assert_eq!(wheel.jump(u64::MAX), []);
        }
    }
}

/// What is due is more than a chunk, and the whole of the first is cleared away.
fn a_chunk_of_stale_entries_in_front_hides_nothing(mode: Mode) {
    const CROWD: u64 = 3000;
    for (left, is_shrunk) in [(1, false), (100, false), (700, false), (2000, true)] {
        let (mut wheel, keys) = filled(mode, CROWD, at_one_tick);
        let tick = at_one_tick(0);
        assert_eq!(wheel.expire(tick).map(|expired| expired.value), Some(0));
        for (value, &key) in (0..CROWD - left).zip(&keys).skip(1) {
            assert_eq!(wheel.unchecked().cancel(key), Some(value));
            if value % long(500, 100) == 0 {
                wheel.unchecked().check();
            }
        }
        if is_shrunk {
            wheel.shrink_to_fit();
        }
        let expected: Vec<_> = (CROWD - left..CROWD).map(|value| (tick, value)).collect();
        assert_eq!(wheel.next_deadline(), Some(tick));
        assert_eq!(wheel.jump_in_steps(tick, 100), expected);
    }
}

fn what_is_cleared_away_leaves_the_others_in_order(mode: Mode) {
    const CROWD: u64 = 4000;
    for deadline in DEADLINES {
        for &kept in long(&[3, 50][..], &[2, 3, 9, 50]) {
            let (mut wheel, keys) = filled(mode, CROWD, deadline);
            for (value, &key) in (0..).zip(&keys) {
                if value % kept != 0 {
                    wheel.unchecked().cancel(key);
                }
            }
            wheel.unchecked().check();
            for value in CROWD..CROWD + 100 {
                wheel.unchecked().schedule(deadline(value % 50), value);
            }
            let mut expected: Vec<_> = (0..CROWD)
                .filter(|value| value % kept == 0)
                .map(|value| (deadline(value), value))
                .chain((CROWD..CROWD + 100).map(|value| (deadline(value % 50), value)))
                .collect();
            expected.sort_unstable();
            assert_eq!(wheel.jump_in_steps(1 << 40, 100), expected);
        }
    }
}

/// Asking for the next deadline passes them, and leaves them where they are.
fn stale_ones_before_the_next_of_their_bucket_are_forgotten_as_it_comes(mode: Mode) {
    const EARLY: u64 = 1 << 40;
    const LATE: u64 = EARLY + (3 << 20);
    let mut wheel = Wheel::with_capacity(mode, 2_000);
    (0..1_000).for_each(|other| _ = wheel.schedule((1 << 50) + 1 + 2 * other, 0));
    let deadline = |value| if value % 2 == 0 { EARLY } else { LATE };
    let keys: Vec<_> = (0..600).map(|value| wheel.schedule(deadline(value), value)).collect();
    keys.iter().step_by(2).for_each(|&key| _ = wheel.cancel(key));
    assert_eq!(wheel.next_deadline(), Some(LATE));
    wheel.check();
    for value in (1..600).step_by(2) {
        assert_eq!(wheel.expire(LATE).map(|expired| expired.value), Some(value));
        wheel.check();
    }
    assert!(wheel.expire(LATE).is_none());
}

/// Stale entries that there may be anyway.
const FEW: usize = 64;
/// Stale entries that there may be for each timeout.
const EACH: usize = 8;

const DEADLINES: [fn(u64) -> u64; 3] = [spread, in_one_bucket, at_one_tick];
