//! Pictures: throughput by the number of threads, and cost by the number of timeouts.

use crate::format;
use crate::lines::{Drawing, Line, Style};
use crate::report::number;
use crate::results::{Results, Row};
use crate::subject::Kind;
use crate::subjects::PROFILES;
use crate::workloads::{WORKLOADS, Workload};
use std::fs;
use std::io;
use std::path::Path;

/// Draws a picture for each workload that was run at several sizes into `directory`, as SVG.
pub(crate) fn draw_all(results: &Results, directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let grows = WORKLOADS.iter().filter(|workload| workload.grows());
    let pictures = grows.map(|workload| (workload.name, costs(results, workload)));
    for (name, picture) in pictures.chain([(THREADS, throughput(results))]) {
        if picture.lines.iter().any(|line| 1 < line.points.len()) {
            fs::write(directory.join(format!("{name}.svg")), picture.svg())?;
        }
    }
    Ok(())
}

/// How many timeouts several threads schedule and cancel in a second.
fn throughput(results: &Results) -> Drawing {
    let lines = SHOWN.into_iter().filter_map(|(subject, name, color)| {
        let rate = |cost: f64| 1e3 / cost;
        let points = points(results, THREADS, subject, "schedule + cancel", rate);
        let rate = number(points.last()?.1.round());
        let style = if name.starts_with("tickwheel") { Style::Thick } else { Style::Thin };
        Some(Line { name: format!("{rate} {name}"), color, style, points })
    });
    let threads = results.sizes_of(THREADS).into_iter();
    Drawing {
        title: "Millions scheduled and cancelled per second".into(),
        lines: lines.collect(),
        across: "threads",
        columns: threads.map(|threads| (threads as f64, threads.to_string())).collect(),
        rows: [0.0, 10.0, 20.0].map(|rate| (rate, number(rate))).into(),
        scale: |rate| rate,
        width: 440.0,
        height: 290.0,
        names: 190.0,
    }
}

/// The first metric of a workload, by the number of timeouts.
fn costs(results: &Results, workload: &Workload) -> Drawing {
    let sizes = results.sizes_of(workload.name);
    let metric = workload.metrics[0].0;
    let mut lines = Vec::new();
    for (profile, color) in PROFILES.iter().zip(COLORS.into_iter().cycle()) {
        let points = points(results, workload.name, profile.name, metric, |cost| cost);
        let Some(&(size, cost)) = points.last() else { continue };
        let mut rows = sizes.iter().filter_map(|&it| results.row(workload.name, it, profile.name));
        let wrong = if rows.any(|row| row.faults().any()) { ", wrong" } else { "" };
        let at = match sizes.last() {
            Some(&most) if (size as usize) < most => {
                format!(" at {}", format::count(size as usize))
            }
            _ => String::new(),
        };
        let name = format!("{} {}{at}{wrong}", profile.name, format::duration(cost));
        let style = match profile.kind {
            Kind::Ours => Style::Thick,
            Kind::Limit => Style::Dashed,
            _ => Style::Thin,
        };
        lines.push(Line { name, color, style, points });
    }
    let costs = || lines.iter().flat_map(|line| &line.points).map(|point| point.1);
    let (least, most) = (costs().fold(f64::MAX, f64::min), costs().fold(0.0, f64::max));
    let powers = (0..10).map(|power| 10_f64.powi(power));
    Drawing {
        title: format!("{}: {metric}, less is better", workload.name),
        across: "timeouts",
        columns: sizes.iter().map(|&size| (size as f64, format::count(size))).collect(),
        rows: powers
            .filter(|power| (least..=most).contains(power))
            .map(|power| (power, format::duration(power)))
            .collect(),
        scale: f64::ln,
        width: 680.0,
        height: 420.0,
        names: 250.0,
        lines,
    }
}

/// What `written` makes of the medians of a metric, by size.
fn points(
    results: &Results,
    workload: &str,
    subject: &str,
    metric: &str,
    written: fn(f64) -> f64,
) -> Vec<(f64, f64)> {
    let rows = results.rows.iter();
    let rows = rows.filter(|row| row.workload == workload && row.subject == subject);
    let point = |row: &Row| Some((row.size as f64, written(row.median(metric)?)));
    let mut points: Vec<_> = rows.filter_map(point).collect();
    points.sort_by(|one, other| one.0.total_cmp(&other.0));
    points
}

const THREADS: &str = "threads";

/// The subjects that readers know: as in the tables, and by the names that they know.
const SHOWN: [(&str, &str, u32); 6] = [
    ("tickwheel-sleep", "tickwheel sleep", COLORS[1]),
    ("tickwheel-timer", "tickwheel Timer", COLORS[0]),
    ("netty", "Netty", COLORS[3]),
    ("pingora-timeout", "pingora-timeout", COLORS[4]),
    ("async-io", "async-io", COLORS[6]),
    ("tokio-sleep", "tokio sleep", COLORS[5]),
];

/// In the order of the subjects: ours are reddish, and most readers can tell the others apart.
const COLORS: [u32; 10] = [
    0xe0383b, 0xe8833a, 0xd1669b, 0x3b82d6, 0x2f9e73, 0x9a6fd0, 0x0a9db0, 0x93962a, 0xa0715a,
    0x808890,
];
