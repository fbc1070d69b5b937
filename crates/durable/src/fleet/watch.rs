//! The threads that look where the partitions are, one for each database: one that hangs holds up
//! no other.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use event_listener::Listener;

use super::map::Reading;
use super::shared::{Core, at_once, together};
use crate::error::caught;
use crate::values::lock;
use crate::{Error, PostgresStore};

struct Watcher {
    core: Arc<Core>,
    at: usize,
    store: PostgresStore,
    /// The error that was told last.
    told: Option<String>,
}

/// Asks each database once, and starts the threads that ask again.
pub(super) fn start(core: &Arc<Core>, stores: Vec<PostgresStore>) -> Result<(), Error> {
    let stores: Vec<Mutex<PostgresStore>> = stores.into_iter().map(Mutex::new).collect();
    let read = at_once(stores.len(), |at| read(&mut lock(&stores[at])));
    let mut silent = Vec::new();
    for (at, read) in read.into_iter().enumerate() {
        let has_answered = read.is_ok();
        match core.learn(at, read) {
            Err(error) if has_answered => return Err(error),
            Err(error) => silent.push(Err(error)),
            Ok(()) => {}
        }
    }
    if silent.len() == stores.len() {
        return together("connect to any database of the fleet", silent).map(|_: Vec<()>| ());
    }
    for (at, store) in stores.into_iter().enumerate() {
        let store = store.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
        let watcher = Watcher { core: Arc::clone(core), at, store, told: None };
        let thread = thread::Builder::new().name("tickwheel-durable/fleet".to_owned());
        let started = thread.spawn(|| watcher.run());
        match started {
            Ok(thread) => core.threads.add(thread.thread().id()),
            Err(error) => {
                core.abandon();
                return Err(Error::store("start a thread of the fleet", error));
            }
        }
    }
    Ok(())
}

fn read(store: &mut PostgresStore) -> Result<Reading, Error> {
    let began = Instant::now();
    let homes = caught("read where the partitions are", || store.homes())?;
    store.makes_no_tables();
    Ok(Reading { homes: Arc::new(homes), began, ended: Instant::now() })
}

impl Watcher {
    fn run(mut self) {
        let mut wanted = self.core.wanted.listen();
        loop {
            let began = Instant::now();
            wanted.wait_timeout(EVERY);
            thread::sleep(SOONEST.saturating_sub(began.elapsed()));
            // What is wanted from now on is not in the answer.
            wanted = self.core.wanted.listen();
            if self.core.has_ended() {
                return;
            }
            match self.look() {
                Ok(()) => self.told = None,
                Err(error) => self.tell(&error),
            }
        }
    }

    /// Looks where the partitions are, and ends moves to this database that were cut off.
    fn look(&mut self) -> Result<(), Error> {
        let read_first = read(&mut self.store);
        let is_told = read_first.is_err() && self.core.members[self.at].timer.get().is_some();
        let learned = self.core.learn(self.at, read_first);
        // The timer of the database tells its errors.
        if is_told {
            return Ok(());
        }
        learned?;
        let cut_off = self.core.cut_off(self.at);
        if cut_off.is_empty() {
            return Ok(());
        }
        for (partition, from) in cut_off {
            let arrived = self.store.arrive(partition, &from);
            arrived.map_err(|error| error.at(&self.core.members[self.at].place))?;
        }
        self.core.learn(self.at, read(&mut self.store))
    }

    /// Tells an error, unless it was the last that was told.
    fn tell(&mut self, error: &Error) {
        let words = Some(error.to_string());
        if self.told != words {
            self.told = words;
            (self.core.tell)(error);
        }
    }
}

/// How often a database is asked.
const EVERY: Duration = Duration::from_secs(1);

/// How often at most, whatever is wanted.
const SOONEST: Duration = Duration::from_millis(50);
