//! Leases on partitions, by the clock of the database.

use tokio_postgres::types::Type;
use tokio_postgres::{Error, Row};

use super::connection::{Connection, Parameter};
use super::unsigned;
use crate::store::Lease;

/// Renews what this worker has, gives back what is over its share, and takes what is free up to
/// it. Returns the leases.
pub(super) async fn take_leases(
    connection: &Connection,
    worker: i64,
    seconds: f64,
) -> Result<Vec<Lease>, Error> {
    let worker: Parameter<'_> = (&worker, Type::INT8);
    let one = std::slice::from_ref(&worker);
    // With these locked no other takes them until the new lease is to be seen.
    let mut mine = connection.query(LOCK_MINE, one).await?;
    connection.query(RENEW, &[worker.clone(), (&seconds, Type::FLOAT8)]).await?;
    let share: i64 = connection.query_one(SHARE, &[]).await?.get(0);
    let share = usize::try_from(share).unwrap_or_default();
    let place = |row: &Row| row.get::<_, i32>(0);
    if share < mine.len() {
        let too_many: Vec<i32> = mine.drain(share..).map(|row| place(&row)).collect();
        connection.query(GIVE_BACK, &[(&too_many, Type::INT4_ARRAY)]).await?;
    } else if mine.len() < share {
        let most = (share - mine.len()) as i64;
        let free = connection.query(LOCK_FREE, &[worker.clone(), (&most, Type::INT8)]).await?;
        let free: Vec<i32> = free.iter().map(place).collect();
        mine.extend(connection.query(TAKE, &[worker, (&free, Type::INT4_ARRAY)]).await?);
    }
    let lease = |row: &Row| Lease { partition: place(row) as u32, epoch: unsigned(row.get(1)) };
    Ok(mine.iter().map(lease).collect())
}

/// Gives all leases back.
pub(super) async fn give_leases_back(connection: &Connection, worker: i64) -> Result<(), Error> {
    let worker = [(&worker as _, Type::INT8)];
    connection.query(GIVE_ALL_BACK, &worker).await?;
    connection.query(END, &worker).await?;
    Ok(())
}

/// Removes the leases of workers that are dead.
pub(super) async fn remove_dead(connection: &Connection) -> Result<(), Error> {
    connection.query(REMOVE_DEAD, &[]).await?;
    Ok(())
}

/// What others have taken meanwhile has another owner. An ack keeps an owner from changing, and
/// does not hold up its renewal.
const LOCK_MINE: &str = "select partition, epoch from tickwheel_partition where owner = $1
     order by partition for no key update";
/// Its older leases that have not run out are removed. Those that have are not looked for, because
/// a foreign snapshot may keep many. The clock is selected, because a call of it in each row would
/// not be a condition of the index.
const RENEW: &str = "with renewed as (
       insert into tickwheel_worker values ($1, clock_timestamp() + $2 * interval '1 second'))
     delete from tickwheel_worker where worker = $1 and until >= (select clock_timestamp())";
const SHARE: &str = "select ceil((select count(*) from tickwheel_partition)::float8
       / greatest(1, (select count(distinct worker) from tickwheel_worker
                      where until >= (select clock_timestamp()))))::bigint";
const GIVE_BACK: &str = "update tickwheel_partition set owner = null where partition = any($1)";
const LOCK_FREE: &str = "select partition from tickwheel_partition p
     where owner is distinct from $1 and not exists (
       select from tickwheel_worker w
       where w.worker = p.owner and w.until >= (select clock_timestamp()))
     order by random() limit $2 for update of p skip locked";
/// Looks again for the lease of the owner, which may have renewed it before the lock.
const TAKE: &str = "update tickwheel_partition p set owner = $1, epoch = epoch + 1
     where partition = any($2) and not exists (
       select from tickwheel_worker w
       where w.worker = p.owner and w.until >= (select clock_timestamp()))
     returning partition, epoch";
const GIVE_ALL_BACK: &str = "update tickwheel_partition set owner = null where owner = $1";
const END: &str = "delete from tickwheel_worker
     where worker = $1 and until >= (select clock_timestamp())";
const REMOVE_DEAD: &str = "delete from tickwheel_worker where (worker, until) in (
       select worker, until from tickwheel_worker where until < clock_timestamp()
       for update skip locked)";

/// Milliseconds since 1970, rounded down.
pub(super) const CLOCK: &str = "select floor(extract(epoch from clock_timestamp()) * 1000)::bigint";
