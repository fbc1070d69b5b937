//! The clock that the test moves.

use crate::common::{Numbers, long};
use crate::help::{Count, Gate, Manual, a_thread_each, build, ms, returns, wait_until};
use crate::zoo::clocks::OddClock;
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};
use tickwheel::{Follower, ManualClock, MissedTick, Mode, Timeout, Timer};

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

fn a_task_finds_the_clock_at_its_deadline(manual: Manual) {
    for (number, delay) in [(1, 500), (2, 10), (3, 99), (4, 1_000_000)] {
        manual.once(delay, number);
    }
    assert_eq!(manual.advance(2_000_000), [(10, 2), (99, 3), (500, 1), (1_000_000, 4)]);
    assert_eq!(manual.now(), 2_000_000);
}

fn every_run_is_like_the_other(mode: Mode) {
    let run = || {
        let manual = Manual::new(mode);
        let mut numbers = Numbers(2_026);
        let (mut timeouts, mut ran): (Vec<Timeout>, _) = (Vec::new(), Vec::new());
        for number in 0..long(250, 500) {
            let delay = numbers.below(1_000);
            let (timer, log) = (manual.timer.clone(), manual.log.clone());
            let second = ms(numbers.below(100));
            let task = move || {
                log.write(number);
                timer.schedule(second, log.task(number + 1_000)).map(drop).expect("it runs");
            };
            timeouts.push(manual.after(delay, task));
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

fn parts_of_a_tick_add_up(manual: Manual) {
    manual.once(1, 1);
    manual.timer.schedule(Duration::from_micros(1_500), manual.log.task(2)).expect("it runs");
    let passes = |nanos| {
        manual.clock.advance(Duration::from_nanos(nanos));
        manual.log.take()
    };
    assert!((0..9).all(|_| passes(100_000).is_empty()));
    assert_eq!(passes(100_000), [(1, 1)]);
    assert_eq!(passes(999_999), []);
    assert_eq!(passes(1), [(2, 2)]);
}

fn a_timer_tells_the_time_of_its_clock(manual: Manual) {
    let start = manual.timer.now();
    let (sender, receiver) = mpsc::channel();
    let timer = manual.timer.clone();
    manual.after(10, move || sender.send(timer.now()).expect("the test waits"));
    manual.advance(15);
    assert_eq!(receiver.recv(), Ok(start + ms(10)));
    assert_eq!(manual.timer.now(), start + ms(15));
}

fn each_timer_goes_by_its_own(mode: Mode) {
    let (first, second) = (Manual::new(mode), Manual::new(mode));
    let timeout = first.once(100, 1);
    second.once(100, 2);
    assert_eq!(second.advance(100), [(100, 2)]);
    assert_eq!(first.log.take(), []);
    // Moved from inside a task of the other timer, it goes by its own clock.
    second.after(1, move || assert!(timeout.reschedule(ms(50))));
    second.advance(1);
    assert_eq!(first.advance(100), [(50, 1)]);
}

fn several_timers_go_by_one(mode: Mode) {
    let manual = Manual::new(mode);
    let timers = [(); 3].map(|()| build(|it| it.mode(mode).clock(manual.clock.clone())));
    for (number, timer) in (1..).zip(&timers) {
        for delay in [number * 10, 100] {
            timer.schedule(ms(delay.into()), manual.log.task(number)).expect("it runs");
        }
    }
    assert_eq!(manual.advance(50), [(10, 1), (20, 2), (30, 3)]);
    let mut last = manual.advance(50);
    last.sort_unstable();
    assert_eq!(last, [(100, 1), (100, 2), (100, 3)]);
    drop(timers);
    manual.advance(50);
}

fn inside_a_task_it_only_moves(manual: Manual) {
    let (clock, log) = (manual.clock.clone(), manual.log.clone());
    let task = move || {
        clock.advance(ms(100));
        log.write(1);
        clock.jump(ms(100));
        log.write(2);
    };
    manual.after(10, task);
    manual.once(50, 3);
    assert_eq!(manual.advance(20), [(110, 1), (210, 2), (210, 3)]);
    assert_eq!(manual.now(), 210);
    assert_eq!(manual.advance(20), []);
    assert_eq!(manual.now(), 230);
}

fn what_other_threads_schedule_is_in_order_too(mode: Mode) {
    let manual = Manual::built(mode, |builder| builder.shards(3));
    for thread in 0..6 {
        let schedule = || {
            for number in 0..50 {
                manual.once(u64::from((number * 7 + thread) % 50) * 10, thread);
            }
        };
        thread::scope(|scope| scope.spawn(schedule).join()).unwrap();
    }
    let ran = manual.advance(500);
    assert_eq!(ran.len(), 300);
    assert!(ran.iter().map(|(millis, _)| millis).is_sorted());
}

/// The clock of several timers with default settings.
fn on_one_clock<const TIMERS: usize>() -> (ManualClock, [Timer; TIMERS]) {
    let clock = ManualClock::new();
    let timers = [(); TIMERS].map(|()| build(|builder| builder.clock(clock.clone())));
    (clock, timers)
}

/// The tasks of two timers wait for each other, at the same instant.
#[test]
fn tasks_of_two_timers_may_wait_for_each_other() {
    let (clock, timers) = on_one_clock::<2>();
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
    let manual = Manual::new(Mode::default());
    manual.every(1, MissedTick::Burst, manual.log.repeat(1, u32::MAX));
    let advance = || (0..100).for_each(|_| manual.clock.advance(ms(1)));
    thread::scope(|scope| [(); 2].map(|()| drop(scope.spawn(advance))));
    assert_eq!((manual.now(), manual.log.take().len()), (200, 200));
}

#[test]
fn stopping_while_it_advances_does_not_hang() {
    for _ in 0..50 {
        let manual = Manual::new(Mode::default());
        (0..100).for_each(|delay| drop(manual.idle(delay)));
        let clock = manual.clock.clone();
        let advancing = thread::spawn(move || clock.advance(ms(200)));
        let unfired = manual.timer.stop().expect("outside").len();
        let fired_or_left = unfired + manual.timer.stats().fired as usize;
        advancing.join().unwrap();
        assert_eq!(fired_or_left, 100);
    }
}

/// A clock of your own that jumps: `Follower` has all that it needs.
#[test]
fn a_clock_of_your_own_can_jump() {
    let start = Instant::now();
    let state = Arc::new(Mutex::new((start, Vec::<Follower>::new())));
    let [read, follows] = [(); 2].map(|()| Arc::clone(&state));
    let clock = OddClock::new(move || read.lock().unwrap().0)
        .waiting(|_| None)
        .following(move |follower| follows.lock().unwrap().1.push(follower));
    let step = |duration| {
        let followers = {
            let mut state = state.lock().unwrap();
            state.0 += duration;
            state.1.clone()
        };
        followers.iter().for_each(Follower::tell);
        followers.iter().filter_map(Follower::settle).min()
    };
    let (timer, fired) = (build(|builder| builder.clock(clock)), Count::default());
    assert_eq!(step(Duration::ZERO), None);
    for delay in [10, 20] {
        timer.schedule(ms(delay), fired.task()).expect("it runs");
    }
    for (duration, next, runs) in [(9, Some(10), 0), (2, Some(20), 1), (9, None, 2)] {
        assert_eq!(step(ms(duration)), next.map(|next| start + ms(next)));
        assert_eq!(fired.get(), runs);
    }
    let follower = state.lock().unwrap().1[0].clone();
    assert!(follower.is_alive());
    drop(timer);
    assert_eq!(step(ms(9)), None);
    assert!(!follower.is_alive());
}

/// It cannot wait there, but timeouts that came due fire.
#[test]
fn moved_inside_a_task_on_an_executor_it_tells_the_timer() {
    for moves in [ManualClock::advance, ManualClock::jump] {
        let manual = Manual::with(|builder| builder.executor(a_thread_each));
        let (clock, gate, fired) = (manual.clock.clone(), Gate::default(), Count::default());
        let inner = gate.clone();
        let task = move || {
            inner.pass();
            moves(&clock, ms(100));
        };
        manual.after(10, task);
        manual.after(20, fired.task());
        manual.advance(10);
        gate.open();
        fired.wait_for(1);
    }
}

#[test]
fn moved_inside_a_task_of_another_timer_it_tells_all_that_go_by_it() {
    for moves in [ManualClock::advance, ManualClock::jump] {
        let ((clock, timers), other) = (on_one_clock::<2>(), Timer::new());
        let fired = Count::default();
        for timer in &timers {
            timer.schedule(ms(20), fired.task()).expect("it runs");
        }
        other.schedule(Duration::ZERO, move || moves(&clock, ms(110))).expect("it runs");
        fired.wait_for(2);
    }
}

/// The first timer has nothing to do until a task of the second gives it something.
#[test]
fn what_a_later_timers_task_schedules_on_an_earlier_one_is_in_time() {
    let (clock, [first, second]) = on_one_clock();
    let start = clock.now();
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
    fn hop(timers: &Arc<[Timer; 5]>, clock: &ManualClock, left: u64, log: &Arc<Mutex<Vec<u64>>>) {
        let start = clock.now();
        let (next, inner, log) = (Arc::clone(timers), clock.clone(), Arc::clone(log));
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
        let (clock, timers) = on_one_clock::<5>();
        let (timers, log) = (Arc::new(timers), Arc::default());
        hop(&timers, &clock, 999, &log);
        clock.advance(ms(1_000));
        let expected: Vec<_> = (0..1_000_u64).rev().map(|left| left % 3).collect();
        assert_eq!(*log.lock().unwrap(), expected);
        timers.iter().for_each(|timer| drop(timer.stop().expect("outside")));
    });
}

/// A suspend as the worker meets it: the clock has jumped, no thread was told, and the worker's
/// sleep was not shortened.
#[test]
fn a_clock_that_jumps_unseen_fires_at_the_next_look() {
    let now = Arc::new(Mutex::new(Instant::now()));
    let read = Arc::clone(&now);
    let looks = Count::default();
    let count = looks.clone();
    let clock = OddClock::new(move || *read.lock().unwrap()).waiting(move |wait| {
        count.add();
        Some(wait.min(ms(5)))
    });
    let (timer, fired) = (build(|builder| builder.clock(clock)), Count::default());
    let look_on = || {
        let seen = looks.get();
        wait_until(|| seen + 3 <= looks.get());
    };
    for hours in [1, 3] {
        timer.schedule(HOUR * hours, fired.task()).expect("it runs");
    }
    look_on();
    assert_eq!(fired.get(), 0);
    *now.lock().unwrap() += HOUR * 2;
    fired.wait_for(1);
    look_on();
    assert_eq!(fired.get(), 1, "never early");
}

#[cfg(feature = "boot-clock")]
#[test]
fn the_boot_clock_goes_on_and_bounds_a_look() {
    use tickwheel::{BootClock, Clock};

    let before = Instant::now();
    let clock = BootClock::new();
    let (first, since) = (clock.now(), Instant::now());
    assert!(before <= first);
    thread::sleep(ms(20));
    // A suspend meanwhile would be more, and never less.
    let least = since.elapsed();
    assert!(clock.now() - first + ms(1) >= least, "it goes on");
    assert!((0..1_000).map(|_| clock.now()).is_sorted(), "it never goes back");
    assert!(clock.now() - first < HOUR, "it counts from the present");

    assert_eq!(clock.wait(HOUR), Some(Duration::from_secs(10)));
    assert_eq!(clock.wait(ms(7)), Some(ms(7)));
    let often = clock.with_look(Duration::ZERO);
    assert_eq!(often.wait(HOUR), Some(ms(1)), "it does not spin");

    let (timer, fired) = (build(|builder| builder.clock(often)), Count::default());
    timer.schedule(ms(20), fired.task()).expect("it runs");
    fired.wait_for(1);
}

const HOUR: Duration = Duration::from_secs(3_600);
