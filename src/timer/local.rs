//! The shard that a thread keeps to.

use crate::sync::{Ordering, thread_local};
use core::cell::Cell;
use core::sync::atomic::AtomicUsize;

/// Returns the number of this thread's shard, modulo the number of shards. Threads take turns.
#[inline]
pub(super) fn shard() -> usize {
    let number = SHARD.with(Cell::get).unwrap_or_else(|| NEXT.fetch_add(1, Ordering::Relaxed));
    use_shard(number);
    number
}

/// Makes this thread use shard `number` from now on.
pub(super) fn use_shard(number: usize) {
    SHARD.with(|shard| shard.set(Some(number)));
}

thread_local! {
    static SHARD: Cell<Option<usize>> = Cell::default();
}

#[cfg(not(loom))]
static NEXT: AtomicUsize = AtomicUsize::new(0);

// It begins anew with each execution of a model, so that all are the same.
#[cfg(loom)]
loom::lazy_static! {
    static ref NEXT: AtomicUsize = AtomicUsize::new(0);
}
