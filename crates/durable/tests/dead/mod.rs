//! What was handed out as often as it may be, in a database.

use std::sync::mpsc;
use std::time::Duration;

use tickwheel_durable::{DurableTimer, PostgresStore, Retried};

use super::server::{Server, client};
use super::{CALM as LEASE, HOUR, now, received, spawn_as, take, until, worker};

fn worker_with_most(url: &str, most: u32) -> DurableTimer {
    let store = PostgresStore::connect(url).unwrap().lease(LEASE);
    let builder = DurableTimer::builder().max_attempts(most).redeliver(Duration::ZERO);
    received(builder.open_store(store).unwrap())
}

#[test]
fn what_kills_its_worker_comes_as_often_as_it_may_and_is_a_dead_letter() {
    let Some(server) = Server::start() else { return };
    let url = server.tables();
    let mut sql = client(&url);
    sql.batch_execute("select tickwheel_schedule('poison', now() - interval '1 h', 'eur 20')")
        .unwrap();
    for n in 0..20 {
        let put = format!("select tickwheel_schedule('good {n}', now(), '')");
        sql.batch_execute(&put).unwrap();
    }
    let (sender, lines) = mpsc::channel();
    let mut lives = 0;
    loop {
        let mut child = spawn_as("dead::poisoned_child", &url, &sender);
        lives += 1;
        let input = child.stdin.take();
        if child.wait().unwrap().success() {
            break;
        }
        drop(input);
        // As if its lease had run out.
        sql.batch_execute("delete from tickwheel_worker").unwrap();
    }
    drop(sender);
    let came: Vec<String> = lines.iter().filter(|line| line.starts_with("@fired")).collect();
    let times = |name: &str| came.iter().filter(|line| line.contains(name)).count();
    assert_eq!((lives, times(" poison ")), (MOST + 1, MOST), "{came:?}");
    (0..20).for_each(|n| assert_eq!(times(&format!(" good {n} ")), 1, "{came:?}"));
    let timer = DurableTimer::connect(&url).unwrap();
    let letter = timer.dead_letter("poison").unwrap().expect("it is dead");
    assert_eq!((letter.attempts(), letter.payload()), (MOST as u32, &b"eur 20"[..]));
    assert_eq!(timer.dead_letters().count(), 1);
}

/// A worker with a consumer, when it is run by the test above. It is killed by one timeout, and
/// ends when there is none.
#[test]
fn poisoned_child() {
    let Ok(url) = std::env::var("TICKWHEEL_DURABLE_URL") else { return };
    let timer = worker_with_most(&url, MOST as u32);
    while !timer.is_empty().unwrap() {
        let Some(due) = timer.recv_timeout(Duration::from_millis(20)).unwrap() else { continue };
        println!("\n@fired {} {}", due.name(), due.attempt());
        if due.name() == "poison" {
            std::process::abort();
        }
        due.ack();
    }
    timer.close().unwrap();
}

#[test]
fn a_dead_letter_is_retried_by_a_caller_or_by_sql_and_comes_to_the_worker_that_owns_its_name() {
    let Some(server) = Server::start() else { return };
    let url = server.tables();
    let owner = worker_with_most(&url, 2);
    let caller = DurableTimer::connect(&url).unwrap();
    caller.schedule("a", now(), (b"eur 20", "shop 3")).unwrap().wait().unwrap();
    assert_eq!(take(&owner).attempt(), 1);
    let due = take(&owner);
    assert_eq!(due.attempt(), 2);
    due.retry(HOUR);
    until("it is dead", || caller.dead_letter("a").unwrap().is_some());
    assert_eq!(caller.dead_letter("a").unwrap().unwrap().metadata(), "shop 3");
    assert_eq!(caller.dead_letters().next().unwrap().unwrap().metadata(), "shop 3");
    until("it is counted", || owner.stats().dead == 1);
    assert!(caller.is_empty().unwrap(), "it is not pending");
    assert_eq!(caller.retry_dead("a").unwrap().wait().unwrap(), Retried::Retried);
    assert_eq!(caller.retry_dead("a").unwrap().wait().unwrap(), Retried::Unknown);
    let due = take(&owner);
    assert_eq!((due.payload(), due.metadata(), due.attempt()), (&b"eur 20"[..], "shop 3", 1));
    drop(due);
    drop(take(&owner));
    until("it is dead again", || caller.dead_letter("a").unwrap().is_some());
    let mut sql = client(&url);
    let mut revive = || {
        let row =
            sql.query_one("select was_dead, number is not null from tickwheel_revive('a')", &[]);
        let row = row.unwrap();
        (row.get::<_, bool>(0), row.get::<_, bool>(1))
    };
    caller.schedule("a", now() + HOUR, b"new").unwrap().wait().unwrap();
    assert_eq!(revive(), (true, false), "the name is pending");
    assert_eq!(caller.retry_dead("a").unwrap().wait().unwrap(), Retried::Pending);
    assert_eq!(caller.get("a").unwrap().unwrap().payload(), b"new");
    caller.cancel("a").unwrap().wait().unwrap();
    assert_eq!((revive(), revive()), ((true, true), (false, false)));
    let due = take(&owner);
    assert_eq!((due.payload(), due.metadata(), due.attempt()), (&b"eur 20"[..], "shop 3", 1));
    assert!(due.deadline() <= now() + Duration::from_secs(1));
    due.ack();
    assert!(!caller.drop_dead("a").unwrap().wait().unwrap());
    owner.close().unwrap();
}

/// Its count is on the disk before a consumer has it, and nobody else's is.
#[test]
fn what_a_worker_has_and_no_consumer_asked_for_is_not_counted() {
    let Some(server) = Server::start() else { return };
    let url = server.tables();
    let owner = worker_with_most(&url, 3);
    for name in ["a", "b", "c"] {
        owner.schedule(name, now(), b"").unwrap().wait().unwrap();
    }
    let held = take(&owner);
    let mut sql = client(&url);
    let mut counted = || -> Vec<i32> {
        let rows = sql.query("select attempt from tickwheel_due order by attempt", &[]).unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    };
    assert_eq!(counted(), [0, 0, 1]);
    // It asks and goes away: what was counted for it is taken back.
    assert!(owner.try_recv().unwrap().is_none());
    until("one waits for it", || owner.stats().waiting == 1);
    assert_eq!(counted(), [0, 1, 1]);
    held.ack();
    owner.close().unwrap();
    assert_eq!(counted(), [0, 0]);
}

/// A trigger of the house may refuse what it likes: nothing is lost by that.
#[test]
fn a_count_or_a_dead_letter_that_a_trigger_skips_is_told_and_tried_again() {
    let Some(server) = Server::start() else { return };
    let url = server.tables();
    let mut sql = client(&url);
    sql.batch_execute(
        "create function skip() returns trigger language plpgsql as $$ begin return null; end $$;
         create trigger skip before update on tickwheel_due for each row execute function skip();
         create trigger skip before insert on tickwheel_dead for each row execute function skip()",
    )
    .unwrap();
    let owner = worker_with_most(&url, 1);
    owner.schedule("a", now(), b"eur 20").unwrap().wait().unwrap();
    assert!(owner.recv_timeout(Duration::from_millis(10)).unwrap().is_none());
    until("it is refused", || owner.stats().held_up == 1);
    sql.batch_execute("drop trigger skip on tickwheel_due").unwrap();
    drop(take(&owner));
    until("its death is refused", || owner.stats().held_up == 1);
    assert_eq!(owner.len().unwrap(), 1, "it is where it was");
    sql.batch_execute("drop trigger skip on tickwheel_dead").unwrap();
    until("it is dead", || owner.stats().dead == 1);
    assert_eq!(owner.dead_letter("a").unwrap().unwrap().payload(), b"eur 20");
    owner.close().unwrap();
}

/// Its lease is renewed all the time: without a visibility the timeout would never come again.
#[test]
fn what_a_consumer_holds_for_too_long_comes_again_while_its_worker_lives() {
    let Some(server) = Server::start() else { return };
    let url = server.tables();
    let store = PostgresStore::connect(&url).unwrap().lease(LEASE);
    let builder = DurableTimer::builder().visibility(Duration::from_millis(50));
    let owner = received(builder.redeliver(Duration::ZERO).open_store(store).unwrap());
    owner.schedule("stuck", now(), b"").unwrap().wait().unwrap();
    let stuck = take(&owner);
    let again = take(&owner);
    assert_eq!((again.name(), again.attempt()), ("stuck", 2));
    stuck.ack();
    drop(again);
    owner.close().unwrap();
    assert_eq!(DurableTimer::connect(&url).unwrap().len().unwrap(), 1);
}

/// A worker that sets no most pays for none: it writes no row before its ack.
#[test]
fn without_a_most_nothing_is_counted_in_the_store() {
    let Some(server) = Server::start() else { return };
    let url = server.tables();
    let owner = worker(&url, LEASE);
    owner.schedule("a", now(), b"").unwrap().wait().unwrap();
    let held = take(&owner);
    let mut sql = client(&url);
    let attempt: i32 = sql.query_one("select attempt from tickwheel_due", &[]).unwrap().get(0);
    assert_eq!((attempt, held.attempt()), (0, 1));
    held.ack();
    owner.close().unwrap();
}

/// How often a timeout is handed out at most, where some kill.
const MOST: usize = 2;
