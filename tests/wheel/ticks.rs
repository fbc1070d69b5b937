//! Ticks: an instant becomes a tick, and nothing is early.
//!
//! `TICKS_CASES=10000000 cargo test --release --test wheel ticks -- --nocapture` looks at ten
//! million.

use crate::checked::Checked;
use crate::common::{Numbers, asked_or_long};
use std::time::{Duration, Instant};
use tickwheel::{Mode, Moment, Ticks};

in_each_mode! {
    a_wheel_that_goes_by_ticks_is_never_early_and_less_than_a_tick_late,
}

/// A tick of 1 ns to 1 h: short and long ones as likely, whole units as likely as odd numbers.
fn draw_tick(numbers: &mut Numbers) -> Duration {
    let unit = 10_u64.pow(u32::try_from(numbers.below(13)).expect("small"));
    let tick = match numbers.below(2) {
        0 => unit * (1 + numbers.below(60)),
        _ => numbers.of_any_size() % HOUR,
    };
    Duration::from_nanos(tick.clamp(1, HOUR))
}

/// Looks at `cases` random instants around `start`, and returns how late the latest deadline was,
/// in thousandths of its tick.
fn look<I>(start: I, cases: u64, numbers: &mut Numbers) -> u128
where
    I: Moment + Ord + std::fmt::Debug,
{
    let mut latest = 0;
    for _ in 0..cases {
        let tick = draw_tick(numbers);
        let ticks = Ticks::new(start, tick);
        // Now and then at a tick, or a nanosecond beside it.
        let nanos = match numbers.below(4) {
            0 => (numbers.of_any_size() / (tick.as_nanos() as u64))
                .saturating_mul(tick.as_nanos() as u64),
            _ => numbers.of_any_size(),
        };
        let nanos = nanos.saturating_sub(numbers.below(2));
        let passed = Duration::from_nanos(nanos);
        let instant = start.after(passed).expect("584 years later");

        let deadline = ticks.deadline(instant);
        if let Some(before) = passed.checked_sub(NS) {
            let before = ticks.now(start.after(before).expect("it is earlier"));
            assert!(before < deadline, "never early: {nanos} ns at {tick:?}");
        }
        let due = ticks.instant(deadline).expect("it is less than an hour later");
        assert!(instant <= due, "never early: {nanos} ns at {tick:?}");
        let late = due.since(instant);
        assert!(late < tick, "late by less than a tick: {nanos} ns at {tick:?}");
        assert!(deadline <= ticks.now(due), "it is due then");
        latest = latest.max(late.as_nanos() * 1_000 / tick.as_nanos());

        let now = ticks.now(instant);
        let present = ticks.instant(now).expect("it has passed");
        assert!(present <= instant && instant.since(present) < tick, "the present rounds down");

        let delay = Duration::from_nanos(numbers.of_any_size());
        let end = instant.after(delay).expect("some centuries later");
        assert_eq!(ticks.after(instant, delay), ticks.deadline(end), "a delay is not cut");
    }
    latest
}

#[test]
fn the_present_is_never_the_last_tick_however_late() {
    for length in [1, 2, 3, 1_000_000] {
        let ticks = Ticks::new(Duration::ZERO, Duration::from_nanos(length));
        let nanos = u128::from(u64::MAX) * u128::from(length);
        let second = 1_000_000_000;
        let last = Duration::new((nanos / second) as u64, (nanos % second) as u32);
        assert_eq!(ticks.now(last - NS), u64::MAX - 1);
        for later in [last, last + NS, Duration::MAX] {
            assert_eq!(ticks.now(later), u64::MAX - 1, "{later:?}");
        }
    }
}

#[test]
fn random_instants_are_never_early_and_less_than_a_tick_late() {
    let cases = asked_or_long("TICKS_CASES", 20_000, 200_000);
    let numbers = &mut Numbers(0x71c5);
    let begun = Instant::now();
    let instants = look(begun, cases / 2, numbers);
    let durations = look(Duration::from_nanos(numbers.of_any_size()), cases - cases / 2, numbers);
    println!(
        "{cases} instants, 0 early, the latest by {} thousandths of its tick, in {:?}",
        instants.max(durations),
        begun.elapsed()
    );
}

/// The program sleeps for random times, and schedules at whatever instant it is then.
fn a_wheel_that_goes_by_ticks_is_never_early_and_less_than_a_tick_late(mode: Mode) {
    let numbers = &mut Numbers(0x1000);
    for _ in 0..20 {
        let (start, tick) = (Instant::now(), draw_tick(numbers));
        let ticks = Ticks::new(start, tick);
        let mut wheel = Checked::new(mode);
        let mut now = start;
        for _ in 0..50 {
            let delay = Duration::from_nanos(numbers.below(20 * tick.as_nanos() as u64));
            wheel.schedule(ticks.after(now, delay), now + delay);
            // Each nanosecond counts: the caller comes a moment before a tick, and at one.
            let next = ticks.instant(ticks.now(now) + 1).expect("it is near");
            for at in [next - NS, next] {
                now = at;
                while let Some(expired) = wheel.expire(ticks.now(now)) {
                    assert!(expired.value <= now, "never early");
                    assert!(now - expired.value < tick, "late by less than a tick");
                }
            }
        }
    }
}

#[test]
fn a_delay_is_counted_from_the_call_and_not_from_the_tick_before() {
    let start = Instant::now();
    let ticks = Ticks::new(start, Duration::from_millis(1));
    let called = start + Duration::from_micros(960);
    assert_eq!(ticks.now(called), 0);
    // The obvious `now + 5` would be due 960 us early.
    assert_eq!(ticks.after(called, Duration::from_millis(5)), 6);
    assert_eq!(ticks.instant(6), Some(start + Duration::from_millis(6)));
}

#[test]
fn at_the_ends_of_time_it_saturates_and_the_last_tick_never_comes() {
    for tick in [Duration::ZERO, NS, Duration::from_millis(1), Duration::MAX] {
        let ticks = Ticks::new(Duration::from_secs(5), tick);
        assert_eq!(ticks.tick().as_nanos(), tick.as_nanos().clamp(1, u64::MAX.into()));
        assert_eq!((ticks.now(Duration::ZERO), ticks.deadline(Duration::ZERO)), (0, 0));
        assert_eq!(ticks.after(Duration::MAX, NS), u64::MAX, "it never comes");
        assert!(ticks.now(Duration::MAX) < u64::MAX, "so that what never comes does not");
        assert!(ticks.now(Duration::MAX) <= ticks.deadline(Duration::MAX));
        assert_eq!(
            (ticks.instant(0), ticks.instant(u64::MAX)),
            (Some(Duration::from_secs(5)), None)
        );

        let now = Instant::now();
        let ticks = Ticks::new(now, tick);
        let before = now.checked_sub(Duration::from_secs(1)).expect("not the first second");
        assert_eq!((ticks.now(before), ticks.deadline(before)), (0, 0));
        assert_eq!(ticks.after(now, Duration::MAX), u64::MAX);
        assert_eq!(ticks.instant(0), Some(now));
    }
    let ticks = Ticks::new(Duration::ZERO, NS);
    assert_eq!(ticks.now(Duration::MAX), u64::MAX - 1);
    assert_eq!(ticks.deadline(Duration::MAX), u64::MAX);
    let last = Duration::from_nanos(u64::MAX);
    assert_eq!((ticks.now(last), ticks.deadline(last)), (u64::MAX - 1, u64::MAX));
    // More nanoseconds than a u64 holds, and few ticks.
    let hours = Ticks::new(Duration::ZERO, Duration::from_nanos(HOUR));
    let century = Duration::from_secs(3_600 * 24 * 365 * 1_000);
    assert_eq!((hours.now(century), hours.deadline(century + NS)), (8_760_000, 8_760_001));
    assert_eq!(hours.instant(8_760_000), Some(century));
}

const HOUR: u64 = 3_600_000_000_000;
const NS: Duration = Duration::from_nanos(1);
