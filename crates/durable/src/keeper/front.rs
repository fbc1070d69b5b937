//! The rows that are near: a cache of the store's front, in wheels.

use std::collections::HashMap;
use std::sync::Arc;

use tickwheel::{Key, Mode, Wheel};

use super::manner::Manner;
use super::pause::Pause;
use crate::store::{Lease, Position, Row};

/// The rows that are near. The keeper may clear them at any time and load them again.
#[derive(Debug)]
pub(super) struct Front {
    /// Rows that were due long ago and are read by and by: a backlog.
    pub(super) past: Rows,
    /// All other rows.
    pub(super) present: Rows,
    /// What was due before this comes with the past, also if it is found now: many may have been
    /// put at once, and were committed late.
    pub(super) lags: u64,
    /// Whether the next row comes from `past`. Past and present take turns, so that a timeout that
    /// becomes due does not wait for a backlog.
    is_turn_of_past: bool,
    /// Whether the oldest unread rows are read next. They and the newest ones take turns too.
    is_turn_of_oldest: bool,
    /// Where the row of a name is.
    keys: HashMap<Arc<str>, Near>,
    /// How far the rows of each partition are known. Of a partition without a place, none is known.
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

/// How far the rows of a partition are known. Each known row is near or in flight. The limits are
/// positions and not times, because one deadline may have more rows than a page.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// The epoch of the lease. Under another epoch, another owner may have handed out these rows.
    pub(super) epoch: u64,
    /// The rows before `recent` that are not known. The keeper reads them bit by bit, because the
    /// past of a store may take long to read.
    unread: Vec<Unread>,
    pub(super) recent: u64,
    /// Rows from `recent` to this position are known.
    pub(super) loaded: Position,
    /// Up to this deadline nothing is left to load.
    pub(super) complete_until: u64,
    /// Whether the past begins again when it has been read to its end.
    again: bool,
    /// How often the past began again.
    ends: u64,
}

/// Rows of the past that are not known: all rows after a position and before a deadline.
#[derive(Clone, Debug)]
pub(super) struct Unread {
    pub(super) after: Position,
    pub(super) before: u64,
    /// How long to wait after these rows could not be read. All other rows are read meanwhile.
    pub(super) pause: Pause,
}

impl Unread {
    fn new(after: Position, before: u64) -> Self {
        Self { after, before, pause: Pause::default() }
    }

    fn is_empty(&self) -> bool {
        Position::before(self.before) <= self.after
    }

    /// Returns whether these rows have one deadline, were read alone, and failed.
    fn is_damaged(&self) -> bool {
        0 < self.pause.failures && self.before <= self.after.deadline + 1
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.after < Position::before(other.before) && other.after < Position::before(self.before)
    }
}

impl Place {
    /// Makes the place of a partition of which nothing is known. Of the rows before `now`, those
    /// since `recent` are read first.
    pub(super) fn new(epoch: u64, recent: u64, now: u64) -> Self {
        let (loaded, recent) = (Position::before(now), recent.min(now));
        let mut place = Self {
            epoch,
            unread: Vec::new(),
            recent: now,
            loaded,
            complete_until: 0,
            again: false,
            ends: 0,
        };
        place.add(Unread::new(Position::start(), recent));
        place.add(Unread::new(Position::before(recent), now));
        place
    }

    /// Returns whether there is a past to read. Damaged rows do not count, because they may stay.
    pub(super) fn is_behind(&self) -> bool {
        !self.unread.iter().all(Unread::is_damaged)
    }

    /// Makes the rows after this position and before that deadline a part of the past.
    pub(super) fn put_behind(&mut self, after: Position, recent: u64) {
        self.recent = recent.max(self.recent);
        self.loaded = self.loaded.clone().max(Position::before(self.recent));
        self.add(Unread::new(after, self.recent));
    }

    /// Takes up to where the rows after this position have been read. Returns `false` if no unread
    /// rows begin at this position any more.
    pub(super) fn read_behind(&mut self, after: &Position, end: Position) -> bool {
        let Some(at) = self.unread.iter().position(|unread| unread.after == *after) else {
            return false;
        };
        let unread = &mut self.unread[at];
        if unread.after < end {
            unread.pause.reset();
        }
        unread.after = end;
        if unread.is_empty() {
            self.unread.swap_remove(at);
        }
        if self.again && !self.is_behind() {
            self.again = false;
            self.ends += 1;
            self.add(Unread::new(Position::start(), self.recent));
        }
        true
    }

    /// Notes that the rows after this position could not be read; without `all`, only those of its
    /// deadline.
    pub(super) fn fail_behind(&mut self, after: &Position, all: bool, now: u64, longest: u64) {
        let found = self.unread.iter_mut().find(|unread| unread.after == *after);
        let Some(unread) = found else { return };
        unread.pause.fail_for(now, longest);
        let next = after.deadline + 1;
        if !all && next < unread.before {
            let rest = Unread::new(Position::before(next), unread.before);
            unread.before = next;
            self.add(rest);
        }
    }

    /// Lets all rows before `now` be read once more. The keeper first reads the past to its end.
    /// Otherwise it would never reach the end if this were called again and again.
    pub(super) fn read_again(&mut self, recent: u64, now: u64) {
        self.recent = now.max(self.recent);
        self.loaded = self.loaded.clone().min(Position::before(self.recent));
        self.complete_until = 0;
        let from_start = self.unread.iter().find(|unread| unread.after == Position::start());
        match from_start.map(|unread| unread.before) {
            _ if !self.is_behind() => self.add(Unread::new(Position::start(), recent)),
            // What was read already, after the oldest that was not begun.
            Some(end) => self.add(Unread::new(Position::before(end), recent)),
            None if Manner::ReadsToEnd.is_kept() => self.again = true,
            None => self.add(Unread::new(Position::start(), recent)),
        }
        self.add(Unread::new(Position::before(recent), self.recent));
    }

    /// Lets what comes after this position be read again.
    fn forget(&mut self, after: Position) {
        if self.recent <= after.deadline {
            self.loaded = self.loaded.clone().min(after);
            self.complete_until = 0;
            return;
        }
        let is_in = |unread: &Unread| unread.after <= after && after.deadline < unread.before;
        if self.unread.iter().any(is_in) {
            return;
        }
        let following = self.unread.iter_mut().filter(|unread| after < unread.after);
        match following.min_by(|a, b| a.after.cmp(&b.after)) {
            Some(unread) => unread.after = after,
            None => self.add(Unread::new(after, self.recent)),
        }
    }

    /// Adds unread rows, and joins them with unread rows that overlap.
    fn add(&mut self, mut new: Unread) {
        if new.is_empty() {
            return;
        }
        while let Some(at) = self.unread.iter().position(|unread| unread.overlaps(&new)) {
            let old = self.unread.swap_remove(at);
            new.after = new.after.min(old.after);
            new.before = new.before.max(old.before);
        }
        self.unread.push(new);
        if MOST_UNREAD < self.unread.len() {
            self.unread.sort_by(|a, b| a.after.cmp(&b.after));
            let first = self.unread.remove(0);
            self.unread[0].after = first.after;
        }
    }
}

impl Front {
    pub(super) fn new() -> Self {
        Self {
            past: Rows::new(),
            present: Rows::new(),
            lags: 0,
            is_turn_of_past: false,
            is_turn_of_oldest: true,
            keys: HashMap::new(),
            places: HashMap::new(),
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::new();
    }

    /// Drops all rows, so that they are read again. Where no row was, the place stays known.
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

    /// Forgets the places of all other leases.
    pub(super) fn retain(&mut self, is_held: impl Fn(Lease) -> bool) {
        self.places.retain(|&partition, place| is_held(Lease { partition, epoch: place.epoch }));
    }

    /// Returns the place of a partition. If there is none, makes one: the rows due before `now` are
    /// the past, and those since `recent` are read first.
    pub(super) fn begin(&mut self, lease: Lease, recent: u64, now: u64) -> &mut Place {
        self.places.entry(lease.partition).or_insert_with(|| Place::new(lease.epoch, recent, now))
    }

    /// Returns the place of the partition of this lease.
    pub(super) fn place(&mut self, lease: Lease) -> Option<&mut Place> {
        self.places.get_mut(&lease.partition).filter(|place| place.epoch == lease.epoch)
    }

    /// Returns the part of the past to read next, in the order of positions. The newest unread rows
    /// and the oldest take turns, and partitions that were read least often come first. Rows that
    /// could not be read are tried again alone.
    pub(super) fn next_unread(&mut self, now: u64) -> Vec<(Lease, Unread)> {
        let all = self.places.iter().flat_map(|(&partition, place)| {
            let lease = Lease { partition, epoch: place.epoch };
            place.unread.iter().map(move |unread| (place.ends, lease, unread))
        });
        let mut all: Vec<_> = all.filter(|(.., unread)| unread.pause.is_over(now)).collect();
        let ends = all.iter().map(|(ends, ..)| *ends).min();
        all.retain(|(times, ..)| Some(*times) == ends);
        let in_order = |(_, lease, unread): &(u64, Lease, &Unread)| {
            (unread.after.clone(), unread.before, lease.partition)
        };
        all.sort_by_cached_key(in_order);
        self.is_turn_of_oldest = !self.is_turn_of_oldest || !Manner::TurnsOfOldest.is_kept();
        let newest = all.iter().map(|(.., unread)| unread.before).max();
        let is_first = |(.., unread): &&(u64, Lease, &Unread)| {
            self.is_turn_of_oldest || Some(unread.before) == newest
        };
        let Some(&(_, lease, first)) = all.iter().find(is_first) else { return Vec::new() };
        if 0 < first.pause.failures {
            return vec![(lease, first.clone())];
        }
        all.retain(|(.., unread)| {
            unread.pause.failures == 0
                && first.before <= unread.before
                && first.after <= unread.after
                && unread.after < Position::before(first.before)
        });
        all.into_iter().map(|(_, lease, unread)| (lease, unread.clone())).collect()
    }

    /// Returns when something of the past can be read.
    pub(super) fn behind_at(&self) -> Option<u64> {
        let unread = self.places.values().flat_map(|place| &place.unread);
        unread.map(|unread| unread.pause.until).min()
    }

    /// Returns until when all rows of a partition are known.
    pub(super) fn complete_until(&self, partition: u32) -> u64 {
        self.places.get(&partition).map_or(0, |place| place.complete_until)
    }

    /// Returns whether the row is within what is known of its partition.
    pub(super) fn reaches(&self, row: &Row) -> bool {
        self.places.get(&row.partition).is_some_and(|place| row.position() <= place.loaded)
    }

    /// Returns whether the row belongs to the past.
    pub(super) fn is_past(&self, row: &Row) -> bool {
        let place = self.places.get(&row.partition);
        place.is_some_and(|place| row.deadline < place.recent.max(self.lags))
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
        let is_past = self.is_past(&row);
        let name = row.name.clone();
        let key = self.queue(is_past).insert(row);
        self.keys.insert(name, Near { is_past, key });
    }

    /// Removes the row of this name; with a number, only if the row has that number.
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
        let is_past = self.is_turn_of_past || !Manner::TurnsOfPast.is_kept();
        self.is_turn_of_past = !is_past;
        let row = self.queue(is_past).expire(limit);
        let row = row.or_else(|| self.queue(!is_past).expire(limit))?;
        self.keys.remove(&row.name);
        Some(row)
    }

    /// Drops the far half of the past or of the present, whichever has more bytes. The store still
    /// has all of these rows.
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

/// The most parts of unread rows of one partition. More parts are joined.
const MOST_UNREAD: usize = 16;

#[cfg(test)]
pub(super) mod tests {
    use super::{Front, MOST_UNREAD, Place, Unread};
    use crate::store::{Lease, Position, Row};

    fn unread(place: &Place) -> Vec<(u64, u64)> {
        let mut unread: Vec<(u64, u64)> =
            place.unread.iter().map(|unread| (unread.after.deadline, unread.before)).collect();
        unread.sort_unstable();
        unread
    }

    #[test]
    fn no_unread_past_is_dropped_where_more_is_put_behind() {
        let mut place = Place::new(1, 50, 100);
        assert_eq!(unread(&place), [(0, 50), (50, 100)]);
        place.put_behind(Position::before(500), 600);
        assert_eq!((unread(&place), place.recent), (vec![(0, 50), (50, 100), (500, 600)], 600));
        place.put_behind(Position::before(70), 600);
        assert_eq!(unread(&place), [(0, 50), (50, 600)]);
        assert!(place.read_behind(&Position::before(50), Position::before(600)));
        assert_eq!(unread(&place), [(0, 50)]);
        // A row was dropped that had been read.
        place.forget(Position::before(300));
        assert_eq!(unread(&place), [(0, 50), (300, 600)]);
        place.forget(Position::before(200));
        place.forget(Position::before(400));
        assert_eq!(unread(&place), [(0, 50), (200, 600)]);
    }

    #[test]
    fn read_again_all_that_was_read_is_read_once_more() {
        let mut place = Place::new(1, 50, 100);
        assert!(place.read_behind(&Position::before(50), Position::before(100)));
        place.read_again(150, 225);
        assert!(place.read_behind(&Position::before(150), Position::before(225)));
        assert_eq!(unread(&place), [(0, 50), (50, 150)]);
    }

    #[test]
    fn what_is_damaged_keeps_nothing_else_from_being_read_again() {
        let mut place = Place::new(1, 0, 100);
        assert!(place.read_behind(&Position::before(0), Position::before(20)));
        place.fail_behind(&Position::before(20), false, 0, 1_000);
        place.read_again(100, 200);
        assert!(place.read_behind(&Position::before(100), Position::before(200)));
        assert!(place.read_behind(&Position::before(21), Position::before(100)));
        assert_eq!(unread(&place), [(0, 200)]);
        place.fail_behind(&Position::start(), true, 0, 1_000);
        assert!(place.is_behind());
    }

    #[test]
    fn what_cannot_be_read_is_told_apart_and_that_is_bounded() {
        let mut place = Place::new(1, 0, 1_000);
        for deadline in (1..40).map(|n| n * 10) {
            let last = place.unread.iter().max_by_key(|unread| unread.before).unwrap();
            let (last, at) = (last.after.clone(), Position::before(deadline));
            assert!(place.read_behind(&last, at.clone()));
            place.fail_behind(&at, false, 0, 1_000);
            assert!(place.unread.len() <= MOST_UNREAD);
            let is_unread = |at: u64| unread(&place).iter().any(|&(a, b)| (a..b).contains(&at));
            assert!((1..=deadline / 10).all(|n| is_unread(n * 10)) && is_unread(999));
        }
        let paused = place.unread.iter().filter(|unread| 0 < unread.pause.failures);
        assert!(10 < paused.count());
    }

    fn place_of(unread: &[(u64, u64)]) -> Place {
        let mut place = Place::new(1, 0, 0);
        place.recent = 1_000;
        for &(after, before) in unread {
            place.add(Unread::new(Position::before(after), before));
        }
        place
    }

    #[test]
    fn what_is_unread_is_joined_only_if_it_overlaps_or_is_too_much() {
        assert_eq!(unread(&place_of(&[(50, 100), (0, 50)])), [(0, 50), (50, 100)]);
        assert_eq!(unread(&place_of(&[(50, 100), (0, 51)])), [(0, 100)]);
        let parts = (0..=MOST_UNREAD as u64).map(|part| (part * 20, part * 20 + 10));
        let mut parts: Vec<_> = parts.collect();
        assert_eq!(unread(&place_of(&parts[..MOST_UNREAD])), parts[..MOST_UNREAD]);
        let joined = unread(&place_of(&parts));
        parts.splice(..2, [(0, 30)]);
        assert_eq!(joined, parts);
    }

    #[test]
    fn what_is_to_be_read_again_is_unread_and_little_more() {
        for (forgotten, expected) in [
            (20, vec![(0, 50), (70, 80)]),
            (50, vec![(0, 50), (50, 80)]),
            (60, vec![(0, 50), (60, 80)]),
            (80, vec![(0, 50), (70, 80), (80, 1_000)]),
        ] {
            let mut place = place_of(&[(0, 50), (70, 80)]);
            place.forget(Position::before(forgotten));
            assert_eq!(unread(&place), expected, "{forgotten}");
        }
    }

    #[test]
    fn rows_of_one_deadline_are_damaged_only_if_they_could_not_be_read() {
        let mut place = place_of(&[(50, 51)]);
        assert!(place.is_behind());
        place.fail_behind(&Position::before(50), false, 0, 1_000);
        assert!(!place.is_behind());
    }

    #[test]
    fn what_could_be_read_waits_no_more_and_the_turns_of_a_past_are_counted() {
        let mut place = place_of(&[(0, 100)]);
        place.fail_behind(&Position::before(0), true, 0, 1_000);
        for (read, failures) in [(0, 1), (50, 0)] {
            assert!(place.read_behind(&Position::before(0), Position::before(read)));
            assert_eq!(place.unread[0].pause.failures, failures);
        }
        place.read_again(100, 1_000);
        for turn in 1..3 {
            let from = place.unread.iter().map(|unread| unread.after.clone()).collect::<Vec<_>>();
            from.iter().for_each(|from| _ = place.read_behind(from, Position::before(1_000)));
            assert_eq!(place.ends, turn);
            place.again = true;
        }
    }

    pub(in crate::keeper) fn row(name: u64, deadline: u64) -> Row {
        let (name, number) = (name.to_string().into(), name);
        let (payload, metadata) = ([0; 50].into(), "".into());
        Row { name, deadline, payload, metadata, attempt: 0, number, partition: 0 }
    }

    /// Of one partition, whose past ends where its present begins.
    fn front(past: u64, present: u64) -> Front {
        let mut front = Front::new();
        front.begin(Lease { partition: 0, epoch: 1 }, 0, 100);
        (0..past).for_each(|name| front.insert(row(name, name)));
        (0..present).for_each(|name| front.insert(row(100 + name, 100 + name)));
        front
    }

    #[test]
    fn past_and_present_take_turns() {
        let mut front = front(3, 3);
        let expired: Vec<_> =
            std::iter::from_fn(|| front.expire(1_000)).map(|row| row.deadline).collect();
        assert_eq!(expired, [100, 0, 101, 1, 102, 2]);
    }

    #[test]
    fn the_far_half_is_dropped_of_what_is_larger() {
        for (past, present, left) in [(10, 4, (5, 4)), (4, 10, (4, 5)), (0, 1, (0, 0))] {
            let mut front = front(past, present);
            front.halve();
            let mut deadlines: Vec<_> = front.rows().map(|row| row.deadline).collect();
            deadlines.sort_unstable();
            assert!(deadlines.into_iter().eq((0..left.0).chain(100..100 + left.1)));
        }
    }

    /// The oldest and the newest, and with each all that can be read in order beside it.
    #[test]
    fn what_is_read_next_is_the_oldest_or_the_newest_by_turns() {
        let mut front = Front::new();
        for (partition, parts) in [(0, [(0, 50), (60, 70)]), (1, [(0, 50), (50, 90)])] {
            let place = front.begin(Lease { partition, epoch: 1 }, 0, 0);
            *place = place_of(&parts);
        }
        assert_eq!(front.behind_at(), Some(0));
        let mut next = || -> Vec<_> {
            let unread = front.next_unread(0).into_iter();
            unread.map(|(lease, unread)| (lease.partition, unread.after.deadline)).collect()
        };
        for _ in 0..2 {
            assert_eq!(next(), [(1, 50)], "the newest");
            assert_eq!(next(), [(0, 0), (1, 0)], "the oldest");
        }
    }
}
