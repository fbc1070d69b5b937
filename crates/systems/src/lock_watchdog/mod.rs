//! Locks in Redis whose leases a watchdog renews, as Redisson's `RLock`.
//!
//! Each lock has two timeouts on one timer. Its *renewal* is a value of a delay channel: a thread
//! takes all that are due and has them renewed in one pipeline. Its *alarm* is at the end of the
//! lease, and each renewal moves it, in place: if it fires, the holder has lost the lock, whatever
//! became of Redis.

mod connection;
mod holder;
mod keeper;

pub use holder::{hold, start_holder};
pub use keeper::LockError;

use connection::Redis;
use keeper::{Ask, Command, Grant, Keeper};
use redis::{Client, RedisResult};
use std::collections::HashMap;
use std::io;
use std::mem::take;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tickwheel::{DelayReceiver, ScheduleErrorKind, Timer, delay_channel};
use tokio::runtime::Builder;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// The locks that one process holds in one Redis. Clones are the same. Dropping the last one, and
/// the last [`Lock`], waits until all are released, or for a third of the lease.
#[derive(Clone, Debug)]
pub struct Locks(Arc<Shared>);

/// One lock, held until it is [unlocked](Self::unlock), dropped or lost. Dropping it releases the
/// lock soon, and does not wait for that.
#[expect(missing_debug_implementations, reason = "it has a callback")]
pub struct Lock {
    shared: Arc<Shared>,
    grant: Arc<Grant>,
    is_unlocked: bool,
}

#[derive(Debug)]
struct Shared {
    timer: Timer,
    lease: Duration,
    /// To the keeper. None while the last handle is dropped.
    commands: Option<UnboundedSender<Command>>,
    keeper: Option<JoinHandle<()>>,
}

impl Locks {
    /// Makes the locks of one process in the Redis at `url`, on `timer`. A lock is held for `lease`
    /// and renewed each third of it. `on_lost` learns the name and the fencing number of each lock
    /// that was lost, at most once: as a task of the timer, or in the [`Lock::is_held`] that found
    /// out. It may panic, and holds up no renewal.
    ///
    /// The longer a tick of the timer, the more renewals one pipeline has.
    ///
    /// # Errors
    ///
    /// If `url` is not the address of a Redis, `lease` is over a hundred years, or the system has no
    /// thread or file left.
    pub fn new(
        url: &str,
        timer: &Timer,
        lease: Duration,
        on_lost: impl Fn(&str, u64) + Send + Sync + 'static,
    ) -> RedisResult<Self> {
        if LONGEST_LEASE < lease {
            let error = "a lease is at most a hundred years";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, error).into());
        }
        let redis = Redis::new(Client::open(url)?);
        let (due, receiver) = delay_channel(timer);
        let (timer, on_lost) = (timer.clone(), Arc::new(on_lost));
        let (held, renewals) = (HashMap::new(), (0, 0));
        let keeper = Keeper { timer: timer.clone(), lease, due, on_lost, redis, held, renewals };
        let (commands, told) = unbounded_channel();
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let thread = thread::Builder::new().name("locks".to_owned());
        let keeper = Some(thread.spawn(move || runtime.block_on(keeper.run(told)))?);
        let shared = Arc::new(Shared { timer, lease, commands: Some(commands), keeper });
        let weak = Arc::downgrade(&shared);
        thread::Builder::new().name("renewals".to_owned()).spawn(move || watch(&weak, receiver))?;
        Ok(Self(shared))
    }

    /// Locks `name` for `owner`. An owner that has it already gets one more [`Lock`], and the lock
    /// is free when all of them are gone. The call takes a third of the lease at most.
    ///
    /// # Errors
    ///
    /// If another owner has it, in this process or another, if Redis does not answer in time, if
    /// the system has no random numbers, or if the timer takes no more timeouts.
    pub fn try_lock(&self, name: &str, owner: &str) -> Result<Lock, LockError> {
        let shared = &self.0;
        // Nobody can guess it, and give up the lock of another.
        let mut token = [0; 16];
        getrandom::fill(&mut token).map_err(io::Error::from)?;
        let token = format!("{:032x}", u128::from_ne_bytes(token));
        let (name, owner, deadline) = (name.to_owned(), owner.to_owned(), shared.deadline());
        let ask = Ask { name, owner, token, deadline };
        let grant = shared.ask(|tell| Command::Lock { ask, tell })??;
        Ok(Lock { shared: Arc::clone(shared), grant, is_unlocked: false })
    }

    /// Returns how many leases were renewed, and in how many pipelines.
    #[must_use]
    pub fn renewals(&self) -> (u64, u64) {
        self.0.ask(Command::Count).unwrap_or_default()
    }
}

impl Lock {
    /// Returns whether the lock is held at this moment, by the timer's clock: false from the end of
    /// the lease on, though nothing has run since the last renewal.
    ///
    /// The process may stop right after this call. What the lock guards is only safe from late
    /// writes if it refuses a [`fence`](Self::fence) below the largest it has seen.
    #[must_use]
    pub fn is_held(&self) -> bool {
        let is_good = self.grant.is_good(self.shared.timer.now());
        if !is_good {
            // The caller did not panic.
            let _ = catch_unwind(AssertUnwindSafe(|| self.grant.lose()));
        }
        is_good
    }

    /// Returns the fencing number, which is larger than that of each holder before.
    #[must_use]
    pub fn fence(&self) -> u64 {
        self.grant.fence
    }

    /// Gives the lock up, or one of the owner's [`Lock`]s, and returns whether it was held until
    /// now. When this returns, no renewal of the lock is under way, and none follows.
    ///
    /// False means that it had been lost. It can also mean that Redis unlocked it, that the answer
    /// was lost with the connection, and that a second attempt found nothing to unlock.
    ///
    /// # Errors
    ///
    /// If Redis does not answer within a third of the lease: then the lock is free at its end.
    pub fn unlock(mut self) -> Result<bool, LockError> {
        self.is_unlocked = true;
        let (grant, deadline) = (Arc::clone(&self.grant), self.shared.deadline());
        self.shared.ask(|tell| Command::Unlock { grant, deadline, tell: Some(tell) })?
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if !self.is_unlocked {
            // Nobody to tell: if Redis does not answer, the lease ends by itself.
            let (grant, deadline) = (Arc::clone(&self.grant), self.shared.deadline());
            self.shared.send(Command::Unlock { grant, deadline, tell: None });
        }
    }
}

impl Shared {
    /// Has the keeper do something, and waits for its answer.
    fn ask<T>(&self, command: impl FnOnce(Sender<T>) -> Command) -> Result<T, LockError> {
        let (tell, answer) = channel();
        self.send(command(tell));
        answer.recv().map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe).into())
    }

    fn send(&self, command: Command) {
        // It runs as long as this is there.
        let _ = self.commands.as_ref().map(|commands| commands.send(command));
    }

    /// Returns when a call that begins now fails, though Redis may hang, or answer byte by byte:
    /// while the lease that it may bring is good.
    fn deadline(&self) -> Instant {
        Instant::now() + self.lease / 3
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // The keeper does what it was told before. All of that has its deadline by now.
        drop(self.commands.take());
        let _ = self.keeper.take().map(JoinHandle::join);
    }
}

/// Has renewed what is due, until all locks and [`Locks`] are gone, or the timer was stopped. A
/// thread of its own, because a task that waits would wait for the timer's worker.
fn watch(shared: &Weak<Shared>, mut due: DelayReceiver<Arc<Grant>>) {
    let mut batch = Vec::new();
    loop {
        let received = due.recv_batch(&mut batch, BATCH);
        let Some(shared) = shared.upgrade() else { return };
        let grants = take(&mut batch).into_iter().map(|due| due.value).collect();
        match received {
            Ok(0) | Err(ScheduleErrorKind::Stopped) => return,
            Ok(_) => shared.send(Command::Renew(grants)),
            // The timer has no timeout to spare to wake this thread: what is due comes out then.
            Err(_) => thread::sleep(shared.lease / 15),
        }
    }
}

/// At most this many renewals in one pipeline: others wait for the connection meanwhile.
const BATCH: usize = 1_000;
/// From any moment on, a longer one could end after the last [`Instant`].
const LONGEST_LEASE: Duration = Duration::from_secs(100 * 365 * 86_400);
