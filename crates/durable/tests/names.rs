//! What a check of a file finds: the index of names, and what acks leave in it.

use tickwheel_durable::RedbStore;
use tickwheel_durable::store::{Change, Held, Limit, Position, Settlement, Store, Then};

fn put(name: u64, deadline: u64) -> Change {
    Change::put(&format!("{name}"), deadline, &[])
}

#[test]
fn the_names_of_what_was_acked_are_swept_away_and_those_of_what_is_pending_stay() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = RedbStore::open(folder.path().join("timeouts")).unwrap();
    let lease = store.lease(true, &[]).unwrap().held[0];
    let mut random = fastrand::Rng::with_seed(1);
    let mut most = 0;
    let is_whole = ["CI", "TICKWHEEL_LONG"].iter().any(|name| std::env::var_os(name).is_some());
    for round in 0..if is_whole { 20 } else { 16 } {
        // Two thirds are due in their round, and one is due never.
        let puts: Vec<Change> = (0..1_500)
            .map(|n| put(random.u64(0..100_000), if n % 3 == 0 { u64::MAX / 2 } else { round }))
            .collect();
        store.commit(&[], &puts).unwrap();
        let limit = Limit { rows: 10_000, bytes: usize::MAX };
        let due = store.list(&Position::start(), round, limit).unwrap().rows;
        let acks: Vec<Settlement> = due
            .iter()
            .map(|row| Settlement { held: Held::new(row, lease), then: Then::Done })
            .collect();
        store.commit(&acks, &[]).unwrap();
        if (round + 1) % if is_whole { 4 } else { 8 } == 0 {
            let report = store.check(false, |_, _| {}).unwrap();
            assert!(report.is_whole(), "{report:?}");
            assert_eq!(report.timeouts, store.count().unwrap());
            most = most.max(report.acked_names);
        }
    }
    let left = store.check(false, |_, _| {}).unwrap();
    assert!(most <= 8_000 + left.timeouts / 2, "they are swept: {most} of {left:?}");
    assert!(0 < left.acked_names);
    // A name that was acked is unknown, and can be scheduled again.
    store.commit(&[], &[put(0, 100)]).unwrap();
    assert!(store.get("0").unwrap().is_some());
    assert!(store.check(false, |_, _| {}).unwrap().is_whole());
}
