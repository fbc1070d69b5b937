//! Moving a partition from one database of a fleet to another, while all goes on.
//!
//! Each step is read from what the two databases say, so wherever a move is cut off, the next call
//! goes on:
//!
//! | at the old one | at the new one | step |
//! |---|---|---|
//! | here | gone | begin: from now on triggers note the names that change |
//! | moving | gone | remove what is left of an earlier time, expect it |
//! | moving | coming | carry it: copy all, and what changes meanwhile; its worker gives it back; while no caller is in the middle of a change, copy the last: it is gone |
//! | gone | coming | it is here |
//! | gone | here | remove what was copied |
//!
//! Of several movers the last has it: it raises the epoch at the new database before it reads
//! anything, and what an earlier one has read is refused there.

use std::thread;
use std::time::{Duration, Instant};

use tokio_postgres::types::Type;

use super::join::note_place;
use super::patience::{Shrinking, Turn, is_locked, patiently, while_locked};
use super::{DatabaseId, HomeState};
use crate::Error;
use crate::store::postgres::PostgresStore;
use crate::store::postgres::connection::{Connection, PARTITIONS, Parameter, signed, unsigned};
use crate::store::postgres::rows::{Reading, read_row};
use crate::store::{Position, Row};

/// What [`move_partition`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MovedPartition {
    /// The timeouts that were copied, and those that were copied again because they had changed.
    pub timeouts: u64,
    /// The dead letters that were copied.
    pub dead: u64,
}

/// Moves a partition from one database of a fleet to another, while workers and callers go on.
/// `progress` is called now and then with the number of timeouts that were copied.
///
/// What is due in the partition waits for no longer than after the death of a worker. Callers who
/// ask the old database are refused from then on, and told where to ask.
///
/// Wherever this ends, by an error, a kill or a lost server, each timeout is in one of the two, the
/// partition has a worker again after a lease, and the next call goes on.
///
/// To begin, it waits until all transactions have ended that have changed timeouts, and for the
/// moment in which it takes place, those that have changed some of the partition. It waits in short
/// turns, so that it holds up nobody else, and for five minutes. It ends too if for so long the
/// changes that are left to copy become no fewer. The user must be the owner of the tables, and the
/// servers PostgreSQL 14 or newer, with clocks that differ by less than a second.
///
/// Damaged timeouts stay where they are.
///
/// # Errors
///
/// The databases', and if the old one does not have the partition, another move is under way there,
/// or the new one has not [joined](crate::join_fleet).
pub fn move_partition(
    from: &mut PostgresStore,
    to: &mut PostgresStore,
    partition: u32,
    mut progress: impl FnMut(u64),
) -> Result<MovedPartition, Error> {
    let doing = format!("move partition {partition} from {} to {}", from.place(), to.place());
    let refused = |why: &str| Err(Error::store(&*doing, why));
    if PARTITIONS <= partition {
        return refused("there is none of this number: they are 0 to 63");
    }
    let asked = Instant::now();
    let (here, there) = (from.now()?, to.now()?);
    let apart = here.duration_since(there).unwrap_or_else(|error| error.duration());
    if asked.elapsed() + CLOCKS < apart {
        return refused(&format!(
            "their clocks differ by {apart:?}: what is handed out by one may be cancelled at the other"
        ));
    }
    let (mut moved, mut idle) = (MovedPartition::default(), 0);
    loop {
        let (old, new) = (while_locked(|| from.homes())?, while_locked(|| to.homes())?);
        if old.id == new.id {
            return refused("they are one database, or one is a copy of the other");
        }
        let (here, there) =
            (old.partitions[partition as usize], new.partitions[partition as usize]);
        let is_ours = here.other == Some(new.id);
        let way = Way { partition: partition as i32, from: old.id, to: new.id, moves: here.moves };
        let other = || {
            let place = here.other.and_then(|other| old.places.get(&other));
            place.map_or("another database", |it| it)
        };
        let is_expected = there.state == HomeState::Coming
            && there.other == Some(old.id)
            && there.moves == here.moves;
        let went_on = match (here.state, there.state) {
            (HomeState::Gone, HomeState::Coming) if is_ours => to.arrive(partition, &old)?,
            (HomeState::Gone, HomeState::Here | HomeState::Moving) if is_ours => {
                from.remove_all(way)?;
                return Ok(moved);
            }
            (HomeState::Gone, _) => {
                from.remove_all(way)?;
                return refused(&format!("{} has it", other()));
            }
            (HomeState::Coming, _) => {
                return refused(&format!("it is on its way there, from {}", other()));
            }
            (_, HomeState::Here | HomeState::Moving) => {
                return refused("both have it: let the new one join the fleet first");
            }
            (HomeState::Here, _) => {
                let moving = old.partitions.iter().position(|it| it.state == HomeState::Moving);
                if let Some(other) = moving {
                    return refused(&format!(
                        "partition {other} is on its way: end that move first, or abandon it"
                    ));
                }
                let begun =
                    patiently(|lock| while_locked(|| from.begin_move(way, to.place(), lock)))?;
                begun.map_err(|why| Error::store(&*doing, why))?
            }
            (HomeState::Moving, _) if !is_ours => {
                return refused(&format!(
                    "it is on its way to {}: end that move first, or abandon it",
                    other()
                ));
            }
            (HomeState::Moving, HomeState::Gone) => {
                to.remove_all(way)?;
                to.expect(way, from.place())?
            }
            (HomeState::Moving, HomeState::Coming) if !is_expected => to.expect_no_more(way)?,
            (HomeState::Moving, HomeState::Coming) => {
                let Some(token) = to.claim(way)? else { continue };
                let mut carrier = Carrier { from, to, way, token, moved: &mut moved };
                carrier.carry(&mut progress)?;
                true
            }
        };
        if !went_on {
            // Somebody else goes on with it.
            idle += 1;
            if IDLE < idle {
                return refused(CONTRADICT);
            }
            thread::sleep(PAUSE);
        }
    }
}

/// Gives up a move that has not taken place yet: the database keeps the partition. Returns whether
/// it was on its way.
///
/// # Errors
///
/// [`Error::Store`].
pub fn abandon_move(from: &mut PostgresStore, partition: u32) -> Result<bool, Error> {
    let place = i32::try_from(partition).unwrap_or(-1);
    from.run_at("abandon a move from", async |connection| {
        connection.begin().await?;
        let stays = connection.query(ABANDON, &[(&place, Type::INT4)]).await?;
        connection.end().await?;
        Ok(!stays.is_empty())
    })
}

/// A move.
#[derive(Clone, Copy)]
struct Way {
    partition: i32,
    from: DatabaseId,
    to: DatabaseId,
    /// As the old database counts.
    moves: u64,
}

/// Carries a partition over.
struct Carrier<'a> {
    from: &'a mut PostgresStore,
    to: &'a mut PostgresStore,
    way: Way,
    /// The epoch at the new database that tells this mover from others.
    token: i64,
    moved: &'a mut MovedPartition,
}

impl Carrier<'_> {
    /// Copies all, and lets the move take place.
    fn carry(&mut self, progress: &mut impl FnMut(u64)) -> Result<(), Error> {
        let mut after = Position::start();
        loop {
            let (rows, is_last) = self.from.page(self.way, &after)?;
            if let Some(last) = rows.last() {
                after = last.position();
                while_locked(|| self.to.stage(self.way, self.token, &rows, &[]))?;
                self.moved.timeouts += rows.len() as u64;
                progress(self.moved.timeouts);
            }
            // What is put behind it from now on was noted. There may always be some, because a
            // timeout that is put off again and again is always the last.
            if is_last {
                break;
            }
        }
        while self.copy_dead()? {}
        let mut why = self.catch_up_all(progress)?;
        if why.is_ok() {
            why = patiently(|lock| self.give_over(lock, progress))?;
        }
        let (partition, place) = (self.way.partition, self.from.place());
        why.map_err(|why| Error::store(format!("move partition {partition} from {place}"), why))
    }

    /// Copies what has changed, until there is not much more. The inner error: it becomes no less.
    fn catch_up_all(
        &mut self,
        progress: &mut impl FnMut(u64),
    ) -> Result<Result<(), &'static str>, Error> {
        let mut shrinking = Shrinking::new(u64::MAX, Instant::now());
        loop {
            let left = self.from.changed(self.way)?;
            if !shrinking.goes_on(left, Instant::now()) {
                return Ok(Err(CHANGES));
            }
            // As many, before they are counted again.
            for _ in 0..=left / SOME as u64 {
                if !self.catch_up()? {
                    return Ok(Ok(()));
                }
                progress(self.moved.timeouts);
            }
        }
    }

    /// Copies some of what has changed. Returns whether there may be much more.
    fn catch_up(&mut self) -> Result<bool, Error> {
        let (to, way, token) = (&mut *self.to, self.way, self.token);
        let copied = while_locked(|| {
            self.from.run_with("copy what has changed in", async |connection| {
                connection.begin().await?;
                let copied = connection.copy_changed(to, way, token).await?;
                // What was committed there and not here is copied once more.
                connection.end().await?;
                Ok(copied)
            })
        })?;
        self.moved.timeouts += copied.count;
        Ok(copied.is_more)
    }

    /// Copies some of the dead letters, and removes those there that are not here any more. Returns
    /// whether there are more.
    fn copy_dead(&mut self) -> Result<bool, Error> {
        let (to, way, token) = (&mut *self.to, self.way, self.token);
        let copied = while_locked(|| {
            self.from.run_with("copy dead letters of", async |connection| {
                connection.begin().await?;
                let copied = connection.copy_dead(to, way, token).await?;
                connection.end().await?;
                Ok(copied)
            })
        })?;
        self.moved.dead += copied.count;
        Ok(copied.is_more)
    }

    /// Has the worker give the partition back, for a while, and lets the move take place in that
    /// time. If callers are in the middle of a change for long, a worker has it again meanwhile.
    fn give_over(
        &mut self,
        lock: Duration,
        progress: &mut impl FnMut(u64),
    ) -> Result<Turn<()>, Error> {
        let (began, mut asked) = (Instant::now(), None::<Instant>);
        loop {
            if asked.is_none_or(|asked| YIELD / 3 < asked.elapsed()) {
                self.from.yield_until(self.way, Some(YIELD))?;
                asked = Some(Instant::now());
            }
            // Or callers who change much keep it from its workers.
            while (self.catch_up()? || self.copy_dead()?) && began.elapsed() < YIELD {}
            progress(self.moved.timeouts);
            match self.switch(lock)? {
                Turn::Waits(why) if YIELD < began.elapsed() && why != OWNER => {
                    self.from.yield_until(self.way, None)?;
                    return Ok(Turn::Waits(why));
                }
                Turn::Waits(why) if OWNERS < began.elapsed() => return Ok(Turn::Waits(why)),
                Turn::Waits(_) => thread::sleep(PAUSE),
                Turn::Done(()) => return Ok(Turn::Done(())),
            }
        }
    }

    /// Lets the move take place, if the partition has no owner.
    fn switch(&mut self, lock: Duration) -> Result<Turn<()>, Error> {
        let (to, way, token) = (&mut *self.to, self.way, self.token);
        let switched = self.from.run_with("move a partition from", async |connection| {
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
            let (other, moves) = (way.to.to_string(), signed(way.moves));
            let parameters = [
                (&way.partition as _, Type::INT4),
                (&other as _, Type::TEXT),
                (&moves as _, Type::INT8),
            ];
            let locked = connection.query(LOCK_MOVING, &parameters).await;
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
        let turn = match switched {
            Err(error) if is_locked(&error) => return Ok(Turn::Waits(LOCKED)),
            switched => switched?,
        };
        self.moved.timeouts += turn.1;
        Ok(turn.0)
    }
}

impl PostgresStore {
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

    /// Runs `work` as [`run_at`](Self::run_at) does, and waits for locks.
    fn run_unlocked<R>(
        &mut self,
        doing: &str,
        mut work: impl AsyncFnMut(&Connection) -> Result<R, tokio_postgres::Error>,
    ) -> Result<R, Error> {
        while_locked(|| self.run_at(doing, &mut work))
    }

    /// Makes a change of the state of a partition. Returns whether it was as it must be.
    fn set_state(
        &mut self,
        doing: &str,
        statement: &str,
        way: Way,
        other: DatabaseId,
    ) -> Result<bool, Error> {
        let (other, moves) = (other.to_string(), signed(way.moves));
        self.run_unlocked(doing, async |connection| {
            connection.begin().await?;
            let parameters = [
                (&way.partition as _, Type::INT4),
                (&other as _, Type::TEXT),
                (&moves as _, Type::INT8),
            ];
            let changed = connection.query(statement, &parameters).await?;
            connection.end().await?;
            Ok(!changed.is_empty())
        })
    }

    /// Says that a partition begins to move, and lets triggers note what changes from now on.
    fn begin_move(&mut self, way: Way, name: &str, lock: Duration) -> Result<Turn<bool>, Error> {
        let (other, moves) = (way.to.to_string(), signed(way.moves));
        self.run_at("begin a move from", async |connection| {
            if !connection.begin_locked(lock, &triggers(way.partition)).await? {
                return Ok(Turn::Waits(connection.waits_for().await?));
            }
            note_place(connection, &other, name).await?;
            connection.execute("delete from tickwheel_changed").await?;
            let parameters = [
                (&way.partition as _, Type::INT4),
                (&other as _, Type::TEXT),
                (&moves as _, Type::INT8),
            ];
            let began = connection.query(BEGIN_MOVE, &parameters).await?;
            if began.is_empty() {
                connection.execute("rollback").await?;
            } else {
                connection.end().await?;
            }
            Ok(Turn::Done(!began.is_empty()))
        })
    }

    /// Has the owner give the partition back, and nobody take it, for so long.
    fn yield_until(&mut self, way: Way, time: Option<Duration>) -> Result<(), Error> {
        let seconds = time.map(|time| time.as_secs_f64());
        let (other, moves) = (way.to.to_string(), signed(way.moves));
        self.run_unlocked("let a partition be given back in", async |connection| {
            connection.begin().await?;
            let parameters = [
                (&way.partition as _, Type::INT4),
                (&other as _, Type::TEXT),
                (&moves as _, Type::INT8),
                (&seconds as _, Type::FLOAT8),
            ];
            connection.query(YIELD_UNTIL, &parameters).await?;
            connection.end().await
        })
    }

    /// Says that a partition comes, of which nothing is here.
    fn expect(&mut self, way: Way, name: &str) -> Result<bool, Error> {
        let other = way.from.to_string();
        self.run_unlocked("note a database in", async |connection| {
            connection.begin().await?;
            note_place(connection, &other, name).await?;
            connection.end().await
        })?;
        self.set_state("expect a partition in", EXPECT, way, way.from)
    }

    /// Forgets that a partition comes, because that move was abandoned.
    fn expect_no_more(&mut self, way: Way) -> Result<bool, Error> {
        self.set_state("forget a move to", EXPECT_NO_MORE, way, way.from)
    }

    /// Returns what tells this mover from all before it. `None`: the partition does not come.
    fn claim(&mut self, way: Way) -> Result<Option<i64>, Error> {
        let (other, moves) = (way.from.to_string(), signed(way.moves));
        self.run_unlocked("expect a partition in", async |connection| {
            connection.begin().await?;
            let parameters = [
                (&way.partition as _, Type::INT4),
                (&other as _, Type::TEXT),
                (&moves as _, Type::INT8),
            ];
            let claimed = connection.query(CLAIM, &parameters).await?;
            connection.end().await?;
            Ok(claimed.first().map(|row| row.get(0)))
        })
    }

    /// Removes all of a partition that is gone.
    fn remove_all(&mut self, way: Way) -> Result<(), Error> {
        loop {
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
            if removed == 0 {
                return Ok(());
            }
        }
    }

    /// Returns how many changes are to be copied.
    fn changed(&mut self, way: Way) -> Result<u64, Error> {
        self.run_unlocked("count what has changed in", async |connection| {
            connection.begin().await?;
            let parameters: [Parameter<'_>; 2] =
                [(&way.partition, Type::INT4), (&signed(way.moves), Type::INT8)];
            let count = connection.query_one(COUNT_CHANGED, &parameters).await?.get(0);
            connection.end().await?;
            Ok(unsigned(count))
        })
    }

    /// Reads rows after this position, and tells whether they are the last.
    fn page(&mut self, way: Way, after: &Position) -> Result<(Vec<Row>, bool), Error> {
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

    /// Runs `work` in a transaction, while the partition comes and nobody else moves it.
    fn while_it_comes<R>(
        &mut self,
        way: Way,
        token: i64,
        mut work: impl AsyncFnMut(&Connection) -> Result<R, tokio_postgres::Error>,
    ) -> Result<R, Error> {
        let (other, moves) = (way.from.to_string(), signed(way.moves));
        let done = self.run_at("copy a partition to", async |connection| {
            connection.begin().await?;
            let parameters = [
                (&way.partition as _, Type::INT4),
                (&other as _, Type::TEXT),
                (&moves as _, Type::INT8),
                (&token as _, Type::INT8),
            ];
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

    /// Puts these rows of a partition that comes, and removes those of these names that are not
    /// among them.
    fn stage(&mut self, way: Way, token: i64, rows: &[Row], names: &[String]) -> Result<(), Error> {
        let named: Vec<&str> = rows.iter().map(|row| &*row.name).collect();
        let deadlines: Vec<i64> = rows.iter().map(|row| signed(row.deadline)).collect();
        let attempt = |row: &Row| i32::try_from(row.attempt).unwrap_or(i32::MAX);
        let attempts: Vec<i32> = rows.iter().map(attempt).collect();
        let payloads: Vec<&[u8]> = rows.iter().map(|row| &*row.payload).collect();
        let staged = self.while_it_comes(way, token, async |connection| {
            let parameters: [Parameter<'_>; 3] = [
                (&names, Type::TEXT_ARRAY),
                (&named, Type::TEXT_ARRAY),
                (&way.partition, Type::INT4),
            ];
            connection.query(UNSTAGE, &parameters).await?;
            let parameters: [Parameter<'_>; 5] = [
                (&named, Type::TEXT_ARRAY),
                (&deadlines, Type::INT8_ARRAY),
                (&attempts, Type::INT4_ARRAY),
                (&payloads, Type::BYTEA_ARRAY),
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
        self.while_it_comes(way, token, async |connection| {
            let parameters: [Parameter<'_>; 5] = [
                (&names, Type::TEXT_ARRAY),
                (&deadlines, Type::INT8_ARRAY),
                (&died, Type::INT8_ARRAY),
                (&attempts, Type::INT4_ARRAY),
                (&payloads, Type::BYTEA_ARRAY),
            ];
            connection.query(STAGE_DEAD, &parameters).await?;
            Ok(())
        })
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
        let names = self.query(TAKE_CHANGED, &parameters).await?;
        let mut names: Vec<String> = names.iter().map(|row| row.get(0)).collect();
        let is_more = SOME <= names.len() as i64;
        names.sort_unstable();
        names.dedup();
        let parameters: [Parameter<'_>; 2] =
            [(&names, Type::TEXT_ARRAY), (&way.partition, Type::INT4)];
        let rows = read(&self.query(CHANGED, &parameters).await?)?;
        to.stage(way, token, &rows, &names)?;
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
        if !some.is_empty() {
            let letters = self.query(READ_DEAD, &[(&some, Type::TEXT_ARRAY)]).await?;
            to.stage_dead(way, token, &letters)?;
        }
        Ok(Copied { count: some.len() as u64, is_more: some.len() < missing.len() })
    }
}

/// What was copied.
struct Copied {
    count: u64,
    is_more: bool,
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
const ABANDON: &str = "update tickwheel_partition set state = 'here', other = null, yields = null
     where partition = $1 and state = 'moving' returning partition";
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
       case when sum(octet_length(payload)) over (order by deadline, name rows unbounded preceding)
         - octet_length(payload) < 1048576 then payload end
     from (select * from tickwheel_due d
       where partition = $1 and (deadline, name) > ($2, $3)
         and not exists (select from tickwheel_broken b where b.number = d.number)
       order by deadline, name limit $4) due
     order by deadline, name";
const COUNT_CHANGED: &str =
    "select count(*) from tickwheel_changed where partition = $1 and moves = $2";
const TAKE_CHANGED: &str = "delete from tickwheel_changed where ctid = any(array(
       select ctid from tickwheel_changed where partition = $1 and moves = $2 limit $3))
     returning name";
const CHANGED: &str = "select partition, deadline, name, number, attempt, payload
     from tickwheel_due d where name = any($1) and partition = $2
       and not exists (select from tickwheel_broken b where b.number = d.number)";
const UNSTAGE: &str = "delete from tickwheel_due
     where name = any($1) and name <> all($2) and partition = $3";
const STAGE: &str = "with staged as (
       insert into tickwheel_due as due (name, deadline, attempt, payload)
       select * from unnest($1::text[], $2::bigint[], $3::int[], $4::bytea[])
         u(name, deadline, attempt, payload)
       order by u.name collate \"C\"
       on conflict (name) do update set deadline = excluded.deadline, attempt = excluded.attempt,
         payload = excluded.payload, number = excluded.number, put_by = excluded.put_by
       returning due.*)
     select count(*) from staged join unnest($1::text[], $2::bigint[], $4::bytea[])
         u(name, deadline, payload)
       on staged.name = u.name collate \"C\" and staged.deadline = u.deadline
         and staged.payload = u.payload
     where staged.partition = $5";
const DEAD: &str = "select name, died from tickwheel_dead
     where ('x' || left(md5(name), 8))::bit(32)::int & 63 = $1 order by name";
const READ_DEAD: &str = "select name, deadline, died, attempt, payload from tickwheel_dead
     where name = any($1) order by name";
const UNSTAGE_DEAD: &str = "delete from tickwheel_dead dead
     where ('x' || left(md5(name), 8))::bit(32)::int & 63 = $1 and not exists (
       select from unnest($2::text[], $3::bigint[]) u(name, died)
       where u.name = dead.name and u.died = dead.died)";
const MISSING_DEAD: &str = "select name from unnest($1::text[]) name
     where not exists (select from tickwheel_dead dead where dead.name = name.name)";
const STAGE_DEAD: &str = "insert into tickwheel_dead (name, deadline, died, attempt, payload)
     select * from unnest($1::text[], $2::bigint[], $3::bigint[], $4::int[], $5::bytea[])
     on conflict (name) do nothing";

/// Timeouts that are copied at once, while others go on.
const ROWS: i64 = 1_000;

/// Changes, and dead letters, that are copied at once, the last while nobody may make any.
const SOME: i64 = 256;

const PAUSE: Duration = Duration::from_millis(50);

/// Steps that could not be made.
const IDLE: u32 = 100;

/// So long the partition has no worker, if the mover does not ask for longer.
const YIELD: Duration = Duration::from_secs(10);

/// So long its worker may take to give it back. If it were let off for a while, it would begin anew.
const OWNERS: Duration = Duration::from_secs(300);

/// By so much the clocks of the databases may differ.
const CLOCKS: Duration = Duration::from_secs(1);

const CALLERS: &str = "transactions that have changed timeouts of the partition are open: pg_locks \
                       says which";
const CHANGES: &str = "it changes faster than it can be copied";
const LOCKED: &str = "somebody else has locked timeouts or a table: pg_locks says who";
const OWNER: &str = "its worker does not give it back";
const CONTRADICT: &str =
    "the two contradict each other: was one of them restored, without the other?";
const DISPLACED: &str = "another mover goes on with it, or the move was abandoned";
const UNREADABLE: &str = "it cannot be read: `tickwheel-durable check` says which";
