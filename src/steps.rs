//! Steps: counts what a call looks at or moves, so that tests hold calls to their bounds.
//!
//! Only a build with debug assertions counts, and each thread for itself.

#[cfg(all(debug_assertions, feature = "std"))]
std::thread_local! {
    static STEPS: core::cell::Cell<u64> = const { core::cell::Cell::new(0) };
}

/// Counts so many more steps.
#[inline(always)]
pub(crate) fn count(more: usize) {
    #[cfg(all(debug_assertions, feature = "std"))]
    STEPS.set(STEPS.get() + more as u64);
    #[cfg(not(all(debug_assertions, feature = "std")))]
    let _ = more;
}

/// Returns the steps that this thread has counted: 0 without debug assertions.
#[doc(hidden)]
#[must_use]
pub fn steps() -> u64 {
    #[cfg(all(debug_assertions, feature = "std"))]
    return STEPS.get();
    #[cfg(not(all(debug_assertions, feature = "std")))]
    return 0;
}
