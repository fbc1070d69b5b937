//! The subcommands, a file each, and what they share.

pub(crate) mod choose;
pub(crate) mod generate;
pub(crate) mod output;
pub(crate) mod progress;
pub(crate) mod replay;
pub(crate) mod report;

use crate::Failure;
use bytesize::ByteSize;
use indicatif::ProgressBar;
use std::fmt::Display;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tickwheel_cli::study::{self, Driver, Progress, Study};
use tickwheel_cli::trace::{Trace, TraceError};

/// What `replay`, `choose` and `report` measure, and for how long.
#[derive(clap::Args)]
pub(crate) struct Measuring {
    /// The trace: CSV with the header `time_ms,op,key,delay_ms`, plain or gzip; `-` for standard
    /// input.
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Whose calls are measured: those of a `Timer`, or those of a loop of your own that drives a
    /// bare wheel.
    #[arg(long = "for", value_name = "WHAT", value_enum, default_value = "timer")]
    driver: Driver,

    /// The CPU time that a wake-up counts in the score. Take 0s if your own event loop drives the
    /// wheel and wakes up anyway.
    #[arg(long, value_name = "DURATION", default_value = "5us",
          value_parser = humantime::parse_duration)]
    wake_cost: Duration,

    /// The most memory that a wheel may hold, as in `512MiB` or `8GiB`.
    #[arg(long, value_name = "SIZE", default_value = "2GiB", value_parser = size)]
    max_memory: ByteSize,

    /// The most operations to read of the trace, as in `500000`, `1_000_000` or `1e6`.
    #[arg(long, value_name = "NUMBER", default_value = "1e6", value_parser = operations)]
    operations: usize,

    /// Stop measuring when reading, counting and measuring have taken this CPU time. Counting takes
    /// up to 10 s per mode and tick.
    #[arg(long, value_name = "DURATION", default_value = "30s",
          value_parser = humantime::parse_duration)]
    limit_time: Duration,
}

impl Measuring {
    fn options(&self, configurations: study::Configurations) -> study::Options {
        study::Options {
            configurations,
            driver: self.driver,
            max_memory: self.max_memory.as_u64(),
            wake_cost: self.wake_cost,
            operations: self.operations,
            time: self.limit_time,
            ..study::Options::default()
        }
    }
}

/// Is told how far the work is.
type Advance<'a> = &'a mut dyn FnMut(Progress);

/// Ends the process when it is interrupted, but not while somebody holds it.
type Interrupt = Arc<Mutex<()>>;

/// Studies the trace in `file`.
fn studied(file: &Path, options: &study::Options) -> Result<(Study, Interrupt), Failure> {
    let made = traced(file, |trace, progress| study::study(trace, options, progress))?;
    warn_of_gaps(&made.0);
    Ok(made)
}

/// Makes something of the trace in `file`, or that on standard input if `file` is `-`, and shows how
/// far it is.
fn traced<T>(
    file: &Path,
    make: impl FnOnce(Trace, Advance<'_>) -> Result<T, TraceError>,
) -> Result<(T, Interrupt), Failure> {
    let progress = ProgressBar::hidden();
    let interrupt = progress::exit_when_interrupted(&progress)?;
    let mut phase = "";
    let mut advance = |at| progress::advance(&progress, &mut phase, at);
    advance(Progress::Read(0));
    let trace = match file == Path::new("-") {
        true => Trace::new("standard input", io::stdin()),
        false => Trace::open(file),
    };
    let made = trace.and_then(|trace| make(trace, &mut advance));
    progress.finish_and_clear();
    let made = made.map_err(|error| Failure::Input(error.to_string()))?;
    Ok((made, interrupt))
}

/// Prints a study: a table, or JSON.
fn print_study(study: &Study, is_json: bool) -> Result<(), Failure> {
    output::print(|output| match is_json {
        true => writeln!(output, "{}", serde_json::to_string(study)?),
        false => write!(output, "{study}"),
    })
}

/// Says on standard error what is not in the trace.
fn warn_of_gaps(study: &Study) {
    for gap in study.gaps.to_string().lines() {
        say(format_args!("warning: {}: {gap}", study.trace));
    }
}

/// Says something on standard error, if anybody can hear it.
pub(crate) fn say<T: Display>(message: T) {
    let _ = writeln!(io::stderr(), "tickwheel: {message}");
}

fn size(text: &str) -> Result<ByteSize, &'static str> {
    text.parse().map_err(|_| "expected a size, as in `512MiB` or `8GiB`")
}

/// A number from 1 on, as a person writes it.
fn operations(text: &str) -> Result<usize, String> {
    const MOST: usize = usize::MAX;
    let number = text.replace('_', "").parse().unwrap_or(f64::NAN);
    match number.fract() == 0.0 && (1.0..=MOST as f64).contains(&number) {
        true => Ok(number as usize),
        false => Err(format!(
            "expected a whole number from 1 to {MOST}, as in `500000`, `1_000_000` or `1e6`"
        )),
    }
}
