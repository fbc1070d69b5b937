//! A wheel's buckets by number.

use crate::arena::Arena;
use crate::bucket::Bucket;
use crate::occupancy::{Members, Occupancy, WIDTH};
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
    /// A tick that no deadline in an occupied bucket of the row is before.
    least: u64,
    /// For each occupied bucket a tick that none of its deadlines is before; exact until the
    /// bucket's earliest timeout is cancelled. Apart from the buckets, so that passing many of them
    /// by reads little memory.
    earliest: [u64; WIDTH],
    buckets: [Bucket; WIDTH],
}

/// The positions of the bits that are set, the lowest first.
struct Bits(u64);

impl Iterator for Bits {
    type Item = u32;

    #[inline]
    fn next(&mut self) -> Option<u32> {
        let at = (self.0 != 0).then(|| self.0.trailing_zeros())?;
        self.0 &= self.0 - 1;
        Some(at)
    }
}

impl Table {
    pub(crate) fn new(limit: u32) -> Self {
        Self { limit, occupancy: Occupancy::new(limit), rows: Vec::new() }
    }

    /// Bucket `number`, about to get an entry of `deadline`.
    #[inline]
    pub(crate) fn bucket_for(&mut self, number: u32, deadline: u64) -> &mut Bucket {
        let place = self.place_or_insert(number);
        let row = &mut self.rows[place];
        let at = number as usize % WIDTH;
        let bucket = &mut row.buckets[at];
        if bucket.is_empty() {
            if self.occupancy.insert(number, place) {
                row.least = deadline;
            }
            row.earliest[at] = deadline;
        }
        row.earliest[at] = row.earliest[at].min(deadline);
        row.least = row.least.min(deadline);
        bucket
    }

    /// Takes the entry of the timeout at `index`, which remembers `position`, out of bucket
    /// `number`.
    #[inline]
    pub(crate) fn remove<T>(
        &mut self,
        number: u32,
        index: u32,
        position: u32,
        arena: &mut Arena<T>,
    ) {
        let place = self.occupancy.place(number);
        let bucket = &mut self.rows[place].buckets[number as usize % WIDTH];
        bucket.remove(index, position, arena);
        if bucket.is_empty() {
            self.occupancy.remove(number, place);
        }
    }

    /// Takes the whole of bucket `number`.
    pub(crate) fn take(&mut self, number: u32) -> Bucket {
        let place = self.occupancy.place(number);
        self.occupancy.remove(number, place);
        core::mem::take(&mut self.rows[place].buckets[number as usize % WIDTH])
    }

    /// Moves what is due in `from..=to` out of bucket `number`, given that no deadline in it is
    /// before `from` or after `latest`, and returns how many timeouts are left in it.
    pub(crate) fn take_due<T>(
        &mut self,
        number: u32,
        from: u64,
        to: u64,
        latest: u64,
        due: &mut Bucket,
        arena: &Arena<T>,
    ) -> usize {
        let place = self.occupancy.place(number);
        let row = &mut self.rows[place];
        let at = number as usize % WIDTH;
        let bucket = &mut row.buckets[at];
        row.earliest[at] = bucket.take_due(from, to, latest, due, arena);
        let waiting = bucket.len();
        if waiting == 0 {
            self.occupancy.remove(number, place);
        }
        waiting
    }

    /// The place of bucket `number`'s row, made if it is not there yet.
    #[inline]
    fn place_or_insert(&mut self, number: u32) -> usize {
        let place = self.occupancy.place(number);
        if place < self.rows.len() { place } else { self.insert_row(number) }
    }

    #[cold]
    fn insert_row(&mut self, number: u32) -> usize {
        let place = self.occupancy.insert_row(number);
        if place == self.rows.len() {
            self.rows.push(Row {
                least: 0,
                earliest: [0; WIDTH],
                buckets: core::array::from_fn(|_| Bucket::default()),
            });
        }
        place
    }

    /// A tick that no deadline in bucket `number` is before, if the bucket is occupied.
    #[inline]
    pub(crate) fn earliest(&self, number: u32) -> Option<u64> {
        let row = self.rows.get(self.occupancy.place(number))?;
        let at = number as usize % WIDTH;
        if row.buckets[at].is_empty() { None } else { Some(row.earliest[at]) }
    }

    /// The occupied bucket of the lowest number, with a tick that it has no deadline before.
    #[inline]
    pub(crate) fn first(&self) -> Option<(u32, u64)> {
        let members = self.occupancy.members(0)?;
        let at = members.word.trailing_zeros();
        Some((members.base + at, self.rows[members.row].earliest[at as usize]))
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

    /// The first tick at which something could be due in a bucket when the buckets from number
    /// `from` up to the row of `to` are passed one a tick, number 0 at tick `begin`.
    pub(crate) fn pass(&mut self, from: u32, to: u32, begin: u64) -> Option<u64> {
        let mut next = from;
        while next < to {
            let Members { row, base, word } = self.occupancy.members(next)?;
            let tick = begin.wrapping_add(base.into());
            let Row { least, earliest, .. } = &mut self.rows[row];
            // Unless something could be due while the row is passed, one look is enough.
            if *least < tick.saturating_add(WIDTH as u64) {
                let is_due = |&at: &u32| earliest[at as usize] == tick.wrapping_add(at.into());
                if let Some(at) = Bits(word).find(is_due) {
                    return Some(earliest[at as usize]);
                }
                if from <= base {
                    *least = Bits(word).map(|at| earliest[at as usize]).min()?;
                }
            }
            next = base.checked_add(WIDTH as u32)?;
        }
        None
    }

    /// The earliest of the ticks that are known for the occupied buckets.
    pub(crate) fn soonest(&mut self) -> Option<u64> {
        loop {
            let mut soonest: Option<Members> = None;
            let mut next = Some(0);
            while let Some(members) = next.and_then(|next| self.occupancy.members(next)) {
                let least = |members: Members| self.rows[members.row].least;
                if soonest.is_none_or(|soonest| least(members) < least(soonest)) {
                    soonest = Some(members);
                }
                next = members.base.checked_add(WIDTH as u32);
            }
            let Members { row, word, .. } = soonest?;
            let Row { least, earliest, .. } = &mut self.rows[row];
            let exact = Bits(word).map(|at| earliest[at as usize]).min()?;
            if exact == *least {
                return Some(exact);
            }
            *least = exact;
        }
    }

    /// Bucket `number`, which must be occupied.
    pub(crate) fn bucket(&self, number: u32) -> &Bucket {
        &self.rows[self.occupancy.place(number)].buckets[number as usize % WIDTH]
    }

    /// Gives back what the timeouts that are there do not need.
    pub(crate) fn shrink_to_fit(&mut self) {
        let occupied: Vec<_> = self.iter().collect();
        let mut shrunk = Self::new(self.limit);
        for (number, earliest) in occupied {
            let mut bucket = self.take(number);
            bucket.shrink_to_fit();
            *shrunk.bucket_for(number, earliest) = bucket;
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
                bucket.check(arena);
            }
        }
        for (number, earliest) in self.iter() {
            let row = &self.rows[self.occupancy.place(number)];
            assert!(row.least <= earliest, "nothing is before `least`");
            for entry in self.bucket(number).iter() {
                assert!(earliest <= arena.deadline(entry.index), "nothing is before `earliest`");
            }
        }
    }
}
