//! `Picture`: where the timeouts of a wheel are.

use std::collections::HashMap;
use tickwheel::Wheel;

/// Where the timeouts of a wheel are.
#[derive(Debug)]
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

impl Picture {
    pub fn of(wheel: &Wheel<u32>) -> Self {
        let mut picture = Self { levels: vec![], sorted: 0, rounds: vec![] };
        for (key, deadline, _) in wheel {
            let Some((level, bucket)) = wheel.bucket(key) else {
                picture.sorted += 1;
                continue;
            };
            while picture.levels.len() <= level {
                picture.levels.push(HashMap::new());
            }
            *picture.levels[level].entry(bucket).or_default() += 1;
            if wheel.mode().is_hashed() {
                let rounds = rounds(wheel, deadline);
                let bin = rounds.checked_ilog2().map_or(0, |bits| bits / ROUNDS_BITS + 1) as usize;
                picture.rounds.resize(picture.rounds.len().max(bin + 1), 0);
                picture.rounds[bin] += 1;
            }
        }
        picture
    }

    /// The timeouts on each level, the finest first, or those of a hashed wheel by their rounds.
    pub fn groups(&self) -> Vec<u64> {
        match self.rounds.is_empty() {
            true => (0..self.levels.len()).map(|level| self.on_level(level)).collect(),
            false => self.rounds.iter().map(|&timeouts| timeouts.into()).collect(),
        }
    }

    /// The timeouts on a level.
    pub fn on_level(&self, level: usize) -> u64 {
        self.levels.get(level).into_iter().flatten().map(|(_, &number)| u64::from(number)).sum()
    }
}

/// The rounds that a timeout waits after the next time that the cursor comes to its bucket.
pub fn rounds(wheel: &Wheel<u32>, deadline: u64) -> u64 {
    let ticks = deadline.saturating_sub(wheel.now()).saturating_sub(1);
    ticks / wheel.mode().buckets() as u64
}

/// The bits of a number of rounds that a bin of [`Picture::rounds`] takes.
pub const ROUNDS_BITS: u32 = 3;
