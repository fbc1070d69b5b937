//! A connection with its statements, and what a transaction does with them.

use std::collections::{HashMap, HashSet};

use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Statement};

use super::{read_replaced, signed, unsigned};
use crate::store::postgres::rows::{Reading, read_row};
use crate::store::{Change, Changed, Done, Outcome, Put, Replaced, Row, Settlement};

pub(super) struct Connection {
    pub(super) client: Client,
    pub(super) statements: Statements,
    /// Begins a transaction, and sets what holds in it.
    begin: String,
}

pub(super) struct Statements {
    lock_partitions: Statement,
    ack: Statement,
    retry: Statement,
    unlocked: Statement,
    find: Statement,
    put: Statement,
    cancel: Statement,
    pub(super) news: Statement,
    pub(super) load: Statement,
    pub(super) list: Statement,
    pub(super) get: Statement,
}

/// Owners cannot change while their acks are looked at. Leases can be renewed meanwhile.
const LOCK_PARTITIONS: &str =
    "select partition, epoch from tickwheel_partition where partition = any($1)
     order by partition for key share";
const ACK: &str =
    "delete from tickwheel_due due using unnest($1::text[], $2::bigint[]) u(name, number)
     where due.name = u.name and due.number = u.number returning due.number";
const RETRY: &str = "update tickwheel_due due
     set deadline = u.deadline, attempt = due.attempt + 1, number = nextval('tickwheel_number'),
       put_by = pg_current_xact_id()
     from unnest($1::text[], $2::bigint[], $3::bigint[]) u(name, number, deadline)
     where due.name = u.name and due.number = u.number
     returning u.number, due.partition, due.deadline, due.name, due.number, due.attempt,
       due.payload";
/// Which of these names have a row, and which of those nobody else has locked.
const UNLOCKED: &str = "with free as (select name from tickwheel_due where name = any($1)
       for update skip locked)
     select due.name, free.name is not null
     from tickwheel_due due left join free on free.name = due.name where due.name = any($1)";
/// In order of the names, so that two workers do not wait for each other.
const FIND: &str = "select name, number, deadline from tickwheel_due where name = any($1)
     order by name for update";
const PUT: &str = "select name, number, is_new, partition from tickwheel_put($1, $2, $3)";
const CANCEL: &str =
    "delete from tickwheel_due where name = any($1::text[]) returning name, number, deadline";
/// What is before the positions and was committed since that snapshot: by a transaction that had
/// not begun then, or that had not ended. The first row has the snapshot of now. Only one index has
/// the order that is asked for, so the planner has no choice.
const NEWS: &str = "select -1, 0::bigint, pg_current_snapshot()::text, 0::bigint, 0, ''::bytea
     union all
     select partition, deadline, name, number, attempt,
       case when sum(octet_length(payload)) over (rows unbounded preceding)
         - octet_length(payload) < $6 then payload end
     from (select due.* from unnest($1::int[], $2::bigint[], $3::text[]) u(partition, deadline, name)
       cross join lateral (
         (select * from tickwheel_due d
          where d.partition = u.partition and d.put_by >= pg_snapshot_xmax($4::text::pg_snapshot)
            and d.deadline <= u.deadline
          order by d.put_by, d.deadline limit $5)
         union all
         (select open.* from pg_snapshot_xip($4::text::pg_snapshot) xid cross join lateral (
            select * from tickwheel_due d
            where d.partition = u.partition and d.put_by >= xid and d.put_by <= xid
              and d.deadline <= u.deadline
            order by d.put_by, d.deadline limit $5) open)) due
       where (due.deadline, due.name) <= (u.deadline, u.name)
       limit $5) new";
/// What comes after the positions, so many of each partition. What is too much has no payload.
const LOAD: &str = "select due.partition, due.deadline, due.name, due.number, due.attempt,
       case when sum(octet_length(due.payload)) over (rows unbounded preceding)
         - octet_length(due.payload) < $6 then due.payload end
     from unnest($1::int[], $2::bigint[], $3::text[]) u(partition, deadline, name)
     cross join lateral (
       select * from tickwheel_due d
       where d.partition = u.partition and (d.deadline, d.name) > (u.deadline, u.name)
         and d.deadline <= $4
       order by d.deadline, d.name limit $5) due";
const GET: &str = "select partition, deadline, name, number, attempt, payload
     from tickwheel_due where name = $1";

/// Merges the partitions, and stops at the limit.
fn list() -> String {
    let parts: Vec<String> = (0..super::PARTITIONS)
        .map(|partition| {
            format!(
                "(select * from tickwheel_due where partition = {partition}
                    and (deadline, name) > ($1, $2) and deadline <= $3
                  order by deadline, name)"
            )
        })
        .collect();
    format!(
        "select partition, deadline, name, number, attempt,
           case when sum(octet_length(payload)) over (order by deadline, name rows unbounded
             preceding) - octet_length(payload) < $5 then payload end
         from (select * from ({}) all_due order by deadline, name limit $4) due
         order by deadline, name",
        parts.join(" union all ")
    )
}

impl Connection {
    pub(super) async fn prepare(client: Client, begin: String) -> Result<Self, Error> {
        // Each statement is planned when it is used, within `begin`.
        let statements = Statements {
            lock_partitions: client.prepare(LOCK_PARTITIONS).await?,
            ack: client.prepare(ACK).await?,
            retry: client.prepare(RETRY).await?,
            unlocked: client.prepare(UNLOCKED).await?,
            find: client.prepare(FIND).await?,
            put: client.prepare(PUT).await?,
            cancel: client.prepare(CANCEL).await?,
            news: client.prepare(NEWS).await?,
            load: client.prepare(LOAD).await?,
            list: client.prepare(&list()).await?,
            get: client.prepare(GET).await?,
        };
        Ok(Self { client, statements, begin })
    }

    pub(super) async fn begin(&self) -> Result<(), Error> {
        self.client.batch_execute(&self.begin).await
    }

    pub(super) async fn end(&self) -> Result<(), Error> {
        self.client.batch_execute("commit").await
    }

    /// Commits all, or nothing if a row is locked or anything is refused.
    pub(super) async fn commit(
        &self,
        settlements: &[Settlement],
        changes: &[Change],
    ) -> Result<Done, Error> {
        self.begin().await?;
        let mut done = Done { outcomes: self.settle(settlements).await?, changed: Vec::new() };
        for run in runs(changes) {
            done.changed.extend(self.change(run).await?.into_iter().map(Ok));
        }
        self.end().await?;
        Ok(done)
    }

    /// Commits what can be. What somebody else has locked, and what is refused, is left out alone.
    pub(super) async fn commit_singly(
        &self,
        settlements: &[Settlement],
        changes: &[Change],
    ) -> Result<Done, Error> {
        self.client.batch_execute("rollback").await?;
        self.begin().await?;
        let mut done =
            Done { outcomes: self.settle_unlocked(settlements).await?, ..Done::default() };
        for change in changes {
            self.client.batch_execute("savepoint one").await?;
            let changed = self.change(std::slice::from_ref(change)).await;
            let back = if changed.is_ok() { "release one" } else { "rollback to one; release one" };
            self.client.batch_execute(back).await?;
            done.changed.push(match changed {
                Ok(mut changed) => Ok(changed.pop().expect("one for one")),
                Err(error) if error.as_db_error().is_none() => return Err(error),
                Err(error) => {
                    let doing = if change.put.is_some() { "put" } else { "cancel" };
                    Err(crate::Error::store(format!("{doing} {:?}", change.name), error))
                }
            });
        }
        self.end().await?;
        Ok(done)
    }

    /// Settles as [`settle`](Self::settle) does, except for what somebody else has locked.
    async fn settle_unlocked(&self, settlements: &[Settlement]) -> Result<Vec<Outcome>, Error> {
        let names: Vec<&str> = settlements.iter().map(|settled| &*settled.held.name).collect();
        let rows = self.client.query(&self.statements.unlocked, &[&names]).await?;
        let locked: HashSet<&str> =
            rows.iter().filter(|row| !row.get::<_, bool>(1)).map(|row| row.get(0)).collect();
        let is_locked = |settled: &&Settlement| locked.contains(&*settled.held.name);
        let free: Vec<Settlement> =
            settlements.iter().filter(|settled| !is_locked(settled)).cloned().collect();
        let mut outcomes = self.settle(&free).await?.into_iter();
        let outcomes = settlements.iter().map(|settled| match is_locked(&settled) {
            true => Outcome::Locked,
            false => outcomes.next().expect("an outcome for each"),
        });
        Ok(outcomes.collect())
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<Vec<Outcome>, Error> {
        let epochs = self.epochs(settlements).await?;
        let mut outcomes = Vec::with_capacity(settlements.len());
        let mut places = HashMap::new();
        let (mut acked, mut retried) = (Columns::default(), Columns::default());
        for (at, Settlement { held, retry_at }) in settlements.iter().enumerate() {
            if epochs.get(&held.lease.partition) != Some(&held.lease.epoch) {
                outcomes.push(Outcome::Fenced);
                continue;
            }
            outcomes.push(Outcome::Gone);
            places.insert(signed(held.number), at);
            let columns = if retry_at.is_none() { &mut acked } else { &mut retried };
            columns.names.push(&*held.name);
            columns.numbers.push(signed(held.number));
            columns.deadlines.push(signed(retry_at.unwrap_or_default()));
        }
        if !acked.names.is_empty() {
            let parameters: [&Parameter<'_>; 2] = [&acked.names, &acked.numbers];
            for row in self.client.query(&self.statements.ack, &parameters).await? {
                outcomes[places[&row.get(0)]] = Outcome::Settled(None);
            }
        }
        if !retried.names.is_empty() {
            let parameters: [&Parameter<'_>; 3] =
                [&retried.names, &retried.numbers, &retried.deadlines];
            for row in self.client.query(&self.statements.retry, &parameters).await? {
                let Reading::Row(retried) = read_row(&row, 1) else { continue };
                outcomes[places[&row.get(0)]] = Outcome::Settled(Some(retried));
            }
        }
        Ok(outcomes)
    }

    /// Returns the newest epochs of the partitions that are settled in, and keeps them from
    /// changing.
    async fn epochs(&self, settlements: &[Settlement]) -> Result<HashMap<u32, u64>, Error> {
        let partitions: HashSet<i32> =
            settlements.iter().map(|settlement| settlement.held.lease.partition as i32).collect();
        if partitions.is_empty() {
            return Ok(HashMap::new());
        }
        let partitions: Vec<i32> = partitions.into_iter().collect();
        let rows = self.client.query(&self.statements.lock_partitions, &[&partitions]).await?;
        Ok(rows.iter().map(|row| (row.get::<_, i32>(0) as u32, unsigned(row.get(1)))).collect())
    }

    /// Puts or cancels names that are different.
    async fn change(&self, changes: &[Change]) -> Result<Vec<Changed>, Error> {
        let names: Vec<&str> = changes.iter().map(|change| &*change.name).collect();
        let puts: Vec<&Put> = changes.iter().filter_map(|change| change.put.as_ref()).collect();
        if puts.is_empty() {
            let gone = self.client.query(&self.statements.cancel, &[&names]).await?;
            let gone: HashMap<&str, Replaced> =
                gone.iter().map(|row| (row.get(0), read_replaced(row))).collect();
            let replaced = |name: &&str| Changed { row: None, replaced: gone.get(name).copied() };
            return Ok(names.iter().map(replaced).collect());
        }
        let deadlines: Vec<i64> = puts.iter().map(|put| signed(put.deadline)).collect();
        let payloads: Vec<&[u8]> = puts.iter().map(|put| &*put.payload).collect();
        let found = self.client.query(&self.statements.find, &[&names]).await?;
        let old: HashMap<&str, Replaced> =
            found.iter().map(|row| (row.get(0), read_replaced(row))).collect();
        let parameters: [&Parameter<'_>; 3] = [&names, &deadlines, &payloads];
        let rows = self.client.query(&self.statements.put, &parameters).await?;
        let new: HashMap<&str, &tokio_postgres::Row> =
            rows.iter().map(|row| (row.get(0), row)).collect();
        let changed = changes.iter().zip(puts).map(|(change, put)| {
            let row = new[&*change.name];
            let is_new: bool = row.get(2);
            // Another put it between the two statements; when, is not known.
            let unseen = || (!is_new).then_some(Replaced { number: 0, deadline: 0 });
            Changed {
                row: Some(Row {
                    name: change.name.clone(),
                    deadline: put.deadline,
                    payload: put.payload.clone(),
                    attempt: 0,
                    number: unsigned(row.get(1)),
                    partition: row.get::<_, i32>(3) as u32,
                }),
                replaced: old.get(&*change.name).copied().or_else(unseen),
            }
        });
        Ok(changed.collect())
    }
}

/// What is settled, as arrays of one length.
#[derive(Default)]
struct Columns<'a> {
    names: Vec<&'a str>,
    numbers: Vec<i64>,
    deadlines: Vec<i64>,
}

pub(super) type Parameter<'a> = dyn ToSql + Sync + 'a;

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
