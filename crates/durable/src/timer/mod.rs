//! The timer: threads that have a store and a keeper, and what callers hold of them.

mod backoff;
#[cfg(feature = "redb")]
mod backup;
mod builder;
mod commit;
mod dead;
mod due;
mod handle;
mod pending;
mod shared;
mod stats;
mod stream;
#[cfg(all(test, feature = "postgres"))]
mod unattended;
mod worker;

use std::fmt;
#[cfg(feature = "redb")]
use std::path::Path;
use std::sync::Arc;
#[cfg(feature = "postgres")]
use std::thread::ThreadId;
use std::time::{Duration, Instant, SystemTime};

use event_listener::Listener;
use futures_channel::oneshot;

pub use backoff::Backoff;
#[cfg(feature = "redb")]
pub use backup::Backup;
pub use builder::Builder;
#[cfg(feature = "postgres")]
pub(crate) use builder::Opener;
pub use commit::Commit;
pub use dead::{DeadLetter, DeadLetters};
pub use due::Due;
pub(crate) use handle::check_thread;
use handle::{Handle, join};
pub use pending::{Iter, Pending};
use shared::Message;
#[cfg(feature = "postgres")]
use shared::Reply;
pub use stats::Stats;
pub use stream::DueStream;
#[cfg(all(test, feature = "postgres"))]
pub(crate) use {shared::Ticket, unattended::Unattended};

use crate::block_on::block_on;
use crate::keeper::{Cancelled, Found, Retried, Scheduled};
use crate::store::{Change, RateLimit};
use crate::values::{check, check_name, deadline, lock};
use crate::{Content, Error};

/// A timer whose timeouts survive the process.
///
/// Far timeouts rest in a store, ordered by deadline. A thread loads them into a timing wheel as
/// their time nears, and hands them out when they are due. Only the near ones take memory.
///
/// A timeout has a name. [`schedule`](Self::schedule) of a name that is pending moves it, so
/// scheduling again is harmless and is also how a timeout is moved.
///
/// - **At least once.** A timeout whose [`Commit`] completed is handed out until a consumer calls
///   [`Due::ack`], or as often as [`Builder::max_attempts`] says. After a crash it may come again, so
///   let consumers take the name as their idempotence key.
/// - **Never early** by the system's clock of that moment, whatever was done to the clock.
/// - **By deadline**, as far as timeouts are loaded when they come due.
///
/// Clones are the same timer. When the last one is dropped, the timer commits what was asked for
/// and stops; what consumers still hold then comes again in the next process. The drop blocks the
/// thread until then, two leases of a database at most: a task calls
/// [`close_async`](Self::close_async) first.
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
    fn new(handle: Handle) -> Self {
        Self { handle: Arc::new(handle) }
    }

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
    /// of them. A timer has a share while somebody calls [`recv`](Self::recv), or a call like it;
    /// without, it schedules and cancels for the others. If timeouts have waited for a lease, and
    /// consumers hold none, it gives its share back until the next call. Deadlines are compared
    /// with the clock of the database.
    ///
    /// # Errors
    ///
    /// As for [`PostgresStore::connect`](crate::PostgresStore::connect).
    #[cfg(feature = "postgres")]
    pub fn connect(url: &str) -> Result<Self, Error> {
        Self::builder().open_store(crate::PostgresStore::connect(url)?)
    }

    /// Opens a timer as [`connect`](Self::connect) does, without blocking the task.
    ///
    /// With settings of your own, open it by the [`Builder`] on a thread that may block, such as that
    /// of tokio's `spawn_blocking`.
    ///
    /// # Errors
    ///
    /// As for [`connect`](Self::connect).
    #[cfg(feature = "postgres")]
    pub async fn connect_async(url: &str) -> Result<Self, Error> {
        let (sender, receiver) = oneshot::channel();
        let url = url.to_owned();
        std::thread::Builder::new()
            .name("tickwheel-durable/connect".to_owned())
            .spawn(move || drop(sender.send(Self::connect(&url))))
            .map_err(|error| Error::store("start a thread to connect", error))?;
        receiver.await.unwrap_or(Err(Error::Closed))
    }

    /// Returns a builder.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Schedules a timeout, or moves the one that has this name. `content` is a payload, or a payload
    /// and [metadata](Content::metadata).
    ///
    /// `at` is rounded up to a millisecond. A deadline in the past is due at once. The [`Commit`]
    /// tells whether the name was [`New`](Scheduled::New).
    ///
    /// # Errors
    ///
    /// If the name or the content is not allowed, the timer is closed, or callers ask for more than
    /// the store can commit ([`Error::Backlog`]). What the store says comes with the [`Commit`].
    pub fn schedule<'a>(
        &self,
        name: &str,
        at: SystemTime,
        content: impl Into<Content<'a>>,
    ) -> Result<Commit<Scheduled>, Error> {
        let content = content.into();
        check(name, content)?;
        self.ask(Change::put(name, deadline(at), content), Scheduled::of)
    }

    /// Cancels the timeout of this name.
    ///
    /// The [`Commit`] tells whether the timeout was pending. After [`Cancelled::Cancelled`] it is
    /// never handed out.
    ///
    /// # Errors
    ///
    /// As for [`schedule`](Self::schedule).
    pub fn cancel(&self, name: &str) -> Result<Commit<Cancelled>, Error> {
        check_name(name)?;
        self.ask(Change::cancel(name), Cancelled::of)
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

    /// Blocks the thread as [`recv`](Self::recv) does, but no longer than `timeout`. `None`: no
    /// timeout was due in that time, or the timer was closed.
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
            check_thread(self.handle.thread_id)?;
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
        DueStream::new(self.handle.clone())
    }

    /// Returns the pending timeout of this name. Blocks until the store has answered.
    ///
    /// It sees a change for certain once the [`Commit`] of that change has completed.
    ///
    /// # Errors
    ///
    /// The store's, [`Error::Elsewhere`] if another database of its fleet has the name,
    /// [`Error::NoTurn`] if others read for long, and if the timer is closed.
    pub fn get(&self, name: &str) -> Result<Option<Pending>, Error> {
        check_name(name)?;
        let name = name.to_owned();
        Ok(self.handle.read(move |store| store.get(&name))?.map(Pending))
    }

    /// Returns all pending timeouts by deadline, those in flight too. Blocks at each page.
    ///
    /// It is not a snapshot: a timeout that is moved meanwhile may come twice or not at all.
    pub fn iter(&self) -> Iter {
        Iter::new(self.handle.clone())
    }

    /// Returns all dead letters by name: timeouts that were handed out as often as
    /// [`Builder::max_attempts`] says, and not acked. Blocks at each page.
    ///
    /// A name has one, the newest, until it is [retried](Self::retry_dead) or
    /// [dropped](Self::drop_dead). It is not pending: the name may be scheduled anew.
    pub fn dead_letters(&self) -> DeadLetters {
        DeadLetters::new(self.handle.clone())
    }

    /// Returns the dead letter of this name. Blocks until the store has answered.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub fn dead_letter(&self, name: &str) -> Result<Option<DeadLetter>, Error> {
        check_name(name)?;
        let name = name.to_owned();
        Ok(self.handle.read(move |store| store.get_dead(&name))?.map(DeadLetter))
    }

    /// Makes a timeout of the dead letter of this name, due now and never handed out, unless the
    /// name was scheduled anew.
    ///
    /// # Errors
    ///
    /// As for [`schedule`](Self::schedule).
    pub fn retry_dead(&self, name: &str) -> Result<Commit<Retried>, Error> {
        check_name(name)?;
        // The keeper knows the time.
        self.ask(Change::revive(name, 0), Retried::of)
    }

    /// Drops the dead letter of this name. The [`Commit`] tells whether there was one.
    ///
    /// # Errors
    ///
    /// As for [`schedule`](Self::schedule).
    pub fn drop_dead(&self, name: &str) -> Result<Commit<bool>, Error> {
        check_name(name)?;
        self.ask(Change::drop_dead(name), |found| found != Found::Nothing)
    }

    /// Returns the number of pending timeouts, those in flight too. Blocks until the store has
    /// answered.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub fn len(&self) -> Result<u64, Error> {
        self.handle.read(|store| store.count())
    }

    /// Whether nothing is pending. Blocks until the store has answered.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub fn is_empty(&self) -> Result<bool, Error> {
        Ok(self.len()? == 0)
    }

    /// Copies all that is pending, that is in flight and that is dead into a new file at this path,
    /// while the timer works. Blocks the thread for about as long as it would take to schedule it.
    ///
    /// The copy is what the store was at one moment of the call, without a pause, a limit, and what
    /// was set aside as damaged. It has its name when it is whole; until then it is `PATH.part`.
    ///
    /// To restore it, put the file in the place of the timer's while no process has that. What was
    /// acked since the copy comes again then, and [`Due::epoch`] begins anew.
    ///
    /// # Errors
    ///
    /// The stores', if something is at the path, another backup of this timer is under way, or the
    /// store is a database: that has backups of its own.
    #[cfg(feature = "redb")]
    pub fn backup(&self, path: impl AsRef<Path>) -> Result<Backup, Error> {
        backup::backup(&self.handle, path.as_ref())
    }

    /// Hands out nothing until [`resume`](Self::resume), as while what consumers need is down. Blocks
    /// until the store has answered.
    ///
    /// When it returns, consumers get nothing more from this timer. It holds for all timers of the
    /// store, the others of a database within a quarter of their lease, and after a restart too.
    /// Calls and acks go on, and consumers keep what they hold.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get), or if the store cannot keep it.
    pub fn pause(&self) -> Result<(), Error> {
        self.set_paused(true)
    }

    /// Hands out again what is due, after [`pause`](Self::pause). Blocks until the store has
    /// answered.
    ///
    /// # Errors
    ///
    /// As for [`pause`](Self::pause).
    pub fn resume(&self) -> Result<(), Error> {
        self.set_paused(false)
    }

    fn set_paused(&self, pauses: bool) -> Result<(), Error> {
        let (done, receiver) = oneshot::channel();
        let noted = Message::Pause { pauses, done };
        self.handle.note(move |store| store.pause(pauses), noted)?;
        block_on(receiver).map_err(|_| Error::Closed)
    }

    /// Sets how many timeouts the consumers of all timers of the store together get at most in any
    /// span, or that there is no limit. Blocks until the store has answered.
    ///
    /// The timers share it evenly, and hear of it as of a [`pause`](Self::pause). While they come
    /// and go they take less, not more: one that begins, or whose leases ran out, takes nothing for
    /// such a span and a lease, and what is due with it waits. The timers must have leases that are
    /// equally long. Each database of a fleet has a limit of its own.
    ///
    /// # Errors
    ///
    /// As for [`pause`](Self::pause), and [`Error::Setting`] for no timeouts or no time.
    pub fn limit_rate(&self, limit: Option<RateLimit>) -> Result<(), Error> {
        if let Some(limit) = limit {
            limit.check()?;
        }
        let (done, receiver) = oneshot::channel();
        let noted = Message::Limit { limit, done };
        self.handle.note(move |store| store.limit_rate(limit), noted)?;
        block_on(receiver).map_err(|_| Error::Closed)
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
    /// must settle or drop it first. A task must call [`close_async`](Self::close_async) instead:
    /// this call blocks the thread on which other tasks may have to settle theirs.
    ///
    /// Pending timeouts stay in the store. Other workers take the partitions over at once. If
    /// consumers still hold a timeout of a partition, others take that partition over when it is
    /// settled, or after a lease.
    ///
    /// Whatever a database does, this ends two leases after consumers have settled all.
    ///
    /// # Errors
    ///
    /// The store's, if acks could not be committed within a lease, so that so many timeouts come
    /// again, or the leases could not be given back, so that they run out. What went wrong before is
    /// no error of this. A change that is not made within a lease is answered with
    /// [`Error::Closed`].
    pub fn close(self) -> Result<(), Error> {
        block_on(self.close_async())
    }

    /// Closes the timer as [`close`](Self::close) does, without blocking the task. Dropped before
    /// it completes, it blocks nothing either: the thread of the timer goes on with that, and waits
    /// for consumers as long as another clone of the timer is there.
    ///
    /// # Errors
    ///
    /// As for [`close`](Self::close).
    pub async fn close_async(self) -> Result<(), Error> {
        check_thread(self.handle.thread_id)?;
        let (sender, receiver) = oneshot::channel();
        self.handle.send(Message::Close { waits: true, done: Some(sender) })?;
        // A task that gives this up does not wait for the thread.
        let thread = self.handle.take_thread();
        let closed = receiver.await.unwrap_or(Err(Error::Closed));
        join(thread);
        closed
    }

    fn ask<T>(&self, change: Change, done: fn(Found) -> T) -> Result<Commit<T>, Error> {
        Ok(Commit::new(self.handle.ask(change)?, done, self.handle.thread_id))
    }
}

/// For the fleet that has the timer.
#[cfg(feature = "postgres")]
impl DurableTimer {
    /// Asks for a change. `then` runs on the timer's thread with what it found, unless this is an
    /// error. It is dropped if the timer ends without an answer.
    pub(crate) fn ask_then(
        &self,
        change: Change,
        then: impl FnOnce(Result<Found, Error>) + Send + 'static,
    ) -> Result<(), Error> {
        self.handle.ask_for(change, Reply::Then(Box::new(then)))
    }

    /// Returns which thread answers and calls the hooks.
    pub(crate) fn thread_id(&self) -> ThreadId {
        self.handle.thread_id
    }

    /// Stops the timer as dropping the last clone does.
    pub(crate) fn stop(&self) {
        self.handle.stop();
    }

    /// Stops the timer, and does not wait until it has.
    pub(crate) fn give_up(&self) {
        self.handle.give_up();
    }
}

impl fmt::Debug for DurableTimer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DurableTimer").field("stats", &self.stats()).finish()
    }
}
