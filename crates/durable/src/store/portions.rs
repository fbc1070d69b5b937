//! Loads in portions: a statement that outlasts its time is made again for less.

use super::Start;

/// How much of a load one statement asks for.
///
/// What is dead in the database takes time and is not seen, so how much can be read in time is
/// found by trying.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Portions {
    /// Of partitions that are read up to the present, nearly.
    near: Portion,
    /// Of those that are far behind.
    behind: Portion,
}

/// The most that one statement asks for.
#[derive(Clone, Copy, Debug)]
struct Portion {
    partitions: usize,
    /// Of deadlines, in milliseconds, if it is of one partition.
    span: u64,
}

/// What one statement asks for.
#[derive(Debug)]
pub(crate) struct Part {
    /// The places of its partitions in the list of all.
    pub(crate) places: Vec<usize>,
    pub(crate) until: u64,
    is_behind: bool,
    /// It cannot be less, so it has all the time that is left.
    is_least: bool,
    /// Deadlines are left out, because even one partition is too much.
    is_cut: bool,
    span: u64,
}

impl Portions {
    pub(crate) const ALL: Self = Self { near: Portion::ALL, behind: Portion::ALL };

    /// Returns what to ask for: at most one part of what is near, and one of what is behind.
    pub(crate) fn parts(&self, from: &[Start], until: u64) -> Vec<Part> {
        let (behind, near): (Vec<usize>, Vec<usize>) = (0..from.len())
            .partition(|&place| NEAR < until.saturating_sub(from[place].after.deadline));
        let part =
            |places, portion: Portion, is_behind| portion.part(places, is_behind, from, until);
        [part(near, self.near, false), part(behind, self.behind, true)]
            .into_iter()
            .flatten()
            .collect()
    }

    /// Asks for less the next time, because this was too much.
    pub(crate) fn outlasted(&mut self, part: &Part) {
        *self.portion(part) = match part.places.len() {
            0 | 1 => Portion { partitions: 1, span: part.span / 2 },
            count => Portion { partitions: count / 2, span: u64::MAX },
        };
    }

    /// Asks for more the next time, because this took much less than its time.
    pub(crate) fn was_quick(&mut self, part: &Part) {
        let portion = self.portion(part);
        match part.is_cut {
            true => portion.span = portion.span.saturating_mul(2).saturating_add(1),
            false => {
                portion.span = u64::MAX;
                portion.partitions = portion.partitions.saturating_mul(2);
            }
        }
    }

    fn portion(&mut self, part: &Part) -> &mut Portion {
        if part.is_behind { &mut self.behind } else { &mut self.near }
    }
}

impl Part {
    /// Returns the time that the part may take, out of that of a call.
    pub(crate) fn time(&self, call: u64) -> u64 {
        match self.places.len() {
            _ if self.is_least => call,
            1 => call / 2,
            _ => call / 10,
        }
        .max(1)
    }
}

impl Portion {
    const ALL: Self = Self { partitions: usize::MAX, span: u64::MAX };

    fn part(
        self,
        mut places: Vec<usize>,
        is_behind: bool,
        from: &[Start],
        until: u64,
    ) -> Option<Part> {
        places.truncate(self.partitions);
        let first = from[*places.first()?].after.deadline;
        let end = first.saturating_add(if places.len() == 1 { self.span } else { u64::MAX });
        let (is_cut, until) = (end < until, end.min(until));
        let span = until.saturating_sub(first);
        let is_least = places.len() == 1 && span == 0;
        Some(Part { places, until, is_behind, is_least, is_cut, span })
    }
}

/// What is read up to so many milliseconds before the end of a load is near.
const NEAR: u64 = 5_000;
