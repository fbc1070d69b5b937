//! Growing: an array that grows a little at a time.

use crate::steps;
use alloc::boxed::Box;
use alloc::collections::TryReserveError;
use alloc::vec::Vec;
use core::iter::Chain;
use core::ops::{Index, IndexMut};
use core::slice;

/// An array in which no push moves more than a few elements.
///
/// When the array is nearly full, a larger one is laid out. When it is full, its elements move
/// there, the last ones first, and its memory is given back, a step with each push, as Redis
/// resizes its tables. While this goes on, an element may be in either array. At all other times a
/// look costs no more than in a `Vec`, because every element is in `first`.
#[derive(Debug)]
pub(crate) struct Growing<E> {
    first: Vec<E>,
    /// While `first` is shorter than this, a push goes there and does nothing else.
    limit: usize,
    /// The larger array, while one is laid out. Boxed, because small arrays have none.
    next: Option<Box<Next<E>>>,
}

#[derive(Debug)]
struct Next<E> {
    /// The elements that were moved, and new ones behind them. Before them, a blank for each
    /// element that is still in `first`. Until the first element is moved, only blanks, and no more
    /// than that.
    elements: Vec<E>,
    /// Whether the memory of moved elements is given back all at once.
    is_kept: bool,
}

pub(crate) type Iter<'a, E> = Chain<slice::Iter<'a, E>, slice::Iter<'a, E>>;

pub(crate) type IterMut<'a, E> = Chain<slice::IterMut<'a, E>, slice::IterMut<'a, E>>;

impl<E: Default> Growing<E> {
    /// Elements that are laid out or moved with each new one: fewer of those that are large.
    const STEP: usize = match AT_ONCE.checked_div(size_of::<E>()) {
        Some(fit) if fit < LEAST_STEP => LEAST_STEP,
        Some(fit) if fit < MOST_STEP => fit,
        _ => MOST_STEP,
    };

    pub(crate) const fn new() -> Self {
        Self { first: Vec::new(), limit: 0, next: None }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.first.len().max(self.next().len())
    }

    /// Returns the elements that were moved, and what is before them.
    #[inline]
    fn next(&self) -> &[E] {
        self.next.as_ref().map_or(&[], |next| &next.elements)
    }

    #[inline]
    pub(crate) fn push(&mut self, element: E) {
        if self.first.len() < self.limit {
            self.first.push(element);
        } else {
            self.push_and_move(element);
        }
    }

    #[cold]
    fn push_and_move(&mut self, element: E) {
        let (len, laid_out) = (self.first.len(), self.next().len());
        if laid_out > len || laid_out == self.first.capacity() && len > 0 {
            if let Some(next) = &mut self.next {
                next.elements.push(element);
            }
            self.move_step();
        } else if !(AT_ONCE..WHOLE_PAGES).contains(&(self.first.capacity() * size_of::<E>())) {
            self.first.push(element);
            self.limit = Self::limit(self.first.capacity());
        } else {
            self.first.push(element);
            let next = self.next.get_or_insert_with(|| {
                self.limit = 0;
                let elements = Vec::with_capacity(2 * self.first.capacity());
                Box::new(Next { elements, is_kept: false })
            });
            let blanks = (laid_out + Self::STEP).min(self.first.len());
            next.elements.resize_with(blanks, E::default);
        }
    }

    /// Moves a few elements, the last ones first.
    fn move_step(&mut self) {
        let Some(next) = &mut self.next else { return };
        let kept = self.first.len().saturating_sub(Self::STEP);
        steps::count(self.first.len() - kept);
        for (blank, element) in next.elements[kept..].iter_mut().zip(self.first.drain(kept..)) {
            *blank = element;
        }
        if kept == 0 {
            self.first = core::mem::take(&mut next.elements);
            self.limit = Self::limit(self.first.capacity());
            self.next = None;
        } else if !next.is_kept && (self.first.capacity() - kept) * size_of::<E>() >= AT_ONCE {
            // Giving back all at once takes as long as moving all. So does a step, if the allocator
            // moves the elements that are left. Then it was the last step.
            let place = self.first.as_ptr();
            self.first.shrink_to_fit();
            next.is_kept = place != self.first.as_ptr();
        }
    }

    /// Moves at once the elements that are still to be moved. All elements are in `first` then.
    fn settle(&mut self) {
        while self.next().len() > self.first.len() {
            self.move_step();
        }
    }

    /// Returns the elements that have not moved, which are nearly always all.
    #[inline]
    pub(crate) fn first(&self) -> &[E] {
        &self.first
    }

    #[inline]
    pub(crate) fn get(&self, at: usize) -> Option<&E> {
        self.first.get(at).or_else(|| self.next().get(at))
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, at: usize) -> Option<&mut E> {
        self.first.get_mut(at).or_else(|| self.next.as_mut()?.elements.get_mut(at))
    }

    pub(crate) fn iter(&self) -> Iter<'_, E> {
        let moved = self.next().get(self.first.len()..).unwrap_or_default();
        self.first.iter().chain(moved)
    }

    pub(crate) fn iter_mut(&mut self) -> IterMut<'_, E> {
        let Self { first, next, .. } = self;
        let moved = next.as_mut().and_then(|next| next.elements.get_mut(first.len()..));
        first.iter_mut().chain(moved.unwrap_or_default())
    }

    /// Makes room for `additional` elements, at once, if there is enough memory. Does nothing if
    /// there is room.
    pub(crate) fn try_reserve(&mut self, additional: usize) -> Result<(), TryReserveError> {
        let len = self.len().saturating_add(additional);
        if len > Self::limit(self.room()) {
            self.settle();
            self.first.try_reserve(Self::with_room(len) - self.first.len())?;
            self.next = None;
            self.limit = Self::limit(self.first.capacity());
        }
        Ok(())
    }

    /// Writes the room that is left, so that the system provides its pages now, and not to whoever
    /// pushes.
    pub(crate) fn write_room(&mut self) {
        self.settle();
        let len = self.first.len();
        self.first.resize_with(self.first.capacity(), E::default);
        self.first.truncate(len);
    }

    /// Drops all elements from `len` on, and gives back the memory that the others do not need.
    pub(crate) fn shrink_to(&mut self, len: usize) {
        self.settle();
        self.next = None;
        self.first.truncate(len);
        self.first.shrink_to(Self::with_room(len));
        // There is less room if the next array was being laid out. If there is no memory, a push
        // moves all elements at once.
        let _ = self.first.try_reserve_exact(Self::with_room(len) - self.first.len());
        self.limit = Self::limit(self.first.capacity());
    }

    /// Returns the number of elements that the larger of the arrays can hold.
    pub(crate) fn room(&self) -> usize {
        let next = self.next.as_ref().map_or(0, |next| next.elements.capacity());
        self.first.capacity().max(next)
    }

    /// Returns the bytes that are allocated.
    pub(crate) fn memory(&self) -> usize {
        let next = self
            .next
            .as_ref()
            .map_or(0, |next| size_of::<Next<E>>() + next.elements.capacity() * size_of::<E>());
        self.first.capacity() * size_of::<E>() + next
    }

    /// Returns the length from which on the next array is laid out, so that it is ready when this
    /// one is full.
    fn limit(capacity: usize) -> usize {
        capacity - capacity.div_ceil(Self::STEP)
    }

    /// Returns the capacity at which `len` is the limit.
    fn with_room(len: usize) -> usize {
        len.saturating_add(len.div_ceil(Self::STEP - 1))
    }

    /// Frees a piece of an array that is no longer needed, and returns whether there is more.
    #[cfg(feature = "std")]
    pub(crate) fn free_some(&mut self) -> bool {
        let next = self.next.as_mut().is_some_and(|next| free_some(&mut next.elements));
        next || free_some(&mut self.first)
    }
}

/// Frees the last elements of an array that is no longer needed, a piece of them, and returns
/// whether there are more.
#[cfg(feature = "std")]
fn free_some<E>(array: &mut Vec<E>) -> bool {
    let kept = array.len().saturating_sub((PIECE / size_of::<E>()).max(1));
    steps::count(array.len() - kept);
    array.truncate(kept);
    let place = array.as_ptr();
    array.shrink_to_fit();
    if place != array.as_ptr() {
        // The allocator moves what is left, so that a piece costs as much as all.
        *array = Vec::new();
    }
    0 < array.capacity()
}

impl<E: Default> Index<usize> for Growing<E> {
    type Output = E;

    #[inline]
    fn index(&self, at: usize) -> &E {
        match self.get(at) {
            Some(element) => element,
            None => unreachable!("there is no element {at}"),
        }
    }
}

impl<E: Default> IndexMut<usize> for Growing<E> {
    #[inline]
    fn index_mut(&mut self, at: usize) -> &mut E {
        match self.get_mut(at) {
            Some(element) => element,
            None => unreachable!("there is no element {at}"),
        }
    }
}

/// Bytes up to which an array is moved, or given back, at once.
const AT_ONCE: usize = 64 << 10;
/// Bytes from which on the allocator moves an array without copying it: on Linux it hands out whole
/// pages for such an array, and moves them to other addresses.
const WHOLE_PAGES: usize = if cfg!(target_os = "linux") { 32 << 20 } else { usize::MAX };
/// Elements that are laid out or moved at once, if they take no more bytes than an array may.
const MOST_STEP: usize = 64;
/// As many, however large they are: fewer would need more room beforehand.
const LEAST_STEP: usize = 16;
/// Bytes that are freed at once of an array that is no longer needed.
#[cfg(feature = "std")]
const PIECE: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use super::{AT_ONCE, Growing, MOST_STEP, WHOLE_PAGES};
    use alloc::{rc::Rc, vec::Vec};
    use core::sync::atomic::{AtomicUsize, Ordering};
    use quickcheck::quickcheck;

    /// An array of so many elements is moved in steps.
    const MANY: usize = AT_ONCE / size_of::<u64>();

    /// Pushes numbers until there are `len`, and calls `each` after each.
    fn grow(array: &mut Growing<u64>, len: usize, mut each: impl FnMut(&Growing<u64>)) {
        while array.len() < len {
            array.push(array.len() as u64);
            each(array);
        }
    }

    #[test]
    fn room_that_is_there_is_made_without_a_step() {
        let mut array = Growing::new();
        grow(&mut array, 2 * MANY, |_| ());
        while array.next().len() <= array.first().len() {
            array.push(array.len() as u64);
        }
        let (before, moved) = (crate::steps::steps(), array.first().len());
        array.try_reserve(MANY / 2).expect("there is room");
        array.try_reserve(Growing::<u64>::limit(array.room()) - array.len()).expect("and there is");
        assert_eq!((crate::steps::steps() - before, array.first().len()), (0, moved));
        assert_holds_its_numbers(&array);
        array.write_room();
        assert_holds_its_numbers(&array);
    }

    fn assert_holds_its_numbers(array: &Growing<u64>) {
        assert!(array.iter().copied().eq(0..array.len() as u64));
        for at in (0..array.len()).step_by(97) {
            assert_eq!((array.get(at), array[at]), (Some(&(at as u64)), at as u64));
        }
        assert_eq!(array.get(array.len()), None);
        assert!(array.first().iter().eq(array.iter().take(array.first.len())));
    }

    #[test]
    fn all_the_room_is_written_so_that_its_pages_are_there() {
        static WRITTEN: AtomicUsize = AtomicUsize::new(0);

        struct Blank(u8);

        impl Default for Blank {
            fn default() -> Self {
                Self((WRITTEN.fetch_add(1, Ordering::Relaxed) % 2) as u8)
            }
        }

        let mut array = Growing::<Blank>::new();
        array.try_reserve(1000).expect("there is so much memory");
        assert_eq!(WRITTEN.load(Ordering::Relaxed), 0);
        array.write_room();
        assert_eq!((WRITTEN.load(Ordering::Relaxed), array.len()), (array.room(), 0));
        array.push(Blank(7));
        assert_eq!(array.first().iter().map(|blank| blank.0).collect::<Vec<_>>(), [7]);
    }

    quickcheck! {
        fn it_holds_what_an_array_would(operations: Vec<(u8, u16)>) -> bool {
            let (mut array, mut expected) = (Growing::new(), Vec::new());
            for (operation, number) in operations {
                let (len, number) = (expected.len(), number as usize);
                match operation % 8 {
                    0..4 => for value in 0..number as u64 % 5000 {
                        array.push(value);
                        expected.push(value);
                    },
                    4 | 5 => for at in (0..len).step_by(number + 1) {
                        expected[at] += 1;
                        array[at] += 1;
                    },
                    6 => array.try_reserve(number).expect("there is so much memory"),
                    _ => {
                        array.shrink_to(len.saturating_sub(number));
                        expected.truncate(len.saturating_sub(number));
                    }
                }
                let last = expected.len().wrapping_sub(1);
                assert_eq!(array.len(), expected.len());
                assert_eq!(array.get(last), expected.last());
                assert_eq!(array.get_mut(last), expected.last_mut());
                assert_eq!(array.get_mut(expected.len()), None);
            }
            array.iter().eq(&expected)
        }
    }

    fn next_capacity(array: &Growing<u64>) -> usize {
        array.next.as_ref().map_or(0, |next| next.elements.capacity())
    }

    /// Pushes numbers until there are `len`, none of which may move many or give back much; returns
    /// how often some were moved.
    fn grow_in_steps(array: &mut Growing<u64>, len: usize) -> usize {
        let state = |array: &Growing<u64>| {
            let Growing { first, .. } = array;
            let next = array.next().len();
            (first.len(), first.capacity(), next, next_capacity(array), array.memory())
        };
        let mut before = state(array);
        let mut moves = 0;
        grow(array, len, |array| {
            let (len, capacity, laid_out, next, memory) = before;
            let is_done = len <= MOST_STEP && array.next.is_none();
            if is_done || array.first.len() < len {
                moves += 1;
            }
            if !is_done {
                assert!(len <= array.first.len() + MOST_STEP, "few are moved");
                assert!(array.first.capacity() <= capacity, "never all of them");
            }
            assert!(array.next().len() <= laid_out + MOST_STEP);
            assert!(laid_out <= MOST_STEP || next_capacity(array) <= next, "laid out once");
            assert!(memory <= array.memory() + AT_ONCE + MOST_STEP * size_of::<u64>());
            before = state(array);
        });
        moves
    }

    #[test]
    #[cfg(feature = "std")]
    fn it_is_freed_piece_by_piece_and_no_element_by_itself() {
        let mut growing = Growing::new();
        (0..1_u64 << 17).for_each(|element| growing.push(element));
        let most = growing.memory() / super::PIECE + 1;
        let mut calls = 1;
        while growing.free_some() {
            calls += 1;
        }
        assert!(calls <= most, "{calls}, and not {most}");
    }

    #[test]
    fn a_push_moves_few_and_gives_back_little() {
        let mut array = Growing::new();
        grow(&mut array, MANY, |_| {});
        assert_eq!(grow_in_steps(&mut array, 7 * MANY), (1 + 2 + 4) * MANY / MOST_STEP);
    }

    #[test]
    fn a_push_of_large_elements_moves_no_more_bytes() {
        struct Large([u8; AT_ONCE / 32]);

        impl Default for Large {
            fn default() -> Self {
                Self([0; AT_ONCE / 32])
            }
        }

        let (mut array, mut moves) = (Growing::new(), 0);
        for _ in 0..2000 {
            let before = crate::steps::steps();
            array.push(Large::default());
            let moved = (crate::steps::steps() - before) as usize;
            assert!(moved * size_of::<Large>() <= AT_ONCE, "{moved} moved");
            moves += usize::from(0 < moved);
        }
        assert!(array.iter().all(|element| element.0 == [0; AT_ONCE / 32]));
        let is_once = moves == 1 + 2 + 4 + 8 + 16 + 32;
        assert!(is_once || !cfg!(debug_assertions), "{moves}, and not once for each 32 that move");
    }

    #[test]
    fn what_is_pushed_is_found_at_every_length() {
        grow(&mut Growing::new(), 5 * MANY, |array| {
            // The first and the last that are in each place, and some between.
            let len = array.len();
            for at in [0, len / 2, len - 1, array.first.len() - 1, array.first.len()] {
                assert_eq!(array.get(at), (at < len).then_some(&(at as u64)));
            }
        });
    }

    #[test]
    fn elements_are_dropped_once() {
        let element = Rc::new(());
        for len in (0..5 * MANY).step_by(MANY / 5) {
            let mut array = Growing::new();
            for _ in 0..len {
                array.push(Some(element.clone()));
            }
            assert_eq!(Rc::strong_count(&element), 1 + len);
            array.shrink_to(len / 2);
            assert_eq!(Rc::strong_count(&element), 1 + len / 2);
            drop(array);
            assert_eq!(Rc::strong_count(&element), 1);
        }
    }

    #[test]
    fn whole_pages_are_left_to_the_allocator() {
        let many = WHOLE_PAGES.min(32 << 20) / size_of::<u64>();
        let mut array = Growing::new();
        array.try_reserve(many).expect("there is so much memory");
        let mut is_left = true;
        grow(&mut array, 2 * many, |array| is_left &= array.next.is_none());
        assert_eq!(is_left, WHOLE_PAGES < usize::MAX);
        assert_holds_its_numbers(&array);
    }

    #[test]
    fn room_that_was_made_is_enough() {
        for len in (0..4 * MANY).step_by(MANY / 7) {
            let mut array = Growing::new();
            grow(&mut array, len, |_| {});
            array.try_reserve(2 * MANY).expect("there is so much memory");
            let memory = array.memory();
            grow(&mut array, len + 2 * MANY, |array| assert!(array.memory() <= memory));
            grow_in_steps(&mut array, 9 * MANY);
            assert_holds_its_numbers(&array);
        }
    }

    #[test]
    fn where_room_cannot_be_had_it_goes_on_in_steps() {
        for len in (MANY..4 * MANY).step_by(MANY / 7) {
            let mut array = Growing::new();
            grow(&mut array, len, |_| {});
            assert!(array.try_reserve(usize::MAX / 16).is_err());
            assert!(array.try_reserve(usize::MAX).is_err());
            assert!(grow_in_steps(&mut array, 5 * MANY) > 0);
            assert_holds_its_numbers(&array);
        }
    }

    #[test]
    fn given_back_it_grows_in_steps_again() {
        for len in (MANY..4 * MANY).step_by(MANY / 7) {
            let mut array = Growing::new();
            grow(&mut array, 4 * MANY, |_| {});
            array.shrink_to(len);
            assert!(array.memory() <= (len + len / 32) * size_of::<u64>());
            assert!(grow_in_steps(&mut array, 8 * MANY) > 0);
            assert_holds_its_numbers(&array);
        }
    }

    #[test]
    fn what_the_allocator_moves_is_given_back_at_once_that_time_only() {
        let mut array = Growing::new();
        grow(&mut array, MANY + 1, |_| {});
        array.next.as_mut().expect("it is laid out").is_kept = true;
        let memory = array.memory();
        grow(&mut array, MANY + MANY / MOST_STEP - 1, |array| assert_eq!(array.memory(), memory));
        grow(&mut array, MANY + MANY / MOST_STEP + 1, |_| {});
        assert!(array.memory() < memory && array.next.is_none());
    }

    #[test]
    fn emptied_and_given_back_it_holds_nothing() {
        let mut array = Growing::new();
        grow(&mut array, 100, |_| {});
        array.shrink_to(0);
        assert_eq!((array.len(), array.memory()), (0, 0));
    }
}
