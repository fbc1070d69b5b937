//! The timer: wheels, a clock, and a worker that runs tasks: a thread, or a driver.

mod awaiting;
mod builder;
mod clock;
mod driver;
mod due;
mod error;
mod executor;
mod handed_over;
mod hub;
mod inside;
mod life;
#[cfg(feature = "metrics")]
mod metrics;
mod park;
mod recording;
mod repeat;
mod schedule;
mod shard;
mod stats;
mod task;
mod timeout;
mod worker;

pub use builder::TimerBuilder;
#[cfg(feature = "boot-clock")]
pub use clock::BootClock;
pub use clock::{Clock, Follower, ManualClock, MonotonicClock};
pub use driver::Driver;
pub use error::{BuildError, ScheduleError, ScheduleErrorKind, StopError};
pub use executor::Executor;
pub use hub::TaskPanic;
#[cfg(feature = "metrics")]
pub use metrics::TimerMetrics;
pub use stats::{Lateness, TimerStats};
pub use task::{MissedTick, Next, Run, Status, Task, Unfired};
pub use timeout::{Timeout, TimeoutGuard};

pub(crate) use hub::{Hub, PendingLimit};
pub(crate) use inside::{Drops, waits_for_none};
pub(crate) use life::warn_if_many;
pub(crate) use shard::{Ready, Shard, of_this_thread};

use crate::platform::Instant;
use crate::sync::{AtomicU32, Mutex, Rank};
use crate::ticks::Ticks;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use crossbeam_utils::CachePadded;
use hub::Start;
use life::{Life, Owner};
use park::Park;
use recording::TimerRecording;
use stats::Counters;
use worker::Engine;

/// Runs tasks when their time has come, for any number of threads.
///
/// A timer is a few timing wheels, a clock, and one worker thread that sleeps until a timeout is
/// due. Clones are the same timer. Dropping the last clone stops the timer, as [`stop`](Self::stop)
/// does, and drops what is pending. A pending task that holds a clone keeps the timer going. The
/// worker does not keep the process alive.
///
/// Inside an event loop or a runtime, a timer does with no thread:
/// [`build_driven`](TimerBuilder::build_driven) returns a [`Driver`] in the place of the worker.
///
/// # Guarantees
///
/// - A task never runs early, by the timer's own clock, counted from the call. It is late by less
///   than one tick, or than 1 ms by [default](TimerBuilder::tick), plus the time to wake the worker,
///   plus the tasks ahead of it on the worker.
/// - Each timeout has exactly one end: it fires, it is cancelled, or the timer is stopped.
/// - A timer with nothing to do does nothing: its worker sleeps until the next deadline, and other
///   threads wake it up only for an earlier one.
/// - Tasks run with no lock held. They may schedule, cancel, block, panic, and drop the timer. The
///   timer catches and counts a panic, and runs the next task.
/// - A caller waits for no more than a bounded batch of work, even while a million timeouts come
///   due or the last of a million goes, unless another thread calls [`stats`](Self::stats) or
///   [`shrink_to_fit`](Self::shrink_to_fit).
/// - A delay may be of any length. A delay too long for [`Instant`] never fires.
///
/// # Order
///
/// A timer has several [shards](TimerBuilder::shards). Each thread schedules into one of them. A
/// task on the worker schedules into the shard that its own timeout was in. Within a shard,
/// timeouts fire by deadline, rounded up to the tick, and those of equal deadlines in the order in
/// which they were scheduled. The order between shards is unspecified: each has its turn while
/// others have timeouts due. With an [`Executor`], the worker hands tasks over in this order, and
/// the executor may run them in another.
///
/// # Cost
///
/// Scheduling, cancelling or moving a timeout takes the lock of the thread's own shard once, and
/// constant time, whatever the delay and however many timeouts wait. Scheduling allocates a box for
/// the values that the task captures, and now and then room in the wheel, which grows a little at a
/// time. With millions of timeouts in one shard, one call in millions waits for the system to move
/// pages, for less than a millisecond. Cancelling frees the box at once.
///
/// A shard that is emptied, after more than a few timeouts, gives back the memory of its wheel,
/// with no lock held. The worker does so a little at a time, when nothing is due. A thread that
/// cancels the last timeout does so at the end of that call: for some milliseconds if a million
/// waited at once. [`shrink_to_fit`](Self::shrink_to_fit) gives back memory that a shard with few
/// timeouts left does not need, and holds the lock of the shard meanwhile.
///
/// The cost of a call does not grow with what the timer holds or has held, unless the call says so
/// in a sentence that begins with "Cost". It means what it does in a [`Wheel`](crate::Wheel).
///
/// # Slow tasks
///
/// Tasks run on the worker, one after the other, and each waits for those before it. That is
/// fastest for short tasks. For long ones there is the [`Executor`]. [`stats`](Self::stats) reports
/// how late tasks ran, and how long the longest took.
///
/// # Who may call what from where
///
/// Every call is allowed everywhere. `stop` and the drop of the last clone wait for the worker, and
/// with it for the task that runs there, unless that wait could be for ever.
/// [`Timeout::cancel_and_wait`] waits where `stop` does, and is an error where `stop` is one. In
/// async code, [`cancel_and_wait_async`](Timeout::cancel_and_wait_async) takes its place:
///
/// | Called | [`stop`](Self::stop) | drop of the last clone |
/// |---|---|---|
/// | outside of tasks | waits for the worker | waits for the worker |
/// | the same, if this timer has a [`Driver`] | waits for a turn that it takes on another thread | the same |
/// | inside a task of this timer, on the worker or on its executor | [`StopError`] | stops the timer and does not wait |
/// | inside a task of another timer, if this timer has an executor | [`StopError`] | stops the timer and does not wait |
/// | inside a task of another timer, if this timer has no executor | waits for the worker | waits for the worker |
/// | the same, and a task of this timer waits for that other timer, or for one that waits for it | [`StopError`] | stops the timer and does not wait |
/// | outside of tasks, on a thread that has run a task for the [`Executor`] of this timer | [`StopError`] | stops the timer and does not wait |
/// | the same, for the executor of another timer | as inside a task of that other timer | as inside a task of that other timer |
/// | in the `Drop` of an [`Unfired`] | as inside a task of the timer that it comes from | the same |
/// | in the `Drop` of a value that a cancelled task captured | [`StopError`] | stops the timer and does not wait |
/// | in code that runs under the lock of an [`ExpiringMap`](crate::ExpiringMap) | [`StopError`] | stops the timer and does not wait |
/// | in a destructor of a thread-local value of the worker | [`StopError`] | stops the timer and does not wait |
///
/// *Inside a task* is everything that runs on the task's stack: the tasks of a timer whose executor
/// schedules them on another timer are inside tasks of both, and a job that a work-stealing pool
/// runs while a task on that pool waits is inside that task. A task that the executor drops is
/// dropped inside a task, too, and so is one that the drop of the last clone drops.
/// [`ManualClock`] says what moving a clock does inside a task.
///
/// A wait ends only if other threads let it. Do not hold a lock that a task takes, and let the
/// executor go on taking tasks, while a thread waits in `stop`. A timer knows the threads of its
/// executor by the tasks that they have run. So do not wait in a job on a thread of a pool that has
/// run no task of the timer yet: the task may be queued for that thread.
///
/// # After `fork`
///
/// A child process made by `fork` has no worker for a timer whose worker ran in the parent: the
/// child can schedule timeouts, but none fires there. Make timers in the child, or fork before the
/// first timeout: a timer that has not scheduled anything works in both. The [timer of the
/// process](crate::timer()) is like any other. A lock that another thread holds when the process
/// forks stays locked in the child, as any lock of std's does: a call that takes it waits for ever.
/// [`std::process::Command`] does not fork in this sense.
///
/// ```
/// use std::sync::mpsc;
/// use std::time::Duration;
/// use tickwheel::Timer;
///
/// let timer = Timer::new();
/// let (sender, receiver) = mpsc::channel();
/// timer.schedule(Duration::from_millis(5), move || sender.send("five ms").unwrap())?;
/// let never = timer.schedule(Duration::from_secs(30), || unreachable!())?;
///
/// assert_eq!(receiver.recv()?, "five ms");
/// assert!(never.cancel());
/// assert_eq!(timer.pending(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Timer {
    engine: Arc<Engine>,
    /// Counts the clones; the worker has none.
    owner: Arc<Owner>,
}

impl Timer {
    /// Makes a timer of hierarchical wheels on the monotonic clock. Its worker starts with the first
    /// timeout.
    #[must_use]
    pub fn new() -> Self {
        let timer = Self::builder().assemble(true);
        warn_if_many();
        timer
    }

    /// Returns a builder for a timer that differs from [`Timer::new`].
    pub fn builder() -> TimerBuilder {
        TimerBuilder::new()
    }

    /// Returns the shard of this thread.
    #[inline]
    pub(crate) fn shard(&self) -> &Arc<Shard> {
        of_this_thread(&self.engine.shards).1
    }

    /// Returns the number of shards.
    pub(crate) fn shards(&self) -> usize {
        self.engine.shards.len()
    }

    /// Returns how many timeouts are [pending](crate::Status::Pending); never more than the
    /// [limit](TimerBuilder::max_pending). A repeating timeout is pending while it runs or the
    /// executor has it, too.
    ///
    /// This counts shard by shard: a timeout that ends in one shard while another begins in the
    /// next may count twice, or not at all.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tickwheel::Timer;
    ///
    /// let timer = Timer::new();
    /// timer.schedule(Duration::from_secs(60), || {})?;
    /// assert_eq!(timer.pending(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// To wait until no task is left that waits or runs, give each task a clone of a sender: when
    /// the last clone is dropped, the receiver of any channel ends, for a thread or in async code.
    /// `recv_timeout` waits for so long at most: inside a task, take that. A task that panicked,
    /// that a caller cancelled or that `stop` returned and the caller dropped has dropped its clone,
    /// too.
    ///
    /// ```
    /// use std::sync::mpsc;
    /// use std::time::Duration;
    /// use tickwheel::Timer;
    ///
    /// let timer = Timer::new();
    /// let (is_left, none_is_left) = mpsc::channel::<()>();
    /// for number in 0..10 {
    ///     let is_left = is_left.clone();
    ///     timer.schedule(Duration::from_millis(number), move || {
    ///         println!("{number}");
    ///         drop(is_left);
    ///     })?;
    /// }
    /// drop(is_left);
    /// assert!(none_is_left.recv().is_err()); // all have run
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn pending(&self) -> usize {
        let count = self.engine.shards.iter().map(|shard| shard.pending()).sum();
        self.engine.hub.limit.as_ref().map_or(count, |limit| limit.most.min(count))
    }

    /// Returns the present, by the timer's own clock.
    ///
    /// Code that is given a timer measures with this what it compares with the timer's deadlines: a
    /// silence, how long a caller has waited. Then it is right on a
    /// [`ManualClock`], too.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tickwheel::{ManualClock, Timer};
    ///
    /// let clock = ManualClock::new();
    /// let timer = Timer::builder().clock(clock.clone()).build()?;
    /// let asked = timer.now();
    /// clock.advance(Duration::from_secs(30));
    /// assert_eq!(timer.now() - asked, Duration::from_secs(30));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn now(&self) -> Instant {
        self.engine.hub.clock.now()
    }

    /// Returns the deadline of the timeout that is due next. Returns None if none waits, or none
    /// that will ever be due. A deadline that had passed when the timeout was scheduled or moved may
    /// be told as a later one, which had passed by then, too.
    ///
    /// The answer is exact, so the timer may have to look at many timeouts. It locks their shard
    /// for a bounded batch at a time.
    ///
    /// Cost: O(log n) amortised, O(n) in one call.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tickwheel::Timer;
    ///
    /// let timer = Timer::new();
    /// timer.schedule(Duration::from_secs(60), || {})?;
    /// let near = timer.schedule(Duration::from_secs(30), || {})?;
    /// assert_eq!(timer.next_deadline(), near.deadline());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let next = self.engine.shards.iter().filter_map(|shard| shard.next_deadline()).min();
        self.engine.hub.ticks.instant(next?)
    }

    /// Returns what the timer holds and what it has done. Looks at each bucket, with one shard
    /// locked after the other.
    ///
    /// Cost: O(n + p).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tickwheel::{ManualClock, Timer};
    ///
    /// let clock = ManualClock::new();
    /// let timer = Timer::builder().clock(clock.clone()).build()?;
    /// for delay in 1..=100 {
    ///     timer.schedule(Duration::from_millis(delay), || {})?;
    /// }
    /// clock.jump(Duration::from_millis(100)); // all at once, as if it had been busy
    ///
    /// let stats = timer.stats();
    /// assert_eq!((stats.pending, stats.fired), (0, 100));
    /// assert_eq!(stats.lateness.max(), Duration::from_millis(99));
    /// println!("late: {:?}, the longest task: {:?}", stats.lateness, stats.longest_task);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn stats(&self) -> TimerStats {
        let counters = &self.engine.hub.counters;
        let mut executor_wait = Lateness::default();
        for shard in &self.engine.shards {
            shard.handed_over.add_waits_to(&mut executor_wait);
        }
        let (counts, shards): (Vec<_>, Vec<_>) =
            self.engine.shards.iter().map(|shard| shard.stats()).unzip();
        TimerStats {
            pending: self.pending(),
            scheduled: counts.iter().map(|counts| counts.scheduled).sum(),
            fired: counters.fired.load(Relaxed),
            cancelled: counts.iter().map(|counts| counts.cancelled).sum(),
            rescheduled: counts.iter().map(|counts| counts.rescheduled).sum(),
            rejected: counters.rejected.load(Relaxed),
            missed: counters.missed.load(Relaxed),
            panics: counters.panics.load(Relaxed),
            wake_ups: counters.wake_ups.load(Relaxed),
            lateness: counters.lateness(),
            longest_task: counters.longest_task(),
            slow_tasks: counters.slow_tasks.load(Relaxed),
            executor_wait,
            shards,
        }
    }

    /// Stops the timer, and returns all tasks that will not run, by deadline.
    ///
    /// When this returns:
    ///
    /// - A task that was running on the worker has ended, and no task starts there any more.
    /// - A task that the worker handed to the [`Executor`] before counts as fired. It may still
    ///   run, or run to its end, on that executor. A repeating timeout whose task the executor has
    ///   does not run again after that.
    /// - No timeout is pending, and every [`Timeout`] tells its end. Cancelling and moving a
    ///   timeout returns false, and scheduling is an error.
    /// - Futures that waited have been woken, and complete with
    ///   [`Stopped`](ScheduleErrorKind::Stopped).
    ///
    /// Stopping a stopped timer does nothing and returns no tasks. If several threads stop a timer,
    /// one of them gets all tasks, and the others return when it is done.
    ///
    /// While a handle is there, a stopped timer keeps a bit of each timeout that was due and did not
    /// run, so that the handle can tell its end; a word, if each place was used another number of
    /// times.
    ///
    /// Cost: O(n + p).
    ///
    /// # Errors
    ///
    /// If the call would wait for itself: inside a task of this timer, for example. The table at
    /// [`Timer`] has all cases. The timer goes on. Have another thread stop it, or drop the last
    /// clone of the timer, which does not wait there.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tickwheel::{Status, Timer};
    ///
    /// let timer = Timer::new();
    /// let (sender, receiver) = std::sync::mpsc::channel();
    /// let timeout = timer.schedule(Duration::from_secs(3_600), move || sender.send(1).unwrap())?;
    ///
    /// let unfired = timer.stop()?;
    /// assert_eq!((unfired.len(), timer.pending()), (1, 0));
    /// assert_eq!(timeout.status(), Status::Stopped);
    /// for unfired in unfired {
    ///     unfired.into_task().run(); // before its time, since you ask for it
    /// }
    /// assert_eq!(receiver.recv(), Ok(1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn stop(&self) -> Result<Vec<Unfired>, StopError> {
        let waits = self.owner.life.may_wait().ok_or(StopError)?;
        Ok(self.owner.life.stop(Some(waits)))
    }

    /// Gives back the memory that the pending timeouts do not need, with one shard locked after the
    /// other. Their handles stay good.
    ///
    /// Cost: O(n + p).
    ///
    /// A shard that is emptied does so by itself. This call is for a timer that keeps some of very
    /// many timeouts. It cannot give back the room before a live timeout, because a handle knows a
    /// place.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tickwheel::Timer;
    ///
    /// let timer = Timer::new();
    /// let first = timer.schedule(Duration::from_secs(60), || {})?;
    /// let others: Result<Vec<_>, _> =
    ///     (0..10_000).map(|_| timer.schedule(Duration::from_secs(60), || {})).collect();
    /// others?.iter().for_each(|timeout| drop(timeout.cancel()));
    /// timer.shrink_to_fit();
    /// assert!(timer.stats().shards.iter().all(|shard| shard.memory < 100_000));
    /// assert!(first.cancel());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shrink_to_fit(&self) {
        for shard in &self.engine.shards {
            shard.shrink_to_fit();
        }
    }

    /// Returns whether the timer was stopped, or is about to be.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.owner.life.is_stopped()
    }

    /// Returns what was recorded so far, or None if the timer is not
    /// [recorded](TimerBuilder::record). After [`stop`](Self::stop) nothing is added.
    #[cfg(feature = "record")]
    #[must_use]
    pub fn recorded(&self) -> Option<crate::Recorded> {
        self.engine.hub.recording.recorded()
    }
}

impl TimerBuilder {
    /// Builds the timer. Its worker starts with the first timeout.
    ///
    /// # Errors
    ///
    /// If a number is out of its range, or the thread's name has a zero byte.
    pub fn build(self) -> Result<Timer, BuildError> {
        let timer = self.start(true)?;
        warn_if_many();
        Ok(timer)
    }

    /// Builds a timer that has no thread: it fires what is due in the turns of its [`Driver`].
    ///
    /// # Errors
    ///
    /// As [`build`](Self::build).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tickwheel::{ManualClock, Timer};
    ///
    /// let clock = ManualClock::new();
    /// let (timer, mut driver) = Timer::builder().clock(clock.clone()).build_driven()?;
    /// let timeout = timer.schedule(Duration::from_secs(1), || println!("one second"))?;
    /// assert_eq!(driver.turn(), timeout.deadline());
    /// clock.advance(Duration::from_secs(1));
    /// assert_eq!(driver.turn(), None); // it ran, and nothing is left to wait for
    /// assert_eq!(timer.stats().fired, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn build_driven(self) -> Result<(Timer, Driver), BuildError> {
        let timer = self.start(false)?;
        let driver = Driver::new(&timer.owner.life);
        Ok((timer, driver))
    }

    fn start(self, has_thread: bool) -> Result<Timer, BuildError> {
        self.check()?;
        let timer = self.assemble(has_thread);
        let hub = &timer.engine.hub;
        let recorder = hub.recording.start(&hub.clock);
        recorder.map_err(|error| BuildError::Recorder(error.kind()))?;
        hub.clock.follow(Follower::new(&hub.park, hub.ticks));
        Ok(timer)
    }

    /// Makes the timer, whose numbers are in range. Calls nothing foreign but the clock.
    pub(crate) fn assemble(self, has_thread: bool) -> Timer {
        // Each timer of a process has another, and none has zero.
        static ID: AtomicU64 = AtomicU64::new(1);

        let shards = self.shards_or_default();
        let (tick, slack) = self.tick_and_slack(has_thread);
        let ticks = Ticks::new(self.first_tick(tick), tick);
        let hub = Arc::new(Hub {
            id: ID.fetch_add(1, Relaxed),
            recording: TimerRecording::new(self.sink, shards, &ticks),
            ticks,
            clock: self.clock,
            process: AtomicU32::new(0),
            turned_in: AtomicU32::new(0),
            limit: self.max_pending.map(PendingLimit::new),
            has_executor: self.executor.is_some(),
            wakes_together: self.wakes_together,
            on_panic: self.on_panic,
            slow_task: self.slow_task,
            park: Arc::new(CachePadded::new(Park::new(slack))),
            counters: CachePadded::new(Counters::new()),
        });
        let life = Arc::new_cyclic(|life: &Weak<Life>| {
            let shard = |number| {
                let worker: Weak<dyn Start> = life.clone();
                Arc::new(Shard::new(Arc::clone(&hub), worker, self.mode, number))
            };
            let shards = (0..shards).map(shard).collect();
            let left = Mutex::new(Rank::Left, Vec::new());
            let engine = Engine { hub: Arc::clone(&hub), shards, executor: self.executor, left };
            Life::new(Arc::new(engine), has_thread.then_some(self.thread_name))
        });
        Timer { engine: Arc::clone(&life.engine), owner: Arc::new(Owner::new(life)) }
    }
}

impl Default for Timer {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut timer = f.debug_struct("Timer");
        timer.field("pending", &self.pending());
        if self.owner.life.has_driver {
            let turns = self.engine.hub.counters.wake_ups.load(Relaxed);
            timer.field("turns", &turns);
        }
        timer.finish_non_exhaustive()
    }
}
