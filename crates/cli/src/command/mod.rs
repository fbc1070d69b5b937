//! The subcommands, a file each, and what they share.

pub(crate) mod choose;
pub(crate) mod generate;
pub(crate) mod output;
pub(crate) mod progress;
pub(crate) mod replay;
#[cfg(feature = "report")]
pub(crate) mod report;
#[cfg(feature = "watch")]
pub(crate) mod watch;

use std::io;
use std::path::Path;
use tickwheel_cli::replay::{Gaps, Trace, TraceError};

/// Opens the trace in `file`, or that on standard input if `file` is `-`.
fn open(file: &Path) -> Result<Trace, TraceError> {
    if file == Path::new("-") {
        return Trace::new("standard input", io::stdin());
    }
    Trace::open(file)
}

/// Says on standard error what is not in the trace of this name.
fn warn_of(trace: &str, gaps: Gaps) {
    for gap in gaps.to_string().lines() {
        eprintln!("tickwheel: warning: {trace}: {gap}");
    }
}
