//! Timers whose timeouts are futures: created, polled once and dropped.

use super::{Task, Threaded, counted};
use pingora_timeout::fast_timeout::FastOrTokioTimeout;
use std::future::{Future, Pending, pending};
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;
use tickwheel::Timer;
use tokio::runtime::{Builder, Handle};
use tokio::time::{Sleep, sleep};

pub(crate) trait Sleeps: Default + Sync {
    /// Of the runtime; one means that of the current thread.
    const THREADS: usize = 2;

    /// Turns the timer of the runtime on.
    const ENABLES: fn(&mut Builder) -> &mut Builder = Builder::enable_time;

    type Sleep: Future<Output: Send> + Send + 'static;

    fn sleep(&self, delay: Duration) -> Self::Sleep;
}

/// With a runtime for the tasks that sleep.
///
/// Driven well: from threads that are not the runtime's, so that polls are not counted against a
/// task's budget; a sleep is made in the place of the one before, and not boxed.
pub(crate) struct OnTokio<S>(S, Handle);

impl<S: Sleeps> Threaded for OnTokio<S> {
    type Slot = Pin<Box<Option<S::Sleep>>>;

    fn new() -> Self {
        let mut builder = match S::THREADS {
            1 => Builder::new_current_thread(),
            _ => Builder::new_multi_thread(),
        };
        let runtime = S::ENABLES(builder.worker_threads(2)).build().expect("a runtime");
        let handle = runtime.handle().clone();
        std::thread::spawn(move || runtime.block_on(pending::<()>()));
        Self(S::default(), handle)
    }

    fn replacer(&self) -> impl FnMut(&mut Self::Slot, Duration) {
        let inside = self.1.enter();
        move |slot, delay| {
            let _inside = &inside;
            slot.set(Some(self.0.sleep(delay)));
            let sleep = slot.as_mut().as_pin_mut().expect("it was just set");
            // Once, as `timeout` does with a future that has to wait.
            if sleep.poll(&mut Context::from_waker(Waker::noop())).is_ready() {
                counted()();
            }
        }
    }

    fn after(&self, delay: Duration, task: Task) {
        let _inside = self.1.enter();
        let sleep = self.0.sleep(delay);
        self.1.spawn(async {
            sleep.await;
            task();
        });
    }
}

/// `Timer::sleep`.
#[derive(Default)]
pub(crate) struct TickwheelSleep(Timer);

impl Sleeps for TickwheelSleep {
    type Sleep = tickwheel::Sleep;

    fn sleep(&self, delay: Duration) -> Self::Sleep {
        self.0.sleep(delay)
    }
}

/// tokio 1.x: `sleep`, on a runtime of two threads, or of the current one.
#[derive(Default)]
pub(crate) struct Tokio<const THREADS: usize>;

impl<const THREADS: usize> Sleeps for Tokio<THREADS> {
    const THREADS: usize = THREADS;

    type Sleep = Sleep;

    fn sleep(&self, delay: Duration) -> Sleep {
        sleep(delay)
    }
}

/// tokio 1.x: `sleep`, on a runtime of two threads whose workers have a timer each.
#[cfg(tokio_unstable)]
#[derive(Default)]
pub(crate) struct TokioOfEachWorker;

#[cfg(tokio_unstable)]
impl Sleeps for TokioOfEachWorker {
    const ENABLES: fn(&mut Builder) -> &mut Builder = Builder::enable_alt_timer;

    type Sleep = Sleep;

    fn sleep(&self, delay: Duration) -> Sleep {
        sleep(delay)
    }
}

/// async-io 2.x: `Timer`; its reactor, which has a thread of its own, holds a `BTreeMap` behind a
/// lock.
#[derive(Default)]
pub(crate) struct AsyncIo;

impl Sleeps for AsyncIo {
    type Sleep = async_io::Timer;

    fn sleep(&self, delay: Duration) -> Self::Sleep {
        async_io::Timer::after(delay)
    }
}

/// pingora-timeout 0.9: `timeout` around a future that has to wait.
///
/// Each thread has its own `BTreeMap`. Timeouts of the same 10 ms share one entry, which stays
/// until those 10 ms have come.
#[derive(Default)]
pub(crate) struct PingoraTimeout;

impl Sleeps for PingoraTimeout {
    type Sleep = pingora_timeout::Timeout<Pending<()>, FastOrTokioTimeout>;

    fn sleep(&self, delay: Duration) -> Self::Sleep {
        pingora_timeout::timeout(delay, pending())
    }
}
