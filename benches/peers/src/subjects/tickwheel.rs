use crate::log::Log;
use crate::subject::{Setup, Subject};
use tickwheel::{Key, Mode, Wheel};

/// `Wheel`, hierarchical or hashed.
///
/// The hierarchical wheel has 64 buckets per level, which is the default. The hashed wheel has as
/// many buckets as one round needs, but not many more than timeouts, and at most 65,536: with more
/// it does worse.
#[derive(Debug)]
pub(crate) struct Tickwheel<const IS_HASHED: bool, const IS_NEW: bool = false>(Wheel<u64>);

impl<const IS_HASHED: bool, const IS_NEW: bool> Subject for Tickwheel<IS_HASHED, IS_NEW> {
    type Key = Key;

    const IS_NEW: bool = IS_NEW;

    fn new(setup: &Setup) -> Self {
        let hashed = Mode::hashed(setup.buckets().min(MOST_BUCKETS));
        Self(Wheel::new(match IS_HASHED {
            true => hashed.expect("a power of two below 2^30"),
            false => Mode::hierarchical(),
        }))
    }

    fn schedule(&mut self, deadline: u64, value: u64) -> Key {
        self.0.schedule(deadline, value)
    }

    fn cancel(&mut self, key: Key, value: u64) -> bool {
        self.0.cancel(key) == Some(value)
    }

    fn reschedule(&mut self, key: Key, deadline: u64, _value: u64) -> Key {
        self.0.reschedule(key, deadline);
        key
    }

    fn expire(&mut self, now: u64, log: &mut Log) {
        while let Some(expired) = self.0.expire(now) {
            log.values.push(expired.value);
        }
    }

    fn expire_some(&mut self, now: u64, log: &mut Log) -> bool {
        let mut work = WORK;
        let Some(expired) = self.0.expire_bounded(now, &mut work) else { return work == 0 };
        log.values.push(expired.value);
        true
    }

    fn next_wake(&mut self) -> Option<u64> {
        self.0.next_wake()
    }
}

/// Timeouts handed out, moved or looked at in one call where calls are to be short: with a lock
/// held, some microseconds.
const WORK: usize = 64;

const MOST_BUCKETS: usize = 1 << 16;
