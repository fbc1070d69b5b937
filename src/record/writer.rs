//! The thread that writes a trace.

use super::ring::{Operation, OperationKind, Ring};
use crate::panics::{catch, swallow};
use crate::platform::Instant;
use crate::ticks::NEVER;
use alloc::boxed::Box;
use alloc::collections::BinaryHeap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::fmt;
use core::mem::take;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use core::time::Duration;
use std::io::{self, Write};
use std::sync::OnceLock;
use std::thread::{self, Thread};

/// What the lanes share with the thread that writes.
pub(super) struct Log {
    pub(super) rings: Box<[Ring]>,
    /// The length of a tick in ns.
    pub(super) tick: u64,
    /// To wake it up.
    pub(super) writer: OnceLock<Thread>,
    /// When the recording ended, in ms since it began. Nothing is pushed after that.
    pub(super) end: OnceLock<u64>,
    /// How many operations were written, and how many were not because the writer has failed.
    pub(super) operations: AtomicU64,
    pub(super) unwritten: AtomicU64,
    pub(super) error: OnceLock<io::ErrorKind>,
}

/// Takes the operations out of the rings and writes them, in the order of time.
pub(super) struct Writer {
    log: Arc<Log>,
    /// Returns the ms since tick 0.
    now: Box<dyn Fn() -> u64 + Send>,
    /// None once writing has failed.
    sink: Option<Box<dyn Write + Send>>,
    /// Lines to be written, and how many of them are operations.
    text: Vec<u8>,
    operations: u64,
    /// The time of the last line. Times never decrease.
    time_ms: u64,
    /// How many operations without room the trace tells of.
    missing: u64,
}

impl Log {
    #[cold]
    pub(super) fn wake(&self) {
        if let Some(writer) = self.writer.get() {
            writer.unpark();
        }
    }

    /// Returns the ms before or at `tick`; the maximum for the tick that never comes.
    #[inline]
    pub(super) fn millis(&self, tick: u64) -> u64 {
        match tick {
            NEVER => u64::MAX,
            tick => tick.saturating_mul(self.tick) / 1_000_000,
        }
    }
}

impl Writer {
    pub(super) fn new(
        log: Arc<Log>,
        sink: Box<dyn Write + Send>,
        now: Box<dyn Fn() -> u64 + Send>,
    ) -> Self {
        let text = Vec::from(START.as_bytes());
        Self { log, now, sink: Some(sink), text, operations: 0, time_ms: 0, missing: 0 }
    }

    /// Writes the trace, until the recording has ended.
    pub(super) fn run(mut self) {
        let mut flushed = Instant::now();
        loop {
            // Nothing is pushed after the end was set.
            let end = self.log.end.get().copied();
            let until_ms = end.map_or_else(|| self.present(), |_| u64::MAX);
            self.drain(until_ms);
            if let Some(end_ms) = end {
                self.time_ms = self.time_ms.max(end_ms);
                self.line(format_args!("end,,"));
            }
            self.write();
            if end.is_some() || PAUSE <= flushed.elapsed() {
                self.attempt(|sink| sink.flush());
                flushed = Instant::now();
            }
            if end.is_some() {
                return self.close();
            }
            if !self.log.rings.iter().any(Ring::is_half_full) {
                thread::park_timeout(PAUSE);
            }
        }
    }

    /// Makes lines of all operations up to `until_ms`, in the order of time. Those of one ring keep
    /// their order, even if a thread read the clock and then waited for the shard's lock.
    ///
    /// What is pushed meanwhile is not earlier than `until_ms`, which was the present before.
    fn drain(&mut self, until_ms: u64) {
        let log = Arc::clone(&self.log);
        let pushed: Vec<u64> = log.rings.iter().map(Ring::pushed).collect();
        let next = |ring: usize| {
            let operation = log.rings[ring].peek(pushed[ring])?;
            Some(Reverse((operation.time_ms, ring)))
        };
        let mut heads: BinaryHeap<_> = (0..pushed.len()).filter_map(next).collect();
        while let Some(Reverse((time_ms, ring))) = heads.pop() {
            if until_ms < time_ms {
                break;
            }
            // The ring of the earliest goes on while it has the earliest.
            let limit = heads.peek().map_or(until_ms, |Reverse((other, _))| until_ms.min(*other));
            while let Some(operation) = log.rings[ring].peek(pushed[ring]) {
                if limit < operation.time_ms {
                    break;
                }
                self.operation(operation);
                log.rings[ring].take();
            }
            heads.extend(next(ring));
        }
        let missing = log.rings.iter().map(Ring::missing).sum();
        if self.missing < missing {
            let more = missing - self.missing;
            self.line(format_args!("missing,{more},"));
            self.missing = missing;
        }
    }

    fn operation(&mut self, operation: Operation) {
        let Operation { time_ms, key, kind, due_ms } = operation;
        self.time_ms = self.time_ms.max(time_ms);
        self.operations += 1;
        let delay_ms = due_ms.saturating_sub(self.time_ms);
        match kind {
            OperationKind::Schedule => self.line(format_args!("schedule,{key},{delay_ms}")),
            OperationKind::Reschedule => self.line(format_args!("reschedule,{key},{delay_ms}")),
            OperationKind::Cancel => self.line(format_args!("cancel,{key},")),
        }
        if AT_ONCE <= self.text.len() {
            self.write();
        }
    }

    fn line(&mut self, columns: fmt::Arguments<'_>) {
        let time_ms = self.time_ms;
        writeln!(self.text, "{time_ms},{columns}").expect("there is memory");
    }

    /// Writes whole lines only.
    fn write(&mut self) {
        let text = take(&mut self.text);
        let is_written = self.attempt(|sink| sink.write_all(&text));
        let count = if is_written { &self.log.operations } else { &self.log.unwritten };
        count.fetch_add(take(&mut self.operations), Relaxed);
        self.text = text;
        self.text.clear();
    }

    /// Does something with the sink, and returns whether all is well. An error is the last thing
    /// that is tried.
    fn attempt(&mut self, work: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> bool {
        let Some(sink) = &mut self.sink else { return false };
        match catch(|| work(&mut **sink)) {
            Ok(Ok(())) => return true,
            Ok(Err(error)) => {
                self.fails(error.kind());
                swallow(error);
            }
            Err(payload) => {
                self.fails(io::ErrorKind::Other);
                swallow(payload);
            }
        }
        self.close();
        false
    }

    /// Returns the ms since tick 0. If the clock panics, nothing more is written.
    fn present(&mut self) -> u64 {
        catch(&self.now).unwrap_or_else(|payload| {
            swallow(payload);
            self.fails(io::ErrorKind::Other);
            self.close();
            u64::MAX
        })
    }

    fn fails(&self, kind: io::ErrorKind) {
        let _ = self.log.error.set(kind);
    }

    /// Drops the sink, if there is one.
    fn close(&mut self) {
        let sink = self.sink.take();
        if let Err(payload) = catch(|| drop(sink)) {
            self.fails(io::ErrorKind::Other);
            swallow(payload);
        }
    }
}

/// The header, and the mark of a recorder: its trace is whole if it has an `end`.
const START: &str = "time_ms,op,key,delay_ms\n0,begin,,\n";

/// How long operations wait to be written at most, and how often what is written is flushed.
const PAUSE: Duration = Duration::from_secs(1);

/// How many bytes are written at once.
const AT_ONCE: usize = 1 << 16;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::record::Recording;
    use alloc::string::String;

    fn operation(time_ms: u64, key: u32, kind: OperationKind) -> Operation {
        Operation { time_ms, key, kind, due_ms: 20 }
    }

    /// A writer that writes nothing yet, and what makes lines of all up to some ms.
    fn writer() -> (Writer, impl Fn(&mut Writer, u64) -> String) {
        let recording = Recording::new(Box::new(io::sink()), 2, Duration::from_millis(1));
        let log = Arc::clone(&recording.log);
        let mut writer = Writer::new(log, Box::new(io::sink()), Box::new(|| 0));
        writer.text.clear();
        let drain = |writer: &mut Writer, until_ms| {
            writer.drain(until_ms);
            String::from_utf8(take(&mut writer.text)).expect("ASCII")
        };
        (writer, drain)
    }

    #[test]
    fn what_is_later_than_the_look_waits_for_what_another_shard_pushes_before_that() {
        let (mut writer, drain) = writer();
        let log = Arc::clone(&writer.log);
        log.rings[0].push(operation(5, 0, OperationKind::Schedule));
        log.rings[1].push(operation(7, 1, OperationKind::Schedule));
        log.rings[1].push(operation(9, 1, OperationKind::Cancel));
        assert_eq!(drain(&mut writer, 7), "5,schedule,0,15\n7,schedule,1,13\n");
        log.rings[0].push(operation(8, 0, OperationKind::Reschedule));
        log.rings[0].push(operation(30, 2, OperationKind::Schedule));
        let lines = "8,reschedule,0,12\n9,cancel,1,\n30,schedule,2,0\n";
        assert_eq!(drain(&mut writer, 30), lines);
        assert_eq!(drain(&mut writer, 30), "");
    }

    #[test]
    fn after_a_clock_that_panics_nothing_is_written_and_all_is_counted() {
        let (mut writer, _) = writer();
        writer.now = Box::new(|| std::panic::resume_unwind(Box::new(())));
        let log = Arc::clone(&writer.log);
        log.rings[0].push(operation(5, 0, OperationKind::Schedule));
        let until_ms = writer.present();
        writer.drain(until_ms);
        writer.write();
        assert!(writer.sink.is_none());
        let [written, unwritten] = [&log.operations, &log.unwritten].map(|it| it.load(Relaxed));
        assert_eq!((written, unwritten), (0, 1));
        assert_eq!(log.error.get(), Some(&io::ErrorKind::Other));
    }

    #[test]
    fn what_happened_in_one_shard_stays_in_order_though_a_thread_waited_for_its_lock() {
        let (mut writer, drain) = writer();
        let log = Arc::clone(&writer.log);
        log.rings[0].push(operation(6, 0, OperationKind::Cancel));
        log.rings[0].push(operation(5, 0, OperationKind::Schedule));
        log.rings[1].push(operation(5, 1, OperationKind::Cancel));
        let lines = "5,cancel,1,\n6,cancel,0,\n6,schedule,0,14\n";
        assert_eq!(drain(&mut writer, u64::MAX), lines);
    }

    #[test]
    fn each_line_says_how_many_more_are_missing() {
        let (mut writer, drain) = writer();
        let log = Arc::clone(&writer.log);
        (0..3).for_each(|_| log.rings[0].misses());
        assert_eq!(drain(&mut writer, 5), "0,missing,3,\n");
        (0..2).for_each(|_| log.rings[1].misses());
        assert_eq!(drain(&mut writer, 5), "0,missing,2,\n");
        assert_eq!(drain(&mut writer, 5), "");
    }
}
