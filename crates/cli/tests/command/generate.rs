//! What the command `tickwheel generate` promises.

use clap::ValueEnum;
use flate2::read::GzDecoder;
use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io::Read;
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;
use tickwheel_cli::generate::{Generator, Shape, Size};
use tickwheel_cli::trace::{Action, Operation};

#[test]
fn every_shape_does_to_live_keys_what_needs_live_keys() {
    for &shape in Shape::value_variants() {
        for (pending, operations) in
            [(1, 2_000), (7, 10_000), (1_000, crate::long(15_000, 100_000))]
        {
            let size = Size { operations, pending: pending.try_into().unwrap() };
            let (mut due, mut last_ms, mut count) = (HashMap::new(), 0, 0);
            for Operation { time_ms, key, action } in Generator::new(shape, size, 3) {
                assert!(last_ms <= time_ms && key < pending, "{shape:?}");
                let is_live = due.get(&key).is_some_and(|&due_ms| time_ms < due_ms);
                assert_eq!(is_live, !matches!(action, Action::Schedule { .. }), "{shape:?}");
                due.insert(key, action.delay_ms().map_or(0, |delay_ms| time_ms + delay_ms));
                (last_ms, count) = (time_ms, count + 1);
            }
            assert_eq!(count, operations, "{shape:?}");
        }
    }
}

#[test]
fn shapes_are_what_their_names_say() {
    let operations = |shape| {
        let size = Size { operations: crate::under_ci(100_000, 200_000), ..Size::default() };
        Generator::new(shape, size, 0).collect::<Vec<_>>()
    };
    let delays = |shape| {
        let operations = operations(shape);
        operations.iter().filter_map(|operation| operation.action.delay_ms()).collect::<Vec<_>>()
    };
    assert!(delays(Shape::Short).iter().all(|delay_ms| (1..=100).contains(delay_ms)));
    assert!(delays(Shape::OneDelay).iter().all(|&delay_ms| delay_ms == 30_000));

    // As many of each order of magnitude: a year has ten and a half, in ms.
    let year = delays(Shape::Year);
    for power in 0..10 {
        let range = 10_u64.pow(power)..10_u64.pow(power + 1);
        let share = year.iter().filter(|delay_ms| range.contains(delay_ms)).count() as f64
            / year.len() as f64;
        assert!((0.08..0.11).contains(&share), "{share} in {range:?}");
    }
    assert!(year.iter().all(|&delay_ms| delay_ms <= 365 * 86_400_000));

    let cancelled = operations(Shape::Cancelled);
    let cancels = cancelled.iter().filter(|operation| operation.action == Action::Cancel).count();
    assert!(cancelled.len() * 46 / 100 < cancels, "{cancels} of {}", cancelled.len());

    let bursts = operations(Shape::Bursts);
    let mut most_in_a_ms = HashMap::<_, usize>::new();
    bursts.iter().for_each(|operation| *most_in_a_ms.entry(operation.time_ms).or_default() += 1);
    assert!(most_in_a_ms.values().all(|&together| together <= 2_000));
    assert!(400 < bursts.len() / most_in_a_ms.len(), "{} instants", most_in_a_ms.len());
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let arguments = |seed| ["short", "--operations", "1000", "--seed", seed];
    let [first, second, other] = ["7", "7", "8"].map(|seed| generate(&arguments(seed)).stdout);
    assert_eq!(first, second);
    assert_ne!(first, other);
    let default = text(&generate(&["year", "--operations", "3"]).stdout);
    assert_eq!(default, YEAR);
}

#[test]
fn as_many_are_pending_as_asked_for() {
    let trace = text(&generate(&["one-delay", "--operations", "1e3", "--pending", "7"]).stdout);
    let keys: BTreeSet<_> = trace.lines().skip(1).filter_map(|it| it.split(',').nth(2)).collect();
    assert_eq!(keys, ["0", "1", "2", "3", "4", "5", "6"].into());
}

/// 3 visits in 2 ns, where a whole number of nanoseconds between them would be none.
#[test]
fn time_goes_on_however_many_may_be_pending() {
    let size = Size { operations: 1_500_001, pending: 150_000_000.try_into().unwrap() };
    let last = Generator::new(Shape::Short, size, 3).last().unwrap();
    assert_eq!(last.time_ms, 1);
}

/// In 4 GB of addresses, where all keys that there could be would take 64.
#[cfg(target_os = "linux")]
#[test]
fn memory_is_for_what_is_scheduled_and_not_for_what_might_be() {
    let tickwheel = env!("CARGO_BIN_EXE_tickwheel");
    let line = "ulimit -v 4000000; exec \"$0\" generate year --operations 1e3 --pending 4294967295";
    let output = Command::new("sh").args(["-c", line, tickwheel]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(output.stdout.iter().filter(|&&byte| byte == b'\n').count(), 1_001);
}

#[test]
fn every_shape_replays_without_a_surprise() {
    let folder = TempDir::new().unwrap();
    for shape in Shape::value_variants() {
        let name = shape.to_possible_value().unwrap();
        let name = name.get_name();
        let trace = folder.path().join("trace.csv.gz");
        let trace = trace.to_str().unwrap();
        generate(&[name, "--operations", "2000", "--pending", "300", "-o", trace]);
        let mode = ["--mode", "hierarchical", "--limit-time", "0s"];
        let output = run(&[&["replay", trace, "--json"][..], &mode].concat());
        let study: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let figures = &study["candidates"][0];
        assert_eq!(figures["ops"], 2000, "{name}");
        for surprise in ["replaced", "late_cancels", "late_reschedules"] {
            assert_eq!(figures[surprise], 0, "{surprise} of {name}");
        }
    }
}

#[test]
fn a_file_is_gzip_if_its_name_ends_so() {
    let folder = TempDir::new().unwrap();
    let arguments = ["bursts", "--operations", "5000"];
    let expected = generate(&arguments).stdout;
    for (name, is_packed) in [("trace.csv", false), ("trace.csv.gz", true), ("trace.GZ", true)] {
        let file = folder.path().join(name);
        let output = generate(&[&arguments[..], &["--output", file.to_str().unwrap()]].concat());
        assert!(output.stdout.is_empty() && output.stderr.is_empty());
        let mut bytes = fs::read(&file).unwrap();
        if is_packed {
            let packed = std::mem::take(&mut bytes);
            GzDecoder::new(&packed[..]).read_to_end(&mut bytes).unwrap();
        }
        assert!(bytes == expected, "{name}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
}

#[cfg(unix)]
#[test]
fn a_file_that_is_replaced_keeps_its_permissions() {
    use std::os::unix::fs::PermissionsExt;
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("trace.csv");
    // Both more than the umask lets a new file have, and less.
    for mode in [0o600, 0o666, 0o640] {
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        generate(&["short", "--operations", "3", "-o", file.to_str().unwrap()]);
        let written = fs::metadata(&file).unwrap();
        assert!(0 < written.len());
        assert_eq!(written.permissions().mode() & 0o777, mode, "{mode:o}");
    }
}

#[test]
fn more_than_fits_anywhere_streams_to_a_reader_who_has_had_enough() {
    let mut child = command(&["short", "--operations", "1000000000000000"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut start = vec![0; 1 << 20];
    child.stdout.as_mut().unwrap().read_exact(&mut start).unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(output.stderr.is_empty());
}

#[cfg(unix)]
#[test]
fn an_interrupt_leaves_nothing_behind() {
    for (name, signal) in
        [("trace.csv", "INT"), ("trace.csv.gz", "INT"), ("trace.csv", "TERM"), ("trace.csv", "HUP")]
    {
        assert_leaves_nothing(":", name, signal);
    }
}

/// As under `nohup`, or behind a script.
#[cfg(unix)]
#[test]
fn a_signal_that_is_ignored_hides_no_other() {
    for (ignored, signal) in [("HUP", "TERM"), ("INT", "TERM"), ("HUP", "INT"), ("TERM", "HUP")] {
        assert_leaves_nothing(&format!("trap '' {ignored}"), "trace.csv", signal);
    }
}

/// Asserts that `signal` ends the command after a shell has run `before`, and that no file stays.
#[cfg(unix)]
fn assert_leaves_nothing(before: &str, name: &str, signal: &str) {
    if crate::is_ignored(signal) {
        return;
    }
    let folder = TempDir::new().unwrap();
    let line = format!("{before}; exec \"$0\" generate short --operations 1e12 -o \"$1\"");
    let mut shell = Command::new("sh");
    shell.args(["-c", &line, env!("CARGO_BIN_EXE_tickwheel")]).arg(folder.path().join(name));
    let mut child = shell.stderr(Stdio::piped()).spawn().unwrap();
    // The file under its temporary name says that the command listens for the signal.
    while fs::read_dir(folder.path()).unwrap().count() == 0 {
        assert!(child.try_wait().unwrap().is_none(), "it ended");
        std::thread::yield_now();
    }
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(130), "{before}; {signal}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// As under `nohup`.
#[cfg(unix)]
#[test]
fn a_signal_that_is_ignored_stays_so() {
    let line = "trap '' HUP; exec \"$0\" generate short --operations 1e15";
    let mut shell = Command::new("sh");
    shell.args(["-c", line, env!("CARGO_BIN_EXE_tickwheel")]).stdout(Stdio::piped());
    let mut child = shell.spawn().unwrap();
    let mut output = child.stdout.take().unwrap();
    let mut read = |count| output.read_exact(&mut vec![0; count]).unwrap();
    read(1_000);
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-HUP", &pid]).status().unwrap().success());
    // Far more than it may have written before.
    read(1 << 20);
    drop(output);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// As a file that is read may have.
#[cfg(target_os = "linux")]
#[test]
fn a_name_that_is_no_text_is_written_to() {
    use std::os::unix::ffi::OsStrExt;
    let folder = TempDir::new().unwrap();
    let file = folder.path().join(std::ffi::OsStr::from_bytes(b"trace-\xff.csv"));
    let done = command(&["short", "--operations", "3", "-o"]).arg(&file).output().unwrap();
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    assert_eq!(fs::read_to_string(file).unwrap().lines().count(), 4);
}

#[test]
fn arguments_are_checked_before_any_work() {
    let folder = TempDir::new().unwrap();
    let nowhere = folder.path().join("nowhere/trace.csv");
    let cases: &[(&[&str], &str)] = &[
        (&["round"], "[possible values: short, one-delay, year, cancelled, bursts]"),
        (&["short", "--operations", "0"], "expected a whole number from 1 to "),
        (&["short", "--pending", "0"], "expected a whole number from 1 to "),
        (&["short", "--pending", "5e9"], "from 1 to 4294967295"),
        (&["short", "--seed", "x"], "invalid digit"),
        (&["short", "-o", nowhere.to_str().unwrap()], "nowhere"),
        (&["short", "-o", folder.path().to_str().unwrap()], "found a directory"),
    ];
    for (arguments, message) in cases {
        let output = command(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains(message), "{}", text(&output.stderr));
        assert!(output.stdout.is_empty());
    }
}

fn generate(arguments: &[&str]) -> Output {
    run(&[&["generate"][..], arguments].concat())
}

fn run(arguments: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_tickwheel")).args(arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    output
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tickwheel"));
    command.arg("generate").args(arguments).stdin(Stdio::null());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// What every version of the command makes of seed 0.
const YEAR: &str = "\
time_ms,op,key,delay_ms
0,schedule,5521,9
0,schedule,3776,8688891
36,schedule,4676,5039
";
