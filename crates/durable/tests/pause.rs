//! An operator pauses a store, and resumes it.

#[cfg(feature = "postgres")]
#[allow(dead_code)]
mod server;

use std::time::{Duration, Instant, SystemTime};

use tickwheel_durable::{Cancelled, DurableTimer, Error, MemoryStore};

fn put(timer: &DurableTimer, name: &str) {
    timer.schedule(name, SystemTime::now(), b"").unwrap().wait().unwrap();
}

fn take(timer: &DurableTimer) -> tickwheel_durable::Due {
    timer.recv_timeout(LONG).unwrap().expect("one is due")
}

/// Waits until the timer tells that it is paused, or that it is not.
fn until(timer: &DurableTimer, is_paused: bool) {
    let began = Instant::now();
    while timer.stats().is_paused != is_paused {
        assert!(began.elapsed() < LONG);
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn while_it_is_paused_all_goes_on_but_nothing_is_handed_out() {
    for attempts in [u32::MAX, 3] {
        let builder = DurableTimer::builder().max_attempts(attempts);
        let timer = builder.open_store(MemoryStore::default()).unwrap();
        put(&timer, "held");
        let held = take(&timer);
        put(&timer, "waits for a consumer");
        timer.pause().unwrap();
        assert!(timer.try_recv().unwrap().is_none(), "what nobody has taken is taken back");
        put(&timer, "cancelled");
        put(&timer, "put meanwhile");
        let cancelled = timer.cancel("cancelled").unwrap().wait().unwrap();
        assert_eq!(cancelled, Cancelled::Cancelled, "no consumer has it");
        held.ack();
        assert!(timer.recv_timeout(Duration::from_millis(200)).unwrap().is_none());
        timer.pause().unwrap();

        timer.resume().unwrap();
        let mut came = [take(&timer), take(&timer)].map(|due| {
            assert_eq!(due.attempt(), 1, "{due:?}");
            let name = due.name().to_owned();
            due.ack();
            name
        });
        came.sort();
        assert_eq!(came, ["put meanwhile", "waits for a consumer"]);
        timer.close().unwrap();
    }
}

#[cfg(feature = "redb")]
#[test]
fn it_is_paused_after_a_restart_too() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("timeouts");
    let timer = DurableTimer::open(&file).unwrap();
    timer.pause().unwrap();
    put(&timer, "a");
    timer.close().unwrap();
    let timer = DurableTimer::open(&file).unwrap();
    until(&timer, true);
    assert!(timer.recv_timeout(Duration::from_millis(200)).unwrap().is_none());
    timer.resume().unwrap();
    until(&timer, false);
    take(&timer).retry(Duration::ZERO);
    timer.close().unwrap();
    let timer = DurableTimer::open(&file).unwrap();
    assert_eq!(take(&timer).name(), "a", "it was resumed for good");
}

#[cfg(feature = "postgres")]
#[test]
fn one_worker_pauses_all_of_a_database_and_an_operator_resumes_them() {
    use tickwheel_durable::store::Store;

    let Some(server) = server::Server::start() else { return };
    let url = server.tables();
    let open = || {
        let store = tickwheel_durable::PostgresStore::connect(&url).unwrap();
        DurableTimer::builder().open_store(store.lease(Duration::from_secs(12))).unwrap()
    };
    let timers = [open(), open()];
    let all = |is_paused| timers.iter().for_each(|timer| until(timer, is_paused));
    // Each has a share.
    for timer in &timers {
        assert!(timer.try_recv().unwrap().is_none());
    }
    timers[0].pause().unwrap();
    all(true);
    (0..100).for_each(|n| put(&timers[n % 2], &n.to_string()));
    for timer in &timers {
        assert!(timer.recv_timeout(Duration::from_millis(500)).unwrap().is_none());
    }
    let mut operator = tickwheel_durable::PostgresStore::connect_existing(&url).unwrap();
    assert!(operator.is_paused().unwrap());
    operator.pause(false).unwrap();
    all(false);
    let began = Instant::now();
    let mut came = 0;
    while came < 100 {
        assert!(began.elapsed() < LONG);
        for timer in &timers {
            if let Some(due) = timer.recv_timeout(Duration::from_millis(10)).unwrap() {
                due.ack();
                came += 1;
            }
        }
    }
    timers.into_iter().for_each(|timer| timer.close().unwrap());
}

#[test]
fn a_timer_that_is_closed_is_not_paused() {
    let timer = DurableTimer::builder().open_store(MemoryStore::default()).unwrap();
    timer.clone().close().unwrap();
    assert!(matches!(timer.pause(), Err(Error::Closed)));
}

const LONG: Duration = Duration::from_secs(600);
