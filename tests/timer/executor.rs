//! Tasks that run elsewhere.

use crate::help::{Count, CountsDrop, ms, wait_until};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;
use tickwheel::{ManualClock, MissedTick, Status, Timer};

type BoxedTask = Box<dyn FnOnce() + Send>;

fn a_thread_each(task: BoxedTask) {
    thread::spawn(task);
}

#[test]
fn runs_tasks_where_the_executor_does() {
    let timer = Timer::builder()
        .thread_name("only-worker")
        .executor(|task: BoxedTask| {
            thread::Builder::new().name("elsewhere".to_owned()).spawn(task).unwrap();
        })
        .build()
        .expect("in range");
    let (sender, receiver) = mpsc::channel();
    let task = move || sender.send(thread::current().name().map(str::to_owned)).unwrap();
    timer.schedule(ms(1), task).expect("it runs");
    assert_eq!(receiver.recv().unwrap().as_deref(), Some("elsewhere"));
}

#[test]
fn a_blocking_task_delays_no_other() {
    let timer = Timer::builder().executor(a_thread_each).build().expect("in range");
    let (sender, receiver) = mpsc::channel::<()>();
    let (blocked, fired) = (Count::default(), Count::default());
    let count = blocked.clone();
    let blocks = move || {
        assert!(receiver.recv().is_err());
        count.add();
    };
    timer.schedule(ms(1), blocks).expect("it runs");
    for delay in 2..10 {
        timer.schedule(ms(delay), fired.task()).expect("it runs");
    }
    wait_until(|| fired.get() == 8);
    assert_eq!(blocked.get(), 0);
    drop(sender);
    wait_until(|| blocked.get() == 1);
}

#[test]
fn repeats_where_the_executor_does_and_never_twice_at_once() {
    let timer = Timer::builder().executor(a_thread_each).build().expect("in range");
    let running = Arc::new(Mutex::new(()));
    let runs = Count::default();
    let count = runs.clone();
    let timeout = timer
        .schedule_repeating(ms(1), MissedTick::Burst, move || {
            let guard = running.try_lock().expect("never twice at once");
            thread::sleep(ms(3));
            count.add();
            drop(guard);
            if count.get() == 10 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .expect("it runs");
    wait_until(|| timeout.status() == Status::Fired);
    assert_eq!((runs.get(), timer.stats().panics), (10, 0));
}

#[test]
fn a_panic_elsewhere_is_counted_and_told() {
    let told = Count::default();
    let count = told.clone();
    let timer = Timer::builder()
        .executor(a_thread_each)
        .on_panic(move |panic| {
            assert_eq!(panic.message(), Some("elsewhere"));
            count.add();
        })
        .build()
        .expect("in range");
    timer.schedule(ms(1), || panic!("elsewhere")).expect("it runs");
    let repeating = timer
        .schedule_repeating(ms(1), MissedTick::Delay, || panic!("elsewhere"))
        .expect("it runs");
    wait_until(|| told.get() == 2);
    wait_until(|| timer.stats().panics == 2 && repeating.status() == Status::Panicked);
}

#[test]
fn a_panicking_executor_leaves_the_worker_alive() {
    let clock = ManualClock::new();
    let dropped = Count::default();
    let timer = Timer::builder()
        .clock(clock.clone())
        .executor(|_: BoxedTask| panic!("no room"))
        .build()
        .expect("in range");
    for delay in [1, 2, 3] {
        let captured = CountsDrop(dropped.clone());
        timer.schedule(ms(delay), move || drop(captured)).expect("it runs");
    }
    clock.advance(ms(10));
    let stats = timer.stats();
    assert_eq!((stats.pending, stats.fired, stats.panics), (0, 3, 3));
    assert_eq!(dropped.get(), 3);
}

/// Of a repeating timeout only the one run is lost that the executor dropped.
#[test]
fn a_run_that_is_dropped_is_left_out() {
    let clock = ManualClock::new();
    let offered = Count::default();
    let count = offered.clone();
    let timer = Timer::builder()
        .clock(clock.clone())
        .executor(move |task: BoxedTask| {
            count.add();
            if count.get() % 2 == 0 {
                task();
            }
        })
        .build()
        .expect("in range");
    let runs = Count::default();
    let ran = runs.clone();
    let timeout = timer
        .schedule_repeating(ms(10), MissedTick::Skip, move || {
            ran.add();
            ControlFlow::Continue(())
        })
        .expect("it runs");
    clock.advance(ms(100));
    assert_eq!((offered.get(), runs.get()), (10, 5));
    assert!(timeout.cancel());
}

/// What an executor has not begun is not running: cancelled, it never does, and is dropped at once.
#[test]
fn a_run_that_waits_for_its_turn_can_be_cancelled() {
    let clock = ManualClock::new();
    let (sender, queue) = mpsc::channel::<BoxedTask>();
    let timer = Timer::builder()
        .clock(clock.clone())
        .executor(move |task: BoxedTask| sender.send(task).unwrap())
        .build()
        .expect("in range");
    let dropped = Count::default();
    let captured = CountsDrop(dropped.clone());
    let timeout = timer
        .schedule_repeating(ms(10), MissedTick::Burst, move || {
            let _captured = &captured;
            unreachable!();
        })
        .expect("it runs");
    clock.advance(ms(10));
    let run = queue.try_recv().expect("it was handed over");
    assert_eq!(timeout.status(), Status::Pending);
    assert!(timeout.cancel());
    assert_eq!(dropped.get(), 1);
    run();
    clock.advance(ms(100));
    assert!(queue.try_recv().is_err());
    assert_eq!(timeout.status(), Status::Cancelled);
    assert_eq!((timer.pending(), timer.stats().panics), (0, 0));
}

#[test]
fn stop_does_not_wait_for_what_was_handed_over() {
    let timer = Timer::builder().executor(a_thread_each).build().expect("in range");
    let (sender, receiver) = mpsc::channel::<()>();
    let (begun, ended) = (Count::default(), Count::default());
    let counts = (begun.clone(), ended.clone());
    let task = move || {
        counts.0.add();
        assert!(receiver.recv().is_err());
        counts.1.add();
    };
    let timeout = timer.schedule(Duration::ZERO, task).expect("it runs");
    wait_until(|| begun.get() == 1);
    assert!(timer.stop().expect("outside").is_empty());
    assert_eq!(timeout.status(), Status::Fired);
    assert_eq!(ended.get(), 0);
    drop(sender);
    wait_until(|| ended.get() == 1);
}

/// An executor that blocks holds the worker up, so to wait for the worker would be for ever.
#[test]
fn inside_a_task_elsewhere_stop_is_an_error_and_drop_does_not_wait() {
    let (sender, receiver) = mpsc::sync_channel::<BoxedTask>(0);
    let timer = Timer::builder()
        .executor(move |task: BoxedTask| sender.send(task).unwrap_or(()))
        .build()
        .expect("in range");
    let fired = Count::default();
    let (last, count) = (timer.clone(), fired.clone());
    let task = move || {
        // The worker is blocked by the next task now.
        thread::sleep(ms(20));
        assert!(last.stop().is_err());
        drop(last);
        count.add();
    };
    let first = timer.schedule(Duration::ZERO, task).expect("it runs");
    let second = timer.schedule(ms(2), fired.task()).expect("it runs");
    drop(timer);
    for task in receiver {
        task();
    }
    assert!(fired.get() >= 1);
    assert_eq!(first.status(), Status::Fired);
    assert!(second.status() == Status::Fired || second.status() == Status::Stopped);
}

/// The worker lets go of the executor when the timer is gone, also if handles are left.
#[test]
fn the_executor_is_dropped_with_the_timer() {
    let dropped = Count::default();
    let held = CountsDrop(dropped.clone());
    let timer = Timer::builder()
        .executor(move |task: BoxedTask| {
            let _ = &held;
            task();
        })
        .build()
        .expect("in range");
    let timeout = timer.schedule(Duration::from_secs(60), || {}).expect("it runs");
    drop(timer);
    assert_eq!(dropped.get(), 1);
    assert_eq!(timeout.status(), Status::Stopped);
}

/// A repeating timeout whose first run is in the executor's hands.
fn handed_over() -> (Timer, tickwheel::Timeout, BoxedTask, [Count; 2]) {
    let clock = ManualClock::new();
    let (sender, queue) = mpsc::channel::<BoxedTask>();
    let timer = Timer::builder()
        .clock(clock.clone())
        .executor(move |task: BoxedTask| drop(sender.send(task)))
        .build()
        .expect("in range");
    let (runs, dropped) = (Count::default(), Count::default());
    let (count, captured) = (runs.clone(), CountsDrop(dropped.clone()));
    let timeout = timer
        .schedule_repeating(ms(10), MissedTick::Burst, move || {
            let _captured = &captured;
            count.add();
            ControlFlow::Continue(())
        })
        .expect("it runs");
    clock.advance(ms(10));
    let run = queue.recv().expect("it was handed over");
    (timer, timeout, run, [runs, dropped])
}

/// It counts as fired, as any task that was handed over, and no other run follows.
#[test]
fn a_repeating_one_that_the_executor_keeps_has_fired_when_stop_returns() {
    for runs_late in [true, false] {
        let (timer, timeout, run, [runs, dropped]) = handed_over();
        assert_eq!(timeout.status(), Status::Pending);
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
        let timer = Timer::builder().executor(a_thread_each).build().expect("in range");
        let (runs, dropped) = (Count::default(), Count::default());
        let (count, captured) = (runs.clone(), CountsDrop(dropped.clone()));
        let (sender, receiver) = mpsc::channel::<()>();
        let timeout = timer
            .schedule_repeating(ms(1), MissedTick::Delay, move || {
                let _captured = &captured;
                count.add();
                assert!(receiver.recv().is_err());
                match end {
                    "goes on" => ControlFlow::Continue(()),
                    "ends" => ControlFlow::Break(()),
                    _ => panic!("as it should"),
                }
            })
            .expect("it runs");
        wait_until(|| runs.get() == 1);
        assert!(timer.stop().expect("outside").is_empty());
        let told = (timeout.status(), timeout.cancel(), timeout.reschedule(ms(1)));
        assert_eq!(told, (Status::Fired, false, false));
        drop(sender);
        wait_until(|| dropped.get() == 1);
        assert_eq!((timeout.status(), runs.get()), (Status::Fired, 1));
    }
}

/// Cancelled before, it stays cancelled.
#[test]
fn a_repeating_one_that_was_cancelled_elsewhere_stays_cancelled_when_stopped() {
    let (timer, timeout, run, [runs, dropped]) = handed_over();
    assert!(timeout.cancel());
    assert!(timer.stop().expect("outside").is_empty());
    run();
    assert_eq!((timeout.status(), runs.get(), dropped.get()), (Status::Cancelled, 0, 1));
}
