//! The keeper on redb on a disk that loses power.

use std::collections::BTreeMap;
use std::sync::Arc;

use fastrand::Rng;

use super::disk::Disk;
use crate::keeper::outbox::Outbox;
use crate::keeper::{Answer, Call, Command, Config, Keeper, Now, Settled};
use crate::store::{Change, Changed, Limit, Outcome, Position, Row, Settlement, Store, Then};

#[test]
fn no_power_cut_loses_or_changes_what_was_committed() {
    let runs =
        std::env::var("TICKWHEEL_DURABLE_POWER_RUNS").map_or(1, |runs| runs.parse().unwrap());
    let mut told = Told::default();
    for seed in 0..runs {
        run(seed, 0, &mut told).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
    }
    println!("{runs} runs: {told:?}");
    assert!(told.while_opening > 0 && told.in_doubt > 0, "the cuts are everywhere: {told:?}");
}

/// The test above has teeth.
#[test]
fn with_syncs_left_out_a_power_cut_loses_what_was_committed() {
    let mut told = Told::default();
    let wrong = (0..20).find_map(|seed| run(seed, 2, &mut told).err());
    println!("{wrong:?} after {told:?}");
    assert!(wrong.is_some());
}

#[test]
fn a_commit_costs_one_sync() {
    let disk = Disk::new(Rng::with_seed(1));
    let mut store = disk.open().unwrap();
    store.lease(true, &[]).unwrap();
    let before = disk.syncs();
    for n in 0..100 {
        store.commit(&[], &[Change::put(&format!("{n}"), n, &[])]).unwrap();
    }
    // The file grows now and then, which costs one more.
    let syncs = disk.syncs() - before;
    assert!((100..=120).contains(&syncs), "{syncs}");
}

#[derive(Debug, Default)]
struct Told {
    cuts: u64,
    while_opening: u64,
    commits: u64,
    in_doubt: u64,
    acked: u64,
}

type Rows = BTreeMap<Arc<str>, Row>;

/// Takes the numbers out, because those of a commit in doubt are not known.
fn plain(rows: &Rows) -> Vec<Row> {
    rows.values().map(|row| Row { number: 0, ..row.clone() }).collect()
}

fn run(seed: u64, forgets: u64, told: &mut Told) -> Result<(), String> {
    let mut rng = Rng::with_seed(seed);
    let disk = Disk::new(rng.fork());
    drop(disk.open().map_err(|error| error.to_string())?);
    disk.forget_one_sync_in(forgets);
    // What is on the disk: one of these.
    let mut possible = vec![Rows::new()];
    let is_whole = ["CI", "TICKWHEEL_LONG"].iter().any(|name| std::env::var_os(name).is_some());
    for _ in 0..if is_whole { 12 } else { 6 } {
        // A quarter of the cuts come soon after opening.
        let operations = if rng.u32(0..4) == 0 { 40 } else { 3_000 };
        disk.cut_after(rng.u64(1..operations));
        told.cuts += 1;
        let Ok(mut store) = disk.open() else {
            if disk.is_on() {
                return Err("it cannot be opened, with the power on".to_owned());
            }
            told.while_opening += 1;
            continue;
        };
        let limit = Limit { rows: usize::MAX, bytes: usize::MAX };
        let Ok(page) = store.list(&Position::start(), u64::MAX, limit) else { continue };
        if !page.damaged.is_empty() {
            return Err(format!("damaged: {:?}", page.damaged));
        }
        let rows: Rows = page.rows.into_iter().map(|row| (row.name.clone(), row)).collect();
        if !possible.iter().any(|possible| plain(possible) == plain(&rows)) {
            return Err(format!("{} rows, and not those committed", rows.len()));
        }
        possible = live(&mut rng, &mut store, rows, told);
        if disk.is_on() {
            return Err("an error with the power on".to_owned());
        }
    }
    Ok(())
}

/// Runs a keeper until the power fails. Returns what may be on the disk then.
fn live(rng: &mut Rng, store: &mut impl Store, mut rows: Rows, told: &mut Told) -> Vec<Rows> {
    let mut keeper = Keeper::new(Config {
        horizon: 1_000,
        near_rows: 50,
        near_bytes: 100_000,
        page: 20,
        group: 16,
        in_flight: 8,
        redeliver: 100,
        linger: 5,
        refresh: 5_000,
        look: 200,
        margin: 1_000,
        max_attempts: None,
        visibility: None,
        rate: None,
    });
    let mut outbox = Outbox::default();
    let mut now = Now { wall: 1_000_000, steady: 0 };
    let mut ticket = 0;
    loop {
        for _ in 0..rng.usize(0..6) {
            let name = format!("{}", rng.u32(0..300));
            let change = if rng.u32(0..5) == 0 {
                Change::cancel(&name)
            } else {
                let payload: Vec<u8> = (0..rng.usize(0..200)).map(|_| rng.u8(..)).collect();
                let metadata = "x".repeat(rng.usize(0..20));
                Change::put(&name, now.wall + rng.u64(0..3_000), (&payload, &*metadata))
            };
            ticket += 1;
            keeper.command(Command { ticket, change });
        }
        if let Some((row, epoch)) = outbox.take(now.steady) {
            let settled = match rng.u32(0..4) {
                0 if rng.bool() => Settled::Next { at: now.wall + 500 },
                0 => Settled::Retry { delay: 500 },
                1 => Settled::Dropped,
                _ => Settled::Ack,
            };
            keeper.settle(now, (row.number, epoch), settled);
        }
        let step = rng.u64(0..10);
        now = Now { wall: now.wall + step, steady: now.steady + step };
        let Some(call) = keeper.poll(now, &mut outbox) else { continue };
        let after = match &call {
            Call::Commit(call) => {
                told.commits += 1;
                Some(apply(rows.clone(), &call.settlements, &call.changes, told))
            }
            _ => None,
        };
        let answer = call.make(store);
        if answer.is_err() {
            told.in_doubt += u64::from(after.is_some());
            return std::iter::once(rows).chain(after).collect();
        }
        if let (Some(mut after), Answer::Commit(_, Ok(done))) = (after, &answer) {
            let retried = done.outcomes.iter().filter_map(|outcome| match outcome {
                Outcome::Settled(row) => row.as_ref(),
                _ => None,
            });
            let put = done.changed.iter().flatten().filter_map(|Changed { row, .. }| row.as_ref());
            for row in retried.chain(put) {
                if let Some(known) = after.get_mut(&row.name) {
                    known.number = row.number;
                }
            }
            rows = after;
        }
        keeper.answer(now, &mut outbox, answer);
        keeper.replies.clear();
    }
}

fn apply(mut rows: Rows, settlements: &[Settlement], changes: &[Change], told: &mut Told) -> Rows {
    for Settlement { held, then } in settlements {
        if rows.get(&held.name).is_none_or(|row| row.number != held.number) {
            continue;
        }
        let row = rows.remove(&held.name).expect("it is there");
        match *then {
            Then::Done => told.acked += 1,
            Then::Again { at, attempt } => {
                let row = Row { deadline: at, attempt, number: 0, ..row };
                rows.insert(held.name.clone(), row);
            }
            Then::Counted { .. } | Then::Dead { .. } => unreachable!("no most is set"),
        }
    }
    for change @ Change { name, .. } in changes {
        rows.remove(name);
        rows.extend(change.as_put().cloned().map(|put| {
            let row = Row {
                name: name.clone(),
                deadline: put.deadline,
                payload: put.payload,
                metadata: put.metadata,
                attempt: 0,
                number: 0,
                partition: 0,
            };
            (name.clone(), row)
        }));
    }
    rows
}
