//! A fleet of databases, by its client.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use tickwheel_durable::{
    Cancelled, DurableTimer, Error, Fleet, PostgresStore, Scheduled, join_fleet, move_partition,
};

use super::server::{Server, client};
use super::{HOUR, LONG, now, until};

fn store(url: &str) -> PostgresStore {
    PostgresStore::connect(url).unwrap()
}

/// Lets the second database join the first, and moves these partitions there.
fn share(old: &str, new: &str, moved: Range<u32>) {
    let (mut old, mut new) = (store(old), store(new));
    join_fleet(&mut new, &mut old).unwrap();
    for partition in moved {
        move_partition(&mut old, &mut new, partition, |_| ()).unwrap();
    }
}

/// Makes a fleet of two databases, which have half of the partitions each.
fn halves(server: &Server) -> [String; 2] {
    let urls = [server.database(), server.database()];
    share(&urls[0], &urls[1], 0..32);
    urls
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("order-{n}")).collect()
}

#[test]
fn each_name_is_in_one_database_and_the_client_finds_it() {
    let Some(server) = Server::start() else { return };
    let urls = halves(&server);
    let fleet = Fleet::connect(&urls).unwrap();
    let names = names(200);
    for at in [now() + HOUR, now() + HOUR * 2] {
        let expected = if fleet.is_empty().unwrap() { Scheduled::New } else { Scheduled::Moved };
        let commits: Vec<_> =
            names.iter().map(|name| fleet.schedule(name, at, b"eur 20").unwrap()).collect();
        for commit in commits {
            assert_eq!(commit.wait().unwrap(), expected);
        }
    }
    assert_eq!(fleet.len().unwrap(), 200);
    for url in &urls {
        let count = client(url).query_one("select count(*) from tickwheel_due", &[]).unwrap();
        assert!((50..150).contains(&count.get::<_, i64>(0)), "{count:?}");
    }
    let found: HashSet<String> =
        fleet.iter().map(|pending| pending.unwrap().name().to_owned()).collect();
    assert_eq!(found.len(), 200);
    let pending = fleet.get("order-7").unwrap().expect("it is pending");
    assert_eq!(pending.payload(), b"eur 20");
    for name in &names[..100] {
        assert_eq!(fleet.cancel(name).unwrap().wait().unwrap(), Cancelled::Cancelled);
        assert!(fleet.get(name).unwrap().is_none());
    }
    for name in &names[100..] {
        fleet.schedule(name, now(), b"").unwrap().wait().unwrap();
    }
    let mut came = HashSet::new();
    while came.len() < 100 {
        let due = fleet.recv_timeout(LONG).unwrap().expect("it is due");
        came.insert(due.name().to_owned());
        due.ack();
    }
    assert_eq!(came, names[100..].iter().cloned().collect());
    fleet.close().unwrap();
    let fleet = Fleet::connect(&urls[1..]).unwrap();
    assert_eq!(fleet.len().unwrap(), 0);
    let databases = fleet.databases();
    assert_eq!(databases[0].partitions, (0..32).collect::<Vec<u32>>());
}

#[test]
fn databases_of_no_fleet_and_one_that_is_given_twice_are_refused_in_words() {
    let Some(server) = Server::start() else { return };
    let urls = [server.tables(), server.tables()];
    let error = Fleet::connect(&urls).unwrap_err().to_string();
    let names = urls.each_ref().map(|url| url.rsplit_once('/').unwrap().1);
    for part in names.iter().chain(&["tickwheel-durable fleet join"]) {
        assert!(error.contains(part), "{error}");
    }
    let twice = [&*urls[0], &urls[0].replace("127.0.0.1", "localhost")].map(str::to_owned);
    let error = Fleet::connect(&twice).unwrap_err().to_string();
    for part in ["127.0.0.1", "localhost", "the same database"] {
        assert!(error.contains(part), "{error}");
    }
    let none: [&str; 0] = [];
    assert!(matches!(Fleet::connect(&none), Err(Error::Setting { .. })));
    assert!(matches!(
        Fleet::connect(&["postgresql://u@h/d?sslmode=maybe"]),
        Err(Error::Store { .. })
    ));
    let silent = ["postgresql://u@127.0.0.1:1/a", "postgresql://u@127.0.0.1:1/b"];
    let error = Fleet::connect(&silent).unwrap_err().to_string();
    assert!(error.contains("127.0.0.1:1/a") && error.contains("127.0.0.1:1/b"), "{error}");
    // One is enough.
    let fleet = Fleet::connect(&[&*urls[0], silent[0]]).unwrap();
    fleet.schedule("a", now(), b"").unwrap().wait().unwrap();
    fleet.recv_timeout(LONG).unwrap().expect("it is due").ack();
    fleet.close().unwrap();
}

#[test]
fn a_database_that_is_down_holds_up_its_names_and_no_others() {
    let (Some(server), Some(other)) = (Server::start(), Server::start()) else { return };
    let urls = [server.database(), other.database()];
    share(&urls[0], &urls[1], 0..32);
    let fleet = Fleet::connect(&urls[..1]).unwrap();
    let commits: Vec<_> =
        names(100).iter().map(|name| fleet.schedule(name, now() + HOUR, b"").unwrap()).collect();
    let errors = commits.into_iter().filter_map(|commit| commit.wait().err());
    let errors: Vec<String> = errors.map(|error| error.to_string()).collect();
    assert!((20..80).contains(&errors.len()), "{errors:?}");
    assert!(errors.iter().all(|error| error.contains("URL")), "{errors:?}");
    fleet.close().unwrap();

    other.stop("fast");
    let told = Arc::new(Mutex::new(Vec::new()));
    let tells = Arc::clone(&told);
    let hook = move |error: &Error| tells.lock().unwrap().push(error.to_string());
    let fleet = DurableTimer::builder().on_error(hook).open_fleet(&urls).unwrap();
    assert!(fleet.databases()[0].error.is_none());
    assert!(fleet.databases()[1].error.is_some());
    assert_eq!(fleet.databases()[0].partitions.len(), 32);
    until("it is told", || !told.lock().unwrap().is_empty());
    let place = urls[1].rsplit_once('@').unwrap().1;
    assert!(told.lock().unwrap().iter().all(|error| error.contains(place)), "{told:?}");
    let mut commits: Vec<_> =
        names(100).iter().map(|name| fleet.schedule(name, now(), b"").unwrap()).collect();
    // Those of the first database.
    for _ in 0..20 {
        fleet.recv_timeout(LONG).unwrap().expect("it is due").ack();
    }
    other.go();
    // What was asked for meanwhile was done, or gave up.
    for commit in commits.drain(..) {
        match commit.wait() {
            // Those of the first database were there.
            Ok(Scheduled::New | Scheduled::Moved) => {}
            Ok(found) => panic!("{found:?}"),
            Err(error) => assert!(error.to_string().contains(place), "{error}"),
        }
    }
    until("it is up", || fleet.databases()[1].error.is_none());
    for name in names(100) {
        fleet.schedule(&name, now(), b"").unwrap().wait().unwrap();
    }
    let mut came = HashSet::new();
    while came.len() < 100 {
        let due = fleet.recv_timeout(LONG).unwrap().expect("it is due");
        came.insert(due.name().to_owned());
        due.ack();
    }

    // It hangs, and the other one does not notice.
    let mut blocked = client(&urls[1]);
    blocked.batch_execute("begin; lock table tickwheel_due in access exclusive mode").unwrap();
    let names = names(100);
    let mut commits: HashMap<&str, _> = names
        .iter()
        .map(|name| (&**name, fleet.schedule(name, now() + HOUR, b"").unwrap()))
        .collect();
    let answered = commits.iter_mut().filter_map(|(_, commit)| commit.wait_timeout(LONG));
    let (done, failed): (Vec<_>, Vec<_>) = answered.partition(Result::is_ok);
    assert!(20 < done.len() && done.len() + failed.len() == 100, "{}", done.len());
    for error in failed.into_iter().map(|failed| failed.unwrap_err().to_string()) {
        assert!(error.contains(place), "{error}");
    }
    blocked.batch_execute("rollback").unwrap();
    fleet.close().unwrap();
}

#[test]
fn a_database_that_is_made_anew_gets_nothing_that_would_be_in_no_fleet() {
    let Some(server) = Server::start() else { return };
    let urls = halves(&server);
    let fleet = Fleet::connect(&urls).unwrap();
    let mut sql = client(&urls[0]);
    let name = urls[1].rsplit_once('/').unwrap().1;
    sql.batch_execute(&format!("drop database {name} with (force)")).unwrap();
    sql.batch_execute(&format!("create database {name} encoding 'UTF8' template template0"))
        .unwrap();
    until("it is told", || {
        let error = fleet.databases()[1].error.as_ref().map(Error::to_string);
        error.is_some_and(|error| error.contains("the right one"))
    });
    let names = names(100);
    let commits = names.iter().map(|name| fleet.schedule(name, now() + HOUR, b"").unwrap());
    let commits: Vec<_> = commits.collect();
    let done = commits.into_iter().filter_map(|commit| commit.wait().ok()).count();
    assert!((20..80).contains(&done), "{done}");
    let made = "select to_regclass('tickwheel_meta') is not null";
    assert!(!client(&urls[1]).query_one(made, &[]).unwrap().get::<_, bool>(0));
    let count = sql.query_one("select count(*) from tickwheel_due", &[]).unwrap();
    assert_eq!(count.get::<_, i64>(0), done as i64);
}

#[test]
fn what_is_asked_while_all_is_moved_is_done_once_and_in_its_order() {
    let Some(server) = Server::start() else { return };
    let urls = halves(&server);
    let fleet = Fleet::connect(&urls).unwrap();
    let ends = AtomicBool::new(false);
    let (sender, due) = mpsc::channel();
    let (mut cancelled, mut wanted) = (HashSet::new(), HashSet::new());
    thread::scope(|scope| {
        scope.spawn(|| {
            while let Some(due) = fleet.recv().unwrap() {
                assert!(due.deadline() <= now());
                let _ = sender.send(due.name().to_owned());
                due.ack();
            }
        });
        let mover = scope.spawn(|| {
            let mut stores = urls.each_ref().map(|url| store(url));
            let mut moves = 0;
            while !ends.load(Ordering::SeqCst) || moves == 0 {
                let [first, second] = &mut stores;
                for partition in (0..64).step_by(7) {
                    let homes = first.homes().unwrap();
                    let is_first = homes.partitions[partition as usize].state.is_here();
                    let done = match is_first {
                        true => move_partition(first, second, partition, |_| ()),
                        false => move_partition(second, first, partition, |_| ()),
                    };
                    done.unwrap();
                    moves += 1;
                }
            }
            moves
        });
        for round in 0..30 {
            // Names of all partitions: of the first third nothing is to come.
            let names: Vec<String> = (0..90).map(|n| format!("{round}-{n}")).collect();
            let mut puts = Vec::new();
            let mut cancels = Vec::new();
            for (n, name) in names.iter().enumerate() {
                let at = if n < 30 { now() + HOUR } else { now() + Duration::from_millis(300) };
                puts.push(fleet.schedule(name, at, b"").unwrap());
                if n < 30 {
                    cancels.push(fleet.cancel(name).unwrap());
                } else {
                    wanted.insert(name.clone());
                }
            }
            for put in puts {
                assert_eq!(put.wait().unwrap(), Scheduled::New);
            }
            for cancel in cancels {
                assert_eq!(cancel.wait().unwrap(), Cancelled::Cancelled);
            }
            cancelled.extend(names[..30].iter().cloned());
        }
        let mut came = HashSet::new();
        while !wanted.iter().all(|name| came.contains(name)) {
            came.insert(due.recv_timeout(LONG).expect("all come"));
        }
        ends.store(true, Ordering::SeqCst);
        assert!(0 < mover.join().unwrap());
        until("nothing is pending", || fleet.is_empty().unwrap());
        assert!(came.is_disjoint(&cancelled));
        fleet.clone().close().unwrap();
    });
}

#[test]
fn a_task_connects_waits_and_closes_without_blocking() {
    let Some(server) = Server::start() else { return };
    let urls = halves(&server);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let fleet = Fleet::connect_async(&urls).await.unwrap();
        for name in names(20) {
            fleet.schedule(&name, now(), b"").unwrap().await.unwrap();
        }
        for _ in 0..20 {
            fleet.next().await.unwrap().expect("it is due").ack();
        }
        let waits = tokio::spawn({
            let fleet = fleet.clone();
            async move { fleet.next().await }
        });
        tokio::task::yield_now().await;
        fleet.close_async().await.unwrap();
        assert!(waits.await.unwrap().unwrap().is_none());
    });
    let left = Fleet::connect(&urls).unwrap().len().unwrap();
    assert_eq!(left, 0);
}
