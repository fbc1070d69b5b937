//! Never early, by the timer's own clock, from the call; at any tick, for any delay.

use crate::common::Numbers;
use crate::help::{Count, Manual, ms, wait_until};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tickwheel::{Clock, ManualClock, Mode, Timer};

in_each_mode! {
    by_parts_of_a_tick_in_every_mode,
    after_idling_it_is_not_early,
}

/// Delays that are no multiple of the tick, scheduled at times that are none either: not before the
/// end of the delay, and less than a tick after it.
fn by_parts_of_a_tick_in_every_mode(mode: Mode) {
    for tick in [1, 7, 1_000, 333_333, 1_000_000].map(Duration::from_micros) {
        let clock = ManualClock::new();
        let timer =
            Timer::builder().mode(mode).tick(tick).clock(clock.clone()).build().expect("in range");
        let mut numbers = Numbers(0x7142);
        let fired = Count::default();
        let wrong: Arc<Mutex<Vec<_>>> = Arc::default();
        for _ in 0..200 {
            let delay = tick.mul_f64(numbers.below(10_000) as f64 / 1_000.0);
            let due = clock.now() + delay;
            let (at, fired, wrong) = (clock.clone(), fired.clone(), Arc::clone(&wrong));
            let task = move || {
                if at.now() < due || due + tick <= at.now() {
                    wrong.lock().unwrap().push((delay, at.now() - due));
                }
                fired.add();
            };
            timer.schedule(delay, task).expect("it runs");
            clock.advance(tick.mul_f64(numbers.below(2_000) as f64 / 1_000.0));
        }
        clock.advance(tick * 20);
        assert_eq!(fired.get(), 200);
        assert_eq!(*wrong.lock().unwrap(), [], "at a tick of {tick:?}");
    }
}

fn after_idling_it_is_not_early(mode: Mode) {
    let manual = Manual::built(mode, |builder| builder.tick(ms(10)));
    manual.timer.schedule(ms(1), manual.log.task(1)).expect("it runs");
    assert_eq!(manual.advance(9), []);
    assert_eq!(manual.advance(1), [(10, 1)]);
    manual.clock.advance(Duration::from_micros(7_500));
    let due = Clock::now(&manual.clock) + ms(2_555);
    manual.timer.schedule(ms(2_555), manual.log.task(2)).expect("it runs");
    manual.clock.advance(due - Clock::now(&manual.clock) - Duration::from_nanos(1));
    assert_eq!(manual.log.take(), []);
    assert_eq!(manual.advance(10), [(2_580, 2)]);
}

/// On the system's clock, at each tick, from two threads.
#[test]
fn at_any_tick_and_any_delay() {
    for tick in [1, 10, 100, 1_000, 10_000].map(Duration::from_micros) {
        let timer = Timer::builder().tick(tick).build().expect("in range");
        let (fired, early) = (Count::default(), Count::default());
        let schedule = |seed: u64| {
            let (timer, fired, early) = (timer.clone(), fired.clone(), early.clone());
            thread::spawn(move || {
                let mut numbers = Numbers(seed);
                for _ in 0..500 {
                    let delay = Duration::from_nanos(numbers.below(30_000_000));
                    let (fired, early, start) = (fired.clone(), early.clone(), Instant::now());
                    let task = move || {
                        if start.elapsed() < delay {
                            early.add();
                        }
                        fired.add();
                    };
                    timer.schedule(delay, task).expect("it runs");
                }
            })
        };
        for thread in [1, 2].map(schedule) {
            thread.join().unwrap();
        }
        wait_until(|| fired.get() == 1_000);
        assert_eq!(early.get(), 0, "at a tick of {tick:?}");
    }
}

#[test]
fn by_the_clock_inside_the_task_too() {
    let timer = Timer::new();
    let (fired, early) = (Count::default(), Count::default());
    for millis in 0..50 {
        let due = Instant::now() + ms(millis);
        let (fired, early) = (fired.clone(), early.clone());
        let task = move || {
            if Instant::now() < due {
                early.add();
            }
            fired.add();
        };
        timer.schedule_at(due, task).expect("it runs");
    }
    wait_until(|| fired.get() == 50);
    assert_eq!(early.get(), 0);
}

#[test]
fn a_hundred_thousand_of_one_delay_are_never_early() {
    const DELAY: Duration = Duration::from_millis(125);
    let timer = Timer::builder().tick(ms(200)).build().expect("in range");
    let (fired, early) = (Count::default(), Count::default());
    for _ in 0..100_000 {
        let (fired, early, start) = (fired.clone(), early.clone(), Instant::now());
        let task = move || {
            if start.elapsed() < DELAY {
                early.add();
            }
            fired.add();
        };
        timer.schedule(DELAY, task).expect("it runs");
    }
    wait_until(|| fired.get() == 100_000);
    assert_eq!(early.get(), 0);
}
