//! Handles: their clones, guards, and cancelling that waits for a run.

use crate::common::long;
use crate::help::{
    Count, Gate, Hand, Kept, Manual, a_thread_each, build, ms, returns, taken, wait_until,
};
use crate::zoo::values::Herd;
use futures::executor::block_on;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::task::Poll;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tickwheel::{Next, Run, Status, StopError, Timeout, Timer, TimerBuilder, Unfired};

in_each_mode! {
    clones_are_handles_to_the_same_timeout,
    a_clone_made_late_knows_what_happened_before,
    a_guard_cancels_when_it_is_dropped_and_not_when_it_is_kept,
}

fn clones_are_handles_to_the_same_timeout(manual: Manual) {
    for number in 0..4 {
        let first = manual.idle(10);
        let second = first.clone();
        let third = second.clone();
        let handles = [&first, &second, &third];
        let (acts, sees) = (handles[number % 3], handles[(number + 1) % 3]);
        assert!(acts.reschedule(ms(20)));
        assert_eq!(sees.deadline(), Some(manual.at(20)));
        assert!(sees.reschedule(ms(30)));
        assert_eq!(acts.deadline(), Some(manual.at(30)));
        assert!(acts.cancel() && !sees.cancel());
        assert!(handles.iter().all(|handle| handle.status() == Status::Cancelled));
    }
    let repeating = manual.timer.schedule_with(ms(10), |_: &Run| Next::After(ms(10)));
    let repeating = repeating.expect("it runs");
    assert!(repeating.clone().cancel() && repeating.status() == Status::Cancelled);
    assert_eq!(manual.timer.stats().cancelled, 5);
}

fn a_clone_made_late_knows_what_happened_before(manual: Manual) {
    let [moved, cancelled, fired] = [10; 3].map(|delay| manual.idle(delay));
    assert!(moved.reschedule(ms(20)));
    assert_eq!(moved.clone().deadline(), Some(manual.at(20)));
    assert!(cancelled.cancel());
    assert_eq!(cancelled.clone().status(), Status::Cancelled);
    manual.advance(20);
    assert_eq!((fired.clone().status(), moved.status()), (Status::Fired, Status::Fired));
}

fn a_guard_cancels_when_it_is_dropped_and_not_when_it_is_kept(manual: Manual) {
    let guard = manual.once(10, 1).cancel_on_drop();
    assert!(guard.status() == Status::Pending && guard.reschedule(ms(15)));
    drop(guard);
    let kept: Timeout = manual.once(10, 2).cancel_on_drop().keep();
    assert_eq!(manual.advance(20), [(10, 2)]);
    assert_eq!(kept.status(), Status::Fired);
    // Too late to cancel anything.
    drop(kept.cancel_on_drop());
    assert_eq!(manual.timer.stats().cancelled, 1);
}

#[test]
fn a_guard_counts_the_panic_of_what_it_drops() {
    let (timer, herd) = (Timer::new(), Herd::default());
    let captured = herd.bomb(1);
    let task = move || drop(captured);
    drop(timer.schedule(ms(60_000), task).expect("it runs").cancel_on_drop());
    assert_eq!((herd.dropped(), timer.stats().panics, timer.pending()), (1, 1, 0));
}

/// A timer whose tasks run on its worker, and one whose tasks run elsewhere.
fn here_and_elsewhere(with: impl Fn(TimerBuilder) -> TimerBuilder) -> [Timer; 2] {
    [build(&with), build(|builder| with(builder).executor(a_thread_each))]
}

/// Something to capture, that takes a while to drop and then counts.
struct DropsSlowly(Count);

impl Drop for DropsSlowly {
    fn drop(&mut self) {
        thread::sleep(ms(20));
        self.0.add();
    }
}

/// Cancels and waits on another thread, in both ways, which then looks how far `count` is by then.
fn cancelling(timeout: &Timeout, count: &Count) -> JoinHandle<(Result<bool, StopError>, usize)> {
    let (timeout, count) = (timeout.clone(), count.clone());
    let (hand, polled) = (Hand::new(), Count::default());
    let has_polled = polled.clone();
    let waiting = thread::spawn(move || {
        let mut awaits = Box::pin(timeout.cancel_and_wait_async());
        assert!(hand.poll(&mut awaits).is_pending());
        // One that is dropped leaves nothing behind.
        let other = Hand::new();
        assert!(other.poll_once(timeout.cancel_and_wait_async()).is_pending());
        assert_eq!(other.wakers(), 0);
        polled.add();
        let awaited = block_on(awaits);
        let seen = count.get();
        assert_eq!(timeout.cancel_and_wait(), Ok(false));
        (awaited, seen)
    });
    wait_until(|| has_polled.get() == 1);
    thread::sleep(ms(20));
    assert!(!waiting.is_finished(), "it returned before the run was over");
    waiting
}

#[test]
fn cancel_and_wait_returns_when_the_run_is_over_and_its_captures_are_dropped() {
    for (repeats, panics) in [(false, false), (false, true), (true, false), (true, true)] {
        for timer in here_and_elsewhere(|builder| builder) {
            let (gate, dropped) = (Gate::default(), Count::default());
            let (inner, captured) = (gate.clone(), DropsSlowly(dropped.clone()));
            let task = move || {
                let _captured = &captured;
                inner.pass();
                assert!(!panics, "as it was meant to be");
            };
            let timeout = if repeats {
                let task = move |_: &Run| {
                    task();
                    Next::After(Duration::ZERO)
                };
                timer.schedule_with(ms(1), task).expect("it runs")
            } else {
                timer.schedule(ms(1), task).expect("it runs")
            };
            gate.reached();
            let waiting = cancelling(&timeout, &dropped);
            gate.open();
            assert_eq!(waiting.join().expect("no panic"), (Ok(repeats), 1));
            // Whoever comes later returns at once.
            assert_eq!((timeout.cancel_and_wait(), gate.passed()), (Ok(false), 1));
            assert_eq!((timer.pending(), timer.stats().panics), (0, u64::from(panics)));
        }
    }
}

#[test]
fn what_has_not_begun_is_cancelled_without_waiting() {
    let (timer, gate) = (Timer::new(), Gate::default());
    timer.schedule(Duration::ZERO, gate.task()).expect("it runs");
    gate.reached();
    // Both are due, behind the task that runs.
    let once = timer.schedule(Duration::ZERO, || unreachable!()).expect("it runs");
    let with = timer.schedule_with(Duration::ZERO, |_: &Run| unreachable!()).expect("it runs");
    assert_eq!((once.cancel_and_wait(), with.cancel_and_wait()), (Ok(true), Ok(true)));
    let once = timer.schedule(Duration::ZERO, || unreachable!()).expect("it runs");
    // Nothing happens before the first poll.
    let awaits = once.cancel_and_wait_async();
    assert_eq!(once.status(), Status::Pending);
    assert_eq!(block_on(awaits), Ok(true));
    gate.open();
}

#[test]
fn an_executor_that_keeps_a_task_and_drops_it_lets_go_those_that_wait() {
    let (kept, dropped) = (Kept::default(), Count::default());
    let timer = build(|builder| builder.executor(kept.executor()));
    let timeout = timer.schedule(Duration::ZERO, dropped.dropped()).expect("it runs");
    let task = taken(&kept);
    assert_eq!(timeout.status(), Status::Fired);
    let waiting = cancelling(&timeout, &dropped);
    drop(task);
    assert_eq!(waiting.join().expect("no panic"), (Ok(false), 1));

    // A repeating one is still the timer's: it can be cancelled there.
    let timeout = timer.schedule_with(Duration::ZERO, |_: &Run| unreachable!()).expect("it runs");
    let task = taken(&kept);
    assert_eq!(timeout.cancel_and_wait(), Ok(true));
    task();
}

/// The executor runs it once more, though the timer has no part in it any longer.
#[test]
fn a_repeating_task_that_the_executor_kept_past_stop_is_waited_for() {
    let (kept, runs) = (Kept::default(), Count::default());
    let timer = build(|builder| builder.executor(kept.executor()));
    let count = runs.clone();
    let task = move |_: &Run| {
        count.add();
        Next::After(Duration::ZERO)
    };
    let timeout = timer.schedule_with(Duration::ZERO, task).expect("it runs");
    let task = taken(&kept);
    assert!(timer.stop().expect("outside").is_empty());
    let waiting = cancelling(&timeout, &runs);
    task();
    assert_eq!(waiting.join().expect("no panic"), (Ok(false), 1));
    assert_eq!(timeout.status(), Status::Fired);
}

#[test]
fn inside_a_task_cancel_and_wait_is_an_error_and_cancels_nothing() {
    returns("cancelling and waiting inside a task", || {
        for timer in here_and_elsewhere(|builder| builder) {
            let far = timer.schedule(ms(3_600_000), || {}).expect("it runs");
            let (inside, (sender, receiver)) = (far.clone(), mpsc::channel());
            let task = move || {
                let awaited = Hand::new().poll_once(inside.cancel_and_wait_async());
                sender.send((inside.cancel_and_wait(), awaited)).expect("it waits");
            };
            timer.schedule(Duration::ZERO, task).expect("it runs");
            let (waited, awaited) = receiver.recv().expect("it ran");
            let error: StopError = waited.expect_err("inside");
            assert!(error.to_string().contains("nothing was done"));
            assert_eq!(awaited, Poll::Ready(Err(error)));
            assert_eq!(far.status(), Status::Pending);
        }
    });
}

/// As on a thread of a runtime, which is to run the task next.
#[test]
fn a_thread_of_the_executor_awaits_what_it_must_not_wait_for() {
    let (kept, hand, dropped) = (Kept::default(), Hand::new(), Count::default());
    let timer = build(|builder| builder.executor(kept.executor()));
    let timeout = timer.schedule(Duration::ZERO, || {}).expect("it runs");
    taken(&kept)();
    assert_eq!(block_on(timeout.cancel_and_wait_async()), Ok(false));

    let timeout = timer.schedule(Duration::ZERO, dropped.dropped()).expect("it runs");
    let task = taken(&kept);
    assert!(timeout.cancel_and_wait().is_err());
    // The worker has passed on to another.
    timer.schedule(Duration::ZERO, || {}).expect("it runs");
    taken(&kept)();
    let mut awaits = Box::pin(timeout.cancel_and_wait_async());
    assert!(hand.poll(&mut awaits).is_pending() && hand.poll(&mut awaits).is_pending());
    // Another task of the same shard wakes nobody.
    timer.schedule(Duration::ZERO, || {}).expect("it runs");
    taken(&kept)();
    assert_eq!((hand.woken(), hand.wakers()), (0, 1));
    task();
    assert_eq!((hand.woken(), hand.wakers(), dropped.get()), (1, 0, 1));
    assert_eq!(hand.poll(&mut awaits), Poll::Ready(Ok(false)));
}

#[test]
fn inside_a_task_of_another_timer_it_waits_unless_that_one_waits_too() {
    returns("cancelling and waiting inside tasks of two timers", || {
        let timers = [Timer::new(), Timer::new()];
        let barrier = Arc::new(Barrier::new(2));
        let handles: [Arc<Mutex<Option<Timeout>>>; 2] = Default::default();
        let (sender, receiver) = mpsc::channel();
        for own in 0..2 {
            let (barrier, sender) = (Arc::clone(&barrier), sender.clone());
            let other = Arc::clone(&handles[1 - own]);
            let task = move || {
                barrier.wait();
                let other = other.lock().unwrap().clone().expect("it runs");
                sender.send(other.cancel_and_wait()).expect("it waits");
            };
            let mut handle = handles[own].lock().unwrap();
            *handle = Some(timers[own].schedule(ms(20), task).expect("it runs"));
        }
        let mut answers = [receiver.recv().expect("first"), receiver.recv().expect("second")];
        answers.sort_by_key(Result::is_ok);
        assert!(matches!(answers, [Err(_), Ok(false)]), "{answers:?}");
    });
}

/// What Redisson's lock watchdog got wrong: a renewal that goes on after the lock was given up.
#[test]
fn no_renewal_outlives_the_lock() {
    let timers = here_and_elsewhere(|builder| builder.tick(Duration::from_micros(1)));
    for (timer, locks) in timers.into_iter().zip(long([2_000, 100], [10_000, 500])) {
        let renewals = Count::default();
        for lock in 0..locks {
            let locked = Arc::new(AtomicBool::new(true));
            let (lease, count) = (Arc::clone(&locked), renewals.clone());
            let renew = move |_: &Run| {
                assert!(lease.load(SeqCst));
                count.add();
                thread::yield_now();
                assert!(lease.load(SeqCst), "given up during the renewal");
                Next::After(Duration::ZERO)
            };
            let watchdog = timer.schedule_with(Duration::ZERO, renew).expect("it runs");
            let before = renewals.get();
            while lock % 2 == 0 && renewals.get() == before {
                thread::yield_now();
            }
            assert!(watchdog.cancel_and_wait().expect("outside"));
            locked.store(false, SeqCst);
        }
        assert_eq!((timer.stats().panics, timer.pending()), (0, 0));
    }
}

/// The worker goes on with another shard, and that task ended long ago.
#[test]
fn the_last_task_of_a_turn_is_not_waited_for() {
    let manual = Manual::with(|builder| builder.shards(2));
    // More than a turn.
    let handles: Vec<_> = (0..200).map(|_| manual.idle(1)).collect();
    let (sender, receiver) = mpsc::channel();
    let past = manual.clock.now();
    let task = move |_: &Run| {
        let mut latest = handles.iter().rev();
        let Some(last) = latest.find(|handle| handle.status() == Status::Fired).cloned() else {
            return Next::At(past);
        };
        let (returned, returns) = mpsc::channel();
        thread::spawn(move || returned.send(last.cancel_and_wait()));
        sender.send(returns.recv_timeout(Duration::from_secs(30))).expect("the test waits");
        Next::Stop
    };
    // Another thread has the other shard.
    let schedule = || drop(manual.timer.schedule_with(ms(1), task).expect("it runs"));
    thread::scope(|scope| scope.spawn(schedule).join()).expect("no panic");
    manual.clock.jump(ms(1));
    assert!(matches!(receiver.recv().expect("it ran"), Ok(Ok(false))));
}

/// Jumps to where all is due, with the worker inside a task that waits at the gate.
fn jumps_into_a_task(manual: &Manual, gate: &Gate) -> JoinHandle<()> {
    let clock = manual.clock.clone();
    let jump = thread::spawn(move || clock.jump(ms(1)));
    gate.reached();
    jump
}

/// Due together with a task that blocks, and so out of the wheel, they are pending nevertheless.
#[test]
fn what_is_due_behind_a_task_is_pending_moved_and_given_back() {
    let (manual, gate) = (Manual::with(|builder| builder.shards(1)), Gate::default());
    manual.after(1, gate.task());
    let timer = manual.timer.clone();
    let once = || manual.after(1, || unreachable!());
    let with = || timer.schedule_with(ms(1), |_: &Run| unreachable!()).expect("it runs");
    let handles = [once(), once(), with(), with()];
    let [stays, moved, _, repeats] = &handles;
    let jump = jumps_into_a_task(&manual, &gate);

    assert!(handles.iter().all(|handle| handle.status() == Status::Pending));
    assert_eq!((timer.pending(), timer.next_deadline()), (4, stays.deadline()));
    assert!(moved.reschedule(ms(50)) && repeats.reschedule(ms(60)));
    assert!(handles.iter().all(|handle| handle.status() == Status::Pending));
    assert_eq!(timer.pending(), 4);
    assert!(moved.reschedule(ms(70)) && repeats.reschedule(ms(80)));
    let stops = timer.clone();
    let stop = thread::spawn(move || stops.stop().expect("outside"));
    wait_until(|| timer.is_stopped() && timer.pending() == 0);
    gate.open();
    let unfired = stop.join().expect("no panic");
    let deadlines: Vec<_> = unfired.iter().map(Unfired::deadline).collect();
    assert_eq!(deadlines, [stays, stays, moved, repeats].map(Timeout::deadline));
    assert!(handles.iter().all(|handle| handle.status() == Status::Stopped));
    jump.join().expect("no panic");
}

/// Each is woken when its own run has ended.
#[test]
fn who_awaits_the_end_of_one_run_is_not_woken_by_that_of_another() {
    let timer = Timer::builder().executor(a_thread_each).build().expect("in range");
    let gates = [(); 2].map(|()| Gate::default());
    let beats = gates.each_ref().map(|gate| {
        let gate = gate.clone();
        let task = move |_: &Run| {
            gate.pass();
            Next::Stop
        };
        timer.schedule_with(Duration::ZERO, task).expect("it runs")
    });
    gates.iter().for_each(Gate::reached);
    let hands = [Hand::new(), Hand::new()];
    let [mut first, mut second] =
        beats.each_ref().map(|beat| Box::pin(beat.cancel_and_wait_async()));
    assert!(hands[0].poll(&mut first).is_pending() && hands[1].poll(&mut second).is_pending());
    gates[0].open();
    wait_until(|| hands[0].woken() == 1);
    assert_eq!((hands[0].poll(&mut first), hands[1].woken()), (Poll::Ready(Ok(true)), 0));
    gates[1].open();
    wait_until(|| hands[1].woken() == 1);
    assert_eq!(hands[1].poll(&mut second), Poll::Ready(Ok(true)));
}

/// Also if it is out of the wheel by then.
#[test]
fn a_sleep_that_is_due_behind_a_task_wakes_who_polled_it_last() {
    let manual = Manual::with(|builder| builder.shards(1));
    let (gate, hands) = (Gate::default(), [Hand::new(), Hand::new()]);
    manual.after(1, gate.task());
    let mut sleep = manual.timer.sleep(ms(1));
    assert!(hands[0].poll(&mut sleep).is_pending());
    let jump = jumps_into_a_task(&manual, &gate);
    assert!(hands[1].poll(&mut sleep).is_pending());
    gate.open();
    jump.join().expect("no panic");
    assert_eq!((hands[0].woken(), hands[1].woken()), (0, 1));
    assert_eq!((hands[0].wakers(), hands[1].wakers()), (0, 0));
}

/// With a limit a sleep moves at once, also if it is out of the wheel.
#[test]
fn a_sleep_that_is_due_behind_a_task_is_moved_and_dropped() {
    let manual = Manual::with(|builder| builder.shards(1).max_pending(9));
    let (gate, hand) = (Gate::default(), Hand::new());
    manual.after(1, gate.task());
    let mut sleep = manual.timer.sleep(ms(1));
    assert!(hand.poll(&mut sleep).is_pending());
    let jump = jumps_into_a_task(&manual, &gate);

    sleep.reset(ms(50));
    assert!(hand.poll(&mut sleep).is_pending());
    assert_eq!(manual.timer.pending(), 1);
    drop(sleep);
    assert_eq!(manual.timer.pending(), 0, "nothing is left behind under the old key");
    gate.open();
    jump.join().expect("no panic");
}
