//! The search: which configurations there are, and which of them are worth measuring again.

use super::measure::{self, GivenUp, LongCall, Look, Most, Stretches};
use super::plan::Plan;
use super::score::{Cost, Spread};
use crate::replay::{Limit, Operation, Tick, Trace, TraceError, as_text};
use serde::Serialize;
use std::time::{Duration, Instant};
use tickwheel::Mode;

/// What to search, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// How late a timeout may be by the tick alone. No longer tick is searched. Under 1 us it is
    /// 1 us.
    pub max_lateness: Duration,
    /// The most bytes that a wheel may hold.
    pub max_memory: u64,
    /// What a wake-up counts in the score.
    pub wake_cost: Duration,
    /// The most operations that are read.
    pub operations: usize,
    /// When to stop measuring.
    pub time: Duration,
}

/// A configuration that was searched.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Candidate {
    /// The mode, with its number of buckets.
    #[serde(serialize_with = "as_text")]
    pub mode: Mode,
    /// The length of a tick.
    #[serde(serialize_with = "as_text")]
    pub tick: Tick,
    /// Why it was stopped in its first run; None if it was not, or was not run for lack of time.
    pub stopped: Option<Limit>,
    /// What it costs; None if it never came to the end of the trace.
    #[serde(flatten)]
    pub figures: Option<Figures>,
}

/// What a configuration costs.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Figures {
    /// The score, in nanoseconds per operation; less is better.
    pub score: Spread,
    /// Processor time per operation, in nanoseconds.
    pub cpu_ns: Spread,
    /// In how many rounds the processor time was measured.
    pub rounds: usize,
    /// The longest call, as long as its shortest of all looks, in nanoseconds.
    pub longest_call_ns: u64,
    /// The longest call, as long as its median of all looks, in nanoseconds.
    pub longest_call_median_ns: u64,
    /// The most bytes that the wheel held.
    pub memory_bytes: u64,
    /// How often the wheel was woken up.
    pub wakeups: u64,
    /// How many timeouts fired.
    pub fired: u64,
    /// How late timeouts fired by the tick, in the mean, in nanoseconds.
    pub mean_lateness_ns: u64,
    /// How late the latest timeout fired by the tick, in nanoseconds.
    pub max_lateness_ns: u64,
}

/// How far a search is.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Progress {
    /// The trace is being read: so many operations so far.
    Read(u64),
    /// Configurations are being measured: this share of the time is over. It can end earlier.
    Measured(f64),
}

/// What was read of a trace, and what was found out about it.
pub(super) struct Found {
    pub(super) operations: u64,
    pub(super) is_whole: bool,
    pub(super) is_settled: bool,
    pub(super) span_ms: u64,
    pub(super) candidates: Vec<Candidate>,
}

/// Reads `trace`, and measures all configurations.
pub(super) fn search(
    trace: &mut Trace,
    options: &Options,
    progress: &mut dyn FnMut(Progress),
) -> Result<Found, TraceError> {
    let (operations, is_whole) = read(trace, options.operations, progress)?;
    let ticks = ticks(options.max_lateness);
    let plans: Vec<_> = ticks.into_iter().map(|tick| Plan::new(&operations, tick)).collect();
    let number = operations.len();
    let span_ms = match (operations.first(), operations.last()) {
        (Some(first), Some(last)) => last.time_ms - first.time_ms,
        _ => 0,
    };
    drop(operations);

    let mut search = Search::new(&plans, number, options);
    let is_settled = search.run(progress);
    let operations = number as u64;
    Ok(Found { operations, is_whole, is_settled, span_ms, candidates: search.finish() })
}

/// Reads up to `most` operations, and returns whether they are all.
fn read(
    trace: &mut Trace,
    most: usize,
    progress: &mut dyn FnMut(Progress),
) -> Result<(Vec<Operation>, bool), TraceError> {
    const BATCH: usize = 4096;
    let (mut operations, mut batch) = (Vec::new(), Vec::new());
    while trace.read_batch(&mut batch, BATCH)? {
        let left = most - operations.len();
        if left < batch.len() {
            operations.extend_from_slice(&batch[..left]);
            return Ok((operations, false));
        }
        operations.extend_from_slice(&batch);
        progress(Progress::Read(operations.len() as u64));
    }
    Ok((operations, true))
}

/// The ticks to search: powers of ten from 1 ms on, and `max_lateness` itself, ascending.
fn ticks(max_lateness: Duration) -> Vec<Tick> {
    let longest = max_lateness.clamp(Duration::from_micros(1), Duration::from_secs(3600));
    let powers = (0..7).map(|power| Duration::from_millis(10_u64.pow(power)));
    let lengths = powers.take_while(|&length| length < longest).chain([longest]);
    lengths.map(|length| Tick::new(length).expect("it is 1 us to 1 h")).collect()
}

/// The modes to search. The default comes first: hopeless modes are told by comparing.
fn modes() -> impl Iterator<Item = Mode> {
    let hierarchical = [64, 16, 256, 1024].map(Mode::hierarchical_with);
    let hashed = [512, 64, 4096, 1 << 15, 1 << 18].map(Mode::hashed);
    hierarchical.into_iter().chain(hashed).map(|mode| mode.expect("this is a mode"))
}

struct Search<'a> {
    operations: f64,
    options: &'a Options,
    runners: Vec<Runner<'a>>,
    started: Instant,
    /// The shortest look so far.
    fastest: Option<(Mode, Duration)>,
}

/// A configuration being searched.
struct Runner<'a> {
    mode: Mode,
    plan: &'a Plan,
    stopped: Option<Limit>,
    /// Whether it is worth measuring again.
    is_in: bool,
    first_look: Option<Look>,
    /// The long calls of each look.
    looks: Vec<Vec<LongCall>>,
    rounds: usize,
    /// Each round adds to another one of these repetitions.
    repetitions: [Stretches; REPETITIONS],
}

impl<'a> Search<'a> {
    fn new(plans: &'a [Plan], operations: usize, options: &'a Options) -> Self {
        let runner = |(plan, mode)| Runner {
            mode,
            plan,
            stopped: None,
            is_in: true,
            first_look: None,
            looks: Vec::new(),
            rounds: 0,
            repetitions: Default::default(),
        };
        let all = plans.iter().flat_map(|plan| modes().map(move |mode| (plan, mode)));
        Self {
            operations: operations.max(1) as f64,
            options,
            runners: all.map(runner).collect(),
            started: Instant::now(),
            fastest: None,
        }
    }

    /// Measures, and returns whether the repetitions of all that is in agree.
    fn run(&mut self, progress: &mut dyn FnMut(Progress)) -> bool {
        for leave_out_over in [HOPELESS, BEATEN, BEATEN, BEATEN] {
            self.measure_all(progress);
            self.leave_out(leave_out_over);
        }
        // What was measured at a bad moment only gets a second chance.
        for runner in &mut self.runners {
            runner.is_in = runner.first_look.is_some();
        }
        self.measure_all(progress);
        self.leave_out(BEATEN);
        for _ in 0..MOST_MORE {
            if self.is_settled() {
                break;
            }
            self.measure_all(progress);
        }
        self.started.elapsed() < self.options.time && self.is_settled()
    }

    /// Measures each repetition of all that is in once more, in turns.
    fn measure_all(&mut self, progress: &mut dyn FnMut(Progress)) {
        let turns: Vec<_> =
            (0..self.runners.len()).filter(|&number| self.runners[number].is_in).collect();
        for _ in 0..REPETITIONS {
            for &number in &turns {
                if self.options.time <= self.started.elapsed() {
                    return;
                }
                if self.runners[number].is_in {
                    self.measure(number);
                    let share = self.started.elapsed().div_duration_f64(self.options.time);
                    progress(Progress::Measured(share));
                }
            }
        }
    }

    /// Measures a configuration once.
    fn measure(&mut self, number: usize) {
        let left = self.options.time.saturating_sub(self.started.elapsed());
        let slow = self.fastest.map(|(_, time)| time * SLOWER + GRACE);
        let most = Most {
            time: slow.map_or(left, |slow| slow.min(left)),
            memory: self.options.max_memory,
        };
        let runner = &mut self.runners[number];
        if runner.looks.len() < LOOKS {
            match measure::look(runner.plan, runner.mode, most) {
                Ok(mut look) => {
                    runner.looks.push(std::mem::take(&mut look.long_calls));
                    if self.fastest.is_none_or(|(_, time)| look.time < time) {
                        self.fastest = Some((runner.mode, look.time));
                    }
                    runner.first_look.get_or_insert(look);
                }
                // It came to the end before: the machine is busy, and this look is worth nothing.
                Err(_) if runner.first_look.is_some() => return,
                Err(reason) => {
                    runner.is_in = false;
                    runner.stopped = Some(match (reason, self.fastest) {
                        (GivenUp::Memory, _) => Limit::Memory(self.options.max_memory),
                        (GivenUp::Time, Some((than, _))) if most.time < left => {
                            Limit::Slower { times: SLOWER, than }
                        }
                        (GivenUp::Time, _) => Limit::Time(self.options.time),
                    });
                    return;
                }
            }
        }
        runner.repetitions[runner.rounds % REPETITIONS].measure(runner.plan, runner.mode);
        runner.rounds += 1;
    }

    /// Leaves out what scores over so many times the best, but not the default.
    ///
    /// The lowest score of each configuration tells most: what disturbs makes scores higher.
    fn leave_out(&mut self, times: f64) {
        let best = self.runners.iter().filter_map(|runner| Some(self.figures(runner)?.score.least));
        let best = best.fold(f64::INFINITY, f64::min);
        let is_in: Vec<_> = self
            .runners
            .iter()
            .map(|runner| {
                let is_default = runner.mode == Mode::default();
                let score = self.figures(runner).map(|figures| figures.score.least);
                score.is_some_and(|score| is_default || score <= times * best)
            })
            .collect();
        for (runner, is_in) in self.runners.iter_mut().zip(is_in) {
            runner.is_in &= is_in;
        }
    }

    /// Whether the repetitions of all that is still measured agree.
    fn is_settled(&self) -> bool {
        self.runners.iter().filter(|runner| runner.is_in).all(|runner| {
            let figures = self.figures(runner);
            figures.is_none_or(|figures| figures.score.most <= SETTLED * figures.score.least)
        })
    }

    fn figures(&self, runner: &Runner<'_>) -> Option<Figures> {
        let look = runner.first_look.as_ref()?;
        let totals = runner.repetitions.iter().filter_map(Stretches::total);
        let totals: Vec<_> =
            totals.map(|total| total.as_nanos() as f64 / self.operations).collect();
        if totals.is_empty() {
            return None;
        }
        let cpu_ns = Spread::of(&totals);
        let (longest_call_ns, longest_call_median_ns) = measure::longest(&runner.looks)
            .unwrap_or((measure::LONG_CALL_NS, measure::LONG_CALL_NS));
        let score = cpu_ns.map(|cpu_ns| {
            let cost = Cost {
                cpu_ns,
                wakeups_an_operation: look.wakeups as f64 / self.operations,
                memory: look.memory,
                longest_call_ns,
            };
            cost.score(self.options.wake_cost)
        });
        let lateness = &runner.plan.lateness;
        Some(Figures {
            score,
            cpu_ns,
            rounds: runner.rounds,
            longest_call_ns,
            longest_call_median_ns,
            memory_bytes: look.memory,
            wakeups: look.wakeups,
            fired: look.fired,
            mean_lateness_ns: lateness.mean().as_nanos() as u64,
            max_lateness_ns: lateness.most().as_nanos() as u64,
        })
    }

    fn finish(&self) -> Vec<Candidate> {
        let candidate = |runner: &Runner<'_>| Candidate {
            mode: runner.mode,
            tick: runner.plan.tick,
            stopped: runner.stopped,
            figures: self.figures(runner),
        };
        self.runners.iter().map(candidate).collect()
    }
}

/// Ticks of 1 ms, 2 GiB, 5 us per wake-up, a million operations, 30 seconds.
impl Default for Options {
    fn default() -> Self {
        Self {
            max_lateness: Duration::from_millis(1),
            max_memory: 2 << 30,
            wake_cost: Duration::from_micros(5),
            operations: 1_000_000,
            time: Duration::from_secs(30),
        }
    }
}

/// Each configuration that is in is measured as often for each repetition.
const REPETITIONS: usize = 3;

/// How often all that is in is measured again on a machine that is too busy for repetitions to
/// agree.
const MOST_MORE: usize = 12;

/// Repetitions agree if none scores over so many times another one.
const SETTLED: f64 = 1.04;

/// Looks at the calls of a configuration: nothing interrupts the same call so often.
const LOOKS: usize = 3;

/// A run is stopped when it took over so many times the fastest, and this time besides.
const SLOWER: u32 = 5;
const GRACE: Duration = Duration::from_millis(20);

/// Over so many times the best score after one measurement of each repetition, a configuration is
/// left out.
const HOPELESS: f64 = 1.6;

/// The same after more.
const BEATEN: f64 = 1.3;
