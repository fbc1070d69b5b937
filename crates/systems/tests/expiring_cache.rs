//! A cache without a thread expires as it promises, and as moka does.

use std::collections::HashMap;
use std::time::Duration;
use systems::expiring_cache::{ExpiringCache, Lifetimes, beside_moka, requests};
use tickwheel::Mode;

/// A map that looks at all it has.
struct Model {
    lifetimes: Lifetimes,
    /// The ticks of the write and of the last use.
    entries: HashMap<u32, (u64, u64)>,
}

impl Model {
    fn expire(&mut self, now: u64) {
        let Lifetimes { after_write, after_access } = self.lifetimes;
        let lives = |since: u64, lifetime: Option<u64>| {
            lifetime.is_none_or(|lifetime| now - since < lifetime)
        };
        self.entries.retain(|_, &mut (written, used)| {
            lives(written, after_write) && lives(used, after_access)
        });
    }

    fn get(&mut self, now: u64, key: u32) -> bool {
        self.entries.get_mut(&key).map(|(_, used)| *used = now).is_some()
    }
}

fn modes() -> [Mode; 2] {
    [Mode::hierarchical(), Mode::hashed(64).expect("a power of two")]
}

#[test]
fn each_entry_lives_as_long_as_a_map_that_looks_at_all_says() {
    let lifetimes = [(None, None), (Some(50), None), (None, Some(20)), (Some(50), Some(20))];
    for (after_write, after_access) in lifetimes {
        let lifetimes = Lifetimes { after_write, after_access };
        for mode in modes() {
            let mut rng = fastrand::Rng::with_seed(1);
            let mut cache = ExpiringCache::new(mode, lifetimes);
            let mut model = Model { lifetimes, entries: HashMap::new() };
            let mut now = 0;
            for _ in 0..50_000 {
                now += rng.u64(..3);
                let key = rng.u32(..40);
                model.expire(now);
                let was_there = model.entries.contains_key(&key);
                match rng.u32(..10) {
                    0..2 => {
                        model.entries.insert(key, (now, now));
                        assert_eq!(cache.insert(now, key, key).is_some(), was_there);
                    }
                    2 => {
                        model.entries.remove(&key);
                        assert_eq!(cache.remove(now, &key).is_some(), was_there);
                    }
                    _ => assert_eq!(cache.get(now, &key).is_some(), model.get(now, key)),
                }
                assert_eq!(cache.len(now), model.entries.len(), "{lifetimes:?}, {mode}, {now}");
            }
        }
    }
}

#[test]
fn an_entry_expires_at_its_tick_and_not_before() {
    let lifetimes = Lifetimes { after_write: Some(50), after_access: Some(20) };
    let mut cache = ExpiringCache::new(Mode::hierarchical(), lifetimes);
    cache.insert(0, 1, "used");
    cache.insert(0, 2, "not used");
    assert!(cache.get(19, &1).is_some() && cache.get(38, &1).is_some());
    assert_eq!((cache.len(38), cache.get(49, &1)), (1, Some(&"used")));
    assert_eq!(cache.get(50, &1), None);
}

#[test]
fn memory_is_that_of_what_has_not_expired_without_a_thread() {
    let requests = requests().expect("the trace is bundled");
    let lifetimes = Lifetimes { after_write: Some(60_500), after_access: Some(10_500) };
    for mode in modes() {
        let mut cache = ExpiringCache::new(mode, lifetimes);
        let mut model = Model { lifetimes, entries: HashMap::new() };
        let (mut hits, mut second) = ([0; 2], 0);
        for &(now, object) in &requests {
            // The lifetimes end in the middle of a second.
            if second != now {
                model.expire(now);
                second = now;
                assert_eq!(cache.len(now), model.entries.len());
            }
            match model.get(now, object) {
                true => hits[0] += 1,
                false => _ = model.entries.insert(object, (now, now)),
            }
            match cache.get(now, &object) {
                Some(()) => hits[1] += 1,
                None => _ = cache.insert(now, object, ()),
            }
        }
        assert_eq!(hits[0], hits[1], "{mode}");
    }
}

#[test]
fn hits_are_those_of_moka() {
    let mut requests = requests().expect("the trace is bundled");
    requests.retain(|&(time_ms, _)| time_ms < 40_000);
    // They end in the middle of a second of the trace.
    let lifetimes = [20_500, 5_500].map(Duration::from_millis);
    // If the system holds the thread up for half of such a second, one cache may see an entry that
    // the other does not: then again, with longer ones.
    let differ = |millis| {
        let [ours, moka] = beside_moka(&requests, lifetimes, Duration::from_millis(millis));
        (ours != moka).then_some((ours, moka))
    };
    let found: Vec<_> = [50, 100, 200, 400].into_iter().map_while(differ).collect();
    assert!(found.len() < 4, "hits of ours, and of moka's: {found:?}");
}
