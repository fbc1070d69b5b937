//! The rows that are near: a cache of the store's front, in a wheel.

use std::collections::HashMap;
use std::sync::Arc;

use tickwheel::{Key, Mode, Wheel};

use crate::store::{Lease, Position, Row};

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

/// How far the rows of a partition are known: those that are, are near or in flight. Positions and
/// not times, because there may be more rows of one deadline than a page holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Another owner may have handed out what is known under another epoch.
    pub(super) epoch: u64,
    /// Of the rows whose deadline is before `recent`, those at or before this position are known.
    /// The others are read by and by, because the past of a store may take long to read.
    pub(super) behind: Position,
    pub(super) recent: u64,
    /// Of the other rows, those at or before this position are known.
    pub(super) loaded: Position,
    /// Nothing more to load up to this deadline.
    pub(super) complete_until: u64,
}

impl Place {
    pub(super) fn new(epoch: u64, recent: u64) -> Self {
        let (behind, loaded) = (Position::start(), Position::before(recent));
        Self { epoch, behind, recent, loaded, complete_until: 0 }
    }

    pub(super) fn is_behind(&self) -> bool {
        self.behind < Position::before(self.recent)
    }

    /// Lets what comes after this position and before that deadline be read by and by.
    pub(super) fn put_behind(&mut self, after: Position, recent: u64) {
        self.behind = if self.is_behind() { self.behind.clone().min(after) } else { after };
        self.recent = recent.max(self.recent);
        self.loaded = self.loaded.clone().max(Position::before(self.recent));
    }

    /// Lets what comes after this position be read again.
    fn forget(&mut self, after: Position) {
        if after.deadline < self.recent {
            self.behind = self.behind.clone().min(after);
        } else {
            self.loaded = self.loaded.clone().min(after);
            self.complete_until = 0;
        }
    }
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

    /// Drops all rows, to be read again. What is behind them stays known.
    pub(super) fn drop_rows(&mut self) {
        let places = std::mem::take(&mut self.places);
        let wheel = std::mem::replace(self, Self { places, ..Self::new() }).wheel;
        for (_, _, row) in wheel.iter() {
            self.forget(row.partition, Position::before(row.deadline));
        }
    }

    /// Lets what comes after this position be read again.
    pub(super) fn forget(&mut self, partition: u32, after: Position) {
        if let Some(place) = self.places.get_mut(&partition) {
            place.forget(after);
        }
    }

    /// Keeps what is known under these leases.
    pub(super) fn retain(&mut self, is_held: impl Fn(Lease) -> bool) {
        self.places.retain(|&partition, place| is_held(Lease { partition, epoch: place.epoch }));
    }

    /// Lets all be read again. The rows that are near stay.
    pub(super) fn forget_places(&mut self) {
        self.places.clear();
    }

    /// Lets all of this lease be read again.
    pub(super) fn forget_place(&mut self, lease: Lease) {
        self.places
            .retain(|&partition, place| (partition, place.epoch) != (lease.partition, lease.epoch));
    }

    /// Returns how far the rows of a partition are known, to be moved. If nothing is, what is due
    /// before `recent` is read by and by.
    pub(super) fn begin(&mut self, lease: Lease, recent: u64) -> &mut Place {
        self.places.entry(lease.partition).or_insert_with(|| Place::new(lease.epoch, recent))
    }

    /// Returns how far the rows of this lease are known, to be moved.
    pub(super) fn place(&mut self, lease: Lease) -> Option<&mut Place> {
        self.places.get_mut(&lease.partition).filter(|place| place.epoch == lease.epoch)
    }

    /// Returns the place whose past is read next.
    pub(super) fn furthest_behind(&self) -> Option<(u32, &Place)> {
        let behind = self.places.iter().filter(|(_, place)| place.is_behind());
        let (&partition, place) =
            behind.min_by_key(|(partition, place)| (&place.behind, *partition))?;
        Some((partition, place))
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
        let dropped: Vec<(u32, Position)> = self
            .wheel
            .iter()
            .filter(|(_, _, row)| end < row.position())
            .map(|(_, _, row)| (row.partition, row.position()))
            .collect();
        for (partition, Position { deadline, name }) in dropped {
            self.remove(&name, None);
            self.forget(partition, Position::before(deadline).max(end.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Place;
    use crate::store::Position;

    #[test]
    fn no_unread_past_is_dropped_where_more_is_put_behind() {
        let mut place = Place::new(1, 100);
        place.put_behind(Position::before(500), 1);
        assert!(place.is_behind() && place.behind == Position::start() && place.recent == 100);
        place.put_behind(Position::before(50), 600);
        assert!(place.behind == Position::start() && place.recent == 600);
    }
}
