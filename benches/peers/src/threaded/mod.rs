//! Timers that have a thread of their own, or a runtime's.

pub(crate) mod designs;
pub(crate) mod futures;
pub(crate) mod hhwt_thread;
pub(crate) mod ours;
pub(crate) mod timerwheel;

use crate::subject::Profile;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Waker};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// One timer that any number of threads share.
pub(crate) trait Threaded: Sync + Sized {
    const PROFILE: Profile;

    /// What a thread needs to use the timer.
    type Local<'a>
    where
        Self: 'a;

    /// Room for one timeout, empty at first.
    type Slot: Default;

    fn new() -> Self;

    fn enter(&self) -> Self::Local<'_>;

    /// Cancels the timeout in `slot` and schedules another one there, which counts itself in
    /// [`FIRED`] if it fires.
    fn replace(local: &mut Self::Local<'_>, slot: &mut Self::Slot, delay: Duration);

    /// Runs `task` after `delay`.
    fn after(&self, delay: Duration, task: Task);
}

pub(crate) type Task = Box<dyn FnOnce() + Send>;

/// Timeouts that fired which were to be cancelled.
pub(crate) static FIRED: AtomicU64 = AtomicU64::new(0);

/// A task that counts itself. It captures something, as tasks do.
fn counted() -> impl FnOnce() + Send + 'static {
    let fired = &FIRED;
    move || _ = fired.fetch_add(1, Relaxed)
}

/// Room for a future, in which it is made in the place of the one before.
type InPlace<F> = Pin<Box<Option<F>>>;

/// Polls once, as `timeout` does with a future that has to wait.
fn replace_future<F: Future>(slot: &mut InPlace<F>, future: F) {
    slot.set(Some(future));
    let future = slot.as_mut().as_pin_mut().expect("it was just set");
    if future.poll(&mut Context::from_waker(Waker::noop())).is_ready() {
        counted()();
    }
}

/// A runtime for the timers that are futures.
fn runtime() -> Runtime {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_time().build();
    runtime.expect("a runtime")
}
