//! How many timers are alive, and saying so when they are many.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Counts one timer more, and says once if there are many.
pub(super) fn is_born() {
    static SAID: AtomicBool = AtomicBool::new(false);
    let alive = ALIVE.fetch_add(1, Ordering::Relaxed) + 1;
    if MANY < alive && !SAID.swap(true, Ordering::Relaxed) {
        say(alive);
    }
}

/// Counts one timer less.
pub(super) fn dies() {
    ALIVE.fetch_sub(1, Ordering::Relaxed);
}

static ALIVE: AtomicUsize = AtomicUsize::new(0);

/// More timers than that are likely to be a mistake: each has a thread.
const MANY: usize = 64;

#[cfg(feature = "log")]
fn say(alive: usize) {
    log::warn!(
        "{alive} tickwheel timers are alive in this process, and each has a thread; one timer can \
         serve them all: clone it"
    );
}

#[cfg(not(feature = "log"))]
fn say(_alive: usize) {}
