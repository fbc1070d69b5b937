//! A wheel of many timeouts grows in steps: what is promised holds in the middle of it.

use crate::checked::Checked;
use crate::common::{Numbers, long};
use crate::pair::Pair;
use tickwheel::Mode;

in_each_mode! {
    anything_can_be_done_while_it_grows,
    emptied_in_the_middle_it_starts_afresh,
    shrunk_in_the_middle_keys_stay_good,
}

fn anything_can_be_done_while_it_grows(mode: Mode) {
    let mut numbers = Numbers(31);
    let mut pair = Pair::new(mode);
    while pair.wheel.len() < MANY {
        let some = numbers.below(pair.timeouts.len() as u64 + 1) as usize;
        let later = pair.now + 1 + numbers.below(50_000);
        match numbers.below(16) {
            0 if some > 0 => pair.cancel(some - 1),
            1 if some > 0 => pair.reschedule(some - 1, later),
            2 => {
                let now = pair.now + numbers.below(2);
                while pair.expire(now) {}
            }
            _ => pair.schedule(later),
        }
        if pair.scheduled % long(5_000, 1_000) == 0 {
            pair.check();
            pair.iterate();
        }
    }
    while pair.expire(u64::MAX) {}
    pair.check();
}

/// Lengths at which a larger array is laid out, moved to, and done with, and some between.
fn lengths() -> impl Iterator<Item = usize> {
    (8_000..MANY).step_by(if cfg!(debug_assertions) { long(2_561, 1_281) } else { 61 })
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

/// More than are ever moved at once: 16 or 8 bytes each, 64 KB.
const MANY: usize = 20_000;
