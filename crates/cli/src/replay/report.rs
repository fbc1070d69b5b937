//! `Report`: what a replay found, as a table with a verdict and as JSON.

use super::limits::{Limit, Stopped};
use super::run::Figures;
use super::tick::Tick;
use super::trace::Gaps;
use super::units;
use crate::table;
use hdrhistogram::Histogram;
use indicatif::HumanCount;
use std::fmt;
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
    /// Operations read.
    pub operations: u64,
    /// Whether the trace was read to its end. It is not if every mode was stopped before.
    pub is_whole: bool,
    /// From the first operation to the last, in ms.
    pub span_ms: u64,
    /// What is not in the trace though it happened.
    pub gaps: Gaps,
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
    /// Writes one JSON object per mode, one per line.
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

    /// Says in a sentence or two which mode suits the trace, and why.
    ///
    /// A mode that was stopped does not suit the trace. Of the others the cheapest does, if the
    /// difference is more than noise: if the next mode costs over a quarter more, because two runs
    /// of the same mode can differ by a quarter on a busy machine, and if the dearest repetition of
    /// the cheapest mode costs less than the cheapest repetition of the next. Where there is no
    /// such difference the sentence says so, and names the mode that the documentation names for
    /// all who did not measure, a hierarchical one, unless it takes four times the memory.
    #[must_use]
    pub fn verdict(&self) -> String {
        let (finished, stopped): (Vec<_>, Vec<_>) =
            self.figures.iter().partition(|figures| figures.stopped.is_none());
        let mut verdict = self.choice(&finished, stopped.len());
        for figures in stopped {
            let Some(stop) = figures.stopped else { continue };
            verdict += &format!(
                "\n{} does not suit this trace: it was stopped after {}, when it was {}{}.",
                figures.mode,
                self.progress(figures),
                stop.limit,
                cause(figures, stop),
            );
        }
        verdict
    }

    /// The sentence on the modes that came to the end.
    fn choice(&self, finished: &[&Figures], stopped: usize) -> String {
        let Some(best) = least(finished.iter().copied(), |figures| figures.ns_per_op) else {
            return match stopped {
                0 => "No mode was run.".into(),
                _ => "No mode came to the end of the trace: `--limit-time` and `--limit-memory` \
                      give the modes more."
                    .into(),
            };
        };
        if finished.len() == 1 {
            let reason = match stopped {
                0 => "was run: there is nothing to compare it with",
                _ => "came to the end of the trace, so it suits the trace best",
            };
            return format!("Only {} {reason}.", best.mode);
        }
        if self.operations < FEWEST_OPERATIONS {
            let operations = units::operations(self.operations);
            return format!("Only {operations} in the trace: too few to tell the modes apart.");
        }
        let (same, dearer): (Vec<_>, Vec<_>) =
            finished.iter().copied().partition(|figures| !is_cheaper(best, figures));
        let next = least(dearer, |figures| figures.ns_per_op);
        match next {
            Some(next) if same.len() == 1 => format!(
                "{} suits this trace best: {} per operation, against {} for {}{}{}.",
                best.mode,
                cost(best),
                cost(next),
                next.mode,
                burden(next, best),
                reservation(best, finished),
            ),
            next => {
                let most = same.iter().map(|figures| figures.ns_per_op).fold(0.0, f64::max);
                let taken = preferred(&same);
                let dearer = next.map_or_else(String::new, |next| {
                    format!(" ({} costs {})", next.mode, cost(next))
                });
                format!(
                    "No difference between {}: they cost {} per operation, which is within the \
                     noise{dearer}. Take {}{}{}.",
                    list(&same),
                    units::range(best.ns_per_op, most),
                    taken.mode,
                    advantage(taken, &same),
                    reservation(taken, finished),
                )
            }
        }
    }

    fn table(&self, figures: &[Figures]) -> comfy_table::Table {
        let share = |figures: &Figures| self.share(figures);
        let stops: [table::Row<'_, Figures>; 4] = [
            ("stopped", &|figures| stop(figures, limit)),
            ("  because of", &|figures| stop(figures, reason)),
            ("  operations done", &share),
            ("  left pending", &|figures| count(left(figures))),
        ];
        let is_stopped = self.figures.iter().any(|figures| figures.stopped.is_some());
        let stops = stops.into_iter().filter(|_| is_stopped);
        table::of(figures, HEAD.into_iter().chain(stops).chain(ROWS))
    }

    /// Says how far a mode came.
    fn progress(&self, figures: &Figures) -> String {
        match figures.ops < self.operations {
            true => format!("{} of the operations", self.share(figures)),
            false => {
                format!("all operations, with {} timeouts still pending", count(left(figures)))
            }
        }
    }

    /// The share of the operations that a mode did.
    fn share(&self, figures: &Figures) -> String {
        percent(figures.ops as f64 / self.operations.max(1) as f64)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}: {}{} over {}, at a tick of {}",
            self.trace,
            if self.is_whole { "" } else { "the first " },
            units::operations(self.operations),
            units::milliseconds(self.span_ms),
            self.tick,
        )?;
        writeln!(f, "delays: {}", self.delays)?;
        writeln!(f)?;
        for figures in self.figures.chunks(MODES_A_TABLE) {
            writeln!(f, "{}\n", self.table(figures))?;
        }
        writeln!(f, "{}", self.verdict())
    }
}

impl Delays {
    pub(crate) fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, u64::MAX, 3).expect("these bounds are sound");
        Self { histogram, least: u64::MAX, most: 0 }
    }

    pub(crate) fn record(&mut self, delay_ms: u64) {
        // An axis by orders of magnitude has no zero.
        let delay_ms = delay_ms.max(1);
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
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
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

/// What `text` says of a mode that was stopped.
fn stop(figures: &Figures, text: fn(&Figures, Stopped) -> String) -> String {
    figures.stopped.map_or_else(|| "-".into(), |stopped| text(figures, stopped))
}

/// The timeouts pending where a mode was stopped, or at the end.
fn left(figures: &Figures) -> u64 {
    figures.fired_in_span + figures.live_at_end - figures.fired_total
}

fn limit(_: &Figures, stopped: Stopped) -> String {
    match stopped.limit {
        Limit::Slower { times, .. } => format!("over {times}x slower"),
        Limit::Time(limit) => format!("over {}", units::time(limit)),
        Limit::Memory(limit) => format!("over {}", units::memory(limit)),
    }
}

/// What took the time or the memory.
fn reason(figures: &Figures, stopped: Stopped) -> String {
    let reason = match stopped.limit {
        Limit::Memory(_) if ROWS_OF_BUCKETS < memory_a_timeout(figures) => "rows of buckets",
        Limit::Memory(_) => "timeouts pending",
        _ if 0 < figures.rounds_waited => "rounds waited",
        _ if 0 < figures.demotions => "demotions",
        _ => "operations",
    };
    reason.into()
}

/// Whether `best` costs less than `other` by more than the noise.
fn is_cheaper(best: &Figures, other: &Figures) -> bool {
    best.ns_per_op * SAME_COST < other.ns_per_op && best.most_ns_per_op < other.least_ns_per_op
}

/// Which of several modes that cost the same to take: the first hierarchical one, as the
/// documentation says, unless another one takes a fraction of the memory.
fn preferred<'a>(same: &[&'a Figures]) -> &'a Figures {
    let smallest =
        least(same.iter().copied(), memory_a_timeout).expect("at least two are the same");
    let small =
        |figures: &&&Figures| memory_a_timeout(figures) <= MUCH_MEMORY * memory_a_timeout(smallest);
    let mut small = same.iter().filter(small);
    small.clone().find(|figures| !figures.mode.is_hashed()).or_else(|| small.next()).expect("one")
}

/// Why to take a mode that costs the same as others.
fn advantage(taken: &Figures, same: &[&Figures]) -> String {
    let largest =
        same.iter().copied().max_by(|a, b| memory_a_timeout(a).total_cmp(&memory_a_timeout(b)));
    match largest {
        Some(largest) if MUCH_MEMORY * memory_a_timeout(taken) < memory_a_timeout(largest) => {
            let (little, much) = (memory(taken), memory(largest));
            format!(": it took {little} of memory a timeout, against {much} for {}", largest.mode)
        }
        _ if !taken.mode.is_hashed() => {
            ": the cost of a hierarchical wheel depends least on the delays".into()
        }
        _ => String::new(),
    }
}

/// What burdened the dearer mode, as far as the wheel counts it.
fn burden(dearer: &Figures, best: &Figures) -> String {
    if best.peak_bytes_per_timeout * MUCH_MEMORY < dearer.peak_bytes_per_timeout {
        let (much, little) = (memory(dearer), memory(best));
        return format!(", which took {much} of memory a timeout instead of {little}");
    }
    match work(dearer) {
        Some(work) => format!(", which {work}"),
        None => String::new(),
    }
}

/// Why a mode was stopped, as far as the wheel counts it.
fn cause(figures: &Figures, stop: Stopped) -> String {
    match stop.limit {
        Limit::Memory(_) => format!(
            ": {} timeouts were pending, with {} of memory each",
            count(figures.peak_live),
            memory(figures)
        ),
        Limit::Slower { .. } | Limit::Time(_) => match work(figures) {
            Some(work) => format!(": it {work}"),
            None => String::new(),
        },
    }
}

/// What a wheel did besides handing out what was due.
fn work(figures: &Figures) -> Option<String> {
    match (figures.rounds_waited, figures.demotions) {
        (0, 0) => None,
        (0, demotions) => Some(format!("demoted timeouts {} times", count(demotions))),
        (rounds, _) => Some(format!("left timeouts waiting a round {} times", count(rounds))),
    }
}

/// What speaks against the mode to be taken.
fn reservation(taken: &Figures, all: &[&Figures]) -> String {
    match least(all.iter().copied(), longest_call) {
        Some(shortest) if longest_call(shortest) * SHORTER_CALL < longest_call(taken) => format!(
            "; its longest call took {}, against {} for {}, and `expire_bounded` makes calls shorter",
            call(taken.max_call_ns),
            call(shortest.max_call_ns),
            shortest.mode,
        ),
        _ => String::new(),
    }
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

fn memory_a_timeout(figures: &Figures) -> f64 {
    figures.peak_bytes_per_timeout
}

fn memory(figures: &Figures) -> String {
    units::bytes(figures.peak_bytes_per_timeout)
}

fn cost(figures: &Figures) -> String {
    units::duration(figures.ns_per_op)
}

/// The cheapest and the dearest repetition.
fn spread(figures: &Figures) -> String {
    units::range(figures.least_ns_per_op, figures.most_ns_per_op)
}

fn percent(share: f64) -> String {
    format!("{} %", (share * 100.0).floor())
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

/// So many times the memory means caches that miss.
const MUCH_MEMORY: f64 = 4.0;

/// A timeout takes some 40 bytes, and the first ones of a wheel a few times that; with more, most of
/// the memory holds buckets.
const ROWS_OF_BUCKETS: f64 = 200.0;

/// As many as fit in 80 columns.
const MODES_A_TABLE: usize = 4;

const HEAD: [table::Row<'static, Figures>; 1] = [("", &|figures| figures.mode.to_string())];

const ROWS: [table::Row<'static, Figures>; 22] = [
    ("cost per operation", &cost),
    ("  of 3 repetitions", &spread),
    ("longest call", &|figures| call(figures.max_call_ns)),
    ("p99.9 of calls", &|figures| call(figures.p999_ns)),
    ("p99 of calls", &|figures| call(figures.p99_ns)),
    ("p50 of calls", &|figures| call(figures.p50_ns)),
    ("peak memory a timeout", &memory),
    ("buckets visited", &|figures| count(figures.buckets_visited)),
    ("demotions", &|figures| count(figures.demotions)),
    ("rounds waited", &|figures| count(figures.rounds_waited)),
    ("scheduled", &|figures| count(figures.scheduled)),
    ("  while pending", &|figures| count(figures.replaced)),
    ("rescheduled", &|figures| count(figures.rescheduled)),
    ("  when gone", &|figures| count(figures.late_reschedules)),
    ("cancelled", &|figures| count(figures.cancelled)),
    ("  when gone", &|figures| count(figures.late_cancels)),
    ("peak pending", &|figures| count(figures.peak_live)),
    ("fired in the span", &|figures| count(figures.fired_in_span)),
    ("pending at its end", &|figures| count(figures.live_at_end)),
    ("fired in all", &|figures| count(figures.fired_total)),
    ("early", &|figures| count(figures.early)),
    ("latest, in ticks", &|figures| count(figures.max_late_ticks)),
];

#[cfg(test)]
mod tests {
    use super::{Delays, Report};
    use crate::replay::limits::{Limit, Stopped};
    use crate::replay::run::Figures;
    use std::time::Duration;

    /// What cache-twitter52 gave in five runs; in each of them the sentence once said to take
    /// hashed:512, against the README.
    #[test]
    fn costs_within_the_noise_are_no_difference_and_get_the_advice_of_the_readme() {
        for [hierarchical, small, large] in [
            [(68.3, 826_000), (66.7, 111_000), (68.7, 251_000)],
            [(55.5, 854_000), (59.9, 101_000), (54.5, 229_000)],
            [(67.3, 1_250_000), (66.6, 40_500), (67.0, 342_000)],
            [(72.1, 1_200_000), (67.8, 46_000), (72.7, 310_000)],
            [(64.1, 1_180_000), (61.5, 43_600), (64.7, 310_000)],
        ] {
            let report = report(Vec::from([
                figures("hierarchical:64", hierarchical),
                figures("hashed:512", small),
                figures("hashed:65536", large),
            ]));
            let verdict = report.verdict();
            assert!(verdict.starts_with("No difference between hierarchical:64, "), "{verdict}");
            assert!(verdict.contains(" Take hierarchical:64: "), "{verdict}");
            assert!(verdict.contains("its longest call took "), "{verdict}");
            assert!(!verdict.contains("best"), "{verdict}");
        }
    }

    #[test]
    fn a_difference_counts_if_it_is_over_a_quarter_and_the_repetitions_are_apart() {
        let best = "hashed:512 suits this trace best: 50 ns per operation, against ";
        for (cost, least, is_best) in
            [(100.0, 90.0, true), (60.0, 59.0, false), (100.0, 51.0, false), (63.0, 62.0, true)]
        {
            let mut dearer = figures("hierarchical:64", (cost, 900));
            dearer.least_ns_per_op = least;
            let report = report(Vec::from([dearer, figures("hashed:512", (50.0, 900))]));
            assert_eq!(report.verdict().starts_with(best), is_best, "{}", report.verdict());
        }
    }

    #[test]
    fn a_stopped_mode_does_not_suit_however_little_an_operation_cost() {
        let mut stopped = figures("hashed:512", (1.0, 900));
        stopped.ops = 30_000;
        stopped.rounds_waited = 1_234_567;
        let than = "hierarchical:64".parse().unwrap();
        stopped.stopped = Some(stop(Limit::Slower { times: 20, than }));
        let report = report(Vec::from([
            stopped,
            figures("hierarchical:64", (50.0, 900)),
            figures("hierarchical:256", (100.0, 900)),
        ]));
        let verdict = report.verdict();
        let (choice, stopped) = verdict.split_once('\n').unwrap();
        assert!(choice.starts_with("hierarchical:64 suits this trace best: "), "{choice}");
        assert_eq!(
            stopped,
            "hashed:512 does not suit this trace: it was stopped after 30 % of the operations, when \
             it was over 20 times slower than hierarchical:64: it left timeouts waiting a round \
             1,234,567 times.",
        );
    }

    #[test]
    fn memory_that_is_not_of_timeouts_is_of_rows_of_buckets() {
        for (bytes, reason) in [(4450.0, "rows of buckets"), (50.0, "timeouts pending")] {
            let mut stopped = figures("hashed:65536", (60.0, 900));
            stopped.peak_bytes_per_timeout = bytes;
            stopped.stopped = Some(stop(Limit::Memory(2 << 30)));
            let report = report(Vec::from([stopped, figures("hierarchical:64", (50.0, 900))]));
            let table = report.to_string();
            assert!(table.contains(reason) && table.contains("over 2.0 GiB"), "{table}");
            let verdict = report.verdict();
            assert!(verdict.starts_with("Only hierarchical:64 came to the end"), "{verdict}");
            let stopped = "hashed:65536 does not suit this trace: it was stopped after all \
                           operations, with 600 timeouts still pending, when it was over the limit \
                           of 2.0 GiB";
            assert!(verdict.contains(stopped), "{verdict}");
        }
    }

    #[test]
    fn of_modes_that_cost_the_same_one_with_a_fraction_of_the_memory_is_taken() {
        let mut large = figures("hierarchical:64", (50.0, 900));
        large.peak_bytes_per_timeout = 400.0;
        let report = report(Vec::from([large, figures("hashed:512", (50.0, 900))]));
        let verdict = report.verdict();
        assert!(
            verdict.contains("Take hashed:512: it took 50 B of memory a timeout, against 400 B"),
            "{verdict}"
        );
    }

    fn report(figures: Vec<Figures>) -> Report {
        Report {
            trace: "a trace".into(),
            tick: Default::default(),
            operations: 100_000,
            is_whole: true,
            span_ms: 1_000,
            gaps: Default::default(),
            delays: Delays::new(),
            figures,
        }
    }

    fn stop(limit: Limit) -> Stopped {
        Stopped { limit, time: Duration::from_secs(1), memory: 1 << 20 }
    }

    /// Of a mode whose operations cost so much, and whose longest call took so long.
    fn figures(mode: &str, (ns_per_op, max_call_ns): (f64, u64)) -> Figures {
        Figures {
            mode: mode.parse().unwrap(),
            stopped: None,
            ops: 100_000,
            scheduled: 100_000,
            rescheduled: 0,
            cancelled: 0,
            fired_in_span: 99_000,
            live_at_end: 1_000,
            fired_total: 99_400,
            replaced: 0,
            late_cancels: 0,
            late_reschedules: 0,
            early: 0,
            max_late_ticks: 0,
            ns_per_op,
            least_ns_per_op: ns_per_op * 0.98,
            most_ns_per_op: ns_per_op * 1.05,
            max_call_ns,
            p50_ns: 10,
            p99_ns: 100,
            p999_ns: 500,
            tail_ns: Vec::new(),
            buckets_visited: 1,
            demotions: 0,
            rounds_waited: 0,
            peak_bytes_per_timeout: 50.0,
            peak_live: 1_000,
        }
    }
}
