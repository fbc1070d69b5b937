//! Many workers on stores with several owners, in virtual time from a seed: latencies, pauses,
//! kills, cut connections and clocks apart. The keepers are those that run on a thread.

mod database;
mod liveness;
mod world;

use std::collections::HashMap;
use std::sync::Arc;

use world::Simulation;

/// `few`, or `many` if `TICKWHEEL_LONG` is set, as `.ci/full long` sets it.
fn long<T>(few: T, many: T) -> T {
    if std::env::var_os("TICKWHEEL_LONG").is_some() { many } else { few }
}

/// `few`, or `many` under CI or if tests are long.
fn under_ci<T>(few: T, many: T) -> T {
    if long(false, true) || std::env::var_os("CI").is_some() { many } else { few }
}

/// Says which seed a panic was with.
struct TellsSeed(u64);

impl Drop for TellsSeed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("with seed {}", self.0);
        }
    }
}

#[test]
fn many_workers_lose_nothing_and_make_nothing_early_and_no_two_own_a_partition() {
    let number = |variable: &str, default: u64| {
        std::env::var(variable).map_or(default, |number| number.parse().unwrap())
    };
    let first = number("TICKWHEEL_DURABLE_FIRST_SEED", 0);
    let seeds = number("TICKWHEEL_DURABLE_SEEDS", long(4, 8));
    let size = match std::env::var_os("TICKWHEEL_DURABLE_LARGE") {
        Some(_) => Size { workers: 100, stores: 16, partitions: 64, lease: LEASE },
        None => SMALL,
    };
    let mut told = Told::default();
    for seed in first..first + seeds {
        let _telling = TellsSeed(seed);
        let most = (seed % 2 == 1).then_some(3);
        Simulation::new(seed, size.of(seed)).with_most(most).run(&mut told);
    }
    told.late.sort_unstable();
    let late = |quantile: usize| told.late[(told.late.len() - 1) * quantile / 1000];
    println!(
        "{seeds} seeds from {first} of {size:?}: {} put, {} fired, {} again, {} acks fenced, \
         {} cancelled, {} moved, {} kills, {} closed, {} pauses, {} cuts, {} given up, {} dead, {} revived, \
         {} poisoned, {} expired; late {} / {} / {} ms",
        told.put,
        told.fired,
        told.again,
        told.fenced,
        told.cancelled,
        told.moved,
        told.kills,
        told.closed,
        told.pauses,
        told.cuts,
        told.given_up,
        told.dead,
        told.revived,
        told.poisoned,
        told.expired,
        late(500),
        late(990),
        late(1000),
    );
    assert!(
        told.closed > 0
            && told.again > 0
            && told.fenced > 0
            && told.cancelled > 0
            && told.moved > 0
            && told.dead > 0
            && told.revived > 0
            && told.poisoned > 0
            && told.expired > 0
    );
}

#[derive(Clone, Copy, Debug)]
struct Size {
    workers: usize,
    stores: usize,
    partitions: u32,
    /// How long a lease is good for, in milliseconds.
    lease: u64,
}

impl Size {
    /// Returns the same with the default lease of a timer, for some seeds.
    fn of(self, seed: u64) -> Self {
        Self { lease: if seed % 4 == 3 { LONG } else { self.lease }, ..self }
    }
}

#[derive(Debug, Default)]
struct Told {
    put: u64,
    fired: u64,
    again: u64,
    fenced: u64,
    cancelled: u64,
    moved: u64,
    kills: u64,
    closed: u64,
    pauses: u64,
    cuts: u64,
    given_up: u64,
    dead: u64,
    revived: u64,
    poisoned: u64,
    expired: u64,
    held_up: usize,
    late: Vec<u64>,
    /// When a change of each name was answered last.
    answered: HashMap<Arc<str>, u64>,
    /// By number: when a timeout was taken first, and how late that was.
    fired_at: HashMap<u64, (u64, u64)>,
}

const LEASE: u64 = 2_000;
/// The default of a timer.
const LONG: u64 = 10_000;
const SMALL: Size = Size { workers: 6, stores: 2, partitions: 12, lease: LEASE };
