//! Reading the past in stretches: one that outlasts its time is made shorter.

/// How much of the past one statement reads.
///
/// What is dead in the database takes time and is not seen, so how much can be read in time is
/// found by trying. Names are spread over the partitions, so what holds for one holds for all.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stretch {
    /// Up to this deadline there is little.
    sparse_until: u64,
    /// And after it, so many milliseconds of deadlines can be read.
    span: u64,
}

impl Stretch {
    pub(crate) const ALL: Self = Self { sparse_until: 0, span: u64::MAX };

    /// Returns up to which deadline to read from this one on.
    pub(crate) fn end(&self, first: u64, until: u64) -> u64 {
        first.saturating_add(self.span).max(self.sparse_until).min(until)
    }

    /// Returns how many milliseconds that may take, of so many of a call.
    pub(crate) fn time(first: u64, end: u64, call: u64) -> u64 {
        // It cannot be less. The call ends after the statement.
        let time = if end <= first { LONGEST } else { TIME };
        time.min(call / 3 * 2)
    }

    /// Asks for less the next time, because this was too much.
    pub(crate) fn outlasted(&mut self, first: u64, end: u64) {
        self.sparse_until = self.sparse_until.min(first);
        self.span = end.saturating_sub(first) / 4;
    }

    /// Asks for more the next time, because this was not too much: otherwise what was asked for
    /// only ever becomes less. If it is too much then, little time is lost.
    pub(crate) fn took(&mut self, first: u64, end: u64) {
        if first <= self.sparse_until.saturating_add(1) {
            self.sparse_until = self.sparse_until.max(end);
        }
        if end - first == self.span {
            self.span = self.span.saturating_mul(2).saturating_add(1);
        }
    }
}

/// In milliseconds: other calls wait for it.
const TIME: u64 = 40;

/// For a millisecond of deadlines. What becomes due meanwhile is late by so much.
const LONGEST: u64 = 250;

#[cfg(test)]
mod tests {
    use super::Stretch;

    #[test]
    fn the_past_ends_though_many_stretches_outlasted_their_time() {
        let (mut stretch, until) = (Stretch::ALL, 1 << 41);
        let mut first = 0;
        for _ in 0..40 {
            let end = stretch.end(first, until);
            stretch.outlasted(first, end);
        }
        let mut calls = 0;
        while first < until && calls < 100 {
            let end = stretch.end(first, until);
            stretch.took(first, end);
            first = end + 1;
            calls += 1;
        }
        assert!(until <= first, "{calls} calls, up to {first}");
    }
}
