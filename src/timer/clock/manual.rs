//! A clock that a test moves by hand.

use super::{Clock, Follower};
use crate::platform::Instant;
use crate::sync::{Mutex, Rank, lock};
use crate::timer::inside;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

/// A clock that stands still until the caller moves it, to test code that uses a timer.
///
/// [`advance`](Self::advance) stops at each deadline on its way and returns when everything due has
/// fired. So a year takes no longer than the tasks that are due in it, and every run is like the
/// other. Clones are the same clock, and any number of timers can go by it.
///
/// | Called | `advance` and `jump` |
/// |---|---|
/// | outside of tasks | move the clock, and return when everything due has fired on all timers of this clock |
/// | inside a task of any timer, whatever its clock | move the clock at once, tell all timers of this clock, and return: what came due fires after that |
/// | by two threads at once | one after the other |
///
/// Inside a task they cannot wait, because the timers may have to wait for that very task.
/// Everything due *has fired* when its task has run, or, on a timer with an
/// [`Executor`](crate::Executor), when the worker has handed the task over.
///
/// The clock tells a timer with a [`Driver`](crate::Driver), neither stops at its deadlines nor
/// waits for it: what came due there fires in the driver's next turn. A test moves the clock to the
/// instant that [`Driver::turn`](crate::Driver::turn) returns, and takes the next turn.
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
///
/// # Tests of async code
///
/// Moving the clock returns when the worker has woken each task that waits, and it is for their
/// executor to run them. So a sleep that such a task begins then counts from the end of the move. A
/// test that also waits for what they do runs them on its own thread, until all of them wait again:
///
/// ```
/// use futures::executor::LocalPool;
/// use futures::task::SpawnExt;
/// use std::sync::atomic::{AtomicU32, Ordering};
/// use std::sync::Arc;
/// use std::time::Duration;
/// use tickwheel::{ManualClock, Timer, delay_channel};
///
/// let (clock, mut pool) = (ManualClock::new(), LocalPool::new());
/// let timer = Timer::builder().clock(clock.clone()).build()?;
/// let (sender, mut receiver) = delay_channel(&timer);
/// let sum = Arc::new(AtomicU32::new(0));
/// let received = Arc::clone(&sum);
/// pool.spawner().spawn(async move {
///     while let Some(Ok(due)) = receiver.next().await {
///         received.fetch_add(due.value, Ordering::Relaxed);
///     }
/// })?;
///
/// sender.insert(7, Duration::from_secs(3_600))?;
/// pool.run_until_stalled(); // the consumer waits
/// clock.advance(Duration::from_secs(3_600));
/// pool.run_until_stalled(); // it has received what was due
/// assert_eq!(sum.load(Ordering::Relaxed), 7);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct ManualClock(Arc<Manual>);

struct Manual {
    now: Mutex<Instant>,
    /// The timers that go by this clock, and some that are gone: at most as many as the list has
    /// room for, which is at most four times as many as were alive at once, or eight.
    followers: Mutex<Vec<Follower>>,
    /// Held by the thread that advances the clock, so that two do not pass each other's deadlines.
    advancing: Mutex<()>,
}

impl ManualClock {
    /// Makes a clock that stands at the present.
    #[must_use]
    pub fn new() -> Self {
        Self::starting_at(Instant::now())
    }

    /// Makes a clock that stands at `start`.
    #[must_use]
    pub fn starting_at(start: Instant) -> Self {
        Self(Arc::new(Manual {
            now: Mutex::new(Rank::Now, start),
            followers: Mutex::new(Rank::Followers, Vec::new()),
            advancing: Mutex::new(Rank::Advancing, ()),
        }))
    }

    /// Returns the instant at which the clock stands.
    #[must_use]
    pub fn now(&self) -> Instant {
        *lock(&self.0.now)
    }

    /// Lets `duration` pass, and returns when everything due has fired on all timers that go by
    /// this clock.
    ///
    /// The clock stops at each deadline on the way: a task finds the clock at its own deadline,
    /// rounded up to the timer's tick. A timeout that a task schedules, on whichever of the timers,
    /// fires as well if it is due by the end. The order between timers at the same instant is
    /// unspecified.
    ///
    /// Inside a task of any timer, this only moves the clock and tells the timers: see
    /// [`ManualClock`].
    ///
    /// Advancing waits for ever if a task waits for the thread that advances the clock, if an
    /// executor has no room until that thread goes on, or if a task keeps scheduling itself for the
    /// present: no time passes meanwhile.
    ///
    /// Time saturates at what an [`Instant`] can hold.
    pub fn advance(&self, duration: Duration) {
        self.pass(duration, true);
    }

    /// Lets `duration` pass at once, without stops on the way, and returns when everything due has
    /// fired: as if the machine had been busy or suspended meanwhile.
    ///
    /// It is like [`advance`](Self::advance) otherwise.
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
        self.pass(duration, false);
    }

    fn pass(&self, duration: Duration, stops: bool) {
        if inside::is_inside() {
            self.move_to(self.after(duration));
            return self.followers().iter().for_each(Follower::tell);
        }
        let advancing = lock(&self.0.advancing);
        let target = self.after(duration);
        if !stops {
            self.move_to(target);
        }
        loop {
            // Before all is quiet, because a task may move the clock after that.
            let is_there = target <= self.now();
            // Only when all is quiet is it known what comes next.
            let next = Follower::settle_all(&self.followers());
            if is_there {
                break;
            }
            self.move_to(next.map_or(target, |next| next.min(target)));
        }
        drop(advancing);
    }

    /// Returns the present after `duration`, or the last instant if that is before.
    fn after(&self, mut duration: Duration) -> Instant {
        let mut last = self.now();
        if let Some(after) = last.checked_add(duration) {
            return after;
        }
        while !duration.is_zero() {
            match last.checked_add(duration) {
                Some(later) => last = later,
                None => duration /= 2,
            }
        }
        last
    }

    /// Moves forward only.
    fn move_to(&self, instant: Instant) {
        let mut now = lock(&self.0.now);
        *now = instant.max(*now);
    }

    fn followers(&self) -> Vec<Follower> {
        let mut followers = lock(&self.0.followers);
        followers.retain(Follower::is_alive);
        if followers.len() < followers.capacity() / 4 {
            let alive = followers.len();
            followers.shrink_to(alive * 2);
        }
        followers.clone()
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for ManualClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManualClock").field("now", &self.now()).finish_non_exhaustive()
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
        let mut followers = lock(&self.0.followers);
        // Seldom, as half of the room is free after this.
        if followers.len() == followers.capacity() {
            followers.retain(Follower::is_alive);
            let alive = followers.len();
            followers.shrink_to(alive * 2);
            followers.reserve(alive.max(4));
        }
        followers.push(follower);
    }
}
