//! A wheel's buckets by number.

use crate::arena::{Arena, Entry};
use crate::bucket::Bucket;
use crate::occupancy::{Bits, Members, Occupancy, WIDTH, earliest_of};
use alloc::vec::Vec;

/// The buckets of a wheel, allocated a row at a time on first use, and which of them are occupied.
#[derive(Debug)]
pub(crate) struct Table {
    /// How many buckets there could be.
    limit: u32,
    occupancy: Occupancy,
    /// By the places that `occupancy` gives its rows.
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    /// For each bucket a tick that none of its deadlines is before, stale ones included; exact
    /// until the bucket's earliest timeout is cancelled or moved, and the last tick if the bucket
    /// is empty. Apart from the buckets, so that passing many of them by reads little memory.
    earliest: [u64; WIDTH],
    buckets: [Bucket; WIDTH],
}

impl Table {
    pub(crate) fn new(limit: u32) -> Self {
        Self { limit, occupancy: Occupancy::new(limit), rows: Vec::new() }
    }

    /// Bucket `number`, about to get an entry of `deadline`.
    #[inline(always)]
    pub(crate) fn bucket_for(&mut self, number: u32, deadline: u64) -> &mut Bucket {
        let mut place = self.occupancy.place(number);
        let at = number as usize % WIDTH;
        // Where something is due as early, all is noted. The last tick may be that of an empty one.
        let is_noted = |row: &Row| row.earliest[at] <= deadline && deadline < u64::MAX;
        if !self.rows.get(place).is_some_and(is_noted) {
            place = self.note(number, deadline);
        }
        &mut self.rows[place].buckets[at]
    }

    /// Takes note that something in bucket `number` is due at `deadline`; returns where its row is.
    #[inline(never)]
    fn note(&mut self, number: u32, deadline: u64) -> usize {
        let mut place = self.occupancy.note(number, deadline);
        if self.rows.len() <= place {
            place = self.insert_row(number);
            self.occupancy.note(number, deadline);
        }
        self.occupancy.insert(number, place);
        let earliest = &mut self.rows[place].earliest[number as usize % WIDTH];
        *earliest = deadline.min(*earliest);
        place
    }

    /// Bucket `number`, which must be occupied; if it is emptied, `close` it.
    #[inline]
    pub(crate) fn bucket_mut(&mut self, number: u32) -> &mut Bucket {
        &mut self.rows[self.occupancy.place(number)].buckets[number as usize % WIDTH]
    }

    /// Takes note that no deadline in bucket `number` is before `earliest`, or that it is empty.
    pub(crate) fn close(&mut self, number: u32, earliest: u64) {
        let place = self.occupancy.place(number);
        let row = &mut self.rows[place];
        let at = number as usize % WIDTH;
        row.earliest[at] = earliest;
        if row.buckets[at].is_empty() {
            row.earliest[at] = u64::MAX;
            self.occupancy.remove(number, place);
        }
    }

    /// Takes the whole of bucket `number`, which must be occupied.
    pub(crate) fn take(&mut self, number: u32) -> Bucket {
        let bucket = core::mem::take(self.bucket_mut(number));
        self.close(number, 0);
        bucket
    }

    /// Drops all entries. The rows stay.
    pub(crate) fn clear(&mut self) {
        let Self { occupancy, rows, .. } = self;
        occupancy.clear(|row, at| {
            rows[row].earliest[at] = u64::MAX;
            rows[row].buckets[at] = Bucket::default();
        });
    }

    #[cold]
    fn insert_row(&mut self, number: u32) -> usize {
        let place = self.occupancy.insert_row(number);
        if place == self.rows.len() {
            self.rows.push(Row {
                earliest: [u64::MAX; WIDTH],
                buckets: core::array::from_fn(|_| Bucket::default()),
            });
        }
        place
    }

    /// The occupied bucket of the lowest number, with a tick that it has no deadline before.
    #[inline]
    pub(crate) fn first(&self) -> Option<(u32, u64)> {
        self.next(0)
    }

    /// The occupied buckets by number, each with a tick that it has no deadline before.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, u64)> {
        let mut next = Some(0);
        let rows = core::iter::from_fn(move || {
            let members = self.occupancy.members(next?)?;
            next = members.base.checked_add(WIDTH as u32);
            Some(members)
        });
        rows.flat_map(|Members { row, base, word }| {
            let earliest = &self.rows[row].earliest;
            Bits(word).map(move |at| (base + at, earliest[at as usize]))
        })
    }

    /// The first occupied bucket at or after number `from`, with a tick that it has no deadline
    /// before.
    pub(crate) fn next(&self, from: u32) -> Option<(u32, u64)> {
        let Members { row, base, word } = self.occupancy.members(from)?;
        let at = word.trailing_zeros();
        Some((base + at, self.rows[row].earliest[at as usize]))
    }

    /// The first bucket from number `from` to the end of its row in which something is due as they
    /// are passed one a tick, the first at tick `begin`; and when.
    #[inline]
    pub(crate) fn pass(&self, from: u32, begin: u64) -> Option<(u32, u64)> {
        let place = self.occupancy.place(from);
        let first = from as usize % WIDTH;
        let passed = self.rows.get(place)?.earliest.iter().skip(first);
        let is_due = |&(distance, &tick): &(u64, &u64)| tick == begin.saturating_add(distance);
        let (distance, &tick) = (0..).zip(passed).find(is_due)?;
        let is_occupied = self.occupancy.is_occupied(place, first + distance as usize);
        is_occupied.then_some((from + distance as u32, tick))
    }

    /// The occupied bucket in which something is due first, as far as is known, and when.
    pub(crate) fn soonest(&mut self) -> Option<(u32, u64)> {
        self.occupancy.soonest(|row, word| earliest_of(word, &self.rows[row].earliest))
    }

    /// Bucket `number`, which must be occupied.
    pub(crate) fn bucket(&self, number: u32) -> &Bucket {
        &self.rows[self.occupancy.place(number)].buckets[number as usize % WIDTH]
    }

    /// Drops the entries that are not to be kept, and gives back what the others do not need.
    pub(crate) fn shrink(&mut self, keep: impl Fn(Entry) -> bool) {
        let occupied: Vec<_> = self.iter().collect();
        let mut shrunk = Self::new(self.limit);
        for (number, earliest) in occupied {
            let mut bucket = self.take(number);
            bucket.shrink(&keep);
            if !bucket.is_empty() {
                *shrunk.bucket_for(number, earliest) = bucket;
            }
        }
        shrunk.rows.shrink_to_fit();
        shrunk.occupancy.shrink_to_fit();
        *self = shrunk;
    }

    /// Bytes allocated.
    pub(crate) fn memory(&self) -> usize {
        let arrays: usize = self.iter().map(|(number, _)| self.bucket(number).memory()).sum();
        arrays + self.rows.capacity() * size_of::<Row>() + self.occupancy.memory()
    }

    /// Panics unless the set of occupied buckets is right, and every bucket is in order.
    pub(crate) fn check<T>(&self, arena: &Arena<T>) {
        self.occupancy.check();
        for (place, row) in self.rows.iter().enumerate() {
            for (at, bucket) in row.buckets.iter().enumerate() {
                let occupied = self.occupancy.is_occupied(place, at);
                assert_eq!(occupied, !bucket.is_empty(), "the occupied buckets are known");
                let earliest = row.earliest[at];
                assert!(
                    occupied || earliest == u64::MAX,
                    "an empty bucket is due at the last tick"
                );
                bucket.check(arena);
            }
        }
        for (number, earliest) in self.iter() {
            for entry in self.bucket(number).iter() {
                let deadline = arena.deadline(entry);
                assert!(deadline.is_none_or(|deadline| earliest <= deadline), "none is earlier");
            }
            self.occupancy.check_noted(number, earliest);
        }
    }
}
