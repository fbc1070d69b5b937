//! Draws a report: one drawing, as SVG, which PNG is made from.

use super::report::Report;
use super::{run::Figures, units};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use resvg::{tiny_skia, usvg};
use svg::node::element::{Line, Rectangle, Text};
use svg::{Document, Node};

/// Why there is no picture.
#[derive(Debug)]
#[non_exhaustive]
pub struct PlotError {
    /// What went wrong.
    pub reason: String,
}

/// Draws `report` as SVG: cost per operation and longest call of each mode, and how the delays of
/// the trace are distributed.
///
/// The text stays text, in Noto Sans or what else the viewer has.
#[must_use]
pub fn svg(report: &Report) -> String {
    let mut drawing = Drawing::new();
    drawing.heading(report);
    drawing.bars(report);
    drawing.delays(report);
    drawing.finish()
}

/// Draws `report` as PNG: what [`svg()`] draws, twice its size in pixels, with a font of its own.
///
/// # Errors
///
/// [`PlotError`] if the picture would be too large, as with thousands of modes.
pub fn png(report: &Report) -> Result<Vec<u8>, PlotError> {
    let mut options = usvg::Options { font_family: FONT.into(), ..usvg::Options::default() };
    for font in [notosans::REGULAR_TTF, notosans::BOLD_TTF] {
        options.fontdb_mut().load_font_data(font.to_vec());
    }
    let tree = usvg::Tree::from_str(&svg(report), &options).map_err(PlotError::new)?;
    let size = tree.size().to_int_size().scale_by(PIXELS);
    let canvas = size.and_then(|size| tiny_skia::Pixmap::new(size.width(), size.height()));
    let mut canvas = canvas.ok_or_else(|| PlotError::new("the picture would be too large"))?;
    let scale = tiny_skia::Transform::from_scale(PIXELS, PIXELS);
    resvg::render(&tree, scale, &mut canvas.as_mut());
    canvas.encode_png().map_err(PlotError::new)
}

/// A picture being drawn, from top to bottom.
struct Drawing {
    document: Document,
    /// Down to where it is drawn.
    bottom: f64,
}

impl Drawing {
    fn new() -> Self {
        let paper = Rectangle::new().set("width", "100%").set("height", "100%").set("fill", PAPER);
        Self { document: Document::new().add(paper), bottom: 0.0 }
    }

    fn heading(&mut self, report: &Report) {
        self.text(&shortened(&report.trace), MARGIN, 44.0, Style::Title);
        let pending = report.figures.iter().map(|figures| figures.peak_live).max().unwrap_or(0);
        let summary = format!(
            "{} over {}, at most {} timeouts pending; tick {}",
            units::operations(report.operations),
            units::milliseconds(report.span_ms),
            indicatif::HumanCount(pending),
            report.tick,
        );
        self.text(&summary, MARGIN, 70.0, Style::Plain);
        self.bottom = 70.0;
    }

    /// Two charts of bars beside each other, with one row a mode.
    fn bars(&mut self, report: &Report) {
        type Value = fn(&Figures) -> f64;
        let charts: [(&str, f64, Value); 2] = [
            ("Cost per operation, less is better", LABELS, |figures| figures.ns_per_op),
            ("Longest call, less is better", LABELS + CHART + GAP, |figures| {
                figures.max_call_ns as f64
            }),
        ];
        let top = self.bottom + 46.0;
        for (title, left, value) in charts {
            self.text(title, left, top, Style::Heading);
            let most = report.figures.iter().map(value).fold(1.0, f64::max);
            for (row, figures) in report.figures.iter().enumerate() {
                let y = top + 18.0 + row as f64 * ROW;
                let length = (value(figures) / most * (CHART - VALUE)).max(1.0);
                self.bar(left, y, length, ROW - 10.0, color(figures));
                let label = units::duration(value(figures));
                self.text(&label, left + length + 8.0, y + 17.0, Style::Plain);
            }
        }
        for (row, figures) in report.figures.iter().enumerate() {
            let y = top + 18.0 + row as f64 * ROW;
            self.text(&figures.mode.to_string(), LABELS - 12.0, y + 17.0, Style::Right);
        }
        self.bottom = top + 18.0 + report.figures.len() as f64 * ROW;
    }

    /// A histogram of the delays, over a logarithmic axis.
    fn delays(&mut self, report: &Report) {
        let top = self.bottom + 46.0;
        self.text("Delays in the trace, share of all", MARGIN, top, Style::Heading);
        self.text(&report.delays.to_string(), WIDTH - MARGIN, top, Style::Right);
        let below = top + 24.0 + HISTOGRAM;
        self.bottom = below + 26.0;

        let (left, width) = (MARGIN + AXIS, WIDTH - 2.0 * MARGIN - AXIS - LAST_MARK);
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
        for quarter in 0..=4 {
            let share = scale * f64::from(quarter) / 4.0;
            let y = below - HISTOGRAM * f64::from(quarter) / 4.0;
            self.line(left, y, left + width, y, GRID);
            let label = format!("{} %", (share * 1e4).round() / 100.0);
            self.text(&label, left - 8.0, y + 5.0, Style::Right);
        }
        for (number, &count) in bins.iter().enumerate().filter(|(_, count)| 0 < **count) {
            let height = (count as f64 / all / scale * HISTOGRAM).max(1.0);
            let bin = width / BINS as f64;
            let x = left + (number as f64 - 0.5) * bin;
            self.bar(x, below - height, bin - 1.0, height, DELAYS);
        }
        self.line(left, below, left + width, below, INK);
        for (ms, label) in axis.labels() {
            let x = left + axis.position(ms) * width;
            self.line(x, below, x, below + 6.0, INK);
            self.text(&label, x, below + 22.0, Style::Centered);
        }
    }

    fn text(&mut self, content: &str, x: f64, y: f64, style: Style) {
        let (size, weight, anchor) = match style {
            Style::Title => (24, "bold", "start"),
            Style::Heading => (16, "bold", "start"),
            Style::Plain => (15, "normal", "start"),
            Style::Right => (15, "normal", "end"),
            Style::Centered => (15, "normal", "middle"),
        };
        let text = Text::new(content)
            .set("x", x)
            .set("y", y)
            .set("font-size", size)
            .set("font-weight", weight)
            .set("text-anchor", anchor)
            .set("fill", INK);
        self.add(text);
    }

    fn bar(&mut self, x: f64, y: f64, width: f64, height: f64, color: &str) {
        let bar = Rectangle::new()
            .set("x", x)
            .set("y", y)
            .set("width", width)
            .set("height", height)
            .set("fill", color);
        self.add(bar);
    }

    fn line(&mut self, x1: f64, y1: f64, x2: f64, y2: f64, color: &str) {
        let line = Line::new()
            .set("x1", x1)
            .set("y1", y1)
            .set("x2", x2)
            .set("y2", y2)
            .set("stroke", color);
        self.add(line);
    }

    fn add(&mut self, node: impl Node) {
        self.document.append(node);
    }

    fn finish(self) -> String {
        let height = self.bottom + MARGIN;
        let document = self
            .document
            .set("width", WIDTH)
            .set("height", height)
            .set("viewBox", (0, 0, WIDTH, height))
            .set("font-family", format!("{FONT}, DejaVu Sans, Verdana, sans-serif"));
        document.to_string()
    }
}

enum Style {
    Title,
    Heading,
    Plain,
    Right,
    Centered,
}

/// A logarithmic axis of time from one mark to another, in ms.
struct LogAxis {
    from: f64,
    to: f64,
}

impl LogAxis {
    /// From the last mark before `least` to the first after `most`.
    fn over(least: u64, most: u64) -> Self {
        let (least, most) = (least as f64, most as f64);
        let from = marks().take_while(|&mark| mark < least).last().unwrap_or(0.1);
        let to = marks().find(|&mark| most < mark).unwrap_or(f64::MAX);
        Self { from, to }
    }

    /// Where on the axis `ms` is: 0 at its start, 1 at its end.
    fn position(&self, ms: f64) -> f64 {
        (ms / self.from).ln() / (self.to / self.from).ln()
    }

    /// The marks with their labels, as many as there is room for.
    fn labels(&self) -> impl Iterator<Item = (f64, String)> {
        const MOST_LABELS: usize = 12;
        let shown = move || marks().filter(|mark| self.from <= *mark && *mark <= self.to);
        let every = shown().count().div_ceil(MOST_LABELS).max(1);
        shown().step_by(every).map(|mark| (mark, units::duration(mark * 1e6)))
    }
}

/// 100 us to 10^12 d, at numbers that are round for people, in ms.
fn marks() -> impl Iterator<Item = f64> {
    const SECOND: f64 = 1e3;
    const MINUTE: f64 = 60.0 * SECOND;
    const HOUR: f64 = 60.0 * MINUTE;
    const DAY: f64 = 24.0 * HOUR;
    let short = [0.1, 1.0, 10.0, 100.0, SECOND, 10.0 * SECOND, MINUTE, 10.0 * MINUTE, HOUR];
    let long = [6.0 * HOUR, DAY];
    let days = (1..=12).map(|power| DAY * 10f64.powi(power));
    short.into_iter().chain(long).chain(days)
}

fn color(figures: &Figures) -> &'static str {
    if figures.mode.is_hashed() { HASHED } else { HIERARCHICAL }
}

/// The name of a trace, cut in front if it is too long for a heading.
fn shortened(name: &str) -> String {
    const MOST_CHARS: usize = 40;
    match name.chars().count().checked_sub(MOST_CHARS) {
        Some(over) if 0 < over => format!("...{}", name.chars().skip(over).collect::<String>()),
        _ => name.into(),
    }
}

impl PlotError {
    fn new(reason: impl fmt::Display) -> Self {
        Self { reason: reason.to_string() }
    }
}

impl fmt::Display for PlotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl core::error::Error for PlotError {}

const FONT: &str = "Noto Sans";
const PAPER: &str = "#ffffff";
const INK: &str = "#222222";
const GRID: &str = "#dddddd";
const HIERARCHICAL: &str = "#3b6fb6";
const HASHED: &str = "#e08a2c";
const DELAYS: &str = "#5a9a68";

const WIDTH: f64 = 1000.0;
const MARGIN: f64 = 28.0;
/// Where the names of the modes end.
const LABELS: f64 = 230.0;
const CHART: f64 = 350.0;
const GAP: f64 = 30.0;
/// Room for the number behind the longest bar.
const VALUE: f64 = 90.0;
const ROW: f64 = 34.0;
/// Room for the numbers at the axis of shares.
const AXIS: f64 = 56.0;
/// Room for the last mark at the axis of time.
const LAST_MARK: f64 = 24.0;
const HISTOGRAM: f64 = 200.0;
/// Bins that the axis of time is as long as.
const BINS: usize = 60;
/// Where the axis of shares can end.
const SCALES: [f64; 6] = [0.04, 0.08, 0.2, 0.4, 0.6, 0.8];
/// Pixels of a PNG for each of the SVG.
const PIXELS: f32 = 2.0;
