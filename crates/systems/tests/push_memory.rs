//! Memory of the messages that wait for users. In a process of its own, because it counts the bytes
//! of all.

use cap::Cap;
use std::alloc::System;
use std::sync::Arc;
use std::time::{Duration, Instant};
use systems::push_server::Hub;
use tickwheel::Mode;

#[global_allocator]
static ALLOCATED: Cap<System> = Cap::new(System, usize::MAX);

#[test]
fn a_text_for_all_is_there_once() {
    const USERS: usize = 500;
    const TEXTS: usize = 100;
    let (start, second) = (Instant::now(), Duration::from_secs(1));
    let mut hub = Hub::new(Mode::hierarchical(), start, 0, second, second);
    (0..USERS).for_each(|user| drop(hub.poll(start, &user.to_string(), 0)));
    let before = ALLOCATED.allocated();
    for _ in 0..TEXTS {
        let text: Arc<str> = "x".repeat(4_000).into();
        let reached = (0..USERS).filter(|user| hub.publish(start, &user.to_string(), &text));
        assert_eq!(reached.count(), USERS);
    }
    let bytes = ALLOCATED.allocated() - before;
    println!("{TEXTS} texts of 4,000 bytes for {USERS} users: {bytes} bytes");
    // A text once, and a number with a pointer for each user, in a queue that doubles.
    assert!(bytes < TEXTS * 5_000 + USERS * TEXTS * 64, "{bytes}");
}
