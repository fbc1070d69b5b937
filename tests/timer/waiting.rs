//! Which thread may wait for which timer: `stop`, `drop` and the manual clock, called from inside
//! tasks of this timer, of others, and of several at once.

use crate::help::{Count, ms, returns, wait_until};
use crate::zoo::clocks::OddClock;
use crate::zoo::threads::drop_at_end;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex, OnceLock, mpsc};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};
use tickwheel::{
    DelayQueue, DelayReceiver, DelaySender, ManualClock, MissedTick, Next, Run, ScheduleErrorKind,
    Status, StopError, Timeout, Timer, delay_channel,
};

type BoxedTask = Box<dyn FnOnce() + Send>;

fn with_executor(executor: impl Fn(BoxedTask) + Send + Sync + 'static) -> Timer {
    Timer::builder().executor(executor).build().expect("in range")
}

/// A timer whose tasks run as tasks of `outer`.
fn inside_of(outer: &Timer) -> Timer {
    let outer = outer.clone();
    with_executor(move |task| drop(outer.schedule(Duration::ZERO, task)))
}

/// The innermost timer is not the only one that the thread is inside of.
#[test]
fn a_task_of_a_nested_timer_is_inside_the_outer_one_too() {
    returns("stopping the outer timer from inside of the inner one", || {
        let outer = Timer::new();
        let inner = inside_of(&outer);
        let (sender, receiver) = mpsc::channel();
        let stopped = outer.clone();
        inner.schedule(Duration::ZERO, move || sender.send(stopped.stop()).unwrap()).unwrap();
        assert!(receiver.recv().unwrap().is_err());
        assert!(!outer.is_stopped());
        let fired = Count::default();
        outer.schedule(Duration::ZERO, fired.task()).unwrap();
        wait_until(|| fired.get() == 1);
        drop(inner);
        outer.stop().expect("outside");
    });
}

#[test]
fn a_task_of_a_nested_timer_drops_the_last_handle_of_the_outer_one() {
    returns("dropping the outer timer from inside of the inner one", || {
        let outer = Timer::builder().thread_name("outer-of-two").build().expect("in range");
        let ended = Count::default();
        let count = ended.clone();
        let inner = with_executor({
            let outer = outer.clone();
            let last = Mutex::new(Some(outer.clone()));
            move |task| {
                let last = last.lock().unwrap().take();
                let task = move || {
                    task();
                    drop(last);
                };
                drop(outer.schedule(Duration::ZERO, task));
            }
        });
        drop(outer);
        let own = inner.clone();
        let task = move || {
            // With it go the executor, and the outer timer.
            drop(own);
            count.add();
        };
        inner.schedule(ms(1), task).unwrap();
        drop(inner);
        wait_until(|| ended.get() == 1);
    });
}

/// Both tasks run, and each stops the other's timer: one has to give way.
#[test]
fn tasks_of_two_timers_stop_each_other() {
    tasks_stop_the_next_timer(2);
}

#[test]
fn tasks_of_five_timers_stop_each_other_in_a_ring() {
    tasks_stop_the_next_timer(5);
}

fn tasks_stop_the_next_timer(number: usize) {
    returns("stopping each other", move || {
        let timers: Vec<_> = (0..number).map(|_| Timer::new()).collect();
        let all_run = Arc::new(Barrier::new(number));
        let (sender, receiver) = mpsc::channel::<Result<usize, StopError>>();
        for (own, timer) in timers.iter().enumerate() {
            let (all_run, sender) = (Arc::clone(&all_run), sender.clone());
            let next = timers[(own + 1) % number].clone();
            let task = move || {
                all_run.wait();
                sender.send(next.stop().map(|unfired| unfired.len())).unwrap();
            };
            timer.schedule(Duration::ZERO, task).unwrap();
        }
        drop(sender);
        let results: Vec<_> = receiver.iter().take(number).collect();
        let errors = results.iter().filter(|result| result.is_err()).count();
        assert_eq!((results.len(), errors), (number, 1));
        for timer in timers {
            timer.stop().expect("outside");
        }
    });
}

#[test]
fn a_wait_that_is_over_is_in_nobodys_way() {
    returns("waiting in turns", || {
        let timers = [Timer::new(), Timer::new()];
        for (waits, other) in [(0, 1), (1, 0), (0, 1)] {
            let mut queue = DelayQueue::with_timer(&timers[other]);
            queue.insert((), ms(20));
            let (sender, receiver) = mpsc::channel();
            let task = move || {
                let due = queue.recv().map(|due| due.map(|due| due.value));
                sender.send(due).unwrap();
            };
            timers[waits].schedule(Duration::ZERO, task).unwrap();
            assert_eq!(receiver.recv(), Ok(Some(Ok(()))));
        }
    });
}

/// The other timer's worker may wait for the thread that this task takes up.
#[test]
fn inside_a_task_on_an_executor_no_timer_with_an_executor_is_waited_for() {
    returns("stopping a timer of the same executor", || {
        let (sender, receiver) = mpsc::sync_channel::<BoxedTask>(0);
        let build = || {
            let sender = sender.clone();
            with_executor(move |task| drop(sender.send(task)))
        };
        let (first, second) = (build(), build());
        drop(sender);
        thread::spawn(move || receiver.into_iter().for_each(|task| task()));
        let (answers, answer) = mpsc::channel();
        let other = second.clone();
        let task = move || {
            // The other's worker waits for room that this task takes up.
            wait_until(|| other.pending() == 0);
            thread::sleep(ms(20));
            answers.send(other.stop().is_err()).unwrap();
        };
        second.schedule(ms(20), || {}).unwrap();
        first.schedule(Duration::ZERO, task).unwrap();
        assert!(answer.recv().unwrap());
        assert!(second.stop().is_ok() && first.stop().is_ok());
    });
}

struct StopsAtExit(Timer, mpsc::Sender<bool>);

impl Drop for StopsAtExit {
    fn drop(&mut self) {
        wait_until(|| self.0.is_stopped());
        self.1.send(self.0.stop().is_err()).unwrap();
    }
}

/// The worker's thread is still the worker when its thread-local values are dropped.
#[test]
fn a_destructor_of_the_workers_thread_stops_the_timer() {
    returns("a thread-local destructor", || {
        let timer = Timer::new();
        let (answers, answer) = mpsc::channel();
        let at_exit = StopsAtExit(timer.clone(), answers);
        let (sender, receiver) = mpsc::channel();
        let task = move || {
            drop_at_end(at_exit);
            sender.send(()).unwrap();
        };
        timer.schedule(Duration::ZERO, task).unwrap();
        receiver.recv().unwrap();
        timer.stop().expect("outside");
        assert!(answer.recv().unwrap());
    });
}

/// The tasks of an executor, which are dropped when a call has stopped the timer or was refused.
struct StopsBehind(
    #[expect(dead_code, reason = "it keeps them")] mpsc::Receiver<BoxedTask>,
    Timer,
    Timeout,
    mpsc::Sender<(bool, bool)>,
);

impl Drop for StopsBehind {
    fn drop(&mut self) {
        let Self(_, timer, behind, answers) = self;
        wait_until(|| behind.status() == Status::Fired);
        answers.send((behind.cancel_and_wait().is_err(), timer.stop().is_err())).unwrap();
    }
}

/// The value is older than the first task that the thread ran, and so it is dropped last.
#[test]
fn a_destructor_of_an_executors_thread_waits_for_no_task_of_it() {
    returns("a thread-local destructor of an executor's thread", || {
        let (sender, receiver) = mpsc::sync_channel::<BoxedTask>(0);
        let timer = with_executor(move |task| drop(sender.send(task)));
        let (answers, answer) = mpsc::channel();
        let runs = Count::default();
        timer.schedule(Duration::ZERO, runs.task()).unwrap();
        let behind = timer.schedule(ms(5), || {}).unwrap();
        let (stops, waits) = (timer.clone(), behind.clone());
        let thread = thread::spawn(move || {
            let task = receiver.recv().unwrap();
            drop_at_end(StopsBehind(receiver, stops, waits, answers));
            task();
        });
        assert_eq!(answer.recv().unwrap(), (true, true));
        thread.join().unwrap();
        assert_eq!((runs.get(), behind.status()), (1, Status::Fired));
        timer.stop().expect("outside");
    });
}

/// It holds up the task below it on the stack, as that task's own calls do.
#[test]
fn a_job_that_a_pool_runs_on_a_tasks_stack_is_inside_that_task() {
    returns("a job on a task's stack", || {
        let pool = Arc::new(rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap());
        let clock = ManualClock::new();
        let executor = Arc::clone(&pool);
        let timer = Timer::builder()
            .clock(clock.clone())
            .executor(move |task: BoxedTask| executor.spawn(task))
            .build()
            .expect("in range");
        let (runs, is_queued) = (Count::default(), Count::default());
        let (count, queued) = (runs.clone(), is_queued.clone());
        let task = move || {
            count.add();
            wait_until(|| queued.get() == 1);
            while rayon::yield_now() == Some(rayon::Yield::Executed) {}
        };
        let timeout = timer.schedule(ms(1), task).unwrap();
        clock.advance(ms(1));
        wait_until(|| runs.get() == 1);
        let (sender, receiver) = mpsc::channel();
        let stopped = timer.clone();
        let job = move || {
            clock.advance(ms(10));
            sender.send(stopped.stop().is_err()).unwrap();
        };
        pool.spawn(job);
        is_queued.add();
        assert!(receiver.recv().unwrap());
        assert_eq!(timeout.status(), Status::Fired);
        assert!(timer.stop().is_ok());
    });
}

/// The task that the executor drops may hold the last handle, while the worker waits for room.
#[test]
fn an_executor_that_sheds_drops_the_last_handle() {
    returns("shedding the last handle", || {
        let (sender, receiver) = mpsc::sync_channel::<BoxedTask>(0);
        let timer = with_executor(move |task| drop(sender.send(task)));
        let (last, fired) = (timer.clone(), Count::default());
        timer.schedule(Duration::ZERO, move || drop(last)).unwrap();
        let second = timer.schedule(ms(5), fired.task()).unwrap();
        drop(timer);
        let shed = receiver.recv().unwrap();
        // The worker waits for room for the second one.
        wait_until(|| second.status() == Status::Fired);
        thread::sleep(ms(20));
        drop(shed);
        receiver.recv().unwrap()();
        assert_eq!(fired.get(), 1);
    });
}

/// The same for one that repeats.
#[test]
fn an_executor_that_sheds_drops_a_cancelled_run_with_the_last_handle() {
    returns("shedding the last handle", || {
        let (sender, receiver) = mpsc::sync_channel::<BoxedTask>(0);
        let timer = with_executor(move |task| drop(sender.send(task)));
        let (last, fired) = (timer.clone(), Count::default());
        let mut last = Some(last);
        let repeating = timer
            .schedule_repeating(ms(1), MissedTick::Delay, move || {
                drop(last.take());
                std::ops::ControlFlow::Break(())
            })
            .unwrap();
        let second = timer.schedule(ms(10), fired.task()).unwrap();
        drop(timer);
        let run = receiver.recv().unwrap();
        wait_until(|| second.status() == Status::Fired);
        thread::sleep(ms(20));
        run();
        receiver.recv().unwrap()();
        assert_eq!(fired.get(), 1);
        assert_eq!(repeating.status(), Status::Fired);
    });
}

/// A task waits for what is queued behind it: by an executor that runs tasks inside of its timer.
#[test]
fn inside_a_task_nothing_of_a_timer_with_an_executor_is_waited_for() {
    returns("waiting for what is queued behind the task", || {
        let outer = Timer::new();
        let inner = inside_of(&outer);
        let ((tell, told), (answers, answer)) = (mpsc::channel::<Timeout>(), mpsc::channel());
        let stopped = inner.clone();
        let task = move || {
            let behind = told.recv().unwrap();
            wait_until(|| behind.status() == Status::Fired);
            answers.send((behind.cancel_and_wait(), stopped.stop().is_err())).unwrap();
        };
        outer.schedule(Duration::ZERO, task).unwrap();
        tell.send(inner.schedule(Duration::ZERO, || {}).unwrap()).unwrap();
        assert!(matches!(answer.recv().unwrap(), (Err(_), true)));
    });
}

/// Waits for a timeout when it is dropped, and says whether that was refused.
struct WaitsAsDropped(mpsc::Receiver<Timeout>, mpsc::Sender<bool>);

impl Drop for WaitsAsDropped {
    fn drop(&mut self) {
        self.1.send(self.0.recv().unwrap().cancel_and_wait().is_err()).unwrap();
    }
}

/// The task that it waits for is the next that the same thread drops.
#[test]
fn what_the_last_handle_drops_waits_for_no_task_of_an_executor() {
    is_refused_where_tasks_are_dropped(drop);
}

#[test]
fn what_a_stopped_timer_gave_back_waits_for_no_task_of_an_executor() {
    is_refused_where_tasks_are_dropped(|outer| drop(outer.stop().expect("outside")));
}

fn is_refused_where_tasks_are_dropped(drop_tasks: fn(Timer)) {
    returns("waiting for a task that is dropped next", move || {
        let clock = ManualClock::new();
        let outer = Timer::builder().clock(clock.clone()).build().expect("in range");
        // Amid a tick, so that nothing is due.
        clock.advance(Duration::from_nanos(1));
        let inner = inside_of(&outer);
        let ((tell, told), (answers, answer)) = (mpsc::channel(), mpsc::channel());
        let captured = WaitsAsDropped(told, answers);
        outer.schedule(Duration::ZERO, move || drop(captured)).unwrap();
        tell.send(inner.schedule(Duration::ZERO, || {}).unwrap()).unwrap();
        wait_until(|| outer.pending() == 2);
        drop_tasks(outer);
        drop(inner);
        assert!(answer.recv().unwrap());
    });
}

/// It is inside of no task, but the task that it waits for is queued behind it.
#[test]
fn a_job_on_the_executors_only_thread_waits_for_no_task_of_it() {
    returns("waiting in a job for a task of the same pool", || {
        let (jobs, receiver) = mpsc::channel::<BoxedTask>();
        thread::spawn(move || receiver.into_iter().for_each(|job| job()));
        let tasks = jobs.clone();
        let timer = with_executor(move |task| drop(tasks.send(task)));
        let first = Count::default();
        timer.schedule(Duration::ZERO, first.task()).unwrap();
        wait_until(|| first.get() == 1);
        let ((tell, told), (answers, answer)) = (mpsc::channel::<Timeout>(), mpsc::channel());
        let stopped = timer.clone();
        let job = move || {
            let behind = told.recv().unwrap();
            wait_until(|| behind.status() == Status::Fired);
            answers.send((behind.cancel_and_wait(), stopped.stop().is_err())).unwrap();
        };
        jobs.send(Box::new(job)).unwrap();
        tell.send(timer.schedule(Duration::ZERO, || {}).unwrap()).unwrap();
        assert!(matches!(answer.recv().unwrap(), (Err(_), true)));
        assert!(timer.stop().unwrap().is_empty());
    });
}

/// A task of the first waits to stop the third, and a task of that waits for the second.
#[test]
fn three_timers_of_which_two_share_a_thread_do_not_wait_for_each_other() {
    returns("three timers", || {
        let (jobs, receiver) = mpsc::channel::<BoxedTask>();
        thread::spawn(move || receiver.into_iter().for_each(|job| job()));
        let build = || {
            let tasks = jobs.clone();
            with_executor(move |task| drop(tasks.send(task)))
        };
        let (first, second, third) = (build(), build(), Timer::new());
        let ((tell, told), (answers, answer)) = (mpsc::channel::<Timeout>(), mpsc::channel());
        let (stops, stopped) = (third.clone(), mpsc::channel());
        let (begins, begun) = mpsc::channel();
        first
            .schedule(Duration::ZERO, move || {
                begun.recv().unwrap();
                stopped.0.send(stops.stop().is_ok()).unwrap();
            })
            .unwrap();
        let waits = move || {
            begins.send(()).unwrap();
            let behind = told.recv().unwrap();
            wait_until(|| behind.status() == Status::Fired);
            answers.send(behind.cancel_and_wait()).unwrap();
        };
        third.schedule(Duration::ZERO, waits).unwrap();
        // By then the first's task has the only thread, and waits.
        wait_until(|| third.is_stopped());
        tell.send(second.schedule(Duration::ZERO, || {}).unwrap()).unwrap();
        assert!(answer.recv().unwrap().is_err());
        assert!(stopped.1.recv().unwrap());
    });
}

/// Wakes slowly, and stops the timer meanwhile.
struct SlowWaker(Timer, Mutex<mpsc::Sender<()>>, Count, Count);

impl Wake for SlowWaker {
    fn wake(self: Arc<Self>) {
        self.1.lock().unwrap().send(()).unwrap();
        if self.0.stop().is_err() {
            self.2.add();
        }
        thread::sleep(ms(30));
        self.3.add();
    }
}

#[test]
fn a_second_stop_returns_when_what_waited_has_been_woken() {
    returns("stopping twice", || {
        let timer = Timer::new();
        let (begun, has_begun) = mpsc::channel();
        let (refused, woken) = (Count::default(), Count::default());
        let waker = SlowWaker(timer.clone(), Mutex::new(begun), refused.clone(), woken.clone());
        let mut sleep = timer.sleep(Duration::from_secs(3_600));
        let mut context = Context::from_waker(Box::leak(Box::new(Waker::from(Arc::new(waker)))));
        assert!(Pin::new(&mut sleep).poll(&mut context).is_pending());
        let first = timer.clone();
        let first = thread::spawn(move || first.stop().expect("outside").len());
        has_begun.recv().unwrap();
        assert!(timer.stop().expect("outside").is_empty());
        assert_eq!((refused.get(), woken.get()), (1, 1));
        assert_eq!(first.join().unwrap(), 0);
    });
}

/// Something to capture whose drop takes a while, and waits for its own timeout.
struct SlowDrop(Arc<OnceLock<Timeout>>, mpsc::Sender<()>, Count, Count);

impl Drop for SlowDrop {
    fn drop(&mut self) {
        self.1.send(()).unwrap();
        if self.0.get().is_some_and(|own| own.cancel_and_wait().is_err()) {
            self.2.add();
        }
        thread::sleep(ms(30));
        self.3.add();
    }
}

#[test]
fn what_another_thread_cancelled_has_been_dropped_when_cancel_and_wait_returns() {
    for (repeats, clones) in [(false, false), (false, true), (true, false), (true, true)] {
        returns("waiting for what another thread drops", move || {
            let (timer, own) = (Timer::new(), Arc::new(OnceLock::new()));
            let (begun, has_begun) = mpsc::channel();
            let (refused, dropped) = (Count::default(), Count::default());
            let captured = SlowDrop(Arc::clone(&own), begun, refused.clone(), dropped.clone());
            let hour = Duration::from_secs(3_600);
            let timeout = match repeats {
                false => timer.schedule(hour, move || drop(captured)).unwrap(),
                true => {
                    let task = move |_: &Run| {
                        let _captured = &captured;
                        Next::Stop
                    };
                    timer.schedule_with(hour, task).unwrap()
                }
            };
            let timeout = Arc::new(timeout);
            let cancels = if clones { Arc::new((*timeout).clone()) } else { Arc::clone(&timeout) };
            let cancelling = thread::spawn(move || cancels.cancel());
            has_begun.recv().unwrap();
            // A clone that is made meanwhile waits too.
            let waits = if clones { timeout.clone() } else { Arc::new((*timeout).clone()) };
            assert!(!waits.cancel_and_wait().expect("outside"));
            assert_eq!((dropped.get(), timeout.status()), (1, Status::Cancelled));
            assert!(cancelling.join().unwrap());

            // In the drop itself it is an error.
            let (again, _begun) = mpsc::channel();
            let captured = SlowDrop(Arc::clone(&own), again, refused.clone(), dropped.clone());
            let timeout = timer.schedule(hour, move || drop(captured)).unwrap();
            assert!(own.set(timeout.clone()).is_ok());
            assert!(timeout.cancel());
            assert_eq!((refused.get(), dropped.get()), (1, 2));
        });
    }
}

/// Each worker waits for a value that the other is to wake it for.
#[test]
fn of_two_workers_that_wait_for_values_of_each_other_one_is_refused() {
    returns("waiting for each other's values", || {
        let timers = [Timer::new(), Timer::new()];
        let [first, second] = [&timers[0], &timers[1]].map(delay_channel::<()>);
        let barrier = Arc::new(Barrier::new(2));
        let (results, result) = mpsc::channel();
        let pairs = [(first.0, second.1), (second.0, first.1)];
        for (timer, (sender, mut receiver)) in timers.iter().zip(pairs) {
            let (results, barrier) = (results.clone(), Arc::clone(&barrier));
            let task = move || {
                barrier.wait();
                let received = receiver.recv().map(|due| due.map(|due| due.value));
                // First, or the other may tell what it received before this one tells anything.
                results.send(received).unwrap();
                // The other waits for what is in this timer, once this task has ended.
                _ = sender.insert((), Duration::ZERO);
            };
            timer.schedule(Duration::ZERO, task).unwrap();
        }
        let received: Vec<_> = result.iter().take(2).collect();
        assert_eq!(received, [Some(Err(ScheduleErrorKind::Deadlock)), Some(Ok(()))]);
    });
}

/// Receives when it is dropped, or woken, and says how that ended.
struct Receives(Mutex<Option<Receiving>>);

/// From where, where to say that it begins, and where to say how it ended.
type Receiving = (DelayReceiver<u32>, mpsc::Sender<()>, mpsc::Sender<Received>);

type Received = Option<Result<u32, ScheduleErrorKind>>;

impl Receives {
    fn receive(&self) {
        if let Some((mut receiver, begun, received)) = self.0.lock().unwrap().take() {
            begun.send(()).unwrap();
            let due = receiver.recv();
            received.send(due.map(|due| due.map(|due| due.value))).unwrap();
        }
    }
}

impl Drop for Receives {
    fn drop(&mut self) {
        self.receive();
    }
}

impl Wake for Receives {
    fn wake(self: Arc<Self>) {
        self.receive();
    }
}

/// Of a thread that `receives` a value of a timer, and a task of that timer that `waits` for that
/// thread, one is refused, and the other goes on.
fn one_is_refused(
    receives: impl FnOnce(Receives) + Send + 'static,
    waits: impl FnOnce() -> bool + Send + 'static,
) {
    let timer = Timer::new();
    let (sender, receiver) = delay_channel::<u32>(&timer);
    let ((begun, has_begun), (received, receive)) = (mpsc::channel(), mpsc::channel());
    let receiving = Receives(Mutex::new(Some((receiver, begun, received))));
    let receiving = thread::spawn(move || receives(receiving));
    has_begun.recv().unwrap();
    let (answers, answer) = mpsc::channel();
    let task = move || {
        answers.send(waits()).unwrap();
        // There is no other value.
        _ = sender.insert(7, Duration::ZERO);
    };
    timer.schedule(Duration::ZERO, task).unwrap();
    let ends = (receive.recv().unwrap(), answer.recv().unwrap());
    let deadlock = ScheduleErrorKind::Deadlock;
    assert!(
        matches!(ends, (Some(Ok(7)), false)) || ends == (Some(Err(deadlock)), true),
        "{ends:?}"
    );
    receiving.join().unwrap();
}

#[test]
fn of_a_value_waited_for_in_a_drop_and_that_drop_one_is_refused() {
    returns("waiting for a value where a captured value is dropped", || {
        let timer = Timer::new();
        let timeout = Arc::new(OnceLock::<Timeout>::new());
        let waits = Arc::clone(&timeout);
        let receives = move |receiving| {
            let hour = Duration::from_secs(3_600);
            timeout.set(timer.schedule(hour, move || drop(receiving)).unwrap()).unwrap();
            assert!(timeout.get().unwrap().cancel());
        };
        one_is_refused(receives, move || waits.get().unwrap().cancel_and_wait().is_ok());
    });
}

#[test]
fn of_a_value_waited_for_in_a_waker_and_the_stop_that_wakes_it_one_is_refused() {
    returns("waiting for a value where a stop wakes a future", || {
        let timer = Timer::new();
        let stopped = timer.clone();
        let receives = move |receiving| {
            let mut sleep = timer.sleep(Duration::from_secs(3_600));
            let waker = Waker::from(Arc::new(receiving));
            let mut context = Context::from_waker(&waker);
            assert!(Pin::new(&mut sleep).poll(&mut context).is_pending());
            timer.stop().expect("outside");
        };
        one_is_refused(receives, move || stopped.stop().is_ok());
    });
}

#[test]
fn where_a_captured_value_is_dropped_a_value_that_comes_is_waited_for() {
    returns("waiting for a value that nothing holds up", || {
        let (timer, other) = (Timer::new(), Timer::new());
        let (sender, receiver) = delay_channel::<u32>(&other);
        sender.insert(7, ms(30)).unwrap();
        let ((begun, _begun), (received, receive)) = (mpsc::channel(), mpsc::channel());
        let captured = Receives(Mutex::new(Some((receiver, begun, received))));
        let timeout = timer.schedule(Duration::from_secs(3_600), move || drop(captured)).unwrap();
        assert!(timeout.cancel());
        assert_eq!(receive.recv(), Ok(Some(Ok(7))));
    });
}

#[test]
fn where_values_of_two_timers_are_dropped_one_inside_the_other_no_value_is_waited_for() {
    returns("waiting for a value where two values are dropped", || {
        let (first, second) = (Timer::new(), Timer::new());
        let hour = Duration::from_secs(3_600);
        let (sender, receiver) = delay_channel::<u32>(&first);
        sender.insert(7, hour).unwrap();
        let ((begun, _begun), (received, receive)) = (mpsc::channel(), mpsc::channel());
        let captured = Receives(Mutex::new(Some((receiver, begun, received))));
        let inner = second.schedule(hour, move || drop(captured)).unwrap().cancel_on_drop();
        let outer = first.schedule(hour, move || drop(inner)).unwrap();
        assert!(outer.cancel());
        assert_eq!(receive.recv(), Ok(Some(Err(ScheduleErrorKind::Deadlock))));
    });
}

/// The worker waits for room that the task takes up, and wakes nobody.
#[test]
fn on_the_only_thread_of_an_executor_with_no_room_a_value_comes() {
    for (is_manual, calls) in [(false, 0), (false, 1), (false, 2), (true, 0), (true, 1), (true, 2)]
    {
        returns("waiting for a value on the executor's only thread", move || {
            let (sender, receiver) = mpsc::sync_channel::<BoxedTask>(0);
            let clock = ManualClock::new();
            let builder = Timer::builder().executor(move |task| drop(sender.send(task)));
            let timer = match is_manual {
                true => builder.clock(clock.clone()).build(),
                false => builder.build(),
            };
            let timer = timer.expect("in range");
            thread::spawn(move || receiver.into_iter().for_each(|task| task()));
            let ((tell, told), (received, receive)) = (mpsc::channel::<Timeout>(), mpsc::channel());
            let (waits, has_begun) = mpsc::channel();
            let mut queue = DelayQueue::with_timer(&timer);
            let task = move || {
                let behind = told.recv().unwrap();
                wait_until(|| behind.status() == Status::Fired);
                queue.insert(7, ms(20));
                waits.send(()).unwrap();
                let value = match calls {
                    0 => queue.recv().and_then(Result::ok).map(|due| due.value),
                    1 => {
                        let mut batch = Vec::new();
                        assert_eq!(queue.recv_batch(&mut batch, 2), Ok(1));
                        batch.pop().map(|due| due.value)
                    }
                    _ => match queue.recv_timeout(ms(5)) {
                        Some(Err(elapsed)) => elapsed.error().is_none().then_some(7),
                        due => due.and_then(Result::ok).map(|due| due.value),
                    },
                };
                received.send(value).unwrap();
            };
            timer.schedule(Duration::ZERO, task).unwrap();
            tell.send(timer.schedule(Duration::ZERO, || {}).unwrap()).unwrap();
            has_begun.recv().unwrap();
            if is_manual {
                clock.jump(ms(20));
            }
            assert_eq!(receive.recv(), Ok(Some(7)));
        });
    }
}

/// The worker is a driver that nobody turns.
#[test]
fn a_thread_that_waits_for_a_value_wakes_itself() {
    returns("waiting for a value of a timer that nobody drives", || {
        let (timer, _driver) = Timer::builder().build_driven().expect("in range");
        let mut queue = DelayQueue::with_timer(&timer);
        queue.insert(7, ms(5));
        assert_eq!(queue.recv().map(|due| due.map(|due| due.value)), Some(Ok(7)));
        queue.insert(8, Duration::from_secs(3_600));
        assert!(queue.recv_timeout(ms(5)).is_some_and(|due| due.is_err()));
    });
}

#[test]
fn a_clock_that_parks_the_thread_takes_no_wake_up_of_a_value() {
    returns("a thread that waits for a value", || {
        let sends = Arc::new(Mutex::new(None::<DelaySender<u32>>));
        let taken = Arc::clone(&sends);
        let clock = OddClock::new(Instant::now).waiting(move |left| {
            if let Some(sender) = taken.lock().unwrap().take() {
                let sends = thread::spawn(move || drop(sender.insert(2, Duration::ZERO)));
                sends.join().expect("it sends");
                // As what waits for a lock or a message does. That is for the value.
                thread::park();
            }
            Some(left)
        });
        let (timer, _driver) = Timer::builder().clock(clock).build_driven().expect("in range");
        let (sender, mut receiver) = delay_channel(&timer);
        sender.insert(1, Duration::from_secs(3_600)).expect("it is open");
        *sends.lock().unwrap() = Some(sender);
        assert_eq!(receiver.recv().expect("there are two").expect("it runs").value, 2);
    });
}

#[test]
fn a_wait_with_a_limit_takes_a_single_place_in_its_timer() {
    returns("a wait with a limit", || {
        let timer = Timer::builder().max_pending(1).build().expect("in range");
        let mut queue = DelayQueue::with_timer(&timer);
        let hour = Duration::from_secs(3_600);
        queue.insert(7, hour);
        let elapsed = queue.recv_timeout(ms(5)).expect("not empty").expect_err("too early");
        assert_eq!((elapsed.error(), timer.pending()), (None, 0));
        queue.insert(8, ms(5));
        let due = queue.recv_timeout(hour).expect("not empty").expect("in time");
        assert_eq!((due.value, timer.pending()), (8, 0));
    });
}

#[test]
fn a_batch_ends_however_many_values_come_due_meanwhile() {
    let start = Instant::now();
    let clock = OddClock::passing(start, ms(1), 1);
    let (timer, _driver) = Timer::builder().clock(clock).build_driven().expect("in range");
    let mut queue = DelayQueue::with_timer(&timer);
    for value in 0..1_000 {
        queue.insert_at(value, start + ms(value));
    }
    let mut batch = Vec::new();
    let taken = queue.recv_batch(&mut batch, usize::MAX).expect("some are due");
    assert!((1..100).contains(&taken), "{taken}");
}

/// Nobody says when its time comes, but for a worker that has no executor to wait for.
#[test]
fn on_a_clock_that_cannot_say_how_long_a_thread_that_waits_is_not_woken_in_vain() {
    for (has_executor, is_pending) in [(false, false), (false, true), (true, false)] {
        let looks = Arc::new(AtomicUsize::new(0));
        let (counted, start) = (Arc::clone(&looks), Instant::now());
        let clock = OddClock::new(move || {
            counted.fetch_add(1, SeqCst);
            start
        });
        let builder = Timer::builder().clock(clock.waiting(|_| None));
        let timer = match has_executor {
            true => builder.executor(|task: BoxedTask| task()).build(),
            false => builder.build(),
        };
        let timer = timer.expect("in range");
        let (sender, mut receiver) = delay_channel(&timer);
        if is_pending {
            sender.insert((), ms(3_600_000)).expect("it runs");
        }
        let waits = thread::spawn(move || receiver.recv().is_some());
        let (mut rounds, mut last) = (0, usize::MAX);
        while looks.load(SeqCst) != last {
            rounds += 1;
            assert!(rounds < 300, "{has_executor}, {is_pending}");
            last = looks.load(SeqCst);
            thread::sleep(ms(200));
        }
        timer.stop().expect("outside");
        drop(sender);
        waits.join().expect("it does not panic");
    }
}
