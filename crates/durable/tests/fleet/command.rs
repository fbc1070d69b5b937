//! The command `tickwheel-durable fleet`.

use std::process::Command;

use serde_json::Value;
use tickwheel_durable::HomeState;

use super::{KNOWS_FLEETS, LEASE, MOVED, fleet, names, of, place, store};
use crate::server::{Server, client};
use crate::{HOUR, now, take, until, worker};

pub(super) fn command(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tickwheel-durable"));
    command.arg("fleet").args(words);
    command
}

/// Runs the command, and returns its exit code, its output and its errors.
pub(super) fn run(words: &[&str]) -> (i32, String, String) {
    let output = command(words).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

pub(super) fn json(words: &[&str]) -> Vec<Value> {
    let (code, output, errors) = run(words);
    assert_eq!(code, 0, "{output}{errors}");
    output.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// How many partitions each has. Together they are all, each once.
fn shares(urls: &[&str]) -> Vec<usize> {
    let databases = json(&[&["status", "--json"], urls].concat());
    let partitions = |database: &Value| database["partitions"].as_array().unwrap().clone();
    let mut all: Vec<u64> =
        databases.iter().flat_map(partitions).map(|it| it.as_u64().unwrap()).collect();
    all.sort_unstable();
    assert!(all.into_iter().eq(0..64));
    databases.iter().map(|database| partitions(database).len()).collect()
}

#[test]
fn databases_are_joined_balanced_and_emptied_by_the_command_while_workers_run() {
    let Some(server) = Server::start() else { return };
    let [one, two, three] = [server.tables(), server.database(), server.database()];
    let urls = [&*one, &two, &three];
    assert_eq!(shares(&[&one]), [64]);
    client(&one)
        .batch_execute(
            "select tickwheel_schedule('order ' || n, now() + interval '1 h', '')
             from generate_series(1, 500) n;
             insert into tickwheel_dead select 'order ' || n, 1000, 2000, 3, ''
             from generate_series(1, 300) n",
        )
        .unwrap();
    for new in [&two, &three] {
        let (code, output, errors) = run(&["join", new, &one]);
        assert!(code == 0 && output.is_empty(), "{output}{errors}");
    }
    assert_eq!(shares(&urls), [64, 0, 0]);
    let planned = json(&["balance", "--dry-run", "--json", &one, &two, &three]);
    assert_eq!((planned.len(), shares(&urls)), (42, vec![64, 0, 0]));
    let moved = json(&["balance", "--json", &one, &two, &three]);
    let step = |line: &Value| ["partition", "from", "to"].map(|word| line[word].clone());
    assert!(moved.iter().map(step).eq(planned.iter().map(step)));
    assert_eq!(shares(&urls), [22, 21, 21]);
    let (code, output, _) = run(&["balance", &one, &two, &three]);
    assert!(code == 0 && output.is_empty(), "nothing is left to do: {output}");

    // A short lease, because each partition that moves from now on waits for a part of it.
    let workers = urls.map(|url| worker(url, LEASE / 10));
    let (code, output, errors) = run(&["status", &one, &two, &three]);
    let lines: Vec<&str> = output.lines().collect();
    assert!(code == 0 && errors.is_empty() && lines.len() == 4, "{output}{errors}");
    assert!(lines[1].contains(place(&one)) && lines[1].ends_with("  0-21"), "{output}");
    until("each has a worker for all", || {
        workers.iter().map(|worker| worker.stats().partitions).eq([22, 21, 21])
    });

    let (code, output, errors) = run(&["move", &one, &two, "0,2-3"]);
    assert!(code == 0 && output.lines().count() == 3, "{output}{errors}");
    assert!(output.starts_with("partition 0: from postgresql://127.0.0.1:"), "{output}");
    assert_eq!(shares(&urls), [19, 24, 21]);
    let left = ["balance", &one, &two, &three, "--without", &two, "--json"];
    let moved = json(&left);
    assert_eq!((moved.len(), shares(&urls)), (24, vec![32, 0, 32]));
    assert_eq!(shares(&[&one, &three]), [32, 32], "it may be left out");
    let count = |table: &str| -> i64 {
        let count = format!("select count(*) from tickwheel_{table}");
        urls.iter().map(|url| client(url).query_one(&count, &[]).unwrap().get::<_, i64>(0)).sum()
    };
    assert_eq!((count("due"), count("dead")), (500, 300));
    for worker in workers {
        drop(worker.close());
    }
}

#[test]
fn a_move_that_was_cut_off_is_shown_and_a_balance_ends_it_first() {
    let Some(server) = Server::start() else { return };
    let [one, two] = fleet(&server);
    let name = &names(&mut client(&one), MOVED, 1)[0];
    let worker = worker(&one, LEASE * 2);
    worker.schedule(name, now(), b"").unwrap().wait().unwrap();
    let due = take(&worker);
    // It waits for the consumer.
    let partition = MOVED.to_string();
    let mut child = command(&["move", &one, &two, &partition]).spawn().unwrap();
    let mut watched = store(&two);
    until("it is on its way", || {
        watched.homes().unwrap().partitions[MOVED as usize].state == HomeState::Coming
    });
    child.kill().unwrap();
    child.wait().unwrap();
    due.retry(HOUR);
    until("it comes again", || worker.stats().retried == 1);
    worker.close().unwrap();

    let words = format!("partitions {MOVED}: on their way from");
    let (code, output, errors) = run(&["status", &one, &two]);
    assert!(code == 0 && output.contains(&*words), "{output}{errors}");
    let status = json(&["status", "--json", &one, &two]);
    assert_eq!(status[0]["leaving"][0]["partition"], MOVED);
    assert_eq!(status[1]["coming"][0]["partition"], MOVED);
    let (code, _, errors) = run(&["move", &one, &two, "0"]);
    assert!(code == 2 && errors.contains("end that move first"), "{errors}");
    let moved = json(&["balance", "--json", &one, &two]);
    assert_eq!(moved[0]["partition"], MOVED);
    // And once more, because it has changed.
    assert!(moved[0]["timeouts"].as_u64().is_some_and(|count| 1 <= count), "{moved:?}");
    assert_eq!((moved.len(), shares(&[&one, &two])), (32, vec![32, 32]));
    // As a move leaves it that was cut off after it took place.
    let mut left = client(&one);
    let leave = "insert into tickwheel_due (name, deadline, payload) values ($1, 1, '')";
    left.batch_execute(KNOWS_FLEETS).unwrap();
    left.execute(leave, &[name]).unwrap();
    let (code, output, errors) = run(&["balance", &one, &two]);
    assert!(code == 0 && output.is_empty(), "{output}{errors}");
    assert_eq!(of(&mut left, MOVED), Default::default());
    let (code, output, _) = run(&["abandon", &one, "7"]);
    assert!(code == 1 && output.contains("partition 7: unknown"), "{output}");
}

#[test]
fn what_is_wrong_with_a_fleet_is_found_and_nothing_is_moved_then() {
    let Some(server) = Server::start() else { return };
    let ([one, two], alone) = (fleet(&server), server.tables());
    let silent = "postgresql://127.0.0.1:1/none";
    assert_eq!(run(&["move", &one, &two, "7"]).0, 0);
    for (words, code, why) in [
        (&["status", &one, silent][..], 1, "partitions 7: gone to"),
        (&["status", &one, &two, silent], 1, ""),
        (&["status", &one, &two, &alone], 1, "are these of one fleet?"),
        (&["status", &two], 1, "partitions 0-6, 8-63: gone to"),
        (&["balance", &one, &two, silent], 2, "connect to the database"),
        (&["balance", &one], 2, "partitions 7: gone to"),
        (&["balance", &one, &two, &alone], 2, "are these of one fleet?"),
        (&["balance", &one, &two, &one], 2, "the same database"),
        (&["balance", &one, &two, "--without", &alone], 2, "one of the URLs"),
        (&["balance", &alone, "--without", &alone], 2, "another database"),
        (&["balance", "file.redb"], 2, "expected the URL of a database"),
        (&["move", &one, &two, "64"], 2, "from 0 to 63"),
        (&["move", &one, &one, "0"], 2, "the same database"),
        (&["move", &one, &alone, "0"], 2, "join the fleet"),
        (&["join", &one, &two], 2, "of a fleet already"),
        (&["join", &server.database(), silent], 2, "connect to the database"),
    ] {
        let (found, output, errors) = run(words);
        assert!(found == code && errors.contains(why), "{words:?}: {output}{errors}");
    }
    let (_, output, _) = run(&["status", &one, &two, silent]);
    let told = output.lines().find(|line| line.starts_with(silent)).unwrap();
    assert!(told.contains("cannot connect"), "{output}");
    assert_eq!(shares(&[&one, &two]), [63, 1]);
}
