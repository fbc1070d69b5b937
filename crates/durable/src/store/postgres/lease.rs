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
    let (worker, seconds): (Parameter<'_>, Parameter<'_>) =
        ((&worker, Type::INT8), (&seconds, Type::FLOAT8));
    connection.query(ALIVE, &[worker.clone(), seconds.clone()]).await?;
    connection.query(REMOVE_DEAD, &[]).await?;
    let share: i64 = connection.query_one(SHARE, &[]).await?.get(0);
    let most = (&share as _, Type::INT8);
    let renewed = connection.query(RENEW, &[worker.clone(), seconds.clone(), most]).await?;
    let kept: Vec<i32> = renewed.iter().map(|row| row.get(0)).collect();
    let kept_partitions = (&kept as _, Type::INT4_ARRAY);
    connection.query(GIVE_BACK, &[worker.clone(), kept_partitions.clone()]).await?;
    let most = (share - kept.len() as i64).max(0);
    let parameters = [worker, seconds, (&most, Type::INT8), kept_partitions];
    let taken = connection.query(TAKE, &parameters).await?;
    let lease =
        |row: &Row| Lease { partition: row.get::<_, i32>(0) as u32, epoch: unsigned(row.get(1)) };
    Ok(renewed.iter().chain(&taken).map(lease).collect())
}

const ALIVE: &str =
    "insert into tickwheel_worker values ($1, clock_timestamp() + $2 * interval '1 second')
     on conflict (worker) do update set until = excluded.until";
const REMOVE_DEAD: &str = "delete from tickwheel_worker where worker in (
       select worker from tickwheel_worker where until < clock_timestamp()
       for update skip locked)";
const SHARE: &str = "select ceil((select count(*) from tickwheel_partition)::float8
       / greatest(1, (select count(*) from tickwheel_worker
                      where until >= clock_timestamp())))::bigint";
/// What others have taken meanwhile has another owner. An ack keeps an owner from changing, and
/// does not hold up its renewal.
const RENEW: &str = "with mine as (select partition from tickwheel_partition where owner = $1
       order by partition limit $3 for no key update)
     update tickwheel_partition p set until = clock_timestamp() + $2 * interval '1 second'
     from mine where p.partition = mine.partition returning p.partition, p.epoch";
const GIVE_BACK: &str = "update tickwheel_partition set owner = null, until = '-infinity'
     where owner = $1 and not partition = any($2)";
const TAKE: &str = "with free as (select partition from tickwheel_partition
       where (owner is null or until < clock_timestamp())
         and owner is distinct from $1 and not partition = any($4)
       order by random() limit $3 for update skip locked)
     update tickwheel_partition p set owner = $1, epoch = p.epoch + 1,
       until = clock_timestamp() + $2 * interval '1 second'
     from free where p.partition = free.partition returning p.partition, p.epoch";

/// Milliseconds since 1970, rounded down.
pub(super) const CLOCK: &str = "select floor(extract(epoch from clock_timestamp()) * 1000)::bigint";
