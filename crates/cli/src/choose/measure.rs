//! Runs a plan through a wheel: how much processor time it takes, and what else can be seen.

use super::plan::{Kind, Plan};
use crate::replay::NEVER;
use cpu_time::ThreadTime;
use std::hint::black_box;
use std::time::{Duration, Instant};
use tickwheel::{Key, Mode, Wheel};

/// What a run saw besides its time.
pub(super) struct Look {
    /// Processor time, that for looking included.
    pub(super) time: Duration,
    pub(super) wakeups: u64,
    pub(super) fired: u64,
    /// The most bytes that the wheel held.
    pub(super) memory: u64,
    /// The calls that took long, by number, ascending.
    pub(super) long_calls: Vec<LongCall>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LongCall {
    pub(super) number: u64,
    pub(super) ns: u64,
}

/// When a run is given up.
#[derive(Clone, Copy)]
pub(super) struct Most {
    /// Of processor time.
    pub(super) time: Duration,
    /// Of bytes that the wheel holds.
    pub(super) memory: u64,
}

/// Why a run was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GivenUp {
    Time,
    Memory,
}

/// The processor time of runs of one plan in one mode, stretch by stretch.
///
/// Each run makes the same calls, so a stretch counts as its shortest of all runs: whatever else
/// the machine does can only make it longer, and hardly meets the same stretch each time.
#[derive(Default)]
pub(super) struct Stretches {
    shortest: Vec<Duration>,
}

impl Stretches {
    /// Runs `plan` in `mode` once more, or some times more if it is short. To create and to drop
    /// the wheel does not count.
    pub(super) fn measure(&mut self, plan: &Plan, mode: Mode) {
        let mut total = Duration::ZERO;
        while total < LEAST_MEASURED {
            let most = Most { time: Duration::MAX, memory: u64::MAX };
            let mut run = Run::new(plan, mode, Plain, most);
            run.all(plan).expect("nothing limits it");
            let end = run.started.elapsed();
            total += end;
            let ends = run.looks.into_iter().chain([end]);
            let mut begin = Duration::ZERO;
            for (number, end) in ends.enumerate() {
                let time = end - begin;
                match self.shortest.get_mut(number) {
                    Some(shortest) => *shortest = time.min(*shortest),
                    None => self.shortest.push(time),
                }
                begin = end;
            }
        }
    }

    /// The processor time of a run; None before the first one.
    pub(super) fn total(&self) -> Option<Duration> {
        (!self.shortest.is_empty()).then(|| self.shortest.iter().sum())
    }
}

/// Runs `plan` in `mode` with a look at each call.
pub(super) fn look(plan: &Plan, mode: Mode, most: Most) -> Result<Look, GivenUp> {
    let clocked = Clocked { calls: 0, long: Vec::new(), memory: 0, next_look: 1 };
    let mut run = Run::new(plan, mode, clocked, most);
    run.all(plan)?;
    let time = run.started.elapsed();
    run.observer.look_at_memory(&run.wheel);
    Ok(Look {
        time,
        wakeups: run.wakeups,
        fired: run.fired,
        memory: run.observer.memory,
        long_calls: run.observer.long,
    })
}

/// What stands between a run and its wheel.
trait Observer {
    /// Makes the call.
    fn call<R>(&mut self, wheel: &mut Wheel<u32>, call: impl FnOnce(&mut Wheel<u32>) -> R) -> R;

    /// The bytes that the wheel held, as far as they were looked at.
    fn memory(&self) -> u64;
}

/// Looks at nothing.
struct Plain;

struct Clocked {
    calls: u64,
    long: Vec<LongCall>,
    memory: u64,
    /// The number of pending timeouts at which the memory is looked at again.
    next_look: usize,
}

/// A wheel, and the program that drives it.
struct Run<O> {
    wheel: Wheel<u32>,
    keys: Vec<Option<Key>>,
    observer: O,
    most: Most,
    started: ThreadTime,
    /// Steps until the limits are looked at.
    until_look: u32,
    /// When they were looked at, in processor time.
    looks: Vec<Duration>,
    wakeups: u64,
    fired: u64,
}

impl<O: Observer> Run<O> {
    fn new(plan: &Plan, mode: Mode, observer: O, most: Most) -> Self {
        Self {
            wheel: Wheel::new(mode),
            keys: vec![None; plan.places],
            observer,
            most,
            started: ThreadTime::now(),
            until_look: STEPS_A_LOOK,
            looks: Vec::with_capacity(plan.calls.len() / 256),
            wakeups: 0,
            fired: 0,
        }
    }

    fn all(&mut self, plan: &Plan) -> Result<(), GivenUp> {
        for call in &plan.calls {
            self.drive(call.now)?;
            let key = &mut self.keys[call.place as usize];
            match (&call.kind, *key) {
                (Kind::Schedule, _) => {
                    let schedule = |wheel: &mut Wheel<_>| wheel.schedule(call.deadline, call.place);
                    *key = Some(self.observer.call(&mut self.wheel, schedule));
                }
                (Kind::Reschedule, Some(key)) => {
                    let reschedule = |wheel: &mut Wheel<_>| wheel.reschedule(key, call.deadline);
                    let moved = self.observer.call(&mut self.wheel, reschedule);
                    assert!(moved, "the plan moves what is pending");
                }
                (Kind::Cancel, Some(key)) => {
                    let cancelled = self.observer.call(&mut self.wheel, |wheel| wheel.cancel(key));
                    assert!(cancelled.is_some(), "the plan cancels what is pending");
                }
                (_, None) => unreachable!("the plan schedules a timeout first"),
            }
            self.step()?;
        }
        self.drive(NEVER - 1)
    }

    /// Wakes the wheel up as often as it asks for up to tick `to`, and takes out what is due.
    fn drive(&mut self, to: u64) -> Result<(), GivenUp> {
        while let Some(now) = self.wheel.next_wake().filter(|&now| now <= to) {
            self.wakeups += 1;
            let expire = |wheel: &mut Wheel<_>| wheel.expire(now);
            while let Some(expired) = self.observer.call(&mut self.wheel, expire) {
                black_box(expired.value);
                self.fired += 1;
                self.step()?;
            }
            self.step()?;
        }
        Ok(())
    }

    #[inline]
    fn step(&mut self) -> Result<(), GivenUp> {
        self.until_look -= 1;
        if self.until_look == 0 { self.look_at_limits() } else { Ok(()) }
    }

    #[cold]
    fn look_at_limits(&mut self) -> Result<(), GivenUp> {
        self.until_look = STEPS_A_LOOK;
        if self.most.memory < self.observer.memory() {
            return Err(GivenUp::Memory);
        }
        let time = self.started.elapsed();
        self.looks.push(time);
        if self.most.time < time { Err(GivenUp::Time) } else { Ok(()) }
    }
}

impl Observer for Plain {
    #[inline]
    fn call<R>(&mut self, wheel: &mut Wheel<u32>, call: impl FnOnce(&mut Wheel<u32>) -> R) -> R {
        call(wheel)
    }

    fn memory(&self) -> u64 {
        0
    }
}

impl Observer for Clocked {
    #[inline]
    fn call<R>(&mut self, wheel: &mut Wheel<u32>, call: impl FnOnce(&mut Wheel<u32>) -> R) -> R {
        let start = Instant::now();
        let result = call(wheel);
        let ns = start.elapsed().as_nanos() as u64;
        if LONG_CALL_NS <= ns {
            self.long.push(LongCall { number: self.calls, ns });
        }
        self.calls += 1;
        if self.next_look <= wheel.len() {
            self.look_at_memory(wheel);
            self.next_look = wheel.len() + wheel.len().div_ceil(8);
        }
        result
    }

    fn memory(&self) -> u64 {
        self.memory
    }
}

impl Clocked {
    fn look_at_memory(&mut self, wheel: &Wheel<u32>) {
        self.memory = self.memory.max(wheel.stats().memory as u64);
    }
}

/// Of the calls that are in all `looks`, returns the longest: by the shortest time that each took,
/// and by its middle time. What interrupts one run, does not interrupt the same call in all. None
/// if no call was long in every run.
pub(super) fn longest(looks: &[Vec<LongCall>]) -> Option<(u64, u64)> {
    let (first, others) = looks.split_first()?;
    let mut longest: Option<(u64, u64)> = None;
    for call in first {
        let at = |calls: &Vec<LongCall>| {
            let found = calls.binary_search_by_key(&call.number, |other| other.number);
            found.map(|at| calls[at].ns).ok()
        };
        let Some(mut times) = others.iter().map(at).collect::<Option<Vec<_>>>() else { continue };
        times.push(call.ns);
        times.sort_unstable();
        let (least, middle) = (times[0], times[times.len() / 2]);
        let before = longest.unwrap_or_default();
        longest = Some((before.0.max(least), before.1.max(middle)));
    }
    longest
}

/// A short plan is run until it took this time.
const LEAST_MEASURED: Duration = Duration::from_millis(5);

/// Shorter calls are not kept.
pub(super) const LONG_CALL_NS: u64 = 2_000;

/// The calls and wake-ups of a stretch. The clock of processor time takes a system call.
const STEPS_A_LOOK: u32 = 1024;
