//! Searches for the mode, the number of buckets and the tick that suit a recorded workload.
//!
//! ```
//! use tickwheel_cli::choose::{Options, choose};
//! use tickwheel_cli::generate::{Generator, Shape, Size};
//! use tickwheel_cli::replay::Trace;
//!
//! let size = Size { operations: 2_000, ..Size::default() };
//! let mut csv = format!("{}\n", Trace::HEADER);
//! for operation in Generator::new(Shape::Short, size, 7) {
//!     csv += &format!("{operation}\n");
//! }
//! let trace = Trace::new("generated", std::io::Cursor::new(csv))?;
//! let choice = choose(trace, &Options::default(), |_| ())?;
//!
//! let taken = choice.recommended().expect("some configuration came to the end");
//! println!("{} at a tick of {}", taken.mode, taken.tick);
//! # Ok::<(), tickwheel_cli::replay::TraceError>(())
//! ```
//!
//! # What is measured, and how
//!
//! The operations of the trace become the calls of a wheel, worked out beforehand, so that a run
//! does little but call the wheel. As in [`replay`](crate::replay::replay), time is virtual: the
//! wheel is driven as by a thread that sleeps until
//! [`next_wake`](tickwheel::Wheel::next_wake), and after the last operation on to the last timeout.
//!
//! - **CPU time**: that of the thread, without the time in which others had the processor. Others
//!   still slow it down, through caches and shared cores. So all configurations take turns, and
//!   each stretch of 1024 calls counts as its shortest of several runs, because a disturbance
//!   hardly meets the same stretch each time. Three such figures from different runs are the
//!   repetitions: the table shows the middle one, and their spread. The search goes on until the
//!   repetitions of all that is still in agree to 4 %, or the time is over.
//! - **Longest call**: in runs of their own, with a look at the clock around each call. A call
//!   counts as long as its shortest of three runs, because nothing interrupts the same call three
//!   times.
//! - **Memory**, **wake-ups** and **lateness** are counted, not measured. They are the same in
//!   every run. Lateness is by tick: from when a timeout is due in the trace to the tick at which
//!   it is handed out.
//!
//! A configuration that is hopeless is stopped in its first run, or left out of later turns. What
//! was left out is measured once more at the end, because it may have been measured at a bad
//! moment.

mod measure;
mod plan;
mod report;
mod score;
mod search;

pub use report::Choice;
#[cfg(feature = "report")]
pub(crate) use report::{longest_call, name};
pub use score::Spread;
pub use search::{Candidate, Figures, Options, Progress};

use crate::replay::{Trace, TraceError};
use std::path::Path;

/// Searches for the configuration that suits `trace` best.
///
/// # Errors
///
/// [`TraceError`] for the first thing in the trace that is not as the format says.
pub fn choose(
    mut trace: Trace,
    options: &Options,
    mut progress: impl FnMut(Progress),
) -> Result<Choice, TraceError> {
    let found = search::search(&mut trace, options, &mut progress)?;
    let path = Path::new(trace.name());
    Ok(Choice {
        trace: path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into(),
        operations: found.operations,
        is_whole: found.is_whole,
        is_settled: found.is_settled,
        span_ms: found.span_ms,
        gaps: trace.gaps(),
        options: *options,
        candidates: found.candidates,
    })
}
