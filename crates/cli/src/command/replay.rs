//! `tickwheel replay`.

use super::output::{OutputFile, print};
use super::progress::{self, Interrupt};
use crate::Failure;
use bytesize::ByteSize;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;
use tickwheel::Mode;
use tickwheel_cli::replay::{self, Limits, Report, Tick};

/// Runs a recorded workload through wheels of several modes and compares them.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Replay {
    /// The trace: CSV with the header `time_ms,op,key,delay_ms`, plain or gzip; `-` for standard
    /// input.
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// A mode to run: `hierarchical:BUCKETS` (a level) or `hashed:BUCKETS` (in all). Can be given
    /// more than once.
    #[arg(
        long = "mode",
        value_name = "MODE",
        default_values = ["hierarchical:64", "hashed:512", "hashed:65536"],
    )]
    modes: Vec<Mode>,

    /// The length of a tick, 1us to 1h.
    #[arg(long, value_name = "DURATION", default_value = "1ms")]
    tick: Tick,

    /// Stop a mode that is more than this many times slower than the cheapest mode so far; the
    /// others go on.
    #[arg(long, value_name = "TIMES", default_value_t = 20)]
    limit_slower: u32,

    /// Stop a mode after this time; the others go on.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "30s",
        value_parser = humantime::parse_duration,
    )]
    limit_time: Duration,

    /// Stop a mode that holds more memory than this, as in `512MiB` or `8GiB`; the others go on.
    #[arg(long, value_name = "SIZE", default_value = "2GiB")]
    limit_memory: ByteSize,

    /// Print one JSON object per mode, one per line, instead of the table.
    #[arg(long)]
    json: bool,

    /// Draw a picture as well; SVG or PNG, as the name ends. PNG needs a command that was built
    /// with the feature `png`.
    #[arg(long, value_name = "OUT.svg|OUT.png", value_parser = Plot::parse)]
    plot: Option<Plot>,
}

/// A picture to be written.
#[derive(Clone)]
struct Plot {
    file: OutputFile,
    draw: fn(&Report) -> Result<Vec<u8>, replay::PlotError>,
}

impl Replay {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        if let Some(plot) = &self.plot {
            plot.file.check()?;
        }
        let progress = progress::hidden();
        let interrupt = Interrupt::exits(&progress)?;
        let trace = super::open(&self.file)?;
        progress::show_reading(&progress, &trace);
        let limits = Limits {
            time: self.limit_time,
            memory: self.limit_memory.as_u64(),
            slower: self.limit_slower,
        };
        let report = replay::replay(trace, &self.modes, self.tick, &limits, |trace| {
            progress::advance(&progress, trace);
        });
        progress.finish_and_clear();
        let report = report?;
        super::warn_of(&report.trace, report.gaps);
        self.print(&report)?;
        if let Some(plot) = &self.plot {
            let _held = interrupt.hold();
            let drawn = (plot.draw)(&report);
            let picture = drawn.map_err(|error| plot.file.failure(&error))?;
            plot.file.write(|file| file.write_all(&picture))?;
        }
        Ok(())
    }

    fn print(&self, report: &Report) -> Result<(), Failure> {
        let mut output = Vec::new();
        let printed = match self.json {
            true => report.write_json(&mut output),
            false => write!(output, "{report}"),
        };
        printed.expect("writing to memory cannot fail");
        print(&output)
    }
}

impl Plot {
    fn parse(name: &str) -> Result<Self, String> {
        let file = OutputFile::parse(name)?;
        match file.extension().as_deref() {
            Some("svg") => Ok(Self { file, draw: |report| replay::svg(report).map(String::into) }),
            #[cfg(feature = "png")]
            Some("png") => Ok(Self { file, draw: replay::png }),
            #[cfg(not(feature = "png"))]
            Some("png") => Err("this command was built without the feature `png`: expected a \
                                name that ends in .svg"
                .into()),
            _ => Err("expected a name that ends in .svg or .png".into()),
        }
    }
}

const HELP: &str = "\
Examples:
  tickwheel replay data/jobs-gaia.csv.gz
  tickwheel replay trace.csv --mode hierarchical:256 --mode hashed:4096 --tick 10ms
  tickwheel replay trace.csv.gz --plot trace.svg
  zcat trace.csv.gz | tickwheel replay - --json

A trace has a line for each operation, in the order of time:
  time_ms,op,key,delay_ms
  0,schedule,17,30000
  250,reschedule,17,30000
  400,cancel,17,

Exit code: 0 when done, also if a mode was stopped, 1 if a result cannot be written, 2 for
arguments or a trace that are wrong, 130 when interrupted.";
