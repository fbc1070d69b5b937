//! The tables of a file, and what changes do to them.

use std::ops::Bound;
use std::sync::Arc;

use redb::{ReadableTable, ReadableTableMetadata, Table, TableDefinition, WriteTransaction};

use super::row;
use crate::store::{
    Act, Change, Changed, Dead, Held, Outcome, Position, Put, Replaced, Row, Settlement, Then,
};

/// Gives out the numbers of rows.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    pub(super) epoch: u64,
    pub(super) next: u64,
}

impl Numbers {
    fn next(&mut self) -> u64 {
        self.next += 1;
        (self.epoch << EPOCH) + self.next
    }
}

/// Removes the names of what was acked, in the order of the names.
///
/// An ack knows where its row is, and the rows that are acked together stand together. Their names
/// do not: to remove each at its ack would write a page of its own for it.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    /// How far it has come.
    after: Vec<u8>,
    /// The latest deadline that was acked. What is due later has not been.
    until: u64,
}

/// Where a row is: its deadline and its name, which may be damaged.
pub(super) type Key = (u64, Vec<u8>);

pub(super) struct Tables<'a> {
    due: Table<'a, (u64, &'static [u8]), &'static [u8]>,
    names: Table<'a, &'static [u8], (u64, u32)>,
    dead: Table<'a, &'static [u8], (u64, &'static [u8])>,
    epoch: u64,
}

impl<'a> Tables<'a> {
    pub(super) fn open(write: &'a WriteTransaction) -> Result<Self, redb::Error> {
        let epoch = write.open_table(META)?.get("epoch")?.map_or(0, |epoch| epoch.value());
        Ok(Self {
            due: write.open_table(DUE)?,
            names: write.open_table(NAMES)?,
            dead: write.open_table(DEAD)?,
            epoch,
        })
    }

    pub(super) fn settle(
        &mut self,
        settlement: &Settlement,
        numbers: &mut Numbers,
    ) -> Result<Outcome, redb::Error> {
        if settlement.held.lease.epoch != self.epoch {
            return Ok(Outcome::Fenced);
        }
        let Some(mut row) = self.take(&settlement.held)? else { return Ok(Outcome::Gone) };
        match settlement.then {
            Then::Done => return Ok(Outcome::Settled(None)),
            Then::Again { at, attempt } => {
                row = Row { deadline: at, attempt, number: numbers.next(), ..row };
                let name = row.name.as_bytes();
                self.names.insert(name, (at, row::index_sum(name, at)))?;
            }
            Then::Counted { attempt } => row.attempt = attempt,
            Then::Dead { at } => {
                // Its number is of no use any more: the time of its death is in its place.
                let value = row::encode(&Row { number: at, ..row.clone() });
                self.dead.insert(row.name.as_bytes(), (row.deadline, &value[..]))?;
                return Ok(Outcome::Settled(None));
            }
        }
        self.due.insert((row.deadline, row.name.as_bytes()), &row::encode(&row)[..])?;
        Ok(Outcome::Settled(Some(row)))
    }

    pub(super) fn change(
        &mut self,
        change: &Change,
        numbers: &mut Numbers,
    ) -> Result<Changed, redb::Error> {
        let mut row = Row {
            name: change.name.clone(),
            deadline: 0,
            payload: [].into(),
            metadata: Arc::default(),
            attempt: 0,
            number: 0,
            partition: PARTITION,
        };
        let name = change.name.as_bytes();
        let mut changed = Changed { row: None, replaced: None, was_dead: false };
        match &change.act {
            Act::Put(put) => {
                let Put { deadline, payload, metadata } = put.clone();
                row = Row { deadline, payload, metadata, ..row };
            }
            Act::Cancel => return Ok(Changed { replaced: self.cancel(name)?, ..changed }),
            Act::Drop => {
                return Ok(Changed { was_dead: self.dead.remove(name)?.is_some(), ..changed });
            }
            Act::Revive { at } => {
                let dead = self.dead.get(name)?.map(|dead| {
                    let (deadline, value) = dead.value();
                    decode_dead(name, deadline, value)
                });
                changed.was_dead = dead.is_some();
                let Some(Ok(dead)) = dead else { return Ok(changed) };
                let entry = self.names.get(name)?.map(|entry| entry.value());
                if let Some(deadline) = find(&self.due, name, entry)?
                    && self.due.get((deadline, name))?.is_some()
                {
                    return Ok(changed);
                }
                self.dead.remove(name)?;
                row = Row { deadline: *at, payload: dead.payload, metadata: dead.metadata, ..row };
            }
        }
        row.number = numbers.next();
        changed.replaced = self.put(&row)?;
        Ok(Changed { row: Some(row), ..changed })
    }

    /// Removes the row that was handed out, if it is still the same. Its name stays.
    fn take(&mut self, held: &Held) -> Result<Option<Row>, redb::Error> {
        let key = (held.deadline, held.name.as_bytes());
        let Some(value) = self.due.remove(key)? else { return Ok(None) };
        let row = row::decode(key.0, key.1, value.value(), PARTITION);
        if let Ok(row) = row
            && row.number == held.number
        {
            return Ok(Some(row));
        }
        // It is another of the same name and deadline, or damaged: it stays.
        let bytes = value.value().to_vec();
        drop(value);
        self.due.insert(key, &bytes[..])?;
        Ok(None)
    }

    fn put(&mut self, row: &Row) -> Result<Option<Replaced>, redb::Error> {
        let name = row.name.as_bytes();
        let sum = row::index_sum(name, row.deadline);
        let old = self.names.insert(name, (row.deadline, sum))?.map(|entry| entry.value());
        let replaced = self.remove_due(name, old)?;
        self.due.insert((row.deadline, name), &row::encode(row)[..])?;
        Ok(replaced)
    }

    fn cancel(&mut self, name: &[u8]) -> Result<Option<Replaced>, redb::Error> {
        let old = self.names.remove(name)?.map(|entry| entry.value());
        self.remove_due(name, old)
    }

    /// Removes the row of a name with this entry in the index.
    fn remove_due(
        &mut self,
        name: &[u8],
        entry: Option<(u64, u32)>,
    ) -> Result<Option<Replaced>, redb::Error> {
        let Some(deadline) = find(&self.due, name, entry)? else { return Ok(None) };
        let value = self.due.remove((deadline, name))?;
        Ok(value.map(|value| {
            let number =
                row::decode(deadline, name, value.value(), PARTITION).map_or(0, |row| row.number);
            Replaced { number, deadline }
        }))
    }

    /// Removes the names of some that were acked, if there are many.
    pub(super) fn sweep(
        &mut self,
        settlements: &[Settlement],
        sweep: &mut Sweep,
    ) -> Result<(), redb::Error> {
        let acked = settlements
            .iter()
            .filter(|settlement| matches!(settlement.then, Then::Done | Then::Dead { .. }))
            .map(|settlement| settlement.held.deadline);
        let count = acked.clone().count();
        sweep.until = sweep.until.max(acked.max().unwrap_or_default());
        let (rows, names) = (self.due.len()?, self.names.len()?);
        if count == 0 || names.saturating_sub(rows) <= LEFT + rows / 4 {
            return Ok(());
        }
        let mut stale = Vec::new();
        let mut last = None;
        for entry in self
            .names
            .range::<&[u8]>((Bound::Excluded(&sweep.after[..]), Bound::Unbounded))?
            .take(count * SWEPT)
        {
            let (name, entry) = entry?;
            let (deadline, sum) = entry.value();
            let name = name.value();
            if deadline <= sweep.until
                && row::index_sum(name, deadline) == sum
                && self.due.get((deadline, name))?.is_none()
            {
                stale.push(name.to_vec());
            }
            last = Some(name.to_vec());
        }
        sweep.after = last.unwrap_or_default();
        for name in &stale {
            self.names.remove(&name[..])?;
        }
        Ok(())
    }
}

/// Returns the deadline of a name with this entry in the index. If the entry is damaged, all rows
/// are looked through.
pub(super) fn find(
    due: &impl ReadableTable<(u64, &'static [u8]), &'static [u8]>,
    name: &[u8],
    entry: Option<(u64, u32)>,
) -> Result<Option<u64>, redb::Error> {
    let Some((deadline, sum)) = entry else { return Ok(None) };
    if row::index_sum(name, deadline) == sum {
        return Ok(Some(deadline));
    }
    log::warn!(
        "the entry of {:?} in the index is damaged; `tickwheel-durable check --repair` mends it",
        String::from_utf8_lossy(name)
    );
    for entry in due.iter()? {
        let (key, _) = entry?;
        if key.value().1 == name {
            return Ok(Some(key.value().0));
        }
    }
    Ok(None)
}

/// Returns the dead letter of this name and entry, or what is wrong with it.
pub(super) fn decode_dead(name: &[u8], deadline: u64, value: &[u8]) -> Result<Dead, &'static str> {
    let row = row::decode(deadline, name, value, PARTITION)?;
    let died = row.number;
    Ok(row.dead(died))
}

/// Moves rows to where no load finds them.
pub(super) fn move_aside(
    due: &mut Table<'_, (u64, &'static [u8]), &'static [u8]>,
    broken: &mut Table<'_, u64, (u64, &'static [u8], &'static [u8])>,
    rows: Vec<Key>,
) -> Result<(), redb::Error> {
    let mut next = broken.last()?.map_or(0, |(number, _)| number.value() + 1);
    for (deadline, name) in rows {
        if let Some(value) = due.remove((deadline, &name[..]))? {
            broken.insert(next, (deadline, &name[..], value.value()))?;
            next += 1;
        }
    }
    Ok(())
}

pub(super) fn key(position: &Position) -> (u64, &[u8]) {
    (position.deadline, position.name.as_bytes())
}

/// Rows by deadline and name.
pub(super) const DUE: TableDefinition<'_, (u64, &[u8]), &[u8]> = TableDefinition::new("due");
/// The deadline of each name, and a checksum of both. The name of a timeout that was acked stays
/// here until a sweep: then there is no row of that deadline and name.
pub(super) const NAMES: TableDefinition<'_, &[u8], (u64, u32)> = TableDefinition::new("names");
/// Dead letters: deadline and row, which has the time of its death in the place of its number.
pub(super) const DEAD: TableDefinition<'_, &[u8], (u64, &[u8])> = TableDefinition::new("dead");
/// Damaged rows, in the order they were found: deadline, name, value.
pub(super) const BROKEN: TableDefinition<'_, u64, (u64, &[u8], &[u8])> =
    TableDefinition::new("broken");
/// `format` and `epoch`.
pub(super) const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");

/// The one partition of a file.
pub(super) const PARTITION: u32 = 0;
/// Where in a number the epoch begins. Numbers are given out in memory, and the epoch, which grows
/// with each opening, keeps them from being given out twice.
const EPOCH: u32 = 36;

/// How many names the sweep looks at for each ack, and how many may be without a row beside a
/// quarter of all.
const SWEPT: usize = 8;
const LEFT: u64 = 4096;
