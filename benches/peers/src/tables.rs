//! Results as tables, for a terminal and for a document.

use crate::format::{count, duration, number};
use crate::goals::{self, Goal, Limit};
use crate::results::{Results, Row};
use crate::statistics::Spread;
use crate::subject::Kind;
use crate::subjects::PROFILES;
use crate::workloads::{CALLS, HISTORIES, QUANTILES, Unit, WORKLOADS, Workload};
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

/// A heading, what it is about, and a table of text.
#[derive(Debug)]
pub(crate) struct Section {
    /// Of the workload; empty for the goals.
    pub(crate) workload: &'static str,
    pub(crate) title: String,
    pub(crate) about: String,
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
}

/// Columns with these heads are words; all others are figures.
const WORDS: [&str; 10] =
    ["subject", "call", "before", "workload", "figure", "goal", "found", "met?", "peer", "answers"];

/// One section for each table.
pub(crate) fn of(results: &Results) -> Vec<Section> {
    let mut sections = Vec::new();
    for workload in WORKLOADS {
        let sizes = results.sizes_of(workload.name);
        if let Some(history) = HISTORIES.iter().position(|(name, _)| *name == workload.name) {
            if history == 0 {
                sections.extend(longest_calls(results, workload));
            }
            continue;
        }
        let main = sizes.iter().rfind(|&&size| size <= MAIN).copied();
        for &size in &sizes {
            if Some(size) == main || !workload.grows() {
                sections.push(detail(results, workload, size));
            }
        }
        if workload.grows() && 1 < sizes.len() {
            sections.push(growth(results, workload, &sizes));
        }
    }
    sections
}

/// The size of the table that tells all, of those workloads that have several.
const MAIN: usize = 1_000_000;

fn detail(results: &Results, workload: &'static Workload, size: usize) -> Section {
    let mut columns = vec!["subject".to_owned()];
    columns.extend(workload.metrics.iter().map(|&(metric, of)| match unit(of) {
        "" => metric.to_owned(),
        unit => format!("{metric}, {unit}"),
    }));
    columns.extend(["ours / it".to_owned(), "answers".to_owned()]);
    let first = workload.metrics[0].0;
    let ours = results.rows_of(workload.name, size).find(|row| row.kind() == Kind::Ours);
    let rows = results.rows_of(workload.name, size).map(|row| {
        let mut cells = vec![row.subject.clone()];
        cells.extend(workload.metrics.iter().map(|&(metric, unit)| {
            let found = row.metrics.get(metric);
            or_none(found.map(|&found| spread(found, unit)))
        }));
        let ratio = ours.and_then(|ours| {
            results.ratio(workload.name, size, first, &ours.subject, &row.subject)
        });
        cells.push(or_none(ratio.map(|ratio| spread(ratio, Unit::Count))));
        cells.push(answers(row));
        cells
    });
    Section {
        workload: workload.name,
        title: format!("{}, {} {}", workload.name, count(size), plural(workload.size, size)),
        about: workload.about.into(),
        rows: rows.collect(),
        columns,
    }
}

fn growth(results: &Results, workload: &'static Workload, sizes: &[usize]) -> Section {
    let (metric, of) = workload.metrics[0];
    let mut columns = vec!["subject".to_owned()];
    columns.extend(sizes.iter().map(|&size| count(size)));
    let is_there = |name: &&str| {
        results.rows.iter().any(|row| row.workload == workload.name && row.subject == *name)
    };
    let subjects = PROFILES.iter().map(|profile| profile.name).filter(is_there);
    let rows = subjects.map(|subject| {
        let mut cells = vec![subject.to_owned()];
        cells.extend(sizes.iter().map(|&size| match results.row(workload.name, size, subject) {
            Some(row) => {
                let found = or_none(row.median(metric).map(number));
                if row.marks().is_empty() { found } else { format!("{found} *") }
            }
            None => or_none(None),
        }));
        cells
    });
    Section {
        workload: workload.name,
        title: format!("{}, {} by number of timeouts", workload.name, metric),
        about: format!("{}; * with answers that are wrong, or none.", unit(of)),
        rows: rows.collect(),
        columns,
    }
}

/// One table of all histories, for each size.
fn longest_calls(results: &Results, workload: &'static Workload) -> Vec<Section> {
    let mut columns = ["call", "subject", "before"].map(str::to_owned).to_vec();
    columns.extend(QUANTILES.map(|(name, _)| name.to_owned()));
    columns.push("answers".to_owned());
    let mut sizes: Vec<_> = HISTORIES.iter().flat_map(|one| results.sizes_of(one.0)).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let section = |size| {
        let mut rows = Vec::new();
        for call in CALLS {
            for (name, before) in HISTORIES {
                for row in results.rows_of(name, size) {
                    let mut cells = vec![call.to_owned(), row.subject.clone(), before.to_owned()];
                    cells.extend(QUANTILES.map(|(quantile, _)| {
                        let found = row.median(&format!("{call} {quantile}"));
                        or_none(found.map(duration))
                    }));
                    cells.push(answers(row));
                    rows.push(cells);
                }
            }
        }
        Section {
            workload: workload.name,
            title: format!("{}, {} timeouts", workload.name, count(size)),
            about: format!("{} Medians of the repetitions.", workload.about),
            columns: columns.clone(),
            rows,
        }
    };
    sizes.into_iter().map(section).collect()
}

/// The goals with what was found, and whether each is met.
pub(crate) fn goals(results: &Results) -> Section {
    let columns = ["workload", "figure", "goal", "found", "met?"].map(str::to_owned);
    let rows = goals::of(results).iter().map(goal_row).collect();
    Section {
        workload: "",
        title: "Goals".into(),
        about: "Ratios of what was measured in the same repetition: median (least to most).".into(),
        columns: columns.into(),
        rows,
    }
}

/// Where a peer is ahead of ours, which is the first of the table; the most so first.
pub(crate) fn behind(results: &Results) -> Section {
    let mut found = Vec::new();
    for workload in WORKLOADS.iter().filter(|one| !one.name.starts_with("longest-call")) {
        let metric = workload.metrics[0].0;
        for size in results.sizes_of(workload.name) {
            let mut rows = results.rows_of(workload.name, size);
            let Some(ours) = rows.find(|row| row.kind() == Kind::Ours) else { continue };
            for row in results.rows_of(workload.name, size) {
                let ratio = results.ratio(workload.name, size, metric, &ours.subject, &row.subject);
                let is_ahead = ratio.is_some_and(|ratio| 1.0 < ratio.median);
                if let (Kind::Peer, Some(ratio), true) = (row.kind(), ratio, is_ahead) {
                    let cells = [
                        format!("{}, {}", workload.name, count(size)),
                        row.subject.clone(),
                        spread(ratio, Unit::Count),
                        answers(row),
                    ];
                    found.push((ratio.median, cells.into()));
                }
            }
        }
    }
    found.sort_by(|one, other| other.0.total_cmp(&one.0));
    let columns = ["workload", "peer", "ours / it", "answers"].map(str::to_owned);
    Section {
        workload: "",
        title: "Where a peer is ahead".into(),
        about: "Of the hierarchical wheel, or of the timer; the farthest ahead first.".into(),
        columns: columns.into(),
        rows: found.into_iter().map(|(_, cells)| cells).collect(),
    }
}

fn goal_row(goal: &Goal) -> Vec<String> {
    let limit = match goal.limit {
        Limit::AtMost(most) => format!("<= {}", number(most)),
        Limit::AtLeast(least) => format!(">= {}", number(least)),
    };
    let verdict = match goal.is_met() {
        Some(true) => "met",
        Some(false) => "MISSED",
        None => "not measured",
    };
    let found = or_none(goal.found.map(|found| spread(found, Unit::Count)));
    vec![goal.about.clone(), goal.figure.clone(), limit, found, verdict.into()]
}

impl Section {
    /// As a terminal shows it.
    pub(crate) fn text(&self) -> String {
        format!("{}\n{}\n{}\n", self.title, self.about, self.table(presets::NOTHING))
    }

    pub(crate) fn markdown(&self, level: usize) -> String {
        let heading = "#".repeat(level);
        let table = self.table(presets::ASCII_MARKDOWN);
        format!("{heading} {}\n\n{}\n\n{table}\n", self.title, self.about)
    }

    fn table(&self, preset: &str) -> Table {
        let mut table = Table::new();
        // As wide as it needs to be, wherever it is written to.
        table.load_preset(preset).set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(&self.columns);
        table.add_rows(&self.rows);
        for (column, head) in table.column_iter_mut().zip(&self.columns) {
            if !WORDS.contains(&head.as_str()) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table
    }
}

fn answers(row: &Row) -> String {
    match row.marks() {
        marks if !marks.is_empty() => marks,
        _ if 0 < row.faults.not_first_in_first_out => "right, ties reordered".into(),
        _ => "right".into(),
    }
}

/// A dash in the place of what was not measured.
fn or_none(cell: Option<String>) -> String {
    cell.unwrap_or_else(|| "-".into())
}

fn unit(unit: Unit) -> &'static str {
    match unit {
        Unit::Nanoseconds => "ns",
        Unit::Bytes => "bytes",
        Unit::Core => "share",
        Unit::Rate => "M/s",
        Unit::Duration | Unit::Count => "",
    }
}

/// The middle, and in brackets the ends.
fn spread(spread: Spread, unit: Unit) -> String {
    let write = if unit == Unit::Duration { duration } else { number };
    let (least, most) = (write(spread.least), write(spread.most));
    match least == most {
        true => least,
        false => format!("{} ({least} to {most})", write(spread.median)),
    }
}

fn plural(word: &str, count: usize) -> &str {
    if count == 1 { word.trim_end_matches('s') } else { word }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::{Failure, Sample};
    use crate::log::Faults;

    #[test]
    fn numbers_have_three_digits() {
        let numbers = [0.0, 0.00123, 1.0, 12.34, 1234.5, 99_999.0].map(number);
        assert_eq!(numbers, ["0", "0.00123", "1", "12.3", "1234", "99999"]);
        assert_eq!([1.5, 1500.0, 2.5e6].map(duration), ["1.5 ns", "1.5 us", "2.5 ms"]);
        assert_eq!([1_000, 1_000_000, 102_407].map(count), ["1 k", "1 M", "102407"]);
    }

    #[test]
    fn a_table_has_ratios_and_marks_what_is_wrong() {
        let mut results = Results::default();
        let early = Faults { early: 3, ..Faults::default() };
        for cost in [10.0, 12.0, 14.0] {
            let sample = Sample::of(Faults::default(), &[("cancel", cost)]);
            results.add("cancel", 1_000, "tickwheel", sample);
            let sample = Sample::of(early.clone(), &[("cancel", 2.0 * cost)]);
            results.add("cancel", 1_000, "nexus-timer", sample);
            let sample = Sample::failed(Failure::Panicked("no room".into()));
            results.add("cancel", 1_000, "delay-queue", sample);
        }
        let text = of(&results)[0].text();
        let line = |subject: &str| {
            text.lines().find(|line| line.contains(subject)).expect("its line").to_owned()
        };
        assert!(line("tickwheel").contains("12 (10 to 14)"), "{text}");
        assert!(line("nexus-timer").contains("0.5"), "{text}");
        assert!(line("nexus-timer").contains("WRONG: 3 early"), "{text}");
        assert!(line("delay-queue").contains("PANICKED: no room"), "{text}");
    }
}
