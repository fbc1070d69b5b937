//! A timeout in the hands of a consumer.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, SystemTime};

use super::shared::{Message, Shared};
use crate::keeper::Settled;
use crate::store::Row;
use crate::values::{self, lock, milliseconds, time};

/// A timeout that is due, in the hands of a consumer.
///
/// Settle it with [`ack`](Self::ack) or [`retry`](Self::retry). Dropped without either, as by a
/// panic, it comes again after [`Builder::redeliver`](crate::Builder::redeliver).
#[must_use = "a timeout that is dropped comes again; call `ack` when it is done"]
pub struct Due {
    pub(super) row: Row,
    pub(super) epoch: u64,
    pub(super) settled: Settled,
    pub(super) shared: Arc<Shared>,
    pub(super) sender: Sender<Message>,
}

impl Due {
    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.row.name
    }

    /// Returns the payload.
    pub fn payload(&self) -> &[u8] {
        &self.row.payload
    }

    /// Returns the [metadata](crate::Content::metadata), which may be empty.
    pub fn metadata(&self) -> &str {
        &self.row.metadata
    }

    /// Returns the deadline: the one it was scheduled for, or the one of the last retry.
    pub fn deadline(&self) -> SystemTime {
        time(self.row.deadline)
    }

    /// Returns 1 for the first time it is handed out, and one more for each time it came back by
    /// [`retry`](Self::retry) or by being dropped. A crash counts only with
    /// [`Builder::max_attempts`](crate::Builder::max_attempts).
    pub fn attempt(&self) -> u32 {
        self.row.attempt.saturating_add(1)
    }

    /// Returns a number that grows with each owner of this name: of a file, with each opening.
    ///
    /// A receiver that remembers the greatest it has seen of a name can refuse what an older owner
    /// of that name sends. Numbers of different names are not to be compared: where several timers
    /// share a store, one of them owns names under different numbers.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Lets the consumer hold it for `time` from now on, if
    /// [`Builder::visibility`](crate::Builder::visibility) says a time that is over before.
    ///
    /// If that time is over already, this has no effect: the timeout comes again.
    pub fn extend(&self, time: Duration) {
        self.tell(Settled::Extend { time: milliseconds(time) });
    }

    /// Says that it is done. The timer commits that with the next group; if the process crashes
    /// before, the timeout comes again.
    pub fn ack(mut self) {
        self.settled = Settled::Ack;
    }

    /// Says that this run is done, and that the name comes again at `deadline`, with this payload
    /// and metadata.
    /// Both are one change: wherever the process crashes, either this run comes again or the next
    /// one is scheduled, and never both or none. If the name was scheduled anew or cancelled
    /// meanwhile, that stays.
    ///
    /// The next run begins anew: its [`attempt`](Self::attempt) is 1.
    /// [`Recurring`](crate::Recurring) knows when it is due.
    pub fn ack_and_schedule(mut self, deadline: SystemTime) {
        self.settled = Settled::Next { at: values::deadline(deadline) };
    }

    /// Schedules it again, `delay` from now. With [`back_off`](Self::back_off) the delay grows.
    ///
    /// If it was handed out as often as [`Builder::max_attempts`](crate::Builder::max_attempts)
    /// says, it is dead instead.
    pub fn retry(mut self, delay: Duration) {
        self.settled = Settled::Retry { delay: milliseconds(delay) };
    }
}

impl Due {
    fn tell(&self, settled: Settled) {
        let wakes = lock(&self.shared.settlements).push((self.row.number, self.epoch), settled);
        if wakes {
            // If the timer is gone, the timeout comes again in the next one.
            let _ = self.sender.send(Message::Wake);
        }
    }
}

impl Drop for Due {
    fn drop(&mut self) {
        self.tell(self.settled);
    }
}

impl fmt::Debug for Due {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Due")
            .field("name", &self.name())
            .field("deadline", &self.deadline())
            .field("attempt", &self.attempt())
            .field("epoch", &self.epoch)
            .finish_non_exhaustive()
    }
}
