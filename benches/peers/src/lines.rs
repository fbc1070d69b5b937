//! Drawings of lines, each with its name beside its end, for light and for dark pages.

use std::fmt::Write;

/// A drawing in SVG.
#[derive(Debug)]
pub(crate) struct Drawing {
    pub(crate) title: String,
    pub(crate) lines: Vec<Line>,
    /// What the axis to the right says, and the values with a mark.
    pub(crate) across: &'static str,
    pub(crate) columns: Vec<(f64, String)>,
    /// The values with a mark on the axis upwards.
    pub(crate) rows: Vec<(f64, String)>,
    /// Where a value of that axis stands; the other one is logarithmic.
    pub(crate) scale: fn(f64) -> f64,
    pub(crate) width: f64,
    pub(crate) height: f64,
    /// How wide the names beside the lines are.
    pub(crate) names: f64,
}

/// A line with at least one point.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) color: u32,
    pub(crate) style: Style,
    pub(crate) points: Vec<(f64, f64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    Thick,
    Thin,
    Dashed,
}

impl Drawing {
    pub(crate) fn svg(&self) -> String {
        let (right, bottom) = (self.width - self.names, self.height - FOOT);
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let x = between(points().map(|point| point.0.ln()), LEFT, right);
        let marked = self.rows.iter().map(|row| row.0);
        let y = between(points().map(|point| point.1).chain(marked).map(self.scale), bottom, HEAD);
        let at = |&(across, up): &(f64, f64)| (x(across.ln()), y((self.scale)(up)));

        let mut svg = String::new();
        text(&mut svg, (MARGIN, 24.0), "start", "title", &self.title);
        for (value, mark) in &self.rows {
            let y = y((self.scale)(*value));
            let _ = writeln!(svg, "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{right}\"/>");
            text(&mut svg, (LEFT - 8.0, y + 5.0), "end", "mark", mark);
        }
        for (value, mark) in &self.columns {
            text(&mut svg, (x(value.ln()), bottom + 22.0), "middle", "mark", mark);
        }
        let middle = f64::midpoint(LEFT, right);
        text(&mut svg, (middle, self.height - 8.0), "middle", "mark", self.across);
        let mut ends: Vec<_> = self.lines.iter().map(|line| (line, at(line.end()))).collect();
        ends.sort_by(|one, other| one.1.1.total_cmp(&other.1.1));
        let places = apart(ends.iter().map(|(_, end)| end.1).collect(), bottom);
        for ((line, (x, y)), place) in ends.into_iter().zip(places) {
            let color = line.color;
            let points: Vec<_> = line.points.iter().map(at).collect();
            let path = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect::<Vec<_>>();
            let style = match line.style {
                Style::Thick => "stroke-width=\"4\"",
                Style::Thin => "stroke-width=\"2\"",
                Style::Dashed => "stroke-width=\"2\" stroke-dasharray=\"5 4\"",
            };
            let path = path.join(" ");
            let _ = writeln!(
                svg,
                "<g fill=\"none\" stroke=\"#{color:06x}\"><polyline {style} points=\"{path}\"/>\
                 <path opacity=\".5\" d=\"M{x:.1} {y:.1}L{:.1} {place:.1}\"/></g>",
                right + TO_NAME - 3.0
            );
            for (x, y) in points {
                let _ = writeln!(
                    svg,
                    "<circle fill=\"#{color:06x}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"/>"
                );
            }
            let class = if line.style == Style::Thick { "ours" } else { "name" };
            text(&mut svg, (right + TO_NAME, place + 5.0), "start", class, &line.name);
        }
        let Self { width, height, title, .. } = self;
        let shown = width * SHOWN;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" aria-label=\"{title}\" \
             width=\"{shown:.0}\" viewBox=\"0 0 {width} {height}\">\n\
             <style>{STYLE}</style>\n<rect class=\"page\" width=\"100%\" height=\"100%\"/>\n{svg}\
             </svg>\n"
        )
    }
}

impl Line {
    /// The last point.
    pub(crate) fn end(&self) -> &(f64, f64) {
        self.points.last().expect("a line has a point")
    }
}

/// Returns where a value stands, if the least of `values` stands at `from` and the most at `to`.
fn between(values: impl Iterator<Item = f64>, from: f64, to: f64) -> impl Fn(f64) -> f64 {
    let (least, most) =
        values.fold((f64::MAX, f64::MIN), |(least, most), it| (least.min(it), most.max(it)));
    move |value| from + (value - least) / (most - least) * (to - from)
}

/// Moves rising `places` as far apart as a name is high, and no lower than `bottom`.
fn apart(mut places: Vec<f64>, bottom: f64) -> Vec<f64> {
    for at in 1..places.len() {
        places[at] = places[at].max(places[at - 1] + NAME);
    }
    let mut most = bottom;
    for place in places.iter_mut().rev() {
        *place = place.min(most);
        most = *place - NAME;
    }
    places
}

fn text(svg: &mut String, (x, y): (f64, f64), anchor: &str, class: &str, text: &str) {
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" class=\"{class}\">{text}</text>"
    );
}

/// As the reader's system is set, which may differ from the page around the drawing. So the drawing
/// has a ground of its own, and the colors of the lines are seen on both.
const STYLE: &str = "\
text{font:15px system-ui,\"Noto Sans\",\"DejaVu Sans\",sans-serif;fill:#1f2328}\
.title,.ours{font-weight:600}.title{font-size:16px}.mark{font-size:14px;fill:#59636e}\
.grid{stroke:#8c959f;opacity:.4}.page{fill:#fff}\
@media(prefers-color-scheme:dark){text{fill:#f0f6fc}.mark{fill:#9198a1}.page{fill:#0d1117}}";

/// How large it is shown, where there is room.
const SHOWN: f64 = 1.3;
const MARGIN: f64 = 10.0;
const LEFT: f64 = 66.0;
const HEAD: f64 = 44.0;
const FOOT: f64 = 48.0;
/// From the end of the axis to the names.
const TO_NAME: f64 = 20.0;
/// How high a name is.
const NAME: f64 = 18.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_apart_and_above_the_axis() {
        assert_eq!(apart(vec![10.0, 11.0, 80.0], 100.0), [10.0, 28.0, 80.0]);
        assert_eq!(apart(vec![80.0, 99.0, 100.0], 100.0), [64.0, 82.0, 100.0]);
    }
}
