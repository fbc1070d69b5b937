//! Many workers on stores with several owners, in virtual time from a seed: latencies, pauses,
//! kills, cut connections and clocks apart. The keepers are those that run on a thread.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;

use super::{Answer, Call, Cancelled, Command, Config, Keeper, Now, Reply, Request, Settled};
use crate::due::Outbox;
use crate::store::{Held, Lease, Leases, Op, Outcome, Page, Position, Replaced, Row};
use crate::{Error, Scheduled};

#[test]
fn many_workers_lose_nothing_and_make_nothing_early_and_no_two_own_a_partition() {
    let seeds = std::env::var("TICKWHEEL_DURABLE_SEEDS").map_or(40, |seeds| seeds.parse().unwrap());
    let size = match std::env::var_os("TICKWHEEL_DURABLE_LARGE") {
        Some(_) => Size { workers: 100, stores: 16, partitions: 64 },
        None => Size { workers: 6, stores: 2, partitions: 12 },
    };
    let mut told = Told::default();
    for seed in 0..seeds {
        Simulation::new(seed, size).run(&mut told);
    }
    told.late.sort_unstable();
    let late = |quantile: usize| told.late[(told.late.len() - 1) * quantile / 1000];
    println!(
        "{seeds} seeds of {size:?}: {} put, {} fired, {} again, {} acks fenced, {} cancelled, \
         {} moved, {} kills, {} pauses, {} cuts; late {} / {} / {} ms",
        told.put,
        told.fired,
        told.again,
        told.fenced,
        told.cancelled,
        told.moved,
        told.kills,
        told.pauses,
        told.cuts,
        late(500),
        late(990),
        late(1000),
    );
    assert!(told.again > 0 && told.fenced > 0 && told.cancelled > 0 && told.moved > 0);
}

/// A caller elsewhere may have been told since that look that the timeout will not come.
#[test]
fn a_timeout_is_not_handed_out_on_the_strength_of_an_old_look() {
    let mut keeper: Keeper<Ticket> = Keeper::new(config());
    let mut outbox = Outbox::default();
    let now = |steady| Now { wall: 0, steady };
    assert!(matches!(keeper.poll(now(0), &mut outbox), Some(Call::Lease { wanted: true })));
    let leases = Leases {
        held: vec![Lease { partition: 0, epoch: 1 }],
        good_for: Some(Duration::from_secs(60)),
        clock: Some(1_000_000),
    };
    keeper.answer(now(0), &mut outbox, Ok(Answer::Leases(leases)));
    assert!(matches!(keeper.poll(now(0), &mut outbox), Some(Call::Load { .. })));
    let row = Row {
        name: "a".into(),
        deadline: 1_001_100,
        payload: Arc::from([]),
        attempt: 0,
        number: 1,
        partition: 0,
    };
    // The answer took longer than the margin, and the timeout is due by now.
    let page = || Page { rows: vec![row.clone()], ..Page::default() };
    keeper.answer(now(1_150), &mut outbox, Ok(Answer::Page(page())));
    let mut at = 1_150;
    loop {
        match keeper.poll(now(at), &mut outbox) {
            Some(Call::Load { after, .. }) if after == Position::start() => break,
            // What is further away is no look.
            Some(Call::Load { .. }) => {
                keeper.answer(now(at), &mut outbox, Ok(Answer::Page(Page::default())));
            }
            Some(call) => panic!("{call:?}"),
            None => {
                let wake = keeper.wake(now(at));
                assert!(at < wake, "it waits, and not in a circle");
                at = wake;
            }
        }
        assert_eq!(outbox.len(), 0);
    }
    keeper.answer(now(at + 1), &mut outbox, Ok(Answer::Page(page())));
    keeper.poll(now(at + 1), &mut outbox);
    assert_eq!(outbox.len(), 1);
}

const LEASE: u64 = 2_000;

fn config() -> Config {
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
    }
}

#[derive(Clone, Copy, Debug)]
struct Size {
    workers: usize,
    stores: usize,
    partitions: u32,
}

#[derive(Debug, Default)]
struct Told {
    put: u64,
    fired: u64,
    again: u64,
    fenced: u64,
    cancelled: u64,
    moved: u64,
    kills: u64,
    pauses: u64,
    cuts: u64,
    late: Vec<u64>,
}

/// A database: what `PostgresStore` does in one.
struct Database {
    rows: BTreeMap<Arc<str>, Row>,
    partitions: Vec<Partition>,
    workers: HashMap<u64, u64>,
    number: u64,
    /// Its clock less the true time.
    clock: u64,
    latency: u64,
}

#[derive(Clone, Copy, Default)]
struct Partition {
    owner: Option<u64>,
    epoch: u64,
    until: u64,
}

/// A worker's keeper of one database.
struct Seat {
    keeper: Keeper<Ticket>,
    outbox: Outbox,
    worker: usize,
    database: usize,
    /// Never used again.
    id: u64,
    /// True times at which it will be woken; others are stale.
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
    Arrives(usize, u64, Call),
    Answer(usize, u64, Result<Answer, Error>),
    Settle(usize, u64, u64, Settled),
    Take(usize, u64),
    Ask,
    Trouble,
}

struct Simulation {
    rng: Rng,
    size: Size,
    time: u64,
    databases: Vec<Database>,
    workers: Vec<Worker>,
    seats: Vec<Seat>,
    events: BinaryHeap<Reverse<(u64, u64)>>,
    what: HashMap<u64, Event>,
    next: u64,
    /// By number: the seat's id and the epoch under which it was taken.
    taken: HashMap<(usize, u64), Vec<(u64, u64)>>,
    dead: HashSet<(usize, u64)>,
    /// What was put and must come, if nothing else happens to it.
    expected: HashSet<(usize, u64)>,
    quiet: bool,
    lately_asked: HashMap<u64, Vec<(Op, Outcome)>>,
}

impl Simulation {
    fn new(seed: u64, size: Size) -> Self {
        let mut rng = Rng::with_seed(seed);
        let databases = (0..size.stores)
            .map(|_| Database {
                rows: BTreeMap::new(),
                partitions: vec![Partition::default(); size.partitions as usize],
                workers: HashMap::new(),
                number: 0,
                clock: rng.u64(0..10_000_000),
                latency: rng.u64(1..20),
            })
            .collect();
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
            workers,
            seats: Vec::new(),
            events: BinaryHeap::new(),
            what: HashMap::new(),
            next: 0,
            taken: HashMap::new(),
            dead: HashSet::new(),
            expected: HashSet::new(),
            quiet: false,
            lately_asked: HashMap::new(),
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
        self.next += 1;
        Seat {
            keeper: Keeper::new(config()),
            outbox: Outbox::default(),
            worker,
            database,
            id: self.next,
            wakes_at: 0,
        }
    }

    fn run(&mut self, told: &mut Told) {
        let end = self.time + 12_000;
        while self.time < end {
            self.step(told);
        }
        // In peace all comes.
        self.quiet = true;
        let end = self.time + 60_000;
        while self.databases.iter().any(|database| !database.rows.is_empty()) {
            assert!(self.time < end, "some timeouts never come");
            self.step(told);
        }
        assert!(self.expected.is_empty(), "{} were lost", self.expected.len());
    }

    fn after(&mut self, delay: u64, event: Event) {
        self.next += 1;
        self.events.push(Reverse((self.time + delay, self.next)));
        self.what.insert(self.next, event);
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
        let Reverse((time, number)) = self.events.pop().expect("there is always an event");
        self.time = time;
        let event = self.what.remove(&number).expect("it was put");
        // A worker that is paused does what it would have done when it goes on.
        let seat = match &event {
            Event::Wake(seat, _)
            | Event::Answer(seat, ..)
            | Event::Settle(seat, ..)
            | Event::Take(seat, _) => Some(*seat),
            Event::Arrives(..) | Event::Ask | Event::Trouble => None,
        };
        if let Some(seat) = seat {
            let until = self.workers[self.seats[seat].worker].paused_until;
            if time < until {
                return self.after(until - time, event);
            }
        }
        match event {
            Event::Wake(seat, id) => {
                if self.seats[seat].id == id && self.seats[seat].wakes_at == time {
                    self.poll(seat, told);
                }
            }
            Event::Arrives(seat, id, call) => self.arrive(seat, id, &call, told),
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
            Event::Settle(seat, id, number, settled) => {
                if self.seats[seat].id == id {
                    let now = self.now(seat);
                    self.seats[seat].keeper.settle(now, number, settled);
                    self.poll(seat, told);
                }
            }
            Event::Ask if !self.quiet => self.ask(told),
            Event::Trouble if !self.quiet => self.trouble(told),
            Event::Ask | Event::Trouble => {}
        }
    }

    fn poll(&mut self, seat: usize, told: &mut Told) {
        let now = self.now(seat);
        let Seat { keeper, outbox, database, id, .. } = &mut self.seats[seat];
        let (database, id) = (*database, *id);
        let before = outbox.len();
        let call = keeper.poll(now, outbox);
        let handed_out = outbox.len().saturating_sub(before);
        // Whoever hands out is the owner at that moment.
        for (row, epoch) in outbox.waiting().rev().take(handed_out) {
            let partition = self.databases[database].partitions[row.partition as usize];
            assert_eq!(
                (partition.owner, partition.epoch),
                (Some(id), *epoch),
                "handed out when the partition had another owner"
            );
        }
        for _ in 0..handed_out {
            let delay = self.rng.u64(0..30);
            self.after(delay, Event::Take(seat, id));
        }
        self.reply(seat, told);
        if let Some(call) = call {
            let there = self.latency(database);
            self.after(there, Event::Arrives(seat, id, call));
        } else if self.seats[seat].keeper.pending.is_none() {
            let wake = self.seats[seat].keeper.wake(now).saturating_sub(now.steady);
            self.wake(seat, wake.clamp(1, 1_000));
        }
    }

    fn latency(&mut self, database: usize) -> u64 {
        let latency = self.databases[database].latency;
        // Now and then it is slow.
        if self.rng.u32(0..200) == 0 { latency * 30 } else { self.rng.u64(0..=latency) }
    }

    fn arrive(&mut self, seat: usize, id: u64, call: &Call, told: &mut Told) {
        let database = self.seats[seat].database;
        let back = self.latency(database);
        // The connection is cut on the way there, or on the way back.
        let cut = if self.quiet { 99 } else { self.rng.u32(0..400) };
        let answer = match cut {
            0 => Err(Error::store("reach it", "cut")),
            _ => Ok(self.execute(seat, id, call, told)),
        };
        if cut <= 1 {
            told.cuts += 1;
            self.lately_asked.remove(&id);
            return self
                .after(back + 50, Event::Answer(seat, id, Err(Error::store("hear", "cut"))));
        }
        self.after(back, Event::Answer(seat, id, answer));
    }

    fn execute(&mut self, seat: usize, id: u64, call: &Call, told: &mut Told) -> Answer {
        let index = self.seats[seat].database;
        let database = &mut self.databases[index];
        let clock = self.time + database.clock;
        match call {
            Call::Lease { .. } => Answer::Leases(database.lease(id, clock, &mut self.rng)),
            Call::Load { leases, after, until, limit } => {
                let leases: HashSet<u32> =
                    leases.iter().flatten().map(|lease| lease.partition).collect();
                let mut rows: Vec<Row> = database
                    .rows
                    .values()
                    .filter(|row| leases.contains(&row.partition))
                    .filter(|row| *after < row.position() && row.deadline <= *until)
                    .cloned()
                    .collect();
                rows.sort_by_key(Row::position);
                let more = limit.rows < rows.len();
                rows.truncate(limit.rows);
                let end = rows.last().filter(|_| more).map(Row::position);
                Answer::Page(Page { rows, end, damaged: Vec::new() })
            }
            Call::Commit { ops } => {
                let mut outcomes = Vec::new();
                for op in ops {
                    let outcome = self.databases[index].apply(op);
                    // What was done is done, whoever hears of it.
                    match &outcome {
                        Outcome::Put { row, replaced } => {
                            if let Some(replaced) = replaced {
                                self.expected.remove(&(index, replaced.number));
                            }
                            self.expected.insert((index, row.number));
                            told.put += 1;
                        }
                        Outcome::Cancelled(Some(removed)) => {
                            self.expected.remove(&(index, removed.number));
                        }
                        Outcome::Retried(row) => {
                            let Op::Retry(held, _) = op else { panic!("of a retry") };
                            self.check_settled(index, held);
                            self.expected.insert((index, row.number));
                        }
                        Outcome::Acked => {
                            let Op::Ack(held) = op else { panic!("of an ack") };
                            self.check_settled(index, held);
                        }
                        Outcome::Fenced => told.fenced += 1,
                        Outcome::Cancelled(None) | Outcome::Gone => {}
                    }
                    outcomes.push(outcome);
                }
                let done = ops.iter().cloned().zip(outcomes.iter().cloned()).collect();
                self.lately_asked.insert(id, done);
                Answer::Outcomes(outcomes)
            }
            Call::Get { .. } | Call::Len => unreachable!("nobody asks"),
        }
    }

    /// What is acked or moved was taken by a consumer, under the newest epoch.
    fn check_settled(&mut self, database: usize, held: &Held) {
        let taken = self.taken.get(&(database, held.number)).expect("acked and never taken");
        let newest = self.databases[database].partitions[held.lease.partition as usize].epoch;
        assert!(taken.iter().any(|&(_, epoch)| epoch == newest), "an ack of an old epoch");
        assert_eq!(held.lease.epoch, newest, "an ack of an old epoch");
        self.expected.remove(&(database, held.number));
    }

    fn answer(&mut self, seat: usize, answer: Result<Answer, Error>, told: &mut Told) {
        let now = self.now(seat);
        let Seat { keeper, outbox, .. } = &mut self.seats[seat];
        keeper.answer(now, outbox, answer);
        self.reply(seat, told);
    }

    fn reply(&mut self, seat: usize, told: &mut Told) {
        let Seat { keeper, database, id, .. } = &mut self.seats[seat];
        keeper.troubles.clear();
        let replies = std::mem::take(&mut keeper.replies);
        if replies.is_empty() {
            return;
        }
        let done = self.lately_asked.remove(id).unwrap_or_default();
        let mut done = done.into_iter().filter(|(op, _)| !matches!(op, Op::Ack(_) | Op::Retry(..)));
        for (_, reply) in replies {
            let Ok(reply) = reply else { continue };
            let number = match done.next() {
                Some((_, Outcome::Put { replaced, .. })) => replaced,
                Some((_, Outcome::Cancelled(removed))) => removed,
                outcome => panic!("{reply:?} of {outcome:?}"),
            };
            match reply {
                Reply::Cancelled(Cancelled::Cancelled) => {
                    told.cancelled += 1;
                    self.dead.insert((*database, number.expect("there was one").number));
                }
                Reply::Scheduled(Scheduled::Moved) => {
                    told.moved += 1;
                    self.dead.insert((*database, number.expect("there was one").number));
                }
                _ => {}
            }
        }
    }

    fn take(&mut self, seat: usize, told: &mut Told) {
        let time = self.time;
        let Seat { outbox, database, id, .. } = &mut self.seats[seat];
        let (database, id) = (*database, *id);
        let Some((row, epoch)) = outbox.take() else { return };
        let clock = time + self.databases[database].clock;
        assert!(row.deadline <= clock, "early");
        assert!(!self.dead.contains(&(database, row.number)), "cancelled or moved, and came");
        let before = self.taken.entry((database, row.number)).or_default();
        assert!(!before.contains(&(id, epoch)), "twice in one process under one epoch");
        told.again += u64::from(!before.is_empty());
        before.push((id, epoch));
        told.fired += 1;
        told.late.push(clock - row.deadline);
        self.expected.remove(&(database, row.number));
        let settled = match self.rng.u32(0..20) {
            0 => Settled::Retry { delay: self.rng.u64(0..500) },
            1 => Settled::Dropped,
            _ => Settled::Ack,
        };
        let delay = self.rng.u64(0..100);
        self.after(delay, Event::Settle(seat, id, row.number, settled));
    }

    /// Callers all over put, move and cancel.
    fn ask(&mut self, told: &mut Told) {
        let seat = self.rng.usize(0..self.seats.len());
        let clock = self.time + self.databases[self.seats[seat].database].clock;
        for _ in 0..self.rng.usize(1..8) {
            let name: Arc<str> = format!("{}", self.rng.u32(0..3_000)).into();
            let request = if self.rng.u32(0..5) == 0 {
                Request::Cancel { name: name.clone() }
            } else {
                let deadline = clock + self.rng.u64(0..4_000);
                Request::Put { name: name.clone(), deadline, payload: Arc::from([]) }
            };
            self.seats[seat].keeper.command(Command { ticket: name, request });
        }
        if self.workers[self.seats[seat].worker].paused_until <= self.time {
            self.poll(seat, told);
        }
        let delay = self.rng.u64(1..(400 / self.size.workers as u64).max(2) + 2);
        self.after(delay, Event::Ask);
    }

    fn trouble(&mut self, told: &mut Told) {
        let worker = self.rng.usize(0..self.size.workers);
        if self.rng.bool() {
            told.kills += 1;
            for seat in 0..self.seats.len() {
                if self.seats[seat].worker == worker {
                    let id = self.seats[seat].id;
                    self.lately_asked.remove(&id);
                    self.seats[seat] = self.seat(worker, self.seats[seat].database);
                    self.wake(seat, 100);
                }
            }
        } else {
            told.pauses += 1;
            self.workers[worker].paused_until = self.time + self.rng.u64(0..LEASE * 3);
        }
        let delay = self.rng.u64(100..1_500);
        self.after(delay, Event::Trouble);
    }
}

impl Database {
    fn lease(&mut self, worker: u64, clock: u64, rng: &mut Rng) -> Leases {
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

    fn apply(&mut self, op: &Op) -> Outcome {
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
