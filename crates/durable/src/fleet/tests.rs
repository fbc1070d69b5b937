//! A fleet on stores in memory, whose map is told by the test.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use tickwheel::MonotonicClock;

use crate::block_on::block_on;
use crate::keeper::{Cancelled, Scheduled};
use crate::store::postgres::HomeState;
use crate::store::{
    Change, Dead, DeadPage, Done, Leases, Limit, Loaded, MemoryStore, Page, Position, Row,
    Settlement, Start, Store,
};
use crate::values::lock;
use crate::{DurableTimer, Error};

use super::map::Reading;
use super::map::tests::homes;
use super::shared::Core;
use super::{Fleet, FleetCommit, Owner};

/// What a database says of all partitions: their state, the database that they go to or come from,
/// and the number of the move. `None`: it does not answer.
type Said = Option<(HomeState, Option<u128>, u64)>;

/// A database in memory. All partitions are in one state.
#[derive(Clone, Default)]
struct Side {
    store: MemoryStore,
    state: Arc<Mutex<Said>>,
    /// So many changes are refused, whatever the state is.
    refuses: Arc<AtomicUsize>,
    /// While it is locked, nothing is committed.
    gate: Arc<Mutex<()>>,
    panics: Arc<AtomicBool>,
    refuses_pause: Arc<AtomicBool>,
}

impl Side {
    fn set(&self, state: HomeState, other: Option<u128>, moves: u64) {
        *lock(&self.state) = Some((state, other, moves));
    }

    /// Puts a timeout that is due.
    fn put(&self, name: &str) {
        self.store.clone().commit(&[], &[Change::put(name, 0, b"")]).unwrap();
    }

    fn put_far(&self, name: &str) {
        self.store.clone().commit(&[], &[Change::put(name, u64::MAX >> 1, b"")]).unwrap();
    }

    fn names(&self) -> Vec<String> {
        let limit = Limit { rows: 100, bytes: 1 << 20 };
        let page = self.store.clone().list(&Position::start(), u64::MAX, limit).unwrap();
        page.rows.iter().map(|row| row.name.to_string()).collect()
    }
}

impl Store for Side {
    fn lease(&mut self, wanted: bool, given_back: &[u32]) -> Result<Leases, Error> {
        self.store.lease(wanted, given_back)
    }

    fn load(&mut self, from: &[Start], until: u64, limit: Limit) -> Result<Loaded, Error> {
        self.store.load(from, until, limit)
    }

    fn commit(&mut self, settlements: &[Settlement], changes: &[Change]) -> Result<Done, Error> {
        drop(lock(&self.gate));
        // The switch waits for it.
        let state = lock(&self.state);
        let is_here = state.is_some_and(|(state, ..)| state.is_here());
        let mut done = self.store.commit(settlements, &[])?;
        for change in changes {
            let left = self.refuses.load(Ordering::SeqCst);
            self.refuses.store(left.saturating_sub(1), Ordering::SeqCst);
            done.changed.extend(match is_here && left == 0 {
                true => self.store.commit(&[], std::slice::from_ref(change))?.changed,
                false => vec![Err(Error::Elsewhere {
                    name: change.name.to_string(),
                    place: "elsewhere".to_owned(),
                })],
            });
        }
        Ok(done)
    }

    fn get(&mut self, name: &str) -> Result<Option<Row>, Error> {
        match lock(&self.state).is_some_and(|(state, ..)| state.is_here()) {
            true => self.store.get(name),
            false => Err(Error::Elsewhere { name: name.to_owned(), place: "elsewhere".to_owned() }),
        }
    }

    fn list(&mut self, after: &Position, until: u64, limit: Limit) -> Result<Page, Error> {
        self.store.list(after, until, limit)
    }

    fn count(&mut self) -> Result<u64, Error> {
        self.store.count()
    }

    fn list_dead(&mut self, after: &str, limit: Limit) -> Result<DeadPage, Error> {
        self.store.list_dead(after, limit)
    }

    fn get_dead(&mut self, name: &str) -> Result<Option<Dead>, Error> {
        self.store.get_dead(name)
    }

    fn pause(&mut self, pauses: bool) -> Result<(), Error> {
        match self.refuses_pause.load(Ordering::SeqCst) {
            true => Err(Error::store("pause the database", "it does not want to")),
            false => self.store.pause(pauses),
        }
    }
}

struct World {
    fleet: Fleet,
    sides: Vec<Side>,
}

impl World {
    /// Makes a fleet in whose first database all partitions are.
    fn new(count: usize) -> Self {
        let sides: Vec<Side> = (0..count).map(|_| Side::default()).collect();
        sides[0].set(HomeState::Here, None, 0);
        for side in &sides[1..] {
            side.set(HomeState::Gone, Some(1), 0);
        }
        let opened = sides.clone();
        let open = move |at: usize| {
            let side = opened[at].clone();
            let panics = Arc::clone(&side.panics);
            let clock = move || {
                assert!(!panics.load(Ordering::SeqCst), "no time");
                SystemTime::now()
            };
            DurableTimer::builder().clock(clock).open_store(side)
        };
        let places = (1..=count).map(|id| format!("host-{id}:5432/timers")).collect();
        let core = Core::new(places, 1 << 20, Box::new(open), Box::new(|_| ()), MonotonicClock);
        let fleet = Fleet { owner: Arc::new(Owner { core: Arc::new(core) }) };
        Self { fleet, sides }
    }

    /// Makes such a fleet. All databases have answered.
    fn answered(count: usize) -> Self {
        let world = Self::new(count);
        (0..count).for_each(|at| world.answer(at).unwrap());
        world
    }

    fn reading(&self, at: usize) -> Reading {
        let began = Instant::now();
        let state = lock(&self.sides[at].state).expect("it has one");
        let homes = Arc::new(homes(at as u128 + 1, |_| state));
        Reading { homes, began, ended: Instant::now() }
    }

    fn answer(&self, at: usize) -> Result<(), Error> {
        self.fleet.core().learn(at, Ok(self.reading(at)))
    }

    fn be_silent(&self, at: usize) {
        let silent = Error::store("read the partitions of the database", "no route to host");
        self.fleet.core().learn(at, Err(silent)).unwrap_err();
    }

    /// Moves all from one database to another, up to the switch.
    fn switch(&self, from: usize, to: usize) {
        let (old, new) = (&self.sides[from], &self.sides[to]);
        let mut old_state = lock(&old.state);
        let moves = old_state.expect("it has one").2;
        let left: Vec<Change> = new.names().iter().map(|name| Change::cancel(name)).collect();
        new.store.clone().commit(&[], &left).unwrap();
        old.names().iter().for_each(|name| new.put_far(name));
        *old_state = Some((HomeState::Gone, Some(to as u128 + 1), moves + 1));
        new.set(HomeState::Coming, Some(from as u128 + 1), moves);
    }

    fn arrive(&self, to: usize) {
        let (_, other, moves) = lock(&self.sides[to].state).expect("it has one");
        self.sides[to].set(HomeState::Here, other, moves + 1);
    }

    /// Lets all databases answer again and again until the commit completes.
    fn done<T>(&self, mut commit: FleetCommit<T>) -> Result<T, Error> {
        let began = Instant::now();
        loop {
            (0..self.sides.len()).for_each(|at| self.answer(at).unwrap());
            if let Some(done) = commit.wait_timeout(Duration::from_millis(5)) {
                return done;
            }
            assert!(began.elapsed() < LONG, "no answer");
        }
    }

    fn schedule(&self, name: &str) -> FleetCommit<Scheduled> {
        self.fleet.schedule(name, far(), b"").unwrap()
    }

    fn cancel(&self, name: &str) -> FleetCommit<Cancelled> {
        self.fleet.cancel(name).unwrap()
    }
}

fn far() -> SystemTime {
    SystemTime::now() + Duration::from_secs(1_000_000)
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < LONG, "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn what_is_refused_is_made_where_the_name_went() {
    let world = World::answered(2);
    assert_eq!(world.schedule("a").wait().unwrap(), Scheduled::New);
    world.switch(0, 1);
    let (moved, cancelled) = (world.schedule("a"), world.cancel("b"));
    world.arrive(1);
    thread::scope(|scope| {
        let got = scope.spawn(|| world.fleet.get("a").unwrap());
        until("it answers", || {
            (0..2).for_each(|at| world.answer(at).unwrap());
            got.is_finished()
        });
        assert_eq!(got.join().unwrap().expect("it is pending").name(), "a");
    });
    assert_eq!(world.done(moved).unwrap(), Scheduled::Moved);
    assert_eq!(world.done(cancelled).unwrap(), Cancelled::Unknown);
    assert_eq!(world.schedule("c").wait().unwrap(), Scheduled::New, "the map is known");
    assert_eq!(world.sides[0].names(), ["a"], "what was left behind");
    let all = world.fleet.iter().map(|pending| pending.unwrap().name().to_owned());
    let mut all: Vec<String> = all.collect();
    all.sort();
    assert_eq!(all, ["a", "c"], "what was left behind is not read");
}

#[test]
fn the_calls_of_a_name_keep_their_order_though_the_first_is_refused() {
    for refuses in 0..5 {
        let world = World::answered(2);
        let gate = lock(&world.sides[0].gate);
        let scheduled = world.schedule("a");
        world.sides[0].refuses.store(refuses, Ordering::SeqCst);
        let (cancelled, again) = (world.cancel("a"), world.schedule("a"));
        let last = world.cancel("a");
        drop(gate);
        assert_eq!(world.done(scheduled).unwrap(), Scheduled::New);
        assert_eq!(world.done(cancelled).unwrap(), Cancelled::Cancelled);
        assert_eq!(world.done(again).unwrap(), Scheduled::New);
        assert_eq!(world.done(last).unwrap(), Cancelled::Cancelled);
        assert!(world.sides[0].names().is_empty());
    }
}

#[test]
fn the_calls_of_a_name_keep_their_order_while_it_goes_to_and_fro() {
    let world = World::answered(2);
    let mut calls = Vec::new();
    for round in 0..50 {
        let (from, to) = (round % 2, (round + 1) % 2);
        calls.push((world.schedule("a"), world.cancel("a")));
        world.switch(from, to);
        calls.push((world.schedule("a"), world.cancel("a")));
        world.answer(round % 2).unwrap();
        world.arrive(to);
        world.answer(round / 2 % 2).unwrap();
    }
    for (scheduled, cancelled) in calls {
        assert_eq!(world.done(scheduled).unwrap(), Scheduled::New);
        assert_eq!(world.done(cancelled).unwrap(), Cancelled::Cancelled);
    }
}

#[test]
fn a_name_of_a_database_that_was_not_given_is_refused_with_its_place() {
    let world = World::answered(2);
    world.switch(0, 1);
    world.arrive(1);
    world.sides[1].set(HomeState::Gone, Some(4), 2);
    let refused = world.schedule("a");
    let error = world.done(refused).unwrap_err().to_string();
    let words = "cannot reach host-4:5432/timers, which has \"a\": the fleet was opened without";
    assert!(error.starts_with(words), "{error}");
}

#[test]
fn one_silent_database_holds_up_its_names_only_until_it_answers() {
    let world = World::new(2);
    world.sides[0].set(HomeState::Gone, Some(2), 1);
    world.sides[1].set(HomeState::Here, None, 1);
    world.sides[1].put("due");
    world.answer(0).unwrap();
    world.be_silent(1);
    let databases = world.fleet.databases();
    assert!(databases[0].error.is_none() && databases[0].partitions.is_empty());
    let error = databases[1].error.as_ref().expect("it is silent").to_string();
    assert!(error.contains("host-2:5432/timers") && error.contains("no route"), "{error}");
    let paused = world.fleet.pause().unwrap_err().to_string();
    assert!(paused.contains("host-2:5432/timers"), "{paused}");
    world.fleet.resume().unwrap_err();
    world.fleet.len().unwrap_err();
    let items: Vec<bool> = world.fleet.iter().map(|item| item.is_ok()).collect();
    assert_eq!(items, [false], "it is told that one cannot be read");

    let scheduled = world.schedule("a");
    let received = thread::scope(|scope| {
        let received = scope.spawn(|| world.fleet.recv_timeout(LONG).unwrap());
        world.be_silent(1);
        world.answer(1).unwrap();
        received.join().unwrap().expect("it is due")
    });
    assert_eq!(received.name(), "due");
    received.ack();
    assert_eq!(scheduled.wait().unwrap(), Scheduled::New);
    assert_eq!(world.fleet.databases()[1].partitions.len(), 64);
    assert!(world.fleet.databases()[1].error.is_none());
}

#[test]
fn a_database_that_cannot_be_of_the_fleet_is_refused_and_hands_out_nothing() {
    let world = World::new(2);
    world.sides[1].set(HomeState::Here, None, 0);
    world.sides[1].put("due");
    world.answer(0).unwrap();
    let error = world.answer(1).unwrap_err().to_string();
    for part in ["host-1:5432/timers", "host-2:5432/timers", "`tickwheel-durable fleet join`"] {
        assert!(error.contains(part), "{error}");
    }
    let mut same = world.reading(1);
    same.homes = Arc::new(homes(1, |_| (HomeState::Gone, Some(2), 0)));
    let error = world.fleet.core().learn(1, Ok(same)).unwrap_err().to_string();
    for part in ["host-1:5432/timers", "host-2:5432/timers", "the same database"] {
        assert!(error.contains(part), "{error}");
    }
    assert!(world.fleet.try_recv().unwrap().is_none());
    assert_eq!(world.fleet.stats().len(), 1);
    assert_eq!(world.schedule("a").wait().unwrap(), Scheduled::New);
    assert_eq!(world.sides[0].names(), ["a"]);

    // It has joined meanwhile.
    world.sides[1].set(HomeState::Gone, Some(1), 0);
    world.answer(1).unwrap();
    assert_eq!(world.fleet.stats().len(), 2);
}

#[test]
fn databases_take_turns_where_both_have_something_due() {
    let world = World::answered(2);
    assert!(world.fleet.try_recv().unwrap().is_none());
    assert!(world.fleet.try_recv().unwrap().is_none());
    world.sides[1].set(HomeState::Here, None, 1);
    let (fleet, other) = (&world.fleet, world.fleet.core().timer(1).unwrap());
    for name in 0..6 {
        let now = SystemTime::now();
        fleet.schedule(&format!("a{name}"), now, b"").unwrap().wait().unwrap();
        other.schedule(&format!("b{name}"), now, b"").unwrap().wait().unwrap();
    }
    until("all wait", || world.fleet.stats().iter().all(|(_, stats)| stats.waiting == 6));
    let taken: Vec<_> = (0..4).map(|_| world.fleet.recv().unwrap().expect("due")).collect();
    let of_first = taken.iter().filter(|due| due.name().starts_with('a')).count();
    assert_eq!(of_first, 2);
    taken.into_iter().for_each(crate::Due::ack);
}

#[test]
fn a_future_that_is_dropped_loses_nothing() {
    let world = World::answered(3);
    for name in 0..20 {
        let waits: Vec<_> = (0..3).map(|_| world.fleet.next()).collect();
        let mut waits: Vec<_> = waits.into_iter().map(Box::pin).collect();
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        for wait in &mut waits {
            assert!(wait.as_mut().poll(&mut context).is_pending());
        }
        let at = SystemTime::now();
        world.fleet.schedule(&name.to_string(), at, b"").unwrap().wait().unwrap();
        let last = waits.pop();
        drop(waits);
        let due = block_on(last.expect("three wait")).unwrap().expect("it is due");
        assert_eq!(due.name(), name.to_string());
        due.ack();
    }
}

#[test]
fn closing_makes_all_that_was_asked_for_and_wakes_those_who_wait() {
    for closes in [true, false] {
        let world = World::answered(2);
        let calls: Vec<_> = (0..20).map(|_| (world.schedule("a"), world.cancel("a"))).collect();
        let last = world.schedule("a");
        let World { fleet, sides } = world;
        if closes {
            let clone = fleet.clone();
            let waits = thread::spawn(move || clone.recv());
            fleet.clone().close().unwrap();
            assert!(waits.join().unwrap().unwrap().is_none());
            assert!(matches!(fleet.schedule("b", far(), b""), Err(Error::Closed)));
            assert!(matches!(fleet.get("a"), Err(Error::Closed)));
            assert!(matches!(fleet.pause(), Err(Error::Closed)));
            assert!(fleet.try_recv().unwrap().is_none());
            assert!(matches!(fleet.close(), Err(Error::Closed)));
        } else {
            drop(fleet);
        }
        for (scheduled, cancelled) in calls {
            assert_eq!(scheduled.wait().unwrap(), Scheduled::New);
            assert_eq!(cancelled.wait().unwrap(), Cancelled::Cancelled);
        }
        assert_eq!(last.wait().unwrap(), Scheduled::New);
        assert_eq!(sides[0].names(), ["a"]);
    }
}

#[test]
fn closing_waits_for_the_consumers_of_all_databases() {
    let world = World::answered(2);
    world.fleet.schedule("a", SystemTime::now(), b"").unwrap().wait().unwrap();
    let due = world.fleet.recv().unwrap().expect("it is due");
    let World { fleet, sides } = world;
    let closing = thread::spawn(move || fleet.close());
    thread::sleep(Duration::from_millis(50));
    assert!(!closing.is_finished(), "a consumer has one");
    due.ack();
    closing.join().unwrap().unwrap();
    assert!(sides[0].names().is_empty());
}

#[test]
fn a_closing_that_is_given_up_ends_without_its_consumers() {
    let world = World::answered(2);
    world.fleet.schedule("a", SystemTime::now(), b"").unwrap().wait().unwrap();
    let due = world.fleet.recv().unwrap().expect("it is due");
    let World { fleet, sides } = world;
    let weak = Arc::downgrade(fleet.core());
    let mut closing = Box::pin(fleet.close_async());
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(closing.as_mut().poll(&mut context).is_pending());
    drop(closing);
    until("it has ended", || weak.upgrade().is_none());
    drop(due);
    assert_eq!(sides[0].names(), ["a"]);
}

#[test]
fn what_fails_at_one_database_is_told_with_its_place_and_done_at_the_others() {
    let world = World::answered(2);
    world.sides[0].refuses_pause.store(true, Ordering::SeqCst);
    let error = world.fleet.pause().unwrap_err().to_string();
    let words = "cannot pause the database at host-1:5432/timers: it does not want to";
    assert_eq!(error, words);
    assert!(world.sides[1].store.clone().is_paused().unwrap());
    world.sides[1].refuses_pause.store(true, Ordering::SeqCst);
    let error = world.fleet.pause().unwrap_err().to_string();
    assert!(error.contains("host-1:5432/timers: it does not") && error.contains("; "), "{error}");
    assert!(error.contains("host-2:5432/timers: it does not"), "{error}");
}

#[test]
fn the_panic_of_one_timer_is_an_error_that_names_its_database() {
    let world = World::answered(2);
    world.sides[1].panics.store(true, Ordering::SeqCst);
    let began = Instant::now();
    let error = loop {
        match world.fleet.recv_timeout(Duration::from_millis(10)) {
            Err(error) => break error,
            Ok(taken) => assert!(taken.is_none() && began.elapsed() < LONG),
        }
    };
    assert!(matches!(&error, Error::Panicked { message, .. } if message == "no time"), "{error}");
    assert!(error.to_string().contains("host-2:5432/timers"), "{error}");
    assert_eq!(world.schedule("a").wait().unwrap(), Scheduled::New, "the other goes on");
}

#[test]
fn more_than_may_wait_is_refused_and_leaves_its_place_when_it_is_answered() {
    let world = World::answered(2);
    world.switch(0, 1);
    (0..2).for_each(|at| world.answer(at).unwrap());
    let payload = vec![0; 60_000];
    let mut waiting = Vec::new();
    let error = loop {
        let name = waiting.len().to_string();
        match world.fleet.schedule(&name, far(), &payload) {
            Ok(commit) => waiting.push(commit),
            Err(error) => break error,
        }
        assert!(waiting.len() < 1_000);
    };
    assert!(matches!(error, Error::Backlog { .. }), "{error}");
    world.arrive(1);
    for commit in waiting {
        assert_eq!(world.done(commit).unwrap(), Scheduled::New);
    }
    assert_eq!(world.schedule("a").wait().unwrap(), Scheduled::New);
}

#[test]
fn what_waits_for_one_database_takes_no_room_from_the_others() {
    let world = World::new(2);
    let began = Instant::now();
    for at in 0..2 {
        world.sides[at].set(HomeState::Here, None, 1);
        let homes = homes(at as u128 + 1, |partition| match partition % 2 == at {
            true => (HomeState::Here, None, 1),
            false => (HomeState::Gone, Some(2 - at as u128), 1),
        });
        let reading = Reading { homes: Arc::new(homes), began, ended: began };
        world.fleet.core().learn(at, Ok(reading)).unwrap();
    }
    let (even, odd) = ("order-17/payment", "a");
    let [of_even, of_odd] = [even, odd].map(super::map::partition);
    assert_eq!((of_even % 2, of_odd % 2), (0, 1));
    let hangs = lock(&world.sides[1].gate);
    let payload = vec![0; 60_000];
    let mut waiting = Vec::new();
    let error = loop {
        match world.fleet.schedule(odd, far(), &payload) {
            Ok(commit) => waiting.push(commit),
            Err(error) => break error,
        }
        assert!(waiting.len() < 1_000);
    };
    assert!(matches!(error, Error::Backlog { .. }), "{error}");
    // The second waits for the first.
    let gate = lock(&world.sides[0].gate);
    let calls = [world.schedule(even), world.schedule(even)];
    drop((gate, hangs));
    assert_eq!(calls.map(|call| call.wait().unwrap()), [Scheduled::New, Scheduled::Moved]);
    for call in waiting {
        call.wait().unwrap();
    }
}

#[test]
fn callers_who_were_many_leave_no_memory_behind() {
    let world = World::answered(1);
    let gate = lock(&world.sides[0].gate);
    let of_one = (0..).map(|n| n.to_string()).filter(|name| super::map::partition(name) == 0);
    let put = |name: String| world.fleet.schedule(&name, SystemTime::now(), b"").unwrap();
    let commits: Vec<_> = of_one.take(3_500).map(put).collect();
    let room = || lock(&world.fleet.core().calls.lanes[0]).capacity();
    assert!(3_500 <= room());
    drop(gate);
    for commit in commits {
        commit.wait().unwrap();
    }
    // The last is answered before its lane is left.
    until("all are answered", || world.fleet.core().calls.is_idle());
    assert!(room() <= 1_000, "{}", room());
}

/// No test waits for so long unless it fails.
const LONG: Duration = Duration::from_secs(60);
