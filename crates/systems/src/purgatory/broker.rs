//! What Kafka has its purgatory for: a producer is answered when all followers have what it
//! brought, and a fetch when there is enough to bring, or when the time of each is over.
//!
//! The requests are those of [`requests`](crate::requests), over TCP.

use super::{End, Operation, Purgatory};
use crate::frame::LONGEST_BODY;
use crate::requests::{Reply, Request, Server};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tickwheel::Timer;

/// What a client asks a [`Broker`] for. Each waits for as long as it says, at most, and no longer
/// than [`LONGEST_WAIT`]. An ask that makes no sense closes the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Appends to a partition. The answer is `1` when all followers have it, and `0` if the time is
    /// over.
    Produce { partition: u8, millis: u32, bytes: Vec<u8> },
    /// Reads on from `offset`, when there are `least` bytes. Follower 0 is a consumer, who sees
    /// what all followers have. The answer is what there is.
    Fetch { partition: u8, millis: u32, follower: u8, offset: u32, least: u32 },
}

/// One broker with some partitions, each with followers.
#[derive(Debug)]
pub struct Broker {
    server: Server,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    partitions: Vec<Mutex<Partition>>,
    produces: Purgatory<Key, Delayed>,
    fetches: Purgatory<Key, Delayed>,
    /// How often a condition was looked at.
    looks: AtomicU64,
}

#[derive(Debug)]
struct Partition {
    log: Vec<u8>,
    /// How much each follower has.
    followers: Vec<usize>,
    /// How much all followers have had.
    replicated: usize,
    /// What operations wait for, and how many do.
    awaited: BTreeMap<Goal, usize>,
}

/// A length of a partition that something is to reach.
type Goal = (What, usize);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum What {
    Log,
    Replicated,
}

/// What operations are watched under: what they wait for, and who waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Key {
    Goal(u8, Goal),
    Client(u64),
}

/// A request that waits, and the state that it waits for.
#[derive(Debug)]
struct Delayed {
    state: Arc<State>,
    reply: Reply,
    partition: u8,
    goal: Goal,
    /// Where a fetch reads; None for a producer.
    offset: Option<usize>,
}

impl Broker {
    /// Starts a broker on a free port.
    ///
    /// # Errors
    ///
    /// If there is none, or no thread.
    pub fn start(timer: &Timer, partitions: u8, followers: u8) -> io::Result<Self> {
        let partition = |_| Mutex::new(Partition::new(followers));
        let (produces, fetches) = (Purgatory::new(timer, 1_000), Purgatory::new(timer, 1_000));
        let partitions = (0..partitions).map(partition).collect();
        let looks = AtomicU64::new(0);
        let state = Arc::new(State { partitions, produces, fetches, looks });
        let (handler, leaves) = (Arc::clone(&state), Arc::clone(&state));
        let handle = move |request| State::handle(&handler, request);
        let gone = move |client| {
            leaves.produces.cancel(&Key::Client(client));
            leaves.fetches.cancel(&Key::Client(client));
        };
        Ok(Self { server: Server::start(timer, handle, gone)?, state })
    }

    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Returns how many producers and how many fetches wait.
    #[must_use]
    pub fn delayed(&self) -> (usize, usize) {
        (self.state.produces.delayed(), self.state.fetches.delayed())
    }

    /// Returns how often the broker has looked whether a condition holds.
    #[must_use]
    pub fn looks(&self) -> u64 {
        self.state.looks.load(Relaxed)
    }
}

impl State {
    fn handle(self: &Arc<Self>, request: Request) {
        let Request { body, reply } = request;
        let known = |ask: &Ask| usize::from(ask.partition()) < self.partitions.len();
        let Some(ask) = Ask::from_body(&body).filter(known) else { return reply.refuse() };
        let mut state = self.partition(ask.partition());
        let Some((goal, offset)) = state.take(&ask) else { return reply.refuse() };
        let reached = state.reached();
        state.await_goal(goal);
        drop(state);
        let partition = ask.partition();
        // What has changed may be what others wait for.
        for key in reached.into_iter().map(|goal| Key::Goal(partition, goal)) {
            self.produces.check(&key);
            self.fetches.check(&key);
        }
        let purgatory = if offset.is_none() { &self.produces } else { &self.fetches };
        let keys = [Key::Goal(partition, goal), Key::Client(reply.client)];
        let delayed = Delayed { state: Arc::clone(self), reply, partition, goal, offset };
        let timeout = Duration::from_millis(ask.millis().into()).min(LONGEST_WAIT);
        if let Err((_, delayed)) = purgatory.complete_or_watch(delayed, keys, timeout) {
            delayed.complete(End::Expired); // the timer has no room
        }
    }

    fn partition(&self, number: u8) -> MutexGuard<'_, Partition> {
        self.partitions[usize::from(number)].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Partition {
    fn new(followers: u8) -> Self {
        let followers = vec![0; followers.into()];
        Self { log: Vec::new(), followers, replicated: 0, awaited: BTreeMap::new() }
    }

    /// Appends what a producer brings, or notes what a follower has. Returns what the ask waits
    /// for, and where it reads; or None if it makes no sense, or there is no room.
    fn take(&mut self, ask: &Ask) -> Option<(Goal, Option<usize>)> {
        match ask {
            Ask::Produce { bytes, .. } => {
                if LONGEST_LOG < self.log.len() + bytes.len() {
                    return None;
                }
                self.log.extend(bytes);
                Some(((What::Replicated, self.log.len()), None))
            }
            Ask::Fetch { follower, offset, least, .. } => {
                let offset = *offset as usize;
                // Nobody has what was never written.
                if self.log.len() < offset {
                    return None;
                }
                let what = match follower.checked_sub(1) {
                    None => What::Replicated,
                    Some(number) => {
                        *self.followers.get_mut(usize::from(number))? = offset;
                        What::Log
                    }
                };
                let least = (*least as usize).min(LONGEST_BODY);
                Some(((what, offset + least), Some(offset)))
            }
        }
    }

    /// Takes out the goals that were awaited and are reached. All followers have had no less than
    /// before if one reads again from the start.
    fn reached(&mut self) -> Vec<Goal> {
        let least = self.followers.iter().copied().min().unwrap_or(self.log.len());
        self.replicated = self.replicated.max(least);
        let reached = |what| (what, 0)..=(what, self.length(what));
        let (log, replicated) = (reached(What::Log), reached(What::Replicated));
        let log = self.awaited.extract_if(log, |_, _| true).collect::<Vec<_>>();
        let replicated = self.awaited.extract_if(replicated, |_, _| true);
        log.into_iter().chain(replicated).map(|(goal, _)| goal).collect()
    }

    fn await_goal(&mut self, goal: Goal) {
        if !self.has_reached(goal) {
            *self.awaited.entry(goal).or_default() += 1;
        }
    }

    /// An operation that waited has ended.
    fn forget(&mut self, goal: Goal) {
        if let Some(operations) = self.awaited.get_mut(&goal) {
            *operations -= 1;
            if *operations == 0 {
                self.awaited.remove(&goal);
            }
        }
    }

    fn has_reached(&self, (what, goal): Goal) -> bool {
        goal <= self.length(what)
    }

    fn length(&self, what: What) -> usize {
        match what {
            What::Log => self.log.len(),
            What::Replicated => self.replicated,
        }
    }

    /// Returns what may be read from `offset` on.
    fn readable(&self, what: What, offset: usize) -> &[u8] {
        let bytes = self.log[..self.length(what)].get(offset..).unwrap_or_default();
        &bytes[..bytes.len().min(LONGEST_BODY)]
    }
}

impl Operation for Delayed {
    fn is_satisfied(&mut self) -> bool {
        self.state.looks.fetch_add(1, Relaxed);
        self.state.partition(self.partition).has_reached(self.goal)
    }

    fn complete(self, end: End) {
        let mut state = self.state.partition(self.partition);
        state.forget(self.goal);
        if end == End::Cancelled {
            return; // the client has gone
        }
        let body = match self.offset {
            None => vec![u8::from(end == End::Satisfied)],
            Some(offset) => state.readable(self.goal.0, offset).to_vec(),
        };
        drop(state);
        // The client may have gone.
        let _ = self.reply.answer(body);
    }
}

impl Ask {
    /// Returns the body of the request.
    #[must_use]
    pub fn body(&self) -> Vec<u8> {
        let (kind, rest) = match self {
            Self::Produce { bytes, .. } => (b'P', bytes.clone()),
            Self::Fetch { follower, offset, least, .. } => {
                let numbers = [offset.to_be_bytes(), least.to_be_bytes()].concat();
                (b'F', [&[*follower], &numbers[..]].concat())
            }
        };
        [&[kind, self.partition()], &self.millis().to_be_bytes()[..], &rest].concat()
    }

    fn from_body(body: &[u8]) -> Option<Self> {
        let (&[kind, partition], rest) = body.split_first_chunk()?;
        let (millis, rest) = number(rest)?;
        match (kind, rest) {
            (b'P', bytes) => Some(Self::Produce { partition, millis, bytes: bytes.to_vec() }),
            (b'F', [follower, rest @ ..]) => {
                let (offset, rest) = number(rest)?;
                let (least, _) = number(rest)?;
                Some(Self::Fetch { partition, millis, follower: *follower, offset, least })
            }
            _ => None,
        }
    }

    fn partition(&self) -> u8 {
        let (Self::Produce { partition, .. } | Self::Fetch { partition, .. }) = self;
        *partition
    }

    fn millis(&self) -> u32 {
        let (Self::Produce { millis, .. } | Self::Fetch { millis, .. }) = self;
        *millis
    }
}

fn number(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((u32::from_be_bytes(*number), rest))
}

/// No operation waits longer, whatever it asks for.
pub const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// A partition takes no more: it forgets nothing.
const LONGEST_LOG: usize = 1 << 26;
