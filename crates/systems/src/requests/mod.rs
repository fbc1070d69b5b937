//! Requests with a time limit, as Dubbo's `DefaultFuture` has them: many requests share one
//! connection, a number tells which response answers which, and a response cancels the timeout.

mod error;
mod faults;
mod server;

pub use error::{CallError, Why};
pub use faults::{Fault, Seen};
pub use server::{FRAME_LIMIT, Reply, Request, Server};

use crate::frame::{Frame, Kind, LONGEST_BODY};
use futures::channel::oneshot;
use futures::executor::block_on;
use std::collections::{HashMap, VecDeque};
use std::io::{self, BufReader, Write};
use std::mem::take;
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tickwheel::{ScheduleErrorKind, TimeoutGuard, Timer};

/// One connection to a server. Any number of threads and tasks may call over it at once.
///
/// Dropping it closes the connection and fails the calls that wait.
#[derive(Debug)]
pub struct Client {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// Waits for the response to a request: [`wait`](Self::wait) blocks, `.await` does not. Dropping it
/// gives the request up.
#[must_use = "dropping it gives the request up"]
#[derive(Debug)]
pub struct Answer {
    receiver: oneshot::Receiver<Outcome>,
    _give_up: EndOnDrop,
}

/// What became of each call, and of each response.
///
/// `asked` is always the sum of `answered`, `timed_out`, `failed`, `given_up` and `pending`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    pub asked: u64,
    pub answered: u64,
    pub timed_out: u64,
    /// The connection was closed, or there was no room for the call.
    pub failed: u64,
    /// The caller dropped the [`Answer`].
    pub given_up: u64,
    pub pending: u64,
    /// Requests that went out. The others were never seen by the server.
    pub sent: u64,
    /// Responses to calls that had ended: late ones, and second ones.
    pub late: u64,
    /// Responses to requests that were never made.
    pub unknown: u64,
}

type Outcome = Result<Vec<u8>, CallError>;

#[derive(Debug)]
struct Shared {
    timer: Timer,
    stream: TcpStream,
    calls: Mutex<Calls>,
    /// Tells the writer of a request, or of the end.
    work: Condvar,
}

#[derive(Debug, Default)]
struct Calls {
    /// The calls that wait. A call leaves it once, and this is how it ends.
    waiting: HashMap<u64, Call>,
    /// The calls that the writer has not come to. Some may have ended.
    queue: VecDeque<u64>,
    /// The bytes of the bodies that the writer has not taken.
    queued: usize,
    closed: Option<io::ErrorKind>,
    account: Account,
}

#[derive(Debug)]
struct Call {
    caller: oneshot::Sender<Outcome>,
    asked: Instant,
    /// None once the writer has taken it to the connection.
    body: Option<Vec<u8>>,
    /// Cancelled when the call leaves, whatever the reason.
    timeout: Option<TimeoutGuard>,
}

impl Client {
    /// Connects to a server. `timer` sets the time limits.
    ///
    /// # Errors
    ///
    /// If the server cannot be reached, or there are no threads.
    pub fn connect(server: impl ToSocketAddrs, timer: &Timer) -> io::Result<Self> {
        let stream = TcpStream::connect(server)?;
        stream.set_nodelay(true)?;
        let (calls, work) = Default::default();
        let shared = Arc::new(Shared { timer: timer.clone(), stream, calls, work });
        let run = |name: &str, part: fn(&Shared) -> io::Result<()>| {
            let shared = Arc::clone(&shared);
            thread::Builder::new().name(name.into()).spawn(move || {
                shared.close(part(&shared).map_or_else(|error| error.kind(), |()| GONE));
            })
        };
        let parts: [(_, fn(&Shared) -> _); 2] =
            [("requests-out", Shared::write), ("requests-in", Shared::read)];
        // Without one of its threads it is dropped, which ends the other.
        let mut client = Self { shared: Arc::clone(&shared), threads: Vec::new() };
        for (name, part) in parts {
            client.threads.push(run(name, part)?);
        }
        Ok(client)
    }

    /// Sends a request, and returns the [`Answer`], which waits for the response for `limit` at
    /// most. Does not block.
    pub fn call(&self, body: Vec<u8>, limit: Duration) -> Answer {
        let (caller, receiver) = oneshot::channel();
        let (length, asked) = (body.len(), self.shared.timer.now());
        let mut calls = self.shared.lock();
        let id = calls.account.asked;
        let obstacle = match calls.closed {
            Some(kind) => Some(Why::Closed(kind)),
            None if LONGEST_BODY < length => Some(Why::TooLong),
            None => (MOST_QUEUED <= calls.queue.len() || MOST_BYTES < calls.queued + length)
                .then_some(Why::Busy),
        };
        calls.account.asked += 1;
        calls.account.pending += 1;
        calls.queued += length;
        calls.waiting.insert(id, Call { caller, asked, body: Some(body), timeout: None });
        drop(calls);
        match obstacle {
            Some(why) => drop(self.shared.end(id, Err(why))),
            None => self.start(id, limit),
        }
        Answer { receiver, _give_up: EndOnDrop::new(&self.shared, id, Why::GivenUp) }
    }

    /// Returns what became of all calls so far.
    #[must_use]
    pub fn account(&self) -> Account {
        self.shared.lock().account
    }

    fn start(&self, id: u64, limit: Duration) {
        let stopped = Why::Timer(ScheduleErrorKind::Stopped);
        let late = EndOnDrop::new(&self.shared, id, stopped);
        let timeout = self.shared.timer.schedule(limit, move || late.because(Why::TimedOut(limit)));
        let mut timeout = match timeout {
            Ok(timeout) => Some(timeout.cancel_on_drop()),
            Err(error) => {
                self.shared.end(id, Err(Why::Timer(error.kind())));
                return;
            }
        };
        // If the call has ended, the timeout is dropped after the lock, because it takes the lock.
        let mut calls = self.shared.lock();
        if let Some(call) = calls.waiting.get_mut(&id) {
            call.timeout = timeout.take();
            calls.queue.push_back(id);
            self.shared.work.notify_one();
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.shared.close(io::ErrorKind::ConnectionAborted);
        for thread in take(&mut self.threads) {
            // One that panicked has said so.
            let _ = thread.join();
        }
    }
}

impl Answer {
    /// Waits for the response.
    ///
    /// # Errors
    ///
    /// If the time is over, the connection was closed, or there was no room.
    pub fn wait(self) -> Outcome {
        block_on(self.receiver).expect(ENDS)
    }
}

impl IntoFuture for Answer {
    type Output = Outcome;
    type IntoFuture = Pin<Box<dyn Future<Output = Outcome> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let Self { receiver, _give_up } = self;
            receiver.await.expect(ENDS)
        })
    }
}

/// Ends the call, if nothing has ended it before.
#[derive(Debug)]
struct EndOnDrop {
    shared: Weak<Shared>,
    id: u64,
    why: Why,
}

impl EndOnDrop {
    fn new(shared: &Arc<Shared>, id: u64, why: Why) -> Self {
        Self { shared: Arc::downgrade(shared), id, why }
    }

    fn because(mut self, why: Why) {
        self.why = why;
    }
}

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.end(self.id, Err(self.why));
        }
    }
}

impl Shared {
    /// Ends the call with this response, or because of this, and returns whether it had not ended
    /// before.
    fn end(&self, id: u64, response: Result<Vec<u8>, Why>) -> bool {
        let mut calls = self.lock();
        let Some(call) = calls.waiting.remove(&id) else { return false };
        let account = &mut calls.account;
        account.pending -= 1;
        *match response {
            Ok(_) => &mut account.answered,
            Err(Why::TimedOut(_)) => &mut account.timed_out,
            Err(Why::GivenUp) => &mut account.given_up,
            Err(_) => &mut account.failed,
        } += 1;
        calls.queued -= call.body.as_ref().map_or(0, Vec::len);
        drop(calls);
        let Call { caller, asked, body, timeout } = call;
        drop(timeout);
        let (is_sent, waited) = (body.is_none(), self.timer.now() - asked);
        // The caller may have gone.
        let _ = caller.send(response.map_err(|why| CallError { why, is_sent, waited }));
        true
    }

    /// Fails all calls, those to come too. The first reason counts.
    fn close(&self, reason: io::ErrorKind) {
        let mut calls = self.lock();
        let reason = *calls.closed.get_or_insert(reason);
        let waiting: Vec<_> = calls.waiting.keys().copied().collect();
        drop(calls);
        self.work.notify_all();
        // The other side may have closed it.
        let _ = self.stream.shutdown(Shutdown::Both);
        for id in waiting {
            self.end(id, Err(Why::Closed(reason)));
        }
    }

    fn write(&self) -> io::Result<()> {
        let mut bytes = Vec::new();
        loop {
            let idle = |calls: &mut Calls| calls.queue.is_empty() && calls.closed.is_none();
            let waited = self.work.wait_while(self.lock(), idle);
            let mut calls = waited.unwrap_or_else(PoisonError::into_inner);
            if calls.closed.is_some() {
                return Ok(());
            }
            while let Some(id) = calls.queue.pop_front() {
                // A call that has ended does not go out. One that goes out counts as sent before
                // its first byte does: so a request that was not sent may safely be sent again.
                let body = calls.waiting.get_mut(&id).and_then(|call| call.body.take());
                let Some(body) = body else { continue };
                calls.queued -= body.len();
                Frame { kind: Kind::Request, id, body }.write_to(&mut bytes)?;
                calls.account.sent += 1;
                if A_WRITE < bytes.len() {
                    break;
                }
            }
            drop(calls);
            (&self.stream).write_all(&bytes)?;
            bytes.clear();
        }
    }

    fn read(&self) -> io::Result<()> {
        let mut reader = BufReader::new(&self.stream);
        while let Some(frame) = Frame::read(&mut reader)? {
            let (id, body) = frame.of_kind(Kind::Response)?;
            if !self.end(id, Ok(body)) {
                let account = &mut self.lock().account;
                *(if id < account.asked { &mut account.late } else { &mut account.unknown }) += 1;
            }
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many requests wait for the connection at most.
const MOST_QUEUED: usize = 1 << 16;
/// How many bytes of bodies do.
const MOST_BYTES: usize = 64 * LONGEST_BODY;
/// The writer takes requests of about this many bytes at once.
const A_WRITE: usize = 1 << 16;
/// The server closed the connection, and not in the middle of a frame.
const GONE: io::ErrorKind = io::ErrorKind::ConnectionReset;
const ENDS: &str = "each call ends with an outcome";
