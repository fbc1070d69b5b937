//! Numbers that are the same for every subject, in every run.

/// SplitMix64.
#[derive(Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.draw()) * u128::from(bound)) >> 64) as u64
    }

    pub(crate) fn shuffle<E>(&mut self, elements: &mut [E]) {
        for last in (1..elements.len()).rev() {
            elements.swap(last, self.below(last as u64 + 1) as usize);
        }
    }

    fn unit(&mut self) -> f64 {
        (self.draw() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// How delays are distributed, in ticks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delays {
    pub(crate) longest: u64,
    pub(crate) log_uniform: bool,
}

impl Delays {
    pub(crate) const fn uniform(longest: u64) -> Self {
        Self { longest, log_uniform: false }
    }

    /// As many short ones as long ones: each power of ten is as likely as any other.
    pub(crate) const fn log_uniform(longest: u64) -> Self {
        Self { longest, log_uniform: true }
    }

    pub(crate) fn draw(self, random: &mut Random) -> u64 {
        match self.log_uniform {
            true => ((self.longest as f64).powf(random.unit()) as u64).max(1),
            false => 1 + random.below(self.longest),
        }
    }

    pub(crate) fn many(self, count: usize) -> Vec<u64> {
        let mut random = Random(1);
        (0..count).map(|_| self.draw(&mut random)).collect()
    }
}

pub(crate) const SECOND: u64 = 1_000;
pub(crate) const MINUTE: u64 = 60 * SECOND;
pub(crate) const HOUR: u64 = 60 * MINUTE;
pub(crate) const DAY: u64 = 24 * HOUR;
pub(crate) const YEAR: u64 = 365 * DAY;
