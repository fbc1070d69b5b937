//! Joining a fleet.

use std::time::Duration;

use tokio_postgres::types::Type;

use super::patience::{OnThread, Turn, WRITERS, patiently};
use super::{DatabaseId, HomeState, Homes};
use crate::Error;
use crate::block_on::block_on;
use crate::store::postgres::PostgresStore;
use crate::store::postgres::connection::Connection;

/// Lets a new database share the partitions of a fleet, or of one that is alone yet. It has none
/// until [`move_partition`](crate::move_partition) brings some. Again, if it was cut off.
///
/// From then on no worker of a version that knows nothing of fleets may work on either, and callers
/// in SQL need transactions of the isolation level `read committed`.
///
/// # Errors
///
/// The databases', and if the new one has timeouts, dead letters or workers, or is of a fleet
/// already; or if a worker of such a version has a lease.
pub fn join_fleet(new: &mut PostgresStore, member: &mut PostgresStore) -> Result<(), Error> {
    let doing = format!("let {} join {}", new.place(), member.place());
    let refused = |why: String| Err(Error::store(&*doing, why));
    let (mine, map) = (new.homes()?, member.homes()?);
    if mine.id == map.id {
        return refused("they are one database, or one is a copy of the other".to_owned());
    }
    // The member notes the new one first, which may have joined another fleet instead. One that has
    // partitions from before there was a fleet is known to all who have joined.
    let is_old = map.partitions.iter().any(|it| it.state.is_here() && it.moves == 0);
    let know = !is_old && map.places.contains_key(&mine.id) || mine.places.contains_key(&map.id);
    let is_member = know
        && mine.partitions.iter().zip(&map.partitions).all(|(mine, its)| {
            !(mine.state.is_here() && its.state.is_here())
                && (0 < mine.moves || !mine.state.is_here())
        });
    if is_member {
        return Ok(());
    }
    let is_known = map.partitions.iter().any(|home| home.other == Some(mine.id));
    let is_new = mine.partitions.iter().all(|it| it.state == HomeState::Here && it.moves == 0);
    if is_known || !is_new {
        return refused(format!("{} is of a fleet already", new.place()));
    }
    let (name, place) = (new.place().to_owned(), member.place().to_owned());
    let begun =
        block_on(patiently(&OnThread, async |lock| member.begin_fleet(&mine, &name, lock)))?;
    if let Some(why) = begun.map_err(|why| Error::store(&*doing, why))? {
        return refused(format!("{place} {why}"));
    }
    // It may have given all away before it began a fleet with this one.
    let map = member.homes()?;
    let given = block_on(patiently(&OnThread, async |lock| new.give_all(&map, &place, lock)))?;
    match given.map_err(|why| Error::store(&*doing, why))? {
        None => Ok(()),
        Some(why) => refused(format!("{name} {why}")),
    }
}

impl PostgresStore {
    /// Makes this a database of a fleet, with another of this name. Returns why not.
    fn begin_fleet(
        &mut self,
        other: &Homes,
        name: &str,
        lock: Duration,
    ) -> Result<Turn<Option<String>>, Error> {
        self.run_at("begin a fleet with", async |connection| {
            if !connection.begin_locked(lock, BEGIN_FLEET).await? {
                return Ok(Turn::Waits(connection.waits_for().await?));
            }
            let old = connection.query(OLD_WORKERS, &[]).await?;
            let old = old.first().map(|old| {
                format!(
                    "has worker {}, which is of an older version: stop it",
                    old.get::<_, i64>(0)
                )
            });
            let is_utf8: bool = connection.query_one(IN_USE, &[]).await?.get(2);
            let id = other.id.to_string();
            // Then the other one would give them back to nobody.
            let given = connection.query_one(GIVEN, &[(&id, Type::TEXT)]).await?;
            let given = given.get::<_, bool>(0).then(|| format!("has joined {name} meanwhile"));
            let encoding = || (!is_utf8).then(|| ENCODING.to_owned());
            if let Some(why) = old.or(given).or_else(encoding) {
                connection.execute("rollback").await?;
                return Ok(Turn::Done(Some(why)));
            }
            note_place(connection, &id, name).await?;
            connection.query(TELL, &[]).await?;
            connection.end().await?;
            Ok(Turn::Done(None))
        })
    }

    /// Gives all partitions of this database to those that have them in the fleet. Returns why not.
    fn give_all(
        &mut self,
        map: &Homes,
        name: &str,
        lock: Duration,
    ) -> Result<Turn<Option<&'static str>>, Error> {
        let id = self.homes()?.id;
        let homes = map.databases();
        let given: Vec<String> = homes.iter().map(DatabaseId::to_string).collect();
        self.run_at("join a fleet with", async |connection| {
            // Nobody puts anything, or takes a partition, between the looks and the end.
            if !connection.begin_locked(lock, "").await? {
                return Ok(Turn::Waits(WRITERS));
            }
            let format = connection.query(LOCK_FORMAT, &[]).await;
            let Some(format) = connection.unless_locked(format).await? else {
                return Ok(Turn::Waits(WRITERS));
            };
            let mine = connection.query(LOCK_ALL, &[]).await;
            let Some(mine) = connection.unless_locked(mine).await? else {
                return Ok(Turn::Waits(WRITERS));
            };
            let begun = connection.execute(BEGIN_FLEET).await;
            if connection.unless_locked(begun).await?.is_none() {
                return Ok(Turn::Waits(WRITERS));
            }
            let in_use = connection.query_one(IN_USE, &[]).await?;
            let is_alone = format.iter().all(|row| row.get::<_, i32>(0) == 1);
            let why = match (in_use.get(0), in_use.get(1)) {
                _ if mine.iter().any(|row| !row.get::<_, bool>(0)) => Some("is of a fleet already"),
                // Databases that join each other in a ring would all give all away. What nobody
                // has joined gets nothing; of the others each gives to smaller ones.
                _ if !is_alone && homes.iter().any(|home| id <= *home) => {
                    Some("began a fleet: let the other join it")
                }
                _ if !in_use.get::<_, bool>(2) => Some(ENCODING),
                (true, _) => Some("has timeouts or dead letters: a new one is to be empty"),
                (_, true) => Some("has workers: they are to begin after it has joined"),
                _ => None,
            };
            if why.is_some() {
                connection.execute("rollback").await?;
                return Ok(Turn::Done(why));
            }
            for (id, other) in &map.places {
                note_place(connection, &id.to_string(), other).await?;
            }
            note_place(connection, &map.id.to_string(), name).await?;
            connection.query(GIVE_ALL, &[(&given as _, Type::TEXT_ARRAY)]).await?;
            connection.query(TELL, &[]).await?;
            connection.end().await?;
            Ok(Turn::Done(None))
        })
    }
}

/// Notes what to call another database.
pub(super) async fn note_place(
    connection: &Connection,
    id: &str,
    name: &str,
) -> Result<(), tokio_postgres::Error> {
    connection.query(NOTE_PLACE, &[(&id, Type::TEXT), (&name, Type::TEXT)]).await?;
    Ok(())
}

const NOTE_PLACE: &str = "insert into tickwheel_place values ($1::uuid, $2)
     on conflict (id) do update set name = excluded.name where tickwheel_place.name <> excluded.name";
const OLD_WORKERS: &str = "select worker from tickwheel_worker
     where until >= clock_timestamp() and format < 2";
/// From now on the tables are of format 2, an older worker can renew no lease, and an older caller
/// can change nothing. It waits for all that have changed something and have not looked where their
/// partition is.
const BEGIN_FLEET: &str = "update tickwheel_meta set format = 2;
     create or replace trigger tickwheel_due_format
       before insert or update or delete on tickwheel_due
       for each statement execute function tickwheel_check_format();
     create or replace trigger tickwheel_dead_format
       before insert or update or delete on tickwheel_dead
       for each statement execute function tickwheel_check_format();
     alter table tickwheel_worker drop constraint if exists tickwheel_worker_knows_fleets;
     alter table tickwheel_worker add constraint tickwheel_worker_knows_fleets
       check (format >= 2) not valid";
/// Last, because it is not taken back with the transaction.
const TELL: &str = "select nextval('tickwheel_fleet')";
const LOCK_ALL: &str = "select state = 'here' and moves = 0 from tickwheel_partition
     order by partition for update";
const LOCK_FORMAT: &str = "select format from tickwheel_meta for update";
const IN_USE: &str = "select exists (select from tickwheel_due)
       or exists (select from tickwheel_dead) or exists (select from tickwheel_broken),
     exists (select from tickwheel_worker where until >= clock_timestamp()),
     current_setting('server_encoding') = 'UTF8'";
const GIVEN: &str = "select exists (select from tickwheel_partition where other = $1::uuid)";
const GIVE_ALL: &str = "update tickwheel_partition p
     set state = 'gone', other = homes.home::uuid, owner = null
     from unnest($1::text[]) with ordinality homes(home, place)
     where p.partition = homes.place - 1";

const ENCODING: &str = "is not of the encoding UTF8: partitions of names would not be the same";
