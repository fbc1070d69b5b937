//! Intervals: when ticks come, missed ticks, and resetting.

use crate::common::long;
use crate::help::{Hand, Manual, ms};
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::Poll;
use std::time::Duration;
use tickwheel::{Interval, MissedTick, Mode, ScheduleErrorKind};

in_each_mode! {
    ticks_at_once_and_then_every_period,
    begins_when_it_is_told_to,
    ticks_that_were_missed_come_as_it_is_told,
    a_tick_that_is_late_by_less_than_a_period_is_not_missed,
    does_not_drift,
    reset_it_ticks_then_and_the_ticks_after_it_follow,
    a_period_of_zero_is_one_tick_of_the_timer,
    the_longest_period_ticks_once,
    skip_keeps_to_the_multiples_of_a_period_of_millennia,
    a_tick_that_is_given_up_leaves_nothing_behind_and_loses_nothing,
    always_late_it_gives_way_to_others,
}

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
    // It gives way to others now and then.
    let again = || tick(hand, interval).or_else(|| tick(hand, interval));
    let ticks = std::iter::from_fn(again);
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
    assert_eq!(interval.missed_tick(), missed);
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

fn ticks_that_were_missed_come_as_it_is_told(mode: Mode) {
    let expected = |rest: [Vec<u64>; 3]| {
        let seen = [vec![0], vec![], vec![300], vec![600]].into_iter().chain(rest);
        [1, 101, 301, 951, 951, 1_201, 1_501].into_iter().zip(seen).collect::<Vec<_>>()
    };
    let burst = expected([vec![900], vec![1_200], vec![1_500]]);
    assert_eq!(missed(mode, MissedTick::Burst), burst);
    let delay = expected([vec![], vec![], vec![1_251]]);
    assert_eq!(missed(mode, MissedTick::Delay), delay);
    let skip = expected([vec![], vec![1_200], vec![1_500]]);
    assert_eq!(missed(mode, MissedTick::Skip), skip);
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
    for number in 0..long(100, 1_000) {
        let due = manual.at(0) + period * number;
        while tick(&hand, &mut interval).inspect(|tick| assert_eq!(*tick, Ok(due))).is_none() {
            assert!(manual.clock.now() < due + ms(1));
            manual.advance(1);
        }
        assert!(due <= manual.clock.now(), "never early");
    }
}

/// Polls an interval of 300 ms from the start whenever it is woken, resets it at 100 ms, and
/// returns its ticks up to 1,700 ms.
fn reset(mode: Mode, is_polled: bool, resets: impl Fn(&mut Interval, &Manual)) -> Vec<u64> {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    let mut interval = manual.timer.interval_at(manual.at(50), ms(300));
    let mut seen = Vec::new();
    let step = long(10, 1);
    for now in (0..=1_700).step_by(step as usize) {
        if now == 100 {
            resets(&mut interval, &manual);
            manual.settle();
        }
        if hand.woken() > 0 || now == if is_polled { 0 } else { 100 } {
            let ticks = ticks(&manual, &hand, &mut interval);
            assert!(ticks.iter().all(|tick| *tick == now), "in time");
            seen.extend(ticks);
        }
        manual.advance(step);
    }
    seen
}

fn reset_it_ticks_then_and_the_ticks_after_it_follow(mode: Mode) {
    let after = |delay| reset(mode, true, move |interval, _| interval.reset_after(ms(delay)));
    assert_eq!(after(20), [50, 120, 420, 720, 1020, 1320, 1620]);
    assert_eq!(after(1_000), [50, 1_100, 1_400, 1_700], "further than a period");
    let at = |at| reset(mode, true, move |interval, manual| interval.reset_at(manual.at(at)));
    assert_eq!(at(140), [50, 140, 440, 740, 1040, 1340, 1640]);
    let period = reset(mode, true, |interval, _| interval.reset());
    assert_eq!(period, [50, 400, 700, 1000, 1300, 1600]);
    let at_once = reset(mode, true, |interval, _| interval.reset_immediately());
    assert_eq!(at_once, [50, 100, 400, 700, 1000, 1300, 1600]);
    let unpolled = reset(mode, false, |interval, _| interval.reset());
    assert_eq!(unpolled, [400, 700, 1000, 1300, 1600], "before the first tick");
    let twice = reset(mode, true, |interval, _| {
        interval.reset_after(ms(900));
        interval.reset_after(ms(50));
    });
    assert_eq!(twice, [50, 150, 450, 750, 1050, 1350, 1650]);
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

fn skip_keeps_to_the_multiples_of_a_period_of_millennia(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    let period = Duration::from_secs(100_000_000_000);
    let mut interval = manual.timer.interval_at(manual.at(0) + period, period);
    interval.set_missed_tick(MissedTick::Skip);
    manual.clock.jump(period * 5 / 2);
    assert_eq!(tick(&hand, &mut interval), Some(Ok(manual.at(0) + period)));
    assert_eq!(interval.deadline(), Some(manual.at(0) + period * 3));
}

/// Each tick is late, because the work after it takes longer than a period. A task beside it on the
/// same thread has a turn after every few ticks.
fn always_late_it_gives_way_to_others(mode: Mode) {
    assert_gives_way(mode, async |interval| interval.tick().await);
    #[cfg(feature = "stream")]
    assert_gives_way(mode, async |interval| {
        futures::StreamExt::next(interval).await.expect("it has no end")
    });
}

fn assert_gives_way(
    mode: Mode,
    next: impl AsyncFn(&mut Interval) -> Result<std::time::Instant, ScheduleErrorKind>,
) {
    const TICKS: u32 = 1_000;
    let manual = Manual::new(mode);
    let mut pool = futures::executor::LocalPool::new();
    let turns = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&turns);
    let other = poll_fn(move |context| {
        count.fetch_add(1, SeqCst);
        context.waker().wake_by_ref();
        Poll::<()>::Pending
    });
    futures::task::SpawnExt::spawn(&pool.spawner(), other).expect("the pool lives");
    pool.run_until(async {
        let mut interval = manual.timer.interval(ms(3));
        for number in 0..TICKS {
            let tick = next(&mut interval).await;
            assert_eq!(tick, Ok(manual.at(0) + ms(3) * number));
            manual.clock.jump(Duration::from_micros(4_500));
        }
    });
    let turns = turns.load(SeqCst);
    println!("{turns} turns beside {TICKS} ticks");
    assert!(TICKS as usize / 5 <= turns, "{turns} turns beside {TICKS} ticks");
}

fn a_tick_that_is_given_up_leaves_nothing_behind_and_loses_nothing(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    let mut interval = manual.timer.interval(ms(10));
    assert_eq!(hand.poll_once(interval.tick()), Poll::Ready(Ok(manual.at(0))));
    assert_eq!(manual.timer.pending(), 0);
    assert!(hand.poll_once(interval.tick()).is_pending());
    assert_eq!((manual.timer.pending(), hand.wakers()), (0, 0));
    manual.advance(10);
    assert_eq!(hand.woken(), 0);
    // Not even polled.
    drop(interval.tick());
    assert_eq!(hand.poll_once(interval.tick()), Poll::Ready(Ok(manual.at(10))));
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

/// Only the poll right after an error says None.
#[cfg(feature = "stream")]
#[test]
fn a_tick_after_an_error_takes_the_place_of_the_end() {
    use futures::Stream;
    use std::pin::Pin;

    let manual = Manual::built(Mode::default(), |builder| builder.max_pending(1));
    let hand = Hand::new();
    let kept = manual.timer.schedule(ms(1_000), || {}).expect("there is room");
    let mut interval = manual.timer.interval_at(manual.at(10), ms(10));
    let next = |interval: &mut Interval| Pin::new(interval).poll_next(&mut hand.context());
    let full = Poll::Ready(Some(Err(ScheduleErrorKind::Full)));
    assert_eq!(next(&mut interval), full);
    manual.advance(10);
    assert_eq!(tick(&hand, &mut interval), Some(Ok(manual.at(10))));
    assert_eq!(next(&mut interval), full);
    assert!(kept.cancel());
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

/// No ticks.
const NONE: [u64; 0] = [];
