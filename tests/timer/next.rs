//! Tasks that choose when they run again.

use crate::common::long;
use crate::help::{BoxedTask, Count, Log, Manual, ms};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use tickwheel::{MissedTick, Mode, Next, Run, Status, Task, Timeout};

in_each_mode! {
    each_run_chooses_the_next,
    each_run_sees_its_exact_deadline_how_late_it_is_and_its_number,
    a_delay_counts_from_the_end_of_the_run,
    an_instant_that_has_passed_is_due_at_once,
    a_delay_of_zero_is_one_tick,
    what_is_too_far_does_not_fire_until_it_is_moved,
    a_rate_that_changes_does_not_drift,
    a_fixed_rate_runs_as_one_that_always_chooses_the_same,
    moved_during_the_run_it_runs_then_and_not_if_the_run_was_its_last,
    missed_runs_are_counted,
    after_a_run_that_the_executor_dropped_it_waits_as_long_again,
    stopped_it_gives_the_task_back,
}

/// A task that writes the number of each run, and chooses one after the other.
fn choosing(log: &Log, choices: Vec<Next>) -> impl FnMut(&Run) -> Next + Send + 'static {
    let (log, mut choices) = (log.clone(), choices.into_iter());
    move |run| {
        log.write(u32::try_from(run.count()).expect("few"));
        choices.next().unwrap_or(Next::Stop)
    }
}

/// Schedules one of these, `delay` milliseconds from now.
fn schedule(manual: &Manual, delay: u64, choices: Vec<Next>) -> Timeout {
    manual.timer.schedule_with(ms(delay), choosing(&manual.log, choices)).expect("it runs")
}

fn each_run_chooses_the_next(manual: Manual) {
    let choices = vec![
        Next::After(ms(1)),
        Next::At(manual.at(1_000)),
        Next::Every(ms(300), MissedTick::Burst),
        Next::After(ms(7)),
    ];
    let timeout = schedule(&manual, 5, choices);
    for (run, deadline) in (1..).zip([5, 6, 1_000, 1_300, 1_307]) {
        assert_eq!(timeout.deadline(), Some(manual.at(deadline)));
        assert_eq!(manual.advance(deadline - manual.now()), [(deadline, run)]);
    }
    assert!(timeout.status() == Status::Fired && !timeout.cancel());
    assert_eq!(manual.timer.pending(), 0);
}

fn each_run_sees_its_exact_deadline_how_late_it_is_and_its_number(manual: Manual) {
    let seen: Arc<Mutex<Vec<_>>> = Arc::default();
    let (sees, start, micros) = (Arc::clone(&seen), manual.at(0), Duration::from_micros);
    let task = move |run: &Run| {
        let due = run.deadline().expect("a timer runs it") - start;
        sees.lock().unwrap().push((due.as_micros(), run.late().as_micros(), run.count()));
        Next::Every(micros(2_500), MissedTick::Burst)
    };
    manual.timer.schedule_with(micros(2_500), task).expect("it runs");
    manual.advance(5);
    manual.jump(10);
    let late = [500, 0, 7_500, 5_000, 2_500, 0];
    let expected: Vec<_> =
        (1..).zip(late).map(|(run, late)| (u128::from(run) * 2_500, late, run)).collect();
    assert_eq!(*seen.lock().unwrap(), expected);
}

fn a_delay_counts_from_the_end_of_the_run(manual: Manual) {
    schedule(&manual, 10, vec![Next::After(ms(10)); 2]);
    assert_eq!(manual.jump(95), [(95, 1)]);
    assert_eq!(manual.advance(100), [(105, 2), (115, 3)]);
}

fn an_instant_that_has_passed_is_due_at_once(manual: Manual) {
    schedule(&manual, 10, [0, 20, 20].map(|millis| Next::At(manual.at(millis))).to_vec());
    assert_eq!(manual.advance(100), [(10, 1), (10, 2), (20, 3), (20, 4)]);
}

fn a_delay_of_zero_is_one_tick(manual: Manual) {
    let every = |missed| Next::Every(Duration::ZERO, missed);
    let after = Next::After(Duration::ZERO);
    schedule(&manual, 0, vec![after, every(MissedTick::Skip), every(MissedTick::Burst)]);
    assert_eq!(manual.advance(100), [(0, 1), (1, 2), (2, 3), (3, 4)]);
}

fn what_is_too_far_does_not_fire_until_it_is_moved(mode: Mode) {
    for far in [Next::After(Duration::MAX), Next::Every(Duration::MAX, MissedTick::Delay)] {
        let manual = Manual::new(mode);
        let timeout = schedule(&manual, 1, vec![far]);
        assert_eq!(manual.advance(1 << 40).len(), 1);
        assert_eq!((timeout.deadline(), timeout.status()), (None, Status::Pending), "{far:?}");
        assert!(timeout.reschedule(ms(5)));
        assert_eq!(manual.advance(5).len(), 1);
        assert_eq!(timeout.status(), Status::Fired, "{far:?}");
    }
}

fn a_rate_that_changes_does_not_drift(manual: Manual) {
    let micros = |micros| Next::Every(Duration::from_micros(micros), MissedTick::Skip);
    let pairs = long(99_u64, 499);
    let choice = |run| micros(if run % 2 == 0 { 1_300 } else { 1_100 });
    let choices = (0..2 * pairs + 1).map(choice).collect();
    schedule(&manual, 0, choices);
    let runs = manual.advance(10_000);
    // Each pair takes 2.4 ms; the last run is all pairs and one period after the first.
    let last = (pairs * 2_400 + 1_300).div_ceil(1_000);
    assert_eq!((runs.len() as u64, runs[runs.len() - 1].0), (2 * pairs + 2, last));
}

fn a_fixed_rate_runs_as_one_that_always_chooses_the_same(mode: Mode) {
    for missed in ALL {
        let next = Next::Every(ms(7), missed);
        let (special, general) = (Manual::new(mode), Manual::new(mode));
        special.every(7, missed, special.log.repeat(1, u32::MAX));
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
        assert_eq!(special.timer.stats().missed, general.timer.stats().missed, "{next:?}");
    }
}

fn moved_during_the_run_it_runs_then_and_not_if_the_run_was_its_last(mode: Mode) {
    let every = Next::Every(ms(10), MissedTick::Burst);
    for (next, runs, status) in [
        (Next::After(ms(1)), &[(10, 1), (60, 2)][..], Status::Pending),
        (every, &[(10, 1), (60, 2)], Status::Pending),
        (Next::Stop, &[(10, 1)], Status::Fired),
    ] {
        let (manual, own) = (Manual::new(mode), Arc::<OnceLock<Timeout>>::default());
        let (handle, mut chooses) = (Arc::clone(&own), choosing(&manual.log, vec![next; 9]));
        let task = move |run: &Run| {
            assert!(run.count() != 1 || handle.get().expect("it was set").reschedule(ms(50)));
            chooses(run)
        };
        let timeout = manual.timer.schedule_with(ms(10), task).expect("it runs");
        own.set(timeout.clone()).expect("set once");
        assert_eq!(manual.advance(60), runs, "{next:?}");
        assert_eq!(timeout.status(), status, "{next:?}");
        assert!(status == Status::Pending || manual.advance(1_000).is_empty(), "{next:?}");
    }
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
    for (choice, second, third) in [("after", 40, 60), ("every", 40, 60), ("at", 30, 40)] {
        let drops = Arc::new(AtomicBool::new(false));
        let dropping = Arc::clone(&drops);
        let executor = move |task: BoxedTask| {
            if !dropping.load(SeqCst) {
                task();
            }
        };
        let manual = Manual::built(mode, |builder| builder.executor(executor));
        let dropping_until = |millis| {
            drops.store(true, SeqCst);
            assert_eq!(manual.advance(millis - manual.now()), []);
            drops.store(false, SeqCst);
        };
        let next = match choice {
            "after" => Next::After(ms(20)),
            "every" => Next::Every(ms(20), MissedTick::Burst),
            _ => Next::At(manual.at(30)),
        };
        let timeout = schedule(&manual, 10, vec![next]);
        dropping_until(10);
        assert_eq!(timeout.deadline(), Some(manual.at(20)), "{choice}: as long again");
        assert_eq!(manual.advance(10), [(20, 1)], "{choice}");
        assert_eq!(timeout.deadline(), Some(manual.at(second)), "{choice}");
        dropping_until(second);
        assert_eq!(manual.advance(1_000), [(third, 2)], "{choice}");
        assert_eq!(manual.timer.stats().missed, 2, "{choice}");
        assert_eq!(timeout.status(), Status::Fired, "{choice}");
    }
}

fn stopped_it_gives_the_task_back(manual: Manual) {
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

/// The executor has the run, and has not begun it.
#[test]
fn moved_in_the_hands_of_the_executor_it_is_the_run_after_that_moves() {
    for within in [false, true] {
        let (sender, queue) = std::sync::mpsc::channel();
        let (clock, runs) = (tickwheel::ManualClock::new(), Arc::new(Mutex::new(Vec::new())));
        let (start, told) = (clock.now(), Arc::clone(&runs));
        let timer = tickwheel::Timer::builder()
            .clock(clock.clone())
            .executor(move |task| drop(sender.send(task)))
            .build()
            .expect("in range");
        let task = move |run: &Run| {
            told.lock().unwrap().push((run.deadline(), run.late()));
            Next::After(ms(100))
        };
        let timeout = timer.schedule_with(ms(10), task).expect("it runs");
        clock.advance(ms(10));
        let run: Box<dyn FnOnce() + Send> = queue.recv().expect("it was handed over");
        // The run that the executor has is due in this range, and is not the one that is meant.
        let moved = match within {
            true => timeout.reschedule_within(ms(0)..=ms(40)),
            false => timeout.reschedule(ms(40)),
        };
        let next = timeout.deadline().expect("an instant");
        assert!(moved && start + ms(10) < next && next <= start + ms(50));
        clock.advance(ms(1));
        run();
        assert_eq!(*runs.lock().unwrap(), [(Some(start + ms(10)), ms(1))]);
        assert_eq!(timeout.deadline(), Some(next));
        clock.advance(ms(60));
        queue.recv().expect("it was handed over")();
        assert!(next.checked_sub(ms(1)) < runs.lock().unwrap()[1].0);
    }
}

const ALL: [MissedTick; 3] = [MissedTick::Burst, MissedTick::Delay, MissedTick::Skip];
