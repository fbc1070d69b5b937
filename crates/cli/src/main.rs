//! The command `tickwheel`.

use bytesize::ByteSize;
use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::ffi::OsStr;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tickwheel::Mode;
#[cfg(feature = "durable")]
use tickwheel_cli::durable;
use tickwheel_cli::replay::{self, Limits, Report, Tick, Trace, TraceError};

/// Timing wheels, hierarchical and hashed.
#[derive(Parser)]
#[command(name = "tickwheel", version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs a recorded workload through wheels of several modes and compares them.
    #[command(after_help = REPLAY_HELP)]
    Replay(Replay),

    /// Looks into the file or the database of a durable timer, and cancels and mends there.
    #[cfg(feature = "durable")]
    #[command(after_help = durable::HELP)]
    Durable(durable::Durable),

    /// Prints a script that completes the command's arguments in a shell.
    #[command(after_help = COMPLETIONS_HELP)]
    Completions {
        /// The shell.
        shell: Shell,
    },

    /// Writes the man pages of the command into a folder.
    Man {
        /// The folder. It must exist.
        #[arg(value_name = "FOLDER")]
        folder: PathBuf,
    },
}

const COMPLETIONS_HELP: &str = "\
Examples:
  tickwheel completions bash > ~/.local/share/bash-completion/completions/tickwheel
  tickwheel completions fish > ~/.config/fish/completions/tickwheel.fish";

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

    /// Print one JSON object a mode, one a line, instead of the table.
    #[arg(long)]
    json: bool,

    /// Draw a picture as well; SVG or PNG, as the name ends. PNG needs a command that was built
    /// with the feature `png`.
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

Exit code: 0 when done, also if a mode was stopped, 1 if a result cannot be written, 2 for arguments or a trace that are wrong,
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
    let done = match Arguments::parse().command {
        Command::Replay(arguments) => arguments.run(),
        #[cfg(feature = "durable")]
        Command::Durable(arguments) => return durable(&arguments),
        Command::Completions { shell } => print_completions(shell),
        Command::Man { folder } => write_man_pages(&folder),
    };
    let (message, code) = match done {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::Input(message)) => (message, 2),
        Err(Failure::Output(message)) => (message, 1),
    };
    fail(&message, code)
}

fn fail(message: &str, code: u8) -> ExitCode {
    // There is nobody left to tell if this fails.
    let _ = writeln!(io::stderr(), "tickwheel: {message}");
    ExitCode::from(code)
}

#[cfg(feature = "durable")]
fn durable(arguments: &durable::Durable) -> ExitCode {
    let mut output = io::BufWriter::new(io::stdout().lock());
    let done = arguments.run(&mut output);
    // What was found before a failure is printed too.
    let done = output.flush().map_err(durable::Failure::Output).and(done);
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(durable::Failure::Found) => ExitCode::from(1),
        Err(durable::Failure::Input(message)) => fail(&message, 2),
        // A reader that has had enough is no failure.
        Err(durable::Failure::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            ExitCode::SUCCESS
        }
        Err(durable::Failure::Output(error)) => fail(&format!("standard output: {error}"), 1),
    }
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
        let limits = Limits {
            time: self.limit_time,
            memory: self.limit_memory.as_u64(),
            slower: self.limit_slower,
        };
        let report = replay::replay(trace, &self.modes, self.tick, &limits, |trace| {
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

/// Prints `output`. A reader that has had enough is no failure.
fn print(output: &[u8]) -> Result<(), Failure> {
    let mut standard = io::stdout().lock();
    match standard.write_all(output).and_then(|()| standard.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::Output(format!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}

fn print_completions(shell: Shell) -> Result<(), Failure> {
    let mut command = Arguments::command();
    let name = command.get_name().to_string();
    let mut output = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut output);
    print(&output)
}

fn write_man_pages(folder: &Path) -> Result<(), Failure> {
    clap_mangen::generate_to(Arguments::command(), folder)
        .map_err(|error| Failure::Output(format!("{}: {error}", folder.display())))
}

impl Plot {
    fn parse(name: &str) -> Result<Self, String> {
        let path = PathBuf::from(name);
        // A path forgets a separator at its end, and a dot behind it.
        if !path.file_name().and_then(OsStr::to_str).is_some_and(|last| name.ends_with(last)) {
            return Err("found a folder, expected a file".into());
        }
        let extension = path.extension().and_then(OsStr::to_str).map(str::to_ascii_lowercase);
        match extension.as_deref() {
            Some("svg") => Ok(Self { path, draw: |report| replay::svg(report).map(String::into) }),
            #[cfg(feature = "png")]
            Some("png") => Ok(Self { path, draw: replay::png }),
            #[cfg(not(feature = "png"))]
            Some("png") => Err("this command was built without the feature `png`: expected a \
                                name that ends in .svg"
                .into()),
            _ => Err("expected a name that ends in .svg or .png".into()),
        }
    }

    /// Returns whether there will be a place to write to, as far as can be told beforehand.
    fn check(&self) -> Result<(), String> {
        let target = self.target()?;
        if target.is_dir() {
            return Err(format!("{}: found a directory, expected a file", self.path.display()));
        }
        if target.exists() && !target.is_file() {
            return Err(format!("{}: found a device, expected a file", self.path.display()));
        }
        let folder = folder(&target);
        match tempfile::tempfile_in(folder) {
            Ok(_) => Ok(()),
            Err(error) => Err(format!(
                "{}: cannot write into {}: {error}",
                self.path.display(),
                folder.display()
            )),
        }
    }

    /// Draws the picture into a file beside the one asked for, then gives it its name.
    fn write(&self, report: &Report) -> Result<(), String> {
        let cannot = |error: &dyn std::error::Error| format!("{}: {error}", self.path.display());
        let target = self.target()?;
        let picture = (self.draw)(report).map_err(|error| cannot(&error))?;
        let mut file = new_file(folder(&target)).map_err(|error| cannot(&error))?;
        file.write_all(&picture).map_err(|error| cannot(&error))?;
        file.persist(&target).map_err(|error| cannot(&error.error))?;
        Ok(())
    }

    /// The file that the path leads to, through any links.
    fn target(&self) -> Result<PathBuf, String> {
        const MOST_LINKS: usize = 40;
        let mut target = self.path.clone();
        for _ in 0..MOST_LINKS {
            match target.read_link() {
                // A relative link counts from the folder that it is in.
                Ok(next) => target = folder(&target).join(next),
                Err(_) => return Ok(target),
            }
        }
        Err(format!("{}: found a link that leads to itself, expected a file", self.path.display()))
    }
}

/// The folder that a file is in.
fn folder(file: &Path) -> &Path {
    match file.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
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
