//! Reading what all databases have, one after another.

use std::fmt;
use std::sync::Arc;

use super::Owner;
use super::map::partition;
use crate::{DeadLetter, DeadLetters, DurableTimer, Error, Iter, Pending};

/// All pending timeouts of a fleet; by [`Fleet::iter`](crate::Fleet::iter).
pub struct FleetIter(Chain<Iter>);

/// All dead letters of a fleet; by [`Fleet::dead_letters`](crate::Fleet::dead_letters).
pub struct FleetDeadLetters(Chain<DeadLetters>);

impl FleetIter {
    pub(super) fn new(owner: Arc<Owner>) -> Self {
        Self(Chain::new(owner, DurableTimer::iter))
    }
}

impl FleetDeadLetters {
    pub(super) fn new(owner: Arc<Owner>) -> Self {
        Self(Chain::new(owner, DurableTimer::dead_letters))
    }
}

impl Iterator for FleetIter {
    type Item = Result<Pending, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next(Pending::name)
    }
}

impl Iterator for FleetDeadLetters {
    type Item = Result<DeadLetter, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next(DeadLetter::name)
    }
}

struct Chain<I> {
    owner: Arc<Owner>,
    begin: fn(&DurableTimer) -> I,
    /// The database that is read, and what is left of it.
    at: usize,
    items: Option<I>,
}

impl<I> Chain<I> {
    fn new(owner: Arc<Owner>, begin: fn(&DurableTimer) -> I) -> Self {
        Self { owner, begin, at: 0, items: None }
    }

    fn next<T>(&mut self, name: fn(&T) -> &str) -> Option<Result<T, Error>>
    where
        I: Iterator<Item = Result<T, Error>>,
    {
        let core = &self.owner.core;
        loop {
            let member = core.members.get(self.at)?;
            let items = match (&mut self.items, core.timer(self.at)) {
                (Some(items), _) => items,
                (None, Ok(timer)) => self.items.insert((self.begin)(timer)),
                (None, Err(error)) => {
                    self.at += 1;
                    return Some(Err(error));
                }
            };
            match items.next() {
                Some(Ok(item)) if !core.has(self.at, partition(name(&item))) => {}
                Some(item) => return Some(item.map_err(|error| error.at(&member.place))),
                None => {
                    self.items = None;
                    self.at += 1;
                }
            }
        }
    }
}

impl fmt::Debug for FleetIter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FleetIter").field("at", &self.0.at).finish_non_exhaustive()
    }
}

impl fmt::Debug for FleetDeadLetters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FleetDeadLetters").field("at", &self.0.at).finish_non_exhaustive()
    }
}
