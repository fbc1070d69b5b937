//! Stopping, from outside and from inside.

use crate::help::{Count, CountsDrop, Manual, ms, threads_named, wait_until};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;
use tickwheel::{Mode, ScheduleErrorKind, Status, StopError, Task, Timer};

in_each_mode! {
    gives_back_what_did_not_fire,
    after_everything_fired_nothing_comes_back,
    before_anything_was_scheduled_it_is_fine,
    gives_back_by_deadline,
    scheduling_after_it_gives_the_task_back,
    every_handle_tells_its_end,
    inside_a_task_it_is_an_error,
    waits_for_a_running_task,
    a_second_stop_waits_for_the_first_and_gets_nothing,
    a_clock_that_goes_on_moves_nothing,
}

fn gives_back_what_did_not_fire(mode: Mode) {
    let manual = Manual::new(mode);
    let dropped = Count::default();
    for number in 0..3 {
        manual.timer.schedule(ms(1), manual.log.task(number)).expect("it runs");
    }
    for number in 3..6 {
        let (log, captured) = (manual.log.clone(), CountsDrop(dropped.clone()));
        let task = move || {
            let _captured = captured;
            log.write(number);
        };
        manual.timer.schedule(ms(5_000), task).expect("it runs");
    }
    assert_eq!(manual.advance(10).len(), 3);
    let unfired = manual.timer.stop().expect("outside");
    assert_eq!((unfired.len(), dropped.get(), manual.timer.pending()), (3, 0, 0));
    assert!(unfired.iter().all(|unfired| unfired.deadline() == Some(manual.at(5_000))));
    for unfired in unfired {
        let Task::Once(task) = unfired.into_task() else { panic!("it was to run once") };
        task();
    }
    assert_eq!(manual.log.take(), [(10, 3), (10, 4), (10, 5)]);
    assert_eq!(dropped.get(), 3);
}

fn after_everything_fired_nothing_comes_back(mode: Mode) {
    let manual = Manual::new(mode);
    for _ in 0..3 {
        manual.timer.schedule(ms(1), || {}).expect("it runs");
    }
    manual.advance(1);
    assert!(manual.timer.stop().expect("outside").is_empty());
    assert!(manual.timer.stop().expect("outside").is_empty());
}

fn before_anything_was_scheduled_it_is_fine(mode: Mode) {
    let manual = Manual::new(mode);
    assert!(!manual.timer.is_stopped());
    assert!(manual.timer.stop().expect("outside").is_empty());
    assert!(manual.timer.is_stopped());
    assert!(manual.timer.schedule(ms(1), || {}).is_err());
    manual.advance(10);
}

fn gives_back_by_deadline(mode: Mode) {
    let manual = Manual::built(mode, |builder| builder.shards(4));
    for thread in 0..4_u64 {
        let timer = manual.timer.clone();
        let schedule = move || {
            for delay in 0..100 {
                let delay = ms((delay * 7 + thread) % 100 * 1_000);
                timer.schedule(delay + ms(1), || {}).map(drop).expect("it runs");
            }
            timer.schedule(Duration::MAX, || {}).map(drop).expect("it runs");
        };
        thread::spawn(schedule).join().unwrap();
    }
    let unfired = manual.timer.stop().expect("outside");
    assert_eq!(unfired.len(), 404);
    let (with, without) = unfired.split_at(400);
    assert!(with.iter().all(|unfired| unfired.deadline().is_some()));
    assert!(with.is_sorted_by_key(|unfired| unfired.deadline()));
    assert!(without.iter().all(|unfired| unfired.deadline().is_none()));
}

fn scheduling_after_it_gives_the_task_back(mode: Mode) {
    let manual = Manual::new(mode);
    manual.timer.schedule(ms(1), || {}).expect("it runs");
    assert_eq!(manual.timer.stop().expect("outside").len(), 1);
    let error = manual.timer.schedule(ms(1), manual.log.task(1)).expect_err("stopped");
    assert_eq!(error.kind(), ScheduleErrorKind::Stopped);
    error.into_task()();
    assert_eq!(manual.log.take(), [(0, 1)]);
}

fn every_handle_tells_its_end(mode: Mode) {
    let manual = Manual::new(mode);
    let schedule = |delay| manual.timer.schedule(ms(delay), || {}).expect("it runs");
    let (fired, cancelled) = (schedule(1), schedule(2));
    let waiting: Vec<_> = (3..300).map(schedule).collect();
    manual.advance(1);
    assert!(cancelled.cancel());
    assert_eq!(manual.timer.stop().expect("outside").len(), waiting.len());
    assert!(fired.status() == Status::Fired && cancelled.status() == Status::Cancelled);
    for timeout in &waiting {
        assert_eq!(timeout.status(), Status::Stopped);
        assert!(!timeout.cancel() && !timeout.reschedule(ms(1)));
        assert_eq!(timeout.status(), Status::Stopped);
    }
}

fn inside_a_task_it_is_an_error(mode: Mode) {
    let manual = Manual::new(mode);
    let (timer, log) = (manual.timer.clone(), manual.log.clone());
    let task = move || {
        let error: StopError = timer.stop().expect_err("inside");
        assert!(!error.to_string().is_empty());
        assert!(!timer.is_stopped());
        timer.schedule(ms(1), log.task(2)).map(drop).expect("it still runs");
        log.write(1);
    };
    manual.timer.schedule(ms(1), task).expect("it runs");
    assert_eq!(manual.advance(5), [(1, 1), (2, 2)]);
    assert!(manual.timer.stop().expect("outside").is_empty());
}

fn waits_for_a_running_task(mode: Mode) {
    let timer = Timer::builder().mode(mode).build().expect("in range");
    let (begun, ended, other) = (Count::default(), Count::default(), Count::default());
    let (sender, receiver) = mpsc::channel::<()>();
    let counts = (begun.clone(), ended.clone());
    let task = move || {
        counts.0.add();
        assert!(receiver.recv().is_err());
        counts.1.add();
    };
    let running = timer.schedule(Duration::ZERO, task).expect("it runs");
    wait_until(|| begun.get() == 1);
    timer.schedule(Duration::ZERO, other.task()).expect("it runs");
    let stopping = {
        let (timer, ended) = (timer.clone(), ended.clone());
        thread::spawn(move || (timer.stop().expect("outside").len(), ended.get()))
    };
    wait_until(|| timer.is_stopped());
    thread::sleep(ms(5));
    assert!(!stopping.is_finished());
    drop(sender);
    assert_eq!(stopping.join().unwrap(), (1, 1));
    assert_eq!(other.get(), 0);
    assert_eq!(running.status(), Status::Fired);
}

fn a_second_stop_waits_for_the_first_and_gets_nothing(mode: Mode) {
    let timer = Timer::builder().mode(mode).build().expect("in range");
    let (begun, ended) = (Count::default(), Count::default());
    let (sender, receiver) = mpsc::channel::<()>();
    let counts = (begun.clone(), ended.clone());
    let task = move || {
        counts.0.add();
        assert!(receiver.recv().is_err());
        counts.1.add();
    };
    timer.schedule(Duration::ZERO, task).expect("it runs");
    timer.schedule(Duration::from_secs(60), || {}).expect("it runs");
    wait_until(|| begun.get() == 1);
    let stopping: Vec<_> = (0..4)
        .map(|_| {
            let (timer, ended) = (timer.clone(), ended.clone());
            thread::spawn(move || {
                let unfired = timer.stop().expect("outside").len();
                assert_eq!((ended.get(), timer.pending()), (1, 0));
                unfired
            })
        })
        .collect();
    wait_until(|| timer.is_stopped());
    thread::sleep(ms(5));
    assert!(stopping.iter().all(|thread| !thread.is_finished()));
    drop(sender);
    let returned: usize = stopping.into_iter().map(|thread| thread.join().unwrap()).sum();
    assert_eq!(returned, 1);
}

fn a_clock_that_goes_on_moves_nothing(mode: Mode) {
    let manual = Manual::new(mode);
    manual.timer.schedule(ms(10), manual.log.task(1)).expect("it runs");
    let unfired = manual.timer.stop().expect("outside");
    assert_eq!(manual.advance(100), []);
    drop(unfired);
    assert_eq!(manual.now(), 100);
}

#[test]
fn ends_the_thread() {
    let timer = Timer::builder().thread_name("ends-by-stop").build().expect("in range");
    timer.schedule(Duration::from_secs(60), || {}).expect("it runs");
    timer.stop().expect("outside");
    // It is joined; the system may take a moment to forget it.
    wait_until(|| threads_named("ends-by-stop").unwrap_or(0) == 0);
}

/// Of a timer, another timer's task is outside.
#[test]
fn inside_a_task_of_another_timer_it_works() {
    let (first, second) = (Timer::new(), Timer::new());
    let waiting = second.schedule(Duration::from_secs(60), || {}).expect("it runs");
    let (sender, receiver) = mpsc::channel();
    first.schedule(Duration::ZERO, move || sender.send(second.stop()).unwrap()).expect("it runs");
    assert_eq!(receiver.recv().unwrap().expect("outside").len(), 1);
    assert_eq!(waiting.status(), Status::Stopped);
}

#[test]
fn tasks_still_running_may_use_the_timer_while_it_stops() {
    let timer = Timer::new();
    let (begun, results) = (Count::default(), Arc::new(Mutex::new(Vec::new())));
    let (inner, count, collected) = (timer.clone(), begun.clone(), Arc::clone(&results));
    let task = move || {
        count.add();
        wait_until(|| inner.is_stopped());
        let error = inner.schedule(Duration::ZERO, || {}).map(drop).map_err(|error| error.kind());
        collected.lock().unwrap().push((error, inner.stop().is_err()));
    };
    timer.schedule(Duration::ZERO, task).expect("it runs");
    wait_until(|| begun.get() == 1);
    timer.stop().expect("outside");
    let (refused, is_error) = results.lock().unwrap()[0];
    assert!(matches!(refused, Ok(()) | Err(ScheduleErrorKind::Stopped)) && is_error);
}
