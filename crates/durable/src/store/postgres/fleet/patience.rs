//! Waiting for locks in turns, so that what waits behind them is not held up for long.

use std::thread;
use std::time::{Duration, Instant};

use tokio_postgres::error::SqlState;

use crate::Error;
use crate::store::postgres::connection::Connection;

/// What came of a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn<T> {
    Done(T),
    /// It is to be tried again, because it waits for this.
    Waits(&'static str),
}

/// Tries again and again, with a time for each lock. The inner error says what it waited for.
pub(super) fn patiently<T>(
    mut turn: impl FnMut(Duration) -> Result<Turn<T>, Error>,
) -> Result<Result<T, &'static str>, Error> {
    let (began, mut pause) = (Instant::now(), FIRST_PAUSE);
    loop {
        let waits = began.elapsed();
        // A vacuum gives way to one who waits for longer than a second.
        match turn(if waits < SHORT_FOR { SHORT } else { LONG })? {
            Turn::Done(done) => return Ok(Ok(done)),
            Turn::Waits(why) if PATIENCE < waits => return Ok(Err(why)),
            Turn::Waits(_) => thread::sleep(pause),
        }
        pause = (pause * 2).min(if waits < SHORT_FOR { SHORT_PAUSE } else { LONG_PAUSE });
    }
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

/// So long others wait behind it.
const SHORT: Duration = Duration::from_millis(100);
const LONG: Duration = Duration::from_millis(1_500);
const SHORT_FOR: Duration = Duration::from_secs(10);

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const SHORT_PAUSE: Duration = Duration::from_secs(1);
const LONG_PAUSE: Duration = Duration::from_secs(10);

/// So long it tries before it says why it cannot.
const PATIENCE: Duration = Duration::from_secs(300);
