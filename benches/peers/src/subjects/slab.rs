use crate::log::Log;
use crate::subject::{Cancelled, Kind, Profile, Setup, Subject};

/// The limit for what cancels: a bare `slab::Slab`, which forgets the deadlines.
#[derive(Debug, Default)]
pub(crate) struct Slab(slab::Slab<u64>);

impl Subject for Slab {
    type Key = usize;

    const PROFILE: Profile = Profile::new("slab", Kind::Limit).only_cancels();

    fn new(_setup: &Setup) -> Self {
        Self::default()
    }

    #[inline]
    fn schedule(&mut self, _deadline: u64, value: u64) -> usize {
        self.0.insert(value)
    }

    #[inline]
    fn cancel(&mut self, key: usize) -> Cancelled {
        self.0.try_remove(key).into()
    }

    fn reschedule(&mut self, key: usize, _deadline: u64, _value: u64) -> usize {
        key
    }

    #[inline]
    fn expire(&mut self, _now: u64, _log: &mut Log) {}

    fn expire_some(&mut self, _now: u64, _log: &mut Log) -> bool {
        false
    }

    #[inline]
    fn next_wake(&mut self) -> Option<u64> {
        None
    }
}
