//! A map whose keys panic and lie, beside sorted maps.

use crate::bounds::{Account, Cost};
use crate::bytes::{Bytes, Tick, boundary};
use crate::odd::{Left, Maker, act, id, lie};
use crate::zoo::values::{Act, Herd, Odd};
use crate::zoo::{caught, panics};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasherDefault, DefaultHasher};
use tickwheel::{Expired, WheelMap};

/// Makes any public calls of a map, with keys that panic and lie.
pub fn wheel_map(data: &[u8]) {
    let mut bytes = Bytes::new(data);
    let mode = bytes.mode();
    let mut run = Run {
        map: WheelMap::with_hasher(mode, Hasher::default()),
        keys: Herd::default(),
        maker: Maker::new(),
        is_honest: true,
        pending: BTreeMap::new(),
        by_number: BTreeMap::new(),
        values: Vec::new(),
        unnamed: BTreeSet::new(),
        now: 0,
        placed: 0,
        peak: 0,
        account: Account::default(),
        calls: 0,
        next_check: 0,
    };
    for op in &bytes.program(read) {
        if MOST_CALLS < run.calls {
            break;
        }
        run.apply(op);
        run.look();
    }
    run.end();
}

#[derive(Clone, Debug)]
enum Op {
    Insert(u64, Tick),
    /// Inserts so many keys that follow each other, at ticks so far apart.
    Crowd(u64, Tick, usize, u64),
    Remove(u64),
    RemoveEntry(u64),
    /// Removes so many keys that follow each other.
    RemoveCrowd(u64, usize),
    Move(u64, Tick),
    Get(u64),
    Expire(Tick, usize),
    ExpireBounded(Tick, usize),
    NextDeadline,
    Iterate,
    Retain(usize, usize),
    Drain(usize, Left),
    Clear,
    Reserve(usize),
    Shrink,
    Arm(u64),
    Panic(Act, usize),
    Lie(u8),
}

fn read(bytes: &mut Bytes<'_>, code: u8) -> Op {
    match code % 24 {
        0..=3 => Op::Insert(bytes.number(), bytes.tick()),
        4 => Op::Crowd(bytes.number(), bytes.tick(), bytes.count(), bytes.number()),
        5 | 6 => Op::Remove(bytes.number()),
        7 => Op::RemoveEntry(bytes.number()),
        8 => Op::RemoveCrowd(bytes.number(), bytes.count()),
        9 | 10 => Op::Move(bytes.number(), bytes.tick()),
        11 => Op::Get(bytes.number()),
        12 | 13 => Op::Expire(bytes.tick(), usize::MAX),
        14 => Op::Expire(bytes.tick(), bytes.count()),
        15 => Op::ExpireBounded(bytes.tick(), bytes.count()),
        16 => Op::NextDeadline,
        17 => Op::Iterate,
        18 => Op::Retain(bytes.count(), bytes.count()),
        19 => Op::Drain(bytes.count(), Left::read(bytes)),
        20 => match bytes.byte() % 3 {
            0 => Op::Clear,
            1 => Op::Reserve(bytes.count()),
            _ => Op::Shrink,
        },
        21 => Op::Arm(bytes.number()),
        22 => Op::Panic(act(bytes), bytes.count()),
        _ => Op::Lie(bytes.byte()),
    }
}

type Hasher = BuildHasherDefault<DefaultHasher>;

/// What orders a value: its deadline, and how many were placed before it.
type Place = (u64, u64);

struct Run {
    map: WheelMap<Odd, Odd, Hasher>,
    keys: Herd,
    maker: Maker,
    /// Whether no key has ever lied, so that the map finds what it should.
    is_honest: bool,
    pending: BTreeMap<Place, usize>,
    /// The value of each key that can be found.
    by_number: BTreeMap<u64, usize>,
    /// By the number of the value: that of its key, and its place while it is pending.
    values: Vec<(u64, Option<Place>)>,
    /// The values that no key finds, because a drain was leaked.
    unnamed: BTreeSet<usize>,
    now: u64,
    placed: u64,
    peak: usize,
    account: Account,
    calls: usize,
    next_check: usize,
}

impl Run {
    /// Makes a call of the map, and returns None if odd code panicked in it.
    fn call<R>(
        &mut self,
        cost: Cost,
        call: impl FnOnce(&mut WheelMap<Odd, Odd, Hasher>) -> R,
    ) -> Option<R> {
        self.calls += 1;
        let map = &mut self.map;
        self.account.charge(cost, (self.pending.len(), self.peak), || caught(|| call(map)))
    }

    fn tick(&self, tick: Tick) -> u64 {
        match tick {
            Tick::At(tick) => tick,
            Tick::After(ticks) => self.now.saturating_add(ticks),
            Tick::Before(ticks) => self.now.saturating_sub(ticks),
            Tick::Boundary(bits, offset) => boundary(self.now, bits, offset),
            Tick::Wake(offset) | Tick::Deadline(_, offset) => {
                self.map.next_wake().unwrap_or(self.now).saturating_add_signed(offset.into())
            }
        }
    }

    fn place(&mut self, id: usize, deadline: u64) {
        let place = (deadline.max(self.now), self.placed);
        self.placed += 1;
        self.values[id].1 = Some(place);
        self.pending.insert(place, id);
        self.peak = self.peak.max(self.pending.len());
    }

    /// Takes a value out of the maps, and returns its deadline.
    fn take(&mut self, id: usize) -> Option<u64> {
        let (number, place) = &mut self.values[id];
        let place = place.take()?;
        self.pending.remove(&place);
        if self.by_number.get(number) == Some(&id) {
            self.by_number.remove(number);
        }
        self.unnamed.remove(&id);
        Some(place.0)
    }

    /// Panics unless the map has found what it should have.
    fn found(&self, number: u64, found: Option<usize>) {
        if self.is_honest {
            assert_eq!(found, self.by_number.get(&number).copied(), "the value of the key");
        }
        assert!(found.is_none_or(|id| self.values[id].1.is_some()), "it is pending");
    }

    fn insert(&mut self, number: u64, deadline: u64) {
        let id = self.values.len();
        self.values.push((number, None));
        let (key, value) = (self.keys.make(number), self.maker.make(id));
        let replaced = self.call(Cost::Constant, |map| map.insert(key, value, deadline));
        let replaced = match replaced {
            Some(replaced) => replaced.map(|value| self.maker.number_of(value)),
            // All was done, and what was replaced is gone; or nothing.
            None => match self.maker.dropped()[..] {
                [other] if other == id => return,
                [replaced] => Some(replaced),
                _ => panic!("one value was dropped"),
            },
        };
        self.found(number, replaced);
        if let Some(replaced) = replaced {
            self.take(replaced);
        }
        self.place(id, deadline);
        self.by_number.insert(number, id);
    }

    fn remove(&mut self, number: u64, is_entry: bool) {
        let key = self.keys.make(number);
        let removed = self.call(Cost::Constant, |map| {
            if is_entry {
                map.remove_entry(&key).map(|(key, value)| (Some(key), value))
            } else {
                map.remove(&key).map(|value| (None, value))
            }
        });
        // Where the drop of a key panics in there, the compiler forgets the value.
        let removed = removed.map(|removed| {
            removed.map(|(key, value)| {
                caught(|| drop(key));
                value
            })
        });
        let is_there = self.is_honest && self.by_number.contains_key(&number);
        let removed = match removed {
            Some(removed) => {
                let removed = removed.map(|value| self.maker.number_of(value));
                self.found(number, removed);
                removed
            }
            None => match self.maker.dropped()[..] {
                [] => None,
                [removed] => {
                    assert!(is_there || !self.is_honest);
                    Some(removed)
                }
                _ => panic!("at most one value was dropped"),
            },
        };
        if let Some(removed) = removed {
            assert!(self.take(removed).is_some(), "it was pending");
        }
        caught(|| drop(key));
    }

    /// Expires once, and returns whether there was something.
    fn expire(&mut self, now: u64) -> bool {
        let calls = self.keys.asked();
        let expired = self.call(Cost::Drives, |map| map.expire(now)).expect("it calls nobody");
        assert_eq!(self.keys.asked(), calls, "it calls no code of the caller");
        self.came(now, expired)
    }

    fn came(&mut self, now: u64, expired: Option<Expired<Odd, Odd>>) -> bool {
        self.now = self.now.max(now);
        let found = expired.map(|expired| (expired.deadline, self.received(expired)));
        let first = self.pending.first_key_value().map(|(place, &id)| (place.0, id));
        let wanted = first.filter(|(deadline, _)| *deadline <= now);
        if self.is_honest {
            assert_eq!(found, wanted);
        }
        // Where keys lie, which of equal deadlines was moved last is not known.
        let deadline = found.and_then(|(_, id)| self.take(id));
        assert_eq!(deadline, wanted.map(|(deadline, _)| deadline));
        found.is_some()
    }

    /// Takes what the map has handed out, and returns its number.
    fn received(&self, expired: Expired<Odd, Odd>) -> usize {
        let Expired { key, value, .. } = expired;
        let id = self.maker.number_of(value);
        assert!(!self.is_honest || key.number == self.values[id].0, "with its own key");
        caught(|| drop(key));
        id
    }

    /// Panics unless exactly these were dropped, and takes them out of the maps.
    fn gone(&mut self, dropped: &[usize], mut ids: Vec<usize>) {
        ids.sort_unstable();
        assert_eq!(dropped, ids, "these were dropped");
        for id in ids {
            assert!(self.take(id).is_some(), "it was pending");
        }
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Insert(number, tick) => self.insert(number, self.tick(tick)),
            Op::Crowd(number, tick, count, apart) => {
                let tick = self.tick(tick);
                for nth in 0..count as u64 {
                    let deadline = tick.saturating_add(apart.saturating_mul(nth));
                    self.insert(number.wrapping_add(nth), deadline);
                }
            }
            Op::Remove(number) => self.remove(number, false),
            Op::RemoveEntry(number) => self.remove(number, true),
            Op::RemoveCrowd(number, count) => {
                for nth in 0..count as u64 {
                    self.remove(number.wrapping_add(nth), false);
                }
            }
            Op::Move(number, tick) => {
                let (tick, key) = (self.tick(tick), self.keys.make(number));
                let is_moved = self.call(Cost::Constant, |map| map.reschedule(&key, tick));
                caught(|| drop(key));
                let Some(is_moved) = is_moved else { return };
                if !self.is_honest {
                    // Which one has moved is not known: from here on, only the count is.
                    return self.forget();
                }
                let id = self.by_number.get(&number).copied();
                assert_eq!(is_moved, id.is_some());
                if let Some(id) = id {
                    self.take(id);
                    self.place(id, tick);
                    self.by_number.insert(number, id);
                }
            }
            Op::Get(number) => {
                let key = self.keys.make(number);
                let found = self.call(Cost::Constant, |map| {
                    let found = map.get(&key).map(id);
                    (found, map.contains_key(&key), map.deadline(&key))
                });
                let found = found.filter(|_| self.is_honest);
                if let Some((id, is_there, deadline)) = found {
                    self.found(number, id);
                    let place = id.and_then(|id| self.values[id].1);
                    assert_eq!((is_there, deadline), (id.is_some(), place.map(|place| place.0)));
                }
                caught(|| drop(key));
            }
            Op::Expire(tick, most) => {
                let tick = self.tick(tick);
                for _ in 0..most {
                    if !self.expire(tick) {
                        break;
                    }
                }
            }
            Op::ExpireBounded(tick, work) => {
                let (tick, mut left) = (self.tick(tick), work);
                loop {
                    let cost = Cost::Work(left);
                    let expired = self.call(cost, |map| map.expire_bounded(tick, &mut left));
                    let expired = expired.expect("it calls nobody");
                    if expired.is_none() && left == 0 {
                        self.now = self.now.max(tick);
                        break;
                    }
                    if !self.came(tick, expired) {
                        break;
                    }
                }
            }
            Op::NextDeadline => {
                let stale = self.map.stats().stale;
                let next =
                    self.call(Cost::Log(stale), WheelMap::next_deadline).expect("it calls nobody");
                assert_eq!(next, self.pending.keys().next().map(|place| place.0));
            }
            Op::Iterate => {
                let mut seen = Vec::with_capacity(self.pending.len());
                self.call(Cost::Groups, |map| {
                    seen.extend(map.iter().map(|(_, tick, value)| (tick, id(value))));
                });
                seen.sort_unstable();
                let mut wanted: Vec<_> =
                    self.pending.iter().map(|(place, &id)| (place.0, id)).collect();
                wanted.sort_unstable();
                assert_eq!(seen, wanted);
            }
            Op::Retain(nth, most) => {
                let (mut asked, mut rejected) = (0, Vec::with_capacity(self.pending.len()));
                self.call(Cost::Groups, |map| {
                    map.retain(|_, value| {
                        asked += 1;
                        if most < asked {
                            panics();
                        }
                        let is_kept = id(value).is_multiple_of(nth + 1);
                        if !is_kept {
                            rejected.push(id(value));
                        }
                        is_kept
                    });
                });
                self.gone(&self.maker.dropped(), rejected);
            }
            Op::Drain(most, left) => {
                let mut out = Vec::with_capacity(self.pending.len());
                self.call(Cost::Groups, |map| {
                    let mut drain = map.drain();
                    out.extend(drain.by_ref().take(most));
                    left.leave(drain);
                });
                // What the drain has dropped was noted before what is dropped here.
                let dropped = self.maker.dropped();
                for expired in out {
                    let deadline = expired.deadline;
                    let id = self.received(expired);
                    assert_eq!(self.take(id), Some(deadline));
                }
                let rest: Vec<_> = self.pending.values().copied().collect();
                match left {
                    Left::Dropped => self.gone(&dropped, rest),
                    Left::Leaked => {
                        self.unnamed.extend(rest);
                        self.by_number.clear();
                    }
                }
            }
            Op::Clear => {
                self.call(Cost::Groups, WheelMap::clear);
                let all = self.pending.values().copied().collect();
                self.gone(&self.maker.dropped(), all);
            }
            Op::Reserve(room) => {
                self.call(Cost::All, |map| map.reserve(room));
                self.peak = self.peak.max(self.pending.len() + room);
            }
            Op::Shrink => {
                self.call(Cost::Places, WheelMap::shrink_to_fit);
                if self.pending.is_empty() {
                    self.peak = 0;
                }
                self.next_check = 0;
            }
            Op::Arm(number) => {
                if let Some(&id) = self.by_number.get(&number) {
                    self.maker.herd.arm(id as u64);
                }
            }
            Op::Panic(act, after) => self.keys.panic_at(Some(act), after),
            Op::Lie(often) => {
                lie(&self.keys, often);
                self.is_honest &= often == 0;
            }
        }
    }

    /// Learns again where each value is, because a key that lies has moved one of them.
    fn forget(&mut self) {
        let held: BTreeMap<usize, u64> =
            self.map.iter().map(|(_, deadline, value)| (id(value), deadline)).collect();
        assert!(held.keys().eq(self.pending.values().collect::<BTreeSet<_>>()), "none is lost");
        let pending: Vec<_> = self.pending.iter().map(|(place, &id)| (*place, id)).collect();
        for (place, id) in pending {
            if held[&id] != place.0 {
                self.pending.remove(&place);
                self.place(id, held[&id]);
            }
        }
    }

    /// Panics unless the map shows what it should. Looks at all of it now and then.
    fn look(&mut self) {
        let map = &self.map;
        let len = self.pending.len();
        assert_eq!((map.len(), map.now()), (len, self.now));
        assert_eq!(
            (self.maker.herd.alive(), self.keys.alive()),
            (len, len),
            "each is there, or left"
        );
        let earliest = self.pending.keys().next().map(|place| place.0);
        match (map.next_wake(), earliest) {
            (Some(wake), Some(earliest)) => assert!(wake <= earliest, "it wakes in time"),
            (wake, earliest) => assert_eq!(wake, earliest),
        }
        if self.next_check <= self.calls {
            self.check();
            self.next_check = self.calls + self.peak / 4;
        }
    }

    fn check(&mut self) {
        if self.unnamed.is_empty() {
            self.map.check();
        }
        let stats = self.map.stats();
        assert_eq!(stats.memory as i64, self.account.bytes, "these bytes are allocated");
        self.account.settle(stats.demotions + stats.rounds_waited);
    }

    /// Lets all come, and gives all back.
    fn end(mut self) {
        self.check();
        while self.expire(u64::MAX) {}
        self.look();
        self.apply(&Op::Shrink);
        self.check();
    }
}

/// The calls after which a run ends.
const MOST_CALLS: usize = 20_000;
