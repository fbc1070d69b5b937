//! The clock that the test moves.

use crate::common::Numbers;
use crate::help::{Count, Manual, ms, returns, wait_until};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};
use tickwheel::{Clock, Follower, ManualClock, MissedTick, Mode, Timeout, Timer};

in_each_mode! {
    a_task_finds_the_clock_at_its_deadline,
    every_run_is_like_the_other,
    parts_of_a_tick_add_up,
    a_timer_tells_the_time_of_its_clock,
    each_timer_goes_by_its_own,
    several_timers_go_by_one,
    inside_a_task_it_only_moves,
    what_other_threads_schedule_is_in_order_too,
}

fn a_task_finds_the_clock_at_its_deadline(mode: Mode) {
    let manual = Manual::new(mode);
    for (number, delay) in [(1, 500), (2, 10), (3, 99), (4, 1_000_000)] {
        manual.timer.schedule(ms(delay), manual.log.task(number)).expect("it runs");
    }
    assert_eq!(manual.advance(2_000_000), [(10, 2), (99, 3), (500, 1), (1_000_000, 4)]);
    assert_eq!(manual.now(), 2_000_000);
}

fn every_run_is_like_the_other(mode: Mode) {
    let run = || {
        let manual = Manual::new(mode);
        let mut numbers = Numbers(2_026);
        let mut timeouts: Vec<Timeout> = Vec::new();
        let mut ran = Vec::new();
        for number in 0..500 {
            let delay = ms(numbers.below(1_000));
            let (timer, log, second) =
                (manual.timer.clone(), manual.log.clone(), ms(numbers.below(100)));
            let task = move || {
                log.write(number);
                timer.schedule(second, log.task(number + 1_000)).map(drop).expect("it runs");
            };
            timeouts.push(manual.timer.schedule(delay, task).expect("it runs"));
            let index = numbers.below(timeouts.len() as u64) as usize;
            match numbers.below(3) {
                0 => drop(timeouts[index].cancel()),
                1 => drop(timeouts[index].reschedule(ms(numbers.below(1_000)))),
                _ => ran.extend(manual.advance(numbers.below(20))),
            }
        }
        ran.extend(manual.advance(2_000));
        ran
    };
    let first = run();
    assert!(first.len() > 100);
    assert_eq!(run(), first);
}

fn parts_of_a_tick_add_up(mode: Mode) {
    let manual = Manual::new(mode);
    manual.timer.schedule(ms(1), manual.log.task(1)).expect("it runs");
    manual.timer.schedule(Duration::from_micros(1_500), manual.log.task(2)).expect("it runs");
    for _ in 0..9 {
        manual.clock.advance(Duration::from_micros(100));
        assert_eq!(manual.log.take(), []);
    }
    manual.clock.advance(Duration::from_micros(100));
    assert_eq!(manual.log.take(), [(1, 1)]);
    manual.clock.advance(Duration::from_nanos(999_999));
    assert_eq!(manual.log.take(), []);
    manual.clock.advance(Duration::from_nanos(1));
    assert_eq!(manual.log.take(), [(2, 2)]);
}

fn a_timer_tells_the_time_of_its_clock(mode: Mode) {
    let manual = Manual::new(mode);
    let start = manual.timer.now();
    let (sender, receiver) = mpsc::channel();
    let timer = manual.timer.clone();
    let task = move || sender.send(timer.now()).expect("the test waits");
    manual.timer.schedule(ms(10), task).expect("it runs");
    manual.advance(15);
    assert_eq!(receiver.recv(), Ok(start + ms(10)));
    assert_eq!(manual.timer.now(), start + ms(15));
}

fn each_timer_goes_by_its_own(mode: Mode) {
    let (first, second) = (Manual::new(mode), Manual::new(mode));
    let timeout = first.timer.schedule(ms(100), first.log.task(1)).expect("it runs");
    second.timer.schedule(ms(100), second.log.task(2)).expect("it runs");
    assert_eq!(second.advance(100), [(100, 2)]);
    assert_eq!(first.log.take(), []);
    // Moved from inside a task of the other timer, it goes by its own clock.
    second.timer.schedule(ms(1), move || assert!(timeout.reschedule(ms(50)))).expect("it runs");
    second.advance(1);
    assert_eq!(first.advance(100), [(50, 1)]);
}

fn several_timers_go_by_one(mode: Mode) {
    let manual = Manual::new(mode);
    let build = || Timer::builder().mode(mode).clock(manual.clock.clone()).build().expect("fine");
    let timers = [build(), build(), build()];
    for (number, timer) in (1..).zip(&timers) {
        timer.schedule(ms(u64::from(number) * 10), manual.log.task(number)).expect("it runs");
        timer.schedule(ms(100), manual.log.task(number)).expect("it runs");
    }
    assert_eq!(manual.advance(50), [(10, 1), (20, 2), (30, 3)]);
    let mut last = manual.advance(50);
    last.sort_unstable();
    assert_eq!(last, [(100, 1), (100, 2), (100, 3)]);
    drop(timers);
    manual.advance(50);
}

fn inside_a_task_it_only_moves(mode: Mode) {
    let manual = Manual::new(mode);
    let (clock, log) = (manual.clock.clone(), manual.log.clone());
    let task = move || {
        clock.advance(ms(100));
        log.write(1);
        clock.jump(ms(100));
        log.write(2);
    };
    manual.timer.schedule(ms(10), task).expect("it runs");
    manual.timer.schedule(ms(50), manual.log.task(3)).expect("it runs");
    assert_eq!(manual.advance(20), [(110, 1), (210, 2), (210, 3)]);
    assert_eq!(manual.now(), 210);
    assert_eq!(manual.advance(20), []);
    assert_eq!(manual.now(), 230);
}

fn what_other_threads_schedule_is_in_order_too(mode: Mode) {
    let manual = Manual::built(mode, |builder| builder.shards(3));
    for thread in 0..6 {
        let (timer, log) = (manual.timer.clone(), manual.log.clone());
        let schedule = move || {
            for number in 0..50 {
                let delay = ms(u64::from((number * 7 + thread) % 50) * 10);
                timer.schedule(delay, log.task(thread)).map(drop).expect("it runs");
            }
        };
        thread::spawn(schedule).join().unwrap();
    }
    let ran = manual.advance(500);
    assert_eq!(ran.len(), 300);
    assert!(ran.iter().map(|(millis, _)| millis).is_sorted());
}

/// The tasks of two timers wait for each other, at the same instant.
#[test]
fn tasks_of_two_timers_may_wait_for_each_other() {
    let clock = ManualClock::new();
    let build = || Timer::builder().clock(clock.clone()).build().expect("in range");
    let timers = [build(), build()];
    let (barrier, met) = (Arc::new(Barrier::new(2)), Count::default());
    for timer in &timers {
        let (barrier, met) = (Arc::clone(&barrier), met.clone());
        let task = move || {
            barrier.wait();
            met.add();
        };
        timer.schedule(ms(10), task).expect("it runs");
    }
    clock.advance(ms(10));
    assert_eq!(met.get(), 2);
}

#[test]
fn two_threads_may_advance_it() {
    let clock = ManualClock::new();
    let start = clock.now();
    let timer = Timer::builder().clock(clock.clone()).build().expect("in range");
    let runs = Count::default();
    let count = runs.clone();
    timer
        .schedule_repeating(ms(1), MissedTick::Burst, move || {
            count.add();
            std::ops::ControlFlow::Continue(())
        })
        .expect("it runs");
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let clock = clock.clone();
            thread::spawn(move || (0..100).for_each(|_| clock.advance(ms(1))))
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!((clock.now() - start, runs.get()), (ms(200), 200));
}

#[test]
fn stopping_while_it_advances_does_not_hang() {
    for _ in 0..50 {
        let clock = ManualClock::new();
        let timer = Timer::builder().clock(clock.clone()).build().expect("in range");
        for delay in 0..100 {
            timer.schedule(ms(delay), || {}).expect("it runs");
        }
        let advancing = thread::spawn(move || clock.advance(ms(200)));
        let fired_or_left = timer.stop().expect("outside").len() + timer.stats().fired as usize;
        advancing.join().unwrap();
        assert_eq!(fired_or_left, 100);
    }
}

/// A clock of your own that jumps: `Follower` has all that it needs.
#[test]
fn a_clock_of_your_own_can_jump() {
    #[derive(Clone)]
    struct Stepped(Arc<Mutex<(Instant, Vec<Follower>)>>);

    impl Clock for Stepped {
        fn now(&self) -> Instant {
            self.0.lock().unwrap().0
        }

        fn wait(&self, _: Duration) -> Option<Duration> {
            None
        }

        fn follow(&self, follower: Follower) {
            self.0.lock().unwrap().1.push(follower);
        }
    }

    impl Stepped {
        fn step(&self, duration: Duration) -> Option<Instant> {
            let followers = {
                let mut state = self.0.lock().unwrap();
                state.0 += duration;
                state.1.clone()
            };
            followers.iter().for_each(Follower::tell);
            followers.iter().filter_map(Follower::settle).min()
        }
    }

    let start = Instant::now();
    let clock = Stepped(Arc::new(Mutex::new((start, Vec::new()))));
    let timer = Timer::builder().clock(clock.clone()).build().expect("in range");
    let fired = Count::default();
    assert_eq!(clock.step(Duration::ZERO), None);
    timer.schedule(ms(10), fired.task()).expect("it runs");
    timer.schedule(ms(20), fired.task()).expect("it runs");
    assert_eq!(clock.step(ms(9)), Some(start + ms(10)));
    assert_eq!(fired.get(), 0);
    assert_eq!(clock.step(ms(2)), Some(start + ms(20)));
    assert_eq!(fired.get(), 1);
    assert_eq!(clock.step(ms(9)), None);
    assert_eq!(fired.get(), 2);
    let follower = clock.0.lock().unwrap().1[0].clone();
    assert!(follower.is_alive());
    drop(timer);
    assert_eq!(clock.step(ms(9)), None);
    assert!(!follower.is_alive());
}

/// It cannot wait there, but timeouts that came due fire.
#[test]
fn moved_inside_a_task_on_an_executor_it_tells_the_timer() {
    for moves in [ManualClock::advance, ManualClock::jump] {
        let clock = ManualClock::new();
        let timer = Timer::builder()
            .clock(clock.clone())
            .executor(|task: Box<dyn FnOnce() + Send>| drop(thread::spawn(task)))
            .build()
            .expect("in range");
        let (go, told) = mpsc::channel::<()>();
        let (inner, fired) = (clock.clone(), Count::default());
        let task = move || {
            told.recv().unwrap();
            moves(&inner, ms(100));
        };
        timer.schedule(ms(10), task).expect("it runs");
        timer.schedule(ms(20), fired.task()).expect("it runs");
        clock.advance(ms(10));
        go.send(()).unwrap();
        wait_until(|| fired.get() == 1);
    }
}

#[test]
fn moved_inside_a_task_of_another_timer_it_tells_all_that_go_by_it() {
    for moves in [ManualClock::advance, ManualClock::jump] {
        let (clock, other) = (ManualClock::new(), Timer::new());
        let build = || Timer::builder().clock(clock.clone()).build().expect("in range");
        let (timers, fired) = ([build(), build()], Count::default());
        for timer in &timers {
            timer.schedule(ms(20), fired.task()).expect("it runs");
        }
        other.schedule(Duration::ZERO, move || moves(&clock, ms(110))).expect("it runs");
        wait_until(|| fired.get() == 2);
    }
}

/// The first timer has nothing to do until a task of the second gives it something.
#[test]
fn what_a_later_timers_task_schedules_on_an_earlier_one_is_in_time() {
    let clock = ManualClock::new();
    let start = clock.now();
    let build = || Timer::builder().clock(clock.clone()).build().expect("in range");
    let (first, second) = (build(), build());
    first.schedule(ms(1_000), || {}).expect("it runs");
    let (found, inner) = (Arc::new(Mutex::new(Vec::new())), clock.clone());
    let (times, earlier) = (Arc::clone(&found), first.clone());
    let task = move || {
        thread::sleep(ms(10));
        for due in [10, 15, 60] {
            let (times, inner) = (Arc::clone(&times), inner.clone());
            let task = move || {
                thread::sleep(ms(10));
                times.lock().unwrap().push(inner.now() - start);
            };
            earlier.schedule_at(start + ms(due), task).map(drop).expect("it runs");
        }
    };
    second.schedule(ms(10), task).expect("it runs");
    clock.advance(ms(100));
    assert_eq!(*found.lock().unwrap(), [ms(10), ms(15), ms(60)]);
}

/// A chain of timeouts, each of which a task of another timer schedules, forwards and backwards.
#[test]
fn a_chain_through_many_timers_ends_before_advance_returns() {
    fn hop(timers: &Arc<Vec<Timer>>, clock: &ManualClock, left: u64, log: &Arc<Mutex<Vec<u64>>>) {
        let start = clock.now();
        let (next, inner) = (Arc::clone(timers), clock.clone());
        let log = Arc::clone(log);
        let task = move || {
            log.lock().unwrap().push((inner.now() - start).as_millis() as u64);
            if let Some(left) = left.checked_sub(1) {
                hop(&next, &inner, left, &log);
            }
        };
        // Some of them are due at once.
        let timer = &timers[(left * 7 % 5) as usize];
        timer.schedule_at(start + ms(left % 3), task).map(drop).expect("it runs");
    }

    returns("advancing", || {
        let clock = ManualClock::new();
        let build = |_| Timer::builder().clock(clock.clone()).build().expect("in range");
        let timers: Arc<Vec<Timer>> = Arc::new((0..5).map(build).collect());
        let log = Arc::default();
        hop(&timers, &clock, 999, &log);
        clock.advance(ms(1_000));
        let expected: Vec<_> = (0..1_000_u64).rev().map(|left| left % 3).collect();
        assert_eq!(*log.lock().unwrap(), expected);
        for timer in &*timers {
            timer.stop().expect("outside");
        }
    });
}

/// A suspend as the worker meets it: the clock has jumped, no thread was told, and the worker's
/// sleep was not shortened.
#[test]
fn a_clock_that_jumps_unseen_fires_at_the_next_look() {
    #[derive(Clone)]
    struct Suspended(Arc<Mutex<Instant>>);

    impl Clock for Suspended {
        fn now(&self) -> Instant {
            *self.0.lock().unwrap()
        }

        fn wait(&self, duration: Duration) -> Option<Duration> {
            Some(duration.min(ms(5)))
        }
    }

    let clock = Suspended(Arc::new(Mutex::new(Instant::now())));
    let timer = Timer::builder().clock(clock.clone()).build().expect("in range");
    let fired = Count::default();
    let hour = Duration::from_secs(3_600);
    timer.schedule(hour, fired.task()).expect("it runs");
    timer.schedule(hour * 3, fired.task()).expect("it runs");
    thread::sleep(ms(30));
    assert_eq!(fired.get(), 0);
    *clock.0.lock().unwrap() += hour * 2;
    wait_until(|| fired.get() == 1);
    thread::sleep(ms(30));
    assert_eq!(fired.get(), 1, "never early");
}

#[cfg(feature = "boot-clock")]
#[test]
fn the_boot_clock_goes_on_and_bounds_a_look() {
    use tickwheel::BootClock;

    let before = Instant::now();
    let clock = BootClock::new();
    let (first, since) = (clock.now(), Instant::now());
    assert!(before <= first);
    thread::sleep(ms(20));
    // A suspend meanwhile would be more, and never less.
    let least = since.elapsed();
    assert!(clock.now() - first + ms(1) >= least, "it goes on");
    assert!((0..1_000).map(|_| clock.now()).is_sorted(), "it never goes back");
    assert!(clock.now() - first < Duration::from_secs(3_600), "it counts from the present");

    assert_eq!(clock.wait(Duration::from_secs(3_600)), Some(Duration::from_secs(10)));
    assert_eq!(clock.wait(ms(7)), Some(ms(7)));
    let often = clock.with_look(Duration::ZERO);
    assert_eq!(often.wait(Duration::from_secs(3_600)), Some(ms(1)), "it does not spin");

    let timer = Timer::builder().clock(often).build().expect("in range");
    let fired = Count::default();
    timer.schedule(ms(20), fired.task()).expect("it runs");
    wait_until(|| fired.get() == 1);
}
