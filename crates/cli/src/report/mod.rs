//! Puts what [`replay`](mod@crate::replay) and [`choose`](mod@crate::choose) find, and what happens
//! inside the wheels, into one page of HTML.
//!
//! ```
//! use std::time::Duration;
//! use tickwheel_cli::generate::{Generator, Shape, Size};
//! use tickwheel_cli::replay::Trace;
//! use tickwheel_cli::report::{Options, report};
//!
//! let size = Size { operations: 2_000, ..Size::default() };
//! let mut csv = format!("{}\n", Trace::HEADER);
//! for operation in Generator::new(Shape::Short, size, 7) {
//!     csv += &format!("{operation}\n");
//! }
//! let open = || Trace::new("generated", std::io::Cursor::new(csv.clone()));
//!
//! let mut options = Options::default();
//! options.choose.time = Duration::from_millis(500);
//! let page = report(open, &options, |_| ())?.to_string();
//! assert!(page.starts_with("<!DOCTYPE html>"));
//! # Ok::<(), tickwheel_cli::replay::TraceError>(())
//! ```
//!
//! The page needs nothing from the network. It has a chart for each question, and below each chart
//! its numbers in a table.

mod chart;
mod page;
mod profile;

use crate::choose::{self, Choice};
use crate::replay::{self, Limits, Tick, Trace, TraceError};
use profile::Profile;
use tickwheel::Mode;

/// What to put into the page.
#[derive(Clone, Debug)]
pub struct Options {
    /// The modes to run the trace in. The first hierarchical and the first hashed mode are those
    /// whose levels and rounds are shown.
    pub modes: Vec<Mode>,
    /// The length of a tick, for all but the search.
    pub tick: Tick,
    /// When a mode is stopped.
    pub limits: Limits,
    /// What to search.
    pub choose: choose::Options,
}

/// How far a report is.
#[derive(Debug)]
#[non_exhaustive]
pub enum Progress<'a> {
    /// The trace is being read and drawn.
    Profiled(&'a Trace),
    /// The trace is being replayed.
    Replayed(&'a Trace),
    /// Configurations are being searched.
    Searched(choose::Progress),
}

/// What the page says. As text it is HTML.
#[derive(Debug)]
pub struct Page {
    profile: Profile,
    replayed: replay::Report,
    choice: Choice,
}

/// Runs the trace that `open` opens three times: to see its shape, to compare the modes, and to
/// search for the configuration that suits it.
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
    let mut of_kind = [false, true].map(|is_hashed| {
        let mut modes = options.modes.iter().copied();
        modes.find(|mode| mode.is_hashed() == is_hashed)
    });
    let [hierarchical, hashed] = &mut of_kind;
    let modes = [
        *hierarchical.get_or_insert(Mode::hierarchical()),
        *hashed.get_or_insert(Mode::hashed(512).expect("it is in range")),
    ];
    let profile = Profile::of(open()?, modes, options.tick, &mut |trace| {
        progress(Progress::Profiled(trace));
    })?;
    let replayed =
        replay::replay(open()?, &options.modes, options.tick, &options.limits, |trace| {
            progress(Progress::Replayed(trace));
        })?;
    let choice = choose::choose(open()?, &options.choose, |at| progress(Progress::Searched(at)))?;
    Ok(Page { profile, replayed, choice })
}

/// `hierarchical:64`, `hashed:512` and `hashed:65536` at a tick of 1 ms.
impl Default for Options {
    fn default() -> Self {
        let hashed = [512, 65_536].map(|buckets| Mode::hashed(buckets).expect("it is in range"));
        Self {
            modes: [Mode::hierarchical()].into_iter().chain(hashed).collect(),
            tick: Tick::default(),
            limits: Limits::default(),
            choose: choose::Options::default(),
        }
    }
}
