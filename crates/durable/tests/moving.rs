//! Moving all from one store into another, with whatever happens meanwhile.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use tickwheel_durable::store::{
    Change, Dead, DeadPage, Done, Held, Lease, Leases, Limit, Loaded, Outcome, Page, Position, Row,
    Settlement, Start, Store, Then,
};
use tickwheel_durable::{Content, Error, MemoryStore, move_all};

#[test]
fn wherever_it_is_cut_off_nothing_is_lost_and_the_next_try_moves_all() {
    let all = contents(&mut full());
    for is_made in [false, true] {
        let mut calls = 0;
        loop {
            calls += 1;
            let (mut from, mut to) = (full(), MemoryStore::new());
            let left = Arc::new(AtomicI64::new(calls));
            let dying = |store: &MemoryStore| Dying {
                store: store.clone(),
                left: Arc::clone(&left),
                is_made,
            };
            let moved = move_all(&mut dying(&from), &mut dying(&to), |_, _| ());
            let (there, here) = (contents(&mut from), contents(&mut to));
            for (name, row) in &all.due {
                let found = [&there, &here].map(|it| it.due.get(name) == Some(row));
                assert!(found.contains(&true), "{name} is lost at call {calls}: {is_made}");
            }
            for (name, letter) in &all.dead {
                let found = [&there, &here].map(|it| it.dead.get(name) == Some(letter));
                assert!(found.contains(&true), "{name} is lost at call {calls}: {is_made}");
            }
            for (name, row) in here.due.iter().filter(|(_, row)| row.0 < NEVER) {
                let letter = all.dead.get(name);
                let letter = letter.map(|it| {
                    (it.deadline, it.payload.to_vec(), it.metadata.to_string(), it.attempt)
                });
                let is_whole = all.due.get(name) == Some(row) || letter.as_ref() == Some(row);
                assert!(is_whole, "{name} would come as {row:?} at call {calls}: {is_made}");
            }
            if let Ok(moved) = moved {
                assert_eq!(here, all);
                let counts = (moved.timeouts, moved.dead, moved.stayed.len());
                assert_eq!(counts, (all.due.len() as u64, all.dead.len() as u64, 0));
                break;
            }
            // The next may be cut off too, and the one after it goes on.
            left.store(calls * 37 % 800 + 1, Ordering::Relaxed);
            let _ = move_all(&mut dying(&from), &mut dying(&to), |_, _| ());
            let moved = move_all(&mut from, &mut to, |_, _| ()).unwrap();
            assert!(moved.stayed.is_empty(), "after call {calls}: {is_made}");
            assert_eq!(contents(&mut to), all, "after call {calls}: {is_made}");
            assert_eq!(contents(&mut from), Contents::default());
        }
        assert!(20 < calls, "it had {calls} calls");
    }
}

#[test]
fn those_that_never_come_are_moved_by_as_many_calls_as_others() {
    let calls = [1_800_000_000_000, NEVER].map(|deadline| {
        let (mut from, to) = (MemoryStore::new(), MemoryStore::new());
        let put = |n| Change::put(&format!("order-{n:04}"), deadline, b"");
        from.commit(&[], &(0..5_000).map(put).collect::<Vec<_>>()).unwrap();
        let left = Arc::new(AtomicI64::new(i64::MAX));
        let counted = |store| Dying { store, left: Arc::clone(&left), is_made: false };
        let moved = move_all(&mut counted(from), &mut counted(to), |_, _| ()).unwrap();
        assert_eq!(moved.timeouts, 5_000);
        i64::MAX - left.load(Ordering::Relaxed)
    });
    assert_eq!(calls[0], calls[1]);
}

#[test]
fn what_the_other_store_has_stays_and_what_has_its_name_stays_too() {
    let (mut from, mut to) = (MemoryStore::new(), MemoryStore::new());
    let [letter, other] = [dead("dead", 3, 7), dead("dead", 4, 8)];
    for name in ["free", "moved", "other", "same"] {
        put(&mut from, name, 10, (b"new", "shop 3"), 0);
    }
    bury(&mut from, &[letter.clone(), dead("alive", 1, 2)]);
    put(&mut to, "moved", 11, (b"new", "shop 3"), 0);
    put(&mut to, "other", 10, (b"new", "shop 4"), 0);
    put(&mut to, "alive", 12, b"", 0);
    put(&mut to, "same", 10, (b"new", "shop 3"), 0);
    bury(&mut to, std::slice::from_ref(&other));
    let moved = move_all(&mut from, &mut to, |_, _| ()).unwrap();
    let stayed: Vec<&str> = moved.stayed.iter().map(|name| &**name).collect();
    assert_eq!(stayed, ["alive", "dead", "moved", "other"]);
    assert_eq!((moved.timeouts, moved.dead), (2, 0));
    let (left, there) = (contents(&mut from), contents(&mut to));
    assert_eq!(left.due.keys().collect::<Vec<_>>(), ["moved", "other"]);
    assert_eq!(left.dead.keys().collect::<Vec<_>>(), ["alive", "dead"]);
    assert_eq!(there.due["moved"].0, 11);
    assert_eq!(there.due["free"], (10, b"new".to_vec(), "shop 3".to_owned(), 0));
    assert_eq!(there.dead["dead"], other);
    assert_eq!(there.due["alive"].0, 12);
}

#[test]
fn what_callers_do_in_the_first_store_meanwhile_holds_in_the_second() {
    let mut from = MemoryStore::new();
    for n in 0..1_200 {
        put(&mut from, &format!("{n}"), 1_000 + n, b"", 0);
    }
    bury(&mut from, &[dead("dropped", 1, 2), dead("retried", 1, 2)]);
    let mut caller = from.clone();
    let mut commits = 0;
    let mut to = Watched {
        store: MemoryStore::new(),
        before: move |store: &mut MemoryStore, _: &[Change]| {
            commits += 1;
            let changes = match commits {
                1 => vec![Change::drop_dead("dropped"), Change::revive("retried", 5)],
                // These were read, and are on their way.
                5 => vec![
                    Change::cancel("3"),
                    Change::put("4", 7_000, b"moved"),
                    Change::put("5", 1, b"moved"),
                    Change::put("before all", 1, b""),
                ],
                _ => vec![],
            };
            caller.commit(&[], &changes).map(|_| store.clone())
        },
    };
    move_all(&mut from, &mut to, |_, _| ()).unwrap();
    let there = contents(&mut to.store);
    assert_eq!(contents(&mut from), Contents::default());
    assert_eq!(there.due.get("3"), None, "it was cancelled");
    assert_eq!(there.due["4"], (7_000, b"moved".to_vec(), String::new(), 0));
    assert_eq!(there.due["5"], (1, b"moved".to_vec(), String::new(), 0));
    assert!(there.due.contains_key("before all"));
    assert_eq!(there.due["retried"].0, 5);
    assert_eq!(there.dead, BTreeMap::new());
    assert_eq!(there.due.len(), 1_201);
}

#[test]
fn it_ends_where_another_worker_has_taken_over_and_takes_back_what_was_on_its_way() {
    let mut from = full();
    let all = contents(&mut from);
    let mut other = from.clone();
    let mut commits = 0;
    let mut to = Watched {
        store: MemoryStore::new(),
        before: move |store: &mut MemoryStore, _: &[Change]| {
            commits += 1;
            // The second batch is on its way.
            if commits == 9 {
                other.lease(true, &[])?;
            }
            Ok(store.clone())
        },
    };
    let error = move_all(&mut from, &mut to, |_, _| ()).unwrap_err();
    assert!(error.to_string().contains("a worker has taken"), "{error}");
    let (left, there) = (contents(&mut from), contents(&mut to.store));
    assert!(!left.due.is_empty() && !there.due.is_empty());
    for name in left.due.keys() {
        assert!(!there.due.contains_key(name), "{name} would come twice");
    }
    assert_eq!(left.due.len() + there.due.len(), all.due.len());
}

#[test]
fn workers_that_run_are_told_and_nothing_is_moved() {
    let (mut from, mut to) = (full(), MemoryStore::new());
    let all = contents(&mut from);
    let shared = |store: &MemoryStore| Shared { store: store.clone(), given_back: false };
    let mut busy = shared(&from);
    let error = move_all(&mut busy, &mut to, |_, _| ()).unwrap_err();
    assert!(error.to_string().contains("stop them first"), "{error}");
    assert!(busy.given_back);
    let mut busy = shared(&to);
    let error = move_all(&mut from, &mut busy, |_, _| ()).unwrap_err();
    assert!(error.to_string().contains("stop them first"), "{error}");
    assert!(busy.given_back);
    assert_eq!(contents(&mut from), all);
    assert_eq!(contents(&mut to), Contents::default());
}

#[test]
fn what_is_not_there_as_it_was_put_stays_in_the_first_store() {
    let mut from = MemoryStore::new();
    for n in 0..9 {
        put(&mut from, &format!("{n}"), 5, b"", 0);
    }
    let mut to = Watched {
        store: MemoryStore::new(),
        // It says that it has them, and has none.
        before: |_: &mut MemoryStore, _: &[Change]| Ok(MemoryStore::new()),
    };
    let error = move_all(&mut from, &mut to, |_, _| ()).unwrap_err();
    assert!(error.to_string().contains("not in the other store as it was put"), "{error}");
    assert_eq!(from.count().unwrap(), 9);
}

#[test]
fn what_callers_put_in_the_second_store_by_the_same_name_is_told() {
    let (mut from, mut commits) = (MemoryStore::new(), 0);
    put(&mut from, "a", 5, b"", 0);
    let mut to = Watched {
        store: MemoryStore::new(),
        before: move |store: &mut MemoryStore, _: &[Change]| {
            commits += 1;
            if commits == 1 {
                store.commit(&[], &[Change::put("a", 9, b"theirs")])?;
            }
            Ok(store.clone())
        },
    };
    let error = move_all(&mut from, &mut to, |_, _| ()).unwrap_err();
    assert!(error.to_string().contains("is replaced; schedule it again"), "{error}");
}

/// Everything that a store has: due by name with deadline, payload, metadata and attempt; and dead
/// letters.
#[derive(Debug, Default, PartialEq)]
struct Contents {
    due: BTreeMap<String, (u64, Vec<u8>, String, u32)>,
    dead: BTreeMap<String, Dead>,
}

fn contents(store: &mut dyn Store) -> Contents {
    let limit = Limit { rows: usize::MAX, bytes: usize::MAX };
    let rows = store.list(&Position::start(), u64::MAX, limit).unwrap().rows;
    let letters = store.list_dead("", limit).unwrap().letters;
    let due = |Row { name, deadline, payload, metadata, attempt, .. }: Row| {
        (name.to_string(), (deadline, payload.to_vec(), metadata.to_string(), attempt))
    };
    Contents {
        due: rows.into_iter().map(due).collect(),
        dead: letters.into_iter().map(|letter| (letter.name.to_string(), letter)).collect(),
    }
}

/// Two batches of timeouts, some of which were handed out before, and some dead letters. One name
/// has both.
fn full() -> MemoryStore {
    let mut store = MemoryStore::new();
    let letters: Vec<Dead> = (0..7).map(|n| dead(&format!("dead {n}"), n, n / 3)).collect();
    bury(&mut store, &letters);
    for n in 0..600_u32 {
        let metadata = "x".repeat(n as usize % 3);
        put(&mut store, &format!("{n}"), 1_000 + u64::from(n / 3), (&[n as u8], &*metadata), n % 5);
    }
    put(&mut store, "dead 3", 2_000, b"again", 0);
    store
}

fn dead(name: &str, attempt: u64, died: u64) -> Dead {
    let payload = Arc::from(name.as_bytes());
    let (metadata, attempt) = (format!("of {died}").into(), attempt as u32);
    Dead { name: name.into(), deadline: 500 + died, payload, metadata, attempt, died }
}

fn put<'a>(
    store: &mut MemoryStore,
    name: &str,
    deadline: u64,
    content: impl Into<Content<'a>>,
    attempt: u32,
) -> Row {
    let row = change(store, Change::put(name, deadline, content));
    let then = Then::Again { at: deadline, attempt };
    settle(store, &row, then).expect("it comes again")
}

fn bury(store: &mut MemoryStore, letters: &[Dead]) {
    for letter in letters {
        let content = (&*letter.payload, &*letter.metadata);
        let row = put(store, &letter.name, letter.deadline, content, letter.attempt);
        settle(store, &row, Then::Dead { at: letter.died });
    }
}

fn change(store: &mut MemoryStore, change: Change) -> Row {
    let mut done = store.commit(&[], &[change]).unwrap();
    done.changed.pop().unwrap().unwrap().row.expect("it was put")
}

fn settle(store: &mut MemoryStore, row: &Row, then: Then) -> Option<Row> {
    let lease = store.lease(true, &[]).unwrap().held[0];
    let settlement = Settlement { held: Held::new(row, lease), then };
    match store.commit(&[settlement], &[]).unwrap().outcomes.pop() {
        Some(Outcome::Settled(row)) => row,
        outcome => panic!("{outcome:?}"),
    }
}

/// A store of a process that dies at one of its calls, before that is made or after.
struct Dying {
    store: MemoryStore,
    left: Arc<AtomicI64>,
    is_made: bool,
}

impl Dying {
    fn call<R>(
        &mut self,
        call: impl FnOnce(&mut MemoryStore) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let dead = || Err(Error::store("go on", "it was killed"));
        match self.left.fetch_sub(1, Ordering::Relaxed) {
            1 if self.is_made => call(&mut self.store).and_then(|_| dead()),
            ..=1 => dead(),
            _ => call(&mut self.store),
        }
    }
}

impl Store for Dying {
    fn lease(&mut self, wanted: bool, given_back: &[u32]) -> Result<Leases, Error> {
        self.call(|store| store.lease(wanted, given_back))
    }

    fn load(&mut self, from: &[Start], until: u64, limit: Limit) -> Result<Loaded, Error> {
        self.call(|store| store.load(from, until, limit))
    }

    fn commit(&mut self, settlements: &[Settlement], changes: &[Change]) -> Result<Done, Error> {
        self.call(|store| store.commit(settlements, changes))
    }

    fn get(&mut self, name: &str) -> Result<Option<Row>, Error> {
        self.call(|store| store.get(name))
    }

    fn list(&mut self, after: &Position, until: u64, limit: Limit) -> Result<Page, Error> {
        self.call(|store| store.list(after, until, limit))
    }

    fn count(&mut self) -> Result<u64, Error> {
        self.call(MemoryStore::count)
    }

    fn list_dead(&mut self, after: &str, limit: Limit) -> Result<DeadPage, Error> {
        self.call(|store| store.list_dead(after, limit))
    }

    fn get_dead(&mut self, name: &str) -> Result<Option<Dead>, Error> {
        self.call(|store| store.get_dead(name))
    }
}

/// A store with something that happens before each commit, which goes to the store that it returns.
struct Watched<F> {
    store: MemoryStore,
    before: F,
}

impl<F> Store for Watched<F>
where
    F: FnMut(&mut MemoryStore, &[Change]) -> Result<MemoryStore, Error> + Send,
{
    fn lease(&mut self, wanted: bool, given_back: &[u32]) -> Result<Leases, Error> {
        self.store.lease(wanted, given_back)
    }

    fn load(&mut self, from: &[Start], until: u64, limit: Limit) -> Result<Loaded, Error> {
        self.store.load(from, until, limit)
    }

    fn commit(&mut self, settlements: &[Settlement], changes: &[Change]) -> Result<Done, Error> {
        (self.before)(&mut self.store, changes)?.commit(settlements, changes)
    }

    fn get(&mut self, name: &str) -> Result<Option<Row>, Error> {
        self.store.get(name)
    }

    fn list(&mut self, after: &Position, until: u64, limit: Limit) -> Result<Page, Error> {
        self.store.list(after, until, limit)
    }

    fn count(&mut self) -> Result<u64, Error> {
        self.store.count()
    }

    fn list_dead(&mut self, after: &str, limit: Limit) -> Result<DeadPage, Error> {
        self.store.list_dead(after, limit)
    }

    fn get_dead(&mut self, name: &str) -> Result<Option<Dead>, Error> {
        self.store.get_dead(name)
    }
}

/// A store that another worker has too.
struct Shared {
    store: MemoryStore,
    given_back: bool,
}

impl Store for Shared {
    fn lease(&mut self, wanted: bool, given_back: &[u32]) -> Result<Leases, Error> {
        self.given_back |= !wanted && given_back == [0];
        let held = vec![Lease { partition: 0, epoch: 1 }];
        let good_for = Some(std::time::Duration::from_secs(9));
        let leases = self.store.lease(wanted, given_back)?;
        Ok(Leases { held, good_for, owners: 2, clock: Some(0), ..leases })
    }

    fn load(&mut self, from: &[Start], until: u64, limit: Limit) -> Result<Loaded, Error> {
        self.store.load(from, until, limit)
    }

    fn commit(&mut self, _: &[Settlement], _: &[Change]) -> Result<Done, Error> {
        panic!("nothing may be changed")
    }

    fn get(&mut self, name: &str) -> Result<Option<Row>, Error> {
        self.store.get(name)
    }

    fn list(&mut self, after: &Position, until: u64, limit: Limit) -> Result<Page, Error> {
        self.store.list(after, until, limit)
    }

    fn count(&mut self) -> Result<u64, Error> {
        self.store.count()
    }

    fn list_dead(&mut self, after: &str, limit: Limit) -> Result<DeadPage, Error> {
        self.store.list_dead(after, limit)
    }

    fn get_dead(&mut self, name: &str) -> Result<Option<Dead>, Error> {
        self.store.get_dead(name)
    }
}

/// What is put with this deadline does not come.
const NEVER: u64 = i64::MAX as u64;
