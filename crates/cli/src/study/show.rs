//! A study as a table for people and as JSON for programs.

use super::{Candidate, Configurations, Driver, Study};
use crate::units;
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::json;
use std::fmt::{self, Display};

impl Study {
    /// The configurations to show: all that were given; of a search what is recommended, what it
    /// was compared with, the default, and the best of the others.
    #[must_use]
    pub fn shown(&self) -> Vec<&Candidate> {
        if matches!(self.options.configurations, Configurations::Given { .. }) {
            return self.candidates.iter().collect();
        }
        let done = self.candidates.iter().filter(|candidate| candidate.stopped.is_none());
        let first = [self.recommended(), self.baseline(), self.candidates.first()];
        let mut shown: Vec<&Candidate> = Vec::new();
        for candidate in first.into_iter().flatten().chain(Self::by_score(done)) {
            if !shown.contains(&candidate) {
                shown.push(candidate);
            }
        }
        shown.truncate(CANDIDATES_PER_TABLE);
        shown
    }

    /// The rows of a table with a column for each of `columns`, and one of labels before them. The
    /// first row is the heading.
    pub(crate) fn table(&self, columns: &[&Candidate]) -> Vec<Vec<String>> {
        let is_search = matches!(self.options.configurations, Configurations::Search(_));
        let is_stopped = self.candidates.iter().any(|candidate| candidate.stopped.is_some());
        let is_shown = |label| match label {
            "tick" => is_search,
            "stopped" => is_stopped,
            // A timer caps its calls.
            "  in the longest call" => self.options.driver == Driver::Wheel,
            _ => true,
        };
        let operations = if is_search { &[][..] } else { &OPERATIONS };
        let rows = CONFIGURATION.iter().chain(&COUNTED).chain(operations);
        let rows = rows.filter(|row| is_shown(row.0));
        let cells = |&(label, text): &Row| {
            [label.into()].into_iter().chain(columns.iter().map(|it| text(it))).collect()
        };
        rows.map(cells).collect()
    }
}

/// One object with all configurations.
impl Serialize for Study {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let name = |it: &Candidate| json!({ "mode": it.mode, "tick": it.tick });
        let unfit: Vec<_> = self.unfit.iter().map(ToString::to_string).collect();
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("trace", &self.trace)?;
        map.serialize_entry("operations", &self.operations)?;
        map.serialize_entry("is_whole", &self.is_whole)?;
        map.serialize_entry("span_ms", &self.span_ms)?;
        map.serialize_entry("delays_ms", &self.delays)?;
        map.serialize_entry("unfit", &unfit)?;
        map.serialize_entry("rounds", &self.rounds)?;
        map.serialize_entry("recommended", &self.recommended().map(name))?;
        map.serialize_entry("baseline", &self.baseline().map(name))?;
        map.serialize_entry("verdict", &self.verdict())?;
        map.serialize_entry("code", &self.code())?;
        map.serialize_entry("score", &self.scoring())?;
        map.serialize_entry("max_memory_bytes", &self.options.max_memory)?;
        map.serialize_entry("wake_cost_ns", &self.options.wake_cost.as_nanos())?;
        map.serialize_entry("candidates", &self.candidates)?;
        map.end()
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
            writeln!(f, "{}\n", laid_out(self.table(candidates)))?;
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

/// A label, and what stands beside it for a configuration.
type Row = (&'static str, fn(&Candidate) -> String);

/// Lays out rows, the first of which is the heading.
fn laid_out(rows: Vec<Vec<String>>) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    let mut rows = rows.into_iter();
    table.set_header(rows.next().unwrap_or_default()).add_rows(rows);
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
    candidate.measured.as_ref().map_or_else(|| "not measured".into(), text)
}

/// As many as fit in 80 columns.
const CANDIDATES_PER_TABLE: usize = 3;

const CONFIGURATION: [Row; 7] = [
    ("mode", |it| it.mode.to_string()),
    ("tick", |it| it.tick.to_string()),
    ("stopped", |it| it.stopped.map_or_else(|| "-".into(), |_| "yes".into())),
    ("score", |it| measured(it, |at| units::duration(at.score.median))),
    ("  between", |it| measured(it, |at| units::range(at.score.least, at.score.most))),
    ("CPU time per operation", |it| measured(it, |at| units::duration(at.cpu_ns.median))),
    ("  between", |it| measured(it, |at| units::range(at.cpu_ns.least, at.cpu_ns.most))),
];

const COUNTED: [Row; 10] = [
    ("score by counted work", |it| it.counted()),
    ("wake-ups", |it| units::number(it.figures.wakeups)),
    ("timeouts handled", |it| units::number(it.figures.work)),
    ("  in the longest call", |it| units::number(it.figures.longest_call)),
    ("buckets visited", |it| units::number(it.figures.buckets_visited)),
    ("demotions", |it| units::number(it.figures.demotions)),
    ("rounds waited", |it| units::number(it.figures.rounds_waited)),
    ("most memory", |it| units::memory(it.figures.memory_bytes)),
    ("late by the tick, mean", |it| units::duration(it.figures.mean_lateness_ns as f64)),
    ("late by the tick, most", |it| units::duration(it.figures.max_lateness_ns as f64)),
];

const OPERATIONS: [Row; 12] = [
    ("scheduled", |it| units::number(it.figures.counts.scheduled)),
    ("  while pending", |it| units::number(it.figures.counts.replaced)),
    ("rescheduled", |it| units::number(it.figures.counts.rescheduled)),
    ("  when gone", |it| units::number(it.figures.counts.late_reschedules)),
    ("cancelled", |it| units::number(it.figures.counts.cancelled)),
    ("  when gone", |it| units::number(it.figures.counts.late_cancels)),
    ("peak pending", |it| units::number(it.figures.peak_live)),
    ("fired in the span", |it| units::number(it.figures.fired_in_span)),
    ("pending at its end", |it| units::number(it.figures.live_at_end)),
    ("fired in all", |it| units::number(it.figures.fired_total)),
    ("early", |it| units::number(it.figures.early)),
    ("latest, in ticks", |it| units::number(it.figures.max_late_ticks)),
];
