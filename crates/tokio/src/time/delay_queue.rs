//! A queue of values that come out at their deadlines.

use super::{Duration, Instant, Sleep, at_most_30_years, sleep_until};
use futures_core::Stream;
use std::fmt;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use tickwheel::{Ticks, Wheel};
use tokio::task::coop;

pub use tickwheel::Key;

/// A queue of values that come out at their deadlines: tokio-util's `DelayQueue`.
///
/// A deadline may be as far as an [`Instant`] can hold, and a far one hides no near one. A key that
/// is gone names nothing else later. The queue is made, filled and dropped outside of a runtime,
/// too; polling it while something waits needs one. It is invariant in `T`, because
/// [`peek`](Self::peek) sorts, where tokio-util's is covariant.
///
/// ```
/// use tickwheel_tokio::time::{DelayQueue, Duration};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let mut queue = DelayQueue::new();
/// let late = queue.insert("late", Duration::from_secs(60));
/// queue.insert("soon", Duration::from_millis(5));
/// let next = std::future::poll_fn(|context| queue.poll_expired(context)).await;
/// assert_eq!(next.map(|expired| expired.into_inner()), Some("soon"));
/// assert_eq!(queue.remove(&late).into_inner(), "late");
/// # });
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct DelayQueue<T> {
    /// Locked by [`peek`](Self::peek) alone, which sorts.
    wheel: Mutex<Wheel<T>>,
    ticks: Ticks<std::time::Instant>,
    /// Some since a poll found nothing due.
    wait: Option<Wait>,
    /// Of the task that polled last, unless it was woken since.
    waker: Option<Waker>,
    capacity: usize,
}

/// What the queue waits for.
struct Wait {
    sleep: Sleep,
    /// The tick of the sleep: the wheel has nothing to do before it, unless a value was inserted or
    /// moved since.
    until: u64,
}

/// A value that came out of a [`DelayQueue`].
#[derive(Debug)]
pub struct Expired<T> {
    key: Key,
    deadline: Instant,
    value: T,
}

impl<T> DelayQueue<T> {
    /// Makes an empty queue.
    #[must_use]
    pub fn new() -> Self {
        Self::with_capacity(0)
    }

    /// Makes an empty queue with room for so many values.
    ///
    /// # Panics
    ///
    /// As [`reserve`](Self::reserve).
    #[must_use]
    #[track_caller]
    pub fn with_capacity(capacity: usize) -> Self {
        let now = Instant::now().into_std();
        let mut queue = Self {
            wheel: Mutex::default(),
            ticks: Ticks::new(now.checked_sub(PAST).unwrap_or(now), Duration::from_millis(1)),
            wait: None,
            waker: None,
            capacity: 0,
        };
        queue.reserve(capacity);
        queue
    }

    /// Inserts `value`, which comes out at `deadline`, and returns its key.
    pub fn insert_at(&mut self, value: T, deadline: Instant) -> Key {
        self.insert_by(value, self.ticks.deadline(deadline.into_std()))
    }

    fn insert_by(&mut self, value: T, tick: u64) -> Key {
        let tick = self.not_past(tick);
        let is_first = self.is_first(tick);
        let key = self.wheel().schedule(tick, value);
        self.capacity = self.capacity.max(self.wheel().len());
        if is_first {
            self.wake();
        }
        key
    }

    /// Inserts `value`, which comes out `timeout` from now, or never if no instant can hold that,
    /// and returns its key.
    pub fn insert(&mut self, value: T, timeout: Duration) -> Key {
        self.insert_by(value, self.after(timeout))
    }

    /// Polls for the next value. None if the queue is empty. Each value takes of the budget, unlike
    /// with tokio-util's also one that was inserted in the past.
    pub fn poll_expired(&mut self, context: &mut Context<'_>) -> Poll<Option<Expired<T>>> {
        if self.waker.as_ref().is_none_or(|waker| !waker.will_wake(context.waker())) {
            self.waker = Some(context.waker().clone());
        }
        if self.is_empty() {
            // The next insert is to wake the task: this sleep may have ended.
            self.wait = None;
            return Poll::Ready(None);
        }
        let budget = ready!(coop::poll_proceed(context));
        let expired = ready!(self.poll_wheel(context));
        budget.made_progress();
        Poll::Ready(expired)
    }

    fn poll_wheel(&mut self, context: &mut Context<'_>) -> Poll<Option<Expired<T>>> {
        let mut now = self.wheel().now();
        loop {
            if let Some(expired) = self.wheel().expire(now) {
                let tickwheel::Expired { key, deadline, value } = expired;
                return Poll::Ready(Some(self.expired(key, deadline, value)));
            }
            let Some(next_wake) = self.wheel().next_wake() else { return Poll::Ready(None) };
            let mut wait = match self.wait.take() {
                Some(wait) if wait.until == next_wake => wait,
                // Not the old sleep: moved to later, it would wake the task at the earlier time.
                _ => {
                    // As tokio-util's: no sleep, which would round up, for what was due at first.
                    let first = self.first();
                    if next_wake <= first {
                        now = first;
                        continue;
                    }
                    self.wait_for_earliest()
                }
            };
            let until = wait.until;
            let is_over =
                Pin::new(&mut coop::unconstrained(&mut wait.sleep)).poll(context).is_ready();
            if !is_over {
                self.wait = Some(wait);
                return Poll::Pending;
            }
            // A tick that no instant can hold has not come: the next sleep is as long.
            if self.ticks.instant(until).is_some() {
                now = until;
            }
        }
    }

    /// Returns the deadline of a value.
    ///
    /// # Panics
    ///
    /// If the key names none.
    #[must_use]
    #[track_caller]
    pub fn deadline(&self, key: &Key) -> Instant {
        let deadline = self.peeked(|wheel| wheel.deadline(*key));
        self.instant(deadline.expect("invalid key"))
    }

    /// Takes a value out.
    ///
    /// # Panics
    ///
    /// If the key names none.
    #[track_caller]
    pub fn remove(&mut self, key: &Key) -> Expired<T> {
        self.try_remove(key).expect("invalid key")
    }

    /// Takes a value out, or returns None if the key names none.
    pub fn try_remove(&mut self, key: &Key) -> Option<Expired<T>> {
        let deadline = self.wheel().deadline(*key)?;
        let value = self.wheel().cancel(*key)?;
        self.leaves(deadline);
        if self.wheel().is_empty() {
            // The task learns that there is nothing to wait for.
            self.wake();
        }
        Some(self.expired(*key, deadline, value))
    }

    /// Moves a value to `deadline`, earlier or later.
    ///
    /// # Panics
    ///
    /// If the key names none.
    #[track_caller]
    pub fn reset_at(&mut self, key: &Key, deadline: Instant) {
        self.reset_by(key, self.ticks.deadline(deadline.into_std()));
    }

    #[track_caller]
    fn reset_by(&mut self, key: &Key, tick: u64) {
        let deadline = self.wheel().deadline(*key).expect("invalid key");
        let tick = self.not_past(tick);
        let is_first = self.is_first(tick);
        self.wheel().reschedule(*key, tick);
        if is_first {
            self.wait = None;
            self.wake();
        } else {
            self.leaves(deadline);
        }
    }

    /// Moves a value to `timeout` from now, or to never if no instant can hold that.
    ///
    /// # Panics
    ///
    /// If the key names none.
    #[track_caller]
    pub fn reset(&mut self, key: &Key, timeout: Duration) {
        self.reset_by(key, self.after(timeout));
    }

    /// Drops all values.
    pub fn clear(&mut self) {
        if self.is_empty() {
            return;
        }
        self.wait = None;
        // A value may panic in its `Drop`.
        self.wake();
        self.wheel().clear();
    }

    /// Gives back memory that the values do not need. Keys stay good.
    pub fn shrink_to_fit(&mut self) {
        self.compact();
    }

    /// Gives back memory that the values do not need. Keys stay good.
    pub fn compact(&mut self) {
        self.wheel().shrink_to_fit();
        self.capacity = self.wheel().len();
    }

    /// Makes room for `additional` values.
    ///
    /// # Panics
    ///
    /// As tokio-util's: if there would be room for 2^30 values or more.
    #[track_caller]
    pub fn reserve(&mut self, additional: usize) {
        let room = MAX_ENTRIES.saturating_sub(self.capacity);
        assert!(additional <= room, "max queue capacity exceeded");
        self.wheel().reserve(additional);
        self.capacity = self.capacity.max(self.len().saturating_add(additional));
    }

    /// Returns the key of the value that comes out next.
    #[must_use]
    pub fn peek(&self) -> Option<Key> {
        self.peeked(|wheel| wheel.peek().map(|(key, ..)| key))
    }

    /// Returns how many values there is room for, at least.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns how many values wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.peeked(|wheel| wheel.len())
    }

    /// Returns whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn wheel(&mut self) -> &mut Wheel<T> {
        self.wheel.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    fn peeked<R>(&self, look: impl FnOnce(&mut Wheel<T>) -> R) -> R {
        look(&mut self.wheel.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Begins to wait for the earliest deadline, or for a tick before it if that takes long to find.
    fn wait_for_earliest(&mut self) -> Wait {
        self.look();
        let until = self.wheel().next_wake().unwrap_or(u64::MAX);
        Wait { sleep: sleep_until(self.instant(until)), until }
    }

    /// Makes the wheel wake at the earliest deadline, and no sooner, unless that takes long to find.
    fn look(&mut self) {
        _ = self.wheel().next_deadline_bounded(&mut { LOOKS });
    }

    /// Returns whether `tick` is before what the task waits for, or would.
    fn is_first(&mut self, tick: u64) -> bool {
        if self.wait.is_none() && self.waker.is_some() {
            self.look();
        }
        let wait = self.wait.as_ref().map(|wait| wait.until);
        wait.or_else(|| self.wheel().next_wake()).is_none_or(|until| tick < until)
    }

    /// Waits for the earliest deadline that is left, if what was at `deadline` is gone and may have
    /// been the earliest. Among many values that would cost more than what it saves: the task may
    /// wake once in vain, however many leave before that.
    fn leaves(&mut self, deadline: u64) {
        let is_among_few = self.wheel().len() <= LOOKS;
        let was_earliest = |wait: &mut Wait| is_among_few && deadline <= wait.until;
        let Some(mut wait) = self.wait.take_if(was_earliest) else { return };
        self.look();
        // With no waker the task is about to poll.
        let (Some(until), Some(waker)) = (self.wheel().next_wake(), &self.waker) else { return };
        if wait.until < until {
            wait.sleep.waits_anew(self.instant(until), waker);
            wait.until = until;
        }
        self.wait = Some(wait);
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    fn expired(&self, key: Key, deadline: u64, value: T) -> Expired<T> {
        Expired { key, deadline: self.instant(deadline), value }
    }

    /// Returns the tick for a deadline: what has come counts from where the queue is, as in
    /// tokio-util's.
    fn not_past(&mut self, tick: u64) -> u64 {
        let tick = if tick < FIRST { tick.max(self.first()) } else { tick };
        tick.max(self.wheel().now())
    }

    /// Returns the tick at which the queue was made, or the present, if a paused clock stands
    /// before that.
    fn first(&self) -> u64 {
        self.ticks.now(Instant::now().into_std()).min(FIRST)
    }

    /// Returns the tick `timeout` from now, or the end of time if no instant can hold it.
    fn after(&self, timeout: Duration) -> u64 {
        self.ticks.after(Instant::now().into_std(), timeout)
    }

    /// Returns the instant of a tick, or one in about 30 years if an instant cannot hold it.
    fn instant(&self, tick: u64) -> Instant {
        let far = || Instant::now() + at_most_30_years(Duration::MAX);
        self.ticks.instant(tick).map_or_else(far, Instant::from_std)
    }
}

impl<T> Unpin for DelayQueue<T> {}

impl<T> Default for DelayQueue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for DelayQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DelayQueue").field("len", &self.len()).finish_non_exhaustive()
    }
}

impl<T> Stream for DelayQueue<T> {
    type Item = Expired<T>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_expired(context)
    }
}

impl<T> Expired<T> {
    /// Returns the value.
    pub fn get_ref(&self) -> &T {
        &self.value
    }

    /// Returns the value.
    pub fn get_mut(&mut self) -> &mut T {
        &mut self.value
    }

    /// Returns the value.
    pub fn into_inner(self) -> T {
        self.value
    }

    /// Returns the deadline.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Returns the key that it had.
    #[must_use]
    pub fn key(&self) -> Key {
        self.key
    }
}

/// At how many timeouts the queue looks to save a wake-up.
const LOOKS: usize = 64;

/// For how many values tokio-util's queue makes room.
const MAX_ENTRIES: usize = (1 << 30) - 1;

/// How long before the queue was made its ticks begin: the paused clock of a runtime that uses it
/// later may stand before that.
const PAST: Duration = Duration::from_secs(366 * 86_400);

/// The tick at which a queue is made.
const FIRST: u64 = PAST.as_secs() * 1_000;
