//! What becomes of futures when their timer is stopped or dropped, and the timer of the process.

use crate::common::long;
use crate::help::{Hand, Manual, ms, wait_until};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};
use tickwheel::{Mode, ScheduleErrorKind, Sleep, Timer};

in_each_mode! {
    stopping_wakes_what_waits_and_it_says_so,
    dropping_the_timer_wakes_what_waits_and_it_says_so,
    after_stop_the_first_poll_says_so,
    what_was_due_before_stop_completes,
    what_was_moved_later_says_that_it_was_stopped,
    reset_after_stop_it_says_so_again,
    stopping_races_with_polling,
    a_stopped_timer_gives_no_wakers_back,
}

fn stopping_wakes_what_waits_and_it_says_so(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    let delays = [ms(1), ms(300), ms(1_000_000), Duration::MAX];
    let mut sleeps = delays.map(|delay| manual.timer.sleep(delay));
    assert!(sleeps.iter_mut().all(|sleep| hand.poll(sleep).is_pending()));
    assert!(manual.timer.stop().expect("outside").is_empty());
    assert_eq!((hand.woken(), hand.wakers(), manual.timer.pending()), (4, 0, 0));
    for _ in 0..2 {
        assert!(sleeps.iter_mut().all(|sleep| hand.poll(sleep) == STOPPED));
    }
}

fn dropping_the_timer_wakes_what_waits_and_it_says_so(mode: Mode) {
    let (Manual { timer, clock, .. }, hand) = (Manual::new(mode), Hand::new());
    let (mut sleep, mut unpolled) = (timer.sleep(ms(1)), timer.sleep(ms(1)));
    assert!(hand.poll(&mut sleep).is_pending());
    drop(timer);
    assert_eq!(
        (hand.woken(), hand.poll(&mut sleep), hand.poll(&mut unpolled)),
        (1, STOPPED, STOPPED)
    );
    // It outlives the timer, and can be asked.
    clock.advance(ms(5));
    assert!(sleep.is_elapsed() && sleep.deadline().is_some());
    sleep.reset(ms(5));
    assert_eq!(hand.poll(&mut sleep), STOPPED);
}

fn after_stop_the_first_poll_says_so(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    let mut before = manual.timer.sleep(ms(5));
    assert!(manual.timer.stop().expect("outside").is_empty());
    let mut after = manual.timer.sleep(ms(5));
    assert_eq!((hand.poll(&mut before), hand.poll(&mut after)), (STOPPED, STOPPED));
    let mut past = manual.timer.sleep_until(manual.at(0));
    assert_eq!(hand.poll(&mut past), Poll::Ready(Ok(())));
}

fn what_was_due_before_stop_completes(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    let (mut due, mut waits) = (manual.timer.sleep(ms(5)), manual.timer.sleep(ms(6)));
    assert!(hand.poll(&mut due).is_pending() && hand.poll(&mut waits).is_pending());
    manual.advance(5);
    assert!(manual.timer.stop().expect("outside").is_empty());
    assert_eq!(hand.poll(&mut due), Poll::Ready(Ok(())));
    assert_eq!(hand.poll(&mut waits), STOPPED);
}

fn what_was_moved_later_says_that_it_was_stopped(mode: Mode) {
    for passed in [1, 7] {
        let (manual, hand) = (Manual::new(mode), Hand::new());
        let mut sleep = manual.timer.sleep(ms(5));
        assert!(hand.poll(&mut sleep).is_pending());
        sleep.reset(ms(10));
        manual.advance(passed);
        assert!(manual.timer.stop().expect("outside").is_empty());
        assert_eq!((hand.woken(), hand.poll(&mut sleep)), (1, STOPPED));
    }
}

fn reset_after_stop_it_says_so_again(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    let mut sleep = manual.timer.sleep(ms(50));
    assert!(hand.poll(&mut sleep).is_pending());
    assert!(manual.timer.stop().expect("outside").is_empty());
    for delay in [100, 10] {
        sleep.reset(ms(delay));
        assert_eq!(hand.poll(&mut sleep), STOPPED);
    }
    assert_eq!(hand.woken(), 1);
}

fn stopping_races_with_polling(mode: Mode) {
    for _ in 0..long(5, 20) {
        let timer = Timer::builder().mode(mode).build().expect("in range");
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let timer = timer.clone();
                thread::spawn(move || {
                    let mut sleeps = (0..).map(|number| timer.sleep(ms(number % 3)));
                    let error = sleeps.find_map(|sleep| futures::executor::block_on(sleep).err());
                    assert_eq!(error, Some(ScheduleErrorKind::Stopped));
                })
            })
            .collect();
        thread::sleep(ms(5));
        assert!(timer.stop().expect("outside").is_empty());
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(timer.pending(), 0);
    }
}

fn a_stopped_timer_gives_no_wakers_back(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    let mut sleep = manual.timer.sleep(ms(5));
    assert!(hand.poll(&mut sleep).is_pending());
    manual.timer.schedule(ms(5), || {}).expect("it runs");
    // Only tasks come back.
    assert_eq!(manual.timer.stop().expect("outside").len(), 1);
}

#[test]
fn the_timer_of_the_process_is_one() {
    assert!(std::ptr::eq(tickwheel::timer(), tickwheel::timer()));
    drop(tickwheel::timer().clone());
    assert!(!tickwheel::timer().is_stopped());
    let start = Instant::now();
    futures::executor::block_on(async {
        tickwheel::sleep(ms(5)).await.expect("it runs");
        tickwheel::sleep_until(start + ms(10)).await.expect("it runs");
        let mut interval = tickwheel::interval(ms(1));
        interval.tick().await.expect("it runs");
        tickwheel::interval_at(start, ms(5)).tick().await.expect("it runs");
        assert!(tickwheel::timeout(ms(1), std::future::pending::<()>()).await.is_err());
        assert!(tickwheel::timeout_at(start, std::future::pending::<()>()).await.is_err());
    });
    assert!(start.elapsed() >= ms(11));
}

#[test]
fn a_task_that_is_dropped_while_it_waits_leaves_nothing() {
    let timer = Timer::new();
    let other = timer.clone();
    let hand = Hand::new();
    let mut waits = Box::pin(async move {
        let _ = other.timeout(ms(3_600_000), other.sleep(ms(3_600_000))).await;
    });
    assert!(hand.poll(&mut waits).is_pending());
    assert_eq!(timer.pending(), 2);
    drop(waits);
    assert_eq!(timer.pending(), 0);
}

#[test]
fn a_sleep_can_be_polled_and_dropped_on_any_thread() {
    let timer = Timer::new();
    let mut sleeps: Vec<Sleep> = (0..100).map(|delay| timer.sleep(ms(delay))).collect();
    let hand = Hand::new();
    assert!(
        sleeps.iter_mut().skip(50).all(|sleep| hand.poll(sleep).is_pending() || sleep.is_elapsed())
    );
    thread::spawn(move || {
        for sleep in sleeps.into_iter().step_by(2) {
            futures::executor::block_on(sleep).expect("it runs");
        }
    })
    .join()
    .unwrap();
    wait_until(|| timer.pending() == 0 && hand.wakers() == 0);
}

const STOPPED: Poll<Result<(), ScheduleErrorKind>> = Poll::Ready(Err(ScheduleErrorKind::Stopped));
