//! `Turning`: a wheel that a trace turns, and where its timeouts are.

use crate::study::{Call, Kind};
use std::collections::HashMap;
use tickwheel::{Key, Mode, Wheel, WheelStats};

#[derive(Debug)]
pub struct Turning {
    /// Each value is its place in the plan.
    pub wheel: Wheel<u32>,
    /// By place.
    pub keys: HashMap<u32, Key>,
    pub fired: u64,
}

/// What a wheel held and had done at some moment.
#[derive(Clone, Debug)]
pub struct Seen {
    pub stats: WheelStats,
    pub fired: u64,
}

/// Where the timeouts of a wheel are.
#[derive(Debug, PartialEq, Eq)]
pub struct Picture {
    /// By level and bucket, as far up as anything waits: the occupied buckets. A hashed wheel has
    /// one level.
    pub levels: Vec<HashMap<usize, u32>>,
    /// The timeouts that are in no bucket: sorted, to be handed out next, or few.
    pub sorted: u32,
    /// The timeouts in buckets by the rounds that they wait: none, below 8, below 64, and so on.
    /// Empty for a hierarchical wheel.
    pub rounds: Vec<u32>,
}

impl Turning {
    pub fn new(mode: Mode) -> Self {
        Self { wheel: Wheel::new(mode), keys: HashMap::new(), fired: 0 }
    }

    /// Makes a call.
    pub fn make(&mut self, call: &Call) {
        match (call.kind, self.keys.get(&call.place).copied()) {
            (Kind::Schedule, _) => {
                let key = self.wheel.schedule(call.deadline, call.place);
                self.keys.insert(call.place, key);
            }
            (Kind::Reschedule, Some(key)) => {
                self.wheel.reschedule(key, call.deadline);
            }
            (Kind::Cancel, Some(key)) => {
                self.keys.remove(&call.place);
                self.wheel.cancel(key);
            }
            (Kind::Nothing, _) | (_, None) => {}
        }
    }

    /// Drives the wheel to tick `now`.
    pub fn drive(&mut self, now: u64) {
        while let Some(expired) = self.wheel.expire(now) {
            self.keys.remove(&expired.value);
            self.fired += 1;
        }
    }

    pub fn next_wake(&self) -> Option<u64> {
        self.wheel.next_wake()
    }

    pub fn mode(&self) -> Mode {
        self.wheel.mode()
    }

    /// The rounds that a timeout waits after the next time that the cursor comes to its bucket.
    pub fn rounds(&self, deadline: u64) -> u64 {
        let ticks = deadline.saturating_sub(self.wheel.now()).saturating_sub(1);
        ticks / self.mode().buckets() as u64
    }

    /// The bucket of `level` that tick `now` falls in.
    pub fn cursor(&self, level: usize) -> usize {
        let bits = level as u32 * self.mode().buckets().trailing_zeros();
        self.wheel.now().checked_shr(bits).unwrap_or(0) as usize % self.mode().buckets()
    }

    /// The level and the bucket of the timeout of this place in the plan, and the rounds that it
    /// waits there. None if it is gone, or in no bucket.
    pub fn place(&self, place: u32) -> Option<(usize, usize, u64)> {
        let key = *self.keys.get(&place)?;
        let (level, bucket) = self.wheel.bucket(key)?;
        Some((level, bucket, self.rounds(self.wheel.deadline(key)?)))
    }

    pub fn see(&self) -> Seen {
        Seen { stats: self.wheel.stats(), fired: self.fired }
    }

    pub fn picture(&self) -> Picture {
        let mut picture = Picture { levels: vec![], sorted: 0, rounds: vec![] };
        for (key, deadline, _) in &self.wheel {
            let Some((level, bucket)) = self.wheel.bucket(key) else {
                picture.sorted += 1;
                continue;
            };
            while picture.levels.len() <= level {
                picture.levels.push(HashMap::new());
            }
            *picture.levels[level].entry(bucket).or_default() += 1;
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

impl Picture {
    /// The timeouts on a level.
    pub fn on_level(&self, level: usize) -> u64 {
        self.levels.get(level).into_iter().flatten().map(|(_, &number)| u64::from(number)).sum()
    }
}

/// The bits of a number of rounds that a bin of [`Picture::rounds`] takes.
pub const ROUNDS_BITS: u32 = 3;
