//! The sentences: which configuration to take, and why, for every command that says so.

use super::fit::Unfit;
use super::judge::{CONFIDENCE, COUNTS, Finding, Interval};
use super::show::name;
use super::{Candidate, Configurations, Driver, HOPELESS, Limit, MOST_ROUNDS, Measured, Study};
use crate::tick::Tick;
use crate::units::{self, count};
use tickwheel::Mode;

impl Study {
    /// Says which configuration to take and why, or that the trace or the rounds cannot tell.
    #[must_use]
    pub fn verdict(&self) -> String {
        let (headline, details) = self.sentences();
        headline + &details
    }

    /// Says the verdict in one short sentence, the first.
    #[must_use]
    pub fn headline(&self) -> String {
        self.sentences().0
    }

    /// Says the verdict without its first sentence.
    pub(crate) fn details(&self) -> String {
        self.sentences().1.trim_start().into()
    }

    /// Whether the trace and the rounds say which configuration to take, or that no other costs
    /// much less.
    #[must_use]
    pub fn is_known(&self) -> bool {
        !matches!(self.answer(), Answer::Unfit | Answer::Unmeasured | Answer::Unknown(_))
            && self.baseline().is_some()
    }

    /// Returns the first sentence, and the others.
    fn sentences(&self) -> (String, String) {
        let (headline, mut details) = match self.baseline() {
            Some(baseline) => self.choice(baseline),
            None => {
                let is_full = |it: &Candidate| matches!(it.stopped, Some(Limit::Memory(_)));
                let advice = match self.candidates.iter().any(is_full) {
                    true => "`--max-memory` gives them more, and",
                    false => "Counting took too long:",
                };
                (
                    "No configuration came to the end of the trace.".into(),
                    format!(" {advice} `--operations` reads less of the trace."),
                )
            }
        };
        if matches!(self.options.configurations, Configurations::Given { .. }) {
            for candidate in &self.candidates {
                let Some(limit) = candidate.stopped else { continue };
                let mode = candidate.mode;
                details += &format!(
                    "\n{mode} does not suit this trace: it was stopped when it was {limit}{}.",
                    burden(candidate)
                );
            }
        }
        (headline, details)
    }

    /// Returns the sentences about the configurations that came to the end.
    fn choice(&self, baseline: &Candidate) -> (String, String) {
        let title = self.title(baseline);
        let default = match self.is_default(baseline) {
            true => {
                // The line to paste leaves it, because it lets timeouts of a millisecond fire
                // together.
                let own = match self.options.driver {
                    Driver::Timer => ", not at its own, which is finer",
                    Driver::Wheel => "",
                };
                format!(" The default is {}{own}.", name(baseline).replacen(" at", ", here at", 1))
            }
            false => String::new(),
        };
        let (rounds, less) = (count(self.rounds as u64, "round"), COUNTS * 100.0);
        let sure = format!(" The confidence is {} % after {rounds}.{default}", CONFIDENCE * 100.0);
        // One for both, because where these rounds cannot tell, those of another run often can.
        let kept = format!("no mode that was measured surely costs over {less} % less");
        let (tick, stakes) = (self.tick_reason(baseline), self.stakes());
        let (reason, details) = match self.answer() {
            Answer::Unfit => {
                let reasons: Vec<_> = self.unfit.iter().map(Unfit::name).collect();
                let advice: String =
                    self.unfit.iter().map(|unfit| format!(" {}.", unfit.advice())).collect();
                return (
                    format!("Cannot tell: {}.", reasons.join(", and ")),
                    format!("{advice} Take {title} until then.{default}"),
                );
            }
            Answer::Unmeasured => {
                let measured = match self.rounds {
                    0 => "nothing was measured".into(),
                    number => format!(
                        "{} measured within {} of CPU time, which is too little",
                        units::were(number as u64, "round"),
                        units::time(self.options.time),
                    ),
                };
                return (
                    format!("Cannot tell: {measured}."),
                    format!(
                        " `--limit-time` gives more, and `--operations` reads less of the trace. \
                         Take {title} until then.{default}{tick}"
                    ),
                );
            }
            Answer::Better(taken, sure_one) => {
                let quotient = sure_one.quotient().map_or_else(String::new, self::less);
                let reason = match taken == sure_one {
                    true => format!("it costs {quotient} less than {title}"),
                    false => format!(
                        "it costs about the same as {}, which costs {quotient} less than {title}",
                        sure_one.mode
                    ),
                };
                return (
                    format!("Take {}: {reason}.", name(taken)),
                    format!(
                        "{sure}{}{}{tick}{}",
                        advantage(taken, baseline),
                        self.equals(taken, sure_one),
                        self.caution()
                    ),
                );
            }
            Answer::Alone if self.candidates.len() == 1 => {
                ("nothing else was run, to compare it with".into(), default)
            }
            Answer::Alone => (
                format!("nothing else came to the end of the trace at a tick of {}", baseline.tick),
                default,
            ),
            Answer::Cheapest => (
                format!(
                    "all others that came to the end cost over {:.0} % more by counted work",
                    (HOPELESS - 1.0) * 100.0
                ),
                default,
            ),
            Answer::Same => (kept, format!(" None of them does.{sure}")),
            Answer::Unknown(unknown) => {
                let names = list(unknown.iter().map(|it| it.mode.to_string()), "or");
                let is_last = self.rounds == MOST_ROUNDS;
                let longer = if is_last { "" } else { ", or a longer `--limit-time`," };
                (
                    kept,
                    format!(
                        " {rounds} cannot tell whether {names} costs over {less} % less.{} Fewer \
                         programs beside it{longer} would help.{default}",
                        unknown.into_iter().map(beside).collect::<String>()
                    ),
                )
            }
        };
        let details = format!("{details}{tick}{stakes}{}", self.caution());
        (format!("Take {title}: {reason}."), details)
    }

    /// Returns what the figures say. Every sentence about the choice follows from this answer.
    fn answer(&self) -> Answer<'_> {
        if !self.unfit.is_empty() {
            return Answer::Unfit;
        }
        if self.at_its_tick().filter(|candidate| candidate.stopped.is_none()).count() <= 1 {
            return Answer::Alone;
        }
        if self.baseline().is_none_or(|baseline| baseline.measured.is_none()) {
            return Answer::Unmeasured;
        }
        if self.others().next().is_none() {
            return Answer::Cheapest;
        }
        let taken = self.recommended().filter(|&taken| Some(taken) != self.baseline());
        if let Some((taken, best)) = taken.zip(self.best()) {
            let is_sure = self.finding(taken) == Finding::Better;
            return Answer::Better(taken, if is_sure { taken } else { best });
        }
        let unknown: Vec<_> = self.with_finding(Finding::Unknown).collect();
        if unknown.is_empty() { Answer::Same } else { Answer::Unknown(unknown) }
    }

    /// Names the configurations that cost about the same as `taken`, but for those that were named;
    /// empty if there is none.
    fn equals(&self, taken: &Candidate, named: &Candidate) -> String {
        let others = self.alike().filter(|&it| it != taken && it != named);
        let others: Vec<_> = others.map(|it| it.mode.to_string()).collect();
        let verb = if others.len() == 1 { "costs" } else { "cost" };
        match list(others.into_iter(), "and") {
            names if names.is_empty() => names,
            names => format!(" {names} {verb} about the same."),
        }
    }

    /// Says for how many timeouts the answer holds; empty unless their number still grows.
    fn caution(&self) -> String {
        self.growing.map_or_else(String::new, |pending| {
            let end = if self.is_whole { "When the trace ends" } else { "After these operations" };
            format!(
                " {end}, {} pending, and their number still grows: the answer holds for about that \
                 many.",
                units::are(pending, "timeout")
            )
        })
    }

    /// Returns the name of a configuration, or that it is the default.
    fn title(&self, candidate: &Candidate) -> String {
        match self.is_default(candidate) {
            true => "the default".into(),
            false => name(candidate),
        }
    }

    fn is_default(&self, candidate: &Candidate) -> bool {
        candidate.mode == Mode::default() && candidate.tick == Tick::default()
    }

    /// Says why the tick is not the shortest; empty if it is, or if the figures read the same.
    fn tick_reason(&self, baseline: &Candidate) -> String {
        let mut same = self.candidates.iter().filter(|other| other.mode == baseline.mode);
        let shortest = same.find(|other| other.stopped.is_none());
        let Some(shortest) = shortest.filter(|shortest| shortest.tick != baseline.tick) else {
            return String::new();
        };
        // The counted score chose the tick, and is more than wake-ups.
        let gain = shortest.figures.counted_score - baseline.figures.counted_score;
        let wakes = |it: &Candidate| self.scale().parts(0.0, &it.figures)[1];
        let reason = match gain / 2.0 < wakes(shortest) - wakes(baseline) {
            true => format!(
                "it wakes up {} instead of {}",
                count(baseline.figures.wakeups, "time"),
                units::number(shortest.figures.wakeups),
            ),
            false => match [baseline, shortest].map(Candidate::counted) {
                [own, other] if own == other => return String::new(),
                [own, other] => format!("its score by counted work is {own} instead of {other}"),
            },
        };
        format!(" The tick is {} because {reason} at {}.", baseline.tick, shortest.tick)
    }

    /// Says what another choice would cost, if the baseline is as good as any; empty if that is not
    /// much.
    fn stakes(&self) -> String {
        let is_hopeless = |it: &&Candidate| matches!(it.stopped, Some(Limit::Work { .. }));
        let stopped = self.at_its_tick().find(is_hopeless);
        let stopped = stopped.and_then(|it| Some((it, it.stopped?)));
        if let (Some((it, limit)), Configurations::Search(_)) =
            (stopped, &self.options.configurations)
        {
            return format!(" Others can cost much: {} was stopped when it was {limit}.", name(it));
        }
        let times = |it: &Candidate| match it.quotient() {
            Some(quotient) => (quotient.median, ""),
            None => (self.times_counted(it), " By counted work,"),
        };
        let done = self.at_its_tick().filter(|other| other.stopped.is_none());
        let worst = done.map(|it| (it, times(it))).max_by(|a, b| a.1.0.total_cmp(&b.1.0));
        match worst {
            Some((worst, (times, by))) if MUCH < times => {
                format!("{by} {} costs {} times as much.", name(worst), units::three_digits(times))
            }
            _ => String::new(),
        }
    }

    /// Returns the code that makes what is recommended.
    #[must_use]
    pub fn code(&self) -> Option<String> {
        let taken = self.recommended()?;
        Some(match self.options.driver {
            Driver::Timer => timer(taken.mode, taken.tick),
            Driver::Wheel => wheel(taken.mode, taken.tick),
        })
    }
}

/// What the figures say about the configurations, one of which came to the end of the trace.
enum Answer<'a> {
    /// The trace cannot tell them apart.
    Unfit,
    /// No other than the baseline came to the end, at its tick.
    Alone,
    /// The time was too short for enough rounds.
    Unmeasured,
    /// All others are hopeless by counted work.
    Cheapest,
    /// The first is better than the baseline, or costs about the same as the second, which is.
    Better(&'a Candidate, &'a Candidate),
    /// None costs much less than the baseline.
    Same,
    /// Each of these might cost less than the baseline.
    Unknown(Vec<&'a Candidate>),
}

/// Says in words one part of the score of a configuration.
type Gain = fn(&Candidate, &Measured) -> String;

/// Says what the lower cost comes from most of all.
fn advantage(taken: &Candidate, baseline: &Candidate) -> String {
    let (Some(own), Some(other)) = (&taken.measured, &baseline.measured) else {
        return String::new();
    };
    let gains: [Gain; 4] = [
        |_, measured| {
            format!("takes {} of CPU time per operation", units::duration(measured.cpu_ns.median))
        },
        |it, _| format!("wakes up {}", count(it.figures.wakeups, "time")),
        |it, _| format!("holds at most {}", units::memory(it.figures.memory_bytes)),
        |it, _| {
            format!("handles {} in its longest call", count(it.figures.longest_call, "timeout"))
        },
    ];
    let gain = |part: usize| other.parts[part] - own.parts[part];
    let Some(part) = (0..gains.len()).max_by(|&a, &b| gain(a).total_cmp(&gain(b))) else {
        return String::new();
    };
    let say = gains[part];
    format!(" Above all it {}, where {} {}.", say(taken, own), baseline.mode, say(baseline, other))
}

/// Says what work a configuration had done until it was stopped, as far as the wheel counts it.
fn burden(candidate: &Candidate) -> String {
    match (candidate.figures.rounds_waited, candidate.figures.demotions) {
        (0, 0) => String::new(),
        (0, demotions) => format!(": it had demoted timeouts {}", count(demotions, "time")),
        (waited, _) => format!(": it had left timeouts waiting a round {}", count(waited, "time")),
    }
}

/// " X costs 0.9 to 1.1 times as much."
fn beside(candidate: &Candidate) -> String {
    candidate.quotient().map_or_else(String::new, |quotient| {
        let [least, most] = [quotient.least, quotient.most].map(units::three_digits);
        format!(" {} costs {least} to {most} times as much.", candidate.mode)
    })
}

/// "12 to 19 %" of a quotient of 0.81 to 0.88, "up to 19 %" of one of 0.81 to nearly 1.
fn less(quotient: Interval) -> String {
    let percent = |quotient: f64| ((1.0 - quotient) * 100.0).round();
    match (percent(quotient.most), percent(quotient.least)) {
        (from, to) if from <= 0.0 => format!("up to {to} %"),
        (from, to) if from < to => format!("{from} to {to} %"),
        (from, _) => format!("{from} %"),
    }
}

/// "X", "X or Y", "X, Y or Z".
fn list(names: impl Iterator<Item = String>, or: &str) -> String {
    let names: Vec<_> = names.collect();
    match names.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} {or} {last}", others.join(", ")),
        _ => names.concat(),
    }
}

/// The code that makes a timer. The default is made as it is, with a tick of its own.
fn timer(mode: Mode, tick: Tick) -> String {
    let mut code = String::from("Timer::builder()");
    if mode != Mode::default() {
        code += &format!(".mode({})", constructor(mode));
    }
    // Without a tick, a hashed timer has the default, and a hierarchical one a finer tick.
    if tick != Tick::default() || mode != Mode::default() && !mode.is_hashed() {
        code += &format!(".tick({})", duration(tick));
    }
    code + ".build()?"
}

/// The code that makes a wheel, and what numbers its ticks.
fn wheel(mode: Mode, tick: Tick) -> String {
    format!("(Wheel::new({}), Ticks::new(Instant::now(), {}))", constructor(mode), duration(tick))
}

fn constructor(mode: Mode) -> String {
    match mode.is_hashed() {
        _ if mode == Mode::default() => "Mode::hierarchical()".into(),
        true => format!("Mode::hashed({})?", mode.buckets()),
        false => format!("Mode::hierarchical_with({})?", mode.buckets()),
    }
}

fn duration(tick: Tick) -> String {
    let length = tick.length().as_nanos();
    let units = [("secs", 1_000_000_000), ("millis", 1_000_000), ("micros", 1_000)];
    let unit = units.into_iter().find(|&(_, unit)| length / unit * unit == length);
    let (name, unit) = unit.unwrap_or(("nanos", 1));
    format!("Duration::from_{name}({})", length / unit)
}

/// Another choice is worth a word if it costs so many times as much.
const MUCH: f64 = 1.25;
