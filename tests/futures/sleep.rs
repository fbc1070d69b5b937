//! Sleeps: when they complete, which task wakes, and moving and dropping them.

use crate::common::long;
use crate::help::{Hand, Manual, ms};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use tickwheel::{Mode, ScheduleErrorKind, Sleep, Timer, TimerBuilder};

in_each_mode! {
    completes_at_its_deadline_and_not_before,
    what_has_passed_completes_at_once_and_registers_nothing,
    a_delay_of_zero_is_due_at_the_next_tick,
    parts_of_a_tick_round_up,
    from_any_tick_it_takes_as_long,
    is_elapsed_when_its_time_has_come,
    deregistered_it_wakes_nobody_and_waits_at_its_next_poll,
    completed_it_stays_so_until_it_is_reset,
    always_ready_it_gives_way_to_others,
    never_polled_it_is_not_in_the_timer,
    moved_it_is_woken_in_time_and_not_early,
    rescheduled_it_is_not_woken_at_the_old_time,
    moved_after_it_was_due_and_before_it_was_polled_it_waits_anew,
    moved_after_it_completed_it_completes_again,
    years_away_it_is_exact,
    what_no_instant_can_hold_does_not_complete,
    far_ones_do_not_disturb_near_ones,
    after_a_jump_it_completes_once,
    dropped_after_it_was_moved_it_leaves_nothing_behind,
    dropped_when_it_was_due_it_is_fine,
    dropped_by_a_waker_others_are_not_woken,
    woken_together_those_that_a_waker_drops_are_woken_in_vain,
    woken_together_they_keep_their_order_among_tasks,
    woken_together_they_make_what_follows_late,
    wakers_may_call_the_timer,
    many_in_one_tick_are_all_woken,
    with_a_limit_one_too_many_says_so,
    with_a_limit_what_was_moved_keeps_its_place,
}

/// Polls at each millisecond up to `until`, and returns at which it completed.
fn completes_at(manual: &Manual, hand: &Hand, sleep: &mut Sleep, until: u64) -> Option<u64> {
    for millis in 0..=until {
        if millis > 0 {
            manual.advance(1);
        }
        if hand.poll(sleep) == Poll::Ready(Ok(())) {
            return Some(millis);
        }
    }
    None
}

fn completes_at_its_deadline_and_not_before(mode: Mode) {
    for delay in [1, 10, 60, 64, 65, 128, 300] {
        let (manual, hand) = (Manual::new(mode), Hand::new());
        let mut sleep = manual.timer.sleep(ms(delay));
        assert_eq!(sleep.deadline(), Some(manual.at(delay)));
        assert!(hand.poll(&mut sleep).is_pending());
        manual.advance(delay - 1);
        assert_eq!((hand.woken(), hand.poll(&mut sleep)), (0, Poll::Pending));
        manual.advance(1);
        assert_eq!((hand.woken(), hand.poll(&mut sleep)), (1, Poll::Ready(Ok(()))));
        assert_eq!((manual.timer.pending(), hand.wakers()), (0, 0));
    }
}

fn what_has_passed_completes_at_once_and_registers_nothing(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    manual.advance(10);
    for deadline in [0, 5, 10] {
        let mut sleep = manual.timer.sleep_until(manual.at(deadline));
        assert_eq!(hand.poll(&mut sleep), Poll::Ready(Ok(())));
    }
    let mut sleep = manual.timer.sleep(ms(5));
    manual.advance(5);
    assert_eq!(hand.poll(&mut sleep), Poll::Ready(Ok(())));
    assert_eq!((manual.timer.pending(), hand.woken(), hand.wakers()), (0, 0, 0));
}

fn a_delay_of_zero_is_due_at_the_next_tick(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    // The clock stands at a tick.
    assert_eq!(hand.poll(&mut manual.timer.sleep(Duration::ZERO)), Poll::Ready(Ok(())));
    manual.clock.advance(Duration::from_micros(300));
    let mut sleep = manual.timer.sleep(Duration::ZERO);
    assert!(hand.poll(&mut sleep).is_pending());
    manual.clock.advance(Duration::from_micros(699));
    assert!(hand.poll(&mut sleep).is_pending());
    manual.clock.advance(Duration::from_micros(1));
    assert_eq!((hand.woken(), hand.poll(&mut sleep)), (1, Poll::Ready(Ok(()))));
}

fn parts_of_a_tick_round_up(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    let mut sleep = manual.timer.sleep(Duration::from_nanos(1_000_001));
    assert_eq!(completes_at(&manual, &hand, &mut sleep, 5), Some(2));
    // Steps of a part of a tick add up.
    let mut sleep = manual.timer.sleep(ms(1));
    for _ in 0..3 {
        assert!(hand.poll(&mut sleep).is_pending());
        manual.clock.advance(Duration::from_micros(250));
    }
    assert!(hand.poll(&mut sleep).is_pending());
    manual.clock.advance(Duration::from_micros(250));
    assert_eq!(hand.poll(&mut sleep), Poll::Ready(Ok(())));
}

fn from_any_tick_it_takes_as_long(mode: Mode) {
    for offset in [5, 63, 64, 100] {
        let (manual, hand) = (Manual::new(mode), Hand::new());
        manual.advance(offset);
        let mut sleep = manual.timer.sleep(ms(60));
        assert_eq!(completes_at(&manual, &hand, &mut sleep, 70), Some(60));
    }
}

fn is_elapsed_when_its_time_has_come(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    let (mut polled, unpolled) = (manual.timer.sleep(ms(10)), manual.timer.sleep(ms(10)));
    assert!(!polled.is_elapsed());
    assert!(hand.poll(&mut polled).is_pending());
    manual.advance(9);
    assert!(!polled.is_elapsed() && !unpolled.is_elapsed());
    manual.advance(1);
    assert!(polled.is_elapsed() && unpolled.is_elapsed());
    assert!(hand.poll(&mut polled).is_ready());
    assert!(polled.is_elapsed());
    polled.reset(ms(1));
    assert!(!polled.is_elapsed());
}

fn deregistered_it_wakes_nobody_and_waits_at_its_next_poll(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    let mut sleep = manual.timer.sleep(ms(10));
    for _ in 0..2 {
        assert!(hand.poll(&mut sleep).is_pending());
        sleep.deregister();
        assert_eq!((manual.timer.pending(), hand.wakers()), (0, 0));
    }
    manual.advance(10);
    assert_eq!((hand.woken(), hand.poll(&mut sleep)), (0, Poll::Ready(Ok(()))));
    sleep.deregister();
    assert_eq!(hand.poll(&mut sleep), Poll::Ready(Ok(())));
    sleep.reset(ms(10));
    assert!(hand.poll(&mut sleep).is_pending());
    manual.advance(10);
    assert_eq!((hand.woken(), hand.poll(&mut sleep)), (1, Poll::Ready(Ok(()))));
}

fn completed_it_stays_so_until_it_is_reset(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    let mut sleep = manual.timer.sleep(ms(1));
    assert!(hand.poll(&mut sleep).is_pending());
    manual.advance(1);
    for _ in 0..3 {
        assert_eq!(hand.poll(&mut sleep), Poll::Ready(Ok(())));
    }
    sleep.reset(ms(1));
    assert!(hand.poll(&mut sleep).is_pending());
}

/// Also if it is reset into the past again and again.
fn always_ready_it_gives_way_to_others(mode: Mode) {
    for is_reset in [false, true] {
        let (manual, hand) = (Manual::new(mode), Hand::new());
        let mut sleep = manual.timer.sleep_until(manual.at(0));
        let mut pending = 0;
        for _ in 0..330 {
            if hand.poll(&mut sleep).is_pending() {
                assert_eq!(hand.woken(), 1);
                pending += 1;
            }
            if is_reset {
                sleep.reset_at(manual.at(0));
            }
        }
        assert_eq!((pending, manual.timer.pending(), hand.wakers()), (10, 0, 0));
    }
}

fn never_polled_it_is_not_in_the_timer(mode: Mode) {
    let manual = Manual::new(mode);
    let mut sleep = manual.timer.sleep(ms(1));
    assert_eq!(manual.timer.pending(), 0);
    sleep.reset(ms(2));
    sleep.reset(ms(1));
    manual.advance(5);
    assert!(sleep.is_elapsed());
    drop(sleep);
    let stats = manual.timer.stats();
    assert_eq!((stats.fired, stats.cancelled, stats.wake_ups), (0, 0, 0));
}

/// Polls a sleep from `first` on, whenever it is woken, and moves it: at a time, by a delay from
/// then. Returns when it completed, and how often it was woken.
fn moved(mode: Mode, delay: u64, first: u64, moves: &[(u64, u64)]) -> (u64, usize) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    let mut sleep = manual.timer.sleep(ms(delay));
    let (mut moves, mut woken) = (moves.iter().peekable(), 0);
    loop {
        let wakes = hand.woken();
        woken += wakes;
        if (manual.now() == first || wakes > 0) && hand.poll(&mut sleep).is_ready() {
            assert_eq!((manual.timer.pending(), hand.wakers()), (0, 0));
            return (manual.now(), woken);
        }
        if let Some(&(_, delay)) = moves.next_if(|(at, _)| *at == manual.now()) {
            sleep.reset(ms(delay));
            assert_eq!(sleep.deadline(), Some(manual.at(manual.now() + delay)));
            assert!(manual.timer.pending() <= 1);
            manual.settle();
        } else {
            manual.advance(1);
        }
    }
}

/// It is woken once at a time from which it was moved to later, to be polled again.
fn moved_it_is_woken_in_time_and_not_early(mode: Mode) {
    assert_eq!(moved(mode, 100, 0, &[(50, 150)]), (200, 2), "later");
    assert_eq!(moved(mode, 10, 0, &[(0, 20)]), (20, 2), "later, and polled at the old time");
    assert_eq!(moved(mode, 20, 0, &[(0, 300), (0, 10)]), (10, 1), "later, and then earlier");
    assert_eq!(moved(mode, 300, 0, &[(10, 70)]), (80, 1), "earlier");
    assert_eq!(moved(mode, 100, 0, &[(50, 0)]), (50, 1), "to the present");
    assert_eq!(moved(mode, 10, 10, &[(9, 11)]), (20, 1), "before the first poll");
    let signs = long(20, 100);
    let signs_of_life: Vec<_> = (1..=signs).map(|sign| (sign * 10, 60)).collect();
    assert_eq!(moved(mode, 60, 0, &signs_of_life).0, signs * 10 + 60, "again and again");
}

fn rescheduled_it_is_not_woken_at_the_old_time(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    let mut sleep = manual.timer.sleep(ms(20));
    assert!(hand.poll(&mut sleep).is_pending());
    for at in [20, 300, 80] {
        sleep.reschedule_at(manual.at(at));
        assert_eq!(manual.timer.pending(), 1);
    }
    manual.advance(79);
    assert_eq!(hand.woken(), 0);
    manual.advance(1);
    assert_eq!((hand.woken(), hand.poll(&mut sleep)), (1, Poll::Ready(Ok(()))));
}

fn moved_after_it_was_due_and_before_it_was_polled_it_waits_anew(mode: Mode) {
    for later in [15, 30, 200] {
        let (manual, hand) = (Manual::new(mode), Hand::new());
        let mut sleep = manual.timer.sleep(ms(20));
        assert!(hand.poll(&mut sleep).is_pending());
        manual.advance(20);
        assert_eq!(hand.woken(), 1);
        sleep.reset(ms(later));
        assert_eq!(completes_at(&manual, &hand, &mut sleep, 300), Some(later));
        assert_eq!(hand.woken(), 1);
    }
}

fn moved_after_it_completed_it_completes_again(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    let mut sleep = manual.timer.sleep(ms(100));
    assert_eq!(completes_at(&manual, &hand, &mut sleep, 100), Some(100));
    for delay in [110, 1, 64] {
        sleep.reset(ms(delay));
        assert_eq!(completes_at(&manual, &hand, &mut sleep, 200), Some(delay));
    }
    sleep.reset_at(manual.at(0));
    assert_eq!(hand.poll(&mut sleep), Poll::Ready(Ok(())));
}

fn years_away_it_is_exact(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    for years in [1, 1, 1, 1, 1, 10, 5] {
        let mut sleep = manual.timer.sleep(ms(years * YEAR));
        assert!(hand.poll(&mut sleep).is_pending());
        manual.clock.jump(ms(years * YEAR - 1));
        assert!(hand.poll(&mut sleep).is_pending());
        manual.advance(1);
        assert_eq!(hand.poll(&mut sleep), Poll::Ready(Ok(())));
    }
}

fn what_no_instant_can_hold_does_not_complete(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    let longest = [Duration::MAX, Duration::from_millis(u64::MAX), Duration::from_secs(1 << 62)];
    for delay in longest {
        let mut sleep = manual.timer.sleep(delay);
        assert!(hand.poll(&mut sleep).is_pending());
        manual.clock.jump(ms(100 * YEAR));
        assert!(hand.poll(&mut sleep).is_pending() && !sleep.is_elapsed());
        sleep.reset(Duration::MAX);
        assert_eq!(sleep.deadline(), None);
        sleep.reset(ms(1));
        manual.advance(1);
        assert_eq!(hand.poll(&mut sleep), Poll::Ready(Ok(())));
    }
}

fn far_ones_do_not_disturb_near_ones(mode: Mode) {
    let (manual, hand, far_hand) = (Manual::new(mode), Hand::new(), Hand::new());
    let mut far: Vec<_> = [Duration::from_secs(u64::MAX / 10), ms((1 << 36) - 1), ms(YEAR)]
        .map(|delay| manual.timer.sleep(delay))
        .into();
    assert!(far.iter_mut().all(|sleep| far_hand.poll(sleep).is_pending()));
    let mut near = manual.timer.sleep(Duration::from_nanos(1));
    assert_eq!(completes_at(&manual, &hand, &mut near, 5), Some(1));
    assert!(far.iter_mut().all(|sleep| far_hand.poll(sleep).is_pending()));
    assert_eq!(far_hand.woken(), 0);
}

fn after_a_jump_it_completes_once(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    let mut sleep = manual.timer.sleep(ms(5));
    assert!(hand.poll(&mut sleep).is_pending());
    manual.jump(1_000_000);
    assert_eq!((hand.woken(), hand.poll(&mut sleep)), (1, Poll::Ready(Ok(()))));
}

/// Also when it came to its old time, and waits for its new one.
fn dropped_after_it_was_moved_it_leaves_nothing_behind(mode: Mode) {
    for (delay, passes) in [(5, 0), (300, 0), (300, 60)] {
        let (manual, hand) = (Manual::new(mode), Hand::new());
        let mut sleep = manual.timer.sleep(ms(100));
        assert!(hand.poll(&mut sleep).is_pending());
        manual.advance(50);
        sleep.reset(ms(delay));
        manual.advance(passes);
        assert!(hand.woken() == 0 || hand.poll(&mut sleep).is_pending());
        drop(sleep);
        assert_eq!((manual.timer.pending(), hand.wakers()), (0, 0));
        manual.advance(400);
        assert_eq!(hand.woken(), 0);
    }
}

fn dropped_when_it_was_due_it_is_fine(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    let mut sleeps = [1, 1, 2].map(|delay| manual.timer.sleep(ms(delay)));
    assert!(sleeps.iter_mut().all(|sleep| hand.poll(sleep).is_pending()));
    manual.advance(1);
    assert_eq!((hand.woken(), manual.timer.pending()), (2, 1));
    // Their keys are stale, and one of their places is taken.
    let mut other = manual.timer.sleep(ms(5));
    assert!(hand.poll(&mut other).is_pending());
    drop(sleeps);
    assert_eq!(manual.timer.pending(), 1);
    manual.advance(5);
    assert_eq!((hand.woken(), hand.poll(&mut other)), (1, Poll::Ready(Ok(()))));
}

/// A waker that runs something, once.
struct Runs(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl Wake for Runs {
    fn wake(self: Arc<Self>) {
        let run = self.0.lock().unwrap().take();
        if let Some(run) = run {
            run();
        }
    }
}

fn waker_that_runs(run: impl FnOnce() + Send + 'static) -> Waker {
    Waker::from(Arc::new(Runs(Mutex::new(Some(Box::new(run))))))
}

fn dropped_by_a_waker_others_are_not_woken(mode: Mode) {
    assert_eq!(woken_of_those_that_a_waker_drops(&Manual::new(mode)), 0);
}

fn woken_together_those_that_a_waker_drops_are_woken_in_vain(mode: Mode) {
    let manual = Manual::built(mode, TimerBuilder::wakes_together);
    assert_eq!(woken_of_those_that_a_waker_drops(&manual), 5);
}

fn woken_together_they_keep_their_order_among_tasks(mode: Mode) {
    let manual = Manual::built(mode, TimerBuilder::wakes_together);
    let mut sleeps = Vec::new();
    for number in 0..100 {
        let delay = 5 + u64::from(number) / 7;
        if number % 5 == 3 {
            manual.once(delay, number);
            continue;
        }
        let (mut sleep, waker) = (manual.timer.sleep(ms(delay)), manual.log.task(number));
        let waker = waker_that_runs(waker);
        assert!(Pin::new(&mut sleep).poll(&mut Context::from_waker(&waker)).is_pending());
        sleeps.push(sleep);
    }
    let order: Vec<_> = manual.advance(30).into_iter().map(|(_, number)| number).collect();
    assert_eq!(order, Vec::from_iter(0..100));
}

/// On the worker the clock only moves, as if the first waker took so long.
fn woken_together_they_make_what_follows_late(mode: Mode) {
    let manual = Manual::built(mode, |builder| builder.wakes_together().shards(1));
    let clock = manual.clock.clone();
    let slow = waker_that_runs(move || clock.advance(ms(10)));
    let mut sleeps = [slow, Waker::noop().clone()].map(|waker| {
        let mut sleep = manual.timer.sleep(ms(5));
        assert!(Pin::new(&mut sleep).poll(&mut Context::from_waker(&waker)).is_pending());
        sleep
    });
    manual.once(5, 1);
    assert_eq!(manual.advance(5), [(15, 1)]);
    let stats = manual.timer.stats();
    assert_eq!((stats.fired, stats.lateness.count()), (3, 3));
    // The second waker goes by the reading before the first.
    assert_eq!((stats.lateness.sum(), stats.longest_task), (ms(10), ms(10)));
    assert!(sleeps.iter_mut().all(|sleep| sleep.is_elapsed()));
}

/// Of ten that are due together with one whose waker drops them.
fn woken_of_those_that_a_waker_drops(manual: &Manual) -> usize {
    let hand = Hand::new();
    let mut others: Vec<_> = (0..10).map(|at| manual.timer.sleep(ms(5 + at / 5))).collect();
    let mut sleep = manual.timer.sleep(ms(5));
    // First, that its waker is woken first.
    let others = {
        let slot = Arc::new(Mutex::new(Vec::new()));
        let drops = Arc::clone(&slot);
        let waker = waker_that_runs(move || drop(std::mem::take(&mut *drops.lock().unwrap())));
        assert!(Pin::new(&mut sleep).poll(&mut Context::from_waker(&waker)).is_pending());
        assert!(others.iter_mut().all(|other| hand.poll(other).is_pending()));
        *slot.lock().unwrap() = others;
        slot
    };
    manual.advance(30);
    assert!(others.lock().unwrap().is_empty());
    assert_eq!((hand.wakers(), manual.timer.pending()), (0, 0));
    hand.woken()
}

/// A waker that calls the timer when it is woken, and when it is dropped.
struct Calls(Timer);

impl Wake for Calls {
    fn wake(self: Arc<Self>) {
        assert_eq!(self.0.pending(), 0);
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        let _ = self.0.stats();
        let _ = Hand::new().poll(&mut self.0.sleep(ms(1)));
    }
}

/// Hangs if a lock is held.
fn wakers_may_call_the_timer(mode: Mode) {
    let manual = Manual::built(mode, |builder| builder.shards(1));
    let calls = || Waker::from(Arc::new(Calls(manual.timer.clone())));
    let poll = |sleep: &mut Sleep, waker: Waker| {
        Pin::new(sleep).poll(&mut Context::from_waker(&waker)).is_pending()
    };
    let mut sleep = manual.timer.sleep(ms(5));
    assert!(poll(&mut sleep, calls())); // woken
    manual.advance(5);
    sleep.reset(ms(5));
    assert!(poll(&mut sleep, calls())); // replaced
    assert!(poll(&mut sleep, calls())); // dropped
    drop(sleep);
    let mut sleep = manual.timer.sleep(ms(5));
    assert!(poll(&mut sleep, calls())); // stopped
    assert!(manual.timer.stop().expect("outside").is_empty());
    assert!(!poll(&mut manual.timer.sleep(ms(5)), calls())); // refused
}

fn many_in_one_tick_are_all_woken(mode: Mode) {
    let manual = Manual::new(mode);
    let hands: Vec<_> = (0..1_000).map(|_| Hand::new()).collect();
    let mut sleeps: Vec<_> = hands.iter().map(|_| manual.timer.sleep(ms(7))).collect();
    let polled = |sleeps: &mut [Sleep]| {
        let polls = hands.iter().zip(sleeps).map(|(hand, sleep)| hand.poll(sleep));
        polls.filter(Poll::is_ready).count()
    };
    assert_eq!(polled(&mut sleeps), 0);
    manual.advance(6);
    assert_eq!(polled(&mut sleeps), 0);
    manual.advance(1);
    assert!(hands.iter().all(|hand| hand.woken() == 1));
    assert_eq!(polled(&mut sleeps), 1_000);
}

fn with_a_limit_one_too_many_says_so(mode: Mode) {
    let (manual, hand) = (Manual::built(mode, |builder| builder.max_pending(1)), Hand::new());
    let (mut first, mut second) = (manual.timer.sleep(ms(5)), manual.timer.sleep(ms(5)));
    assert!(hand.poll(&mut first).is_pending());
    assert_eq!(hand.poll(&mut second), Poll::Ready(Err(ScheduleErrorKind::Full)));
    drop(first);
    assert_eq!(hand.poll(&mut second), Poll::Ready(Err(ScheduleErrorKind::Full)));
    second.reset(ms(5));
    assert!(hand.poll(&mut second).is_pending());
    // What is due already takes no place.
    assert_eq!(hand.poll(&mut manual.timer.sleep_until(manual.at(0))), Poll::Ready(Ok(())));
    manual.advance(5);
    assert_eq!(hand.poll(&mut second), Poll::Ready(Ok(())));
    assert!(hand.poll(&mut manual.timer.sleep(ms(5))).is_pending());
    assert!(hand.poll(&mut manual.timer.sleep(ms(5))).is_pending());
}

fn with_a_limit_what_was_moved_keeps_its_place(mode: Mode) {
    let (manual, hand) = (Manual::built(mode, |builder| builder.max_pending(1)), Hand::new());
    let (mut sleep, mut other) = (manual.timer.sleep(ms(5)), manual.timer.sleep(ms(9)));
    assert!(hand.poll(&mut sleep).is_pending());
    sleep.reset(ms(10));
    manual.advance(5);
    assert_eq!((hand.woken(), manual.timer.pending()), (0, 1));
    assert_eq!(hand.poll(&mut other), Poll::Ready(Err(ScheduleErrorKind::Full)));
    manual.advance(5);
    assert_eq!((hand.woken(), hand.poll(&mut sleep)), (1, Poll::Ready(Ok(()))));
}

/// On the system's clock, which no test moves.
#[test]
fn a_thousand_short_ones_make_progress() {
    let timer = Timer::builder().tick(Duration::from_micros(10)).build().expect("in range");
    futures::executor::block_on(async {
        for _ in 0..1_000 {
            timer.sleep(Duration::ZERO).await.expect("it runs");
        }
    });
}

#[test]
fn moved_to_the_tick_at_which_it_is_it_is_not_moved() {
    let (manual, hand) = (Manual::with(|it| it.max_pending(1)), Hand::new());
    let mut sleep = manual.timer.sleep(ms(5));
    assert!(hand.poll(&mut sleep).is_pending());
    sleep.reset(ms(5));
    sleep.reschedule_at(manual.at(5));
    assert_eq!(manual.timer.stats().rescheduled, 0);
    sleep.reset(ms(6));
    assert_eq!(manual.timer.stats().rescheduled, 1);
}

#[test]
fn what_remembers_a_timer_makes_sleeps_until_that_is_stopped() {
    let (manual, hand) = (Manual::new(Mode::default()), Hand::new());
    let known = manual.timer.sleeps().downgrade();
    let sleeps = known.upgrade().expect("it runs");
    let mut sleep = sleeps.sleep_until(manual.at(5));
    assert!(hand.poll(&mut sleep).is_pending());
    manual.timer.stop().expect("outside");
    // The sleep keeps a part of it.
    assert!(known.upgrade().is_none());
    assert_eq!(hand.poll(&mut sleep), Poll::Ready(Err(ScheduleErrorKind::Stopped)));
}

const YEAR: u64 = 365 * 86_400_000;
