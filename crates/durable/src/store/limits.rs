//! How long the parts of a call may take.

use std::time::Duration;

use crate::values::milliseconds;

/// In milliseconds; the least is one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// A statement of a look.
    pub(crate) load: u64,
    /// What is committed together, and what is committed alone.
    pub(crate) group: u64,
    /// Each of the parts of a group that has failed.
    pub(crate) half: u64,
    /// A wait for a lock.
    pub(crate) lock: u64,
}

impl Limits {
    /// Returns the limits where a call may take so long.
    pub(crate) fn new(call: Duration) -> Self {
        let call = milliseconds(call);
        let work = call.min(WORK);
        Self {
            load: (call / 3).max(1),
            group: (work / 6).max(1),
            half: (work / 48).max(1),
            lock: (call / 30).clamp(10, 200),
        }
    }
}

/// A look waits for a commit, and what becomes due and is not known for the look. So a longer lease
/// gives a commit no more time: where one of many takes too long, all are done in half of this.
const WORK: u64 = 1_500;
