//! Tasks that panic, and things that panic when they are dropped.

use crate::help::{Count, Manual, PanicsInDrop, ms};
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::{Arc, Mutex};
use tickwheel::{MissedTick, Mode, Status};

in_each_mode! {
    the_worker_outlives_a_panic,
    the_hook_is_told,
    a_panicking_hook_is_ignored,
    a_panic_that_panics_when_dropped_is_survived,
    what_a_task_captured_may_panic_when_dropped,
    cancelling_what_panics_when_dropped_cancels_it,
    stopping_gives_back_what_panics_when_dropped,
    dropping_the_timer_survives_what_panics_when_dropped,
    a_repeating_task_that_panics_ends_and_says_so,
}

fn the_worker_outlives_a_panic(mode: Mode) {
    let manual = Manual::new(mode);
    let first = manual.timer.schedule(ms(1), || panic!("as it should")).expect("it runs");
    manual.timer.schedule(ms(1), manual.log.task(1)).expect("it runs");
    manual.timer.schedule(ms(2), || panic!("as it should")).expect("it runs");
    manual.timer.schedule(ms(3), manual.log.task(2)).expect("it runs");
    assert_eq!(manual.advance(5), [(1, 1), (3, 2)]);
    assert_eq!(first.status(), Status::Fired);
    let stats = manual.timer.stats();
    assert_eq!((stats.pending, stats.fired, stats.panics), (0, 4, 2));
    manual.timer.schedule(ms(1), manual.log.task(3)).expect("it runs");
    assert_eq!(manual.advance(5), [(6, 3)]);
}

fn the_hook_is_told(mode: Mode) {
    let messages: Arc<Mutex<Vec<_>>> = Arc::default();
    let told = Arc::clone(&messages);
    let manual = Manual::built(mode, |builder| {
        builder.on_panic(move |panic| {
            let number = panic.payload().downcast_ref::<u32>().copied();
            told.lock().unwrap().push((panic.message().map(str::to_owned), number));
        })
    });
    manual.timer.schedule(ms(1), || panic!("plain")).expect("it runs");
    manual.timer.schedule(ms(2), || panic!("number {}", 2)).expect("it runs");
    manual.timer.schedule(ms(3), || panic_any(3_u32)).expect("it runs");
    manual.advance(3);
    let expected = [(Some("plain".to_owned()), None), (Some("number 2".to_owned()), None)];
    let messages = messages.lock().unwrap();
    assert_eq!(messages[..2], expected);
    assert_eq!(messages[2], (None, Some(3)));
}

fn a_panicking_hook_is_ignored(mode: Mode) {
    let manual = Manual::built(mode, |builder| builder.on_panic(|_| panic!("me too")));
    manual.timer.schedule(ms(1), || panic!("as it should")).expect("it runs");
    manual.timer.schedule(ms(1), manual.log.task(1)).expect("it runs");
    assert_eq!(manual.advance(1), [(1, 1)]);
    assert_eq!(manual.timer.stats().panics, 1);
}

fn a_panic_that_panics_when_dropped_is_survived(mode: Mode) {
    let manual = Manual::new(mode);
    let dropped = Count::default();
    let payload = PanicsInDrop(dropped.clone());
    manual.timer.schedule(ms(1), move || panic_any(payload)).expect("it runs");
    manual.timer.schedule(ms(1), manual.log.task(1)).expect("it runs");
    assert_eq!(manual.advance(1), [(1, 1)]);
    assert_eq!((manual.timer.stats().panics, dropped.get()), (1, 1));
}

fn what_a_task_captured_may_panic_when_dropped(mode: Mode) {
    let manual = Manual::new(mode);
    let (dropped, log) = (Count::default(), manual.log.clone());
    let captured = PanicsInDrop(dropped.clone());
    let task = move || {
        let _captured = captured;
        log.write(1);
    };
    let timeout = manual.timer.schedule(ms(1), task).expect("it runs");
    manual.timer.schedule(ms(1), manual.log.task(2)).expect("it runs");
    assert_eq!(manual.advance(1), [(1, 1), (1, 2)]);
    assert_eq!(timeout.status(), Status::Fired);
    assert_eq!((manual.timer.stats().panics, dropped.get()), (1, 1));
}

fn cancelling_what_panics_when_dropped_cancels_it(mode: Mode) {
    let manual = Manual::new(mode);
    let dropped = Count::default();
    let captured = PanicsInDrop(dropped.clone());
    let timeout = manual.timer.schedule(ms(1), move || drop(captured)).expect("it runs");
    // It is the caller's own, and on its own thread.
    assert!(catch_unwind(AssertUnwindSafe(|| timeout.cancel())).is_err());
    assert!(timeout.status() == Status::Cancelled && !timeout.cancel());
    assert_eq!((dropped.get(), manual.timer.pending()), (1, 0));
    manual.timer.schedule(ms(1), manual.log.task(1)).expect("it runs");
    assert_eq!(manual.advance(1), [(1, 1)]);
}

fn stopping_gives_back_what_panics_when_dropped(mode: Mode) {
    let manual = Manual::new(mode);
    let dropped = Count::default();
    let captured = PanicsInDrop(dropped.clone());
    manual.timer.schedule(ms(1), move || drop(captured)).expect("it runs");
    let unfired = manual.timer.stop().expect("outside");
    assert_eq!((unfired.len(), dropped.get()), (1, 0));
    assert!(catch_unwind(AssertUnwindSafe(|| drop(unfired))).is_err());
    assert_eq!(dropped.get(), 1);
}

fn dropping_the_timer_survives_what_panics_when_dropped(mode: Mode) {
    let manual = Manual::new(mode);
    let dropped = Count::default();
    let timeouts: Vec<_> = (0..3)
        .map(|delay| {
            let captured = PanicsInDrop(dropped.clone());
            manual.timer.schedule(ms(delay + 1), move || drop(captured)).expect("it runs")
        })
        .collect();
    drop(manual.timer);
    assert_eq!(dropped.get(), 3);
    assert!(timeouts.iter().all(|timeout| timeout.status() == Status::Stopped));
}

fn a_repeating_task_that_panics_ends_and_says_so(mode: Mode) {
    let told = Count::default();
    let count = told.clone();
    let manual = Manual::built(mode, |builder| builder.on_panic(move |_| count.add()));
    let (dropped, log) = (Count::default(), manual.log.clone());
    let captured = PanicsInDrop(dropped.clone());
    let timeout = manual
        .timer
        .schedule_repeating(ms(10), MissedTick::Delay, move || {
            let _captured = &captured;
            log.write(1);
            panic!("as it should");
        })
        .expect("it runs");
    assert_eq!(manual.advance(100), [(10, 1)]);
    assert_eq!((timeout.status(), timeout.cancel()), (Status::Panicked, false));
    // Once by running, once by being dropped.
    assert_eq!((told.get(), dropped.get()), (2, 1));
    assert_eq!((manual.timer.pending(), manual.timer.stats().panics), (0, 2));
}
