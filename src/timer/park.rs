//! How the worker sleeps, and how it is told to wake up.

use crate::clock::{Clock, NEVER, Ticks};
use crate::sync::{Condvar, Mutex, lock, wait, wait_timeout};
use core::time::Duration;
use std::time::Instant;

/// Where the worker sleeps.
///
/// The worker looks at every shard, leaves at each the tick by which it looks again, and sleeps
/// until the earliest of these. Who schedules something earlier than what its shard was left with
/// writes that down at the shard, and then here, where the worker is woken if it sleeps for longer.
/// What is written here while the worker looks is not lost: it takes the earlier of what it found
/// and what it was told.
#[derive(Debug)]
pub(super) struct Park {
    state: Mutex<State>,
    /// The worker waits here.
    told: Condvar,
    /// Those who follow a clock that jumped wait here.
    settled: Condvar,
}

#[derive(Debug)]
struct State {
    /// The worker looks again at this tick at the latest: what it was told since it began to look,
    /// and once it sleeps also what it found.
    target: u64,
    asleep: bool,
    stopping: bool,
    exited: bool,
    /// How often the worker was asked to look at the clock.
    asked: u64,
    /// The number of the last request that was answered: all that was due then has fired.
    answered: u64,
}

/// What the worker is to do after it slept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Woken {
    /// Look at every shard, and then park with this number.
    Look {
        asked: u64,
    },
    Stop,
}

impl Park {
    pub(super) fn new() -> Self {
        Self {
            state: Mutex::new(State {
                target: NEVER,
                asleep: false,
                stopping: false,
                exited: true,
                asked: 0,
                answered: 0,
            }),
            told: Condvar::new(),
            settled: Condvar::new(),
        }
    }

    /// Makes the worker look at tick `deadline` at the latest.
    pub(super) fn wake_by(&self, deadline: u64) {
        let mut state = lock(&self.state);
        if deadline < state.target {
            state.target = deadline;
            if state.asleep {
                drop(state);
                self.told.notify_one();
            }
        }
    }

    /// A worker is about to start.
    pub(super) fn starts(&self) {
        lock(&self.state).exited = false;
    }

    /// The worker has ended, and looks no more.
    pub(super) fn exits(&self) {
        lock(&self.state).exited = true;
        self.settled.notify_all();
    }

    /// Makes the worker end.
    pub(super) fn stop(&self) {
        lock(&self.state).stopping = true;
        self.told.notify_one();
    }

    /// Makes the worker look at the clock, and returns the number to wait for.
    pub(super) fn ask(&self) -> u64 {
        let mut state = lock(&self.state);
        state.asked += 1;
        let asked = state.asked;
        drop(state);
        self.told.notify_one();
        asked
    }

    /// Waits until everything that was due when `asked` was asked has fired. The tick at which the
    /// worker looks next, or None if it does not.
    pub(super) fn settle(&self, asked: u64) -> Option<u64> {
        let mut state = lock(&self.state);
        while state.answered < asked {
            if state.exited {
                return None;
            }
            state = wait(&self.settled, state);
        }
        Some(state.target).filter(|&target| !state.exited && target < NEVER)
    }

    /// Sleeps until tick `until`, or until told to wake up earlier.
    ///
    /// `asked` is what the worker was given before it looked; `woken` is called for each time the
    /// thread woke up. The clock is read with no lock held.
    pub(super) fn sleep(
        &self,
        clock: &dyn Clock,
        ticks: &Ticks,
        mut until: u64,
        asked: u64,
        woken: impl Fn(),
    ) -> Woken {
        loop {
            let left = left(clock, ticks, until);
            let mut state = lock(&self.state);
            if state.stopping {
                return Woken::Stop;
            }
            if state.target < until {
                // Told of something earlier since the clock was read.
                until = state.target;
                continue;
            }
            if left == Left::Nothing || state.asked != asked {
                state.target = NEVER;
                return Woken::Look { asked: state.asked };
            }
            state.target = until;
            if state.answered != asked {
                state.answered = asked;
                self.settled.notify_all();
            }
            state.asleep = true;
            state = match left {
                Left::Some(duration) => wait_timeout(&self.told, state, duration),
                Left::Unknown | Left::Nothing => wait(&self.told, state),
            };
            state.asleep = false;
            until = state.target;
            drop(state);
            woken();
        }
    }
}

/// How long the worker is to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    Nothing,
    Some(Duration),
    /// Until it is told.
    Unknown,
}

fn left(clock: &dyn Clock, ticks: &Ticks, until: u64) -> Left {
    if until == NEVER {
        return Left::Unknown;
    }
    let now: Instant = clock.now();
    if until <= ticks.present(now) {
        return Left::Nothing;
    }
    // What no instant can hold does not come.
    let Some(instant) = ticks.instant(until) else { return Left::Unknown };
    match clock.wait(instant.saturating_duration_since(now)) {
        Some(duration) => Left::Some(duration),
        None => Left::Unknown,
    }
}
