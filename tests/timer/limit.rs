//! The limit of pending timeouts.

use crate::common::long;
use crate::help::{Count, CountsDrop, Manual, build, ms};
use std::error::Error;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;
use tickwheel::{MissedTick, Mode, ScheduleErrorKind, Timeout, Timer};

in_each_mode! {
    one_too_many_comes_back,
    cancelling_makes_room_at_once,
    firing_makes_room,
    a_repeating_one_keeps_its_place_until_it_ends,
    a_value_is_passed_on_or_dropped_or_comes_back,
}

fn limited(mode: Mode, most: usize) -> Manual {
    Manual::built(mode, |builder| builder.max_pending(most))
}

fn is_full(timer: &Timer) -> bool {
    timer.schedule(ms(5), || {}).is_err()
}

fn one_too_many_comes_back(mode: Mode) {
    let manual = limited(mode, 8);
    (0..8).for_each(|_| drop(manual.idle(5)));
    let (ran, dropped) = (Count::default(), Count::default());
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
    assert!(manual.timer.schedule_at(manual.at(0), || {}).is_err());
    for missed in [MissedTick::Burst, MissedTick::Delay] {
        let again = || ControlFlow::<()>::Continue(());
        let error = manual.timer.schedule_repeating(ms(1), missed, again).expect_err("full");
        assert_eq!(error.into_task()(), ControlFlow::Continue(()));
    }
    assert_eq!(manual.timer.pending(), 8);
}

fn a_value_is_passed_on_or_dropped_or_comes_back(mode: Mode) {
    let manual = limited(mode, 2);
    let passed = Count::default();
    let [kept, cancelled, refused] = [(); 3].map(|()| CountsDrop(Count::default()));
    let drops = [&kept, &cancelled, &refused].map(|value| value.0.clone());
    let schedule = |value| {
        let passed = passed.clone();
        manual.timer.schedule_value(ms(5), value, move |value: CountsDrop| {
            passed.add();
            drop(value);
        })
    };
    let _kept = schedule(kept).expect("room");
    let timeout = schedule(cancelled).expect("room");
    let error = schedule(refused).expect_err("full");
    assert_eq!(error.kind(), ScheduleErrorKind::Full);
    let refused = error.into_task();
    assert!(timeout.cancel());
    let dropped = || drops.each_ref().map(Count::get);
    assert_eq!((passed.get(), dropped()), (0, [0, 1, 0]));
    manual.clock.advance(ms(5));
    assert_eq!((passed.get(), dropped()), (1, [1, 1, 0]));
    drop(refused);
    assert_eq!(dropped(), [1, 1, 1]);
}

fn cancelling_makes_room_at_once(mode: Mode) {
    let manual = limited(mode, 1);
    for _ in 0..100 {
        let timeout = manual.idle(5);
        assert!(is_full(&manual.timer));
        assert!(timeout.cancel() && !timeout.cancel());
    }
    assert_eq!(manual.timer.pending(), 0);
}

fn firing_makes_room(mode: Mode) {
    let manual = limited(mode, 2);
    for _ in 0..100 {
        manual.idle(5);
        let (timer, log) = (manual.timer.clone(), manual.log.task(1));
        // As it runs it has given up its place.
        manual.after(5, move || timer.schedule(ms(1), log).map(drop).expect("there is room"));
        assert!(is_full(&manual.timer));
        assert_eq!(manual.advance(6).len(), 1);
    }
    assert_eq!(manual.timer.stats().panics, 0);
}

fn a_repeating_one_keeps_its_place_until_it_ends(mode: Mode) {
    let manual = limited(mode, 1);
    let (timer, mut repeat) = (manual.timer.clone(), manual.log.repeat(1, 3));
    let repeating = move || {
        assert!(is_full(&timer));
        repeat()
    };
    manual.every(10, MissedTick::Burst, repeating);
    manual.advance(20);
    assert!(is_full(&manual.timer));
    manual.advance(10);
    assert_eq!(manual.timer.stats().panics, 0);
    let cancelled = manual.every(1, MissedTick::Delay, || ControlFlow::Continue(()));
    assert!(is_full(&manual.timer));
    assert!(cancelled.cancel());
    manual.every(1, MissedTick::Delay, || panic!("as it should"));
    manual.advance(1);
    manual.idle(1);
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

/// Schedules one more, or cancels all if there is no room.
fn come_and_go(timer: &Timer, timeouts: &mut Vec<Timeout>) {
    match timer.schedule(ms(3_600_000), || {}) {
        Ok(timeout) => timeouts.push(timeout),
        Err(_) => timeouts.drain(..).for_each(|timeout| assert!(timeout.cancel())),
    }
}

#[test]
fn two_threads_never_have_more_than_the_limit() {
    let timer = build(|builder| builder.max_pending(100).shards(2));
    let run = || {
        let mut timeouts = Vec::new();
        for _ in 0..long(2_000, 20_000) {
            come_and_go(&timer, &mut timeouts);
            assert!(timeouts.len() <= 100);
        }
        timeouts.len()
    };
    let left: usize = thread::scope(|scope| {
        [(); 2].map(|()| scope.spawn(run)).map(|thread| thread.join().unwrap()).iter().sum()
    });
    assert_eq!(timer.pending(), left);
    assert!(left <= 100);
}

/// Also while timeouts end in one shard and begin in another, as they are counted.
#[test]
fn pending_never_reads_more_than_the_limit() {
    const LIMIT: usize = 4;
    let shards = long(128, 1_024);
    let timer = build(|builder| builder.max_pending(LIMIT).shards(shards));
    let done = AtomicBool::new(false);
    let run = || {
        let mut timeouts = Vec::new();
        while !done.load(Relaxed) {
            come_and_go(&timer, &mut timeouts);
        }
    };
    thread::scope(|scope| {
        scope.spawn(run);
        // Threads take turns at the shards: so the second is half of all shards away from the
        // first.
        for _ in 0..shards / 2 {
            let once = || timer.schedule(ms(60_000), || {}).map(|timeout| timeout.cancel());
            let _ = scope.spawn(once).join().unwrap();
        }
        scope.spawn(run);
        let most = (0..3_000).map(|_| timer.pending()).max();
        done.store(true, Relaxed);
        assert!(most <= Some(LIMIT), "{most:?}");
    });
}
