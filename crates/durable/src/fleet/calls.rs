//! Changes on their way to the database that has their name.
//!
//! Of each name one call is on its way at a time, and it is at one database at a time. So the calls
//! of a name are made in their order, wherever its partition goes meanwhile.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use event_listener::Event;
use futures_channel::oneshot;

use super::map::{PARTITIONS, Route, partition};
use crate::Error;
use crate::keeper::Found;
use crate::store::Change;

pub(super) type Answered = Result<Found, Error>;

/// Where the answer goes, and why there is one though no database was asked.
pub(super) type Unsent = (oneshot::Sender<Answered>, Error);

/// A change that was asked for.
pub(super) struct Call {
    pub(super) change: Change,
    pub(super) reply: oneshot::Sender<Answered>,
    pub(super) search: Search,
    /// While no timer has the call.
    pub(super) room: Option<Room>,
}

/// Looking for the database that has a name.
pub(super) struct Search {
    pub(super) name: Arc<str>,
    pub(super) partition: usize,
    /// Since when a newer map is waited for.
    pub(super) since: Option<Instant>,
    pub(super) refused: Option<Refused>,
}

/// What the database said that was asked last.
pub(super) struct Refused {
    pub(super) by: usize,
    pub(super) when: Instant,
    pub(super) error: Error,
}

impl Search {
    pub(super) fn new(name: Arc<str>) -> Self {
        let partition = partition(&name);
        Self { name, partition, since: None, refused: None }
    }

    pub(super) fn refuse(&mut self, by: usize, when: Instant, error: Error) {
        self.refused = Some(Refused { by, when, error });
    }
}

/// All calls that have no answer.
pub(super) struct Calls {
    /// The names with such calls, by partition, and the calls that wait for the one before.
    pub(super) lanes: Vec<Mutex<HashMap<Arc<str>, VecDeque<Call>>>>,
    /// How many names that are.
    pub(super) names: AtomicUsize,
    /// There is none any more.
    pub(super) idle: Event,
    pub(super) parked: Mutex<Parked>,
    /// The bytes of the calls that no timer has: those for each database, so that one that hangs
    /// takes no room from the others, and last those for nobody knows which.
    waiting: Vec<Arc<AtomicUsize>>,
    /// The most of each.
    backlog: usize,
}

/// The calls that wait for a newer map.
#[derive(Default)]
pub(super) struct Parked {
    pub(super) calls: Vec<Call>,
    /// There will be none.
    pub(super) is_over: bool,
}

impl Calls {
    pub(super) fn new(databases: usize, backlog: usize) -> Self {
        Self {
            lanes: (0..PARTITIONS).map(|_| Mutex::default()).collect(),
            names: AtomicUsize::new(0),
            idle: Event::new(),
            parked: Mutex::default(),
            waiting: (0..=databases).map(|_| Arc::default()).collect(),
            backlog,
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.names.load(Ordering::SeqCst) == 0
    }

    pub(super) fn room(&self, route: Route, change: &Change) -> Result<Room, Error> {
        let bytes = change.bytes();
        let all = match route {
            Route::At(at) | Route::Coming(at) => &self.waiting[at],
            Route::Beyond(_) | Route::Unknown => &self.waiting[self.waiting.len() - 1],
        };
        let waiting = all.fetch_add(bytes, Ordering::Relaxed);
        let room = Room { bytes, waiting: Arc::clone(all) };
        if self.backlog < waiting { Err(Error::Backlog { bytes: waiting }) } else { Ok(room) }
    }
}

/// A part of the bytes that may wait.
pub(super) struct Room {
    bytes: usize,
    waiting: Arc<AtomicUsize>,
}

impl Drop for Room {
    fn drop(&mut self) {
        self.waiting.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// How long a name may be on its way.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
