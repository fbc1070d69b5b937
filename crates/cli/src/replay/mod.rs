//! Runs a recorded workload through wheels of several modes and compares them.
//!
//! ```
//! use tickwheel::Mode;
//! use tickwheel_cli::replay::{Limits, Tick, Trace, replay};
//!
//! let csv = "time_ms,op,key,delay_ms\n\
//!            0,schedule,1,1000\n\
//!            0,schedule,2,1000\n\
//!            700,cancel,1,\n\
//!            1000,schedule,1,500\n";
//! let trace = Trace::new("example", csv.as_bytes())?;
//! let modes = [Mode::hierarchical()];
//! let report = replay(trace, &modes, Tick::default(), &Limits::default(), |_| ())?;
//!
//! let figures = &report.figures[0];
//! assert_eq!((figures.fired_in_span, figures.live_at_end), (1, 1));
//! assert_eq!((figures.early, figures.max_late_ticks), (0, 0));
//! # Ok::<(), tickwheel_cli::replay::TraceError>(())
//! ```
//!
//! # The format of a trace
//!
//! CSV without quotes, plain or gzip, with the header `time_ms,op,key,delay_ms`:
//!
//! - `time_ms`: milliseconds since the trace began; never decreases.
//! - `op`: `schedule`, `reschedule` or `cancel`.
//! - `key`: names a timeout; below 2^32. May be scheduled again when its timeout is gone.
//! - `delay_ms`: counted from `time_ms`, 0 for at once; empty for `cancel`.
//!
//! A recorder adds three lines of its own. `begin` is the first, and `end` the last: if it is not
//! there, the trace breaks off, and is read up to there. `missing` has a number of operations in
//! `key`, which the recorder could not write in time. [`Report::gaps`] has both.
//!
//! A timeout scheduled at *t* with delay *d* is gone for every operation at *t + d* or later. With
//! a tick longer than 1 ms the timeout can still be pending then. So `schedule` of a key that is
//! pending replaces its timeout, `cancel` of a timeout that is gone does nothing, and `reschedule`
//! of a timeout that is gone schedules it anew. The report counts each of these.
//!
//! # Time
//!
//! Time is virtual: nothing sleeps. Before an operation the wheel is driven as by a driver that
//! sleeps until [`next_wake`](tickwheel::Wheel::next_wake), through every wake up to the operation's
//! time. After the last operation the wheel is driven on to the last timeout. Deadlines are rounded
//! up to ticks and the present is rounded down. Both saturate: a deadline of 2^64 - 1 ticks or more
//! is never reached.
//!
//! # Limits
//!
//! Some traces are very expensive for some modes. [`Limits`] says when such a mode is stopped. The
//! others go on, and the report says how far the stopped mode came, and why it was stopped.

mod limits;
mod plot;
mod report;
mod run;
mod tick;
mod trace;
pub(crate) mod units;

pub use limits::{Limit, Limits, Stopped};
#[cfg(feature = "png")]
pub use plot::png;
pub use plot::{PlotError, svg};
pub use report::{Delays, Report};
pub use run::Figures;
pub(crate) use run::as_text;
pub(crate) use tick::NEVER;
pub use tick::{Tick, TickError};
pub use trace::{Action, Gaps, Operation, Trace, TraceError};

use run::{Run, Work};
use std::path::Path;
use tickwheel::Mode;

/// Runs `trace` through wheels of each of `modes`, and returns what each mode did and cost.
///
/// The trace is read once and never held whole: all modes run a batch of operations before the next
/// batch is read. The modes take turns, so that a mode over one of the `limits` can be stopped in
/// the middle of a batch. If every mode was stopped, the rest of the trace is not read. `progress`
/// is called after each batch.
///
/// # Errors
///
/// [`TraceError`] for the first thing in the trace that is not as the format says.
pub fn replay(
    trace: Trace,
    modes: &[Mode],
    tick: Tick,
    limits: &Limits,
    mut progress: impl FnMut(&Trace),
) -> Result<Report, TraceError> {
    replay_all(trace, modes, tick, limits, &mut progress)
}

/// The same for any `progress`, so that it is compiled once.
fn replay_all(
    mut trace: Trace,
    modes: &[Mode],
    tick: Tick,
    limits: &Limits,
    progress: &mut dyn FnMut(&Trace),
) -> Result<Report, TraceError> {
    let mut race = Race::new(modes, tick, limits);
    let mut delays = Delays::new();
    let mut batch = Vec::with_capacity(BATCH);
    let mut first_ms = None;
    let mut is_whole = true;
    while trace.read_batch(&mut batch, BATCH)? {
        first_ms.get_or_insert(batch[0].time_ms);
        for delay_ms in batch.iter().filter_map(|operation| operation.action.delay_ms()) {
            delays.record(delay_ms);
        }
        race.run(Work::Operations(&batch));
        progress(&trace);
        if race.is_over() {
            is_whole = false;
            break;
        }
    }
    if let Some(end_ms) = trace.end_ms() {
        race.run(Work::Until(end_ms));
    }
    race.run(Work::Rest);
    let path = Path::new(trace.name());
    Ok(Report {
        trace: path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into(),
        tick,
        operations: trace.operations(),
        is_whole,
        span_ms: trace.time_ms() - first_ms.unwrap_or(0),
        gaps: trace.gaps(),
        delays,
        figures: race.finish(),
    })
}

/// The modes under one trace.
struct Race<'a> {
    /// In the order in which the modes were asked for.
    runners: Vec<Runner>,
    limits: &'a Limits,
    /// The mode that begins with the next part of the trace: each time another one.
    first: usize,
}

struct Runner {
    /// None when the mode was stopped.
    run: Option<Run>,
    /// Of a mode that was stopped.
    figures: Option<Figures>,
}

impl<'a> Race<'a> {
    fn new(modes: &[Mode], tick: Tick, limits: &'a Limits) -> Self {
        let runner = |&mode| Runner { run: Some(Run::new(mode, tick)), figures: None };
        Self { runners: modes.iter().map(runner).collect(), limits, first: 0 }
    }

    /// Runs `work` in all modes, turn by turn, so that no mode is far behind the others unseen.
    fn run(&mut self, work: Work<'_>) {
        let mut working: Vec<_> = (0..self.runners.len()).collect();
        working.rotate_left(self.first);
        self.first = (self.first + 1) % self.runners.len().max(1);
        self.runners
            .iter_mut()
            .filter_map(|runner| runner.run.as_mut())
            .for_each(|run| run.begin(work));
        // The cheapest mode of those that are done with the work.
        let mut best: Option<(Mode, f64)> = None;
        while !working.is_empty() {
            working.retain(|&number| {
                let Runner { run: Some(run), .. } = &mut self.runners[number] else { return false };
                let is_done = run.take_turn(work);
                if let Some(stopped) = run.judge(self.limits, best) {
                    self.runners[number].stop(stopped);
                    return false;
                }
                if is_done && best.is_none_or(|(_, least)| run.cost() < least) {
                    best = Some((run.mode(), run.cost()));
                }
                !is_done
            });
        }
    }

    /// Whether every mode was stopped.
    fn is_over(&self) -> bool {
        !self.runners.is_empty() && self.runners.iter().all(|runner| runner.run.is_none())
    }

    fn finish(self) -> Vec<Figures> {
        let figures = |runner: Runner| runner.run.map(|run| run.finish(None)).or(runner.figures);
        self.runners.into_iter().filter_map(figures).collect()
    }
}

impl Runner {
    /// Frees what the mode holds, all but its figures.
    fn stop(&mut self, stopped: Stopped) {
        self.figures = self.run.take().map(|run| run.finish(Some(stopped)));
    }
}

/// Operations read and run at a time.
const BATCH: usize = 4096;
