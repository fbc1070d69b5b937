//! A future that completes when its time has come.

use crate::timer::{Entry, Shard};
use crate::{Key, ScheduleErrorKind, Status};
use alloc::sync::Arc;
use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::time::Instant;

/// A future that completes when its time has come, from [`Timer::sleep`](crate::Timer::sleep).
///
/// Never early, by the timer's clock, counted from the call that made it; late by less than a tick
/// of the timer, plus waking the timer's thread and the task.
///
/// It does nothing until it is polled. The first poll registers a clone of the waker with the timer,
/// unless the time has come already; another poll touches no lock, but to replace the waker when
/// that is another. Nothing is allocated but the timer's own room for one timeout.
///
/// Dropping it takes it out of the timer at once, waker and all. It can be polled, or asked, after it
/// completed: it stays so until it is [`reset`](Self::reset). It is `Unpin`, so there is no need to
/// pin it, also in `select!`, where losing a race costs it nothing: its deadline stays.
///
/// # Errors
///
/// It completes with an error if it cannot wait until its time has come: the timer was stopped or
/// dropped, before or meanwhile, has as many timeouts as it may have, or cannot start its thread. It
/// does not keep the timer alive. What has passed at the first poll completes whatever the timer does.
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
    state: State,
}

enum State {
    /// Nothing is in the timer: it was not polled since it was made or reset, or it completed.
    Idle(Option<Output>),
    /// A waker was put into the timer, and may have been woken.
    Waiting {
        key: Key,
        /// The tick it is woken at; before the deadline if that was moved to later.
        tick: u64,
        waker: WakerId,
    },
}

type Output = Result<(), ScheduleErrorKind>;

/// Tells a waker from others for as long as that waker, or a clone of it, lives.
#[derive(Clone, Copy, PartialEq, Eq)]
struct WakerId {
    data: usize,
    vtable: usize,
}

impl Sleep {
    #[inline]
    pub(crate) fn new(shard: &Arc<Shard>, deadline: u64) -> Self {
        Self { shard: Arc::clone(shard), deadline, state: State::Idle(None) }
    }

    /// Makes it complete `delay` from now instead, sooner or later than it was, or once more if it
    /// completed.
    ///
    /// If it was polled before, the task is woken in time, with no need to poll it meanwhile. Moving
    /// it to later touches no lock: the task is woken once at the earlier time, to poll it and wait
    /// on. If the timer has a [limit](crate::TimerBuilder::max_pending) it does, and is not woken.
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
        self.move_to(self.shard.ticks().after(self.shard.now(), delay));
    }

    /// Like [`reset`](Self::reset), to an instant. One in the past is due at once.
    pub fn reset_at(&mut self, deadline: Instant) {
        self.move_to(self.shard.ticks().deadline(deadline));
    }

    /// When it completes: the instant asked for, rounded up to the timer's tick. None if that is
    /// more than an [`Instant`] can hold, and so never.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.shard.ticks().instant(self.deadline)
    }

    /// Whether its time has come, by the timer's clock, whether or not it was polled since.
    ///
    /// This may be so a moment before the task is woken.
    #[must_use]
    pub fn is_elapsed(&self) -> bool {
        self.shard.is_past(self.deadline)
    }

    pub(crate) fn shard(&self) -> &Arc<Shard> {
        &self.shard
    }

    /// The tick it completes at.
    pub(crate) fn tick(&self) -> u64 {
        self.deadline
    }

    /// Whether there is a waker in the timer, or was when it was last polled.
    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self.state, State::Waiting { .. })
    }

    /// Makes it complete at tick `deadline` instead.
    pub(crate) fn move_to(&mut self, deadline: u64) {
        self.deadline = deadline;
        match &mut self.state {
            // It is woken before, and polled then. With a limit it might find its place taken.
            State::Waiting { tick, .. } if *tick <= deadline && !self.shard.has_limit() => {}
            State::Waiting { key, tick, .. } if self.shard.reschedule(*key, deadline, || {}) => {
                *tick = deadline;
            }
            // If it was in the timer, somebody took it out in order to wake it: it is polled.
            state => *state = State::Idle(None),
        }
    }

    /// Takes it out of the timer, and wakes the task if it was there.
    pub(crate) fn wake(&mut self) {
        if let Some(Entry::Wake(waker)) = self.take_out() {
            waker.wake();
        }
    }

    fn take_out(&mut self) -> Option<Entry> {
        let State::Waiting { key, .. } = self.state else { return None };
        self.state = State::Idle(None);
        self.shard.cancel(key, || {})
    }

    pub(crate) fn poll_by(&mut self, waker: &Waker) -> Poll<Output> {
        match &mut self.state {
            State::Idle(None) => {}
            State::Idle(Some(output)) => return Poll::Ready(*output),
            State::Waiting { key, tick, waker: known } => {
                // Until the worker comes to its tick it is in the timer, and so its waker lives.
                let (is_early, id) = (self.shard.reached() < *tick, WakerId::of(waker));
                if is_early && *known == id {
                    return Poll::Pending;
                }
                if *known != id && self.shard.replace_waker(*key, waker) {
                    *known = id;
                    return Poll::Pending;
                }
                match self.shard.status(*key) {
                    // The worker is about to take it.
                    Status::Pending => return Poll::Pending,
                    Status::Stopped => return self.complete(Err(ScheduleErrorKind::Stopped)),
                    _ if self.deadline <= *tick => return self.complete(Ok(())),
                    // It was moved to later.
                    _ => self.state = State::Idle(None),
                }
            }
        }
        match self.shard.register(self.deadline, waker) {
            Ok(Some(key)) => {
                let waker = WakerId::of(waker);
                self.state = State::Waiting { key, tick: self.deadline, waker };
                Poll::Pending
            }
            Ok(None) => self.complete(Ok(())),
            Err(error) => self.complete(Err(error)),
        }
    }

    fn complete(&mut self, output: Output) -> Poll<Output> {
        self.state = State::Idle(Some(output));
        Poll::Ready(output)
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
        drop(self.take_out());
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep").field("deadline", &self.deadline()).finish_non_exhaustive()
    }
}

impl WakerId {
    #[inline]
    fn of(waker: &Waker) -> Self {
        let vtable = core::ptr::from_ref(waker.vtable()).addr();
        Self { data: waker.data().addr(), vtable }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_is_small() {
        assert!(size_of::<Sleep>() <= 48, "{}", size_of::<Sleep>());
    }
}
