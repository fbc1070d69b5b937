use crate::log::Log;
use crate::subject::{Cancelled, Kind, Profile, Setup, Subject};
use std::collections;

/// std's `BTreeMap`, by deadline and by a number that tells those of equal deadlines apart.
#[derive(Debug, Default)]
pub(crate) struct BTreeMap {
    map: collections::BTreeMap<(u64, u64), u64>,
    scheduled: u64,
}

#[cfg(test)]
impl BTreeMap {
    pub(crate) fn pop_last(&mut self) -> Option<u64> {
        self.map.pop_last().map(|(_, value)| value)
    }
}

impl Subject for BTreeMap {
    type Key = (u64, u64);

    const PROFILE: Profile = Profile::new("btree-map", Kind::Peer);

    fn new(_setup: &Setup) -> Self {
        Self::default()
    }

    fn schedule(&mut self, deadline: u64, value: u64) -> Self::Key {
        self.scheduled += 1;
        let key = (deadline, self.scheduled);
        self.map.insert(key, value);
        key
    }

    fn cancel(&mut self, key: Self::Key) -> Cancelled {
        self.map.remove(&key).into()
    }

    fn expire_some(&mut self, now: u64, log: &mut Log) -> bool {
        let first = self.map.first_entry().filter(|first| first.key().0 <= now);
        first.map(|first| log.push(first.remove())).is_some()
    }

    fn next_wake(&mut self) -> Option<u64> {
        self.map.first_key_value().map(|(&(deadline, _), _)| deadline)
    }
}
