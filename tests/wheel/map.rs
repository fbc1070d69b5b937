//! A wheel map is a hash map and a wheel in one, for all operations, even if its keys panic
//! or contradict themselves.

use crate::common::{Numbers, SameHashes, asked_or_long, long};
use crate::stamps::modes;
use crate::zoo::values::{Act, Herd, Odd};
use quickcheck::{Arbitrary, Gen, QuickCheck};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher, RandomState};
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use tickwheel::{Mode, WheelMap, steps};

in_each_mode! {
    a_replaced_key_counts_as_scheduled_anew,
    a_replaced_key_keeps_the_key_that_was_there,
    keys_are_found_by_what_they_borrow_as,
    a_value_is_made_once_and_changed_in_place,
    due_and_not_handed_out_it_can_be_replaced_moved_and_removed,
    a_drain_gives_all_and_a_leaked_one_loses_nothing,
    bounded_expiry_hands_out_the_same,
    a_hash_that_panics_changes_nothing,
    an_eq_that_panics_changes_nothing,
    hashes_that_differ_each_time_lose_nothing,
    an_eq_that_contradicts_itself_loses_nothing,
    equal_hashes_make_it_slow_and_not_wrong,
    a_hasher_may_look_into_the_map,
    a_key_that_panics_in_drop_leaves_the_map_in_order,
    a_value_that_panics_in_drop_leaves_the_map_in_order,
    retain_that_panics_keeps_the_others,
    ten_million_operations_with_few_live_do_not_grow,
    emptied_and_shrunk_it_holds_nothing,
}

/// A map sorted by deadline and order of scheduling, and a hash map of where each key is.
#[derive(Default)]
struct Model {
    now: u64,
    scheduled: u64,
    pending: BTreeMap<(u64, u64), u8>,
    places: HashMap<u8, ((u64, u64), u32)>,
}

impl Model {
    fn place(&mut self, key: u8, value: u32, deadline: u64) -> Option<u32> {
        self.scheduled += 1;
        let place = (deadline.max(self.now), self.scheduled);
        let before = self.places.insert(key, (place, value));
        self.pending.insert(place, key);
        before.map(|(place, value)| {
            self.pending.remove(&place);
            value
        })
    }

    fn remove(&mut self, key: u8) -> Option<u32> {
        let (place, value) = self.places.remove(&key)?;
        self.pending.remove(&place);
        Some(value)
    }

    fn expire(&mut self, now: u64) -> Option<(u8, u64, u32)> {
        self.now = self.now.max(now);
        let (&(deadline, _), &key) = self.pending.first_key_value()?;
        if now < deadline {
            return None;
        }
        Some((key, deadline, self.remove(key)?))
    }
}

#[derive(Clone, Debug)]
enum Op {
    Insert(u8, u64),
    Reschedule(u8, u64),
    Remove(u8),
    GetMut(u8),
    /// Expires until None.
    Expire(u64),
    /// Expires so many at most.
    ExpireSome(u64, u8),
    NextDeadline,
    /// Keeps the keys that are no multiple of this number.
    Retain(u8),
    Iter,
    Drain(u8),
    Clear,
    Reserve(u16),
    ShrinkToFit,
}

impl Arbitrary for Op {
    fn arbitrary(g: &mut Gen) -> Self {
        let key = u8::arbitrary(g) % if bool::arbitrary(g) { 8 } else { 255 };
        let small = u64::from(u8::arbitrary(g));
        let delay = match u8::arbitrary(g) % 8 {
            0 => 0,
            1 => u64::arbitrary(g) >> (u8::arbitrary(g) % 64),
            2 => small * 512,
            _ => small,
        };
        match u8::arbitrary(g) {
            0..=99 => Self::Insert(key, delay),
            100..=139 => Self::Reschedule(key, delay),
            140..=179 => Self::Remove(key),
            180..=194 => Self::GetMut(key),
            195..=209 => Self::Expire(small),
            210..=214 => Self::Expire(delay),
            215..=229 => Self::ExpireSome(small, key % 8),
            230..=236 => Self::NextDeadline,
            237..=240 => Self::Retain(2 + key % 5),
            241..=246 => Self::Iter,
            247 => Self::Drain(key),
            248 => Self::Clear,
            249..=250 => Self::Reserve(u16::from(key) * 8),
            _ => Self::ShrinkToFit,
        }
    }
}

/// A map beside its model.
struct Pair {
    map: WheelMap<u8, u32>,
    model: Model,
    values: u32,
}

impl Pair {
    fn expire(&mut self, now: u64) -> bool {
        let expired = self.map.expire(now).map(|due| (due.key, due.deadline, due.value));
        assert_eq!(expired, self.model.expire(now), "expire({now})");
        expired.is_some()
    }

    fn apply(&mut self, op: &Op) {
        let Self { map, model, .. } = self;
        let at = |delay: u64| model.now.saturating_add(delay);
        match *op {
            Op::Insert(key, delay) => {
                let deadline = at(delay);
                self.values += 1;
                let replaced = map.insert(key, self.values, deadline);
                assert_eq!(replaced, model.place(key, self.values, deadline));
            }
            Op::Reschedule(key, delay) => {
                let deadline = at(delay);
                let value = model.remove(key);
                assert_eq!(map.reschedule(&key, deadline), value.is_some());
                if let Some(value) = value {
                    model.place(key, value, deadline);
                }
            }
            Op::Remove(key) => assert_eq!(map.remove(&key), model.remove(key)),
            Op::GetMut(key) => {
                let wanted = model.places.get_mut(&key);
                assert_eq!(map.contains_key(&key), wanted.is_some());
                assert_eq!(map.deadline(&key), wanted.as_ref().map(|(place, _)| place.0));
                if let (Some(value), Some(wanted)) = (map.get_mut(&key), wanted) {
                    assert_eq!(*value, wanted.1);
                    self.values += 1;
                    (*value, wanted.1) = (self.values, self.values);
                }
            }
            Op::Expire(delay) => {
                let now = at(delay);
                while self.expire(now) {}
            }
            Op::ExpireSome(delay, most) => {
                let now = at(delay);
                for _ in 0..most {
                    self.expire(now);
                }
            }
            Op::NextDeadline => {
                let wanted = model.pending.first_key_value().map(|(place, _)| place.0);
                assert!(map.next_wake() <= wanted);
                assert_eq!(map.next_deadline(), wanted);
            }
            Op::Retain(number) => {
                map.retain(|key, _| key % number != 0);
                let left: Vec<_> =
                    model.places.keys().copied().filter(|key| key % number == 0).collect();
                for key in left {
                    model.remove(key);
                }
            }
            Op::Iter => {
                let mut all: Vec<_> =
                    map.iter().map(|(key, at, value)| (*key, at, *value)).collect();
                let wanted =
                    model.places.iter().map(|(&key, &(place, value))| (key, place.0, value));
                let mut wanted: Vec<_> = wanted.collect();
                all.sort_unstable();
                wanted.sort_unstable();
                assert_eq!((all, map.iter().len()), (wanted, model.places.len()));
            }
            Op::Drain(most) => {
                for drained in map.drain().take(most.into()) {
                    assert_eq!(model.remove(drained.key), Some(drained.value));
                }
                model.pending.clear();
                model.places.clear();
            }
            Op::Clear => {
                map.clear();
                model.pending.clear();
                model.places.clear();
            }
            Op::Reserve(additional) => map.reserve(additional.into()),
            Op::ShrinkToFit => map.shrink_to_fit(),
        }
        self.map.check();
        assert_eq!((self.map.len(), self.map.now()), (self.model.places.len(), self.model.now));
    }
}

#[test]
fn any_operations_give_what_a_hash_map_and_a_sorted_map_give() {
    fn agrees(ops: Vec<Op>) {
        for mode in modes() {
            let mut pair = Pair { map: WheelMap::new(mode), model: Model::default(), values: 0 };
            ops.iter().for_each(|op| pair.apply(op));
            while pair.expire(u64::MAX) {}
            assert!(pair.map.is_empty());
            pair.map.check();
        }
    }
    QuickCheck::new()
        .tests(asked_or_long("QUICKCHECK_TESTS", 15, 100))
        .quickcheck(agrees as fn(Vec<Op>));
}

/// The keys of all that is due, in the order in which they come.
fn take<K: Hash + Eq, V, S: BuildHasher>(map: &mut WheelMap<K, V, S>, now: u64) -> Vec<K> {
    std::iter::from_fn(|| map.expire(now)).map(|expired| expired.key).collect()
}

fn a_replaced_key_counts_as_scheduled_anew(mode: Mode) {
    let mut map = WheelMap::new(mode);
    for key in ["a", "b", "c"] {
        assert_eq!(map.insert(key, 1, 100), None);
    }
    assert_eq!(map.insert("a", 2, 100), Some(1));
    assert!(map.reschedule("b", 100));
    assert_eq!((map.len(), map.get("a")), (3, Some(&2)));
    assert_eq!(take(&mut map, 100), ["c", "a", "b"]);
    // Far away, and near again, through all that is between.
    map.insert("d", 1, 1 << 40);
    assert_eq!(map.insert("d", 2, 200), Some(1));
    assert_eq!(take(&mut map, 199), [""; 0]);
    assert_eq!(take(&mut map, 200), ["d"]);
    map.check();
}

/// Keys that are equal and can be told apart.
#[derive(Debug)]
struct Twin(u8, &'static str);

impl PartialEq for Twin {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Twin {}

impl Hash for Twin {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

fn a_replaced_key_keeps_the_key_that_was_there(mode: Mode) {
    let mut map = WheelMap::new(mode);
    map.insert(Twin(1, "first"), 1, 10);
    map.insert(Twin(1, "second"), 2, 20);
    let (key, value) = map.remove_entry(&Twin(1, "third")).expect("it is there");
    assert_eq!((key.1, value), ("first", 2));
}

fn keys_are_found_by_what_they_borrow_as(mode: Mode) {
    let mut map = WheelMap::new(mode);
    map.insert("a".to_owned(), 1, 10);
    assert!(map.contains_key("a") && !map.contains_key("b"));
    *map.get_mut("a").expect("it is there") += 1;
    assert!(map.reschedule("a", 20));
    assert_eq!((map.get("a"), map.deadline("a")), (Some(&2), Some(20)));
    assert_eq!(map.remove("a"), Some(2));
    assert_eq!(map.remove("a"), None);
    assert_eq!((map.get("a"), map.deadline("a")), (None, None));
    assert!(!map.reschedule("a", 30));
}

fn a_value_is_made_once_and_changed_in_place(mode: Mode) {
    let mut map = WheelMap::new(mode);
    for key in 0..100 {
        assert_eq!(*map.get_or_insert_with(key % 10, 10 + key % 10, || key), key % 10);
    }
    *map.get_or_insert_with(3, 99, || unreachable!("it is there")) += 1_000;
    for (key, deadline, value) in map.iter_mut() {
        assert_eq!(deadline, 10 + key);
        *value += 100;
    }
    map.check();
    let come: Vec<_> =
        std::iter::from_fn(|| map.expire(99)).map(|expired| (expired.key, expired.value)).collect();
    let wanted = (0..10).map(|key| (key, 100 + if key == 3 { 1_003 } else { key }));
    assert!(come.into_iter().eq(wanted));
}

fn due_and_not_handed_out_it_can_be_replaced_moved_and_removed(mode: Mode) {
    let mut map = WheelMap::new(mode);
    for key in 0..100 {
        map.insert(key, key, 10);
    }
    assert_eq!(map.expire(10).map(|expired| expired.key), Some(0));
    assert_eq!(map.insert(1, 7, 10), Some(1));
    assert!(map.reschedule(&2, 11));
    assert_eq!(map.remove(&3), Some(3));
    map.check();
    let due = take(&mut map, 10);
    assert_eq!((due.len(), due[0], due[96]), (97, 4, 1));
    assert_eq!(take(&mut map, 11), [2]);
}

fn a_drain_gives_all_and_a_leaked_one_loses_nothing(mode: Mode) {
    let mut map = WheelMap::new(mode);
    let fill = |map: &mut WheelMap<u64, u64>| {
        for key in 0..100 {
            map.insert(key, key, key * key);
        }
    };
    fill(&mut map);
    let mut keys: Vec<_> = map.drain().map(|drained| drained.key).collect();
    keys.sort_unstable();
    assert!(keys.into_iter().eq(0..100));
    fill(&mut map);
    assert_eq!(map.drain().take(3).count(), 3);
    assert!(map.is_empty());
    fill(&mut map);
    std::mem::forget(map.drain());
    assert!((0..100).all(|key| map.get(&key).is_none()));
    // The leaked timeouts keep their places; the new ones do not replace them.
    fill(&mut map);
    let keys = take(&mut map, 10_000);
    assert!(keys.into_iter().eq((0..100).flat_map(|key| [key, key])));
    map.check();
}

fn bounded_expiry_hands_out_the_same(mode: Mode) {
    let (mut numbers, many) = (Numbers(7), long(1_500, 3_000));
    let (mut map, mut bounded) = (WheelMap::new(mode), WheelMap::new(mode));
    for key in 0..many {
        let deadline = numbers.below(5_000);
        map.insert(key, (), deadline);
        bounded.insert(key, (), deadline);
    }
    let mut keys = Vec::new();
    while keys.len() < many {
        let mut work = 100;
        while let Some(expired) = bounded.expire_bounded(5_000, &mut work) {
            keys.push(expired.key);
        }
        bounded.check();
    }
    assert_eq!(keys, take(&mut map, 5_000));
}

/// A map of `keys` keys. Key n has the value n, and is due at tick 10 n.
fn odd(mode: Mode, keys: u64) -> (Herd, WheelMap<Odd, Rc<u64>>) {
    let (herd, mut map) = (Herd::default(), WheelMap::new(mode));
    for key in 0..keys {
        map.insert(herd.make(key), Rc::new(key), key * 10);
    }
    (herd, map)
}

fn panics<R>(call: impl FnOnce() -> R) {
    assert!(catch_unwind(AssertUnwindSafe(|| drop(call()))).is_err());
}

/// Every call that takes a key panics and changes nothing. Expiring calls no code of the key.
fn each_call_panics(mode: Mode, act: Act) {
    let (herd, mut map) = odd(mode, 100);
    let value = Rc::new(7);
    herd.panic_always(act);
    panics(|| map.insert(herd.make(50), Rc::clone(&value), 3));
    assert_eq!(Rc::strong_count(&value), 1, "it was dropped with the call");
    panics(|| map.remove(&herd.make(51)));
    panics(|| map.reschedule(&herd.make(52), 3));
    panics(|| map.get(&herd.make(53)).is_some());
    panics(|| map.get_mut(&herd.make(53)).is_some());
    panics(|| map.deadline(&herd.make(54)));
    map.check();
    // The table is made anew, without a look at the keys.
    map.reserve(10_000);
    map.shrink_to_fit();
    map.retain(|key, _| key.number % 2 == 0);
    map.check();
    let values: Vec<_> = std::iter::from_fn(|| map.expire(1_000)).map(|due| *due.value).collect();
    assert!(values.into_iter().eq((0..100).step_by(2)));
    map.check();
}

fn a_hash_that_panics_changes_nothing(mode: Mode) {
    each_call_panics(mode, Act::Hash);
}

fn an_eq_that_panics_changes_nothing(mode: Mode) {
    each_call_panics(mode, Act::Eq);
}

/// Everything inserted comes out once, by deadline, whatever is found meanwhile.
fn nothing_is_lost(mode: Mode, answer: fn(Act, usize, bool) -> bool) {
    let (herd, mut map) = odd(mode, 0);
    herd.answer(answer);
    let mut numbers = Numbers(3);
    let (mut came, mut count) = (0, 0);
    for turn in 0..if cfg!(debug_assertions) { long(2, 8) } else { 40_u64 } {
        for _ in 0..100 {
            let key = numbers.below(50);
            let deadline = map.now() + numbers.below(200);
            count += 1;
            came += usize::from(map.insert(herd.make(key), Rc::new(key), deadline).is_some());
            map.reschedule(&herd.make(key), deadline + 1);
            came += usize::from(map.remove(&herd.make(numbers.below(50))).is_some());
            map.check();
        }
        let mut last = 0;
        while let Some(due) = map.expire(turn * 100) {
            assert!(last <= due.deadline && due.deadline <= turn * 100);
            last = due.deadline;
            came += 1;
        }
    }
    came += take(&mut map, u64::MAX).len();
    assert_eq!((came, map.len()), (count, 0));
    map.check();
    map.shrink_to_fit();
    assert_eq!((map.stats().memory, herd.alive()), (0, 0));
}

fn hashes_that_differ_each_time_lose_nothing(mode: Mode) {
    nothing_is_lost(mode, |act, _, truth| act == Act::Eq && truth);
}

fn an_eq_that_contradicts_itself_loses_nothing(mode: Mode) {
    nothing_is_lost(mode, |act, nth, _| act == Act::Hash || nth % 3 == 0);
    nothing_is_lost(mode, |_, _, _| true);
    nothing_is_lost(mode, |act, _, _| act == Act::Hash);
}

#[derive(Default)]
struct Same;

impl Hasher for Same {
    fn write(&mut self, _: &[u8]) {}

    fn finish(&self) -> u64 {
        u64::MAX
    }
}

fn equal_hashes_make_it_slow_and_not_wrong(mode: Mode) {
    let mut map = WheelMap::with_hasher(mode, BuildHasherDefault::<Same>::default());
    for key in 0..500_u64 {
        map.insert(key, key, key % 7);
    }
    assert_eq!(map.insert(300, 0, 0), Some(300));
    assert!((0..500).all(|key| map.contains_key(&key)));
    map.check();
    assert_eq!(take(&mut map, 0).last(), Some(&300));
    assert_eq!(take(&mut map, 7).len(), 500 - 500_usize.div_ceil(7) - 1);
    map.check();
}

/// Reads the map that it hashes for, unless the map is being changed.
struct Looks<'a>(&'a RefCell<Option<WheelMap<u64, u64, Self>>>, RandomState, &'a Cell<u32>);

impl BuildHasher for Looks<'_> {
    type Hasher = <RandomState as BuildHasher>::Hasher;

    fn build_hasher(&self) -> Self::Hasher {
        let looks = self.2.replace(self.2.get() + 1);
        if let (0, Ok(map)) = (looks % 2, self.0.try_borrow()) {
            if let Some(map) = &*map {
                assert_eq!(map.get(&7), Some(&7));
            }
        }
        self.1.build_hasher()
    }
}

fn a_hasher_may_look_into_the_map(mode: Mode) {
    let (place, looks) = (RefCell::new(None), Cell::new(0));
    let mut map = WheelMap::with_hasher(mode, Looks(&place, RandomState::new(), &looks));
    map.insert(7, 7, 7);
    *place.borrow_mut() = Some(map);
    looks.set(0);
    let map = place.borrow();
    let map = map.as_ref().expect("it is there");
    assert_eq!((map.get(&7), map.deadline(&7)), (Some(&7), Some(7)));
    assert_eq!(looks.get(), 4);
    map.check();
}

fn a_key_that_panics_in_drop_leaves_the_map_in_order(mode: Mode) {
    let herd = Herd::default();
    let key = |number, panics| if panics { herd.bomb(number) } else { herd.make(number) };
    // What a key is found by does not count.
    let found = |number| ManuallyDrop::new(herd.make(number));
    let mut map = WheelMap::new(mode);
    for number in 0..100 {
        map.insert(key(number, number == 50), number, 10);
    }
    // The map has this key already, so it drops the new one, which panics.
    panics(|| map.insert(key(7, true), 700, 20));
    map.check();
    assert_eq!(
        (map.get(&*found(7)), map.deadline(&*found(7)), herd.dropped()),
        (Some(&700), Some(20), 1)
    );
    panics(|| map.remove(&*found(50)));
    map.check();
    assert_eq!((map.get(&*found(50)), map.len(), herd.dropped()), (None, 99, 2));
    map.insert(key(50, true), 51, 10);
    panics(|| map.clear());
    map.check();
    assert_eq!((map.len(), herd.dropped()), (0, 102));
    map.insert(key(50, false), 52, 10);
    assert_eq!(map.remove(&*found(50)), Some(52));
}

fn a_value_that_panics_in_drop_leaves_the_map_in_order(mode: Mode) {
    let herd = Herd::default();
    let value = |number, panics| if panics { herd.bomb(number) } else { herd.make(number) };
    let mut map = WheelMap::new(mode);
    for number in 0..100 {
        map.insert(number, value(number, number % 10 == 0), 10);
    }
    panics(|| map.insert(10, value(10, false), 10));
    panics(|| map.remove(&20));
    panics(|| map.expire(10));
    map.check();
    assert_eq!((map.len(), herd.dropped()), (98, 3));
    panics(|| map.retain(|key, _| key % 30 != 0));
    map.check();
    assert!((96..98).contains(&map.len()) && map.contains_key(&99));
    std::mem::forget(std::mem::take(&mut map));
}

fn retain_that_panics_keeps_the_others(mode: Mode) {
    let (_, mut map) = odd(mode, 100);
    let mut asked = 0;
    panics(|| {
        map.retain(|_, _| {
            asked += 1;
            assert!(asked < 50, "as it should");
            false
        });
    });
    assert_eq!(map.len(), 51);
    map.check();
    assert_eq!(take(&mut map, 1_000).len(), 51);
}

/// Promise 9, for the map and its table: memory stays within a factor of the most live timeouts.
fn ten_million_operations_with_few_live_do_not_grow(mode: Mode) {
    // A debug build does a five-hundredth of the operations, because each takes ten times as long.
    let rounds = if cfg!(debug_assertions) { 5_000 } else { 2_500_000 };
    let mut map = WheelMap::with_hasher(mode, SameHashes::default());
    let mut numbers = Numbers(11);
    let mut round = |rounds: u64| {
        for _ in 0..rounds {
            // Four operations. The keys never come again.
            let key = numbers.draw();
            map.insert(key, key, map.now() + 1 + numbers.below(300));
            map.reschedule(&key, map.now() + 1 + numbers.below(300));
            if numbers.below(2) == 0 {
                map.remove(&key);
            }
            let now = map.now() + 1;
            while map.expire(now).is_some() {}
            assert!(map.len() <= 300);
        }
    };
    let mut first = 0;
    let begun = allocation_counter::measure(|| round(5_000));
    first += begun.bytes_current;
    let then = allocation_counter::measure(|| round(rounds));
    let bound = 256 << 10;
    assert!(first <= bound, "{first} bytes");
    assert!(first + then.bytes_max as i64 <= bound, "{first} bytes, and {} more", then.bytes_max);
    map.check();
}

fn emptied_and_shrunk_it_holds_nothing(mode: Mode) {
    let mut map = WheelMap::new(mode);
    let held = allocation_counter::measure(|| {
        for key in 0..10_000_u64 {
            map.insert(key, key, key);
        }
        assert!((0..10_000).all(|key| map.remove(&key).is_some()));
        map.shrink_to_fit();
    });
    assert!(held.bytes_max > 10_000 * 8 * 3);
    assert_eq!((held.bytes_current, map.stats().memory), (0, 0));
    let held = allocation_counter::measure(|| {
        for key in 0..10_000_u64 {
            map.insert(key, key, key);
        }
    });
    assert_eq!(held.bytes_current, map.stats().memory as i64, "the map knows what it allocated");
}

/// No address space has room for so many values of 64 KiB.
#[test]
fn a_map_shows_its_keys_and_values() {
    let mut map = WheelMap::new(Mode::default());
    map.insert("ann", 1, 10);
    assert_eq!(format!("{map:?}"), r#"{"ann": 1}"#);
}

#[test]
fn a_map_has_its_mode_and_the_room_that_was_made() {
    for mode in modes() {
        let mut map = WheelMap::<u64, u64>::new(mode);
        assert_eq!(map.mode(), mode);
        let before = map.stats().memory;
        map.reserve(1_000);
        assert!(before + 16_000 < map.stats().memory);
    }
}

#[test]
fn clearing_few_of_what_were_many_does_not_look_at_all_names() {
    let mut map = WheelMap::new(Mode::default());
    (0..100_000).for_each(|key| _ = map.insert(key, (), 1 << 40));
    (10..100_000).for_each(|key| _ = map.remove(&key));
    let before = steps();
    map.clear();
    assert!(steps() - before < 1_000, "{}", steps() - before);
}

#[test]
fn a_map_reserves_nothing_for_names_if_values_have_no_room() {
    let mut map = WheelMap::<u64, [u8; 1 << 16]>::new(Mode::hierarchical());
    map.reserve(u32::MAX as usize);
    assert_eq!(map.stats().memory, 0);
}

#[test]
fn room_is_made_in_few_steps_however_much_it_is() {
    let mut map = WheelMap::with_hasher(Mode::hierarchical(), SameHashes::default());
    (0..5_000_u64).for_each(|key| _ = map.insert(key, key, 7));
    let before = steps();
    map.reserve(1 << 20);
    assert!(steps() - before <= 5_000, "the keys stay where they are");
    map.check();
}
