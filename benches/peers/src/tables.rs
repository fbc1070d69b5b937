//! Results as tables, in Markdown.

use crate::format::{count, duration};
use crate::report::{self, number};
use crate::results::{Results, Row};
use crate::statistics::Spread;
use crate::subject::Kind;
use crate::subjects::PROFILES;
use crate::workloads::{CALLS, DURATION, HISTORIES, NOISE, WORKLOADS, Workload};
use comfy_table::CellAlignment;
use std::collections::BTreeSet;

/// A heading, what the table is about, and the table. A last column that is empty is left out.
fn section(
    title: &str,
    about: &str,
    heads: &[String],
    rows: impl IntoIterator<Item = impl IntoIterator<Item = String>>,
) -> String {
    let rows = rows.into_iter().map(|row| row.into_iter().collect::<Vec<_>>());
    let rows: Vec<_> = rows.collect();
    let is_empty = rows.iter().all(|row| row.last().is_none_or(String::is_empty));
    let columns = heads.len() - usize::from(is_empty);
    let heads = &heads[..columns];
    let mut table = report::table(heads.iter().map(String::as_str));
    for (column, head) in table.column_iter_mut().zip(heads) {
        if WORDS.contains(&head.as_str()) {
            column.set_cell_alignment(CellAlignment::Left);
        }
    }
    rows.iter().for_each(|row| _ = table.add_row(&row[..columns]));
    format!("\n### {title}\n\n{about}\n\n{table}\n")
}

/// A dash if it was not measured.
fn median(row: Option<&Row>, metric: &str, write: fn(f64) -> String) -> String {
    row.and_then(|row| row.median(metric)).map_or_else(|| "-".into(), write)
}

/// All metrics of a workload at one size: medians. The ratio has its spread too.
pub(crate) fn detail(results: &Results, workload: &Workload, size: usize) -> String {
    let mut heads = vec!["subject".to_owned()];
    heads.extend(workload.metrics.iter().map(|&(metric, unit)| match unit {
        "" | DURATION => metric.to_owned(),
        unit => format!("{metric}, {unit}"),
    }));
    heads.extend(["ours / it", "answers"].map(str::to_owned));
    let ours = results.ours(workload.name, size);
    let rows = results.rows_of(workload.name, size).map(|row| {
        let mut cells = vec![row.subject.to_owned()];
        for &(metric, unit) in workload.metrics {
            let write = if unit == DURATION { duration } else { number };
            cells.push(median(Some(row), metric, write));
        }
        let ratio = ours.and_then(|ours| ours.ratio(row, workload.metrics[0].0));
        cells.extend([Spread::cell(ratio, number), row.answers()]);
        cells
    });
    let what = if size == 1 { workload.size.trim_end_matches('s') } else { workload.size };
    let title = format!("{}, {} {what}", workload.name, count(size));
    section(&title, workload.about, &heads, rows)
}

/// The first metric of a workload at each of several sizes.
pub(crate) fn growth(results: &Results, workload: &Workload) -> String {
    let sizes = results.sizes_of(workload.name);
    let (metric, unit) = workload.metrics[0];
    let mut heads = vec!["subject".to_owned()];
    heads.extend(sizes.iter().map(|&size| count(size)));
    let rows = PROFILES.iter().filter_map(|profile| {
        let found: Vec<_> =
            sizes.iter().map(|&size| results.row(workload.name, size, profile.name)).collect();
        found.iter().any(Option::is_some).then(|| {
            let cells = found.into_iter().map(|row| {
                let cost = median(row, metric, number);
                if row.is_none_or(Row::is_right) { cost } else { format!("{cost} *") }
            });
            [profile.name.to_owned()].into_iter().chain(cells).collect::<Vec<_>>()
        })
    });
    let title = format!("{}, {metric} by number of timeouts", workload.name);
    let about = format!("{unit}; * with answers that are wrong, or none.");
    section(&title, &about, &heads, rows)
}

/// One table of all histories, for each size.
pub(crate) fn longest_calls(results: &Results, workload: &Workload) -> String {
    let heads = [&["call", "subject", "before"], &LONGEST[..], &["answers"]].concat();
    let heads: Vec<_> = heads.into_iter().map(str::to_owned).collect();
    let sizes: BTreeSet<_> = HISTORIES.iter().flat_map(|one| results.sizes_of(one.0)).collect();
    let section = |size| {
        let mut rows = Vec::new();
        for call in CALLS {
            for (name, before) in HISTORIES {
                // The noise of the machine is the same for all.
                let shown = if NOISE.contains(&call) { 1 } else { usize::MAX };
                for row in results.rows_of(name, size).take(shown) {
                    if call != CALLS[0] && row.median(&format!("{call} p50")).is_none() {
                        continue;
                    }
                    let mut cells = [call, row.subject, before].map(str::to_owned).to_vec();
                    cells.extend(LONGEST.map(|quantile| {
                        median(Some(row), &format!("{call} {quantile}"), duration)
                    }));
                    cells.push(row.answers());
                    rows.push(cells);
                }
            }
        }
        let title = format!("{}, {} timeouts", workload.name, count(size));
        let about = format!("{} Medians of the repetitions.", workload.about);
        section(&title, &about, &heads, rows)
    };
    sizes.into_iter().map(section).collect()
}

/// Which subject to take for which workload at which size.
pub(crate) fn pick(results: &Results) -> String {
    let of = |workload: &Workload| results.sizes_of(workload.name);
    let workloads = || WORKLOADS.iter().filter(|one| one.grows() && !of(one).is_empty());
    let sizes: BTreeSet<_> = workloads().flat_map(of).collect();
    if sizes.is_empty() {
        return String::new();
    }
    let rows = workloads().map(|workload| {
        let cells = sizes
            .iter()
            .map(|&size| fastest(results, workload, size).unwrap_or_else(|| "-".into()));
        [workload.name.to_owned()].into_iter().chain(cells).collect::<Vec<_>>()
    });
    let heads: Vec<_> =
        ["workload".to_owned()].into_iter().chain(sizes.iter().map(|&size| count(size))).collect();
    let about = "Each cell begins with the fastest subject that answers rightly. The number is the \
                 cost of the hierarchical wheel divided by the cost of the best other subject: the \
                 median of the ratios within a repetition. Below 1 the wheel is ahead. Limits do \
                 not take part.";
    section("Pick by size", about, &heads, rows)
}

/// The fastest of ours and of the peers that answer rightly, and how far ours is ahead of the best
/// other one, or behind it. The ratios alone decide, so that name and number agree.
fn fastest(results: &Results, workload: &Workload, size: usize) -> Option<String> {
    let ours = results.ours(workload.name, size)?;
    let others = results.rows_of(workload.name, size).filter(|row| {
        let takes_part = matches!(row.profile().kind, Kind::Ours | Kind::Peer);
        takes_part && row.is_right() && row.subject != ours.subject
    });
    let ratio = |it| Some((ours.ratio(it, workload.metrics[0].0)?.median, it));
    let best = others.filter_map(ratio).max_by(|one, other| one.0.total_cmp(&other.0));
    let name = ours.subject;
    match best {
        Some((_, it)) if !ours.is_right() => Some(it.subject.into()),
        Some((ratio, it)) if ratio <= 1.0 => {
            Some(format!("{name}, {} of {}", number(ratio), it.subject))
        }
        Some((ratio, it)) => Some(format!("{}, {name} {} of it", it.subject, number(ratio))),
        None => ours.is_right().then(|| name.into()),
    }
}

/// Where a peer is clearly ahead of ours, which is the first of the table; the most so first.
pub(crate) fn behind(results: &Results) -> String {
    let mut found = Vec::new();
    for workload in WORKLOADS.iter().filter(|one| !one.name.starts_with("longest-call")) {
        for size in results.sizes_of(workload.name) {
            let Some(ours) = results.ours(workload.name, size) else { continue };
            let rows = results.rows_of(workload.name, size);
            for row in rows.filter(|row| row.profile().kind == Kind::Peer) {
                let ratio = ours.ratio(row, workload.metrics[0].0);
                if let Some(ratio) = ratio.filter(|ratio| 1.05 <= ratio.median) {
                    let about = format!("{}, {}", workload.name, count(size));
                    let cell = Spread::cell(Some(ratio), number);
                    found.push((ratio.median, [about, row.subject.into(), cell, row.answers()]));
                }
            }
        }
    }
    found.sort_by(|one, other| other.0.total_cmp(&one.0));
    let about = "Of the hierarchical wheel, or of the timer, by 5 % or more; the farthest ahead first. \
                 Ratios of what was measured in the same repetition: median (least-most).";
    let heads = ["workload", "peer", "ours / it", "answers"].map(str::to_owned);
    section("Where a peer is ahead", about, &heads, found.into_iter().map(|(_, cells)| cells))
}

/// Who gave wrong answers or panicked, and where.
pub(crate) fn wrong(results: &Results) -> String {
    let rows = PROFILES.iter().filter_map(|profile| {
        let is_wrong = |workload: &&Workload| {
            let mut sizes = results.sizes_of(workload.name).into_iter();
            sizes.any(|size| {
                let row = results.row(workload.name, size, profile.name);
                row.is_some_and(Row::is_wrong)
            })
        };
        let found: Vec<_> = WORKLOADS.iter().filter(is_wrong).map(|one| one.name).collect();
        (!found.is_empty()).then(|| [profile.name.to_owned(), found.join(", ")])
    });
    let heads = ["subject", "answers"].map(str::to_owned);
    let about = "Early, late, lost, twice, out of order, or a panic, at one size at least.";
    section("Whose answers are wrong", about, &heads, rows)
}

/// Columns with these heads are words; all others are figures.
const WORDS: [&str; 6] = ["subject", "call", "before", "workload", "peer", "answers"];

/// The quantiles in the table of the longest calls; `--json` has more.
const LONGEST: [&str; 4] = ["p99", "p99.9", "p99.99", "max"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Sample;
    use crate::log::{Fault, Faults};

    #[test]
    fn a_table_has_ratios_and_marks_what_is_wrong() {
        let mut results = Results::default();
        let mut early = Faults::default();
        early.add(Fault::Early, 3_u64);
        for (cost, factor) in [(10.0, 2.0), (12.0, 2.0), (14.0, 4.0)] {
            let sample = Sample::of(Faults::default(), &[("cancel", cost)]);
            results.add("cancel", 1_000, "tickwheel", sample);
            let sample = Sample::of(early.clone(), &[("cancel", factor * cost)]);
            results.add("cancel", 1_000, "nexus-timer", sample);
            let sample = Sample::failed("PANICKED: no room".into());
            results.add("cancel", 1_000, "delay-queue", sample);
        }
        let workload = WORKLOADS.iter().find(|one| one.name == "cancel").expect("a workload");
        let text = detail(&results, workload, 1_000);
        let line = |subject: &str| {
            text.lines().find(|line| line.contains(subject)).expect("its line").to_owned()
        };
        assert!(line("tickwheel").contains(" 12 |"), "{text}");
        assert!(line("nexus-timer").contains("0.5 (0.25-0.5)"), "{text}");
        assert!(line("nexus-timer").contains("WRONG: 3 early"), "{text}");
        assert!(line("delay-queue").contains("PANICKED: no room"), "{text}");
    }

    #[test]
    fn the_fastest_that_answers_rightly_is_picked_for_each_size() {
        let mut results = Results::default();
        let mut add = |size, subject, faults: &Faults, costs: [f64; 3]| {
            for cost in costs {
                let sample = Sample::of(faults.clone(), &[("schedule + fire", cost)]);
                results.add("fire-dense", size, subject, sample);
            }
        };
        let (right, mut early) = (Faults::default(), Faults::default());
        early.add(Fault::Early, 3_u64);
        // The medians alone would have the wheel ahead at 10 k: 20 to 30.
        for (size, lazy_heap) in [(1_000, [5.0, 5.0, 10.0]), (10_000, [8.0, 30.0, 40.0])] {
            add(size, "tickwheel", &right, [10.0, 40.0, 20.0]);
            add(size, "tickwheel-hashed", &right, [20.0, 80.0, 40.0]);
            add(size, "tickwheel-new", &right, [1.0; 3]);
            add(size, "nexus-timer", &early, [1.0; 3]);
            add(size, "lazy-heap", &right, lazy_heap);
            add(size, "sort-and-walk", &right, [1.0; 3]);
        }
        add(100_000, "tickwheel", &right, [10.0, 40.0, 20.0]);
        add(100_000, "btree-map", &right, [20.0, 80.0, 40.0]);
        add(1_000_000, "tickwheel", &early, [10.0; 3]);
        add(1_000_000, "btree-map", &right, [20.0; 3]);
        add(10_000_000, "tickwheel", &right, [10.0; 3]);
        let text = pick(&results);
        let cells = |line: &str| line.split('|').map(|cell| cell.trim().to_owned()).collect();
        let lines: Vec<Vec<String>> =
            text.lines().filter(|line| line.contains('|')).map(cells).collect();
        assert_eq!(lines[0][1..7], ["workload", "1 k", "10 k", "100 k", "1 M", "10 M"], "{text}");
        assert_eq!(
            lines[2][1..7],
            [
                "fire-dense",
                "lazy-heap, tickwheel 2 of it",
                "lazy-heap, tickwheel 1.25 of it",
                "tickwheel, 0.5 of btree-map",
                "btree-map",
                "tickwheel",
            ],
            "{text}"
        );
        assert_eq!(lines.len(), 3, "a row for each workload that was run: {text}");
        assert_eq!(pick(&Results::default()), "");
    }
}
