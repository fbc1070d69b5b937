//! What futures allocate, counted: nothing but the timer's own room.

use crate::help::{Hand, Manual, ms};
use allocation_counter::measure;
use std::future::pending;
use std::pin::pin;
use tickwheel::{DelayQueue, Mode};

in_each_mode! {
    a_sleep_allocates_nothing,
    a_timeout_and_an_interval_allocate_nothing,
    a_crowd_costs_the_wheel_alone,
    a_queue_allocates_its_wheel_alone,
}

fn allocations(run: impl FnOnce()) -> u64 {
    measure(run).count_total
}

fn a_sleep_allocates_nothing(mode: Mode) {
    let (manual, hand, other) = (Manual::new(mode), Hand::new(), Hand::new());
    // It keeps the timer's arrays.
    let mut kept = manual.timer.sleep(ms(50));
    assert!(hand.poll(&mut kept).is_pending());
    let round = || {
        let mut sleep = manual.timer.sleep(ms(50));
        assert!(hand.poll(&mut sleep).is_pending());
        assert!(hand.poll(&mut sleep).is_pending());
        assert!(other.poll(&mut sleep).is_pending());
        sleep.reset(ms(100));
        sleep.reset(ms(20));
        assert!(other.poll(&mut sleep).is_pending());
    };
    // The first ones make the arrays.
    (0..1_000).for_each(|_| round());
    assert_eq!(allocations(|| (0..100).for_each(|_| round())), 0);
}

fn a_timeout_and_an_interval_allocate_nothing(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    let mut kept = manual.timer.sleep(ms(50));
    assert!(hand.poll(&mut kept).is_pending());
    let mut interval = manual.timer.interval_at(manual.at(10), ms(10));
    let mut round = || {
        let mut timed = pin!(manual.timer.timeout(ms(50), pending::<()>()));
        assert!(hand.poll(&mut timed).is_pending());
        assert!(hand.poll_once(interval.tick()).is_pending());
        interval.reset();
    };
    (0..1_000).for_each(|_| round());
    assert_eq!(allocations(|| (0..100).for_each(|_| round())), 0);
}

/// 48 bytes for the future itself, and in the timer a slot of 32, a deadline of 8, an entry of 8, and
/// what arrays have to spare.
fn a_crowd_costs_the_wheel_alone(mode: Mode) {
    if mode.buckets() == 1 {
        // It scans its only bucket too often.
        return;
    }
    let (manual, hand) = (Manual::built(mode, |builder| builder.shards(1)), Hand::new());
    let number = 100_000;
    let mut sleeps: Vec<_> =
        (0..number).map(|delay| manual.timer.sleep(ms(1 + delay % 10_000))).collect();
    let polled = measure(|| assert!(sleeps.iter_mut().all(|sleep| hand.poll(sleep).is_pending())));
    let each = polled.bytes_current as u64 / number;
    assert!(each <= 110, "{each} bytes");
    let dropped = measure(|| drop(sleeps));
    assert_eq!(manual.timer.pending(), 0);
    assert!(-dropped.bytes_current > 48 * number as i64);
}

fn a_queue_allocates_its_wheel_alone(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    let mut queue = DelayQueue::with_timer(&manual.timer);
    let mut number = 0;
    queue.insert(number, ms(1_000_000));
    let mut round = || {
        number += 1;
        let key = queue.insert(number, ms(50));
        assert!(queue.poll_expired(&mut hand.context()).is_pending());
        assert!(queue.reset(key, ms(60)));
        assert!(queue.reset(key, ms(10)));
        assert!(queue.poll_expired(&mut hand.context()).is_pending());
        assert_eq!(queue.remove(key), Some(number));
    };
    (0..1_000).for_each(|_| round());
    assert_eq!(allocations(|| (0..100).for_each(|_| round())), 0);
}
