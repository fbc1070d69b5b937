//! What the databases of a move are asked, in SQL.

use std::time::{Duration, SystemTime};

use tokio_postgres::types::Type;

use super::join::note_place;
use super::moving::{CHANGES, Copied, OWNER, SOME, Side, Way};
use super::patience::{Turn, is_locked, while_locked};
use super::{DatabaseId, Homes};
use crate::Error;
use crate::store::postgres::PostgresStore;
use crate::store::postgres::connection::{Connection, Parameter, signed, unsigned};
use crate::store::postgres::rows::{Reading, read_row};
use crate::store::{Position, Row};

impl Side for PostgresStore {
    fn place(&self) -> &str {
        self.place()
    }

    async fn clock(&mut self) -> Result<SystemTime, Error> {
        self.now()
    }

    async fn homes(&mut self) -> Result<Homes, Error> {
        while_locked(|| Self::homes(self))
    }

    async fn begin_move(
        &mut self,
        way: Way,
        name: &str,
        lock: Duration,
    ) -> Result<Turn<bool>, Error> {
        let told = way.told(way.to);
        self.run_unlocked("begin a move from", async |connection| {
            if !connection.begin_locked(lock, &triggers(way.partition)).await? {
                return Ok(Turn::Waits(connection.waits_for().await?));
            }
            note_place(connection, &told.other, name).await?;
            let began = connection.query(BEGIN_MOVE, &told.parameters()).await?;
            if began.is_empty() {
                connection.execute("rollback").await?;
            } else {
                connection.end().await?;
            }
            Ok(Turn::Done(!began.is_empty()))
        })
    }

    async fn yield_until(&mut self, way: Way, time: Option<Duration>) -> Result<(), Error> {
        let seconds = time.map(|time| time.as_secs_f64());
        let told = way.told(way.to);
        self.run_unlocked("let a partition be given back in", async |connection| {
            connection.begin().await?;
            let [partition, other, moves] = told.parameters();
            let parameters = [partition, other, moves, (&seconds as _, Type::FLOAT8)];
            connection.query(YIELD_UNTIL, &parameters).await?;
            connection.end().await
        })
    }

    async fn expect(&mut self, way: Way, name: &str) -> Result<bool, Error> {
        let other = way.from.to_string();
        self.run_unlocked("note a database in", async |connection| {
            connection.begin().await?;
            note_place(connection, &other, name).await?;
            connection.end().await
        })?;
        self.set_state("expect a partition in", EXPECT, way)
    }

    async fn expect_no_more(&mut self, way: Way) -> Result<bool, Error> {
        self.set_state("forget a move to", EXPECT_NO_MORE, way)
    }

    async fn claim(&mut self, way: Way) -> Result<Option<i64>, Error> {
        let told = way.told(way.from);
        self.run_unlocked("expect a partition in", async |connection| {
            connection.begin().await?;
            let claimed = connection.query(CLAIM, &told.parameters()).await?;
            connection.end().await?;
            Ok(claimed.first().map(|row| row.get(0)))
        })
    }

    async fn page(&mut self, way: Way, after: &Position) -> Result<(Vec<Row>, bool), Error> {
        let (deadline, name) = (signed(after.deadline), &*after.name);
        let rows = self.run_unlocked("copy a partition of", async |connection| {
            connection.begin().await?;
            let parameters: [Parameter<'_>; 4] = [
                (&way.partition, Type::INT4),
                (&deadline, Type::INT8),
                (&name, Type::TEXT),
                (&ROWS, Type::INT8),
            ];
            let rows = connection.query(PAGE, &parameters).await?;
            connection.end().await?;
            Ok(rows)
        })?;
        let page = read(&rows)?;
        let is_last = page.len() == rows.len() && (rows.len() as i64) < ROWS;
        Ok((page, is_last))
    }

    async fn stage(
        &mut self,
        way: Way,
        token: i64,
        rows: &[Row],
        names: &[String],
    ) -> Result<(), Error> {
        while_locked(|| self.put_staged(way, token, rows, names))
    }

    async fn changed(&mut self, way: Way) -> Result<u64, Error> {
        self.run_unlocked("count what has changed in", async |connection| {
            connection.begin().await?;
            let parameters: [Parameter<'_>; 2] =
                [(&way.partition, Type::INT4), (&signed(way.moves), Type::INT8)];
            let count = connection.query_one(COUNT_CHANGED, &parameters).await?.get(0);
            connection.end().await?;
            Ok(unsigned(count))
        })
    }

    async fn catch_up(&mut self, to: &mut Self, way: Way, token: i64) -> Result<Copied, Error> {
        while_locked(|| {
            self.run_with("copy what has changed in", async |connection| {
                connection.begin().await?;
                let copied = connection.copy_changed(to, way, token).await?;
                // What was committed there and not here is copied once more.
                connection.end().await?;
                Ok(copied)
            })
        })
    }

    async fn copy_dead(&mut self, to: &mut Self, way: Way, token: i64) -> Result<Copied, Error> {
        while_locked(|| {
            self.run_with("copy dead letters of", async |connection| {
                connection.begin().await?;
                let copied = connection.copy_dead(to, way, token).await?;
                connection.end().await?;
                Ok(copied)
            })
        })
    }

    async fn switch(
        &mut self,
        to: &mut Self,
        way: Way,
        token: i64,
        lock: Duration,
    ) -> Result<(Turn<()>, u64), Error> {
        let switched = self.run_with("move a partition from", async |connection| {
            if !connection.begin_locked(lock, "").await? {
                return Ok((Turn::Waits(CALLERS), 0));
            }
            let place = [(&way.partition as _, Type::INT4)];
            // No caller is in the middle of a change, and none begins one.
            let locked = connection.query(LOCK_OUT, &place).await;
            if connection.unless_locked(locked).await?.is_none() {
                return Ok((Turn::Waits(CALLERS), 0));
            }
            // Nor an ack, and no worker takes it.
            let told = way.told(way.to);
            let locked = connection.query(LOCK_MOVING, &told.parameters()).await;
            let Some(moving) = connection.unless_locked(locked).await? else {
                return Ok((Turn::Waits(OWNER), 0));
            };
            if moving.is_empty() {
                return Err(Failure::There(Error::store("go on with a move", DISPLACED)));
            }
            // In a statement of its own: the lease may have been renewed while it waited.
            let has_owner = connection.query_one(HAS_OWNER, &place).await?.get::<_, bool>(0);
            if has_owner {
                connection.execute("rollback").await?;
                return Ok((Turn::Waits(OWNER), 0));
            }
            let copied = match connection.copy_changed(to, way, token).await {
                // Another mover looks at them.
                Err(Failure::Here(error)) => {
                    connection.unless_locked(Err::<(), _>(error)).await?;
                    return Ok((Turn::Waits(CHANGES), 0));
                }
                copied => copied?,
            };
            // Each change that is left would be lost.
            if copied.is_more || connection.copy_dead(to, way, token).await?.is_more {
                connection.execute("rollback").await?;
                return Ok((Turn::Waits(CHANGES), 0));
            }
            connection.query(GO, &place).await?;
            connection.end().await?;
            Ok((Turn::Done(()), copied.count))
        });
        match switched {
            Err(error) if is_locked(&error) => Ok((Turn::Waits(LOCKED), 0)),
            switched => switched,
        }
    }

    async fn arrive(&mut self, partition: u32, from: &Homes) -> Result<bool, Error> {
        self.arrive(partition, from)
    }

    async fn remove_some(&mut self, way: Way) -> Result<bool, Error> {
        let (removed, is_left) =
            self.run_unlocked("remove what was moved from", async |connection| {
                connection.begin().await?;
                let place = [(&way.partition as _, Type::INT4)];
                // Or it would remove what comes back.
                let gone = connection.query(LOCK_GONE, &place).await?;
                let (mut removed, mut is_left) = (0, false);
                if !gone.is_empty() {
                    removed += connection.query(REMOVE, &place).await?.len();
                    removed += connection.query(REMOVE_DEAD, &place).await?.len();
                    is_left = connection.query_one(IS_LEFT, &place).await?.get(0);
                }
                connection.end().await?;
                Ok((removed, is_left))
            })?;
        if removed == 0 && is_left {
            let doing = format!("remove what was moved from {}", self.place());
            return Err(Error::store(doing, "a trigger has kept timeouts"));
        }
        Ok(0 < removed)
    }
}

/// A move, as statements are told of it.
struct Told {
    partition: i32,
    /// The other database.
    other: String,
    moves: i64,
}

impl Way {
    fn told(self, other: DatabaseId) -> Told {
        Told { partition: self.partition, other: other.to_string(), moves: signed(self.moves) }
    }
}

impl Told {
    /// The first parameters of each statement.
    fn parameters(&self) -> [Parameter<'_>; 3] {
        [(&self.partition, Type::INT4), (&self.other, Type::TEXT), (&self.moves, Type::INT8)]
    }
}

impl PostgresStore {
    /// Removes the notes of moves that were abandoned, in parts, because there may be many: while
    /// triggers are made, nobody can change a timeout.
    pub(super) fn remove_old_notes(&mut self) -> Result<(), Error> {
        let mut page = 0_i64;
        loop {
            let is_more: bool = self.run_unlocked("remove old notes from", async |connection| {
                connection.begin().await?;
                let part: [Parameter<'_>; 2] = [(&page, Type::INT8), (&PAGES, Type::INT8)];
                let is_more = connection.query_one(REMOVE_NOTES, &part).await?.get(0);
                connection.end().await?;
                Ok(is_more)
            })?;
            if !is_more {
                return Ok(());
            }
            page += PAGES;
        }
    }

    /// Runs `work` as [`run_at`](Self::run_at) does, and waits for locks.
    fn run_unlocked<R>(
        &mut self,
        doing: &str,
        mut work: impl AsyncFnMut(&Connection) -> Result<R, tokio_postgres::Error>,
    ) -> Result<R, Error> {
        while_locked(|| self.run_at(doing, &mut work))
    }

    /// As [`Side::stage`], and waits for no lock of somebody else.
    fn put_staged(
        &mut self,
        way: Way,
        token: i64,
        rows: &[Row],
        names: &[String],
    ) -> Result<(), Error> {
        let named: Vec<&str> = rows.iter().map(|row| &*row.name).collect();
        let deadlines: Vec<i64> = rows.iter().map(|row| signed(row.deadline)).collect();
        let attempt = |row: &Row| i32::try_from(row.attempt).unwrap_or(i32::MAX);
        let attempts: Vec<i32> = rows.iter().map(attempt).collect();
        let payloads: Vec<&[u8]> = rows.iter().map(|row| &*row.payload).collect();
        let metadata: Vec<&str> = rows.iter().map(|row| &*row.metadata).collect();
        let staged = self.while_it_comes(way, token, async |connection| {
            let parameters: [Parameter<'_>; 3] = [
                (&names, Type::TEXT_ARRAY),
                (&named, Type::TEXT_ARRAY),
                (&way.partition, Type::INT4),
            ];
            connection.query(UNSTAGE, &parameters).await?;
            let parameters: [Parameter<'_>; 6] = [
                (&named, Type::TEXT_ARRAY),
                (&deadlines, Type::INT8_ARRAY),
                (&attempts, Type::INT4_ARRAY),
                (&payloads, Type::BYTEA_ARRAY),
                (&metadata, Type::TEXT_ARRAY),
                (&way.partition, Type::INT4),
            ];
            let staged = connection.query_one(STAGE, &parameters).await?.get::<_, i64>(0);
            if staged < rows.len() as i64 {
                // Then there is nothing to commit.
                connection.execute("rollback").await?;
            }
            Ok(staged)
        })?;
        match rows.len() as i64 - staged {
            0 => Ok(()),
            others => Err(Error::store(
                format!("copy a partition to {}", self.place()),
                format!(
                    "{others} timeouts are of another partition there, or a trigger has skipped or \
                     changed them: are both databases of the encoding UTF8?"
                ),
            )),
        }
    }

    /// Runs `work`, which may call another store.
    fn run_with<R>(
        &mut self,
        doing: &str,
        mut work: impl AsyncFnMut(&Connection) -> Result<R, Failure>,
    ) -> Result<R, Error> {
        let mut other = None;
        let done = self.run_at(doing, async |connection| match work(connection).await {
            Ok(done) => Ok(Some(done)),
            Err(Failure::Here(error)) => Err(error),
            Err(Failure::There(error)) => {
                other = Some(error);
                connection.execute("rollback").await?;
                Ok(None)
            }
        });
        // This one may have ended its transaction, because the other was silent for long.
        match other {
            Some(error) => Err(error),
            None => done?.ok_or(Error::Closed),
        }
    }

    /// Makes a change of the state of a partition. Returns whether it was as it must be.
    fn set_state(&mut self, doing: &str, statement: &str, way: Way) -> Result<bool, Error> {
        let told = way.told(way.from);
        self.run_unlocked(doing, async |connection| {
            connection.begin().await?;
            let changed = connection.query(statement, &told.parameters()).await?;
            connection.end().await?;
            Ok(!changed.is_empty())
        })
    }

    /// Runs `work` in a transaction, while the partition comes and nobody else moves it.
    fn while_it_comes<R>(
        &mut self,
        way: Way,
        token: i64,
        mut work: impl AsyncFnMut(&Connection) -> Result<R, tokio_postgres::Error>,
    ) -> Result<R, Error> {
        let told = way.told(way.from);
        let done = self.run_at("copy a partition to", async |connection| {
            connection.begin().await?;
            let [partition, other, moves] = told.parameters();
            let parameters = [partition, other, moves, (&token as _, Type::INT8)];
            if connection.query(LOCK_COMING, &parameters).await?.is_empty() {
                connection.execute("rollback").await?;
                return Ok(None);
            }
            let done = work(connection).await?;
            connection.end().await?;
            Ok(Some(done))
        })?;
        done.ok_or_else(|| Error::store("go on with a move", DISPLACED))
    }

    /// Removes the dead letters of a partition that comes that are not these, and returns the names
    /// of those that are missing.
    fn keep_dead(
        &mut self,
        way: Way,
        token: i64,
        names: &[&str],
        died: &[i64],
    ) -> Result<Vec<String>, Error> {
        self.while_it_comes(way, token, async |connection| {
            let parameters: [Parameter<'_>; 3] = [
                (&way.partition, Type::INT4),
                (&names, Type::TEXT_ARRAY),
                (&died, Type::INT8_ARRAY),
            ];
            connection.query(UNSTAGE_DEAD, &parameters).await?;
            let missing = connection.query(MISSING_DEAD, &parameters[1..2]).await?;
            Ok(missing.iter().map(|row| row.get(0)).collect())
        })
    }

    /// Puts these dead letters of a partition that comes.
    fn stage_dead(
        &mut self,
        way: Way,
        token: i64,
        letters: &[tokio_postgres::Row],
    ) -> Result<(), Error> {
        let names: Vec<&str> = letters.iter().map(|row| row.get(0)).collect();
        let deadlines: Vec<i64> = letters.iter().map(|row| row.get(1)).collect();
        let died: Vec<i64> = letters.iter().map(|row| row.get(2)).collect();
        let attempts: Vec<i32> = letters.iter().map(|row| row.get(3)).collect();
        let payloads: Vec<&[u8]> = letters.iter().map(|row| row.get(4)).collect();
        let metadata: Vec<&str> = letters.iter().map(|row| row.get(5)).collect();
        let skipped = self.while_it_comes(way, token, async |connection| {
            let parameters: [Parameter<'_>; 6] = [
                (&names, Type::TEXT_ARRAY),
                (&deadlines, Type::INT8_ARRAY),
                (&died, Type::INT8_ARRAY),
                (&attempts, Type::INT4_ARRAY),
                (&payloads, Type::BYTEA_ARRAY),
                (&metadata, Type::TEXT_ARRAY),
            ];
            connection.query(STAGE_DEAD, &parameters).await?;
            Ok(connection.query(MISSING_DEAD, &parameters[..1]).await?.len())
        })?;
        if skipped == 0 {
            return Ok(());
        }
        // They would be removed where they are.
        let why = format!("a trigger has skipped {skipped} dead letters at {}", self.place());
        Err(Error::store("copy dead letters", why))
    }
}

impl Connection {
    /// Copies some of what has changed.
    async fn copy_changed(
        &self,
        to: &mut PostgresStore,
        way: Way,
        token: i64,
    ) -> Result<Copied, Failure> {
        let parameters: [Parameter<'_>; 3] =
            [(&way.partition, Type::INT4), (&signed(way.moves), Type::INT8), (&SOME, Type::INT8)];
        let taken = self.query(TAKE_CHANGED, &parameters).await?;
        let mut names: Vec<String> = taken.iter().map(|row| row.get(0)).collect();
        let found = taken.first().map_or(0, |row| row.get(1));
        let is_more = SOME <= found || (names.len() as i64) < found;
        names.sort_unstable();
        names.dedup();
        let parameters: [Parameter<'_>; 2] =
            [(&names, Type::TEXT_ARRAY), (&way.partition, Type::INT4)];
        let rows = read(&self.query(CHANGED, &parameters).await?)?;
        to.put_staged(way, token, &rows, &names)?;
        Ok(Copied { count: names.len() as u64, is_more })
    }

    /// Copies some of the dead letters that are not there, and removes those there that are not
    /// here.
    async fn copy_dead(
        &self,
        to: &mut PostgresStore,
        way: Way,
        token: i64,
    ) -> Result<Copied, Failure> {
        let letters = self.query(DEAD, &[(&way.partition, Type::INT4)]).await?;
        let names: Vec<&str> = letters.iter().map(|row| row.get(0)).collect();
        let died: Vec<i64> = letters.iter().map(|row| row.get(1)).collect();
        let missing = to.keep_dead(way, token, &names, &died)?;
        let some = &missing[..missing.len().min(SOME as usize)];
        let letters = match some {
            [] => Vec::new(),
            some => self.query(READ_DEAD, &[(&some, Type::TEXT_ARRAY)]).await?,
        };
        if !letters.is_empty() {
            to.stage_dead(way, token, &letters)?;
        }
        Ok(Copied { count: letters.len() as u64, is_more: letters.len() < missing.len() })
    }
}

/// What went wrong at the store that runs, or at the other.
enum Failure {
    Here(tokio_postgres::Error),
    There(Error),
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Here(error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::There(error)
    }
}

/// Reads rows up to one that has no room in the page.
fn read(rows: &[tokio_postgres::Row]) -> Result<Vec<Row>, Error> {
    let mut read = Vec::with_capacity(rows.len());
    for row in rows {
        match read_row(row, 0) {
            Reading::Row(row) => read.push(row),
            Reading::TooMuch(_) => break,
            Reading::Unreadable(_) => return Err(Error::store("copy a timeout", UNREADABLE)),
        }
    }
    Ok(read)
}

/// Makes the triggers that note the names of a partition that change.
fn triggers(partition: i32) -> String {
    let trigger = |event: &str, condition: &str| {
        format!(
            "create or replace trigger tickwheel_due_{event}_changed after {event} on tickwheel_due
             for each row when ({condition}) execute function tickwheel_note_change();"
        )
    };
    let (new, old) =
        (format!("new.partition = {partition}"), format!("old.partition = {partition}"));
    trigger("insert", &new)
        + &trigger("delete", &old)
        + &trigger("update", &format!("{old} or {new}"))
}

const BEGIN_MOVE: &str = "update tickwheel_partition
     set state = 'moving', other = $2::uuid, moves = moves + 1, yields = null
     where partition = $1 and state = 'here' and moves = $3 and not exists (
       select from tickwheel_partition where state = 'moving')
       and exists (select from tickwheel_meta where format >= 2)
     returning partition";
const YIELD_UNTIL: &str = "update tickwheel_partition
     set yields = clock_timestamp() + $4 * interval '1 second'
     where partition = $1 and state = 'moving' and other = $2::uuid and moves = $3";
/// A slow mover knows of fewer moves.
const EXPECT: &str = "update tickwheel_partition
     set state = 'coming', other = $2::uuid, moves = $3, owner = null
     where partition = $1 and state = 'gone' and moves < $3 and not exists (
       select from tickwheel_due due where due.partition = $1
         and not exists (select from tickwheel_broken b where b.number = due.number))
     returning partition";
const EXPECT_NO_MORE: &str = "update tickwheel_partition set state = 'gone', other = $2::uuid
     where partition = $1 and state = 'coming' and moves < $3 returning partition";
const CLAIM: &str = "update tickwheel_partition set epoch = epoch + 1
     where partition = $1 and state = 'coming' and other = $2::uuid and moves = $3
     returning epoch";
/// The join of [`STAGE`] is one of as many as are put.
const LOCK_COMING: &str =
    "select set_config('enable_hashjoin', 'on', true) from tickwheel_partition
     where partition = $1 and state = 'coming' and other = $2::uuid and moves = $3 and epoch = $4
     for no key update";
/// As callers share it, see `tickwheel_check_home`.
const LOCK_OUT: &str =
    "select pg_advisory_xact_lock(7463813 # 'tickwheel_partition'::regclass::oid::int, $1)";
const LOCK_MOVING: &str = "select from tickwheel_partition
     where partition = $1 and state = 'moving' and other = $2::uuid and moves = $3 for update";
const HAS_OWNER: &str = "select exists (
       select from tickwheel_partition p join tickwheel_worker w on w.worker = p.owner
       where p.partition = $1 and w.until >= (select clock_timestamp()))";
const GO: &str = "update tickwheel_partition
     set state = 'gone', owner = null, moves = moves + 1, epoch = epoch + 1, yields = null
     where partition = $1";
const LOCK_GONE: &str = "select from tickwheel_partition
     where partition = $1 and state = 'gone' for no key update";
const REMOVE: &str = "delete from tickwheel_due where ctid = any(array(
       select d.ctid from tickwheel_due d where d.partition = $1
         and not exists (select from tickwheel_broken b where b.number = d.number)
       order by d.deadline, d.name limit 1000))
     returning partition";
const IS_LEFT: &str = "select exists (select from tickwheel_due d where d.partition = $1
       and not exists (select from tickwheel_broken b where b.number = d.number))";
const REMOVE_DEAD: &str = "delete from tickwheel_dead where name = any(array(
       select name from tickwheel_dead
       where ('x' || left(md5(name), 8))::bit(32)::int & 63 = $1 order by name limit 1000))
     returning name";
/// So many bytes at most. What has no room has no payload, and is in the next.
const PAGE: &str = "select partition, deadline, name, number, attempt,
       case when fits then payload end, case when fits then metadata end
     from (select *, coalesce(sum(octet_length(payload) + octet_length(metadata)) over (
         order by deadline, name rows between unbounded preceding and 1 preceding), 0) < 1048576
         as fits
       from (select * from tickwheel_due d
         where partition = $1 and (deadline, name) > ($2, $3)
           and not exists (select from tickwheel_broken b where b.number = d.number)
         order by deadline, name limit $4) due) page
     order by deadline, name";
/// What is noted for a move that begins meanwhile is not seen by this. Tells whether more pages
/// follow.
const REMOVE_NOTES: &str = "with removed as (
       delete from tickwheel_changed
       where ctid >= format('(%s,0)', $1)::tid and ctid < format('(%s,0)', $1 + $2)::tid
         and (partition, moves) not in (
           select partition, moves from tickwheel_partition where state = 'moving'))
     select ($1 + $2) * current_setting('block_size')::bigint
       < pg_relation_size('tickwheel_changed')";
const COUNT_CHANGED: &str =
    "select count(*) from tickwheel_changed where partition = $1 and moves = $2";
/// Those of so many bytes at most, as [`PAGE`]. Tells how many were looked at.
const TAKE_CHANGED: &str = "with notes as materialized (
       select ctid as place, name from tickwheel_changed
       where partition = $1 and moves = $2 limit $3),
     sized as (
       select n.name, coalesce(sum(octet_length(payload) + octet_length(metadata)) over (
         order by n.name rows between unbounded preceding and 1 preceding), 0) < 1048576 as fits
       from (select distinct name from notes) n left join tickwheel_due d on d.name = n.name)
     delete from tickwheel_changed where ctid = any(array(
       select place from notes join sized on sized.name = notes.name where fits))
     returning name, (select count(*) from notes)";
const CHANGED: &str = "select partition, deadline, name, number, attempt, payload, metadata
     from tickwheel_due d where name = any($1) and partition = $2
       and not exists (select from tickwheel_broken b where b.number = d.number)";
const UNSTAGE: &str = "delete from tickwheel_due
     where name = any($1) and name <> all($2) and partition = $3";
const STAGE: &str = "with staged as (
       insert into tickwheel_due as due (name, deadline, attempt, payload, metadata)
       select * from unnest($1::text[], $2::bigint[], $3::int[], $4::bytea[], $5::text[])
         u(name, deadline, attempt, payload, metadata)
       order by u.name collate \"C\"
       on conflict (name) do update set deadline = excluded.deadline, attempt = excluded.attempt,
         payload = excluded.payload, metadata = excluded.metadata, number = excluded.number,
         put_by = excluded.put_by
       returning due.*)
     select count(*) from staged join unnest($1::text[], $2::bigint[], $4::bytea[], $5::text[])
         u(name, deadline, payload, metadata)
       on staged.name = u.name collate \"C\" and staged.deadline = u.deadline
         and staged.payload = u.payload and staged.metadata = u.metadata
     where staged.partition = $6";
const DEAD: &str = "select name, died from tickwheel_dead
     where ('x' || left(md5(name), 8))::bit(32)::int & 63 = $1 order by name";
/// Of so many bytes at most, as [`PAGE`].
const READ_DEAD: &str = "select name, deadline, died, attempt, payload, metadata
     from (select *, coalesce(sum(octet_length(payload) + octet_length(metadata)) over (
         order by name rows between unbounded preceding and 1 preceding), 0) < 1048576 as fits
       from tickwheel_dead where name = any($1)) dead
     where fits order by name";
const UNSTAGE_DEAD: &str = "delete from tickwheel_dead dead
     where ('x' || left(md5(name), 8))::bit(32)::int & 63 = $1 and not exists (
       select from unnest($2::text[], $3::bigint[]) u(name, died)
       where u.name = dead.name and u.died = dead.died)";
const MISSING_DEAD: &str = "select name from unnest($1::text[]) name
     where not exists (select from tickwheel_dead dead where dead.name = name.name)";
const STAGE_DEAD: &str = "insert into tickwheel_dead
       (name, deadline, died, attempt, payload, metadata)
     select * from unnest(
       $1::text[], $2::bigint[], $3::bigint[], $4::int[], $5::bytea[], $6::text[])
     on conflict (name) do nothing";

/// Timeouts that are copied at once, while others go on.
const ROWS: i64 = 1_000;

/// Pages of notes that are looked at in one transaction: some ten thousand notes.
const PAGES: i64 = 100;

const CALLERS: &str = "transactions that have changed timeouts of the partition are open: pg_locks \
                       says which";
const LOCKED: &str = "somebody else has locked timeouts or a table: pg_locks says who";
const DISPLACED: &str = "another mover goes on with it, or the move was abandoned";
const UNREADABLE: &str = "it cannot be read: `tickwheel-durable check` says which";
