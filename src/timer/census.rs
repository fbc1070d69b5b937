//! Counts the timers that are alive, and warns once if they are many.

use core::sync::atomic::{AtomicUsize, Ordering};

/// One timer that is alive.
pub(super) struct Alive(());

impl Alive {
    pub(super) fn new() -> Self {
        ALIVE.fetch_add(1, Ordering::Relaxed);
        Self(())
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        ALIVE.fetch_sub(1, Ordering::Relaxed);
    }
}

static ALIVE: AtomicUsize = AtomicUsize::new(0);

/// Warns if there are many timers, once in a process. It calls the logger, so nothing may be
/// locked.
#[cfg(feature = "log")]
pub(crate) fn warn_if_many() {
    use core::sync::atomic::AtomicBool;

    /// More timers than that are likely to be a mistake, because each has a thread.
    const MANY: usize = 64;
    static WARNED: AtomicBool = AtomicBool::new(false);
    let alive = ALIVE.load(Ordering::Relaxed);
    if MANY < alive && !WARNED.swap(true, Ordering::Relaxed) {
        log::warn!(
            "{alive} tickwheel timers are alive in this process, and each has a thread; one timer \
             can serve them all: clone it"
        );
    }
}

#[cfg(not(feature = "log"))]
pub(crate) fn warn_if_many() {}
