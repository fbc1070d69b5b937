//! Steps: counts what a call looks at, moves or frees, so that tests hold calls to their bounds.
//!
//! Only a build with debug assertions counts, and each thread for itself.

#[cfg(all(debug_assertions, feature = "std"))]
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[cfg(all(debug_assertions, feature = "std"))]
std::thread_local! {
    static STEPS: core::cell::Cell<u64> = const { core::cell::Cell::new(0) };
}

#[cfg(all(debug_assertions, feature = "std"))]
static MOST_HELD: AtomicU64 = AtomicU64::new(0);

/// Counts so many more steps.
#[inline(always)]
pub(crate) fn count(more: usize) {
    #[cfg(all(debug_assertions, feature = "std"))]
    let _ = STEPS.try_with(|steps| steps.set(steps.get() + more as u64));
    #[cfg(not(all(debug_assertions, feature = "std")))]
    let _ = more;
}

/// Notes that so many steps were taken while a lock was held.
#[cfg(all(debug_assertions, feature = "std"))]
pub(crate) fn count_held(steps: u64) {
    MOST_HELD.fetch_max(steps, Relaxed);
}

/// Returns the steps that this thread has counted: 0 without debug assertions.
#[doc(hidden)]
#[must_use]
pub fn steps() -> u64 {
    #[cfg(all(debug_assertions, feature = "std"))]
    return STEPS.try_with(core::cell::Cell::get).unwrap_or(0);
    #[cfg(not(all(debug_assertions, feature = "std")))]
    return 0;
}

/// Returns the most steps that any thread has taken while it held a lock of this crate, since the
/// last call: 0 without debug assertions.
#[doc(hidden)]
#[must_use]
pub fn most_steps_under_a_lock() -> u64 {
    #[cfg(all(debug_assertions, feature = "std"))]
    return MOST_HELD.swap(0, Relaxed);
    #[cfg(not(all(debug_assertions, feature = "std")))]
    return 0;
}
