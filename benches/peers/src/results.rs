//! All that a run found, and what follows from it.

use crate::case::{HUNG, Sample};
use crate::log::{Fault, Faults};
use crate::statistics::Spread;
use crate::subject::{Kind, Profile};
use crate::subjects::PROFILES;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The result of a run, as `--json` writes it and `--from` reads it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(bound(deserialize = "'de: 'static"))]
pub(crate) struct Results {
    /// Under which circumstances it was found, in a few lines.
    pub(crate) about: String,
    pub(crate) rows: Vec<Row>,
}

/// One subject in one workload at one size.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) workload: &'static str,
    pub(crate) size: usize,
    pub(crate) subject: &'static str,
    /// By repetition.
    pub(crate) samples: Vec<Sample>,
}

impl Results {
    /// Adds what one repetition found; they have to come in their order.
    pub(crate) fn add(
        &mut self,
        workload: &'static str,
        size: usize,
        subject: &'static str,
        sample: Sample,
    ) {
        let key = (workload, size, subject);
        match self.rows.iter_mut().find(|row| (row.workload, row.size, row.subject) == key) {
            Some(row) => row.samples.push(sample),
            None => self.rows.push(Row { workload, size, subject, samples: vec![sample] }),
        }
    }

    pub(crate) fn row(&self, workload: &str, size: usize, subject: &str) -> Option<&Row> {
        self.rows_of(workload, size).find(|row| row.subject == subject)
    }

    /// In the order of the subjects.
    pub(crate) fn rows_of(&self, workload: &str, size: usize) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |row| row.workload == workload && row.size == size)
    }

    /// The first of ours, with which all others are compared.
    pub(crate) fn ours(&self, workload: &str, size: usize) -> Option<&Row> {
        self.rows_of(workload, size).find(|row| row.profile().kind == Kind::Ours)
    }

    pub(crate) fn sizes_of(&self, workload: &str) -> BTreeSet<usize> {
        let rows = self.rows.iter().filter(|row| row.workload == workload);
        rows.map(|row| row.size).collect()
    }

    /// Why the subject did not come to the end of the workload, at any size.
    pub(crate) fn failure(&self, workload: &str, subject: &str) -> Option<&str> {
        let same = |row: &&Row| row.workload == workload && row.subject == subject;
        self.rows.iter().filter(same).find_map(Row::failure)
    }
}

impl Row {
    fn values(&self, metric: &str) -> impl Iterator<Item = Option<f64>> {
        self.samples.iter().map(|sample| sample.values.get(metric).copied())
    }

    pub(crate) fn spread(&self, metric: &str) -> Option<Spread> {
        Spread::of(self.values(metric).flatten())
    }

    pub(crate) fn median(&self, metric: &str) -> Option<f64> {
        self.spread(metric).map(|spread| spread.median)
    }

    /// How much of the other's cost this one's is. Compares what was measured in the same
    /// repetition, because what disturbs one disturbs the other as well; None unless both were
    /// measured.
    pub(crate) fn ratio(&self, other: &Self, metric: &str) -> Option<Spread> {
        let both = self.values(metric).zip(other.values(metric));
        Spread::of(both.filter_map(|(ours, theirs)| Some(ours? / theirs?)))
    }

    pub(crate) fn profile(&self) -> &'static Profile {
        let profile = PROFILES.iter().find(|profile| profile.name == self.subject);
        profile.expect("a subject")
    }

    fn failure(&self) -> Option<&str> {
        self.samples.iter().find_map(|sample| sample.failure.as_deref())
    }

    pub(crate) fn faults(&self) -> Faults {
        let mut faults = Faults::default();
        self.samples.iter().for_each(|sample| faults.merge(&sample.faults));
        faults
    }

    pub(crate) fn is_right(&self) -> bool {
        self.failure().is_none() && !self.faults().any()
    }

    /// Whether an answer was wrong, and not only late because all of it takes long.
    pub(crate) fn is_wrong(&self) -> bool {
        self.faults().any() || self.failure().is_some_and(|failure| !failure.starts_with(HUNG))
    }

    /// What was wrong with the answers: nothing if they were right.
    pub(crate) fn answers(&self) -> String {
        let faults = self.faults();
        let wrong = faults.any().then(|| format!("WRONG: {faults}"));
        let marks: Vec<_> = self.failure().map(str::to_owned).into_iter().chain(wrong).collect();
        match faults.count(Fault::NotFirstInFirstOut) {
            _ if !marks.is_empty() => marks.join("; "),
            0 => String::new(),
            _ => "ties reordered".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_taken_within_a_repetition() {
        let row = |subject, costs: [Option<f64>; 4]| {
            let sample = |cost: Option<f64>| match cost {
                Some(cost) => Sample::of(Faults::default(), &[("poll", cost)]),
                None => Sample::failed("CRASHED".into()),
            };
            Row { workload: "polls", size: 1, subject, samples: costs.map(sample).into() }
        };
        let ours = row("tickwheel", [Some(10.0), Some(100.0), None, Some(3.0)]);
        let theirs = row("nexus-timer", [Some(20.0), Some(200.0), Some(1.0), None]);
        let ratio = Spread { median: 0.5, least: 0.5, most: 0.5 };
        assert_eq!(ours.ratio(&theirs, "poll"), Some(ratio));
    }
}
