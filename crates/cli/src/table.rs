//! The tables that a terminal shows: a column for each wheel.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

/// A label, and what stands beside it for each column.
pub(crate) type Row<'a, C> = (&'a str, &'a dyn Fn(&C) -> String);

/// Lays out a table with a column for each of `columns`, and one of labels before them. The first
/// row is the heading.
pub(crate) fn of<'a, C: 'a>(columns: &[&C], rows: impl IntoIterator<Item = Row<'a, C>>) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    for (number, (label, text)) in rows.into_iter().enumerate() {
        let cells =
            [label.to_string()].into_iter().chain(columns.iter().map(|column| text(column)));
        match number {
            0 => table.set_header(cells),
            _ => table.add_row(cells),
        };
    }
    for (number, column) in table.column_iter_mut().enumerate() {
        let (alignment, before) = match number {
            0 => (CellAlignment::Left, 0),
            _ => (CellAlignment::Right, 2),
        };
        column.set_cell_alignment(alignment);
        column.set_padding((before, 0));
    }
    table
}
