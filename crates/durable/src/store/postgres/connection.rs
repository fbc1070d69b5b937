//! A connection with its statements, and a commit by them.

use std::collections::{HashMap, HashSet};

use postgres::types::ToSql;
use postgres::{Client, Statement, Transaction};

use super::{read_replaced, read_row, signed, unsigned};
use crate::store::{Change, Changed, Done, Outcome, Put, Replaced, Row, Settlement};

pub(super) struct Connection {
    pub(super) client: Client,
    pub(super) statements: Statements,
}

pub(super) struct Statements {
    lock_partitions: Statement,
    ack: Statement,
    retry: Statement,
    find: Statement,
    put: Statement,
    cancel: Statement,
    pub(super) load: Statement,
    pub(super) get: Statement,
}

/// Owners cannot change while their acks are looked at.
const LOCK_PARTITIONS: &str =
    "select partition, epoch from tickwheel_partition where partition = any($1)
     order by partition for share";
const ACK: &str =
    "delete from tickwheel_due due using unnest($1::text[], $2::bigint[]) u(name, number)
     where due.name = u.name and due.number = u.number returning due.number";
const RETRY: &str = "update tickwheel_due due
     set deadline = u.deadline, attempt = due.attempt + 1, number = nextval('tickwheel_number')
     from unnest($1::text[], $2::bigint[], $3::bigint[]) u(name, number, deadline)
     where due.name = u.name and due.number = u.number
     returning u.number, due.partition, due.deadline, due.name, due.number, due.attempt,
       due.payload";
/// In order of the names, so that two workers do not wait for each other.
const FIND: &str = "select name, number, deadline from tickwheel_due where name = any($1)
     order by name for update";
pub(super) const PUT: &str = "insert into tickwheel_due as due (name, deadline, payload)
     select * from unnest($1::text[], $2::bigint[], $3::bytea[])
       u(name, deadline, payload) order by u.name collate \"C\"
     on conflict (name) do update set deadline = excluded.deadline, payload = excluded.payload,
       number = excluded.number, attempt = 0
     returning name, number, xmax = 0, partition";
pub(super) const CANCEL: &str =
    "delete from tickwheel_due where name = any($1::text[]) returning name, number, deadline";
const LOAD: &str =
    "select due.partition, due.deadline, due.name, due.number, due.attempt, due.payload
     from unnest($1::int[]) u(partition) cross join lateral (
       select * from tickwheel_due d
       where d.partition = u.partition and (d.deadline, d.name) > ($2, $3) and d.deadline <= $4
       order by d.deadline, d.name limit $5) due
     order by due.deadline, due.name limit $5";
const GET: &str = "select partition, deadline, name, number, attempt, payload
     from tickwheel_due where name = $1";

impl Connection {
    pub(super) fn prepare(mut client: Client) -> Result<Self, postgres::Error> {
        let statements = Statements {
            lock_partitions: client.prepare(LOCK_PARTITIONS)?,
            ack: client.prepare(ACK)?,
            retry: client.prepare(RETRY)?,
            find: client.prepare(FIND)?,
            put: client.prepare(PUT)?,
            cancel: client.prepare(CANCEL)?,
            load: client.prepare(LOAD)?,
            get: client.prepare(GET)?,
        };
        Ok(Self { client, statements })
    }

    pub(super) fn commit(
        &mut self,
        settlements: &[Settlement],
        changes: &[Change],
    ) -> Result<Done, postgres::Error> {
        let Self { client, statements } = self;
        let mut work = Work { transaction: client.transaction()?, statements };
        let mut done = Done { outcomes: work.settle(settlements)?, changed: Vec::new() };
        for run in runs(changes) {
            let changed = match run[0].put {
                Some(_) => work.put(run)?,
                None => work.cancel(run)?,
            };
            done.changed.extend(changed.into_iter().map(Ok));
        }
        work.transaction.commit()?;
        Ok(done)
    }
}

/// A commit that is under way.
struct Work<'a> {
    transaction: Transaction<'a>,
    statements: &'a Statements,
}

impl Work<'_> {
    fn settle(&mut self, settlements: &[Settlement]) -> Result<Vec<Outcome>, postgres::Error> {
        let epochs = self.epochs(settlements)?;
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
            for row in self.transaction.query(&self.statements.ack, &parameters)? {
                outcomes[places[&row.get(0)]] = Outcome::Settled(None);
            }
        }
        if !retried.names.is_empty() {
            let parameters: [&Parameter<'_>; 3] =
                [&retried.names, &retried.numbers, &retried.deadlines];
            for row in self.transaction.query(&self.statements.retry, &parameters)? {
                outcomes[places[&row.get(0)]] = Outcome::Settled(Some(read_row(&row, 1)));
            }
        }
        Ok(outcomes)
    }

    /// Returns the newest epochs of the partitions that are settled in, and keeps them from
    /// changing.
    fn epochs(&mut self, settlements: &[Settlement]) -> Result<HashMap<u32, u64>, postgres::Error> {
        let partitions: HashSet<i32> =
            settlements.iter().map(|settlement| settlement.held.lease.partition as i32).collect();
        if partitions.is_empty() {
            return Ok(HashMap::new());
        }
        let partitions: Vec<i32> = partitions.into_iter().collect();
        let rows = self.transaction.query(&self.statements.lock_partitions, &[&partitions])?;
        Ok(rows.iter().map(|row| (row.get::<_, i32>(0) as u32, unsigned(row.get(1)))).collect())
    }

    /// Puts timeouts of names that are different.
    fn put(&mut self, changes: &[Change]) -> Result<Vec<Changed>, postgres::Error> {
        let names: Vec<&str> = changes.iter().map(|change| &*change.name).collect();
        let puts: Vec<&Put> = changes.iter().filter_map(|change| change.put.as_ref()).collect();
        let deadlines: Vec<i64> = puts.iter().map(|put| signed(put.deadline)).collect();
        let payloads: Vec<&[u8]> = puts.iter().map(|put| &*put.payload).collect();
        let found = self.transaction.query(&self.statements.find, &[&names])?;
        let old: HashMap<&str, Replaced> =
            found.iter().map(|row| (row.get(0), read_replaced(row))).collect();
        let parameters: [&Parameter<'_>; 3] = [&names, &deadlines, &payloads];
        let rows = self.transaction.query(&self.statements.put, &parameters)?;
        let new: HashMap<&str, &postgres::Row> = rows.iter().map(|row| (row.get(0), row)).collect();
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

    /// Cancels names that are different.
    fn cancel(&mut self, changes: &[Change]) -> Result<Vec<Changed>, postgres::Error> {
        let names: Vec<&str> = changes.iter().map(|change| &*change.name).collect();
        let gone = self.transaction.query(&self.statements.cancel, &[&names])?;
        let gone: HashMap<&str, Replaced> =
            gone.iter().map(|row| (row.get(0), read_replaced(row))).collect();
        Ok(names
            .iter()
            .map(|name| Changed { row: None, replaced: gone.get(name).copied() })
            .collect())
    }
}

/// What is settled, as arrays of one length.
#[derive(Default)]
struct Columns<'a> {
    names: Vec<&'a str>,
    numbers: Vec<i64>,
    deadlines: Vec<i64>,
}

type Parameter<'a> = dyn ToSql + Sync + 'a;

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
