//! Generates traces of typical shapes, of any size, in the format that
//! [`study`](mod@crate::study) reads.
//!
//! ```
//! use tickwheel_cli::generate::{Generator, Shape, Size};
//! use tickwheel_cli::trace::Trace;
//!
//! let size = Size { operations: 1_000, ..Size::default() };
//! let mut csv = format!("{}\n", Trace::HEADER);
//! for operation in Generator::new(Shape::Cancelled, size, 7) {
//!     csv += &format!("{operation}\n");
//! }
//!
//! let trace = Trace::new("generated", std::io::Cursor::new(csv))?;
//! let operations = trace.collect::<Result<Vec<_>, _>>()?;
//! assert_eq!(operations.len(), 1_000);
//! # Ok::<(), tickwheel_cli::trace::TraceError>(())
//! ```

use crate::trace::{Action, Operation};
use clap::ValueEnum;
use fastrand::Rng;
use std::collections::HashMap;
use std::num::NonZeroU32;

/// What the timeouts of a generated trace are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum)]
#[non_exhaustive]
pub enum Shape {
    /// All delays are short, 1 to 100 ms; three timeouts in four fire, as pauses between retries
    /// do.
    Short,
    /// One delay for all, 30 s, which most operations move, as the idle timeouts of connections.
    OneDelay,
    /// Delays from 1 ms to a year, as many of each order of magnitude, as in a job system.
    Year,
    /// Delays of 1, 5 or 30 s, and 99 timeouts in 100 are cancelled, as the timeouts of requests.
    Cancelled,
    /// A tenth as many operations as timeouts may be pending, in the same ms, then a pause, with
    /// delays of 1, 10 or 60 s, as leases that many clients renew together.
    Bursts,
}

/// How large a generated trace is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// How many operations there are.
    pub operations: u64,
    /// The most timeouts that are pending at once. A generator takes some bytes for each.
    pub pending: NonZeroU32,
}

/// A trace of some shape, operation by operation.
///
/// The same shape, size and seed give the same trace. What is scheduled is not pending, and what is
/// rescheduled or cancelled is. A generator takes the same memory for any number of operations.
#[derive(Debug)]
pub struct Generator {
    shape: Shape,
    random: Rng,
    /// The operations to come.
    left: u64,
    time_ns: u128,
    /// The part of a nanosecond that is not in it yet, times the number of keys.
    rest: u64,
    /// The visits before the next pause, in bursts.
    together: u32,
    pending: NonZeroU32,
    /// By key, as far as any was scheduled.
    timeouts: HashMap<u32, Timeout>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Timeout {
    /// When it is due; in the past if it is not pending.
    due_ms: u64,
    /// Whether it is left alone until it is due.
    fires: bool,
}

/// How often keys are visited, and what for.
struct Habits {
    /// The mean time from one visit of a key to its next, in ns. At each visit a timeout that is
    /// pending can be moved or cancelled.
    between_visits_ns: u64,
    /// Of 100 timeouts, those that nothing is done to before they are due.
    percent_left_alone: u32,
    /// Of 100 visits of a pending timeout, those that move it; the others cancel it.
    percent_moved: u32,
}

impl Generator {
    /// Returns a generator of traces of this shape and size.
    #[must_use]
    pub fn new(shape: Shape, size: Size, seed: u64) -> Self {
        Self {
            shape,
            random: Rng::with_seed(seed),
            left: size.operations,
            time_ns: 0,
            rest: 0,
            together: 0,
            pending: size.pending,
            timeouts: HashMap::new(),
        }
    }

    /// The time until the next visit.
    fn pause(&mut self) -> u128 {
        let between_visits_ns = self.shape.habits().between_visits_ns;
        if self.shape != Shape::Bursts {
            let keys = u64::from(self.pending.get());
            let mean = between_visits_ns / keys;
            // Of very many keys, the mean itself is only a part of a nanosecond.
            self.rest += between_visits_ns % keys;
            let carried = self.rest / keys;
            self.rest %= keys;
            return (self.random.u64(0..=2 * mean) + carried).into();
        }
        if let Some(left) = self.together.checked_sub(1) {
            self.together = left;
            return 0;
        }
        // A tenth of all, so that each is visited once in ten bursts.
        self.together = (self.pending.get() / 10).max(1) - 1;
        u128::from(self.random.u64(0..=2 * between_visits_ns / 10))
    }

    fn delay_ms(&mut self) -> u64 {
        const YEAR_MS: f64 = 365.0 * 86_400_000.0;
        let one_of = |random: &mut Rng, delays: [u64; 3]| delays[random.usize(0..3)];
        match self.shape {
            Shape::Short => self.random.u64(1..=100),
            Shape::OneDelay => 30_000,
            Shape::Year => YEAR_MS.powf(self.random.f64()) as u64,
            Shape::Cancelled => one_of(&mut self.random, [1_000, 5_000, 30_000]),
            Shape::Bursts => one_of(&mut self.random, [1_000, 10_000, 60_000]),
        }
    }
}

impl Iterator for Generator {
    type Item = Operation;

    fn next(&mut self) -> Option<Operation> {
        self.left = self.left.checked_sub(1)?;
        loop {
            let key = self.random.u32(..self.pending.get());
            let time_ms = u64::try_from(self.time_ns / 1_000_000).unwrap_or(u64::MAX);
            let timeout = self.timeouts.get(&key).copied().unwrap_or_default();
            self.time_ns += self.pause();
            let is_pending = time_ms < timeout.due_ms;
            let habits = self.shape.habits();
            if is_pending && timeout.fires {
                continue;
            }
            let action = if is_pending && habits.percent_moved <= self.random.u32(..100) {
                self.timeouts.insert(key, Timeout::default());
                Action::Cancel
            } else {
                let delay_ms = self.delay_ms();
                let due_ms = time_ms.saturating_add(delay_ms);
                let fires = !is_pending && self.random.u32(..100) < habits.percent_left_alone;
                self.timeouts.insert(key, Timeout { due_ms, fires });
                match is_pending {
                    true => Action::Reschedule { delay_ms },
                    false => Action::Schedule { delay_ms },
                }
            };
            return Some(Operation { time_ms, key, action });
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = usize::try_from(self.left);
        (left.unwrap_or(usize::MAX), left.ok())
    }
}

impl Shape {
    fn habits(self) -> Habits {
        const SECOND: u64 = 1_000_000_000;
        let (between_visits_ns, percent_left_alone, percent_moved) = match self {
            Self::Short => (SECOND / 10, 0, 50),
            Self::OneDelay => (10 * SECOND, 0, 90),
            Self::Year => (600 * SECOND, 0, 50),
            Self::Cancelled => (SECOND / 20, 1, 0),
            Self::Bursts => (10 * SECOND, 0, 50),
        };
        Habits { between_visits_ns, percent_left_alone, percent_moved }
    }
}

/// A million operations, and at most 10,000 pending timeouts.
impl Default for Size {
    fn default() -> Self {
        Self { operations: 1_000_000, pending: NonZeroU32::new(10_000).expect("it is not zero") }
    }
}
