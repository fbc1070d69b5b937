//! What the hook of an audit hears.

#[cfg(feature = "postgres")]
#[allow(dead_code)]
mod server;

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tickwheel_durable::store::Store;
use tickwheel_durable::{Cancelled, Due, DurableTimer, Event, MemoryStore};

type Heard = Arc<Mutex<Vec<Event>>>;

fn timer(store: impl Store + 'static, heard: &Heard) -> DurableTimer {
    let heard = Arc::clone(heard);
    let builder =
        DurableTimer::builder().max_attempts(2).redeliver(Duration::ZERO).on_event(move |event| {
            heard.lock().unwrap().push(event.clone());
            assert!(!matches!(event, Event::Cancelled { .. }), "a hook that panics");
        });
    builder.open_store(store).unwrap()
}

fn take(timer: &DurableTimer) -> Due {
    timer.recv_timeout(Duration::from_secs(600)).unwrap().expect("one is due")
}

/// Writes an event in a word and its numbers. What is due now is `now`.
fn word(event: &Event) -> String {
    let at = |deadline: &SystemTime| match deadline.duration_since(UNIX_EPOCH) {
        Ok(since) if FAR <= since => "far",
        _ => "now",
    };
    match event {
        Event::Scheduled { name, deadline, .. } => format!("{name} scheduled {}", at(deadline)),
        Event::Cancelled { name, .. } => format!("{name} cancelled"),
        Event::HandedOut { name, deadline, attempt, .. } => {
            format!("{name} handed out {} {attempt}", at(deadline))
        }
        Event::Acked { name, .. } => format!("{name} acked"),
        Event::Again { name, deadline, .. } => format!("{name} again {}", at(deadline)),
        Event::Dead { name, .. } => format!("{name} dead"),
        Event::Dropped { name, .. } => format!("{name} dropped"),
        other => format!("{other:?}"),
    }
}

fn all_is_told_once_and_in_order(store: impl Store + 'static) {
    let heard = Heard::default();
    let timer = timer(store, &heard);
    let put = |name: &str, at| timer.schedule(name, at, b"").unwrap().wait().unwrap();
    let cancel = |name: &str| timer.cancel(name).unwrap().wait().unwrap();
    let (now, far) = (SystemTime::now(), UNIX_EPOCH + FAR);

    put("a", far);
    assert_eq!(cancel("a"), Cancelled::Cancelled);
    assert_eq!(cancel("a"), Cancelled::Unknown);
    put("b", far);
    put("b", now);
    take(&timer).retry(Duration::ZERO);
    take(&timer).ack_and_schedule(far);
    // Its answer comes after that was committed.
    put("c", now);
    drop(take(&timer));
    drop(take(&timer));
    put("d", now);
    take(&timer).ack();
    timer.retry_dead("c").unwrap().wait().unwrap();
    drop(take(&timer));
    drop(take(&timer));
    put("d", far);
    assert!(timer.drop_dead("c").unwrap().wait().unwrap());
    assert!(!timer.drop_dead("c").unwrap().wait().unwrap());
    timer.close().unwrap();

    let heard = heard.lock().unwrap();
    let of = |name: &str| -> Vec<String> {
        let words = heard.iter().map(word);
        words.filter_map(|word| Some(word.strip_prefix(name)?.trim().to_owned())).collect()
    };
    assert_eq!(of("a"), ["scheduled far", "cancelled"]);
    let of_b = ["scheduled far", "scheduled now", "handed out now 1", "again now"];
    assert_eq!(of("b"), [&of_b[..], &["handed out now 2", "acked", "again far"]].concat());
    let life = ["scheduled now", "handed out now 1", "again now", "handed out now 2", "dead"];
    assert_eq!(of("c"), [&life[..], &life, &["dropped"]].concat());
    assert_eq!(of("d"), ["scheduled now", "handed out now 1", "acked", "scheduled far"]);
}

#[test]
fn a_timer_in_memory_tells_all_it_does_once_and_in_order() {
    all_is_told_once_and_in_order(MemoryStore::default());
}

#[cfg(feature = "redb")]
#[test]
fn a_timer_in_a_file_tells_all_it_does_once_and_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let store = tickwheel_durable::RedbStore::open(folder.path().join("timeouts")).unwrap();
    all_is_told_once_and_in_order(store);
}

#[cfg(feature = "postgres")]
#[test]
fn a_timer_on_a_database_tells_all_it_does_once_and_in_order() {
    let Some(server) = server::Server::start() else { return };
    let store = tickwheel_durable::PostgresStore::connect(&server.database()).unwrap();
    all_is_told_once_and_in_order(store);
}

#[test]
fn what_the_store_has_refused_is_not_told() {
    let heard = Heard::default();
    let timer = timer(MemoryStore::default(), &heard);
    assert!(timer.schedule("", SystemTime::now(), b"").is_err());
    assert_eq!(timer.cancel("none").unwrap().wait().unwrap(), Cancelled::Unknown);
    timer.close().unwrap();
    assert_eq!(*heard.lock().unwrap(), []);
}

const FAR: Duration = Duration::from_secs(30_000_000_000);
