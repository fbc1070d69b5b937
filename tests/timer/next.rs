//! Tasks that choose when they run again.

use crate::help::{Count, Log, Manual, ms};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tickwheel::{MissedTick, Mode, Next, Run, Status, Task};

in_each_mode! {
    each_run_chooses_the_next,
    each_run_sees_its_exact_deadline_how_late_it_is_and_its_number,
    a_delay_counts_from_the_end_of_the_run,
    an_instant_that_has_passed_is_due_at_once,
    a_delay_of_zero_is_one_tick,
    what_is_too_far_does_not_fire_until_it_is_moved,
    a_rate_that_changes_does_not_drift,
    a_fixed_rate_runs_as_one_that_always_chooses_the_same,
    moved_during_the_run_it_runs_then,
    moved_during_its_last_run_it_ends_all_the_same,
    missed_runs_are_counted,
    after_a_run_that_the_executor_dropped_it_waits_as_long_again,
    stopped_it_gives_the_task_back,
}

const ALL: [MissedTick; 3] = [MissedTick::Burst, MissedTick::Delay, MissedTick::Skip];

/// A task that writes the number of each run, and chooses one after the other.
fn choosing(log: &Log, choices: Vec<Next>) -> impl FnMut(&Run) -> Next + Send + 'static {
    let (log, mut choices) = (log.clone(), choices.into_iter());
    move |run| {
        log.write(u32::try_from(run.count()).expect("few"));
        choices.next().unwrap_or(Next::Stop)
    }
}

fn each_run_chooses_the_next(mode: Mode) {
    let manual = Manual::new(mode);
    let choices = vec![
        Next::After(ms(1)),
        Next::At(manual.at(1_000)),
        Next::Every(ms(300), MissedTick::Burst),
        Next::After(ms(7)),
    ];
    let timeout = manual.timer.schedule_with(ms(5), choosing(&manual.log, choices)).expect("runs");
    let deadlines = [5, 6, 1_000, 1_300, 1_307];
    for (run, deadline) in (1..).zip(deadlines) {
        assert_eq!(timeout.deadline(), Some(manual.at(deadline)));
        assert_eq!(manual.advance(deadline - manual.now()), [(deadline, run)]);
    }
    assert!(timeout.status() == Status::Fired && !timeout.cancel());
    assert_eq!(manual.timer.pending(), 0);
}

fn each_run_sees_its_exact_deadline_how_late_it_is_and_its_number(mode: Mode) {
    let manual = Manual::new(mode);
    let seen: Arc<Mutex<Vec<_>>> = Arc::default();
    let (sees, micros) = (Arc::clone(&seen), Duration::from_micros);
    let task = move |run: &Run| {
        let (deadline, late) = (run.deadline().expect("a timer runs it"), run.late());
        sees.lock().unwrap().push((deadline, late, run.count()));
        Next::Every(micros(2_500), MissedTick::Burst)
    };
    manual.timer.schedule_with(micros(2_500), task).expect("it runs");
    manual.advance(5);
    manual.jump(10);
    let expected = [(2_500, 500), (5_000, 0), (7_500, 7_500), (10_000, 5_000), (12_500, 2_500)];
    let expected: Vec<_> = expected
        .into_iter()
        .chain([(15_000, 0)])
        .zip(1..)
        .map(|((due, late), run)| (manual.at(0) + micros(due), micros(late), run))
        .collect();
    assert_eq!(*seen.lock().unwrap(), expected);
}

fn a_delay_counts_from_the_end_of_the_run(mode: Mode) {
    let manual = Manual::new(mode);
    let choices = vec![Next::After(ms(10)); 2];
    manual.timer.schedule_with(ms(10), choosing(&manual.log, choices)).expect("it runs");
    assert_eq!(manual.jump(95), [(95, 1)]);
    assert_eq!(manual.advance(100), [(105, 2), (115, 3)]);
}

fn an_instant_that_has_passed_is_due_at_once(mode: Mode) {
    let manual = Manual::new(mode);
    let choices = vec![Next::At(manual.at(0)), Next::At(manual.at(20)), Next::At(manual.at(20))];
    manual.timer.schedule_with(ms(10), choosing(&manual.log, choices)).expect("it runs");
    assert_eq!(manual.advance(100), [(10, 1), (10, 2), (20, 3), (20, 4)]);
}

fn a_delay_of_zero_is_one_tick(mode: Mode) {
    let manual = Manual::new(mode);
    let choices = vec![
        Next::After(Duration::ZERO),
        Next::Every(Duration::ZERO, MissedTick::Skip),
        Next::Every(Duration::ZERO, MissedTick::Burst),
    ];
    manual.timer.schedule_with(Duration::ZERO, choosing(&manual.log, choices)).expect("it runs");
    assert_eq!(manual.advance(100), [(0, 1), (1, 2), (2, 3), (3, 4)]);
}

fn what_is_too_far_does_not_fire_until_it_is_moved(mode: Mode) {
    for far in [Next::After(Duration::MAX), Next::Every(Duration::MAX, MissedTick::Delay)] {
        let manual = Manual::new(mode);
        let task = choosing(&manual.log, vec![far]);
        let timeout = manual.timer.schedule_with(ms(1), task).expect("it runs");
        assert_eq!(manual.advance(1 << 40).len(), 1);
        assert_eq!((timeout.deadline(), timeout.status() == Status::Pending), (None, true));
        assert!(timeout.reschedule(ms(5)));
        assert_eq!(manual.advance(5).len(), 1);
        assert_eq!(timeout.status(), Status::Fired);
    }
}

fn a_rate_that_changes_does_not_drift(mode: Mode) {
    let manual = Manual::new(mode);
    let micros = |micros| Next::Every(Duration::from_micros(micros), MissedTick::Skip);
    let choices = (0..999).map(|run| micros(if run % 2 == 0 { 1_300 } else { 1_100 })).collect();
    let task = choosing(&manual.log, choices);
    manual.timer.schedule_with(Duration::ZERO, task).expect("it runs");
    let runs = manual.advance(10_000);
    // Each pair takes 2.4 ms; the last run is 499 pairs and one period after the first.
    assert_eq!((runs.len(), runs[999].0), (1_000, (499_u64 * 2_400 + 1_300).div_ceil(1_000)));
}

fn a_fixed_rate_runs_as_one_that_always_chooses_the_same(mode: Mode) {
    for missed in ALL {
        let next = Next::Every(ms(7), missed);
        let (special, general) = (Manual::new(mode), Manual::new(mode));
        let task = special.log.repeat(1, u32::MAX);
        special.timer.schedule_repeating(ms(7), missed, task).expect("it runs");
        let log = general.log.clone();
        let task = move |_: &Run| {
            log.write(1);
            next
        };
        general.timer.schedule_with(ms(7), task).expect("it runs");
        for jump in [3, 4, 8, 14, 15, 1, 100, 6, 7, 20] {
            assert_eq!(special.jump(jump), general.jump(jump), "{next:?}");
            assert_eq!(special.advance(jump), general.advance(jump), "{next:?}");
        }
        let [special, general] = [special, general].map(|manual| manual.timer.stats().missed);
        assert_eq!(special, general);
    }
}

/// A task that moves its own timeout once, in the first run.
fn moving(manual: &Manual, next: Next) -> tickwheel::Timeout {
    let own: Arc<Mutex<Option<tickwheel::Timeout>>> = Arc::default();
    let (handle, log) = (Arc::clone(&own), manual.log.clone());
    let task = move |run: &Run| {
        log.write(1);
        if run.count() == 1 {
            let own = handle.lock().unwrap().take().expect("it was scheduled");
            assert!(own.reschedule(ms(50)));
        }
        next
    };
    let timeout = manual.timer.schedule_with(ms(10), task).expect("it runs");
    *own.lock().unwrap() = Some(timeout.clone());
    timeout
}

fn moved_during_the_run_it_runs_then(mode: Mode) {
    for next in [Next::After(ms(1)), Next::Every(ms(10), MissedTick::Burst)] {
        let manual = Manual::new(mode);
        let timeout = moving(&manual, next);
        assert_eq!(manual.advance(60), [(10, 1), (60, 1)]);
        assert_eq!(timeout.status(), Status::Pending);
    }
}

fn moved_during_its_last_run_it_ends_all_the_same(mode: Mode) {
    let manual = Manual::new(mode);
    let timeout = moving(&manual, Next::Stop);
    assert_eq!(manual.advance(1_000), [(10, 1)]);
    assert_eq!(timeout.status(), Status::Fired);
}

fn missed_runs_are_counted(mode: Mode) {
    for missed in ALL {
        let manual = Manual::new(mode);
        let next = Next::Every(ms(100), missed);
        manual.timer.schedule_with(ms(100), move |_| next).expect("it runs");
        manual.advance(100);
        assert_eq!(manual.timer.stats().missed, 0);
        // Runs were due at 200, 300, 400, 500, and the first of these comes late.
        manual.jump(450);
        assert_eq!(manual.timer.stats().missed, 3, "{missed:?}");
    }
}

fn after_a_run_that_the_executor_dropped_it_waits_as_long_again(mode: Mode) {
    let at = |start: Instant, millis| Next::At(start + ms(millis));
    for choice in 0..3 {
        let drops = Arc::new(Mutex::new(false));
        let dropping = Arc::clone(&drops);
        let executor = move |task: Box<dyn FnOnce() + Send>| {
            if !*dropping.lock().unwrap() {
                task();
            }
        };
        let manual = Manual::built(mode, |builder| builder.executor(executor));
        let next = match choice {
            0 => Next::After(ms(20)),
            1 => Next::Every(ms(20), MissedTick::Burst),
            _ => at(manual.at(0), 30),
        };
        let task = choosing(&manual.log, vec![next]);
        let timeout = manual.timer.schedule_with(ms(10), task).expect("it runs");
        *drops.lock().unwrap() = true;
        assert_eq!(manual.advance(10), []);
        assert_eq!(timeout.deadline(), Some(manual.at(20)), "the first wait, once more");
        *drops.lock().unwrap() = false;
        assert_eq!(manual.advance(10), [(20, 1)]);
        let second = if choice == 2 { 30 } else { 40 };
        assert_eq!(timeout.deadline(), Some(manual.at(second)));
        *drops.lock().unwrap() = true;
        assert_eq!(manual.advance(second - 20), []);
        *drops.lock().unwrap() = false;
        let third = second + if choice == 2 { 10 } else { 20 };
        assert_eq!(manual.advance(1_000), [(third, 2)]);
        assert_eq!((manual.timer.stats().missed, timeout.status() == Status::Fired), (2, true));
    }
}

fn stopped_it_gives_the_task_back(mode: Mode) {
    let manual = Manual::new(mode);
    let seen = Count::default();
    let count = seen.clone();
    let task = move |run: &Run| {
        if run.deadline().is_none() && run.late().is_zero() && run.count() == 1 {
            count.add();
        }
        Next::After(ms(10))
    };
    let timeout = manual.timer.schedule_with(ms(10), task).expect("it runs");
    manual.advance(25);
    let [unfired] = <[_; 1]>::try_from(manual.timer.stop().expect("outside")).expect("one");
    assert_eq!(timeout.status(), Status::Stopped);
    assert_eq!(unfired.deadline(), Some(manual.at(30)));
    let task = unfired.into_task();
    assert!(matches!(task, Task::Repeating(_)));
    task.run();
    assert_eq!(seen.get(), 1);

    let error = manual.timer.schedule_with(ms(1), |_: &Run| Next::Stop).expect_err("stopped");
    let _task = error.into_task();
    assert_eq!(manual.timer.stats().rejected, 1);
}
