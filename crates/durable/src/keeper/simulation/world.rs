//! Workers, databases and what happens to them, one event after another.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;

use super::super::answered::{config, received};
use super::database::Database;
use super::{Size, Told};
use crate::Error;
use crate::keeper::outbox::Outbox;
use crate::keeper::words::CommitCall;
use crate::keeper::{Answer, Call, Command, Config, Found, Keeper, Now, Settled};
use crate::store::{Change, Changed, Held, Outcome, RateLimit, Row, Then};

/// A worker's keeper of one database.
struct Seat {
    keeper: Keeper<Ticket>,
    outbox: Outbox,
    worker: usize,
    database: usize,
    /// Never used again.
    id: u64,
    /// How many its keeper had handed out when that was looked at last.
    handed_out: u64,
    /// The true time at which it is to be woken: what wakes it earlier is stale, and what wakes it
    /// later was held up by a pause.
    wakes_at: u64,
}

type Ticket = Arc<str>;

struct Worker {
    /// Its clocks less the true time.
    wall: i64,
    steady: u64,
    paused_until: u64,
}

enum Event {
    Wake(usize, u64),
    /// A call reaches the database.
    Arrives(usize, u64, Call<Ticket>),
    Answer(usize, u64, Answer<Ticket>),
    Settle(usize, u64, (u64, u64), Settled),
    Take(usize, u64),
    Ask,
    Trouble,
    /// A consumer takes what kills its process.
    Poison(usize, u64),
}

pub(super) struct Simulation {
    rng: Rng,
    size: Size,
    pub(super) time: u64,
    pub(super) databases: Vec<Database>,
    pub(super) told: Told,
    /// Consumers ack all that they take.
    consumes: bool,
    /// How long they hold it at most.
    pub(super) holds: u64,
    /// So many workers have consumers.
    received: usize,
    workers: Vec<Worker>,
    seats: Vec<Seat>,
    /// By time, and those of one time in the order they were put.
    events: BTreeMap<(u64, u64), Event>,
    next: u64,
    /// The last number of a worker, without what is random in it.
    sequence: u64,
    /// By number: the seat's id and the epoch under which it was taken.
    taken: HashMap<(usize, u64), Vec<(u64, u64)>>,
    dead: HashSet<(usize, u64)>,
    /// What was put and must come, if nothing else happens to it.
    expected: HashSet<(usize, u64)>,
    quiet: bool,
    /// How often a timeout is handed out at most.
    most: Option<u32>,
    /// How often a timeout was taken, by the number it was put under; and that number.
    times: HashMap<(usize, u64), u32>,
    put_as: HashMap<(usize, u64), u64>,
    /// What was counted, by whom, and under which epoch.
    counted: HashSet<(usize, u64, u64, u64)>,
    /// What became a dead letter.
    buried: HashSet<(usize, u64)>,
    lately_changed: HashMap<(usize, u64), Vec<Changed>>,
}

impl Simulation {
    pub(super) fn new(seed: u64, size: Size) -> Self {
        let mut rng = Rng::with_seed(seed);
        let databases = (0..size.stores).map(|_| Database::new(&mut rng, size)).collect();
        let workers = (0..size.workers)
            .map(|_| Worker {
                wall: rng.i64(-3_600_000..3_600_000),
                steady: rng.u64(0..1_000_000),
                paused_until: 0,
            })
            .collect();
        let mut simulation = Self {
            rng,
            size,
            time: 10_000_000,
            databases,
            told: Told::default(),
            consumes: false,
            holds: 100,
            received: size.workers,
            workers,
            seats: Vec::new(),
            events: BTreeMap::new(),
            next: 0,
            sequence: 0,
            taken: HashMap::new(),
            dead: HashSet::new(),
            expected: HashSet::new(),
            quiet: false,
            most: None,
            times: HashMap::new(),
            put_as: HashMap::new(),
            counted: HashSet::new(),
            buried: HashSet::new(),
            lately_changed: HashMap::new(),
        };
        for worker in 0..size.workers {
            for database in 0..size.stores {
                let seat = simulation.seat(worker, database);
                simulation.seats.push(seat);
                let seat = simulation.seats.len() - 1;
                let delay = simulation.rng.u64(0..500);
                simulation.wake(seat, delay);
            }
        }
        simulation.after(500, Event::Ask);
        simulation.after(1_000, Event::Trouble);
        simulation
    }

    fn seat(&mut self, worker: usize, database: usize) -> Seat {
        self.sequence += 1;
        let id = (self.sequence << 20) + self.rng.u64(0..1 << 20);
        let mut outbox = if worker < self.received { received() } else { Outbox::default() };
        outbox.listeners = match worker < self.received {
            true if self.most.is_some() && !self.quiet => self.rng.usize(1..20),
            true => 40,
            false => 0,
        };
        Seat {
            keeper: Keeper::new(Config {
                max_attempts: self.most,
                // Some consumers hold one for longer.
                visibility: self.most.map(|_| 80),
                ..config()
            }),
            outbox,
            worker,
            database,
            id,
            handed_out: 0,
            wakes_at: 0,
        }
    }

    /// Lets another worker sit down, who knows nothing.
    fn sit_down(&mut self, seat: usize) {
        let Seat { worker, database, id, .. } = self.seats[seat];
        self.lately_changed.remove(&(seat, id));
        self.seats[seat] = self.seat(worker, database);
        self.wake(seat, 100);
    }

    fn kill(&mut self, worker: usize) {
        for seat in 0..self.seats.len() {
            if self.seats[seat].worker == worker {
                self.sit_down(seat);
            }
        }
    }

    /// Lets a timeout be handed out so often at most.
    pub(super) fn with_most(mut self, most: Option<u32>) -> Self {
        self.most = most;
        if most.is_some() {
            (0..self.seats.len()).for_each(|seat| self.sit_down(seat));
        }
        self
    }

    /// Nobody asks for anything, and nothing happens.
    pub(super) fn calm(seed: u64, size: Size) -> Self {
        let mut simulation = Self::new(seed, size);
        simulation.quiet = true;
        simulation.consumes = true;
        simulation
    }

    /// Lets only the first workers have consumers.
    pub(super) fn receive(&mut self, workers: usize) {
        self.received = workers;
        for seat in self.seats.iter_mut().filter(|seat| workers <= seat.worker) {
            seat.outbox = Outbox::default();
        }
    }

    /// Lets the consumers of this worker, and of those after it, go away.
    pub(super) fn silence(&mut self, worker: usize) {
        self.received = worker;
        for seat in self.seats.iter_mut().filter(|seat| worker <= seat.worker) {
            seat.outbox.listeners = 0;
        }
    }

    /// Closes the timer in this seat. When that is done, another sits there.
    pub(super) fn close(&mut self, seat: usize) {
        let now = self.now(seat);
        let Seat { keeper, outbox, .. } = &mut self.seats[seat];
        keeper.close(now, outbox, true);
        self.wake(seat, 0);
    }

    /// Lets a caller ask this worker for a change.
    pub(super) fn command(&mut self, seat: usize, change: Change) {
        let ticket = change.name.clone();
        self.seats[seat].keeper.command(Command { ticket, change });
        self.wake(seat, 0);
    }

    /// Returns how many partitions each seat hands out of.
    pub(super) fn shares(&self) -> Vec<usize> {
        self.seats.iter().map(|seat| seat.keeper.partitions()).collect()
    }

    /// Lets a worker do nothing until then.
    pub(super) fn stop(&mut self, worker: usize, until: u64) {
        self.workers[worker].paused_until = self.workers[worker].paused_until.max(until);
    }

    /// Lets this time pass.
    pub(super) fn pass(&mut self, time: u64) {
        let end = self.time + time;
        let mut told = std::mem::take(&mut self.told);
        while self.events.first_key_value().is_some_and(|((at, _), _)| *at <= end) {
            self.step(&mut told);
        }
        self.told = told;
        self.time = end;
    }

    /// Whether something waits that was due at that time and that nobody took.
    pub(super) fn is_waiting_since(&self, time: u64) -> bool {
        0 < self.waiting_since(time)
    }

    fn waiting_since(&self, time: u64) -> usize {
        let waiting = self.databases.iter().enumerate().map(|(at, database)| {
            let due = database.tables.due(time + database.clock);
            due.filter(|row| !self.is_taken(at, row.number)).count()
        });
        waiting.sum()
    }

    /// Whether a worker that runs has handed this to a consumer.
    fn is_taken(&self, database: usize, number: u64) -> bool {
        let taken = self.taken.get(&(database, number));
        let mut taken = taken.into_iter().flatten();
        taken.any(|(id, _)| self.seats.iter().any(|seat| seat.id == *id))
    }

    pub(super) fn run(&mut self, told: &mut Told) {
        let lease = self.size.lease;
        let end = self.time + 8_000 + lease * 2;
        while self.time < end {
            self.step(told);
        }
        self.quiet = true;
        // Where each is counted, so many come at once.
        self.seats.iter_mut().for_each(|seat| seat.outbox.listeners = 40);
        let over = self.databases.iter().map(Database::over);
        let over = over.chain(self.workers.iter().map(|worker| worker.paused_until));
        let over = over.fold(self.time, u64::max);
        while self.time < over + lease * 5 / 4 + CALLS {
            self.step(told);
        }
        let left = self.waiting_since(over);
        assert_eq!(left, 0, "what was due waits for longer than a new owner");
        // What is due later, and again.
        let end = self.time + lease * 5;
        while self.databases.iter().any(|database| 0 < database.tables.len()) {
            assert!(self.time < end, "some timeouts never come");
            self.step(told);
        }
        assert!(self.expected.is_empty(), "{} were lost", self.expected.len());
    }

    fn after(&mut self, delay: u64, event: Event) {
        self.next += 1;
        self.events.insert((self.time + delay, self.next), event);
    }

    fn wake(&mut self, seat: usize, delay: u64) {
        self.seats[seat].wakes_at = self.time + delay;
        let id = self.seats[seat].id;
        self.after(delay, Event::Wake(seat, id));
    }

    fn now(&self, seat: usize) -> Now {
        let worker = &self.workers[self.seats[seat].worker];
        Now {
            wall: self.time.saturating_add_signed(worker.wall),
            steady: self.time - 9_000_000 + worker.steady,
        }
    }

    fn step(&mut self, told: &mut Told) {
        let ((time, _), event) = self.events.pop_first().expect("there is always an event");
        self.time = time;
        // A worker that is paused does what it would have done when it goes on.
        let seat = match &event {
            Event::Wake(seat, _)
            | Event::Answer(seat, ..)
            | Event::Settle(seat, ..)
            | Event::Take(seat, _) => Some(*seat),
            Event::Arrives(..) | Event::Ask | Event::Trouble | Event::Poison(..) => None,
        };
        if let Some(seat) = seat {
            let until = self.workers[self.seats[seat].worker].paused_until;
            if time < until {
                return self.after(until - time, event);
            }
        }
        match event {
            Event::Wake(seat, id) => {
                if self.seats[seat].id == id && self.seats[seat].wakes_at <= time {
                    self.poll(seat, told);
                }
            }
            Event::Arrives(seat, id, call) => self.arrive(seat, id, call, told),
            Event::Answer(seat, id, answer) => {
                if self.seats[seat].id == id {
                    self.answer(seat, answer, told);
                    self.poll(seat, told);
                }
            }
            Event::Take(seat, id) => {
                if self.seats[seat].id == id {
                    self.take(seat, told);
                }
            }
            Event::Settle(seat, id, held, settled) => {
                if self.seats[seat].id == id {
                    let now = self.now(seat);
                    self.seats[seat].keeper.settle(now, held, settled);
                    self.poll(seat, told);
                }
            }
            Event::Ask if !self.quiet => self.ask(told),
            Event::Trouble if !self.quiet => self.trouble(told),
            Event::Ask | Event::Trouble => {}
            Event::Poison(seat, id) => {
                if self.seats[seat].id == id {
                    told.poisoned += 1;
                    self.kill(self.seats[seat].worker);
                }
            }
        }
    }

    fn poll(&mut self, seat: usize, told: &mut Told) {
        let now = self.now(seat);
        let Seat { keeper, outbox, database, id, handed_out: before, .. } = &mut self.seats[seat];
        let (database, id) = (*database, *id);
        let call = keeper.poll(now, outbox);
        assert!(keeper.is_closed() || outbox.taken.is_empty(), "it leaves what was taken");
        let handed_out = (keeper.counts.handed_out - *before) as usize;
        *before = keeper.counts.handed_out;
        let clock = self.time + self.databases[database].clock;
        // The worker that hands out is the owner at that moment, and for a while.
        for (row, epoch) in outbox.waiting().rev().take(handed_out) {
            let Database { partitions, tables, .. } = &self.databases[database];
            let partition = partitions[row.partition as usize];
            assert_eq!(
                (partition.owner, tables.epochs[row.partition as usize]),
                (Some(id), *epoch),
                "handed out when the partition had another owner"
            );
            assert!(
                clock + self.size.lease / 4 <= partition.until,
                "handed out in the last quarter of the lease: no time is left to ack"
            );
        }
        let takes = self.seats[seat].worker < self.received;
        for _ in 0..if takes { handed_out } else { 0 } {
            let delay = self.rng.u64(0..30);
            self.after(delay, Event::Take(seat, id));
        }
        self.reply(seat, told);
        if let Some(call) = call {
            let there = self.latency(database);
            self.after(there, Event::Arrives(seat, id, call));
        }
        if self.seats[seat].keeper.is_closed() {
            told.closed += 1;
            return self.sit_down(seat);
        }
        let wake = self.seats[seat].keeper.wake(now).saturating_sub(now.steady);
        self.wake(seat, wake.clamp(1, 1_000));
    }

    fn latency(&mut self, database: usize) -> u64 {
        let latency = self.databases[database].latency;
        // Now and then it is slow.
        if !self.quiet && self.rng.u32(0..200) == 0 {
            latency * 30
        } else {
            self.rng.u64(0..=latency)
        }
    }

    fn arrive(&mut self, seat: usize, id: u64, call: Call<Ticket>, told: &mut Told) {
        let database = self.seats[seat].database;
        let back = self.latency(database);
        // The connection is cut on the way there, or on the way back.
        let cut = if self.quiet { 99 } else { self.rng.u32(0..400) };
        let (answer, took) = match cut {
            0 => (call.fail(Error::store("reach it", "cut")), 0),
            _ => self.execute(seat, id, call, told),
        };
        let ended = self.databases[database].end(self.time, self.time + took + back);
        let newest = self.databases[database].tables.newest();
        if matches!(&answer, Answer::Load(_, Ok(_))) && ended.is_ok() && 1 < cut {
            self.databases[database].saw(id, newest);
        }
        let (answer, end) = match ended {
            Ok(end) if cut <= 1 => {
                told.cuts += 1;
                self.lately_changed.remove(&(seat, id));
                (answer.lose(Error::store("hear", "cut")), end + 50)
            }
            Ok(end) => (answer, end),
            Err(end) => {
                told.given_up += 1;
                if let Answer::Commit(call, _) = &answer {
                    self.databases[database].leave_locks(call, end);
                }
                self.lately_changed.remove(&(seat, id));
                (answer.lose(Error::store("wait any longer", "no answer")), end)
            }
        };
        self.after(end - self.time, Event::Answer(seat, id, answer));
    }

    /// Returns the answer and how long it took.
    fn execute(
        &mut self,
        seat: usize,
        id: u64,
        call: Call<Ticket>,
        told: &mut Told,
    ) -> (Answer<Ticket>, u64) {
        let index = self.seats[seat].database;
        let time = self.time;
        let database = &mut self.databases[index];
        database.time = time;
        match call {
            Call::Lease(call) => {
                let wait = database.lease_at(time) - time;
                let leases = database.lease(id, &call, time + wait + database.clock, &mut self.rng);
                (Answer::Lease(call, Ok(leases)), wait)
            }
            Call::Load(call) => {
                let (loaded, took) = database.load(id, &call, time + database.clock);
                (Answer::Load(call, loaded), took)
            }
            Call::Behind(call) => {
                let (loaded, took) = database.load_behind(id, &call);
                (Answer::Behind(call, Ok(loaded)), took)
            }
            Call::Commit(call) => {
                let held = call.settlements.iter().map(|settlement| &settlement.held);
                let before: Vec<Option<Row>> =
                    held.map(|held| database.tables.find(&held.name).cloned()).collect();
                let (mut done, took) = database.commit(time, &call);
                done.clock = Some(time + took + database.clock);
                self.check_settlements(index, id, &call, &before, &done.outcomes, told);
                let changed: Vec<Changed> = done.changed.iter().flatten().cloned().collect();
                // What was done is done, whoever hears of it.
                for Changed { row, replaced, .. } in &changed {
                    if let Some(replaced) = replaced {
                        self.expected.remove(&(index, replaced.number));
                    }
                    self.expected.extend(row.iter().map(|row| (index, row.number)));
                    told.put += u64::from(row.is_some());
                }
                self.lately_changed.insert((seat, id), changed);
                (Answer::Commit(call, Ok(done)), took)
            }
        }
    }

    fn check_settlements(
        &mut self,
        database: usize,
        id: u64,
        call: &CommitCall<Ticket>,
        before: &[Option<Row>],
        outcomes: &[Outcome],
        told: &mut Told,
    ) {
        let all = call.settlements.iter().zip(before).zip(outcomes);
        for ((settlement, before), outcome) in all {
            match outcome {
                Outcome::Settled(row) => {
                    let held = &settlement.held;
                    let before = before.as_ref().expect("it was there").attempt;
                    match settlement.then {
                        Then::Done | Then::Again { .. } => self.check_settled(database, held),
                        Then::Counted { attempt } => {
                            self.check_counted(database, id, held, before, attempt);
                            continue;
                        }
                        Then::Dead { .. } => {
                            assert!(self.most.is_some_and(|most| most <= before), "dead too soon");
                            self.check_epoch(database, held);
                            self.expected.remove(&(database, held.number));
                            self.buried.insert((database, held.number));
                            told.dead += 1;
                        }
                    }
                    if let Some(row) = row {
                        let recurs = matches!(settlement.then, Then::Again { attempt: 0, .. });
                        if !recurs {
                            let put_as = self.put_as(database, held.number);
                            self.put_as.insert((database, row.number), put_as);
                        }
                        self.expected.insert((database, row.number));
                    }
                }
                Outcome::Fenced => told.fenced += 1,
                Outcome::Gone | Outcome::Locked | Outcome::Refused(_) => {}
            }
        }
    }

    /// In one process and under one epoch nothing is counted twice.
    fn check_counted(&mut self, database: usize, id: u64, held: &Held, before: u32, attempt: u32) {
        self.check_epoch(database, held);
        let place = (database, held.number, id, held.lease.epoch);
        let is_right = match before {
            before if before < attempt => self.counted.insert(place),
            before => before == attempt || self.counted.remove(&place),
        };
        assert!(is_right, "counted twice");
    }

    fn check_epoch(&self, database: usize, held: &Held) {
        let newest = self.databases[database].tables.epochs[held.lease.partition as usize];
        assert_eq!(held.lease.epoch, newest, "settled under an old epoch");
    }

    /// Returns the number that the timeout of this number was put under.
    fn put_as(&self, database: usize, number: u64) -> u64 {
        self.put_as.get(&(database, number)).copied().unwrap_or(number)
    }

    /// What is acked or moved was taken by a consumer, under the newest epoch.
    fn check_settled(&mut self, database: usize, held: &Held) {
        let taken = self.taken.get(&(database, held.number)).expect("acked and never taken");
        let newest = self.databases[database].tables.epochs[held.lease.partition as usize];
        assert!(taken.iter().any(|&(_, epoch)| epoch == newest), "an ack of an old epoch");
        assert_eq!(held.lease.epoch, newest, "an ack of an old epoch");
        self.expected.remove(&(database, held.number));
    }

    fn answer(&mut self, seat: usize, answer: Answer<Ticket>, told: &mut Told) {
        let now = self.now(seat);
        let Seat { keeper, outbox, database, id, .. } = &mut self.seats[seat];
        if answer.is_err() {
            self.databases[*database].failed(*id);
        }
        keeper.answer(now, outbox, answer);
        self.reply(seat, told);
    }

    fn reply(&mut self, seat: usize, told: &mut Told) {
        let Seat { keeper, database, id, .. } = &mut self.seats[seat];
        told.expired += std::mem::take(&mut keeper.counts.expired);
        let held_up = |error: &Error| error.to_string().contains("locked or refused");
        told.held_up += keeper.troubles.drain(..).filter(held_up).count();
        let replies = std::mem::take(&mut keeper.replies);
        if replies.is_empty() {
            return;
        }
        let mut changed = self.lately_changed.remove(&(seat, *id)).unwrap_or_default().into_iter();
        for (name, reply) in replies {
            told.answered.insert(name, self.time);
            let Ok(found) = reply else { continue };
            let Changed { row, replaced, was_dead } =
                changed.next().expect("each reply is of a change");
            told.revived += u64::from(was_dead && row.is_some());
            if found == Found::Pending && !was_dead {
                let told = if row.is_some() { &mut told.moved } else { &mut told.cancelled };
                *told += 1;
                self.dead.insert((*database, replaced.expect("there was one").number));
            }
        }
    }

    fn take(&mut self, seat: usize, told: &mut Told) {
        let (time, steady) = (self.time, self.now(seat).steady);
        let Seat { outbox, database, id, .. } = &mut self.seats[seat];
        let (database, id) = (*database, *id);
        let Some((row, epoch)) = outbox.take(steady) else {
            if outbox.len() > 0 {
                // The keeper is asking for leases. Consumers are woken after that.
                self.after(5, Event::Take(seat, id));
            }
            return;
        };
        let clock = time + self.databases[database].clock;
        assert!(row.deadline <= clock, "early");
        assert!(!self.dead.contains(&(database, row.number)), "cancelled or moved, and came");
        let before = self.taken.entry((database, row.number)).or_default();
        assert!(!before.contains(&(id, epoch)), "twice in one process under one epoch");
        assert!(!self.buried.contains(&(database, row.number)), "dead, and came");
        if let Some(most) = self.most {
            let put_as = self.put_as.get(&(database, row.number)).copied().unwrap_or(row.number);
            let times = self.times.entry((database, put_as)).or_default();
            *times += 1;
            assert!(*times <= most, "it came more often than {most} times");
            let now = self.databases[database].tables.find(&row.name);
            let now = now.filter(|now| now.number == row.number);
            assert!(now.is_none_or(|now| row.attempt < now.attempt), "handed out and not counted");
        }
        told.again += u64::from(!before.is_empty());
        before.push((id, epoch));
        told.fired += 1;
        told.late.push(clock - row.deadline);
        self.expected.remove(&(database, row.number));
        let Database { partitions, tables, .. } = &self.databases[database];
        assert_eq!(
            (partitions[row.partition as usize].owner, tables.epochs[row.partition as usize]),
            (Some(id), epoch),
            "taken when another owned it"
        );
        told.fired_at.entry(row.number).or_insert((time, clock - row.deadline));
        if self.most.is_some() && !self.quiet && row.name.ends_with("77") {
            let delay = self.rng.u64(0..self.holds);
            return self.after(delay, Event::Poison(seat, id));
        }
        let settled = match self.rng.u32(0..if self.most.is_some() { 6 } else { 20 }) {
            _ if self.consumes => Settled::Ack,
            0 if self.rng.bool() => {
                Settled::Next { at: (clock + self.rng.u64(0..500)).saturating_sub(250) }
            }
            0 => Settled::Retry { delay: self.rng.u64(0..500) },
            1 => Settled::Dropped,
            _ => Settled::Ack,
        };
        let delay = self.rng.u64(0..self.holds);
        self.after(delay, Event::Settle(seat, id, (row.number, epoch), settled));
    }

    /// Callers all over put, move and cancel.
    fn ask(&mut self, told: &mut Told) {
        let seat = self.rng.usize(0..self.seats.len());
        let clock = self.time + self.databases[self.seats[seat].database].clock;
        for _ in 0..self.rng.usize(1..8) {
            let mut name: Arc<str> = format!("{}", self.rng.u32(0..3_000)).into();
            let dead = &self.databases[self.seats[seat].database].tables.dead;
            let letter = self.rng.choice(dead.keys()).filter(|_| self.rng.u32(0..30) == 0);
            let change = if let Some(letter) = letter.cloned() {
                name = letter;
                match self.rng.u32(0..3) {
                    0 => Change::drop_dead(&name),
                    _ => Change::revive(&name, 0),
                }
            } else if self.rng.u32(0..5) == 0 {
                Change::cancel(&name)
            } else {
                Change::put(&name, clock + self.rng.u64(0..4_000), &[])
            };
            self.seats[seat].keeper.command(Command { ticket: name, change });
        }
        if self.workers[self.seats[seat].worker].paused_until <= self.time {
            self.poll(seat, told);
        }
        let delay = self.rng.u64(1..(400 / self.size.workers as u64).max(2) + 2);
        self.after(delay, Event::Ask);
    }

    fn trouble(&mut self, told: &mut Told) {
        let worker = self.rng.usize(0..self.size.workers);
        let database = self.rng.usize(0..self.databases.len());
        let until = self.time + self.rng.u64(0..self.size.lease * 3);
        match self.rng.u32(0..12) {
            // Somebody's transaction is left open, or somebody's trigger keeps it.
            0 => {
                let name = format!("{}", self.rng.u32(0..3_000));
                match self.rng.bool() {
                    true => self.databases[database].lock(&name, until),
                    false => self.databases[database].refuse(&name, until),
                }
            }
            1 => {
                self.databases[database].heals_at =
                    self.time + self.rng.u64(0..self.size.lease / 2);
                self.databases[database].silent_until = self.time + self.size.lease * 10;
                self.databases[database].leaves_locks = self.rng.u64(0..self.size.lease / 3);
            }
            2 => {
                let seat = self.rng.usize(0..self.seats.len());
                if self.workers[self.seats[seat].worker].paused_until <= self.time {
                    self.close(seat);
                }
            }
            3 => {
                let overdue = self.databases[database].clock + self.time / 2;
                for _ in 0..self.rng.u64(1..600) {
                    self.next += 1;
                    let name = format!("overdue {}", self.next);
                    let put = Change::put(&name, overdue + self.rng.u64(0..1_000), &[]);
                    let number = self.databases[database].put(&put).number;
                    self.expected.insert((database, number));
                    told.put += 1;
                }
            }
            4 => {
                let count = self.rng.u64(1..200_000);
                let clock = self.databases[database].clock + self.time;
                let (begin, span) = (clock - self.rng.u64(0..10_000), self.rng.u64(1..10_000));
                self.databases[database].keep_dead();
                self.databases[database].add_dead((0..count).map(|n| begin + n % span));
                self.databases[database].dead_until = until;
            }
            5 => {
                let time = self.rng.u64(1..self.size.lease);
                for _ in 0..self.rng.u32(1..10) {
                    let name = format!("{}", self.rng.u32(0..3_000));
                    self.databases[database].slow(&name, time, until);
                }
            }
            6 => {
                let clock = self.databases[database].clock + self.time;
                let (place, deadline) =
                    (self.rng.u32(0..self.size.partitions), clock + self.rng.u64(0..4_000));
                self.databases[database].damaged = Some((place, deadline, until));
            }
            7 => {
                let place = self.rng.u32(0..self.size.partitions);
                self.databases[database].locked_partition = Some((place, until));
            }
            8 => {
                let per = Duration::from_millis(self.rng.u64(1..600));
                let limit = RateLimit { timeouts: self.rng.usize(1..100), per };
                self.databases[database].rate_limit = Some((limit, until));
            }
            // It is restored from a backup, and workers outlive that.
            9 | 10 => self.sequence = self.rng.u64(0..=self.sequence),
            _ => {}
        }
        if self.rng.bool() {
            told.kills += 1;
            self.kill(worker);
        } else {
            told.pauses += 1;
            self.workers[worker].paused_until = self.workers[worker].paused_until.max(until);
        }
        let delay = self.rng.u64(100..1_500);
        self.after(delay, Event::Trouble);
    }
}

/// A few calls, in milliseconds.
pub(super) const CALLS: u64 = 300;
