//! Timeouts that may fire at any instant of a range: the wheel chooses one that costs least.

use super::repeat::Phase;
use super::shard::Entry;
use super::timeout::{Kind, Timeout};
use super::{ScheduleError, Timer};
use alloc::boxed::Box;
use core::ops::RangeInclusive;
use core::time::Duration;

impl Timer {
    /// Schedules `task` to run once, at any time within `delays` from now, and returns the handle
    /// to the timeout. The timer takes the instant that costs least.
    ///
    /// That is one at which something of this thread's shard is due already, if the timer finds
    /// one at once. Otherwise it is a multiple of a high power of two in ticks: these are the same
    /// for all threads, so timeouts meet there. Each instant at which something is due costs one
    /// wake-up, however much is due then. [`Timeout::deadline`] tells the instant.
    /// [`Wheel::schedule_within`](crate::Wheel::schedule_within) says how the tick is chosen.
    ///
    /// The task never runs before the shortest of the delays has passed. The longest is the latest
    /// deadline: the task is late after it as any other. If no tick is in the range, because the
    /// range is shorter than a tick or its end is before its start, the timeout is due at the first
    /// tick after the shortest delay, as with [`schedule`](Self::schedule).
    ///
    /// # Errors
    ///
    /// As [`schedule`](Self::schedule).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tickwheel::{ManualClock, Timer};
    ///
    /// let timer = Timer::builder().clock(ManualClock::new()).build()?;
    /// let within = |from, to| Duration::from_millis(from)..=Duration::from_millis(to);
    /// let first = timer.schedule_within(within(30_000, 31_000), || println!("heartbeat 1"))?;
    /// let second = timer.schedule_within(within(30_321, 31_321), || println!("heartbeat 2"))?;
    /// assert_eq!(first.deadline(), second.deadline()); // one wake-up for both
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn schedule_within<F>(
        &self,
        delays: RangeInclusive<Duration>,
        task: F,
    ) -> Result<Timeout, ScheduleError<F>>
    where
        F: FnOnce() + Send + 'static,
    {
        let shard = self.shard();
        let ticks = shard.hub.ticks_within(&delays);
        let task = Box::new(task);
        match shard.admit() {
            Ok(mut state) => {
                let deadline = state.wheel.choose(&ticks);
                let key = state.put(deadline, Entry::Once(task));
                state.counts.scheduled += 1;
                shard.release(state, deadline);
                Ok(Timeout::once(shard, key, deadline))
            }
            Err(kind) => Err(ScheduleError::new(shard.rejects(kind), *task)),
        }
    }
}

impl Timeout {
    /// Moves the deadline to any time within `delays` from now, and returns whether the timeout was
    /// still pending.
    ///
    /// A deadline that is there already stays. So a sign of life that moves an idle timeout costs a
    /// look nearly always: with 30 to 40 s, the timeout moves every 10 s and not with each packet.
    /// Otherwise the timer chooses as [`Timer::schedule_within`] does. It is like
    /// [`reschedule`](Self::reschedule) otherwise.
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
            Kind::Once(once) => {
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
            Kind::Repeating(repeating) => {
                let state = repeating.lock();
                let is_waiting = matches!(state.phase, Phase::Waiting(..));
                if is_waiting && ticks.contains(&state.deadline) {
                    return true;
                }
                let tick = shard_state.wheel.choose(&ticks);
                drop(state);
                drop(shard_state);
                self.move_repeating(repeating, self.shard.hub.ticks.instant(tick), tick)
            }
        }
    }
}
