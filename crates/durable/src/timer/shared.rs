//! What callers, consumers and the timer's threads share.

#[cfg(feature = "redb")]
use std::collections::HashSet;
use std::fmt;
#[cfg(feature = "redb")]
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use event_listener::Event;
use futures_channel::oneshot;
use tickwheel::{BootClock, Clock};

use super::stats::Stats;
use crate::Error;
#[cfg(feature = "redb")]
use crate::keeper::Call;
use crate::keeper::outbox::Outbox;
use crate::keeper::{Answer, Command, Config, Found, Settled};
use crate::store::{Damaged, RateLimit, Store};
use crate::values::lock;

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) outbox: Mutex<Outbox>,
    /// Something is in the outbox, or the timer is closed.
    pub(super) due: Event,
    pub(super) settlements: Mutex<Settlements>,
    /// The bytes of the commands that were not answered.
    pub(super) waiting: AtomicUsize,
    /// The most of them.
    pub(super) backlog: usize,
    /// Whether what is handed out is counted, which is when somebody asks for it.
    pub(super) counts: bool,
    pub(super) is_closed: AtomicBool,
    /// Why the store could not note something last, and when it was tried.
    pub(super) failed_note: Mutex<Option<(Instant, Error)>>,
    /// The message of the panic that ended the thread.
    pub(super) panic: Mutex<Option<String>>,
    pub(super) stats: Mutex<Stats>,
    #[cfg(feature = "redb")]
    pub(super) touched: Mutex<Touched>,
    /// The process that has the thread.
    pub(super) process: AtomicU32,
    clock: BootClock,
    started: Instant,
}

impl Shared {
    pub(super) fn new(config: &Config, backlog: usize) -> Self {
        let clock = BootClock::new();
        let wake_at = (config.in_flight / 4).min(config.group).clamp(1, 256);
        Self {
            outbox: Mutex::default(),
            due: Event::new(),
            settlements: Mutex::new(Settlements { wake_at, ..Settlements::default() }),
            waiting: AtomicUsize::new(0),
            backlog,
            counts: config.max_attempts.is_some(),
            is_closed: AtomicBool::new(false),
            failed_note: Mutex::default(),
            panic: Mutex::default(),
            stats: Mutex::default(),
            #[cfg(feature = "redb")]
            touched: Mutex::default(),
            process: AtomicU32::new(std::process::id()),
            clock,
            started: clock.now(),
        }
    }

    /// Returns the steady time: the milliseconds since the timer was opened, those in which the
    /// machine was suspended included, because leases run out meanwhile.
    pub(super) fn steady(&self) -> u64 {
        u64::try_from(self.clock.now().duration_since(self.started).as_millis()).unwrap_or(u64::MAX)
    }

    pub(super) fn check_process(&self) -> Result<(), Error> {
        let process = self.process.load(Ordering::Relaxed);
        if process == std::process::id() { Ok(()) } else { Err(Error::Forked) }
    }

    /// Returns why the timer is closed.
    pub(super) fn closed(&self) -> Error {
        match &*lock(&self.panic) {
            None => Error::Closed,
            Some(message) => Error::Panicked {
                doing: "go on with the timer; open it again".to_owned(),
                message: message.clone(),
            },
        }
    }
}

/// What consumers settled and the keeper has not seen.
#[derive(Debug, Default)]
pub(super) struct Settlements {
    /// The number and the epoch of each, and what was done.
    list: Vec<((u64, u64), Settled)>,
    /// The keeper will look by itself soon, and need not be woken for each.
    keeper_lingers: bool,
    /// How many settlements wake a keeper that lingers.
    wake_at: usize,
}

impl Settlements {
    /// Adds one. Returns whether the keeper must be woken.
    pub(super) fn push(&mut self, held: (u64, u64), settled: Settled) -> bool {
        self.list.push((held, settled));
        !self.keeper_lingers || self.list.len() == self.wake_at
    }

    /// Takes all out. The keeper is awake.
    pub(super) fn take(&mut self) -> Vec<((u64, u64), Settled)> {
        self.keeper_lingers = true;
        std::mem::take(&mut self.list)
    }

    /// Says that the keeper goes to sleep. False: it must not, because there is work.
    pub(super) fn sleep(&mut self, lingers: bool) -> bool {
        self.keeper_lingers = lingers;
        self.list.is_empty() || lingers && self.list.len() < self.wake_at
    }
}

/// The names that commits may have changed since a backup began.
#[cfg(feature = "redb")]
#[derive(Debug, Default)]
pub(super) enum Touched {
    #[default]
    NoBackup,
    Names(HashSet<Arc<str>>),
    /// Others change the store too, and what they change is not known.
    Shared,
}

#[cfg(feature = "redb")]
impl Touched {
    /// Notes what a commit is about to change.
    pub(super) fn note<T>(&mut self, call: &Call<T>) {
        if let (Self::Names(names), Call::Commit(call)) = (self, call) {
            names.extend(call.settlements.iter().map(|it| it.held.name.clone()));
            names.extend(call.changes.iter().map(|change| change.name.clone()));
        }
    }
}

pub(super) type Answered = Result<Found, Error>;

/// Where a reply goes.
#[derive(Debug)]
pub(crate) struct Ticket {
    pub(super) reply: Reply,
    /// What the command counts for in the backlog.
    pub(super) bytes: usize,
}

/// How a reply gets there.
pub(super) enum Reply {
    Caller(oneshot::Sender<Answered>),
    /// It runs on the timer's thread.
    #[cfg(feature = "postgres")]
    Then(Box<dyn FnOnce(Answered) + Send>),
}

impl Reply {
    pub(super) fn send(self, answered: Answered) {
        match self {
            // The caller may have dropped the `Commit`.
            Self::Caller(caller) => drop(caller.send(answered)),
            #[cfg(feature = "postgres")]
            Self::Then(then) => then(answered),
        }
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply").finish_non_exhaustive()
    }
}

pub(super) enum Message {
    Command(Command<Ticket>),
    /// What the store answered, and how long that took.
    Answer(Answer<Ticket>, Duration),
    Read(Read),
    /// What the store is to note; a database does so before others have read what they want.
    Note(Read),
    /// What a read found damaged.
    Damaged(Vec<Damaged>),
    Close {
        waits: bool,
        done: Option<oneshot::Sender<Result<(), Error>>>,
    },
    /// The store was paused, or resumed.
    Pause {
        pauses: bool,
        done: oneshot::Sender<()>,
    },
    /// The store has noted a rate.
    Limit {
        limit: Option<RateLimit>,
        done: oneshot::Sender<()>,
    },
    Wake,
}

/// What an operator asks of the store, which has no part in the timer's work, and the time at which
/// it has its turn.
pub(super) type Read = Box<dyn FnOnce(&mut dyn Store, Instant) + Send>;
