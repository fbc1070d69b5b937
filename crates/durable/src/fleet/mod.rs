//! A fleet: durable timers on several databases that share the names.

mod ask;
mod calls;
mod commit;
mod iter;
mod map;
mod shared;
#[cfg(test)]
mod simulation;
mod stream;
#[cfg(test)]
mod tests;
mod watch;

use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use futures_channel::oneshot;
use tickwheel::MonotonicClock;

pub use commit::FleetCommit;
pub use iter::{FleetDeadLetters, FleetIter};
pub use stream::FleetStream;

use crate::block_on::{block_on, block_on_until};
use crate::keeper::{Cancelled, Found, Retried, Scheduled};
use crate::store::Change;
use crate::timer::Opener;
use crate::values::{check, check_name, deadline, lock};
use crate::{Content, DeadLetter, Due, DurableTimer, Error, Pending, PostgresStore, Stats};
use shared::Core;

/// A durable timer on several PostgreSQL databases, which share the names.
///
/// It has the calls of a [`DurableTimer`], and makes each where it belongs: a name is always that of
/// one database. `tickwheel-durable fleet` tells which, lets a new database join, and moves names
/// while all goes on. A fleet follows such a move within a second, and what is asked for meanwhile
/// waits.
///
/// - **Names are spread** over 64 partitions by their MD5, and partitions are spread over databases.
/// - **One database that does not answer** holds up what it has, and nothing else. It may be down when
///   the fleet is opened, as long as another answers.
/// - **The calls of one name** are made one after another, in the order of the calls, wherever the
///   name goes meanwhile. Those of several names go along with each other.
/// - **A move is no loss of what a timer promises**: at least once, never early, and nothing after a
///   cancel that was answered. [`Due::epoch`] grows with a move.
///
/// All processes of a fleet should be opened with all databases of it, in any order. A database that
/// was not given hands out its timeouts in other processes, if there are some, and what is asked of
/// its names is an error that names it.
///
/// Clones are the same fleet. When the last one is dropped, it does what was asked for and stops, as
/// a timer does. The drop blocks the thread until then, for a lease more than that of a timer.
///
/// ```no_run
/// # fn main() -> Result<(), tickwheel_durable::Error> {
/// use std::time::{Duration, SystemTime};
/// use tickwheel_durable::Fleet;
///
/// let fleet = Fleet::connect(&[
///     "postgresql://app@db-1/timers",
///     "postgresql://app@db-2/timers",
/// ])?;
/// let hour = SystemTime::now() + Duration::from_secs(3600);
/// fleet.schedule("order-17/payment", hour, b"eur 20")?.wait()?; // durable now
///
/// while let Some(due) = fleet.recv()? {
///     println!("{}: {} bytes", due.name(), due.payload().len());
///     due.ack();
/// }
/// fleet.close()
/// # }
/// ```
#[derive(Clone)]
pub struct Fleet {
    owner: Arc<Owner>,
}

/// What all clones share. The fleet stops when it is dropped.
struct Owner {
    core: Arc<Core>,
}

/// A database of a fleet; by [`Fleet::databases`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FleetDatabase {
    /// What it is called in errors: host, port and name.
    pub place: String,
    /// Why it did not answer at the last look, or cannot be of this fleet.
    pub error: Option<Error>,
    /// The partitions that it has, as far as is known.
    pub partitions: Vec<u32>,
}

impl Fleet {
    /// Connects to the databases at these URLs, with the defaults of
    /// [`Builder::open_fleet`](crate::Builder::open_fleet).
    ///
    /// # Errors
    ///
    /// As for [`PostgresStore::connect`](crate::PostgresStore::connect), if none of them answers. If
    /// there is no URL, two of them are of one database, or a database is of no fleet with another:
    /// then `tickwheel-durable fleet join` is the way. A database that answers later and is one of
    /// these is not used, and [`Builder::on_error`](crate::Builder::on_error) tells it.
    pub fn connect(urls: &[impl AsRef<str>]) -> Result<Self, Error> {
        DurableTimer::builder().open_fleet(urls)
    }

    /// Connects as [`connect`](Self::connect) does, without blocking the task.
    ///
    /// With settings of your own, open it by the [`Builder`](crate::Builder) on a thread that may
    /// block, such as that of tokio's `spawn_blocking`.
    ///
    /// # Errors
    ///
    /// As for [`connect`](Self::connect).
    pub async fn connect_async(urls: &[impl AsRef<str>]) -> Result<Self, Error> {
        let (sender, receiver) = oneshot::channel();
        let urls = owned(urls);
        thread::Builder::new()
            .name("tickwheel-durable/connect".to_owned())
            .spawn(move || drop(sender.send(Self::connect(&urls))))
            .map_err(|error| Error::store("start a thread to connect", error))?;
        receiver.await.unwrap_or(Err(Error::Closed))
    }

    pub(crate) fn open(opener: Opener, urls: &[impl AsRef<str>]) -> Result<Self, Error> {
        let urls = owned(urls);
        if urls.is_empty() {
            return Err(Error::Setting { setting: "urls", expected: "one or more" });
        }
        let stores = urls.iter().map(|url| PostgresStore::connect_later(url));
        let stores = stores.collect::<Result<Vec<_>, _>>()?;
        let places: Vec<String> = stores.iter().map(|store| store.place().to_owned()).collect();
        let backlog = opener.backlog;
        let opener = Arc::new(opener);
        let (opens, called) = (Arc::clone(&opener), places.clone());
        let open = move |at: usize| {
            let mut store = PostgresStore::connect_later(&urls[at])?;
            // Who has asked it where the partitions are has made them.
            store.makes_no_tables();
            opens.open(store, &called[at])
        };
        let tell = move |error: &Error| opener.tell(error);
        let (open, tell) = (Box::new(open), Box::new(tell));
        let core = Arc::new(Core::new(places, backlog, open, tell, MonotonicClock));
        watch::start(&core, stores)?;
        Ok(Self { owner: Arc::new(Owner { core }) })
    }

    /// Schedules a timeout, or moves the one that has this name. `content` is a payload, or a payload
    /// and [metadata](Content::metadata).
    ///
    /// `at` is rounded up to a millisecond. A deadline in the past is due at once. The
    /// [`FleetCommit`] tells whether the name was [`New`](Scheduled::New).
    ///
    /// # Errors
    ///
    /// As for [`DurableTimer::schedule`]. What the database says comes with the [`FleetCommit`].
    pub fn schedule<'a>(
        &self,
        name: &str,
        at: SystemTime,
        content: impl Into<Content<'a>>,
    ) -> Result<FleetCommit<Scheduled>, Error> {
        let content = content.into();
        check(name, content)?;
        self.ask(Change::put(name, deadline(at), content), Scheduled::of)
    }

    /// Cancels the timeout of this name.
    ///
    /// The [`FleetCommit`] tells whether the timeout was pending. After [`Cancelled::Cancelled`] it
    /// is never handed out.
    ///
    /// # Errors
    ///
    /// As for [`schedule`](Self::schedule).
    pub fn cancel(&self, name: &str) -> Result<FleetCommit<Cancelled>, Error> {
        check_name(name)?;
        self.ask(Change::cancel(name), Cancelled::of)
    }

    /// Blocks the thread until a timeout is due in one of the databases, and returns it. `None`: the
    /// fleet was closed.
    ///
    /// The databases take turns. Any number of threads and tasks may take timeouts; each timeout goes
    /// to one of them.
    ///
    /// # Errors
    ///
    /// If the thread of a timer panicked, or this process was forked from the one with the fleet.
    pub fn recv(&self) -> Result<Option<Due>, Error> {
        self.recv_until(None)
    }

    /// Blocks the thread as [`recv`](Self::recv) does, but no longer than `timeout`. `None`: no
    /// timeout was due in that time, or the fleet was closed.
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
        let core = self.core();
        core.check_process()?;
        if core.is_closed() {
            return Ok(None);
        }
        for (at, timer) in core.in_turn() {
            let taken = timer.try_recv().map_err(|error| error.at(&core.members[at].place))?;
            if taken.is_some() {
                return Ok(taken);
            }
        }
        Ok(None)
    }

    fn recv_until(&self, until: Option<Instant>) -> Result<Option<Due>, Error> {
        if let Some(due) = self.try_recv()? {
            return Ok(Some(due));
        }
        self.core().threads.check()?;
        Ok(block_on_until(self.next(), until).transpose()?.flatten())
    }

    /// Waits until a timeout is due in one of the databases, and returns it. `None`: the fleet was
    /// closed.
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

    /// Returns a stream of what comes due, which ends when the fleet is closed.
    pub fn stream(&self) -> FleetStream {
        FleetStream::new(Arc::clone(&self.owner))
    }

    /// Returns the pending timeout of this name. Blocks until the database that has it has answered.
    ///
    /// It sees a change for certain once the [`FleetCommit`] of that change has completed.
    ///
    /// # Errors
    ///
    /// The database's, those of [`FleetCommit::wait`], and if the fleet is closed.
    pub fn get(&self, name: &str) -> Result<Option<Pending>, Error> {
        check_name(name)?;
        self.core().find(name, |timer| timer.get(name))
    }

    /// Returns all pending timeouts, those in flight too: of one database after another, each by
    /// deadline. Blocks at each page.
    ///
    /// A database that does not answer is one error, and the next one follows. It is not a snapshot:
    /// a timeout that is moved meanwhile, by its deadline or with its partition, may come twice or
    /// not at all.
    pub fn iter(&self) -> FleetIter {
        FleetIter::new(Arc::clone(&self.owner))
    }

    /// Returns all dead letters, of one database after another, each by name; as
    /// [`DurableTimer::dead_letters`] does. Blocks at each page.
    ///
    /// What [`iter`](Self::iter) says of databases and moves holds here too.
    pub fn dead_letters(&self) -> FleetDeadLetters {
        FleetDeadLetters::new(Arc::clone(&self.owner))
    }

    /// Returns the dead letter of this name. Blocks until the database that has it has answered.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub fn dead_letter(&self, name: &str) -> Result<Option<DeadLetter>, Error> {
        check_name(name)?;
        self.core().find(name, |timer| timer.dead_letter(name))
    }

    /// Makes a timeout of the dead letter of this name, due now and never handed out, unless the
    /// name was scheduled anew.
    ///
    /// # Errors
    ///
    /// As for [`schedule`](Self::schedule).
    pub fn retry_dead(&self, name: &str) -> Result<FleetCommit<Retried>, Error> {
        check_name(name)?;
        // The keeper knows the time.
        self.ask(Change::revive(name, 0), Retried::of)
    }

    /// Drops the dead letter of this name. The [`FleetCommit`] tells whether there was one.
    ///
    /// # Errors
    ///
    /// As for [`schedule`](Self::schedule).
    pub fn drop_dead(&self, name: &str) -> Result<FleetCommit<bool>, Error> {
        check_name(name)?;
        self.ask(Change::drop_dead(name), |found| found != Found::Nothing)
    }

    /// Returns the number of pending timeouts in all databases, those in flight too. Blocks until all
    /// have answered.
    ///
    /// The timeouts of a partition that is moved meanwhile may count twice or not at all.
    ///
    /// # Errors
    ///
    /// Of the databases that failed, and if the fleet is closed.
    pub fn len(&self) -> Result<u64, Error> {
        let all = self.at_all("count in some databases of the fleet", DurableTimer::len)?;
        Ok(all.into_iter().sum())
    }

    /// Whether nothing is pending in any database. Blocks until all have answered.
    ///
    /// # Errors
    ///
    /// As for [`len`](Self::len).
    pub fn is_empty(&self) -> Result<bool, Error> {
        Ok(self.len()? == 0)
    }

    /// Hands out nothing until [`resume`](Self::resume), in all databases; as
    /// [`DurableTimer::pause`] does. Blocks until all have answered.
    ///
    /// # Errors
    ///
    /// Of the databases that failed, and names them. The others are paused then.
    pub fn pause(&self) -> Result<(), Error> {
        self.at_all("pause some databases of the fleet", DurableTimer::pause).map(drop)
    }

    /// Hands out again what is due in all databases, after [`pause`](Self::pause). Blocks until all
    /// have answered.
    ///
    /// # Errors
    ///
    /// Of the databases that failed, and names them. The others hand out then.
    pub fn resume(&self) -> Result<(), Error> {
        self.at_all("resume some databases of the fleet", DurableTimer::resume).map(drop)
    }

    /// Returns what the timer of each database has done and holds in memory, with what the database
    /// is called. One that has never answered has none. Does not block.
    pub fn stats(&self) -> Vec<(String, Stats)> {
        let stats = self.core().members.iter().filter_map(|member| {
            let stats = member.timer.get()?.stats();
            Some((member.place.clone(), stats))
        });
        stats.collect()
    }

    /// Returns the databases in the order of the URLs: whether each answers, and what it has. That is
    /// looked at once a second. Does not block.
    pub fn databases(&self) -> Vec<FleetDatabase> {
        let core = self.core();
        let databases = core.members.iter().enumerate().map(|(at, member)| FleetDatabase {
            place: member.place.clone(),
            error: core.error(at),
            partitions: lock(&core.map).partitions(at),
        });
        databases.collect()
    }

    /// Hands out nothing more, waits until consumers have settled all that they hold, commits that
    /// and closes the stores, all at once; as [`DurableTimer::close`] does.
    ///
    /// Before that it waits until what was asked for is done, for 10 s at most: names may be on their
    /// way.
    ///
    /// # Errors
    ///
    /// As for [`DurableTimer::close`], of the databases that failed.
    pub fn close(self) -> Result<(), Error> {
        block_on(self.close_async())
    }

    /// Closes the fleet as [`close`](Self::close) does, without blocking the task. Dropped before it
    /// completes, it blocks nothing either: a thread goes on with that, and waits for consumers as
    /// long as another clone of the fleet is there.
    ///
    /// # Errors
    ///
    /// As for [`close`](Self::close).
    pub async fn close_async(self) -> Result<(), Error> {
        let core = Arc::clone(self.core());
        core.threads.check()?;
        core.check_process()?;
        if !core.shut() {
            return Err(Error::Closed);
        }
        let (sender, receiver) = oneshot::channel();
        let closing = Arc::clone(&core);
        let thread = thread::Builder::new().name("tickwheel-durable/close".to_owned());
        let started = thread.spawn(move || {
            closing.threads.add(thread::current().id());
            let _ = sender.send(closing.close());
        });
        if let Err(error) = started {
            core.abandon();
            return Err(Error::store("start a thread to close the fleet", error));
        }
        receiver.await.unwrap_or(Err(Error::Closed))
    }

    fn core(&self) -> &Arc<Core> {
        &self.owner.core
    }

    fn ask<T>(&self, change: Change, done: fn(Found) -> T) -> Result<FleetCommit<T>, Error> {
        let receiver = self.core().ask(change)?;
        Ok(FleetCommit::new(receiver, done, Arc::clone(&self.core().threads)))
    }

    fn at_all<R: Send>(
        &self,
        doing: &str,
        work: impl Fn(&DurableTimer) -> Result<R, Error> + Sync,
    ) -> Result<Vec<R>, Error> {
        let core = self.core();
        core.check()?;
        core.threads.check()?;
        core.at_all(doing, work)
    }
}

fn owned(urls: &[impl AsRef<str>]) -> Vec<String> {
    urls.iter().map(|url| url.as_ref().to_owned()).collect()
}

impl Drop for Owner {
    fn drop(&mut self) {
        if self.core.check_process().is_ok() {
            self.core.leave();
        }
    }
}

impl fmt::Debug for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fleet").field("databases", &self.databases()).finish()
    }
}
