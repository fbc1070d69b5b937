//! Table: holds the buckets of a wheel by number, in a tree of earliest deadlines.

use super::arena::{Arena, Entry};
use super::bucket::Bucket;
use super::earliest::{Earliest, PLACES, earliest};
use crate::steps;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// The buckets of a wheel, allocated a row at a time where they are used.
///
/// The leaves of the tree are the rows. Each row and each node above knows which of its members are
/// occupied, and for each member a tick that is not after any deadline there. So the bucket of the
/// lowest number is found in a few steps, and the earliest of all ticks at once. Putting an entry in
/// notes its deadline on the way down. Closing a bucket puts right what the row notes, and later,
/// once for many buckets of a row, what the nodes above it do: see `closed`. A row or node without
/// members leaves the tree. So a table takes memory by what is occupied, and never moves it.
#[derive(Debug)]
pub(super) struct Table {
    /// All numbers of buckets are below this one.
    limit: u32,
    /// The number of tiers of nodes above the rows, which is at least 1.
    height: u32,
    /// None if no bucket was ever occupied.
    tree: Option<Box<Tree>>,
}

#[derive(Debug)]
struct Tree {
    root: Node,
    /// The number of the bucket that was closed last, unless all is right since then. The nodes on
    /// the way to its row may note a tick that is too early. All other nodes note the earliest tick
    /// of their children.
    closed: Option<u32>,
    /// How many nodes were ever put right. Comes round.
    repairs: usize,
    /// A bucket that is being taken apart, while that takes more than one step.
    visit: Option<Visit>,
    spare: Spare,
}

/// How far a bucket has been taken apart.
///
/// The cursor follows when the visit ends. A timeout that is scheduled before that for a tick of
/// the bucket goes to the bucket's end. So the number of steps makes no difference.
#[derive(Clone, Copy, Debug)]
pub(super) enum Visit {
    /// The timeouts of bucket `number` are placed again, because the cursor comes to `tick`.
    Demote { number: u32, tick: u64 },
    /// The timeouts that are due in `from..=to` are taken out of bucket `number`, from `chunk` on,
    /// and, if that is more than one tick, out of all buckets that follow. No deadline that was
    /// left in the chunks before `chunk` is before `earliest`.
    Scan { number: u32, chunk: usize, earliest: u64, from: u64, to: u64 },
}

/// Rows and nodes to use again, up to `MOST_SPARE` of each: while one empties, another fills.
#[derive(Debug, Default)]
#[expect(clippy::vec_box, reason = "they are not moved")]
struct Spare {
    rows: Vec<Box<Row>>,
    nodes: Vec<Box<Node>>,
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
    /// Bit `i` is set exactly while there is a child `i`, which is occupied.
    occupied: u64,
    /// For each child, a tick that is not after any deadline below it; the last tick if there is
    /// no child.
    earliest: Earliest,
    children: Children,
}

#[derive(Debug)]
enum Children {
    /// On the lowest tier.
    Rows([Option<Box<Row>>; FANOUT]),
    Nodes([Option<Box<Node>>; FANOUT]),
}

impl Table {
    /// Makes a table of buckets with numbers below `limit`. Allocates nothing.
    pub(super) fn new(limit: u32) -> Self {
        let mut height = 1;
        while (limit - 1).checked_shr(ROW_BITS + height * NODE_BITS).unwrap_or(0) > 0 {
            height += 1;
        }
        Self { limit, height, tree: None }
    }

    /// Appends an entry to bucket `number`.
    #[inline(always)]
    pub(super) fn push(&mut self, number: u32, entry: Entry) {
        let at = number as usize % ROW;
        if let Some(row) = self.row_mut(number) {
            // If something there is due as early, all is noted. The last tick may mean an empty
            // bucket.
            if row.earliest[at] <= entry.deadline && entry.deadline < u64::MAX {
                return row.buckets[at].push(entry);
            }
        }
        self.note(number, entry.deadline).push(entry);
    }

    /// Notes that something in bucket `number` is due at `deadline`, and returns the bucket, which
    /// is about to get it. Makes its row, and the nodes that lead to it, if they are missing.
    #[inline(never)]
    pub(super) fn note(&mut self, number: u32, deadline: u64) -> &mut Bucket {
        let mut tier = self.height;
        let tree = self.tree.get_or_insert_with(|| Box::new(Tree::new(tier)));
        let Tree { root, spare, .. } = &mut **tree;
        let mut node = root;
        loop {
            let digit = digit(number, tier);
            node.occupied |= 1 << digit;
            node.earliest.lower(digit, deadline);
            tier -= 1;
            match &mut node.children {
                Children::Nodes(nodes) => {
                    node = nodes[digit].get_or_insert_with(|| spare.node(tier));
                }
                Children::Rows(rows) => {
                    let row =
                        rows[digit].get_or_insert_with(|| spare.rows.pop().unwrap_or_default());
                    let at = number as usize % ROW;
                    row.base = number - at as u32;
                    row.occupied |= 1 << at;
                    row.earliest[at] = deadline.min(row.earliest[at]);
                    return &mut row.buckets[at];
                }
            }
        }
    }

    /// Takes the last entry out of bucket `number` if it has this index and stamp, and is not the
    /// only one of its chunk. Returns whether it did.
    #[inline]
    pub(super) fn take_back(&mut self, number: u32, index: u32, stamp: u32) -> bool {
        let row = self.row_mut(number);
        row.is_some_and(|row| row.buckets[number as usize % ROW].take_back(index, stamp))
    }

    /// Takes the only entry out of bucket `number` if it has this index and stamp, and closes the
    /// bucket. Returns whether it did.
    pub(super) fn take_alone(&mut self, number: u32, index: u32, stamp: u32) -> bool {
        let row = self.row_mut(number);
        let at = number as usize % ROW;
        let is_taken = row.is_some_and(|row| row.buckets[at].take_alone(index, stamp));
        if is_taken {
            self.close(number, u64::MAX);
        }
        is_taken
    }

    /// Returns bucket `number`, which must be occupied. A caller that empties it must `close` it.
    #[inline]
    pub(super) fn bucket_mut(&mut self, number: u32) -> &mut Bucket {
        let Some(row) = self.row_mut(number) else { unreachable!("bucket {number} has a row") };
        &mut row.buckets[number as usize % ROW]
    }

    /// Returns bucket `number`, which must be occupied.
    pub(super) fn bucket(&self, number: u32) -> &Bucket {
        let Some(row) = self.row(number) else { unreachable!("bucket {number} has a row") };
        &row.buckets[number as usize % ROW]
    }

    /// Returns the tick that is noted for bucket `number`, if the bucket is occupied.
    pub(super) fn noted(&self, number: u32) -> Option<u64> {
        let at = number as usize % ROW;
        let row = self.row(number).filter(|row| row.occupied >> at & 1 == 1)?;
        Some(row.earliest[at])
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
        let Some(tree) = &mut self.tree else { return };
        if tree.closed.is_none_or(|closed| closed / ROW as u32 != number / ROW as u32) {
            tree.put_right(self.height);
            tree.closed = Some(number);
        }
        let Some(row) = tree.row_mut(self.height, number) else { return };
        let at = number as usize % ROW;
        row.earliest[at] = earliest;
        if row.buckets[at].is_empty() {
            row.earliest[at] = u64::MAX;
            row.occupied &= !(1 << at);
            if row.occupied == 0 {
                tree.root.unlink(self.height, number, &mut tree.spare);
            }
        }
    }

    /// Returns how many nodes were ever put right. The number comes round.
    #[inline]
    pub(super) fn repairs(&self) -> usize {
        self.tree.as_ref().map_or(0, |tree| tree.repairs)
    }

    /// Returns how far the bucket that is being taken apart has been, if there is one.
    #[inline]
    pub(super) fn visit(&self) -> Option<Visit> {
        self.tree.as_ref()?.visit
    }

    /// Notes how far a bucket has been taken apart, or that none is being.
    #[inline]
    pub(super) fn note_visit(&mut self, visit: Option<Visit>) {
        if let Some(tree) = &mut self.tree {
            tree.visit = visit;
        }
    }

    /// Drops all entries. Looks only at occupied buckets.
    pub(super) fn clear(&mut self) {
        self.note_visit(None);
        while let Some((number, _)) = self.first() {
            self.take(number);
        }
    }

    /// Returns the row that covers `number`, if there is one.
    #[inline]
    fn row(&self, number: u32) -> Option<&Row> {
        match &self.tree.as_ref()?.root.children {
            // Apart, because digits are found faster on a tier that is known beforehand.
            Children::Rows(rows) => rows[digit(number, 1)].as_deref(),
            Children::Nodes(nodes) => row_below(nodes, self.height, number),
        }
    }

    /// As `row`.
    #[inline]
    fn row_mut(&mut self, number: u32) -> Option<&mut Row> {
        self.tree.as_mut()?.row_mut(self.height, number)
    }

    /// Returns the occupied bucket of the lowest number, and a tick that is not after any deadline
    /// in it.
    #[inline]
    pub(super) fn first(&self) -> Option<(u32, u64)> {
        steps::count(self.height as usize + 1);
        let mut node = self.occupied_root()?;
        let row = loop {
            let first = node.occupied.trailing_zeros() as usize;
            match &node.children {
                Children::Nodes(nodes) => node = nodes[first].as_deref()?,
                Children::Rows(rows) => break rows[first].as_deref()?,
            }
        };
        let at = row.occupied.trailing_zeros();
        Some((row.base + at, row.earliest[at as usize]))
    }

    /// Returns the occupied bucket of the highest number that is not above `number`.
    pub(super) fn last(&self, number: u32) -> Option<u32> {
        let number = number.min(self.limit - 1);
        self.tree.as_ref()?.root.last(self.height, number)
    }

    /// Returns the root, unless all buckets are empty.
    #[inline]
    fn occupied_root(&self) -> Option<&Node> {
        self.tree.as_ref().map(|tree| &tree.root).filter(|root| root.occupied != 0)
    }

    /// Returns the occupied buckets, the highest number first.
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> {
        core::iter::successors(self.last(u32::MAX), |number| self.last(number.checked_sub(1)?))
    }

    /// Passes the buckets from number `from` to the end of its row, one per tick, the first at tick
    /// `begin`. Returns the first in which something is due at its tick, and that tick.
    #[inline]
    pub(super) fn pass(&self, from: u32, begin: u64) -> Option<(u32, u64)> {
        let row = self.row(from)?;
        let passed = row.earliest.iter().skip(from as usize % ROW);
        let is_due =
            |&(distance, &tick): &(u32, &u64)| tick == begin.saturating_add(distance.into());
        let (distance, &tick) = (0..).zip(passed).find(is_due)?;
        let number = from + distance;
        (row.occupied >> (number % ROW as u32) & 1 == 1).then_some((number, tick))
    }

    /// Returns the earliest tick that is noted for a bucket, if one is occupied.
    pub(super) fn soonest(&mut self) -> Option<u64> {
        steps::count(1);
        let tree = self.tree.as_mut()?;
        tree.put_right(self.height);
        (tree.root.occupied != 0).then(|| tree.root.earliest.tick())
    }

    /// Reads the ticks of the row of bucket `number` ahead, which are looked at when what comes first
    /// there is gone. The processor then waits for them and for the bucket together.
    pub(super) fn prefetch(&self, number: u32) {
        // One tick of each cache line, wherever the first line begins.
        let ticks = self.row(number).map(|row| row.earliest.iter().step_by(64 / size_of::<u64>()));
        core::hint::black_box(ticks.into_iter().flatten().fold(0, |sum, tick| sum ^ tick));
    }

    /// Drops the entries that `keep` rejects, and gives back the memory that the others do not
    /// need.
    pub(super) fn shrink(&mut self, keep: impl Fn(Entry) -> bool) {
        let mut shrunk = Self::new(self.limit);
        while let Some((number, earliest)) = self.first() {
            let mut bucket = self.take(number);
            bucket.shrink(&keep);
            if !bucket.is_empty() {
                *shrunk.note(number, earliest) = bucket;
            }
        }
        *self = shrunk;
    }

    /// Returns the bytes that are allocated.
    pub(super) fn memory(&self) -> usize {
        let Some(tree) = &self.tree else { return 0 };
        let Spare { rows, nodes } = &tree.spare;
        size_of::<Tree>() - size_of::<Node>()
            + tree.root.memory()
            + rows.len() * size_of::<Row>()
            + nodes.len() * size_of::<Node>()
            + rows.capacity() * size_of::<Box<Row>>()
            + nodes.capacity() * size_of::<Box<Node>>()
    }

    /// Panics unless rows and nodes tell the truth about their members, and every bucket is in
    /// order. Bucket `visited` may be empty although it is occupied.
    pub(super) fn check<T>(&self, arena: &Arena<T>, visited: Option<u32>) {
        let Some(tree) = &self.tree else { return };
        tree.root.check(self.height, 0, tree.closed, &|row| row.check(arena, visited));
        let Spare { rows, nodes } = &tree.spare;
        assert!(rows.len().max(nodes.len()) <= MOST_SPARE, "few are spare");
        assert!(rows.iter().all(|row| row.occupied == 0), "a spare row is empty");
        assert!(nodes.iter().all(|node| node.occupied == 0), "a spare node is empty");
    }
}

impl Tree {
    /// Makes a tree with so many tiers of nodes, and no rows.
    fn new(height: u32) -> Self {
        let root = Node::new(height);
        Self { root, closed: None, repairs: 0, visit: None, spare: Spare::default() }
    }

    /// Puts right what the nodes on the way to the row that was closed last have noted.
    fn put_right(&mut self, height: u32) {
        if let Some(closed) = self.closed.take() {
            self.root.put_right(height, closed);
            self.repairs = self.repairs.wrapping_add(height as usize);
        }
    }

    /// As `Table::row`.
    #[inline]
    fn row_mut(&mut self, height: u32, number: u32) -> Option<&mut Row> {
        match &mut self.root.children {
            Children::Rows(rows) => rows[digit(number, 1)].as_deref_mut(),
            Children::Nodes(nodes) => row_below_mut(nodes, height, number),
        }
    }
}

impl Visit {
    /// Returns the bucket that is being taken apart.
    pub(super) fn number(self) -> u32 {
        let (Self::Demote { number, .. } | Self::Scan { number, .. }) = self;
        number
    }

    /// Returns the tick that the cursor comes to when the visit ends.
    pub(super) fn end(self) -> u64 {
        let (Self::Demote { tick: end, .. } | Self::Scan { to: end, .. }) = self;
        end
    }

    /// Returns whether chunk `at` of the bucket and the next one may be joined: not if only one of
    /// them was scanned.
    pub(super) fn may_join(self, at: usize) -> bool {
        match self {
            Self::Demote { .. } => true,
            Self::Scan { chunk, .. } => chunk != at + 1,
        }
    }

    /// Goes on where it was, after chunk `at` of the bucket has vanished and `chunks` are left. If
    /// all that is left was scanned, the last chunk is scanned again: it may have room, so what is
    /// scheduled meanwhile may go there.
    pub(super) fn chunk_is_gone(&mut self, at: usize, chunks: usize) {
        if let Self::Scan { chunk, .. } = self {
            *chunk -= usize::from(at < *chunk);
            *chunk = (*chunk).min(chunks - 1);
        }
    }
}

impl Row {
    /// Panics unless the row tells the truth about its buckets, and each is in order. Returns the
    /// earliest tick that it notes.
    fn check<T>(&self, arena: &Arena<T>, visited: Option<u32>) -> u64 {
        for (at, bucket) in self.buckets.iter().enumerate() {
            let is_occupied = self.occupied >> at & 1 == 1;
            let may_be = !bucket.is_empty() || visited == Some(self.base + at as u32);
            assert!(is_occupied || bucket.is_empty(), "a bucket with entries is occupied");
            assert!(!is_occupied || may_be, "an occupied bucket has entries");
            let earliest = self.earliest[at];
            assert!(is_occupied || earliest == u64::MAX, "what is empty is due at the last tick");
            let is_known = |entry: Entry| earliest <= entry.deadline || arena.is_stale(entry);
            assert!(bucket.iter().all(is_known), "no timeout is due before");
            bucket.check(arena);
        }
        assert!(self.occupied != 0, "an empty row leaves the tree");
        self.earliest.into_iter().fold(u64::MAX, u64::min)
    }
}

impl Default for Row {
    fn default() -> Self {
        let buckets = core::array::from_fn(|_| Bucket::default());
        Self { base: 0, occupied: 0, earliest: [u64::MAX; ROW], buckets }
    }
}

impl Spare {
    /// Returns a node for `tier` without children.
    fn node(&mut self, tier: u32) -> Box<Node> {
        let is_lowest = tier == 1;
        match self.nodes.pop() {
            Some(node) if matches!(node.children, Children::Rows(_)) == is_lowest => node,
            _ => Box::new(Node::new(tier)),
        }
    }
}

impl Node {
    /// Makes a node for `tier` without children.
    fn new(tier: u32) -> Self {
        let children = match tier {
            1 => Children::Rows([const { None }; FANOUT]),
            _ => Children::Nodes([const { None }; FANOUT]),
        };
        Self { occupied: 0, earliest: Earliest::NONE, children }
    }

    /// Puts right what this node, on `tier`, and those below it have noted on the way to bucket
    /// `closed`.
    fn put_right(&mut self, tier: u32, closed: u32) {
        let digit = digit(closed, tier);
        let earliest = match &mut self.children {
            Children::Rows(rows) => rows[digit].as_ref().map(|row| earliest(&row.earliest)),
            Children::Nodes(nodes) => nodes[digit].as_mut().map(|node| {
                node.put_right(tier - 1, closed);
                node.earliest.tick()
            }),
        };
        self.earliest.set(digit, earliest.unwrap_or(u64::MAX));
    }

    /// Takes the empty row that covers `number` out of the tree, and the nodes below this one that
    /// lead to nothing else.
    fn unlink(&mut self, tier: u32, number: u32, spare: &mut Spare) {
        let digit = digit(number, tier);
        match &mut self.children {
            Children::Rows(rows) => {
                let row = rows[digit].take();
                spare.rows.extend(row.filter(|_| spare.rows.len() < MOST_SPARE));
            }
            Children::Nodes(nodes) => {
                let Some(node) = &mut nodes[digit] else { return };
                node.unlink(tier - 1, number, spare);
                if node.occupied != 0 {
                    return;
                }
                let node = nodes[digit].take();
                spare.nodes.extend(node.filter(|_| spare.nodes.len() < MOST_SPARE));
            }
        }
        self.occupied &= !(1 << digit);
        self.earliest.set(digit, u64::MAX);
    }

    /// Returns the occupied bucket of the highest number below this node, which is on `tier`, that
    /// is not above `number`.
    fn last(&self, tier: u32, number: u32) -> Option<u32> {
        steps::count(1);
        let below = |digit: usize, number: u32| match &self.children {
            Children::Nodes(nodes) => nodes[digit].as_ref()?.last(tier - 1, number),
            Children::Rows(rows) => {
                steps::count(1);
                let Row { base, occupied, .. } = **rows[digit].as_ref()?;
                let members = occupied & (u32::MAX >> (31 - number % ROW as u32));
                Some(base + members.checked_ilog2()?)
            }
        };
        let digit = digit(number, tier);
        below(digit, number).or_else(|| {
            // All of a child before that will do.
            let before = self.occupied & !(u64::MAX << digit);
            below(before.checked_ilog2()? as usize, u32::MAX)
        })
    }

    /// Returns the bytes of this node and of what is below it.
    fn memory(&self) -> usize {
        let below: usize = match &self.children {
            Children::Nodes(nodes) => nodes.iter().flatten().map(|node| node.memory()).sum(),
            Children::Rows(rows) => {
                let row = |row: &Row| row.buckets.iter().map(Bucket::memory).sum::<usize>();
                rows.iter().flatten().map(|each| size_of::<Row>() + row(each)).sum()
            }
        };
        size_of::<Self>() + below
    }

    /// Checks this node, on `tier`, and all below it, and returns the earliest tick that it notes.
    /// The numbers of its buckets begin with `prefix`.
    fn check(
        &self,
        tier: u32,
        prefix: u32,
        closed: Option<u32>,
        check: &dyn Fn(&Row) -> u64,
    ) -> u64 {
        self.earliest.check();
        for (digit, noted) in self.earliest.iter().enumerate() {
            let prefix = prefix << NODE_BITS | digit as u32;
            let below = match &self.children {
                Children::Rows(rows) => rows[digit].as_ref().map(|row| {
                    assert_eq!(row.base, prefix << ROW_BITS, "a row is in its place");
                    check(row)
                }),
                Children::Nodes(nodes) => nodes[digit].as_ref().map(|node| {
                    assert!(node.occupied != 0, "an empty node leaves the tree");
                    node.check(tier - 1, prefix, closed, check)
                }),
            };
            let is_known = self.occupied >> digit & 1 == 1;
            assert_eq!(is_known, below.is_some(), "a node knows which children there are");
            let below = below.unwrap_or(u64::MAX);
            assert!(noted <= below, "no node takes what is due for later");
            let is_on_the_way =
                |closed: u32| closed >> (ROW_BITS + (tier - 1) * NODE_BITS) == prefix;
            let is_closed = closed.is_some_and(is_on_the_way) && is_known;
            assert!(is_closed || noted == below, "only what was closed last is to be put right");
        }
        self.earliest.tick()
    }
}

/// Returns the row that covers `number`, if there is one below these nodes of a node on `tier`.
fn row_below(nodes: &[Option<Box<Node>>; FANOUT], tier: u32, number: u32) -> Option<&Row> {
    match &nodes[digit(number, tier)].as_ref()?.children {
        Children::Rows(rows) => rows[digit(number, 1)].as_deref(),
        Children::Nodes(nodes) => row_below(nodes, tier - 1, number),
    }
}

/// As `row_below`.
fn row_below_mut(
    nodes: &mut [Option<Box<Node>>; FANOUT],
    tier: u32,
    number: u32,
) -> Option<&mut Row> {
    match &mut nodes[digit(number, tier)].as_mut()?.children {
        Children::Rows(rows) => rows[digit(number, 1)].as_deref_mut(),
        Children::Nodes(nodes) => row_below_mut(nodes, tier - 1, number),
    }
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
const NODE_BITS: u32 = FANOUT.ilog2();
/// Children of a node.
const FANOUT: usize = PLACES;
/// Rows, and nodes, that are kept to be used again.
const MOST_SPARE: usize = 16;

#[cfg(test)]
mod tests {
    use super::{Arena, Children, Entry, Node, ROW, Row, Table};
    use alloc::collections::BTreeMap;
    use alloc::vec::Vec;
    use quickcheck::quickcheck;

    /// Buckets by number, each with its deadlines.
    type Model = BTreeMap<u32, Vec<u64>>;

    fn put(table: &mut Table, model: &mut Model, number: u32, deadline: u64) {
        table.push(number, Entry { index: 0, stamp: 0, deadline });
        model.entry(number).or_default().push(deadline);
    }

    /// Panics unless the table holds what the model does and finds its buckets as a search would.
    fn check(table: &mut Table, model: &Model) {
        let first = model.first_key_value().map(|(&number, _)| number);
        assert_eq!(table.first().map(|(number, _)| number), first);
        let earliest = |deadlines: &Vec<u64>| *deadlines.iter().min().expect("it is occupied");
        let soonest = model.values().map(earliest).min();
        assert_eq!(table.soonest(), soonest);
        for (&number, deadlines) in model {
            let entries = table.bucket(number).iter().map(|entry| entry.deadline);
            assert!(entries.eq(deadlines.iter().copied()));
        }
        assert!(table.iter().eq(model.keys().rev().copied()));
        for number in model.keys().flat_map(|&number| [number.wrapping_sub(1), number]) {
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
            // Two stay, and one comes where another was.
            let nodes = 3 * table.height as usize;
            assert!(table.memory() <= 3 * size_of::<Row>() + nodes * size_of::<Node>() + 128);
            check(&mut table, &model);
        }
    }

    /// Returns how many ticks of what was closed a node and those below it note.
    fn early(node: &Node) -> u32 {
        let own = node.earliest.iter().filter(|&tick| tick < 1007).count() as u32;
        match &node.children {
            Children::Nodes(nodes) => {
                own + nodes.iter().flatten().map(|node| early(node)).sum::<u32>()
            }
            Children::Rows(_) => own,
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
            let noted = |table: &Table| table.tree.as_ref().map_or(0, |tree| early(&tree.root));
            assert!(noted(&table) <= table.height);
            assert_eq!(table.soonest(), Some(1007));
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
}
