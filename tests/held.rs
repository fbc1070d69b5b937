//! No lock is held for more than a bounded number of steps, whatever waits or has waited.
//!
//! Alone in its file, because the steps under a lock are those of the whole process.

use std::task::{Context, Waker};
use std::time::Duration;
use tickwheel::{
    DelayReceiver, ManualClock, Mode, Timeout, Timer, delay_channel, most_steps_under_a_lock,
};

const MANY: u64 = 20_000;
/// A bucket of 8192 is sorted, and a few more steps.
const MOST: u64 = 12_000;

fn delay(number: u64) -> Duration {
    Duration::from_millis(60_000 + number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 50_000)
}

fn timers() -> impl Iterator<Item = (Timer, ManualClock)> {
    let modes = ["hierarchical:64", "hierarchical:4096", "hashed:1", "hashed:512", "hashed:65536"];
    modes.into_iter().map(|mode| {
        let clock = ManualClock::new();
        let mode = mode.parse::<Mode>().expect("a mode");
        let timer = Timer::builder().mode(mode).shards(1).clock(clock.clone()).build();
        (timer.expect("in range"), clock)
    })
}

fn crowd(timer: &Timer) -> Vec<Timeout> {
    (0..MANY).map(|number| timer.schedule(delay(number), || {}).expect("it runs")).collect()
}

/// Takes out the next value, unless the receiver gives way.
fn receive(receiver: &mut DelayReceiver<u64>) {
    _ = receiver.poll_expired(&mut Context::from_waker(Waker::noop()));
}

/// Panics if a lock was held for more steps than that.
fn assert_bounded(what: &str) {
    let steps = most_steps_under_a_lock();
    assert!(steps <= MOST, "{what}: {steps} steps under a lock");
}

#[test]
fn no_lock_is_held_for_what_waits_or_has_waited() {
    for (timer, clock) in timers() {
        let timeouts = crowd(&timer);
        assert_bounded("schedule");
        for timeout in timeouts.iter().take(10) {
            assert!(timer.next_deadline().is_some());
            timeout.reschedule(delay(7));
        }
        assert_bounded("next_deadline");
        assert!(timeouts.iter().rev().all(Timeout::cancel));
        assert_bounded("cancel");
        drop(crowd(&timer));
        clock.jump(Duration::from_secs(600));
        assert_eq!(timer.pending(), 0);
        assert_bounded("fire");
        drop(crowd(&timer));
        assert_eq!(timer.stop().expect("outside").len() as u64, MANY);
        assert_bounded("stop");
    }
}

#[test]
fn a_channel_is_locked_for_no_more() {
    for (timer, clock) in timers() {
        let (sender, mut receiver) = delay_channel(&timer);
        let fill = || -> Vec<_> {
            (0..MANY).map(|number| sender.insert(number, delay(number)).expect("it runs")).collect()
        };
        let keys = fill();
        assert!(keys.into_iter().all(|key| sender.remove(key).is_some()));
        assert_bounded("remove");
        fill();
        clock.jump(Duration::from_secs(600));
        while !receiver.is_empty() {
            receive(&mut receiver);
        }
        assert_bounded("receive");
        fill();
        drop(receiver);
        assert_bounded("drop");
    }
}
