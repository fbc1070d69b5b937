//! Compares tickwheel with every other way to hold timeouts, side by side.
//!
//! `cargo run --release -p peers` runs all; docs/benchmarks.md says what each workload is, and has
//! the figures of one run.
//!
//! Each measurement is a process of its own ([`runner`]); the subjects take turns within each
//! repetition, so that what disturbs the machine disturbs them all; and every answer of every
//! subject is judged ([`log`]).

mod allocator;
mod case;
mod document;
mod format;
mod goals;
mod log;
mod plot;
mod random;
mod results;
mod runner;
mod statistics;
mod subject;
mod subjects;
mod tables;
mod threaded;
mod workloads;

use case::{Case, Sample};
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use results::{About, Results};
use std::collections::HashMap;
use std::env;
use std::error::Error;
use std::fs;
use std::io::{self, Write};
use std::panic;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant, SystemTime};
use workloads::{WORKLOADS, Workload};

/// Compares tickwheel with every other way to hold timeouts.
#[derive(Parser, Debug)]
#[command(name = "peers", after_help = HELP)]
struct Arguments {
    /// Less of everything: smaller sizes, fewer repetitions.
    #[arg(long)]
    quick: bool,

    /// Run only workloads whose name contains this. Can be given more than once.
    #[arg(long = "workload", value_name = "PART")]
    workloads: Vec<String>,

    /// Run only subjects whose name contains this. Can be given more than once.
    #[arg(long = "subject", value_name = "PART")]
    subjects: Vec<String>,

    /// Run at most so many timeouts.
    #[arg(long, value_name = "TIMEOUTS")]
    most: Option<usize>,

    /// Repetitions of each measurement; 3 with `--quick`, else 7, but 3 of those above 1 M.
    ///
    /// In any case 3 at most of those that take more than 5 s, and 1 of those above 20 s.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    repetitions: Option<u32>,

    /// How long to wait for one measurement; 10 s with `--quick`, else 120 s.
    #[arg(long, value_name = "SECONDS")]
    patience: Option<u64>,

    /// Write all that was measured, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Draw cost against the number of timeouts, as SVG.
    #[arg(long, value_name = "DIR")]
    plot: Option<PathBuf>,

    /// Put tables and pictures into this document, in the place of those that are there.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,

    /// Name the workloads and the subjects, and run nothing.
    #[arg(long)]
    list: bool,
}

/// What takes longer than this is not repeated more often than that.
const SLOW: [(Duration, usize); 2] = [(Duration::from_secs(5), 3), (Duration::from_secs(20), 1)];

const HELP: &str = "\
Examples:
  cargo run --release -p peers -- --quick
  cargo run --release -p peers -- --workload requests --subject tickwheel --subject nexus
  cargo run --release -p peers -- --json run.json --plot docs/benchmarks --markdown docs/benchmarks.md";

fn main() -> ExitCode {
    // Its own process, which the runner started.
    if env::args().nth(1).as_deref() == Some(runner::MEASURE) {
        return measure();
    }
    match Arguments::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "peers: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Measures the case that stands on the input, and ends at once: threads of a subject may still
/// have much to do.
fn measure() -> ExitCode {
    let Ok(case) = serde_json::from_reader::<_, Case>(io::stdin()) else {
        return ExitCode::FAILURE;
    };
    // The table tells of panics, and some subjects have many.
    panic::set_hook(Box::new(|_| {}));
    let sample = case::caught(|| subjects::run(&case));
    let written = serde_json::to_writer(io::stdout(), &sample).is_ok();
    let flushed = io::stdout().flush().is_ok();
    std::process::exit(if written && flushed { 0 } else { 1 })
}

impl Arguments {
    fn run(&self) -> Result<(), Box<dyn Error>> {
        if self.list {
            return list();
        }
        let plan = self.plan();
        if plan.is_empty() {
            return Err("no workload and subject of these names go together; see --list".into());
        }
        let started = Instant::now();
        let mut results = Results { about: self.about(), rows: Vec::new() };
        self.measure_all(&plan, &mut results)?;
        results.about.seconds = started.elapsed().as_secs();

        let mut out = io::stdout().lock();
        writeln!(out, "{}", document::about(&results.about))?;
        for section in tables::of(&results) {
            writeln!(out, "{}", section.text())?;
        }
        writeln!(out, "{}", tables::behind(&results).text())?;
        writeln!(out, "{}", tables::goals(&results).text())?;
        if let Some(path) = &self.json {
            fs::write(path, serde_json::to_vec_pretty(&results)?)?;
        }
        let drawn = match &self.plot {
            Some(directory) => plot::draw_all(&results, directory)?,
            None => Vec::new(),
        };
        if let Some(path) = &self.markdown {
            document::write(&results, path, self.plot.as_deref(), &drawn)?;
        }
        Ok(())
    }

    /// Which subjects do which work at which size: those that take turns with each other.
    fn plan(&self) -> Vec<(&'static Workload, usize, Vec<&'static str>)> {
        let chosen = |name: &str, parts: &[String]| {
            parts.is_empty() || parts.iter().any(|part| name.contains(part.as_str()))
        };
        let mut plan = Vec::new();
        for workload in WORKLOADS.iter().filter(|one| chosen(one.name, &self.workloads)) {
            let suited = subjects::PROFILES.iter().filter(|one| workload.suits(one));
            let subjects: Vec<_> =
                suited.map(|one| one.name).filter(|name| chosen(name, &self.subjects)).collect();
            let sizes = if self.quick { workload.quick_sizes } else { workload.sizes };
            for &size in sizes {
                let fits = workload.size != "timeouts" || self.most.is_none_or(|most| size <= most);
                if fits && !subjects.is_empty() {
                    plan.push((workload, size, subjects.clone()));
                }
            }
        }
        plan
    }

    fn repetitions(&self, size: usize) -> usize {
        match self.repetitions {
            Some(repetitions) => repetitions as usize,
            None if self.quick || 1_000_000 < size => 3,
            None => 7,
        }
    }

    /// The subjects take turns, each repetition beginning with another one.
    fn measure_all(
        &self,
        plan: &[(&'static Workload, usize, Vec<&'static str>)],
        results: &mut Results,
    ) -> Result<(), Box<dyn Error>> {
        let program = env::current_exe()?;
        let patience = self.patience.unwrap_or(if self.quick { 10 } else { 120 });
        let steps = plan.iter().map(|(_, size, subjects)| subjects.len() * self.repetitions(*size));
        // It draws nothing where there is no terminal.
        let progress = ProgressBar::new(steps.sum::<usize>() as u64);
        let style = "{elapsed_precise} [{wide_bar}] {pos}/{len} {msg}";
        progress.set_style(ProgressStyle::with_template(style)?);
        for (workload, size, subjects) in plan {
            let mut longest: HashMap<_, Duration> = HashMap::new();
            for repetition in 0..self.repetitions(*size) {
                for turn in 0..subjects.len() {
                    let subject = subjects[(repetition + turn) % subjects.len()];
                    progress.inc(1);
                    // What takes long varies little.
                    let took = longest.get(subject).copied().unwrap_or_default();
                    if SLOW.iter().any(|&(than, times)| than < took && times <= repetition) {
                        continue;
                    }
                    progress.set_message(format!("{} {size} {subject}", workload.name));
                    let started = Instant::now();
                    // One that failed is not asked again, nor to do more of it.
                    let sample = match results.failure(workload.name, subject) {
                        Some(failure) => Sample::failed(failure),
                        None => {
                            let case = Case {
                                workload: workload.name.into(),
                                subject: subject.into(),
                                size: *size,
                                milliseconds: if self.quick { 200 } else { 1_000 },
                            };
                            let mut command = Command::new(&program);
                            command.arg(runner::MEASURE);
                            runner::run(&mut command, &case, Duration::from_secs(patience))
                        }
                    };
                    let took = longest.entry(subject).or_default();
                    *took = started.elapsed().max(*took);
                    results.add(workload.name, *size, subject, sample);
                }
            }
        }
        progress.finish_and_clear();
        Ok(())
    }

    fn about(&self) -> About {
        let said = |program: &str, arguments: &[&str]| {
            let output = Command::new(program).args(arguments).output().ok()?;
            let text = String::from_utf8(output.stdout).ok()?;
            output.status.success().then(|| text.trim().to_owned())
        };
        let unknown = || "unknown".to_owned();
        let commit = ["-C", env!("CARGO_MANIFEST_DIR"), "describe", "--always", "--dirty= changed"];
        let model = fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| {
            let line = text.lines().find(|line| line.starts_with("model name"))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        });
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        let arguments: Vec<_> = env::args().skip(1).collect();
        About {
            machine: format!("{}, {cores} cores", model.unwrap_or_else(unknown)),
            system: said("uname", &["-sr"]).unwrap_or_else(unknown),
            compiler: said("rustc", &["--version"]).unwrap_or_else(unknown),
            date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            commit: said("git", &commit).unwrap_or_else(unknown),
            command: format!("cargo run --release -p peers -- {}", arguments.join(" ")),
            quick: self.quick,
            repetitions: self.repetitions(0),
            seconds: 0,
        }
    }
}

fn list() -> Result<(), Box<dyn Error>> {
    let mut out = io::stdout().lock();
    writeln!(out, "Workloads:")?;
    for workload in WORKLOADS {
        writeln!(out, "  {:16} {}", workload.name, workload.about)?;
    }
    for (has_threads, what) in [(false, "are driven"), (true, "have threads")] {
        let which = subjects::PROFILES.iter().filter(|one| one.has_threads == has_threads);
        let names: Vec<_> = which.map(|one| one.name).collect();
        writeln!(out, "Subjects that {what}:\n  {}", names.join(", "))?;
    }
    Ok(())
}
