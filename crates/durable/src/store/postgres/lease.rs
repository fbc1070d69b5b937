//! Leases on partitions, by the clock of the database.

use tokio_postgres::{Client, Error};

use super::unsigned;
use crate::store::Lease;

/// Renews what this worker has, gives back what is over its share, and takes what is free up to
/// it. Returns the leases.
pub(super) async fn take_leases(
    client: &Client,
    worker: i64,
    seconds: f64,
) -> Result<Vec<Lease>, Error> {
    client
        .execute(
            "insert into tickwheel_worker values ($1, clock_timestamp() + $2 * interval '1 second')
         on conflict (worker) do update set until = excluded.until",
            &[&worker, &seconds],
        )
        .await?;
    client
        .execute(
            "delete from tickwheel_worker where worker in (
           select worker from tickwheel_worker where until < clock_timestamp()
           for update skip locked)",
            &[],
        )
        .await?;
    let share: i64 = client
        .query_one(
            "select ceil((select count(*) from tickwheel_partition)::float8
               / greatest(1, (select count(*) from tickwheel_worker
                              where until >= clock_timestamp())))::bigint",
            &[],
        )
        .await?
        .get(0);
    // What others have taken meanwhile has another owner. An ack keeps an owner from changing, and
    // does not hold up its renewal.
    let renewed = client
        .query(
            "with mine as (select partition from tickwheel_partition where owner = $1
                       order by partition limit $3 for no key update)
         update tickwheel_partition p set until = clock_timestamp() + $2 * interval '1 second'
         from mine where p.partition = mine.partition returning p.partition, p.epoch",
            &[&worker, &seconds, &share],
        )
        .await?;
    let kept: Vec<i32> = renewed.iter().map(|row| row.get(0)).collect();
    client
        .execute(
            "update tickwheel_partition set owner = null, until = '-infinity'
         where owner = $1 and not partition = any($2)",
            &[&worker, &kept],
        )
        .await?;
    let taken = client
        .query(
            "with free as (select partition from tickwheel_partition
                       where (owner is null or until < clock_timestamp())
                         and owner is distinct from $1 and not partition = any($4)
                       order by random() limit $3 for update skip locked)
         update tickwheel_partition p set owner = $1, epoch = p.epoch + 1,
           until = clock_timestamp() + $2 * interval '1 second'
         from free where p.partition = free.partition returning p.partition, p.epoch",
            &[&worker, &seconds, &(share - kept.len() as i64).max(0), &kept],
        )
        .await?;
    let held = renewed
        .iter()
        .chain(&taken)
        .map(|row| Lease { partition: row.get::<_, i32>(0) as u32, epoch: unsigned(row.get(1)) })
        .collect();
    Ok(held)
}

/// Milliseconds since 1970, rounded down.
pub(super) const CLOCK: &str = "select floor(extract(epoch from clock_timestamp()) * 1000)::bigint";
