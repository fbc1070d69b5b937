//! Names: finds timeouts by half of the hashes of their keys, and grows a little at a time.

use crate::steps;
use crate::wheel::Growing;
use alloc::boxed::Box;
use alloc::collections::TryReserveError;
use alloc::vec::Vec;
use core::iter::successors;
use core::mem::{replace, take};

/// A hash table in which no insertion moves more than a few places, and in which a look waits for
/// memory once, nearly always.
///
/// It is an array of lines. If there are too few of them for an insertion, one is split in two, and
/// each in its turn: the linear hashing of W. Litwin (1980). So the places are never all moved at
/// once. A line is split by the hashes that it has, with no look at what they stand for.
#[derive(Debug)]
pub(crate) struct Names {
    /// All pieces but the last have as many lines as go into one.
    pieces: Growing<Vec<Line>>,
    lines: usize,
    /// The number of places.
    len: usize,
}

/// One line of a processor's cache.
#[derive(Debug)]
#[repr(align(64))]
struct Line {
    hashes: [u32; PER_LINE],
    /// Where the timeouts of those hashes are in the arena of a wheel. Behind them, all are `NONE`.
    places: [u32; PER_LINE],
    /// What does not fit in here. All lines behind the next one are full.
    more: Option<Box<Self>>,
}

impl Names {
    /// Allocates nothing.
    pub(crate) const fn new() -> Self {
        Self { pieces: Growing::new(), lines: 0, len: 0 }
    }

    /// Puts a place in.
    pub(crate) fn insert(&mut self, hash: u32, place: u32) {
        if MEAN * self.lines <= self.len {
            self.split();
        }
        self.line_mut(hash).expect("there is one").insert(hash, place);
        self.len += 1;
    }

    /// Splits the line whose turn it is.
    fn split(&mut self) {
        let new = self.lines;
        self.push();
        let old = new - (new + 1).next_power_of_two() / 2;
        let line = take(&mut self.pieces[old / PIECE][old % PIECE]);
        for (hash, place) in line.entries() {
            steps::count(1);
            self.line_mut(hash).expect("there is one").insert(hash, place);
        }
    }

    /// Adds a line.
    fn push(&mut self) {
        if self.lines % PIECE == 0 {
            self.pieces.push(Vec::new());
        }
        let piece = &mut self.pieces[self.lines / PIECE];
        if piece.len() == piece.capacity() {
            // The first piece is for a map of few. It doubles.
            steps::count(piece.len());
            piece.reserve_exact(self.lines.clamp(1, PIECE));
        }
        piece.push(Line::default());
        self.lines += 1;
    }

    /// Returns what `found` makes of the first place of that hash for which it returns something.
    #[inline]
    pub(crate) fn find<R>(&self, hash: u32, found: impl FnMut(u32) -> Option<R>) -> Option<R> {
        let at = self.line_of(hash);
        let line = self.pieces.get(at / PIECE)?.get(at % PIECE)?;
        Some(line.find(hash, found)?.1)
    }

    /// Takes out the first place of that hash for which `found` returns something, and returns that.
    pub(crate) fn remove<R>(
        &mut self,
        hash: u32,
        found: impl FnMut(u32) -> Option<R>,
    ) -> Option<R> {
        let line = self.line_mut(hash)?;
        let (place, result) = line.find(hash, found)?;
        line.remove(hash, place);
        self.len -= 1;
        Some(result)
    }

    /// Takes all places out, and keeps the lines. Looks at each.
    pub(crate) fn clear(&mut self) {
        steps::count(self.len + self.lines);
        self.pieces.iter_mut().flatten().for_each(|line| *line = Line::default());
        self.len = 0;
    }

    /// Makes room for the pieces of `additional` places, if there is enough memory. Makes no piece:
    /// that is for `insert`.
    pub(crate) fn try_reserve(&mut self, additional: usize) -> Result<(), TryReserveError> {
        let pieces = self.len.saturating_add(additional).div_ceil(MEAN * PIECE);
        self.pieces.try_reserve(pieces.saturating_sub(self.pieces.len()))
    }

    /// Gives back the memory that the places do not need.
    pub(crate) fn shrink_to_fit(&mut self) {
        let all = replace(self, Self::new());
        for (hash, place) in all.pieces.iter().flatten().flat_map(Line::entries) {
            steps::count(1);
            self.insert(hash, place);
        }
        self.pieces.iter_mut().for_each(Vec::shrink_to_fit);
        self.pieces.shrink_to(self.pieces.len());
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the number of lines that a look begins at.
    pub(crate) fn lines(&self) -> usize {
        self.lines
    }

    /// Returns the bytes that are allocated.
    pub(crate) fn memory(&self) -> usize {
        let unused = self.pieces.iter().map(|piece| piece.capacity() - piece.len());
        let used = self.pieces.iter().flatten().map(|line| line.chain().count());
        size_of::<Line>() * (unused.sum::<usize>() + used.sum::<usize>()) + self.pieces.memory()
    }

    fn line_mut(&mut self, hash: u32) -> Option<&mut Line> {
        let at = self.line_of(hash);
        self.pieces.get_mut(at / PIECE)?.get_mut(at % PIECE)
    }

    /// Returns the number of the line for that hash.
    #[inline]
    fn line_of(&self, hash: u32) -> usize {
        let most = self.lines.next_power_of_two();
        let at = hash as usize & (most - 1);
        // The line that was not split yet.
        if at < self.lines { at } else { at - most / 2 }
    }
}

impl Line {
    /// Returns this line and those behind it.
    fn chain(&self) -> impl Iterator<Item = &Self> {
        successors(Some(self), |line| line.more.as_deref())
    }

    fn entries(&self) -> impl Iterator<Item = (u32, u32)> {
        let all = self.chain().flat_map(|line| line.hashes.into_iter().zip(line.places));
        all.filter(|&(_, place)| place != NONE)
    }

    #[inline]
    fn find<R>(&self, hash: u32, mut found: impl FnMut(u32) -> Option<R>) -> Option<(u32, R)> {
        let mut line = self;
        loop {
            // All at once, because a guess at which it is would be wrong.
            let mut equal = 0;
            for (at, &other) in line.hashes.iter().enumerate() {
                equal |= u32::from(other == hash) << at;
            }
            while equal != 0 {
                let place = line.places[equal.trailing_zeros() as usize];
                match found(place) {
                    Some(result) if place != NONE => return Some((place, result)),
                    _ => equal &= equal - 1,
                }
            }
            line = line.more.as_deref()?;
        }
    }

    fn insert(&mut self, hash: u32, place: u32) {
        if self.newest().push(hash, place) {
            return;
        }
        let mut line = Self { more: self.more.take(), ..Self::default() };
        line.push(hash, place);
        self.more = Some(Box::new(line));
    }

    /// Returns the only line of the chain that may have room.
    fn newest(&mut self) -> &mut Self {
        match self.more {
            Some(ref mut more) => more,
            None => self,
        }
    }

    /// Puts a place into this line, and returns whether there was room.
    fn push(&mut self, hash: u32, place: u32) -> bool {
        let at = self.len();
        if at < PER_LINE {
            (self.hashes[at], self.places[at]) = (hash, place);
        }
        at < PER_LINE
    }

    fn len(&self) -> usize {
        self.places.iter().filter(|&&place| place != NONE).count()
    }

    /// Takes a place out that is there. The last one moves to where it was.
    fn remove(&mut self, hash: u32, place: u32) {
        let newest = self.newest();
        let last = newest.len() - 1;
        let moved = (newest.hashes[last], replace(&mut newest.places[last], NONE));
        if last == 0 {
            self.more = self.more.take().and_then(|mut more| more.more.take());
        }
        // If it was the last one, it is nowhere now.
        let mut line = Some(self);
        while let Some(Self { hashes, places, more }) = line {
            for other in hashes.iter_mut().zip(places) {
                if (*other.0, *other.1) == (hash, place) {
                    (*other.0, *other.1) = moved;
                    return;
                }
            }
            line = more.as_deref_mut();
        }
    }
}

impl Default for Line {
    fn default() -> Self {
        Self { hashes: [0; PER_LINE], places: [NONE; PER_LINE], more: None }
    }
}

/// Drops one line after the other: equal hashes make a long chain.
impl Drop for Line {
    fn drop(&mut self) {
        let mut more = self.more.take();
        while let Some(mut line) = more {
            more = line.more.take();
        }
    }
}

/// Returns the half of a hash by which its key is found. A hash may be the key itself.
#[inline]
pub(crate) fn bits_of(hash: u64) -> u32 {
    ((hash ^ hash >> 32).wrapping_mul(ODD) >> 32) as u32
}

/// No timeout has this place.
const NONE: u32 = u32::MAX;

/// As many as fill a line.
const PER_LINE: usize = 7;

/// The places for each line, on average. A line about to be split has twice as many, and every
/// twentieth place is behind a line that is full.
const MEAN: usize = 4;

/// The lines that are allocated together.
const PIECE: usize = 64;

/// 2^64 divided by the golden ratio: its products are spread evenly.
pub(crate) const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(number: u32) -> u32 {
        bits_of(u64::from(number))
    }

    fn takes_out(names: &mut Names, hash: u32, place: u32) -> bool {
        names.remove(hash, |other| (other == place).then_some(())).is_some()
    }

    /// Checks each line, and returns how many places are behind a full one.
    fn check(names: &Names) -> usize {
        let (mut len, mut behind) = (0, 0);
        assert_eq!(names.pieces.iter().map(Vec::len).sum::<usize>(), names.lines);
        for (at, line) in names.pieces.iter().flatten().enumerate() {
            assert!(line.entries().all(|(hash, _)| names.line_of(hash) == at));
            for (number, one) in line.chain().enumerate() {
                assert!(one.places[one.len()..].iter().all(|&place| place == NONE));
                assert!(number == 0 || 0 < one.len(), "what is empty is given back");
                let is_newest = number == usize::from(line.more.is_some());
                assert!(is_newest || one.len() == PER_LINE, "only the newest has room");
                len += one.len();
                behind += if number == 0 { 0 } else { one.len() };
            }
        }
        assert_eq!(len, names.len);
        behind
    }

    #[test]
    fn what_was_put_in_is_found_until_it_is_taken_out() {
        assert_eq!(size_of::<Line>(), 64);
        for hashes in [1, 3, 100, 1 << 20] {
            let (mut names, mut held) = (Names::new(), Vec::new());
            for number in 0..3_000 {
                let place = spread(number) % 1_000;
                let hash = spread(place) % hashes;
                if let Some(at) = held.iter().position(|&(_, other)| other == place) {
                    held.swap_remove(at);
                    assert!(takes_out(&mut names, hash, place));
                } else {
                    held.push((hash, place));
                    names.insert(hash, place);
                }
                assert!(!takes_out(&mut names, hash, NONE) && !takes_out(&mut names, 0, NONE));
                check(&names);
            }
            names.shrink_to_fit();
            check(&names);
            for &(hash, place) in &held {
                let found = names.find(hash, |other| (other == place).then_some(other));
                assert_eq!(found, Some(place));
            }
            assert_eq!(names.len(), held.len());
            names.clear();
            assert_eq!((check(&names), names.len()), (0, 0));
        }
    }

    #[test]
    fn nearly_all_are_found_in_the_first_line_whatever_the_keys_have_in_common() {
        for shift in [0, 8, 20, 32, 40, 50] {
            let mut names = Names::new();
            for number in 0..1 << 14 {
                names.insert(bits_of(u64::from(number) << shift), number);
                if 1_000 < names.len && names.len % 1_000 == 0 {
                    let behind = check(&names);
                    assert!(10 * behind <= names.len, "{behind} of {}, {shift}", names.len);
                }
            }
        }
    }

    #[test]
    fn a_chain_of_any_length_is_dropped() {
        let mut names = Names::new();
        (0..1 << 18).for_each(|place| names.insert(7, place));
        names.clear();
        assert_eq!(
            names.memory(),
            64 * names.lines().next_multiple_of(PIECE) + names.pieces.memory()
        );
    }
}
