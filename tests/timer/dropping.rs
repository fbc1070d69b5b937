//! Dropping the last handle: from outside, and inside a task.

use crate::help::{Count, CountsDrop, Gate, Manual, build, ms, threads_named, wait_until};
use std::ops::ControlFlow;
use std::sync::{Arc, Barrier, OnceLock};
use std::time::Duration;
use tickwheel::{Driver, MissedTick, Mode, Status, Timeout, Timer, TimerBuilder};

in_each_mode! {
    drops_what_is_pending,
    only_the_last_handle_stops_it,
    a_task_cancels_siblings_and_drops_the_last_handle,
    what_is_pending_may_hold_the_timer_itself,
}

fn drops_what_is_pending(manual: Manual) {
    let dropped = Count::default();
    for delay in [1, 100, 10_000, 1 << 40] {
        manual.after(delay, dropped.dropped());
    }
    drop(manual.timer);
    assert_eq!(dropped.get(), 4);
    manual.clock.advance(ms(1_000));
}

fn only_the_last_handle_stops_it(manual: Manual) {
    let first = manual.timer.clone();
    let second = first.clone();
    for (number, timer) in [(1, first), (2, second)] {
        timer.schedule(ms(10), manual.log.task(number)).expect("it runs");
        drop(timer);
        assert_eq!(manual.advance(10), [(u64::from(number) * 10, number)]);
    }
}

/// It ends after the task, and what was pending is dropped by then.
fn a_task_cancels_siblings_and_drops_the_last_handle(mode: Mode) {
    let timer = build(|builder| builder.mode(mode));
    let siblings: Arc<OnceLock<Vec<Timeout>>> = Arc::default();
    let (gate, ended, dropped) = (Gate::default(), Count::default(), Count::default());
    let (last, inner, cancelled) = (timer.clone(), gate.clone(), Arc::clone(&siblings));
    let (count, dropped_inside) = (ended.clone(), dropped.clone());
    let task = move || {
        inner.pass();
        let (cancelled, stopped) = cancelled.get().expect("it was set").split_at(5);
        assert!(cancelled.iter().all(Timeout::cancel));
        assert_eq!(dropped_inside.get(), 5);
        drop(last);
        assert_eq!(dropped_inside.get(), 10);
        assert!(cancelled.iter().all(|timeout| timeout.status() == Status::Cancelled));
        assert!(stopped.iter().all(|timeout| timeout.status() == Status::Stopped));
        count.add();
    };
    let running = timer.schedule(Duration::ZERO, task).expect("it runs");
    gate.reached();
    let sibling = |number: u64| {
        let captured = CountsDrop(dropped.clone());
        let task = move || {
            let _captured = captured;
            unreachable!();
        };
        timer.schedule(ms(number % 2 * 60_000), task).expect("it runs")
    };
    siblings.set((0..10).map(sibling).collect()).expect("set once");
    drop(timer);
    gate.open();
    ended.wait_for(1);
    assert_eq!(running.status(), Status::Fired);
}

/// Then the last handle outside is not the last: only `stop` ends it.
fn what_is_pending_may_hold_the_timer_itself(manual: Manual) {
    let dropped = Count::default();
    let captured = (manual.timer.clone(), CountsDrop(dropped.clone()));
    manual.after(10, move || drop(captured));
    let Manual { clock, timer, .. } = manual;
    drop(timer);
    assert_eq!(dropped.get(), 0);
    // Its own task drops the last one, on the worker.
    clock.advance(ms(10));
    assert_eq!(dropped.get(), 1);
}

#[test]
fn ends_the_thread() {
    for inside in [false, true] {
        let timer = build(|builder| builder.thread_name("ends-by-drop"));
        let (gate, ended) = (Gate::default(), Count::default());
        let (inner, count) = (gate.clone(), ended.clone());
        let last = inside.then(|| timer.clone());
        let task = move || {
            inner.pass();
            drop(last);
            count.add();
        };
        let delay = ms(if inside { 0 } else { 60_000 });
        timer.schedule(delay, task).expect("it runs");
        if inside {
            gate.reached();
        }
        drop(timer);
        gate.open();
        ended.wait_for(usize::from(inside));
        wait_until(|| threads_named("ends-by-drop").unwrap_or(0) == 0);
    }
}

#[test]
fn dropping_waits_for_a_running_task() {
    let (timer, begun, ended) = (Timer::new(), Count::default(), Count::default());
    let counts = (begun.clone(), ended.clone());
    let task = move || {
        counts.0.add();
        std::thread::sleep(ms(20));
        counts.1.add();
    };
    timer.schedule(Duration::ZERO, task).expect("it runs");
    begun.wait_for(1);
    drop(timer);
    assert_eq!(ended.get(), 1);
}

/// Each inside a task of the other: if they waited, it would be for ever.
#[test]
fn two_timers_may_drop_each_other() {
    let timers = [Timer::new(), Timer::new()];
    let (ended, both_run) = (Count::default(), Arc::new(Barrier::new(3)));
    for (own, other) in [(0, 1), (1, 0)] {
        let (last, count, both_run) = (timers[other].clone(), ended.clone(), Arc::clone(&both_run));
        let task = move || {
            both_run.wait();
            both_run.wait();
            drop(last);
            count.add();
        };
        timers[own].schedule(Duration::ZERO, task).expect("it runs");
    }
    both_run.wait();
    drop(timers);
    both_run.wait();
    ended.wait_for(2);
}

/// The driver stays.
#[test]
fn a_repeating_one_that_drops_the_last_handle_is_dropped_with_the_turn_of_its_run() {
    let dropped = Count::default();
    let mut driver = ended_in_a_run(Timer::builder(), CountsDrop(dropped.clone()));
    assert_eq!(dropped.get(), 1);
    assert_eq!(driver.turn(), None);
}

/// Turns a driver until a repeating task, which captures that too, drops the last handle.
fn ended_in_a_run(builder: TimerBuilder, captured: impl Send + 'static) -> Driver {
    let (timer, mut driver) = builder.build_driven().expect("in range");
    let mut both = (Some(timer.clone()), captured);
    let task = move || {
        let (last, _captured) = &mut both;
        drop(last.take());
        ControlFlow::Continue(())
    };
    timer.schedule_repeating(ms(1), MissedTick::Skip, task).expect("it runs");
    drop(timer);
    wait_until(|| {
        driver.turn();
        driver.is_stopped()
    });
    driver
}

/// Its task is dropped at the end of the turn, and with that what it captured, which calls.
#[test]
fn what_is_left_of_a_driven_timer_is_dropped_with_no_lock_held() {
    struct Cancels(Timeout);

    impl Drop for Cancels {
        fn drop(&mut self) {
            self.0.cancel();
        }
    }

    let (panics, other) = (Count::default(), Timer::new());
    let timeout = other.schedule(ms(3_600_000), || {}).expect("it runs");
    let counted = panics.clone();
    let builder = Timer::builder().on_panic(move |_| counted.add());
    ended_in_a_run(builder, Cancels(timeout.clone()));
    assert_eq!((timeout.status(), panics.get()), (Status::Cancelled, 0));
}
