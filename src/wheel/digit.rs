//! Digit: sorts by one digit of the deadline. Counting leaves equal digits in order.

use super::arena::Entry;

/// A digit of a deadline.
#[derive(Clone, Copy, Debug)]
pub(super) struct Digit {
    shift: u32,
    mask: u8,
}

impl Digit {
    /// Returns the digit of `bits` bits above the lowest `shift` bits, or None if it has more than
    /// `MOST_COUNTED` values.
    pub(super) fn new(shift: u32, bits: u32) -> Option<Self> {
        (1 << bits <= MOST_COUNTED).then(|| Self { shift, mask: ((1 << bits) - 1) as u8 })
    }

    #[inline]
    fn of(self, entry: Entry) -> usize {
        ((entry.deadline >> self.shift) as u8 & self.mask).into()
    }
}

/// The number of entries of each value of a digit, and later the place of the next one.
#[derive(Debug)]
pub(super) struct Counts {
    digit: Digit,
    counts: [u32; MOST_COUNTED],
}

impl Counts {
    pub(super) fn new(digit: Digit) -> Self {
        Self { digit, counts: [0; MOST_COUNTED] }
    }

    /// Counts entries.
    pub(super) fn add(&mut self, entries: &[Entry]) {
        for &entry in entries {
            self.counts[self.digit.of(entry)] += 1;
        }
    }

    /// Turns the counts into the places where each value begins.
    pub(super) fn begin(&mut self) {
        let mut start = 0;
        for count in &mut self.counts[..=self.digit.mask.into()] {
            start += core::mem::replace(count, start);
        }
    }

    /// Puts entries into their places, behind those of earlier calls.
    pub(super) fn put(&mut self, entries: &[Entry], sorted: &mut [Entry]) {
        for &entry in entries {
            let place = &mut self.counts[self.digit.of(entry)];
            sorted[*place as usize] = entry;
            *place += 1;
        }
    }

    /// Returns the entries of each value that occurs. All entries must be in their places.
    pub(super) fn runs<'a>(
        &'a self,
        sorted: &'a [Entry],
    ) -> impl Iterator<Item = (u32, &'a [Entry])> {
        let mut start = 0;
        let ends = (0..).zip(&self.counts[..=self.digit.mask.into()]);
        ends.filter_map(move |(value, &end)| {
            let run = &sorted[core::mem::replace(&mut start, end) as usize..end as usize];
            (!run.is_empty()).then_some((value, run))
        })
    }
}

/// The most values of a digit by which entries can be sorted.
pub(super) const MOST_COUNTED: usize = 256;

#[cfg(test)]
mod tests {
    use super::{Counts, Digit, Entry};
    use alloc::vec::Vec;

    #[test]
    fn equal_digits_stay_in_order() {
        let entries: Vec<_> = (0..500_u32)
            .map(|index| Entry { index, stamp: 0, deadline: u64::from(index % 200) * 0x9e37_79b9 })
            .collect();
        for (shift, bits) in [(0, 1), (0, 8), (4, 6), (8, 6), (24, 8), (30, 6), (63, 1)] {
            let mut counts = Counts::new(Digit::new(shift, bits).expect("it is small"));
            let (first, second) = entries.split_at(123);
            counts.add(first);
            counts.add(second);
            counts.begin();
            let mut sorted = [entries[0]; 512];
            counts.put(first, &mut sorted);
            counts.put(second, &mut sorted);

            let value = |entry: &Entry| (entry.deadline >> shift) as u32 & ((1 << bits) - 1);
            let mut expected = entries.clone();
            expected.sort_by_key(value);
            let indices = |entries: &[Entry]| entries.iter().map(|entry| entry.index).collect();
            let (sorted_indices, expected_indices): (Vec<u32>, Vec<u32>) =
                (indices(&sorted[..500]), indices(&expected));
            assert_eq!(sorted_indices, expected_indices);
            let runs: Vec<_> = counts.runs(&sorted).collect();
            assert!(runs.iter().all(|(digit, run)| run.iter().all(|entry| value(entry) == *digit)));
            assert!(runs.windows(2).all(|pair| pair[0].0 < pair[1].0), "each value once");
            assert_eq!(runs.iter().map(|(_, run)| run.len()).sum::<usize>(), 500);
        }
    }

    #[test]
    fn a_digit_has_few_values() {
        assert!(Digit::new(24, 8).is_some() && Digit::new(63, 1).is_some());
        assert!(Digit::new(0, 9).is_none());
    }
}
