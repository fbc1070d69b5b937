//! How long the parts of a call may take.

use std::time::Duration;

use crate::values::milliseconds;

/// In milliseconds; the least is one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// A statement of a look.
    pub(crate) load: u64,
    pub(crate) commit: Parts,
    /// A commit for which nothing waits, as of an operator.
    #[cfg(feature = "postgres")]
    pub(crate) alone: Parts,
    /// A wait for a lock.
    pub(crate) lock: u64,
}

/// The times of what is committed together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts {
    /// All, and what is alone.
    pub(crate) group: u64,
    /// Each part of a group that has failed.
    pub(crate) half: u64,
}

impl Limits {
    /// Returns the limits where a call may take so long.
    pub(crate) fn new(call: Duration) -> Self {
        let call = milliseconds(call);
        Self {
            load: (call / 3).max(1),
            commit: Parts::new(call.min(COMMIT)),
            #[cfg(feature = "postgres")]
            alone: Parts::new(call),
            lock: (call / 30).clamp(10, LOCK),
        }
    }
}

impl Parts {
    fn new(call: u64) -> Self {
        Self { group: (call / 6).max(1), half: (call / 48).max(1) }
    }
}

/// What is too long is tried again and again, an ack by the timer and a change by its caller, and
/// each time a look waits for it. So a longer lease gives it no more time: where one of many is too
/// long, all are done in half of this.
const COMMIT: u64 = 1_500;

/// A look waits for that too.
const LOCK: u64 = 250;
