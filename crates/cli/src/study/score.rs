//! The score: what makes one configuration better than another.

use super::run::Driver;
use super::work::Figures;
use crate::units;
use std::time::Duration;

/// What counts besides the processor time of the calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scale {
    pub(super) operations: u64,
    /// What a wake-up counts.
    pub(super) wake_cost: Duration,
    pub(super) driver: Driver,
}

impl Scale {
    /// The score of calls that take `cpu_ns` per operation, in nanoseconds per operation; less is
    /// better. [`describe`](Self::describe) says it in words.
    pub(super) fn score(&self, cpu_ns: f64, work: &Figures) -> f64 {
        let [cpu, wakeups, memory, call] = self.parts(cpu_ns, work);
        cpu + wakeups + memory + call
    }

    /// The parts of a score: the calls, the wake-ups, and what memory and the longest call add.
    pub(super) fn parts(&self, cpu_ns: f64, work: &Figures) -> [f64; 4] {
        let operations = self.operations.max(1) as f64;
        let wakeups = work.wakeups as f64 / operations * self.wake_cost.as_nanos() as f64;
        let base = cpu_ns + wakeups;
        let with_memory = base * factor(work.memory_bytes, LITTLE_MEMORY);
        let call = match self.driver {
            // A timer caps its calls.
            Driver::Timer => 1.0,
            Driver::Wheel => factor(work.longest_call, SHORT_CALL),
        };
        [cpu_ns, wakeups, with_memory - base, with_memory * (call - 1.0)]
    }

    /// The score by counted work alone.
    pub(super) fn counted(&self, work: &Figures, buckets: usize) -> f64 {
        let cpu_ns = work.counted_ns(buckets) / self.operations.max(1) as f64;
        self.score(cpu_ns, work)
    }

    /// Says in a sentence what the score is.
    pub(super) fn describe(&self) -> String {
        let call = match self.driver {
            Driver::Timer => String::new(),
            Driver::Wheel => format!(
                ", and each doubling of the longest call beyond {SHORT_CALL} timeouts that it \
                 handles"
            ),
        };
        format!(
            "Score: CPU time per operation with {} for each wake-up; each doubling of the memory \
             beyond {}{call} adds {} %.",
            units::time(self.wake_cost),
            units::memory(LITTLE_MEMORY),
            ((DOUBLING - 1.0) * 100.0).round(),
        )
    }
}

/// What `number` multiplies a score by, if up to `free` counts nothing.
fn factor(number: u64, free: u64) -> f64 {
    DOUBLING.powf((number.max(free) as f64 / free as f64).log2())
}

/// What each doubling multiplies the score by.
const DOUBLING: f64 = 1.05;

/// Memory that nobody misses.
const LITTLE_MEMORY: u64 = 1 << 20;

/// The timeouts that a call handles in no more time than the scheduler of a busy system makes a
/// thread wait.
const SHORT_CALL: u64 = 4096;
