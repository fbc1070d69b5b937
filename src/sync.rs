//! Locks, atomics and threads: those of std, or loom's where the tests of races run, or shuttle's
//! where a seed decides which thread goes on (`crates/simulation`).
//!
//! Reference counts stay those of std: they are proven there, and each of loom's would multiply the
//! work of a model.
//!
//! # All locks, and their order
//!
//! A thread takes a lock only if that lock stands below all locks that the thread holds. Builds
//! with debug assertions check this at each lock; the place of a lock is its [`Rank`].
//!
//! | lock | what it protects | taken while holding |
//! |---|---|---|
//! | `Advancing` | nothing: one thread at a time advances a `ManualClock` | |
//! | `Map` | one shard of an `ExpiringMap` | `Advancing`, `Map` |
//! | `Followers` | the timers that go by a `ManualClock` | `Advancing` |
//! | `Channel` | a shard of a `delay_channel`, or the receivers that wait | `Advancing`, `Map` |
//! | `Life` | whether the worker of a timer runs | |
//! | `Shard` | the wheel of a shard | `Map` |
//! | `Repeating` | one repeating timeout | `Shard` |
//! | `Due` | what is due in a shard and has not begun to run | `Shard`, `Repeating` |
//! | `HandedOver` | the tasks of a shard that the executor has | |
//! | `Awaiting` | the tasks of async code that wait for the end of a run in a shard | |
//! | `Left` | what ran on the worker when its timer was stopped | |
//! | `Park` | how the worker sleeps | `Advancing`, `Life` |
//! | `Now` | the present of a `ManualClock` | `Advancing` |
//!
//! Locks of std's have no lock taken under them: which timers wait for which (`timer/inside.rs`), the
//! writer and the thread of a recording (`record/`), and those that only make a type `Sync` and are
//! never waited for.
//!
//! Foreign code runs with no lock held: tasks, wakers, clocks, executors, hooks, the writer of a
//! recording, and each `Drop` of a captured value. One exception is `Advancing`, because tasks
//! run while a thread advances a clock; inside a task no thread takes that lock. The other is `Map`:
//! comparing keys, cloning a value and changing it in place run under it. That code may take every
//! lock below, and that of another map.

#[cfg(loom)]
use loom as model;
#[cfg(any(loom, shuttle))]
pub(crate) use model::{
    lazy_static,
    sync::{
        Condvar,
        atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    },
    thread::{Builder, JoinHandle, ThreadId},
    thread_local,
};
#[cfg(any(loom, shuttle))]
use model::{sync as locks, thread};
#[cfg(shuttle)]
use shuttle as model;
#[cfg(not(any(loom, shuttle)))]
use std::{sync as locks, thread};
#[cfg(not(any(loom, shuttle)))]
pub(crate) use {
    core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    std::{
        sync::Condvar,
        thread::{Builder, JoinHandle, ThreadId},
        thread_local,
    },
};

use core::ops::{Deref, DerefMut};
use core::time::Duration;
use std::sync::{PoisonError, TryLockError};

/// How a thread parks. Loom has no park that ends by itself, and none of its models parks.
pub(crate) mod parking {
    #[cfg(shuttle)]
    pub(crate) use shuttle::thread::{Thread, current, park, park_timeout};
    #[cfg(not(shuttle))]
    pub(crate) use std::thread::{Thread, current, park, park_timeout};
}

/// A lock of one [`Rank`] in the order of all locks.
pub(crate) struct Mutex<T> {
    #[cfg(debug_assertions)]
    rank: Rank,
    inner: locks::Mutex<T>,
}

/// The rank of a lock in the order of all locks: see the [table](self).
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rank {
    Advancing,
    Map,
    Followers,
    Channel,
    Life,
    Shard,
    Repeating,
    Due,
    HandedOver,
    Awaiting,
    Left,
    Park,
    Now,
}

pub(crate) struct MutexGuard<'a, T> {
    inner: locks::MutexGuard<'a, T>,
    /// Dropped after the lock is released.
    held: Held,
}

impl<T> Mutex<T> {
    #[cfg_attr(not(debug_assertions), expect(unused_variables, reason = "checked in debug builds"))]
    pub(crate) fn new(rank: Rank, value: T) -> Self {
        Self {
            #[cfg(debug_assertions)]
            rank,
            inner: locks::Mutex::new(value),
        }
    }

    /// Notes that this thread is about to hold the lock, and panics if that is out of order.
    #[inline(always)]
    fn held(&self) -> Held {
        #[cfg(debug_assertions)]
        return Held::new(self.rank);
        #[cfg(not(debug_assertions))]
        Held
    }
}

/// Locks `mutex`, even if a thread panicked while it held the lock: nothing in this crate panics
/// between two states that belong together, and what a caller's code may leave under the lock of a
/// map is consistent.
#[inline]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    let held = mutex.held();
    MutexGuard { inner: mutex.inner.lock().unwrap_or_else(PoisonError::into_inner), held }
}

/// Locks `mutex` if no thread holds it now. A panic under the lock makes no difference.
#[inline]
pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    let held = mutex.held();
    match mutex.inner.try_lock() {
        Ok(inner) => Some(MutexGuard { inner, held }),
        Err(TryLockError::Poisoned(poisoned)) => {
            Some(MutexGuard { inner: poisoned.into_inner(), held })
        }
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Locks `mutex`, which every thread holds for a short time only: tries for longer than that before
/// it goes to sleep for it.
#[inline]
pub(crate) fn lock_soon<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    try_lock(mutex).unwrap_or_else(|| wait_for_lock(mutex))
}

#[cold]
fn wait_for_lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    let tries = if cfg!(any(loom, shuttle)) { 0 } else { TRIES };
    for _ in 0..tries {
        core::hint::spin_loop();
        if let Some(guard) = try_lock(mutex) {
            return guard;
        }
    }
    lock(mutex)
}

pub(crate) fn this_thread() -> ThreadId {
    thread::current().id()
}

/// Waits until `condvar` is notified.
pub(crate) fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    let MutexGuard { inner, held } = guard;
    MutexGuard { inner: condvar.wait(inner).unwrap_or_else(PoisonError::into_inner), held }
}

/// Waits until `condvar` is notified or `timeout` has passed. Under loom and shuttle no time passes.
pub(crate) fn wait_timeout<'a, T>(
    condvar: &Condvar,
    guard: MutexGuard<'a, T>,
    timeout: Duration,
) -> MutexGuard<'a, T> {
    let MutexGuard { inner, held } = guard;
    let waited = condvar.wait_timeout(inner, timeout);
    MutexGuard { inner: waited.unwrap_or_else(PoisonError::into_inner).0, held }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

#[cfg(not(debug_assertions))]
struct Held;

#[cfg(debug_assertions)]
use ordered::Held;

/// Which locks each thread holds.
#[cfg(debug_assertions)]
mod ordered {
    use super::{Rank, thread_local};
    use crate::steps::{count_held, steps};
    use core::cell::Cell;

    /// While it lives, this thread holds the lock of that rank, or is about to.
    pub(super) struct Held {
        rank: Rank,
        /// The steps that this thread had counted before.
        begin: u64,
    }

    impl Held {
        pub(super) fn new(rank: Rank) -> Self {
            let held = HELD.try_with(Cell::get).unwrap_or(0);
            let bit = 1 << rank as u32;
            let most = if let Rank::Map = rank { 2 * bit } else { bit };
            assert!(held < most, "{rank:?} is locked after {held:#b}");
            let _ = HELD.try_with(|all| all.set(held | bit));
            Self { rank, begin: steps() }
        }
    }

    impl Drop for Held {
        fn drop(&mut self) {
            let _ = HELD.try_with(|all| all.set(all.get() & !(1 << self.rank as u32)));
            count_held(steps() - self.begin);
        }
    }

    thread_local! {
        /// A bit for each rank.
        static HELD: Cell<u32> = Cell::default();
    }
}

/// How often a thread tries the lock before it goes to sleep for it: for longer than the lock is
/// held in all but a few cases. To be woken up takes longer than that, and milliseconds if the core
/// has other work meanwhile.
const TRIES: usize = 500;

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use core::panic::AssertUnwindSafe;
    use std::panic::catch_unwind;

    #[test]
    fn a_poisoned_lock_is_taken_at_the_first_try() {
        let mutex = Mutex::new(Rank::Shard, 1);
        let poison = || {
            let _guard = lock(&mutex);
            panic!("as it should");
        };
        assert!(catch_unwind(AssertUnwindSafe(poison)).is_err());
        assert!(mutex.inner.is_poisoned());
        assert_eq!(try_lock(&mutex).map(|value| *value), Some(1));
        let held = mutex.inner.lock();
        assert!(try_lock(&mutex).is_none());
        drop(held);
    }

    #[test]
    #[cfg(debug_assertions)]
    fn a_lock_out_of_order_panics_and_changes_nothing() {
        let [shard, due, park] =
            [Rank::Shard, Rank::Due, Rank::Park].map(|rank| Mutex::new(rank, ()));
        let (_shard, outer) = (lock(&shard), lock(&due));
        for out_of_order in [&shard, &due] {
            assert!(catch_unwind(AssertUnwindSafe(|| try_lock(out_of_order).is_some())).is_err());
        }
        drop(lock(&park));
        drop(outer);
        drop(lock(&due));
    }
}
