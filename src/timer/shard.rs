//! One wheel behind its lock, for the threads that keep to it.

use super::error::ScheduleErrorKind;
use super::hub::Hub;
use super::repeat::Repeating;
use super::timeout::Status;
use super::{Core, OnceTask};
use crate::clock::{NEVER, Ticks};
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering, lock};
use crate::{Expired, Key, Mode, Wheel, WheelStats};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::fmt;
use core::mem::replace;
use core::task::Waker;
use crossbeam_utils::CachePadded;
use std::collections::HashSet;
use std::time::Instant;

/// One wheel behind its lock.
///
/// What leaves the wheel is handed to the caller, and dropped or run when the lock is released:
/// foreign code, a capture's `Drop` included, may call the timer.
#[derive(Debug)]
pub(crate) struct Shard {
    pub(super) hub: Arc<Hub>,
    /// To start the worker.
    core: Weak<Core>,
    /// The tick up to which the worker has taken out what was due, or is about to; the maximum once
    /// the timer is stopped. What is due later is in the wheel: who reads this without the lock, and
    /// finds a tick before that of its own timeout, knows that nobody took it.
    ///
    /// Written under the lock, before anything is taken out.
    reached: AtomicU64,
    state: CachePadded<Mutex<State>>,
}

#[derive(Debug)]
pub(super) struct State {
    wheel: Wheel<Entry>,
    /// The worker looks at this shard at this tick at the latest: it found out itself, or was told.
    /// No deadline in the wheel is earlier, unless the worker is looking.
    watched: u64,
    cancelled: u64,
    /// Nothing is scheduled or fired any more.
    stopped: bool,
    /// The keys of what stopping took out, so that their handles can tell that it did not fire.
    taken: HashSet<Key>,
}

/// What waits in a wheel.
pub(crate) enum Entry {
    /// A task to run.
    Once(OnceTask),
    /// A task to run again and again.
    Repeating(Arc<Repeating>),
    /// A future to wake.
    Wake(Waker),
}

/// What the worker finds at a shard.
pub(super) enum Found {
    /// This is due, and out of the wheel.
    Due(Expired<Entry>),
    /// As much as may be done under the lock at once; there may be more.
    More,
    /// Nothing before this tick.
    Nothing(u64),
}

impl Shard {
    pub(super) fn new(hub: Arc<Hub>, core: Weak<Core>, mode: Mode) -> Self {
        let state = State {
            wheel: Wheel::new(mode),
            watched: NEVER,
            cancelled: 0,
            stopped: false,
            taken: HashSet::new(),
        };
        let state = CachePadded::new(Mutex::new(state));
        Self { hub, core, reached: AtomicU64::new(0), state }
    }

    /// Schedules `entry(value)`, or gives `value` back. Nothing is called under the lock but
    /// `entry`, which only wraps it.
    #[inline]
    pub(super) fn schedule<T>(
        &self,
        deadline: u64,
        value: T,
        entry: impl FnOnce(T) -> Entry,
    ) -> Result<Key, (ScheduleErrorKind, T)> {
        let mut state = match self.admit() {
            Ok(state) => state,
            Err(kind) => return Err((kind, value)),
        };
        let key = state.wheel.schedule(deadline, entry(value));
        self.release(state, deadline);
        Ok(key)
    }

    /// Schedules the first run of `make(value)`, or gives `value` back.
    pub(super) fn begin<T>(
        &self,
        deadline: u64,
        value: T,
        make: impl FnOnce(T) -> Repeating,
    ) -> Result<Arc<Repeating>, (ScheduleErrorKind, T)> {
        let mut state = match self.admit() {
            Ok(state) => state,
            Err(kind) => return Err((kind, value)),
        };
        let repeating = Arc::new(make(value));
        let key = state.wheel.schedule(deadline, Entry::Repeating(Arc::clone(&repeating)));
        repeating.waits(key);
        self.release(state, deadline);
        Ok(repeating)
    }

    /// Registers a waker to be woken at `deadline`; None if that has come already.
    ///
    /// The clock is read only if this is refused, or the worker would have to be woken for it.
    /// Otherwise what is overdue waits for the worker, which is about to look anyway.
    pub(crate) fn register(
        &self,
        deadline: u64,
        waker: &Waker,
    ) -> Result<Option<Key>, ScheduleErrorKind> {
        let waker = waker.clone();
        let mut state = match self.admit() {
            Ok(state) => state,
            Err(_) if self.is_past(deadline) => return Ok(None),
            Err(kind) => return Err(kind),
        };
        if deadline < state.watched {
            drop(state);
            if self.is_past(deadline) {
                self.give_back();
                return Ok(None);
            }
            state = self.lock();
            if state.stopped {
                drop(state);
                self.give_back();
                return Err(ScheduleErrorKind::Stopped);
            }
        }
        let key = state.wheel.schedule(deadline, Entry::Wake(waker));
        self.release(state, deadline);
        Ok(Some(key))
    }

    /// Puts a clone of `waker` in the place of the one registered, and returns whether there was
    /// one.
    pub(crate) fn replace_waker(&self, key: Key, waker: &Waker) -> bool {
        let waker = waker.clone();
        // What is replaced is dropped with no lock held, and so is the clone if nothing is.
        let replaced = match self.lock().wheel.get_mut(key) {
            Some(Entry::Wake(registered)) => Ok(replace(registered, waker)),
            _ => Err(waker),
        };
        replaced.is_ok()
    }

    /// Takes a timeout out of the wheel. `mark` is called under the lock if there was one. What
    /// comes back is to be dropped with no lock held.
    pub(crate) fn cancel(&self, key: Key, mark: impl FnOnce()) -> Option<Entry> {
        let mut state = self.lock();
        let entry = state.wheel.cancel(key)?;
        state.cancelled += 1;
        mark();
        drop(state);
        self.give_back();
        Some(entry)
    }

    /// Moves a timeout, and returns whether there was one. `mark` is called under the lock if so.
    pub(crate) fn reschedule(&self, key: Key, deadline: u64, mark: impl FnOnce()) -> bool {
        let mut state = self.lock();
        if state.stopped || !state.wheel.reschedule(key, deadline) {
            return false;
        }
        mark();
        self.release(state, deadline);
        true
    }

    /// What became of a timeout that nobody cancelled.
    pub(crate) fn status(&self, key: Key) -> Status {
        let state = self.lock();
        if state.wheel.get(key).is_some() {
            Status::Pending
        } else if state.taken.contains(&key) {
            Status::Stopped
        } else {
            Status::Fired
        }
    }

    /// The tick up to which what was due has been taken out, or is about to be; the maximum once
    /// the timer is stopped.
    #[inline]
    pub(crate) fn reached(&self) -> u64 {
        self.reached.load(Ordering::Acquire)
    }

    /// Whether no more than some number of timeouts may be pending.
    pub(crate) fn has_limit(&self) -> bool {
        self.hub.limit.is_some()
    }

    /// The present, by the timer's clock.
    #[inline]
    pub(crate) fn now(&self) -> Instant {
        self.hub.clock.now()
    }

    /// Whether the present is not before tick `deadline`.
    pub(crate) fn is_past(&self, deadline: u64) -> bool {
        deadline <= self.hub.ticks.present(self.hub.clock.now())
    }

    /// How the timer numbers instants.
    #[inline]
    pub(crate) fn ticks(&self) -> &Ticks {
        &self.hub.ticks
    }

    /// The mode of the timer's wheels.
    pub(crate) fn mode(&self) -> Mode {
        self.lock().wheel.mode()
    }

    /// What is due at tick `now`. Does no more than a bounded amount of work.
    pub(super) fn take_due(&self, now: u64) -> Found {
        let mut state = self.lock();
        if state.stopped {
            return Found::Nothing(NEVER);
        }
        // Only the worker writes it, and mostly there is nothing new to be written.
        if self.reached.load(Ordering::Relaxed) < now {
            self.reached.store(now, Ordering::Release);
        }
        let mut work = BATCH;
        if let Some(expired) = state.wheel.expire_bounded(now, &mut work) {
            match &expired.value {
                Entry::Repeating(repeating) => repeating.is_due(),
                Entry::Once(_) | Entry::Wake(_) => self.give_back(),
            }
            return Found::Due(expired);
        }
        if work == 0 {
            return Found::More;
        }
        state.watched = state.wheel.next_wake().unwrap_or(NEVER);
        Found::Nothing(state.watched)
    }

    /// Lets nothing be scheduled or fired any more.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.stopped = true;
        self.reached.store(u64::MAX, Ordering::Release);
        // Now, as growing it later would take longer than a batch.
        let len = state.wheel.len();
        state.taken.reserve(len);
    }

    /// Takes out a bounded number of what is left, and returns whether that was all.
    pub(super) fn take_left(&self, into: &mut Vec<Expired<Entry>>) -> bool {
        let mut state = self.lock();
        let mut work = BATCH;
        while let Some(expired) = state.wheel.expire_bounded(NEVER, &mut work) {
            match &expired.value {
                Entry::Repeating(repeating) => repeating.is_stopped(),
                Entry::Once(_) | Entry::Wake(_) => {
                    state.taken.insert(expired.key);
                }
            }
            self.give_back();
            into.push(expired);
        }
        work > 0
    }

    pub(super) fn len(&self) -> usize {
        self.lock().wheel.len()
    }

    pub(super) fn next_deadline(&self) -> Option<u64> {
        self.lock().wheel.next_deadline()
    }

    /// How many were cancelled, and what the wheel says.
    pub(super) fn stats(&self) -> (u64, WheelStats) {
        let state = self.lock();
        (state.cancelled, state.wheel.stats())
    }

    #[inline]
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        match self.state.try_lock() {
            Ok(state) => state,
            Err(_) => self.wait_for_lock(),
        }
    }

    #[cold]
    fn wait_for_lock(&self) -> MutexGuard<'_, State> {
        let tries = if cfg!(loom) { 0 } else { TRIES };
        for _ in 0..tries {
            core::hint::spin_loop();
            if let Ok(state) = self.state.try_lock() {
                return state;
            }
        }
        lock(&self.state)
    }

    /// Locks the shard to schedule one more, with the worker running, if that may be.
    #[inline]
    fn admit(&self) -> Result<MutexGuard<'_, State>, ScheduleErrorKind> {
        if !self.hub.started.load(Ordering::Acquire) {
            self.start()?;
        }
        if self.hub.limit.as_ref().is_some_and(|limit| !limit.take()) {
            return Err(ScheduleErrorKind::Full);
        }
        let state = self.lock();
        let refused = if state.stopped {
            ScheduleErrorKind::Stopped
        } else if MOST <= state.wheel.len() {
            ScheduleErrorKind::Full
        } else {
            return Ok(state);
        };
        drop(state);
        self.give_back();
        Err(refused)
    }

    #[cold]
    fn start(&self) -> Result<(), ScheduleErrorKind> {
        match self.core.upgrade() {
            Some(core) => core.start(),
            None => Err(ScheduleErrorKind::Stopped),
        }
    }

    /// Releases the lock after something was scheduled for `deadline`, and tells the worker if it
    /// would look too late.
    #[inline]
    pub(super) fn release(&self, mut state: MutexGuard<'_, State>, deadline: u64) {
        if deadline < state.watched {
            state.watched = deadline;
            drop(state);
            self.hub.park.wake_by(deadline);
        }
    }

    /// One timeout less is pending.
    pub(super) fn give_back(&self) {
        if let Some(limit) = &self.hub.limit {
            limit.give_back();
        }
    }
}

impl State {
    pub(super) fn wheel(&mut self) -> &mut Wheel<Entry> {
        &mut self.wheel
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped
    }

    pub(super) fn count_cancelled(&mut self) {
        self.cancelled += 1;
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Once(_) => "Once",
            Self::Repeating(_) => "Repeating",
            Self::Wake(_) => "Wake",
        })
    }
}

/// How much work is done under a lock before no more is begun. What was begun last may be a bucket
/// of 2048 that are moved, or of 8192 that are sorted: some 10 or 40 us. Otherwise it is a few: less
/// than it takes to wake a thread that went to sleep waiting for the lock, and much more than it
/// takes to release the lock and get it back.
const BATCH: usize = 128;

/// How often the lock is tried before the thread goes to sleep for it: for some 20 us, which is longer
/// than it is held in all but a few cases. To be woken up takes longer than that, and milliseconds
/// where the core is given to others meanwhile.
const TRIES: usize = 500;

/// A wheel cannot hold more than 2^32 - 1.
const MOST: usize = u32::MAX as usize - 1;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{ManualClock, Timer};
    use alloc::task::Wake;
    use core::pin::Pin;
    use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use core::task::Context;
    use core::time::Duration;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn a_waker_is_registered_replaced_moved_and_woken() {
        let clock = ManualClock::new();
        let timer = Timer::builder().clock(clock.clone()).build().expect("in range");
        let (first, second) = (Arc::new(Count::default()), Arc::new(Count::default()));
        let shard = timer.core.shard();
        let registered = shard.register(10, &Waker::from(Arc::clone(&first)));
        let key = registered.expect("it runs").expect("it is not due");
        assert!(shard.replace_waker(key, &Waker::from(Arc::clone(&second))));
        assert_eq!((Arc::strong_count(&first), Arc::strong_count(&second)), (1, 2));
        assert!(shard.reschedule(key, 20, || {}));
        clock.advance(Duration::from_millis(19));
        assert_eq!((shard.status(key), shard.reached()), (Status::Pending, 19));
        clock.advance(Duration::from_millis(1));
        assert_eq!((shard.status(key), shard.reached()), (Status::Fired, 20));
        assert_eq!((first.0.load(Relaxed), second.0.load(Relaxed)), (0, 1));
        assert!(!shard.replace_waker(key, &Waker::from(first)));
        assert_eq!(shard.register(20, Waker::noop()), Ok(None));
    }

    #[test]
    fn stopping_wakes_what_waits() {
        let timer = Timer::new();
        let (waits, cancelled) = (Arc::new(Count::default()), Arc::new(Count::default()));
        let shard = timer.core.shard();
        let register = |waker: &Arc<Count>| {
            let registered = shard.register(1 << 40, &Waker::from(Arc::clone(waker)));
            registered.expect("it runs").expect("it is not due")
        };
        let (key, other) = (register(&waits), register(&cancelled));
        assert!(shard.cancel(other, || {}).is_some());
        assert!(shard.reached() < u64::MAX);
        assert!(timer.stop().expect("outside").is_empty());
        assert_eq!(shard.reached(), u64::MAX);
        assert_eq!(shard.status(key), Status::Stopped);
        assert_eq!((waits.0.load(Relaxed), cancelled.0.load(Relaxed)), (1, 0));
        assert_eq!(shard.register(9_999, Waker::noop()), Err(ScheduleErrorKind::Stopped));
    }

    /// Hangs if one of these takes the lock.
    #[test]
    fn a_sleep_takes_the_lock_to_register_and_to_leave_alone() {
        let timer = Timer::builder().clock(ManualClock::new()).build().expect("in range");
        let shard = timer.core.shard();
        let delay = Duration::from_secs(1);
        let mut context = Context::from_waker(Waker::noop());

        let held = shard.lock();
        let mut sleep = timer.sleep(delay);
        sleep.reset(delay * 2);
        assert!(!sleep.is_elapsed() && sleep.deadline().is_some());
        drop(sleep);
        let mut sleep = timer.sleep(delay);
        drop(held);

        assert!(Pin::new(&mut sleep).poll(&mut context).is_pending());
        let held = shard.lock();
        assert!(Pin::new(&mut sleep).poll(&mut context).is_pending());
        sleep.reset(delay * 2);
        assert!(Pin::new(&mut sleep).poll(&mut context).is_pending());
        assert!(!sleep.is_elapsed());
        drop(held);
    }
}
