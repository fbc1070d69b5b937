use crate::log::Log;
use crate::subject::{Cancelled, Kind, Profile, Setup, Subject};

/// The limit for a poll at which nothing is due: now is compared with the only deadline.
#[derive(Debug)]
pub(crate) struct Compare {
    deadline: u64,
    value: u64,
}

impl Subject for Compare {
    type Key = ();

    const PROFILE: Profile = Profile::new("compare", Kind::Limit).only_fires();

    fn new(_setup: &Setup) -> Self {
        Self { deadline: u64::MAX, value: 0 }
    }

    fn schedule(&mut self, deadline: u64, value: u64) {
        *self = Self { deadline, value };
    }

    fn cancel(&mut self, (): ()) -> Cancelled {
        Cancelled::NotFound
    }

    fn reschedule(&mut self, (): (), _deadline: u64, _value: u64) {}

    #[inline]
    fn expire(&mut self, now: u64, log: &mut Log) {
        if self.deadline <= now {
            log.push(self.value);
            self.deadline = u64::MAX;
        }
    }

    fn expire_some(&mut self, now: u64, log: &mut Log) -> bool {
        self.expire(now, log);
        false
    }

    fn next_wake(&mut self) -> Option<u64> {
        Some(self.deadline).filter(|&deadline| deadline < u64::MAX)
    }
}
