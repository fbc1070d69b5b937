//! The command `tickwheel-watch`.

use clap::Parser;
use clap::builder::ArgPredicate;
use same_file::Handle;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::{self, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use tickwheel_cli::asked::{self, Asked};
use tickwheel_cli::signals;
use tickwheel_cli::tick::Tick;
use tickwheel_cli::trace::TraceError;
use tickwheel_watch::{Demo, Ended, KEYS, Watch, WatchError};

/// Shows wheels as they turn under a recorded workload, in the terminal.
#[derive(Parser)]
#[command(name = "tickwheel-watch", version, about, after_help = help())]
struct Arguments {
    /// The trace: CSV with the header `time_ms,op,key,delay_ms`, plain or gzip; `-` for standard
    /// input.
    #[arg(value_name = "FILE", required_unless_present = "demo", conflicts_with = "demo")]
    file: Option<PathBuf>,

    /// Show a made-up server instead of a trace. It never ends.
    #[arg(long)]
    demo: bool,

    /// Follow a recording that a running program writes into FILE, a file or a pipe.
    #[arg(long, requires = "file", conflicts_with = "demo")]
    follow: bool,

    /// The modes to show, with commas between them or each after a `--mode` of its own:
    /// `hierarchical:BUCKETS` (a level) or `hashed:BUCKETS` (in all).
    #[arg(
        long = "mode",
        value_name = "MODE",
        default_values = ["hierarchical:64", "hashed:512"],
        value_delimiter = ',',
        default_values_if("follow", ArgPredicate::Equals("true".into()), ["hierarchical:64"]),
    )]
    modes: Vec<Asked>,

    /// The length of a tick, 1us to 1h.
    #[arg(long, value_name = "DURATION", default_value = "1ms")]
    tick: Tick,

    /// How much of the trace a second shows. If you do not say, it is as much as has some 200
    /// operations at the beginning of the trace.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration,
          conflicts_with = "follow")]
    speed: Option<Duration>,

    /// Draw with ASCII only.
    #[arg(long)]
    ascii: bool,
}

fn main() -> ExitCode {
    let (message, code) = match Arguments::parse().run() {
        Ok(Ended::Quit) => return ExitCode::SUCCESS,
        Ok(Ended::Interrupted) => return ExitCode::from(130),
        Err(Failure::Watch(error @ WatchError::Trace(_))) => (error.to_string(), 2),
        Err(Failure::Watch(error)) => (error.to_string(), 1),
        Err(Failure::Input(message)) => (message.into(), 2),
    };
    say(message);
    ExitCode::from(code)
}

enum Failure {
    Watch(WatchError),
    Input(&'static str),
}

impl Arguments {
    fn run(&self) -> Result<Ended, Failure> {
        let is_input = self.file.as_ref().is_some_and(|file| file.as_os_str() == "-");
        if is_input && io::stdin().is_terminal() {
            return Err(Failure::Input(INPUT_IS_TERMINAL));
        }
        // What is read without a name ends where the file ends now.
        let is_file = |input: Handle| input.as_file().metadata().is_ok_and(|it| it.is_file());
        if is_input && self.follow && Handle::stdin().is_ok_and(is_file) {
            return Err(Failure::Input(INPUT_IS_FILE));
        }
        let mut watch = self.open().map_err(|error| Failure::Watch(error.into()))?;
        if self.ascii {
            watch.use_ascii();
        }
        if let Some(speed) = self.speed {
            watch.set_speed(speed);
        }
        if !io::stdout().is_terminal() {
            return Err(Failure::Input(NO_TERMINAL));
        }
        let failure = |error| Failure::Watch(WatchError::Terminal(error));
        let interrupted = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&interrupted);
        signals::on_end(move || end(&flag)).map_err(failure)?;
        let flag = Arc::clone(&interrupted);
        let looks = move || end_without_terminal(&flag);
        thread::Builder::new().spawn(looks).map_err(failure)?;
        watch.play();
        // A panic restores the terminal as well, before it says what went wrong.
        let mut terminal = ratatui::try_init().map_err(failure)?;
        let ended = watch.run(&mut terminal, || interrupted.load(Ordering::Relaxed));
        let restored = ratatui::try_restore();
        let ended = ended.map_err(Failure::Watch)?;
        if ended == Ended::Quit {
            restored.map_err(failure)?;
        }
        Ok(ended)
    }

    fn open(&self) -> Result<Watch, TraceError> {
        let modes = asked::modes(&self.modes, say);
        let Some(file) = &self.file else {
            let demo = Demo::new(DEMO_SEED).map(Ok);
            return Watch::new("demo", demo, &modes, self.tick);
        };
        let name = match file.file_name() {
            _ if file.as_os_str() == "-" => "standard input".into(),
            name => name.unwrap_or(file.as_os_str()).to_string_lossy(),
        };
        if self.follow {
            return Ok(Watch::follow(&name, file, &modes, self.tick));
        }
        Watch::open(&name, file, &modes, self.tick)
    }
}

/// Ends the process that a signal asks to end: first by the flag, and if that does not help, by
/// force. To look for keys in a terminal that is gone takes for ever.
fn end(interrupted: &AtomicBool) {
    interrupted.store(true, Ordering::Relaxed);
    thread::sleep(TO_RESTORE);
    // In a thread: a terminal that is gone may not take it.
    thread::spawn(ratatui::try_restore);
    thread::sleep(TO_RESTORE);
    process::exit(130);
}

/// Ends the process if its terminal goes away, as that of a process that ignores HUP does: to look
/// for keys there takes for ever.
fn end_without_terminal(interrupted: &AtomicBool) {
    while io::stdout().is_terminal() {
        thread::sleep(BETWEEN_LOOKS);
    }
    // A signal tells the same, and has an exit code of its own.
    thread::sleep(TO_RESTORE);
    if !interrupted.load(Ordering::Relaxed) {
        say(WatchError::Terminal(io::Error::other("it is gone")).to_string());
        process::exit(1);
    }
}

/// Says something on standard error, if anybody can hear it.
fn say(message: String) {
    let _ = writeln!(io::stderr(), "tickwheel-watch: {message}");
}

fn help() -> String {
    let keys = KEYS.replace('\n', "\n  ");
    format!("Keys:\n  {keys}\n\n{EXAMPLES}")
}

const NO_TERMINAL: &str = "standard output is no terminal: `watch` draws on a terminal";
const INPUT_IS_TERMINAL: &str =
    "standard input is a terminal, which the keys come from: expected a pipe or a file";
const INPUT_IS_FILE: &str = "standard input is a file: to follow it, give its name";

const DEMO_SEED: u64 = 1;

/// After a signal the terminal is restored within this.
const TO_RESTORE: Duration = Duration::from_secs(2);

/// How often the command looks whether its terminal is still there.
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);

const EXAMPLES: &str = "\
Examples:
  tickwheel watch --demo
  tickwheel watch data/jobs-gaia.csv.gz --speed 1d
  tickwheel watch trace.csv --mode hierarchical:16 --mode hashed:64
  tickwheel watch --follow recording.csv

Exit code: 0 when you quit, 1 if the terminal does not answer, 2 for arguments or a trace that are
wrong, 130 when interrupted.";
