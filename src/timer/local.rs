//! The shard that a thread keeps to.

use crate::sync::thread_local;
use core::cell::Cell;
use core::sync::atomic::{AtomicUsize, Ordering};

/// Returns the number of this thread's shard, modulo the number of shards. Threads take turns.
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
    static SHARD: Cell<usize> = const { Cell::new(UNKNOWN) };
}

#[cfg(loom)]
thread_local! {
    static SHARD: Cell<usize> = Cell::new(UNKNOWN);
}

#[cfg(not(loom))]
#[cold]
fn next_shard() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed) % UNKNOWN
}

#[cfg(loom)]
loom::lazy_static! {
    static ref NEXT: AtomicUsize = AtomicUsize::new(0);
}

/// The same in every execution of a model, because the counter begins anew with each.
#[cfg(loom)]
fn next_shard() -> usize {
    NEXT.fetch_add(1, Ordering::Relaxed)
}
