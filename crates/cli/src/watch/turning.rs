//! `Turning`: a wheel that a trace turns, and what can be seen of it.

use crate::replay::{Action, Operation, Tick};
use std::collections::HashMap;
use tickwheel::{Key, Mode, Wheel, WheelStats};

pub(super) struct Turning {
    /// Each value is its key in the trace.
    wheel: Wheel<u32>,
    keys: HashMap<u32, Key>,
    fired: u64,
}

/// What a wheel held and had done at some moment.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) stats: WheelStats,
    pub(super) fired: u64,
}

/// Where the timeouts of a wheel are.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Picture {
    /// By level and bucket, as far up as anything waits. A hashed wheel has one level.
    pub(super) levels: Vec<Vec<u32>>,
    /// The timeouts that are in no bucket: sorted, to be handed out next.
    pub(super) sorted: u32,
    /// The timeouts in buckets by the rounds that they wait: none, below 8, below 64, and so on.
    /// Empty for a hierarchical wheel.
    pub(super) rounds: Vec<u32>,
}

/// The bits of a number of rounds that a bin of [`Picture::rounds`] takes.
pub(super) const ROUNDS_BITS: u32 = 3;

impl Turning {
    pub(super) fn new(mode: Mode) -> Self {
        Self { wheel: Wheel::new(mode), keys: HashMap::new(), fired: 0 }
    }

    /// Does what an operation says, and returns whether it found its timeout pending.
    pub(super) fn apply(&mut self, operation: &Operation, tick: Tick) -> bool {
        let pending = self.keys.get(&operation.key).copied();
        let due_ms = |delay_ms| operation.time_ms.saturating_add(delay_ms);
        match (operation.action, pending) {
            (Action::Reschedule { delay_ms }, Some(key)) => {
                self.wheel.reschedule(key, tick.deadline(due_ms(delay_ms)));
            }
            (Action::Schedule { delay_ms } | Action::Reschedule { delay_ms }, _) => {
                if let Some(key) = pending {
                    self.wheel.cancel(key);
                }
                let key = self.wheel.schedule(tick.deadline(due_ms(delay_ms)), operation.key);
                self.keys.insert(operation.key, key);
            }
            (Action::Cancel, _) => {
                self.keys.remove(&operation.key).map(|key| self.wheel.cancel(key));
            }
        }
        pending.is_some()
    }

    /// Drives the wheel to tick `now`.
    pub(super) fn drive(&mut self, now: u64) {
        while let Some(expired) = self.wheel.expire(now) {
            self.keys.remove(&expired.value);
            self.fired += 1;
        }
    }

    pub(super) fn next_wake(&self) -> Option<u64> {
        self.wheel.next_wake()
    }

    pub(super) fn mode(&self) -> Mode {
        self.wheel.mode()
    }

    pub(super) fn pending(&self) -> usize {
        self.wheel.len()
    }

    /// The bucket of `level` that tick `now` falls in.
    pub(super) fn cursor(&self, level: usize) -> usize {
        let bits = level as u32 * self.mode().buckets().trailing_zeros();
        self.wheel.now().checked_shr(bits).unwrap_or(0) as usize % self.mode().buckets()
    }

    /// The level and the bucket of the timeout that the trace names `key`, and the rounds that it
    /// waits there. None if it is gone or sorted.
    pub(super) fn place(&self, key: u32) -> Option<(usize, usize, u64)> {
        let key = *self.keys.get(&key)?;
        let (level, bucket) = self.wheel.bucket(key)?;
        Some((level, bucket, self.rounds(self.wheel.deadline(key)?)))
    }

    /// The rounds that a timeout waits after the next time that the cursor comes to its bucket.
    fn rounds(&self, deadline: u64) -> u64 {
        let ticks = deadline.saturating_sub(self.wheel.now()).saturating_sub(1);
        ticks / self.mode().buckets() as u64
    }

    pub(super) fn see(&self) -> Seen {
        Seen { stats: self.wheel.stats(), fired: self.fired }
    }

    pub(super) fn picture(&self) -> Picture {
        let mut picture = Picture { levels: vec![], sorted: 0, rounds: vec![] };
        for (key, deadline, _) in &self.wheel {
            let Some((level, bucket)) = self.wheel.bucket(key) else {
                picture.sorted += 1;
                continue;
            };
            while picture.levels.len() <= level {
                picture.levels.push(vec![0; self.mode().buckets()]);
            }
            picture.levels[level][bucket] += 1;
            if self.mode().is_hashed() {
                let rounds = self.rounds(deadline);
                let bin = rounds.checked_ilog2().map_or(0, |bits| bits / ROUNDS_BITS + 1) as usize;
                picture.rounds.resize(picture.rounds.len().max(bin + 1), 0);
                picture.rounds[bin] += 1;
            }
        }
        picture
    }
}
