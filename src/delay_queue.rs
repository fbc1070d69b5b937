//! A queue that hands out each value when its time has come.

use crate::future::{Elapsed, Sleep, timer};
use crate::{Key, ScheduleErrorKind, Timer, Wheel};
use alloc::sync::Arc;
use alloc::task::Wake;
use core::fmt;
use core::future::poll_fn;
use core::mem::take;
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::thread::{Thread, current, park};
use std::time::Instant;

/// Holds values, and hands each out when its time has come: to a task that [awaits](Self::next) it,
/// or to a thread that [blocks](Self::recv).
///
/// The queue has its own [`Wheel`], in the mode of the timer's wheels. Inserting, removing and
/// moving a value costs the same whatever the delay, takes no lock and allocates nothing beyond
/// that wheel. The queue has a single timeout in its timer, and only while a task or a thread
/// waits.
///
/// - A value never comes out early, by the timer's clock, counted from the call that inserted it.
///   It is late by less than a tick of the timer, plus the time to wake the worker and the task.
/// - Values come out by deadline, rounded up to the tick. Values of equal deadlines come out in the
///   order in which they were inserted or moved.
/// - Keys are generational: a stale key finds nothing. No call panics.
/// - A delay may be of any length. A delay too long for [`Instant`] never ends.
///
/// Inserting, removing and moving need `&mut` access to the queue. While a task awaits the next
/// value, use `select!` in that task. If the code that holds the queue changes it after a task
/// [polled](Self::poll_expired) it, the queue wakes that task for a value that comes out earlier,
/// and when the queue becomes empty.
///
/// Dropping the future of [`next`](Self::next) loses no value. Dropping the queue drops its values.
///
/// # Errors
///
/// While the timer is stopped, or has no room, or no worker, no thread wakes a task that waits.
/// Then waiting gives an error. If no value is due at the next call, that call returns None, so
/// that a loop over the queue ends. Values that are due come out nevertheless, and the others stay.
///
/// ```
/// # futures::executor::block_on(async {
/// use std::time::Duration;
/// use tickwheel::DelayQueue;
///
/// let mut sessions = DelayQueue::new();
/// let short = sessions.insert("short", Duration::from_millis(1));
/// let long = sessions.insert("long", Duration::from_secs(3_600));
/// sessions.insert("other", Duration::from_millis(2));
///
/// assert!(sessions.reset(short, Duration::from_millis(4))); // a sign of life
/// assert_eq!(sessions.remove(long), Some("long"));
/// while let Some(due) = sessions.next().await {
///     println!("{} is over", due?.value); // other, then short
/// }
/// assert!(sessions.is_empty());
/// # Ok::<(), tickwheel::ScheduleErrorKind>(())
/// # }).unwrap();
/// ```
pub struct DelayQueue<T> {
    /// By the ticks of the timer.
    wheel: Wheel<T>,
    /// While a task waits, this ends when the task is to look at the wheel again, or before.
    sleep: Sleep,
    /// The last poll gave an error: this one gives None, unless a value is due.
    ends: bool,
}

/// A value whose time has come, from a [`DelayQueue`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Due<T> {
    /// The key that the value had. It is stale by now.
    pub key: Key,
    /// The deadline of the value, rounded up to the timer's tick.
    pub deadline: Instant,
    /// The value.
    pub value: T,
}

impl<T> DelayQueue<T> {
    /// Makes an empty queue on the [timer of the process](crate::timer()). Allocates nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::with_timer(timer())
    }

    /// Makes an empty queue on `timer`, which it does not keep alive. Allocates nothing.
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
    #[must_use]
    pub fn with_timer(timer: &Timer) -> Self {
        let shard = timer.shard();
        Self { wheel: Wheel::new(shard.mode()), sleep: Sleep::new(shard, 0), ends: false }
    }

    /// Inserts `value`, to come out `delay` from now, and returns its key.
    pub fn insert(&mut self, value: T, delay: Duration) -> Key {
        let shard = self.sleep.shard();
        self.schedule(value, shard.hub.deadline_after(delay))
    }

    /// Inserts `value`, to come out at `deadline`, or at once if that has passed, and returns its
    /// key.
    pub fn insert_at(&mut self, value: T, deadline: Instant) -> Key {
        self.schedule(value, self.sleep.shard().hub.ticks.deadline(deadline))
    }

    /// Removes the value that `key` names, and returns it. Returns None if it is gone.
    pub fn remove(&mut self, key: Key) -> Option<T> {
        let value = self.wheel.cancel(key)?;
        if self.wheel.is_empty() {
            self.sleep.wake();
        }
        Some(value)
    }

    /// Moves the deadline of the value that `key` names to `delay` from now, earlier or later than
    /// it was, and returns whether the value is there. The key stays good.
    ///
    /// The value counts as inserted anew: among equal deadlines it comes out last.
    pub fn reset(&mut self, key: Key, delay: Duration) -> bool {
        let shard = self.sleep.shard();
        self.reschedule(key, shard.hub.deadline_after(delay))
    }

    /// Moves the deadline to `deadline`, and is like [`reset`](Self::reset) otherwise. A deadline
    /// in the past is due at once.
    pub fn reset_at(&mut self, key: Key, deadline: Instant) -> bool {
        self.reschedule(key, self.sleep.shard().hub.ticks.deadline(deadline))
    }

    /// Drops all values. The queue keeps its memory.
    pub fn clear(&mut self) {
        // Before a value is dropped, because that might panic. The task cannot look yet.
        self.sleep.wake();
        self.wheel.clear();
    }

    /// Makes room for `additional` values more. Does nothing if there is not enough memory.
    pub fn reserve(&mut self, additional: usize) {
        self.wheel.reserve(additional);
    }

    /// Frees memory that the present values do not need. Their keys stay good. O(n).
    pub fn shrink_to_fit(&mut self) {
        self.wheel.shrink_to_fit();
    }

    /// Waits for the next value, and returns it. Returns None if the queue is empty.
    ///
    /// The caller may drop the future of this call at any time, and no value is lost.
    ///
    /// # Errors
    ///
    /// If no thread can wake the task in time: see [`DelayQueue`].
    pub async fn next(&mut self) -> Option<Result<Due<T>, ScheduleErrorKind>> {
        poll_fn(|context| self.poll_expired(context)).await
    }

    /// Returns the next value if it is due, or None if the queue is empty. Otherwise the task wakes
    /// up when a value is due, or one is inserted that is due earlier, or the queue becomes empty.
    ///
    /// # Errors
    ///
    /// Those of [`next`](Self::next).
    pub fn poll_expired(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Due<T>, ScheduleErrorKind>>> {
        let ends = take(&mut self.ends);
        loop {
            if let Some(due) = self.take_due() {
                return Poll::Ready(Some(Ok(due)));
            }
            let Some(tick) = self.wheel.next_wake().filter(|_| !ends) else {
                return Poll::Ready(None);
            };
            self.sleep.move_to(tick);
            match self.sleep.poll_by(context.waker()) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => {
                    self.ends = true;
                    return Poll::Ready(Some(Err(error)));
                }
                // That tick came meanwhile, or no value is left that is due at it.
                Poll::Ready(Ok(())) => {}
            }
        }
    }

    /// Blocks the thread until the next value is due, and returns it. Returns None if the queue is
    /// empty.
    ///
    /// Do not call this inside a task of the timer: the thread would wait for itself for ever.
    ///
    /// # Errors
    ///
    /// Those of [`next`](Self::next).
    pub fn recv(&mut self) -> Option<Result<Due<T>, ScheduleErrorKind>> {
        match self.take_due() {
            Some(due) => Some(Ok(due)),
            None if self.is_empty() => None,
            None => Parker::new().wait_for(|context| self.poll_expired(context)),
        }
    }

    /// Blocks the thread until the next value is due, as [`recv`](Self::recv) does, but no longer
    /// than `timeout`, by the timer's clock.
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
    pub fn recv_timeout(&mut self, timeout: Duration) -> Option<Result<Due<T>, Elapsed>> {
        match self.take_due() {
            Some(due) => return Some(Ok(due)),
            None if self.is_empty() => return None,
            None => {}
        }
        let shard = self.sleep.shard();
        let mut sleep = Sleep::new(shard, shard.hub.deadline_after(timeout));
        Parker::new().wait_for(|context| match self.poll_expired(context) {
            Poll::Ready(due) => {
                Poll::Ready(due.map(|due| due.map_err(|error| Elapsed::new(Some(error)))))
            }
            Poll::Pending => {
                sleep.poll_by(context.waker()).map(|slept| Some(Err(Elapsed::new(slept.err()))))
            }
        })
    }

    /// Returns an iterator that blocks the thread until the next value is due, and ends when the
    /// queue is empty: [`recv`](Self::recv) again and again.
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use tickwheel::DelayQueue;
    ///
    /// let mut queue = DelayQueue::new();
    /// let start = Instant::now();
    /// for number in [3, 1, 2] {
    ///     queue.insert_at(number, start + Duration::from_millis(number));
    /// }
    /// let values: Result<Vec<_>, _> =
    ///     queue.blocking_iter().map(|due| due.map(|due| due.value)).collect();
    /// assert_eq!(values?, [1, 2, 3]);
    /// # Ok::<(), tickwheel::ScheduleErrorKind>(())
    /// ```
    pub fn blocking_iter(&mut self) -> BlockingIter<'_, T> {
        BlockingIter { queue: self, parker: Parker::new() }
    }

    /// Returns the deadline of the value that `key` names, rounded up to the timer's tick. Returns
    /// None if the value is gone, or never comes out.
    #[must_use]
    pub fn deadline(&self, key: Key) -> Option<Instant> {
        self.sleep.shard().hub.ticks.instant(self.wheel.deadline(key)?)
    }

    /// Returns the deadline of the value that comes out next, rounded up to the timer's tick.
    /// Returns None if there is none, or it never comes out.
    ///
    /// The answer is exact, so the queue may have to look at many values.
    #[must_use]
    pub fn next_deadline(&mut self) -> Option<Instant> {
        self.sleep.shard().hub.ticks.instant(self.wheel.next_deadline()?)
    }

    /// Returns the key of the value that comes out next, unless the queue changes before.
    ///
    /// The answer is exact, so the queue may have to look at many values.
    #[must_use]
    pub fn peek(&mut self) -> Option<Key> {
        Some(self.wheel.peek()?.0)
    }

    /// Returns the value that `key` names, or None if it is gone.
    #[must_use]
    pub fn get(&self, key: Key) -> Option<&T> {
        self.wheel.get(key)
    }

    /// Returns the value that `key` names, to change it in place, or None if it is gone.
    #[must_use]
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        self.wheel.get_mut(key)
    }

    /// Returns the number of values, with those that are due.
    #[must_use]
    pub fn len(&self) -> usize {
        self.wheel.len()
    }

    /// Returns whether there are no values.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.wheel.is_empty()
    }

    fn schedule(&mut self, value: T, deadline: u64) -> Key {
        let key = self.wheel.schedule(deadline, value);
        self.hurry(deadline);
        key
    }

    fn reschedule(&mut self, key: Key, deadline: u64) -> bool {
        let is_there = self.wheel.reschedule(key, deadline);
        if is_there {
            self.hurry(deadline);
        }
        is_there
    }

    /// Wakes the task that waits in time for `deadline`, if there is one.
    fn hurry(&mut self, deadline: u64) {
        if deadline < self.sleep.tick() && self.sleep.is_waiting() {
            if self.sleep.shard().hub.is_past(deadline) {
                self.sleep.wake();
            } else {
                self.sleep.move_to(deadline);
            }
        }
    }

    /// Takes the next value out, if it is due.
    fn take_due(&mut self) -> Option<Due<T>> {
        // Values that were due when the clock was last read come out without reading it again.
        let expired = match self.wheel.expire(self.wheel.now()) {
            Some(expired) => expired,
            None if self.wheel.is_empty() => return None,
            None => {
                let shard = self.sleep.shard();
                self.wheel.expire(shard.hub.ticks.now(shard.hub.clock.now()))?
            }
        };
        let shard = self.sleep.shard();
        // A value that is due has an instant.
        let deadline =
            shard.hub.ticks.instant(expired.deadline).unwrap_or_else(|| shard.hub.clock.now());
        Some(Due { key: expired.key, deadline, value: expired.value })
    }
}

/// Nothing in it is ever pinned.
impl<T> Unpin for DelayQueue<T> {}

/// On the [timer of the process](crate::timer()).
impl<T> Default for DelayQueue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: fmt::Debug> fmt::Debug for DelayQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DelayQueue").field("values", &self.wheel.iter()).finish_non_exhaustive()
    }
}

/// Ends when the queue is empty, and after an error. Goes on when there are values again.
#[cfg(feature = "stream")]
impl<T> futures_core::Stream for DelayQueue<T> {
    type Item = Result<Due<T>, ScheduleErrorKind>;

    fn poll_next(
        mut self: core::pin::Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Self::Item>> {
        self.poll_expired(context)
    }
}

/// An iterator over values whose time has come, from [`DelayQueue::blocking_iter`].
#[derive(Debug)]
pub struct BlockingIter<'a, T> {
    queue: &'a mut DelayQueue<T>,
    parker: Parker,
}

impl<T> Iterator for BlockingIter<'_, T> {
    type Item = Result<Due<T>, ScheduleErrorKind>;

    fn next(&mut self) -> Option<Self::Item> {
        self.parker.wait_for(|context| self.queue.poll_expired(context))
    }
}

/// Blocks a thread until a future wakes it.
#[derive(Debug)]
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
