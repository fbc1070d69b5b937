//! Runs a plan through a wheel, with the calls that a timer or a loop of one's own makes.

use super::plan::{Call, Kind, Plan};
use crate::tick::NEVER;
use std::hint::black_box;
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
pub(super) trait Observer {
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

/// A wheel under a plan.
pub(super) struct Run<'a, O> {
    plan: &'a Plan,
    driver: Driver,
    pub(super) wheel: Wheel<u32>,
    keys: Vec<Option<Key>>,
    /// The calls that were made.
    made: usize,
    pub(super) observer: O,
}

impl<'a, O: Observer> Run<'a, O> {
    pub(super) fn new(plan: &'a Plan, mode: Mode, driver: Driver, observer: O) -> Self {
        let keys = vec![None; plan.places];
        Self { plan, driver, wheel: Wheel::new(mode), keys, made: 0, observer }
    }

    /// Makes up to so many calls more, and behind the last one waits for all that is due later.
    /// Returns whether it is over.
    pub(super) fn advance(&mut self, calls: usize) -> Result<bool, O::Stopped> {
        let plan = self.plan;
        let to = plan.calls.len().min(self.made.saturating_add(calls));
        for call in &plan.calls[self.made..to] {
            self.drive(call.now)?;
            self.make(call);
            self.observer.step(&self.wheel)?;
        }
        self.made = to;
        if to < plan.calls.len() {
            return Ok(false);
        }
        if let Some(end) = plan.end {
            self.drive(end)?;
        }
        self.observer.ends(&self.wheel);
        self.drive(NEVER - 1)?;
        Ok(true)
    }

    #[inline]
    fn make(&mut self, call: &Call) {
        let key = &mut self.keys[call.place as usize];
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
    fn drive(&mut self, to: u64) -> Result<(), O::Stopped> {
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

impl Driver {
    /// The most work at a time, as the shard of a timer takes it under one lock.
    fn most_work(self) -> usize {
        match self {
            Self::Timer => 128,
            Self::Wheel => usize::MAX,
        }
    }
}
