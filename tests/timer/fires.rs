//! What fires, when, and in which order.

use crate::help::{Count, Log, Manual, build, ms};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tickwheel::{Mode, Status, Timer};

in_each_mode! {
    runs_at_its_deadline_and_not_before,
    an_instant_in_the_past_is_due_at_once,
    delays_of_all_sizes_fire_each_at_its_own_tick,
    equal_deadlines_fire_as_scheduled,
    a_task_that_schedules_itself_goes_on_until_stop,
    chains_all_end_before_stop,
    what_a_task_schedules_for_now_fires_as_well,
    pending_counts_what_waits,
    the_next_deadline_is_exact,
    the_next_deadline_is_exact_behind_many_that_were_cancelled,
    nobody_has_to_drive_it,
    a_busy_task_does_not_starve_others,
}

fn runs_at_its_deadline_and_not_before(manual: Manual) {
    let timeout = manual.once(10_000, 1);
    assert_eq!(timeout.deadline(), Some(manual.at(10_000)));
    assert_eq!(manual.advance(3_000), []);
    assert_eq!(timeout.status(), Status::Pending);
    assert_eq!(manual.advance(6_999), []);
    assert_eq!(manual.advance(1), [(10_000, 1)]);
    assert_eq!(timeout.status(), Status::Fired);
    assert_eq!(manual.advance(100_000), []);
}

fn an_instant_in_the_past_is_due_at_once(manual: Manual) {
    let before_the_timer = manual.at(0) - ms(1);
    assert_eq!(manual.advance(1_000), []);
    let instants = [995, 0, 1_000, 999].map(|millis| manual.at(millis));
    for (number, instant) in (1..).zip(instants.into_iter().chain([before_the_timer])) {
        manual.timer.schedule_at(instant, manual.log.task(number)).expect("it runs");
    }
    let mut ran = manual.advance(0);
    ran.sort_unstable();
    assert_eq!(ran, [1, 2, 3, 4, 5].map(|number| (1_000, number)));
    assert_eq!(manual.advance(1_000), []);
}

fn delays_of_all_sizes_fire_each_at_its_own_tick(manual: Manual) {
    let delays = (0..5).chain((10..100).flat_map(|delay| [delay, delay])).chain(100..500);
    let expected: Vec<_> = delays.zip(0..).collect();
    for &(delay, number) in &expected {
        manual.once(delay, number);
    }
    assert_eq!(manual.advance(1_000), expected);
}

fn equal_deadlines_fire_as_scheduled(manual: Manual) {
    // Far and near, so that some are demoted and some are not.
    let deadline = manual.at(5_000);
    for number in 0..10 {
        manual.timer.schedule_at(deadline, manual.log.task(number)).expect("it runs");
        assert_eq!(manual.advance(499), []);
    }
    let expected: Vec<_> = (0..10).map(|number| (5_000, number)).collect();
    assert_eq!(manual.advance(1_000), expected);
}

/// A task that writes `number` and schedules the next one after `period`, as often as `times` says.
fn chain(timer: &Timer, log: &Log, number: u32, period: u64, times: u32) {
    let (inner, log) = (timer.clone(), log.clone());
    let task = move || {
        log.write(number);
        if times > 1 {
            chain(&inner, &log, number, period, times - 1);
        }
    };
    timer.schedule(ms(period), task).expect("it runs");
}

fn a_task_that_schedules_itself_goes_on_until_stop(manual: Manual) {
    chain(&manual.timer, &manual.log, 1, 100, u32::MAX);
    let expected: Vec<_> = (1..=10).map(|run| (run * 100, 1)).collect();
    assert_eq!(manual.advance(1_050), expected);
    let unfired = manual.timer.stop().expect("outside");
    assert_eq!(unfired.len(), 1);
    assert_eq!(unfired[0].deadline(), Some(manual.at(1_100)));
}

fn chains_all_end_before_stop(manual: Manual) {
    for number in 0..20 {
        chain(&manual.timer, &manual.log, number, u64::from(number) + 1, 10);
    }
    let ran = manual.advance(200);
    for number in 0..20 {
        let times = ran.iter().filter(|(_, other)| *other == number).map(|(millis, _)| *millis);
        let expected = (1..=10).map(|run| run * (u64::from(number) + 1));
        assert!(times.eq(expected), "{number}: {ran:?}");
    }
    assert!(manual.timer.stop().expect("outside").is_empty());
}

fn what_a_task_schedules_for_now_fires_as_well(manual: Manual) {
    let (timer, log, second) = (manual.timer.clone(), manual.log.clone(), manual.log.task(2));
    let task = move || {
        log.write(1);
        timer.schedule(Duration::ZERO, second).expect("it runs");
    };
    manual.after(10, task);
    assert_eq!(manual.advance(10), [(10, 1), (10, 2)]);
}

fn pending_counts_what_waits(manual: Manual) {
    assert_eq!(manual.timer.pending(), 0);
    let [first, second, _third] = [10, 20, 30].map(|delay| manual.idle(delay));
    assert_eq!(manual.timer.pending(), 3);
    assert!(first.cancel() && second.cancel() && !second.cancel());
    assert_eq!(manual.timer.pending(), 1);
    manual.advance(30);
    assert_eq!(manual.timer.pending(), 0);
    let stats = manual.timer.stats();
    assert_eq!((stats.pending, stats.fired, stats.cancelled), (0, 1, 2));
}

fn the_next_deadline_is_exact(manual: Manual) {
    assert_eq!(manual.timer.next_deadline(), None);
    manual.timer.schedule(Duration::MAX, || {}).expect("it runs");
    assert_eq!(manual.timer.next_deadline(), None);
    let far = manual.idle(1_000_000);
    let near = manual.timer.schedule(Duration::from_micros(1_001), || {}).expect("it runs");
    assert_eq!(manual.timer.next_deadline(), Some(manual.at(2)));
    assert_eq!(manual.timer.next_deadline(), near.deadline());
    assert!(near.cancel());
    assert_eq!(manual.timer.next_deadline(), far.deadline());
    assert!(far.cancel());
    assert_eq!(manual.timer.next_deadline(), None);
}

fn the_next_deadline_is_exact_behind_many_that_were_cancelled(mode: Mode) {
    let manual = Manual::built(mode, |builder| builder.shards(1));
    let mut timeouts: Vec<_> = (1..=4_000).map(|number| manual.idle(number * 97)).collect();
    // Fewer than those that stay, so that none is swept out.
    let stay = timeouts.split_off(1_900);
    assert!(timeouts.iter().all(|timeout| timeout.cancel()));
    assert_eq!(manual.timer.next_deadline(), stay[0].deadline());
}

fn nobody_has_to_drive_it(mode: Mode) {
    let timer = build(|builder| builder.mode(mode));
    let (fired, start) = (Arc::new(Mutex::new(Vec::new())), Instant::now());
    for delay in [30, 10, 20] {
        let fired = Arc::clone(&fired);
        let task = move || fired.lock().unwrap().push((delay, start.elapsed()));
        timer.schedule(ms(delay), task).expect("it runs");
    }
    // Not in which order: a thread that is held up schedules the second when the first has fired.
    crate::help::wait_until(|| fired.lock().unwrap().len() == 3);
    let fired = fired.lock().unwrap();
    assert!(fired.iter().all(|&(delay, elapsed)| ms(delay) <= elapsed), "{fired:?}");
}

fn a_busy_task_does_not_starve_others(mode: Mode) {
    fn busy(timer: &Timer) {
        let inner = timer.clone();
        // After stop it is an error, which ends it.
        let _ = timer.schedule(Duration::ZERO, move || busy(&inner));
    }
    let timer = build(|builder| builder.mode(mode).tick(Duration::from_micros(1)));
    (0..100).for_each(|_| busy(&timer));
    let fired = Count::default();
    let schedule = || drop(timer.schedule(ms(5), fired.task()).expect("it runs"));
    // From another thread, and so perhaps in another shard.
    thread::scope(|scope| scope.spawn(schedule).join()).unwrap();
    schedule();
    fired.wait_for(2);
    timer.stop().expect("outside");
}
