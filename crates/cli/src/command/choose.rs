//! `tickwheel choose`.

use super::output::print;
use super::progress::{self, Interrupt};
use crate::Failure;
use bytesize::ByteSize;
use indicatif::ProgressBar;
use std::io::Write;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;
use tickwheel_cli::choose::{self, Options, Progress};

/// Searches for the mode and the tick that suit a recorded workload, and recommends one.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Choose {
    /// The trace: CSV with the header `time_ms,op,key,delay_ms`, plain or gzip; `-` for standard
    /// input.
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// How late a timeout may be because of the tick. Ticks of up to this length are searched.
    #[arg(long, value_name = "DURATION", default_value = "1ms", value_parser = lateness)]
    max_lateness: Duration,

    /// The most memory that a wheel may hold, as in `512MiB` or `8GiB`.
    #[arg(long, value_name = "SIZE", default_value = "2GiB")]
    max_memory: ByteSize,

    /// The CPU time that a wake-up of the timer's thread counts in the score. Take 0s if your own
    /// event loop drives the wheel and wakes up anyway.
    #[arg(long, value_name = "DURATION", default_value = "5us",
          value_parser = humantime::parse_duration)]
    wake_cost: Duration,

    /// The most operations to read of the trace.
    #[arg(long, value_name = "NUMBER", default_value = "1000000")]
    operations: NonZeroUsize,

    /// Stop measuring after this time.
    #[arg(long, value_name = "DURATION", default_value = "30s",
          value_parser = humantime::parse_duration)]
    limit_time: Duration,

    /// Print one JSON object with all configurations instead of the table.
    #[arg(long)]
    json: bool,
}

impl Choose {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let progress = progress::hidden();
        Interrupt::exits(&progress)?;
        let trace = super::open(&self.file)?;
        progress::show(&progress, None, "{spinner} {human_pos} operations read");
        let options = Options {
            max_lateness: self.max_lateness,
            max_memory: self.max_memory.as_u64(),
            wake_cost: self.wake_cost,
            operations: self.operations.get(),
            time: self.limit_time,
        };
        let choice = choose::choose(trace, &options, |at| advance(&progress, at));
        progress.finish_and_clear();
        let choice = choice?;
        super::warn_of(&choice.trace, choice.gaps);
        let mut output = Vec::new();
        let printed = match self.json {
            true => choice.write_json(&mut output),
            false => write!(output, "{choice}"),
        };
        printed.expect("writing to memory cannot fail");
        print(&output)
    }
}

pub(crate) fn advance(progress: &ProgressBar, at: Progress) {
    match at {
        Progress::Read(operations) => progress.set_position(operations),
        Progress::Measured(share) => {
            if progress.length() != Some(100) {
                progress::show(progress, Some(100), "{bar:40} measuring, {eta} at most");
            }
            progress.set_position((share * 100.0) as u64);
        }
        _ => {}
    }
}

pub(crate) fn lateness(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(lateness) if lateness < Duration::from_micros(1) => {
            Err("expected at least 1us, the shortest tick".into())
        }
        Ok(lateness) => Ok(lateness),
        Err(_) => Err("expected a duration like `1ms`, `500us` or `1s`".into()),
    }
}

const HELP: &str = "\
Examples:
  tickwheel choose data/jobs-gaia.csv.gz
  tickwheel choose trace.csv --max-lateness 100ms --max-memory 16MiB
  tickwheel generate cancelled | tickwheel choose - --json

Exit code: 0 when done, 1 if the result cannot be written, 2 for arguments or a trace that are
wrong, 130 when interrupted.";
