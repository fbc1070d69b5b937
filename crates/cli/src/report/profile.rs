//! `Profile`: what happens over the time of a trace, in the trace and inside two wheels.

use crate::picture::Picture;
use crate::study::{Fired, Planner, Run};
use crate::tick::Tick;
use crate::trace::{Action, Operation};
use tickwheel::Mode;

/// A trace as a whole, and over time in steps of equal length.
#[derive(Debug)]
pub(super) struct Profile {
    /// The timeouts that fired up to the last operation, or to the end of the recording.
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
    /// For each wheel: its timeouts by level or by round, as [`Picture::groups`] returns them, and
    /// those in no bucket.
    pub(super) wheels: Vec<(Vec<u64>, u64)>,
}

impl Profile {
    /// Runs `operations`, and what fires after them up to `end_ms`, through a wheel of each of
    /// `modes`: a hierarchical one, and maybe a hashed one.
    pub(super) fn of(
        operations: &[Operation],
        end_ms: Option<u64>,
        modes: &[Mode],
        tick: Tick,
    ) -> Self {
        let mut wheels: Vec<_> = modes.iter().map(|&mode| Run::shown(mode)).collect();
        let mut step = Step::default();
        let mut planner = Planner::new(tick);
        let [from_ms, last_ms] =
            [operations.first(), operations.last()].map(|it| it.map_or(0, |it| it.time_ms));
        let mut profile = Self {
            fired: 0,
            most_pending: 0,
            from_ms,
            step_ms: ((end_ms.unwrap_or(last_ms) - from_ms) / MOST_STEPS + 1).next_power_of_two(),
            steps: Vec::new(),
        };
        let operations = operations.iter().map(|operation| (operation.time_ms, Some(operation)));
        for (time_ms, operation) in operations.chain(end_ms.map(|ms| (ms, None))) {
            while (profile.steps.len() as u64) < (time_ms - from_ms) / profile.step_ms {
                let end_ms = from_ms + (profile.steps.len() as u64 + 1) * profile.step_ms;
                wheels.iter_mut().for_each(|wheel| wheel.come_to(tick.present(end_ms - 1)));
                profile.steps.push(std::mem::take(&mut step).end(&wheels));
            }
            wheels.iter_mut().for_each(|wheel| wheel.come_to(tick.present(time_ms)));
            let Some(operation) = operation else { break };
            for call in planner.calls(operation) {
                wheels.iter_mut().for_each(|wheel| wheel.make(&call));
            }
            step.count(operation.action);
            profile.most_pending = profile.most_pending.max(wheels[0].wheel.len() as u64);
        }
        profile.steps.push(step.end(&wheels));
        profile.fired = wheels[0].observer.0;
        profile
    }
}

impl Step {
    /// Ends the step, after which the wheels are so.
    fn end(mut self, wheels: &[Run<Fired>]) -> Self {
        self.pending = wheels[0].wheel.len() as u64;
        let pictures = wheels.iter().map(|it| Picture::of(&it.wheel));
        self.wheels = pictures.map(|it| (it.groups(), it.sorted.into())).collect();
        self
    }

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
