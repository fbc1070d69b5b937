//! The thread that knows the locks of a process, and alone speaks to Redis.

use super::connection::Redis;
use redis::{Pipeline, RedisError, RedisResult};
use std::collections::HashMap;
use std::io;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use thiserror::Error;
use tickwheel::{DelayKey, DelaySender, Next, Timeout, Timer};
use tokio::sync::mpsc::UnboundedReceiver;

pub(super) type OnLost = dyn Fn(&str, u64) + Send + Sync;

pub(super) struct Grant {
    pub(super) name: String,
    pub(super) token: String,
    pub(super) fence: u64,
    /// The end of the lease. None since it was unlocked, or its loss was told.
    pub(super) until: Mutex<Option<Instant>>,
    pub(super) on_lost: Arc<OnLost>,
}

/// Says why there is no lock.
#[derive(Debug, Error)]
pub enum LockError {
    /// Another owner has it, for this long unless it renews its lease.
    #[error("another owner has the lock, for {0:?} unless it renews its lease")]
    Taken(Duration),
    /// Redis did not answer in time, or answered with an error.
    #[error("Redis: {0}")]
    Redis(#[from] RedisError),
    /// The system has no random numbers, or the lease was over when the answer came.
    #[error("{0}")]
    System(#[from] io::Error),
    /// The timer was stopped, or has too many timeouts, so nothing would watch over the lock.
    #[error("the timer takes no more timeouts")]
    Timer,
}

/// Does one command after the other. So no renewal of a lock is under way while the lock is given
/// up, and none begins later. None takes longer than its deadline.
pub(super) struct Keeper {
    pub(super) timer: Timer,
    pub(super) lease: Duration,
    pub(super) due: DelaySender<Arc<Grant>>,
    pub(super) on_lost: Arc<OnLost>,
    pub(super) redis: Redis,
    pub(super) held: HashMap<String, Held>,
    /// How many leases were renewed, and in how many pipelines.
    pub(super) renewals: (u64, u64),
}

impl Grant {
    pub(super) fn until(&self) -> MutexGuard<'_, Option<Instant>> {
        self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn ends(&self) -> Option<Instant> {
        *self.until()
    }

    pub(super) fn is_good(&self, now: Instant) -> bool {
        self.until().is_some_and(|until| now < until)
    }

    /// Moves the end of the lease, unless it was there: what was lost stays lost.
    pub(super) fn extend(&self, now: Instant, until: Instant) -> bool {
        let mut end = self.until();
        let is_good = end.is_some_and(|end| now < end);
        if is_good {
            *end = Some(until);
        }
        is_good
    }

    /// Returns the end of the lease, unless the grant had ended.
    pub(super) fn end(&self) -> Option<Instant> {
        self.until().take()
    }

    /// Ends the lease now, unless it ended before. Its loss is still to be told.
    pub(super) fn forfeit(&self, now: Instant) {
        let mut end = self.until();
        *end = end.map(|end| end.min(now));
    }

    /// Ends the grant, unless a renewal moved the end of the lease just before the alarm fired.
    pub(super) fn alarm(&self, deadline: Option<Instant>) -> Next {
        if let Some(until) = self.ends().filter(|until| deadline < Some(*until)) {
            return Next::At(until);
        }
        self.lose();
        Next::Stop
    }

    /// Ends the grant, and tells so, unless it had ended.
    pub(super) fn lose(&self) {
        if self.end().is_some() {
            (self.on_lost)(&self.name, self.fence);
        }
    }
}

/// What the process knows of a lock that one of its owners holds.
pub(super) struct Held {
    grant: Arc<Grant>,
    owner: String,
    /// How many [`Lock`](super::Lock)s the owner has.
    depth: usize,
    renewal: DelayKey,
    alarm: Timeout,
}

/// What the keeper is to do, and who wants to know how it went.
pub(super) enum Command {
    Lock { ask: Ask, tell: Sender<Result<Arc<Grant>, LockError>> },
    Unlock { grant: Arc<Grant>, deadline: Instant, tell: Option<Sender<Result<bool, LockError>>> },
    Renew(Vec<Arc<Grant>>),
    Count(Sender<(u64, u64)>),
}

pub(super) struct Ask {
    pub(super) name: String,
    pub(super) owner: String,
    pub(super) token: String,
    pub(super) deadline: Instant,
}

impl Keeper {
    /// Does what it is told to, until nobody is left to tell it.
    pub(super) async fn run(mut self, mut commands: UnboundedReceiver<Command>) {
        // Nobody may wait for an answer any more.
        while let Some(command) = commands.recv().await {
            match command {
                Command::Lock { ask, tell } => _ = tell.send(self.lock(ask).await),
                Command::Unlock { grant, deadline, tell } => {
                    let unlocked = self.unlock(&grant, deadline).await;
                    let _ = tell.map(|tell| tell.send(unlocked));
                }
                Command::Renew(grants) => self.renew(grants).await,
                Command::Count(tell) => _ = tell.send(self.renewals),
            }
        }
    }

    async fn lock(&mut self, ask: Ask) -> Result<Arc<Grant>, LockError> {
        let Ask { name, owner, token, deadline } = ask;
        // Redis begins the lease later.
        let sent = self.timer.now();
        let mine = self.held.get_mut(&name).filter(|held| held.owner == owner);
        if let Some(held) = mine.filter(|held| held.grant.is_good(sent)) {
            held.depth += 1;
            return Ok(Arc::clone(&held.grant));
        }

        let command = self.script(LOCK, [(&*name, &*token)]);
        let [(fence, left)]: [(Option<u64>, i64); 1] = self.redis.run(&command, deadline).await?;
        let Some(fence) = fence else {
            let left = u64::try_from(left).map_or(Duration::MAX, Duration::from_millis);
            return Err(LockError::Taken(left));
        };

        let until = self.end_of_lease(sent);
        let on_lost = Arc::clone(&self.on_lost);
        let end = Mutex::new(Some(until));
        let grant = Arc::new(Grant { name, token, fence, until: end, on_lost });
        let left = until.saturating_duration_since(self.timer.now());
        if left.is_zero() {
            self.release(&grant, deadline).await?;
            return Err(io::Error::from(io::ErrorKind::TimedOut).into());
        }
        let late = Arc::clone(&grant);
        let alarm = self.timer.schedule_with(left, move |run| late.alarm(run.deadline()));
        let renewal = self.due.insert(Arc::clone(&grant), self.lease / 3);
        let (Ok(alarm), Ok(renewal)) = (alarm, renewal) else {
            grant.end();
            self.release(&grant, deadline).await?;
            return Err(LockError::Timer);
        };
        let name = grant.name.clone();
        let held = Held { grant: Arc::clone(&grant), owner, depth: 1, renewal, alarm };
        if let Some(lost) = self.held.insert(name, held) {
            self.due.remove(lost.renewal);
        }
        Ok(grant)
    }

    async fn unlock(&mut self, grant: &Arc<Grant>, deadline: Instant) -> Result<bool, LockError> {
        let now = self.timer.now();
        // Lost, and locked again: the new grant is not this one's to give up.
        let mine = self.held.get_mut(&grant.name).filter(|held| Arc::ptr_eq(&held.grant, grant));
        let Some(mine) = mine else { return Ok(false) };
        mine.depth -= 1;
        if 0 < mine.depth {
            return Ok(grant.is_good(now));
        }
        self.due.remove(mine.renewal);
        mine.alarm.cancel();
        self.held.remove(&grant.name);
        let was_held = grant.end().is_some_and(|until| now < until);
        Ok(self.release(grant, deadline).await? && was_held)
    }

    /// Renews the leases in one pipeline, and says when each is due again: soon, if Redis has not
    /// answered.
    async fn renew(&mut self, mut grants: Vec<Arc<Grant>>) {
        let sent = self.timer.now();
        // Some were unlocked after they came due, or lost.
        grants.retain(|grant| grant.is_good(sent));
        if grants.is_empty() {
            return;
        }
        self.renewals.1 += 1;
        let locks = grants.iter().map(|grant| (&*grant.name, &*grant.token));
        let mut pipeline = self.script(RENEW, locks);
        let deadline = Instant::now() + self.lease / 3;
        let answers = self.redis.run(pipeline.ignore_errors(), deadline).await;
        let answers: Vec<RedisResult<bool>> = answers.unwrap_or_default();

        let (mut answers, until) = (answers.into_iter(), self.end_of_lease(sent));
        for grant in grants {
            let now = self.timer.now();
            let delay = match answers.next() {
                Some(Ok(true)) if grant.extend(now, until) => {
                    self.renewals.0 += 1;
                    Some(self.lease / 3)
                }
                Some(Ok(_)) => {
                    grant.forfeit(now);
                    None
                }
                Some(Err(_)) | None => Some(self.lease / 15),
            };
            let Some(held) = self.held.get_mut(&grant.name) else { continue };
            // For what is forfeit the alarm comes now: it alone tells, on the timer's worker, so
            // that `on_lost` holds up no renewal.
            held.alarm.reschedule_at(grant.ends().unwrap_or(now));
            if let Some(Ok(renewal)) = delay.map(|delay| self.due.insert(grant, delay)) {
                held.renewal = renewal;
            }
        }
    }

    /// Deletes the lock in Redis, and returns whether it was there.
    async fn release(&mut self, grant: &Grant, deadline: Instant) -> RedisResult<bool> {
        let command = self.script(UNLOCK, [(&*grant.name, &*grant.token)]);
        let [is_unlocked] = self.redis.run::<[bool; 1]>(&command, deadline).await?;
        Ok(is_unlocked)
    }

    /// Returns the end of a lease that Redis began after `sent`. A hundredth is left for clocks of
    /// different speed.
    fn end_of_lease(&self, sent: Instant) -> Instant {
        sent + (self.lease - self.lease / 100)
    }

    fn script<'a>(
        &self,
        script: &str,
        locks: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Pipeline {
        let lease = u64::try_from(self.lease.as_millis()).unwrap_or(u64::MAX);
        let mut pipeline = redis::pipe();
        for (name, token) in locks {
            let command = pipeline.cmd("EVAL").arg(script).arg(2).arg(format!("lock:{name}"));
            command.arg("fence").arg(token).arg(lease);
        }
        pipeline
    }
}

/// Each script has the key of the lock, that of the last fencing number of all locks, a token and a
/// lease. This one locks, and returns the fencing number: the time in microseconds, or one more
/// than the last number if the clock was set back. So it grows though Redis has lost its memory. If
/// it cannot grow, nothing is locked.
/// Returns how many milliseconds are left if another holds the lock. An attempt that is repeated
/// because its answer was lost locks again.
const LOCK: &str = "
    local time = redis.call('TIME')
    local last = tonumber(redis.call('GET', KEYS[2]) or 0)
    local fence = math.max(last + 1, time[1] * 1000000 + time[2])
    if not (last < fence) then return redis.error_reply('the last fencing number is the largest') end
    if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])
        and redis.pcall('GET', KEYS[1]) ~= ARGV[1] then
        return {false, redis.call('PTTL', KEYS[1])}
    end
    redis.call('SET', KEYS[2], string.format('%.0f', fence))
    return {fence, 0}";

/// Begins the lease anew if the lock still has this token. A key of another type is not this lock.
const RENEW: &str = "
    if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then return 0 end
    return redis.call('PEXPIRE', KEYS[1], ARGV[2])";

const UNLOCK: &str = "
    if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then return 0 end
    return redis.call('DEL', KEYS[1])";
