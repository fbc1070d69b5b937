//! Memory of a purgatory after its operations have ended. In a process of its own, because it
//! counts the bytes of all.

use cap::Cap;
use std::alloc::System;
use std::time::Duration;
use systems::purgatory::{End, Operation, Purgatory};
use tickwheel::Timer;

#[global_allocator]
static ALLOCATED: Cap<System> = Cap::new(System, usize::MAX);

/// Waits for what never comes, and holds a kilobyte meanwhile.
struct Holds(#[expect(dead_code, reason = "it is there to be counted")] Box<[u8; 1_024]>);

impl Operation for Holds {
    fn is_satisfied(&mut self) -> bool {
        false
    }

    fn complete(self, _: End) {}
}

#[test]
fn what_was_cancelled_leaves_no_memory() {
    const OPERATIONS: u32 = 100_000;
    let timer = Timer::new();
    let purgatory = Purgatory::new(&timer, 1_000);
    let before = ALLOCATED.allocated();
    let mut figures = Vec::new();
    for _ in 0..3 {
        for number in 0..OPERATIONS {
            let operation = Holds(Box::new([0; 1_024]));
            let keys = [number % 1_000, 1_000 + number];
            let watched = purgatory.complete_or_watch(operation, keys, Duration::from_secs(3_600));
            assert_eq!(watched.ok(), Some(false));
        }
        let most = ALLOCATED.allocated() - before;
        for key in 0..1_000 {
            purgatory.cancel(&key);
        }
        assert_eq!((purgatory.delayed(), timer.pending()), (0, 0));
        figures.push((most, ALLOCATED.allocated() - before, purgatory.watched()));
    }
    println!("bytes while they wait, bytes after they were cancelled, entries: {figures:?}");
    let (most, first, _) = figures[0];
    // The wheels keep room for as many timeouts as there were, some 50 bytes each.
    assert!(first < most / 16, "{figures:?}");
    for (_, after, watched) in figures {
        assert!(after < first + 100_000, "it grows");
        assert!(watched <= 2 * 1_001, "{watched} entries");
    }
}
