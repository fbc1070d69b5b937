//! Far deadlines, starting ticks of any size, and the end of time.

use crate::checked::Checked;
use crate::common::long;
use tickwheel::Mode;

in_each_mode! {
    far_timeout_does_not_disturb_a_near_one:
        "for x in 2^32 2^61 1_844_674_407_370_955 max-1 max; a@x b@1; next 1; wakes 1; "
        "walk 2000: b@1; next x; wakes x; -a",
    never_in_effect_neither_comes_nor_costs:
        "a@2^32 b@2^61 c@2^63-1 d@2^63 e@max-1 f@max; walk 5000; to 1_000_000; work 0 0; "
        "wakes 2^32; -a -b -c -d -e -f",
    the_last_tick_is_a_deadline_like_any_other:
        "a@max b@max-1 c@max; to max-2; to max-1: b@max-1; d@max; to max: a@max c@max d@max; "
        "to max",
    close_to_the_end_of_time_nothing_overflows,
    years_of_milliseconds_come_to_the_tick,
    coarse_levels_come_to_the_tick,
    a_whole_range_of_uptime_later_it_still_works:
        "for x in 2^36 2^36+1 2^42 2^60; to x; "
        "a@x b@x+1 c@x+63 d@x+64 e@x+65 f@x+4096 g@x+2^36; "
        "walk x+100: a@x b@x+1 c@x+63 d@x+64 e@x+65; to x+4096: f@x+4096; to x+2^36-1; "
        "to x+2^36: g@x+2^36",
    the_same_happens_from_any_starting_tick,
    the_same_happens_from_any_starting_tick_in_company,
    powers_of_the_bucket_count_are_no_special_ticks,
    crossing_where_a_sign_or_half_would_flip:
        "for x in 2^29 2^30 2^60 2^61; to 4x-3; a@4x-1 b@4x c@4x+2; "
        "walk 4x+5: a@4x-1 b@4x c@4x+2; anew; to 2x; a@4x b@5x; to 4x: a@4x; to 6x: b@5x",
    delays_of_more_than_32_bits_are_not_cut,
    delays_of_a_round_less_or_more_do_not_alias,
    // Time went on unseen: the caller says so first, and then asks for the delay.
    idle_past_its_tick_then_a_long_delay_is_not_early:
        "a@1; to 9: a@1; to 40; b@2595; walk 2640: b@2595",
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

/// Ticks at which arithmetic could go wrong: around zero, the powers of the bucket count, half of
/// what fits, and the end of time less `room`. Where many powers fit, some of them.
fn starting_ticks(mode: Mode, room: u64) -> Vec<u64> {
    let buckets = mode.buckets() as u64;
    let every = if buckets <= 2 { long(5, 1) } else { 1 };
    let powers = (0..64).step_by(every).map_while(|power| buckets.max(2).checked_pow(power));
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

const YEAR: u64 = 365 * 86_400_000;
