//! A cache without a thread expires as it promises, and as moka does.

use std::cell::Cell;
use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::rc::Rc;
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
            for turn in 0..50_000 {
                // Now and then, all expire at once.
                now += if turn % 500 == 0 { 60 } else { rng.u64(..3) };
                let key = rng.u32(..400);
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
                assert!(model.entries.len() <= cache.len(), "{lifetimes:?}, {mode}, {now}");
                if turn % 700 == 0 {
                    cache.clean_up(now);
                    assert_eq!(cache.len(), model.entries.len(), "{lifetimes:?}, {mode}, {now}");
                }
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
    assert_eq!((cache.len(), cache.get(49, &1)), (1, Some(&"used")));
    assert_eq!(cache.get(50, &1), None);
}

/// Counts how often it is dropped.
struct Counts(Rc<Cell<usize>>);

impl Drop for Counts {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

#[test]
fn no_call_pays_for_all_that_has_expired_and_none_returns_it() {
    const ENTRIES: usize = 200_000;
    for mode in modes() {
        let lifetimes = Lifetimes { after_write: Some(1_000), after_access: None };
        let mut cache = ExpiringCache::new(mode, lifetimes);
        let dropped = Rc::new(Cell::new(0));
        for key in 0..ENTRIES {
            cache.insert(0, key, Counts(Rc::clone(&dropped)));
        }
        let mut most = 0;
        let mut count = |call: &mut dyn FnMut() -> bool| {
            let before = dropped.get();
            assert!(!call(), "{mode}: what has expired is not returned");
            most = most.max(dropped.get() - before);
        };
        // From the end, because the first ones are dropped first.
        for key in (0..ENTRIES).rev().take(3_000) {
            match key % 3 {
                0 => count(&mut || cache.get(1_000, &key).is_some()),
                1 => count(&mut || cache.remove(1_000, &key).is_some()),
                _ => count(&mut || cache.insert(1_000, key, Counts(Rc::clone(&dropped))).is_some()),
            }
        }
        println!("{mode}: at most {most} of {ENTRIES} are dropped in one call");
        assert!(most <= 66, "{mode}: {most}, of 64 and the one that was asked for");
        let left = cache.len();
        assert!(left < ENTRIES - 30 * 3_000, "{mode}: {left} are left, too many");
    }
}

#[test]
fn an_entry_in_use_outlives_its_first_deadline_at_no_cost_for_others() {
    let lifetimes = Lifetimes { after_write: None, after_access: Some(20) };
    for mode in modes() {
        let mut cache = ExpiringCache::new(mode, lifetimes);
        (0..100).for_each(|key| _ = cache.insert(0, key, key));
        for now in (0..2_000).step_by(19) {
            assert_eq!(cache.get(now, &7), Some(&7), "{mode}, {now}");
        }
        assert_eq!((cache.len(), cache.get(2_020, &7)), (1, None), "{mode}");
    }
}

#[test]
fn memory_is_that_of_what_has_not_expired_without_a_thread() {
    let requests = requests().expect("the trace is bundled");
    let lifetimes = Lifetimes { after_write: Some(60_500), after_access: Some(10_500) };
    for mode in modes() {
        let mut cache = ExpiringCache::new(mode, lifetimes);
        let mut model = Model { lifetimes, entries: HashMap::new() };
        let (mut hits, mut second, mut most) = ([0; 2], 0, 0);
        for &(now, object) in &requests {
            // The lifetimes end in the middle of a second.
            if second != now {
                model.expire(now);
                second = now;
                // Some thousand operations a second drop all that has expired, without a thread.
                most = most.max(cache.len() - model.entries.len());
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
        println!("{mode}: at most {most} have expired and are there");
    }
}

/// However long the system holds the thread up: an answer is judged by the earliest and the latest
/// times at which the clock may have been read.
#[test]
fn hits_are_those_of_moka() {
    let mut requests = requests().expect("the trace is bundled");
    requests.retain(|&(time_ms, _)| time_ms < 40_000);
    // They end in the middle of a second of the trace.
    let [write, access] = [20_500, 5_500].map(Duration::from_millis);
    let second = Duration::from_millis(50);
    let [after_write, after_access] = [write, access].map(|it| it.mul_f64(second.as_secs_f64()));
    // When each cache wrote and last used an object.
    let mut known: [HashMap<u32, [RangeInclusive<Duration>; 2]>; 2] = Default::default();
    let (mut hits, mut unsure) = ([0; 2], 0);
    beside_moka(&requests, [write, access], second, |object, when, answers| {
        for ((known, is_hit), hits) in known.iter_mut().zip(answers).zip(&mut hits) {
            let is_there = |now: Duration, [written, used]: [Duration; 2]| {
                now < written + after_write && now < used + after_access
            };
            let (may_hit, must_hit) =
                known.get(&object).map_or((false, false), |[written, used]| {
                    let [latest, earliest] =
                        [[written.end(), used.end()], [written.start(), used.start()]]
                            .map(|at| at.map(|at| *at));
                    let may_hit = is_there(when.start().saturating_sub(CLOCKS), latest);
                    (may_hit, is_there(*when.end() + CLOCKS, earliest))
                });
            assert!(if is_hit { may_hit } else { !must_hit }, "{object} at {when:?}: {is_hit}");
            unsure += usize::from(may_hit != must_hit);
            let [written, used] =
                known.entry(object).or_insert_with(|| [when.clone(), when.clone()]);
            if !is_hit {
                *written = when.clone();
            }
            *used = when.clone();
            *hits += usize::from(is_hit);
        }
    });
    assert!(0 < hits[0] && hits[0] < requests.len());
    assert!(0 < unsure || hits[0] == hits[1], "hits of ours, and of moka's: {hits:?}");
}

/// Caches and test read different clocks, which may be so far apart.
const CLOCKS: Duration = Duration::from_millis(2);
