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

/// The timeouts of a wheel, by index and by key.
#[derive(Debug)]
pub(crate) struct Arena<T> {
    slots: Vec<Slot<T>>,
    /// When each timeout is due, by index too. Apart from the slots, as who hands out timeouts by
    /// deadline knows it already: so it touches less memory.
    deadlines: Vec<u64>,
    /// Vacant slots, the one to fill next last. Apart from the slots: a list through them would
    /// make each `insert` wait for the memory of the one before.
    vacant: Vec<u32>,
    /// The slots from here on are vacant too, and filled once `vacant` is empty. An arena that was
    /// emptied begins again at its first slot, in the order of memory.
    untouched: usize,
    /// Where a new slot's generation starts: above that of every slot ever given back.
    floor: NonZeroU32,
}

/// The generation's zero marks a vacant slot, so that the choice takes no room.
#[derive(Debug)]
enum Slot<T> {
    /// With the generation of the timeout to come.
    Vacant(NonZeroU32),
    Occupied(Timeout<T>),
}

#[derive(Debug)]
pub(crate) struct Timeout<T> {
    generation: NonZeroU32,
    /// Where its entry was put, in the bucket that its deadline belongs in; it may have been moved.
    pub(crate) position: u32,
    pub(crate) value: T,
}

impl<T> Timeout<T> {
    /// Its key, given its index.
    #[inline]
    pub(crate) fn key(&self, index: u32) -> Key {
        Key { index, generation: self.generation }
    }
}

impl<T> Arena<T> {
    pub(crate) const fn new() -> Self {
        Self {
            slots: Vec::new(),
            deadlines: Vec::new(),
            vacant: Vec::new(),
            untouched: 0,
            floor: NonZeroU32::MIN,
        }
    }

    pub(crate) fn reserve(&mut self, additional: usize) {
        let additional = additional.saturating_sub(self.slots.len() - self.len());
        // Room that cannot be had now is asked for again when it is needed.
        let _ = self.slots.try_reserve(additional);
        let _ = self.deadlines.try_reserve(additional);
    }

    /// The index that the next `insert` will use.
    #[inline]
    pub(crate) fn next_index(&self) -> u32 {
        match self.vacant.last() {
            Some(&index) => index,
            None => {
                let index = u32::try_from(self.untouched).unwrap_or(u32::MAX);
                assert!(index < u32::MAX, "a wheel holds at most 2^32 - 1 timeouts");
                index
            }
        }
    }

    #[inline]
    pub(crate) fn insert(&mut self, position: u32, deadline: u64, value: T) -> Key {
        let index = self.next_index();
        let timeout = |generation| Slot::Occupied(Timeout { generation, position, value });
        if self.vacant.pop().is_none() {
            self.untouched += 1;
        }
        let generation = match self.slots.get_mut(index as usize) {
            Some(slot) => {
                let Slot::Vacant(generation) = *slot else {
                    unreachable!("a vacant slot is not occupied")
                };
                *slot = timeout(generation);
                self.deadlines[index as usize] = deadline;
                generation
            }
            None => {
                self.slots.push(timeout(self.floor));
                self.deadlines.push(deadline);
                self.floor
            }
        };
        Key { index, generation }
    }

    /// When the timeout at `index` is due; still there when it has just been taken out.
    #[inline]
    pub(crate) fn deadline(&self, index: u32) -> u64 {
        self.deadlines[index as usize]
    }

    /// Changes when the timeout at `index` is due, and the position it remembers.
    #[inline]
    pub(crate) fn reschedule(&mut self, index: u32, position: u32, deadline: u64) {
        self.deadlines[index as usize] = deadline;
        self.set_position(index, position);
    }

    /// Takes out the timeout that `key` names; the key is stale from here on.
    #[inline]
    pub(crate) fn remove(&mut self, key: Key) -> Option<Timeout<T>> {
        let slot = self.slots.get_mut(key.index as usize)?;
        match slot {
            Slot::Occupied(timeout) if timeout.generation == key.generation => {}
            _ => return None,
        }
        let next = key.generation.checked_add(1).unwrap_or(NonZeroU32::MIN);
        match core::mem::replace(slot, Slot::Vacant(next)) {
            Slot::Occupied(timeout) => {
                self.vacant.push(key.index);
                if self.is_empty() {
                    self.vacant.clear();
                    self.untouched = 0;
                }
                Some(timeout)
            }
            Slot::Vacant(_) => None,
        }
    }

    /// The timeout that `key` names.
    #[inline]
    pub(crate) fn get(&self, key: Key) -> Option<&Timeout<T>> {
        match self.slots.get(key.index as usize)? {
            Slot::Occupied(timeout) if timeout.generation == key.generation => Some(timeout),
            _ => None,
        }
    }

    /// The timeout that `key` names.
    #[inline]
    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut Timeout<T>> {
        match self.slots.get_mut(key.index as usize)? {
            Slot::Occupied(timeout) if timeout.generation == key.generation => Some(timeout),
            _ => None,
        }
    }

    /// The timeout at `index`, which must be live.
    #[inline]
    pub(crate) fn timeout(&self, index: u32) -> &Timeout<T> {
        match &self.slots[index as usize] {
            Slot::Occupied(timeout) => timeout,
            Slot::Vacant(_) => unreachable!("an entry names a live timeout"),
        }
    }

    /// Reads the slot at `index`, if there is one, and makes a number of it.
    #[inline]
    pub(crate) fn touch(&self, index: u32) -> u32 {
        match self.slots.get(index as usize) {
            Some(Slot::Occupied(timeout)) => timeout.generation.get(),
            _ => 0,
        }
    }

    /// Tells the timeout at `index` the position of its entry, if it is still live.
    #[inline]
    pub(crate) fn set_position(&mut self, index: u32, position: u32) {
        if let Slot::Occupied(timeout) = &mut self.slots[index as usize] {
            timeout.position = position;
        }
    }

    /// The first live timeout at or after index `from`.
    pub(crate) fn next_live(&self, from: u32) -> Option<(u32, &Timeout<T>)> {
        let slots = self.slots.get(from as usize..self.untouched)?;
        (from..).zip(slots).find_map(|(index, slot)| match slot {
            Slot::Occupied(timeout) => Some((index, timeout)),
            Slot::Vacant(_) => None,
        })
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.untouched - self.vacant.len()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.untouched == self.vacant.len()
    }

    /// Gives back the vacant slots at the end.
    ///
    /// A slot past half of its generations is kept: what would follow it starts above `floor`, and
    /// every place must have 2^31 generations of its own before it.
    pub(crate) fn shrink_to_fit(&mut self) {
        while let Some(&Slot::Vacant(generation)) = self.slots.last() {
            if generation.get() > u32::MAX / 2 {
                break;
            }
            self.floor = self.floor.max(generation);
            self.slots.pop();
        }
        self.slots.shrink_to_fit();
        self.deadlines.truncate(self.slots.len());
        self.deadlines.shrink_to_fit();
        self.untouched = self.untouched.min(self.slots.len());
        self.vacant.retain(|&index| (index as usize) < self.untouched);
        self.vacant.shrink_to_fit();
    }

    /// Bytes allocated.
    pub(crate) fn memory(&self) -> usize {
        self.slots.capacity() * size_of::<Slot<T>>()
            + self.deadlines.capacity() * size_of::<u64>()
            + self.vacant.capacity() * size_of::<u32>()
    }

    /// Panics unless the list of vacant slots names each of them once.
    pub(crate) fn check(&self) {
        let mut vacant: Vec<_> = self.vacant.clone();
        vacant.sort_unstable();
        vacant.extend(self.untouched as u32..self.slots.len() as u32);
        let slots = (0..).zip(&self.slots);
        let found = slots.filter(|(_, slot)| matches!(slot, Slot::Vacant(_)));
        assert!(found.map(|(index, _)| index).eq(vacant), "the vacant slots are known");
    }
}

#[cfg(test)]
mod tests {
    use super::{Arena, Key, Slot};
    use core::num::NonZeroU32;

    #[test]
    fn a_slot_costs_eight_bytes_beyond_its_value() {
        assert_eq!(size_of::<Slot<u64>>(), 8 + 8);
        assert_eq!(size_of::<Slot<()>>(), 8);
        assert_eq!(size_of::<Option<Key>>(), size_of::<u64>());
    }

    #[test]
    fn a_generation_that_comes_round_skips_zero() {
        let mut arena = Arena::new();
        arena.floor = NonZeroU32::MAX;
        let last = arena.insert(0, 0, ());
        arena.remove(last);
        let first = arena.insert(0, 0, ());
        assert_eq!((last.generation, first.generation), (NonZeroU32::MAX, NonZeroU32::MIN));
        assert!(arena.get(last).is_none());
        assert!(arena.get(first).is_some());
    }

    #[test]
    fn a_place_given_back_starts_above_all_that_were_there() {
        let mut arena = Arena::new();
        let stale = [(); 3].map(|()| arena.insert(0, 0, ()));
        for key in stale {
            arena.remove(key);
        }
        arena.shrink_to_fit();
        assert_eq!(arena.memory(), 0);
        for _ in 0..3 {
            arena.insert(0, 0, ());
        }
        assert!(stale.iter().all(|&key| arena.get(key).is_none()));
        arena.check();
    }

    #[test]
    fn a_place_past_half_of_its_generations_is_not_given_back() {
        let mut arena = Arena::new();
        arena.floor = NonZeroU32::new(u32::MAX / 2).expect("not zero");
        let key = arena.insert(0, 0, ());
        arena.remove(key);
        arena.shrink_to_fit();
        assert_eq!(arena.slots.len(), 1);
        assert!(arena.insert(0, 0, ()).generation > key.generation);
        arena.check();
    }
}
