//! Draws a study as a picture of its own: SVG, from which the PNG is made.

use crate::chart::{self, Bar, Bars, Drawing};
use crate::study::Study;
use crate::units;
#[cfg(feature = "png")]
use std::error::Error;
use std::fmt::Write;

/// Draws `study`: its verdict; the score, the wake-ups and the memory of each mode; and how the
/// delays of the trace are distributed, if they are not all alike.
///
/// The text stays text, in Noto Sans or in the next best font that the viewer has.
#[must_use]
pub fn svg(study: &Study) -> String {
    let mut svg = String::new();
    let mut y = heading(study, &mut svg);
    let whole = |bar: Bar| Bar { spread: None, parts: vec![bar.parts.iter().sum()], ..bar };
    let charts = [
        study.scores().into_iter().map(|(_, bar)| whole(bar)).collect(),
        study.counts(|it| it.wakeups, units::number),
        study.counts(|it| it.memory_bytes, units::memory),
    ]
    .map(|bars| Bars { bars, parts: Vec::new() });
    let titles = ["Score", "Wake-ups", "Most memory"];
    for (number, (title, bars)) in titles.iter().zip(&charts).enumerate() {
        let x = MARGIN + number as f64 * (chart::WIDTH + GAP);
        chart::text(&mut svg, x, y + 20.0, "start", "title", title);
        place(&mut svg, (x, y + 30.0), bars.height(), &bars.draw());
    }
    y += 50.0 + charts.iter().map(Bars::height).fold(0.0, f64::max);
    match chart::delays(&study.delays) {
        Ok(delays) => {
            chart::text(&mut svg, MARGIN, y + 20.0, "start", "title", "Delays, share of all");
            let at = WIDTH - MARGIN;
            chart::text(&mut svg, at, y + 20.0, "end", "mark", &study.delays.to_string());
            if let Drawing::Columns(columns) = &delays.drawing {
                place(&mut svg, (MARGIN, y + 30.0), chart::HEIGHT, &columns.draw());
            }
            y += 40.0 + chart::HEIGHT;
        }
        Err(sentence) => {
            chart::text(&mut svg, MARGIN, y + 20.0, "start", "title", &sentence);
            y += 40.0;
        }
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{y}\" \
         viewBox=\"0 0 {WIDTH} {y}\"><style>{STYLE}</style>\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>{svg}</svg>\n"
    )
}

/// Draws `study` as PNG: what [`svg()`] draws, twice its size in pixels, with a font of its own.
///
/// # Errors
///
/// An error if the picture would be too large, as with thousands of modes.
#[cfg(feature = "png")]
pub fn png(study: &Study) -> Result<Vec<u8>, Box<dyn Error>> {
    use resvg::{tiny_skia, usvg};
    const FONT: &str = "Noto Sans";
    const PIXELS: f32 = 2.0;
    let mut options = usvg::Options { font_family: FONT.into(), ..usvg::Options::default() };
    for font in [notosans::REGULAR_TTF, notosans::BOLD_TTF] {
        options.fontdb_mut().load_font_data(font.to_vec());
    }
    options.fontdb_mut().set_sans_serif_family(FONT);
    let tree = usvg::Tree::from_str(&svg(study), &options)?;
    let size = tree.size().to_int_size().scale_by(PIXELS);
    let canvas = size.and_then(|size| tiny_skia::Pixmap::new(size.width(), size.height()));
    let mut canvas = canvas.ok_or("the picture would be too large")?;
    let scale = tiny_skia::Transform::from_scale(PIXELS, PIXELS);
    resvg::render(&tree, scale, &mut canvas.as_mut());
    Ok(canvas.encode_png()?)
}

/// Draws what stands above the charts, and returns where it ends.
fn heading(study: &Study, svg: &mut String) -> f64 {
    let pending = study.candidates.iter().map(|it| it.figures.peak_live).max().unwrap_or(0);
    let summary = format!(
        "{}, at most {} pending",
        study.extent().replacen("the", "The", 1),
        units::count(pending, "timeout"),
    );
    chart::text(svg, MARGIN, 46.0, "start", "name", &shortened(&study.trace));
    chart::text(svg, MARGIN, 74.0, "start", "mark", &summary);
    let mut y = 82.0;
    for line in wrapped(&study.verdict()) {
        y += LINE;
        chart::text(svg, MARGIN, y, "start", "verdict", &line);
    }
    y + LINE
}

/// Puts a drawing somewhere.
fn place(svg: &mut String, (x, y): (f64, f64), height: f64, drawing: &str) {
    let width = chart::WIDTH;
    let _ = write!(
        svg,
        "<svg x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" \
         overflow=\"visible\">{drawing}</svg>"
    );
}

/// The name of a trace, cut in front if it is too long for a heading.
fn shortened(name: &str) -> String {
    match name.chars().count().checked_sub(MOST_NAME) {
        Some(over) if 0 < over => format!("...{}", name.chars().skip(over).collect::<String>()),
        _ => name.into(),
    }
}

/// The text in lines that are not longer than the picture is wide.
fn wrapped(text: &str) -> Vec<String> {
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

const STYLE: &str = "\
text{font:13px \"Noto Sans\",\"DejaVu Sans\",Verdana,sans-serif;fill:#222}\
.name{font-size:30px;font-weight:bold}.title{font-size:18px;font-weight:bold}\
.verdict{font-size:17px}.taken{font-weight:bold}.grid{stroke:#ddd}.s0{fill:#2a5fa8}\
.frame{fill:none;stroke:#222;stroke-width:1.5}";

const WIDTH: f64 = 2.0 * MARGIN + 3.0 * chart::WIDTH + 2.0 * GAP;
const MARGIN: f64 = 28.0;
const GAP: f64 = 40.0;
/// A line of the verdict.
const LINE: f64 = 24.0;
const MOST_CHARS: usize = 130;
const MOST_NAME: usize = 40;
