//! One wheel behind its lock, for the threads that keep to it.
//!
//! # Lines of the processor's cache
//!
//! A line that two cores write in turn makes each of them wait. Those that a call writes, and who
//! else writes them:
//!
//! | what is there | written by | and by |
//! |---|---|---|
//! | the count of the shard's `Arc` | `schedule`, the drop of a handle | other threads of the shard, and those that drop its handles |
//! | `state`: the lock, and the head of the wheel | each call that changes a timeout | other threads of the shard; the worker, once per wake-up |
//! | a slot, its deadline, an entry and its row; seldom a node | the same calls | the same threads |
//! | the box of the task | `schedule`, `cancel` | the worker, if it runs the task |
//! | `PendingLimit`, if there is one | `schedule`, `cancel` | all threads, and the worker |
//! | `Park` | `schedule` and moves, to what is earlier than all of the shard | all threads, and the worker |
//! | `due` | calls for a timeout that is due | the worker, once per wake-up and for each task |
//! | `handed_over` | `cancel_and_wait` | the worker and the executor's threads, for each task |
//! | `Counters` | `schedule`, if it is refused | the worker, for each task |
//!
//! Each has lines of its own. So what calls only read is in lines that are seldom written: a `Hub`
//! hardly ever after it was made, and the rest of a `Shard` once per wake-up, for `reached`.

use super::awaiting::Awaiting;
use super::due::DueList;
use super::error::ScheduleErrorKind;
use super::handed_over::HandedOver;
use super::hub::{Hub, Start};
use super::recording::{Now, ShardLane};
use super::repeat::Repeating;
use super::task::{OnceTask, Status, Task, Unfired};
use crate::sync::{AtomicU64, Condvar, Mutex, MutexGuard, Ordering, Rank, lock_soon, thread_local};
use crate::ticks::NEVER;
use crate::wheel::Memory;
use crate::{Expired, Key, Mode, Wheel, WheelStats};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::cell::Cell;
use core::mem::replace;
use core::sync::atomic::AtomicUsize;
use core::task::Waker;
use crossbeam_utils::CachePadded;
use smallvec::SmallVec;

/// One wheel behind its lock.
///
/// The caller gets what leaves the wheel, and drops or runs it when the lock is released: foreign
/// code, a capture's `Drop` included, may call the timer.
pub(crate) struct Shard {
    pub(crate) hub: Arc<Hub>,
    worker: Weak<dyn Start>,
    /// The tick up to which the worker has taken out what was due, or is about to; the maximum once
    /// the timer is stopped. A timeout that is due later is in the wheel: a thread that reads this
    /// without the lock, and finds a tick before that of its own timeout, knows that nobody took
    /// it.
    ///
    /// Written under the lock, before anything is taken out.
    reached: AtomicU64,
    state: CachePadded<Mutex<ShardState>>,
    /// Tells waiting threads that the thread that cancelled a task has dropped it.
    pub(super) dropped: Condvar,
    pub(super) due: CachePadded<DueList<Action>>,
    pub(super) handed_over: CachePadded<HandedOver>,
    pub(super) awaiting: Awaiting,
}

pub(super) struct ShardState {
    pub(super) wheel: Wheel<Action>,
    /// The worker looks at this shard at this tick at the latest: the worker found this tick, or a
    /// thread has told it. A deadline in the wheel is earlier only while the worker looks, or the
    /// thread that put it there tells the worker.
    watched: u64,
    /// How often the worker has looked, and found nothing more that is due.
    looks: u64,
    pub(super) counts: ShardCounts,
    /// Records what happens in the wheel.
    pub(super) lane: ShardLane,
    /// Nothing is scheduled or fired any more.
    pub(super) stopped: bool,
    /// The `reached` of the shard when it was closed: no timeout that is due later fired.
    last: u64,
    /// The keys of the timeouts that were due by then, and that stopping took out, so that their
    /// handles can tell that these did not fire either.
    taken: Keys,
    /// How many timeouts had been [placed](ShardCounts::placed) when the memory was last taken out
    /// of the wheel.
    shrunk_at: u64,
    /// The memory of a wheel that was emptied, which the worker frees a piece at a time.
    emptied: Emptied,
}

/// The memory of a wheel that was emptied, if that was much.
pub(super) type Emptied = Option<Box<Memory<Action>>>;

/// Keys, as a bit each of a word for keys that follow each other. Many that are due at one tick
/// were mostly scheduled one after the other. If others of them were cancelled, that adds nothing.
#[derive(Default)]
struct Keys(BTreeMap<u64, u64>);

impl Keys {
    fn insert(&mut self, key: Key) {
        let key = key.to_bits();
        *self.0.entry(key / 64).or_default() |= 1 << (key % 64);
    }

    fn contains(&self, key: Key) -> bool {
        let key = key.to_bits();
        self.0.get(&(key / 64)).is_some_and(|word| word >> (key % 64) & 1 == 1)
    }
}

/// The numbers of timeouts since the timer was built.
#[derive(Clone, Copy, Default)]
pub(super) struct ShardCounts {
    pub(super) scheduled: u64,
    pub(super) cancelled: u64,
    pub(super) rescheduled: u64,
    /// Runs of repeating timeouts after which these were put back into the wheel.
    put_back: u64,
}

impl ShardCounts {
    /// Returns how often a timeout was put into a bucket.
    fn placed(&self) -> u64 {
        self.scheduled + self.rescheduled + self.put_back
    }
}

/// A timeout as it waits in a wheel.
pub(crate) enum Action {
    /// A task to run.
    Once(OnceTask),
    /// A task to run again and again.
    Repeating(Arc<Repeating>),
    /// A future to wake.
    Wake(Waker),
}

/// Wakers that [are woken together](crate::TimerBuilder::wakes_together), with their deadlines. They
/// count as fired.
pub(super) type DueWakers = SmallVec<[(u64, Waker); MOST_DUE]>;

/// What the worker finds at a shard.
pub(super) enum Found {
    /// Timeouts that are due, and taken out now: many, or a few.
    Due { is_burst: bool },
    /// Nothing so far, and the work that one lock allows is done.
    More,
    /// Nothing before tick `next`; what is due then may wait for `last`, when something is due, too.
    /// `is_emptied` says that there is memory to [free](Shard::free_some).
    Nothing { next: u64, last: u64, is_emptied: bool },
}

/// The worker runs, and the clock was read for a recording: see [`Shard::place`].
pub(crate) struct Ready(Now);

impl Shard {
    pub(super) fn new(hub: Arc<Hub>, worker: Weak<dyn Start>, mode: Mode, number: usize) -> Self {
        let state = ShardState {
            wheel: Wheel::new(mode),
            watched: NEVER,
            looks: 0,
            counts: ShardCounts::default(),
            lane: hub.recording.lane(number),
            stopped: false,
            last: 0,
            taken: Keys::default(),
            shrunk_at: 0,
            emptied: None,
        };
        let state = CachePadded::new(Mutex::new(Rank::Shard, state));
        let (reached, due) = (AtomicU64::new(0), CachePadded::new(DueList::new()));
        let (dropped, handed_over) = (Condvar::new(), CachePadded::new(HandedOver::new()));
        let awaiting = Awaiting::new();
        Self { hub, worker, reached, state, dropped, due, handed_over, awaiting }
    }

    /// Registers `waker` to wake at `deadline`. Returns None if that has come already.
    ///
    /// The clock is read only if the shard refuses the waker, or the worker would have to wake up
    /// for it. Otherwise a waker that is overdue waits for the worker, which is about to look
    /// anyway, unless it has had its turn for that tick.
    #[inline(always)]
    pub(crate) fn register(
        &self,
        deadline: u64,
        waker: Waker,
    ) -> Result<Option<Key>, ScheduleErrorKind> {
        let mut state = match self.admit() {
            Ok(state) => state,
            Err(_) if self.hub.is_past(deadline) => return Ok(None),
            Err(kind) => return Err(self.rejects(kind)),
        };
        // Written under the lock.
        let is_reached = deadline <= self.reached.load(Ordering::Relaxed);
        if is_reached || deadline < state.watched {
            drop(state);
            if is_reached || self.hub.is_past(deadline) {
                self.hub.give_back();
                return Ok(None);
            }
            state = self.lock_for_one().map_err(|kind| self.rejects(kind))?;
        }
        let key = state.schedule(deadline, || Action::Wake(waker));
        self.release(state, deadline);
        Ok(Some(key))
    }

    /// Makes the worker wake `waker` at `deadline`, in the place of the timeout `key` if that has
    /// not begun to run, and returns the new key. The limit of the timer does not refuse it.
    ///
    /// Does not tell the worker, so that the caller may hold a lock, and does not start it: before,
    /// call [`ready`](Self::ready), and [`tell_of`](Self::tell_of) after the lock is released.
    pub(crate) fn place(
        &self,
        ready: Ready,
        key: Option<Key>,
        deadline: u64,
        waker: &Waker,
    ) -> Option<Key> {
        let mut state = self.lock_untimed();
        state.lane.is_now(ready.0);
        if let Some(new_key) = key.and_then(|key| self.move_to(&mut state, key, deadline)) {
            return Some(new_key);
        }
        if state.stopped || MOST <= state.wheel.len() {
            return None;
        }
        if let Some(limit) = &self.hub.limit {
            limit.take_anyway();
        }
        let waker = waker.clone();
        Some(state.schedule(deadline, || Action::Wake(waker)))
    }

    /// Starts the worker, unless it runs. Call this with no lock held.
    pub(crate) fn ready(&self) -> Option<Ready> {
        if !self.hub.is_started() {
            self.start().ok()?;
        }
        Some(Ready(self.hub.recording.now(&*self.hub.clock)))
    }

    /// Tells the worker of a timeout at `deadline`, if it would look too late.
    pub(crate) fn tell_of(&self, deadline: u64) {
        self.release(self.lock_untimed(), deadline);
    }

    /// Returns whether the timer was stopped.
    pub(crate) fn is_stopped(&self) -> bool {
        self.reached() == u64::MAX
    }

    /// Makes the worker, or the executor, run `task` as soon as it can. Returns it if the timer was
    /// stopped. The limit of the timer does not refuse it.
    pub(crate) fn run_soon(&self, task: OnceTask) -> Result<(), OnceTask> {
        let mut state = self.lock();
        if state.stopped || MOST <= state.wheel.len() {
            return Err(task);
        }
        if let Some(limit) = &self.hub.limit {
            limit.take_anyway();
        }
        state.schedule(0, || Action::Once(task));
        self.release(state, 0);
        Ok(())
    }

    /// Puts `waker` in the place of the registered one, and returns the one it replaced; or `waker`
    /// as an error if there was none. The caller drops either, with no lock held.
    pub(crate) fn replace_waker(&self, key: Key, waker: Waker) -> Result<Waker, Waker> {
        let mut state = self.lock();
        if let Some(Action::Wake(registered)) = state.wheel.get_mut(key) {
            return Ok(replace(registered, waker));
        }
        match self.due.lock().get_mut(key) {
            Some(Action::Wake(registered)) => Ok(replace(registered, waker)),
            _ => Err(waker),
        }
    }

    /// Takes out a registered waker that was not woken, and does `and` with it, with no lock held.
    #[inline]
    pub(crate) fn cancel(&self, key: Key, and: impl FnOnce(Waker)) {
        let mut state = self.lock();
        let waker = |action| match action {
            Action::Wake(waker) => waker,
            _ => unreachable!("the key is of a waker"),
        };
        let Some(waker) = self.take_as(&mut state, key, waker) else { return };
        let _emptied = self.release_cancelled(state);
        and(waker);
    }

    /// Releases the lock after a timeout was cancelled. The caller drops the memory that this
    /// returns when it has done all that others wait for.
    #[inline]
    pub(super) fn release_cancelled(&self, mut state: MutexGuard<'_, ShardState>) -> Emptied {
        state.counts.cancelled += 1;
        let emptied = state.take_memory_if_emptied();
        drop(state);
        self.hub.give_back();
        emptied
    }

    /// Takes out a timeout that has not begun to run.
    #[inline(always)]
    pub(super) fn take(&self, state: &mut ShardState, key: Key) -> Option<Action> {
        self.take_as(state, key, |action| action)
    }

    /// The same, for what `into` makes of it.
    #[inline(always)]
    fn take_as<R>(
        &self,
        state: &mut ShardState,
        key: Key,
        into: impl Fn(Action) -> R,
    ) -> Option<R> {
        if let Some(action) = state.wheel.cancel_into(key, &into) {
            state.lane.cancelled(key);
            return Some(action);
        }
        let action = self.due.take(key)?;
        state.lane.due_cancelled(key);
        Some(into(action))
    }

    /// Returns whether a timeout has not begun to run.
    #[inline]
    pub(super) fn holds(&self, state: &ShardState, key: Key) -> bool {
        state.wheel.get(key).is_some() || self.due.holds(key)
    }

    /// Moves a timeout that has not begun to run, and returns the key that it has now.
    pub(crate) fn reschedule(&self, key: Key, deadline: u64) -> Option<Key> {
        let mut state = self.lock();
        let new_key = self.move_to(&mut state, key, deadline)?;
        self.release(state, deadline);
        Some(new_key)
    }

    /// Moves a timeout that has not begun to run, and returns the key that it has now.
    pub(super) fn move_to(&self, state: &mut ShardState, key: Key, deadline: u64) -> Option<Key> {
        if state.stopped {
            return None;
        }
        let key = match state.wheel.reschedule(key, deadline) {
            true => {
                state.lane.rescheduled(key, deadline);
                key
            }
            false => {
                let action = self.due.take(key)?;
                let new_key = state.wheel.schedule(deadline, action);
                state.lane.due_rescheduled(key, new_key, deadline);
                new_key
            }
        };
        state.counts.rescheduled += 1;
        Some(key)
    }

    /// Returns what became of a timeout that no handle cancelled, by its key and its deadline.
    #[inline(always)]
    pub(crate) fn status(&self, key: Key, deadline: u64) -> Status {
        self.status_of(&self.lock(), key, deadline)
    }

    /// The same, for a caller that has the lock.
    #[inline]
    pub(super) fn status_of(&self, state: &ShardState, key: Key, deadline: u64) -> Status {
        if self.holds(state, key) {
            Status::Pending
        } else if state.stopped && (state.last < deadline || state.taken.contains(key)) {
            Status::Stopped
        } else {
            Status::Fired
        }
    }

    /// Returns the tick up to which the worker has taken out what was due, or is about to; the
    /// maximum once the timer is stopped.
    #[inline]
    pub(crate) fn reached(&self) -> u64 {
        self.reached.load(Ordering::Acquire)
    }

    /// Returns the mode of the timer's wheels.
    pub(crate) fn mode(&self) -> Mode {
        self.lock().wheel.mode()
    }

    /// Takes out a few timeouts that are due at tick `now`, with a bounded amount of work. Some come
    /// into `wakers`, and those that follow into the [`DueList`].
    pub(super) fn take_due(&self, now: u64, wakers: &mut DueWakers) -> Found {
        let mut state = self.lock();
        if state.stopped {
            return Found::Nothing { next: NEVER, last: NEVER, is_emptied: false };
        }
        // Only the worker writes `reached`, and mostly it is there already.
        if self.reached.load(Ordering::Relaxed) < now {
            self.reached.store(now, Ordering::Release);
        }
        let mut work = BATCH;
        // The worker has come back for more.
        state.lane.ran();
        let mut due = self.due.lock();
        debug_assert_eq!(due.len(), 0, "what was taken out has run");
        while let Some(expired) = state.wheel.expire_bounded(now, &mut work) {
            let repeats = matches!(expired.value, Action::Repeating(_));
            state.lane.is_due(expired.key, repeats);
            match expired.value {
                // Behind a task it waits, to keep the order.
                Action::Wake(waker) if self.hub.wakes_together && due.len() == 0 => {
                    self.hub.give_back();
                    wakers.push((expired.deadline, waker));
                }
                _ => due.push(expired),
            }
            if wakers.len() + due.len() == MOST_DUE {
                break;
            }
        }
        let taken = wakers.len() + due.len();
        if 0 < due.len() {
            self.due.fills();
        }
        drop(due);
        // Also while some are due, because a repeating one is back before the next look.
        if state.emptied.is_none() {
            state.emptied = state.take_memory_if_emptied();
        }
        if taken > 0 {
            return Found::Due { is_burst: BURST <= taken };
        }
        if work == 0 {
            return Found::More;
        }
        let next = state.wheel.next_wake().unwrap_or(NEVER);
        let latest = self.hub.park.latest_with(next);
        let last = if next < latest { state.wheel.last_until(latest) } else { None };
        state.watched = next;
        state.looks += 1;
        let last = next.max(last.unwrap_or(next));
        Found::Nothing { next, last, is_emptied: state.emptied.is_some() }
    }

    /// Frees a bounded part of the memory of a wheel that was emptied, with no lock held. The
    /// worker does so when it has nothing else to do.
    pub(super) fn free_some(&self) {
        let Some(mut memory) = self.lock().emptied.take() else { return };
        if memory.free_some() {
            self.free_later(memory);
        }
    }

    /// Keeps memory for the worker's next turn, unless there is none.
    fn free_later(&self, memory: Box<Memory<Action>>) {
        let mut state = self.lock();
        if !state.stopped {
            state.emptied = Some(memory);
        }
    }

    /// Takes out the next timeout that is due, to run it.
    pub(super) fn next_due(&self) -> Option<Expired<Action>> {
        let repeats = |action: &Action| matches!(action, Action::Repeating(_));
        let (ran, expired) = self.due.next(repeats);
        if let Some(ran) = ran {
            self.awaiting.wake(&self.hub, ran.to_bits());
        }
        let expired = expired?;
        // A repeating timeout keeps its place within the limit.
        if !repeats(&expired.value) {
            self.hub.give_back();
        }
        Some(expired)
    }

    /// Returns how many timeouts have not begun to run, or repeat and have no end.
    pub(super) fn pending(&self) -> usize {
        let state = self.lock();
        let due = self.due.lock();
        let away = if self.ends_what_is_away(&state) { 0 } else { due.away() };
        state.wheel.len() + due.len() + away
    }

    /// Returns whether a repeating timeout that was taken out to run has fired for the last time,
    /// though nothing says so: the timer was stopped while the executor had it, or a thread of the
    /// process from which this one was forked.
    pub(super) fn ends_what_is_away(&self, state: &ShardState) -> bool {
        let hub: &Hub = &self.hub;
        state.stopped && (hub.has_executor || !hub.is_here() && !hub.has_turned_here())
    }

    pub(super) fn next_deadline(&self) -> Option<u64> {
        loop {
            let mut state = self.lock();
            let mut work = BATCH;
            let due = self.due.lock().next_deadline();
            let next = due.or_else(|| state.wheel.next_deadline_bounded(&mut work));
            if next.is_some() || 0 < work {
                return next;
            }
        }
    }

    /// Waits until the task of a timeout that fired is neither run by the worker nor in the hands
    /// of the executor.
    pub(super) fn wait_for_end(&self, key: Key) {
        self.due.wait_for(key);
        // The worker hands over before it says that it has run.
        self.handed_over.wait_for(key);
    }

    /// Closes the shard: from now on no timeout is scheduled here, and none fires.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.stopped = true;
        state.last = self.reached.swap(u64::MAX, Ordering::AcqRel);
    }

    /// Takes out a bounded number of the timeouts that are left, and returns whether these were
    /// all.
    pub(super) fn take_left(&self, tasks: &mut Vec<Unfired>, wakers: &mut Vec<Waker>) -> bool {
        // With no lock held: more room takes long if there is much.
        tasks.reserve(2 * BATCH);
        wakers.reserve(2 * BATCH);
        let mut state = self.lock();
        let mut work = BATCH;
        loop {
            // Timeouts that were taken out come first, and then those in the wheel, by deadline.
            let due = self.due.lock().pop();
            let left = due.or_else(|| state.wheel.expire_bounded(NEVER, &mut work));
            let Some(expired) = left else { break };
            self.hub.give_back();
            // One that was scheduled for the past has the wheel's present as its deadline, and its
            // handle has an earlier one.
            if expired.deadline <= state.last {
                state.taken.insert(expired.key);
            }
            let task = match expired.value {
                Action::Once(task) => Task::Once(task),
                Action::Wake(waker) => {
                    wakers.push(waker);
                    continue;
                }
                Action::Repeating(repeating) => match repeating.take_unfired() {
                    Some(task) => Task::Repeating(task),
                    None => continue,
                },
            };
            let deadline = self.hub.ticks.instant(expired.deadline);
            tasks.push(Unfired { deadline, task, timer: self.hub.id });
        }
        let is_over = 0 < work;
        if is_over {
            // The empty wheel stays for as long as there are handles.
            let memory = (state.wheel.end(), state.emptied.take(), state.lane.end());
            drop(state);
            drop(memory);
        }
        is_over
    }

    /// Gives back the memory that the timeouts that wait do not need.
    pub(super) fn shrink_to_fit(&self) {
        let mut state = self.lock();
        let ShardState { wheel, lane, .. } = &mut *state;
        wheel.shrink_to_fit();
        lane.shrink_to_fit(wheel.iter().map(|(key, ..)| key));
        let emptied = state.emptied.take();
        drop(state);
        drop(emptied);
        self.handed_over.shrink_to_fit();
    }

    pub(super) fn stats(&self) -> (ShardCounts, WheelStats) {
        let state = self.lock();
        let mut stats = state.wheel.stats();
        stats.memory += state.emptied.as_ref().map_or(0, |memory| memory.allocated());
        let counts = state.counts;
        drop(state);
        stats.memory += self.handed_over.memory();
        (counts, stats)
    }

    #[inline]
    pub(super) fn lock(&self) -> MutexGuard<'_, ShardState> {
        // With no lock held, because the clock is foreign.
        let now = self.hub.recording.now(&*self.hub.clock);
        let mut state = self.lock_untimed();
        state.lane.is_now(now);
        state
    }

    /// Locks the shard for what is not recorded.
    #[inline]
    fn lock_untimed(&self) -> MutexGuard<'_, ShardState> {
        lock_soon(&self.state)
    }

    /// Locks the shard to schedule one more, with the worker running, or says why not.
    #[inline(always)]
    pub(super) fn admit(&self) -> Result<MutexGuard<'_, ShardState>, ScheduleErrorKind> {
        let hub: &Hub = &self.hub;
        if !hub.is_started() {
            self.start()?;
        }
        if hub.limit.as_ref().is_some_and(|limit| !limit.take()) {
            return Err(ScheduleErrorKind::Full);
        }
        self.lock_for_one()
    }

    /// Locks the shard for a timeout that has its place under the limit, and gives that back if the
    /// shard refuses it.
    #[inline(always)]
    fn lock_for_one(&self) -> Result<MutexGuard<'_, ShardState>, ScheduleErrorKind> {
        let state = self.lock();
        let refused = if state.stopped {
            ScheduleErrorKind::Stopped
        } else if MOST <= state.wheel.len() {
            ScheduleErrorKind::Full
        } else {
            return Ok(state);
        };
        drop(state);
        self.hub.give_back();
        Err(refused)
    }

    #[cold]
    pub(super) fn rejects(&self, kind: ScheduleErrorKind) -> ScheduleErrorKind {
        self.hub.counters.rejected.fetch_add(1, Ordering::Relaxed);
        kind
    }

    #[cold]
    fn start(&self) -> Result<(), ScheduleErrorKind> {
        match self.worker.upgrade() {
            Some(worker) => worker.start(),
            None => Err(ScheduleErrorKind::Stopped),
        }
    }

    /// Releases the lock after a timeout was scheduled for `deadline`, and tells the worker if it
    /// would look too late.
    #[inline]
    pub(super) fn release(&self, state: MutexGuard<'_, ShardState>, deadline: u64) {
        if deadline < state.watched {
            self.tell(state, deadline);
        }
    }

    /// Tells the worker, and only then lowers `watched`: a thread that loses its core in between
    /// holds up no timeout of another.
    fn tell(&self, state: MutexGuard<'_, ShardState>, deadline: u64) {
        let looks = state.looks;
        drop(state);
        self.hub.park.wake_by(deadline);
        let mut state = self.lock_untimed();
        // A look meanwhile found the timeout, or that it has gone, and made `watched` exact.
        if state.looks == looks {
            state.watched = state.watched.min(deadline);
        }
    }
}

impl ShardState {
    /// Schedules a timeout that was [admitted](Shard::admit).
    #[inline]
    pub(super) fn schedule(&mut self, deadline: u64, action: impl FnOnce() -> Action) -> Key {
        self.counts.scheduled += 1;
        self.put(deadline, action)
    }

    /// Puts a repeating timeout back into the wheel, for its next run.
    pub(super) fn put_back(&mut self, deadline: u64, action: Action) -> Key {
        self.counts.put_back += 1;
        self.put(deadline, || action)
    }

    #[inline]
    fn put(&mut self, deadline: u64, action: impl FnOnce() -> Action) -> Key {
        let key = self.wheel.schedule_made(deadline, action);
        self.lane.scheduled(key, deadline);
        key
    }

    /// Takes the memory out of a wheel that was emptied. Returns None unless there were many
    /// timeouts since the last time, because the next ones need memory again.
    #[inline]
    fn take_memory_if_emptied(&mut self) -> Emptied {
        if self.wheel.is_empty() && MANY <= self.counts.placed() - self.shrunk_at {
            self.take_memory()
        } else {
            None
        }
    }

    #[cold]
    fn take_memory(&mut self) -> Emptied {
        self.shrunk_at = self.counts.placed();
        Some(Box::new(self.wheel.take_memory()))
    }
}

/// Returns this thread's one of `shards`, and its number. Threads take turns.
#[inline]
pub(crate) fn of_this_thread<S>(shards: &[S]) -> (usize, &S) {
    let number = SHARD.with(Cell::get);
    // Mostly there are no more threads than shards, and a division takes a while.
    match shards.get(number) {
        Some(shard) => (number, shard),
        None => of_many_threads(number, shards),
    }
}

#[cold]
fn of_many_threads<S>(mut number: usize, shards: &[S]) -> (usize, &S) {
    if number == NO_SHARD {
        number = NEXT.fetch_add(1, Ordering::Relaxed);
        keep_to(number);
    }
    (number % shards.len(), &shards[number % shards.len()])
}

/// Makes this thread use shard `number` from now on.
pub(super) fn keep_to(number: usize) {
    SHARD.with(|shard| shard.set(number));
}

/// Gives this thread back the shard that it has now, when this is dropped.
pub(super) struct KeepsShard(usize);

impl KeepsShard {
    pub(super) fn new() -> Self {
        Self(SHARD.with(Cell::get))
    }
}

impl Drop for KeepsShard {
    fn drop(&mut self) {
        SHARD.with(|shard| shard.set(self.0));
    }
}

#[cfg(not(loom))]
thread_local! {
    static SHARD: Cell<usize> = const { Cell::new(NO_SHARD) };
}

// Its macro does not take a `const`.
#[cfg(loom)]
thread_local! {
    static SHARD: Cell<usize> = Cell::new(NO_SHARD);
}

/// In `SHARD`: this thread has used none. No timer has so many.
const NO_SHARD: usize = usize::MAX;

#[cfg(not(any(loom, shuttle)))]
static NEXT: AtomicUsize = AtomicUsize::new(0);

// It begins anew with each execution of a model, so that all are the same.
#[cfg(any(loom, shuttle))]
crate::sync::lazy_static! {
    static ref NEXT: AtomicUsize = AtomicUsize::new(0);
}

/// The work that is done under one lock. The last step of it may be 1024 timeouts of a bucket that
/// move, or a bucket of 8192 that is sorted. Otherwise a batch takes less time than it takes to
/// wake a thread that went to sleep for the lock, and much more than it takes to release the lock
/// and get it back.
const BATCH: usize = 128;

/// How many timeouts the worker takes out of the wheel at once: enough that the lock of the shard
/// costs little beside the tasks, and few enough to look through.
const MOST_DUE: usize = 64;

/// This many timeouts that are due at once are a burst.
const BURST: usize = 16;

/// A wheel that is emptied gives back its memory after so many timeouts, or more.
const MANY: u64 = 1_024;

/// A wheel cannot hold more than 2^32 - 1.
const MOST: usize = u32::MAX as usize - 1;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{ManualClock, Next, Timer};
    use alloc::task::Wake;
    use core::pin::Pin;
    use core::ptr::from_ref;
    use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use core::task::Context;
    use core::time::Duration;

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn what_different_threads_write_has_lines_of_its_own() {
        const LINE: usize = align_of::<CachePadded<u8>>();
        fn lines<T>(part: &T) -> [usize; 2] {
            let begin = from_ref(part).addr();
            [begin / LINE, (begin + size_of::<T>() - 1) / LINE]
        }
        let timer = Timer::builder().clock(ManualClock::new()).max_pending(1).build();
        let timer = timer.expect("in range");
        let shard: &Shard = timer.shard();
        let hub: &Hub = &shard.hub;
        let read = [lines(&shard.hub), lines(&shard.worker), lines(&hub.clock), lines(&hub.ticks)];
        let written = [
            lines(&shard.state),
            lines(&shard.due),
            lines(&shard.handed_over),
            lines(&hub.counters),
            lines(&hub.limit),
            lines(&*hub.park),
        ];
        for (at, part) in written.iter().enumerate() {
            let mut others = read.iter().chain(&written[at + 1..]);
            assert!(others.all(|other| part[1] < other[0] || other[1] < part[0]), "{at}");
        }
        // The count of its `Arc` is before it.
        assert!(LINE <= align_of::<Shard>());
    }

    #[test]
    fn a_waker_is_registered_replaced_moved_and_woken() {
        let clock = ManualClock::new();
        let builder = Timer::builder().tick(Duration::from_millis(1)).clock(clock.clone());
        let timer = builder.build().expect("in range");
        let (first, second) = (Arc::new(Wakes::default()), Arc::new(Wakes::default()));
        let shard = timer.shard();
        let registered = shard.register(10, Waker::from(Arc::clone(&first)));
        let key = registered.expect("it runs").expect("it is not due");
        assert!(shard.replace_waker(key, Waker::from(Arc::clone(&second))).is_ok());
        assert_eq!((Arc::strong_count(&first), Arc::strong_count(&second)), (1, 2));
        assert!(shard.reschedule(key, 20).is_some());
        clock.advance(Duration::from_millis(19));
        assert_eq!((shard.status(key, 20), shard.reached()), (Status::Pending, 19));
        clock.advance(Duration::from_millis(1));
        assert_eq!((shard.status(key, 20), shard.reached()), (Status::Fired, 20));
        assert_eq!((first.0.load(Relaxed), second.0.load(Relaxed)), (0, 1));
        assert!(shard.replace_waker(key, Waker::from(first)).is_err());
        assert_eq!(shard.register(20, Waker::noop().clone()), Ok(None));
    }

    #[test]
    fn stopping_wakes_what_waits() {
        let builder = Timer::builder().tick(Duration::from_millis(1)).clock(ManualClock::new());
        let timer = builder.wakes_together().build().expect("in range");
        let (waits, cancelled) = (Arc::new(Wakes::default()), Arc::new(Wakes::default()));
        let shard = timer.shard();
        let register = |waker: &Arc<Wakes>| {
            let registered = shard.register(1 << 40, Waker::from(Arc::clone(waker)));
            registered.expect("it runs").expect("it is not due")
        };
        let (key, other) = (register(&waits), register(&cancelled));
        shard.cancel(other, drop);
        // Due, and taken out for the worker: before a task it counts as fired.
        let ten = || shard.register(10, Waker::noop().clone()).expect("it runs");
        let woken = ten().expect("it is not due");
        let task = timer.schedule(Duration::from_millis(10), || {}).expect("it runs");
        let due = ten().expect("it is not due");
        assert!(matches!(shard.take_due(10, &mut DueWakers::new()), Found::Due { .. }));
        assert!(shard.reached() < u64::MAX);
        assert_eq!(timer.stop().expect("outside").len(), 1);
        assert_eq!(task.status(), Status::Stopped);
        assert_eq!(shard.reached(), u64::MAX);
        assert_eq!(shard.status(key, 1 << 40), Status::Stopped);
        assert_eq!(shard.status(due, 10), Status::Stopped);
        assert_eq!(shard.status(woken, 10), Status::Fired);
        assert_eq!((waits.0.load(Relaxed), cancelled.0.load(Relaxed)), (1, 0));
        let refused = shard.register(9_999, Waker::noop().clone());
        assert_eq!(refused, Err(ScheduleErrorKind::Stopped));
    }

    #[test]
    fn no_lock_is_held_for_more_than_a_batch() {
        const FAR: u64 = 1 << 30;
        for mode in [Mode::default(), Mode::hashed(1).expect("in range")] {
            let builder = Timer::builder().mode(mode).shards(1).clock(ManualClock::new());
            let timer = builder.build().expect("in range");
            let shard = timer.shard();
            for tick in FAR..FAR + 20_000 {
                shard.register(tick, Waker::noop().clone()).expect("it runs");
            }
            // They move, or are looked at.
            assert!(matches!(shard.take_due(FAR, &mut DueWakers::new()), Found::More));
            shard.close();
            let (mut tasks, mut wakers) = (Vec::new(), Vec::new());
            let mut is_over = false;
            while !is_over {
                let most = wakers.len() + BATCH;
                is_over = shard.take_left(&mut tasks, &mut wakers);
                assert!(wakers.len() <= most);
            }
            assert_eq!(wakers.len(), 20_000);
        }
    }

    #[test]
    fn a_timer_that_was_stopped_keeps_no_memory_of_the_wheel() {
        let timer = Timer::builder().clock(ManualClock::new()).build().expect("in range");
        let shard = timer.shard();
        shard.lock().wheel.use_up_generations();
        for tick in 1..20_000 {
            shard.register(tick, Waker::noop().clone()).expect("it runs");
        }
        shard.lock().emptied = Some(Box::new(Wheel::new(Mode::default()).take_memory()));
        timer.stop().expect("outside");
        assert!(shard.lock().emptied.is_none());
        assert_eq!(shard.stats().1.memory, 0);
    }

    #[test]
    fn memory_that_the_worker_frees_while_the_timer_is_stopped_does_not_stay() {
        let timer = Timer::builder().clock(ManualClock::new()).build().expect("in range");
        let shard = timer.shard();
        let memory = Box::new(Wheel::new(Mode::default()).take_memory());
        timer.stop().expect("outside");
        shard.free_later(memory);
        assert!(shard.lock().emptied.is_none());
    }

    #[test]
    fn the_memory_of_a_peak_is_freed_beside_a_timeout_that_repeats() {
        const DELAY: Duration = Duration::from_secs(1);
        for mode in [Mode::default(), Mode::hashed(512).expect("in range")] {
            let clock = ManualClock::new();
            let builder = Timer::builder().mode(mode).shards(1).clock(clock.clone());
            let timer = builder.build().expect("in range");
            let _beat = timer.schedule_with(DELAY, |_| Next::After(DELAY)).expect("it runs");
            for number in 0..20_000 {
                timer.schedule(DELAY * (1 + number % 2), || {}).expect("it runs");
            }
            let memory = || timer.stats().shards[0].memory;
            assert!(500_000 < memory(), "{mode}");
            clock.jump(DELAY * 2);
            // Alone, so that nothing is in the wheel while it runs.
            clock.jump(DELAY);
            assert_eq!(timer.pending(), 1);
            assert!(memory() < 10_000, "{} bytes in {mode}", memory());
        }
    }

    /// Hangs if one of these takes the lock.
    #[test]
    fn a_sleep_takes_the_lock_to_register_and_to_leave_alone() {
        let timer = Timer::builder().clock(ManualClock::new()).build().expect("in range");
        let shard = timer.shard();
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

    #[test]
    fn what_a_stop_has_not_taken_out_yet_is_pending() {
        let executor = |task: Box<dyn FnOnce() + Send>| task();
        let builder = Timer::builder().shards(1).clock(ManualClock::new()).executor(executor);
        let timer = builder.build().expect("in range");
        let delay = Duration::from_secs(60);
        let once = timer.schedule(delay, || {}).expect("it runs");
        let repeats = timer.schedule_with(delay, |_| Next::Stop).expect("it runs");
        timer.shard().close();
        assert_eq!([once.status(), repeats.status()], [Status::Pending; 2]);
    }
}
