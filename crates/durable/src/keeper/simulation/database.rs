//! A database in virtual time: what `PostgresStore` does in one, and what others do to it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;

use super::Size;
use crate::Error;
use crate::keeper::words::{BehindCall, CommitCall, LeaseCall, LoadCall};
use crate::store::limits;
use crate::store::memory::Tables;
use crate::store::stretch::Stretch;
use crate::store::{
    Change, Done, Lease, Leases, Limit, Loaded, Outcome, Page, Position, RateLimit, Row, Start,
    share,
};

/// A database: what `PostgresStore` does in one.
pub(super) struct Database {
    /// How long a lease is good for.
    pub(super) lease: u64,
    /// The true time of the call that it answers.
    pub(super) time: u64,
    pub(super) tables: Tables,
    pub(super) partitions: Vec<Partition>,
    /// Until when the lease of each is good, and whether it wants partitions.
    workers: HashMap<u64, (u64, bool)>,
    /// Its clock less the true time.
    pub(super) clock: u64,
    pub(super) latency: u64,
    pub(super) manners: Manners,
    /// Names that a foreign transaction has touched, and when it ends.
    locks: HashMap<Arc<str>, u64>,
    /// The names of those that are new, so that to be told takes so long for each.
    new: HashMap<Arc<str>, u64>,
    /// Names whose rows a trigger keeps, and until when.
    refused: HashMap<Arc<str>, u64>,
    /// Names whose rows take long to settle or to change: how long, and until when.
    slow: HashMap<Arc<str>, (u64, u64)>,
    /// A partition that a foreign transaction has locked, and until when.
    pub(super) locked_partition: Option<(u32, u64)>,
    /// How long what a commit has locked stays so after its worker has given it up.
    pub(super) leaves_locks: u64,
    /// Until when names are locked, and partitions get no other owner, because of that.
    left_names: HashMap<Arc<str>, u64>,
    left: HashMap<u32, u64>,
    /// When the workers that wait for such a lock let go of their partitions.
    shared: HashMap<u32, u64>,
    /// The deadlines of deleted rows that a foreign snapshot keeps, sorted, by partition. `None`:
    /// nothing keeps them.
    dead: Option<Vec<Vec<u64>>>,
    /// When that snapshot ends.
    pub(super) dead_until: u64,
    /// Old versions of the rows of partitions that the snapshot keeps: all are read to find the
    /// newest.
    old_partitions: u64,
    /// The number of the newest row when a worker loaded last, and heard of it.
    seen: HashMap<u64, u64>,
    /// How many consumers may take, until when.
    pub(super) rate_limit: Option<(RateLimit, u64)>,
    /// How much of the past each worker reads at once.
    stretches: HashMap<u64, Stretch>,
    /// A call that is made before `heals_at` has no answer before this: a process hangs, or the
    /// network is gone and forgot the connection.
    pub(super) silent_until: u64,
    pub(super) heals_at: u64,
    /// The partition and the deadline of rows that cannot be read, because their page is damaged,
    /// and until when.
    pub(super) damaged: Option<(u32, u64, u64)>,
    /// How many milliseconds it takes to send a row of the past.
    pub(super) send: u64,
    /// The most rows that a load tells of what has become visible.
    pub(super) most_news: usize,
    /// How many rows loads have read, dead ones included.
    pub(super) rows_read: u64,
    /// How many milliseconds commits have waited for locks.
    pub(super) waited: u64,
}

#[derive(Clone, Copy, Default)]
pub(super) struct Partition {
    pub(super) owner: Option<u64>,
    pub(super) until: u64,
}

/// How the store goes about it. Each is what keeps something from standing still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Manners {
    /// A load goes on where the last one ended, and reads what is new by its transaction.
    pub(super) goes_on: bool,
    /// The limit of a load is shared by the partitions.
    pub(super) shares_limit: bool,
    /// A settlement of a row that somebody has locked is left out, to be tried again; a change
    /// fails alone.
    pub(super) skips_locked: bool,
    /// Of what takes long is settled what there is time for.
    pub(super) settles_in_parts: bool,
    /// A call that takes longer than a third of the lease is given up.
    pub(super) gives_up: bool,
    /// What of the past takes too long to read is read in smaller stretches.
    pub(super) asks_for_less: bool,
    /// The pasts of several partitions are read in one statement.
    pub(super) reads_together: bool,
    /// A lease is renewed by a row of its own, and not in those of its partitions.
    pub(super) renews_apart: bool,
    /// What was seen is still seen after an error.
    pub(super) remembers: bool,
}

impl Database {
    pub(super) fn new(rng: &mut Rng, Size { partitions, lease, .. }: Size) -> Self {
        Self {
            lease,
            time: 0,
            tables: Tables::new(partitions as usize),
            partitions: vec![Partition::default(); partitions as usize],
            workers: HashMap::new(),
            clock: rng.u64(0..10_000_000),
            latency: rng.u64(1..20),
            manners: GOOD,
            locks: HashMap::new(),
            new: HashMap::new(),
            refused: HashMap::new(),
            slow: HashMap::new(),
            locked_partition: None,
            leaves_locks: 0,
            left_names: HashMap::new(),
            left: HashMap::new(),
            shared: HashMap::new(),
            dead: None,
            dead_until: u64::MAX,
            seen: HashMap::new(),
            old_partitions: 0,
            rate_limit: None,
            stretches: HashMap::new(),
            silent_until: 0,
            heals_at: 0,
            damaged: None,
            send: 0,
            most_news: NEWS,
            rows_read: 0,
            waited: 0,
        }
    }

    /// What the store allows for the parts of a call.
    fn limits(&self) -> limits::Limits {
        limits::Limits::new(Duration::from_millis(self.lease / 3))
    }

    /// A foreign transaction touches this name, and ends then.
    pub(super) fn lock(&mut self, name: &str, until: u64) {
        self.locks.insert(name.into(), until);
    }

    /// The server goes on for a while with a commit that its worker gives up then.
    pub(super) fn leave_locks(&mut self, call: &CommitCall<Arc<str>>, given_up: u64) {
        if self.leaves_locks == 0 {
            return;
        }
        let until = given_up + self.leaves_locks;
        for settlement in &call.settlements {
            self.left_names.insert(settlement.held.name.clone(), until);
            self.left.insert(settlement.held.lease.partition, until);
        }
        for change in &call.changes {
            self.left_names.insert(change.name.clone(), until);
        }
    }

    pub(super) fn has_left_locks(&self) -> bool {
        !self.left.is_empty()
    }

    /// Whether somebody else has locked this partition.
    fn is_locked(&self, partition: u32) -> bool {
        let locked = self.locked_partition.filter(|(_, until)| self.time < *until);
        locked.is_some_and(|(locked, _)| locked == partition)
    }

    /// A foreign transaction puts this name, and ends then: to find that takes `time`.
    pub(super) fn lock_new(&mut self, name: &str, time: u64, until: u64) {
        self.lock(name, until);
        self.new.insert(name.into(), time);
    }

    /// A trigger keeps the row of this name until then.
    pub(super) fn refuse(&mut self, name: &str, until: u64) {
        self.refused.insert(name.into(), until);
    }

    /// A trigger takes so long for the row of this name until then.
    pub(super) fn slow(&mut self, name: &str, time: u64, until: u64) {
        self.slow.insert(name.into(), (time, until));
    }

    /// A foreign snapshot keeps what is deleted from now on.
    pub(super) fn keep_dead(&mut self) {
        self.dead = Some(vec![Vec::new(); self.partitions.len()]);
    }

    /// Adds rows that were deleted and are kept.
    pub(super) fn add_dead(&mut self, deadlines: impl Iterator<Item = u64>) {
        let dead = self.dead.as_mut().expect("a snapshot keeps them");
        let count = dead.len();
        for (at, deadline) in deadlines.enumerate() {
            dead[at % count].push(deadline);
        }
        dead.iter_mut().for_each(|dead| dead.sort_unstable());
    }

    /// Adds rows of one partition that were deleted and are kept.
    pub(super) fn add_dead_to(&mut self, partition: u32, deadlines: impl Iterator<Item = u64>) {
        let dead = self.dead.as_mut().expect("a snapshot keeps them");
        dead[partition as usize].extend(deadlines);
        dead[partition as usize].sort_unstable();
    }

    /// The snapshot ends.
    pub(super) fn vacuum(&mut self) {
        self.dead = None;
    }

    /// The snapshot is there for so many renewals of all leases.
    pub(super) fn renewed(&mut self, times: u64) {
        if !self.manners.renews_apart && self.dead.is_some() {
            self.old_partitions += times * self.partitions.len() as u64;
        }
    }

    /// Returns when a call that would end at `end` ends for its caller: with its answer or without.
    pub(super) fn end(&self, time: u64, end: u64) -> Result<u64, u64> {
        let limit = time + if self.manners.gives_up { self.lease / 3 } else { VANISHED };
        let end = if time < self.heals_at { self.silent_until.max(end) } else { end };
        if end <= limit { Ok(end) } else { Err(limit) }
    }

    /// Returns when the partitions of a worker may be given to another, and before that to none.
    pub(super) fn lease_at(&self, time: u64) -> u64 {
        self.shared.values().copied().fold(time, u64::max).min(time + STATEMENT)
    }

    pub(super) fn lease(
        &mut self,
        worker: u64,
        call: &LeaseCall,
        clock: u64,
        rng: &mut Rng,
    ) -> Leases {
        self.renewed(1);
        let mut mine = 0;
        let locked: Vec<bool> =
            (0..self.partitions.len() as u32).map(|place| self.is_locked(place)).collect();
        for (place, partition) in (0..).zip(&mut self.partitions) {
            if partition.owner != Some(worker) {
                continue;
            }
            if locked[place as usize] {
                // It stays with its owner, who hands out nothing of it.
                partition.until = clock + self.lease;
            } else if call.given_back.contains(&place) {
                partition.owner = None;
            } else {
                partition.until = clock + self.lease;
                mine += 1;
            }
        }
        self.workers.insert(worker, (clock + self.lease, call.wanted));
        self.workers.retain(|_, (until, _)| clock <= *until);
        let wanting = self.workers.iter().filter(|(_, (_, wants))| *wants).map(|(id, _)| *id);
        let before = wanting.clone().filter(|id| *id < worker).count();
        let owners = wanting.count();
        let share = share(self.partitions.len(), owners, before);
        let start = rng.usize(0..self.partitions.len());
        let takes = call.wanted && call.given_back.is_empty();
        for at in 0..if takes { self.partitions.len() } else { 0 } {
            let place = (start + at) % self.partitions.len();
            let partition = &mut self.partitions[place];
            let is_left = self.left.get(&(place as u32)).is_some_and(|until| self.time < *until);
            if locked[place] || is_left {
                continue;
            }
            let is_free = partition.owner.is_none()
                || partition.owner != Some(worker) && partition.until < clock;
            if is_free && mine < share {
                *partition = Partition { owner: Some(worker), until: clock + self.lease };
                self.tables.epochs[place] += 1;
                mine += 1;
            }
        }
        let held = (0..)
            .zip(&self.partitions)
            .zip(&self.tables.epochs)
            .filter(|((place, held), _)| held.owner == Some(worker) && !locked[*place as usize])
            .map(|((partition, _), &epoch)| Lease { partition, epoch })
            .collect();
        let others = self.workers.iter().filter(|(id, _)| **id != worker);
        let end = others.map(|(_, (until, _))| until - clock).min();
        let limit = self.rate_limit.filter(|(_, until)| self.time < *until);
        let rate_limit = limit.map(|(limit, _)| limit);
        Leases {
            held,
            share,
            owners,
            owners_before: before,
            good_for: Some(Duration::from_millis(self.lease)),
            others_end: end.map(Duration::from_millis),
            clock: Some(clock),
            is_paused: false,
            rate_limit,
            yielding: Vec::new(),
        }
    }

    /// Loads, and returns how long that takes.
    pub(super) fn load(
        &mut self,
        worker: u64,
        call: &LoadCall,
        clock: u64,
    ) -> (Result<Loaded, Error>, u64) {
        let LoadCall { from, until, limit, .. } = call;
        let rows = match self.manners.shares_limit {
            true => limit.rows.div_ceil(from.len().max(1)),
            false => limit.rows,
        };
        let limit = Limit { rows, ..*limit };
        let seen = self.seen.get(&worker).copied();
        let has_free = self.partitions.iter().any(|partition| partition.owner.is_none());
        let mut loaded =
            Loaded { overflows: seen.is_none(), has_free, clock: Some(clock), ..Loaded::default() };
        for Start { lease, after } in from.iter().filter(|_| !loaded.overflows) {
            let seen = seen.expect("it does not overflow");
            loaded.rows.extend(self.tables.since(seen, lease.partition, after));
        }
        loaded.overflows |= self.most_news <= loaded.rows.len();
        loaded.rows.truncate(self.most_news);
        let mut bytes = 0;
        let mut is_too_much = |row: &mut Row| {
            bytes += row.content().bytes();
            limit.bytes + row.content().bytes() <= bytes
        };
        let left_out = loaded.rows.extract_if(.., &mut is_too_much);
        loaded.left_out = left_out.map(|row| (row.partition, row.deadline)).collect();
        let mut took = loaded.rows.len() as u64 / READ;
        let mut pages: Vec<Page> = Vec::new();
        let mut read = 0;
        for start in from {
            let (page, rows) = self.read(start, *until, limit);
            pages.push(page);
            read += rows;
        }
        self.rows_read += read;
        took += read / READ;
        let time = self.limits().load;
        let is_damaged = from.iter().any(|start| self.meets_damage(start, *until, limit));
        if is_damaged && !self.manners.asks_for_less {
            return (Err(Error::store("read", "a page is damaged")), 1);
        }
        loaded.outlasts = is_damaged || self.manners.asks_for_less && time < took;
        for (page, start) in pages.into_iter().zip(from) {
            if loaded.outlasts {
                loaded.ends.push(Some(start.after.clone()));
            } else {
                loaded.rows.extend(page.rows);
                loaded.ends.push(page.end);
            }
        }
        (Ok(loaded), if self.manners.asks_for_less { took.min(time) } else { took })
    }

    /// A worker heard what a load brought that it made when so many rows had been put. Without, it
    /// asks for the same again.
    pub(super) fn saw(&mut self, worker: u64, newest: u64) {
        self.seen.insert(worker, newest);
    }

    /// A call of this worker had no answer.
    pub(super) fn failed(&mut self, worker: u64) {
        if !self.manners.remembers {
            self.seen.remove(&worker);
        }
    }

    /// Loads of the past, and returns how long that takes.
    pub(super) fn load_behind(&mut self, worker: u64, call: &BehindCall) -> (Loaded, u64) {
        let BehindCall { from, until, limit, .. } = call;
        let mut stretch = match self.manners.asks_for_less {
            true => self.stretches.get(&worker).copied().unwrap_or(Stretch::ALL),
            false => Stretch::ALL,
        };
        let mut part = stretch.part(from, *until, *limit, self.lease / 3);
        if !self.manners.reads_together {
            part.from = &from[..1];
        }
        let limit = match self.manners.shares_limit {
            true => Limit { rows: part.limit.rows.div_ceil(part.from.len()), ..part.limit },
            false => part.limit,
        };
        let meets = |start: &Start| self.meets_damage(start, part.until, limit);
        let (read, took) = if part.from.iter().any(meets) {
            (Err(Error::store("read", "a page is damaged")), 1)
        } else {
            let (pages, read): (Vec<Page>, Vec<u64>) =
                part.from.iter().map(|start| self.read(start, part.until, limit)).unzip();
            let read: u64 = read.into_iter().sum();
            self.rows_read += read;
            let sent: usize = pages.iter().map(|page| page.rows.len()).sum();
            let took = read / READ + sent as u64 * self.send;
            if self.manners.asks_for_less && part.time < took {
                (Err(Error::store("read", "too much is dead")), part.time)
            } else {
                let mut loaded = Loaded::default();
                for page in pages {
                    loaded.rows.extend(page.rows);
                    loaded.ends.push(page.end);
                }
                (Ok(loaded), took)
            }
        };
        let loaded = stretch.take(part, from, *until, read);
        self.stretches.insert(worker, stretch);
        (loaded, took)
    }

    /// Whether a load comes to what is damaged.
    fn meets_damage(&self, Start { lease, after }: &Start, until: u64, limit: Limit) -> bool {
        let Some((partition, deadline, mended)) = self.damaged else { return false };
        let page = self.tables.list(partition, after, until, limit);
        let end = page.end.map_or(until, |end| end.deadline);
        self.time < mended
            && lease.partition == partition
            && (after.deadline..=end).contains(&deadline)
    }

    /// Reads a partition, and returns how many rows that takes, dead ones included.
    fn read(&self, Start { lease, after }: &Start, until: u64, limit: Limit) -> (Page, u64) {
        let partition = lease.partition;
        let page = self.tables.list(partition, after, until, limit);
        let end = page.end.as_ref().map_or(until, |end| end.deadline);
        let first = if self.manners.goes_on { after.deadline } else { 0 };
        let kept = self.dead.as_ref().filter(|_| self.time < self.dead_until);
        let dead = kept.map_or(&[][..], |dead| &dead[partition as usize]);
        let before = dead.partition_point(|deadline| *deadline < first);
        let dead = dead[before..].partition_point(|deadline| *deadline <= end);
        let mut read = dead + page.rows.len();
        if !self.manners.goes_on {
            let all = Limit { rows: usize::MAX, bytes: usize::MAX };
            read += self.tables.list(partition, &Position::start(), after.deadline, all).rows.len();
        }
        (page, read as u64)
    }

    /// Commits, and returns how long that takes.
    pub(super) fn commit(&mut self, time: u64, call: &CommitCall<Arc<str>>) -> (Done, u64) {
        self.locks.retain(|_, until| time < *until);
        self.left_names.retain(|_, until| time < *until);
        self.refused.retain(|_, until| time < *until);
        self.slow.retain(|_, (_, until)| time < *until);
        let waits = |name: &Arc<str>| {
            let until = self.locks.get(name).max(self.left_names.get(name));
            until.map_or(0, |until| until - time)
        };
        let settled = call.settlements.iter().map(|settlement| waits(&settlement.held.name));
        let changed = call.changes.iter().map(|change| waits(&change.name));
        if !self.manners.skips_locked {
            let wait = settled.chain(changed).max().unwrap_or(0).min(STATEMENT);
            // Meanwhile nobody gets these partitions.
            for settlement in call.settlements.iter().filter(|_| 0 < wait) {
                self.shared.insert(settlement.held.lease.partition, time + wait);
            }
            let (done, took) = self.apply(call, |_| false);
            return (done, wait + took);
        }
        let locked = self.locks.keys().chain(self.left_names.keys());
        let locked: Vec<Arc<str>> = locked.cloned().collect();
        let is_locked = settled.chain(changed).any(|wait| 0 < wait);
        let mut wait = if is_locked { self.limits().lock } else { 0 };
        self.waited += wait;
        if !call.settlements.is_empty() {
            wait += self.old_partitions / READ;
        }
        let (done, took) = self.apply(call, |name| locked.contains(name));
        (done, wait + took)
    }

    fn apply(
        &mut self,
        call: &CommitCall<Arc<str>>,
        is_locked: impl Fn(&Arc<str>) -> bool,
    ) -> (Done, u64) {
        let mut done = Done::default();
        let parts = self.limits().commit;
        let takes = |name| self.slow.get(name).map_or(0, |&(time, _)| time);
        let all: u64 = call.settlements.iter().map(|settled| takes(&settled.held.name)).sum();
        let limit = match self.manners.settles_in_parts {
            true => parts.group,
            false => self.lease / 3,
        };
        if limit < all && !self.manners.settles_in_parts {
            return (done, self.lease);
        }
        // The group has failed before it is done in parts, and so have the parts that have what
        // takes long.
        let halves = u64::from(call.settlements.len().max(1).ilog2());
        let failed = if limit < all { limit + halves * parts.half } else { 0 };
        let mut took = 0;
        for settlement in &call.settlements {
            let name = &settlement.held.name;
            if limit < took {
                break;
            }
            let time = self.slow.get(name).map_or(0, |&(time, _)| time);
            took += time.min(limit + 1);
            let outcome = match self.refused.contains_key(name) {
                _ if is_locked(name) || self.is_locked(settlement.held.lease.partition) => {
                    Outcome::Locked
                }
                _ if limit < time => Outcome::Refused("it takes too long".to_owned()),
                true => Outcome::Refused("a trigger".to_owned()),
                false => self.tables.settle(settlement),
            };
            if let (Outcome::Settled(_), Some(dead)) = (&outcome, &mut self.dead) {
                let dead = &mut dead[settlement.held.lease.partition as usize];
                let deadline = settlement.held.deadline;
                dead.insert(dead.partition_point(|dead| *dead <= deadline), deadline);
            }
            done.outcomes.push(outcome);
        }
        let all: u64 = call.changes.iter().map(|change| takes(&change.name)).sum();
        let halves = u64::from(call.changes.len().max(1).ilog2());
        let mut failed_too = if parts.group < all { halves * parts.half } else { 0 };
        if failed == 0 && parts.group < all {
            failed_too += parts.group;
        }
        let mut changed = 0;
        for change in &call.changes {
            let name = &change.name;
            if parts.group < changed {
                break;
            }
            let waits = self.new.get(name).filter(|_| is_locked(name));
            let time = takes(name) + waits.copied().unwrap_or_default();
            changed += time.min(parts.group + 1);
            let is_refused =
                parts.group < time || is_locked(name) || self.refused.contains_key(name);
            done.changed.push(match is_refused {
                true => Err(Error::store("put or cancel it", "it is locked, slow, or a trigger")),
                false => Ok(self.tables.change(change)),
            });
        }
        (done, failed + took + failed_too + changed)
    }

    /// Returns when the last of what was done to it is over.
    pub(super) fn over(&self) -> u64 {
        let names = self.locks.values().chain(self.refused.values());
        let slow = self.slow.values().map(|(_, until)| until);
        let dead = self.dead.as_ref().map(|_| self.dead_until);
        let damaged = self.damaged.map(|(.., until)| until);
        let locked = self.locked_partition.map(|(_, until)| until);
        let limit = self.rate_limit.map(|(_, until)| until);
        let all = names.chain(slow).copied().chain(dead).chain(damaged).chain(locked).chain(limit);
        all.fold(self.heals_at, u64::max)
    }

    /// Puts a row as somebody does who is no worker.
    pub(super) fn put(&mut self, change: &Change) -> Row {
        self.tables.change(change).row.expect("it is put")
    }
}

pub(super) const GOOD: Manners = Manners {
    goes_on: true,
    shares_limit: true,
    skips_locked: true,
    settles_in_parts: true,
    gives_up: true,
    asks_for_less: true,
    reads_together: true,
    renews_apart: true,
    remembers: true,
};

/// Rows that are read in a millisecond.
const READ: u64 = 100;
/// Half of what may be near, as in a real one.
const NEWS: usize = 500;
/// The longest a statement waits for a lock, or works.
const STATEMENT: u64 = 30_000;
/// When TCP says that nobody is there.
const VANISHED: u64 = 600_000;
