//! Moving all that one store has into another.
//!
//! A batch is committed there, read there, and then acked here, by its numbers and epochs: so what
//! a caller has changed in between is seen. What was handed out before, and dead letters, are put
//! with the last of all deadlines first, so that nothing is due that is half there.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::store::{
    Change, Changed, Damaged, Dead, Held, Lease, Limit, Outcome, Position, Row, Settlement, Store,
    Then,
};
use crate::values::NEVER;
use crate::{Content, Error};

/// What [`move_all`] did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Moved {
    /// The timeouts that were moved.
    pub timeouts: u64,
    /// The dead letters that were moved.
    pub dead: u64,
    /// The names of those that stayed, because the other store has something else under the name.
    pub stayed: Vec<Arc<str>>,
    /// The damaged timeouts and dead letters, which stayed too.
    pub damaged: Vec<Damaged>,
}

/// Moves all timeouts and dead letters of `from` into `to`, with their deadlines, payloads,
/// metadata and attempts. `progress` is called after each batch with the number of timeouts that
/// were moved, and with that of all, if `from` could count them; if not, with the first once more.
///
/// Each batch is committed to `to` and read there, and only then removed from `from`. So wherever
/// this ends, by an error, a kill or a power cut, each timeout is in one of them, and those of the
/// last batch may be in both. Called again, it goes on from there. No timer should work on either
/// until then: the last batch would come twice, and a dead letter of it may be pending.
///
/// It takes the leases of both, so no worker hands out anything of them meanwhile. What is
/// scheduled or cancelled in `from` meanwhile is seen, if it was not moved yet. Nothing may be
/// scheduled in `to` by the names that are moved.
///
/// [`Due::epoch`](crate::Due::epoch) begins anew there: a receiver that refuses older ones is to
/// forget those of the first store.
///
/// What `to` has already stays as it is, and what has the same name in `from` stays there.
///
/// ```
/// # fn main() -> Result<(), tickwheel_durable::Error> {
/// use tickwheel_durable::store::{Change, Store};
/// use tickwheel_durable::{MemoryStore, move_all};
///
/// let (mut from, mut to) = (MemoryStore::new(), MemoryStore::new());
/// from.commit(&[], &[Change::put("order-17/payment", 1_800_000_000_000, b"eur 20")])?;
/// let moved = move_all(&mut from, &mut to, |_, _| ())?;
/// assert_eq!((moved.timeouts, from.count()?, to.count()?), (1, 0, 1));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// The stores', and if workers have partitions of one of them.
pub fn move_all(
    from: &mut dyn Store,
    to: &mut dyn Store,
    mut progress: impl FnMut(u64, u64),
) -> Result<Moved, Error> {
    // To count may take longer than a call may. If the store fails, so does what follows.
    let all = from.count().unwrap_or(0);
    let (from, to) = (Side::begin(from)?, Side::begin(to)?);
    let first = to.store.list(&Position::start(), u64::MAX, LIMIT)?;
    let is_new = first.rows.is_empty()
        && first.damaged.is_empty()
        && to.store.list_dead("", LIMIT)?.letters.is_empty();
    let mut mover = Mover { from, to, is_new, locked: None, moved: Moved::default() };
    // First: on its way a dead letter takes the place of a timeout of its name.
    let mut stayed = mover.passes(|mover, stayed| {
        let mut after: Arc<str> = Arc::from("");
        loop {
            let page = mover.from.store.list_dead(&after, LIMIT)?;
            mover.move_letters(&after, &page.letters, stayed)?;
            mover.found(page.damaged);
            let Some(end) = page.end else { return Ok(()) };
            after = end;
        }
    })?;
    stayed.extend(mover.passes(|mover, stayed| {
        let mut after = Position::start();
        loop {
            let page = mover.from.store.list(&after, u64::MAX, LIMIT)?;
            mover.move_rows(&after, &page.rows, stayed)?;
            mover.found(page.damaged);
            progress(mover.moved.timeouts, all.max(mover.moved.timeouts));
            let Some(end) = page.end else { return Ok(()) };
            after = end;
        }
    })?);
    Ok(Moved { stayed, ..mover.moved })
}

struct Mover<'a> {
    from: Side<'a>,
    to: Side<'a>,
    /// Whether the other store had nothing.
    is_new: bool,
    /// Somebody else has locked this one.
    locked: Option<Arc<str>>,
    moved: Moved,
}

impl Mover<'_> {
    /// Passes over all again and again until nothing is moved: callers may put more meanwhile.
    /// Returns the names of what stays.
    fn passes(
        &mut self,
        mut pass: impl FnMut(&mut Self, &mut Vec<Arc<str>>) -> Result<(), Error>,
    ) -> Result<Vec<Arc<str>>, Error> {
        loop {
            let before = self.moved.timeouts + self.moved.dead;
            let mut stayed = Vec::new();
            self.locked = None;
            pass(self, &mut stayed)?;
            if self.moved.timeouts + self.moved.dead > before {
                continue;
            }
            return match self.locked.take() {
                None => Ok(stayed),
                Some(name) => Err(Outcome::Locked.error(&name)),
            };
        }
    }

    /// Moves rows that come one after another, after this position.
    fn move_rows(
        &mut self,
        after: &Position,
        rows: &[Row],
        stayed: &mut Vec<Arc<str>>,
    ) -> Result<(), Error> {
        self.renew()?;
        let mut rows = rows.to_vec();
        let mut halves = HashSet::new();
        if !self.is_new {
            let mut going = Vec::new();
            for row in rows {
                match self.to.store.get(&row.name)? {
                    Some(other) if !is_half_of(&other, row.deadline, row.content()) => {
                        stayed.push(row.name);
                        continue;
                    }
                    Some(_) => drop(halves.insert(row.name.clone())),
                    None => {}
                }
                going.push(row);
            }
            rows = going;
        }
        let changed = self.to.put(&rows)?;
        self.to.check(after, &rows)?;
        let done = rows.iter().map(|row| self.from.settlement(row, Then::Done));
        let outcomes = self.from.settle(&done.collect::<Vec<_>>())?;
        let (mut undone, mut error) = (Vec::new(), None);
        for (row, outcome) in rows.iter().zip(outcomes) {
            let Outcome::Settled(_) = outcome else {
                undone.push(Change::cancel(&row.name));
                match outcome {
                    // A caller has cancelled or moved it.
                    Outcome::Gone => {}
                    Outcome::Locked => self.locked = Some(row.name.clone()),
                    outcome => error = Some(outcome.error(&row.name)),
                }
                continue;
            };
            self.moved.timeouts += 1;
        }
        self.to.change(&undone)?;
        for (row, changed) in rows.iter().zip(changed) {
            if changed.replaced.is_some() && !halves.contains(&row.name) {
                error = Some(Error::store(
                    format!("move {:?}", row.name),
                    "a timeout of this name was scheduled meanwhile: if here, it is moved; if in the \
                     other store, it is replaced; schedule it again, and let callers wait until all \
                     is moved",
                ));
            }
        }
        error.map_or(Ok(()), Err)
    }

    /// Moves dead letters that come one after another, after this name.
    fn move_letters(
        &mut self,
        after: &str,
        letters: &[Dead],
        stayed: &mut Vec<Arc<str>>,
    ) -> Result<(), Error> {
        self.renew()?;
        let (mut new, mut going) = (Vec::new(), Vec::new());
        for letter in letters {
            if !self.is_new {
                let other = self.to.store.get_dead(&letter.name)?;
                if other.as_ref() == Some(letter) {
                    going.push(Change::drop_dead(&letter.name));
                    continue;
                }
                let half = self.to.store.get(&letter.name)?;
                let is_half = |row: &Row| is_half_of(row, letter.deadline, letter.content());
                if other.is_some() || half.is_some_and(|row| !is_half(&row)) {
                    stayed.push(letter.name.clone());
                    continue;
                }
            }
            going.push(Change::drop_dead(&letter.name));
            new.push(letter.clone());
        }
        self.to.bury(&new)?;
        self.to.check_letters(after, &new)?;
        let gone = self.from.change(&going)?;
        let mut undone = Vec::new();
        for (change, gone) in going.iter().zip(gone) {
            if gone.was_dead {
                self.moved.dead += 1;
            } else {
                // An operator has retried or dropped it.
                undone.push(change.clone());
            }
        }
        self.to.change(&undone)?;
        Ok(())
    }

    /// Each pass may find the same.
    fn found(&mut self, damaged: Vec<Damaged>) {
        for damaged in damaged {
            if !self.moved.damaged.contains(&damaged) {
                self.moved.damaged.push(damaged);
            }
        }
    }

    fn renew(&mut self) -> Result<(), Error> {
        self.from.renew()?;
        self.to.renew()
    }
}

/// A store of which no worker hands out anything.
pub(crate) struct Side<'a> {
    store: &'a mut dyn Store,
    leases: HashMap<u32, Lease>,
    /// How long the leases are good for, from when they were asked for. `None`: for as long as the
    /// store is open.
    good_for: Option<Duration>,
    asked: Instant,
}

impl<'a> Side<'a> {
    /// Takes all leases of the store.
    pub(crate) fn begin(store: &'a mut dyn Store) -> Result<Self, Error> {
        let asked = Instant::now();
        let leases = store.lease(true, &[])?;
        let held = leases.held.iter().map(|lease| (lease.partition, *lease)).collect();
        // Dropped, it gives back what it has.
        let side = Self { store, leases: held, good_for: leases.good_for, asked };
        if leases.owners != 1 || side.leases.len() < leases.share {
            return Err(Error::store("take all partitions", WORKERS));
        }
        Ok(side)
    }

    /// Renews the leases, if it is time.
    fn renew(&mut self) -> Result<(), Error> {
        let asked = Instant::now();
        if self.good_for.is_none_or(|time| asked.duration_since(self.asked) < time / 4) {
            return Ok(());
        }
        let held = self.store.lease(true, &[])?.held;
        if held.len() < self.leases.len() {
            return Err(Error::store("keep all partitions", WORKERS));
        }
        self.leases = held.into_iter().map(|lease| (lease.partition, lease)).collect();
        self.asked = asked;
        Ok(())
    }

    /// Puts these rows in the place of those that have their names.
    pub(crate) fn put(&mut self, rows: &[Row]) -> Result<Vec<Changed>, Error> {
        let put = |row: &Row| {
            // What was handed out before is never due until that is counted.
            let deadline = if row.attempt == 0 { row.deadline } else { NEVER };
            Change::put(&row.name, deadline, row.content())
        };
        let changed = self.change(&rows.iter().map(put).collect::<Vec<_>>())?;
        let mut counted = Vec::new();
        for (row, changed) in rows.iter().zip(&changed) {
            let then = Then::Again { at: row.deadline, attempt: row.attempt };
            let put = changed.row.iter().filter(|_| 0 < row.attempt);
            counted.extend(put.map(|put| self.settlement(put, then)));
        }
        self.settle_all(&counted)?;
        Ok(changed)
    }

    /// Makes these dead letters, in the place of the timeouts that have their names.
    pub(crate) fn bury(&mut self, letters: &[Dead]) -> Result<(), Error> {
        let put = |letter: &Dead| Change::put(&letter.name, NEVER, letter.content());
        let changed = self.change(&letters.iter().map(put).collect::<Vec<_>>())?;
        let mut counted = Vec::new();
        for (letter, changed) in letters.iter().zip(&changed) {
            let then = Then::Again { at: letter.deadline, attempt: letter.attempt };
            counted.extend(changed.row.iter().map(|row| self.settlement(row, then)));
        }
        let rows = self.settle_all(&counted)?;
        let mut dead: Vec<(u64, Settlement)> = Vec::new();
        for (letter, row) in letters.iter().zip(&rows) {
            let then = Then::Dead { at: letter.died };
            dead.extend(row.iter().map(|row| (letter.died, self.settlement(row, then))));
        }
        // Those of one commit die at one time.
        dead.sort_by_key(|(died, _)| *died);
        for dead in dead.chunk_by(|(a, _), (b, _)| a == b) {
            let dead: Vec<_> = dead.iter().map(|(_, settlement)| settlement.clone()).collect();
            self.settle_all(&dead)?;
        }
        Ok(())
    }

    /// Reads these rows, which are all after this position, and is an error if one is not as it
    /// was put.
    fn check(&mut self, after: &Position, rows: &[Row]) -> Result<(), Error> {
        let Some(last) = rows.last() else { return Ok(()) };
        let mut left: HashMap<&str, &Row> = rows.iter().map(|row| (&*row.name, row)).collect();
        let mut after = match NEVER < last.deadline {
            // They may be in another order here.
            true => after.clone().min(Position::before(NEVER)),
            false => after.clone(),
        };
        loop {
            let page = self.store.list(&after, last.deadline, LIMIT)?;
            for row in page.rows {
                if left.get(&*row.name).is_some_and(|it| is_same(it, &row)) {
                    left.remove(&*row.name);
                }
            }
            match page.end {
                Some(end) if !left.is_empty() => after = end,
                _ => return all_there(left.into_keys()),
            }
        }
    }

    /// Does the same for dead letters.
    fn check_letters(&mut self, after: &str, letters: &[Dead]) -> Result<(), Error> {
        if letters.is_empty() {
            return Ok(());
        }
        let mut left: HashMap<&str, &Dead> = letters.iter().map(|it| (&*it.name, it)).collect();
        let mut after: Arc<str> = Arc::from(after);
        loop {
            let page = self.store.list_dead(&after, LIMIT)?;
            for letter in page.letters {
                if left.get(&*letter.name).is_some_and(|it| **it == letter) {
                    left.remove(&*letter.name);
                }
            }
            match page.end {
                Some(end) if !left.is_empty() => after = end,
                _ => return all_there(left.into_keys()),
            }
        }
    }

    /// Makes all these changes.
    pub(crate) fn change(&mut self, changes: &[Change]) -> Result<Vec<Changed>, Error> {
        let mut all = Vec::with_capacity(changes.len());
        while all.len() < changes.len() {
            // The last of many may be missing: they are asked for again.
            let done = self.store.commit(&[], &changes[all.len()..])?;
            if done.changed.is_empty() {
                return Err(Error::store("commit to a store", "it did nothing"));
            }
            for changed in done.changed {
                all.push(changed?);
            }
        }
        Ok(all)
    }

    fn settle(&mut self, settlements: &[Settlement]) -> Result<Vec<Outcome>, Error> {
        let mut all = Vec::with_capacity(settlements.len());
        while all.len() < settlements.len() {
            let done = self.store.commit(&settlements[all.len()..], &[])?;
            if done.outcomes.is_empty() {
                return Err(Error::store("commit to a store", "it did nothing"));
            }
            all.extend(done.outcomes);
        }
        Ok(all)
    }

    /// Settles all these, and returns their rows.
    fn settle_all(&mut self, settlements: &[Settlement]) -> Result<Vec<Option<Row>>, Error> {
        let outcomes = self.settle(settlements)?;
        let all = settlements.iter().zip(outcomes).map(|(settlement, outcome)| match outcome {
            Outcome::Settled(row) => Ok(row),
            outcome => Err(outcome.error(&settlement.held.name)),
        });
        all.collect()
    }

    fn settlement(&self, row: &Row, then: Then) -> Settlement {
        let partition = row.partition;
        // No owner ever had this epoch.
        let none = Lease { partition, epoch: 0 };
        let lease = self.leases.get(&partition).copied().unwrap_or(none);
        Settlement { held: Held::new(row, lease), then }
    }
}

impl Drop for Side<'_> {
    fn drop(&mut self) {
        if self.good_for.is_none() {
            return;
        }
        let held: Vec<u32> = self.leases.keys().copied().collect();
        if let Err(error) = self.store.lease(false, &held) {
            log::warn!("workers have to wait until the leases run out: {error}");
        }
    }
}

impl Outcome {
    /// Says why it is not settled.
    fn error(self, name: &str) -> Error {
        let why = match self {
            Self::Settled(_) | Self::Gone => "somebody else has changed it".to_owned(),
            Self::Fenced => "a worker has taken its partition over".to_owned(),
            Self::Locked => "somebody else has locked it".to_owned(),
            Self::Refused(why) => why,
        };
        Error::store(format!("move {name:?}"), why)
    }
}

/// Whether this row may be what a move that was cut off has put for such a one.
fn is_half_of(row: &Row, deadline: u64, content: Content<'_>) -> bool {
    [deadline, NEVER].contains(&row.deadline) && row.content() == content
}

/// Whether both are the same, as every store can keep them.
fn is_same(a: &Row, b: &Row) -> bool {
    let deadlines = [a, b].map(|row| row.deadline.min(NEVER));
    deadlines[0] == deadlines[1] && (a.content(), a.attempt) == (b.content(), b.attempt)
}

fn all_there<'a>(mut missing: impl Iterator<Item = &'a str>) -> Result<(), Error> {
    missing.next().map_or(Ok(()), |name| {
        Err(Error::store(format!("move {name:?}"), "it is not in the other store as it was put"))
    })
}

/// What is moved at once.
pub(crate) const LIMIT: Limit = Limit { rows: 500, bytes: 1 << 20 };

const WORKERS: &str = "workers have some of them: stop them first; what one that died had is free \
                       after its lease";
