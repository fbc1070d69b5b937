//! A delay queue that any number of threads fill, and one task or thread empties.

use crate::awaited::{Awaited, Due, Source};
use crate::future::Elapsed;
use crate::sync::{Mutex, lock};
use crate::ticks::NEVER;
use crate::timer::Hub;
use crate::{Expired, Key, ScheduleErrorKind, Timer, Wheel};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::future::poll_fn;
use core::mem::replace;
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::time::Instant;

/// Makes a channel on `timer` whose values come out when their time has come.
///
/// Clones of the [`DelaySender`] insert, move and remove values, from any thread. The one
/// [`DelayReceiver`] hands them out by deadline, to a task that [awaits](DelayReceiver::next) them
/// or to a thread that [blocks](DelayReceiver::recv), and ends when all senders are gone and no
/// value is left. A program that fills and empties a queue in one place takes a
/// [`DelayQueue`](crate::DelayQueue), which needs no lock.
///
/// - A value never comes out early, by the timer's clock, counted from the call that inserted it.
///   It is late by less than a tick of the timer, plus the time to wake the worker and the task.
/// - Values come out by deadline, rounded up to the tick. Values of equal deadlines come out in the
///   order in which the channel got them, whichever thread inserted them.
/// - Each call takes the lock of the channel for constant time, amortised, and no caller waits for
///   more than a bounded batch of work. No foreign code runs under the lock: not a waker, not the
///   `Drop` of a value.
/// - A sender wakes the receiver only for a value that is due earlier than all others. The last
///   sender wakes it when it goes and no value is left.
///
/// The channel does not keep the timer alive, and has a single timeout in it, only while the
/// receiver waits.
///
/// ```
/// use std::time::Duration;
/// use tickwheel::{Timer, delay_channel};
///
/// let timer = Timer::new();
/// let (sender, mut receiver) = delay_channel(&timer);
/// let other = sender.clone();
/// std::thread::spawn(move || {
///     other.insert("later", Duration::from_millis(4)).expect("the receiver is there");
/// });
/// let key = sender.insert("soon", Duration::from_secs(3_600))?;
/// assert!(sender.reset(key, Duration::from_millis(1)));
/// drop(sender);
///
/// let mut values = Vec::new();
/// while let Some(due) = receiver.recv() { // or `receiver.next().await`
///     values.push(due?.value);
/// }
/// assert_eq!(values.len(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn delay_channel<T>(timer: &Timer) -> (DelaySender<T>, DelayReceiver<T>) {
    let shard = timer.shard();
    let wheel = Wheel::new(shard.mode());
    let state = State { wheel, senders: 1, is_closed: false, watcher: None, watched: NEVER };
    let shared = Arc::new(Shared { hub: Arc::clone(&shard.hub), state: Mutex::new(state) });
    let receiver = Awaited::new(timer, Receives(Arc::clone(&shared)));
    (DelaySender(shared), DelayReceiver(receiver))
}

/// Fills a delay channel, from [`delay_channel`]. Clones fill the same channel.
pub struct DelaySender<T>(Arc<Shared<T>>);

/// Hands out the values of a delay channel, from [`delay_channel`].
///
/// Dropping it drops the values that are left, and from then on the channel takes no values.
///
/// # Errors
///
/// While the timer is stopped, or has no room, or no worker, no thread wakes a task that waits for
/// a deadline. Then waiting gives an error. If no value is due at the next call, that call returns
/// None, so that a loop ends; a batch gives the error each time. Values that are due come out
/// nevertheless, and the others stay.
pub struct DelayReceiver<T>(Awaited<Receives<T>>);

/// Says that the receiver of a delay channel is gone, and gives back the value that it did not get.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SendError<T>(pub T);

struct Shared<T> {
    hub: Arc<Hub>,
    state: Mutex<State<T>>,
}

struct State<T> {
    /// By the ticks of the timer.
    wheel: Wheel<T>,
    senders: usize,
    /// The receiver is gone.
    is_closed: bool,
    /// To be woken for a value that is due before `watched`, and when all senders are gone. A
    /// sender that wakes it takes it out.
    watcher: Option<Waker>,
    watched: u64,
}

impl<T> DelaySender<T> {
    /// Inserts `value`, to come out `delay` from now, and returns its key.
    ///
    /// # Errors
    ///
    /// If the receiver is gone. The error gives the value back.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tickwheel::{SendError, Timer, delay_channel};
    ///
    /// let (sender, receiver) = delay_channel(&Timer::new());
    /// drop(receiver);
    /// assert_eq!(sender.insert("value", Duration::ZERO), Err(SendError("value")));
    /// ```
    pub fn insert(&self, value: T, delay: Duration) -> Result<Key, SendError<T>> {
        self.schedule(value, self.0.hub.deadline_after(delay))
    }

    /// Inserts `value`, to come out at `deadline`, or at once if that has passed, and returns its
    /// key.
    ///
    /// # Errors
    ///
    /// Those of [`insert`](Self::insert).
    pub fn insert_at(&self, value: T, deadline: Instant) -> Result<Key, SendError<T>> {
        self.schedule(value, self.0.hub.ticks.deadline(deadline))
    }

    /// Removes the value that `key` names, and returns it. Returns None if it is gone: it came out,
    /// or a sender removed it, or the receiver is gone. If the call returns the value, the receiver
    /// never gets it.
    pub fn remove(&self, key: Key) -> Option<T> {
        lock(&self.0.state).wheel.cancel(key)
    }

    /// Moves the deadline of the value that `key` names to `delay` from now, earlier or later than
    /// it was, and returns whether the value is there. The key stays good.
    ///
    /// The value counts as inserted anew: among equal deadlines it comes out last.
    pub fn reset(&self, key: Key, delay: Duration) -> bool {
        self.reschedule(key, self.0.hub.deadline_after(delay))
    }

    /// Moves the deadline to `deadline`, and is like [`reset`](Self::reset) otherwise. A deadline
    /// in the past is due at once.
    pub fn reset_at(&self, key: Key, deadline: Instant) -> bool {
        self.reschedule(key, self.0.hub.ticks.deadline(deadline))
    }

    /// Returns whether the receiver is gone, so that the channel takes no values.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        lock(&self.0.state).is_closed
    }

    fn schedule(&self, value: T, deadline: u64) -> Result<Key, SendError<T>> {
        let mut state = lock(&self.0.state);
        if state.is_closed {
            return Err(SendError(value));
        }
        let key = state.wheel.schedule(deadline, value);
        let watcher = state.watcher_before(deadline);
        drop(state);
        self.0.wake(watcher);
        Ok(key)
    }

    fn reschedule(&self, key: Key, deadline: u64) -> bool {
        let mut state = lock(&self.0.state);
        if !state.wheel.reschedule(key, deadline) {
            return false;
        }
        let watcher = state.watcher_before(deadline);
        drop(state);
        self.0.wake(watcher);
        true
    }
}

/// Call these with no lock held. A panic of a waker is told to the timer, because it must fail
/// neither a sender nor another task that waits.
impl<T> Shared<T> {
    fn wake(&self, waker: Option<Waker>) {
        if let Some(waker) = waker {
            self.hub.guarded(|| waker.wake());
        }
    }

    fn drop_waker(&self, waker: Option<Waker>) {
        if waker.is_some() {
            self.hub.guarded(|| drop(waker));
        }
    }
}

impl<T> State<T> {
    /// Takes out the waker of the receiver if it has to look again before `deadline`.
    fn watcher_before(&mut self, deadline: u64) -> Option<Waker> {
        if deadline < self.watched { self.watcher.take() } else { None }
    }
}

impl<T> Clone for DelaySender<T> {
    fn clone(&self) -> Self {
        lock(&self.0.state).senders += 1;
        Self(Arc::clone(&self.0))
    }
}

impl<T> Drop for DelaySender<T> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        state.senders -= 1;
        let is_over = state.senders == 0 && state.wheel.is_empty();
        let watcher = if is_over { state.watcher.take() } else { None };
        drop(state);
        self.0.wake(watcher);
    }
}

impl<T> DelayReceiver<T> {
    /// Waits for the next value, and returns it. Returns None if all senders are gone and no value
    /// is left.
    ///
    /// The caller may drop the future of this call at any time, and no value is lost: use it in
    /// `select!`.
    ///
    /// # Errors
    ///
    /// If no thread can wake the task in time: see [`DelayReceiver`].
    pub async fn next(&mut self) -> Option<Result<Due<T>, ScheduleErrorKind>> {
        poll_fn(|context| self.poll_expired(context)).await
    }

    /// Waits for the next value, and appends it to `batch` with those that are due by then, up to
    /// `max`. Returns how many: 0 where [`next`](Self::next) returns None, and if `max` is 0.
    ///
    /// # Errors
    ///
    /// Those of [`next`](Self::next).
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// use std::time::Duration;
    /// use tickwheel::{Timer, delay_channel};
    ///
    /// let timer = Timer::new();
    /// let (sender, mut receiver) = delay_channel(&timer);
    /// for number in 0..10 {
    ///     sender.insert(number, Duration::from_millis(1))?;
    /// }
    /// drop(sender);
    /// let mut batch = Vec::new();
    /// while receiver.next_batch(&mut batch, 100).await? > 0 {}
    /// assert!(batch.iter().map(|due| due.value).eq(0..10));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    pub async fn next_batch(
        &mut self,
        batch: &mut Vec<Due<T>>,
        max: usize,
    ) -> Result<usize, ScheduleErrorKind> {
        poll_fn(|context| self.0.poll_batch(context, batch, max)).await
    }

    /// Returns the next value if it is due, or None if all senders are gone and no value is left.
    /// Otherwise the task wakes up when one of these comes true.
    ///
    /// # Errors
    ///
    /// Those of [`next`](Self::next).
    pub fn poll_expired(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Due<T>, ScheduleErrorKind>>> {
        self.0.poll_next(context)
    }

    /// Blocks the thread until the next value is due, and returns it. Returns None if all senders
    /// are gone and no value is left.
    ///
    /// Do not call this inside a task of the timer: the thread would wait for itself for ever.
    ///
    /// # Errors
    ///
    /// Those of [`next`](Self::next).
    pub fn recv(&mut self) -> Option<Result<Due<T>, ScheduleErrorKind>> {
        self.0.recv()
    }

    /// Blocks the thread until the next value is due, as [`recv`](Self::recv) does, but no longer
    /// than `timeout`, by the timer's clock.
    ///
    /// # Errors
    ///
    /// If no value was due in that time, or no thread can wake this one in time.
    pub fn recv_timeout(&mut self, timeout: Duration) -> Option<Result<Due<T>, Elapsed>> {
        self.0.recv_timeout(timeout)
    }

    /// Blocks the thread until the next value is due, and appends it to `batch` with those that are
    /// due by then, as [`next_batch`](Self::next_batch) does.
    ///
    /// # Errors
    ///
    /// Those of [`next`](Self::next).
    pub fn recv_batch(
        &mut self,
        batch: &mut Vec<Due<T>>,
        max: usize,
    ) -> Result<usize, ScheduleErrorKind> {
        self.0.recv_batch(batch, max)
    }

    /// Returns an iterator that blocks the thread until the next value is due, and ends when all
    /// senders are gone and no value is left: [`recv`](Self::recv) again and again.
    pub fn blocking_iter(&mut self) -> impl Iterator<Item = Result<Due<T>, ScheduleErrorKind>> {
        self.0.blocking_iter()
    }

    /// Returns the number of values in the channel, with those that are due.
    #[must_use]
    pub fn len(&self) -> usize {
        lock(&self.0.source.0.state).wheel.len()
    }

    /// Returns whether there are no values in the channel now.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The receiver's end.
struct Receives<T>(Arc<Shared<T>>);

impl<T> Source for Receives<T> {
    type Key = Key;
    type Value = T;

    fn expire(&mut self, now: Option<u64>) -> Option<Expired<T>> {
        loop {
            let mut work = BATCH;
            let mut state = lock(&self.0.state);
            let now = now.unwrap_or_else(|| state.wheel.now());
            if let Some(expired) = state.wheel.expire_bounded(now, &mut work) {
                // The task no longer waits.
                let watcher = state.watcher.take();
                drop(state);
                self.0.drop_waker(watcher);
                return Some(expired);
            }
            if 0 < work {
                return None;
            }
            // Senders have their turn while a bucket of a million is taken apart.
        }
    }

    fn is_over(&self) -> bool {
        let state = lock(&self.0.state);
        state.senders == 0 && state.wheel.is_empty()
    }

    fn watch(&mut self, waker: &Waker) -> Option<u64> {
        let mut clone = None;
        loop {
            let mut state = lock(&self.0.state);
            let next = state.wheel.next_wake();
            let is_over = next.is_none() && state.senders == 0;
            let is_known = state.watcher.as_ref().is_some_and(|known| known.will_wake(waker));
            if clone.is_none() && !is_over && !is_known {
                drop(state);
                // A waker's `clone` is foreign code, too.
                clone = Some(waker.clone());
                continue;
            }
            let watched = next.unwrap_or(NEVER);
            state.watched = watched;
            let replaced = match clone {
                _ if is_over => state.watcher.take(),
                Some(clone) => state.watcher.replace(clone),
                None => None,
            };
            drop(state);
            self.0.drop_waker(replaced);
            return (!is_over).then_some(watched);
        }
    }
}

impl<T> Drop for Receives<T> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        state.is_closed = true;
        let mode = state.wheel.mode();
        let left = replace(&mut state.wheel, Wheel::new(mode));
        let watcher = state.watcher.take();
        drop(state);
        self.0.drop_waker(watcher);
        // The last, because a value may panic in its `Drop`.
        drop(left);
    }
}

/// Units of work of the wheel at once, under the lock.
const BATCH: usize = 128;

impl<T> fmt::Debug for DelaySender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DelaySender").field("is_closed", &self.is_closed()).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for DelayReceiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DelayReceiver").field("len", &self.len()).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendError").finish_non_exhaustive()
    }
}

impl<T> fmt::Display for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the receiver of the delay channel is gone")
    }
}

impl<T> core::error::Error for SendError<T> {}

/// Ends when all senders are gone and no value is left, and after an error.
#[cfg(feature = "stream")]
impl<T> futures_core::Stream for DelayReceiver<T> {
    type Item = Result<Due<T>, ScheduleErrorKind>;

    fn poll_next(
        mut self: core::pin::Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Self::Item>> {
        self.poll_expired(context)
    }
}
