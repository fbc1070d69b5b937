//! The set of occupied buckets, and which of them comes up first.

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
/// its children that is not empty. A row keeps its place while it has members, so that the table of
/// buckets can go by the same places. Rows without members are used again elsewhere when there
/// are many of them.
#[derive(Debug)]
pub(crate) struct Occupancy {
    /// How many tiers of nodes stand above the rows; at least 1.
    height: u32,
    /// The root first.
    nodes: Vec<Node>,
    rows: Vec<Row>,
    /// The places of rows that no node leads to.
    spare: Vec<u32>,
}

#[derive(Debug)]
struct Row {
    /// The number of its first bucket.
    base: u32,
    /// One bit for each member, the first bucket's lowest.
    word: u64,
}

#[derive(Debug)]
struct Node {
    /// Bit `i` is set exactly while something below `children[i]` is occupied.
    occupied: u64,
    children: [u32; WIDTH],
    /// For each child a tick that nothing below it is due before; the last one if nothing is there.
    earliest: [u64; WIDTH],
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

/// The positions of the bits that are set, the lowest first.
pub(crate) struct Bits(pub(crate) u64);

impl Iterator for Bits {
    type Item = u32;

    #[inline]
    fn next(&mut self) -> Option<u32> {
        let at = (self.0 != 0).then(|| self.0.trailing_zeros())?;
        self.0 &= self.0 - 1;
        Some(at)
    }
}

impl Node {
    /// Notes that something below child `digit` is due at `tick`, and returns where the child is, or
    /// is to be.
    #[inline]
    fn note(&mut self, digit: usize, tick: u64) -> u32 {
        self.occupied |= 1 << digit;
        self.earliest[digit] = self.earliest[digit].min(tick);
        self.children[digit]
    }
}

impl Occupancy {
    /// An empty set of numbers below `limit`; allocates nothing.
    pub(crate) fn new(limit: u32) -> Self {
        let mut height = 1;
        while limit.saturating_sub(1).checked_shr((height + 1) * BITS).unwrap_or(0) > 0 {
            height += 1;
        }
        Self { height, nodes: Vec::new(), rows: Vec::new(), spare: Vec::new() }
    }

    /// Makes a row that covers `number`, where there is none yet, and returns its place: that of a
    /// row without members, or the next one.
    pub(crate) fn insert_row(&mut self, number: u32) -> usize {
        if self.spare.is_empty() && self.rows.len().is_power_of_two() {
            self.collect_spare();
        }
        let base = number & !DIGIT;
        let place = match self.spare.pop() {
            Some(place) => place,
            None => push(&mut self.rows, Row { base, word: 0 }),
        };
        self.rows[place as usize].base = base;
        self.link(place);
        place as usize
    }

    /// Unlinks the rows without members, and the nodes that lead to nothing else, if they are half
    /// of all rows or more.
    fn collect_spare(&mut self) {
        let is_spare = |row: &Row| row.word == 0;
        if 2 * self.rows.iter().filter(|row| is_spare(row)).count() < self.rows.len() {
            return;
        }
        self.nodes.clear();
        for place in 0..self.rows.len() {
            if is_spare(&self.rows[place]) {
                self.spare.push(place as u32);
            } else {
                self.link(place as u32);
                self.mark(self.rows[place].base);
            }
        }
    }

    /// Makes the nodes that lead to the row at `place`.
    fn link(&mut self, place: u32) {
        let node = || Node { occupied: 0, children: [ABSENT; WIDTH], earliest: [u64::MAX; WIDTH] };
        if self.nodes.is_empty() {
            self.nodes.push(node());
        }
        let number = self.rows[place as usize].base;
        let mut at = 0;
        for tier in (1..=self.height).rev() {
            let digit = digit(number, tier);
            let mut child = self.nodes[at].children[digit];
            if tier == 1 {
                child = place;
            } else if child == ABSENT {
                child = push(&mut self.nodes, node());
            }
            self.nodes[at].children[digit] = child;
            at = child as usize;
        }
    }

    /// Notes in the nodes that the row that covers `number` has members, and nothing about when
    /// they are due.
    fn mark(&mut self, number: u32) {
        let mut at = 0;
        for tier in (1..=self.height).rev() {
            let node = &mut self.nodes[at];
            let digit = digit(number, tier);
            node.occupied |= 1 << digit;
            node.earliest[digit] = 0;
            at = node.children[digit] as usize;
        }
    }

    /// Adds `number`, whose row must be at `row`, after `note` has told the nodes.
    #[inline]
    pub(crate) fn insert(&mut self, number: u32, row: usize) {
        self.rows[row].word |= bit(number);
    }

    /// Notes that something in the bucket of `number` is due at `tick`, and returns the place of its
    /// row; a place where there is none if the row is not there.
    #[inline(always)]
    pub(crate) fn note(&mut self, number: u32, tick: u64) -> usize {
        if self.height > 1 {
            return self.note_below(number, tick);
        }
        match self.nodes.first_mut() {
            Some(root) => root.note(digit(number, 1), tick) as usize,
            None => ABSENT as usize,
        }
    }

    /// As `note`, in a tree of more than one tier of nodes.
    fn note_below(&mut self, number: u32, tick: u64) -> usize {
        let mut at = 0;
        for tier in (1..=self.height).rev() {
            let Some(node) = self.nodes.get_mut(at as usize) else { return ABSENT as usize };
            at = node.note(digit(number, tier), tick);
        }
        at as usize
    }

    /// The number in whose bucket something is due before all else, as far as is known, and when,
    /// given which of the members of a row that is.
    ///
    /// Who puts something in notes it on the way down; who takes something out does not, so that
    /// what a node knows may be too early, and is put right here, on the way to what seems earliest.
    pub(crate) fn soonest(
        &mut self,
        in_row: impl Fn(usize, u64) -> (usize, u64),
    ) -> Option<(u32, u64)> {
        if self.nodes.first()?.occupied == 0 {
            return None;
        }
        Some(self.soonest_below(self.height, 0, &in_row))
    }

    /// As `soonest`, below one node; numbers count from the node's first one.
    fn soonest_below(
        &mut self,
        tier: u32,
        at: usize,
        in_row: &impl Fn(usize, u64) -> (usize, u64),
    ) -> (u32, u64) {
        loop {
            let node = &self.nodes[at];
            let (digit, noted) = earliest_of(node.occupied, &node.earliest);
            let child = node.children[digit] as usize;
            let (number, tick) = if tier > 1 {
                self.soonest_below(tier - 1, child, in_row)
            } else {
                let (at, tick) = in_row(child, self.rows[child].word);
                (at as u32, tick)
            };
            if tick == noted {
                return ((digit as u32) << (tier * BITS) | number, tick);
            }
            self.nodes[at].earliest[digit] = tick;
        }
    }

    /// Takes out `number`, whose row must be at `row`.
    #[inline]
    pub(crate) fn remove(&mut self, number: u32, row: usize) {
        let word = &mut self.rows[row].word;
        *word &= !bit(number);
        if *word == 0 {
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
            self.nodes[node].earliest[digit] = u64::MAX;
        }
    }

    /// Takes out all members, and shows each: the place of its row, and where it is in there.
    pub(crate) fn clear(&mut self, mut each: impl FnMut(usize, usize)) {
        if !self.nodes.is_empty() {
            self.clear_below(self.height, 0, &mut each);
        }
    }

    fn clear_below(&mut self, tier: u32, at: usize, each: &mut impl FnMut(usize, usize)) {
        for digit in Bits(core::mem::take(&mut self.nodes[at].occupied)) {
            let node = &mut self.nodes[at];
            node.earliest[digit as usize] = u64::MAX;
            let child = node.children[digit as usize] as usize;
            if tier > 1 {
                self.clear_below(tier - 1, child, each);
                continue;
            }
            for member in Bits(core::mem::take(&mut self.rows[child].word)) {
                each(child, member as usize);
            }
        }
    }

    /// The place of the row that covers `number`, or a place where there is none.
    #[inline]
    pub(crate) fn place(&self, number: u32) -> usize {
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
        if tier == 0 { self.rows[at].word } else { self.nodes[at].occupied }
    }

    /// Gives back memory that is not needed for the rows there are.
    pub(crate) fn shrink_to_fit(&mut self) {
        self.nodes.shrink_to_fit();
        self.rows.shrink_to_fit();
        self.spare.shrink_to_fit();
    }

    /// Whether the bucket at `at` in the row at `row` is in the set.
    pub(crate) fn is_occupied(&self, row: usize, at: usize) -> bool {
        self.rows[row].word >> at & 1 == 1
    }

    /// Bytes allocated.
    pub(crate) fn memory(&self) -> usize {
        self.nodes.capacity() * size_of::<Node>()
            + self.rows.capacity() * size_of::<Row>()
            + self.spare.capacity() * size_of::<u32>()
    }

    /// Panics unless every node tells the truth about its children.
    pub(crate) fn check(&self) {
        if !self.nodes.is_empty() {
            self.check_below(self.height, 0);
        }
        for (place, row) in self.rows.iter().enumerate() {
            let is_linked = self.place(row.base) == place;
            let is_spare = self.spare.contains(&(place as u32));
            assert!(is_linked != is_spare, "a row is in its place or to be used again");
            assert!(is_linked || row.word == 0, "a spare row is empty");
        }
    }

    /// Panics unless the nodes above bucket `number` know that something could be due at `tick`.
    pub(crate) fn check_noted(&self, number: u32, tick: u64) {
        let mut at = 0;
        for tier in (1..=self.height).rev() {
            let node = &self.nodes[at];
            let digit = digit(number, tier);
            assert!(node.earliest[digit] <= tick, "no node thinks that what is due comes later");
            at = node.children[digit] as usize;
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
            let earliest = node.earliest[digit];
            assert!(occupied || earliest == u64::MAX, "nothing is due at the last tick");
            if child != ABSENT && tier > 1 {
                self.check_below(tier - 1, child as usize);
            }
        }
    }
}

/// The smallest of the ticks, and where it is, among those whose bits are set in `members`, which are
/// not none; all others are the last tick.
#[inline]
pub(crate) fn earliest_of(members: u64, ticks: &[u64; WIDTH]) -> (usize, u64) {
    // Side by side, as one after the other each comparison would wait for the one before.
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
