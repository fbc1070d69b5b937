//! `Profile`: what happens over the time of a trace, in the trace and inside two wheels.

use crate::study::{Counts, Planner};
use crate::tick::Tick;
use crate::trace::{Action, Operation};
use crate::turning::Turning;
use tickwheel::Mode;

/// A trace as a whole, and over time in steps of equal length.
#[derive(Debug)]
pub(super) struct Profile {
    pub(super) counts: Counts,
    /// The timeouts that fired up to the last operation.
    pub(super) fired: u64,
    pub(super) most_pending: u64,
    /// When the first step begins, in ms.
    pub(super) from_ms: u64,
    /// How long a step is, in ms.
    pub(super) step_ms: u64,
    pub(super) steps: Vec<Step>,
}

/// What happened in a step, and how things were at its end.
#[derive(Debug, Default)]
pub(super) struct Step {
    pub(super) scheduled: u64,
    pub(super) moved: u64,
    pub(super) cancelled: u64,
    pub(super) pending: u64,
    /// The timeouts on each level of the hierarchical wheel, the finest first.
    pub(super) levels: Vec<u64>,
    /// The timeouts that the hierarchical and the hashed wheel have in no bucket: sorted, to be
    /// handed out next, or few.
    pub(super) sorted: [u64; 2],
    /// The timeouts of the hashed wheel by the rounds that they wait, as in
    /// [`Picture`](crate::turning::Picture).
    pub(super) rounds: Vec<u64>,
}

impl Profile {
    /// Runs `operations` through a wheel of the first of `modes`, which is hierarchical, and if
    /// `is_both` through one of the other.
    pub(super) fn of(
        operations: &[Operation],
        modes: [Mode; 2],
        is_both: bool,
        tick: Tick,
    ) -> Self {
        let number = if is_both { 2 } else { 1 };
        let wheels = modes.into_iter().take(number).map(Turning::new).collect();
        let mut run = Run { wheels, step: Step::default() };
        let mut planner = Planner::new(tick);
        let [from_ms, last_ms] =
            [operations.first(), operations.last()].map(|it| it.map_or(0, |it| it.time_ms));
        let mut profile = Self {
            counts: Counts::default(),
            fired: 0,
            most_pending: 0,
            from_ms,
            step_ms: ((last_ms - from_ms) / MOST_STEPS + 1).next_power_of_two(),
            steps: Vec::new(),
        };
        for operation in operations {
            while (profile.steps.len() as u64) < (operation.time_ms - from_ms) / profile.step_ms {
                let end_ms = from_ms + (profile.steps.len() as u64 + 1) * profile.step_ms;
                run.drive(tick.present(end_ms - 1));
                profile.steps.push(run.take());
            }
            run.drive(tick.present(operation.time_ms));
            for call in planner.calls(operation) {
                run.wheels.iter_mut().for_each(|wheel| wheel.make(&call));
            }
            run.step.count(operation.action);
            profile.most_pending = profile.most_pending.max(run.pending());
        }
        profile.steps.push(run.take());
        (profile.counts, profile.fired) = (planner.counts, run.wheels[0].fired);
        profile
    }
}

/// One wheel or two under the trace.
struct Run {
    wheels: Vec<Turning>,
    /// What was counted since the last step ended.
    step: Step,
}

impl Run {
    /// Wakes the wheels up as often as they ask for up to tick `to`.
    fn drive(&mut self, to: u64) {
        for wheel in &mut self.wheels {
            while let Some(wake) = wheel.next_wake().filter(|&wake| wake <= to) {
                wheel.drive(wake);
            }
            wheel.drive(to);
        }
    }

    fn pending(&self) -> u64 {
        self.wheels[0].wheel.len() as u64
    }

    /// Ends a step.
    fn take(&mut self) -> Step {
        let hierarchical = &self.wheels[0];
        let levels = hierarchical.picture();
        let mut step = std::mem::take(&mut self.step);
        step.pending = self.pending();
        step.levels = (0..levels.levels.len()).map(|level| levels.on_level(level)).collect();
        step.sorted[0] = levels.sorted.into();
        let Some(hashed) = self.wheels.get(1) else { return step };
        let rounds = hashed.picture();
        step.rounds = rounds.rounds.iter().map(|&timeouts| timeouts.into()).collect();
        step.sorted[1] = rounds.sorted.into();
        step
    }
}

impl Step {
    fn count(&mut self, action: Action) {
        match action {
            Action::Schedule { .. } => self.scheduled += 1,
            Action::Reschedule { .. } => self.moved += 1,
            Action::Cancel => self.cancelled += 1,
        }
    }
}

/// As many columns can be told apart.
const MOST_STEPS: u64 = 96;
