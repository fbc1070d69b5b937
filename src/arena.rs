//! Storage whose keys no later value shares.

use alloc::vec::Vec;
use core::num::NonZeroU32;

/// Names one timeout of one wheel, and nothing once that timeout is gone.
///
/// A key is good from the [`schedule`](crate::Wheel::schedule) that returned it until its timeout
/// is expired, cancelled, drained or cleared; a [`reschedule`](crate::Wheel::reschedule) keeps it.
/// After that it finds nothing, also when its place in the wheel is taken by another timeout: each
/// key carries a generation, which comes round only after the place was reused 2^31 times or more.
/// A key of one wheel means nothing to another.
///
/// Eight bytes, and `Option<Key>` is no larger.
///
/// ```
/// let mut wheel = tickwheel::Wheel::new(tickwheel::Mode::hierarchical());
/// let key = wheel.schedule(10, "first");
/// assert_eq!(wheel.cancel(key), Some("first"));
///
/// let other = wheel.schedule(10, "second"); // in the same place
/// assert_eq!(wheel.cancel(key), None);
/// assert_eq!(wheel.get(other), Some(&"second"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    index: u32,
    generation: NonZeroU32,
}

impl Key {
    /// Its place in the arena.
    #[inline]
    pub(crate) fn index(self) -> u32 {
        self.index
    }
}

/// Ends the list of vacant slots.
const NONE: u32 = u32::MAX;

/// The timeouts of a wheel, by index and by key.
#[derive(Debug)]
pub(crate) struct Arena<T> {
    slots: Vec<Slot<T>>,
    len: usize,
    /// The vacant slot to fill next, or `NONE`.
    vacant: u32,
    /// Where a new slot's generation starts: above that of every slot ever given back.
    floor: NonZeroU32,
}

/// The generation's zero marks a vacant slot, so that the choice takes no room.
#[derive(Debug)]
enum Slot<T> {
    Vacant { next: u32, generation: NonZeroU32 },
    Occupied(Timeout<T>),
}

#[derive(Debug)]
pub(crate) struct Timeout<T> {
    generation: NonZeroU32,
    /// Where its entry was put, in the bucket that its deadline belongs in; it may have been moved.
    pub(crate) position: u32,
    pub(crate) deadline: u64,
    pub(crate) value: T,
}

impl<T> Arena<T> {
    pub(crate) const fn new() -> Self {
        Self { slots: Vec::new(), len: 0, vacant: NONE, floor: NonZeroU32::MIN }
    }

    pub(crate) fn reserve(&mut self, additional: usize) {
        let vacant = self.slots.len() - self.len;
        self.slots.reserve(additional.saturating_sub(vacant));
    }

    /// The index that the next `insert` will use.
    #[inline]
    pub(crate) fn next_index(&self) -> u32 {
        if self.vacant == NONE {
            let index = u32::try_from(self.slots.len()).unwrap_or(NONE);
            assert!(index != NONE, "a wheel holds at most 2^32 - 1 timeouts");
            index
        } else {
            self.vacant
        }
    }

    #[inline]
    pub(crate) fn insert(&mut self, position: u32, deadline: u64, value: T) -> Key {
        let index = self.next_index();
        let timeout =
            |generation| Slot::Occupied(Timeout { generation, position, deadline, value });
        let generation = match self.slots.get_mut(index as usize) {
            Some(slot) => {
                let Slot::Vacant { next, generation } = *slot else {
                    unreachable!("the list of vacant slots names no occupied one")
                };
                self.vacant = next;
                *slot = timeout(generation);
                generation
            }
            None => {
                self.slots.push(timeout(self.floor));
                self.floor
            }
        };
        self.len += 1;
        Key { index, generation }
    }

    /// Takes out the timeout at `index`; its key is stale from here on.
    #[inline]
    pub(crate) fn remove(&mut self, index: u32) -> (Key, Timeout<T>) {
        let slot = &mut self.slots[index as usize];
        let Slot::Occupied(Timeout { generation, .. }) = *slot else {
            unreachable!("only a live timeout is taken out")
        };
        let following = generation.checked_add(1).unwrap_or(NonZeroU32::MIN);
        let vacant = Slot::Vacant { next: self.vacant, generation: following };
        let Slot::Occupied(timeout) = core::mem::replace(slot, vacant) else { unreachable!() };
        self.vacant = index;
        self.len -= 1;
        (Key { index, generation }, timeout)
    }

    /// The index of the timeout that `key` names.
    #[inline]
    pub(crate) fn find(&self, key: Key) -> Option<u32> {
        match self.slots.get(key.index as usize)? {
            Slot::Occupied(timeout) if timeout.generation == key.generation => Some(key.index),
            _ => None,
        }
    }

    /// The timeout at `index`, which must be live.
    #[inline]
    pub(crate) fn timeout(&self, index: u32) -> &Timeout<T> {
        match &self.slots[index as usize] {
            Slot::Occupied(timeout) => timeout,
            Slot::Vacant { .. } => unreachable!("an entry names a live timeout"),
        }
    }

    /// The timeout at `index`, which must be live.
    #[inline]
    pub(crate) fn timeout_mut(&mut self, index: u32) -> &mut Timeout<T> {
        match &mut self.slots[index as usize] {
            Slot::Occupied(timeout) => timeout,
            Slot::Vacant { .. } => unreachable!("an entry names a live timeout"),
        }
    }

    /// The first live timeout at or after index `from`.
    pub(crate) fn next_live(&self, from: u32) -> Option<(Key, &Timeout<T>)> {
        let slots = self.slots.get(from as usize..)?;
        (from..).zip(slots).find_map(|(index, slot)| match slot {
            Slot::Occupied(timeout) => {
                Some((Key { index, generation: timeout.generation }, timeout))
            }
            Slot::Vacant { .. } => None,
        })
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Gives back the vacant slots at the end.
    ///
    /// A slot past half of its generations is kept: what would follow it starts above `floor`, and
    /// every place must have 2^31 generations of its own before it.
    pub(crate) fn shrink_to_fit(&mut self) {
        while let Some(&Slot::Vacant { generation, .. }) = self.slots.last() {
            if generation.get() > u32::MAX / 2 {
                break;
            }
            self.floor = self.floor.max(generation);
            self.slots.pop();
        }
        self.slots.shrink_to_fit();
        self.vacant = NONE;
        for (index, slot) in self.slots.iter_mut().enumerate().rev() {
            if let Slot::Vacant { next, .. } = slot {
                *next = self.vacant;
                self.vacant = index as u32;
            }
        }
    }

    /// Bytes allocated.
    pub(crate) fn memory(&self) -> usize {
        self.slots.capacity() * size_of::<Slot<T>>()
    }

    /// Panics unless the list of vacant slots names each of them once.
    pub(crate) fn check(&self) {
        let mut vacant = 0;
        let mut at = self.vacant;
        while at != NONE {
            let Slot::Vacant { next, .. } = self.slots[at as usize] else {
                panic!("slot {at} is on the list of vacant slots, and occupied")
            };
            vacant += 1;
            assert!(vacant <= self.slots.len(), "the list of vacant slots ends");
            at = next;
        }
        let live = self.slots.iter().filter(|slot| matches!(slot, Slot::Occupied(_))).count();
        assert_eq!(live, self.len, "the count of live timeouts is right");
        assert_eq!(vacant + self.len, self.slots.len(), "every slot is live or on the list");
    }
}

#[cfg(test)]
mod tests {
    use super::{Arena, Key, Slot};
    use core::num::NonZeroU32;

    #[test]
    fn a_slot_costs_sixteen_bytes_beyond_its_value() {
        assert_eq!(size_of::<Slot<u64>>(), 16 + 8);
        assert_eq!(size_of::<Slot<()>>(), 16);
        assert_eq!(size_of::<Option<Key>>(), size_of::<u64>());
    }

    #[test]
    fn a_generation_that_comes_round_skips_zero() {
        let mut arena = Arena::new();
        arena.floor = NonZeroU32::MAX;
        let last = arena.insert(0, 0, ());
        arena.remove(last.index);
        let first = arena.insert(0, 0, ());
        assert_eq!((last.generation, first.generation), (NonZeroU32::MAX, NonZeroU32::MIN));
        assert_eq!(arena.find(last), None);
        assert_eq!(arena.find(first), Some(0));
    }

    #[test]
    fn a_place_given_back_starts_above_all_that_were_there() {
        let mut arena = Arena::new();
        let stale = [(); 3].map(|()| arena.insert(0, 0, ()));
        for key in stale {
            arena.remove(key.index);
        }
        arena.shrink_to_fit();
        assert_eq!(arena.memory(), 0);
        for _ in 0..3 {
            arena.insert(0, 0, ());
        }
        assert_eq!(stale.map(|key| arena.find(key)), [None; 3]);
        arena.check();
    }

    #[test]
    fn a_place_past_half_of_its_generations_is_not_given_back() {
        let mut arena = Arena::new();
        arena.floor = NonZeroU32::new(u32::MAX / 2).expect("not zero");
        let key = arena.insert(0, 0, ());
        arena.remove(key.index);
        arena.shrink_to_fit();
        assert_eq!(arena.slots.len(), 1);
        assert!(arena.insert(0, 0, ()).generation > key.generation);
        arena.check();
    }
}
