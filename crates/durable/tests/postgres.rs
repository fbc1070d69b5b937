//! The timer on PostgreSQL. The tests start a server of their own.

mod conditions;
mod dead;
mod fleet;
mod limit;
mod live;
#[cfg(feature = "cli")]
mod operator;
#[cfg(feature = "cli")]
mod page;
mod pooler;
mod refused;
mod server;
mod several;
#[cfg(feature = "tls")]
mod tls;

use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tickwheel_durable::{
    Cancelled, Due, DurableTimer, Error, MissedTick, PostgresStore, Recurring, Scheduled,
    cancel_in, cancel_in_async, cancel_sql, schedule_in, schedule_in_async, schedule_sql, suite,
};

use server::{Server, client};

fn now() -> SystemTime {
    SystemTime::now()
}

/// A worker with this lease, on which somebody receives.
fn worker(url: &str, lease: Duration) -> DurableTimer {
    let store = PostgresStore::connect(url).unwrap().lease(lease);
    received(DurableTimer::builder().open_store(store).unwrap())
}

/// Asks for what is due, so that the worker wants partitions.
fn received(timer: DurableTimer) -> DurableTimer {
    assert!(timer.try_recv().unwrap().is_none(), "it has none yet");
    timer
}

fn take(timer: &DurableTimer) -> Due {
    timer.recv_timeout(LONG).unwrap().expect("one is due")
}

/// Waits until `holds`.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < LONG, "{what}");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn postgres_is_a_store() {
    let Some(server) = Server::start() else { return };
    suite::check(|| PostgresStore::connect(&server.database()).unwrap());
    let url = server.tables();
    suite::check_reopening(|| {
        // As if the lease of the one before had run out.
        let over = "delete from tickwheel_worker";
        client(&url).batch_execute(over).unwrap();
        PostgresStore::connect(&url).unwrap()
    });
}

#[test]
fn a_timeout_is_there_exactly_if_the_transaction_is() {
    let Some(server) = Server::start() else { return };
    let url = server.database();
    let timer = DurableTimer::connect(&url).unwrap();
    let mut client = client(&url);
    client.batch_execute("create table orders (id int primary key)").unwrap();

    let mut transaction = client.transaction().unwrap();
    transaction.execute("insert into orders values (1)", &[]).unwrap();
    schedule_in(&mut transaction, "order-1", now(), b"eur 20").unwrap();
    transaction.rollback().unwrap();

    let mut transaction = client.transaction().unwrap();
    transaction.execute("insert into orders values (2)", &[]).unwrap();
    schedule_in(&mut transaction, "order-2", now(), (b"eur 20", "shop 3")).unwrap();
    // What commits late is before what was looked at, and is not skipped.
    assert!(timer.recv_timeout(Duration::from_millis(600)).unwrap().is_none());
    transaction.commit().unwrap();

    let due = take(&timer);
    let came = (due.name(), due.payload(), due.metadata());
    assert_eq!(came, ("order-2", &b"eur 20"[..], "shop 3"));
    due.ack();

    let mut transaction = client.transaction().unwrap();
    schedule_in(&mut transaction, "order-3", now() + HOUR, b"").unwrap();
    transaction.commit().unwrap();
    let mut transaction = client.transaction().unwrap();
    assert!(cancel_in(&mut transaction, "order-3").unwrap());
    assert!(!cancel_in(&mut transaction, "order-4").unwrap());
    assert!(matches!(schedule_in(&mut transaction, "", now(), b""), Err(Error::EmptyName)));
    transaction.commit().unwrap();
    timer.close().unwrap();
    let left: i64 = client.query_one("select count(*) from tickwheel_due", &[]).unwrap().get(0);
    assert_eq!(left, 0);
}

#[test]
fn any_driver_schedules_and_cancels_in_its_transaction_by_sql() {
    let Some(server) = Server::start() else { return };
    let url = server.database();
    let timer = DurableTimer::connect(&url).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (mut client, connection) =
            tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        let schedule = "select tickwheel_schedule($1, $2, $3)";
        let transaction = client.transaction().await.unwrap();
        for (name, at) in [("order-1", now() + HOUR), ("order-2", now()), ("order-3", now())] {
            let row = transaction.query_one(schedule, &[&name, &at, &&b"eur 20"[..]]).await;
            assert!(row.unwrap().get::<_, bool>(0), "{name} is new");
        }
        let row = transaction.query_one(schedule, &[&"order-1", &now(), &&b"moved"[..]]).await;
        assert!(!row.unwrap().get::<_, bool>(0), "order-1 is moved");
        let with_metadata = "select tickwheel_schedule($1, $2, 'eur 5', $3)";
        for (name, is_new) in [("order-2", false), ("order-5", true)] {
            let row = transaction.query_one(with_metadata, &[&name, &now(), &"shop 3"]).await;
            assert_eq!(row.unwrap().get::<_, bool>(0), is_new, "{name}");
        }
        // What has metadata is moved without.
        let row = transaction.query_one(schedule, &[&"order-5", &now(), &&b"moved"[..]]).await;
        assert!(!row.unwrap().get::<_, bool>(0), "order-5 is moved");
        for is_there in [true, false] {
            let row = transaction.query_one("select tickwheel_cancel('order-3')", &[]).await;
            assert_eq!(row.unwrap().get::<_, bool>(0), is_there);
        }
        transaction.commit().await.unwrap();

        // An error names the rule that is broken, and the transaction is the caller's to end.
        let long = "x".repeat(256);
        for (name, payload) in [("", 1), (&*long, 1), ("order-4", 65_537)] {
            let payload = vec![0_u8; payload];
            let error = client.query_one(schedule, &[&name, &now(), &payload]).await.unwrap_err();
            let broken = error.as_db_error().unwrap().constraint().unwrap();
            assert!(broken.starts_with("tickwheel_due_"), "{broken}");
        }
        let long = "x".repeat(1_025);
        let error = client.query_one(with_metadata, &[&"order-4", &now(), &long]).await;
        let error = error.unwrap_err();
        assert_eq!(error.as_db_error().unwrap().constraint(), Some("tickwheel_due_metadata_check"));
        let no_text: Option<&str> = None;
        client.query_one(with_metadata, &[&"order-4", &now(), &no_text]).await.unwrap_err();
        // A deadline past all numbers does not come; one before 1970 is overdue.
        let far = "select tickwheel_schedule('far', 'infinity', ''),
                     tickwheel_schedule('past', '-infinity', '')";
        client.query_one(far, &[]).await.unwrap();
    });
    let mut came = [(); 4].map(|()| {
        let due = take(&timer);
        let payload = str::from_utf8(due.payload()).unwrap();
        let came = [due.name(), payload, due.metadata()].map(str::to_owned);
        due.ack();
        came
    });
    came.sort();
    let expected = [
        ["order-1", "moved", ""],
        ["order-2", "eur 5", "shop 3"],
        ["order-5", "moved", ""],
        ["past", "", ""],
    ];
    assert_eq!(came, expected);
    assert!(timer.get("far").unwrap().is_some());
    timer.close().unwrap();
}

#[test]
fn a_transaction_of_tokio_postgres_schedules_and_cancels_by_a_call() {
    let Some(server) = Server::start() else { return };
    let url = server.database();
    let timer = DurableTimer::connect(&url).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let (task_url, at) = (url.clone(), now());
    // As a task that may go from thread to thread.
    let task = runtime.spawn(async move {
        let (mut client, connection) =
            tokio_postgres::connect(&task_url, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        let transaction = client.transaction().await.unwrap();
        schedule_in_async(&transaction, "order-1", at, b"eur 20").await.unwrap();
        transaction.rollback().await.unwrap();
        let transaction = client.transaction().await.unwrap();
        let content = (b"eur 20", "shop 3");
        schedule_in_async(&transaction, "order-2", at, content).await.unwrap();
        schedule_in_async(&transaction, "order-3", at, b"").await.unwrap();
        assert!(cancel_in_async(&transaction, "order-3").await.unwrap());
        assert!(!cancel_in_async(&transaction, "order-4").await.unwrap());
        // What is not allowed is refused here, and the transaction goes on.
        let error = schedule_in_async(&transaction, "", at, b"").await.unwrap_err();
        assert!(matches!(error, Error::EmptyName), "{error}");
        let error = cancel_in_async(&transaction, "a\0").await.unwrap_err();
        assert!(matches!(error, Error::NulInName), "{error}");
        transaction.commit().await.unwrap();
        // By a client, at once; and an error has the words of the server.
        schedule_in_async(&client, "order-5", now() + HOUR, &[0; 65_536]).await.unwrap();
        client.batch_execute("begin read only").await.unwrap();
        let error = schedule_in_async(&client, "order-6", at, b"").await.unwrap_err();
        let words = error.to_string();
        assert!(words.contains("order-6") && words.contains("read-only"), "{words}");
    });
    runtime.block_on(task).unwrap();
    let due = take(&timer);
    let came = (due.name(), due.payload(), due.metadata());
    assert_eq!(came, ("order-2", &b"eur 20"[..], "shop 3"));
    assert!(due.deadline() >= at && due.deadline() < at + Duration::from_millis(1));
    due.ack();
    let names: Vec<String> = timer.iter().map(|it| it.unwrap().name().to_owned()).collect();
    assert_eq!(names.iter().filter(|name| *name != "order-2").collect::<Vec<_>>(), ["order-5"]);
    timer.close().unwrap();
}

#[test]
fn what_recurs_is_acked_and_scheduled_in_one_change_also_by_another_worker() {
    let Some(server) = Server::start() else { return };
    let url = server.tables();
    let workers = [worker(&url, STEADY), worker(&url, STEADY)];
    let put = workers[0].schedule("tick", now(), b"1").unwrap();
    put.wait().unwrap();
    let every = Recurring::every(Duration::from_millis(1)).missed(MissedTick::Burst);
    let mut deadline = None;
    for run in 0..20 {
        let mut due = None;
        until("the next run is due", || {
            due = workers.iter().find_map(|worker| worker.try_recv().unwrap());
            due.is_some()
        });
        let due = due.unwrap();
        assert!(deadline.is_none_or(|deadline| deadline == due.deadline()), "run {run}");
        assert_eq!((due.attempt(), due.payload()), (1, &b"1"[..]));
        let next = every.next(due.deadline(), now()).unwrap();
        deadline = Some(next);
        due.ack_and_schedule(next);
    }
    for worker in workers {
        worker.close().unwrap();
    }
    let mut client = client(&url);
    let rows = client.query("select deadline from tickwheel_due", &[]).unwrap();
    let left: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
    let next = deadline.unwrap().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64;
    assert_eq!(left, [next]);
}

#[test]
fn any_driver_schedules_and_cancels_by_sql_with_typed_parameters() {
    use sqlx::{Connection, PgConnection};

    let Some(server) = Server::start() else { return };
    let url = server.database();
    let timer = DurableTimer::connect(&url).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let at = now();
    runtime.block_on(async {
        let mut connection = PgConnection::connect(&url).await.unwrap();
        for (name, at) in [("order-2", at), ("order-3", now() + HOUR)] {
            let put = schedule_sql(name, at, (b"eur 20", "shop 3")).unwrap();
            let (sql, (name, at, payload, metadata)) = put;
            let put = sqlx::query(sql).bind(name).bind(at).bind(payload).bind(metadata);
            put.execute(&mut connection).await.unwrap();
        }
        for is_there in [true, false] {
            let (sql, name) = cancel_sql("order-3").unwrap();
            let cancelled: bool =
                sqlx::query_scalar(sql).bind(name).fetch_one(&mut connection).await.unwrap();
            assert_eq!(cancelled, is_there);
        }
    });
    let due = take(&timer);
    let came = (due.name(), due.payload(), due.metadata());
    assert_eq!(came, ("order-2", &b"eur 20"[..], "shop 3"));
    assert!(due.deadline() >= at && due.deadline() < at + Duration::from_millis(1));
    due.ack();
    assert!(timer.get("order-3").unwrap().is_none());
    timer.close().unwrap();
    assert!(matches!(schedule_sql("", at, b""), Err(Error::EmptyName)));
    assert!(matches!(schedule_sql("a", at, &[0; 65_537]), Err(Error::LongPayload { .. })));
    assert!(matches!(schedule_sql("a", at, (b"", "\0")), Err(Error::NulInMetadata)));
    assert!(matches!(cancel_sql("a\0"), Err(Error::NulInName)));
}

#[cfg(feature = "sqlx")]
#[test]
fn a_transaction_of_sqlx_schedules_and_cancels_by_a_call() {
    use sqlx::{Connection, PgConnection, PgPool};
    use tickwheel_durable::{cancel_in_sqlx, schedule_in_sqlx};

    let Some(server) = Server::start() else { return };
    let url = server.database();
    let timer = DurableTimer::connect(&url).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let (task_url, at) = (url.clone(), now());
    // As a task that may go from thread to thread.
    let task = runtime.spawn(async move {
        let pool = PgPool::connect(&task_url).await.unwrap();
        let mut transaction = pool.begin().await.unwrap();
        schedule_in_sqlx(&mut transaction, "order-1", at, b"eur 20").await.unwrap();
        transaction.rollback().await.unwrap();
        let mut transaction = pool.begin().await.unwrap();
        schedule_in_sqlx(&mut transaction, "order-2", at, b"eur 20").await.unwrap();
        schedule_in_sqlx(&mut transaction, "order-3", at, b"").await.unwrap();
        assert!(cancel_in_sqlx(&mut transaction, "order-3").await.unwrap());
        assert!(!cancel_in_sqlx(&mut transaction, "order-4").await.unwrap());
        // What is not allowed is refused here, and the transaction goes on.
        let error = schedule_in_sqlx(&mut transaction, "", at, b"").await.unwrap_err();
        assert!(matches!(error, Error::EmptyName), "{error}");
        let error = cancel_in_sqlx(&mut transaction, "a\0").await.unwrap_err();
        assert!(matches!(error, Error::NulInName), "{error}");
        transaction.commit().await.unwrap();
        // On a connection, at once; and an error has the words of the server, once.
        let mut connection = PgConnection::connect(&task_url).await.unwrap();
        let far = now() + HOUR;
        schedule_in_sqlx(&mut connection, "order-5", far, &[0; 65_536]).await.unwrap();
        sqlx::query("begin read only").execute(&mut connection).await.unwrap();
        let error = schedule_in_sqlx(&mut connection, "order-6", at, b"").await.unwrap_err();
        let words = error.to_string();
        assert!(words.starts_with("cannot schedule \"order-6\" in a transaction: "), "{words}");
        assert_eq!(words.matches("read-only").count(), 1, "{words}");
    });
    runtime.block_on(task).unwrap();
    let due = take(&timer);
    assert_eq!((due.name(), due.payload()), ("order-2", &b"eur 20"[..]));
    assert!(due.deadline() >= at && due.deadline() < at + Duration::from_millis(1));
    due.ack();
    let names: Vec<String> = timer.iter().map(|it| it.unwrap().name().to_owned()).collect();
    assert_eq!(names.iter().filter(|name| *name != "order-2").collect::<Vec<_>>(), ["order-5"]);
    timer.close().unwrap();
}

#[test]
fn a_deadline_in_sql_is_rounded_up_to_a_millisecond() {
    let Some(server) = Server::start() else { return };
    let url = server.tables();
    let mut client = client(&url);
    // A column may have a collation of its own.
    client
        .batch_execute(
            "create table orders (id text collate \"POSIX\");
             insert into orders values ('a'), ('b');
             select tickwheel_schedule(id, '2030-01-01 00:00:00.000001Z', '') from orders;
             select tickwheel_cancel(id) from orders where id = 'b'",
        )
        .unwrap();
    let row = client.query_one("select deadline from tickwheel_due", &[]).unwrap();
    assert_eq!(row.get::<_, i64>(0), 1_893_456_000_001);
}

#[test]
fn workers_share_the_partitions_and_each_timeout_goes_to_one() {
    let Some(server) = Server::start() else { return };
    let url = server.database();
    let workers: Vec<DurableTimer> = (0..3).map(|_| worker(&url, SHARED)).collect();
    until("the shares settle", || {
        let mut shares: Vec<_> = workers.iter().map(|it| it.stats().partitions).collect();
        shares.sort();
        shares == [21, 21, 22]
    });
    let (sender, receiver) = mpsc::channel();
    let consumers: Vec<_> = workers
        .iter()
        .cloned()
        .enumerate()
        .map(|(worker, timer)| {
            let sender = sender.clone();
            thread::spawn(move || {
                while let Some(due) = timer.recv().unwrap() {
                    assert!(due.deadline() <= now());
                    sender.send((worker, due.name().to_owned())).unwrap();
                    due.ack();
                }
            })
        })
        .collect();
    // Each puts and moves names of all partitions.
    let commits: Vec<_> = (0..900)
        .map(|n| {
            let at = now() + Duration::from_millis(n % 500);
            workers[n as usize % 3].schedule(&format!("{n}"), at, b"").unwrap()
        })
        .collect();
    for commit in commits {
        assert_eq!(commit.wait().unwrap(), Scheduled::New);
    }
    let came: Vec<(usize, String)> =
        (0..900).map(|_| receiver.recv_timeout(LONG).unwrap()).collect();
    assert_eq!(came.iter().map(|(_, name)| name).collect::<HashSet<_>>().len(), 900);
    assert_eq!(came.iter().map(|(worker, _)| worker).collect::<HashSet<_>>().len(), 3);
    for worker in workers {
        worker.close().unwrap();
    }
    for consumer in consumers {
        consumer.join().unwrap();
    }
    assert!(receiver.try_recv().is_err(), "nothing came twice");
    // Who ends well gives its partitions back at once.
    let last = worker(&url, CALM);
    until("the last one has all", || last.stats().partitions == 64);
}

#[test]
fn what_another_worker_cancels_or_moves_in_time_does_not_come() {
    let Some(server) = Server::start() else { return };
    let url = server.database();
    let owner = received(DurableTimer::connect(&url).unwrap());
    until("it owns all", || owner.stats().partitions == 64);
    let other = worker(&url, HOUR);
    assert_eq!(other.cancel("nobody").unwrap().wait().unwrap(), Cancelled::Unknown);
    let mut told = HashMap::new();
    // On a busy machine all may be too late, which proves nothing.
    let some_are_in_time = (1..=20).any(|round| {
        let name = |kind, n| format!("{kind} {round}/{n}");
        let soon = now() + round * Duration::from_millis(1_600);
        for n in 0..50 {
            for kind in ["cancelled", "moved"] {
                other.schedule(&name(kind, n), soon, b"").unwrap().wait().unwrap();
            }
        }
        // A caller is told in time until a second before, which comes while this goes on.
        let begins = soon - Duration::from_secs(1) - round * Duration::from_millis(100);
        thread::sleep(begins.duration_since(now()).unwrap_or_default());
        for n in 0..50 {
            let cancelled = other.cancel(&name("cancelled", n)).unwrap().wait().unwrap();
            told.insert(name("cancelled", n), cancelled == Cancelled::Cancelled);
            let commit = other.schedule(&name("moved", n), now() + HOUR, b"").unwrap();
            told.insert(name("moved", n), commit.wait().unwrap() == Scheduled::Moved);
        }
        while now() < soon + Duration::from_secs(1) {
            for timer in [&owner, &other] {
                while let Some(due) = timer.recv_timeout(Duration::from_millis(20)).unwrap() {
                    assert!(!told[due.name()], "{} came, and its caller was told not", due.name());
                    due.ack();
                }
            }
        }
        ["cancelled", "moved"].iter().all(|kind| (0..50).any(|n| told[&name(*kind, n)]))
    });
    assert!(some_are_in_time, "in 20 rounds, all were too late");
}

#[test]
fn a_worker_whose_clock_is_an_hour_wrong_makes_nothing_early_or_late() {
    let Some(server) = Server::start() else { return };
    let url = server.database();
    for wrong in [now as fn() -> SystemTime, || now() + HOUR, || now() - HOUR] {
        let timer = DurableTimer::builder()
            .clock(wrong)
            .open_store(PostgresStore::connect(&url).unwrap())
            .unwrap();
        let at = now() + Duration::from_millis(400);
        timer.schedule("a", at, b"").unwrap().wait().unwrap();
        let due = take(&timer);
        assert!(at <= now());
        due.ack();
        timer.close().unwrap();
    }
}

#[test]
fn a_restart_of_the_database_and_cut_connections_lose_nothing() {
    let Some(server) = Server::start() else { return };
    let url = server.database();
    let timer = worker(&url, CALM);
    let mut scheduled = HashSet::new();
    let mut came = HashSet::new();
    for round in 0..6 {
        for n in 0..40 {
            let name = format!("{round}/{n}");
            let at = now() + Duration::from_millis(n * 20);
            if timer.schedule(&name, at, b"").unwrap().wait().is_ok() {
                scheduled.insert(name);
            }
        }
        match round {
            1 => {
                server.stop("fast");
                assert!(timer.schedule("while away", now(), b"").unwrap().wait().is_err());
                server.go();
            }
            3 => {
                server.stop("immediate");
                server.go();
            }
            _ => {
                let cut = "select pg_terminate_backend(pid) from pg_stat_activity
                           where application_name = 'tickwheel-durable'";
                client(&url).batch_execute(cut).unwrap();
            }
        }
        // With pauses that grow it comes back by itself.
        until("it works again", || {
            timer.schedule(&format!("{round}/again"), now(), b"").unwrap().wait().is_ok()
        });
        scheduled.insert(format!("{round}/again"));
    }
    until("all come", || {
        while let Some(due) = timer.try_recv().unwrap() {
            came.insert(due.name().to_owned());
            due.ack();
        }
        scheduled.is_subset(&came)
    });
    timer.close().unwrap();
}

#[test]
fn tables_of_a_newer_format_and_of_none_are_refused() {
    let Some(server) = Server::start() else { return };
    let url = server.database();
    DurableTimer::connect(&url).unwrap().close().unwrap();
    client(&url).batch_execute("update tickwheel_meta set format = 7").unwrap();
    let error = PostgresStore::connect(&url).map(drop).unwrap_err();
    assert!(matches!(error, Error::NewerFormat { found: 7, known: 2, .. }), "{error}");
    for none in ["update tickwheel_meta set format = 0", "delete from tickwheel_meta"] {
        client(&url).batch_execute(none).unwrap();
        let error = PostgresStore::connect(&url).map(drop).unwrap_err();
        assert!(matches!(error, Error::Foreign { .. }), "{error}");
    }
    let error = DurableTimer::connect("postgresql://127.0.0.1:1/none").map(drop).unwrap_err();
    assert!(error.to_string().contains("connect to the database"), "{error}");
    assert!(DurableTimer::connect("no url").is_err());
}

#[cfg(feature = "tls")]
#[test]
fn the_parameters_of_the_url_say_what_tls_must_be() {
    let Some(server) = Server::start() else { return };
    let url = server.database();
    let certificate = tls::secure(&server).display().to_string();
    let named = url.replace("127.0.0.1", "localhost");
    let root = format!("sslrootcert={certificate}");
    for (url, parameters, connects) in [
        (&url, "sslmode=disable".to_owned(), false),
        (&url, "sslmode=prefer".to_owned(), true),
        (&url, "sslmode=require".to_owned(), true),
        (&url, format!("sslmode=verify-ca&{root}"), true),
        (&named, format!("sslmode=verify-full&{root}"), true),
        // The certificate has another name, and no root of the system knows it.
        (&url, format!("sslmode=verify-full&{root}"), false),
        (&named, "sslmode=verify-full".to_owned(), false),
    ] {
        let connected = PostgresStore::connect(&format!("{url}?{parameters}"));
        assert_eq!(connected.is_ok(), connects, "{parameters}: {:?}", connected.err());
    }
}

/// Kills and pauses of workers, each a process.
#[test]
fn kills_and_pauses_of_workers_lose_nothing_and_make_nothing_early() {
    let Some(server) = Server::start() else { return };
    let url = server.database();
    let rounds: u32 =
        std::env::var("TICKWHEEL_DURABLE_KILLS").map_or(6, |kills| kills.parse().unwrap());
    PostgresStore::connect(&url).unwrap();
    let (sender, lines) = mpsc::channel();
    let mut workers: Vec<Child> = (0..4).map(|_| spawn(&url, &sender)).collect();
    // The main process puts, and hands out nothing.
    let mut put = client(&url);
    let begin = now();
    let mut scheduled = HashSet::new();
    let mut crashed = 0;
    let mut schedule = |put: &mut postgres::Client, round: u32| {
        let mut transaction = put.transaction().unwrap();
        // The transaction is over before the first is due, on any machine.
        let begin = now() + AHEAD;
        for n in 0..400 {
            let name = format!("{round}/{n}");
            let at = begin + Duration::from_millis(n * 5);
            schedule_in(&mut transaction, &name, at, b"").unwrap();
            scheduled.insert(name);
        }
        transaction.commit().unwrap();
        begin
    };
    let mut next = schedule(&mut put, 0);
    for round in 0..rounds {
        thread::sleep(next.duration_since(now()).unwrap_or_default());
        if round + 1 < rounds {
            next = schedule(&mut put, round + 1);
        }
        thread::sleep(Duration::from_millis(fastrand::u64(200..1_000)));
        let victim = fastrand::usize(0..workers.len());
        if round % 2 == 0 {
            workers[victim].kill().unwrap();
            workers[victim].wait().unwrap();
            workers[victim] = spawn(&url, &sender);
        } else {
            signal(&workers[victim], "-STOP");
            // Longer than its lease, so that others take its partitions.
            thread::sleep(LEASE * 2);
            signal(&workers[victim], "-CONT");
        }
        crashed += 1;
    }
    let mut count =
        || -> i64 { put.query_one("select count(*) from tickwheel_due", &[]).unwrap().get(0) };
    until("all are acked", || count() == 0);
    let took = begin.elapsed().unwrap();
    // While a worker is asked to end well, it tells what was fenced.
    for worker in &mut workers {
        drop(worker.stdin.take());
    }
    for mut worker in workers {
        let status = worker.wait().unwrap();
        assert!(status.success(), "{status}");
    }
    drop(sender);
    let mut fired: HashMap<String, u32> = HashMap::new();
    let (mut early, mut late, mut fenced) = (0, Vec::new(), 0);
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["@fired", name, deadline, now] => {
                let (deadline, now): (i64, i64) = (deadline.parse().unwrap(), now.parse().unwrap());
                early += u32::from(now < deadline);
                let times = fired.entry(name.to_owned()).or_default();
                // How late the first was; another comes after a kill.
                if *times == 0 {
                    late.push(now - deadline);
                }
                *times += 1;
            }
            ["@fenced", count] => fenced += count.parse::<u64>().unwrap(),
            _ => {}
        }
    }
    let lost = scheduled.iter().filter(|name| !fired.contains_key(*name)).count();
    let twice: u32 = fired.values().map(|times| times - 1).sum();
    late.sort_unstable();
    println!(
        "{crashed} kills and pauses, lease {LEASE:?}, {} scheduled in {took:?}: {lost} lost, \
         {early} early, {twice} twice, {fenced} acks fenced, late {} / {} / {} ms",
        scheduled.len(),
        late[late.len() / 2],
        late[late.len() * 99 / 100],
        late[late.len() - 1],
    );
    assert_eq!((lost, early), (0, 0));
}

#[test]
fn what_waited_for_a_consumer_while_the_process_was_stopped_is_not_taken() {
    let Some(server) = Server::start() else { return };
    let url = server.database();
    let (sender, lines) = mpsc::channel();
    let mut stopped = spawn_as("stopped_child", &url, &sender);
    let mut tell = stopped.stdin.take().unwrap();
    let hears = |word: &str| {
        while lines.recv_timeout(LONG).unwrap() != word {}
    };
    hears("@owns");
    let mut put = client(&url);
    put.batch_execute(
        "select tickwheel_schedule('a' || n, now(), '') from generate_series(1, 9) n",
    )
    .unwrap();
    hears("@waits");
    signal(&stopped, "-STOP");
    // Another takes over, and acks them all.
    let other = worker(&url, LEASE);
    let came: HashSet<String> = (0..9)
        .map(|_| {
            let due = take(&other);
            let name = due.name().to_owned();
            due.ack();
            name
        })
        .collect();
    assert_eq!(came.len(), 9);
    until("all are acked", || other.is_empty().unwrap());
    // So that its consumers go on at the moment when it does.
    writeln!(tell, "take").unwrap();
    signal(&stopped, "-CONT");
    let taken = loop {
        let line = lines.recv_timeout(LONG).unwrap();
        if let Some(taken) = line.strip_prefix("@taken ") {
            break taken.to_owned();
        }
    };
    assert_eq!(taken, "0");
    stopped.kill().unwrap();
    stopped.wait().unwrap();
}

/// A worker that takes nothing until it is told to, when it is run by the test above.
#[test]
fn stopped_child() {
    let Ok(url) = std::env::var("TICKWHEEL_DURABLE_URL") else { return };
    static HOLDS: AtomicBool = AtomicBool::new(false);
    // The timer's own thread is the last to go on.
    let clock = || {
        while HOLDS.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(1));
        }
        now()
    };
    // What nobody asks for during a lease is given back.
    let store = PostgresStore::connect(&url).unwrap().lease(CALM);
    let timer = received(DurableTimer::builder().clock(clock).open_store(store).unwrap());
    until("it owns all", || timer.stats().partitions == 64);
    println!("\n@owns");
    until("all wait", || timer.stats().waiting == 9);
    HOLDS.store(true, Ordering::SeqCst);
    println!("\n@waits");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    let taken = (0..9).filter(|_| timer.try_recv().unwrap().is_some()).count();
    println!("\n@taken {taken}");
    thread::sleep(LONG);
}

fn signal(worker: &Child, signal: &str) {
    Command::new("kill").args([signal, &worker.id().to_string()]).status().unwrap();
}

fn spawn(url: &str, lines: &mpsc::Sender<String>) -> Child {
    spawn_as("child", url, lines)
}

fn spawn_as(test: &str, url: &str, lines: &mpsc::Sender<String>) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env("TICKWHEEL_DURABLE_URL", url)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let lines = lines.clone();
    thread::spawn(move || {
        for line in output.lines().map_while(Result::ok) {
            let _ = lines.send(line);
        }
    });
    child
}

/// A worker, when it is run by the test above. It ends when its input does.
#[test]
fn child() {
    let Ok(url) = std::env::var("TICKWHEEL_DURABLE_URL") else { return };
    let timer = worker(&url, LEASE);
    let consumer = {
        let timer = timer.clone();
        thread::spawn(move || {
            while let Some(due) = timer.recv().unwrap() {
                let milliseconds =
                    |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap().as_millis();
                let line = format!(
                    "\n@fired {} {} {}\n",
                    due.name(),
                    milliseconds(due.deadline()),
                    milliseconds(now())
                );
                std::io::stdout().write_all(line.as_bytes()).unwrap();
                due.ack();
            }
        })
    };
    std::io::stdin().read_line(&mut String::new()).unwrap();
    let other = timer.clone();
    // Acks that were refused are told after all are answered.
    let _ = timer.close();
    consumer.join().unwrap();
    println!("\n@fenced {}", other.stats().fenced);
}

const HOUR: Duration = Duration::from_secs(3600);
/// Longer than anything here takes on any machine.
const LONG: Duration = Duration::from_secs(600);

const LEASE: Duration = Duration::from_secs(1);
/// Where nobody waits for its end: a call has a third of it.
const CALM: Duration = Duration::from_secs(10);
/// Where it may not end either while the whole machine pauses for a minute.
const STEADY: Duration = Duration::from_secs(300);
/// The same where workers share, and pauses are short: each hears of others after a quarter of it.
const SHARED: Duration = Duration::from_secs(30);
const AHEAD: Duration = Duration::from_secs(2);
