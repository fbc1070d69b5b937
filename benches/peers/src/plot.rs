//! Pictures of cost against the number of timeouts.

use crate::format;
use crate::results::Results;
use crate::subject::Kind;
use crate::subjects;
use crate::workloads::{WORKLOADS, Workload};
use plotters::coord::ranged1d::{KeyPointHint, Ranged};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use resvg::{tiny_skia, usvg};
use std::error::Error;
use std::fs;
use std::path::Path;

/// Draws a picture for each workload that was run at several sizes into `directory`, and returns
/// the names of their workloads. As SVG, and as PNG too if asked for.
pub(crate) fn draw_all(
    results: &Results,
    directory: &Path,
    png: bool,
) -> Result<Vec<&'static str>, Box<dyn Error>> {
    fs::create_dir_all(directory)?;
    let mut drawn = Vec::new();
    for workload in WORKLOADS.iter().filter(|workload| workload.grows()) {
        if let Some(picture) = draw(results, workload)? {
            fs::write(directory.join(format!("{}.svg", workload.name)), &picture)?;
            if png {
                fs::write(directory.join(format!("{}.png", workload.name)), raster(&picture)?)?;
            }
            drawn.push(workload.name);
        }
    }
    Ok(drawn)
}

/// One line of the picture.
struct Line {
    subject: String,
    kind: Kind,
    points: Vec<(f64, f64)>,
    color: RGBColor,
    /// Whether its answers were wrong.
    is_wrong: bool,
}

impl Line {
    fn end(&self) -> (f64, f64) {
        *self.points.last().expect("a line begins with a point")
    }

    fn label(&self) -> String {
        let mark = if self.is_wrong { " *" } else { "" };
        format!("{}{mark}  {}", self.subject, format::duration(self.end().1))
    }
}

/// None if there is nothing to draw a line through.
fn draw(results: &Results, workload: &Workload) -> Result<Option<String>, Box<dyn Error>> {
    let lines = lines(results, workload);
    let points = || lines.iter().flat_map(|line| &line.points);
    if lines.iter().all(|line| line.points.len() < 2) {
        return Ok(None);
    }
    let least_size = points().map(|point| point.0).fold(f64::MAX, f64::min);
    let most_size = points().map(|point| point.0).fold(0.0, f64::max);
    // Room above and below the lines.
    let least = points().map(|point| point.1).fold(f64::MAX, f64::min) / 1.3;
    let most = points().map(|point| point.1).fold(0.0, f64::max) * 1.3;

    let mut picture = String::new();
    {
        let root = SVGBackend::with_string(&mut picture, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let title = text(22, &INK).pos(Pos::new(HPos::Left, VPos::Top));
        root.draw(&Text::new(title_of(workload), (MARGIN, 14), title))?;
        let about = text(14, &FAINT).pos(Pos::new(HPos::Left, VPos::Top));
        root.draw(&Text::new(shortened(workload.about), (MARGIN, 44), about.clone()))?;
        if lines.iter().any(|line| line.is_wrong) {
            let at = (SIZE.0 as i32 - LABELS + 22, SIZE.1 as i32 - 34);
            root.draw(&Text::new("* with answers that are wrong", at, about))?;
        }

        let area = root.margin(76, 10, 10, LABELS);
        let mut chart = ChartBuilder::on(&area)
            .x_label_area_size(44)
            .y_label_area_size(64)
            .build_cartesian_2d(
                Log { least: least_size, most: most_size, factors: &[1.0] },
                Log {
                    least,
                    most,
                    factors: if most < 1e4 * least { &[1.0, 2.0, 5.0] } else { &[1.0] },
                },
            )?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(WHITE)
            .bold_line_style(GRID)
            .axis_style(FAINT)
            .x_label_formatter(&|size| format::count(size.round() as usize))
            .y_label_formatter(&|cost| format::duration(*cost))
            .x_desc("timeouts")
            .label_style(text(14, &INK))
            .axis_desc_style(text(14, &INK))
            .draw()?;
        for line in lines.iter().rev() {
            let width = if line.kind == Kind::Ours { 4 } else { 2 };
            let style = line.color.stroke_width(width);
            let points = line.points.iter().copied();
            match line.kind {
                Kind::Limit => {
                    chart.draw_series(DashedLineSeries::new(points, 5, 4, style))?;
                }
                _ => {
                    chart.draw_series(LineSeries::new(points, style))?;
                }
            }
            let radius = if line.kind == Kind::Ours { 5 } else { 3 };
            let dots = line.points.iter().map(|&at| Circle::new(at, radius, line.color.filled()));
            chart.draw_series(dots)?;
        }

        // Each line is named where it ends; at the right edge, as near to that as there is room.
        let (complete, broken_off): (Vec<_>, Vec<_>) =
            lines.iter().partition(|line| line.end().0 == most_size);
        for line in broken_off {
            let (x, y) = chart.backend_coord(&line.end());
            let style = text(14, &line.color).pos(Pos::new(HPos::Left, VPos::Center));
            root.draw(&Text::new(
                format!("{}, no end with more", line.label()),
                (x + 9, y),
                style,
            ))?;
        }
        let ends = complete.into_iter().map(|line| (chart.backend_coord(&line.end()), line));
        let mut ends: Vec<_> = ends.collect();
        ends.sort_by_key(|((_, y), _)| *y);
        let bottom = SIZE.1 as i32 - 60;
        let mut rows: Vec<i32> = Vec::new();
        for ((_, y), _) in &ends {
            let above = rows.last().map_or(i32::MIN, |above| above + ROW);
            rows.push((*y).max(above));
        }
        // Pushed back up where they would leave the picture.
        let mut below = bottom + ROW;
        for row in rows.iter_mut().rev() {
            *row = (*row).min(below - ROW);
            below = *row;
        }
        let left = SIZE.0 as i32 - LABELS + 22;
        for (((x, y), line), row) in ends.iter().zip(rows) {
            let path = [(*x + 6, *y), (left - 4, row)];
            root.draw(&PathElement::new(path, line.color.mix(0.5).stroke_width(1)))?;
            let style = text(if line.kind == Kind::Ours { 17 } else { 14 }, &line.color);
            let style = style.pos(Pos::new(HPos::Left, VPos::Center));
            root.draw(&Text::new(line.label(), (left, row), style))?;
        }
        root.present()?;
    }
    Ok(Some(picture))
}

fn lines(results: &Results, workload: &Workload) -> Vec<Line> {
    let metric = workload.metrics[0].name;
    let mut lines: Vec<Line> = Vec::new();
    for row in results.rows.iter().filter(|row| row.workload == workload.name) {
        let Some(cost) = row.median(metric) else { continue };
        let point = (row.size as f64, cost);
        match lines.iter_mut().find(|line| line.subject == row.subject) {
            Some(line) => {
                line.points.push(point);
                line.is_wrong |= row.faults.any();
            }
            None => {
                let kind = row.kind();
                let color = match (kind, row.subject.as_str()) {
                    (Kind::Ours, "tickwheel") => OURS,
                    (Kind::Ours, _) => HASHED,
                    (Kind::Limit, _) => FAINT,
                    (Kind::Peer, subject) => peer_color(subject),
                };
                let is_wrong = row.faults.any();
                let subject = row.subject.clone();
                lines.push(Line { subject, kind, points: vec![point], color, is_wrong });
            }
        }
    }
    for line in &mut lines {
        line.points.sort_by(|one, other| one.0.total_cmp(&other.0));
    }
    lines
}

/// The same in every picture.
fn peer_color(subject: &str) -> RGBColor {
    let mut peers = subjects::PROFILES.iter().filter(|profile| profile.kind == Kind::Peer);
    let place = peers.position(|profile| profile.name == subject).unwrap_or(0);
    COLORS[place % COLORS.len()]
}

fn title_of(workload: &Workload) -> String {
    let metric = workload.metrics[0].name;
    format!("{}: {metric}, each, by the number of timeouts. Less is better", workload.name)
}

/// A font that every viewer has something like.
fn text<'a>(size: u32, color: &'a RGBColor) -> TextStyle<'a> {
    (FONT, size).into_font().color(color)
}

/// Cut at a word, if it is too long for a line.
fn shortened(about: &str) -> String {
    const MOST: usize = 120;
    match about.char_indices().nth(MOST) {
        Some((end, _)) => format!("{} ...", &about[..about[..end].rfind(' ').unwrap_or(end)]),
        None => about.into(),
    }
}

/// An axis on which equal factors are equally long, with marks at these times each power of ten.
struct Log {
    least: f64,
    most: f64,
    factors: &'static [f64],
}

impl Ranged for Log {
    type FormatOption = plotters::coord::ranged1d::NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let share = (value / self.least).ln() / (self.most / self.least).ln();
        limit.0 + (share * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _hint: Hint) -> Vec<f64> {
        let mut points = Vec::new();
        let first = self.least.log10().floor() as i32;
        for power in first..=self.most.log10().ceil() as i32 {
            let marks = self.factors.iter().map(|factor| factor * 10_f64.powi(power));
            points.extend(marks.filter(|mark| (self.least..=self.most).contains(mark)));
        }
        points
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.least..self.most
    }
}

impl plotters::coord::ranged1d::ValueFormatter<f64> for Log {
    fn format(value: &f64) -> String {
        format::number(*value)
    }
}

/// The same picture in pixels.
fn raster(svg: &str) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut options = usvg::Options { font_family: FONT.into(), ..usvg::Options::default() };
    options.fontdb_mut().load_font_data(notosans::REGULAR_TTF.to_vec());
    options.fontdb_mut().set_sans_serif_family(FONT);
    let tree = usvg::Tree::from_str(svg, &options)?;
    let mut canvas = tiny_skia::Pixmap::new(SIZE.0, SIZE.1).ok_or("a picture of no size")?;
    resvg::render(&tree, tiny_skia::Transform::identity(), &mut canvas.as_mut());
    Ok(canvas.encode_png()?)
}

const SIZE: (u32, u32) = (1060, 620);
const MARGIN: i32 = 18;
/// Room for the names at the right.
const LABELS: i32 = 230;
/// The height of a name.
const ROW: i32 = 19;
const FONT: &str = "Noto Sans";

const OURS: RGBColor = RGBColor(0xd0, 0x1c, 0x1f);
const HASHED: RGBColor = RGBColor(0xe0, 0x7b, 0x39);
const INK: RGBColor = RGBColor(0x22, 0x22, 0x22);
const FAINT: RGBColor = RGBColor(0x77, 0x77, 0x77);
const GRID: RGBColor = RGBColor(0xe4, 0xe4, 0xe4);
/// Of the peers: apart from each other for most eyes, and from ours.
const COLORS: [RGBColor; 6] = [
    RGBColor(0x1f, 0x5f, 0xb4),
    RGBColor(0x2a, 0x93, 0x6a),
    RGBColor(0x7a, 0x4f, 0xa3),
    RGBColor(0x00, 0x94, 0xa8),
    RGBColor(0x8a, 0x8d, 0x1f),
    RGBColor(0x6b, 0x4a, 0x3a),
];
