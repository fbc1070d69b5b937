//! The set of occupied buckets.

use alloc::vec::Vec;

/// Bits of a bucket's number that one tier of the tree takes.
const BITS: u32 = 6;
/// Numbers that one row covers, and children that one node has.
pub(crate) const WIDTH: usize = 1 << BITS;
const DIGIT: u32 = WIDTH as u32 - 1;
const ABSENT: u32 = u32::MAX;

/// A set of bucket numbers, as a tree of 64-bit words that grows where it is used.
///
/// The lowest tier is made of *rows*, one bit a bucket; a node above them has one bit for each of
/// its children that is not empty. A row keeps its place from its first use on, so that the table
/// of buckets can go by the same places.
#[derive(Debug)]
pub(crate) struct Occupancy {
    /// How many tiers of nodes stand above the rows; at least 1.
    height: u32,
    /// The root first.
    nodes: Vec<Node>,
    rows: Vec<u64>,
}

#[derive(Debug)]
struct Node {
    /// Bit `i` is set exactly while something below `children[i]` is occupied.
    occupied: u64,
    children: [u32; WIDTH],
}

/// The members of the set within one row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Members {
    pub(crate) row: usize,
    /// The number of the row's first bucket.
    pub(crate) base: u32,
    /// One bit for each member, the first bucket's lowest.
    pub(crate) word: u64,
}

impl Occupancy {
    /// An empty set of numbers below `limit`; allocates nothing.
    pub(crate) fn new(limit: u32) -> Self {
        let mut height = 1;
        while limit.saturating_sub(1).checked_shr((height + 1) * BITS).unwrap_or(0) > 0 {
            height += 1;
        }
        Self { height, nodes: Vec::new(), rows: Vec::new() }
    }

    /// Makes the row that covers `number`, which is not there yet, and returns its place: the next
    /// one.
    pub(crate) fn insert_row(&mut self, number: u32) -> usize {
        let mut parent = None;
        let mut at = if self.nodes.is_empty() { ABSENT } else { 0 };
        for tier in (0..=self.height).rev() {
            if at == ABSENT {
                at = match tier {
                    0 => push(&mut self.rows, 0),
                    _ => push(&mut self.nodes, Node { occupied: 0, children: [ABSENT; WIDTH] }),
                };
                if let Some((node, digit)) = parent {
                    self.nodes[node as usize].children[digit] = at;
                }
            }
            if tier > 0 {
                let digit = digit(number, tier);
                parent = Some((at, digit));
                at = self.nodes[at as usize].children[digit];
            }
        }
        self.rows.len() - 1
    }

    /// Adds `number`, whose row must be at `row`.
    #[inline]
    pub(crate) fn insert(&mut self, number: u32, row: usize) {
        let word = &mut self.rows[row];
        let was_empty = *word == 0;
        *word |= bit(number);
        if was_empty {
            let mut at = 0;
            for tier in (1..=self.height).rev() {
                let node = &mut self.nodes[at];
                let digit = digit(number, tier);
                node.occupied |= 1 << digit;
                at = node.children[digit] as usize;
            }
        }
    }

    /// Takes out `number`, whose row must be at `row`.
    #[inline]
    pub(crate) fn remove(&mut self, number: u32, row: usize) {
        self.rows[row] &= !bit(number);
        if self.rows[row] == 0 {
            self.close(self.height, 0, number);
        }
    }

    /// Clears the bits on the way from `node` to `number`, as far as nothing else is below them.
    fn close(&mut self, tier: u32, node: usize, number: u32) {
        let digit = digit(number, tier);
        let child = self.nodes[node].children[digit] as usize;
        if tier > 1 {
            self.close(tier - 1, child, number);
        }
        if self.word(tier - 1, child) == 0 {
            self.nodes[node].occupied &= !(1 << digit);
        }
    }

    /// The place of the row that covers `number`, or None where there never was one.
    #[inline]
    pub(crate) fn row(&self, number: u32) -> Option<usize> {
        let mut at = self.nodes.first()?.children[digit(number, self.height)];
        for tier in (1..self.height).rev() {
            at = self.nodes.get(at as usize)?.children[digit(number, tier)];
        }
        (at != ABSENT).then_some(at as usize)
    }

    /// The members of the first row that has one at or after `from`, those before `from` left out.
    #[inline]
    pub(crate) fn members(&self, from: u32) -> Option<Members> {
        if from.checked_shr((self.height + 1) * BITS).unwrap_or(0) > 0 {
            return None;
        }
        if self.rows.is_empty() {
            return None;
        }
        self.members_below(self.height, 0, from)
    }

    /// As `members`, below one node; `from` and the answer count from the node's first number.
    fn members_below(&self, tier: u32, at: usize, from: u32) -> Option<Members> {
        let first = from >> (tier * BITS);
        let mut word = self.word(tier, at) & (u64::MAX << first);
        if tier == 0 {
            return (word != 0).then_some(Members { row: at, base: 0, word });
        }
        // Below the child that `from` itself falls into, not every number will do.
        let mut rest = if word >> first & 1 == 1 { from & ((1 << (tier * BITS)) - 1) } else { 0 };
        while word != 0 {
            let next = word.trailing_zeros();
            let child = self.nodes[at].children[next as usize] as usize;
            if let Some(members) = self.members_below(tier - 1, child, rest) {
                return Some(Members { base: members.base | next << (tier * BITS), ..members });
            }
            rest = 0;
            word &= word - 1;
        }
        None
    }

    #[inline]
    fn word(&self, tier: u32, at: usize) -> u64 {
        if tier == 0 { self.rows[at] } else { self.nodes[at].occupied }
    }

    /// Gives back memory that is not needed for the rows there are.
    pub(crate) fn shrink_to_fit(&mut self) {
        self.nodes.shrink_to_fit();
        self.rows.shrink_to_fit();
    }

    /// The words of all rows, by place.
    pub(crate) fn rows(&self) -> impl Iterator<Item = u64> {
        self.rows.iter().copied()
    }

    /// Whether the bucket at `at` in the row at `row` is in the set.
    pub(crate) fn is_occupied(&self, row: usize, at: usize) -> bool {
        self.rows[row] >> at & 1 == 1
    }

    /// Bytes allocated.
    pub(crate) fn memory(&self) -> usize {
        self.nodes.capacity() * size_of::<Node>() + self.rows.capacity() * size_of::<u64>()
    }

    /// Panics unless every node tells the truth about its children.
    pub(crate) fn check(&self) {
        if !self.nodes.is_empty() {
            self.check_below(self.height, 0);
        }
    }

    fn check_below(&self, tier: u32, at: usize) {
        let node = &self.nodes[at];
        for (digit, &child) in node.children.iter().enumerate() {
            let occupied = child != ABSENT && self.word(tier - 1, child as usize) != 0;
            assert_eq!(
                node.occupied >> digit & 1 == 1,
                occupied,
                "a node knows which of its children are occupied"
            );
            if child != ABSENT && tier > 1 {
                self.check_below(tier - 1, child as usize);
            }
        }
    }
}

fn push<E>(places: &mut Vec<E>, value: E) -> u32 {
    places.push(value);
    (places.len() - 1) as u32
}

#[inline]
fn digit(number: u32, tier: u32) -> usize {
    (number >> (tier * BITS) & DIGIT) as usize
}

#[inline]
fn bit(number: u32) -> u64 {
    1 << (number & DIGIT)
}
