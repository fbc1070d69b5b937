//! What goes on while the store is busy.

use std::pin::pin;
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Waker};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use tickwheel_durable::store::{
    Change, Dead, DeadPage, Done, Leases, Limit, Loaded, Page, Position, Row, Settlement, Start,
    Store,
};
use tickwheel_durable::{Cancelled, Due, DurableTimer, Error, MemoryStore, Scheduled};

fn now() -> SystemTime {
    SystemTime::now()
}

fn take(timer: &DurableTimer) -> Due {
    timer.recv_timeout(LONG).unwrap().expect("one is due")
}

/// A store that waits until it may commit, or must not.
struct Held {
    store: MemoryStore,
    /// What is replaced or cancelled has rotted, so that its number cannot be read.
    rots: bool,
    may: mpsc::Receiver<Result<(), Error>>,
}

impl Store for Held {
    fn lease(&mut self, wanted: bool, given_back: &[u32]) -> Result<Leases, Error> {
        self.store.lease(wanted, given_back)
    }

    fn load(&mut self, from: &[Start], until: u64, limit: Limit) -> Result<Loaded, Error> {
        self.store.load(from, until, limit)
    }

    fn list(&mut self, after: &Position, until: u64, limit: Limit) -> Result<Page, Error> {
        self.store.list(after, until, limit)
    }

    fn commit(&mut self, settlements: &[Settlement], changes: &[Change]) -> Result<Done, Error> {
        self.may.recv().unwrap_or(Ok(()))?;
        let mut done = self.store.commit(settlements, changes)?;
        if self.rots {
            let replaced = done.changed.iter_mut().flatten().filter_map(|it| it.replaced.as_mut());
            replaced.for_each(|replaced| replaced.number = 0);
        }
        Ok(done)
    }

    fn get(&mut self, name: &str) -> Result<Option<Row>, Error> {
        self.store.get(name)
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

#[test]
fn callers_who_do_not_wait_are_told_when_too_much_waits_for_the_store() {
    let (go, may) = mpsc::channel();
    let timer = DurableTimer::builder()
        .backlog(100_000)
        .open_store(Held { store: MemoryStore::new(), rots: false, may })
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
    let timer = DurableTimer::builder()
        .open_store(Held { store: MemoryStore::new(), rots: false, may })
        .unwrap();
    go.send(Ok(())).unwrap();
    timer.schedule("soon", now() + Duration::from_millis(200), b"").unwrap().wait().unwrap();
    let held = timer.schedule("held", now() + HOUR, b"").unwrap();
    assert_eq!(take(&timer).name(), "soon", "the commit is not over");
    drop(go);
    held.wait().unwrap();
}

#[test]
fn what_has_rotted_since_it_was_loaded_does_not_come_after_its_cancel() {
    let (_, may) = mpsc::channel();
    let timer = DurableTimer::builder()
        .in_flight(3)
        .open_store(Held { store: MemoryStore::new(), rots: true, may })
        .unwrap();
    let schedule =
        |name: &str, at| timer.schedule(name, at, b"").unwrap().wait().map(drop).unwrap();
    // One that a consumer has, one that waits for a consumer, and two that are near.
    schedule("held", now());
    let held = take(&timer);
    schedule("waiting", now());
    let soon = now() + Duration::from_secs(1);
    schedule("near", soon);
    schedule("moved", soon);
    let began = Instant::now();
    while timer.stats().waiting < 1 {
        assert!(began.elapsed() < LONG, "it is due");
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(timer.cancel("held").unwrap().wait().unwrap(), Cancelled::Firing);
    assert_eq!(timer.cancel("waiting").unwrap().wait().unwrap(), Cancelled::Cancelled);
    assert_eq!(timer.cancel("near").unwrap().wait().unwrap(), Cancelled::Cancelled);
    schedule("moved", now() + HOUR);
    held.ack();
    schedule("last", soon + Duration::from_millis(1));
    assert_eq!(take(&timer).name(), "last");
    timer.close().unwrap();
}

#[test]
fn a_task_that_is_not_polled_takes_nothing_from_a_thread_that_waits() {
    let timer = DurableTimer::builder().open_store(MemoryStore::new()).unwrap();
    let mut next = pin!(timer.next());
    assert!(next.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let (came, comes) = mpsc::channel();
    let waiting = timer.clone();
    thread::spawn(move || {
        for _ in 0..2 {
            let due = waiting.recv().unwrap().expect("one is due");
            came.send(due.name().to_owned()).unwrap();
            due.ack();
        }
    });
    // Until it waits.
    thread::sleep(Duration::from_millis(200));
    for name in ["a", "b"] {
        timer.schedule(name, now(), b"").unwrap().wait().unwrap();
        assert_eq!(comes.recv_timeout(LONG).unwrap(), name);
    }
}

#[test]
fn what_waits_for_the_timer_is_refused_on_its_thread_and_the_timer_goes_on() {
    let (go, may) = mpsc::channel();
    let (told, tells) = mpsc::channel();
    let kept: Arc<Mutex<Option<DurableTimer>>> = Arc::default();
    let hooks = Arc::clone(&kept);
    let timer = DurableTimer::builder()
        .on_error(move |_| {
            let timer = hooks.lock().unwrap().clone().expect("it is kept");
            let mut commit = timer.cancel("none").unwrap();
            let results = [
                timer.get("a").map(drop),
                timer.len().map(drop),
                timer.iter().next().expect("an error").map(drop),
                timer.recv().map(drop),
                timer.clone().close(),
                commit.wait_timeout(LONG).expect("an error").map(drop),
                commit.wait().map(drop),
            ];
            told.send(results).unwrap();
        })
        .open_store(Held { store: MemoryStore::new(), rots: false, may })
        .unwrap();
    *kept.lock().unwrap() = Some(timer.clone());
    go.send(Err(Error::store("commit", "refused"))).unwrap();
    let mut commit = timer.schedule("a", now() + HOUR, b"").unwrap();
    for (at, result) in tells.recv_timeout(LONG).unwrap().iter().enumerate() {
        assert!(matches!(result, Err(Error::OwnThread)), "{at}: {result:?}");
    }
    assert!(commit.wait_timeout(LONG).expect("an answer").is_err());
    drop(go);
    let began = Instant::now();
    let schedule = || timer.schedule("b", now() + HOUR, b"").unwrap();
    // After the error it makes a pause.
    while schedule().wait_timeout(LONG).expect("it goes on").is_err() {
        assert!(began.elapsed() < LONG, "it recovers");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_timer_is_closed_on_the_one_thread_on_which_a_task_holds_a_timeout() {
    let (told, tells) = mpsc::channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let closed = runtime.block_on(async {
            let timer = DurableTimer::builder().open_store(MemoryStore::new()).unwrap();
            timer.schedule("a", now(), b"").unwrap().await.unwrap();
            let due = timer.next().await.unwrap().expect("it is due");
            // It goes on when the one that closes waits.
            let holds = tokio::spawn(async move { due.ack() });
            let other = timer.clone();
            let closed = timer.close_async().await;
            holds.await.unwrap();
            assert_eq!(other.stats().acked, 1);
            closed
        });
        told.send(closed).unwrap();
    });
    tells.recv_timeout(LONG).expect("it ends").unwrap();
}

#[test]
fn a_task_that_gives_up_closing_does_not_wait_for_the_store() {
    let (go, may) = mpsc::channel();
    let (told, tells) = mpsc::channel();
    let store = Held { store: MemoryStore::new(), rots: false, may };
    let timer = DurableTimer::builder().open_store(store).unwrap();
    drop(timer.schedule("a", now() + HOUR, b"").unwrap());
    thread::spawn(move || {
        let mut closing = Box::pin(timer.close_async());
        assert!(closing.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        drop(closing);
        told.send(()).unwrap();
    });
    tells.recv_timeout(LONG).expect("it has not waited");
    go.send(Ok(())).unwrap();
}

#[test]
fn the_last_handle_may_be_dropped_on_the_thread_of_the_timer() {
    let (go, may) = mpsc::channel();
    let (hand_over, handles) = mpsc::channel::<DurableTimer>();
    let (told, tells) = mpsc::channel();
    let timer = DurableTimer::builder()
        .on_error(move |_| {
            drop(handles.recv());
            told.send(()).unwrap();
        })
        .open_store(Held { store: MemoryStore::new(), rots: false, may })
        .unwrap();
    go.send(Err(Error::store("commit", "refused"))).unwrap();
    drop(timer.schedule("a", now() + HOUR, b"").unwrap());
    hand_over.send(timer).unwrap();
    tells.recv_timeout(LONG).expect("no panic");
    // The store is dropped when the timer has ended.
    let began = Instant::now();
    while go.send(Ok(())).is_ok() {
        assert!(began.elapsed() < LONG, "it still runs");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_commit_that_has_told_what_it_did_tells_nothing_more() {
    let timer = DurableTimer::builder().open_store(MemoryStore::new()).unwrap();
    let mut commit = timer.schedule("a", now() + HOUR, b"").unwrap();
    commit.wait_timeout(LONG).expect("it is made").unwrap();
    let again = commit.wait_timeout(Duration::from_millis(10));
    assert!(matches!(again, Some(Err(Error::Closed))), "{again:?}");
}

#[test]
fn a_commit_is_waited_for_in_turns_and_one_that_is_dropped_is_made_all_the_same() {
    let (go, may) = mpsc::channel();
    let timer = DurableTimer::builder()
        .open_store(Held { store: MemoryStore::new(), rots: false, may })
        .unwrap();
    let mut commit = timer.schedule("waited for", now() + HOUR, b"").unwrap();
    let mut dropped = Box::pin(timer.schedule("dropped", now() + HOUR, b"").unwrap());
    for _ in 0..2 {
        assert!(commit.wait_timeout(Duration::from_millis(10)).is_none());
    }
    assert!(dropped.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(dropped);
    drop(go);
    assert_eq!(commit.wait_timeout(LONG).expect("it is made").unwrap(), Scheduled::New);
    let again = timer.schedule("dropped", now() + HOUR, b"").unwrap().wait().unwrap();
    assert_eq!(again, Scheduled::Moved);
}

const HOUR: Duration = Duration::from_secs(3600);
/// Longer than anything here takes on any machine.
const LONG: Duration = Duration::from_secs(600);
