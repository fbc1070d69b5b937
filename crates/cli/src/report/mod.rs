//! Puts what a [`study`](mod@crate::study) finds, and what happens inside the wheels, into one page
//! of HTML.
//!
//! ```
//! use tickwheel_cli::generate::{Generator, Shape, Size};
//! use tickwheel_cli::report::{Options, report};
//! use tickwheel_cli::trace::Trace;
//!
//! let size = Size { operations: 500, ..Size::default() };
//! let mut csv = format!("{}\n", Trace::HEADER);
//! for operation in Generator::new(Shape::Short, size, 7) {
//!     csv += &format!("{operation}\n");
//! }
//! let open = || Trace::new("generated", std::io::Cursor::new(csv.clone()));
//! let page = report(open, &Options::default(), |_| ())?.to_string();
//! assert!(page.starts_with("<!DOCTYPE html>"));
//! # Ok::<(), tickwheel_cli::trace::TraceError>(())
//! ```
//!
//! The page needs nothing from the network. It has a chart for each question, and below each chart
//! its numbers in a table.

mod page;
mod profile;
mod way;

use crate::study::{self, Study, study};
use crate::tick::Tick;
use crate::trace::{Trace, TraceError};
use profile::Profile;
use tickwheel::Mode;

/// What to put into the page.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The modes whose levels and rounds are shown: the first hierarchical and the first hashed
    /// one.
    pub modes: Vec<Mode>,
    /// The length of a tick for that.
    pub tick: Tick,
    /// What to study.
    pub study: study::Options,
}

/// How far a report is.
#[derive(Debug)]
#[non_exhaustive]
pub enum Progress<'a> {
    /// The trace is being read and drawn.
    Profiled(&'a Trace),
    /// It is being studied.
    Studied(study::Progress),
}

/// What the page says. As text it is HTML.
#[derive(Debug)]
pub struct Page {
    profile: Profile,
    study: Study,
    tick: Tick,
}

/// Runs the trace that `open` opens twice: to see its shape, and to study it.
///
/// # Errors
///
/// [`TraceError`] if `open` returns one, and for the first thing in the trace that is not as the
/// format says.
pub fn report(
    open: impl Fn() -> Result<Trace, TraceError>,
    options: &Options,
    mut progress: impl FnMut(Progress<'_>),
) -> Result<Page, TraceError> {
    let of_kind = |is_hashed, default| {
        let mut modes = options.modes.iter().copied();
        modes.find(|mode| mode.is_hashed() == is_hashed).unwrap_or(default)
    };
    let hashed = Mode::hashed(512).expect("it is in range");
    let modes = [of_kind(false, Mode::hierarchical()), of_kind(true, hashed)];
    let profile = Profile::of(open()?, modes, options.tick, &mut |trace| {
        progress(Progress::Profiled(trace));
    })?;
    let study = study(open()?, &options.study, |at| progress(Progress::Studied(at)))?;
    Ok(Page { profile, study, tick: options.tick })
}
