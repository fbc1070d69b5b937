//! What the handles, the shards and the worker of one timer share.

use super::local;
use super::park::Park;
use super::stats::Counters;
use crate::clock::{Clock, Ticks};
use crate::sync::{AtomicBool, AtomicUsize};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use core::any::Any;
use core::fmt;
use core::num::NonZeroUsize;
use core::panic::AssertUnwindSafe;
use core::sync::atomic::Ordering::Relaxed;
use core::time::Duration;
use crossbeam_utils::CachePadded;
use std::panic::catch_unwind;

/// What the handles, the shards and the worker of one timer share. Knows no shard, and owns no
/// executor: handles keep it alive.
pub(crate) struct Hub {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) ticks: Ticks,
    /// The worker runs: no need to start it.
    pub(super) started: AtomicBool,
    pub(super) limit: Option<Limit>,
    pub(super) on_panic: Option<Box<PanicHook>>,
    pub(super) park: CachePadded<Park>,
    pub(super) counters: CachePadded<Counters>,
}

pub(super) type PanicHook = dyn Fn(&TaskPanic<'_>) + Send + Sync;

impl Hub {
    pub(super) fn deadline_after(&self, delay: Duration) -> u64 {
        self.ticks.after(self.clock.now(), delay)
    }

    /// Runs foreign code. A panic is counted and told, and gives None.
    pub(super) fn guarded<T>(&self, foreign: impl FnOnce() -> T) -> Option<T> {
        match catch_unwind(AssertUnwindSafe(foreign)) {
            Ok(value) => Some(value),
            Err(payload) => {
                self.panicked(payload);
                None
            }
        }
    }

    #[cold]
    fn panicked(&self, payload: Box<dyn Any + Send>) {
        self.counters.panics.fetch_add(1, Relaxed);
        if let Some(hook) = &self.on_panic {
            let panic = TaskPanic { payload: &*payload };
            swallow(|| hook(&panic));
        }
        // What a task panics with may panic when dropped.
        swallow(|| drop(payload));
    }

    /// Whether this thread is inside a task of this timer.
    pub(super) fn is_inside(&self) -> bool {
        local::inside() == Some(self.id())
    }

    /// Where it is in memory, which no other timer is meanwhile.
    pub(super) fn id(&self) -> NonZeroUsize {
        NonZeroUsize::new(core::ptr::from_ref(self).addr()).unwrap_or(NonZeroUsize::MIN)
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub").field("ticks", &self.ticks).finish_non_exhaustive()
    }
}

/// Runs `foreign`, of which not even a panic is of interest.
fn swallow(foreign: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(foreign)) {
        // It might go on like this for ever.
        core::mem::forget(payload);
    }
}

/// How many timeouts may be pending.
#[derive(Debug)]
pub(super) struct Limit {
    pub(super) most: usize,
    pending: CachePadded<AtomicUsize>,
}

impl Limit {
    pub(super) fn new(most: usize) -> Self {
        Self { most, pending: CachePadded::new(AtomicUsize::new(0)) }
    }

    /// Takes one place, and returns whether there was one.
    pub(super) fn take(&self) -> bool {
        let one_more = |pending| Some(pending + 1).filter(|&pending| pending <= self.most);
        self.pending.fetch_update(Relaxed, Relaxed, one_more).is_ok()
    }

    pub(super) fn give_back(&self) {
        self.pending.fetch_sub(1, Relaxed);
    }
}

/// A panic of a task, as told to the hook of
/// [`TimerBuilder::on_panic`](crate::TimerBuilder::on_panic).
pub struct TaskPanic<'a> {
    payload: &'a (dyn Any + Send),
}

impl TaskPanic<'_> {
    /// What the task panicked with.
    #[must_use]
    pub fn payload(&self) -> &(dyn Any + Send) {
        self.payload
    }

    /// The message, if it panicked with one.
    #[must_use]
    pub fn message(&self) -> Option<&str> {
        let text = self.payload.downcast_ref::<&'static str>().copied();
        text.or_else(|| self.payload.downcast_ref::<String>().map(String::as_str))
    }
}

impl fmt::Debug for TaskPanic<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskPanic").field("message", &self.message()).finish_non_exhaustive()
    }
}
