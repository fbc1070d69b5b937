//! Dropping the last handle: from outside, and inside a task.

use crate::help::{Count, CountsDrop, Manual, ms, threads_named, wait_until};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::time::Duration;
use tickwheel::{Mode, Status, Timeout, Timer};

in_each_mode! {
    drops_what_is_pending,
    every_handle_tells_its_end,
    only_the_last_handle_stops_it,
    inside_a_task_it_ends_after_it,
    a_task_cancels_siblings_and_drops_the_last_handle,
    what_is_pending_may_hold_the_timer_itself,
}

fn drops_what_is_pending(mode: Mode) {
    let manual = Manual::new(mode);
    let dropped = Count::default();
    for delay in [1, 100, 10_000, 1 << 40] {
        let captured = CountsDrop(dropped.clone());
        manual.timer.schedule(ms(delay), move || drop(captured)).expect("it runs");
    }
    drop(manual.timer);
    assert_eq!(dropped.get(), 4);
    manual.clock.advance(ms(1_000));
}

fn every_handle_tells_its_end(mode: Mode) {
    let manual = Manual::new(mode);
    let fired = manual.timer.schedule(ms(1), || {}).expect("it runs");
    manual.advance(1);
    let waiting = manual.timer.schedule(ms(1), || {}).expect("it runs");
    drop(manual.timer);
    assert!(
        fired.status() == Status::Fired && waiting.status() == Status::Stopped && !waiting.cancel()
    );
}

fn only_the_last_handle_stops_it(mode: Mode) {
    let manual = Manual::new(mode);
    let first = manual.timer.clone();
    let second = first.clone();
    first.schedule(ms(10), manual.log.task(1)).expect("it runs");
    drop(first);
    assert_eq!(manual.advance(10), [(10, 1)]);
    second.schedule(ms(10), manual.log.task(2)).expect("it runs");
    drop(second);
    assert_eq!(manual.advance(10), [(20, 2)]);
}

fn inside_a_task_it_ends_after_it(mode: Mode) {
    let timer = Timer::builder().mode(mode).build().expect("in range");
    let (ended, dropped) = (Count::default(), Count::default());
    let captured = CountsDrop(dropped.clone());
    let waiting = timer.schedule(Duration::from_secs(60), move || drop(captured)).expect("it runs");
    let (last, count, dropped_inside) = (timer.clone(), ended.clone(), dropped.clone());
    let (sender, receiver) = mpsc::channel();
    let task = move || {
        receiver.recv().unwrap();
        drop(last);
        assert_eq!(dropped_inside.get(), 1);
        count.add();
    };
    let running = timer.schedule(Duration::ZERO, task).expect("it runs");
    wait_until(|| timer.pending() == 1);
    drop(timer);
    sender.send(()).unwrap();
    wait_until(|| ended.get() == 1);
    assert!(running.status() == Status::Fired && waiting.status() == Status::Stopped);
}

fn a_task_cancels_siblings_and_drops_the_last_handle(mode: Mode) {
    let timer = Timer::builder().mode(mode).build().expect("in range");
    let siblings: Arc<Mutex<Vec<Timeout>>> = Arc::default();
    let (cancelled, ended) = (Arc::clone(&siblings), Count::default());
    let (last, count) = (timer.clone(), ended.clone());
    let (sender, receiver) = mpsc::channel();
    let task = move || {
        receiver.recv().unwrap();
        let siblings = cancelled.lock().unwrap();
        assert!(siblings[..5].iter().all(Timeout::cancel));
        drop(last);
        assert!(siblings[..5].iter().all(|timeout| timeout.status() == Status::Cancelled));
        assert!(siblings[5..].iter().all(|timeout| timeout.status() == Status::Stopped));
        count.add();
    };
    timer.schedule(Duration::ZERO, task).expect("it runs");
    wait_until(|| timer.pending() == 0);
    for _ in 0..10 {
        let sibling = timer.schedule(Duration::ZERO, || unreachable!()).expect("it runs");
        siblings.lock().unwrap().push(sibling);
    }
    drop(timer);
    sender.send(()).unwrap();
    wait_until(|| ended.get() == 1);
}

/// Then the last handle outside is not the last: only `stop` ends it.
fn what_is_pending_may_hold_the_timer_itself(mode: Mode) {
    let manual = Manual::new(mode);
    let dropped = Count::default();
    let captured = (manual.timer.clone(), CountsDrop(dropped.clone()));
    manual.timer.schedule(ms(10), move || drop(captured)).expect("it runs");
    let Manual { clock, timer, .. } = manual;
    drop(timer);
    assert_eq!(dropped.get(), 0);
    // Its own task drops the last one, on the worker.
    clock.advance(ms(10));
    assert_eq!(dropped.get(), 1);
}

#[test]
fn ends_the_thread() {
    let timer = Timer::builder().thread_name("ends-by-drop").build().expect("in range");
    timer.schedule(Duration::from_secs(60), || {}).expect("it runs");
    drop(timer);
    wait_until(|| threads_named("ends-by-drop").unwrap_or(0) == 0);

    let timer = Timer::builder().thread_name("ends-by-itself").build().expect("in range");
    let last = timer.clone();
    let ended = Count::default();
    let count = ended.clone();
    let (sender, receiver) = mpsc::channel();
    let task = move || {
        receiver.recv().unwrap();
        drop(last);
        count.add();
    };
    timer.schedule(Duration::ZERO, task).expect("it runs");
    wait_until(|| timer.pending() == 0);
    drop(timer);
    sender.send(()).unwrap();
    wait_until(|| ended.get() == 1);
    wait_until(|| threads_named("ends-by-itself").unwrap_or(0) == 0);
}

#[test]
fn dropping_waits_for_a_running_task() {
    let timer = Timer::new();
    let (begun, ended) = (Count::default(), Count::default());
    let counts = (begun.clone(), ended.clone());
    let task = move || {
        counts.0.add();
        std::thread::sleep(ms(20));
        counts.1.add();
    };
    timer.schedule(Duration::ZERO, task).expect("it runs");
    wait_until(|| begun.get() == 1);
    drop(timer);
    assert_eq!(ended.get(), 1);
}

/// Each inside a task of the other: if they waited, it would be for ever.
#[test]
fn two_timers_may_drop_each_other() {
    let timers = [Timer::new(), Timer::new()];
    let ended = Count::default();
    let both_run = Arc::new(Barrier::new(3));
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
    wait_until(|| ended.get() == 2);
}
