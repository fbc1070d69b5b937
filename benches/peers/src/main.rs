//! Compares tickwheel with every other way to hold timeouts, side by side.
//!
//! `cargo run --profile bench -p peers` runs all; docs/benchmarks.md says what each workload is,
//! and has the figures of one run.
//!
//! Each measurement is a process of its own ([`case`]); the subjects take turns within each
//! repetition, so that what disturbs the machine disturbs them all; and every answer of every
//! subject is judged ([`log`]).

mod allocator;
mod case;
mod document;
mod format;
mod lines;
mod log;
mod plot;
mod random;
#[path = "../../report/mod.rs"]
mod report;
mod results;
mod statistics;
mod subject;
mod subjects;
mod tables;
mod threaded;
mod workloads;

use case::{Case, Sample};
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use results::Results;
use std::collections::HashMap;
use std::env;
use std::error::Error;
use std::fs;
use std::io::{self, Write};
use std::panic;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};
use threaded::netty;
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

    /// Draw throughput by threads, and cost by the number of timeouts, as SVG.
    #[arg(long, value_name = "DIR")]
    plot: Option<PathBuf>,

    /// Measure nothing: take the results that an earlier run wrote with `--json`.
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,

    /// Put tables and pictures into this document, in the place of those that are there.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,

    /// Name the workloads and the subjects, and run nothing.
    #[arg(long)]
    list: bool,

    /// Measure this case, in JSON: what the program starts itself for.
    #[arg(long, hide = true)]
    measure_one: Option<String>,
}

fn main() -> ExitCode {
    match Arguments::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "peers: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(case: &Case) -> Result<(), Box<dyn Error>> {
    // The table tells of panics, and some subjects have many.
    panic::set_hook(Box::new(|_| {}));
    let sample = case::caught(|| subjects::run(case));
    writeln!(io::stdout(), "{}", serde_json::to_string(&sample)?)?;
    // At once: threads of a subject may still have much to do.
    std::process::exit(0)
}

/// Subjects that take turns with each other at one workload of one size.
type Group = (&'static Workload, usize, Vec<&'static str>);

impl Arguments {
    fn run(&self) -> Result<(), Box<dyn Error>> {
        if let Some(case) = &self.measure_one {
            return measure(&serde_json::from_str(case)?);
        }
        if self.list {
            return list();
        }
        let results = match &self.from {
            // The names in it live as long as those of the workloads do.
            Some(path) => serde_json::from_str(fs::read_to_string(path)?.leak())?,
            None => self.measure()?,
        };
        writeln!(io::stdout(), "{}", document::page(&results, None))?;
        if let Some(path) = &self.json {
            fs::write(path, serde_json::to_vec_pretty(&results)?)?;
        }
        if let Some(directory) = &self.plot {
            plot::draw_all(&results, directory)?;
        }
        if let Some(path) = &self.markdown {
            document::write(&results, path, self.plot.as_deref())?;
        }
        Ok(())
    }

    fn measure(&self) -> Result<Results, Box<dyn Error>> {
        let plan = self.plan();
        if plan.is_empty() {
            return Err("no workload and subject of these names go together; see --list".into());
        }
        let started = Instant::now();
        let mut results = self.measure_all(plan)?;
        results.about = self.about(started.elapsed())?;
        Ok(results)
    }

    fn plan(&self) -> Vec<Group> {
        let chosen = |name: &str, parts: &[String]| {
            parts.is_empty() || parts.iter().any(|part| name.contains(part.as_str()))
        };
        let netty = subjects::NETTY.name;
        let without = netty::missing().filter(|_| chosen(netty, &self.subjects));
        if let Some(why) = without {
            let _ = writeln!(io::stderr(), "{netty} is skipped: {why}");
        }
        let mut plan = Vec::new();
        for workload in WORKLOADS.iter().filter(|one| chosen(one.name, &self.workloads)) {
            let suited = subjects::PROFILES.iter().filter(|one| (workload.suits)(one));
            let names = suited.map(|one| one.name).filter(|&it| it != netty || without.is_none());
            let subjects: Vec<_> = names.filter(|name| chosen(name, &self.subjects)).collect();
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
    fn measure_all(&self, plan: Vec<Group>) -> Result<Results, Box<dyn Error>> {
        let program = env::current_exe()?;
        let patience = self.patience.unwrap_or(if self.quick { 10 } else { 120 });
        let steps = plan.iter().map(|(_, size, subjects)| subjects.len() * self.repetitions(*size));
        // It draws nothing where there is no terminal.
        let progress = ProgressBar::new(steps.sum::<usize>() as u64);
        let style = "{elapsed_precise} [{wide_bar}] {pos}/{len} {msg}";
        progress.set_style(ProgressStyle::with_template(style)?);
        let mut results = Results::default();
        for (workload, size, subjects) in plan {
            let mut longest = HashMap::<_, Duration>::new();
            for turn in 0..self.repetitions(size) * subjects.len() {
                progress.inc(1);
                let repetition = turn / subjects.len();
                let subject = subjects[(repetition + turn) % subjects.len()];
                // What takes long varies little.
                let took = longest.entry(subject).or_default();
                if SLOW.iter().any(|&(than, times)| than < *took && times <= repetition) {
                    continue;
                }
                progress.set_message(format!("{} {size} {subject}", workload.name));
                let started = Instant::now();
                // One that failed is not asked again, nor to do more of it.
                let sample = match results.failure(workload.name, subject) {
                    Some(failure) => Sample::failed(failure.into()),
                    None => {
                        let case = Case {
                            workload: workload.name.into(),
                            subject: subject.into(),
                            size,
                            milliseconds: if self.quick { 200 } else { 1_000 },
                        };
                        let case = serde_json::to_string(&case)?;
                        let mut command = Command::new(&program);
                        command.args(["--measure-one", &case]);
                        case::run(&mut command, Duration::from_secs(patience))
                    }
                };
                *took = started.elapsed().max(*took);
                results.add(workload.name, size, subject, sample);
            }
        }
        progress.finish_and_clear();
        Ok(results)
    }

    /// Under which circumstances the results were found.
    fn about(&self, took: Duration) -> io::Result<String> {
        let mut shell = Command::new("sh");
        shell.args(["-c", MACHINE]).current_dir(env!("CARGO_MANIFEST_DIR"));
        let machine = String::from_utf8_lossy(&shell.output()?.stdout).trim().to_owned();
        let minutes = (took.as_secs_f64() / 60.0).round();
        let arguments = env::args().skip(1).collect::<Vec<_>>().join(" ");
        let quick = if self.quick { QUICK } else { "" };
        let command = format!("`cargo run --profile bench -p peers -- {arguments}`");
        Ok(format!("{quick}{machine}, {minutes} min\n- {command}\n"))
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

/// What takes longer than this is not repeated more often than that.
const SLOW: [(Duration, usize); 2] = [(Duration::from_secs(5), 3), (Duration::from_secs(20), 1)];

const HELP: &str = "\
Examples:
  cargo run --profile bench -p peers -- --quick
  cargo run --profile bench -p peers -- --workload requests --subject tickwheel --subject nexus
  cargo run --profile bench -p peers -- --json run.json --plot docs/benchmarks --markdown docs/benchmarks.md";

const QUICK: &str = "\
A QUICK run: small sizes and few repetitions, to see that it works; not the figures to judge by.

";

/// Prints the machine, the system, and what was built on it when.
const MACHINE: &str = "\
echo \"- $(sed -n '/^model name\\s*: /{s///;p;q}' /proc/cpuinfo), $(nproc) cores\"
echo \"- $(uname -sr), $(rustc --version)\"
echo \"- $(date -u +%FT%TZ), commit $(git describe --always --dirty=' changed')\"
";
