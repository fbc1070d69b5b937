//! Is what `tickwheel choose` recommends as good as anything that it searched?
//!
//! Only in an optimised build: what the wheel costs in any other says nothing.
#![cfg(not(debug_assertions))]

use clap::ValueEnum;
use std::io::{Cursor, Write};
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;
use tickwheel_cli::choose::{Candidate, Choice, Options, choose};
use tickwheel_cli::generate::{Generator, Shape, Size};
use tickwheel_cli::replay::Trace;

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data");

#[test]
fn nothing_beats_what_is_recommended_for_the_bundled_traces() {
    for name in ["jobs-gaia", "cache-twitter52"] {
        let file = Path::new(DATA).join(name).with_extension("csv.gz");
        assert_nothing_beats_it(name, || Trace::open(&file).unwrap());
    }
}

#[test]
fn nothing_beats_what_is_recommended_for_the_shapes() {
    for &shape in Shape::value_variants() {
        assert_nothing_beats_it(&format!("{shape:?}"), || generated(shape));
    }
}

#[test]
fn nothing_beats_what_is_recommended_for_the_recorded_traces() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    if !folder.is_dir() {
        let absent = format!("no choice was made for the traces of {}, absent", folder.display());
        // Not public, so that nobody can install them. Written past the capture of the test runner.
        writeln!(std::io::stderr(), "SKIPPED: {absent}").unwrap();
        return;
    }
    let names =
        ["jobs-gaia", "jobs-eagle", "cache-twitter52", "kvcache-mooncake", "rpc-onlineboutique"];
    for name in names {
        let file = folder.join(name).with_extension("csv.gz");
        assert_nothing_beats_it(name, || Trace::open(&file).unwrap());
    }
}

/// Chooses three times, and measures each choice by the run in which it was made, and by the two
/// others, which know nothing of it and of which one may disagree.
///
/// A search that says that its repetitions disagree, on a busy machine, is made again, four times
/// in all. Where it still says so, it promises nothing about another run.
fn assert_nothing_beats_it(name: &str, trace: impl Fn() -> Trace) {
    let _alone = MEASURING.lock();
    let max_lateness = Duration::from_millis(10);
    let options = Options { max_lateness, operations: OPERATIONS, ..Options::default() };
    let mut again = 4;
    let runs = [(); 3].map(|()| {
        loop {
            let run = choose(trace(), &options, |_| ()).unwrap();
            if run.is_settled || again == 0 {
                return run;
            }
            again -= 1;
        }
    });
    for (number, chosen) in runs.iter().enumerate() {
        let taken = chosen.recommended().unwrap();
        let regrets = runs.each_ref().map(|run| Regret::of(taken, run));
        let [first, second, third] = regrets.each_ref().map(|regret| regret.percent);
        let (mode, tick) = (taken.mode, taken.tick);
        let note = if chosen.is_settled { "" } else { "  repetitions disagree" };
        println!("{name:18} {mode:18} {tick:>6}  {first:5.1} % {second:5.1} % {third:5.1} %{note}");
        // One run may have left out early, at a bad moment, what another one chose.
        let settled = runs.iter().zip(&regrets).filter(|(run, _)| run.is_settled);
        let over = settled.filter(|(_, regret)| regret.is_over_ten_percent).count();
        let is_beaten = regrets[number].is_over_ten_percent || chosen.is_settled && 1 < over;
        let best = regrets.each_ref().map(|regret| regret.best);
        assert!(!is_beaten, "{name}: {taken:?} was chosen, and there were {best:?}");
    }
}

/// How much more a configuration scores than the best one of a run.
struct Regret<'a> {
    best: &'a Candidate,
    percent: f64,
    /// Whether any configuration scores over 10 % better, beyond the spread.
    is_over_ten_percent: bool,
}

impl<'a> Regret<'a> {
    fn of(taken: &Candidate, run: &'a Choice) -> Self {
        let score = |candidate: &Candidate| candidate.figures.as_ref().map(|figures| figures.score);
        let all = run.candidates.iter().filter(|candidate| candidate.figures.is_some());
        let best = all.min_by(|a, b| {
            let [a, b] = [a, b].map(|candidate| score(candidate).unwrap().median);
            a.total_cmp(&b)
        });
        let best = best.unwrap();
        let same = |other: &&Candidate| other.mode == taken.mode && other.tick == taken.tick;
        let taken = score(run.candidates.iter().find(same).unwrap()).expect("it was not stopped");
        Self {
            best,
            percent: (taken.median / score(best).unwrap().median - 1.0) * 100.0,
            is_over_ten_percent: run
                .candidates
                .iter()
                .filter_map(score)
                .any(|other| other.most * 1.1 < taken.least),
        }
    }
}

fn generated(shape: Shape) -> Trace {
    let size = Size { operations: OPERATIONS as u64, ..Size::default() };
    let lines = Generator::new(shape, size, 5).map(|operation| format!("{operation}\n"));
    let csv = format!("{}\n{}", Trace::HEADER, lines.collect::<String>());
    Trace::new("generated", Cursor::new(csv)).unwrap()
}

/// Held by a test that measures for long, which would measure another such test as well.
static MEASURING: Mutex<()> = Mutex::new(());

/// As many as a test has the time for.
const OPERATIONS: usize = 100_000;
