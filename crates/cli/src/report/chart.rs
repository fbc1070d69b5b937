//! Charts: each a drawing in SVG with a title, a description, and its numbers in a table.

use horrorshow::{Raw, html};
use std::fmt::Write;

/// A chart with all that belongs to it.
pub(super) struct Chart {
    /// A word that no other chart has.
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    /// What it shows, in a sentence or two.
    pub(super) description: String,
    pub(super) drawing: Drawing,
    pub(super) table: Table,
}

pub(super) enum Drawing {
    Columns(Columns),
    Bars(Vec<Bar>),
    Lines(Lines),
}

/// Numbers, with a heading for each column.
pub(super) struct Table {
    pub(super) head: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
}

/// Columns beside each other, each a stack with a part of each series.
pub(super) struct Columns {
    pub(super) series: Vec<Series>,
    /// Marks below the columns: where, from 0 to 1, and what.
    pub(super) marks: Vec<(f64, String)>,
    pub(super) value: fn(f64) -> String,
}

/// Values with a name.
pub(super) struct Series {
    pub(super) name: String,
    pub(super) values: Vec<f64>,
}

/// A bar with what stands above it.
pub(super) struct Bar {
    pub(super) label: String,
    pub(super) text: String,
    pub(super) value: f64,
    /// From the least to the most.
    pub(super) spread: Option<[f64; 2]>,
    pub(super) is_hashed: bool,
}

/// Lines over the same marks, on a logarithmic axis.
pub(super) struct Lines {
    pub(super) series: Vec<Series>,
    pub(super) marks: Vec<String>,
    pub(super) value: fn(f64) -> String,
}

impl Chart {
    pub(super) fn render(&self) -> Raw<String> {
        let (svg, legend) = match &self.drawing {
            Drawing::Columns(columns) => (columns.draw(), names(&columns.series)),
            Drawing::Bars(bars) => (draw_bars(bars), Vec::new()),
            Drawing::Lines(lines) => (lines.draw(), names(&lines.series)),
        };
        let height = match &self.drawing {
            Drawing::Bars(bars) => ROW * bars.len() as f64,
            _ => HEIGHT,
        };
        let sample = match self.drawing {
            Drawing::Lines(_) => sample_line,
            _ => sample,
        };
        let figure = html! {
            figure(id=self.id) {
                h3 : self.title;
                svg(role="img", viewBox=format_args!("0 0 {WIDTH} {height}"),
                    aria-labelledby=format_args!("{0}-title {0}-text", self.id)) {
                    title(id=format_args!("{}-title", self.id)) : self.title;
                    desc(id=format_args!("{}-text", self.id)) : &self.description;
                    : Raw(&svg);
                }
                @ if 1 < legend.len() {
                    ul(class="legend") {
                        @ for (number, name) in legend.iter().enumerate() {
                            li {
                                svg(aria-hidden="true", viewBox="0 0 24 12") {
                                    : Raw(sample(number));
                                }
                                : name;
                            }
                        }
                    }
                }
                figcaption : prose(&self.description);
                details {
                    summary : format_args!("Numbers: {}", self.title);
                    : self.table.render(self.title);
                }
            }
        };
        Raw(figure.to_string())
    }
}

/// Text in which code stands between backticks.
pub(super) fn prose(text: &str) -> Raw<String> {
    let prose = html! {
        @ for (number, part) in text.split('`').enumerate() {
            @ if number % 2 == 1 { code : part; }
            else { : part; }
        }
    };
    Raw(prose.to_string())
}

impl Table {
    /// A table that scrolls by itself if it is too wide or too long.
    pub(super) fn render(&self, name: &str) -> Raw<String> {
        let table = html! {
            div(class="scroll", role="region", tabindex="0",
                aria-label=format_args!("Table: {name}")) {
                table {
                    thead { tr {
                        @ for head in &self.head { th(scope="col") : head; }
                    } }
                    tbody {
                        @ for row in &self.rows {
                            tr {
                                @ for (number, cell) in row.iter().enumerate() {
                                    @ if number == 0 { th(scope="row") : cell; }
                                    else { td : cell; }
                                }
                            }
                        }
                    }
                }
            }
        };
        Raw(table.to_string())
    }
}

impl Columns {
    fn draw(&self) -> String {
        let number = self.series.iter().map(|series| series.values.len()).max().unwrap_or(0);
        let value = |series: &Series, at: usize| series.values.get(at).copied().unwrap_or(0.0);
        let sums = (0..number).map(|at| self.series.iter().map(|series| value(series, at)).sum());
        let top = round_up(sums.fold(0.0, f64::max));
        let y = |value: f64| BOTTOM - value / top * (BOTTOM - TOP);
        let mut svg = String::new();
        for quarter in [0.0, 0.5, 1.0] {
            let text = (self.value)(top * quarter);
            grid_line(&mut svg, y(top * quarter), &text);
        }
        let width = (RIGHT - LEFT) / number.max(1) as f64;
        // A gap takes too much of a narrow column.
        let filled = if width < NARROW { width + 0.1 } else { 0.88 * width };
        let mut bases = vec![0.0; number];
        for (series_number, series) in self.series.iter().enumerate() {
            let mut path = String::new();
            for (at, base) in bases.iter_mut().enumerate().filter(|_| top > 0.0) {
                let value = value(series, at);
                if value <= 0.0 {
                    continue;
                }
                let (x, from, to) = (LEFT + at as f64 * width, y(*base), y(*base + value));
                let _ = write!(path, "M{x:.1} {from:.1}V{to:.1}h{filled:.1}V{from:.1}z");
                *base += value;
            }
            let _ = write!(svg, "<path class=\"s{}\" d=\"{path}\"/>", series_number % COLORS);
        }
        for (at, mark) in &self.marks {
            let x = LEFT + at * (RIGHT - LEFT);
            text(&mut svg, x, BOTTOM + 18.0, anchor(x), mark);
        }
        svg
    }
}

/// Draws bars below each other, each with its label above it.
fn draw_bars(bars: &[Bar]) -> String {
    let ends = bars.iter().map(|bar| bar.spread.map_or(bar.value, |[_, most]| most));
    let most = ends.fold(0.0, f64::max);
    let x = |value: f64| if 0.0 < most { value / most * (WIDTH - 2.0) } else { 0.0 };
    let mut svg = String::new();
    for (number, bar) in bars.iter().enumerate() {
        let y = number as f64 * ROW;
        text(&mut svg, 0.0, y + 14.0, "start", &bar.label);
        text(&mut svg, WIDTH, y + 14.0, "end", &bar.text);
        let class = if bar.is_hashed { "s1" } else { "s0" };
        let (width, y, middle) = (x(bar.value), y + 20.0, y + 28.0);
        let _ = write!(
            svg,
            "<rect class=\"{class}\" x=\"0\" y=\"{y}\" width=\"{width:.1}\" height=\"16\"/>"
        );
        if let Some([least, most]) = bar.spread {
            let (least, most) = (x(least), x(most));
            let _ = write!(
                svg,
                "<path class=\"spread\" d=\"M{least:.1} {middle}H{most:.1}M{least:.1} {0}v10\
                 M{most:.1} {0}v10\"/>",
                middle - 5.0,
            );
        }
    }
    svg
}

impl Lines {
    fn draw(&self) -> String {
        let values = || self.series.iter().flat_map(|series| &series.values).copied();
        let least = power_of_ten(values().fold(f64::INFINITY, f64::min).clamp(1.0, 1e18)).floor();
        let most = power_of_ten(values().fold(1.0, f64::max)).ceil().max(least + 1.0);
        let y = |value: f64| {
            BOTTOM - (power_of_ten(value.max(1.0)) - least) / (most - least) * (BOTTOM - TOP)
        };
        let step = ((most - least) / 6.0).ceil();
        let mut svg = String::new();
        let mut power = least;
        while power <= most {
            let value = 10f64.powf(power);
            grid_line(&mut svg, y(value), &(self.value)(value));
            power += step;
        }
        let last = self.marks.len().saturating_sub(1).max(1) as f64;
        let x = |at: usize| LEFT + 10.0 + at as f64 / last * (RIGHT - LEFT - 20.0);
        for (number, series) in self.series.iter().enumerate() {
            let points = series.values.iter().enumerate();
            let points: Vec<_> = points.map(|(at, &value)| (x(at), y(value))).collect();
            line(&mut svg, number, &points);
        }
        let every = self.marks.len().div_ceil(MOST_MARKS).max(1);
        // The last mark is always there.
        for (at, mark) in self.marks.iter().enumerate().rev().step_by(every) {
            let x = if at == self.marks.len() - 1 { RIGHT } else { x(at) };
            text(&mut svg, x, BOTTOM + 18.0, anchor(x), mark);
        }
        svg
    }
}

/// A line with a point at each value; lines differ in their dashes and points, too.
fn line(svg: &mut String, number: usize, points: &[(f64, f64)]) {
    let kind = number % COLORS;
    let path: String = points
        .iter()
        .enumerate()
        .map(|(at, (x, y))| format!("{}{x:.1} {y:.1}", if at == 0 { 'M' } else { 'L' }))
        .collect();
    let _ = write!(svg, "<path class=\"line l{kind}\" d=\"{path}\"/>");
    for (x, y) in points {
        let _ = match kind % 3 {
            0 => write!(svg, "<circle class=\"s{kind}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"/>"),
            1 => write!(
                svg,
                "<rect class=\"s{kind}\" x=\"{:.1}\" y=\"{:.1}\" width=\"8\" height=\"8\"/>",
                x - 4.0,
                y - 4.0
            ),
            _ => write!(svg, "<path class=\"s{kind}\" d=\"M{x:.1} {:.1}l5 9h-10z\"/>", y - 5.0),
        };
    }
}

fn sample(number: usize) -> String {
    format!("<rect class=\"s{}\" x=\"6\" width=\"12\" height=\"12\"/>", number % COLORS)
}

fn sample_line(number: usize) -> String {
    let mut svg = String::new();
    line(&mut svg, number, &[(12.0, 6.0)]);
    let _ = write!(svg, "<path class=\"line l{}\" d=\"M0 6H24\"/>", number % COLORS);
    svg
}

fn grid_line(svg: &mut String, y: f64, label: &str) {
    let _ = write!(svg, "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{RIGHT}\"/>");
    text(svg, LEFT - 5.0, y + 4.0, "end", label);
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, text: &str) {
    let written = html! {
        text(x=format_args!("{x:.1}"), y=format_args!("{y:.1}"), text-anchor=anchor) : text;
    };
    let _ = write!(svg, "{written}");
}

/// Where a mark below a chart stands, so that it is not cut.
fn anchor(x: f64) -> &'static str {
    const MARGIN: f64 = 0.05 * (RIGHT - LEFT);
    match x {
        _ if x <= LEFT + MARGIN => "start",
        _ if RIGHT - MARGIN <= x => "end",
        _ => "middle",
    }
}

fn names(series: &[Series]) -> Vec<String> {
    series.iter().map(|series| series.name.clone()).collect()
}

/// The next number from `number` on that is 1, 2, 4 or 6 of a power of ten, which halve well.
fn round_up(number: f64) -> f64 {
    if number <= 0.0 {
        return 1.0;
    }
    let power = 10f64.powf(number.log10().floor());
    let digits = [1.0, 2.0, 4.0, 6.0, 10.0].into_iter();
    digits.map(|digit| digit * power).find(|&round| number <= round).unwrap_or(number)
}

fn power_of_ten(number: f64) -> f64 {
    number.log10()
}

const WIDTH: f64 = 340.0;
const HEIGHT: f64 = 200.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = 332.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 172.0;
/// A bar with its label.
const ROW: f64 = 46.0;
/// The colors that the style knows.
pub(super) const COLORS: usize = 8;
/// A column that is narrower has no gap beside it.
const NARROW: f64 = 5.0;
/// As many marks have room below lines.
const MOST_MARKS: usize = 4;
