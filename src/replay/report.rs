//! `Report`: what a replay found, as a table with a verdict and as JSON.

use super::run::Figures;
use super::tick::Tick;
use super::units;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use core::fmt;
use hdrhistogram::Histogram;
use indicatif::HumanCount;
use std::io;

/// What a replay found out.
///
/// As text it is a table for people, with a sentence on which mode suits the trace.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// The name of the trace: of a file, without its folder.
    pub trace: String,
    /// The length of a tick.
    pub tick: Tick,
    /// Operations in the trace.
    pub operations: u64,
    /// From the first operation to the last, in ms.
    pub span_ms: u64,
    /// The delays in the trace.
    pub delays: Delays,
    /// What each mode did and cost, in the order in which the modes were asked for.
    pub figures: Vec<Figures>,
}

/// How the delays of a trace are distributed, in ms, to three digits.
#[derive(Clone)]
pub struct Delays {
    histogram: Histogram<u64>,
    least: u64,
    most: u64,
}

impl Report {
    /// Writes one JSON object a mode, one a line.
    ///
    /// # Errors
    ///
    /// What writing to `output` returns.
    pub fn write_json(&self, output: &mut impl io::Write) -> io::Result<()> {
        for figures in &self.figures {
            serde_json::to_writer(&mut *output, figures)?;
            writeln!(output)?;
        }
        Ok(())
    }

    /// One sentence on which mode suits the trace, and why.
    ///
    /// The cheapest one does. Costs within a quarter of the least count as the same, as runs of the
    /// same mode can differ by that on a busy machine; among these a longest call of a quarter the length decides,
    /// then memory, if it is a quarter more for the others.
    #[must_use]
    pub fn verdict(&self) -> String {
        let Some(best) = least(&self.figures, |figures| figures.ns_per_op) else {
            return "No mode was run.".into();
        };
        if self.figures.len() == 1 {
            return format!("Only {} was run: there is nothing to compare it with.", best.mode);
        }
        if self.operations < FEWEST_OPERATIONS {
            let operations = units::operations(self.operations);
            return format!("Only {operations} in the trace: too few to tell the modes apart.");
        }
        let (same, dearer) = within(&self.figures, SAME_COST, |figures| figures.ns_per_op);
        match least(dearer, |figures| figures.ns_per_op) {
            Some(next) if same.len() == 1 => format!(
                "{} suits this trace best: {} an operation, against {} for {}{}{}.",
                best.mode,
                cost(best),
                cost(next),
                next.mode,
                burden(next, best),
                reservation(best, &self.figures),
            ),
            next => {
                let dearer = next.map_or_else(String::new, |next| {
                    format!(" ({} costs {})", next.mode, cost(next))
                });
                let most = same.iter().map(|figures| figures.ns_per_op).fold(0.0, f64::max);
                format!(
                    "{} cost about the same, {} to {} an operation{dearer}: {}.",
                    list(&same),
                    cost(best),
                    units::duration(most),
                    preference(&same),
                )
            }
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}: {} over {}, at a tick of {}",
            self.trace,
            units::operations(self.operations),
            units::milliseconds(self.span_ms),
            self.tick,
        )?;
        writeln!(f, "delays: {}", self.delays)?;
        writeln!(f)?;
        for figures in self.figures.chunks(MODES_A_TABLE) {
            writeln!(f, "{}\n", table(figures))?;
        }
        writeln!(f, "{}", self.verdict())
    }
}

impl Delays {
    pub(super) fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, u64::MAX, 3).expect("these bounds are sound");
        Self { histogram, least: u64::MAX, most: 0 }
    }

    pub(super) fn record(&mut self, delay_ms: u64) {
        self.histogram.saturating_record(delay_ms);
        self.least = self.least.min(delay_ms);
        self.most = self.most.max(delay_ms);
    }

    /// How many delays there are.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.histogram.len()
    }

    /// Whether nothing was ever scheduled.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.histogram.is_empty()
    }

    /// The delay that this share of all delays, from 0 to 1, does not exceed; None if there are
    /// none. The least and the most are exact.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Option<u64> {
        if self.is_empty() {
            return None;
        }
        Some(self.histogram.value_at_quantile(share).clamp(self.least, self.most))
    }

    /// The delays that occur, as ms and number, ascending.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        let counted = self.histogram.iter_recorded();
        counted.map(|at| {
            (at.value_iterated_to().clamp(self.least, self.most), at.count_since_last_iteration())
        })
    }
}

impl fmt::Display for Delays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHARES: [(&str, f64); 5] =
            [("min", 0.0), ("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0)];
        for (number, (name, share)) in SHARES.into_iter().enumerate() {
            let Some(delay_ms) = self.quantile(share) else { return f.write_str("none") };
            let comma = if number == 0 { "" } else { ", " };
            write!(f, "{comma}{name} {}", units::milliseconds(delay_ms))?;
        }
        Ok(())
    }
}

impl fmt::Debug for Delays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Delays({self})")
    }
}

fn table(figures: &[Figures]) -> Table {
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(row("", figures, |figures| figures.mode.to_string()));
    for (label, text) in ROWS {
        table.add_row(row(label, figures, text));
    }
    for (number, column) in table.column_iter_mut().enumerate() {
        let (alignment, before) = match number {
            0 => (CellAlignment::Left, 0),
            _ => (CellAlignment::Right, 2),
        };
        column.set_cell_alignment(alignment);
        column.set_padding((before, 0));
    }
    table
}

fn row(label: &str, figures: &[Figures], text: fn(&Figures) -> String) -> Vec<String> {
    let mut row = Vec::from([label.to_string()]);
    row.extend(figures.iter().map(text));
    row
}

/// What burdened the dearer mode, as far as the wheel counts it.
fn burden(dearer: &Figures, best: &Figures) -> String {
    if best.peak_bytes_per_timeout * MUCH_MEMORY < dearer.peak_bytes_per_timeout {
        let (much, little) = (memory(dearer), memory(best));
        return format!(", which took {much} of memory a timeout instead of {little}");
    }
    match (dearer.rounds_waited, dearer.demotions) {
        (0, 0) => String::new(),
        (0, demotions) => format!(", which demoted timeouts {} times", count(demotions)),
        (rounds, _) => format!(", which left timeouts waiting a round {} times", count(rounds)),
    }
}

/// What speaks against the cheapest mode.
fn reservation(best: &Figures, all: &[Figures]) -> String {
    match least(all, longest_call) {
        Some(shortest) if longest_call(shortest) * SHORTER_CALL < longest_call(best) => format!(
            "; but its longest call took {}, against {} for {}",
            call(best.max_call_ns),
            call(shortest.max_call_ns),
            shortest.mode,
        ),
        _ => String::new(),
    }
}

/// Which of several modes that cost the same to take.
fn preference(same: &[&Figures]) -> String {
    let (short, long) = within(same.iter().copied(), SHORTER_CALL, longest_call);
    let (small, large) =
        within(short.iter().copied(), LESS_MEMORY, |figures| figures.peak_bytes_per_timeout);
    let taken = small.iter().find(|figures| !figures.mode.is_hashed()).or_else(|| small.first());
    let taken = taken.expect("the least is within any factor of itself");
    let calls = least(long, longest_call).map(|other| {
        let (short, long) = (call(taken.max_call_ns), call(other.max_call_ns));
        format!("its longest call took {short}, against {long} for {}", other.mode)
    });
    let memories = least(large, |figures| figures.peak_bytes_per_timeout).map(|other| {
        let (little, much) = (memory(taken), memory(other));
        format!("it took {little} of memory a timeout, against {much} for {}", other.mode)
    });
    match (calls, memories) {
        (Some(calls), Some(memories)) => format!("take {}, as {calls}, and {memories}", taken.mode),
        (Some(reason), None) | (None, Some(reason)) => format!("take {}, as {reason}", taken.mode),
        (None, None) => "nothing else that was measured tells them apart".into(),
    }
}

/// Those whose value is at most `factor` times the least, and the others.
fn within<'a>(
    figures: impl IntoIterator<Item = &'a Figures> + Clone,
    factor: f64,
    value: fn(&Figures) -> f64,
) -> (Vec<&'a Figures>, Vec<&'a Figures>) {
    let bound = least(figures.clone(), value).map_or(0.0, |least| value(least) * factor);
    figures.into_iter().partition(|figures| value(figures) <= bound)
}

fn least<'a>(
    figures: impl IntoIterator<Item = &'a Figures>,
    value: fn(&Figures) -> f64,
) -> Option<&'a Figures> {
    figures.into_iter().min_by(|a, b| value(a).total_cmp(&value(b)))
}

fn list(figures: &[&Figures]) -> String {
    let names: Vec<_> = figures.iter().map(|figures| figures.mode.to_string()).collect();
    match names.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} and {last}", others.join(", ")),
        _ => names.concat(),
    }
}

fn longest_call(figures: &Figures) -> f64 {
    figures.max_call_ns as f64
}

fn memory(figures: &Figures) -> String {
    units::bytes(figures.peak_bytes_per_timeout)
}

fn cost(figures: &Figures) -> String {
    units::duration(figures.ns_per_op)
}

fn call(ns: u64) -> String {
    units::duration(ns as f64)
}

fn count(number: u64) -> String {
    HumanCount(number).to_string()
}

/// With fewer, costs are those of a wheel that begins.
const FEWEST_OPERATIONS: u64 = 1000;

/// Costs of up to so many times the least count as the same.
const SAME_COST: f64 = 1.25;

/// Calls that are longer by this factor have reasons of their own, and not the machine's.
const SHORTER_CALL: f64 = 4.0;

const LESS_MEMORY: f64 = 1.25;

/// So many times the memory means caches that miss.
const MUCH_MEMORY: f64 = 4.0;

/// As many as fit in 80 columns.
const MODES_A_TABLE: usize = 4;

/// A label, and what stands beside it for each mode.
type Row = (&'static str, fn(&Figures) -> String);

const ROWS: [Row; 21] = [
    ("cost per operation", cost),
    ("longest call", |figures| call(figures.max_call_ns)),
    ("p99.9 of calls", |figures| call(figures.p999_ns)),
    ("p99 of calls", |figures| call(figures.p99_ns)),
    ("p50 of calls", |figures| call(figures.p50_ns)),
    ("peak memory a timeout", memory),
    ("buckets visited", |figures| count(figures.buckets_visited)),
    ("demotions", |figures| count(figures.demotions)),
    ("rounds waited", |figures| count(figures.rounds_waited)),
    ("scheduled", |figures| count(figures.scheduled)),
    ("  while pending", |figures| count(figures.replaced)),
    ("rescheduled", |figures| count(figures.rescheduled)),
    ("  when gone", |figures| count(figures.late_reschedules)),
    ("cancelled", |figures| count(figures.cancelled)),
    ("  when gone", |figures| count(figures.late_cancels)),
    ("peak pending", |figures| count(figures.peak_live)),
    ("fired in the span", |figures| count(figures.fired_in_span)),
    ("pending at its end", |figures| count(figures.live_at_end)),
    ("fired in all", |figures| count(figures.fired_total)),
    ("early", |figures| count(figures.early)),
    ("latest, in ticks", |figures| count(figures.max_late_ticks)),
];
