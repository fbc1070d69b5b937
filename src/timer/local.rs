//! What a thread remembers: inside which timer's task it is, and its shard.

use core::cell::Cell;
use core::num::NonZeroUsize;
use core::sync::atomic::{AtomicUsize, Ordering};

/// While it lives, this thread is inside a task.
pub(super) struct Inside(Option<NonZeroUsize>);

impl Inside {
    /// Inside a task of timer `id`.
    pub(super) fn enter(id: NonZeroUsize) -> Self {
        Self(INSIDE.with(|inside| inside.replace(Some(id))))
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.with(|inside| inside.set(self.0));
    }
}

/// The timer inside a task of which this thread is.
pub(super) fn inside() -> Option<NonZeroUsize> {
    INSIDE.with(Cell::get)
}

/// Whether this thread is inside a task of any timer.
pub(crate) fn inside_any_task() -> bool {
    inside().is_some()
}

/// The number of this thread's shard, modulo the number of shards. Threads take turns.
#[inline]
pub(super) fn shard() -> usize {
    SHARD.with(|shard| {
        let number = shard.get();
        if number != UNKNOWN {
            return number;
        }
        let number = next_shard();
        shard.set(number);
        number
    })
}

/// Makes this thread use shard `number` from now on.
pub(super) fn use_shard(number: usize) {
    SHARD.with(|shard| shard.set(number));
}

/// No thread gets so far.
const UNKNOWN: usize = usize::MAX;

#[cfg(not(loom))]
thread_local! {
    static INSIDE: Cell<Option<NonZeroUsize>> = const { Cell::new(None) };
    static SHARD: Cell<usize> = const { Cell::new(UNKNOWN) };
}

#[cfg(not(loom))]
#[cold]
fn next_shard() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed) % UNKNOWN
}

#[cfg(loom)]
loom::thread_local! {
    static INSIDE: Cell<Option<NonZeroUsize>> = Cell::new(None);
    static SHARD: Cell<usize> = Cell::new(UNKNOWN);
}

#[cfg(loom)]
loom::lazy_static! {
    static ref NEXT: AtomicUsize = AtomicUsize::new(0);
}

/// The same in every execution of a model, as the counter begins anew with each.
#[cfg(loom)]
fn next_shard() -> usize {
    NEXT.fetch_add(1, Ordering::Relaxed)
}
