//! A part's process, as the supervisor sees it.

use crate::account::Account;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child as Process, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// A process that is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Child {
    process: Process,
    reader: Option<JoinHandle<()>>,
    heard: Arc<Heard>,
}

/// What it said last.
#[derive(Debug, Default)]
struct Heard {
    figures: Mutex<Figures>,
    is_over: AtomicU64,
}

/// What a part counts of itself.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Figures {
    pub(crate) pending: u64,
    pub(crate) done: u64,
    /// Microseconds: the median, the 99th of a hundred, the most.
    pub(crate) late: [u64; 3],
}

/// What the system counts of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Usage {
    pub(crate) kilobytes: u64,
    pub(crate) threads: u64,
    pub(crate) files: u64,
}

/// A place of durable timers, which parts share: its account, and when one of them was stopped last.
#[derive(Debug, Default)]
pub(crate) struct Place {
    pub(crate) account: Mutex<Account>,
    pub(crate) stopped: Mutex<Option<Instant>>,
    is_shared: bool,
}

impl Place {
    pub(crate) fn new(is_shared: bool) -> Arc<Self> {
        Arc::new(Self { is_shared, ..Self::default() })
    }

    /// One that was stopped may hand out what another has taken over. It is told at its ack.
    fn is_trusted(&self) -> bool {
        let stopped = self.stopped.lock().expect("no thread panics with it");
        !self.is_shared || stopped.is_none_or(|stopped| STALE < stopped.elapsed())
    }

    fn read(&self, line: &str) {
        let is_trusted = self.is_trusted();
        self.account.lock().expect("no thread panics with it").read(line, is_trusted);
    }
}

impl Child {
    /// Starts this program as a part.
    pub(crate) fn start(words: &[&str], place: Option<Arc<Place>>) -> io::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut process =
            command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let output = BufReader::new(process.stdout.take().expect("it is a pipe"));
        let heard = Arc::<Heard>::default();
        let hears = Arc::clone(&heard);
        let reader = thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                match (line.strip_prefix("figures "), &place) {
                    (Some(figures), _) => hears.read(figures),
                    (None, _) if line == "over" => hears.is_over.store(1, SeqCst),
                    (None, Some(place)) => place.read(&line),
                    (None, None) => {}
                }
            }
        });
        Ok(Self { process, reader: Some(reader), heard })
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(self.process.id().try_into().expect("a number of a process"))
    }

    /// Says a word to it, which it hears when it runs.
    pub(crate) fn tell(&mut self, word: &str) {
        // It may have ended, which is told elsewhere.
        let _ = writeln!(self.process.stdin.as_mut().expect("it is a pipe"), "{word}");
    }

    pub(crate) fn figures(&self) -> Figures {
        *self.heard.figures.lock().expect("no thread panics with it")
    }

    pub(crate) fn usage(&self) -> Usage {
        usage(self.pid())
    }

    pub(crate) fn signal(&self, signal: Signal) {
        // It may have ended, which is told elsewhere.
        let _ = kill(self.pid(), signal);
    }

    /// Its threads.
    pub(crate) fn threads(&self) -> Vec<Pid> {
        let Ok(tasks) = fs::read_dir(format!("/proc/{}/task", self.pid())) else {
            return Vec::new();
        };
        tasks
            .filter_map(|task| task.ok()?.file_name().to_str()?.parse().ok())
            .map(Pid::from_raw)
            .collect()
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        if let Some(reader) = self.reader.take() {
            reader.join().expect("it does not panic");
        }
    }

    /// None if it runs, else how it ended.
    pub(crate) fn ended(&mut self) -> Option<String> {
        self.process.try_wait().ok()?.map(|status| status.to_string())
    }

    /// Tells it to end, and waits.
    ///
    /// # Errors
    ///
    /// If it does not end so, or its accounts do not balance.
    pub(crate) fn end(&mut self) -> Result<(), String> {
        let begun = Instant::now();
        while self.ended().is_none() {
            if ENDS < begun.elapsed() {
                self.kill();
                return Err(format!("did not end within {ENDS:?}"));
            }
            thread::sleep(Duration::from_millis(50));
        }
        let status = self.process.wait().map_err(|error| error.to_string())?;
        self.kill();
        match self.heard.is_over.load(SeqCst) == 1 && status.success() {
            true => Ok(()),
            false => Err(format!("ended with {status}")),
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.signal(Signal::SIGCONT);
        self.kill();
    }
}

impl Heard {
    fn read(&self, line: &str) {
        let numbers: Vec<u64> = line.split(' ').filter_map(|number| number.parse().ok()).collect();
        let [pending, done, p50, p99, max] = numbers[..] else { return };
        let figures = Figures { pending, done, late: [p50, p99, max] };
        *self.figures.lock().expect("no thread panics with it") = figures;
    }
}

/// Zeros where the system does not say.
fn usage(pid: Pid) -> Usage {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let number = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
    };
    let files = fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
    // Of the files, pages can be given back, so they are the system's.
    Usage { kilobytes: number("RssAnon:"), threads: number("Threads:"), files: files as u64 }
}

/// After that a part that was stopped knows what it has lost.
const STALE: Duration = Duration::from_secs(60);
/// A part has so long to let what it began come to its end.
const ENDS: Duration = Duration::from_secs(900);
