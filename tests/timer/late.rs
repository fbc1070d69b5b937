//! What is late, by how much, and how one sees it.

use crate::help::{Manual, build, ms};
use crate::zoo::clocks::OddClock;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};
use tickwheel::{Follower, Lateness, Timer, TimerBuilder};

in_each_mode! {
    a_blocked_worker_skips_nothing,
    a_task_makes_what_is_due_with_it_late,
    on_time_is_not_late,
    a_jump_shows_as_lateness,
    a_quantile_of_a_power_of_two_is_nearly_an_eighth_too_long,
}

fn a_blocked_worker_skips_nothing(manual: Manual) {
    let (clock, log) = (manual.clock.clone(), manual.log.clone());
    // On the worker the clock only moves, as if the task took so long.
    let slow = move || {
        log.write(1);
        clock.advance(ms(10));
    };
    manual.after(1, slow);
    manual.once(5, 2);
    manual.once(30, 3);
    assert_eq!(manual.advance(30), [(1, 1), (11, 2), (30, 3)]);
    let stats = manual.timer.stats();
    assert_eq!((stats.longest_task, stats.lateness.max()), (ms(10), ms(6)));
    assert_eq!(stats.lateness.count(), 3);
}

fn a_task_makes_what_is_due_with_it_late(manual: Manual) {
    for _ in 0..3 {
        let clock = manual.clock.clone();
        manual.after(1, move || clock.advance(ms(10)));
    }
    manual.advance(1);
    let stats = manual.timer.stats();
    let late: Vec<_> = stats.lateness.iter().map(|(_, count)| count).collect();
    assert_eq!((stats.longest_task, stats.lateness.max()), (ms(10), ms(20)));
    assert_eq!((stats.lateness.sum(), late), (ms(30), vec![1, 1, 1]));
}

fn on_time_is_not_late(manual: Manual) {
    (1..100).for_each(|delay| drop(manual.idle(delay)));
    manual.advance(100);
    let stats = manual.timer.stats();
    assert_eq!((stats.fired, stats.lateness.count()), (99, 99));
    assert_eq!(stats.lateness.max(), Duration::ZERO);
}

fn a_jump_shows_as_lateness(manual: Manual) {
    (1..=100).for_each(|delay| drop(manual.idle(delay)));
    assert_eq!(manual.jump(100).len(), 0);
    let lateness = manual.timer.stats().lateness;
    assert_eq!((lateness.count(), lateness.max()), (100, ms(99)));
    let median = lateness.quantile(0.5);
    assert!(ms(49) <= median && median <= ms(49) * 9 / 8, "{median:?}");
    assert_eq!(lateness.iter().map(|(_, count)| count).sum::<u64>(), 100);
}

/// So wide is the class of durations that a power of two is the shortest of.
fn a_quantile_of_a_power_of_two_is_nearly_an_eighth_too_long(manual: Manual) {
    let late = Duration::from_nanos(1 << 20);
    manual.idle(10);
    manual.clock.jump(ms(10) + late);
    manual.idle(10);
    manual.clock.jump(ms(1_000));
    let found = manual.timer.stats().lateness.quantile(0.5);
    assert!(late * 17 / 16 <= found && found <= late * 9 / 8, "{found:?}");
}

#[test]
fn two_that_have_no_durations_are_equal() {
    let stats = Timer::new().stats();
    assert!(stats.lateness == Lateness::default() && stats.executor_wait == Lateness::default());
}

/// Stands where the test puts it, and notes for how long the worker asks to sleep.
struct Asked(Arc<(Instant, Mutex<[Duration; 2]>, OnceLock<Follower>)>);

impl Asked {
    fn new() -> Self {
        Self(Arc::new((Instant::now(), Mutex::default(), OnceLock::new())))
    }

    fn clock(&self) -> OddClock {
        let [read, wait, follow] = [(); 3].map(|()| Arc::clone(&self.0));
        OddClock::new(move || read.0 + read.1.lock().expect("no panics")[0])
            .waiting(move |duration| {
                wait.1.lock().expect("no panics")[1] = duration;
                None
            })
            .following(move |follower| follow.2.set(follower).expect("one timer"))
    }

    /// Lets the worker sleep as it asks to until all has fired, and returns for how long it did.
    fn waits(&self, timer: &Timer) -> Vec<Duration> {
        let mut waits = Vec::new();
        loop {
            _ = self.0.2.get().expect("the timer follows it").settle();
            if timer.pending() == 0 {
                return waits;
            }
            let [passed, wait] = &mut *self.0.1.lock().expect("no panics");
            *passed += *wait;
            waits.push(*wait);
        }
    }
}

#[test]
fn by_default_what_is_due_within_a_millisecond_fires_together() {
    let waits = |with: fn(TimerBuilder) -> TimerBuilder| {
        let clock = Asked::new();
        let timer = build(|builder| with(builder).clock(clock.clock()));
        for delay in [10_100, 10_300, 10_900, 11_200, 18_200] {
            timer.schedule(Duration::from_micros(delay), || {}).expect("it runs");
        }
        clock.waits(&timer).iter().map(Duration::as_micros).collect::<Vec<_>>()
    };
    // At 10.9375, 11.25 and 18.25 ms.
    assert_eq!(waits(|builder| builder), [10_937, 312, 7_000]);
    let alone = |builder: TimerBuilder| builder.tick(Duration::from_nanos(62_500));
    assert_eq!(waits(alone), [10_125, 187, 625, 312, 7_000]);
}

/// Something is due at each tick, which is a sixteenth of a millisecond.
#[test]
fn by_default_the_worker_wakes_up_once_per_millisecond() {
    const MILLIS: u32 = 20;
    let clock = Asked::new();
    let timer = build(|builder| builder.clock(clock.clock()));
    for tick in 0..16 * MILLIS {
        timer.schedule(ms(10) + ms(1) * tick / 16, || {}).expect("it runs");
    }
    assert_eq!(clock.waits(&timer).len(), MILLIS as usize);
    let latest = timer.stats().lateness.max();
    assert!(ms(1) / 2 <= latest && latest < ms(1), "{latest:?}");
}
