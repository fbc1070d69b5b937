//! Databases, the processes that work on them, and the network between.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;

use fastrand::Rng;

use super::account::Account;
use super::database::{Database, Kept, Plan, elsewhere, id, lock_time};
use super::process::Process;
use super::run::Runtime;
use super::{Part, Size};
use crate::Error;
use crate::fleet::map::{PARTITIONS, partition};
use crate::keeper::outbox::Outbox;
use crate::keeper::{Answer, Call, Command, CommitCall, Config, Keeper, Now, Settled};
use crate::store::{Act, Outcome, Row, Then};
use crate::timer::Ticket;

pub(super) struct World {
    pub(super) size: Size,
    pub(super) without: Option<Part>,
    pub(super) runtime: Rc<Runtime>,
    pub(super) rng: RefCell<Rng>,
    pub(super) databases: RefCell<Vec<Database>>,
    pub(super) processes: RefCell<Vec<Process>>,
    /// The keepers of each process, of one database after another.
    seats: RefCell<Vec<Option<Box<Seat>>>>,
    pub(super) account: RefCell<Account>,
    /// Until when one cannot reach a database.
    cuts: RefCell<HashMap<(Party, usize), u64>>,
    /// How often a timeout is handed out at most.
    most: Option<u32>,
    /// Nothing happens any more.
    pub(super) is_quiet: Cell<bool>,
    next: Cell<u64>,
    /// The processes and partitions of calls that have no answer.
    pub(super) asked: RefCell<BTreeMap<u64, (usize, u32)>>,
    /// Nothing is on its way any more, and no trouble is new.
    pub(super) is_settled: Cell<bool>,
    /// A database that is down.
    pub(super) down: Cell<Option<usize>>,
    /// How long something has waited at most that has nothing to do with that.
    pub(super) waited: Cell<u64>,
}

/// Who talks to a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Party {
    Process(usize),
    Mover(u64),
    /// A program that schedules by SQL.
    Program,
}

/// A process's keeper of one database.
pub(super) struct Seat {
    keeper: Keeper<Ticket>,
    outbox: Outbox,
    /// Never used again.
    pub(super) id: u64,
    handed_out: u64,
    /// When it is to be polled again, and when it is looked whether it is.
    wakes_at: u64,
    looks_at: u64,
}

impl Seat {
    pub(super) fn take_commands(&mut self, commands: Vec<Command<Ticket>>) {
        commands.into_iter().for_each(|command| self.keeper.command(command));
    }
}

impl World {
    pub(super) fn new(seed: u64, size: Size, without: Option<Part>) -> Rc<Self> {
        let mut rng = Rng::with_seed(seed);
        let databases = (0..size.databases).map(|at| Database::new(&mut rng, at, size, without));
        let mut databases: Vec<Database> = databases.collect();
        for partition in 0..PARTITIONS {
            let home = partition % (size.databases - size.joins);
            databases[home].begin_with(partition, id(0));
            if home != 0 {
                databases[0].begin_without(partition, id(home));
            }
        }
        let processes = (0..size.workers).map(|_| Process::new(&mut rng)).collect();
        let most = (seed % 2 == 1).then_some(3);
        let world = Rc::new(Self {
            size,
            without,
            runtime: Rc::default(),
            rng: RefCell::new(rng),
            databases: RefCell::new(databases),
            processes: RefCell::new(processes),
            seats: RefCell::default(),
            account: RefCell::new(Account::new(most)),
            cuts: RefCell::default(),
            most,
            is_quiet: Cell::new(false),
            next: Cell::new(0),
            asked: RefCell::default(),
            is_settled: Cell::new(false),
            down: Cell::new(None),
            waited: Cell::new(0),
        });
        for at in 0..size.workers * size.databases {
            let seat = world.works_at(at).then(|| world.new_seat());
            let works = seat.is_some();
            world.seats.borrow_mut().push(seat);
            if works {
                world.wake(at, world.random(500));
            }
        }
        world
    }

    pub(super) fn now(&self) -> u64 {
        self.runtime.now()
    }

    /// Returns a number below this, or 0.
    pub(super) fn random(&self, most: u64) -> u64 {
        self.rng.borrow_mut().u64(0..most.max(1))
    }

    pub(super) fn one_in(&self, count: u64) -> bool {
        !self.is_quiet.get() && self.random(count) == 0
    }

    /// Does this at a database, now.
    pub(super) fn at<R>(&self, at: usize, act: impl FnOnce(&mut Database) -> R) -> R {
        let database = &mut self.databases.borrow_mut()[at];
        database.tick(self.now());
        act(database)
    }

    pub(super) fn config(&self) -> Config {
        Config {
            horizon: 2_000,
            near_rows: 1_000,
            near_bytes: 1 << 20,
            page: 100,
            group: 64,
            in_flight: 50,
            redeliver: 500,
            linger: 5,
            refresh: 60_000,
            look: 200,
            margin: 1_000,
            max_attempts: self.most,
            visibility: None,
            rate: None,
        }
    }

    /// Returns a number that was never returned before.
    pub(super) fn number(&self) -> u64 {
        self.next.set(self.next.get() + 1);
        self.next.get()
    }

    /// Does this with a process's keeper of a database.
    pub(super) fn seat<R>(&self, at: usize, act: impl FnOnce(&mut Seat) -> R) -> R {
        act(self.seats.borrow_mut()[at].as_mut().expect("it works there"))
    }

    fn new_seat(&self) -> Box<Seat> {
        let mut outbox = Outbox::default();
        outbox.take(0);
        outbox.listeners = 40;
        Box::new(Seat {
            keeper: Keeper::new(self.config()),
            outbox,
            id: self.number(),
            handed_out: 0,
            wakes_at: 0,
            looks_at: u64::MAX,
        })
    }

    /// A process dies, and another begins in its place.
    pub(super) fn kill(self: &Rc<Self>, process: usize) {
        let ended = self.processes.borrow_mut()[process].end();
        for task in ended.tasks {
            self.runtime.kill(task);
        }
        for at in 0..self.size.databases {
            let seat = process * self.size.databases + at;
            if !self.works_at(seat) {
                continue;
            }
            let new = self.new_seat();
            let old = self.seats.borrow_mut()[seat].replace(new);
            // What it drops may be told to the client that is dropped next.
            drop(old);
            self.wake(seat, 100);
        }
        drop(ended.client);
        if process < self.size.clients {
            self.open(process);
        }
    }

    /// Whether a process has a timer on a database.
    fn works_at(&self, seat: usize) -> bool {
        let (process, database) = (seat / self.size.databases, seat % self.size.databases);
        process < self.size.clients || database % self.size.spread == process % self.size.spread
    }

    pub(super) fn wake(self: &Rc<Self>, seat: usize, delay: u64) {
        let at = self.now() + delay;
        let look = self.seat(seat, |seat| {
            seat.wakes_at = at;
            let is_first = at < seat.looks_at;
            seat.looks_at = seat.looks_at.min(at);
            is_first.then_some(seat.id)
        });
        let Some(id) = look else { return };
        let world = Rc::clone(self);
        self.runtime.spawn_at(at, async move {
            world.while_paused(seat).await;
            let now = world.now();
            let left = world.seat(seat, |it| {
                // Another has looked before.
                let is_meant = it.id == id && it.looks_at == at;
                is_meant.then(|| {
                    it.looks_at = u64::MAX;
                    it.wakes_at.saturating_sub(now)
                })
            });
            match left {
                Some(0) => world.poll(seat),
                Some(left) => world.wake(seat, left),
                None => {}
            }
        });
    }

    async fn while_paused(self: &Rc<Self>, seat: usize) {
        let process = seat / self.size.databases;
        loop {
            let until = self.processes.borrow()[process].paused_until;
            if until <= self.now() {
                return;
            }
            self.runtime.sleep_until(until).await;
        }
    }

    fn seat_now(&self, seat: usize) -> Now {
        let process = &self.processes.borrow()[seat / self.size.databases];
        Now {
            wall: self.now().saturating_add_signed(process.wall),
            steady: self.now() + process.steady,
        }
    }

    fn poll(self: &Rc<Self>, at: usize) {
        let now = self.seat_now(at);
        let database = at % self.size.databases;
        let (call, handed_out, id, wake) = self.seat(at, |seat| {
            let call = seat.keeper.poll(now, &mut seat.outbox);
            let handed_out = (seat.keeper.counts.handed_out - seat.handed_out) as usize;
            seat.handed_out = seat.keeper.counts.handed_out;
            for (row, epoch) in seat.outbox.waiting().rev().take(handed_out) {
                let left = self.size.lease / 4;
                let is_owner =
                    self.at(database, |it| it.is_owner(seat.id, row.partition, *epoch, left));
                assert!(is_owner, "handed out by one who is not the owner for long enough");
            }
            let wake = seat.keeper.wake(now).saturating_sub(now.steady);
            (call, handed_out, seat.id, wake)
        });
        for _ in 0..handed_out {
            let delay = self.random(30);
            self.take_at(at, id, self.now() + delay);
        }
        self.reply(at);
        if let Some(call) = call {
            let world = Rc::clone(self);
            self.runtime.spawn(async move { world.call(at, id, call).await });
        }
        self.wake(at, wake.clamp(1, 1_000));
    }

    /// Tells callers what the keeper says.
    fn reply(self: &Rc<Self>, at: usize) {
        let replies = self.seat(at, |seat| {
            seat.keeper.troubles.clear();
            std::mem::take(&mut seat.keeper.replies)
        });
        let (process, database) = (at / self.size.databases, at % self.size.databases);
        if replies.is_empty() {
            return;
        }
        for (ticket, answered) in replies {
            let processes = self.processes.borrow();
            let timers = processes[process].timers();
            timers[database].as_ref().expect("it has asked").reply(ticket, answered);
        }
        self.deliver(process);
    }

    /// A consumer takes the first that waits, and settles it some time later.
    async fn take(self: Rc<Self>, at: usize, id: u64) {
        self.while_paused(at).await;
        let database = at % self.size.databases;
        let steady = self.seat_now(at).steady;
        let (taken, is_left) = self.seat(at, |seat| {
            let taken = if seat.id == id { seat.outbox.take(steady) } else { None };
            (taken, seat.id == id && 0 < seat.outbox.len())
        });
        let Some((row, epoch)) = taken else {
            if is_left {
                // The keeper asks for leases. Consumers are woken after that.
                self.take_at(at, id, self.now() + 5);
            }
            return;
        };
        let clock = self.at(database, |it| it.clock());
        let is_owner = self.at(database, |it| it.is_owner(id, row.partition, epoch, 0));
        assert!(is_owner, "taken when another owned it");
        let number = number(&row);
        self.note(row.partition, clock.saturating_sub(row.deadline));
        self.account.borrow_mut().take(number, (id, epoch, database, row.number), clock);
        let settled = match self.random(20) {
            // It comes as often as it may.
            _ if self.most.is_some() && row.name.ends_with('7') => Settled::Retry { delay: 100 },
            0 => Settled::Retry { delay: self.random(500) },
            1 => Settled::Dropped,
            _ => Settled::Ack,
        };
        // Now and then after the lease.
        let holds = if self.one_in(20) { self.size.lease * 3 } else { 100 };
        let holds = self.random(holds);
        self.runtime.sleep(holds).await;
        self.while_paused(at).await;
        if self.seat(at, |seat| seat.id) == id {
            let now = self.seat_now(at);
            self.seat(at, |seat| seat.keeper.settle(now, (row.number, epoch), settled));
            self.poll(at);
        }
    }

    fn take_at(self: &Rc<Self>, at: usize, id: u64, time: u64) {
        let world = Rc::clone(self);
        self.runtime.spawn_at(time, async move { world.take(at, id).await });
    }

    /// Goes to a database, or back.
    pub(super) async fn travel(
        self: &Rc<Self>,
        party: Party,
        at: usize,
        gives_up: u64,
    ) -> Result<(), Error> {
        let slow = if self.one_in(200) { 30 } else { 1 };
        let delay = self.random(self.size.latency) * slow + 1;
        self.runtime.sleep(delay).await;
        if self.is_cut(party, at) {
            // Refused at once, or silent.
            if self.random(2) == 0 && self.is_down(at) {
                return Err(Error::store("reach it", "connection refused"));
            }
            self.runtime.sleep_until(gives_up.max(self.now())).await;
            return Err(Error::store("wait any longer", "no answer"));
        }
        match self.one_in(400) {
            true => Err(Error::store("reach it", "cut")),
            false => Ok(()),
        }
    }

    /// Notes how long something has waited in a partition.
    pub(super) fn note(&self, partition: u32, time: u64) {
        if self.down.get().is_none_or(|down| down != self.home(partition)) {
            self.waited.set(self.waited.get().max(time));
        }
    }

    pub(super) fn cut(&self, party: Party, at: usize, until: u64) {
        self.cuts.borrow_mut().insert((party, at), until);
    }

    /// Lets what is down or cut off stay so, and cuts each client off from one database.
    pub(super) fn freeze(&self) {
        for process in 0..self.size.clients {
            let at = self.random(self.size.databases as u64) as usize;
            self.cut(Party::Process(process), at, u64::MAX);
        }
        let now = self.now();
        let databases = &mut *self.databases.borrow_mut();
        let downs = databases.iter_mut().map(|it| &mut it.down_until);
        let cuts = &mut *self.cuts.borrow_mut();
        for until in downs.chain(cuts.values_mut()).filter(|until| now < **until) {
            *until = u64::MAX;
        }
    }

    pub(super) fn heal(&self) {
        self.cuts.borrow_mut().clear();
        for process in &mut *self.processes.borrow_mut() {
            process.paused_until = 0;
        }
        for database in &mut *self.databases.borrow_mut() {
            database.down_until = 0;
        }
    }

    pub(super) fn is_cut(&self, party: Party, at: usize) -> bool {
        let cut = self.cuts.borrow().get(&(party, at)).copied();
        self.is_down(at) || cut.is_some_and(|cut| self.now() < cut)
    }

    pub(super) fn is_down(&self, at: usize) -> bool {
        self.at(at, |it| it.time < it.down_until || !it.has_joined)
    }

    /// Whether nothing is between a process and the database that has a partition, nor was for a
    /// while.
    pub(super) fn reaches(&self, process: usize, partition: u32) -> bool {
        let paused_until = self.processes.borrow()[process].paused_until;
        paused_until + SETTLES + self.size.lease <= self.now()
            && self.has(partition).is_some_and(|at| !self.is_cut(Party::Process(process), at))
    }

    /// A keeper calls its database.
    async fn call(self: Rc<Self>, seat: usize, id: u64, call: Call<Ticket>) {
        let (process, at) = (seat / self.size.databases, seat % self.size.databases);
        let (party, gives_up) = (Party::Process(process), self.now() + self.size.lease / 3);
        let answer = match self.travel(party, at, gives_up).await {
            Err(error) => call.fail(error),
            Ok(()) => {
                let server = self.at(at, |it| it.server);
                let (answer, newest) = self.execute(at, id, call).await;
                let back = self.travel(party, at, gives_up).await;
                match back {
                    _ if self.at(at, |it| it.server) != server => {
                        answer.lose(Error::store("hear", "the server is gone"))
                    }
                    Err(error) => answer.lose(error),
                    Ok(()) => {
                        if let Some(newest) = newest {
                            self.at(at, |it| it.saw(id, newest));
                        }
                        answer
                    }
                }
            }
        };
        self.while_paused(seat).await;
        if self.seat(seat, |it| it.id) == id {
            let now = self.seat_now(seat);
            let is_err = answer.is_err();
            self.seat(seat, |it| it.keeper.answer(now, &mut it.outbox, answer));
            self.reply(seat);
            match is_err {
                true => self.wake(seat, 50),
                false => self.poll(seat),
            }
        }
    }

    /// Returns the answer, and what a load has seen.
    async fn execute(
        self: &Rc<Self>,
        at: usize,
        id: u64,
        call: Call<Ticket>,
    ) -> (Answer<Ticket>, Option<u64>) {
        match call {
            Call::Lease(call) => {
                let leases = self.at(at, |it| it.lease(id, &call, &mut self.rng.borrow_mut()));
                (Answer::Lease(call, Ok(leases)), None)
            }
            Call::Load(call) => {
                let (loaded, newest) = self.at(at, |it| it.load(id, &call));
                (Answer::Load(call, Ok(loaded)), Some(newest))
            }
            Call::Behind(call) => {
                let loaded = self.at(at, |it| it.load_behind(&call));
                (Answer::Behind(call, Ok(loaded)), None)
            }
            Call::Commit(call) => (self.commit(at, call).await, None),
        }
    }

    async fn commit(self: &Rc<Self>, at: usize, call: CommitCall<Ticket>) -> Answer<Ticket> {
        let transaction = self.at(at, |it| it.begin(self.size.lease / 3));
        let mut plan = Plan::default();
        for settlement in &call.settlements {
            let (name, place) = (&settlement.held.name, settlement.held.lease.partition);
            let is_free = self.at(at, |it| it.settle_in(transaction, place))
                && self.touch(at, transaction, name).await;
            plan.outcomes.push((!is_free).then_some(Outcome::Locked));
        }
        for change in &call.changes {
            let refused = match self.keep(at, transaction, partition(&change.name) as u32).await {
                Kept::Here if self.touch(at, transaction, &change.name).await => None,
                Kept::Here => Some(Error::store("put or cancel it", "somebody has locked it")),
                Kept::Away | Kept::Locked => Some(elsewhere(change)),
            };
            plan.refused.push(refused);
        }
        let slow = if self.one_in(20) { 100 } else { 4 };
        let works = self.random(slow);
        self.runtime.sleep(works).await;
        let done = self.at(at, |it| {
            it.commit(transaction)?;
            let held = call.settlements.iter().map(|settlement| &settlement.held.name);
            let before: Vec<Option<usize>> =
                held.map(|name| it.tables.find(name).map(number)).collect();
            let done = plan.carry_out(it, &call);
            self.tell(&call, &before, &done);
            Some(done)
        });
        let lost = || Error::store("commit", "the server is gone");
        Answer::Commit(call, done.ok_or_else(lost))
    }

    /// What was done is done, whoever hears of it.
    fn tell(&self, call: &CommitCall<Ticket>, before: &[Option<usize>], done: &crate::store::Done) {
        let mut account = self.account.borrow_mut();
        for ((settlement, before), outcome) in
            call.settlements.iter().zip(before).zip(&done.outcomes)
        {
            let Outcome::Settled(_) = outcome else { continue };
            let number = before.expect("it was there");
            match settlement.then {
                Then::Done => account.ack(number),
                Then::Dead { .. } => account.bury(number),
                Then::Again { .. } | Then::Counted { .. } => {}
            }
        }
        for (change, changed) in call.changes.iter().zip(&done.changed) {
            let Ok(changed) = changed else { continue };
            match (&change.act, &changed.row) {
                (Act::Put(_), Some(row)) => account.put(number(row)),
                (Act::Revive { .. }, Some(row)) => account.revive(number(row), row.deadline),
                (Act::Drop, _) if changed.was_dead => account.drop_letter(&change.name),
                (Act::Cancel, _) => account.cancel(&change.name),
                _ => {}
            }
        }
    }

    /// Changes the row of a name, when nobody else has. False: somebody has for long.
    pub(super) async fn touch(
        self: &Rc<Self>,
        at: usize,
        transaction: u64,
        name: &Arc<str>,
    ) -> bool {
        let until = self.now() + lock_time(self.size.lease);
        while !self.at(at, |it| it.touch(transaction, name)) {
            if until < self.now() {
                return false;
            }
            self.runtime.sleep(3).await;
        }
        true
    }

    /// Keeps a partition here, when no mover has locked it. Locked: one has for long.
    pub(super) async fn keep(self: &Rc<Self>, at: usize, transaction: u64, partition: u32) -> Kept {
        let until = self.now() + lock_time(self.size.lease);
        loop {
            match self.at(at, |it| it.keep(transaction, partition)) {
                Kept::Locked if self.now() <= until => self.runtime.sleep(3).await,
                kept => return kept,
            }
        }
    }
}

/// Returns the number of a timeout, which is its payload.
pub(super) fn number(row: &Row) -> usize {
    usize::from_le_bytes(row.payload[..].try_into().expect("a number"))
}

/// So long after the last trouble, and a lease, movers that were killed keep nothing locked, and
/// clients have looked where all is.
pub(super) const SETTLES: u64 = 5_000;
