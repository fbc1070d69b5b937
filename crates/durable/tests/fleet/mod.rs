//! Several databases that share the partitions of names.

#[cfg(feature = "cli")]
mod command;
#[cfg(feature = "cli")]
mod kills;
mod upgrade;

use std::collections::{BTreeMap, HashSet};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use postgres::Client;
use tickwheel_durable::store::{Change, Held, Lease, Outcome, Row, Settlement, Store, Then};
use tickwheel_durable::{
    Cancelled, Error, HomeState, PostgresStore, Retried, Scheduled, abandon_move, cancel_in,
    join_fleet, move_partition, schedule_in,
};

use super::{HOUR, LONG, now, take, until, worker};
use crate::server::{Server, client};

/// Makes the databases of a fleet. The first has all partitions.
fn fleet<const N: usize>(server: &Server) -> [String; N] {
    let urls = [(); N].map(|()| server.tables());
    for new in &urls[1..] {
        join_fleet(&mut store(new), &mut store(&urls[0])).unwrap();
    }
    urls
}

fn store(url: &str) -> PostgresStore {
    PostgresStore::connect(url).unwrap().lease(LEASE)
}

/// What a database is called.
fn place(url: &str) -> &str {
    url.rsplit_once('@').unwrap().1
}

/// So many names of a partition.
fn names(sql: &mut Client, partition: i32, count: i64) -> Vec<String> {
    names_of(sql, &[partition], count)
}

/// So many names of several partitions together.
fn names_of(sql: &mut Client, partitions: &[i32], count: i64) -> Vec<String> {
    let names = "select 'order ' || n from generate_series(1, 2000000) n
         where ('x' || left(md5('order ' || n), 8))::bit(32)::int & 63 = any($1) limit $2";
    let rows = sql.query(names, &[&partitions, &count]).unwrap();
    assert_eq!(rows.len() as i64, count);
    rows.iter().map(|row| row.get(0)).collect()
}

/// Names with deadlines, attempts, payloads and metadata.
type Rows = BTreeMap<String, (i64, i32, Vec<u8>, String)>;
/// Names with deadlines, times of death, attempts, payloads and metadata.
type Letters = BTreeMap<String, (i64, i64, i32, Vec<u8>, String)>;

/// Returns all that a database has of a partition.
fn of(sql: &mut Client, partition: i32) -> (Rows, Letters) {
    let rows = "select name, deadline, attempt, payload, metadata from tickwheel_due
         where partition = $1";
    let rows = sql.query(rows, &[&partition]).unwrap();
    let letters = "select name, deadline, died, attempt, payload, metadata from tickwheel_dead
         where ('x' || left(md5(name), 8))::bit(32)::int & 63 = $1";
    let letters = sql.query(letters, &[&partition]).unwrap();
    (
        rows.iter()
            .map(|row| (row.get(0), (row.get(1), row.get(2), row.get(3), row.get(4))))
            .collect(),
        letters
            .iter()
            .map(|row| (row.get(0), (row.get(1), row.get(2), row.get(3), row.get(4), row.get(5))))
            .collect(),
    )
}

#[test]
fn a_moved_partition_is_as_it_was_and_comes_at_its_new_place_alone() {
    let Some(server) = Server::start() else { return };
    let [here, there] = fleet(&server);
    let (mut old, mut new) = (client(&here), client(&there));
    old.batch_execute(KNOWS_FLEETS).unwrap();
    let (moved, stays) = (names(&mut old, MOVED, 340), names(&mut old, STAYS, 30));
    let put = "insert into tickwheel_due (name, deadline, attempt, payload, metadata)
         select name, case n % 3 when 0 then n else 4000000000000 + n end, n % 4,
           convert_to(name, 'UTF8'), case n % 2 when 0 then 'of ' || name else '' end
         from unnest($1::text[]) with ordinality u(name, n)";
    old.execute(put, &[&&moved[..300]]).unwrap();
    old.execute(put, &[&stays]).unwrap();
    let bury = "insert into tickwheel_dead
         select name, n, 2000 + n, 3, convert_to(name, 'UTF8'), 'dead ' || name
         from unnest($1::text[]) with ordinality u(name, n)";
    // Some of them are pending too.
    old.execute(bury, &[&&moved[280..320]]).unwrap();
    old.execute(bury, &[&stays]).unwrap();
    let [before, others] = [MOVED, STAYS].map(|partition| of(&mut old, partition));
    let (mut from, mut to) = (store(&here), store(&there));
    let epoch = from.homes().unwrap().partitions[MOVED as usize].epoch;

    let done = move_partition(&mut from, &mut to, MOVED as u32, |_| ()).unwrap();
    assert_eq!((done.timeouts, done.dead), (300, 40));
    assert_eq!(of(&mut new, MOVED), before);
    assert_eq!(of(&mut old, MOVED), Default::default());
    assert_eq!(of(&mut old, STAYS), others);
    let homes = [&mut from, &mut to].map(|store| store.homes().unwrap());
    let [left, got] = homes.each_ref().map(|homes| &homes.partitions[MOVED as usize]);
    assert!(matches!((left.state, got.state), (HomeState::Gone, HomeState::Here)));
    assert_eq!((left.other, left.moves), (Some(homes[1].id), got.moves));
    assert!(epoch < got.epoch);
    let again = move_partition(&mut from, &mut to, MOVED as u32, |_| ()).unwrap();
    assert_eq!((again.timeouts, again.dead), (0, 0), "it is there already");

    let workers = [&here, &there].map(|url| worker(url, LEASE));
    for (worker, names) in workers.iter().zip([&stays[..], &moved[..300]]) {
        let due = (1..).zip(names).filter(|(n, _)| n % 3 == 0);
        let mut due: BTreeMap<&str, u32> = due.map(|(n, name)| (&**name, n % 4 + 1)).collect();
        while !due.is_empty() {
            let came = take(worker);
            let attempt = came.attempt();
            assert_eq!(due.remove(came.name()), Some(attempt), "{came:?}");
            assert_eq!(came.payload(), came.name().as_bytes());
            match attempt % 2 {
                1 => assert_eq!(came.metadata(), format!("of {}", came.name())),
                _ => assert_eq!(came.metadata(), ""),
            }
            came.ack();
        }
        assert!(worker.try_recv().unwrap().is_none());
    }
    for worker in workers {
        worker.close().unwrap();
    }
}

#[test]
fn callers_at_the_old_place_are_told_the_new_one_and_served_there() {
    let Some(server) = Server::start() else { return };
    let [here, there] = fleet(&server);
    let (mut old, mut new) = (client(&here), client(&there));
    for sql in [&mut old, &mut new] {
        sql.batch_execute(KNOWS_FLEETS).unwrap();
    }
    let [pending, dead, fresh] = &names(&mut old, MOVED, 3)[..] else { panic!("three names") };
    old.execute("select tickwheel_schedule($1, now() + interval '1 h', '')", &[pending]).unwrap();
    old.execute("insert into tickwheel_dead values ($1, 1, 2, 3, '')", &[dead]).unwrap();
    move_partition(&mut store(&here), &mut store(&there), MOVED as u32, |_| ()).unwrap();

    for (call, name) in [
        ("select tickwheel_schedule($1, now() + interval '1 h', '')", fresh),
        ("select tickwheel_cancel($1)", pending),
        ("select was_dead from tickwheel_revive($1)", dead),
    ] {
        let error = old.query(call, &[name]).unwrap_err();
        let error = error.as_db_error().unwrap();
        assert_eq!(error.code().code(), "TW001", "{error}");
        assert!(error.message().contains(place(&there)), "{error}");
        assert!(new.query_one(call, &[name]).unwrap().get::<_, bool>(0), "{call}");
    }
    new.execute("insert into tickwheel_dead values ($1, 1, 2, 3, '')", &[dead]).unwrap();

    let [caller, other] = [&here, &there].map(|url| worker(url, LEASE));
    let far = now() + HOUR;
    let refusals = [
        caller.schedule(fresh, far, b"").unwrap().wait().map(drop),
        caller.cancel(fresh).unwrap().wait().map(drop),
        caller.retry_dead(fresh).unwrap().wait().map(drop),
        caller.drop_dead(fresh).unwrap().wait().map(drop),
    ];
    let scheduled = schedule_in(&mut old.transaction().unwrap(), fresh, far, b"");
    let cancelled = cancel_in(&mut old.transaction().unwrap(), fresh).map(drop);
    let refusals = refusals.into_iter().chain([scheduled, cancelled]);
    #[cfg(feature = "sqlx")]
    let refusals = refusals.chain(by_sqlx(&here, fresh));
    for refused in refusals {
        let error = refused.unwrap_err();
        let words = error.to_string();
        assert!(words.contains(&format!("ask {}", place(&there))), "{words}");
        let Error::Elsewhere { name, place: told, .. } = error else { panic!("{error:?}") };
        assert_eq!((&*name, &*told), (&**fresh, place(&there)));
    }
    for (statement, why) in [
        ("delete from tickwheel_due", "tickwheel_cancel"),
        ("delete from tickwheel_dead", "tickwheel_cancel"),
        // As a worker of the version before.
        ("select tickwheel_bury(array['a'], array[1::bigint], 1)", "tickwheel_cancel"),
        ("begin isolation level repeatable read; select tickwheel_cancel('a')", "read committed"),
    ] {
        let error = client(&here).batch_execute(statement).unwrap_err();
        let error = error.as_db_error().unwrap().message();
        assert!(error.contains(why), "{error}");
    }
    // One that is refused is no error of the others.
    let stays = &names(&mut old, STAYS, 1)[0];
    let both = [fresh, stays].map(|name| caller.schedule(name, far, b"").unwrap());
    let [refused, put] = both.map(|commit| commit.wait());
    assert!(refused.is_err());
    assert_eq!(put.unwrap(), Scheduled::New);
    assert_eq!(caller.stats().errors, 0);

    assert_eq!(other.schedule(fresh, far, b"").unwrap().wait().unwrap(), Scheduled::Moved);
    assert_eq!(other.cancel(fresh).unwrap().wait().unwrap(), Cancelled::Cancelled);
    other.cancel(dead).unwrap().wait().unwrap();
    assert_eq!(other.retry_dead(dead).unwrap().wait().unwrap(), Retried::Retried);
    let due = take(&other);
    assert_eq!(due.name(), dead);
    due.ack();
    for timer in [caller, other] {
        timer.close().unwrap();
    }
}

/// What a schedule and a cancel by `sqlx` return.
#[cfg(feature = "sqlx")]
fn by_sqlx(url: &str, name: &str) -> [Result<(), Error>; 2] {
    use sqlx::Connection;
    use tickwheel_durable::{cancel_in_sqlx, schedule_in_sqlx};

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut connection = sqlx::PgConnection::connect(url).await.unwrap();
        let scheduled = schedule_in_sqlx(&mut connection, name, now() + HOUR, b"").await;
        [scheduled, cancel_in_sqlx(&mut connection, name).await.map(drop)]
    })
}

/// What a worker and callers do, to be looked for later.
struct Changes {
    worker: PostgresStore,
    callers: PostgresStore,
    /// What was put, as the worker has read it, and nobody has changed.
    rows: Vec<Row>,
    new: Vec<String>,
    expected: (Rows, Letters),
    rounds: u64,
    settled: u64,
}

impl Changes {
    /// Puts far timeouts of these names.
    fn begin(url: &str, mut names: Vec<String>) -> Self {
        let mut worker = store(url);
        Store::lease(&mut worker, true, &[]).unwrap();
        let new = names.split_off(names.len() - NEW);
        let (rows, expected) = Default::default();
        let (callers, rounds, settled) = (store(url), 0, 0);
        let mut changes = Self { worker, callers, rows, new, expected, rounds, settled };
        let put = |name: &String| Change::put(name, FAR + fastrand::u64(..1000), (b"first", "one"));
        changes.rows = changes.put(names.iter().map(put).collect());
        fastrand::shuffle(&mut changes.rows);
        changes
    }

    fn put(&mut self, puts: Vec<Change>) -> Vec<Row> {
        let mut rows = Vec::new();
        while rows.len() < puts.len() {
            let done = self.callers.commit(&[], &puts[rows.len()..]).unwrap();
            rows.extend(done.changed.into_iter().map(|it| it.unwrap().row.unwrap()));
        }
        for row in &rows {
            let (payload, metadata) = (row.payload.to_vec(), row.metadata.to_string());
            let value = (row.deadline as i64, row.attempt as i32, payload, metadata);
            self.expected.0.insert(row.name.to_string(), value);
        }
        rows
    }

    /// Does each thing that may be done to a timeout.
    fn change(&mut self) {
        let mut next = || self.rows.pop().expect("there are enough");
        let [cancelled, moved, again] = [(); 3].map(|()| next());
        let [acked, retried, counted, dead] = [(); 4].map(|()| next());
        let cancels = [&cancelled, &again].map(|row| Change::cancel(&row.name));
        for changed in self.callers.commit(&[], &cancels).unwrap().changed {
            assert!(changed.unwrap().replaced.is_some(), "it was there");
        }
        self.expected.0.remove(&*cancelled.name);
        let new = self.new.pop().expect("there are enough");
        let names = [&moved.name, &again.name, &*new];
        let put = |name: &str| Change::put(name, FAR + 2_000 + self.rounds, (b"second", "two"));
        let puts = names.map(put).to_vec();
        self.put(puts);

        self.rounds += 1;
        let leases = Store::lease(&mut self.worker, true, &[]).unwrap();
        if leases.yielding.contains(&(MOVED as u32)) {
            Store::lease(&mut self.worker, true, &[MOVED as u32]).unwrap();
            return;
        }
        // It may have given it back, or its lease was over.
        let is_it = |lease: &Lease| lease.partition == MOVED as u32;
        let Some(lease) = leases.held.into_iter().find(is_it) else { return };
        let (at, died) = (FAR + 3_000 + self.rounds, 5_000 + self.rounds);
        let settlements = [
            (&acked, Then::Done),
            (&retried, Then::Again { at, attempt: 2 }),
            (&counted, Then::Counted { attempt: 3 }),
            (&dead, Then::Dead { at: died }),
        ]
        .map(|(row, then)| Settlement { held: Held::new(row, lease), then });
        let outcomes = self.worker.commit(&settlements, &[]).unwrap().outcomes;
        for outcome in &outcomes {
            assert!(matches!(outcome, Outcome::Settled(_)), "{outcome:?}");
        }
        let (rows, letters) = &mut self.expected;
        rows.remove(&*acked.name);
        rows.get_mut(&*counted.name).unwrap().1 = 3;
        let row = rows.get_mut(&*retried.name).unwrap();
        (row.0, row.1) = (at as i64, 2);
        let (deadline, attempt, payload, metadata) = rows.remove(&*dead.name).unwrap();
        letters.insert(dead.name.to_string(), (deadline, died as i64, attempt, payload, metadata));
        self.settled += 4;
    }
}

/// The server ends the connections of the mover again and again, in all its steps that tell how far
/// it is.
#[test]
fn what_changes_while_a_partition_is_copied_is_there_when_it_has_moved() {
    let Some(server) = Server::start() else { return };
    let [here, there] = fleet(&server);
    let (mut old, mut new) = (client(&here), client(&there));
    let names = names(&mut old, MOVED, 6_000);
    let mut changes = Changes::begin(&here, names);
    let (mut calls, mut cuts) = (0, 0);
    let mover = |url: &str| store(&format!("{url}?application_name=mover"));
    loop {
        let (mut from, mut to) = (mover(&here), mover(&there));
        let (since, cuts_before) = (calls, cuts);
        let moved = move_partition(&mut from, &mut to, MOVED as u32, |_| {
            calls += 1;
            if changes.rounds < CHANGES {
                changes.change();
            }
            // A little later each time.
            if cuts < CUTS && calls - since == cuts + 1 {
                cuts += 1;
                let side = if cuts % 2 == 0 { &mut old } else { &mut new };
                cut(side, "mover");
            }
        });
        match moved {
            Ok(_) => break,
            Err(error) => assert!(cuts_before < cuts, "{error}"),
        }
    }
    let Changes { rounds, settled, .. } = changes;
    println!("{rounds} rounds of changes, {settled} settled, {calls} calls, {cuts} cuts");
    assert!(1 < rounds && 1 < settled && 1 < cuts);
    assert_eq!(of(&mut new, MOVED), changes.expected);
    assert_eq!(of(&mut old, MOVED), Default::default());
}

/// Ends all connections of this name to a database.
fn cut(sql: &mut Client, application: &str) {
    let cut = "select pg_terminate_backend(pid, 60000) from pg_stat_activity
               where application_name = $1 and datname = current_database()";
    sql.query(cut, &[&application]).unwrap();
}

/// More change at once than are copied together.
#[test]
fn whatever_many_change_at_once_all_is_copied_before_the_move_takes_place() {
    let Some(server) = Server::start() else { return };
    let [here, there] = fleet(&server);
    let [mut old, mut new] = [&here, &there].map(|url| client(url));
    let all = names(&mut old, MOVED, 1_000);
    let put = "select tickwheel_schedule(name, now() + interval '1 hour', '') from unnest($1::text[]) name";
    old.execute(put, &[&all]).unwrap();
    let gone = &all[..900];
    let mut cancels = Some("select tickwheel_cancel(name) from unnest($1::text[]) name");
    move_partition(&mut store(&here), &mut store(&there), MOVED as u32, |copied| {
        if 0 < copied
            && let Some(cancel) = cancels.take()
        {
            old.execute(cancel, &[&gone]).unwrap();
        }
    })
    .unwrap();
    assert!(cancels.is_none(), "they were copied before");
    let left: Vec<String> = of(&mut new, MOVED).0.into_keys().collect();
    let mut expected = all[900..].to_vec();
    expected.sort();
    assert_eq!(left, expected);
}

#[test]
fn open_transactions_hold_up_a_move_and_no_other_caller() {
    let Some(server) = Server::start() else { return };
    let [here, there] = fleet(&server);
    let (mut old, mut new) = (client(&here), client(&there));
    let of_moved = names(&mut old, MOVED, 42);
    let [first, second, others @ ..] = &of_moved[..] else { panic!("enough names") };
    let stays = names(&mut old, STAYS, 40);
    // One is open before it begins, and one while it copies.
    let [mut lunch, mut dinner] = [first, second].map(|name| {
        let mut sql = client(&here);
        sql.batch_execute("begin").unwrap();
        (sql, name)
    });
    let put = |(sql, name): &mut (Client, &String)| {
        let put = "select tickwheel_schedule($1, now() + interval '1 h', 'eur 20')";
        sql.query_one(put, &[name]).unwrap();
    };
    put(&mut lunch);
    let mut waits = || {
        let waits = "select from pg_locks join pg_stat_activity using (pid)
                     where not granted and application_name = 'mover'";
        until("it waits", || !old.query(waits, &[]).unwrap().is_empty());
    };
    // None of them waits until the transaction ends: it ends after them.
    let mut callers = client(&here);
    callers.batch_execute("set statement_timeout = '60 s'").unwrap();
    let mut call = |names: &[String]| {
        waits();
        for name in names {
            let put = "select tickwheel_schedule($1, now() + interval '1 h', '')";
            callers.query_one(put, &[name]).unwrap();
        }
        waits();
    };
    thread::scope(|scope| {
        let (from, to) = (format!("{here}?application_name=mover"), &there);
        let (begun, has_begun) = mpsc::channel();
        let (go, goes) = mpsc::channel::<()>();
        let mover = scope.spawn(move || {
            let mut is_first = true;
            move_partition(&mut store(&from), &mut store(to), MOVED as u32, |_| {
                if std::mem::take(&mut is_first) {
                    begun.send(()).unwrap();
                    goes.recv().unwrap();
                }
            })
        });
        call(&others[..20]);
        call(&stays[..20]);
        lunch.0.batch_execute("commit").unwrap();
        has_begun.recv_timeout(LONG).unwrap();
        put(&mut dinner);
        go.send(()).unwrap();
        call(&others[20..]);
        call(&stays[20..]);
        assert!(!mover.is_finished());
        dinner.0.batch_execute("commit").unwrap();
        mover.join().unwrap().unwrap();
    });
    let there: HashSet<String> = of(&mut new, MOVED).0.into_keys().collect();
    assert_eq!(there, of_moved.into_iter().collect());
    assert_eq!(of(&mut client(&here), STAYS).0.len(), 40);
}

#[test]
fn a_trigger_that_changes_or_keeps_what_is_moved_is_an_error_that_names_the_database() {
    let Some(server) = Server::start() else { return };
    let [here, there] = fleet(&server);
    let (mut old, mut new) = (client(&here), client(&there));
    let name = &names(&mut old, MOVED, 1)[0];
    let put = "select tickwheel_schedule($1, now() + interval '1 h', 'eur 20')";
    old.query_one(put, &[name]).unwrap();
    let (before, _) = of(&mut old, MOVED);
    let refused = |at: &mut Client, when: &str, body: &str, url: &str, why: &str| {
        let trigger = format!(
            "create or replace function test() returns trigger language plpgsql as $$ {body} $$;
             create trigger test before {when} on tickwheel_due for each row
               execute function test()"
        );
        at.batch_execute(&trigger).unwrap();
        let moved = move_partition(&mut store(&here), &mut store(&there), MOVED as u32, |_| ());
        let error = moved.unwrap_err().to_string();
        assert!(error.contains(place(url)) && error.contains(why), "{error}");
        at.batch_execute("drop trigger test on tickwheel_due").unwrap();
    };
    let sooner = "begin new.deadline := new.deadline - 60000; return new; end";
    refused(&mut new, "insert", sooner, &there, "changed");
    let empty = "begin new.payload := ''; return new; end";
    refused(&mut new, "insert", empty, &there, "changed");
    let other = "begin new.metadata := 'another'; return new; end";
    refused(&mut new, "insert", other, &there, "changed");
    let fails = "begin raise exception 'not today'; end";
    refused(&mut new, "insert", fails, &there, "not today");
    assert_eq!(of(&mut old, MOVED).0, before);
    refused(&mut old, "delete", "begin return null; end", &here, "kept");
    assert_eq!(of(&mut new, MOVED).0, before);
    // The next one goes on.
    move_partition(&mut store(&here), &mut store(&there), MOVED as u32, |_| ()).unwrap();
    assert_eq!(of(&mut old, MOVED).0.len(), 0);
}

/// As while it is moved to a database that is far.
#[test]
fn a_caller_with_less_patience_than_a_move_is_told_where_the_name_goes() {
    let Some(server) = Server::start() else { return };
    let [here, there] = fleet(&server);
    let mut sql = client(&here);
    let name = &names(&mut sql, MOVED, 1)[0];
    let timer = worker(&here, LEASE);
    timer.schedule(name, now() + HOUR, b"").unwrap().wait().unwrap();
    let mut is_abandoned = false;
    let error = move_partition(&mut store(&here), &mut store(&there), MOVED as u32, |_| {
        if std::mem::replace(&mut is_abandoned, true) {
            return;
        }
        let lock = format!(
            "begin; select pg_advisory_xact_lock(
               7463813 # 'tickwheel_partition'::regclass::oid::int, {MOVED})"
        );
        sql.batch_execute(&lock).unwrap();
        for answered in [
            timer.schedule(name, now() + HOUR, b"").unwrap().wait().map(drop),
            timer.cancel(name).unwrap().wait().map(drop),
        ] {
            match answered {
                Err(Error::Elsewhere { place: told, .. }) => assert_eq!(told, place(&there)),
                answered => panic!("{answered:?}"),
            }
        }
        sql.batch_execute("rollback").unwrap();
        assert!(abandon_move(&mut store(&here), MOVED as u32).unwrap());
    });
    error.unwrap_err();
    assert_eq!(timer.cancel(name).unwrap().wait().unwrap(), Cancelled::Cancelled);
    timer.close().unwrap();
}

#[test]
fn a_timeout_that_is_put_off_again_and_again_does_not_keep_a_partition_from_moving() {
    let Some(server) = Server::start() else { return };
    let [here, there] = fleet(&server);
    let mut sql = client(&here);
    let names = names(&mut sql, MOVED, 1_100);
    let put = "select tickwheel_schedule(name, now() + interval '1 h', '')
               from unnest($1::text[]) name";
    sql.execute(put, &[&names]).unwrap();
    let mut times = 0;
    move_partition(&mut store(&here), &mut store(&there), MOVED as u32, |_| {
        times += 1;
        assert!(times < 100, "it goes on and on");
        let put_off = "select tickwheel_schedule($1, to_timestamp(4000000000 + $2::int), '')";
        sql.query_one(put_off, &[&names[0], &times]).unwrap();
    })
    .unwrap();
    let (rows, _) = of(&mut client(&there), MOVED);
    assert_eq!(
        (rows.len(), rows[&names[0]].0),
        (1_100, (4_000_000_000 + i64::from(times)) * 1_000)
    );
}

#[test]
fn a_move_waits_while_somebody_else_has_locked_what_it_needs() {
    let Some(server) = Server::start() else { return };
    let mut urls = fleet::<2>(&server);
    let put = "select tickwheel_schedule(name, now() + interval '1 h', '')
               from unnest($1::text[]) name";
    let mut sql = client(&urls[0]);
    let names = names(&mut sql, MOVED, 3);
    sql.execute(put, &[&names]).unwrap();
    for (is_new, table) in [
        (true, "tickwheel_partition"),
        (true, "tickwheel_due"),
        (true, "tickwheel_dead"),
        (false, "tickwheel_changed"),
        (false, "tickwheel_dead"),
    ] {
        let mut lock = client(&urls[usize::from(is_new)]);
        lock.batch_execute(&format!("begin; lock table {table}")).unwrap();
        thread::scope(|scope| {
            // Longer than it waits for any lock.
            scope.spawn(|| lock.batch_execute("select pg_sleep(0.5); commit").unwrap());
            move_partition(&mut store(&urls[0]), &mut store(&urls[1]), MOVED as u32, |_| ())
                .unwrap();
        });
        urls.reverse();
    }
}

/// What it waits for is looked at in the namespace too.
#[test]
fn a_move_from_a_namespace_waits_for_an_open_transaction() {
    let Some(server) = Server::start() else { return };
    let url = server.database();
    let [here, there] = ["here", "there"].map(|namespace| format!("{url}?namespace={namespace}"));
    join_fleet(&mut store(&there), &mut store(&here)).unwrap();
    let mut open = client(&url);
    let put = "begin; select here.tickwheel_schedule('a', now() + interval '1 h', '')";
    open.batch_execute(put).unwrap();
    thread::scope(|scope| {
        let from = format!("{here}&application_name=mover");
        let mover =
            scope.spawn(move || move_partition(&mut store(&from), &mut store(&there), 0, |_| ()));
        let mut sql = client(&url);
        let waits = "select from pg_locks join pg_stat_activity using (pid)
             where not granted and application_name = 'mover'";
        // More than once.
        for _ in 0..2 {
            until("it waits", || mover.is_finished() || !sql.query(waits, &[]).unwrap().is_empty());
            until("its turn is over", || sql.query(waits, &[]).unwrap().is_empty());
        }
        assert!(!mover.is_finished(), "it did not wait");
        open.batch_execute("commit").unwrap();
        mover.join().unwrap().unwrap();
    });
}

#[test]
fn namespaces_of_one_database_do_not_hold_up_each_other() {
    let Some(server) = Server::start() else { return };
    let url = server.database();
    let urls = ["one", "two", "apart"].map(|namespace| format!("{url}?namespace={namespace}"));
    let [mut one, mut two, _apart] = urls.each_ref().map(|url| store(url));
    join_fleet(&mut two, &mut one).unwrap();
    // A fleet of its own, with a transaction that is open.
    join_fleet(&mut store(&format!("{url}?namespace=more")), &mut store(&urls[2])).unwrap();
    let mut open = client(&url);
    let name = &names(&mut open, MOVED, 1)[0];
    open.batch_execute("begin").unwrap();
    open.query_one("select apart.tickwheel_schedule($1, now() + interval '1 h', '')", &[name])
        .unwrap();
    move_partition(&mut one, &mut two, MOVED as u32, |_| ()).unwrap();
    open.batch_execute("commit").unwrap();
}

/// A worker with something in the hands of a consumer gives its partition back when that is settled.
#[test]
fn a_partition_leaves_its_worker_when_consumers_have_settled_what_they_hold() {
    let Some(server) = Server::start() else { return };
    let [here, there] = fleet(&server);
    let mut sql = client(&here);
    let names = names(&mut sql, MOVED, 2);
    let workers = [&here, &there].map(|url| worker(url, LEASE * 2));
    workers[0].schedule(&names[0], now(), b"").unwrap().wait().unwrap();
    let due = take(&workers[0]);
    let (from, to) = (here.clone(), there.clone());
    let mover = thread::spawn(move || {
        move_partition(&mut store(&from), &mut store(&to), MOVED as u32, |_| ())
    });
    until("it is to be given back", || {
        let yields = "select yields is not null, state from tickwheel_partition
                      where partition = $1";
        let row = sql.query_one(yields, &[&MOVED]).unwrap();
        row.get(0)
    });
    // Callers go on.
    workers[0].schedule(&names[1], now(), b"").unwrap().wait().unwrap();
    assert!(!mover.is_finished());
    due.ack();
    mover.join().unwrap().unwrap();
    let mut left: HashSet<&str> = HashSet::from([&*names[1]]);
    until("the other comes, at either", || {
        // Before it was asked for the partition, the first may have read it.
        for due in workers.iter().filter_map(|worker| worker.try_recv().unwrap()) {
            assert!(left.remove(due.name()), "{due:?}");
            due.ack();
        }
        left.is_empty()
    });
    until("all is acked", || workers.iter().all(|worker| worker.is_empty().unwrap()));
    for worker in workers {
        assert_eq!(worker.stats().fenced, 0);
        worker.close().unwrap();
    }
}

#[test]
fn a_move_that_is_abandoned_leaves_the_partition_and_another_begins_anew() {
    let Some(server) = Server::start() else { return };
    let [here, there, third] = fleet(&server);
    let (mut old, mut new) = (client(&here), client(&there));
    let names = names(&mut old, MOVED, 2_000);
    let put = "select tickwheel_schedule(name, now() + interval '1 h', '')
               from unnest($1::text[]) name";
    old.execute(put, &[&names]).unwrap();
    let move_to = |to: &str, progress: &mut dyn FnMut(u64)| {
        move_partition(&mut store(&here), &mut store(to), MOVED as u32, progress)
    };
    let mut is_abandoned = false;
    let error = move_to(&there, &mut |_| {
        if !std::mem::replace(&mut is_abandoned, true) {
            assert!(abandon_move(&mut store(&here), MOVED as u32).unwrap());
        }
    });
    let error = error.unwrap_err().to_string();
    assert!(error.contains("abandoned"), "{error}");
    assert!(!abandon_move(&mut store(&here), MOVED as u32).unwrap(), "it is not on its way");
    assert_eq!(of(&mut old, MOVED).0.len(), names.len());
    // What was copied comes nowhere, and is not in the way of another move.
    let worker = worker(&there, LEASE);
    let fresh = &names[0];
    assert!(matches!(
        worker.schedule(fresh, now(), b"").unwrap().wait(),
        Err(Error::Elsewhere { .. })
    ));
    old.execute("select tickwheel_cancel(name) from unnest($1::text[]) name", &[&&names[..7]])
        .unwrap();
    move_to(&third, &mut |_| ()).unwrap();
    assert_eq!(of(&mut client(&third), MOVED).0.len(), names.len() - 7);
    move_partition(&mut store(&third), &mut store(&there), MOVED as u32, |_| ()).unwrap();
    assert_eq!(of(&mut new, MOVED).0.len(), names.len() - 7);
    worker.close().unwrap();
}

#[test]
fn what_was_noted_for_a_move_that_was_abandoned_is_removed_in_parts_while_callers_go_on() {
    let Some(server) = Server::start() else { return };
    let [here, there] = fleet(&server);
    let (mut old, mut new) = (client(&here), client(&there));
    let names = names(&mut old, MOVED, 300);
    let put = "select tickwheel_schedule(name, now() + interval '1 h', $2)
               from unnest($1::text[]) name";
    old.execute(put, &[&names, &&b"put"[..]]).unwrap();
    old.batch_execute(
        "create function refuse() returns trigger language plpgsql as $$ begin
           if 30000 < (select count(*) from gone) then raise exception 'too many at once'; end if;
           if exists (select from pg_locks where pid = pg_backend_pid()
               and relation = 'tickwheel_due'::regclass and mode = 'ShareRowExclusiveLock') then
             raise exception 'callers wait';
           end if;
           return null; end $$;
         create trigger refuse after delete on tickwheel_changed referencing old table as gone
           for each statement execute function refuse()",
    )
    .unwrap();
    let many = "insert into tickwheel_changed select partition, moves, n::text
                from tickwheel_partition, generate_series(1, 60000) n where partition = $1";
    let notes = |sql: &mut Client| {
        let count = sql.query_one("select count(*) from tickwheel_changed", &[]).unwrap();
        count.get::<_, i64>(0)
    };
    let mut calls = 0;
    let moved = move_partition(&mut store(&here), &mut store(&there), MOVED as u32, |_| {
        calls += 1;
        if calls == 1 {
            old.execute(many, &[&MOVED]).unwrap();
            assert!(abandon_move(&mut store(&here), MOVED as u32).unwrap());
        }
    });
    let error = moved.unwrap_err().to_string();
    assert!(error.contains("abandoned"), "{error}");
    assert_eq!(notes(&mut old), 0);
    // What callers had noted and committed late, and what somebody abandons meanwhile.
    old.execute(many, &[&STAYS]).unwrap();
    let mut calls = 0;
    move_partition(&mut store(&here), &mut store(&there), MOVED as u32, |_| {
        calls += 1;
        if calls == 1 {
            assert_eq!(notes(&mut old), 0);
            old.execute(many, &[&STAYS]).unwrap();
            old.execute(put, &[&&names[..1], &&b"changed"[..]]).unwrap();
            assert!(!abandon_move(&mut store(&here), STAYS as u32).unwrap());
            assert_eq!(notes(&mut old), 1, "what the move needs stays");
        }
    })
    .unwrap();
    assert_eq!(of(&mut new, MOVED).0[&names[0]].2, b"changed");
    assert_eq!(notes(&mut old), 0);
}

#[test]
fn a_move_is_abandoned_though_what_was_noted_for_it_cannot_be_removed() {
    let Some(server) = Server::start() else { return };
    let [here, there] = fleet(&server);
    let mut old = client(&here);
    let put = "select tickwheel_schedule($1, now() + interval '1 h', '')";
    let name = &names(&mut old, MOVED, 1)[0];
    old.execute(put, &[name]).unwrap();
    let refuse = "create function refuse() returns trigger language plpgsql as $$ begin
                    raise exception 'it stays'; end $$;
                  create trigger refuse before delete on tickwheel_changed
                    for each statement execute function refuse()";
    let move_it = |progress: &mut dyn FnMut(u64)| {
        move_partition(&mut store(&here), &mut store(&there), MOVED as u32, progress)
    };
    let mut answers = Vec::new();
    let moved = move_it(&mut |_| {
        if answers.is_empty() {
            old.execute(put, &[name]).unwrap();
            old.batch_execute(refuse).unwrap();
            answers.push(abandon_move(&mut store(&here), MOVED as u32).unwrap());
        }
    });
    moved.unwrap_err();
    assert_eq!(answers, [true]);
    let notes = "select count(*) from tickwheel_changed";
    assert_eq!(old.query_one(notes, &[]).unwrap().get::<_, i64>(0), 1);
    assert_eq!(store(&here).homes().unwrap().partitions[MOVED as usize].state, HomeState::Here);
    old.batch_execute("drop trigger refuse on tickwheel_changed").unwrap();
    move_it(&mut |_| ()).unwrap();
    assert_eq!(old.query_one(notes, &[]).unwrap().get::<_, i64>(0), 0, "the next removes it");
    assert_eq!(of(&mut client(&there), MOVED).0.len(), 1);
}

/// However large they are, so few bytes are copied at once that callers and the other database do
/// not wait for long.
#[test]
fn of_large_timeouts_and_dead_letters_that_change_while_they_move_few_are_copied_at_once() {
    let Some(server) = Server::start() else { return };
    let [here, there] = fleet(&server);
    let (mut old, mut new) = (client(&here), client(&there));
    let names = names(&mut old, MOVED, 200);
    let put = "select tickwheel_schedule(name, now() + interval '1 h', $2)
               from unnest($1::text[]) name";
    old.execute(put, &[&names, &&b""[..]]).unwrap();
    let refuse = |table: &str, event: &str| {
        format!(
            "create trigger few_{event} after {event} on {table} referencing new table as copied
               for each statement execute function few()"
        )
    };
    new.batch_execute(&format!(
        "create function few() returns trigger language plpgsql as $$ begin
           if 1200000 < (select sum(octet_length(payload)) from copied) then
             raise exception 'too much at once'; end if;
           return null; end $$;
         {}; {}; {}",
        refuse("tickwheel_due", "insert"),
        refuse("tickwheel_due", "update"),
        refuse("tickwheel_dead", "insert"),
    ))
    .unwrap();
    let large = vec![7_u8; 60_000];
    let mut calls = 0;
    let moved = move_partition(&mut store(&here), &mut store(&there), MOVED as u32, |_| {
        calls += 1;
        if calls == 1 {
            old.execute(put, &[&names, &&*large]).unwrap();
            old.batch_execute("set tickwheel.format = 2").unwrap();
            let die = "insert into tickwheel_dead select name, 1000, 2000, 3, $2
                       from unnest($1::text[]) name";
            old.execute(die, &[&names, &&*large]).unwrap();
        }
    });
    assert_eq!(moved.unwrap().dead, 200);
    let (rows, letters) = of(&mut new, MOVED);
    assert!(rows.len() == 200 && rows.values().all(|row| row.2 == large));
    assert!(letters.len() == 200 && letters.values().all(|letter| letter.3 == large));
}

#[test]
fn join_refuses_what_is_not_new_or_not_ready_and_tells_why() {
    let Some(server) = Server::start() else { return };
    let [member, joined] = fleet(&server);
    let refused = |new: &str, member: &str, why: &str| {
        let error = join_fleet(&mut store(new), &mut store(member)).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    };
    refused(&member, &member, "one database");
    refused(&member, &joined, "of a fleet already");
    // It was cut off before its answer.
    join_fleet(&mut store(&joined), &mut store(&member)).unwrap();
    let [_, other_joined] = fleet(&server);
    refused(&other_joined, &member, "of a fleet already");
    refused(&server.database_of("LATIN1"), &member, "UTF8");
    let alone = server.tables();
    let mut sql = client(&alone);
    sql.batch_execute(KNOWS_FLEETS).unwrap();
    for (put, remove, why) in [
        ("select tickwheel_schedule('a', now(), '')", "delete from tickwheel_due", "timeouts"),
        (
            "insert into tickwheel_dead values ('a', 1, 2, 3, '')",
            "delete from tickwheel_dead",
            "dead letters",
        ),
        (OLDER, "delete from tickwheel_worker", "workers"),
    ] {
        sql.batch_execute(put).unwrap();
        refused(&alone, &member, why);
        sql.batch_execute(remove).unwrap();
    }
    // A worker that knows nothing of fleets would not see what is refused.
    let old = server.tables();
    let mut older = client(&old);
    older.batch_execute(OLDER).unwrap();
    refused(&alone, &old, "older version");
    older.batch_execute("delete from tickwheel_worker").unwrap();
    join_fleet(&mut store(&alone), &mut store(&old)).unwrap();
    // None comes back.
    let error = older.batch_execute(OLDER).unwrap_err();
    let broken = error.as_db_error().unwrap().constraint();
    assert_eq!(broken, Some("tickwheel_worker_knows_fleets"), "{error}");
}

#[test]
fn a_database_whose_join_was_refused_and_that_joined_another_fleet_is_of_that_alone() {
    let Some(server) = Server::start() else { return };
    let [new, first, second] = [(); 3].map(|()| server.tables());
    let mut sql = client(&new);
    sql.batch_execute("select tickwheel_schedule('a', now(), '')").unwrap();
    join_fleet(&mut store(&new), &mut store(&first)).unwrap_err();
    sql.batch_execute(KNOWS_FLEETS).unwrap();
    sql.batch_execute("select tickwheel_cancel('a')").unwrap();
    join_fleet(&mut store(&new), &mut store(&second)).unwrap();
    let error = join_fleet(&mut store(&new), &mut store(&first)).unwrap_err().to_string();
    assert!(error.contains("of a fleet already"), "{error}");
}

#[test]
fn two_that_join_each_other_at_once_do_not_both_give_all_away() {
    let Some(server) = Server::start() else { return };
    for _ in 0..4 {
        let [one, two] = [(); 2].map(|()| server.tables());
        let join = |new: &str, member: &str| join_fleet(&mut store(new), &mut store(member));
        let joined = thread::scope(|scope| {
            let other = scope.spawn(|| join(&two, &one));
            [join(&one, &two), other.join().unwrap()]
        });
        let homes = [&one, &two].map(|url| store(url).homes().unwrap());
        let here = homes.iter().flat_map(|homes| &homes.partitions);
        assert_eq!(here.filter(|home| home.state.is_here()).count(), 64, "{joined:?}");
    }
}

/// Each may begin as soon as the others have begun, or only when they have ended.
#[test]
fn of_three_that_join_each_other_in_a_ring_not_all_give_all_away() {
    let Some(server) = Server::start() else { return };
    for _ in 0..3 {
        let urls = [(); 3].map(|()| server.tables());
        // So that all have looked before one gives anything away.
        let mut locks = urls.each_ref().map(|url| client(url));
        for lock in &mut locks {
            lock.batch_execute("begin; lock table tickwheel_worker").unwrap();
        }
        thread::scope(|scope| {
            for n in 0..3 {
                let [new, member] = [&urls[n], &urls[(n + 1) % 3]];
                scope.spawn(|| drop(join_fleet(&mut store(new), &mut store(member))));
            }
            fastrand::shuffle(&mut locks);
            for lock in &mut locks {
                thread::sleep(Duration::from_millis(fastrand::u64(0..200)));
                lock.batch_execute("rollback").unwrap();
            }
        });
        let homes = urls.each_ref().map(|url| store(url).homes().unwrap());
        let mut here = homes.iter().flat_map(|homes| &homes.partitions);
        assert!(here.any(|home| home.state.is_here()), "{homes:?}");
    }
}

/// The move is refused, and all stays as it is.
#[test]
fn a_partition_is_moved_only_between_databases_of_one_fleet_and_from_where_it_is() {
    let Some(server) = Server::start() else { return };
    let ([one, two, three], alone) = (fleet(&server), server.tables());
    let move_to = |from: &str, to: &str, partition: i32| {
        move_partition(&mut store(from), &mut store(to), partition as u32, |_| ())
    };
    let refused = |from: &str, to: &str, why: &str| {
        let error = move_to(from, to, MOVED).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    };
    refused(&one, &one, "one database");
    refused(&one, &alone, "join the fleet");
    refused(&alone, &one, "join the fleet");
    refused(&two, &three, place(&one));
    assert!(move_to(&one, &two, 64).unwrap_err().to_string().contains("63"));
    move_to(&one, &two, MOVED).unwrap();
    refused(&one, &three, place(&two));
    // All the way round.
    move_to(&two, &three, MOVED).unwrap();
    move_to(&three, &one, MOVED).unwrap();
    let home = &store(&one).homes().unwrap().partitions[MOVED as usize];
    assert!(matches!(home.state, HomeState::Here));
}

#[test]
fn dead_letters_that_a_trigger_skips_stay_where_they_are_and_the_move_ends() {
    let Some(server) = Server::start() else { return };
    // All at once, and in parts.
    for size in [1, 60_000] {
        let [here, there] = fleet(&server);
        let (mut old, mut new) = (client(&here), client(&there));
        let names = names(&mut old, MOVED, 30);
        old.batch_execute("set tickwheel.format = 2").unwrap();
        let put = "insert into tickwheel_dead
                   select name, 1000, 2000, 3, $2 from unnest($1::text[]) name";
        old.execute(put, &[&names, &vec![7_u8; size]]).unwrap();
        new.batch_execute(
            "create function skip() returns trigger language plpgsql as
               $$ begin return null; end $$;
             create trigger skip before insert on tickwheel_dead
               for each row execute function skip()",
        )
        .unwrap();
        let moved = move_partition(&mut store(&here), &mut store(&there), MOVED as u32, |_| ());
        let error = moved.unwrap_err().to_string();
        assert!(error.contains("a trigger has skipped"), "{error}");
        assert_eq!(of(&mut old, MOVED).1.len(), 30);
    }
}

/// A worker of the version before, by its statement.
const OLDER: &str = "insert into tickwheel_worker
     values (1, clock_timestamp() + 3600 * interval '1 second', true, 3600 * interval '1 second')";

/// Lets a connection change the tables of a fleet by hand.
const KNOWS_FLEETS: &str = "set tickwheel.format = 2";

/// The partition that is moved, and one that stays.
const MOVED: i32 = 17;
const STAYS: i32 = 40;

/// Long enough for a busy machine.
const LEASE: Duration = Duration::from_secs(10);

/// Milliseconds since 1970 that do not come soon.
const FAR: u64 = 4_000_000_000_000;

/// How often all is changed at most, and how many names are new then.
const CHANGES: u64 = 100;
const NEW: usize = 200;

/// How often the connections of a mover are cut.
const CUTS: u64 = 6;
