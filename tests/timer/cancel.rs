//! Taking timeouts back.

use crate::help::{BoxedTask, Count, Manual, ms};
use std::sync::{Arc, Mutex, OnceLock};
use tickwheel::{Status, Timeout, Timer};

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

fn cancelled_it_never_runs(manual: Manual) {
    let timeout = manual.once(10, 1);
    manual.once(10, 2);
    assert!(timeout.cancel() && !timeout.cancel());
    assert_eq!([timeout.status(), timeout.status()], [Status::Cancelled; 2]);
    assert_eq!(manual.advance(100), [(10, 2)]);
    assert_eq!((timeout.status(), timeout.reschedule(ms(10))), (Status::Cancelled, false));
    assert_eq!(manual.advance(100), []);
}

fn after_it_fired_it_is_too_late(manual: Manual) {
    let timeout = manual.once(10, 1);
    assert_eq!(manual.advance(10), [(10, 1)]);
    assert_eq!((timeout.cancel(), timeout.status()), (false, Status::Fired));
    assert_eq!(manual.timer.stats().cancelled, 0);
}

fn a_stale_handle_cancels_nothing_else(manual: Manual) {
    let mut stale = Vec::new();
    for number in 0..100 {
        let timeout = manual.once(10, number);
        if number % 2 == 0 {
            assert!(timeout.cancel());
        } else {
            assert_eq!(manual.advance(10).len(), 1);
        }
        stale.push(timeout);
        let last = manual.idle(1_000);
        assert!(stale.iter().all(|timeout| !timeout.cancel() && !timeout.reschedule(ms(1))));
        assert_eq!(last.status(), Status::Pending);
        assert!(last.cancel());
    }
}

fn what_it_captured_is_dropped_before_cancel_returns(manual: Manual) {
    let dropped = Count::default();
    let schedule = |delay| manual.after(delay, dropped.dropped());
    for (cancelled, timeout) in (1..).zip([1, 1_000, 1_000_000, 1_000_000_000].map(schedule)) {
        assert!(timeout.cancel());
        assert_eq!(dropped.get(), cancelled);
    }
    assert!(schedule(10).reschedule(ms(20)));
    manual.advance(20);
    assert_eq!(dropped.get(), 5);
}

/// Ten of one tick, and a task of the same tick that cancels them: none runs, and none is counted
/// twice.
fn siblings_of_the_same_tick_can_be_cancelled_by_a_task(manual: Manual) {
    let siblings: Arc<OnceLock<[Timeout; 10]>> = Arc::default();
    let (log, cancelled) = (manual.log.clone(), Arc::clone(&siblings));
    let task = move || {
        log.write(1);
        assert!(cancelled.get().expect("it was set").iter().all(Timeout::cancel));
    };
    manual.after(10, task);
    siblings.set([(); 10].map(|()| manual.after(10, || unreachable!()))).expect("set once");
    assert_eq!(manual.advance(20), [(10, 1)]);
    let stats = manual.timer.stats();
    assert_eq!((stats.pending, stats.fired, stats.cancelled, stats.panics), (0, 1, 10, 0));
}

fn head_middle_and_last_of_a_due_batch_can_be_cancelled_by_a_task(manual: Manual) {
    let batch: Arc<Mutex<Vec<Timeout>>> = Arc::default();
    for number in 0..10 {
        let (log, inner) = (manual.log.clone(), Arc::clone(&batch));
        let task = move || {
            log.write(number);
            if number == 1 {
                // The first has run, the second is running.
                let batch = inner.lock().unwrap();
                let cancelled = [0, 1, 2, 5, 9, 10].map(|index| batch[index].cancel());
                assert_eq!(cancelled, [false, false, true, true, true, true]);
            }
        };
        batch.lock().unwrap().push(manual.after(10, task));
    }
    batch.lock().unwrap().push(manual.after(500, || unreachable!()));
    assert_eq!(manual.advance(1_000), [0, 1, 3, 4, 6, 7, 8].map(|number| (10, number)));
    assert_eq!(manual.timer.stats().panics, 0);
}

fn a_task_cannot_cancel_itself(manual: Manual) {
    let own: Arc<OnceLock<Timeout>> = Arc::default();
    let (handle, log) = (Arc::clone(&own), manual.log.clone());
    let task = move || {
        let handle = handle.get().expect("it was set");
        assert!(!handle.cancel() && handle.status() == Status::Fired && !handle.reschedule(ms(1)));
        log.write(1);
    };
    own.set(manual.after(10, task)).expect("set once");
    assert_eq!(manual.advance(10), [(10, 1)]);
}

fn what_it_captured_may_call_the_timer_as_it_is_dropped(manual: Manual) {
    struct Schedules(Timer, Option<BoxedTask>);

    impl Drop for Schedules {
        fn drop(&mut self) {
            self.0.schedule(ms(5), self.1.take().expect("it has one")).expect("it runs");
            assert!(self.0.pending() > 0);
        }
    }

    let captured = Schedules(manual.timer.clone(), Some(Box::new(manual.log.task(1))));
    assert!(manual.after(10, move || drop(captured)).cancel());
    assert_eq!(manual.advance(10), [(5, 1)]);
}

fn a_handle_outlives_its_timer(manual: Manual) {
    let timeouts = [1, 2, 3].map(|delay| manual.idle(delay));
    manual.advance(1);
    assert!(timeouts[1].cancel());
    drop(manual.timer);
    for (timeout, status) in
        timeouts.iter().zip([Status::Fired, Status::Cancelled, Status::Stopped])
    {
        assert_eq!(timeout.status(), status);
        assert!(!timeout.cancel() && !timeout.reschedule(ms(1)));
        assert_eq!(timeout.status(), status);
    }
}
