//! Intervals: when ticks come, missed ticks, and resetting.

use crate::help::{Hand, Manual, ms};
use std::task::Poll;
use std::time::Duration;
use tickwheel::{Interval, MissedTick, Mode, ScheduleErrorKind};

in_each_mode! {
    ticks_at_once_and_then_every_period,
    begins_when_it_is_told_to,
    burst_ticks_as_often_as_was_missed,
    delay_begins_anew,
    skip_leaves_out_what_was_missed,
    a_tick_that_is_late_by_less_than_a_period_is_not_missed,
    does_not_drift,
    reset_ticks_one_period_later,
    reset_immediately_ticks_at_once,
    reset_after_ticks_after_that,
    reset_at_ticks_then,
    reset_further_than_a_period,
    reset_before_the_first_tick,
    reset_while_somebody_waits_wakes_in_time,
    a_period_of_zero_is_one_tick_of_the_timer,
    the_longest_period_ticks_once,
    nothing_waits_in_the_timer_between_ticks,
    a_tick_that_is_dropped_loses_nothing,
    a_stopped_timer_says_so,
    a_full_timer_says_so_and_has_room_later,
}

/// No ticks.
const NONE: [u64; 0] = [];

fn tick(
    hand: &Hand,
    interval: &mut Interval,
) -> Option<Result<std::time::Instant, ScheduleErrorKind>> {
    match interval.poll_tick(&mut hand.context()) {
        Poll::Ready(tick) => Some(tick),
        Poll::Pending => None,
    }
}

/// All ticks that are due now, in milliseconds since the start.
fn ticks(manual: &Manual, hand: &Hand, interval: &mut Interval) -> Vec<u64> {
    let ticks = std::iter::from_fn(|| tick(hand, interval));
    let since = |tick: Result<std::time::Instant, _>| {
        tick.expect("it runs").duration_since(manual.at(0)).as_millis()
    };
    // No list is without end: the numbers show ticks that are due more often than that.
    ticks.take(20).map(since).map(|millis| u64::try_from(millis).expect("not so late")).collect()
}

fn ticks_at_once_and_then_every_period(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    // The clock stands between two ticks of the timer.
    manual.clock.advance(Duration::from_micros(1_500));
    let mut interval = manual.timer.interval(ms(100));
    assert_eq!((interval.period(), interval.missed_tick()), (ms(100), MissedTick::Burst));
    assert_eq!(ticks(&manual, &hand, &mut interval), [1]);
    manual.clock.advance(Duration::from_micros(500));
    for number in 1..10 {
        // By the timer's tick, and not before.
        manual.clock.advance(ms(100) - Duration::from_micros(500));
        assert_eq!((hand.woken(), ticks(&manual, &hand, &mut interval)), (0, vec![]));
        manual.clock.advance(Duration::from_micros(500));
        assert_eq!(
            (hand.woken(), ticks(&manual, &hand, &mut interval)),
            (1, vec![1 + 100 * number])
        );
    }
}

fn begins_when_it_is_told_to(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    let mut interval = manual.timer.interval_at(manual.at(250), ms(100));
    assert_eq!(interval.deadline(), Some(manual.at(250)));
    let mut seen = Vec::new();
    for _ in 0..500 {
        manual.advance(1);
        seen.extend(ticks(&manual, &hand, &mut interval));
    }
    assert_eq!(seen, [250, 350, 450]);
    // In the past.
    let mut interval = manual.timer.interval_at(manual.at(250), ms(100));
    assert_eq!(ticks(&manual, &hand, &mut interval), [250, 350, 450]);
}

/// Ticks every 300 ms from the start, and is busy from 300 to 951. Returns the ticks from then on.
fn missed(mode: Mode, missed: MissedTick) -> Vec<(u64, Vec<u64>)> {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    manual.advance(1);
    let mut interval = manual.timer.interval_at(manual.at(0), ms(300));
    interval.set_missed_tick(missed);
    let mut seen = vec![(1, ticks(&manual, &hand, &mut interval))];
    for (millis, busy) in [(100, false), (200, true), (650, true), (250, false), (300, false)] {
        manual.advance(millis);
        let now = manual.clock.now().duration_since(manual.at(0)).as_millis() as u64;
        if busy {
            // One tick is all it takes.
            let taken = tick(&hand, &mut interval).expect("due").expect("it runs");
            seen.push((now, vec![taken.duration_since(manual.at(0)).as_millis() as u64]));
            if now < 900 {
                continue;
            }
        }
        seen.push((now, ticks(&manual, &hand, &mut interval)));
    }
    seen
}

fn burst_ticks_as_often_as_was_missed(mode: Mode) {
    let expected = [
        (1, vec![0]),
        (101, vec![]),
        (301, vec![300]),
        (951, vec![600]),
        (951, vec![900]),
        (1201, vec![1200]),
        (1501, vec![1500]),
    ];
    assert_eq!(missed(mode, MissedTick::Burst), expected);
}

fn delay_begins_anew(mode: Mode) {
    let expected = [
        (1, vec![0]),
        (101, vec![]),
        (301, vec![300]),
        (951, vec![600]),
        (951, vec![]),
        (1201, vec![]),
        (1501, vec![1251]),
    ];
    assert_eq!(missed(mode, MissedTick::Delay), expected);
}

fn skip_leaves_out_what_was_missed(mode: Mode) {
    let expected = [
        (1, vec![0]),
        (101, vec![]),
        (301, vec![300]),
        (951, vec![600]),
        (951, vec![]),
        (1201, vec![1200]),
        (1501, vec![1500]),
    ];
    assert_eq!(missed(mode, MissedTick::Skip), expected);
}

fn a_tick_that_is_late_by_less_than_a_period_is_not_missed(mode: Mode) {
    for missed in [MissedTick::Burst, MissedTick::Delay, MissedTick::Skip] {
        let (manual, hand) = (Manual::new(mode), Hand::new());
        let mut interval = manual.timer.interval(ms(100));
        interval.set_missed_tick(missed);
        assert_eq!(ticks(&manual, &hand, &mut interval), [0]);
        manual.advance(199);
        assert_eq!(ticks(&manual, &hand, &mut interval), [100]);
        manual.advance(1);
        assert_eq!(ticks(&manual, &hand, &mut interval), [200]);
    }
}

fn does_not_drift(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    // No multiple of the timer's tick.
    let period = Duration::from_micros(1_234);
    let mut interval = manual.timer.interval(period);
    for number in 0..1_000 {
        let due = manual.at(0) + period * number;
        while tick(&hand, &mut interval).inspect(|tick| assert_eq!(*tick, Ok(due))).is_none() {
            assert!(manual.clock.now() < due + ms(1));
            manual.advance(1);
        }
        assert!(due <= manual.clock.now(), "never early");
    }
}

fn reset_ticks_one_period_later(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    let mut interval = manual.timer.interval(ms(300));
    assert_eq!(ticks(&manual, &hand, &mut interval), [0]);
    manual.advance(100);
    interval.reset();
    manual.advance(299);
    assert_eq!(ticks(&manual, &hand, &mut interval), NONE);
    manual.advance(1);
    assert_eq!(ticks(&manual, &hand, &mut interval), [400]);
    manual.advance(300);
    assert_eq!(ticks(&manual, &hand, &mut interval), [700]);
}

fn reset_immediately_ticks_at_once(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    let mut interval = manual.timer.interval(ms(300));
    assert_eq!(ticks(&manual, &hand, &mut interval), [0]);
    manual.advance(100);
    interval.reset_immediately();
    manual.settle();
    assert_eq!((hand.woken(), ticks(&manual, &hand, &mut interval)), (1, vec![100]));
    manual.advance(300);
    assert_eq!(ticks(&manual, &hand, &mut interval), [400]);
}

fn reset_after_ticks_after_that(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    let mut interval = manual.timer.interval(ms(300));
    assert_eq!(ticks(&manual, &hand, &mut interval), [0]);
    manual.advance(100);
    interval.reset_after(ms(20));
    manual.advance(20);
    assert_eq!((hand.woken(), ticks(&manual, &hand, &mut interval)), (1, vec![120]));
    manual.advance(300);
    assert_eq!(ticks(&manual, &hand, &mut interval), [420]);
}

fn reset_at_ticks_then(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    let mut interval = manual.timer.interval(ms(300));
    assert_eq!(ticks(&manual, &hand, &mut interval), [0]);
    manual.advance(100);
    interval.reset_at(manual.at(140));
    manual.advance(39);
    assert_eq!(ticks(&manual, &hand, &mut interval), NONE);
    manual.advance(1);
    assert_eq!(ticks(&manual, &hand, &mut interval), [140]);
    manual.advance(300);
    assert_eq!(ticks(&manual, &hand, &mut interval), [440]);
}

fn reset_further_than_a_period(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    let mut interval = manual.timer.interval(ms(300));
    assert_eq!(ticks(&manual, &hand, &mut interval), [0]);
    manual.advance(100);
    interval.reset_at(manual.at(1_100));
    let mut seen = Vec::new();
    for _ in 0..1_700 {
        manual.advance(1);
        seen.extend(ticks(&manual, &hand, &mut interval));
    }
    assert_eq!(seen, [1_100, 1_400, 1_700]);
}

fn reset_before_the_first_tick(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    let mut interval = manual.timer.interval(ms(300));
    interval.reset();
    assert_eq!(ticks(&manual, &hand, &mut interval), NONE);
    manual.advance(300);
    assert_eq!(ticks(&manual, &hand, &mut interval), [300]);
}

fn reset_while_somebody_waits_wakes_in_time(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    let mut interval = manual.timer.interval(ms(300));
    assert_eq!(ticks(&manual, &hand, &mut interval), [0]);
    interval.reset_after(ms(900));
    interval.reset_after(ms(50));
    manual.advance(50);
    assert_eq!((hand.woken(), ticks(&manual, &hand, &mut interval)), (1, vec![50]));
}

fn a_period_of_zero_is_one_tick_of_the_timer(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    let mut interval = manual.timer.interval(Duration::ZERO);
    assert_eq!(interval.period(), ms(1));
    assert_eq!(ticks(&manual, &hand, &mut interval), [0]);
    manual.advance(3);
    assert_eq!(ticks(&manual, &hand, &mut interval), [1, 2, 3]);
}

fn the_longest_period_ticks_once(mode: Mode) {
    for missed in [MissedTick::Burst, MissedTick::Delay, MissedTick::Skip] {
        let (manual, hand) = (Manual::new(mode), Hand::new());
        let mut interval = manual.timer.interval(Duration::MAX);
        interval.set_missed_tick(missed);
        manual.advance(10);
        assert_eq!(ticks(&manual, &hand, &mut interval), [0]);
        assert_eq!(interval.deadline(), None);
        manual.clock.jump(Duration::from_secs(1 << 40));
        assert_eq!(ticks(&manual, &hand, &mut interval), NONE);
        interval.reset();
        assert_eq!(ticks(&manual, &hand, &mut interval), NONE);
    }
}

fn nothing_waits_in_the_timer_between_ticks(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    let mut interval = manual.timer.interval(ms(10));
    assert!(tick(&hand, &mut interval).is_some());
    assert_eq!(manual.timer.pending(), 0);
    assert!(tick(&hand, &mut interval).is_none());
    assert_eq!((manual.timer.pending(), hand.wakers()), (1, 1));
    drop(interval);
    assert_eq!((manual.timer.pending(), hand.wakers()), (0, 0));
}

fn a_tick_that_is_dropped_loses_nothing(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    let mut interval = manual.timer.interval(ms(10));
    assert_eq!(hand.poll_once(interval.tick()), Poll::Ready(Ok(manual.at(0))));
    assert!(hand.poll_once(interval.tick()).is_pending());
    manual.advance(10);
    assert_eq!(hand.woken(), 1);
    // Not even polled.
    drop(interval.tick());
    assert_eq!(hand.poll_once(interval.tick()), Poll::Ready(Ok(manual.at(10))));
}

fn a_stopped_timer_says_so(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    let mut interval = manual.timer.interval(ms(10));
    assert_eq!(ticks(&manual, &hand, &mut interval), [0]);
    assert!(manual.timer.stop().expect("outside").is_empty());
    assert_eq!(hand.woken(), 1);
    for _ in 0..3 {
        assert_eq!(tick(&hand, &mut interval), Some(Err(ScheduleErrorKind::Stopped)));
    }
    assert!(!format!("{interval:?}").is_empty());
}

fn a_full_timer_says_so_and_has_room_later(mode: Mode) {
    let (manual, hand) = (Manual::built(mode, |builder| builder.max_pending(1)), Hand::new());
    let mut sleep = manual.timer.sleep(ms(100));
    assert!(hand.poll(&mut sleep).is_pending());
    let mut interval = manual.timer.interval_at(manual.at(10), ms(10));
    assert_eq!(tick(&hand, &mut interval), Some(Err(ScheduleErrorKind::Full)));
    drop(sleep);
    assert_eq!(tick(&hand, &mut interval), None);
    manual.advance(10);
    assert_eq!(tick(&hand, &mut interval), Some(Ok(manual.at(10))));
}

#[cfg(feature = "stream")]
#[test]
fn as_a_stream_it_ticks_and_an_error_ends_it() {
    use futures::Stream;
    use std::pin::Pin;

    let (manual, hand) = (Manual::new(Mode::default()), Hand::new());
    let mut interval = manual.timer.interval(ms(10));
    let mut next = || Pin::new(&mut interval).poll_next(&mut hand.context());
    assert_eq!(next(), Poll::Ready(Some(Ok(manual.at(0)))));
    assert!(next().is_pending());
    manual.advance(10);
    assert_eq!(next(), Poll::Ready(Some(Ok(manual.at(10)))));
    assert!(manual.timer.stop().expect("outside").is_empty());
    assert_eq!(next(), Poll::Ready(Some(Err(ScheduleErrorKind::Stopped))));
    assert_eq!(next(), Poll::Ready(None));
    assert_eq!(next(), Poll::Ready(Some(Err(ScheduleErrorKind::Stopped))));
}

/// However coarse the timer's ticks are, and wherever in one of them the interval is polled.
#[test]
fn skip_never_hands_out_two_at_once() {
    for (timers_tick, period) in [(1_000, 100), (60, 100), (1_000, 60), (7, 5), (1, 1), (10, 10)] {
        for late in [0, 1, 250, 333, 999, 1_000, 1_001, 1_900, 12_345, 60_000] {
            let mode = Mode::default();
            let manual = Manual::built(mode, |builder| builder.tick(ms(timers_tick)));
            let hand = Hand::new();
            let mut interval = manual.timer.interval(ms(period));
            interval.set_missed_tick(MissedTick::Skip);
            assert_eq!(ticks(&manual, &hand, &mut interval), [0]);
            for _ in 0..5 {
                manual.clock.jump(ms(late + timers_tick));
                let found = ticks(&manual, &hand, &mut interval);
                assert!(found.len() <= 1, "{timers_tick}, {period}, {late}: {found:?}");
            }
            // Its rate is that of its period, or as high as the timer's ticks allow.
            let steps = 1 + period / timers_tick;
            let mut found = Vec::new();
            for _ in 0..steps * 20 {
                manual.clock.advance(ms(timers_tick));
                found.extend(ticks(&manual, &hand, &mut interval));
            }
            assert!(found.is_sorted_by(|a, b| a < b) && found.iter().all(|due| due % period == 0));
            let expected = (steps * 20 * timers_tick / period.max(timers_tick)) as usize;
            assert!(found.len().abs_diff(expected) <= 2, "{timers_tick}, {period}: {found:?}");
        }
    }
}
