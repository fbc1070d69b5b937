//! Tasks that panic, and things that panic when they are dropped.

use crate::help::{Count, Manual, ms};
use crate::zoo::values::Herd;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::{Arc, Mutex};
use tickwheel::{MissedTick, Mode, Status, Timeout};

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

fn the_worker_outlives_a_panic(manual: Manual) {
    let first = manual.after(1, || panic!("as it should"));
    manual.once(1, 1);
    manual.after(2, || panic!("as it should"));
    manual.once(3, 2);
    assert_eq!(manual.advance(5), [(1, 1), (3, 2)]);
    assert_eq!(first.status(), Status::Fired);
    let stats = manual.timer.stats();
    assert_eq!((stats.pending, stats.fired, stats.panics), (0, 4, 2));
    manual.once(1, 3);
    assert_eq!(manual.advance(5), [(6, 3)]);
}

fn the_hook_is_told(mode: Mode) {
    let messages: Arc<Mutex<Vec<_>>> = Arc::default();
    let told = Arc::clone(&messages);
    let hook = move |panic: &tickwheel::TaskPanic| {
        let number = panic.payload().downcast_ref::<u32>().copied();
        let is_shown = format!("{panic:?}").starts_with("TaskPanic { message: ");
        told.lock().unwrap().push((panic.message().map(str::to_owned), number, is_shown));
    };
    let manual = Manual::built(mode, |builder| builder.on_panic(hook));
    manual.after(1, || panic!("plain"));
    manual.after(2, || panic!("number {}", 2));
    manual.after(3, || panic_any(3_u32));
    manual.advance(3);
    let message = |text: &str| (Some(text.to_owned()), None, true);
    let expected = [message("plain"), message("number 2"), (None, Some(3), true)];
    assert_eq!(*messages.lock().unwrap(), expected);
}

fn a_panicking_hook_is_ignored(mode: Mode) {
    let manual = Manual::built(mode, |builder| builder.on_panic(|_| panic!("me too")));
    manual.after(1, || panic!("as it should"));
    manual.once(1, 1);
    assert_eq!(manual.advance(1), [(1, 1)]);
    assert_eq!(manual.timer.stats().panics, 1);
}

fn a_panic_that_panics_when_dropped_is_survived(manual: Manual) {
    let herd = Herd::default();
    let payload = herd.bomb(1);
    manual.after(1, move || panic_any(payload));
    manual.once(1, 1);
    assert_eq!(manual.advance(1), [(1, 1)]);
    assert_eq!((manual.timer.stats().panics, herd.dropped()), (1, 1));
}

/// Schedules a task that writes 1, and captured what panics when it is dropped.
fn with_a_captured_panic(manual: &Manual, herd: &Herd) -> Timeout {
    let (captured, log) = (herd.bomb(1), manual.log.clone());
    let task = move || {
        let _captured = captured;
        log.write(1);
    };
    manual.after(1, task)
}

fn what_a_task_captured_may_panic_when_dropped(manual: Manual) {
    let herd = Herd::default();
    let timeout = with_a_captured_panic(&manual, &herd);
    manual.once(1, 2);
    assert_eq!(manual.advance(1), [(1, 1), (1, 2)]);
    assert_eq!(timeout.status(), Status::Fired);
    assert_eq!((manual.timer.stats().panics, herd.dropped()), (1, 1));
}

fn cancelling_what_panics_when_dropped_cancels_it(manual: Manual) {
    let herd = Herd::default();
    let timeout = with_a_captured_panic(&manual, &herd);
    // It is the caller's own, and on its own thread.
    assert!(catch_unwind(AssertUnwindSafe(|| timeout.cancel())).is_err());
    assert_eq!((timeout.status(), timeout.cancel()), (Status::Cancelled, false));
    assert_eq!((herd.dropped(), manual.timer.pending()), (1, 0));
    manual.once(1, 2);
    assert_eq!(manual.advance(1), [(1, 2)]);
}

fn stopping_gives_back_what_panics_when_dropped(manual: Manual) {
    let herd = Herd::default();
    with_a_captured_panic(&manual, &herd);
    let unfired = manual.timer.stop().expect("outside");
    assert_eq!((unfired.len(), herd.dropped()), (1, 0));
    assert!(catch_unwind(AssertUnwindSafe(|| drop(unfired))).is_err());
    assert_eq!(herd.dropped(), 1);
}

fn dropping_the_timer_survives_what_panics_when_dropped(manual: Manual) {
    let herd = Herd::default();
    let timeouts = [(); 3].map(|()| with_a_captured_panic(&manual, &herd));
    assert!(timeouts[1].reschedule(ms(2)) && timeouts[2].reschedule(ms(3)));
    drop(manual.timer);
    assert_eq!(herd.dropped(), 3);
    assert!(timeouts.iter().all(|timeout| timeout.status() == Status::Stopped));
}

fn a_repeating_task_that_panics_ends_and_says_so(mode: Mode) {
    let (told, herd) = (Count::default(), Herd::default());
    let (count, captured) = (told.clone(), herd.bomb(1));
    let manual = Manual::built(mode, |builder| builder.on_panic(move |_| count.add()));
    let log = manual.log.clone();
    let timeout = manual.every(10, MissedTick::Delay, move || {
        let _captured = &captured;
        log.write(1);
        panic!("as it should");
    });
    assert_eq!(manual.advance(100), [(10, 1)]);
    assert_eq!((timeout.status(), timeout.cancel()), (Status::Panicked, false));
    // Once by running, once by being dropped.
    assert_eq!((told.get(), herd.dropped()), (2, 1));
    assert_eq!((manual.timer.pending(), manual.timer.stats().panics), (0, 2));
}
