//! The processor time of a run.

use super::plan::Plan;
use super::run::{Driver, Observer, Run};
use cpu_time::ThreadTime;
use std::convert::Infallible;
use std::time::Duration;
use tickwheel::{Expired, Key, Mode, Wheel};

/// Returns the processor time that the calls of `plan` take in each of `modes`.
///
/// All of them go through the plan side by side, some calls each in turn, so that whatever else
/// the machine does slows all of them down alike. `first` is the mode whose turn is the first. A short
/// plan is run several times.
pub(super) fn round(plan: &Plan, modes: &[Mode], driver: Driver, first: usize) -> Vec<Duration> {
    let mut times = vec![Duration::ZERO; modes.len()];
    let mut runs = 0;
    while runs == 0 || times.iter().any(|&time| time < LEAST_MEASURED) {
        let new = |&mode| Run::new(plan, mode, driver, Nobody);
        let mut wheels: Vec<_> = modes.iter().map(new).collect();
        for turn in first.. {
            let mut is_over = true;
            for number in (0..modes.len()).map(|number| (number + turn) % modes.len()) {
                let begun = ThreadTime::now();
                let Ok(is_done) = wheels[number].advance(CALLS_PER_TURN);
                times[number] += begun.elapsed();
                is_over = is_done;
            }
            if is_over {
                break;
            }
        }
        runs += 1;
    }
    times.into_iter().map(|time| time / runs).collect()
}

/// Looks at nothing.
struct Nobody;

impl Observer for Nobody {
    type GivenUp = Infallible;

    #[inline]
    fn placed(&mut self, _: &Wheel<u32>, _: Key) {}

    #[inline]
    fn wakes(&mut self) {}

    #[inline]
    fn worked(&mut self, _: u64, _: usize, _: Option<&Expired<u32>>) {}

    #[inline]
    fn ends(&mut self, _: &Wheel<u32>) {}

    #[inline]
    fn step(&mut self, _: &Wheel<u32>) -> Result<(), Infallible> {
        Ok(())
    }
}

/// Enough to make the clock of processor time, a system call, cheap; too few for others to come and
/// go meanwhile.
const CALLS_PER_TURN: usize = 8192;

/// A short plan is run until each mode took this time.
const LEAST_MEASURED: Duration = Duration::from_millis(5);
