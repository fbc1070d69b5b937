//! Runs a plan through a wheel, with the calls that a timer or a loop of one's own makes. Nothing
//! else makes them.

use super::plan::{Call, Kind, Plan};
use crate::tick::NEVER;
use std::convert::Infallible;
use std::hint::black_box;
use std::ops::Range;
use tickwheel::{Expired, Key, Mode, Wheel};

/// What drives the wheel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Driver {
    /// A `Timer`: its worker caps the work of a call, so that others get the lock.
    #[default]
    Timer,
    /// A loop of your own, which calls `Wheel::expire` until nothing is due.
    Wheel,
}

/// Looks on while a wheel runs; by default at nothing.
pub trait Observer {
    /// Why a run can be stopped.
    type Stopped;

    /// A timeout was scheduled or moved.
    #[inline]
    fn placed(&mut self, _wheel: &Wheel<u32>, _key: Key) {}

    /// The wheel wakes up.
    #[inline]
    fn wakes(&mut self) {}

    /// The wheel handed out what was due at tick `now`, or did some of the work for that.
    #[inline]
    fn worked(&mut self, _now: u64, _units: usize, _expired: Option<&Expired<u32>>) {}

    /// The trace is over, and more of its timeouts come.
    #[inline]
    fn ends(&mut self, _wheel: &Wheel<u32>) {}

    /// A step is done.
    #[inline]
    fn step(&mut self, _wheel: &Wheel<u32>) -> Result<(), Self::Stopped> {
        Ok(())
    }
}

/// Counts the timeouts that fire.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fired(pub u64);

/// A wheel under the calls of a plan.
#[derive(Debug)]
pub struct Run<O> {
    driver: Driver,
    /// Each value is its place in the plan.
    pub wheel: Wheel<u32>,
    /// By place. The key of a timeout that is gone finds nothing.
    pub keys: Vec<Option<Key>>,
    /// What looks on.
    pub observer: O,
}

impl<O: Observer> Run<O> {
    /// Returns a run with room for so many places. It can have others, too.
    pub fn new(mode: Mode, driver: Driver, places: usize, observer: O) -> Self {
        Self { driver, wheel: Wheel::new(mode), keys: vec![None; places], observer }
    }

    /// Makes these calls of a plan, and behind the last one waits for all that is due later.
    pub(super) fn advance(&mut self, plan: &Plan, calls: Range<usize>) -> Result<(), O::Stopped> {
        let to = plan.calls.len().min(calls.end);
        for call in &plan.calls[calls.start..to] {
            self.drive(call.now)?;
            self.make(call);
            self.observer.step(&self.wheel)?;
        }
        if to < plan.calls.len() {
            return Ok(());
        }
        if let Some(end) = plan.end {
            self.drive(end)?;
        }
        self.observer.ends(&self.wheel);
        self.drive(NEVER - 1)
    }

    /// Makes a call of a wheel that was driven to its tick.
    #[inline]
    pub fn make(&mut self, call: &Call) {
        let place = call.place as usize;
        if self.keys.len() <= place {
            self.keys.resize(place + 1, None);
        }
        let key = &mut self.keys[place];
        match (call.kind, *key) {
            (Kind::Schedule, _) => {
                let new = self.wheel.schedule(call.deadline, call.place);
                self.observer.placed(&self.wheel, new);
                *key = Some(new);
            }
            (Kind::Reschedule, Some(key)) => {
                let moved = self.wheel.reschedule(key, call.deadline);
                assert!(moved, "the plan moves what is pending");
                self.observer.placed(&self.wheel, key);
            }
            (Kind::Cancel, Some(key)) => {
                let cancelled = self.wheel.cancel(key);
                assert!(cancelled.is_some(), "the plan cancels what is pending");
            }
            (Kind::Nothing, _) => {}
            (Kind::Reschedule | Kind::Cancel, None) => {
                unreachable!("the plan schedules a timeout first")
            }
        }
    }

    /// Wakes the wheel up as often as it asks for up to tick `to`, and takes out what is due.
    #[inline]
    pub fn drive(&mut self, to: u64) -> Result<(), O::Stopped> {
        while let Some(now) = self.wheel.next_wake().filter(|&now| now <= to) {
            self.observer.wakes();
            let mut work = 0;
            while work == 0 {
                work = self.driver.most_work();
                self.expire(now, &mut work)?;
            }
        }
        Ok(())
    }

    /// Takes out what is due at tick `now`, until `work` is done.
    #[inline]
    fn expire(&mut self, now: u64, work: &mut usize) -> Result<(), O::Stopped> {
        loop {
            let before = *work;
            let expired = self.wheel.expire_bounded(now, work);
            self.observer.worked(now, before - *work, expired.as_ref());
            self.observer.step(&self.wheel)?;
            let Some(expired) = expired else { return Ok(()) };
            black_box(expired.value);
        }
    }
}

impl Run<Fired> {
    /// Returns a run that is shown.
    pub fn shown(mode: Mode) -> Self {
        Self::new(mode, Driver::Wheel, 0, Fired(0))
    }

    /// Wakes the wheel up as often as it asks for up to tick `now`, and tells it that time.
    pub fn come_to(&mut self, now: u64) {
        let Ok(()) = self.drive(now);
        self.wheel.expire(now);
    }
}

impl Observer for Fired {
    type Stopped = Infallible;

    #[inline]
    fn worked(&mut self, _now: u64, _units: usize, expired: Option<&Expired<u32>>) {
        self.0 += u64::from(expired.is_some());
    }
}

impl Driver {
    /// The most work at a time, as the shard of a timer takes it under one lock.
    fn most_work(self) -> usize {
        match self {
            Self::Timer => 128,
            Self::Wheel => usize::MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Driver, Observer, Run};
    use crate::tick::NEVER;
    use std::convert::Infallible;
    use tickwheel::{Expired, steps};

    /// The most units in one call, as a budget tells them.
    #[derive(Default)]
    struct Longest(usize);

    impl Observer for Longest {
        type Stopped = Infallible;

        fn worked(&mut self, _now: u64, units: usize, _expired: Option<&Expired<u32>>) {
            self.0 = self.0.max(units);
        }
    }

    /// So what is counted without a cap is the work of a timer, too.
    #[test]
    fn a_timer_takes_the_same_steps_as_a_loop_in_shorter_calls() {
        for mode in ["hierarchical:64", "hierarchical:2", "hashed:8", "hashed:1"] {
            let [timer, wheel] = [Driver::Timer, Driver::Wheel].map(|driver| {
                let mode = mode.parse().expect("a mode");
                let mut run = Run::new(mode, driver, 0, Longest::default());
                for value in 0..3_000 {
                    let key = run.wheel.schedule(1 + u64::from(value) * 7919 % 5_000, value);
                    if value % 7 == 0 {
                        run.wheel.cancel(key);
                    }
                }
                let before = steps();
                let Ok(()) = run.drive(NEVER - 1);
                (steps() - before, run.observer.0)
            });
            assert_eq!(timer.0, wheel.0, "{mode}");
            assert!(timer.1 <= 128 && 128 < wheel.1, "{mode}: {} and {}", timer.1, wheel.1);
        }
    }
}
