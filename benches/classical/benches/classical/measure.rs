//! How long the routines take.

use classical::Scheme;
use fastrand::Rng;
use std::time::{Duration, Instant};

pub(crate) struct Subject {
    pub(crate) name: &'static str,
    /// Whether START_TIMER searches a sorted list.
    pub(crate) searches: bool,
    pub(crate) paper: [&'static str; 3],
    pub(crate) new: fn(u32) -> Box<dyn Scheme>,
}

/// Nanoseconds per call.
#[derive(Clone, Copy)]
pub(crate) struct Figure {
    pub(crate) mean: f64,
    /// The longest call, with any of the intervals.
    pub(crate) worst: f64,
}

/// How the intervals are drawn.
#[derive(Clone, Copy)]
enum Intervals {
    /// Evenly up to 2^22 ticks.
    Even,
    /// Multiples of [`TABLE_SIZE`](crate::TABLE_SIZE): in a hashed wheel all share a bucket.
    OneBucket,
    /// Evenly up to 2^22 ticks, and each that is started later shorter than all before.
    EverShorter,
}

impl Intervals {
    /// For one that is started when `started` were before, since all were.
    fn draw(self, started: Option<usize>, rng: &mut Rng) -> u64 {
        const MEDIUM: u64 = 1 << 21;
        match (self, started) {
            (Self::Even, _) => rng.u64(1..=2 * MEDIUM),
            (Self::OneBucket, _) => u64::from(crate::TABLE_SIZE) * rng.u64(1..=1 << 20),
            (Self::EverShorter, None) => rng.u64(MEDIUM..=2 * MEDIUM),
            (Self::EverShorter, Some(started)) => MEDIUM - started as u64,
        }
    }
}

/// Returns the figures of the routines, with `size` timers.
pub(crate) fn measure(subject: &Subject, size: u32, is_quick: bool) -> [Figure; 3] {
    let means = least(subject, size, Intervals::Even, CALLS, is_quick);
    let each = [Intervals::Even, Intervals::OneBucket, Intervals::EverShorter]
        .map(|intervals| least(subject, size, intervals, 1, is_quick));
    [0, 1, 2].map(|routine| {
        let means: Vec<_> = means[routine].iter().map(|time| time / CALLS as f64).collect();
        let calls = each.iter().flat_map(|times| &times[routine]);
        Figure {
            mean: means.iter().sum::<f64>() / means.len() as f64,
            worst: calls.chain(&means).copied().fold(0.0, f64::max),
        }
    })
}

/// Does the same several times, and returns the least time of each stretch of `calls` calls: what
/// the system takes from the thread, it seldom takes at the same call again.
fn least(
    subject: &Subject,
    size: u32,
    intervals: Intervals,
    calls: usize,
    is_quick: bool,
) -> [Vec<f64>; 3] {
    let budget = Duration::from_millis(if is_quick { 5 } else { 300 });
    let mut stretches = [ROUNDS, ROUNDS, TICKS / calls];
    let mut least = run(subject, size, intervals, calls, &stretches, budget);
    for _ in 1..REPETITIONS {
        stretches = [0, 1, 2].map(|routine| least[routine].len());
        let again = run(subject, size, intervals, calls, &stretches, Duration::MAX);
        for (least, again) in least.iter_mut().flatten().zip(again.iter().flatten()) {
            *least = least.min(*again);
        }
    }
    let clock = clock_reading();
    least.map(|mut times| {
        // The first ones fetch the code, and memory from the system.
        times.drain(..if 2 * WARM_UP < times.len() { WARM_UP } else { 0 });
        times.into_iter().map(|time| (time - clock).max(0.0)).collect()
    })
}

/// Returns the nanoseconds that each stretch of `calls` calls took, by routine: as many stretches
/// as asked for, or as `budget` allows.
fn run(
    subject: &Subject,
    size: u32,
    intervals: Intervals,
    calls: usize,
    stretches: &[usize; 3],
    budget: Duration,
) -> [Vec<f64>; 3] {
    let mut rng = Rng::with_seed(1);
    let mut scheme = (subject.new)(size);
    let mut timers: Vec<_> =
        (0..size).map(|request| (request, intervals.draw(None, &mut rng))).collect();
    // Neighbours in a list lie apart, as in a program that has run for long.
    rng.shuffle(&mut timers);
    // The search begins at the end of the list, so this fills it in no time.
    if subject.searches {
        timers.sort_by_key(|&(_, interval)| interval);
    }
    timers.iter().for_each(|&(request, interval)| scheme.start_timer(request, interval));
    rng.shuffle(&mut timers);

    let [mut starts, mut stops, mut ticks] = [const { Vec::new() }; 3];
    // Each stops some, and starts them again with other intervals.
    let is_over = |begun: Instant, done: usize| 0 < done && budget < begun.elapsed();
    let begun = Instant::now();
    let mut next = timers.iter().map(|&(request, _)| request).cycle();
    while starts.len() < stretches[0] && !is_over(begun, starts.len()) {
        let again: Vec<_> = next.by_ref().take(calls).collect();
        let started = calls * starts.len();
        let drawn: Vec<_> =
            (started..).take(calls).map(|so_far| intervals.draw(Some(so_far), &mut rng)).collect();
        stops.push(time(|| again.iter().for_each(|&request| scheme.stop_timer(request))));
        starts.push(time(|| {
            again.iter().zip(&drawn).for_each(|(&request, &of)| scheme.start_timer(request, of));
        }));
    }
    let begun = Instant::now();
    let mut expired = Vec::with_capacity(size as usize);
    while ticks.len() < stretches[2] && !is_over(begun, ticks.len()) {
        expired.clear();
        ticks.push(time(|| (0..calls).for_each(|_| scheme.per_tick_bookkeeping(&mut expired))));
    }
    [starts, stops, ticks]
}

fn time(run: impl FnOnce()) -> f64 {
    let start = Instant::now();
    run();
    start.elapsed().as_nanos() as f64
}

/// What [`time`] takes for nothing.
fn clock_reading() -> f64 {
    (0..10_000).map(|_| time(|| ())).fold(f64::MAX, f64::min)
}

/// Timed together for the means, because reading the clock takes as long as many of the calls.
const CALLS: usize = 16;
const ROUNDS: usize = 2_000;
/// The first bucket of the fourth level of 64 comes up in them.
const TICKS: usize = (1 << 18) + 64;
const REPETITIONS: usize = 3;
const WARM_UP: usize = 64;
