//! `tickwheel report`.

use super::Measuring;
use super::output::OutputFile;
use super::progress::{self, Interrupt};
use crate::Failure;
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tickwheel::Mode;
use tickwheel_cli::report::{self, Options, Progress};
use tickwheel_cli::study::{self, Configurations};
use tickwheel_cli::tick::Tick;
use tickwheel_cli::trace::{Trace, TraceError};

/// Writes a page with charts about a recorded workload, and about what it costs in several modes.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Report {
    /// The trace: CSV with the header `time_ms,op,key,delay_ms`, plain or gzip; `-` for standard
    /// input.
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Write the page into this file.
    #[arg(short, long, value_name = "OUT.html", value_parser = OutputFile::parse)]
    output: OutputFile,

    /// A mode whose inside is shown: one `hierarchical:BUCKETS` (a level) and one `hashed:BUCKETS`
    /// (in all).
    #[arg(
        long = "mode",
        value_name = "MODE",
        default_values = ["hierarchical:64", "hashed:512"],
        value_parser = super::replay::mode,
    )]
    modes: Vec<Mode>,

    /// The length of a tick inside, 1us to 1h.
    #[arg(long, value_name = "DURATION", default_value = "1ms")]
    tick: Tick,

    /// How late a timeout may be because of the tick, in the search for the recommendation.
    #[arg(long, value_name = "DURATION", default_value = "1ms",
          value_parser = super::choose::lateness)]
    max_lateness: Duration,

    #[command(flatten)]
    measuring: Measuring,
}

impl Report {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        self.output.check()?;
        let progress = progress::hidden();
        let interrupt = Interrupt::exits(&progress)?;
        let input = Input::of(&self.file)?;
        let study = self.measuring.options(Configurations::Search(self.max_lateness));
        let options = Options { modes: self.modes.clone(), tick: self.tick, study };
        let mut size = None;
        let page = report::report(
            || input.open(),
            &options,
            |at| match at {
                Progress::Profiled(trace) => {
                    if size.replace(trace.size()).is_none() {
                        progress::show_reading(&progress, trace);
                    }
                    let read = study::Progress::Read(trace.operations(), trace.bytes_read());
                    progress::advance(&progress, trace.size(), read);
                }
                Progress::Studied(at) => progress::advance(&progress, size.flatten(), at),
                _ => {}
            },
        );
        progress.finish_and_clear();
        let page = page?.to_string();
        let _held = interrupt.hold();
        self.output.write(|file| file.write_all(page.as_bytes()))
    }
}

/// A trace that can be read more than once.
enum Input {
    File(PathBuf),
    /// What was on standard input.
    Kept(File),
}

impl Input {
    fn of(file: &Path) -> Result<Self, Failure> {
        if file != Path::new("-") {
            return Ok(Self::File(file.into()));
        }
        let kept = tempfile::tempfile().and_then(|mut kept| {
            io::copy(&mut io::stdin().lock(), &mut kept)?;
            Ok(kept)
        });
        let kept = kept.map_err(|error| {
            Failure::Output(format!("standard input cannot be kept in a file: {error}"))
        })?;
        Ok(Self::Kept(kept))
    }

    fn open(&self) -> Result<Trace, TraceError> {
        match self {
            Self::File(path) => Trace::open(path),
            Self::Kept(file) => {
                // One reader at a time.
                let file = file.try_clone().and_then(|mut file| {
                    file.seek(SeekFrom::Start(0))?;
                    Ok(file)
                });
                match file {
                    Ok(file) => Trace::new("standard input", file),
                    Err(error) => Trace::new("standard input", Unreadable(Some(error))),
                }
            }
        }
    }
}

/// A file that cannot be read.
struct Unreadable(Option<io::Error>);

impl io::Read for Unreadable {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        self.0.take().map_or(Ok(0), Err)
    }
}

const HELP: &str = "\
Examples:
  tickwheel report data/jobs-gaia.csv.gz -o report.html
  tickwheel report trace.csv -o report.html --max-lateness 100ms
  tickwheel generate cancelled | tickwheel report - -o report.html

The page needs nothing from the network.

Exit code: 0 when done, 1 if the page cannot be written, 2 for arguments or a trace that are wrong,
130 when interrupted.";
