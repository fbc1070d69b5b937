//! Files in which one place was damaged.

use std::collections::BTreeMap;
use std::sync::Arc;

use fastrand::Rng;

use super::RedbStore;
use super::disk::Disk;
use crate::Error;
use crate::store::{Change, Held, Limit, Position, Row, Settlement, Store, Then};

#[test]
fn damage_is_an_error_or_a_row_set_aside_or_the_last_commit() {
    let tries = std::env::var("TICKWHEEL_DURABLE_DAMAGE_TRIES").map_or(1, |n| n.parse().unwrap());
    for closes in [false, true] {
        let whole = Whole::new(closes);
        for kind in ["a bit flipped", "cut", "4 KB of zeros"] {
            let mut told: BTreeMap<&str, u64> = BTreeMap::new();
            for seed in 0..tries {
                let found = whole.damage(kind, seed).unwrap_or_else(|wrong| {
                    panic!("{kind}, closed {closes}, seed {seed}: {wrong}")
                });
                *told.entry(found).or_default() += 1;
            }
            println!("{kind}, {}: {told:?}", if closes { "closed well" } else { "killed" });
        }
    }
}

/// As where a command that takes no lease is run twice.
#[test]
fn a_number_is_given_once_however_often_a_file_is_opened() {
    let disk = Disk::new(Rng::with_seed(1));
    let mut numbers = Vec::new();
    for name in ["a", "b", "c"] {
        let mut store = disk.open().unwrap();
        let done = store.commit(&[], &[Change::put(name, 1, &[])]).unwrap();
        numbers.extend(done.changed.into_iter().map(|it| it.unwrap().row.unwrap().number));
    }
    numbers.dedup();
    assert_eq!(numbers.len(), 3, "{numbers:?}");
}

#[test]
fn a_damaged_row_is_set_aside_and_all_others_go_on() {
    let disk = Disk::new(Rng::with_seed(1));
    let mut store = disk.open().unwrap();
    let leases = store.lease(true, &[]).unwrap().held;
    let names = ["a", "b", "c"];
    let puts: Vec<Change> =
        names.iter().zip(1..).map(|(name, n)| Change::put(name, n, &[n as u8; 40])).collect();
    store.commit(&[], &puts).unwrap();
    drop(store);
    rot(&disk, [2; 40]);
    let mut store = disk.open().unwrap();
    let leases_now = store.lease(true, &[]).unwrap().held;
    assert!(leases[0].epoch < leases_now[0].epoch);
    let limit = Limit { rows: 1, bytes: usize::MAX };
    let page = store.list(&Position::start(), u64::MAX, limit).unwrap();
    assert_eq!(&*page.rows[0].name, "a");
    let page = store.list(&page.end.unwrap(), u64::MAX, limit).unwrap();
    assert_eq!(&*page.rows[0].name, "c");
    assert_eq!((&page.damaged[0].name[..], page.damaged[0].deadline), ("b", 2));
    // It is aside now, and nobody is told again.
    let page = store.list(&Position::start(), u64::MAX, limit).unwrap();
    let page = store.list(&page.end.unwrap(), u64::MAX, limit).unwrap();
    assert!(page.damaged.is_empty());
    assert_eq!(store.count().unwrap(), 2);
    assert_eq!(store.get("b").unwrap(), None);
    // Its name can be used again.
    store.commit(&[], &[Change::put("b", 9, b"new")]).unwrap();
    assert_eq!(store.get("b").unwrap().unwrap().deadline, 9);
}

#[test]
fn each_row_that_is_set_aside_is_told_where_many_have_one_deadline() {
    let disk = Disk::new(Rng::with_seed(1));
    let mut store = disk.open().unwrap();
    store.lease(true, &[]).unwrap();
    let puts: Vec<Change> = ["a", "b", "c", "d", "e"]
        .iter()
        .zip(1..)
        .map(|(name, n)| Change::put(name, 2, &[if n % 2 == 0 { 200 } else { n }; 40]))
        .collect();
    store.commit(&[], &puts).unwrap();
    drop(store);
    rot(&disk, [200; 40]);
    let mut store = disk.open().unwrap();
    store.lease(true, &[]).unwrap();
    // A page ends at the row that is whole between the two.
    let limit = Limit { rows: 2, bytes: usize::MAX };
    let (mut after, mut told) = (Position::start(), Vec::new());
    loop {
        let page = store.list(&after, u64::MAX, limit).unwrap();
        told.extend(page.damaged.into_iter().map(|damaged| damaged.name));
        let Some(end) = page.end else { break };
        after = end;
    }
    assert_eq!(told, ["b", "d"]);
    assert_eq!((store.set_aside().unwrap(), store.count().unwrap()), (2, 3));
}

#[test]
fn a_damaged_page_is_an_error() {
    let disk = Disk::new(Rng::with_seed(1));
    let mut store = disk.open().unwrap();
    let puts: Vec<Change> =
        (1..=32).map(|n| Change::put(&n.to_string(), n, &[n as u8; 40])).collect();
    store.commit(&[], &puts).unwrap();
    drop(store);
    disk.damage(|bytes| {
        // How many rows each page says that it has, which is of no row's checksum.
        for page in bytes.chunks_mut(PAGE).filter(|page| page[0] == LEAF && page[2] == 32) {
            page[2] = 29;
        }
    });
    let mut store = disk.open().unwrap();
    store.lease(true, &[]).unwrap();
    assert!(rows(&mut store).is_err());
}

/// The engine takes a commit for good that was damaged, too, if it says that there are no tables.
#[test]
fn a_file_that_has_lost_all_is_no_new_one() {
    for commit in [64, 192] {
        let disk = Disk::new(Rng::with_seed(1));
        let mut store = disk.open().unwrap();
        store.commit(&[], &[Change::put("a", 1, b"")]).unwrap();
        disk.kill();
        drop(store);
        disk.damage(|bytes| {
            bytes[commit + 1..commit + 128].fill(0);
            bytes[PAGE..].fill(0);
        });
        let error = disk.open().err().unwrap().to_string();
        assert!(error.contains("restore a copy"), "{error}");
    }
}

#[test]
fn a_new_file_that_power_cut_off_while_it_was_made_has_lost_nothing() {
    let mut made = 0;
    for cut in 1..=400 {
        let disk = Disk::new(Rng::with_seed(cut));
        disk.cut_after(1 + cut % 40);
        drop(disk.open());
        disk.cut_after(u64::MAX);
        match disk.open() {
            Ok(_) => made += 1,
            // The length is there, and nothing else.
            Err(error) => assert!(error.to_string().contains("magic number"), "{cut}: {error}"),
        }
    }
    assert!(200 < made);
}

/// Damages each copy of this payload, of which the last commits left some.
fn rot(disk: &Disk, payload: [u8; 40]) {
    disk.damage(|bytes| {
        for at in 0..bytes.len() - payload.len() {
            if bytes[at..at + payload.len()] == payload {
                bytes[at + 7] = 77;
            }
        }
    });
}

/// A file before it is damaged.
struct Whole {
    bytes: Vec<u8>,
    rows: BTreeMap<Arc<str>, Row>,
    before_last: BTreeMap<Arc<str>, Row>,
}

impl Whole {
    fn new(closes: bool) -> Self {
        let disk = Disk::new(Rng::with_seed(7));
        let mut store = disk.open().unwrap();
        store.lease(true, &[]).unwrap();
        let mut rng = Rng::with_seed(1);
        let mut before_last = BTreeMap::new();
        for commit in 0..COMMITS {
            if commit == COMMITS - 1 {
                before_last = rows(&mut store).unwrap().0;
            }
            let puts: Vec<Change> = (0..ROWS / COMMITS)
                .map(|n| {
                    let payload: Vec<u8> = (0..rng.usize(0..200)).map(|_| rng.u8(..)).collect();
                    let metadata = if n % 2 == 0 { "" } else { "shop 3" };
                    let content = (&payload, metadata);
                    Change::put(&format!("{commit}/{n}"), rng.u64(0..1_000_000), content)
                })
                .collect();
            store.commit(&[], &puts).unwrap();
        }
        let rows = rows(&mut store).unwrap().0;
        if !closes {
            disk.kill();
        }
        drop(store);
        Self { bytes: disk.contents(), rows, before_last }
    }

    /// Damages a copy and uses it. Returns what came of it, or what must not be.
    fn damage(&self, kind: &str, seed: u64) -> Result<&'static str, String> {
        let mut rng = Rng::with_seed(seed);
        let disk = Disk::new(rng.fork());
        disk.damage(|bytes| {
            bytes.clone_from(&self.bytes);
            let at = rng.usize(0..bytes.len());
            match kind {
                "a bit flipped" => bytes[at] ^= 1 << rng.u32(0..8),
                "cut" => bytes.truncate(at),
                _ => {
                    let end = (at + 4096).min(bytes.len());
                    bytes[at..end].fill(0);
                }
            }
        });
        match self.use_all(&disk) {
            Ok(found) => Ok(found),
            Err(Wrong::Told(_)) => Ok("error"),
            Err(Wrong::Unsaid(wrong)) => Err(wrong),
        }
    }

    fn use_all(&self, disk: &Disk) -> Result<&'static str, Wrong> {
        let mut store = disk.open()?;
        let leases = store.lease(true, &[])?.held;
        let (found, damaged) = rows(&mut store)?;
        for row in found.values() {
            let put = self.rows.get(&row.name);
            let same = put
                .is_some_and(|put| (put.deadline, put.content()) == (row.deadline, row.content()));
            if !same {
                return Err(Wrong::Unsaid(format!("a wrong row: {row:?}, put as {put:?}")));
            }
        }
        let found = if found == self.rows {
            "no harm"
        } else if found == self.before_last {
            "the last commit gone"
        } else if found.len() + damaged == self.rows.len() {
            "set aside"
        } else {
            return Err(Wrong::Unsaid(format!(
                "{} of {} rows are there, and {damaged} told",
                found.len(),
                self.rows.len()
            )));
        };
        // All that a timer does goes on, or is an error.
        for row in self.rows.values() {
            store.get(&row.name)?;
        }
        let (rows, _) = rows(&mut store)?;
        let (mut settlements, mut changes) = (Vec::new(), Vec::new());
        for (n, row) in rows.values().enumerate() {
            let held = Held::new(row, leases[0]);
            match n % 3 {
                0 => changes.push(Change::cancel(&row.name)),
                1 => settlements.push(Settlement { held, then: Then::Done }),
                _ => {
                    let then = Then::Again { at: n as u64, attempt: 1 };
                    settlements.push(Settlement { held, then });
                }
            }
        }
        for settlements in settlements.chunks(100) {
            store.commit(settlements, &[])?;
        }
        for changes in changes.chunks(100) {
            store.commit(&[], changes)?;
        }
        Ok(found)
    }
}

enum Wrong {
    Told(#[expect(dead_code)] Error),
    Unsaid(String),
}

impl From<Error> for Wrong {
    fn from(error: Error) -> Self {
        Self::Told(error)
    }
}

fn rows(store: &mut RedbStore) -> Result<(BTreeMap<Arc<str>, Row>, usize), Error> {
    let limit = Limit { rows: usize::MAX, bytes: usize::MAX };
    let page = store.list(&Position::start(), u64::MAX, limit)?;
    let rows = page.rows.into_iter().map(|row| (row.name.clone(), row)).collect();
    Ok((rows, page.damaged.len()))
}

/// How many rows, in how many commits.
const ROWS: u64 = 2_000;
const COMMITS: u64 = 40;
/// The bytes of a page, and the first of one with rows.
const PAGE: usize = 4096;
const LEAF: u8 = 1;
