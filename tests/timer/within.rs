//! Timeouts that may fire at any instant of a range.

use crate::common::Numbers;
use crate::help::{Count, Manual, build, ms};
use std::ops::{ControlFlow, RangeInclusive};
use std::sync::mpsc;
use std::time::Duration;
use tickwheel::{Clock, MissedTick, Mode, ScheduleErrorKind, Status, Timeout};

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

/// A range of milliseconds.
fn range(millis: RangeInclusive<u64>) -> RangeInclusive<Duration> {
    ms(*millis.start())..=ms(*millis.end())
}

/// Schedules a task that writes `number`, in the range.
fn within(manual: &Manual, millis: RangeInclusive<u64>, number: u32) -> Timeout {
    manual.timer.schedule_within(range(millis), manual.log.task(number)).expect("it runs")
}

fn the_deadline_is_in_the_range_at_any_tick(mode: Mode) {
    let mut numbers = Numbers(0x713);
    for tick in [1, 333, 1_000, 10_000_000].map(Duration::from_micros) {
        let manual = Manual::built(mode, |builder| builder.tick(tick).shards(1));
        let (clock, fired) = (&manual.clock, Count::default());
        let mut random = |limit| tick.mul_f64(numbers.below(limit) as f64 / 1_000.0);
        let mut earlier: Option<Timeout> = None;
        for _ in 0..100 {
            let now = Clock::now(clock);
            let shortest = random(9_000);
            let longest = shortest + random(9_000);
            let assert_in_range = |deadline| {
                assert!(now + shortest <= deadline, "never early");
                assert!(deadline < now + longest.max(shortest + tick), "not after the range");
            };
            let timeout = manual.timer.schedule_within(shortest..=longest, fired.task());
            let timeout = timeout.expect("it runs");
            assert_in_range(timeout.deadline().expect("it is near"));
            if let Some(moved) = earlier.replace(timeout) {
                let before = moved.deadline().expect("it is near");
                if moved.reschedule_within(shortest..=longest) {
                    let after = moved.deadline().expect("it is near");
                    assert_in_range(after);
                    let is_within = now + shortest <= before && before <= now + longest;
                    assert!(!is_within || before == after, "it stays");
                }
            }
            clock.advance(random(2_000));
        }
        clock.advance(tick * 20);
        assert_eq!(fired.get(), 100);
    }
}

fn two_that_overlap_fire_together(manual: Manual) {
    within(&manual, 30_000..=31_000, 1);
    assert_eq!(manual.advance(321), []);
    within(&manual, 30_000..=31_000, 2);
    assert_eq!(manual.advance(40_000), [(30_720, 1), (30_720, 2)]);
}

fn it_fires_with_what_is_due_already(mode: Mode) {
    let manual = Manual::built(mode, |builder| builder.shards(1));
    manual.once(5, 1);
    within(&manual, 4..=5, 2);
    assert_eq!(manual.advance(10), [(5, 1), (5, 2)]);
}

#[allow(clippy::reversed_empty_ranges, reason = "the end before the start is a case")]
fn a_range_without_a_tick_is_the_next_tick(mode: Mode) {
    let manual = Manual::built(mode, |builder| builder.tick(ms(10)));
    assert_eq!(manual.advance(3), []);
    for (number, millis) in [(1, 11..=15), (2, 17..=17), (3, 20..=2)] {
        within(&manual, millis, number);
    }
    assert_eq!(manual.advance(100), [(20, 1), (20, 2), (30, 3)]);
}

fn an_end_that_never_comes_is_an_end(manual: Manual) {
    let never = manual.timer.schedule(Duration::MAX, manual.log.task(1)).expect("it runs");
    let from = |shortest, number| {
        let task = manual.log.task(number);
        manual.timer.schedule_within(shortest..=Duration::MAX, task).expect("it runs")
    };
    let some = from(ms(1), 2);
    assert!(never.deadline().is_none() && some.deadline().is_some());
    assert!(some.reschedule_within(Duration::MAX..=Duration::MAX));
    assert_eq!(some.deadline(), None);
    assert!(some.reschedule_within(range(7..=7)));
    assert_eq!(manual.advance(10), [(7, 2)]);
    // It joins nothing that never comes.
    let late = from(Duration::from_secs(1 << 33), 3);
    assert!(late.deadline().is_some_and(|deadline| manual.at(1 << 40) < deadline));
    assert!(never.status() == Status::Pending && late.status() == Status::Pending);
}

fn in_the_range_it_stays_where_it_is(manual: Manual) {
    let idle = manual.once(100, 1);
    manual.once(100, 2);
    for _ in 0..5 {
        assert_eq!(manual.advance(10), []);
        assert!(idle.reschedule_within(range(40..=90)));
        assert_eq!(idle.deadline(), Some(manual.at(100)));
    }
    assert_eq!(manual.advance(50), [(100, 1), (100, 2)], "in its place");
}

fn out_of_the_range_it_moves(manual: Manual) {
    let idle = manual.once(100, 1);
    assert_eq!(manual.advance(50), []);
    assert!(idle.reschedule_within(range(60..=90)));
    assert_eq!(idle.deadline(), Some(manual.at(128)));
    assert!(idle.reschedule_within(range(1..=2)));
    let deadline = idle.deadline().expect("it is near");
    assert!((manual.at(51)..=manual.at(52)).contains(&deadline));
    assert_eq!(manual.advance(2).len(), 1);
}

fn what_has_ended_is_not_moved(mode: Mode) {
    let manual = Manual::built(mode, |builder| builder.max_pending(1));
    let range = || range(0..=100_000);
    let refused = |kind| {
        let error = manual.timer.schedule_within(range(), || {}).expect_err("it is refused");
        assert_eq!(error.kind(), kind);
        error.into_task()();
    };
    let fired = manual.once(1, 1);
    refused(ScheduleErrorKind::Full);
    assert_eq!(manual.advance(1), [(1, 1)]);
    assert!(!fired.reschedule_within(range()));
    let cancelled = within(&manual, 0..=100_000, 2);
    assert!(cancelled.cancel() && !cancelled.reschedule_within(range()));
    let repeating = manual.every(10, MissedTick::Skip, || ControlFlow::Continue(()));
    manual.timer.stop().expect("outside");
    assert!(!repeating.reschedule_within(range()));
    refused(ScheduleErrorKind::Stopped);
}

fn a_repeating_one_moves_its_next_run(manual: Manual) {
    let beat = manual.every(100, MissedTick::Skip, manual.log.repeat(1, 4));
    assert_eq!(manual.advance(100), [(100, 1)]);
    // It is due at 200, and might meet another one.
    let other = manual.idle(105);
    assert!(beat.reschedule_within(range(50..=110)) && other.cancel());
    assert_eq!(beat.deadline(), Some(manual.at(200)));
    assert_eq!(manual.timer.stats().rescheduled, 0, "in the range it stays");
    assert!(beat.reschedule_within(range(150..=160)));
    assert_eq!(beat.deadline(), Some(manual.at(256)));
    assert_eq!(manual.advance(400), [(256, 1), (356, 1), (456, 1)], "the rate goes on from there");
    assert!(!beat.reschedule_within(range(0..=1_000)));
}

fn a_repeating_one_that_runs_moves_the_run_after(manual: Manual) {
    let (sender, receiver) = mpsc::channel::<Timeout>();
    let (log, mut handle) = (manual.log.clone(), None);
    let beat = manual.every(10, MissedTick::Delay, move || {
        log.write(1);
        let handle: &Timeout = handle.get_or_insert_with(|| receiver.recv().unwrap());
        // It is due now, and that is not the run that is meant.
        assert!(handle.reschedule_within(range(0..=500)) || log.now() > 1_000);
        if log.now() > 300 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    sender.send(beat).unwrap();
    assert_eq!(manual.advance(1_000), [(10, 1), (256, 1), (512, 1)]);
}

/// With the system's clock, as a clock moved by hand tells the worker itself.
fn the_worker_is_told_of_it(mode: Mode) {
    let (timer, fired) = (build(|builder| builder.mode(mode)), Count::default());
    let far = timer.schedule(ms(3_600_000), fired.task()).expect("it runs");
    std::thread::sleep(ms(5));
    timer.schedule_within(range(1..=3), fired.task()).expect("it runs");
    fired.wait_for(1);
    assert!(far.reschedule_within(range(1..=3)));
    fired.wait_for(2);
}
