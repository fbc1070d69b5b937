//! Repeating timeouts: fixed rate, fixed delay, and missed runs.

use crate::help::{Count, CountsDrop, Log, Manual, ms, wait_until};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tickwheel::{MissedTick, Mode, Next, Run, Status, Timeout, Timer};

in_each_mode! {
    runs_once_a_period,
    a_period_that_is_no_multiple_of_the_tick_does_not_drift,
    burst_runs_as_often_as_was_missed,
    delay_begins_anew,
    skip_leaves_out_what_was_missed,
    a_run_that_is_late_but_in_its_period_changes_nothing,
    a_run_that_is_late_by_less_than_a_tick_is_not_missed,
    a_jump_is_many_missed_runs,
    fixed_delay_counts_from_the_end,
    cancelled_from_outside_it_runs_no_more,
    cancelled_from_inside_it_runs_no_more,
    cancelled_it_is_dropped_at_once,
    moving_the_next_run_moves_those_after,
    moved_from_inside_it_runs_then,
    a_period_of_zero_is_one_tick,
    the_longest_period_does_not_fire,
    it_drops_the_last_handle_from_inside,
    stopped_it_comes_back,
}

const ALL: [MissedTick; 3] = [MissedTick::Burst, MissedTick::Delay, MissedTick::Skip];

fn times(ran: Vec<(u64, u32)>) -> Vec<u64> {
    ran.into_iter().map(|(millis, _)| millis).collect()
}

fn runs_once_a_period(mode: Mode) {
    for missed in ALL {
        let manual = Manual::new(mode);
        let task = manual.log.repeat(1, 5);
        let timeout = manual.timer.schedule_repeating(ms(100), missed, task).expect("it runs");
        assert_eq!(timeout.deadline(), Some(manual.at(100)));
        assert_eq!(manual.advance(99), []);
        assert_eq!(manual.advance(1), [(100, 1)]);
        assert_eq!(timeout.deadline(), Some(manual.at(200)));
        assert_eq!(times(manual.advance(300)), [200, 300, 400]);
        assert_eq!(timeout.status(), Status::Pending);
        assert_eq!(times(manual.advance(1_000)), [500]);
        assert!(timeout.status() == Status::Fired && !timeout.cancel());
        assert_eq!(manual.timer.pending(), 0);
    }
}

fn a_period_that_is_no_multiple_of_the_tick_does_not_drift(mode: Mode) {
    for missed in ALL {
        let manual = Manual::new(mode);
        let period = Duration::from_micros(1_300);
        manual.timer.schedule_repeating(period, missed, manual.log.repeat(1, 1_001)).expect("runs");
        // Each runs at its deadline, rounded up.
        let expected: Vec<_> = (1..=1_000_u64).map(|run| (run * 13).div_ceil(10)).collect();
        assert_eq!(times(manual.advance(1_300)), expected);
    }
}

/// Runs at 100 ms, and takes until 350; then each run takes no time.
fn with_a_slow_first_run(mode: Mode, missed: MissedTick) -> Vec<u64> {
    let manual = Manual::new(mode);
    let (clock, log) = (manual.clock.clone(), manual.log.clone());
    let mut is_first = true;
    let task = move || {
        log.write(1);
        if is_first {
            clock.advance(ms(250));
            is_first = false;
        }
        ControlFlow::Continue(())
    };
    manual.timer.schedule_repeating(ms(100), missed, task).expect("it runs");
    times(manual.advance(700))
}

fn burst_runs_as_often_as_was_missed(mode: Mode) {
    let runs = with_a_slow_first_run(mode, MissedTick::Burst);
    assert_eq!(runs, [100, 350, 350, 400, 500, 600, 700]);
}

fn delay_begins_anew(mode: Mode) {
    let runs = with_a_slow_first_run(mode, MissedTick::Delay);
    assert_eq!(runs, [100, 450, 550, 650]);
}

fn skip_leaves_out_what_was_missed(mode: Mode) {
    let runs = with_a_slow_first_run(mode, MissedTick::Skip);
    assert_eq!(runs, [100, 400, 500, 600, 700]);
}

fn a_run_that_is_late_but_in_its_period_changes_nothing(mode: Mode) {
    for missed in ALL {
        let manual = Manual::new(mode);
        let (clock, log) = (manual.clock.clone(), manual.log.clone());
        let task = move || {
            log.write(1);
            clock.advance(ms(60));
            ControlFlow::Continue(())
        };
        manual.timer.schedule_repeating(ms(100), missed, task).expect("it runs");
        assert_eq!(times(manual.advance(450)), [100, 200, 300, 400]);
    }
}

fn a_run_that_is_late_by_less_than_a_tick_is_not_missed(mode: Mode) {
    let micros = Duration::from_micros;
    for missed in ALL {
        let manual = Manual::new(mode);
        manual.clock.advance(micros(30));
        let task = manual.log.repeat(1, u32::MAX);
        manual.timer.schedule_repeating(ms(1), missed, task).expect("it runs");
        // The worker wakes up a little later than the tick, and than when the next run is due.
        manual.clock.jump(micros(2_030));
        for _ in 0..9 {
            manual.clock.jump(ms(1));
        }
        assert_eq!(manual.log.take().len(), 10, "{missed:?}");
    }
}

fn a_jump_is_many_missed_runs(mode: Mode) {
    let jumped = |missed| {
        let manual = Manual::new(mode);
        let task = manual.log.repeat(1, u32::MAX);
        manual.timer.schedule_repeating(ms(100), missed, task).expect("it runs");
        let mut runs = times(manual.jump(1_050));
        runs.extend(times(manual.advance(200)));
        runs
    };
    let burst: Vec<_> = [1_050; 10].into_iter().chain([1_100, 1_200]).collect();
    assert_eq!(jumped(MissedTick::Burst), burst);
    assert_eq!(jumped(MissedTick::Delay), [1_050, 1_150, 1_250]);
    assert_eq!(jumped(MissedTick::Skip), [1_050, 1_100, 1_200]);
}

fn fixed_delay_counts_from_the_end(mode: Mode) {
    let manual = Manual::new(mode);
    let (clock, log) = (manual.clock.clone(), manual.log.clone());
    let task = move |_: &Run| {
        log.write(1);
        clock.advance(ms(30));
        Next::After(ms(100))
    };
    manual.timer.schedule_with(ms(100), task).expect("it runs");
    assert_eq!(times(manual.advance(500)), [100, 230, 360, 490]);
}

fn cancelled_from_outside_it_runs_no_more(mode: Mode) {
    let manual = Manual::new(mode);
    let task = manual.log.repeat(1, u32::MAX);
    let timeout = manual.timer.schedule_repeating(ms(10), MissedTick::Skip, task).expect("it runs");
    assert_eq!(manual.advance(55).len(), 5);
    assert!(timeout.cancel());
    assert!(!timeout.cancel());
    assert_eq!(manual.advance(100), []);
    assert_eq!(timeout.status(), Status::Cancelled);
    assert_eq!((manual.timer.pending(), manual.timer.stats().cancelled), (0, 1));
}

fn cancelled_from_inside_it_runs_no_more(mode: Mode) {
    for missed in ALL {
        let manual = Manual::new(mode);
        let own: Arc<Mutex<Option<Timeout>>> = Arc::default();
        let (handle, log, dropped) = (Arc::clone(&own), manual.log.clone(), Count::default());
        let captured = CountsDrop(dropped.clone());
        let mut runs = 0;
        let task = move || {
            runs += 1;
            log.write(runs);
            if runs == 3 {
                let handle = handle.lock().unwrap().take().expect("it was put there");
                assert!(handle.cancel());
                assert!(
                    !handle.cancel()
                        && handle.status() == Status::Cancelled
                        && !handle.reschedule(ms(1))
                );
                assert_eq!(captured.0.get(), 0);
            }
            ControlFlow::Continue(())
        };
        let timeout = manual.timer.schedule_repeating(ms(10), missed, task).expect("it runs");
        *own.lock().unwrap() = Some(timeout);
        assert_eq!(manual.advance(100), [(10, 1), (20, 2), (30, 3)]);
        assert_eq!((dropped.get(), manual.timer.pending(), manual.timer.stats().panics), (1, 0, 0));
    }
}

fn cancelled_it_is_dropped_at_once(mode: Mode) {
    let manual = Manual::new(mode);
    let dropped = Count::default();
    let captured = CountsDrop(dropped.clone());
    let task = move || {
        let _captured = &captured;
        ControlFlow::Continue(())
    };
    let timeout =
        manual.timer.schedule_repeating(ms(10), MissedTick::Delay, task).expect("it runs");
    manual.advance(35);
    assert!(timeout.cancel());
    assert_eq!(dropped.get(), 1);
}

fn moving_the_next_run_moves_those_after(mode: Mode) {
    let manual = Manual::new(mode);
    let task = manual.log.repeat(1, u32::MAX);
    let timeout = manual.timer.schedule_repeating(ms(100), MissedTick::Skip, task).expect("runs");
    assert_eq!(times(manual.advance(150)), [100]);
    assert!(timeout.reschedule(ms(10)));
    assert_eq!(times(manual.advance(200)), [160, 260]);
    assert!(timeout.reschedule(Duration::ZERO));
    assert_eq!(times(manual.advance(120)), [350, 450]);
    assert!(timeout.reschedule_at(manual.at(1_000)));
    assert_eq!(timeout.deadline(), Some(manual.at(1_000)));
    assert_eq!(times(manual.advance(700)), [1_000, 1_100]);
}

fn moved_from_inside_it_runs_then(mode: Mode) {
    let manual = Manual::new(mode);
    let own: Arc<Mutex<Option<Timeout>>> = Arc::default();
    let (handle, log) = (Arc::clone(&own), manual.log.clone());
    let mut runs = 0;
    let task = move || {
        runs += 1;
        log.write(runs);
        if runs == 2 {
            let handle = handle.lock().unwrap();
            assert!(handle.as_ref().expect("it was put there").reschedule(ms(7)));
        }
        ControlFlow::Continue(())
    };
    let timeout = manual.timer.schedule_repeating(ms(10), MissedTick::Burst, task).expect("runs");
    *own.lock().unwrap() = Some(timeout);
    assert_eq!(manual.advance(50), [(10, 1), (20, 2), (27, 3), (37, 4), (47, 5)]);
    drop(own.lock().unwrap().take());
}

fn a_period_of_zero_is_one_tick(mode: Mode) {
    for missed in ALL {
        let manual = Manual::new(mode);
        let task = manual.log.repeat(1, 3);
        manual.timer.schedule_repeating(Duration::ZERO, missed, task).expect("it runs");
        assert_eq!(manual.advance(10), [(1, 1), (2, 1), (3, 1)]);
    }
}

fn the_longest_period_does_not_fire(mode: Mode) {
    for missed in ALL {
        let manual = Manual::new(mode);
        let task = manual.log.repeat(1, u32::MAX);
        let timeout = manual.timer.schedule_repeating(Duration::MAX, missed, task).expect("runs");
        assert_eq!(timeout.deadline(), None);
        assert_eq!(manual.advance(1 << 40), []);
        // Once it was moved, it runs, and then not again.
        assert!(timeout.reschedule(ms(5)));
        assert_eq!(manual.advance(1 << 40).len(), 1);
        assert_eq!(timeout.deadline(), None);
        assert!(timeout.cancel());
    }
}

fn it_drops_the_last_handle_from_inside(mode: Mode) {
    let timer = Timer::builder().mode(mode).build().expect("in range");
    let runs = Count::default();
    let (count, mut last) = (runs.clone(), Some(timer.clone()));
    let (sender, receiver) = std::sync::mpsc::channel();
    let task = move || {
        receiver.recv().unwrap();
        drop(last.take());
        count.add();
        ControlFlow::Continue(())
    };
    let timeout = timer.schedule_repeating(ms(1), MissedTick::Delay, task).expect("it runs");
    wait_until(|| timer.pending() == 0);
    drop(timer);
    sender.send(()).unwrap();
    wait_until(|| timeout.status() == Status::Stopped);
    assert_eq!(runs.get(), 1);
}

fn stopped_it_comes_back(mode: Mode) {
    let manual = Manual::new(mode);
    let task = manual.log.repeat(1, u32::MAX);
    let timeout = manual.timer.schedule_repeating(ms(10), MissedTick::Skip, task).expect("it runs");
    assert_eq!(manual.advance(25).len(), 2);
    let unfired = manual.timer.stop().expect("outside");
    assert!(timeout.status() == Status::Stopped && !timeout.cancel());
    let [unfired] = <[_; 1]>::try_from(unfired).expect("one");
    assert_eq!(unfired.deadline(), Some(manual.at(30)));
    unfired.into_task().run();
    assert_eq!(manual.log.take(), [(25, 1)]);
}

/// The thread that stops the timer gets it, even if it was running then.
#[test]
fn stopped_while_it_runs_it_comes_back_after_the_run() {
    let timer = Timer::new();
    let (begun, dropped) = (Count::default(), Count::default());
    let (count, captured) = (begun.clone(), CountsDrop(dropped.clone()));
    let (sender, receiver) = std::sync::mpsc::channel();
    let task = move || {
        let _captured = &captured;
        count.add();
        receiver.recv().unwrap();
        ControlFlow::Continue(())
    };
    let timeout = timer.schedule_repeating(ms(1), MissedTick::Delay, task).expect("it runs");
    wait_until(|| begun.get() == 1);
    let stopping = {
        let timer = timer.clone();
        std::thread::spawn(move || timer.stop().expect("outside"))
    };
    wait_until(|| timer.is_stopped());
    sender.send(()).unwrap();
    let unfired = stopping.join().unwrap();
    assert_eq!((unfired.len(), begun.get(), dropped.get()), (1, 1, 0));
    assert_eq!(unfired[0].deadline(), timeout.deadline());
    assert_eq!(timeout.status(), Status::Stopped);
    drop(unfired);
    assert_eq!(dropped.get(), 1);
}

#[test]
fn on_the_systems_clock_it_never_runs_early() {
    let timer = Timer::builder().tick(Duration::from_micros(100)).build().expect("in range");
    let start = std::time::Instant::now();
    let runs: Arc<Mutex<Vec<_>>> = Arc::default();
    let times = Arc::clone(&runs);
    let period = Duration::from_micros(1_234);
    let timeout = timer
        .schedule_repeating(period, MissedTick::Burst, move || {
            let mut times = times.lock().unwrap();
            times.push(start.elapsed());
            if times.len() == 50 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .expect("it runs");
    wait_until(|| timeout.status() == Status::Fired);
    let runs = runs.lock().unwrap();
    assert!((1..).zip(runs.iter()).all(|(run, &time)| period * run <= time), "{runs:?}");
}

/// As the table in the documentation of `MissedTick` says.
#[test]
fn a_first_run_until_350() {
    let runs = |missed| {
        let manual = Manual::new(Mode::default());
        let (clock, log): (_, Log) = (manual.clock.clone(), manual.log.clone());
        let mut is_first = true;
        let task = move || {
            log.write(1);
            if is_first {
                clock.advance(ms(250));
                is_first = false;
            }
            ControlFlow::Continue(())
        };
        manual.timer.schedule_repeating(ms(100), missed, task).expect("it runs");
        times(manual.advance(650))[1..4].to_vec()
    };
    assert_eq!(runs(MissedTick::Burst), [350, 350, 400]);
    assert_eq!(runs(MissedTick::Delay), [450, 550, 650]);
    assert_eq!(runs(MissedTick::Skip), [400, 500, 600]);
}
