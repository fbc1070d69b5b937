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

/// One worker of a database, as [`PostgresStore::each_worker`] finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Worker {
    /// Its number, which is never used again.
    pub number: u64,
    /// How long its lease is good for, if it does not renew it.
    pub lease_left: Duration,
    /// The partitions that it owns.
    pub owned: u64,
}

impl PostgresStore {
    /// Returns the number of workers and of what they own.
    ///
    /// # Errors
    ///
    /// [`Error::Store`].
    pub fn workers(&mut self) -> Result<Workers, Error> {
        self.run("count the workers of", async |connection| {
            connection.begin().await?;
            let row = connection
                .query_one(
                    "select
                       (select count(distinct worker) from tickwheel_worker
                        where until >= clock_timestamp()),
                       count(*),
                       count(*) filter (where owner in (
                         select worker from tickwheel_worker where until >= clock_timestamp()))
                     from tickwheel_partition where state in ('here', 'moving')",
                    &[],
                )
                .await?;
            connection.end().await?;
            let number = |at| unsigned(row.get(at));
            Ok(Workers { alive: number(0), partitions: number(1), owned: number(2) })
        })
    }

    /// Returns each worker that has a lease, by number.
    ///
    /// # Errors
    ///
    /// [`Error::Store`].
    pub fn each_worker(&mut self) -> Result<Vec<Worker>, Error> {
        self.run("look at the workers of", async |connection| {
            connection.begin().await?;
            let rows = connection.query(EACH_WORKER, &[]).await?;
            connection.end().await?;
            let worker = |row: &Row| Worker {
                number: unsigned(row.get(0)),
                lease_left: Duration::from_millis(unsigned(row.get(1))),
                owned: unsigned(row.get(2)),
            };
            Ok(rows.iter().map(worker).collect())
        })
    }

    /// Returns how many timeouts were put into the table, and how many left it, by an ack or a
    /// cancel, as far as the server's statistics know. Moves and retries change neither.
    ///
    /// # Errors
    ///
    /// [`Error::Store`].
    pub fn turnover(&mut self) -> Result<(u64, u64), Error> {
        self.run("read the statistics of", async |connection| {
            connection.begin().await?;
            let row = connection.query_one(TURNOVER, &[]).await?;
            connection.end().await?;
            Ok((unsigned(row.get(0)), unsigned(row.get(1))))
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
        let milliseconds = self.run("read the clock of", async |connection| {
            Ok(unsigned(connection.query_one(CLOCK, &[]).await?.get(0)))
        })?;
        Ok(UNIX_EPOCH + Duration::from_millis(milliseconds))
    }
}

const EACH_WORKER: &str =
    "select worker, floor(extract(epoch from max(until) - clock_timestamp()) * 1000)::bigint,
       (select count(*) from tickwheel_partition where owner = worker)
     from tickwheel_worker where until >= clock_timestamp() group by worker order by worker";
const TURNOVER: &str =
    "select n_tup_ins, n_tup_del from pg_stat_all_tables where relid = 'tickwheel_due'::regclass";
const SET_ASIDE: &str = "select deadline, name from tickwheel_broken order by number";
