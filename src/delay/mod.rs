//! Values with deadlines, handed out when their time has come: to a task, or to a thread.

mod channel;
mod map;
mod queue;

pub(crate) use channel::Channel;
pub use channel::{DelayKey, DelayReceiver, DelaySender, SendError, delay_channel};
pub use map::DelayMap;
pub use queue::DelayQueue;

use crate::future::{Elapsed, Sleep, Turns, Waits, wait};
use crate::platform::Instant;
use crate::sync::parking::{Thread, current};
use crate::sync::{AtomicBool, Ordering};
use crate::ticks::NEVER;
use crate::timer::{Hub, Shard};
use crate::{Expired, Key, ScheduleErrorKind, Timer};
use alloc::sync::Arc;
use alloc::task::Wake;
use alloc::vec::Vec;
use core::cell::Cell;
use core::mem::take;
use core::task::{Context, Poll, Waker, ready};
use core::time::Duration;

/// Holds values, and hands out each when its time has come: to a task that [awaits](Self::next) it,
/// or to a thread that [blocks](Self::recv).
///
/// A [`DelayQueue`], a [`DelayMap`], a [`DelayReceiver`] and an
/// [`ExpiredReceiver`](crate::ExpiredReceiver) are of this type. They differ in how values come in,
/// and share the ways to wait:
///
/// | | a task | a thread |
/// |---|---|---|
/// | for the next value | [`next`](Self::next) | [`recv`](Self::recv) |
/// | for all values that are due | [`next_batch`](Self::next_batch) | [`recv_batch`](Self::recv_batch) |
/// | no longer than a time limit | [`timeout`](crate::timeout()) | [`recv_timeout`](Self::recv_timeout) |
/// | not at all | [`try_recv`](Self::try_recv) | [`try_recv`](Self::try_recv) |
/// | even if no value is left | [`next_due`](Self::next_due) | |
/// | in a future of your own | [`poll_expired`](Self::poll_expired) | |
///
/// With the feature `stream` it is a `Stream`.
///
/// - A value never comes out early, by the timer's clock, counted from the call that inserted it.
///   It is late by less than a tick of the timer, or than 1 ms by
///   [default](crate::TimerBuilder::tick), plus the time to wake the worker and the task.
/// - Values come out by deadline, rounded up to the tick. Values of equal deadlines come out in the
///   order in which they were inserted, replaced or moved. A deadline that had passed by then may
///   count, and be told, as a later one that had passed, too.
/// - A delay may be of any length. A delay too long for [`Instant`] never ends.
/// - It has a single timeout in its timer, and only while a task or a thread waits. It does not
///   keep the timer alive. Dropping the future of a call ends the wait at once, and loses no value.
///   A wait that a task began by [polling](Self::poll_expired) ends when a poll is ready, or when
///   the future of another call, which waits too, is dropped.
/// - If many values are due, or many have to be looked at for the next, it gives way to other tasks
///   now and then: a poll wakes its own task, and is not ready. So no poll takes long.
///
/// Changing a queue or a map needs `&mut` access. While a task awaits the next value, use `select!`
/// in that task. If the code that holds the queue changes it after a task
/// [polled](Self::poll_expired) it, the queue wakes that task for a value that comes out earlier,
/// and when the queue becomes empty.
///
/// # Errors
///
/// While the timer is stopped, or has no room, or no worker, no thread wakes a task that waits.
/// Then waiting gives an error. If no value is due at the next call, that call returns None, so
/// that a loop ends; a batch is empty then. Values that are due come out nevertheless, and the
/// others stay.
pub struct Delayed<S> {
    /// By the ticks of the timer.
    source: S,
    /// While a task waits, this ends when the task is to look at the source again, or before.
    sleep: Sleep,
    /// The last call gave an error, and the next gives None, unless a value is due.
    ends: bool,
    /// The sleep or the source may have a waker.
    waits: bool,
    turns: Turns<32>,
}

/// Hands out values by deadline. Nothing outside of this crate can name it.
#[expect(unnameable_types, reason = "it is sealed")]
pub trait Source {
    type Key;
    type Value;

    /// Only the timer's worker brings values. So no thread may block for one while the worker may
    /// be waiting for that thread.
    const NEEDS_WORKER: bool = false;

    /// Drives the source to tick `now`, or nowhere if there is none, and takes out the next value
    /// that is due. Returns None too if `work` is used up, from which it subtracts what it does.
    fn expire(
        &mut self,
        now: Option<u64>,
        work: &mut usize,
    ) -> Option<Expired<Self::Value, Self::Key>>;

    /// Takes out values that are due at tick `now`, up to `most`, as [`expire`](Self::expire) does,
    /// and gives each to `take`.
    fn expire_some(
        &mut self,
        now: u64,
        most: usize,
        mut take: impl FnMut(Expired<Self::Value, Self::Key>),
    ) {
        for _ in 0..most {
            let Some(expired) = self.expire(Some(now), &mut { WORK }) else { return };
            take(expired);
        }
    }

    /// Returns the tick at which to look again, at the latest, or None if there is nothing to wait
    /// for. A source that others change wakes `waker` for an earlier tick.
    fn watch(&mut self, waker: &Waker) -> Option<u64>;

    /// Drops the waker that it has, if it has one.
    fn unwatch(&mut self) {}

    /// Returns whether there is nothing to wait for.
    fn is_over(&self) -> bool {
        self.len() == 0
    }

    fn len(&self) -> usize;

    fn shrink_to_fit(&mut self);
}

/// A value whose time has come, from a [`DelayQueue`], a [`DelayMap`], a [`DelayReceiver`] or an
/// [`ExpiringMap`](crate::ExpiringMap).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Due<T, K = Key> {
    /// The key that the value had. It is stale by now. From a map, the caller's own key.
    pub key: K,
    /// The deadline of the value, rounded up to the timer's tick. If it had passed when the value
    /// was inserted or moved, it may be a later one, which had passed by then, too.
    pub deadline: Instant,
    /// The value.
    pub value: T,
}

type DueFrom<S> = Due<<S as Source>::Value, <S as Source>::Key>;

/// What waiting gives: a value, an error, or that there is nothing to wait for.
type Outcome<S> = Option<Result<DueFrom<S>, ScheduleErrorKind>>;

impl<S: Source> Delayed<S> {
    /// Waits for the next value, and returns it. Returns None if there is nothing to wait for: a
    /// queue or a map is empty, or a channel has no value and no sender.
    ///
    /// This is the cost of a poll:
    ///
    /// Cost: O(1) amortised, O(p) in one call, and O(n / buckets) more if hashed.
    ///
    /// # Errors
    ///
    /// If no thread can wake the task in time: see [`Delayed`].
    pub async fn next(&mut self) -> Outcome<S> {
        wait(self, Self::poll_expired).await
    }

    /// Waits for the next value, and returns it. Goes on waiting where [`next`](Self::next) returns
    /// None, so that a `select!` with other sources of values needs no special case for an empty
    /// queue.
    ///
    /// This is the cost of a poll:
    ///
    /// Cost: O(1) amortised, O(p) in one call, and O(n / buckets) more if hashed.
    ///
    /// # Errors
    ///
    /// Those of [`next`](Self::next). Each call gives the error anew.
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// use std::time::Duration;
    /// use tickwheel::DelayQueue;
    ///
    /// let mut queue = DelayQueue::new();
    /// let patience = Duration::from_millis(1);
    /// assert!(tickwheel::timeout(patience, queue.next_due()).await.is_err()); // it is empty
    ///
    /// queue.insert("value", Duration::from_millis(1));
    /// assert_eq!(queue.next_due().await?.value, "value");
    /// # Ok::<(), tickwheel::ScheduleErrorKind>(())
    /// # }).unwrap();
    /// ```
    pub async fn next_due(&mut self) -> Result<DueFrom<S>, ScheduleErrorKind> {
        let until = |tick: Option<u64>| Some(tick.unwrap_or(NEVER));
        let next = wait(self, |this, context| this.poll_until(context, until)).await;
        // None does not come, because there always is a tick.
        next.unwrap_or(Err(ScheduleErrorKind::Stopped))
    }

    /// Waits for the next value, and appends it to `batch` with those that are due by then, up to
    /// `max`. Returns how many: 0 where [`next`](Self::next) returns None, and if `max` is 0.
    ///
    /// This is the cost of a poll for each value that it returns:
    ///
    /// Cost: O(1) amortised, O(p) in one call, and O(n / buckets) more if hashed.
    ///
    /// # Errors
    ///
    /// Those of [`next`](Self::next).
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// use std::time::Duration;
    /// use tickwheel::DelayQueue;
    ///
    /// let mut queue = DelayQueue::new();
    /// for number in 0..10 {
    ///     queue.insert(number, Duration::from_millis(1));
    /// }
    /// let mut batch = Vec::new();
    /// while queue.next_batch(&mut batch, 4).await? > 0 {
    ///     assert!(batch.len() <= 4);
    ///     batch.clear();
    /// }
    /// # Ok::<(), tickwheel::ScheduleErrorKind>(())
    /// # }).unwrap();
    /// ```
    pub async fn next_batch(
        &mut self,
        batch: &mut Vec<DueFrom<S>>,
        max: usize,
    ) -> Result<usize, ScheduleErrorKind> {
        wait(self, |this, context| this.poll_batch(context, batch, max)).await
    }

    /// Returns the next value if it is due, or None if there is nothing to wait for. Otherwise the
    /// task wakes up when one of these comes true.
    ///
    /// Cost: O(1) amortised, O(p) in one call, and O(n / buckets) more if hashed.
    ///
    /// # Errors
    ///
    /// Those of [`next`](Self::next).
    pub fn poll_expired(&mut self, context: &mut Context<'_>) -> Poll<Outcome<S>> {
        self.poll_unless_ended(context, Some)
    }

    /// Returns the next value if it is due. Returns None if none is, without waiting.
    ///
    /// Cost: O(1) amortised, O(n + p) in one call, and O(n / buckets) more if hashed.
    pub fn try_recv(&mut self) -> Option<DueFrom<S>> {
        match self.poll_due(&mut { usize::MAX }) {
            Poll::Ready(due) => due,
            Poll::Pending => None,
        }
    }

    /// Blocks the thread until the next value is due, and returns it. Returns None where
    /// [`next`](Self::next) does.
    ///
    /// Cost: O(n + p).
    ///
    /// The thread wakes itself when the value is due, also while the timer's worker waits for this
    /// very thread, in an [`Executor`](crate::Executor) that has no room. By a
    /// [clock](crate::Clock::wait) that does not say how long to wait, it looks now and then if the
    /// timer has an executor, and else the worker wakes it: then do not call this on the thread
    /// that gives the timer's [`Driver`](crate::Driver) its turns. An
    /// [`ExpiredReceiver`](crate::ExpiredReceiver) needs the worker in any case.
    ///
    /// # Errors
    ///
    /// Those of [`next`](Self::next), and
    /// [`Deadlock`](crate::ScheduleErrorKind::Deadlock) if nothing is due and the wait could be for
    /// ever: inside a task on the timer's worker, or on that of a timer for which this worker
    /// waits, and where a timer that this worker waits for is being stopped, or drops what a
    /// cancelled task captured, on this very thread. Also under the lock of an
    /// [`ExpiringMap`](crate::ExpiringMap).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tickwheel::{DelayQueue, ManualClock, Timer};
    ///
    /// let clock = ManualClock::new();
    /// let timer = Timer::builder().clock(clock.clone()).build()?;
    /// let mut queue = DelayQueue::with_timer(&timer);
    /// queue.insert("in a year", Duration::from_secs(31_557_600));
    /// clock.advance(Duration::from_secs(31_557_600));
    /// assert_eq!(queue.recv().expect("there is one")?.value, "in a year");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn recv(&mut self) -> Outcome<S> {
        if let Poll::Ready(due) = self.poll_due(&mut { usize::MAX }) {
            return due.map(Ok);
        }
        match self.may_wait() {
            Some(_waits) => self.block(Self::poll_expired),
            None => self.deadlock().map(Err),
        }
    }

    /// Blocks the thread until the next value is due, as [`recv`](Self::recv) does, but no longer
    /// than `timeout`, by the timer's clock. With a `timeout` of zero it does not block.
    ///
    /// Cost: O(n + p).
    ///
    /// # Errors
    ///
    /// If no value was due in that time, or no thread can wake this one in time.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tickwheel::DelayQueue;
    ///
    /// let mut queue = DelayQueue::new();
    /// queue.insert("late", Duration::from_secs(3_600));
    /// let elapsed = queue.recv_timeout(Duration::from_millis(1)).expect("it is not empty");
    /// assert!(elapsed.is_err_and(|elapsed| elapsed.error().is_none()));
    /// ```
    pub fn recv_timeout(&mut self, timeout: Duration) -> Option<Result<DueFrom<S>, Elapsed>> {
        if let Poll::Ready(due) = self.poll_due(&mut { usize::MAX }) {
            return due.map(Ok);
        }
        let shard = Arc::clone(self.sleep.shard());
        if timeout.is_zero() {
            let error = shard.is_stopped().then_some(ScheduleErrorKind::Stopped);
            let ends = take(&mut self.ends);
            self.ends = !ends && error.is_some();
            return (!ends).then(|| Err(Elapsed::new(error)));
        }
        let Some(_waits) = self.may_wait() else {
            return self.deadlock().map(|error| Err(Elapsed::new(Some(error))));
        };
        let limit = shard.hub.deadline_after(timeout);
        let is_elapsed = Cell::new(false);
        // One timeout, for whichever comes first. A stopped timer says so, however short the limit.
        let until = |tick: u64| {
            let limit = if shard.is_stopped() { NEVER } else { limit };
            is_elapsed.set(shard.hub.is_past(limit));
            (!is_elapsed.get()).then_some(tick.min(limit))
        };
        let next = self.block(|this, context| this.poll_unless_ended(context, until));
        match next {
            None if is_elapsed.get() => Some(Err(Elapsed::new(None))),
            next => next.map(|due| due.map_err(|error| Elapsed::new(Some(error)))),
        }
    }

    /// Blocks the thread until the next value is due, and appends it to `batch` with those that are
    /// due by then, as [`next_batch`](Self::next_batch) does.
    ///
    /// Cost: O(n + p).
    ///
    /// # Errors
    ///
    /// Those of [`recv`](Self::recv).
    pub fn recv_batch(
        &mut self,
        batch: &mut Vec<DueFrom<S>>,
        max: usize,
    ) -> Result<usize, ScheduleErrorKind> {
        if max == 0 {
            return Ok(0);
        }
        if let Some(_waits) = self.may_wait() {
            return self.block(|this, context| this.poll_batch(context, batch, max));
        }
        match self.poll_due(&mut { usize::MAX }) {
            Poll::Ready(Some(first)) => Ok(self.fill(batch, max, first)),
            Poll::Ready(None) => Ok(0),
            Poll::Pending => self.deadlock().map_or(Ok(0), Err),
        }
    }

    /// Frees memory that the present values do not need. Their keys stay good. The shards of a
    /// channel are locked meanwhile, one after the other, so that senders wait.
    ///
    /// Cost: O(n + p).
    pub fn shrink_to_fit(&mut self) {
        self.source.shrink_to_fit();
    }

    /// Returns the number of values, with those that are due.
    #[must_use]
    pub fn len(&self) -> usize {
        self.source.len()
    }

    /// Returns whether there are no values.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Blocks the thread until `poll` is ready. The thread wakes itself in time: it needs the worker
    /// only if the clock does not say how long to wait.
    fn block<R>(&mut self, mut poll: impl FnMut(&mut Self, &mut Context<'_>) -> Poll<R>) -> R {
        let unparks = Arc::new(Unparks { thread: current(), is_woken: AtomicBool::new(false) });
        let waker = Waker::from(Arc::clone(&unparks));
        let mut context = Context::from_waker(&waker);
        loop {
            unparks.is_woken.swap(false, Ordering::Acquire);
            if let Poll::Ready(output) = poll(self, &mut context) {
                self.give_up();
                return output;
            }
            self.hub().park_until(self.sleep.tick(), &unparks.is_woken);
        }
    }

    /// Returns a permit to block this thread until a value comes, or None if that could be for ever.
    fn may_wait(&self) -> Option<impl Sized + use<S>> {
        if S::NEEDS_WORKER { self.hub().may_wait() } else { self.hub().may_wait_for_worker() }
    }

    /// The error of a call that would wait for ever, and None if that was the last answer too.
    fn deadlock(&mut self) -> Option<ScheduleErrorKind> {
        self.ends = !self.ends;
        self.ends.then_some(ScheduleErrorKind::Deadlock)
    }

    fn poll_batch(
        &mut self,
        context: &mut Context<'_>,
        batch: &mut Vec<DueFrom<S>>,
        max: usize,
    ) -> Poll<Result<usize, ScheduleErrorKind>> {
        if max == 0 {
            let hub = &self.sleep.shard().hub;
            return self.turns.take(hub, context.waker()).map(|()| Ok(0));
        }
        let next = ready!(self.poll_unless_ended(context, Some));
        Poll::Ready(next.map_or(Ok(0), |first| Ok(self.fill(batch, max, first?))))
    }

    /// Appends `first` to `batch`, and those that are due, up to `max`. Returns how many.
    fn fill(&mut self, batch: &mut Vec<DueFrom<S>>, max: usize, first: DueFrom<S>) -> usize {
        let len = batch.len();
        batch.push(first);
        // Read once: more values come due for as long as the thread takes some out.
        let now = self.now();
        let Self { source, sleep, .. } = self;
        let hub = &sleep.shard().hub;
        source.expire_some(now, max - 1, |expired| batch.push(Due::of(expired, hub)));
        batch.len() - len
    }

    /// Returns what [`poll_until`](Self::poll_until) does, or None if the last call gave an error
    /// and no value is due.
    fn poll_unless_ended(
        &mut self,
        context: &mut Context<'_>,
        until: impl Fn(u64) -> Option<u64>,
    ) -> Poll<Outcome<S>> {
        let ends = self.ends;
        let until = |tick: Option<u64>| tick.filter(|_| !ends).and_then(&until);
        let next = ready!(self.poll_until(context, until));
        self.ends = matches!(next, Some(Err(_)));
        Poll::Ready(next)
    }

    /// Returns the next value if it is due. Otherwise waits until the tick that `until` makes of
    /// the one at which to look again, or returns None if it makes none.
    fn poll_until(
        &mut self,
        context: &mut Context<'_>,
        until: impl Fn(Option<u64>) -> Option<u64>,
    ) -> Poll<Outcome<S>> {
        ready!(self.turns.take(&self.sleep.shard().hub, context.waker()));
        let next = self.poll_at(context, until);
        match next {
            Poll::Pending => self.turns = Turns::default(),
            Poll::Ready(_) => {
                self.ends = false;
                self.give_up();
            }
        }
        next
    }

    fn poll_at(
        &mut self,
        context: &mut Context<'_>,
        until: impl Fn(Option<u64>) -> Option<u64>,
    ) -> Poll<Outcome<S>> {
        let mut work = WORK;
        loop {
            if let Poll::Ready(Some(due)) = self.poll_due(&mut work) {
                return Poll::Ready(Some(Ok(due)));
            }
            if work == 0 {
                self.hub().guarded(|| context.waker().wake_by_ref());
                return Poll::Pending;
            }
            self.waits = true;
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

    /// Takes the next value out if it is due, or returns None if there is nothing to wait for.
    /// Wakes no task otherwise. If `work` is used up, a value may be due nevertheless.
    fn poll_due(&mut self, work: &mut usize) -> Poll<Option<DueFrom<S>>> {
        // Values that were due when the clock was last read come out without reading it again.
        let mut expired = self.source.expire(None, work);
        if expired.is_none() && 0 < *work {
            if self.source.is_over() {
                return Poll::Ready(None);
            }
            let now = self.now();
            expired = self.source.expire(Some(now), work);
        }
        let Some(expired) = expired else { return Poll::Pending };
        self.ends = false;
        Poll::Ready(Some(self.due(expired)))
    }

    fn due(&self, expired: Expired<S::Value, S::Key>) -> DueFrom<S> {
        Due::of(expired, self.hub())
    }
}

impl<T, K> Due<T, K> {
    pub(crate) fn of(expired: Expired<T, K>, hub: &Hub) -> Self {
        let Expired { key, deadline, value } = expired;
        // A value that is due has an instant.
        let deadline = hub.ticks.instant(deadline).unwrap_or_else(|| hub.clock.now());
        Self { key, deadline, value }
    }
}

impl<S> Delayed<S> {
    /// Awaits `source` on `timer`, which it does not keep alive.
    fn on(timer: &Timer, source: S) -> Self {
        Self::by(timer.shard(), source)
    }

    /// Awaits `source` on the timer that has this shard.
    fn by(shard: &Arc<Shard>, source: S) -> Self {
        Self {
            source,
            sleep: Sleep::new(shard, 0),
            ends: false,
            waits: false,
            turns: Turns::default(),
        }
    }

    /// Awaits what `wrap` makes of the source, by the same timer.
    pub(crate) fn wrap<R>(self, wrap: impl FnOnce(S) -> R) -> Delayed<R> {
        Delayed::by(self.sleep.shard(), wrap(self.source))
    }

    fn hub(&self) -> &Arc<Hub> {
        &self.sleep.shard().hub
    }

    fn now(&self) -> u64 {
        self.hub().tick_at(self.hub().nanos())
    }

    /// Wakes the task that waits in time for `deadline`, if there is one.
    fn hurry(&mut self, deadline: u64) {
        if deadline < self.sleep.tick() && self.sleep.is_waiting() {
            if self.hub().is_past(deadline) {
                self.sleep.wake();
            } else {
                self.sleep.move_to(deadline);
            }
        }
    }
}

impl<S: Source> Waits for Delayed<S> {
    fn give_up(&mut self) {
        if take(&mut self.waits) {
            self.sleep.take_out(drop);
            self.source.unwatch();
        }
    }
}

/// Hands out the same values, each once.
impl<S: Clone> Clone for Delayed<S> {
    fn clone(&self) -> Self {
        Self::by(self.sleep.shard(), self.source.clone())
    }
}

/// Nothing in it is ever pinned.
impl<S> Unpin for Delayed<S> {}

/// Ends where there is nothing to wait for, and after an error. Goes on when there are values
/// again.
///
/// A wait stays when a `select!` drops the future of the stream's `next`, until its time has come or
/// another poll is ready: the timer has its waker, and counts it. [`next`](Self::next) of this type
/// leaves nothing behind.
#[cfg(feature = "stream")]
impl<S: Source> futures_core::Stream for Delayed<S> {
    type Item = Result<DueFrom<S>, ScheduleErrorKind>;

    fn poll_next(
        mut self: core::pin::Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Self::Item>> {
        self.poll_expired(context)
    }
}

struct Unparks {
    thread: Thread,
    /// Since the thread looked last.
    is_woken: AtomicBool,
}

impl Wake for Unparks {
    fn wake(self: Arc<Self>) {
        self.is_woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// Units of work of the wheel in one poll, after which it is the turn of other tasks.
const WORK: usize = 1_024;
