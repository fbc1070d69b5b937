//! `tickwheel watch`.

use super::{Asked, progress};
use crate::Failure;
use clap::builder::ArgPredicate;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
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
    )]
    modes: Vec<Asked>,

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
        let interrupted = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&interrupted);
        progress::set_handler(move || end(&flag))?;
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
        let modes = super::modes(&self.modes);
        let Some(file) = &self.file else {
            let demo = Demo::new(DEMO_SEED).map(Ok);
            return Ok(Watch::new("demo", demo, &modes, self.tick)?);
        };
        let name = match file.file_name() {
            _ if file.as_os_str() == "-" => "standard input".into(),
            name => name.unwrap_or(file.as_os_str()).to_string_lossy(),
        };
        if self.follow {
            return Ok(Watch::follow(&name, file, &modes, self.tick));
        }
        Ok(Watch::open(&name, file, &modes, self.tick)?)
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
const TO_RESTORE: Duration = Duration::from_secs(2);

const EXAMPLES: &str = "\
Examples:
  tickwheel watch --demo
  tickwheel watch data/jobs-gaia.csv.gz --speed 1d
  tickwheel watch trace.csv --mode hierarchical:16 --mode hashed:64
  tickwheel watch --follow recording.csv";
