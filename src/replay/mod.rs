//! Runs a recorded workload through wheels of several modes and compares them.
//!
//! This is what the command `tickwheel replay` does; the module comes with the feature `cli`.
//!
//! ```
//! use tickwheel::Mode;
//! use tickwheel::replay::{Tick, Trace, replay};
//!
//! let csv = "time_ms,op,key,delay_ms\n\
//!            0,schedule,1,1000\n\
//!            0,schedule,2,1000\n\
//!            700,cancel,1,\n\
//!            1000,schedule,1,500\n";
//! let trace = Trace::new("example", csv.as_bytes())?;
//! let report = replay(trace, &[Mode::hierarchical()], Tick::default(), |_| ())?;
//!
//! let figures = &report.figures[0];
//! assert_eq!((figures.fired_in_span, figures.live_at_end), (1, 1));
//! assert_eq!((figures.early, figures.max_late_ticks), (0, 0));
//! # Ok::<(), tickwheel::replay::TraceError>(())
//! ```
//!
//! # The format of a trace
//!
//! CSV without quotes, plain or gzip, with the header `time_ms,op,key,delay_ms`:
//!
//! - `time_ms`: milliseconds since the trace began; never decreases.
//! - `op`: `schedule`, `reschedule` or `cancel`.
//! - `key`: names a timeout; below 2^32. May be scheduled again when its timeout is gone.
//! - `delay_ms`: at least 1, counted from `time_ms`; empty for `cancel`.
//!
//! A timeout scheduled at *t* with delay *d* is gone for every operation at *t + d* or later. With
//! a tick longer than 1 ms it can still be pending then, so `schedule` of a key that is pending
//! replaces its timeout, `cancel` of one that is gone does nothing, and `reschedule` of one that is
//! gone schedules it anew. Each of these is counted.
//!
//! # Time
//!
//! Virtual: nothing sleeps. Before an operation the wheel is driven as by a driver that sleeps
//! until [`next_wake`](crate::Wheel::next_wake), through every wake up to the operation's time, and
//! after the last one on to the last timeout. Deadlines are rounded up to ticks and the present
//! down, and both saturate: a deadline of 2^64 - 1 ticks or more is never reached.

mod plot;
mod report;
mod run;
mod tick;
mod trace;
mod units;

pub use plot::{PlotError, png, svg};
pub use report::{Delays, Report};
pub use run::Figures;
pub use tick::{Tick, TickError};
pub use trace::{Action, Operation, Trace, TraceError};

use crate::Mode;
use alloc::vec::Vec;
use run::Run;
use std::path::Path;

/// Runs `trace` through wheels of each of `modes`, and returns what each mode did and cost.
///
/// The trace is read once and never held whole: a batch of operations goes through one mode after
/// the other, each time beginning with another one. `progress` is called after each batch.
///
/// # Errors
///
/// [`TraceError`] for the first thing in the trace that is not as the format says.
pub fn replay(
    mut trace: Trace,
    modes: &[Mode],
    tick: Tick,
    mut progress: impl FnMut(&Trace),
) -> Result<Report, TraceError> {
    let mut runs: Vec<_> = modes.iter().map(|&mode| Run::new(mode, tick)).collect();
    let mut delays = Delays::new();
    let mut batch = Vec::with_capacity(BATCH);
    let mut batches = 0;
    let mut first_ms = None;
    while trace.read_batch(&mut batch, BATCH)? {
        first_ms.get_or_insert(batch[0].time_ms);
        for delay_ms in batch.iter().filter_map(|operation| operation.action.delay_ms()) {
            delays.record(delay_ms);
        }
        for turn in 0..runs.len() {
            let number = (batches + turn) % runs.len();
            runs[number].apply(&batch);
        }
        batches += 1;
        progress(&trace);
    }
    let path = Path::new(trace.name());
    Ok(Report {
        trace: path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into(),
        tick,
        operations: trace.operations(),
        span_ms: trace.time_ms() - first_ms.unwrap_or(0),
        delays,
        figures: runs.into_iter().map(Run::finish).collect(),
    })
}

/// Operations read and run at a time.
const BATCH: usize = 4096;
