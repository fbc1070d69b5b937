//! A child process made by `fork` has no worker. Alone in its file, because a process that forks
//! should have few threads. A lock that another thread holds at that moment stays locked in the
//! child, so the workers rest then: a `ManualClock` that is moved waits for that.
#![cfg(all(unix, not(loom)))]

use fork::{Fork, fork, waitpid};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::exit;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;
use tickwheel::{ManualClock, Next, Status, Timer, TimerBuilder};

/// The other test's threads hold no lock while this one forks.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `check` in a child, and returns whether it returned true there, within a minute.
fn in_a_child(check: impl FnOnce() -> bool) -> bool {
    match fork().expect("there is memory") {
        Fork::Child => {
            // A child that hangs ends itself.
            thread::spawn(|| {
                (0..600).for_each(|_| thread::sleep(Duration::from_millis(100)));
                exit(1)
            });
            exit(i32::from(!check()))
        }
        Fork::Parent(child) => waitpid(child).expect("it is a child") == 0,
    }
}

/// A timer, and what makes its worker rest.
fn timer(build: impl FnOnce(TimerBuilder) -> TimerBuilder) -> (Timer, impl Fn()) {
    let clock = ManualClock::new();
    let timer = build(Timer::builder().clock(clock.clone())).build().expect("in range");
    (timer, move || clock.advance(Duration::from_millis(1)))
}

fn fires(timer: &Timer) -> bool {
    let (sender, receiver) = mpsc::channel();
    timer.schedule(Duration::ZERO, move || sender.send(()).unwrap()).expect("it runs");
    (0..300).any(|_| receiver.recv_timeout(Duration::from_millis(100)).is_ok())
}

#[test]
fn in_a_child_a_timer_stops_without_its_worker_and_a_new_one_works() {
    let _alone = alone();
    let ((timer, rest), idle) = (timer(|builder| builder), Timer::new());
    let timeout = timer.schedule(Duration::from_secs(3_600), || {}).expect("it runs");
    rest();
    assert!(in_a_child(|| timer.stop().is_ok_and(|unfired| unfired.len() == 1)));
    assert!(in_a_child(|| {
        drop(timer.clone());
        timer.stop().is_ok() && timeout.status() == Status::Stopped
    }));
    // One that had not begun before, and one that the child made.
    assert!(in_a_child(|| fires(&idle) && fires(&Timer::new())));
    assert!(fires(&timer) && fires(&idle) && timeout.status() == Status::Pending);
}

#[test]
fn in_a_child_no_task_of_the_parent_is_waited_for() {
    let _alone = alone();
    let (begun, begins) = mpsc::channel();
    let (ends, end) = mpsc::channel::<()>();
    let end = Mutex::new(end);
    let blocks = move || {
        begun.send(()).expect("the test waits");
        assert!(end.lock().unwrap().recv().is_err());
    };
    let blocks = Arc::new(blocks);
    for executor in [false, true] {
        let (timer, rest) = timer(|builder| match executor {
            true => builder.executor(|task| drop(thread::spawn(task))),
            false => builder,
        });
        let (once, with) = (Arc::clone(&blocks), Arc::clone(&blocks));
        let once = timer.schedule(Duration::ZERO, move || once()).expect("it runs");
        let with = timer.schedule_with(Duration::ZERO, move |_| {
            with();
            Next::Stop
        });
        let with = with.expect("it runs");
        begins.recv().expect("it begins");
        if executor {
            begins.recv().expect("so does the other");
            // Otherwise the worker is inside the task, without a lock.
            rest();
        }
        let waits = [once, with];
        assert!(in_a_child(|| waits.iter().all(|timeout| timeout.cancel_and_wait().is_ok())));
        std::mem::forget(timer);
    }
    drop(ends);
}

#[test]
fn in_a_child_that_stops_a_timer_a_run_of_the_parent_is_not_pending() {
    let _alone = alone();
    let (timer, _) = timer(|builder| builder);
    let (begun, begins) = mpsc::channel();
    let (ends, end) = mpsc::channel::<()>();
    let runs = timer.schedule_with(Duration::ZERO, move |_| {
        begun.send(()).expect("the test waits");
        assert!(end.recv().is_err());
        Next::Stop
    });
    let runs = runs.expect("it runs");
    begins.recv().expect("it begins");
    let told = || (timer.pending(), runs.status());
    let is_pending = told() == (1, Status::Pending);
    let ended = in_a_child(|| timer.stop().is_ok() && told() == (0, Status::Fired));
    drop(ends);
    assert!(is_pending && ended);
}

#[test]
fn in_a_child_a_driver_takes_turns_of_its_own() {
    let _alone = alone();
    let clock = ManualClock::new();
    let builder = Timer::builder().clock(clock.clone());
    let (timer, mut driver) = builder.build_driven().expect("in range");
    let second = Duration::from_secs(1);
    let timeout = timer.schedule(second, || {}).expect("it is not stopped");
    let mut fires = || {
        clock.advance(second);
        driver.turn();
        timeout.status() == Status::Fired
    };
    assert!(in_a_child(&mut fires));
    assert_eq!(timeout.status(), Status::Pending);
    assert!(fires());
}

#[test]
fn in_a_child_a_turn_of_its_driver_is_waited_for() {
    let _alone = alone();
    let (timer, mut driver) = Timer::builder().build_driven().expect("in range");
    let (begun, begins) = mpsc::channel();
    let ended = Arc::new(AtomicUsize::new(0));
    let ends = Arc::clone(&ended);
    let task = move || {
        begun.send(()).expect("the child waits");
        thread::sleep(Duration::from_millis(100));
        ends.fetch_add(1, SeqCst);
    };
    let timeout = timer.schedule(Duration::ZERO, task).expect("it is not stopped");
    assert!(in_a_child(|| {
        let turns = thread::spawn(move || while driver.turn().is_some() {});
        begins.recv().expect("it begins");
        let has_ended = timeout.cancel_and_wait() == Ok(false) && ended.load(SeqCst) == 1;
        has_ended && timer.stop().is_ok() && turns.join().is_ok()
    }));
}

/// Neither did that thread come along.
#[test]
fn in_a_child_whose_driver_turns_no_thread_of_the_parents_executor_is_waited_for() {
    let _alone = alone();
    let (begun, begins) = mpsc::channel();
    let (ends, end) = mpsc::channel::<()>();
    let builder = Timer::builder().clock(ManualClock::new());
    let executor = |task| drop(thread::spawn(task));
    let (timer, mut driver) = builder.executor(executor).build_driven().expect("in range");
    let task = move || {
        begun.send(()).expect("the test waits");
        assert!(end.recv().is_err());
    };
    let timeout = timer.schedule_at(timer.now(), task).expect("it is not stopped");
    driver.turn();
    begins.recv().expect("it begins");
    assert!(in_a_child(|| {
        driver.turn();
        timeout.cancel_and_wait() == Ok(false)
    }));
    drop(ends);
}

/// The number of the worker's thread may be that of a thread of the child.
#[test]
fn in_a_child_a_thread_can_be_joined_after_a_timer_of_the_parent_was_dropped() {
    let _alone = alone();
    let (timer, rest) = timer(|builder| builder);
    timer.schedule(Duration::from_secs(3_600), || {}).expect("it runs");
    rest();
    // Without another thread, which would have that number.
    match fork().expect("there is memory") {
        Fork::Child => {
            let thread = thread::spawn(|| thread::sleep(Duration::from_millis(200)));
            drop(timer);
            exit(i32::from(catch_unwind(AssertUnwindSafe(|| thread.join())).is_err()))
        }
        Fork::Parent(child) => assert_eq!(waitpid(child).ok(), Some(0)),
    }
}

#[test]
fn in_a_child_a_clock_that_is_moved_waits_for_no_worker_of_the_parent() {
    let _alone = alone();
    let clock = ManualClock::new();
    let timer = Timer::builder().clock(clock.clone()).build().expect("in range");
    timer.schedule(Duration::from_secs(3_600), || {}).expect("it runs");
    clock.advance(Duration::from_millis(1));
    assert!(in_a_child(|| {
        clock.advance(Duration::from_millis(1));
        true
    }));
}

/// The child does not have that thread.
#[test]
fn in_a_child_a_hook_is_called_though_a_thread_of_the_parent_was_inside_it() {
    let _alone = alone();
    let clock = ManualClock::new();
    let (timer, mut driver) = Timer::builder().clock(clock).build_driven().expect("in range");
    let (begun, begins) = mpsc::channel();
    let (ends, end) = mpsc::channel::<()>();
    let (called, end) = (Arc::new(AtomicUsize::new(0)), Mutex::new(end));
    let calls = Arc::clone(&called);
    driver.on_wake(move |_| {
        if calls.fetch_add(1, SeqCst) == 0 {
            begun.send(()).expect("the test waits");
            assert!(end.lock().unwrap().recv().is_err());
        }
    });
    driver.turn();
    let (other, minute) = (timer.clone(), Duration::from_secs(60));
    let inside = thread::spawn(move || drop(other.schedule(minute, || {})));
    begins.recv().expect("it begins");
    assert!(in_a_child(|| {
        drop(timer.schedule(minute / 2, || {}));
        called.load(SeqCst) == 2
    }));
    drop(timer.schedule(minute / 2, || {}));
    assert_eq!(called.load(SeqCst), 1, "that thread calls it once more");
    drop(ends);
    inside.join().expect("it ends");
    assert_eq!(called.load(SeqCst), 2);
}

/// Hangs if the child waits for the thread that writes.
#[cfg(feature = "record")]
#[test]
fn in_a_child_a_recorded_timer_stops_without_the_thread_that_writes() {
    let _alone = alone();
    let (timer, rest) = timer(|builder| builder.record(std::io::sink()));
    let schedule = || timer.schedule(Duration::from_secs(3_600), || {}).expect("it runs");
    schedule();
    rest();
    assert!(in_a_child(|| {
        schedule();
        let has_all = timer.stop().is_ok_and(|unfired| unfired.len() == 2);
        // No thread writes what the child does.
        has_all && timer.recorded().is_some_and(|recorded| 0 < recorded.missing)
    }));
    assert_eq!(timer.stop().map(|unfired| unfired.len()), Ok(1));
    assert_eq!(timer.recorded().map(|recorded| recorded.operations), Some(1));
}
