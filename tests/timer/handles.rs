//! Handles: their clones, guards, and cancelling that waits for a run.

use crate::help::{Count, CountsDrop, Manual, PanicsInDrop, ms, returns, wait_until};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;
use tickwheel::{ManualClock, Mode, Next, Run, Status, StopError, Timeout, Timer};

type BoxedTask = Box<dyn FnOnce() + Send>;

in_each_mode! {
    clones_are_handles_to_the_same_timeout,
    a_clone_made_late_knows_what_happened_before,
    a_guard_cancels_when_it_is_dropped_and_not_when_it_is_kept,
}

fn clones_are_handles_to_the_same_timeout(mode: Mode) {
    let manual = Manual::new(mode);
    for number in 0..4 {
        let first = manual.timer.schedule(ms(10), || {}).expect("it runs");
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
    let clone = repeating.clone();
    assert!(clone.cancel() && repeating.status() == Status::Cancelled);
    assert_eq!(manual.timer.stats().cancelled, 5);
}

fn a_clone_made_late_knows_what_happened_before(mode: Mode) {
    let manual = Manual::new(mode);
    let moved = manual.timer.schedule(ms(10), || {}).expect("it runs");
    assert!(moved.reschedule(ms(20)));
    assert_eq!(moved.clone().deadline(), Some(manual.at(20)));
    let cancelled = manual.timer.schedule(ms(10), || {}).expect("it runs");
    assert!(cancelled.cancel());
    assert_eq!(cancelled.clone().status(), Status::Cancelled);
    let fired = manual.timer.schedule(ms(10), || {}).expect("it runs");
    manual.advance(20);
    assert_eq!((fired.clone().status(), moved.status()), (Status::Fired, Status::Fired));
}

fn a_guard_cancels_when_it_is_dropped_and_not_when_it_is_kept(mode: Mode) {
    let manual = Manual::new(mode);
    let guard = manual.timer.schedule(ms(10), manual.log.task(1)).expect("it runs");
    let guard = guard.cancel_on_drop();
    assert!(guard.status() == Status::Pending && guard.reschedule(ms(15)));
    drop(guard);
    let guard = manual.timer.schedule(ms(10), manual.log.task(2)).expect("it runs");
    let kept: Timeout = guard.cancel_on_drop().keep();
    assert_eq!(manual.advance(20), [(10, 2)]);
    assert_eq!(kept.status(), Status::Fired);
    // Too late to cancel anything.
    drop(kept.cancel_on_drop());
    assert_eq!(manual.timer.stats().cancelled, 1);
}

#[test]
fn a_guard_counts_the_panic_of_what_it_drops() {
    let (timer, dropped) = (Timer::new(), Count::default());
    let captured = PanicsInDrop(dropped.clone());
    let task = move || drop(captured);
    drop(timer.schedule(ms(60_000), task).expect("it runs").cancel_on_drop());
    assert_eq!((dropped.get(), timer.stats().panics, timer.pending()), (1, 1, 0));
}

/// Something to capture, that takes a while to drop and then counts.
struct DropsSlowly(Count);

impl Drop for DropsSlowly {
    fn drop(&mut self) {
        thread::sleep(ms(20));
        self.0.add();
    }
}

/// What a task runs between two messages, and whether it is over.
struct Slow {
    begins: mpsc::Receiver<()>,
    ends: mpsc::Sender<()>,
    over: Count,
    dropped: Count,
}

/// A task that says that it has begun, waits, and is over; then it may panic.
fn slow(panics: bool) -> (impl FnMut() + Send + 'static, Slow) {
    let ((begun, begins), (ends, end)) = (mpsc::channel(), mpsc::channel());
    let (over, dropped) = (Count::default(), Count::default());
    let (count, captured) = (over.clone(), DropsSlowly(dropped.clone()));
    let task = move || {
        let _captured = &captured;
        begun.send(()).expect("the test waits");
        end.recv().expect("the test sends");
        thread::sleep(ms(5));
        count.add();
        assert!(!panics, "as it was meant to be");
    };
    (task, Slow { begins, ends, over, dropped })
}

/// Cancels a timeout while its task runs, and looks at what has happened when that returns.
fn cancelled_and_waited_for(timer: &Timer, timeout: &Timeout, slow: &Slow) -> bool {
    slow.begins.recv().expect("it begins");
    let (other, (returned, waits)) = (timeout.clone(), mpsc::channel());
    let (over, dropped) = (slow.over.clone(), slow.dropped.clone());
    let waiting = thread::spawn(move || {
        let is_cancelled = other.cancel_and_wait().expect("outside");
        returned.send(()).expect("the test waits");
        (is_cancelled, over.get(), dropped.get())
    });
    thread::sleep(ms(20));
    assert!(waits.try_recv().is_err(), "it returned while the task was running");
    slow.ends.send(()).expect("it waits");
    let (is_cancelled, over, dropped) = waiting.join().expect("no panic");
    assert_eq!((over, dropped), (1, 1));
    // Whoever comes later returns at once.
    assert_eq!(timeout.cancel_and_wait(), Ok(false));
    assert_eq!(timer.pending(), 0);
    is_cancelled
}

#[test]
fn cancel_and_wait_returns_when_the_run_is_over() {
    for executor in [false, true] {
        for panics in [false, true] {
            let builder = Timer::builder();
            let timer = match executor {
                true => builder.executor(|task: BoxedTask| drop(thread::spawn(task))),
                false => builder,
            };
            let timer = timer.build().expect("in range");
            let (task, run) = slow(panics);
            let timeout = timer.schedule(ms(1), task).expect("it runs");
            assert!(!cancelled_and_waited_for(&timer, &timeout, &run));

            let (mut task, run) = slow(panics);
            let repeating = move |_: &Run| {
                task();
                Next::After(Duration::ZERO)
            };
            let timeout = timer.schedule_with(ms(1), repeating).expect("it runs");
            assert!(cancelled_and_waited_for(&timer, &timeout, &run));
            assert_eq!(timer.stats().panics, if panics { 2 } else { 0 });
        }
    }
}

#[test]
fn what_has_not_begun_is_cancelled_without_waiting() {
    let timer = Timer::new();
    let (begun, begins) = mpsc::channel();
    let (ends, end) = mpsc::channel::<()>();
    let blocks = move || {
        begun.send(()).expect("the test waits");
        assert!(end.recv().is_err());
    };
    timer.schedule(Duration::ZERO, blocks).expect("it runs");
    begins.recv().expect("it begins");
    // Both are due, behind the task that runs.
    let once = timer.schedule(Duration::ZERO, || unreachable!()).expect("it runs");
    let with = timer.schedule_with(Duration::ZERO, |_: &Run| unreachable!()).expect("it runs");
    assert_eq!((once.cancel_and_wait(), with.cancel_and_wait()), (Ok(true), Ok(true)));
    drop(ends);
}

#[test]
fn an_executor_that_keeps_a_task_and_drops_it_lets_go_those_that_wait() {
    let kept: Arc<Mutex<Vec<BoxedTask>>> = Arc::default();
    let keeps = Arc::clone(&kept);
    let executor = move |task: BoxedTask| keeps.lock().unwrap().push(task);
    let timer = Timer::builder().executor(executor).build().expect("in range");
    let dropped = Count::default();
    let captured = CountsDrop(dropped.clone());
    let timeout = timer.schedule(Duration::ZERO, move || drop(captured)).expect("it runs");
    wait_until(|| kept.lock().unwrap().len() == 1);
    assert_eq!(timeout.status(), Status::Fired);
    let (other, count) = (timeout.clone(), dropped.clone());
    let waiting = thread::spawn(move || (other.cancel_and_wait(), count.get()));
    thread::sleep(ms(20));
    assert!(!waiting.is_finished());
    let task = kept.lock().unwrap().pop();
    drop(task);
    assert_eq!(waiting.join().expect("no panic"), (Ok(false), 1));

    // A repeating one is still the timer's: it can be cancelled there.
    let timeout = timer.schedule_with(Duration::ZERO, |_: &Run| unreachable!()).expect("it runs");
    wait_until(|| kept.lock().unwrap().len() == 1);
    assert_eq!(timeout.cancel_and_wait(), Ok(true));
    let task = kept.lock().unwrap().pop().expect("it has one");
    task();
}

/// The executor runs it once more, though the timer has no part in it any longer.
#[test]
fn a_repeating_task_that_the_executor_kept_past_stop_is_waited_for() {
    let kept: Arc<Mutex<Vec<BoxedTask>>> = Arc::default();
    let keeps = Arc::clone(&kept);
    let executor = move |task: BoxedTask| keeps.lock().unwrap().push(task);
    let timer = Timer::builder().executor(executor).build().expect("in range");
    let runs = Count::default();
    let count = runs.clone();
    let task = move |_: &Run| {
        count.add();
        Next::After(Duration::ZERO)
    };
    let timeout = timer.schedule_with(Duration::ZERO, task).expect("it runs");
    wait_until(|| kept.lock().unwrap().len() == 1);
    assert!(timer.stop().expect("outside").is_empty());
    let (other, count) = (timeout.clone(), runs.clone());
    let waiting = thread::spawn(move || (other.cancel_and_wait(), count.get()));
    thread::sleep(ms(20));
    assert!(!waiting.is_finished());
    let task = kept.lock().unwrap().pop().expect("it has one");
    task();
    assert_eq!(waiting.join().expect("no panic"), (Ok(false), 1));
    assert_eq!(timeout.status(), Status::Fired);
}

#[test]
fn inside_a_task_cancel_and_wait_is_an_error_and_cancels_nothing() {
    returns("cancelling and waiting inside a task", || {
        let elsewhere = |task: BoxedTask| drop(thread::spawn(task));
        for executor in [false, true] {
            let builder = Timer::builder();
            let timer = if executor { builder.executor(elsewhere) } else { builder };
            let timer = timer.build().expect("in range");
            let far = timer.schedule(ms(60_000), || {}).expect("it runs");
            let (inside, (sender, receiver)) = (far.clone(), mpsc::channel());
            let task = move || sender.send(inside.cancel_and_wait()).expect("it waits");
            timer.schedule(Duration::ZERO, task).expect("it runs");
            let error: StopError = receiver.recv().expect("it ran").expect_err("inside");
            assert!(error.to_string().contains("nothing was done"));
            assert_eq!(far.status(), Status::Pending);
        }
    });
}

#[test]
fn inside_a_task_of_another_timer_it_waits_unless_that_one_waits_too() {
    returns("cancelling and waiting inside tasks of two timers", || {
        let timers = [Timer::new(), Timer::new()];
        let barrier = Arc::new(std::sync::Barrier::new(2));
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
    for executor in [false, true] {
        let builder = Timer::builder().tick(Duration::from_micros(1));
        let timer = match executor {
            true => builder.executor(|task: BoxedTask| drop(thread::spawn(task))),
            false => builder,
        };
        let timer = timer.build().expect("in range");
        let renewals = Count::default();
        for lock in 0..if executor { 500 } else { 10_000 } {
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
    let clock = ManualClock::new();
    let timer = Timer::builder().shards(2).clock(clock.clone()).build().expect("in range");
    // More than a turn.
    let handles: Vec<_> =
        (0..200).map(|_| timer.schedule(ms(1), || {}).expect("it runs")).collect();
    let (fired, (sender, receiver)) = (handles.clone(), mpsc::channel());
    let task = move |_: &Run| {
        let Some(last) =
            fired.iter().rev().find(|handle| handle.status() == Status::Fired).cloned()
        else {
            return Next::At(std::time::Instant::now() - ms(1_000));
        };
        let (returned, returns) = mpsc::channel();
        thread::spawn(move || returned.send(last.cancel_and_wait()));
        sender.send(returns.recv_timeout(Duration::from_secs(30))).expect("the test waits");
        Next::Stop
    };
    // Another thread has the other shard.
    let other = timer.clone();
    let schedule = move || drop(other.schedule_with(ms(1), task).expect("it runs"));
    thread::spawn(schedule).join().expect("no panic");
    clock.jump(ms(1));
    assert!(matches!(receiver.recv().expect("it ran"), Ok(Ok(false))));
}

/// Due together with a task that blocks, and so out of the wheel, they are pending nevertheless.
#[test]
fn what_is_due_behind_a_task_is_pending_moved_and_given_back() {
    let clock = ManualClock::new();
    let timer = Timer::builder().shards(1).clock(clock.clone()).build().expect("in range");
    let (begun, begins) = mpsc::channel();
    let (ends, end) = mpsc::channel::<()>();
    let blocks = move || {
        begun.send(()).expect("the test waits");
        assert!(end.recv().is_err());
    };
    timer.schedule(ms(1), blocks).expect("it runs");
    let once = || timer.schedule(ms(1), || unreachable!()).expect("it runs");
    let with = || timer.schedule_with(ms(1), |_: &Run| unreachable!()).expect("it runs");
    let (stays, moved, repeats, repeats_later) = (once(), once(), with(), with());
    let jumps = clock.clone();
    let jump = thread::spawn(move || jumps.jump(ms(1)));
    begins.recv().expect("it begins");

    let handles = [&stays, &moved, &repeats, &repeats_later];
    assert!(handles.iter().all(|handle| handle.status() == Status::Pending));
    assert_eq!((timer.pending(), timer.next_deadline()), (4, stays.deadline()));
    assert!(moved.reschedule(ms(50)) && repeats_later.reschedule(ms(60)));
    assert!(handles.iter().all(|handle| handle.status() == Status::Pending));
    assert_eq!(timer.pending(), 4);
    assert!(moved.reschedule(ms(70)) && repeats_later.reschedule(ms(80)));
    let stops = timer.clone();
    let stop = thread::spawn(move || stops.stop().expect("outside"));
    wait_until(|| timer.is_stopped() && timer.pending() == 0);
    drop(ends);
    let unfired = stop.join().expect("no panic");
    let deadlines: Vec<_> = unfired.iter().map(tickwheel::Unfired::deadline).collect();
    let [now, near, far] = [&stays, &moved, &repeats_later].map(Timeout::deadline);
    assert_eq!(deadlines, [now, now, near, far]);
    assert!(handles.iter().all(|handle| handle.status() == Status::Stopped));
    jump.join().expect("no panic");
}

/// With a limit a sleep moves at once, also if it is out of the wheel.
#[test]
fn a_sleep_that_is_due_behind_a_task_is_moved_and_dropped() {
    let clock = ManualClock::new();
    let builder = Timer::builder().shards(1).max_pending(9).clock(clock.clone());
    let timer = builder.build().expect("in range");
    let (begun, begins) = mpsc::channel();
    let (ends, end) = mpsc::channel::<()>();
    let blocks = move || {
        begun.send(()).expect("the test waits");
        assert!(end.recv().is_err());
    };
    timer.schedule(ms(1), blocks).expect("it runs");
    let mut sleep = Box::pin(timer.sleep(ms(1)));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(sleep.as_mut().poll(&mut context).is_pending());
    let jump = thread::spawn(move || clock.jump(ms(1)));
    begins.recv().expect("it begins");

    sleep.reset(ms(50));
    assert!(sleep.as_mut().poll(&mut context).is_pending());
    assert_eq!(timer.pending(), 1);
    drop(sleep);
    assert_eq!(timer.pending(), 0, "nothing is left behind under the old key");
    drop(ends);
    jump.join().expect("no panic");
}
