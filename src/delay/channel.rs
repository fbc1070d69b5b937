//! A delay queue that any number of threads fill, and one task or thread empties.

use super::{Delayed, Source};
use crate::platform::Instant;
use crate::sync::{Mutex, Rank, ThreadId, lock, this_thread};
use crate::ticks::NEVER;
use crate::timer::Hub;
use crate::wheel::Memory;
use crate::{Expired, Key, Timer, Wheel};
use alloc::sync::Arc;
use core::fmt;
use core::mem::replace;
use core::task::Waker;
use core::time::Duration;

/// Makes a channel on `timer` whose values come out when their time has come.
///
/// Clones of the [`DelaySender`] insert, move and remove values, from any thread. The one
/// [`DelayReceiver`] hands them out by deadline, to a task that [awaits](DelayReceiver::next) them
/// or to a thread that [blocks](DelayReceiver::recv), and ends when all senders are gone and no
/// value is left. A program that fills and empties a queue in one place takes a
/// [`DelayQueue`](crate::DelayQueue), which needs no lock.
///
/// - Values of equal deadlines come out in the order in which the channel got them, whichever
///   thread inserted them.
/// - Each call takes the lock of the channel for constant time, amortised, and no caller waits for
///   more than a bounded batch of work, unless the receiver calls
///   [`shrink_to_fit`](Delayed::shrink_to_fit). The call that takes out the last of many values
///   gives back their memory, with no lock held, which takes milliseconds after a million. No
///   foreign code runs under the lock: not a waker, not the `Drop` of a value.
/// - A sender wakes the receiver only for a value that is due earlier than all others. The last
///   sender wakes it when it goes and no value is left.
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
    let inner = Inner {
        wheel,
        senders: 1,
        is_closed: false,
        watcher: None,
        woken_by: None,
        watched: NEVER,
        placed: 0,
    };
    let inner = Mutex::new(Rank::Channel, inner);
    let shared = Arc::new(Shared { hub: Arc::clone(&shard.hub), inner });
    let receiver = Delayed::on(timer, Channel(Arc::clone(&shared)));
    (DelaySender(shared), receiver)
}

/// Fills a delay channel, from [`delay_channel`]. Clones fill the same channel.
pub struct DelaySender<T>(Arc<Shared<T>>);

/// Hands out the values of a delay channel, from [`delay_channel`], in one of the ways of
/// [`Delayed`]. Ends when all senders are gone and no value is left.
///
/// Dropping it drops the values that are left, and from then on the channel takes no values.
pub type DelayReceiver<T> = Delayed<Channel<T>>;

/// Says that the receiver of a delay channel is gone, and gives back the value that it did not get.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SendError<T>(pub T);

struct Shared<T> {
    hub: Arc<Hub>,
    inner: Mutex<Inner<T>>,
}

struct Inner<T> {
    /// By the ticks of the timer.
    wheel: Wheel<T>,
    senders: usize,
    /// The receiver is gone.
    is_closed: bool,
    /// To be woken for a value that is due before `watched`, and when all senders are gone.
    watcher: Option<Arc<Waker>>,
    /// The last thread that woke it since the receiver looked, or is about to. Other threads wake
    /// it, too, because that one may have lost its core before it does.
    woken_by: Option<ThreadId>,
    watched: u64,
    /// How many values were inserted or moved since the wheel last gave back its memory.
    placed: u64,
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
    ///
    /// Cost: O(1) amortised, O(p) in one call.
    pub fn remove(&self, key: Key) -> Option<T> {
        let mut inner = lock(&self.0.inner);
        let value = inner.wheel.cancel(key)?;
        let memory = inner.take_memory_if_emptied();
        drop(inner);
        drop(memory);
        Some(value)
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
        lock(&self.0.inner).is_closed
    }

    fn schedule(&self, value: T, deadline: u64) -> Result<Key, SendError<T>> {
        let mut inner = lock(&self.0.inner);
        if inner.is_closed {
            return Err(SendError(value));
        }
        let key = inner.wheel.schedule(deadline, value);
        inner.placed += 1;
        let watcher = inner.watcher_before(deadline);
        drop(inner);
        self.0.wake(watcher);
        Ok(key)
    }

    fn reschedule(&self, key: Key, deadline: u64) -> bool {
        let mut inner = lock(&self.0.inner);
        if !inner.wheel.reschedule(key, deadline) {
            return false;
        }
        inner.placed += 1;
        let watcher = inner.watcher_before(deadline);
        drop(inner);
        self.0.wake(watcher);
        true
    }
}

impl<T> Shared<T> {
    /// Wakes a waker. Call this with no lock held. The timer is told of a panic, which must fail
    /// neither a sender nor another task that waits.
    fn wake(&self, waker: Option<Arc<Waker>>) {
        if let Some(waker) = &waker {
            self.hub.guarded(|| waker.wake_by_ref());
        }
        self.let_go(waker);
    }

    /// Drops a waker, as [`wake`](Self::wake) wakes one.
    fn let_go(&self, waker: Option<Arc<Waker>>) {
        self.hub.guarded(|| drop(waker));
    }
}

impl<T> Inner<T> {
    /// Returns whether no value is left and none can come.
    fn is_over(&self) -> bool {
        self.senders == 0 && self.wheel.is_empty()
    }

    /// Takes the memory out of a wheel that was emptied, for the caller to drop with no lock held.
    /// Returns None unless there were many values since the last time, because the next ones need
    /// memory again.
    fn take_memory_if_emptied(&mut self) -> Option<Memory<T>> {
        if !self.wheel.is_empty() || self.placed < MANY {
            return None;
        }
        self.placed = 0;
        Some(self.wheel.take_memory())
    }

    /// Returns the waker of the receiver if it has to look again before `deadline`, and this thread
    /// has not woken it.
    fn watcher_before(&mut self, deadline: u64) -> Option<Arc<Waker>> {
        let watcher = self.watcher.as_ref().filter(|_| deadline < self.watched)?;
        let this_thread = Some(this_thread());
        let woken_by = replace(&mut self.woken_by, this_thread);
        (woken_by != this_thread).then(|| Arc::clone(watcher))
    }
}

impl<T> Clone for DelaySender<T> {
    fn clone(&self) -> Self {
        lock(&self.0.inner).senders += 1;
        Self(Arc::clone(&self.0))
    }
}

impl<T> Drop for DelaySender<T> {
    fn drop(&mut self) {
        let mut inner = lock(&self.0.inner);
        inner.senders -= 1;
        let watcher = if inner.is_over() { inner.watcher.take() } else { None };
        drop(inner);
        self.0.wake(watcher);
    }
}

/// The end of the receiver. Nothing outside of this crate can name it.
#[expect(missing_debug_implementations, unnameable_types, reason = "it is sealed")]
pub struct Channel<T>(Arc<Shared<T>>);

impl<T> Source for Channel<T> {
    type Key = Key;
    type Value = T;

    fn expire(&mut self, now: Option<u64>, work: &mut usize) -> Option<Expired<T>> {
        loop {
            let allowed = BATCH.min(*work);
            let mut left = allowed;
            let mut inner = lock(&self.0.inner);
            let now = now.unwrap_or_else(|| inner.wheel.now());
            if let Some(expired) = inner.wheel.expire_bounded(now, &mut left) {
                let memory = inner.take_memory_if_emptied();
                // The task no longer waits.
                let watcher = inner.watcher.take();
                drop(inner);
                self.0.let_go(watcher);
                drop(memory);
                return Some(expired);
            }
            *work -= allowed - left;
            if 0 < left || *work == 0 {
                return None;
            }
            // Senders have their turn while a bucket of a million is taken apart.
        }
    }

    fn watch(&mut self, waker: &Waker) -> Option<u64> {
        let mut clone = None;
        loop {
            let mut inner = lock(&self.0.inner);
            let next = inner.wheel.next_wake();
            let is_over = next.is_none() && inner.senders == 0;
            let is_known = inner.watcher.as_ref().is_some_and(|known| known.will_wake(waker));
            if clone.is_none() && !is_over && !is_known {
                drop(inner);
                // A waker's `clone` is foreign code, too.
                clone = Some(Arc::new(waker.clone()));
                continue;
            }
            let watched = next.unwrap_or(NEVER);
            (inner.watched, inner.woken_by) = (watched, None);
            let replaced = match clone {
                _ if is_over => inner.watcher.take(),
                Some(clone) => inner.watcher.replace(clone),
                None => None,
            };
            drop(inner);
            self.0.let_go(replaced);
            return (!is_over).then_some(watched);
        }
    }

    fn unwatch(&mut self) {
        let watcher = lock(&self.0.inner).watcher.take();
        self.0.let_go(watcher);
    }

    fn is_over(&self) -> bool {
        lock(&self.0.inner).is_over()
    }

    fn len(&self) -> usize {
        lock(&self.0.inner).wheel.len()
    }

    fn shrink_to_fit(&mut self) {
        lock(&self.0.inner).wheel.shrink_to_fit();
    }
}

impl<T> Drop for Channel<T> {
    fn drop(&mut self) {
        let mut inner = lock(&self.0.inner);
        inner.is_closed = true;
        let mode = inner.wheel.mode();
        let left = replace(&mut inner.wheel, Wheel::new(mode));
        let watcher = inner.watcher.take();
        drop(inner);
        self.0.let_go(watcher);
        // The last, because a value may panic in its `Drop`.
        drop(left);
    }
}

impl<T> fmt::Debug for DelaySender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DelaySender").field("is_closed", &self.is_closed()).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Delayed<Channel<T>> {
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

/// Units of work of the wheel at once, under the lock.
const BATCH: usize = 128;

/// A channel that is emptied gives back its memory after so many values, or more.
const MANY: u64 = 1_024;
