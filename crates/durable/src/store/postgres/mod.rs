//! The store on PostgreSQL: many workers, each the owner of some partitions.

mod change;
mod connect;
mod connection;
mod fleet;
mod lease;
mod operate;
mod places;
mod rows;
mod schema;
mod settle;
#[cfg(feature = "tls")]
mod tls;
mod transaction;

use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use tickwheel::{BootClock, Clock};
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::Socket;
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::types::Type;

use crate::Error;
use crate::block_on::block_on;
use crate::store::stretch::Stretch;
use crate::store::{
    Change, Counted, Dead, DeadPage, Done, Leases, Limit, Loaded, Page, Position, READS, RateLimit,
    Row, Settlement, Start, Store,
};
use crate::values::milliseconds;
use connect::{GOODBYE, Place};
pub(crate) use connection::elsewhere;
use connection::{Connection, signed, unsigned};
#[cfg(test)]
pub(crate) use fleet::{Copied, OWNER, Side, Time, Turn, Way, carry_over};
pub use fleet::{
    DatabaseId, Home, HomeState, Homes, MovedPartition, abandon_move, join_fleet, move_partition,
};
use lease::{Ahead, CLOCK, Taken, Wish, remove_dead, take_leases};
pub use operate::{Worker, Workers};
use rows::{GET, Reading, Seen, read_row};
pub use schema::MIGRATION;
use schema::set_up;
pub use transaction::{cancel_in, schedule_in};

/// A store in a PostgreSQL database, for any number of workers.
///
/// Each worker owns some of 64 partitions, by a lease on the clock of the database. Workers that
/// come and go share them anew.
///
/// The encoding of the database is UTF8, LATIN1 or SQL_ASCII: others put names into another order.
///
/// If the clock of the database is slewed, a timeout may be early by what the clock loses between
/// two looks, and by as long as a call takes. A clock that is set back makes early, by as much, what
/// comes before the next look. By one that is set forward leases seem to be over, so that a timeout
/// may come twice.
///
/// A worker sees and owns nothing while row-level security hides rows from its role, and tells it.
///
/// Every call ends: after a third of the lease it is given up with an error, and what an operator
/// reads of a timer after a minute. After an error the connection is made again at the next call.
///
/// A timer's change that takes longer than a quarter of a second, as by a trigger, or than an eighteenth of
/// the lease if that is less, is an error to its caller: all others wait for it meanwhile. By
/// `schedule_in` it may take any time.
///
/// A commit that waits for a lost standby is given up in the same way. The server is told to stop
/// waiting: then it has the commit, and frees its locks. The caller gets an error, because no standby
/// may have it.
pub struct PostgresStore {
    place: Place,
    makes_tables: bool,
    lease: Duration,
    /// What drives the connection. Calls wait for it on their own thread, so they may be made from
    /// inside another runtime.
    runtime: Option<Runtime>,
    connection: Option<Box<Connection>>,
    /// When the connection was used last, by a clock that goes on while the machine is suspended.
    used: Instant,
    clock: BootClock,
    /// Whether it is a timer's.
    serves: bool,
    /// The number of this worker.
    worker: Option<i64>,
    ahead: Ahead,
    locked: Locked,
    /// What the last load has seen.
    seen: Seen,
    stretch: Stretch,
    /// So many settlements are committed at once.
    settles: usize,
}

/// Whether somebody else has locked partitions that this worker would have.
#[derive(Clone, Copy)]
enum Locked {
    Nothing,
    Since(Instant),
    Told,
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        // A server that is told knows sooner than one that finds out.
        self.connection = None;
        if let Some(runtime) = self.runtime.take() {
            let until = Instant::now() + GOODBYE;
            while 0 < runtime.metrics().num_alive_tasks() && Instant::now() < until {
                thread::sleep(Duration::from_millis(1));
            }
            runtime.shutdown_background();
        }
    }
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
    /// The parameter `namespace` names a schema for the tables, which is made if it is missing.
    /// Each namespace of a database has timeouts, workers and a pause of its own; in SQL,
    /// `emails.tickwheel_schedule(...)` is that of `emails`. Without it, the tables are found by the
    /// `search_path`.
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

    /// Connects as this configuration says, with TLS of your own or with `NoTls`.
    ///
    /// # Errors
    ///
    /// As for [`connect`](Self::connect).
    pub fn connect_with<T>(config: tokio_postgres::Config, tls: T) -> Result<Self, Error>
    where
        T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::Stream: Send,
        T::TlsConnect: Send,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        let connect = connect::by_config(config.clone(), tls);
        Self::begin(Place::new(&config, connect, None), true)
    }

    fn begin(place: Place, makes_tables: bool) -> Result<Self, Error> {
        let mut store = Self::new(place, makes_tables, LEASE)?;
        store.run("connect to", async |_| Ok(()))?;
        Ok(store)
    }

    fn new(place: Place, makes_tables: bool, lease: Duration) -> Result<Self, Error> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("tickwheel-durable/net")
            .enable_all()
            .build()
            .map_err(|error| Error::store("start the thread of the database", error))?;
        let clock = BootClock::new();
        Ok(Self {
            place,
            makes_tables,
            lease,
            runtime: Some(runtime),
            connection: None,
            used: clock.now(),
            clock,
            serves: false,
            worker: None,
            ahead: Ahead::new(),
            locked: Locked::Nothing,
            seen: Seen::default(),
            stretch: Stretch::ALL,
            settles: usize::MAX,
        })
    }

    /// Sets how long a lease is good for. Default 10 s.
    ///
    /// After the death of a worker its timeouts are late by a lease and a quarter at most. A worker
    /// that cannot reach the database for three quarters of it hands out nothing more.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        let connection = self.connection.take();
        self.connection = connection.map(|connection| {
            Box::new(connection.with_limit(lease / 3, self.place.namespace.as_deref()))
        });
        self
    }

    /// Is an error once, when somebody else has had so many partitions locked for a lease, so that
    /// nobody hands out what is due in them.
    fn tell_locked(&mut self, partitions: usize) -> Result<(), Error> {
        if partitions == 0 {
            self.locked = Locked::Nothing;
        }
        match self.locked {
            Locked::Nothing if 0 < partitions => self.locked = Locked::Since(Instant::now()),
            Locked::Since(since) if self.lease < since.elapsed() => {
                self.locked = Locked::Told;
                return Err(Error::store(
                    format!("take {partitions} partitions, so what is due there waits"),
                    "somebody else has locked rows of tickwheel_partition; pg_locks says who",
                ));
            }
            _ => {}
        }
        Ok(())
    }

    /// Runs `work`, for a third of the lease at most. If it fails, the connection is made anew at
    /// the next call.
    fn run<R>(
        &mut self,
        doing: &str,
        mut work: impl AsyncFnMut(&Connection) -> Result<R, tokio_postgres::Error>,
    ) -> Result<R, Error> {
        let limit = self.lease / 3;
        let doing = format!("{doing} the database");
        let runtime = self.runtime.as_ref().expect("it is there until the store is dropped");
        let _guard = runtime.enter();
        // What is on the way may have forgotten one that was idle, and tells nobody.
        let idle = self.clock.now().duration_since(self.used);
        let mut connection = self.connection.take().filter(|it| idle < IDLE && !it.is_closed());
        let (connect, makes_tables) = (&self.place.connect, self.makes_tables);
        let namespace = self.place.namespace.as_deref();
        let working = async {
            let connected = match connection.take() {
                Some(connected) => connected,
                None => {
                    let client = connect(limit).await.map_err(|e| Error::store(&*doing, e))?;
                    let connected = Box::new(Connection::new(client, limit, namespace));
                    set_up(&connected, namespace, makes_tables).await?;
                    connected
                }
            };
            let mut tries = 0;
            loop {
                let error = match work(&connected).await {
                    Ok(_) if connected.guard.takes_doubt() => {
                        return Err(Error::store(&*doing, IN_DOUBT));
                    }
                    Ok(done) => return Ok((connected, done)),
                    Err(error) => error,
                };
                tries += 1;
                if CONFLICTS.iter().all(|state| error.code() != Some(state)) || 5 < tries {
                    return Err(Error::store(&*doing, error));
                }
                let rolled_back = connected.execute("rollback").await;
                rolled_back.map_err(|error| Error::store(&*doing, error))?;
            }
        };
        let done = block_on(async { tokio::time::timeout(limit, working).await.ok() });
        let late = || Err(Error::store(&*doing, format!("no answer within {limit:?}")));
        let (connected, done) = done.unwrap_or_else(late)?;
        self.connection = Some(connected);
        self.used = self.clock.now();
        Ok(done)
    }
}

impl Store for PostgresStore {
    fn lease(&mut self, wanted: bool, given_back: &[u32]) -> Result<Leases, Error> {
        let (good_for, seconds) = (self.lease, self.lease.as_secs_f64());
        self.serves = true;
        if wanted && self.worker.is_none() {
            self.worker = Some(self.run("take a number from", async |connection| {
                connection.begin().await?;
                remove_dead(connection).await?;
                let worker = connection.query_one(NEXT, &[]).await?.get(0);
                connection.end().await?;
                Ok(worker)
            })?);
        }
        let worker = self.worker;
        let mut ahead = self.ahead.clone();
        let (taken, (is_paused, limit), clock) =
            self.run("take leases from", async |connection| {
                connection.begin().await?;
                let meta = connection.meta().await?;
                let most = meta.1.map_or(usize::MAX, |limit| limit.timeouts);
                let wish = worker.map(|worker| Wish { worker, seconds, wanted, given_back, most });
                let taken = match &wish {
                    Some(wish) => take_leases(connection, wish, &mut ahead).await?,
                    None => Taken { owners: 1, ..Taken::default() },
                };
                connection.end().await?;
                // Last, so that little time passes until the worker has it: by so much it is late.
                let clock = unsigned(connection.query_one(CLOCK, &[]).await?.get(0));
                Ok((taken, meta, clock))
            })?;
        self.ahead = ahead;
        self.tell_locked(taken.locked)?;
        let Taken { held, share, owners, before, others_end, yielding, .. } = taken;
        let leases = Leases {
            held,
            share,
            owners,
            owners_before: before,
            good_for: Some(good_for),
            others_end: others_end.map(Duration::from_millis),
            clock: Some(clock),
            is_paused,
            rate_limit: limit,
            yielding,
        };
        if !wanted && leases.held.is_empty() {
            self.worker = None;
        }
        Ok(leases)
    }

    fn load(&mut self, from: &[Start], until: u64, limit: Limit) -> Result<Loaded, Error> {
        let seen = self.seen.clone();
        let (loaded, seen) = self.run("load from", async |connection| {
            connection.load(&seen, from, until, limit).await
        })?;
        self.seen = seen;
        Ok(loaded)
    }

    fn load_behind(&mut self, from: &[Start], until: u64, limit: Limit) -> Result<Loaded, Error> {
        let part = self.stretch.part(from, until, limit, milliseconds(self.lease / 3));
        let read = self.run("load from", async |connection| connection.load_behind(part).await)?;
        let (partition, first) = (from[0].lease.partition, from[0].after.deadline);
        let read = read.map_err(|error| {
            Error::store(format!("read what was due at {first} in partition {partition}"), error)
        });
        Ok(self.stretch.take(part, from, until, read))
    }

    fn commit(&mut self, settlements: &[Settlement], changes: &[Change]) -> Result<Done, Error> {
        let most = settlements.len().min(self.settles);
        let settlements = &settlements[..most];
        let serves = self.serves;
        let done = self.run("commit to", async |connection| {
            let limits = connection.limits;
            let parts = if serves { limits.commit } else { limits.alone };
            match connection.commit(parts, settlements, changes).await {
                // Something is locked or refused, or takes long: all else does not.
                Err(error) if error.as_db_error().is_some() => {
                    connection.commit_what_can_be(parts, settlements, changes).await
                }
                done => done,
            }
        });
        // Where they take long, so many that there is time for them.
        let settled = done.as_ref().map_or(most / 2, |done| done.outcomes.len());
        self.settles = if settled < most { settled.max(1) } else { self.settles.saturating_mul(2) };
        done
    }

    fn get(&mut self, name: &str) -> Result<Option<Row>, Error> {
        self.run("find a name in", async |connection| {
            connection.begin().await?;
            let rows = connection.query(GET, &[(&name, Type::TEXT)]).await?;
            let found = rows.first().and_then(|row| match read_row(row, 0) {
                Reading::Row(row) => Some(row),
                Reading::TooMuch(_) | Reading::Unreadable(_) => None,
            });
            let found = connection.unless_away(name, found).await?;
            connection.end().await?;
            Ok(found)
        })?
    }

    fn list(&mut self, after: &Position, until: u64, limit: Limit) -> Result<Page, Error> {
        self.run("list", async |connection| connection.list(after, until, limit).await)
    }

    fn count(&mut self) -> Result<u64, Error> {
        self.run("count in", async |connection| {
            connection.begin().await?;
            connection.execute("set local enable_seqscan = on").await?;
            let count = unsigned(connection.query_one(COUNT, &[]).await?.get(0));
            connection.end().await?;
            Ok(count)
        })
    }

    fn count_until(&mut self, ends: &[u64], most: u64) -> Result<Vec<Counted>, Error> {
        self.run("count in", async |connection| {
            connection.begin().await?;
            let counted = connection.count_until(ends, most).await?;
            connection.end().await?;
            Ok(counted)
        })
    }

    fn list_dead(&mut self, after: &str, limit: Limit) -> Result<DeadPage, Error> {
        self.run("list dead letters in", async |connection| {
            connection.list_dead(after, limit).await
        })
    }

    fn get_dead(&mut self, name: &str) -> Result<Option<Dead>, Error> {
        self.run("find a dead letter in", async |connection| connection.get_dead(name).await)?
    }

    fn is_paused(&mut self) -> Result<bool, Error> {
        self.run("read", async |connection| {
            connection.begin().await?;
            let (is_paused, _) = connection.meta().await?;
            connection.end().await?;
            Ok(is_paused)
        })
    }

    fn rate_limit(&mut self) -> Result<Option<RateLimit>, Error> {
        self.run("read", async |connection| {
            connection.begin().await?;
            let (_, limit) = connection.meta().await?;
            connection.end().await?;
            Ok(limit)
        })
    }

    fn limit_rate(&mut self, limit: Option<RateLimit>) -> Result<(), Error> {
        let timeouts = limit.map(|limit| i64::try_from(limit.timeouts).unwrap_or(i64::MAX));
        let per = limit.map(|limit| signed(milliseconds(limit.per)));
        self.run("limit the rate of", async |connection| {
            connection.begin().await?;
            let limit = "update tickwheel_meta set rate_timeouts = $1, rate_per = $2";
            connection.query(limit, &[(&timeouts, Type::INT8), (&per, Type::INT8)]).await?;
            connection.end().await
        })
    }

    fn pause(&mut self, pauses: bool) -> Result<(), Error> {
        self.run(if pauses { "pause" } else { "resume" }, async |connection| {
            connection.begin().await?;
            let paused = "update tickwheel_meta set paused = $1";
            connection.query(paused, &[(&pauses, Type::BOOL)]).await?;
            connection.end().await
        })
    }

    fn again(&self) -> Option<Box<dyn Store>> {
        let again = Self::new(self.place.clone(), false, self.lease.max(READS * 3)).ok()?;
        Some(Box::new(again))
    }
}

impl Connection {
    /// Returns whether nothing is to be handed out, and how much at most.
    async fn meta(&self) -> Result<(bool, Option<RateLimit>), tokio_postgres::Error> {
        let row = self.query_one(META, &[]).await?;
        let limit = row.get::<_, Option<i64>>(1).zip(row.get(2)).map(|(timeouts, per)| RateLimit {
            timeouts: unsigned(timeouts) as usize,
            per: Duration::from_millis(unsigned(per)),
        });
        Ok((row.get(0), limit))
    }
}

/// How long a lease is good for, if nothing else was said.
const LEASE: Duration = Duration::from_secs(10);

/// After these the same may be tried again.
const CONFLICTS: [SqlState; 2] =
    [SqlState::T_R_DEADLOCK_DETECTED, SqlState::T_R_SERIALIZATION_FAILURE];

/// After a restore the sequence gives again what workers have that outlived it. What is random
/// tells them apart from those who get it then.
const NEXT: &str = "select (nextval('tickwheel_worker_number') << 20)
       + floor(random() * 1048576)::bigint";

/// What another database has is not counted, though it may still be here, or be on its way.
const COUNT: &str = "select count(*) from tickwheel_due where partition in (
       select partition from tickwheel_partition where state in ('here', 'moving'))";
const META: &str = "select coalesce(bool_or(paused), false), min(rate_timeouts), min(rate_per)
     from tickwheel_meta";

/// A connection that was idle for so long is made anew; a worker that owns something looks sooner.
const IDLE: Duration = Duration::from_secs(5);

const IN_DOUBT: &str = "it is committed, and maybe on no standby: somebody cancelled the wait";
