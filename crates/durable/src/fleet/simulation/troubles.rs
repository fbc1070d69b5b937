//! What happens to a fleet, and how it ends.

use std::cell::Cell;
use std::rc::Rc;

use super::database::CLOCK;
use super::world::{Party, SETTLES, World};
use crate::Error;
use crate::fleet::map::PARTITIONS;
use crate::store::postgres::HomeState;

impl World {
    /// Lets clients, programs and troubles begin.
    pub(super) fn begin_all(self: &Rc<Self>) {
        (0..self.size.clients).for_each(|process| self.open(process));
        let world = Rc::clone(self);
        self.runtime.spawn(async move { world.programs().await });
        let world = Rc::clone(self);
        self.runtime.spawn(async move { world.troubles().await });
        for at in self.size.databases - self.size.joins..self.size.databases {
            self.runtime.spawn(Rc::clone(self).join(at));
        }
    }

    async fn programs(self: &Rc<Self>) {
        let mut asked = 0;
        while !self.is_quiet.get() {
            let pause = self.random(self.size.asks * 4);
            self.runtime.sleep(pause).await;
            let at = self.random(self.size.databases as u64) as usize;
            let name =
                if self.random(4) == 0 { self.account.borrow().any_of_sql(asked) } else { None };
            asked += 1;
            let world = Rc::clone(self);
            self.runtime.spawn(async move { world.program(at, name).await });
        }
    }

    async fn troubles(self: &Rc<Self>) {
        let mut movers: Vec<u64> = Vec::new();
        while !self.is_quiet.get() {
            let pause = self.random(self.size.troubles);
            self.runtime.sleep(pause).await;
            if self.is_quiet.get() {
                break;
            }
            movers.retain(|mover| self.runtime.is_running(*mover));
            let (process, database) = (self.any(self.size.workers), self.any(self.size.databases));
            let until = self.now() + self.random(self.size.lease * 3);
            match self.random(16) {
                0 => self.kill(process),
                1 => self.processes.borrow_mut()[process].paused_until = until,
                2 => self.cut(Party::Process(process), database, until),
                3 => {
                    self.account.borrow_mut().told.failed_over += 1;
                    self.at(database, |it| it.fail_over(until));
                }
                4 if !movers.is_empty() => {
                    let mover = movers.swap_remove(self.any(movers.len()));
                    self.runtime.kill(mover);
                }
                5 => {
                    let partition = self.hot();
                    (0..self.size.databases).for_each(|at| {
                        self.at(at, |it| it.abandon(partition));
                    });
                }
                6 if !movers.is_empty() => {
                    let mover = movers[self.any(movers.len())];
                    self.cut(Party::Mover(mover), database, until);
                }
                _ if movers.len() < self.size.movers => movers.push(self.spawn_mover()),
                _ => {}
            }
        }
        for mover in movers {
            self.runtime.kill(mover);
        }
    }

    fn any(&self, count: usize) -> usize {
        self.random(count as u64) as usize
    }

    /// Returns a partition, rather one that is on its way.
    fn hot(&self) -> u32 {
        let any = self.any(self.size.hot) as u32;
        let moving = (any..self.size.hot as u32).chain(0..any).find(|it| self.way(*it).is_some());
        moving.filter(|_| self.random(2) == 0).unwrap_or(any)
    }

    /// Begins a mover, of one that is on its way or of another; or one of all, as a balance is.
    fn spawn_mover(self: &Rc<Self>) -> u64 {
        let partition = self.hot();
        let to = self.any(self.size.databases);
        let world = Rc::clone(self);
        let mover = Rc::new(Cell::new(0));
        let number = Rc::clone(&mover);
        mover.set(self.runtime.spawn(async move {
            let number = number.get();
            let from = match world.random(8) {
                0 => world.any(world.size.databases),
                _ => world.way(partition).map_or_else(|| world.home(partition), |way| way.0),
            };
            let to = world.way(partition).filter(|_| world.random(4) != 0).map_or(to, |way| way.1);
            // What is refused is refused.
            let _ = world.carry(from, to, partition, number).await;
            let turn = world.any(world.size.databases);
            for partition in 0..if world.random(8) == 0 { world.size.hot } else { 0 } {
                let (from, to) =
                    (world.home(partition as u32), (partition + turn) % world.size.databases);
                if world.carry(from, to, partition as u32, number).await.is_err() && from != to {
                    return;
                }
            }
        }));
        mover.get()
    }

    fn state(&self, at: usize, partition: u32) -> (HomeState, Option<usize>) {
        let home = self.databases.borrow()[at].home(partition);
        (home.state, home.other.map(|other| other.0 as usize - 1))
    }

    /// Returns from where to where a partition is on its way.
    fn way(&self, partition: u32) -> Option<(usize, usize)> {
        (0..self.size.databases).find_map(|at| match self.state(at, partition) {
            (HomeState::Moving, Some(to)) => Some((at, to)),
            (HomeState::Coming, Some(from)) => match self.state(from, partition) {
                (HomeState::Gone, Some(to)) if to == at => Some((from, at)),
                _ => None,
            },
            _ => None,
        })
    }

    /// Returns the database that has a partition, if it is not between two.
    pub(super) fn has(&self, partition: u32) -> Option<usize> {
        let databases = self.databases.borrow();
        databases.iter().position(|it| it.home(partition).state.is_here())
    }

    /// Returns the database that has a partition, or has it soon.
    pub(super) fn home(&self, partition: u32) -> usize {
        let here = self.has(partition);
        here.unwrap_or_else(|| self.way(partition).expect("it is on its way").1)
    }

    /// Ends all that was begun, and looks whether all is as it must be.
    pub(super) fn end(self: &Rc<Self>) {
        self.is_quiet.set(true);
        self.freeze();
        self.runtime.run_until(self.now() + SETTLES + self.size.lease);
        self.move_away();
        self.is_settled.set(true);
        self.check_clients();
        self.is_settled.set(false);
        self.heal();
        // What was refused while a client looked for a home, and what was held for long.
        self.runtime.run_until(self.now() + self.size.lease * 4);
        let ended = Rc::new(Cell::new(None));
        let (world, end) = (Rc::clone(self), Rc::clone(&ended));
        let mover = self.runtime.spawn(async move { end.set(Some(world.end_moves().await)) });
        let most = self.now() + self.size.lease * 30;
        while self.runtime.is_running(mover) {
            assert!(self.now() < most, "a mover that is alone does not end the moves");
            self.runtime.run_until(self.now() + 1_000);
        }
        if let Some(Err(error)) = ended.take() {
            panic!("a mover that is alone does not end the move: {error}");
        }
        self.check_clients();
        let last = self.account.borrow().last_deadline().saturating_sub(CLOCK).max(self.now());
        let most = last + self.size.lease * 5 + 10_000;
        let has_rows = || self.databases.borrow().iter().any(|it| 0 < it.tables.len());
        while self.now() < most && has_rows() {
            self.runtime.run_until(self.now() + 1_000);
        }
        // Nothing comes of which no row is left.
        self.runtime.run_until(self.now() + self.size.lease);
        self.check_expected(u64::MAX);
        assert!(self.asked.borrow().is_empty(), "calls have no answer");
        self.check_homes();
        self.check_letters();
    }

    /// What was in databases that some client is cut off from moves to others.
    fn move_away(self: &Rc<Self>) {
        let is_cut = |at: &usize| {
            (0..self.size.clients).any(|process| self.is_cut(Party::Process(process), *at))
        };
        let mut movers = Vec::new();
        for partition in 0..self.size.hot as u32 {
            let Some(from) = self.has(partition).filter(is_cut) else { continue };
            let mut others =
                (1..self.size.databases).map(|turn| (from + turn) % self.size.databases);
            let Some(to) = others.find(|at| !self.is_down(*at)) else { continue };
            let world = Rc::clone(self);
            movers.push(self.runtime.spawn(async move {
                // There may be another move already, or the database is down.
                let _ = world.carry(from, to, partition, 0).await;
            }));
        }
        self.runtime.run_until(self.now() + self.size.lease * 2 + SETTLES);
        for mover in movers {
            self.runtime.kill(mover);
        }
        self.runtime.run_until(self.now() + SETTLES);
    }

    /// One mover ends each move, and removes what was left.
    async fn end_moves(self: Rc<Self>) -> Result<(), Error> {
        for partition in 0..PARTITIONS as u32 {
            if let Some((from, to)) = self.way(partition) {
                self.carry(from, to, partition, 0).await?;
            }
        }
        for partition in 0..PARTITIONS as u32 {
            for at in 0..self.size.databases {
                // It was to come with a move that was abandoned.
                if self.state(at, partition).0 == HomeState::Coming {
                    self.carry(self.home(partition), at, partition, 0).await?;
                }
            }
            for at in 0..self.size.databases {
                let home = self.home(partition);
                if at != home && 0 < self.at(at, |it| it.left(partition)) {
                    // It is told where the partition went, if not there.
                    let _ = self.carry(at, home, partition, 0).await;
                }
            }
        }
        Ok(())
    }

    /// All that was due by this time has come.
    pub(super) fn check_expected(&self, time: u64) {
        let account = self.account.borrow();
        let left: Vec<&str> = account.expected(time).collect();
        assert!(left.is_empty(), "lost, or not yet here: {left:?}");
    }

    fn check_homes(&self) {
        for partition in 0..PARTITIONS as u32 {
            let home = self.home(partition);
            for at in 0..self.size.databases {
                let state = self.state(at, partition).0;
                let expected = if at == home { HomeState::Here } else { HomeState::Gone };
                assert_eq!(state, expected, "partition {partition} at {at}, home {home}");
                let left = self.at(at, |it| it.left(partition));
                assert!(
                    at == home || left == 0,
                    "{left} of partition {partition} are left at {at}"
                );
            }
        }
    }

    /// Dead letters are where their names are.
    fn check_letters(&self) {
        let mut found = 0;
        for at in 0..self.size.databases {
            self.at(at, |it| {
                for letter in it.tables.dead.values() {
                    let number = usize::from_le_bytes(letter.payload[..].try_into().unwrap());
                    assert!(self.account.borrow().is_dead(number), "dead, and nobody said so");
                    found += 1;
                }
            });
        }
        assert_eq!(found, self.account.borrow().letters(), "dead letters");
    }
}
