//! Far deadlines, starting ticks of any size, and the end of time.

use crate::checked::Checked;
use tickwheel::Mode;

in_each_mode! {
    far_timeout_does_not_disturb_a_near_one,
    never_in_effect_neither_comes_nor_costs,
    the_last_tick_is_a_deadline_like_any_other,
    close_to_the_end_of_time_nothing_overflows,
    years_of_milliseconds_come_to_the_tick,
    coarse_levels_come_to_the_tick,
    a_whole_range_of_uptime_later_it_still_works,
    the_same_happens_from_any_starting_tick,
    the_same_happens_from_any_starting_tick_in_company,
    powers_of_the_bucket_count_are_no_special_ticks,
    crossing_where_a_sign_or_half_would_flip,
    delays_of_more_than_32_bits_are_not_cut,
    delays_of_a_round_less_or_more_do_not_alias,
    idle_past_its_tick_then_a_long_delay_is_not_early,
}

const YEAR: u64 = 365 * 86_400_000;

fn far_timeout_does_not_disturb_a_near_one(mode: Mode) {
    for far in [1 << 32, 1 << 61, u64::MAX / 10_000, u64::MAX - 1, u64::MAX] {
        let mut wheel = Checked::new(mode);
        let key = wheel.schedule(far, "far");
        wheel.schedule(1, "near");
        assert_eq!((wheel.next_deadline(), wheel.next_wake()), (Some(1), Some(1)));
        assert_eq!(wheel.walk(2_000), [(1, "near")]);
        assert_eq!((wheel.next_deadline(), wheel.next_wake()), (Some(far), Some(far)));
        assert_eq!(wheel.cancel(key), Some("far"));
    }
}

fn never_in_effect_neither_comes_nor_costs(mode: Mode) {
    let mut wheel = Checked::new(mode);
    let deadlines = [1 << 32, 1 << 61, (1 << 63) - 1, 1 << 63, u64::MAX - 1, u64::MAX];
    let keys = deadlines.map(|deadline| wheel.schedule(deadline, deadline));
    for tick in 0..5000 {
        assert!(wheel.unchecked().expire(tick).is_none());
    }
    assert_eq!(wheel.jump(1_000_000), []);
    assert_eq!(wheel.work(), (0, 0), "it does not spin");
    assert_eq!(wheel.next_wake(), Some(1 << 32));
    for (key, deadline) in keys.into_iter().zip(deadlines) {
        assert_eq!(wheel.cancel(key), Some(deadline));
    }
}

fn the_last_tick_is_a_deadline_like_any_other(mode: Mode) {
    let mut wheel = Checked::new(mode);
    wheel.schedule(u64::MAX, "first");
    wheel.schedule(u64::MAX - 1, "before");
    wheel.schedule(u64::MAX, "second");
    assert_eq!(wheel.jump(u64::MAX - 2), []);
    assert_eq!(wheel.jump(u64::MAX - 1), [(u64::MAX - 1, "before")]);
    wheel.schedule(u64::MAX, "third");
    let out = ["first", "second", "third"].map(|value| (u64::MAX, value));
    assert_eq!(wheel.jump(u64::MAX), out);
    assert_eq!(wheel.jump(u64::MAX), []);
}

fn close_to_the_end_of_time_nothing_overflows(mode: Mode) {
    for left in [0, 1, 2, 7, 8, 63, 64, 255, 256, 511, 512, 600] {
        let mut wheel = Checked::at(mode, u64::MAX - left);
        let mut expected = Vec::new();
        for delay in (0..=left).rev().step_by(3) {
            wheel.schedule(u64::MAX - delay, delay);
            expected.push((u64::MAX - delay, delay));
        }
        assert_eq!(wheel.walk(u64::MAX), expected);
        let key = wheel.schedule(0, 0);
        assert!(wheel.reschedule(key, u64::MAX));
        assert!(wheel.reschedule(key, 1));
        assert_eq!(wheel.jump(u64::MAX), [(u64::MAX, 0)]);
    }
}

fn years_of_milliseconds_come_to_the_tick(mode: Mode) {
    let mut wheel = Checked::new(mode);
    for years in [1, 1, 1, 1, 1, 5, 10] {
        wheel.schedule(years * YEAR, years);
    }
    for (years, crowd) in [(1, 5), (5, 1), (10, 1)] {
        assert_eq!(wheel.jump(years * YEAR - 1), []);
        assert_eq!(wheel.jump(years * YEAR), vec![(years * YEAR, years); crowd]);
    }
    // Five times a year from where the last one ended.
    for year in 11..16 {
        wheel.schedule(year * YEAR, year);
        assert_eq!(wheel.jump(year * YEAR - 1), []);
        assert_eq!(wheel.jump(year * YEAR), [(year * YEAR, year)]);
    }
}

fn coarse_levels_come_to_the_tick(mode: Mode) {
    let delays = [500, 605, 300 * 256, 605 * 256, 1 << 18, (1 << 18) + 1, 1 << 24, 1 << 36];
    for (start, company) in [(0, false), (3, true), (255, false), (70_001, true)] {
        let mut wheel = Checked::at(mode, start);
        if company {
            wheel.schedule(u64::MAX, u64::MAX);
        }
        for delay in delays {
            wheel.schedule(start + delay, delay);
        }
        for delay in delays {
            assert_eq!(wheel.jump(start + delay - 1), []);
            assert_eq!(wheel.jump(start + delay), [(start + delay, delay)]);
        }
    }
}

fn a_whole_range_of_uptime_later_it_still_works(mode: Mode) {
    for uptime in [1 << 36, (1 << 36) + 1, 1 << 42, 1 << 60] {
        let mut wheel = Checked::at(mode, uptime);
        for delay in [0, 1, 63, 64, 65, 4096, 1 << 36] {
            wheel.schedule(uptime + delay, delay);
        }
        assert_eq!(
            wheel.walk(uptime + 100),
            [0, 1, 63, 64, 65].map(|delay| (uptime + delay, delay))
        );
        assert_eq!(wheel.jump(uptime + 4096), [(uptime + 4096, 4096)]);
        assert_eq!(wheel.jump(uptime + (1 << 36) - 1), []);
        assert_eq!(wheel.jump(uptime + (1 << 36)).len(), 1);
    }
}

/// Ticks at which arithmetic could go wrong: around zero, the powers of the bucket count, half of
/// what fits, and the end of time less `room`.
fn starting_ticks(mode: Mode, room: u64) -> Vec<u64> {
    let buckets = mode.buckets() as u64;
    let powers = (0..64).map_while(|power| buckets.max(2).checked_pow(power));
    let middles =
        [buckets / 2, 0x0fff_ffff_c000_0000, i64::MAX as u64, u64::MAX / 3, u64::MAX - room];
    powers
        .chain(middles)
        .flat_map(|tick| [tick.saturating_sub(1), tick, tick.saturating_add(1)])
        .filter(|&tick| tick <= u64::MAX - room)
        .collect()
}

fn the_same_happens_from_any_starting_tick(mode: Mode) {
    for start in starting_ticks(mode, 5000) {
        let wheel = Checked::at(mode, start);
        starts(wheel, start);
    }
}

fn the_same_happens_from_any_starting_tick_in_company(mode: Mode) {
    for start in starting_ticks(mode, 5000) {
        let mut wheel = Checked::new(mode);
        wheel.schedule(u64::MAX, u64::MAX);
        assert_eq!(wheel.jump(start), []);
        starts(wheel, start);
    }
}

fn starts(mut wheel: Checked<u64>, start: u64) {
    let delays = [0, 1, 7, 8, 9, 63, 64, 65, 255, 256, 257, 511, 513, 1000, 4096, 4999];
    for delay in delays.into_iter().rev() {
        wheel.schedule(start + delay, delay);
    }
    let moved = wheel.schedule(start + 4000, 4000);
    assert!(wheel.reschedule(moved, start + 40));
    let cancelled = wheel.schedule(start + 30, 30);
    for delay in delays {
        if delay == 63 {
            assert_eq!(wheel.cancel(cancelled), None);
            assert_eq!(wheel.jump(start + 39), []);
            assert_eq!(wheel.jump(start + 40), [(start + 40, 4000)]);
        } else if delay == 9 {
            assert_eq!(wheel.jump(start + 9), [(start + 9, 9)]);
            assert_eq!(wheel.cancel(cancelled), Some(30));
            continue;
        }
        assert_eq!(wheel.next_deadline(), Some(start + delay));
        if 0 < delay {
            assert_eq!(wheel.jump(start + delay - 1), []);
        }
        assert_eq!(wheel.jump(start + delay), [(start + delay, delay)]);
    }
}

fn powers_of_the_bucket_count_are_no_special_ticks(mode: Mode) {
    let buckets = mode.buckets().max(2) as u64;
    let mut wheel = Checked::new(mode);
    let mut expected = Vec::new();
    for power in (1..64).map_while(|power| buckets.checked_pow(power)) {
        for deadline in [power - 1, power, power + 1] {
            wheel.schedule(deadline, deadline);
            expected.push((deadline, deadline));
        }
    }
    expected.sort_unstable();
    let mut rest = expected.as_slice();
    while let Some(&(deadline, _)) = rest.first() {
        let due = rest.partition_point(|timeout| timeout.0 == deadline);
        assert_eq!(wheel.jump(deadline - 1), []);
        assert_eq!(wheel.jump(deadline), rest[..due]);
        rest = &rest[due..];
    }
}

fn crossing_where_a_sign_or_half_would_flip(mode: Mode) {
    for middle in [1 << 31, 1 << 32, 1 << 62, 1 << 63] {
        let mut wheel = Checked::at(mode, middle - 3);
        for deadline in [middle - 1, middle, middle + 2] {
            wheel.schedule(deadline, deadline);
        }
        let expected = [middle - 1, middle, middle + 2].map(|deadline| (deadline, deadline));
        assert_eq!(wheel.walk(middle + 5), expected, "step by step");

        let mut wheel = Checked::at(mode, middle / 2);
        wheel.schedule(middle, "to it exactly");
        wheel.schedule(middle + middle / 4, "across it");
        assert_eq!(wheel.jump(middle), [(middle, "to it exactly")]);
        assert_eq!(wheel.jump(middle + middle / 2), [(middle + middle / 4, "across it")]);
    }
}

fn delays_of_more_than_32_bits_are_not_cut(mode: Mode) {
    for start in [0, 5, 511, 1 << 33] {
        let mut wheel = Checked::at(mode, start);
        for high in [1_u64 << 32, 1 << 33, 3 << 40, 1 << 62] {
            for low in [0, 1, 2, 511] {
                wheel.schedule(start + high + low, high + low);
            }
        }
        let expected: Vec<_> = [1_u64 << 32, 1 << 33, 3 << 40, 1 << 62]
            .into_iter()
            .flat_map(|high| [0, 1, 2, 511].map(|low| (start + high + low, high + low)))
            .collect();
        assert_eq!(wheel.walk(start + 2000), [], "what only the low half makes look due");
        for timeout in expected {
            assert_eq!(wheel.jump(timeout.0 - 1), []);
            assert_eq!(wheel.jump(timeout.0), [timeout]);
        }
    }
}

fn delays_of_a_round_less_or_more_do_not_alias(mode: Mode) {
    let buckets = mode.buckets() as u64;
    let mut wheel = Checked::at(mode, 128);
    for delay in [255, buckets - 1, buckets, 2 * buckets, 2 * buckets - 1] {
        wheel.schedule(wheel.now() + delay, delay);
        assert_eq!(wheel.next_deadline(), Some(wheel.now() + delay));
        let due = wheel.now() + delay;
        if 0 < delay {
            assert_eq!(wheel.walk(due - 1), []);
        }
        assert_eq!(wheel.jump(due), [(due, delay)]);
    }
}

fn idle_past_its_tick_then_a_long_delay_is_not_early(mode: Mode) {
    let mut wheel = Checked::new(mode);
    wheel.schedule(1, "short");
    assert_eq!(wheel.jump(9), [(1, "short")]);
    // Time went on unseen: the caller says so first, and then asks for the delay.
    assert_eq!(wheel.jump(40), []);
    wheel.schedule(40 + 2555, "long");
    assert_eq!(wheel.walk(40 + 2600), [(40 + 2555, "long")]);
}
