//! What goes on while the store is busy.

use std::sync::mpsc;
use std::time::{Duration, SystemTime};

use tickwheel_durable::store::{
    Change, Done, Leases, Limit, Loaded, Page, Position, Row, Settlement, Start, Store,
};
use tickwheel_durable::{Due, DurableTimer, Error, MemoryStore};

fn now() -> SystemTime {
    SystemTime::now()
}

fn take(timer: &DurableTimer) -> Due {
    timer.recv_timeout(LONG).unwrap().expect("one is due")
}

/// A store that waits until it may commit.
struct Held {
    store: MemoryStore,
    may: mpsc::Receiver<()>,
}

impl Store for Held {
    fn lease(&mut self, wanted: bool) -> Result<Leases, Error> {
        self.store.lease(wanted)
    }

    fn load(&mut self, from: &[Start], until: u64, limit: Limit) -> Result<Loaded, Error> {
        self.store.load(from, until, limit)
    }

    fn list(&mut self, after: &Position, until: u64, limit: Limit) -> Result<Page, Error> {
        self.store.list(after, until, limit)
    }

    fn commit(&mut self, settlements: &[Settlement], changes: &[Change]) -> Result<Done, Error> {
        let _ = self.may.recv();
        self.store.commit(settlements, changes)
    }

    fn get(&mut self, name: &str) -> Result<Option<Row>, Error> {
        self.store.get(name)
    }

    fn count(&mut self) -> Result<u64, Error> {
        self.store.count()
    }
}

#[test]
fn callers_who_do_not_wait_are_told_when_too_much_waits_for_the_store() {
    let (go, may) = mpsc::channel();
    let timer = DurableTimer::builder()
        .backlog(100_000)
        .open_store(Held { store: MemoryStore::new(), may })
        .unwrap();
    let mut commits = Vec::new();
    let error = loop {
        match timer.schedule(&format!("{}", commits.len()), now() + HOUR, &[0; 800]) {
            Ok(commit) => commits.push(commit),
            Err(error) => break error,
        }
        assert!(commits.len() < 200, "memory is bounded");
    };
    assert!(matches!(error, Error::Backlog { .. }), "{error}");
    assert!(error.to_string().contains("wait for some of the commits"), "{error}");
    assert!(timer.cancel("0").is_err());
    drop(go);
    for commit in commits {
        commit.wait().unwrap();
    }
    timer.schedule("again", now(), b"").unwrap().wait().unwrap();
    take(&timer).ack();
    timer.close().unwrap();
}

#[test]
fn a_timeout_is_handed_out_while_the_store_commits() {
    let (go, may) = mpsc::channel();
    let timer =
        DurableTimer::builder().open_store(Held { store: MemoryStore::new(), may }).unwrap();
    go.send(()).unwrap();
    timer.schedule("soon", now() + Duration::from_millis(200), b"").unwrap().wait().unwrap();
    let held = timer.schedule("held", now() + HOUR, b"").unwrap();
    assert_eq!(take(&timer).name(), "soon", "the commit is not over");
    drop(go);
    held.wait().unwrap();
}

const HOUR: Duration = Duration::from_secs(3600);
/// Longer than anything here takes on any machine.
const LONG: Duration = Duration::from_secs(60);
