//! What the clones of a fleet, its commits and its threads share.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{self, ThreadId};
use std::time::Instant;

use event_listener::{Event, Listener};
use tickwheel::Clock;

use super::calls::{Calls, PATIENCE};
use super::map::{Map, Reading, Route, contradiction, here};
use crate::store::postgres::Homes;
use crate::timer::check_thread;
use crate::values::lock;
use crate::{DurableTimer, Error};

/// Opens the timer of the database at this place of the list.
type Open = Box<dyn Fn(usize) -> Result<DurableTimer, Error> + Send + Sync>;

/// Tells an error that no caller hears.
type Tell = Box<dyn Fn(&Error) + Send + Sync>;

type Panic = Box<dyn std::any::Any + Send>;

pub(super) struct Core {
    pub(super) members: Vec<Member>,
    open: Open,
    pub(super) tell: Tell,
    /// Tells how long something is waited for.
    pub(super) clock: Box<dyn Clock>,
    pub(super) map: Mutex<Map>,
    pub(super) calls: Calls,
    pub(super) threads: Arc<Threads>,
    /// A timer was opened, or the fleet is closed.
    pub(super) changed: Event,
    /// A database has answered, or has not.
    pub(super) learned: Event,
    /// A newer map is wanted, or the fleet has ended.
    pub(super) wanted: Event,
    /// Nothing more is asked for or handed out.
    is_closed: AtomicBool,
    /// No call waits for a newer map any more, and no timer is opened.
    has_ended: AtomicBool,
    /// Closing does not wait for consumers.
    hurries: AtomicBool,
    /// Whose turn it is to be first.
    turn: AtomicUsize,
    /// The process that has the threads.
    process: u32,
}

/// One database of a fleet.
pub(super) struct Member {
    /// What it is called.
    pub(super) place: String,
    /// Its timer, from its first answer on.
    pub(super) timer: OnceLock<DurableTimer>,
    /// Why nothing was learned of it at the last look.
    error: Mutex<Option<Error>>,
}

impl Core {
    pub(super) fn new(
        places: Vec<String>,
        backlog: usize,
        open: Open,
        tell: Tell,
        clock: impl Clock,
    ) -> Self {
        let map = Mutex::new(Map::new(places.len()));
        let calls = Calls::new(places.len(), backlog);
        let member = |place| Member { place, timer: OnceLock::new(), error: Mutex::default() };
        Self {
            members: places.into_iter().map(member).collect(),
            open,
            tell,
            clock: Box::new(clock),
            map,
            calls,
            threads: Arc::default(),
            changed: Event::new(),
            learned: Event::new(),
            wanted: Event::new(),
            is_closed: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
            hurries: AtomicBool::new(false),
            turn: AtomicUsize::new(0),
            process: std::process::id(),
        }
    }

    /// Notes what a database answered, or that it did not. A database that cannot be of this fleet
    /// is an error too. The first answer opens its timer.
    pub(super) fn learn(
        self: &Arc<Self>,
        at: usize,
        read: Result<Reading, Error>,
    ) -> Result<(), Error> {
        let member = &self.members[at];
        let mut map = lock(&self.map);
        let is_open = member.timer.get().is_some();
        let learned = read.and_then(|reading| {
            self.check_member(&map, at, &reading)?;
            if !is_open {
                self.open_timer(at)?;
            }
            map.put(at, reading);
            Ok(())
        });
        let learned = learned.map_err(|error| error.at(&member.place));
        *lock(&member.error) = learned.clone().err();
        drop(map);
        if !is_open && learned.is_ok() {
            self.changed.notify(usize::MAX);
        }
        self.learned.notify(usize::MAX);
        self.retry();
        learned
    }

    /// Refuses a database that was given twice, or is of no fleet with the others.
    fn check_member(&self, map: &Map, at: usize, reading: &Reading) -> Result<(), Error> {
        let place = &self.members[at].place;
        let here = here(reading);
        for (member, known) in self.members.iter().zip(&map.readings) {
            let other = &member.place;
            let Some(known) = known.as_ref().filter(|_| !std::ptr::eq(place, other)) else {
                continue;
            };
            if known.homes.id == reading.homes.id {
                let why = format!("{other} is the same database: give the URL of each once");
                return Err(Error::store(format!("use {place}"), why));
            }
            if let Some(partition) = contradiction(&here, reading, known) {
                return Err(Error::store(
                    format!("use {place} and {other} as one fleet"),
                    format!(
                        "both have partition {partition}: let a new database share the names of \
                         the other by `tickwheel-durable fleet join`"
                    ),
                ));
            }
        }
        Ok(())
    }

    fn open_timer(&self, at: usize) -> Result<(), Error> {
        if self.has_ended() {
            return Err(Error::Closed);
        }
        let timer = (self.open)(at)?;
        self.threads.add(timer.thread_id());
        // The map is locked, so nobody else has set it.
        let _ = self.members[at].timer.set(timer);
        Ok(())
    }

    /// Returns the partitions whose move to this database was cut off after its switch.
    pub(super) fn cut_off(&self, at: usize) -> Vec<(u32, Arc<Homes>)> {
        lock(&self.map).cut_off(at)
    }

    /// Whether a name that is read in this database is not that of another: what is copied, or left
    /// behind by a move, is not.
    pub(super) fn has(&self, at: usize, partition: usize) -> bool {
        match lock(&self.map).route(partition) {
            Route::At(home) | Route::Coming(home) => home == at,
            Route::Beyond(_) | Route::Unknown => true,
        }
    }

    /// Refuses if the fleet is closed, or the threads are those of another process.
    pub(super) fn check(&self) -> Result<(), Error> {
        self.check_process()?;
        if self.is_closed() { Err(Error::Closed) } else { Ok(()) }
    }

    pub(super) fn check_process(&self) -> Result<(), Error> {
        if self.process == std::process::id() { Ok(()) } else { Err(Error::Forked) }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    pub(super) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::SeqCst)
    }

    /// Returns why nothing is known of this database at this moment.
    pub(super) fn error(&self, at: usize) -> Option<Error> {
        lock(&self.members[at].error).clone()
    }

    /// Returns the timer of this database.
    pub(super) fn timer(&self, at: usize) -> Result<&DurableTimer, Error> {
        self.members[at].timer.get().ok_or_else(|| {
            let place = &self.members[at].place;
            let silent = || Error::store(format!("reach {place}"), "it has not answered yet");
            self.error(at).unwrap_or_else(silent)
        })
    }

    /// Returns the timers that are open, each time with another one first.
    pub(super) fn in_turn(&self) -> impl Iterator<Item = (usize, &DurableTimer)> {
        let count = self.members.len();
        let first = self.turn.fetch_add(1, Ordering::Relaxed) % count;
        let places = (first..count).chain(0..first);
        places.filter_map(move |at| Some((at, self.members[at].timer.get()?)))
    }

    /// Does this with the timers of all databases at once. What failed is told together.
    pub(super) fn at_all<R: Send>(
        &self,
        doing: &str,
        work: impl Fn(&DurableTimer) -> Result<R, Error> + Sync,
    ) -> Result<Vec<R>, Error> {
        let work = |at: usize| work(self.timer(at)?);
        let done = at_once(self.members.len(), work);
        let places = self.members.iter().map(|member| &member.place);
        let done = done.into_iter().zip(places);
        together(doing, done.map(|(done, place)| done.map_err(|error| error.at(place))))
    }

    /// Lets nothing more be asked for or handed out. Returns whether that was allowed before.
    pub(super) fn shut(&self) -> bool {
        let was_open = !self.is_closed.swap(true, Ordering::SeqCst);
        self.changed.notify(usize::MAX);
        was_open
    }

    /// Closes all timers when what was asked for is done, or after a while.
    pub(super) fn close(self: &Arc<Self>) -> Result<(), Error> {
        self.drain();
        self.end();
        let hurries = self.hurries.load(Ordering::SeqCst);
        let closed = at_once(self.members.len(), |at| match self.members[at].timer.get() {
            Some(timer) if hurries => {
                timer.stop();
                Ok(())
            }
            Some(timer) => timer.clone().close().map_err(|error| error.at(&self.members[at].place)),
            None => Ok(()),
        });
        together("close all timers of the fleet", closed).map(drop)
    }

    /// Ends a fleet of which no clone is left.
    pub(super) fn leave(self: &Arc<Self>) {
        if !self.shut() {
            // Another thread closes it. It may wait for consumers already, or not yet.
            self.hurries.store(true, Ordering::SeqCst);
            if self.has_ended() {
                self.give_up();
            }
        } else if self.threads.check().is_ok() {
            self.hurries.store(true, Ordering::SeqCst);
            if let Err(error) = self.close() {
                (self.tell)(&error);
            }
        } else {
            self.abandon();
        }
    }

    /// Ends all, and waits for nothing.
    pub(super) fn abandon(self: &Arc<Self>) {
        self.end();
        self.give_up();
    }

    fn give_up(&self) {
        self.members.iter().filter_map(|member| member.timer.get()).for_each(DurableTimer::give_up);
    }

    fn drain(&self) {
        let until = Instant::now() + PATIENCE;
        loop {
            let idle = self.calls.idle.listen();
            if self.calls.is_idle() || idle.wait_deadline(until).is_none() {
                return;
            }
        }
    }

    fn end(self: &Arc<Self>) {
        self.has_ended.store(true, Ordering::SeqCst);
        // A timer that is being opened is there then.
        drop(lock(&self.map));
        self.wanted.notify(usize::MAX);
        self.refuse_parked();
    }
}

/// The threads that must not wait for the fleet, because it waits for them.
#[derive(Debug, Default)]
pub(super) struct Threads(Mutex<Vec<ThreadId>>);

impl Threads {
    pub(super) fn add(&self, thread: ThreadId) {
        lock(&self.0).push(thread);
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        lock(&self.0).iter().try_for_each(|&thread| check_thread(thread))
    }
}

/// Does this for all numbers below `count` at once, each on a thread.
pub(super) fn at_once<R: Send>(
    count: usize,
    work: impl Fn(usize) -> Result<R, Error> + Sync,
) -> Vec<Result<R, Error>> {
    let work = &work;
    thread::scope(|scope| {
        let begin = |at| {
            let thread = thread::Builder::new().name("tickwheel-durable/each".to_owned());
            thread.spawn_scoped(scope, move || work(at))
        };
        let begun: Vec<_> = (0..count).map(begin).collect();
        let done = begun.into_iter().enumerate().map(|(at, begun)| match begun {
            Ok(thread) => {
                let panicked = |panic: Panic| Err(Error::panicked("ask a database", &*panic));
                thread.join().unwrap_or_else(panicked)
            }
            // The system has no thread left.
            Err(_) => work(at),
        });
        done.collect()
    })
}

/// Returns what all have done, or their errors as one.
pub(super) fn together<R>(
    doing: &str,
    done: impl IntoIterator<Item = Result<R, Error>>,
) -> Result<Vec<R>, Error> {
    let (mut all, mut errors) = (Vec::new(), Vec::new());
    for done in done {
        match done {
            Ok(done) => all.push(done),
            Err(error) => errors.push(error),
        }
    }
    match errors.len() {
        0 => Ok(all),
        1 => Err(errors.remove(0)),
        _ => {
            let words: Vec<String> = errors.iter().map(Error::to_string).collect();
            Err(Error::store(doing, words.join("; ")))
        }
    }
}
