//! The allocator that counts, while it is asked to.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicIsize, Ordering::Relaxed};

/// The system's allocator, which can count the bytes that are live.
///
/// The crates that do this count always, which is more work than many an allocation, and would be
/// held against the subjects that allocate for each timeout. This one costs a look at a flag.
#[derive(Debug)]
pub(crate) struct Counting;

static COUNTS: AtomicBool = AtomicBool::new(false);
static LIVE: AtomicIsize = AtomicIsize::new(0);
static PEAK: AtomicIsize = AtomicIsize::new(0);

/// Runs `work`, and returns how many bytes are live of those that any thread has allocated since,
/// and the most that were live at once.
pub(crate) fn counted<R>(work: impl FnOnce() -> R) -> (R, [isize; 2]) {
    LIVE.store(0, Relaxed);
    PEAK.store(0, Relaxed);
    COUNTS.store(true, Relaxed);
    let result = work();
    COUNTS.store(false, Relaxed);
    (result, [LIVE.load(Relaxed), PEAK.load(Relaxed)])
}

#[inline]
fn add(bytes: isize) {
    if COUNTS.load(Relaxed) {
        let live = LIVE.fetch_add(bytes, Relaxed) + bytes;
        PEAK.fetch_max(live, Relaxed);
    }
}

// SAFETY: Everything is done by the system's allocator.
#[expect(unsafe_code, reason = "an allocator is not to be had without")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size() as isize);
        // SAFETY: As the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(layout.size() as isize);
        // SAFETY: As the caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        add(-(layout.size() as isize));
        // SAFETY: As the caller promises.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Large ones are moved by the kernel, so that both are not live at once.
        add(size as isize - layout.size() as isize);
        // SAFETY: As the caller promises.
        unsafe { System.realloc(place, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;
