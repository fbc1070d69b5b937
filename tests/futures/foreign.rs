//! Keys, values and closures of a map may panic whenever the map calls them: the map stays in order,
//! and what the caller does not get is dropped.

use crate::help::ms;
use crate::zoo::values::{Act, Herd, Odd};
use std::borrow::Borrow;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;
use tickwheel::{DelayMap, Driver, ExpiringMap, ManualClock, Mode, Timer, WheelMap};

in_each_mode! {
    a_wheel_map_survives_a_panic_at_any_point,
    a_delay_map_survives_a_panic_at_any_point,
    an_expiring_map_survives_a_panic_at_any_point,
}

thread_local! {
    static HERD: Herd = Herd::default();
}

/// Is called by foreign code that is no method of a key or a value.
fn foreign() {
    HERD.with(|herd| herd.act(Act::Run, 0));
}

/// A key or a value.
fn odd(number: u64) -> Odd {
    HERD.with(|herd| herd.make(number))
}

/// What a call gives out.
type Out = Vec<Odd>;

/// The name of a call, and what makes it.
type Call<M> = (&'static str, fn(&mut M) -> Out);

trait Map: Sized {
    fn new(mode: Mode) -> Self;
    fn put(&mut self, key: Odd, value: Odd);
    fn len(&self) -> usize;
    fn keys(&self) -> Vec<u64>;
    fn has(&self, key: u64) -> bool;
    fn clear(&mut self);
    /// Returns whether it holds as many as its limit allows, if it has one.
    fn is_full(&self) -> bool {
        true
    }
    /// Looks whether all is in order, after what has expired is gone.
    fn check(&mut self);
    fn calls() -> Vec<Call<Self>>;
}

fn entry((key, value): (Odd, Odd)) -> Out {
    vec![key, value]
}

/// In each call each call of foreign code panics once.
fn survives_a_panic_at_any_point<M: Map>(mode: Mode) {
    for (name, call) in M::calls() {
        for left in 0.. {
            let mut map = M::new(mode);
            (0..COUNT).for_each(|key| map.put(odd(key), odd(key)));
            HERD.with(|herd| herd.panic_at(None, left));
            let called = catch_unwind(AssertUnwindSafe(|| call(&mut map)));
            let is_over = HERD.with(Herd::disarm);
            assert!(called.is_ok() || !is_over, "{name} panics by itself");
            drop(called);
            let what = format!("{name}, after a panic at {left}");
            map.check();
            assert_eq!(HERD.with(Herd::alive), 2 * map.len(), "{what}: keys and values that live");
            let keys = map.keys();
            assert_eq!(keys.len(), map.len(), "{what}");
            assert!(keys.into_iter().all(|key| map.has(key)), "{what}: each is found");
            map.clear();
            (0..=COUNT).for_each(|key| map.put(odd(key), odd(key)));
            assert!((0..=COUNT).all(|key| map.has(key)) && map.is_full(), "{what}: it goes on");
            drop(map);
            assert_eq!(HERD.with(Herd::alive), 0, "{what}");
            if is_over {
                break;
            }
        }
    }
}

fn a_wheel_map_survives_a_panic_at_any_point(mode: Mode) {
    survives_a_panic_at_any_point::<WheelMap<Odd, Odd>>(mode);
}

fn a_delay_map_survives_a_panic_at_any_point(mode: Mode) {
    survives_a_panic_at_any_point::<Delayed>(mode);
}

fn an_expiring_map_survives_a_panic_at_any_point(mode: Mode) {
    survives_a_panic_at_any_point::<Shared>(mode);
}

impl Map for WheelMap<Odd, Odd> {
    fn new(mode: Mode) -> Self {
        Self::new(mode)
    }

    fn put(&mut self, key: Odd, value: Odd) {
        self.insert(key, value, 1_000);
    }

    fn len(&self) -> usize {
        self.len()
    }

    fn keys(&self) -> Vec<u64> {
        self.iter().map(|(key, ..)| key.number).collect()
    }

    fn has(&self, key: u64) -> bool {
        self.contains_key(&Key(key) as &dyn Same)
    }

    fn clear(&mut self) {
        self.clear();
    }

    fn check(&mut self) {
        Self::check(self);
    }

    fn calls() -> Vec<Call<Self>> {
        vec![
            ("insert, a new key", |map| map.insert(odd(99), odd(99), 5).into_iter().collect()),
            ("insert", |map| map.insert(odd(7), odd(99), 5).into_iter().collect()),
            ("get_or_insert_with", |map| {
                map.get_or_insert_with(odd(7), 5, made);
                Out::new()
            }),
            ("get_or_insert_with, a new key", |map| {
                map.get_or_insert_with(odd(99), 5, made);
                Out::new()
            }),
            ("reschedule", |map| {
                map.reschedule(&Key(7) as &dyn Same, 5);
                Out::new()
            }),
            ("remove", |map| map.remove(&Key(7) as &dyn Same).into_iter().collect()),
            ("remove_entry", |map| {
                map.remove_entry(&Key(7) as &dyn Same).map(entry).unwrap_or_default()
            }),
            ("get", |map| map.get(&Key(7) as &dyn Same).cloned().into_iter().collect()),
            ("retain", |map| {
                map.retain(|key, _| keeps(key));
                Out::new()
            }),
            ("drain", |map| map.drain().take(3).flat_map(|due| [due.key, due.value]).collect()),
            ("clear", |map| {
                map.clear();
                Out::new()
            }),
            ("expire", |map| {
                let due = map.expire(1_000).expect("all are due");
                vec![due.key, due.value]
            }),
            ("iter", |map| map.iter().map(|(key, ..)| key.clone()).collect()),
        ]
    }
}

/// Makes a value.
fn made() -> Odd {
    foreign();
    odd(99)
}

fn keeps(key: &Odd) -> bool {
    foreign();
    key.number % 2 == 0
}

/// What a key is found by, so that what one looks for need not be dropped.
trait Same {
    fn number(&self) -> u64;
}

struct Key(u64);

impl Same for Key {
    fn number(&self) -> u64 {
        self.0
    }
}

impl Same for Odd {
    fn number(&self) -> u64 {
        self.number
    }
}

impl Hash for dyn Same + '_ {
    fn hash<H: Hasher>(&self, state: &mut H) {
        foreign();
        (self.number() / 4).hash(state);
    }
}

impl PartialEq for dyn Same + '_ {
    fn eq(&self, other: &Self) -> bool {
        foreign();
        self.number() == other.number()
    }
}

impl Eq for dyn Same + '_ {}

impl<'a> Borrow<dyn Same + 'a> for Odd {
    fn borrow(&self) -> &(dyn Same + 'a) {
        self
    }
}

/// A map on a timer that nobody drives.
struct Delayed(DelayMap<Odd, Odd>, #[expect(dead_code, reason = "it keeps the timer")] Timer);

impl Map for Delayed {
    fn new(mode: Mode) -> Self {
        let timer = Timer::builder().mode(mode).clock(ManualClock::new()).build();
        let timer = timer.expect("in range");
        Self(DelayMap::with_timer(&timer), timer)
    }

    fn put(&mut self, key: Odd, value: Odd) {
        self.0.insert(key, value, ms(1_000));
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn keys(&self) -> Vec<u64> {
        self.0.iter().map(|(key, ..)| key.number).collect()
    }

    fn has(&self, key: u64) -> bool {
        self.0.contains_key(&Key(key) as &dyn Same)
    }

    fn clear(&mut self) {
        self.0.clear();
    }

    fn check(&mut self) {}

    fn calls() -> Vec<Call<Self>> {
        vec![
            ("insert", |map| map.0.insert(odd(7), odd(99), ms(5)).into_iter().collect()),
            ("insert_at", |map| {
                let at = Instant::now();
                map.0.insert_at(odd(7), odd(99), at).into_iter().collect()
            }),
            ("insert, a new key", |map| {
                map.0.insert(odd(99), odd(99), ms(5)).into_iter().collect()
            }),
            ("get_or_insert_with", |map| {
                map.0.get_or_insert_with(odd(7), ms(5), made);
                Out::new()
            }),
            ("get_or_insert_with, a new key", |map| {
                map.0.get_or_insert_with(odd(99), ms(5), made);
                Out::new()
            }),
            ("reset", |map| {
                map.0.reset(&Key(7) as &dyn Same, ms(5));
                Out::new()
            }),
            ("remove", |map| map.0.remove(&Key(7) as &dyn Same).into_iter().collect()),
            ("remove_entry", |map| {
                map.0.remove_entry(&Key(7) as &dyn Same).map(entry).unwrap_or_default()
            }),
            ("retain", |map| {
                map.0.retain(|key, _| keeps(key));
                Out::new()
            }),
            ("drain", |map| {
                map.0.drain().take(3).flat_map(|(key, _, value)| [key, value]).collect()
            }),
            ("clear", |map| {
                map.0.clear();
                Out::new()
            }),
            ("try_recv", |map| {
                map.0.insert_at(odd(50), odd(50), Instant::now());
                map.0.try_recv().map(|due| vec![due.key, due.value]).unwrap_or_default()
            }),
        ]
    }
}

/// A map with a limit, on a timer whose turns this thread takes.
struct Shared {
    map: ExpiringMap<Odd, Odd>,
    clock: ManualClock,
    driver: Driver,
    _timer: Timer,
}

impl Map for Shared {
    fn new(mode: Mode) -> Self {
        let clock = ManualClock::new();
        let timer = Timer::builder().mode(mode).clock(clock.clone()).build_driven();
        let (timer, driver) = timer.expect("in range");
        let map = ExpiringMap::builder().shards(2).max_len(COUNT as usize + 1).build(&timer);
        Self { map, clock, driver, _timer: timer }
    }

    fn put(&mut self, key: Odd, value: Odd) {
        drop(self.map.insert(key, value, ms(1_000)).expect("there is room"));
    }

    fn len(&self) -> usize {
        self.map.len()
    }

    fn keys(&self) -> Vec<u64> {
        self.map.iter().map(|(key, ..)| key.number).collect()
    }

    fn has(&self, key: u64) -> bool {
        self.map.contains_key(&Key(key) as &dyn Same)
    }

    fn clear(&mut self) {
        self.map.clear();
    }

    fn is_full(&self) -> bool {
        self.map.insert(odd(COUNT + 1), odd(0), ms(1)).is_err()
    }

    fn check(&mut self) {
        self.driver.turn();
    }

    fn calls() -> Vec<Call<Self>> {
        fn out<T: IntoIterator<Item = Odd>>(stored: Result<T, impl Sized>) -> Out {
            stored.map(|value| value.into_iter().collect()).unwrap_or_default()
        }
        vec![
            ("insert", |own| out(own.map.insert(odd(7), odd(99), ms(5)))),
            ("insert, a new key", |own| out(own.map.insert(odd(99), odd(99), ms(5)))),
            ("insert_at", |own| out(own.map.insert_at(odd(7), odd(99), own.clock.now()))),
            ("insert, beyond the limit", |own| {
                own.put(odd(98), odd(98));
                own.map
                    .insert(odd(99), odd(99), ms(5))
                    .map_or_else(|error| entry(error.into_entry()), |old| old.into_iter().collect())
            }),
            ("insert, one has expired", |own| {
                own.map.reset_at(&Key(7) as &dyn Same, own.clock.now());
                own.put(odd(98), odd(98));
                out(own.map.insert(odd(99), odd(99), ms(5)))
            }),
            ("insert, it has expired", |own| {
                own.map.reset_at(&Key(7) as &dyn Same, own.clock.now());
                out(own.map.insert(odd(7), odd(99), ms(5)))
            }),
            ("insert_if_absent", |own| {
                let inserted = own.map.insert_if_absent(odd(7), odd(99), ms(5));
                inserted.map_or_else(|error| entry(error.into_entry()), |()| Out::new())
            }),
            ("get_or_insert_with", |own| {
                out(own.map.get_or_insert_with(odd(7), ms(5), made).map(Some))
            }),
            ("get_or_insert_with, a new key", |own| {
                out(own.map.get_or_insert_with(odd(99), ms(5), made).map(Some))
            }),
            ("get_or_insert_with, another was faster", |own| {
                let map = own.map.clone();
                let makes = || {
                    drop(map.insert(odd(99), odd(98), ms(5)));
                    made()
                };
                out(own.map.get_or_insert_with(odd(99), ms(5), makes).map(Some))
            }),
            ("get", |own| own.map.get(&Key(7) as &dyn Same).into_iter().collect()),
            ("get_and_reset", |own| {
                own.map.get_and_reset(&Key(7) as &dyn Same, ms(5)).into_iter().collect()
            }),
            ("update", |own| {
                own.map.update(&Key(7) as &dyn Same, |value| *value = made());
                Out::new()
            }),
            ("reset_if", |own| {
                own.map.reset_if(&Key(7) as &dyn Same, ms(5), keeps);
                Out::new()
            }),
            ("remove", |own| own.map.remove(&Key(7) as &dyn Same).into_iter().collect()),
            ("remove_if", |own| {
                own.map.remove_if(&Key(8) as &dyn Same, keeps).into_iter().collect()
            }),
            ("remove_entry", |own| {
                own.map.remove_entry(&Key(7) as &dyn Same).map(entry).unwrap_or_default()
            }),
            ("retain", |own| {
                own.map.retain(|key, _| keeps(key));
                Out::new()
            }),
            ("drain", |own| {
                own.map.drain().take(3).flat_map(|(key, _, value)| [key, value]).collect()
            }),
            ("clear", |own| {
                own.map.clear();
                Out::new()
            }),
            ("iter", |own| own.map.iter().flat_map(|(key, _, value)| [key, value]).collect()),
        ]
    }
}

const COUNT: u64 = 20;
