use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::Error;
use crate::store::{
    Act, Change, Changed, Dead, DeadPage, Done, Filling, Held, Lease, Leases, Limit, Loaded,
    Outcome, Page, Position, Put, RateLimit, Replaced, Row, Settlement, Start, Store, Then,
};

/// A store in memory, for tests of programs that use a timer. Nothing in it outlives the process.
///
/// Clones are the same store, so a test can close a timer and open another on what is left.
#[derive(Clone, Debug)]
pub struct MemoryStore {
    tables: Arc<Mutex<Tables>>,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self { tables: Arc::new(Mutex::new(Tables::new(1))) }
    }
}

impl MemoryStore {
    /// Makes a store with nothing in it.
    pub fn new() -> Self {
        Self::default()
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for MemoryStore {
    fn lease(&mut self, _wanted: bool, _given_back: &[u32]) -> Result<Leases, Error> {
        let mut tables = self.tables();
        tables.epochs[0] += 1;
        let lease = Lease { partition: 0, epoch: tables.epochs[0] };
        Ok(Leases::of_one(lease, tables.is_paused, tables.rate_limit))
    }

    fn load(&mut self, from: &[Start], until: u64, limit: Limit) -> Result<Loaded, Error> {
        let Some(start) = from.first() else { return Ok(Loaded::default()) };
        Ok(self.tables().list(start.lease.partition, &start.after, until, limit).into())
    }

    fn list(&mut self, after: &Position, until: u64, limit: Limit) -> Result<Page, Error> {
        Ok(self.tables().list(0, after, until, limit))
    }

    fn commit(&mut self, settlements: &[Settlement], changes: &[Change]) -> Result<Done, Error> {
        Ok(self.tables().commit(settlements, changes))
    }

    fn get(&mut self, name: &str) -> Result<Option<Row>, Error> {
        Ok(self.tables().find(name).cloned())
    }

    fn count(&mut self) -> Result<u64, Error> {
        Ok(self.tables().len() as u64)
    }

    fn list_dead(&mut self, after: &str, limit: Limit) -> Result<DeadPage, Error> {
        let mut page = DeadPage::default();
        let mut bytes = 0;
        let range = (Bound::Excluded(after), Bound::Unbounded);
        for (_, dead) in self.tables().dead.range::<str, _>(range) {
            if page.is_full(limit, bytes) {
                break;
            }
            bytes += dead.content().bytes();
            page.letters.push(dead.clone());
        }
        Ok(page)
    }

    fn get_dead(&mut self, name: &str) -> Result<Option<Dead>, Error> {
        Ok(self.tables().dead.get(name).cloned())
    }

    fn is_paused(&mut self) -> Result<bool, Error> {
        Ok(self.tables().is_paused)
    }

    fn pause(&mut self, pauses: bool) -> Result<(), Error> {
        self.tables().is_paused = pauses;
        Ok(())
    }

    fn rate_limit(&mut self) -> Result<Option<RateLimit>, Error> {
        Ok(self.tables().rate_limit)
    }

    fn limit_rate(&mut self, limit: Option<RateLimit>) -> Result<(), Error> {
        self.tables().rate_limit = limit;
        Ok(())
    }
}

/// Rows in partitions, and the newest epoch of each.
#[derive(Debug)]
pub(crate) struct Tables {
    /// The rows of each partition.
    due: Vec<BTreeMap<Position, Row>>,
    deadlines: BTreeMap<Arc<str>, u64>,
    pub(crate) dead: BTreeMap<Arc<str>, Dead>,
    number: u64,
    pub(crate) epochs: Vec<u64>,
    is_paused: bool,
    rate_limit: Option<RateLimit>,
    /// Returns the partition of a name.
    partition: fn(&str, usize) -> u32,
}

impl Tables {
    pub(crate) fn new(partitions: usize) -> Self {
        Self {
            due: vec![BTreeMap::new(); partitions],
            deadlines: BTreeMap::new(),
            dead: BTreeMap::new(),
            number: 0,
            epochs: vec![0; partitions],
            is_paused: false,
            rate_limit: None,
            partition: by_checksum,
        }
    }

    /// Makes tables in which the partition of a name is told by this.
    #[cfg(all(test, feature = "postgres"))]
    pub(crate) fn by(partitions: usize, partition: fn(&str, usize) -> u32) -> Self {
        Self { partition, ..Self::new(partitions) }
    }

    /// Returns the rows that are due by this time.
    #[cfg(test)]
    pub(crate) fn due(&self, time: u64) -> impl Iterator<Item = &Row> {
        let end = Position::before(time + 1);
        self.due.iter().flat_map(move |rows| rows.range(..end.clone()).map(|(_, row)| row))
    }

    pub(crate) fn commit(&mut self, settlements: &[Settlement], changes: &[Change]) -> Done {
        Done {
            outcomes: settlements.iter().map(|settlement| self.settle(settlement)).collect(),
            changed: changes.iter().map(|change| Ok(self.change(change))).collect(),
            clock: None,
        }
    }

    pub(crate) fn settle(&mut self, settlement: &Settlement) -> Outcome {
        let Settlement { held: Held { name, number, deadline, lease }, then } = settlement;
        if lease.epoch != self.epochs[lease.partition as usize] {
            return Outcome::Fenced;
        }
        if self.find(name).is_none_or(|row| (row.number, row.deadline) != (*number, *deadline)) {
            return Outcome::Gone;
        }
        let mut row = self.remove(name).expect("the row was found");
        Outcome::Settled(match *then {
            Then::Done => None,
            Then::Again { at, attempt } => {
                Some(self.insert_new(Row { deadline: at, attempt, ..row }))
            }
            Then::Counted { attempt } => {
                row.attempt = attempt;
                self.insert(row.clone());
                Some(row)
            }
            Then::Dead { at } => {
                self.dead.insert(row.name.clone(), row.dead(at));
                None
            }
        })
    }

    pub(crate) fn change(&mut self, Change { name, act }: &Change) -> Changed {
        let mut changed = Changed { row: None, replaced: None, was_dead: false };
        match act {
            Act::Put(put) => {
                changed.replaced = self.remove(name).as_ref().map(Replaced::from);
                changed.row = Some(self.put(name, put.clone()));
            }
            Act::Cancel => changed.replaced = self.remove(name).as_ref().map(Replaced::from),
            Act::Revive { .. } if self.find(name).is_some() => {
                changed.was_dead = self.dead.contains_key(name);
            }
            Act::Revive { at } => {
                let dead = self.dead.remove(name);
                changed.was_dead = dead.is_some();
                changed.row = dead.map(|Dead { payload, metadata, .. }| {
                    self.put(name, Put { deadline: *at, payload, metadata })
                });
            }
            Act::Drop => changed.was_dead = self.dead.remove(name).is_some(),
        }
        changed
    }

    fn put(&mut self, name: &Arc<str>, Put { deadline, payload, metadata }: Put) -> Row {
        let (partition, name) = (self.partition(name), name.clone());
        self.insert_new(Row { name, deadline, payload, metadata, attempt: 0, number: 0, partition })
    }

    /// Puts the row under a number that no row ever had.
    pub(crate) fn insert_new(&mut self, mut row: Row) -> Row {
        self.number += 1;
        row.number = self.number;
        self.insert(row.clone());
        row
    }

    fn insert(&mut self, row: Row) {
        self.deadlines.insert(row.name.clone(), row.deadline);
        self.due[row.partition as usize].insert(row.position(), row);
    }

    pub(crate) fn remove(&mut self, name: &str) -> Option<Row> {
        let (name, deadline) = self.deadlines.remove_entry(name)?;
        let partition = self.partition(&name) as usize;
        self.due[partition].remove(&Position { deadline, name })
    }

    fn partition(&self, name: &str) -> u32 {
        (self.partition)(name, self.epochs.len())
    }

    /// Returns the rows of this partition.
    pub(crate) fn list(&self, partition: u32, after: &Position, until: u64, limit: Limit) -> Page {
        let mut filling = Filling::new(limit);
        let rows = &self.due[partition as usize];
        let rows = rows.range((Bound::Excluded(after.clone()), Bound::Unbounded));
        for row in rows.map(|(_, row)| row).take_while(|row| row.deadline <= until) {
            if filling.is_over() {
                break;
            }
            filling.add(row.clone());
        }
        filling.page()
    }

    pub(crate) fn find(&self, name: &str) -> Option<&Row> {
        let (name, &deadline) = self.deadlines.get_key_value(name)?;
        self.due[self.partition(name) as usize].get(&Position { deadline, name: name.clone() })
    }

    /// Returns the rows of a partition up to this position that were put after that number.
    #[cfg(test)]
    pub(crate) fn since(
        &self,
        number: u64,
        partition: u32,
        until: &Position,
    ) -> impl Iterator<Item = Row> + '_ {
        let rows = self.due[partition as usize].range(..=until.clone()).map(|(_, row)| row);
        rows.filter(move |row| number < row.number).cloned()
    }

    #[cfg(test)]
    pub(crate) fn count(&self, partition: u32) -> usize {
        self.due[partition as usize].len()
    }

    #[cfg(test)]
    pub(crate) fn newest(&self) -> u64 {
        self.number
    }

    pub(crate) fn len(&self) -> usize {
        self.deadlines.len()
    }
}

fn by_checksum(name: &str, partitions: usize) -> u32 {
    crc32c::crc32c(name.as_bytes()) % partitions as u32
}
