//! What the benchmarks share: how they are called, and how they say what came out.

#![allow(dead_code, reason = "not every benchmark needs all of it")]

use comfy_table::{CellAlignment, Table, presets};
use std::fmt::Display;
use std::time::Duration;

/// Whether `--quick` was given: to see that a benchmark works, in a second or two. Its figures are
/// worth little.
pub(crate) fn is_quick() -> bool {
    std::env::args().any(|argument| argument == "--quick")
}

/// Whether the arguments that are no options ask for `name` by a part of it; none ask for all.
pub(crate) fn is_asked_for(name: &str) -> bool {
    let mut parts = std::env::args().skip(1).filter(|part| !part.starts_with('-')).peekable();
    parts.peek().is_none() || parts.any(|part| name.contains(&part))
}

/// A table of figures: the first column says of what.
pub(crate) fn table<'a>(header: impl IntoIterator<Item = &'a str>) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN).set_header(header.into_iter().collect::<Vec<_>>());
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Prints whether `figure` is `at_most` so much, or `at_least`.
pub(crate) fn goal(what: &str, figure: f64, goal: Goal) {
    let (is_met, words) = match goal {
        Goal::AtMost(bound) => (figure <= bound, format!("at most {}", rounded(bound))),
        Goal::AtLeast(bound) => (figure >= bound, format!("at least {}", rounded(bound))),
    };
    let verdict = if is_met { "met   " } else { "MISSED" };
    println!("{verdict} {what}: {}, goal {words}", rounded(figure));
}

#[derive(Clone, Copy)]
pub(crate) enum Goal {
    AtMost(f64),
    AtLeast(f64),
}

/// To three digits, so that what is next to nothing still shows.
pub(crate) fn rounded(figure: f64) -> impl Display {
    let digits_before = figure.abs().max(0.1).log10().floor() as i32 + 1;
    let rounded = format!("{figure:.*}", (3 - digits_before).max(0) as usize);
    match rounded.contains('.') {
        true => rounded.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => rounded,
    }
}

/// Sorts them, and returns the one that a share of so much is not above. Nearest rank.
pub(crate) fn percentile<T: Ord + Copy>(figures: &mut [T], share: f64) -> T {
    figures.sort_unstable();
    let rank = (figures.len() as f64 * share).ceil() as usize;
    figures[rank.clamp(1, figures.len()) - 1]
}

/// Of figures of which there is at least one.
pub(crate) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

pub(crate) fn microseconds(duration: Duration) -> f64 {
    duration.as_nanos() as f64 / 1e3
}
