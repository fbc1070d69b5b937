//! `Following`: a recording that is read while its program writes it.

use crate::trace::{Gaps, Operation, Trace, TraceError};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

/// The operations of a recording, as they come. [`next`](Iterator::next) never waits: it returns
/// None while there is nothing new.
pub(super) struct Following {
    operations: Receiver<Result<Operation, TraceError>>,
    state: Arc<State>,
}

/// What is known of a trace that a thread reads.
#[derive(Debug, Default)]
pub(super) struct State {
    /// Whether all of it was taken.
    pub(super) is_over: AtomicBool,
    /// Whether its file was begun anew, by a program that was restarted.
    pub(super) is_anew: AtomicBool,
    /// What it lacks as far as it was read, and the time at which it ends.
    pub(super) known: Mutex<(Gaps, Option<u64>)>,
}

impl Following {
    /// Reads `file`, or standard input if it is `-`, in a thread; if it grows, to the end that a
    /// recorder writes.
    pub(super) fn new(file: &Path, grows: bool) -> Self {
        let (sender, operations) = mpsc::sync_channel(MOST_AHEAD);
        let state = Arc::new(State::default());
        let (file, watched) = (file.to_path_buf(), Arc::downgrade(&state));
        thread::spawn(move || {
            let done = read(&file, grows, &watched, &sender);
            // The rest of a file that was begun anew is no error of it.
            let is_anew = watched.upgrade().is_some_and(|it| it.is_anew.load(Ordering::Relaxed));
            if let Err(error) = done
                && !is_anew
            {
                let _ = sender.send(Err(error));
            }
        });
        Self { operations, state }
    }

    pub(super) fn state(&self) -> Arc<State> {
        Arc::clone(&self.state)
    }
}

impl Iterator for Following {
    type Item = Result<Operation, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.operations.try_recv() {
            Ok(operation) => Some(operation),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => {
                self.state.is_over.store(true, Ordering::Relaxed);
                None
            }
        }
    }
}

/// Sends the operations of `file` until the recording is over, or nobody is left who watches.
fn read(
    file: &Path,
    grows: bool,
    watched: &Weak<State>,
    sender: &SyncSender<Result<Operation, TraceError>>,
) -> Result<(), TraceError> {
    let growing =
        |open: File| Growing { file: open, read: 0, end: Vec::new(), watched: watched.clone() };
    let mut trace = match file == Path::new("-") {
        true => Trace::new("standard input", io::stdin())?,
        false if grows => Trace::open_as(file, growing)?,
        false => Trace::open(file)?,
    };
    loop {
        let operation = trace.next().transpose()?;
        let Some(state) = watched.upgrade() else { break };
        *state.known.lock().unwrap_or_else(PoisonError::into_inner) =
            (trace.gaps(), trace.end_ms());
        let Some(operation) = operation else { break };
        if sender.send(Ok(operation)).is_err() {
            break;
        }
    }
    Ok(())
}

/// A file whose end is where a recorder wrote it, and not where nothing more was written yet.
struct Growing {
    file: File,
    /// The bytes that were read.
    read: u64,
    /// The last bytes that were read.
    end: Vec<u8>,
    watched: Weak<State>,
}

impl Read for Growing {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.file.read(buffer)?;
            self.end.extend_from_slice(&buffer[read.saturating_sub(END.len())..read]);
            self.end.drain(..self.end.len().saturating_sub(END.len()));
            self.read += read as u64;
            let metadata = self.file.metadata()?;
            // A program that is restarted begins its recording anew.
            if metadata.is_file() && metadata.len() < self.read {
                if let Some(state) = self.watched.upgrade() {
                    state.is_anew.store(true, Ordering::Relaxed);
                }
                return Ok(0);
            }
            // A pipe ends when its writers are gone.
            let is_over = self.end == END || !metadata.is_file();
            if 0 < read || is_over || buffer.is_empty() || self.watched.strong_count() == 0 {
                return Ok(read);
            }
            thread::sleep(BETWEEN_LOOKS);
        }
    }
}

/// How the last line of a recording ends.
const END: &[u8] = b",end,,\n";

/// The operations that are read before they are shown. If a pipe is full, its recorder counts what
/// it cannot write, and its program never waits.
const MOST_AHEAD: usize = 1 << 16;

const BETWEEN_LOOKS: Duration = Duration::from_millis(100);
