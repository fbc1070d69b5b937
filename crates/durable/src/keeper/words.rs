//! What goes into a keeper and what comes out of it.

use std::sync::Arc;
use std::time::Duration;

use crate::Error;
use crate::store::{Lease, Leases, Limit, Op, Outcome, Page, Position, Row, Store};

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
    /// How often all is forgotten and loaded anew, if the store has one owner.
    pub(crate) refresh: u64,
    /// How often the front is loaded anew, if the store has several owners: others put and cancel.
    pub(crate) look: u64,
    /// If the store has several owners: how old a look may be, at the deadline, for a timeout to be
    /// handed out on the strength of it.
    pub(crate) margin: u64,
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
    pub(crate) request: Request,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Put { name: Arc<str>, deadline: u64, payload: Arc<[u8]> },
    Cancel { name: Arc<str> },
    Get { name: Arc<str> },
    Len,
    Page { after: Position, limit: Limit },
}

/// What came of a [`Request`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Scheduled(Scheduled),
    Cancelled(Cancelled),
    Found(Option<Row>),
    Len(u64),
    Page { rows: Vec<Row>, end: Option<Position> },
}

/// What [`DurableTimer::schedule`](crate::DurableTimer::schedule) did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheduled {
    /// No timeout had this name.
    New,
    /// A timeout of this name was pending. It has the new deadline and the new payload now, and
    /// will not come at its old deadline.
    Moved,
    /// A consumer had been handed the earlier timeout of this name, and goes on with it. The new
    /// one comes as well.
    Firing,
}

/// What [`DurableTimer::cancel`](crate::DurableTimer::cancel) found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cancelled {
    /// The timeout was pending, and will not be handed out.
    Cancelled,
    /// A consumer has been handed the timeout, and goes on with it. It is not handed out again.
    Firing,
    /// No timeout has this name: it never had one, it was acked, or it was cancelled before.
    Unknown,
}

/// What a consumer did with a timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    Ack,
    Retry { delay: u64 },
    Dropped,
}

/// A call of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Lease { wanted: bool },
    Load { leases: Option<Vec<Lease>>, after: Position, until: u64, limit: Limit },
    Commit { ops: Vec<Op> },
    Get { name: Arc<str> },
    Len,
}

/// The store's answer to a [`Call`].
#[derive(Debug)]
pub(crate) enum Answer {
    Leases(Leases),
    Page(Page),
    Outcomes(Vec<Outcome>),
    Row(Option<Row>),
    Len(u64),
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
    pub(crate) late_max: u64,
    pub(crate) late_total: u64,
}

/// What a request costs beside its name and its payload: two allocations, its place in the queue
/// and the way for its reply.
const REQUEST: usize = 200;

impl Request {
    /// Returns the bytes that the request takes in memory, nearly.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Put { name, payload, .. } => REQUEST + name.len() + payload.len(),
            Self::Cancel { name } => REQUEST + name.len(),
            Self::Get { .. } | Self::Len | Self::Page { .. } => 0,
        }
    }

    pub(super) fn is_read(&self) -> bool {
        match self {
            Self::Put { .. } | Self::Cancel { .. } => false,
            Self::Get { .. } | Self::Len | Self::Page { .. } => true,
        }
    }
}

impl Call {
    /// Makes the call.
    pub(crate) fn make(&self, store: &mut (impl Store + ?Sized)) -> Result<Answer, Error> {
        Ok(match self {
            Self::Lease { wanted } => Answer::Leases(store.lease(*wanted)?),
            Self::Load { leases, after, until, limit } => {
                Answer::Page(store.load(leases.as_deref(), after, *until, *limit)?)
            }
            Self::Commit { ops } => Answer::Outcomes(store.commit(ops)?),
            Self::Get { name } => Answer::Row(store.get(name)?),
            Self::Len => Answer::Len(store.count()?),
        })
    }
}

/// Rounds up.
pub(crate) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
