//! What a timer tells of itself.

use std::time::Duration;

/// What a timer has done since it was opened, and what it holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Timeouts in memory that are not handed out.
    pub near: usize,
    /// Bytes of all timeouts in memory, nearly.
    pub near_bytes: usize,
    /// Timeouts that are handed out and not settled.
    pub in_flight: usize,
    /// Of those, the ones that no consumer has taken.
    pub waiting: usize,
    /// Partitions that this timer owns.
    pub partitions: usize,
    /// Timeouts handed out.
    pub handed_out: u64,
    /// Timeouts acked, durably.
    pub acked: u64,
    /// Timeouts that were scheduled again by [`Due::retry`] or because they were dropped.
    pub retried: u64,
    /// Acks and retries that were refused because the partition has another owner.
    pub fenced: u64,
    /// Commits of the store.
    pub commits: u64,
    /// Changes in all commits.
    pub changes: u64,
    /// Time in all commits.
    pub commit_time: Duration,
    /// The longest commit.
    pub commit_time_max: Duration,
    /// Pages loaded.
    pub loads: u64,
    /// How often all in memory was forgotten, to be loaded anew.
    pub forgotten: u64,
    /// Errors of the store.
    pub errors: u64,
    /// Damaged timeouts that were set aside.
    pub damaged: u64,
    /// How late all timeouts together were handed out.
    pub late: Duration,
    /// How late the latest timeout was handed out. One that came due while no process ran counts.
    pub late_max: Duration,
}
