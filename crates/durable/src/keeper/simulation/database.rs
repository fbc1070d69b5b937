//! A database in virtual time: what `PostgresStore` does in one.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;

use super::LEASE;
use crate::store::{Lease, Leases, Limit, Op, Outcome, Page, Position, Replaced, Row};

/// A database: what `PostgresStore` does in one.
pub(super) struct Database {
    pub(super) rows: BTreeMap<Arc<str>, Row>,
    pub(super) partitions: Vec<Partition>,
    workers: HashMap<u64, u64>,
    number: u64,
    /// Its clock less the true time.
    pub(super) clock: u64,
    pub(super) latency: u64,
}

#[derive(Clone, Copy, Default)]
pub(super) struct Partition {
    pub(super) owner: Option<u64>,
    pub(super) epoch: u64,
    pub(super) until: u64,
}

impl Database {
    pub(super) fn new(rng: &mut Rng, partitions: u32) -> Self {
        Self {
            rows: BTreeMap::new(),
            partitions: vec![Partition::default(); partitions as usize],
            workers: HashMap::new(),
            number: 0,
            clock: rng.u64(0..10_000_000),
            latency: rng.u64(1..20),
        }
    }

    pub(super) fn lease(&mut self, worker: u64, clock: u64, rng: &mut Rng) -> Leases {
        self.workers.insert(worker, clock + LEASE);
        self.workers.retain(|_, until| clock <= *until);
        let share = self.partitions.len().div_ceil(self.workers.len());
        let mut mine = 0;
        for partition in &mut self.partitions {
            if partition.owner == Some(worker) {
                if mine < share {
                    partition.until = clock + LEASE;
                    mine += 1;
                } else {
                    partition.owner = None;
                }
            }
        }
        let start = rng.usize(0..self.partitions.len());
        for at in 0..self.partitions.len() {
            let count = self.partitions.len();
            let partition = &mut self.partitions[(start + at) % count];
            let is_free = partition.owner.is_none()
                || partition.owner != Some(worker) && partition.until < clock;
            if is_free && mine < share {
                *partition = Partition {
                    owner: Some(worker),
                    epoch: partition.epoch + 1,
                    until: clock + LEASE,
                };
                mine += 1;
            }
        }
        let held = self
            .partitions
            .iter()
            .zip(0..)
            .filter(|(partition, _)| partition.owner == Some(worker))
            .map(|(held, partition)| Lease { partition, epoch: held.epoch })
            .collect();
        Leases { held, good_for: Some(Duration::from_millis(LEASE)), clock: Some(clock) }
    }

    pub(super) fn load(
        &self,
        leases: Option<&[Lease]>,
        after: &Position,
        until: u64,
        limit: Limit,
    ) -> Page {
        let mut is_held = vec![false; self.partitions.len()];
        for lease in leases.into_iter().flatten() {
            is_held[lease.partition as usize] = true;
        }
        let mut rows: Vec<Row> = self
            .rows
            .values()
            .filter(|row| row.deadline <= until && is_held[row.partition as usize])
            .filter(|row| *after < row.position())
            .cloned()
            .collect();
        rows.sort_by_key(Row::position);
        let more = limit.rows < rows.len();
        rows.truncate(limit.rows);
        let end = rows.last().filter(|_| more).map(Row::position);
        Page { rows, end, damaged: Vec::new() }
    }

    pub(super) fn apply(&mut self, op: &Op) -> Outcome {
        match op {
            Op::Put { name, deadline, payload } => {
                self.number += 1;
                let row = Row {
                    name: name.clone(),
                    deadline: *deadline,
                    payload: payload.clone(),
                    attempt: 0,
                    number: self.number,
                    partition: crc32c::crc32c(name.as_bytes()) % self.partitions.len() as u32,
                };
                let replaced = self.rows.insert(name.clone(), row.clone());
                Outcome::Put { row, replaced: replaced.as_ref().map(Replaced::from) }
            }
            Op::Cancel { name } => {
                Outcome::Cancelled(self.rows.remove(name).as_ref().map(Replaced::from))
            }
            Op::Ack(held) | Op::Retry(held, _)
                if held.lease.epoch != self.partitions[held.lease.partition as usize].epoch =>
            {
                Outcome::Fenced
            }
            Op::Ack(held) | Op::Retry(held, _)
                if self.rows.get(&held.name).is_none_or(|row| row.number != held.number) =>
            {
                Outcome::Gone
            }
            Op::Ack(held) => {
                self.rows.remove(&held.name);
                Outcome::Acked
            }
            Op::Retry(held, deadline) => {
                self.number += 1;
                let row = self.rows.get_mut(&held.name).expect("it is there");
                row.deadline = *deadline;
                row.attempt += 1;
                row.number = self.number;
                Outcome::Retried(row.clone())
            }
        }
    }
}
