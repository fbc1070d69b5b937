//! The tables and the picture.

use crate::measure::Figure;
use crate::{ROUTINES, SUBJECTS};
use plotters::coord::Shift;
use plotters::prelude::*;
use std::error::Error;
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// Figures by subject, size and routine.
type Figures = [Vec<[Figure; 3]>];

/// A table per routine, with every other size: the picture has them all.
pub(crate) fn tables(sizes: &[u32], figures: &Figures) -> String {
    let mut page = String::new();
    for (routine, name) in ROUTINES.iter().enumerate() {
        let heads: Vec<_> = sizes.iter().step_by(2).map(|&size| count(size.into())).collect();
        let _ = writeln!(page, "### {name}\n\n| mean, worst | paper | {} |", heads.join(" | "));
        let _ = writeln!(page, "|---|---|{}", "---|".repeat(heads.len()));
        for (subject, figures) in SUBJECTS.iter().zip(figures) {
            let cell = |figures: &[Figure; 3]| {
                let Figure { mean, worst } = figures[routine];
                format!("{}, {}", duration(mean), duration(worst))
            };
            let cells: Vec<_> = figures.iter().step_by(2).map(cell).collect();
            let (name, paper) = (subject.name, subject.paper[routine]);
            let _ = writeln!(page, "| {name} | {paper} | {} |", cells.join(" | "));
        }
        page.push('\n');
    }
    page
}

/// Writes the tables into docs/classical.md, in the place of those that are there, and the picture
/// beside it.
pub(crate) fn write(tables: &str, picture: &str) -> Result<(), Box<dyn Error>> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let path = docs.join("classical.md");
    let document = fs::read_to_string(&path)?;
    let (before, rest) = document.split_once(BEGIN).ok_or("classical.md has no first mark")?;
    let (_, after) = rest.split_once(END).ok_or("classical.md has no last mark")?;
    fs::write(path, format!("{before}{BEGIN}\n\n{}\n\n{END}{after}", tables.trim()))?;
    fs::write(docs.join("classical.svg"), picture)?;
    Ok(())
}

/// The means above, the worst below, a column per routine, and both axes by powers of ten.
pub(crate) fn picture(sizes: &[u32], figures: &Figures) -> Result<String, Box<dyn Error>> {
    let mut picture = String::new();
    {
        let root = SVGBackend::with_string(&mut picture, (1200, 860)).into_drawing_area();
        root.fill(&WHITE)?;
        let (panels, names) = root.split_vertically(780);
        for (panel, area) in panels.split_evenly((2, 3)).into_iter().enumerate() {
            let (is_worst, routine) = (panel / 3 == 1, panel % 3);
            let title = format!("{}: {}", ROUTINES[routine], ["mean", "worst"][panel / 3]);
            let of = |figures: &[Figure; 3]| {
                let Figure { mean, worst } = figures[routine];
                if is_worst { worst } else { mean }
            };
            let lines = figures.iter().map(|row| row.iter().map(of).collect()).collect();
            draw(&area, &title, sizes, lines)?;
        }
        for (number, (subject, color)) in SUBJECTS.iter().zip(COLORS).enumerate() {
            let (x, y) = (40 + number as i32 % 4 * 290, 16 + number as i32 / 4 * 26);
            names.draw(&PathElement::new([(x, y), (x + 26, y)], style(number, color)))?;
            names.draw(&Text::new(subject.name, (x + 34, y - 8), (FONT, 15)))?;
        }
        root.present()?;
    }
    Ok(picture)
}

fn draw(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    title: &str,
    sizes: &[u32],
    lines: Vec<Vec<f64>>,
) -> Result<(), Box<dyn Error>> {
    let sizes = || sizes.iter().map(|&size| f64::from(size));
    let (fewest, most) = (sizes().fold(f64::MAX, f64::min), sizes().fold(0.0, f64::max));
    let mut chart = ChartBuilder::on(area)
        .caption(title, (FONT, 17))
        .margin(10)
        .x_label_area_size(34)
        .y_label_area_size(56)
        // The same in all panels, so that they compare.
        .build_cartesian_2d((fewest..most).log_scale(), (LEAST..1e9).log_scale())?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(WHITE)
        .x_label_formatter(&|size| count(*size))
        .y_label_formatter(&|cost| duration(*cost))
        .x_desc("timers")
        .label_style((FONT, 13))
        .draw()?;
    // What grows in proportion runs beside these.
    for from in [1.0, 1e2, 1e4] {
        let line = sizes().map(|size| (size, from * size / fewest));
        chart.draw_series(LineSeries::new(line, RGBColor(215, 215, 215)))?;
    }
    for (number, (costs, color)) in lines.into_iter().zip(COLORS).enumerate() {
        let points = || sizes().zip(costs.iter().map(|cost| cost.max(LEAST)));
        chart.draw_series(LineSeries::new(points(), style(number, color)))?;
        chart.draw_series(points().map(|at| Circle::new(at, 3, color.filled())))?;
    }
    Ok(())
}

/// tickwheel's lines are the thick ones.
fn style(subject: usize, color: RGBColor) -> ShapeStyle {
    color.stroke_width(if SUBJECTS[subject].name.starts_with("tickwheel") { 4 } else { 2 })
}

/// Nanoseconds, in the unit that suits them.
fn duration(nanoseconds: f64) -> String {
    let units = [("s", 1e9), ("ms", 1e6), ("us", 1e3)];
    let suits = units.into_iter().find(|(_, length)| *length <= nanoseconds);
    let (unit, length) = suits.unwrap_or(("ns", 1.0));
    let number = nanoseconds / length;
    let places = usize::from(number < 10.0 && number.fract() != 0.0);
    format!("{number:.places$} {unit}")
}

fn count(count: f64) -> String {
    match count {
        1e6.. => format!("{} M", count / 1e6),
        1e3.. => format!("{} k", count / 1e3),
        _ => count.to_string(),
    }
}

const BEGIN: &str = "<!-- Written by the benchmark, from here on. -->";
const END: &str = "<!-- Written by the benchmark, up to here. -->";

const FONT: &str = "Noto Sans, sans-serif";

/// The foot of the picture: the clock can tell no less.
const LEAST: f64 = 1.0;

/// In the order of the subjects: ours are reddish.
const COLORS: [RGBColor; 8] = [
    RGBColor(0x77, 0x77, 0x77),
    RGBColor(0x6b, 0x4a, 0x3a),
    RGBColor(0x2a, 0x93, 0x6a),
    RGBColor(0x00, 0x94, 0xa8),
    RGBColor(0x1f, 0x5f, 0xb4),
    RGBColor(0x7a, 0x4f, 0xa3),
    RGBColor(0xe0, 0x7b, 0x39),
    RGBColor(0xd0, 0x1c, 0x1f),
];
