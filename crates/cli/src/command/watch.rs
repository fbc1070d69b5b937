//! `tickwheel watch`.

use super::progress::Interrupt;
use crate::Failure;
use clap::builder::ArgPredicate;
#[cfg(unix)]
use signal_hook::{consts, iterator::Signals};
use std::io::{self, IsTerminal};
use std::path::PathBuf;
#[cfg(unix)]
use std::process;
#[cfg(unix)]
use std::sync::Arc;
#[cfg(unix)]
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
#[cfg(unix)]
use std::thread;
use std::time::Duration;
use tickwheel::Mode;
use tickwheel_cli::tick::Tick;
use tickwheel_cli::watch::{self, Demo, Ended, Watch, WatchError};

/// Shows wheels as they turn under a recorded workload, in the terminal.
#[derive(clap::Args)]
#[command(after_help = help())]
pub(crate) struct Arguments {
    /// The trace: CSV with the header `time_ms,op,key,delay_ms`, plain or gzip; `-` for standard
    /// input.
    #[arg(value_name = "FILE", required_unless_present = "demo", conflicts_with = "demo")]
    file: Option<PathBuf>,

    /// Show a made-up server instead of a trace. It never ends.
    #[arg(long)]
    demo: bool,

    /// Follow a recording that a running program writes into FILE, a file or a pipe.
    #[arg(long, requires = "file")]
    follow: bool,

    /// A mode to show: `hierarchical:BUCKETS` (a level) or `hashed:BUCKETS` (in all). Can be given
    /// more than once.
    #[arg(
        long = "mode",
        value_name = "MODE",
        default_values = ["hierarchical:64", "hashed:512"],
        default_values_if("follow", ArgPredicate::Equals("true".into()), ["hierarchical:64"]),
        value_parser = super::replay::mode,
    )]
    modes: Vec<Mode>,

    /// The length of a tick, 1us to 1h.
    #[arg(long, value_name = "DURATION", default_value = "1ms")]
    tick: Tick,

    /// How much of the trace a second shows. If you do not say, it is as much as has some 200
    /// operations at the beginning of the trace.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    speed: Option<Duration>,

    /// Draw with ASCII only.
    #[arg(long)]
    ascii: bool,
}

impl Arguments {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let mut watch = self.open()?;
        if self.ascii {
            watch.use_ascii();
        }
        if let Some(speed) = self.speed {
            watch.set_speed(speed);
        }
        if !io::stdout().is_terminal() {
            let found = "standard output is no terminal: `watch` draws on a terminal";
            return Err(Failure::Input(found.into()));
        }
        let interrupted = Interrupt::is_noted()?;
        #[cfg(unix)]
        notes_signals(Arc::clone(&interrupted))?;
        watch.play();
        // A panic restores the terminal as well, before it says what went wrong.
        let failure = |error| Failure::from(WatchError::Terminal(error));
        let mut terminal = ratatui::try_init().map_err(failure)?;
        let ended = watch.run(&mut terminal, || interrupted.load(Ordering::Relaxed));
        let restored = ratatui::try_restore();
        match ended? {
            Ended::Quit => restored.map_err(failure),
            Ended::Interrupted => Err(Failure::Interrupted),
        }
    }

    fn open(&self) -> Result<Watch, Failure> {
        let Some(file) = &self.file else {
            let demo = Demo::new(DEMO_SEED).map(Ok);
            return Ok(Watch::new("demo", demo, &self.modes, self.tick)?);
        };
        let name = match file.file_name() {
            _ if file.as_os_str() == "-" => "standard input".into(),
            name => name.unwrap_or(file.as_os_str()).to_string_lossy(),
        };
        if self.follow {
            return Ok(Watch::follow(&name, file, &self.modes, self.tick));
        }
        Ok(Watch::open(&name, file, &self.modes, self.tick)?)
    }
}

/// Sets the flag when a signal asks the process to end, and ends it if that does not help: to look
/// for keys in a terminal that is gone takes for ever.
#[cfg(unix)]
fn notes_signals(interrupted: Arc<AtomicBool>) -> Result<(), Failure> {
    let mut signals = Signals::new([consts::SIGTERM, consts::SIGHUP])
        .map_err(|error| Failure::Output(format!("cannot watch for signals: {error}")))?;
    thread::spawn(move || {
        if signals.forever().next().is_some() {
            interrupted.store(true, Ordering::Relaxed);
            thread::sleep(TO_RESTORE);
            // In a thread: a terminal that is gone may not take it.
            thread::spawn(ratatui::try_restore);
            thread::sleep(TO_RESTORE);
            process::exit(130);
        }
    });
    Ok(())
}

impl From<WatchError> for Failure {
    fn from(error: WatchError) -> Self {
        match error {
            WatchError::Trace(error) => error.into(),
            error => Self::Output(error.to_string()),
        }
    }
}

fn help() -> String {
    let keys = watch::KEYS.replace('\n', "\n  ");
    format!("Keys:\n  {keys}\n\n{EXAMPLES}")
}

const DEMO_SEED: u64 = 1;

/// After a signal the terminal is restored within this.
#[cfg(unix)]
const TO_RESTORE: Duration = Duration::from_secs(2);

const EXAMPLES: &str = "\
Examples:
  tickwheel watch --demo
  tickwheel watch data/jobs-gaia.csv.gz --speed 1d
  tickwheel watch trace.csv --mode hierarchical:16 --mode hashed:64
  tickwheel watch --follow recording.csv

Exit code: 0 when you quit, 1 if the terminal does not answer, 2 for arguments or a trace that are
wrong, 130 when interrupted.";
