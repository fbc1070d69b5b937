//! Many workers on stores with several owners, in virtual time from a seed: latencies, pauses,
//! kills, cut connections and clocks apart. The keepers are those that run on a thread.

mod database;
mod world;

use std::sync::Arc;
use std::time::Duration;

use super::outbox::Outbox;
use super::words::{LeaseCall, LoadCall};
use super::{Answer, Call, Command, Config, Keeper, Now};
use crate::Error;
use crate::store::{Change, Lease, Leases, Page, Position, Row};
use world::Simulation;

#[test]
fn many_workers_lose_nothing_and_make_nothing_early_and_no_two_own_a_partition() {
    let number = |variable: &str, default: u64| {
        std::env::var(variable).map_or(default, |number| number.parse().unwrap())
    };
    let first = number("TICKWHEEL_DURABLE_FIRST_SEED", 0);
    let seeds = number("TICKWHEEL_DURABLE_SEEDS", 8);
    let size = match std::env::var_os("TICKWHEEL_DURABLE_LARGE") {
        Some(_) => Size { workers: 100, stores: 16, partitions: 64 },
        None => Size { workers: 6, stores: 2, partitions: 12 },
    };
    let mut told = Told::default();
    for seed in first..first + seeds {
        Simulation::new(seed, size).run(&mut told);
    }
    told.late.sort_unstable();
    let late = |quantile: usize| told.late[(told.late.len() - 1) * quantile / 1000];
    println!(
        "{seeds} seeds from {first} of {size:?}: {} put, {} fired, {} again, {} acks fenced, \
         {} cancelled, {} moved, {} kills, {} pauses, {} cuts; late {} / {} / {} ms",
        told.put,
        told.fired,
        told.again,
        told.fenced,
        told.cancelled,
        told.moved,
        told.kills,
        told.pauses,
        told.cuts,
        late(500),
        late(990),
        late(1000),
    );
    assert!(told.again > 0 && told.fenced > 0 && told.cancelled > 0 && told.moved > 0);
}

const LEASE: u64 = 2_000;

fn config() -> Config {
    Config {
        horizon: 2_000,
        near_rows: 1_000,
        near_bytes: 1 << 20,
        page: 100,
        group: 64,
        in_flight: 50,
        redeliver: 500,
        linger: 5,
        refresh: 60_000,
        look: 200,
        margin: 1_000,
    }
}

#[derive(Clone, Copy, Debug)]
struct Size {
    workers: usize,
    stores: usize,
    partitions: u32,
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
    pauses: u64,
    cuts: u64,
    late: Vec<u64>,
}

/// A caller elsewhere may have been told since that look that the timeout will not come.
#[test]
fn a_timeout_is_not_handed_out_on_the_strength_of_an_old_look() {
    let mut keeper: Keeper<()> = Keeper::new(config());
    let mut outbox = Outbox::default();
    let now = |steady| Now { wall: 0, steady };
    lease(&mut keeper, &mut outbox, now(0), Ok(leases(1_000_000)));
    let Some(Call::Load(call)) = keeper.poll(now(0), &mut outbox) else { panic!("it looks") };
    let page = || Page { rows: vec![row(1_001_100)], ..Page::default() };
    // The answer took longer than the margin, and the timeout is due by now.
    keeper.answer(now(1_150), &mut outbox, Answer::Load(call, Ok(page())));
    let mut at = 1_150;
    let call = loop {
        match keeper.poll(now(at), &mut outbox) {
            Some(Call::Load(call)) if call.after == Position::start() => break call,
            // What is further away is no look.
            Some(Call::Load(call)) => {
                keeper.answer(now(at), &mut outbox, Answer::Load(call, Ok(Page::default())));
            }
            Some(call) => panic!("{call:?}"),
            None => {
                let wake = keeper.wake(now(at));
                assert!(at < wake, "it waits, and not in a circle");
                at = wake;
            }
        }
        assert_eq!(outbox.len(), 0);
    };
    keeper.answer(now(at + 1), &mut outbox, Answer::Load(call, Ok(page())));
    keeper.poll(now(at + 1), &mut outbox);
    assert_eq!(outbox.len(), 1);
}

/// Another owner may have handed it out, and without its clock this worker cannot tell.
#[test]
fn before_the_store_told_its_clock_callers_are_told_nothing_but_the_error() {
    let mut keeper: Keeper<()> = Keeper::new(config());
    let mut outbox = Outbox::default();
    let now = |steady| Now { wall: 0, steady };
    lease(&mut keeper, &mut outbox, now(0), Err(Error::store("reach it", "cut")));
    keeper.command(Command { ticket: (), change: Change::cancel("a") });
    assert_eq!(keeper.poll(now(2), &mut outbox), None);
    assert!(matches!(keeper.replies[..], [((), Err(Error::Store { .. }))]));
    lease(&mut keeper, &mut outbox, now(200), Ok(leases(1_000_000)));
}

#[test]
fn a_slow_call_for_leases_takes_nothing_back_and_a_clock_that_was_set_back_does() {
    let mut keeper: Keeper<()> = Keeper::new(config());
    let mut outbox = Outbox::default();
    let mut at = 0;
    // The store's clock, and how long the answer takes to come.
    for (clock, slow, waiting) in [(1_000_000, 0, 0), (1_015_000, 50, 1), (430_000, 0, 0)] {
        let call = loop {
            let now = Now { wall: 0, steady: at };
            match keeper.poll(now, &mut outbox) {
                Some(Call::Lease(call)) => break call,
                Some(Call::Load(call)) => load(&mut keeper, &mut outbox, now, call),
                Some(call) => panic!("{call:?}"),
                None => at = keeper.wake(now),
            }
        };
        at += slow;
        // The keeper looks just before the answer comes.
        let now = Now { wall: 0, steady: at };
        assert_eq!(keeper.poll(now, &mut outbox), None);
        keeper.answer(now, &mut outbox, Answer::Lease(call, Ok(leases(clock))));
        let call = keeper.poll(now, &mut outbox);
        assert_eq!(outbox.len(), waiting, "with the clock at {clock}");
        match call {
            None => {}
            Some(Call::Load(call)) => load(&mut keeper, &mut outbox, now, call),
            Some(call) => panic!("{call:?}"),
        }
    }
}

/// Answers the call for leases that the keeper makes now.
fn lease(keeper: &mut Keeper<()>, outbox: &mut Outbox, now: Now, leases: Result<Leases, Error>) {
    let call = keeper.poll(now, outbox);
    let Some(Call::Lease(call @ LeaseCall { wanted: true, .. })) = call else { panic!("{call:?}") };
    keeper.answer(now, outbox, Answer::Lease(call, leases));
}

fn load(keeper: &mut Keeper<()>, outbox: &mut Outbox, now: Now, call: LoadCall) {
    let page = Page { rows: vec![row(1_000_100)], ..Page::default() };
    keeper.answer(now, outbox, Answer::Load(call, Ok(page)));
}

fn leases(clock: u64) -> Leases {
    Leases {
        held: vec![Lease { partition: 0, epoch: 1 }],
        good_for: Some(Duration::from_secs(60)),
        clock: Some(clock),
    }
}

fn row(deadline: u64) -> Row {
    Row { name: "a".into(), deadline, payload: Arc::from([]), attempt: 0, number: 1, partition: 0 }
}
