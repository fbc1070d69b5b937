//! The command `tickwheel-durable` on a database.

use std::process::Command;

use crate::server::{Server, client};
use crate::{LEASE, take, worker};

/// Runs the command, and returns its exit code, its output and its errors.
fn run(words: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tickwheel-durable"));
    let output = command.args(words).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// Lets each delete of a row take so long.
fn slow(seconds: f64) -> String {
    format!(
        "create function slow() returns trigger language plpgsql as
           $$ begin perform pg_sleep({seconds}); return old; end $$;
         create trigger slow before delete on tickwheel_due for each row execute function slow()"
    )
}

#[test]
fn a_cancel_is_judged_when_it_is_committed() {
    let Some(server) = Server::start() else { return };
    let url = server.tables();
    let mut client = client(&url);
    client.batch_execute(&slow(4.0)).unwrap();
    // By then a worker may have read it.
    client
        .batch_execute("select tickwheel_schedule('a', clock_timestamp() + interval '4 s', '')")
        .unwrap();
    let (code, output, errors) = run(&["cancel", &url, "a"]);
    assert!(code == 0 && output.starts_with("a: was due"), "{output}{errors}");
}

#[test]
fn of_many_that_are_cancelled_each_is_told_though_one_is_locked_and_the_time_is_short() {
    let Some(server) = Server::start() else { return };
    let url = server.tables();
    let (mut other, mut client) = (client(&url), client(&url));
    // So that the last are left for a second commit.
    client.batch_execute(&slow(0.3)).unwrap();
    client
        .batch_execute(
            "select tickwheel_schedule('order ' || n, now() + interval '1 h', '')
             from generate_series(0, 35) n",
        )
        .unwrap();
    let mut lunch = other.transaction().unwrap();
    lunch.query_one("select tickwheel_schedule('order 1', now(), '')", &[]).unwrap();
    let names: Vec<String> = (0..=36).map(|n| format!("order {n}")).collect();
    let words: Vec<&str> =
        ["cancel", &url].into_iter().chain(names.iter().map(|name| &**name)).collect();
    let (code, output, errors) = run(&words);
    assert_eq!(code, 1, "{output}{errors}");
    assert!(errors.contains("order 1"), "{errors}");
    for (n, (line, name)) in output.lines().zip(&names).enumerate() {
        let answer = match n {
            1 => "failed: ",
            36 => "unknown: ",
            _ => "cancelled: ",
        };
        assert!(line.starts_with(&format!("{name}: {answer}")), "{line}");
    }
    assert_eq!(output.lines().count(), names.len(), "{output}");
    lunch.rollback().unwrap();
    let left = "select count(*) from tickwheel_due";
    assert_eq!(client.query_one(left, &[]).unwrap().get::<_, i64>(0), 1);
}

#[test]
fn what_is_dead_in_a_database_is_listed_retried_and_dropped_while_a_worker_runs() {
    let Some(server) = Server::start() else { return };
    let url = server.tables();
    client(&url)
        .batch_execute(
            "insert into tickwheel_dead
             select 'order ' || n, 1000, 2000, 3, 'eur 20' from generate_series(1, 3) n",
        )
        .unwrap();
    let worker = worker(&url, LEASE);
    let (code, output, errors) = run(&["dead", "ls", &url, "--after", "order 1"]);
    assert!(code == 0 && output.lines().count() == 3, "{output}{errors}");
    let (code, output, _) = run(&["dead", "retry", &url, "order 2"]);
    assert!(code == 0 && output.contains("order 2: retried"), "{output}");
    let due = take(&worker);
    assert_eq!((due.name(), due.payload(), due.attempt()), ("order 2", &b"eur 20"[..], 1));
    due.ack();
    let (code, output, _) = run(&["dead", "drop", &url, "order 3", "order 2"]);
    assert!(code == 1 && output.contains("order 2: unknown"), "{output}");
    let (code, output, _) = run(&["dead", "get", &url, "order 1"]);
    assert!(code == 0 && output.contains("died      1970-01-01T00:00:02"), "{output}");
    let (_, output, _) = run(&["stats", &url]);
    assert!(output.contains("dead             1"), "{output}");
    worker.close().unwrap();
}

#[test]
fn check_waits_for_a_large_database_and_tells_what_was_set_aside() {
    let Some(server) = Server::start() else { return };
    let url = server.tables();
    let mut client = client(&url);
    // The first read takes longer than a worker would wait.
    client
        .batch_execute(
            "select tickwheel_schedule('order ' || n, now(), '') from generate_series(1, 9) n;
             alter table tickwheel_due rename to rows;
             create sequence reads;
             create view tickwheel_due as select * from rows where (select
               case when nextval('reads') = 1 then pg_sleep(4)::text else '' end) is not null;
             update tickwheel_partition set owner = 1;
             insert into tickwheel_worker
             values (1, clock_timestamp() + interval '1 h', true, '1 h')",
        )
        .unwrap();
    let (code, output, errors) = run(&["check", &url]);
    assert!(code == 0 && output.contains("All is well."), "{output}{errors}");
    assert!(output.contains("timeouts         9"), "{output}");
    client
        .batch_execute("insert into tickwheel_broken values (7, 'bad', 86400000, 'rotten', null)")
        .unwrap();
    let (code, output, _) = run(&["check", &url]);
    assert_eq!(code, 1, "{output}");
    assert!(
        output.contains("damaged: bad, due 1970-01-02") && !output.contains("well"),
        "{output}"
    );
}
