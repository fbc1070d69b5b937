//! Check: a slow and obvious scan of every invariant.
//!
//! 1. Every timeout has exactly one entry that is not stale, and that entry knows its deadline. If
//!    the deadline is after the cursor, the entry is in the bucket that deadline and cursor
//!    determine; otherwise it is in `Ready`. During a visit, the entries of the visited bucket may
//!    also be where the cursor at the end of the visit puts them.
//! 2. All other entries are stale, and `Sweep` knows their number.
//! 3. No chunk of a bucket is empty, and an empty bucket holds no memory. The chunks of a bucket
//!    that count as sorted are sorted by deadline. The tick that is noted for a chunk is not after
//!    any deadline in it.
//! 4. The noted deadline of a bucket is not after the deadline of any timeout in it. That of a node
//!    is not after any below it. In a hashed wheel it tells the bucket. `wake` is not after any
//!    deadline.
//! 5. Exactly the buckets with entries are marked as occupied. Each node knows which of its
//!    children lead to one. A row or node without members is not in the tree.
//! 6. A slot is live or vacant, and the bit of its group says which. One vacant slot may be spare,
//!    and has no bit. Each group of slots with a bit set is listed once. The groups in use are
//!    known.
//! 7. What is ready is sorted: first `sorted`, then `runs`, then `due`, whose deadlines are all the
//!    cursor. No deadline in it is after the cursor. Except in a visit, the first is at hand.
//! 8. The number of stale entries, the entries owed to a sweep, and the memory are at most a
//!    constant plus a constant times the most timeouts that were live since the last
//!    `shrink_to_fit`.

use super::Wheel;
use super::arena::Entry;
use super::geometry::Geometry;
use super::sweep::{FEW_STALE, STALE_PER_LIVE, SWEPT};
use super::table::Visit;
use alloc::vec::Vec;

impl<T> Wheel<T> {
    /// Panics unless every invariant holds: a slow and obvious scan, for tests.
    #[doc(hidden)]
    pub fn check(&self) {
        let visited = self.table.visit().map(Visit::number);
        self.arena.check();
        self.table.check(&self.arena, visited);
        self.ready.check(
            &self.arena,
            self.table.visit().map_or(self.cursor, Visit::end),
            visited.is_some(),
        );
        self.check_entries();
        self.check_bounds();

        let earliest = self.iter().map(|(_, deadline, _)| deadline).min();
        assert!(earliest.is_none_or(|earliest| self.wake <= earliest), "it wakes in time");
        if let Some(first) = self.known_first() {
            assert_eq!(Some(first.deadline), earliest, "it comes first");
        }
    }

    /// Panics unless every timeout has one entry, where its deadline belongs.
    fn check_entries(&self) {
        let mut entries = 0;
        let mut placed = Vec::new();
        let mut is_live = |entry: Entry| {
            entries += 1;
            let is_live = !self.arena.is_stale(entry);
            if is_live {
                placed.push(entry.index);
                assert_eq!(self.arena.deadline_at(entry.index), entry.deadline, "it knows when");
            }
            is_live
        };
        for entry in self.ready.iter() {
            if is_live(entry) {
                self.check_told(entry, None);
            }
        }
        for number in self.table.iter() {
            if let Geometry::Hashed(level) = self.geometry {
                let noted = self.table.noted(number).map(|tick| level.bucket(tick));
                assert_eq!(noted, Some(number), "the tick that is noted tells the bucket");
            }
            for entry in self.table.bucket(number).iter() {
                if is_live(entry) {
                    let is_there = self.belongs_in(entry.deadline, number);
                    assert!(is_there, "it is in its bucket, and not yet ready");
                    let level = self.geometry.level(number) as usize;
                    let bucket = number as usize - level * self.mode.buckets();
                    self.check_told(entry, Some((level, bucket)));
                }
            }
        }
        assert_eq!(entries, self.len() + self.sweep.stale, "stale entries are counted");
        placed.sort_unstable();
        placed.dedup();
        assert_eq!(placed.len(), self.len(), "every timeout has one entry");
    }

    /// Panics unless the wheel says that a live entry is in `bucket`. A visit moves entries before
    /// the cursor says so.
    fn check_told(&self, entry: Entry, bucket: Option<(usize, usize)>) {
        if self.table.visit().is_none() {
            let (key, ..) = self.arena.next_live(entry.index).expect("it is live");
            assert_eq!(self.bucket(key), bucket, "the wheel knows where it is");
        }
    }

    /// Returns whether a timeout of `deadline` may be in bucket `number`. A visit demotes an entry
    /// to the bucket that the cursor at the end of the visit determines.
    fn belongs_in(&self, deadline: u64, number: u32) -> bool {
        let is_from =
            |cursor| cursor < deadline && self.geometry.bucket(deadline, cursor) == number;
        match (self.geometry, self.table.visit()) {
            (Geometry::Hierarchical(_), Some(Visit::Demote { number: visited, tick })) => {
                let is_of_it = self.geometry.bucket(deadline, self.cursor) == visited;
                is_from(self.cursor) || is_of_it && is_from(tick)
            }
            _ => is_from(self.cursor),
        }
    }

    /// Panics unless memory and the work ahead go by the most timeouts that were live since the
    /// last `shrink_to_fit`, and not by the number of operations.
    fn check_bounds(&self) {
        let places = self.arena.places();
        let Self { sweep, .. } = self;
        let most = FEW_STALE + STALE_PER_LIVE * places;
        assert!(sweep.stale <= FEW + 2 * most, "few entries are stale: {}", sweep.stale);
        assert!(sweep.owed <= FEW + SWEPT, "little is owed: {}", sweep.owed);
        // The arena goes by its places, and by what was reserved.
        let memory = self.stats().memory - self.arena.memory();
        let rows = self.mode.buckets() * self.mode.levels() / 16;
        let rows = rows.min(4 * (places + most));
        let bound = MEMORY + MEMORY_PER_PLACE * places + MEMORY_PER_ROW * rows;
        assert!(memory <= bound, "{memory} bytes where {places} were live");
    }
}

/// The entries of the largest piece of a sweep. So many may be owed, and be stale beyond those that
/// begin a sweep.
const FEW: usize = 1024;
/// The bytes that any wheel may hold.
const MEMORY: usize = 64 << 10;
/// The bytes that a wheel may hold for each place, besides rows of buckets.
const MEMORY_PER_PLACE: usize = 400;
/// The bytes that a wheel may hold for each row of buckets, with the nodes that lead to it.
const MEMORY_PER_ROW: usize = 6 << 10;
