//! How long the parts of a call may take.

use std::time::Duration;

use crate::values::milliseconds;

/// In milliseconds; the least is one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// A statement of a look.
    pub(crate) load: u64,
    pub(crate) settle: Parts,
    #[cfg(feature = "postgres")]
    pub(crate) change: Parts,
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
            settle: Parts::new(call.min(SETTLE)),
            #[cfg(feature = "postgres")]
            change: Parts::new(call),
            lock: (call / 30).clamp(10, 1_000),
        }
    }
}

impl Parts {
    fn new(call: u64) -> Self {
        Self { group: (call / 6).max(1), half: (call / 48).max(1) }
    }
}

/// An ack that is too long is tried again and again, and each time a look waits for it. So a longer
/// lease gives acks no more time: where one of many is too long, all are done in half of this.
/// A change is refused once, and its caller is told: it has the time of the lease.
const SETTLE: u64 = 1_500;
