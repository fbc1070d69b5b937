//! The store on PostgreSQL: many workers, each the owner of some partitions.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use postgres::error::SqlState;
use postgres::{Client, Config, NoTls, Statement, Transaction};

use crate::Error;
use crate::store::{
    Filling, Held, Lease, Leases, Limit, Op, Outcome, Page, Position, Replaced, Row, Store,
};

/// The statements that make the tables, to be run by hand where a program may not.
pub const MIGRATION: &str = include_str!("../../../migrations/0001_timeouts.sql");

/// The format of the tables this version knows.
const FORMAT: i32 = 1;

/// The partitions that [`MIGRATION`] makes.
const PARTITIONS: u32 = 64;

/// How long a lease is good for, if nothing else was said.
const LEASE: Duration = Duration::from_secs(10);

/// A store in a PostgreSQL database, for any number of workers.
///
/// Each worker owns some of 64 partitions, by a lease on the clock of the database. Workers that
/// come and go share them anew. After an error the connection is made again at the next call.
pub struct PostgresStore {
    connect: Box<dyn FnMut() -> Result<Client, postgres::Error> + Send>,
    lease: Duration,
    connection: Option<Connection>,
    /// The number of this worker.
    worker: Option<i64>,
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore").field("worker", &self.worker).finish_non_exhaustive()
    }
}

struct Connection {
    client: Client,
    lock_partitions: Statement,
    ack: Statement,
    retry: Statement,
    find: Statement,
    put: Statement,
    cancel: Statement,
    load: Statement,
    get: Statement,
}

impl PostgresStore {
    /// Connects to the database at this URL, or by these `key=value` parameters, without TLS.
    /// Makes the tables where they are missing.
    ///
    /// # Errors
    ///
    /// [`Error::Store`] if there is no connection or no permission, and [`Error::NewerFormat`].
    pub fn connect(url: &str) -> Result<Self, Error> {
        let mut config: Config =
            url.parse().map_err(|error| Error::store("read the URL of the database", error))?;
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(Duration::from_secs(5));
        }
        // A database that has gone without a word must not hold the timer up for hours.
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(Duration::from_secs(10));
        }
        if config.get_application_name().is_none() {
            config.application_name("tickwheel-durable");
        }
        Self::connect_with(move || config.connect(NoTls))
    }

    /// Connects by a function of yours, as with TLS. It is called again after each error.
    ///
    /// # Errors
    ///
    /// As for [`connect`](Self::connect).
    pub fn connect_with(
        connect: impl FnMut() -> Result<Client, postgres::Error> + Send + 'static,
    ) -> Result<Self, Error> {
        let mut store =
            Self { connect: Box::new(connect), lease: LEASE, connection: None, worker: None };
        store.open()?;
        Ok(store)
    }

    /// Sets how long a lease is good for. Default 10 s.
    ///
    /// After the death of a worker its timeouts are late by a lease and a quarter at most. A worker
    /// that cannot reach the database for three quarters of it hands out nothing more.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    fn open(&mut self) -> Result<&mut Connection, Error> {
        if self.connection.is_none() {
            let doing = "connect to the database";
            let mut client = (self.connect)().map_err(|error| Error::store(doing, error))?;
            set_up(&mut client)?;
            let connection =
                Connection::prepare(client).map_err(|error| Error::store(doing, error))?;
            self.connection = Some(connection);
        }
        Ok(self.connection.as_mut().expect("it was opened"))
    }

    /// Runs `work`. If it fails, the connection is made anew at the next call.
    fn run<R>(
        &mut self,
        doing: &str,
        mut work: impl FnMut(&mut Connection) -> Result<R, postgres::Error>,
    ) -> Result<R, Error> {
        let mut tries = 0;
        loop {
            let connection = self.open()?;
            let error = match work(connection) {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            let is_conflict =
                [SqlState::T_R_DEADLOCK_DETECTED, SqlState::T_R_SERIALIZATION_FAILURE]
                    .iter()
                    .any(|state| error.code() == Some(state));
            tries += 1;
            if is_conflict && tries < 5 {
                continue;
            }
            self.connection = None;
            return Err(Error::store(format!("{doing} in the database"), error));
        }
    }
}

/// Makes the tables where they are missing, and the session safe.
fn set_up(client: &mut Client) -> Result<(), Error> {
    let failed = |error| Error::store("set up the tables of tickwheel-durable", error);
    // What was acked must be on the disk, whatever the database is set to.
    client
        .batch_execute(
            "select set_config('synchronous_commit', 'on', false)
               where current_setting('synchronous_commit') = 'off';
             set statement_timeout = '30s';
             set idle_in_transaction_session_timeout = '30s';",
        )
        .map_err(failed)?;
    let mut transaction = client.transaction().map_err(failed)?;
    // Any number, the same for all: two workers may find the tables missing at once.
    transaction.batch_execute("select pg_advisory_xact_lock(7463812)").map_err(failed)?;
    let exists = transaction
        .query_one("select to_regclass('tickwheel_meta') is not null", &[])
        .map_err(failed)?
        .get::<_, bool>(0);
    if !exists {
        transaction.batch_execute(MIGRATION).map_err(|error| {
            Error::store(
                "make the tables of tickwheel-durable; run migrations/0001_timeouts.sql by hand as \
                 a user who may",
                error,
            )
        })?;
    }
    let format: i32 =
        transaction.query_one("select format from tickwheel_meta", &[]).map_err(failed)?.get(0);
    transaction.commit().map_err(failed)?;
    if format == FORMAT {
        return Ok(());
    }
    Err(Error::NewerFormat {
        path: "the database".into(),
        found: u64::try_from(format).unwrap_or_default(),
        known: FORMAT as u64,
    })
}

/// Puts a timeout inside a transaction of yours: it is there exactly if that commits.
///
/// It is the same as [`DurableTimer::schedule`](crate::DurableTimer::schedule), and needs no timer
/// in this process. The transaction holds a lock on the name until it ends.
///
/// # Errors
///
/// If the name or the payload is not allowed, and the database's.
pub fn schedule_in(
    transaction: &mut Transaction<'_>,
    name: &str,
    at: SystemTime,
    payload: &[u8],
) -> Result<(), Error> {
    crate::timer::values::check(name, payload)?;
    let failed = |error| Error::store(format!("schedule {name:?} in a transaction"), error);
    let deadline = crate::timer::values::deadline(at);
    let statement = transaction.prepare(PUT).map_err(failed)?;
    let (names, partitions) = (vec![name], vec![partition(name)]);
    transaction
        .query(&statement, &[&names, &partitions, &vec![signed(deadline)], &vec![payload]])
        .map_err(failed)?;
    Ok(())
}

/// Cancels a timeout inside a transaction of yours. Returns whether it was there.
///
/// A timeout whose deadline is near may be handed out all the same: until the transaction commits,
/// the worker that owns it does not know.
///
/// # Errors
///
/// As for [`schedule_in`].
pub fn cancel_in(transaction: &mut Transaction<'_>, name: &str) -> Result<bool, Error> {
    crate::timer::values::check(name, &[])?;
    let failed = |error| Error::store(format!("cancel {name:?} in a transaction"), error);
    let rows = transaction.query(CANCEL, &[&vec![name]]).map_err(failed)?;
    Ok(!rows.is_empty())
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
const PUT: &str = "insert into tickwheel_due as due (name, partition, deadline, payload)
     select * from unnest($1::text[], $2::int[], $3::bigint[], $4::bytea[])
       u(name, partition, deadline, payload) order by u.name collate \"C\"
     on conflict (name) do update set deadline = excluded.deadline, payload = excluded.payload,
       number = excluded.number, attempt = 0
     returning name, number, xmax = 0";
const CANCEL: &str =
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
    fn prepare(mut client: Client) -> Result<Self, postgres::Error> {
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

    fn commit(&mut self, ops: &[Op]) -> Result<Vec<Outcome>, postgres::Error> {
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
                    let mut partitions = Vec::new();
                    let mut deadlines = Vec::new();
                    let mut payloads: Vec<&[u8]> = Vec::new();
                    for op in &ops[run.clone()] {
                        let Op::Put { name, deadline, payload } = op else {
                            unreachable!("a run is of a kind")
                        };
                        names.push(&**name);
                        partitions.push(partition(name));
                        deadlines.push(signed(*deadline));
                        payloads.push(payload);
                    }
                    let mut old: HashMap<String, Replaced> = HashMap::new();
                    for row in transaction.query(&*find, &[&names])? {
                        old.insert(row.get(0), read_replaced(&row));
                    }
                    let parameters: [&(dyn postgres::types::ToSql + Sync); 4] =
                        [&names, &partitions, &deadlines, &payloads];
                    for row in transaction.query(&*put, &parameters)? {
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
                                partition: partition(name) as u32,
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

impl Store for PostgresStore {
    fn lease(&mut self, wanted: bool) -> Result<Leases, Error> {
        let seconds = self.lease.as_secs_f64();
        if self.worker.is_none() {
            let worker = self.run("take a number", |connection| {
                let next = "select nextval('tickwheel_worker_number')";
                Ok(connection.client.query_one(next, &[])?.get(0))
            })?;
            self.worker = Some(worker);
        }
        let worker = self.worker.expect("it was taken");
        if !wanted {
            return self.run("give leases back", |connection| {
                let mut transaction = connection.client.transaction()?;
                let free = "update tickwheel_partition set owner = null, until = '-infinity'
                            where owner = $1";
                transaction.execute(free, &[&worker])?;
                transaction
                    .execute("delete from tickwheel_worker where worker = $1", &[&worker])?;
                transaction.commit()?;
                Ok(Leases { held: Vec::new(), good_for: None, clock: None })
            });
        }
        let good_for = self.lease;
        self.run("take leases", |connection| {
            let mut transaction = connection.client.transaction()?;
            let (held, clock) = take_leases(&mut transaction, worker, seconds)?;
            transaction.commit()?;
            Ok(Leases { held, good_for: Some(good_for), clock: Some(clock) })
        })
    }

    fn load(
        &mut self,
        leases: Option<&[Lease]>,
        after: &Position,
        until: u64,
        limit: Limit,
    ) -> Result<Page, Error> {
        let partitions: Vec<i32> = match leases {
            Some(leases) => leases.iter().map(|lease| lease.partition as i32).collect(),
            None => (0..PARTITIONS as i32).collect(),
        };
        // One more tells whether the page is the last.
        let most = i64::try_from(limit.rows).unwrap_or(i64::MAX).saturating_add(1);
        let found = self.run("load", |connection| {
            let (after_deadline, until) = (signed(after.deadline), signed(until));
            let parameters: [&(dyn postgres::types::ToSql + Sync); 5] =
                [&partitions, &after_deadline, &&*after.name, &until, &most];
            connection.client.query(&connection.load, &parameters)
        })?;
        let mut filling = Filling::new(limit);
        for row in &found {
            if filling.is_over() {
                break;
            }
            filling.add(read_row(row, 0));
        }
        Ok(filling.page())
    }

    fn commit(&mut self, ops: &[Op]) -> Result<Vec<Outcome>, Error> {
        self.run("commit", |connection| connection.commit(ops))
    }

    fn get(&mut self, name: &str) -> Result<Option<Row>, Error> {
        self.run("find a name", |connection| {
            let row = connection.client.query_opt(&connection.get, &[&name])?;
            Ok(row.map(|row| read_row(&row, 0)))
        })
    }

    fn count(&mut self) -> Result<u64, Error> {
        self.run("count", |connection| {
            let count = "select count(*) from tickwheel_due";
            Ok(unsigned(connection.client.query_one(count, &[])?.get(0)))
        })
    }
}

/// Renews what this worker has, gives back what is over its share, and takes what is free up to
/// it. Returns the leases and the clock.
fn take_leases(
    transaction: &mut Transaction<'_>,
    worker: i64,
    seconds: f64,
) -> Result<(Vec<Lease>, u64), postgres::Error> {
    transaction.execute(
        "insert into tickwheel_worker values ($1, clock_timestamp() + $2 * interval '1 second')
         on conflict (worker) do update set until = excluded.until",
        &[&worker, &seconds],
    )?;
    transaction.execute(
        "delete from tickwheel_worker where worker in (
           select worker from tickwheel_worker where until < clock_timestamp()
           for update skip locked)",
        &[],
    )?;
    let share: i64 = transaction
        .query_one(
            "select ceil((select count(*) from tickwheel_partition)::float8
               / greatest(1, (select count(*) from tickwheel_worker
                              where until >= clock_timestamp())))::bigint",
            &[],
        )?
        .get(0);
    // What others have taken meanwhile has another owner.
    let renewed = transaction.query(
        "with mine as (select partition from tickwheel_partition where owner = $1
                       order by partition limit $3 for update)
         update tickwheel_partition p set until = clock_timestamp() + $2 * interval '1 second'
         from mine where p.partition = mine.partition returning p.partition, p.epoch",
        &[&worker, &seconds, &share],
    )?;
    let kept: Vec<i32> = renewed.iter().map(|row| row.get(0)).collect();
    transaction.execute(
        "update tickwheel_partition set owner = null, until = '-infinity'
         where owner = $1 and not partition = any($2)",
        &[&worker, &kept],
    )?;
    let taken = transaction.query(
        "with free as (select partition from tickwheel_partition
                       where (owner is null or until < clock_timestamp())
                         and owner is distinct from $1 and not partition = any($4)
                       order by random() limit $3 for update skip locked)
         update tickwheel_partition p set owner = $1, epoch = p.epoch + 1,
           until = clock_timestamp() + $2 * interval '1 second'
         from free where p.partition = free.partition returning p.partition, p.epoch",
        &[&worker, &seconds, &(share - kept.len() as i64).max(0), &kept],
    )?;
    let held = renewed
        .iter()
        .chain(&taken)
        .map(|row| Lease { partition: row.get::<_, i32>(0) as u32, epoch: unsigned(row.get(1)) })
        .collect();
    let clock = "select floor(extract(epoch from clock_timestamp()) * 1000)::bigint";
    let clock = unsigned(transaction.query_one(clock, &[])?.get(0));
    Ok((held, clock))
}

/// The same in all versions: it says where a name is.
fn partition(name: &str) -> i32 {
    (crc32c::crc32c(name.as_bytes()) % PARTITIONS) as i32
}

fn read_row(row: &postgres::Row, from: usize) -> Row {
    Row {
        partition: row.get::<_, i32>(from) as u32,
        deadline: unsigned(row.get(from + 1)),
        name: Arc::from(row.get::<_, &str>(from + 2)),
        number: unsigned(row.get(from + 3)),
        attempt: row.get::<_, i32>(from + 4) as u32,
        payload: Arc::from(row.get::<_, &[u8]>(from + 5)),
    }
}

fn read_replaced(row: &postgres::Row) -> Replaced {
    Replaced { number: unsigned(row.get(1)), deadline: unsigned(row.get(2)) }
}

/// The database has no unsigned numbers; none here is near the end.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}
