//! A database of a fleet: what the tables, their functions and `PostgresStore` do in one.
//!
//! A change is made first and seen when its transaction commits; between the two others go on. What
//! one transaction locks is as in PostgreSQL: names, partitions, and the lock that callers share.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;

use super::{Part, Size};
use crate::Error;
use crate::fleet::map::{PARTITIONS, partition};
use crate::keeper::{BehindCall, CommitCall, LeaseCall, LoadCall};
use crate::store::limits::Limits;
use crate::store::memory::Tables;
use crate::store::postgres::{DatabaseId, Home, HomeState, Homes, Turn, Way};
use crate::store::{
    Change, Dead, Done, Lease, Leases, Limit, Loaded, Outcome, Page, Position, Row, Settlement,
    Start, share,
};

pub(super) struct Database {
    pub(super) id: DatabaseId,
    lease: u64,
    without: Option<Part>,
    pub(super) tables: Tables,
    homes: Vec<Home>,
    /// What was said of them last.
    said: Arc<Homes>,
    owners: Vec<Option<u64>>,
    /// Until then a partition is to be given back, by the clock of the database.
    yields: Vec<u64>,
    /// Until when the lease of each is good, and whether it wants partitions.
    workers: BTreeMap<u64, (u64, bool)>,
    /// The partitions, moves and names of what has changed while it is copied.
    notes: Vec<Note>,
    transactions: BTreeMap<u64, Transaction>,
    /// How many there were.
    begun: u64,
    /// The number of the newest row when a worker loaded last, and heard of it.
    seen: HashMap<u64, u64>,
    /// The true time.
    pub(super) time: u64,
    /// Its clock less the true time.
    pub(super) ahead: u64,
    /// Nobody can reach it before.
    pub(super) down_until: u64,
    /// How many servers there were: each is the standby of the one before.
    pub(super) server: u32,
    /// Whether it is of the fleet. Before, nobody knows it.
    pub(super) has_joined: bool,
}

type Note = (u32, u64, Arc<str>);

/// What an open transaction has locked and changed.
#[derive(Default)]
struct Transaction {
    /// The names of rows.
    names: Vec<Arc<str>>,
    /// The partitions in which it settles, that keep their owners.
    settles: Vec<u32>,
    /// The partitions that it keeps here, as all callers may.
    keeps: Vec<u32>,
    /// What triggers have noted.
    noted: Vec<Note>,
    /// The partition that it moves, whose owner it may ask for, and the notes it has taken.
    locks_out: Option<u32>,
    locks: Option<u32>,
    taken: Vec<Note>,
    /// When the server ends it, if nothing happens.
    ends: u64,
}

/// Whether a partition is kept here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    Here,
    /// Another database has it.
    Away,
    /// It is about to move.
    Locked,
}

impl Database {
    pub(super) fn new(rng: &mut Rng, at: usize, size: Size, without: Option<Part>) -> Self {
        let home = Home { state: HomeState::Gone, other: Some(id(0)), moves: 0, epoch: 0 };
        Self {
            id: id(at),
            lease: size.lease,
            without,
            tables: Tables::by(PARTITIONS, |name, _| partition(name) as u32),
            homes: vec![home; PARTITIONS],
            said: Arc::new(Homes { id: id(at), places: HashMap::new(), partitions: Vec::new() }),
            owners: vec![None; PARTITIONS],
            yields: vec![0; PARTITIONS],
            workers: BTreeMap::new(),
            notes: Vec::new(),
            transactions: BTreeMap::new(),
            begun: 0,
            seen: HashMap::new(),
            time: 0,
            ahead: CLOCK + rng.u64(0..400),
            down_until: 0,
            server: 0,
            has_joined: at + size.joins < size.databases,
        }
    }

    fn has(&self, part: Part) -> bool {
        self.without != Some(part)
    }

    pub(super) fn clock(&self) -> u64 {
        self.time + self.ahead
    }

    /// Gives it a partition, as an earlier move did.
    pub(super) fn begin_with(&mut self, partition: usize, from: DatabaseId) {
        let (other, moves) = if from == self.id { (None, 0) } else { (None, 2) };
        self.homes[partition] = Home { state: HomeState::Here, other, moves, epoch: 0 };
    }

    /// Lets a partition be gone, as after an earlier move.
    pub(super) fn begin_without(&mut self, partition: usize, to: DatabaseId) {
        let home = &mut self.homes[partition];
        (home.other, home.moves) = (Some(to), 2);
    }

    /// Joins the fleet of a database that has answered this.
    pub(super) fn join(&mut self, map: &Homes) {
        for (home, other) in self.homes.iter_mut().zip(map.databases()) {
            home.other = Some(other);
        }
        self.has_joined = true;
    }

    pub(super) fn homes(&mut self) -> Arc<Homes> {
        let epochs = self.homes.iter().zip(&self.tables.epochs);
        let homes = epochs.map(|(home, &epoch)| Home { epoch, ..*home });
        if !homes.clone().eq(self.said.partitions.iter().copied()) {
            let partitions = homes.collect();
            self.said = Arc::new(Homes { id: self.id, places: HashMap::new(), partitions });
        }
        Arc::clone(&self.said)
    }

    pub(super) fn home(&self, partition: u32) -> Home {
        self.homes[partition as usize]
    }

    /// Whether this worker may hand out of it under this epoch, and has so much left of its lease.
    pub(super) fn is_owner(&self, worker: u64, partition: u32, epoch: u64, left: u64) -> bool {
        let place = partition as usize;
        let until = self.workers.get(&worker).map_or(0, |worker| worker.0);
        self.homes[place].state.is_here()
            && (self.owners[place], self.tables.epochs[place]) == (Some(worker), epoch)
            && self.clock() + left <= until
    }

    /// The primary dies: what it has not committed is gone.
    pub(super) fn fail_over(&mut self, down_until: u64) {
        self.down_until = self.down_until.max(down_until);
        self.server += 1;
        let open: Vec<u64> = self.transactions.keys().copied().collect();
        open.into_iter().for_each(|transaction| self.roll_back(transaction));
        self.seen.clear();
    }

    // Transactions.

    pub(super) fn begin(&mut self, lasts: u64) -> u64 {
        self.begun += 1;
        let ends = self.time + lasts;
        self.transactions.insert(self.begun, Transaction { ends, ..Transaction::default() });
        self.begun
    }

    /// Ends what does nothing for too long.
    pub(super) fn tick(&mut self, time: u64) {
        self.time = time;
        let late = self.transactions.iter().filter(|(_, it)| it.ends <= time);
        let late: Vec<u64> = late.map(|(transaction, _)| *transaction).collect();
        late.into_iter().for_each(|transaction| self.roll_back(transaction));
    }

    pub(super) fn roll_back(&mut self, transaction: u64) {
        if let Some(ended) = self.transactions.remove(&transaction) {
            self.notes.extend(ended.taken);
        }
    }

    fn others(&self, transaction: u64) -> impl Iterator<Item = &Transaction> {
        self.transactions.iter().filter(move |(id, _)| **id != transaction).map(|(_, it)| it)
    }

    fn is_locked(&self, partition: u32) -> bool {
        self.transactions.values().any(|it| it.locks == Some(partition))
    }

    /// Changes the row of a name, to be seen later. False: another has.
    pub(super) fn touch(&mut self, transaction: u64, name: &Arc<str>) -> bool {
        if self.others(transaction).any(|it| it.names.contains(name)) {
            return false;
        }
        let place = partition(name) as u32;
        let home = self.home(place);
        let notes = home.state == HomeState::Moving && self.has(Part::Notes);
        let Some(open) = self.transactions.get_mut(&transaction) else { return true };
        open.names.push(name.clone());
        if notes {
            open.noted.push((place, home.moves, name.clone()));
        }
        true
    }

    /// Looks where a partition is, and keeps it there.
    pub(super) fn keep(&mut self, transaction: u64, partition: u32) -> Kept {
        if !self.has(Part::Check) {
            return Kept::Here;
        }
        if self.has(Part::LockOut)
            && self.others(transaction).any(|it| it.locks_out == Some(partition))
        {
            return Kept::Locked;
        }
        if let Some(open) = self.transactions.get_mut(&transaction) {
            open.keeps.push(partition);
        }
        if self.home(partition).state.is_here() { Kept::Here } else { Kept::Away }
    }

    /// Lets a partition keep its owner. False: it is about to move.
    pub(super) fn settle_in(&mut self, transaction: u64, partition: u32) -> bool {
        let is_free = !self.is_locked(partition);
        if let Some(open) = self.transactions.get_mut(&transaction).filter(|_| is_free) {
            open.settles.push(partition);
        }
        is_free
    }

    /// Commits. `None`: the server has ended the transaction.
    pub(super) fn commit(&mut self, transaction: u64) -> Option<()> {
        let ended = self.transactions.remove(&transaction)?;
        self.notes.extend(ended.noted);
        Some(())
    }

    pub(super) fn settle(&mut self, settlement: &Settlement) -> Outcome {
        self.tables.settle(settlement)
    }

    // What a worker asks.

    pub(super) fn lease(&mut self, worker: u64, call: &LeaseCall, rng: &mut Rng) -> Leases {
        let clock = self.clock();
        let locked: Vec<u32> = self.transactions.values().filter_map(|it| it.locks).collect();
        let mut mine: Vec<u32> = (0..PARTITIONS as u32)
            .filter(|&it| self.owners[it as usize] == Some(worker) && !locked.contains(&it))
            .collect();
        let (given, kept): (Vec<u32>, Vec<u32>) =
            mine.into_iter().partition(|it| call.given_back.contains(it));
        mine = kept;
        let yields = |it: &u32| clock <= self.yields[*it as usize] && self.has(Part::Yields);
        let yielding = mine.iter().copied().filter(yields).collect();
        for &place in &given {
            self.owners[place as usize] = None;
        }
        self.workers.retain(|_, (until, _)| clock <= *until);
        let nothing = mine.is_empty() && !call.wanted;
        match nothing {
            true => drop(self.workers.remove(&worker)),
            false => drop(self.workers.insert(worker, (clock + self.lease, call.wanted))),
        }
        let wanting = self.workers.iter().filter(|(_, (_, wants))| *wants).map(|(id, _)| *id);
        let before = wanting.clone().filter(|id| *id < worker).count();
        let owners = wanting.count();
        let may_have = |it: usize| {
            self.homes[it].state.is_here() && (self.yields[it] < clock || !self.has(Part::Yields))
        };
        let share = share((0..PARTITIONS).filter(|it| may_have(*it)).count(), owners, before);
        if call.wanted && given.is_empty() && mine.len() < share {
            let is_free = |it: &usize| {
                let owner = self.owners[*it];
                let has_lease = owner.is_some_and(|owner| self.workers.contains_key(&owner));
                let place = *it as u32;
                let is_kept = self
                    .transactions
                    .values()
                    .any(|it| it.locks == Some(place) || it.settles.contains(&place));
                owner != Some(worker) && may_have(*it) && !has_lease && !is_kept
            };
            let mut free: Vec<usize> = (0..PARTITIONS).filter(is_free).collect();
            rng.shuffle(&mut free);
            for place in free.into_iter().take(share - mine.len()) {
                self.owners[place] = Some(worker);
                self.tables.epochs[place] += 1;
                mine.push(place as u32);
            }
        }
        let lease =
            |&partition: &u32| Lease { partition, epoch: self.tables.epochs[partition as usize] };
        let others = self.workers.iter().filter(|(id, _)| **id != worker);
        let end = others.map(|(_, (until, _))| until - clock).min();
        Leases {
            held: mine.iter().map(lease).collect(),
            share,
            owners: owners.max(1),
            owners_before: before,
            good_for: Some(Duration::from_millis(self.lease)),
            others_end: end.map(Duration::from_millis),
            clock: Some(clock),
            is_paused: false,
            rate_limit: None,
            yielding,
        }
    }

    /// Loads, and returns what is seen then.
    pub(super) fn load(&mut self, worker: u64, call: &LoadCall) -> (Loaded, u64) {
        let LoadCall { from, until, limit, .. } = call;
        let limit = Limit { rows: limit.rows.div_ceil(from.len().max(1)), ..*limit };
        let seen = self.seen.get(&worker).copied();
        let clock = self.clock();
        let has_free = (0..PARTITIONS).any(|it| match clock <= self.yields[it] {
            true => from.iter().any(|start| start.lease.partition as usize == it),
            false => self.owners[it].is_none() && self.homes[it].state.is_here(),
        });
        let mut loaded =
            Loaded { overflows: seen.is_none(), has_free, clock: Some(clock), ..Loaded::default() };
        for Start { lease, after } in from {
            let news = seen.map(|seen| self.tables.since(seen, lease.partition, after));
            loaded.rows.extend(news.into_iter().flatten());
        }
        for page in from.iter().map(|start| self.list(start, *until, limit)) {
            loaded.rows.extend(page.rows);
            loaded.ends.push(page.end);
        }
        (loaded, self.tables.newest())
    }

    /// A worker heard what was seen then.
    pub(super) fn saw(&mut self, worker: u64, newest: u64) {
        self.seen.insert(worker, newest);
    }

    pub(super) fn load_behind(&self, BehindCall { from, until, limit, .. }: &BehindCall) -> Loaded {
        let limit = Limit { rows: limit.rows.div_ceil(from.len().max(1)), ..*limit };
        let mut loaded = Loaded::default();
        for page in from.iter().map(|start| self.list(start, *until, limit)) {
            loaded.rows.extend(page.rows);
            loaded.ends.push(page.end);
        }
        loaded
    }

    fn list(&self, Start { lease, after }: &Start, until: u64, limit: Limit) -> Page {
        self.tables.list(lease.partition, after, until, limit)
    }

    // What a mover asks.

    /// `None`: it waits for a transaction that has changed something.
    pub(super) fn begin_move(&mut self, way: Way) -> Turn<bool> {
        if self.transactions.values().any(|it| !it.names.is_empty()) {
            return Turn::Waits("writers");
        }
        let is_moving = self.homes.iter().any(|home| home.state == HomeState::Moving);
        let home = &mut self.homes[way.partition as usize];
        let is_it = home.state == HomeState::Here && home.moves == way.moves && !is_moving;
        if is_it {
            (home.state, home.other) = (HomeState::Moving, Some(way.to));
            home.moves += 1;
            self.yields[way.partition as usize] = 0;
            // What is left of the notes of other moves is of no effect.
        }
        Turn::Done(is_it)
    }

    fn is_moving(&self, way: Way) -> bool {
        let home = self.home(way.partition as u32);
        home.state == HomeState::Moving && (home.other, home.moves) == (Some(way.to), way.moves)
    }

    pub(super) fn yield_until(&mut self, way: Way, time: Option<Duration>) {
        if self.is_moving(way) {
            let until = time.map_or(0, |time| self.clock() + time.as_millis() as u64);
            self.yields[way.partition as usize] = until;
        }
    }

    /// False: it is about to move.
    pub(super) fn abandon(&mut self, partition: u32) -> bool {
        let is_free = !self.is_locked(partition);
        let home = &mut self.homes[partition as usize];
        if is_free && home.state == HomeState::Moving {
            (home.state, home.other) = (HomeState::Here, None);
            self.yields[partition as usize] = 0;
        }
        is_free
    }

    pub(super) fn expect(&mut self, way: Way) -> bool {
        let place = way.partition as usize;
        let is_empty = self.tables.count(way.partition as u32) == 0 || !self.has(Part::Clear);
        let home = &mut self.homes[place];
        let is_it = home.state == HomeState::Gone && home.moves < way.moves && is_empty;
        if is_it {
            (home.state, home.other, home.moves) = (HomeState::Coming, Some(way.from), way.moves);
            self.owners[place] = None;
        }
        is_it
    }

    pub(super) fn expect_no_more(&mut self, way: Way) -> bool {
        let is_kept = self.has(Part::Forget);
        let home = &mut self.homes[way.partition as usize];
        let is_it = home.state == HomeState::Coming && home.moves < way.moves && is_kept;
        if is_it {
            (home.state, home.other) = (HomeState::Gone, Some(way.from));
        }
        is_it
    }

    fn comes(&self, way: Way) -> bool {
        let home = self.home(way.partition as u32);
        home.state == HomeState::Coming && (home.other, home.moves) == (Some(way.from), way.moves)
    }

    pub(super) fn claim(&mut self, way: Way) -> Option<i64> {
        let comes = self.comes(way);
        let epoch = &mut self.tables.epochs[way.partition as usize];
        comes.then(|| {
            *epoch += 1;
            *epoch as i64
        })
    }

    pub(super) fn page(&self, way: Way, after: &Position) -> (Vec<Row>, bool) {
        let limit = Limit { rows: COPIED, bytes: usize::MAX };
        let page = self.tables.list(way.partition as u32, after, u64::MAX, limit);
        (page.rows, page.end.is_none())
    }

    /// Whether this mover may put what it has copied.
    fn may_stage(&self, way: Way, token: i64) -> bool {
        let is_last = self.tables.epochs[way.partition as usize] as i64 == token;
        self.comes(way) && is_last
    }

    /// `None`: it waits for a transaction with one of the names.
    pub(super) fn stage(
        &mut self,
        way: Way,
        token: i64,
        rows: &[Row],
        names: &[String],
    ) -> Option<Result<(), Error>> {
        if !self.may_stage(way, token) {
            return Some(Err(displaced()));
        }
        let named = rows.iter().map(|row| &*row.name).chain(names.iter().map(String::as_str));
        for name in named {
            if self.transactions.values().any(|it| it.names.iter().any(|locked| **locked == *name))
            {
                return None;
            }
        }
        for name in names.iter().filter(|name| rows.iter().all(|row| *row.name != ***name)) {
            self.tables.remove(name);
        }
        for row in rows {
            self.tables.remove(&row.name);
            self.tables.insert_new(row.clone());
        }
        Some(Ok(()))
    }

    /// Returns how many notes there are.
    pub(super) fn changed(&self, way: Way) -> u64 {
        let is_mine = |note: &&Note| (note.0, note.1) == (way.partition as u32, way.moves);
        self.notes.iter().filter(is_mine).count() as u64
    }

    /// Takes some of the notes, and reads what they are about. `None`: another mover has some, or the
    /// server has ended the transaction.
    pub(super) fn take_changed(&mut self, transaction: u64, way: Way) -> Option<Taken> {
        let place = way.partition as u32;
        let is_mine = |note: &Note| (note.0, note.1) == (place, way.moves);
        let is_open = self.transactions.contains_key(&transaction);
        if !is_open || self.others(transaction).any(|it| it.taken.iter().any(is_mine)) {
            return None;
        }
        let (mine, others): (Vec<Note>, Vec<Note>) =
            std::mem::take(&mut self.notes).into_iter().partition(is_mine);
        self.notes = others;
        let count = mine.len().min(COPIED);
        let (taken, left) = mine.split_at(count);
        self.notes.extend_from_slice(left);
        let mut names: Vec<String> = taken.iter().map(|note| note.2.to_string()).collect();
        let is_more = COPIED <= names.len();
        names.sort_unstable();
        names.dedup();
        let rows = names.iter().filter_map(|name| self.tables.find(name).cloned()).collect();
        if let Some(open) = self.transactions.get_mut(&transaction) {
            open.taken.extend_from_slice(taken);
        }
        Some(Taken { names, rows, is_more: is_more && self.has(Part::AllNotes) })
    }

    /// Keeps callers out. False: some are in the middle of a change.
    pub(super) fn lock_out(&mut self, transaction: u64, partition: u32) -> bool {
        let is_kept = self.others(transaction).any(|it| it.keeps.contains(&partition));
        let is_locked = self.others(transaction).any(|it| it.locks_out == Some(partition));
        if (is_kept || is_locked) && self.has(Part::LockOut) {
            return false;
        }
        if let Some(open) = self.transactions.get_mut(&transaction) {
            open.locks_out = Some(partition);
        }
        true
    }

    /// Locks a partition that moves. False: an ack or another mover has.
    pub(super) fn lock_moving(&mut self, transaction: u64, way: Way) -> Result<bool, Error> {
        let place = way.partition as u32;
        let is_kept = |it: &Transaction| it.settles.contains(&place) || it.locks == Some(place);
        if self.others(transaction).any(is_kept) {
            return Ok(false);
        }
        if !self.is_moving(way) {
            return Err(displaced());
        }
        if let Some(open) = self.transactions.get_mut(&transaction) {
            open.locks = Some(place);
        }
        Ok(true)
    }

    pub(super) fn has_owner(&self, partition: u32) -> bool {
        let clock = self.clock();
        let until = |owner| self.workers.get(&owner).is_some_and(|(until, _)| clock <= *until);
        self.owners[partition as usize].is_some_and(until)
    }

    /// The move takes place.
    pub(super) fn go(&mut self, transaction: u64, way: Way) -> bool {
        if self.transactions.remove(&transaction).is_none() {
            return false;
        }
        let place = way.partition as usize;
        let home = &mut self.homes[place];
        home.state = HomeState::Gone;
        home.moves += 1;
        self.owners[place] = None;
        self.yields[place] = 0;
        self.tables.epochs[place] += 1;
        true
    }

    pub(super) fn arrive(&mut self, partition: u32, from: &Homes) -> bool {
        let left = from.partitions[partition as usize];
        let home = &mut self.homes[partition as usize];
        let is_it = left.state == HomeState::Gone
            && left.other == Some(self.id)
            && home.state == HomeState::Coming
            && home.other == Some(from.id)
            && home.moves + 1 == left.moves;
        if is_it {
            (home.state, home.other, home.moves) = (HomeState::Here, None, left.moves);
            self.owners[partition as usize] = None;
            self.yields[partition as usize] = 0;
            let epoch = &mut self.tables.epochs[partition as usize];
            *epoch = (*epoch).max(left.epoch) + 1;
        }
        is_it
    }

    /// Removes some of what is gone. `None`: it waits for a transaction with one of the names.
    pub(super) fn remove_some(&mut self, way: Way) -> Option<bool> {
        let place = way.partition as u32;
        let is_kept = !self.has(Part::Clear) && way.to == self.id;
        if is_kept || self.home(place).state != HomeState::Gone {
            return Some(false);
        }
        let limit = Limit { rows: COPIED, bytes: usize::MAX };
        let rows = self.tables.list(place, &Position::start(), u64::MAX, limit).rows;
        let is_locked = |name| self.transactions.values().any(|it| it.names.contains(name));
        if rows.iter().any(|row| is_locked(&row.name)) {
            return None;
        }
        for row in &rows {
            self.tables.remove(&row.name);
        }
        let letters = self.letters(place);
        for (name, _) in &letters {
            self.tables.dead.remove(name);
        }
        Some(!rows.is_empty() || !letters.is_empty())
    }

    /// Removes the dead letters of a partition that comes that are not these, and returns the names
    /// of those that are missing.
    pub(super) fn keep_dead(
        &mut self,
        way: Way,
        token: i64,
        letters: &[(Arc<str>, u64)],
    ) -> Result<Vec<Arc<str>>, Error> {
        if !self.may_stage(way, token) {
            return Err(displaced());
        }
        for letter in self.letters(way.partition as u32) {
            if !letters.contains(&letter) {
                self.tables.dead.remove(&letter.0);
            }
        }
        let missing = letters.iter().filter(|(name, _)| !self.tables.dead.contains_key(name));
        Ok(missing.map(|(name, _)| name.clone()).collect())
    }

    pub(super) fn read_dead(&self, names: &[Arc<str>]) -> Vec<Dead> {
        names.iter().filter_map(|name| self.tables.dead.get(name).cloned()).collect()
    }

    pub(super) fn stage_dead(
        &mut self,
        way: Way,
        token: i64,
        letters: &[Dead],
    ) -> Result<(), Error> {
        if !self.may_stage(way, token) {
            return Err(displaced());
        }
        let letters = letters.iter().map(|letter| (letter.name.clone(), letter.clone()));
        self.tables.dead.extend(letters);
        Ok(())
    }

    /// Returns how many timeouts and dead letters of a partition are here.
    pub(super) fn left(&self, partition: u32) -> usize {
        self.tables.count(partition) + self.letters(partition).len()
    }

    /// Returns the names of dead letters, and when they died.
    pub(super) fn letters(&self, place: u32) -> Vec<(Arc<str>, u64)> {
        let letters = self.tables.dead.iter();
        let letters = letters.filter(|(name, _)| partition(name) as u32 == place);
        letters.map(|(name, letter)| (name.clone(), letter.died)).collect()
    }
}

/// What was taken of the notes.
pub(super) struct Taken {
    pub(super) names: Vec<String>,
    pub(super) rows: Vec<Row>,
    pub(super) is_more: bool,
}

/// What a commit does when its transaction ends.
#[derive(Default)]
pub(super) struct Plan {
    pub(super) outcomes: Vec<Option<Outcome>>,
    pub(super) refused: Vec<Option<Error>>,
}

impl Plan {
    /// Does what was not refused. The transaction is over.
    pub(super) fn carry_out<T>(self, database: &mut Database, call: &CommitCall<T>) -> Done {
        let outcomes = call.settlements.iter().zip(self.outcomes);
        let outcomes = outcomes.map(|(settlement, known)| match known {
            Some(outcome) => outcome,
            None => database.settle(settlement),
        });
        let outcomes = outcomes.collect();
        let changed = call.changes.iter().zip(self.refused);
        let changed = changed.map(|(change, refused)| match refused {
            Some(error) => Err(error),
            None => Ok(database.tables.change(change)),
        });
        Done { outcomes, changed: changed.collect(), clock: None }
    }
}

pub(super) fn elsewhere(Change { name, .. }: &Change) -> Error {
    Error::Elsewhere { name: name.to_string(), place: "another".to_owned() }
}

fn displaced() -> Error {
    Error::store("go on with a move", "another mover goes on with it, or it was abandoned")
}

pub(super) fn id(at: usize) -> DatabaseId {
    DatabaseId(at as u128 + 1)
}

/// How long a caller waits for a lock.
pub(super) fn lock_time(lease: u64) -> u64 {
    Limits::new(Duration::from_millis(lease / 3)).lock
}

/// So many rows are copied at once, or removed.
const COPIED: usize = 3;

/// By the clock of each it is so late at the beginning, and a little more.
pub(super) const CLOCK: u64 = 10_000_000;
