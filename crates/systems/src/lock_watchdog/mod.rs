//! Locks in Redis whose leases a watchdog renews, as Redisson's `RLock`.
//!
//! Each lock has two timeouts on one timer. Its *renewal* is a value of a delay channel: a thread
//! takes all that are due and renews them in one pipeline. Its *alarm* is at the end of the lease,
//! and each renewal moves it, in place: if it fires, the holder has lost the lock, whatever became
//! of Redis.

mod connection;
mod holder;

pub use holder::{hold, start_holder};

use connection::Redis;
use redis::{Client, Cmd, RedisError, RedisResult};
use std::collections::HashMap;
use std::mem::take;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};
use thiserror::Error;
use tickwheel::{
    DelayKey, DelayReceiver, DelaySender, Due, Next, ScheduleErrorKind, Timeout, Timer,
    delay_channel,
};

/// The locks that one process holds in one Redis. Clones are the same.
#[derive(Clone)]
#[expect(missing_debug_implementations, reason = "it has a callback")]
pub struct Locks(Arc<Shared>);

/// One lock, held until it is [unlocked](Self::unlock), dropped or lost.
#[expect(missing_debug_implementations, reason = "it has a callback")]
pub struct Lock {
    shared: Arc<Shared>,
    grant: Arc<Grant>,
    is_unlocked: bool,
}

struct Shared {
    timer: Timer,
    lease: Duration,
    due: DelaySender<Arc<Grant>>,
    on_lost: Arc<OnLost>,
    /// Locked during each call to Redis. So no renewal of a lock is under way while the lock is
    /// given up, and none begins later.
    state: Mutex<State>,
}

type OnLost = dyn Fn(&str, u64) + Send + Sync;

struct State {
    redis: Redis,
    held: HashMap<String, Held>,
    renewals: u64,
    pipelines: u64,
}

/// What the process knows of a lock that one of its owners holds.
struct Held {
    grant: Arc<Grant>,
    owner: String,
    /// How many [`Lock`]s the owner has.
    depth: usize,
    renewal: DelayKey,
    alarm: Timeout,
}

struct Grant {
    name: String,
    token: String,
    fence: u64,
    /// The end of the lease. None since it was unlocked or lost.
    until: Mutex<Option<Instant>>,
    on_lost: Arc<OnLost>,
}

impl Locks {
    /// Makes the locks of one process in the Redis at `url`, on `timer`. A lock is held for `lease`
    /// and renewed each third of it. `on_lost` learns the name and the fencing number of each lock
    /// that was lost: on the timer's worker, or on the thread that found out, and at most once.
    ///
    /// The longer a tick of the timer, the more renewals one pipeline has.
    ///
    /// # Errors
    ///
    /// If `url` is not the address of a Redis, or the system has no thread left.
    pub fn new(
        url: &str,
        timer: &Timer,
        lease: Duration,
        on_lost: impl Fn(&str, u64) + Send + Sync + 'static,
    ) -> RedisResult<Self> {
        let redis = Redis::new(Client::open(url)?, lease / 3);
        let (due, receiver) = delay_channel(timer);
        let shared = Arc::new(Shared {
            timer: timer.clone(),
            lease,
            due,
            on_lost: Arc::new(on_lost),
            state: Mutex::new(State { redis, held: HashMap::new(), renewals: 0, pipelines: 0 }),
        });
        let weak = Arc::downgrade(&shared);
        thread::Builder::new().name("renewals".to_owned()).spawn(move || watch(&weak, receiver))?;
        Ok(Self(shared))
    }

    /// Locks `name` for `owner`. An owner that has it already gets one more [`Lock`], and the lock
    /// is free when all of them are gone.
    ///
    /// # Errors
    ///
    /// If another owner has it, in this process or another, if Redis does not answer, or if the
    /// timer takes no more timeouts.
    pub fn try_lock(&self, name: &str, owner: &str) -> Result<Lock, LockError> {
        let shared = &self.0;
        let mut state = shared.state();
        let State { redis, held, .. } = &mut *state;
        let asked = shared.timer.now();
        let mine = held.get_mut(name).filter(|held| held.owner == owner);
        if let Some(held) = mine.filter(|held| held.grant.is_good(asked)) {
            held.depth += 1;
            return Ok(shared.lock(&held.grant));
        }

        let token = format!("{:032x}", fastrand::u128(..));
        let command = shared.script(LOCK, name, &token);
        let (fence, left): (Option<u64>, i64) = redis.run(|redis| command.query(redis))?;
        let Some(fence) = fence else {
            let left = u64::try_from(left).map_or(Duration::MAX, Duration::from_millis);
            return Err(LockError::Taken(left));
        };

        let until = shared.end_of_lease(asked);
        let grant = Arc::new(Grant {
            name: name.to_owned(),
            token,
            fence,
            until: Mutex::new(Some(until)),
            on_lost: Arc::clone(&shared.on_lost),
        });
        let late = Arc::clone(&grant);
        let left = until - shared.timer.now();
        let alarm = shared.timer.schedule_with(left, move |run| late.alarm(run.deadline()));
        let renewal = shared.due.insert(Arc::clone(&grant), shared.lease / 3);
        let (Ok(alarm), Ok(renewal)) = (alarm, renewal) else {
            grant.end();
            let command = shared.script(UNLOCK, &grant.name, &grant.token);
            redis.run(|redis| command.exec(redis))?;
            return Err(LockError::Timer);
        };
        let owner = owner.to_owned();
        let now_held = Held { grant: Arc::clone(&grant), owner, depth: 1, renewal, alarm };
        if let Some(lost) = held.insert(grant.name.clone(), now_held) {
            shared.due.remove(lost.renewal);
        }
        Ok(shared.lock(&grant))
    }

    /// Returns how many leases were renewed, and in how many pipelines.
    #[must_use]
    pub fn renewals(&self) -> (u64, u64) {
        let state = self.0.state();
        (state.renewals, state.pipelines)
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
            self.grant.lose();
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
    /// If Redis does not answer: then the lock is free at the end of its lease.
    pub fn unlock(mut self) -> Result<bool, LockError> {
        self.is_unlocked = true;
        self.shared.unlock(&self.grant)
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if !self.is_unlocked {
            // Nobody to tell: the lease ends by itself.
            let _ = self.shared.unlock(&self.grant);
        }
    }
}

impl Shared {
    fn lock(self: &Arc<Self>, grant: &Arc<Grant>) -> Lock {
        Lock { shared: Arc::clone(self), grant: Arc::clone(grant), is_unlocked: false }
    }

    fn unlock(&self, grant: &Arc<Grant>) -> Result<bool, LockError> {
        let mut state = self.state();
        let State { redis, held, .. } = &mut *state;
        let now = self.timer.now();
        // Lost, and locked again: the new grant is not this one's to give up.
        let mine = held.get_mut(&grant.name).filter(|held| Arc::ptr_eq(&held.grant, grant));
        let Some(mine) = mine else { return Ok(false) };
        mine.depth -= 1;
        if 0 < mine.depth {
            return Ok(grant.is_good(now));
        }
        self.due.remove(mine.renewal);
        mine.alarm.cancel();
        held.remove(&grant.name);
        let was_held = grant.end().is_some_and(|until| now < until);
        let command = self.script(UNLOCK, &grant.name, &grant.token);
        let is_unlocked: bool = redis.run(|redis| command.query(redis))?;
        Ok(was_held && is_unlocked)
    }

    /// Renews the leases of `batch` in one pipeline, and says when each is due again: soon, if
    /// Redis has not answered.
    fn renew(&self, batch: Vec<Due<Arc<Grant>, DelayKey>>) {
        let mut state = self.state();
        let sent = self.timer.now();
        // Some were unlocked after they came due, or lost.
        let grants = batch.into_iter().map(|due| due.value).filter(|grant| grant.is_good(sent));
        let grants: Vec<Arc<Grant>> = grants.collect();
        if grants.is_empty() {
            return;
        }
        let mut pipeline = redis::pipe();
        for grant in &grants {
            pipeline.add_command(self.script(RENEW, &grant.name, &grant.token));
        }
        pipeline.ignore_errors();
        state.pipelines += 1;
        let answers = state.redis.run(|redis| pipeline.query(redis));
        let answers: Vec<RedisResult<bool>> = answers.unwrap_or_default();

        let (mut answers, until) = (answers.into_iter(), self.end_of_lease(sent));
        let mut lost = Vec::new();
        for grant in grants {
            let delay = match answers.next() {
                Some(Ok(true)) if grant.extend(self.timer.now(), until) => {
                    state.renewals += 1;
                    self.lease / 3
                }
                Some(Ok(_)) => {
                    lost.push(grant);
                    continue;
                }
                Some(Err(_)) | None => self.lease / 15,
            };
            let end = grant.until().unwrap_or(sent);
            if let Some(held) = state.held.get_mut(&grant.name) {
                held.alarm.reschedule_at(end);
                if let Ok(renewal) = self.due.insert(grant, delay) {
                    held.renewal = renewal;
                }
            }
        }
        drop(state);
        lost.iter().for_each(|grant| grant.lose());
    }

    /// Returns the end of a lease that Redis began after `sent`. A hundredth is left for clocks of
    /// different speed.
    fn end_of_lease(&self, sent: Instant) -> Instant {
        sent + (self.lease - self.lease / 100)
    }

    fn script(&self, script: &str, name: &str, token: &str) -> Cmd {
        let lease = u64::try_from(self.lease.as_millis()).unwrap_or(u64::MAX);
        let mut command = redis::cmd("EVAL");
        command.arg(script).arg(2).arg(format!("lock:{name}")).arg("fence").arg(token).arg(lease);
        command
    }

    fn state(&self) -> MutexGuard<'_, State> {
        let asked = Instant::now();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.redis.asked = asked;
        state
    }
}

impl Grant {
    fn until(&self) -> MutexGuard<'_, Option<Instant>> {
        self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_good(&self, now: Instant) -> bool {
        self.until().is_some_and(|until| now < until)
    }

    /// Moves the end of the lease, unless it was there: what was lost stays lost.
    fn extend(&self, now: Instant, until: Instant) -> bool {
        let mut end = self.until();
        let is_good = end.is_some_and(|end| now < end);
        if is_good {
            *end = Some(until);
        }
        is_good
    }

    /// Returns the end of the lease, unless the grant had ended.
    fn end(&self) -> Option<Instant> {
        self.until().take()
    }

    /// Ends the grant, unless a renewal moved the end of the lease just before the alarm fired.
    fn alarm(&self, deadline: Option<Instant>) -> Next {
        let until = *self.until();
        if let Some(until) = until.filter(|until| deadline < Some(*until)) {
            return Next::At(until);
        }
        self.lose();
        Next::Stop
    }

    /// Ends the grant, and tells so, unless it had ended.
    fn lose(&self) {
        if self.end().is_some() {
            (self.on_lost)(&self.name, self.fence);
        }
    }
}

/// Renews what is due, until all locks and [`Locks`] are gone, or the timer was stopped.
fn watch(shared: &Weak<Shared>, mut due: DelayReceiver<Arc<Grant>>) {
    let mut batch = Vec::new();
    loop {
        let received = due.recv_batch(&mut batch, BATCH);
        let Some(shared) = shared.upgrade() else { return };
        match received {
            Ok(0) | Err(ScheduleErrorKind::Stopped) => return,
            Ok(_) => shared.renew(take(&mut batch)),
            // The timer has no timeout to spare to wake this thread: what is due comes out then.
            Err(_) => thread::sleep(shared.lease / 15),
        }
    }
}

/// Says why there is no lock.
#[derive(Debug, Error)]
pub enum LockError {
    /// Another owner has it, for this long unless it renews its lease.
    #[error("another owner has the lock, for {0:?} unless it renews its lease")]
    Taken(Duration),
    /// Redis did not answer, or answered with an error.
    #[error("Redis: {0}")]
    Redis(#[from] RedisError),
    /// The timer was stopped, or has too many timeouts, so nothing would watch over the lock.
    #[error("the timer takes no more timeouts")]
    Timer,
}

/// Each script has the key of the lock, that of the last fencing number of all locks, a token and a
/// lease. This one locks, and returns the fencing number: the time in microseconds, or one more
/// than the last number if the clock was set back. So it grows though Redis has lost its memory.
/// Returns how many milliseconds are left if another holds the lock. An attempt that is repeated
/// because its answer was lost locks again.
const LOCK: &str = "
    if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])
        and redis.pcall('GET', KEYS[1]) ~= ARGV[1] then
        return {false, redis.call('PTTL', KEYS[1])}
    end
    local time = redis.call('TIME')
    local last = tonumber(redis.call('GET', KEYS[2]) or 0)
    local fence = math.max(last + 1, time[1] * 1000000 + time[2])
    redis.call('SET', KEYS[2], string.format('%.0f', fence))
    return {fence, 0}";

/// Begins the lease anew if the lock still has this token. A key of another type is not this lock.
const RENEW: &str = "
    if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then return 0 end
    return redis.call('PEXPIRE', KEYS[1], ARGV[2])";

const UNLOCK: &str = "
    if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then return 0 end
    return redis.call('DEL', KEYS[1])";

/// At most this many renewals in one pipeline: others wait for the connection meanwhile.
const BATCH: usize = 1_000;
