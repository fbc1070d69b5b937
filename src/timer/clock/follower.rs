//! The part of a timer that a clock that jumps holds.

use crate::platform::Instant;
use crate::ticks::Ticks;
use crate::timer::inside;
use crate::timer::park::{Park, WorkerRest};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::slice;
use crossbeam_utils::CachePadded;

/// Lets a [`Clock`](crate::Clock) that jumps tell a timer that goes by it.
///
/// A clock receives one from [`Clock::follow`](crate::Clock::follow) for each timer. It does not
/// keep the timer alive.
#[derive(Clone, Debug)]
pub struct Follower {
    park: Weak<CachePadded<Park>>,
    ticks: Ticks<Instant>,
}

impl Follower {
    pub(in crate::timer) fn new(park: &Arc<CachePadded<Park>>, ticks: Ticks<Instant>) -> Self {
        Self { park: Arc::downgrade(park), ticks }
    }

    /// Returns whether the timer, or a handle to one of its timeouts, is left.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.park.strong_count() > 0
    }

    /// Makes the timer look at its clock, without waiting for it.
    pub fn tell(&self) {
        if let Some(park) = self.park.upgrade() {
            park.ask();
        }
    }

    /// Makes the timer look at its clock, and waits until everything due has fired, or was handed
    /// to the timer's executor. Returns the instant at which the next timeout is due, or an earlier
    /// one. Returns None if there is no next timeout, or an [`Instant`] cannot hold its deadline.
    ///
    /// Inside a task of any timer, where waiting could be for ever, and for a timer with a
    /// [`Driver`](crate::Driver), this only [tells](Self::tell) the timer and returns None.
    #[must_use]
    pub fn settle(&self) -> Option<Instant> {
        Self::settle_all(slice::from_ref(self))
    }

    /// Makes all timers look at their clocks, and waits until everything due has fired on all of
    /// them at once, whatever their tasks schedule on each other meanwhile. Otherwise it is like
    /// [`settle`](Self::settle), and returns the earliest instant.
    pub(super) fn settle_all(followers: &[Self]) -> Option<Instant> {
        let upgrade = |follower: &Self| Some((follower.park.upgrade()?, follower.ticks));
        let timers: Vec<_> = followers.iter().filter_map(upgrade).collect();
        loop {
            // All are told before one is waited for, because tasks of different timers may wait for
            // each other. What a driver's waker does here must not wait for this thread.
            let waits_for_none = inside::waits_for_none();
            let asked: Vec<_> = timers.iter().map(|(park, _)| park.ask()).collect();
            drop(waits_for_none);
            if inside::is_inside() {
                return None;
            }
            let settle = |((park, _), asked): (&(Arc<CachePadded<Park>>, _), _)| park.settle(asked);
            let rests: Vec<_> = timers.iter().zip(asked).map(settle).collect();
            // Each rested as it was asked first, and has rested ever since: so there was a moment
            // at which no task ran.
            let mut both = timers.iter().zip(&rests);
            if both.all(|((park, _), rest)| rest.is_some() && park.rest() == *rest) {
                let next = |((_, ticks), rest): (&(_, Ticks<Instant>), Option<WorkerRest>)| {
                    ticks.instant(rest?.next?)
                };
                return timers.iter().zip(rests).filter_map(next).min();
            }
        }
    }
}
