//! Counts the timers that are alive, and warns once if they are many.

#[cfg(feature = "log")]
use core::sync::atomic::AtomicBool;
use core::sync::atomic::{AtomicUsize, Ordering};

/// Counts a timer that is alive until [`ends`].
pub(super) fn begins() {
    ALIVE.fetch_add(1, Ordering::Relaxed);
}

pub(super) fn ends() {
    ALIVE.fetch_sub(1, Ordering::Relaxed);
}

static ALIVE: AtomicUsize = AtomicUsize::new(0);

/// Warns if there are many timers, once in a process. It calls the logger, so nothing may be
/// locked.
pub(crate) fn warn_if_many() {
    #[cfg(feature = "log")]
    {
        /// More timers than that are likely to be a mistake, because each has a thread.
        const MANY: usize = 64;
        static WARNED: AtomicBool = AtomicBool::new(false);
        let alive = ALIVE.load(Ordering::Relaxed);
        if MANY < alive && !WARNED.swap(true, Ordering::Relaxed) {
            log::warn!(
                "{alive} tickwheel timers are alive in this process, and each has a thread; one \
                 timer can serve them all: clone it"
            );
        }
    }
}
