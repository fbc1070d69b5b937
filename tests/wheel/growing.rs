//! A wheel of many timeouts grows in steps: what is promised holds in the middle of it.

use crate::checked::Checked;
use crate::common::Numbers;
use std::collections::BTreeMap;
use tickwheel::{Key, Mode};

in_each_mode! {
    anything_can_be_done_while_it_grows,
    emptied_in_the_middle_it_starts_afresh,
    shrunk_in_the_middle_keys_stay_good,
}

/// More than are ever moved at once: 16 or 8 bytes each, 64 KB.
const MANY: usize = 20_000;

/// A wheel and what must be in it, by deadline and in the order of scheduling.
struct Growing {
    wheel: Checked<u64>,
    expected: BTreeMap<(u64, u64), (Key, u64)>,
    /// By the number that a timeout's value is.
    pending: Vec<(Key, (u64, u64))>,
    done: u64,
}

impl Growing {
    fn new(mode: Mode) -> Self {
        let wheel = Checked::new(mode);
        Self { wheel, expected: BTreeMap::new(), pending: Vec::new(), done: 0 }
    }

    fn schedule(&mut self, deadline: u64) {
        let value = self.pending.len() as u64;
        let key = self.wheel.unchecked().schedule(deadline, value);
        let at = (deadline, self.done);
        self.expected.insert(at, (key, value));
        self.pending.push((key, at));
        self.done += 1;
    }

    /// The timeout of value `value`, if it is still there.
    fn cancel(&mut self, value: u64) {
        let (key, at) = self.pending[value as usize];
        let expected = self.expected.remove(&at).map(|(_, value)| value);
        assert_eq!(self.wheel.get(key), expected.as_ref());
        assert_eq!(self.wheel.deadline(key), expected.map(|_| at.0));
        assert_eq!(self.wheel.unchecked().cancel(key), expected);
    }

    fn reschedule(&mut self, value: u64, deadline: u64) {
        let (key, at) = self.pending[value as usize];
        let expected = self.expected.remove(&at);
        assert_eq!(self.wheel.unchecked().reschedule(key, deadline), expected.is_some());
        if let Some(timeout) = expected {
            let at = (deadline, self.done);
            self.expected.insert(at, timeout);
            self.pending[value as usize].1 = at;
            self.done += 1;
        }
    }

    fn expire(&mut self, now: u64) {
        while let Some(expired) = self.wheel.unchecked().expire(now) {
            let ((deadline, _), timeout) = self.expected.pop_first().expect("there is one");
            assert_eq!((expired.deadline, (expired.key, expired.value)), (deadline, timeout));
        }
        assert!(self.expected.first_key_value().is_none_or(|(&(deadline, _), _)| now < deadline));
    }

    #[track_caller]
    fn check(&mut self) {
        self.wheel.check();
        let changed = self.wheel.unchecked().iter_mut().map(|one| (one.0, *one.2)).collect();
        assert_eq!(self.expected.values().copied().collect::<BTreeMap<_, _>>(), changed);
        let iterated: BTreeMap<_, _> = self.wheel.iter().map(|one| (one.0, *one.2)).collect();
        assert_eq!(iterated, self.expected.values().copied().collect());
    }
}

fn anything_can_be_done_while_it_grows(mode: Mode) {
    let mut numbers = Numbers(31);
    let mut growing = Growing::new(mode);
    let mut now = 0;
    while growing.wheel.len() < MANY {
        let done = numbers.below(growing.pending.len() as u64 + 1);
        match numbers.below(16) {
            0 if done > 0 => growing.cancel(done - 1),
            1 if done > 0 => growing.reschedule(done - 1, now + 1 + numbers.below(50_000)),
            2 => {
                now += numbers.below(2);
                growing.expire(now);
            }
            _ => growing.schedule(now + 1 + numbers.below(50_000)),
        }
        if growing.done % 1000 == 0 {
            growing.check();
        }
    }
    growing.expire(u64::MAX);
    growing.check();
    assert!(growing.wheel.is_empty());
}

/// Lengths at which a larger array is laid out, moved to, and done with, and some between.
fn lengths() -> impl Iterator<Item = usize> {
    (8_000..MANY).step_by(if cfg!(debug_assertions) { 427 } else { 61 })
}

fn emptied_in_the_middle_it_starts_afresh(mode: Mode) {
    for (turn, len) in lengths().enumerate() {
        let mut wheel = Checked::new(mode);
        let keys: Vec<_> =
            (0..len as u64).map(|value| wheel.unchecked().schedule(9, value)).collect();
        match turn % 3 {
            0 => wheel.unchecked().clear(),
            1 => assert_eq!(wheel.drain().count(), len),
            _ => assert!(keys.iter().all(|&key| wheel.unchecked().cancel(key).is_some())),
        }
        let fresh = wheel.schedule(7, 70);
        assert!(keys.iter().all(|&key| wheel.get(key).is_none()));
        assert_eq!(wheel.get(fresh), Some(&70));
        assert_eq!(wheel.jump(10), [(7, 70)]);
    }
}

fn shrunk_in_the_middle_keys_stay_good(mode: Mode) {
    for len in lengths() {
        let mut wheel = Checked::new(mode);
        let keys: Vec<_> =
            (0..len as u64).map(|value| wheel.unchecked().schedule(9, value)).collect();
        let left = len * 2 / 3;
        for &key in &keys[left..] {
            wheel.unchecked().cancel(key);
        }
        wheel.unchecked().shrink_to_fit();
        wheel.check();
        let more = (left..len).map(|value| wheel.unchecked().schedule(9, value as u64));
        let keys: Vec<_> = keys[..left].iter().copied().chain(more.collect::<Vec<_>>()).collect();
        for (value, &key) in (0..).zip(&keys) {
            assert_eq!(wheel.get(key), Some(&value));
        }
        assert!((0..len as u64).eq(std::iter::from_fn(|| {
            wheel.unchecked().expire(9).map(|expired| expired.value)
        })));
        wheel.check();
    }
}
