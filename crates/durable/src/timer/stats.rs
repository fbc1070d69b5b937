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
    /// Timeouts that are settled and cannot be committed, because somebody else has locked them in
    /// the store or it refuses that. When they are a quarter of [`near`](crate::Builder::near),
    /// nothing more is handed out.
    pub held_up: usize,
    /// Partitions that this timer owns.
    pub partitions: usize,
    /// Whether nothing is handed out, by [`DurableTimer::pause`](crate::DurableTimer::pause).
    pub is_paused: bool,
    /// Timeouts handed out.
    pub handed_out: u64,
    /// Timeouts acked, durably, by [`Due::ack_and_schedule`](crate::Due::ack_and_schedule) too.
    pub acked: u64,
    /// Timeouts that were scheduled again by [`Due::retry`](crate::Due::retry) or because they were
    /// dropped.
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
    /// Timeouts that consumers held for longer than
    /// [`Builder::visibility`](crate::Builder::visibility) says.
    pub expired: u64,
    /// Timeouts that were handed out as often as
    /// [`Builder::max_attempts`](crate::Builder::max_attempts) says, and are dead letters now.
    pub dead: u64,
    /// How late all timeouts together were handed out.
    pub late: Duration,
    /// How late the latest timeout was handed out. One that came due while no process ran counts.
    pub late_max: Duration,
}

#[cfg(feature = "metrics")]
impl Stats {
    /// Tells all of it to the recorder of the crate `metrics`: of one database of several under its
    /// label.
    pub(super) fn tell(&self, place: Option<&str>) {
        use metrics::{Label, counter, gauge};

        let label = |place: &str| Label::new("database", place.to_owned());
        let labels: Vec<Label> = place.map(label).into_iter().collect();

        for (name, value) in [
            ("handed_out", self.handed_out),
            ("acked", self.acked),
            ("retried", self.retried),
            ("fenced", self.fenced),
            ("commits", self.commits),
            ("changes", self.changes),
            ("loads", self.loads),
            ("forgotten", self.forgotten),
            ("errors", self.errors),
            ("damaged", self.damaged),
            ("dead", self.dead),
            ("expired", self.expired),
        ] {
            let name = format!("tickwheel_durable_{name}_total");
            counter!(name, labels.clone()).absolute(value);
        }
        for (name, value) in [
            ("near", self.near as f64),
            ("near_bytes", self.near_bytes as f64),
            ("in_flight", self.in_flight as f64),
            ("waiting", self.waiting as f64),
            ("held_up", self.held_up as f64),
            ("partitions", self.partitions as f64),
            ("paused", f64::from(u8::from(self.is_paused))),
            ("commit_seconds_sum", self.commit_time.as_secs_f64()),
            ("commit_seconds_max", self.commit_time_max.as_secs_f64()),
            ("late_seconds_sum", self.late.as_secs_f64()),
            ("late_seconds_max", self.late_max.as_secs_f64()),
        ] {
            gauge!(format!("tickwheel_durable_{name}"), labels.clone()).set(value);
        }
    }
}
