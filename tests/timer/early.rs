//! Never early, by the timer's own clock, from the call; at any tick, for any delay.

use crate::common::{Numbers, long};
use crate::help::{Count, Manual, build, ms};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tickwheel::{Mode, Timer};

in_each_mode! {
    by_parts_of_a_tick_in_every_mode,
    after_idling_it_is_not_early,
}

/// Delays that are no multiple of the tick, scheduled at times that are none either: not before the
/// end of the delay, and less than a tick after it.
fn by_parts_of_a_tick_in_every_mode(mode: Mode) {
    let timeouts = long(50, 200);
    for tick in [1, 7, 1_000, 333_333, 1_000_000].map(Duration::from_micros) {
        let Manual { timer, clock, .. } = Manual::built(mode, |builder| builder.tick(tick));
        let (mut numbers, fired) = (Numbers(0x7142), Count::default());
        let wrong: Arc<Mutex<Vec<_>>> = Arc::default();
        for _ in 0..timeouts {
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
        assert_eq!(fired.get(), timeouts);
        assert_eq!(*wrong.lock().unwrap(), [], "at a tick of {tick:?}");
    }
}

fn after_idling_it_is_not_early(mode: Mode) {
    let manual = Manual::built(mode, |builder| builder.tick(ms(10)));
    manual.once(1, 1);
    assert_eq!(manual.advance(9), []);
    assert_eq!(manual.advance(1), [(10, 1)]);
    manual.clock.advance(Duration::from_micros(7_500));
    manual.once(2_555, 2);
    manual.clock.advance(ms(2_555) - Duration::from_nanos(1));
    assert_eq!(manual.log.take(), []);
    assert_eq!(manual.advance(10), [(2_580, 2)]);
}

/// How many tasks have run, and how many of them before they were due, by the system's clock.
#[derive(Clone, Default)]
struct Seen {
    fired: Count,
    early: Count,
}

impl Seen {
    fn task(&self, due: Instant) -> impl FnOnce() + Send + 'static {
        let seen = self.clone();
        move || {
            if Instant::now() < due {
                seen.early.add();
            }
            seen.fired.add();
        }
    }

    #[track_caller]
    fn is_never_early(&self, count: usize, tick: Duration) {
        self.fired.wait_for(count);
        assert_eq!(self.early.get(), 0, "at a tick of {tick:?}");
    }
}

/// From two threads at once.
#[test]
fn at_any_tick_and_any_delay() {
    for tick in [1, 10, 100, 1_000, 10_000].map(Duration::from_micros) {
        let (timer, seen) = (build(|builder| builder.tick(tick)), Seen::default());
        let schedule = |seed| {
            let mut numbers = Numbers(seed);
            for _ in 0..500 {
                let delay = Duration::from_nanos(numbers.below(30_000_000));
                timer.schedule(delay, seen.task(Instant::now() + delay)).expect("it runs");
            }
        };
        thread::scope(|scope| [1, 2].map(|seed| drop(scope.spawn(move || schedule(seed)))));
        seen.is_never_early(1_000, tick);
    }
}

#[test]
fn by_the_clock_inside_the_task_too() {
    let (timer, seen) = (Timer::new(), Seen::default());
    for millis in 0..50 {
        let due = Instant::now() + ms(millis);
        timer.schedule_at(due, seen.task(due)).expect("it runs");
    }
    seen.is_never_early(50, ms(1));
}

#[test]
fn a_hundred_thousand_of_one_delay_are_never_early() {
    let (timer, seen, delay) = (build(|builder| builder.tick(ms(200))), Seen::default(), ms(125));
    for _ in 0..100_000 {
        timer.schedule(delay, seen.task(Instant::now() + delay)).expect("it runs");
    }
    seen.is_never_early(100_000, ms(200));
}
