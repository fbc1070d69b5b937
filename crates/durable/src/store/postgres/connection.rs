//! A connection, and what is committed on it.

use std::cell::RefCell;
use std::collections::HashSet;
use std::mem::discriminant;
use std::time::{Duration, Instant};

use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, Row, SimpleQueryMessage};

use super::connect::Guard;
use super::lease::CLOCK;
use super::places::Places;
use crate::sql::ELSEWHERE;
use crate::store::limits::{Limits, Parts};
use crate::store::{Act, Change, Done, Outcome, Settlement};
use crate::values::milliseconds;

/// A connection to the database, or to a pooler that lends one for each transaction: no statement
/// has a name, and no setting outlives its transaction.
pub(super) struct Connection {
    client: Client,
    pub(super) guard: Guard,
    /// The statements that begin a transaction and set what holds in it.
    begin: String,
    pub(super) limits: Limits,
    pub(super) places: RefCell<Places>,
}

pub(super) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

impl Connection {
    pub(super) fn new(
        (client, guard): (Client, Guard),
        limit: Duration,
        namespace: Option<&str>,
    ) -> Self {
        Self {
            client,
            guard,
            begin: begin(limit, namespace),
            limits: Limits::new(limit),
            places: RefCell::default(),
        }
    }

    pub(super) fn with_limit(self, limit: Duration, namespace: Option<&str>) -> Self {
        Self::new((self.client, self.guard), limit, namespace)
    }

    /// Whether the server, or what is on the way, is known to have ended it.
    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed()
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

    /// Commits, and reads the clock after that, in one message.
    async fn end_and_read_clock(&self, end: &str) -> Result<Option<u64>, Error> {
        let said = self.client.simple_query(&format!("{end}; {CLOCK}")).await?;
        Ok(said.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0)?.parse().ok(),
            _ => None,
        }))
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

    /// Commits all, but the last changes for which there is no time, or nothing if a row is locked,
    /// or anything is refused or takes long.
    pub(super) async fn commit(
        &self,
        parts: Parts,
        settlements: &[Settlement],
        changes: &[Change],
    ) -> Result<Done, Error> {
        // What is too long for this is tried again alone.
        self.begin_for(parts.group).await?;
        let mut done = Done { outcomes: self.settle(settlements).await?, ..Done::default() };
        let began = Instant::now();
        for run in runs(changes) {
            if !done.changed.is_empty() && parts.group < milliseconds(began.elapsed()) {
                break;
            }
            done.changed.extend(self.change(run).await?);
        }
        // What is checked at the end of a commit has this time too. The commit itself, and its wait
        // for a standby, has none: the caller ends that.
        done.clock = self.end_and_read_clock("set constraints all immediate; commit").await?;
        Ok(done)
    }

    /// Commits what it can, after [`commit`](Self::commit) failed. It leaves out only the rows that
    /// another transaction has locked, what the server refuses or has too little time for though it
    /// is alone, and the last for which there is no time.
    pub(super) async fn commit_what_can_be(
        &self,
        parts: Parts,
        settlements: &[Settlement],
        changes: &[Change],
    ) -> Result<Done, Error> {
        self.execute("rollback").await?;
        self.begin().await?;
        // The failed commit has waited for the locks already. What is checked at the end of a
        // commit would fail all of it.
        self.execute("set local lock_timeout = 5; set constraints all immediate").await?;
        if self.is_table_locked().await? {
            self.execute("rollback").await?;
            let refused = changes.iter().map(|change| Err(failed(change, TABLE_LOCKED)));
            let outcomes = vec![Outcome::Locked; settlements.len()];
            return Ok(Done { outcomes, changed: refused.collect(), clock: None });
        }
        let settled = self.in_parts(
            parts,
            vec![settlements],
            async |part| {
                let work = async |free: &[Settlement]| self.settle(free).await;
                self.unlocked(part, |settled| &settled.held.name, |_| Outcome::Locked, work).await
            },
            |_, error| match is_locked(&error) {
                true => Outcome::Locked,
                false => Outcome::Refused(words(&error)),
            },
        );
        let outcomes = settled.await?;
        let changed = self.in_parts(
            parts,
            runs(changes).flat_map(|run| run.chunks(PART)).collect(),
            async |part| {
                let work = async |free: &[Change]| self.change(free).await;
                let locked = |change: &Change| Err(failed(change, LOCKED));
                self.unlocked(part, |change| &change.name, locked, work).await
            },
            |change, error| Err(refused(change, error, parts.group)),
        );
        let changed = changed.await?;
        let clock = self.end_and_read_clock("commit").await?;
        Ok(Done { outcomes, changed, clock })
    }

    /// Whether somebody has locked the table, so that nothing can be changed. Then it is not tried
    /// with each: callers would wait for each other for as long as the lock is there.
    async fn is_table_locked(&self) -> Result<bool, Error> {
        self.execute("savepoint look").await?;
        match self.execute("lock table tickwheel_due in row exclusive mode").await {
            Err(error) if error.as_db_error().is_none() => return Err(error),
            Err(error) if is_locked(&error) => return Ok(true),
            // What else the server refuses is told of each.
            _ => {}
        }
        self.execute("rollback to look; release look").await?;
        Ok(false)
    }

    /// Does this work in parts, before each of which a savepoint is made. A part in which something
    /// is refused or takes long is halved, until that is alone. The last parts may be missing,
    /// because there was no time for them; the first is not.
    ///
    /// The times are such that all ends within the limit: a group that fails, and twice ten halves
    /// and one that is alone. One alone has as long as a group.
    async fn in_parts<A, R>(
        &self,
        parts: Parts,
        mut left: Vec<&[A]>,
        work: impl AsyncFn(&[A]) -> Result<Vec<R>, Error>,
        refused: impl Fn(&A, Error) -> R,
    ) -> Result<Vec<R>, Error> {
        let began = Instant::now();
        let mut done = Vec::new();
        let mut end = "";
        left.retain(|part| !part.is_empty());
        left.reverse();
        while let Some(part) = left.pop() {
            if !done.is_empty() && parts.group < milliseconds(began.elapsed()) {
                // Else the call would end, and with it what is done.
                break;
            }
            let time = if part.len() == 1 { parts.group } else { parts.half };
            let begin = format!("{end}savepoint part; set local statement_timeout = {time}");
            self.execute(&begin).await?;
            let error = match work(part).await {
                Ok(all) => {
                    end = "release part; ";
                    done.extend(all);
                    continue;
                }
                Err(error) if error.as_db_error().is_none() => return Err(error),
                Err(error) => error,
            };
            end = "rollback to part; release part; ";
            if let [one] = part {
                done.push(refused(one, error));
            } else {
                // One of the halves has what the server refuses.
                let (first, second) = part.split_at(part.len() / 2);
                left.extend([second, first]);
            }
        }
        self.execute(end).await?;
        Ok(done)
    }

    /// Does this work, except for what is of a name that somebody else has locked.
    async fn unlocked<A: Clone, R>(
        &self,
        part: &[A],
        name: impl Fn(&A) -> &str,
        locked: impl Fn(&A) -> R,
        work: impl AsyncFn(&[A]) -> Result<Vec<R>, Error>,
    ) -> Result<Vec<R>, Error> {
        let names: Vec<&str> = part.iter().map(&name).collect();
        let names = self.lock(&names).await?;
        let is_free = |one: &&A| !names.contains(name(one));
        let free: Vec<A> = part.iter().filter(is_free).cloned().collect();
        let mut done = work(&free).await?.into_iter();
        let done = part.iter().map(|one| match is_free(&one) {
            true => done.next().expect("an answer for each"),
            false => locked(one),
        });
        Ok(done.collect())
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
                discriminant(&change.act) != discriminant(&first.act) || !names.insert(&change.name)
            })
            .unwrap_or(left.len());
        let (run, rest) = left.split_at(end);
        left = rest;
        Some(run)
    })
}

/// Whether somebody else has locked it, who may not have its row but another.
fn is_locked(error: &Error) -> bool {
    error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE)
}

/// Returns what the server said: the driver says "db error" and leaves the rest to its source.
fn words(error: &Error) -> String {
    error.as_db_error().map_or_else(|| error.to_string(), ToString::to_string)
}

/// Returns the error of a change that is alone. Where it took too long it says what may.
fn refused(change: &Change, error: Error, time: u64) -> crate::Error {
    if let Some(elsewhere) = elsewhere(&change.name, &error) {
        return elsewhere;
    }
    if error.code() != Some(&SqlState::QUERY_CANCELED) {
        return failed(change, error);
    }
    let words = words(&error);
    failed(change, format!("{words}: it has {time} ms; in a transaction of yours it has more"))
}

/// Returns the error of a name whose partition another database has, if it is that.
pub(crate) fn elsewhere(name: &str, error: &Error) -> Option<crate::Error> {
    let said = error.as_db_error().filter(|said| said.code().code() == ELSEWHERE)?;
    let place = said.detail().unwrap_or_default().to_owned();
    Some(crate::Error::Elsewhere { name: name.to_owned(), place })
}

pub(super) fn failed(
    change: &Change,
    error: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> crate::Error {
    let doing = match change.act {
        Act::Put(_) => "put",
        Act::Cancel => "cancel",
        Act::Revive { .. } => "retry the dead letter",
        Act::Drop => "drop the dead letter",
    };
    crate::Error::store(format!("{doing} {:?}", change.name), error)
}

/// Begins a transaction. The server ends it by itself if this process is gone, and if its host
/// takes no answer: a server on Linux can, and others would log that they cannot. Whatever the
/// database is set to, an acknowledged commit is on the disk. Whatever the statistics say, the
/// statements use the indexes. A policy that would hide rows is an error: they would wait unsaid.
fn begin(limit: Duration, namespace: Option<&str>) -> String {
    let path = namespace.map_or_else(String::new, |namespace| {
        format!(
            "select set_config('search_path',
               concat_ws(', ', '{namespace}', nullif(current_setting('search_path'), '')), true);"
        )
    });
    let lock = Limits::new(limit).lock;
    let limit = limit.as_millis().max(1);
    format!(
        "begin isolation level read committed; {path}
         set local statement_timeout = {limit};
         set local idle_in_transaction_session_timeout = {limit};
         set local lock_timeout = {lock}; set local tickwheel.format = 2;
         select set_config('tcp_user_timeout', '{limit}', true) where version() like '%linux%';
         select set_config('synchronous_commit', 'on', true)
           where current_setting('synchronous_commit') = 'off';
         set local enable_seqscan = off; set local enable_bitmapscan = off;
         set local enable_sort = off; set local enable_hashjoin = off;
         set local enable_mergejoin = off; set local enable_indexscan = on;
         set local enable_nestloop = on; set local jit = off; set local row_security = off;"
    )
}

/// The database has no unsigned numbers; none here is near the end.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

/// The partitions that the migration makes.
pub(super) const PARTITIONS: u32 = 64;

const LOCKED: &str = "somebody else has locked it";
const TABLE_LOCKED: &str = "somebody else has locked the table tickwheel_due";

/// So many changes are tried at once where some are refused: the fewer, the sooner it is known of
/// the first.
const PART: usize = 32;
