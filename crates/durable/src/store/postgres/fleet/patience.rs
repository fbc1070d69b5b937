//! Waiting for locks in turns, so that what waits behind them is not held up for long.

use std::thread;
use std::time::{Duration, Instant};

use tokio_postgres::error::SqlState;

use crate::Error;
use crate::store::postgres::connection::Connection;

/// What came of a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn<T> {
    Done(T),
    /// It is to be tried again, because it waits for this.
    Waits(&'static str),
}

/// Tells the time, and lets it pass.
pub(crate) trait Time {
    fn now(&self) -> Instant;

    async fn pause(&self, pause: Duration);
}

/// The time of a thread that sleeps.
pub(super) struct OnThread;

impl Time for OnThread {
    fn now(&self) -> Instant {
        Instant::now()
    }

    async fn pause(&self, pause: Duration) {
        thread::sleep(pause);
    }
}

/// Tries again and again, with a time for each lock. The inner error says what it waited for.
pub(super) async fn patiently<T>(
    time: &impl Time,
    mut turn: impl AsyncFnMut(Duration) -> Result<Turn<T>, Error>,
) -> Result<Result<T, &'static str>, Error> {
    let (began, mut pause, mut lock) = (time.now(), FIRST_PAUSE, SHORT);
    loop {
        let waits = time.now().duration_since(began);
        match turn(lock).await? {
            Turn::Done(done) => return Ok(Ok(done)),
            Turn::Waits(why) if PATIENCE < waits => return Ok(Err(why)),
            Turn::Waits(why) => {
                time.pause(pause).await;
                lock = next_lock(why, waits);
            }
        }
        pause = (pause * 2).min(if waits < SHORT_FOR { SHORT_PAUSE } else { LONG_PAUSE });
    }
}

/// Runs a step again and again for some seconds, while somebody else has locked what it needs.
pub(super) fn while_locked<T>(mut step: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    let began = Instant::now();
    loop {
        match step() {
            Err(error) if is_locked(&error) && began.elapsed() < LOCKED => {
                thread::sleep(FIRST_PAUSE);
            }
            done => return done,
        }
    }
}

/// Whether somebody else has locked what was needed.
pub(super) fn is_locked(error: &Error) -> bool {
    let Error::Store { source, .. } = error else { return false };
    let error = source.downcast_ref::<tokio_postgres::Error>();
    error.is_some_and(|error| error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE))
}

/// Whether what is left of some work becomes less.
pub(super) struct Shrinking {
    least: u64,
    since: Instant,
}

impl Shrinking {
    pub(super) fn new(left: u64, now: Instant) -> Self {
        Self { least: left, since: now }
    }

    /// Takes how much is left, and returns whether that was ever less in a time that is long for it.
    pub(super) fn goes_on(&mut self, left: u64, now: Instant) -> bool {
        if left < self.least {
            *self = Self::new(left, now);
        }
        now.duration_since(self.since) <= PATIENCE
    }
}

/// Returns how long the next turn waits for a lock. A vacuum gives way to one who waits for longer
/// than a second. Callers would not wait for that, so with others it is not tried.
fn next_lock(why: &str, waits: Duration) -> Duration {
    if why == VACUUM && SHORT_FOR < waits { LONG } else { SHORT }
}

impl Connection {
    /// Begins a transaction with statements that lock something, and returns whether they could.
    pub(super) async fn begin_locked(
        &self,
        lock: Duration,
        statements: &str,
    ) -> Result<bool, tokio_postgres::Error> {
        self.begin().await?;
        // The other database may be silent in the middle of it.
        let begin = format!(
            "set local lock_timeout = {}; set local idle_in_transaction_session_timeout = 2000;",
            lock.as_millis()
        );
        let locked = self.execute(&(begin + statements)).await;
        Ok(self.unless_locked(locked).await?.is_some())
    }

    /// Returns what a change of the triggers waits for.
    pub(super) async fn waits_for(&self) -> Result<&'static str, tokio_postgres::Error> {
        // In a transaction, because the namespace is known in none other.
        self.begin().await?;
        let is_vacuumed = self.query_one(IS_VACUUMED, &[]).await?.get(0);
        self.end().await?;
        Ok(if is_vacuumed { VACUUM } else { WRITERS })
    }

    /// Returns what a statement returned that locks something. `None`: it could not, and the
    /// transaction is over.
    pub(super) async fn unless_locked<T>(
        &self,
        done: Result<T, tokio_postgres::Error>,
    ) -> Result<Option<T>, tokio_postgres::Error> {
        match done {
            Ok(done) => Ok(Some(done)),
            Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => {
                self.execute("rollback").await?;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

pub(super) const WRITERS: &str = "transactions that have changed timeouts are open, or the table \
                                  is locked: pg_locks says by whom";

const VACUUM: &str = "the table is vacuumed, analyzed, or gets an index: pg_locks says by whom";

const IS_VACUUMED: &str = "select exists (select from pg_locks
     where relation = 'tickwheel_due'::regclass and mode = 'ShareUpdateExclusiveLock' and granted
       and database = (select oid from pg_database where datname = current_database()))";

/// So long others wait behind it.
const SHORT: Duration = Duration::from_millis(100);
const LONG: Duration = Duration::from_millis(1_500);
const SHORT_FOR: Duration = Duration::from_secs(10);

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const SHORT_PAUSE: Duration = Duration::from_secs(1);
const LONG_PAUSE: Duration = Duration::from_secs(10);

/// So long a step waits that has no other work meanwhile.
const LOCKED: Duration = Duration::from_secs(30);

/// So long it tries before it says why it cannot.
const PATIENCE: Duration = Duration::from_secs(300);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_may_grow_but_not_for_long_without_being_less_than_ever() {
        let (began, second) = (Instant::now(), Duration::from_secs(1));
        let mut shrinking = Shrinking::new(100, began);
        assert!(shrinking.goes_on(100, began + PATIENCE));
        assert!(shrinking.goes_on(99, began + PATIENCE + second));
        assert!(shrinking.goes_on(500, began + PATIENCE * 2 + second));
        assert!(!shrinking.goes_on(99, began + PATIENCE * 2 + second * 2));
    }

    #[test]
    fn others_wait_behind_a_short_turn_however_long_it_takes_but_a_vacuum_gives_way() {
        for waits in [Duration::ZERO, SHORT_FOR, SHORT_FOR * 2, PATIENCE] {
            assert_eq!(next_lock(WRITERS, waits), SHORT);
            let lock = if waits <= SHORT_FOR { SHORT } else { LONG };
            assert_eq!(next_lock(VACUUM, waits), lock, "{waits:?}");
        }
    }
}
