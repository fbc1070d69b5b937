//! A cache whose entries expire when they have not been used for a while.
//!
//! Values live in a map, each beside the key of its timeout; the wheel holds the map's keys. Every
//! use moves the timeout, in place and in constant time. Time is an argument, so that the cache is
//! as easy to test as to use.
//!
//!     cargo run --example expiring_cache

use std::collections::HashMap;
use tickwheel::{Key, Mode, Wheel};

struct Cache<V> {
    entries: HashMap<String, (V, Key)>,
    idle: Wheel<String>,
    /// Ticks without use after which an entry expires.
    time_to_idle: u64,
}

impl<V> Cache<V> {
    fn new(time_to_idle: u64) -> Self {
        // All delays are alike and a round of 4096 ticks is longer: the case for a hashed wheel.
        let mode = Mode::hashed(4096).expect("a number of buckets in range");
        Self { entries: HashMap::new(), idle: Wheel::new(mode), time_to_idle }
    }

    fn insert(&mut self, now: u64, name: &str, value: V) {
        self.expire(now);
        let timeout = self.idle.schedule(now + self.time_to_idle, name.to_owned());
        if let Some((_, replaced)) = self.entries.insert(name.to_owned(), (value, timeout)) {
            self.idle.cancel(replaced);
        }
    }

    fn get(&mut self, now: u64, name: &str) -> Option<&V> {
        self.expire(now);
        let (value, timeout) = self.entries.get(name)?;
        self.idle.reschedule(*timeout, now + self.time_to_idle);
        Some(value)
    }

    /// Costs nothing unless something is due, so that every call can afford it.
    fn expire(&mut self, now: u64) {
        while let Some(expired) = self.idle.expire(now) {
            self.entries.remove(&expired.value);
        }
    }
}

fn main() {
    let mut cache = Cache::new(1_000);
    cache.insert(0, "apple", 1);
    cache.insert(0, "pear", 2);

    assert_eq!(cache.get(900, "apple"), Some(&1)); // used, so it stays until 1,900
    assert_eq!(cache.get(1_000, "pear"), None);
    assert_eq!(cache.get(1_899, "apple"), Some(&1));
    cache.insert(2_000, "apple", 3);
    assert_eq!(cache.get(2_999, "apple"), Some(&3));
    assert_eq!(cache.get(4_000, "apple"), None);
    assert!(cache.idle.is_empty());
    println!("nothing outlived its time");
}
