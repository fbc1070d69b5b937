//! Wheels and maps cost what their documentation says, whatever was done before, in every mode.

use crate::common::SameHashes;
use crate::kept::{Subject, deadline, grows_in_steps};
use std::hint::black_box;
use tickwheel::{Key, Mode, Wheel, WheelMap};

/// A wheel, and the keys of its timeouts by number.
struct Keyed {
    wheel: Wheel<u64>,
    keys: Vec<Key>,
}

impl Keyed {
    /// Returns the key that a number has now.
    fn set(&mut self, number: u64, key: Key) {
        match self.keys.get_mut(number as usize) {
            Some(old) => *old = key,
            None => self.keys.push(key),
        }
    }
}

fn within(deadline: u64) -> std::ops::RangeInclusive<u64> {
    deadline..=deadline + deadline / 32
}

impl Subject for Keyed {
    const SOURCES: &[&str] = &["src/wheel/mod.rs", "src/wheel/within.rs"];
    const LEFT_OUT: &[(&str, &str)] =
        &[("new", "it makes one"), ("with_capacity", "it makes one, and reserves")];
    const MEAN: f64 = LAST_CHUNK;

    fn new(mode: Mode) -> Self {
        Self { wheel: Wheel::new(mode), keys: Vec::new() }
    }

    fn put(&mut self, deadline: u64, number: u64) {
        let key = self.wheel.schedule(deadline, number);
        self.set(number, key);
    }

    fn put_within(&mut self, deadline: u64, number: u64) {
        let key = self.wheel.schedule_within(within(deadline), number);
        self.set(number, key);
    }

    fn take(&mut self, number: u64) {
        if let Some(&key) = self.keys.get(number as usize) {
            self.wheel.cancel(key);
        }
    }

    fn shift(&mut self, number: u64, deadline: u64) {
        self.wheel.reschedule(self.keys[number as usize], deadline);
    }

    fn drive(&mut self, now: u64, work: &mut usize) -> bool {
        self.wheel.expire_bounded(now, work).is_some()
    }

    fn ask(&mut self) {
        black_box(self.wheel.next_deadline());
    }

    fn empty(&mut self) {
        self.wheel.clear();
    }

    fn forget(&mut self) {
        self.keys = Vec::new();
    }

    fn len(&self) -> usize {
        self.wheel.len()
    }

    fn call(&mut self, name: &str, turn: u64, number: u64) -> bool {
        let (wheel, key) = (&mut self.wheel, self.keys.get(number as usize).copied());
        let tick = wheel.now() + deadline(turn);
        match name {
            "schedule" => _ = black_box(wheel.schedule(tick, turn)),
            "schedule_within" => _ = black_box(wheel.schedule_within(within(tick), turn)),
            "cancel" => _ = key.map(|key| wheel.cancel(key)),
            "reschedule" => _ = key.map(|key| wheel.reschedule(key, tick)),
            "reschedule_within" => {
                // It stays if it is in the range already.
                let range = if turn % 2 == 0 { within(tick) } else { within(tick + (1 << 41)) };
                _ = key.map(|key| wheel.reschedule_within(key, range));
            }
            "expire" => _ = wheel.expire((1 << 46) + turn),
            "expire_bounded" => _ = wheel.expire_bounded((1 << 46) + turn, &mut 1),
            // One operation goes before each, or the answer would be known.
            "next_deadline" => {
                disturb(wheel, key, turn);
                _ = wheel.next_deadline();
            }
            "next_deadline_bounded" => {
                disturb(wheel, key, turn);
                _ = wheel.next_deadline_bounded(&mut 1);
            }
            "peek" => {
                let next = wheel.peek().map(|(key, ..)| key);
                disturb(wheel, next, turn);
            }
            "next_wake" => _ = black_box(wheel.next_wake()),
            "get" => _ = black_box(key.map(|key| wheel.get(key).is_some())),
            "get_mut" => _ = black_box(key.map(|key| wheel.get_mut(key).is_some())),
            "deadline" => _ = black_box(key.map(|key| wheel.deadline(key))),
            "bucket" => _ = black_box(key.map(|key| wheel.bucket(key))),
            "len" => _ = black_box(wheel.len()),
            "is_empty" => _ = black_box(wheel.is_empty()),
            "now" => _ = black_box(wheel.now()),
            "mode" => _ = black_box(wheel.mode()),
            "iter" => _ = black_box(wheel.iter().count()),
            "iter_mut" => _ = black_box(wheel.iter_mut().count()),
            "retain" => wheel.retain(|_, _, _| turn % 2 == 0),
            "extract_due" => _ = wheel.extract_due((1 << 46) + turn).next(),
            "drain" => _ = wheel.drain().count(),
            "clear" => wheel.clear(),
            "reserve" => wheel.reserve(turn as usize),
            "shrink_to_fit" => wheel.shrink_to_fit(),
            "stats" => _ = black_box(wheel.stats()),
            _ => return false,
        }
        true
    }
}

/// Cancels a timeout, moves it, or schedules another.
fn disturb(wheel: &mut Wheel<u64>, key: Option<Key>, turn: u64) {
    match (turn % 3, key) {
        (0, Some(key)) => _ = wheel.cancel(key),
        (1, Some(key)) => _ = wheel.reschedule(key, (1 << 45) + deadline(turn)),
        _ => _ = wheel.schedule((1 << 45) + deadline(turn), turn),
    }
}

type Map = WheelMap<u64, u64, SameHashes>;

impl Subject for Map {
    const SOURCES: &[&str] = &["src/wheel_map.rs"];
    const LEFT_OUT: &[(&str, &str)] =
        &[("new", "it makes one"), ("with_hasher", "it makes one"), ("check", "it is for tests")];
    const MEAN: f64 = LAST_CHUNK;
    const IS_MAP: bool = true;

    fn new(mode: Mode) -> Self {
        Self::with_hasher(mode, SameHashes::default())
    }

    fn put(&mut self, deadline: u64, number: u64) {
        self.insert(number, number, deadline);
    }

    fn put_within(&mut self, deadline: u64, number: u64) {
        self.insert(number, number, *within(deadline).end());
    }

    fn take(&mut self, number: u64) {
        self.remove(&number);
    }

    fn shift(&mut self, number: u64, deadline: u64) {
        self.reschedule(&number, deadline);
    }

    fn drive(&mut self, now: u64, work: &mut usize) -> bool {
        self.expire_bounded(now, work).is_some()
    }

    fn ask(&mut self) {
        black_box(self.next_deadline());
    }

    fn empty(&mut self) {
        self.clear();
    }

    fn len(&self) -> usize {
        self.len()
    }

    fn call(&mut self, name: &str, turn: u64, key: u64) -> bool {
        let tick = self.now() + deadline(turn);
        match name {
            "insert" => _ = self.insert(u64::MAX - turn / 2, turn, tick),
            "reschedule" => _ = self.reschedule(&key, tick),
            "remove" => _ = self.remove(&key),
            "remove_entry" => _ = self.remove_entry(&key),
            "expire" => _ = self.expire((1 << 46) + turn),
            "expire_bounded" => _ = self.expire_bounded((1 << 46) + turn, &mut 1),
            "next_deadline" => {
                match turn % 3 {
                    0 => _ = self.remove(&key),
                    1 => _ = self.reschedule(&key, (1 << 45) + deadline(turn)),
                    _ => _ = self.insert(u64::MAX - turn, turn, (1 << 45) + deadline(turn)),
                }
                _ = self.next_deadline();
            }
            "next_wake" => _ = black_box(self.next_wake()),
            "get" => _ = black_box(self.get(&key)),
            "get_mut" => _ = black_box(self.get_mut(&key).is_some()),
            "contains_key" => _ = black_box(self.contains_key(&key)),
            "deadline" => _ = black_box(self.deadline(&key)),
            "len" => _ = black_box(self.len()),
            "is_empty" => _ = black_box(self.is_empty()),
            "now" => _ = black_box(self.now()),
            "mode" => _ = black_box(self.mode()),
            "iter" => _ = black_box(self.iter().count()),
            "iter_mut" => _ = black_box(self.iter_mut().count()),
            "get_or_insert_with" => {
                _ = black_box(self.get_or_insert_with(u64::MAX - turn / 2, tick, || turn));
            }
            "retain" => self.retain(|_, _| turn % 2 == 0),
            "drain" => _ = self.drain().count(),
            "clear" => self.clear(),
            "reserve" => self.reserve(turn as usize),
            "shrink_to_fit" => self.shrink_to_fit(),
            "stats" => _ = black_box(self.stats()),
            _ => return false,
        }
        true
    }
}

/// What [`grows_in_steps`] returns of a wheel and of a map.
pub(crate) fn grow_in_steps(mode: Mode) -> [[u64; 2]; 2] {
    [grows_in_steps::<Keyed>(mode), grows_in_steps::<Map>(mode)]
}

macro_rules! in_modes {
    ($($module:ident: $mode:literal $is_short:literal,)*) => {
        $(
            mod $module {
                use super::{Keyed, Map};
                use crate::{common::long, kept::keeps_its_bounds};

                #[test]
                fn a_wheel_keeps_its_bounds() {
                    if long($is_short, true) {
                        keeps_its_bounds::<Keyed>($mode.parse().expect("a mode"));
                    }
                }

                #[test]
                fn a_map_keeps_its_bounds() {
                    if long($is_short, true) {
                        keeps_its_bounds::<Map>($mode.parse().expect("a mode"));
                    }
                }
            }
        )*
    };
}

// Those that are judged in a short run, too, are told by `true`.
in_modes! {
    hierarchical_2: "hierarchical:2" false,
    hierarchical_64: "hierarchical:64" true,
    hierarchical_4096: "hierarchical:4096" false,
    hierarchical_2_to_the_30: "hierarchical:1073741824" false,
    hashed_1: "hashed:1" false,
    hashed_8: "hashed:8" true,
    hashed_512: "hashed:512" false,
    hashed_65536: "hashed:65536" false,
    hashed_2_to_the_30: "hashed:1073741824" false,
}

/// A look at the last chunk of a bucket, and a few steps.
const LAST_CHUNK: f64 = 600.0;
