//! A key or a value that panics when it is dropped.

use std::borrow::Borrow;
use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::rc::Rc;

/// Counts what is dropped, and panics then if it is told to.
#[derive(Debug)]
pub(crate) struct Bomb(pub(crate) u32, pub(crate) Rc<Cell<u32>>, pub(crate) bool);

impl PartialEq for Bomb {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Bomb {}

impl Hash for Bomb {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl Drop for Bomb {
    fn drop(&mut self) {
        self.1.set(self.1.get() + 1);
        assert!(!self.2 || std::thread::panicking(), "as it should");
    }
}

impl Borrow<u32> for Bomb {
    fn borrow(&self) -> &u32 {
        &self.0
    }
}
