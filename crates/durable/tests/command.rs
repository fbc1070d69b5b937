//! What the command `tickwheel-durable` promises.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, SystemTime};

use serde_json::Value;
use tempfile::TempDir;
use tickwheel_durable::DurableTimer;

#[test]
fn ls_lists_by_deadline_for_people_and_for_scripts() {
    let folder = TempDir::new().unwrap();
    let file = file(&folder);
    let rows = json(&["ls", text(&file), "--json"]);
    let names: Vec<&str> = rows.iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["old", "a", "b\n"]);
    assert_eq!(rows[1]["payload"], "eur 20");
    assert_eq!(rows[2]["payload_hex"], "00ff");
    assert_eq!((&rows[1]["metadata"], rows[0].get("metadata")), (&"shop 3\n".into(), None));
    assert_eq!((&rows[0]["overdue"], &rows[1]["overdue"]), (&true.into(), &false.into()));
    assert_eq!(json(&["ls", text(&file), "--json", "--overdue"]).len(), 1);
    assert_eq!(json(&["ls", text(&file), "--json", "--limit", "2"]).len(), 2);

    let (code, output, _) = run(&["ls", text(&file)]);
    assert_eq!(code, 0);
    let lines: Vec<&str> = output.lines().collect();
    assert_eq!(lines.len(), 4, "a name with a line break is one line: {output}");
    assert!(lines[1].contains("overdue") && lines[2].contains("59m"), "{output}");
    assert!(lines[1].ends_with("  old") && lines[2].ends_with("  a  shop 3\\n"), "{output}");
}

#[test]
fn get_shows_a_timeout_and_its_payload_as_it_is() {
    let folder = TempDir::new().unwrap();
    let file = file(&folder);
    let (code, output, _) = run(&["get", text(&file), "a"]);
    assert!(code == 0 && output.contains("eur 20") && output.contains("attempt   1"), "{output}");
    assert!(output.ends_with("\nmetadata  shop 3\\n\n"), "{output}");
    assert!(!run(&["get", text(&file), "old"]).1.contains("metadata"));
    assert_eq!(command(&["get", text(&file), "b\n", "--payload"]).stdout, [0, 255]);
    assert_eq!(json(&["get", text(&file), "a", "--json"])[0]["attempt"], 1);
    let (code, output, _) = run(&["get", text(&file), "nobody"]);
    assert!(code == 1 && output.contains("unknown"), "{output}");
}

#[test]
fn cancel_removes_names_and_tells_those_that_are_unknown() {
    let folder = TempDir::new().unwrap();
    let file = file(&folder);
    let (code, output, _) = run(&["cancel", text(&file), "a", "nobody"]);
    assert_eq!(code, 1);
    assert!(output.contains("a: cancelled") && output.contains("nobody: unknown"), "{output}");
    assert_eq!(json(&["cancel", text(&file), "old", "--json"])[0]["cancel"], "cancelled");
    assert_eq!(json(&["ls", text(&file), "--json"]).len(), 1);
}

#[test]
fn a_limit_is_set_shown_and_removed_and_one_of_nothing_is_refused() {
    let folder = TempDir::new().unwrap();
    let file = file(&folder);
    let limit = || json(&["stats", text(&file), "--json"])[0]["limit"].clone();
    assert_eq!(limit(), Value::Null);
    assert_eq!(run(&["limit", text(&file), "--timeouts", "100", "--per", "1m 500ms"]).0, 0);
    assert_eq!(limit(), "100 per 1m 500ms");
    for wrong in [
        &["--timeouts", "0", "--per", "1s"][..],
        &["--timeouts", "1", "--per", "1us"],
        &["--timeouts", "1"],
        &[],
    ] {
        let (code, _, errors) = run(&[&["limit", text(&file)], wrong].concat());
        assert_eq!(code, 2, "{wrong:?}: {errors}");
    }
    assert_eq!(run(&["limit", text(&file), "--none"]).0, 0);
    assert_eq!(limit(), Value::Null);
}

#[test]
fn dead_letters_are_listed_shown_retried_and_dropped() {
    let folder = TempDir::new().unwrap();
    let file = file(&folder);
    let timer = DurableTimer::builder().max_attempts(1).open(&file).unwrap();
    let now = SystemTime::now();
    for (name, payload, metadata) in
        [("x", &b"eur 7"[..], "shop 3"), ("y\n", &[0, 255], ""), ("z", b"", "")]
    {
        timer.schedule(name, now - HOUR, (payload, metadata)).unwrap().wait().unwrap();
    }
    for _ in 0..4 {
        drop(timer.recv_timeout(HOUR).unwrap().expect("it is due"));
    }
    timer.close().unwrap();
    let dead = |words: &[&str]| run(&[&["dead"], words].concat());
    let rows = json(&["dead", "ls", text(&file), "--json"]);
    let names: Vec<&str> = rows.iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["old", "x", "y\n", "z"]);
    assert_eq!((&rows[1]["payload"], &rows[1]["attempts"]), (&"eur 7".into(), &1.into()));
    assert_eq!(rows[2]["payload_hex"], "00ff");
    assert_eq!((&rows[1]["metadata"], rows[2].get("metadata")), (&"shop 3".into(), None));
    assert!(rows[1]["deadline_ms"].as_u64() < rows[1]["died_ms"].as_u64());
    let some = json(&["dead", "ls", text(&file), "--json", "--after", "old", "--limit", "2"]);
    assert_eq!(some[..], rows[1..3]);
    let (code, output, _) = dead(&["ls", text(&file)]);
    assert_eq!((code, output.lines().count()), (0, 5), "{output}");
    assert!(output.contains("  x  shop 3\n"), "{output}");
    let (code, output, _) = dead(&["get", text(&file), "x"]);
    assert!(code == 0 && output.contains("attempts  1") && output.contains("eur 7"), "{output}");
    assert!(output.ends_with("\nmetadata  shop 3\n"), "{output}");
    assert_eq!(command(&["dead", "get", text(&file), "y\n", "--payload"]).stdout, [0, 255]);
    let (code, output, _) = dead(&["get", text(&file), "a"]);
    assert!(code == 1 && output.contains("not dead"), "{output}");
    assert_eq!(json(&["stats", text(&file), "--json"])[0]["dead"], 4);

    let (code, output, _) = dead(&["retry", text(&file), "x", "a"]);
    assert!(
        code == 1 && output.contains("x: retried") && output.contains("a: unknown"),
        "{output}"
    );
    assert_eq!(json(&["ls", text(&file), "--json", "--overdue"])[0]["name"], "x");
    let row = &json(&["get", text(&file), "x", "--json"])[0];
    assert_eq!((&row["attempt"], &row["payload"]), (&1.into(), &"eur 7".into()));
    assert_eq!(json(&["dead", "drop", text(&file), "z", "old", "--json"])[1]["dead"], "dropped");
    let left = json(&["dead", "ls", text(&file), "--json"]);
    assert_eq!(left[..], rows[2..3]);
    let (code, output, _) = run(&["check", text(&file)]);
    assert!(code == 0 && output.contains("dead             1"), "{output}");
}

#[test]
fn names_that_begin_alike_are_listed_counted_and_cancelled_page_by_page() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("timeouts.redb");
    let timer = DurableTimer::builder().max_attempts(1).open(&file).unwrap();
    let now = SystemTime::now();
    for name in ["order-17", "order-17/a", "order-18", "order-2"] {
        timer.schedule(name, now - HOUR, b"").unwrap().wait().unwrap();
    }
    for _ in 0..4 {
        drop(timer.recv_timeout(HOUR).unwrap().expect("it is due"));
    }
    // Over two pages of the store, deadlines in no order.
    let names = (0..2_500).map(|n| format!("order-{n}/payment"));
    let at = |n: u64| now + HOUR + Duration::from_millis(n * 7_919 % 1_000);
    let put = |(n, name): (u64, String)| timer.schedule(&name, at(n), b"").unwrap();
    let commits: Vec<_> = (0..).zip(names).map(put).collect();
    for commit in commits {
        commit.wait().unwrap();
    }
    timer.schedule("order-17", now - HOUR, b"").unwrap().wait().unwrap();
    timer.close().unwrap();
    let expected = |name: &str| name.starts_with("order-17");
    let all: Vec<Value> = json(&["ls", text(&file), "--json"])
        .into_iter()
        .filter(|row| expected(row["name"].as_str().unwrap()))
        .collect();
    assert_eq!(all.len(), 1 + 111);
    let listed = |words: &[&str]| {
        json(&[&["ls", text(&file), "--json", "--prefix", "order-17"], words].concat())
    };
    assert_eq!(listed(&[]), all);
    assert_eq!(listed(&["--overdue"]), all[..1]);
    let mut pages = listed(&["--limit", "50"]);
    while let Some(last) = pages.last().cloned() {
        let after = format!("{}:{}", last["deadline_ms"], last["name"].as_str().unwrap());
        let page = listed(&["--limit", "50", "--after", &after]);
        if page.is_empty() {
            break;
        }
        pages.extend(page);
        assert!(pages.len() <= all.len(), "a page begins after the one before");
    }
    assert_eq!(pages, all);
    let stats = |prefix| json(&["stats", text(&file), "--json", "--prefix", prefix]).remove(0);
    let stats_of = stats("order-17");
    let counts = ["pending", "overdue", "dead"].map(|count| stats_of[count].as_u64().unwrap());
    assert_eq!(counts, [112, 1, 2]);
    assert_eq!(stats_of["earliest"], all[0]["deadline"]);
    assert_eq!(stats("nobody")["earliest"], Value::Null);
    let dead = |words: &[&str]| -> Vec<String> {
        let rows = json(&[&["dead", "ls", text(&file), "--json"], words].concat());
        rows.iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(dead(&["--prefix", "order-17"]), ["order-17", "order-17/a"]);
    assert_eq!(dead(&["--prefix", "order-17", "--limit", "1"]), ["order-17"]);
    assert_eq!(dead(&["--prefix", "order-17", "--after", "order-17"]), ["order-17/a"]);
    assert_eq!(dead(&["--prefix", "order-1", "--after", "order-17/a"]), ["order-18"]);

    let cancelled = json(&["cancel", text(&file), "--prefix", "order-17", "--json"]);
    assert_eq!(cancelled.len(), 112);
    assert!(cancelled.iter().all(|line| line["cancel"] == "cancelled"));
    assert_eq!(listed(&[]).len(), 0);
    assert_eq!(json(&["ls", text(&file), "--json"]).len(), 2_500 - 111, "all others stay");
    let (code, _, errors) = run(&["cancel", text(&file), "--prefix", "order-17"]);
    assert!(code == 1 && errors.contains("begins like this"), "{errors}");
    for wrong in [
        &["cancel", text(&file), "--prefix", ""][..],
        &["cancel", text(&file), "--prefix", "order", "order-2/payment"],
        &["cancel", text(&file)],
        &["ls", text(&file), "--after", "order-2"],
    ] {
        assert_eq!(run(wrong).0, 2, "{wrong:?}");
    }
    assert_eq!(json(&["ls", text(&file), "--json"]).len(), 2_500 - 111);
}

#[test]
fn move_goes_from_file_to_file_and_tells_what_stays() {
    let folder = TempDir::new().unwrap();
    let file = file(&folder);
    let all = json(&["ls", text(&file), "--json"]);
    let other = folder.path().join("other.redb");
    let (code, output, errors) = run(&["move", text(&file), text(&other)]);
    assert!(code == 0 && output.contains("timeouts         3"), "{output}{errors}");
    assert_eq!(json(&["ls", text(&other), "--json"]), all);
    assert_eq!(json(&["ls", text(&file), "--json"]).len(), 0);

    let timer = DurableTimer::open(&file).unwrap();
    timer.schedule("a", SystemTime::now(), b"").unwrap().wait().unwrap();
    timer.schedule("c", SystemTime::now(), b"").unwrap().wait().unwrap();
    timer.close().unwrap();
    let (code, output, errors) = run(&["move", text(&file), text(&other), "--json"]);
    assert!(code == 1 && errors.contains("a: stayed"), "{output}{errors}");
    let facts: Value = serde_json::from_str(&output).unwrap();
    assert_eq!((&facts["timeouts"], &facts["stayed"]), (&1.into(), &1.into()));
    assert_eq!((&facts["pending_from"], &facts["pending_to"]), (&1.into(), &4.into()));

    let (code, _, errors) = run(&["move", text(&file), text(&file)]);
    assert!(code == 2 && errors.contains("both are the same"), "{errors}");
    let missing = folder.path().join("missing.redb");
    let (code, _, errors) = run(&["move", text(&missing), text(&folder.path().join("new"))]);
    assert!(code == 2 && errors.contains("no such file"), "{errors}");
    assert!(!folder.path().join("new").exists(), "nothing is made for it");
    let timer = DurableTimer::open(&other).unwrap();
    let (code, _, errors) = run(&["move", text(&file), text(&other)]);
    assert!(code == 2 && errors.contains("in use by another timer"), "{errors}");
    timer.close().unwrap();
}

#[test]
fn stats_and_check_of_a_whole_file() {
    let folder = TempDir::new().unwrap();
    let file = file(&folder);
    let stats = &json(&["stats", text(&file), "--json"])[0];
    assert_eq!((&stats["pending"], &stats["overdue"]), (&3.into(), &1.into()));
    assert_eq!(stats["set_aside"], 0);
    let (code, output, _) = run(&["check", text(&file)]);
    assert!(code == 0 && output.contains("The file is whole."), "{output}");
}

#[test]
fn check_finds_a_damaged_timeout_and_repair_sets_it_aside() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("timeouts.redb");
    let timer = DurableTimer::open(&file).unwrap();
    let at = SystemTime::now() + HOUR;
    for n in 0..3_u8 {
        timer.schedule(&format!("{n}"), at, &[0xa0 + n; 64]).unwrap().wait().unwrap();
    }
    timer.close().unwrap();
    let timer = DurableTimer::builder().max_attempts(1).open(&file).unwrap();
    for name in ["dead", "gone"] {
        let payload = [name.as_bytes()[0]; 64];
        timer.schedule(name, SystemTime::now(), &payload).unwrap().wait().unwrap();
        drop(timer.recv_timeout(HOUR).unwrap().expect("it is due"));
    }
    timer.close().unwrap();
    // In every copy of the page: the engine's own sums are not looked at after a close.
    let mut bytes = fs::read(&file).unwrap();
    for at in 0..bytes.len() - 64 {
        if [[0xa1; 64], [b'g'; 64]].contains(&bytes[at..at + 64].try_into().unwrap()) {
            bytes[at + 9] = 7;
        }
    }
    fs::write(&file, bytes).unwrap();

    let (code, output, errors) = run(&["check", text(&file)]);
    assert_eq!(code, 1, "{output}{errors}");
    assert!(output.contains("damaged: 1, due") && output.contains("--repair"), "{output}");
    assert!(output.contains("damaged: gone, due"), "{output}");
    let (code, output, errors) = run(&["dead", "ls", text(&file)]);
    assert!(code == 2 && output.contains("dead\n") && errors.contains("damaged"), "{output}");
    let (code, output, _) = run(&["check", text(&file), "--repair"]);
    assert!(code == 0 && output.contains("is mended"), "{output}");
    let (code, output, _) = run(&["check", text(&file), "--json"]);
    let report: Value = serde_json::from_str(&output).unwrap();
    assert_eq!((code, &report["timeouts"], &report["set_aside"]), (0, &2.into(), &2.into()));
    assert_eq!(report["dead"], 1);
}

#[test]
fn a_file_that_another_process_has_is_told_and_so_is_what_is_no_file_of_ours() {
    let folder = TempDir::new().unwrap();
    let file = file(&folder);
    let timer = DurableTimer::open(&file).unwrap();
    let (code, _, errors) = run(&["ls", text(&file)]);
    assert!(code == 2 && errors.contains("in use by another timer"), "{errors}");
    timer.close().unwrap();

    let missing = folder.path().join("missing.redb");
    let (code, _, errors) = run(&["stats", text(&missing)]);
    assert!(code == 2 && errors.contains("there is no such file"), "{errors}");
    assert!(!missing.exists(), "the command makes no file");

    let foreign = folder.path().join("foreign");
    for content in [&b""[..], &[b'x'; 10_000]] {
        fs::write(&foreign, content).unwrap();
        let (code, _, errors) = run(&["check", text(&foreign)]);
        assert!(code == 2 && errors.contains("foreign"), "{errors}");
        assert_eq!(fs::read(&foreign).unwrap(), content, "it is left as it was");
    }
    let (code, _, errors) = run(&["ls", text(folder.path())]);
    assert!(code == 2 && errors.contains("folder"), "{errors}");
}

#[test]
fn a_url_goes_to_the_database() {
    let (code, _, errors) = run(&["ls", "postgresql://127.0.0.1:1/none"]);
    let expected =
        if cfg!(feature = "postgres") { "connect to the database" } else { "feature `postgres`" };
    assert!(code == 2 && errors.contains(expected), "{errors}");
}

fn command(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tickwheel-durable")).args(words).output().unwrap()
}

/// Runs the command, and returns its exit code, its output and its errors.
fn run(words: &[&str]) -> (i32, String, String) {
    let output = command(words);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn json(words: &[&str]) -> Vec<Value> {
    let (code, output, errors) = run(words);
    assert_eq!(code, 0, "{errors}");
    output.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A file with two timeouts an hour and two hours ahead, and one that is overdue.
fn file(folder: &TempDir) -> PathBuf {
    let file = folder.path().join("timeouts.redb");
    let timer = DurableTimer::open(&file).unwrap();
    let now = SystemTime::now();
    timer.schedule("b\n", now + 2 * HOUR, &[0, 255]).unwrap().wait().unwrap();
    timer.schedule("a", now + HOUR, (b"eur 20", "shop 3\n")).unwrap().wait().unwrap();
    timer.schedule("old", now - HOUR, b"").unwrap().wait().unwrap();
    timer.close().unwrap();
    file
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

const HOUR: Duration = Duration::from_secs(3600);
