//! Which thread may wait for which timer: `stop`, `drop` and the manual clock, called from inside
//! tasks of this timer, of others, and of several at once.

use crate::help::{Count, ms, returns, wait_until};
use std::cell::RefCell;
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;
use std::time::Duration;
use tickwheel::{ManualClock, MissedTick, Status, StopError, Timer};

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

thread_local! {
    static AT_EXIT: RefCell<Option<StopsAtExit>> = const { RefCell::new(None) };
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
            AT_EXIT.with(|slot| *slot.borrow_mut() = Some(at_exit));
            sender.send(()).unwrap();
        };
        timer.schedule(Duration::ZERO, task).unwrap();
        receiver.recv().unwrap();
        timer.stop().expect("outside");
        assert!(answer.recv().unwrap());
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
