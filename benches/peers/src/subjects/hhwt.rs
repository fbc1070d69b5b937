use crate::log::Log;
use crate::subject::{Setup, Subject};
use hierarchical_hash_wheel_timer::wheels::Skip;
use hierarchical_hash_wheel_timer::wheels::cancellable::{
    CancellableTimerEntry, QuadWheelWithOverflow,
};
use std::rc::Rc;
use std::time::Duration;

/// hierarchical_hash_wheel_timer 1.4: four levels of 256 buckets and an overflow list, with a map
/// from names to timeouts beside them.
///
/// Driven well: it skips the ticks that it says can be skipped; the value serves as the name, and
/// the entry is nothing else. It has no reschedule, so that is a cancel and a schedule. What is
/// due already, which it gives back when it is scheduled, is kept here until the next expire.
pub(crate) struct Hhwt {
    wheel: QuadWheelWithOverflow<Entry>,
    now: u64,
    due: Vec<u64>,
}

#[derive(Debug)]
struct Entry(u64);

impl CancellableTimerEntry for Entry {
    type Id = u64;

    fn id(&self) -> &u64 {
        &self.0
    }
}

impl Subject for Hhwt {
    type Key = u64;

    fn new(_setup: &Setup) -> Self {
        Self { wheel: QuadWheelWithOverflow::new(), now: 0, due: Vec::new() }
    }

    fn schedule(&mut self, deadline: u64, value: u64) -> u64 {
        let delay = Duration::from_millis(deadline.saturating_sub(self.now));
        if self.wheel.insert_ref_with_delay(Rc::new(Entry(value)), delay).is_err() {
            self.due.push(value);
        }
        value
    }

    fn cancel(&mut self, key: u64, _value: u64) -> bool {
        self.wheel.cancel(&key).is_ok()
    }

    /// One tick, or one skip of many.
    fn expire_some(&mut self, now: u64, log: &mut Log) -> bool {
        log.values.append(&mut self.due);
        if now <= self.now {
            return false;
        }
        match self.wheel.can_skip() {
            Skip::Empty => self.now = now,
            Skip::Millis(ticks) => {
                let ticks = u64::from(ticks).min(now - self.now);
                self.wheel.skip(ticks as u32);
                self.now += ticks;
            }
            Skip::None => {
                self.now += 1;
                log.values.extend(self.wheel.tick().iter().map(|entry| entry.0));
            }
        }
        true
    }

    fn next_wake(&mut self) -> Option<u64> {
        if !self.due.is_empty() {
            return Some(self.now);
        }
        match self.wheel.can_skip() {
            Skip::Empty => None,
            Skip::Millis(ticks) => Some(self.now + u64::from(ticks) + 1),
            Skip::None => Some(self.now + 1),
        }
    }
}
