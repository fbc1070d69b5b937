//! The arena: stores timeouts under keys that no later timeout shares.

use super::growing::{self, Growing};
use crate::steps;
use alloc::boxed::Box;
use alloc::collections::TryReserveError;
use alloc::vec::Vec;
use core::num::NonZeroU32;

/// Names one timeout of one wheel, and nothing once that timeout is gone.
///
/// A key is valid from the [`schedule`](crate::Wheel::schedule) that returned it until its timeout
/// is expired, cancelled, drained or cleared. [`reschedule`](crate::Wheel::reschedule) keeps it
/// valid. After that the key finds nothing, even if another timeout takes the same place in the
/// wheel: each key carries a generation, which comes round only after at least 2^31 reuses of the
/// place.
///
/// A key means nothing to another wheel. It takes eight bytes, and so does `Option<Key>`.
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
    /// Returns the place in the arena.
    #[inline]
    pub(crate) fn index(self) -> u32 {
        self.index
    }

    /// Returns the key as a number that an atomic can hold.
    #[cfg(feature = "std")]
    #[inline]
    pub(crate) fn to_bits(self) -> u64 {
        u64::from(self.generation.get()) << 32 | u64::from(self.index)
    }

    /// Returns the key of that number, or another if there is none.
    #[cfg(feature = "std")]
    #[inline]
    pub(crate) fn from_bits(bits: u64) -> Self {
        let generation = NonZeroU32::new((bits >> 32) as u32).unwrap_or(NonZeroU32::MIN);
        Self { index: bits as u32, generation }
    }
}

/// Stands in a bucket for one timeout.
///
/// An entry is *stale* if its timeout is gone, or was moved and has a newer entry. A cancel leaves
/// the entry where it is. A sweep drops stale entries, and so does whatever would hand them out.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Entry {
    /// The place of the timeout in the arena.
    pub(super) index: u32,
    /// The stamp of the timeout, unless the entry is stale.
    pub(super) stamp: u32,
    /// The deadline of the timeout. It is here so that demoting, scanning and sorting read no slot.
    pub(super) deadline: u64,
}

impl Entry {
    /// Returns whether it has this index and stamp. The index too, because stamps come round.
    #[inline]
    pub(super) fn is(self, index: u32, stamp: u32) -> bool {
        (self.index, self.stamp) == (index, stamp)
    }
}

/// Holds the timeouts of a wheel, by index and by key.
#[derive(Debug)]
pub(super) struct Arena<T> {
    slots: Growing<Slot<T>>,
    /// The deadline of each timeout, by the same index. The deadlines are apart from the slots
    /// because neither handing out a timeout nor cancelling one reads them: so both touch less
    /// memory.
    deadlines: Growing<u64>,
    /// One word for each group of slots. The bit of a slot is set if the slot is vacant, unless it
    /// is `spare`.
    vacant: Vec<u64>,
    /// None while there is one group at most, and no slot of it is vacant but the spare one. Then
    /// `vacant` is empty, too.
    groups: Option<Box<Groups>>,
    /// A vacant slot that is used before all others. While all slots of a group are in use, one
    /// that is vacated and soon used again goes here, and not through `vacant` and `open`.
    spare: Option<u32>,
    len: usize,
    /// The last stamp that was given out.
    stamp: u32,
    /// The first generation of a new slot: above that of every slot that was ever given back.
    floor: NonZeroU32,
    /// No key has a later generation, unless generations came round.
    highest: NonZeroU32,
}

/// What is known of groups of slots.
#[derive(Debug)]
struct Groups {
    /// One word for each 64 groups. The bit of a group is set unless all bits of its word in
    /// `vacant` are: so it is if a slot of the group is live.
    used: Vec<u64>,
    /// The groups before `fresh` with a vacant slot, each once. The last one is used next: mostly a
    /// group in which a slot was vacated a moment ago. A list through the slots would make each
    /// `insert` wait for the memory of the one before.
    open: Vec<u32>,
    /// All slots of the groups from this one on are vacant: none was used since the arena was last
    /// empty. When no group is open, the first of them is opened, so that slots are used in the
    /// order of memory.
    fresh: usize,
}

/// A generation is never zero. Zero marks a vacant slot, so the choice takes no room.
#[derive(Debug)]
enum Slot<T> {
    /// Holds the generation of the next timeout.
    Vacant(NonZeroU32),
    Occupied(Timeout<T>),
}

#[derive(Debug)]
struct Timeout<T> {
    generation: NonZeroU32,
    /// The stamp of its entry. All other entries that name this slot are stale.
    stamp: u32,
    value: T,
}

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Self::Vacant(NonZeroU32::MIN)
    }
}

impl<T> Arena<T> {
    pub(super) const fn new() -> Self {
        Self {
            slots: Growing::new(),
            deadlines: Growing::new(),
            vacant: Vec::new(),
            groups: None,
            spare: None,
            len: 0,
            stamp: 0,
            floor: NonZeroU32::MIN,
            highest: NonZeroU32::MIN,
        }
    }

    /// Puts an empty arena without memory in the place of this one, which must be empty, and
    /// returns this one. All keys of this one name nothing in the other. O(1).
    ///
    /// Returns None if a place is past half of its generations, as `shrink_to_fit` would keep it.
    #[cfg(feature = "std")]
    pub(super) fn renew(&mut self) -> Option<Self> {
        debug_assert!(self.is_empty(), "there are no timeouts");
        let floor = self.highest.checked_add(1).filter(|&floor| is_first_half(floor))?;
        let new = Self { stamp: self.stamp, floor, highest: floor, ..Self::new() };
        Some(core::mem::replace(self, new))
    }

    /// Makes room for `additional` timeouts. If memory ends meanwhile, it has made less, or none.
    pub(super) fn try_reserve(&mut self, additional: usize) -> Result<(), TryReserveError> {
        let additional = additional.saturating_sub(self.slots.len() - self.len);
        let (groups, room) =
            (self.slots.len().saturating_add(additional).div_ceil(GROUP), self.slots.room());
        // A box cannot be asked for without a panic, so it is made before memory is short.
        let mut new = (1 < groups && self.groups.is_none()).then(|| Box::new(Groups::of(&[])));
        self.slots.try_reserve(additional)?;
        self.deadlines.try_reserve(additional)?;
        if room < self.slots.room() {
            self.slots.write_room();
            self.deadlines.write_room();
        }
        let Some(known) = self.groups.as_mut().or(new.as_mut()) else {
            return Ok(());
        };
        known.used.try_reserve(groups.div_ceil(GROUP) - known.used.len())?;
        self.vacant.try_reserve(groups - self.vacant.len())?;
        if let Some(mut new) = new {
            self.vacant.resize(self.slots.len().div_ceil(GROUP), 0);
            new.used.extend(self.vacant.chunks(GROUP).map(used));
            new.fresh = self.vacant.len();
            self.groups = Some(new);
        }
        Ok(())
    }

    fn groups_mut(&mut self) -> &mut Groups {
        let Self { slots, vacant, groups, .. } = self;
        groups.get_or_insert_with(|| {
            vacant.resize(slots.len().div_ceil(GROUP), 0);
            Box::new(Groups::of(vacant))
        })
    }

    /// Stores a timeout, and returns its key and its entry.
    #[inline]
    pub(super) fn insert(&mut self, deadline: u64, value: impl FnOnce() -> T) -> (Key, Entry) {
        let stamp = self.stamp.wrapping_add(1);
        self.stamp = stamp;
        self.len += 1;
        let Some(index) = self.spare.take().or_else(|| self.take_vacant()) else {
            let key = self.push(deadline, stamp, value());
            return (key, Entry { index: key.index, stamp, deadline });
        };
        let slot = &mut self.slots[index as usize];
        let Slot::Vacant(generation) = *slot else { unreachable!("a vacant slot is not occupied") };
        if self.highest < generation {
            // Rounded up, so that this is seldom.
            self.highest = generation.saturating_add(GENERATIONS_AT_ONCE);
        }
        *slot = Slot::Occupied(Timeout { generation, stamp, value: value() });
        self.deadlines[index as usize] = deadline;
        (Key { index, generation }, Entry { index, stamp, deadline })
    }

    /// Takes a slot out of the group that is used next.
    #[inline(always)]
    fn take_vacant(&mut self) -> Option<u32> {
        let groups = self.groups.as_mut()?;
        let &group = groups.open.last()?;
        let vacant = &mut self.vacant[group as usize];
        let index = group * GROUP as u32 + vacant.trailing_zeros();
        if *vacant == u64::MAX {
            groups.used[group as usize / GROUP] |= 1 << (group as usize % GROUP);
        }
        *vacant &= vacant.wrapping_sub(1);
        if *vacant == 0 {
            groups.open.pop();
            groups.open_fresh(self.vacant.len());
        }
        Some(index)
    }

    /// Puts a vacant slot into its group.
    #[inline(always)]
    fn put_vacant(&mut self, index: u32) {
        let Some(vacant) = self.vacant.get_mut(index as usize / GROUP) else {
            return self.put_first_vacant(index);
        };
        let before = *vacant;
        *vacant |= 1 << (index as usize % GROUP);
        if before == 0 || *vacant == u64::MAX {
            self.note_vacant(index as usize / GROUP);
        }
    }

    #[cold]
    fn put_first_vacant(&mut self, index: u32) {
        self.groups_mut();
        self.vacant[0] = 1 << index;
        self.note_vacant(0);
    }

    /// Notes that the first slot of a group is vacant, or the last one.
    #[cold]
    fn note_vacant(&mut self, group: usize) {
        let is_unused = self.vacant[group] == u64::MAX;
        let Groups { used, open, .. } = self.groups_mut();
        match is_unused {
            true => used[group / GROUP] &= !(1 << (group % GROUP)),
            false => open.push(group as u32),
        }
    }

    /// Puts the spare slot, if there is one, into its group.
    fn put_spare_back(&mut self) {
        if let Some(spare) = self.spare.take() {
            self.put_vacant(spare);
        }
    }

    /// Stores a timeout in a new slot, because none is vacant.
    #[inline(always)]
    fn push(&mut self, deadline: u64, stamp: u32, value: T) -> Key {
        let (index, generation) = (self.slots.len(), self.floor);
        assert!(index < u32::MAX as usize, "a wheel holds at most 2^32 - 1 timeouts");
        if index % GROUP == 0 {
            self.push_group(index / GROUP);
        }
        self.slots.push(Slot::Occupied(Timeout { generation, stamp, value }));
        self.deadlines.push(deadline);
        Key { index: index as u32, generation }
    }

    /// Adds a group of which all slots will be in use.
    #[cold]
    fn push_group(&mut self, group: usize) {
        if group == 0 && self.groups.is_none() {
            return;
        }
        let Groups { used, fresh, .. } = self.groups_mut();
        *fresh = group + 1;
        if group % GROUP == 0 {
            used.push(0);
        }
        used[group / GROUP] |= 1 << (group % GROUP);
        self.vacant.push(0);
    }

    /// Changes the deadline of the timeout that `key` names, and returns its new entry.
    #[inline]
    pub(super) fn reschedule(&mut self, key: Key, deadline: u64) -> Option<Entry> {
        match self.slots.get_mut(key.index as usize)? {
            Slot::Occupied(timeout) if timeout.generation == key.generation => {
                self.stamp = self.stamp.wrapping_add(1);
                timeout.stamp = self.stamp;
                self.deadlines[key.index as usize] = deadline;
                Some(Entry { index: key.index, stamp: self.stamp, deadline })
            }
            _ => None,
        }
    }

    /// Takes out the timeout that `key` names, and returns its value and the stamp of its entry.
    /// The key names nothing from then on.
    #[inline(always)]
    pub(super) fn remove<R>(&mut self, key: Key, into: impl FnOnce(T) -> R) -> Option<(R, u32)> {
        let is_it = |timeout: &Timeout<T>| timeout.generation == key.generation;
        self.vacate(key.index, is_it, |Timeout { stamp, value, .. }| (into(value), stamp))
    }

    /// Returns whether `stamp` was the last that was given out.
    #[inline]
    pub(super) fn is_latest(&self, stamp: u32) -> bool {
        self.stamp == stamp
    }

    /// Returns the stamp of the timeout that `key` names.
    pub(super) fn stamp_of(&self, key: Key) -> Option<u32> {
        match self.slots.get(key.index as usize)? {
            Slot::Occupied(timeout) if timeout.generation == key.generation => Some(timeout.stamp),
            _ => None,
        }
    }

    /// Takes out the timeout that `entry` stands for, unless the entry is stale.
    #[inline]
    pub(super) fn take(&mut self, entry: Entry) -> Option<(Key, T)> {
        let is_it = |timeout: &Timeout<T>| timeout.stamp == entry.stamp;
        self.vacate(entry.index, is_it, |Timeout { generation, value, .. }| {
            (Key { index: entry.index, generation }, value)
        })
    }

    /// Takes out the timeout at `index`, if there is one and `is_it` says that it is the right one.
    #[inline(always)]
    fn vacate<R>(
        &mut self,
        index: u32,
        is_it: impl Fn(&Timeout<T>) -> bool,
        into: impl FnOnce(Timeout<T>) -> R,
    ) -> Option<R> {
        let slot = self.slots.get_mut(index as usize)?;
        let next = match slot {
            Slot::Occupied(timeout) if is_it(timeout) => timeout.generation.checked_add(1),
            _ => return None,
        };
        let vacant = Slot::Vacant(next.unwrap_or(NonZeroU32::MIN));
        let Slot::Occupied(timeout) = core::mem::replace(slot, vacant) else { return None };
        let taken = into(timeout);
        let vacant = self.vacant.get(index as usize / GROUP);
        if vacant.is_none_or(|&vacant| vacant == 0) && self.spare.is_none() {
            self.spare = Some(index);
        } else {
            self.put_vacant(index);
        }
        self.len -= 1;
        if self.len == 0 {
            self.begin_again();
        }
        Some(taken)
    }

    /// Makes `insert` fill the slots in the order of memory, because all of them are vacant.
    #[cold]
    fn begin_again(&mut self) {
        if self.groups.is_some() {
            self.put_spare_back();
        }
        if let Some(groups) = &mut self.groups {
            groups.open.clear();
            groups.fresh = 0;
            groups.open_fresh(self.vacant.len());
        }
    }

    /// Returns the value that `key` names.
    #[inline]
    pub(super) fn get(&self, key: Key) -> Option<&T> {
        match self.slots.get(key.index as usize)? {
            Slot::Occupied(timeout) if timeout.generation == key.generation => Some(&timeout.value),
            _ => None,
        }
    }

    /// Returns the timeout at `index`.
    #[inline]
    pub(super) fn at(&self, index: u32) -> Option<(Key, &T)> {
        match self.slots.get(index as usize)? {
            Slot::Occupied(Timeout { generation, value, .. }) => {
                Some((Key { index, generation: *generation }, value))
            }
            Slot::Vacant(_) => None,
        }
    }

    /// Returns the value that `key` names.
    #[inline]
    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        match self.slots.get_mut(key.index as usize)? {
            Slot::Occupied(timeout) if timeout.generation == key.generation => {
                Some(&mut timeout.value)
            }
            _ => None,
        }
    }

    /// Returns whether the timeout that `entry` stands for is gone, or was moved to a newer entry.
    #[inline]
    pub(super) fn is_stale(&self, entry: Entry) -> bool {
        match self.slots.get(entry.index as usize) {
            Some(Slot::Occupied(timeout)) => timeout.stamp != entry.stamp,
            _ => true,
        }
    }

    /// Returns the deadline of the timeout at `index`, which must be live.
    #[inline]
    pub(super) fn deadline_at(&self, index: u32) -> u64 {
        self.deadlines[index as usize]
    }

    /// Reads the slots of some entries at once, so that the processor waits for them together and
    /// not for one after the other.
    #[inline(never)]
    pub(super) fn prefetch(&self, entries: &[Entry]) {
        let slots = self.slots.first();
        let touch = |sum, entry: &Entry| match slots.get(entry.index as usize) {
            Some(Slot::Occupied(timeout)) => sum ^ timeout.stamp,
            _ => sum,
        };
        core::hint::black_box(entries.iter().fold(0, touch));
    }

    /// Returns the first live timeout at or after index `from`, as key, deadline and value.
    pub(super) fn next_live(&self, from: u32) -> Option<(Key, u64, &T)> {
        let used = self.groups.as_ref().map_or(&[][..], |groups| &groups.used);
        let index = next_live(&self.vacant, used, self.spare, from)?;
        match self.slots.get(index as usize)? {
            Slot::Occupied(Timeout { generation, value, .. }) => {
                let key = Key { index, generation: *generation };
                Some((key, self.deadline_at(index), value))
            }
            Slot::Vacant(_) => None,
        }
    }

    /// Returns an iterator over the live timeouts, as key, deadline and value.
    pub(super) fn iter_mut(&mut self) -> LiveMut<'_, T> {
        let Self { slots, deadlines, vacant, groups, spare, .. } = self;
        let used = groups.as_ref().map_or(&[][..], |groups| &groups.used);
        LiveMut { slots: slots.iter_mut(), deadlines, vacant, used, spare: *spare, index: 0 }
    }

    /// Makes a new place begin past half of its generations.
    #[cfg(all(test, feature = "std"))]
    pub(super) fn use_up_generations(&mut self) {
        self.floor = NonZeroU32::MAX;
        self.highest = self.floor;
    }

    /// Makes the stamps go on from `stamp`.
    #[cfg(test)]
    pub(super) fn set_stamp(&mut self, stamp: u32) {
        self.stamp = stamp;
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The places there are: as many as the most timeouts that were live since the last
    /// `shrink_to_fit`, or fewer.
    pub(super) fn places(&self) -> usize {
        self.slots.len()
    }

    /// Returns for how many timeouts there is room without allocating.
    pub(super) fn room(&self) -> usize {
        self.slots.room()
    }

    /// Frees a piece of an arena that is no longer needed, and returns whether there is more.
    #[cfg(feature = "std")]
    pub(super) fn free_some(&mut self) -> bool {
        self.slots.free_some() || self.deadlines.free_some()
    }

    /// Gives back the vacant slots at the end.
    ///
    /// A slot past half of its generations is kept: what would follow it starts above `floor`, and
    /// every place must have 2^31 generations of its own before it.
    pub(super) fn shrink_to_fit(&mut self) {
        self.put_spare_back();
        let mut slots = self.slots.len();
        for slot in self.slots.iter().rev() {
            steps::count(1);
            match slot {
                Slot::Vacant(generation) if is_first_half(*generation) => {
                    self.floor = self.floor.max(*generation);
                    slots -= 1;
                }
                _ => break,
            }
        }
        self.slots.shrink_to(slots);
        self.deadlines.shrink_to(slots);
        self.vacant.truncate(slots.div_ceil(GROUP));
        if let (Some(last), 1..) = (self.vacant.last_mut(), slots % GROUP) {
            *last &= (1 << (slots % GROUP)) - 1;
        }
        if matches!(self.vacant[..], [] | [0]) {
            // All slots are in use.
            (self.vacant, self.groups) = (Vec::new(), None);
        }
        self.vacant.shrink_to_fit();
        let vacant = &self.vacant;
        if let Some(groups) = &mut self.groups {
            let is_open = |&group: &u32| vacant.get(group as usize).is_some_and(|&bits| bits != 0);
            groups.used = vacant.chunks(GROUP).map(used).collect();
            groups.open.retain(is_open);
            groups.open.shrink_to_fit();
            groups.fresh = groups.fresh.min(vacant.len());
            groups.open_fresh(vacant.len());
        }
        self.highest = self.highest.max(self.floor);
    }

    /// Bytes allocated.
    pub(super) fn memory(&self) -> usize {
        let groups = self.groups.as_ref().map_or(0, |groups| {
            size_of::<Groups>()
                + groups.used.capacity() * size_of::<u64>()
                + groups.open.capacity() * size_of::<u32>()
        });
        self.slots.memory()
            + self.deadlines.memory()
            + self.vacant.capacity() * size_of::<u64>()
            + groups
    }

    /// Panics unless what is vacant is known.
    pub(super) fn check(&self) {
        let (mut live, mut open, mut vacant) = (0, Vec::new(), self.vacant.clone());
        if self.groups.is_none() {
            assert!(vacant.is_empty() && self.slots.len() <= GROUP, "several groups are known");
            vacant.resize(self.slots.len().div_ceil(GROUP), 0);
        }
        let all_in_use = Groups::of(&vacant);
        let groups = self.groups.as_deref().unwrap_or(&all_in_use);
        for (index, slot) in self.slots.iter().enumerate() {
            let is_vacant = matches!(slot, Slot::Vacant(_));
            live += usize::from(!is_vacant);
            let is_listed = vacant[index / GROUP] >> (index % GROUP) & 1 == 1;
            let is_spare = self.spare == Some(index as u32);
            assert!(!is_listed || !is_spare, "a vacant slot is known once");
            assert_eq!(is_listed || is_spare, is_vacant, "the vacant slots are known");
            let group = (index / GROUP) as u32;
            if is_listed && group < groups.fresh as u32 && open.last() != Some(&group) {
                open.push(group);
            }
            assert!(is_listed || group < groups.fresh as u32, "no slot of a fresh group is in use");
            if let Slot::Occupied(Timeout { generation, .. }) = slot {
                assert!(*generation <= self.highest, "the highest generation is known");
            }
        }
        assert_eq!(self.len, live, "the count of timeouts is right");
        assert_eq!(groups.used, all_in_use.used, "the groups in use are known");
        let mut known = groups.open.clone();
        known.sort_unstable();
        assert_eq!(known, open, "the groups with a vacant slot are known");
        let is_open = !open.is_empty() || groups.fresh == vacant.len();
        assert!(is_open, "if there is a vacant group, one is open");
    }
}

impl Groups {
    /// What is known of groups of which each has a slot in use, and no other is vacant.
    fn of(vacant: &[u64]) -> Self {
        let used = vacant.chunks(GROUP).map(used).collect();
        Self { used, open: Vec::new(), fresh: vacant.len() }
    }

    /// Opens the first of `groups` groups that was not used since the arena was last empty, unless
    /// one is open.
    fn open_fresh(&mut self, groups: usize) {
        if self.open.is_empty() && self.fresh < groups {
            self.open.push(self.fresh as u32);
            self.fresh += 1;
        }
    }
}

/// Returns whether at least half of all generations are later.
fn is_first_half(generation: NonZeroU32) -> bool {
    generation.get() <= u32::MAX / 2
}

/// Iterates over the live timeouts, as key, deadline and value, to change the values.
pub(super) struct LiveMut<'a, T> {
    /// The slots from `index` on.
    slots: growing::IterMut<'a, Slot<T>>,
    deadlines: &'a Growing<u64>,
    vacant: &'a [u64],
    used: &'a [u64],
    spare: Option<u32>,
    /// The first index not yet looked at.
    index: u32,
}

impl<'a, T> Iterator for LiveMut<'a, T> {
    type Item = (Key, u64, &'a mut T);

    fn next(&mut self) -> Option<Self::Item> {
        let index = next_live(self.vacant, self.used, self.spare, self.index)?;
        let slot = self.slots.nth((index - self.index) as usize)?;
        self.index = index.saturating_add(1);
        match slot {
            Slot::Occupied(Timeout { generation, value, .. }) => {
                let key = Key { index, generation: *generation };
                Some((key, self.deadlines[index as usize], value))
            }
            Slot::Vacant(_) => None,
        }
    }
}

/// Returns the first index from `from` on of a slot that is not vacant. Looks at each group that is
/// not vacant as a whole, and at one word for each 64 groups.
fn next_live(vacant: &[u64], used: &[u64], spare: Option<u32>, from: u32) -> Option<u32> {
    let mut group = from as usize / GROUP;
    let mut skipped = (1 << (from as usize % GROUP)) - 1;
    loop {
        steps::count(1);
        // Where nothing is noted of the first group, all of it is in use.
        let vacant = vacant.get(group).or_else(|| (group == 0).then_some(&0))?;
        let mut live = !vacant & !core::mem::take(&mut skipped);
        if let Some(spare) = spare.filter(|&spare| spare as usize / GROUP == group) {
            live &= !(1 << (spare as usize % GROUP));
        }
        if live != 0 {
            return Some((group * GROUP) as u32 + live.trailing_zeros());
        }
        group = next_used(used, group + 1)?;
    }
}

/// Returns the first group from `from` on that is not vacant as a whole.
fn next_used(used: &[u64], from: usize) -> Option<usize> {
    let mut mask = u64::MAX << (from % GROUP);
    for (at, used) in used.iter().enumerate().skip(from / GROUP) {
        steps::count(1);
        let used = used & core::mem::replace(&mut mask, u64::MAX);
        if used != 0 {
            return Some(at * GROUP + used.trailing_zeros() as usize);
        }
    }
    None
}

/// Returns the bits of groups in use. The lowest bit is that of the first group.
fn used(vacant: &[u64]) -> u64 {
    vacant.iter().rev().fold(0, |bits, &vacant| bits << 1 | u64::from(vacant != u64::MAX))
}

/// Slots whose vacancies share one word.
const GROUP: usize = u64::BITS as usize;
/// Generations that are noted at once.
const GENERATIONS_AT_ONCE: u32 = 16;

#[cfg(test)]
mod tests {
    use super::{Arena, Entry, GROUP, Key, Slot};
    use alloc::vec::Vec;
    use core::num::NonZeroU32;

    #[test]
    #[cfg(feature = "std")]
    fn a_key_of_any_generation_is_the_same_as_a_number() {
        for generation in [1, 2, 3, u32::MAX] {
            let generation = NonZeroU32::new(generation).expect("it is not 0");
            for index in [0, 1, 7, u32::MAX] {
                let key = Key { index, generation };
                assert_eq!(Key::from_bits(key.to_bits()), key);
            }
        }
    }

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
        let (last, _) = arena.insert(0, || ());
        arena.remove(last, drop);
        let (first, _) = arena.insert(0, || ());
        assert_eq!((last.generation, first.generation), (NonZeroU32::MAX, NonZeroU32::MIN));
        assert!(arena.get(last).is_none());
        assert!(arena.get(first).is_some());
    }

    #[test]
    fn stamps_come_round_and_differ_from_those_before() {
        let mut arena = Arena::new();
        arena.stamp = u32::MAX - 2;
        let mut stamps = Vec::new();
        let (key, entry) = arena.insert(0, || ());
        stamps.push(entry.stamp);
        let entry = |stamp| Entry { stamp, ..entry };
        for _ in 0..4 {
            let entries: Vec<_> = stamps.iter().map(|&stamp| entry(stamp)).collect();
            let (last, stale) = entries.split_last().expect("there is one");
            assert!(!arena.is_stale(*last));
            assert!(stale.iter().all(|&entry| arena.is_stale(entry)));
            stamps.extend(arena.reschedule(key, 0).map(|entry| entry.stamp));
        }
        assert_eq!(stamps, [u32::MAX - 1, u32::MAX, 0, 1, 2]);
        assert!(arena.take(entry(1)).is_none(), "a stale one takes nothing");
        assert_eq!(arena.take(entry(2)), Some((key, ())));
    }

    #[test]
    fn what_is_vacated_while_its_group_is_in_use_is_used_next_and_listed_once() {
        let mut arena = Arena::new();
        let keys: Vec<_> = (0..200).map(|_| arena.insert(0, || ()).0).collect();
        for at in [130, 7, 199, 7] {
            let (key, _) = arena.insert(0, || ());
            for key in [keys[at], key] {
                arena.remove(key, drop);
                arena.check();
            }
            let live = |from| arena.next_live(from).map(|(key, ..)| key.index);
            assert!((0..200).filter_map(live).all(|index| arena.deadline_at(index) == 0));
            assert_ne!(live(at as u32), Some(at as u32), "it is not live");
        }
        assert_eq!(arena.len(), 197);
        arena.shrink_to_fit();
        arena.check();
        let again: Vec<_> = (0..3).map(|_| arena.insert(0, || ()).0.index).collect();
        assert!([130, 7, 199].iter().all(|index| again.contains(index)), "{again:?}");
        arena.check();
    }

    #[test]
    fn emptied_it_is_filled_in_the_order_of_memory() {
        let mut arena = Arena::new();
        for turn in 0..3 {
            let mut keys: Vec<_> = (0..1000).map(|_| arena.insert(0, || ()).0).collect();
            assert!(keys.iter().map(|key| key.index).eq(0..1000));
            // Whatever the order in which they go.
            keys.sort_by_key(|key| (key.index + 7).wrapping_mul(2_654_435_769 >> turn));
            for key in keys {
                arena.remove(key, drop);
            }
            arena.check();
        }
    }

    #[cfg(feature = "std")]
    #[test]
    fn renewed_it_holds_nothing_and_no_old_key_names_what_comes() {
        let mut arena = Arena::new();
        let mut stale = Vec::new();
        for turn in 0..100 {
            for used in [1 + turn % 3, 200] {
                let keys: Vec<_> = (0..used).map(|at| arena.insert(at, || ()).0).collect();
                assert!(stale.iter().all(|&key| arena.get(key).is_none()), "each key is new");
                keys.iter().for_each(|&key| _ = arena.remove(key, drop));
                stale.extend(keys);
            }
            let old = arena.renew().expect("few generations were used");
            assert_eq!((arena.memory(), old.places()), (0, 200));
            arena.check();
        }
    }

    #[cfg(feature = "std")]
    #[test]
    fn past_half_of_the_generations_it_is_not_renewed() {
        let mut arena = Arena::new();
        for (floor, is_renewed) in [(u32::MAX / 2 - 20, true), (u32::MAX / 2, false)] {
            arena.floor = NonZeroU32::new(floor).expect("not zero");
            arena.highest = arena.floor;
            let (key, _) = arena.insert(0, || ());
            arena.remove(key, drop);
            assert_eq!(arena.renew().is_some(), is_renewed);
        }
        assert!(arena.insert(0, || ()).0.generation.get() > u32::MAX / 2);
    }

    #[test]
    fn room_made_is_room_for_all_that_is_known_of_a_slot() {
        for (live, more) in [(0, 1000), (500, 1000), (0, 2 * GROUP), (0, GROUP)] {
            let mut arena = Arena::new();
            (0..live).for_each(|_| _ = arena.insert(0, || ()));
            arena.try_reserve(more).expect("there is so much memory");
            let memory = arena.memory();
            (0..more).for_each(|_| _ = arena.insert(0, || ()));
            assert_eq!(arena.memory(), memory, "{more} beside {live}");
            assert_eq!(arena.groups.is_some(), GROUP < live + more, "one group needs none");
        }
    }

    /// Steps are counted with debug assertions only.
    #[test]
    #[cfg(all(debug_assertions, feature = "std"))]
    fn room_that_is_there_is_made_without_a_step() {
        let mut arena = Arena::new();
        let insert = |arena: &mut Arena<u64>| {
            let before = crate::steps::steps();
            arena.insert(0, || 0);
            crate::steps::steps() - before
        };
        // Until the slots move to a larger array.
        while insert(&mut arena) == 0 {}
        let before = crate::steps::steps();
        arena.try_reserve(1).expect("there is room");
        assert_eq!(crate::steps::steps() - before, 0);
        assert_ne!(insert(&mut arena), 0, "they move still");
    }

    #[test]
    fn a_slot_is_spare_only_if_the_others_of_its_group_are_in_use() {
        let mut arena = Arena::new();
        let keys: Vec<_> = (0..200).map(|_| arena.insert(0, || ()).0).collect();
        let mut remove = |at: usize| {
            arena.remove(keys[at], drop);
            let spare = arena.spare;
            arena.check();
            spare
        };
        assert_eq!([70, 71].map(&mut remove), [Some(70); 2], "there is one at most");
        assert_eq!(arena.insert(0, || ()).0.index, 70);
        arena.remove(keys[72], drop);
        assert_eq!(arena.spare, None);
        assert_eq!(arena.insert(0, || ()).0.index, 71, "in the order of memory");
    }

    #[test]
    fn a_place_given_back_starts_above_all_that_were_there() {
        let mut arena = Arena::new();
        let stale = [(); 3].map(|()| arena.insert(0, || ()).0);
        for key in stale {
            arena.remove(key, drop);
        }
        arena.shrink_to_fit();
        assert_eq!(arena.memory(), 0);
        for _ in 0..3 {
            arena.insert(0, || ());
        }
        assert!(stale.iter().all(|&key| arena.get(key).is_none()));
        arena.check();
    }

    #[test]
    fn a_place_past_half_of_its_generations_is_not_given_back() {
        let mut arena = Arena::new();
        arena.floor = NonZeroU32::new(u32::MAX / 2).expect("not zero");
        let (key, _) = arena.insert(0, || ());
        arena.remove(key, drop);
        arena.shrink_to_fit();
        assert_eq!(arena.slots.len(), 1);
        assert!(arena.insert(0, || ()).0.generation > key.generation);
        arena.check();
    }
}
