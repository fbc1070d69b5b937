//! A fleet in virtual time, from a seed: many processes on many databases, movers, and what happens
//! to them. The keepers, the client and the movers are those that run on threads. A database is one in
//! memory that keeps the rules of the tables.

mod account;
mod database;
mod movers;
mod process;
mod run;
mod troubles;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use account::Told;
use world::World;

#[derive(Clone, Copy, Debug)]
struct Size {
    databases: usize,
    /// So many of them join while all goes on.
    joins: usize,
    workers: usize,
    /// So many of them have callers, and a timer on each database.
    clients: usize,
    /// Each of the others has a timer on one of so many databases.
    spread: usize,
    /// How many movers there are at once.
    movers: usize,
    /// Names are in the first partitions, and these are moved.
    hot: usize,
    names: u64,
    /// All in milliseconds: how long a lease is good for, how long a message takes at most, how long
    /// the pauses between calls and between troubles are at most, and how long there are any.
    lease: u64,
    latency: u64,
    asks: u64,
    troubles: u64,
    lasts: u64,
}

/// What can be left out of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Triggers note the names that change while the partition moves.
    Notes,
    /// The move takes place when all notes were taken.
    AllNotes,
    /// A worker is told to give it back, and none takes it.
    Yields,
    /// It takes place while no caller is in the middle of a change.
    LockOut,
    /// A program looks where the partition is after its change.
    CheckAfter,
    /// Anybody looks.
    Check,
    /// What is left of an earlier move is removed.
    Clear,
    /// A mover forgets what was expected by an earlier move.
    Forget,
}

/// Runs a seed, and tells what was seen.
fn run(seed: u64, size: Size, without: Option<Part>) -> Told {
    let world = World::new(seed, size, without);
    world.begin_all();
    world.runtime.run_until(size.lasts);
    world.end();
    let told = world.account.borrow().told;
    world.runtime.clear();
    told
}

#[test]
fn a_fleet_loses_nothing_and_makes_nothing_early_whatever_moves_and_dies() {
    let number = |variable: &str, default: u64| {
        std::env::var(variable).map_or(default, |number| number.parse().unwrap())
    };
    let first = number("TICKWHEEL_DURABLE_FIRST_SEED", 0);
    let seeds = number("TICKWHEEL_DURABLE_SEEDS", 12);
    let size = match std::env::var("TICKWHEEL_DURABLE_LARGE").as_deref() {
        Ok("middle") => MIDDLE,
        Ok(_) => LARGE,
        Err(_) => SMALL,
    };
    let mut told = Told::default();
    for seed in first..first + seeds {
        match run_seed(seed, size, None) {
            Ok(seen) => told.add(seen),
            Err(_) => panic!("with seed {seed} of {size:?}"),
        }
    }
    println!("{seeds} seeds from {first} of {size:?}: {told:?}");
    assert!(told.has_all(), "{told:?}");
}

#[test]
fn a_seed_is_always_the_same() {
    assert_eq!(run(1, SMALL, None), run(1, SMALL, None));
}

/// Also with movers that cannot reach it.
#[test]
fn a_database_that_is_down_holds_up_its_own_names_only_and_not_for_long_when_it_is_back() {
    let size = Size { troubles: u64::MAX / 2, clients: 3, ..SMALL };
    let world = World::new(0, size, None);
    world.begin_all();
    world.runtime.run_until(5_000);
    let back = 65_000;
    world.at(1, |it| it.fail_over(back));
    world.down.set(Some(1));
    world.waited.set(0);
    for partition in 0..6 {
        world.runtime.run_until(world.now() + 3_000);
        let carried = std::rc::Rc::clone(&world);
        world.runtime.spawn(async move {
            let (from, to) = if partition % 3 == 1 { (1, 0) } else { (partition % 3, 1) };
            carried.carry(from, to, partition as u32, 0).await.unwrap_err();
        });
    }
    world.runtime.run_until(back);
    let waited = world.waited.get();
    assert!((1..1_000).contains(&waited), "{waited} ms");
    world.runtime.run_until(back + size.lease * 5 / 4 + 300);
    world.check_expected(back + database::CLOCK);
    world.end();
    world.runtime.clear();
}

#[test]
fn whatever_is_left_out_of_the_protocol_is_found() {
    for (part, size) in PARTS {
        let found = (0..MOST).find(|seed| run_seed(*seed, size, Some(part)).is_err());
        let Some(seed) = found else { panic!("without {part:?} nothing is found") };
        println!("without {part:?} something is found with seed {seed}");
        run(seed, size, None);
    }
}

fn run_seed(seed: u64, size: Size, without: Option<Part>) -> std::thread::Result<Told> {
    catch_unwind(AssertUnwindSafe(|| run(seed, size, without)))
}

/// What is left out, and of which fleet.
const PARTS: [(Part, Size); 8] = [
    (Part::Notes, CLOSE),
    (Part::AllNotes, CLOSE),
    (Part::Yields, CLOSE),
    (Part::LockOut, QUICK),
    (Part::CheckAfter, CLOSE),
    (Part::Check, CLOSE),
    (Part::Clear, CLOSE),
    (Part::Forget, CLOSE),
];

/// So many seeds are tried at most. Of those of the first fleet most find what is left out, and of
/// the second one a third.
const MOST: u64 = 64;

const SMALL: Size = Size {
    databases: 4,
    joins: 1,
    workers: 4,
    clients: 2,
    spread: 1,
    movers: 4,
    hot: 6,
    names: 300,
    lease: 2_000,
    latency: 10,
    asks: 150,
    troubles: 400,
    lasts: 15_000,
};

/// All happens to two partitions.
const CLOSE: Size =
    Size { databases: 2, joins: 0, hot: 2, names: 1_000, asks: 60, troubles: 700, ..SMALL };

/// Moves take less time, and more of them take place while callers ask.
const QUICK: Size = Size { names: 300, latency: 3, asks: 150, ..CLOSE };

const MIDDLE: Size = Size { databases: 11, workers: 20, clients: 5, movers: 8, hot: 20, ..SMALL };

const LARGE: Size = Size {
    databases: 102,
    joins: 2,
    workers: 1_000,
    clients: 20,
    spread: 100,
    movers: 20,
    hot: 64,
    lease: 10_000,
    ..SMALL
};
