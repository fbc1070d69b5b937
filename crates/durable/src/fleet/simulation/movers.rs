//! Movers, which are the real ones, on databases in virtual time; and programs that use SQL.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::Part;
use super::account::Done;
use super::database::{Database, Kept};
use super::run::Runtime;
use super::world::{Party, World};
use crate::Error;
use crate::fleet::map::partition;
use crate::store::postgres::{Copied, Homes, OWNER, Side, Time, Turn, Way, carry_over};
use crate::store::{Change, Position, Row};

/// A mover's side of a move.
struct Remote {
    world: Rc<World>,
    party: Party,
    at: usize,
}

/// The time of a mover.
struct Virtual(Rc<Runtime>);

impl Time for Virtual {
    fn now(&self) -> Instant {
        self.0.clock.now()
    }

    async fn pause(&self, pause: Duration) {
        self.0.sleep(pause.as_millis() as u64).await;
    }
}

impl World {
    /// Moves a partition, as the command does.
    pub(super) async fn carry(
        self: &Rc<Self>,
        from: usize,
        to: usize,
        partition: u32,
        mover: u64,
    ) -> Result<(), Error> {
        let side = |at| Remote { world: Rc::clone(self), party: Party::Mover(mover), at };
        let time = Virtual(Rc::clone(&self.runtime));
        let (mut from, mut to) = (side(from), side(to));
        carry_over(&time, &mut from, &mut to, partition, |_| ()).await?;
        self.account.borrow_mut().told.moved += 1;
        Ok(())
    }

    /// A new database joins, by what a member has answered some time ago.
    pub(super) async fn join(self: Rc<Self>, at: usize) {
        let waits = self.random(self.size.lasts / 3);
        self.runtime.sleep(waits).await;
        let party = Party::Mover(0);
        loop {
            let member = self.random((self.size.databases - self.size.joins) as u64) as usize;
            if self.travel(party, member, self.now() + CALL).await.is_err() {
                continue;
            }
            let map = self.at(member, Database::homes);
            let waits = self.random(self.size.lease);
            self.runtime.sleep(waits).await;
            self.at(at, |it| it.join(&map));
            self.account.borrow_mut().told.joined += 1;
            return;
        }
    }

    /// A program puts or cancels by SQL at a database that may not have the name.
    pub(super) async fn program(self: &Rc<Self>, at: usize, cancels: Option<Arc<str>>) {
        if self.travel(Party::Program, at, self.now()).await.is_err() {
            return;
        }
        let (change, call) = match &cancels {
            Some(name) => (Change::cancel(name), Done::Cancel),
            None => loop {
                let name: Arc<str> = format!("sql/{}", self.random(u64::MAX)).into();
                if partition(&name) < self.size.hot {
                    break self.put(&name);
                }
            },
        };
        let place = partition(&change.name) as u32;
        let transaction = self.at(at, |it| it.begin(2_000));
        let is_here = (cancels.is_none() || self.is_kept(at, transaction, place).await)
            && self.touch(at, transaction, &change.name).await;
        let works = self.random(20);
        self.runtime.sleep(works).await;
        let is_kept = self.without == Some(Part::CheckAfter) && cancels.is_none()
            || is_here && self.is_kept(at, transaction, place).await;
        let works = self.random(20);
        self.runtime.sleep(works).await;
        self.at(at, |it| {
            if !is_kept {
                return it.roll_back(transaction);
            }
            if it.commit(transaction).is_some() {
                it.tables.change(&change);
                match call {
                    Done::Put(number) => self.account.borrow_mut().put(number),
                    _ => self.account.borrow_mut().cancel(&change.name),
                }
            }
        });
    }

    async fn is_kept(self: &Rc<Self>, at: usize, transaction: u64, partition: u32) -> bool {
        self.keep(at, transaction, partition).await == Kept::Here
    }
}

impl Remote {
    /// Does this at the database, when it can be done.
    async fn when<R>(
        &self,
        mut act: impl FnMut(&mut Database) -> Option<R>,
        waits: u64,
    ) -> Result<Option<R>, Error> {
        let world = &self.world;
        if world.one_in(100) {
            // It does nothing for a while.
            let pause = world.random(world.size.lease * 2);
            world.runtime.sleep(pause).await;
        }
        let gives_up = world.now() + CALL;
        world.travel(self.party, self.at, gives_up).await?;
        let server = world.at(self.at, |it| it.server);
        let until = world.now() + waits;
        let done = loop {
            match world.at(self.at, &mut act) {
                Some(done) => break Some(done),
                None if until <= world.now() => break None,
                None => world.runtime.sleep(10).await,
            }
        };
        world.travel(self.party, self.at, gives_up).await?;
        match world.at(self.at, |it| it.server) == server {
            true => Ok(done),
            false => Err(Error::store("hear", "the server is gone")),
        }
    }

    async fn ask<R>(&self, mut act: impl FnMut(&mut Database) -> R) -> Result<R, Error> {
        Ok(self.when(|it| Some(act(it)), 0).await?.expect("it waits for nothing"))
    }

    /// As [`when`](Self::when), for as long as a call may wait.
    async fn wait<R>(&self, act: impl FnMut(&mut Database) -> Option<R>) -> Result<R, Error> {
        self.when(act, CALL / 30).await?.ok_or_else(|| Error::store("lock it", "somebody else has"))
    }

    /// Copies some of the notes in a transaction. `None`: another mover has some.
    async fn copy_changed(
        &self,
        to: &mut Self,
        transaction: u64,
        way: Way,
        token: i64,
    ) -> Result<Option<Copied>, Error> {
        let Some(taken) = self.ask(|it| it.take_changed(transaction, way)).await? else {
            return Ok(None);
        };
        to.stage(way, token, &taken.rows, &taken.names).await?;
        Ok(Some(Copied { count: taken.names.len() as u64, is_more: taken.is_more }))
    }

    /// Ends a transaction that is no use.
    async fn roll_back(&self, transaction: u64) -> Result<(), Error> {
        self.ask(|it| it.roll_back(transaction)).await
    }

    async fn switch_in(
        &self,
        to: &mut Self,
        transaction: u64,
        way: Way,
        token: i64,
        lock: u64,
    ) -> Result<(Turn<()>, u64), Error> {
        let place = way.partition as u32;
        let locked = |it: &mut Database| it.lock_out(transaction, place).then_some(());
        if self.when(locked, lock).await?.is_none() {
            return Ok((Turn::Waits("callers"), 0));
        }
        let locked = |it: &mut Database| match it.lock_moving(transaction, way) {
            Ok(true) => Some(Ok(())),
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        };
        match self.when(locked, lock).await? {
            Some(locked) => locked?,
            None => return Ok((Turn::Waits(OWNER), 0)),
        }
        if self.ask(|it| it.has_owner(place)).await? {
            return Ok((Turn::Waits(OWNER), 0));
        }
        let Some(copied) = self.copy_changed(to, transaction, way, token).await? else {
            return Ok((Turn::Waits("changes"), 0));
        };
        if copied.is_more || self.copy_letters(to, way, token).await?.is_more {
            return Ok((Turn::Waits("changes"), 0));
        }
        match self.ask(|it| it.go(transaction, way)).await? {
            true => Ok((Turn::Done(()), copied.count)),
            false => Err(Error::store("commit", "the server has ended it")),
        }
    }

    async fn copy_letters(&self, to: &mut Self, way: Way, token: i64) -> Result<Copied, Error> {
        let letters = self.ask(|it| it.letters(way.partition as u32)).await?;
        let missing = to.ask(|it| it.keep_dead(way, token, &letters)).await??;
        let some = &missing[..missing.len().min(3)];
        if !some.is_empty() {
            let read = self.ask(|it| it.read_dead(some)).await?;
            to.ask(|it| it.stage_dead(way, token, &read)).await??;
        }
        Ok(Copied { count: some.len() as u64, is_more: some.len() < missing.len() })
    }
}

impl Side for Remote {
    fn place(&self) -> &str {
        "a database"
    }

    async fn clock(&mut self) -> Result<SystemTime, Error> {
        let clock = self.ask(|it| it.clock()).await?;
        Ok(UNIX_EPOCH + Duration::from_millis(clock))
    }

    async fn homes(&mut self) -> Result<Homes, Error> {
        Ok((*self.ask(Database::homes).await?).clone())
    }

    async fn begin_move(&mut self, way: Way, _: &str, _: Duration) -> Result<Turn<bool>, Error> {
        self.ask(|it| it.begin_move(way)).await
    }

    async fn yield_until(&mut self, way: Way, time: Option<Duration>) -> Result<(), Error> {
        self.ask(|it| it.yield_until(way, time)).await
    }

    async fn expect(&mut self, way: Way, _: &str) -> Result<bool, Error> {
        self.ask(|it| it.expect(way)).await
    }

    async fn expect_no_more(&mut self, way: Way) -> Result<bool, Error> {
        self.ask(|it| it.expect_no_more(way)).await
    }

    async fn claim(&mut self, way: Way) -> Result<Option<i64>, Error> {
        self.ask(|it| it.claim(way)).await
    }

    async fn page(&mut self, way: Way, after: &Position) -> Result<(Vec<Row>, bool), Error> {
        self.ask(|it| it.page(way, after)).await
    }

    async fn stage(
        &mut self,
        way: Way,
        token: i64,
        rows: &[Row],
        names: &[String],
    ) -> Result<(), Error> {
        self.wait(|it| it.stage(way, token, rows, names)).await?
    }

    async fn changed(&mut self, way: Way) -> Result<u64, Error> {
        self.ask(|it| it.changed(way)).await
    }

    async fn catch_up(&mut self, to: &mut Self, way: Way, token: i64) -> Result<Copied, Error> {
        let transaction = self.ask(|it| it.begin(CALL)).await?;
        match self.copy_changed(to, transaction, way, token).await {
            Ok(Some(copied)) => {
                let ended = || Error::store("commit", "the server has ended it");
                self.ask(|it| it.commit(transaction)).await?.ok_or_else(ended)?;
                Ok(copied)
            }
            Ok(None) => {
                self.roll_back(transaction).await?;
                Err(Error::store("copy what has changed", "somebody else has locked it"))
            }
            Err(error) => {
                self.roll_back(transaction).await?;
                Err(error)
            }
        }
    }

    async fn copy_dead(&mut self, to: &mut Self, way: Way, token: i64) -> Result<Copied, Error> {
        self.copy_letters(to, way, token).await
    }

    async fn switch(
        &mut self,
        to: &mut Self,
        way: Way,
        token: i64,
        lock: Duration,
    ) -> Result<(Turn<()>, u64), Error> {
        let transaction = self.ask(|it| it.begin(2_000)).await?;
        let lock = lock.as_millis() as u64;
        let turn = self.switch_in(to, transaction, way, token, lock).await;
        if !matches!(turn, Ok((Turn::Done(()), _))) {
            self.roll_back(transaction).await?;
        }
        turn
    }

    async fn arrive(&mut self, partition: u32, from: &Homes) -> Result<bool, Error> {
        self.ask(|it| it.arrive(partition, from)).await
    }

    async fn remove_some(&mut self, way: Way) -> Result<bool, Error> {
        self.wait(|it| it.remove_some(way)).await
    }
}

/// How long a call of a mover may take.
const CALL: u64 = 3_000;
