//! The timer on PostgreSQL, under conditions that every database in production has: nothing stands
//! still.

use std::collections::{HashMap, HashSet};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use postgres::Client;
use tickwheel_durable::store::{
    Change, Held, Limit, Outcome, Position, Settlement, Start, Store, Then,
};
use tickwheel_durable::{
    Cancelled, Commit, Due, DurableTimer, PostgresStore, RateLimit, Retried, Scheduled, schedule_in,
};

use super::{HOUR, LONG, SHARED, STEADY, now, received, take, until, worker};
use crate::server::{Server, client};

/// Takes timeouts and acks them until all of these names have come. Returns how many came.
pub(crate) fn take_all(timers: &[&DurableTimer], mut names: HashSet<String>) -> u64 {
    let began = Instant::now();
    let mut came = 0;
    while !names.is_empty() {
        assert!(began.elapsed() < LONG, "{} never came, as {:?}", names.len(), names.iter().next());
        for timer in timers {
            while let Some(due) = timer.recv_timeout(Duration::from_millis(5)).unwrap() {
                names.remove(due.name());
                came += 1;
                due.ack();
            }
        }
    }
    came
}

/// Schedules so many, due in 100 ms, and returns their names.
pub(crate) fn schedule(timer: &DurableTimer, kind: &str, count: u64) -> HashSet<String> {
    let names: Vec<String> = (0..count).map(|n| format!("{kind} {n}")).collect();
    let at = now() + Duration::from_millis(100);
    let commits: Vec<_> = names.iter().map(|name| timer.schedule(name, at, b"").unwrap()).collect();
    for (name, commit) in names.iter().zip(commits) {
        in_time(timer, name, at, commit);
    }
    names.into_iter().collect()
}

/// A put may wait for a quarter of a second only, and for its answer for a third of the lease, in
/// which a busy machine may not have run the server's process: then the caller asks again.
fn in_time(timer: &DurableTimer, name: &str, at: SystemTime, put: Commit<Scheduled>) -> Scheduled {
    let (mut put, mut tries) = (put.wait(), 0);
    while let Err(error) = &put {
        tries += 1;
        assert!(tries < 50, "{name}: {error}");
        let words = error.to_string();
        let is_late = ["in a transaction of yours it has more", "no answer within"];
        assert!(is_late.iter().any(|late| words.contains(late)), "{error}");
        put = timer.schedule(name, at, b"").unwrap().wait();
    }
    put.unwrap()
}

/// Returns what was read of the table, what of its order dead rows included, and temporary files.
fn read(client: &mut Client) -> (i64, i64, i64) {
    // The server tells what it counted a second late.
    thread::sleep(Duration::from_millis(1_500));
    let row = client
        .query_one(
            "select t.idx_tup_fetch + t.seq_tup_read, i.idx_tup_read, d.temp_files
             from pg_stat_user_tables t, pg_stat_user_indexes i, pg_stat_database d
             where t.relname = 'tickwheel_due' and i.indexrelname = 'tickwheel_due_order'
               and d.datname = current_database()",
            &[],
        )
        .unwrap();
    (row.get(0), row.get(1), row.get(2))
}

#[test]
fn a_backlog_is_read_once_and_without_temporary_files() {
    let Some(server) = Server::start() else { return };
    let log = server.data().with_file_name("log");
    let cancelled = || {
        let log = std::fs::read_to_string(&log).unwrap();
        log.matches("canceling statement").count()
    };
    // One is read by the load. The ack finds it in its place, which counts as none.
    for _ in 0..5 {
        let before = cancelled();
        let fetched = rows_read_of_a_backlog(&server);
        if fetched < 1.5 {
            return;
        }
        // What a busy server has not read in its time is read again, in smaller parts.
        assert!(before < cancelled(), "{fetched}");
    }
    panic!("in five times, some was not read in its time");
}

fn rows_read_of_a_backlog(server: &Server) -> f64 {
    let url = server.tables();
    let mut client = client(&url);
    let count = number("TICKWHEEL_DURABLE_BACKLOG", 20_000);
    client
        .batch_execute(&format!(
            "insert into tickwheel_due (name, deadline, payload)
             select 'overdue ' || n, n, '' from generate_series(0, {}) n;
             analyze tickwheel_due",
            count - 1
        ))
        .unwrap();
    let before = read(&mut client);
    let began = Instant::now();
    let store = PostgresStore::connect(&url).unwrap().lease(STEADY);
    let timer = DurableTimer::builder().open_store(store).unwrap();
    timer.recv_timeout(LONG).unwrap().expect("the first is due").ack();
    println!("the first {:?} after the call to connect", began.elapsed());
    let mut came = 1;
    while came < count {
        timer.recv_timeout(LONG).unwrap().expect("one is due").ack();
        came += 1;
    }
    println!("{:.0} fired per second", f64::from(count) / began.elapsed().as_secs_f64());
    until("all are acked", || timer.stats().acked == u64::from(count));
    timer.close().unwrap();
    let after = read(&mut client);
    let fetched = (after.0 - before.0) as f64 / f64::from(count);
    println!("{count} overdue: {fetched:.2} rows read for each");
    assert_eq!(after.2 - before.2, 0, "temporary files");
    fetched
}

fn number(variable: &str, default: u32) -> u32 {
    std::env::var(variable).map_or(default, |number| number.parse().unwrap())
}

#[test]
fn what_is_dead_behind_a_snapshot_is_not_read_again_and_again() {
    let Some(server) = Server::start() else { return };
    let url = server.tables();
    let (mut dump, mut client) = (client(&url), client(&url));
    let count = number("TICKWHEEL_DURABLE_DEAD", 100_000);
    let fill = format!(
        "insert into tickwheel_due (name, deadline, payload)
         select 'dead ' || n, n, '' from generate_series(1, {count}) n"
    );
    client.batch_execute(&fill).unwrap();
    let dump = dump.build_transaction().isolation_level(postgres::IsolationLevel::RepeatableRead);
    let mut dump = dump.start().unwrap();
    dump.query_one("select count(*) from tickwheel_due", &[]).unwrap();
    client.batch_execute("delete from tickwheel_due").unwrap();
    let timer = DurableTimer::connect(&url).unwrap();
    // What comes does not wait until they are read.
    take_all(&[&timer], schedule(&timer, "first", 30));
    let mut before = read(&mut client);
    until("they are read", || {
        let grown = read(&mut client).1 - before.1;
        before.1 += grown;
        i64::from(count) <= before.1 && grown < i64::from(count) / 20
    });
    let mut came = 0;
    for round in 0..10 {
        came += take_all(&[&timer], schedule(&timer, &format!("{round}"), 30));
    }
    let after = read(&mut client);
    println!("{came} fired over {count} dead rows: {} read of the order", after.1 - before.1);
    println!("{:?}", timer.stats());
    // Each was read five times a second.
    assert!(after.1 - before.1 < i64::from(count) / 2, "{after:?}");
    dump.commit().unwrap();
}

/// They are overdue, and nobody sees them until it ends.
#[test]
fn what_a_transaction_puts_that_stays_open_is_not_read_again_and_again() {
    let Some(server) = Server::start() else { return };
    let url = server.database();
    let timer = worker(&url, STEADY);
    let (mut other, mut client) = (client(&url), client(&url));
    let count = number("TICKWHEEL_DURABLE_OPEN", 20_000);
    let mut restore = other.transaction().unwrap();
    restore
        .batch_execute(&format!(
            "insert into tickwheel_due (name, deadline, payload)
             select 'open ' || n, n, '' from generate_series(1, {count}) n"
        ))
        .unwrap();
    let mut read = || -> i64 {
        // The server tells what it counted a second late.
        thread::sleep(Duration::from_millis(1_500));
        let read = "select idx_tup_read from pg_stat_user_indexes
                    where indexrelname = 'tickwheel_due_new'";
        client.query_one(read, &[]).unwrap().get(0)
    };
    // So that it is older than what the looks have seen. The first of them may read its rows.
    timer.schedule("later", now() + HOUR, b"").unwrap().wait().unwrap();
    let mut before = read();
    until("no look reads them", || {
        let grown = read() - before;
        before += grown;
        println!("{grown} read of the index while the transaction is open");
        grown < i64::from(count) / 20
    });
    take_all(&[&timer], schedule(&timer, "meanwhile", 30));
    restore.commit().unwrap();
    take_all(&[&timer], (1..=count).map(|n| format!("open {n}")).collect());
    assert_eq!(timer.stats().errors, 0);
    timer.close().unwrap();
}

/// A dump brings the numbers of the transactions of another cluster, if triggers are disabled.
#[test]
fn rows_of_a_dump_from_a_cluster_that_is_further_on_are_not_read_again_and_again() {
    let Some(server) = Server::start() else { return };
    let url = server.tables();
    let mut client = client(&url);
    let count = 5_000;
    client
        .batch_execute(&format!(
            "set session_replication_role = replica;
             insert into tickwheel_due (name, deadline, payload, put_by)
             select 'restored ' || n, n, '', '900000000000' from generate_series(1, {count}) n;
             set session_replication_role = origin;
             analyze tickwheel_due"
        ))
        .unwrap();
    // A consumer that takes nothing, so that they stay.
    let timer =
        DurableTimer::builder().in_flight(1).open_store(PostgresStore::connect(&url).unwrap());
    let timer = timer.unwrap();
    let held = take(&timer);
    until("they are read", || timer.stats().near == count - 1);
    let mut before = read(&mut client);
    until("that is counted", || {
        before = read(&mut client);
        count as i64 <= before.0
    });
    thread::sleep(Duration::from_secs(2));
    let after = read(&mut client);
    assert!(after.0 - before.0 < count as i64, "{} read", after.0 - before.0);
    // What is new is found all the same.
    client.batch_execute("select tickwheel_schedule('new', now(), '')").unwrap();
    until("it is found", || timer.stats().near == count);
    held.ack();
    timer.close().unwrap();
}

#[test]
fn what_is_restored_from_a_dump_while_a_worker_runs_is_found() {
    let Some(server) = Server::start() else { return };
    let url = server.database();
    let timer = DurableTimer::connect(&url).unwrap();
    take_all(&[&timer], schedule(&timer, "first", 200));
    let mut client = client(&url);
    // Of transactions that have been, and that are not yet.
    for put_by in ["3", "900000000000"] {
        let mut restored = client
            .copy_in(
                "copy tickwheel_due (name, deadline, put_by, payload)
            from stdin",
            )
            .unwrap();
        let names: HashSet<String> = (0..100).map(|n| format!("restored {put_by} {n}")).collect();
        for name in &names {
            writeln!(restored, "{name}\t1000\t{put_by}\t").unwrap();
        }
        restored.finish().unwrap();
        take_all(&[&timer], names);
    }
    timer.close().unwrap();
}

/// A copy brings them, if it brings no sequence.
#[test]
fn two_timeouts_of_one_number_are_two_timeouts() {
    let Some(server) = Server::start() else { return };
    let url = server.tables();
    let mut sql = client(&url);
    let copy = |prefix: &str| {
        format!(
            "insert into tickwheel_due (name, deadline, payload, put_by, number)
             select '{prefix} ' || n, 1000, '', '3', n from generate_series(1, 100) n;"
        )
    };
    // Where triggers are not disabled, the numbers are new.
    sql.batch_execute(&(copy("a") + &copy("b"))).unwrap();
    let numbers = "select count(distinct number) from tickwheel_due";
    assert_eq!(sql.query_one(numbers, &[]).unwrap().get::<_, i64>(0), 200);
    sql.batch_execute(&format!(
        "delete from tickwheel_due; set session_replication_role = replica; {} {}
         set session_replication_role = origin",
        copy("a"),
        copy("b")
    ))
    .unwrap();
    // All are read before the first is acked.
    let timer =
        DurableTimer::builder().in_flight(200).open_store(PostgresStore::connect(&url).unwrap());
    let timer = timer.unwrap();
    let mut held = Vec::from_iter((0..100).map(|_| take(&timer)));
    let names = || -> HashSet<String> {
        timer.iter().map(|pending| pending.unwrap().name().to_owned()).collect()
    };
    for due in held.drain(..) {
        let (acked, before) = (due.name().to_owned(), names());
        due.ack();
        until("it is acked", || !names().contains(&acked));
        let gone: HashSet<String> = before.difference(&names()).cloned().collect();
        assert_eq!(gone, HashSet::from([acked]));
    }
    take_all(&[&timer], names());
    timer.close().unwrap();
}

/// A payload whose pages are gone is an error of the whole statement: of what is due soon, of what
/// was put behind what has been read, and among many that are overdue.
#[test]
fn a_payload_that_the_server_cannot_read_is_set_aside_and_all_others_go_on() {
    let Some(server) = Server::start() else { return };
    let url = server.tables();
    let mut sql = client(&url);
    let bad = |what: &str, at: &str| {
        // Random, so that it is too much for the page of its row.
        format!(
            "select tickwheel_schedule('{what}', {at}, (select string_agg(
               decode(md5(random()::text), 'hex'), '') from generate_series(1, 3000)));
             do $$ declare chunks text := (select reltoastrelid::regclass::text from pg_class
               where relname = 'tickwheel_due');
             begin
               execute format('select heap_force_kill(%L, (select array_agg(ctid) from %s))',
                 chunks, chunks);
             end $$"
        )
    };
    sql.batch_execute(&format!(
        "create extension pg_surgery;
         insert into tickwheel_due (name, deadline, payload)
         select 'overdue ' || n, n, '' from generate_series(1, 5000) n;
         {}",
        bad("overdue", "to_timestamp(10)")
    ))
    .unwrap();
    // A consumer that takes nothing, so that the others stay.
    let store = PostgresStore::connect(&url).unwrap();
    let timer = received(DurableTimer::builder().in_flight(1).open_store(store).unwrap());
    until("the first is told", || timer.stats().damaged == 1);
    until("they are read", || 4_900 < timer.stats().near);
    sql.batch_execute(&bad("behind", "now() - interval '1 minute'")).unwrap();
    until("the second is told", || timer.stats().damaged == 2);
    sql.batch_execute(&bad("soon", "now() + interval '2 seconds'")).unwrap();
    until("the third is told", || timer.stats().damaged == 3);
    timer.close().unwrap();
    let timer = worker(&url, STEADY);
    take_all(&[&timer], (1..=5_000).map(|n| format!("overdue {n}")).collect());
    take_all(&[&timer], schedule(&timer, "later", 20));
    assert_eq!((timer.stats().damaged, timer.stats().errors), (0, 0));
    timer.close().unwrap();
    let count = "select count(*) from tickwheel_broken";
    assert_eq!(sql.query_one(count, &[]).unwrap().get::<_, i64>(0), 3);
}

/// Those of an open transaction that are new, which only a wait for each can tell.
#[test]
fn locked_and_free_names_by_turns_are_refused_and_put() {
    let Some(server) = Server::start() else { return };
    let url = server.database();
    let timer = worker(&url, STEADY);
    let mut other = client(&url);
    let mut lunch = other.transaction().unwrap();
    let new = "select tickwheel_schedule('locked ' || n, now() + interval '1 hour', '')
               from generate_series(0, 255) n";
    lunch.batch_execute(new).unwrap();
    let put = |name: String| timer.schedule(&name, now() + HOUR, b"").unwrap();
    let commits: Vec<_> =
        (0..256).map(|n| (put(format!("locked {n}")), put(format!("free {n}")))).collect();
    for (n, (locked, free)) in commits.into_iter().enumerate() {
        assert!(locked.wait().is_err());
        let free = in_time(&timer, &format!("free {n}"), now() + HOUR, free);
        assert_eq!(free, Scheduled::New);
    }
    lunch.rollback().unwrap();
    assert_eq!((timer.len().unwrap(), timer.stats().errors), (256, 0));
    timer.close().unwrap();
}

#[test]
fn a_name_that_somebody_has_locked_holds_up_no_other() {
    let Some(server) = Server::start() else { return };
    let url = server.database();
    for count in [1, 2] {
        let timers: Vec<DurableTimer> = (0..count).map(|_| worker(&url, SHARED)).collect();
        let timers: Vec<&DurableTimer> = timers.iter().collect();
        until("they share all", || {
            timers.iter().map(|timer| timer.stats().partitions).sum::<usize>() == 64
        });
        let mut names = schedule(timers[0], "free", 20);
        names.extend(schedule(timers[0], "locked", 1));
        let mut other = client(&url);
        let mut lunch = other.transaction().unwrap();
        lunch.query_one("select tickwheel_cancel('locked 0')", &[]).unwrap();
        // All come, the locked one too, and all others are acked.
        take_all(&timers, names);
        let left = || timers[0].len().unwrap();
        until("all others are acked", || left() == 1);
        // Its callers are told, and those of others do not wait for it.
        let locked = timers[0].schedule("locked 0", now() + HOUR, b"").unwrap();
        let free = timers[0].schedule("another", now() + HOUR, b"").unwrap();
        assert_eq!(in_time(timers[0], "another", now() + HOUR, free), Scheduled::New);
        let error = locked.wait().unwrap_err().to_string();
        assert!(error.contains("locked 0"), "{error}");
        take_all(&timers, schedule(timers[0], "later", 20));
        for timer in &timers {
            assert_eq!((timer.stats().fenced, timer.stats().errors), (0, 0), "no lease is lost");
        }
        assert_eq!(timers[0].cancel("another").unwrap().wait().unwrap(), Cancelled::Cancelled);
        lunch.commit().unwrap();
        until("nothing is left", || left() == 0);
    }
}

#[test]
fn what_a_consumer_holds_comes_from_no_other_when_one_joins_and_when_its_own_closes() {
    let Some(server) = Server::start() else { return };
    let url = server.database();
    let lease = Duration::from_secs(20);
    let first = worker(&url, lease);
    for name in 0..200 {
        drop(first.schedule(&format!("{name}"), now(), b"").unwrap());
    }
    let held: Vec<Due> = (0..200).map(|_| take(&first)).collect();
    let second = worker(&url, lease);
    until("what is idle is given back", || 0 < second.stats().partitions);
    for due in held {
        due.ack();
        thread::sleep(Duration::from_millis(5));
    }
    until("they share all", || second.stats().partitions == 32);
    let stats = [first.stats(), second.stats()];
    assert_eq!(stats.map(|stats| (stats.handed_out, stats.fenced)), [(200, 0), (0, 0)]);

    let mut names = 0..;
    let due = loop {
        let name = format!("to hold {}", names.next().unwrap());
        drop(first.schedule(&name, now(), b"").unwrap());
        if let Some(due) = second.recv_timeout(Duration::from_millis(300)).unwrap() {
            break due;
        }
    };
    let closing = thread::spawn(move || second.close());
    until("the others are given back", || 60 < first.stats().partitions);
    assert!(!closing.is_finished());
    due.ack();
    closing.join().unwrap().unwrap();
    until("it has all", || first.stats().partitions == 64);
    assert_eq!(first.stats().fenced, 0);
}

#[test]
fn a_timer_on_which_nobody_receives_schedules_and_cancels_and_owns_nothing() {
    let Some(server) = Server::start() else { return };
    let url = server.database();
    let lease = Duration::from_secs(2);
    let caller =
        DurableTimer::builder().open_store(PostgresStore::connect(&url).unwrap().lease(lease));
    let caller = caller.unwrap();
    let worker = worker(&url, lease);
    caller.schedule("cancelled", now() + HOUR, b"").unwrap().wait().unwrap();
    let cancelled = caller.cancel("cancelled").unwrap().wait().unwrap();
    assert_eq!(cancelled, Cancelled::Cancelled);
    take_all(&[&worker], schedule(&caller, "due", 200));
    assert_eq!((caller.stats().partitions, worker.stats().partitions), (0, 64));
    // From the first that it asks for, it has a share; and none when what comes is not taken.
    let caller = received(caller);
    until("they share all", || caller.stats().partitions == 32);
    schedule(&worker, "left", 200);
    until("it has none", || caller.stats().partitions == 0);
    until("all come", || {
        while let Some(due) = worker.try_recv().unwrap() {
            due.ack();
        }
        worker.is_empty().unwrap()
    });
    assert_eq!(worker.stats().fenced, 0);
}

#[test]
fn hundreds_of_locked_names_put_at_once_hold_up_no_others() {
    let Some(server) = Server::start() else { return };
    let url = server.database();
    let timer = worker(&url, STEADY);
    let put = |prefix: &str| -> Vec<_> {
        let name = |n| format!("{prefix}{n}");
        (0..400).map(|n| timer.schedule(&name(n), now() + HOUR, b"").unwrap()).collect()
    };
    assert!(put("locked ").into_iter().all(|commit| commit.wait().is_ok()));
    let mut other = client(&url);
    let mut lunch = other.transaction().unwrap();
    lunch.execute("select from tickwheel_due for update", &[]).unwrap();
    let (locked, free) = (put("locked "), put("free "));
    assert!(free.into_iter().all(|commit| commit.wait().is_ok()));
    assert!(locked.into_iter().all(|commit| commit.wait().is_err()));
    lunch.rollback().unwrap();
    assert_eq!((timer.len().unwrap(), timer.stats().errors), (800, 0));
}

#[test]
fn a_partition_that_somebody_has_locked_holds_up_no_other() {
    let Some(server) = Server::start() else { return };
    let url = server.database();
    let told = Arc::new(Mutex::new(Vec::new()));
    let heard = told.clone();
    let timer = DurableTimer::builder()
        .on_error(move |error| heard.lock().unwrap().push(error.to_string()))
        .open_store(PostgresStore::connect(&url).unwrap().lease(Duration::from_secs(6)));
    let timer = received(timer.unwrap());
    until("it owns all", || timer.stats().partitions == 64);
    let (mut other, mut sql) = (client(&url), client(&url));
    // A consumer holds one of that partition.
    let all = schedule(&timer, "first", 300);
    let mut held = Vec::new();
    while held.len() < 300 {
        held.push(take(&timer));
    }
    let mut lunch = other.transaction().unwrap();
    lunch.execute("select from tickwheel_partition where partition = 7 for update", &[]).unwrap();
    held.into_iter().for_each(Due::ack);
    let left = "select count(*) filter (where partition <> 7), count(*) from tickwheel_due";
    let mut left = || {
        let row = sql.query_one(left, &[]).unwrap();
        (row.get::<_, i64>(0), row.get::<_, i64>(1))
    };
    until("all others are acked", || left().0 == 0);
    assert!(0 < left().1, "{} of partition 7", all.len());
    until("it does not own that one", || timer.stats().partitions == 63);
    // Longer than a lease.
    let mut names = schedule(&timer, "later", 300);
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(7) {
        if let Some(due) = timer.recv_timeout(Duration::from_millis(50)).unwrap() {
            names.remove(due.name());
            due.ack();
        }
    }
    until("the others are acked", || {
        while let Some(due) = timer.try_recv().unwrap() {
            names.remove(due.name());
            due.ack();
        }
        left().0 == 0
    });
    let is_it = |it: &&String| it.contains("take 1 partitions") && it.contains("pg_locks");
    let times = || told.lock().unwrap().iter().filter(is_it).count();
    until("it is told", || 0 < times());
    assert_eq!(timer.stats().fenced, 0);
    lunch.rollback().unwrap();
    take_all(&[&timer], names);
    until("all are acked", || left().1 == 0);
    until("it owns all", || timer.stats().partitions == 64);
    assert_eq!(times(), 1, "it is told once");
}

/// So a worker asks for its share at the next look, and not at the next renewal.
#[test]
fn a_look_tells_that_somebody_has_given_partitions_back() {
    let Some(server) = Server::start() else { return };
    let url = server.database();
    let [mut one, mut other] = [(); 2].map(|()| PostgresStore::connect(&url).unwrap());
    let all = Store::lease(&mut one, true, &[]).unwrap().held;
    assert_eq!((all.len(), Store::lease(&mut other, true, &[]).unwrap().held.len()), (64, 0));
    let looks = |store: &mut PostgresStore| {
        let from = [Start { lease: all[0], after: Position::start() }];
        store.load(&from, 0, Limit { rows: 1, bytes: 1 }).unwrap().has_free
    };
    assert!(!looks(&mut other));
    let given_back: Vec<u32> = all[..32].iter().map(|lease| lease.partition).collect();
    assert_eq!(Store::lease(&mut one, true, &given_back).unwrap().held.len(), 32);
    assert!(looks(&mut other));
    assert_eq!(Store::lease(&mut other, true, &[]).unwrap().held.len(), 32);
    assert!(!looks(&mut one));
}

/// What a dead worker has left is in the future then.
#[test]
fn after_the_clock_was_set_back_a_dead_worker_is_succeeded_within_two_leases() {
    let Some(server) = Server::start() else { return };
    let url = server.tables();
    let mut sql = client(&url);
    sql.batch_execute(
        "insert into tickwheel_worker
         values (900, clock_timestamp() + interval '1 hour', true, interval '1 second'),
           (901, clock_timestamp() + interval '1 hour', true, interval '2 hours');
         update tickwheel_partition set owner = 900, epoch = 7 where partition < 60;
         update tickwheel_partition set owner = 901, epoch = 7 where partition >= 60",
    )
    .unwrap();
    let timer = worker(&url, Duration::from_secs(1));
    until("it has its share", || timer.stats().partitions == 32);
    // The other is as good as it was.
    let others = "select count(*) from tickwheel_partition where owner = 901";
    assert_eq!(sql.query_one(others, &[]).unwrap().get::<_, i64>(0), 4);
}

/// The time until which it is to be given back is far in the future then.
#[test]
fn after_the_clock_was_set_back_a_partition_whose_mover_is_dead_has_a_worker() {
    let Some(server) = Server::start() else { return };
    let url = server.tables();
    let yields = "update tickwheel_partition
                  set state = 'moving', yields = clock_timestamp() + interval '1 hour'";
    client(&url).batch_execute(yields).unwrap();
    let mut store = PostgresStore::connect(&url).unwrap();
    for what in ["it takes them", "it keeps them"] {
        let leases = Store::lease(&mut store, true, &[]).unwrap();
        let counts = (leases.held.len(), leases.share, leases.yielding.len());
        assert_eq!(counts, (64, 64, 0), "{what}");
        let from = [Start { lease: leases.held[0], after: Position::start() }];
        let looked = store.load(&from, 0, Limit { rows: 1, bytes: 1 }).unwrap();
        assert!(!looked.has_free, "{what}");
    }
    let noted = "select count(yields) from tickwheel_partition";
    let noted: i64 = client(&url).query_one(noted, &[]).unwrap().get(0);
    assert_eq!(noted, 0, "none comes true in an hour");
}

#[test]
fn what_a_trigger_skips_is_refused_and_all_others_go_on() {
    let Some(server) = Server::start() else { return };
    let url = server.database();
    let timer = worker(&url, STEADY);
    timer.schedule("kept", now() + HOUR, b"").unwrap().wait().unwrap();
    let mut other = client(&url);
    other
        .batch_execute(
            "create function skip() returns trigger language plpgsql as 'begin return null; end';
             create trigger skip before insert or update on tickwheel_due for each row
               when (new.name = 'skipped') execute function skip();
             create trigger keep before delete on tickwheel_due for each row
               when (old.name = 'kept') execute function skip()",
        )
        .unwrap();
    let names = ["first", "good 1", "skipped", "good 2"];
    let commits = names.map(|name| timer.schedule(name, now() + HOUR, b"").unwrap());
    let (kept, good) = (timer.cancel("kept").unwrap(), timer.cancel("first").unwrap());
    let puts = commits.map(|commit| commit.wait().is_ok());
    assert_eq!(puts, [true, true, false, true]);
    assert!(kept.wait().unwrap_err().to_string().contains("kept"));
    assert_eq!(good.wait().unwrap(), Cancelled::Cancelled);
    assert_eq!((timer.stats().errors, timer.len().unwrap()), (0, 3));
    let mut transaction = other.transaction().unwrap();
    assert!(schedule_in(&mut transaction, "skipped", now(), b"").is_err());
    transaction.rollback().unwrap();
    for call in ["schedule('skipped', now(), '')", "cancel('kept')"] {
        assert!(other.batch_execute(&format!("select tickwheel_{call}")).is_err(), "{call}");
    }
}

#[test]
fn an_ack_that_a_trigger_skips_is_told_and_holds_up_no_close_and_the_timeout_comes_again() {
    let Some(server) = Server::start() else { return };
    let url = server.database();
    let told = Arc::new(Mutex::new(Vec::new()));
    let heard = told.clone();
    let timer = DurableTimer::builder()
        .on_error(move |error| heard.lock().unwrap().push(error.to_string()))
        .open_store(PostgresStore::connect(&url).unwrap().lease(Duration::from_secs(30)))
        .unwrap();
    client(&url)
        .batch_execute(
            "create function skip() returns trigger language plpgsql as 'begin return null; end';
             create trigger keep before delete on tickwheel_due for each row
               execute function skip()",
        )
        .unwrap();
    timer.schedule("kept", now(), b"").unwrap().wait().unwrap();
    timer.recv().unwrap().unwrap().ack();
    until("it is told", || told.lock().unwrap().iter().any(|told| told.contains("has kept it")));
    let closing = thread::spawn(move || timer.close());
    until("it is closed", || closing.is_finished());
    let error = closing.join().unwrap().unwrap_err().to_string();
    assert!(error.contains("kept"), "{error}");
    let next = worker(&url, Duration::from_secs(30));
    assert_eq!(next.recv().unwrap().unwrap().name(), "kept");
}

#[test]
fn with_the_lock_of_those_who_make_tables_held_a_worker_connects_all_the_same() {
    let Some(server) = Server::start() else { return };
    let url = server.tables();
    let mut other = client(&url);
    other.batch_execute("select pg_advisory_lock(7463812)").unwrap();
    let timer = worker(&url, STEADY);
    take_all(&[&timer], schedule(&timer, "due", 20));
    assert_eq!(timer.stats().errors, 0);
}

#[test]
fn a_cancel_and_an_ack_that_wait_for_another_put_see_it() {
    let Some(server) = Server::start() else { return };
    let url = server.database();
    let timer = worker(&url, STEADY);
    let mut other = client(&url);
    let mut watcher = client(&url);
    let mut waits = || {
        let waiting = "select count(*) from pg_locks where not granted";
        watcher.query_one(waiting, &[]).unwrap().get::<_, i64>(0) == 1
    };
    // It waits for a quarter of a second, and is refused then.
    until("a cancel waits, and sees the put", || {
        timer.schedule("cancelled", now() + HOUR, b"").unwrap().wait().unwrap();
        let mut moving = other.transaction().unwrap();
        schedule_in(&mut moving, "cancelled", now() + 2 * HOUR, b"").unwrap();
        let mut cancel = timer.cancel("cancelled").unwrap();
        let mut answer = None;
        until("it waits for the lock", || {
            answer = cancel.wait_timeout(Duration::ZERO);
            answer.is_some() || waits()
        });
        moving.commit().unwrap();
        let found = answer.unwrap_or_else(|| cancel.wait());
        let is_told = found.is_ok();
        assert_eq!(found.unwrap_or(Cancelled::Cancelled), Cancelled::Cancelled);
        is_told
    });
    assert_eq!(timer.len().unwrap(), 0);

    timer.schedule("acked", now(), b"").unwrap().wait().unwrap();
    let due = take(&timer);
    let mut moving = other.transaction().unwrap();
    schedule_in(&mut moving, "acked", now() + HOUR, b"").unwrap();
    due.ack();
    until("it waits for the lock", &mut waits);
    moving.commit().unwrap();
    timer.schedule("another", now() + HOUR, b"").unwrap().wait().unwrap();
    assert!(timer.get("acked").unwrap().is_some(), "the newer put stays");
    assert_eq!(timer.len().unwrap(), 2);
    assert_eq!(timer.stats().errors, 0);
}

/// Passes on what comes, until it goes silent: then it swallows all, and takes new connections.
pub(super) struct Proxy {
    port: u16,
    pub(super) is_silent: Arc<AtomicBool>,
    /// How many connections its clients have open.
    open: Arc<AtomicU64>,
    /// So many bytes of answers are passed on. Then it goes silent, and reads no answer any more.
    answers: Arc<AtomicU64>,
    /// What is asked in these words waits until they are no longer here.
    pub(super) waits: Arc<Mutex<Vec<&'static str>>>,
}

impl Proxy {
    fn start(to: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let is_silent = Arc::new(AtomicBool::new(false));
        let open = Arc::new(AtomicU64::new(0));
        let answers = Arc::new(AtomicU64::new(u64::MAX));
        let waits: Arc<Mutex<Vec<&str>>> = Arc::default();
        let (silent, opened) = (is_silent.clone(), open.clone());
        let (left, waiting) = (answers.clone(), waits.clone());
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(("127.0.0.1", to)) else { continue };
                opened.fetch_add(1, Ordering::SeqCst);
                let asks = (&stream, &server, opened.clone(), Arc::new(AtomicU64::new(u64::MAX)));
                for (from, to, open, left) in
                    [asks, (&server, &stream, Arc::default(), left.clone())]
                {
                    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let (silent, waiting) = (silent.clone(), waiting.clone());
                    // A connection that was silent once is never whole again.
                    thread::spawn(move || {
                        let mut bytes = [0; 65_536];
                        let mut is_whole = true;
                        while let Ok(count @ 1..) = from.read(&mut bytes) {
                            let waits = || {
                                let is_in = |words: &&str| {
                                    bytes[..count]
                                        .windows(words.len())
                                        .any(|it| it == words.as_bytes())
                                };
                                waiting.lock().unwrap().iter().any(is_in)
                            };
                            while waits() {
                                thread::sleep(Duration::from_millis(5));
                            }
                            if left.load(Ordering::SeqCst) < count as u64 {
                                silent.store(true, Ordering::SeqCst);
                                loop {
                                    thread::park();
                                }
                            }
                            left.fetch_sub(count as u64, Ordering::SeqCst);
                            is_whole &= !silent.load(Ordering::SeqCst);
                            if is_whole && to.write_all(&bytes[..count]).is_err() {
                                break;
                            }
                        }
                        open.fetch_sub(1, Ordering::SeqCst);
                        if is_whole {
                            let _ = to.shutdown(std::net::Shutdown::Both);
                        }
                    });
                }
            }
        });
        Self { port, is_silent, open, answers, waits }
    }

    /// Starts one before the server of this URL, and returns the URL of the proxy.
    pub(super) fn before(url: &str) -> (Self, String) {
        let port = url.rsplit(':').next().unwrap().split('/').next().unwrap();
        let proxy = Self::start(port.parse().unwrap());
        let through = url.replace(&format!(":{port}/"), &format!(":{}/", proxy.port));
        (proxy, through)
    }
}

/// As after a restore, in which the lease of a worker that lives may be gone.
#[test]
fn workers_own_nothing_together_though_the_sequence_of_their_numbers_was_set_back() {
    let Some(server) = Server::start() else { return };
    for forgets in
        ["", "delete from tickwheel_worker; update tickwheel_partition set owner = null;"]
    {
        let url = server.tables();
        let lease = SHARED;
        let first = worker(&url, lease);
        until("it owns all", || first.stats().partitions == 64);
        let set_back = "select setval('tickwheel_worker_number', last_value, false)
                        from tickwheel_worker_number";
        client(&url).batch_execute(&format!("begin; {forgets} {set_back}; commit")).unwrap();
        let second = worker(&url, lease);
        let timers = [&first, &second];
        until("they share", || timers.map(|timer| timer.stats().partitions) == [32, 32]);
        assert_eq!(take_all(&timers, schedule(&first, "of both", 100)), 100);
        let again = timers.map(|timer| timer.recv_timeout(Duration::from_secs(2)).unwrap());
        assert!(again.iter().all(Option::is_none), "{again:?}");
        for timer in [first, second] {
            timer.close().unwrap();
        }
    }
}

/// Its locks stay for as long as the server tries to send the answer.
#[test]
fn a_host_that_vanishes_while_a_large_answer_is_sent_is_succeeded() {
    let Some(server) = Server::start() else { return };
    let url = server.database();
    let (proxy, through) = Proxy::before(&url);
    let lease = Duration::from_secs(3);
    let store = PostgresStore::connect(&through).unwrap().lease(lease);
    // All that is settled at once is one commit.
    let vanishes = DurableTimer::builder()
        .near(100_000, 256 << 20)
        .linger(Duration::from_secs(1))
        .open_store(store)
        .unwrap();
    let vanishes = received(vanishes);
    until("it owns all", || vanishes.stats().partitions == 64);
    let large = |n| vanishes.schedule(&format!("large {n}"), now(), &[7; 60_000]).unwrap();
    let commits: Vec<_> = (0..200).map(large).collect();
    assert!(commits.into_iter().all(|commit| commit.wait().is_ok()));
    let held: Vec<Due> = (0..200).map(|_| take(&vanishes)).collect();
    let direct = worker(&url, lease);
    let mut names = schedule(&direct, "another's", 300);
    names.extend((0..200).map(|n| format!("large {n}")));
    proxy.answers.store(1 << 20, Ordering::SeqCst);
    held.into_iter().for_each(|due| due.retry(Duration::ZERO));
    until("the host vanishes", || proxy.is_silent.load(Ordering::SeqCst));
    let began = Instant::now();
    take_all(&[&direct], names);
    // It takes a lease and a quarter. What does not follow the lease is 30 s or hours.
    assert!(began.elapsed() < Duration::from_secs(120), "{:?}", began.elapsed());
    until("it owns all", || direct.stats().partitions == 64);
    direct.close().unwrap();
    drop(vanishes.close());
}

#[test]
fn what_an_operator_reads_for_long_holds_up_no_timeout() {
    let Some(server) = Server::start() else { return };
    let (proxy, through) = Proxy::before(&server.database());
    let timer = worker(&through, STEADY);
    take_all(&[&timer], schedule(&timer, "first", 20));
    until("all are acked", || timer.stats().acked == 20);
    timer.schedule("far", now() + HOUR, b"").unwrap().wait().unwrap();
    for (words, reads) in [
        ("select count(*) from tickwheel_due", (|timer| timer.len().unwrap()) as Reads),
        ("all_due", |timer| timer.iter().count() as u64),
    ] {
        *proxy.waits.lock().unwrap() = vec![words];
        let acked = timer.stats().acked;
        let (reading, other) = (Arc::new(AtomicBool::new(true)), timer.clone());
        let still = reading.clone();
        let count = thread::spawn(move || {
            let count = reads(&other);
            still.store(false, Ordering::SeqCst);
            count
        });
        take_all(&[&timer], schedule(&timer, "meanwhile", 20));
        until("all are acked", || timer.stats().acked == acked + 20);
        assert!(reading.load(Ordering::SeqCst), "{words}: it waits");
        proxy.waits.lock().unwrap().clear();
        assert_eq!(count.join().unwrap(), 1, "{words}");
    }
    assert_eq!(timer.stats().errors, 0);
    timer.close().unwrap();
}

type Reads = fn(&DurableTimer) -> u64;

#[test]
fn a_pause_and_a_limit_do_not_wait_for_what_an_operator_reads() {
    let Some(server) = Server::start() else { return };
    let (proxy, through) = Proxy::before(&server.database());
    let timer = worker(&through, STEADY);
    *proxy.waits.lock().unwrap() = vec!["select count(*) from tickwheel_due"];
    let (open, other) = (proxy.open.load(Ordering::SeqCst), timer.clone());
    let reading = thread::spawn(move || other.len());
    until("it reads by a connection of its own", || open < proxy.open.load(Ordering::SeqCst));
    timer.pause().unwrap();
    let limit = RateLimit { timeouts: 9, per: Duration::from_millis(1) };
    timer.limit_rate(Some(limit)).unwrap();
    timer.resume().unwrap();
    assert!(!reading.is_finished(), "it waits");
    proxy.waits.lock().unwrap().clear();
    assert_eq!(reading.join().unwrap().unwrap(), 0);
    timer.close().unwrap();
}

#[test]
fn a_call_without_an_answer_is_given_up_after_a_third_of_the_lease() {
    let Some(server) = Server::start() else { return };
    let (proxy, through) = Proxy::before(&server.database());
    let lease = Duration::from_secs(3);
    let mut store = PostgresStore::connect(&through).unwrap().lease(lease);
    proxy.is_silent.store(true, Ordering::SeqCst);
    let began = Instant::now();
    let error = store.commit(&[], &[Change::cancel("a")]).unwrap_err().to_string();
    assert!(error.contains("no answer within 1s"), "{error}");
    let took = began.elapsed();
    assert!(lease / 3 <= took && took < LONG / 5, "{took:?}");
}

#[test]
fn a_call_without_an_answer_ends_and_is_told_and_another_worker_goes_on() {
    let Some(server) = Server::start() else { return };
    let url = server.database();
    let (proxy, through) = Proxy::before(&url);
    let lease = Duration::from_secs(3);
    let told = Arc::new(AtomicU64::new(0));
    let heard = told.clone();
    let timer = DurableTimer::builder()
        .on_error(move |_| {
            heard.fetch_add(1, Ordering::SeqCst);
        })
        .open_store(PostgresStore::connect(&through).unwrap().lease(lease))
        .unwrap();
    let timer = received(timer);
    until("it owns all", || timer.stats().partitions == 64);
    let far = now() + HOUR;
    timer.schedule("before", far, b"").unwrap().wait().unwrap();
    let direct = worker(&url, lease);
    let mut count = 0;
    for round in 0..3 {
        let mut names = schedule(&direct, &format!("{round}"), 50);
        // In the middle of calls of all kinds.
        thread::sleep(Duration::from_millis(fastrand::u64(0..100)));
        proxy.is_silent.store(true, Ordering::SeqCst);
        let error = loop {
            count += 1;
            let mut commit = timer.schedule(&format!("silent {count}"), far, b"").unwrap();
            match commit.wait_timeout(LONG).expect("every call ends") {
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        println!("{error}");
        until("it is told", || 0 < told.swap(0, Ordering::SeqCst));
        // What a vanished worker had is taken over.
        names.extend(schedule(&direct, &format!("{round} meanwhile"), 50));
        take_all(&[&direct, &timer], names);
        proxy.is_silent.store(false, Ordering::SeqCst);
        until("it works again", || {
            count += 1;
            timer.schedule(&format!("after {count}"), far, b"").unwrap().wait().is_ok()
        });
    }
    // And with no answer it can be closed.
    proxy.is_silent.store(true, Ordering::SeqCst);
    until("calls are given up", || 12 < timer.stats().errors);
    // Their connections end, and each may take a moment for it.
    until("they are closed", || proxy.open.load(Ordering::SeqCst) <= 4);
    let began = Instant::now();
    assert!(timer.close().is_err(), "its leases are not given back");
    println!("closed after {:?}", began.elapsed());
    assert!(began.elapsed() < LONG / 5, "{:?}", began.elapsed());
    direct.close().unwrap();
}

#[test]
fn a_null_is_refused() {
    let Some(server) = Server::start() else { return };
    let url = server.tables();
    let mut client = client(&url);
    for values in ["null, now(), ''", "'a', null, ''", "'a', now(), null"] {
        let put = format!("select tickwheel_schedule({values})");
        let error = client.batch_execute(&put).unwrap_err();
        let code = error.code().unwrap();
        assert_eq!(code.code(), "23502", "{values}: {error}");
    }
}

/// A name that is no text, in a database that takes any bytes; and a payload whose pages are gone.
#[test]
fn a_row_that_cannot_be_read_is_set_aside_and_all_others_go_on() {
    let Some(server) = Server::start() else { return };
    let (url, bytes) = (server.database(), server.database_of("SQL_ASCII"));
    let told = |url: &str, before: &str, restarts: bool, damaged: u64| {
        drop(PostgresStore::connect(url).unwrap());
        let mut owner = client(url);
        owner.batch_execute(before).unwrap();
        let put =
            "select tickwheel_schedule('good ' || n, now(), '') from generate_series(1, 99) n";
        owner.batch_execute(put).unwrap();
        if restarts {
            let file = "select pg_relation_filepath(reltoastrelid) from pg_class
                        where relname = 'tickwheel_due'";
            let file: String = owner.query_one(file, &[]).unwrap().get(0);
            server.stop("fast");
            std::fs::File::options()
                .write(true)
                .open(server.data().join(file))
                .unwrap()
                .set_len(0)
                .unwrap();
            server.go();
        }
        let timer = worker(url, STEADY);
        take_all(&[&timer], (1..100).map(|n| format!("good {n}")).collect());
        until("it is told", || timer.stats().damaged == damaged);
        let later = schedule(&timer, "later", 20);
        take_all(&[&timer], later);
        until("all are acked", || timer.iter().next().is_none());
        assert_eq!((timer.stats().damaged, timer.stats().errors), (damaged, 0), "it is told once");
        timer.close().unwrap();
        let mut owner = client(url);
        owner.query_one("select count(*) from tickwheel_broken", &[]).unwrap().get::<_, i64>(0)
    };
    let name = "select tickwheel_schedule(convert_from('\\xff', 'SQL_ASCII'), now(), '')";
    assert_eq!(told(&bytes, name, false, 1), 1);
    // Random, so that it is not made smaller, and is too much for the page of its row.
    let large = "select tickwheel_schedule('bad ' || n, now(), (select string_agg(
          decode(md5(random()::text), 'hex'), '') from generate_series(1, 3000)))
        from generate_series(1, 2) n; checkpoint";
    assert_eq!(told(&url, large, true, 2), 2);
}

#[test]
fn a_put_that_the_database_refuses_fails_alone() {
    let Some(server) = Server::start() else { return };
    let url = server.database();
    let timer = worker(&url, STEADY);
    client(&url)
        .batch_execute("alter table tickwheel_due add constraint house check (name <> 'bad')")
        .unwrap();
    let far = now() + HOUR;
    // In one group, because the first is under way when the others are asked for.
    let commits: Vec<_> = ["first", "good 1", "bad", "good 2"]
        .map(|name| timer.schedule(name, far, b"").unwrap())
        .into_iter()
        .collect();
    let results: Vec<_> = commits.into_iter().map(Commit::wait).collect();
    let good: Vec<bool> = results.iter().map(Result::is_ok).collect();
    assert_eq!(good, [true, true, false, true], "{results:?}");
    assert_eq!(timer.stats().errors, 0, "the connection is as good as before");
}

#[test]
fn a_timer_can_be_connected_and_dropped_inside_of_a_runtime() {
    let Some(server) = Server::start() else { return };
    let url = server.database();
    let runtimes = [
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap(),
        tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap(),
    ];
    for runtime in runtimes {
        runtime.block_on(async {
            drop(DurableTimer::connect(&url).unwrap());
            let timer = DurableTimer::connect_async(&url).await.unwrap();
            timer.schedule("a", now(), b"").unwrap().await.unwrap();
            let due = timer.next().await.unwrap().expect("it is due");
            assert_eq!(due.name(), "a");
            due.ack();
            timer.close().unwrap();
        });
    }
    // And where no tokio is.
    smol::block_on(async {
        let timer = DurableTimer::connect_async(&url).await.unwrap();
        timer.schedule("b", now(), b"").unwrap().await.unwrap();
        timer.next().await.unwrap().expect("it is due").ack();
        smol::unblock(move || timer.close()).await.unwrap();
    });
}

#[test]
fn of_several_hosts_the_one_that_answers_is_found() {
    let Some(server) = Server::start() else { return };
    let url = server.database();
    let several = url.replace("@127.0.0.1:", "@127.0.0.1:1,127.0.0.1:");
    let timer = DurableTimer::connect(&several).unwrap();
    timer.schedule("a", now(), b"").unwrap().wait().unwrap();
}

#[test]
fn a_host_that_accepts_and_is_silent_does_not_hide_the_next() {
    let Some(server) = Server::start() else { return };
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let both = server.database().replace("127.0.0.1:", &format!("127.0.0.1:{port},127.0.0.1:"));
    until("the second is reached", || PostgresStore::connect(&both).is_ok());
}

#[test]
fn a_lease_that_is_set_after_connecting_limits_that_connection() {
    let Some(server) = Server::start() else { return };
    let url = server.database();
    // A call may wait 250 ms for a lock, and with the lease of before 111 ms.
    let mut store = PostgresStore::connect(&url).unwrap().lease(HOUR);
    let mut other = client(&url);
    other.batch_execute("select tickwheel_schedule('a', clock_timestamp(), '')").unwrap();
    let mut lunch = other.transaction().unwrap();
    lunch.query_one("select tickwheel_cancel('a')", &[]).unwrap();
    let began = Instant::now();
    let done = store.commit(&[], &[Change::cancel("a")]).unwrap();
    assert!(done.changed[0].is_err(), "it is locked");
    assert!(Duration::from_millis(250) <= began.elapsed(), "{:?}", began.elapsed());
}

/// An ack looks first where the row was when it was read.
#[test]
fn what_is_elsewhere_in_the_table_since_it_was_read_is_acked_and_what_is_in_its_place_is_not() {
    let Some(server) = Server::start() else { return };
    let url = server.database();
    let mut store = PostgresStore::connect(&url).unwrap().lease(HOUR);
    let mut sql = client(&url);
    // The second takes the place of the first, and so on.
    let names = ["gone", "a", "b", "c", "d", "e"];
    for name in names {
        store.commit(&[], &[Change::put(name, 1, b"")]).unwrap();
    }
    let leases = Store::lease(&mut store, true, &[]).unwrap().held;
    let start = |&lease| Start { lease, after: Position::start() };
    let from: Vec<Start> = leases.iter().map(start).collect();
    let rows = store.load(&from, 1_000, Limit { rows: 1_000, bytes: 1 << 20 }).unwrap().rows;
    assert_eq!(rows.len(), names.len());
    for statement in [
        "delete from tickwheel_due where name = 'gone'",
        "vacuum full tickwheel_due",
        "update tickwheel_due set payload = 'x' where name in ('b', 'e')",
    ] {
        sql.batch_execute(statement).unwrap();
    }
    let ack = |name: &&str| {
        let row = rows.iter().find(|row| &*row.name == *name).unwrap();
        let lease = leases.iter().find(|lease| lease.partition == row.partition).unwrap();
        Settlement { held: Held::new(row, *lease), then: Then::Done }
    };
    let acks: Vec<Settlement> = ["gone", "a", "b", "d"].iter().map(ack).collect();
    let done = store.commit(&acks, &[]).unwrap();
    let settled = Outcome::Settled(None);
    assert_eq!(done.outcomes, [Outcome::Gone, settled.clone(), settled.clone(), settled]);
    let left = sql.query("select name from tickwheel_due order by name", &[]).unwrap();
    assert_eq!(left.iter().map(|row| row.get(0)).collect::<Vec<&str>>(), ["c", "e"]);
}

/// What is on the way may have forgotten it, and tells nobody.
#[test]
fn a_connection_that_was_idle_is_not_used_again() {
    let Some(server) = Server::start() else { return };
    let url = server.database();
    let timer = DurableTimer::connect(&url).unwrap();
    let mut client = client(&url);
    let mut connections = || -> HashSet<i32> {
        assert_eq!(timer.len().unwrap(), 0);
        let all = "select pid from pg_stat_activity where application_name = 'tickwheel-durable'";
        client.query(all, &[]).unwrap().iter().map(|row| row.get(0)).collect()
    };
    let before = connections();
    thread::sleep(Duration::from_secs(6));
    until("that for what is read is another", || !before.is_subset(&connections()));
    timer.close().unwrap();
}

#[test]
fn the_epochs_of_a_name_never_decrease_and_those_of_others_are_not_to_be_compared() {
    let Some(server) = Server::start() else { return };
    let url = server.tables();
    // As if half of the partitions had changed hands more often.
    let churn = "update tickwheel_partition set epoch = 8 where partition % 2 = 0";
    client(&url).batch_execute(churn).unwrap();
    let mut greatest: HashMap<String, u64> = HashMap::new();
    for _ in 0..2 {
        let timer = DurableTimer::connect(&url).unwrap();
        let mut names = schedule(&timer, "order", 64);
        let mut epochs = HashSet::new();
        while !names.is_empty() {
            let due = take(&timer);
            names.remove(due.name());
            epochs.insert(due.epoch());
            let before = greatest.insert(due.name().to_owned(), due.epoch());
            assert!(before.is_none_or(|before| before < due.epoch()), "{}", due.name());
            due.ack();
        }
        assert!(1 < epochs.len(), "{epochs:?}");
        timer.close().unwrap();
    }
}

#[test]
fn a_standby_that_is_promoted_goes_on_and_nothing_is_lost() {
    let Some(server) = Server::start() else { return };
    let url = server.database();
    let standby = server.standby();
    let (standby_first, url) = (standby.either(&server, &url), server.either(&standby, &url));
    // A standby takes nothing. The next is asked then, by name or by address.
    let (ports, database) = standby_first.rsplit_once('/').unwrap();
    let ports: Vec<&str> = ports
        .split(':')
        .skip(2)
        .map(|part| &part[..part.find(',').unwrap_or(part.len())])
        .collect();
    let by_address = format!(
        "user=tickwheel hostaddr=127.0.0.1,127.0.0.1 port={} dbname={database}",
        ports.join(",")
    );
    for url in [standby_first, by_address] {
        let timer = DurableTimer::connect(&url).unwrap();
        timer.schedule("first", now() + HOUR, b"").unwrap().wait().unwrap();
        timer.close().unwrap();
    }
    let timers = [(); 4].map(|()| worker(&url, Duration::from_secs(2)));
    until("they share all", || timers.iter().all(|timer| timer.stats().partitions == 16));
    let (falls, ends) = (AtomicBool::new(true), AtomicBool::new(false));
    let (taken, came): (Mutex<HashMap<_, _>>, Mutex<HashMap<_, _>>) = Default::default();
    thread::scope(|scope| {
        // Each schedules and takes all the while.
        let mut callers = Vec::new();
        for (n, timer) in timers.iter().enumerate() {
            let (falls, ends, taken, came) = (&falls, &ends, &taken, &came);
            callers.push(scope.spawn(move || {
                for m in (0..).take_while(|_| falls.load(Ordering::SeqCst)) {
                    let name = format!("{n}/{m}");
                    let at = now() + Duration::from_millis(300);
                    if timer.schedule(&name, at, b"").unwrap().wait().is_ok() {
                        taken.lock().unwrap().insert(name, Instant::now());
                    }
                    thread::sleep(Duration::from_millis(5));
                }
            }));
            scope.spawn(move || {
                while !ends.load(Ordering::SeqCst) {
                    let due = timer.recv_timeout(Duration::from_millis(50)).unwrap();
                    let Some(due) = due else { continue };
                    assert!(due.deadline() <= now(), "{} is early", due.name());
                    came.lock().unwrap().insert(due.name().to_owned(), Instant::now());
                    due.ack();
                }
            });
        }
        until("many came", || 500 < came.lock().unwrap().len());
        server.stop("immediate");
        standby.promote();
        let promoted = Instant::now();
        let last = taken.lock().unwrap().len();
        until("calls are answered again", || last + 500 < taken.lock().unwrap().len());
        falls.store(false, Ordering::SeqCst);
        callers.into_iter().for_each(|caller| caller.join().unwrap());
        let names = taken.lock().unwrap();
        until("all come", || {
            let came = came.lock().unwrap();
            names.keys().all(|name| came.contains_key(name))
        });
        ends.store(true, Ordering::SeqCst);
        let first = |all: &HashMap<String, Instant>| {
            let after = all.values().filter(|&&at| promoted < at).min();
            after.map(|&at| at - promoted)
        };
        println!(
            "{} were taken and all came; after the promotion the first was taken {:?} and the \
             first came {:?} later",
            names.len(),
            first(&names),
            first(&came.lock().unwrap())
        );
    });
    for timer in timers {
        timer.close().unwrap();
    }
}

#[test]
fn each_namespace_of_a_database_has_timeouts_workers_and_a_pause_of_its_own() {
    let Some(server) = Server::start() else { return };
    let url = server.database();
    let of = |namespace: &str| format!("{url}?namespace={namespace}");
    let error = PostgresStore::connect_existing(&of("emails")).unwrap_err().to_string();
    assert!(error.contains("emails has none"), "{error}");
    let [emails, orders] =
        ["emails", "orders"].map(|name| DurableTimer::connect(&of(name)).unwrap());
    // It says which there are.
    let error = PostgresStore::connect(&url).unwrap_err().to_string();
    assert!(error.contains("namespace=emails") || error.contains("namespace=orders"), "{error}");
    for (timer, payload) in [(&emails, "email"), (&orders, "order")] {
        let put = timer.schedule("a", now() + HOUR, payload.as_bytes()).unwrap().wait();
        assert_eq!(put.unwrap(), Scheduled::New);
    }
    assert_eq!(emails.get("a").unwrap().unwrap().payload(), b"email");
    PostgresStore::connect(&of("order")).unwrap(); // a word of SQL
    // Where nothing is in the path.
    PostgresStore::connect(&format!("{}&options=-csearch_path%3D", of("emails"))).unwrap();
    // Each has all partitions.
    until("both have their share", || {
        [&emails, &orders].map(|timer| timer.try_recv().unwrap().is_none()) == [true; 2]
            && [&emails, &orders].map(|timer| timer.stats().partitions) == [64; 2]
    });
    emails.pause().unwrap();
    let mut sql = client(&url);
    for namespace in ["emails", "orders"] {
        let schedule = format!("select {namespace}.tickwheel_schedule('b', now(), '{namespace}')");
        assert!(sql.query_one(&schedule, &[]).unwrap().get::<_, bool>(0), "the name is new");
    }
    let due = take(&orders);
    assert_eq!((due.name(), due.payload()), ("b", &b"orders"[..]));
    due.ack();
    assert!(emails.try_recv().unwrap().is_none() && !orders.stats().is_paused);
    emails.resume().unwrap();
    let due = take(&emails);
    assert_eq!((due.name(), due.payload()), ("b", &b"emails"[..]));
    due.ack();
    assert_eq!(orders.cancel("a").unwrap().wait().unwrap(), Cancelled::Cancelled);
    until("what was taken is acked", || {
        [&emails, &orders].map(|timer| timer.stats().acked) == [1; 2]
    });
    assert_eq!([emails.len().unwrap(), orders.len().unwrap()], [1, 0]);
    let mut operator = PostgresStore::connect_existing(&of("orders")).unwrap();
    assert_eq!(operator.each_worker().unwrap().len(), 1);
    operator.turnover().unwrap();
    assert!(operator.set_aside().unwrap().is_empty());
    emails.close().unwrap();
    orders.close().unwrap();
}

/// The list of the README.
#[test]
fn a_worker_a_caller_and_an_operator_need_what_the_readme_grants() {
    let Some(server) = Server::start() else { return };
    let url = server.database();
    let mut owner = client(&url);
    owner
        .batch_execute(
            "create schema timers; set search_path = timers;
             create role worker login; create role caller login; create role operator login;",
        )
        .unwrap();
    // As where nothing is granted to all.
    owner
        .batch_execute("alter default privileges revoke execute on functions from public")
        .unwrap();
    owner.batch_execute(tickwheel_durable::MIGRATION).unwrap();
    let readme = include_str!("../../README.md");
    let (_, rights) = readme.split_once("```sql\nalter").expect("the README has a list of rights");
    let (rights, _) = rights.split_once("```").unwrap();
    owner.batch_execute(&format!("alter{rights}")).unwrap();
    let of = |role: &str| url.replace("tickwheel@", &format!("{role}@"));
    let timer = DurableTimer::connect(&of("worker")).unwrap();

    // A caller finds the functions by their schema, and they find the tables.
    let mut caller = client(&of("caller"));
    caller.batch_execute("select timers.tickwheel_schedule('a', now(), '')").unwrap();
    caller.batch_execute("select timers.tickwheel_schedule('a', now(), '')").unwrap();
    let far = "select timers.tickwheel_schedule('b', now() + interval '1 hour', ''),
                 timers.tickwheel_cancel('c')";
    caller.batch_execute(far).unwrap();
    assert!(caller.batch_execute("delete from timers.tickwheel_partition").is_err());
    let scheduling = DurableTimer::connect(&of("caller")).unwrap();
    scheduling.schedule("d", now(), b"").unwrap().wait().unwrap();
    scheduling.schedule("e", now() + HOUR, b"").unwrap().wait().unwrap();
    scheduling.cancel("e").unwrap().wait().unwrap();
    take_all(&[&timer], HashSet::from(["a".to_owned(), "d".to_owned()]));
    until("what was taken is acked", || timer.stats().acked == 2);
    assert!(scheduling.get("b").unwrap().is_some() && scheduling.get("e").unwrap().is_none());
    assert_eq!(scheduling.iter().next().unwrap().unwrap().name(), "b");
    scheduling.close().unwrap();
    // What is dead, to both.
    let store = PostgresStore::connect(&of("worker")).unwrap();
    let most = DurableTimer::builder().max_attempts(1).redeliver(Duration::ZERO);
    let counting = most.open_store(store).unwrap();
    timer.close().unwrap();
    for name in ["f", "g"] {
        caller
            .batch_execute(&format!("select timers.tickwheel_schedule('{name}', now(), '')"))
            .unwrap();
        drop(take(&counting));
    }
    until("they are dead", || counting.stats().dead == 2);
    counting.close().unwrap();
    let timer = DurableTimer::connect(&of("worker")).unwrap();
    let scheduling = DurableTimer::connect(&of("caller")).unwrap();
    assert_eq!(scheduling.dead_letters().count(), 2);
    assert_eq!(scheduling.retry_dead("f").unwrap().wait().unwrap(), Retried::Retried);
    scheduling.close().unwrap();
    take_all(&[&timer], HashSet::from(["f".to_owned()]));
    // It has tables of its own.
    owner.batch_execute("create table public.orders (id text)").unwrap();
    owner.batch_execute("grant insert on public.orders to caller").unwrap();
    client(&of("caller")).batch_execute("insert into orders values ('order-17')").unwrap();

    let mut operator = PostgresStore::connect_existing(&of("operator")).unwrap();
    assert!(operator.set_aside().unwrap().is_empty());
    // What it sets aside is written.
    client(&of("operator"))
        .batch_execute("insert into timers.tickwheel_broken values (7, '', 0, 'rotten', null)")
        .unwrap();
    assert_eq!(operator.workers().unwrap().alive, 1);
    use tickwheel_durable::store::{Change, Store};
    operator.pause(true).unwrap();
    timer.resume().unwrap();
    assert!(operator.get("b").unwrap().is_some());
    assert!(operator.commit(&[], &[Change::cancel("b")]).unwrap().changed[0].is_ok());
    assert!(operator.commit(&[], &[Change::put("b", 1, b"")]).unwrap().changed[0].is_err());
    let revived = operator.commit(&[], &[Change::revive("g", 1)]).unwrap();
    assert!(revived.changed[0].as_ref().unwrap().row.is_some());
    assert!(
        !operator.commit(&[], &[Change::drop_dead("g")]).unwrap().changed[0]
            .as_ref()
            .unwrap()
            .was_dead
    );
    take_all(&[&timer], HashSet::from(["g".to_owned()]));
    // Who may make tables and has no path to these is told, and makes no others.
    for connect in [PostgresStore::connect, PostgresStore::connect_existing] {
        let error = connect(&url).unwrap_err().to_string();
        assert!(error.contains("in the schema timers"), "{error}");
    }
    caller.batch_execute("select timers.tickwheel_schedule('late', 'infinity', '')").unwrap();
    client(&of("operator")).batch_execute("update timers.tickwheel_due set deadline = 1").unwrap();
    take_all(&[&timer], HashSet::from(["late".to_owned()]));
    timer.close().unwrap();
}
