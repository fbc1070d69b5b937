//! Ours, in both modes.

use crate::log::Log;
use crate::subject::{Kind, Profile, Setup, Subject};
use tickwheel::{Key, Mode, Wheel};

/// `Wheel` in hierarchical mode: 64 buckets a level, as by default.
#[derive(Debug)]
pub(crate) struct Hierarchical(Wheel<u64>);

/// `Wheel` in hashed mode: as many buckets as one round needs, and not many more than timeouts; no
/// more than 65,536, beyond which it does worse.
#[derive(Debug)]
pub(crate) struct Hashed(Wheel<u64>);

/// Timeouts handed out, moved or looked at in one call where calls are to be short: with a lock
/// held, some microseconds.
const WORK: usize = 64;

const MOST_BUCKETS: usize = 1 << 16;

macro_rules! subject {
    ($subject:ident, $name:literal, |$setup:ident| $mode:expr) => {
        impl Subject for $subject {
            type Key = Key;

            const PROFILE: Profile = Profile::new($name, Kind::Ours);

            fn new($setup: &Setup) -> Self {
                Self(Wheel::new($mode))
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
                match self.0.expire_bounded(now, &mut work) {
                    Some(expired) => {
                        log.values.push(expired.value);
                        true
                    }
                    None => work == 0,
                }
            }

            fn next_wake(&mut self) -> Option<u64> {
                self.0.next_wake()
            }
        }
    };
}

subject!(Hierarchical, "tickwheel", |_setup| Mode::hierarchical());
subject!(Hashed, "tickwheel-hashed", |setup| {
    Mode::hashed(setup.buckets().min(MOST_BUCKETS)).expect("a power of two below 2^30")
});
