//! Races, in every order that threads can take: run with `RUSTFLAGS="--cfg loom"`.
//!
//! The clock stands still here, after the deadlines that are due and before all others. A timeout
//! that is due fires only if the worker looks, and the worker sleeps until a thread tells it: a
//! lost wake-up is a deadlock, which loom reports.
#![cfg(loom)]

use loom::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use loom::sync::{Condvar, Mutex};
use loom::thread;
use std::future::pending;
use std::ops::ControlFlow;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};
use tickwheel::{
    Clock, DelayReceiver, DelaySender, Driver, ExpiredReceiver, ExpiringMap, Follower, ManualClock,
    MissedTick, Next, Run, ScheduleErrorKind, Sleep, Status, Timeout, Timer, TimerBuilder,
    delay_channel,
};

/// Stands still.
struct Still(Instant);

impl Clock for Still {
    fn now(&self) -> Instant {
        self.0
    }
}

/// Counts, and lets others wait for a number.
#[derive(Clone)]
struct Count(Arc<(Mutex<usize>, Condvar)>);

impl Count {
    fn new() -> Self {
        Self(Arc::new((Mutex::new(0), Condvar::new())))
    }

    fn add(&self) {
        *self.0.0.lock().unwrap() += 1;
        self.0.1.notify_all();
    }

    fn get(&self) -> usize {
        *self.0.0.lock().unwrap()
    }

    fn wait_for(&self, count: usize) {
        let mut counted = self.0.0.lock().unwrap();
        while *counted < count {
            counted = self.0.1.wait(counted).unwrap();
        }
    }

    /// A task that counts.
    fn task(&self) -> impl FnOnce() + Send + 'static {
        let count = self.clone();
        move || count.add()
    }
}

/// Explores every order with at most `switches` switches away from a thread that could go on.
fn explore(switches: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(switches);
    builder.check(model);
}

/// What most models begin with.
struct Race {
    timer: Timer,
    /// An instant at which a timeout is due, and one that does not come.
    due: Instant,
    far: Instant,
    fired: Count,
}

/// Explores a model with a timer, whose worker races with the threads of the model.
fn race(switches: usize, model: impl Fn(Race) + Send + Sync + 'static) {
    race_of(switches, |builder| builder.shards(1), model);
}

fn race_of(
    switches: usize,
    with: impl Fn(TimerBuilder) -> TimerBuilder + Send + Sync + 'static,
    model: impl Fn(Race) + Send + Sync + 'static,
) {
    explore(switches, move || {
        let now = Instant::now();
        let timer = with(Timer::builder().clock(Still(now))).build().expect("in range");
        model(Race { timer, due: now, far: now + Duration::from_secs(1), fired: Count::new() });
    });
}

/// Runs two things at once, the second on a thread of its own.
fn both<A, B: 'static>(here: impl FnOnce() -> A, there: impl FnOnce() -> B + 'static) -> (A, B) {
    let thread = thread::spawn(there);
    let here = here();
    (here, thread.join().unwrap())
}

/// Explores a model with a timer on a clock that the model moves, and a sleep of 1 ms that a task
/// has polled. At the end, nothing may be left of the sleep. The second time its waker leaves the
/// shard before it is woken.
fn sleep_race(
    switches: usize,
    model: impl Fn(&Moved, &Timer, &Task, Sleep) + Copy + Send + Sync + 'static,
) {
    sleep_race_of(switches, |builder| builder, model);
    sleep_race_of(switches, TimerBuilder::wakes_together, model);
}

fn sleep_race_of(
    switches: usize,
    with: impl Fn(TimerBuilder) -> TimerBuilder + Send + Sync + 'static,
    model: impl Fn(&Moved, &Timer, &Task, Sleep) + Send + Sync + 'static,
) {
    explore(switches, move || {
        let ((clock, timer), task) = (Moved::with_timer_of(&with), Task::new());
        let mut sleep = timer.sleep_until(clock.at(1));
        assert!(task.poll(&mut sleep).is_pending());
        model(&clock, &timer, &task, sleep);
        assert!(timer.stop().unwrap().is_empty());
        assert_eq!(task.wakers(), 0);
    });
}

/// Explores a model with timers of one shard on a clock that moves by hand.
fn manual_race<const TIMERS: usize>(
    switches: usize,
    model: impl Fn(ManualClock, [Timer; TIMERS], Count) + Send + Sync + 'static,
) {
    explore(switches, move || {
        let clock = ManualClock::new();
        let build = |()| Timer::builder().shards(1).clock(clock.clone()).build().unwrap();
        model(clock.clone(), [(); TIMERS].map(build), Count::new());
    });
}

/// Two threads schedule what is due, at once, and both fire.
fn two_threads_schedule(Race { timer, due, fired, .. }: Race) {
    let (other, task) = (timer.clone(), fired.task());
    let here = || {
        timer.schedule_at(due, fired.task()).unwrap();
        fired.wait_for(2);
    };
    both(here, move || drop(other.schedule_at(due, task).unwrap()));
}

/// A repeating timeout that is due, and counts its runs.
fn repeating(timer: &Timer, missed: MissedTick, runs: &Count) -> Timeout {
    let count = runs.clone();
    let task = move || {
        count.add();
        ControlFlow::Continue(())
    };
    let timeout = timer.schedule_repeating(MILLI, missed, task).unwrap();
    assert!(timeout.reschedule(Duration::ZERO));
    timeout
}

#[test]
fn scheduled_as_the_worker_falls_asleep_it_fires() {
    race(TWO, |Race { timer, due, far, fired }| {
        timer.schedule_at(far, || unreachable!()).unwrap();
        timer.schedule_at(due, fired.task()).unwrap();
        fired.wait_for(1);
    });
}

#[test]
fn scheduled_by_two_threads_both_fire() {
    let shards = |builder: TimerBuilder| builder.shards(2);
    race_of(THREE, shards, |race| {
        race.timer.schedule_at(race.far, || unreachable!()).unwrap();
        two_threads_schedule(race);
    });
}

#[test]
fn first_timeouts_of_two_threads_both_fire() {
    race(THREE, two_threads_schedule);
}

#[test]
fn cancelled_as_it_fires_it_has_one_end() {
    race(TWO, |Race { timer, due, fired, .. }| {
        let timeout = timer.schedule_at(due, fired.task()).unwrap();
        let cancelled = timeout.cancel();
        assert!(timer.stop().unwrap().is_empty());
        match timeout.status() {
            Status::Cancelled => assert!(cancelled && fired.get() == 0),
            Status::Fired => assert!(!cancelled && fired.get() == 1),
            status => panic!("{status:?}"),
        }
    });
}

#[test]
fn cancelled_by_two_threads_it_is_cancelled_once() {
    race(THREE, |Race { timer, due, fired, .. }| {
        let timeout = Arc::new(timer.schedule_at(due, fired.task()).unwrap());
        let other = Arc::clone(&timeout);
        let (here, there) = both(|| timeout.cancel(), move || other.cancel());
        let cancelled = usize::from(here) + usize::from(there);
        let returned = timer.stop().unwrap().len();
        assert_eq!(cancelled + returned + fired.get(), 1);
    });
}

#[test]
fn asked_as_it_is_cancelled_it_has_not_fired() {
    race(THREE, |Race { timer, far, .. }| {
        let timeout = Arc::new(timer.schedule_at(far, || unreachable!()).unwrap());
        let other = Arc::clone(&timeout);
        let (status, cancelled) = both(|| timeout.status(), move || other.cancel());
        assert!(matches!(status, Status::Pending | Status::Cancelled) && cancelled);
        assert_eq!(timeout.status(), Status::Cancelled);
    });
}

#[test]
fn cancelling_the_earliest_does_not_hide_the_next() {
    race(TWO, |Race { timer, due, far, fired }| {
        let first = timer.schedule_at(due - Duration::from_secs(1), fired.task()).unwrap();
        timer.schedule_at(due, fired.task()).unwrap();
        timer.schedule_at(far, || unreachable!()).unwrap();
        let cancelled = first.cancel();
        fired.wait_for(if cancelled { 1 } else { 2 });
    });
}

#[test]
fn moved_later_as_it_fires_it_fires_or_waits() {
    race(TWO, |Race { timer, due, far, fired }| {
        let timeout = timer.schedule_at(due, fired.task()).unwrap();
        let moved = timeout.reschedule_at(far);
        let returned = timer.stop().unwrap().len();
        assert_eq!((returned, fired.get()), if moved { (1, 0) } else { (0, 1) });
        assert_eq!(timeout.status() == Status::Fired, !moved);
    });
}

#[test]
fn moved_earlier_as_the_worker_falls_asleep_it_fires() {
    race(TWO, |Race { timer, due, far, fired }| {
        let timeout = timer.schedule_at(far, fired.task()).unwrap();
        assert!(timeout.reschedule_at(due));
        fired.wait_for(1);
    });
}

#[test]
fn moved_by_one_thread_and_cancelled_by_another_it_has_one_end() {
    race(THREE, |Race { timer, due, far, fired }| {
        let timeout = Arc::new(timer.schedule_at(far, fired.task()).unwrap());
        let other = Arc::clone(&timeout);
        let (cancelled, moved) = both(|| timeout.cancel(), move || other.reschedule_at(due));
        assert!(cancelled || moved);
        if !cancelled {
            fired.wait_for(1);
        }
        assert!(timer.stop().unwrap().is_empty());
        assert_eq!(fired.get(), usize::from(!cancelled));
    });
}

#[test]
fn stopped_as_it_is_scheduled_it_fires_or_comes_back() {
    race(THREE, |Race { timer, due, fired, .. }| {
        let (other, task) = (timer.clone(), fired.task());
        let schedule = || timer.schedule_at(due, task);
        let (scheduled, returned) = both(schedule, move || other.stop().unwrap().len());
        assert_eq!(fired.get() + returned, usize::from(scheduled.is_ok()));
        assert_eq!(timer.pending(), 0);
        if let Ok(timeout) = scheduled {
            assert_eq!(timeout.status() == Status::Fired, fired.get() == 1);
            assert_eq!(timeout.status() == Status::Stopped, returned == 1);
        }
    });
}

#[test]
fn no_task_runs_after_stop_has_returned() {
    race(TWO, |Race { timer, due, .. }| {
        let (task, running, ended) = watched(false);
        timer.schedule_at(due, task).unwrap();
        let returned = timer.stop().unwrap().len();
        assert_eq!((ended.get() + returned, running.load(SeqCst)), (1, 0));
    });
}

#[test]
fn stopped_by_two_threads_each_returns_when_all_is_over() {
    race(THREE, |Race { timer, due, fired, .. }| {
        timer.schedule_at(due, fired.task()).unwrap();
        let stop = |timer: &Timer, fired: &Count| {
            let returned = timer.stop().unwrap().len();
            assert_eq!(timer.pending(), 0);
            (returned, fired.get())
        };
        let (other, count) = (timer.clone(), fired.clone());
        let (here, there) = both(|| stop(&timer, &fired), move || stop(&other, &count));
        let ((returned, seen), (returned_there, seen_there)) = (here, there);
        assert_eq!(returned + returned_there + fired.get(), 1);
        assert_eq!((seen, seen_there), (fired.get(), fired.get()));
    });
}

#[test]
fn dropping_the_last_handle_waits_and_ends_the_thread() {
    race(THREE, |Race { timer, due, fired, .. }| {
        let timeout = timer.schedule_at(due, fired.task()).unwrap();
        let other = timer.clone();
        both(|| drop(timer), move || drop(other));
        assert_eq!(timeout.status() == Status::Fired, fired.get() == 1);
        assert_eq!(timeout.status() == Status::Stopped, fired.get() == 0);
    });
}

#[test]
fn dropping_the_last_handle_inside_a_task_ends_the_thread() {
    race(TWO, |Race { timer, due, far, fired }| {
        let waiting = timer.schedule_at(far, || unreachable!()).unwrap();
        let last = timer.clone();
        let count = fired.clone();
        timer
            .schedule_at(due, move || {
                assert!(last.stop().is_err());
                drop(last);
                count.add();
            })
            .unwrap();
        drop(timer);
        // It may have been dropped with the timer, before it could run.
        let _ = waiting.status();
    });
}

#[test]
fn scheduled_inside_a_task_it_fires() {
    race(TWO, |Race { timer, due, far, fired }| {
        timer.schedule_at(far, || unreachable!()).unwrap();
        let (inner, task) = (timer.clone(), fired.task());
        timer.schedule_at(due, move || inner.schedule_at(due, task).map(drop).unwrap()).unwrap();
        fired.wait_for(1);
    });
}

#[test]
fn repeating_and_cancelled_as_it_runs_it_runs_no_more() {
    race(TWO, |Race { timer, fired, .. }| {
        let timeout = repeating(&timer, MissedTick::Burst, &fired);
        assert!(timeout.cancel() && !timeout.cancel());
        assert!(timer.stop().unwrap().is_empty());
        assert_eq!(timeout.status(), Status::Cancelled);
        assert!(fired.get() <= 1);
    });
}

#[test]
fn repeating_and_stopped_as_it_runs_it_comes_back_once() {
    race(TWO, |Race { timer, fired, .. }| {
        let timeout = repeating(&timer, MissedTick::Delay, &fired);
        assert_eq!(timer.stop().unwrap().len(), 1);
        assert_eq!(timeout.status(), Status::Stopped);
        assert!(fired.get() <= 1);
    });
}

#[test]
fn the_clock_stops_at_the_earliest_of_all_shards() {
    explore(THREE, || {
        let clock = ManualClock::new();
        let timer = Timer::builder().shards(2).clock(clock.clone()).build().expect("in range");
        let (start, late) = (clock.now(), Count::new());
        let schedule = |millis| {
            let (clock, late, due) = (clock.clone(), late.clone(), start + MILLI * millis);
            let task = move || {
                if clock.now() != due {
                    late.add()
                }
            };
            timer.schedule_at(due, task).unwrap();
        };
        schedule(1);
        let (other, in_between) = (timer.clone(), start + MILLI * 3);
        thread::spawn(move || drop(other.schedule_at(in_between, || {}).unwrap())).join().unwrap();
        schedule(2);
        clock.advance(MILLI * 3);
        assert_eq!((late.get(), timer.pending()), (0, 0));
    });
}

#[test]
fn the_clock_advances_when_all_that_was_due_has_fired() {
    manual_race(TWO, |clock, [timer], fired| {
        timer.schedule(MILLI * 2, fired.task()).unwrap();
        for runs in [0, 1] {
            clock.advance(MILLI);
            assert_eq!(fired.get(), runs);
        }
    });
}

/// Moves when it is told, and then tells the worker, without waiting for it.
#[derive(Clone)]
struct Moved(Arc<(Instant, Mutex<Duration>, Mutex<Option<Follower>>)>);

impl Moved {
    /// With a timer of one shard.
    fn with_timer() -> (Self, Timer) {
        Self::with_timer_of(|builder| builder)
    }

    fn with_timer_of(with: impl Fn(TimerBuilder) -> TimerBuilder) -> (Self, Timer) {
        let state = (Instant::now(), Mutex::new(Duration::ZERO), Mutex::new(None));
        let clock = Self(Arc::new(state));
        let builder = Timer::builder().shards(1).clock(clock.clone());
        (clock, with(builder).build().expect("in range"))
    }

    fn at(&self, millis: u64) -> Instant {
        self.0.0 + Duration::from_millis(millis)
    }

    /// Moves to `millis` milliseconds after the start.
    fn move_to(&self, millis: u64) {
        *self.0.1.lock().unwrap() = Duration::from_millis(millis);
        self.0.2.lock().unwrap().as_ref().expect("it has a timer").tell();
    }
}

impl Clock for Moved {
    fn now(&self) -> Instant {
        self.0.0 + *self.0.1.lock().unwrap()
    }

    fn wait(&self, _: Duration) -> Option<Duration> {
        None
    }

    fn follow(&self, follower: Follower) {
        *self.0.2.lock().unwrap() = Some(follower);
    }
}

/// A task that counts how often it is woken.
struct Woken(Count);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.add();
    }
}

struct Task {
    woken: Arc<Woken>,
    waker: Waker,
}

impl Task {
    fn new() -> Self {
        let woken = Arc::new(Woken(Count::new()));
        Self { waker: Waker::from(Arc::clone(&woken)), woken }
    }

    fn poll<F: Future + Unpin>(&self, future: &mut F) -> Poll<F::Output> {
        Pin::new(future).poll(&mut Context::from_waker(&self.waker))
    }

    /// Polls, and after each wake-up again, until it is complete.
    fn run<F: Future + Unpin>(&self, future: &mut F) -> F::Output {
        loop {
            let woken = self.woken.0.get();
            match self.poll(future) {
                Poll::Ready(output) => return output,
                Poll::Pending => self.woken.0.wait_for(woken + 1),
            }
        }
    }

    /// Polls a driver, and after each wake-up again, until one timeout has fired.
    fn drive<F: Future + Unpin>(&self, driver: &mut F, fired: &Count) {
        while fired.get() == 0 {
            let woken = self.woken.0.get();
            assert!(self.poll(driver).is_pending());
            if fired.get() == 0 {
                self.woken.0.wait_for(woken + 1);
            }
        }
    }

    /// Polls, and after each wake-up again, until a value comes or the channel is over.
    fn receive<T>(&self, receiver: &mut DelayReceiver<T>) -> Option<T> {
        self.wait(|context| receiver.poll_expired(context))
            .map(|due| due.expect("the timer runs").value)
    }

    /// The same, of a map.
    fn receive_of_map(&self, receiver: &mut ExpiredReceiver<u32, u32>) -> Option<u32> {
        self.wait(|context| receiver.poll_expired(context))
            .map(|due| due.expect("the timer runs").value)
    }

    fn wait<R>(&self, mut poll: impl FnMut(&mut Context<'_>) -> Poll<R>) -> R {
        loop {
            let woken = self.woken.0.get();
            match poll(&mut Context::from_waker(&self.waker)) {
                Poll::Ready(output) => return output,
                Poll::Pending => self.woken.0.wait_for(woken + 1),
            }
        }
    }

    /// How often its waker exists elsewhere.
    fn wakers(&self) -> usize {
        Arc::strong_count(&self.woken) - 2
    }
}

#[test]
fn a_sleep_is_polled_as_it_is_woken() {
    sleep_race(TWO, |clock, _, task, mut sleep| {
        clock.move_to(1);
        assert_eq!(task.run(&mut sleep), Ok(()));
    });
}

#[test]
fn a_sleep_is_polled_by_another_task_as_it_is_woken() {
    sleep_race(TWO, |clock, timer, _, mut sleep| {
        clock.move_to(1);
        // From here on no task polls it because the first was woken.
        let second = Task::new();
        assert_eq!(second.run(&mut sleep), Ok(()));
        assert!(timer.stop().unwrap().is_empty());
        assert_eq!(second.wakers(), 0);
    });
}

#[test]
fn a_sleep_is_registered_as_the_worker_falls_asleep() {
    explore(THREE, || {
        let (clock, timer) = Moved::with_timer();
        timer.schedule_at(clock.at(9), || unreachable!()).unwrap();
        let (task, mut sleep) = (Task::new(), timer.sleep_until(clock.at(1)));
        let moving = clock.clone();
        assert_eq!(both(|| task.run(&mut sleep), move || moving.move_to(1)).0, Ok(()));
    });
}

#[test]
fn a_sleep_is_moved_later_as_it_is_woken() {
    sleep_race(TWO, |clock, _, task, mut sleep| {
        clock.move_to(1);
        sleep.reset_at(clock.at(2));
        assert!(task.poll(&mut sleep).is_pending());
        clock.move_to(2);
        assert_eq!(task.run(&mut sleep), Ok(()));
    });
}

/// It was polled before, and so the task is woken, whichever comes first.
#[test]
fn a_sleep_is_moved_earlier_as_it_is_woken() {
    sleep_race(TWO, |clock, _, task, mut sleep| {
        clock.move_to(1);
        sleep.reset_at(clock.at(0));
        task.woken.0.wait_for(1);
        assert_eq!(task.run(&mut sleep), Ok(()));
    });
}

#[test]
fn a_sleep_is_moved_earlier_as_the_worker_falls_asleep() {
    sleep_race(TWO, |clock, _, task, mut sleep| {
        sleep.reset_at(clock.at(0));
        task.woken.0.wait_for(1);
        assert_eq!(task.run(&mut sleep), Ok(()));
    });
}

#[test]
fn a_sleep_is_dropped_as_it_is_woken() {
    sleep_race(TWO, |clock, timer, task, sleep| {
        clock.move_to(1);
        drop(sleep);
        assert_eq!(timer.pending(), 0);
        assert!(timer.stop().unwrap().is_empty());
        assert!(task.woken.0.get() <= 1);
    });
}

#[test]
fn a_sleep_is_polled_as_the_timer_is_stopped() {
    explore(THREE, || {
        let ((clock, timer), task) = (Moved::with_timer(), Task::new());
        let mut sleep = timer.sleep_until(clock.at(1));
        let output = both(|| task.run(&mut sleep), move || timer.stop().unwrap().len());
        assert_eq!(output, (Err(ScheduleErrorKind::Stopped), 0));
        assert_eq!(task.wakers(), 0);
    });
}

#[test]
fn a_sleep_is_woken_as_the_timer_is_stopped() {
    for with in [|builder| builder, TimerBuilder::wakes_together] {
        explore(TWO, move || {
            let ((clock, timer), task) = (Moved::with_timer_of(with), Task::new());
            let mut sleep = timer.sleep_until(clock.at(1));
            assert!(task.poll(&mut sleep).is_pending());
            clock.move_to(1);
            drop(timer);
            // Its time has come or the timer was stopped, but it knows which.
            let output = task.run(&mut sleep);
            assert_eq!(task.run(&mut sleep), output);
            assert_eq!((task.woken.0.get(), task.wakers()), (1, 0));
        });
    }
}

type BoxedTask = Box<dyn FnOnce() + Send>;

/// Keeps the tasks of an executor for the model to run.
#[derive(Clone)]
struct Kept(Arc<Mutex<Vec<BoxedTask>>>, Count);

impl Kept {
    fn new() -> Self {
        Self(Arc::new(Mutex::new(Vec::new())), Count::new())
    }

    /// A timer with this executor.
    fn timer(&self, now: Instant) -> Timer {
        let kept = self.clone();
        let executor = move |task| kept.push(task);
        Timer::builder().shards(1).clock(Still(now)).executor(executor).build().unwrap()
    }

    fn push(&self, task: BoxedTask) {
        self.0.lock().unwrap().push(task);
        self.1.add();
    }

    /// Waits for the first task.
    fn take(&self) -> BoxedTask {
        self.1.wait_for(1);
        self.0.lock().unwrap().pop().expect("it has one")
    }
}

/// Explores a model with a repeating timeout whose run an executor has.
fn handed_over(model: impl Fn(Timer, Timeout, BoxedTask, Count) + Send + Sync + 'static) {
    explore(TWO, move || {
        let (kept, fired) = (Kept::new(), Count::new());
        let timer = kept.timer(Instant::now());
        let timeout = repeating(&timer, MissedTick::Delay, &fired);
        model(timer, timeout, kept.take(), fired);
    });
}

#[test]
fn repeating_elsewhere_and_stopped_it_has_fired_or_comes_back() {
    handed_over(|timer, timeout, run, fired| {
        let stop = || (timer.stop().unwrap().len(), timeout.status());
        let ((returned, status), ()) = both(stop, run);
        // The next run may have been in the wheel when the timer was stopped.
        let expected = if returned == 1 { Status::Stopped } else { Status::Fired };
        assert_eq!((returned <= 1, status), (true, expected), "as stop returns");
        let told = (timeout.status(), timeout.cancel(), timeout.reschedule(Duration::ZERO));
        assert_eq!((told, fired.get()), ((expected, false, false), 1));
    });
}

#[test]
fn repeating_elsewhere_and_shed_as_it_is_cancelled_it_has_one_end() {
    handed_over(|timer, timeout, run, fired| {
        let (cancelled, ()) = both(|| timeout.cancel(), move || drop(run));
        assert!(cancelled && timeout.status() == Status::Cancelled);
        assert!(timer.stop().unwrap().is_empty());
        assert_eq!(fired.get(), 0);
    });
}

/// The task that it sheds holds the last handle.
#[test]
fn shedding_the_last_handle_does_not_wait_for_the_worker() {
    explore(TWO, || {
        let room = Arc::new((Mutex::new(true), Condvar::new()));
        let (kept, rooms) = (Kept::new(), Arc::clone(&room));
        let keeps = kept.clone();
        // With room for one.
        let executor = move |task| {
            let mut room = rooms.0.lock().unwrap();
            while !*room {
                room = rooms.1.wait(room).unwrap();
            }
            *room = false;
            keeps.push(task);
        };
        let now = Instant::now();
        let builder = Timer::builder().shards(1).clock(Still(now)).executor(executor);
        let timer = builder.build().unwrap();
        let last = timer.clone();
        timer.schedule_at(now, move || drop(last)).unwrap();
        let second = timer.schedule_at(now, || {}).unwrap();
        kept.1.wait_for(1);
        drop(timer);
        drop(kept.take());
        *room.0.lock().unwrap() = true;
        room.1.notify_all();
        assert!(matches!(second.status(), Status::Fired | Status::Stopped));
    });
}

/// Both tasks may run at once, and then each stops the other's timer.
#[test]
fn tasks_of_two_timers_that_stop_each_other_do_not_wait_for_ever() {
    explore(2, || {
        let now = Instant::now();
        let build = || Timer::builder().shards(1).clock(Still(now)).build().unwrap();
        let (first, second) = (build(), build());
        let ended = Count::new();
        for (own, other) in [(&first, &second), (&second, &first)] {
            let (other, ended) = (other.clone(), ended.clone());
            let task = move || {
                let _ = other.stop();
                // The other task may be dropped unrun, by the stop of its timer.
                ended.add();
            };
            let _ = own.schedule_at(now, task);
        }
        ended.wait_for(1);
    });
}

/// A task of the second timer schedules on the first one, which has answered already, or is told
/// where it sleeps, and has not woken up yet.
#[test]
fn the_clock_waits_for_what_another_timers_task_schedules() {
    for sleeps in [false, true] {
        manual_race(2, move |clock, [first, second], fired| {
            let due = clock.now() + MILLI;
            if sleeps {
                first.schedule_at(due + Duration::from_secs(1), || unreachable!()).unwrap();
            }
            let (other, task) = (first.clone(), fired.task());
            second.schedule_at(due, move || drop(other.schedule_at(due, task).unwrap())).unwrap();
            if sleeps {
                clock.jump(MILLI);
            } else {
                clock.advance(MILLI);
            }
            assert_eq!(fired.get(), 1);
        });
    }
}

/// A task that cannot wait for its own timer tells another one.
#[test]
fn a_clock_moved_inside_a_task_tells_the_other_timer() {
    manual_race(2, |clock, [told], fired| {
        let still = Still(Instant::now());
        let moving = Timer::builder().shards(1).clock(still).build().unwrap();
        told.schedule(MILLI, fired.task()).unwrap();
        moving.schedule(Duration::ZERO, move || clock.advance(MILLI)).unwrap();
        fired.wait_for(1);
    });
}

/// A task on a thread of the executor moves the clock on, to where another thread wants it.
#[test]
fn a_clock_that_a_task_moves_on_is_there_when_all_that_was_due_has_fired() {
    explore(THREE, || {
        let (clock, kept) = (ManualClock::new(), Kept::new());
        let tasks = kept.clone();
        let builder = Timer::builder().shards(1).clock(clock.clone());
        let timer = builder.executor(move |task| tasks.push(task)).build().unwrap();
        let moved = clock.clone();
        timer.schedule(Duration::ZERO, move || moved.advance(MILLI)).unwrap();
        let due = timer.schedule(MILLI, || {}).unwrap();
        let here = || {
            clock.advance(MILLI);
            assert_eq!(due.status(), Status::Fired);
        };
        both(here, kept.take());
    });
}

/// A task that tells whether it runs at this moment, and how often it has ended.
fn watched(panics: bool) -> (impl FnMut() + Send + 'static, Arc<AtomicUsize>, Count) {
    let (running, ended) = (Arc::new(AtomicUsize::new(0)), Count::new());
    let (runs, counts) = (Arc::clone(&running), ended.clone());
    let task = move || {
        runs.store(1, SeqCst);
        counts.add();
        runs.store(0, SeqCst);
        if panics {
            std::panic::resume_unwind(Box::new("as it was meant to be"));
        }
    };
    (task, running, ended)
}

/// Cancels and waits, as a thread or as a task of async code, and then looks: nothing runs, and
/// nothing will.
fn nothing_runs_after(
    timeout: &Timeout,
    awaits: bool,
    running: &AtomicUsize,
    ended: &Count,
) -> (bool, usize) {
    let is_cancelled = match awaits {
        true => Task::new().run(&mut pin!(timeout.cancel_and_wait_async())).unwrap(),
        false => timeout.cancel_and_wait().unwrap(),
    };
    assert_eq!(running.load(SeqCst), 0, "it runs after cancel_and_wait has returned");
    (is_cancelled, ended.get())
}

#[test]
fn cancelled_and_waited_for_as_it_runs_it_is_not_running() {
    for (panics, awaits) in [(false, false), (true, false), (false, true), (true, true)] {
        race(TWO, move |Race { timer, due, .. }| {
            let (task, running, ended) = watched(panics);
            let timeout = timer.schedule_at(due, task).unwrap();
            let (is_cancelled, before) = nothing_runs_after(&timeout, awaits, &running, &ended);
            assert_eq!(before, usize::from(!is_cancelled));
            timer.stop().unwrap();
            assert_eq!(ended.get(), before);
        });
    }
}

#[test]
fn repeating_and_waited_for_as_it_runs_it_is_not_running() {
    for (panics, awaits) in [(false, false), (true, false), (false, true), (true, true)] {
        race(TWO, move |Race { timer, .. }| {
            let (mut task, running, ended) = watched(panics);
            let next = move |_: &Run| {
                task();
                Next::After(Duration::from_secs(1))
            };
            let timeout = timer.schedule_with(Duration::ZERO, next).unwrap();
            let (is_cancelled, before) = nothing_runs_after(&timeout, awaits, &running, &ended);
            assert!(is_cancelled || panics);
            assert!(timer.stop().unwrap().is_empty());
            assert_eq!(ended.get(), before);
        });
    }
}

#[test]
fn elsewhere_and_waited_for_as_it_runs_it_is_not_running() {
    for (sheds, awaits) in [(false, false), (true, false), (false, true), (true, true)] {
        explore(TWO, move || {
            let (kept, now) = (Kept::new(), Instant::now());
            let timer = kept.timer(now);
            let (task, running, ended) = watched(false);
            let timeout = timer.schedule_at(now, task).unwrap();
            let elsewhere = move || {
                let task = kept.take();
                if !sheds {
                    task();
                }
            };
            // Cancelled, the timeout is never handed over.
            let cancels = thread::spawn(elsewhere);
            let (is_cancelled, before) = nothing_runs_after(&timeout, awaits, &running, &ended);
            if is_cancelled {
                timer.schedule_at(now, || {}).unwrap();
            }
            cancels.join().unwrap();
            assert_eq!(before, usize::from(!is_cancelled && !sheds));
            assert_eq!(ended.get(), before);
        });
    }
}

#[test]
fn two_threads_wait_for_the_same_run() {
    race(THREE, |Race { timer, due, .. }| {
        let (task, running, ended) = watched(false);
        let timeout = timer.schedule_at(due, task).unwrap();
        let (other, runs, ends) = (timeout.clone(), Arc::clone(&running), ended.clone());
        let (here, there) = both(
            || nothing_runs_after(&timeout, false, &running, &ended),
            move || nothing_runs_after(&other, true, &runs, &ends),
        );
        assert!(!(here.0 && there.0));
        assert_eq!(ended.get(), usize::from(!here.0 && !there.0));
    });
}

#[test]
fn cloned_as_it_is_cancelled_the_clone_tells_its_end() {
    race(TWO, |Race { timer, far, .. }| {
        let timeout = Arc::new(timer.schedule_at(far, || unreachable!()).unwrap());
        let handle = Arc::clone(&timeout);
        let (clone, is_cancelled) = both(|| timeout.as_ref().clone(), move || handle.cancel());
        assert!(is_cancelled);
        let told = [&clone, &*timeout, &clone.clone()].map(Timeout::status);
        assert_eq!(told, [Status::Cancelled; 3]);
    });
}

/// Something to capture that says when it has been dropped. Another thread may run before that.
struct SlowDrop(Count);

impl Drop for SlowDrop {
    fn drop(&mut self) {
        thread::yield_now();
        self.0.add();
    }
}

#[test]
fn cancelled_by_one_thread_it_has_been_dropped_when_another_has_waited() {
    race(TWO, |Race { timer, far, .. }| {
        let dropped = Count::new();
        let captured = SlowDrop(dropped.clone());
        let timeout = Arc::new(timer.schedule_at(far, move || drop(captured)).unwrap());
        let handle = Arc::clone(&timeout);
        let waits = || (timeout.cancel_and_wait().unwrap(), dropped.get());
        let ((won, found), other_won) = both(waits, move || handle.cancel());
        assert_eq!((won, found), (!other_won, 1));
    });
}

#[test]
fn cancelled_by_one_thread_it_has_been_dropped_when_a_task_has_awaited_that() {
    race(TWO, |Race { timer, far, .. }| {
        let dropped = Count::new();
        let captured = SlowDrop(dropped.clone());
        let timeout = Arc::new(timer.schedule_at(far, move || drop(captured)).unwrap());
        let handle = Arc::clone(&timeout);
        let awaits = || {
            let won = Task::new().run(&mut pin!(timeout.cancel_and_wait_async()));
            (won.unwrap(), dropped.get())
        };
        let ((won, found), other_won) = both(awaits, move || handle.cancel());
        assert_eq!((won, found), (!other_won, 1));
    });
}

#[test]
fn cancelled_as_it_is_cloned_it_has_been_dropped_when_the_clone_has_waited() {
    race(TWO, |Race { timer, far, .. }| {
        let dropped = Count::new();
        let captured = SlowDrop(dropped.clone());
        let timeout = Arc::new(timer.schedule_at(far, move || drop(captured)).unwrap());
        let handle = Arc::clone(&timeout);
        let waits = || (timeout.as_ref().clone().cancel_and_wait().unwrap(), dropped.get());
        let ((won, found), other_won) = both(waits, move || handle.cancel());
        assert_eq!((won, found), (!other_won, 1));
    });
}

#[test]
fn repeating_and_cancelled_by_one_thread_it_has_been_dropped_when_another_has_waited() {
    race(TWO, |Race { timer, .. }| {
        let dropped = Count::new();
        let captured = SlowDrop(dropped.clone());
        let task = move || {
            let _captured = &captured;
            ControlFlow::Continue(())
        };
        let hour = Duration::from_secs(3_600);
        let timeout = timer.schedule_repeating(hour, MissedTick::Skip, task).unwrap();
        let (timeout, handle) = (Arc::new(timeout.clone()), timeout);
        let waits = || (timeout.cancel_and_wait().unwrap(), dropped.get());
        let ((won, found), other_won) = both(waits, move || handle.cancel());
        assert_eq!((won, found), (!other_won, 1));
    });
}

#[test]
fn cloned_as_it_is_moved_the_clone_tells_its_deadline() {
    race(TWO, |Race { timer, far, .. }| {
        let timeout = Arc::new(timer.schedule_at(far, || unreachable!()).unwrap());
        let (handle, later) = (Arc::clone(&timeout), far + Duration::from_secs(1));
        let (clone, is_moved) =
            both(|| timeout.as_ref().clone(), move || handle.reschedule_at(later));
        assert!(is_moved);
        assert_eq!((clone.deadline(), timeout.deadline()), (Some(later), Some(later)));
    });
}

/// Two timeouts that are due, so that the worker may take out both and run one.
fn two_due(race: &Race) -> [Timeout; 2] {
    [(); 2].map(|()| race.timer.schedule_at(race.due, race.fired.task()).unwrap())
}

#[test]
fn cancelled_behind_a_task_it_has_one_end() {
    race(TWO, |race| {
        let [_, second] = two_due(&race);
        let is_cancelled = second.cancel();
        assert_eq!(is_cancelled, second.status() == Status::Cancelled);
        race.fired.wait_for(2 - usize::from(is_cancelled));
        race.timer.stop().unwrap();
        assert_eq!(race.fired.get(), 2 - usize::from(is_cancelled));
    });
}

#[test]
fn moved_behind_a_task_it_fires_or_waits_and_its_handle_finds_it() {
    race(TWO, |race| {
        let [_, second] = two_due(&race);
        let is_moved = second.reschedule_at(race.far);
        race.fired.wait_for(2 - usize::from(is_moved));
        assert_eq!((second.status() == Status::Pending, second.cancel()), (is_moved, is_moved));
        assert_eq!(second.status() == Status::Cancelled, is_moved);
    });
}

#[test]
fn moved_behind_a_task_by_one_handle_the_other_finds_it() {
    race(THREE, |race| {
        let [_, second] = two_due(&race);
        let (clone, far) = (second.clone(), race.far);
        let (is_moved, is_cancelled) = both(|| second.reschedule_at(far), move || clone.cancel());
        let fired = usize::from(!is_cancelled && !is_moved) + 1;
        race.fired.wait_for(fired);
        assert_eq!(second.status() == Status::Pending, is_moved && !is_cancelled);
        assert_eq!(race.timer.stop().unwrap().len(), usize::from(is_moved && !is_cancelled));
    });
}

#[test]
fn stopped_behind_a_task_it_fires_or_comes_back() {
    race(TWO, |race| {
        let timeouts = two_due(&race);
        let unfired = race.timer.stop().unwrap().len();
        assert_eq!((race.fired.get() + unfired, race.timer.pending()), (2, 0));
        let stopped = timeouts.iter().filter(|timeout| timeout.status() == Status::Stopped).count();
        assert_eq!(stopped, unfired);
    });
}

#[test]
fn behind_a_task_that_panics_it_fires() {
    race(TWO, |Race { timer, due, fired, .. }| {
        let panics = || std::panic::resume_unwind(Box::new("as it was meant to be"));
        timer.schedule_at(due, panics).unwrap();
        let second = timer.schedule_at(due, fired.task()).unwrap();
        fired.wait_for(1);
        assert_eq!(second.status(), Status::Fired);
        timer.stop().unwrap();
        assert_eq!(timer.stats().panics, 1);
    });
}

/// Explores a model with a channel whose receiver is on one thread, and a sender on another.
fn channel_race<T: Send + 'static>(
    model: impl Fn(Race, DelaySender<T>, DelayReceiver<T>) + Send + Sync + 'static,
) {
    race(THREE, move |race| {
        let (sender, receiver) = delay_channel(&race.timer);
        model(race, sender, receiver);
    });
}

#[test]
fn inserted_as_the_receiver_falls_asleep_it_comes() {
    channel_race(|Race { due, far, .. }, sender, mut receiver| {
        sender.insert_at("far", far).unwrap();
        let here = || Task::new().receive(&mut receiver);
        let there = move || assert!(sender.insert_at("due", due).is_ok());
        assert_eq!(both(here, there).0, Some("due"));
        assert_eq!(receiver.len(), 1);
    });
}

#[test]
fn inserted_as_the_receiver_of_an_empty_channel_falls_asleep_it_comes() {
    channel_race(|Race { due, .. }, sender, mut receiver| {
        let (task, kept) = (Task::new(), sender.clone());
        let there = move || assert!(sender.insert_at(1, due).is_ok());
        assert_eq!(both(|| task.receive(&mut receiver), there).0, Some(1));
        drop(kept);
        assert_eq!(task.receive(&mut receiver), None);
    });
}

#[test]
fn moved_earlier_as_the_receiver_falls_asleep_it_comes() {
    channel_race(|Race { due, far, .. }, sender, mut receiver| {
        let key = sender.insert_at(1, far).unwrap();
        let here = || Task::new().receive(&mut receiver);
        assert_eq!(both(here, move || assert!(sender.reset_at(key, due))).0, Some(1));
    });
}

#[test]
fn the_last_sender_goes_as_the_receiver_falls_asleep() {
    channel_race(|_, sender: DelaySender<()>, mut receiver| {
        let other = sender.clone();
        let here = || {
            drop(sender);
            Task::new().receive(&mut receiver)
        };
        assert_eq!(both(here, move || drop(other)).0, None);
    });
}

#[test]
fn removed_as_it_comes_out_it_comes_once() {
    channel_race(|Race { due, .. }, sender, mut receiver| {
        let key = sender.insert_at(1, due).unwrap();
        let here = || Task::new().receive(&mut receiver);
        let (came, removed) = both(here, move || sender.remove(key));
        assert_eq!((came.is_some(), removed.is_some()), (removed.is_none(), came.is_none()));
    });
}

#[test]
fn the_receiver_goes_as_a_sender_inserts() {
    channel_race(|Race { far, .. }, sender, mut receiver| {
        let (task, value) = (Task::new(), Arc::new(()));
        assert!(receiver.poll_expired(&mut Context::from_waker(&task.waker)).is_pending());
        let (inserted, kept) = (Arc::clone(&value), sender.clone());
        let there = move || drop(sender.insert_at(inserted, far));
        both(|| drop(receiver), there);
        // It was dropped with the receiver or it came back, though a sender is left.
        assert_eq!((Arc::strong_count(&value), task.wakers()), (1, 0));
        assert!(kept.is_closed());
    });
}

/// Explores a model with a channel of two shards, one for this thread and one for another.
fn sharded_race<T: Send + 'static>(
    model: impl Fn(Race, DelaySender<T>, DelayReceiver<T>) + Send + Sync + 'static,
) {
    race_of(
        THREE,
        |builder| builder.shards(2),
        move |race| {
            let (sender, receiver) = delay_channel(&race.timer);
            model(race, sender, receiver);
        },
    );
}

#[test]
fn inserted_in_another_shard_as_the_receiver_falls_asleep_it_comes() {
    sharded_race(|Race { due, far, .. }, sender, mut receiver| {
        sender.insert_at("far", far).unwrap();
        let here = || Task::new().receive(&mut receiver);
        let there = move || assert!(sender.insert_at("due", due).is_ok());
        assert_eq!(both(here, there).0, Some("due"));
        assert_eq!(receiver.len(), 1);
    });
}

#[test]
fn inserted_in_two_shards_as_the_receiver_falls_asleep_both_come() {
    sharded_race(|Race { due, .. }, sender, mut receiver| {
        let other = sender.clone();
        let there = move || assert!(other.insert_at(2, due).is_ok());
        let here = || {
            assert!(sender.insert_at(1, due).is_ok());
            drop(sender);
            let task = Task::new();
            let come: Vec<_> = std::iter::from_fn(|| task.receive(&mut receiver)).collect();
            assert_eq!((come.len(), come.iter().sum::<u32>()), (2, 3));
        };
        both(here, there);
    });
}

/// The second goes into a shard of which the first is being told.
#[test]
fn two_inserted_in_one_shard_as_the_receiver_falls_asleep_both_come() {
    channel_race(|Race { due, .. }, sender, mut receiver| {
        let other = sender.clone();
        let there = move || assert!(other.insert_at(2, due).is_ok());
        let here = || {
            assert!(sender.insert_at(1, due).is_ok());
            drop(sender);
            let task = Task::new();
            std::iter::from_fn(|| task.receive(&mut receiver)).count()
        };
        assert_eq!(both(here, there).0, 2);
    });
}

#[test]
fn one_of_two_receivers_gets_it_and_both_end() {
    channel_race(|Race { due, .. }, sender, mut receiver| {
        let mut other = receiver.clone();
        sender.insert_at((), due).unwrap();
        drop(sender);
        let receive = |receiver: &mut DelayReceiver<()>| {
            let task = Task::new();
            std::iter::from_fn(|| task.receive(receiver)).count()
        };
        let (here, there) = both(|| receive(&mut receiver), move || receive(&mut other));
        assert_eq!(here + there, 1);
    });
}

#[test]
fn the_last_value_is_taken_and_the_last_sender_goes_and_the_other_receiver_ends() {
    channel_race(|Race { due, .. }, sender, mut receiver| {
        let mut other = receiver.clone();
        sender.insert_at((), due).unwrap();
        let here = || {
            let task = Task::new();
            std::iter::from_fn(|| task.receive(&mut receiver)).count()
        };
        let there = move || {
            drop(sender);
            usize::from(Task::new().receive(&mut other).is_some())
        };
        let (here, there) = both(here, there);
        assert_eq!(here + there, 1);
    });
}

#[test]
fn closed_as_the_receiver_falls_asleep_it_ends() {
    channel_race(|_, sender: DelaySender<()>, mut receiver| {
        let kept = sender.clone();
        let here = || Task::new().receive(&mut receiver);
        assert_eq!(both(here, move || sender.close()).0, None);
        assert!(kept.is_closed());
    });
}

#[test]
fn closed_as_a_sender_inserts_the_value_comes_or_comes_back() {
    sharded_race(|Race { due, .. }, sender, mut receiver| {
        let other = sender.clone();
        let here = || {
            sender.close();
            let task = Task::new();
            std::iter::from_fn(|| task.receive(&mut receiver)).count()
        };
        let (come, taken) = both(here, move || other.insert_at(1, due).is_ok());
        assert_eq!(come, usize::from(taken));
    });
}

#[test]
fn the_last_value_is_removed_and_the_channel_closed_and_the_receiver_ends() {
    channel_race(|Race { far, .. }, sender, mut receiver| {
        let (other, key) = (sender.clone(), sender.insert_at((), far).unwrap());
        let task = Task::new();
        assert!(receiver.poll_expired(&mut Context::from_waker(&task.waker)).is_pending());
        let here = || sender.remove(key).is_some();
        assert_eq!(both(here, move || other.close()), (true, ()));
        // One of the two has seen that it is over, or both.
        assert!(0 < task.woken.0.get());
        assert_eq!(task.receive(&mut receiver), None);
    });
}

#[test]
fn the_last_value_is_taken_and_the_channel_closed_and_the_other_receiver_ends() {
    channel_race(|Race { due, .. }, sender, mut receiver| {
        let mut other = receiver.clone();
        sender.insert_at((), due).unwrap();
        let here = || {
            let task = Task::new();
            std::iter::from_fn(|| task.receive(&mut receiver)).count()
        };
        let kept = sender.clone();
        let there = move || {
            sender.close();
            usize::from(Task::new().receive(&mut other).is_some())
        };
        let (here, there) = both(here, there);
        assert_eq!((here + there, kept.len()), (1, 0));
    });
}

#[test]
fn a_receiver_that_was_to_be_woken_goes_and_the_other_one_gets_it() {
    channel_race(|Race { due, .. }, sender, mut receiver| {
        let (mut other, task) = (receiver.clone(), Task::new());
        assert!(other.poll_expired(&mut Context::from_waker(&task.waker)).is_pending());
        let there = move || {
            assert!(sender.insert_at(1, due).is_ok());
            drop(other);
        };
        assert_eq!(both(|| Task::new().receive(&mut receiver), there).0, Some(1));
        assert_eq!(task.wakers(), 0);
    });
}

#[test]
fn asked_as_it_is_closed_a_channel_that_says_so_takes_nothing() {
    sharded_race(|Race { far, .. }, sender, receiver| {
        let other = sender.clone();
        // This thread has the first shard, and the thread that inserts has the other one.
        sender.insert_at(1, far).unwrap();
        let here = || {
            if sender.is_closed() {
                let inserts = move || assert!(sender.insert_at(2, far).is_err());
                thread::spawn(inserts).join().unwrap();
            }
        };
        both(here, move || other.close());
        assert_eq!(receiver.len(), 1);
    });
}

#[test]
fn asked_as_its_last_receiver_goes_a_channel_that_says_so_takes_nothing() {
    sharded_race(|Race { far, .. }, sender, receiver| {
        sender.insert_at(1, far).unwrap();
        let here = || {
            if sender.is_closed() {
                let inserts = move || assert!(sender.insert_at(2, far).is_err());
                thread::spawn(inserts).join().unwrap();
            }
        };
        both(here, move || drop(receiver));
    });
}

/// One thread takes the last place, and the other finds the expired value.
#[test]
fn stored_in_a_map_by_two_threads_an_expired_value_makes_room() {
    driven(TWO, |Race { timer, due, far, .. }, _driver, _| {
        let map = ExpiringMap::builder().shards(1).max_len(2).build(&timer);
        map.insert_at(1, 1, due).unwrap();
        let other = map.clone();
        let here = || map.insert_at(2, 2, far).is_ok();
        let there = move || other.insert_at(3, 3, far).is_ok();
        assert_eq!(both(here, there), (true, true));
        assert_eq!((map.get(&2), map.get(&3), map.len()), (Some(2), Some(3), 2));
    });
}

/// A map of one shard, whose hook counts.
fn counted_map(Race { timer, fired, .. }: &Race) -> ExpiringMap<u32, u32> {
    let count = fired.clone();
    ExpiringMap::builder().shards(1).on_expired(move |_| count.add()).build(timer)
}

/// Explores a model with a map whose hook counts, and stops the timer in the end.
fn map_race(
    switches: usize,
    model: impl Fn(&Race, &ExpiringMap<u32, u32>) + Send + Sync + 'static,
) {
    race(switches, move |race| {
        let map = counted_map(&race);
        model(&race, &map);
        assert!(race.timer.stop().unwrap().is_empty());
    });
}

#[test]
fn stored_in_a_map_as_the_worker_looks_it_expires() {
    map_race(TWO, |Race { due, far, fired, .. }, map| {
        map.insert_at(1, 1, *due).unwrap();
        map.insert_at(2, 2, *far).unwrap();
        map.insert_at(3, 3, *due).unwrap();
        fired.wait_for(2);
        assert_eq!((map.len(), map.get(&2)), (1, Some(2)));
    });
}

#[test]
fn stored_in_a_map_by_two_threads_both_expire() {
    map_race(TWO_CALLERS, |Race { due, fired, .. }, map| {
        let (other, due) = (map.clone(), *due);
        both(|| map.insert_at(2, 2, due).unwrap(), move || other.insert_at(3, 3, due).unwrap());
        fired.wait_for(2);
        assert_eq!(map.len(), 0);
    });
}

#[test]
fn stored_in_a_map_as_another_thread_tells_of_a_later_one_it_expires() {
    map_race(TWO_CALLERS, |Race { due, far, fired, .. }, map| {
        let (other, far) = (map.clone(), *far);
        both(|| map.insert_at(2, 2, *due).unwrap(), move || other.insert_at(3, 3, far).unwrap());
        fired.wait_for(1);
        assert_eq!(map.len(), 1);
    });
}

/// Explores a model with a map and its receiver, and stops the timer in the end.
fn received_race(
    model: impl Fn(Race, ExpiringMap<u32, u32>, ExpiredReceiver<u32, u32>) + Send + Sync + 'static,
) {
    race(TWO, move |race| {
        let (map, receiver) = ExpiringMap::builder().shards(1).build_with_receiver(&race.timer);
        let timer = race.timer.clone();
        model(race, map, receiver);
        assert!(timer.stop().unwrap().is_empty());
    });
}

#[test]
fn handed_over_by_the_worker_as_a_receiver_of_a_map_falls_asleep_it_comes() {
    received_race(|Race { due, far, .. }, map, mut receiver| {
        map.insert_at(1, 1, due).unwrap();
        map.insert_at(2, 2, far).unwrap();
        assert_eq!(Task::new().receive_of_map(&mut receiver), Some(1));
        assert_eq!((map.len(), receiver.len()), (1, 0));
    });
}

#[test]
fn a_map_is_dropped_as_the_worker_looks_and_its_receiver_ends() {
    received_race(|Race { due, far, .. }, map, mut receiver| {
        map.insert_at(1, 1, due).unwrap();
        map.insert_at(2, 2, far).unwrap();
        drop(map);
        let task = Task::new();
        let last = task.receive_of_map(&mut receiver);
        assert!(last.is_none() || last == Some(1) && task.receive_of_map(&mut receiver).is_none());
    });
}

#[test]
fn the_receiver_of_a_map_is_dropped_as_the_worker_hands_over() {
    received_race(|Race { due, .. }, map, receiver| {
        map.insert_at(1, 1, due).unwrap();
        drop(receiver);
        // The next one is dropped by the worker, or found by the call after it.
        map.insert_at(2, 2, due).unwrap();
        assert_eq!((map.get(&1), map.get(&2)), (None, None));
    });
}

#[test]
fn moved_earlier_in_a_map_as_the_worker_looks_it_expires() {
    map_race(TWO, |Race { due, far, fired, .. }, map| {
        map.insert_at(1, 1, *far).unwrap();
        assert!(map.reset_at(&1, *due));
        fired.wait_for(1);
        assert_eq!(map.len(), 0);
    });
}

/// Explores a call on a map, whose only value expires meanwhile. The call returns whether the value
/// was there, and how many values there are then.
fn as_it_expires(
    call: impl Fn(&Moved, &ExpiringMap<u32, u32>) -> (bool, usize) + Send + Sync + 'static,
) {
    explore(TWO_CALLERS, move || {
        let ((clock, timer), count) = (Moved::with_timer(), Count::new());
        let hook = count.clone();
        let map = ExpiringMap::builder().shards(1).on_expired(move |_| hook.add()).build(&timer);
        map.insert_at(0, 0, clock.at(1)).unwrap();
        let moving = clock.clone();
        let ((was_there, left), ()) = both(|| call(&clock, &map), move || moving.move_to(1));
        let expired = usize::from(!was_there);
        count.wait_for(expired);
        assert!(timer.stop().unwrap().is_empty());
        assert_eq!((count.get(), map.len()), (expired, left));
    });
}

#[test]
fn removed_from_a_map_as_it_expires_it_has_one_end() {
    as_it_expires(|_, map| (map.remove(&0).is_some(), 0));
}

#[test]
fn replaced_in_a_map_as_it_expires_it_has_one_end() {
    as_it_expires(|clock, map| (map.insert_at(0, 7, clock.at(9)).unwrap().is_some(), 1));
}

#[test]
fn prolonged_in_a_map_as_it_expires_it_stays_or_is_gone() {
    as_it_expires(|clock, map| {
        let is_there = map.reset_at(&0, clock.at(9));
        assert_eq!(map.get(&0), is_there.then_some(0));
        (is_there, usize::from(is_there))
    });
}

#[test]
fn stored_in_a_map_as_the_timer_is_stopped_it_stays_or_expires() {
    race(TWO_CALLERS, |race| {
        let map = counted_map(&race);
        let (other, due) = (map.clone(), race.due);
        let here = || assert!(race.timer.stop().unwrap().is_empty());
        both(here, move || other.insert_at(1, 1, due).unwrap());
        assert_eq!((map.len() + race.fired.get(), map.get(&1)), (1, None));
        assert_eq!(race.timer.pending(), 0, "the map leaves nothing in it");
    });
}

#[test]
fn a_map_is_dropped_as_the_worker_looks() {
    race(TWO, |race| {
        let map = counted_map(&race);
        map.insert_at(1, 1, race.due).unwrap();
        map.insert_at(2, 2, race.far).unwrap();
        drop(map);
        assert!(race.timer.stop().unwrap().is_empty());
        assert!(race.fired.get() <= 1);
    });
}

/// Explores a model with a timer and its driver, as with [`race`]. The count is of calls of the
/// driver's hook.
fn driven(switches: usize, model: impl Fn(Race, Driver, Count) + Send + Sync + 'static) {
    explore(switches, move || {
        let now = Instant::now();
        let builder = Timer::builder().clock(Still(now)).shards(1);
        let (timer, mut driver) = builder.build_driven().expect("in range");
        let told = Count::new();
        let count = told.clone();
        driver.on_wake(move |_| count.add());
        let far = now + Duration::from_secs(1);
        model(Race { timer, due: now, far, fired: Count::new() }, driver, told);
    });
}

/// Takes turns, one after each call of the hook, until so many timeouts have fired.
fn turns(driver: &mut Driver, due: Instant, told: &Count, fired: &Count, count: usize) {
    while fired.get() < count {
        let before = told.get();
        let next = driver.turn();
        if fired.get() < count && next.is_none_or(|next| due < next) {
            told.wait_for(before + 1);
        }
    }
}

#[test]
fn scheduled_as_a_driver_lies_down_it_fires() {
    driven(TWO, |Race { timer, due, far, fired }, mut driver, told| {
        timer.schedule_at(far, || unreachable!()).unwrap();
        let (other, task) = (timer.clone(), fired.task());
        let here = || turns(&mut driver, due, &told, &fired, 1);
        both(here, move || drop(other.schedule_at(due, task).unwrap()));
    });
}

#[test]
fn told_twice_as_a_driver_lies_down_its_hook_knows_the_earlier() {
    driven(THREE, |Race { timer, far, .. }, mut driver, _| {
        // Nothing of it is modelled: no thread is interrupted while it holds the lock.
        let told = Arc::new(std::sync::Mutex::new(far));
        let earliest = Arc::clone(&told);
        driver.on_wake(move |at| {
            let mut earliest = earliest.lock().unwrap();
            *earliest = at.min(*earliest);
        });
        let [soon, sooner] = [1, 2].map(|ticks| far - Duration::from_millis(ticks));
        timer.schedule_at(far, || unreachable!()).unwrap();
        driver.turn();
        let other = timer.clone();
        let schedule = move |at| drop(other.schedule_at(at, || unreachable!()).unwrap());
        let twice = move || {
            schedule(soon);
            schedule(sooner);
        };
        let (next, ()) = both(|| driver.turn(), twice);
        assert!(next.is_some_and(|next| next.min(*told.lock().unwrap()) <= sooner));
    });
}

#[test]
fn stopped_as_a_driver_turns_no_task_runs_after_that() {
    driven(TWO, |Race { timer, due, .. }, mut driver, _| {
        let (task, running, ended) = watched(false);
        timer.schedule_at(due, task).unwrap();
        let stop = move || (timer.stop().unwrap().len(), ended.get(), running.load(SeqCst));
        let (_, (returned, ended, running)) = both(|| driver.turn(), stop);
        assert_eq!((returned + ended, running), (1, 0));
        assert_eq!(driver.turn(), None);
    });
}

#[test]
fn repeating_and_stopped_as_a_driver_turns_it_comes_back_once() {
    driven(TWO, |Race { timer, fired, .. }, mut driver, _| {
        let timeout = repeating(&timer, MissedTick::Delay, &fired);
        let (_, returned) = both(|| driver.turn(), move || timer.stop().unwrap().len());
        assert_eq!((returned, timeout.status()), (1, Status::Stopped));
        assert!(fired.get() <= 1);
    });
}

#[test]
fn a_driver_is_dropped_as_a_timeout_is_scheduled() {
    driven(THREE, |Race { timer, far, .. }, driver, _| {
        let dropped = Arc::new(());
        let captured = Arc::clone(&dropped);
        let schedule = || timer.schedule_at(far, move || drop(captured));
        let (scheduled, ()) = both(schedule, move || drop(driver));
        match scheduled {
            Ok(timeout) => assert_eq!(timeout.status(), Status::Stopped),
            Err(error) => assert_eq!(error.kind(), ScheduleErrorKind::Stopped),
        }
        assert_eq!((timer.pending(), Arc::strong_count(&dropped)), (0, 1));
    });
}

#[test]
fn a_driver_and_the_last_handle_are_dropped_at_once() {
    driven(THREE, |Race { timer, far, fired, .. }, driver, _| {
        let timeout = timer.schedule_at(far, fired.task()).unwrap();
        both(|| drop(timer), move || drop(driver));
        assert_eq!((timeout.status(), fired.get()), (Status::Stopped, 0));
    });
}

#[test]
fn a_sleep_is_polled_as_a_driver_wakes_it() {
    driven(TWO, |Race { timer, due, .. }, mut driver, told| {
        let (task, mut sleep) = (Task::new(), timer.sleep_until(due));
        let woken = task.woken.0.clone();
        let turn = move || {
            // Once for the sleep at the most: it may find itself due, and tell nobody.
            driver.turn();
            drop((driver, told, woken));
        };
        let (output, ()) = both(|| task.run(&mut sleep), turn);
        // Its driver was dropped before the time had come, or it had come.
        assert!(matches!(output, Ok(()) | Err(ScheduleErrorKind::Stopped)));
        assert_eq!(task.wakers(), 0);
    });
}

#[test]
fn a_driver_turns_on_one_thread_and_then_on_another() {
    driven(THREE, |Race { timer, due, far, fired }, mut driver, told| {
        timer.schedule_at(far, || unreachable!()).unwrap();
        let (other, task) = (timer.clone(), fired.task());
        let scheduling = thread::spawn(move || drop(other.schedule_at(due, task).unwrap()));
        let mut driver = thread::spawn(move || {
            driver.turn();
            driver
        })
        .join()
        .unwrap();
        turns(&mut driver, due, &told, &fired, 1);
        scheduling.join().unwrap();
        assert_eq!(timer.pending(), 1);
    });
}

#[test]
fn told_by_two_threads_as_a_driver_rests_its_hook_knows_the_earlier() {
    driven(THREE, |Race { timer, far, .. }, mut driver, _| {
        // As above.
        let told = Arc::new(std::sync::Mutex::new(far));
        let earliest = Arc::clone(&told);
        driver.on_wake(move |at| {
            // A place where the other thread may come in.
            thread::yield_now();
            let mut earliest = earliest.lock().unwrap();
            *earliest = at.min(*earliest);
        });
        timer.schedule_at(far, || unreachable!()).unwrap();
        driver.turn();
        let schedule = |timer: Timer, micros| {
            let at = far - Duration::from_micros(micros);
            move || drop(timer.schedule_at(at, || unreachable!()).unwrap())
        };
        both(schedule(timer.clone(), 2_000), schedule(timer.clone(), 1_000));
        assert_eq!(*told.lock().unwrap(), far - Duration::from_micros(2_000));
    });
}

#[test]
fn replaced_as_a_driver_is_told_the_old_hook_knows() {
    driven(THREE, |Race { timer, due, far, fired }, mut driver, told| {
        timer.schedule_at(far, || unreachable!()).unwrap();
        driver.turn();
        let (other, task) = (timer.clone(), fired.task());
        let here = || {
            let count = told.clone();
            driver.on_wake(move |_| count.add());
            // The old hook is there until the next turn ends.
            told.wait_for(1);
            turns(&mut driver, due, &told, &fired, 1);
        };
        both(here, move || drop(other.schedule_at(due, task).unwrap()));
        assert_eq!(timer.pending(), 1);
    });
}

#[test]
fn a_driver_is_dropped_as_its_timer_is_stopped() {
    driven(THREE, |Race { timer, far, .. }, driver, _| {
        let dropped = Arc::new(());
        let captured = Arc::clone(&dropped);
        let timeout = timer.schedule_at(far, move || drop(captured)).unwrap();
        let (stopped, other) = (timer.clone(), timer.clone());
        let drops = move || {
            drop(driver);
            other.is_stopped()
        };
        let (unfired, is_stopped) = both(move || stopped.stop().unwrap(), drops);
        assert!(is_stopped, "or about to be: the drop waits for no other thread");
        assert!(unfired.len() <= 1, "it comes back once");
        drop(unfired);
        assert_eq!((timer.pending(), timeout.status()), (0, Status::Stopped));
        assert_eq!(Arc::strong_count(&dropped), 1, "nobody keeps it");
    });
}

#[test]
fn stopped_as_a_driver_hands_over_it_has_one_end() {
    explore(THREE, || {
        let (now, kept, fired) = (Instant::now(), Kept::new(), Count::new());
        let tasks = kept.clone();
        let builder = Timer::builder().clock(Still(now)).shards(1);
        let builder = builder.executor(move |task| tasks.push(task));
        let (timer, mut driver) = builder.build_driven().expect("in range");
        let timeout = timer.schedule_at(now, fired.task()).unwrap();
        let (_, returned) = both(|| driver.turn(), move || timer.stop().unwrap().len());
        let handed_over = std::mem::take(&mut *kept.0.lock().unwrap());
        assert_eq!(handed_over.len(), kept.1.get(), "nobody else took it");
        handed_over.into_iter().for_each(|task| task());
        let expected = if returned == 1 { Status::Stopped } else { Status::Fired };
        assert_eq!((returned + fired.get(), timeout.status()), (1, expected));
    });
}

/// Explores a model with a timer and its driver, which a task polls.
fn running(switches: usize, model: impl Fn(Race, Running, Task) + Send + Sync + 'static) {
    driven(switches, move |race, driver, _| {
        race.timer.schedule_at(race.far, || {}).unwrap();
        // Nothing but a wake-up ends its sleeps.
        model(race, Box::pin(driver.run(|_| pending::<()>())), Task::new());
    });
}

type Running = Pin<Box<dyn Future<Output = ()> + Send>>;

#[test]
fn scheduled_as_a_driver_in_a_task_lies_down_it_fires() {
    running(TWO, |Race { timer, due, fired, .. }, mut driver, task| {
        let (other, counts) = (timer.clone(), fired.task());
        let schedule = move || drop(other.schedule_at(due, counts).unwrap());
        both(|| task.drive(&mut driver, &fired), schedule);
        drop(driver);
        assert_eq!((timer.pending(), task.wakers()), (0, 0));
    });
}

#[test]
fn a_clock_moves_as_a_driver_in_a_task_lies_down_and_it_fires() {
    explore(TWO, || {
        let (clock, fired, task) = (ManualClock::new(), Count::new(), Task::new());
        let builder = Timer::builder().clock(clock.clone()).shards(1);
        let (timer, driver) = builder.build_driven().expect("in range");
        timer.schedule(MILLI, fired.task()).unwrap();
        // As above.
        let mut driver: Running = Box::pin(driver.run(|_| pending::<()>()));
        both(|| task.drive(&mut driver, &fired), move || clock.advance(2 * MILLI));
        drop(driver);
        assert_eq!((timer.pending(), task.wakers()), (0, 0));
    });
}

#[test]
fn stopped_as_a_driver_in_a_task_lies_down_the_driver_ends() {
    running(TWO, |Race { timer, .. }, mut driver, task| {
        let (_, unfired) = both(|| task.run(&mut driver), move || timer.stop().unwrap().len());
        assert_eq!((unfired, task.wakers()), (1, 0));
    });
}

#[test]
fn a_driver_in_a_task_is_dropped_as_it_is_told() {
    running(THREE, |Race { timer, due, fired, .. }, mut driver, task| {
        assert!(task.poll(&mut driver).is_pending());
        let (other, counts) = (timer.clone(), fired.task());
        let schedule = move || other.schedule_at(due, counts).is_ok();
        both(|| drop(driver), schedule);
        assert_eq!((timer.pending(), fired.get(), task.wakers()), (0, 0, 0));
    });
}

#[test]
fn a_driver_moves_to_another_task_as_it_is_told() {
    running(THREE, |Race { timer, due, fired, .. }, mut driver, first| {
        let (other, counts) = (timer.clone(), fired.task());
        let scheduling = thread::spawn(move || drop(other.schedule_at(due, counts).unwrap()));
        assert!(first.poll(&mut driver).is_pending());
        let (mut driver, second) = thread::spawn(move || {
            let second = Task::new();
            assert!(second.poll(&mut driver).is_pending());
            (driver, second)
        })
        .join()
        .unwrap();
        second.drive(&mut driver, &fired);
        scheduling.join().unwrap();
        drop(driver);
        assert_eq!((first.wakers(), second.wakers()), (0, 0));
    });
}

const MILLI: Duration = Duration::from_millis(1);

/// The most switches where the worker races with one thread, and with two: as many as end within
/// seconds.
const TWO: usize = 4;
const THREE: usize = 3;
/// The same where two threads call a map, which takes several locks.
const TWO_CALLERS: usize = 2;
