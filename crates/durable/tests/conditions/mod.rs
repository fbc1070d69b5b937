//! What a database or a role is set to, and what happens to a database for a while.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use postgres::Client;
use tickwheel_durable::store::{Change, Store};
use tickwheel_durable::{Cancelled, Due, DurableTimer, PostgresStore, Scheduled};

use super::live::{schedule, take_all};
use super::{HOUR, STEADY, now, spawn, take, until, worker};
use crate::server::{Server, client};

#[test]
fn whatever_a_database_is_set_to_nothing_fails() {
    let Some(server) = Server::start() else { return };
    let url = server.database();
    let (_, name) = url.rsplit_once('/').unwrap();
    let mut sql = client(&url);
    for setting in SETTINGS {
        sql.batch_execute(&format!("alter database {name} set {setting}")).unwrap();
    }
    let timer = worker(&url, Duration::from_secs(30));
    let names = schedule(&timer, "due", 2_000);
    take_all(&[&timer], names);
    let far = now() + HOUR;
    let large: Vec<_> =
        (0..30).map(|n| timer.schedule(&format!("{n}"), far, &[7; 60_000])).collect();
    for commit in large {
        commit.unwrap().wait().unwrap();
    }
    assert_eq!(timer.iter().count(), 30);
    (0..30).for_each(|n| drop(timer.cancel(&format!("{n}"))));
    let content = (&[0, 92, 39, 255], "\\'");
    let put = || timer.schedule("far", far, content).unwrap().wait().unwrap();
    assert_eq!((put(), put()), (Scheduled::New, Scheduled::Moved));
    let row = timer.get("far").unwrap().unwrap();
    assert_eq!((row.payload(), row.metadata()), (&[0, 92, 39, 255][..], "\\'"));
    assert_eq!((timer.len().unwrap(), timer.iter().count()), (1, 1));
    assert_eq!(timer.cancel("far").unwrap().wait().unwrap(), Cancelled::Cancelled);
    // And by SQL, in a session that is set so too.
    let by_sql = "select tickwheel_schedule('sql', now(), 'a''b'), tickwheel_cancel('none')";
    client(&url).batch_execute(by_sql).unwrap();
    let due = take(&timer);
    assert_eq!((due.name(), due.payload()), ("sql", &b"a'b"[..]));
    due.retry(Duration::ZERO);
    let again = take(&timer);
    assert_eq!((again.name(), again.attempt()), ("sql", 2));
    again.ack();
    assert_eq!((timer.stats().errors, timer.stats().fenced), (0, 0));
    timer.close().unwrap();
    // The server tells what it counted a second late. Two counts read all, and no look does.
    thread::sleep(Duration::from_millis(1_500));
    let scans = "select seq_scan from pg_stat_user_tables where relname = 'tickwheel_due'";
    let scans: i64 = sql.query_one(scans, &[]).unwrap().get(0);
    assert!(scans < 10, "{scans}");
}

/// By it a caller is told whether an owner may have read what it cancels.
#[test]
fn a_commit_tells_the_clock_of_the_database_whether_or_not_something_is_locked() {
    let Some(server) = Server::start() else { return };
    let url = server.tables();
    let (mut store, mut sql) = (PostgresStore::connect(&url).unwrap(), client(&url));
    let mut clock = || {
        let clock = "select floor(extract(epoch from clock_timestamp()) * 1000)::bigint";
        sql.query_one(clock, &[]).unwrap().get::<_, i64>(0) as u64
    };
    let mut other = client(&url);
    let mut locks = other.transaction().unwrap();
    for lock in ["select 1", "select from tickwheel_due where name = 'a' for update"] {
        locks.batch_execute(lock).unwrap();
        let before = clock();
        let changes = ["a", "b"].map(|name| Change::put(name, 1, &[]));
        let done = store.commit(&[], &changes).unwrap();
        let is_locked = lock.ends_with("update");
        assert_eq!(
            done.changed.iter().map(|it| it.is_err()).collect::<Vec<_>>(),
            [is_locked, false]
        );
        let told = done.clock.expect("a database has one");
        assert!((before..=clock()).contains(&told), "{before} {told}, locked: {is_locked}");
    }
}

/// As by a restart of the database, or by `idle_session_timeout`.
#[test]
fn a_connection_that_was_ended_while_nothing_was_asked_fails_no_call() {
    let Some(server) = Server::start() else { return };
    let url = server.tables();
    let mut store = PostgresStore::connect(&url).unwrap();
    let mut sql = client(&url);
    // It is to be heard of, which may take longer on a busy machine.
    until("the next call is made on another connection", || {
        store.count().unwrap_or_default();
        let ended = "select pg_terminate_backend(pid, 60000) from pg_stat_activity
                     where application_name = 'tickwheel-durable'";
        sql.query(ended, &[]).unwrap();
        thread::sleep(Duration::from_millis(500));
        store.count().is_ok()
    });
}

/// Each for longer than a lease: what begins it, and what ends it.
#[test]
fn what_stops_all_for_a_while_is_told_and_all_comes_after_it() {
    let Some(server) = Server::start() else { return };
    let raise = |state: &str, table: &str, word: &str| {
        [
            format!(
                "create function refuse() returns trigger language plpgsql as
                   $$ begin raise '{word}' using errcode = '{state}'; end $$;
                 create trigger refuse before insert or update or delete on {table}
                   for each statement execute function refuse()"
            ),
            "drop function refuse() cascade".to_owned(),
        ]
    };
    let set = |setting: &str, back: &str| {
        // Whoever comes back at once is to find it changed.
        [setting, back].map(|setting| format!("begin; alter role ROLE {setting}; commit; {CUT}"))
    };
    let both = |begin: &str, end: &str| [begin.to_owned(), end.to_owned()];
    let cases = [
        set("nologin", "login"),
        set("connection limit 0", "connection limit -1"),
        set("set default_transaction_read_only = on", "reset default_transaction_read_only"),
        both("revoke all on tickwheel_due from ROLE", "grant all on tickwheel_due to ROLE"),
        both(
            "alter table tickwheel_due enable row level security;
             create policy house on tickwheel_due using (name like 'd%')",
            "alter table tickwheel_due disable row level security",
        ),
        raise("53100", "tickwheel_due", "the disk is full"),
        raise("53200", "tickwheel_worker", "out of shared memory"),
        raise("40001", "tickwheel_due", "could not serialize"),
    ];
    // Each waits for a while, so they take place at once.
    thread::scope(|scope| {
        for (n, case) in cases.into_iter().enumerate() {
            let server = &server;
            scope.spawn(move || {
                let role = format!("worker_{n}");
                let [begin, end] = case.map(|statement| statement.replace("ROLE", &role));
                let url = server.database();
                let mut owner = client(&url);
                let tables = tickwheel_durable::MIGRATION;
                owner
                    .batch_execute(&format!(
                        "create role {role} login; {tables};
                         grant all on all tables in schema public to {role};
                         grant all on all sequences in schema public to {role}"
                    ))
                    .unwrap();
                let timer =
                    worker(&url.replace("tickwheel@", &format!("{role}@")), Duration::from_secs(6));
                until("it owns all", || timer.stats().partitions == 64);
                let before = schedule(&timer, "before", 100);
                owner.batch_execute(&begin).unwrap();
                thread::sleep(Duration::from_secs(7));
                let during = timer.schedule("during", now() + HOUR, b"").unwrap().wait();
                println!("{begin}: {:?}", during.as_ref().map_err(ToString::to_string));
                assert!(begin.contains("tickwheel_worker") || during.is_err(), "{begin}");
                owner.batch_execute(&end).unwrap();
                take_all(&[&timer], before);
                // A try that began before may fail after.
                let put = || timer.schedule("again", now() + HOUR, b"").unwrap().wait();
                until("it goes on", || put().is_ok());
                take_all(&[&timer], schedule(&timer, "after", 20));
                drop(timer.close());
                owner.batch_execute(&format!("drop owned by {role}; drop role {role}")).unwrap();
            });
        }
    });
}

/// As `VACUUM FULL`, `ALTER TABLE` and `REINDEX` do it.
#[test]
fn a_table_that_is_locked_for_longer_than_a_lease_loses_nothing() {
    let Some(server) = Server::start() else { return };
    thread::scope(|scope| {
        for table in ["due", "partition", "worker", "meta"] {
            for mode in ["access exclusive", "share"] {
                let server = &server;
                scope.spawn(move || {
                    let url = server.database();
                    let timers = [(); 2].map(|()| worker(&url, Duration::from_secs(6)));
                    let all = timers.each_ref();
                    take_all(&all, schedule(&timers[0], "first", 100));
                    let mut names = schedule(&timers[1], "before", 100);
                    let mut other = client(&url);
                    let mut lunch = other.transaction().unwrap();
                    lunch
                        .batch_execute(&format!("lock table tickwheel_{table} in {mode} mode"))
                        .unwrap();
                    thread::sleep(Duration::from_secs(7));
                    let during = timers[0].schedule("during", now(), b"").unwrap().wait();
                    println!("{table} {mode}: {:?}", during.as_ref().map_err(ToString::to_string));
                    lunch.rollback().unwrap();
                    names.extend(during.ok().map(|_| "during".to_owned()));
                    take_all(&all, names);
                    // What failed last may have been acks: until they are tried again, puts are refused.
                    until("a put is taken", || {
                        timers[1].schedule("probe", now() + HOUR, b"").unwrap().wait().is_ok()
                    });
                    take_all(&all, schedule(&timers[1], "after", 100));
                    // On a busy machine the other may have taken over what was acked last.
                    timers.into_iter().for_each(|timer| drop(timer.close()));
                });
            }
        }
    });
}

/// They do not wait for each other for as long as the lock is there: it is there until all have
/// their answer.
#[test]
fn while_the_table_is_locked_each_of_many_callers_has_an_answer() {
    let Some(server) = Server::start() else { return };
    let url = server.database();
    let timer = worker(&url, STEADY);
    take_all(&[&timer], schedule(&timer, "first", 10));
    let mut other = client(&url);
    let mut index = other.transaction().unwrap();
    index.batch_execute("lock table tickwheel_due in share mode").unwrap();
    let began = Instant::now();
    let put = |n| timer.schedule(&format!("during {n}"), now() + HOUR, b"").unwrap();
    let commits: Vec<_> = (0..3_000).map(put).collect();
    for commit in commits {
        let error = commit.wait().unwrap_err().to_string();
        assert!(error.contains("locked the table tickwheel_due"), "{error}");
    }
    println!("3000 answers after {:?}", began.elapsed());
    assert!(began.elapsed() < Duration::from_secs(120));
    index.rollback().unwrap();
    until("a put is taken", || put(0).wait().is_ok());
    take_all(&[&timer], schedule(&timer, "after", 100));
    timer.close().unwrap();
}

/// A look asks of each of them whether it has ended.
#[test]
fn a_thousand_open_transactions_hold_up_no_look() {
    let Some(server) = Server::start() else { return };
    let url = server.database();
    let mut sql = client(&url);
    for n in 0..1_000 {
        let open = format!("begin; select pg_current_xact_id(); prepare transaction '{n}'");
        sql.batch_execute(&open).unwrap();
    }
    // Each of them began before this, and may have put something that is not seen yet.
    sql.batch_execute("create table other ()").unwrap();
    let timer = worker(&url, STEADY);
    for n in 0..10 {
        sql.batch_execute(&format!("select tickwheel_schedule('{n}', now(), '')")).unwrap();
        let due = take(&timer);
        assert_eq!(due.name(), n.to_string());
        due.ack();
    }
    timer.close().unwrap();
    let log = std::fs::read_to_string(server.data().with_file_name("log")).unwrap();
    // An ack has less time than a look, and is tried again.
    let mut cancelled = log.split("due to statement timeout").skip(1);
    let looks = ["select -1,", "select partition, deadline,"];
    let is_look = |rest: &str| {
        rest.lines().nth(1).is_some_and(|it| looks.iter().any(|look| it.contains(look)))
    };
    assert!(!cancelled.any(is_look), "{log}");
    for n in 0..1_000 {
        sql.batch_execute(&format!("rollback prepared '{n}'")).unwrap();
    }
}

#[test]
fn tables_that_are_rewritten_while_a_worker_runs_lose_nothing() {
    let Some(server) = Server::start() else { return };
    let url = server.tables();
    let timer = worker(&url, Duration::from_secs(10));
    let mut names = schedule(&timer, "first", 50);
    let held: Vec<Due> = (0..50).map(|_| take(&timer)).collect();
    let mut sql = client(&url);
    let soon = now() + Duration::from_secs(1);
    for n in 0..50 {
        timer.schedule(&format!("second {n}"), soon, b"").unwrap().wait().unwrap();
        names.insert(format!("second {n}"));
    }
    for statement in [
        "vacuum full",
        "reindex table tickwheel_due",
        "cluster tickwheel_due using tickwheel_due_order",
        "alter table tickwheel_due add column note text default ''",
        "alter table tickwheel_due alter column note type varchar(9)",
        "analyze",
        "vacuum freeze",
    ] {
        sql.batch_execute(statement).unwrap();
        names.extend(schedule(&timer, statement, 10));
    }
    for due in held {
        names.remove(due.name());
        due.ack();
    }
    take_all(&[&timer], names);
    until("all are acked", || timer.is_empty().unwrap());
    timer.close().unwrap();
}

#[test]
fn a_commit_whose_wait_for_a_standby_somebody_cancelled_is_no_success() {
    let Some(server) = Server::start() else { return };
    let url = server.database();
    let store = PostgresStore::connect(&url).unwrap().lease(STEADY);
    let timer = DurableTimer::builder().open_store(store).unwrap();
    timer.schedule("first", now() + HOUR, b"").unwrap().wait().unwrap();
    let mut other = client(&url);
    wait_for_standby(&url, "nobody");
    let waits = timer.schedule("second", now() + HOUR, b"").unwrap();
    until("somebody cancels the wait", || {
        let cancel = "select pg_cancel_backend(pid) from pg_stat_activity
                      where wait_event = 'SyncRep'";
        !other.query(cancel, &[]).unwrap().is_empty()
    });
    let error = waits.wait().unwrap_err().to_string();
    assert!(error.contains("standby"), "{error}");
    wait_for_standby(&url, "");
    until("it goes on", || timer.schedule("third", now() + HOUR, b"").unwrap().wait().is_ok());
    assert!(timer.get("second").unwrap().is_some());
    timer.close().unwrap();
}

/// A call that is given up leaves else a server process behind, with its locks, until there is no
/// connection left for anybody.
#[test]
fn calls_that_wait_for_a_lost_standby_are_given_up_and_leave_no_server_process_behind() {
    let Some(server) = Server::start() else { return };
    let url = server.database();
    let lease = Duration::from_secs(2);
    let timer = worker(&url, lease);
    let mut names = schedule(&timer, "before", 100);
    let mut sql = client(&url);
    wait_for_standby(&url, "nobody");
    let mut waiting = || -> i64 {
        let waiting = "select count(*) from pg_stat_activity where wait_event = 'SyncRep'";
        sql.query_one(waiting, &[]).unwrap().get(0)
    };
    let put = || timer.schedule("during", now() + HOUR, b"").unwrap().wait();
    until("commits wait for it", || put().is_err());
    until("calls are given up", || {
        assert!(put().is_err(), "it is on no standby");
        10 < timer.stats().errors
    });
    // That of the call that is under way.
    until("none is left behind", || waiting() <= 1);
    // Nor by a store that ends at once.
    for _ in 0..5 {
        let mut store = PostgresStore::connect(&url).unwrap().lease(lease);
        assert!(store.commit(&[], &[Change::put("ends", 1, b"")]).is_err());
    }
    until("none is left behind by these", || waiting() <= 1);
    wait_for_standby(&url, "");
    until("it goes on", || put().is_ok());
    names.insert("ends".to_owned());
    names.extend(schedule(&timer, "after", 100));
    take_all(&[&timer], names);
    let far = timer.get("during").unwrap().expect("it was committed here");
    assert!(now() < far.deadline());
    timer.close().unwrap();
}

/// Nobody tells its server process that the call is given up, so its locks stay while there is no
/// standby.
#[test]
fn a_worker_that_is_killed_while_it_waits_for_a_standby_is_succeeded_when_there_is_one() {
    let Some(server) = Server::start() else { return };
    let url = server.tables();
    let (sender, _lines) = mpsc::channel();
    let mut killed = spawn(&url, &sender);
    let mut sql = client(&url);
    let count = |sql: &mut Client, of: &str| -> i64 {
        sql.query_one(&format!("select count(*) from {of}"), &[]).unwrap().get(0)
    };
    let owned = "tickwheel_partition where owner is not null";
    until("it owns all", || count(&mut sql, owned) == 64);
    let due = "select tickwheel_schedule('first ' || n, now(), '') from generate_series(1, 200) n";
    wait_for_standby(&url, "nobody");
    sql.batch_execute(&format!("set synchronous_commit = local; {due}")).unwrap();
    let waiting = "pg_stat_activity where wait_event = 'SyncRep'";
    until("it waits", || 0 < count(&mut sql, waiting));
    killed.kill().unwrap();
    killed.wait().unwrap();
    let left = count(&mut sql, waiting);
    wait_for_standby(&url, "");
    let began = Instant::now();
    let timer = worker(&url, Duration::from_secs(1));
    take_all(&[&timer], schedule(&timer, "after", 200));
    println!("{left} waited after the kill; all came {:?} after the standby did", began.elapsed());
    until("what it had comes too", || {
        while let Some(due) = timer.try_recv().unwrap() {
            due.ack();
        }
        count(&mut sql, "tickwheel_due") == 0
    });
    until("none waits", || count(&mut sql, waiting) == 0);
    timer.close().unwrap();
}

/// Lets commits wait for a standby of this name, or for none.
fn wait_for_standby(url: &str, name: &str) {
    let (mut sql, mut other) = (client(url), client(url));
    let set = format!("alter system set synchronous_standby_names = '{name}'");
    sql.batch_execute(&set).unwrap();
    sql.batch_execute("select pg_reload_conf()").unwrap();
    until("the server knows it", || {
        let shown = sql.query_one("show synchronous_standby_names", &[]).unwrap();
        shown.get::<_, &str>(0) == name
    });
    if name.is_empty() {
        // This waits until the checkpointer has read it, too.
        return sql.batch_execute("select pg_logical_emit_message(true, '', '')").unwrap();
    }
    // Who commits asks what the checkpointer has told, which may read the setting later.
    let pid: i32 = sql.query_one("select pg_backend_pid()", &[]).unwrap().get(0);
    let cancel = format!(
        "select pg_cancel_backend(pid) from pg_stat_activity
         where pid = {pid} and wait_event = 'SyncRep'"
    );
    until("a commit waits for it", || {
        thread::scope(|threads| {
            let commit = "select pg_logical_emit_message(true, '', '')";
            let commit = threads.spawn(|| sql.batch_execute(commit).unwrap());
            let mut waited = false;
            while !commit.is_finished() {
                waited |= !other.query(&cancel, &[]).unwrap().is_empty();
                thread::sleep(Duration::from_millis(1));
            }
            waited
        })
    });
}

const CUT: &str = "select pg_terminate_backend(pid) from pg_stat_activity where usename = 'ROLE'";

/// Settings that are allowed, and that somebody may have.
const SETTINGS: [&str; 36] = [
    "array_nulls = off",
    "backslash_quote = off",
    "bytea_output = escape",
    "client_encoding = latin1",
    "datestyle = 'SQL, DMY'",
    "default_transaction_deferrable = on",
    "default_transaction_isolation = serializable",
    "enable_bitmapscan = on",
    "enable_hashjoin = on",
    "enable_indexonlyscan = off",
    "enable_indexscan = off",
    "enable_material = off",
    "enable_mergejoin = on",
    "enable_nestloop = off",
    "enable_seqscan = on",
    "extra_float_digits = -15",
    "from_collapse_limit = 1",
    "idle_in_transaction_session_timeout = '50ms'",
    "idle_session_timeout = '1min'",
    "intervalstyle = sql_standard",
    "join_collapse_limit = 1",
    "lock_timeout = '1ms'",
    "plan_cache_mode = force_generic_plan",
    "plpgsql.extra_errors = 'all'",
    "plpgsql.variable_conflict = use_variable",
    "quote_all_identifiers = on",
    "row_security = off",
    "session_replication_role = replica",
    "standard_conforming_strings = off",
    "statement_timeout = '500ms'",
    "synchronous_commit = off",
    "temp_file_limit = 0",
    "timezone = 'Australia/Lord_Howe'",
    "transform_null_equals = on",
    "vacuum_cost_delay = 10",
    "work_mem = '64kB'",
];
