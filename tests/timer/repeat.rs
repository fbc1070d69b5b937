//! Repeating timeouts: fixed rate, fixed delay, and missed runs.

use crate::common::long;
use crate::help::{Count, CountsDrop, Gate, Hand, Kept, Manual, build, ms, taken, wait_until};
use futures::StreamExt;
use futures::channel::mpsc::unbounded;
use std::ops::ControlFlow;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};
use tickwheel::{MissedTick, Mode, Next, Run, Status, Timeout, Timer};

in_each_mode! {
    runs_once_a_period,
    a_period_that_is_no_multiple_of_the_tick_does_not_drift,
    burst_runs_as_often_as_was_missed_delay_begins_anew_and_skip_leaves_it_out,
    a_run_that_is_late_but_in_its_period_changes_nothing,
    a_run_that_is_late_by_less_than_a_tick_is_not_missed,
    a_jump_is_many_missed_runs,
    fixed_delay_counts_from_the_end,
    cancelled_from_outside_it_is_dropped_and_runs_no_more,
    cancelled_from_inside_it_runs_no_more,
    moving_the_next_run_moves_those_after,
    moved_from_inside_it_runs_then,
    a_period_of_zero_is_one_tick,
    the_longest_period_does_not_fire,
    skip_keeps_to_the_multiples_of_a_period_of_millennia,
    it_drops_the_last_handle_from_inside,
    stopped_it_comes_back,
    the_timer_counts_it_as_pending_as_long_as_its_handle_does,
}

fn times(ran: Vec<(u64, u32)>) -> Vec<u64> {
    ran.into_iter().map(|(millis, _)| millis).collect()
}

/// Writes 1 each `period` milliseconds, for ever.
fn endless(manual: &Manual, period: u64, missed: MissedTick) -> Timeout {
    manual.every(period, missed, manual.log.repeat(1, u32::MAX))
}

fn runs_once_a_period(mode: Mode) {
    for missed in ALL {
        let manual = Manual::new(mode);
        let timeout = manual.every(100, missed, manual.log.repeat(1, 5));
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
    let runs = long(100, 1_000);
    for missed in ALL {
        let manual = Manual::new(mode);
        let period = Duration::from_micros(1_300);
        manual
            .timer
            .schedule_repeating(period, missed, manual.log.repeat(1, runs + 1))
            .expect("runs");
        // Each runs at its deadline, rounded up.
        let expected: Vec<_> = (1..=runs).map(|run| u64::from(run * 13).div_ceil(10)).collect();
        assert_eq!(times(manual.advance(u64::from(runs) * 13 / 10)), expected);
    }
}

/// Each run takes the time that `takes` says, the runs after those none; they are due every 100 ms.
fn with_slow_runs(mode: Mode, missed: MissedTick, takes: &[u64]) -> Vec<u64> {
    let manual = Manual::new(mode);
    let (clock, log, mut takes) = (manual.clock.clone(), manual.log.clone(), takes.to_vec());
    manual.every(100, missed, move || {
        log.write(1);
        if let Some(millis) = takes.pop() {
            clock.advance(ms(millis));
        }
        ControlFlow::Continue(())
    });
    times(manual.advance(700))
}

/// The first run is at 100 ms and takes until 350: the table in the documentation of `MissedTick`.
fn burst_runs_as_often_as_was_missed_delay_begins_anew_and_skip_leaves_it_out(mode: Mode) {
    let runs = |missed| with_slow_runs(mode, missed, &[250]);
    assert_eq!(runs(MissedTick::Burst), [100, 350, 350, 400, 500, 600, 700]);
    assert_eq!(runs(MissedTick::Delay), [100, 450, 550, 650]);
    assert_eq!(runs(MissedTick::Skip), [100, 400, 500, 600, 700]);
}

fn a_run_that_is_late_but_in_its_period_changes_nothing(mode: Mode) {
    for missed in ALL {
        let runs = with_slow_runs(mode, missed, &[60; 7]);
        assert_eq!(runs, [100, 200, 300, 400, 500, 600, 700], "{missed:?}");
    }
}

fn a_run_that_is_late_by_less_than_a_tick_is_not_missed(mode: Mode) {
    for missed in ALL {
        let manual = Manual::new(mode);
        manual.clock.advance(Duration::from_micros(30));
        endless(&manual, 1, missed);
        // The worker wakes up a little later than the tick, and than when the next run is due.
        manual.clock.jump(Duration::from_micros(2_030));
        (0..9).for_each(|_| manual.clock.jump(ms(1)));
        assert_eq!(manual.log.take().len(), 10, "{missed:?}");
    }
}

fn a_jump_is_many_missed_runs(mode: Mode) {
    let jumped = |missed| {
        let manual = Manual::new(mode);
        endless(&manual, 100, missed);
        times([manual.jump(1_050), manual.advance(200)].concat())
    };
    let burst: Vec<_> = [1_050; 10].into_iter().chain([1_100, 1_200]).collect();
    assert_eq!(jumped(MissedTick::Burst), burst);
    assert_eq!(jumped(MissedTick::Delay), [1_050, 1_150, 1_250]);
    assert_eq!(jumped(MissedTick::Skip), [1_050, 1_100, 1_200]);
}

fn fixed_delay_counts_from_the_end(manual: Manual) {
    let (clock, log) = (manual.clock.clone(), manual.log.clone());
    let task = move |_: &Run| {
        log.write(1);
        clock.advance(ms(30));
        Next::After(ms(100))
    };
    manual.timer.schedule_with(ms(100), task).expect("it runs");
    assert_eq!(times(manual.advance(500)), [100, 230, 360, 490]);
}

fn cancelled_from_outside_it_is_dropped_and_runs_no_more(mode: Mode) {
    for missed in [MissedTick::Delay, MissedTick::Skip] {
        let manual = Manual::new(mode);
        let (dropped, mut repeat) = (Count::default(), manual.log.repeat(1, u32::MAX));
        let captured = CountsDrop(dropped.clone());
        let timeout = manual.every(10, missed, move || {
            let _captured = &captured;
            repeat()
        });
        assert_eq!(manual.advance(55).len(), 5);
        assert!(timeout.cancel());
        assert_eq!(dropped.get(), 1);
        assert!(!timeout.cancel());
        assert_eq!(manual.advance(100), []);
        assert_eq!(timeout.status(), Status::Cancelled);
        assert_eq!((manual.timer.pending(), manual.timer.stats().cancelled), (0, 1));
    }
}

/// Schedules a task that writes the number of each run, and then gets it with its own handle.
fn with_its_handle(
    manual: &Manual,
    missed: MissedTick,
    mut run: impl FnMut(u32, &Timeout) + Send + 'static,
) {
    let own: Arc<OnceLock<Timeout>> = Arc::default();
    let (handle, log, mut runs) = (Arc::clone(&own), manual.log.clone(), 0);
    let task = move || {
        runs += 1;
        log.write(runs);
        run(runs, handle.get().expect("it was set"));
        ControlFlow::Continue(())
    };
    own.set(manual.every(10, missed, task)).expect("set once");
}

fn cancelled_from_inside_it_runs_no_more(mode: Mode) {
    for missed in ALL {
        let (manual, dropped) = (Manual::new(mode), Count::default());
        let captured = CountsDrop(dropped.clone());
        with_its_handle(&manual, missed, move |run, own| {
            if run == 3 {
                assert!(own.cancel() && !own.cancel() && !own.reschedule(ms(1)));
                assert_eq!((own.status(), captured.0.get()), (Status::Cancelled, 0));
            }
        });
        assert_eq!(manual.advance(100), [(10, 1), (20, 2), (30, 3)]);
        assert_eq!((dropped.get(), manual.timer.pending(), manual.timer.stats().panics), (1, 0, 0));
    }
}

fn moving_the_next_run_moves_those_after(manual: Manual) {
    let timeout = endless(&manual, 100, MissedTick::Skip);
    assert_eq!(times(manual.advance(150)), [100]);
    assert!(timeout.reschedule(ms(10)));
    assert_eq!(times(manual.advance(200)), [160, 260]);
    assert!(timeout.reschedule(Duration::ZERO));
    assert_eq!(times(manual.advance(120)), [350, 450]);
    assert!(timeout.reschedule_at(manual.at(1_000)));
    assert_eq!(timeout.deadline(), Some(manual.at(1_000)));
    assert_eq!(times(manual.advance(700)), [1_000, 1_100]);
}

fn moved_from_inside_it_runs_then(manual: Manual) {
    with_its_handle(&manual, MissedTick::Burst, |run, own| {
        assert!(run != 2 || own.reschedule(ms(7)));
    });
    assert_eq!(manual.advance(50), [(10, 1), (20, 2), (27, 3), (37, 4), (47, 5)]);
}

fn a_period_of_zero_is_one_tick(mode: Mode) {
    for missed in ALL {
        let manual = Manual::new(mode);
        manual.every(0, missed, manual.log.repeat(1, 3));
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

fn skip_keeps_to_the_multiples_of_a_period_of_millennia(manual: Manual) {
    let period = Duration::from_secs(100_000_000_000);
    let task = manual.log.repeat(1, u32::MAX);
    let timeout = manual.timer.schedule_repeating(period, MissedTick::Skip, task).expect("runs");
    manual.clock.jump(period * 5 / 2);
    assert_eq!(timeout.deadline(), Some(manual.at(0) + period * 3));
}

fn it_drops_the_last_handle_from_inside(mode: Mode) {
    let timer = build(|builder| builder.mode(mode));
    let (gate, mut last) = (Gate::default(), Some(timer.clone()));
    let inner = gate.clone();
    let task = move || {
        inner.pass();
        drop(last.take());
        ControlFlow::Continue(())
    };
    let timeout = timer.schedule_repeating(ms(1), MissedTick::Delay, task).expect("it runs");
    gate.reached();
    drop(timer);
    gate.open();
    wait_until(|| timeout.status() == Status::Stopped);
    assert_eq!(gate.passed(), 1);
}

fn stopped_it_comes_back(manual: Manual) {
    let timeout = endless(&manual, 10, MissedTick::Skip);
    assert_eq!(manual.advance(25).len(), 2);
    let unfired = manual.timer.stop().expect("outside");
    assert!(timeout.status() == Status::Stopped && !timeout.cancel());
    let [unfired] = <[_; 1]>::try_from(unfired).expect("one");
    assert_eq!(unfired.deadline(), Some(manual.at(30)));
    unfired.into_task().run();
    assert_eq!(manual.log.take(), [(25, 1)]);
}

/// On the worker, and where an executor keeps each run.
fn the_timer_counts_it_as_pending_as_long_as_its_handle_does(mode: Mode) {
    let ends = [Status::Fired, Status::Panicked, Status::Cancelled];
    for (end, is_elsewhere) in ends.into_iter().flat_map(|end| [(end, false), (end, true)]) {
        let kept = Kept::default();
        let manual = Manual::built(mode, |builder| match is_elsewhere {
            true => builder.max_pending(1).executor(kept.executor()),
            false => builder.max_pending(1),
        });
        let counts = |timer: &Timer, timeout: &Timeout| {
            let counted = (timer.pending(), timer.stats().pending);
            assert_eq!(counted.0, counted.1);
            (counted.0, timeout.status())
        };
        let (timer, runs) = (manual.timer.clone(), Count::default());
        let (handle, count) = (Arc::new(OnceLock::<Timeout>::new()), runs.clone());
        let inside = Arc::clone(&handle);
        let timeout = manual.every(10, MissedTick::Delay, move || {
            let timeout = inside.get().expect("it is set");
            assert_eq!(counts(&timer, timeout), (1, Status::Pending));
            count.add();
            match end {
                _ if count.get() == 1 => return ControlFlow::Continue(()),
                Status::Fired => return ControlFlow::Break(()),
                Status::Panicked => panic!("as it should"),
                _ => assert!(timeout.cancel()),
            }
            assert_eq!(counts(&timer, timeout), (0, end));
            count.add();
            ControlFlow::Continue(())
        });
        let timeout = handle.get_or_init(|| timeout);
        let pending = || counts(&manual.timer, timeout);
        if is_elsewhere {
            manual.advance(10);
            assert_eq!(pending(), (1, Status::Pending));
            drop(taken(&kept));
        }
        for told in [(1, Status::Pending), (0, end)] {
            manual.advance(10);
            if is_elsewhere {
                assert_eq!(pending(), (1, Status::Pending));
                thread::spawn(taken(&kept)).join().expect("the panic is caught");
            }
            assert_eq!(pending(), told);
        }
        assert_eq!(runs.get(), if end == Status::Cancelled { 3 } else { 2 });
        manual.idle(10); // There is room.
        assert_eq!(manual.timer.pending(), 1);
    }
}

/// What [`Timer::pending`] says about waiting until none is left.
#[test]
fn a_channel_whose_senders_tasks_hold_ends_when_none_waits_or_runs() {
    let (kept, hand) = (Kept::default(), Hand::new());
    let manual = Manual::with(|builder| builder.executor(kept.executor()));
    let (sender, receiver) = mpsc::channel::<()>();
    let (async_sender, mut async_receiver) = unbounded::<()>();
    let task = |end: Status| {
        let held = (sender.clone(), async_sender.clone());
        move || {
            let _held = &held;
            assert_ne!(end, Status::Panicked, "as it should");
            ControlFlow::Break(())
        }
    };
    let fires = task(Status::Fired);
    manual.after(1, move || assert!(fires().is_break()));
    let [_, _, cancelled, stopped] =
        [(1, Status::Fired), (1, Status::Panicked), (2, Status::Cancelled), (3, Status::Stopped)]
            .map(|(delay, end)| manual.every(delay, MissedTick::Delay, task(end)));
    drop((sender, async_sender));
    manual.advance(1);
    let mut is_over = || {
        let is_over = receiver.recv_timeout(Duration::ZERO) == Err(RecvTimeoutError::Disconnected);
        assert_eq!(hand.poll(&mut async_receiver.next()).is_ready(), is_over);
        is_over
    };
    let runs = [taken(&kept), taken(&kept), taken(&kept)];
    assert!(cancelled.cancel() && !is_over());
    let unfired = manual.timer.stop().expect("outside");
    assert_eq!((unfired.len(), stopped.status()), (1, Status::Stopped));
    drop(unfired);
    for run in runs {
        assert!(!is_over());
        thread::spawn(run).join().expect("the panic is caught");
    }
    assert!(is_over());
}

/// The thread that stops the timer gets it, even if it was running then.
#[test]
fn stopped_while_it_runs_it_comes_back_after_the_run() {
    let (timer, gate, dropped) = (Timer::new(), Gate::default(), Count::default());
    let (inner, captured) = (gate.clone(), CountsDrop(dropped.clone()));
    let task = move || {
        let _captured = &captured;
        inner.pass();
        ControlFlow::Continue(())
    };
    let timeout = timer.schedule_repeating(ms(1), MissedTick::Delay, task).expect("it runs");
    gate.reached();
    let stops = timer.clone();
    let stopping = thread::spawn(move || stops.stop().expect("outside"));
    wait_until(|| timer.is_stopped());
    gate.open();
    let unfired = stopping.join().unwrap();
    assert_eq!((unfired.len(), gate.passed(), dropped.get()), (1, 1, 0));
    assert_eq!(unfired[0].deadline(), timeout.deadline());
    assert_eq!(timeout.status(), Status::Stopped);
    drop(unfired);
    assert_eq!(dropped.get(), 1);
}

#[test]
fn on_the_systems_clock_it_never_runs_early() {
    let timer = build(|builder| builder.tick(Duration::from_micros(100)));
    let (start, period) = (Instant::now(), Duration::from_micros(1_234));
    let runs: Arc<Mutex<Vec<_>>> = Arc::default();
    let times = Arc::clone(&runs);
    let task = move || {
        let mut times = times.lock().unwrap();
        times.push(start.elapsed());
        if times.len() == 50 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let timeout = timer.schedule_repeating(period, MissedTick::Burst, task).expect("it runs");
    wait_until(|| timeout.status() == Status::Fired);
    let runs = runs.lock().unwrap();
    assert!((1..).zip(runs.iter()).all(|(run, &time)| period * run <= time), "{runs:?}");
}

const ALL: [MissedTick; 3] = [MissedTick::Burst, MissedTick::Delay, MissedTick::Skip];
