//! What is soaked: each part is a process of its own.
//!
//! It reads words from the supervisor, prints its figures, and at the word `end` lets all that it
//! began come to its end, balances its accounts, and prints `over`. It panics if one does not
//! balance, or if something was early, and a panic ends the process.

mod durable;
mod library;
mod systems;

use hdrhistogram::Histogram;
use std::io::{self, Write};
use std::panic;
use std::process::abort;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Which part a process is.
#[derive(Clone, Debug, clap::Subcommand)]
pub(crate) enum Part {
    /// Timers, futures, channels and maps.
    Library,
    /// The systems that need nothing else.
    Systems,
    /// The server of the heartbeats: `heartbeats::ServerProcess` starts it.
    Server { address: String, millis: String },
    /// A durable timer on a file, or on a database.
    Durable {
        /// The file, or the URL.
        place: String,
        /// Names begin with it.
        life: u64,
    },
}

impl Part {
    /// Is this part until the supervisor ends it.
    pub(crate) fn run(&self) -> Result<(), Box<dyn std::error::Error>> {
        let hook = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            hook(panic);
            abort();
        }));
        match self {
            Self::Library => library::library(),
            Self::Systems => systems::systems(),
            Self::Server { address, millis } => {
                return ::systems::heartbeats::serve(address, millis);
            }
            Self::Durable { place, life } => durable::durable(place, *life)?,
        }
        say("over");
        Ok(())
    }
}

/// Prints a line at once, in one piece.
fn say(line: &str) {
    let mut output = io::stdout().lock();
    // The supervisor may be gone, and then its words end as well.
    let _ = writeln!(output, "{line}");
    let _ = output.flush();
}

/// Tells threads to end.
#[derive(Clone, Debug, Default)]
struct Over(Arc<AtomicBool>);

impl Over {
    fn is_over(&self) -> bool {
        self.0.load(SeqCst)
    }

    fn end(&self) {
        self.0.store(true, SeqCst);
    }
}

/// What was done, and how late.
#[derive(Debug)]
struct Figures {
    done: AtomicU64,
    late: Mutex<Histogram<u64>>,
}

impl Figures {
    fn new() -> Arc<Self> {
        let late = Histogram::new_with_max(LONGEST, 2).expect("bounds that make sense");
        Arc::new(Self { done: AtomicU64::new(0), late: Mutex::new(late) })
    }

    /// Something that was due at `deadline` happens.
    ///
    /// # Panics
    ///
    /// If it is early.
    fn came(&self, deadline: Instant) {
        let now = Instant::now();
        assert!(deadline <= now, "early by {:?}", deadline - now);
        self.late((now - deadline).as_micros());
    }

    fn late(&self, micros: u128) {
        self.done.fetch_add(1, SeqCst);
        let mut late = self.late.lock().expect("no thread panics with it");
        late.saturating_record(u64::try_from(micros).unwrap_or(u64::MAX));
    }

    /// Prints them every second until it is over, on a thread.
    fn tell(self: &Arc<Self>, over: &Over, pending: impl Fn() -> usize + Send + 'static) {
        let (figures, over) = (Arc::clone(self), over.clone());
        thread::spawn(move || {
            while !over.is_over() {
                figures.say(pending());
                thread::sleep(Duration::from_secs(1));
            }
        });
    }

    fn say(&self, pending: usize) {
        let late = self.late.lock().expect("no thread panics with it");
        let [p50, p99] = [0.5, 0.99].map(|quantile| late.value_at_quantile(quantile));
        let (done, max) = (self.done.load(SeqCst), late.max());
        drop(late);
        say(&format!("figures {pending} {done} {p50} {p99} {max}"));
    }
}

/// Waits for the next word of the supervisor; None if it says `end`, or is gone.
fn word() -> Option<String> {
    let mut line = String::new();
    io::stdin().read_line(&mut line).ok()?;
    Some(line.trim().to_owned()).filter(|word| !word.is_empty() && word != "end")
}

/// Sleeps for up to twice so long.
fn nap(about: Duration) {
    thread::sleep(about.mul_f64(2.0 * fastrand::f64()));
}

/// Microseconds in an hour.
const LONGEST: u64 = 3_600_000_000;
