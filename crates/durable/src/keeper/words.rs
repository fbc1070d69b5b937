//! What goes into a keeper and what comes out of it.

use std::sync::Arc;
use std::time::SystemTime;

use crate::Error;
use crate::error::caught;
use crate::store::{Change, Done, Leases, Limit, Loaded, RateLimit, Settlement, Start, Store};
use crate::values::milliseconds;

/// How a keeper behaves; all times in milliseconds.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// How far ahead rows are loaded.
    pub(crate) horizon: u64,
    /// The most rows in memory, near and in flight together.
    pub(crate) near_rows: usize,
    /// The most bytes of rows in memory.
    pub(crate) near_bytes: usize,
    /// The most rows of one load.
    pub(crate) page: usize,
    /// The most changes of one commit.
    pub(crate) group: usize,
    /// The most timeouts that are handed out and not settled.
    pub(crate) in_flight: usize,
    /// When a timeout that was dropped comes again.
    pub(crate) redeliver: u64,
    /// How long acks wait for a commit to go along with.
    pub(crate) linger: u64,
    /// How often all is loaded anew, whatever is known; or one partition, if the store has several
    /// owners.
    pub(crate) refresh: u64,
    /// How often is looked for what others put, if the store has several owners.
    pub(crate) look: u64,
    /// If the store has several owners: how long before its deadline a timeout is read at the
    /// earliest. Who cancels it earlier is told that it will not come.
    pub(crate) margin: u64,
    /// How often a timeout is handed out at most.
    pub(crate) max_attempts: Option<u32>,
    /// How long a consumer may hold a timeout.
    pub(crate) visibility: Option<u64>,
    pub(crate) rate: Option<Rate>,
}

/// The most timeouts that consumers may take in any span of so many milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    pub(crate) timeouts: usize,
    pub(crate) per: u64,
}

impl From<RateLimit> for Rate {
    fn from(limit: RateLimit) -> Self {
        Self { timeouts: limit.timeouts, per: milliseconds(limit.per) }
    }
}

/// The present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Now {
    /// Milliseconds since 1970 by the wall clock, rounded down. May jump.
    pub(crate) wall: u64,
    /// Milliseconds since some moment, by a clock that is never set.
    pub(crate) steady: u64,
}

/// What a caller wants done in the store. `T` tells the callers apart.
#[derive(Debug)]
pub(crate) struct Command<T> {
    pub(crate) ticket: T,
    pub(crate) change: Change,
}

/// What a [`Change`] found under its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Nothing,
    /// A timeout that no consumer has been handed, nor will be.
    Pending,
    /// A timeout that a consumer has been handed, or may have been.
    Firing,
}

/// What [`DurableTimer::schedule`](crate::DurableTimer::schedule) did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheduled {
    /// No timeout had this name.
    New,
    /// A timeout of this name was pending. It has the new deadline and the new content now, and
    /// will not come at its old deadline.
    Moved,
    /// A consumer had been handed the earlier timeout of this name, and goes on with it; in
    /// PostgreSQL it may have been, or not. The new one comes as well.
    Firing,
}

impl Scheduled {
    pub(crate) fn of(found: Found) -> Self {
        match found {
            Found::Nothing => Self::New,
            Found::Pending => Self::Moved,
            Found::Firing => Self::Firing,
        }
    }
}

/// What [`DurableTimer::cancel`](crate::DurableTimer::cancel) found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cancelled {
    /// The timeout was pending, and will not be handed out.
    Cancelled,
    /// A consumer has been handed the timeout, and goes on with it. It is not handed out again.
    ///
    /// In PostgreSQL also less than a second before its deadline: another worker may have handed it
    /// out, or nobody has and nobody will.
    Firing,
    /// No timeout has this name: it never had one, it was acked, it is dead, or it was cancelled
    /// before.
    Unknown,
}

impl Cancelled {
    pub(crate) fn of(found: Found) -> Self {
        match found {
            Found::Nothing => Self::Unknown,
            Found::Pending => Self::Cancelled,
            Found::Firing => Self::Firing,
        }
    }
}

/// What [`DurableTimer::retry_dead`](crate::DurableTimer::retry_dead) did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Retried {
    /// The dead letter is a timeout again, due now.
    Retried,
    /// The name was scheduled anew, so the dead letter stays.
    Pending,
    /// No dead letter has this name.
    Unknown,
}

impl Retried {
    pub(crate) fn of(found: Found) -> Self {
        match found {
            Found::Nothing => Self::Unknown,
            Found::Pending => Self::Retried,
            Found::Firing => Self::Pending,
        }
    }
}

/// What a timer did with a timeout, as [`Builder::on_event`](crate::Builder::on_event) tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// It is durable: it was scheduled, moved, or a dead letter that was retried.
    #[non_exhaustive]
    Scheduled {
        /// Its name.
        name: Arc<str>,
        /// Its deadline.
        deadline: SystemTime,
    },
    /// It was cancelled. A consumer may have it all the same, and go on with it.
    #[non_exhaustive]
    Cancelled {
        /// Its name.
        name: Arc<str>,
    },
    /// It waits for a consumer of this process. If none takes it, this may come again.
    #[non_exhaustive]
    HandedOut {
        /// Its name.
        name: Arc<str>,
        /// Its deadline.
        deadline: SystemTime,
        /// As [`Due::attempt`](crate::Due::attempt).
        attempt: u32,
    },
    /// A consumer has acked it.
    #[non_exhaustive]
    Acked {
        /// Its name.
        name: Arc<str>,
    },
    /// It comes again: a consumer has retried it, dropped it, held it for too long, or acked it and
    /// said when the next is; then [`Acked`](Self::Acked) came before.
    #[non_exhaustive]
    Again {
        /// Its name.
        name: Arc<str>,
        /// Its new deadline.
        deadline: SystemTime,
    },
    /// It was handed out as often as it may be, and is a dead letter.
    #[non_exhaustive]
    Dead {
        /// Its name.
        name: Arc<str>,
    },
    /// The dead letter was dropped.
    #[non_exhaustive]
    Dropped {
        /// Its name.
        name: Arc<str>,
    },
}

/// What a consumer did with a timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    Ack,
    Retry {
        delay: u64,
    },
    Dropped,
    /// It is done, and comes again then.
    Next {
        at: u64,
    },
    /// The consumer goes on, for so long at most from now on.
    Extend {
        time: u64,
    },
    /// By the keeper: it is about to be handed out, and that is counted first.
    Count,
    /// By the keeper: it was counted, and no consumer took it.
    Uncount,
    /// By the keeper: it was handed out as often as it may be.
    Bury,
}

impl Settled {
    /// Whether no consumer had it.
    pub(crate) fn is_by_keeper(self) -> bool {
        matches!(self, Self::Count | Self::Uncount | Self::Bury)
    }
}

/// A call of the store, with what its answer is for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Call<T> {
    Lease(LeaseCall),
    Load(LoadCall),
    Behind(BehindCall),
    Commit(CommitCall<T>),
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LeaseCall {
    /// The steady time before the call.
    pub(crate) asked: u64,
    pub(crate) wanted: bool,
    pub(crate) given_back: Vec<u32>,
    /// Nothing follows.
    pub(super) is_last: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LoadCall {
    pub(crate) from: Vec<Start>,
    pub(crate) until: u64,
    pub(crate) limit: Limit,
    /// The steady time before the call.
    pub(super) asked: u64,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BehindCall {
    /// In the order of the positions.
    pub(crate) from: Vec<Start>,
    pub(crate) until: u64,
    pub(crate) limit: Limit,
    /// The steady time before the call.
    pub(super) asked: u64,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CommitCall<T> {
    pub(crate) settlements: Vec<Settlement>,
    pub(crate) changes: Vec<Change>,
    /// Of the changes.
    pub(super) tickets: Vec<T>,
    /// The steady time before the call.
    pub(super) asked: u64,
}

/// A call and what the store answered to it.
#[derive(Debug)]
pub(crate) enum Answer<T> {
    Lease(LeaseCall, Result<Leases, Error>),
    Load(LoadCall, Result<Loaded, Error>),
    Behind(BehindCall, Result<Loaded, Error>),
    Commit(CommitCall<T>, Result<Done, Error>),
}

/// What a keeper has done; goes into [`Stats`](crate::Stats).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) handed_out: u64,
    pub(crate) acked: u64,
    pub(crate) retried: u64,
    pub(crate) fenced: u64,
    pub(crate) commits: u64,
    pub(crate) changes: u64,
    pub(crate) loads: u64,
    pub(crate) forgotten: u64,
    pub(crate) errors: u64,
    pub(crate) damaged: u64,
    pub(crate) dead: u64,
    pub(crate) expired: u64,
    pub(crate) late_max: u64,
    pub(crate) late_total: u64,
}

impl Change {
    /// Returns the bytes that the change takes in memory, nearly.
    pub(crate) fn bytes(&self) -> usize {
        CHANGE
            + self.name.len()
            + self.as_put().map_or(0, |put| put.payload.len() + put.metadata.len())
    }
}

impl<T> Call<T> {
    /// Makes the call. A panic of the store is an error.
    pub(crate) fn make(self, store: &mut (impl Store + ?Sized)) -> Answer<T> {
        match self {
            Self::Lease(call) => {
                let leases = caught("take leases", || store.lease(call.wanted, &call.given_back));
                Answer::Lease(call, leases)
            }
            Self::Load(call) => {
                let LoadCall { from, until, limit, .. } = &call;
                let loaded = caught("load", || store.load(from, *until, *limit));
                Answer::Load(call, loaded)
            }
            Self::Behind(call) => {
                let BehindCall { from, until, limit, .. } = &call;
                let loaded = caught("load", || store.load_behind(from, *until, *limit));
                Answer::Behind(call, loaded)
            }
            Self::Commit(call) => {
                let done = caught("commit", || store.commit(&call.settlements, &call.changes));
                Answer::Commit(call, done)
            }
        }
    }

    /// Answers that the call could not be made.
    #[cfg(test)]
    pub(crate) fn fail(self, error: Error) -> Answer<T> {
        match self {
            Self::Lease(call) => Answer::Lease(call, Err(error)),
            Self::Load(call) => Answer::Load(call, Err(error)),
            Self::Behind(call) => Answer::Behind(call, Err(error)),
            Self::Commit(call) => Answer::Commit(call, Err(error)),
        }
    }
}

#[cfg(test)]
impl<T> Answer<T> {
    /// Loses the answer on its way.
    pub(crate) fn lose(self, error: Error) -> Self {
        match self {
            Self::Lease(call, _) => Self::Lease(call, Err(error)),
            Self::Load(call, _) => Self::Load(call, Err(error)),
            Self::Behind(call, _) => Self::Behind(call, Err(error)),
            Self::Commit(call, _) => Self::Commit(call, Err(error)),
        }
    }

    pub(crate) fn is_err(&self) -> bool {
        match self {
            Self::Lease(_, leases) => leases.is_err(),
            Self::Load(_, loaded) => loaded.is_err(),
            Self::Behind(_, loaded) => loaded.is_err(),
            Self::Commit(_, done) => done.is_err(),
        }
    }
}

/// What a change costs beside its name and its content: two allocations, its place in the queue
/// and the way for its reply.
const CHANGE: usize = 200;
