use crate::log::Log;
use crate::subject::{Cancelled, Kind, Profile, Setup, Subject};
use std::collections;

/// std's `BTreeMap`, by deadline and by a number that tells those of equal deadlines apart.
#[derive(Debug, Default)]
pub(crate) struct BTreeMap {
    map: collections::BTreeMap<(u64, u64), u64>,
    scheduled: u64,
}

impl BTreeMap {
    #[inline]
    fn pop(&mut self, now: u64) -> Option<u64> {
        let first = self.map.first_entry()?;
        if now < first.key().0 { None } else { Some(first.remove()) }
    }
}

impl Subject for BTreeMap {
    type Key = (u64, u64);

    const PROFILE: Profile = Profile::new("btree-map", Kind::Peer);

    fn new(_setup: &Setup) -> Self {
        Self::default()
    }

    #[inline]
    fn schedule(&mut self, deadline: u64, value: u64) -> Self::Key {
        self.scheduled += 1;
        let key = (deadline, self.scheduled);
        self.map.insert(key, value);
        key
    }

    #[inline]
    fn cancel(&mut self, key: Self::Key) -> Cancelled {
        self.map.remove(&key).into()
    }

    #[inline]
    fn reschedule(&mut self, key: Self::Key, deadline: u64, value: u64) -> Self::Key {
        match self.map.remove(&key) {
            Some(_) => self.schedule(deadline, value),
            None => key,
        }
    }

    #[inline]
    fn expire(&mut self, now: u64, log: &mut Log) {
        while let Some(value) = self.pop(now) {
            log.push(value);
        }
    }

    #[inline]
    fn expire_some(&mut self, now: u64, log: &mut Log) -> bool {
        self.pop(now).map(|value| log.push(value)).is_some()
    }

    #[inline]
    fn next_wake(&mut self) -> Option<u64> {
        self.map.first_key_value().map(|(&(deadline, _), _)| deadline)
    }
}
