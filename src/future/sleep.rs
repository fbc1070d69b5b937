//! A future that completes when its time has come.
//!
//! A sleep is a shard, a tick, and, while it waits, the key of a waker in the shard's wheel,
//! the tick of that waker, and the addresses of that waker, which is a clone: 48 bytes. Until its
//! first poll it touches no lock. A poll compares its tick with `reached`, which the worker writes
//! under the shard's lock before it takes anything out, and which `stop` sets to the maximum. If
//! `reached` is before the tick, the waker is still in the wheel, and a poll by the same task is
//! over after this one read. The waker of another task replaces it, under the lock. If `reached` is
//! not before the tick, the lock says what took the waker, if anything did. A waker is cloned
//! before the lock is taken, and woken or dropped after it is released.
//!
//! | case | what happens | `tests/loom.rs` |
//! |---|---|---|
//! | polled while it is woken, by the same task or another | it is in the wheel and is woken, or `reached` tells that it was taken | `a_sleep_is_polled_as_it_is_woken`, `a_sleep_is_polled_by_another_task_as_it_is_woken` |
//! | first polled, or moved earlier, while the worker falls asleep | as if it were scheduled | `a_sleep_is_registered_as_the_worker_falls_asleep`, `a_sleep_is_moved_earlier_as_the_worker_falls_asleep` |
//! | moved while it is woken | the task is woken and polls; the sleep registers again if it has to | `a_sleep_is_moved_later_as_it_is_woken`, `a_sleep_is_moved_earlier_as_it_is_woken` |
//! | dropped while it is woken | the task may be woken once in vain | `a_sleep_is_dropped_as_it_is_woken` |
//! | polled or woken while the timer stops | refused, or taken out by `stop`, which wakes it; it knows which | `a_sleep_is_polled_as_the_timer_is_stopped`, `a_sleep_is_woken_as_the_timer_is_stopped` |

use super::turns::Turns;
use crate::platform::Instant;
use crate::timer::Shard;
use crate::{Key, ScheduleErrorKind, Status};
use alloc::sync::{Arc, Weak};
use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll, RawWakerVTable, Waker, ready};
use core::time::Duration;

/// A future that completes when its time has come, from [`Timer::sleep`](crate::Timer::sleep).
///
/// A sleep never completes early, by the timer's clock, counted from the call that made the sleep.
/// It is late by less than a tick of the timer, or than 1 ms by [default](crate::TimerBuilder::tick),
/// plus the time to wake the worker and the task.
///
/// A sleep does nothing until a task polls it. The first poll registers a clone of the waker with
/// the timer, unless the time has come already. Another poll takes no lock, unless its waker is
/// another one: then it replaces the registered waker. A sleep allocates nothing but the timer's
/// room for one timeout.
///
/// Dropping a sleep takes it out of the timer at once, with its waker. A task may poll a sleep
/// again after it completed: it stays complete until the caller [resets](Self::reset) it. A sleep
/// is `Unpin`, so it needs no pin in `select!`, and losing a race there costs it nothing: its
/// deadline stays.
///
/// # Errors
///
/// A sleep completes with an error if it cannot wait until its time has come: the timer was stopped
/// or dropped, has as many timeouts as its limit, or cannot start its worker. A sleep does not keep
/// the timer alive. If the time has come at the first poll, the sleep completes without an error.
///
/// ```
/// # futures::executor::block_on(async {
/// use std::time::Duration;
/// use tickwheel::{ScheduleErrorKind, Timer};
///
/// let timer = Timer::new();
/// timer.sleep(Duration::from_millis(5)).await?;
///
/// let long = timer.sleep(Duration::from_secs(3_600));
/// drop(timer);
/// assert_eq!(long.await, Err(ScheduleErrorKind::Stopped));
/// # Ok::<(), ScheduleErrorKind>(())
/// # }).unwrap();
/// ```
#[must_use = "a sleep does nothing unless it is awaited"]
pub struct Sleep {
    shard: Arc<Shard>,
    /// The tick it completes at.
    deadline: u64,
    progress: Progress,
}

/// Makes a sleep of a timer, from [`Timer::sleeps`](crate::Timer::sleeps): for code that keeps a
/// [`WeakSleeps`] and looks for the timer at each sleep.
pub struct Sleeps(Arc<Shard>);

/// Remembers a timer and keeps nothing of it alive, from [`Sleeps::downgrade`].
///
/// ```
/// # futures::executor::block_on(async {
/// use std::time::{Duration, Instant};
/// use tickwheel::Timer;
///
/// let timer = Timer::new();
/// let known = timer.sleeps().downgrade(); // in a thread-local, say
///
/// let sleeps = known.upgrade().expect("the timer runs");
/// sleeps.sleep_until(Instant::now() + Duration::from_millis(5)).await?;
/// drop(timer);
/// assert!(known.upgrade().is_none());
/// # Ok::<(), tickwheel::ScheduleErrorKind>(())
/// # }).unwrap();
/// ```
pub struct WeakSleeps(Weak<Shard>);

enum Progress {
    /// The timer has nothing of it: no task polled it since it was made or reset, or it completed.
    Idle { output: Option<Output>, turns: Turns<32> },
    /// The timer has a waker, or had one and woke it.
    Waiting {
        key: Key,
        /// The timer wakes it at this tick, which is before the deadline if that moved to later.
        tick: u64,
        /// The registered clone, not the waker that it is a clone of.
        waker: WakerId,
    },
}

type Output = Result<(), ScheduleErrorKind>;

/// Tells a waker from others, for as long as it lives.
///
/// A clone may have other addresses than the waker it was cloned from. So this is to be of the
/// waker that the timer has.
#[derive(Clone, Copy)]
struct WakerId {
    data: usize,
    vtable: &'static RawWakerVTable,
}

impl Sleep {
    #[inline]
    pub(crate) fn new(shard: &Arc<Shard>, deadline: u64) -> Self {
        Self { shard: Arc::clone(shard), deadline, progress: Progress::idle() }
    }

    /// Moves the deadline to `delay` from now, earlier or later than it was. A sleep that completed
    /// completes once more then.
    ///
    /// If a task polled the sleep, and the timer has not woken the task since, the timer wakes it
    /// in time, with no need to poll it meanwhile. If the timer has woken the task, or the sleep
    /// completed, the timer wakes nobody until a task polls the sleep again.
    ///
    /// Moving to later takes no lock: the timer wakes the task once at the earlier time, and the
    /// task polls and waits on. With a [limit](crate::TimerBuilder::max_pending) it takes a lock,
    /// and the timer wakes the task at the later time only.
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// use std::time::Duration;
    ///
    /// let mut idle = tickwheel::sleep(Duration::from_secs(60));
    /// idle.reset(Duration::from_secs(60)); // a sign of life
    /// idle.reset(Duration::from_millis(1));
    /// (&mut idle).await?;
    /// idle.reset(Duration::from_millis(1)); // again
    /// idle.await?;
    /// # Ok::<(), tickwheel::ScheduleErrorKind>(())
    /// # }).unwrap();
    /// ```
    pub fn reset(&mut self, delay: Duration) {
        self.move_to(self.shard.hub.deadline_after(delay));
    }

    /// Moves the deadline to `deadline`, and is like [`reset`](Self::reset) otherwise. A deadline
    /// in the past is due at once.
    pub fn reset_at(&mut self, deadline: Instant) {
        self.move_to(self.shard.hub.ticks.deadline(deadline));
    }

    /// Moves the deadline as [`reset_at`](Self::reset_at) does, but takes a lock to move to later,
    /// too: the timer wakes the task at that time only.
    pub fn reschedule_at(&mut self, deadline: Instant) {
        self.reschedule(self.shard.hub.ticks.deadline(deadline));
    }

    /// Takes the waker out of the timer: but for a wake-up under way, it wakes no task until one
    /// polls the sleep again. The deadline stays.
    ///
    /// Cost: O(1) amortised, O(p) in one call.
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// use std::future::poll_fn;
    /// use std::pin::Pin;
    /// use std::task::Poll;
    /// use std::time::Duration;
    ///
    /// let timer = tickwheel::Timer::new();
    /// let mut sleep = timer.sleep(Duration::from_secs(60));
    /// poll_fn(|context| Poll::Ready(Pin::new(&mut sleep).poll(context).is_pending())).await;
    /// assert_eq!(timer.pending(), 1);
    /// sleep.deregister();
    /// assert_eq!(timer.pending(), 0);
    /// sleep.reset(Duration::from_millis(1));
    /// sleep.await?;
    /// # Ok::<(), tickwheel::ScheduleErrorKind>(())
    /// # }).unwrap();
    /// ```
    #[inline]
    pub fn deregister(&mut self) {
        // In the caller: mostly it completed, and there is nothing to take out.
        if self.is_waiting() {
            self.take_out(drop);
        }
    }

    /// Returns the deadline: the instant asked for, rounded up to the timer's tick. Returns None if
    /// an [`Instant`] cannot hold it, so that it never comes.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.shard.hub.ticks.instant(self.deadline)
    }

    /// Returns whether the time has come, by the timer's clock, whether or not a task polled the
    /// sleep since.
    ///
    /// It may have come a moment before the timer wakes the task.
    #[must_use]
    pub fn is_elapsed(&self) -> bool {
        self.shard.hub.is_past(self.deadline)
    }

    pub(crate) fn shard(&self) -> &Arc<Shard> {
        &self.shard
    }

    /// Returns the tick it completes at.
    pub(crate) fn tick(&self) -> u64 {
        self.deadline
    }

    /// Returns whether the timer has a waker, or had one when it was last polled.
    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self.progress, Progress::Waiting { .. })
    }

    /// Makes it complete at tick `deadline` instead.
    pub(crate) fn move_to(&mut self, deadline: u64) {
        match self.progress {
            // The timer wakes the task before that, and the task polls. With a limit that poll
            // might find its place taken.
            Progress::Waiting { tick, .. }
                if tick <= deadline && self.shard.hub.limit.is_none() =>
            {
                self.deadline = deadline;
            }
            _ => self.reschedule(deadline),
        }
    }

    /// The same, and moves the waker.
    fn reschedule(&mut self, deadline: u64) {
        self.deadline = deadline;
        match &mut self.progress {
            Progress::Waiting { tick, .. } if *tick == deadline => {}
            Progress::Waiting { key, tick, .. } => {
                if let Some(new_key) = self.shard.reschedule(*key, deadline) {
                    (*key, *tick) = (new_key, deadline);
                } else {
                    // The timer took the waker out to wake the task, which polls again.
                    self.progress = Progress::idle();
                }
            }
            Progress::Idle { output, .. } => *output = None,
        }
    }

    /// Takes the waker out of the timer, and wakes the task if there was one.
    pub(crate) fn wake(&mut self) {
        self.take_out(Waker::wake);
    }

    /// Takes the waker out of the timer, if there is one, and does that with it. The timer is told
    /// of a panic: the waker is another's.
    pub(crate) fn take_out(&mut self, and: fn(Waker)) {
        let Progress::Waiting { key, .. } = self.progress else { return };
        self.progress = Progress::idle();
        self.shard.cancel(key, |waker| _ = self.shard.hub.guarded(|| and(waker)));
    }

    pub(crate) fn poll_by(&mut self, waker: &Waker) -> Poll<Output> {
        match &mut self.progress {
            Progress::Idle { output, turns } => {
                ready!(turns.take(&self.shard.hub, waker));
                if let Some(output) = output {
                    return Poll::Ready(*output);
                }
            }
            Progress::Waiting { key, tick, waker: known } => {
                // Until the worker comes to that tick the timer has the waker, and so it lives: no
                // other waker has its addresses.
                let (is_early, is_known) = (self.shard.reached() < *tick, known.is(waker));
                if is_early && is_known {
                    return Poll::Pending;
                }
                if !is_known {
                    let waker = waker.clone();
                    let id = WakerId::of(&waker);
                    if let Ok(replaced) = self.shard.replace_waker(*key, waker) {
                        *known = id;
                        self.shard.hub.guarded(|| drop(replaced));
                        return Poll::Pending;
                    }
                }
                match self.shard.status(*key, *tick) {
                    // The worker is about to take the waker.
                    Status::Pending => return Poll::Pending,
                    Status::Stopped => return self.complete(Err(ScheduleErrorKind::Stopped)),
                    _ if self.deadline <= *tick => return self.complete(Ok(())),
                    // The deadline moved to later.
                    _ => self.progress = Progress::idle(),
                }
            }
        }
        let waker = waker.clone();
        let id = WakerId::of(&waker);
        match self.shard.register(self.deadline, waker) {
            Ok(Some(key)) => {
                self.progress = Progress::Waiting { key, tick: self.deadline, waker: id };
                Poll::Pending
            }
            Ok(None) => self.complete(Ok(())),
            Err(error) => self.complete(Err(error)),
        }
    }

    fn complete(&mut self, output: Output) -> Poll<Output> {
        if let Progress::Waiting { .. } = self.progress {
            self.progress = Progress::idle();
        }
        if let Progress::Idle { output: kept, .. } = &mut self.progress {
            *kept = Some(output);
        }
        Poll::Ready(output)
    }
}

impl Sleeps {
    pub(crate) fn new(shard: &Arc<Shard>) -> Self {
        Self(Arc::clone(shard))
    }

    /// Returns a future that completes at `deadline`, as
    /// [`Timer::sleep_until`](crate::Timer::sleep_until) does.
    #[inline]
    pub fn sleep_until(self, deadline: Instant) -> Sleep {
        let deadline = self.0.hub.ticks.deadline(deadline);
        Sleep { shard: self.0, deadline, progress: Progress::idle() }
    }

    /// Returns what makes it again, for as long as the timer runs.
    #[must_use]
    pub fn downgrade(&self) -> WeakSleeps {
        WeakSleeps(Arc::downgrade(&self.0))
    }
}

impl WeakSleeps {
    /// Returns None if the timer was stopped or dropped.
    #[must_use]
    #[inline]
    pub fn upgrade(&self) -> Option<Sleeps> {
        let shard = self.0.upgrade()?;
        (!shard.is_stopped()).then_some(Sleeps(shard))
    }
}

impl Progress {
    #[inline]
    fn idle() -> Self {
        Self::Idle { output: None, turns: Turns::default() }
    }
}

impl Future for Sleep {
    type Output = Result<(), ScheduleErrorKind>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_by(context.waker())
    }
}

impl Drop for Sleep {
    #[inline]
    fn drop(&mut self) {
        self.deregister();
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep").field("deadline", &self.deadline()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Sleeps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleeps").finish_non_exhaustive()
    }
}

impl fmt::Debug for WeakSleeps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WeakSleeps").finish_non_exhaustive()
    }
}

impl WakerId {
    #[inline]
    fn of(waker: &Waker) -> Self {
        Self { data: waker.data().addr(), vtable: waker.vtable() }
    }

    #[inline]
    fn is(&self, waker: &Waker) -> bool {
        // One table may be in memory several times: then its functions tell.
        let is_table =
            |table: &RawWakerVTable| core::ptr::eq(self.vtable, table) || *self.vtable == *table;
        self.data == waker.data().addr() && is_table(waker.vtable())
    }
}

const _: () = assert!(size_of::<Sleep>() <= 48, "a sleep is small");

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use alloc::boxed::Box;

    #[test]
    fn a_waker_is_known_by_another_copy_of_its_table() {
        let waker = Waker::noop();
        let id = WakerId { vtable: Box::leak(Box::new(*waker.vtable())), ..WakerId::of(waker) };
        assert!(!core::ptr::eq(id.vtable, waker.vtable()));
        assert!(id.is(waker) && WakerId::of(waker).is(waker));
        assert!(!WakerId { data: id.data + 1, ..id }.is(waker));
    }
}
