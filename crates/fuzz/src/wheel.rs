//! A wheel beside a sorted map.

use crate::bounds::{Account, Cost};
use crate::bytes::{Bytes, Tick, boundary};
use crate::odd::{Left, Maker, id};
use crate::zoo::values::Odd;
use crate::zoo::{caught, panics};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use tickwheel::{Expired, Key, Mode, Wheel};

/// Makes any public calls of a wheel, and of a sorted map.
pub fn wheel(data: &[u8]) {
    let mut bytes = Bytes::new(data);
    let mut run = Run::new(bytes.mode(), bytes.count());
    for op in &bytes.program(read) {
        if MOST_CALLS < run.calls {
            break;
        }
        run.apply(op);
        run.look();
    }
    run.end();
}

/// A number names a timeout: see [`Run::name`].
#[derive(Clone, Debug)]
enum Op {
    Schedule(Tick),
    /// Schedules this many, at ticks so far apart.
    Crowd(Tick, usize, u64),
    Within(Tick, i64),
    Cancel(u64),
    /// Cancels this many, every nth of those that were scheduled from one on.
    CancelCrowd(u64, usize, usize),
    CancelEarliest(usize),
    Move(u64, Tick),
    MoveCrowd(u64, usize, Tick, u64),
    MoveWithin(u64, Tick, i64),
    /// Expires at most this many times.
    Expire(Tick, usize),
    ExpireBounded(Tick, usize),
    /// Expires at each tick at which the wheel asks to be woken, this many times.
    Wake(usize),
    NextDeadline,
    NextDeadlineBounded(usize),
    Peek,
    Get(u64),
    Iterate(usize),
    IterateMut(usize),
    /// Keeps every nth, and panics after so many.
    Retain(usize, usize),
    /// Takes out at most this many.
    Extract(Tick, usize, Left),
    Drain(usize, Left),
    Clear,
    Reserve(usize),
    Shrink,
    Arm(u64),
}

fn read(bytes: &mut Bytes<'_>, code: u8) -> Op {
    match code % 31 {
        0..=3 => Op::Schedule(bytes.tick()),
        4 => Op::Crowd(bytes.tick(), bytes.count(), bytes.number()),
        5 => Op::Within(bytes.tick(), width(bytes)),
        6 | 7 => Op::Cancel(bytes.number()),
        8 => Op::CancelCrowd(bytes.number(), bytes.count(), bytes.count()),
        9 => Op::CancelEarliest(bytes.count()),
        10 | 11 => Op::Move(bytes.number(), bytes.tick()),
        12 => Op::MoveCrowd(bytes.number(), bytes.count(), bytes.tick(), bytes.number()),
        13 => Op::MoveWithin(bytes.number(), bytes.tick(), width(bytes)),
        14 | 15 => Op::Expire(bytes.tick(), usize::MAX),
        16 => Op::Expire(bytes.tick(), bytes.count()),
        17 | 18 => Op::ExpireBounded(bytes.tick(), bytes.count()),
        19 => Op::Wake(1 + bytes.count()),
        20 => Op::NextDeadline,
        21 => Op::NextDeadlineBounded(bytes.count()),
        22 => Op::Peek,
        23 => Op::Get(bytes.number()),
        24 => match bytes.byte() % 2 {
            0 => Op::Iterate(bytes.count()),
            _ => Op::IterateMut(bytes.count()),
        },
        25 => Op::Retain(bytes.count(), bytes.count()),
        26 => Op::Extract(bytes.tick(), bytes.count(), Left::read(bytes)),
        27 => Op::Drain(bytes.count(), Left::read(bytes)),
        28 => match bytes.byte() % 2 {
            0 => Op::Clear,
            _ => Op::Reserve(bytes.count()),
        },
        29 => Op::Shrink,
        _ => Op::Arm(bytes.number()),
    }
}

fn width(bytes: &mut Bytes<'_>) -> i64 {
    let width = bytes.number();
    if width % 16 == 15 { -(width as i64 >> 8) } else { width as i64 & i64::MAX }
}

/// What orders a timeout: its deadline, and how many were scheduled before it.
type Place = (u64, u64);

struct Run {
    wheel: Wheel<Odd>,
    maker: Maker,
    pending: BTreeMap<Place, usize>,
    /// By the number of the value: its key, and its place while it is pending.
    timeouts: Vec<(Key, Option<Place>)>,
    now: u64,
    /// Timeouts that were ever scheduled or moved.
    placed: u64,
    /// The most that were pending at once.
    most: usize,
    /// The same, or what was reserved, since all was given back.
    peak: usize,
    account: Account,
    calls: usize,
    /// The calls after which the wheel is checked next.
    next_check: usize,
}

impl Run {
    fn new(mode: Mode, room: usize) -> Self {
        let mut account = Account::default();
        let wheel = account.charge(Cost::Constant, (0, room), || Wheel::with_capacity(mode, room));
        Self {
            wheel,
            maker: Maker::new(),
            pending: BTreeMap::new(),
            timeouts: Vec::new(),
            now: 0,
            placed: 0,
            most: 0,
            peak: room,
            account,
            calls: 0,
            next_check: 0,
        }
    }

    /// Makes a call of the wheel, and returns None if odd code panicked in it.
    fn call<R>(&mut self, cost: Cost, call: impl FnOnce(&mut Wheel<Odd>) -> R) -> Option<R> {
        self.calls += 1;
        let wheel = &mut self.wheel;
        let size = (self.pending.len(), self.peak);
        self.account.charge(cost, size, || caught(|| call(wheel)))
    }

    /// Makes a call in which no odd code panics.
    fn sure<R>(&mut self, cost: Cost, call: impl FnOnce(&mut Wheel<Odd>) -> R) -> R {
        self.call(cost, call).expect("no odd code was called")
    }

    /// Returns a timeout that was ever scheduled. An even number counts from the last one, an odd
    /// one from the earliest that is pending.
    fn name(&self, number: u64) -> Option<usize> {
        let nth = number as usize / 2;
        if number % 2 == 1 {
            let nth = nth.checked_rem(self.pending.len())?.min(64);
            return self.pending.values().nth(nth).copied();
        }
        let count = self.timeouts.len();
        count.checked_sub(1 + nth.checked_rem(count)?)
    }

    fn tick(&self, tick: Tick) -> u64 {
        match tick {
            Tick::At(tick) => tick,
            Tick::After(ticks) => self.now.saturating_add(ticks),
            Tick::Before(ticks) => self.now.saturating_sub(ticks),
            Tick::Boundary(bits, offset) => boundary(self.now, bits, offset),
            Tick::Wake(offset) => {
                self.wheel.next_wake().unwrap_or(self.now).saturating_add_signed(offset.into())
            }
            Tick::Deadline(number, offset) => {
                let place = self.name(number).and_then(|id| self.timeouts[id].1);
                place.map_or(self.now, |place| place.0).saturating_add_signed(offset.into())
            }
        }
    }

    fn schedule(&mut self, deadline: u64) {
        let value = self.maker.make(self.timeouts.len());
        let key = self.sure(Cost::Constant, |wheel| wheel.schedule(deadline, value));
        self.add(key, deadline);
    }

    fn add(&mut self, key: Key, deadline: u64) {
        self.timeouts.push((key, None));
        self.place(self.timeouts.len() - 1, deadline);
    }

    fn place(&mut self, id: usize, deadline: u64) {
        let place = (deadline.max(self.now), self.placed);
        self.placed += 1;
        self.timeouts[id].1 = Some(place);
        self.pending.insert(place, id);
        self.peak = self.peak.max(self.pending.len());
        self.most = self.most.max(self.pending.len());
    }

    /// Takes a timeout out of the map, and returns its deadline.
    fn take(&mut self, id: usize) -> Option<u64> {
        let place = self.timeouts[id].1.take()?;
        self.pending.remove(&place);
        Some(place.0)
    }

    fn cancel(&mut self, id: usize) {
        let key = self.timeouts[id].0;
        let is_pending = self.take(id).is_some();
        let cancelled = self.sure(Cost::Constant, |wheel| wheel.cancel(key));
        assert_eq!(cancelled.map(|value| self.maker.number_of(value)), is_pending.then_some(id));
    }

    fn shift(&mut self, id: usize, deadline: u64) {
        let key = self.timeouts[id].0;
        let is_pending = self.take(id).is_some();
        let is_moved = self.sure(Cost::Constant, |wheel| wheel.reschedule(key, deadline));
        assert_eq!(is_moved, is_pending);
        if is_pending {
            self.place(id, deadline);
        }
    }

    /// Expires once, and returns whether there was something.
    fn expire(&mut self, now: u64) -> bool {
        let expired = self.sure(Cost::Drives, |wheel| wheel.expire(now));
        self.came(now, expired)
    }

    /// Notes what came at `now`, and returns whether there was something.
    fn came(&mut self, now: u64, expired: Option<Expired<Odd>>) -> bool {
        self.now = self.now.max(now);
        let first = self.pending.first_key_value().map(|(place, &id)| (*place, id));
        let wanted = first.filter(|(place, _)| place.0 <= now);
        let found = expired.map(|expired| {
            let Expired { key, deadline, value } = expired;
            (key, deadline, self.maker.number_of(value))
        });
        assert_eq!(found, wanted.map(|(place, id)| (self.timeouts[id].0, place.0, id)));
        wanted.is_some_and(|(_, id)| self.take(id).is_some())
    }

    fn look_for_next(&mut self, work: usize) {
        let mut left = work;
        let stale = self.wheel.stats().stale;
        let next = self.sure(Cost::Log(stale), |wheel| wheel.next_deadline_bounded(&mut left));
        let wanted = self.pending.keys().next().map(|place| place.0);
        assert!(next == wanted || next.is_none() && left == 0, "{next:?}, and not {wanted:?}");
    }

    /// Panics unless exactly these were dropped, and takes them out of the map.
    fn gone(&mut self, dropped: &[usize], mut ids: Vec<usize>) {
        ids.sort_unstable();
        assert_eq!(dropped, ids, "these were dropped");
        for id in ids {
            assert!(self.take(id).is_some(), "it was pending");
        }
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Schedule(tick) => self.schedule(self.tick(tick)),
            Op::Crowd(tick, count, apart) => {
                let first = self.tick(tick);
                for nth in 0..count as u64 {
                    self.schedule(first.saturating_add(apart.saturating_mul(nth)));
                }
            }
            Op::Within(tick, width) => {
                let range = range(self.tick(tick), width);
                let value = self.maker.make(self.timeouts.len());
                let key =
                    self.sure(Cost::Constant, |wheel| wheel.schedule_within(range.clone(), value));
                let deadline = self.wheel.deadline(key).expect("it is pending");
                assert_in(deadline, &range, self.now);
                self.add(key, deadline);
            }
            Op::Cancel(number) => {
                let Some(id) = self.name(number) else { return };
                self.cancel(id);
            }
            Op::CancelCrowd(number, count, nth) => {
                let Some(first) = self.name(number) else { return };
                for id in (first..self.timeouts.len()).step_by(nth + 1).take(count) {
                    self.cancel(id);
                }
            }
            Op::CancelEarliest(count) => {
                for _ in 0..count {
                    self.look_for_next(usize::MAX);
                    let Some((_, &id)) = self.pending.first_key_value() else { break };
                    self.cancel(id);
                }
            }
            Op::Move(number, tick) => {
                let Some(id) = self.name(number) else { return };
                self.shift(id, self.tick(tick));
            }
            Op::MoveCrowd(number, count, tick, apart) => {
                let Some(first) = self.name(number) else { return };
                let tick = self.tick(tick);
                for (nth, id) in (first..self.timeouts.len()).take(count).enumerate() {
                    self.shift(id, tick.saturating_add(apart.saturating_mul(nth as u64)));
                }
            }
            Op::MoveWithin(number, tick, width) => {
                let Some(id) = self.name(number) else { return };
                self.move_within(id, &range(self.tick(tick), width));
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
                    let before = left;
                    let expired = self
                        .sure(Cost::Work(before), |wheel| wheel.expire_bounded(tick, &mut left));
                    if expired.is_none() && left == 0 {
                        self.now = self.now.max(tick);
                        break;
                    }
                    assert!(expired.is_none() || left < before, "it is work");
                    if !self.came(tick, expired) {
                        break;
                    }
                }
            }
            Op::Wake(count) => {
                for _ in 0..count {
                    let Some(tick) = self.wheel.next_wake() else { break };
                    while self.expire(tick) {}
                    let next = self.wheel.next_wake();
                    assert!(next.is_none_or(|next| tick < next), "the call makes progress");
                }
            }
            Op::NextDeadline => self.look_for_next(usize::MAX),
            Op::NextDeadlineBounded(work) => self.look_for_next(work),
            Op::Peek => {
                let stale = self.wheel.stats().stale;
                let peeked = self.sure(Cost::Log(stale), |wheel| {
                    wheel.peek().map(|(key, tick, value)| (key, tick, id(value)))
                });
                let next = self.pending.first_key_value();
                assert_eq!(peeked, next.map(|(place, &id)| (self.timeouts[id].0, place.0, id)));
            }
            Op::Get(number) => {
                let Some(id) = self.name(number) else { return };
                let (key, place) = self.timeouts[id];
                let found = self.sure(Cost::Constant, |wheel| {
                    let found = wheel.get(key).map(|value| value.number);
                    assert_eq!(wheel.get_mut(key).map(|value| value.number), found);
                    assert!(wheel.bucket(key).is_none() || found.is_some());
                    (wheel.deadline(key), found)
                });
                assert_eq!(found, place.map(|place| (place.0, id as u64)).unzip());
            }
            Op::Iterate(most) => self.iterate(most),
            Op::IterateMut(most) => {
                let mut seen = Vec::with_capacity(self.pending.len());
                self.sure(Cost::Groups, |wheel| {
                    seen.extend(wheel.iter_mut().map(|(_, _, value)| id(value)).take(most));
                });
                let len = most.min(self.pending.len());
                seen.sort_unstable();
                seen.dedup();
                assert_eq!(seen.len(), len);
                assert!(seen.iter().all(|&id| self.timeouts[id].1.is_some()));
            }
            Op::Retain(nth, most) => {
                let (mut asked, mut rejected) = (0, Vec::new());
                self.call(Cost::Groups, |wheel| {
                    wheel.retain(|_, _, value| {
                        asked += 1;
                        if most < asked {
                            panics();
                        }
                        let is_kept = id(value).is_multiple_of(nth + 1);
                        if !is_kept {
                            allocation_counter::opt_out(|| rejected.push(id(value)));
                        }
                        is_kept
                    });
                });
                self.gone(&self.maker.dropped(), rejected);
            }
            Op::Extract(tick, most, left) => {
                let tick = self.tick(tick);
                let mut out = Vec::new();
                let mut is_all = false;
                self.calls += most;
                self.sure(Cost::All, |wheel| {
                    let mut due = wheel.extract_due(tick);
                    for _ in 0..most {
                        let Some(expired) = due.next() else {
                            is_all = true;
                            break;
                        };
                        allocation_counter::opt_out(|| out.push(expired));
                    }
                    left.leave(due);
                });
                for expired in out {
                    self.came(tick, Some(expired));
                }
                assert!(!is_all || !self.came(tick, None), "nothing is left out");
            }
            Op::Drain(most, left) => {
                let mut out = Vec::new();
                self.call(Cost::Groups, |wheel| {
                    let mut drain = wheel.drain();
                    let len = drain.len();
                    for nth in 1..=most.min(len) {
                        let expired = drain.next().expect("it has a length");
                        assert_eq!(drain.len(), len - nth);
                        allocation_counter::opt_out(|| out.push(expired));
                    }
                    left.leave(drain);
                });
                // What the drain has dropped was noted before what is dropped here.
                let dropped = self.maker.dropped();
                for Expired { deadline, value, .. } in out {
                    assert_eq!(self.take(self.maker.number_of(value)), Some(deadline));
                }
                let rest = match left {
                    Left::Dropped => self.pending.values().copied().collect(),
                    Left::Leaked => Vec::new(),
                };
                self.gone(&dropped, rest);
            }
            Op::Clear => {
                self.call(Cost::Groups, Wheel::clear);
                let all = self.pending.values().copied().collect();
                self.gone(&self.maker.dropped(), all);
            }
            Op::Reserve(room) => {
                self.sure(Cost::All, |wheel| wheel.reserve(room));
                self.peak = self.peak.max(self.pending.len() + room);
            }
            Op::Shrink => {
                self.sure(Cost::Places, Wheel::shrink_to_fit);
                if self.pending.is_empty() {
                    self.peak = 0;
                }
                self.next_check = 0;
            }
            Op::Arm(number) => {
                if let Some(id) = self.name(number) {
                    self.maker.herd.arm(id as u64);
                }
            }
        }
    }

    fn move_within(&mut self, id: usize, range: &RangeInclusive<u64>) {
        let (key, before) = self.timeouts[id];
        let is_moved =
            self.sure(Cost::Constant, |wheel| wheel.reschedule_within(key, range.clone()));
        assert_eq!(is_moved, before.is_some());
        let Some(before) = before else { return };
        let deadline = self.wheel.deadline(key).expect("it is pending");
        if range.contains(&before.0) {
            assert_eq!(deadline, before.0, "a timeout that is in the range is not moved");
        } else {
            assert_in(deadline, range, self.now);
            self.take(id);
            self.place(id, deadline);
        }
    }

    /// Looks at so many timeouts by an iterator.
    fn iterate(&mut self, most: usize) {
        let (mut seen, timeouts) = (0, &self.timeouts);
        let wheel = &self.wheel;
        let size = (self.pending.len(), self.peak);
        self.account.charge(Cost::Groups, size, || {
            let mut iter = wheel.iter();
            for (key, tick, value) in iter.by_ref().take(most) {
                let (its_key, place) = timeouts[id(value)];
                assert_eq!((key, Some(tick)), (its_key, place.map(|place| place.0)));
                seen += 1;
            }
            assert_eq!(iter.len() + seen, wheel.len());
        });
        assert_eq!(seen, most.min(self.pending.len()));
    }

    /// Panics unless the wheel shows what the map holds. Looks at all of it now and then.
    fn look(&mut self) {
        let wheel = &self.wheel;
        let earliest = self.pending.keys().next().map(|place| place.0);
        assert_eq!((wheel.len(), wheel.now()), (self.pending.len(), self.now));
        assert_eq!(wheel.is_empty(), self.pending.is_empty());
        assert_eq!(self.maker.herd.alive(), self.pending.len(), "each value is there, or has left");
        match (wheel.next_wake(), earliest) {
            (Some(wake), Some(earliest)) => assert!(wake <= earliest, "it wakes in time"),
            (wake, earliest) => assert_eq!(wake, earliest),
        }
        if self.next_check <= self.calls {
            self.check();
            self.next_check = self.calls + self.peak / 4;
        }
    }

    /// Panics unless each invariant holds, and each bound.
    fn check(&mut self) {
        self.wheel.check();
        let (stats, mode) = (self.wheel.stats(), self.wheel.mode());
        assert_eq!(stats.memory as i64, self.account.bytes, "these bytes are allocated");
        let (placed, most) = (self.placed, self.most as u64);
        let (visits, levels) = (stats.buckets_visited, mode.levels() as u64);
        assert!(stats.demotions <= placed * (levels - 1), "one is demoted once per level");
        let entries = 7 * most + STALE;
        assert!(stats.rounds_waited <= visits * entries, "a visit passes over each once");
        assert!(visits <= placed * levels, "what is visited, was due: {visits} of {placed}");
        self.account.settle(stats.demotions + stats.rounds_waited);
        let bytes = MEMORY + bytes_each(mode) * self.peak;
        assert!(stats.memory <= bytes, "{} bytes for {}", stats.memory, self.peak);
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

fn range(first: u64, width: i64) -> RangeInclusive<u64> {
    first..=first.saturating_add_signed(width)
}

/// Panics unless `deadline` is in the part of the range that is not before `now`.
fn assert_in(deadline: u64, range: &RangeInclusive<u64>, now: u64) {
    let earliest = now.max(*range.start());
    let latest = earliest.max(*range.end());
    assert!((earliest..=latest).contains(&deadline), "{deadline} in {range:?} at {now}");
}

/// The bytes per timeout that a wheel may take. Where there are many buckets, each timeout may have
/// a row of them to itself, and the nodes that lead to it.
fn bytes_each(mode: Mode) -> usize {
    if mode.buckets() <= 512 { 1_500 } else { 12_000 }
}

/// The stale entries that any wheel may hold, beside a few for each timeout.
const STALE: u64 = 1_200;

/// The bytes that any wheel may take.
const MEMORY: usize = 65_536;

/// The calls after which a run ends.
const MOST_CALLS: usize = 20_000;
