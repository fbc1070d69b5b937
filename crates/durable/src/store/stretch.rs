//! Reading the past in parts. A part becomes smaller if it takes too long or the store refuses it.

use crate::Error;
use crate::store::{Limit, Loaded, Position, Start};

/// How much of the past one statement reads.
///
/// Dead rows take time and are not seen, so the size of a part that can be read in time is found by
/// trying. A row that cannot be read is found in the same way: the part that has the row becomes
/// smaller, until it is one row of one partition.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stretch {
    /// How many partitions one statement reads.
    partitions: usize,
    /// Up to this deadline there are few rows.
    sparse_until: u64,
    /// How many milliseconds of deadlines one statement reads after that deadline.
    span: u64,
    /// How many rows one statement reads.
    rows: usize,
    /// How many parts, one after another, were not too much.
    calm: u32,
}

/// A part of the past, for one statement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part<'a> {
    pub(crate) from: &'a [Start],
    /// The last deadline.
    pub(crate) until: u64,
    pub(crate) limit: Limit,
    /// How many milliseconds it may take.
    pub(crate) time: u64,
}

impl Part<'_> {
    /// Returns the first deadline. The partition of which the oldest rows are unread is the first.
    fn first(&self) -> u64 {
        self.from[0].after.deadline
    }
}

impl Stretch {
    pub(crate) const ALL: Self =
        Self { partitions: usize::MAX, sparse_until: 0, span: u64::MAX, rows: usize::MAX, calm: 0 };

    /// Returns the part to read of these partitions now. The whole call may take `call` ms.
    pub(crate) fn part<'a>(
        &self,
        from: &'a [Start],
        until: u64,
        limit: Limit,
        call: u64,
    ) -> Part<'a> {
        let first = from[0].after.deadline;
        let until = first.saturating_add(self.span).max(self.sparse_until).min(until);
        let count = from.iter().take_while(|start| start.after.deadline <= until).count();
        let from = &from[..count.clamp(1, self.partitions)];
        // The part cannot be much smaller, and the call must end after the statement.
        let is_least = until <= first && from.len() == 1;
        let time = if is_least { LONGEST } else { TIME };
        let limit = Limit { rows: limit.rows.min(self.rows), ..limit };
        Part { from, until, limit, time: time.min(call / 3 * 2) }
    }

    /// Takes the result of reading `part`, and returns what is known of all partitions of `from`.
    pub(crate) fn take(
        &mut self,
        part: Part<'_>,
        from: &[Start],
        until: u64,
        read: Result<Loaded, Error>,
    ) -> Loaded {
        let mut loaded = match read {
            Ok(loaded) if !loaded.damaged.is_empty() => {
                // The parts became smaller because of these rows, which are set aside now.
                *self = Self::ALL;
                loaded
            }
            Ok(loaded) => {
                self.took(part, loaded.ends.iter().all(Option::is_none));
                loaded
            }
            Err(error) => Loaded { unreadable: self.failed(part, error), ..Loaded::default() },
        };
        if part.until < until {
            for end in &mut loaded.ends {
                end.get_or_insert_with(|| Position::before(part.until + 1));
            }
        }
        let unread = &from[loaded.ends.len()..];
        loaded.ends.extend(unread.iter().map(|start| Some(start.after.clone())));
        loaded
    }

    /// Makes the next part larger if the last few parts were not too much. Otherwise parts would
    /// only ever become smaller. If the larger part is too much, little time is lost.
    fn took(&mut self, part: Part<'_>, is_whole: bool) {
        let (first, until) = (part.first(), part.until);
        self.calm = self.calm.saturating_add(1);
        if self.calm < CALM {
            return;
        }
        if part.from.len() == self.partitions {
            self.partitions = self.partitions.saturating_mul(2);
        }
        if is_whole && first <= self.sparse_until.saturating_add(1) {
            self.sparse_until = self.sparse_until.max(until);
        }
        if is_whole && until - first == self.span {
            self.span = self.span.saturating_mul(2).saturating_add(1);
        }
        if !is_whole && part.limit.rows == self.rows {
            self.rows = self.rows.saturating_mul(2);
        }
    }

    /// Makes the next part smaller, because this part was too much. Returns the error if the part
    /// cannot be smaller.
    fn failed(&mut self, part: Part<'_>, error: Error) -> Option<Error> {
        let first = part.first();
        if part.from.len() == 1 && part.until <= first && part.limit.rows <= 1 {
            if self.rows <= 1 {
                // The parts became so small because of this row. Other rows need no such parts.
                *self = Self::ALL;
            }
            return Some(error);
        }
        self.calm = 0;
        self.rows = (part.limit.rows / 2).max(1);
        if 1 < part.from.len() {
            self.partitions = part.from.len() / 2;
        } else {
            self.sparse_until = self.sparse_until.min(first);
            self.span = part.until.saturating_sub(first) / 4;
        }
        None
    }
}

/// After so many parts that were not too much, the next part is larger.
const CALM: u32 = 4;

/// How many milliseconds a part may take, because other calls wait for it.
const TIME: u64 = 40;

/// How many milliseconds a part of one deadline may take. What becomes due meanwhile is late by
/// that time.
const LONGEST: u64 = 250;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Lease;

    fn starts(count: u32) -> Vec<Start> {
        let start =
            |partition| Start { lease: Lease { partition, epoch: 1 }, after: Position::start() };
        (0..count).map(start).collect()
    }

    const LIMIT: Limit = Limit { rows: 4_096, bytes: 1 << 20 };
    const CALL: u64 = 3_333;

    #[test]
    fn the_past_ends_though_many_parts_outlasted_their_time() {
        let (mut stretch, until) = (Stretch::ALL, 1 << 41);
        let mut from = starts(64);
        for _ in 0..40 {
            let part = stretch.part(&from, until, LIMIT, CALL);
            let _ = stretch.take(part, &from, until, Err(Error::Closed));
        }
        let mut calls = 0;
        while !from.is_empty() && calls < 200 {
            let part = stretch.part(&from, until, LIMIT, CALL);
            let read = Loaded { ends: vec![None; part.from.len()], ..Loaded::default() };
            let loaded = stretch.take(part, &from, until, Ok(read));
            let ends = from.into_iter().zip(loaded.ends);
            from = ends.filter_map(|(at, end)| Some(Start { after: end?, ..at })).collect();
            from.sort_by(|a, b| a.after.cmp(&b.after));
            calls += 1;
        }
        assert!(from.is_empty(), "{calls} calls, {from:?}");
    }

    #[test]
    fn what_cannot_be_read_is_found_to_the_partition_and_the_millisecond() {
        let (mut stretch, until) = (Stretch::ALL, 1 << 41);
        let mut from = starts(64);
        let (bad, deadline) = (37, 1 << 40);
        let mut calls = 0;
        let error = loop {
            calls += 1;
            assert!(calls < 500);
            let part = stretch.part(&from, until, LIMIT, CALL);
            let is_bad = |at: &Start| {
                at.lease.partition == bad && (at.after.deadline..=part.until).contains(&deadline)
            };
            let read = match part.from.iter().any(is_bad) {
                true => Err(Error::Closed),
                false => Ok(Loaded { ends: vec![None; part.from.len()], ..Loaded::default() }),
            };
            let loaded = stretch.take(part, &from, until, read);
            if let Some(error) = loaded.unreadable {
                break error;
            }
            let ends = from.into_iter().zip(loaded.ends);
            from = ends.filter_map(|(at, end)| Some(Start { after: end?, ..at })).collect();
            from.sort_by(|a, b| a.after.cmp(&b.after));
        };
        assert!(matches!(error, Error::Closed));
        assert_eq!((from[0].lease.partition, from[0].after.deadline), (bad, deadline));
    }
}
