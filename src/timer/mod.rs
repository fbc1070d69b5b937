//! The timer: wheels, a clock, and a thread that runs tasks.

mod builder;
mod census;
mod error;
mod executor;
mod follower;
mod hub;
mod local;
mod park;
mod repeat;
mod shard;
mod stats;
mod timeout;
mod worker;

pub use builder::TimerBuilder;
pub use error::{BuildError, ScheduleError, ScheduleErrorKind, StopError};
pub use executor::Executor;
pub use follower::Follower;
pub use hub::TaskPanic;
pub use repeat::MissedTick;
pub use stats::{Lateness, TimerStats};
pub use timeout::{Status, Timeout};

pub(crate) use local::inside_any_task;
pub(crate) use repeat::Cadence;
pub(crate) use shard::{Entry, Shard};

use crate::Mode;
use crate::clock::{Clock, Ticks};
use crate::sync::{AtomicBool, Builder, Condvar, JoinHandle, Mutex, Ordering, lock, wait};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::mem::{replace, take};
use core::ops::ControlFlow;
use core::sync::atomic::Ordering::Relaxed;
use core::time::Duration;
use crossbeam_utils::CachePadded;
use hub::{Hub, Limit, PanicHook};
use park::Park;
use repeat::Repeating;
use stats::Counters;
use std::time::Instant;

/// Runs tasks when their time has come, for any number of threads.
///
/// A timer is some timing wheels, a clock, and one thread that sleeps until something is due. Clones
/// are the same timer. Dropping the last one stops it, as [`stop`](Self::stop) does, and drops what
/// is pending; inside a task, of whatever timer, it does not wait for a task that runs. A pending
/// task that holds a clone keeps the timer going. The thread does not keep the process alive.
///
/// What holds:
///
/// - A task never runs early, by the timer's own clock, counted from the call. It is late by less
///   than one tick, plus waking the thread, plus the tasks ahead of it on the worker.
/// - Each timeout has exactly one end: it fires, it is cancelled, or the timer is stopped.
/// - A timer with nothing to do does nothing: its thread sleeps until the next deadline, and is woken
///   only for one that is earlier.
/// - Tasks run with no lock held. They may schedule, cancel, block, panic, and drop the timer. A
///   panic is caught and counted, and the next task runs.
/// - A caller waits for no more than a bounded batch of work, also while a million timeouts come due.
/// - A delay may be of any length. One that no [`Instant`] can hold never ends.
///
/// # Order
///
/// A timer has several [shards](TimerBuilder::shards). Each thread schedules into one of them, and a
/// task into that which its own timeout was in. Within a shard, timeouts fire by deadline, rounded up
/// to the tick, and those of equal deadlines in the order in which they were scheduled. Between
/// shards nothing is said: each has its turn while others have something due. With an
/// [`Executor`], tasks are handed over in this order, and may run in another.
///
/// # Cost
///
/// To schedule, cancel or move a timeout takes the lock of the thread's own shard once, and constant
/// time, whatever the delay and however many wait. It allocates a box for what the task captures, and
/// now and then room in the wheel, which grows a little at a time; with millions of timeouts in one
/// shard there is one call in millions for which the system moves pages, in less than a millisecond.
/// Cancelling gives the box back at once.
///
/// # Slow tasks
///
/// Tasks run on the timer's one thread, and each waits for those before it. That is quickest where
/// they are short. For others there is the [`Executor`]; [`stats`](Self::stats) tell which it is.
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
    core: Arc<Core>,
    /// Counts the clones; the worker has none.
    _owner: Arc<Owner>,
}

impl Timer {
    /// A timer of hierarchical wheels and ticks of 1 ms, on the monotonic clock. Its thread starts
    /// with the first timeout.
    #[must_use]
    pub fn new() -> Self {
        TimerBuilder::new().assemble()
    }

    /// Builds a timer that differs from [`Timer::new`].
    pub fn builder() -> TimerBuilder {
        TimerBuilder::new()
    }

    fn assemble(parts: Parts) -> Self {
        let hub = Arc::new(Hub {
            ticks: Ticks::new(parts.clock.now(), parts.tick),
            clock: parts.clock,
            started: AtomicBool::new(false),
            limit: parts.limit,
            on_panic: parts.on_panic,
            park: CachePadded::new(Park::new()),
            counters: CachePadded::new(Counters::new()),
        });
        let core = Arc::new_cyclic(|core| {
            let shard = |_| Arc::new(Shard::new(Arc::clone(&hub), core.clone(), parts.mode));
            Core {
                shards: (0..parts.shards).map(shard).collect(),
                hub: Arc::clone(&hub),
                executor: parts.executor,
                thread_name: parts.thread_name,
                life: Mutex::new(Life { phase: Phase::Idle, left: Vec::new() }),
                stopped: Condvar::new(),
            }
        });
        census::is_born();
        hub.clock.follow(Follower::new(&hub));
        Self { _owner: Arc::new(Owner(Arc::clone(&core))), core }
    }

    /// Runs `task` once, `delay` from now.
    ///
    /// A delay of zero is due at the next tick, not at once. One longer than an [`Instant`] can
    /// hold, as [`Duration::MAX`] is, never ends; the task is kept until it is cancelled.
    ///
    /// # Errors
    ///
    /// If the timer was stopped, has as many timeouts as it may have, or cannot start its thread.
    /// The error gives the task back.
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
        self.once(self.core.hub.deadline_after(delay), task)
    }

    /// Runs `task` once, at `deadline`, or at once if that has passed.
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
        self.once(self.core.hub.ticks.deadline(deadline), task)
    }

    /// Runs `task` again and again, each time `period` after it was due the time before, beginning
    /// one period from now, until it returns [`ControlFlow::Break`], panics, or is cancelled.
    ///
    /// The rate is fixed: it does not drift, whether the period is a multiple of the tick or not, or
    /// how long the task takes. `missed` says what to do when a run took so long that the next ones
    /// could not be in time. A task never runs twice at once. A period of zero counts as one tick.
    ///
    /// # Errors
    ///
    /// As [`schedule`](Self::schedule).
    ///
    /// ```
    /// use std::ops::ControlFlow;
    /// use std::time::Duration;
    /// use tickwheel::{ManualClock, MissedTick, Timer};
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
    /// assert!(heartbeat.is_pending());
    /// clock.advance(period);
    /// assert!(heartbeat.is_fired());
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
        let period = self.not_zero(period);
        self.repeat(period, Cadence::Rate(period, missed), task)
    }

    /// Runs `task` again and again, each time `delay` after it ended the time before, beginning one
    /// delay from now, until it returns [`ControlFlow::Break`], panics, or is cancelled.
    ///
    /// A delay of zero counts as one tick.
    ///
    /// # Errors
    ///
    /// As [`schedule`](Self::schedule).
    ///
    /// ```
    /// use std::ops::ControlFlow;
    /// use std::time::Duration;
    /// use tickwheel::Timer;
    ///
    /// let timer = Timer::new();
    /// let cleanup = timer.schedule_with_fixed_delay(Duration::from_secs(60), || {
    ///     println!("an hour of work, and then a minute of rest");
    ///     ControlFlow::Continue(())
    /// })?;
    /// assert!(cleanup.cancel());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn schedule_with_fixed_delay<F>(
        &self,
        delay: Duration,
        task: F,
    ) -> Result<Timeout, ScheduleError<F>>
    where
        F: FnMut() -> ControlFlow<()> + Send + 'static,
    {
        let delay = self.not_zero(delay);
        self.repeat(delay, Cadence::Delay(delay), task)
    }

    fn once<F>(&self, deadline: u64, task: F) -> Result<Timeout, ScheduleError<F>>
    where
        F: FnOnce() + Send + 'static,
    {
        let shard = self.core.shard();
        match shard.schedule(deadline, Box::new(task), |task| Entry::Once(task)) {
            Ok(key) => Ok(Timeout::once(Arc::clone(shard), key, deadline)),
            Err((kind, task)) => Err(ScheduleError::new(kind, *task)),
        }
    }

    fn repeat<F>(
        &self,
        delay: Duration,
        cadence: Cadence,
        task: F,
    ) -> Result<Timeout, ScheduleError<F>>
    where
        F: FnMut() -> ControlFlow<()> + Send + 'static,
    {
        let hub = &self.core.hub;
        let due = hub.clock.now().checked_add(delay);
        let deadline = hub.ticks.deadline_of(due);
        let shard = self.core.shard();
        let make = |task| Repeating::new(cadence, due, deadline, task);
        match shard.begin(deadline, Box::new(task), |task| make(task)) {
            Ok(repeating) => Ok(Timeout::repeating(Arc::clone(shard), repeating)),
            Err((kind, task)) => Err(ScheduleError::new(kind, *task)),
        }
    }

    /// The shard of this thread.
    #[inline]
    pub(crate) fn shard(&self) -> &Arc<Shard> {
        self.core.shard()
    }

    pub(crate) fn not_zero(&self, period: Duration) -> Duration {
        if period.is_zero() { self.core.hub.ticks.length() } else { period }
    }

    /// How many timeouts wait. A repeating one does not while it runs.
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
    #[must_use]
    pub fn pending(&self) -> usize {
        self.core.shards.iter().map(|shard| shard.len()).sum()
    }

    /// When the next timeout is due; None if nothing waits, or nothing that will ever be due.
    ///
    /// Exact, and so may have to look at many timeouts, with their shard locked.
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
        let next = self.core.shards.iter().filter_map(|shard| shard.next_deadline()).min();
        self.core.hub.ticks.instant(next?)
    }

    /// What the timer holds and what it has done. Locks each shard for a moment, and looks at each
    /// bucket.
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
        let counters = &self.core.hub.counters;
        let (cancelled, shards): (Vec<_>, Vec<_>) =
            self.core.shards.iter().map(|shard| shard.stats()).unzip();
        TimerStats {
            pending: self.pending(),
            fired: counters.fired.load(Relaxed),
            cancelled: cancelled.into_iter().sum(),
            panics: counters.panics.load(Relaxed),
            wake_ups: counters.wake_ups.load(Relaxed),
            lateness: counters.lateness(),
            longest_task: counters.longest_task(),
            shards,
        }
    }

    /// Stops the timer, and returns all that will not run, by deadline.
    ///
    /// A task that is running is not interrupted: this waits for it, and none starts after it
    /// returned. A task that an executor was given before counts as fired, and may still be to run.
    /// Then nothing is pending, every [`Timeout`] tells its end, and scheduling is an error.
    ///
    /// Stopping a stopped timer does nothing, and gives nothing back. If several threads stop it,
    /// one gets everything, and the others return when it is done.
    ///
    /// # Errors
    ///
    /// From inside a task of this timer, on the worker or on the executor, as it would wait for
    /// itself. Have another thread do it, or drop the last clone of the timer, which does not wait
    /// there.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tickwheel::Timer;
    ///
    /// let timer = Timer::new();
    /// let (sender, receiver) = std::sync::mpsc::channel();
    /// let timeout = timer.schedule(Duration::from_secs(3_600), move || sender.send(1).unwrap())?;
    ///
    /// let unfired = timer.stop()?;
    /// assert_eq!((unfired.len(), timer.pending()), (1, 0));
    /// assert!(timeout.is_stopped());
    /// for unfired in unfired {
    ///     unfired.into_task().run(); // before its time, since you ask for it
    /// }
    /// assert_eq!(receiver.recv(), Ok(1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn stop(&self) -> Result<Vec<Unfired>, StopError> {
        if self.core.hub.is_inside() {
            return Err(StopError);
        }
        Ok(self.core.stop(true))
    }

    /// Whether the timer was stopped, or is about to be.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        matches!(lock(&self.core.life).phase, Phase::Stopping | Phase::Stopped)
    }
}

impl Default for Timer {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timer").field("pending", &self.pending()).finish_non_exhaustive()
    }
}

/// A timeout that was pending when its timer was stopped, from [`Timer::stop`].
#[derive(Debug)]
pub struct Unfired {
    deadline: Option<Instant>,
    task: Task,
}

impl Unfired {
    /// When it would have been due, rounded up to the timer's tick; None if never.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// The task that does not run.
    #[must_use]
    pub fn into_task(self) -> Task {
        self.task
    }
}

/// A task as the timer holds it.
#[non_exhaustive]
pub enum Task {
    /// Of [`Timer::schedule`] or [`Timer::schedule_at`].
    Once(Box<dyn FnOnce() + Send>),
    /// Of a repeating timeout.
    Repeating(Box<dyn FnMut() -> ControlFlow<()> + Send>),
}

impl Task {
    /// Runs it once, here and now.
    pub fn run(self) {
        match self {
            Self::Once(task) => task(),
            Self::Repeating(mut task) => {
                // Whether it wants to go on makes no difference here.
                let (ControlFlow::Continue(()) | ControlFlow::Break(())) = task();
            }
        }
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Once(_) => "Once",
            Self::Repeating(_) => "Repeating",
        })
    }
}

type OnceTask = Box<dyn FnOnce() + Send>;
type RepeatingTask = Box<dyn FnMut() -> ControlFlow<()> + Send>;

/// What a timer is assembled from; all in range.
struct Parts {
    tick: Duration,
    mode: Mode,
    limit: Option<Limit>,
    shards: usize,
    executor: Option<Box<dyn Executor>>,
    clock: Arc<dyn Clock>,
    thread_name: String,
    on_panic: Option<Box<PanicHook>>,
}

/// What the clones of a timer and its worker share.
struct Core {
    hub: Arc<Hub>,
    shards: Box<[Arc<Shard>]>,
    executor: Option<Box<dyn Executor>>,
    thread_name: String,
    life: Mutex<Life>,
    /// Those who stop a timer that is being stopped wait here.
    stopped: Condvar,
}

struct Life {
    phase: Phase,
    /// What the worker had in its hands when the timer was stopped.
    left: Vec<Unfired>,
}

enum Phase {
    /// Nothing was scheduled yet.
    Idle,
    Running(JoinHandle<()>),
    Stopping,
    Stopped,
}

impl Core {
    /// The shard of this thread.
    #[inline]
    fn shard(&self) -> &Arc<Shard> {
        &self.shards[local::shard() % self.shards.len()]
    }

    /// Starts the worker, unless it runs.
    fn start(self: Arc<Self>) -> Result<(), ScheduleErrorKind> {
        let this = Arc::clone(&self);
        let mut life = lock(&self.life);
        match life.phase {
            Phase::Running(_) => Ok(()),
            Phase::Stopping | Phase::Stopped => Err(ScheduleErrorKind::Stopped),
            Phase::Idle => {
                self.hub.park.starts();
                let worker = Builder::new().name(self.thread_name.clone());
                match worker.spawn(move || worker::run(this)) {
                    Ok(worker) => {
                        life.phase = Phase::Running(worker);
                        self.hub.started.store(true, Ordering::Release);
                        Ok(())
                    }
                    Err(error) => {
                        self.hub.park.exits();
                        Err(ScheduleErrorKind::Worker(error.kind()))
                    }
                }
            }
        }
    }

    /// Stops the timer: what is left, to whoever was first. Waits for the worker if `waits`.
    fn stop(&self, waits: bool) -> Vec<Unfired> {
        let mut life = lock(&self.life);
        let worker = loop {
            match replace(&mut life.phase, Phase::Stopping) {
                Phase::Idle => break None,
                Phase::Running(worker) => break Some(worker),
                Phase::Stopping => life = wait(&self.stopped, life),
                Phase::Stopped => {
                    life.phase = Phase::Stopped;
                    return Vec::new();
                }
            }
        };
        drop(life);

        for shard in &self.shards {
            shard.close();
        }
        let mut expired = Vec::new();
        for shard in &self.shards {
            while !shard.take_left(&mut expired) {}
        }
        self.hub.park.stop();
        if let Some(worker) = worker.filter(|_| waits) {
            // It does not panic.
            let _ = worker.join();
        }

        let mut unfired = Vec::with_capacity(expired.len());
        let mut wakers = Vec::new();
        for expired in expired {
            let task = match expired.value {
                Entry::Once(task) => Task::Once(task),
                Entry::Repeating(repeating) => match repeating.take_task() {
                    Some(task) => Task::Repeating(task),
                    None => continue,
                },
                Entry::Wake(waker) => {
                    wakers.push(waker);
                    continue;
                }
            };
            unfired.push(Unfired { deadline: self.hub.ticks.instant(expired.deadline), task });
        }

        let mut life = lock(&self.life);
        unfired.append(&mut life.left);
        life.phase = Phase::Stopped;
        drop(life);
        self.stopped.notify_all();
        // Those of each shard are sorted already.
        unfired.sort_by_key(|unfired| (unfired.deadline.is_none(), unfired.deadline));
        for waker in wakers {
            self.hub.guarded(|| waker.wake());
        }
        unfired
    }

    /// Keeps what did not run for whoever stops the timer.
    fn leave(&self, unfired: Unfired) {
        lock(&self.life).left.push(unfired);
    }

    /// The worker has ended: if nobody waited for it, nobody takes what it left.
    fn worker_ends(&self) {
        let mut life = lock(&self.life);
        let left = match life.phase {
            Phase::Stopped => take(&mut life.left),
            _ => Vec::new(),
        };
        drop(life);
        self.discard(left);
    }

    fn discard(&self, unfired: Vec<Unfired>) {
        for unfired in unfired {
            self.hub.guarded(|| drop(unfired));
        }
    }
}

/// The clones of a timer.
struct Owner(Arc<Core>);

impl Drop for Owner {
    fn drop(&mut self) {
        census::dies();
        // Also inside another timer's task, where they could wait for each other.
        let waits = !inside_any_task();
        let unfired = self.0.stop(waits);
        self.0.discard(unfired);
    }
}
