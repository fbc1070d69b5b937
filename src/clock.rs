//! Instants to ticks: deadlines round up, the present rounds down.

use crate::sync::{Mutex, lock};
use crate::timer::Follower;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;
use std::time::Instant;

/// What a [`Timer`](crate::Timer) takes for the present.
///
/// A clock never goes back. It is read for every timeout that is scheduled and every task that is
/// run, with no lock held, so it should be quick. It must not call the timer, and it must not panic:
/// on the worker that would be its end, and nothing would fire any more.
///
/// Time is an [`Instant`], as nearly everything that deals with deadlines takes one. A clock that
/// does not run like the system's counts from some instant, as [`ManualClock`] does:
///
/// ```
/// use std::time::{Duration, Instant};
/// use tickwheel::{Clock, Timer};
///
/// /// Runs at a thousand times the speed.
/// struct Fast(Instant);
///
/// impl Clock for Fast {
///     fn now(&self) -> Instant {
///         self.0 + self.0.elapsed() * 1_000
///     }
///
///     fn wait(&self, duration: Duration) -> Option<Duration> {
///         Some(duration / 1_000)
///     }
/// }
///
/// let timer = Timer::builder().clock(Fast(Instant::now())).build()?;
/// let (sender, receiver) = std::sync::mpsc::channel();
/// timer.schedule(Duration::from_secs(30), move || sender.send("after 30 ms").unwrap())?;
/// assert_eq!(receiver.recv(), Ok("after 30 ms"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Clock: Send + Sync + 'static {
    /// The present.
    fn now(&self) -> Instant;

    /// How long a thread has to sleep until so much time has passed on this clock, or None for
    /// until it is told: see [`follow`](Self::follow).
    ///
    /// An answer that is too short costs a wake-up; one that is too long makes timeouts late. By
    /// default `duration` itself.
    fn wait(&self, duration: Duration) -> Option<Duration> {
        Some(duration)
    }

    /// Hands over a follower of each timer that is built on this clock, so that a clock that jumps
    /// can tell them. By default it is dropped.
    fn follow(&self, follower: Follower) {
        drop(follower);
    }
}

/// The system's monotonic clock: [`Instant::now`].
///
/// It does not go back when somebody sets the time. What it does while the machine is suspended is
/// up to the system. On Linux and macOS it stands still, so that a timeout of an hour comes after an
/// hour of the machine being awake. Where it goes on, what came due meanwhile fires when the machine
/// wakes up, late, and nothing is lost. A clock that includes the time asleep is a few lines of
/// [`Clock`].
#[derive(Clone, Copy, Debug, Default)]
pub struct MonotonicClock;

impl Clock for MonotonicClock {
    #[inline]
    fn now(&self) -> Instant {
        Instant::now()
    }
}

/// A clock that stands still until it is told to go on, to test what uses a timer.
///
/// [`advance`](Self::advance) stops at each deadline on its way and returns when everything due has
/// fired, so a year takes no longer than what is due in it, and every run is like the other. Clones
/// are the same clock; any number of timers can go by it.
///
/// ```
/// use std::sync::atomic::{AtomicU32, Ordering};
/// use std::sync::Arc;
/// use std::time::Duration;
/// use tickwheel::{ManualClock, Timer};
///
/// let clock = ManualClock::new();
/// let timer = Timer::builder().clock(clock.clone()).build()?;
/// let fired = Arc::new(AtomicU32::new(0));
/// let counter = Arc::clone(&fired);
/// timer.schedule(Duration::from_secs(86_400), move || {
///     counter.fetch_add(1, Ordering::Relaxed);
/// })?;
///
/// clock.advance(Duration::from_secs(86_399));
/// assert_eq!(fired.load(Ordering::Relaxed), 0);
/// clock.advance(Duration::from_secs(1));
/// assert_eq!(fired.load(Ordering::Relaxed), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct ManualClock(Arc<Manual>);

struct Manual {
    start: Instant,
    /// Time passed since `start`.
    passed: Mutex<Duration>,
    /// The timers that go by this clock, those that are gone included until the next advance.
    followers: Mutex<Vec<Follower>>,
    /// Held by who advances, so that two do not pass each other's deadlines.
    advancing: Mutex<()>,
}

impl ManualClock {
    /// A clock that stands at the present.
    #[must_use]
    pub fn new() -> Self {
        Self::starting_at(Instant::now())
    }

    /// A clock that stands at `start`.
    #[must_use]
    pub fn starting_at(start: Instant) -> Self {
        Self(Arc::new(Manual {
            start,
            passed: Mutex::new(Duration::ZERO),
            followers: Mutex::new(Vec::new()),
            advancing: Mutex::new(()),
        }))
    }

    /// Where the clock stands.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.start_plus(*lock(&self.0.passed))
    }

    /// Lets `duration` pass, and returns when everything due has fired, on all timers that go by
    /// this clock.
    ///
    /// Stops at each deadline on the way: a task finds the clock at its deadline, rounded up to the
    /// timer's tick, and what it schedules fires as well if it is due by the end. Of what is due at
    /// one instant on several timers nothing is said. If a timer has an executor, its tasks have
    /// been handed over, not more.
    ///
    /// Called from inside a task it only moves the clock: it cannot wait for the task that called
    /// it. What came due fires after that. A task that waits for another thread that advances the
    /// clock waits for ever, and so does who advances a clock on which a task schedules itself anew
    /// with a delay of zero: nothing passes meanwhile.
    ///
    /// Time saturates at what an [`Instant`] can hold.
    pub fn advance(&self, duration: Duration) {
        if crate::timer::inside_any_task() {
            return self.move_to(self.passed_after(duration));
        }
        let advancing = lock(&self.0.advancing);
        let target = self.passed_after(duration);
        loop {
            // Only when all is quiet is it known what comes next.
            let next = self
                .settle()
                .map_or(target, |next| next.saturating_duration_since(self.0.start).min(target));
            if next <= self.passed() && target <= self.passed() {
                break;
            }
            self.move_to(next);
        }
        drop(advancing);
    }

    /// Lets `duration` pass at once, without stopping on the way, and returns when everything due
    /// has fired: as if the machine had been busy or suspended meanwhile.
    ///
    /// Like [`advance`](Self::advance) otherwise.
    ///
    /// ```
    /// use std::ops::ControlFlow;
    /// use std::time::Duration;
    /// use tickwheel::{ManualClock, MissedTick, Timer};
    ///
    /// let clock = ManualClock::new();
    /// let timer = Timer::builder().clock(clock.clone()).build()?;
    /// let second = Duration::from_secs(1);
    /// let beat = || ControlFlow::Continue(());
    /// timer.schedule_repeating(second, MissedTick::Skip, beat)?;
    ///
    /// clock.advance(second * 10);
    /// assert_eq!(timer.stats().fired, 10);
    /// clock.jump(second * 9 + second / 2); // one is late, eight are missed
    /// assert_eq!(timer.stats().fired, 11);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn jump(&self, duration: Duration) {
        if crate::timer::inside_any_task() {
            return self.move_to(self.passed_after(duration));
        }
        let advancing = lock(&self.0.advancing);
        self.move_to(self.passed_after(duration));
        self.settle();
        drop(advancing);
    }

    fn passed(&self) -> Duration {
        *lock(&self.0.passed)
    }

    /// Where the clock will stand after `duration`, or after half of it, or half of that: what an
    /// [`Instant`] can hold.
    fn passed_after(&self, mut duration: Duration) -> Duration {
        let passed = self.passed();
        loop {
            let after = passed.saturating_add(duration);
            if self.0.start.checked_add(after).is_some() {
                return after;
            }
            duration /= 2;
        }
    }

    /// Moves forward only.
    fn move_to(&self, passed: Duration) {
        let mut now = lock(&self.0.passed);
        *now = passed.max(*now);
    }

    fn start_plus(&self, passed: Duration) -> Instant {
        self.0.start.checked_add(passed).unwrap_or(self.0.start)
    }

    /// Waits until everything due has fired, and returns when the next is due, or earlier.
    fn settle(&self) -> Option<Instant> {
        let followers = {
            let mut followers = lock(&self.0.followers);
            followers.retain(Follower::is_alive);
            followers.clone()
        };
        // All are told before one is waited for, so that tasks of different timers can wait for
        // each other.
        for follower in &followers {
            follower.tell();
        }
        followers.iter().filter_map(Follower::settle).min()
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for ManualClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManualClock").field("passed", &self.passed()).finish_non_exhaustive()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Instant {
        self.now()
    }

    fn wait(&self, _: Duration) -> Option<Duration> {
        None
    }

    fn follow(&self, follower: Follower) {
        lock(&self.0.followers).push(follower);
    }
}

/// How instants are numbered: tick n is the instant n tick lengths after the start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticks {
    start: Instant,
    /// In nanoseconds, not 0.
    length: u64,
}

impl Ticks {
    /// `length` is taken for a nanosecond if it is shorter, and for 584 years if it is longer.
    pub(crate) fn new(start: Instant, length: Duration) -> Self {
        Self { start, length: u64::try_from(length.as_nanos()).unwrap_or(u64::MAX).max(1) }
    }

    /// The first tick that is not before `instant`.
    #[inline]
    pub(crate) fn deadline(&self, instant: Instant) -> u64 {
        let nanos = instant.saturating_duration_since(self.start).as_nanos();
        match u64::try_from(nanos) {
            Ok(nanos) => nanos.div_ceil(self.length),
            Err(_) => u64::try_from(nanos.div_ceil(self.length.into())).unwrap_or(NEVER),
        }
    }

    /// How long a tick is.
    pub(crate) fn length(&self) -> Duration {
        Duration::from_nanos(self.length)
    }

    /// The first tick that is not before `instant`, or [`NEVER`] if there is no instant so late.
    #[inline]
    pub(crate) fn deadline_of(&self, instant: Option<Instant>) -> u64 {
        instant.map_or(NEVER, |instant| self.deadline(instant))
    }

    /// The first tick that is not before the end of `delay`, or [`NEVER`] if an [`Instant`] cannot
    /// hold that.
    #[inline]
    pub(crate) fn after(&self, now: Instant, delay: Duration) -> u64 {
        self.deadline_of(now.checked_add(delay))
    }

    /// The last tick that is not after `now`; before [`NEVER`].
    #[inline]
    pub(crate) fn present(&self, now: Instant) -> u64 {
        let nanos = now.saturating_duration_since(self.start).as_nanos();
        match u64::try_from(nanos) {
            Ok(nanos) => (nanos / self.length).min(NEVER - 1),
            Err(_) => u64::try_from(nanos / u128::from(self.length))
                .map_or(NEVER - 1, |tick| tick.min(NEVER - 1)),
        }
    }

    /// How long ago tick `deadline` was.
    #[inline]
    pub(crate) fn late(&self, now: Instant, deadline: u64) -> Duration {
        let passed = u64::try_from(now.saturating_duration_since(self.start).as_nanos());
        let due = deadline.saturating_mul(self.length);
        Duration::from_nanos(passed.unwrap_or(u64::MAX).saturating_sub(due))
    }

    /// The instant of `tick`, or None if it is [`NEVER`] or more than an [`Instant`] can hold.
    pub(crate) fn instant(&self, tick: u64) -> Option<Instant> {
        if tick == NEVER {
            return None;
        }
        let nanos = u128::from(tick) * u128::from(self.length);
        let seconds = u64::try_from(nanos / NANOS_PER_SECOND).ok()?;
        let nanos = u32::try_from(nanos % NANOS_PER_SECOND).ok()?;
        self.start.checked_add(Duration::new(seconds, nanos))
    }
}

/// The deadline of what never fires: no present is as late.
pub(crate) const NEVER: u64 = u64::MAX;

const NANOS_PER_SECOND: u128 = 1_000_000_000;
