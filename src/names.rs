//! Names: finds the timeouts of a map by the hashes of their keys, and grows a little at a time.

use crate::steps;
use crate::wheel::{Growing, Key};
use alloc::collections::TryReserveError;
use core::mem::take;
use hashbrown::HashTable;

/// A hash table in which no insertion moves more than a few keys.
///
/// It is many small tables. If there are too few of them for an insertion, one is split in two, and
/// each in its turn: the linear hashing of W. Litwin (1980). So no table of all keys is ever made
/// anew, nor cleared.
#[derive(Debug)]
pub(crate) struct Names {
    tables: Growing<HashTable<Key>>,
    /// The number of keys.
    len: usize,
}

impl Names {
    /// Allocates nothing.
    pub(crate) const fn new() -> Self {
        Self { tables: Growing::new(), len: 0 }
    }

    /// Puts a key in. `hash_of` returns the hash that a key was put in with.
    pub(crate) fn insert(&mut self, hash: u64, key: Key, hash_of: impl Fn(&Key) -> u64) {
        if PER_TABLE * self.tables.len() <= self.len {
            self.split(&hash_of);
        }
        let at = self.table_of(hash);
        self.tables[at].insert_unique(hash, key, hash_of);
        self.len += 1;
    }

    /// Splits the table whose turn it is.
    fn split(&mut self, hash_of: impl Fn(&Key) -> u64) {
        let new = self.tables.len();
        self.tables.push(HashTable::new());
        let old = new - (new + 1).next_power_of_two() / 2;
        let keys = take(&mut self.tables[old]);
        steps::count(keys.len());
        for at in [old, new] {
            self.tables[at].reserve(keys.len() * 5 / 8, &hash_of);
        }
        for key in keys {
            let hash = hash_of(&key);
            let at = self.table_of(hash);
            self.tables[at].insert_unique(hash, key, &hash_of);
        }
    }

    /// Takes out the key of that hash that `is_it` says is the right one.
    pub(crate) fn remove(&mut self, hash: u64, is_it: impl FnMut(&Key) -> bool) -> Option<Key> {
        let at = self.table_of(hash);
        let found = self.tables.get_mut(at)?.find_entry(hash, is_it).ok()?;
        self.len -= 1;
        Some(found.remove().0)
    }

    /// Takes all keys out, and keeps the memory. Looks at each table.
    pub(crate) fn clear(&mut self) {
        steps::count(self.len + self.tables.len());
        self.tables.iter_mut().for_each(HashTable::clear);
        self.len = 0;
    }

    /// Makes room for the tables of `additional` keys, if there is enough memory. Makes no table:
    /// that is for `insert`.
    pub(crate) fn try_reserve(&mut self, additional: usize) -> Result<(), TryReserveError> {
        let tables = self.len.saturating_add(additional).div_ceil(PER_TABLE);
        self.tables.try_reserve(tables.saturating_sub(self.tables.len()))
    }

    /// Gives back the memory that the keys do not need.
    pub(crate) fn shrink_to_fit(&mut self, hash_of: impl Fn(&Key) -> u64) {
        let all = core::mem::replace(self, Self::new());
        for &key in all.tables.iter().flatten() {
            steps::count(1);
            self.insert(hash_of(&key), key, &hash_of);
        }
        self.tables.iter_mut().for_each(|table| table.shrink_to_fit(&hash_of));
        self.tables.shrink_to(self.tables.len());
    }

    /// Returns the key of that hash that `is_it` says is the right one.
    pub(crate) fn find(&self, hash: u64, is_it: impl FnMut(&Key) -> bool) -> Option<Key> {
        self.tables.get(self.table_of(hash))?.find(hash, is_it).copied()
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the number of tables.
    pub(crate) fn tables(&self) -> usize {
        self.tables.len()
    }

    /// Returns the bytes that are allocated.
    pub(crate) fn memory(&self) -> usize {
        let tables = self.tables.iter().map(HashTable::allocation_size);
        tables.sum::<usize>() + self.tables.memory()
    }

    /// Returns the place of the table that holds the keys of that hash.
    #[inline]
    fn table_of(&self, hash: u64) -> usize {
        // Mixed, because a hash may be the key itself, and its other bits choose within the table.
        let mixed = (hash.wrapping_mul(ODD) >> 32) as usize;
        let tables = self.tables.len();
        let most = tables.next_power_of_two();
        let at = mixed & (most - 1);
        // The table that was not split yet.
        if at < tables { at } else { at - most / 2 }
    }
}

/// The keys for each table, on average. A table about to be split has twice as many.
const PER_TABLE: usize = 32;

/// 2^64 divided by the golden ratio: its products are spread evenly.
pub(crate) const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
