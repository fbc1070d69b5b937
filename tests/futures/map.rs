//! The delay map: what it has in common with a queue and a channel, and what it alone has.

use crate::help::{Hand, Manual, ms};
use crate::zoo::values::{Herd, Odd};
use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, RandomState};
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};
use tickwheel::{DelayMap, Mode, Timer};

#[path = "shared.rs"]
mod shared;

in_each_mode! {
    values_are_changed_in_place,
    replaced_it_comes_at_its_new_time,
    emptied_in_any_way_it_wakes_who_waits,
    a_key_that_panics_in_drop_hides_no_wake_up,
    a_key_that_panics_in_drop_takes_its_value_with_it,
    a_hasher_may_call_the_timer,
    it_allocates_a_wheel_and_a_table_alone,
    room_is_made_once_and_not_beyond_memory,
}

/// Each number is under itself at first.
struct Kind(DelayMap<u32, u32>);
type KindKey = u32;

impl Kind {
    fn insert(&mut self, value: u32, delay: Duration) -> u32 {
        assert_eq!(self.0.insert(value, value, delay), None);
        value
    }

    fn insert_at(&mut self, value: u32, deadline: Instant) -> u32 {
        assert_eq!(self.0.insert_at(value, value, deadline), None);
        value
    }

    fn remove(&mut self, key: u32) -> Option<u32> {
        self.0.remove(&key)
    }

    fn reset(&mut self, key: u32, delay: Duration) -> bool {
        self.0.reset(&key, delay)
    }

    fn reset_at(&mut self, key: u32, deadline: Instant) -> bool {
        self.0.reset_at(&key, deadline)
    }
}

impl Deref for Kind {
    type Target = DelayMap<u32, u32>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for Kind {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

fn on(timer: &Timer) -> Kind {
    Kind(DelayMap::with_timer(timer))
}

fn replace(map: &mut Kind, key: u32, value: u32, delay: Duration) -> (Option<u32>, u32) {
    (map.0.insert(key, value, delay), key)
}

/// What can be asked about a value, and about the next, is true.
fn check(map: &mut Kind, key: u32, held: Option<(u32, Instant)>, next: Option<Instant>) {
    assert_eq!((map.get(&key).copied(), map.deadline(&key)), held.unzip());
    assert_eq!(map.contains_key(&key), held.is_some());
    assert_eq!(map.next_deadline(), next);
    let all: HashMap<_, _> = map.iter().map(|(key, at, value)| (key, (*value, at))).collect();
    let held = held.map(|(value, at)| (value, Some(at)));
    assert_eq!((all.get(&key).copied(), all.len()), (held, map.len()));
}

/// What a poll gives, as key and value.
fn poll<S>(map: &mut DelayMap<u32, u32, S>, hand: &Hand) -> Poll<Option<(u32, u32)>> {
    map.poll_expired(&mut hand.context())
        .map(|due| due.map(|due| due.expect("the timer runs")).map(|due| (due.key, due.value)))
}

fn values_are_changed_in_place(mode: Mode) {
    let manual = Manual::new(mode);
    let mut map = DelayMap::with_timer(&manual.timer);
    map.insert("soon", 1, ms(1));
    *map.get_mut("soon").expect("it waits") += 10;
    assert_eq!(map.get_mut("late"), None);
    assert_eq!(format!("{map:?}"), r#"{"soon": 11}"#);
    map.insert("never", 2, Duration::MAX);
    for (_, deadline, value) in map.iter_mut() {
        *value *= if deadline.is_some() { 2 } else { 3 };
    }
    assert_eq!((map.get("soon"), map.get("never")), (Some(&22), Some(&6)));
}

fn replaced_it_comes_at_its_new_time(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    let mut map = DelayMap::with_timer(&manual.timer);
    for (old, new) in [(1_000, 10), (10, 20)] {
        map.insert(1, 1, ms(old));
        assert_eq!(poll(&mut map, &hand), Poll::Pending);
        assert_eq!(map.insert(1, 2, ms(new)), Some(1));
        manual.advance(new - 1);
        assert_eq!(poll(&mut map, &hand), Poll::Pending);
        hand.woken();
        manual.advance(1);
        assert_eq!((hand.woken(), poll(&mut map, &hand)), (1, Poll::Ready(Some((1, 2)))));
        assert_eq!(poll(&mut map, &hand), Poll::Ready(None));
    }
    // In the past, it wakes the task that waits.
    map.insert(1, 1, ms(1_000));
    assert_eq!(poll(&mut map, &hand), Poll::Pending);
    assert_eq!(map.insert_at(1, 2, manual.at(0)), Some(1));
    assert_eq!((hand.woken(), poll(&mut map, &hand)), (1, Poll::Ready(Some((1, 2)))));
}

fn emptied_in_any_way_it_wakes_who_waits(mode: Mode) {
    let ways: [fn(&mut DelayMap<u32, u32>); 5] = [
        |map| assert_eq!(map.remove_entry(&1), Some((1, 1))),
        |map| assert_eq!(map.remove(&1), Some(1)),
        |map| map.clear(),
        |map| map.retain(|_, _| false),
        |map| assert!(map.drain().map(|(key, _, value)| (key, value)).eq([(1, 1)])),
    ];
    for empty in ways {
        let (manual, hand) = (Manual::new(mode), Hand::new());
        let mut map = DelayMap::with_timer(&manual.timer);
        map.insert(1, 1, ms(10));
        assert_eq!(poll(&mut map, &hand), Poll::Pending);
        empty(&mut map);
        assert_eq!((hand.woken(), poll(&mut map, &hand)), (1, Poll::Ready(None)));
        assert!(map.is_empty() && !map.contains_key(&1));
    }
}

fn bomb(number: u64, panics: bool) -> Odd {
    let herd = Herd::default();
    if panics { herd.bomb(number) } else { herd.make(number) }
}

fn a_key_that_panics_in_drop_hides_no_wake_up(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    let mut map = DelayMap::with_timer(&manual.timer);
    map.insert(bomb(1, false), 1, ms(1_000));
    assert!(map.poll_expired(&mut hand.context()).is_pending());
    let call = AssertUnwindSafe(|| map.insert(bomb(1, true), 2, ms(10)));
    assert!(catch_unwind(call).is_err());
    manual.advance(10);
    assert_eq!(hand.woken(), 1);
    let due = map.recv().expect("there is one").expect("it runs");
    assert_eq!((due.key.number, due.value), (1, 2));
    // The last one goes with a panic, and who waits learns that it went.
    map.insert(bomb(2, true), 1, ms(10));
    assert!(map.poll_expired(&mut hand.context()).is_pending());
    assert!(catch_unwind(AssertUnwindSafe(|| map.remove(&bomb(2, false)))).is_err());
    assert_eq!((hand.woken(), map.len()), (1, 0));
}

/// Nobody gets it, so it is dropped.
fn a_key_that_panics_in_drop_takes_its_value_with_it(mode: Mode) {
    let manual = Manual::new(mode);
    let mut map = DelayMap::with_timer(&manual.timer);
    let value = Arc::new(());
    map.insert(bomb(1, true), Arc::clone(&value), ms(10));
    assert!(catch_unwind(AssertUnwindSafe(|| map.remove(&bomb(1, false)))).is_err());
    assert_eq!(Arc::strong_count(&value), 1);
    map.insert(bomb(2, false), Arc::clone(&value), ms(10));
    let call = AssertUnwindSafe(|| map.insert(bomb(2, true), Arc::new(()), ms(10)));
    assert!(catch_unwind(call).is_err());
    assert_eq!(Arc::strong_count(&value), 1);
}

/// A hasher that uses the timer of its own map.
struct Calls(Timer, RandomState);

impl BuildHasher for Calls {
    type Hasher = <RandomState as BuildHasher>::Hasher;

    fn build_hasher(&self) -> Self::Hasher {
        let timeout = self.0.schedule(ms(1_000_000), || {}).expect("it runs");
        assert!(self.0.next_deadline().is_some() && timeout.cancel());
        self.1.build_hasher()
    }
}

fn a_hasher_may_call_the_timer(mode: Mode) {
    let (manual, hand) = (Manual::built(mode, |builder| builder.shards(1)), Hand::new());
    let hasher = Calls(manual.timer.clone(), RandomState::new());
    let mut map = DelayMap::with_hasher(&manual.timer, hasher);
    map.insert(1, 1, ms(10));
    assert_eq!(poll(&mut map, &hand), Poll::Pending);
    assert_eq!(map.insert(1, 2, ms(5)), Some(1));
    assert!(map.reset(&1, ms(7)) && map.contains_key(&1));
    manual.advance(7);
    assert_eq!((hand.woken(), poll(&mut map, &hand)), (1, Poll::Ready(Some((1, 2)))));
}

fn room_is_made_once_and_not_beyond_memory(mode: Mode) {
    let timer = &Manual::new(mode).timer;
    let mut map = DelayMap::<u64, u64>::with_timer(timer);
    let mut bytes = |room| allocation_counter::measure(|| map.reserve(room)).bytes_current;
    let each = size_of::<u64>() as i64;
    assert!(each * 10_000 <= bytes(10_000));
    assert_eq!((bytes(10_000), bytes(usize::MAX)), (0, 0));
    map.insert(7, 7, ms(10));
    assert_eq!(map.len(), 1);
}

fn it_allocates_a_wheel_and_a_table_alone(mode: Mode) {
    let (manual, hand) = (Manual::new(mode), Hand::new());
    let held = allocation_counter::measure(|| {
        // Its hashes are the same in each run, and so are its allocations.
        let hasher = BuildHasherDefault::<DefaultHasher>::default();
        let mut map = DelayMap::with_hasher(&manual.timer, hasher);
        for key in 0..1_000 {
            map.insert(key, key, ms(1_000_000));
        }
        let rounds = |map: &mut DelayMap<u32, u32, _>| {
            for key in 1_000..5_000 {
                map.insert(key, key, ms(50));
                assert_eq!(poll(map, &hand), Poll::Pending);
                assert!(map.reset(&key, ms(10)));
                assert_eq!(map.remove(&key), Some(key));
            }
        };
        rounds(&mut map);
        let allocations = allocation_counter::measure(|| rounds(&mut map)).count_total;
        // One key in twenty finds its line of the table full.
        assert!(allocations < 400, "{allocations} allocations");
        map.clear();
        map.shrink_to_fit();
        std::mem::forget(map);
    });
    // What the timer has of its own for one timeout.
    assert!(held.bytes_current < 20_000, "{} bytes", held.bytes_current);
}

const EMPTY: Poll<Option<u32>> = Poll::Ready(None);
