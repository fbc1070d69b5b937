//! A lock service: each lock is held by a lease, which its owner renews, and ends by itself if the
//! owner is gone.
//!
//!     cargo run --example leases

use std::time::Duration;
use tickwheel::{DelayMap, ScheduleErrorKind};

struct Locks(DelayMap<String, &'static str>);

impl Locks {
    fn lock(&mut self, name: &str, owner: &'static str) -> bool {
        let is_free = !self.0.contains_key(name);
        if is_free {
            self.0.insert(name.to_owned(), owner, LEASE);
        }
        is_free
    }

    fn renew(&mut self, name: &str, owner: &str) -> bool {
        self.0.get(name) == Some(&owner) && self.0.reset(name, 2 * LEASE)
    }
}

fn main() -> Result<(), ScheduleErrorKind> {
    let mut locks = Locks(DelayMap::new());
    assert!(locks.lock("printer", "ann") && locks.lock("scanner", "bob"));
    assert!(!locks.lock("printer", "bob"), "ann has it");
    assert!(locks.renew("printer", "ann") && !locks.renew("scanner", "ann"));
    assert!(locks.lock("door", "eve") && locks.0.remove("door") == Some("eve")); // unlocked

    while let Some(due) = locks.0.recv() {
        let due = due?;
        println!("{} lost the {}", due.value, due.key); // first bob, who did not renew
    }
    Ok(())
}

const LEASE: Duration = Duration::from_millis(20);
