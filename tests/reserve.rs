//! The pages of room that is made beforehand. In a process of its own, because its pages are
//! counted.

use memory_stats::memory_stats;
use tickwheel::{Mode, Wheel};

/// Half of them, because others may need memory more.
#[test]
fn the_system_provides_the_pages_of_room_when_it_is_made() {
    const TIMEOUTS: usize = 1 << 20;
    let resident = || memory_stats().expect("a system that tells").physical_mem;
    let before = resident();
    let wheel = Wheel::<u64>::with_capacity(Mode::default(), TIMEOUTS);
    let grown = resident() - before;
    assert!(wheel.stats().memory / 2 <= grown, "{grown} of {} bytes", wheel.stats().memory);
    assert!(24 * TIMEOUTS <= wheel.stats().memory);
}
