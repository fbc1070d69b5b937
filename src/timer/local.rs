//! The shard that a thread keeps to.

use crate::sync::{Ordering, thread_local};
use core::cell::Cell;
use core::sync::atomic::AtomicUsize;

/// Returns the number of this thread's shard, modulo the number of shards. Threads take turns.
#[inline]
pub(super) fn shard() -> usize {
    SHARD.with(Cell::get)
}

/// Makes this thread use shard `number` from now on.
pub(super) fn use_shard(number: usize) {
    SHARD.with(|shard| shard.set(number));
}

thread_local! {
    static SHARD: Cell<usize> = Cell::new(NEXT.fetch_add(1, Ordering::Relaxed));
}

#[cfg(not(loom))]
static NEXT: AtomicUsize = AtomicUsize::new(0);

// It begins anew with each execution of a model, so that all are the same.
#[cfg(loom)]
loom::lazy_static! {
    static ref NEXT: AtomicUsize = AtomicUsize::new(0);
}
