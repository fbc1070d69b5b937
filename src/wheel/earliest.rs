//! Earliest: a tick for each of some places, and the earliest of all.

/// A tick for each of `PLACES` places. Finding the earliest looks at eight ticks, and so does
/// changing one.
#[derive(Debug)]
pub(super) struct Earliest {
    each: [u64; PLACES],
    /// The earliest of each eight.
    eights: [u64; PLACES / EIGHT],
}

impl Earliest {
    /// The last tick everywhere.
    pub(super) const NONE: Self =
        Self { each: [u64::MAX; PLACES], eights: [u64::MAX; PLACES / EIGHT] };

    /// Notes that something at a place is due at `tick`.
    #[inline(always)]
    pub(super) fn lower(&mut self, at: usize, tick: u64) {
        self.each[at] = tick.min(self.each[at]);
        self.eights[at / EIGHT] = tick.min(self.eights[at / EIGHT]);
    }

    /// Gives a place another tick, which may be later.
    #[inline]
    pub(super) fn set(&mut self, at: usize, tick: u64) {
        self.each[at] = tick;
        self.eights[at / EIGHT] = earliest(&self.each[at / EIGHT * EIGHT..][..EIGHT]);
    }

    /// Returns the earliest tick.
    #[inline]
    pub(super) fn tick(&self) -> u64 {
        earliest(&self.eights)
    }

    /// Returns the tick of each place.
    pub(super) fn iter(&self) -> impl Iterator<Item = u64> {
        self.each.into_iter()
    }

    /// Panics unless the earliest of each eight is known.
    pub(super) fn check(&self) {
        for (eight, &tick) in self.each.chunks(EIGHT).zip(&self.eights) {
            assert_eq!(eight.iter().min(), Some(&tick), "the earliest of each eight is known");
        }
    }
}

/// Returns the earliest of some ticks, or the last tick if there are none.
#[inline]
pub(super) fn earliest(ticks: &[u64]) -> u64 {
    ticks.iter().copied().fold(u64::MAX, u64::min)
}

/// The places of an `Earliest`.
pub(super) const PLACES: usize = 64;
/// The places whose earliest tick is kept.
const EIGHT: usize = 8;

#[cfg(test)]
mod tests {
    use super::{Earliest, PLACES};
    use quickcheck::quickcheck;

    quickcheck! {
        fn it_finds_what_a_search_would(changes: Vec<(u8, u64, bool)>) -> bool {
            let (mut earliest, mut ticks) = (Earliest::NONE, [u64::MAX; PLACES]);
            for (at, tick, is_later) in changes {
                let (at, tick) = (at as usize % PLACES, tick >> (tick % 64));
                if is_later {
                    earliest.set(at, tick);
                    ticks[at] = tick;
                } else {
                    earliest.lower(at, tick);
                    ticks[at] = tick.min(ticks[at]);
                }
                earliest.check();
                assert_eq!(Some(&earliest.tick()), ticks.iter().min());
                assert!(earliest.iter().eq(ticks));
            }
            true
        }
    }

    #[test]
    fn the_earliest_of_many_is_found_wherever_it_is() {
        let mut earliest = Earliest::NONE;
        for at in 0..PLACES {
            assert_eq!(earliest.tick(), u64::MAX);
            earliest.lower(PLACES - 1 - at, 9);
            assert_eq!(earliest.tick(), 9);
            earliest.set(at, 8);
            assert_eq!(earliest.tick(), 8);
            earliest.set(at, u64::MAX);
            earliest.set(PLACES - 1 - at, u64::MAX);
        }
    }
}
