//! Nothing stands still: what a database in production does to its workers, each way alone.
//!
//! As soon as the fault is over all that is due is handed out within a lease and a quarter; while
//! it lasts, timeouts that it does not touch are late by less than a second. With the manner left
//! out that is against it, the same checks find that: the last test prints of how many seeds.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::super::answered::{commits, leases, loads};
use super::database::{Database, GOOD, Manners};
use super::world::{CALLS, Simulation};
use super::{LEASE, LONG, SMALL, Size, Told, long, under_ci};
use crate::keeper::manner::Manner;
use crate::keeper::model;
use crate::store::Change;
use std::cell::Cell;

/// What a fault did.
#[derive(Debug)]
struct Found {
    /// The latest of those that the fault did not touch, in milliseconds.
    late: u64,
    /// And of those that became due after it.
    late_after: u64,
    /// How long after it the last came that was due at its end, in milliseconds.
    after: u64,
    /// Rows that were read for each that was handed out.
    read: f64,
    /// Rows that never came.
    left: usize,
    /// How often partitions changed their owner.
    epochs: u64,
    /// How many milliseconds commits have waited for locks.
    waited: u64,
}

/// Lets the workers settle, does the fault, and puts a timeout each 5 ms for 8 s, due in 200 ms.
fn run(size: Size, fault: fn(&mut Database, u64) -> u64) -> Found {
    run_after(|_, time| time, size, fault)
}

/// Does the same on a database to which something was done before workers came.
fn run_after(
    before: fn(&mut Database, u64) -> u64,
    size: Size,
    fault: fn(&mut Database, u64) -> u64,
) -> Found {
    run_with(seed(), before, size, GOOD, fault)
}

fn run_with(
    seed: u64,
    before: fn(&mut Database, u64) -> u64,
    size: Size,
    manners: Manners,
    fault: fn(&mut Database, u64) -> u64,
) -> Found {
    let mut simulation = Simulation::calm(seed, size);
    simulation.databases[0].manners = manners;
    let time = simulation.time;
    before(&mut simulation.databases[0], time);
    simulation.pass(size.lease * 3);
    let time = simulation.time;
    let epochs: u64 = simulation.databases[0].tables.epochs.iter().sum();
    let over = fault(&mut simulation.databases[0], time);
    simulation.databases[0].rows_read = 0;
    simulation.told.late.clear();
    let mut numbers = Vec::new();
    for n in 0..8_000 / 5 {
        let database = &mut simulation.databases[0];
        let deadline = simulation.time + database.clock + 200;
        let row = database.put(&Change::put(&format!("live {n}"), deadline, &[]));
        if database.locked_partition.is_none_or(|(place, _)| place != row.partition) {
            numbers.push((simulation.time + 200, row.number));
        }
        simulation.pass(5);
    }
    simulation.pass(over.saturating_sub(simulation.time));
    let end = simulation.time + 60_000;
    let mut after = 0;
    while 0 < simulation.databases[0].tables.len() && simulation.time < end {
        if simulation.is_waiting_since(over) {
            after = simulation.time - over;
        }
        simulation.pass(10);
    }
    let fired = simulation.told.fired_at.len() as u64;
    let late = |since: u64| {
        let due = numbers.iter().filter(|(due, _)| since <= *due);
        let late = due.map(|(_, number)| match simulation.told.fired_at.get(number) {
            Some(&(_, late)) => late,
            None => u64::MAX,
        });
        late.max().unwrap_or(0)
    };
    Found {
        late: late(0),
        late_after: late(over),
        after,
        read: simulation.databases[0].rows_read as f64 / fired.max(1) as f64,
        left: simulation.databases[0].tables.len(),
        epochs: simulation.databases[0].tables.epochs.iter().sum::<u64>() - epochs,
        waited: simulation.databases[0].waited,
    }
}

/// Thousands were due while no worker ran.
fn backlog(database: &mut Database, time: u64) -> u64 {
    for n in 0..4_000 {
        database.put(&Change::put(&format!("overdue {n}"), time / 2 + n, &[]));
    }
    time
}

/// Thousands are due within a second.
fn rush(database: &mut Database, time: u64) -> u64 {
    for n in 0..5_000 {
        let deadline = time + database.clock + 1_500 + n / 5;
        database.put(&Change::put(&format!("rush {n}"), deadline, &[]));
    }
    time
}

/// What was cancelled behind a dump would have been due in the next seconds.
fn dead_soon(database: &mut Database, time: u64) -> u64 {
    database.keep_dead();
    let now = time + database.clock;
    database.add_dead((0..200_000).map(|n| now + 1_000 + n / 50));
    until_the_dump_ends(database, time)
}

/// More bytes than there is room for in one answer.
fn large(database: &mut Database, time: u64) -> u64 {
    let payload = [0; 60_000];
    for n in 0..20 {
        let deadline = time + database.clock + 100;
        database.put(&Change::put(&format!("large {n}"), deadline, &payload));
    }
    time
}

/// More than a worker may have settled and not committed.
fn lock_many(database: &mut Database, time: u64) -> u64 {
    for n in 0..180 {
        let name = format!("locked {n}");
        database.put(&Change::put(&name, time + database.clock + 100, &[]));
        match n % 2 {
            0 => database.lock(&name, time + 20_000),
            _ => database.refuse(&name, time + 20_000),
        }
    }
    time + 20_000
}

fn nothing(_: &mut Database, time: u64) -> u64 {
    time
}

/// A dump goes on for an hour, and a million rows were deleted behind it.
fn dead(database: &mut Database, time: u64) -> u64 {
    database.keep_dead();
    let now = time + database.clock;
    database.add_dead((0..1_000_000).map(|n| n % now));
    time
}

/// And for twenty seconds.
fn dead_for_long(database: &mut Database, time: u64) -> u64 {
    dead(database, time);
    until_the_dump_ends(database, time)
}

fn until_the_dump_ends(database: &mut Database, time: u64) -> u64 {
    database.dead_until = time + 20_000;
    database.dead_until
}

/// Somebody cancels one by SQL, and goes to lunch.
fn lock(database: &mut Database, time: u64) -> u64 {
    for n in 0..20 {
        database.put(&Change::put(&format!("locked {n}"), time + database.clock + 100, &[]));
    }
    database.lock("locked 7", time + 20_000);
    time + 20_000
}

/// The database answers nothing for a second and a half, less than a lease.
fn silence(database: &mut Database, time: u64) -> u64 {
    database.silent_until = time + 300_000;
    database.heals_at = time + 1_500;
    time + 1_500
}

/// And it goes on for a while with what was given up.
fn silence_with_locks(database: &mut Database, time: u64) -> u64 {
    database.leaves_locks = database.lease / 3;
    silence(database, time)
}

/// Somebody has locked a partition. Nobody hands out of it.
fn lock_partition(database: &mut Database, time: u64) -> u64 {
    database.locked_partition = Some((BAD, time + 20_000));
    time + 20_000
}

fn overdue_and_dead(database: &mut Database, time: u64) -> u64 {
    for n in 0..100 {
        database.put(&Change::put(&format!("overdue {n}"), time / 2, &[]));
    }
    dead(database, time)
}

fn dead_and_silence(database: &mut Database, time: u64) -> u64 {
    dead(database, time);
    silence(database, time)
}

/// A snapshot keeps each version of the leases for an hour.
fn renewed(database: &mut Database, time: u64) -> u64 {
    database.keep_dead();
    database.renewed(3_600_000 / (database.lease / 4));
    time
}

/// A page of what is due soon is damaged.
fn damage(database: &mut Database, time: u64) -> u64 {
    let deadline = time + database.clock + 3_000;
    let until = time + 12_000;
    database.damaged = Some((BAD, deadline, until));
    for n in 0..1_000 {
        database.put(&Change::put(&format!("damaged {n}"), deadline, &[]));
    }
    until
}

/// What is done to a database.
#[derive(Clone, Copy)]
struct Fault {
    name: &'static str,
    /// Before workers came.
    before: fn(&mut Database, u64) -> u64,
    /// Returns when it is over.
    begin: fn(&mut Database, u64) -> u64,
    /// Whether all timeouts wait for its end.
    touches_all: bool,
}

impl Fault {
    const fn new(name: &'static str, begin: fn(&mut Database, u64) -> u64) -> Self {
        Self { name, before: nothing, begin, touches_all: false }
    }

    /// Lets it happen, and returns what breaks the promise.
    fn breaks(&self, seed: u64, size: Size) -> Option<Found> {
        let found = run_with(seed, self.before, size, GOOD, self.begin);
        let most = size.lease * 5 / 4 + CALLS;
        let (late, least) = match self.touches_all {
            true => (found.late_after, most),
            false => (found.late, 1_000),
        };
        (least <= late || most < found.after || 0 < found.left).then_some(found)
    }
}

/// As soon as the fault is over, all that is due is handed out within a lease and a quarter; while
/// it lasts, timeouts that it does not touch are late by less than a second.
#[test]
fn whatever_is_done_to_a_database_what_that_does_not_touch_comes_and_all_comes_after() {
    let sizes = [ONE_LONG, TWO_LONG, ONE, TWO];
    let Some(seeds) = seeds() else {
        // The first are tested below too, and take long.
        for (at, fault) in FAULTS.iter().enumerate().skip(4) {
            let (size, broken) = (sizes[at % 2], fault.breaks(seed(), sizes[at % 2]));
            assert!(broken.is_none(), "{}, {size:?}: {broken:?}", fault.name);
        }
        return;
    };
    for seed in seed()..seed() + seeds {
        for (fault, size) in FAULTS.iter().flat_map(|fault| sizes.map(|size| (fault, size))) {
            let broken = fault.breaks(seed, size);
            assert!(broken.is_none(), "{}, {size:?}, seed {seed}: {broken:?}", fault.name);
        }
    }
}

fn any_fault() {
    for size in [ONE, TWO_LONG, ONE_LONG, TWO] {
        assert!(FAULTS.iter().all(|fault| fault.breaks(seed(), size).is_none()));
    }
}

fn random() {
    Simulation::new(seed(), SMALL.of(seed())).run(&mut Told::default());
}

/// With `TICKWHEEL_DURABLE_SEEDS`: so many seeds, and the table is printed.
#[test]
fn without_any_one_of_the_manners_of_the_keeper_something_is_found() {
    let Some(seeds) = seeds() else { return };
    println!("| left out | found in, of {seeds} seeds | by |\n|---|---|---|");
    for seed in 1..=seeds {
        SEED.set(Some(seed));
        CHECKS.iter().for_each(|(_, check)| check());
    }
    let mut unneeded = Vec::new();
    for manner in Manner::ALL {
        let mut by: Vec<(&str, u64)> = Vec::new();
        let mut found = 0;
        for seed in 1..=seeds {
            SEED.set(Some(seed));
            let fails = |(_, check): &&(&str, fn())| {
                manner.without(|| catch_unwind(AssertUnwindSafe(check)).is_err())
            };
            // What found it before is tried first.
            let mut checks: Vec<_> = CHECKS.iter().collect();
            let known = |name: &str| by.iter().any(|(by, _)| *by == name);
            checks.sort_by_key(|(name, _)| !known(name));
            let Some((name, _)) = checks.into_iter().find(fails) else { continue };
            found += 1;
            match by.iter_mut().find(|(by, _)| by == name) {
                Some((_, count)) => *count += 1,
                None => by.push((name, 1)),
            }
        }
        println!("| {manner:?} | {found} | {by:?} |");
        if found == 0 {
            unneeded.push(manner);
        }
    }
    SEED.set(None);
    assert!(unneeded.is_empty(), "{unneeded:?}");
}

thread_local! {
    static SEED: Cell<Option<u64>> = const { Cell::new(None) };
}

#[test]
fn a_backlog_is_read_once_and_what_becomes_due_does_not_wait_for_it() {
    for found in [
        run(ONE, backlog),
        run_after(backlog, ONE, nothing),
        // What becomes due is put with it, and the store has not told of it yet.
        run_with(6, nothing, ONE, GOOD, backlog),
    ] {
        assert!(found.read < 2.0 && found.late < 1_000, "{found:?}");
    }
    let found = run(ONE, rush);
    assert!(found.read < 2.0 && found.late < u64::MAX, "{found:?}");
}

/// Hundreds are moved again and again, by less than a second.
#[test]
fn the_past_is_read_to_its_end_though_loads_overflow_all_the_time() {
    let mut simulation = Simulation::calm(seed(), ONE);
    let half = simulation.time / 2;
    let database = &mut simulation.databases[0];
    database.most_news = 200;
    database.keep_dead();
    database.add_dead(0..100_000);
    let put = |n| database.put(&Change::put(&format!("overdue {n}"), half + n, &[])).number;
    let overdue: Vec<u64> = (0..500).map(put).collect();
    for _ in 0..150 {
        let database = &mut simulation.databases[0];
        let deadline = simulation.time + database.clock + 500;
        for n in 0..250 {
            database.put(&Change::put(&format!("moved {n}"), deadline, &[]));
        }
        simulation.pass(100);
    }
    let came = overdue.iter().filter(|&number| simulation.told.fired_at.contains_key(number));
    assert_eq!(came.count(), overdue.len());
}

/// What cannot be read is a page, or a millisecond of which too much is dead.
#[test]
fn a_millisecond_of_a_partition_that_cannot_be_read_holds_up_nothing_else() {
    let faults: [fn(&mut Database, bool); 2] = [
        |database, begins| database.damaged = begins.then_some((BAD, 2_020, u64::MAX)),
        |database, begins| match begins {
            true => {
                database.keep_dead();
                database.add_dead_to(BAD, (0..300_000).map(|_| 2_020));
            }
            false => database.vacuum(),
        },
    ];
    for fault in faults {
        let mut simulation = Simulation::calm(seed(), ONE);
        fault(&mut simulation.databases[0], true);
        for n in 0..4_000 {
            let overdue = Change::put(&format!("overdue {n}"), 2_000 + n / 100, &[]);
            simulation.databases[0].put(&overdue);
        }
        let mut numbers = Vec::new();
        for n in 0..16_000 / 5 {
            let database = &mut simulation.databases[0];
            let deadline = simulation.time + database.clock + 200;
            numbers.push(database.put(&Change::put(&format!("live {n}"), deadline, &[])).number);
            simulation.pass(5);
        }
        simulation.pass(10_000);
        let fired_at = &simulation.told.fired_at;
        // The first come when there are leases.
        let late = numbers.iter().skip(500).map(|number| fired_at[number].1).max();
        assert!(late < Some(1_000), "{late:?}");
        let left = |simulation: &Simulation| {
            let tables = &simulation.databases[0].tables;
            [0..BAD, BAD..BAD + 1, BAD + 1..ONE.partitions].map(|partitions| {
                let left = partitions.map(|partition| tables.count(partition));
                left.sum::<usize>()
            })
        };
        let [before, bad, after] = left(&simulation);
        assert!(before + after == 0, "{before} + {after} of others, {bad}");
        assert!((1..25).contains(&bad), "{bad}");
        fault(&mut simulation.databases[0], false);
        simulation.pass(LEASE * 5 / 4);
        let [_, still, _] = left(&simulation);
        assert_eq!(still, 0, "of {bad}");
    }
}

#[test]
fn what_cannot_be_read_of_the_present_holds_up_nothing_else() {
    let found = run(ONE, damage);
    assert!(found.late < 1_000 && 0 < found.after && found.left == 0, "{found:?}");
}

#[test]
fn what_another_had_is_handed_out_as_soon_as_its_lease_is_over() {
    for seed in [seed(), seed() + 13] {
        let found = late_of_another(seed, GOOD);
        // And a few calls.
        assert!(found <= Some(LEASE + 300), "{found:?} with seed {seed}");
    }
}

/// One of two workers with 64 partitions stops, at any time between two renewals. Returns the
/// latest.
fn late_of_another(seed: u64, manners: Manners) -> Option<u64> {
    let late = (0..10).step_by(long(4, 1)).map(|turn| {
        let size = Size { workers: 2, stores: 1, partitions: 64, lease: LEASE };
        let mut simulation = Simulation::calm(seed, size);
        simulation.databases[0].manners = manners;
        simulation.databases[0].latency = 20;
        simulation.pass(LEASE * 3 + turn * 50);
        simulation.told.late.clear();
        let end = simulation.time + 60_000;
        simulation.stop(1, end);
        for n in 0..8_000 / 5 {
            let database = &mut simulation.databases[0];
            let deadline = simulation.time + database.clock + 200;
            database.put(&Change::put(&format!("live {n}"), deadline, &[]));
            simulation.pass(5);
        }
        simulation.pass(2_000);
        assert_eq!(simulation.databases[0].tables.len(), 0);
        simulation.told.late.iter().copied().max()
    });
    late.max().flatten()
}

#[test]
fn what_a_vanished_host_has_locked_is_free_when_its_lease_is_over() {
    for seed in seed()..seed() + 3 {
        let mut simulation = Simulation::calm(seed, TWO);
        simulation.databases[0].leaves_locks = LEASE / 3;
        simulation.pass(LEASE * 3);
        simulation.told.late.clear();
        for n in 0..8_000 / 5 {
            let time = simulation.time;
            let database = &mut simulation.databases[0];
            match n {
                // All calls that are made now are given up.
                200 => (database.silent_until, database.heals_at) = (time + 300_000, time + 100),
                220 => simulation.stop(1, time + 60_000),
                _ => {}
            }
            let database = &mut simulation.databases[0];
            database.put(&Change::put(&format!("live {n}"), time + database.clock + 200, &[]));
            simulation.pass(5);
        }
        assert!(simulation.databases[0].has_left_locks(), "with seed {seed}");
        simulation.pass(2_000);
        assert_eq!(simulation.databases[0].tables.len(), 0, "with seed {seed}");
        let late = simulation.told.late.iter().max();
        assert!(late < Some(&(LEASE * 5 / 4 + CALLS)), "{late:?} with seed {seed}");
    }
}

/// Puts a timeout each 5 ms for so long, due in 200 ms, and lets all of them come.
fn rain(simulation: &mut Simulation, time: u64) {
    for n in 0..time / 5 {
        let database = &mut simulation.databases[0];
        let deadline = simulation.time + database.clock + 200;
        database.put(&Change::put(&format!("{} {n}", simulation.time), deadline, &[]));
        simulation.pass(5);
    }
    let end = simulation.time + LEASE * 8;
    while 0 < simulation.databases[0].tables.len() && simulation.time < end {
        simulation.pass(100);
    }
    assert_eq!(simulation.databases[0].tables.len(), 0);
}

/// Two workers, of which the second comes when the first holds something of most partitions.
fn join(seed: u64) -> Simulation {
    let mut simulation =
        Simulation::calm(seed, Size { workers: 2, stores: 1, partitions: 24, lease: LEASE });
    simulation.holds = 300;
    let comes = simulation.time + LEASE * 3 + 77 * seed;
    simulation.stop(1, comes);
    simulation.pass(LEASE);
    rain(&mut simulation, LEASE * 5);
    simulation
}

#[test]
fn a_worker_that_joins_gets_its_share_and_nothing_that_is_in_flight() {
    for seed in 0..under_ci(1, long(3, 10)) {
        let simulation = join(seed);
        assert_eq!(simulation.shares(), [12, 12]);
        let told = &simulation.told;
        assert_eq!((told.again, told.fenced), (0, 0), "handed out twice, with seed {seed}");
        let late = told.late.iter().max();
        assert!(late < Some(&1_000), "{late:?} with seed {seed}");
    }
}

/// Nearly as many workers as partitions come, and one after another some go.
#[test]
fn of_many_workers_none_has_two_more_partitions_than_another_and_that_settles() {
    let mut simulation =
        Simulation::calm(seed(), Size { workers: 60, stores: 1, partitions: 64, lease: LEASE });
    let lefts = [60, 59, 40];
    for left in lefts.into_iter().step_by(long(2, 1)) {
        simulation.receive(left);
        simulation.pass(LEASE * 6);
        let epochs = simulation.databases[0].tables.epochs.clone();
        simulation.pass(LEASE * 2);
        let shares = simulation.shares();
        let fair = (0..60).map(|worker| match worker < left {
            true => 64 / left + usize::from(worker < 64 % left),
            false => 0,
        });
        assert_eq!(shares, fair.collect::<Vec<_>>());
        assert_eq!(simulation.databases[0].tables.epochs, epochs, "partitions change owners");
    }
}

#[test]
fn a_worker_that_closes_gives_back_at_once_all_of_which_nothing_is_in_flight() {
    for seed in 3..under_ci(4, long(6, 13)) {
        let mut simulation = join(seed);
        // A consumer holds one for three leases, and the others are given back meanwhile.
        simulation.holds = LEASE * 6;
        let database = &mut simulation.databases[0];
        let deadline = simulation.time + database.clock;
        for name in 0..10 {
            database.put(&Change::put(&format!("held {name}"), deadline, &[]));
        }
        simulation.pass(300);
        simulation.silence(1);
        simulation.close(1);
        simulation.holds = 100;
        simulation.pass(LEASE / 2);
        let shares = simulation.shares();
        assert!(14 <= shares[0] && shares[1] == 0, "{shares:?} with seed {seed}");
        simulation.pass(LEASE);
        assert_eq!(simulation.shares(), [24, 0], "after a lease it has all, with seed {seed}");
    }
}

#[test]
fn what_is_given_back_is_taken_at_once() {
    for seed in 0..under_ci(1, long(3, 10)) {
        let mut simulation =
            Simulation::calm(seed, Size { workers: 2, stores: 1, partitions: 24, lease: LEASE });
        simulation.holds = 2;
        let comes = simulation.time + LEASE * 3 + 77 * seed;
        simulation.stop(1, comes);
        simulation.pass(LEASE);
        // One joins, and closes.
        rain(&mut simulation, LEASE * 4);
        assert_eq!(simulation.shares(), [12, 12]);
        // At any time between two renewals.
        simulation.pass(50 * seed);
        simulation.silence(1);
        simulation.close(1);
        // A look tells of it, and that is before the next renewal.
        simulation.pass(LEASE * 3 / 20);
        assert_eq!(simulation.shares(), [24, 0], "with seed {seed}");
        rain(&mut simulation, LEASE);
        let late = simulation.told.late.iter().max();
        assert!(late < Some(&(LEASE / 5)), "{late:?} with seed {seed}");
    }
}

#[test]
fn a_worker_on_which_nobody_receives_owns_nothing() {
    let mut simulation =
        Simulation::calm(seed(), Size { workers: 2, stores: 1, partitions: 24, lease: LEASE });
    simulation.receive(1);
    rain(&mut simulation, LEASE * 3);
    assert_eq!(simulation.shares(), [24, 0]);
    for most in [None, Some(3)] {
        let size = Size { workers: 2, stores: 1, partitions: 24, lease: LEASE };
        let mut simulation = Simulation::calm(seed(), size).with_most(most);
        rain(&mut simulation, LEASE * 3);
        assert_eq!(simulation.shares(), [12, 12]);
        // Its consumers go away.
        simulation.silence(1);
        simulation.told.late.clear();
        rain(&mut simulation, LEASE * 4);
        assert_eq!(simulation.shares(), [24, 0]);
        let late = simulation.told.late.iter().max();
        assert!(late < Some(&(LEASE * 3 / 2)), "{late:?} with {most:?}");
        assert_eq!(simulation.told.again, 0);
    }
}

/// For less than a lease nothing can be reached, and meanwhile thousands become due: what becomes
/// due after that does not wait for them.
#[test]
fn what_becomes_due_after_a_cut_does_not_wait_for_what_did_before() {
    // They were put long before, and the last that was read is before them.
    let before = |database: &mut Database, time| {
        for n in 0..5_000 {
            // None of them after the fault: that would be more than consumers can take.
            let deadline = time + database.lease * 3 + database.clock + 1_100 + n * 2 / 25;
            database.put(&Change::put(&format!("meanwhile {n}"), deadline, &[]));
        }
        time
    };
    // The call that is under way then has to end.
    let found = run_after(before, ONE, |database, time| silence(database, time) + 1_000);
    // To hand out the others takes seconds.
    assert!(found.late_after < 1_000 && 4_000 < found.after, "{found:?}");
}

#[test]
fn dead_rows_are_not_read_again_and_again() {
    let found = run(ONE, dead);
    assert!(found.late < 1_000 && found.read < 10.0, "{found:?}");
}

/// To read a million dead rows takes ten seconds, five leases, and those of one partition more than
/// a third of a lease.
#[test]
fn the_past_is_read_in_stretches_and_holds_up_nothing_that_becomes_due() {
    for size in [ONE, TWO] {
        let found = run_after(overdue_and_dead, size, nothing);
        assert!(found.late < 1_000 && found.left == 0, "{found:?}");
    }
}

#[test]
fn the_versions_of_leases_that_a_snapshot_keeps_hold_up_no_ack() {
    let found = run(ONE, renewed);
    assert!(found.late < 1_000, "{found:?}");
}

#[test]
fn after_an_error_what_is_dead_is_not_read_again() {
    let found = run(ONE, dead_and_silence);
    assert!(found.late < 1_500 + LEASE * 5 / 4 && found.read < 10.0, "{found:?}");
}

#[test]
fn a_name_that_somebody_has_locked_holds_up_no_other_and_no_lease_is_lost() {
    for size in [ONE, TWO] {
        let found = run(size, lock);
        assert!(found.late < 1_000 && found.epochs == 0, "{found:?}");
        // Of twenty seconds.
        assert!(found.waited < 500, "{found:?}");
    }
    // A lease that is longer lets nobody wait longer.
    let found = run(Size { lease: 100_000, ..ONE }, lock);
    assert!(found.late < 1_000, "{found:?}");
}

/// Callers ask for changes of these names again as soon as they are answered, and others put
/// timeouts that are due at once. Returns the latest, and the longest that a free put waited.
fn ask_again_and_again(mut simulation: Simulation, names: &[String]) -> (u64, u64) {
    simulation.pass(LONG);
    simulation.told.late.clear();
    let (mut free, mut waited) = (None, 0);
    for n in 0..20_000 / 20 {
        let time = simulation.time;
        let deadline = time + simulation.databases[0].clock;
        simulation.databases[0].put(&Change::put(&format!("live {n}"), deadline, &[]));
        let far = |name: &str| Change::put(name, deadline + 3_600_000, &[]);
        if n == 0 || names.iter().all(|name| simulation.told.answered.contains_key(&**name)) {
            for name in names {
                simulation.told.answered.remove(&**name);
                simulation.command(0, far(name));
            }
        }
        if let Some(at) = simulation.told.answered.remove("free") {
            waited = waited.max(at - free.take().expect("it was asked for"));
        }
        if free.is_none() && 0 < n {
            free = Some(time);
            simulation.command(0, far("free"));
        }
        simulation.pass(20);
    }
    waited = waited.max(free.map_or(0, |at| simulation.time - at));
    simulation.pass(2_000);
    (simulation.told.late.iter().copied().max().expect("all come"), waited)
}

#[test]
fn names_that_are_new_in_an_open_transaction_hold_up_no_free_put() {
    let mut simulation = Simulation::calm(seed(), ONE_LONG);
    let names: Vec<String> = (0..60).map(|n| format!("new {n}")).collect();
    for name in &names {
        simulation.databases[0].lock_new(name, 40, u64::MAX);
    }
    let (late, waited) = ask_again_and_again(simulation, &names);
    assert!(late < 1_000 && waited < 2_000, "{late} and {waited} ms");
}

#[test]
fn a_put_that_takes_long_and_is_made_again_and_again_holds_up_no_other() {
    for (count, takes) in [(1, 2_500), (20, 500)] {
        for lease in [LONG, 60_000] {
            let mut simulation = Simulation::calm(seed(), Size { lease, ..ONE });
            let names: Vec<String> = (0..count).map(|n| format!("slow {n}")).collect();
            for name in &names {
                simulation.databases[0].slow(name, takes, u64::MAX);
            }
            let (late, _) = ask_again_and_again(simulation, &names);
            assert!(late < 1_000, "{late} ms with a lease of {lease} ms");
        }
    }
}

#[test]
fn hundreds_of_names_that_are_locked_or_refused_hold_up_no_other() {
    for size in [ONE, TWO] {
        let found = run(size, lock_many);
        assert!(found.late < 1_000 && (found.epochs, found.left) == (0, 0), "{found:?}");
    }
}

/// More than there may be in flight, so that those that are left wait for them.
#[test]
fn names_that_are_locked_or_refused_for_long_are_told_once_a_minute() {
    let mut simulation = Simulation::calm(seed(), ONE);
    simulation.pass(LEASE * 2);
    let (time, database) = (simulation.time, &mut simulation.databases[0]);
    for n in 0..300 {
        let name = format!("{n}");
        database.put(&Change::put(&name, time + database.clock, &[]));
        match n % 2 {
            0 => database.lock(&name, time + 200_000),
            _ => database.refuse(&name, time + 200_000),
        }
    }
    simulation.pass(58_000);
    assert_eq!((simulation.told.fired, simulation.told.held_up), (250, 0));
    simulation.pass(140_000);
    assert_eq!((simulation.told.fired, simulation.told.held_up), (250, 3));
    simulation.pass(10_000);
    assert_eq!((simulation.told.fired, simulation.databases[0].tables.len()), (300, 0));
    simulation.pass(70_000);
    assert_eq!(simulation.told.held_up, 3, "nothing is held up any more");
}

/// There is always one that is locked, and none is for long.
#[test]
fn names_that_are_locked_one_after_another_for_a_moment_are_not_told() {
    let mut simulation = Simulation::calm(seed(), ONE);
    simulation.pass(LEASE * 2);
    for n in 0..70 {
        let (time, database) = (simulation.time, &mut simulation.databases[0]);
        let name = format!("{n}");
        database.put(&Change::put(&name, time + database.clock, &[]));
        database.lock(&name, time + 3_000);
        simulation.pass(1_000);
    }
    assert_eq!(simulation.told.held_up, 0);
}

/// A trigger takes longer than a call may.
fn slow(database: &mut Database, time: u64) -> u64 {
    database.put(&Change::put("slow", time + database.clock + 100, &[]));
    database.slow("slow", database.lease, time + 20_000);
    time + 20_000
}

/// A trigger takes a little for each of many.
fn slow_together(database: &mut Database, time: u64) -> u64 {
    for n in 0..100 {
        let name = format!("slow {n}");
        database.put(&Change::put(&name, time + database.clock + 100, &[]));
        database.slow(&name, 20, u64::MAX);
    }
    time
}

/// A trigger takes a little for each of some.
fn slow_some(database: &mut Database, time: u64) -> u64 {
    for n in 0..20 {
        let name = format!("slow {n}");
        database.put(&Change::put(&name, time + database.clock + 100, &[]));
        database.slow(&name, 20, u64::MAX);
    }
    time
}

#[test]
fn acks_that_take_longer_than_a_call_may_hold_up_no_other_for_long() {
    let found = run(ONE, slow);
    assert!(found.late < 1_000 && (found.epochs, found.left) == (0, 0), "{found:?}");
    // What was settled takes seconds.
    let found = run(ONE, slow_together);
    assert!(found.late < LEASE * 3 && (found.epochs, found.left) == (0, 0), "{found:?}");
}

/// A millisecond has very many rows, and to send one takes five.
#[test]
fn a_millisecond_of_many_rows_is_read_over_a_slow_link() {
    let found = run(ONE, |database, time| {
        database.send = 5;
        for n in 0..2_000 {
            database.put(&Change::put(&format!("overdue {n}"), time / 2, &[]));
        }
        time
    });
    assert_eq!(found.left, 0, "{found:?}");
}

#[test]
fn a_call_without_an_answer_is_given_up_and_all_is_handed_out_within_a_lease_and_a_quarter() {
    let found = run(ONE, silence);
    assert!(found.late < 1_500 + LEASE * 5 / 4, "{found:?}");
}

/// Consumers have settled what they held when it falls silent, so acks wait too.
#[test]
fn callers_are_told_soon_that_a_database_does_not_answer() {
    for (seed, size) in (1..=4).flat_map(|seed| [ONE, TWO, ONE_LONG].map(|size| (seed, size))) {
        let mut simulation = Simulation::calm(seed, size);
        simulation.pass(size.lease * 3);
        let (time, clock) = (simulation.time, simulation.databases[0].clock);
        for n in 0..100 {
            simulation.databases[0].put(&Change::put(&format!("due {n}"), time + clock + n, &[]));
        }
        simulation.pass(100 + seed * 10);
        simulation.databases[0].silent_until = simulation.time + 300_000;
        simulation.databases[0].heals_at = simulation.time + 60_000;
        let mut asked = Vec::new();
        for n in 0..600 {
            let name = format!("asked {n}");
            simulation.command(0, Change::put(&name, time + clock + 3_600_000, &[]));
            asked.push((simulation.time, name));
            simulation.pass(100);
            asked.retain(|(_, name)| !simulation.told.answered.contains_key(&**name));
            let waits = asked.first().map_or(0, |(at, _)| simulation.time - at);
            assert!(waits < size.lease * 3 / 2, "{waits} ms, {size:?}, seed {seed}");
        }
    }
}

/// `TICKWHEEL_DURABLE_SEEDS` says how many seeds; the table is printed.
#[test]
fn without_any_one_of_the_manners_something_is_found() {
    // It judges the other tests, and not the keeper.
    if seeds().is_none() && !under_ci(false, true) {
        return;
    }
    let seeds = 20.min(seeds().unwrap_or(1));
    println!("| left out | found in, of {seeds} seeds |\n|---|---|");
    let in_any = |what: &str, is_found: &dyn Fn(u64) -> bool| {
        // What the simulation finds by itself is a panic.
        let is_found =
            |&seed: &u64| catch_unwind(AssertUnwindSafe(|| is_found(seed))).unwrap_or(true);
        let found = (1..=seeds).filter(is_found).count();
        println!("| {what} | {found} |");
        assert!(0 < found, "{what}");
    };
    in_any("a look goes on where the last one ended", &|seed| {
        let manners = Manners { goes_on: false, ..GOOD };
        100.0 < run_with(seed, nothing, ONE, manners, dead).read
    });
    in_any("the limit of a load is for all partitions", &|seed| {
        let manners = Manners { shares_limit: false, ..GOOD };
        2.0 < run_with(seed, nothing, ONE, manners, rush).read
    });
    let sizes = [("one worker", ONE), ("two workers", TWO)];
    for (workers, size) in sizes.into_iter().take(if 1 < seeds { 2 } else { 1 }) {
        in_any(&format!("acks skip what is locked, {workers}"), &|seed| {
            let manners = Manners { skips_locked: false, ..GOOD };
            1_000 <= run_with(seed, nothing, size, manners, lock).late
        });
        in_any(&format!("the past is read in stretches, {workers}"), &|seed| {
            let manners = Manners { asks_for_less: false, ..GOOD };
            0 < run_with(seed, overdue_and_dead, size, manners, nothing).left
        });
    }
    in_any("an ack that takes long is refused", &|seed| {
        let manners = Manners { settles_in_parts: false, ..GOOD };
        1_000 <= run_with(seed, nothing, ONE, manners, slow).late
    });
    in_any("of acks that take long some are committed", &|seed| {
        let manners = Manners { settles_in_parts: false, ..GOOD };
        LEASE * 3 <= run_with(seed, nothing, ONE, manners, slow_together).late
    });
    in_any("what is damaged is found by asking for less", &|seed| {
        let manners = Manners { asks_for_less: false, ..GOOD };
        1_000 <= run_with(seed, nothing, ONE, manners, damage).late
    });
    in_any("a call without an answer is given up", &|seed| {
        let manners = Manners { gives_up: false, ..GOOD };
        1_500 + LEASE * 5 / 4 <= run_with(seed, nothing, ONE, manners, silence).late
    });
    in_any("the pasts of a takeover are read together", &|seed| {
        let manners = Manners { reads_together: false, ..GOOD };
        Some(LEASE * 5 / 4 + 500) < late_of_another(seed, manners)
    });
    in_any("a renewal is a row of its own", &|seed| {
        let manners = Manners { renews_apart: false, ..GOOD };
        1_000 <= run_with(seed, nothing, ONE, manners, renewed).late
    });
    in_any("what was seen is known after an error", &|seed| {
        let manners = Manners { remembers: false, ..GOOD };
        100.0 < run_with(seed, nothing, ONE, manners, dead_and_silence).read
    });
}

fn seeds() -> Option<u64> {
    std::env::var("TICKWHEEL_DURABLE_SEEDS").ok().map(|seeds| seeds.parse().unwrap())
}

/// Another seed has other latencies and other phases of looks and renewals.
fn seed() -> u64 {
    if let Some(seed) = SEED.get() {
        return seed;
    }
    std::env::var("TICKWHEEL_DURABLE_FIRST_SEED").map_or(1, |seed| seed.parse().unwrap())
}

/// A partition that is not the first.
const BAD: u32 = 3;
const ONE: Size = Size { workers: 1, stores: 1, partitions: 12, lease: LEASE };
const TWO: Size = Size { workers: 2, stores: 1, partitions: 12, lease: LEASE };
const ONE_LONG: Size = Size { lease: LONG, ..ONE };
const TWO_LONG: Size = Size { lease: LONG, ..TWO };

const FAULTS: [Fault; 14] = [
    Fault::new("thousands are overdue", backlog),
    Fault { before: backlog, ..Fault::new("thousands were overdue", nothing) },
    Fault::new("a snapshot keeps what is dead", dead_for_long),
    Fault {
        before: overdue_and_dead,
        ..Fault::new("what was overdue is among dead rows", until_the_dump_ends)
    },
    Fault::new("what is dead was due soon", dead_soon),
    Fault::new("payloads are large", large),
    Fault::new("somebody locks a name", lock),
    Fault::new("somebody locks many names", lock_many),
    Fault::new("an ack takes longer than a call may", slow),
    Fault::new("many acks take long", slow_some),
    Fault::new("a page is damaged", damage),
    Fault::new("somebody locks a partition", lock_partition),
    Fault { touches_all: true, ..Fault::new("nothing is answered", silence) },
    Fault {
        touches_all: true,
        ..Fault::new("what was given up leaves locks behind", silence_with_locks)
    },
];

/// What finds it if the keeper leaves out what it does, each way alone.
const CHECKS: [(&str, fn()); 20] = [
    ("past", a_backlog_is_read_once_and_what_becomes_due_does_not_wait_for_it),
    ("overflow", the_past_is_read_to_its_end_though_loads_overflow_all_the_time),
    ("unreadable", a_millisecond_of_a_partition_that_cannot_be_read_holds_up_nothing_else),
    ("damage", what_cannot_be_read_of_the_present_holds_up_nothing_else),
    ("cut", what_becomes_due_after_a_cut_does_not_wait_for_what_did_before),
    ("dead and silent", after_an_error_what_is_dead_is_not_read_again),
    ("locks", a_name_that_somebody_has_locked_holds_up_no_other_and_no_lease_is_lost),
    ("hundreds of locks", hundreds_of_names_that_are_locked_or_refused_hold_up_no_other),
    ("slow", acks_that_take_longer_than_a_call_may_hold_up_no_other_for_long),
    ("taken over", what_another_had_is_handed_out_as_soon_as_its_lease_is_over),
    ("random", random),
    ("all faults", any_fault),
    ("clock", leases::a_slow_call_for_leases_takes_nothing_back_and_a_clock_that_was_set_back_does),
    ("fenced", leases::what_is_fenced_is_read_again_and_handed_out_under_the_new_epoch),
    (
        "linger",
        commits::the_more_workers_the_longer_acks_wait_unless_they_take_the_room_of_what_is_due,
    ),
    (
        "error",
        loads::a_new_owner_reads_what_is_recent_first_and_after_an_error_nothing_that_it_knows,
    ),
    ("rests", loads::after_a_slow_part_of_the_past_without_rows_it_reads_no_other_for_as_long),
    (
        "last quarter",
        leases::nothing_is_taken_in_the_last_quarter_of_a_lease_though_the_keeper_does_not_look,
    ),
    ("each load", loads::each_load_is_of_all_partitions),
    ("full disk", model::a_full_disk_lets_what_is_due_go_on),
];
