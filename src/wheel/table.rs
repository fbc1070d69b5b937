//! Table: a wheel's buckets by number, in a tree of earliest deadlines.

use super::arena::{Arena, Entry};
use super::bucket::Bucket;
use alloc::vec::Vec;

/// Bits of a bucket's number that its place in its row takes.
const ROW_BITS: u32 = 4;
/// Buckets in a row.
pub(super) const ROW: usize = 1 << ROW_BITS;
/// Bits of a bucket's number that one tier of nodes takes.
const NODE_BITS: u32 = 6;
/// Children of a node.
const FANOUT: usize = 1 << NODE_BITS;
const ABSENT: u32 = u32::MAX;

/// The buckets of a wheel, allocated a row at a time on first use.
///
/// The leaves of the tree are the rows. Each row and each node above knows which of its members are
/// occupied, and for each a tick that none of the deadlines there is before: so the bucket that
/// comes up next is found in a few steps, by number or by deadline. What is put in is noted on the
/// way down; what is taken out is not, so that a tick may be too early, and is put right by
/// `soonest`. A row keeps its place in `rows` while it has members. Rows without members are used
/// again elsewhere when there are many of them.
#[derive(Debug)]
pub(super) struct Table {
    /// How many buckets there could be.
    limit: u32,
    /// How many tiers of nodes stand above the rows; at least 1.
    height: u32,
    /// The root first.
    nodes: Vec<Node>,
    rows: Vec<Row>,
    /// The places of rows that no node leads to; they are empty.
    spare: Vec<u32>,
}

#[derive(Debug)]
struct Row {
    /// The number of the first bucket.
    base: u32,
    /// One bit for each bucket that is occupied, the first bucket's lowest.
    occupied: u32,
    /// For each bucket a tick that none of its timeouts is due before; the last tick if it is empty.
    /// What has an earlier deadline is stale. Apart from the buckets, so that passing many of them
    /// reads little memory.
    earliest: [u64; ROW],
    buckets: [Bucket; ROW],
}

#[derive(Debug)]
struct Node {
    /// Bit `i` is set exactly while something below `children[i]` is occupied.
    occupied: u64,
    /// Places of nodes, or on the lowest tier of rows.
    children: [u32; FANOUT],
    /// For each child a tick that nothing below it is due before; the last tick if it is empty.
    earliest: [u64; FANOUT],
}

impl Table {
    /// A table of buckets of numbers below `limit`. Allocates nothing.
    pub(super) fn new(limit: u32) -> Self {
        let mut height = 1;
        while (limit - 1).checked_shr(ROW_BITS + height * NODE_BITS).unwrap_or(0) > 0 {
            height += 1;
        }
        Self { limit, height, nodes: Vec::new(), rows: Vec::new(), spare: Vec::new() }
    }

    /// Bucket `number`, about to get an entry of `deadline`.
    #[inline(always)]
    pub(super) fn bucket_for(&mut self, number: u32, deadline: u64) -> &mut Bucket {
        let mut place = self.place(number);
        let at = number as usize % ROW;
        // Where something is due as early, all is noted. The last tick may be that of an empty one.
        let is_noted = |row: &Row| row.earliest[at] <= deadline && deadline < u64::MAX;
        if !self.rows.get(place).is_some_and(is_noted) {
            place = self.note(number, deadline, place);
        }
        &mut self.rows[place].buckets[at]
    }

    /// Notes that something in bucket `number` is due at `deadline`, given the place of its row, if
    /// it is there; returns that place.
    #[inline(never)]
    fn note(&mut self, number: u32, deadline: u64, mut place: usize) -> usize {
        if self.rows.len() <= place {
            place = self.insert_row(number);
        }
        let mut at = 0;
        for tier in (1..=self.height).rev() {
            let node = &mut self.nodes[at];
            let digit = digit(number, tier);
            node.occupied |= 1 << digit;
            node.earliest[digit] = deadline.min(node.earliest[digit]);
            at = node.children[digit] as usize;
        }
        let row = &mut self.rows[place];
        let at = number as usize % ROW;
        row.occupied |= 1 << at;
        row.earliest[at] = deadline.min(row.earliest[at]);
        place
    }

    /// Makes a row that covers `number`, where there is none, and returns its place.
    #[cold]
    fn insert_row(&mut self, number: u32) -> usize {
        if self.spare.is_empty() && self.rows.len().is_power_of_two() {
            self.collect_spare();
        }
        let base = number - number % ROW as u32;
        let place = self.spare.pop().unwrap_or(self.rows.len() as u32);
        match self.rows.get_mut(place as usize) {
            Some(row) => row.base = base,
            None => self.rows.push(Row {
                base,
                occupied: 0,
                earliest: [u64::MAX; ROW],
                buckets: core::array::from_fn(|_| Bucket::default()),
            }),
        }
        self.link(place);
        place as usize
    }

    /// Unlinks the rows without members, and the nodes that lead to nothing else, if they are half
    /// of all rows or more.
    fn collect_spare(&mut self) {
        if 2 * self.rows.iter().filter(|row| row.occupied == 0).count() < self.rows.len() {
            return;
        }
        self.nodes.clear();
        for place in 0..self.rows.len() {
            if self.rows[place].occupied == 0 {
                self.spare.push(place as u32);
            } else {
                self.link(place as u32);
            }
        }
    }

    /// Makes the nodes that lead to the row at `place`, and notes in them what is in the row.
    fn link(&mut self, place: u32) {
        let node =
            || Node { occupied: 0, children: [ABSENT; FANOUT], earliest: [u64::MAX; FANOUT] };
        if self.nodes.is_empty() {
            self.nodes.push(node());
        }
        let Row { base, occupied, earliest, .. } = &self.rows[place as usize];
        let earliest = earliest_of((*occupied).into(), earliest).1;
        let mut at = 0;
        for tier in (1..=self.height).rev() {
            let digit = digit(*base, tier);
            let mut child = self.nodes[at].children[digit];
            if tier == 1 {
                child = place;
            } else if child == ABSENT {
                child = self.nodes.len() as u32;
                self.nodes.push(node());
            }
            let node = &mut self.nodes[at];
            node.children[digit] = child;
            node.occupied |= u64::from(*occupied != 0) << digit;
            node.earliest[digit] = node.earliest[digit].min(earliest);
            at = child as usize;
        }
    }

    /// Bucket `number`, which must be occupied; if it is emptied, `close` it.
    #[inline]
    pub(super) fn bucket_mut(&mut self, number: u32) -> &mut Bucket {
        let place = self.place(number);
        &mut self.rows[place].buckets[number as usize % ROW]
    }

    /// Bucket `number`, which must be occupied.
    pub(super) fn bucket(&self, number: u32) -> &Bucket {
        &self.rows[self.place(number)].buckets[number as usize % ROW]
    }

    /// Takes the whole of bucket `number`, which must be occupied.
    pub(super) fn take(&mut self, number: u32) -> Bucket {
        let bucket = core::mem::take(self.bucket_mut(number));
        self.close(number, u64::MAX);
        bucket
    }

    /// Notes that no deadline in bucket `number` is before `earliest`, or that it is empty.
    pub(super) fn close(&mut self, number: u32, earliest: u64) {
        let place = self.place(number);
        let row = &mut self.rows[place];
        let at = number as usize % ROW;
        row.earliest[at] = earliest;
        if row.buckets[at].is_empty() {
            row.earliest[at] = u64::MAX;
            row.occupied &= !(1 << at);
            if row.occupied == 0 {
                self.close_below(self.height, 0, number);
            }
        }
    }

    /// Clears the bits on the way from a node to `number`, as far as nothing else is below them.
    fn close_below(&mut self, tier: u32, node: usize, number: u32) {
        let digit = digit(number, tier);
        let child = self.nodes[node].children[digit] as usize;
        if tier > 1 {
            self.close_below(tier - 1, child, number);
        }
        if tier == 1 || self.nodes[child].occupied == 0 {
            self.nodes[node].occupied &= !(1 << digit);
            self.nodes[node].earliest[digit] = u64::MAX;
        }
    }

    /// Drops all entries. The rows stay. Looks at what is occupied only.
    pub(super) fn clear(&mut self) {
        if !self.nodes.is_empty() {
            self.clear_below(self.height, 0);
        }
    }

    fn clear_below(&mut self, tier: u32, at: usize) {
        for digit in bits(core::mem::take(&mut self.nodes[at].occupied)) {
            let node = &mut self.nodes[at];
            node.earliest[digit as usize] = u64::MAX;
            let child = node.children[digit as usize] as usize;
            if tier > 1 {
                self.clear_below(tier - 1, child);
                continue;
            }
            let row = &mut self.rows[child];
            for at in bits(core::mem::take(&mut row.occupied).into()) {
                row.earliest[at as usize] = u64::MAX;
                row.buckets[at as usize] = Bucket::default();
            }
        }
    }

    /// The place of the row that covers `number`, or a place where there is none.
    #[inline]
    fn place(&self, number: u32) -> usize {
        let Some(root) = self.nodes.first() else { return ABSENT as usize };
        let child = root.children[digit(number, self.height)];
        if self.height == 1 { child as usize } else { self.place_below(number, child) }
    }

    /// As `place`, from one tier below the root on.
    fn place_below(&self, number: u32, mut at: u32) -> usize {
        for tier in (1..self.height).rev() {
            let Some(node) = self.nodes.get(at as usize) else { break };
            at = node.children[digit(number, tier)];
        }
        at as usize
    }

    /// The occupied bucket of the lowest number, with a tick that it has no deadline before.
    #[inline]
    pub(super) fn first(&self) -> Option<(u32, u64)> {
        let mut node = self.nodes.first().filter(|root| root.occupied != 0)?;
        for _ in 1..self.height {
            node = &self.nodes[node.children[node.occupied.trailing_zeros() as usize] as usize];
        }
        let row = &self.rows[node.children[node.occupied.trailing_zeros() as usize] as usize];
        let at = row.occupied.trailing_zeros();
        Some((row.base + at, row.earliest[at as usize]))
    }

    /// The occupied bucket of the highest number that is not above `number`.
    pub(super) fn last(&self, number: u32) -> Option<u32> {
        if self.nodes.is_empty() { None } else { self.last_below(self.height, 0, number) }
    }

    /// As `last`, below one node or in one row.
    fn last_below(&self, tier: u32, at: usize, number: u32) -> Option<u32> {
        if tier == 0 {
            let Row { base, occupied, .. } = self.rows[at];
            let most = (number.saturating_sub(base)).min(ROW as u32 - 1);
            let members = if number < base { 0 } else { occupied & (u32::MAX >> (31 - most)) };
            return Some(base + members.checked_ilog2()?);
        }
        let node = &self.nodes[at];
        let mut members = node.occupied;
        while let Some(digit) = members.checked_ilog2() {
            members ^= 1 << digit;
            let child = node.children[digit as usize] as usize;
            if let Some(last) = self.last_below(tier - 1, child, number) {
                return Some(last);
            }
        }
        None
    }

    /// The occupied buckets, each with a tick that it has no deadline before, in no particular order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, u64)> {
        self.rows.iter().flat_map(|row| {
            bits(row.occupied.into()).map(|at| (row.base + at, row.earliest[at as usize]))
        })
    }

    /// The first bucket from number `from` to the end of its row in which something is due as they
    /// are passed one a tick, the first at tick `begin`; and when.
    #[inline]
    pub(super) fn pass(&self, from: u32, begin: u64) -> Option<(u32, u64)> {
        let row = self.rows.get(self.place(from))?;
        let passed = row.earliest.iter().skip(from as usize % ROW);
        let is_due =
            |&(distance, &tick): &(u32, &u64)| tick == begin.saturating_add(distance.into());
        let (distance, &tick) = (0..).zip(passed).find(is_due)?;
        let number = from + distance;
        (row.occupied >> (number % ROW as u32) & 1 == 1).then_some((number, tick))
    }

    /// The occupied bucket in which something is due first, as far as is known, and when. Puts right
    /// what the nodes on the way to it know.
    pub(super) fn soonest(&mut self) -> Option<(u32, u64)> {
        if self.nodes.first()?.occupied == 0 {
            return None;
        }
        Some(self.soonest_below(self.height, 0))
    }

    /// As `soonest`, below one node.
    fn soonest_below(&mut self, tier: u32, at: usize) -> (u32, u64) {
        loop {
            let node = &self.nodes[at];
            let (digit, noted) = earliest_of(node.occupied, &node.earliest);
            let child = node.children[digit] as usize;
            let (number, tick) = if tier > 1 {
                self.soonest_below(tier - 1, child)
            } else {
                let row = &self.rows[child];
                let (at, tick) = earliest_of(row.occupied.into(), &row.earliest);
                (row.base + at as u32, tick)
            };
            if tick == noted {
                return (number, tick);
            }
            self.nodes[at].earliest[digit] = tick;
        }
    }

    /// Drops the entries that are not to be kept, and gives back what the others do not need.
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
        shrunk.rows.shrink_to_fit();
        shrunk.nodes.shrink_to_fit();
        *self = shrunk;
    }

    /// Bytes allocated.
    pub(super) fn memory(&self) -> usize {
        let arrays: usize = self.iter().map(|(number, _)| self.bucket(number).memory()).sum();
        arrays
            + self.nodes.capacity() * size_of::<Node>()
            + self.rows.capacity() * size_of::<Row>()
            + self.spare.capacity() * size_of::<u32>()
    }

    /// Panics unless rows and nodes tell the truth about their members, and every bucket is in
    /// order. Bucket `visited` may be empty though it is occupied.
    pub(super) fn check<T>(&self, arena: &Arena<T>, visited: Option<u32>) {
        if !self.nodes.is_empty() {
            self.check_below(self.height, 0);
        }
        for (place, row) in self.rows.iter().enumerate() {
            let is_linked = self.place(row.base) == place;
            let is_spare = self.spare.contains(&(place as u32));
            assert!(is_linked != is_spare, "a row is in its place or to be used again");
            assert!(is_linked || row.occupied == 0, "a spare row is empty");
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
                assert!(
                    bucket.iter().all(|entry| earliest <= entry.deadline || arena.is_stale(entry))
                );
                bucket.check();
            }
        }
        for (number, earliest) in self.iter() {
            let mut at = 0;
            for tier in (1..=self.height).rev() {
                let node = &self.nodes[at];
                let digit = digit(number, tier);
                assert!(node.earliest[digit] <= earliest, "no node takes what is due for later");
                at = node.children[digit] as usize;
            }
        }
    }

    fn check_below(&self, tier: u32, at: usize) {
        let node = &self.nodes[at];
        for (digit, &child) in node.children.iter().enumerate() {
            let is_occupied = child != ABSENT
                && match tier {
                    1 => self.rows[child as usize].occupied != 0,
                    _ => self.nodes[child as usize].occupied != 0,
                };
            let is_known = node.occupied >> digit & 1 == 1;
            assert_eq!(is_known, is_occupied, "a node knows which of its children are occupied");
            let earliest = node.earliest[digit];
            assert!(is_occupied || earliest == u64::MAX, "what is empty is due at the last tick");
            if child != ABSENT && tier > 1 {
                self.check_below(tier - 1, child as usize);
            }
        }
    }
}

/// The position and value of the smallest tick. At least one bit of `members` must be set; the
/// ticks of all others must be the last one.
#[inline]
fn earliest_of(members: u64, ticks: &[u64]) -> (usize, u64) {
    // Side by side, because one after the other each comparison would wait for the one before.
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

/// The positions of the bits that are set, the lowest first.
fn bits(mut word: u64) -> impl Iterator<Item = u32> {
    core::iter::from_fn(move || {
        let at = (word != 0).then(|| word.trailing_zeros())?;
        word &= word - 1;
        Some(at)
    })
}

/// Which of the children of a node on `tier` a bucket is below.
#[inline]
fn digit(number: u32, tier: u32) -> usize {
    (number >> (ROW_BITS + (tier - 1) * NODE_BITS)) as usize % FANOUT
}
