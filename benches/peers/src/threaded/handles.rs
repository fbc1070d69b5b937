//! Timers that run a task, and give a handle that cancels it.

use super::{FAR, Task, Threaded, counted};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use tickwheel::{DelayKey, DelaySender, Timeout, Timer, delay_channel};
use timerwheel::{BackpressurePolicy, ExpiredTaskPolicy};

pub(crate) trait Handles: Sync + Sized {
    type Handle;

    fn new() -> Self;

    /// A thread begins to use the timer.
    fn enter(&self) {}

    fn schedule(&self, delay: Duration, task: impl FnOnce() + Send + 'static) -> Self::Handle;

    fn cancel(&self, handle: Self::Handle);
}

impl<T: Handles> Threaded for T {
    type Slot = Option<T::Handle>;

    fn new() -> Self {
        T::new()
    }

    fn replacer(&self) -> impl FnMut(&mut Self::Slot, Duration) {
        self.enter();
        |slot, delay| {
            if let Some(handle) = slot.take() {
                self.cancel(handle);
            }
            *slot = Some(self.schedule(delay, counted()));
        }
    }

    fn after(&self, delay: Duration, task: Task) {
        self.schedule(delay, task);
    }
}

/// `Timer` with a tick of so many microseconds, or the default one, and else as by default:
/// hierarchical wheels, tasks on its thread.
pub(crate) struct TickwheelTimer<const TICK: u64>(Timer);

impl<const TICK: u64> Handles for TickwheelTimer<TICK> {
    type Handle = Timeout;

    fn new() -> Self {
        let timer = match TICK {
            DEFAULT => Ok(Timer::new()),
            _ => Timer::builder().tick(Duration::from_micros(TICK)).build(),
        };
        Self(timer.expect("a valid tick"))
    }

    fn schedule(&self, delay: Duration, task: impl FnOnce() + Send + 'static) -> Timeout {
        self.0.schedule(delay, task).expect("it is not stopped")
    }

    fn cancel(&self, handle: Timeout) {
        handle.cancel();
    }
}

/// `Timer` in a program that has other threads.
///
/// After each working thread begins, another thread schedules once and ends. If the timer gave its
/// shards to threads in turn, two working threads could meet at the same shard.
pub(crate) struct AmongOthers(TickwheelTimer<DEFAULT>, Mutex<()>);

impl Handles for AmongOthers {
    type Handle = Timeout;

    fn new() -> Self {
        Self(Handles::new(), Mutex::new(()))
    }

    fn enter(&self) {
        let _turn = self.1.lock().expect("no panics");
        let once = || self.cancel(self.schedule(FAR, counted()));
        once();
        thread::scope(|scope| scope.spawn(once).join().expect("no panics"));
    }

    fn schedule(&self, delay: Duration, task: impl FnOnce() + Send + 'static) -> Timeout {
        self.0.schedule(delay, task)
    }

    fn cancel(&self, handle: Timeout) {
        handle.cancel();
    }
}

/// `delay_channel`: values, and one thread that does what each says. Else as [`TickwheelTimer`].
pub(crate) struct TickwheelChannel(DelaySender<Value>);

pub(crate) enum Value {
    /// It counts itself.
    Counted,
    /// It counts there.
    CountedIn(Arc<AtomicUsize>),
    Task(Task),
}

impl Threaded for TickwheelChannel {
    type Slot = Option<DelayKey>;

    fn new() -> Self {
        let timer = Timer::new();
        let (sender, mut receiver) = delay_channel(&timer);
        thread::spawn(move || {
            let (_kept, mut batch) = (timer, Vec::new());
            while receiver.recv_batch(&mut batch, BATCH).expect("it is not stopped") > 0 {
                for due in batch.drain(..) {
                    match due.value {
                        Value::Counted => counted()(),
                        Value::CountedIn(ran) => _ = ran.fetch_add(1, Relaxed),
                        // As the timer does.
                        Value::Task(task) => _ = catch_unwind(AssertUnwindSafe(task)),
                    }
                }
            }
        });
        Self(sender)
    }

    fn replacer(&self) -> impl FnMut(&mut Self::Slot, Duration) {
        |slot, delay| {
            if let Some(key) = slot.take() {
                self.0.remove(key);
            }
            *slot = self.0.insert(Value::Counted, delay).ok();
        }
    }

    fn after(&self, delay: Duration, task: Task) {
        assert!(self.0.insert(Value::Task(task), delay).is_ok());
    }

    fn count_after(&self, delay: Duration, ran: Arc<AtomicUsize>) {
        assert!(self.0.insert(Value::CountedIn(ran), delay).is_ok());
    }
}

/// timerwheel 0.1: Kafka's wheel with a thread, and a pool for the tasks.
///
/// Driven well: callers wait when its queue is full, and what its pool refuses is tried again; by
/// default both would lose timeouts. A cancelled one stays until its time has come.
pub(crate) struct Timerwheel(timerwheel::Timer);

impl Handles for Timerwheel {
    type Handle = timerwheel::Timeout;

    fn new() -> Self {
        let timer = timerwheel::Timer::builder()
            .tick(Duration::from_millis(1))
            .max_pending(usize::MAX)
            .backpressure_policy(BackpressurePolicy::Block)
            .expired_task_policy(ExpiredTaskPolicy::Retry)
            .build();
        Self(timer.expect("a configuration that it allows"))
    }

    fn schedule(&self, delay: Duration, task: impl FnOnce() + Send + 'static) -> Self::Handle {
        self.0.schedule(delay, task).expect("it waits while it is full")
    }

    fn cancel(&self, handle: Self::Handle) {
        handle.cancel();
    }
}

const BATCH: usize = 1_024;

/// The tick that a timer has if nothing is said.
pub(crate) const DEFAULT: u64 = 0;
