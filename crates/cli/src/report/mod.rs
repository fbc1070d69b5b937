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
//! let trace = Trace::new("generated", std::io::Cursor::new(csv))?;
//! let page = report(trace, &Options::default(), |_| ())?.to_string();
//! assert!(page.starts_with("<!DOCTYPE html>"));
//! # Ok::<(), tickwheel_cli::trace::TraceError>(())
//! ```
//!
//! The page needs nothing from the network. It has a chart for each question, and below each chart
//! its numbers in a table.

mod page;
mod profile;
mod way;

use crate::study::{self, Candidate, Study, study_and_keep};
use crate::tick::Tick;
use crate::trace::{Trace, TraceError};
use profile::Profile;
use tickwheel::Mode;

/// What to put into the page.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The modes whose levels and rounds are shown: the first hierarchical and the first hashed
    /// one; the default ones if there is none.
    pub modes: Vec<Mode>,
    /// The length of a tick for that.
    pub tick: Tick,
    /// What to study.
    pub study: study::Options,
}

/// What the page says. As text it is HTML.
#[derive(Debug)]
pub struct Page {
    profile: Profile,
    study: Study,
    /// The hierarchical and the hashed wheel that are shown, counted.
    wheels: [Candidate; 2],
}

/// Studies `trace`, and runs what is studied of it through two wheels, to see its shape.
///
/// # Errors
///
/// [`TraceError`] for the first thing in the trace that is not as the format says.
pub fn report(
    trace: Trace,
    options: &Options,
    mut progress: impl FnMut(study::Progress),
) -> Result<Page, TraceError> {
    let of_kind = |is_hashed, default| {
        let mut modes = options.modes.iter().copied();
        modes.find(|mode| mode.is_hashed() == is_hashed).unwrap_or(default)
    };
    let hashed = Mode::hashed(512).expect("it is in range");
    let modes = [of_kind(false, Mode::hierarchical()), of_kind(true, hashed)];
    let (study, operations) = study_and_keep(trace, &options.study, &mut progress)?;
    let wheels = study.counted(&operations, modes, options.tick);
    let number = if wheels[1].stopped.is_none() { 2 } else { 1 };
    let profile = Profile::of(&operations, study.end_ms, &modes[..number], options.tick);
    Ok(Page { profile, study, wheels })
}

impl Page {
    /// What was found out about the trace.
    #[must_use]
    pub fn study(&self) -> &Study {
        &self.study
    }
}
