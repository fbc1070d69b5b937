//! What a clock that jumps holds of each timer.

use super::hub::Hub;
use alloc::sync::{Arc, Weak};
use std::time::Instant;

/// What a [`Clock`](crate::Clock) that jumps holds of each timer that goes by it, to tell it so.
///
/// Does not keep the timer alive. See [`Clock::follow`](crate::Clock::follow).
#[derive(Clone, Debug)]
pub struct Follower(Weak<Hub>);

impl Follower {
    pub(super) fn new(hub: &Arc<Hub>) -> Self {
        Self(Arc::downgrade(hub))
    }

    /// Whether anything is left of the timer.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.0.strong_count() > 0
    }

    /// Makes the timer look at its clock, without waiting for it.
    pub fn tell(&self) {
        if let Some(hub) = self.0.upgrade() {
            hub.park.ask();
        }
    }

    /// Makes the timer look at its clock, and waits until everything due has fired, or has been
    /// handed to the timer's executor. Returns when the next timeout is due, or earlier; None if
    /// there is none, or none that an [`Instant`] can hold.
    ///
    /// Inside a task of any timer, where waiting could be for ever, this only [tells](Self::tell).
    #[must_use]
    pub fn settle(&self) -> Option<Instant> {
        let hub = self.0.upgrade()?;
        let asked = hub.park.ask();
        if super::inside_any_task() {
            return None;
        }
        hub.ticks.instant(hub.park.settle(asked)?)
    }
}
