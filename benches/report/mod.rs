//! What the benchmarks share: how they are called, and how they print their figures.

#![allow(dead_code, reason = "not every benchmark needs all of it")]

use comfy_table::{CellAlignment, Table, presets};

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

/// A table of figures.
pub(crate) struct Report(Table);

impl Report {
    /// The first column names the row.
    pub(crate) fn new<'a>(heads: impl IntoIterator<Item = &'a str>) -> Self {
        Self(table(heads))
    }

    pub(crate) fn row(&mut self, name: &str, figures: impl IntoIterator<Item = f64>) {
        let cells = figures.into_iter().map(number);
        self.0.add_row([name.to_owned()].into_iter().chain(cells));
    }

    pub(crate) fn print(&self) {
        println!("{}", self.0);
    }
}

/// A table with words in the first column and figures in the others.
pub(crate) fn table<'a>(heads: impl IntoIterator<Item = &'a str>) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN).set_header(heads.into_iter().collect::<Vec<_>>());
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Rounds to three digits, so that even a figure close to zero shows.
pub(crate) fn number(number: f64) -> String {
    if number == 0.0 || !number.is_finite() {
        return number.to_string();
    }
    if number.abs() < 1e-4 {
        return format!("{number:.2e}");
    }
    let places = (2 - number.abs().log10().floor() as i32).max(0) as usize;
    let text = format!("{number:.places$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').into(),
        false => text,
    }
}
