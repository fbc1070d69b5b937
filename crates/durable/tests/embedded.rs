//! The embedded timer as its users see it.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::StreamExt;
use futures::executor::block_on;
use tickwheel_durable::store::Store;
use tickwheel_durable::{
    Backoff, Cancelled, DurableTimer, Error, MAX_METADATA, MAX_NAME, MAX_PAYLOAD, MemoryStore,
    RateLimit, Retried, Scheduled,
};

fn now() -> SystemTime {
    SystemTime::now()
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn open(folder: &tempfile::TempDir) -> DurableTimer {
    DurableTimer::open(folder.path().join("timeouts.redb")).unwrap()
}

fn take(timer: &DurableTimer) -> tickwheel_durable::Due {
    timer.recv_timeout(LONG).unwrap().expect("one is due")
}

#[test]
fn a_timeout_comes_with_all_it_was_scheduled_with_and_not_early() {
    let folder = folder();
    let timer = open(&folder);
    let at = now() + Duration::from_millis(30);
    assert_eq!(timer.schedule("a", at, b"payload").unwrap().wait().unwrap(), Scheduled::New);
    let due = take(&timer);
    assert!(at <= now());
    assert_eq!((due.name(), due.payload(), due.attempt()), ("a", &b"payload"[..], 1));
    assert!(at <= due.deadline());
    assert!(due.deadline() < at + Duration::from_millis(1), "rounded up to a millisecond");
    due.ack();
    timer.close().unwrap();
    assert!(open(&folder).is_empty().unwrap(), "what was acked is gone");
}

#[test]
fn what_is_pending_is_there_after_a_restart() {
    let folder = folder();
    let timer = open(&folder);
    let commits: Vec<_> = (0..1000)
        .map(|n| timer.schedule(&format!("{n}"), now() + HOUR * n, &[1; 100]).unwrap())
        .collect();
    for commit in commits {
        assert_eq!(commit.wait().unwrap(), Scheduled::New);
    }
    let first = take(&timer);
    assert_eq!(first.name(), "0");
    let epoch = first.epoch();
    first.ack();
    timer.close().unwrap();

    let timer = open(&folder);
    assert_eq!(timer.len().unwrap(), 999);
    let names: Vec<_> = timer.iter().map(|row| row.unwrap().name().to_owned()).collect();
    assert_eq!(names, (1..1000).map(|n| n.to_string()).collect::<Vec<_>>(), "by deadline");
    timer.schedule("500", now(), b"moved").unwrap().wait().unwrap();
    let due = take(&timer);
    assert_eq!(due.name(), "500");
    assert!(epoch < due.epoch(), "each opening has a greater epoch");
    due.ack();
}

#[test]
fn metadata_stays_with_a_timeout_until_it_is_scheduled_anew() {
    let folder = folder();
    let timer = timer_with_most(&folder, 2);
    timer.schedule("a", now(), (b"eur 20", "shop 3")).unwrap().wait().unwrap();
    let due = take(&timer);
    assert_eq!((due.payload(), due.metadata()), (&b"eur 20"[..], "shop 3"));
    due.ack_and_schedule(now());
    let due = take(&timer);
    assert_eq!((due.attempt(), due.metadata()), (1, "shop 3"));
    due.retry(Duration::ZERO);
    take(&timer).retry(Duration::ZERO);
    while timer.dead_letters().count() < 1 {
        thread::yield_now();
    }
    timer.close().unwrap();
    let timer = timer_with_most(&folder, 2);
    assert_eq!(timer.dead_letter("a").unwrap().unwrap().metadata(), "shop 3");
    timer.retry_dead("a").unwrap().wait().unwrap();
    let due = take(&timer);
    assert_eq!((due.payload(), due.metadata()), (&b"eur 20"[..], "shop 3"));
    timer.schedule("a", now() + HOUR, b"eur 5").unwrap().wait().unwrap();
    due.ack();
    assert_eq!(timer.get("a").unwrap().unwrap().metadata(), "");
}

#[test]
fn scheduling_a_name_again_moves_it() {
    let folder = folder();
    let timer = open(&folder);
    assert_eq!(timer.schedule("a", now() + HOUR, b"1").unwrap().wait().unwrap(), Scheduled::New);
    assert_eq!(timer.schedule("a", now(), b"2").unwrap().wait().unwrap(), Scheduled::Moved);
    assert_eq!(timer.len().unwrap(), 1);
    let due = take(&timer);
    assert_eq!(due.payload(), b"2");
    assert_eq!(timer.schedule("a", now() + HOUR, b"3").unwrap().wait().unwrap(), Scheduled::Firing);
    due.ack();
    timer.close().unwrap();
    let timer = open(&folder);
    let pending = timer.get("a").unwrap().expect("the ack was of the earlier one");
    assert_eq!((pending.payload(), pending.attempt()), (&b"3"[..], 1));
    assert_eq!(timer.get("b").unwrap(), None);
}

#[test]
fn a_cancel_tells_what_it_found() {
    let folder = folder();
    let timer = open(&folder);
    let cancel = |name: &str| timer.cancel(name).unwrap().wait().unwrap();
    assert_eq!(cancel("a"), Cancelled::Unknown);
    timer.schedule("a", now() + HOUR, b"").unwrap().wait().unwrap();
    assert_eq!(cancel("a"), Cancelled::Cancelled);
    assert_eq!(cancel("a"), Cancelled::Unknown);
    timer.schedule("a", now(), b"").unwrap().wait().unwrap();
    let due = take(&timer);
    assert_eq!(cancel("a"), Cancelled::Firing);
    drop(due);
    assert_eq!(cancel("a"), Cancelled::Unknown, "it does not come again");
    assert!(timer.is_empty().unwrap());
}

#[test]
fn a_dropped_timeout_comes_again_and_a_retried_one_when_it_was_asked_for() {
    let folder = folder();
    let timer = DurableTimer::builder()
        .redeliver(Duration::from_millis(50))
        .open(folder.path().join("timeouts"))
        .unwrap();
    timer.schedule("a", now(), b"").unwrap().wait().unwrap();
    let due = take(&timer);
    let dropped = now();
    drop(due);
    let due = take(&timer);
    assert!(dropped + Duration::from_millis(45) < now());
    assert_eq!(due.attempt(), 2);
    let retried = now();
    due.retry(Duration::from_millis(100));
    let due = take(&timer);
    assert!(retried + Duration::from_millis(95) < now());
    assert_eq!(due.attempt(), 3);
    let panicked = thread::spawn(move || {
        let _due = due;
        panic!("a consumer that panics");
    });
    panicked.join().unwrap_err();
    let due = take(&timer);
    assert_eq!(due.attempt(), 4);
    due.ack();
    timer.close().unwrap();
}

#[test]
fn what_recurs_comes_again_as_new_and_yields_to_who_schedules_or_cancels_it() {
    let folder = folder();
    let timer = timer_with_most(&folder, 2);
    timer.schedule("tick", now(), b"1").unwrap().wait().unwrap();
    for run in 0..5 {
        take(&timer).retry(Duration::ZERO);
        let due = take(&timer);
        assert_eq!((due.attempt(), due.payload()), (2, &b"1"[..]), "run {run}");
        due.ack_and_schedule(now());
    }
    // Whoever schedules or cancels it while it runs has the last word.
    let due = take(&timer);
    assert_eq!(due.attempt(), 1);
    timer.schedule("tick", now() + Duration::from_secs(3600), b"2").unwrap().wait().unwrap();
    due.ack_and_schedule(now());
    assert_eq!(timer.cancel("tick").unwrap().wait().unwrap(), Cancelled::Cancelled);
    timer.schedule("tick", now(), b"3").unwrap().wait().unwrap();
    let due = take(&timer);
    assert_eq!(timer.cancel("tick").unwrap().wait().unwrap(), Cancelled::Firing);
    due.ack_and_schedule(now() + Duration::from_secs(3600));
    timer.schedule("other", now(), b"").unwrap().wait().unwrap();
    let other = take(&timer);
    assert_eq!(other.name(), "other");
    other.ack();
    assert!(timer.get("tick").unwrap().is_none() && timer.dead_letters().next().is_none());
    let closed = timer.clone();
    timer.close().unwrap();
    assert_eq!((closed.stats().acked, closed.stats().retried), (6, 5), "5 runs, and the other");
}

#[test]
fn what_fails_comes_again_after_a_delay_that_grows() {
    let hours = Arc::new(AtomicU64::new(0));
    let clock = {
        let hours = hours.clone();
        move || now() + HOUR * hours.load(Ordering::SeqCst) as u32
    };
    let timer =
        DurableTimer::builder().clock(clock.clone()).open_store(MemoryStore::new()).unwrap();
    timer.schedule("a", clock(), b"payload").unwrap().wait().unwrap();
    let backoff = Backoff::exponential(HOUR, 3 * HOUR);
    for (attempt, delay) in [(1, 1), (2, 2), (3, 3), (4, 3)] {
        let due = take(&timer);
        assert_eq!((due.attempt(), due.payload()), (attempt, &b"payload"[..]));
        let began = clock();
        due.back_off(&backoff);
        let pending = loop {
            let pending = timer.get("a").unwrap().expect("it is pending");
            if pending.attempt() == attempt + 1 {
                break pending;
            }
            thread::sleep(Duration::from_millis(5));
        };
        let (least, rounded) = (HOUR * delay as u32, Duration::from_millis(2));
        assert!(began + least <= pending.deadline() + rounded);
        assert!(pending.deadline() <= clock() + least + rounded);
        hours.fetch_add(delay, Ordering::SeqCst);
    }
    take(&timer).ack();
    timer.close().unwrap();
}

#[test]
fn a_consumer_that_never_acks_holds_up_neither_schedules_nor_memory() {
    let folder = folder();
    let timer = DurableTimer::builder()
        .near(100, 1 << 20)
        .in_flight(10)
        .open(folder.path().join("timeouts"))
        .unwrap();
    let commits: Vec<_> =
        (0..2000).map(|n| timer.schedule(&format!("{n}"), now(), &[0; 50]).unwrap()).collect();
    for commit in commits {
        commit.wait().unwrap();
    }
    let held: Vec<_> = (0..10).map(|_| take(&timer)).collect();
    assert!(timer.recv_timeout(Duration::from_millis(20)).unwrap().is_none());
    let stats = timer.stats();
    assert_eq!((stats.in_flight, stats.waiting), (10, 0));
    assert!(stats.near <= 100, "{stats:?}");
    assert_eq!(timer.len().unwrap(), 2000);
    for due in held {
        due.ack();
    }
    for _ in 10..2000 {
        take(&timer).ack();
    }
    assert!(timer.try_recv().unwrap().is_none());
    timer.close().unwrap();
    assert!(open_at(&folder.path().join("timeouts")).is_empty().unwrap());
}

fn open_at(path: &Path) -> DurableTimer {
    DurableTimer::open(path).unwrap()
}

#[test]
fn futures_and_streams_hand_out_the_same() {
    let folder = folder();
    let timer = open(&folder);
    block_on(async {
        let scheduled = timer.schedule("a", now(), b"").unwrap().await.unwrap();
        assert_eq!(scheduled, Scheduled::New);
        let due = timer.next().await.unwrap().unwrap();
        assert_eq!(due.name(), "a");
        due.ack();

        // A future that is dropped takes nothing with it.
        for _ in 0..10 {
            drop(futures::poll!(Box::pin(timer.next())));
        }
        for name in ["b", "c", "d"] {
            timer.schedule(name, now(), b"").unwrap().await.unwrap();
        }
        let names: Vec<String> = timer
            .stream()
            .take(3)
            .map(|due| {
                let due = due.unwrap();
                let name = due.name().to_owned();
                due.ack();
                name
            })
            .collect()
            .await;
        assert_eq!(names.len(), 3);
    });
    timer.close().unwrap();
}

#[test]
fn threads_and_tasks_together_get_each_timeout_once() {
    let folder = folder();
    let timer = open(&folder);
    let (sender, receiver) = mpsc::channel();
    let consumers: Vec<_> = (0..4)
        .map(|n| {
            let (timer, sender) = (timer.clone(), sender.clone());
            thread::spawn(move || {
                let next = || if n < 2 { timer.recv() } else { block_on(timer.next()) };
                while let Some(due) = next().unwrap() {
                    sender.send(due.name().to_owned()).unwrap();
                    due.ack();
                }
            })
        })
        .collect();
    let producers: Vec<_> = (0..4)
        .map(|producer| {
            let timer = timer.clone();
            thread::spawn(move || {
                for n in 0..250 {
                    let at = now() + Duration::from_millis(n % 40);
                    timer.schedule(&format!("{producer}/{n}"), at, b"").unwrap().wait().unwrap();
                }
            })
        })
        .collect();
    for producer in producers {
        producer.join().unwrap();
    }
    let mut names: Vec<String> =
        (0..1000).map(|_| receiver.recv_timeout(LONG).expect("all come")).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 1000);
    timer.close().unwrap();
    for consumer in consumers {
        consumer.join().unwrap();
    }
    assert!(receiver.try_recv().is_err());
}

#[test]
fn close_waits_for_acks_and_then_all_calls_say_closed() {
    let folder = folder();
    let timer = open(&folder);
    let other = timer.clone();
    timer.schedule("a", now(), b"").unwrap().wait().unwrap();
    let due = take(&timer);
    let (sender, closed) = mpsc::channel();
    let closing = thread::spawn(move || {
        timer.close().unwrap();
        sender.send(()).unwrap();
    });
    closed.recv_timeout(Duration::from_millis(50)).expect_err("a consumer holds one");
    due.ack();
    closed.recv_timeout(LONG).unwrap();
    closing.join().unwrap();
    assert!(matches!(other.schedule("b", now(), b""), Err(Error::Closed)));
    assert!(matches!(other.cancel("b"), Err(Error::Closed)));
    assert!(other.recv().unwrap().is_none());
    assert!(block_on(other.next()).unwrap().is_none());
    assert!(matches!(other.iter().next(), Some(Err(Error::Closed))));
    assert!(open(&folder).is_empty().unwrap(), "the ack was committed");
}

#[test]
fn names_payloads_and_metadata_that_are_not_allowed_are_refused() {
    let timer = DurableTimer::builder().open_store(MemoryStore::new()).unwrap();
    let schedule = |name: &str, payload: &[u8]| timer.schedule(name, now(), payload)?.wait();
    assert!(matches!(schedule("", b""), Err(Error::EmptyName)));
    assert!(matches!(schedule("a\0b", b""), Err(Error::NulInName)));
    let long = "x".repeat(MAX_NAME + 1);
    assert!(matches!(schedule(&long, b""), Err(Error::LongName { length: 256 })));
    let huge = vec![0; MAX_PAYLOAD + 1];
    assert!(matches!(schedule("a", &huge), Err(Error::LongPayload { length: 65_537 })));
    assert!(schedule(&long[1..], &huge[1..]).is_ok());
    assert!(timer.get(&long[1..]).unwrap().is_some());
    let schedule = |metadata: &str| timer.schedule("a", now(), (b"", metadata))?.wait();
    let long = "x".repeat(MAX_METADATA + 1);
    assert!(matches!(schedule(&long), Err(Error::LongMetadata { length: 1_025 })));
    assert!(matches!(schedule("shop\0"), Err(Error::NulInMetadata)));
    assert!(schedule(&long[1..]).is_ok());
    assert_eq!(timer.get("a").unwrap().unwrap().metadata(), &long[1..]);
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    let builders = [
        DurableTimer::builder().near(15, 1 << 20),
        DurableTimer::builder().near(1000, 1000),
        DurableTimer::builder().horizon(Duration::ZERO),
        DurableTimer::builder().group(0),
        DurableTimer::builder().in_flight(0),
        DurableTimer::builder().near(100, 1 << 20).in_flight(101),
    ];
    for builder in builders {
        let error = builder.open_store(MemoryStore::new()).map(drop).unwrap_err();
        assert!(matches!(error, Error::Setting { .. }), "{error}");
    }
}

#[test]
fn deadlines_of_all_times_are_allowed() {
    let timer = DurableTimer::builder().open_store(MemoryStore::new()).unwrap();
    let far = UNIX_EPOCH + Duration::from_secs(1 << 40);
    timer.schedule("far", far, b"").unwrap().wait().unwrap();
    timer.schedule("before", UNIX_EPOCH - HOUR, b"").unwrap().wait().unwrap();
    assert_eq!(take(&timer).name(), "before");
    assert_eq!(timer.get("far").unwrap().unwrap().deadline(), far);
}

#[test]
fn a_clock_set_forward_is_noticed_and_set_back_nothing_is_early() {
    let clock = Arc::new(AtomicU64::new(1_000_000_000));
    let read = {
        let clock = Arc::clone(&clock);
        move || UNIX_EPOCH + Duration::from_millis(clock.load(Ordering::SeqCst))
    };
    let timer = DurableTimer::builder().clock(read.clone()).open_store(MemoryStore::new()).unwrap();
    timer.schedule("a", read() + HOUR, b"").unwrap().wait().unwrap();
    timer.schedule("b", read() + HOUR * 2, b"").unwrap().wait().unwrap();
    clock.fetch_add(3_600_000, Ordering::SeqCst);
    let due = take(&timer);
    assert_eq!(due.name(), "a");
    due.ack();
    clock.fetch_sub(7_200_000, Ordering::SeqCst);
    // A command makes the timer look at the clock.
    timer.schedule("c", read() + HOUR, b"").unwrap().wait().unwrap();
    assert!(timer.recv_timeout(Duration::from_millis(50)).unwrap().is_none());
    clock.fetch_add(3_600_000, Ordering::SeqCst);
    assert_eq!(take(&timer).name(), "c");
}

#[test]
fn a_second_timer_on_the_file_is_told_who_may_have_it() {
    let folder = folder();
    let path = folder.path().join("timeouts.redb");
    let timer = DurableTimer::open(&path).unwrap();
    let error = DurableTimer::open(&path).map(drop).unwrap_err();
    assert!(matches!(&error, Error::Locked { path: of } if *of == path));
    assert!(error.to_string().contains("another instance of this program"), "{error}");

    // And in another process.
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "in_a_second_process", "--nocapture"])
        .env("TICKWHEEL_DURABLE_FILE", &path)
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(told.contains("another instance of this program"), "{told}");
    timer.close().unwrap();
    DurableTimer::open(&path).unwrap();
}

/// As where another process had the file after an error, before this one opened it again.
#[test]
fn a_store_that_another_owner_had_meanwhile_is_leased_again_and_acks_go_on() {
    let store = MemoryStore::new();
    let timer = DurableTimer::builder().open_store(store.clone()).unwrap();
    timer.schedule("before", now(), b"").unwrap().wait().unwrap();
    let held = take(&timer);
    store.clone().lease(true, &[]).unwrap();
    held.ack();
    let again = take(&timer);
    assert_eq!(again.name(), "before", "its ack was too late");
    again.ack();
    timer.schedule("after", now(), b"").unwrap().wait().unwrap();
    take(&timer).ack();
    timer.close().unwrap();
    assert_eq!(store.clone().count().unwrap(), 0);

    let timer = DurableTimer::builder().open_store(store.clone()).unwrap();
    timer.schedule("last", now(), b"").unwrap().wait().unwrap();
    let held = take(&timer);
    store.clone().lease(true, &[]).unwrap();
    held.ack();
    timer.close().expect_err("its ack was too late");
    assert_eq!(store.clone().count().unwrap(), 1);
}

/// Run by the test above.
#[test]
fn in_a_second_process() {
    let Ok(path) = std::env::var("TICKWHEEL_DURABLE_FILE") else { return };
    println!("{}", DurableTimer::open(path).map(drop).unwrap_err());
}

#[test]
fn dropping_the_last_handle_commits_what_was_asked_for_and_frees_the_file() {
    let folder = folder();
    let timer = open(&folder);
    for n in 0..100 {
        drop(timer.schedule(&format!("{n}"), now() + HOUR, b"").unwrap());
    }
    drop(timer);
    assert_eq!(open(&folder).len().unwrap(), 100);
}

#[test]
fn a_file_of_something_else_is_refused_and_left_as_it_was() {
    let folder = folder();
    let path = folder.path().join("other");
    std::fs::write(&path, [b'x'; 10_000]).unwrap();
    let error = DurableTimer::open(&path).map(drop).unwrap_err();
    assert!(error.to_string().contains("other"), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), [b'x'; 10_000]);

    let path = folder.path().join("foreign");
    let database = redb::Database::create(&path).unwrap();
    let write = database.begin_write().unwrap();
    let table: redb::TableDefinition<'_, u64, u64> = redb::TableDefinition::new("theirs");
    write.open_table(table).unwrap().insert(1, 1).unwrap();
    write.commit().unwrap();
    drop(database);
    assert!(matches!(DurableTimer::open(&path), Err(Error::Foreign { .. })));
}

#[test]
fn a_file_of_a_newer_format_is_refused_with_both_numbers() {
    let folder = folder();
    let path = folder.path().join("timeouts");
    DurableTimer::open(&path).unwrap().close().unwrap();
    write_format(&path, Some(7));
    let error = DurableTimer::open(&path).map(drop).unwrap_err();
    assert!(matches!(error, Error::NewerFormat { found: 7, known: 1, .. }));
    assert!(error.to_string().contains("format 7"), "{error}");
}

#[test]
fn a_file_of_no_format_and_of_one_that_never_was_is_refused_and_its_timeouts_stay() {
    let folder = folder();
    let path = folder.path().join("timeouts");
    let timer = DurableTimer::open(&path).unwrap();
    timer.schedule("a", now() + HOUR, b"").unwrap().wait().unwrap();
    timer.close().unwrap();
    for format in [None, Some(0)] {
        write_format(&path, format);
        let error = DurableTimer::open(&path).map(drop).unwrap_err();
        assert!(matches!(&error, Error::Foreign { path: of } if *of == path), "{error}");
        assert!(error.to_string().contains("a format that no version writes"), "{error}");
    }
    write_format(&path, Some(1));
    assert!(DurableTimer::open(&path).unwrap().get("a").unwrap().is_some());
}

fn write_format(path: &Path, format: Option<u64>) {
    let database = redb::Database::open(path).unwrap();
    let write = database.begin_write().unwrap();
    let meta: redb::TableDefinition<'_, &str, u64> = redb::TableDefinition::new("meta");
    let mut table = write.open_table(meta).unwrap();
    match format {
        Some(format) => drop(table.insert("format", format).unwrap()),
        None => drop(table.remove("format").unwrap()),
    }
    drop(table);
    write.commit().unwrap();
}

#[test]
fn a_folder_that_is_not_there_and_one_that_is_the_file_are_told() {
    let folder = folder();
    let error = DurableTimer::open(folder.path().join("no/file")).map(drop).unwrap_err();
    assert!(error.to_string().contains("folder does not exist"), "{error}");
    let error = DurableTimer::open(folder.path()).map(drop).unwrap_err();
    assert!(error.to_string().contains("name a file in it"), "{error}");
}

#[test]
fn an_empty_file_that_is_there_is_not_taken_for_a_new_one() {
    for zeros in [0, 9_000] {
        let folder = folder();
        let file = folder.path().join("timeouts.redb");
        std::fs::write(&file, vec![0; zeros]).unwrap();
        let error = DurableTimer::open(&file).map(drop).unwrap_err();
        assert!(error.to_string().contains("remove it, if it never held"), "{error}");
        assert_eq!(std::fs::read(&file).unwrap(), vec![0; zeros], "nothing was written to it");
    }
}

#[test]
fn a_file_that_is_cut_while_open_is_told_and_nothing_is_called_durable() {
    for left in [0, 4_096, 100_000] {
        let folder = folder();
        let file = folder.path().join("timeouts.redb");
        let timer = open(&folder);
        timer.schedule("before", now() + HOUR, b"").unwrap().wait().unwrap();
        std::fs::OpenOptions::new().write(true).open(&file).unwrap().set_len(left).unwrap();
        let error = timer.schedule("after", now() + HOUR, b"").unwrap().wait().unwrap_err();
        assert!(error.to_string().contains("cut"), "{error}");
        assert!(timer.schedule("again", now() + HOUR, b"").unwrap().wait().is_err());
        let _ = timer.close();
        assert_eq!(std::fs::metadata(&file).unwrap().len(), left, "nothing was written to it");
        assert!(DurableTimer::open(&file).is_err());
    }
}

#[cfg(unix)]
#[test]
fn a_file_that_is_removed_while_open_is_told_and_nothing_is_called_durable() {
    let folder = folder();
    let errors = Arc::new(Mutex::new(Vec::new()));
    let path = folder.path().join("timeouts");
    let timer = DurableTimer::builder()
        .on_error({
            let errors = Arc::clone(&errors);
            move |error| errors.lock().unwrap().push(error.to_string())
        })
        .open(&path)
        .unwrap();
    timer.schedule("a", now() + HOUR, b"").unwrap().wait().unwrap();
    let aside = folder.path().join("aside");
    std::fs::rename(&path, &aside).unwrap();
    let error = timer.schedule("b", now(), b"").unwrap().wait().unwrap_err();
    assert!(matches!(error, Error::Removed { .. }), "{error}");
    assert!(errors.lock().unwrap()[0].contains("removed or replaced"));
    // Put back, it goes on by itself.
    std::fs::rename(&aside, &path).unwrap();
    let deadline = now() + LONG;
    while timer.schedule("b", now(), b"").unwrap().wait().is_err() {
        assert!(now() < deadline);
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(take(&timer).name(), "b");
    assert!(timer.get("a").unwrap().is_some());
}

fn timer_with_most(folder: &tempfile::TempDir, most: u32) -> DurableTimer {
    DurableTimer::builder()
        .max_attempts(most)
        .redeliver(Duration::ZERO)
        .open(folder.path().join("timeouts"))
        .unwrap()
}

#[test]
fn what_was_handed_out_as_often_as_it_may_be_is_a_dead_letter_and_comes_no_more() {
    let folder = folder();
    let timer = timer_with_most(&folder, 3);
    timer.schedule("poison", now(), b"eur 20").unwrap().wait().unwrap();
    take(&timer).retry(Duration::ZERO);
    drop(take(&timer));
    let due = take(&timer);
    assert_eq!(due.attempt(), 3);
    assert!(timer.dead_letter("poison").unwrap().is_none(), "a consumer has it");
    let panicked = thread::spawn(move || {
        let _due = due;
        panic!("a consumer that panics");
    });
    panicked.join().unwrap_err();
    // The next is handed out after that was committed.
    timer.schedule("good", now(), b"").unwrap().wait().unwrap();
    let due = take(&timer);
    assert_eq!((due.name(), due.attempt()), ("good", 1));
    due.ack();
    let letter = timer.dead_letter("poison").unwrap().expect("it is dead");
    assert_eq!((letter.name(), letter.payload(), letter.attempts()), ("poison", &b"eur 20"[..], 3));
    assert!(letter.deadline() <= letter.died());
    assert_eq!(timer.stats().dead, 1);
    assert_eq!(timer.get("poison").unwrap(), None, "it is not pending");
    assert_eq!(timer.cancel("poison").unwrap().wait().unwrap(), Cancelled::Unknown);
    timer.close().unwrap();

    let timer = timer_with_most(&folder, 3);
    assert!(timer.recv_timeout(Duration::ZERO).unwrap().is_none());
    let letters: Vec<_> = timer.dead_letters().collect::<Result<_, _>>().unwrap();
    assert_eq!(letters, [letter]);
}

#[test]
fn a_dead_letter_is_retried_or_dropped_and_one_whose_name_is_pending_stays() {
    let folder = folder();
    let timer = timer_with_most(&folder, 1);
    let kill = |names: &[String]| {
        for name in names {
            timer.schedule(name, now(), name.as_bytes()).unwrap().wait().unwrap();
        }
        names.iter().for_each(|_| drop(take(&timer)));
        while timer.dead_letters().count() < names.len() {
            thread::yield_now();
        }
    };
    // More than a page.
    let names: Vec<String> = (0..1_001).map(|n| format!("{n:04}")).collect();
    kill(&names);
    let found: Vec<_> = timer.dead_letters().map(|it| it.unwrap().name().to_owned()).collect();
    assert_eq!(found, names, "all of them, by name");
    let retry = |name: &str| timer.retry_dead(name).unwrap().wait().unwrap();
    assert_eq!(retry("0007"), Retried::Retried);
    assert_eq!(retry("0007"), Retried::Unknown);
    let due = take(&timer);
    assert_eq!((due.name(), due.payload(), due.attempt()), ("0007", &b"0007"[..], 1));
    assert!(now().duration_since(due.deadline()).unwrap() < LONG, "it was due at that moment");
    due.ack();
    timer.schedule("0008", now() + HOUR, b"new").unwrap().wait().unwrap();
    assert_eq!(retry("0008"), Retried::Pending);
    assert_eq!(timer.get("0008").unwrap().unwrap().payload(), b"new");
    assert_eq!(timer.dead_letter("0008").unwrap().unwrap().payload(), b"0008");
    assert!(timer.drop_dead("0008").unwrap().wait().unwrap());
    assert!(!timer.drop_dead("0008").unwrap().wait().unwrap());
    assert_eq!(timer.dead_letters().count(), names.len() - 2);
    assert_eq!(timer.len().unwrap(), 1, "dead letters are not pending");
}

#[test]
fn what_no_consumer_asked_for_was_not_handed_out_however_often_the_timer_is_opened() {
    let folder = folder();
    for _ in 0..3 {
        let timer = timer_with_most(&folder, 1);
        for name in ["a", "b", "c"] {
            timer.schedule(name, now(), b"").unwrap().wait().unwrap();
        }
        // It asks for one, and leaves.
        assert!(timer.try_recv().unwrap().is_none());
        timer.close().unwrap();
    }
    let timer = timer_with_most(&folder, 1);
    for name in ["a", "b", "c"] {
        let due = take(&timer);
        assert_eq!((due.name(), due.attempt()), (name, 1));
        due.ack();
    }
    assert_eq!(timer.dead_letters().count(), 0);
}

#[test]
fn a_cancel_takes_back_what_was_counted_and_no_consumer_has() {
    let folder = folder();
    let timer = timer_with_most(&folder, 1);
    assert!(timer.try_recv().unwrap().is_none());
    timer.schedule("a", now(), b"").unwrap().wait().unwrap();
    while timer.stats().waiting == 0 {
        thread::yield_now();
    }
    assert_eq!(timer.cancel("a").unwrap().wait().unwrap(), Cancelled::Cancelled);
    assert!(timer.try_recv().unwrap().is_none());
    timer.close().unwrap();
    assert!(timer_with_most(&folder, 1).is_empty().unwrap());
}

#[test]
fn what_a_consumer_holds_for_too_long_comes_again_and_its_ack_is_of_no_effect() {
    let folder = folder();
    let timer = DurableTimer::builder()
        .visibility(Duration::from_millis(50))
        .redeliver(Duration::ZERO)
        .open(folder.path().join("timeouts"))
        .unwrap();
    timer.schedule("stuck", now(), b"").unwrap().wait().unwrap();
    let stuck = take(&timer);
    let again = take(&timer);
    assert_eq!((again.name(), again.attempt()), ("stuck", 2));
    stuck.extend(HOUR);
    stuck.ack();
    drop(again);
    assert_eq!(timer.len().unwrap(), 1);
    assert!(1 <= timer.stats().expired);
    timer.close().unwrap();
    assert_eq!(timer_with_most(&folder, 9).len().unwrap(), 1);
}

#[test]
fn consumers_get_no_more_in_any_span_than_the_rate_limit_says_and_all_in_the_end() {
    let per = Duration::from_millis(200);
    for attempts in [u32::MAX, 3] {
        let builder = DurableTimer::builder().rate_limit(2, per).max_attempts(attempts);
        let timer = builder.open_store(MemoryStore::default()).unwrap();
        for n in 0..7 {
            timer.schedule(&n.to_string(), now(), b"").unwrap().wait().unwrap();
        }
        // What may be taken waits for the first, and is not saved up.
        thread::sleep(per * 3);
        let taken: Vec<_> = (0..7)
            .map(|n| {
                let before = std::time::Instant::now();
                let due = take(&timer);
                let after = std::time::Instant::now();
                // A consumer that holds one does not hold up the next.
                if n % 2 == 0 {
                    due.ack()
                } else {
                    std::mem::forget(due)
                }
                (before, after)
            })
            .collect();
        // It was taken between these, wherever the thread lost its core.
        for (n, (before, _)) in taken.iter().enumerate() {
            for later in [2, 4, 6].into_iter().filter(|later| n + later < taken.len()) {
                let since = taken[n + later].1 - *before;
                assert!(per * later as u32 / 2 <= since, "{n} and {later} after it: {since:?}");
            }
        }
    }
}

#[test]
fn what_waits_for_a_limit_comes_once_the_one_before_it_is_taken() {
    let builder = DurableTimer::builder().rate_limit(1, Duration::from_millis(1));
    let timer = builder.open_store(MemoryStore::default()).unwrap();
    for n in 0..300 {
        timer.schedule(&n.to_string(), now(), b"").unwrap().wait().unwrap();
    }
    for _ in 0..300 {
        // Nothing but this tells the keeper.
        std::mem::forget(take(&timer));
    }
}

#[test]
fn a_limit_that_the_store_keeps_holds_over_a_restart() {
    let per = Duration::from_millis(200);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("timeouts");
    let timer = DurableTimer::open(&file).unwrap();
    timer.limit_rate(Some(RateLimit { timeouts: 2, per })).unwrap();
    for n in 0..6 {
        timer.schedule(&n.to_string(), now(), b"").unwrap().wait().unwrap();
    }
    let take_three = |timer: DurableTimer| {
        let taken = [(); 3].map(|()| {
            let before = std::time::Instant::now();
            take(&timer).ack();
            (before, std::time::Instant::now())
        });
        timer.close().unwrap();
        taken
    };
    let mut taken = take_three(timer).to_vec();
    taken.extend(take_three(DurableTimer::open(&file).unwrap()));
    for some in taken.windows(3) {
        let since = some[2].1 - some[0].0;
        assert!(per <= since, "{since:?}");
    }
    let timer = DurableTimer::open(&file).unwrap();
    timer.limit_rate(None).unwrap();
    timer.close().unwrap();
}

#[test]
fn a_rate_limit_of_none_and_one_in_no_time_are_refused() {
    let timer = DurableTimer::builder().open_store(MemoryStore::default()).unwrap();
    for (timeouts, per) in [(0, Duration::from_secs(1)), (1, Duration::ZERO)] {
        let error = timer.limit_rate(Some(RateLimit { timeouts, per })).unwrap_err();
        assert!(matches!(error, Error::Setting { setting: "rate_limit", .. }), "{error}");
        let builder = DurableTimer::builder().rate_limit(timeouts, per);
        let error = builder.open_store(MemoryStore::default()).unwrap_err();
        assert!(matches!(error, Error::Setting { setting: "rate_limit", .. }), "{error}");
    }
}

const HOUR: Duration = Duration::from_secs(3600);
/// Longer than anything here takes on any machine.
const LONG: Duration = Duration::from_secs(600);
