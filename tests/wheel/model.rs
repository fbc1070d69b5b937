//! Any sequence of operations gives what a sorted map gives, in every mode, and breaks no invariant.
//!
//! `QUICKCHECK_TESTS=20000 cargo test --release --test wheel model` looks longer.

use quickcheck::{Arbitrary, Gen, QuickCheck};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use tickwheel::{Expired, Key, Mode, Wheel};

/// The wheel's promises, kept in the plainest way: a map sorted by deadline, then by the order of
/// scheduling.
#[derive(Default)]
struct Model {
    now: u64,
    scheduled: u64,
    pending: BTreeMap<(u64, u64), u32>,
    /// Where each value is in `pending`, by value; None once it is gone.
    places: Vec<Option<(u64, u64)>>,
}

impl Model {
    fn schedule(&mut self, deadline: u64) -> u32 {
        let value = u32::try_from(self.places.len()).expect("few values");
        self.places.push(None);
        self.place(value, deadline);
        value
    }

    fn place(&mut self, value: u32, deadline: u64) {
        self.scheduled += 1;
        let place = (deadline.max(self.now), self.scheduled);
        self.pending.insert(place, value);
        self.places[value as usize] = Some(place);
    }

    fn cancel(&mut self, value: u32) -> Option<u32> {
        let place = self.places[value as usize].take()?;
        self.pending.remove(&place)
    }

    fn reschedule(&mut self, value: u32, deadline: u64) -> bool {
        let found = self.cancel(value).is_some();
        if found {
            self.place(value, deadline);
        }
        found
    }

    fn expire(&mut self, now: u64) -> Option<(u64, u32)> {
        self.now = self.now.max(now);
        let (&place, &value) = self.pending.first_key_value()?;
        if now < place.0 {
            return None;
        }
        self.cancel(value);
        Some((place.0, value))
    }

    fn deadline(&self, value: u32) -> Option<u64> {
        Some(self.places[value as usize]?.0)
    }

    fn next_deadline(&self) -> Option<u64> {
        self.pending.first_key_value().map(|(place, _)| place.0)
    }
}

/// Numbers that name a timeout among all that ever were do so modulo their count.
#[derive(Clone, Debug)]
enum Op {
    Schedule(Tick),
    /// So many at the same tick and, in turn, the ticks after it.
    ScheduleCrowd(Tick, u16, u8),
    Cancel(usize),
    /// So many in the order in which they were scheduled, leaving out every so-manieth.
    CancelCrowd(usize, u16, u8),
    Reschedule(usize, Tick),
    /// At a tick in a range of so many ticks after the first; before it, if that is negative.
    ScheduleWithin(Tick, i64),
    RescheduleWithin(usize, Tick, i64),
    /// Expires until None.
    Expire(Tick),
    /// Expires so many times at most.
    ExpireSome(Tick, u8),
    /// Expires with so much work at most.
    ExpireBounded(Tick, u16),
    /// Expires at the tick that `next_wake` gives.
    Wake,
    NextDeadline,
    Peek,
    /// Asks for the next deadline and cancels that timeout, so many times.
    CancelEarliest(u16),
    Get(usize),
    GetMut(usize),
    Iter,
    /// Changes every value in place, and back.
    IterMut,
    /// Keeps every so-manieth.
    Retain(u8),
    /// Takes out so many of those that are due.
    ExtractDue(Tick, u8),
    /// Takes so many out and drops the rest.
    Drain(u8),
    Clear,
    Reserve(u8),
    ShrinkToFit,
}

/// A point in time, relative to what the wheel's time is by then.
#[derive(Clone, Debug)]
enum Tick {
    After(u64),
    Before(u64),
    At(u64),
    /// The first tick of a block of 2^bits, the one after the present one's, plus an offset.
    Boundary(u32, i8),
}

impl Tick {
    fn resolve(&self, now: u64) -> u64 {
        match *self {
            Self::After(delay) => now.saturating_add(delay),
            Self::Before(ticks) => now.saturating_sub(ticks),
            Self::At(tick) => tick,
            Self::Boundary(bits, offset) => {
                let next = (now >> bits).saturating_add(1).checked_shl(bits).unwrap_or(0);
                if next >> bits <= now >> bits {
                    return u64::MAX.saturating_add_signed(offset.min(0).into());
                }
                next.saturating_add_signed(offset.into())
            }
        }
    }
}

impl Arbitrary for Tick {
    fn arbitrary(g: &mut Gen) -> Self {
        let small = u64::from(u8::arbitrary(g));
        match u8::arbitrary(g) % 16 {
            0 => Self::After(0),
            1..=4 => Self::After(small),
            5 => Self::After(u64::from(u16::arbitrary(g))),
            6 => Self::After(u64::arbitrary(g) >> (u8::arbitrary(g) % 64)),
            7 => Self::Before(small),
            8 => Self::At(small),
            9 => Self::At(u64::MAX - small % 4),
            10 => Self::At(u64::arbitrary(g)),
            // A whole number of rounds of the smaller hashed wheels, and near it.
            11 => Self::After((small % 8 * 512).saturating_add_signed(i64::arbitrary(g) % 2)),
            _ => Self::Boundary(u32::arbitrary(g) % 64, i8::arbitrary(g) % 2),
        }
    }
}

impl Arbitrary for Op {
    fn arbitrary(g: &mut Gen) -> Self {
        match u8::arbitrary(g) {
            0..=65 => Self::Schedule(Tick::arbitrary(g)),
            66..=79 => Self::ScheduleWithin(Tick::arbitrary(g), arbitrary_width(g)),
            80..=84 => {
                // Now and then more than are handled at once.
                let most = match u8::arbitrary(g) {
                    0 => 4000,
                    1..16 => 800,
                    _ => 40,
                };
                Self::ScheduleCrowd(
                    Tick::arbitrary(g),
                    u16::arbitrary(g) % most,
                    u8::arbitrary(g) % 9,
                )
            }
            85..=89 => {
                let most = if u8::arbitrary(g) < 16 { 800 } else { 256 };
                Self::CancelCrowd(
                    usize::arbitrary(g),
                    u16::arbitrary(g) % most,
                    u8::arbitrary(g) % 12,
                )
            }
            90..=129 => Self::Cancel(usize::arbitrary(g)),
            130..=157 => Self::Reschedule(usize::arbitrary(g), Tick::arbitrary(g)),
            158..=169 => {
                Self::RescheduleWithin(usize::arbitrary(g), Tick::arbitrary(g), arbitrary_width(g))
            }
            170..=189 => Self::Expire(Tick::After(u64::from(u8::arbitrary(g)))),
            190..=199 => Self::Expire(Tick::arbitrary(g)),
            200..=203 => Self::ExpireSome(Tick::arbitrary(g), u8::arbitrary(g) % 4),
            204..=206 => Self::ExtractDue(Tick::arbitrary(g), u8::arbitrary(g) % 16),
            207..=214 => Self::ExpireBounded(Tick::arbitrary(g), u16::arbitrary(g) % 600),
            215..=219 => Self::Wake,
            220..=223 => Self::NextDeadline,
            224..=227 => Self::Peek,
            228..=229 => Self::CancelEarliest(u16::arbitrary(g) % 2000),
            230..=237 => Self::Get(usize::arbitrary(g)),
            238..=243 => Self::GetMut(usize::arbitrary(g)),
            244..=245 => Self::Iter,
            246 => Self::IterMut,
            247 => Self::Retain(u8::arbitrary(g) % 4),
            248 => Self::Drain(u8::arbitrary(g) % 8),
            249 => Self::Clear,
            250..=251 => Self::Reserve(u8::arbitrary(g)),
            _ => Self::ShrinkToFit,
        }
    }

    fn shrink(&self) -> Box<dyn Iterator<Item = Self>> {
        match self {
            Self::Cancel(which) => Box::new(which.shrink().map(Self::Cancel)),
            Self::Get(which) => Box::new(which.shrink().map(Self::Get)),
            _ => quickcheck::empty_shrinker(),
        }
    }
}

/// Mostly small, seldom negative.
fn arbitrary_width(g: &mut Gen) -> i64 {
    match u8::arbitrary(g) % 8 {
        0 => -i64::from(u8::arbitrary(g)),
        1 => i64::MAX >> (u8::arbitrary(g) % 64),
        _ => u8::arbitrary(g).into(),
    }
}

/// How many calls the work of `Op::ExpireBounded` is done in.
const STEPS: usize = 3;

/// A wheel beside its model; every operation is done on both and its results are compared.
struct Pair {
    wheel: Wheel<u32>,
    model: Model,
    /// The key of each value ever scheduled, by value.
    keys: Vec<Key>,
}

impl Pair {
    fn new(mode: Mode) -> Self {
        Self { wheel: Wheel::new(mode), model: Model::default(), keys: Vec::new() }
    }

    fn name(&self, which: usize) -> Option<(u32, Key)> {
        let value = which.checked_rem(self.keys.len())?;
        Some((u32::try_from(value).expect("few values"), self.keys[value]))
    }

    fn schedule(&mut self, deadline: u64) {
        let value = self.model.schedule(deadline);
        self.keys.push(self.wheel.schedule(deadline, value));
    }

    fn cancel(&mut self, which: usize) {
        let Some((value, key)) = self.name(which) else { return };
        assert_eq!(self.wheel.cancel(key), self.model.cancel(value));
    }

    /// Expires once on both sides, and returns whether there was something.
    fn expire(&mut self, now: u64) -> bool {
        let expired = self.wheel.expire(now);
        let wanted = self.model.expire(now);
        match (&expired, wanted) {
            (Some(Expired { key, deadline, value }), Some(wanted)) => {
                assert_eq!((*deadline, *value), wanted, "expire({now})");
                assert_eq!(*key, self.keys[*value as usize]);
                assert_eq!(self.wheel.get(*key), None, "an expired timeout's key is stale");
            }
            _ => assert_eq!(expired.map(|expired| expired.value), wanted.map(|wanted| wanted.1)),
        }
        wanted.is_some()
    }

    fn apply(&mut self, op: &Op) {
        let now = self.model.now;
        match op {
            Op::Schedule(tick) => self.schedule(tick.resolve(now)),
            Op::ScheduleCrowd(tick, count, ticks) => {
                for nth in 0..u64::from(*count) {
                    let offset = nth.checked_rem((*ticks).into()).unwrap_or(0);
                    self.schedule(tick.resolve(now).saturating_add(offset));
                }
            }
            Op::Cancel(which) => self.cancel(*which),
            Op::CancelCrowd(first, count, spare) => {
                for nth in 0..usize::from(*count).min(self.keys.len()) {
                    if nth.checked_rem((*spare).into()) != Some(0) {
                        self.cancel(first.wrapping_add(nth));
                    }
                }
            }
            Op::Reschedule(which, tick) => {
                let Some((value, key)) = self.name(*which) else { return };
                let deadline = tick.resolve(now);
                assert_eq!(
                    self.wheel.reschedule(key, deadline),
                    self.model.reschedule(value, deadline)
                );
            }
            Op::ScheduleWithin(tick, width) => {
                let first = tick.resolve(now);
                let range = first..=first.saturating_add_signed(*width);
                let key = self.wheel.schedule_within(range.clone(), self.keys.len() as u32);
                let deadline = self.wheel.deadline(key).expect("it is pending");
                assert_in_range(deadline, &range, now);
                self.model.schedule(deadline);
                self.keys.push(key);
            }
            Op::RescheduleWithin(which, tick, width) => {
                let Some((value, key)) = self.name(*which) else { return };
                let first = tick.resolve(now);
                let range = first..=first.saturating_add_signed(*width);
                let before = self.model.deadline(value);
                assert_eq!(self.wheel.reschedule_within(key, range.clone()), before.is_some());
                let Some(before) = before else { return };
                let deadline = self.wheel.deadline(key).expect("it is pending");
                if range.contains(&before) {
                    assert_eq!(deadline, before, "a timeout that is in the range is not moved");
                } else {
                    assert_in_range(deadline, &range, now);
                    self.model.reschedule(value, deadline);
                }
            }
            Op::Expire(tick) => while self.expire(tick.resolve(now)) {},
            Op::ExpireSome(tick, most) => {
                for _ in 0..*most {
                    if !self.expire(tick.resolve(now)) {
                        break;
                    }
                    self.wheel.check();
                }
            }
            Op::ExpireBounded(tick, work) => {
                let tick = tick.resolve(now);
                // What can be seen in between does not show how far it is.
                for _ in 0..STEPS {
                    let mut work = usize::from(*work) / STEPS;
                    while let Some(Expired { key, deadline, value }) =
                        self.wheel.expire_bounded(tick, &mut work)
                    {
                        assert_eq!(Some((deadline, value)), self.model.expire(tick));
                        assert_eq!(key, self.keys[value as usize]);
                    }
                    self.model.now = now.max(tick);
                    self.check();
                    if work > 0 {
                        assert!(!self.expire(tick), "with work left, nothing is");
                    }
                }
            }
            Op::Wake => {
                let Some(tick) = self.wheel.next_wake() else { return };
                while self.expire(tick) {}
                assert!(
                    self.wheel.next_wake().is_none_or(|next| tick < next),
                    "waking at the hint makes progress"
                );
            }
            Op::NextDeadline => {
                assert_eq!(self.wheel.next_deadline(), self.model.next_deadline());
            }
            Op::Peek => {
                let peeked = self.wheel.peek().map(|(key, tick, &value)| (key, tick, value));
                let next = self.model.pending.first_key_value();
                let wanted =
                    next.map(|(&(tick, _), &value)| (self.keys[value as usize], tick, value));
                assert_eq!(peeked, wanted);
            }
            Op::CancelEarliest(count) => {
                for _ in 0..*count {
                    let next = self.model.pending.first_key_value().map(|(_, &value)| value);
                    assert_eq!(self.wheel.next_deadline(), self.model.next_deadline());
                    let Some(value) = next else { break };
                    self.cancel(value as usize);
                }
            }
            Op::Get(which) => {
                let Some((value, key)) = self.name(*which) else { return };
                let deadline = self.model.deadline(value);
                assert_eq!(self.wheel.deadline(key), deadline);
                assert_eq!(self.wheel.get(key).copied(), deadline.map(|_| value));
            }
            Op::GetMut(which) => {
                let Some((value, key)) = self.name(*which) else { return };
                let found = self.wheel.get_mut(key).map(|value| *value);
                assert_eq!(found, self.model.deadline(value).map(|_| value));
            }
            Op::Iter => {
                let iter = self.wheel.iter();
                assert_eq!(iter.len(), self.model.pending.len());
                let mut found: Vec<_> =
                    iter.map(|(key, tick, &value)| (tick, value, key)).collect();
                found.sort_unstable();
                let mut wanted: Vec<_> = self
                    .model
                    .pending
                    .iter()
                    .map(|(&(tick, _), &value)| (tick, value, self.keys[value as usize]))
                    .collect();
                wanted.sort_unstable();
                assert_eq!(found, wanted);
            }
            Op::IterMut => {
                let iter = self.wheel.iter_mut();
                assert_eq!(iter.len(), self.model.pending.len());
                for (_, _, value) in iter {
                    *value = !*value;
                }
                for (key, tick, value) in &mut self.wheel {
                    *value = !*value;
                    assert_eq!(self.model.deadline(*value), Some(tick));
                    assert_eq!(self.keys[*value as usize], key);
                }
            }
            Op::Retain(every) => {
                let is_kept = |value: u32| value % 4 < u32::from(*every);
                let mut looked = 0;
                self.wheel.retain(|key, tick, value| {
                    looked += 1;
                    assert_eq!(self.model.deadline(*value), Some(tick));
                    assert_eq!(self.keys[*value as usize], key);
                    is_kept(*value)
                });
                assert_eq!(looked, self.model.pending.len());
                for value in 0..self.keys.len() as u32 {
                    if !is_kept(value) {
                        self.model.cancel(value);
                    }
                }
            }
            Op::ExtractDue(tick, most) => {
                let tick = tick.resolve(now);
                let most = usize::from(*most);
                let mut count = 0;
                for Expired { key, deadline, value } in self.wheel.extract_due(tick).take(most) {
                    assert_eq!(Some((deadline, value)), self.model.expire(tick));
                    assert_eq!(key, self.keys[value as usize]);
                    count += 1;
                }
                if count < most {
                    assert_eq!(self.model.expire(tick), None, "nothing is left out");
                }
            }
            Op::Drain(most) => {
                let mut drain = self.wheel.drain();
                assert_eq!(drain.len(), self.model.pending.len());
                for expired in drain.by_ref().take((*most).into()) {
                    assert_eq!(self.model.deadline(expired.value), Some(expired.deadline));
                    assert_eq!(self.model.cancel(expired.value), Some(expired.value));
                }
                assert_eq!(drain.len(), self.model.pending.len());
                drop(drain);
                self.clear_model();
            }
            Op::Clear => {
                self.wheel.clear();
                self.clear_model();
            }
            Op::Reserve(timeouts) => self.wheel.reserve((*timeouts).into()),
            Op::ShrinkToFit => self.wheel.shrink_to_fit(),
        }
    }

    fn clear_model(&mut self) {
        self.model.pending.clear();
        self.model.places.fill(None);
    }

    /// What must hold whatever was done.
    fn check(&self) {
        self.wheel.check();
        let next_deadline = self.model.next_deadline();
        match (self.wheel.next_wake(), next_deadline) {
            (Some(wake), Some(deadline)) => assert!(wake <= deadline, "it wakes in time"),
            (wake, deadline) => assert_eq!(wake, deadline),
        }
        assert_eq!(self.wheel.now(), self.model.now);
        assert_eq!(self.wheel.len(), self.model.pending.len());
        assert_eq!(self.wheel.is_empty(), self.model.pending.is_empty());
    }
}

/// Panics unless `deadline` is in the range, as far as that is not before `now`.
fn assert_in_range(deadline: u64, range: &RangeInclusive<u64>, now: u64) {
    let earliest = now.max(*range.start());
    let latest = earliest.max(*range.end());
    assert!((earliest..=latest).contains(&deadline), "{deadline} in {range:?} at {now}");
}

/// Applies the operations, then lets everything expire.
fn agrees_with_the_model(mode: Mode, ops: &[Op]) {
    let mut pair = Pair::new(mode);
    for op in ops {
        pair.apply(op);
        pair.check();
    }
    while pair.expire(u64::MAX) {}
    pair.check();
    assert!(pair.wheel.is_empty());
}

macro_rules! agrees_with_the_model {
    ($($name:ident: $mode:expr;)*) => {
        $(
            #[test]
            fn $name() {
                fn agrees(ops: Vec<Op>) {
                    agrees_with_the_model($mode.expect("a mode"), &ops);
                }
                QuickCheck::new().quickcheck(agrees as fn(Vec<Op>));
            }
        )*
    };
}

agrees_with_the_model! {
    hashed_1_agrees_with_the_model: Mode::hashed(1);
    hashed_2_agrees_with_the_model: Mode::hashed(2);
    hashed_8_agrees_with_the_model: Mode::hashed(8);
    hashed_64_agrees_with_the_model: Mode::hashed(64);
    hashed_128_agrees_with_the_model: Mode::hashed(128);
    hashed_512_agrees_with_the_model: Mode::hashed(512);
    hashed_2_to_the_30_agrees_with_the_model: Mode::hashed(1 << 30);
    hierarchical_2_agrees_with_the_model: Mode::hierarchical_with(2);
    hierarchical_64_agrees_with_the_model: Mode::hierarchical_with(64);
    hierarchical_256_agrees_with_the_model: Mode::hierarchical_with(256);
    hierarchical_2_to_the_30_agrees_with_the_model: Mode::hierarchical_with(1 << 30);
}
