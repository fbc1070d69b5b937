//! The timer: a thread that has a store and a keeper, and what callers hold of it.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
#[cfg(feature = "redb")]
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use event_listener::{Event, EventListener, Listener};
use futures_core::Stream;

use crate::commit::Commit;
use crate::due::Outbox;
use crate::keeper::{
    Answer, Call, Cancelled, Command, Config, Counts, Keeper, Now, Reply, Request, Scheduled,
    Settled, Trouble, milliseconds,
};
use crate::store::{Damaged, Limit, Position, Row, Store};
use crate::{Error, MAX_NAME, MAX_PAYLOAD};

/// A timer whose timeouts survive the process.
///
/// Far timeouts rest in a store, ordered by deadline. One thread loads them into a timing wheel as
/// their time nears, and hands them out when they are due. Memory goes by what is near.
///
/// A timeout has a name. [`schedule`](Self::schedule) of a name that is pending moves it, so
/// scheduling again is harmless and is also how a timeout is moved.
///
/// - **At least once.** A timeout whose [`Commit`] completed is handed out until a consumer calls
///   [`Due::ack`]. After a crash it may come again, so let consumers take the name as their
///   idempotence key.
/// - **Never early** by the system's clock of that moment, whatever was done to the clock.
/// - **By deadline**, as far as timeouts are loaded when they come due.
///
/// Clones are the same timer. When the last one is dropped, the timer commits what was asked for
/// and stops; what consumers still hold then comes again in the next process.
///
/// ```
/// # fn main() -> Result<(), tickwheel_durable::Error> {
/// use std::time::{Duration, SystemTime};
/// use tickwheel_durable::DurableTimer;
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("timeouts.redb");
/// let timer = DurableTimer::open(path)?;
/// let at = SystemTime::now() + Duration::from_millis(20);
/// timer.schedule("order-17/payment", at, b"eur 20")?.wait()?; // durable now
///
/// if let Some(due) = timer.recv()? {
///     assert_eq!(due.name(), "order-17/payment");
///     due.ack();
/// }
/// timer.close()
/// # }
/// ```
#[derive(Clone)]
pub struct DurableTimer {
    handle: Arc<Handle>,
}

impl DurableTimer {
    /// Opens the timer in this file, or makes the file, with the defaults of [`Builder`].
    ///
    /// # Errors
    ///
    /// As for [`RedbStore::open`](crate::RedbStore::open).
    #[cfg(feature = "redb")]
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::builder().open(path)
    }

    /// Opens a timer in the PostgreSQL database at this URL, with the defaults of [`Builder`].
    ///
    /// Any number of processes may do so: they share what is pending, and each timeout goes to one
    /// of them. Deadlines are compared with the clock of the database.
    ///
    /// # Errors
    ///
    /// As for [`PostgresStore::connect`](crate::PostgresStore::connect).
    #[cfg(feature = "postgres")]
    pub fn connect(url: &str) -> Result<Self, Error> {
        Self::builder().open_store(crate::PostgresStore::connect(url)?)
    }

    /// Returns a builder.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Schedules a timeout, or moves the one that has this name.
    ///
    /// `at` is rounded up to a millisecond. One in the past is due at once. The [`Commit`] tells
    /// whether the name was [`New`](Scheduled::New).
    ///
    /// # Errors
    ///
    /// If the name or the payload is not allowed, or the timer is closed. What the store says comes
    /// with the [`Commit`].
    pub fn schedule(
        &self,
        name: &str,
        at: SystemTime,
        payload: &[u8],
    ) -> Result<Commit<Scheduled>, Error> {
        check(name, payload)?;
        let request =
            Request::Put { name: name.into(), deadline: deadline(at), payload: payload.into() };
        self.ask(request, |reply| match reply {
            Reply::Scheduled(scheduled) => scheduled,
            reply => unreachable!("{reply:?} to a schedule"),
        })
    }

    /// Cancels the timeout of this name.
    ///
    /// The [`Commit`] tells whether it was pending. After [`Cancelled::Cancelled`] it is never
    /// handed out.
    ///
    /// # Errors
    ///
    /// As for [`schedule`](Self::schedule).
    pub fn cancel(&self, name: &str) -> Result<Commit<Cancelled>, Error> {
        check_name(name)?;
        self.ask(Request::Cancel { name: name.into() }, |reply| match reply {
            Reply::Cancelled(cancelled) => cancelled,
            reply => unreachable!("{reply:?} to a cancel"),
        })
    }

    /// Blocks the thread until a timeout is due, and returns it. `None`: the timer was closed.
    ///
    /// Any number of threads and tasks may take timeouts; each timeout goes to one of them.
    ///
    /// # Errors
    ///
    /// If the timer's thread panicked, or this process was forked from the one with the timer.
    pub fn recv(&self) -> Result<Option<Due>, Error> {
        self.recv_until(None)
    }

    /// Blocks the thread as [`recv`](Self::recv) does, for so long at most. `None`: nothing was due
    /// in that time, or the timer was closed.
    ///
    /// # Errors
    ///
    /// As for [`recv`](Self::recv).
    pub fn recv_timeout(&self, timeout: Duration) -> Result<Option<Due>, Error> {
        self.recv_until(Instant::now().checked_add(timeout))
    }

    /// Returns a timeout that is due, if there is one at this moment.
    ///
    /// # Errors
    ///
    /// As for [`recv`](Self::recv).
    pub fn try_recv(&self) -> Result<Option<Due>, Error> {
        Ok(self.handle.try_take()?.flatten())
    }

    fn recv_until(&self, until: Option<Instant>) -> Result<Option<Due>, Error> {
        loop {
            if let Some(taken) = self.handle.try_take()? {
                return Ok(taken);
            }
            let listener = self.handle.shared.due.listen();
            if let Some(taken) = self.handle.try_take()? {
                return Ok(taken);
            }
            match until {
                None => listener.wait(),
                Some(until) => {
                    if listener.wait_deadline(until).is_none() {
                        return Ok(self.handle.try_take()?.flatten());
                    }
                }
            }
        }
    }

    /// Waits until a timeout is due, and returns it. `None`: the timer was closed.
    ///
    /// Dropping the future loses nothing.
    ///
    /// # Errors
    ///
    /// As for [`recv`](Self::recv).
    pub async fn next(&self) -> Result<Option<Due>, Error> {
        let mut stream = self.stream();
        std::future::poll_fn(|context| stream.poll_due(context)).await
    }

    /// Returns a stream of what comes due, which ends when the timer is closed.
    pub fn stream(&self) -> DueStream {
        DueStream { timer: self.clone(), listener: None }
    }

    /// Returns the pending timeout of this name. Blocks until the store has answered.
    ///
    /// # Errors
    ///
    /// The store's, and if the timer is closed.
    pub fn get(&self, name: &str) -> Result<Option<Pending>, Error> {
        check_name(name)?;
        self.ask(Request::Get { name: name.into() }, |reply| match reply {
            Reply::Found(row) => row.map(Pending),
            reply => unreachable!("{reply:?} to a get"),
        })?
        .wait()
    }

    /// Returns all pending timeouts by deadline, those in flight too. Blocks at each page.
    ///
    /// It is not a snapshot: a timeout that is moved meanwhile may come twice or not at all.
    pub fn iter(&self) -> Iter {
        Iter { timer: self.clone(), rows: VecDeque::new(), next: Some(Position::start()) }
    }

    /// Returns the number of pending timeouts, those in flight too. Blocks until the store has
    /// answered.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub fn len(&self) -> Result<u64, Error> {
        self.ask(Request::Len, |reply| match reply {
            Reply::Len(len) => len,
            reply => unreachable!("{reply:?} to a len"),
        })?
        .wait()
    }

    /// Whether nothing is pending. Blocks until the store has answered.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub fn is_empty(&self) -> Result<bool, Error> {
        Ok(self.len()? == 0)
    }

    /// Returns what the timer has done and what it holds in memory. Does not block.
    pub fn stats(&self) -> Stats {
        let waiting = lock(&self.handle.shared.outbox).len();
        Stats { waiting, ..lock(&self.handle.shared.stats).clone() }
    }

    /// Hands out nothing more, waits until consumers have settled all that they hold, commits that
    /// and closes the store.
    ///
    /// A consumer that never settles makes this wait without end, so a thread that holds a [`Due`]
    /// must settle or drop it first. What is pending stays in the store.
    ///
    /// # Errors
    ///
    /// The store's, if the last acks could not be committed: their timeouts come again.
    pub fn close(self) -> Result<(), Error> {
        let (sender, receiver) = oneshot::channel();
        self.handle.send(Message::Close { waits: true, done: Some(sender) })?;
        let closed = receiver.recv().unwrap_or(Err(Error::Closed));
        self.handle.join();
        closed
    }

    fn ask<T>(&self, request: Request, done: fn(Reply) -> T) -> Result<Commit<T>, Error> {
        let (ticket, receiver) = oneshot::channel();
        self.handle.send(Message::Command(Command { ticket, request }))?;
        Ok(Commit::new(receiver, done))
    }
}

impl fmt::Debug for DurableTimer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DurableTimer").field("stats", &self.stats()).finish()
    }
}

/// Makes a [`DurableTimer`].
pub struct Builder {
    config: Config,
    #[cfg(feature = "redb")]
    cache: usize,
    thread_name: String,
    clock: Box<dyn Fn() -> SystemTime + Send>,
    on_error: Box<dyn FnMut(&Error) + Send>,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            config: Config {
                horizon: 600_000,
                near_rows: 100_000,
                near_bytes: 64 << 20,
                page: 4096,
                group: 1024,
                in_flight: 1000,
                redeliver: 30_000,
                linger: 5,
                refresh: 60_000,
                look: 200,
                margin: 1_000,
            },
            #[cfg(feature = "redb")]
            cache: 64 << 20,
            thread_name: "tickwheel-durable".to_owned(),
            clock: Box::new(SystemTime::now),
            on_error: Box::new(|_| ()),
        }
    }
}

impl Builder {
    /// Sets how far ahead timeouts are loaded into memory. Default 10 minutes.
    ///
    /// On a store that several timers may have at once, what is that near is read again five times
    /// a second; there the default, and the most, is 2 s.
    pub fn horizon(mut self, horizon: Duration) -> Self {
        self.config.horizon = milliseconds(horizon);
        self
    }

    /// Sets how many timeouts may be in memory, and how many bytes they may take, those in flight
    /// included. Default 100,000 and 64 MB. At least 16 and 1 MB.
    pub fn near(mut self, timeouts: usize, bytes: usize) -> Self {
        self.config.near_rows = timeouts;
        self.config.near_bytes = bytes;
        self
    }

    /// Sets the most changes of one commit. Default 1024.
    pub fn group(mut self, changes: usize) -> Self {
        self.config.group = changes;
        self
    }

    /// Sets the most timeouts that are handed out and not settled. Default 1000.
    ///
    /// When consumers hold so many, no more are handed out, and then no more are loaded. Scheduling
    /// goes on.
    pub fn in_flight(mut self, timeouts: usize) -> Self {
        self.config.in_flight = timeouts;
        self
    }

    /// Sets how long after it was dropped a [`Due`] comes again. Default 30 s.
    pub fn redeliver(mut self, delay: Duration) -> Self {
        self.config.redeliver = milliseconds(delay);
        self
    }

    /// Sets how long acks may wait for a commit of something else to go along with. Default 5 ms.
    ///
    /// A crash in that time makes what was acked come again.
    pub fn linger(mut self, delay: Duration) -> Self {
        self.config.linger = milliseconds(delay);
        self
    }

    /// Sets the memory for the pages of the file. Default 64 MB.
    #[cfg(feature = "redb")]
    pub fn cache(mut self, bytes: usize) -> Self {
        self.cache = bytes;
        self
    }

    /// Sets the clock that deadlines are compared with. Default [`SystemTime::now`].
    ///
    /// The timer reads it once a second at least.
    pub fn clock(mut self, clock: impl Fn() -> SystemTime + Send + 'static) -> Self {
        self.clock = Box::new(clock);
        self
    }

    /// Sets what is called with each error of the store and with each timeout that was found
    /// damaged. It runs on the timer's thread, so it must be short. All of it goes to the crate
    /// `log` too.
    pub fn on_error(mut self, hook: impl FnMut(&Error) + Send + 'static) -> Self {
        self.on_error = Box::new(hook);
        self
    }

    /// Sets the name of the timer's thread. Default `tickwheel-durable`.
    pub fn thread_name(mut self, name: impl Into<String>) -> Self {
        self.thread_name = name.into();
        self
    }

    /// Opens the timer in this file, or makes the file.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`], and as for [`RedbStore::open`](crate::RedbStore::open).
    #[cfg(feature = "redb")]
    pub fn open(self, path: impl AsRef<Path>) -> Result<DurableTimer, Error> {
        self.check()?;
        let store = crate::RedbStore::open_with_cache(path, self.cache)?;
        self.open_store(store)
    }

    /// Opens the timer on a store.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`], and [`Error::Store`] if the system gives no thread.
    pub fn open_store(self, store: impl Store + 'static) -> Result<DurableTimer, Error> {
        self.check()?;
        let (sender, receiver) = mpsc::channel();
        let shared = Arc::new(Shared {
            outbox: Mutex::default(),
            due: Event::new(),
            settlements: Mutex::default(),
            wake_at: (self.config.in_flight / 4).min(self.config.group).clamp(1, 256),
            is_closed: AtomicBool::new(false),
            panic: Mutex::default(),
            stats: Mutex::default(),
            process: AtomicU32::new(std::process::id()),
        });
        let worker = Worker {
            keeper: Keeper::new(self.config),
            store: Box::new(store),
            receiver,
            shared: Arc::clone(&shared),
            clock: self.clock,
            on_error: self.on_error,
            started: Instant::now(),
            closing: Vec::new(),
            commit_time: CommitTime::default(),
        };
        let thread = thread::Builder::new()
            .name(self.thread_name)
            .spawn(move || worker.run())
            .map_err(|error| Error::store("start the timer's thread", error))?;
        let handle = Handle { sender, shared, thread: Mutex::new(Some(thread)) };
        Ok(DurableTimer { handle: Arc::new(handle) })
    }

    fn check(&self) -> Result<(), Error> {
        let config = &self.config;
        let checks = [
            (1 <= config.horizon, "horizon", "1 ms or more"),
            (16 <= config.near_rows, "near", "16 timeouts or more"),
            (1 << 20 <= config.near_bytes, "near", "1 MB or more"),
            (1 <= config.group, "group", "1 or more"),
            (1 <= config.in_flight, "in_flight", "1 or more"),
            (config.in_flight <= config.near_rows, "in_flight", "at most what `near` allows"),
        ];
        match checks.into_iter().find(|(holds, ..)| !holds) {
            None => Ok(()),
            Some((_, setting, expected)) => Err(Error::Setting { setting, expected }),
        }
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("config", &self.config).finish_non_exhaustive()
    }
}

/// A timeout that is due, in the hands of a consumer.
///
/// Settle it with [`ack`](Self::ack) or [`retry`](Self::retry). Dropped without either, as by a
/// panic, it comes again after [`Builder::redeliver`].
#[must_use = "a timeout that is dropped comes again; call `ack` when it is done"]
pub struct Due {
    row: Row,
    epoch: u64,
    settled: Settled,
    shared: Arc<Shared>,
    sender: Sender<Message>,
}

impl Due {
    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.row.name
    }

    /// Returns the payload.
    pub fn payload(&self) -> &[u8] {
        &self.row.payload
    }

    /// Returns the deadline: the one it was scheduled for, or the one of the last retry.
    pub fn deadline(&self) -> SystemTime {
        time(self.row.deadline)
    }

    /// Returns 1 for the first time it is handed out, and one more for each time it came back by
    /// [`retry`](Self::retry) or by being dropped. A crash does not count.
    pub fn attempt(&self) -> u32 {
        self.row.attempt.saturating_add(1)
    }

    /// Returns a number that grows with each owner of the store: each opening of the file.
    ///
    /// A receiver that remembers the greatest it has seen can refuse what an older owner sends.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Says that it is done. The timer commits that with the next group; if the process crashes
    /// before, the timeout comes again.
    pub fn ack(mut self) {
        self.settled = Settled::Ack;
    }

    /// Schedules it again, `delay` from now.
    pub fn retry(mut self, delay: Duration) {
        self.settled = Settled::Retry { delay: milliseconds(delay) };
    }
}

impl Drop for Due {
    fn drop(&mut self) {
        let mut settlements = lock(&self.shared.settlements);
        settlements.list.push((self.row.number, self.settled));
        let wakes = !settlements.keeper_lingers || settlements.list.len() == self.shared.wake_at;
        drop(settlements);
        if wakes {
            // If the timer is gone, the timeout comes again in the next one.
            let _ = self.sender.send(Message::Wake);
        }
    }
}

impl fmt::Debug for Due {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Due")
            .field("name", &self.name())
            .field("deadline", &self.deadline())
            .field("attempt", &self.attempt())
            .field("epoch", &self.epoch)
            .finish_non_exhaustive()
    }
}

/// A stream of what comes due; by [`DurableTimer::stream`].
#[derive(Debug)]
pub struct DueStream {
    timer: DurableTimer,
    listener: Option<EventListener>,
}

impl DueStream {
    fn poll_due(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Due>, Error>> {
        loop {
            if let Some(taken) = self.timer.handle.try_take()? {
                self.listener = None;
                return Poll::Ready(Ok(taken));
            }
            let Some(listener) = &mut self.listener else {
                self.listener = Some(self.timer.handle.shared.due.listen());
                continue;
            };
            match Pin::new(listener).poll(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(()) => self.listener = None,
            }
        }
    }
}

impl Stream for DueStream {
    type Item = Result<Due, Error>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_due(context).map(Result::transpose)
    }
}

/// A timeout in the store; by [`DurableTimer::get`] and [`DurableTimer::iter`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending(Row);

impl Pending {
    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns the deadline.
    pub fn deadline(&self) -> SystemTime {
        time(self.0.deadline)
    }

    /// Returns the payload.
    pub fn payload(&self) -> &[u8] {
        &self.0.payload
    }

    /// Returns the [attempt](Due::attempt) that comes next.
    pub fn attempt(&self) -> u32 {
        self.0.attempt.saturating_add(1)
    }
}

/// All pending timeouts; by [`DurableTimer::iter`].
#[derive(Debug)]
pub struct Iter {
    timer: DurableTimer,
    rows: VecDeque<Row>,
    next: Option<Position>,
}

impl Iterator for Iter {
    type Item = Result<Pending, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.rows.is_empty() {
            let after = self.next.take()?;
            let request = Request::Page { after, limit: Limit { rows: 1000, bytes: 1 << 20 } };
            let page = self.timer.ask(request, |reply| match reply {
                Reply::Page { rows, end } => (rows, end),
                reply => unreachable!("{reply:?} to a page"),
            });
            match page.and_then(Commit::wait) {
                Ok((rows, end)) => (self.rows, self.next) = (rows.into(), end),
                Err(error) => return Some(Err(error)),
            }
        }
        self.rows.pop_front().map(|row| Ok(Pending(row)))
    }
}

/// What a timer has done since it was opened, and what it holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Timeouts in memory that are not handed out.
    pub near: usize,
    /// Bytes of all timeouts in memory, nearly.
    pub near_bytes: usize,
    /// Timeouts that are handed out and not settled.
    pub in_flight: usize,
    /// Of those, the ones that no consumer has taken.
    pub waiting: usize,
    /// Partitions that this timer owns.
    pub partitions: usize,
    /// Timeouts handed out.
    pub handed_out: u64,
    /// Timeouts acked, durably.
    pub acked: u64,
    /// Timeouts that were scheduled again by [`Due::retry`] or because they were dropped.
    pub retried: u64,
    /// Acks and retries that were refused because the partition has another owner.
    pub fenced: u64,
    /// Commits of the store.
    pub commits: u64,
    /// Changes in all commits.
    pub changes: u64,
    /// Time in all commits.
    pub commit_time: Duration,
    /// The longest commit.
    pub commit_time_max: Duration,
    /// Pages loaded.
    pub loads: u64,
    /// How often all in memory was forgotten, to be loaded anew.
    pub forgotten: u64,
    /// Errors of the store.
    pub errors: u64,
    /// Damaged timeouts that were set aside.
    pub damaged: u64,
    /// How late all timeouts together were handed out.
    pub late: Duration,
    /// How late the latest timeout was handed out. One that came due while no process ran counts.
    pub late_max: Duration,
}

/// What all clones of a timer share. The thread stops when it is dropped.
struct Handle {
    sender: Sender<Message>,
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Handle {
    fn send(&self, message: Message) -> Result<(), Error> {
        self.check_process()?;
        if self.shared.is_closed.load(Ordering::SeqCst) {
            return Err(self.closed());
        }
        self.sender.send(message).map_err(|_| self.closed())
    }

    fn closed(&self) -> Error {
        match &*lock(&self.shared.panic) {
            None => Error::Closed,
            Some(message) => Error::Panicked {
                doing: "go on with the timer; open it again".to_owned(),
                message: message.clone(),
            },
        }
    }

    fn check_process(&self) -> Result<(), Error> {
        let process = self.shared.process.load(Ordering::Relaxed);
        if process == std::process::id() { Ok(()) } else { Err(Error::Forked) }
    }

    /// `None`: nothing is due. `Some(None)`: nothing will be.
    fn try_take(&self) -> Result<Option<Option<Due>>, Error> {
        self.check_process()?;
        let taken = lock(&self.shared.outbox).take();
        if let Some((row, epoch)) = taken {
            return Ok(Some(Some(Due {
                row,
                epoch,
                settled: Settled::Dropped,
                shared: Arc::clone(&self.shared),
                sender: self.sender.clone(),
            })));
        }
        if !self.shared.is_closed.load(Ordering::SeqCst) {
            return Ok(None);
        }
        match self.closed() {
            Error::Closed => Ok(Some(None)),
            error => Err(error),
        }
    }

    fn join(&self) {
        let thread = lock(&self.thread).take();
        if let Some(thread) = thread {
            // A panic of the thread is told by `closed`.
            let _ = thread.join();
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.check_process().is_err() {
            return;
        }
        let _ = self.sender.send(Message::Close { waits: false, done: None });
        self.join();
    }
}

#[derive(Debug)]
struct Shared {
    outbox: Mutex<Outbox>,
    /// Something is in the outbox, or the timer is closed.
    due: Event,
    settlements: Mutex<Settlements>,
    /// How many settlements wake a keeper that lingers.
    wake_at: usize,
    is_closed: AtomicBool,
    /// The message of the panic that ended the thread.
    panic: Mutex<Option<String>>,
    stats: Mutex<Stats>,
    /// The process that has the thread.
    process: AtomicU32,
}

/// What consumers settled and the keeper has not seen.
#[derive(Debug, Default)]
struct Settlements {
    list: Vec<(u64, Settled)>,
    /// The keeper will look by itself soon, and need not be woken for each.
    keeper_lingers: bool,
}

type Ticket = oneshot::Sender<Result<Reply, Error>>;

enum Message {
    Command(Command<Ticket>),
    Close { waits: bool, done: Option<oneshot::Sender<Result<(), Error>>> },
    Wake,
}

#[derive(Clone, Copy, Debug, Default)]
struct CommitTime {
    total: Duration,
    max: Duration,
}

/// What the thread has.
struct Worker {
    keeper: Keeper<Ticket>,
    store: Box<dyn Store>,
    receiver: mpsc::Receiver<Message>,
    shared: Arc<Shared>,
    clock: Box<dyn Fn() -> SystemTime + Send>,
    on_error: Box<dyn FnMut(&Error) + Send>,
    started: Instant,
    closing: Vec<oneshot::Sender<Result<(), Error>>>,
    commit_time: CommitTime,
}

impl Worker {
    fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        let result = catch_unwind(AssertUnwindSafe(|| self.work()));
        if let Err(panic) = &result {
            *lock(&shared.panic) = Some(message(&**panic));
        }
        shared.is_closed.store(true, Ordering::SeqCst);
        let closed = match result {
            Ok(()) => self.keeper.last_error().cloned().map_or(Ok(()), Err),
            Err(panic) => Err(Error::Panicked {
                doing: "close the timer".to_owned(),
                message: message(&*panic),
            }),
        };
        let closing = std::mem::take(&mut self.closing);
        // The store is closed before callers hear of it, so that they can open it again.
        drop(self);
        shared.due.notify(usize::MAX);
        for done in closing {
            let _ = done.send(closed.clone());
        }
    }

    fn work(&mut self) {
        loop {
            self.take_all();
            let call = self.poll();
            self.tell();
            if let Some(call) = call {
                let answer = self.call(call);
                let now = self.now();
                self.keeper.answer(now, &mut lock(&self.shared.outbox), answer);
                self.tell();
            } else if self.keeper.is_closed() {
                return;
            } else {
                self.sleep();
            }
        }
    }

    fn poll(&mut self) -> Option<Call> {
        let now = self.now();
        let mut outbox = lock(&self.shared.outbox);
        let call = self.keeper.poll(now, &mut outbox);
        let waiting = outbox.len();
        drop(outbox);
        if waiting > 0 {
            self.shared.due.notify(waiting);
        }
        call
    }

    fn call(&mut self, call: Call) -> Result<Answer, Error> {
        let is_commit = matches!(call, Call::Commit { .. });
        let asked = Instant::now();
        let store = &mut *self.store;
        let answer =
            catch_unwind(AssertUnwindSafe(|| execute(store, call))).unwrap_or_else(|panic| {
                Err(Error::Panicked {
                    doing: "call the store".to_owned(),
                    message: message(&*panic),
                })
            });
        if is_commit {
            let took = asked.elapsed();
            self.commit_time.total += took;
            self.commit_time.max = self.commit_time.max.max(took);
        }
        answer
    }

    /// Takes all that came since the last look.
    fn take_all(&mut self) {
        while let Ok(message) = self.receiver.try_recv() {
            self.take(message);
        }
        let settled = {
            let mut settlements = lock(&self.shared.settlements);
            settlements.keeper_lingers = true;
            std::mem::take(&mut settlements.list)
        };
        let now = self.now();
        for (number, settled) in settled {
            self.keeper.settle(now, number, settled);
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Command(command) => self.keeper.command(command),
            Message::Close { waits, done } => {
                self.closing.extend(done);
                self.keeper.close(&mut lock(&self.shared.outbox), waits);
                self.shared.is_closed.store(true, Ordering::SeqCst);
                self.shared.due.notify(usize::MAX);
            }
            Message::Wake => {}
        }
    }

    fn sleep(&mut self) {
        let now = self.now();
        // The wall clock may be set, and the machine may be asleep.
        let wake = self.keeper.wake(now).min(now.steady + LONGEST_SLEEP);
        {
            let mut settlements = lock(&self.shared.settlements);
            if !settlements.list.is_empty() {
                return;
            }
            settlements.keeper_lingers = self.keeper.lingers();
        }
        let time = Duration::from_millis(wake.saturating_sub(now.steady));
        match self.receiver.recv_timeout(time) {
            Ok(message) => self.take(message),
            Err(RecvTimeoutError::Timeout) => {}
            // Nobody has a handle, and nobody holds a timeout.
            Err(RecvTimeoutError::Disconnected) => {
                self.take(Message::Close { waits: false, done: None });
            }
        }
    }

    /// Tells callers and operators what came of it.
    fn tell(&mut self) {
        for trouble in std::mem::take(&mut self.keeper.troubles) {
            let error = match trouble {
                Trouble::Store(error) => error,
                Trouble::Damaged(Damaged { name, deadline, reason }) => {
                    Error::Damaged { name, deadline, reason }
                }
            };
            log::error!("{error}");
            let hook = &mut self.on_error;
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| hook(&error))) {
                log::error!("the hook `on_error` panicked: {}", message(&*panic));
            }
        }
        for (ticket, reply) in self.keeper.replies.drain(..) {
            // Whoever dropped the `Commit` does not want to know.
            let _ = ticket.send(reply);
        }
        let Counts {
            handed_out,
            acked,
            retried,
            fenced,
            commits,
            changes,
            loads,
            forgotten,
            errors,
            damaged,
            late_max,
            late_total,
        } = self.keeper.counts;
        *lock(&self.shared.stats) = Stats {
            near: self.keeper.near_rows(),
            near_bytes: self.keeper.bytes(),
            in_flight: self.keeper.in_flight(),
            waiting: 0,
            partitions: self.keeper.partitions(),
            handed_out,
            acked,
            retried,
            fenced,
            commits,
            changes,
            commit_time: self.commit_time.total,
            commit_time_max: self.commit_time.max,
            loads,
            forgotten,
            errors,
            damaged,
            late: Duration::from_millis(late_total),
            late_max: Duration::from_millis(late_max),
        };
    }

    fn now(&self) -> Now {
        Now {
            wall: milliseconds_since_1970((self.clock)()),
            steady: u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX),
        }
    }
}

fn execute(store: &mut dyn Store, call: Call) -> Result<Answer, Error> {
    Ok(match call {
        Call::Lease { wanted } => Answer::Leases(store.lease(wanted)?),
        Call::Load { leases, after, until, limit } => {
            Answer::Page(store.load(leases.as_deref(), &after, until, limit)?)
        }
        Call::Commit { ops } => Answer::Outcomes(store.commit(&ops)?),
        Call::Get { name } => Answer::Row(store.get(&name)?),
        Call::Len => Answer::Len(store.count()?),
    })
}

/// The longest time in which the wall clock is not looked at, in milliseconds.
const LONGEST_SLEEP: u64 = 1_000;

pub(crate) fn check(name: &str, payload: &[u8]) -> Result<(), Error> {
    check_name(name)?;
    if MAX_PAYLOAD < payload.len() {
        return Err(Error::LongPayload { length: payload.len() });
    }
    Ok(())
}

fn check_name(name: &str) -> Result<(), Error> {
    match name.len() {
        0 => Err(Error::EmptyName),
        1..=MAX_NAME if name.contains('\0') => Err(Error::NulInName),
        1..=MAX_NAME => Ok(()),
        length => Err(Error::LongName { length }),
    }
}

/// Rounds up, so that nothing is early. Before 1970 is 1970.
pub(crate) fn deadline(at: SystemTime) -> u64 {
    // Stores keep it as an `i64`, which is enough for 292 million years.
    at.duration_since(UNIX_EPOCH).map_or(0, milliseconds).min(i64::MAX as u64)
}

/// Rounds down, so that nothing is early.
fn milliseconds_since_1970(now: SystemTime) -> u64 {
    now.duration_since(UNIX_EPOCH)
        .map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// Where the system cannot tell so late a time, it is the last of the year 9999.
fn time(milliseconds: u64) -> SystemTime {
    UNIX_EPOCH
        .checked_add(Duration::from_millis(milliseconds))
        .unwrap_or_else(|| UNIX_EPOCH + Duration::from_secs(253_402_300_799))
}

/// What a mutex guards here is whole at all times.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn message(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|message| (*message).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryStore;

    /// A fork itself cannot be made without unsafe code.
    #[test]
    fn in_a_forked_process_all_calls_say_so_and_none_hangs() {
        let timer = DurableTimer::builder().open_store(MemoryStore::new()).unwrap();
        let own = std::process::id();
        timer.handle.shared.process.store(own + 1, Ordering::Relaxed);
        let now = SystemTime::now();
        assert!(matches!(timer.schedule("a", now, b""), Err(Error::Forked)));
        assert!(matches!(timer.cancel("a"), Err(Error::Forked)));
        assert!(matches!(timer.recv(), Err(Error::Forked)));
        assert!(matches!(timer.len(), Err(Error::Forked)));
        assert!(matches!(timer.clone().close(), Err(Error::Forked)));
        timer.handle.shared.process.store(own, Ordering::Relaxed);
        timer.close().unwrap();
    }
}
