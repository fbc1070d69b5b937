//! Names: finds timeouts by parts of the hashes of their keys, and grows a little at a time.

use crate::steps;
use crate::wheel::Growing;
use alloc::collections::TryReserveError;
use alloc::vec::Vec;
use core::mem::{replace, take};

/// A hash table in which no insertion moves more than a few places, and in which a look waits for
/// memory once, nearly always.
///
/// It is an array of lines. If there are too few of them for an insertion, one is split in two, and
/// each in its turn: the linear hashing of W. Litwin (1980). So the places are never all moved at
/// once. A line has `N` places, and an `H` of each hash. For a split, the caller makes the hashes of
/// these.
#[derive(Debug)]
pub(crate) struct Names<H, const N: usize> {
    /// All pieces but the last have as many lines as go into one.
    pieces: Growing<Vec<Line<H, N>>>,
    lines: usize,
    /// The number of places.
    len: usize,
    /// What does not fit in those lines, and lines that are empty again: so what comes and goes
    /// where a line is full allocates nothing.
    behind: Growing<Line<H, N>>,
    /// The first empty one, or `NONE`.
    spare: u32,
}

/// What a line has of a hash: all of it, or half, so that more places go into a line.
pub(crate) trait Part: Copy + Default + PartialEq {
    fn of(hash: u32) -> Self;
}

/// One line of a processor's cache.
#[derive(Debug)]
#[repr(align(64))]
struct Line<H, const N: usize> {
    parts: [H; N],
    /// Where the timeouts of those hashes are in the arena of a wheel. Behind them, all are `NONE`.
    places: [u32; N],
    /// The line behind this one, or `NONE`. All behind the next one are full. Behind an empty line,
    /// the next empty one.
    more: u32,
}

impl<H: Part, const N: usize> Names<H, N> {
    /// The places for each line, on average. A line about to be split has twice as many, and one
    /// place in thirty is behind a line that is full.
    const MEAN: usize = N * 3 / 5;

    /// Allocates nothing.
    pub(crate) const fn new() -> Self {
        Self { pieces: Growing::new(), lines: 0, len: 0, behind: Growing::new(), spare: NONE }
    }

    /// Puts a place in. Asks for the hashes of some that are there.
    pub(crate) fn insert(&mut self, hash: u32, place: u32, hash_of: impl Fn(H, u32) -> u32) {
        if Self::MEAN * self.lines <= self.len {
            self.split(hash_of);
        }
        self.put(hash, place);
        self.len += 1;
    }

    /// Splits the line whose turn it is.
    fn split(&mut self, hash_of: impl Fn(H, u32) -> u32) {
        let new = self.lines;
        self.push();
        let old = new - (new + 1).next_power_of_two() / 2;
        let mut line = take(&mut self.pieces[old / PIECE][old % PIECE]);
        loop {
            for (part, place) in line.entries() {
                steps::count(1);
                self.put(hash_of(part, place), place);
            }
            let at = line.more;
            let Some(behind) = self.behind.get_mut(at as usize) else { return };
            line = take(behind);
            behind.more = replace(&mut self.spare, at);
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

    fn put(&mut self, hash: u32, place: u32) {
        let at = self.line_of(hash);
        let Self { pieces, behind, spare, .. } = self;
        let first = &mut pieces[at / PIECE][at % PIECE];
        let entry = (H::of(hash), place);
        let is_in = match behind.get_mut(first.more as usize) {
            Some(newest) => newest.push(entry),
            None => first.push(entry),
        };
        if is_in {
            return;
        }
        if *spare == NONE {
            *spare = behind.len() as u32;
            behind.push(Line::default());
        }
        let newest = &mut behind[*spare as usize];
        newest.push(entry);
        let at = replace(spare, newest.more);
        newest.more = replace(&mut first.more, at);
    }

    /// Returns what `found` makes of the first place of that hash for which it returns something.
    #[inline]
    pub(crate) fn find<R>(&self, hash: u32, mut found: impl FnMut(u32) -> Option<R>) -> Option<R> {
        let at = self.line_of(hash);
        let mut line = self.pieces.get(at / PIECE)?.get(at % PIECE)?;
        loop {
            if let Some(result) = line.find(H::of(hash), &mut found) {
                return Some(result);
            }
            line = self.behind.get(line.more as usize)?;
            steps::count(1);
        }
    }

    /// Takes out the first place of that hash for which `found` returns something, and returns that.
    pub(crate) fn remove<R>(
        &mut self,
        hash: u32,
        mut found: impl FnMut(u32) -> Option<R>,
    ) -> Option<R> {
        let found = |place| Some((place, found(place)?));
        let (place, result) = self.find(hash, found)?;
        self.take_out(hash, (H::of(hash), place));
        self.len -= 1;
        Some(result)
    }

    /// Takes a place out that is there. The last one moves to where it was.
    fn take_out(&mut self, hash: u32, entry: (H, u32)) {
        let at = self.line_of(hash);
        let Self { pieces, behind, spare, .. } = self;
        let first = &mut pieces[at / PIECE][at % PIECE];
        let last = match behind.get_mut(first.more as usize) {
            None => first.pop(),
            Some(newest) => {
                let last = newest.pop();
                if newest.len() == 0 {
                    let empty = replace(&mut first.more, newest.more);
                    newest.more = replace(spare, empty);
                }
                last
            }
        };
        // If it was the last one, it is nowhere now.
        let mut line = first;
        while !line.replace(entry, last) {
            let at = line.more as usize;
            match behind.get_mut(at) {
                Some(next) => line = next,
                None => return,
            }
        }
    }

    /// Takes all places out, and keeps the lines. Looks at each.
    pub(crate) fn clear(&mut self) {
        steps::count(self.len + self.lines);
        self.pieces.iter_mut().flatten().for_each(|line| *line = Line::default());
        (self.len, self.behind, self.spare) = (0, Growing::new(), NONE);
    }

    /// Makes room for the pieces of `additional` places, if there is enough memory. Makes no piece:
    /// that is for `insert`.
    pub(crate) fn try_reserve(&mut self, additional: usize) -> Result<(), TryReserveError> {
        let pieces = self.len.saturating_add(additional).div_ceil(Self::MEAN * PIECE);
        self.pieces.try_reserve(pieces.saturating_sub(self.pieces.len()))
    }

    /// Gives back the memory that the places do not need. Asks for the hash of each.
    pub(crate) fn shrink_to_fit(&mut self, hash_of: impl Fn(H, u32) -> u32) {
        let all = replace(self, Self::new());
        let lines = all.pieces.iter().flatten().chain(all.behind.iter());
        for (part, place) in lines.flat_map(Line::entries) {
            steps::count(1);
            self.insert(hash_of(part, place), place, &hash_of);
        }
        self.pieces.iter_mut().for_each(Vec::shrink_to_fit);
        self.pieces.shrink_to(self.pieces.len());
        self.behind.shrink_to(self.behind.len());
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
        let lines: usize = self.pieces.iter().map(Vec::capacity).sum();
        size_of::<Line<H, N>>() * lines + self.pieces.memory() + self.behind.memory()
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

impl<H: Part, const N: usize> Line<H, N> {
    fn entries(&self) -> impl Iterator<Item = (H, u32)> + use<H, N> {
        let all = self.parts.into_iter().zip(self.places);
        all.take_while(|&(_, place)| place != NONE)
    }

    #[inline]
    fn find<R>(&self, part: H, found: &mut impl FnMut(u32) -> Option<R>) -> Option<R> {
        // All at once, because a guess at which it is would be wrong.
        let mut equal = 0;
        for (at, &other) in self.parts.iter().enumerate() {
            equal |= u32::from(other == part) << at;
        }
        while equal != 0 {
            let place = self.places[equal.trailing_zeros() as usize];
            match found(place) {
                Some(result) if place != NONE => return Some(result),
                _ => equal &= equal - 1,
            }
        }
        None
    }

    /// Puts a place into this line, and returns whether there was room.
    fn push(&mut self, entry: (H, u32)) -> bool {
        let at = self.len();
        if at < N {
            (self.parts[at], self.places[at]) = entry;
        }
        at < N
    }

    fn len(&self) -> usize {
        self.places.iter().filter(|&&place| place != NONE).count()
    }

    /// Takes out the last place, which is there.
    fn pop(&mut self) -> (H, u32) {
        let last = self.len() - 1;
        (self.parts[last], replace(&mut self.places[last], NONE))
    }

    /// Puts another place where one is, and returns whether that one is here.
    fn replace(&mut self, entry: (H, u32), other: (H, u32)) -> bool {
        let at = self.entries().position(|held| held == entry);
        if let Some(at) = at {
            (self.parts[at], self.places[at]) = other;
        }
        at.is_some()
    }
}

impl<H: Part, const N: usize> Default for Line<H, N> {
    fn default() -> Self {
        Self { parts: [H::default(); N], places: [NONE; N], more: NONE }
    }
}

impl Part for u32 {
    #[inline]
    fn of(hash: u32) -> Self {
        hash
    }
}

/// The other half chooses the line.
impl Part for u16 {
    #[inline]
    fn of(hash: u32) -> Self {
        (hash >> 16) as Self
    }
}

/// Returns the half of a hash by which its key is found. A hash may be the key itself.
#[inline]
pub(crate) fn bits_of(hash: u64) -> u32 {
    ((hash ^ hash >> 32).wrapping_mul(ODD) >> 32) as u32
}

/// No timeout has this place, and no line.
const NONE: u32 = u32::MAX;

/// The lines that are allocated together.
const PIECE: usize = 64;

/// 2^64 divided by the golden ratio: its products are spread evenly.
pub(crate) const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::*;
    use core::iter::{once, successors};

    fn spread(number: u32) -> u32 {
        bits_of(u64::from(number))
    }

    fn takes_out<H: Part, const N: usize>(names: &mut Names<H, N>, hash: u32, place: u32) -> bool {
        names.remove(hash, |other| (other == place).then_some(())).is_some()
    }

    fn chain<H: Part, const N: usize>(
        names: &Names<H, N>,
        at: u32,
    ) -> impl Iterator<Item = &Line<H, N>> {
        let behind = |at: u32| names.behind.get(at as usize);
        successors(behind(at), move |line| behind(line.more))
    }

    /// Checks each line, and returns how many places are behind a full one.
    fn check<H: Part, const N: usize>(
        names: &Names<H, N>,
        hash_of: impl Fn(H, u32) -> u32,
    ) -> usize {
        let (mut len, mut behind, mut used) = (0, 0, 0);
        assert_eq!(names.pieces.iter().map(Vec::len).sum::<usize>(), names.lines);
        assert!(names.pieces.iter().all(|piece| piece.capacity() <= PIECE));
        for (at, line) in names.pieces.iter().flatten().enumerate() {
            let lines = once(line).chain(chain(names, line.more));
            for (number, one) in lines.enumerate() {
                let is_newest = number == usize::from(line.more != NONE);
                assert!(is_newest || one.len() == N, "only the newest has room");
                assert!(number == 0 || 0 < one.len(), "what is empty is spare");
                assert!(one.places[one.len()..].iter().all(|&place| place == NONE));
                for (part, place) in one.entries() {
                    let hash = hash_of(part, place);
                    assert!(names.line_of(hash) == at && H::of(hash) == part);
                }
                len += one.len();
                if 0 < number {
                    (used, behind) = (used + 1, behind + one.len());
                }
            }
        }
        assert_eq!(len, names.len);
        assert!(chain(names, names.spare).all(|line| line.len() == 0));
        assert_eq!(used + chain(names, names.spare).count(), names.behind.len());
        behind
    }

    fn comes_and_goes<H: Part, const N: usize>() {
        assert_eq!(size_of::<Line<H, N>>(), 64);
        for hashes in [1, 3, 100, 1 << 30] {
            let hash = |place| spread(place) % hashes;
            let hash_of = |_, place| hash(place);
            let (mut names, mut held) = (Names::<H, N>::new(), Vec::new());
            for number in 0..3_000 {
                let place = spread(number) % 1_000;
                if let Some(at) = held.iter().position(|&other| other == place) {
                    held.swap_remove(at);
                    assert!(takes_out(&mut names, hash(place), place));
                } else {
                    held.push(place);
                    names.insert(hash(place), place, hash_of);
                }
                assert!(!takes_out(&mut names, hash(place), NONE));
                assert!(!takes_out(&mut names, 0, NONE));
                check(&names, hash_of);
            }
            names.shrink_to_fit(hash_of);
            check(&names, hash_of);
            for &place in &held {
                let found = names.find(hash(place), |other| (other == place).then_some(other));
                assert_eq!(found, Some(place));
            }
            assert_eq!(names.len(), held.len());
            names.clear();
            assert_eq!((check(&names, hash_of), names.len()), (0, 0));
        }
    }

    #[test]
    fn what_was_put_in_is_found_until_it_is_taken_out() {
        comes_and_goes::<u16, 10>();
        comes_and_goes::<u32, 7>();
    }

    #[test]
    fn nearly_all_are_found_at_first_look_whatever_the_keys_have_in_common() {
        are_found_at_first_look::<u16, 10>();
        are_found_at_first_look::<u32, 7>();
    }

    fn are_found_at_first_look<H: Part, const N: usize>() {
        let shifted = [0, 8, 20, 32, 40, 50].map(|shift| (shift, 0));
        // The last are small negative numbers.
        for (shift, flip) in shifted.into_iter().chain([(0, u64::MAX)]) {
            let hash = |number| bits_of((u64::from(number) << shift) ^ flip);
            let hash_of = |_, number| hash(number);
            let mut names = Names::<H, N>::new();
            for number in 0..1 << 14 {
                names.insert(hash(number), number, hash_of);
                if 1_000 < names.len && names.len % 1_000 == 0 {
                    let behind = check(&names, hash_of);
                    assert!(8 * behind <= names.len, "{behind} of {}, {shift}", names.len);
                }
            }
            let mut looks = 0;
            for number in 0..1 << 14 {
                let mut is_it = |other| {
                    looks += 1;
                    (other == number).then_some(())
                };
                assert!(names.find(hash(number), &mut is_it).is_some());
            }
            assert!(looks <= names.len + names.len / 8, "{looks} of {}, {shift}", names.len);
        }
    }
}
