//! What the command `tickwheel choose` promises.

use crate::{long, under_ci};
use clap::ValueEnum;
use serde_json::Value;
use std::fs;
use std::io::Cursor;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use tickwheel::Mode;
use tickwheel_cli::generate::{Generator, Shape, Size};
use tickwheel_cli::report::{self, report};
use tickwheel_cli::study::{Configurations, Driver, Options, Progress, Study, study};
use tickwheel_cli::tick::Tick;
use tickwheel_cli::trace::{Operation, Trace};

#[test]
fn every_configuration_of_a_tick_fires_the_same_timeouts() {
    for &shape in Shape::value_variants() {
        let found =
            counted(&csv(operations(shape, under_ci(800, 1_500))), Duration::from_millis(70));
        for tick in ["1ms", "10ms", "70ms"].map(|tick| tick.parse().unwrap()) {
            let done = found.candidates.iter().filter(|it| it.tick == tick && it.stopped.is_none());
            let fired: Vec<_> = done.map(|it| it.figures.fired_total).collect();
            assert!(1 < fired.len() && fired.iter().all(|count| *count == fired[0]), "{shape:?}");
        }
    }
}

#[test]
fn wakeups_and_lateness_are_counted_by_the_times_of_the_trace() {
    // Due at 1, 2, ... 100 ms, each woken for at a tick of 1 ms, and each tenth at 10 ms.
    let mut csv = format!("{}\n", Trace::HEADER);
    (1..=100).for_each(|key| csv += &format!("0,schedule,{key},{key}\n"));
    let found = counted(&csv, Duration::from_millis(10));
    let of = |tick: &str| {
        let tick = tick.parse().unwrap();
        let mode = "hashed:512".parse().unwrap();
        let candidate = found.candidates.iter().find(|it| it.tick == tick && it.mode == mode);
        let figures = &candidate.unwrap().figures;
        (figures.wakeups, figures.mean_lateness_ns, figures.max_lateness_ns)
    };
    assert_eq!(of("1ms"), (100, 0, 0));
    assert_eq!(of("10ms"), (10, 4_500_000, 9_000_000));
}

/// A program that loses its core for a fifth of the time does at once, when it has it again, what it
/// would have done meanwhile.
#[test]
fn a_program_that_was_recorded_on_a_busy_machine_counts_as_on_a_quiet_one() {
    let late = |it: Operation| {
        let time_ms = match it.time_ms % 100 {
            80.. => it.time_ms.next_multiple_of(100),
            _ => it.time_ms,
        };
        Operation { time_ms, ..it }
    };
    let count = long(2_000, 5_000);
    for &shape in Shape::value_variants() {
        let [quiet, busy] =
            [csv(operations(shape, count)), csv(operations(shape, count).map(late))]
                .map(|csv| counted(&csv, Duration::from_millis(1)));
        let relative = |study: &Study| -> Vec<f64> {
            let scores = study.candidates.iter().map(|it| it.figures.counted_score);
            scores.map(|score| score / study.candidates[0].figures.counted_score).collect()
        };
        for (quiet, busy) in relative(&quiet).into_iter().zip(relative(&busy)) {
            assert!((quiet / busy - 1.0).abs() < 0.03, "{shape:?}: {quiet} {busy}");
        }
        let [quiet, busy] = [&quiet, &busy].map(|it| it.recommended().map(|it| it.mode));
        assert_eq!(quiet, busy, "{shape:?}");
    }
}

/// Each timeout is demoted, and then handed out.
#[test]
fn the_work_of_a_timer_is_counted_whole_and_only_a_wheel_shows_a_longest_call() {
    let mut csv = format!("{}\n", Trace::HEADER);
    (0..3_000).for_each(|key| csv += &format!("0,schedule,{key},{}\n", 10_000 + key % 7));
    let found = |driver| {
        let options = Options { driver, time: Duration::ZERO, ..Options::default() };
        let trace = Trace::new("generated", Cursor::new(csv.clone())).unwrap();
        study(trace, &options, |_| ()).unwrap()
    };
    let [timer, wheel] = [Driver::Timer, Driver::Wheel].map(found);
    let counts = |study: &Study| -> Vec<_> {
        let figures = study.candidates.iter().map(|it| &it.figures);
        figures.map(|it| (it.work, it.longest_call)).collect()
    };
    assert_eq!(counts(&timer), counts(&wheel));
    let (work, longest_call) = counts(&timer)[0];
    assert!(6_000 <= work && 1_000 < longest_call, "{work}, {longest_call}");
    let shows = [timer, wheel].map(|study| study.to_string().contains("in the longest call"));
    assert_eq!(shows, [false, true]);
}

#[test]
fn ticks_are_searched_within_the_lateness_that_is_allowed() {
    let folder = TempDir::new().unwrap();
    let trace = trace_of(&folder, Shape::Cancelled, 100);
    for (lateness, expected) in [
        ("1us", &["1 us"][..]),
        ("1ms", &["1 ms"]),
        ("5ms", &["1 ms", "5 ms"]),
        ("1s", &["1 ms", "10 ms", "100 ms", "1 s"]),
        ("2d", &["1 ms", "10 ms", "100 ms", "1 s", "10 s", "1m 40s", "16m 40s", "1 h"]),
    ] {
        let choice = json(&[&trace, "--max-lateness", lateness]);
        let mut ticks: Vec<_> =
            candidates(&choice).iter().map(|it| it["tick"].as_str().unwrap()).collect();
        ticks.dedup();
        assert_eq!(ticks, expected);
    }
}

#[test]
fn a_longer_tick_is_taken_for_its_fewer_wakeups() {
    let folder = TempDir::new().unwrap();
    // So much else is done that only the wake-ups of the beats tell the ticks apart.
    let beat = |time_ms| {
        let requests = format!("{time_ms},schedule,0,300000\n{time_ms},cancel,0,\n").repeat(16);
        format!("{time_ms},schedule,{time_ms},{}\n{requests}", 50 + time_ms % 9)
    };
    let beats = (7..2_100).step_by(7).map(beat).collect::<String>();
    let trace = if under_ci(false, true) {
        trace_of(&folder, Shape::Year, 20_000)
    } else {
        file_of(&folder, format!("{}\n{beats}", Trace::HEADER))
    };
    let choice = json(&[&trace, "--max-lateness", "100ms"]);
    assert_eq!(choice["recommended"]["mode"], "hierarchical:64");
    assert_ne!(choice["recommended"]["tick"], "1 ms");
    let verdict = choice["verdict"].as_str().unwrap();
    assert!(verdict.contains(" because it wakes up "), "{verdict}");
    let code = choice["code"].as_str().unwrap();
    assert!(code.contains(".tick(Duration::from_"), "{code}");
}

#[test]
fn what_holds_too_much_memory_is_not_recommended() {
    let folder = TempDir::new().unwrap();
    let trace = trace_of(&folder, Shape::Year, 4_000);
    let choice = json(&[&trace, "--max-memory", "1MiB"]);
    let (over, within): (Vec<_>, Vec<_>) =
        candidates(&choice).iter().partition(|candidate| !candidate["stopped"].is_null());
    assert!(over.iter().any(|over| over["stopped"] == "over the limit of 1.0 MiB"), "{choice}");
    assert!(within.iter().all(|within| within["memory_bytes"].as_u64().unwrap() <= 1 << 20));
    assert!(!within.is_empty(), "{choice}");

    let choice = json(&[&trace, "--max-memory", "1KiB"]);
    assert_eq!((&choice["recommended"], &choice["code"]), (&Value::Null, &Value::Null));
    let table = text(&run(&[&trace, "--max-memory", "1KiB"]).stdout);
    // Time gives them no more: it limits what is measured.
    let said = "No configuration came to the end of the trace. `--max-memory` gives them more, and \
                `--operations` reads less of the trace.";
    assert!(table.contains(said), "{table}");
    assert!(table.contains("9 of them stopped early"), "{table}");
}

#[test]
fn no_more_operations_are_read_than_asked_for() {
    let folder = TempDir::new().unwrap();
    let trace = trace_of(&folder, Shape::Short, 2_000);
    for operations in ["1000", "1_000", "1e3"] {
        let table = text(&run(&[&trace, "--operations", operations]).stdout);
        assert!(table.contains(": the first 1,000 operations"), "{table}");
    }
    for operations in ["2000", "2001"] {
        let table = text(&run(&[&trace, "--operations", operations]).stdout);
        assert!(table.contains(": 2,000 operations"), "{table}");
    }
}

/// A program whose timeouts take 30 to 60 s was recorded for 4 s, and for 120 s.
#[test]
fn a_trace_that_is_too_short_for_its_delays_is_told_before_anything_is_measured() {
    let folder = TempDir::new().unwrap();
    for (seconds, per_second, is_short) in [(4, 250_u64, true), (120, 25, false)] {
        let mut csv = format!("{}\n", Trace::HEADER);
        for key in 0..seconds * per_second {
            csv += &format!(
                "{},schedule,{key},{}\n",
                1_000 * key / per_second,
                30_000 + key * 7919 % 30_000
            );
        }
        let path = file_of(&folder, csv);
        let choice = json(&[&path]);
        let verdict = choice["verdict"].as_str().unwrap();
        let told = "Cannot tell: the trace is too short for its delays. 100 % of its timeouts are \
                    pending at its end";
        assert_eq!(verdict.starts_with(told), is_short, "{verdict}");
        assert_eq!(choice["recommended"]["mode"], "hierarchical:64");
        assert_eq!(choice["rounds"], 0);
    }
}

/// A program that starts may do that much at one time, or at few.
#[test]
fn a_trace_of_an_instant_is_too_short_unless_its_timeouts_end_in_it() {
    for (times, delay_ms, end, is_short) in [
        (1, MONTH, "", true),
        (4, MONTH, "", true),
        (5, MONTH, "", true),
        (1, MONTH, "cancel", false),
        (1, 0, "", false),
        (4, 1, "", false),
        (1, 1_000, "1000,end,,\n", false),
        (1, 1_000, "999,end,,\n", true),
    ] {
        let mut csv = format!("{}\n0,begin,,\n", Trace::HEADER);
        for key in 0..5_000 {
            let now = key * times / 5_000;
            csv += &format!("{now},schedule,{key},{delay_ms}\n");
            if end == "cancel" {
                csv += &format!("{now},cancel,{key},\n");
            }
        }
        if end != "cancel" {
            csv += end;
        }
        let unfit = replayed(csv, Tick::default()).unfit;
        assert_eq!(!unfit.is_empty(), is_short, "{times} {delay_ms} {end}: {unfit:?}");
    }
}

/// All timeouts of a trace are pending at its end if it ends in the first tick.
#[test]
fn a_trace_shorter_than_a_tick_is_as_fit_as_at_a_shorter_one() {
    for (delay_ms, is_short) in [(1_000, false), (MONTH, true)] {
        let lines = (0..5_000).map(|key| format!("{},schedule,{key},{delay_ms}\n", 100 * key));
        let csv = format!("{}\n{}", Trace::HEADER, lines.collect::<String>());
        for tick in ["1ms", "1h"] {
            let unfit = replayed(csv.clone(), tick.parse().unwrap()).unfit;
            assert_eq!(!unfit.is_empty(), is_short, "{delay_ms} {tick}: {unfit:?}");
        }
    }
}

/// A cache moves its timeouts of a day again and again. A recording of minutes sees none of them
/// end, and yet has most of what the program does.
#[test]
fn a_trace_shorter_than_its_delays_is_judged_if_most_operations_find_their_timeouts() {
    let folder = TempDir::new().unwrap();
    for (moves, is_short) in [(1, true), (7, false)] {
        let mut csv = format!("{}\n", Trace::HEADER);
        for key in 0..under_ci(4_000, 8_000) / (1 + moves) {
            csv += &format!("{},schedule,{key},86400000\n", 50 * key);
            (0..moves).for_each(|_| csv += &format!("{},reschedule,{key},86400000\n", 50 * key));
        }
        let path = file_of(&folder, csv);
        let choice = json(&[&path]);
        let verdict = choice["verdict"].as_str().unwrap();
        assert_eq!(verdict.contains("too short for its delays"), is_short, "{verdict}");
        assert_eq!(choice["unfit"].as_array().unwrap().is_empty(), !is_short);
    }
}

/// Timeouts of 30 s for a minute, of which only the first seconds are read.
#[test]
fn operations_that_are_cut_off_are_told_and_not_blamed_on_the_recording() {
    let folder = TempDir::new().unwrap();
    let lines = (0..6_000).map(|key| format!("{},schedule,{key},30000\n", 10 * key));
    let path = file_of(&folder, format!("{}\n{}", Trace::HEADER, lines.collect::<String>()));
    for (operations, told) in [
        ("6000", "Cannot tell: nothing was measured"),
        (
            "1500",
            "Cannot tell: the first 1,500 operations of the trace are too few for its delays. \
             100 % of their timeouts are pending at their end, and their number still grows. They \
             last 15 s, and most delays are up to 30 s. `--operations` reads more. Take",
        ),
        ("500", "Cannot tell: only 500 operations were read. `--operations` reads more: "),
    ] {
        let choice = json(&[&path, "--operations", operations]);
        let verdict = choice["verdict"].as_str().unwrap();
        assert!(verdict.starts_with(told), "{verdict}");
        assert!(!verdict.contains("Record"), "{verdict}");
    }
}

#[test]
fn a_trace_that_cannot_tell_gets_the_default_tick() {
    let folder = TempDir::new().unwrap();
    let lines = (0..4).map(|key| format!("{key},schedule,{key},{}\n", 300 + 50 * key));
    let path = file_of(&folder, format!("{}\n{}", Trace::HEADER, lines.collect::<String>()));
    let choice = json(&[&path, "--max-lateness", "1s"]);
    assert!(choice["verdict"].as_str().unwrap().contains("only 4 operations"), "{choice}");
    assert_eq!(choice["code"], "Timer::builder().build()?");
}

#[test]
fn json_has_the_delays() {
    let folder = TempDir::new().unwrap();
    let lines = (1..=200).map(|key| format!("0,schedule,{key},{key}\n"));
    let path = file_of(&folder, format!("{}\n{}", Trace::HEADER, lines.collect::<String>()));
    let delays = r#"{"max":200,"min":1,"p50":100,"p90":180,"p99":198}"#;
    assert_eq!(json(&[&path])["delays_ms"].to_string(), delays);
    let path = file_of(&folder, format!("{}\n0,cancel,1,\n", Trace::HEADER));
    assert!(json(&[&path])["delays_ms"].is_null());
}

#[test]
fn a_trace_with_many_losses_is_told() {
    let folder = TempDir::new().unwrap();
    let recorded = csv(operations(Shape::Short, 2_000)).replacen('\n', "\n0,begin,,\n", 1);
    for (missing, is_told) in [(20, false), (21, true)] {
        let path = file_of(&folder, format!("{recorded}999999,missing,{missing},\n999999,end,,\n"));
        let choice = json(&[&path]);
        let verdict = choice["verdict"].as_str().unwrap();
        let told = verdict.starts_with(
            "Cannot tell: the trace has lost too many operations. 21 operations are missing, \
             beside 2,000 that are there. Record to a faster disk",
        );
        assert_eq!(told, is_told, "{verdict}");
    }
}

#[test]
fn a_person_gets_a_table_a_reason_and_a_line_to_paste() {
    let folder = TempDir::new().unwrap();
    let trace = trace_of(&folder, Shape::Short, 1_500);
    for (driver, begin, end) in
        [("timer", "    Timer::builder()", ".build()?"), ("wheel", "    (Wheel::new(", "))")]
    {
        let output = run(&[&trace, "--max-lateness", "10ms", "--for", driver]);
        assert!(output.stderr.is_empty());
        let table = text(&output.stdout);
        assert!(table.contains("18 configurations"), "{table}");
        for part in ["hierarchical:64", "score", "wake-ups", "Score: CPU time", "ake "] {
            assert!(table.contains(part), "{part:?} in {table}");
        }
        let last = table.lines().last().unwrap();
        assert!(last.starts_with(begin) && last.ends_with(end), "{table}");
        let is_too_wide = |line: &str| 80 < line.len() && !line.ends_with('.') && line != last;
        assert!(!table.lines().any(is_too_wide), "{table}");
        assert!(!table.contains('\u{1b}'), "{table}");
    }
}

#[test]
fn json_says_all_that_was_searched() {
    let folder = TempDir::new().unwrap();
    let choice = json(&[&trace_of(&folder, Shape::Bursts, 2_000)]);
    assert_eq!(choice["operations"], 2_000);
    assert_eq!(choice["baseline"]["mode"], "hierarchical:64");
    assert_eq!(candidates(&choice).len(), 9);
    for candidate in candidates(&choice).iter().filter(|candidate| candidate["stopped"].is_null()) {
        assert!(0.0 < candidate["counted_score"].as_f64().unwrap());
        for count in ["work", "longest_call", "memory_bytes", "wakeups", "fired_total"] {
            assert!(0 < candidate[count].as_u64().unwrap(), "{count} in {candidate}");
        }
    }
}

/// That something is measured, and not what.
#[test]
fn with_time_all_that_is_not_hopeless_is_measured() {
    let folder = TempDir::new().unwrap();
    let limit = under_ci("1s", "2s");
    let lines = (0..1_000).map(|key| format!("{key},schedule,{key},50\n"));
    let path = file_of(&folder, format!("{}\n{}", Trace::HEADER, lines.collect::<String>()));
    let choice = json(&[&path, "--limit-time", limit]);
    assert!(16 <= choice["rounds"].as_u64().unwrap(), "{choice}");
    for figure in ["score", "cpu_ns", "quotient"] {
        let interval = ["least", "median", "most"];
        let interval =
            interval.map(|name| candidates(&choice)[0]["measured"][figure][name].as_f64());
        assert!(interval.is_sorted() && Some(0.0) < interval[0], "{choice}");
    }
}

#[test]
fn progress_has_reading_counting_and_measuring() {
    let trace = Trace::new("generated", Cursor::new(csv(operations(Shape::Short, 9_000)))).unwrap();
    let mut said = Vec::new();
    let modes = ["hierarchical:64", "hashed:512"].map(|mode| mode.parse().unwrap()).into();
    let configurations = Configurations::Given { modes, tick: Default::default() };
    let time = Duration::from_secs(under_ci(1, 2));
    let options = Options { configurations, time, ..Options::default() };
    let found = study(trace, &options, |at| said.push(at)).unwrap();
    assert!(0 < found.rounds, "{said:?}");
    let (read, rest) = said.split_at(2);
    assert_eq!(read, [Progress::Read(4096), Progress::Read(8192)]);
    let (counted, measured) = rest.split_at(3);
    assert_eq!(counted, [0, 1, 2].map(|done| Progress::Counted(done, 2)));
    assert!(measured.iter().all(|at| matches!(at, Progress::Measured(_))), "{said:?}");
    assert_eq!(measured.len(), found.rounds);
}

#[test]
fn arguments_are_checked_before_any_work() {
    let folder = TempDir::new().unwrap();
    let trace = trace_of(&folder, Shape::Short, 10);
    let cases: &[(&[&str], &str)] = &[
        (&["--max-lateness", "1ns"], "expected at least 1us"),
        (&["--max-lateness", "soon"], "expected a duration"),
        (&["--max-memory", "much"], "expected a size, as in `512MiB`"),
        (&["--wake-cost", "little"], "expected number"),
        (&["--operations", "0"], "expected a whole number from 1 to "),
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

#[test]
fn replay_choose_and_report_say_the_same_of_ten_traces() {
    let shapes = Shape::value_variants().iter();
    for (&shape, number) in shapes.flat_map(|shape| [500, 3_000].map(|number| (shape, number))) {
        let csv = csv(operations(shape, number));
        let trace = || Trace::new("generated", Cursor::new(csv.clone())).unwrap();
        // Nothing is measured.
        let searched = Options { time: Duration::ZERO, ..Options::default() };
        let modes = searched.configurations.modes();
        let configurations = Configurations::Given { modes, tick: Tick::default() };
        let given = Options { configurations, ..searched.clone() };
        let headline = |options| study(trace(), options, |_| ()).unwrap().headline();
        let said = [headline(&given), headline(&searched)];
        let options = report::Options { study: searched, ..report::Options::default() };
        let page = report(trace(), &options, |_| ()).unwrap().to_string();
        assert_eq!(said[0], said[1], "{shape:?} {number}");
        assert!(page.contains(&format!("<p class=\"verdict\">{}</p>", said[0])), "{said:?}");
    }
}

#[test]
fn a_replay_of_the_modes_that_were_searched_or_taken_takes_the_same_of_every_recorded_trace() {
    let Some(folder) = crate::recorded() else { return };
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let traces: Vec<_> = files.filter(|path| path.extension() == Some("gz".as_ref())).collect();
    assert!(!traces.is_empty());
    for path in traces {
        // Nothing is measured.
        let searched = Options {
            operations: long(50_000, 1_000_000),
            time: Duration::ZERO,
            ..Options::default()
        };
        let run = |options: &Options| study(Trace::open(&path).unwrap(), options, |_| ()).unwrap();
        let replay = |modes, tick| {
            let configurations = Configurations::Given { modes, tick };
            run(&Options { configurations, ..searched.clone() })
        };
        let choice = run(&searched);
        let taken = choice.recommended().unwrap();
        let same_tick = choice.candidates.iter().filter(|it| it.tick == taken.tick);
        let all = replay(same_tick.clone().map(|it| it.mode).collect(), taken.tick);
        assert_eq!(all.headline(), choice.headline(), "{path:?}");
        assert!(all.candidates.iter().eq(same_tick), "{path:?}");
        let alone = replay(vec![taken.mode], taken.tick);
        assert_eq!(alone.recommended(), Some(taken), "{path:?}");
    }
}

/// Searches, and measures nothing.
fn counted(csv: &str, max_lateness: Duration) -> Study {
    let trace = Trace::new("generated", Cursor::new(csv.to_string())).unwrap();
    let configurations = Configurations::Search(max_lateness);
    let options = Options { configurations, time: Duration::ZERO, ..Options::default() };
    study(trace, &options, |_| ()).unwrap()
}

/// Replays a trace in the default mode at one tick, and measures nothing.
fn replayed(csv: String, tick: Tick) -> Study {
    let configurations = Configurations::Given { modes: vec![Mode::default()], tick };
    let options = Options { configurations, time: Duration::ZERO, ..Options::default() };
    study(Trace::new("generated", Cursor::new(csv)).unwrap(), &options, |_| ()).unwrap()
}

fn operations(shape: Shape, operations: u64) -> impl Iterator<Item = Operation> {
    Generator::new(shape, Size { operations, ..Size::default() }, 5)
}

fn csv(operations: impl Iterator<Item = Operation>) -> String {
    let lines = operations.map(|operation| format!("{operation}\n"));
    format!("{}\n{}", Trace::HEADER, lines.collect::<String>())
}

fn trace_of(folder: &TempDir, shape: Shape, number: u64) -> String {
    file_of(folder, csv(operations(shape, number)))
}

fn file_of(folder: &TempDir, csv: String) -> String {
    let path: PathBuf = folder.path().join("trace.csv");
    fs::write(&path, csv).unwrap();
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
    // Nothing is measured unless a test wants it.
    if !arguments.contains(&"--limit-time") {
        command.args(["--limit-time", "0s"]);
    }
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

const MONTH: u64 = 30 * 86_400_000;
