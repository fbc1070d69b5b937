use crate::log::Log;
use crate::subject::{Setup, Subject};
use subms_timer_wheel::TimerWheel;

/// subms-timer-wheel 0.10: a hashed wheel that counts rounds, with a map from names to buckets.
///
/// Driven well: with as many buckets as one round needs, and not many more than timeouts; ticks
/// at which nothing at all is pending are left out. It is told delays, and has to be driven
/// through every tick.
pub(crate) struct Subms {
    wheel: TimerWheel<u64>,
    now: u64,
}

impl Subms {
    fn delay(&self, deadline: u64) -> usize {
        deadline.saturating_sub(self.now) as usize
    }
}

impl Subject for Subms {
    type Key = u64;

    fn new(setup: &Setup) -> Self {
        Self { wheel: TimerWheel::new(setup.buckets()), now: 0 }
    }

    fn schedule(&mut self, deadline: u64, value: u64) -> u64 {
        self.wheel.schedule(self.delay(deadline), value)
    }

    fn cancel(&mut self, key: u64, _value: u64) -> bool {
        self.wheel.cancel(key)
    }

    fn reschedule(&mut self, key: u64, deadline: u64, _value: u64) -> u64 {
        self.wheel.reschedule(key, self.delay(deadline));
        key
    }

    /// One tick.
    fn expire_some(&mut self, now: u64, log: &mut Log) -> bool {
        if self.wheel.is_empty() {
            self.now = self.now.max(now);
        }
        if now <= self.now {
            return false;
        }
        self.now += 1;
        log.values.append(&mut self.wheel.tick());
        true
    }

    fn next_wake(&mut self) -> Option<u64> {
        if self.wheel.is_empty() { None } else { Some(self.now + 1) }
    }
}
