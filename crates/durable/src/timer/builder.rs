//! What can be set.

use std::fmt;
#[cfg(feature = "redb")]
use std::path::Path;
#[cfg(feature = "postgres")]
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use super::DurableTimer;
use super::handle::Handle;
use super::worker::Hooks;
#[cfg(feature = "postgres")]
use super::worker::{Clock, Hook, call};
use crate::Error;
use crate::keeper::{Config, Event, Rate};
use crate::store::Store;
#[cfg(feature = "postgres")]
use crate::values::lock;
use crate::values::milliseconds;

/// Makes a [`DurableTimer`].
pub struct Builder {
    config: Config,
    #[cfg(feature = "redb")]
    cache: usize,
    backlog: usize,
    thread_name: String,
    hooks: Hooks,
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
                max_attempts: None,
                visibility: None,
                rate: None,
            },
            #[cfg(feature = "redb")]
            cache: 64 << 20,
            backlog: 64 << 20,
            thread_name: "tickwheel-durable".to_owned(),
            hooks: Hooks {
                place: None,
                clock: Box::new(SystemTime::now),
                on_error: Box::new(|_| ()),
                on_event: None,
            },
        }
    }
}

impl Builder {
    /// Sets how far ahead timeouts are loaded into memory. Default 10 minutes.
    ///
    /// If several timers share the store, the default, and the most, is 1 s.
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

    /// Sets how many bytes of names, payloads and metadata may wait for the store. Default 64 MB.
    ///
    /// Beyond that [`DurableTimer::schedule`] and [`cancel`](DurableTimer::cancel) give
    /// [`Error::Backlog`], because callers ask for more than the store can commit. Timeouts that
    /// consumers hold do not count.
    pub fn backlog(mut self, bytes: usize) -> Self {
        self.backlog = bytes;
        self
    }

    /// Sets the most timeouts that are handed out and not settled. Default 1000.
    ///
    /// While consumers hold that many, the timer hands out no more, and later loads no more.
    /// Scheduling goes on. As many acks may wait for their commit, so after a crash at most twice
    /// this number come again, and what is locked in the store or refused by it.
    pub fn in_flight(mut self, timeouts: usize) -> Self {
        self.config.in_flight = timeouts;
        self
    }

    /// Sets how long after it was dropped a [`Due`](crate::Due) comes again. Default 30 s.
    pub fn redeliver(mut self, delay: Duration) -> Self {
        self.config.redeliver = milliseconds(delay);
        self
    }

    /// Sets how often a timeout is handed out at most. Default: until it is acked.
    ///
    /// A timeout that was handed out so often and was not acked is dead. It is handed out no more,
    /// and is kept as a [dead letter](DurableTimer::dead_letters), whatever became of the consumers:
    /// they retried it, dropped it, or died with their process.
    ///
    /// For that, each timeout is counted in the store before a consumer gets it, which costs it one
    /// more write there, and a commit when a consumer asks for it. While the store cannot commit,
    /// nothing is handed out. If the process dies between that
    /// commit and the consumer, or its lease is lost, the timeout was counted and not seen, so it
    /// may be dead one hand-out early; never late. What other consumers of that process hold counts
    /// too: they have not acked it. What was handed out before this was set counts
    /// as often as it was [retried](crate::Due::retry) or dropped. All timers of a store must be set
    /// alike.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.config.max_attempts = Some(attempts);
        self
    }

    /// Sets how long a consumer may hold a timeout. Default: for as long as the process lives.
    ///
    /// After that time, and a second at most, the timeout comes again as if it was dropped, and what
    /// the consumer does with it then is of no effect. [`Due::extend`](crate::Due::extend) gives one
    /// more time. Nothing of it is written to the store.
    pub fn visibility(mut self, time: Duration) -> Self {
        self.config.visibility = Some(milliseconds(time));
        self
    }

    /// Sets how many timeouts consumers get at most in any span of `per`. Default: no limit.
    ///
    /// What is retried, dropped or held for too long and comes again counts again. Each timer of a
    /// store has its own limit; [`DurableTimer::limit_rate`] sets one for all. What is due waits in
    /// the store, and is late.
    pub fn rate_limit(mut self, timeouts: usize, per: Duration) -> Self {
        self.config.rate = Some(Rate { timeouts, per: milliseconds(per) });
        self
    }

    /// Sets how long acks may wait for a commit of something else to go along with. Default 5 ms.
    /// With n timers on one store each waits n times as long, but at most a fortieth of the lease.
    ///
    /// After a crash in that time, the timeouts that were acked come again.
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
        self.hooks.clock = Box::new(clock);
        self
    }

    /// Sets the hook that the timer calls with each error of the store and with each timeout that
    /// it found damaged. The hook runs on the timer's thread, so it must be short, and what waits
    /// for the timer is [`Error::OwnThread`] there. The crate `log` gets the same errors.
    pub fn on_error(mut self, hook: impl FnMut(&Error) + Send + 'static) -> Self {
        self.hooks.on_error = Box::new(hook);
        self
    }

    /// Sets the hook that the timer calls with what it did, for an audit. Default none.
    ///
    /// It hears of a change once that is durable, of one name in the order in which it happened. It
    /// does not hear of what other workers do, or callers by SQL, or what the store did before an
    /// error or a crash. The hook runs on the timer's thread, as that of
    /// [`on_error`](Self::on_error).
    ///
    /// ```
    /// use std::sync::mpsc;
    /// use tickwheel_durable::{DurableTimer, Event, MemoryStore};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (sender, audit) = mpsc::channel();
    /// let timer = DurableTimer::builder()
    ///     .on_event(move |event| drop(sender.send(event.clone())))
    ///     .open_store(MemoryStore::default())?;
    /// timer.schedule("order-17", std::time::SystemTime::now(), b"")?.wait()?;
    /// timer.recv()?.expect("it is due").ack();
    /// timer.close()?;
    ///
    /// let names = audit.iter().map(|event| match event {
    ///     Event::Scheduled { name, .. } => format!("{name} scheduled"),
    ///     Event::HandedOut { name, attempt, .. } => format!("{name} handed out {attempt}"),
    ///     Event::Acked { name, .. } => format!("{name} acked"),
    ///     other => format!("{other:?}"),
    /// });
    /// assert!(names.eq(["order-17 scheduled", "order-17 handed out 1", "order-17 acked"]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn on_event(mut self, hook: impl FnMut(&Event) + Send + 'static) -> Self {
        self.hooks.on_event = Some(Box::new(hook));
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
        let handle = Handle::start(self.config, store, self.hooks, self.backlog, self.thread_name)?;
        Ok(DurableTimer::new(handle))
    }

    /// Opens a timer on each of these databases, which share the names of one fleet; and connects to
    /// them.
    ///
    /// All that was set holds for each of them: consumers may hold as many timeouts as
    /// [`in_flight`](Self::in_flight) says of each database, and get as many of each as
    /// [`rate_limit`](Self::rate_limit) says. With [`max_attempts`](Self::max_attempts), a consumer
    /// that waits may have one timeout of each database counted, and gets the others when it asks
    /// again. The hooks and the clock are shared by all, and called by one thread at a time.
    /// Errors name the database.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`], and as for [`Fleet::connect`](crate::Fleet::connect).
    #[cfg(feature = "postgres")]
    pub fn open_fleet(self, urls: &[impl AsRef<str>]) -> Result<crate::Fleet, Error> {
        self.check()?;
        let Self { config, backlog, thread_name, hooks, .. } = self;
        let opener = Opener {
            config,
            backlog,
            thread_name,
            clock: Arc::new(Mutex::new(hooks.clock)),
            on_error: Arc::new(Mutex::new(hooks.on_error)),
            on_event: hooks.on_event.map(|hook| Arc::new(Mutex::new(hook))),
        };
        crate::Fleet::open(opener, urls)
    }

    fn check(&self) -> Result<(), Error> {
        let config = &self.config;
        let checks = [
            (1 <= config.horizon, "horizon", "1 ms or more"),
            (16 <= config.near_rows, "near", "16 timeouts or more"),
            (1 << 20 <= config.near_bytes, "near", "1 MB or more"),
            (1 <= config.group, "group", "1 or more"),
            (1 <= config.in_flight, "in_flight", "1 or more"),
            (config.max_attempts != Some(0), "max_attempts", "1 or more"),
            (config.visibility != Some(0), "visibility", "1 ms or more"),
            (config.rate.is_none_or(|rate| 1 <= rate.timeouts), "rate_limit", "1 or more"),
            (config.rate.is_none_or(|rate| 1 <= rate.per), "rate_limit", "1 ms or more"),
            (config.in_flight <= config.near_rows, "in_flight", "at most what `near` allows"),
        ];
        match checks.into_iter().find(|(holds, ..)| !holds) {
            None => Ok(()),
            Some((_, setting, expected)) => Err(Error::Setting { setting, expected }),
        }
    }
}

/// Opens the timers of a fleet.
#[cfg(feature = "postgres")]
pub(crate) struct Opener {
    config: Config,
    pub(crate) backlog: usize,
    thread_name: String,
    clock: Arc<Mutex<Clock>>,
    on_error: Arc<Mutex<Hook<Error>>>,
    on_event: Option<Arc<Mutex<Hook<Event>>>>,
}

#[cfg(feature = "postgres")]
impl Opener {
    /// Opens the timer on the store of the database that is called so.
    pub(crate) fn open(
        &self,
        store: impl Store + 'static,
        place: &str,
    ) -> Result<DurableTimer, Error> {
        let (clock, on_error) = (Arc::clone(&self.clock), Arc::clone(&self.on_error));
        let on_event = self
            .on_event
            .clone()
            .map(|hook| -> Hook<Event> { Box::new(move |event: &Event| (*lock(&hook))(event)) });
        let hooks = Hooks {
            place: Some(place.to_owned()),
            clock: Box::new(move || (*lock(&clock))()),
            on_error: Box::new(move |error: &Error| (*lock(&on_error))(error)),
            on_event,
        };
        let (config, name) = (self.config.clone(), self.thread_name.clone());
        Ok(DurableTimer::new(Handle::start(config, store, hooks, self.backlog, name)?))
    }

    /// Tells an error that is of no timer.
    pub(crate) fn tell(&self, error: &Error) {
        log::error!("{error}");
        call("on_error", &mut **lock(&self.on_error), error);
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("config", &self.config).finish_non_exhaustive()
    }
}
