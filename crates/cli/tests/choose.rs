//! What the command `tickwheel choose` promises.

use clap::ValueEnum;
use serde_json::Value;
use std::fs;
use std::io::Cursor;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use tickwheel_cli::choose::{Candidate, Figures, Options, choose};
use tickwheel_cli::generate::{Generator, Shape, Size};
use tickwheel_cli::replay::{Limits, Tick, Trace, replay};

#[test]
fn as_many_timeouts_fire_as_in_a_replay_at_every_tick() {
    let (max_lateness, time) = (Duration::from_millis(70), Duration::from_secs(5));
    let options = Options { max_lateness, time, ..Options::default() };
    for &shape in Shape::value_variants() {
        let choice = choose(generated(shape, 5_000), &options, |_| ()).unwrap();
        let ticks = ["1ms", "10ms", "70ms"].map(|tick| tick.parse::<Tick>().unwrap());
        for tick in ticks {
            let modes = ["hierarchical".parse().unwrap()];
            let trace = generated(shape, 5_000);
            let report = replay(trace, &modes, tick, &Limits::default(), |_| ()).unwrap();
            let mut at_this_tick = choice
                .candidates
                .iter()
                .filter(|candidate| candidate.tick == tick && candidate.stopped.is_none());
            let expected = report.figures[0].fired_total;
            assert!(at_this_tick.clone().count() > 0, "{shape:?}");
            assert!(
                at_this_tick.all(|candidate| figures(candidate).fired == expected),
                "{shape:?}"
            );
        }
    }
}

#[test]
fn wakeups_and_lateness_are_counted_by_the_times_of_the_trace() {
    // Due at 1, 2, ... 100 ms, each woken for at a tick of 1 ms, and each tenth at 10 ms.
    let mut csv = format!("{}\n", Trace::HEADER);
    (1..=100).for_each(|key| csv += &format!("0,schedule,{key},{key}\n"));
    let options = Options { max_lateness: Duration::from_millis(10), ..Options::default() };
    let trace = Trace::new("generated", Cursor::new(csv)).unwrap();
    let choice = choose(trace, &options, |_| ()).unwrap();
    let of = |tick: &str| {
        let tick = tick.parse().unwrap();
        let candidate = choice.candidates.iter().find(|candidate| {
            candidate.tick == tick && candidate.mode == "hashed:512".parse().unwrap()
        });
        let figures = figures(candidate.unwrap());
        (figures.wakeups, figures.mean_lateness_ns, figures.max_lateness_ns)
    };
    assert_eq!(of("1ms"), (100, 0, 0));
    assert_eq!(of("10ms"), (10, 4_500_000, 9_000_000));
}

#[test]
fn ticks_are_searched_within_the_lateness_that_is_allowed() {
    let folder = TempDir::new().unwrap();
    let trace = trace_of(&folder, Shape::Cancelled, 1_000);
    for (lateness, expected) in [
        ("1us", &["1 us"][..]),
        ("1ms", &["1 ms"]),
        ("5ms", &["1 ms", "5 ms"]),
        ("1s", &["1 ms", "10 ms", "100 ms", "1 s"]),
        ("2d", &["1 ms", "10 ms", "100 ms", "1 s", "10 s", "1.67 min", "16.7 min", "1 h"]),
    ] {
        let choice = json(&[&trace, "--max-lateness", lateness]);
        let mut ticks: Vec<_> = candidates(&choice)
            .iter()
            .map(|candidate| candidate["tick"].as_str().unwrap())
            .collect();
        ticks.dedup();
        assert_eq!(ticks, expected);
    }
}

#[test]
fn what_holds_too_much_memory_is_not_recommended() {
    let folder = TempDir::new().unwrap();
    let trace = trace_of(&folder, Shape::Year, 20_000);
    let choice = json(&[&trace, "--max-memory", "2MiB"]);
    let (over, within): (Vec<_>, Vec<_>) =
        candidates(&choice).iter().partition(|candidate| !candidate["stopped"].is_null());
    assert!(over.iter().any(|over| over["stopped"] == "over the limit of 2.0 MiB"), "{choice}");
    assert!(within.iter().all(|within| within["memory_bytes"].as_u64().unwrap() <= 2 << 20));
    assert!(!within.is_empty(), "{choice}");

    let choice = json(&[&trace, "--max-memory", "1KiB"]);
    assert_eq!(choice["recommended"], Value::Null);
    assert_eq!(choice["code"], Value::Null);
    let table = text(&run(&[&trace, "--max-memory", "1KiB"]).stdout);
    assert!(table.contains("No configuration came to the end of the trace"), "{table}");
    assert!(table.contains("9 of them stopped early"), "{table}");
}

#[test]
fn time_that_is_over_ends_the_search() {
    let folder = TempDir::new().unwrap();
    let trace = trace_of(&folder, Shape::Year, 200_000);
    let table = text(&run(&[&trace, "--limit-time", "0s"]).stdout);
    assert!(table.contains("9 of them not measured for lack of time"), "{table}");
    assert!(table.contains("No configuration came to the end of the trace"), "{table}");
    let choice = json(&[&trace, "--limit-time", "1ms"]);
    assert_eq!(choice["is_settled"], false);
    assert_eq!(candidates(&choice)[0]["stopped"], "over the limit of 1 ms");
}

#[test]
fn no_more_operations_are_read_than_asked_for() {
    let folder = TempDir::new().unwrap();
    let trace = trace_of(&folder, Shape::Short, 10_000);
    let table = text(&run(&[&trace, "--operations", "5000"]).stdout);
    assert!(table.contains(": the first 5,000 operations"), "{table}");
    for operations in ["10000", "10001"] {
        let table = text(&run(&[&trace, "--operations", operations]).stdout);
        assert!(table.contains(": 10,000 operations"), "{table}");
    }
}

#[test]
fn few_operations_get_the_default() {
    let folder = TempDir::new().unwrap();
    let table = text(&run(&[&trace_of(&folder, Shape::Short, 10)]).stdout);
    let reason = "Only 10 operations: too few to tell configurations apart. Take the default, \
                  hierarchical:64 at a tick of 1 ms.";
    assert!(table.contains(reason), "{table}");
}

#[test]
fn a_person_gets_a_table_a_reason_and_a_line_to_paste() {
    let folder = TempDir::new().unwrap();
    let output = run(&[&trace_of(&folder, Shape::Short, 20_000), "--max-lateness", "10ms"]);
    assert!(output.stderr.is_empty());
    let table = text(&output.stdout);
    assert!(table.contains("18 configurations searched"), "{table}");
    for part in
        ["hierarchical:64", "score", "of 3 repetitions", "wake-ups", "Score: CPU time", "Take "]
    {
        assert!(table.contains(part), "{part:?} in {table}");
    }
    let last = table.lines().last().unwrap();
    assert!(last.starts_with("    Timer::builder()") && last.ends_with(".build()?"), "{table}");
    assert!(table.lines().all(|line| line.len() <= 80 || line.ends_with(['.', ':'])), "{table}");
    assert!(!table.contains('\u{1b}'), "{table}");
}

#[test]
fn json_says_all_that_was_searched() {
    let folder = TempDir::new().unwrap();
    let choice = json(&[&trace_of(&folder, Shape::Bursts, 20_000)]);
    assert_eq!(choice["operations"], 20_000);
    assert_eq!(choice["default"]["mode"], "hierarchical:64");
    assert_eq!(candidates(&choice).len(), 9);
    let name = |value: &Value| (value["mode"].clone(), value["tick"].clone());
    let unbeaten: Vec<_> = choice["unbeaten"].as_array().unwrap().iter().map(name).collect();
    assert_eq!(unbeaten[0], name(&choice["recommended"]));
    assert!(unbeaten.contains(&name(&choice["default"])));
    for candidate in candidates(&choice).iter().filter(|candidate| candidate["stopped"].is_null()) {
        for figure in ["score", "cpu_ns"] {
            let spread = ["least", "median", "most"];
            let spread = spread.map(|name| candidate[figure][name].as_f64().unwrap());
            assert!(spread.is_sorted() && 0.0 < spread[0], "{candidate}");
        }
        for count in ["rounds", "longest_call_ns", "memory_bytes", "wakeups", "fired"] {
            assert!(0 < candidate[count].as_u64().unwrap(), "{count} in {candidate}");
        }
    }
}

#[test]
fn arguments_are_checked_before_any_work() {
    let folder = TempDir::new().unwrap();
    let trace = trace_of(&folder, Shape::Short, 10);
    let cases: &[(&[&str], &str)] = &[
        (&["--max-lateness", "1ns"], "expected at least 1us"),
        (&["--max-lateness", "soon"], "expected a duration"),
        (&["--max-memory", "much"], "much"),
        (&["--wake-cost", "little"], "expected number"),
        (&["--operations", "0"], "number would be zero"),
    ];
    for (arguments, message) in cases {
        let output = command(&[&[&*trace][..], arguments].concat()).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains(message), "{}", text(&output.stderr));
        assert!(output.stdout.is_empty());
    }
    let broken = folder.path().join("broken.csv");
    fs::write(&broken, format!("{}\n0,schedule,1,-1\n", Trace::HEADER)).unwrap();
    let output = command(&[broken.to_str().unwrap()]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("broken.csv:2: found delay_ms `-1`"));
}

fn figures(candidate: &Candidate) -> &Figures {
    candidate.figures.as_ref().unwrap()
}

fn csv(shape: Shape, operations: u64) -> String {
    let size = Size { operations, ..Size::default() };
    let lines = Generator::new(shape, size, 5).map(|operation| format!("{operation}\n"));
    format!("{}\n{}", Trace::HEADER, lines.collect::<String>())
}

fn generated(shape: Shape, operations: u64) -> Trace {
    Trace::new("generated", Cursor::new(csv(shape, operations))).unwrap()
}

fn trace_of(folder: &TempDir, shape: Shape, operations: u64) -> String {
    let path: PathBuf = folder.path().join("trace.csv");
    fs::write(&path, csv(shape, operations)).unwrap();
    path.to_str().unwrap().into()
}

fn candidates(choice: &Value) -> &Vec<Value> {
    choice["candidates"].as_array().unwrap()
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_slice(&run(&[arguments, &["--json"]].concat()).stdout).unwrap()
}

fn run(arguments: &[&str]) -> Output {
    let output = command(arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    output
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tickwheel"));
    command.arg("choose").args(arguments).stdin(Stdio::null());
    // Where the figures need not agree.
    if !arguments.contains(&"--limit-time") {
        command.args(["--limit-time", "3s"]);
    }
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}
