//! Table: holds the buckets of a wheel by number, in a tree of earliest deadlines.

use super::arena::{Arena, Entry};
use super::bucket::Bucket;
#[cfg(feature = "std")]
use super::growing::free_some;
use crate::steps;
use alloc::vec::Vec;

/// The buckets of a wheel, allocated a row at a time where they are used.
///
/// The leaves of the tree are the rows. Each row and each node above knows which of its members are
/// occupied, and for each member a tick that is not after any deadline there. So the bucket that
/// comes up next is found in a few steps, by number or by deadline. Putting an entry in notes its
/// deadline on the way down. Closing a bucket puts right what the row notes, and later, once for
/// many buckets of a row, what the nodes above it do: see `closed`. A row or node without members
/// leaves the tree, and is used again elsewhere.
#[derive(Debug)]
pub(super) struct Table {
    /// All numbers of buckets are below this one.
    limit: u32,
    /// The number of tiers of nodes above the rows, which is at least 1.
    height: u32,
    /// The number of the bucket that was closed last. The nodes on the way to its row may note a
    /// tick that is too early. All other nodes note the earliest tick of their children.
    closed: u32,
    /// The root comes first.
    nodes: Places<Node>,
    rows: Places<Row>,
}

/// Rows or nodes by place. Spare ones are used again.
#[derive(Debug)]
struct Places<E> {
    all: Vec<E>,
    spare: Vec<u32>,
}

#[derive(Debug)]
struct Row {
    /// The number of the first bucket.
    base: u32,
    /// The bit of each bucket that is occupied. The lowest bit is that of the first bucket.
    occupied: u32,
    /// For each bucket, a tick that is not after the deadline of any timeout in it; the last tick
    /// if it is empty. An entry of an earlier deadline is stale. The ticks are apart from the
    /// buckets, so that passing many buckets reads little memory.
    earliest: [u64; ROW],
    buckets: [Bucket; ROW],
}

#[derive(Debug)]
struct Node {
    /// Bit `i` is set exactly while something below `children[i]` is occupied.
    occupied: u64,
    /// The places of nodes, or on the lowest tier of rows.
    children: [u32; FANOUT],
    /// For each child, a tick that is not after any deadline below it; the last tick if it is
    /// empty.
    earliest: [u64; FANOUT],
}

impl Table {
    /// Makes a table of buckets with numbers below `limit`. Allocates nothing.
    pub(super) fn new(limit: u32) -> Self {
        let mut height = 1;
        while (limit - 1).checked_shr(ROW_BITS + height * NODE_BITS).unwrap_or(0) > 0 {
            height += 1;
        }
        Self { limit, height, closed: 0, nodes: Places::new(), rows: Places::new() }
    }

    /// Returns bucket `number`, which is about to get an entry of `deadline`.
    #[inline(always)]
    pub(super) fn bucket_for(&mut self, number: u32, deadline: u64) -> &mut Bucket {
        let place = self.place(number);
        let at = number as usize % ROW;
        // If something there is due as early, all is noted. The last tick may mean an empty bucket.
        let is_noted = |row: &Row| row.earliest[at] <= deadline && deadline < u64::MAX;
        if self.rows.all.get(place).is_some_and(is_noted) {
            &mut self.rows.all[place].buckets[at]
        } else {
            self.note(number, deadline)
        }
    }

    /// Notes that something in bucket `number` is due at `deadline`, and returns the bucket. Makes
    /// its row, and the nodes that lead to it, if they are missing.
    #[inline(never)]
    fn note(&mut self, number: u32, deadline: u64) -> &mut Bucket {
        if self.nodes.all.is_empty() {
            self.nodes.take(Node::default);
        }
        let mut at = 0;
        for tier in (1..=self.height).rev() {
            let digit = digit(number, tier);
            let mut child = self.nodes.all[at].children[digit];
            if child == ABSENT {
                child = match tier {
                    1 => self.rows.take(Row::default),
                    _ => self.nodes.take(Node::default),
                };
            }
            let node = &mut self.nodes.all[at];
            node.occupied |= 1 << digit;
            node.children[digit] = child;
            node.earliest[digit] = deadline.min(node.earliest[digit]);
            at = child as usize;
        }
        let row = &mut self.rows.all[at];
        let member = number as usize % ROW;
        row.base = number - member as u32;
        row.occupied |= 1 << member;
        row.earliest[member] = deadline.min(row.earliest[member]);
        &mut row.buckets[member]
    }

    /// Takes the last entry out of bucket `number` if it has this index and stamp, and is not the
    /// only one of its chunk. Returns whether it did.
    #[inline]
    pub(super) fn take_back(&mut self, number: u32, index: u32, stamp: u32) -> bool {
        let place = self.place(number);
        let row = self.rows.all.get_mut(place);
        row.is_some_and(|row| row.buckets[number as usize % ROW].take_back(index, stamp))
    }

    /// Takes the only entry out of bucket `number` if it has this index and stamp, and closes the
    /// bucket. Returns whether it did.
    pub(super) fn take_alone(&mut self, number: u32, index: u32, stamp: u32) -> bool {
        let place = self.place(number);
        let Some(row) = self.rows.all.get_mut(place) else { return false };
        let is_taken = row.buckets[number as usize % ROW].take_alone(index, stamp);
        if is_taken {
            self.close(number, u64::MAX);
        }
        is_taken
    }

    /// Returns bucket `number`, which must be occupied. A caller that empties it must `close` it.
    #[inline]
    pub(super) fn bucket_mut(&mut self, number: u32) -> &mut Bucket {
        let place = self.place(number);
        &mut self.rows.all[place].buckets[number as usize % ROW]
    }

    /// Returns bucket `number`, which must be occupied.
    pub(super) fn bucket(&self, number: u32) -> &Bucket {
        &self.rows.all[self.place(number)].buckets[number as usize % ROW]
    }

    /// Takes out the whole of bucket `number`, which must be occupied.
    pub(super) fn take(&mut self, number: u32) -> Bucket {
        let bucket = core::mem::take(self.bucket_mut(number));
        self.close(number, u64::MAX);
        bucket
    }

    /// Notes that nothing in bucket `number` is due before `earliest`, or that it is empty.
    pub(super) fn close(&mut self, number: u32, earliest: u64) {
        // Buckets that are near one another are closed one after the other.
        if self.closed / ROW as u32 != number / ROW as u32 {
            self.put_right();
            self.closed = number;
        }
        let place = self.place(number);
        let row = &mut self.rows.all[place];
        let at = number as usize % ROW;
        row.earliest[at] = earliest;
        if row.buckets[at].is_empty() {
            row.earliest[at] = u64::MAX;
            row.occupied &= !(1 << at);
            if row.occupied == 0 {
                self.unlink(self.height, 0, number);
            }
        }
    }

    /// Puts right what the nodes on the way to the row that was closed last have noted.
    fn put_right(&mut self) {
        if !self.nodes.all.is_empty() {
            self.put_right_below(self.height, 0);
        }
    }

    /// Puts right what a node and those below it have noted.
    fn put_right_below(&mut self, tier: u32, at: usize) {
        let digit = digit(self.closed, tier);
        let child = self.nodes.all[at].children[digit] as usize;
        let earliest = match tier {
            _ if child == ABSENT as usize => u64::MAX,
            1 => earliest_of(1, &self.rows.all[child].earliest).1,
            _ => {
                self.put_right_below(tier - 1, child);
                earliest_of(1, &self.nodes.all[child].earliest).1
            }
        };
        self.nodes.all[at].earliest[digit] = earliest;
    }

    /// Takes the empty row that covers `number` out of the tree, and the nodes below `node` that
    /// lead to nothing else.
    fn unlink(&mut self, tier: u32, node: usize, number: u32) {
        let digit = digit(number, tier);
        let child = self.nodes.all[node].children[digit];
        if tier == 1 {
            self.rows.spare.push(child);
        } else {
            self.unlink(tier - 1, child as usize, number);
            if self.nodes.all[child as usize].occupied != 0 {
                return;
            }
            self.nodes.spare.push(child);
        }
        self.nodes.all[node].forget(digit);
    }

    /// Drops all entries, and keeps the memory of rows and nodes. Looks only at occupied buckets.
    pub(super) fn clear(&mut self) {
        if !self.nodes.all.is_empty() {
            self.clear_below(self.height, 0);
        }
    }

    fn clear_below(&mut self, tier: u32, at: usize) {
        for digit in bits(self.nodes.all[at].occupied) {
            steps::count(1);
            let node = &mut self.nodes.all[at];
            let child = node.children[digit as usize];
            node.forget(digit as usize);
            if tier > 1 {
                self.clear_below(tier - 1, child as usize);
                self.nodes.spare.push(child);
                continue;
            }
            let row = &mut self.rows.all[child as usize];
            for at in bits(core::mem::take(&mut row.occupied).into()) {
                steps::count(1);
                row.earliest[at as usize] = u64::MAX;
                row.buckets[at as usize] = Bucket::default();
            }
            self.rows.spare.push(child);
        }
    }

    /// Returns the place of the row that covers `number`, or a place where there is no row.
    #[inline]
    fn place(&self, number: u32) -> usize {
        let Some(root) = self.nodes.all.first() else { return ABSENT as usize };
        match self.height {
            // Apart, because digits are found faster on a tier that is known beforehand.
            1 => root.children[digit(number, 1)] as usize,
            tier => self.place_below(number, tier, root),
        }
    }

    /// As `place`, below a node on `tier`.
    fn place_below(&self, number: u32, tier: u32, node: &Node) -> usize {
        let mut at = node.children[digit(number, tier)];
        for tier in (1..tier).rev() {
            let Some(node) = self.nodes.all.get(at as usize) else { break };
            at = node.children[digit(number, tier)];
        }
        at as usize
    }

    /// Returns the occupied bucket of the lowest number, and a tick that is not after any deadline
    /// in it.
    #[inline]
    pub(super) fn first(&self) -> Option<(u32, u64)> {
        steps::count(self.height as usize + 1);
        let mut node = self.nodes.all.first().filter(|root| root.occupied != 0)?;
        for _ in 1..self.height {
            node = &self.nodes.all[node.children[node.occupied.trailing_zeros() as usize] as usize];
        }
        let row = &self.rows.all[node.children[node.occupied.trailing_zeros() as usize] as usize];
        let at = row.occupied.trailing_zeros();
        Some((row.base + at, row.earliest[at as usize]))
    }

    /// Returns the occupied bucket of the highest number that is not above `number`.
    pub(super) fn last(&self, number: u32) -> Option<u32> {
        let number = number.min(self.limit - 1);
        if self.nodes.all.is_empty() { None } else { self.last_below(self.height, 0, number) }
    }

    /// As `last`, below one node or in one row.
    fn last_below(&self, tier: u32, at: usize, number: u32) -> Option<u32> {
        steps::count(1);
        if tier == 0 {
            let Row { base, occupied, .. } = self.rows.all[at];
            let members = occupied & (u32::MAX >> (31 - number % ROW as u32));
            return Some(base + members.checked_ilog2()?);
        }
        let node = &self.nodes.all[at];
        let digit = digit(number, tier);
        let below =
            |digit: usize, number| self.last_below(tier - 1, node.children[digit] as usize, number);
        let same = if node.occupied >> digit & 1 == 1 { below(digit, number) } else { None };
        same.or_else(|| {
            // All of a child before that will do.
            let before = node.occupied & !(u64::MAX << digit);
            below(before.checked_ilog2()? as usize, u32::MAX)
        })
    }

    /// Returns the occupied buckets in no particular order, each with a tick that is not after any
    /// deadline in it.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, u64)> {
        steps::count(self.rows.all.len());
        self.rows.all.iter().flat_map(|row| {
            bits(row.occupied.into()).map(|at| (row.base + at, row.earliest[at as usize]))
        })
    }

    /// Passes the buckets from number `from` to the end of its row, one per tick, the first at tick
    /// `begin`. Returns the first in which something is due at its tick, and that tick.
    #[inline]
    pub(super) fn pass(&self, from: u32, begin: u64) -> Option<(u32, u64)> {
        let row = self.rows.all.get(self.place(from))?;
        let passed = row.earliest.iter().skip(from as usize % ROW);
        let is_due =
            |&(distance, &tick): &(u32, &u64)| tick == begin.saturating_add(distance.into());
        let (distance, &tick) = (0..).zip(passed).find(is_due)?;
        let number = from + distance;
        (row.occupied >> (number % ROW as u32) & 1 == 1).then_some((number, tick))
    }

    /// Returns the occupied bucket with the earliest noted deadline, and that deadline.
    pub(super) fn soonest(&mut self) -> Option<(u32, u64)> {
        self.put_right();
        let mut node = self.nodes.all.first().filter(|root| root.occupied != 0)?;
        for _ in 1..self.height {
            let (digit, _) = earliest_of(node.occupied, &node.earliest);
            node = &self.nodes.all[node.children[digit] as usize];
        }
        let (digit, _) = earliest_of(node.occupied, &node.earliest);
        let row = &self.rows.all[node.children[digit] as usize];
        let (at, tick) = earliest_of(row.occupied.into(), &row.earliest);
        Some((row.base + at as u32, tick))
    }

    /// Drops the entries that `keep` rejects, and gives back the memory that the others do not
    /// need.
    pub(super) fn shrink(&mut self, keep: impl Fn(Entry) -> bool) {
        let mut shrunk = Self::new(self.limit);
        let occupied: Vec<_> = self.iter().collect();
        for (number, earliest) in occupied {
            let mut bucket = self.take(number);
            bucket.shrink(&keep);
            if !bucket.is_empty() {
                *shrunk.bucket_for(number, earliest) = bucket;
            }
        }
        shrunk.rows.all.shrink_to_fit();
        shrunk.nodes.all.shrink_to_fit();
        *self = shrunk;
    }

    /// Returns how many rows and nodes have memory.
    #[cfg(feature = "std")]
    pub(super) fn places(&self) -> usize {
        self.rows.all.len() + self.nodes.all.len()
    }

    /// Frees a piece of a table that is no longer needed, and returns whether there is more.
    #[cfg(feature = "std")]
    pub(super) fn free_some(&mut self) -> bool {
        free_some(&mut self.rows.all) || free_some(&mut self.nodes.all)
    }

    /// Returns the bytes that are allocated.
    pub(super) fn memory(&self) -> usize {
        let arrays: usize = self.iter().map(|(number, _)| self.bucket(number).memory()).sum();
        arrays + self.memory_of_none()
    }

    /// The same, if no bucket holds anything.
    pub(super) fn memory_of_none(&self) -> usize {
        self.nodes.memory() + self.rows.memory()
    }

    /// Panics unless rows and nodes tell the truth about their members, and every bucket is in
    /// order. Bucket `visited` may be empty although it is occupied.
    pub(super) fn check<T>(&self, arena: &Arena<T>, visited: Option<u32>) {
        if !self.nodes.all.is_empty() {
            self.check_below(self.height, 0);
        }
        for (place, row) in self.rows.all.iter().enumerate() {
            let is_spare = self.rows.spare.contains(&(place as u32));
            assert_eq!(is_spare, row.occupied == 0, "an empty row is to be used again");
            assert!(is_spare || self.place(row.base) == place, "a row is in its place");
            for (at, bucket) in row.buckets.iter().enumerate() {
                let number = row.base + at as u32;
                let is_occupied = row.occupied >> at & 1 == 1;
                let may_be = !bucket.is_empty() || visited == Some(number);
                assert!(is_occupied || bucket.is_empty(), "a bucket with entries is occupied");
                assert!(!is_occupied || may_be, "an occupied bucket has entries");
                let earliest = row.earliest[at];
                assert!(
                    is_occupied || earliest == u64::MAX,
                    "what is empty is due at the last tick"
                );
                let is_known = |entry: Entry| earliest <= entry.deadline || arena.is_stale(entry);
                assert!(bucket.iter().all(is_known), "no timeout is due before");
                bucket.check(arena);
            }
        }
    }

    /// Checks a node and all below it, and returns the earliest tick that it should note.
    fn check_below(&self, tier: u32, at: usize) -> u64 {
        if tier == 0 {
            return self.rows.all[at].earliest.into_iter().fold(u64::MAX, u64::min);
        }
        let node = &self.nodes.all[at];
        let mut soonest = u64::MAX;
        for (digit, &child) in node.children.iter().enumerate() {
            let is_occupied = child != ABSENT;
            let is_known = node.occupied >> digit & 1 == 1;
            assert_eq!(is_known, is_occupied, "a node knows which of its children are occupied");
            let earliest = node.earliest[digit];
            assert!(is_occupied || earliest == u64::MAX, "what is empty is due at the last tick");
            if !is_occupied {
                continue;
            }
            assert!(tier == 1 || self.nodes.all[child as usize].occupied != 0, "it has children");
            let below = self.check_below(tier - 1, child as usize);
            assert!(earliest <= below, "no node takes what is due for later");
            let is_closed = self.closed >> (ROW_BITS + (tier - 1) * NODE_BITS)
                == self.covered(tier - 1, child as usize);
            assert!(is_closed || earliest == below, "only what was closed last is to be put right");
            soonest = soonest.min(below);
        }
        soonest
    }

    /// Returns the bits of the numbers below a node or row that are the same for all of them.
    fn covered(&self, tier: u32, at: usize) -> u32 {
        let (mut at, mut below) = (at, tier);
        while below > 0 {
            let node = &self.nodes.all[at];
            at = node.children[node.occupied.trailing_zeros() as usize] as usize;
            below -= 1;
        }
        self.rows.all[at].base >> (ROW_BITS + tier * NODE_BITS)
    }
}

impl Default for Row {
    fn default() -> Self {
        let buckets = core::array::from_fn(|_| Bucket::default());
        Self { base: 0, occupied: 0, earliest: [u64::MAX; ROW], buckets }
    }
}

impl Node {
    /// Forgets a child that has become empty.
    fn forget(&mut self, digit: usize) {
        self.occupied &= !(1 << digit);
        self.children[digit] = ABSENT;
        self.earliest[digit] = u64::MAX;
    }
}

impl Default for Node {
    fn default() -> Self {
        Self { occupied: 0, children: [ABSENT; FANOUT], earliest: [u64::MAX; FANOUT] }
    }
}

impl<E> Places<E> {
    fn new() -> Self {
        Self { all: Vec::new(), spare: Vec::new() }
    }

    /// Returns the place of a spare element, or of a new one.
    fn take(&mut self, new: impl FnOnce() -> E) -> u32 {
        self.spare.pop().unwrap_or_else(|| {
            self.all.push(new());
            (self.all.len() - 1) as u32
        })
    }

    /// Returns the bytes that are allocated.
    fn memory(&self) -> usize {
        self.all.capacity() * size_of::<E>() + self.spare.capacity() * size_of::<u32>()
    }
}

/// Returns the position and value of the smallest tick. `members` must be nonzero; absent ticks
/// must be `u64::MAX`.
#[inline]
fn earliest_of(members: u64, ticks: &[u64]) -> (usize, u64) {
    steps::count(1);
    // The lanes are independent, so that no comparison waits for the one before.
    let mut lanes = [u64::MAX; 8];
    for ticks in ticks.chunks_exact(lanes.len()) {
        for (lane, &tick) in lanes.iter_mut().zip(ticks) {
            *lane = tick.min(*lane);
        }
    }
    let earliest = lanes.into_iter().fold(u64::MAX, u64::min);
    let at = match earliest {
        u64::MAX => None,
        _ => ticks.iter().position(|&tick| tick == earliest),
    };
    (at.unwrap_or_else(|| members.trailing_zeros() as usize), earliest)
}

/// Returns the positions of the set bits, the lowest first.
fn bits(mut word: u64) -> impl Iterator<Item = u32> {
    core::iter::from_fn(move || {
        let at = (word != 0).then(|| word.trailing_zeros())?;
        word &= word - 1;
        Some(at)
    })
}

/// Returns which of the children of a node on `tier` leads to a bucket.
#[inline]
fn digit(number: u32, tier: u32) -> usize {
    (number >> (ROW_BITS + (tier - 1) * NODE_BITS)) as usize % FANOUT
}

/// The bits of a bucket's number that say its place in its row.
const ROW_BITS: u32 = 4;
/// Buckets in a row.
pub(super) const ROW: usize = 1 << ROW_BITS;
/// The bits of a bucket's number that one tier of nodes takes.
const NODE_BITS: u32 = 6;
/// Children of a node.
const FANOUT: usize = 1 << NODE_BITS;
const ABSENT: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use super::{Arena, Entry, ROW, Table, earliest_of};
    use alloc::collections::BTreeMap;
    use alloc::vec::Vec;
    use quickcheck::quickcheck;

    /// Buckets by number, each with its deadlines.
    type Model = BTreeMap<u32, Vec<u64>>;

    fn put(table: &mut Table, model: &mut Model, number: u32, deadline: u64) {
        table.bucket_for(number, deadline).push(Entry { index: 0, stamp: 0, deadline });
        model.entry(number).or_default().push(deadline);
    }

    /// Panics unless the table holds what the model does and finds its buckets as a search would.
    fn check(table: &mut Table, model: &Model) {
        let first = model.first_key_value().map(|(&number, _)| number);
        assert_eq!(table.first().map(|(number, _)| number), first);
        let earliest = |deadlines: &Vec<u64>| *deadlines.iter().min().expect("it is occupied");
        let soonest = model.values().map(earliest).min();
        assert_eq!(table.soonest().map(|(_, tick)| tick), soonest);
        for (&number, deadlines) in model {
            let entries = table.bucket(number).iter().map(|entry| entry.deadline);
            assert!(entries.eq(deadlines.iter().copied()));
        }
        let mut occupied: Vec<_> = table.iter().map(|(number, _)| number).collect();
        occupied.sort_unstable();
        assert!(occupied.iter().eq(model.keys()));
        for number in occupied.iter().flat_map(|&number| [number.wrapping_sub(1), number]) {
            let last = model.range(..=number).next_back().map(|(&number, _)| number);
            assert_eq!(table.last(number), last, "the last up to {number}");
        }
        // The arena has no timeout, so all entries are stale: what is noted is tested above.
        table.check(&Arena::<()>::new(), None);
    }

    quickcheck! {
        fn it_finds_what_a_sorted_map_would(limit: u8, operations: Vec<(u8, u32, u64)>) -> bool {
            let limit = 1_u32 << (limit % 31);
            let (mut table, mut model) = (Table::new(limit), Model::new());
            for (operation, number, deadline) in operations {
                // Near one another now and then, and any deadline, the last tick included.
                let number = number >> (operation % 4 * 8) & (limit - 1);
                let deadline = deadline >> (deadline % 64);
                let occupied = model.range(number..).next().map(|(&number, _)| number);
                match (operation % 16, occupied) {
                    (0..9, _) => put(&mut table, &mut model, number, deadline),
                    (9, _) => put(&mut table, &mut model, number, u64::MAX),
                    (10..14, Some(number)) => {
                        let taken = table.take(number);
                        let deadlines = model.remove(&number).expect("it is occupied");
                        assert!(taken.iter().map(|entry| entry.deadline).eq(deadlines));
                    }
                    (14, _) if operation > 240 => {
                        table.clear();
                        model.clear();
                    }
                    _ => table.shrink(|_| true),
                }
                check(&mut table, &model);
            }
            true
        }
    }

    #[test]
    fn rows_and_nodes_go_by_what_is_occupied_at_once() {
        for limit in [1 << 10, 1 << 20, 1 << 30] {
            let (mut table, mut model) = (Table::new(limit), Model::new());
            for number in (0..limit).step_by(limit as usize >> 9) {
                put(&mut table, &mut model, number, 5);
                if model.len() == 3 {
                    let (first, _) = model.pop_first().expect("there are three");
                    table.take(first);
                }
            }
            assert!(table.rows.all.len() <= 3);
            assert!(table.nodes.all.len() <= 3 * table.height as usize);
            check(&mut table, &model);
        }
    }

    #[test]
    fn what_is_closed_leaves_one_row_to_put_right() {
        for limit in [1 << 10, 1 << 16, 1 << 22] {
            let (mut table, mut model) = (Table::new(limit), Model::new());
            let step = (limit >> 12).max(1);
            for number in (0..limit).step_by(step as usize) {
                put(&mut table, &mut model, number, u64::from(number / step % 2) * 1000 + 7);
            }
            for number in (0..limit).step_by(2 * step as usize) {
                *table.bucket_mut(number) = super::Bucket::default();
                table.close(number, u64::MAX);
                model.remove(&number);
            }
            let noted = |table: &Table| {
                let noted = table.nodes.all.iter().flat_map(|node| node.earliest);
                noted.filter(|&tick| tick < 1007).count() as u32
            };
            assert!(noted(&table) <= table.height);
            assert_eq!(table.soonest().map(|(_, tick)| tick), Some(1007));
            assert_eq!(noted(&table), 0);
            check(&mut table, &model);
        }
    }

    /// The search descends to one row only, however many are behind it.
    #[test]
    fn the_last_of_many_rows_is_found_from_anywhere() {
        let (mut table, mut model) = (Table::new(1 << 20), Model::new());
        for number in (3..1 << 20).step_by(1 << 12) {
            put(&mut table, &mut model, number, 7);
        }
        for number in (0..1 << 20).step_by(997).chain([u32::MAX]) {
            let last = model.range(..=number).next_back().map(|(&number, _)| number);
            assert_eq!(table.last(number), last);
        }
    }

    #[test]
    fn a_bucket_is_passed_at_its_tick_only() {
        let mut table = Table::new(1 << 12);
        put(&mut table, &mut Model::new(), 35, 1_000_035);
        let end = 3 * ROW as u32;
        for from in 32..end {
            for begin in [1_000_000, 1_000_001] {
                let found = table.pass(from, begin + u64::from(from));
                let is_met = begin == 1_000_000 && from <= 35;
                assert_eq!(found, is_met.then_some((35, 1_000_035)));
            }
        }
    }

    #[test]
    fn an_empty_bucket_is_not_met_at_the_last_tick() {
        let mut table = Table::new(1 << 12);
        put(&mut table, &mut Model::new(), 3, 7);
        assert_eq!(table.pass(0, u64::MAX), None);
        put(&mut table, &mut Model::new(), 5, u64::MAX);
        assert_eq!(table.pass(5, u64::MAX), Some((5, u64::MAX)));
    }

    #[test]
    fn the_earliest_of_many_is_found_wherever_it_is() {
        for at in 0..64 {
            let mut ticks = [u64::MAX; 64];
            assert_eq!(earliest_of(1 << at, &ticks), (at, u64::MAX));
            ticks[at] = 9;
            ticks[63 - at] = ticks[63 - at].min(10);
            assert_eq!(earliest_of(1 << at | 1 << (63 - at), &ticks), (at, 9));
        }
    }
}
