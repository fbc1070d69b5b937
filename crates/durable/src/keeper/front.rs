//! The rows that are near: a cache of the store's front, in a wheel.

use std::collections::HashMap;
use std::sync::Arc;

use tickwheel::{Key, Mode, Wheel};

use crate::store::{Position, Row};

/// The rows that are near. It may be cleared at any time, to be loaded anew.
#[derive(Debug)]
pub(super) struct Front {
    /// The rows by deadline.
    pub(super) wheel: Wheel<Row>,
    /// Where in the wheel the row of a name is.
    pub(super) keys: HashMap<Arc<str>, Key>,
    /// How far the rows of each partition are known. One that is not here is not known at all.
    places: HashMap<u32, Place>,
    /// The bytes of all rows.
    pub(super) bytes: usize,
}

/// How far the rows of a partition are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// All rows of the partition at or before this position are near or in flight. A position and
    /// not a time, because there may be more rows of one deadline than a page holds.
    pub(super) loaded: Position,
    /// Nothing more to load up to this deadline.
    pub(super) complete_until: u64,
}

impl Front {
    pub(super) fn new() -> Self {
        Self {
            wheel: Wheel::new(Mode::hierarchical()),
            keys: HashMap::new(),
            places: HashMap::new(),
            bytes: 0,
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::new();
    }

    /// Returns how far the rows of a partition are known, to be moved.
    pub(super) fn place(&mut self, partition: u32) -> &mut Place {
        self.places
            .entry(partition)
            .or_insert_with(|| Place { loaded: Position::start(), complete_until: 0 })
    }

    /// Lets the rows of a partition be read again from the front.
    pub(super) fn restart(&mut self, partition: u32) {
        self.places.remove(&partition);
    }

    /// Returns until when all rows of a partition are known.
    pub(super) fn complete_until(&self, partition: u32) -> u64 {
        self.places.get(&partition).map_or(0, |place| place.complete_until)
    }

    /// Whether the row is at or before what is known of its partition.
    pub(super) fn reaches(&self, row: &Row) -> bool {
        self.places.get(&row.partition).is_some_and(|place| row.position() <= place.loaded)
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(super) fn insert(&mut self, row: Row) {
        // In a damaged store a name may have two rows.
        self.remove(&row.name.clone(), None);
        self.bytes += row.bytes();
        let name = row.name.clone();
        let key = self.wheel.schedule(row.deadline, row);
        self.keys.insert(name, key);
    }

    /// Removes the row of this name, if it has this number or none is asked for.
    pub(super) fn remove(&mut self, name: &Arc<str>, number: Option<u64>) {
        let Some(&key) = self.keys.get(name) else { return };
        if number.is_some_and(|number| self.wheel.get(key).is_some_and(|row| row.number != number))
        {
            return;
        }
        self.keys.remove(name);
        let row = self.wheel.cancel(key).expect("near rows are in the wheel");
        self.bytes -= row.bytes();
    }

    /// Takes out a row whose deadline is at most `limit`.
    pub(super) fn expire(&mut self, limit: u64) -> Option<Row> {
        let row = self.wheel.expire(limit)?.value;
        self.keys.remove(&row.name);
        self.bytes -= row.bytes();
        Some(row)
    }

    /// Drops the far half. All of it is in the store.
    pub(super) fn halve(&mut self) {
        let mut positions: Vec<Position> =
            self.wheel.iter().map(|(_, _, row)| row.position()).collect();
        let middle = positions.len() / 2;
        let (kept, end, _) = positions.select_nth_unstable(middle);
        // If the one row is dropped too, all before it is loaded, and it is not.
        let end = kept.iter().max().cloned().unwrap_or_else(|| Position::before(end.deadline));
        for place in self.places.values_mut().filter(|place| end < place.loaded) {
            *place = Place { loaded: end.clone(), complete_until: 0 };
        }
        let dropped: Vec<Arc<str>> = self
            .wheel
            .iter()
            .filter(|(_, _, row)| end < row.position())
            .map(|(_, _, row)| row.name.clone())
            .collect();
        for name in dropped {
            self.remove(&name, None);
        }
    }
}
