//! Records what a program does to its timeouts, as a trace for `tickwheel replay`.

mod ring;
mod writer;

use crate::Key;
use crate::platform::process_id;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;
use core::mem::forget;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use core::time::Duration;
use ring::{Operation, OperationKind, Ring};
use std::io::{self, Write};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use writer::{Log, Writer};

/// Records what happens in a [`Wheel`](crate::Wheel), as a trace: `tickwheel replay` and
/// `tickwheel choose` read it, and say which mode, number of buckets and tick suit the program.
///
/// The caller tells the recorder of each timeout that it schedules, moves or cancels. A recorder
/// takes any timeouts that have keys of one wheel.
/// [`TimerBuilder::record`](crate::TimerBuilder::record) records a whole [`Timer`](crate::Timer).
///
/// # The trace
///
/// CSV with the columns `time_ms,op,key,delay_ms`: what happened, when, to which timeout, and how
/// long after that it is due. It says nothing of the values. Times are whole milliseconds since
/// tick 0, rounded down; that is when a timer was built, unless it was told
/// [when](crate::TimerBuilder::ticks_from). So a replay fires what the program fired. But if a tick
/// is not a whole number of milliseconds, what was cancelled or moved in the millisecond in which it
/// was due fires too, and the replay counts a late cancel.
///
/// Three more `op`s are the recorder's own. `begin` is the first. `end` is the last, at the time at
/// which the recording ended: without it the program was killed, or has not ended yet. `missing`
/// says in the column `key` how many operations are missing about there.
///
/// For gzip, wrap the writer in an encoder, as `flate2::write::GzEncoder` is one.
///
/// # Cost
///
/// A thread of the recorder's own writes, at least once a second, and flushes once a second. A call
/// copies a few words for that thread, and never waits for it. At most 2^20 operations wait to be
/// written, of one wheel 2^16. Operations that find no room are counted and not written. After the
/// writer has failed or panicked, no operation is written.
///
/// ```
/// use std::time::Duration;
/// use tickwheel::{Mode, Recorder, Wheel};
/// # #[derive(Clone, Default)]
/// # struct File(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);
/// # impl std::io::Write for File {
/// #     fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> { self.0.lock().unwrap().write(bytes) }
/// #     fn flush(&mut self) -> std::io::Result<()> { Ok(()) }
/// # }
/// # let file = File::default();
/// # let written = file.clone();
///
/// let mut wheel = Wheel::new(Mode::hierarchical());
/// let mut recorder = Recorder::new(file, Duration::from_millis(1))?; // the length of a tick
/// let now = 100;
/// let request = wheel.schedule(now + 30_000, "request");
/// recorder.scheduled(now, request, now + 30_000);
///
/// let now = 350;
/// if wheel.cancel(request).is_some() {
///     recorder.cancelled(now, request);
/// }
/// let recorded = recorder.finish(1_000);
/// assert_eq!((recorded.operations, recorded.missing, recorded.error), (2, 0, None));
/// # let text = String::from_utf8(written.0.lock().unwrap().clone())?;
/// # assert_eq!(text, "time_ms,op,key,delay_ms\n0,begin,,\n100,schedule,0,30000\n350,cancel,0,\n1000,end,,\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Recorder {
    lane: Lane,
    recording: Recording,
}

/// What was recorded: of a [`Recorder`], or of a timer by
/// [`Timer::recorded`](crate::Timer::recorded).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recorded {
    /// Operations that the writer took.
    pub operations: u64,
    /// Operations that are missing, because the writer was too slow or has failed.
    pub missing: u64,
    /// Why the writer failed, if it has: nothing is written after that.
    pub error: Option<io::ErrorKind>,
}

impl Recorder {
    /// Makes a recorder that writes to `writer`, of a wheel whose ticks are of length `tick`.
    ///
    /// # Errors
    ///
    /// If the recorder's thread cannot be started.
    pub fn new(writer: impl Write + Send + 'static, tick: Duration) -> io::Result<Self> {
        let recording = Recording::new(Box::new(writer), 1, tick);
        recording.start(|| u64::MAX)?;
        Ok(Self { lane: recording.lane(0), recording })
    }

    /// Records that `key` was scheduled at tick `now`, for tick `deadline`.
    #[inline]
    pub fn scheduled(&mut self, now: u64, key: Key, deadline: u64) {
        self.lane.time_ms = self.lane.log.millis(now);
        self.lane.scheduled(place(key), deadline);
    }

    /// Records that `key` was moved at tick `now`, to tick `deadline`.
    #[inline]
    pub fn rescheduled(&mut self, now: u64, key: Key, deadline: u64) {
        self.lane.time_ms = self.lane.log.millis(now);
        self.lane.rescheduled(place(key), deadline);
    }

    /// Records that `key` was cancelled at tick `now`.
    #[inline]
    pub fn cancelled(&mut self, now: u64, key: Key) {
        self.lane.time_ms = self.lane.log.millis(now);
        self.lane.cancelled(place(key));
    }

    /// Returns what was recorded so far.
    #[must_use]
    pub fn recorded(&self) -> Recorded {
        self.recording.recorded()
    }

    /// Ends the recording at tick `now`, waits until all is written, and returns what was recorded.
    ///
    /// Dropping the recorder does the same, at the time of the last operation.
    pub fn finish(self, now: u64) -> Recorded {
        self.recording.end(self.lane.log.millis(now), true);
        self.recorded()
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.recording.end(self.lane.time_ms, true);
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("recorded", &self.recorded()).finish_non_exhaustive()
    }
}

/// The place of one shard, or of one wheel, in a recording. One thread at a time uses it.
pub(crate) struct Lane {
    log: Arc<Log>,
    number: usize,
    /// When what is told next happens, in ms since tick 0.
    pub(crate) time_ms: u64,
}

/// A recording, and the thread that writes it.
pub(crate) struct Recording {
    log: Arc<Log>,
    sink: Mutex<Option<Box<dyn Write + Send>>>,
    /// The thread that writes, and the process in which it was started: a child process made by
    /// `fork` has none.
    thread: Mutex<Option<(JoinHandle<()>, u32)>>,
}

impl Recording {
    /// Makes one of so many lanes, of wheels whose ticks are of length `tick`.
    pub(crate) fn new(sink: Box<dyn Write + Send>, lanes: usize, tick: Duration) -> Self {
        let room = (MOST / lanes.max(1)).clamp(FEWEST_A_LANE, MOST_A_LANE);
        let log = Log {
            rings: (0..lanes).map(|_| Ring::new(1 << room.ilog2())).collect(),
            tick: u64::try_from(tick.as_nanos()).unwrap_or(u64::MAX),
            writer: OnceLock::new(),
            end: OnceLock::new(),
            operations: AtomicU64::new(0),
            unwritten: AtomicU64::new(0),
            error: OnceLock::new(),
        };
        Self { log: Arc::new(log), sink: Mutex::new(Some(sink)), thread: Mutex::new(None) }
    }

    /// Starts the thread that writes. `now` returns the ms since tick 0.
    pub(crate) fn start(&self, now: impl Fn() -> u64 + Send + 'static) -> io::Result<()> {
        let sink = self.sink.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(sink) = sink else { return Ok(()) };
        let writer = Writer::new(Arc::clone(&self.log), sink, Box::new(now));
        let name = String::from("tickwheel-trace");
        let thread = thread::Builder::new().name(name).spawn(move || writer.run())?;
        let _ = self.log.writer.set(thread.thread().clone());
        *self.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some((thread, process_id()));
        Ok(())
    }

    pub(crate) fn lane(&self, number: usize) -> Lane {
        Lane { log: Arc::clone(&self.log), number, time_ms: 0 }
    }

    /// Ends the recording, if that was not done before. Nothing may be pushed after that. Waits
    /// until all is written if `waits`; if not, a later call can.
    pub(crate) fn end(&self, at_ms: u64, waits: bool) {
        let _ = self.log.end.set(at_ms);
        self.log.wake();
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = thread.take_if(|(_, process)| waits || *process != process_id());
        drop(thread);
        let Some((thread, process)) = taken else { return };
        if process != process_id() {
            // The thread of a parent process writes nothing of what happened here. A thread of this
            // process may have its number, and would be detached.
            forget(thread);
            let unwritten = self.log.rings.iter().map(Ring::waiting).sum();
            self.log.unwritten.fetch_add(unwritten, Relaxed);
            return;
        }
        // The writer may end the recording itself, by dropping what it owns.
        let is_other = thread.thread().id() != thread::current().id();
        if is_other {
            // What it panics with was told.
            let _ = thread.join();
        }
    }

    pub(crate) fn recorded(&self) -> Recorded {
        let Log { rings, operations, unwritten, error, .. } = &*self.log;
        let missing: u64 = rings.iter().map(Ring::missing).sum();
        Recorded {
            operations: operations.load(Relaxed),
            missing: missing + unwritten.load(Relaxed),
            error: error.get().copied(),
        }
    }
}

/// `name` is a number of a timeout that no other has at the same time: the smaller, the better.
impl Lane {
    #[inline]
    pub(crate) fn scheduled(&self, name: u32, deadline: u64) {
        self.push(OperationKind::Schedule, name, self.log.millis(deadline));
    }

    #[inline]
    pub(crate) fn rescheduled(&self, name: u32, deadline: u64) {
        self.push(OperationKind::Reschedule, name, self.log.millis(deadline));
    }

    #[inline]
    pub(crate) fn cancelled(&self, name: u32) {
        self.push(OperationKind::Cancel, name, 0);
    }

    #[inline]
    fn push(&self, kind: OperationKind, name: u32, due_ms: u64) {
        let ring = &self.log.rings[self.number];
        let key = u64::from(name) * self.log.rings.len() as u64 + self.number as u64;
        let Ok(key) = u32::try_from(key) else { return ring.misses() };
        if ring.push(Operation { time_ms: self.time_ms, key, kind, due_ms }) {
            self.log.wake();
        }
    }
}

/// Returns the place of a timeout in its wheel: no other has it at the same time.
fn place(key: Key) -> u32 {
    key.to_bits() as u32
}

/// How many operations wait to be written at most: in all lanes, and in one of few or many lanes.
/// Powers of two.
const MOST: usize = 1 << 20;
const MOST_A_LANE: usize = 1 << 16;
const FEWEST_A_LANE: usize = 1 << 10;
