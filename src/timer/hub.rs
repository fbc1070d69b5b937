//! The part of a timer that its handles, shards and worker share.

use super::clock::Clock;
use super::error::ScheduleErrorKind;
use super::inside::{self, Waits};
use super::park::{Left, Park};
use super::recording::TimerRecording;
use super::stats::Counters;
use crate::panics::{Payload, catch, swallow};
use crate::platform::{Instant, process_id};
use crate::sync::parking::{park, park_timeout};
use crate::sync::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use crate::ticks::{NEVER, Ticks};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use core::any::Any;
use core::fmt;
use core::ops::RangeInclusive;
use core::sync::atomic::Ordering::Relaxed;
use core::time::Duration;
use crossbeam_utils::CachePadded;

/// The part of a timer that its handles, shards and worker share. It knows no shard and owns no
/// executor, because handles keep it alive.
pub(crate) struct Hub {
    /// Of this timer alone, in this process.
    pub(super) id: u64,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ticks: Ticks<Instant>,
    /// The number of the process in which the worker was started; 0 before.
    pub(super) process: AtomicU32,
    /// The number of the process in which a driver turned last; 0 before.
    pub(super) turned_in: AtomicU32,
    pub(crate) limit: Option<PendingLimit>,
    pub(crate) has_executor: bool,
    /// Whether a waker leaves its shard before those that are due with it are woken.
    pub(super) wakes_together: bool,
    pub(super) on_panic: Option<Box<PanicHook>>,
    /// How long a slow task takes at least.
    pub(super) slow_task: Option<Duration>,
    /// For [`Follower`](super::Follower) too, which keeps its memory and not the rest.
    pub(super) park: Arc<CachePadded<Park>>,
    pub(crate) counters: CachePadded<Counters>,
    pub(super) recording: TimerRecording,
}

/// Starts the worker of a timer, unless it runs.
pub(super) trait Start: Send + Sync {
    fn start(self: Arc<Self>) -> Result<(), ScheduleErrorKind>;
}

pub(super) type PanicHook = dyn Fn(&TaskPanic<'_>) + Send + Sync;

impl Hub {
    /// Returns the nanoseconds since the ticks began, or `u64::MAX` if they are more.
    #[inline]
    pub(crate) fn nanos(&self) -> u64 {
        self.ticks.nanos(self.clock.now())
    }

    /// Returns the tick of the present, if [`nanos`](Self::nanos) was `nanos` now.
    #[inline]
    pub(crate) fn tick_at(&self, nanos: u64) -> u64 {
        if nanos < u64::MAX { self.ticks.tick_at(nanos) } else { self.far_tick() }
    }

    /// Returns the tick of the present, more than 584 years after the start.
    #[cold]
    fn far_tick(&self) -> u64 {
        self.ticks.now(self.clock.now())
    }

    /// Returns the tick that ends `delay` from now.
    #[inline]
    pub(crate) fn deadline_after(&self, delay: Duration) -> u64 {
        self.deadline_from(self.nanos(), delay)
    }

    /// Returns the tick that ends `delay` from now, if [`nanos`](Self::nanos) was `nanos` now.
    #[inline]
    pub(crate) fn deadline_from(&self, nanos: u64, delay: Duration) -> u64 {
        match end(nanos, delay) {
            Some(end) => self.ticks.deadline_at(end),
            None => self.far_deadline(delay),
        }
    }

    #[cold]
    fn far_deadline(&self, delay: Duration) -> u64 {
        self.ticks.after(self.clock.now(), delay)
    }

    /// Returns the ticks that are within `delays` from now. None is before the shortest, and none
    /// after the longest; the first one counts if there is no other.
    pub(super) fn ticks_within(&self, delays: &RangeInclusive<Duration>) -> RangeInclusive<u64> {
        let nanos = self.nanos();
        if let (Some(first), Some(last)) = (end(nanos, *delays.start()), end(nanos, *delays.end()))
        {
            return self.ticks.deadline_at(first)..=self.ticks.tick_at(last);
        }
        let now = self.clock.now();
        // The last tick that comes, if an instant cannot hold the longest delay.
        let last = now.checked_add(*delays.end()).map_or(NEVER - 1, |end| self.ticks.now(end));
        self.ticks.after(now, *delays.start())..=last
    }

    /// Returns whether the present is not before tick `deadline`.
    pub(crate) fn is_past(&self, deadline: u64) -> bool {
        deadline <= self.tick_at(self.nanos())
    }

    /// Returns how long a thread is to sleep until tick `last`. `until` is a tick before that, or
    /// the same: if it has come, and the clock does not say how long to sleep, nothing is left.
    pub(super) fn left(&self, until: u64, last: u64) -> Left {
        if until == NEVER {
            return Left::Unknown;
        }
        // Before the other clock, so that what passes in between is not slept again.
        let read = Instant::now();
        let nanos = self.nanos();
        let now = self.tick_at(nanos);
        if last <= now {
            return Left::Nothing;
        }
        let left = match self.ticks.nanos_to(last) {
            // A tick that no instant can hold does not come.
            u64::MAX => match self.ticks.instant(last) {
                Some(instant) => instant.saturating_duration_since(self.clock.now()),
                None => return Left::Unknown,
            },
            last => Duration::from_nanos(last.saturating_sub(nanos)),
        };
        let instant = self.clock.wait(left).and_then(|wait| read.checked_add(wait));
        match instant {
            Some(instant) => Left::Until(instant),
            None if until <= now => Left::Nothing,
            None => Left::Unknown,
        }
    }

    /// Parks this thread until tick `until`, or for as long after that as the worker may wait for
    /// others, whatever the worker does meanwhile: it may be in the executor, which waits for this
    /// thread. Does not park it if `is_woken`: foreign code that parks, as the clock may, takes
    /// what was to unpark this thread later.
    pub(crate) fn park_until(&self, until: u64, is_woken: &AtomicBool) {
        if self.is_past(until) {
            return;
        }
        let left = self.left(until, self.park.latest_with(until));
        if is_woken.load(Ordering::Acquire) {
            return;
        }
        match left {
            Left::Nothing => {}
            Left::Until(instant) => {
                park_timeout(instant.saturating_duration_since(Instant::now()));
            }
            // The clock tells the worker alone.
            Left::Unknown if until < NEVER && self.has_executor => park_timeout(LOOK),
            Left::Unknown => park(),
        }
    }

    /// Returns whether the worker was started: there is no need to.
    pub(super) fn is_started(&self) -> bool {
        self.process.load(Ordering::Acquire) != 0
    }

    /// Returns whether the worker is a thread of this process, and not of the parent that forked
    /// it.
    pub(super) fn is_here(&self) -> bool {
        self.process.load(Ordering::Acquire) == process_id()
    }

    /// Returns a permit to wait for this timer's worker and executor, or None if that could be for
    /// ever.
    pub(crate) fn may_wait(&self) -> Option<Waits> {
        inside::may_wait(self.id, self.has_executor)
    }

    /// Returns a permit to wait until the worker has fired something, or None if that could be for
    /// ever.
    pub(crate) fn may_wait_for_worker(&self) -> Option<Waits> {
        inside::may_wait_for_worker(self.id)
    }

    /// Returns whether a driver has turned in this process.
    pub(super) fn has_turned_here(&self) -> bool {
        self.turned_in.load(Ordering::Acquire) == process_id()
    }

    /// Says that one timeout less is pending.
    pub(super) fn give_back(&self) {
        if let Some(limit) = &self.limit {
            limit.give_back(1);
        }
    }

    /// Runs foreign code. A panic is counted, told to the hook, and gives None.
    pub(crate) fn guarded<T>(&self, foreign: impl FnOnce() -> T) -> Option<T> {
        match catch(foreign) {
            Ok(value) => Some(value),
            Err(payload) => {
                self.panicked(payload);
                None
            }
        }
    }

    /// Runs a task that is so many nanoseconds `late`, [guarded](Self::guarded), in a span of its
    /// own.
    #[cfg(feature = "tracing")]
    pub(super) fn run<T>(&self, late: u64, task: impl FnOnce() -> T) -> Option<T> {
        // A subscriber is foreign, too.
        let guarded = self.guarded(|| {
            let late_us = late / 1_000;
            let span = tracing::trace_span!(target: "tickwheel", "task", lateness_us = late_us);
            let _inside = span.enter();
            self.run_timed(late, task)
        });
        guarded.flatten()
    }

    /// Runs a task that is so many nanoseconds `late`, [guarded](Self::guarded).
    #[cfg(not(feature = "tracing"))]
    pub(super) fn run<T>(&self, late: u64, task: impl FnOnce() -> T) -> Option<T> {
        self.run_timed(late, task)
    }

    fn run_timed<T>(&self, late: u64, task: impl FnOnce() -> T) -> Option<T> {
        let Some(slow) = self.slow_task else { return self.guarded(task) };
        let start = self.nanos();
        let value = self.guarded(task);
        let took = self.nanos().saturating_sub(start);
        if slow <= Duration::from_nanos(took) {
            self.slow(took, late);
        }
        value
    }

    #[cold]
    #[cfg_attr(not(feature = "tracing"), expect(unused_variables, reason = "only counted"))]
    fn slow(&self, took: u64, late: u64) {
        self.counters.slow_tasks.fetch_add(1, Relaxed);
        #[cfg(feature = "tracing")]
        tracing::warn!(
            target: "tickwheel",
            took_us = took / 1_000,
            lateness_us = late / 1_000,
            "a task was slow"
        );
    }

    /// Counts a panic, and tells the hook.
    #[cold]
    pub(crate) fn panicked(&self, payload: Payload) {
        self.counters.panics.fetch_add(1, Relaxed);
        if let Some(hook) = &self.on_panic {
            let panic = TaskPanic { payload: &*payload };
            swallow(catch(|| hook(&panic)));
        }
        swallow(payload);
    }
}

/// Returns the nanoseconds at the end of `delay`, counted from `nanos`, or None if they are too
/// many to count.
#[inline]
fn end(nanos: u64, delay: Duration) -> Option<u64> {
    let seconds = delay.as_secs().checked_mul(NANOS_PER_SECOND)?;
    let end = nanos.checked_add(seconds)?.checked_add(u64::from(delay.subsec_nanos()))?;
    (end < u64::MAX).then_some(end)
}

/// How many timeouts may be pending.
pub(crate) struct PendingLimit {
    pub(super) most: usize,
    pending: CachePadded<AtomicUsize>,
}

impl PendingLimit {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, pending: CachePadded::new(AtomicUsize::new(0)) }
    }

    /// Takes a place, and returns whether there was one.
    pub(crate) fn take(&self) -> bool {
        let one_more = |pending| Some(pending + 1).filter(|&pending| pending <= self.most);
        self.pending.fetch_update(Relaxed, Relaxed, one_more).is_ok()
    }

    /// Takes a place, whether or not there is one.
    pub(super) fn take_anyway(&self) {
        self.pending.fetch_add(1, Relaxed);
    }

    pub(crate) fn is_full(&self) -> bool {
        self.most <= self.pending.load(Relaxed)
    }

    pub(crate) fn give_back(&self, places: usize) {
        self.pending.fetch_sub(places, Relaxed);
    }
}

/// A panic of a task, which [`TimerBuilder::on_panic`](crate::TimerBuilder::on_panic) tells the
/// hook.
pub struct TaskPanic<'a> {
    payload: &'a (dyn Any + Send),
}

impl TaskPanic<'_> {
    /// Returns the value that the task panicked with.
    #[must_use]
    pub fn payload(&self) -> &(dyn Any + Send) {
        self.payload
    }

    /// Returns the message, if the task panicked with one.
    #[must_use]
    pub fn message(&self) -> Option<&str> {
        let text = self.payload.downcast_ref::<&'static str>().copied();
        text.or_else(|| self.payload.downcast_ref::<String>().map(String::as_str))
    }
}

impl fmt::Debug for TaskPanic<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskPanic").field("message", &self.message()).finish_non_exhaustive()
    }
}

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// How long a thread parks at most by a clock that does not say for how long.
const LOOK: Duration = Duration::from_millis(10);

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{Clock, ManualClock, Timer};

    /// A thread loses its core before it knows how long to sleep.
    struct LosesCore;

    impl Clock for LosesCore {
        fn now(&self) -> Instant {
            Instant::now()
        }

        fn wait(&self, duration: Duration) -> Option<Duration> {
            std::thread::sleep(Duration::from_millis(20));
            Some(duration)
        }
    }

    #[test]
    fn what_has_come_due_since_the_look_waits_for_the_last_if_the_clock_says_how_long() {
        for (timer, waits) in [
            (Timer::builder().build(), true),
            (Timer::builder().clock(ManualClock::new()).build(), false),
        ] {
            let timer = timer.expect("in range");
            let hub = &timer.shard().hub;
            let left = hub.left(0, hub.deadline_after(Duration::from_secs(3_600)));
            assert_eq!(matches!(left, Left::Until(_)), waits);
            assert_eq!(left == Left::Nothing, !waits);
        }
    }

    /// Else each call would take the lock of the start.
    #[test]
    fn whether_the_worker_was_started_is_known_without_a_lock() {
        let timer = Timer::builder().clock(ManualClock::new()).build().expect("in range");
        let is_started = || timer.shard().hub.is_started();
        assert!(!is_started());
        timer.schedule(Duration::from_secs(1), || {}).expect("it runs");
        assert!(is_started());
    }

    #[test]
    fn no_thread_sleeps_past_a_tick_however_long_it_takes_to_lie_down() {
        let timer = Timer::builder().clock(LosesCore).build().expect("in range");
        let hub = &timer.shard().hub;
        let until = hub.deadline_after(Duration::from_secs(3_600));
        let Left::Until(instant) = hub.left(until, until) else { panic!("it is an hour away") };
        assert!(Some(instant) <= hub.ticks.instant(until));
    }
}
