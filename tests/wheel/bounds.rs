//! The cost of each public operation after each of a list of histories, against the bound that its
//! documentation states.
//!
//! An operation that may cost more than a constant says so in one sentence: "Cost: O(..).", or
//! "Cost: O(..) amortised, O(..) in one call." There n is the number of pending timeouts and p the
//! most that were pending at once. Every other operation must cost a constant. What is judged is the steps that
//! the library counts in a build with debug assertions, and the bytes that the allocator counts.
//!
//! `BOUNDS_PEAK=1000000 cargo test --test wheel bounds` has a million in each history. A further
//! subject is an implementation of [`Subject`].

use crate::common::{asked_or_long, long};
use allocation_counter::measure;
use std::collections::BTreeMap;
use std::hint::black_box;
use tickwheel::{Key, Mode, Wheel, WheelMap, steps};

/// Steps that any call may take: it sorts a bucket of 8192, and leaves a chunk or two behind.
const ONE_CALL: f64 = 12_000.0;
/// The mean number of steps that a call may take.
const MEAN: f64 = 250.0;
/// The steps per timeout of a call whose cost grows with n.
const EACH: f64 = 64.0;
/// The bytes that any call may allocate, and the mean that a call may.
const BYTES: [f64; 2] = [524_288.0, 2_048.0];
/// The bytes per timeout at the peak that one call may lay out while an array grows.
const BYTES_EACH: f64 = 1_500.0;

/// The number of calls in a mean.
fn calls_in_a_mean() -> usize {
    long(500, 4_000)
}

/// A type whose operations are held to their bounds.
trait Subject: Sized {
    /// The sources of the public operations, and those of them that make a subject.
    const SOURCES: &[&str];
    const CONSTRUCTORS: &[&str];

    fn new(mode: Mode) -> Self;
    fn put(&mut self, deadline: u64, number: u64);
    fn put_within(&mut self, deadline: u64, number: u64);
    fn take(&mut self, number: u64);
    fn shift(&mut self, number: u64, deadline: u64);
    fn drive(&mut self, now: u64, work: &mut usize) -> bool;
    fn ask(&mut self);
    fn empty(&mut self);
    fn len(&self) -> usize;
    /// Calls the public operation of this name once, for the call of this number. Returns false if
    /// the operation is unknown.
    fn call(&mut self, name: &str, turn: u64) -> bool;
}

/// A history that a subject has behind it. At its peak, `peak` timeouts are pending at once.
type History<S> = (&'static str, fn(&mut S, u64));

/// Deadlines near and far, most of them apart.
fn deadline(number: u64) -> u64 {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    100 + (mixed >> [40, 44, 50, 24][number as usize % 4])
}

fn fill<S: Subject>(subject: &mut S, peak: u64) {
    (0..peak).for_each(|number| subject.put(deadline(number), number));
}

/// Deadlines that all fall into one coarse bucket.
fn fill_far<S: Subject>(subject: &mut S, peak: u64) {
    (0..peak).for_each(|number| subject.put((1 << 45) + deadline(number) % (1 << 30), number));
}

fn cancel_but<S: Subject>(subject: &mut S, peak: u64, left: u64) {
    (0..peak).filter(|&number| number != left).for_each(|number| subject.take(number));
}

fn histories<S: Subject>() -> Vec<History<S>> {
    vec![
        ("nothing", |_, _| {}),
        ("many pending", fill),
        ("many far", fill_far),
        ("the last is left of many cancelled", |subject, peak| {
            fill(subject, peak);
            cancel_but(subject, peak, peak - 1);
        }),
        ("the first is left of many cancelled", |subject, peak| {
            fill_far(subject, peak);
            cancel_but(subject, peak, 0);
        }),
        ("all were cancelled", |subject, peak| {
            fill(subject, peak);
            cancel_but(subject, peak, peak);
        }),
        ("all were moved twice", |subject, peak| {
            fill(subject, peak);
            for turn in 1..3 {
                for number in 0..peak {
                    subject.shift(number, deadline(number + turn * peak));
                }
            }
        }),
        ("all have come but one", |subject, peak| {
            fill(subject, peak);
            subject.put(1 << 60, peak);
            while subject.drive(1 << 50, &mut { usize::MAX }) {}
        }),
        ("cleared", |subject, peak| {
            fill(subject, peak);
            subject.empty();
            subject.put(1 << 40, 0);
        }),
        ("ranges", |subject, peak| {
            (0..peak).for_each(|number| subject.put_within(deadline(number), number));
        }),
        ("asks between", |subject, peak| {
            for number in 0..peak {
                subject.put((1 << 45) + deadline(number) % (1 << 30), number);
                if number % 16 == 0 {
                    subject.ask();
                }
                if number % 3 == 0 {
                    subject.take(number / 2);
                }
            }
        }),
        ("rows that were passed", |subject, peak| {
            for row in 0..peak / 2 {
                subject.put(16 * row + 1, 2 * row);
                subject.put((1 << 40) + 16 * row + 5, 2 * row + 1);
            }
            for now in 0..8 * peak {
                while subject.drive(now, &mut { usize::MAX }) {}
            }
        }),
        ("in the middle of a step", |subject, peak| {
            fill_far(subject, peak);
            subject.drive((1 << 45) + (1 << 29), &mut 1);
        }),
    ]
}

/// What a "Cost" sentence states, for `[mean, one call]`: each a sum of these terms.
fn bound(terms: &str, live: f64, peak: f64) -> f64 {
    let term = |term: &str| match term {
        "1" => 1.0,
        "log n" => 1.0 + live.max(1.0).log2(),
        "n" => live,
        "n log n" => live * (1.0 + live.max(1.0).log2()),
        "p" => peak,
        "p / 64" => peak / 64.0,
        _ => panic!("no term of a bound: {term:?}"),
    };
    terms.split(" + ").map(term).sum()
}

/// A public operation: the sums that its "Cost" sentence states, and whether it only reads.
struct Stated {
    mean: String,
    one_call: String,
    reads: bool,
}

/// The public operations of the sources, by name.
fn stated(sources: &[&str]) -> BTreeMap<String, Stated> {
    let mut stated = BTreeMap::new();
    for source in sources {
        let mut cost = None;
        let code = source.split("#[cfg(test)]").next().expect("there is code");
        for line in code.lines().map(str::trim) {
            if let Some(sentence) = line.strip_prefix("/// Cost: ") {
                let sentence = sentence.replace(" amortised, ", ";").replace(" in one call.", "");
                let terms = sentence.trim_end_matches('.').split(';').map(|term| {
                    let term = term.strip_prefix("O(").and_then(|term| term.strip_suffix(')'));
                    term.unwrap_or_else(|| panic!("not of the shape: {line}")).to_owned()
                });
                cost = Some(terms.collect::<Vec<_>>());
            } else if let Some(item) = line.strip_prefix("pub fn ") {
                let name = item.split(['(', '<']).next().expect("a name");
                let terms = cost.take().unwrap_or_else(|| vec!["1".to_owned()]);
                let [mean, one_call] = [0, terms.len() - 1].map(|at| terms[at].clone());
                let reads = item.contains("(&self");
                stated.insert(name.to_owned(), Stated { mean, one_call, reads });
            } else if !line.starts_with("//") && !line.starts_with("#[") {
                cost = None;
            }
        }
    }
    stated
}

fn keeps_its_bounds<S: Subject>(mode: Mode) {
    let peak = asked_or_long("BOUNDS_PEAK", 1_000, 13_000);
    let mut stated = stated(S::SOURCES);
    stated.retain(|name, _| !S::CONSTRUCTORS.contains(&name.as_str()));
    for (history, make) in histories::<S>() {
        let made = || {
            let mut subject = S::new(mode);
            make(&mut subject, peak);
            subject
        };
        // An operation that only reads leaves the subject as it is.
        let mut read = made();
        for (name, stated) in &stated {
            let what = format!("{mode}, {history}, {name}");
            match stated.reads {
                true => keeps_its_bound(&mut read, peak, name, stated, &what),
                false => keeps_its_bound(&mut made(), peak, name, stated, &what),
            }
        }
    }
}

/// Makes the calls, and panics if one of them, or their mean, costs more than is stated.
fn keeps_its_bound<S: Subject>(
    subject: &mut S,
    peak: u64,
    name: &str,
    stated: &Stated,
    what: &str,
) {
    let most = (peak + calls_in_a_mean() as u64) as f64;
    let live = (subject.len() + calls_in_a_mean()) as f64;
    let bound = |terms| bound(terms, live, most);
    let (mut total, mut dearest) = (0, 0);
    let (mut bytes, mut dearest_bytes) = (0, 0);
    // Operations whose cost grows with n are called less often.
    let is_cheap = ["1", "log n"].contains(&stated.mean.as_str());
    let calls = if is_cheap { calls_in_a_mean() } else { 4 };
    for turn in 0..calls as u64 {
        let before = steps();
        let mut is_known = false;
        let measured = measure(|| is_known = subject.call(name, turn));
        assert!(is_known, "{what}: there is no such call");
        let (taken, allocated) = (steps() - before, measured.bytes_total);
        (total, dearest) = (total + taken, taken.max(dearest));
        (bytes, dearest_bytes) = (bytes + allocated, allocated.max(dearest_bytes));
    }
    let found = format!(
        "{what}: {dearest} steps and {dearest_bytes} bytes in one call, {total} and {bytes} in \
         {calls}; O({}), O({})",
        stated.mean, stated.one_call
    );
    let calls = calls as f64;
    // One whose cost grows with n may lay out all arrays anew in each call.
    let times = if is_cheap { 2.0 } else { calls };
    let laid_out = BYTES[0] + BYTES_EACH * most;
    assert!(dearest as f64 <= ONE_CALL + EACH * bound(&stated.one_call), "one call: {found}");
    assert!(total as f64 <= ONE_CALL + MEAN * bound(&stated.mean) * calls, "mean: {found}");
    assert!(dearest_bytes as f64 <= laid_out, "bytes of one call: {found}");
    assert!(bytes as f64 <= times * laid_out + BYTES[1] * calls, "bytes: {found}");
}

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
    const SOURCES: &[&str] =
        &[include_str!("../../src/wheel/mod.rs"), include_str!("../../src/wheel/within.rs")];
    const CONSTRUCTORS: &[&str] = &["new", "with_capacity", "check"];

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

    fn len(&self) -> usize {
        self.wheel.len()
    }

    fn call(&mut self, name: &str, turn: u64) -> bool {
        let (wheel, key) = (
            &mut self.wheel,
            match self.keys.is_empty() {
                true => None,
                false => self.keys.get(turn as usize * 7919 % self.keys.len()).copied(),
            },
        );
        let tick = wheel.now() + deadline(turn);
        match name {
            "schedule" => _ = black_box(wheel.schedule(tick, turn)),
            "schedule_within" => _ = black_box(wheel.schedule_within(within(tick), turn)),
            "cancel" => _ = key.map(|key| wheel.cancel(key)),
            "reschedule" => _ = key.map(|key| wheel.reschedule(key, tick)),
            "reschedule_within" => {
                _ = key.map(|key| wheel.reschedule_within(key, within(tick)));
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

impl Subject for WheelMap<u64, u64> {
    const SOURCES: &[&str] = &[include_str!("../../src/wheel_map.rs")];
    const CONSTRUCTORS: &[&str] = &["new", "with_hasher", "check"];

    fn new(mode: Mode) -> Self {
        Self::new(mode)
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

    fn call(&mut self, name: &str, turn: u64) -> bool {
        let (key, tick) = (turn * 7919, self.now() + deadline(turn));
        match name {
            "insert" => _ = self.insert(key, turn, tick),
            "reschedule" => _ = self.reschedule(&key, tick),
            "remove" => _ = self.remove(&key),
            "remove_entry" => _ = self.remove_entry(&key),
            "expire" => _ = self.expire((1 << 46) + turn),
            "expire_bounded" => _ = self.expire_bounded((1 << 46) + turn, &mut 1),
            "next_deadline" => {
                self.remove(&turn);
                self.insert(key, turn, tick);
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

macro_rules! in_modes {
    ($($module:ident: $mode:literal,)*) => {$(
        mod $module {
            #[test]
            fn a_wheel_keeps_its_bounds() {
                super::keeps_its_bounds::<super::Keyed>($mode.parse().expect("a mode"));
            }

            #[test]
            fn a_map_keeps_its_bounds() {
                super::keeps_its_bounds::<tickwheel::WheelMap<u64, u64>>(
                    $mode.parse().expect("a mode"),
                );
            }
        }
    )*};
}

in_modes! {
    hierarchical_64: "hierarchical:64",
    hashed_512: "hashed:512",
    hashed_65536: "hashed:65536",
}
