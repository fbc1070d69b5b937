use crate::log::Log;
use crate::subject::{Setup, Subject};
use nexus_timer::{TimerHandle, Wheel, WheelBuilder};
use std::time::{Duration, Instant};

/// nexus-timer 1.5: a hierarchical wheel of lists through a slab.
///
/// Driven well:
/// - by `poll_and_rebalance`, as `poll` alone never demotes and becomes a scan of all;
/// - woken by its own `next_deadline`;
/// - with its default of 7 levels, each 8 times as coarse, where those 4.7 hours hold all delays;
///   else with 8 levels, each 32 times as coarse (70 years);
/// - with a tick of 2^20 ns instead of its default of 1 ms, whose reciprocal it rounds, so that
///   each wake-up would be a tick too soon and in vain;
/// - with `schedule_forget` for what is never cancelled;
/// - where calls are to be short, with a limit to what one poll hands out, and one to what it moves
///   that keeps up with time.
pub(crate) struct NexusTimer {
    wheel: Wheel<u64>,
    epoch: Instant,
    /// log2 of the nanoseconds that the caller's unit of time has.
    unit: u32,
}

impl NexusTimer {
    /// Twice the rate that its documents ask for, as less makes it scan what it could not move.
    fn rebalances(setup: &Setup) -> usize {
        let average = (setup.longest / 2).max(1) as usize;
        (2 * 7 * setup.timeouts / average).max(WORK)
    }

    fn instant(&self, time: u64) -> Instant {
        self.epoch + Duration::from_nanos(time << self.unit)
    }
}

impl Subject for NexusTimer {
    type Key = TimerHandle<u64>;

    fn new(setup: &Setup) -> Self {
        let epoch = Instant::now();
        let mut builder = WheelBuilder::default()
            .tick_duration(Duration::from_nanos(1 << TICK))
            .max_rebalances_per_poll(match setup.short_calls {
                true => Self::rebalances(setup),
                false => usize::MAX,
            });
        if DEFAULT_RANGE < setup.longest {
            builder = builder.num_levels(8).clk_shift(5);
        }
        let wheel = builder.unbounded(4096).build(epoch).expect("a configuration that it allows");
        Self { wheel, epoch, unit: TICK - setup.units_a_tick.ilog2() }
    }

    fn schedule(&mut self, deadline: u64, value: u64) -> Self::Key {
        self.wheel.schedule(self.instant(deadline), value)
    }

    fn schedule_for_good(&mut self, deadline: u64, value: u64) {
        self.wheel.schedule_forget(self.instant(deadline), value);
    }

    fn cancel(&mut self, key: Self::Key, value: u64) -> bool {
        self.wheel.cancel(key) == Some(value)
    }

    fn reschedule(&mut self, key: Self::Key, deadline: u64, _value: u64) -> Self::Key {
        self.wheel.reschedule(key, self.instant(deadline))
    }

    fn retire(&mut self, key: Self::Key) {
        self.wheel.free(key);
    }

    fn expire(&mut self, now: u64, log: &mut Log) {
        self.wheel.poll_and_rebalance(self.instant(now), &mut log.values);
    }

    fn expire_some(&mut self, now: u64, log: &mut Log) -> bool {
        let now = self.instant(now);
        0 < self.wheel.poll_and_rebalance_with_limit(now, WORK, &mut log.values)
    }

    fn next_wake(&mut self) -> Option<u64> {
        let wake = self.wheel.next_deadline()?;
        let nanoseconds = wake.duration_since(self.epoch).as_nanos() as u64;
        Some(nanoseconds.div_ceil(1 << self.unit))
    }
}

const TICK: u32 = 20;

/// What 7 levels hold: 64 slots of 8^6 ticks.
const DEFAULT_RANGE: u64 = 64 << (6 * 3);

/// Handed out in one call, where calls are to be short.
const WORK: usize = 64;
