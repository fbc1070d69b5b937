//! The command `tickwheel-durable` on a database.

use std::io::Read;
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use postgres::Client;
use serde_json::{Value, json};
use tempfile::TempDir;
use tickwheel_durable::store::{Change, Held, Outcome, Row, Settlement, Store, Then};
use tickwheel_durable::{DurableTimer, PostgresStore, RedbStore, move_all};

use crate::live::Proxy;
use crate::page::Page;
use crate::server::{Server, client};
use crate::{CALM as LEASE, HOUR, now, take, until, worker};

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

/// Puts into a file 1,200 timeouts, some of which were handed out, and 30 dead letters, whose names
/// have timeouts too.
fn fill(file: &str) {
    let mut store = RedbStore::open(file).unwrap();
    let lease = store.lease(true, &[]).unwrap().held[0];
    let mut put = |changes: &[Change], then: &dyn Fn(usize) -> Vec<Then>| {
        let changed = store.commit(&[], changes).unwrap().changed;
        let rows = changed.into_iter().map(|changed| changed.unwrap().row.unwrap());
        let settle = |(n, row): (usize, Row)| {
            let held = Held::new(&row, lease);
            then(n).into_iter().map(move |then| Settlement { held: held.clone(), then })
        };
        let settled: Vec<Settlement> = rows.enumerate().flat_map(settle).collect();
        let outcomes = store.commit(&settled, &[]).unwrap().outcomes;
        assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Settled(_))));
    };
    let letters: Vec<_> = (0..30)
        .map(|n| Change::put(&format!("n {n}"), 1_000 + n, (&[n as u8; 9], "dead")))
        .collect();
    put(&letters, &|n| {
        vec![Then::Counted { attempt: n as u32 % 4 }, Then::Dead { at: 2_000 + n as u64 / 7 }]
    });
    let far = |n: u64| {
        let metadata = "x".repeat(n as usize % 3);
        let content = (&n.to_le_bytes(), &*metadata);
        Change::put(&format!("n {n}"), 4_000_000_000_000 + n / 5, content)
    };
    let rows: Vec<_> = (0..1_200).map(far).collect();
    put(&rows, &|n| if n % 7 == 0 { vec![Then::Counted { attempt: 2 }] } else { vec![] });
}

/// All that is in a file or a database, in words.
fn listed(place: &str) -> (String, String) {
    let [rows, letters] = [&["ls"][..], &["dead", "ls"]].map(|words| {
        let (code, output, errors) = run(&[words, &[place, "--json"]].concat());
        assert_eq!(code, 0, "{errors}");
        output
    });
    (rows, letters)
}

#[test]
fn all_goes_from_a_file_to_a_database_and_back() {
    let Some(server) = Server::start() else { return };
    let (url, folder) = (server.database(), TempDir::new().unwrap());
    let file = folder.path().join("timeouts.redb");
    let file = file.to_str().unwrap();
    fill(file);
    let all = listed(file);
    assert_eq!((all.0.lines().count(), all.1.lines().count()), (1_200, 30));
    let (code, output, errors) = run(&["move", file, &url]);
    assert_eq!(code, 0, "{output}{errors}");
    for line in ["timeouts         1200", "dead             30", "pending from     0"] {
        assert!(output.contains(line), "{output}");
    }
    assert_eq!(listed(&url), all);
    assert_eq!(listed(file), Default::default());
    // The leases are free again, and what is due comes.
    let worker = worker(&url, LEASE);
    worker.schedule("now", now(), b"").unwrap().wait().unwrap();
    let due = take(&worker);
    assert_eq!(due.name(), "now");
    let (code, _, errors) = run(&["move", &url, file]);
    assert!(code == 2 && errors.contains("has 1 workers: stop them first"), "{errors}");
    due.ack();
    worker.close().unwrap();
    let back = folder.path().join("back.redb");
    let back = back.to_str().unwrap();
    let (code, output, errors) = run(&["move", &url, back, "--json"]);
    assert!(code == 0 && output.contains("\"timeouts\":1200"), "{output}{errors}");
    assert_eq!(listed(back), all);
    assert_eq!(listed(&url), Default::default());
}

#[test]
fn a_file_with_deadlines_that_no_database_can_keep_is_moved() {
    let Some(server) = Server::start() else { return };
    let (url, folder) = (server.database(), TempDir::new().unwrap());
    let file = folder.path().join("timeouts.redb");
    let file = file.to_str().unwrap();
    // More than are moved at once. The last of all is the first by its name.
    let mut changes: Vec<_> =
        (0..501).map(|n| Change::put(&format!("z {n}"), u64::MAX - 1, b"")).collect();
    changes.push(Change::put("a", u64::MAX, b""));
    RedbStore::open(file).unwrap().commit(&[], &changes).unwrap();
    let (code, output, errors) = run(&["move", file, &url]);
    assert!(code == 0 && output.contains("timeouts         502"), "{output}{errors}");
    assert!(output.contains("pending to       502"), "{output}");
}

#[test]
fn a_database_that_takes_too_long_to_count_is_moved_all_the_same() {
    let Some(server) = Server::start() else { return };
    let (url, folder) = (server.database(), TempDir::new().unwrap());
    let [file, back] = ["timeouts.redb", "back.redb"].map(|it| folder.path().join(it));
    let [file, back] = [&file, &back].map(|it| it.to_str().unwrap());
    fill(file);
    let all = listed(file);
    let (proxy, through) = Proxy::before(&url);
    *proxy.waits.lock().unwrap() = vec!["select count(*) from tickwheel_due"];
    let database = || PostgresStore::connect(&through).unwrap().lease(Duration::from_secs(6));
    let open = |file| RedbStore::open(file).unwrap();
    let moved = move_all(&mut open(file), &mut database(), |_, _| ()).unwrap();
    assert_eq!((moved.timeouts, moved.dead), (1_200, 30));
    let moved = move_all(&mut database(), &mut open(back), |_, _| ()).unwrap();
    assert_eq!((moved.timeouts, moved.dead), (1_200, 30));
    let (code, output, errors) = run(&["move", back, &through]);
    assert!(code == 0 && output.contains("timeouts         1200"), "{output}{errors}");
    assert!(output.contains("pending from     0") && !output.contains("pending to"), "{output}");
    assert_eq!(listed(&url), all);
}

#[test]
fn a_move_that_is_killed_again_and_again_loses_nothing() {
    let Some(server) = Server::start() else { return };
    let (url, folder) = (server.database(), TempDir::new().unwrap());
    let file = folder.path().join("timeouts.redb");
    let file = file.to_str().unwrap();
    fill(file);
    let all = listed(file);
    let mut client = client(&url);
    let over = |client: &mut Client| {
        let asks = "select from pg_stat_activity where application_name = 'tickwheel-durable'";
        until("its server process is gone", || client.query(asks, &[]).unwrap().is_empty());
        // As if the leases of the one before had run out.
        let _ = client.batch_execute("delete from tickwheel_worker");
    };
    let (mut killed, mut pause) = (0, 1);
    for (from, to) in [(file, &*url), (&*url, file)] {
        loop {
            let mut child = Command::new(env!("CARGO_BIN_EXE_tickwheel-durable"))
                .args(["move", from, to])
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            thread::sleep(Duration::from_millis(pause));
            // So that it comes to its end on any machine.
            pause += pause / 4 + fastrand::u64(1..8);
            child.kill().unwrap();
            let status = child.wait().unwrap();
            if status.success() {
                break;
            }
            let mut words = String::new();
            child.stderr.take().unwrap().read_to_string(&mut words).unwrap();
            assert!(status.code().is_none(), "{words}");
            killed += 1;
            over(&mut client);
            if client.query_one("select to_regclass('tickwheel_due') is null", &[]).unwrap().get(0)
            {
                continue;
            }
            let [(here, _), (there, _)] = [listed(from), listed(to)];
            let names = |rows: &str| -> std::collections::HashSet<String> {
                rows.lines().map(|line| serde_json::from_str(line).unwrap()).map(name).collect()
            };
            let [mut here, there] = [names(&here), names(&there)];
            here.extend(there);
            for n in 0..1_200 {
                assert!(here.contains(&format!("n {n}")), "n {n} is lost");
            }
        }
        pause = 1;
        assert_eq!(listed(to), all);
        assert_eq!(listed(from), Default::default());
    }
    println!("killed {killed} times");
    assert!(0 < killed);
}

fn name(row: Value) -> String {
    row["name"].as_str().unwrap().to_owned()
}

#[test]
fn a_database_that_goes_away_ends_a_move_and_another_goes_on() {
    let Some(server) = Server::start() else { return };
    let (url, folder) = (server.tables(), TempDir::new().unwrap());
    let file = folder.path().join("timeouts.redb");
    let file = file.to_str().unwrap();
    fill(file);
    let all = listed(file);
    // Its connection is cut once, within a batch.
    let mut client = client(&url);
    client
        .batch_execute(
            "create function cut() returns trigger language plpgsql as $$ begin
               if new.name = 'n 700' then perform pg_terminate_backend(pg_backend_pid()); end if;
               return new; end $$;
             create trigger cut before insert on tickwheel_due for each row execute function cut()",
        )
        .unwrap();
    let (code, output, errors) = run(&["move", file, &url]);
    assert!(code == 2 && errors.contains("commit to the database"), "{output}{errors}");
    client.batch_execute("drop trigger cut on tickwheel_due").unwrap();
    let (code, output, errors) = run(&["move", file, &url]);
    assert_eq!(code, 0, "{output}{errors}");
    assert_eq!(listed(&url), all);
    let open = DurableTimer::open(file).unwrap();
    let (code, _, errors) = run(&["move", file, &url]);
    assert!(code == 2 && errors.contains("in use by another timer"), "{errors}");
    open.schedule("n 1", now() + HOUR, b"other").unwrap().wait().unwrap();
    open.close().unwrap();
    let (code, output, errors) = run(&["move", file, &url]);
    assert!(code == 1 && output.contains("stayed           1"), "{output}{errors}");
    assert!(errors.contains("n 1: stayed"), "{errors}");
}

#[test]
fn the_page_of_a_database_shows_its_workers_and_tells_while_it_is_away() {
    let Some(server) = Server::start() else { return };
    let url = server.tables();
    let _worker = worker(&url, LEASE);
    let mut client = client(&url);
    let late = "select tickwheel_schedule('order ' || n, now() + interval '2 h', '')
                from generate_series(1, 5000) n";
    client.batch_execute(late).unwrap();
    let page = Page::of(&url, &[]);
    let mut state = page.json("/state");
    until("the worker has all partitions", || {
        state = page.json("/state");
        state["workers"][0]["owned"] == 64 && state["put_per_second"].is_number()
    });
    assert_eq!((&state["free_partitions"], &state["error"]), (&0.into(), &Value::Null));
    assert!(state["workers"][0]["lease_left_ms"].as_u64().unwrap() <= LEASE.as_millis() as u64);
    assert_eq!((&state["bands"][4]["rows"], &state["pending"]), (&5000.into(), &5000.into()));
    let place = state["place"].as_str().unwrap();
    assert!(place.starts_with("postgresql://") && !place.contains(['@', '?']), "{place}");

    server.stop("fast");
    until("it is told", || {
        state = page.json("/state");
        state["error"].is_string()
    });
    assert_eq!(state["pending"], 5000, "what was seen last stays");
    server.go();
    until("it is read again", || page.json("/state")["error"].is_null());
}

/// Makes a fleet of two databases, of which each has some of 300 timeouts and of 60 dead letters. The
/// second has one that is overdue.
fn fleet(servers: [&Server; 2]) -> [String; 2] {
    let [one, two] = [servers[0].tables(), servers[1].database()];
    let fill = "select tickwheel_schedule('order ' || n, to_timestamp(4000000000 + n % 50), '')
                from generate_series(1, 300) n;
                insert into tickwheel_dead select 'order ' || n, 1000, 2000, 3, 'eur 20'
                from generate_series(1, 60) n";
    client(&one).batch_execute(fill).unwrap();
    for words in [["join", &two, &one], ["balance", &one, &two]] {
        let (code, _, errors) = run(&[&["fleet"][..], &words].concat());
        assert_eq!(code, 0, "{errors}");
    }
    let late = "select tickwheel_schedule(name, now() - interval '1 h', 'late')
                from (select name from tickwheel_due order by name limit 1) first";
    client(&two).batch_execute(late).unwrap();
    [one, two]
}

/// A part of a list of a page, when it is as expected: a busy machine may be taken for one that does
/// not answer.
fn part(page: &Page, path: &str, is_expected: impl Fn(&Value) -> bool) -> Value {
    let mut part = Value::Null;
    until("the list is read", || {
        let (code, _, body) = page.ask("GET", path, &[], "");
        part = serde_json::from_str(&body).unwrap();
        code == 200 && is_expected(&part["unread"])
    });
    part
}

/// All rows of a list of a page, which comes in parts.
fn rows(page: &Page, list: &str) -> Vec<Value> {
    let (mut rows, mut next) = (Vec::new(), String::new());
    loop {
        let path = format!("/{list}?prefix=order%20{next}");
        let part = part(page, &path, |unread| *unread == json!([]));
        let some = part["rows"].as_array().unwrap();
        assert!(some.len() <= 100, "{}", some.len());
        rows.extend(some.iter().cloned());
        let Some(after) = part["next"]["after"].as_str() else { return rows };
        let deadline = part["next"]["after_ms"].as_str().unwrap_or("0");
        next = format!("&after_ms={deadline}&after={}", after.replace(' ', "%20"));
    }
}

#[test]
fn the_page_of_a_fleet_shows_each_database_and_all_together() {
    let Some(server) = Server::start() else { return };
    let [one, two] = fleet([&server, &server]);
    let worker = worker(&one, LEASE);
    for words in [&["pause", &*two][..], &["limit", &two, "--timeouts", "100", "--per", "1s"]] {
        assert_eq!(run(words).0, 0);
    }
    let page = Page::of(&one, &[&two, "--changes"]);
    let mut state = page.json("/state");
    until("the worker has its partitions, and rates are known", || {
        state = page.json("/state");
        state["workers"][0]["owned"] == 32
            && state["put_per_second"].is_number()
            && state["pending"] == 300
    });
    let databases = &state["databases"];
    for (number, partitions) in [(0, "0-31"), (1, "32-63")] {
        let database = &databases[number];
        assert_eq!(
            (&database["partitions"], &database["error"]),
            (&partitions.into(), &Value::Null)
        );
        let place = database["place"].as_str().unwrap();
        assert!(place.starts_with("postgresql://127.0.0.1") && !place.contains('@'), "{place}");
    }
    let facts = |database: &Value| ["is_paused", "limit", "workers"].map(|it| database[it].clone());
    assert_eq!(facts(&databases[0]), [json!(false), Value::Null, json!(1)]);
    assert_eq!(facts(&databases[1]), [json!(true), json!("100 per 1s"), json!(0)]);
    let counts = |it| [0, 1].map(|number: usize| databases[number][it].as_u64().unwrap());
    let pending = counts("pending");
    assert!(pending.iter().sum::<u64>() == 300 && !pending.contains(&0), "{pending:?}");
    assert_eq!((&state["pending"], counts("overdue")), (&300.into(), [0, 1]));
    let late = databases[1]["late_ms"].as_u64().unwrap();
    assert!(HOUR.as_millis() as u64 <= late && databases[0]["late_ms"].is_null(), "{late}");
    // The latest of all.
    let first = state["now_ms"].as_u64().unwrap() - state["first_ms"].as_u64().unwrap();
    assert!(HOUR.as_millis() as u64 <= first, "{first}");
    assert_eq!((&state["bands"][0]["rows"], &state["is_paused"]), (&1.into(), &false.into()));
    assert_eq!(state["free_partitions"], 32);
    assert_eq!(state["workers"][0]["database"], databases[0]["place"]);
    assert_eq!(state["faults"], Value::Array(Vec::new()));

    let shown = rows(&page, "pending");
    let order = |row: &Value| {
        (row["deadline_ms"].as_u64().unwrap(), row["name"].as_str().unwrap().to_owned())
    };
    assert!(shown.is_sorted_by(|one, other| order(one) < order(other)));
    assert_eq!(
        (shown.len(), &shown[0]["number"], &shown[0]["payload"]),
        (300, &1.into(), &"late".into())
    );
    let letters = rows(&page, "dead");
    assert!(letters.is_sorted_by(|one, other| order(one).1 < order(other).1));
    assert_eq!(letters.len(), 60);

    // A letter changes where it is.
    let kind = [("Content-Type", "application/json")];
    let post = |number: u64, letter: &Value| {
        let body = json!([[letter["name"], letter["died_ms"]]]).to_string();
        page.ask("POST", &format!("/dead/drop?database={number}"), &kind, &body)
    };
    for number in [0, 1] {
        let letter = letters.iter().find(|row| row["number"] == number).unwrap();
        assert_eq!(letter["database"], databases[number as usize]["place"]);
        let (_, _, told) = post(1 - number, letter);
        assert!(told.contains("failed") && told.contains("is not in this database"), "{told}");
        assert_eq!(post(7, letter).0, 400);
        assert_eq!(rows(&page, "dead").len(), 60 - number as usize);
        let (_, _, told) = post(number, letter);
        assert!(told.contains("dropped"), "{told}");
    }
    assert_eq!(rows(&page, "dead").len(), 58);
    worker.close().unwrap();
}

#[test]
fn a_database_that_is_down_holds_up_no_other_on_the_page_of_its_fleet() {
    let (Some(server), Some(other)) = (Server::start(), Server::start()) else { return };
    let [one, two] = fleet([&server, &other]);
    let page = Page::of(&one, &[&two]);
    let mut state = page.json("/state");
    until("both answer", || {
        state = page.json("/state");
        state["pending"] == 300
    });
    let before = state["databases"][1]["pending"].clone();
    let place = state["databases"][1]["place"].as_str().unwrap().to_owned();
    other.stop("fast");
    let left = 300 - before.as_u64().unwrap();
    until("it is told, and what is nowhere, and the figures are the other's", || {
        state = page.json("/state");
        state["databases"][1]["error"].is_string()
            && state["faults"][0].is_string()
            && state["pending"] == left
    });
    let fault = state["faults"][0].as_str().unwrap();
    let name = place.strip_prefix("postgresql://").unwrap();
    assert!(fault.starts_with(&format!("partitions 32-63: gone to {name}")), "{fault}");
    assert_eq!(state["databases"][1]["pending"], before, "what was seen last stays");
    let is_of = |unread: &Value| unread[0].as_str().is_some_and(|why| why.starts_with(&place));
    let part = part(&page, "/pending", is_of);
    assert!(part["rows"].as_array().unwrap().iter().all(|row| row["number"] == 0));

    // One that is down from the first is shown when it answers.
    let late = Page::of(&one, &[&two]);
    until("it is told", || late.json("/state")["databases"][1]["error"].is_string());
    other.go();
    for page in [&page, &late] {
        until("both answer again", || {
            state = page.json("/state");
            state["pending"] == 300 && state["faults"] == Value::Array(Vec::new())
        });
    }
    assert_eq!(rows(&page, "pending").len(), 300);
}

#[test]
fn a_database_that_does_not_answer_holds_up_no_other_on_the_page_of_its_fleet() {
    let Some(server) = Server::start() else { return };
    let [one, two] = fleet([&server, &server]);
    let (proxy, through) = Proxy::before(&two);
    let page = Page::of(&one, &[&through]);
    until("both answer", || page.json("/state")["pending"] == 300);
    proxy.is_silent.store(true, Ordering::SeqCst);
    let mut client = client(&one);
    let mut state = Value::Null;
    for n in 1..=3 {
        let here = "select name from tickwheel_due where name like 'order%' limit 1";
        let name: String = client.query_one(here, &[]).unwrap().get(0);
        client.execute("select tickwheel_schedule($1, now(), '')", &[&name]).unwrap();
        client.execute("select tickwheel_cancel($1)", &[&name]).unwrap();
        until("it is told, and the other is read again", || {
            state = page.json("/state");
            let silent = state["databases"][1]["error"].as_str();
            silent.is_some_and(|error| error.starts_with("no answer within"))
                && state["databases"][0]["error"].is_null()
                && state["pending"].as_u64().unwrap()
                    + n
                    + state["databases"][1]["pending"].as_u64().unwrap()
                    == 300
        });
    }
    let is_silent = |why: &str| why.contains("no answer within");
    let part = part(&page, "/pending", |unread| unread[0].as_str().is_some_and(is_silent));
    assert_eq!(part["rows"].as_array().unwrap().len(), 100);
}

#[test]
fn a_page_of_several_places_is_of_databases_that_are_each_given_once() {
    let Some(server) = Server::start() else { return };
    let (one, folder) = (server.tables(), TempDir::new().unwrap());
    let file = folder.path().join("timeouts.redb");
    let file = file.to_str().unwrap();
    RedbStore::open(file).unwrap();
    let silent = ["postgresql://127.0.0.1:1/a", "postgresql://127.0.0.1:1/b"];
    // So that one that is not refused ends too.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = ["--listen", &taken.local_addr().unwrap().to_string()];
    for (places, why) in [
        (&[&*one, file][..], "is a file: expected one file, or the URLs of databases alone"),
        (&[file, file], "is a file: expected one file"),
        (&[&one, &one], "stands there twice"),
        (&[&one, &one.replace("127.0.0.1", "localhost")], "are the same database"),
        (&silent, "127.0.0.1:1/b"),
        (&[], "required"),
    ] {
        let (code, output, errors) = run(&[&["serve"][..], &listen, places].concat());
        assert!(code == 2 && output.is_empty() && errors.contains(why), "{output}{errors}");
    }
}

#[test]
fn an_operator_pauses_and_resumes_by_the_command() {
    let Some(server) = Server::start() else { return };
    let url = server.tables();
    for (word, is_paused) in [("pause", true), ("pause", true), ("resume", false)] {
        let (code, output, errors) = run(&[word, &url]);
        assert!(code == 0 && output.is_empty(), "{output}{errors}");
        let (_, output, _) = run(&["stats", &url, "--json"]);
        let stats: Value = serde_json::from_str(&output).unwrap();
        assert_eq!(stats["paused"], is_paused);
    }
}
