//! The command `tickwheel`.

use clap::{Parser, Subcommand};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::ffi::OsStr;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tickwheel::Mode;
use tickwheel::replay::{self, Report, Tick, Trace, TraceError};

/// Timing wheels, hierarchical and hashed.
#[derive(Parser)]
#[command(version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs a recorded workload through wheels of several modes and compares them.
    #[command(after_help = REPLAY_HELP)]
    Replay(Replay),
}

#[derive(clap::Args)]
struct Replay {
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

    /// Print one JSON object a mode, one a line, instead of the table.
    #[arg(long)]
    json: bool,

    /// Draw a picture as well; SVG or PNG, as the name ends.
    #[arg(long, value_name = "OUT.svg|OUT.png", value_parser = Plot::parse)]
    plot: Option<Plot>,
}

const REPLAY_HELP: &str = "\
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

Exit code: 0 when done, 1 if a result cannot be written, 2 for arguments or a trace that are wrong,
130 when interrupted.";

/// A picture to be written: only when it is complete, or not at all.
#[derive(Clone)]
struct Plot {
    path: PathBuf,
    draw: fn(&Report) -> Result<Vec<u8>, replay::PlotError>,
}

/// Why the command ends early; what it says, and its exit code.
enum Failure {
    /// The arguments or the trace are wrong.
    Input(String),
    /// A result cannot be written.
    Output(String),
}

fn main() -> ExitCode {
    let Command::Replay(arguments) = Arguments::parse().command;
    let (message, code) = match arguments.run() {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::Input(message)) => (message, 2),
        Err(Failure::Output(message)) => (message, 1),
    };
    // There is nobody left to tell if this fails.
    let _ = writeln!(io::stderr(), "tickwheel: {message}");
    ExitCode::from(code)
}

impl Replay {
    fn run(&self) -> Result<(), Failure> {
        if let Some(plot) = &self.plot {
            plot.check().map_err(Failure::Input)?;
        }
        let progress = ProgressBar::hidden();
        let writing = exit_on_interrupt(progress.clone())?;
        let trace = self.open()?;
        show(&progress, &trace);
        let report = replay::replay(trace, &self.modes, self.tick, |trace| {
            match trace.size() {
                Some(_) => progress.set_position(trace.bytes_read()),
                None => progress.set_position(trace.operations()),
            };
        });
        progress.finish_and_clear();
        let report = report?;
        self.print(&report)?;
        if let Some(plot) = &self.plot {
            let _writing = writing.lock().unwrap_or_else(PoisonError::into_inner);
            plot.write(&report).map_err(Failure::Output)?;
        }
        Ok(())
    }

    fn open(&self) -> Result<Trace, TraceError> {
        if self.file == Path::new("-") {
            return Trace::new("standard input", io::stdin());
        }
        Trace::open(&self.file)
    }

    /// Prints what was found. A reader that has had enough is no failure.
    fn print(&self, report: &Report) -> Result<(), Failure> {
        let mut output = io::BufWriter::new(io::stdout().lock());
        let printed = match self.json {
            true => report.write_json(&mut output),
            false => write!(output, "{report}"),
        };
        match printed.and_then(|()| output.flush()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(Failure::Output(format!("standard output: {error}")))
            }
            _ => Ok(()),
        }
    }
}

impl Plot {
    fn parse(path: &str) -> Result<Self, String> {
        let path = PathBuf::from(path);
        let extension = path.extension().and_then(OsStr::to_str).map(str::to_ascii_lowercase);
        match extension.as_deref() {
            Some("svg") => Ok(Self { path, draw: |report| Ok(replay::svg(report).into()) }),
            Some("png") => Ok(Self { path, draw: replay::png }),
            _ => Err("expected a name that ends in .svg or .png".into()),
        }
    }

    /// Whether there will be a place to write to, as far as can be told beforehand.
    fn check(&self) -> Result<(), String> {
        if self.path.is_dir() {
            return Err(format!("{}: found a directory, expected a file", self.path.display()));
        }
        match tempfile::tempfile_in(self.folder()) {
            Ok(_) => Ok(()),
            Err(error) => Err(format!(
                "{}: cannot write into {}: {error}",
                self.path.display(),
                self.folder().display()
            )),
        }
    }

    /// Draws the picture into a file beside the one asked for, then gives it its name.
    fn write(&self, report: &Report) -> Result<(), String> {
        let cannot = |error: &dyn std::error::Error| format!("{}: {error}", self.path.display());
        let picture = (self.draw)(report).map_err(|error| cannot(&error))?;
        let mut file = new_file(self.folder()).map_err(|error| cannot(&error))?;
        file.write_all(&picture).map_err(|error| cannot(&error))?;
        file.persist(&self.path).map_err(|error| cannot(&error.error))?;
        Ok(())
    }

    fn folder(&self) -> &Path {
        match self.path.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        }
    }
}

impl From<TraceError> for Failure {
    fn from(error: TraceError) -> Self {
        Self::Input(error.to_string())
    }
}

/// A temporary file that has the permissions of any new file when it keeps its name.
fn new_file(folder: &Path) -> io::Result<tempfile::NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".tickwheel-");
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder.tempfile_in(folder)
}

/// Shows the progress through `trace`, if there is a terminal to show it on.
fn show(progress: &ProgressBar, trace: &Trace) {
    if !io::stderr().is_terminal() {
        return;
    }
    let template = match trace.size() {
        Some(size) => {
            progress.set_length(size);
            "{bar:40} {binary_bytes} of {binary_total_bytes} ({eta})"
        }
        None => "{spinner} {human_pos} operations ({per_sec})",
    };
    progress.set_style(ProgressStyle::with_template(template).expect("the template is sound"));
    progress.set_draw_target(ProgressDrawTarget::stderr());
    progress.enable_steady_tick(Duration::from_millis(100));
}

/// Ends the process when it is interrupted, but not while the lock that this returns is held.
fn exit_on_interrupt(progress: ProgressBar) -> Result<Arc<Mutex<()>>, Failure> {
    let writing = Arc::new(Mutex::new(()));
    let held = Arc::clone(&writing);
    let set = ctrlc::set_handler(move || {
        let _writing = held.lock().unwrap_or_else(PoisonError::into_inner);
        progress.finish_and_clear();
        std::process::exit(130);
    });
    match set {
        Ok(()) => Ok(writing),
        Err(error) => Err(Failure::Output(format!("cannot watch for Ctrl-C: {error}"))),
    }
}
