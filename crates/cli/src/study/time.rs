//! The processor time of a run.

use super::plan::Plan;
use super::run::{Driver, Fired, Run};
#[cfg(not(windows))]
use cpu_time::ThreadTime as Clock;
use fastrand::Rng;
use std::time::Duration;
#[cfg(windows)]
use std::time::Instant as Clock;
use tickwheel::Mode;

/// Returns the processor time that the calls of `plan` take in each of `modes`, in nanoseconds,
/// part by part.
///
/// All of them go through the plan side by side, some calls each in turn, so that whatever else
/// the machine does slows all of them down alike. A short plan is run several times, of which the
/// least time of each part counts.
///
/// The clock of processor time of Windows advances in steps so long that a part of some
/// hundred us would be lost: there, parts are measured in real time.
///
/// Where memory lies can cost some percent, and each process would have its own luck. So each run
/// moves it, as `random` says.
pub(super) fn round(
    plan: &Plan,
    modes: &[Mode],
    driver: Driver,
    random: &mut Rng,
) -> Vec<Vec<f64>> {
    let parts = plan.calls.len().div_ceil(CALLS_PER_PART).max(1);
    let mut times = vec![vec![f64::INFINITY; parts]; modes.len()];
    let begun = Clock::now();
    let mut is_enough = false;
    while !is_enough {
        let moves = random.usize(..MOST_MOVES);
        let _moved: Vec<_> = (0..moves).map(|_| vec![0_u8; random.usize(..LONGEST_MOVE)]).collect();
        let new = |&mode| Run::new(mode, driver, plan.places, Fired(0));
        let mut wheels: Vec<_> = modes.iter().map(new).collect();
        let turns = (0..parts).flat_map(|part| (0..modes.len()).map(move |turn| (part, turn)));
        for (part, turn) in turns {
            let number = (part + turn) % modes.len();
            let first = part * CALLS_PER_PART;
            let begun = Clock::now();
            let Ok(()) = wheels[number].advance(plan, first..first + CALLS_PER_PART);
            let time = &mut times[number][part];
            *time = time.min(begun.elapsed().as_nanos() as f64);
        }
        is_enough = LEAST_MEASURED * modes.len() as u32 <= begun.elapsed();
    }
    times
}

/// Whether a study has processor time for another round.
#[derive(Debug)]
pub struct Budget {
    limit: Duration,
    /// When the last round began.
    begun: Option<Duration>,
    longest: Duration,
}

impl Budget {
    /// Returns the budget of a study that has just begun.
    pub fn new(limit: Duration) -> Self {
        Self { limit, begun: None, longest: Duration::ZERO }
    }

    /// Returns whether a round that begins when the study has taken `spent` ends within the limit.
    /// Beside other programs it can take longer than each before it, so twice the longest must fit.
    pub fn has_room(&mut self, spent: Duration) -> bool {
        if let Some(begun) = self.begun.replace(spent) {
            self.longest = self.longest.max(spent.saturating_sub(begun));
        }
        spent + 2 * self.longest < self.limit
    }
}

/// Enough to make the clock of processor time, a system call, cheap; so few that others seldom come
/// and go meanwhile.
const CALLS_PER_PART: usize = 4096;

/// Allocations before those of the wheels, so small that they are made where those will be.
const MOST_MOVES: usize = 64;
const LONGEST_MOVE: usize = 1 << 16;

/// A short plan is run until each mode took this time.
const LEAST_MEASURED: Duration = Duration::from_millis(5);
