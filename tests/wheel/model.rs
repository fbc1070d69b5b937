//! Any sequence of operations gives what a sorted map gives, in every mode, and breaks no
//! invariant.
//!
//! `QUICKCHECK_TESTS=20000 cargo test --release --test wheel model` looks longer.

use crate::common::asked_or_long;
use crate::pair::Pair;
use quickcheck::{Arbitrary, Gen, QuickCheck};
use std::ops::RangeInclusive;
use tickwheel::Mode;

/// A number names a timeout among all that were ever scheduled: the number modulo their count.
#[derive(Clone, Debug)]
enum Op {
    Schedule(Tick),
    /// Schedules this many timeouts, in turn at the tick and at the ticks that follow it.
    ScheduleCrowd(Tick, u16, u8),
    Cancel(usize),
    /// Cancels this many in the order in which they were scheduled, and leaves out every nth.
    CancelCrowd(usize, u16, u8),
    Reschedule(usize, Tick),
    /// Schedules within a range that begins at a tick and has this many more; if the number is
    /// negative, the range ends before it begins.
    ScheduleWithin(Tick, i64),
    RescheduleWithin(usize, Tick, i64),
    /// Expires until None.
    Expire(Tick),
    /// Expires at most this many times.
    ExpireSome(Tick, u8),
    /// Expires with a bound on the work.
    ExpireBounded(Tick, u16),
    /// Expires at the tick that `next_wake` gives.
    Wake,
    NextDeadline,
    Peek,
    /// Asks for the next deadline and cancels that timeout, this many times.
    CancelEarliest(u16),
    Get(usize),
    Iter,
    /// Keeps every nth timeout.
    Retain(u8),
    /// Takes out this many of the timeouts that are due.
    ExtractDue(Tick, u8),
    /// Takes out this many and drops the rest.
    Drain(u8),
    Clear,
    Reserve(u16),
    ShrinkToFit,
}

/// A point in time, relative to the wheel's time at the operation.
#[derive(Clone, Debug)]
enum Tick {
    After(u64),
    Before(u64),
    At(u64),
    /// The first tick of the next block of 2^bits ticks, plus an offset.
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
                // Now and then there are more than one step handles.
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
            230..=243 => Self::Get(usize::arbitrary(g)),
            244..=246 => Self::Iter,
            247 => Self::Retain(u8::arbitrary(g) % 4),
            248 => Self::Drain(u8::arbitrary(g) % 8),
            249 => Self::Clear,
            250..=251 => Self::Reserve(u16::arbitrary(g) % 2_000),
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

impl Pair {
    /// Returns one of all values that were ever scheduled.
    fn name(&self, which: usize) -> Option<usize> {
        which.checked_rem(self.timeouts.len())
    }

    fn apply(&mut self, op: &Op) {
        let now = self.now;
        match op {
            Op::Schedule(tick) => self.schedule(tick.resolve(now)),
            Op::ScheduleCrowd(tick, count, ticks) => {
                for nth in 0..u64::from(*count) {
                    let offset = nth.checked_rem((*ticks).into()).unwrap_or(0);
                    self.schedule(tick.resolve(now).saturating_add(offset));
                }
            }
            Op::Cancel(which) => self.name(*which).into_iter().for_each(|value| self.cancel(value)),
            Op::CancelCrowd(first, count, spare) => {
                for nth in 0..usize::from(*count).min(self.timeouts.len()) {
                    if nth.checked_rem((*spare).into()) != Some(0) {
                        self.apply(&Op::Cancel(first.wrapping_add(nth)));
                    }
                }
            }
            Op::Reschedule(which, tick) => {
                let Some(value) = self.name(*which) else { return };
                self.reschedule(value, tick.resolve(now));
            }
            Op::ScheduleWithin(tick, width) => {
                let first = tick.resolve(now);
                let range = first..=first.saturating_add_signed(*width);
                let key = self.wheel.schedule_within(range.clone(), self.timeouts.len());
                let deadline = self.wheel.deadline(key).expect("it is pending");
                assert_in_range(deadline, &range, now);
                self.add(key, deadline);
            }
            Op::RescheduleWithin(which, tick, width) => {
                let Some(value) = self.name(*which) else { return };
                let key = self.timeouts[value].0;
                let first = tick.resolve(now);
                let range = first..=first.saturating_add_signed(*width);
                let before = self.deadline(value);
                assert_eq!(self.wheel.reschedule_within(key, range.clone()), before.is_some());
                let Some(before) = before else { return };
                let deadline = self.wheel.deadline(key).expect("it is pending");
                if range.contains(&before) {
                    assert_eq!(deadline, before, "a timeout that is in the range is not moved");
                } else {
                    assert_in_range(deadline, &range, now);
                    self.take(value);
                    self.place(value, deadline);
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
            // An unfinished call must not show from outside.
            Op::ExpireBounded(tick, work) => {
                for _ in 0..STEPS {
                    let is_done = self.expire_bounded(tick.resolve(now), *work as usize / STEPS);
                    self.check();
                    assert!(!is_done || !self.expire(tick.resolve(now)));
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
            Op::NextDeadline => self.look_for_next(),
            Op::Peek => {
                let peeked = self.wheel.peek().map(|(key, tick, &value)| (key, tick, value));
                let next = self.pending.first_key_value();
                let wanted = next.map(|(place, &value)| (self.timeouts[value].0, place.0, value));
                assert_eq!(peeked, wanted);
            }
            Op::CancelEarliest(count) => {
                for _ in 0..*count {
                    self.look_for_next();
                    let Some((_, &value)) = self.pending.first_key_value() else { break };
                    self.cancel(value);
                }
            }
            Op::Get(which) => {
                let Some(value) = self.name(*which) else { return };
                let (key, place) = self.timeouts[value];
                let found = place.map(|_| value);
                assert_eq!(self.wheel.deadline(key), self.deadline(value));
                assert_eq!(self.wheel.get(key).copied(), found);
                assert_eq!(self.wheel.get_mut(key).copied(), found);
            }
            Op::Iter => self.iterate(),
            Op::Retain(every) => {
                let is_kept = |value: usize| value % 4 < usize::from(*every);
                let mut looked = 0;
                self.wheel.retain(|key, tick, value| {
                    looked += 1;
                    let (its_key, place) = self.timeouts[*value];
                    assert_eq!((key, Some(tick)), (its_key, place.map(|place| place.0)));
                    is_kept(*value)
                });
                assert_eq!(looked, self.pending.len());
                for value in (0..self.timeouts.len()).filter(|&value| !is_kept(value)) {
                    self.take(value);
                }
            }
            Op::ExtractDue(tick, most) => {
                let (tick, most) = (tick.resolve(now), usize::from(*most));
                let out: Vec<_> = self.wheel.extract_due(tick).take(most).collect();
                let is_all = out.len() < most;
                for expired in out {
                    self.came(tick, Some(expired));
                }
                // If it took out as many as were asked for, there may be more.
                assert!(!is_all || !self.came(tick, None), "nothing is left out");
            }
            Op::Drain(most) => {
                let mut drain = self.wheel.drain();
                assert_eq!(drain.len(), self.pending.len());
                let out: Vec<_> = drain.by_ref().take((*most).into()).collect();
                assert_eq!(drain.len() + out.len(), self.pending.len());
                drop(drain);
                for expired in out {
                    assert_eq!(self.take(expired.value), Some(expired.deadline));
                }
                self.clear_map();
            }
            Op::Clear => self.clear(),
            Op::Reserve(timeouts) => self.wheel.reserve((*timeouts).into()),
            Op::ShrinkToFit => self.wheel.shrink_to_fit(),
        }
    }
}

/// Panics unless `deadline` is in the part of the range that is not before `now`.
fn assert_in_range(deadline: u64, range: &RangeInclusive<u64>, now: u64) {
    let earliest = now.max(*range.start());
    let latest = earliest.max(*range.end());
    assert!((earliest..=latest).contains(&deadline), "{deadline} in {range:?} at {now}");
}

/// Applies the operations, then lets everything expire.
fn agrees_with_the_model(mode: Mode, ops: &[Op]) {
    for mut pair in [Pair::new(mode), Pair::of_few(mode)] {
        for op in ops {
            pair.apply(op);
            pair.check();
        }
        while pair.expire(u64::MAX) {}
        pair.check();
        assert!(pair.wheel.is_empty());
    }
}

macro_rules! agrees_with_the_model {
    ($($name:ident: $mode:expr;)*) => {
        $(
            #[test]
            fn $name() {
                fn agrees(ops: Vec<Op>) {
                    agrees_with_the_model($mode.expect("a mode"), &ops);
                }
                let tests = asked_or_long("QUICKCHECK_TESTS", 15, 100);
                QuickCheck::new().tests(tests).quickcheck(agrees as fn(Vec<Op>));
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

/// Into how many calls `Op::ExpireBounded` divides its work.
const STEPS: usize = 3;
