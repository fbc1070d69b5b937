//! A connection with its statements, and a commit by them.

use std::collections::{HashMap, HashSet};

use postgres::{Client, Statement, Transaction};

use super::{read_replaced, read_row, signed, unsigned};
use crate::store::{Held, Op, Outcome, Replaced, Row};

pub(super) struct Connection {
    pub(super) client: Client,
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
        Ok(Self {
            lock_partitions: client.prepare(LOCK_PARTITIONS)?,
            ack: client.prepare(ACK)?,
            retry: client.prepare(RETRY)?,
            find: client.prepare(FIND)?,
            put: client.prepare(PUT)?,
            cancel: client.prepare(CANCEL)?,
            load: client.prepare(LOAD)?,
            get: client.prepare(GET)?,
            client,
        })
    }

    pub(super) fn commit(&mut self, ops: &[Op]) -> Result<Vec<Outcome>, postgres::Error> {
        let Self { client, lock_partitions, ack, retry, find, put, cancel, .. } = self;
        let mut transaction = client.transaction()?;
        let epochs = epochs(&mut transaction, lock_partitions, ops)?;
        let mut outcomes: Vec<Option<Outcome>> = vec![None; ops.len()];
        for run in runs(ops) {
            let first = run.start;
            let places: HashMap<&str, usize> = run.clone().map(|at| (ops[at].name(), at)).collect();
            match &ops[first] {
                Op::Ack(_) | Op::Retry(..) => {
                    let mut names = Vec::new();
                    let mut numbers = Vec::new();
                    let mut deadlines = Vec::new();
                    for (at, op) in ops[run.clone()].iter().enumerate() {
                        let (held, deadline) = match op {
                            Op::Ack(held) => (held, 0),
                            Op::Retry(held, deadline) => (held, *deadline),
                            Op::Put { .. } | Op::Cancel { .. } => {
                                unreachable!("a run is of a kind")
                            }
                        };
                        if epochs.get(&held.lease.partition) != Some(&held.lease.epoch) {
                            outcomes[first + at] = Some(Outcome::Fenced);
                            continue;
                        }
                        outcomes[first + at] = Some(Outcome::Gone);
                        names.push(&*held.name);
                        numbers.push(signed(held.number));
                        deadlines.push(signed(deadline));
                    }
                    let by_number: HashMap<i64, usize> = ops[run.clone()]
                        .iter()
                        .enumerate()
                        .filter_map(|(at, op)| Some((signed(op.held()?.number), first + at)))
                        .collect();
                    if matches!(ops[first], Op::Ack(_)) {
                        for row in transaction.query(&*ack, &[&names, &numbers])? {
                            outcomes[by_number[&row.get(0)]] = Some(Outcome::Acked);
                        }
                    } else {
                        for row in transaction.query(&*retry, &[&names, &numbers, &deadlines])? {
                            let retried = read_row(&row, 1);
                            outcomes[by_number[&row.get(0)]] = Some(Outcome::Retried(retried));
                        }
                    }
                }
                Op::Put { .. } => {
                    let mut names = Vec::new();
                    let mut deadlines = Vec::new();
                    let mut payloads: Vec<&[u8]> = Vec::new();
                    for op in &ops[run.clone()] {
                        let Op::Put { name, deadline, payload } = op else {
                            unreachable!("a run is of a kind")
                        };
                        names.push(&**name);
                        deadlines.push(signed(*deadline));
                        payloads.push(payload);
                    }
                    let mut old: HashMap<String, Replaced> = HashMap::new();
                    for row in transaction.query(&*find, &[&names])? {
                        old.insert(row.get(0), read_replaced(&row));
                    }
                    for row in transaction.query(&*put, &[&names, &deadlines, &payloads])? {
                        let name: &str = row.get(0);
                        let at = places[name];
                        let Op::Put { name, deadline, payload } = &ops[at] else {
                            unreachable!("a run is of a kind")
                        };
                        let is_new: bool = row.get(2);
                        let replaced = old.get(&**name).copied().or_else(|| {
                            // Another put it between the two statements; when, is not known.
                            (!is_new).then_some(Replaced { number: 0, deadline: 0 })
                        });
                        outcomes[at] = Some(Outcome::Put {
                            row: Row {
                                name: name.clone(),
                                deadline: *deadline,
                                payload: payload.clone(),
                                attempt: 0,
                                number: unsigned(row.get(1)),
                                partition: row.get::<_, i32>(3) as u32,
                            },
                            replaced,
                        });
                    }
                }
                Op::Cancel { .. } => {
                    let names: Vec<&str> = ops[run.clone()].iter().map(Op::name).collect();
                    for at in run.clone() {
                        outcomes[at] = Some(Outcome::Cancelled(None));
                    }
                    for row in transaction.query(&*cancel, &[&names])? {
                        let at = places[row.get::<_, &str>(0)];
                        outcomes[at] = Some(Outcome::Cancelled(Some(read_replaced(&row))));
                    }
                }
            }
        }
        transaction.commit()?;
        Ok(outcomes.into_iter().map(|outcome| outcome.expect("each has one")).collect())
    }
}

impl Op {
    fn name(&self) -> &str {
        match self {
            Self::Put { name, .. } | Self::Cancel { name } => name,
            Self::Ack(held) | Self::Retry(held, _) => &held.name,
        }
    }

    fn held(&self) -> Option<&Held> {
        match self {
            Self::Ack(held) | Self::Retry(held, _) => Some(held),
            Self::Put { .. } | Self::Cancel { .. } => None,
        }
    }
}

/// Returns the newest epochs of the partitions that are acked in, and keeps them from changing.
fn epochs(
    transaction: &mut Transaction<'_>,
    lock: &Statement,
    ops: &[Op],
) -> Result<HashMap<u32, u64>, postgres::Error> {
    let partitions: HashSet<i32> =
        ops.iter().filter_map(|op| Some(op.held()?.lease.partition as i32)).collect();
    if partitions.is_empty() {
        return Ok(HashMap::new());
    }
    let partitions: Vec<i32> = partitions.into_iter().collect();
    let rows = transaction.query(lock, &[&partitions])?;
    Ok(rows.iter().map(|row| (row.get::<_, i32>(0) as u32, unsigned(row.get(1)))).collect())
}

/// Splits changes into runs of one kind in which no name comes twice, so that each is a statement.
fn runs(ops: &[Op]) -> Vec<std::ops::Range<usize>> {
    let mut runs: Vec<std::ops::Range<usize>> = Vec::new();
    let mut names = HashSet::new();
    for (at, op) in ops.iter().enumerate() {
        let goes_on = runs.last().is_some_and(|run| {
            std::mem::discriminant(&ops[run.start]) == std::mem::discriminant(op)
        }) && !names.contains(op.name());
        if !goes_on {
            runs.push(at..at);
            names.clear();
        }
        names.insert(op.name());
        runs.last_mut().expect("it was pushed").end = at + 1;
    }
    runs
}
