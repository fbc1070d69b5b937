//! All that a run found, and what follows from it.

use crate::case::{Failure, Sample};
use crate::log::Faults;
use crate::statistics::Spread;
use crate::subject::Kind;
use crate::subjects;
use serde::Serialize;
use std::collections::BTreeMap;

/// The result of a run, as `--json` writes it.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Results {
    pub(crate) about: About,
    pub(crate) rows: Vec<Row>,
}

/// Under which circumstances it was found.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct About {
    pub(crate) machine: String,
    pub(crate) system: String,
    pub(crate) compiler: String,
    pub(crate) date: String,
    pub(crate) commit: String,
    pub(crate) command: String,
    pub(crate) quick: bool,
    pub(crate) repetitions: usize,
    pub(crate) seconds: u64,
}

/// One subject in one workload at one size.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Row {
    pub(crate) workload: String,
    pub(crate) size: usize,
    pub(crate) subject: String,
    pub(crate) samples: Vec<Sample>,
    pub(crate) metrics: BTreeMap<String, Spread>,
    pub(crate) faults: Faults,
    pub(crate) failure: Option<Failure>,
}

impl Results {
    /// Adds what one repetition found; they have to come in their order.
    pub(crate) fn add(&mut self, workload: &str, size: usize, subject: &str, sample: Sample) {
        let row = match self.rows.iter_mut().position(|row| row.is(workload, size, subject)) {
            Some(row) => &mut self.rows[row],
            None => {
                let (workload, subject) = (workload.into(), subject.into());
                self.rows.push(Row { workload, size, subject, ..Row::default() });
                self.rows.last_mut().expect("it was just pushed")
            }
        };
        row.add(sample);
    }

    pub(crate) fn row(&self, workload: &str, size: usize, subject: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.is(workload, size, subject))
    }

    pub(crate) fn rows_of(&self, workload: &str, size: usize) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |row| row.workload == workload && row.size == size)
    }

    /// In rising order.
    pub(crate) fn sizes_of(&self, workload: &str) -> Vec<usize> {
        let rows = self.rows.iter().filter(|row| row.workload == workload);
        let mut sizes: Vec<_> = rows.map(|row| row.size).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    /// Why the subject did not come to the end of the workload, at any size.
    pub(crate) fn failure(&self, workload: &str, subject: &str) -> Option<Failure> {
        let mut rows = self.rows.iter();
        rows.find_map(|row| {
            let same = row.workload == workload && row.subject == subject;
            row.failure.clone().filter(|_| same)
        })
    }

    /// How much of the other's cost ours is; None unless both were measured.
    pub(crate) fn ratio(
        &self,
        workload: &str,
        size: usize,
        metric: &str,
        ours: &str,
        theirs: &str,
    ) -> Option<Spread> {
        let ours = self.row(workload, size, ours)?.values(metric);
        let theirs = self.row(workload, size, theirs)?.values(metric);
        Spread::of_ratios(&ours, &theirs)
    }
}

impl Row {
    fn is(&self, workload: &str, size: usize, subject: &str) -> bool {
        self.size == size && self.workload == workload && self.subject == subject
    }

    fn add(&mut self, sample: Sample) {
        self.faults.merge(&sample.faults);
        self.failure = self.failure.take().or_else(|| sample.failure.clone());
        self.samples.push(sample);
        let names = self.samples.iter().flat_map(|sample| &sample.values);
        let names: Vec<_> = names.map(|(name, _)| name.clone()).collect();
        for name in names {
            if let Some(spread) = Spread::of(self.values(&name).into_iter().flatten()) {
                self.metrics.insert(name, spread);
            }
        }
    }

    /// By repetition.
    fn values(&self, metric: &str) -> Vec<Option<f64>> {
        self.samples.iter().map(|sample| sample.value(metric)).collect()
    }

    pub(crate) fn median(&self, metric: &str) -> Option<f64> {
        self.metrics.get(metric).map(|spread| spread.median)
    }

    /// A subject that is unknown is a peer.
    pub(crate) fn kind(&self) -> Kind {
        subjects::profile(&self.subject).map_or(Kind::Peer, |profile| profile.kind)
    }

    /// What is wrong with its answers; empty if nothing is.
    pub(crate) fn marks(&self) -> String {
        let failure = match &self.failure {
            Some(Failure::Panicked(message)) => format!("PANICKED: {message}"),
            Some(Failure::Hung(seconds)) => format!("HUNG: not done after {seconds} s"),
            Some(Failure::Crashed(how)) => format!("CRASHED: {how}"),
            None => String::new(),
        };
        let faults = match self.faults.any() {
            true => format!("WRONG: {}", self.faults),
            false => String::new(),
        };
        let both = [failure, faults];
        both.into_iter().filter(|mark| !mark.is_empty()).collect::<Vec<_>>().join("; ")
    }
}
