//! A queue of values that come out when their time has come.

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
/// or to a thread that [waits](Self::recv).
///
/// The values are in a [`Wheel`] of the queue's own, in the mode of the timer's, and so at its cost:
/// inserting, removing and moving one costs the same whatever the delay, takes no lock and allocates
/// nothing beyond that wheel. The queue has a single timeout in its timer, and that only while
/// somebody waits.
///
/// - A value never comes early, by the timer's clock, counted from the call that inserted it. It comes
///   late by less than a tick of the timer, plus waking the timer's thread and the task.
/// - Values come by deadline, rounded up to the tick, those of equal deadlines in the order in which
///   they were inserted or moved.
/// - Keys are generational: a stale one finds nothing. No call panics.
/// - A delay may be of any length. One that no [`Instant`] can hold never ends.
///
/// Inserting, removing and moving are calls of who has the queue: while a task awaits its next value
/// they are made from that same task, in `select!`, say. If some code holds the queue on behalf of a
/// task that waits, the task is woken for what comes earlier, and when the queue is emptied.
///
/// Dropping what [`next`](Self::next) returned loses nothing. Dropping the queue drops its values.
///
/// # Errors
///
/// While the timer is stopped, or has no room, or no thread, nothing tells who waits that the time
/// has come. Then waiting gives an error, and the call after that gives None, so that a loop over it
/// ends. What is due comes out nevertheless, and the values stay in the queue.
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
    /// While somebody waits it ends when the wheel is to be looked at again, or before.
    sleep: Sleep,
    /// An error was given, and None has to follow.
    ends: bool,
}

/// A value whose time has come, from a [`DelayQueue`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Due<T> {
    /// The key it had; stale by now.
    pub key: Key,
    /// When it was due, rounded up to the timer's tick.
    pub deadline: Instant,
    /// The value that was inserted.
    pub value: T,
}

impl<T> DelayQueue<T> {
    /// An empty queue on the [timer of the process](crate::timer()). Allocates nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::with_timer(timer())
    }

    /// An empty queue on `timer`, which it does not keep alive. Allocates nothing.
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

    /// Inserts `value`, to come out `delay` from now, and returns the key to it.
    pub fn insert(&mut self, value: T, delay: Duration) -> Key {
        let shard = self.sleep.shard();
        self.schedule(value, shard.ticks().after(shard.now(), delay))
    }

    /// Inserts `value`, to come out at `deadline`, or at once if that has passed, and returns the key
    /// to it.
    pub fn insert_at(&mut self, value: T, deadline: Instant) -> Key {
        self.schedule(value, self.sleep.shard().ticks().deadline(deadline))
    }

    /// Takes the value that `key` names out, and returns it; None if it is gone.
    pub fn remove(&mut self, key: Key) -> Option<T> {
        let value = self.wheel.cancel(key)?;
        if self.wheel.is_empty() {
            self.sleep.wake();
        }
        Some(value)
    }

    /// Makes the value that `key` names come out `delay` from now instead, sooner or later than it
    /// was, and returns whether it is there. The key stays good.
    ///
    /// It counts as inserted anew: among equal deadlines it comes last.
    pub fn reset(&mut self, key: Key, delay: Duration) -> bool {
        let shard = self.sleep.shard();
        self.reschedule(key, shard.ticks().after(shard.now(), delay))
    }

    /// Like [`reset`](Self::reset), to an instant. One in the past is due at once.
    pub fn reset_at(&mut self, key: Key, deadline: Instant) -> bool {
        self.reschedule(key, self.sleep.shard().ticks().deadline(deadline))
    }

    /// Drops all values. The memory stays.
    pub fn clear(&mut self) {
        // Before anything is dropped, as that might panic; who is woken cannot look yet.
        self.sleep.wake();
        self.wheel.clear();
    }

    /// Makes room for so many values more. Does nothing if there is not so much memory.
    pub fn reserve(&mut self, additional: usize) {
        self.wheel.reserve(additional);
    }

    /// Gives back what memory the present values do not need. Their keys stay good. O(n).
    pub fn shrink_to_fit(&mut self) {
        self.wheel.shrink_to_fit();
    }

    /// Waits for the next value; None if the queue is empty.
    ///
    /// What this returns may be dropped at any time, and nothing is lost.
    ///
    /// # Errors
    ///
    /// If the time cannot be waited for: see [`DelayQueue`].
    pub async fn next(&mut self) -> Option<Result<Due<T>, ScheduleErrorKind>> {
        poll_fn(|context| self.poll_expired(context)).await
    }

    /// The next value if it is due; None if the queue is empty. Otherwise the task is woken when
    /// something is due, or inserted to be due earlier, or the queue is emptied.
    ///
    /// # Errors
    ///
    /// As [`next`](Self::next).
    pub fn poll_expired(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Due<T>, ScheduleErrorKind>>> {
        loop {
            if let Some(due) = self.take_due() {
                return Poll::Ready(Some(Ok(due)));
            }
            let Some(tick) = self.wheel.next_wake().filter(|_| !take(&mut self.ends)) else {
                return Poll::Ready(None);
            };
            self.sleep.move_to(tick);
            match self.sleep.poll_by(context.waker()) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => {
                    self.ends = true;
                    return Poll::Ready(Some(Err(error)));
                }
                // That tick came while this went on, or nothing is left that is due at it.
                Poll::Ready(Ok(())) => {}
            }
        }
    }

    /// Waits for the next value with the thread blocked; None if the queue is empty.
    ///
    /// Not to be called inside a task of the timer, which would wait for itself for ever.
    ///
    /// # Errors
    ///
    /// As [`next`](Self::next).
    pub fn recv(&mut self) -> Option<Result<Due<T>, ScheduleErrorKind>> {
        match self.take_due() {
            Some(due) => Some(Ok(due)),
            None if self.is_empty() => None,
            None => Parker::new().wait_for(|context| self.poll_expired(context)),
        }
    }

    /// Like [`recv`](Self::recv), for no longer than `timeout`, by the timer's clock.
    ///
    /// # Errors
    ///
    /// If nothing was due in that time, or it could not be waited for.
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
        let mut sleep = Sleep::new(shard, shard.ticks().after(shard.now(), timeout));
        Parker::new().wait_for(|context| match self.poll_expired(context) {
            Poll::Ready(due) => {
                Poll::Ready(due.map(|due| due.map_err(|error| Elapsed::new(Some(error)))))
            }
            Poll::Pending => {
                sleep.poll_by(context.waker()).map(|slept| Some(Err(Elapsed::new(slept.err()))))
            }
        })
    }

    /// Each value when its time has come, with the thread blocked meanwhile, until the queue is
    /// empty: [`recv`](Self::recv) again and again.
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

    /// When the value that `key` names comes out, rounded up to the timer's tick. None if it is gone,
    /// or never comes.
    #[must_use]
    pub fn deadline(&self, key: Key) -> Option<Instant> {
        self.sleep.shard().ticks().instant(self.wheel.deadline(key)?)
    }

    /// When the next value comes out, rounded up to the timer's tick. None if there is none, or it
    /// never comes.
    ///
    /// Exact, and so may have to look at many values.
    #[must_use]
    pub fn next_deadline(&mut self) -> Option<Instant> {
        self.sleep.shard().ticks().instant(self.wheel.next_deadline()?)
    }

    /// The key to the value that comes out next, if nothing is done before.
    ///
    /// Exact, and so may have to look at many values.
    #[must_use]
    pub fn peek(&mut self) -> Option<Key> {
        self.wheel.next_key()
    }

    /// The value that `key` names, or None if it is gone.
    #[must_use]
    pub fn get(&self, key: Key) -> Option<&T> {
        self.wheel.get(key)
    }

    /// The value that `key` names, to be changed in place, or None if it is gone.
    #[must_use]
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        self.wheel.get_mut(key)
    }

    /// How many values there are, those that are due included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.wheel.len()
    }

    /// Whether there are no values.
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

    /// Somebody may wait for longer than until `deadline`.
    fn hurry(&mut self, deadline: u64) {
        if deadline < self.sleep.tick() && self.sleep.is_waiting() {
            if self.sleep.shard().is_past(deadline) {
                self.sleep.wake();
            } else {
                self.sleep.move_to(deadline);
            }
        }
    }

    /// The next value, if it is due.
    fn take_due(&mut self) -> Option<Due<T>> {
        // What was due when the clock was last read comes out without reading it again.
        let expired = match self.wheel.expire(self.wheel.now()) {
            Some(expired) => expired,
            None if self.wheel.is_empty() => return None,
            None => {
                let shard = self.sleep.shard();
                self.wheel.expire(shard.ticks().present(shard.now()))?
            }
        };
        let shard = self.sleep.shard();
        // What is due is an instant.
        let deadline = shard.ticks().instant(expired.deadline).unwrap_or_else(|| shard.now());
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

/// Ends when the queue is empty, and after an error; goes on when there is something again.
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

/// The values of a queue when their time has come, from [`DelayQueue::blocking_iter`].
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

/// Makes a thread wait.
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
