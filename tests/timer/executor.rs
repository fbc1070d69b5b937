//! Tasks that run elsewhere.

use crate::help::{
    BoxedTask, Count, CountsDrop, Gate, Kept, Manual, a_thread_each, build, ms, taken, wait_until,
};
use std::ops::ControlFlow;
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::Duration;
use tickwheel::{MissedTick, Status, Timeout, Timer};

fn elsewhere() -> Timer {
    build(|builder| builder.executor(a_thread_each))
}

#[test]
fn runs_tasks_where_the_executor_does() {
    let executor = |task: BoxedTask| {
        thread::Builder::new().name("elsewhere".to_owned()).spawn(task).unwrap();
    };
    let timer = build(|builder| builder.thread_name("only-worker").executor(executor));
    let (sender, receiver) = mpsc::channel();
    let task = move || sender.send(thread::current().name().map(str::to_owned)).unwrap();
    timer.schedule(ms(1), task).expect("it runs");
    assert_eq!(receiver.recv().unwrap().as_deref(), Some("elsewhere"));
}

#[test]
fn a_blocking_task_delays_no_other() {
    let (timer, gate, fired) = (elsewhere(), Gate::default(), Count::default());
    timer.schedule(ms(1), gate.task()).expect("it runs");
    for delay in 2..10 {
        timer.schedule(ms(delay), fired.task()).expect("it runs");
    }
    fired.wait_for(8);
    assert_eq!(gate.passed(), 0);
    gate.open();
    wait_until(|| gate.passed() == 1);
}

#[test]
fn repeats_where_the_executor_does_and_never_twice_at_once() {
    let (timer, running, runs) = (elsewhere(), Mutex::new(()), Count::default());
    let count = runs.clone();
    let task = move || {
        let guard = running.try_lock().expect("never twice at once");
        thread::sleep(ms(3));
        count.add();
        drop(guard);
        if count.get() == 10 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let timeout = timer.schedule_repeating(ms(1), MissedTick::Burst, task).expect("it runs");
    wait_until(|| timeout.status() == Status::Fired);
    assert_eq!((runs.get(), timer.stats().panics), (10, 0));
}

#[test]
fn a_panic_elsewhere_is_counted_and_told() {
    let told = Count::default();
    let count = told.clone();
    let timer = build(|builder| {
        builder.executor(a_thread_each).on_panic(move |panic| {
            assert_eq!(panic.message(), Some("elsewhere"));
            count.add();
        })
    });
    timer.schedule(ms(1), || panic!("elsewhere")).expect("it runs");
    let repeating = timer.schedule_repeating(ms(1), MissedTick::Delay, || panic!("elsewhere"));
    let repeating = repeating.expect("it runs");
    told.wait_for(2);
    wait_until(|| timer.stats().panics == 2 && repeating.status() == Status::Panicked);
}

#[test]
fn a_panicking_executor_leaves_the_worker_alive() {
    let manual = Manual::with(|builder| builder.executor(|_: BoxedTask| panic!("no room")));
    let dropped = Count::default();
    (1..=3).for_each(|delay| drop(manual.after(delay, dropped.dropped())));
    manual.advance(10);
    let stats = manual.timer.stats();
    assert_eq!((stats.pending, stats.fired, stats.panics), (0, 3, 3));
    assert_eq!(dropped.get(), 3);
}

/// Of a repeating timeout only the one run is lost that the executor dropped.
#[test]
fn a_run_that_is_dropped_is_left_out() {
    let offered = Count::default();
    let count = offered.clone();
    let executor = move |task: BoxedTask| {
        count.add();
        if count.get() % 2 == 0 {
            task();
        }
    };
    let manual = Manual::with(|builder| builder.executor(executor));
    let timeout = manual.every(10, MissedTick::Skip, manual.log.repeat(1, u32::MAX));
    let runs = manual.advance(100).len();
    assert_eq!((offered.get(), runs), (10, 5));
    assert!(timeout.cancel());
}

#[test]
fn stop_does_not_wait_for_what_was_handed_over() {
    let (timer, gate) = (elsewhere(), Gate::default());
    let timeout = timer.schedule(Duration::ZERO, gate.task()).expect("it runs");
    gate.reached();
    assert!(timer.stop().expect("outside").is_empty());
    assert_eq!((timeout.status(), gate.passed()), (Status::Fired, 0));
    gate.open();
    wait_until(|| gate.passed() == 1);
}

/// An executor that blocks holds the worker up, so to wait for the worker would be for ever.
#[test]
fn inside_a_task_elsewhere_stop_is_an_error_and_drop_does_not_wait() {
    let (sender, receiver) = mpsc::sync_channel::<BoxedTask>(0);
    let timer = build(|it| it.executor(move |task: BoxedTask| sender.send(task).unwrap_or(())));
    let fired = Count::default();
    let (last, count) = (timer.clone(), fired.clone());
    let (hand, handed) = mpsc::channel::<Timeout>();
    let (tell, told) = mpsc::channel();
    let task = move || {
        let second = handed.recv().expect("it is handed over");
        // The worker is blocked by the next task then.
        wait_until(|| second.status() == Status::Fired);
        let is_error = last.stop().is_err();
        drop(last);
        tell.send((is_error, second)).expect("the test waits");
        count.add();
    };
    let first = timer.schedule(Duration::ZERO, task).expect("it runs");
    hand.send(timer.schedule(ms(2), fired.task()).expect("it runs")).expect("the task waits");
    drop(timer);
    receiver.into_iter().for_each(|task| task());
    let (is_error, second) = told.recv().expect("the task tells");
    assert!(is_error);
    assert_eq!((first.status(), second.status(), fired.get()), (Status::Fired, Status::Fired, 2));
}

/// The worker lets go of the executor when the timer is gone, also if handles are left.
#[test]
fn the_executor_is_dropped_with_the_timer() {
    let dropped = Count::default();
    let held = CountsDrop(dropped.clone());
    let executor = move |task: BoxedTask| {
        let _ = &held;
        task();
    };
    let timer = build(|builder| builder.executor(executor));
    let timeout = timer.schedule(ms(3_600_000), || {}).expect("it runs");
    drop(timer);
    assert_eq!((dropped.get(), timeout.status()), (1, Status::Stopped));
}

/// A repeating timeout whose first run the executor has, and how often it ran and was dropped.
struct HandedOver {
    manual: Manual,
    timeout: Timeout,
    kept: Kept,
    runs: Count,
    dropped: Count,
}

impl HandedOver {
    fn new() -> Self {
        let (kept, runs, dropped) = (Kept::default(), Count::default(), Count::default());
        let manual = Manual::with(|builder| builder.executor(kept.executor()));
        let (count, captured) = (runs.clone(), CountsDrop(dropped.clone()));
        let timeout = manual.every(10, MissedTick::Burst, move || {
            let _captured = &captured;
            count.add();
            ControlFlow::Continue(())
        });
        manual.advance(10);
        assert_eq!(timeout.status(), Status::Pending);
        Self { manual, timeout, kept, runs, dropped }
    }
}

/// What an executor has not begun is not running: cancelled, it never does, and is dropped at once.
#[test]
fn a_run_that_waits_for_its_turn_can_be_cancelled_and_stays_so_when_stopped() {
    for stops in [false, true] {
        // On a thread of its own: one that runs a task may not wait for a timer until that task's
        // timer has ended.
        let case = thread::spawn(move || {
            let HandedOver { manual, timeout, kept, runs, dropped } = HandedOver::new();
            let run = taken(&kept);
            assert!(timeout.cancel());
            assert_eq!(dropped.get(), 1);
            if stops {
                assert!(manual.timer.stop().expect("outside").is_empty());
            }
            run();
            manual.advance(100);
            assert_eq!((kept.len(), runs.get(), dropped.get()), (0, 0, 1));
            assert_eq!(timeout.status(), Status::Cancelled);
            assert_eq!((manual.timer.pending(), manual.timer.stats().panics), (0, 0));
        });
        assert!(case.join().is_ok(), "stops: {stops}");
    }
}

/// It counts as fired, as any task that was handed over, and no other run follows.
#[test]
fn a_repeating_one_that_the_executor_keeps_has_fired_when_stop_returns() {
    for runs_late in [true, false] {
        let HandedOver { manual, timeout, kept, runs, dropped } = HandedOver::new();
        let (timer, run) = (manual.timer, taken(&kept));
        assert!(timer.stop().expect("outside").is_empty());
        for _ in 0..2 {
            assert_eq!((timer.pending(), timeout.status()), (0, Status::Fired));
            assert!(!timeout.cancel() && !timeout.reschedule(ms(1)));
        }
        assert_eq!(dropped.get(), 0);
        if runs_late {
            run();
        } else {
            drop(run);
        }
        assert_eq!((runs.get(), dropped.get()), (usize::from(runs_late), 1));
        assert_eq!((timeout.status(), timer.stats().cancelled), (Status::Fired, 0));
    }
}

#[test]
fn a_repeating_one_that_runs_elsewhere_has_fired_when_stop_returns() {
    for end in ["goes on", "ends", "panics"] {
        let (timer, gate, dropped) = (elsewhere(), Gate::default(), Count::default());
        let (inner, captured) = (gate.clone(), CountsDrop(dropped.clone()));
        let task = move || {
            let _captured = &captured;
            inner.pass();
            match end {
                "goes on" => ControlFlow::Continue(()),
                "ends" => ControlFlow::Break(()),
                _ => panic!("as it should"),
            }
        };
        let timeout = timer.schedule_repeating(ms(1), MissedTick::Delay, task).expect("it runs");
        gate.reached();
        assert!(timer.stop().expect("outside").is_empty(), "{end}");
        let told = (timeout.status(), timeout.cancel(), timeout.reschedule(ms(1)));
        assert_eq!(told, (Status::Fired, false, false), "{end}");
        gate.open();
        dropped.wait_for(1);
        assert_eq!((timeout.status(), gate.passed()), (Status::Fired, 1), "{end}");
    }
}
