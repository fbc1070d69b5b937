//! Tests of a [`Store`], for those who write one.
//!
//! ```
//! use tickwheel_durable::{MemoryStore, suite};
//!
//! suite::check(MemoryStore::new);
//! // What a crash leaves is to be tested too: by opening the same place again.
//! let place = MemoryStore::new();
//! suite::check_reopening(|| place.clone());
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::Content;
use crate::store::{
    Change, Changed, Dead, Held, Lease, Limit, Outcome, Page, Position, RateLimit, Replaced, Row,
    Settlement, Start, Store, Then,
};

/// Checks everything that [`Store`] asks for and that one process can see, on stores that `empty`
/// makes. Each must be new and have nothing in it.
///
/// # Panics
///
/// If the store does not do what it must; the message says what.
pub fn check<S: Store>(mut empty: impl FnMut() -> S) {
    puts_replaces_and_cancels(empty());
    loads_in_order_and_in_pages(empty());
    settles_only_what_is_the_same(empty());
    refuses_an_older_epoch(empty());
    applies_changes_in_order(empty());
    counts_and_keeps_what_is_dead(empty());
    takes_the_longest_and_the_shortest(empty());
    tells_whether_it_is_paused(empty());
    tells_the_rate_limit(empty());
    agrees_with_a_map(empty());
}

/// Checks that a store keeps what was committed. `open` opens the same place each time; it must
/// have nothing in it at first, and each store is dropped before the next is opened.
///
/// # Panics
///
/// As for [`check`].
pub fn check_reopening<S: Store>(mut open: impl FnMut() -> S) {
    let mut epochs = Vec::new();
    let mut numbers = Vec::new();
    for round in 0..5_u64 {
        let mut store = open();
        assert_eq!(store.is_paused().unwrap(), round % 2 == 1, "whether it was paused is kept");
        store.pause(round % 2 == 0).unwrap();
        let limit = |round| RateLimit { timeouts: round as usize, per: Duration::from_secs(round) };
        assert_eq!(store.rate_limit().unwrap(), (0 < round).then(|| limit(round)), "it is kept");
        store.limit_rate(Some(limit(round + 1))).unwrap();
        let leases = lease(&mut store);
        epochs.extend(leases.iter().map(|lease| lease.epoch));
        assert_eq!(store.count().unwrap(), round * 10, "all that was committed is there");
        for n in 0..10 {
            let (row, _) = put(&mut store, &format!("{round}/{n}"), round, &[n]);
            numbers.push(row.number);
        }
        let limit = Limit { rows: usize::MAX, bytes: usize::MAX };
        let letters = store.list_dead("", limit).unwrap().letters;
        assert_eq!(letters.len() as u64, round, "all that was dead is there");
        let (row, _) = put(&mut store, &format!("dead {round}"), round, b"dead");
        settle(&mut store, held(&row, &leases), Then::Dead { at: round });
        // And none of what was never put.
        assert_eq!(store.get("6/0").unwrap(), None);
    }
    let count = numbers.len();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), count, "a number was given out twice");
    let mut store = open();
    let rows = all(&mut store);
    assert_eq!(rows.len(), 50);
    for row in rows {
        assert_eq!(Some(row.clone()), store.get(&row.name).unwrap());
    }
}

fn tells_whether_it_is_paused(mut store: impl Store) {
    for pauses in [false, true, true, false, false] {
        store.pause(pauses).unwrap();
        assert_eq!(store.is_paused().unwrap(), pauses);
        assert_eq!(store.lease(true, &[]).unwrap().is_paused, pauses);
    }
}

fn tells_the_rate_limit(mut store: impl Store) {
    let limit = |timeouts, per| Some(RateLimit { timeouts, per: Duration::from_millis(per) });
    for limit in [None, limit(1, 1), limit(5_000_000_000, 86_400_000), None, None] {
        store.limit_rate(limit).unwrap();
        assert_eq!(store.rate_limit().unwrap(), limit);
        assert_eq!(store.lease(true, &[]).unwrap().rate_limit, limit);
    }
}

fn puts_replaces_and_cancels(mut store: impl Store) {
    lease(&mut store);
    assert_eq!(store.get("a").unwrap(), None);
    let (first, replaced) = put(&mut store, "a", 10, (b"1", "shop 3"));
    assert_eq!(replaced, None);
    let content = Content { payload: b"1", metadata: "shop 3" };
    assert_eq!((first.deadline, first.content(), first.attempt), (10, content, 0));
    assert_eq!(store.get("a").unwrap(), Some(first.clone()));
    let (second, replaced) = put(&mut store, "a", 5, b"2");
    assert_eq!(replaced, Some((&first).into()), "a put tells whose place it took");
    assert_eq!(&*second.metadata, "", "a put replaces metadata too");
    assert_ne!(first.number, second.number, "a put gives a new number");
    assert_eq!(all(&mut store), std::slice::from_ref(&second), "a name has one row");
    assert_eq!(cancel(&mut store, "a"), Some((&second).into()));
    assert_eq!(cancel(&mut store, "a"), None);
    assert_eq!(store.get("a").unwrap(), None);
    assert_eq!(store.count().unwrap(), 0);
    let (third, replaced) = put(&mut store, "a", 5, b"3");
    assert_eq!(replaced, None);
    assert!(![first.number, second.number].contains(&third.number), "a number came back");
}

fn loads_in_order_and_in_pages(mut store: impl Store) {
    let leases = lease(&mut store);
    // 20 of one deadline, and deadlines in no order.
    let puts = (0..200_u64)
        .map(|n| Change::put(&format!("{}", n * 7919 % 200), n % 10, (&[0; 20], METADATA)));
    change(&mut store, &puts.collect::<Vec<_>>());
    let rows = all(&mut store);
    assert_eq!(rows.len(), 200);
    assert!(rows.is_sorted_by_key(Row::position), "rows come by deadline and name");
    for limit in [
        Limit { rows: 1, bytes: usize::MAX },
        Limit { rows: 7, bytes: usize::MAX },
        Limit { rows: usize::MAX, bytes: 1 },
        Limit { rows: usize::MAX, bytes: 333 },
    ] {
        let mut position = Position::start();
        let mut found = Vec::new();
        loop {
            let page = store.list(&position, u64::MAX, limit).unwrap();
            assert!(page.rows.len() <= limit.rows);
            found.extend(page.rows);
            let Some(end) = page.end else { break };
            assert!(position < end, "a page goes on");
            assert!(found.last().is_none_or(|row| row.position() <= end));
            position = end;
        }
        assert_eq!(found, rows, "pages of {limit:?} leave nothing out");
        assert_eq!(load_all(&mut store, &leases, limit), rows, "loads of {limit:?} do not either");
    }
    let limit = Limit { rows: usize::MAX, bytes: usize::MAX };
    for until in [0, 4, 9] {
        let page = store.list(&Position::start(), until, limit).unwrap();
        assert_eq!(page.rows.len() as u64, (until + 1) * 20);
        assert_eq!(page.end, None);
        let page = store.list(&Position::before(until), until, limit).unwrap();
        assert_eq!(page.rows.len(), 20, "a position may be before all names of a deadline");
    }
    let counted = |ends: &[u64], most: u64, store: &mut dyn Store| {
        let counted = store.count_until(ends, most).unwrap();
        counted.iter().map(|it| (it.rows, it.is_all)).collect::<Vec<_>>()
    };
    let all = counted(&[0, 4, 8, 1 << 60], 1_000, &mut store);
    assert_eq!(all, [20, 80, 80, 20].map(|rows| (rows, true)), "each is counted once");
    assert_eq!(counted(&[], 1_000, &mut store), []);
    let cut = counted(&[4, 1 << 60], 1, &mut store);
    for (at, whole) in [100, 100].into_iter().enumerate() {
        let (rows, is_all) = cut[at];
        assert!((1..whole).contains(&rows) && !is_all, "{rows} rows are told as all");
    }
    let loaded = store.load(&[], u64::MAX, limit).unwrap();
    assert!(loaded.rows.is_empty(), "without a lease nothing is loaded");
}

fn settles_only_what_is_the_same(mut store: impl Store) {
    let leases = lease(&mut store);
    let (first, _) = put(&mut store, "a", 10, b"1");
    let first = held(&first, &leases);
    let (second, _) = put(&mut store, "a", 10, (b"2", "shop 3"));
    assert_eq!(ack(&mut store, first.clone()), Outcome::Gone, "an ack of an earlier one");
    assert_eq!(retry(&mut store, first, 99), Outcome::Gone);
    assert_eq!(store.get("a").unwrap(), Some(second.clone()));

    let Outcome::Settled(Some(retried)) = retry(&mut store, held(&second, &leases), 77) else {
        panic!("a retry has its row")
    };
    assert_ne!(retried.number, second.number, "a retry gives a new number");
    let expected = Row { deadline: 77, attempt: 1, number: retried.number, ..second.clone() };
    assert_eq!(retried, expected);
    assert_eq!(all(&mut store), std::slice::from_ref(&retried));
    let outcome = ack(&mut store, held(&second, &leases));
    assert_eq!(outcome, Outcome::Gone, "what was retried is at another deadline");
    assert_eq!(ack(&mut store, held(&retried, &leases)), Outcome::Settled(None));
    assert_eq!(ack(&mut store, held(&retried, &leases)), Outcome::Gone);
    assert_eq!((store.count().unwrap(), store.get("a").unwrap()), (0, None));
}

fn refuses_an_older_epoch(mut store: impl Store) {
    let leases = lease(&mut store);
    let (row, _) = put(&mut store, "a", 10, b"1");
    let mut old = held(&row, &leases);
    old.lease.epoch -= 1;
    assert_eq!(ack(&mut store, old.clone()), Outcome::Fenced);
    assert_eq!(retry(&mut store, old, 99), Outcome::Fenced);
    assert_eq!(store.get("a").unwrap(), Some(row));
}

fn counts_and_keeps_what_is_dead(mut store: impl Store) {
    let leases = lease(&mut store);
    let dead = |store: &mut dyn Store, after: &str, rows| {
        let page = store.list_dead(after, Limit { rows, bytes: usize::MAX }).unwrap();
        assert!(page.damaged.is_empty());
        (page.letters, page.end)
    };
    let (row, _) = put(&mut store, "a", 10, (b"1", "shop 3"));
    for attempt in [1, 2, 1, 2] {
        let Outcome::Settled(Some(counted)) =
            settle(&mut store, held(&row, &leases), Then::Counted { attempt })
        else {
            panic!("what is counted has its row")
        };
        assert_eq!(counted, Row { attempt, ..row.clone() }, "all else stays, its number too");
        assert_eq!(all(&mut store), [counted]);
    }
    let mut old = held(&row, &leases);
    old.number += 1;
    assert_eq!(settle(&mut store, old.clone(), Then::Counted { attempt: 9 }), Outcome::Gone);
    assert_eq!(settle(&mut store, old.clone(), Then::Dead { at: 9 }), Outcome::Gone);
    (old.number, old.lease.epoch) = (row.number, old.lease.epoch - 1);
    assert_eq!(settle(&mut store, old.clone(), Then::Counted { attempt: 9 }), Outcome::Fenced);
    assert_eq!(settle(&mut store, old, Then::Dead { at: 9 }), Outcome::Fenced);
    assert!(dead(&mut store, "", 9).0.is_empty());

    let die = Then::Dead { at: 99 };
    assert_eq!(settle(&mut store, held(&row, &leases), die), Outcome::Settled(None));
    assert_eq!((store.count().unwrap(), store.get("a").unwrap()), (0, None));
    let a = Dead {
        name: "a".into(),
        deadline: 10,
        payload: Arc::from(&b"1"[..]),
        metadata: "shop 3".into(),
        attempt: 2,
        died: 99,
    };
    assert_eq!(store.get_dead("a").unwrap(), Some(a.clone()));
    assert_eq!(store.get_dead("b").unwrap(), None);
    for name in ["e", "c", "b", "d"] {
        let (row, _) = put(&mut store, name, 20, (&[7; 70], METADATA));
        assert_eq!(settle(&mut store, held(&row, &leases), die), Outcome::Settled(None));
    }
    let names = |(letters, end): (Vec<Dead>, Option<Arc<str>>)| {
        let names = letters.iter().map(|letter| &*letter.name).collect::<String>();
        (names, end.map(|end| end.to_string()))
    };
    let page = |text: &str, end: Option<&str>| (text.to_owned(), end.map(str::to_owned));
    assert_eq!(names(dead(&mut store, "", 9)), page("abcde", None));
    assert_eq!(names(dead(&mut store, "", 2)), page("ab", Some("b")));
    assert_eq!(names(dead(&mut store, "b", 2)), page("cd", Some("d")));
    assert_eq!(names(dead(&mut store, "d", 2)), page("e", None));
    let bytes = store.list_dead("a", Limit { rows: 9, bytes: 150 }).unwrap();
    assert_eq!(names((bytes.letters, bytes.end)), page("bc", Some("c")));

    // A later one of the same name takes its place.
    let (row, _) = put(&mut store, "e", 30, b"later");
    settle(&mut store, held(&row, &leases), die);
    assert_eq!(&store.get_dead("e").unwrap().unwrap().payload[..], b"later");
    // One that was scheduled anew stays as it is, and so does the letter.
    let (pending, _) = put(&mut store, "e", 40, b"new");
    let revive = |name: &str| Change::revive(name, 77);
    let changed = change(
        &mut store,
        &[
            revive("a"),
            revive("a"),
            revive("nobody"),
            revive("e"),
            Change::drop_dead("b"),
            Change::drop_dead("b"),
            Change::cancel("c"),
        ],
    );
    let was_dead: Vec<bool> = changed.iter().map(|changed| changed.was_dead).collect();
    assert_eq!(was_dead, [true, false, false, true, true, false, false]);
    assert!(changed[1..].iter().all(|changed| changed.row.is_none()));
    assert!(changed.iter().all(|changed| changed.replaced.is_none()));
    let revived = changed[0].row.clone().expect("it is a timeout again");
    let now = (&*revived.name, revived.deadline, revived.content(), revived.attempt);
    assert_eq!(now, ("a", 77, a.content(), 0));
    assert_ne!(revived.number, row.number);
    assert_eq!(store.get("a").unwrap(), Some(revived.clone()));
    assert_eq!(store.get("e").unwrap(), Some(pending.clone()));
    assert_eq!(names(dead(&mut store, "", 9)), page("cde", None));
    assert_eq!(ack(&mut store, held(&revived, &leases)), Outcome::Settled(None));
    assert_eq!(ack(&mut store, held(&pending, &leases)), Outcome::Settled(None));
    // What was acked leaves nothing that a letter would take for a timeout.
    assert!(change(&mut store, &[revive("e")])[0].row.is_some());
}

fn applies_changes_in_order(mut store: impl Store) {
    let leases = lease(&mut store);
    let (row, _) = put(&mut store, "a", 10, b"1");
    let put = |deadline| Change::put("a", deadline, &[]);
    let cancel = || Change::cancel("a");
    let done = store
        .commit(
            &[Settlement { held: held(&row, &leases), then: Then::Done }],
            &[cancel(), put(20), put(30), cancel(), put(40)],
        )
        .unwrap();
    assert_eq!(done.outcomes, [Outcome::Settled(None)], "settlements come first");
    let changed: Vec<Changed> = done.changed.into_iter().map(Result::unwrap).collect();
    let [
        Changed { row: None, replaced: None, .. },
        Changed { row: Some(first), replaced: None, .. },
        Changed { row: Some(third), replaced: Some(second), .. },
        Changed { row: None, replaced: Some(cancelled), .. },
        Changed { row: Some(last), replaced: None, .. },
    ] = &changed[..]
    else {
        panic!("changes are applied one after another: {changed:?}")
    };
    assert_eq!([first, third].map(Replaced::from), [*second, *cancelled]);
    assert_eq!(all(&mut store), std::slice::from_ref(last));
    let done = store.commit(&[], &[]).unwrap();
    assert!(done.outcomes.is_empty() && done.changed.is_empty());
}

fn takes_the_longest_and_the_shortest(mut store: impl Store) {
    lease(&mut store);
    let long = "\u{10ffff}".repeat(63) + "xyz";
    let payload = vec![255; crate::MAX_PAYLOAD];
    let metadata = "\u{10ffff}".repeat(crate::MAX_METADATA / 4);
    for (name, deadline, payload, metadata) in [
        ("x", 0, &[][..], "x"),
        (&long[..], LAST, &payload[..], &metadata[..]),
        ("\u{1}", LAST - 1, &[0][..], "\u{1}"),
        ("'; drop table x; --", 1, &[b'\\', b'\'', 0][..], "{\"a\": 'b'}, \\"),
    ] {
        let content = Content { payload, metadata };
        let (row, _) = put(&mut store, name, deadline, content);
        assert_eq!(store.get(name).unwrap().as_ref(), Some(&row));
        assert_eq!((row.content(), &*row.name, row.deadline), (content, name, deadline));
    }
    assert_eq!(all(&mut store).len(), 4);
}

/// Some thousand changes, from a generator of numbers that is always the same.
fn agrees_with_a_map(mut store: impl Store) {
    let leases = lease(&mut store);
    let mut model: BTreeMap<Arc<str>, Row> = BTreeMap::new();
    let mut state = 1_u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % below
    };
    for _ in 0..300 {
        let mut settlements: Vec<Settlement> = Vec::new();
        let mut changes = Vec::new();
        for _ in 0..random(20) {
            let name = format!("{}", random(60));
            let is_settled = settlements.iter().any(|settled| *settled.held.name == *name);
            match (random(5), model.get(&*name).filter(|_| !is_settled)) {
                (0, _) => changes.push(Change::cancel(&name)),
                (n @ 1..3, Some(row)) => {
                    let then = match n {
                        1 => Then::Done,
                        _ => Then::Again { at: random(100), attempt: row.attempt + 1 },
                    };
                    settlements.push(Settlement { held: held(row, &leases), then });
                }
                _ => {
                    let payload: Vec<u8> = (0..random(300)).map(|n| n as u8).collect();
                    let metadata = &METADATA[..random(METADATA.len() as u64) as usize];
                    changes.push(Change::put(&name, random(100), (&payload, metadata)));
                }
            }
        }
        let mut done = store.commit(&settlements, &changes).unwrap();
        // On a busy machine there may be no time for the last.
        while done.outcomes.len() < settlements.len() || done.changed.len() < changes.len() {
            let left = (&settlements[done.outcomes.len()..], &changes[done.changed.len()..]);
            let more = store.commit(left.0, left.1).unwrap();
            assert!(0 < more.outcomes.len() + more.changed.len(), "it goes on");
            done.outcomes.extend(more.outcomes);
            done.changed.extend(more.changed);
        }
        let count = (done.outcomes.len(), done.changed.len());
        assert_eq!(count, (settlements.len(), changes.len()), "one outcome for each");
        for (settlement, outcome) in settlements.into_iter().zip(done.outcomes) {
            let Settlement { held, then } = &settlement;
            let Outcome::Settled(after) = outcome else { panic!("{outcome:?} of {settlement:?}") };
            let expected = after
                .as_ref()
                .map_or(Then::Done, |row| Then::Again { at: row.deadline, attempt: row.attempt });
            assert_eq!(expected, *then);
            let before = model.remove(&held.name).expect("what is settled was there");
            if let Some(row) = after {
                assert_eq!(row.attempt, before.attempt + 1);
                assert_eq!(row.content(), before.content());
                model.insert(held.name.clone(), row);
            }
        }
        for (change, changed) in changes.into_iter().zip(done.changed) {
            let Changed { row, replaced, .. } = changed.unwrap();
            let before = model.remove(&change.name).as_ref().map(Replaced::from);
            assert_eq!(replaced, before);
            let put = change.as_put().map(|put| (&put.payload, &put.metadata));
            assert_eq!(row.as_ref().map(|row| (&row.payload, &row.metadata)), put);
            model.extend(row.map(|row| (change.name, row)));
        }
        let mut rows: Vec<Row> = model.values().cloned().collect();
        rows.sort_by_key(Row::position);
        assert_eq!(all(&mut store), rows);
        assert_eq!(store.count().unwrap(), rows.len() as u64);
    }
}

/// Takes leases of all partitions.
fn lease(store: &mut impl Store) -> Vec<Lease> {
    let leases = store.lease(true, &[]).unwrap().held;
    assert!(!leases.is_empty(), "the only owner gets a lease");
    leases
}

fn held(row: &Row, leases: &[Lease]) -> Held {
    let lease = leases.iter().find(|lease| lease.partition == row.partition);
    Held::new(row, *lease.expect("the only owner has all partitions"))
}

fn ack(store: &mut impl Store, held: Held) -> Outcome {
    settle(store, held, Then::Done)
}

fn retry(store: &mut impl Store, held: Held, deadline: u64) -> Outcome {
    settle(store, held, Then::Again { at: deadline, attempt: 1 })
}

fn settle(store: &mut impl Store, held: Held, then: Then) -> Outcome {
    let mut done = store.commit(&[Settlement { held, then }], &[]).unwrap();
    assert_eq!(done.outcomes.len(), 1);
    done.outcomes.remove(0)
}

fn put<'a>(
    store: &mut impl Store,
    name: &str,
    deadline: u64,
    content: impl Into<Content<'a>>,
) -> (Row, Option<Replaced>) {
    let mut changed = change(store, &[Change::put(name, deadline, content)]);
    let Some(Changed { row: Some(row), replaced, .. }) = changed.pop() else {
        panic!("a put has its row")
    };
    assert_ne!(row.number, 0, "0 is no number");
    (row, replaced)
}

fn cancel(store: &mut impl Store, name: &str) -> Option<Replaced> {
    change(store, &[Change::cancel(name)]).pop().expect("a cancel has its outcome").replaced
}

fn change(store: &mut impl Store, changes: &[Change]) -> Vec<Changed> {
    let done = store.commit(&[], changes).unwrap();
    assert_eq!(done.changed.len(), changes.len());
    done.changed.into_iter().map(Result::unwrap).collect()
}

/// Loads all, from the end of one load to that of the next.
fn load_all(store: &mut impl Store, leases: &[Lease], limit: Limit) -> Vec<Row> {
    let mut from: Vec<Start> =
        leases.iter().map(|&lease| Start { lease, after: Position::start() }).collect();
    let mut rows = Vec::new();
    while !from.is_empty() {
        let loaded = store.load(&from, u64::MAX, limit).unwrap();
        assert_eq!(loaded.ends.len(), from.len(), "an end for each partition");
        let before = from.clone();
        let bytes = loaded.rows.iter().rev().skip(1).map(|row| row.content().bytes());
        assert!(bytes.sum::<usize>() < limit.bytes, "bytes are bounded");
        for row in &loaded.rows {
            let start = before.iter().find(|start| start.lease.partition == row.partition);
            assert!(start.expect("it was asked for").after < row.position());
        }
        rows.extend(loaded.rows);
        from = before
            .iter()
            .zip(loaded.ends)
            .filter_map(|(start, end)| Some(Start { after: end?, ..start.clone() }))
            .collect();
        assert!(from.is_empty() || from != before, "a load goes on");
    }
    rows.sort_by_key(Row::position);
    rows
}

fn all(store: &mut impl Store) -> Vec<Row> {
    let limit = Limit { rows: usize::MAX, bytes: usize::MAX };
    let Page { rows, end, damaged } = store.list(&Position::start(), u64::MAX, limit).unwrap();
    assert_eq!((end, damaged), (None, Vec::new()));
    rows
}

/// The last deadline that a timer asks for.
const LAST: u64 = i64::MAX as u64;

const METADATA: &str = "00-4bf92f3577b34da6a3ce929d0e0e";
