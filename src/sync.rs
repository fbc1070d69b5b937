//! Locks, atomics and threads: those of std, or loom's where the tests of races run.
//!
//! Reference counts stay those of std: they are proven there, and each of loom's would multiply the
//! work of a model.

#[cfg(loom)]
pub(crate) use loom::{
    sync::{
        Condvar, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread::{Builder, JoinHandle},
};
#[cfg(not(loom))]
pub(crate) use {
    core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    std::{
        sync::{Condvar, Mutex, MutexGuard},
        thread::{Builder, JoinHandle},
    },
};

use core::time::Duration;
use std::sync::PoisonError;

/// Locks `mutex`, also if a thread panicked while it had it: nothing in this crate panics between
/// two states that belong together, and no foreign code runs under a lock.
#[inline]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
