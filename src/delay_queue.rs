//! A queue that hands out each value when its time has come.

use crate::awaited::{Awaited, Due};
use crate::future::{Elapsed, timer};
use crate::{Key, ScheduleErrorKind, Timer, Wheel};
use alloc::vec::Vec;
use core::fmt;
use core::future::poll_fn;
use core::task::{Context, Poll};
use core::time::Duration;
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
/// that a loop over the queue ends; a batch gives the error each time. Values that are due come out
/// nevertheless, and the others stay.
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
pub struct DelayQueue<T>(Awaited<Wheel<T>>);

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
        Self(Awaited::new(timer, Wheel::new(timer.shard().mode())))
    }

    /// Inserts `value`, to come out `delay` from now, and returns its key.
    pub fn insert(&mut self, value: T, delay: Duration) -> Key {
        self.schedule(value, self.0.hub().deadline_after(delay))
    }

    /// Inserts `value`, to come out at `deadline`, or at once if that has passed, and returns its
    /// key.
    pub fn insert_at(&mut self, value: T, deadline: Instant) -> Key {
        self.schedule(value, self.0.hub().ticks.deadline(deadline))
    }

    /// Removes the value that `key` names, and returns it. Returns None if it is gone.
    pub fn remove(&mut self, key: Key) -> Option<T> {
        let value = self.0.source.cancel(key)?;
        if self.0.source.is_empty() {
            self.0.wake();
        }
        Some(value)
    }

    /// Moves the deadline of the value that `key` names to `delay` from now, earlier or later than
    /// it was, and returns whether the value is there. The key stays good.
    ///
    /// The value counts as inserted anew: among equal deadlines it comes out last.
    pub fn reset(&mut self, key: Key, delay: Duration) -> bool {
        self.reschedule(key, self.0.hub().deadline_after(delay))
    }

    /// Moves the deadline to `deadline`, and is like [`reset`](Self::reset) otherwise. A deadline
    /// in the past is due at once.
    pub fn reset_at(&mut self, key: Key, deadline: Instant) -> bool {
        self.reschedule(key, self.0.hub().ticks.deadline(deadline))
    }

    /// Drops all values. The queue keeps its memory.
    pub fn clear(&mut self) {
        // Before a value is dropped, because that might panic. The task cannot look yet.
        self.0.wake();
        self.0.source.clear();
    }

    /// Makes room for `additional` values more. Does nothing if there is not enough memory.
    pub fn reserve(&mut self, additional: usize) {
        self.0.source.reserve(additional);
    }

    /// Frees memory that the present values do not need. Their keys stay good. O(n).
    pub fn shrink_to_fit(&mut self) {
        self.0.source.shrink_to_fit();
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

    /// Waits for the next value, and returns it. Goes on waiting while the queue is empty, so that
    /// a `select!` with other sources of values needs no special case for an empty queue.
    ///
    /// The caller may drop the future of this call at any time, and no value is lost.
    ///
    /// # Errors
    ///
    /// If no thread can wake the task in time: see [`DelayQueue`]. Each call gives the error anew.
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
    pub async fn next_due(&mut self) -> Result<Due<T>, ScheduleErrorKind> {
        poll_fn(|context| self.0.poll_due(context)).await
    }

    /// Waits for the next value, and appends it to `batch` with those that are due by then, up to
    /// `max`. Returns how many: 0 where [`next`](Self::next) returns None, and if `max` is 0.
    ///
    /// The caller may drop the future of this call at any time, and no value is lost.
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
        batch: &mut Vec<Due<T>>,
        max: usize,
    ) -> Result<usize, ScheduleErrorKind> {
        poll_fn(|context| self.0.poll_batch(context, batch, max)).await
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
        self.0.poll_next(context)
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
        self.0.recv()
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
        self.0.recv_timeout(timeout)
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
    pub fn blocking_iter(&mut self) -> impl Iterator<Item = Result<Due<T>, ScheduleErrorKind>> {
        self.0.blocking_iter()
    }

    /// Returns the deadline of the value that `key` names, rounded up to the timer's tick. Returns
    /// None if the value is gone, or never comes out.
    #[must_use]
    pub fn deadline(&self, key: Key) -> Option<Instant> {
        self.0.hub().ticks.instant(self.0.source.deadline(key)?)
    }

    /// Returns the deadline of the value that comes out next, rounded up to the timer's tick.
    /// Returns None if there is none, or it never comes out.
    ///
    /// The answer is exact, so the queue may have to look at many values.
    #[must_use]
    pub fn next_deadline(&mut self) -> Option<Instant> {
        let tick = self.0.source.next_deadline()?;
        self.0.hub().ticks.instant(tick)
    }

    /// Returns the key of the value that comes out next, unless the queue changes before.
    ///
    /// The answer is exact, so the queue may have to look at many values.
    #[must_use]
    pub fn peek(&mut self) -> Option<Key> {
        Some(self.0.source.peek()?.0)
    }

    /// Returns the value that `key` names, or None if it is gone.
    #[must_use]
    pub fn get(&self, key: Key) -> Option<&T> {
        self.0.source.get(key)
    }

    /// Returns the value that `key` names, to change it in place, or None if it is gone.
    #[must_use]
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        self.0.source.get_mut(key)
    }

    /// Returns the number of values, with those that are due.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.source.len()
    }

    /// Returns whether there are no values.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.source.is_empty()
    }

    fn schedule(&mut self, value: T, deadline: u64) -> Key {
        let key = self.0.source.schedule(deadline, value);
        self.0.hurry(deadline);
        key
    }

    fn reschedule(&mut self, key: Key, deadline: u64) -> bool {
        let is_there = self.0.source.reschedule(key, deadline);
        if is_there {
            self.0.hurry(deadline);
        }
        is_there
    }
}

/// On the [timer of the process](crate::timer()).
impl<T> Default for DelayQueue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: fmt::Debug> fmt::Debug for DelayQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DelayQueue").field("values", &self.0.source.iter()).finish_non_exhaustive()
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
