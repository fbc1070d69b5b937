//! Charts: each a drawing in SVG with a title, a description, and its numbers in a table.

use crate::study::Delays;
use crate::units;
use horrorshow::{Raw, html};
use std::fmt::Write;

/// A chart with all that belongs to it.
pub(crate) struct Chart {
    /// A word that no other chart has.
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    /// What it shows, in a sentence or two.
    pub(crate) description: String,
    pub(crate) drawing: Drawing,
    pub(crate) table: Table,
}

pub(crate) enum Drawing {
    Columns(Columns),
    Bars(Bars),
    Ways(Vec<Way>),
}

/// Rows of numbers, the first of which is the heading.
pub(crate) type Table = Vec<Vec<String>>;

/// Columns beside each other, each a stack with a part of each series.
pub(crate) struct Columns {
    /// Each with its name.
    pub(crate) series: Vec<(String, Vec<f64>)>,
    /// Marks below the columns: where, from 0 to 1, and what.
    pub(crate) marks: Vec<(f64, String)>,
    pub(crate) value: fn(f64) -> String,
}

/// A bar with what stands above it, one part behind the other.
pub(crate) struct Bar {
    pub(crate) label: String,
    pub(crate) text: String,
    pub(crate) parts: Vec<f64>,
    /// From the least to the most.
    pub(crate) spread: Option<[f64; 2]>,
    /// Whether it is the one to look at.
    pub(crate) is_taken: bool,
}

/// The way of a timeout through a wheel.
pub(crate) struct Way {
    pub(crate) label: String,
    pub(crate) text: String,
    /// For each place: the number of its color, its name, and how long it is waited there.
    pub(crate) boxes: Vec<(usize, String, String)>,
}

/// Bars of the same scale.
pub(crate) struct Bars {
    pub(crate) bars: Vec<Bar>,
    /// The names of the parts.
    pub(crate) parts: Vec<String>,
}

impl Chart {
    pub(crate) fn render(&self) -> Raw<String> {
        let (svg, legend, height) = match &self.drawing {
            Drawing::Columns(columns) => (columns.draw(), columns.legend(), HEIGHT),
            Drawing::Bars(bars) => (bars.draw(), bars.legend(), bars.height()),
            Drawing::Ways(ways) => (draw_ways(ways), Vec::new(), WAY * ways.len() as f64),
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
                        @ for (number, name) in &legend {
                            li {
                                svg(aria-hidden="true", viewBox="0 0 24 12") {
                                    rect(class=format_args!("s{}", number % COLORS), x="6",
                                        width="12", height="12");
                                }
                                : *name;
                            }
                        }
                    }
                }
                figcaption : prose(&self.description);
                details {
                    summary : format_args!("Numbers: {}", self.title);
                    : numbers(&self.table, self.title);
                }
            }
        };
        Raw(figure.to_string())
    }
}

/// Text in which code stands between backticks.
pub(crate) fn prose(text: &str) -> Raw<String> {
    let prose = html! {
        @ for (number, part) in text.split('`').enumerate() {
            @ if number % 2 == 1 { code : part; }
            else { : part; }
        }
    };
    Raw(prose.to_string())
}

/// A table that scrolls by itself if it is too wide or too long.
pub(crate) fn numbers(table: &Table, name: &str) -> Raw<String> {
    let (head, rows) = table.split_at(1);
    let table = html! {
        div(class="scroll", role="region", tabindex="0", aria-label=format_args!("Table: {name}")) {
            table {
                thead { tr {
                    @ for head in &head[0] { th(scope="col") : head; }
                } }
                tbody {
                    @ for row in rows {
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

impl Columns {
    /// The color and the name of each series.
    fn legend(&self) -> Vec<(usize, &str)> {
        self.series.iter().map(|(name, _)| &**name).enumerate().collect()
    }

    pub(crate) fn draw(&self) -> String {
        let number = self.series.first().map_or(0, |(_, values)| values.len());
        let sums = (0..number).map(|at| self.series.iter().map(|(_, values)| values[at]).sum());
        let top = round_up(sums.fold(0.0, f64::max));
        let y = |value: f64| BOTTOM - value / top * (BOTTOM - TOP);
        let mut svg = String::new();
        for quarter in [0.0, 0.5, 1.0] {
            let (value, y) = (top * quarter, y(top * quarter));
            let _ = write!(svg, "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{RIGHT}\"/>");
            text(&mut svg, LEFT - 5.0, y + 4.0, "end", "mark", &(self.value)(value));
        }
        let width = (RIGHT - LEFT) / number.max(1) as f64;
        // A gap takes too much of a narrow column.
        let filled = if width < NARROW { width + 0.1 } else { 0.88 * width };
        let mut bases = vec![0.0; number];
        for (series_number, (_, values)) in self.series.iter().enumerate() {
            let mut path = String::new();
            let values = values.iter().enumerate().filter(|(_, value)| 0.0 < **value);
            for (at, value) in values {
                let base = &mut bases[at];
                let (x, from, to) = (LEFT + at as f64 * width, y(*base), y(*base + value));
                let _ = write!(path, "M{x:.1} {from:.1}V{to:.1}h{filled:.1}V{from:.1}z");
                *base += value;
            }
            let _ = write!(svg, "<path class=\"s{}\" d=\"{path}\"/>", series_number % COLORS);
        }
        for (at, mark) in &self.marks {
            let x = LEFT + at * (RIGHT - LEFT);
            text(&mut svg, x, BOTTOM + 18.0, anchor(x), "mark", mark);
        }
        svg
    }
}

impl Bars {
    /// The color and the name of each part that a bar has.
    fn legend(&self) -> Vec<(usize, &str)> {
        let is_there = |&(part, _): &(usize, &str)| {
            self.bars.iter().any(|bar| bar.parts.get(part).is_some_and(|&value| 0.0 < value))
        };
        self.parts.iter().map(|name| &**name).enumerate().filter(is_there).collect()
    }

    pub(crate) fn height(&self) -> f64 {
        ROW * self.bars.len() as f64
    }

    /// Draws bars below each other, each with its label above it.
    pub(crate) fn draw(&self) -> String {
        let sum = |bar: &Bar| bar.parts.iter().sum::<f64>();
        let end = |bar: &Bar| bar.spread.map_or(0.0, |[_, most]| most).max(sum(bar));
        let most = self.bars.iter().map(end).fold(0.0, f64::max);
        let x = |value: f64| if 0.0 < most { value / most * (WIDTH - 2.0) } else { 0.0 };
        let mut svg = String::new();
        for (number, bar) in self.bars.iter().enumerate() {
            let y = number as f64 * ROW;
            let class = if bar.is_taken { "taken" } else { "label" };
            if bar.is_taken {
                let (top, right) = (y - 2.0, WIDTH + 5.0);
                let _ = write!(svg, "<path class=\"frame\" d=\"M-5 {top}H{right}v{ROW}H-5z\"/>");
            }
            text(&mut svg, 0.0, y + 14.0, "start", class, &bar.label);
            text(&mut svg, WIDTH, y + 14.0, "end", class, &bar.text);
            let mut begin = 0.0;
            for (part, value) in bar.parts.iter().enumerate() {
                let (from, width) = (x(begin), x(*value));
                let _ = write!(
                    svg,
                    "<rect class=\"s{}\" x=\"{from:.1}\" y=\"{}\" width=\"{width:.1}\" \
                     height=\"16\"/>",
                    part % COLORS,
                    y + 20.0,
                );
                begin += value;
            }
            if let Some([least, most]) = bar.spread {
                let (least, most, middle) = (x(least), x(most), y + 28.0);
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
}

/// Draws ways below each other, each a row of boxes.
fn draw_ways(ways: &[Way]) -> String {
    let mut svg = String::new();
    for (number, way) in ways.iter().enumerate() {
        let y = number as f64 * WAY;
        text(&mut svg, 0.0, y + 14.0, "start", "taken", &way.label);
        text(&mut svg, WIDTH, y + 14.0, "end", "label", &way.text);
        let step = (WIDTH + BETWEEN_BOXES) / way.boxes.len().max(1) as f64;
        for (place, (color, name, time)) in way.boxes.iter().enumerate() {
            let (x, width) = (place as f64 * step, step - BETWEEN_BOXES);
            let middle = x + width / 2.0;
            let _ = write!(
                svg,
                "<rect class=\"s{}\" x=\"{x:.1}\" y=\"{}\" width=\"{width:.1}\" height=\"8\"/>",
                color % COLORS,
                y + 22.0,
            );
            text(&mut svg, middle, y + 46.0, "middle", "label", name);
            text(&mut svg, middle, y + 63.0, "middle", "label", time);
        }
    }
    svg
}

pub(crate) fn text(svg: &mut String, x: f64, y: f64, anchor: &str, class: &str, text: &str) {
    let written = html! {
        text(x=format_args!("{x:.1}"), y=format_args!("{y:.1}"), text-anchor=anchor, class=class)
            : text;
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

/// A chart of how delays are distributed, or a sentence if they are all alike.
pub(crate) fn delays(delays: &Delays) -> Result<Chart, String> {
    let (least, most) = match (delays.quantile(0.0), delays.quantile(1.0)) {
        (Some(least), Some(most)) if least < most => (least, most),
        (Some(all), _) => {
            return Err(format!("All delays in the trace are {}.", units::milliseconds(all)));
        }
        (None, _) => return Err("Nothing is scheduled in the trace.".into()),
    };
    const BINS_A_POWER: f64 = 4.0;
    let bin = |ms: u64| ((ms.max(1) as f64).log10() * BINS_A_POWER).floor() as usize;
    let (first, last) = (bin(least), bin(most));
    let mut counts = vec![0; last - first + 1];
    for (delay_ms, count) in delays.iter() {
        counts[bin(delay_ms).clamp(first, last) - first] += count;
    }
    let bins = counts.len() as f64;
    let start_ms = |bin: usize| 10f64.powf((first + bin) as f64 / BINS_A_POWER);
    let place = |ms: f64| (ms.log10() * BINS_A_POWER - first as f64) / bins;
    let marks: Vec<_> = units::marks()
        .map(|ns| (place(ns / 1e6), units::duration(ns)))
        .filter(|(at, _)| (0.0..=1.0).contains(at))
        .collect();
    let every = marks.len().div_ceil(MOST_MARKS).max(1);
    let rows = counts.iter().enumerate().filter(|(_, count)| 0 < **count).map(|(bin, count)| {
        let end_ns = start_ms(bin + 1) * 1e6;
        let range = match first + bin {
            0 => format!("0-{}", units::duration(end_ns)),
            _ => units::range(start_ms(bin) * 1e6, end_ns),
        };
        vec![range, units::number(*count)]
    });
    let table = table(&["length", "delays"], rows);
    let all = delays.len().max(1) as f64;
    let shares = counts.iter().map(|&count| count as f64 / all);
    Ok(Chart {
        id: "delays",
        title: "Delays",
        description: format!(
            "The share of all delays by length, on a logarithmic axis. {}.",
            delays
        ),
        drawing: Drawing::Columns(Columns {
            series: vec![("delays".into(), shares.collect())],
            marks: marks.into_iter().step_by(every).collect(),
            value: percent,
        }),
        table,
    })
}

/// A table of these columns.
pub(crate) fn table(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> Table {
    let head = head.iter().map(|&head| head.into()).collect();
    [head].into_iter().chain(rows).collect()
}

/// A share in percent, to three digits.
pub(crate) fn percent(share: f64) -> String {
    match share * 100.0 {
        percent if percent != 0.0 && percent < 1.0 => format!("{} %", units::three_digits(percent)),
        percent => format!("{} %", (percent * 10.0).round() / 10.0),
    }
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

pub(crate) const WIDTH: f64 = 340.0;
pub(crate) const HEIGHT: f64 = 200.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = 332.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 172.0;
/// A way with its label.
const WAY: f64 = 80.0;
const BETWEEN_BOXES: f64 = 6.0;
/// A bar with its label.
const ROW: f64 = 46.0;
/// The colors that the style knows.
pub(crate) const COLORS: usize = 8;
/// A column that is narrower has no gap beside it.
const NARROW: f64 = 5.0;
/// As many marks have room below columns.
const MOST_MARKS: usize = 4;
