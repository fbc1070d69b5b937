//! Is what `tickwheel choose` recommends as good as anything that it searched?
//!
//! First, for each trace, a full search measures all modes in many rounds, side by side with the
//! default. Then, turn by turn, `choose` runs a few times on each trace, on the machine as it is and
//! beside threads that turn in loops. Each row has all runs so far, so that a table that is cut off
//! says something, too. The traces are those of `shared/traces` beside the repository, where they
//! are there, the shapes of `tickwheel generate`, and 20 random mixtures.
//!
//! `cargo bench -p tickwheel-cli --bench regret -- [--quick | --short] [--operations N] [--runs N]
//! [--threads N] [--busy THREADS] [--minutes M] [--sentences] [--seconds S] [NAME]`
//!
//! The regret of a choice is how much more it costs than the best of the full search: its interval,
//! of 99 %, is that of the worst choice. It is judged as "within 5 %" or "over 5 %" if all of it is,
//! and else as "wide". The regret by counted work is the same on every machine. A trace that is
//! unfit is not measured.

use clap::{Parser, ValueEnum};
use cpu_time::ThreadTime;
use fastrand::Rng;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::hint::black_box;
use std::io::Cursor;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tickwheel_cli::generate::{Generator, Shape, Size};
use tickwheel_cli::report::{self, report};
use tickwheel_cli::study::{Candidate, Configurations, Interval, Options, Study, study};
use tickwheel_cli::tick::Tick;
use tickwheel_cli::trace::{Action, Operation, Trace};

#[derive(Parser)]
struct Arguments {
    /// The trace of this name, or else all whose names contain it. So a full table can be made in
    /// pieces, a trace per call.
    name: Option<String>,

    /// Traces of 100,000 operations, if nothing else is said.
    #[arg(long)]
    quick: bool,

    /// Some ten minutes: quick; the ten traces whose answer is the most doubtful, in 4 runs each,
    /// and cache-twitter52 in 20.
    #[arg(long)]
    short: bool,

    /// The operations of a trace.
    #[arg(long)]
    operations: Option<usize>,

    /// How often to choose, quiet and busy.
    #[arg(long, default_value_t = 20)]
    runs: usize,

    /// How many choose at a time on the machine as it is.
    #[arg(long, default_value_t = 2)]
    threads: usize,

    /// Threads that turn in loops beside the busy runs; 0 leaves these runs out.
    #[arg(long, default_value_t = 8)]
    busy: usize,

    /// Only print what `replay`, `choose` and `report` say of each of ten traces, side by side.
    #[arg(long)]
    sentences: bool,

    /// The CPU time for each of these sentences.
    #[arg(long, default_value_t = 30.0)]
    seconds: f64,

    /// When to begin no more runs: 60, or 10 if it is short. A sixth of this goes to the full
    /// searches.
    #[arg(long)]
    minutes: Option<f64>,

    #[arg(long, hide = true)]
    bench: bool,
}

fn main() {
    let arguments = Arguments::parse();
    let usual = if arguments.quick || arguments.short { 100_000 } else { 1_000_000 };
    let minutes = arguments.minutes.unwrap_or(if arguments.short { 10.0 } else { 60.0 });
    let end = Instant::now() + Duration::from_secs_f64(60.0 * minutes);
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
    let each = Duration::from_secs_f64(10.0 * minutes / traces.len().max(1) as f64);
    let new = |(name, operations): &(String, Vec<_>)| {
        let runs = match arguments.short && name != STEADY {
            true => FEW_RUNS,
            false => arguments.runs,
        };
        Subject::new(name, operations, each, runs)
    };
    let mut subjects: Vec<_> = traces.iter().map(new).collect();
    if arguments.short {
        subjects.sort_by(|a, b| b.doubt().total_cmp(&a.doubt()));
        subjects.truncate(FEW_TRACES);
    }
    let mut besides = vec![0, arguments.busy];
    besides.dedup();
    for _ in 0..arguments.runs.div_ceil(RUNS_PER_TURN) {
        for (row, &beside) in besides.iter().enumerate() {
            if end <= Instant::now() {
                return;
            }
            println!(
                "\n{:17} {:>13} {:>8} {:12} {:>5} {:>5}  answers beside {beside} loops",
                "trace", "regret, %", "counted", "judged", "same", "CPU s"
            );
            // Beside loops, each run gets a small part of a core.
            let threads = if beside == 0 { arguments.threads } else { RUNS_PER_TURN };
            let is_over = AtomicBool::new(false);
            thread::scope(|scope| {
                for _ in 0..beside {
                    scope.spawn(|| {
                        while !is_over.load(Ordering::Relaxed) {
                            black_box(0);
                        }
                    });
                }
                for subject in &mut subjects {
                    let missing = subject.runs - subject.rows[row].runs();
                    let mut left = missing.min(RUNS_PER_TURN);
                    while 0 < left && Instant::now() < end {
                        let now = left.min(threads);
                        subject.choose(row, now);
                        left -= now;
                    }
                    subject.rows[row].print(&subject.name);
                }
                is_over.store(true, Ordering::Relaxed);
            });
            print_sum(&subjects, row, beside);
        }
    }
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

/// A trace, what it costs in every mode, and what was chosen for it.
struct Subject {
    name: String,
    csv: String,
    full: Study,
    /// How often to choose.
    runs: usize,
    /// On the machine as it is, and beside loops.
    rows: [Row; 2],
}

/// The runs of `choose` on one trace.
#[derive(Default)]
struct Row {
    answers: BTreeMap<String, usize>,
    /// The regret of the worst choice.
    worst: Option<(f64, f64)>,
    counted: f64,
    most_cpu: Duration,
}

impl Subject {
    fn new(name: &str, operations: &[Operation], most: Duration, runs: usize) -> Self {
        let csv = csv(operations);
        let begun = ThreadTime::now();
        let full = full_search(&csv, most);
        let best = full.candidates.iter().filter_map(|it| Some((quotient(it)?, it.mode)));
        let best = best.min_by(|a, b| a.0.median.total_cmp(&b.0.median));
        let best = best.map_or_else(String::new, |(at, mode)| {
            format!(": {mode} costs {:.3} to {:.3} of the default", at.least, at.most)
        });
        let (rounds, seconds) = (full.rounds, begun.elapsed().as_secs_f64());
        println!("full search of {name}, {rounds} rounds in {seconds:.1} s{best}");
        Self { name: name.into(), csv, full, runs, rows: Default::default() }
    }

    /// How likely noise changes the answer: the width of the interval that is the nearest to where
    /// the default is no longer taken, beside its distance from there.
    fn doubt(&self) -> f64 {
        if self.name == STEADY {
            return f64::INFINITY;
        }
        let others = self.full.candidates.iter().filter_map(quotient);
        let doubts = others.map(|it| (it.most - it.least) / (it.median - BORDER).abs());
        doubts.fold(0.0, f64::max)
    }

    /// Chooses once in each of so many threads.
    fn choose(&mut self, row: usize, threads: usize) {
        let run = || {
            let begun = ThreadTime::now();
            let options = Options { operations: usize::MAX, ..Options::default() };
            let choice = study(trace(&self.csv), &options, |_| ());
            (choice.expect("it is sound"), begun.elapsed())
        };
        let choices: Vec<_> = thread::scope(|scope| {
            let runs: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
            runs.into_iter().map(|run| run.join().expect("it does not panic")).collect()
        });
        let row = &mut self.rows[row];
        for (choice, cpu) in choices {
            *row.answers.entry(answer(&choice)).or_default() += 1;
            row.most_cpu = row.most_cpu.max(cpu);
            row.counted = row.counted.max(counted_regret(&choice));
            let worse = regret(&choice, &self.full).into_iter().chain(row.worst);
            row.worst = worse.max_by(|a, b| a.1.total_cmp(&b.1));
        }
    }
}

impl Row {
    fn runs(&self) -> usize {
        self.answers.values().sum()
    }

    fn same(&self) -> usize {
        self.answers.values().max().copied().unwrap_or(0)
    }

    fn print(&self, name: &str) {
        let told = self.worst.map_or_else(
            || "-".into(),
            |(least, most)| format!("{:.1} to {:.1}", least * 100.0, most * 100.0),
        );
        let answers = self.answers.iter().map(|(answer, runs)| format!("{runs} x {answer}"));
        println!(
            "{name:17} {told:>13} {:>8.1} {:12} {:>2}/{:<2} {:>5.1}  {}",
            self.counted * 100.0,
            self.judged(),
            self.same(),
            self.runs(),
            self.most_cpu.as_secs_f64(),
            answers.collect::<Vec<_>>().join(", ")
        );
    }

    fn judged(&self) -> &'static str {
        match self.worst {
            None if self.runs() == 0 => "no time",
            None => "not measured",
            Some((_, most)) if most <= 0.05 => "within 5 %",
            Some((least, _)) if 0.05 < least => "over 5 %",
            Some(_) => "wide",
        }
    }
}

/// Prints what all runs so far, as it is or beside so many loops, come to.
fn print_sum(subjects: &[Subject], row: usize, beside: usize) {
    let mut judged: BTreeMap<_, usize> = BTreeMap::new();
    let mut steady = 0;
    for row in subjects.iter().map(|subject| &subject.rows[row]) {
        *judged.entry(row.judged()).or_default() += 1;
        steady += usize::from(0 < row.runs() && row.runs() * 19 <= row.same() * 20);
    }
    let judged: Vec<_> = judged.iter().map(|(judged, rows)| format!("{judged}: {rows}")).collect();
    println!(
        "beside {beside} loops: {steady} of {} traces with one answer in 19 of 20 runs; regret {}",
        subjects.len(),
        judged.join(", ")
    );
}

/// All modes, measured in as many rounds as fit into `most`.
fn full_search(csv: &str, most: Duration) -> Study {
    let modes = Options::default().configurations.modes();
    let configurations = Configurations::Given { modes, tick: Tick::default() };
    let options = Options {
        configurations,
        slower: 2,
        operations: usize::MAX,
        time: most,
        ..Options::default()
    };
    study(trace(csv), &options, |_| ()).expect("it is sound")
}

/// What was recommended, and whether the trace and the rounds could tell.
fn answer(choice: &Study) -> String {
    let taken =
        choice.recommended().map_or_else(|| "nothing".into(), |taken| taken.mode.to_string());
    match choice.is_known() {
        true => taken,
        false if choice.unfit.is_empty() => format!("{taken} (cannot tell)"),
        false => format!("{taken} (unfit)"),
    }
}

/// How much more a choice costs than the best of a full search: at least, and at most. None if that
/// was not measured, and without bounds if the search stopped the choice.
fn regret(choice: &Study, full: &Study) -> Option<(f64, f64)> {
    let taken = choice.recommended()?.mode;
    let own = full.candidates.iter().find(|it| it.mode == taken)?;
    if own.stopped.is_some() {
        return Some((f64::INFINITY, f64::INFINITY));
    }
    let own = quotient(own)?;
    let others = full.candidates.iter().filter(|it| it.mode != taken).filter_map(quotient);
    // No other than the choice itself is better than it.
    let least = |part: fn(&Interval) -> f64| {
        others.clone().map(|other| part(&other)).fold(f64::INFINITY, f64::min)
    };
    let regret = |own: f64, best: f64| (own / best - 1.0).max(0.0);
    Some((regret(own.least, least(|it| it.most)), regret(own.most, least(|it| it.least))))
}

/// How much more a choice costs than the best, by counted work alone.
fn counted_regret(choice: &Study) -> f64 {
    let scores = choice.candidates.iter().map(|it| it.figures.counted_score);
    let own = choice.recommended().map_or(f64::INFINITY, |it| it.figures.counted_score);
    own / scores.fold(f64::INFINITY, f64::min) - 1.0
}

fn quotient(candidate: &Candidate) -> Option<Interval> {
    candidate.measured.as_ref().map(|at| at.quotient)
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

/// Below this share of its cost, the default is not taken.
const BORDER: f64 = 0.955;

/// The trace that is run the most often in any case: two of its modes cost the same.
const STEADY: &str = "cache-twitter52";

/// The traces of the short form, and how often it runs all but [`STEADY`].
const FEW_TRACES: usize = 10;
const FEW_RUNS: usize = 4;

/// As many runs are made on one trace before the next trace gets its turn.
const RUNS_PER_TURN: usize = 8;
