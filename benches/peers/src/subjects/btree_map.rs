use crate::log::Log;
use crate::subject::{Kind, Profile, Setup, Subject};
use std::collections;

/// std's `BTreeMap`, by deadline and by a number that tells those of equal deadlines apart.
#[derive(Debug, Default)]
pub(crate) struct BTreeMap {
    pub(crate) map: collections::BTreeMap<(u64, u64), u64>,
    scheduled: u64,
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

    fn cancel(&mut self, key: Self::Key, value: u64) -> bool {
        self.map.remove(&key) == Some(value)
    }

    fn expire_some(&mut self, now: u64, log: &mut Log) -> bool {
        let first = self.map.first_entry().filter(|first| first.key().0 <= now);
        first.map(|first| log.values.push(first.remove())).is_some()
    }

    fn next_wake(&mut self) -> Option<u64> {
        self.map.first_key_value().map(|(&(deadline, _), _)| deadline)
    }
}
