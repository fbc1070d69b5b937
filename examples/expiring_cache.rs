//! A cache whose entries expire when they have not been used for a while.
//!
//! Every use moves the entry's deadline, in place and in constant time. Time is an argument, so
//! that the cache is as easy to test as to use.
//!
//!     cargo run --example expiring_cache

use tickwheel::{Mode, WheelMap};

struct Cache<V> {
    entries: WheelMap<String, V>,
    /// Ticks without use after which an entry expires.
    time_to_idle: u64,
}

impl<V> Cache<V> {
    fn insert(&mut self, now: u64, name: &str, value: V) {
        while self.entries.expire(now).is_some() {}
        self.entries.insert(name.to_owned(), value, now + self.time_to_idle);
    }

    fn get(&mut self, now: u64, name: &str) -> Option<&V> {
        // Costs next to nothing unless something is due, so that every call can afford it.
        while self.entries.expire(now).is_some() {}
        self.entries.reschedule(name, now + self.time_to_idle);
        self.entries.get(name)
    }
}

fn main() {
    let mut cache = Cache { entries: WheelMap::new(Mode::hierarchical()), time_to_idle: 1_000 };
    cache.insert(0, "apple", 1);
    cache.insert(0, "pear", 2);
    assert_eq!(cache.get(900, "apple"), Some(&1)); // used, so it stays until 1,900
    assert_eq!(cache.get(1_000, "pear"), None);
    cache.insert(1_800, "apple", 3); // replaced, so it stays until 2,800
    assert_eq!(cache.get(2_799, "apple"), Some(&3));
    assert_eq!(cache.get(4_000, "apple"), None);
    println!("nothing outlived its time");
}
