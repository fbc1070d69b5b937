//! The handle to one timeout.
//!
//! A timeout that fires once has no state of its own. It is pending as long as its key finds it, in
//! the wheel or among what is due. The worker moves up to 64 timeouts from the wheel to that place
//! under the shard's lock, and takes them from there one by one, under the lock of that place
//! alone. `cancel`, `reschedule` and `stop` have the shard's lock when they look in both, so they
//! miss none on its way. The thread that takes a timeout out of either ends it. A handle whose key
//! finds nothing remembers that it cancelled, or finds its key among those that `stop` took out, or
//! else it fired. A repeating timeout has a new key for each run, so it has a state behind a lock,
//! and ends when that becomes `Ended`.
//!
//! | case | what happens | `tests/loom.rs` |
//! |---|---|---|
//! | moved later, or cancelled, while it comes due | the shard's lock decides which came first | `moved_later_as_it_fires_it_fires_or_waits`, `cancelled_as_it_fires_it_has_one_end` |
//! | two threads cancel, or one moves and one cancels | likewise | `cancelled_by_two_threads_it_is_cancelled_once`, `moved_by_one_thread_and_cancelled_by_another_it_has_one_end` |
//! | asked while it is cancelled | the handle is marked under the lock, so no thread sees the key gone without the mark | `asked_as_it_is_cancelled_it_has_not_fired` |
//! | taken from the wheel, and cancelled, moved, stopped, or behind a panic | it is found among what is due; moved, it goes back to the wheel under a new key, which all handles learn | `cancelled_behind_a_task_it_has_one_end`, `moved_behind_a_task_it_fires_or_waits_and_its_handle_finds_it`, `moved_behind_a_task_by_one_handle_the_other_finds_it`, `stopped_behind_a_task_it_fires_or_comes_back`, `behind_a_task_that_panics_it_fires` |
//! | a repeating one is cancelled while it runs | the run ends, finds that, and drops the task | `repeating_and_cancelled_as_it_runs_it_runs_no_more` |
//! | cancelled and waited for while it runs, ends, panics | the worker says which timeout it runs; an executor's tasks are listed until they are over | `cancelled_and_waited_for_as_it_runs_it_is_not_running`, `repeating_and_waited_for_as_it_runs_it_is_not_running`, `elsewhere_and_waited_for_as_it_runs_it_is_not_running`, `two_threads_wait_for_the_same_run` |
//! | cancelled by one thread, and waited for by another | the first says when it has dropped the task, and tells the second if that waits, or a clone that was made meanwhile | `cancelled_by_one_thread_it_has_been_dropped_when_another_has_waited`, `cancelled_by_one_thread_it_has_been_dropped_when_a_task_has_awaited_that`, `cancelled_as_it_is_cloned_it_has_been_dropped_when_the_clone_has_waited` |
//! | a handle is cloned while it is cancelled or moved | clones share what they know from the first clone on, under the shard's lock | `cloned_as_it_is_cancelled_the_clone_tells_its_end`, `cloned_as_it_is_moved_the_clone_tells_its_deadline` |

use super::awaiting::Place;
use super::error::StopError;
use super::inside;
use super::repeat::{Phase, RepeatState, Repeating};
use super::shard::{Shard, ShardState};
use super::task::Status;
use crate::Key;
use crate::platform::Instant;
use crate::sync::{AtomicU32, AtomicU64, Ordering, wait};
use alloc::sync::Arc;
use core::fmt;
use core::future::poll_fn;
use core::mem::replace;
use core::ops::{Deref, RangeInclusive};
use core::task::{Context, Poll};
use core::time::Duration;
use std::sync::OnceLock;

/// The handle to one timeout of a [`Timer`](crate::Timer): cancels it, moves it, and tells what
/// became of it.
///
/// Dropping the handle changes nothing: the task runs when it is due. The handle can outlive the
/// timer. Clones are handles to the same timeout. A [`TimeoutGuard`] cancels the timeout when it is
/// dropped.
///
/// ```
/// use std::time::Duration;
/// use tickwheel::{ManualClock, Status, Timer};
///
/// let clock = ManualClock::new();
/// let timer = Timer::builder().clock(clock.clone()).build()?;
/// let request = timer.schedule(Duration::from_secs(30), || println!("no answer"))?;
///
/// clock.advance(Duration::from_secs(20));
/// assert!(request.reschedule(Duration::from_secs(30))); // a sign of life
/// clock.advance(Duration::from_secs(20));
/// assert_eq!(request.status(), Status::Pending);
/// assert!(request.cancel()); // the answer
/// assert!(!request.cancel());
/// assert_eq!(request.status(), Status::Cancelled);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Timeout {
    pub(super) shard: Arc<Shard>,
    pub(super) kind: TimeoutKind,
}

pub(super) enum TimeoutKind {
    Once(Once),
    Repeating(Arc<Repeating>),
}

/// A timeout that fires once. Its task is in the wheel, and the handle knows what the wheel
/// forgets.
pub(super) struct Once {
    known: Known,
    /// In the place of `known` once there are clones. Set under the shard's lock.
    shared: OnceLock<Arc<Known>>,
}

/// Written under the shard's lock.
pub(super) struct Known {
    /// Changes if the timeout is moved when it is out of the wheel already, and has not begun to
    /// run.
    key: AtomicU64,
    deadline: AtomicU64,
    /// Whether a thread cancelled it, and whether that thread has dropped the task.
    cancelled: AtomicU32,
}

impl Once {
    pub(super) fn known(&self) -> &Known {
        self.shared.get().map_or(&self.known, |shared| shared)
    }
}

impl Known {
    fn new(key: Key, deadline: u64, cancelled: u32) -> Self {
        Self {
            key: AtomicU64::new(key.to_bits()),
            deadline: AtomicU64::new(deadline),
            cancelled: AtomicU32::new(cancelled),
        }
    }

    /// The caller has the shard's lock.
    pub(super) fn key(&self) -> Key {
        Key::from_bits(self.key.load(Ordering::Relaxed))
    }

    pub(super) fn deadline(&self) -> u64 {
        self.deadline.load(Ordering::Relaxed)
    }

    /// The caller has the shard's lock.
    pub(super) fn moved(&self, key: Key, deadline: u64) {
        self.key.store(key.to_bits(), Ordering::Relaxed);
        self.deadline.store(deadline, Ordering::Relaxed);
    }

    fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed) != NO
    }

    /// Returns whether the thread that cancelled it has still to drop the task. If so, that thread
    /// notifies all when it has. The caller has the shard's lock.
    fn is_being_dropped(&self) -> bool {
        let (success, failure) = (Ordering::Acquire, Ordering::Acquire);
        let watched = self.cancelled.compare_exchange(DROPPING, WATCHED, success, failure);
        matches!(watched, Ok(_) | Err(WATCHED))
    }

    /// The caller has the shard's lock.
    fn copy(&self) -> Self {
        self.is_being_dropped();
        Self::new(self.key(), self.deadline(), self.cancelled.load(Ordering::Acquire))
    }
}

impl Timeout {
    /// Returns the handle to a timeout that is in the wheel of `shard`.
    #[inline]
    pub(super) fn once(shard: &Arc<Shard>, key: Key, deadline: u64) -> Self {
        let known = Known::new(key, deadline, NO);
        let kind = TimeoutKind::Once(Once { known, shared: OnceLock::new() });
        Self { shard: Arc::clone(shard), kind }
    }

    pub(super) fn repeating(shard: &Arc<Shard>, repeating: Arc<Repeating>) -> Self {
        Self { shard: Arc::clone(shard), kind: TimeoutKind::Repeating(repeating) }
    }

    /// Cancels the timeout, and returns whether it was still pending.
    ///
    /// True means that this call ended the timeout: the task never runs, and has been dropped with
    /// all that it captured. False means that the timeout had ended before.
    ///
    /// A repeating timeout can be cancelled while its task runs, from inside the task too: that run
    /// goes on to its end, no other begins, and the task is dropped after it.
    ///
    /// Cost: O(1) amortised, O(p) in one call.
    ///
    /// # Panics
    ///
    /// If dropping a value that the task captured panics. The timeout is cancelled nevertheless.
    pub fn cancel(&self) -> bool {
        match &self.kind {
            TimeoutKind::Once(once) => {
                let shard: &Shard = &self.shard;
                let mut state = shard.lock();
                let known = once.known();
                let Some(action) = shard.take(&mut state, known.key()) else { return false };
                known.cancelled.store(DROPPING, Ordering::Relaxed);
                // Freed after the task is dropped, which another thread may wait for.
                let _emptied = shard.release_cancelled(state);
                let _dropped = Dropped { shard, once, known };
                let _drops = inside::drops(shard.hub.id);
                drop(action);
                true
            }
            TimeoutKind::Repeating(repeating) => self.cancel_repeating(repeating),
        }
    }

    /// Cancels the timeout as [`cancel`](Self::cancel) does, and then waits until its task does not
    /// run: when this returns, the task is not running and never will, and has been dropped.
    ///
    /// True means that this call ended the timeout, false that it had ended before. This waits for
    /// a task that has begun to run, for one that the [`Executor`](crate::Executor) has, until the
    /// executor runs or drops it, and for one that another thread cancelled, until that thread has
    /// dropped it. A task that was pending when the timer was stopped belongs to the caller of
    /// [`stop`](crate::Timer::stop), or the last clone drops it. Do not hold a lock that the task
    /// takes.
    ///
    /// This is for resources that a late run would use after their end: a lease that is renewed
    /// after it was given up, or a buffer.
    ///
    /// Cost: O(1) amortised, O(p) in one call.
    ///
    /// # Errors
    ///
    /// If the call could wait for itself: inside a task of this timer, for example, and on each
    /// thread that has run one for its [`Executor`](crate::Executor), such as those of a runtime.
    /// The table at [`Timer`](crate::Timer) has all cases, which are those of
    /// [`stop`](crate::Timer::stop). The timeout is not cancelled then.
    ///
    /// # Panics
    ///
    /// As [`cancel`](Self::cancel).
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicBool, Ordering};
    /// use std::time::Duration;
    /// use tickwheel::{Next, Timer};
    ///
    /// let timer = Timer::new();
    /// let held = Arc::new(AtomicBool::new(true));
    /// let lease = Arc::clone(&held);
    /// let renewal = timer.schedule_with(Duration::ZERO, move |_| {
    ///     assert!(lease.load(Ordering::SeqCst), "renewed after it was given up");
    ///     Next::After(Duration::from_millis(1))
    /// })?;
    /// assert!(renewal.cancel_and_wait()?);
    /// held.store(false, Ordering::SeqCst);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cancel_and_wait(&self) -> Result<bool, StopError> {
        let hub = &self.shard.hub;
        let _waits = hub.may_wait().ok_or(StopError)?;
        let is_cancelled = self.cancel();
        match &self.kind {
            // Neither worker nor executor came along to a process that was forked meanwhile. What
            // they had there they have for ever, but for what a driver turns anew.
            _ if !hub.is_here() && !hub.has_turned_here() => {}
            TimeoutKind::Once(once) if !hub.is_here() => {
                self.shard.due.wait_for(once.known().key())
            }
            TimeoutKind::Repeating(repeating) if !hub.is_here() => {
                let key = repeating.lock().key();
                key.into_iter().for_each(|key| self.shard.due.wait_for(key));
            }
            TimeoutKind::Once(_) if is_cancelled => {}
            TimeoutKind::Once(once) => {
                let mut state = self.shard.lock();
                while once.known().is_being_dropped() {
                    state = wait(&self.shard.dropped, state);
                }
                // It has ended, so its key stays.
                let key = once.known().key();
                drop(state);
                self.shard.wait_for_end(key);
            }
            TimeoutKind::Repeating(repeating) => {
                // The executor has it, and may still run it, though the timer was stopped.
                let key = repeating.lock().key();
                if let Some(key) = key {
                    self.shard.wait_for_end(key);
                }
                repeating.wait_for_end();
            }
        }
        Ok(is_cancelled)
    }

    /// Does what [`cancel_and_wait`](Self::cancel_and_wait) does, and waits without blocking the
    /// thread: when the future is complete, the task is not running and never will, and has been
    /// dropped.
    ///
    /// This is the form for async code, also on the threads of a runtime that runs the tasks as the
    /// timer's [`Executor`](crate::Executor), where the one that blocks is an error. Elsewhere take
    /// the one that blocks, which also knows when threads wait for each other: do not block a
    /// thread on this future that the task needs to end.
    ///
    /// Nothing happens before the first poll, which cancels the timeout. Dropping the future after
    /// that ends the wait, and the timeout stays cancelled.
    ///
    /// Cost: O(1) amortised, O(p) in one call.
    ///
    /// # Errors
    ///
    /// If it is first polled inside a task of a timer, on a timer's worker, in the `Drop` of a value
    /// that a cancelled task captured, or under the lock of an
    /// [`ExpiringMap`](crate::ExpiringMap). The timeout is not cancelled then.
    ///
    /// # Panics
    ///
    /// As [`cancel`](Self::cancel), in the first poll.
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// use std::time::Duration;
    /// use tickwheel::{MissedTick, Timer};
    ///
    /// let timer = Timer::new();
    /// let renew = || std::ops::ControlFlow::Continue(());
    /// let period = Duration::from_millis(1);
    /// let renewal = timer.schedule_repeating(period, MissedTick::Skip, renew)?;
    /// tickwheel::sleep(period * 5).await?;
    /// assert!(renewal.cancel_and_wait_async().await?); // and from here on no renewal runs
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    pub async fn cancel_and_wait_async(&self) -> Result<bool, StopError> {
        if inside::is_inside() {
            return Err(StopError);
        }
        let is_cancelled = self.cancel();
        let mut awaits = Awaits { timeout: self, place: None };
        poll_fn(|context| awaits.poll(context)).await;
        Ok(is_cancelled)
    }

    /// Returns a guard that cancels the timeout when it is dropped, so that an early return does
    /// not leave the timeout behind.
    ///
    /// Dropping the guard costs what [`cancel`](Self::cancel) does:
    ///
    /// Cost: O(1) amortised, O(p) in one call.
    ///
    /// ```
    /// use std::io;
    /// use std::time::Duration;
    /// use tickwheel::Timer;
    ///
    /// fn request(timer: &Timer, answer: io::Result<u32>) -> Result<u32, Box<dyn std::error::Error>> {
    ///     let late = || println!("no answer yet");
    ///     let _late = timer.schedule(Duration::from_secs(1), late)?.cancel_on_drop();
    ///     Ok(answer?) // an error cancels the timeout, and so does an answer
    /// }
    ///
    /// let timer = Timer::new();
    /// assert!(request(&timer, Err(io::ErrorKind::ConnectionReset.into())).is_err());
    /// assert_eq!(timer.pending(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cancel_on_drop(self) -> TimeoutGuard {
        TimeoutGuard { timeout: Some(self) }
    }

    fn cancel_repeating(&self, repeating: &Repeating) -> bool {
        let mut shard_state = self.shard.lock();
        let mut state = repeating.lock();
        if self.status_of(&shard_state, &state) != Status::Pending {
            return false;
        }
        let phase = replace(&mut state.phase, Phase::Ended(Status::Cancelled));
        let task = match phase {
            Phase::Waiting(key, task) => {
                // The handle has it too.
                if self.shard.take(&mut shard_state, key).is_none() {
                    // The worker or the executor was about to run it.
                    shard_state.lane.due_cancelled(key);
                    self.shard.due.is_back();
                }
                state.is_held = true;
                Some(task)
            }
            // Its runner drops the task.
            Phase::Running => {
                self.shard.due.is_back();
                None
            }
            Phase::Ended(_) => unreachable!("it is pending"),
        };
        drop(state);
        let _emptied = self.shard.release_cancelled(shard_state);
        if let Some(task) = task {
            let _let_go = LetsGo(repeating, &self.shard);
            let _drops = inside::drops(self.shard.hub.id);
            drop(task);
        }
        true
    }

    /// Returns what became of a repeating timeout.
    fn status_of(&self, shard_state: &ShardState, state: &RepeatState) -> Status {
        match state.phase {
            Phase::Ended(status) => status,
            Phase::Waiting(key, _) if self.shard.holds(shard_state, key) => Status::Pending,
            _ if self.shard.ends_what_is_away(shard_state) => Status::Fired,
            _ => Status::Pending,
        }
    }

    /// Returns what tasks of async code are woken by when it ends, while a thread of this process
    /// runs the task, drops it, or has it for the executor. Returns None otherwise.
    fn run(&self) -> Option<u64> {
        let (shard, hub) = (&self.shard, &self.shard.hub);
        let is_here = hub.is_here();
        if !is_here && !hub.has_turned_here() {
            return None;
        }
        let runs = |key: Key| {
            let runs = shard.due.runs(key) || is_here && shard.handed_over.has(key);
            runs.then(|| key.to_bits())
        };
        match &self.kind {
            TimeoutKind::Once(once) => {
                let state = shard.lock();
                let key = once.known().key();
                if is_here && once.known().is_being_dropped() {
                    return Some(key.to_bits());
                }
                drop(state);
                runs(key)
            }
            TimeoutKind::Repeating(repeating) => {
                let state = repeating.lock();
                let (key, is_held) = (state.key(), is_here && state.is_held);
                drop(state);
                key.and_then(runs).or_else(|| is_held.then(|| repeating.run()))
            }
        }
    }

    /// Moves the deadline to `delay` from now, earlier or later than it was, and returns whether
    /// the timeout was still pending. Allocates nothing.
    ///
    /// Of a repeating timeout it moves the next run, and the runs after that follow it. While the
    /// task runs, or the executor has it, the next run is the one after.
    pub fn reschedule(&self, delay: Duration) -> bool {
        let hub = &self.shard.hub;
        match &self.kind {
            TimeoutKind::Once(once) => self.move_once(once, hub.deadline_after(delay)),
            TimeoutKind::Repeating(repeating) => {
                let due = hub.clock.now().checked_add(delay);
                self.move_repeating(repeating, due, hub.ticks.deadline_of(due))
            }
        }
    }

    /// Moves the deadline to `deadline`, and is like [`reschedule`](Self::reschedule) otherwise. A
    /// deadline in the past is due at once.
    pub fn reschedule_at(&self, deadline: Instant) -> bool {
        let tick = self.shard.hub.ticks.deadline(deadline);
        match &self.kind {
            TimeoutKind::Once(once) => self.move_once(once, tick),
            TimeoutKind::Repeating(repeating) => {
                self.move_repeating(repeating, Some(deadline), tick)
            }
        }
    }

    /// Moves the deadline to any time within `delays` from now, and returns whether the timeout was
    /// still pending.
    ///
    /// A deadline that is there already stays. So a sign of life that moves an idle timeout costs a
    /// look nearly always: with 30 to 40 s, the timeout moves every 10 s and not with each packet.
    /// Otherwise the timer chooses as [`Timer::schedule_within`](crate::Timer::schedule_within)
    /// does. It is like [`reschedule`](Self::reschedule) otherwise.
    ///
    /// Cost: O(1), with at most 256 looks.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tickwheel::{ManualClock, Timer};
    ///
    /// let clock = ManualClock::new();
    /// let timer = Timer::builder().clock(clock.clone()).build()?;
    /// let patience = Duration::from_secs(30)..=Duration::from_secs(40);
    /// let idle = timer.schedule_within(patience.clone(), || println!("closing"))?;
    /// let deadline = idle.deadline();
    /// clock.advance(Duration::from_secs(1));
    /// assert!(idle.reschedule_within(patience.clone())); // a packet
    /// assert_eq!(idle.deadline(), deadline);
    /// clock.advance(Duration::from_secs(20));
    /// assert!(idle.reschedule_within(patience));
    /// assert!(deadline < idle.deadline());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reschedule_within(&self, delays: RangeInclusive<Duration>) -> bool {
        let ticks = self.shard.hub.ticks_within(&delays);
        let mut shard_state = self.shard.lock();
        if shard_state.stopped {
            return false;
        }
        match &self.kind {
            TimeoutKind::Once(once) => {
                let known = once.known();
                if ticks.contains(&known.deadline()) {
                    return self.shard.holds(&shard_state, known.key());
                }
                let tick = shard_state.wheel.choose(&ticks);
                let Some(key) = self.shard.move_to(&mut shard_state, known.key(), tick) else {
                    return false;
                };
                known.moved(key, tick);
                self.shard.release(shard_state, tick);
                true
            }
            TimeoutKind::Repeating(repeating) => {
                let state = repeating.lock();
                let is_to_come = match state.phase {
                    Phase::Waiting(key, _) if self.shard.holds(&shard_state, key) => true,
                    _ => state.moved.is_some(),
                };
                let is_ended = matches!(state.phase, Phase::Ended(_));
                if is_to_come && !is_ended && ticks.contains(&state.next_deadline()) {
                    return true;
                }
                let tick = shard_state.wheel.choose(&ticks);
                drop(state);
                drop(shard_state);
                self.move_repeating(repeating, self.shard.hub.ticks.instant(tick), tick)
            }
        }
    }

    fn move_once(&self, once: &Once, tick: u64) -> bool {
        let mut state = self.shard.lock();
        let known = once.known();
        let Some(new_key) = self.shard.move_to(&mut state, known.key(), tick) else { return false };
        known.moved(new_key, tick);
        self.shard.release(state, tick);
        true
    }

    fn move_repeating(&self, repeating: &Repeating, due: Option<Instant>, deadline: u64) -> bool {
        let mut shard_state = self.shard.lock();
        if shard_state.stopped {
            return false;
        }
        let mut state = repeating.lock();
        let new_key = match state.phase {
            Phase::Waiting(key, _) => self.shard.move_to(&mut shard_state, key, deadline),
            Phase::Running => None,
            Phase::Ended(_) => return false,
        };
        match (new_key, &mut state.phase) {
            (Some(new_key), Phase::Waiting(key, _)) => {
                *key = new_key;
                (state.due, state.deadline) = (due, deadline);
                drop(state);
                self.shard.release(shard_state, deadline);
            }
            // It runs, or is about to: this is for the run after that.
            _ => state.moved = Some((due, deadline)),
        }
        true
    }

    /// Returns the deadline, past or to come: the instant asked for, rounded up to the timer's
    /// tick. Returns None if an [`Instant`] cannot hold it, so that it never comes.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.shard.hub.ticks.instant(match &self.kind {
            TimeoutKind::Once(once) => once.known().deadline(),
            TimeoutKind::Repeating(repeating) => repeating.lock().next_deadline(),
        })
    }

    /// Returns what became of the timeout.
    #[must_use]
    pub fn status(&self) -> Status {
        match &self.kind {
            TimeoutKind::Once(once) => {
                let state = self.shard.lock();
                let known = once.known();
                match self.shard.status_of(&state, known.key(), known.deadline()) {
                    Status::Pending => Status::Pending,
                    _ if known.is_cancelled() => Status::Cancelled,
                    status => status,
                }
            }
            TimeoutKind::Repeating(repeating) => {
                self.status_of(&self.shard.lock(), &repeating.lock())
            }
        }
    }
}

/// Waits in async code until a timeout that has ended does not run.
struct Awaits<'a> {
    timeout: &'a Timeout,
    place: Option<Place>,
}

impl Awaits<'_> {
    fn poll(&mut self, context: &Context<'_>) -> Poll<()> {
        let shard = &self.timeout.shard;
        let mut known = None;
        loop {
            let run = self.timeout.run();
            if run.is_none() || run == known {
                return if run.is_none() { Poll::Ready(()) } else { Poll::Pending };
            }
            self.leave();
            known = run;
            self.place = run.map(|run| shard.awaiting.add(run, context.waker().clone()));
        }
    }

    fn leave(&mut self) {
        let Timeout { shard, .. } = self.timeout;
        let waker = self.place.take().and_then(|place| shard.awaiting.remove(place));
        shard.hub.guarded(|| drop(waker));
    }
}

impl Drop for Awaits<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Says, when it is dropped, that the thread that cancelled a timeout has dropped its task.
struct Dropped<'a> {
    shard: &'a Shard,
    once: &'a Once,
    /// As it was under the shard's lock.
    known: &'a Known,
}

impl Drop for Dropped<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.known.cancelled.swap(DROPPED, Ordering::AcqRel) != DROPPING {
            self.tell();
        }
    }
}

impl Dropped<'_> {
    #[cold]
    fn tell(&self) {
        let state = self.shard.lock();
        let known = self.once.known();
        known.cancelled.store(DROPPED, Ordering::Release);
        let run = known.key().to_bits();
        drop(state);
        self.shard.dropped.notify_all();
        self.shard.awaiting.wake(&self.shard.hub, run);
    }
}

/// The same for a repeating timeout.
struct LetsGo<'a>(&'a Repeating, &'a Shard);

impl Drop for LetsGo<'_> {
    fn drop(&mut self) {
        let Self(repeating, shard) = self;
        repeating.let_go();
        shard.awaiting.wake(&shard.hub, repeating.run());
    }
}

/// Makes another handle to the same timeout.
impl Clone for Timeout {
    fn clone(&self) -> Self {
        let kind = match &self.kind {
            TimeoutKind::Once(once) => {
                let locked = self.shard.lock();
                let shared = Arc::clone(once.shared.get_or_init(|| Arc::new(once.known.copy())));
                drop(locked);
                let known = shared.copy();
                TimeoutKind::Once(Once { known, shared: OnceLock::from(shared) })
            }
            TimeoutKind::Repeating(repeating) => TimeoutKind::Repeating(Arc::clone(repeating)),
        };
        Self { shard: Arc::clone(&self.shard), kind }
    }
}

/// Cancels a timeout when it is dropped, from [`Timeout::cancel_on_drop`].
///
/// The guard can be used as the [`Timeout`]. Dropping the guard counts and tells a panic of a value
/// that the task captured as the timer does a task's.
#[must_use = "dropping the guard cancels the timeout"]
#[derive(Debug)]
pub struct TimeoutGuard {
    /// None while it is dropped.
    timeout: Option<Timeout>,
}

impl TimeoutGuard {
    /// Returns the timeout, which nothing cancels now.
    pub fn keep(mut self) -> Timeout {
        self.timeout.take().expect("only this takes it")
    }
}

impl Deref for TimeoutGuard {
    type Target = Timeout;

    fn deref(&self) -> &Timeout {
        self.timeout.as_ref().expect("the guard is not dropped")
    }
}

impl Drop for TimeoutGuard {
    fn drop(&mut self) {
        if let Some(timeout) = self.timeout.take() {
            timeout.shard.hub.guarded(|| timeout.cancel());
        }
    }
}

impl fmt::Debug for Timeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timeout")
            .field("status", &self.status())
            .field("deadline", &self.deadline())
            .finish_non_exhaustive()
    }
}

/// No handle cancelled it.
const NO: u32 = 0;
/// The thread that cancelled it is about to drop the task, outside of the lock.
const DROPPING: u32 = 1;
/// The same, and another thread waits for that, or has made `shared` meanwhile.
const WATCHED: u32 = 2;
const DROPPED: u32 = 3;
