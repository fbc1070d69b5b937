//! Stopping, from outside and from inside.

use crate::help::{Count, CountsDrop, Gate, Manual, build, ms, threads_named, wait_until};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;
use tickwheel::{
    ManualClock, MissedTick, Mode, Next, Run, ScheduleErrorKind, Status, StopError, Task, Timer,
    Unfired,
};

in_each_mode! {
    gives_back_what_did_not_fire,
    nothing_comes_back_where_nothing_waits,
    gives_back_by_deadline,
    scheduling_after_it_gives_the_task_back_and_says_so_with_a_limit_too,
    every_handle_tells_its_end,
    inside_a_task_it_is_an_error,
    each_stop_waits_for_a_running_task_and_the_first_gets_what_is_left,
    a_clock_that_goes_on_moves_nothing,
    what_was_scheduled_for_the_past_and_comes_back_says_so,
}

fn gives_back_what_did_not_fire(manual: Manual) {
    let dropped = Count::default();
    (0..3).for_each(|number| drop(manual.once(1, number)));
    for number in 3..6 {
        let (log, captured) = (manual.log.clone(), CountsDrop(dropped.clone()));
        let task = move || {
            let _captured = captured;
            log.write(number);
        };
        manual.after(5_000, task);
    }
    assert_eq!(manual.advance(10).len(), 3);
    let unfired = manual.timer.stop().expect("outside");
    assert_eq!((unfired.len(), dropped.get(), manual.timer.pending()), (3, 0, 0));
    for unfired in unfired {
        assert_eq!(unfired.deadline(), Some(manual.at(5_000)));
        let Task::Once(task) = unfired.into_task() else { panic!("it was to run once") };
        task();
    }
    assert_eq!(manual.log.take(), [(10, 3), (10, 4), (10, 5)]);
    assert_eq!(dropped.get(), 3);
}

/// Whether all has fired or nothing was ever scheduled.
fn nothing_comes_back_where_nothing_waits(mode: Mode) {
    for timeouts in [0, 3] {
        let manual = Manual::new(mode);
        (0..timeouts).for_each(|_| drop(manual.idle(1)));
        manual.advance(1);
        assert!(!manual.timer.is_stopped());
        for _ in 0..2 {
            assert!(manual.timer.stop().expect("outside").is_empty(), "of {timeouts}");
            assert!(manual.timer.is_stopped());
        }
        assert!(manual.timer.schedule(ms(1), || {}).is_err());
        manual.advance(10);
    }
}

/// The wheel has another deadline for such a timeout than its handle.
fn what_was_scheduled_for_the_past_and_comes_back_says_so(mode: Mode) {
    let clock = ManualClock::new();
    let builder = Timer::builder().mode(mode).shards(1).clock(clock.clone());
    let (timer, mut driver) = builder.build_driven().expect("in range");
    let start = timer.now();
    let fired = timer.schedule(ms(5), || {}).expect("it runs");
    for _ in 0..2 {
        clock.advance(ms(5));
        driver.turn();
    }
    let made_late = timer.schedule_at(start + ms(3), || {}).expect("it runs");
    let moved_late = timer.schedule(ms(100), || {}).expect("it runs");
    assert!(moved_late.reschedule_at(start + ms(3)));
    assert_eq!(timer.stop().expect("outside").len(), 2);
    assert_eq!(fired.status(), Status::Fired);
    assert_eq!([made_late.status(), moved_late.status()], [Status::Stopped; 2]);
}

fn gives_back_by_deadline(mode: Mode) {
    let manual = Manual::built(mode, |builder| builder.shards(4));
    for thread in 0..4_u64 {
        let schedule = || {
            (0..100).for_each(|delay| drop(manual.idle((delay * 7 + thread) % 100 * 1_000 + 1)));
            manual.timer.schedule(Duration::MAX, || {}).map(drop).expect("it runs");
        };
        thread::scope(|scope| scope.spawn(schedule).join()).unwrap();
    }
    let unfired = manual.timer.stop().expect("outside");
    assert_eq!(unfired.len(), 404);
    let (with, without) = unfired.split_at(400);
    assert!(with.iter().all(|unfired| unfired.deadline().is_some()));
    assert!(with.is_sorted_by_key(|unfired| unfired.deadline()));
    assert!(without.iter().all(|unfired| unfired.deadline().is_none()));
}

fn scheduling_after_it_gives_the_task_back_and_says_so_with_a_limit_too(mode: Mode) {
    for limit in [1, usize::MAX] {
        let manual = Manual::built(mode, |builder| builder.max_pending(limit));
        manual.idle(1);
        assert_eq!(manual.timer.stop().expect("outside").len(), 1);
        for _ in 0..3 {
            let error = manual.timer.schedule(ms(1), manual.log.task(1)).expect_err("stopped");
            assert_eq!(error.kind(), ScheduleErrorKind::Stopped, "limit {limit}");
            assert_eq!(error.to_string(), "the timer was stopped");
            error.into_task()();
            assert_eq!(manual.log.take(), [(0, 1)]);
        }
    }
}

fn every_handle_tells_its_end(manual: Manual) {
    let (fired, cancelled) = (manual.idle(1), manual.idle(2));
    let waiting: Vec<_> = (3..300).map(|delay| manual.idle(delay)).collect();
    manual.advance(1);
    assert!(cancelled.cancel());
    assert_eq!(manual.timer.stop().expect("outside").len(), waiting.len());
    assert_eq!((fired.status(), cancelled.status()), (Status::Fired, Status::Cancelled));
    for timeout in &waiting {
        assert_eq!(timeout.status(), Status::Stopped);
        assert!(!timeout.cancel() && !timeout.reschedule(ms(1)));
        assert_eq!(timeout.status(), Status::Stopped);
    }
}

fn inside_a_task_it_is_an_error(manual: Manual) {
    let (timer, log) = (manual.timer.clone(), manual.log.clone());
    let task = move || {
        let error: StopError = timer.stop().expect_err("inside");
        assert!(!error.to_string().is_empty() && !timer.is_stopped());
        timer.schedule(ms(1), log.task(2)).map(drop).expect("it still runs");
        log.write(1);
    };
    manual.after(1, task);
    assert_eq!(manual.advance(5), [(1, 1), (2, 2)]);
    assert!(manual.timer.stop().expect("outside").is_empty());
}

fn each_stop_waits_for_a_running_task_and_the_first_gets_what_is_left(mode: Mode) {
    for stops in [1, 4] {
        let timer = build(|builder| builder.mode(mode));
        let (gate, other) = (Gate::default(), Count::default());
        let running = timer.schedule(Duration::ZERO, gate.task()).expect("it runs");
        gate.reached();
        for delay in [0, 60_000] {
            timer.schedule(ms(delay), other.task()).expect("it runs");
        }
        let stop = || {
            let unfired = timer.stop().expect("outside").len();
            assert_eq!((gate.passed(), timer.pending()), (1, 0));
            unfired
        };
        let unfired = thread::scope(|scope| {
            let stopping: Vec<_> = (0..stops).map(|_| scope.spawn(stop)).collect();
            wait_until(|| timer.is_stopped());
            thread::sleep(ms(5));
            assert!(stopping.iter().all(|thread| !thread.is_finished()));
            gate.open();
            stopping.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
        });
        assert_eq!((unfired, other.get(), running.status()), (2, 0, Status::Fired));
    }
}

fn a_clock_that_goes_on_moves_nothing(manual: Manual) {
    manual.once(10, 1);
    let unfired = manual.timer.stop().expect("outside");
    assert_eq!(manual.advance(100), []);
    drop(unfired);
    assert_eq!(manual.now(), 100);
}

#[test]
fn ends_the_thread() {
    let timer = build(|builder| builder.thread_name("ends-by-stop"));
    timer.schedule(ms(60_000), || {}).expect("it runs");
    timer.stop().expect("outside");
    // It is joined; the system may take a moment to forget it.
    wait_until(|| threads_named("ends-by-stop").unwrap_or(0) == 0);
}

/// Of a timer, another timer's task is outside.
#[test]
fn inside_a_task_of_another_timer_it_works() {
    let (first, second) = (Timer::new(), Timer::new());
    let waiting = second.schedule(ms(3_600_000), || {}).expect("it runs");
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
    begun.wait_for(1);
    timer.stop().expect("outside");
    let (refused, is_error) = results.lock().unwrap()[0];
    assert!(matches!(refused, Ok(()) | Err(ScheduleErrorKind::Stopped)) && is_error);
}

/// Runs `body` on a thread that schedules into that one of a timer's two shards.
fn in_shard<T: Send>(number: usize, timer: &Timer, body: impl Fn() -> T + Sync) -> T {
    let waiting = || {
        let shard = &timer.stats().shards[number];
        shard.sorted + shard.timeouts_per_level.iter().sum::<usize>()
    };
    let body = || {
        let before = waiting();
        timer.schedule(ms(60_000), || {}).expect("it runs");
        (before < waiting()).then(&body)
    };
    loop {
        let tried = thread::scope(|scope| scope.spawn(body).join().expect("it does not panic"));
        if let Some(value) = tried {
            return value;
        }
    }
}

/// Those that the worker had taken out run while the other shard is emptied.
#[test]
fn repeating_ones_that_run_while_it_stops_all_come_back() {
    let manual = Manual::with(|builder| builder.shards(2));
    let (timer, begun, dropped) = (&manual.timer, Count::default(), Count::default());
    let repeating = |number| {
        let (stopping, captured) = (timer.clone(), CountsDrop(dropped.clone()));
        let begins = begun.clone();
        let task = move |_: &Run| {
            let _captured = &captured;
            begins.add();
            wait_until(|| stopping.is_stopped() || 0 < number);
            Next::After(ms(10))
        };
        timer.schedule_with(ms(1), task).expect("it runs")
    };
    in_shard(0, timer, || (0..50_000).for_each(|_| drop(manual.idle(60_000))));
    let handles = in_shard(1, timer, || (0..3).map(repeating).collect::<Vec<_>>());
    let (clock, pending) = (manual.clock.clone(), timer.pending());
    let moving = thread::spawn(move || clock.jump(ms(2)));
    // The first of them runs.
    begun.wait_for(1);
    assert_eq!(timer.pending(), pending);
    let unfired = timer.stop().expect("outside");
    assert_eq!(timer.pending(), 0);
    moving.join().expect("it does not panic");
    assert_eq!((unfired.len(), dropped.get()), (pending, 0));
    let tasks = unfired.into_iter().map(Unfired::into_task);
    assert_eq!(tasks.filter(|task| matches!(task, Task::Repeating(_))).count(), 3);
    assert!(handles.iter().all(|handle| handle.status() == Status::Stopped));
}

#[test]
fn while_a_stop_waits_for_the_task_of_one_that_repeats_that_is_pending() {
    let (timer, gate) = (Timer::new(), Gate::default());
    let passes = gate.clone();
    let task = move || {
        passes.pass();
        ControlFlow::<()>::Continue(())
    };
    let handle = timer.schedule_repeating(ms(1), MissedTick::Skip, task).expect("it runs");
    gate.reached();
    let stopping = timer.clone();
    let stops = thread::spawn(move || stopping.stop().expect("outside").len());
    wait_until(|| timer.is_stopped());
    assert_eq!((handle.status(), timer.pending()), (Status::Pending, 1));
    gate.open();
    stops.join().expect("it does not panic");
    assert_ne!(handle.status(), Status::Pending);
}
