//! The worker: look at every shard, fire what is due, sleep.

use super::executor::Executor;
use super::hub::Hub;
use super::inside;
use super::park::Rest;
use super::repeat::{Phase, Repeating};
use super::shard::{self, Action, DueWakers, Found, Shard};
use super::task::{Next, RepeatingTask, Status, Task, Unfired};
use crate::sync::{Mutex, lock};
use crate::ticks::NEVER;
use crate::{Expired, Key};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem::forget;
use core::sync::atomic::Ordering::Relaxed;

/// What the worker works on. The clones of its timer share it with the worker.
pub(super) struct Engine {
    pub(super) hub: Arc<Hub>,
    pub(super) shards: Box<[Arc<Shard>]>,
    pub(super) executor: Option<Box<dyn Executor>>,
    /// The timeouts that ran on the worker while the timer was stopped, and would have run again.
    pub(super) left: Mutex<Vec<Unfired>>,
}

/// Does what the worker thread does, until the timer is stopped.
pub(super) fn run(engine: Arc<Engine>) {
    let hub = Arc::clone(&engine.hub);
    let _exits = Exits(&hub);
    // Until the thread has ended, destructors of thread-local values included.
    forget(inside::enter_turn(hub.id));
    let mut asked = 0;
    loop {
        let mut rest = engine.turn(asked);
        while let Rest::Sleeps(state, left) = rest {
            let until = hub.park.sleep(state, left);
            hub.counters.wakes_up();
            rest = engine.lie_down(until, until, asked);
        }
        match rest {
            Rest::Looks(request) => asked = request,
            Rest::Sleeps(..) | Rest::Ends => break,
        }
    }
    // If no thread waits for this one, the executor and what is left are dropped here.
    hub.guarded(|| drop(engine));
}

/// Tells the threads that wait for the worker to settle that the worker has ended.
struct Exits<'a>(&'a Hub);

impl Drop for Exits<'_> {
    fn drop(&mut self) {
        self.0.park.exits();
    }
}

impl Engine {
    /// Looks at every shard once, fires some of what is due, and lies down if that was all.
    /// Answers the request `asked`.
    pub(super) fn turn(&self, asked: u64) -> Rest<'_> {
        let (mut until, mut last, mut is_more, mut emptied) = (NEVER, NEVER, false, None);
        for (number, shard) in self.shards.iter().enumerate() {
            // What a task schedules goes where its own timeout was: chains stay together, and the
            // order within them does not depend on threads.
            shard::keep_to(number);
            match self.take_turn(shard) {
                Found::Nothing { next, last: later, is_emptied } => {
                    let ticks = [until, last, next, later];
                    until = until.min(next);
                    last = self.hub.park.last_with(until, ticks);
                    emptied = if is_emptied { Some(shard) } else { emptied };
                }
                _ => is_more = true,
            }
        }
        match emptied {
            _ if is_more => Rest::Looks(asked),
            // When nothing is due, and so little that what comes due meanwhile is not late.
            Some(shard) => {
                shard.free_some();
                Rest::Looks(asked)
            }
            None => self.lie_down(until, last, asked),
        }
    }

    fn lie_down(&self, until: u64, last: u64, asked: u64) -> Rest<'_> {
        let fired = self.hub.counters.fired.load(Relaxed);
        self.hub.park.lie_down(until, last, asked, fired, |until, last| self.hub.left(until, last))
    }

    /// Fires what is due in one shard, and returns what it finds then: nothing, unless there is
    /// more than one turn allows. It is another shard's turn in either case.
    fn take_turn(&self, shard: &Arc<Shard>) -> Found {
        let hub = &self.hub;
        let mut now = hub.nanos();
        let mut wakers = DueWakers::new();
        for _ in 0..TURN {
            match shard.take_due(hub.tick_at(now), &mut wakers) {
                Found::Due { is_burst } => {
                    self.wake(&mut wakers, &mut now);
                    // In a burst the worker reads the clock once for a few tasks.
                    let together = if is_burst { TOGETHER } else { 1 };
                    while self.fire_some(shard, together, &mut now) {}
                }
                Found::More => {}
                nothing @ Found::Nothing { .. } => return nothing,
            }
        }
        Found::More
    }

    /// Wakes what [is woken together](crate::TimerBuilder::wakes_together). `now` is the last reading
    /// of the clock, which is read again after that.
    fn wake(&self, wakers: &mut DueWakers, now: &mut u64) {
        if wakers.is_empty() {
            return;
        }
        for (deadline, waker) in wakers.drain(..) {
            self.fires(deadline, *now);
            self.hub.guarded(|| waker.wake());
        }
        self.took(now);
    }

    /// Fires up to `together` of the timeouts that were taken out, and returns whether there may be
    /// more. `now` is the last reading of the clock. The clock is read again after the last task.
    fn fire_some(&self, shard: &Arc<Shard>, together: usize, now: &mut u64) -> bool {
        let mut fired = 0;
        while fired < together {
            let Some(expired) = shard.next_due() else { break };
            let late = self.fires(expired.deadline, *now);
            self.fire(shard, expired, *now, late);
            fired += 1;
        }
        if fired > 0 {
            self.took(now);
        }
        fired == together
    }

    /// Counts a timeout that fires at `now`, and returns how many nanoseconds it is late.
    fn fires(&self, deadline: u64, now: u64) -> u64 {
        let late = now.saturating_sub(self.hub.ticks.nanos_to(deadline));
        self.hub.counters.fires(late);
        late
    }

    /// Counts the time that has passed since `now`, and moves that to the present.
    fn took(&self, now: &mut u64) {
        let end = self.hub.nanos();
        self.hub.counters.took(end.saturating_sub(*now));
        *now = end;
    }

    /// Fires a timeout that was taken out at `now`, `late` nanoseconds after its deadline.
    fn fire(&self, shard: &Arc<Shard>, expired: Expired<Action>, now: u64, late: u64) {
        let Expired { key, value: action, .. } = expired;
        match &self.executor {
            Some(executor) if !matches!(action, Action::Wake(_)) => {
                shard.handed_over.insert(key);
                let (shard, action) = (Arc::clone(shard), Some(action));
                let work = ExecutorTask { shard, key, since: now, late, waited: None, action };
                self.hub.guarded(|| executor.execute(Box::new(move || work.run())));
            }
            _ => {
                if let Some(unfired) = run_action(shard, key, action, late) {
                    lock(&self.left).push(unfired);
                }
            }
        }
    }
}

/// A task that an executor has. It counts as inside a task of its timer while it runs, and while it
/// is dropped.
struct ExecutorTask {
    shard: Arc<Shard>,
    key: Key,
    /// When the timeout was taken out of the wheel, in nanoseconds of the timer.
    since: u64,
    /// How late it was then, in nanoseconds.
    late: u64,
    /// How long the task waited for the executor, in nanoseconds. None until it runs.
    waited: Option<u64>,
    /// Taken when it runs.
    action: Option<Action>,
}

impl ExecutorTask {
    fn run(mut self) {
        let hub = &self.shard.hub;
        inside::serves(hub.id, &hub.park);
        let _inside = inside::enter(hub.id);
        if let Some(action) = self.action.take() {
            let waited = hub.nanos().saturating_sub(self.since);
            self.waited = Some(waited);
            let unfired =
                run_action(&self.shard, self.key, action, self.late.saturating_add(waited));
            debug_assert!(unfired.is_none(), "what an executor has counts as fired");
        }
    }

    /// Drops a task that has not run. A repeating timeout loses this run only.
    fn leave_out(&self, action: Action) {
        let hub = &self.shard.hub;
        let _inside = inside::enter(hub.id);
        match action {
            Action::Repeating(repeating) => {
                if let Some(task) = repeating.take_to_run() {
                    hub.counters.misses(1);
                    let next = repeating.lock().again;
                    let unfired = end_run(&self.shard, self.key, &repeating, task, Some(next));
                    debug_assert!(unfired.is_none(), "what an executor has counts as fired");
                }
            }
            action => {
                hub.guarded(|| drop(action));
            }
        }
    }
}

impl Drop for ExecutorTask {
    fn drop(&mut self) {
        if let Some(action) = self.action.take() {
            self.leave_out(action);
        }
        self.shard.handed_over.remove(self.key, self.waited);
        self.shard.awaiting.wake(&self.shard.hub, self.key.to_bits());
    }
}

/// Runs what is due on this thread, `late` nanoseconds after its deadline. Returns a repeating
/// timeout that would run again if the timer had not been stopped.
fn run_action(shard: &Shard, key: Key, action: Action, late: u64) -> Option<Unfired> {
    match action {
        Action::Once(task) => {
            shard.hub.run(late, task);
            None
        }
        Action::Repeating(repeating) => {
            let mut task = repeating.take_to_run()?;
            let run = repeating.begin_run(shard.hub.clock.now());
            let next = shard.hub.run(late, || task(&run));
            end_run(shard, key, &repeating, task, next)
        }
        Action::Wake(waker) => {
            shard.hub.guarded(|| waker.wake());
            None
        }
    }
}

/// Ends a run of the repeating timeout that was `key`, whose task chose `next`, or panicked. Puts
/// the timeout back into the wheel if another run follows, or returns it if none does because the
/// timer was stopped.
fn end_run(
    shard: &Shard,
    key: Key,
    repeating: &Arc<Repeating>,
    task: RepeatingTask,
    next: Option<Next>,
) -> Option<Unfired> {
    let hub = &shard.hub;
    let now = hub.clock.now();
    let mut shard_state = shard.lock();
    shard_state.lane.has_run(key);
    let mut state = repeating.lock();
    let status = match next {
        // It was cancelled during the run. The thread that did so gave its place back.
        _ if matches!(state.phase, Phase::Ended(_)) => Status::Cancelled,
        // A task that the executor has when the timer is stopped counts as fired.
        _ if shard_state.stopped && hub.has_executor => Status::Fired,
        None => Status::Panicked,
        Some(Next::Stop) => Status::Fired,
        Some(next) => {
            hub.counters.misses(state.set_next(next, now, &hub.ticks));
            if !shard_state.stopped {
                let deadline = state.deadline;
                let action = Action::Repeating(Arc::clone(repeating));
                shard.due.is_back();
                state.waits(shard_state.put_back(deadline, action), task);
                drop(state);
                shard.release(shard_state, deadline);
                return None;
            }
            Status::Stopped
        }
    };
    if status != Status::Cancelled {
        shard.due.is_back();
    }
    state.phase = Phase::Ended(status);
    let deadline = hub.ticks.instant(state.deadline);
    drop(state);
    drop(shard_state);
    if status != Status::Cancelled {
        hub.give_back();
    }
    let unfired = match status {
        Status::Stopped => Some(Unfired { deadline, task: Task::Repeating(task), timer: hub.id }),
        _ => {
            hub.guarded(|| drop(task));
            None
        }
    };
    repeating.let_go();
    shard.awaiting.wake(&shard.hub, repeating.run());
    unfired
}

/// How often the worker takes out what is due in one shard before it is another shard's turn.
const TURN: usize = 4;

/// How many tasks of a burst run between two readings of the clock.
const TOGETHER: usize = 4;
