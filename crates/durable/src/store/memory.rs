use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::Error;
use crate::store::{
    Filling, Lease, Leases, Limit, Op, Outcome, Page, Position, Replaced, Row, Store,
};

/// A store in memory, for tests of programs that use a timer. Nothing in it outlives the process.
///
/// Clones are the same store, so a test can close a timer and open another on what is left.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    tables: Arc<Mutex<Tables>>,
}

#[derive(Debug, Default)]
struct Tables {
    due: BTreeMap<Position, Row>,
    deadlines: BTreeMap<Arc<str>, u64>,
    number: u64,
    epoch: u64,
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
    fn lease(&mut self, wanted: bool) -> Result<Leases, Error> {
        let mut tables = self.tables();
        let mut held = Vec::new();
        if wanted {
            tables.epoch += 1;
            held.push(Lease { partition: 0, epoch: tables.epoch });
        }
        Ok(Leases { held, good_for: None, clock: None })
    }

    fn load(
        &mut self,
        leases: Option<&[Lease]>,
        after: &Position,
        until: u64,
        limit: Limit,
    ) -> Result<Page, Error> {
        let mut filling = Filling::new(limit);
        let tables = self.tables();
        let rows = tables.due.range((Bound::Excluded(after.clone()), Bound::Unbounded));
        for (position, row) in rows {
            if until < position.deadline || filling.is_over() {
                break;
            }
            if leases.is_none_or(|leases| leases.iter().any(|lease| lease.partition == 0)) {
                filling.add(row.clone());
            }
        }
        Ok(filling.page())
    }

    fn commit(&mut self, ops: &[Op]) -> Result<Vec<Outcome>, Error> {
        let mut tables = self.tables();
        Ok(ops.iter().map(|op| tables.apply(op)).collect())
    }

    fn get(&mut self, name: &str) -> Result<Option<Row>, Error> {
        Ok(self.tables().find(name).cloned())
    }

    fn count(&mut self) -> Result<u64, Error> {
        Ok(self.tables().due.len() as u64)
    }
}

impl Tables {
    fn apply(&mut self, op: &Op) -> Outcome {
        match op {
            Op::Put { name, deadline, payload } => {
                let replaced = self.remove(name).as_ref().map(Replaced::from);
                self.number += 1;
                let row = Row {
                    name: name.clone(),
                    deadline: *deadline,
                    payload: payload.clone(),
                    attempt: 0,
                    number: self.number,
                    partition: 0,
                };
                self.insert(row.clone());
                Outcome::Put { row, replaced }
            }
            Op::Cancel { name } => {
                Outcome::Cancelled(self.remove(name).as_ref().map(Replaced::from))
            }
            Op::Ack(held) | Op::Retry(held, _) if held.lease.epoch != self.epoch => Outcome::Fenced,
            Op::Ack(held) | Op::Retry(held, _)
                if self.find(&held.name).is_none_or(|row| {
                    (row.number, row.deadline) != (held.number, held.deadline)
                }) =>
            {
                Outcome::Gone
            }
            Op::Ack(held) => {
                self.remove(&held.name);
                Outcome::Acked
            }
            Op::Retry(held, deadline) => {
                let mut row = self.remove(&held.name).expect("the row was found");
                row.deadline = *deadline;
                row.attempt = row.attempt.saturating_add(1);
                self.number += 1;
                row.number = self.number;
                self.insert(row.clone());
                Outcome::Retried(row)
            }
        }
    }

    fn insert(&mut self, row: Row) {
        self.deadlines.insert(row.name.clone(), row.deadline);
        self.due.insert(row.position(), row);
    }

    fn remove(&mut self, name: &str) -> Option<Row> {
        let (name, deadline) = self.deadlines.remove_entry(name)?;
        self.due.remove(&Position { deadline, name })
    }

    fn find(&self, name: &str) -> Option<&Row> {
        let (name, &deadline) = self.deadlines.get_key_value(name)?;
        self.due.get(&Position { deadline, name: name.clone() })
    }
}
