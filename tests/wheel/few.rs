//! Wheels of few timeouts, which are held in one array, and wheels at the border to buckets.

use crate::pair::Pair;
use fastrand::Rng;
use tickwheel::{Mode, Wheel, steps};

in_each_mode_and_large! {
    at_the_border_all_comes_as_from_a_sorted_map,
    over_the_border_and_back_no_call_goes_by_history,
    few_take_one_array_whatever_comes_and_goes,
    overdue_and_not_yet_sorted_they_go_over_the_border_in_order,
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

/// Each turn does the same, and takes no more steps than the first ones did.
fn over_the_border_and_back_no_call_goes_by_history(mode: Mode) {
    let (mut most_at_first, mut wheel) = (0, Wheel::new(mode));
    for turn in 0..60 {
        let (mut rng, begin) = (Rng::with_seed(7), steps());
        let mut keys = Vec::new();
        for number in 0..300 {
            let before = steps();
            keys.push(wheel.schedule(deadline(&mut rng, 0), number));
            assert!(steps() - before <= 300, "{} steps in one call", steps() - before);
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
    for few in [1, 4, 64, 100] {
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
        let arena = (few as usize).next_power_of_two().max(4) * (16 + 8) + 16 * 8;
        let entries = (64.max(2 * few as usize)).min(160) * 16;
        assert!(wheel.stats().memory <= arena + entries, "{}", wheel.stats().memory);
    }
}

fn overdue_and_not_yet_sorted_they_go_over_the_border_in_order(mode: Mode) {
    let mut pair = Pair::of_few(mode);
    (0..100).rev().for_each(|tick| pair.schedule(1 + tick));
    assert!(!pair.expire_bounded(200, 0), "nothing is done yet");
    (0..100).for_each(|tick| pair.schedule(1_000 + tick));
    pair.check();
    while pair.expire(u64::MAX) {}
    assert!(pair.pending.is_empty());
}

/// Numbers of timeouts that one array holds, and about the most that it does.
const BORDERS: [usize; 3] = [64, 106, 128];
