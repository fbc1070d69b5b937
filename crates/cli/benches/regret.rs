//! Is what `tickwheel choose` recommends as good as anything that it searched?
//!
//! First, for each trace, a full search measures all modes in many rounds, side by side with the
//! default. Then `choose` runs a few times on each trace: next is always the trace that had the
//! fewest runs. The traces are those of `shared/traces` beside the repository, where they are there,
//! the shapes of `tickwheel generate`, and 20 random mixtures.
//!
//! `cargo bench -p tickwheel-cli --bench regret -- [--results FILE] [--quick] [--operations N]
//! [--runs N] [--threads N] [--busy THREADS] [--minutes M] [--search S] [--sentences] [--seconds S]
//! [NAME]`
//!
//! What ends is kept in the file of results, line by line. The next call with this file goes on
//! where the last one ended, so a table of hours can be made in parts of minutes. The table has all
//! runs in the file, those beside loops apart.
//!
//! The regret of a choice is how much more it costs than the best of the full search: its interval,
//! of 99 %, is that of the worst choice. It is judged as "within 5 %" or "over 5 %" if all of it is,
//! and else as "wide". The regret by counted work is the same on every machine. A trace that is
//! unfit is not measured. Runs have the same answer if they take the same mode. Beside the answer
//! stands in how many of them the rounds could not tell.

use clap::{Parser, ValueEnum};
use fastrand::Rng;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fs::{self, File};
use std::hint::black_box;
use std::io::{Cursor, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};
use tickwheel_cli::generate::{Generator, Shape, Size};
use tickwheel_cli::report::{self, report};
use tickwheel_cli::study::{Configurations, Options, Study, study};
use tickwheel_cli::tick::Tick;
use tickwheel_cli::trace::{Action, Operation, Trace};
use wait4::Wait4;

#[derive(Parser)]
struct Arguments {
    /// The trace of this name, or else all whose names contain it.
    name: Option<String>,

    /// What is known already, to which what becomes known is added.
    #[arg(long)]
    results: Option<PathBuf>,

    /// Traces of 100,000 operations, if nothing else is said.
    #[arg(long)]
    quick: bool,

    /// The operations of a trace.
    #[arg(long)]
    operations: Option<usize>,

    /// How often to choose.
    #[arg(long, default_value_t = 20)]
    runs: usize,

    /// How many search or choose at a time.
    #[arg(long, default_value_t = 2)]
    threads: usize,

    /// Threads that turn in loops beside them.
    #[arg(long, default_value_t = 0)]
    busy: usize,

    /// Only print what `replay`, `choose` and `report` say of each of ten traces, side by side.
    #[arg(long)]
    sentences: bool,

    /// The CPU time for each of these sentences.
    #[arg(long, default_value_t = 30.0)]
    seconds: f64,

    /// When to begin nothing more.
    #[arg(long, default_value_t = 60.0)]
    minutes: f64,

    /// The CPU time of a full search, in seconds.
    #[arg(long, default_value_t = 20.0)]
    search: f64,

    #[arg(long, hide = true)]
    bench: bool,
}

fn main() {
    let arguments = Arguments::parse();
    let usual = if arguments.quick { 100_000 } else { 1_000_000 };
    let end = Instant::now() + Duration::from_secs_f64(60.0 * arguments.minutes);
    let mut traces = traces(arguments.operations.unwrap_or(usual));
    if let Some(wanted) = &arguments.name {
        let is_whole = traces.iter().any(|(name, _)| name == wanted);
        let is_wanted = |name: &str| if is_whole { name == wanted } else { name.contains(wanted) };
        traces.retain(|(name, _)| is_wanted(name));
    }
    if arguments.sentences {
        let time = Duration::from_secs_f64(arguments.seconds);
        return print_sentences(&traces[..traces.len().min(10)], time);
    }
    let mut known = arguments.results.as_deref().map_or_else(Known::default, Known::read);
    let mut file = arguments.results.as_deref().map(|path| {
        let is_cut = fs::read(path).is_ok_and(|all| all.last().is_some_and(|end| *end != b'\n'));
        let file = File::options().append(true).create(true).open(path);
        let mut file = file.expect("the results can be written");
        // What comes next does not get lost with the line of a call that was killed.
        if is_cut {
            writeln!(file).expect("the results can be written");
        }
        file
    });
    let traces: BTreeMap<_, _> = traces
        .iter()
        .map(|(name, operations)| (format!("{name}, {}", operations.len()), csv(operations)))
        .collect();
    let jobs = Mutex::new(known.missing(traces.keys(), &arguments).into_iter());
    let (send, done) = mpsc::channel();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..arguments.busy {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    black_box(0);
                }
            });
        }
        for _ in 0..arguments.threads {
            let (send, jobs, traces) = (send.clone(), &jobs, &traces);
            scope.spawn(move || {
                while Instant::now() < end {
                    let job = jobs.lock().expect("no iterator panics").next();
                    let Some(job) = job else { return };
                    let _ = send.send(job.run(traces));
                }
            });
        }
        drop(send);
        for line in done {
            if let Some(file) = &mut file {
                let line = serde_json::to_string(&line).expect("it is plain data");
                writeln!(file, "{line}").expect("the results can be written");
            }
            known.add(line);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    known.print(traces.keys());
}

/// Prints what the three commands say, and how often they contradict each other: one takes a mode
/// that another has measured and does not take.
fn print_sentences(traces: &[(String, Vec<Operation>)], time: Duration) {
    let mut contradictions = 0;
    for (name, operations) in traces {
        let csv = csv(operations);
        let modes = ["hierarchical:64", "hashed:512", "hashed:65536"];
        let modes = modes.map(|mode| mode.parse().expect("it is a mode")).into();
        let given = Configurations::Given { modes, tick: Tick::default() };
        let searched = Options { time, ..Options::default() };
        let given = Options { configurations: given, ..searched.clone() };
        let run = |options| study(trace(&csv), options, |_| ()).expect("it is sound");
        let options = report::Options { study: searched.clone(), ..report::Options::default() };
        let page = report(trace(&csv), &options, |_| ()).expect("it is sound");
        let (replay, choose) = (run(&given), run(&searched));
        let all = [("replay", &replay), ("choose", &choose), ("report", page.study())];
        println!("{name}");
        for (command, says) in all {
            println!("    {command}: {}", says.headline());
        }
        let taken = all.map(|(_, study)| study.recommended().map(|it| it.mode));
        let knows = |study: &Study, mode| {
            study.candidates.iter().any(|it| Some(it.mode) == mode && it.measured.is_some())
        };
        for (one, other) in [(0, 1), (0, 2), (1, 2)] {
            let is_known = knows(all[one].1, taken[other]) && knows(all[other].1, taken[one]);
            contradictions += usize::from(taken[one] != taken[other] && is_known);
        }
    }
    println!("{} traces, {contradictions} contradictions", traces.len());
}

/// What is known of the traces, each with the number of its operations.
#[derive(Default)]
struct Known {
    /// By mode, how many times as much as the default it costs: at least, and at most.
    searches: BTreeMap<String, BTreeMap<String, [f64; 2]>>,
    /// By the number of loops beside them.
    runs: BTreeMap<usize, BTreeMap<String, Vec<Run>>>,
}

/// A line of the file of results.
#[derive(Serialize, Deserialize)]
enum Line {
    Search { trace: String, modes: BTreeMap<String, [f64; 2]> },
    Run { trace: String, beside: usize, run: Run },
}

/// A run of `choose`.
#[derive(Serialize, Deserialize)]
struct Run {
    mode: String,
    answer: String,
    /// How much more it costs than the best, by counted work alone.
    counted: f64,
    cpu_seconds: f64,
}

/// What makes a line.
enum Job {
    /// Measures all modes that are not hopeless for so many seconds.
    Search(String, f64),
    /// Chooses beside so many loops.
    Choose(String, usize),
}

impl Job {
    fn run(self, traces: &BTreeMap<String, String>) -> Line {
        match self {
            Self::Search(trace, seconds) => {
                let run = |modes, time| {
                    let configurations = Configurations::Given { modes, tick: Tick::default() };
                    let options = Options { configurations, time, ..all() };
                    let full = study(self::trace(&traces[&trace]), &options, |_| ());
                    full.expect("it is sound").candidates
                };
                let counted = run(Options::default().configurations.modes(), Duration::ZERO);
                let scores = counted.iter().map(|it| it.figures.counted_score);
                let most = HOPELESS * scores.fold(f64::INFINITY, f64::min);
                let left = counted.iter().filter(|it| it.figures.counted_score <= most);
                let left = left.map(|it| it.mode).collect();
                let costs = run(left, Duration::from_secs_f64(seconds)).into_iter();
                let costs =
                    costs.filter_map(|it| Some((it.mode.to_string(), it.measured?.quotient)));
                let modes = costs.map(|(mode, at)| (mode, [at.least, at.most])).collect();
                Line::Search { trace, modes }
            }
            Self::Choose(trace, beside) => {
                let run = choose(&traces[&trace]);
                Line::Run { trace, beside, run }
            }
        }
    }
}

/// Runs the command, in a process of its own: in one that has measured before, memory that is left
/// can change the costs of modes by several percent.
fn choose(csv: &str) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tickwheel"));
    command.args(["choose", "--json", "--operations", &usize::MAX.to_string(), "-"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it runs");
    let mut input = child.stdin.take().expect("it is a pipe");
    input.write_all(csv.as_bytes()).expect("all is read");
    drop(input);
    let said: Value = serde_json::from_reader(child.stdout.take().expect("it is a pipe"))
        .expect("it printed one object");
    let spent = child.wait4().expect("it ends").rusage;
    let candidates = said["candidates"].as_array().expect("they are a list");
    let counted = |it: &Value| it["counted_score"].as_f64().unwrap_or(f64::INFINITY);
    let least = candidates.iter().map(counted).fold(f64::INFINITY, f64::min);
    let taken = &said["recommended"];
    let is_taken = |it: &&Value| it["mode"] == taken["mode"] && it["tick"] == taken["tick"];
    let mode = taken["mode"].as_str().unwrap_or("nothing").to_owned();
    let doubt = match (&said["unfit"], said["verdict"].as_str()) {
        (Value::Array(reasons), _) if !reasons.is_empty() => " (unfit)",
        (_, Some(verdict)) if verdict.contains("annot tell") => " (cannot tell)",
        _ => "",
    };
    Run {
        answer: format!("{mode}{doubt}"),
        mode,
        counted: candidates.iter().find(is_taken).map_or(f64::INFINITY, counted) / least - 1.0,
        cpu_seconds: (spent.utime + spent.stime).as_secs_f64(),
    }
}

impl Known {
    fn read(path: &Path) -> Self {
        let mut known = Self::default();
        let lines = fs::read_to_string(path).unwrap_or_default();
        // The last line can be cut.
        let lines = lines.lines().filter_map(|line| serde_json::from_str(line).ok());
        lines.for_each(|line| known.add(line));
        known
    }

    fn add(&mut self, line: Line) {
        match line {
            Line::Search { trace, modes } => {
                self.searches.insert(trace, modes);
            }
            Line::Run { trace, beside, run } => {
                self.runs.entry(beside).or_default().entry(trace).or_default().push(run);
            }
        }
    }

    /// What is to be done: all searches, then a run on each trace, then a second one.
    fn missing<'a>(
        &self,
        traces: impl Iterator<Item = &'a String> + Clone,
        arguments: &Arguments,
    ) -> Vec<Job> {
        let is_unknown = |trace: &&String| !self.searches.contains_key(*trace);
        let searches = traces.clone().filter(is_unknown);
        let searches = searches.map(|trace| Job::Search(trace.clone(), arguments.search));
        let beside = arguments.busy;
        let done =
            |trace| self.runs.get(&beside).and_then(|runs| runs.get(trace)).map_or(0, Vec::len);
        let turns = (0..arguments.runs).flat_map(|turn| {
            let traces = traces.clone().filter(move |&trace| done(trace) <= turn);
            traces.map(|trace| Job::Choose(trace.clone(), beside))
        });
        searches.chain(turns).collect()
    }

    fn print<'a>(&self, traces: impl Iterator<Item = &'a String> + Clone) {
        for (beside, runs) in &self.runs {
            println!(
                "\n{:27} {:>13} {:>8} {:12} {:>5} {:>5}  answers beside {beside} loops",
                "trace, operations", "regret, %", "counted", "judged", "same", "CPU s"
            );
            let (mut judged, mut steady) = (BTreeMap::new(), 0);
            let rows = traces.clone().filter_map(|trace| runs.get_key_value(trace));
            for (trace, runs) in rows {
                let mut answers: BTreeMap<_, usize> = BTreeMap::new();
                runs.iter().for_each(|run| *answers.entry(&run.answer).or_default() += 1);
                let mut taken: BTreeMap<_, usize> = BTreeMap::new();
                runs.iter().for_each(|run| *taken.entry(&run.mode).or_default() += 1);
                let same = taken.values().max().copied().unwrap_or(0);
                let regrets = runs.iter().filter_map(|run| self.regret(trace, &run.mode));
                let worst = regrets.max_by(|a, b| a.1.total_cmp(&b.1));
                let most = |of: fn(&Run) -> f64| runs.iter().map(of).fold(0.0, f64::max);
                println!(
                    "{trace:27} {:>13} {:>8.1} {:12} {same:>2}/{:<2} {:>5.1}  {}",
                    worst.map_or_else(
                        || "-".into(),
                        |(least, most)| format!("{:.1} to {:.1}", least * 100.0, most * 100.0),
                    ),
                    most(|run| run.counted) * 100.0,
                    judge(worst),
                    runs.len(),
                    most(|run| run.cpu_seconds),
                    answers
                        .iter()
                        .map(|(answer, runs)| format!("{runs} x {answer}"))
                        .collect::<Vec<_>>()
                        .join(", ")
                );
                *judged.entry(judge(worst)).or_insert(0) += 1;
                steady += usize::from(runs.len() * 19 <= same * 20);
            }
            let all: usize = judged.values().sum();
            let judged: Vec<_> =
                judged.iter().map(|(judged, rows)| format!("{judged}: {rows}")).collect();
            println!(
                "beside {beside} loops: {steady} of {all} traces with one answer in 19 of 20 runs; \
                 regret {}",
                judged.join(", ")
            );
        }
    }

    /// How much more a choice costs than the best of a full search: at least, and at most. None if
    /// nothing was measured, and without bounds if the choice was left out.
    fn regret(&self, trace: &str, taken: &str) -> Option<(f64, f64)> {
        let modes = self.searches.get(trace)?;
        if modes.is_empty() {
            return None;
        }
        let own = modes.get(taken).unwrap_or(&[f64::INFINITY; 2]);
        // No other than the choice itself is better than it.
        let best = |part: usize| {
            let others = modes.iter().filter(|&(mode, _)| mode != taken);
            others.map(|(_, cost)| cost[part]).fold(f64::INFINITY, f64::min)
        };
        let regret = |own: f64, best: f64| (own / best - 1.0).max(0.0);
        Some((regret(own[0], best(1)), regret(own[1], best(0))))
    }
}

fn judge(worst: Option<(f64, f64)>) -> &'static str {
    match worst {
        None => "not measured",
        Some((_, most)) if most <= 0.05 => "within 5 %",
        Some((least, _)) if 0.05 < least => "over 5 %",
        Some(_) => "wide",
    }
}

/// A search through all operations of a trace.
fn all() -> Options {
    Options { operations: usize::MAX, ..Options::default() }
}

fn traces(operations: usize) -> Vec<(String, Vec<Operation>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    let mut all = Vec::new();
    for name in
        ["jobs-gaia", "jobs-eagle", "cache-twitter52", "kvcache-mooncake", "rpc-onlineboutique"]
    {
        match Trace::open(&folder.join(name).with_extension("csv.gz")) {
            Ok(trace) => {
                let read = trace.take(operations).map(|read| read.expect("it is sound"));
                all.push((name.into(), read.collect()));
            }
            Err(error) => eprintln!("SKIPPED: {error}"),
        }
    }
    for &shape in Shape::value_variants() {
        let size = Size { operations: operations as u64, ..Size::default() };
        all.push((format!("{shape:?}"), Generator::new(shape, size, 5).collect()));
    }
    for seed in 0..20 {
        all.push((format!("mixture {seed}"), mixture(seed, operations)));
    }
    all
}

/// Two to four populations of delays, each with its own share of cancelled timeouts, moves and
/// bursts, under a load that is even or rises and falls.
fn mixture(seed: u64, operations: usize) -> Vec<Operation> {
    let mut random = Rng::with_seed(seed);
    let populations: Vec<_> =
        (0..random.usize(2..5)).map(|_| Population::new(&mut random)).collect();
    let mut mix = Mixture { random, ahead: BinaryHeap::new(), operations: Vec::new() };
    // Every second one goes on until the longest delays end.
    let per_second = 10_f64.powf(2.0 + 3.0 * mix.random.f64());
    let longest_ms = populations.iter().map(|it| it.delays[1]).fold(0.0, f64::max);
    let pause_ms = match seed % 2 {
        0 => 1_000.0 / per_second,
        _ => 20.0 * longest_ms / operations as f64,
    };
    let swing = if mix.random.bool() { 0.9 } else { 0.0 };
    let mut time_ms = 0.0_f64;
    let mut key = 0;
    while mix.operations.len() < operations {
        let population = &populations[mix.random.usize(..populations.len())];
        let load = 1.0 + swing * (time_ms / (60_000.0 * pause_ms)).sin();
        let pause = -(1.0 - mix.random.f64()).ln() * pause_ms / load;
        time_ms += pause * f64::from(population.together);
        mix.come_to(time_ms as u64, &populations);
        for _ in 0..population.together {
            key += 1;
            mix.schedule(time_ms as u64, key, population, &populations);
        }
    }
    mix.operations.truncate(operations);
    mix.operations
}

struct Population {
    /// From the shortest delay to the longest, in ms, by order of magnitude.
    delays: [f64; 2],
    cancelled: f64,
    moves: u32,
    /// Timeouts that are scheduled at one instant.
    together: u32,
}

/// A moved or cancelled timeout to come: when, its key, the moves that are left, its population.
type Ahead = Reverse<(u64, u32, u32, usize)>;

struct Mixture {
    random: Rng,
    ahead: BinaryHeap<Ahead>,
    operations: Vec<Operation>,
}

impl Population {
    fn new(random: &mut Rng) -> Self {
        const MONTH_MS: f64 = 30.0 * 86_400_000.0;
        let delays = [
            [3e4, 3e4],
            [1.0, 100.0],
            [100.0, 5e3],
            [1.0, 12.0 * MONTH_MS],
            [1e3, 1e3],
            [6e4, MONTH_MS],
        ];
        Self {
            delays: delays[random.usize(..delays.len())],
            cancelled: [0.0, 0.1, 0.5, 0.9, 0.99, 0.999][random.usize(..6)],
            moves: [0, 0, 1, 8][random.usize(..4)],
            together: [1, 1, 1, 500][random.usize(..4)],
        }
    }

    fn delay_ms(&self, random: &mut Rng) -> u64 {
        let [shortest, longest] = self.delays;
        (shortest * (longest / shortest).powf(random.f64())) as u64
    }
}

impl Mixture {
    fn schedule(&mut self, time_ms: u64, key: u32, population: &Population, all: &[Population]) {
        let delay_ms = population.delay_ms(&mut self.random);
        self.operations.push(Operation { time_ms, key, action: Action::Schedule { delay_ms } });
        let number = all.iter().position(|other| std::ptr::eq(other, population)).unwrap_or(0);
        self.follow((time_ms, key, population.moves, number), delay_ms, population.cancelled);
    }

    /// Moves and cancels what is to be moved and cancelled up to `time_ms`.
    fn come_to(&mut self, time_ms: u64, all: &[Population]) {
        while self.ahead.peek().is_some_and(|Reverse((at, ..))| *at <= time_ms) {
            let Some(Reverse((time_ms, key, moves, number))) = self.ahead.pop() else { return };
            let population = &all[number];
            let Some(moves) = moves.checked_sub(1) else {
                self.operations.push(Operation { time_ms, key, action: Action::Cancel });
                continue;
            };
            let delay_ms = population.delay_ms(&mut self.random);
            let action = Action::Reschedule { delay_ms };
            self.operations.push(Operation { time_ms, key, action });
            self.follow((time_ms, key, moves, number), delay_ms, population.cancelled);
        }
    }

    /// Plans the next move, or the cancellation. Most answers come early.
    fn follow(
        &mut self,
        (time_ms, key, moves, number): (u64, u32, u32, usize),
        delay_ms: u64,
        cancelled: f64,
    ) {
        let at = time_ms + (delay_ms as f64 * self.random.f64().powi(3)) as u64;
        if 0 < moves || self.random.f64() < cancelled {
            self.ahead.push(Reverse((at, key, moves, number)));
        }
    }
}

fn csv(operations: &[Operation]) -> String {
    let lines = operations.iter().map(|operation| format!("{operation}\n"));
    format!("{}\n{}", Trace::HEADER, lines.collect::<String>())
}

fn trace(csv: &str) -> Trace {
    Trace::new("generated", Cursor::new(csv.to_string())).expect("it has the header")
}

/// A full search leaves out what costs so many times as much as the best by counted work.
const HOPELESS: f64 = 2.0;
