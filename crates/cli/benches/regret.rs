//! Is what `tickwheel choose` recommends as good as anything that it searched?
//!
//! For each trace, a full search measures all modes in many rounds. Then `choose` runs several times,
//! and its regret is how much more its choice costs than the best of the full search. The traces are
//! those of `shared/traces` beside the repository, where they are there, the shapes of `tickwheel
//! generate`, and 20 random mixtures.
//!
//! `cargo bench -p tickwheel-cli --bench regret -- [--quick] [--runs N] [--busy THREADS] [NAME]`
//!
//! `--busy` lets so many threads turn in loops beside it.

use clap::{Parser, ValueEnum};
use fastrand::Rng;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::hint::black_box;
use std::io::Cursor;
use std::path::Path;
use std::time::Duration;
use tickwheel::Mode;
use tickwheel_cli::generate::{Generator, Shape, Size};
use tickwheel_cli::study::{Configurations, Options, Study, study};
use tickwheel_cli::tick::Tick;
use tickwheel_cli::trace::{Action, Operation, Trace};

#[derive(Parser)]
struct Arguments {
    /// The traces whose names contain this.
    name: Option<String>,

    /// Short traces, and three runs each.
    #[arg(long)]
    quick: bool,

    /// How often to choose.
    #[arg(long, default_value_t = 20)]
    runs: usize,

    /// Threads that turn in loops beside it.
    #[arg(long, default_value_t = 0)]
    busy: usize,

    #[arg(long, hide = true)]
    bench: bool,
}

fn main() {
    let arguments = Arguments::parse();
    let (operations, runs) =
        if arguments.quick { (100_000, 3) } else { (1_000_000, arguments.runs) };
    for _ in 0..arguments.busy {
        std::thread::spawn(|| {
            loop {
                black_box(0);
            }
        });
    }
    println!("{:24} {:>7} {:>5}  answers", "trace", "regret", "same");
    let (mut chosen, mut measured, mut within, mut steady) = (0, 0, 0, 0);
    for (name, operations) in traces(operations) {
        if arguments.name.as_ref().is_some_and(|wanted| !name.contains(wanted)) {
            continue;
        }
        let csv = csv(&operations);
        let full = full_search(&csv, operations.len());
        let choices: Vec<_> = (0..runs).map(|_| choose(&csv, operations.len())).collect();
        let mut answers: BTreeMap<String, usize> = BTreeMap::new();
        for choice in &choices {
            *answers.entry(answer(choice)).or_default() += 1;
        }
        // Of an unfit trace nothing is measured, so there is no regret to tell.
        let regrets = choices.iter().filter_map(|choice| regret(choice, &full));
        let most = regrets.max_by(f64::total_cmp);
        let told = most.map_or_else(|| "-".into(), |most| format!("{:.1} %", most * 100.0));
        let same = answers.values().max().copied().unwrap_or(0);
        let listed: Vec<_> =
            answers.iter().map(|(answer, runs)| format!("{runs} x {answer}")).collect();
        println!("{name:24} {told:>7} {same:>2}/{runs}  {}", listed.join(", "));
        chosen += 1;
        measured += usize::from(most.is_some());
        within += usize::from(most.is_some_and(|most| most <= 0.05));
        steady += usize::from(runs * 19 <= same * 20);
    }
    println!(
        "{within} of {measured} traces that were measured within 5 %; {} cannot tell; {steady} of \
         {chosen} with one answer",
        chosen - measured,
    );
}

/// The score of each mode in a full search of 15 rounds.
fn full_search(csv: &str, operations: usize) -> Vec<(Mode, f64)> {
    let modes = [64, 16, 256, 1024].map(Mode::hierarchical_with);
    let modes = modes.into_iter().chain([512, 64, 4096, 1 << 15, 1 << 18].map(Mode::hashed));
    let modes = modes.map(|mode| mode.expect("this is a mode")).collect();
    let configurations = Configurations::Given { modes, tick: Tick::default() };
    let options = Options {
        configurations,
        operations,
        slower: 4,
        time: Duration::from_secs(120),
        ..Options::default()
    };
    let found = study(trace(csv), &options, |_| ()).expect("it is sound");
    let score =
        |it: &tickwheel_cli::study::Candidate| Some((it.mode, it.measured.as_ref()?.score.median));
    found.candidates.iter().filter_map(score).collect()
}

fn choose(csv: &str, operations: usize) -> Study {
    let options = Options { operations, ..Options::default() };
    study(trace(csv), &options, |_| ()).expect("it is sound")
}

/// What was recommended, and whether the trace was fit for it.
fn answer(choice: &Study) -> String {
    let taken =
        choice.recommended().map_or_else(|| "nothing".into(), |taken| taken.mode.to_string());
    if choice.unfit.is_empty() { taken } else { format!("{taken} (cannot tell)") }
}

/// How much more a choice costs than the best of a full search; None if it was not measured.
fn regret(choice: &Study, full: &[(Mode, f64)]) -> Option<f64> {
    let best = full.iter().map(|(_, score)| *score).fold(f64::INFINITY, f64::min);
    let taken = choice.recommended()?.mode;
    let (_, own) = full.iter().find(|(mode, _)| *mode == taken)?;
    Some(own / best - 1.0)
}

fn traces(operations: usize) -> Vec<(String, Vec<Operation>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    let mut all = Vec::new();
    for name in
        ["jobs-gaia", "jobs-eagle", "cache-twitter52", "kvcache-mooncake", "rpc-onlineboutique"]
    {
        match Trace::open(&folder.join(name).with_extension("csv.gz")) {
            Ok(mut trace) => {
                let mut read = Vec::new();
                trace.read_batch(&mut read, operations).expect("it is sound");
                all.push((name.into(), read));
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
    let per_second = 10_f64.powf(2.0 + 3.0 * mix.random.f64());
    let swing = if mix.random.bool() { 0.9 } else { 0.0 };
    let mut time_ms = 0.0_f64;
    let mut key = 0;
    while mix.operations.len() < operations {
        let population = &populations[mix.random.usize(..populations.len())];
        let load = 1.0 + swing * (time_ms / 60_000.0).sin();
        let pause = -(1.0 - mix.random.f64()).ln() * 1_000.0 / (per_second * load);
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
    let mut csv = format!("{}\n", Trace::HEADER);
    operations.iter().for_each(|operation| csv += &format!("{operation}\n"));
    csv
}

fn trace(csv: &str) -> Trace {
    Trace::new("generated", Cursor::new(csv.to_string())).expect("it has the header")
}
