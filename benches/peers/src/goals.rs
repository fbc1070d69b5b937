//! What is to be reached, and whether it was.

use crate::format;
use crate::report::number;
use crate::results::{Results, Row};
use crate::statistics::Spread;
use crate::subject::{Kind, Profile};
use crate::subjects::PROFILES;
use crate::workloads::{self, HISTORIES};
use std::collections::BTreeSet;

/// One goal as a row of the table: the workload, what the figure is, as "ours / nexus-timer", the
/// limit, what the run found, and the verdict.
pub(crate) type Goal = [String; 5];

enum Limit {
    AtMost(f64),
    AtLeast(f64),
}

const TIMER: &str = "tickwheel-timer";
const MILLION: usize = 1_000_000;

/// The goals, each at the largest size up to the one given that was measured.
pub(crate) fn of(results: &Results) -> Vec<Goal> {
    let of = |workload, size| Found::new(results, workload, size);
    let mut goals = Vec::new();

    let dense = [("sort-and-walk", 1.0), ("nexus-timer", 0.6), ("delay-queue", 0.2), ("hhwt", 0.2)];
    goals.extend(dense.map(|(theirs, most)| of("fire-dense", MILLION).against(theirs, most)));
    for workload in ["fire-sparse", "log-uniform"] {
        goals.push(of(workload, MILLION).against("sort-and-walk", 1.5));
        goals.push(of(workload, MILLION).against_best("every peer", 0.5, |_| true));
    }
    for size in BTreeSet::from([1_000, 100_000, MILLION].map(|size| of("requests", size).size)) {
        goals.push(of("requests", size).against_best("best peer", 1.0, |_| true));
        goals.push(of("requests", size).against("slab", 2.0));
    }
    let removes = |profile: &Profile| profile.frees_at_once;
    goals.push(of("cancel", MILLION).against_best("best peer with real removal", 1.0, removes));
    goals.push(of("idle", MILLION).against("nexus-timer", 0.6));
    goals.push(of("idle", MILLION).against("delay-queue", 0.3));
    goals.push(of("polls", 1).more_than("compare", 2.0));
    goals.push(of("waiting", MILLION).ours("tickwheel-hashed").at_most("share of a core", 0.01));

    for peer in PROFILES.iter().filter(|profile| profile.has_threads) {
        let least = match (peer.name, peer.kind) {
            (_, Kind::Ours) | ("one-lock", _) => continue,
            ("two-queues", _) => 4.0,
            (tokio, _) if tokio.starts_with("tokio") => 8.0,
            _ => 10.0,
        };
        goals.push(of("threads", 2).ours(TIMER).metric("rate").at_least(peer.name, least));
    }
    for ours in [TIMER, "tickwheel-timer-among-others"] {
        goals.push(of("threads", 2).ours(ours).metric("rate").at_least_of_one_thread(1.8));
    }
    for (ours, most) in [(TIMER, 0.6), ("tickwheel-timer-100us", 0.2)] {
        for metric in ["late p50", "late p99"] {
            let late = of("accuracy", 2_000).ours(ours).metric(metric);
            let who = format!("better of tokio's, {metric}");
            goals.push(late.against_best(&who, most, |it| it.name.starts_with("tokio")));
        }
    }
    goals.push(of("memory", MILLION).at_most("bytes a timeout", 32.0));
    goals.push(of("memory", MILLION).against_best("smallest of all", 1.0, |_| true));
    for (workload, _) in HISTORIES {
        for call in ["schedule", "cancel", "reschedule", "expire"] {
            for (quantile, most) in [("p99.999", 50e3), ("max", 1e6)] {
                let longest = of(workload, 10 * MILLION).metric(&format!("{call} {quantile}"));
                goals.push(longest.at_most(&format!("ns, longest {call}, {quantile}"), most));
            }
        }
    }
    goals
}

/// What was found of one metric of one workload, and at first of the first one.
struct Found<'a> {
    results: &'a Results,
    workload: &'static str,
    size: usize,
    ours: &'static str,
    metric: String,
}

impl<'a> Found<'a> {
    fn new(results: &'a Results, workload: &'static str, size: usize) -> Self {
        let sizes = results.sizes_of(workload);
        let size = sizes.into_iter().rfind(|&other| other <= size).unwrap_or(size);
        let metric = workloads::by_name(workload).expect("a workload").metrics[0].0.into();
        Self { results, workload, size, ours: "tickwheel", metric }
    }

    fn ours(self, ours: &'static str) -> Self {
        Self { ours, ..self }
    }

    fn metric(self, metric: &str) -> Self {
        Self { metric: metric.into(), ..self }
    }

    fn row(&self, subject: &str, size: usize) -> Option<&'a Row> {
        self.results.row(self.workload, size, subject)
    }

    /// Ours beside another subject, or beside ours at another size.
    fn compared(&self, other: Option<&Row>, compare: fn(f64, f64) -> f64) -> Option<Spread> {
        self.row(self.ours, self.size)?.compared(other?, &self.metric, compare)
    }

    fn ratio(&self, theirs: &str) -> Option<Spread> {
        self.compared(self.row(theirs, self.size), |ours, theirs| ours / theirs)
    }

    fn goal(&self, figure: impl Into<String>, limit: Limit, found: Option<Spread>) -> Goal {
        let about = format!("{}, {}", self.workload, format::count(self.size));
        let (is_met, limit) = match limit {
            Limit::AtMost(most) => {
                (found.map(|found| found.median <= most), format!("<= {}", number(most)))
            }
            Limit::AtLeast(least) => {
                (found.map(|found| least <= found.median), format!(">= {}", number(least)))
            }
        };
        let verdict = match is_met {
            Some(true) => "met",
            Some(false) => "MISSED",
            None => "not measured",
        };
        [about, figure.into(), limit, Spread::cell(found, number), verdict.into()]
    }

    fn against(&self, theirs: &str, most: f64) -> Goal {
        self.goal(format!("ours / {theirs}"), Limit::AtMost(most), self.ratio(theirs))
    }

    /// Against the one that has the least cost of those peers that count.
    fn against_best(&self, who: &str, most: f64, counts: fn(&Profile) -> bool) -> Goal {
        let is_peer = |profile: &Profile| profile.kind == Kind::Peer && counts(profile);
        let rows = self.results.rows_of(self.workload, self.size);
        let best = rows
            .filter(|row| is_peer(row.profile()))
            .filter_map(|row| Some((row.median(&self.metric)?, row.subject)))
            .min_by(|one, other| one.0.total_cmp(&other.0));
        let theirs = best.map_or("-", |(_, subject)| subject);
        let figure = format!("{} / {who} ({theirs})", self.ours);
        self.goal(figure, Limit::AtMost(most), self.ratio(theirs))
    }

    fn at_least(&self, theirs: &str, least: f64) -> Goal {
        let figure = format!("{}, ours / {theirs}", self.metric);
        self.goal(figure, Limit::AtLeast(least), self.ratio(theirs))
    }

    fn at_most(&self, figure: &str, most: f64) -> Goal {
        let row = self.row(self.ours, self.size);
        self.goal(figure, Limit::AtMost(most), row.and_then(|row| row.spread(&self.metric)))
    }

    /// By how much ours takes longer.
    fn more_than(&self, theirs: &str, most: f64) -> Goal {
        let more = self.compared(self.row(theirs, self.size), |ours, theirs| ours - theirs);
        self.goal(format!("ns more than {theirs}"), Limit::AtMost(most), more)
    }

    fn at_least_of_one_thread(&self, least: f64) -> Goal {
        let ratio = self.compared(self.row(self.ours, 1), |many, one| many / one);
        self.goal(format!("{} / at 1 thread", self.ours), Limit::AtLeast(least), ratio)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Sample;
    use crate::log::Faults;

    #[test]
    fn a_goal_is_met_or_missed_or_not_measured() {
        assert_eq!(of(&Results::default())[0][4], "not measured");
        for (ours, verdict) in [(30.0, "met"), (32.0, "MISSED")] {
            let mut results = Results::default();
            for (subject, cost) in [("tickwheel", ours), ("sort-and-walk", 31.0)] {
                let sample = Sample::of(Faults::default(), &[("schedule + fire", cost)]);
                results.add("fire-dense", 1_000_000, subject, sample);
            }
            assert_eq!(of(&results)[0][4], verdict);
        }
    }
}
