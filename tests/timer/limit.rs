//! The limit of pending timeouts.

use crate::help::{Count, CountsDrop, Manual, ms};
use std::error::Error;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use tickwheel::{MissedTick, Mode, ScheduleErrorKind, Timer};

in_each_mode! {
    one_too_many_comes_back,
    cancelling_makes_room_at_once,
    firing_makes_room,
    a_repeating_one_keeps_its_place_until_it_ends,
    stopping_says_stopped_not_full,
}

fn limited(mode: Mode, most: usize) -> Manual {
    Manual::built(mode, |builder| builder.max_pending(most))
}

fn one_too_many_comes_back(mode: Mode) {
    let manual = limited(mode, 8);
    for _ in 0..8 {
        manual.timer.schedule(ms(5), || {}).expect("there is room");
    }
    let ran = Count::default();
    let dropped = Count::default();
    let (count, captured) = (ran.clone(), CountsDrop(dropped.clone()));
    let task = move || {
        let _captured = captured;
        count.add();
    };
    let error = manual.timer.schedule(ms(5), task).expect_err("full");
    assert_eq!(error.kind(), ScheduleErrorKind::Full);
    assert_eq!((manual.timer.pending(), dropped.get()), (8, 0));
    error.into_task()();
    assert_eq!((ran.get(), dropped.get()), (1, 1));

    let now = manual.at(0);
    assert!(manual.timer.schedule_at(now, || {}).is_err());
    let again = || ControlFlow::<()>::Continue(());
    assert!(manual.timer.schedule_repeating(ms(1), MissedTick::Burst, again).is_err());
    let task = manual
        .timer
        .schedule_repeating(ms(1), MissedTick::Delay, again)
        .expect_err("full")
        .into_task();
    assert_eq!(task(), ControlFlow::Continue(()));
    assert_eq!(manual.timer.pending(), 8);
}

fn cancelling_makes_room_at_once(mode: Mode) {
    let manual = limited(mode, 1);
    for _ in 0..100 {
        let timeout = manual.timer.schedule(ms(5), || {}).expect("there is room");
        assert!(manual.timer.schedule(ms(5), || {}).is_err());
        assert!(timeout.cancel());
        assert!(!timeout.cancel());
    }
    assert_eq!(manual.timer.pending(), 0);
}

fn firing_makes_room(mode: Mode) {
    let manual = limited(mode, 2);
    for _ in 0..100 {
        manual.timer.schedule(ms(5), || {}).expect("there is room");
        let (timer, log) = (manual.timer.clone(), manual.log.task(1));
        // As it runs it has given up its place.
        let task = move || timer.schedule(ms(1), log).map(drop).expect("there is room");
        manual.timer.schedule(ms(5), task).expect("there is room");
        assert!(manual.timer.schedule(ms(5), || {}).is_err());
        assert_eq!(manual.advance(6).len(), 1);
    }
    assert_eq!(manual.timer.stats().panics, 0);
}

fn a_repeating_one_keeps_its_place_until_it_ends(mode: Mode) {
    let manual = limited(mode, 1);
    let timer = manual.timer.clone();
    let mut left = 3;
    let repeating = move || {
        assert!(timer.schedule(ms(1), || {}).is_err());
        left -= 1;
        if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    manual.timer.schedule_repeating(ms(10), MissedTick::Burst, repeating).expect("there is room");
    manual.advance(20);
    assert!(manual.timer.schedule(ms(1), || {}).is_err());
    manual.advance(10);
    assert_eq!(manual.timer.stats().panics, 0);
    let cancelled = manual
        .timer
        .schedule_repeating(ms(1), MissedTick::Delay, || ControlFlow::Continue(()))
        .expect("room");
    assert!(manual.timer.schedule(ms(1), || {}).is_err());
    assert!(cancelled.cancel());
    let panics =
        manual.timer.schedule_repeating(ms(1), MissedTick::Delay, || panic!("as it should"));
    assert!(panics.is_ok());
    manual.advance(1);
    manual.timer.schedule(ms(1), || {}).expect("there is room");
}

fn stopping_says_stopped_not_full(mode: Mode) {
    let manual = limited(mode, 1);
    manual.timer.schedule(ms(1), || {}).expect("there is room");
    assert_eq!(manual.timer.stop().expect("outside").len(), 1);
    for _ in 0..3 {
        let error = manual.timer.schedule(ms(1), || {}).expect_err("stopped");
        assert_eq!(error.kind(), ScheduleErrorKind::Stopped);
        assert_eq!(error.to_string(), "the timer was stopped");
    }
}

/// Also if the task cannot be shared between threads.
#[test]
fn errors_can_be_passed_on() {
    fn schedule(timer: &Timer) -> Result<(), Box<dyn Error + Send + Sync>> {
        let not_shared = std::cell::Cell::new(1);
        timer.schedule(Duration::ZERO, move || not_shared.set(2))?;
        Ok(())
    }
    let timer = Timer::new();
    timer.stop().expect("outside");
    assert_eq!(schedule(&timer).expect_err("stopped").to_string(), "the timer was stopped");
}

#[test]
fn two_threads_never_have_more_than_the_limit() {
    let timer = Timer::builder().max_pending(100).shards(2).build().expect("in range");
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let timer = timer.clone();
            std::thread::spawn(move || {
                let mut timeouts = Vec::new();
                let mut refused = 0;
                for _ in 0..20_000 {
                    match timer.schedule(Duration::from_secs(60), || {}) {
                        Ok(timeout) => timeouts.push(timeout),
                        Err(_) => {
                            refused += 1;
                            assert!(timeouts.len() <= 100);
                            timeouts.drain(..).for_each(|timeout| assert!(timeout.cancel()));
                        }
                    }
                }
                (timeouts.len(), refused)
            })
        })
        .collect();
    let left: usize = threads.into_iter().map(|thread| thread.join().unwrap().0).sum();
    assert_eq!(timer.pending(), left);
    assert!(left <= 100);
}

/// Also while timeouts end in one shard and begin in another, as they are counted.
#[test]
fn pending_never_reads_more_than_the_limit() {
    const LIMIT: usize = 4;
    let timer = Timer::builder().max_pending(LIMIT).shards(1_024).build().expect("in range");
    let done = Arc::new(AtomicBool::new(false));
    let come_and_go = || {
        let (timer, done) = (timer.clone(), Arc::clone(&done));
        std::thread::spawn(move || {
            let mut timeouts = Vec::new();
            while !done.load(Relaxed) {
                match timer.schedule(Duration::from_secs(60), || {}) {
                    Ok(timeout) => timeouts.push(timeout),
                    Err(_) => timeouts.drain(..).for_each(|timeout| assert!(timeout.cancel())),
                }
            }
        })
    };
    let first = come_and_go();
    // Threads take turns at the shards: so the second is half of all shards away from the first.
    for _ in 0..512 {
        let timer = timer.clone();
        let schedule =
            move || timer.schedule(Duration::from_secs(60), || {}).map(|once| once.cancel());
        let _ = std::thread::spawn(schedule).join().unwrap();
    }
    let second = come_and_go();
    let most = (0..3_000).map(|_| timer.pending()).max();
    done.store(true, Relaxed);
    [first, second].into_iter().for_each(|thread| thread.join().unwrap());
    assert!(most <= Some(LIMIT), "{most:?}");
}
