//! A study as a table for people and as JSON for programs.

use super::{Candidate, Configurations, Study};
use crate::units;
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde::Serialize;
use serde_json::{Value, json};
use std::fmt::{self, Display};
use std::io;

impl Study {
    /// Writes one JSON object with all configurations.
    ///
    /// # Errors
    ///
    /// What writing to `output` returns.
    pub fn write_json(&self, output: &mut impl io::Write) -> io::Result<()> {
        #[derive(Serialize)]
        struct Json<'a> {
            trace: &'a str,
            operations: u64,
            is_whole: bool,
            span_ms: u64,
            unfit: Vec<String>,
            rounds: usize,
            recommended: Option<Value>,
            baseline: Option<Value>,
            verdict: String,
            code: Option<String>,
            score: String,
            max_memory_bytes: u64,
            wake_cost_ns: u128,
            candidates: &'a [Candidate],
        }
        let name = |it: &Candidate| json!({ "mode": it.mode, "tick": it.tick });
        let json = Json {
            trace: &self.trace,
            operations: self.operations,
            is_whole: self.is_whole,
            span_ms: self.span_ms,
            unfit: self.unfit.iter().map(ToString::to_string).collect(),
            rounds: self.rounds,
            recommended: self.recommended().map(name),
            baseline: self.baseline().map(name),
            verdict: self.verdict(),
            code: self.code(),
            score: self.scoring(),
            max_memory_bytes: self.options.max_memory,
            wake_cost_ns: self.options.wake_cost.as_nanos(),
            candidates: &self.candidates,
        };
        serde_json::to_writer(&mut *output, &json)?;
        writeln!(output)
    }

    /// Writes one JSON object per configuration, one per line, each with the verdict.
    ///
    /// # Errors
    ///
    /// What writing to `output` returns.
    pub fn write_json_lines(&self, output: &mut impl io::Write) -> io::Result<()> {
        #[derive(Serialize)]
        struct Line<'a> {
            #[serde(flatten)]
            candidate: &'a Candidate,
            is_whole: bool,
            verdict: &'a str,
        }
        let (is_whole, verdict) = (self.is_whole, &*self.verdict());
        for candidate in &self.candidates {
            serde_json::to_writer(&mut *output, &Line { candidate, is_whole, verdict })?;
            writeln!(output)?;
        }
        Ok(())
    }

    /// The configurations to show: all that were given; of a search what is recommended, what it
    /// was compared with, the default, and the best of the others.
    #[must_use]
    pub fn shown(&self) -> Vec<&Candidate> {
        if matches!(self.options.configurations, Configurations::Given { .. }) {
            return self.candidates.iter().collect();
        }
        let mut by_score: Vec<_> =
            self.candidates.iter().filter(|candidate| candidate.stopped.is_none()).collect();
        by_score.sort_by(|a, b| {
            let [a, b] = [a, b].map(|it| (it.measured.is_none(), it.figures.counted_score));
            a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
        });
        let first = [self.recommended(), self.baseline(), self.candidates.first()];
        let mut shown: Vec<&Candidate> = Vec::new();
        for candidate in first.into_iter().flatten().chain(by_score) {
            if !shown.contains(&candidate) {
                shown.push(candidate);
            }
        }
        shown.truncate(CANDIDATES_PER_TABLE);
        shown
    }

    /// The rows of the table.
    fn rows(&self) -> impl Iterator<Item = Row<'_, Candidate>> {
        let is_search = matches!(self.options.configurations, Configurations::Search(_));
        let is_stopped = self.candidates.iter().any(|candidate| candidate.stopped.is_some());
        let head: [Row<'_, Candidate>; 3] = [
            ("", &|it| it.mode.to_string()),
            ("tick", &|it| it.tick.to_string()),
            ("stopped", &|it| it.stopped.map_or_else(|| "-".into(), |_| "yes".into())),
        ];
        let head = head.into_iter().filter(move |row| match row.0 {
            "tick" => is_search,
            "stopped" => is_stopped,
            _ => true,
        });
        head.chain(MEASURED)
            .chain(COUNTED)
            .chain(OPERATIONS.into_iter().filter(move |_| !is_search))
    }
}

impl Display for Study {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.trace, self.extent())?;
        match &self.options.configurations {
            Configurations::Given { tick, .. } => writeln!(f, ", at a tick of {tick}")?,
            Configurations::Search(_) => {
                let stopped = self.candidates.iter().filter(|it| it.stopped.is_some()).count();
                write!(f, "; {} configurations", self.candidates.len())?;
                if 0 < stopped {
                    write!(f, ", {stopped} of them stopped early")?;
                }
                writeln!(f)?;
            }
        }
        writeln!(f, "delays: {}\n", self.delays)?;
        for candidates in self.shown().chunks(CANDIDATES_PER_TABLE) {
            writeln!(f, "{}\n", table(candidates, self.rows()))?;
        }
        writeln!(f, "{}\n", self.scoring())?;
        write!(f, "{}", self.verdict())?;
        if let (Some(code), Configurations::Search(_)) = (self.code(), &self.options.configurations)
        {
            write!(f, "\n\n    {code}")?;
        }
        writeln!(f)
    }
}

/// The mode and the tick of a configuration.
pub(crate) fn name(candidate: &Candidate) -> String {
    format!("{} at a tick of {}", candidate.mode, candidate.tick)
}

/// A label, and what stands beside it for each column.
type Row<'a, C> = (&'a str, &'a dyn Fn(&C) -> String);

/// Lays out a table with a column for each of `columns`, and one of labels before them. The first
/// row is the heading.
fn table<'a, C: 'a>(columns: &[&C], rows: impl IntoIterator<Item = Row<'a, C>>) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    for (number, (label, text)) in rows.into_iter().enumerate() {
        let cells =
            [label.to_string()].into_iter().chain(columns.iter().map(|column| text(column)));
        match number {
            0 => table.set_header(cells),
            _ => table.add_row(cells),
        };
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

fn measured(candidate: &Candidate, text: impl Fn(&super::Measured) -> String) -> String {
    candidate.measured.as_ref().map_or_else(|| "-".into(), text)
}

/// As many as fit in 80 columns.
const CANDIDATES_PER_TABLE: usize = 3;

const MEASURED: [Row<'static, Candidate>; 4] = [
    ("score", &|it| measured(it, |at| units::duration(at.score.median))),
    ("  between", &|it| measured(it, |at| units::range(at.score.least, at.score.most))),
    ("CPU time per operation", &|it| measured(it, |at| units::duration(at.cpu_ns.median))),
    ("  between", &|it| measured(it, |at| units::range(at.cpu_ns.least, at.cpu_ns.most))),
];

const COUNTED: [Row<'static, Candidate>; 10] = [
    ("score by counted work", &|it| it.counted()),
    ("wake-ups", &|it| units::number(it.figures.wakeups)),
    ("timeouts handled", &|it| units::number(it.figures.work)),
    ("  in the longest call", &|it| units::number(it.figures.longest_call)),
    ("buckets visited", &|it| units::number(it.figures.buckets_visited)),
    ("demotions", &|it| units::number(it.figures.demotions)),
    ("rounds waited", &|it| units::number(it.figures.rounds_waited)),
    ("most memory", &|it| units::memory(it.figures.memory_bytes)),
    ("late by the tick, mean", &|it| units::duration(it.figures.mean_lateness_ns as f64)),
    ("late by the tick, most", &|it| units::duration(it.figures.max_lateness_ns as f64)),
];

const OPERATIONS: [Row<'static, Candidate>; 12] = [
    ("scheduled", &|it| units::number(it.figures.counts.scheduled)),
    ("  while pending", &|it| units::number(it.figures.counts.replaced)),
    ("rescheduled", &|it| units::number(it.figures.counts.rescheduled)),
    ("  when gone", &|it| units::number(it.figures.counts.late_reschedules)),
    ("cancelled", &|it| units::number(it.figures.counts.cancelled)),
    ("  when gone", &|it| units::number(it.figures.counts.late_cancels)),
    ("peak pending", &|it| units::number(it.figures.peak_live)),
    ("fired in the span", &|it| units::number(it.figures.fired_in_span)),
    ("pending at its end", &|it| units::number(it.figures.live_at_end)),
    ("fired in all", &|it| units::number(it.figures.fired_total)),
    ("early", &|it| units::number(it.figures.early)),
    ("latest, in ticks", &|it| units::number(it.figures.max_late_ticks)),
];
