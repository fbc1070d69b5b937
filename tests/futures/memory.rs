//! What futures allocate, counted: nothing but the timer's own room, whose arrays grow and shrink
//! now and then, as the entries of what was cancelled are cleared away many at a time.

use crate::common::long;
use crate::help::{Hand, Manual, ms};
use allocation_counter::measure;
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use tickwheel::{DelayMap, DelayQueue, Mode, Sleep, delay_channel};

in_each_mode! {
    a_sleep_allocates_nothing,
    a_timeout_and_an_interval_allocate_nothing,
    a_crowd_costs_the_wheel_alone,
    a_queue_allocates_its_wheel_alone,
    dropped_it_drops_what_it_holds,
    a_channel_that_is_emptied_gives_back_its_memory,
    a_channel_that_is_emptied_again_and_again_allocates_hardly_anything,
}

/// Sleeps that keep the timer's arrays.
fn kept(manual: &Manual, hand: &Hand) -> Vec<Sleep> {
    let mut kept: Vec<_> = (0..1_000).map(|_| manual.timer.sleep(ms(50))).collect();
    assert!(kept.iter_mut().all(|sleep| hand.poll(sleep).is_pending()));
    kept
}

/// Fewer than one allocation in twenty rounds.
fn assert_allocates_hardly_anything(mut round: impl FnMut()) {
    let mut rounds = || (0..4_000).for_each(|_| round());
    // The first ones make the arrays.
    rounds();
    let allocations = measure(rounds).count_total;
    assert!(allocations < 200, "{allocations} allocations");
}

fn a_sleep_allocates_nothing(mode: Mode) {
    let (manual, hand, other) = (Manual::new(mode), Hand::new(), Hand::new());
    let _kept = kept(&manual, &hand);
    assert_allocates_hardly_anything(|| {
        let mut sleep = manual.timer.sleep(ms(50));
        assert!(hand.poll(&mut sleep).is_pending());
        assert!(hand.poll(&mut sleep).is_pending());
        assert!(other.poll(&mut sleep).is_pending());
        sleep.reset(ms(100));
        sleep.reset(ms(20));
        assert!(other.poll(&mut sleep).is_pending());
    });
}

fn a_timeout_and_an_interval_allocate_nothing(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    let _kept = kept(&manual, &hand);
    let mut interval = manual.timer.interval_at(manual.at(10), ms(10));
    assert_allocates_hardly_anything(|| {
        let mut timed = pin!(manual.timer.timeout(ms(50), pending::<()>()));
        assert!(hand.poll(&mut timed).is_pending());
        assert!(hand.poll_once(interval.tick()).is_pending());
        interval.reset();
    });
}

/// 48 bytes for the future itself, and in the timer a slot of 32, a deadline of 8, an entry of 12,
/// and what arrays have to spare.
fn a_crowd_costs_the_wheel_alone(mode: Mode) {
    if mode.buckets() == 1 {
        // It scans its only bucket too often.
        return;
    }
    let (manual, hand) = (Manual::built(mode, |builder| builder.shards(1)), Hand::new());
    let number = long(20_000, 100_000);
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
    let _kept = kept(&manual, &hand);
    let mut number = 0;
    for _ in 0..1_000 {
        queue.insert(number, ms(1_000_000));
    }
    assert_allocates_hardly_anything(|| {
        number += 1;
        let key = queue.insert(number, ms(50));
        assert!(queue.poll_expired(&mut hand.context()).is_pending());
        assert!(queue.reset(key, ms(60)));
        assert!(queue.reset(key, ms(10)));
        assert!(queue.poll_expired(&mut hand.context()).is_pending());
        assert_eq!(queue.remove(key), Some(number));
    });
}

fn dropped_it_drops_what_it_holds(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    let mut queue = DelayQueue::with_timer(&manual.timer);
    let mut map = DelayMap::with_timer(&manual.timer);
    let (sender, mut receiver) = delay_channel(&manual.timer);
    let value = Arc::new(7);
    for number in 1..=10 {
        let delay = ms(number);
        queue.insert(Arc::clone(&value), delay);
        map.insert((number, Arc::clone(&value)), Arc::clone(&value), delay);
        sender.insert(Arc::clone(&value), delay).expect("it is open");
    }
    let mut context = hand.context();
    assert!(queue.poll_expired(&mut context).is_pending());
    assert!(map.poll_expired(&mut context).is_pending());
    assert!(receiver.poll_expired(&mut context).is_pending());
    assert_eq!((manual.timer.pending(), Arc::strong_count(&value)), (3, 41));
    drop((queue, map, receiver));
    assert_eq!((manual.timer.pending(), Arc::strong_count(&value), hand.wakers()), (0, 1, 0));
    assert!(sender.is_closed());
}

/// By its senders, or by the receiver.
fn a_channel_that_is_emptied_gives_back_its_memory(mode: Mode) {
    for is_removed in [true, false] {
        let manual = Manual::new(mode);
        let (sender, mut receiver) = delay_channel(&manual.timer);
        let info = measure(|| {
            let insert =
                |value: u64| sender.insert(value, ms(1 + value % 100)).expect("it is open");
            let keys: Vec<_> = (0..5_000).map(insert).collect();
            if is_removed {
                assert!(keys.into_iter().all(|key| sender.remove(key).is_some()));
            } else {
                manual.jump(100);
                assert_eq!(receiver.recv_batch(&mut Vec::new(), 10_000), Ok(5_000));
            }
        });
        assert!(200_000 < info.bytes_max);
        assert_eq!(info.bytes_current, 0);
    }
}

fn a_channel_that_is_emptied_again_and_again_allocates_hardly_anything(mode: Mode) {
    let manual = Manual::new(mode);
    let (sender, _receiver) = delay_channel(&manual.timer);
    assert_allocates_hardly_anything(|| {
        let key = sender.insert(1, ms(10)).expect("it is open");
        assert_eq!(sender.remove(key), Some(1));
    });
}
