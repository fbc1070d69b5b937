//! A keeper, a store in memory, consumers and callers, and what each step is checked for.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;

use crate::keeper::outbox::Outbox;
use crate::keeper::words::Counts;
use crate::keeper::{Answer, Call, Command, Config, Found, Keeper, Now, Rate, Settled};
use crate::store::{
    Act, Change, Changed, Limit, Outcome, Position, RateLimit, Row, Settlement, Store, Then,
};
use crate::{Error, MemoryStore};

pub(super) struct World {
    rng: Rng,
    pub(super) config: Config,
    pub(super) store: MemoryStore,
    pub(super) keeper: Keeper<u64>,
    pub(super) outbox: Outbox,
    pub(super) now: Now,
    /// What the consumer holds, each with its epoch.
    pub(super) held: Vec<(Row, u64)>,
    /// The commands that are not answered.
    asked: HashMap<u64, Change>,
    next_ticket: u64,
    /// How the store fails: of 100 calls so many.
    failures: u32,
    /// The store keeps a limit.
    is_limited: bool,
    pub(super) puts_fail: bool,
    /// Whether consumers and callers go on while a call is under way.
    lively: bool,
    pub(super) failed: u64,
    /// What consumers took: number and attempt, and the life in which they did.
    pub(super) taken: HashMap<(u64, u32), u64>,
    /// When they did, in this life.
    times_taken: Vec<u64>,
    settled: HashMap<u64, Settled>,
    /// How often consumers took a timeout, by the number it was put under.
    times: HashMap<u64, u32>,
    /// That number, by the number of now.
    put_as: HashMap<u64, u64>,
    /// Numbers that were counted, and the life in which they were.
    counted: HashSet<(u64, u64)>,
    /// How many became dead letters, and how many of these were revived.
    pub(super) died: u64,
    pub(super) revived: u64,
    /// Numbers after whose cancel or move the caller was told that they will not come.
    dead: HashSet<u64>,
    life: u64,
    /// What the last commit did.
    done: Vec<Changed>,
    /// What the keeper of this life has counted, of what is seen here.
    counts: Counts,
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let config = Config {
            horizon: 1_000,
            near_rows: rng.usize(4..60),
            near_bytes: if rng.bool() { 1_000_000 } else { rng.usize(500..5_000) },
            page: rng.usize(1..12),
            group: rng.usize(1..10),
            in_flight: rng.usize(1..12),
            redeliver: rng.u64(1..500),
            linger: rng.u64(0..20),
            refresh: if rng.bool() { u64::MAX / 2 } else { rng.u64(100..5_000) },
            look: 200,
            margin: 1_000,
            max_attempts: rng.bool().then(|| rng.u32(1..5)),
            visibility: None,
            rate: None,
        };
        Self {
            rng,
            keeper: Keeper::new(config.clone()),
            config,
            store: MemoryStore::new(),
            outbox: received(),
            now: Now { wall: 1_000_000, steady: 1_000 },
            held: Vec::new(),
            asked: HashMap::new(),
            next_ticket: 0,
            failures: 0,
            is_limited: false,
            puts_fail: false,
            lively: false,
            failed: 0,
            taken: HashMap::new(),
            times_taken: Vec::new(),
            settled: HashMap::new(),
            times: HashMap::new(),
            put_as: HashMap::new(),
            counted: HashSet::new(),
            died: 0,
            revived: 0,
            dead: HashSet::new(),
            life: 0,
            done: Vec::new(),
            counts: Counts::default(),
        }
    }

    pub(super) fn run(&mut self, steps: usize) {
        if self.rng.bool() {
            let (timeouts, per) = (self.rng.usize(1..6), self.rng.u64(1..600));
            self.config.rate = Some(Rate { timeouts, per });
            self.restart();
        }
        self.lively = true;
        for _ in 0..steps {
            match self.rng.u32(0..100) {
                0..30 => self.random_put(),
                30..42 => {
                    let name = self.random_name();
                    self.ask(Change::cancel(&name));
                }
                42..60 => self.take(),
                60..80 => self.random_settle(),
                80..90 => {
                    let time = self.rng.u64(0..800);
                    self.pass(time);
                }
                90..92 => {
                    self.now.wall = match self.rng.u32(0..5) {
                        0 => self.now.wall + self.rng.u64(0..10_000),
                        1 => self.now.wall.saturating_sub(self.rng.u64(0..10_000)),
                        2 => self.now.wall.saturating_sub(self.rng.u64(0..100)),
                        3 => self.now.wall.saturating_sub(self.rng.u64(0..HOURS)),
                        _ => 1_000_000 + self.now.steady,
                    };
                    // The thread looks at the clock once a second; what a consumer takes before
                    // that look is not what is tested here.
                    self.step();
                }
                92..94 => self.kill(),
                94 => {
                    let name = self.random_name();
                    let change = match self.rng.u32(0..3) {
                        0 => Change::drop_dead(&name),
                        _ => Change::revive(&name, 0),
                    };
                    self.ask(change);
                }
                95 => {
                    let pauses = self.rng.bool();
                    self.pause(pauses);
                }
                96 => self.failures = if self.rng.bool() { 0 } else { self.rng.u32(0..60) },
                97 => {
                    let (timeouts, per) = (self.rng.usize(1..6), self.rng.u64(1..600));
                    let limit = RateLimit { timeouts, per: Duration::from_millis(per) };
                    let limit = self.rng.bool().then_some(limit);
                    self.limit_rate(limit);
                }
                _ => {
                    self.step();
                }
            }
            if self.rng.bool() {
                self.settle_down();
            } else if self.rng.bool() {
                self.step();
            }
        }
        self.finish();
    }

    /// Lets all that is pending come, and sees that nothing is left.
    pub(super) fn finish(&mut self) {
        self.failures = 0;
        self.lively = false;
        self.pause(false);
        self.limit_rate(None);
        self.now.wall = self.now.wall.max(2_000_000);
        for _ in 0..10_000 {
            self.settle_down();
            while self.outbox.len() > 0 {
                self.take();
            }
            while !self.held.is_empty() {
                self.settle_one(0, Settled::Ack);
            }
            if self.store.count().unwrap() == 0 {
                let all = Limit { rows: usize::MAX, bytes: usize::MAX };
                let letters = self.store.list_dead("", all).unwrap().letters;
                for letter in &letters {
                    let most = self.config.max_attempts.expect("without, none dies");
                    assert!(most <= letter.attempt, "{letter:?}");
                }
                return;
            }
            self.pass(50);
        }
        panic!("{} timeouts never came", self.store.count().unwrap());
    }

    fn random_name(&mut self) -> Arc<str> {
        format!("{}", self.rng.u64(0..NAMES)).into()
    }

    fn random_put(&mut self) {
        let name = self.random_name();
        let deadline = match self.rng.u32(0..10) {
            0 => 0,
            1 => self.now.wall + self.rng.u64(0..100_000),
            // Many of one deadline.
            2..6 => (self.now.wall / 500 + self.rng.u64(0..4)) * 500,
            _ => self.now.wall + self.rng.u64(0..3_000),
        };
        self.put(&name, deadline);
    }

    pub(super) fn pause(&mut self, pauses: bool) {
        self.store.pause(pauses).unwrap();
        self.keeper.pause(self.now, &mut self.outbox, pauses);
    }

    fn limit_rate(&mut self, limit: Option<RateLimit>) {
        self.store.limit_rate(limit).unwrap();
        self.keeper.limit_rate(self.now, limit);
        self.is_limited = limit.is_some();
    }

    pub(super) fn put(&mut self, name: &str, deadline: u64) {
        let payload: Vec<u8> = (0..self.rng.usize(0..20)).map(|_| self.rng.u8(..)).collect();
        let metadata = "x".repeat(self.rng.usize(0..20));
        self.ask(Change::put(name, deadline, (&payload, &*metadata)));
    }

    /// Puts one with a large payload.
    pub(super) fn put_large(&mut self, name: &str, deadline: u64) {
        self.ask(Change::put(name, deadline, &[0; 60_000]));
    }

    fn ask(&mut self, change: Change) {
        self.next_ticket += 1;
        self.asked.insert(self.next_ticket, change.clone());
        self.keeper.command(Command { ticket: self.next_ticket, change });
    }

    pub(super) fn take(&mut self) {
        let Some((row, epoch)) = self.outbox.take(self.now.steady) else { return };
        assert!(row.deadline <= self.now.wall, "early: {row:?} at {:?}", self.now);
        assert!(epoch > 0);
        assert!(!self.store.is_paused().unwrap(), "it came while nothing was to be handed out");
        if let Some(Rate { timeouts, per }) = self.config.rate {
            let before = self.times_taken.iter().rev().nth(timeouts - 1);
            let is_slow = before.is_none_or(|before| before + per < self.now.steady);
            assert!(is_slow, "more than {timeouts} in {per} ms");
        }
        self.times_taken.push(self.now.steady);
        assert!(!self.dead.contains(&row.number), "cancelled or moved, and came: {row:?}");
        let before = self.taken.insert((row.number, row.attempt), self.life);
        assert_ne!(before, Some(self.life), "twice without a crash in between: {row:?}");
        if let Some(now) = self.store.get(&row.name).unwrap() {
            let counts = u32::from(self.config.max_attempts.is_some());
            let now = Row { attempt: now.attempt.saturating_sub(counts), ..now };
            assert!(now.number != row.number || now == row, "not as it was put: {row:?}");
        }
        if let Some(most) = self.config.max_attempts {
            let put_as = self.put_as.get(&row.number).unwrap_or(&row.number);
            let times = self.times.entry(*put_as).or_default();
            *times += 1;
            assert!(*times <= most, "it came more often than {most} times: {row:?}");
        }
        self.held.push((row, epoch));
    }

    fn random_settle(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let index = self.rng.usize(0..self.held.len());
        let settled = match self.rng.u32(0..4) {
            // Runs that were missed are made up for.
            0 if self.rng.bool() => {
                Settled::Next { at: (self.now.wall + self.rng.u64(0..2_000)).saturating_sub(1_000) }
            }
            0 => Settled::Retry { delay: self.rng.u64(0..2_000) },
            1 => Settled::Dropped,
            _ => Settled::Ack,
        };
        self.settle_one(index, settled);
    }

    pub(super) fn settle_one(&mut self, index: usize, settled: Settled) {
        let (row, epoch) = self.held.swap_remove(index);
        self.settled.insert(row.number, settled);
        self.keeper.settle(self.now, (row.number, epoch), settled);
    }

    /// How many timeouts consumers held, each time that it was told.
    pub(super) fn held_told(&self) -> Vec<usize> {
        let held = |error: &Error| match error {
            Error::Held { timeouts } => Some(*timeouts),
            _ => None,
        };
        self.keeper.troubles.iter().filter_map(held).collect()
    }

    pub(super) fn pass(&mut self, time: u64) {
        // In steps of at most a second, as the thread does.
        let mut left = time;
        loop {
            self.settle_down();
            if left == 0 {
                return;
            }
            let wake = self.keeper.wake(self.now).saturating_sub(self.now.steady);
            let step = left.min(wake.clamp(1, 1_000));
            self.now.wall = self.now.wall.saturating_add(step);
            self.now.steady += step;
            left -= step;
        }
    }

    fn kill(&mut self) {
        // The store may have done the call that was under way, and its answer is lost.
        if self.rng.bool()
            && let Some(call) = self.keeper.poll(self.now, &mut self.outbox)
        {
            let _ = self.execute(call);
        }
        self.restart();
    }

    pub(super) fn restart(&mut self) {
        self.keeper = Keeper::new(self.config.clone());
        self.outbox = received();
        self.times_taken.clear();
        self.held.clear();
        self.settled.clear();
        self.asked.clear();
        self.counts = Counts::default();
        self.life += 1;
    }

    /// Lets the keeper do all it wants to do now.
    pub(super) fn settle_down(&mut self) {
        let mut calls = 0;
        while self.step() {
            calls += 1;
            assert!(calls < 10_000, "the keeper asks without end: {:?}", self.keeper);
        }
        assert!(self.outbox.taken.is_empty(), "the keeper leaves what was taken");
        self.check_nothing_due_is_left();
    }

    /// One call. False: the keeper wants none.
    pub(super) fn step(&mut self) -> bool {
        let Some(call) = self.poll() else {
            let wake = self.keeper.wake(self.now);
            assert!(self.now.steady < wake, "it has looked, and would look again at once");
            return false;
        };
        self.check();
        let answer = self.execute(call);
        // Meanwhile the world goes on, and so does the keeper.
        while self.lively && self.rng.u32(0..3) == 0 {
            let time = self.rng.u64(0..200);
            self.now.wall = self.now.wall.saturating_add(time);
            self.now.steady += time;
            if self.rng.u32(0..20) == 0 {
                self.now.wall = self.now.wall.saturating_sub(self.rng.u64(0..2_000));
            }
            assert_eq!(self.keeper.poll(self.now, &mut self.outbox), None, "one call at a time");
            self.check();
            self.take();
            self.random_settle();
            self.random_put();
        }
        self.count(&answer);
        self.keeper.answer(self.now, &mut self.outbox, answer);
        self.check();
        self.check_replies();
        true
    }

    pub(super) fn poll(&mut self) -> Option<Call<u64>> {
        let call = self.keeper.poll(self.now, &mut self.outbox)?;
        match &call {
            Call::Commit(call) => {
                self.counts.commits += 1;
                self.counts.changes += (call.settlements.len() + call.changes.len()) as u64;
            }
            Call::Load(_) | Call::Behind(_) => self.counts.loads += 1,
            Call::Lease(_) => {}
        }
        Some(call)
    }

    pub(super) fn count(&mut self, answer: &Answer<u64>) {
        let Counts { acked, retried, dead, errors, .. } = &mut self.counts;
        match answer {
            Answer::Lease(_, Err(_))
            | Answer::Load(_, Err(_))
            | Answer::Behind(_, Err(_))
            | Answer::Commit(_, Err(_)) => *errors += 1,
            Answer::Commit(call, Ok(done)) => {
                for (Settlement { then, .. }, outcome) in
                    call.settlements.iter().zip(&done.outcomes)
                {
                    match (then, outcome) {
                        (Then::Done, Outcome::Settled(_)) => *acked += 1,
                        (Then::Again { attempt: 0, .. }, Outcome::Settled(_)) => *acked += 1,
                        (Then::Again { .. }, Outcome::Settled(_)) => *retried += 1,
                        (Then::Dead { .. }, Outcome::Settled(_)) => *dead += 1,
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }

    fn execute(&mut self, call: Call<u64>) -> Answer<u64> {
        let full = self.puts_fail
            && matches!(&call, Call::Commit(commit) if commit.changes.iter().any(|c| c.as_put().is_some()));
        let fails = self.rng.u32(0..100) < self.failures || full;
        if fails && (full || self.rng.bool()) {
            return call.fail(Error::store("do it", "before"));
        }
        if let Call::Commit(call) = &call {
            self.check_settlements(&call.settlements);
        }
        let answer = call.make(&mut self.store);
        if let Answer::Commit(call, Ok(done)) = &answer {
            for (settlement, outcome) in call.settlements.iter().zip(&done.outcomes) {
                let number = settlement.held.number;
                let put_as = *self.put_as.get(&number).unwrap_or(&number);
                match (settlement.then, outcome) {
                    // The next of one that recurs is as one that was put.
                    (Then::Again { attempt: 1.., .. }, Outcome::Settled(Some(row))) => {
                        self.put_as.insert(row.number, put_as);
                    }
                    (Then::Dead { .. }, Outcome::Settled(None)) => self.died += 1,
                    _ => {}
                }
            }
            self.done = done.changed.iter().map(|changed| changed.clone().unwrap()).collect();
        }
        if fails { answer.lose(Error::store("do it", "after")) } else { answer }
    }

    /// Nothing is acked or moved but by a consumer, nothing is counted twice in a life, and nothing
    /// is dead before it was counted as often as it may be.
    fn check_settlements(&mut self, settlements: &[Settlement]) {
        for settlement in settlements {
            let Settlement { held, then } = settlement;
            let settled = self.settled.get(&held.number);
            let row = self.store.get(&held.name).unwrap();
            let row = row.filter(|row| row.number == held.number);
            let is_held = self.held.iter().any(|(row, _)| row.number == held.number);
            let most = self.config.max_attempts;
            let is_right = match *then {
                Then::Done => matches!(settled, Some(Settled::Ack)),
                Then::Again { at, attempt: 0 } => settled == Some(&Settled::Next { at }),
                Then::Again { attempt, .. } => {
                    matches!(settled, Some(Settled::Retry { .. } | Settled::Dropped))
                        && most.is_none_or(|most| attempt < most)
                }
                Then::Dead { .. } => {
                    !matches!(settled, Some(Settled::Ack))
                        && !is_held
                        && row.is_none_or(|row| most.is_some_and(|most| most <= row.attempt))
                }
                Then::Counted { attempt } => {
                    let place = (held.number, self.life);
                    !is_held
                        && row.is_none_or(|row| match row.attempt {
                            before if before < attempt => self.counted.insert(place),
                            before => before == attempt || self.counted.remove(&place),
                        })
                }
            };
            assert!(is_right, "{settlement:?} when the consumer did {settled:?}");
        }
    }

    fn check_replies(&mut self) {
        let mut done = std::mem::take(&mut self.done).into_iter();
        for (ticket, reply) in std::mem::take(&mut self.keeper.replies) {
            let change = self.asked.remove(&ticket).expect("one reply for each");
            let (name, put) = (change.name.clone(), change.as_put().cloned());
            let Ok(found) = reply else {
                self.failed += 1;
                continue;
            };
            let Changed { row, replaced, was_dead } =
                done.next().expect("a change has its outcome");
            if matches!(change.act, Act::Revive { .. } | Act::Drop) {
                self.revived += u64::from(was_dead && (row.is_some() || change.act == Act::Drop));
                assert_eq!(found == Found::Nothing, !was_dead);
                assert!(row.is_none() || found == Found::Pending);
                continue;
            }
            assert_eq!(row.is_some(), put.is_some());
            if let Some((row, put)) = row.zip(put) {
                let asked = (&name, put.deadline, &put.payload, &put.metadata);
                assert_eq!((&row.name, row.deadline, &row.payload, &row.metadata), asked);
            }
            match (found, replaced) {
                (Found::Nothing, None) => {}
                (Found::Pending, Some(replaced)) => self.die(replaced.number),
                (Found::Firing, Some(replaced)) => self.check_flies(replaced.number),
                (found, replaced) => panic!("{found:?} when it replaced {replaced:?}"),
            }
        }
    }

    /// The caller was told that this one will not come.
    fn die(&mut self, number: u64) {
        assert!(
            !self.held.iter().any(|(row, _)| row.number == number),
            "a consumer has {number}, and the caller was told that it will not come"
        );
        self.dead.insert(number);
    }

    fn check_flies(&self, number: u64) {
        assert!(
            self.taken.iter().any(|(&(n, _), &life)| n == number && life == self.life),
            "nobody took {number} in this life"
        );
    }

    /// Everything up to `loaded` is near or in flight, and nothing else is near.
    fn check(&mut self) {
        let keeper = &self.keeper;
        let rows = all(&mut self.store);
        if !keeper.is_pending {
            for row in &rows {
                let is_near = keeper.front.rows().any(|near| near == row);
                let flies = keeper.flights.has(&row.name, row.number);
                assert!(!(is_near && flies), "near and in flight: {row:?}");
                let is_known = keeper.front.reaches(row);
                assert!(is_near || flies || !is_known, "it is before what is loaded: {row:?}");
                assert!(!is_near || is_known);
            }
        }
        assert_eq!(keeper.front.rows().count(), keeper.near_rows());
        let counted = |counts: &Counts| {
            let Counts { commits, changes, loads, acked, retried, dead, errors, .. } = *counts;
            [commits, changes, loads, acked, retried, dead, errors]
        };
        assert_eq!(counted(&keeper.counts), counted(&self.counts));
        let near: usize = keeper.front.rows().map(Row::bytes).sum();
        assert_eq!(keeper.front.bytes(), near);
        let flights = keeper.flights.by_number.values();
        assert_eq!(keeper.flights.bytes, flights.clone().map(|flight| flight.bytes).sum::<usize>());
        let unsettled = flights.filter(|flight| !flight.is_settled()).count();
        assert_eq!(keeper.flights.unsettled, unsettled);
        assert!(unsettled <= self.config.in_flight);
        assert!(keeper.flights.len() <= self.config.in_flight * 2, "a crash brings back too many");
        assert_eq!(unsettled, self.outbox.len() + self.held.len());
        assert!(
            keeper.front.len() == 0 || keeper.known() <= self.config.near_rows,
            "{} rows in memory",
            keeper.known()
        );
        // One row may pass the limit of bytes.
        assert!(keeper.front.len() <= 1 || keeper.bytes() <= self.config.near_bytes + 300);
    }

    /// What is due is in flight, if the consumer has room and the store works.
    fn check_nothing_due_is_left(&mut self) {
        let keeper = &self.keeper;
        if self.failures > 0
            || self.puts_fail
            || keeper.is_closing()
            || !keeper.has_room_to_fly()
            || self.config.near_rows <= keeper.flights.len()
            || self.config.near_bytes <= keeper.bytes()
            || !keeper.load_pause.is_over(self.now.steady)
            || !keeper.lease_pause.is_over(self.now.steady)
            || self.is_limited
            || self.has_its_rate()
            || self.store.is_paused().unwrap()
        {
            return;
        }
        for row in all(&mut self.store) {
            assert!(
                self.now.wall < row.deadline || keeper.flights.has(&row.name, row.number),
                "due and not handed out: {row:?}, {keeper:?}"
            );
        }
    }

    /// Whether consumers took, or may take, as many as they may at once.
    fn has_its_rate(&self) -> bool {
        let ready = self.outbox.len() + self.keeper.flights.counting;
        self.config.rate.is_some_and(|Rate { timeouts, per }| {
            let late = self.times_taken.iter().rev();
            timeouts <= ready + late.take_while(|&&taken| self.now.steady - taken <= per).count()
        })
    }
}

/// An outbox with many consumers.
fn received() -> Outbox {
    let mut outbox = Outbox::default();
    outbox.listeners = usize::MAX;
    outbox
}

fn all(store: &mut MemoryStore) -> Vec<Row> {
    let limit = Limit { rows: usize::MAX, bytes: usize::MAX };
    store.list(&Position::start(), u64::MAX, limit).unwrap().rows
}

/// By so much a clock is set back that was wrong.
const HOURS: u64 = 4 * 3_600_000;

/// The most names; few, so that calls meet.
const NAMES: u64 = 30;
