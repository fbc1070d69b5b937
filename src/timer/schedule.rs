//! The ways to schedule a task: once, at an instant or at any time of a range, and repeatedly.

use super::repeat::Repeating;
use super::shard::Action;
use super::task::{MissedTick, Next, OnceTask, RepeatingTask, Run};
use super::timeout::Timeout;
use super::{ScheduleError, Timer};
use crate::Wheel;
use crate::platform::Instant;
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::ops::{ControlFlow, RangeInclusive};
use core::time::Duration;

impl Timer {
    /// Schedules `task` to run once, `delay` from now, and returns the handle to the timeout.
    ///
    /// A delay of zero is due at the next tick, not at once. A delay too long for [`Instant`], as
    /// [`Duration::MAX`] is, never fires: the timer keeps the task until the caller cancels it.
    ///
    /// # Errors
    ///
    /// If the timer was stopped, has as many timeouts as its limit, or cannot start its worker. The
    /// error gives the task back.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tickwheel::Timer;
    ///
    /// let timer = Timer::new();
    /// let timeout = timer.schedule(Duration::from_secs(30), || println!("no answer"))?;
    /// // The answer came:
    /// assert!(timeout.cancel());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn schedule<F>(&self, delay: Duration, task: F) -> Result<Timeout, ScheduleError<F>>
    where
        F: FnOnce() + Send + 'static,
    {
        let deadline = self.engine.hub.deadline_after(delay);
        self.once(|_| deadline, task)
    }

    /// Schedules `task` to run once with `value`, `delay` from now. It is
    /// [`schedule`](Self::schedule) for a value that the caller wants back if the timer does not
    /// take it.
    ///
    /// # Errors
    ///
    /// As [`schedule`](Self::schedule), but the error gives the value back.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tickwheel::Timer;
    ///
    /// let timer = Timer::builder().max_pending(1).build()?;
    /// let send = |message: String| println!("{message}");
    /// timer.schedule_value(Duration::from_secs(1), "first".to_string(), send)?;
    /// let refused = timer.schedule_value(Duration::from_secs(1), "second".to_string(), send);
    /// assert_eq!(refused.unwrap_err().into_task(), "second");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn schedule_value<T, F>(
        &self,
        delay: Duration,
        value: T,
        task: F,
    ) -> Result<Timeout, ScheduleError<T>>
    where
        T: Send + 'static,
        F: FnOnce(T) + Send + 'static,
    {
        let deadline = self.engine.hub.deadline_after(delay);
        self.place(|_| deadline, value, |value| Box::new(move || task(value)))
    }

    /// Schedules `task` to run once, at `deadline`, or at once if that has passed, and returns the
    /// handle to the timeout.
    ///
    /// This reads no clock, and that is much of what scheduling costs: a caller that schedules many
    /// at once reads [`now`](Self::now) for all of them.
    ///
    /// # Errors
    ///
    /// As [`schedule`](Self::schedule).
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use tickwheel::Timer;
    ///
    /// let timer = Timer::new();
    /// let (sender, receiver) = std::sync::mpsc::channel();
    /// let deadline = Instant::now() + Duration::from_millis(5);
    /// timer.schedule_at(deadline, move || sender.send(Instant::now()).unwrap())?;
    /// assert!(deadline <= receiver.recv()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn schedule_at<F>(&self, deadline: Instant, task: F) -> Result<Timeout, ScheduleError<F>>
    where
        F: FnOnce() + Send + 'static,
    {
        let deadline = self.engine.hub.ticks.deadline(deadline);
        self.once(|_| deadline, task)
    }

    /// Schedules `task` to run once, at any time within `delays` from now, and returns the handle
    /// to the timeout. The timer takes the instant that costs least.
    ///
    /// That is one at which something of this thread's shard is due already, if the timer finds
    /// one at once. Otherwise it is a multiple of a high power of two in ticks: these are the same
    /// for all threads, so timeouts meet there. Each instant at which something is due costs one
    /// wake-up, however much is due then. [`Timeout::deadline`] tells the instant.
    /// [`Wheel::schedule_within`](crate::Wheel::schedule_within) says how the tick is chosen.
    ///
    /// The task never runs before the shortest of the delays has passed. The longest is the latest
    /// deadline: the task is late after it as any other. If no tick is in the range, because the
    /// range is shorter than a tick or its end is before its start, the timeout is due at the first
    /// tick after the shortest delay, as with [`schedule`](Self::schedule).
    ///
    /// Cost: O(1), with at most 256 looks.
    ///
    /// # Errors
    ///
    /// As [`schedule`](Self::schedule).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tickwheel::{ManualClock, Timer};
    ///
    /// let timer = Timer::builder().clock(ManualClock::new()).build()?;
    /// let within = |from, to| Duration::from_millis(from)..=Duration::from_millis(to);
    /// let first = timer.schedule_within(within(30_000, 31_000), || println!("heartbeat 1"))?;
    /// let second = timer.schedule_within(within(30_321, 31_321), || println!("heartbeat 2"))?;
    /// assert_eq!(first.deadline(), second.deadline()); // one wake-up for both
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn schedule_within<F>(
        &self,
        delays: RangeInclusive<Duration>,
        task: F,
    ) -> Result<Timeout, ScheduleError<F>>
    where
        F: FnOnce() + Send + 'static,
    {
        let ticks = self.engine.hub.ticks_within(&delays);
        self.once(|wheel| wheel.choose(&ticks), task)
    }

    /// Schedules `task` to run every `period`, and returns the handle to the timeout. The first run
    /// is one period from now, the last when the task returns [`ControlFlow::Break`] or panics, or
    /// the caller cancels the timeout.
    ///
    /// The rate is fixed: it does not drift, whether or not the period is a multiple of the tick,
    /// and however long the task takes. `missed` says what happens when a run took so long that the
    /// next ones could not be in time. A task never runs twice at once. A period of zero counts as
    /// one tick.
    ///
    /// # Errors
    ///
    /// As [`schedule`](Self::schedule).
    ///
    /// ```
    /// use std::ops::ControlFlow;
    /// use std::time::Duration;
    /// use tickwheel::{ManualClock, MissedTick, Status, Timer};
    ///
    /// let clock = ManualClock::new();
    /// let timer = Timer::builder().clock(clock.clone()).build()?;
    /// let mut left = 3;
    /// let period = Duration::from_secs(60);
    /// let heartbeat = timer.schedule_repeating(period, MissedTick::Skip, move || {
    ///     left -= 1;
    ///     if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    /// })?;
    ///
    /// clock.advance(period * 2);
    /// assert_eq!(heartbeat.status(), Status::Pending);
    /// clock.advance(period);
    /// assert_eq!(heartbeat.status(), Status::Fired);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn schedule_repeating<F>(
        &self,
        period: Duration,
        missed: MissedTick,
        task: F,
    ) -> Result<Timeout, ScheduleError<F>>
    where
        F: FnMut() -> ControlFlow<()> + Send + 'static,
    {
        let first = self.engine.hub.ticks.not_zero(period);
        let next = Next::Every(period, missed);
        self.repeat(first, next, task, move |mut task| {
            Box::new(move |_| if task().is_continue() { next } else { Next::Stop })
        })
    }

    /// Schedules `task` to run `first` from now, and then whenever its last run chose, and returns
    /// the handle to the timeout.
    ///
    /// Each run sees a [`Run`]: its deadline, how late it is, and how many runs there were. It
    /// returns the [`Next`]: when to run again. The handle stays good all the time. Moving the
    /// timeout during a run has precedence over what that run chooses, but for [`Next::Stop`]. If
    /// the executor drops a run, the next follows after the same time again.
    ///
    /// This is for backoff, for jitter, and for renewing a lease sooner after a failure. A task
    /// that always returns [`Next::After`] runs with a fixed delay between the end of a run and the
    /// next. [`schedule_repeating`](Self::schedule_repeating) is the special case of a fixed rate.
    ///
    /// # Errors
    ///
    /// As [`schedule`](Self::schedule).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tickwheel::{ManualClock, Next, Status, Timer};
    ///
    /// let clock = ManualClock::new();
    /// let timer = Timer::builder().clock(clock.clone()).build()?;
    /// let second = Duration::from_secs(1);
    /// let mut connect = || false; // nobody answers
    ///
    /// let attempts = timer.schedule_with(second, move |run| {
    ///     if connect() || run.count() == 5 {
    ///         return Next::Stop;
    ///     }
    ///     Next::After(second * 2_u32.pow(run.count() as u32))
    /// })?;
    /// clock.advance(second * (1 + 2 + 4 + 8 + 16) - second / 2);
    /// assert_eq!(attempts.status(), Status::Pending);
    /// clock.advance(second);
    /// assert_eq!(attempts.status(), Status::Fired);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn schedule_with<F>(&self, first: Duration, task: F) -> Result<Timeout, ScheduleError<F>>
    where
        F: FnMut(&Run) -> Next + Send + 'static,
    {
        self.repeat(first, Next::After(first), task, |task| Box::new(task))
    }

    /// Schedules `task` to run once, at the tick that `choose` returns for the wheel.
    fn once<F>(
        &self,
        choose: impl FnOnce(&mut Wheel<Action>) -> u64,
        task: F,
    ) -> Result<Timeout, ScheduleError<F>>
    where
        F: FnOnce() + Send + 'static,
    {
        let placed = self.place(choose, Box::new(task), |task| task);
        placed.map_err(|error| ScheduleError::new(error.kind(), *error.into_task()))
    }

    /// Schedules what `boxed` makes of `given`, which an error gives back.
    fn place<G>(
        &self,
        choose: impl FnOnce(&mut Wheel<Action>) -> u64,
        given: G,
        boxed: impl FnOnce(G) -> OnceTask,
    ) -> Result<Timeout, ScheduleError<G>> {
        let shard = self.shard();
        match shard.admit() {
            Ok(mut state) => {
                let deadline = choose(&mut state.wheel);
                let task = boxed(given);
                let key = state.schedule(deadline, || Action::Once(task));
                shard.release(state, deadline);
                Ok(Timeout::once(shard, key, deadline))
            }
            Err(kind) => Err(ScheduleError::new(shard.rejects(kind), given)),
        }
    }

    /// Schedules `task`, which `boxed` makes a repeating one: under the lock, so that an error
    /// gives back what the caller gave.
    fn repeat<F>(
        &self,
        first: Duration,
        again: Next,
        task: F,
        boxed: impl FnOnce(F) -> RepeatingTask,
    ) -> Result<Timeout, ScheduleError<F>> {
        let hub = &self.engine.hub;
        let due = hub.clock.now().checked_add(first);
        let deadline = hub.ticks.deadline_of(due);
        let repeating = Arc::new(Repeating::new(due, deadline, again));
        let shard = self.shard();
        match shard.admit() {
            Ok(mut state) => {
                let action = || Action::Repeating(Arc::clone(&repeating));
                let key = state.schedule(deadline, action);
                repeating.lock().waits(key, boxed(task));
                shard.release(state, deadline);
                Ok(Timeout::repeating(shard, repeating))
            }
            Err(kind) => Err(ScheduleError::new(shard.rejects(kind), task)),
        }
    }
}
