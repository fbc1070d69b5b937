use crate::log::Log;
use crate::subject::{Setup, Subject};
use bitwheel::timer::{BitWheelWithFailover, Timer, TimerHandle};
use std::time::{Duration, Instant};

/// bitwheel 0.6: a hierarchical wheel of fixed arrays that demotes nothing, with a `BTreeMap` for
/// what its slots do not hold.
///
/// Driven well: ticks of 1 ms, seven levels, which hold all delays, 128 places a slot, and a look
/// into the map at every tick, so that what is there is not late.
pub(crate) struct BitWheel {
    wheel: Box<BitWheelWithFailover<Entry, 7, 1, 128, 3, 1>>,
    epoch: Instant,
}

struct Entry(u64);

impl Timer for Entry {
    type Context = Vec<u64>;

    fn fire(&mut self, values: &mut Vec<u64>) {
        values.push(self.0);
    }
}

impl BitWheel {
    fn instant(&self, time: u64) -> Instant {
        self.epoch + Duration::from_millis(time)
    }
}

impl Subject for BitWheel {
    type Key = TimerHandle;

    fn new(_setup: &Setup) -> Self {
        let epoch = Instant::now();
        Self { wheel: BitWheelWithFailover::boxed_with_epoch(epoch), epoch }
    }

    fn schedule(&mut self, deadline: u64, value: u64) -> Self::Key {
        self.wheel.insert(self.instant(deadline), Entry(value))
    }

    fn cancel(&mut self, key: Self::Key, value: u64) -> bool {
        self.wheel.cancel(key).is_some_and(|entry| entry.0 == value)
    }

    fn expire_some(&mut self, now: u64, log: &mut Log) -> bool {
        self.wheel.poll(self.instant(now), &mut log.values);
        false
    }

    fn next_wake(&mut self) -> Option<u64> {
        let wake = self.wheel.peek_next_fire().filter(|_| !self.wheel.is_empty())?;
        Some(wake.duration_since(self.epoch).as_millis() as u64)
    }
}
