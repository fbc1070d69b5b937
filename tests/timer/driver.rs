//! Timers without a thread, which a driver drives.

use crate::common::Numbers;
use crate::help::{
    Count, CountsDrop, Gate, Hand, Kept, Log, Manual, ms, returns, taken, wait_until,
};
use crate::zoo::clocks::OddClock;
use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::{Arc, Barrier, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};
use tickwheel::{
    DelayQueue, Driver, ManualClock, MissedTick, Mode, ScheduleErrorKind, Status, Timer,
    TimerBuilder, delay_channel, steps,
};

in_each_mode! {
    fires_in_the_turn_at_its_deadline_and_not_before,
    any_turns_at_any_delays_miss_nothing_and_are_never_early,
    a_turn_is_bounded_and_says_that_more_is_due,
    repeats_in_its_turns,
    the_hook_gets_each_earlier_instant_and_no_other,
    dropping_the_driver_ends_the_timer,
    stop_outside_of_turns_returns_at_once,
    after_stop_each_handle_tells_its_end_and_a_task_comes_back,
    inside_a_turn_stop_is_an_error,
    idle_it_has_no_turn_and_before_a_far_timeout_a_handful,
    a_task_of_a_turn_may_block_schedule_cancel_and_panic,
    a_burst_in_a_turn_does_not_block_callers,
    over_its_limit_it_gives_the_task_back_until_a_turn_makes_room,
    the_longest_delay_has_no_turn_and_no_wake_up,
}

/// A timer of one shard on a clock that the test moves.
struct Driven {
    clock: ManualClock,
    timer: Timer,
    driver: Driver,
    log: Log,
    start: Instant,
}

impl Driven {
    fn built(mode: Mode, with: impl FnOnce(TimerBuilder) -> TimerBuilder) -> Self {
        let clock = ManualClock::new();
        let builder = Timer::builder().mode(mode).shards(1).clock(clock.clone());
        let (timer, driver) = with(builder).build_driven().expect("in range");
        Self { timer, driver, log: Log::new(&clock), start: clock.now(), clock }
    }

    fn new() -> Self {
        Self::from(Mode::default())
    }

    /// Schedules a task that writes `number`, `delay` milliseconds from now.
    fn once(&self, delay: u64, number: u32) {
        self.timer.schedule(ms(delay), self.log.task(number)).expect("it runs");
    }

    fn at(&self, millis: u64) -> Option<Instant> {
        Some(self.start + ms(millis))
    }

    /// Lets time pass until the driver's next turn is due, and takes it; until it has none.
    fn run(&mut self) {
        while let Some(next) = self.driver.turn() {
            self.clock.advance(next - self.clock.now());
        }
    }
}

impl From<Mode> for Driven {
    fn from(mode: Mode) -> Self {
        Self::built(mode, |builder| builder)
    }
}

fn fires_in_the_turn_at_its_deadline_and_not_before(mut driven: Driven) {
    driven.once(5, 1);
    driven.once(7, 2);
    assert!(driven.driver.turn() <= driven.at(5));
    driven.clock.advance(ms(4));
    assert!(driven.driver.turn() <= driven.at(5));
    driven.clock.advance(ms(1));
    assert!(driven.log.take().is_empty(), "before its turn");
    assert!(driven.driver.turn() <= driven.at(7));
    assert_eq!(driven.log.take(), [(5, 1)]);
    driven.run();
    assert_eq!(driven.log.take(), [(7, 2)]);
    assert_eq!((driven.timer.pending(), driven.timer.stats().fired), (0, 2));
}

fn any_turns_at_any_delays_miss_nothing_and_are_never_early(mut driven: Driven) {
    let mut numbers = Numbers(7);
    let mut expected = Vec::new();
    for number in 0..500 {
        let most = 1 << numbers.below(20);
        let delay = numbers.below(most);
        expected.push((driven.log.now() + delay, number));
        driven.once(delay, number);
        driven.clock.advance(ms(numbers.below(50)));
        if numbers.below(3) == 0 {
            driven.driver.turn();
        }
    }
    driven.run();
    let mut fired = driven.log.take();
    for (at, number) in &fired {
        assert!(expected[*number as usize].0 <= *at, "{number} is early");
    }
    fired.sort_by_key(|&(_, number)| number);
    assert!(fired.iter().map(|&(_, number)| number).eq(0..500));
}

fn a_turn_is_bounded_and_says_that_more_is_due(mut driven: Driven) {
    (0..1_000).for_each(|number| driven.once(1, number));
    driven.clock.advance(ms(1));
    let mut turns = 0;
    while driven.log.len() < 1_000 {
        let before = driven.log.len();
        let next = driven.driver.turn();
        assert!(driven.log.len() <= before + 256);
        assert!(driven.log.len() == 1_000 || next <= Some(driven.clock.now()));
        turns += 1;
    }
    assert!((4..100).contains(&turns), "{turns}");
    driven.run();
}

fn repeats_in_its_turns(mut driven: Driven) {
    let task = driven.log.repeat(1, 3);
    driven.timer.schedule_repeating(ms(10), MissedTick::Burst, task).expect("it runs");
    driven.run();
    assert_eq!(driven.log.take(), [(10, 1), (20, 1), (30, 1)]);
}

fn the_hook_gets_each_earlier_instant_and_no_other(mut driven: Driven) {
    let told = Arc::new(Mutex::new(Vec::new()));
    let (all, start) = (Arc::clone(&told), driven.start);
    driven.driver.on_wake(move |at| all.lock().unwrap().push(at - start));
    let taken = || std::mem::take(&mut *told.lock().unwrap());
    driven.once(1_000, 1);
    assert_eq!(taken(), [], "not before the first turn");
    driven.driver.turn();
    driven.once(2_000, 2);
    assert_eq!(taken(), [], "it is later");
    driven.once(500, 3);
    driven.once(600, 4);
    driven.once(400, 5);
    assert_eq!(taken(), [ms(500), ms(400)]);
    assert!(driven.driver.turn() <= driven.at(400));
    // Inside the turn no one calls it.
    let (timer, task) = (driven.timer.clone(), driven.log.task(6));
    let inner = move || drop(timer.schedule(ms(1), task).expect("it runs"));
    driven.timer.schedule(ms(400), inner).expect("it runs");
    driven.clock.advance(ms(400));
    assert_eq!(taken(), [ms(0)], "the clock is about to move");
    driven.clock.advance(ms(0));
    assert!(driven.driver.turn() <= driven.at(401));
    assert_eq!(taken(), []);
    assert!(driven.timer.stop().is_ok());
    assert_eq!(taken(), [ms(0)], "so that the loop can end");
}

fn dropping_the_driver_ends_the_timer(mut driven: Driven) {
    let (hand, dropped) = (Hand::new(), Count::default());
    let pending = driven.timer.schedule(ms(10), dropped.dropped()).expect("it runs");
    let mut sleep = driven.timer.sleep(ms(10));
    assert!(hand.poll(&mut sleep).is_pending());
    let (sender, mut receiver) = delay_channel(&driven.timer);
    sender.insert(1, ms(10)).expect("it is there");
    assert!(receiver.poll_expired(&mut hand.context()).is_pending());
    driven.driver.turn();
    drop(driven.driver);

    assert_eq!((dropped.get(), pending.status()), (1, Status::Stopped));
    assert!(driven.timer.is_stopped() && hand.woken() == 2);
    assert_eq!(hand.poll(&mut sleep), Poll::Ready(Err(ScheduleErrorKind::Stopped)));
    let received = receiver.poll_expired(&mut hand.context());
    assert!(matches!(received, Poll::Ready(Some(Err(ScheduleErrorKind::Stopped)))));
    let refused = driven.timer.schedule(ms(1), dropped.task()).expect_err("nobody would run it");
    assert_eq!(refused.kind(), ScheduleErrorKind::Stopped);
    refused.into_task()();
    assert_eq!(dropped.get(), 2, "the task that came back");
    assert!(driven.timer.stop().expect("outside").is_empty());
}

fn stop_outside_of_turns_returns_at_once(mut driven: Driven) {
    (0..3).for_each(|number| driven.once(10, number));
    driven.driver.turn();
    let task = || ControlFlow::Continue(());
    driven.timer.schedule_repeating(ms(1), MissedTick::Skip, task).expect("it runs");
    assert!(!driven.driver.is_stopped());
    assert_eq!(driven.timer.stop().expect("outside").len(), 4);
    driven.clock.advance(ms(10));
    assert!(driven.driver.is_stopped());
    assert_eq!((driven.driver.turn(), driven.log.take().len()), (None, 0));
}

fn after_stop_each_handle_tells_its_end_and_a_task_comes_back(mut driven: Driven) {
    let schedule =
        |delay, number| driven.timer.schedule(ms(delay), driven.log.task(number)).expect("it runs");
    let handles = [schedule(1, 1), schedule(5, 2), schedule(5, 3), schedule(9, 4)];
    driven.clock.advance(ms(1));
    driven.driver.turn();
    assert!(handles[1].cancel());
    // Due, and not in a turn yet.
    driven.clock.advance(ms(4));
    let left = driven.timer.stop().expect("outside");
    let ends = handles.each_ref().map(|handle| handle.status());
    assert_eq!(ends, [Status::Fired, Status::Cancelled, Status::Stopped, Status::Stopped]);
    assert_eq!((left.len(), driven.timer.pending()), (2, 0));
    assert!(driven.timer.stop().is_ok_and(|left| left.is_empty()), "again");
    let refused = driven.timer.schedule(ms(1), driven.log.task(5)).expect_err("it is stopped");
    assert_eq!(refused.kind(), ScheduleErrorKind::Stopped);
    assert!(!handles.iter().any(|handle| handle.cancel() || handle.reschedule(ms(1))));
    driven.clock.advance(ms(9));
    assert_eq!(driven.driver.turn(), None);
    assert_eq!(driven.log.take(), [(1, 1)]);
    refused.into_task()();
    assert_eq!(driven.log.take(), [(14, 5)]);
}

fn inside_a_turn_stop_is_an_error(mut driven: Driven) {
    let (timer, answer) = (driven.timer.clone(), Arc::new(Mutex::new(None)));
    let slot = Arc::clone(&answer);
    let task = move || {
        *slot.lock().unwrap() = Some(timer.stop().is_err());
        drop(timer);
    };
    driven.timer.schedule(ms(1), task).expect("it runs");
    driven.once(2, 1);
    driven.run();
    assert_eq!(*answer.lock().unwrap(), Some(true));
    assert_eq!(driven.log.take(), [(2, 1)], "it goes on");
}

fn idle_it_has_no_turn_and_before_a_far_timeout_a_handful(mut driven: Driven) {
    assert_eq!([driven.driver.turn(), driven.driver.turn()], [None, None]);
    driven.once(3_600_000, 1);
    let mut turns = 0;
    while let Some(next) = driven.driver.turn() {
        driven.clock.advance(next - driven.clock.now());
        turns += 1;
    }
    assert_eq!(driven.log.take(), [(3_600_000, 1)]);
    assert!(turns <= 6, "{turns} turns");
}

fn a_task_of_a_turn_may_block_schedule_cancel_and_panic(mut driven: Driven) {
    let far = driven.timer.schedule(ms(900), driven.log.task(1)).expect("it runs");
    let near = driven.timer.schedule(ms(1_000), driven.log.task(2)).expect("it runs");
    let (timer, inner) = (driven.timer.clone(), driven.log.task(3));
    let task = move || {
        // Whatever another thread does with the timer does not wait for this turn.
        let other = thread::spawn(move || {
            assert!(far.cancel() && near.reschedule(ms(1)));
            assert!(timer.next_deadline().is_some());
            timer.schedule(ms(2), inner).map(drop).expect("it runs");
        });
        other.join().expect("it does not panic");
        panic!("as it should");
    };
    driven.timer.schedule(ms(1), task).expect("it runs");
    driven.once(1, 4);
    driven.clock.advance(ms(1));
    driven.run();
    assert_eq!(driven.log.take(), [(1, 4), (2, 2), (3, 3)]);
    assert_eq!((driven.timer.pending(), driven.timer.stats().panics), (0, 1));
}

fn a_burst_in_a_turn_does_not_block_callers(mut driven: Driven) {
    let (half, fired) = (5_000, Count::default());
    let burst = |driven: &Driven| {
        for _ in 0..half {
            driven.timer.schedule(ms(100), fired.task()).expect("it runs");
        }
    };
    burst(&driven);
    let timer = driven.timer.clone();
    let in_the_middle = move || {
        let other = thread::spawn(move || {
            let far = timer.schedule(ms(60_000), || {}).expect("it runs");
            assert!(far.reschedule(ms(30_000)) && far.cancel());
        });
        wait_until(|| other.is_finished());
        other.join().expect("it does not panic");
    };
    driven.timer.schedule(ms(100), in_the_middle).expect("it runs");
    burst(&driven);
    driven.clock.advance(ms(100));
    driven.run();
    assert_eq!((fired.get(), driven.timer.stats().panics), (2 * half, 0));
}

fn over_its_limit_it_gives_the_task_back_until_a_turn_makes_room(mode: Mode) {
    let mut driven = Driven::built(mode, |builder| builder.max_pending(2));
    [1, 2].into_iter().for_each(|number| driven.once(5, number));
    let refused = driven.timer.schedule(ms(5), driven.log.task(3)).expect_err("full");
    assert_eq!(refused.kind(), ScheduleErrorKind::Full);
    driven.clock.advance(ms(5));
    assert!(driven.timer.schedule(ms(5), || {}).is_err(), "before the turn");
    driven.driver.turn();
    refused.into_task()();
    assert_eq!(driven.log.take(), [(5, 1), (5, 2), (5, 3)]);
    [4, 5].into_iter().for_each(|number| driven.once(1, number));
    assert!(driven.timer.schedule(ms(1), || {}).is_err());
    driven.run();
    assert_eq!(driven.log.take(), [(6, 4), (6, 5)]);
}

fn the_longest_delay_has_no_turn_and_no_wake_up(mode: Mode) {
    // It is more ticks than there are, or its tick is at no instant that there is.
    for tick in [ms(1), Duration::from_secs(3_600)] {
        let mut driven = Driven::built(mode, |builder| builder.tick(tick));
        let told = Count::default();
        let hook = told.clone();
        driven.driver.on_wake(move |_| hook.add());
        driven.driver.turn();
        let longest = driven.timer.schedule(Duration::MAX, driven.log.task(1)).expect("it runs");
        assert_eq!((told.get(), driven.driver.turn()), (0, None));
        driven.clock.advance(ms(1 << 40));
        assert_eq!((driven.driver.turn(), driven.timer.pending()), (None, 1));
        assert!(driven.log.take().is_empty());
        let before = told.get();
        assert!(longest.reschedule(tick));
        assert_eq!(told.get(), before + 1);
        driven.run();
        assert_eq!(driven.log.take().len(), 1);
    }
}

#[test]
fn dropping_the_last_handle_inside_a_turn_ends_the_timer() {
    let Driven { clock, timer, mut driver, log, .. } = Driven::new();
    let later = timer.schedule(ms(1), log.task(1)).expect("it runs");
    let last = timer.clone();
    timer.schedule(ms(1), move || drop(last)).expect("it runs");
    // Before the other in the order of its deadline.
    assert!(later.reschedule(ms(2)));
    drop(timer);
    clock.advance(ms(2));
    assert_eq!(driver.turn(), None);
    assert!(driver.is_stopped());
    assert_eq!((log.take().len(), later.status()), (0, Status::Stopped));
}

#[test]
fn stop_waits_for_a_turn_on_another_thread() {
    let Driven { clock, timer, mut driver, .. } = Driven::new();
    let gate = Gate::default();
    timer.schedule(ms(1), gate.task()).expect("it runs");
    clock.advance(ms(1));
    let turning = thread::spawn(move || driver.turn());
    gate.reached();
    let (other, passed) = (timer.clone(), gate.clone());
    let stopping = thread::spawn(move || {
        let unfired = other.stop().expect("outside").len();
        (unfired, passed.passed())
    });
    while !timer.is_stopped() {
        thread::yield_now();
    }
    thread::sleep(ms(20));
    assert!(!stopping.is_finished());
    gate.open();
    assert_eq!(stopping.join().unwrap(), (0, 1));
    assert_eq!(turning.join().unwrap(), None);
}

#[test]
fn cancel_and_wait_waits_for_a_turn_on_another_thread() {
    let Driven { clock, timer, mut driver, .. } = Driven::new();
    let gate = Gate::default();
    let timeout = timer.schedule(ms(1), gate.task()).expect("it runs");
    clock.advance(ms(1));
    let turning = thread::spawn(move || driver.turn());
    gate.reached();
    let opens = gate.clone();
    let opening = thread::spawn(move || {
        thread::sleep(ms(20));
        opens.open();
    });
    assert_eq!(timeout.cancel_and_wait(), Ok(false));
    assert_eq!(gate.passed(), 1);
    opening.join().unwrap();
    turning.join().unwrap();
}

#[test]
fn a_driver_moves_between_threads() {
    let Driven { clock, timer, mut driver, log, .. } = Driven::new();
    for number in 0..4 {
        timer.schedule(ms(1), log.task(number)).expect("it runs");
        clock.advance(ms(1));
        driver = thread::spawn(move || {
            driver.turn();
            driver
        })
        .join()
        .unwrap();
    }
    assert_eq!(log.take(), [(1, 0), (2, 1), (3, 2), (4, 3)]);
}

#[test]
fn many_threads_schedule_and_one_loop_fires_all() {
    let timer = crate::help::build_driven(Timer::builder());
    let (fired, barrier) = (Count::default(), Arc::new(Barrier::new(4)));
    let threads: Vec<_> = (0..4)
        .map(|seed| {
            let (timer, fired, barrier) = (timer.clone(), fired.clone(), Arc::clone(&barrier));
            thread::spawn(move || {
                let mut numbers = Numbers(seed);
                barrier.wait();
                for _ in 0..2_000 {
                    let delay = Duration::from_micros(numbers.below(20_000));
                    timer.schedule(delay, fired.task()).expect("it runs");
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    fired.wait_for(8_000);
}

/// A sleep that was moved into the past waits for the next turn, and hides no other.
#[test]
fn what_is_due_at_a_tick_that_had_its_turn_is_ready_at_its_first_poll() {
    let Driven { clock, timer, mut driver, .. } = Driven::new();
    clock.advance(ms(10));
    driver.turn();
    let mut context = Context::from_waker(Waker::noop());
    let mut moved = timer.sleep(ms(10));
    assert!(pin!(&mut moved).poll(&mut context).is_pending());
    moved.reset(ms(0));
    assert!(pin!(timer.sleep(ms(0))).poll(&mut context).is_ready());
    assert!(pin!(timer.sleep(ms(1))).poll(&mut context).is_pending());
    driver.turn();
    assert!(pin!(moved).poll(&mut context).is_ready());
}

#[test]
fn a_driver_that_nobody_turns_shows() {
    let mut driven = Driven::new();
    driven.once(1, 1);
    assert_eq!(format!("{:?}", driven.timer), "Timer { pending: 1, turns: 0, .. }");
    assert_eq!(format!("{:?}", driven.driver), "Driver { turns: 0, .. }");
    driven.driver.turn();
    assert_eq!(format!("{:?}", driven.driver), "Driver { turns: 1, .. }");
    assert_eq!(driven.timer.stats().wake_ups, 1);
    assert!(!format!("{:?}", Timer::new()).contains("turns"));
}

#[test]
fn a_turn_leaves_its_thread_the_shard_it_had() {
    let clock = ManualClock::new();
    let builder = || Timer::builder().shards(8).clock(clock.clone());
    let (other, (_timer, mut driver)) =
        (builder().build().expect("in range"), builder().build_driven().expect("in range"));
    let lengths = || {
        let stats = other.stats();
        let lengths = stats.shards.iter().map(|shard| shard.sorted);
        lengths.filter(|&length| 0 < length).collect::<Vec<_>>()
    };
    for expected in 1..10 {
        other.schedule(ms(1_000), || {}).expect("it runs");
        driver.turn();
        assert_eq!(lengths(), [expected]);
    }
}

/// It may be told and told again, and its owner's code may do as it likes there.
#[test]
fn a_hook_is_dropped_with_its_driver() {
    let Driven { timer, mut driver, .. } = Driven::new();
    let (captured, counted) = (Arc::new(timer.clone()), timer.clone());
    let gone = Arc::downgrade(&captured);
    driver.on_wake(move |_| assert!(!captured.is_stopped() || counted.is_stopped()));
    driver.turn();
    drop(driver);
    assert!(gone.upgrade().is_none());
    assert!(timer.is_stopped());
}

#[test]
fn a_hook_may_panic_schedule_move_the_clock_stop_and_drop() {
    returns("a hook", || {
        for kind in 0..6 {
            let Driven { clock, timer, mut driver, log, .. } = Driven::new();
            let (weak, last) = (clock.clone(), Mutex::new(Some(timer.clone())));
            let (told, wrong) = (Count::default(), Count::default());
            let (tells, is_wrong) = (told.clone(), wrong.clone());
            driver.on_wake(move |_| match kind {
                0 => panic!("a hook, as it was meant to"),
                1 => {
                    let timer = last.lock().unwrap().clone().expect("it is there");
                    drop(timer.schedule(ms(1), || {}));
                }
                2 => weak.advance(ms(1)),
                3 => drop(last.lock().unwrap().clone().expect("it is there").stop()),
                4 => {
                    // In the middle of a stop.
                    let timer = last.lock().unwrap().clone().expect("it is there");
                    // A panic here would be caught.
                    if timer.is_stopped() {
                        tells.add();
                        if timer.stop().is_ok() {
                            is_wrong.add();
                        }
                    }
                }
                _ => drop(last.lock().unwrap().take()),
            });
            driver.turn();
            timer.schedule(ms(5), log.task(1)).expect("it runs");
            clock.advance(ms(5));
            driver.turn();
            assert_eq!(log.len(), usize::from(kind != 3));
            driver.turn();
            drop(timer.stop());
            timer.schedule(ms(5), log.task(1)).expect_err("it was stopped");
            // The hook has a clone, and the driver has the hook.
            drop(driver);
            assert_eq!((0 < told.get(), wrong.get()), (kind == 4, 0));
        }
    });
}

/// The turn that drops a hook is inside of itself already.
#[test]
fn a_turn_drops_a_hook_that_owned_the_last_handle() {
    let next = returns("the turn", || {
        let Driven { timer, mut driver, .. } = Driven::new();
        driver.on_wake(move |_| assert!(timer.pending() < 9));
        driver.turn();
        driver.on_wake(|_| {});
        driver.turn()
    });
    assert_eq!(next, None);
}

/// The thread that advances a clock holds a lock meanwhile.
#[test]
fn a_hook_moves_the_clock_that_tells_it() {
    let (now, expected) = returns("a hook", || {
        let Driven { clock, timer: _timer, mut driver, start, .. } = Driven::new();
        let moves = clock.clone();
        driver.on_wake(move |_| moves.advance(ms(5)));
        driver.turn();
        clock.advance(ms(1));
        (clock.now(), start + ms(5))
    });
    assert_eq!(now, expected);
}

#[test]
fn an_executor_takes_tasks_of_a_driver() {
    let kept = Kept::default();
    let mut driven = Driven::built(Mode::default(), |builder| builder.executor(kept.executor()));
    driven.once(1, 1);
    driven.run();
    assert_eq!((kept.len(), driven.log.len()), (1, 0));
    taken(&kept)();
    assert_eq!(driven.log.len(), 1);
}

#[test]
fn the_executor_is_dropped_with_timer_and_driver() {
    for driver_first in [false, true] {
        let dropped = Count::default();
        let captured = CountsDrop(dropped.clone());
        let executor = move |task| {
            let _captured = &captured;
            drop(task);
        };
        let Driven { timer, driver, .. } =
            Driven::built(Mode::default(), |builder| builder.executor(executor));
        if driver_first {
            drop(driver);
            assert_eq!(dropped.get(), 0);
            drop(timer);
        } else {
            drop(timer);
            drop(driver);
        }
        assert_eq!(dropped.get(), 1);
    }
}

#[test]
fn run_yields_between_turns_and_wakes_for_something_earlier() {
    let Driven { clock, timer, driver, log, .. } = Driven::new();
    let hand = Hand::new();
    let asked = Mutex::new(Vec::new());
    let mut run = pin!(driver.run(|at| {
        asked.lock().unwrap().push(at - log.start());
        std::future::pending::<()>()
    }));
    for number in 0..600 {
        timer.schedule(ms(1), log.task(number)).expect("it runs");
    }
    clock.advance(ms(1));
    // Work that is none of theirs is a part of a turn, too.
    let (mut turns, mut is_over) = (0, false);
    while !is_over {
        let before = log.len();
        assert!(run.as_mut().poll(&mut hand.context()).is_pending());
        assert!(log.len() - before <= 256, "{} in a turn", log.len() - before);
        (turns, is_over) = (turns + 1, hand.woken() == 0);
    }
    assert_eq!((log.len(), turns), (600, 3));

    timer.schedule(ms(999), || {}).expect("it runs");
    assert_eq!(hand.woken(), 1);
    // It sleeps once for each instant, however often it is polled.
    for _ in 0..3 {
        assert!(run.as_mut().poll(&mut hand.context()).is_pending());
    }
    timer.schedule(ms(49), || {}).expect("it runs");
    assert!(run.as_mut().poll(&mut hand.context()).is_pending());
    let slept = std::mem::take(&mut *asked.lock().unwrap());
    assert!(slept.len() <= 2 && slept.last() <= Some(&ms(50)), "{slept:?}");

    hand.woken();
    drop(timer.stop());
    assert_eq!(hand.woken(), 1);
    assert_eq!(run.as_mut().poll(&mut hand.context()), Poll::Ready(()));
    assert_eq!(hand.wakers(), 0);
}

/// Holds up the first thread that wakes it, until it may go on. Each wake-up schedules something.
struct HoldsUp {
    timer: Timer,
    gate: Gate,
    wakes: Count,
}

impl Wake for HoldsUp {
    fn wake(self: Arc<Self>) {
        self.wakes.add();
        self.timer.schedule(ms(500), || {}).expect("it runs");
        if self.wakes.get() == 1 {
            self.gate.pass();
        }
    }
}

#[test]
fn a_thread_that_is_held_up_as_it_wakes_the_driver_holds_up_no_other() {
    let Driven { timer, driver, .. } = Driven::new();
    let (gate, wakes) = (Gate::default(), Count::default());
    let wake = HoldsUp { timer: timer.clone(), gate: gate.clone(), wakes: wakes.clone() };
    let mut run = Box::pin(driver.run(|_| std::future::pending::<()>()));
    let waker = Waker::from(Arc::new(wake));
    assert!(run.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    thread::scope(|scope| {
        let schedules = |delay| _ = timer.schedule(ms(delay), || {}).expect("it runs");
        scope.spawn(move || schedules(10));
        gate.reached();
        for (delay, woken) in [(20, 2), (10, 2), (30, 2), (5, 2)] {
            schedules(delay);
            assert_eq!(wakes.get(), woken, "after {delay} ms");
        }
        gate.open();
    });
    assert_eq!(wakes.get(), 2);
    drop(run);
}

#[test]
fn a_sleep_of_the_runtime_that_ends_early_or_at_once_costs_one_turn_each() {
    let Driven { timer, driver, log, .. } = Driven::new();
    let hand = Hand::new();
    timer.schedule(ms(10), log.task(1)).expect("it runs");
    let mut run = pin!(driver.run(|_| std::future::ready(())));
    for _ in 0..3 {
        assert!(run.as_mut().poll(&mut hand.context()).is_pending());
        assert_eq!((log.len(), hand.woken()), (0, 1));
    }
}

#[test]
fn dropping_what_runs_the_driver_ends_the_timer() {
    let Driven { timer, driver, .. } = Driven::new();
    let pending = timer.schedule(ms(10), || {}).expect("it runs");
    let mut run = Box::pin(driver.run(|_| std::future::pending::<()>()));
    assert!(run.as_mut().poll(&mut Hand::new().context()).is_pending());
    drop(run);
    assert!(timer.is_stopped() && pending.status() == Status::Stopped);
    // Also before its first poll.
    let Driven { timer, driver, .. } = Driven::new();
    drop(driver.run(|_| std::future::pending::<()>()));
    assert!(timer.is_stopped());
}

/// The thread that stops the timer may need this one, if the waker has no room.
#[test]
fn dropping_the_driver_waits_for_no_thread_that_stops_the_timer() {
    struct Held(Gate);

    impl Wake for Held {
        fn wake(self: Arc<Self>) {
            self.0.pass();
        }
    }

    returns("the drop of the driver", || {
        let Driven { timer, mut driver, .. } = Driven::new();
        driver.turn();
        let gate = Gate::default();
        let waker = Waker::from(Arc::new(Held(gate.clone())));
        let mut sleep = Box::pin(timer.sleep(ms(10)));
        assert!(sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        thread::scope(|scope| {
            scope.spawn(|| timer.stop().expect("outside"));
            gate.reached();
            drop(driver);
            gate.open();
        });
    });
}

#[test]
fn queues_and_futures_work_on_a_driver_inside_a_runtime() {
    smol::block_on(async {
        let (timer, driver) = Timer::builder().build_driven().expect("in range");
        let driven = smol::spawn(driver.run(smol::Timer::at));
        timer.sleep(ms(2)).await.expect("it runs");
        let never = std::future::pending::<()>();
        assert!(timer.timeout(ms(2), never).await.is_err());
        let mut ticks = timer.interval(ms(1));
        for _ in 0..3 {
            ticks.tick().await.expect("it runs");
        }
        let mut queue = DelayQueue::with_timer(&timer);
        let second = queue.insert("second", ms(60_000));
        queue.insert("first", ms(2));
        for expected in ["first", "second"] {
            let due = queue.next().await.expect("two are there").expect("it runs");
            assert_eq!(due.value, expected);
            queue.reset(second, ms(2));
        }
        drop(timer.stop());
        driven.await;
    });
}

#[test]
fn a_driver_counts_no_thread() {
    let name = "driven-by-hand";
    let (timer, mut driver) = Timer::builder().thread_name(name).build_driven().expect("in range");
    timer.schedule(Duration::ZERO, || {}).expect("it runs");
    driver.turn();
    assert_eq!(crate::help::threads_named(name).unwrap_or(0), 0);
}

/// What a cancelled task captured is dropped on a thread that waits for no timer.
#[test]
fn dropped_where_nobody_may_wait_it_does_not_hold_up_a_thread_that_stops() {
    let other = Manual::with(|builder| builder);
    let Driven { timer, driver, .. } = Driven::new();
    for _ in 0..50_000 {
        timer.schedule(ms(60_000), || {}).expect("it runs");
    }
    let owner = other.after(60_000, move || drop(driver));
    returns("stopping as the driver is dropped", move || {
        let stopping = timer.clone();
        let stops = thread::spawn(move || stopping.stop().expect("outside").len());
        wait_until(|| timer.is_stopped());
        assert!(owner.cancel());
        assert_eq!(stops.join().expect("it does not panic"), 50_000);
    });
}

/// The thread that moves the clock holds a lock meanwhile.
#[test]
fn a_hook_may_use_a_channel_as_the_clock_moves() {
    let Driven { clock, timer, mut driver, .. } = Driven::new();
    let other = Timer::new();
    let (sender, mut receiver) = delay_channel(&other);
    driver.on_wake(move |_| _ = sender.insert((), Duration::ZERO));
    timer.schedule(ms(5), || {}).expect("it runs");
    driver.turn();
    clock.advance(ms(5));
    assert_eq!(receiver.len(), 1);
    assert!(receiver.recv().is_some_and(|due| due.is_ok()));
}

#[test]
fn a_hook_is_told_of_the_present_where_the_clock_was_set_back_before_the_first_tick() {
    let start = Instant::now() + ms(3_600_000);
    let present = Arc::new(Mutex::new(start));
    let read = Arc::clone(&present);
    let clock = OddClock::new(move || *read.lock().unwrap());
    let (timer, mut driver) = Timer::builder().clock(clock).build_driven().expect("in range");
    let told = Arc::new(Mutex::new(Vec::new()));
    let all = Arc::clone(&told);
    driver.on_wake(move |at| all.lock().unwrap().push(at));
    driver.turn();
    let earlier = start - ms(10_000);
    *present.lock().unwrap() = earlier;
    timer.stop().expect("outside");
    assert_eq!(*told.lock().unwrap(), [earlier]);
}

#[test]
fn the_memory_of_many_that_have_fired_is_freed_a_part_in_each_turn() {
    let Driven { clock, timer, mut driver, .. } = Driven::new();
    for _ in 0..300_000 {
        timer.schedule(ms(1), || {}).expect("it runs");
    }
    clock.advance(ms(1));
    let mut turns_after = 0;
    loop {
        let before = steps();
        let next = driver.turn();
        assert!(steps() - before <= 65_536, "{} with {}", steps() - before, timer.pending());
        turns_after += u32::from(timer.pending() == 0);
        if next.is_none() {
            break;
        }
    }
    assert!(2 < turns_after, "{turns_after}");
}

/// A task may poll a sleep that the same turn is about to wake.
#[test]
fn polled_before_its_turn_a_sleep_waits_on_and_is_woken_once() {
    let Driven { clock, timer, mut driver, .. } = Driven::new();
    let hand = Arc::new(Hand::new());
    let sleep = Arc::new(Mutex::new(timer.sleep(ms(5))));
    let is_pending = Arc::new(Mutex::new(None));
    let (polls, polled, told) = (hand.clone(), sleep.clone(), is_pending.clone());
    let task = move || {
        *told.lock().unwrap() = Some(polls.poll(&mut *polled.lock().unwrap()).is_pending());
    };
    timer.schedule(ms(5), task).expect("it runs");
    assert!(hand.poll(&mut *sleep.lock().unwrap()).is_pending());
    clock.advance(ms(5));
    driver.turn();
    assert_eq!(*is_pending.lock().unwrap(), Some(true));
    assert_eq!((hand.woken(), timer.stats().scheduled), (1, 2));
    assert_eq!(hand.poll(&mut *sleep.lock().unwrap()), Poll::Ready(Ok(())));
}

/// A driven timer on a clock that tells what is in the first place, and counts in the second how
/// often it is read.
fn on_a_clock() -> (Timer, Driver, Arc<Mutex<Instant>>, Count) {
    let (present, reads) = (Arc::new(Mutex::new(Instant::now())), Count::default());
    let (told, counts) = (Arc::clone(&present), reads.clone());
    let clock = OddClock::new(move || {
        counts.add();
        *told.lock().unwrap()
    });
    let builder = Timer::builder().shards(1).clock(clock);
    let (timer, driver) = builder.build_driven().expect("in range");
    (timer, driver, present, reads)
}

#[test]
fn a_sleep_that_was_woken_has_completed_though_the_clock_is_set_back() {
    let (timer, mut driver, present, _) = on_a_clock();
    let (hand, start) = (Hand::new(), *present.lock().unwrap());
    let mut sleep = timer.sleep(ms(5));
    assert!(hand.poll(&mut sleep).is_pending());
    *present.lock().unwrap() = start + ms(10);
    driver.turn();
    assert_eq!(hand.woken(), 1);
    *present.lock().unwrap() = start;
    timer.stop().expect("outside");
    assert_eq!(hand.poll(&mut sleep), Poll::Ready(Ok(())));
}

#[test]
fn a_turn_reads_the_clock_once_for_each_task_of_a_few() {
    let (timer, mut driver, present, reads) = on_a_clock();
    timer.schedule(ms(3_600_000), || {}).expect("it runs");
    let mut in_a_turn = |tasks| {
        for _ in 0..tasks {
            timer.schedule(ms(1), || {}).expect("it runs");
        }
        *present.lock().unwrap() += ms(10);
        let before = reads.get();
        driver.turn();
        reads.get() - before
    };
    let idle = in_a_turn(0);
    assert_eq!([1, 2, 5].map(in_a_turn), [1, 2, 5].map(|tasks| idle + tasks));
}
