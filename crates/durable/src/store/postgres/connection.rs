//! A connection, and what is committed on it.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, Row};

use super::connect::Guard;
use crate::store::{Change, Changed, Done, Settlement};

/// A connection to the database, or to a pooler that lends one for each transaction: no statement
/// has a name, and no setting outlives its transaction.
pub(super) struct Connection {
    client: Client,
    guard: Guard,
    /// The statements that begin a transaction and set what holds in it.
    begin: String,
    /// How long a call may take.
    pub(super) limit: Duration,
}

pub(super) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

impl Connection {
    pub(super) fn new((client, guard): (Client, Guard), limit: Duration) -> Self {
        Self { client, guard, begin: begin(limit), limit }
    }

    pub(super) fn with_limit(self, limit: Duration) -> Self {
        Self::new((self.client, self.guard), limit)
    }

    pub(super) async fn begin(&self) -> Result<(), Error> {
        self.execute(&self.begin).await
    }

    /// Begins a transaction whose statements have so many milliseconds each.
    pub(super) async fn begin_for(&self, time: u64) -> Result<(), Error> {
        let begin = &self.begin;
        self.execute(&format!("{begin} set local statement_timeout = {}", time.max(1))).await
    }

    pub(super) async fn end(&self) -> Result<(), Error> {
        self.execute("commit").await
    }

    /// Executes statements that have no parameters and return nothing.
    pub(super) async fn execute(&self, statements: &str) -> Result<(), Error> {
        self.client.batch_execute(statements).await
    }

    pub(super) async fn query(
        &self,
        statement: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>, Error> {
        self.client.query_typed(statement, parameters).await
    }

    pub(super) async fn query_one(
        &self,
        statement: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Row, Error> {
        self.client.query_typed_one(statement, parameters).await
    }

    /// Commits all, but the last changes for which there is no time, or nothing if a row is locked
    /// or anything is refused.
    pub(super) async fn commit(
        &self,
        settlements: &[Settlement],
        changes: &[Change],
    ) -> Result<Done, Error> {
        self.begin().await?;
        let mut done = Done { outcomes: self.settle(settlements).await?, changed: Vec::new() };
        let began = Instant::now();
        for run in runs(changes) {
            if !done.changed.is_empty() && self.limit / 6 < began.elapsed() {
                break;
            }
            done.changed.extend(self.change(run).await?);
        }
        self.end().await?;
        Ok(done)
    }

    /// Commits what it can, after [`commit`](Self::commit) failed. It leaves out only the rows that
    /// another transaction has locked, and the requests that the server refuses.
    pub(super) async fn commit_what_can_be(
        &self,
        settlements: &[Settlement],
        changes: &[Change],
    ) -> Result<Done, Error> {
        self.execute("rollback").await?;
        self.begin().await?;
        let settled = settlements.iter().map(|settled| &*settled.held.name);
        let names: HashSet<&str> =
            settled.chain(changes.iter().map(|change| &*change.name)).collect();
        let names: Vec<&str> = names.into_iter().collect();
        let locked = self.lock(&names).await?;
        let outcomes = self.settle_unlocked(settlements, &locked).await?;
        let is_locked = |change: &&Change| locked.contains(&*change.name);
        let free: Vec<Change> =
            changes.iter().filter(|change| !is_locked(change)).cloned().collect();
        let mut free = self.change_what_can_be(&free).await?.into_iter();
        let changed = changes.iter().map_while(|change| match is_locked(&change) {
            true => Some(Err(failed(change, "somebody else has locked it"))),
            false => free.next(),
        });
        let changed = changed.collect();
        self.end().await?;
        Ok(Done { outcomes, changed })
    }

    /// Makes these changes, except for those that the server refuses, and the last for which there
    /// is no time.
    async fn change_what_can_be(
        &self,
        changes: &[Change],
    ) -> Result<Vec<Result<Changed, crate::Error>>, Error> {
        // The failed commit has waited for the locks already.
        self.execute("set local lock_timeout = 5").await?;
        let began = Instant::now();
        let mut done = Vec::with_capacity(changes.len());
        let mut left: Vec<&[Change]> = runs(changes).flat_map(|run| run.chunks(PART)).collect();
        left.reverse();
        self.execute("savepoint part").await?;
        while let Some(part) = left.pop() {
            if !done.is_empty() && self.limit / 6 < began.elapsed() {
                // Else the call would end, and with it what is done.
                break;
            }
            let error = match self.change(part).await {
                Ok(changed) => {
                    self.execute("release part; savepoint part").await?;
                    done.extend(changed);
                    continue;
                }
                Err(error) if error.as_db_error().is_none() => return Err(error),
                Err(error) => error,
            };
            self.execute("rollback to part").await?;
            if let [change] = part {
                done.push(Err(failed(change, error)));
            } else {
                // One of the halves has the request that the server refuses.
                let (first, second) = part.split_at(part.len() / 2);
                left.extend([second, first]);
            }
        }
        Ok(done)
    }
}

/// Splits changes into runs of one kind in which no name comes twice, so that each is a statement.
fn runs(changes: &[Change]) -> impl Iterator<Item = &[Change]> {
    let mut left = changes;
    std::iter::from_fn(move || {
        let first = left.first()?;
        let mut names = HashSet::new();
        let end = left
            .iter()
            .position(|change| {
                change.put.is_some() != first.put.is_some() || !names.insert(&change.name)
            })
            .unwrap_or(left.len());
        let (run, rest) = left.split_at(end);
        left = rest;
        Some(run)
    })
}

pub(super) fn failed(
    change: &Change,
    error: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> crate::Error {
    let doing = if change.put.is_some() { "put" } else { "cancel" };
    crate::Error::store(format!("{doing} {:?}", change.name), error)
}

/// Begins a transaction. The server ends it by itself if this process is gone. Whatever the
/// database is set to, an acknowledged commit is on the disk. Whatever the statistics say, the
/// statements use the indexes.
fn begin(limit: Duration) -> String {
    let limit = limit.as_millis().max(1);
    let lock = (limit / 30).clamp(10, 1_000);
    format!(
        "begin isolation level read committed;
         set local statement_timeout = {limit};
         set local idle_in_transaction_session_timeout = {limit};
         set local lock_timeout = {lock};
         select set_config('synchronous_commit', 'on', true)
           where current_setting('synchronous_commit') = 'off';
         set local enable_seqscan = off; set local enable_bitmapscan = off;
         set local enable_sort = off; set local enable_hashjoin = off;
         set local enable_mergejoin = off; set local jit = off;"
    )
}

/// So many changes are tried at once where some are refused: the fewer, the sooner it is known of
/// the first.
const PART: usize = 32;
