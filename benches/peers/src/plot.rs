//! Pictures of cost against the number of timeouts.

use crate::format;
use crate::results::{Results, Row};
use crate::subject::Kind;
use crate::subjects::PROFILES;
use crate::workloads::{WORKLOADS, Workload};
use plotters::prelude::*;
use std::error::Error;
use std::fs;
use std::path::Path;

/// Draws a picture for each workload that was run at several sizes into `directory`, as SVG.
pub(crate) fn draw_all(results: &Results, directory: &Path) -> Result<(), Box<dyn Error>> {
    fs::create_dir_all(directory)?;
    for workload in WORKLOADS.iter().filter(|workload| workload.grows()) {
        let lines = lines(results, workload);
        if lines.iter().any(|line| 1 < line.points.len()) {
            let picture = draw(workload, &lines)?;
            fs::write(directory.join(format!("{}.svg", workload.name)), picture)?;
        }
    }
    Ok(())
}

/// One line of the picture.
struct Line {
    /// With its cost at the end.
    label: String,
    kind: Kind,
    points: Vec<(f64, f64)>,
    color: RGBColor,
}

fn draw(workload: &Workload, lines: &[Line]) -> Result<String, Box<dyn Error>> {
    let range = |of: fn(&(f64, f64)) -> f64| {
        let values = || lines.iter().flat_map(|line| &line.points).map(of);
        (values().fold(f64::MAX, f64::min), values().fold(0.0, f64::max))
    };
    let ((fewest, most), (least, highest)) = (range(|point| point.0), range(|point| point.1));
    let title = format!("{}: {}, less is better", workload.name, workload.metrics[0].0);
    let mut picture = String::new();
    {
        let root = SVGBackend::with_string(&mut picture, (1060, 620)).into_drawing_area();
        root.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&root)
            .caption(title, (FONT, 22))
            .margin(16)
            .x_label_area_size(44)
            .y_label_area_size(64)
            // The names stand to the right of the lines.
            .build_cartesian_2d(
                (fewest..most * (most / fewest).powf(0.4)).log_scale(),
                (least / 1.3..highest * 1.3).log_scale(),
            )?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(WHITE)
            .x_label_formatter(&|size| format::count(size.round() as usize))
            .y_label_formatter(&|cost| format::duration(*cost))
            .x_desc("timeouts")
            .label_style((FONT, 14))
            .draw()?;
        for line in lines {
            let style = line.color.stroke_width(if line.kind == Kind::Ours { 4 } else { 2 });
            let points = line.points.iter().copied();
            let drawn = match line.kind {
                Kind::Limit => {
                    chart.draw_series(DashedLineSeries::new(points.clone(), 5, 4, style))?
                }
                _ => chart.draw_series(LineSeries::new(points.clone(), style))?,
            };
            drawn
                .label(&line.label)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
            chart.draw_series(points.map(|at| Circle::new(at, 3, line.color.filled())))?;
        }
        let mut names = chart.configure_series_labels();
        names.label_font((FONT, 14)).position(SeriesLabelPosition::MiddleRight).draw()?;
        root.present()?;
    }
    Ok(picture)
}

/// In the order of their ends, the highest first.
fn lines(results: &Results, workload: &Workload) -> Vec<Line> {
    let mut lines = Vec::new();
    for (profile, color) in PROFILES.iter().zip(COLORS.into_iter().cycle()) {
        let rows = results.rows.iter();
        let rows = rows.filter(|row| row.workload == workload.name && row.subject == profile.name);
        let point = |row: &Row| Some((row.size as f64, row.median(workload.metrics[0].0)?));
        let mut points: Vec<_> = rows.clone().filter_map(point).collect();
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        let Some(&(size, cost)) = points.last() else { continue };
        let mark = if rows.clone().any(|row| row.faults().any()) { ", wrong answers" } else { "" };
        let (size, cost) = (format::count(size as usize), format::duration(cost));
        let label = format!("{}: {cost} at {size}{mark}", profile.name);
        let [_, red, green, blue] = color.to_be_bytes();
        let color = RGBColor(red, green, blue);
        lines.push(Line { label, kind: profile.kind, points, color });
    }
    let end = |line: &Line| line.points.last().map_or(0.0, |end| end.1);
    lines.sort_by(|one, other| end(other).total_cmp(&end(one)));
    lines
}

const FONT: &str = "Noto Sans, sans-serif";

/// In the order of the subjects: ours are reddish, and most readers can tell the others apart.
const COLORS: [u32; 10] = [
    0xd01c1f, 0xe07b39, 0xc9578c, 0x1f5fb4, 0x2a936a, 0x7a4fa3, 0x0094a8, 0x8a8d1f, 0x6b4a3a,
    0x777777,
];
