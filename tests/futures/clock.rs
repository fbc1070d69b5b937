//! Futures on clocks of their own.

use crate::common::long;
use crate::help::{Hand, Manual, ms};
use std::task::Poll;
use tickwheel::{ManualClock, Mode, Timer};

in_each_mode! {
    every_run_is_like_the_other,
    reset_elsewhere_it_goes_by_its_own_timer,
}

fn every_run_is_like_the_other(mode: Mode) {
    let trace = || {
        let manual = Manual::new(mode);
        let hands: Vec<_> = (0..50).map(|_| Hand::new()).collect();
        let mut sleeps: Vec<_> =
            (0..50).map(|number| manual.timer.sleep(ms(number * 7_919 % 100))).collect();
        let mut trace = Vec::new();
        for millis in 0..long(300, 2_000) {
            for (number, (hand, sleep)) in hands.iter().zip(&mut sleeps).enumerate() {
                let woken = hand.woken();
                if (millis == 0 || woken > 0) && hand.poll(sleep).is_ready() {
                    trace.push((millis, number, woken));
                    sleep.reset(ms((number as u64 + millis) * 104_729 % 100));
                    while hand.poll(sleep).is_ready() {
                        sleep.reset(ms(1));
                    }
                }
            }
            manual.advance(1);
        }
        trace
    };
    let first = trace();
    assert!(first.len() > 100);
    assert_eq!(first, trace());
}

fn reset_elsewhere_it_goes_by_its_own_timer(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    manual.advance(1_000);
    let mut sleep = manual.timer.sleep(ms(100));
    assert!(hand.poll(&mut sleep).is_pending());
    let other = ManualClock::new();
    let timer = Timer::builder().clock(other.clone()).build().expect("in range");
    let task_of_another = {
        let mut inside = timer.sleep(ms(1));
        assert!(hand.poll(&mut inside).is_pending());
        sleep.reset(ms(50));
        inside
    };
    other.advance(ms(500));
    assert_eq!((hand.woken(), hand.poll(&mut sleep)), (1, Poll::Pending));
    drop(task_of_another);
    manual.advance(50);
    assert_eq!((hand.woken(), hand.poll(&mut sleep)), (1, Poll::Ready(Ok(()))));
}
