//! The store on PostgreSQL: many workers, each the owner of some partitions.

mod connect;
mod connection;
mod lease;
mod operate;
mod schema;
#[cfg(feature = "tls")]
mod tls;
mod transaction;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use postgres::Client;
use postgres::error::SqlState;

use crate::Error;
use crate::store::{
    Change, Done, Filling, Lease, Leases, Limit, Page, Position, Replaced, Row, Settlement, Store,
};
use connect::Connect;
use connection::Connection;
use lease::{CLOCK, take_leases};
pub use operate::Workers;
pub use schema::MIGRATION;
use schema::set_up;
pub use transaction::{cancel_in, schedule_in};

/// The partitions that [`MIGRATION`] makes.
const PARTITIONS: u32 = 64;

/// How long a lease is good for, if nothing else was said.
const LEASE: Duration = Duration::from_secs(10);

/// A store in a PostgreSQL database, for any number of workers.
///
/// Each worker owns some of 64 partitions, by a lease on the clock of the database. Workers that
/// come and go share them anew. After an error the connection is made again at the next call.
pub struct PostgresStore {
    connect: Connect,
    makes_tables: bool,
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

impl PostgresStore {
    /// Connects to the database at this URL, or by these `key=value` parameters. Makes the tables
    /// where they are missing.
    ///
    /// TLS is by the usual parameters: `sslmode` is `disable`, `prefer` (the default), `require`,
    /// `verify-ca` or `verify-full`, and `sslrootcert` is a file with the certificates to trust in
    /// the place of those of the system. All but `disable` and `prefer` need the feature `tls`;
    /// without it `prefer` is `disable`.
    ///
    /// # Errors
    ///
    /// [`Error::Store`] if there is no connection or no permission, and [`Error::NewerFormat`].
    pub fn connect(url: &str) -> Result<Self, Error> {
        Self::begin(connect::by_url(url)?, true)
    }

    /// Connects as [`connect`](Self::connect) does, and makes no tables.
    ///
    /// # Errors
    ///
    /// As for [`connect`](Self::connect), and if the tables are missing.
    pub fn connect_existing(url: &str) -> Result<Self, Error> {
        Self::begin(connect::by_url(url)?, false)
    }

    /// Connects by a function of yours. It is called again after each error.
    ///
    /// # Errors
    ///
    /// As for [`connect`](Self::connect).
    pub fn connect_with(
        connect: impl FnMut() -> Result<Client, postgres::Error> + Send + 'static,
    ) -> Result<Self, Error> {
        Self::begin(Box::new(connect), true)
    }

    fn begin(connect: Connect, makes_tables: bool) -> Result<Self, Error> {
        let mut store =
            Self { connect, makes_tables, lease: LEASE, connection: None, worker: None };
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
            set_up(&mut client, self.makes_tables)?;
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
            let held = take_leases(&mut transaction, worker, seconds)?;
            transaction.commit()?;
            // Last, so that little time passes until the worker has it: by so much it is late.
            let clock = unsigned(connection.client.query_one(CLOCK, &[])?.get(0));
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
            connection.client.query(&connection.statements.load, &parameters)
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

    fn commit(&mut self, settlements: &[Settlement], changes: &[Change]) -> Result<Done, Error> {
        self.run("commit", |connection| connection.commit(settlements, changes))
    }

    fn get(&mut self, name: &str) -> Result<Option<Row>, Error> {
        self.run("find a name", |connection| {
            let row = connection.client.query_opt(&connection.statements.get, &[&name])?;
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
