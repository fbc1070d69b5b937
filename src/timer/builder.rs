//! How a timer is to be.

use super::error::BuildError;
use super::executor::Executor;
use super::hub::{Limit, PanicHook, TaskPanic};
use super::{Parts, Timer};
use crate::Mode;
use crate::clock::{Clock, MonotonicClock};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;
use core::num::NonZeroUsize;
use core::time::Duration;
use std::thread::available_parallelism;

/// How a [`Timer`] is to be, from [`Timer::builder`].
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
    tick: Duration,
    mode: Mode,
    max_pending: Option<usize>,
    shards: Option<usize>,
    executor: Option<Box<dyn Executor>>,
    clock: Arc<dyn Clock>,
    thread_name: String,
    on_panic: Option<Box<PanicHook>>,
}

impl TimerBuilder {
    pub(super) fn new() -> Self {
        Self {
            tick: Duration::from_millis(1),
            mode: Mode::default(),
            max_pending: None,
            shards: None,
            executor: None,
            clock: Arc::new(MonotonicClock),
            thread_name: String::from("tickwheel"),
            on_panic: None,
        }
    }

    /// The length of a tick, from 1 microsecond to 1 hour; by default 1 millisecond.
    ///
    /// Deadlines are rounded up to whole ticks, so a timeout is late by up to one tick, and what is
    /// due in one tick costs one wake-up. A short tick costs nothing while nothing is due.
    pub fn tick(mut self, tick: Duration) -> Self {
        self.tick = tick;
        self
    }

    /// The mode of the wheels; by default hierarchical.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// How many timeouts may be pending at once, at least 1; by default any number. Beyond that,
    /// scheduling is an error that gives the task back.
    ///
    /// A repeating timeout is one, from when it is scheduled until it ends. With a limit all
    /// threads write one counter, which makes scheduling dearer where there are many.
    pub fn max_pending(mut self, timeouts: usize) -> Self {
        self.max_pending = Some(timeouts);
        self
    }

    /// The number of shards, from 1 to 1024; by default four for each core that is available, up to
    /// 256. Each shard is a wheel of its own behind a lock of its own, and each thread keeps to one.
    ///
    /// With one shard, all timeouts fire in the order of their deadlines.
    pub fn shards(mut self, shards: usize) -> Self {
        self.shards = Some(shards);
        self
    }

    /// Where tasks run; by default on the worker thread, one after the other.
    pub fn executor(mut self, executor: impl Executor) -> Self {
        self.executor = Some(Box::new(executor));
        self
    }

    /// What tells the time; by default [`MonotonicClock`].
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// The name of the worker thread; by default `tickwheel`. Linux shows the first 15 bytes.
    pub fn thread_name(mut self, name: impl Into<String>) -> Self {
        self.thread_name = name.into();
        self
    }

    /// What to do when a task panics, besides what the process does when anything does. Called
    /// where it happened, with no lock held. If it panics itself, that is ignored.
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

    /// The timer. Its thread starts with the first timeout.
    ///
    /// # Errors
    ///
    /// If a number is out of its range, or the thread's name has a zero byte.
    pub fn build(self) -> Result<Timer, BuildError> {
        if self.tick < SHORTEST_TICK || LONGEST_TICK < self.tick {
            return Err(BuildError::Tick(self.tick));
        }
        if self.max_pending == Some(0) {
            return Err(BuildError::MaxPending);
        }
        if let Some(shards) = self.shards.filter(|shards| !(1..=MOST_SHARDS).contains(shards)) {
            return Err(BuildError::Shards(shards));
        }
        if self.thread_name.contains('\0') {
            return Err(BuildError::ThreadName(self.thread_name));
        }
        Ok(self.assemble())
    }

    /// The timer, as all numbers are in range.
    pub(super) fn assemble(self) -> Timer {
        let by_default = || {
            let cores = available_parallelism().map_or(1, NonZeroUsize::get);
            cores.saturating_mul(A_CORE_BY_DEFAULT).min(MOST_BY_DEFAULT)
        };
        Timer::assemble(Parts {
            tick: self.tick,
            mode: self.mode,
            limit: self.max_pending.map(Limit::new),
            shards: self.shards.unwrap_or_else(by_default),
            executor: self.executor,
            clock: self.clock,
            thread_name: self.thread_name,
            on_panic: self.on_panic,
        })
    }
}

impl fmt::Debug for TimerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimerBuilder")
            .field("tick", &self.tick)
            .field("mode", &self.mode)
            .field("max_pending", &self.max_pending)
            .field("shards", &self.shards)
            .field("thread_name", &self.thread_name)
            .finish_non_exhaustive()
    }
}

const SHORTEST_TICK: Duration = Duration::from_micros(1);
const LONGEST_TICK: Duration = Duration::from_secs(3_600);
const MOST_SHARDS: usize = 1_024;
/// Threads take turns, those that are idle too, so that with one shard a core two busy threads soon
/// meet at one, and each then takes six times as long.
const A_CORE_BY_DEFAULT: usize = 4;
/// Each shard is looked at when the worker wakes up.
const MOST_BY_DEFAULT: usize = 256;
