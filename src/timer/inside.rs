//! Which tasks a thread is inside of, and for which timers it may wait.

use crate::sync::thread_local;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::mem::{ManuallyDrop, forget};
use smallvec::SmallVec;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// While it lives, this thread is inside a task of a timer.
pub(super) struct Inside(());

/// Enters a task of the timer `id`.
pub(super) fn enter(id: u64) -> Inside {
    INSIDE.with(|stack| stack.timers.borrow_mut().push(id));
    Inside(())
}

/// Says that this thread is the worker of the timer `id`. It stays so until the thread has ended,
/// destructors of thread-local values included.
pub(super) fn is_worker_of(id: u64) {
    INSIDE.with(|stack| stack.is_worker.set(true));
    forget(enter(id));
}

/// Returns whether this thread is inside a task of any timer, or is the worker of one.
pub(super) fn is_inside() -> bool {
    INSIDE.with(|stack| !stack.timers.borrow().is_empty())
}

/// While it lives, this thread waits for the worker of a timer.
pub(super) struct Waits {
    inside: SmallVec<[u64; 4]>,
    id: u64,
}

/// Returns a permit to wait for the worker of the timer `id`, or None if that could be for ever:
///
/// - This thread is inside a task of that timer, or is its worker.
/// - It is inside a task that runs on an executor, and the timer has an executor too: the worker
///   may wait for room there that this very task takes up.
/// - It is inside a task of another timer, and a task of the timer `id` waits for that timer, or
///   for one whose task waits for it, and so on.
pub(super) fn may_wait(id: u64, has_executor: bool) -> Option<Waits> {
    INSIDE.with(|stack| {
        let inside = stack.timers.borrow();
        if inside.is_empty() {
            return Some(Waits { inside: SmallVec::new(), id });
        }
        if has_executor && !stack.is_worker.get() {
            return None;
        }
        let mut waiting = waiting();
        let mut blockers = alloc::vec![id];
        let mut looked_at = 0;
        while let Some(&blocker) = blockers.get(looked_at) {
            if inside.contains(&blocker) {
                return None;
            }
            for &(task_of, waits_for) in &*waiting {
                if task_of == blocker && !blockers.contains(&waits_for) {
                    blockers.push(waits_for);
                }
            }
            looked_at += 1;
        }
        waiting.extend(inside.iter().map(|&task_of| (task_of, id)));
        Some(Waits { inside: inside.clone(), id })
    })
}

impl Drop for Waits {
    fn drop(&mut self) {
        for &task_of in &self.inside {
            let mut waiting = waiting();
            if let Some(index) = waiting.iter().position(|&pair| pair == (task_of, self.id)) {
                waiting.swap_remove(index);
            }
        }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.with(|stack| {
            let mut timers = stack.timers.borrow_mut();
            timers.pop();
            if timers.spilled() {
                timers.shrink_to_fit();
            }
        });
    }
}

/// The timers inside of whose tasks a thread is, the innermost last.
#[derive(Default)]
struct Stack {
    timers: RefCell<SmallVec<[u64; 4]>>,
    /// This thread is a worker, of the outermost of them.
    is_worker: Cell<bool>,
}

thread_local! {
    // Never dropped, so that it is there for destructors of other thread-local values. It owns
    // memory only while the thread is inside five tasks at once.
    static INSIDE: ManuallyDrop<Stack> = ManuallyDrop::default();
}

/// Pairs of timers: a task of the first waits for the worker of the second.
///
/// Std's lock in loom's models too: no thread switches while it is held, so nothing waits for it.
static WAITING: Mutex<Vec<(u64, u64)>> = Mutex::new(Vec::new());

fn waiting() -> MutexGuard<'static, Vec<(u64, u64)>> {
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}
