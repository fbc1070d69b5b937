//! Backups of a timer's file while the timer works.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, SystemTime};

use tempfile::TempDir;
use tickwheel_durable::store::{
    Change, Dead, DeadPage, Done, Leases, Limit, Loaded, Page, Position, Row, Settlement, Start,
    Store,
};
use tickwheel_durable::{DurableTimer, Error, MemoryStore, RedbStore};

#[test]
fn a_backup_has_all_and_is_a_file_like_any_other() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("timeouts.redb");
    let timer = DurableTimer::builder().max_attempts(1).open(&file).unwrap();
    schedule(&timer, (0..1_300).map(|n| (format!("{n}"), HOUR * (1 + n % 7))));
    schedule(&timer, [("dead".to_owned(), Duration::ZERO), ("both".to_owned(), Duration::ZERO)]);
    for _ in 0..2 {
        drop(timer.recv_timeout(HOUR).unwrap().expect("it is due"));
    }
    while timer.dead_letters().count() < 2 {
        thread::sleep(Duration::from_millis(5));
    }
    schedule(&timer, [("both".to_owned(), HOUR), ("held".to_owned(), Duration::ZERO)]);
    let held = timer.recv_timeout(HOUR).unwrap().expect("it is due");
    let copy = folder.path().join("copy.redb");
    let backup = timer.backup(&copy).unwrap();
    assert_eq!((backup.timeouts, backup.dead), (1_302, 2));
    assert_eq!(parts(&folder), Vec::<PathBuf>::new());
    held.ack();
    timer.close().unwrap();

    let mut whole = contents(&file);
    // It was acked since.
    let held = contents(&copy).0.remove("held").expect("what is in flight is in it");
    assert_eq!(held.2, 1, "it was counted");
    whole.0.insert("held".to_owned(), held);
    assert_eq!(contents(&copy), whole);
    let mut store = RedbStore::open(&copy).unwrap();
    assert!(store.check(false, |_, _| ()).unwrap().is_whole());
    drop(store);
    // To restore it.
    fs::rename(&copy, &file).unwrap();
    let timer = DurableTimer::open(&file).unwrap();
    let due = timer.recv_timeout(HOUR).unwrap().expect("it was in flight");
    assert_eq!((due.name(), due.attempt(), due.metadata()), ("held", 2, "of held"));
    due.ack();
    assert!(timer.retry_dead("dead").unwrap().wait().is_ok());
    let due = timer.recv_timeout(HOUR).unwrap().expect("it is due");
    assert_eq!((due.name(), due.metadata()), ("dead", "of dead"));
    drop(due);
    timer.close().unwrap();
}

/// One caller goes round and round: in one round it puts all names one after another, and in the
/// next it cancels them. So a copy of one moment has the names up to some one, or those behind it,
/// and all of one round.
#[test]
fn a_backup_is_what_the_store_was_at_one_moment_while_callers_go_on() {
    let folder = TempDir::new().unwrap();
    let timer = DurableTimer::builder().open_store(MemoryStore::new()).unwrap();
    let start = SystemTime::now() + HOUR;
    let step = |n: u64| {
        let (name, round) = (n % NAMES, n / NAMES);
        if round % 2 == 1 {
            timer.cancel(&format!("{name}")).unwrap().wait().unwrap();
            return;
        }
        // To and fro, before and behind what the backup has read.
        let at = start + Duration::from_secs((name * 31 + round * 7_919) % 9_973);
        timer.schedule(&format!("{name}"), at, &round.to_le_bytes()).unwrap().wait().unwrap();
    };
    (0..NAMES).for_each(step);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let over = Over(&is_over);
        scope.spawn(|| (NAMES..).take_while(|_| !is_over.load(Ordering::Relaxed)).for_each(step));
        for n in 0..6 {
            let copy = folder.path().join(format!("{n}.redb"));
            let backup = timer.backup(&copy).unwrap();
            let found = contents(&copy).0;
            assert_eq!(backup.timeouts, found.len() as u64);
            let rounds: Vec<&Vec<u8>> = found.values().map(|row| &row.1).collect();
            assert!(rounds.windows(2).all(|two| two[0] == two[1]), "{rounds:?}");
            let is_there: Vec<bool> =
                (0..NAMES).map(|name| found.contains_key(&name.to_string())).collect();
            let turns = is_there.windows(2).filter(|two| two[0] != two[1]).count();
            assert!(turns <= 1, "{turns}: {is_there:?}");
        }
        drop(over);
    });
    timer.close().unwrap();
}

/// Lets a thread end, also if the test fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn what_is_in_the_way_is_told_and_nothing_is_left_behind() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("timeouts.redb");
    let timer = DurableTimer::open(&file).unwrap();
    schedule(&timer, [("a".to_owned(), HOUR)]);
    let copy = folder.path().join("copy.redb");
    for there in [&*file, folder.path()] {
        let error = timer.backup(there).unwrap_err();
        assert!(error.to_string().contains("something is there"), "{error}");
    }
    let nowhere = folder.path().join("no/such/folder.redb");
    let error = timer.backup(&nowhere).unwrap_err();
    assert!(error.to_string().contains("does not exist"), "{error}");
    // Of one that was killed.
    fs::write(folder.path().join("copy.redb.part"), "half").unwrap();
    assert_eq!(timer.backup(&copy).unwrap().timeouts, 1);
    assert_eq!(parts(&folder), Vec::<PathBuf>::new());
    let closed = timer.clone();
    timer.close().unwrap();
    let error = closed.backup(folder.path().join("late.redb")).unwrap_err();
    assert!(matches!(error, Error::Closed), "{error}");
    assert_eq!(parts(&folder), Vec::<PathBuf>::new());
    assert!(!folder.path().join("late.redb").exists());
}

#[test]
fn a_backup_takes_no_file_that_somebody_has_open_for_the_rest_of_one_that_was_killed() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("copy.redb.part");
    let timer = DurableTimer::open(&file).unwrap();
    schedule(&timer, [("a".to_owned(), HOUR)]);
    let error = timer.backup(folder.path().join("copy.redb")).unwrap_err();
    assert!(matches!(&error, Error::Locked { path } if *path == file), "{error}");
    schedule(&timer, [("b".to_owned(), HOUR)]);
    timer.close().unwrap();
    assert_eq!(contents(&file).0.len(), 2);
}

#[test]
fn what_changes_behind_what_was_read_is_in_the_backup_as_it_became() {
    let folder = TempDir::new().unwrap();
    let (slow, began, goes_on) = Slow::new();
    let store = slow.store.clone();
    let timer = DurableTimer::builder().max_attempts(1).open_store(slow).unwrap();
    for name in ["dead", "retried"] {
        schedule(&timer, [(name.to_owned(), Duration::ZERO)]);
        drop(timer.recv_timeout(HOUR).unwrap().expect("it is due"));
    }
    while timer.dead_letters().count() < 2 {
        thread::sleep(Duration::from_millis(5));
    }
    schedule(&timer, (0..1_300).map(|n| (format!("{n}"), HOUR + Duration::from_secs(n))));
    schedule(&timer, [("held".to_owned(), Duration::ZERO)]);
    let held = timer.recv_timeout(HOUR).unwrap().expect("it is due");
    let (other, path) = (timer.clone(), folder.path().join("copy.redb"));
    let copy = path.clone();
    let backup = thread::spawn(move || other.backup(path));
    began.recv().unwrap();
    // The first page and the dead letters were read.
    held.ack();
    timer.cancel("1").unwrap().wait().unwrap();
    schedule(&timer, [("2".to_owned(), 9 * HOUR), ("1200".to_owned(), HOUR / 2)]);
    schedule(&timer, [("new".to_owned(), HOUR / 2)]);
    assert!(timer.drop_dead("dead").unwrap().wait().unwrap());
    timer.retry_dead("retried").unwrap().wait().unwrap();
    timer.cancel("retried").unwrap().wait().unwrap();
    while timer.get("held").unwrap().is_some() {
        thread::sleep(Duration::from_millis(5));
    }
    goes_on.store(true, Ordering::Relaxed);
    assert_eq!(backup.join().unwrap().unwrap().timeouts, 1_300);
    timer.close().unwrap();
    assert_eq!(contents(&copy), of_store(store));
}

#[test]
fn a_second_backup_is_refused_while_the_first_goes_on() {
    let folder = TempDir::new().unwrap();
    let (slow, began, goes_on) = Slow::new();
    let timer = DurableTimer::builder().open_store(slow).unwrap();
    schedule(&timer, (0..600).map(|n| (format!("{n}"), HOUR)));
    let (other, path) = (timer.clone(), folder.path().join("first.redb"));
    let first = thread::spawn(move || other.backup(path));
    began.recv().unwrap();
    let (other, path) = (timer.clone(), folder.path().join("second.redb"));
    let (sender, second) = mpsc::channel();
    thread::spawn(move || sender.send(other.backup(path)));
    let refused = second.recv_timeout(Duration::from_secs(600));
    goes_on.store(true, Ordering::Relaxed);
    let error = refused.expect("it waits for nothing").unwrap_err();
    assert!(error.to_string().contains("another backup"), "{error}");
    assert_eq!(first.join().unwrap().unwrap().timeouts, 600);
    // Then there may be another.
    assert_eq!(timer.backup(folder.path().join("second.redb")).unwrap().timeouts, 600);
    timer.close().unwrap();
}

/// A store that tells of the first page that it has listed, and has no other until it is let.
struct Slow {
    store: MemoryStore,
    began: mpsc::Sender<()>,
    goes_on: Arc<AtomicBool>,
}

impl Slow {
    fn new() -> (Self, mpsc::Receiver<()>, Arc<AtomicBool>) {
        let (began, receiver) = mpsc::channel();
        let goes_on = Arc::new(AtomicBool::new(false));
        let store = MemoryStore::new();
        (Self { store, began, goes_on: goes_on.clone() }, receiver, goes_on)
    }
}

impl Store for Slow {
    fn lease(&mut self, wanted: bool, given_back: &[u32]) -> Result<Leases, Error> {
        self.store.lease(wanted, given_back)
    }

    fn load(&mut self, from: &[Start], until: u64, limit: Limit) -> Result<Loaded, Error> {
        self.store.load(from, until, limit)
    }

    fn commit(&mut self, settlements: &[Settlement], changes: &[Change]) -> Result<Done, Error> {
        self.store.commit(settlements, changes)
    }

    fn get(&mut self, name: &str) -> Result<Option<Row>, Error> {
        self.store.get(name)
    }

    fn list(&mut self, after: &Position, until: u64, limit: Limit) -> Result<Page, Error> {
        if *after == Position::start() {
            let page = self.store.list(after, until, limit);
            let _ = self.began.send(());
            return page;
        }
        if !self.goes_on.load(Ordering::Relaxed) {
            // Commits are made meanwhile.
            thread::sleep(Duration::from_millis(1));
            return Ok(Page { end: Some(after.clone()), ..Page::default() });
        }
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

#[test]
fn a_backup_that_is_killed_leaves_no_file_of_that_name_and_the_next_is_whole() {
    let folder = TempDir::new().unwrap();
    let copy = folder.path().join("copy.redb");
    for round in 0..8 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child", "--nocapture"])
            .env("TICKWHEEL_DURABLE_FILE", folder.path().join(format!("{round}.redb")))
            .env("TICKWHEEL_DURABLE_LAST", &copy)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap() == "@begins"), "it ended by itself");
        thread::sleep(Duration::from_millis(fastrand::u64(0..60)));
        child.kill().unwrap();
        let status = child.wait().unwrap();
        assert!(status.code().is_none(), "it ended by itself: {status}");
        if copy.exists() {
            assert_eq!(contents(&copy).0.len(), 3_000, "it has its name when it is whole");
            fs::remove_file(&copy).unwrap();
        }
    }
    // In place of what the last one left, if that was killed in time.
    let file = folder.path().join("7.redb");
    let timer = DurableTimer::open(&file).unwrap();
    assert_eq!(timer.backup(&copy).unwrap().timeouts, 3_000);
    timer.close().unwrap();
    let whole = contents(&file);
    assert_eq!(whole.0.len(), 3_000);
    assert_eq!(contents(&copy), whole);
    assert_eq!(parts(&folder), Vec::<PathBuf>::new());
}

/// Is killed by the test above.
#[test]
fn child() {
    let Ok(file) = std::env::var("TICKWHEEL_DURABLE_FILE") else { return };
    let timer = DurableTimer::open(file).unwrap();
    schedule(&timer, (0..3_000).map(|n| (format!("{n}"), HOUR)));
    println!("\n@begins");
    timer.backup(std::env::var("TICKWHEEL_DURABLE_LAST").unwrap()).unwrap();
    thread::sleep(HOUR);
}

fn schedule(timer: &DurableTimer, all: impl IntoIterator<Item = (String, Duration)>) {
    let now = SystemTime::now();
    let put = |(name, delay): (String, Duration)| {
        timer.schedule(&name, now + delay, (name.as_bytes(), &*format!("of {name}"))).unwrap()
    };
    for commit in all.into_iter().map(put).collect::<Vec<_>>() {
        commit.wait().unwrap();
    }
}

type Due = BTreeMap<String, (u64, Vec<u8>, u32, String)>;

/// Timeouts by name with deadline, payload, attempt and metadata; and dead letters in words.
fn contents(file: &Path) -> (Due, Vec<String>) {
    of_store(RedbStore::open_existing(file).unwrap())
}

fn of_store(mut store: impl Store) -> (Due, Vec<String>) {
    let all = Limit { rows: usize::MAX, bytes: usize::MAX };
    let rows = store.list(&Position::start(), u64::MAX, all).unwrap().rows;
    let letters = store.list_dead("", all).unwrap().letters;
    let due = rows.into_iter().map(|Row { name, deadline, payload, metadata, attempt, .. }| {
        (name.to_string(), (deadline, payload.to_vec(), attempt, metadata.to_string()))
    });
    (due.collect(), letters.iter().map(|letter| format!("{letter:?}")).collect())
}

/// What a backup has left behind.
fn parts(folder: &TempDir) -> Vec<PathBuf> {
    let files = fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().path());
    files.filter(|file| file.extension().is_some_and(|it| it == "part")).collect()
}

const NAMES: u64 = 1_500;
const HOUR: Duration = Duration::from_secs(3600);
