//! Wheels of few timeouts, which are held in one array, and wheels at the border to buckets.

use crate::checked::Checked;
use crate::common::asked_or_long;
use crate::pair::Pair;
use fastrand::Rng;
use tickwheel::{Mode, Wheel, steps};

in_each_mode_and_large! {
    at_the_border_all_comes_as_from_a_sorted_map,
    over_the_border_and_back_no_call_goes_by_history,
    few_take_one_array_whatever_comes_and_goes,
    overdue_and_not_yet_sorted_they_go_over_the_border_in_order,
    cleared_amid_a_jump_a_wheel_keeps_nothing,
    shrunk_to_few_and_emptied_a_wheel_keeps_nothing,
    whatever_is_called_all_comes_as_from_a_sorted_map,
    over_the_borders_again_and_again_the_same_calls_take_as_many_steps,
    cancelled_among_few_it_costs_no_look_at_another,
    asked_in_turns_with_one_that_comes_first_not_all_are_sorted,
}

#[test]
fn four_timeouts_take_at_most_512_bytes_the_wheel_included() {
    let mut wheel = Wheel::new(Mode::hierarchical());
    (0..4).for_each(|value: u64| _ = wheel.schedule(1 + value, value));
    let bytes = size_of_val(&wheel) + wheel.stats().memory;
    assert!((256..=512).contains(&bytes), "{bytes}");
}

fn deadline(rng: &mut Rng, now: u64) -> u64 {
    now + (rng.u64(..) >> rng.u32(20..62))
}

fn at_the_border_all_comes_as_from_a_sorted_map(mode: Mode) {
    for border in BORDERS {
        let mut rng = Rng::with_seed(border as u64);
        let mut pair = Pair::of_few(mode);
        for turn in 0..24 {
            while pair.pending.len() <= border {
                pair.schedule(deadline(&mut rng, pair.now));
                pair.check();
            }
            for _ in 0..5 {
                let value = rng.usize(..pair.timeouts.len());
                pair.reschedule(value, deadline(&mut rng, pair.now));
                pair.check();
            }
            while border <= pair.pending.len() + 2 {
                let value = rng.usize(..pair.timeouts.len());
                let next = pair.next_deadline().expect("there are some");
                match rng.u8(..4) {
                    0 if next < 1 << 60 => _ = pair.expire(next),
                    1 => pair.look_for_next(),
                    _ => pair.cancel(value),
                }
                pair.check();
            }
            if turn % 6 == 5 {
                pair.clear();
                pair.wheel.shrink_to_fit();
                pair.check();
            }
        }
        while pair.expire(u64::MAX) {}
        pair.check();
    }
}

/// Wheels that grow over each border and shrink again, as at random, with what is due not looked at
/// and not sorted. Whatever that was, the same calls take no more steps than of a new wheel.
fn over_the_borders_again_and_again_the_same_calls_take_as_many_steps(mode: Mode) {
    for border in (63..=65).chain(1_023..=1_025).chain(1_055..=1_057) {
        let new = steps_at(&mut Wheel::new(mode), border);
        let large = steps_at(&mut Wheel::with_capacity(mode, 2_000), border);
        // One call may sort a full array, and take it apart.
        let [all, longest] =
            [(0, 0), (1, 2_500)].map(|(at, array)| new[at].max(large[at]).max(array));
        let mut rng = Rng::with_seed(border as u64);
        let mut pair = Pair::of_few(mode);
        for _ in 0..8 {
            for _ in 0..20 {
                any_at(&mut pair, &mut rng, border);
                pair.check();
            }
            pair.clear();
            if rng.bool() {
                pair.wheel.shrink_to_fit();
            }
            // At the begin of a round, as a new one is.
            let _ = pair.wheel.expire((pair.wheel.now() | (LONGEST_ROUND - 1)) + 1);
            let [now_all, now_longest] = steps_at(&mut pair.wheel, border);
            pair.now = pair.wheel.now();
            let is_new = now_all <= all && now_longest <= longest;
            assert!(is_new, "{border}: {now_all} and {now_longest}, not {all} and {longest}");
        }
    }
}

/// Does one thing, or the same to many.
fn any_at(pair: &mut Pair, rng: &mut Rng, border: usize) {
    let now = pair.now;
    let value = |rng: &mut Rng, pair: &Pair| rng.usize(..pair.timeouts.len().max(1));
    match rng.u8(..9) {
        0 => _ = pair.expire_bounded(now + rng.u64(..200), 0),
        1 => pair.steps(rng.usize(..5), now),
        2 => pair.look_for_next(),
        3 if !pair.timeouts.is_empty() => {
            let (value, deadline) = (value(rng, pair), deadline(rng, now));
            pair.reschedule(value, deadline);
        }
        4 => {
            while border <= pair.pending.len() + 2 {
                let value = value(rng, pair);
                pair.cancel(value);
            }
        }
        5 => {
            let kept = rng.usize(..border);
            while kept < pair.pending.len() && pair.expire(now + rng.u64(..300)) {}
        }
        // Beyond all borders now and then.
        kind => {
            let most = if kind == 6 { 1_058 } else { border + rng.usize(..3) };
            while pair.pending.len() < most {
                pair.schedule(now + rng.u64(..400));
            }
        }
    }
}

/// The steps that the same calls take, and those of the longest of them.
fn steps_at(wheel: &mut Wheel<usize>, border: usize) -> [u64; 2] {
    let (mut rng, now, mut longest) = (Rng::with_seed(7), wheel.now(), 0);
    let begin = steps();
    let mut counted = |call: &mut dyn FnMut()| {
        let before = steps();
        call();
        longest = longest.max(steps() - before);
    };
    let mut keys = Vec::new();
    for number in 0..3 * border {
        counted(&mut || keys.push(wheel.schedule(now + 1 + rng.u64(..5_000), number)));
        if border < keys.len() {
            let key = keys.swap_remove(rng.usize(..keys.len()));
            counted(&mut || _ = wheel.cancel(key));
        }
    }
    let mut is_over = false;
    while !is_over {
        counted(&mut || is_over = wheel.expire(now + 5_000).is_none());
    }
    [steps() - begin, longest]
}

fn cancelled_among_few_it_costs_no_look_at_another(mode: Mode) {
    for few in [10, 64, 105, 1_050] {
        let mut wheel = Wheel::new(mode);
        let mut rng = Rng::with_seed(few);
        let mut keys: Vec<_> = (0..few).map(|value| wheel.schedule(value * 7, value)).collect();
        rng.shuffle(&mut keys);
        let before = steps();
        keys[1..].iter().for_each(|&key| assert!(wheel.cancel(key).is_some()));
        assert_eq!(steps(), before, "none of {few}");
        wheel.check();
    }
}

/// One that comes before all others, or behind the first one, is scheduled and cancelled, again and
/// again; each time the next one is asked for.
fn asked_in_turns_with_one_that_comes_first_not_all_are_sorted(mode: Mode) {
    const TURNS: u64 = 1_000;
    let sizes = [30, 64, 500, 511, 512, 513, 1_000, 1_023, 1_024, 1_025, 1_055, 1_056];
    // In an array, and in pieces of a bucket that are full, or nearly.
    for (few, room) in sizes.into_iter().flat_map(|few| [(few, 0), (few, 2_000)]) {
        for is_first in [true, false] {
            let mut wheel = Wheel::with_capacity(mode, room);
            let keys: Vec<_> = (0..few).map(|at| wheel.schedule(5_000 + at * 7, at)).collect();
            assert_eq!(wheel.next_deadline(), Some(5_000));
            let (mut first, before) = (keys[0], steps());
            for turn in 0..TURNS {
                let second = wheel.schedule(if is_first { 10 } else { 5_001 + turn % 4 }, few);
                let gone = if is_first { second } else { std::mem::replace(&mut first, second) };
                assert!(wheel.cancel(gone).is_some());
                assert!(wheel.next_deadline().is_some());
            }
            let each = (steps() - before) / TURNS;
            assert!(each <= 160, "{few}, {room}: {each} steps in each turn");
        }
    }
}

/// Each turn does the same, and takes no more steps than the first ones did.
fn over_the_border_and_back_no_call_goes_by_history(mode: Mode) {
    let (mut most_at_first, mut wheel) = (0, Wheel::new(mode));
    for turn in 0..60 {
        let (mut rng, begin) = (Rng::with_seed(7), steps());
        let mut keys = Vec::new();
        for number in 0..2_000 {
            let before = steps();
            keys.push(wheel.schedule(deadline(&mut rng, 0), number));
            assert!(steps() - before <= 2_500, "{} steps in one call", steps() - before);
            if number % 3 == 2 {
                wheel.cancel(keys.swap_remove(rng.usize(..keys.len())));
            }
        }
        keys.into_iter().for_each(|key| assert!(wheel.cancel(key).is_some()));
        assert!(wheel.is_empty());
        let taken = steps() - begin;
        if turn < 3 {
            most_at_first = taken.max(most_at_first);
        }
        assert!(taken <= most_at_first, "turn {turn}: {taken}, {most_at_first} at first");
        if turn % 3 == 2 {
            wheel.shrink_to_fit();
        }
    }
}

fn few_take_one_array_whatever_comes_and_goes(mode: Mode) {
    for few in [1, 4, 64, 600] {
        let mut rng = Rng::with_seed(few);
        let mut wheel = Wheel::new(mode);
        let mut keys: Vec<_> = (0..few).map(|value| wheel.schedule(value, value)).collect();
        for turn in 0..2_000 {
            let at = rng.usize(..keys.len());
            match rng.u8(..3) {
                0 => _ = wheel.reschedule(keys[at], deadline(&mut rng, turn)),
                1 => {
                    assert!(wheel.cancel(keys[at]).is_some() || wheel.len() < keys.len());
                    keys[at] = wheel.schedule(deadline(&mut rng, turn), turn);
                }
                _ => while wheel.expire(turn).is_some() {},
            }
            let stats = wheel.stats();
            assert_eq!(stats.timeouts_per_level.iter().sum::<usize>(), 0, "all are ready");
        }
        // A slot and a deadline for each, and entries: up to twice as many, or 64.
        let arena = (few as usize).next_power_of_two().max(4) * (16 + 8) + 32 * 8;
        let entries = (64.max(2 * few as usize)).min(1_056) * 16;
        assert!(wheel.stats().memory <= arena + entries, "{}", wheel.stats().memory);
    }
}

fn overdue_and_not_yet_sorted_they_go_over_the_border_in_order(mode: Mode) {
    let mut pair = Pair::of_few(mode);
    (0..100).rev().for_each(|tick| pair.schedule(1 + tick));
    assert!(!pair.expire_bounded(200, 0), "nothing is done yet");
    (0..1_000).for_each(|tick| pair.schedule(1_000 + tick));
    pair.check();
    while pair.expire(u64::MAX) {}
    assert!(pair.pending.is_empty());
    let mut rng = Rng::with_seed(1);
    for _ in 0..20 {
        let mut pair = Pair::of_few(mode);
        (0..rng.u64(60..1_056)).for_each(|_| pair.schedule(rng.u64(1..300)));
        assert!(!pair.expire_bounded(rng.u64(150..400), 0), "nothing is done yet");
        while pair.pending.len() < 1_070 {
            pair.schedule(pair.now + rng.u64(..300));
            pair.check();
        }
        pair.jump(u64::MAX, 1 + rng.usize(..300));
        assert!(pair.pending.is_empty());
    }
}

fn cleared_amid_a_jump_a_wheel_keeps_nothing(mode: Mode) {
    for steps in 0..80 {
        for mut pair in [Pair::new(mode), Pair::of_few(mode)] {
            (0..20).for_each(|number| pair.schedule(1 + 700 * number));
            pair.steps(steps, 1 << 20);
            pair.clear();
            pair.check();
            pair.schedule(1 << 21);
            while pair.expire(u64::MAX) {}
            assert!(pair.pending.is_empty());
        }
    }
}

/// What is due lies in two places, of which one fits into the wheel itself once it is shrunk.
fn shrunk_to_few_and_emptied_a_wheel_keeps_nothing(mode: Mode) {
    let mut wheel = Checked::new(mode);
    let keys: Vec<_> = (0..2_000).map(|value| wheel.schedule(0, value)).collect();
    let (left, gone): (Vec<_>, _) =
        (0..keys.len()).partition(|at| [0, 1, keys.len() - 1].contains(at));
    gone.into_iter().for_each(|at| _ = wheel.cancel(keys[at]));
    wheel.shrink_to_fit();
    wheel.check();
    left.into_iter().for_each(|at| _ = wheel.cancel(keys[at]));
    wheel.check();
    assert!(wheel.stats().stale == 0 && wheel.stats().sorted == 0);
    wheel.schedule(7, 0);
    assert_eq!(wheel.expire(7).map(|it| it.value), Some(0));
    assert!(wheel.expire(7).is_none());
    wheel.check();
}

/// Wheels that grow over the border and shrink again, from an early and a late tick on.
/// `FEW_OPERATIONS=1000000 cargo test --release --test wheel few` takes so many for each mode.
fn whatever_is_called_all_comes_as_from_a_sorted_map(mode: Mode) {
    let mut left = asked_or_long("FEW_OPERATIONS", 6_000, 200_000);
    let mut rng = Rng::with_seed(29);
    while 0 < left {
        let mut pair = Pair::of_few(mode);
        pair.wheel.reserve([0, 0, 3, 1_056, 1_057][rng.usize(..5)]);
        pair.expire([0, 1 << 40, u64::MAX - 5_000, u64::MAX][rng.usize(..4)]);
        let most = [3, 40, 130, 1_060, 1_100][rng.usize(..5)];
        let mut grows = true;
        for _ in 0..left.min(1_000) {
            grows = if grows { pair.pending.len() < most } else { pair.pending.is_empty() };
            any_call(&mut pair, &mut rng, grows);
            pair.check();
            left -= 1;
        }
        pair.jump(u64::MAX, 1 + rng.usize(..300));
        assert!(pair.pending.is_empty());
    }
}

fn any_call(pair: &mut Pair, rng: &mut Rng, grows: bool) {
    let ahead = match rng.u8(..8) {
        0 => 0,
        1 => rng.u64(..3),
        2 => u64::MAX,
        3 | 4 => rng.u64(..300),
        _ => rng.u64(..) >> rng.u32(1..64),
    };
    let tick = pair.now.saturating_add(ahead);
    // One of the last, of which most are pending.
    let last = pair.timeouts.len().min(300);
    let value = (pair.timeouts.len() - last) + rng.usize(..last.max(1));
    let is_some = 0 < last;
    match rng.u8(..100) {
        0..40 if grows => pair.schedule(tick),
        0..25 if is_some => pair.cancel(value),
        25..40 => _ = pair.expire(pair.next_deadline().unwrap_or(0).max(pair.now)),
        40..48 => pair.schedule(tick.min(rng.u64(..))),
        48..54 => {
            let range = tick..=tick.saturating_add(rng.u64(..500));
            let key = pair.wheel.schedule_within(range.clone(), pair.timeouts.len());
            let deadline = pair.wheel.deadline(key).expect("it is pending");
            assert!(range.contains(&deadline), "{deadline} in {range:?}");
            pair.add(key, deadline);
        }
        54..66 if is_some => pair.reschedule(value, tick),
        // Time goes on, and nothing is done yet.
        66..72 => _ = pair.expire_bounded(pair.now.saturating_add(rng.u64(..200)), 0),
        72..80 => pair.steps(1, pair.now.saturating_add(rng.u64(..20))),
        80..83 => {
            let mut work = rng.usize(..40);
            let next = pair.wheel.next_deadline_bounded(&mut work);
            assert!(next == pair.next_deadline() || next.is_none() && work == 0);
        }
        83..86 => pair.look_for_next(),
        86..88 => pair.iterate(),
        88 => {
            let kept = rng.usize(1..5);
            pair.wheel.retain(|_, _, value| *value % 5 < kept);
            let all = pair.timeouts.len();
            (0..all).filter(|value| kept <= value % 5).for_each(|value| _ = pair.take(value));
        }
        89 if rng.u8(..5) == 0 => {
            let mut drained: Vec<_> = pair.wheel.drain().map(|expired| expired.value).collect();
            drained.sort_unstable();
            let mut pending: Vec<_> = pair.pending.values().copied().collect();
            pending.sort_unstable();
            assert_eq!(drained, pending);
            pair.clear_map();
        }
        90 if rng.u8(..5) == 0 => pair.clear(),
        91..93 => pair.wheel.shrink_to_fit(),
        93 if rng.u8(..5) == 0 => pair.wheel.reserve(rng.usize(..2_000)),
        94 => {
            let now = pair.now.saturating_add(ahead >> 1);
            while pair.expire(now) {}
        }
        _ => pair.look(),
    }
}

/// Numbers of timeouts that one array holds, and about the most that it does.
const BORDERS: [usize; 4] = [64, 705, 1_024, 1_056];

/// A power of two ticks, at least as many as any wheel's buckets.
const LONGEST_ROUND: u64 = 1 << 32;
