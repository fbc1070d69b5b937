//! Locks, atomics and threads: those of std, or loom's where the tests of races run.
//!
//! Reference counts stay those of std: they are proven there, and each of loom's would multiply the
//! work of a model.

#[cfg(loom)]
pub(crate) use loom::{
    sync::{
        Condvar, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    },
    thread::{Builder, JoinHandle},
    thread_local,
};
#[cfg(not(loom))]
pub(crate) use {
    core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    std::{
        sync::{Condvar, Mutex, MutexGuard},
        thread::{Builder, JoinHandle},
        thread_local,
    },
};

use core::time::Duration;
use std::sync::{PoisonError, TryLockError};

/// Locks `mutex`, even if a thread panicked while it held the lock: nothing in this crate panics
/// between two states that belong together, and no foreign code runs under a lock.
#[inline]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks `mutex` if no thread holds it now. A panic under the lock makes no difference.
#[inline]
pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Waits until `condvar` is notified.
pub(crate) fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condvar.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

/// Waits until `condvar` is notified or `timeout` has passed. Under loom no time passes.
pub(crate) fn wait_timeout<'a, T>(
    condvar: &Condvar,
    guard: MutexGuard<'a, T>,
    timeout: Duration,
) -> MutexGuard<'a, T> {
    condvar.wait_timeout(guard, timeout).unwrap_or_else(PoisonError::into_inner).0
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use core::panic::AssertUnwindSafe;
    use std::panic::catch_unwind;

    #[test]
    fn a_poisoned_lock_is_taken_at_the_first_try() {
        let mutex = Mutex::new(1);
        let poison = || {
            let _guard = lock(&mutex);
            panic!("as it should");
        };
        assert!(catch_unwind(AssertUnwindSafe(poison)).is_err());
        assert!(mutex.is_poisoned());
        assert_eq!(try_lock(&mutex).map(|value| *value), Some(1));
        let held = lock(&mutex);
        assert!(try_lock(&mutex).is_none());
        drop(held);
    }
}
