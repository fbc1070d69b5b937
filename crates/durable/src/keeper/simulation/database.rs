//! A database in virtual time: what `PostgresStore` does in one.

use std::collections::HashMap;
use std::time::Duration;

use fastrand::Rng;

use super::LEASE;
use crate::store::{Lease, Leases, memory::Tables};

/// A database: what `PostgresStore` does in one.
pub(super) struct Database {
    pub(super) tables: Tables,
    pub(super) partitions: Vec<Partition>,
    workers: HashMap<u64, u64>,
    /// Its clock less the true time.
    pub(super) clock: u64,
    pub(super) latency: u64,
}

#[derive(Clone, Copy, Default)]
pub(super) struct Partition {
    pub(super) owner: Option<u64>,
    pub(super) until: u64,
}

impl Database {
    pub(super) fn new(rng: &mut Rng, partitions: u32) -> Self {
        Self {
            tables: Tables::new(partitions as usize),
            partitions: vec![Partition::default(); partitions as usize],
            workers: HashMap::new(),
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
            let place = (start + at) % self.partitions.len();
            let partition = &mut self.partitions[place];
            let is_free = partition.owner.is_none()
                || partition.owner != Some(worker) && partition.until < clock;
            if is_free && mine < share {
                *partition = Partition { owner: Some(worker), until: clock + LEASE };
                self.tables.epochs[place] += 1;
                mine += 1;
            }
        }
        let held = (0..)
            .zip(&self.partitions)
            .zip(&self.tables.epochs)
            .filter(|((_, held), _)| held.owner == Some(worker))
            .map(|((partition, _), &epoch)| Lease { partition, epoch })
            .collect();
        Leases { held, good_for: Some(Duration::from_millis(LEASE)), clock: Some(clock) }
    }
}
