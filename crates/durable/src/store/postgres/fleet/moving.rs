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

use std::time::{Duration, Instant, SystemTime};

use tokio_postgres::types::Type;

use super::patience::{OnThread, Shrinking, Time, Turn, patiently};
use super::{DatabaseId, HomeState, Homes};
use crate::Error;
use crate::block_on::block_on;
use crate::store::postgres::PostgresStore;
use crate::store::postgres::connection::PARTITIONS;
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
    progress: impl FnMut(u64),
) -> Result<MovedPartition, Error> {
    from.remove_old_notes()?;
    block_on(carry_over(&OnThread, from, to, partition, progress))
}

/// As [`move_partition`], between any two sides.
pub(crate) async fn carry_over<S: Side>(
    time: &impl Time,
    from: &mut S,
    to: &mut S,
    partition: u32,
    mut progress: impl FnMut(u64),
) -> Result<MovedPartition, Error> {
    let doing = format!("move partition {partition} from {} to {}", from.place(), to.place());
    let refused = |why: &str| Err(Error::store(&*doing, why));
    if PARTITIONS <= partition {
        return refused("there is none of this number: they are 0 to 63");
    }
    let asked = time.now();
    let (here, there) = (from.clock().await?, to.clock().await?);
    let apart = here.duration_since(there).unwrap_or_else(|error| error.duration());
    if time.now().duration_since(asked) + CLOCKS < apart {
        return refused(&format!(
            "their clocks differ by {apart:?}: what is handed out by one may be cancelled at the other"
        ));
    }
    let (mut moved, mut idle) = (MovedPartition::default(), 0);
    loop {
        let (old, new) = (from.homes().await?, to.homes().await?);
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
            (HomeState::Gone, HomeState::Coming) if is_ours => to.arrive(partition, &old).await?,
            (HomeState::Gone, HomeState::Here | HomeState::Moving) if is_ours => {
                while from.remove_some(way).await? {}
                return Ok(moved);
            }
            (HomeState::Gone, _) => {
                while from.remove_some(way).await? {}
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
                    patiently(time, async |lock| from.begin_move(way, to.place(), lock).await);
                let begun = begun.await?;
                begun.map_err(|why| Error::store(&*doing, why))?
            }
            (HomeState::Moving, _) if !is_ours => {
                return refused(&format!(
                    "it is on its way to {}: end that move first, or abandon it",
                    other()
                ));
            }
            (HomeState::Moving, HomeState::Gone) => {
                while to.remove_some(way).await? {}
                to.expect(way, from.place()).await?
            }
            (HomeState::Moving, HomeState::Coming) if !is_expected => {
                to.expect_no_more(way).await?
            }
            (HomeState::Moving, HomeState::Coming) => {
                let Some(token) = to.claim(way).await? else { continue };
                let mut carrier = Carrier { time, from, to, way, token, moved: &mut moved };
                carrier.carry(&mut progress).await?;
                true
            }
        };
        if !went_on {
            // Somebody else goes on with it.
            idle += 1;
            if IDLE < idle {
                return refused(CONTRADICT);
            }
            time.pause(PAUSE).await;
        }
    }
}

/// Gives up a move that has not taken place yet: the database keeps the partition. Returns whether
/// it was on its way.
///
/// Until a move that was cut off goes on or is given up, its database notes each change of the
/// partition. If that was long, to give it up and to begin anew may take less time.
///
/// # Errors
///
/// [`Error::Store`].
pub fn abandon_move(from: &mut PostgresStore, partition: u32) -> Result<bool, Error> {
    let place = i32::try_from(partition).unwrap_or(-1);
    let stays = from.run_at("abandon a move from", async |connection| {
        connection.begin().await?;
        let stays = connection.query(ABANDON, &[(&place, Type::INT4)]).await?;
        connection.end().await?;
        Ok(!stays.is_empty())
    })?;
    // The next move does it if this fails.
    if let Err(error) = from.remove_old_notes() {
        log::warn!("{error}");
    }
    Ok(stays)
}

/// A move.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    pub(crate) partition: i32,
    pub(crate) from: DatabaseId,
    pub(crate) to: DatabaseId,
    /// As the old database counts.
    pub(crate) moves: u64,
}

/// What was copied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copied {
    pub(crate) count: u64,
    pub(crate) is_more: bool,
}

/// One of the two databases of a move, and what is asked of it. Each call is a transaction. That it
/// was made is not known where it is an error.
pub(crate) trait Side {
    /// Returns what to call the database.
    fn place(&self) -> &str;

    /// Returns the time by the clock of the database.
    async fn clock(&mut self) -> Result<SystemTime, Error>;

    /// Returns where the partitions are, as this database knows it.
    async fn homes(&mut self) -> Result<Homes, Error>;

    /// Says that a partition begins to move, and lets triggers note what changes from now on.
    /// Returns whether it is as the way says.
    async fn begin_move(
        &mut self,
        way: Way,
        name: &str,
        lock: Duration,
    ) -> Result<Turn<bool>, Error>;

    /// Has the owner give the partition back, and nobody take it, for so long.
    async fn yield_until(&mut self, way: Way, time: Option<Duration>) -> Result<(), Error>;

    /// Says that a partition comes, of which nothing is here. Returns whether it is as the way says.
    async fn expect(&mut self, way: Way, name: &str) -> Result<bool, Error>;

    /// Forgets that a partition comes, because that move was abandoned. Returns whether it was one
    /// before this.
    async fn expect_no_more(&mut self, way: Way) -> Result<bool, Error>;

    /// Returns what tells this mover from all before it. `None`: the partition does not come.
    async fn claim(&mut self, way: Way) -> Result<Option<i64>, Error>;

    /// Reads rows after this position, and tells whether they are the last.
    async fn page(&mut self, way: Way, after: &Position) -> Result<(Vec<Row>, bool), Error>;

    /// Puts these rows of a partition that comes, and removes those of these names that are not
    /// among them.
    async fn stage(
        &mut self,
        way: Way,
        token: i64,
        rows: &[Row],
        names: &[String],
    ) -> Result<(), Error>;

    /// Returns how many changes are to be copied.
    async fn changed(&mut self, way: Way) -> Result<u64, Error>;

    /// Copies some of what has changed, [`SOME`] at most.
    async fn catch_up(&mut self, to: &mut Self, way: Way, token: i64) -> Result<Copied, Error>;

    /// Copies some of the dead letters that are not there, and removes those there that are not
    /// here.
    async fn copy_dead(&mut self, to: &mut Self, way: Way, token: i64) -> Result<Copied, Error>;

    /// Lets the move take place, if the partition has no owner. Returns also how many were copied.
    async fn switch(
        &mut self,
        to: &mut Self,
        way: Way,
        token: i64,
        lock: Duration,
    ) -> Result<(Turn<()>, u64), Error>;

    /// Ends the move of a partition to this database that took place at `from`. Returns whether it
    /// was on its way.
    async fn arrive(&mut self, partition: u32, from: &Homes) -> Result<bool, Error>;

    /// Removes some of a partition that is gone. Returns whether there was something.
    async fn remove_some(&mut self, way: Way) -> Result<bool, Error>;
}

/// Carries a partition over.
struct Carrier<'a, S, T> {
    time: &'a T,
    from: &'a mut S,
    to: &'a mut S,
    way: Way,
    /// The epoch at the new database that tells this mover from others.
    token: i64,
    moved: &'a mut MovedPartition,
}

impl<S: Side, T: Time> Carrier<'_, S, T> {
    /// Copies all, and lets the move take place.
    async fn carry(&mut self, progress: &mut impl FnMut(u64)) -> Result<(), Error> {
        let mut after = Position::start();
        loop {
            let (rows, is_last) = self.from.page(self.way, &after).await?;
            if let Some(last) = rows.last() {
                after = last.position();
                self.to.stage(self.way, self.token, &rows, &[]).await?;
                self.moved.timeouts += rows.len() as u64;
                progress(self.moved.timeouts);
            }
            // What is put behind it from now on was noted. There may always be some, because a
            // timeout that is put off again and again is always the last.
            if is_last {
                break;
            }
        }
        while self.copy_dead().await? {}
        let mut why = self.catch_up_all(progress).await?;
        if why.is_ok() {
            let given = patiently(self.time, async |lock| self.give_over(lock, progress).await);
            why = given.await?;
        }
        let (partition, place) = (self.way.partition, self.from.place());
        why.map_err(|why| Error::store(format!("move partition {partition} from {place}"), why))
    }

    /// Copies what has changed, until there is not much more. The inner error: it becomes no less.
    async fn catch_up_all(
        &mut self,
        progress: &mut impl FnMut(u64),
    ) -> Result<Result<(), &'static str>, Error> {
        let mut shrinking = Shrinking::new(u64::MAX, self.time.now());
        loop {
            let left = self.from.changed(self.way).await?;
            if !shrinking.goes_on(left, self.time.now()) {
                return Ok(Err(CHANGES));
            }
            // As many, before they are counted again.
            for _ in 0..=left / SOME as u64 {
                if !self.catch_up().await? {
                    return Ok(Ok(()));
                }
                progress(self.moved.timeouts);
            }
        }
    }

    /// Copies some of what has changed. Returns whether there may be much more.
    async fn catch_up(&mut self) -> Result<bool, Error> {
        let copied = self.from.catch_up(self.to, self.way, self.token).await?;
        self.moved.timeouts += copied.count;
        Ok(copied.is_more)
    }

    /// Copies some of the dead letters, and removes those there that are not here any more. Returns
    /// whether there are more.
    async fn copy_dead(&mut self) -> Result<bool, Error> {
        let copied = self.from.copy_dead(self.to, self.way, self.token).await?;
        self.moved.dead += copied.count;
        Ok(copied.is_more)
    }

    /// Has the worker give the partition back, for a while, and lets the move take place in that
    /// time. If callers are in the middle of a change for long, a worker has it again meanwhile.
    async fn give_over(
        &mut self,
        lock: Duration,
        progress: &mut impl FnMut(u64),
    ) -> Result<Turn<()>, Error> {
        let (began, mut asked) = (self.time.now(), None::<Instant>);
        loop {
            let now = self.time.now();
            if asked.is_none_or(|asked| YIELD / 3 < now.duration_since(asked)) {
                self.from.yield_until(self.way, Some(YIELD)).await?;
                asked = Some(self.time.now());
            }
            // Or callers who change much keep it from its workers.
            while (self.catch_up().await? || self.copy_dead().await?)
                && self.time.now().duration_since(began) < YIELD
            {}
            progress(self.moved.timeouts);
            let (turn, copied) = self.from.switch(self.to, self.way, self.token, lock).await?;
            self.moved.timeouts += copied;
            let waits = self.time.now().duration_since(began);
            match turn {
                Turn::Waits(why) if YIELD < waits && why != OWNER => {
                    self.from.yield_until(self.way, None).await?;
                    return Ok(Turn::Waits(why));
                }
                Turn::Waits(why) if OWNERS < waits => return Ok(Turn::Waits(why)),
                Turn::Waits(_) => self.time.pause(PAUSE).await,
                Turn::Done(()) => return Ok(Turn::Done(())),
            }
        }
    }
}

const ABANDON: &str = "update tickwheel_partition set state = 'here', other = null, yields = null
     where partition = $1 and state = 'moving' returning partition";

const PAUSE: Duration = Duration::from_millis(50);

/// Steps that could not be made.
const IDLE: u32 = 100;

/// So long the partition has no worker, if the mover does not ask for longer. No worker believes a
/// time that is further away.
const YIELD: Duration = Duration::from_secs(10);

/// So long its worker may take to give it back. If it were let off for a while, it would begin anew.
const OWNERS: Duration = Duration::from_secs(300);

/// By so much the clocks of the databases may differ.
const CLOCKS: Duration = Duration::from_secs(1);

/// Changes, and dead letters, that are copied at once, the last while nobody may make any.
pub(super) const SOME: i64 = 256;

pub(super) const CHANGES: &str = "it changes faster than it can be copied";
pub(crate) const OWNER: &str = "its worker does not give it back";
const CONTRADICT: &str =
    "the two contradict each other: was one of them restored, without the other?";
