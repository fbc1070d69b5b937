//! Threads that end.

use std::any::Any;
use std::cell::RefCell;

thread_local! {
    static KEPT: RefCell<Vec<Box<dyn Any>>> = const { RefCell::new(Vec::new()) };
}

/// Keeps a value until this thread ends: it is dropped among the thread-local values.
pub(crate) fn drop_at_end(value: impl Any) {
    KEPT.with_borrow_mut(|kept| kept.push(Box::new(value)));
}
