//! Leases on partitions, by the clock of the database.

use std::time::Instant;

use tokio_postgres::types::Type;
use tokio_postgres::{Error, Row};

use super::connection::unsigned;
use super::connection::{Connection, Parameter};
use crate::store::{Lease, share};

/// Whether a partition is to be given back. Where that would last for longer than a mover asks for,
/// the clock of the database was set back since.
macro_rules! yields {
    () => {
        "coalesce(yields between (select clock_timestamp())
           and (select clock_timestamp()) + interval '10 seconds', false)"
    };
}
pub(super) use yields;

/// What a worker asks for.
pub(super) struct Wish<'a> {
    pub(super) worker: i64,
    /// How long the lease is to be good for.
    pub(super) seconds: f64,
    pub(super) wanted: bool,
    pub(super) given_back: &'a [u32],
    /// How many workers may have partitions.
    pub(super) most: usize,
}

/// What the worker got.
#[derive(Default)]
pub(super) struct Taken {
    pub(super) held: Vec<Lease>,
    pub(super) share: usize,
    /// How many workers share.
    pub(super) owners: usize,
    /// How many of those are before this one.
    pub(super) before: usize,
    /// In how many milliseconds the first lease of another runs out.
    pub(super) others_end: Option<u64>,
    /// How many more partitions it would have, if nobody else had locked them.
    pub(super) locked: usize,
    /// Those of `held` that are to be given back, because they move to another database.
    pub(super) yielding: Vec<u32>,
}

/// Gives back what is given back, renews the rest of what this worker has, and takes what is free
/// up to its share, if it wants that.
pub(super) async fn take_leases(
    connection: &Connection,
    wish: &Wish<'_>,
    ahead: &mut Ahead,
) -> Result<Taken, Error> {
    let worker: Parameter<'_> = (&wish.worker, Type::INT8);
    let one = std::slice::from_ref(&worker);
    let place = |row: &Row| row.get::<_, i32>(0);
    // With these locked no other takes them until the new lease is to be seen.
    let mine = connection.query(LOCK_MINE, one).await?;
    let is_given = |row: &Row| wish.given_back.contains(&(place(row) as u32));
    let (given, mut mine): (Vec<Row>, Vec<Row>) = mine.into_iter().partition(is_given);
    let yields = |row: &&Row| row.get::<_, bool>(2);
    let yielding: Vec<u32> = mine.iter().filter(yields).map(|row| place(row) as u32).collect();
    if !given.is_empty() {
        let given: Vec<i32> = given.iter().map(place).collect();
        connection.query(GIVE_BACK, &[(&given, Type::INT4_ARRAY)]).await?;
    }
    if mine.is_empty() && !wish.wanted {
        connection.query(END, one).await?;
        return Ok(Taken { owners: 1, ..Taken::default() });
    }
    let lease = [worker.clone(), (&wish.seconds, Type::FLOAT8), (&wish.wanted, Type::BOOL)];
    connection.query(RENEW, &lease).await?;
    remove_ahead(connection, ahead).await?;
    let shares = connection.query_one(SHARES, one).await?;
    let [partitions, workers, before] = [0, 1, 2].map(|at| unsigned(shares.get(at)) as usize);
    let others_end = shares.get::<_, Option<i64>>(3).map(unsigned);
    let share = share(partitions, workers.min(wish.most), before);
    // Or it would take what it has just given back.
    if wish.wanted && given.is_empty() && mine.len() < share {
        let most = (share - mine.len()) as i64;
        let free = connection.query(LOCK_FREE, &[worker.clone(), (&most, Type::INT8)]).await?;
        let free: Vec<i32> = free.iter().map(place).collect();
        let taken = [worker.clone(), (&free, Type::INT4_ARRAY)];
        mine.extend(connection.query(TAKE, &taken).await?);
    }
    let mut locked = 0;
    if wish.wanted && mine.len() < share {
        let mine: Vec<i32> = mine.iter().map(place).collect();
        let others = [worker, (&mine, Type::INT4_ARRAY)];
        let others = connection.query_one(OUT_OF_REACH, &others).await?;
        locked = (share - mine.len()).min(unsigned(others.get(0)) as usize);
    }
    let lease = |row: &Row| Lease { partition: place(row) as u32, epoch: unsigned(row.get(1)) };
    let held = mine.iter().map(lease).collect();
    Ok(Taken { held, share, owners: workers, before, others_end, locked, yielding })
}

/// Leases of which more is left than they were good for, because the clock of the database was set
/// back: a worker, the end in seconds since 1970, and when that was seen first.
pub(super) type Ahead = Vec<(i64, f64, Instant)>;

/// Removes such leases if their workers have not renewed them since they were seen, for as long as
/// they were good for.
async fn remove_ahead(connection: &Connection, ahead: &mut Ahead) -> Result<(), Error> {
    let found = connection.query(AHEAD, &[]).await?;
    let mut over = Vec::new();
    let now = found.iter().map(|row| {
        let (worker, until): (i64, f64) = (row.get(0), row.get(1));
        let known = ahead.iter().find(|known| (known.0, known.1) == (worker, until));
        let since = known.map_or_else(Instant::now, |known| known.2);
        if row.get::<_, f64>(2) < since.elapsed().as_secs_f64() {
            over.push(worker);
        }
        (worker, until, since)
    });
    *ahead = now.collect();
    if !over.is_empty() {
        connection.query(REMOVE_AHEAD, &[(&over, Type::INT8_ARRAY)]).await?;
    }
    Ok(())
}

/// Removes the leases of workers that are dead.
pub(super) async fn remove_dead(connection: &Connection) -> Result<(), Error> {
    connection.query(REMOVE_DEAD, &[]).await?;
    Ok(())
}

/// What others have taken meanwhile has another owner, and what somebody else has locked may get
/// one: the worker does not hand out of that. An ack keeps an owner from changing, and does not hold
/// up its renewal.
const LOCK_MINE: &str = concat!(
    "select partition, epoch, ",
    yields!(),
    " from tickwheel_partition where owner = $1 order by partition for no key update skip locked"
);
/// Its older leases that have not run out are removed. Those that have are not looked for, because
/// a foreign snapshot may keep many. The clock is selected, because a call of it in each row would
/// not be a condition of the index. One that somebody else has locked runs out by itself.
const RENEW: &str = "with renewed as (
       insert into tickwheel_worker
       values ($1, clock_timestamp() + $2 * interval '1 second', $3, $2 * interval '1 second', 2))
     delete from tickwheel_worker where (worker, until) in (
       select worker, until from tickwheel_worker
       where worker = $1 and until >= (select clock_timestamp()) for update skip locked)";
const SHARES: &str = concat!(
    "select
       (select count(*) from tickwheel_partition where state in ('here', 'moving') and not ",
    yields!(),
    "),
       count(distinct worker) filter (where wants),
       count(distinct worker) filter (where wants and worker < $1),
       ceil(extract(epoch from min(until) filter (where worker <> $1) - clock_timestamp())
         * 1000)::bigint
     from tickwheel_worker where until >= (select clock_timestamp())"
);
const GIVE_BACK: &str = "update tickwheel_partition set owner = null where partition = any($1)";
const LOCK_FREE: &str = concat!(
    "select partition from tickwheel_partition p
     where owner is distinct from $1 and state in ('here', 'moving') and not ",
    yields!(),
    " and not exists (
       select from tickwheel_worker w
       where w.worker = p.owner and w.until >= (select clock_timestamp()))
     order by random() limit $2 for update of p skip locked"
);
/// Looks again for the lease of the owner, which may have renewed it before the lock. What is over
/// must not come true when a clock that was set back is there again.
const TAKE: &str = concat!(
    "update tickwheel_partition p set owner = $1, epoch = epoch + 1, yields = null
     where partition = any($2) and state in ('here', 'moving') and not ",
    yields!(),
    " and not exists (
       select from tickwheel_worker w
       where w.worker = p.owner and w.until >= (select clock_timestamp()))
     returning partition, epoch"
);
/// Counts what this worker or nobody owns, and the worker did not get.
const OUT_OF_REACH: &str = concat!(
    "select count(*) from tickwheel_partition p
     where partition <> all($2) and state in ('here', 'moving') and not ",
    yields!(),
    " and (owner = $1 or not exists (
       select from tickwheel_worker w
       where w.worker = p.owner and w.until >= (select clock_timestamp())))"
);
const END: &str = "delete from tickwheel_worker where (worker, until) in (
       select worker, until from tickwheel_worker
       where worker = $1 and until >= (select clock_timestamp()) for update skip locked)";
const AHEAD: &str = "select worker, extract(epoch from until)::float8,
       extract(epoch from good_for)::float8
     from tickwheel_worker where until >= (select clock_timestamp())
       and until > (select clock_timestamp()) + good_for";
const REMOVE_AHEAD: &str = "delete from tickwheel_worker where (worker, until) in (
       select worker, until from tickwheel_worker where worker = any($1)
         and until > (select clock_timestamp()) + good_for for update skip locked)";
const REMOVE_DEAD: &str = "delete from tickwheel_worker where (worker, until) in (
       select worker, until from tickwheel_worker where until < clock_timestamp()
       for update skip locked)";

/// Milliseconds since 1970, rounded down.
pub(super) const CLOCK: &str = "select floor(extract(epoch from clock_timestamp()) * 1000)::bigint";
