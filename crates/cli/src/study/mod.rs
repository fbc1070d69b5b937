//! Studies a recorded workload: counts what wheels of several configurations do with it, measures
//! what that costs, and says which one to take, or that it cannot tell.
//!
//! ```
//! use tickwheel::Mode;
//! use tickwheel_cli::study::{Configurations, Options, study};
//! use tickwheel_cli::tick::Tick;
//! use tickwheel_cli::trace::Trace;
//!
//! let csv = "time_ms,op,key,delay_ms\n\
//!            0,schedule,1,1000\n\
//!            0,schedule,2,1000\n\
//!            700,cancel,1,\n\
//!            1000,schedule,1,500\n";
//! let trace = Trace::new("example", csv.as_bytes())?;
//! let modes = vec![Mode::hierarchical()];
//! let given = Configurations::Given { modes, tick: Tick::default() };
//! let study = study(trace, &Options { configurations: given, ..Options::default() }, |_| ())?;
//!
//! let figures = &study.candidates[0].figures;
//! assert_eq!((figures.fired_in_span, figures.live_at_end), (1, 1));
//! assert!(study.verdict().starts_with("Cannot tell: the trace has only 4 operations."));
//! # Ok::<(), tickwheel_cli::trace::TraceError>(())
//! ```
//!
//! # How
//!
//! Time is virtual: nothing sleeps. The study first turns the operations into the calls of a wheel.
//! Before each call it drives the wheel like a thread that sleeps until
//! [`next_wake`](tickwheel::Wheel::next_wake), with the calls of a `Timer` or those of a loop of
//! your own: see [`Driver`]. After the last operation it drives the wheel to the last timeout.
//!
//! 1. The study rejects a trace that has few operations, is too short for its delays, or has lost
//!    too many. It says so before it measures anything: see [`Unfit`].
//! 2. It counts the work of each configuration: wake-ups, timeouts handled, buckets visited, far
//!    reads by a model of a cache, memory. These counts are the same on every machine, busy or not,
//!    and with either driver. They choose the tick, and leave out hopeless configurations.
//! 3. It measures the other configurations at that tick, in processor time. Each round runs all of
//!    them side by side with the default. Other programs only ever add to a time. So the cost by a
//!    group of rounds is the sum of the least times of all parts of the trace, and each group gives
//!    the quotient of two such costs. The median of the quotients lies in an interval that follows
//!    from their order alone. With a confidence of 99 %, the intervals of all modes are right, each
//!    time that the study looks at them. The more modes there are, the more groups that takes.
//! 4. A configuration is better than the default if its median is below 0.955, and all of its
//!    interval below 1. The median need only be below 0.98 where the counted work is below 0.95. It
//!    must be below 0.95 where the counted work is above 1.05.
//! 5. Time does not choose between the best configuration and those that cost about the same,
//!    which is within 5 %. The study recommends the one of the least counted work. If their counts
//!    are within the same step of 5 % above the least, it recommends a hierarchical wheel before a
//!    hashed one, and then the smallest. That choice is the same in every run.
//! 6. If no configuration is better, the study recommends the default. It says that there is no
//!    such difference, or that the rounds cannot tell.

mod delays;
mod fit;
mod judge;
mod limits;
#[doc(hidden)]
pub mod plan;
mod run;
mod score;
mod show;
mod time;
mod words;
mod work;

pub use delays::Delays;
pub use fit::Unfit;
pub use judge::Interval;
pub use limits::Limit;
pub use plan::Counts;
#[doc(hidden)]
pub use plan::{Call, Kind, Lateness, Planner};
pub use run::Driver;
#[doc(hidden)]
pub use run::{Fired, Observer, Run};
pub(crate) use show::name;
#[doc(hidden)]
pub use time::Budget;
pub use work::Figures;

use crate::tick::Tick;
use crate::trace::{Gaps, Operation, Trace, TraceError};
use crate::units;
use cpu_time::ThreadTime;
use fastrand::Rng;
use judge::Finding;
use plan::Plan;
use score::Scale;
use serde::Serialize;
use std::path::Path;
use std::time::Duration;
use tickwheel::Mode;

/// What to study, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The configurations to run.
    pub configurations: Configurations,
    /// Which calls are measured.
    pub driver: Driver,
    /// The most bytes that a wheel may hold.
    pub max_memory: u64,
    /// A configuration is stopped when its counted work costs this many times as much as the
    /// cheapest.
    pub slower: u32,
    /// What a wake-up counts in the score.
    pub wake_cost: Duration,
    /// The most operations that are read.
    pub operations: usize,
    /// Measuring ends when reading, counting and measuring took this processor time.
    pub time: Duration,
}

/// The configurations that are run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Configurations {
    /// Modes and ticks of several sizes. No tick makes a timeout later than this; under 1 us it is
    /// 1 us.
    Search(Duration),
    /// These modes, at one tick.
    Given {
        /// The modes.
        modes: Vec<Mode>,
        /// The tick.
        tick: Tick,
    },
}

/// What a study found out.
///
/// As text it is a table for people, with a verdict.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Study {
    /// The name of the trace: of a file, without its folder.
    pub trace: String,
    /// Operations read.
    pub operations: u64,
    /// Whether these are all operations of the trace.
    pub is_whole: bool,
    /// From the first operation to the last, in ms.
    pub span_ms: u64,
    /// Operations that happened and are missing in the trace.
    pub gaps: Gaps,
    /// The delays in the trace.
    pub delays: Delays,
    /// Why the trace is unfit. If there is a reason, nothing was measured.
    pub unfit: Vec<Unfit>,
    /// How many timeouts are pending at the end of the trace, if they are many and their number
    /// still grows.
    pub growing: Option<u64>,
    /// What was studied.
    pub options: Options,
    /// All configurations, tick by tick.
    pub candidates: Vec<Candidate>,
    /// The rounds that were measured.
    pub rounds: usize,
    /// The number of the configuration that the others are compared with.
    baseline: usize,
    /// When the recording ended, in ms; None if the trace does not say so or was not read to there.
    pub(crate) end_ms: Option<u64>,
}

/// A configuration that was studied.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Candidate {
    /// The mode, with its number of buckets.
    pub mode: Mode,
    /// The length of a tick.
    pub tick: Tick,
    /// Why it was stopped; None if it came to the end.
    pub stopped: Option<Limit>,
    /// What was counted, up to where it was stopped.
    #[serde(flatten)]
    pub figures: Figures,
    /// What was measured; None if it was left out, or if there were too few rounds.
    pub measured: Option<Measured>,
}

/// What a configuration costs, measured. Less is better.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Measured {
    /// Processor time per operation, in nanoseconds.
    pub cpu_ns: Interval,
    /// The score, in nanoseconds per operation.
    pub score: Interval,
    /// The parts of the median of the score: the calls, the wake-ups, and what memory and the
    /// longest call add.
    pub parts: [f64; 4],
    /// The score, divided by that of the configuration that it is compared with.
    pub quotient: Interval,
}

/// How far a study is.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Progress {
    /// The trace is being read: the operations so far.
    Read(u64),
    /// The work of configurations is being counted: so many are done, of so many. Each can take
    /// seconds.
    Counted(u64, u64),
    /// Configurations are being measured: this share of the time is over. It can end earlier.
    Measured(f64),
}

/// Studies `trace`, as `options` say.
///
/// # Errors
///
/// [`TraceError`] for the first thing in the trace that is not as the format says.
pub fn study(
    trace: Trace,
    options: &Options,
    mut progress: impl FnMut(Progress),
) -> Result<Study, TraceError> {
    study_and_keep(trace, options, &mut progress).map(|(study, _)| study)
}

/// Studies `trace`, and returns its operations as well.
pub(crate) fn study_and_keep(
    mut trace: Trace,
    options: &Options,
    progress: &mut dyn FnMut(Progress),
) -> Result<(Study, Vec<Operation>), TraceError> {
    let started = ThreadTime::now();
    let (operations, is_whole) = read(&mut trace, options.operations, progress)?;
    let end_ms = trace.end_ms().filter(|_| is_whole);
    let (ticks, modes) = (options.configurations.ticks(), options.configurations.modes());
    let (mut done, wheels) = (0, (ticks.len() * modes.len()) as u64);
    progress(Progress::Counted(done, wheels));
    let plan = |tick| Plan::new(&operations, tick, end_ms);
    let plans: Vec<_> = ticks.into_iter().map(plan).collect();
    let delays = operations.iter().filter_map(|operation| operation.action.delay_ms());
    let delays = Delays::new(delays);
    let first_ms = operations.first().map_or(0, |first| first.time_ms);
    let span_ms = operations.last().map_or(0, |last| last.time_ms - first_ms);
    let mut is_done = || {
        done += 1;
        progress(Progress::Counted(done, wheels));
    };
    let counted = plans.iter().flat_map(|plan| count(plan, &modes, options, &mut is_done));
    let candidates: Vec<_> = counted.collect();
    let gaps = trace.gaps();
    // At the resolution of the trace, which is as fit at every tick.
    let in_ms = Plan::new(&operations, Tick::default(), end_ms);
    let lasts_ms = end_ms.map_or(span_ms, |end_ms| end_ms - first_ms);
    let (unfit, growing) = fit::look(&in_ms, lasts_ms, &delays, gaps, is_whole);
    let path = Path::new(trace.name());
    let mut study = Study {
        trace: path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into(),
        operations: operations.len() as u64,
        is_whole,
        span_ms,
        gaps,
        delays,
        baseline: baseline(&candidates, unfit.is_empty()),
        unfit,
        growing,
        options: options.clone(),
        candidates,
        rounds: 0,
        end_ms,
    };
    let plan = plans.iter().find(|plan| plan.tick == study.tick());
    if let Some(plan) = plan.filter(|_| study.unfit.is_empty()) {
        study.measure(plan, started, progress);
    }
    Ok((study, operations))
}

impl Study {
    /// Returns what `modes` do at one tick, counted in the study or here, with `operations`.
    pub(crate) fn counted(
        &self,
        operations: &[Operation],
        modes: [Mode; 2],
        tick: Tick,
    ) -> [Candidate; 2] {
        let known = |mode| self.candidates.iter().find(|it| it.mode == mode && it.tick == tick);
        if let [Some(one), Some(other)] = modes.map(known) {
            return [one, other].map(Clone::clone);
        }
        let plan = Plan::new(operations, tick, self.end_ms);
        count(&plan, &modes, &self.options, &mut || ()).try_into().expect("there are two modes")
    }
}

/// Reads up to `most` operations, and returns whether the trace has no others.
fn read(
    trace: &mut Trace,
    most: usize,
    progress: &mut dyn FnMut(Progress),
) -> Result<(Vec<Operation>, bool), TraceError> {
    const BETWEEN_LOOKS: usize = 4096;
    let mut operations = Vec::new();
    while let Some(operation) = trace.next().transpose()? {
        if operations.len() == most {
            return Ok((operations, false));
        }
        operations.push(operation);
        if operations.len() % BETWEEN_LOOKS == 0 {
            progress(Progress::Read(operations.len() as u64));
        }
    }
    Ok((operations, true))
}

/// Counts what all modes do with a plan, and calls `is_done` after each.
fn count(
    plan: &Plan,
    modes: &[Mode],
    options: &Options,
    is_done: &mut dyn FnMut(),
) -> Vec<Candidate> {
    let scale = options.scale(plan.counts.operations());
    let mut cheapest: Option<(Mode, f64)> = None;
    let mut counted: Vec<Candidate> = Vec::new();
    // A hierarchical wheel never costs much, so it tells which hashed ones do.
    let mut order = modes.to_vec();
    order.sort_by_key(Mode::is_hashed);
    for mode in order {
        let times = options.slower;
        let work = cheapest.map(|(than, ns)| (ns * f64::from(times), Limit::Work { times, than }));
        let (mut figures, stopped) = work::count(plan, mode, options.max_memory, work);
        figures.counted_score = match stopped {
            None => scale.counted(&figures, mode.buckets()),
            Some(_) => f64::INFINITY,
        };
        let ns = figures.counted_ns(mode.buckets());
        if stopped.is_none() && cheapest.is_none_or(|(_, least)| ns < least) {
            cheapest = Some((mode, ns));
        }
        counted.push(Candidate { mode, tick: plan.tick, stopped, figures, measured: None });
        is_done();
    }
    // Those before the cheapest were compared with others.
    if let Some((than, ns)) = cheapest {
        let (times, most_ns) = (options.slower, ns * f64::from(options.slower));
        for it in counted.iter_mut().filter(|it| it.stopped.is_none()) {
            if most_ns < it.figures.counted_ns(it.mode.buckets()) {
                it.stopped = Some(Limit::Work { times, than });
                it.figures.counted_score = f64::INFINITY;
            }
        }
    }
    counted.sort_by_key(|it| modes.iter().position(|&mode| mode == it.mode));
    counted
}

impl Study {
    /// Returns the configuration to take; None if none came to the end of the trace.
    #[must_use]
    pub fn recommended(&self) -> Option<&Candidate> {
        let taken = self.alike().min_by_key(|it| self.rank(it));
        taken.or_else(|| self.baseline())
    }

    /// Returns the rank of a configuration among those that cost about the same. It is the same in
    /// every run, while the order of their times is chance.
    ///
    /// Counted work comes first, then the kind, then the size. The larger a wheel is, the more its
    /// cost depends on the other contents of the caches.
    fn rank(&self, candidate: &Candidate) -> (u32, bool, usize) {
        let counted = |number: usize| self.candidates[number].figures.counted_score;
        let least = self.contenders().into_iter().map(counted).fold(f64::INFINITY, f64::min);
        let steps = judge::steps(candidate.figures.counted_score, least);
        (steps, candidate.mode.is_hashed(), candidate.mode.buckets())
    }

    /// Returns the configurations that cost the same as the best one that is surely better than the
    /// baseline. Returns none if no configuration is surely better.
    ///
    /// A busy machine widens intervals. So a configuration need not be surely better itself if it
    /// costs the same as one that is.
    fn alike(&self) -> impl Iterator<Item = &Candidate> {
        let best = self.best().map(Candidate::median);
        self.others().filter(move |it| {
            it.median() < self.border(it)
                && best.is_some_and(|best| judge::is_alike(it.median(), best))
        })
    }

    /// Returns the best configuration that is surely better than the baseline.
    fn best(&self) -> Option<&Candidate> {
        let better = self.with_finding(Finding::Better);
        better.min_by(|one, other| one.median().total_cmp(&other.median()))
    }

    /// Returns the configuration that the others are compared with, if it came to the end: the
    /// default mode, or the first that came to the end, at the tick that costs least by counted
    /// work.
    #[must_use]
    pub fn baseline(&self) -> Option<&Candidate> {
        self.candidates.get(self.baseline).filter(|candidate| candidate.stopped.is_none())
    }

    /// The tick that is recommended, or the first that was studied.
    pub(crate) fn tick(&self) -> Tick {
        let first = self.baseline().or_else(|| self.candidates.first());
        first.map_or_else(Tick::default, |first| first.tick)
    }

    /// Returns the configurations at that tick.
    pub(crate) fn at_its_tick(&self) -> impl Iterator<Item = &Candidate> {
        let tick = self.tick();
        self.candidates.iter().filter(move |it| it.tick == tick)
    }

    /// Returns `candidates`, those that were measured first, and the best of each kind first.
    pub(crate) fn by_score<'a>(
        candidates: impl Iterator<Item = &'a Candidate>,
    ) -> Vec<&'a Candidate> {
        let mut sorted: Vec<_> = candidates.collect();
        sorted.sort_by(|a, b| a.score().total_cmp(&b.score()));
        sorted.sort_by_key(|it| it.measured.is_none());
        sorted
    }

    /// Says how much of the trace was studied.
    pub(crate) fn extent(&self) -> String {
        let whole = if self.is_whole { "" } else { "the first " };
        let (operations, span) =
            (units::count(self.operations, "operation"), units::milliseconds(self.span_ms));
        format!("{whole}{operations} over {span}")
    }

    /// Says in a sentence what the score is.
    #[must_use]
    pub fn scoring(&self) -> String {
        self.scale().describe()
    }

    fn scale(&self) -> Scale {
        self.options.scale(self.operations)
    }

    /// Why the score of a configuration is not sure; None if it is.
    pub(crate) fn doubt(&self, candidate: &Candidate) -> Option<&'static str> {
        match &candidate.measured {
            _ if candidate.stopped.is_some() => Some("stopped"),
            None => Some("not measured"),
            Some(_) if self.with_finding(Finding::Unknown).any(|it| it == candidate) => {
                Some("not sure")
            }
            Some(_) => None,
        }
    }

    /// Returns the configurations beside the baseline of which the rounds say this.
    fn with_finding(&self, wanted: Finding) -> impl Iterator<Item = &Candidate> {
        self.others().filter(move |candidate| self.finding(candidate) == wanted)
    }

    /// Returns the configurations that are measured beside the baseline.
    fn others(&self) -> impl Iterator<Item = &Candidate> {
        let others = self.contenders().into_iter().filter(|&number| number != self.baseline);
        others.map(|number| &self.candidates[number])
    }

    fn finding(&self, candidate: &Candidate) -> Finding {
        Interval::finding(candidate.quotient(), self.border(candidate))
    }

    /// Returns the quotient below which a configuration is taken.
    fn border(&self, candidate: &Candidate) -> f64 {
        judge::border(self.times_counted(candidate))
    }

    /// Returns the counted score, divided by that of the baseline.
    pub(crate) fn times_counted(&self, candidate: &Candidate) -> f64 {
        candidate.figures.counted_score / self.candidates[self.baseline].figures.counted_score
    }

    /// Returns the numbers of the configurations that are measured: the baseline first, then all
    /// modes at its tick that are not hopeless by counted work. Modes that the user gave are all
    /// measured.
    fn contenders(&self) -> Vec<usize> {
        let Some(baseline) = self.baseline() else { return Vec::new() };
        let is_given = matches!(self.options.configurations, Configurations::Given { .. });
        let most = if is_given { f64::INFINITY } else { HOPELESS };
        let others = self.candidates.iter().enumerate().filter(|(number, candidate)| {
            *number != self.baseline
                && candidate.stopped.is_none()
                && candidate.tick == baseline.tick
                && self.times_counted(candidate) <= most
        });
        [self.baseline].into_iter().chain(others.map(|(number, _)| number)).collect()
    }

    /// Measures all configurations that may be as good as the baseline, side by side, until the
    /// rounds tell. A configuration that surely costs no less is left out of later rounds, so that
    /// the others get its time.
    fn measure(&mut self, plan: &Plan, started: ThreadTime, progress: &mut dyn FnMut(Progress)) {
        let contenders = self.contenders();
        let mut left = contenders.clone();
        let mut samples = vec![Vec::new(); self.candidates.len()];
        let mut budget = Budget::new(self.options.time);
        let mut random = Rng::with_seed(0);
        for round in 0..MOST_ROUNDS {
            let spent = started.elapsed();
            if left.is_empty() || !budget.has_room(spent) {
                break;
            }
            progress(Progress::Measured(spent.div_duration_f64(self.options.time)));
            let modes: Vec<_> = left.iter().map(|&number| self.candidates[number].mode).collect();
            let times = time::round(plan, &modes, self.options.driver, &mut random);
            left.iter().zip(times).for_each(|(&number, times)| samples[number].push(times));
            // Another wheel gets the memory that is the fastest, in each group of rounds.
            random.shuffle(&mut left);
            self.rounds = round + 1;
            if LOOKS.contains(&self.rounds) {
                self.note(&samples);
                // A machine can be slow for all of few rounds.
                let is_early = self.rounds < SETTLES;
                let is_out = |other: &Candidate| match is_early {
                    true => Interval::costs_more(other.quotient()),
                    false => self.finding(other) == Finding::NotBetter,
                };
                let is_known = |other: &Candidate| {
                    let is_settled = Interval::is_settled(other.quotient(), self.border(other));
                    is_out(other) || !is_early && is_settled
                };
                if contenders[1..].iter().all(|&number| is_known(&self.candidates[number])) {
                    return;
                }
                left.retain(|&number| number == self.baseline || !is_out(&self.candidates[number]));
            }
        }
        self.note(&samples);
    }

    /// Notes what was measured. `samples` are those of all candidates: of each round, the
    /// nanoseconds of each part.
    #[doc(hidden)]
    pub fn note(&mut self, samples: &[Vec<Vec<f64>>]) {
        let (scale, contenders) = (self.scale(), self.contenders());
        let operations = scale.operations.max(1) as f64;
        // An interval for each mode beside the baseline, at each look and at the end.
        let intervals = contenders.len().saturating_sub(1).max(1) * (LOOKS.len() + 1);
        let groups = judge::groups(intervals);
        let costs = |number: usize, rounds: usize| -> Vec<f64> {
            let costs = judge::costs(&samples[number][..rounds], groups);
            costs.into_iter().map(|ns| ns / operations).collect()
        };
        for number in contenders {
            // The rounds that both were in.
            let rounds = samples[number].len();
            let (own, base) = (costs(number, rounds), costs(self.baseline, rounds));
            let score = |ns, number: usize| scale.score(ns, &self.candidates[number].figures);
            let quotient = |(&own, &base)| score(own, number) / score(base, self.baseline);
            let quotients = own.iter().zip(&base).map(quotient).collect();
            // Of few rounds, the least times are longer on a busy machine. What was left out early
            // is shown as if it had been in as many rounds as the baseline.
            let whole = costs(self.baseline, samples[self.baseline].len());
            let own: Vec<_> = (0..own.len()).map(|at| own[at] / base[at] * whole[at]).collect();
            let scores = own.iter().map(|&ns| score(ns, number)).collect();
            let intervals = [own, scores, quotients].map(|it| Interval::of(&it, intervals));
            let [Some(cpu_ns), Some(score), Some(quotient)] = intervals else { continue };
            let parts = scale.parts(cpu_ns.median, &self.candidates[number].figures);
            self.candidates[number].measured = Some(Measured { cpu_ns, score, parts, quotient });
        }
    }
}

impl Candidate {
    /// The score by counted work, as a person reads it.
    pub(crate) fn counted(&self) -> String {
        match self.stopped {
            None => units::duration(self.figures.counted_score),
            Some(_) => "-".into(),
        }
    }

    /// The measured score, or the counted one if it was not measured.
    pub(crate) fn score(&self) -> f64 {
        let counted = self.figures.counted_score;
        self.measured.as_ref().map_or(counted, |measured| measured.score.median)
    }

    /// Its score, divided by that of the configuration that it is compared with.
    fn quotient(&self) -> Option<Interval> {
        self.measured.as_ref().map(|measured| measured.quotient)
    }

    /// The median of that; infinite if it was not measured.
    fn median(&self) -> f64 {
        self.quotient().map_or(f64::INFINITY, |quotient| quotient.median)
    }
}

impl Options {
    fn scale(&self, operations: u64) -> Scale {
        Scale { operations, wake_cost: self.wake_cost, driver: self.driver }
    }
}

impl Configurations {
    /// The ticks, ascending. In a search: powers of ten from 1 ms on, and the longest itself.
    fn ticks(&self) -> Vec<Tick> {
        let longest = match self {
            Self::Given { tick, .. } => return vec![*tick],
            Self::Search(longest) => *longest,
        };
        let longest = longest.clamp(Duration::from_micros(1), Duration::from_secs(3600));
        let powers = (0..7).map(|power| Duration::from_millis(10_u64.pow(power)));
        let lengths = powers.take_while(|&length| length < longest).chain([longest]);
        lengths.map(|length| Tick::new(length).expect("it is 1 us to 1 h")).collect()
    }

    /// The modes, each once. In a search the default comes first: hopeless modes are told by
    /// comparing.
    #[must_use]
    pub fn modes(&self) -> Vec<Mode> {
        match self {
            Self::Given { modes, .. } => {
                let is_first = |at: &usize| !modes[..*at].contains(&modes[*at]);
                (0..modes.len()).filter(is_first).map(|at| modes[at]).collect()
            }
            Self::Search(_) => {
                let hierarchical = [64, 16, 256, 1024].map(Mode::hierarchical_with);
                let hashed = [512, 64, 4096, 1 << 15, 1 << 18].map(Mode::hashed);
                let all = hierarchical.into_iter().chain(hashed);
                all.map(|mode| mode.expect("this is a mode")).collect()
            }
        }
    }
}

/// The number of the configuration that others are compared with: the default mode, or the first
/// that came to the end if that did not, at the shortest tick; if the trace is fit to choose it, at
/// the shortest that costs hardly more than the best.
fn baseline(candidates: &[Candidate], is_fit: bool) -> usize {
    let done = || candidates.iter().enumerate().filter(|(_, it)| it.stopped.is_none());
    let default = done().find(|(_, it)| it.mode == Mode::default()).or_else(|| done().next());
    let Some((shortest, default)) = default else { return 0 };
    if !is_fit {
        return shortest;
    }
    let same = || done().filter(|(_, it)| it.mode == default.mode);
    let scores = same().map(|(_, it)| it.figures.counted_score);
    let least = scores.fold(f64::INFINITY, f64::min);
    // The ticks ascend.
    let first = same().find(|(_, it)| it.figures.counted_score <= least / (1.0 - judge::COUNTS));
    first.map_or(0, |(number, _)| number)
}

/// A search within 1 ms for a timer: 2 GiB, 20 times, 5 us per wake-up, a million operations, 30
/// seconds.
impl Default for Options {
    fn default() -> Self {
        Self {
            configurations: Configurations::Search(Duration::from_millis(1)),
            driver: Driver::Timer,
            max_memory: 2 << 30,
            slower: 20,
            wake_cost: Duration::from_micros(5),
            operations: 1_000_000,
            time: Duration::from_secs(30),
        }
    }
}

/// A configuration is not measured if its counted score is over this many times that of the
/// baseline.
const HOPELESS: f64 = 1.15;

/// The numbers of rounds after which the study looks at the intervals. A look after each round
/// would take chance for a finding.
const LOOKS: [usize; 4] = [16, 32, 64, 128];

/// The rounds before which only what surely costs more is left out.
const SETTLES: usize = 64;
const MOST_ROUNDS: usize = 256;
