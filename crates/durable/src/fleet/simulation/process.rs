//! A process: its client of the fleet, which is the real one, and what callers ask of it.

use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Poll;

use fastrand::Rng;

use super::account::Done;
use super::database::{CLOCK, Database, lock_time};
use super::world::{Party, World};
use crate::Error;
use crate::fleet::map::{PARTITIONS, Reading, Route, partition};
use crate::fleet::shared::Core;
use crate::keeper::Command;
use crate::store::Change;
use crate::timer::{Ticket, Unattended};
use crate::values::lock;

pub(super) struct Process {
    /// Its clocks less the true time.
    pub(super) wall: i64,
    pub(super) steady: u64,
    pub(super) paused_until: u64,
    /// How many processes there were in its place.
    life: u64,
    client: Option<Arc<Core>>,
    timers: Arc<Mutex<Vec<Option<Unattended>>>>,
    tasks: Vec<u64>,
}

/// What is left of a process.
pub(super) struct Ended {
    pub(super) client: Option<Arc<Core>>,
    pub(super) tasks: Vec<u64>,
}

impl Process {
    pub(super) fn new(rng: &mut Rng) -> Self {
        Self {
            wall: rng.i64(0..3_600_000),
            steady: rng.u64(0..1_000_000),
            paused_until: 0,
            life: 0,
            client: None,
            timers: Arc::default(),
            tasks: Vec::new(),
        }
    }

    pub(super) fn end(&mut self) -> Ended {
        self.life += 1;
        self.paused_until = 0;
        Ended { client: self.client.take(), tasks: std::mem::take(&mut self.tasks) }
    }

    /// Returns its timers, by database.
    pub(super) fn timers(&self) -> MutexGuard<'_, Vec<Option<Unattended>>> {
        lock(&self.timers)
    }
}

impl World {
    /// Opens the client of a process, and lets callers ask.
    pub(super) fn open(self: &Rc<Self>, process: usize) {
        let timers: Vec<Option<Unattended>> = (0..self.size.databases).map(|_| None).collect();
        let timers = Arc::new(Mutex::new(timers));
        let (opened, config) = (Arc::clone(&timers), self.config());
        let open = move |at: usize| {
            let (timer, unattended) = Unattended::timer(&config, 1 << 20);
            lock(&opened)[at] = Some(unattended);
            Ok(timer)
        };
        let places = (0..self.size.databases).map(|at| format!("database {at}")).collect();
        let clock = self.runtime.clock.clone();
        let core = Core::new(places, 1 << 20, Box::new(open), Box::new(|_| ()), clock);
        let core = Arc::new(core);
        let life = {
            let process = &mut self.processes.borrow_mut()[process];
            process.client = Some(Arc::clone(&core));
            process.timers = timers;
            process.life
        };
        for at in 0..self.size.databases {
            let (world, core) = (Rc::clone(self), Arc::clone(&core));
            self.begin(process, async move { world.watch(process, at, &core).await });
        }
        let world = Rc::clone(self);
        self.begin(process, async move { world.ask(process, life, &core).await });
    }

    /// Begins a task that ends with the process.
    fn begin(&self, process: usize, task: impl Future<Output = ()> + 'static) {
        let task = self.runtime.spawn(task);
        let tasks = &mut self.processes.borrow_mut()[process].tasks;
        tasks.retain(|task| self.runtime.is_running(*task));
        tasks.push(task);
    }

    async fn goes_on(self: &Rc<Self>, process: usize) {
        loop {
            let until = self.processes.borrow()[process].paused_until;
            if until <= self.now() {
                return;
            }
            self.runtime.sleep_until(until).await;
        }
    }

    /// Gives the keepers what the client has asked of its timers.
    pub(super) fn deliver(self: &Rc<Self>, process: usize) {
        let is_idle = |client: &Arc<Core>| client.calls.is_idle();
        if self.processes.borrow()[process].client.as_ref().is_none_or(is_idle) {
            return;
        }
        for at in 0..self.size.databases {
            let commands: Vec<Command<Ticket>> = {
                let processes = self.processes.borrow();
                let timers = processes[process].timers();
                timers[at].iter().flat_map(Unattended::commands).collect()
            };
            if !commands.is_empty() {
                let seat = process * self.size.databases + at;
                self.seat(seat, |seat| seat.take_commands(commands));
                self.wake(seat, 0);
            }
        }
    }

    /// Looks where the partitions are, as a watcher does.
    async fn watch(self: &Rc<Self>, process: usize, at: usize, core: &Arc<Core>) {
        let mut wanted = core.wanted.listen();
        loop {
            let began = self.now();
            if self.look(process, at, core).await.is_err() {
                self.runtime.sleep(20).await;
            }
            self.deliver(process);
            let mut every = pin!(self.runtime.sleep_until(began + EVERY));
            std::future::poll_fn(|context| {
                let is_over = every.as_mut().poll(context).is_ready();
                match is_over || pin!(&mut wanted).poll(context).is_ready() {
                    true => Poll::Ready(()),
                    false => Poll::Pending,
                }
            })
            .await;
            self.runtime.sleep_until(began + SOONEST).await;
            // What is wanted from now on is not in the answer.
            wanted = core.wanted.listen();
            self.goes_on(process).await;
        }
    }

    async fn look(
        self: &Rc<Self>,
        process: usize,
        at: usize,
        core: &Arc<Core>,
    ) -> Result<(), Error> {
        let party = Party::Process(process);
        let reading = self.read(party, at).await;
        self.goes_on(process).await;
        let has_answered = reading.is_ok();
        let learned = core.learn(at, reading);
        assert!(learned.is_ok() || !has_answered, "{learned:?}");
        self.deliver(process);
        learned?;
        let cut_off = core.cut_off(at);
        if cut_off.is_empty() {
            return Ok(());
        }
        for (partition, from) in cut_off {
            self.travel(party, at, self.gives_up()).await?;
            self.account.borrow_mut().told.cut_off += 1;
            self.at(at, |it| it.arrive(partition, &from));
            self.travel(party, at, self.gives_up()).await?;
        }
        let reading = self.read(party, at).await;
        core.learn(at, reading)
    }

    fn gives_up(&self) -> u64 {
        self.now() + self.size.lease / 3
    }

    async fn read(self: &Rc<Self>, party: Party, at: usize) -> Result<Reading, Error> {
        let (began, gives_up) = (self.runtime.clock.now(), self.gives_up());
        self.travel(party, at, gives_up).await?;
        let homes = self.at(at, Database::homes);
        self.travel(party, at, gives_up).await?;
        Ok(Reading { homes, began, ended: self.runtime.clock.now() })
    }

    /// Lets callers of this process ask again and again.
    async fn ask(self: &Rc<Self>, process: usize, life: u64, core: &Arc<Core>) {
        while !self.is_quiet.get() {
            let pause = self.random(self.size.asks);
            self.runtime.sleep(pause).await;
            self.goes_on(process).await;
            let prefix = format!("{process}.{life}");
            let letter = if self.one_in(3) {
                self.account.borrow().letter(&prefix, self.random(3))
            } else {
                None
            };
            let is_dead = letter.is_some();
            let name = letter.unwrap_or_else(|| self.name(&prefix));
            let place = partition(&name) as u32;
            let (mut calls, began) = (Vec::new(), self.now());
            for _ in 0..=self.random(3) {
                let (change, call) = match self.random(4) {
                    0 if is_dead => (Change::drop_dead(&name), Done::Drop),
                    1 | 2 if is_dead => (Change::revive(&name, 0), Done::Revive),
                    0 => (Change::cancel(&name), Done::Cancel),
                    _ => self.put(&name),
                };
                calls.push((call, core.ask(change), Asked::new(self, process, place)));
            }
            self.deliver(process);
            let world = Rc::clone(self);
            self.begin(process, async move {
                for (call, receiver, _asked) in calls {
                    let answered = match receiver {
                        Ok(receiver) => receiver.await.unwrap_or(Err(Error::Closed)),
                        Err(error) => Err(error),
                    };
                    if let Err(error @ Error::Elsewhere { .. }) = &answered {
                        let is_found = world.is_settled.get() && world.reaches(process, place);
                        assert!(!is_found, "for long it is there, and reached: {error}");
                    }
                    world.note(place, world.now() - began);
                    world.account.borrow_mut().answer(&name, call, answered.ok());
                }
            });
        }
    }

    /// Each client is soon answered what it asks of the databases that it reaches, and what it has
    /// asked, and knows which partitions they have.
    pub(super) fn check_clients(self: &Rc<Self>) {
        let mut asked = Vec::new();
        for place in 0..PARTITIONS as u32 {
            // As a mover that gives up just before the partition is gone.
            if let Some(home) = self.has(place) {
                self.at(home, |it| {
                    let transaction = it.begin(lock_time(self.size.lease) * 2);
                    it.lock_out(transaction, place)
                });
            }
        }
        for process in 0..self.size.clients {
            let core = self.processes.borrow()[process].client.clone().expect("it is open");
            for place in (0..PARTITIONS).filter(|place| self.reaches(process, *place as u32)) {
                let is_there = |name: &Arc<str>| partition(name) == place;
                let prefix = format!("{process} at {}", self.now());
                let mut names = (0..).map(|number| format!("{prefix}/{number}").into());
                let name = names.find(is_there).expect("there is no end");
                let (change, call) = self.put(&name);
                asked.push((name, call, core.ask(change).expect("it has room")));
            }
            self.deliver(process);
        }
        self.runtime.run_until(self.now() + EVERY * 3);
        for (name, call, mut receiver) in asked {
            let found = receiver.try_recv().expect("the client is there");
            let found = found.expect("it is answered").expect("it is found");
            self.account.borrow_mut().answer(&name, call, Some(found));
        }
        for process in 0..self.size.clients {
            let core = self.processes.borrow()[process].client.clone().expect("it is open");
            for place in (0..PARTITIONS).filter(|place| self.reaches(process, *place as u32)) {
                let (route, home) = (lock(&core.map).route(place), self.home(place as u32));
                assert_eq!(route, Route::At(home), "partition {place}, as process {process} knows");
            }
        }
        let asked = self.asked.borrow();
        let waits = asked.values().find(|(process, place)| self.reaches(*process, *place));
        assert_eq!(waits, None, "a call waits of this process and partition");
    }

    /// Returns a name in one of the partitions that are moved.
    fn name(&self, prefix: &str) -> Arc<str> {
        loop {
            let name = format!("{prefix}/{}", self.random(self.size.names));
            if partition(&name) < self.size.hot {
                return name.into();
            }
        }
    }

    pub(super) fn put(&self, name: &Arc<str>) -> (Change, Done) {
        // By no clock of a database in particular.
        let deadline = self.now() + CLOCK + 200 + self.random(4_000);
        let number = self.account.borrow_mut().ask(name, deadline);
        (Change::put(name, deadline, &number.to_le_bytes()), Done::Put(number))
    }
}

/// A call that has no answer.
struct Asked {
    world: Rc<World>,
    number: u64,
}

impl Asked {
    fn new(world: &Rc<World>, process: usize, partition: u32) -> Self {
        let number = world.number();
        world.asked.borrow_mut().insert(number, (process, partition));
        Self { world: Rc::clone(world), number }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.world.asked.borrow_mut().remove(&self.number);
    }
}

/// As the watcher of a client.
const EVERY: u64 = 1_000;
const SOONEST: u64 = 50;
