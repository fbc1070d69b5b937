//! Draws a report as SVG, from which the PNG is made.

use super::report::Report;
use super::{run::Figures, units};
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, ValueFormatter};
use plotters::coord::{Shift, types::RangedCoordf64};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::error::Error;
use std::fmt;
use std::ops::Range;

/// Why there is no picture.
#[derive(Debug)]
#[non_exhaustive]
pub struct PlotError {
    /// What went wrong.
    pub reason: String,
}

/// Draws `report` as SVG: its verdict; cost per operation with its spread, longest call and memory of
/// each mode; and how the delays of the trace are distributed, if they are not all alike.
///
/// The text stays text, in Noto Sans or in the next best font that the viewer has.
///
/// # Errors
///
/// [`PlotError`] if the picture cannot be drawn, as with millions of modes.
pub fn svg(report: &Report) -> Result<String, PlotError> {
    let verdict = wrapped(&report.verdict());
    let rows = report.figures.len() as f64 * ROW;
    let delays = if are_alike(report) { LINE } else { TITLE + HISTOGRAM };
    let height = HEADING + verdict.len() as f64 * LINE + BARS + rows + NOTE + delays + BOTTOM;
    let height = height.min(f64::from(i32::MAX)) as u32;
    let mut picture = String::new();
    draw(report, &verdict, rows, &mut picture, height).map_err(|error| PlotError::new(&*error))?;
    Ok(picture)
}

/// Draws `report` as PNG: what [`svg()`] draws, twice its size in pixels, with a font of its own.
///
/// # Errors
///
/// [`PlotError`] if the picture would be too large, as with thousands of modes.
#[cfg(feature = "png")]
pub fn png(report: &Report) -> Result<Vec<u8>, PlotError> {
    crate::raster::png(&svg(report)?).map_err(|error| PlotError::new(&*error))
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn Error>>;

fn draw(
    report: &Report,
    verdict: &[String],
    rows: f64,
    picture: &mut String,
    height: u32,
) -> Drawn {
    let root = SVGBackend::with_string(picture, (WIDTH, height)).into_drawing_area();
    root.fill(&WHITE)?;
    let (heading, rest) = root.split_vertically((HEADING + verdict.len() as f64 * LINE) as i32);
    let (modes, delays) = rest.split_vertically((BARS + rows + NOTE) as i32);
    draw_heading(report, verdict, &heading)?;
    draw_modes(report, &modes)?;
    draw_delays(report, &delays)?;
    root.present()?;
    Ok(())
}

fn draw_heading(report: &Report, verdict: &[String], area: &Area<'_>) -> Drawn {
    let pending = report.figures.iter().map(|figures| figures.peak_live).max().unwrap_or(0);
    let summary = format!(
        "{} over {}, at most {} timeouts pending; tick {}",
        units::operations(report.operations),
        units::milliseconds(report.span_ms),
        indicatif::HumanCount(pending),
        report.tick,
    );
    area.draw(&Text::new(shortened(&report.trace), (MARGIN, 28), bold(30)))?;
    area.draw(&Text::new(summary, (MARGIN, 58), plain(HPos::Left, VPos::Top)))?;
    for (number, line) in (0..).zip(verdict) {
        let at = (MARGIN, HEADING as i32 - 6 + number * LINE as i32);
        area.draw(&Text::new(line.as_str(), at, plain(HPos::Left, VPos::Top)))?;
    }
    Ok(())
}

/// Draws charts of bars beside each other, with one row a mode.
fn draw_modes(report: &Report, area: &Area<'_>) -> Drawn {
    let charts: [Bars; 3] = [
        Bars {
            title: "Cost per operation",
            value: |figures| figures.ns_per_op,
            text: units::duration,
            spread: Some(|figures| [figures.least_ns_per_op, figures.most_ns_per_op]),
        },
        Bars {
            title: "Longest call",
            value: |figures| figures.max_call_ns as f64,
            text: units::duration,
            spread: None,
        },
        Bars {
            title: "Memory per timeout",
            value: |figures| figures.peak_bytes_per_timeout,
            text: units::bytes,
            spread: None,
        },
    ];
    let end = BARS as i32 + report.figures.len() as i32 * ROW as i32;
    for (number, chart) in (0..).zip(charts) {
        draw_bars(report, area, &chart, LABELS + number * CHART)?;
    }
    for (number, figures) in (0..).zip(&report.figures) {
        let at = (LABELS - 12, BARS as i32 + number * ROW as i32 + ROW as i32 / 2);
        area.draw(&Text::new(figures.mode.to_string(), at, plain(HPos::Right, VPos::Center)))?;
    }
    let note = "Less is better. The thin line is the spread of the three repetitions.";
    area.draw(&Text::new(note, (LABELS, end + 4), plain(HPos::Left, VPos::Top)))?;
    Ok(())
}

/// A chart of one bar a mode.
struct Bars {
    title: &'static str,
    value: fn(&Figures) -> f64,
    text: fn(f64) -> String,
    spread: Option<fn(&Figures) -> [f64; 2]>,
}

fn draw_bars(report: &Report, area: &Area<'_>, bars: &Bars, left: i32) -> Drawn {
    area.draw(&Text::new(bars.title, (left, 6), bold(20)))?;
    let ends = report.figures.iter().map(|figures| {
        bars.spread.map_or_else(|| (bars.value)(figures), |spread| spread(figures)[1])
    });
    let most = ends.fold(1.0, f64::max);
    let at = |value: f64| left + (value / most * f64::from(CHART - VALUE)).round() as i32;
    for (number, figures) in (0..).zip(&report.figures) {
        let (top, value) = (BARS as i32 + number * ROW as i32, (bars.value)(figures));
        let corners = [(left, top + 5), (at(value), top + ROW as i32 - 5)];
        area.draw(&Rectangle::new(corners, color(figures).filled()))?;
        let middle = top + ROW as i32 / 2;
        let mut end = at(value);
        if let Some([least, most]) = bars.spread.map(|spread| spread(figures)) {
            let ends = [at(least), at(most)];
            area.draw(&PathElement::new(ends.map(|x| (x, middle)), INK))?;
            for x in ends {
                area.draw(&PathElement::new([(x, middle - 5), (x, middle + 5)], INK))?;
            }
            end = end.max(ends[1]);
        }
        let mark = if figures.stopped.is_some() { ", stopped" } else { "" };
        let label = format!("{}{mark}", (bars.text)(value));
        area.draw(&Text::new(label, (end + 8, middle), plain(HPos::Left, VPos::Center)))?;
    }
    Ok(())
}

/// Whether a histogram of the delays would have one bar at most.
fn are_alike(report: &Report) -> bool {
    report.delays.quantile(0.0) == report.delays.quantile(1.0)
}

/// Draws a histogram of the delays, over a logarithmic axis, or says that they are all alike.
fn draw_delays(report: &Report, area: &Area<'_>) -> Drawn {
    if are_alike(report) {
        let delays = match report.delays.quantile(1.0) {
            Some(delay_ms) => {
                format!("All delays in the trace are {}.", units::milliseconds(delay_ms))
            }
            None => "Nothing is scheduled in the trace.".into(),
        };
        area.draw(&Text::new(delays, (MARGIN, 10), bold(20)))?;
        return Ok(());
    }
    area.draw(&Text::new("Delays in the trace, share of all", (MARGIN, 6), bold(20)))?;
    let at = (WIDTH as i32 - MARGIN, 6);
    area.draw(&Text::new(report.delays.to_string(), at, plain(HPos::Right, VPos::Top)))?;

    let axis = LogAxis::over(
        report.delays.quantile(0.0).unwrap_or(1),
        report.delays.quantile(1.0).unwrap_or(1),
    );
    let mut bins = [0; BINS + 1];
    for (delay_ms, count) in report.delays.iter() {
        let bin = (axis.position(delay_ms as f64) * BINS as f64).round() as usize;
        bins[bin.min(BINS)] += count;
    }
    let all = report.delays.len().max(1) as f64;
    let highest = bins.iter().max().map_or(0.0, |&most| most as f64 / all);
    let scale = SCALES.into_iter().find(|scale| highest <= *scale).unwrap_or(1.0);

    let mut chart = ChartBuilder::on(area)
        .margin_top(TITLE as i32 - 4)
        .margin_right(MARGIN + LAST_MARK)
        .margin_bottom(12)
        .margin_left(MARGIN)
        .x_label_area_size(32)
        .y_label_area_size(AXIS)
        .build_cartesian_2d(axis, Share(scale, (0.0..scale).into()))?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .bold_line_style(GRID)
        .axis_style(INK)
        .y_labels(5)
        .label_style(plain(HPos::Left, VPos::Top))
        .draw()?;
    let bars = bins.iter().enumerate().filter(|(_, count)| 0 < **count);
    let bars = bars.map(|(bin, &count)| {
        let edge = |number: f64| axis.at((number / BINS as f64).clamp(0.0, 1.0));
        let (left, right) = (edge(bin as f64 - 0.45), edge(bin as f64 + 0.45));
        Rectangle::new([(left, 0.0), (right, count as f64 / all)], DELAYS.filled())
    });
    chart.draw_series(bars)?;
    Ok(())
}

/// Text in the color and with the font of all text.
fn plain(horizontal: HPos, vertical: VPos) -> TextStyle<'static> {
    (FONT, 18).into_font().color(&INK).pos(Pos::new(horizontal, vertical))
}

fn bold(size: i32) -> TextStyle<'static> {
    (FONT, size, FontStyle::Bold).into_font().color(&INK)
}

/// A logarithmic axis of time from one mark to another, in ms.
#[derive(Clone, Copy)]
struct LogAxis {
    from: f64,
    to: f64,
}

impl LogAxis {
    /// From the last mark before `least` to the first after `most`.
    fn over(least: u64, most: u64) -> Self {
        let (least, most) = (least as f64, most as f64);
        let from = units::marks().take_while(|&mark| mark < least).last().unwrap_or(0.1);
        let to = units::marks().find(|&mark| most < mark).unwrap_or(f64::MAX);
        Self { from, to }
    }

    /// Where on the axis `ms` is: 0 at its start, 1 at its end.
    fn position(&self, ms: f64) -> f64 {
        (ms / self.from).ln() / (self.to / self.from).ln()
    }

    /// The inverse of [`position`](Self::position).
    fn at(&self, position: f64) -> f64 {
        self.from * (self.to / self.from).powf(position)
    }
}

impl Ranged for LogAxis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, ms: &f64, limit: (i32, i32)) -> i32 {
        limit.0 + (self.position(*ms) * f64::from(limit.1 - limit.0)).round() as i32
    }

    /// The marks, as many as there is room for.
    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        const MOST_LABELS: usize = 12;
        let shown = || units::marks().filter(|mark| (self.from..=self.to).contains(mark));
        shown().step_by(shown().count().div_ceil(MOST_LABELS).max(1)).collect()
    }

    fn range(&self) -> Range<f64> {
        self.from..self.to
    }
}

impl ValueFormatter<f64> for LogAxis {
    fn format(ms: &f64) -> String {
        units::duration(ms * 1e6)
    }
}

/// An axis of shares, from 0 up, with a mark at each quarter.
struct Share(f64, RangedCoordf64);

impl Ranged for Share {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, share: &f64, limit: (i32, i32)) -> i32 {
        self.1.map(share, limit)
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        (0..=4).map(|quarter| self.0 * f64::from(quarter) / 4.0).collect()
    }

    fn range(&self) -> Range<f64> {
        self.1.range()
    }
}

impl ValueFormatter<f64> for Share {
    fn format(share: &f64) -> String {
        format!("{} %", (share * 1e4).round() / 100.0)
    }
}

/// The color of the kind of wheel; pale for a mode that was stopped.
fn color(figures: &Figures) -> RGBAColor {
    let color = if figures.mode.is_hashed() { HASHED } else { HIERARCHICAL };
    color.mix(if figures.stopped.is_some() { 0.35 } else { 1.0 })
}

/// The name of a trace, cut in front if it is too long for a heading.
fn shortened(name: &str) -> String {
    const MOST_CHARS: usize = 40;
    match name.chars().count().checked_sub(MOST_CHARS) {
        Some(over) if 0 < over => format!("...{}", name.chars().skip(over).collect::<String>()),
        _ => name.into(),
    }
}

/// The text in lines that are not longer than the picture is wide.
fn wrapped(text: &str) -> Vec<String> {
    const MOST_CHARS: usize = 116;
    let mut lines = Vec::new();
    for paragraph in text.lines() {
        let mut line = String::new();
        for word in paragraph.split(' ') {
            if !line.is_empty() && MOST_CHARS < line.chars().count() + 1 + word.chars().count() {
                lines.push(std::mem::take(&mut line));
            }
            line += if line.is_empty() { "" } else { " " };
            line += word;
        }
        lines.push(line);
    }
    lines
}

impl PlotError {
    fn new(reason: &dyn Error) -> Self {
        Self { reason: reason.to_string() }
    }
}

impl fmt::Display for PlotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl Error for PlotError {}

const FONT: &str = "Noto Sans, DejaVu Sans, Verdana, sans-serif";
const INK: RGBColor = RGBColor(0x22, 0x22, 0x22);
const GRID: RGBColor = RGBColor(0xdd, 0xdd, 0xdd);
const HIERARCHICAL: RGBColor = RGBColor(0x3b, 0x6f, 0xb6);
const HASHED: RGBColor = RGBColor(0xe0, 0x8a, 0x2c);
const DELAYS: RGBColor = RGBColor(0x5a, 0x9a, 0x68);

const WIDTH: u32 = 1000;
const MARGIN: i32 = 28;
const HEADING: f64 = 100.0;
/// The title of a chart, with the room above what it is the title of.
const TITLE: f64 = 46.0;
/// The chart of the delays, without its title.
const HISTOGRAM: f64 = 268.0;
/// The titles of the charts of bars.
const BARS: f64 = 40.0;
/// What stands below the charts of bars, with the room below it.
const NOTE: f64 = 44.0;
/// A line of text.
const LINE: f64 = 26.0;
/// Room below everything.
const BOTTOM: f64 = 16.0;
/// Where the names of the modes end.
const LABELS: i32 = 180;
/// A chart of bars.
const CHART: i32 = 270;
/// Room for the number behind the longest bar, and between two charts.
const VALUE: i32 = 130;
const ROW: f64 = 34.0;
/// Room for the numbers at the axis of shares.
const AXIS: i32 = 56;
/// Room for the last mark at the axis of time.
const LAST_MARK: i32 = 24;
/// Bins that the axis of time is as long as.
const BINS: usize = 60;
/// Where the axis of shares can end.
const SCALES: [f64; 6] = [0.04, 0.08, 0.2, 0.4, 0.6, 0.8];
