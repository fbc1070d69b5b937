//! Did one of the ten hottest paths get slower?
//!
//! Counts the instructions of an operation under valgrind, and compares them with those kept in
//! `instructions.txt`. Fails where a path takes over 3 % more; times on a busy machine could not
//! tell.
//!
//! `cargo bench -p tickwheel --bench instructions`, with `-- --keep` to keep what it counts now.

mod report;

use fastrand::Rng;
use report::table;
use std::collections::BTreeMap;
use std::env::{self, consts};
use std::fs;
use std::hint::black_box;
use std::process::{Command, ExitCode};
use std::time::Duration;
use tickwheel::{Key, ManualClock, Mode, Timer, Wheel};

/// A name, how many operations are counted, and what runs so many after preparing all they need.
type Path = (&'static str, u64, fn(u64));

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().collect();
    if let Some(at) = arguments.iter().position(|argument| argument == RUN) {
        let is_asked_for = |path: &Path| path.0 == arguments[at + 1];
        let (_, operations, run) = PATHS.into_iter().find(is_asked_for).expect("a path");
        run(operations);
        return ExitCode::SUCCESS;
    }
    let compiler = compiler();
    let has_valgrind = Command::new("valgrind").arg("--version").output().is_ok();
    if arguments.iter().any(|argument| argument == "--keep") {
        assert!(!cfg!(debug_assertions) && has_valgrind, "it takes a release build and valgrind");
        keep(&compiler);
        return ExitCode::SUCCESS;
    }
    let text = fs::read_to_string(KEPT).expect("instructions.txt is there");
    let mut lines = text.lines().filter(|line| !line.starts_with('#'));
    let kept_with = lines.next().expect("the compiler comes first");
    if cfg!(debug_assertions) {
        println!("skipped: this is not a release build");
    } else if !has_valgrind {
        println!("skipped: valgrind is not installed");
    } else if compiler != kept_with {
        println!("skipped: kept with {kept_with}, and this is {compiler}; {KEEP}");
    } else {
        let kept = lines.map(|line| {
            let (name, figure) = line.split_once(' ').expect("a name and a figure");
            (name, figure.trim().parse().expect("a figure"))
        });
        return compare(kept.collect());
    }
    ExitCode::SUCCESS
}

fn compare(mut kept: BTreeMap<&str, f64>) -> ExitCode {
    let mut table = table(["path", "kept", "now", "more, %"]);
    let (mut failures, mut remarks) = (Vec::new(), Vec::new());
    for (name, operations, _) in PATHS {
        let now = count(name, operations);
        let Some(kept) = kept.remove(name) else {
            failures.push(format!("{name}: now {now:.2} instructions, and none kept"));
            continue;
        };
        let more = now / kept - 1.0;
        let [kept, now] = [kept, now].map(|figure| format!("{figure:.2}"));
        table.add_row([name, &kept, &now, &format!("{:+.1}", more * 100.0)]);
        if TOLERATED < more {
            failures.push(format!("{name}: callgrind_annotate {}", profile(name)));
        } else if more < -TOLERATED {
            remarks.push(format!("{name} is better; please keep that: {KEEP}"));
        }
    }
    failures.extend(kept.keys().map(|name| format!("{name}: kept, and there is no such path")));
    println!("Instructions per operation\n{table}");
    remarks.iter().for_each(|remark| println!("{remark}"));
    failures.iter().for_each(|failure| println!("FAILED {failure}"));
    if failures.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("Make it cheaper, or keep the new figures in the same commit and say why: {KEEP}");
    ExitCode::FAILURE
}

fn keep(compiler: &str) {
    let mut text = format!("# Instructions per operation, written by\n# {KEEP}\n{compiler}\n");
    for (name, operations, _) in PATHS {
        text += &format!("{name:20}{:9.2}\n", count(name, operations));
    }
    print!("{text}");
    fs::write(KEPT, text).expect("instructions.txt can be written");
}

/// Counts depend on it, and on the kind of processor.
fn compiler() -> String {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("--version").output().expect("rustc runs");
    let version = String::from_utf8(output.stdout).expect("a version");
    format!("{}, {}", version.trim(), consts::ARCH)
}

/// Where callgrind says what it counted.
fn profile(name: &str) -> String {
    format!("{}/callgrind.{name}.out", env!("CARGO_TARGET_TMPDIR"))
}

/// The instructions of each operation, to two digits.
fn count(name: &str, operations: u64) -> f64 {
    let output = Command::new("valgrind")
        // The C library would take the way to copy that is best on this processor.
        .env("GLIBC_TUNABLES", "glibc.cpu.hwcaps=-AVX2,-AVX_Fast_Unaligned_Load,-SSSE3,-ERMS")
        .args(["--tool=callgrind", "--toggle-collect=*what_is_counted*"])
        .arg(format!("--callgrind-out-file={}", profile(name)))
        .arg(env::current_exe().expect("this program has a path"))
        .args([RUN, name])
        .output()
        .expect("valgrind is installed");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} under valgrind: {said}");
    let (_, collected) = said.rsplit_once("Collected :").expect("callgrind says what it counted");
    let total = collected.split_whitespace().next().and_then(|total| total.parse::<u64>().ok());
    let total = total.expect("callgrind counts one kind of event");
    assert!(operations <= total, "{name}: nothing was counted");
    (total as f64 / operations as f64 * 100.0).round() / 100.0
}

/// All that is counted, found by its name.
#[inline(never)]
fn what_is_counted(work: impl FnOnce()) {
    work();
}

// The paths. A tick is a millisecond, and delays are drawn evenly up to the longest.

fn wheel(mode: &str) -> Wheel<u64> {
    Wheel::new(mode.parse().expect("a mode"))
}

fn draw(count: u64, bound: u64) -> Vec<u64> {
    let mut rng = Rng::with_seed(1);
    (0..count).map(|_| rng.u64(..bound)).collect()
}

/// Schedules so many, and returns their keys in random order.
fn fill(wheel: &mut Wheel<u64>, count: u64, longest: u64) -> Vec<Key> {
    let schedule = |delay| wheel.schedule(1 + delay, delay);
    let mut keys: Vec<Key> = draw(count, longest).into_iter().map(schedule).collect();
    for (at, other) in draw(count, count).into_iter().enumerate() {
        keys.swap(at, other as usize);
    }
    keys
}

/// As an event loop would that has nothing else to do. Returns how many there were.
fn fire_all(wheel: &mut Wheel<u64>) -> u64 {
    let mut fired = 0;
    while let Some(wake) = wheel.next_wake() {
        while let Some(expired) = wheel.expire(wake) {
            black_box(expired);
            fired += 1;
        }
    }
    fired
}

/// Into a new wheel, so that it grows meanwhile.
fn schedule(operations: u64) {
    let mut wheel = wheel("hierarchical:64");
    let delays = draw(operations, MINUTE);
    what_is_counted(|| {
        for &delay in &delays {
            black_box(wheel.schedule(1 + delay, delay));
        }
    });
}

/// Half of those that wait, so that stale entries need not be swept.
fn cancel(operations: u64) {
    let mut wheel = wheel("hierarchical:64");
    let keys = fill(&mut wheel, 2 * operations, MINUTE);
    what_is_counted(|| {
        for &key in &keys[..operations as usize] {
            black_box(wheel.cancel(key));
        }
    });
    assert_eq!(wheel.len() as u64, operations);
}

/// Each has been moved before, so that stale entries are swept.
fn reschedule(operations: u64) {
    let mut wheel = wheel("hierarchical:64");
    let keys = fill(&mut wheel, operations, MINUTE);
    let delays = draw(5 * operations, MINUTE);
    let mut moves = keys.iter().cycle().zip(&delays);
    for (&key, delay) in moves.by_ref().take(4 * operations as usize) {
        wheel.reschedule(key, 1 + delay);
    }
    what_is_counted(|| {
        for (&key, delay) in moves {
            black_box(wheel.reschedule(key, 1 + delay));
        }
    });
    assert!(wheel.stats().stale < 4 * operations as usize, "some were swept");
}

/// A request comes, and a random one of a thousand is answered: one is scheduled, one cancelled.
fn replace(operations: u64) {
    let live = 1_000;
    let mut wheel = wheel("hierarchical:64");
    let mut keys = fill(&mut wheel, live, MINUTE);
    let delays = draw(2 * operations, MINUTE);
    let others = draw(2 * operations, live);
    let mut replace = |(&delay, &other): (&u64, &u64)| {
        let key = &mut keys[other as usize];
        black_box(wheel.cancel(*key));
        *key = wheel.schedule(1 + delay, delay);
    };
    let mut pairs = delays.iter().zip(&others);
    pairs.by_ref().take(operations as usize).for_each(&mut replace);
    what_is_counted(|| pairs.for_each(replace));
}

/// Returns the wheel when all have fired.
fn expire(mode: &str, operations: u64, longest: u64) -> Wheel<u64> {
    let mut wheel = wheel(mode);
    fill(&mut wheel, operations, longest);
    let mut fired = 0;
    what_is_counted(|| fired = fire_all(&mut wheel));
    assert_eq!(fired, operations);
    wheel
}

/// Time goes on tick by tick, and the only timeout is far away.
fn empty_poll(operations: u64) {
    let mut wheel = wheel("hierarchical:64");
    wheel.schedule(u64::MAX, 0);
    what_is_counted(|| {
        for now in 1..=operations {
            black_box(wheel.expire(black_box(now)).is_none());
        }
    });
}

/// A round is half a second, so that a timeout waits for a hundred rounds.
fn hashed_expire(operations: u64) {
    let wheel = expire("hashed:512", operations, MINUTE);
    assert!(operations < wheel.stats().rounds_waited);
}

/// All are scheduled and all fired, within one round.
fn hashed_pass(operations: u64) {
    let mut wheel = wheel("hashed:65536");
    let delays = draw(operations, MINUTE);
    let mut fired = 0;
    what_is_counted(|| {
        for &delay in &delays {
            black_box(wheel.schedule(1 + delay, delay));
        }
        fired = fire_all(&mut wheel);
    });
    assert_eq!(fired, operations);
    assert_eq!(wheel.stats().rounds_waited, 0);
}

/// One thread schedules and cancels, one at a time, while the worker sleeps.
fn timer(operations: u64) {
    let clock = ManualClock::new();
    let mode = Mode::hierarchical();
    let timer = Timer::builder().mode(mode).shards(1).clock(clock.clone()).build().expect("good");
    // The worker starts with the first timeout, and sleeps when that has fired. A cancelled timeout
    // may be what it was to wake up for, so one stays that is earlier than all.
    timer.schedule(Duration::ZERO, || {}).expect("it runs, and has no limit");
    timer.schedule(Duration::from_secs(1), || {}).expect("it runs, and has no limit");
    clock.advance(Duration::from_millis(1));
    what_is_counted(|| {
        for _ in 0..operations {
            let captured = black_box(7_u64);
            let task = move || {
                black_box(captured);
            };
            let timeout = timer.schedule(Duration::from_secs(30), task).expect("it runs");
            black_box(timeout.cancel());
        }
    });
    assert_eq!(timer.stats().cancelled, operations);
}

const PATHS: [Path; 10] = [
    ("schedule", 10_000, schedule),
    ("cancel", 10_000, cancel),
    ("reschedule", 10_000, reschedule),
    ("replace-1k", 10_000, replace),
    // As dense as a million over a minute. Most are demoted once or twice.
    ("expire-dense", 100_000, |operations| _ = expire("hierarchical:64", operations, MINUTE / 10)),
    ("expire-sparse", 100_000, |operations| _ = expire("hierarchical:64", operations, DAY)),
    ("empty-poll", 10_000, empty_poll),
    ("hashed-512-expire", 10_000, hashed_expire),
    ("hashed-65536-pass", 100_000, hashed_pass),
    ("timer", 10_000, timer),
];

/// A path may take so much more or less than what was kept.
const TOLERATED: f64 = 0.03;

const KEPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/instructions.txt");
const KEEP: &str = "cargo bench -p tickwheel --bench instructions -- --keep";

/// The argument that, with the name of a path, makes the process run that and nothing else.
const RUN: &str = "--run";

const MINUTE: u64 = 60_000;
const DAY: u64 = 86_400_000;
