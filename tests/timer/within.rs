//! Timeouts that may fire at any instant of a range.

use crate::common::Numbers;
use crate::help::{Count, Manual, ms, wait_until};
use std::ops::ControlFlow;
use std::time::Duration;
use tickwheel::{Clock, ManualClock, MissedTick, Mode, ScheduleErrorKind, Status, Timer};

in_each_mode! {
    the_deadline_is_in_the_range_at_any_tick,
    two_that_overlap_fire_together,
    it_fires_with_what_is_due_already,
    a_range_without_a_tick_is_the_next_tick,
    an_end_that_never_comes_is_an_end,
    in_the_range_it_stays_where_it_is,
    out_of_the_range_it_moves,
    what_has_ended_is_not_moved,
    a_repeating_one_moves_its_next_run,
    a_repeating_one_that_runs_moves_the_run_after,
    the_worker_is_told_of_it,
}

fn the_deadline_is_in_the_range_at_any_tick(mode: Mode) {
    let mut numbers = Numbers(0x713);
    for tick in [1, 333, 1_000, 10_000_000].map(Duration::from_micros) {
        let clock = ManualClock::new();
        let timer = Timer::builder().mode(mode).tick(tick).clock(clock.clone());
        let timer = timer.shards(1).build().expect("in range");
        let fired = Count::default();
        let mut scheduled = 0;
        let mut moved = None;
        for _ in 0..100 {
            let now = Clock::now(&clock);
            let random =
                |numbers: &mut Numbers| tick.mul_f64(numbers.below(9_000) as f64 / 1_000.0);
            let shortest = random(&mut numbers);
            let longest = shortest + random(&mut numbers);
            let timeout = timer.schedule_within(shortest..=longest, fired.task()).expect("it runs");
            let deadline = timeout.deadline().expect("it is near");
            assert!(now + shortest <= deadline, "never early");
            assert!(deadline < now + longest.max(shortest + tick), "not after the range");
            scheduled += 1;
            if let Some(moved) = moved.replace(timeout) {
                let before = moved.deadline().expect("it is near");
                if moved.reschedule_within(shortest..=longest) {
                    let after = moved.deadline().expect("it is near");
                    assert!(now + shortest <= after && after < now + longest.max(shortest + tick));
                    let is_within = now + shortest <= before && before <= now + longest;
                    assert!(!is_within || before == after, "it stays");
                }
            }
            clock.advance(tick.mul_f64(numbers.below(2_000) as f64 / 1_000.0));
        }
        clock.advance(tick * 20);
        assert_eq!(fired.get(), scheduled);
    }
}

fn two_that_overlap_fire_together(mode: Mode) {
    let manual = Manual::new(mode);
    let timer = &manual.timer;
    timer.schedule_within(ms(30_000)..=ms(31_000), manual.log.task(1)).expect("it runs");
    assert_eq!(manual.advance(321), []);
    timer.schedule_within(ms(30_000)..=ms(31_000), manual.log.task(2)).expect("it runs");
    assert_eq!(manual.advance(40_000), [(30_720, 1), (30_720, 2)]);
}

fn it_fires_with_what_is_due_already(mode: Mode) {
    let manual = Manual::built(mode, |builder| builder.shards(1));
    manual.timer.schedule(ms(5), manual.log.task(1)).expect("it runs");
    manual.timer.schedule_within(ms(4)..=ms(5), manual.log.task(2)).expect("it runs");
    assert_eq!(manual.advance(10), [(5, 1), (5, 2)]);
}

fn a_range_without_a_tick_is_the_next_tick(mode: Mode) {
    let manual = Manual::built(mode, |builder| builder.tick(ms(10)));
    assert_eq!(manual.advance(3), []);
    for (number, range) in [(1, ms(11)..=ms(15)), (2, ms(17)..=ms(17)), (3, ms(20)..=ms(2))] {
        manual.timer.schedule_within(range, manual.log.task(number)).expect("it runs");
    }
    assert_eq!(manual.advance(100), [(20, 1), (20, 2), (30, 3)]);
}

fn an_end_that_never_comes_is_an_end(mode: Mode) {
    let manual = Manual::new(mode);
    let task = manual.log.task(1);
    let never = manual.timer.schedule(Duration::MAX, task).expect("it runs");
    let task = manual.log.task(2);
    let some = manual.timer.schedule_within(ms(1)..=Duration::MAX, task).expect("it runs");
    assert!(never.deadline().is_none() && some.deadline().is_some());
    assert!(some.reschedule_within(Duration::MAX..=Duration::MAX));
    assert_eq!(some.deadline(), None);
    assert!(some.reschedule_within(ms(7)..=ms(7)));
    assert_eq!(manual.advance(10), [(7, 2)]);
    // It joins nothing that never comes.
    let range = Duration::from_secs(1 << 33)..=Duration::MAX;
    let late = manual.timer.schedule_within(range, || {}).expect("it runs");
    assert!(late.deadline().is_some_and(|deadline| manual.at(1 << 40) < deadline));
    assert!(never.status() == Status::Pending && late.status() == Status::Pending);
}

fn in_the_range_it_stays_where_it_is(mode: Mode) {
    let manual = Manual::new(mode);
    let idle = manual.timer.schedule(ms(100), manual.log.task(1)).expect("it runs");
    manual.timer.schedule(ms(100), manual.log.task(2)).expect("it runs");
    for _ in 0..5 {
        assert_eq!(manual.advance(10), []);
        assert!(idle.reschedule_within(ms(40)..=ms(90)));
        assert_eq!(idle.deadline(), Some(manual.at(100)));
    }
    assert_eq!(manual.advance(50), [(100, 1), (100, 2)], "in its place");
}

fn out_of_the_range_it_moves(mode: Mode) {
    let manual = Manual::new(mode);
    let idle = manual.timer.schedule(ms(100), manual.log.task(1)).expect("it runs");
    assert_eq!(manual.advance(50), []);
    assert!(idle.reschedule_within(ms(60)..=ms(90)));
    assert_eq!(idle.deadline(), Some(manual.at(128)));
    assert!(idle.reschedule_within(ms(1)..=ms(2)));
    let deadline = idle.deadline().expect("it is near");
    assert!((manual.at(51)..=manual.at(52)).contains(&deadline));
    assert_eq!(manual.advance(2).len(), 1);
}

fn what_has_ended_is_not_moved(mode: Mode) {
    let manual = Manual::built(mode, |builder| builder.max_pending(1));
    let range = ms(0)..=ms(100_000);
    let fired = manual.timer.schedule(ms(1), manual.log.task(1)).expect("it runs");
    let refused = manual.timer.schedule_within(range.clone(), || {}).expect_err("it is full");
    assert_eq!(refused.kind(), ScheduleErrorKind::Full);
    assert_eq!(manual.advance(1), [(1, 1)]);
    assert!(!fired.reschedule_within(range.clone()));
    let cancelled = manual.timer.schedule_within(range.clone(), || {}).expect("it runs");
    assert!(cancelled.cancel() && !cancelled.reschedule_within(range.clone()));
    let beat = || ControlFlow::Continue(());
    let repeating = manual.timer.schedule_repeating(ms(10), MissedTick::Skip, beat);
    let repeating = repeating.expect("it runs");
    manual.timer.stop().expect("outside");
    assert!(!repeating.reschedule_within(range.clone()));
    let refused = manual.timer.schedule_within(range, || {}).expect_err("it is stopped");
    assert_eq!(refused.kind(), ScheduleErrorKind::Stopped);
    refused.into_task()();
}

fn a_repeating_one_moves_its_next_run(mode: Mode) {
    let manual = Manual::new(mode);
    let task = manual.log.repeat(1, 4);
    let beat = manual.timer.schedule_repeating(ms(100), MissedTick::Skip, task).expect("it runs");
    assert_eq!(manual.advance(100), [(100, 1)]);
    // It is due at 200, and might meet another one.
    let other = manual.timer.schedule(ms(105), || {}).expect("it runs");
    assert!(beat.reschedule_within(ms(50)..=ms(110)) && other.cancel());
    assert_eq!(beat.deadline(), Some(manual.at(200)));
    assert!(beat.reschedule_within(ms(150)..=ms(160)));
    assert_eq!(beat.deadline(), Some(manual.at(256)));
    assert_eq!(manual.advance(400), [(256, 1), (356, 1), (456, 1)], "the rate goes on from there");
    assert!(!beat.reschedule_within(ms(0)..=ms(1_000)));
}

fn a_repeating_one_that_runs_moves_the_run_after(mode: Mode) {
    let manual = Manual::new(mode);
    let (sender, receiver) = std::sync::mpsc::channel::<tickwheel::Timeout>();
    let log = manual.log.clone();
    let mut handle = None;
    let beat = manual.timer.schedule_repeating(ms(10), MissedTick::Delay, move || {
        log.write(1);
        let handle: &tickwheel::Timeout = handle.get_or_insert_with(|| receiver.recv().unwrap());
        // It is due now, and that is not the run that is meant.
        assert!(handle.reschedule_within(ms(0)..=ms(500)) || log.now() > 1_000);
        if log.now() > 300 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    sender.send(beat.expect("it runs")).unwrap();
    let runs: Vec<_> = manual.advance(1_000).into_iter().map(|(at, _)| at).collect();
    assert_eq!(runs, [10, 256, 512]);
}

/// With the system's clock, as a clock moved by hand tells the worker itself.
fn the_worker_is_told_of_it(mode: Mode) {
    let timer = Timer::builder().mode(mode).build().expect("in range");
    let fired = Count::default();
    let far = timer.schedule(Duration::from_secs(3_600), fired.task()).expect("it runs");
    std::thread::sleep(ms(5));
    timer.schedule_within(ms(1)..=ms(3), fired.task()).expect("it runs");
    wait_until(|| fired.get() == 1);
    assert!(far.reschedule_within(ms(1)..=ms(3)));
    wait_until(|| fired.get() == 2);
}
