//! `Following`: a recording that is read while its program writes it.

use same_file::Handle;
use std::fs;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;
use tickwheel_cli::trace::{Gaps, Operation, Trace, TraceError};

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
    /// Whether its file was begun anew or replaced, by a program that was restarted.
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
    let growing = |open| {
        let (path, watched) = (file.to_path_buf(), watched.clone());
        Ok(Growing { path, file: Handle::from_file(open)?, read: 0, tail: Vec::new(), watched })
    };
    let mut trace = match file == Path::new("-") {
        true => Trace::new("standard input", io::stdin())?,
        false if grows => Trace::follow(file, growing)?,
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

/// A file that does not end where nothing more was written yet.
struct Growing {
    path: PathBuf,
    file: Handle,
    /// The bytes that were read.
    read: u64,
    /// The last of these bytes.
    tail: Vec<u8>,
    watched: Weak<State>,
}

impl Read for Growing {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.file.as_file_mut().read(buffer)?;
            let is_file = self.file.as_file().metadata()?.is_file();
            // After the read: what was read then is of the same recording as all before.
            if is_file && (self.is_overwritten(read)? || read == 0 && self.is_replaced()) {
                if let Some(state) = self.watched.upgrade() {
                    state.is_anew.store(true, Ordering::Relaxed);
                }
                return Ok(0);
            }
            self.read += read as u64;
            self.tail.extend_from_slice(&buffer[read.saturating_sub(TAIL)..read]);
            self.tail.drain(..self.tail.len().saturating_sub(TAIL));
            // A pipe ends when its writers are gone.
            if 0 < read || !is_file || buffer.is_empty() || self.watched.strong_count() == 0 {
                return Ok(read);
            }
            thread::sleep(BETWEEN_LOOKS);
        }
    }
}

impl Growing {
    /// Whether the file no longer has what was read of it: a restarted program began it anew. It
    /// may be longer again already. `ahead` bytes were read and are not counted yet.
    fn is_overwritten(&mut self, ahead: usize) -> io::Result<bool> {
        let file = self.file.as_file_mut();
        let mut there = Vec::new();
        file.seek(SeekFrom::Start(self.read - self.tail.len() as u64))?;
        file.take(self.tail.len() as u64).read_to_end(&mut there)?;
        file.seek(SeekFrom::Start(self.read + ahead as u64))?;
        Ok(there != self.tail)
    }

    /// Whether another file has its name: it was renamed, or deleted, and written anew.
    fn is_replaced(&self) -> bool {
        // A pipe would wait for a writer.
        fs::metadata(&self.path).is_ok_and(|there| there.is_file())
            && Handle::from_path(&self.path).is_ok_and(|there| there != self.file)
    }
}

/// As many last bytes tell one recording from another: lines with times and keys.
const TAIL: usize = 256;

/// The operations that are read before they are shown. If a pipe is full, its recorder counts what
/// it cannot write, and its program never waits.
const MOST_AHEAD: usize = 1 << 16;

const BETWEEN_LOOKS: Duration = Duration::from_millis(100);
