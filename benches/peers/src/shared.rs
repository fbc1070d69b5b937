//! A timer that has a thread of its own, or a runtime's, as the workloads see it.

use crate::subject::Kind;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// One timer that any number of threads share.
pub(crate) trait Threaded: Sync + Sized {
    const PROFILE: ThreadedProfile;

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

#[derive(Clone, Copy, Debug)]
pub(crate) struct ThreadedProfile {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
}
