//! Memory does not grow with what was: timers, sleeps, intervals, queues, threads and clocks, made
//! and dropped in turn, against a counting allocator.
//!
//! Alone in its file, because it counts what the whole process allocates. `TICKWHEEL_HISTORY` in
//! the environment makes it that many times as long; by default it is a quarter, with
//! `TICKWHEEL_LONG` all of it.

#[path = "common/mod.rs"]
#[allow(unused_macros, reason = "its situations are the same in each mode")]
mod common;

use cap::Cap;
use common::{asked, long};
use std::alloc::System;
use std::ops::ControlFlow;
use std::panic::panic_any;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;
use tickwheel::{DelayQueue, ManualClock, MissedTick, Mode, Timer};

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Runs a round again and again, and checks what is allocated after each: at most so much, and in
/// the second half no more than in the first.
fn history(name: &str, rounds: usize, mut round: impl FnMut(usize)) {
    let times = asked("TICKWHEEL_HISTORY");
    let rounds = times.map_or_else(|| long(rounds / 4, rounds), |times| rounds * times as usize);
    // What the first rounds leave behind for good is not of them: stacks, names, and the like.
    (0..rounds / 10).for_each(&mut round);
    let before = ALLOCATOR.allocated();
    let mut most = [0, 0];
    for most in &mut most {
        for number in 0..rounds / 2 {
            round(number);
            *most = (*most).max(ALLOCATOR.allocated().saturating_sub(before));
        }
    }
    println!("{name}: {rounds} rounds, at most {} and {} bytes", most[0], most[1]);
    assert!(most[0].max(most[1]) <= MOST, "{name}: {most:?} bytes");
    // A thread that has just ended may not have freed all it had.
    assert!(most[1] <= most[0] + (2 << 10), "{name} grows: {most:?} bytes");
}

fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn memory_does_not_grow_with_what_was() {
    std::panic::set_hook(Box::new(|_| {}));
    let modes = ["hierarchical", "hashed:512"].map(|mode| mode.parse::<Mode>().expect("a mode"));
    let build = |mode, clock: &ManualClock| {
        Timer::builder().mode(mode).clock(clock.clone()).build().expect("in range")
    };

    for mode in modes {
        let clock = ManualClock::new();
        history("timers that do nothing, on one clock", 20_000, |_| drop(build(mode, &clock)));

        let clock = ManualClock::new();
        history("timers that fire, on one clock that does not move", 2_000, |_| {
            let timer = build(mode, &clock);
            timer.schedule(ms(10), || {}).expect("it runs");
            drop(timer);
        });

        history("timers and clocks", 1_000, |number| {
            let clock = ManualClock::new();
            let timers = [build(mode, &clock), build(mode, &clock)];
            for timer in &timers {
                let timeout = timer.schedule(ms(number as u64 % 100), || {}).expect("it runs");
                timer.schedule(ms(1 << 30), || {}).expect("it runs");
                timeout.reschedule(ms(7));
            }
            clock.advance(ms(10));
        });

        let (clock, hand) = (ManualClock::new(), ManualClock::new());
        let timer = build(mode, &clock);
        timer.schedule(ms(u64::MAX >> 1), || {}).expect("it runs");
        history("sleeps, intervals and queues", 20_000, |number| {
            let (mut sleep, mut far) =
                (timer.sleep(ms(number as u64 % 64)), timer.sleep(ms(1 << 30)));
            let mut timed = timer.timeout(ms(3), std::future::pending::<()>());
            let mut interval = timer.interval(ms(5));
            interval.set_missed_tick(MissedTick::Skip);
            let mut queue = DelayQueue::with_timer(&timer);
            let key = queue.insert([number; 16], ms(9));
            queue.insert([number; 16], ms(2));
            let mut context = Context::from_waker(Waker::noop());
            assert!(poll(&mut far).is_pending() && poll(&mut timed).is_pending());
            let (_, _) = (poll(&mut sleep), interval.poll_tick(&mut context));
            let _ = (interval.poll_tick(&mut context), queue.poll_expired(&mut context));
            far.reset(ms(1 << 20));
            assert!(queue.reset(key, ms(1)));
            if number % 16 == 0 {
                clock.advance(ms(3));
                hand.advance(ms(1));
            }
        });

        history("threads that schedule", 2_000, |number| {
            let other = timer.clone();
            let schedule = move || {
                let repeating = || ControlFlow::Continue(());
                let timeout =
                    other.schedule_repeating(ms(2), MissedTick::Delay, repeating).expect("it runs");
                let once = other.schedule(ms(1 << 20), || {}).expect("it runs");
                (timeout.cancel(), once.cancel())
            };
            assert_eq!(thread::spawn(schedule).join().unwrap(), (true, true));
            if number % 16 == 0 {
                clock.advance(ms(3));
            }
        });
        timer.stop().expect("outside");

        let clock = ManualClock::new();
        let timer = Timer::builder()
            .clock(clock.clone())
            .on_panic(|_| panic_any([0_u8; 1_000]))
            .build()
            .expect("in range");
        history("hooks that panic", 2_000, |_| {
            timer.schedule(ms(1), || panic_any([0_u8; 1_000])).expect("it runs");
            clock.advance(ms(1));
        });
    }
}

/// The most that a history may have allocated, above what was there before it.
const MOST: usize = 64 << 10;
