//! A wheel beside a sorted map of what it should hold. Each call is made on both, and compared.

use crate::checked::MANY;
use std::collections::BTreeMap;
use tickwheel::{Expired, Key, Mode, Wheel};

/// What orders a timeout: its deadline, and how many were scheduled before it.
pub(crate) type Place = (u64, u64);

/// Values are numbers from 0 on, in the order in which they were scheduled.
pub(crate) struct Pair {
    pub(crate) wheel: Wheel<usize>,
    pub(crate) pending: BTreeMap<Place, usize>,
    /// By value: its key, and its place while it is pending.
    pub(crate) timeouts: Vec<(Key, Option<Place>)>,
    pub(crate) now: u64,
    /// Timeouts that were ever scheduled or moved.
    pub(crate) scheduled: u64,
}

impl Pair {
    /// A wheel with room for so many that it holds few in buckets, too.
    pub(crate) fn new(mode: Mode) -> Self {
        Self { wheel: Wheel::with_capacity(mode, MANY), ..Self::of_few(mode) }
    }

    /// A wheel that holds few in one array.
    pub(crate) fn of_few(mode: Mode) -> Self {
        Self {
            wheel: Wheel::new(mode),
            pending: BTreeMap::new(),
            timeouts: Vec::new(),
            now: 0,
            scheduled: 0,
        }
    }

    pub(crate) fn schedule(&mut self, deadline: u64) {
        let key = self.wheel.schedule(deadline, self.timeouts.len());
        self.add(key, deadline);
    }

    /// Adds what the wheel has already to the map.
    pub(crate) fn add(&mut self, key: Key, deadline: u64) {
        self.timeouts.push((key, None));
        self.place(self.timeouts.len() - 1, deadline);
    }

    pub(crate) fn place(&mut self, value: usize, deadline: u64) {
        let place = (deadline.max(self.now), self.scheduled);
        self.scheduled += 1;
        self.timeouts[value].1 = Some(place);
        self.pending.insert(place, value);
    }

    /// Takes a timeout out of the map, and returns its deadline.
    pub(crate) fn take(&mut self, value: usize) -> Option<u64> {
        let place = self.timeouts[value].1.take()?;
        self.pending.remove(&place);
        Some(place.0)
    }

    pub(crate) fn cancel(&mut self, value: usize) {
        let is_pending = self.take(value).is_some();
        let cancelled = self.wheel.cancel(self.timeouts[value].0);
        assert_eq!(cancelled, is_pending.then_some(value));
    }

    pub(crate) fn reschedule(&mut self, value: usize, deadline: u64) {
        let is_pending = self.take(value).is_some();
        assert_eq!(self.wheel.reschedule(self.timeouts[value].0, deadline), is_pending);
        if is_pending {
            self.place(value, deadline);
        }
    }

    /// Expires once, and returns whether there was something.
    pub(crate) fn expire(&mut self, now: u64) -> bool {
        let expired = self.wheel.expire(now);
        self.came(now, expired)
    }

    /// Expires with so much work at most, and returns whether all that is due has come.
    pub(crate) fn expire_bounded(&mut self, now: u64, mut work: usize) -> bool {
        while let Some(expired) = self.wheel.expire_bounded(now, &mut work) {
            self.came(now, Some(expired));
        }
        self.now = self.now.max(now);
        0 < work && !self.came(now, None)
    }

    /// Takes so many steps of one unit of work each.
    pub(crate) fn steps(&mut self, steps: usize, now: u64) {
        for _ in 0..steps {
            self.expire_bounded(now, 1);
        }
    }

    /// Expires all that is due by `now`, with so much work a step.
    pub(crate) fn jump(&mut self, now: u64, work: usize) {
        while !self.expire_bounded(now, work) {}
        self.check();
        self.look_for_next();
    }

    pub(crate) fn clear(&mut self) {
        self.wheel.clear();
        self.clear_map();
    }

    pub(crate) fn clear_map(&mut self) {
        self.pending.clear();
        self.timeouts.iter_mut().for_each(|timeout| timeout.1 = None);
    }

    /// Compares what a call at `now` handed out.
    pub(crate) fn came(&mut self, now: u64, expired: Option<Expired<usize>>) -> bool {
        self.now = self.now.max(now);
        let next = self.pending.first_key_value().filter(|(place, _)| place.0 <= now);
        let next = next.map(|(place, &value)| (self.timeouts[value].0, place.0, value));
        let expired = expired.map(|expired| (expired.key, expired.deadline, expired.value));
        assert_eq!(expired, next, "at {now}");
        let Some((key, _, value)) = next else { return false };
        assert_eq!(self.wheel.get(key), None, "an expired timeout's key is stale");
        self.take(value);
        true
    }

    pub(crate) fn deadline(&self, value: usize) -> Option<u64> {
        Some(self.timeouts[value].1?.0)
    }

    pub(crate) fn next_deadline(&self) -> Option<u64> {
        self.pending.first_key_value().map(|(place, _)| place.0)
    }

    /// Asks for what can be asked without a search.
    pub(crate) fn look(&self) {
        match (self.wheel.next_wake(), self.next_deadline()) {
            (Some(wake), Some(deadline)) => assert!(wake <= deadline, "it wakes up late"),
            (wake, deadline) => assert_eq!(wake, deadline),
        }
        assert_eq!((self.wheel.now(), self.wheel.len()), (self.now, self.pending.len()));
        assert_eq!(self.wheel.is_empty(), self.pending.is_empty());
    }

    pub(crate) fn look_for_next(&mut self) {
        self.look();
        assert_eq!(self.wheel.next_deadline(), self.next_deadline());
    }

    /// What must hold whatever was done.
    pub(crate) fn check(&self) {
        self.wheel.check();
        self.look();
    }

    /// Iterates over all, with and without changing them.
    pub(crate) fn iterate(&mut self) {
        let iter = self.wheel.iter();
        assert_eq!(iter.len(), self.pending.len());
        let mut found: Vec<_> = iter.map(|(key, at, &value)| (value, key, at)).collect();
        found.sort_unstable();
        let pending = self.timeouts.iter().enumerate();
        let pending = pending.filter_map(|(value, &(key, place))| Some((value, key, place?.0)));
        assert!(pending.eq(found));
        let iter = self.wheel.iter_mut();
        assert_eq!(iter.len(), self.pending.len());
        iter.for_each(|(_, _, value)| *value = !*value);
        for (key, at, value) in &mut self.wheel {
            *value = !*value;
            let (its_key, place) = self.timeouts[*value];
            assert_eq!((key, Some(at)), (its_key, place.map(|place| place.0)));
        }
    }
}
