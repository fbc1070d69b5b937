//! The keeper on redb on a disk that loses power.

use std::collections::BTreeMap;
use std::sync::Arc;

use fastrand::Rng;

use super::disk::Disk;
use crate::keeper::outbox::Outbox;
use crate::keeper::{Answer, Call, Command, Config, Keeper, Now, Request, Settled};
use crate::store::{Limit, Op, Outcome, Position, Row, Store};

#[test]
fn no_power_cut_loses_or_changes_what_was_committed() {
    let runs =
        std::env::var("TICKWHEEL_DURABLE_POWER_RUNS").map_or(10, |runs| runs.parse().unwrap());
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
    store.lease(true).unwrap();
    let before = disk.syncs();
    for n in 0..100 {
        let op = Op::Put { name: format!("{n}").into(), deadline: n, payload: Arc::from([]) };
        store.commit(&[op]).unwrap();
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
    for _ in 0..12 {
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
        let Ok(page) = store.load(None, &Position::start(), u64::MAX, limit) else { continue };
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
    });
    let mut outbox = Outbox::default();
    let mut now = Now { wall: 1_000_000, steady: 0 };
    let mut ticket = 0;
    loop {
        for _ in 0..rng.usize(0..6) {
            let name: Arc<str> = format!("{}", rng.u32(0..300)).into();
            let request = if rng.u32(0..5) == 0 {
                Request::Cancel { name }
            } else {
                let payload = (0..rng.usize(0..200)).map(|_| rng.u8(..)).collect();
                Request::Put { name, deadline: now.wall + rng.u64(0..3_000), payload }
            };
            ticket += 1;
            keeper.command(Command { ticket, request });
        }
        if let Some((row, _)) = outbox.take() {
            let settled = match rng.u32(0..4) {
                0 => Settled::Retry { delay: 500 },
                1 => Settled::Dropped,
                _ => Settled::Ack,
            };
            keeper.settle(now, row.number, settled);
        }
        let step = rng.u64(0..10);
        now = Now { wall: now.wall + step, steady: now.steady + step };
        let Some(call) = keeper.poll(now, &mut outbox) else { continue };
        let answer = match &call {
            Call::Commit { ops } => {
                told.commits += 1;
                let mut after = apply(rows.clone(), ops, told);
                match store.commit(ops) {
                    Ok(outcomes) => {
                        for outcome in &outcomes {
                            let (Outcome::Put { row, .. } | Outcome::Retried(row)) = outcome else {
                                continue;
                            };
                            if let Some(known) = after.get_mut(&row.name) {
                                known.number = row.number;
                            }
                        }
                        rows = after;
                        Ok(Answer::Outcomes(outcomes))
                    }
                    Err(_) => {
                        told.in_doubt += 1;
                        return vec![rows, after];
                    }
                }
            }
            call => call.make(store),
        };
        if answer.is_err() {
            return vec![rows];
        }
        keeper.answer(now, &mut outbox, answer);
        keeper.replies.clear();
    }
}

fn apply(mut rows: Rows, ops: &[Op], told: &mut Told) -> Rows {
    for op in ops {
        match op {
            Op::Put { name, deadline, payload } => {
                let row = Row {
                    name: name.clone(),
                    deadline: *deadline,
                    payload: payload.clone(),
                    attempt: 0,
                    number: 0,
                    partition: 0,
                };
                rows.insert(name.clone(), row);
            }
            Op::Cancel { name } => drop(rows.remove(name)),
            Op::Ack(held) | Op::Retry(held, _)
                if rows.get(&held.name).is_none_or(|row| row.number != held.number) => {}
            Op::Ack(held) => {
                told.acked += 1;
                rows.remove(&held.name);
            }
            Op::Retry(held, deadline) => {
                let row = rows.get_mut(&held.name).expect("it is there");
                row.deadline = *deadline;
                row.attempt += 1;
                row.number = 0;
            }
        }
    }
    rows
}
