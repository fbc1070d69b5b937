//! Where rows are in the table.

use std::collections::HashMap;

/// Where rows were in the table when they were read, by their numbers: an ack finds a row there
/// without a search. What is not there any more is looked for by its name, so a place may be wrong
/// or forgotten.
#[derive(Default)]
pub(super) struct Places {
    new: HashMap<u64, Box<str>>,
    old: HashMap<u64, Box<str>>,
}

impl Places {
    pub(super) fn insert(&mut self, number: u64, place: &str) {
        if MOST <= self.new.len() {
            self.old = std::mem::take(&mut self.new);
        }
        self.new.insert(number, place.into());
    }

    pub(super) fn take(&mut self, number: u64) -> Option<Box<str>> {
        self.new.remove(&number).or_else(|| self.old.remove(&number))
    }
}

/// After so many the oldest are forgotten.
const MOST: usize = 100_000;
