//! Values with deadlines, awaited: by a task, or by a thread.

use crate::future::{Elapsed, Sleep};
use crate::ticks::NEVER;
use crate::timer::Hub;
use crate::{Expired, Key, ScheduleErrorKind, Timer, Wheel};
use alloc::sync::Arc;
use alloc::task::Wake;
use alloc::vec::Vec;
use core::mem::take;
use core::task::{Context, Poll, Waker, ready};
use core::time::Duration;
use std::thread::{Thread, current, park};
use std::time::Instant;

/// A source of values, and one sleep that ends when its next value is due: what a delay queue, a
/// delay map and a delay channel share.
pub(crate) struct Awaited<W> {
    /// By the ticks of the timer.
    pub(crate) source: W,
    /// While a task waits, this ends when the task is to look at the source again, or before.
    sleep: Sleep,
    /// The last value asked for was an error: the next is None, unless one is due.
    ends: bool,
}

/// Hands out values by deadline.
pub(crate) trait Source {
    type Key;
    type Value;

    /// Drives the source to tick `now`, or nowhere if there is none, and takes out the next value
    /// that is due.
    fn expire(&mut self, now: Option<u64>) -> Option<Expired<Self::Value, Self::Key>>;

    /// Returns whether there is nothing to wait for.
    fn is_over(&self) -> bool;

    /// Returns the tick at which to look again, at the latest, or None if there is nothing to wait
    /// for. A source that others change wakes `waker` for an earlier tick.
    fn watch(&mut self, waker: &Waker) -> Option<u64>;
}

/// A value whose time has come, from a [`DelayQueue`](crate::DelayQueue), a
/// [`DelayMap`](crate::DelayMap) or a [`DelayReceiver`](crate::DelayReceiver).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Due<T, K = Key> {
    /// The key that the value had. It is stale by now. From a map, the caller's own key.
    pub key: K,
    /// The deadline of the value, rounded up to the timer's tick.
    pub deadline: Instant,
    /// The value.
    pub value: T,
}

type DueFrom<W> = Due<<W as Source>::Value, <W as Source>::Key>;

/// What waiting gives: a value, an error, or that there is nothing to wait for.
type Next<W> = Option<Result<DueFrom<W>, ScheduleErrorKind>>;

impl<W> Awaited<W> {
    /// Awaits `source` on `timer`, which it does not keep alive.
    pub(crate) fn new(timer: &Timer, source: W) -> Self {
        Self { source, sleep: Sleep::new(timer.shard(), 0), ends: false }
    }

    pub(crate) fn hub(&self) -> &Arc<Hub> {
        &self.sleep.shard().hub
    }

    /// Wakes the task that waits in time for `deadline`, if there is one.
    pub(crate) fn hurry(&mut self, deadline: u64) {
        if deadline < self.sleep.tick() && self.sleep.is_waiting() {
            if self.hub().is_past(deadline) {
                self.sleep.wake();
            } else {
                self.sleep.move_to(deadline);
            }
        }
    }

    /// Wakes the task that waits, if there is one, to look again.
    pub(crate) fn wake(&mut self) {
        self.sleep.wake();
    }
}

impl<W: Source> Awaited<W> {
    /// Returns the next value if it is due, or None if there is nothing to wait for.
    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Next<W>> {
        let ends = take(&mut self.ends);
        let next = ready!(self.poll_until(context, |tick| tick.filter(|_| !ends)));
        self.ends = matches!(next, Some(Err(_)));
        Poll::Ready(next)
    }

    /// Returns the next value if it is due, and waits for one even if there is none.
    pub(crate) fn poll_due(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<DueFrom<W>, ScheduleErrorKind>> {
        let next = self.poll_until(context, |tick| Some(tick.unwrap_or(NEVER)));
        // None does not come, because there always is a tick.
        next.map(|next| next.unwrap_or(Err(ScheduleErrorKind::Stopped)))
    }

    /// Appends up to `max` values that are due to `batch`, at least one unless there is nothing to
    /// wait for, and returns how many.
    pub(crate) fn poll_batch(
        &mut self,
        context: &mut Context<'_>,
        batch: &mut Vec<DueFrom<W>>,
        max: usize,
    ) -> Poll<Result<usize, ScheduleErrorKind>> {
        if max == 0 {
            return Poll::Ready(Ok(0));
        }
        let next = ready!(self.poll_until(context, |tick| tick));
        let Some(first) = next else { return Poll::Ready(Ok(0)) };
        let len = batch.len();
        batch.push(first?);
        while batch.len() - len < max {
            let Some(due) = self.take_due() else { break };
            batch.push(due);
        }
        Poll::Ready(Ok(batch.len() - len))
    }

    /// Returns the next value if it is due. Otherwise waits until the tick that `until` makes of
    /// the one at which to look again, or returns None if it makes none.
    fn poll_until(
        &mut self,
        context: &mut Context<'_>,
        until: impl Fn(Option<u64>) -> Option<u64>,
    ) -> Poll<Next<W>> {
        loop {
            if let Some(due) = self.take_due() {
                return Poll::Ready(Some(Ok(due)));
            }
            let Some(tick) = until(self.source.watch(context.waker())) else {
                return Poll::Ready(None);
            };
            self.sleep.move_to(tick);
            match self.sleep.poll_by(context.waker()) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => return Poll::Ready(Some(Err(error))),
                // That tick came meanwhile, or no value is left that is due at it.
                Poll::Ready(Ok(())) => {}
            }
        }
    }

    /// Blocks the thread until [`poll_next`](Self::poll_next) is ready.
    pub(crate) fn recv(&mut self) -> Next<W> {
        match self.take_due() {
            Some(due) => Some(Ok(due)),
            None if self.source.is_over() => None,
            None => Parker::new().wait_for(|context| self.poll_next(context)),
        }
    }

    /// Blocks the thread until [`poll_next`](Self::poll_next) is ready, for `timeout` at most.
    pub(crate) fn recv_timeout(
        &mut self,
        timeout: Duration,
    ) -> Option<Result<DueFrom<W>, Elapsed>> {
        match self.take_due() {
            Some(due) => return Some(Ok(due)),
            None if self.source.is_over() => return None,
            None => {}
        }
        let mut sleep = Sleep::new(self.sleep.shard(), self.hub().deadline_after(timeout));
        Parker::new().wait_for(|context| match self.poll_next(context) {
            Poll::Ready(due) => {
                Poll::Ready(due.map(|due| due.map_err(|error| Elapsed::new(Some(error)))))
            }
            Poll::Pending => {
                sleep.poll_by(context.waker()).map(|slept| Some(Err(Elapsed::new(slept.err()))))
            }
        })
    }

    /// Blocks the thread until [`poll_batch`](Self::poll_batch) is ready.
    pub(crate) fn recv_batch(
        &mut self,
        batch: &mut Vec<DueFrom<W>>,
        max: usize,
    ) -> Result<usize, ScheduleErrorKind> {
        Parker::new().wait_for(|context| self.poll_batch(context, batch, max))
    }

    /// Returns an iterator that is `recv` again and again, with one parker.
    pub(crate) fn blocking_iter(
        &mut self,
    ) -> impl Iterator<Item = Result<DueFrom<W>, ScheduleErrorKind>> {
        let parker = Parker::new();
        core::iter::from_fn(move || parker.wait_for(|context| self.poll_next(context)))
    }

    /// Takes the next value out, if it is due.
    fn take_due(&mut self) -> Option<DueFrom<W>> {
        // Values that were due when the clock was last read come out without reading it again.
        let expired = match self.source.expire(None) {
            Some(expired) => expired,
            None if self.source.is_over() => return None,
            None => {
                let hub = self.hub();
                let now = hub.tick_at(hub.nanos());
                self.source.expire(Some(now))?
            }
        };
        let hub = self.hub();
        // A value that is due has an instant.
        let deadline = hub.ticks.instant(expired.deadline).unwrap_or_else(|| hub.clock.now());
        Some(Due { key: expired.key, deadline, value: expired.value })
    }
}

/// Nothing in it is ever pinned.
impl<W> Unpin for Awaited<W> {}

impl<T> Source for Wheel<T> {
    type Key = Key;
    type Value = T;

    fn expire(&mut self, now: Option<u64>) -> Option<Expired<T>> {
        self.expire(now.unwrap_or_else(|| self.now()))
    }

    fn is_over(&self) -> bool {
        self.is_empty()
    }

    fn watch(&mut self, _: &Waker) -> Option<u64> {
        self.next_wake()
    }
}

/// Blocks a thread until a future wakes it.
struct Parker(Waker);

impl Parker {
    fn new() -> Self {
        Self(Waker::from(Arc::new(Unparks(current()))))
    }

    fn wait_for<R>(&self, mut poll: impl FnMut(&mut Context<'_>) -> Poll<R>) -> R {
        loop {
            match poll(&mut Context::from_waker(&self.0)) {
                Poll::Ready(result) => return result,
                Poll::Pending => park(),
            }
        }
    }
}

struct Unparks(Thread);

impl Wake for Unparks {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
