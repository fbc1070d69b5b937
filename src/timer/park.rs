//! How the worker sleeps, and how other threads wake it up.
//!
//! Each shard has `watched`, under its lock: the worker looks at this shard by this tick, because
//! it found so itself or was told so. The park has `target`, under its lock: the earliest tick that
//! the worker was told, and, while it sleeps, the tick it sleeps for. A caller that schedules
//! something at or after `watched` is done. Otherwise it releases the shard, lowers `target` if that
//! is later, notifies the worker if it sleeps, and lowers `watched` unless the worker has looked
//! meanwhile. The worker begins a look with `target` at the end of time, and goes to sleep for the
//! earlier of the tick it found and the tick it was told meanwhile. So no wake-up is lost.
//!
//! A thread may lose its core anywhere in between. Until it has told the worker, others find
//! `watched` as it was; until the worker has woken up, each thread that comes here notifies it. That
//! may wake it once in vain. A hook is the exception: only the thread that is about to call it does.
//! A driver that rests by a waker, as in `run`, is woken by each.
//!
//! A worker is a thread or a [`Driver`](super::Driver), and they differ in how they are told. A
//! thread sleeps on a condition variable. A driver leaves a [`Bell`] here at the end of a turn. The
//! thread that tells it copies the waker or the hook, releases the lock, and wakes or calls. A
//! thread that does so and a turn that begins meanwhile do no harm to each other: the driver turns
//! once in vain.
//!
//! | case | what happens | `tests/loom.rs` |
//! |---|---|---|
//! | scheduled before the worker looks at the shard, after that, while it sleeps | the worker finds it there; the park does not let it sleep past it; it is notified | `scheduled_as_the_worker_falls_asleep_it_fires` |
//! | scheduled by two threads, in two shards | each lowers its own `watched`; `target` keeps the earlier | `scheduled_by_two_threads_both_fire`, `the_clock_stops_at_the_earliest_of_all_shards` |
//! | the first timeouts of two threads | the lock of the timer's life lets one thread start the worker | `first_timeouts_of_two_threads_both_fire` |
//! | the earliest is cancelled | the worker wakes up at its old deadline, once, and learns the next | `cancelling_the_earliest_does_not_hide_the_next` |
//! | moved earlier | as if it were scheduled | `moved_earlier_as_the_worker_falls_asleep_it_fires` |
//! | scheduled inside a task | the worker is awake: it is told, and goes on looking | `scheduled_inside_a_task_it_fires` |
//! | a driver is told as it lies down | it finds the earlier tick, or its bell is there to be rung | `scheduled_as_a_driver_lies_down_it_fires` |
//! | a driver is told twice as it lies down | its hook is told of the earlier tick at last | `told_twice_as_a_driver_lies_down_its_hook_knows_the_earlier` |
//! | a timer is stopped while its driver turns | `stop` waits until the turn is over | `stopped_as_a_driver_turns_no_task_runs_after_that` |
//! | a driver is dropped as it is told | the timeout comes back, or is refused | `a_driver_is_dropped_as_a_timeout_is_scheduled` |
//! | a driver moves to another thread | the thread that turned it has left all it knew here | `a_driver_turns_on_one_thread_and_then_on_another` |
//! | a clock jumps | each request has a number; a look that began later answers it | `the_clock_advances_when_all_that_was_due_has_fired` |
//! | a task moves the clock on while a thread advances it | the thread looks how far it is before all rests, and not after that | `a_clock_that_a_task_moves_on_is_there_when_all_that_was_due_has_fired` |
//! | tasks of several timers on one clock schedule on each other | the clock goes on when all of them have rested since they were asked | `the_clock_waits_for_what_another_timers_task_schedules`, `a_clock_moved_inside_a_task_tells_the_other_timer` |

use crate::panics::{catch, swallow};
use crate::platform::{Instant, process_id};
use crate::sync::{
    Condvar, Mutex, MutexGuard, Rank, ThreadId, lock, this_thread, wait, wait_timeout,
};
use crate::ticks::NEVER;
use alloc::sync::Arc;
use core::mem::replace;
use core::task::Waker;

/// The place where the worker sleeps.
///
/// The worker looks at every shard, leaves at each the tick by which it looks again, and sleeps
/// until the earliest of these. A thread that schedules something earlier writes the tick down here,
/// wakes the worker if it would sleep for longer, and then writes it down at the shard. A tick that
/// a thread writes down here while the worker looks is not lost: the worker takes the earlier of
/// the tick it found and the tick it was told.
pub(super) struct Park {
    /// The number of ticks for which a timeout may wait for others that are due later, so that all
    /// of them cost one wake-up.
    slack: u64,
    state: Mutex<ParkState>,
    /// A worker thread waits here.
    told: Condvar,
    /// Threads that moved the clock wait here, and those that wait for a turn of the driver.
    settled: Condvar,
}

pub(super) struct ParkState {
    /// The worker looks again at this tick, or as long after it as [`Park::slack`] allows: the
    /// earliest that it was told since it began to look, and once it sleeps also the one it found.
    target: u64,
    /// While the worker sleeps, it comes too late for a deadline before this tick.
    too_late_for: u64,
    /// The worker sleeps, and no thread has told it of an earlier tick since it fell asleep.
    asleep: bool,
    /// The last thread that told the worker since that fell asleep; None if none did, or the worker
    /// has woken up.
    told_by: Option<ThreadId>,
    stopping: bool,
    /// There is no worker thread.
    exited: bool,
    /// The process that started the worker thread.
    process: u32,
    /// The driver turns, on some thread.
    turning: bool,
    /// Tells the driver, which has lain down.
    bell: Option<Bell>,
    /// The process in which a thread calls the hook, and will call it again if `unheard` is earlier
    /// then; 0 if none does. A child that was forked meanwhile does not have that thread.
    rings: u32,
    /// The earliest tick of which the hook was not told yet.
    unheard: u64,
    /// How often threads asked the worker to look at the clock.
    asked: u64,
    /// The number of the last request that the worker answered: all that was due then has fired.
    answered: u64,
    /// How many timeouts had fired when the worker last went to sleep.
    fired: u64,
}

/// How a driver is told that its next turn is due earlier.
pub(super) enum Bell {
    /// Wakes it, until its next turn begins.
    Waker(Arc<Waker>),
    /// Is called with the tick of that turn, each time that it becomes earlier than this.
    Hook(Arc<Hook>, u64),
}

/// What a driver's owner does with the tick of its next turn.
pub(super) type Hook = dyn Fn(u64) + Send + Sync;

/// Says that a worker thread runs no task and has none to run. Two of these are equal if the worker
/// has run no task in between. A driver always says so, because nobody waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WorkerRest {
    fired: u64,
    /// The tick at which the worker looks next, at the latest; None if there is no worker.
    pub(super) next: Option<u64>,
}

/// What a worker does after it has looked at every shard.
pub(super) enum Rest<'a> {
    /// It ends: the timer is stopped.
    Ends,
    /// It looks again, and answers this request.
    Looks(u64),
    /// It sleeps, for so long, or until it is told.
    Sleeps(MutexGuard<'a, ParkState>, Left),
}

/// How long a thread is to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    Nothing,
    /// Until then, by the clock that the system sleeps by. A thread that loses its core before it
    /// sleeps does not sleep for longer.
    Until(Instant),
    /// Until it is told.
    Unknown,
}

impl Park {
    pub(super) fn new(slack: u64) -> Self {
        let state = ParkState {
            target: NEVER,
            too_late_for: NEVER,
            asleep: false,
            told_by: None,
            stopping: false,
            exited: true,
            process: 0,
            turning: false,
            bell: None,
            rings: 0,
            unheard: NEVER,
            asked: 0,
            answered: 0,
            fired: 0,
        };
        let (told, settled) = (Condvar::new(), Condvar::new());
        Self { slack, state: Mutex::new(Rank::Park, state), told, settled }
    }

    /// Returns the latest tick at which a timeout may fire that is due at tick `first`: one that
    /// comes, unless `first` never does.
    pub(super) fn latest_with(&self, first: u64) -> u64 {
        first.saturating_add(self.slack).min((NEVER - 1).max(first))
    }

    /// Returns the last of `ticks` for which what is due at tick `first` may wait; `first` itself if
    /// there is none.
    pub(super) fn last_with(&self, first: u64, ticks: impl IntoIterator<Item = u64>) -> u64 {
        let latest = self.latest_with(first);
        ticks.into_iter().filter(|&tick| tick <= latest).fold(first, u64::max)
    }

    /// Makes the worker look at tick `deadline` at the latest.
    pub(super) fn wake_by(&self, deadline: u64) {
        let mut state = lock(&self.state);
        let is_earlier = deadline < state.too_late_for;
        state.target = state.target.min(deadline);
        state.too_late_for = state.too_late_for.min(deadline);
        // The thread that told the worker of something earlier may not have come to notify it.
        if state.told_by.is_some() || state.asleep && is_earlier {
            self.tell(state, deadline);
        }
    }

    /// Says that a worker is about to start.
    pub(super) fn starts(&self) {
        let mut state = lock(&self.state);
        (state.exited, state.process) = (false, process_id());
    }

    /// Says that the worker has ended, and looks no more.
    pub(super) fn exits(&self) {
        lock(&self.state).exited = true;
        self.settled.notify_all();
    }

    /// Makes the worker end.
    pub(super) fn stop(&self) {
        let mut state = lock(&self.state);
        state.stopping = true;
        self.tell(state, 0);
    }

    /// Makes the worker look at the clock, and returns the number to wait for.
    pub(super) fn ask(&self) -> u64 {
        let mut state = lock(&self.state);
        state.asked += 1;
        let asked = state.asked;
        self.tell(state, 0);
        asked
    }

    /// Waits until everything has fired that was due at request `asked`. Returns how the worker
    /// rests then, or None if it is awake again.
    pub(super) fn settle(&self, asked: u64) -> Option<WorkerRest> {
        let mut state = lock(&self.state);
        // A child process made by `fork` has no worker.
        state.exited |= state.process != process_id();
        while state.answered < asked && !state.exited {
            state = wait(&self.settled, state);
        }
        state.rest()
    }

    /// Returns how the worker rests, or None if it is awake, or about to be.
    pub(super) fn rest(&self) -> Option<WorkerRest> {
        lock(&self.state).rest()
    }

    /// Lies down to sleep, unless the timer is stopped, tick `last` has come, or a thread asked the
    /// worker to look at the clock. What is due at tick `until` waits for tick `last`, if the worker
    /// sleeps for a time that it knows.
    ///
    /// `asked` is the number that the worker had before it looked, and `fired` how many timeouts
    /// have fired. `left` tells how long it is until these ticks; it reads the clock, and so runs
    /// with no lock held.
    pub(super) fn lie_down(
        &self,
        mut until: u64,
        mut last: u64,
        asked: u64,
        fired: u64,
        left: impl Fn(u64, u64) -> Left,
    ) -> Rest<'_> {
        loop {
            let left = left(until, last);
            let mut state = lock(&self.state);
            if state.stopping {
                return Rest::Ends;
            }
            if state.target < until {
                // A thread told of something earlier since the clock was read.
                until = state.target;
                last = self.last_with(until, [last]);
                continue;
            }
            if left == Left::Nothing || state.asked != asked {
                state.target = NEVER;
                return Rest::Looks(state.asked);
            }
            (state.target, state.fired) = (until, fired);
            state.too_late_for = match left {
                Left::Until(_) => last.saturating_sub(self.slack),
                // A clock that tells the worker knows nothing of `last`.
                Left::Unknown | Left::Nothing => until,
            };
            if state.answered != asked {
                state.answered = asked;
                self.settled.notify_all();
            }
            (state.asleep, state.told_by) = (true, None);
            return Rest::Sleeps(state, left);
        }
    }

    /// Lets the worker thread sleep that lay down, and returns the tick to lie down until when it
    /// woke up.
    pub(super) fn sleep(&self, mut state: MutexGuard<'_, ParkState>, left: Left) -> u64 {
        state = match left {
            Left::Until(instant) => {
                let duration = instant.saturating_duration_since(Instant::now());
                wait_timeout(&self.told, state, duration)
            }
            Left::Unknown | Left::Nothing => wait(&self.told, state),
        };
        (state.asleep, state.told_by) = (false, None);
        state.target
    }

    /// Begins a turn of the driver, and returns the request that it answers, or None if the timer
    /// is stopped; and what was to tell the driver. To drop that may stop the timer, which waits
    /// for the turn unless the thread is known to take it.
    pub(super) fn begin_turn(&self) -> (Option<u64>, Option<Bell>) {
        let mut state = lock(&self.state);
        (state.asleep, state.told_by, state.target) = (false, None, NEVER);
        state.turning = !state.stopping;
        (state.turning.then_some(state.asked), state.bell.take())
    }

    /// Takes what was to tell the driver, which is gone.
    pub(super) fn take_bell(&self) -> Option<Bell> {
        lock(&self.state).bell.take()
    }

    /// Says that the driver's turn is over.
    pub(super) fn end_turn(&self) {
        let mut state = lock(&self.state);
        state.turning = false;
        if state.stopping {
            self.settled.notify_all();
        }
    }

    /// Waits until the driver does not turn. The timer is being stopped.
    pub(super) fn wait_for_turn(&self) {
        let mut state = lock(&self.state);
        while state.turning {
            state = wait(&self.settled, state);
        }
    }

    /// Calls the hook with what it does not know yet, unless a thread does: the hook may call the
    /// timer, and is not called inside of itself.
    fn ring<'a>(&'a self, mut state: MutexGuard<'a, ParkState>) {
        let process = process_id();
        if replace(&mut state.rings, process) == process {
            return;
        }
        loop {
            let tick = replace(&mut state.unheard, NEVER);
            // Without a bell a turn has begun, and looks.
            let Some(Bell::Hook(hook, _)) = &state.bell else { break };
            if tick == NEVER {
                break;
            }
            let hook = Arc::clone(hook);
            drop(state);
            swallow(catch(move || hook(tick)));
            state = lock(&self.state);
        }
        state.rings = 0;
    }

    /// Tells the worker to look at tick `tick` at the latest, if it sleeps.
    fn tell<'a>(&'a self, mut state: MutexGuard<'a, ParkState>, tick: u64) {
        if let Some(Bell::Hook(_, told)) = &mut state.bell {
            if tick < *told {
                *told = tick;
                state.unheard = tick;
                self.ring(state);
            }
            return;
        }
        state.asleep = false;
        let this_thread = Some(this_thread());
        if replace(&mut state.told_by, this_thread) == this_thread {
            // It has told the worker, or a waker that it wakes calls the timer.
            return;
        }
        let waker = match &state.bell {
            Some(Bell::Waker(waker)) => Some(Arc::clone(waker)),
            _ => None,
        };
        drop(state);
        match waker {
            Some(waker) => {
                swallow(catch(|| waker.wake_by_ref()));
                swallow(waker);
            }
            None => self.told.notify_one(),
        }
    }
}

impl ParkState {
    /// Makes `bell` tell the driver, which lay down until the tick that this returns.
    pub(super) fn told_by(&mut self, bell: impl FnOnce(u64) -> Option<Bell>) -> u64 {
        debug_assert!(self.bell.is_none(), "the turn took it");
        self.bell = bell(self.target);
        self.target
    }

    fn rest(&self) -> Option<WorkerRest> {
        if self.exited {
            return Some(WorkerRest { fired: 0, next: None });
        }
        let is_told_all = self.asleep && self.asked == self.answered;
        is_told_all.then_some(WorkerRest { fired: self.fired, next: Some(self.target) })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn a_thread_that_is_about_to_notify_the_worker_holds_up_no_other() {
        let park = Park::new(0);
        thread::scope(|scope| {
            let worker =
                scope.spawn(|| match park.lie_down(NEVER, NEVER, 0, 0, |_, _| Left::Unknown) {
                    Rest::Sleeps(state, left) => park.sleep(state, left),
                    _ => unreachable!("nothing is due"),
                });
            let mut state = lock(&park.state);
            while !state.asleep {
                drop(state);
                thread::yield_now();
                state = lock(&park.state);
            }
            // Another thread has lost its core before it notifies.
            let other = thread::spawn(this_thread).join().expect("it has a number");
            (state.target, state.asleep, state.told_by) = (5, false, Some(other));
            drop(state);
            park.wake_by(9);
            assert_eq!(worker.join().expect("it woke up"), 5);
        });
    }

    #[test]
    fn a_worker_is_told_of_what_it_would_come_too_late_for() {
        let is_told = |slack, left, deadline| {
            let park = Park::new(slack);
            let rest = park.lie_down(14, 16, 0, 0, |_, _| left);
            assert!(matches!(rest, Rest::Sleeps(..)));
            drop(rest);
            park.wake_by(deadline);
            let state = lock(&park.state);
            assert_eq!(state.target, deadline.min(14));
            !state.asleep
        };
        let wakes_itself = Left::Until(Instant::now());
        let deadlines = [8, 9, 13, 14, 17];
        let told = deadlines.map(|deadline| is_told(7, wakes_itself, deadline));
        assert_eq!(told, [true, false, false, false, false]);
        // When the clock has come to its deadline, nobody else may tell the worker.
        let told = deadlines.map(|deadline| is_told(7, Left::Unknown, deadline));
        assert_eq!(told, [true, true, true, false, false]);
    }

    #[test]
    fn what_never_comes_is_not_waited_for_with_what_does() {
        let park = Park::new(16);
        assert_eq!(park.latest_with(NEVER), NEVER);
        for first in NEVER - 20..NEVER {
            assert_eq!(park.last_with(first, [NEVER]), first);
        }
        assert_eq!(park.last_with(NEVER - 9, [NEVER - 3, NEVER]), NEVER - 3);
    }

    #[test]
    fn a_worker_that_was_told_of_something_earlier_does_not_rest() {
        let park = Park::new(0);
        park.starts();
        // As `sleep` leaves it while the thread waits.
        lock(&park.state).asleep = true;
        assert_eq!(park.rest(), Some(WorkerRest { fired: 0, next: Some(NEVER) }));
        park.wake_by(5);
        assert_eq!(park.rest(), None);
    }
}
