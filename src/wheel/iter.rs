//! Iterators over the timeouts of a wheel.

use super::arena::LiveMut;
use super::{Expired, Key, Wheel};
use core::fmt;
use core::iter::FusedIterator;

/// Iterates over the timeouts of a wheel, as key, deadline and value, from [`Wheel::iter`].
pub struct Iter<'a, T> {
    pub(super) wheel: &'a Wheel<T>,
    /// The first index not yet looked at.
    pub(super) index: u32,
    pub(super) left: usize,
}

impl<'a, T> Iterator for Iter<'a, T> {
    type Item = (Key, u64, &'a T);

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let next = self.wheel.arena.next_live(self.index)?;
        self.index = next.0.index().saturating_add(1);
        Some(next)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<T> ExactSizeIterator for Iter<'_, T> {}

impl<T> FusedIterator for Iter<'_, T> {}

impl<T> Clone for Iter<'_, T> {
    fn clone(&self) -> Self {
        Self { ..*self }
    }
}

impl<T: fmt::Debug> fmt::Debug for Iter<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.clone()).finish()
    }
}

impl<'a, T> IntoIterator for &'a Wheel<T> {
    type Item = (Key, u64, &'a T);
    type IntoIter = Iter<'a, T>;

    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

/// Iterates over the timeouts of a wheel, as key, deadline and value, to change the values, from
/// [`Wheel::iter_mut`].
pub struct IterMut<'a, T> {
    pub(super) live: LiveMut<'a, T>,
    pub(super) left: usize,
}

impl<'a, T> Iterator for IterMut<'a, T> {
    type Item = (Key, u64, &'a mut T);

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        self.live.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<T> ExactSizeIterator for IterMut<'_, T> {}

impl<T> FusedIterator for IterMut<'_, T> {}

impl<T> fmt::Debug for IterMut<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IterMut").field("left", &self.left).finish_non_exhaustive()
    }
}

impl<'a, T> IntoIterator for &'a mut Wheel<T> {
    type Item = (Key, u64, &'a mut T);
    type IntoIter = IterMut<'a, T>;

    fn into_iter(self) -> IterMut<'a, T> {
        self.iter_mut()
    }
}

/// Takes all timeouts out of a wheel, from [`Wheel::drain`].
///
/// Dropping it drops the timeouts that are left. If one value panics in its `Drop`, all others are
/// dropped, the wheel is empty and consistent, and the panic reaches the caller. If a second value
/// panics in the same drop, the process aborts, as with the collections of std.
#[derive(Debug)]
pub struct Drain<'a, T> {
    pub(super) wheel: &'a mut Wheel<T>,
    /// No live timeout is before this index.
    pub(super) index: u32,
}

impl<T> Iterator for Drain<'_, T> {
    type Item = Expired<T>;

    fn next(&mut self) -> Option<Expired<T>> {
        if self.wheel.is_empty() {
            return None;
        }
        let (key, deadline, _) = self.wheel.arena.next_live(self.index)?;
        self.index = key.index().saturating_add(1);
        let value = self.wheel.cancel(key)?;
        Some(Expired { key, deadline, value })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.wheel.len(), Some(self.wheel.len()))
    }
}

impl<T> ExactSizeIterator for Drain<'_, T> {}

impl<T> FusedIterator for Drain<'_, T> {}

impl<T> Drop for Drain<'_, T> {
    fn drop(&mut self) {
        /// Drops the rest if dropping one value panics.
        struct Rest<'a, 'w, T>(&'a mut Drain<'w, T>);

        impl<T> Drop for Rest<'_, '_, T> {
            fn drop(&mut self) {
                self.0.for_each(drop);
            }
        }

        let rest = Rest(self);
        rest.0.for_each(drop);
    }
}

/// Takes what is due out of a wheel, in order, from [`Wheel::extract_due`].
///
/// Dropping or leaking it leaves the timeouts that it has not handed out in the wheel, still due.
#[derive(Debug)]
#[must_use = "nothing is taken out unless it is iterated over"]
pub struct ExtractDue<'a, T> {
    pub(super) wheel: &'a mut Wheel<T>,
    pub(super) now: u64,
}

impl<T> Iterator for ExtractDue<'_, T> {
    type Item = Expired<T>;

    #[inline]
    fn next(&mut self) -> Option<Expired<T>> {
        self.wheel.expire(self.now)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.wheel.len()))
    }
}

impl<T> FusedIterator for ExtractDue<'_, T> {}
