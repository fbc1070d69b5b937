//! The settings of a timer.

use super::clock::{Clock, MonotonicClock};
use super::error::BuildError;
use super::executor::Executor;
use super::hub::{PanicHook, TaskPanic};
use super::recording::Sink;
use crate::Mode;
use crate::platform::Instant;
use crate::ticks::duration_of;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;
use core::num::NonZeroUsize;
use core::time::Duration;
use std::thread::available_parallelism;

/// Builds a [`Timer`](crate::Timer), from [`Timer::builder`](crate::Timer::builder).
///
/// ```
/// use std::time::Duration;
/// use tickwheel::{Mode, Timer};
///
/// let timer = Timer::builder()
///     .tick(Duration::from_micros(100))
///     .mode(Mode::hashed(4096)?)
///     .max_pending(1_000_000)
///     .thread_name("timeouts")
///     .on_panic(|panic| eprintln!("a timeout's task panicked: {:?}", panic.message()))
///     .build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub struct TimerBuilder {
    tick: Option<Duration>,
    pub(super) start: Option<Instant>,
    pub(super) mode: Mode,
    pub(super) max_pending: Option<usize>,
    pub(super) wakes_together: bool,
    shards: Option<usize>,
    pub(super) executor: Option<Box<dyn Executor>>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) thread_name: String,
    pub(super) on_panic: Option<Box<PanicHook>>,
    pub(super) slow_task: Option<Duration>,
    pub(super) sink: Sink,
}

impl TimerBuilder {
    pub(super) fn new() -> Self {
        Self {
            tick: None,
            start: None,
            mode: Mode::default(),
            max_pending: None,
            wakes_together: false,
            shards: None,
            executor: None,
            clock: Arc::new(MonotonicClock),
            thread_name: String::from("tickwheel"),
            on_panic: None,
            slow_task: None,
            sink: Sink::default(),
        }
    }

    /// Sets the length of a tick, from 1 microsecond to 1 hour.
    ///
    /// The timer rounds deadlines up to whole ticks. So a timeout is late by up to one tick, and
    /// all timeouts that are due in one tick cost one wake-up. A short tick costs nothing while
    /// nothing is due.
    ///
    /// # By default
    ///
    /// A tick is a sixteenth of a millisecond, and timeouts that are due soon after each other fire
    /// together: the worker wakes up for the last of those that are due less than 1 ms after the
    /// first. So a timeout is late by less than 1 ms, and by less than a tick if none is due soon
    /// after it; and however many fire, the worker wakes up once per millisecond at most. With a
    /// tick that the caller sets, no timeout waits for a later one.
    ///
    /// The default is 1 ms, without such a wait, for hashed wheels, whose rounds would be shorter;
    /// with a [`Driver`](crate::Driver), because many event loops and runtimes count milliseconds;
    /// and for a timer that is [recorded](Self::record), because traces do.
    pub fn tick(mut self, tick: Duration) -> Self {
        self.tick = Some(tick);
        self
    }

    /// Sets the instant from which ticks are counted. The default is the present.
    ///
    /// Timers with one start, or one that differs by whole ticks, round deadlines to the same
    /// instants, and so does a runtime whose ticks begin there. From a `start` after the present
    /// the timer counts back to it, in whole ticks, as far as an instant can be had.
    pub fn ticks_from(mut self, start: Instant) -> Self {
        self.start = Some(start);
        self
    }

    /// Takes up to 64 wakers that are due out of the timer at once, and then wakes them one after the
    /// other, so that a burst of futures takes less time.
    ///
    /// By default each is in the timer until it is woken itself: what a waker calls may drop or move
    /// other futures, and these wake nobody then. Together with it, they may wake their tasks once
    /// in vain. They count as one task in [`longest_task`](crate::TimerStats::longest_task).
    pub fn wakes_together(mut self) -> Self {
        self.wakes_together = true;
        self
    }

    /// Sets the mode of the wheels. The default is hierarchical.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Limits how many timeouts may be pending at once, to at least 1. By default there is no
    /// limit. Scheduling beyond the limit is an error that gives the task back.
    ///
    /// A repeating timeout counts as one, from the call that schedules it until it ends. With a
    /// limit all threads write one counter, so scheduling costs more where there are many threads.
    pub fn max_pending(mut self, timeouts: usize) -> Self {
        self.max_pending = Some(timeouts);
        self
    }

    /// Sets the number of shards, from 1 to 1024. The default is four for each core that is
    /// available, up to 256. Each shard is a wheel behind a lock, and each thread keeps to one
    /// shard.
    ///
    /// With one shard, all timeouts fire in the order of their deadlines.
    pub fn shards(mut self, shards: usize) -> Self {
        self.shards = Some(shards);
        self
    }

    /// Sets where tasks run. By default they run on the worker, one after the other.
    pub fn executor(mut self, executor: impl Executor) -> Self {
        self.executor = Some(Box::new(executor));
        self
    }

    /// Sets what tells the time. The default is [`MonotonicClock`].
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Names the worker thread. The default is `tickwheel`. Linux shows the first 15 bytes.
    pub fn thread_name(mut self, name: impl Into<String>) -> Self {
        self.thread_name = name.into();
        self
    }

    /// Sets a hook that the timer calls when a task panics, after the panic hook of the process.
    /// The timer calls it on the thread of the task, inside that task, with no lock held. It
    /// ignores a panic of the hook itself.
    ///
    /// ```
    /// use std::sync::mpsc;
    /// use std::time::Duration;
    /// use tickwheel::Timer;
    ///
    /// let (sender, receiver) = mpsc::channel();
    /// let timer = Timer::builder()
    ///     .on_panic(move |panic| sender.send(panic.message().map(String::from)).unwrap())
    ///     .build()?;
    /// timer.schedule(Duration::ZERO, || panic!("no more tea"))?;
    /// assert_eq!(receiver.recv()?, Some("no more tea".to_owned()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn on_panic(mut self, hook: impl Fn(&TaskPanic<'_>) + Send + Sync + 'static) -> Self {
        self.on_panic = Some(Box::new(hook));
        self
    }

    /// Sets how long a task has to run to count as slow: see
    /// [`slow_tasks`](crate::TimerStats::slow_tasks). By default none does. The timer reads the
    /// clock before and after each task then.
    ///
    /// With the feature `tracing`, a slow task is told by an event of the level `WARN`, with
    /// `took_us` and `lateness_us`, inside the task's span. Every task has one, of the level
    /// `TRACE`: `task` of the target `tickwheel`, with `lateness_us`, how late the task began.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tickwheel::{ManualClock, Timer};
    ///
    /// let clock = ManualClock::new();
    /// let slow = Duration::from_millis(10);
    /// let timer = Timer::builder().clock(clock.clone()).slow_task(slow).build()?;
    /// let works = clock.clone();
    /// timer.schedule(Duration::from_secs(1), move || works.advance(slow * 2))?;
    /// clock.advance(Duration::from_secs(2));
    /// assert_eq!(timer.stats().slow_tasks, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn slow_task(mut self, at_least: Duration) -> Self {
        self.slow_task = Some(at_least);
        self
    }

    /// Records what the program does to its timeouts, as a trace for `tickwheel replay` and
    /// `tickwheel choose`. [`Recorder`](crate::Recorder) says what is in the trace, and what a
    /// slow or failing writer does to it.
    ///
    /// The trace has each timeout that is scheduled, moved, or cancelled before it ran. So each
    /// run of a repeating timeout is a `schedule` of its own, and a sleep is scheduled when it
    /// is polled. A deadline is the one rounded up to the timer's tick, which is 1 ms if the caller
    /// sets no other. If a timeout is cancelled after it was due and before it ran, a
    /// replay fires it and counts a late cancel.
    ///
    /// The recording ends when the timer is stopped: [`stop`](crate::Timer::stop) and the drop of the
    /// last clone wait until all is written, where they wait for the worker. If the process
    /// ends before, about the last second is missing, and the trace has no `end`. `writer` must
    /// not call the timer, or own it.
    ///
    /// Each operation reads the clock once more, to tell when it happened, and the thread
    /// that writes reads it, too. Recording needs the feature `record`.
    ///
    /// ```no_run
    /// use std::fs::File;
    /// use std::time::Duration;
    /// use tickwheel::Timer;
    ///
    /// let timer = Timer::builder().record(File::create("trace.csv")?).build()?;
    /// let request = timer.schedule(Duration::from_secs(30), || println!("no answer"))?;
    /// request.cancel();
    /// timer.stop()?;
    /// // tickwheel choose trace.csv
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "record")]
    pub fn record(mut self, writer: impl std::io::Write + Send + 'static) -> Self {
        self.sink = Sink::to(writer);
        self.tick.get_or_insert(COARSE.0);
        self
    }

    /// Returns an error if a setting is out of its range.
    pub(super) fn check(&self) -> Result<(), BuildError> {
        if let Some(tick) = self.tick.filter(|tick| !(SHORTEST_TICK..=LONGEST_TICK).contains(tick))
        {
            return Err(BuildError::Tick(tick));
        }
        if self.max_pending == Some(0) {
            return Err(BuildError::MaxPending);
        }
        if let Some(shards) = self.shards.filter(|shards| !(1..=MOST_SHARDS).contains(shards)) {
            return Err(BuildError::Shards(shards));
        }
        if self.thread_name.contains('\0') {
            return Err(BuildError::ThreadName(self.thread_name.clone()));
        }
        Ok(())
    }

    /// Returns the length of a tick, and the number of ticks that a timeout may wait for later ones.
    /// `has_thread` says that the timer has no driver.
    pub(super) fn tick_and_slack(&self, has_thread: bool) -> (Duration, u64) {
        match self.tick {
            Some(tick) => (tick, 0),
            None if has_thread && !self.mode.is_hashed() => FINE,
            None => COARSE,
        }
    }

    /// Returns an instant at which a tick begins, not after the present: before the first tick
    /// deadlines would be early.
    pub(super) fn first_tick(&self, tick: Duration) -> Instant {
        let now = self.clock.now();
        let Some(start) = self.start else { return now };
        let tick = tick.as_nanos();
        let ahead = start.saturating_duration_since(now).as_nanos().div_ceil(tick) * tick;
        duration_of(ahead).and_then(|ahead| start.checked_sub(ahead)).unwrap_or(now)
    }

    pub(super) fn shards_or_default(&self) -> usize {
        self.shards.unwrap_or_else(|| {
            let cores = available_parallelism().map_or(1, NonZeroUsize::get);
            cores.saturating_mul(A_CORE_BY_DEFAULT).min(MOST_BY_DEFAULT)
        })
    }
}

impl fmt::Debug for TimerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimerBuilder")
            .field("tick", &self.tick)
            .field("mode", &self.mode)
            .field("max_pending", &self.max_pending)
            .field("wakes_together", &self.wakes_together)
            .field("shards", &self.shards)
            .field("thread_name", &self.thread_name)
            .field("slow_task", &self.slow_task)
            .finish_non_exhaustive()
    }
}

/// What a tick is by default, and for how many a timeout may wait for later ones. Together they are
/// a millisecond. That is a power of two of ticks, so that
/// [`schedule_within`](crate::Timer::schedule_within) chooses as if they were milliseconds.
///
/// Tried and dropped: a worker that rests for a millisecond after each turn. It wakes up more often,
/// because it then meets the first that is due and not the last.
const FINE: (Duration, u64) = (Duration::from_nanos(62_500), 15);
/// The same where a short tick costs more than it brings.
const COARSE: (Duration, u64) = (Duration::from_millis(1), 0);
const SHORTEST_TICK: Duration = Duration::from_micros(1);
const LONGEST_TICK: Duration = Duration::from_secs(3_600);
const MOST_SHARDS: usize = 1_024;
/// Threads take turns at the shards, idle threads too. With one shard per core two busy threads
/// soon meet at one, and each then waits for the other.
const A_CORE_BY_DEFAULT: usize = 4;
/// The worker looks at each shard when it wakes up.
const MOST_BY_DEFAULT: usize = 256;
