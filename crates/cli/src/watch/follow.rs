//! `Following`: a recording that is read while its program writes it.

use crate::trace::{Operation, Trace, TraceError};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender, TryRecvError};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

/// The operations of a recording, as they come. [`next`](Iterator::next) never waits: it returns
/// None while there is nothing new.
pub(super) struct Following {
    operations: Receiver<Result<Operation, TraceError>>,
    is_over: Arc<AtomicBool>,
}

impl Following {
    /// Reads `file`, or standard input if it is `-`, in a thread.
    pub(super) fn new(file: &Path) -> Self {
        let (sender, operations) = mpsc::sync_channel(MOST_AHEAD);
        let is_over = Arc::new(AtomicBool::new(false));
        let (file, watched) = (file.to_path_buf(), Arc::downgrade(&is_over));
        thread::spawn(move || {
            if let Err(error) = read(&file, watched, &sender) {
                let _ = sender.send(Err(error));
            }
        });
        Self { operations, is_over }
    }

    /// Becomes true when the recording is over and all of it was taken.
    pub(super) fn is_over(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_over)
    }
}

impl Iterator for Following {
    type Item = Result<Operation, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.operations.try_recv() {
            Ok(operation) => Some(operation),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => {
                self.is_over.store(true, Ordering::Relaxed);
                None
            }
        }
    }
}

/// Sends the operations of `file` until the recording is over, or nobody is left who watches.
fn read(
    file: &Path,
    watched: Weak<AtomicBool>,
    sender: &SyncSender<Result<Operation, TraceError>>,
) -> Result<(), TraceError> {
    let trace = match file == Path::new("-") {
        true => Trace::new("standard input", io::stdin())?,
        false => Trace::open_as(file, |file| Growing { file, end: Vec::new(), watched })?,
    };
    for operation in trace {
        if sender.send(Ok(operation?)).is_err() {
            break;
        }
    }
    Ok(())
}

/// A file whose end is where a recorder wrote it, and not where nothing more was written yet.
struct Growing {
    file: File,
    /// The last bytes that were read.
    end: Vec<u8>,
    watched: Weak<AtomicBool>,
}

impl Read for Growing {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.file.read(buffer)?;
            self.end.extend_from_slice(&buffer[read.saturating_sub(END.len())..read]);
            self.end.drain(..self.end.len().saturating_sub(END.len()));
            // A pipe ends when its writers are gone.
            let is_over = self.end == END || !self.file.metadata()?.is_file();
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
