//! What Kafka has its purgatory for: a producer is answered when all followers have what it
//! brought, and a fetch when there is enough to bring, or when the time of each is over.
//!
//! The requests are those of [`requests`](crate::requests), over TCP.

use super::{End, Operation, Purgatory};
use crate::frame::LONGEST_BODY;
use crate::requests::{Request, Server};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tickwheel::Timer;

/// What a client asks a [`Broker`] for. Each waits for as long as it says, at most.
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
    produces: Purgatory<u8, Delayed>,
    fetches: Purgatory<u8, Delayed>,
}

#[derive(Debug)]
struct Partition {
    log: Vec<u8>,
    /// How much each follower has.
    followers: Vec<usize>,
}

/// A request that waits, and the state that it waits for.
#[derive(Debug)]
struct Delayed {
    state: Arc<State>,
    request: Request,
    ask: Ask,
    /// The end of what a producer has appended.
    end: usize,
}

impl Broker {
    /// Starts a broker on a free port.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn start(timer: &Timer, partitions: u8, followers: u8) -> io::Result<Self> {
        let partition =
            |_| Mutex::new(Partition { log: Vec::new(), followers: vec![0; followers.into()] });
        let (produces, fetches) = (Purgatory::new(timer, 1_000), Purgatory::new(timer, 1_000));
        let partitions = (0..partitions).map(partition).collect();
        let state = Arc::new(State { partitions, produces, fetches });
        let handler = Arc::clone(&state);
        let server = Server::start(move |request| State::handle(&handler, request))?;
        Ok(Self { server, state })
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
}

impl State {
    fn handle(self: &Arc<Self>, request: Request) {
        let known = |partition: &u8| usize::from(*partition) < self.partitions.len();
        let Some(ask) = Ask::from_body(&request.body).filter(|ask| known(&ask.partition())) else {
            return; // the client's own timeout tells it
        };
        let (partition, millis) = (ask.partition(), ask.millis());
        let mut state = self.partition(partition);
        let purgatory = match &ask {
            Ask::Produce { bytes, .. } => {
                state.log.extend(bytes);
                &self.produces
            }
            Ask::Fetch { follower, offset, .. } => {
                let has =
                    follower.checked_sub(1).and_then(|it| state.followers.get_mut(it as usize));
                if let Some(has) = has {
                    *has = *offset as usize;
                }
                &self.fetches
            }
        };
        let end = state.log.len();
        drop(state);
        let delayed = Delayed { state: Arc::clone(self), request, ask, end };
        // What has changed may be what others wait for.
        self.produces.check(&partition);
        self.fetches.check(&partition);
        let timeout = Duration::from_millis(millis.into());
        if let Err((_, delayed)) = purgatory.complete_or_watch(delayed, [partition], timeout) {
            delayed.complete(End::Expired); // the timer has no room
        }
    }

    fn partition(&self, number: u8) -> MutexGuard<'_, Partition> {
        self.partitions[usize::from(number)].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Partition {
    /// Returns how much all followers have.
    fn replicated(&self) -> usize {
        self.followers.iter().copied().min().unwrap_or(self.log.len()).min(self.log.len())
    }

    /// Returns what a follower, or a consumer, may read from `offset` on.
    fn readable(&self, follower: u8, offset: u32) -> &[u8] {
        let end = if follower == 0 { self.replicated() } else { self.log.len() };
        let bytes = self.log[..end].get(offset as usize..).unwrap_or_default();
        &bytes[..bytes.len().min(LONGEST_BODY)]
    }
}

impl Operation for Delayed {
    fn is_satisfied(&mut self) -> bool {
        let state = self.state.partition(self.ask.partition());
        match self.ask {
            Ask::Produce { .. } => self.end <= state.replicated(),
            Ask::Fetch { follower, offset, least, .. } => {
                least.min(LONGEST_BODY as u32) as usize <= state.readable(follower, offset).len()
            }
        }
    }

    fn complete(self, end: End) {
        let body = match self.ask {
            Ask::Produce { .. } => vec![u8::from(end == End::Satisfied)],
            Ask::Fetch { partition, follower, offset, .. } => {
                self.state.partition(partition).readable(follower, offset).to_vec()
            }
        };
        // The client may have gone.
        let _ = self.request.answer(body);
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
