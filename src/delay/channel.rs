//! A delay queue that any number of threads fill, and one task or thread empties.

use super::{Delayed, Source, WORK};
use crate::platform::Instant;
use crate::sync::{
    AtomicU64, AtomicUsize, Mutex, MutexGuard, Ordering, Rank, ThreadId, lock, lock_soon,
    this_thread,
};
use crate::ticks::NEVER;
use crate::timer::{Hub, Shard, of_this_thread};
use crate::wheel::Memory;
use crate::{Expired, Key, Timer, Wheel};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::mem::replace;
use core::task::Waker;
use core::time::Duration;
use crossbeam_utils::CachePadded;
use std::sync::PoisonError;

/// Makes a channel on `timer` whose values come out when their time has come.
///
/// Clones of the [`DelaySender`] insert, move and remove values, from any thread. The
/// [`DelayReceiver`] hands them out by deadline, to a task that [awaits](DelayReceiver::next) them
/// or to a thread that [blocks](DelayReceiver::recv). Clones of the receiver share the values: each
/// goes to one of them. A program that fills and empties a queue in one place takes a
/// [`DelayQueue`](crate::DelayQueue), which needs no lock.
///
/// # The end
///
/// - When all senders are gone, or one end has called [`close`](DelaySender::close), the receivers
///   get each value that is left at its deadline, and then None.
/// - [`drain`](DelayReceiver::drain) takes out at once what is left, so that the receivers end now.
/// - Stopping the timer is a shutdown that each receiver sees: a wait gives the values that are
///   due, and then an error and None. `drain` gives the others.
/// - A channel that was closed, or has no receiver, or whose timer was stopped, takes no values: an
///   insertion gives its value back. So no value is lost without a word: each one that the channel
///   took comes out, or a caller removes it, or the last receiver drops it.
///
/// # What it promises
///
/// A channel has as many shards as its timer. Each thread inserts into one of them, and a task on
/// the timer's worker into that of its own timeout. So threads that insert at once do not wait for
/// each other, and do not write to the same memory.
///
/// - Of the values that are due when a receiver looks, the one with the earliest deadline comes out
///   first. Values of equal deadlines come out in the order in which their shard got them. The
///   order between shards is unspecified for equal deadlines; a timer with
///   [one shard](crate::TimerBuilder::shards) has no such case.
/// - A call that inserts, moves or removes a value takes the lock of one shard, for constant time,
///   amortised. A receiver that looks may take the locks of several shards, one after the other. So
///   do `len`, `is_empty`, `close`, the drop of the last sender or receiver, and the removal of
///   what may be the last value of a closed channel.
/// - No caller waits for more than a bounded batch of work, unless a receiver calls
///   [`drain`](DelayReceiver::drain) or [`shrink_to_fit`](Delayed::shrink_to_fit). The call that
///   takes the last of many values out of a shard gives back their memory, with no lock held, which
///   takes milliseconds after a million. No foreign code runs under a lock: not a waker, not the
///   `Drop` of a value.
/// - Each receiver that waits is woken for the value that is due next, and one of them gets it. So
///   no receiver that is dropped, or does not look, holds up another.
/// - A sender wakes a receiver only for a value that is due earlier than all others that the
///   receiver knew of, or while the receiver looks. The call after which no value is left and none
///   can come wakes all receivers that wait: the drop of the last sender, `close`, `remove` or
///   `drain`. A call that wakes receivers goes through all of them.
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
    let (shard, shards) = (timer.shard(), timer.shards());
    let new = |_| CachePadded::new(Mutex::new(Rank::Channel, State::new(Wheel::new(shard.mode()))));
    let mut waiting = Waiting { receivers: BTreeMap::new(), last: 0 };
    let number = waiting.add();
    let shared = Arc::new(Shared {
        timer: Arc::clone(shard),
        shards: (0..shards).map(new).collect(),
        next: (0..shards).map(|_| AtomicU64::new(NEVER)).collect(),
        senders: AtomicUsize::new(1),
        waiting: CachePadded::new(Mutex::new(Rank::Channel, waiting)),
    });
    let channel = Channel { shared: Arc::clone(&shared), number, now: 0, waker: None };
    (DelaySender(shared), Delayed::on(timer, channel))
}

/// Fills a delay channel, from [`delay_channel`]. Clones fill the same channel.
pub struct DelaySender<T>(Arc<Shared<T>>);

/// Hands out the values of a delay channel, from [`delay_channel`], in one of the ways of
/// [`Delayed`]. Ends when no value is left, and all senders are gone or the channel was closed.
/// Clones hand out the values of the same channel, each value once.
///
/// Dropping the last one drops the values that are left, and from then on the channel takes no
/// values.
pub type DelayReceiver<T> = Delayed<Channel<T>>;

/// Names one value of one delay channel, and nothing once that value is gone, as a [`Key`] does in
/// a wheel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DelayKey {
    shard: u32,
    key: Key,
}

/// Says that a delay channel takes no values, and gives back the one that it did not take:
/// [`into_value`](Self::into_value).
///
/// `?` makes a `Box<dyn Error + Send + Sync>` of it for each value that is `Send`.
pub struct SendError<T> {
    /// Never locked: it lets threads share the error, whether or not they can share the value.
    value: std::sync::Mutex<T>,
}

/// Ticks are those of the timer. A thread holds one of these locks at a time.
struct Shared<T> {
    /// Any shard of the timer.
    timer: Arc<Shard>,
    shards: Box<[CachePadded<Mutex<State<T>>>]>,
    /// For each shard a tick that is not after any deadline in it. Written under the lock of the
    /// shard, and released to those that read it: a receiver that reads here that a shard is empty
    /// sees that the senders are gone, if the last of them found a value there.
    ///
    /// No two shards have a line of memory of their own for it, because receivers read all of
    /// these, and a thread that inserts reads and writes it only for a value that comes first.
    next: Box<[AtomicU64]>,
    /// How many there are, and [`CLOSED`] once all shards are closed.
    senders: AtomicUsize,
    waiting: CachePadded<Mutex<Waiting>>,
}

/// A shard.
struct State<T> {
    wheel: Wheel<T>,
    /// It takes no values.
    is_closed: bool,
    /// Each receiver that waits looks at this tick at the latest, or has been woken. So a value
    /// that is not due before it needs no wake-up.
    told: u64,
    /// How often a receiver has looked, and made `told` the next tick of the wheel.
    looks: u64,
    /// How many threads have yet to wake the receivers that would look too late for a value.
    telling: u32,
    /// How many values were inserted or moved since the wheel last gave back its memory.
    placed: u64,
}

struct Waiting {
    /// All that there are, by number: numbers are not used again.
    receivers: BTreeMap<u64, Waiter>,
    /// The last number that was given to a receiver.
    last: u64,
}

struct Waiter {
    /// To be woken for a value that is due before `watched`, and when the channel is over.
    waker: Option<Arc<Waker>>,
    watched: u64,
    /// The last thread that woke it since it looked, or is about to. Other threads wake it, too,
    /// because that one may have lost its core before it does.
    woken_by: Option<ThreadId>,
}

impl<T> DelaySender<T> {
    /// Inserts `value`, to come out `delay` from now, and returns its key.
    ///
    /// # Errors
    ///
    /// If the channel [is closed](Self::is_closed). The error gives the value back.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tickwheel::{Timer, delay_channel};
    ///
    /// let timer = Timer::new();
    /// let (sender, receiver) = delay_channel(&timer);
    /// drop(receiver);
    /// let error = sender.insert("value", Duration::ZERO).unwrap_err();
    /// assert_eq!(error.into_value(), "value");
    /// ```
    pub fn insert(&self, value: T, delay: Duration) -> Result<DelayKey, SendError<T>> {
        self.0.schedule(value, self.0.hub().deadline_after(delay))
    }

    /// Inserts `value`, to come out at `deadline`, or at once if that has passed, and returns its
    /// key.
    ///
    /// # Errors
    ///
    /// Those of [`insert`](Self::insert).
    pub fn insert_at(&self, value: T, deadline: Instant) -> Result<DelayKey, SendError<T>> {
        self.0.schedule(value, self.0.hub().ticks.deadline(deadline))
    }

    /// Inserts `value`, to come out at tick `deadline` of the timer, also if that was stopped.
    pub(crate) fn insert_at_tick(&self, value: T, deadline: u64) -> Result<DelayKey, SendError<T>> {
        self.0.place(value, deadline, || false)
    }

    /// Removes the value that `key` names, and returns it. Returns None if it is gone: it came out,
    /// or a sender removed it, or the receivers are gone. If the call returns the value, no
    /// receiver ever gets it.
    ///
    /// Cost: O(1) amortised, O(p) in one call.
    pub fn remove(&self, key: DelayKey) -> Option<T> {
        let mut state = self.0.lock(key.shard as usize)?;
        let value = state.wheel.cancel(key.key)?;
        let memory = state.take_memory_if_emptied();
        let may_be_last = state.is_closed && state.wheel.is_empty();
        drop(state);
        drop(memory);
        if may_be_last {
            self.0.wake_if_over();
        }
        Some(value)
    }

    /// Moves the deadline of the value that `key` names to `delay` from now, earlier or later than
    /// it was, and returns whether the value is there. The key stays good.
    ///
    /// The value counts as inserted anew: among equal deadlines it comes out last.
    pub fn reset(&self, key: DelayKey, delay: Duration) -> bool {
        self.0.reschedule(key, self.0.hub().deadline_after(delay))
    }

    /// Moves the deadline to `deadline`, and is like [`reset`](Self::reset) otherwise. A deadline
    /// in the past is due at once.
    pub fn reset_at(&self, key: DelayKey, deadline: Instant) -> bool {
        self.0.reschedule(key, self.0.hub().ticks.deadline(deadline))
    }

    /// Returns the number of values, with those that are due. Locks one shard after the other, so
    /// a value that goes while another comes may count twice, or not at all.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there are no values, as [`len`](Self::len) counts them.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Closes the channel: it takes no values any more, from senders and from receivers. The
    /// receivers get those that are left, each at its deadline, and then None. A value that is left
    /// can be removed and moved.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tickwheel::{Timer, delay_channel};
    ///
    /// let timer = Timer::new();
    /// let (sender, mut receiver) = delay_channel(&timer);
    /// sender.insert("job", Duration::from_millis(5))?;
    /// let worker = std::thread::spawn(move || {
    ///     let mut done = 0;
    ///     while let Some(Ok(_job)) = receiver.recv() {
    ///         done += 1;
    ///     }
    ///     done
    /// });
    /// sender.close(); // there may be other senders
    /// assert!(sender.insert("late", Duration::ZERO).is_err());
    /// assert_eq!(worker.join().unwrap(), 1);
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub fn close(&self) {
        self.0.close();
    }

    /// Returns whether the channel takes no values: it was closed, or its receivers are gone, or its
    /// timer was stopped.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    /// Returns whether the receivers are gone, or the channel was closed.
    pub(crate) fn takes_none(&self) -> bool {
        self.0.takes_none()
    }
}

impl<T> Shared<T> {
    fn schedule(&self, value: T, deadline: u64) -> Result<DelayKey, SendError<T>> {
        self.place(value, deadline, || self.timer.is_stopped())
    }

    /// Inserts `value`, unless the channel was closed, or `is_stopped` says that nobody may wait
    /// for it. It says so under the lock of the shard: who drains after the stop misses no value.
    fn place(
        &self,
        value: T,
        deadline: u64,
        is_stopped: impl FnOnce() -> bool,
    ) -> Result<DelayKey, SendError<T>> {
        let (number, mut state) = self.of_this_thread();
        if state.is_closed || is_stopped() {
            return Err(SendError { value: std::sync::Mutex::new(value) });
        }
        let key = state.wheel.schedule(deadline, value);
        self.release(number, state, deadline);
        Ok(DelayKey { shard: number as u32, key })
    }

    fn reschedule(&self, DelayKey { shard, key }: DelayKey, deadline: u64) -> bool {
        let number = shard as usize;
        let Some(mut state) = self.lock(number) else { return false };
        let is_there = state.wheel.reschedule(key, deadline);
        if is_there {
            self.release(number, state, deadline);
        }
        is_there
    }

    /// Takes no values any more, and wakes the receivers if none is left.
    fn close(&self) {
        for shard in &self.shards {
            lock_soon(shard).is_closed = true;
        }
        // A receiver that begins to wait is in `waiting` before it reads this.
        self.senders.fetch_or(CLOSED, Ordering::AcqRel);
        self.wake_if_over();
    }

    fn is_closed(&self) -> bool {
        self.timer.is_stopped() || self.takes_none()
    }

    fn takes_none(&self) -> bool {
        self.senders.load(Ordering::Acquire) & CLOSED > 0
    }

    /// Locks the shard of this thread.
    fn of_this_thread(&self) -> (usize, MutexGuard<'_, State<T>>) {
        let (number, shard) = of_this_thread(&self.shards);
        (number, lock_soon(shard))
    }

    /// Returns None for a key of another channel.
    fn lock(&self, number: usize) -> Option<MutexGuard<'_, State<T>>> {
        self.shards.get(number).map(|shard| lock_soon(shard))
    }

    /// Releases the lock of a shard after a value was placed, and wakes the receivers that would
    /// look too late.
    #[inline]
    fn release(&self, number: usize, mut state: MutexGuard<'_, State<T>>, deadline: u64) {
        state.placed += 1;
        if deadline < state.told {
            self.tell(number, state, deadline);
        }
    }

    /// Wakes the receivers, and only then lowers `told`: a thread that loses its core in between
    /// holds up no value of another.
    ///
    /// A receiver that begins to wait is in `waiting` before it reads `next`. So it reads what this
    /// wrote, or is found here.
    #[cold]
    fn tell(&self, number: usize, mut state: MutexGuard<'_, State<T>>, deadline: u64) {
        let next = &self.next[number];
        next.store(deadline.min(next.load(Ordering::Relaxed)), Ordering::Release);
        let looks = state.looks;
        state.telling += 1;
        drop(state);
        self.wake_those(|waiter| deadline < waiter.watched);
        let mut state = lock_soon(&self.shards[number]);
        state.telling -= 1;
        // A look meanwhile found the value, or that it has gone, and made `told` exact.
        if state.looks == looks {
            state.told = state.told.min(deadline);
        }
    }

    /// Makes what is known of a shard exact, which a receiver has locked.
    fn looked(&self, number: usize, state: &mut State<T>) -> u64 {
        let next = state.wheel.next_wake().unwrap_or(NEVER);
        // Another receiver may not have been woken yet for a value that this one knows of now.
        state.told = if state.telling == 0 { next } else { state.told.max(next) };
        state.looks += 1;
        // The receivers share a line of memory with others, and mostly it is the same tick.
        if self.next[number].load(Ordering::Relaxed) != next {
            self.next[number].store(next, Ordering::Release);
        }
        next
    }

    /// Returns the number of the shard with the earliest tick, that tick, and the earliest one of
    /// all other shards.
    fn earliest(&self) -> (usize, u64, u64) {
        let mut found = (0, NEVER, NEVER);
        for (number, next) in self.next.iter().enumerate() {
            let next = next.load(Ordering::Acquire);
            if next < found.1 {
                found = (number, next, found.1);
            } else {
                found.2 = found.2.min(next);
            }
        }
        found
    }

    /// Returns whether no value is left and none can come.
    fn is_over(&self) -> bool {
        let senders = self.senders.load(Ordering::Acquire);
        (senders == 0 || senders & CLOSED > 0) && self.is_empty()
    }

    fn wake_if_over(&self) {
        if self.is_over() {
            self.wake_those(|_| true);
        }
    }

    fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| lock_soon(shard).wheel.is_empty())
    }

    fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock_soon(shard).wheel.len()).sum()
    }

    /// Wakes the receivers that wait, and of which that is true, with no lock held. The timer is
    /// told of a panic, which must fail neither a sender nor another task that waits.
    fn wake_those(&self, is_one: impl Fn(&Waiter) -> bool) {
        let mut last = 0;
        loop {
            let next = lock(&self.waiting).next_to_wake(last, &is_one);
            let Some((number, waker)) = next else { return };
            last = number;
            self.hub().guarded(|| waker.wake_by_ref());
            self.let_go(Some(waker));
        }
    }

    /// Drops a waker, as [`wake_those`](Self::wake_those) wakes one.
    fn let_go(&self, waker: Option<Arc<Waker>>) {
        self.hub().guarded(|| drop(waker));
    }

    fn hub(&self) -> &Hub {
        &self.timer.hub
    }
}

impl<T> State<T> {
    fn new(wheel: Wheel<T>) -> Self {
        Self { wheel, is_closed: false, told: NEVER, looks: 0, telling: 0, placed: 0 }
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
}

impl Waiting {
    /// Adds a receiver, and returns its number.
    fn add(&mut self) -> u64 {
        self.last += 1;
        let waiter = Waiter { waker: None, watched: NEVER, woken_by: None };
        self.receivers.insert(self.last, waiter);
        self.last
    }

    /// Returns the next receiver after number `last` that waits, that this thread has not woken,
    /// and of which that is true. It counts as woken.
    fn next_to_wake(
        &mut self,
        last: u64,
        is_one: impl Fn(&Waiter) -> bool,
    ) -> Option<(u64, Arc<Waker>)> {
        let this_thread = Some(this_thread());
        self.receivers.range_mut(last + 1..).find_map(|(&number, waiter)| {
            let waker = waiter.waker.as_ref().filter(|_| is_one(waiter))?;
            let woken_by = replace(&mut waiter.woken_by, this_thread);
            (woken_by != this_thread).then(|| (number, Arc::clone(waker)))
        })
    }
}

impl<T> Clone for DelaySender<T> {
    fn clone(&self) -> Self {
        self.0.senders.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(&self.0))
    }
}

impl<T> Drop for DelaySender<T> {
    fn drop(&mut self) {
        // A receiver that begins to wait is in `waiting` before it reads the count.
        if self.0.senders.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.wake_if_over();
        }
    }
}

/// The end of a receiver. Nothing outside of this crate can name it.
#[expect(missing_debug_implementations, unnameable_types, reason = "it is sealed")]
pub struct Channel<T> {
    shared: Arc<Shared<T>>,
    /// Of this receiver, among those of the channel.
    number: u64,
    /// The last tick at which it looked.
    now: u64,
    /// The waker that senders wake.
    waker: Option<Arc<Waker>>,
}

impl<T> Channel<T> {
    /// Drives the channel to tick `now`, or nowhere if there is none, takes out values that are due,
    /// up to `most` of one shard, and gives each to `take` under the lock. Takes out none too if
    /// `work` is used up, from which it subtracts what it does.
    fn take_due(
        &mut self,
        now: Option<u64>,
        work: &mut usize,
        most: usize,
        mut take: impl FnMut(Expired<T, DelayKey>),
    ) {
        self.now = self.now.max(now.unwrap_or(0));
        let mut taken = 0;
        while taken == 0 && 0 < *work {
            let (number, next, others) = self.shared.earliest();
            if self.now < next {
                return;
            }
            // Senders have their turn while a bucket of a million is taken apart.
            let allowed = BATCH.min(*work);
            let mut left = allowed;
            let Some(mut state) = self.shared.lock(number) else { return };
            // What is due later than `others` comes after a value of another shard.
            let until = self.now.min(others);
            while taken < most {
                let expired = state.wheel.expire_until(self.now, until, &mut left);
                let Some(Expired { key, deadline, value }) = expired else { break };
                let key = DelayKey { shard: number as u32, key };
                take(Expired { key, deadline, value });
                taken += 1;
            }
            // If these were the last values and all senders are gone, the other receivers need no
            // wake-up: each looks again at the tick of the first of them, at the latest.
            self.shared.looked(number, &mut state);
            let memory = state.take_memory_if_emptied();
            drop(state);
            drop(memory);
            *work -= allowed - left;
        }
    }

    /// Says until when this receiver waits, unless it is woken, and who is to be woken then.
    fn wait_until(&self, watched: u64) {
        let mut waiting = lock(&self.shared.waiting);
        let waiter =
            waiting.receivers.get_mut(&self.number).expect("it is there until it is dropped");
        let waker = self.waker.clone();
        let replaced = replace(&mut waiter.waker, waker);
        (waiter.watched, waiter.woken_by) = (watched, None);
        drop(waiting);
        self.shared.let_go(replaced);
    }
}

impl<T> Source for Channel<T> {
    type Key = DelayKey;
    type Value = T;

    fn expire(&mut self, now: Option<u64>, work: &mut usize) -> Option<Expired<T, DelayKey>> {
        let mut first = None;
        self.take_due(now, work, 1, |expired| first = Some(expired));
        first
    }

    fn expire_some(
        &mut self,
        now: u64,
        mut most: usize,
        mut take: impl FnMut(Expired<T, DelayKey>),
    ) {
        let mut taken = Vec::with_capacity(most.min(AT_ONCE));
        while 0 < most {
            let at_once = most.min(AT_ONCE);
            self.take_due(Some(now), &mut { WORK }, at_once, |expired| taken.push(expired));
            if taken.is_empty() {
                return;
            }
            most -= taken.len();
            taken.drain(..).for_each(&mut take);
        }
    }

    fn watch(&mut self, waker: &Waker) -> Option<u64> {
        let is_known = self.waker.as_ref().is_some_and(|known| known.will_wake(waker));
        // With no lock held: a waker's `clone` is foreign code, too.
        let clone = if is_known { self.waker.clone() } else { Some(Arc::new(waker.clone())) };
        let replaced = replace(&mut self.waker, clone);
        self.wait_until(NEVER);
        self.shared.let_go(replaced);
        let next = loop {
            let (number, next, _) = self.shared.earliest();
            let Some(mut state) = self.shared.lock(number).filter(|_| next < NEVER) else {
                break NEVER;
            };
            if self.shared.looked(number, &mut state) == next {
                break next;
            }
        };
        if next == NEVER {
            // It waits already: another receiver may insert a value even if all is over.
            return (!self.shared.is_over()).then_some(NEVER);
        }
        self.wait_until(next);
        Some(next)
    }

    fn unwatch(&mut self) {
        if let Some(waker) = self.waker.take() {
            self.wait_until(NEVER);
            self.shared.let_go(Some(waker));
        }
    }

    fn is_over(&self) -> bool {
        self.shared.is_over()
    }

    fn len(&self) -> usize {
        self.shared.len()
    }

    fn shrink_to_fit(&mut self) {
        self.shared.shards.iter().for_each(|shard| lock_soon(shard).wheel.shrink_to_fit());
    }
}

impl<T> Delayed<Channel<T>> {
    /// Inserts `value`, to come out `delay` from now, and returns its key: a value that came out is
    /// armed again.
    ///
    /// A receiver that ended before, because no sender and no value was left, is not woken for it
    /// if nobody polls it. If no sender is left, another receiver that looks during this call may
    /// end, too.
    ///
    /// # Errors
    ///
    /// Those of [`DelaySender::insert`].
    ///
    /// ```
    /// use std::time::Duration;
    /// use tickwheel::{Timer, delay_channel};
    ///
    /// let timer = Timer::new();
    /// let (sender, mut receiver) = delay_channel(&timer);
    /// sender.insert(3, Duration::from_millis(1))?;
    /// drop(sender);
    /// let mut attempts = 0;
    /// while let Some(due) = receiver.recv() {
    ///     attempts += 1;
    ///     let left = due?.value - 1;
    ///     if left > 0 {
    ///         receiver.insert(left, Duration::from_millis(1))?;
    ///     }
    /// }
    /// assert_eq!(attempts, 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn insert(&self, value: T, delay: Duration) -> Result<DelayKey, SendError<T>> {
        self.source.shared.schedule(value, self.hub().deadline_after(delay))
    }

    /// Inserts `value`, to come out at `deadline`, or at once if that has passed, and is like
    /// [`insert`](Self::insert) otherwise.
    ///
    /// # Errors
    ///
    /// Those of [`DelaySender::insert`].
    pub fn insert_at(&self, value: T, deadline: Instant) -> Result<DelayKey, SendError<T>> {
        self.source.shared.schedule(value, self.hub().ticks.deadline(deadline))
    }

    /// Closes the channel, as [`DelaySender::close`] does.
    pub fn close(&self) {
        self.source.shared.close();
    }

    /// Returns whether the channel takes no values, as [`DelaySender::is_closed`] does.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.source.shared.is_closed()
    }

    /// Returns an iterator that takes all values out, each with its key and its deadline, in no
    /// particular order. The deadline is None if the value never comes out.
    ///
    /// The values have left the channel when the call returns, and dropping the iterator drops
    /// those that are left. The shards are locked meanwhile, one after the other, so that senders
    /// wait. A value that a sender inserts at the same time may stay.
    ///
    /// Cost: O(n + p).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tickwheel::{Timer, delay_channel};
    ///
    /// let timer = Timer::new();
    /// let (sender, mut receiver) = delay_channel(&timer);
    /// let key = sender.insert("unsent", Duration::from_secs(60))?;
    /// timer.stop()?;
    /// for (drained, deadline, value) in receiver.drain() {
    ///     assert_eq!((drained, value), (key, "unsent"));
    ///     let left = deadline.expect("it would come out") - timer.now();
    ///     assert!(left <= Duration::from_secs(61));
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn drain(&mut self) -> impl Iterator<Item = (DelayKey, Option<Instant>, T)> + use<T> {
        let shared = &self.source.shared;
        let take = |(shard, state): (usize, &CachePadded<Mutex<State<T>>>)| {
            let mut state = lock_soon(state);
            let drained: Vec<_> = state.wheel.drain().collect();
            self.source.shared.looked(shard, &mut state);
            let memory = state.take_memory_if_emptied();
            drop(state);
            drop(memory);
            (shard as u32, drained)
        };
        let drained: Vec<_> = shared.shards.iter().enumerate().map(take).collect();
        shared.wake_if_over();
        let ticks = shared.hub().ticks;
        drained.into_iter().flat_map(move |(shard, drained)| {
            drained.into_iter().map(move |Expired { key, deadline, value }| {
                (DelayKey { shard, key }, ticks.instant(deadline), value)
            })
        })
    }
}

impl<T> Clone for Channel<T> {
    fn clone(&self) -> Self {
        let shared = Arc::clone(&self.shared);
        let number = lock(&shared.waiting).add();
        Self { shared, number, now: self.now, waker: None }
    }
}

impl<T> Drop for Channel<T> {
    fn drop(&mut self) {
        self.unwatch();
        let mut waiting = lock(&self.shared.waiting);
        waiting.receivers.remove(&self.number);
        let is_last = waiting.receivers.is_empty();
        drop(waiting);
        if !is_last {
            return;
        }
        let close = |shard: &CachePadded<Mutex<State<T>>>| {
            let mut state = lock_soon(shard);
            state.is_closed = true;
            let mode = state.wheel.mode();
            replace(&mut state.wheel, Wheel::new(mode))
        };
        // All are closed before a value is dropped, which may panic, or call the channel.
        let left: Vec<_> = self.shared.shards.iter().map(close).collect();
        self.shared.senders.fetch_or(CLOSED, Ordering::AcqRel);
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

impl<T> SendError<T> {
    /// Returns the value that the channel did not take.
    pub fn into_value(self) -> T {
        self.value.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> fmt::Debug for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendError").finish_non_exhaustive()
    }
}

impl<T> fmt::Display for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "the delay channel is closed, or its receivers are gone, or its timer is stopped",
        )
    }
}

impl<T> core::error::Error for SendError<T> {}

/// Units of work of the wheel at once, under the lock.
const BATCH: usize = 128;

/// The most values that leave a shard under one lock.
const AT_ONCE: usize = 32;

/// In `senders`: the channel was closed.
const CLOSED: usize = 1 << (usize::BITS - 1);

/// A shard that is emptied gives back its memory after so many values, or more.
const MANY: u64 = 1_024;

const _: () = assert!(size_of::<Option<DelayKey>>() <= 12, "a key is small");

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::ManualClock;

    #[test]
    fn a_channel_has_as_many_shards_as_its_timer() {
        for shards in [1, 3] {
            let builder = Timer::builder().shards(shards).clock(ManualClock::new());
            let (sender, _receiver) = delay_channel::<()>(&builder.build().expect("in range"));
            assert_eq!((sender.0.shards.len(), sender.0.next.len()), (shards, shards));
        }
    }

    /// Else each value would be told, however late it comes.
    #[test]
    fn once_the_receivers_know_of_a_value_nobody_is_telling() {
        let builder = Timer::builder().shards(1).clock(ManualClock::new());
        let timer = builder.build().expect("in range");
        let (sender, mut receiver) = delay_channel(&timer);
        sender.insert((), Duration::from_secs(1)).expect("it runs");
        assert!(receiver.try_recv().is_none());
        let state = lock_soon(&sender.0.shards[0]);
        assert_eq!((state.telling, state.told < NEVER), (0, true));
    }
}
