//! What an operator asks of a database.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio_postgres::Row;

use super::PostgresStore;
use super::connection::unsigned;
use super::lease::CLOCK;
use super::rows::UNREADABLE;
use crate::Error;
use crate::store::Damaged;

/// The workers of a database; by [`PostgresStore::workers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Workers {
    /// Workers whose lease has not run out.
    pub alive: u64,
    /// Partitions.
    pub partitions: u64,
    /// Partitions that one of them owns. What is due in the others waits.
    pub owned: u64,
}

impl PostgresStore {
    /// Returns the number of workers and of what they own.
    ///
    /// # Errors
    ///
    /// [`Error::Store`].
    pub fn workers(&mut self) -> Result<Workers, Error> {
        self.run("count the workers", async |connection| {
            connection.begin().await?;
            let row = connection
                .query_one(
                    "select
                       (select count(distinct worker) from tickwheel_worker
                        where until >= clock_timestamp()),
                       count(*),
                       count(*) filter (where owner in (
                         select worker from tickwheel_worker where until >= clock_timestamp()))
                     from tickwheel_partition",
                    &[],
                )
                .await?;
            connection.end().await?;
            let number = |at| unsigned(row.get(at));
            Ok(Workers { alive: number(0), partitions: number(1), owned: number(2) })
        })
    }

    /// Returns the damaged timeouts that were set aside, in the order in which they were put.
    ///
    /// # Errors
    ///
    /// [`Error::Store`].
    pub fn set_aside(&mut self) -> Result<Vec<Damaged>, Error> {
        self.run("read what is damaged in", async |connection| {
            connection.begin().await?;
            let rows = connection.query(SET_ASIDE, &[]).await?;
            connection.end().await?;
            let damaged = |row: &Row| Damaged {
                deadline: unsigned(row.get(0)),
                name: String::from_utf8_lossy(row.get(1)).into_owned(),
                reason: UNREADABLE,
            };
            Ok(rows.iter().map(damaged).collect())
        })
    }

    /// Returns the time by the clock of the database, which deadlines are compared with.
    ///
    /// # Errors
    ///
    /// [`Error::Store`].
    pub fn now(&mut self) -> Result<SystemTime, Error> {
        let milliseconds = self.run("read the clock", async |connection| {
            Ok(unsigned(connection.query_one(CLOCK, &[]).await?.get(0)))
        })?;
        Ok(UNIX_EPOCH + Duration::from_millis(milliseconds))
    }
}

const SET_ASIDE: &str = "select deadline, name from tickwheel_broken order by number";
