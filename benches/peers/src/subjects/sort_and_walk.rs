use crate::log::Log;
use crate::subject::{Cancelled, Kind, Profile, Setup, Subject};

/// The limit for what fires: an array of deadlines and values, sorted once by `sort_unstable` and
/// walked.
///
/// Nothing that is asked for one timeout after the other can do this.
#[derive(Debug, Default)]
pub(crate) struct SortAndWalk(Vec<(u64, u64)>);

impl Subject for SortAndWalk {
    type Key = ();

    const PROFILE: Profile = Profile::new("sort-and-walk", Kind::Limit).only_fires();

    fn new(_setup: &Setup) -> Self {
        Self::default()
    }

    #[inline]
    fn schedule(&mut self, deadline: u64, value: u64) {
        self.0.push((deadline, value));
    }

    fn cancel(&mut self, (): ()) -> Cancelled {
        Cancelled::NotFound
    }

    fn reschedule(&mut self, (): (), _deadline: u64, _value: u64) {}

    fn expire(&mut self, now: u64, log: &mut Log) {
        self.0.sort_unstable();
        let due = self.0.partition_point(|&(deadline, _)| deadline <= now);
        log.values().extend(self.0.drain(..due).map(|(_, value)| value));
    }

    fn expire_some(&mut self, now: u64, log: &mut Log) -> bool {
        self.expire(now, log);
        false
    }

    fn next_wake(&mut self) -> Option<u64> {
        self.0.iter().map(|&(deadline, _)| deadline).min()
    }

    fn drive(&mut self, _now: u64, log: &mut Log) -> u64 {
        self.0.sort_unstable();
        let end = self.0.last().map_or(0, |&(deadline, _)| deadline);
        log.values().extend(self.0.drain(..).map(|(_, value)| value));
        log.end_batch(end, 0);
        end
    }
}
