//! Taking timeouts back.

use crate::help::{Count, CountsDrop, Manual, ms};
use std::sync::{Arc, Mutex};
use tickwheel::{Mode, Status, Timeout, Timer};

in_each_mode! {
    cancelled_it_never_runs,
    after_it_fired_it_is_too_late,
    a_stale_handle_cancels_nothing_else,
    what_it_captured_is_dropped_before_cancel_returns,
    siblings_of_the_same_tick_can_be_cancelled_by_a_task,
    head_middle_and_last_of_a_due_batch_can_be_cancelled_by_a_task,
    a_task_cannot_cancel_itself,
    what_it_captured_may_call_the_timer_as_it_is_dropped,
    a_handle_outlives_its_timer,
}

fn cancelled_it_never_runs(mode: Mode) {
    let manual = Manual::new(mode);
    let timeout = manual.timer.schedule(ms(10), manual.log.task(1)).expect("it runs");
    manual.timer.schedule(ms(10), manual.log.task(2)).expect("it runs");
    assert!(timeout.cancel());
    assert!(!timeout.cancel());
    assert_eq!(timeout.status(), Status::Cancelled);
    assert_eq!(timeout.status(), Status::Cancelled);
    assert_eq!(manual.advance(100), [(10, 2)]);
    assert_eq!(timeout.status(), Status::Cancelled);
    assert!(!timeout.reschedule(ms(10)));
    assert_eq!(manual.advance(100), []);
}

fn after_it_fired_it_is_too_late(mode: Mode) {
    let manual = Manual::new(mode);
    let timeout = manual.timer.schedule(ms(10), manual.log.task(1)).expect("it runs");
    assert_eq!(manual.advance(10), [(10, 1)]);
    assert!(!timeout.cancel());
    assert_eq!(timeout.status(), Status::Fired);
    assert_eq!(manual.timer.stats().cancelled, 0);
}

fn a_stale_handle_cancels_nothing_else(mode: Mode) {
    let manual = Manual::new(mode);
    let mut stale = Vec::new();
    for number in 0..100 {
        let timeout = manual.timer.schedule(ms(10), manual.log.task(number)).expect("it runs");
        if number % 2 == 0 {
            assert!(timeout.cancel());
        } else {
            assert_eq!(manual.advance(10).len(), 1);
        }
        stale.push(timeout);
        let last = manual.timer.schedule(ms(1_000), || {}).expect("it runs");
        assert!(stale.iter().all(|timeout| !timeout.cancel() && !timeout.reschedule(ms(1))));
        assert_eq!(last.status(), Status::Pending);
        assert!(last.cancel());
    }
}

fn what_it_captured_is_dropped_before_cancel_returns(mode: Mode) {
    let manual = Manual::new(mode);
    let dropped = Count::default();
    let schedule = |delay| {
        let captured = CountsDrop(dropped.clone());
        manual.timer.schedule(ms(delay), move || drop(captured)).expect("it runs")
    };
    let timeouts: Vec<_> = [1, 1_000, 1_000_000, 1_000_000_000].map(schedule).into();
    for (cancelled, timeout) in (1..).zip(timeouts) {
        assert!(timeout.cancel());
        assert_eq!(dropped.get(), cancelled);
    }
    assert!(schedule(10).reschedule(ms(20)));
    manual.advance(20);
    assert_eq!(dropped.get(), 5);
}

/// Ten of one tick, and a task of the same tick that cancels them: none runs, and none is counted
/// twice.
fn siblings_of_the_same_tick_can_be_cancelled_by_a_task(mode: Mode) {
    let manual = Manual::new(mode);
    let siblings: Arc<Mutex<Vec<Timeout>>> = Arc::default();
    let (log, cancelled) = (manual.log.clone(), Arc::clone(&siblings));
    let task = move || {
        log.write(1);
        assert!(cancelled.lock().unwrap().iter().all(Timeout::cancel));
    };
    manual.timer.schedule(ms(10), task).expect("it runs");
    for _ in 0..10 {
        let sibling = manual.timer.schedule(ms(10), || unreachable!()).expect("it runs");
        siblings.lock().unwrap().push(sibling);
    }
    assert_eq!(manual.advance(20), [(10, 1)]);
    assert_eq!(manual.timer.pending(), 0);
    let stats = manual.timer.stats();
    assert_eq!((stats.fired, stats.cancelled, stats.panics), (1, 10, 0));
}

fn head_middle_and_last_of_a_due_batch_can_be_cancelled_by_a_task(mode: Mode) {
    let manual = Manual::new(mode);
    let batch: Arc<Mutex<Vec<Timeout>>> = Arc::default();
    for number in 0..10 {
        let (log, batch_inner) = (manual.log.clone(), Arc::clone(&batch));
        let task = move || {
            log.write(number);
            if number == 1 {
                let batch = batch_inner.lock().unwrap();
                // The first has run, the second is running.
                let cancelled: Vec<_> =
                    [0, 1, 2, 5, 9, 10].map(|index| batch[index].cancel()).into();
                assert_eq!(cancelled, [false, false, true, true, true, true]);
            }
        };
        let timeout = manual.timer.schedule(ms(10), task).expect("it runs");
        batch.lock().unwrap().push(timeout);
    }
    let other = manual.timer.schedule(ms(500), || unreachable!()).expect("it runs");
    batch.lock().unwrap().push(other);
    let ran: Vec<_> = manual.advance(1_000).into_iter().map(|(_, number)| number).collect();
    assert_eq!(ran, [0, 1, 3, 4, 6, 7, 8]);
    assert_eq!(manual.timer.stats().panics, 0);
}

fn a_task_cannot_cancel_itself(mode: Mode) {
    let manual = Manual::new(mode);
    let own: Arc<Mutex<Option<Timeout>>> = Arc::default();
    let (handle, log) = (Arc::clone(&own), manual.log.clone());
    let task = move || {
        let handle = handle.lock().unwrap().take().expect("it was put there");
        assert!(!handle.cancel() && handle.status() == Status::Fired && !handle.reschedule(ms(1)));
        log.write(1);
    };
    *own.lock().unwrap() = Some(manual.timer.schedule(ms(10), task).expect("it runs"));
    assert_eq!(manual.advance(10), [(10, 1)]);
}

fn what_it_captured_may_call_the_timer_as_it_is_dropped(mode: Mode) {
    struct Schedules(Timer, Option<Box<dyn FnOnce() + Send>>);

    impl Drop for Schedules {
        fn drop(&mut self) {
            if let Some(task) = self.1.take() {
                self.0.schedule(ms(5), task).map(drop).expect("it runs");
                assert!(self.0.pending() > 0);
            }
        }
    }

    let manual = Manual::new(mode);
    let captured = Schedules(manual.timer.clone(), Some(Box::new(manual.log.task(1))));
    let timeout = manual.timer.schedule(ms(10), move || drop(captured)).expect("it runs");
    assert!(timeout.cancel());
    assert_eq!(manual.advance(10), [(5, 1)]);
}

fn a_handle_outlives_its_timer(mode: Mode) {
    let manual = Manual::new(mode);
    let fired = manual.timer.schedule(ms(1), || {}).expect("it runs");
    let cancelled = manual.timer.schedule(ms(2), || {}).expect("it runs");
    let waiting = manual.timer.schedule(ms(3), || {}).expect("it runs");
    manual.advance(1);
    assert!(cancelled.cancel());
    drop(manual.timer);
    assert!(
        fired.status() == Status::Fired
            && cancelled.status() == Status::Cancelled
            && waiting.status() == Status::Stopped
    );
    for timeout in [fired, cancelled, waiting] {
        assert!(
            !timeout.cancel() && !timeout.reschedule(ms(1)) && timeout.status() != Status::Pending
        );
    }
}
