//! What a database refuses or changes by rules of its own: constraints, triggers, its encoding.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tickwheel_durable::store::{Change, Limit, Position, Store};
use tickwheel_durable::{Cancelled, Due, DurableTimer, PostgresStore, Scheduled, schedule_in};

use super::live::{schedule, take_all};
use super::{HOUR, LONG, STEADY, now, received, take, until, worker};
use crate::server::{Server, client};

/// A worker with this lease, and what it tells of errors.
fn told_worker(url: &str, lease: Duration) -> (DurableTimer, Arc<Mutex<Vec<String>>>) {
    let told = Arc::new(Mutex::new(Vec::new()));
    let heard = told.clone();
    let store = PostgresStore::connect(url).unwrap().lease(lease);
    let timer = DurableTimer::builder()
        .on_error(move |error| heard.lock().unwrap().push(error.to_string()))
        .open_store(store)
        .unwrap();
    (received(timer), told)
}

#[test]
fn what_the_database_refuses_to_settle_holds_up_its_name_alone_and_is_told() {
    let Some(server) = Server::start() else { return };
    let audit = |when: &str| {
        format!(
            "create table audit (name text references tickwheel_due {when});
             insert into audit values ('bad 0'), ('bad 1')"
        )
    };
    let trigger = |does: &str| {
        format!(
            "create function refuse() returns trigger language plpgsql as
               $$ begin {does}; end $$;
             create trigger refuse before delete or update on tickwheel_due for each row
               when (old.name like 'bad %') execute function refuse()"
        )
    };
    let no_trigger = "drop trigger refuse on tickwheel_due";
    for (refuse, allow, why) in [
        (audit(""), "drop table audit", "foreign key"),
        (audit("deferrable initially deferred"), "drop table audit", "foreign key"),
        (trigger("raise exception 'not today'"), no_trigger, "not today"),
        // As if it were to be tried again.
        (trigger("raise 'not today' using errcode = '40001'"), no_trigger, "not today"),
    ] {
        let url = server.database();
        let (timer, told) = told_worker(&url, STEADY);
        schedule(&timer, "good", 100);
        schedule(&timer, "bad", 2);
        let held: Vec<Due> = (0..102).map(|_| take(&timer)).collect();
        let mut sql = client(&url);
        sql.batch_execute(&refuse).unwrap();
        for due in held {
            // An ack and a retry.
            if due.name() == "bad 1" { due.retry(Duration::ZERO) } else { due.ack() }
        }
        until("all others are acked", || timer.stats().acked == 100);
        take_all(&[&timer], schedule(&timer, "later", 20));
        let far = timer.schedule("far", now() + HOUR, b"").unwrap();
        assert_eq!(far.wait().unwrap(), Scheduled::New);
        assert_eq!(timer.cancel("far").unwrap().wait().unwrap(), Cancelled::Cancelled);
        for name in ["bad 0", "bad 1"] {
            // No foreign key minds a retry.
            let is_told = |told: &String| told.contains(name) && told.contains(why);
            until(&format!("{name} is told: {told:?}"), || {
                why == "foreign key" && name == "bad 1" || told.lock().unwrap().iter().any(is_told)
            });
        }
        assert_eq!((timer.stats().fenced, timer.stats().errors), (0, 0), "{why}");
        sql.batch_execute(allow).unwrap();
        // What was retried may have come already, and its ack was refused then.
        until("nothing is left", || {
            while let Some(due) = timer.try_recv().unwrap() {
                due.ack();
            }
            timer.is_empty().unwrap()
        });
        timer.close().unwrap();
    }
}

#[test]
fn acks_that_take_longer_than_a_call_may_are_settled_by_and_by_also_by_a_timer_that_closes() {
    let Some(server) = Server::start() else { return };
    let url = server.database();
    let (timer, told) = told_worker(&url, Duration::from_secs(10));
    let held = |name: &str, count: u64| -> Vec<Due> {
        schedule(&timer, name, count);
        (0..count).map(|_| take(&timer)).collect()
    };
    let all = [held("slow", 300), held("stuck", 1)];
    let mut sql = client(&url);
    sql.batch_execute(
        "create function slow() returns trigger language plpgsql as $$ begin
           perform pg_sleep(case when old.name like 'stuck %' then 9 else 0.01 end);
           return old;
         end $$;
         create trigger slow before delete on tickwheel_due for each row
           when (old.name like 's%') execute function slow()",
    )
    .unwrap();
    all.into_iter().flatten().for_each(Due::ack);
    until("all others are acked", || timer.stats().acked == 300);
    take_all(&[&timer], schedule(&timer, "later", 20));
    let is_told = |told: &String| told.contains("stuck 0") && told.contains("timeout");
    until("it is told", || told.lock().unwrap().iter().any(is_told));
    assert_eq!(timer.cancel("stuck 1").unwrap().wait().unwrap(), Cancelled::Unknown);
    sql.batch_execute("alter table tickwheel_due disable trigger slow").unwrap();
    until("nothing is left", || timer.is_empty().unwrap());

    let all = held("slow again", 60);
    sql.batch_execute("alter table tickwheel_due enable trigger slow").unwrap();
    all.into_iter().for_each(Due::ack);
    timer.close().unwrap();
    let left = "select count(*) from tickwheel_due";
    assert_eq!(sql.query_one(left, &[]).unwrap().get::<_, i64>(0), 0);
}

#[test]
fn a_timer_that_closes_ends_whatever_a_trigger_takes_and_says_how_many_come_again() {
    let Some(server) = Server::start() else { return };
    let url = server.database();
    let mut sql = client(&url);
    for closes in [true, false] {
        let (timer, _) = told_worker(&url, Duration::from_secs(6));
        schedule(&timer, &format!("stuck {closes}"), 300);
        let held: Vec<Due> = (0..300).map(|_| take(&timer)).collect();
        let slow = "create function slow() returns trigger language plpgsql as
                      'begin perform pg_sleep(9); return old; end';
                    create trigger slow before delete on tickwheel_due for each row
                      execute function slow()";
        sql.batch_execute(slow).unwrap();
        held.into_iter().for_each(Due::ack);
        let began = Instant::now();
        if closes {
            let error = timer.close().unwrap_err().to_string();
            assert!(error.contains("settle 300 timeouts, which come again"), "{error}");
        } else {
            drop(timer);
        }
        let took = began.elapsed();
        assert!(took < LONG / 5, "{took:?}");
        let left = sql.query_one("select count(*) from tickwheel_due", &[]).unwrap();
        assert_eq!(left.get::<_, i64>(0), 300);
        let clean = "drop function slow cascade; delete from tickwheel_due";
        sql.batch_execute(clean).unwrap();
    }
}

/// Whatever the lease, because all others wait for it meanwhile.
#[test]
fn a_put_that_takes_long_is_an_error_to_its_caller_and_in_a_transaction_of_his_it_is_none() {
    let Some(server) = Server::start() else { return };
    let url = server.tables();
    let mut other = client(&url);
    other
        .batch_execute(
            "create function slow() returns trigger language plpgsql as
               'begin perform pg_sleep(1.5); return new; end';
             create trigger slow before insert on tickwheel_due for each row
               when (new.name like 'slow%') execute function slow()",
        )
        .unwrap();
    let mut store = PostgresStore::connect(&url).unwrap().lease(HOUR);
    // As a timer does first.
    Store::lease(&mut store, false, &[]).unwrap();
    let puts = ["first", "slow", "last"].map(|name| Change::put(name, 1 << 41, b""));
    // The last may be left for the next call.
    let mut left = &puts[..];
    while !left.is_empty() {
        let changed = store.commit(&[], left).unwrap().changed;
        for (put, changed) in left.iter().zip(&changed) {
            let error = changed.as_ref().err().map(ToString::to_string);
            let is_told = |error: String| error.contains("in a transaction of yours it has more");
            assert_eq!(error.is_some_and(is_told), &*put.name == "slow", "{put:?}, {changed:?}");
        }
        left = &left[changed.len()..];
    }
    let mut transaction = other.transaction().unwrap();
    schedule_in(&mut transaction, "slow", now(), b"").unwrap();
    transaction.commit().unwrap();
    assert_eq!(store.count().unwrap(), 3);
}

#[test]
fn a_put_that_a_trigger_changes_fails_alone() {
    let Some(server) = Server::start() else { return };
    let url = server.database();
    let timer = worker(&url, STEADY);
    let mut other = client(&url);
    other
        .batch_execute(
            "create function change() returns trigger language plpgsql as $$ begin
               new.name := replace(new.name, 'NAME', 'name');
               if new.name = 'deadline' then new.deadline := new.deadline + 3600000; end if;
               if new.name = 'payload' then new.payload := 'another'; end if;
               if new.name = 'metadata' then new.metadata := 'another'; end if;
               return new;
             end $$;
             create trigger change before insert on tickwheel_due for each row
               execute function change()",
        )
        .unwrap();
    let names = ["first", "NAME", "good 1", "deadline", "payload", "metadata", "good 2"];
    let commits = names.map(|name| timer.schedule(name, now() + HOUR, b"one").unwrap());
    let puts = commits.map(|commit| commit.wait().is_ok());
    assert_eq!(puts, [true, false, true, false, false, false, true]);
    assert_eq!((timer.stats().errors, timer.len().unwrap()), (0, 3));
    for name in ["NAME", "deadline", "payload", "metadata"] {
        let put = format!("select tickwheel_schedule('{name}', now(), '')");
        let error = other.batch_execute(&put).unwrap_err();
        let error = error.as_db_error().unwrap().message();
        assert!(error.contains("a trigger"), "{error}");
    }
}

/// As an operator may, who wants it now.
#[test]
fn a_deadline_that_is_updated_in_the_table_is_seen_at_once() {
    let Some(server) = Server::start() else { return };
    let url = server.database();
    let timer = worker(&url, Duration::from_secs(10));
    take_all(&[&timer], schedule(&timer, "first", 20));
    // Of most partitions, of which one a minute is read again without a reason.
    let names: HashSet<String> = (0..200).map(|n| format!("{n}")).collect();
    let far = now() + HOUR;
    let commits: Vec<_> =
        names.iter().map(|name| timer.schedule(name, far, b"").unwrap()).collect();
    assert!(commits.into_iter().all(|commit| commit.wait().is_ok()));
    client(&url).batch_execute("update tickwheel_due set deadline = 1").unwrap();
    take_all(&[&timer], names);
    timer.close().unwrap();
}

#[test]
fn a_lease_that_somebody_has_locked_is_renewed_by_another_row() {
    let Some(server) = Server::start() else { return };
    let url = server.database();
    // If the lease of one were not renewed, the other would take its partitions.
    let timers = [(); 2].map(|()| worker(&url, Duration::from_secs(20)));
    let shares = || timers.each_ref().map(|timer| timer.stats().partitions);
    until("they share all", || shares() == [32; 2]);
    let mut other = client(&url);
    let epochs = "select sum(epoch)::bigint from tickwheel_partition";
    let before: i64 = other.query_one(epochs, &[]).unwrap().get(0);
    // And one of the time before the clock was set back, which is to be removed.
    let ahead = "insert into tickwheel_worker
                 values (99, clock_timestamp() + interval '1 h', false, '100 ms')";
    other.batch_execute(ahead).unwrap();
    let mut lunch = other.transaction().unwrap();
    lunch.execute("select from tickwheel_worker for update", &[]).unwrap();
    // Longer than the lease.
    for round in 0..42 {
        let names = schedule(&timers[0], &format!("{round}"), 20);
        take_all(&timers.each_ref(), names);
        std::thread::sleep(Duration::from_millis(500));
    }
    let after: i64 = lunch.query_one(epochs, &[]).unwrap().get(0);
    assert_eq!((after, shares()), (before, [32; 2]), "each has kept its own");
    lunch.rollback().unwrap();
    for timer in timers {
        timer.close().unwrap();
    }
}

#[test]
fn a_list_goes_on_behind_a_row_that_cannot_be_read() {
    let Some(server) = Server::start() else { return };
    let url = server.database_of("SQL_ASCII");
    let mut store = PostgresStore::connect(&url).unwrap();
    let put = "select tickwheel_schedule(convert_from('\\xff', 'SQL_ASCII'), now(), ''),
                 tickwheel_schedule('good ' || n, now(), '') from generate_series(1, 99) n";
    client(&url).batch_execute(put).unwrap();
    let limit = Limit { rows: 1_000, bytes: 1 << 20 };
    for damaged in [1, 0] {
        let page = store.list(&Position::start(), u64::MAX, limit).unwrap();
        assert_eq!((page.rows.len(), page.damaged.len()), (99, damaged));
    }
    // One that could not be copied is still there, and a second is found.
    let again = "select tickwheel_schedule(convert_from(name, 'SQL_ASCII'), now(), '')
                 from unnest(array['\\xfe'::bytea, '\\xfd']) name;
                 insert into tickwheel_broken
                 select number, '', deadline, 'rotten', null from tickwheel_due
                 where name = convert_from('\\xfe', 'SQL_ASCII');
                 update tickwheel_due set deadline = 9223372036854775807
                 where number in (select number from tickwheel_broken)";
    client(&url).batch_execute(again).unwrap();
    let page = store.list(&Position::start(), u64::MAX, limit).unwrap();
    assert_eq!((page.rows.len(), page.damaged.len()), (99, 1));
    let metadata = "select tickwheel_schedule('metadata', now(), 'eur 20', metadata)
                    from convert_from('\\xff', 'SQL_ASCII') metadata";
    client(&url).batch_execute(metadata).unwrap();
    for damaged in [1, 0] {
        let page = store.list(&Position::start(), u64::MAX, limit).unwrap();
        assert_eq!((page.rows.len(), page.damaged.len()), (99, damaged));
    }
    let aside = "select payload, metadata from tickwheel_broken where name = 'metadata'";
    let aside = client(&url).query_one(aside, &[]).unwrap();
    assert_eq!((aside.get::<_, &[u8]>(0), aside.get::<_, &[u8]>(1)), (&b"eur 20"[..], &[255][..]));
}

#[test]
fn a_database_whose_encoding_has_another_order_is_refused_in_words() {
    let Some(server) = Server::start() else { return };
    for encoding in ["KOI8R", "EUC_JP", "LATIN9"] {
        let error = PostgresStore::connect(&server.database_of(encoding)).unwrap_err().to_string();
        assert!(error.contains(encoding) && error.contains("order"), "{error}");
    }
}

#[test]
fn a_name_that_the_encoding_of_the_database_lacks_fails_alone() {
    let Some(server) = Server::start() else { return };
    let timer = worker(&server.database_of("LATIN1"), STEADY);
    let names = ["first", "good 1", "\u{540d}", "good 2"];
    let commits = names.map(|name| timer.schedule(name, now() + HOUR, b"").unwrap());
    let puts = commits.map(|commit| commit.wait().is_ok());
    assert_eq!(puts, [true, true, false, true]);
    assert_eq!((timer.stats().errors, timer.len().unwrap()), (0, 3));
}
