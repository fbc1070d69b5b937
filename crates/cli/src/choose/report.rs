//! `Choice`: what a search found, with a recommendation, as a table and as JSON.

use super::score::{self, LITTLE_MEMORY, SHORT_CALL};
use super::search::{Candidate, Figures, Options};
use crate::replay::{Gaps, Tick, as_text, units};
use crate::table;
use indicatif::HumanCount;
use serde::Serialize;
use std::fmt;
use std::io;
use std::time::Duration;
use tickwheel::Mode;

/// What a search found out.
///
/// As text it is a table for people, with a recommendation and a line to paste.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Choice {
    /// The name of the trace: of a file, without its folder.
    pub trace: String,
    /// Operations read.
    pub operations: u64,
    /// Whether these are all operations of the trace.
    pub is_whole: bool,
    /// Whether there was time to measure until the figures of the repetitions agreed.
    pub is_settled: bool,
    /// From the first operation to the last, in ms.
    pub span_ms: u64,
    /// What is not in the trace though it happened.
    pub gaps: Gaps,
    /// What was searched.
    pub options: Options,
    /// All configurations, tick by tick.
    pub candidates: Vec<Candidate>,
}

impl Choice {
    /// Returns the configuration to take; None if none came to the end of the trace.
    ///
    /// It is the default if nothing scores better by more than 5 % beyond the spread. Else it is
    /// the configuration with the best score, or the default mode at the shortest tick that scores as
    /// well and better than the default by as much.
    #[must_use]
    pub fn recommended(&self) -> Option<&Candidate> {
        let best = self.best()?;
        let default = self.default();
        let is_over = |a: &Candidate, b: &Figures| {
            a.figures.as_ref().is_none_or(|a| a.score.is_clearly_over(&b.score, AS_GOOD))
        };
        // The ticks ascend, and the default comes first.
        let taken = self.measured().find(|(candidate, figures)| {
            candidate.mode == Mode::default()
                && !is_over(candidate, best.1)
                && default.is_none_or(|default| default == *candidate || is_over(default, figures))
        });
        Some(taken.unwrap_or(best).0)
    }

    /// Returns the default mode at the shortest tick that was searched, which is the default tick
    /// unless the timeouts must be less late than that.
    #[must_use]
    pub fn default(&self) -> Option<&Candidate> {
        self.candidates.iter().find(|candidate| candidate.mode == Mode::default())
    }

    /// Returns the configurations that no other beats in everything: the recommended one first,
    /// then the default, then by score.
    ///
    /// A difference within the noise is none, and neither is one of memory or calls too small to
    /// count in the score.
    #[must_use]
    pub fn unbeaten(&self) -> Vec<&Candidate> {
        let Some(recommended) = self.recommended() else { return Vec::new() };
        let mut by_score: Vec<_> = self.measured().collect();
        by_score.sort_by(|a, b| a.1.score.median.total_cmp(&b.1.score.median));
        let first = [Some(recommended), self.default()];
        let first = first.into_iter().flatten().filter_map(|candidate| candidate.measured());
        let mut unbeaten: Vec<(&Candidate, &Figures)> = Vec::new();
        for (candidate, figures) in first.chain(by_score) {
            let is_default = self.default() == Some(candidate);
            let is_there = unbeaten.iter().any(|(other, _)| *other == candidate);
            let is_beaten = unbeaten.iter().any(|(_, other)| is_nowhere_better(figures, other));
            if !is_there && (is_default || !is_beaten) {
                unbeaten.push((candidate, figures));
            }
        }
        unbeaten.into_iter().map(|(candidate, _)| candidate).collect()
    }

    /// Returns the code that makes a timer of the recommended configuration.
    #[must_use]
    pub fn code(&self) -> Option<String> {
        self.recommended().map(|candidate| builder(candidate.mode, candidate.tick))
    }

    /// Says in two sentences which configuration to take, and why.
    #[must_use]
    pub fn reason(&self) -> String {
        let (Some(taken), Some(default)) =
            (self.recommended().and_then(Candidate::measured), self.default())
        else {
            return "No configuration came to the end of the trace. `--limit-time` and \
                    `--max-memory` give them more."
                .into();
        };
        if self.operations < FEWEST_OPERATIONS {
            return format!(
                "Only {}: too few to tell configurations apart. Take the default, {}.",
                units::operations(self.operations),
                name(default),
            );
        }
        if taken.0 == default {
            return format!(
                "Take the default, {}: nothing that was searched scores better by more than 5 % \
                 beyond the spread. {}",
                name(default),
                self.stakes(taken.1),
            );
        }
        match default.figures.as_ref() {
            Some(figures) => format!(
                "Take {}: it scores {}, which is {} % less than the default, {}. {}",
                name(taken.0),
                units::duration(taken.1.score.median),
                ((1.0 - taken.1.score.median / figures.score.median) * 100.0).round(),
                name(default),
                self.advantage(taken.1, figures),
            ),
            None => format!(
                "Take {}: it has the best score, {}. The default, {}, {}.",
                name(taken.0),
                units::duration(taken.1.score.median),
                name(default),
                match default.stopped {
                    Some(limit) => format!("was stopped when it was {limit}"),
                    None => "was not measured for lack of time".into(),
                },
            ),
        }
    }

    /// Says in a sentence what the score is.
    #[must_use]
    pub fn scoring(&self) -> String {
        score::describe(self.options.wake_cost)
    }

    /// Writes one JSON object.
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
            is_settled: bool,
            span_ms: u64,
            recommended: Option<Name>,
            default: Option<Name>,
            reason: String,
            code: Option<String>,
            score: String,
            max_lateness_ns: u64,
            max_memory_bytes: u64,
            wake_cost_ns: u64,
            unbeaten: Vec<Name>,
            candidates: &'a [Candidate],
        }
        #[derive(Serialize)]
        struct Name {
            #[serde(serialize_with = "as_text")]
            mode: Mode,
            #[serde(serialize_with = "as_text")]
            tick: Tick,
        }
        let name = |candidate: &Candidate| Name { mode: candidate.mode, tick: candidate.tick };
        let json = Json {
            trace: &self.trace,
            operations: self.operations,
            is_whole: self.is_whole,
            is_settled: self.is_settled,
            span_ms: self.span_ms,
            recommended: self.recommended().map(name),
            default: self.default().map(name),
            reason: self.reason(),
            code: self.code(),
            score: self.scoring(),
            max_lateness_ns: nanoseconds(self.options.max_lateness),
            max_memory_bytes: self.options.max_memory,
            wake_cost_ns: nanoseconds(self.options.wake_cost),
            unbeaten: self.unbeaten().into_iter().map(name).collect(),
            candidates: &self.candidates,
        };
        serde_json::to_writer(&mut *output, &json)?;
        writeln!(output)
    }

    /// The configurations that came to the end, with what they cost.
    fn measured(&self) -> impl Iterator<Item = (&Candidate, &Figures)> {
        self.candidates.iter().filter_map(Candidate::measured)
    }

    fn best(&self) -> Option<(&Candidate, &Figures)> {
        self.measured().min_by(|a, b| a.1.score.median.total_cmp(&b.1.score.median))
    }

    /// Says what another choice would cost, where the default is as good as any.
    fn stakes(&self, taken: &Figures) -> String {
        let slow = self.candidates.iter().find(|candidate| candidate.stopped.is_some());
        if let Some((candidate, limit)) = slow.and_then(|slow| Some((slow, slow.stopped?))) {
            return format!(
                "Others can cost much: {} was stopped when it was {limit}.",
                name(candidate)
            );
        }
        let worst = self.measured().max_by(|a, b| a.1.score.median.total_cmp(&b.1.score.median));
        match worst {
            Some((worst, figures)) if figures.score.is_clearly_over(&taken.score, LITTLE_STAKE) => {
                format!(
                    "Among the others the choice matters: {} scores {} times as much.",
                    name(worst),
                    (figures.score.median / taken.score.median * 10.0).round() / 10.0,
                )
            }
            _ => {
                "The choice does not matter: all other configurations score about the same.".into()
            }
        }
    }

    /// Says what the better score comes from most of all.
    fn advantage(&self, taken: &Figures, default: &Figures) -> String {
        let wake_cost = self.options.wake_cost.as_nanos() as f64 / self.operations.max(1) as f64;
        let base = default.cpu_ns.median + default.wakeups as f64 * wake_cost;
        let doublings = |free: u64, default: u64, taken: u64| {
            let doublings = (default.max(free) as f64 / taken.max(free) as f64).log2();
            (score::DOUBLING.powf(doublings) - 1.0) * base
        };
        let memory = doublings(LITTLE_MEMORY, default.memory_bytes, taken.memory_bytes);
        let call =
            doublings(SHORT_CALL.as_nanos() as u64, default.longest_call_ns, taken.longest_call_ns);
        let gains: [(f64, Gain); 4] = [
            (default.cpu_ns.median - taken.cpu_ns.median, |a, b| {
                let cpu = |figures: &Figures| units::duration(figures.cpu_ns.median);
                format!("takes {} of CPU time per operation instead of {}", cpu(a), cpu(b))
            }),
            ((default.wakeups as f64 - taken.wakeups as f64) * wake_cost, |a, b| {
                let count = |figures: &Figures| HumanCount(figures.wakeups);
                format!("wakes up {} times instead of {}", count(a), count(b))
            }),
            (memory, |a, b| {
                let memory = |figures: &Figures| units::memory(figures.memory_bytes);
                format!("holds at most {} instead of {}", memory(a), memory(b))
            }),
            (call, |a, b| {
                let call = |figures: &Figures| units::duration(figures.longest_call_ns as f64);
                format!("takes {} for its longest call instead of {}", call(a), call(b))
            }),
        ];
        let most = gains.iter().max_by(|a, b| a.0.total_cmp(&b.0)).expect("there are four");
        let least = gains.iter().min_by(|a, b| a.0.total_cmp(&b.0)).expect("there are four");
        let price = match least {
            (loss, say) if *loss < -PRICE * base => format!("; but it {}", say(taken, default)),
            _ => String::new(),
        };
        format!("Above all it {}{price}.", (most.1)(taken, default))
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = if self.is_whole { "" } else { "the first " };
        let operations = units::operations(self.operations);
        let span = units::milliseconds(self.span_ms);
        writeln!(f, "{}: {whole}{operations} over {span}", self.trace)?;
        let stopped = self.candidates.iter().filter(|candidate| candidate.stopped.is_some());
        let (all, stopped, done) =
            (self.candidates.len(), stopped.count(), self.measured().count());
        write!(f, "{all} configurations searched")?;
        if 0 < stopped {
            write!(f, ", {stopped} of them stopped early")?;
        }
        if done + stopped < all {
            write!(f, ", {} of them not measured for lack of time", all - done - stopped)?;
        }
        let unbeaten: Vec<_> =
            self.unbeaten().into_iter().filter_map(Candidate::measured).collect();
        if !unbeaten.is_empty() {
            write!(
                f,
                "; beside the recommended one and the default, those that have an advantage"
            )?;
        }
        writeln!(f, ":\n")?;
        for candidates in unbeaten.chunks(CANDIDATES_A_TABLE) {
            writeln!(f, "{}\n", table::of(candidates, rows()))?;
        }
        writeln!(f, "{}\n", self.scoring())?;
        if !self.is_settled && !unbeaten.is_empty() {
            writeln!(
                f,
                "The figures are rough, because the machine is busy or the time was over: \
                 `--limit-time` gives more.\n"
            )?;
        }
        writeln!(f, "{}", self.reason())?;
        match self.code() {
            Some(code) => writeln!(f, "\n    {code}"),
            None => Ok(()),
        }
    }
}

impl Candidate {
    /// The configuration with what it costs, if it came to the end.
    fn measured(&self) -> Option<(&Self, &Figures)> {
        self.figures.as_ref().map(|figures| (self, figures))
    }
}

/// Whether `a` has no advantage over `b` that counts.
fn is_nowhere_better(a: &Figures, b: &Figures) -> bool {
    let at_least = |number: u64, free: u64| number.max(free) as f64;
    let is_much_less = |a: f64, b: f64| a * COUNTS < b;
    let (memory, call) = (LITTLE_MEMORY, SHORT_CALL.as_nanos() as u64);
    let advantages = [
        b.cpu_ns.is_clearly_over(&a.cpu_ns, COUNTS),
        is_much_less(at_least(a.memory_bytes, memory), at_least(b.memory_bytes, memory)),
        // Calls differ more from look to look than a mean does.
        at_least(a.longest_call_median_ns, call) * SHORTER_CALL < at_least(b.longest_call_ns, call),
        is_much_less(a.wakeups as f64, b.wakeups as f64),
        is_much_less(a.max_lateness_ns as f64, b.max_lateness_ns as f64),
    ];
    !advantages.contains(&true)
}

pub(crate) fn name(candidate: &Candidate) -> String {
    format!("{} at a tick of {}", candidate.mode, candidate.tick)
}

/// The code that makes a timer, with what differs from the default.
fn builder(mode: Mode, tick: Tick) -> String {
    let mut code = String::from("Timer::builder()");
    if mode.is_hashed() {
        code += &format!(".mode(Mode::hashed({})?)", mode.buckets());
    } else if mode != Mode::default() {
        code += &format!(".mode(Mode::hierarchical_with({})?)", mode.buckets());
    }
    if tick != Tick::default() {
        let (length, nanoseconds) = (tick.length(), tick.length().as_nanos());
        let (unit, number) = match nanoseconds {
            _ if nanoseconds % 1_000_000_000 == 0 => ("secs", u128::from(length.as_secs())),
            _ if nanoseconds % 1_000_000 == 0 => ("millis", length.as_millis()),
            _ if nanoseconds % 1_000 == 0 => ("micros", length.as_micros()),
            _ => ("nanos", nanoseconds),
        };
        code += &format!(".tick(Duration::from_{unit}({number}))");
    }
    code + ".build()?"
}

/// What the table says of each configuration.
fn rows<'a>() -> [table::Row<'a, (&'a Candidate, &'a Figures)>; 12] {
    [
        ("", &|(candidate, _)| candidate.mode.to_string()),
        ("tick", &|(candidate, _)| candidate.tick.to_string()),
        ("score", &|(_, figures)| units::duration(figures.score.median)),
        ("  of 3 repetitions", &|(_, figures)| {
            units::range(figures.score.least, figures.score.most)
        }),
        ("CPU time per operation", &|(_, figures)| units::duration(figures.cpu_ns.median)),
        ("  of 3 repetitions", &|(_, figures)| {
            units::range(figures.cpu_ns.least, figures.cpu_ns.most)
        }),
        ("  rounds", &|(_, figures)| figures.rounds.to_string()),
        ("longest call", &|(_, figures)| longest_call(figures)),
        ("most memory", &|(_, figures)| units::memory(figures.memory_bytes)),
        ("wake-ups", &|(_, figures)| HumanCount(figures.wakeups).to_string()),
        ("late by the tick, mean", &|(_, figures)| {
            units::duration(figures.mean_lateness_ns as f64)
        }),
        ("late by the tick, most", &|(_, figures)| units::duration(figures.max_lateness_ns as f64)),
    ]
}

fn nanoseconds(duration: Duration) -> u64 {
    duration.as_nanos().try_into().unwrap_or(u64::MAX)
}

pub(crate) fn longest_call(figures: &Figures) -> String {
    let (least, median) = (figures.longest_call_ns, figures.longest_call_median_ns);
    match least == median {
        true => units::duration(least as f64),
        false => units::range(least as f64, median as f64),
    }
}

/// A configuration that scores up to so many times as much as the best is as good.
const AS_GOOD: f64 = 1.05;

/// If no configuration scores over so many times as much as another, the choice does not matter.
const LITTLE_STAKE: f64 = 1.25;

/// A difference by this factor is an advantage.
const COUNTS: f64 = 1.05;

/// As a difference of the longest call is.
const SHORTER_CALL: f64 = 2.0;

/// What the recommended configuration does worse than the default is said if it adds so much to the
/// score.
const PRICE: f64 = 0.05;

/// With fewer, costs are those of a wheel that begins.
const FEWEST_OPERATIONS: u64 = 1000;

/// As many as fit in 80 columns.
const CANDIDATES_A_TABLE: usize = 4;

/// Says what one configuration has instead of what another has.
type Gain = fn(&Figures, &Figures) -> String;

#[cfg(test)]
mod tests {
    use super::{Choice, builder};
    use crate::choose::score::Spread;
    use crate::choose::search::{Candidate, Figures, Options};
    use crate::replay::Limit;
    use std::time::Duration;
    use tickwheel::Mode;

    #[test]
    fn the_default_is_recommended_unless_another_scores_better_beyond_the_spread() {
        for (score, spread, is_taken) in [
            (100.0, 1.0, false),
            (97.0, 1.0, false),
            (90.0, 1.0, true),
            (90.0, 1.2, false),
            (50.0, 1.2, true),
        ] {
            let choice = choice(Vec::from([
                candidate("hierarchical:64", "1ms", (100.0, spread)),
                candidate("hashed:512", "1ms", (score, spread)),
            ]));
            let taken = choice.recommended().unwrap().mode;
            assert_eq!(taken == "hashed:512".parse().unwrap(), is_taken, "{score} {spread}");
        }
    }

    #[test]
    fn the_default_mode_is_recommended_at_the_shortest_tick_that_is_as_good() {
        let choice = choice(Vec::from([
            candidate("hierarchical:64", "1ms", (100.0, 1.0)),
            candidate("hierarchical:64", "10ms", (50.0, 1.0)),
            candidate("hashed:512", "10ms", (49.0, 1.0)),
            candidate("hierarchical:64", "100ms", (48.5, 1.0)),
        ]));
        let near = self::choice(Vec::from([
            candidate("hierarchical:64", "1ms", (108.0, 1.0)),
            candidate("hierarchical:64", "10ms", (106.0, 1.0)),
            candidate("hierarchical:16", "10ms", (102.0, 1.0)),
        ]));
        assert_eq!(near.recommended(), near.candidates.last(), "10 ms alone would gain nothing");
        let reason = "Take hierarchical:64 at a tick of 10 ms: it scores 50 ns, which is 50 % less \
                      than the default, hierarchical:64 at a tick of 1 ms. Above all it takes 50 \
                      ns of CPU time per operation instead of 100 ns.";
        assert_eq!(choice.reason(), reason);
        let code = "Timer::builder().tick(Duration::from_millis(10)).build()?";
        assert_eq!(choice.code().as_deref(), Some(code));
    }

    #[test]
    fn a_choice_that_does_not_matter_is_called_so() {
        let default = || candidate("hierarchical:64", "1ms", (100.0, 1.0));
        let alike = candidate("hashed:512", "1ms", (110.0, 1.0));
        let says = |candidates| choice(candidates).reason();
        assert!(says(Vec::from([default(), alike.clone()])).ends_with(
            "The choice does not matter: all other configurations score about the same."
        ));
        let dear = candidate("hashed:64", "1ms", (320.0, 1.0));
        assert!(says(Vec::from([default(), alike, dear])).ends_with(
            "Among the others the choice matters: hashed:64 at a tick of 1 ms scores 3.2 times as \
             much."
        ));
        let mut stopped = candidate("hashed:64", "1ms", (1.0, 1.0));
        stopped.figures = None;
        stopped.stopped = Some(Limit::Slower { times: 5, than: Mode::default() });
        assert!(says(Vec::from([default(), stopped])).ends_with(
            "Others can cost much: hashed:64 at a tick of 1 ms was stopped when it was over 5 \
             times slower than hierarchical:64."
        ));
    }

    #[test]
    fn the_price_of_a_choice_is_said() {
        let mut frugal = candidate("hashed:512", "1ms", (40.0, 1.0));
        let figures = frugal.figures.as_mut().unwrap();
        figures.memory_bytes = 64 << 20;
        figures.wakeups = 10;
        let choice = choice(Vec::from([candidate("hierarchical:64", "1ms", (100.0, 1.0)), frugal]));
        let reason = choice.reason();
        let price = "Above all it takes 40 ns of CPU time per operation instead of 100 ns; but it \
                     holds at most 64.0 MiB instead of 4.0 KiB.";
        assert!(reason.ends_with(price), "{reason}");
    }

    #[test]
    fn what_another_beats_in_everything_is_not_shown() {
        let mut small = candidate("hashed:64", "1ms", (200.0, 1.0));
        small.figures.as_mut().unwrap().wakeups = 10;
        let choice = choice(Vec::from([
            candidate("hierarchical:64", "1ms", (100.0, 1.0)),
            candidate("hierarchical:256", "1ms", (150.0, 1.0)),
            small,
            candidate("hashed:512", "1ms", (50.0, 1.0)),
        ]));
        let unbeaten: Vec<_> =
            choice.unbeaten().iter().map(|candidate| candidate.mode.to_string()).collect();
        assert_eq!(unbeaten, ["hashed:512", "hierarchical:64", "hashed:64"]);
    }

    /// Checks that code compiles, and that it is what the command prints.
    macro_rules! assert_pasted {
        ($mode:literal, $tick:literal, $code:expr) => {
            #[expect(dead_code)]
            fn compiles() -> Result<(), Box<dyn std::error::Error>> {
                use tickwheel::Timer;
                let _: Timer = $code;
                Ok(())
            }
            let squeezed = |code: &str| code.split_whitespace().collect::<String>();
            let code = builder($mode.parse().unwrap(), $tick.parse().unwrap());
            assert_eq!(squeezed(&code), squeezed(stringify!($code)));
        };
    }

    #[test]
    fn the_line_to_paste_compiles() {
        assert_pasted!("hierarchical", "1ms", Timer::builder().build()?);
    }

    #[test]
    fn the_line_to_paste_compiles_with_a_mode_and_a_tick() {
        assert_pasted!(
            "hashed:4096",
            "10ms",
            Timer::builder().mode(Mode::hashed(4096)?).tick(Duration::from_millis(10)).build()?
        );
    }

    #[test]
    fn the_line_to_paste_compiles_with_other_sizes_and_units() {
        assert_pasted!(
            "hierarchical:256",
            "1500us",
            Timer::builder()
                .mode(Mode::hierarchical_with(256)?)
                .tick(Duration::from_micros(1500))
                .build()?
        );
    }

    fn choice(candidates: Vec<Candidate>) -> Choice {
        Choice {
            trace: "a trace".into(),
            operations: 100_000,
            is_whole: true,
            is_settled: true,
            span_ms: 1_000,
            gaps: Default::default(),
            options: Options::default(),
            candidates,
        }
    }

    /// One that scores so much, by so many times more or less.
    fn candidate(mode: &str, tick: &str, (median, spread): (f64, f64)) -> Candidate {
        let spread = Spread { least: median / spread, median, most: median * spread };
        Candidate {
            mode: mode.parse().unwrap(),
            tick: tick.parse().unwrap(),
            stopped: None,
            figures: Some(Figures {
                score: spread,
                cpu_ns: spread,
                rounds: 12,
                longest_call_ns: 20_000,
                longest_call_median_ns: 30_000,
                memory_bytes: 4096,
                wakeups: 100,
                fired: 50_000,
                mean_lateness_ns: 0,
                max_lateness_ns: 0,
            }),
        }
    }
}
