//! What is to be reached, and whether it was.

use crate::results::{Results, Row};
use crate::statistics::Spread;
use crate::subject::Kind;
use crate::subjects;
use crate::workloads::{self, WORKLOADS};

/// One goal, and what the run found.
#[derive(Clone, Debug)]
pub(crate) struct Goal {
    pub(crate) about: String,
    /// What the figure is, as "ours / nexus-timer".
    pub(crate) figure: String,
    pub(crate) limit: Limit,
    /// None if it was not measured.
    pub(crate) found: Option<Spread>,
    /// If the figure is of the best or the worst of many, which one.
    pub(crate) whose: String,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Limit {
    AtMost(f64),
    AtLeast(f64),
}

impl Goal {
    pub(crate) fn is_met(&self) -> Option<bool> {
        let found = self.found?.median;
        Some(match self.limit {
            Limit::AtMost(most) => found <= most,
            Limit::AtLeast(least) => least <= found,
        })
    }
}

const OURS: &str = "tickwheel";
const HASHED: &str = "tickwheel-hashed";
const TIMER: &str = "tickwheel-timer";

/// The goals at the largest size up to `size` that was measured.
pub(crate) fn of(results: &Results) -> Vec<Goal> {
    let mut goals = Goals { results, goals: Vec::new() };
    let million = 1_000_000;

    goals.against("fire-dense", million, "sort-and-walk", 1.0);
    goals.against("fire-dense", million, "nexus-timer", 0.6);
    goals.against("fire-dense", million, "delay-queue", 0.2);
    goals.against("fire-dense", million, "hhwt", 0.2);
    for workload in ["fire-sparse", "log-uniform"] {
        goals.against(workload, million, "sort-and-walk", 1.5);
        goals.against_best(workload, million, "every peer", 0.5, |_| true);
    }
    let mut sizes = [1_000, 100_000, million].map(|size| goals.size("requests", size)).to_vec();
    sizes.dedup();
    for size in sizes {
        goals.against_best("requests", size, "best peer", 1.0, |_| true);
        goals.against("requests", size, "slab", 2.0);
    }
    let removes = |row: &Row| {
        let profile = subjects::PROFILES.iter().find(|profile| profile.name == row.subject);
        profile.is_some_and(|profile| profile.frees_at_once)
    };
    goals.against_best("cancel", million, "best peer with real removal", 1.0, removes);
    goals.against("idle", million, "nexus-timer", 0.6);
    goals.against("idle", million, "delay-queue", 0.3);
    goals.polls();
    goals.figure("waiting", million, HASHED, "core", "share of a core", 0.01);
    goals.threads();
    goals.figure("memory", million, OURS, "pending", "bytes a timeout", 32.0);
    goals.against_best("memory", million, "smallest of all", 1.0, |_| true);
    for call in ["schedule", "cancel", "reschedule", "expire"] {
        let figure = |quantile: &str| format!("ns, longest {call}, {quantile}");
        for (quantile, most) in [("p99.999", 50e3), ("max", 1e6)] {
            let metric = format!("{call} {quantile}");
            goals.figure("longest-call", 10 * million, OURS, &metric, &figure(quantile), most);
        }
    }
    goals.goals
}

struct Goals<'a> {
    results: &'a Results,
    goals: Vec<Goal>,
}

impl Goals<'_> {
    /// The largest size up to `size` at which the workload was run.
    fn size(&self, workload: &str, size: usize) -> usize {
        let sizes = self.results.sizes_of(workload);
        sizes.into_iter().rfind(|&other| other <= size).unwrap_or(size)
    }

    fn push(
        &mut self,
        workload: &str,
        size: usize,
        figure: &str,
        limit: Limit,
        found: Option<Spread>,
    ) {
        self.goals.push(Goal {
            about: format!("{workload}, {}", crate::format::count(size)),
            figure: figure.into(),
            limit,
            found,
            whose: String::new(),
        });
    }

    fn against(&mut self, workload: &str, size: usize, theirs: &str, most: f64) {
        let size = self.size(workload, size);
        let metric = first_metric(workload);
        let found = self.results.ratio(workload, size, metric, OURS, theirs);
        let figure = format!("ours / {theirs}");
        self.push(workload, size, &figure, Limit::AtMost(most), found);
    }

    /// Against the peer that has the least cost of those that count.
    fn against_best(
        &mut self,
        workload: &str,
        size: usize,
        who: &str,
        most: f64,
        counts: impl Fn(&Row) -> bool,
    ) {
        let size = self.size(workload, size);
        let metric = first_metric(workload);
        let peers = self.results.rows_of(workload, size);
        let peers = peers.filter(|row| row.kind() == Kind::Peer && counts(row));
        let best = peers
            .filter_map(|row| Some((row.median(metric)?, row.subject.as_str())))
            .min_by(|one, other| one.0.total_cmp(&other.0));
        let theirs = best.map_or("", |(_, subject)| subject).to_owned();
        let found = self.results.ratio(workload, size, metric, OURS, &theirs);
        self.push(workload, size, &format!("ours / {who}"), Limit::AtMost(most), found);
        self.goals.last_mut().expect("it was just pushed").whose = theirs;
    }

    fn figure(
        &mut self,
        workload: &str,
        size: usize,
        subject: &str,
        metric: &str,
        figure: &str,
        most: f64,
    ) {
        let size = self.size(workload, size);
        let row = self.results.row(workload, size, subject);
        let found = row.and_then(|row| row.metrics.get(metric).copied());
        self.push(workload, size, figure, Limit::AtMost(most), found);
    }

    /// By how much an empty poll takes longer than a comparison.
    fn polls(&mut self) {
        let found = |subject| Some(*self.results.row("polls", 1, subject)?.metrics.get("poll")?);
        let found = found(OURS).zip(found("compare")).map(|(ours, compare)| Spread {
            median: ours.median - compare.median,
            least: ours.least - compare.most,
            most: ours.most - compare.least,
        });
        self.push("polls", 1, "ns more than an inlined compare", Limit::AtMost(2.0), found);
    }

    fn threads(&mut self) {
        let peers: Vec<_> = self
            .results
            .rows_of("threads", 2)
            .filter(|row| row.kind() == Kind::Peer)
            .map(|row| row.subject.clone())
            .collect();
        for peer in peers {
            let least = if peer == "tokio-sleep" { 8.0 } else { 10.0 };
            let found = self.results.ratio("threads", 2, "rate", TIMER, &peer);
            let figure = format!("rate, ours / {peer}");
            self.push("threads", 2, &figure, Limit::AtLeast(least), found);
        }
        let one = self.results.row("threads", 1, TIMER).and_then(|row| row.median("rate"));
        let two = self.results.row("threads", 2, TIMER);
        let two = two.and_then(|row| row.metrics.get("rate").copied());
        let found = one.zip(two).map(|(one, two)| Spread {
            median: two.median / one,
            least: two.least / one,
            most: two.most / one,
        });
        let figure = "rate, ours / ours at 1 thread";
        self.push("threads", 2, figure, Limit::AtLeast(1.8), found);
    }
}

fn first_metric(workload: &str) -> &'static str {
    debug_assert!(WORKLOADS.iter().any(|other| other.name == workload));
    workloads::by_name(workload).map_or("", |workload| workload.metrics[0].name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Sample;
    use crate::log::Faults;

    fn results(ours: f64, sort: f64) -> Results {
        let mut results = Results::default();
        for (subject, cost) in [("tickwheel", ours), ("sort-and-walk", sort)] {
            let sample = Sample::of(Faults::default(), &[("schedule + fire", cost)]);
            results.add("fire-dense", 1_000_000, subject, sample);
        }
        results
    }

    fn first(results: &Results) -> Option<bool> {
        of(results)[0].is_met()
    }

    #[test]
    fn a_goal_is_met_or_missed_or_not_measured() {
        assert_eq!(first(&results(30.0, 31.0)), Some(true));
        assert_eq!(first(&results(32.0, 31.0)), Some(false));
        assert_eq!(first(&Results::default()), None);
    }
}
