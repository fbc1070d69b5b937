//! The rows that are near: a cache of the store's front, in wheels.

use std::collections::HashMap;
use std::sync::Arc;

use tickwheel::{Key, Mode, Wheel};

use super::pause::Pause;
use crate::store::{Lease, Position, Row};

/// The rows that are near. It may be cleared at any time, to be loaded anew.
#[derive(Debug)]
pub(super) struct Front {
    /// Rows that were due long ago and are read by and by: a backlog.
    pub(super) past: Rows,
    /// All other rows.
    pub(super) present: Rows,
    /// They take turns, so that what becomes due does not wait for a backlog.
    is_turn_of_past: bool,
    /// Where the row of a name is.
    keys: HashMap<Arc<str>, Near>,
    /// How far the rows of each partition are known. One that is not here is not known at all.
    places: HashMap<u32, Place>,
}

/// Rows by deadline.
#[derive(Debug)]
pub(super) struct Rows {
    pub(super) wheel: Wheel<Row>,
    /// The bytes of all.
    pub(super) bytes: usize,
}

/// Where a row is.
#[derive(Clone, Copy, Debug)]
struct Near {
    is_past: bool,
    key: Key,
}

/// How far the rows of a partition are known: those that are, are near or in flight. Positions and
/// not times, because there may be more rows of one deadline than a page holds.
#[derive(Clone, Debug)]
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
    /// The past is to be read once more when it has been read.
    again: bool,
    /// How often it was, and began again.
    ends: u64,
    /// While its past cannot be read, that of others is.
    pause: Pause,
}

impl Place {
    pub(super) fn new(epoch: u64, recent: u64) -> Self {
        let (behind, loaded) = (Position::start(), Position::before(recent));
        let pause = Pause::default();
        Self { epoch, behind, recent, loaded, complete_until: 0, again: false, ends: 0, pause }
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

    /// Takes how far the past has been read now.
    pub(super) fn read_behind(&mut self, end: Position) {
        if self.behind < end {
            self.pause.reset();
        }
        self.behind = end;
        if self.again && !self.is_behind() {
            self.again = false;
            self.ends += 1;
            self.behind = Position::start();
        }
    }

    /// The past could not be read.
    pub(super) fn fail_behind(&mut self, now: u64, longest: u64) {
        self.pause.fail_for(now, longest);
    }

    /// Lets all be read once more that is at or before `loaded`. What is being read of the past is
    /// read to its end first: if this comes again and again, it would else never be.
    pub(super) fn read_again(&mut self, loaded: &Position, recent: u64) {
        if !self.is_behind() {
            self.behind = Position::start();
        } else if self.behind != Position::start() {
            self.again = true;
        }
        if Position::before(self.recent) < *loaded {
            self.recent = self.recent.max(recent);
            self.loaded = Position::before(self.recent);
            self.complete_until = 0;
        }
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
            past: Rows::new(),
            present: Rows::new(),
            is_turn_of_past: false,
            keys: HashMap::new(),
            places: HashMap::new(),
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::new();
    }

    /// Drops all rows, to be read again. What is behind them stays known.
    pub(super) fn drop_rows(&mut self) {
        let places = std::mem::take(&mut self.places);
        let dropped = std::mem::replace(self, Self { places, ..Self::new() });
        for row in dropped.rows() {
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

    /// Returns the place whose past is read next: of those that were read least often, the one
    /// that is furthest behind.
    pub(super) fn furthest_behind(&self, now: u64) -> Option<(u32, &Place)> {
        let behind = self.places.iter().filter(|(_, place)| place.is_behind());
        let (&partition, place) = behind
            .filter(|(_, place)| place.pause.is_over(now))
            .min_by_key(|(partition, place)| (place.ends, &place.behind, *partition))?;
        Some((partition, place))
    }

    /// Returns when there is a place whose past can be read.
    pub(super) fn behind_at(&self) -> Option<u64> {
        let behind = self.places.values().filter(|place| place.is_behind());
        behind.map(|place| place.pause.until).min()
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

    /// Returns the bytes of all rows.
    pub(super) fn bytes(&self) -> usize {
        self.past.bytes + self.present.bytes
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = &Row> {
        self.past.iter().chain(self.present.iter())
    }

    /// Returns the first deadline of all rows.
    pub(super) fn next_deadline(&mut self) -> Option<u64> {
        let next = [&mut self.past, &mut self.present].map(|rows| rows.wheel.next_deadline());
        next.into_iter().flatten().min()
    }

    pub(super) fn insert(&mut self, row: Row) {
        // In a damaged store a name may have two rows.
        self.remove(&row.name.clone(), None);
        let place = self.places.get(&row.partition);
        let is_past = place.is_some_and(|place| row.deadline < place.recent);
        let name = row.name.clone();
        let key = self.queue(is_past).insert(row);
        self.keys.insert(name, Near { is_past, key });
    }

    /// Removes the row of this name, if it has this number or none is asked for.
    pub(super) fn remove(&mut self, name: &Arc<str>, number: Option<u64>) {
        let Some(&Near { is_past, key }) = self.keys.get(name) else { return };
        let rows = self.queue(is_past);
        if number.is_some_and(|number| rows.wheel.get(key).is_some_and(|row| row.number != number))
        {
            return;
        }
        rows.remove(key);
        self.keys.remove(name);
    }

    /// Takes out a row whose deadline is at most `limit`.
    pub(super) fn expire(&mut self, limit: u64) -> Option<Row> {
        let is_past = self.is_turn_of_past;
        self.is_turn_of_past = !is_past;
        let row = self.queue(is_past).expire(limit);
        let row = row.or_else(|| self.queue(!is_past).expire(limit))?;
        self.keys.remove(&row.name);
        Some(row)
    }

    /// Drops the far half of the past or of the present: of the one that takes more bytes. All of
    /// it is in the store.
    pub(super) fn halve(&mut self) {
        let rows = if self.present.bytes < self.past.bytes { &self.past } else { &self.present };
        let mut positions: Vec<Position> = rows.iter().map(Row::position).collect();
        let middle = positions.len() / 2;
        let (kept, end, _) = positions.select_nth_unstable(middle);
        // If the one row is dropped too, all before it is loaded, and it is not.
        let end = kept.iter().max().cloned().unwrap_or_else(|| Position::before(end.deadline));
        let dropped: Vec<(u32, Position)> = rows
            .iter()
            .filter(|row| end < row.position())
            .map(|row| (row.partition, row.position()))
            .collect();
        for (partition, Position { deadline, name }) in dropped {
            self.remove(&name, None);
            self.forget(partition, Position::before(deadline).max(end.clone()));
        }
    }

    fn queue(&mut self, is_past: bool) -> &mut Rows {
        if is_past { &mut self.past } else { &mut self.present }
    }
}

impl Rows {
    fn new() -> Self {
        Self { wheel: Wheel::new(Mode::hierarchical()), bytes: 0 }
    }

    fn insert(&mut self, row: Row) -> Key {
        self.bytes += row.bytes();
        self.wheel.schedule(row.deadline, row)
    }

    fn remove(&mut self, key: Key) {
        let row = self.wheel.cancel(key).expect("near rows are in the wheel");
        self.bytes -= row.bytes();
    }

    fn expire(&mut self, limit: u64) -> Option<Row> {
        let row = self.wheel.expire(limit)?.value;
        self.bytes -= row.bytes();
        Some(row)
    }

    fn iter(&self) -> impl Iterator<Item = &Row> {
        self.wheel.iter().map(|(_, _, row)| row)
    }

    pub(super) fn len(&self) -> usize {
        self.wheel.len()
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
