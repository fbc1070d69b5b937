//! Which tasks a thread is inside of, and for which timers it may wait.
//!
//! # Nobody waits for ever
//!
//! [`may_wait`] answers for each call that waits for the worker or the executor of a timer: `stop`,
//! `cancel_and_wait`, and the drop of the last clone. A thread *stands in the way* of a timer while
//! it is inside a task of that timer, or drops one that `stop` returned, and from the first task
//! that it ran for that timer's executor on: other tasks may be queued for this very thread. The
//! answer is no in three cases:
//!
//! - The thread stands in the way of the timer, or of one whose threads wait for it, or of one
//!   whose threads wait for that one, and so on. The list of who waits for whom is `WAITING`.
//! - The timer has an executor, and the thread stands in the way of any timer: two executors may
//!   share threads, and the executor of one timer may schedule on another.
//! - The thread drops what a cancelled task captured: another thread may wait for that drop. Or it
//!   holds the lock of a map that threads share, for which a worker or a task may wait.
//!
//! For a value of a queue, a map or a channel a thread waits for the worker alone, with
//! [`may_wait_for_worker`]: only a thread that is inside a turn of that worker stands in its way. A
//! thread that drops what a cancelled task captured stands in the way of that task's timer. So the
//! list has two names for each timer: its number, and with `TURN` its worker alone.

use super::park::Park;
use crate::sync::thread_local;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::mem::ManuallyDrop;
use crossbeam_utils::CachePadded;
use smallvec::SmallVec;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// While it lives, this thread is inside a task of a timer.
pub(super) struct Inside(());

/// Enters a task of the timer `id`.
pub(super) fn enter(id: u64) -> Inside {
    INSIDE.with(|timers| timers.borrow_mut().push(id));
    Inside(())
}

/// Enters a turn of the worker of the timer `id`.
pub(super) fn enter_turn(id: u64) -> Inside {
    enter(id | TURN)
}

/// Says that this thread runs tasks for the executor of the timer `id`, whose park is `park`. It
/// stays so until the thread has ended, or the timer and its handles are gone.
pub(super) fn serves(id: u64, park: &Arc<CachePadded<Park>>) {
    // A thread that is ending runs no other tasks.
    let _ = SERVED.try_with(|Served(served)| {
        let mut served = served.borrow_mut();
        let mut is_known = false;
        served.retain(|(other, park)| {
            is_known |= *other == id;
            park.strong_count() > 0
        });
        if !is_known {
            served.push((id, Arc::downgrade(park)));
        }
    });
}

/// While it lives, this thread drops what a cancelled task captured.
pub(crate) struct Drops {
    /// What `DROPS` was before.
    outer: u64,
}

/// Says that this thread is about to drop what a cancelled task of the timer `id` captured.
#[inline]
pub(super) fn drops(id: u64) -> Drops {
    let inner = |outer| if outer == NONE { id } else { drops_inside(outer, id) };
    Drops { outer: DROPS.with(|drops| drops.replace(inner(drops.get()))) }
}

#[cold]
fn drops_inside(outer: u64, id: u64) -> u64 {
    if outer == id { id } else { SEVERAL }
}

/// Says that this thread runs what must not wait for any timer.
#[inline]
pub(crate) fn waits_for_none() -> Drops {
    drops(SEVERAL)
}

/// Returns whether this thread is inside a task of any timer, is the worker of one, or drops what a
/// cancelled task captured.
pub(super) fn is_inside() -> bool {
    is_dropping() || INSIDE.with(|timers| !timers.borrow().is_empty())
}

/// While it lives, this thread waits for the worker of a timer.
pub(crate) struct Waits {
    in_the_way_of: Blocked,
    id: u64,
}

/// Timers, and with `TURN` workers, in whose way a thread stands.
type Blocked = SmallVec<[u64; 4]>;

/// Returns a permit to wait for the timer `id`, or None if that could be for ever: see the
/// [module](self).
pub(super) fn may_wait(id: u64, has_executor: bool) -> Option<Waits> {
    if is_dropping() {
        return None;
    }
    let in_the_way_of = in_the_way_of();
    if has_executor && !in_the_way_of.is_empty() {
        return None;
    }
    permit(in_the_way_of, id)
}

/// Returns a permit to wait until the worker of the timer `id` has fired something, or None if that
/// could be for ever. Tasks on an executor do not hold up the worker.
pub(super) fn may_wait_for_worker(id: u64) -> Option<Waits> {
    let mut in_the_way_of = in_the_way_of();
    match dropping() {
        NONE => {}
        SEVERAL => return None,
        timer => in_the_way_of.push(timer),
    }
    permit(in_the_way_of, id | TURN)
}

/// Returns what this thread is in the way of, but for what it drops.
fn in_the_way_of() -> Blocked {
    let mut in_the_way_of = Blocked::new();
    INSIDE.with(|timers| {
        for &timer in &*timers.borrow() {
            in_the_way_of.push(timer & !TURN);
            if timer & TURN > 0 {
                in_the_way_of.push(timer);
            }
        }
    });
    let _ = SERVED.try_with(|served| in_the_way_of.extend(served.alive()));
    in_the_way_of
}

impl Served {
    fn alive(&self) -> Blocked {
        let served = self.0.borrow();
        let alive = served.iter().filter(|(_, park)| park.strong_count() > 0);
        alive.map(|&(timer, _)| timer).collect()
    }
}

/// From then on the thread, which ends, is inside of tasks of these timers: destructors of other
/// thread-local values may have the tasks that wait for it.
impl Drop for Served {
    fn drop(&mut self) {
        let _ = INSIDE.try_with(|timers| timers.borrow_mut().insert_many(0, self.alive()));
    }
}

/// Notes that a thread that is in the way of these waits for `id`, unless that waits for one of
/// them. Each is a timer or, with `TURN`, a worker.
fn permit(in_the_way_of: Blocked, id: u64) -> Option<Waits> {
    if in_the_way_of.is_empty() {
        return Some(Waits { in_the_way_of, id });
    }
    let mut waiting = waiting();
    let mut blockers = alloc::vec![id];
    let mut looked_at = 0;
    while let Some(&blocker) = blockers.get(looked_at) {
        if in_the_way_of.contains(&blocker) {
            return None;
        }
        for &(in_the_way_of, waits_for) in &*waiting {
            if in_the_way_of == blocker && !blockers.contains(&waits_for) {
                blockers.push(waits_for);
            }
        }
        looked_at += 1;
    }
    waiting.extend(in_the_way_of.iter().map(|&timer| (timer, id)));
    drop(waiting);
    Some(Waits { in_the_way_of, id })
}

impl Drop for Waits {
    fn drop(&mut self) {
        for &timer in &self.in_the_way_of {
            let mut waiting = waiting();
            if let Some(index) = waiting.iter().position(|&pair| pair == (timer, self.id)) {
                waiting.swap_remove(index);
            }
        }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.with(|timers| {
            let mut timers = timers.borrow_mut();
            timers.pop();
            if timers.spilled() {
                timers.shrink_to_fit();
            }
        });
    }
}

impl Drop for Drops {
    #[inline]
    fn drop(&mut self) {
        DROPS.with(|drops| drops.set(self.outer));
    }
}

fn is_dropping() -> bool {
    dropping() != NONE
}

fn dropping() -> u64 {
    DROPS.with(Cell::get)
}

/// The timers for whose executors a thread has run tasks.
#[derive(Default)]
struct Served(RefCell<Vec<(u64, Weak<CachePadded<Park>>)>>);

thread_local! {
    // The timers inside of whose tasks or turns a thread is, the innermost last. Never dropped, so
    // that it is there for destructors of other thread-local values. It owns memory only while the
    // thread is inside five at once, or ended and had run tasks for the executors of five.
    static INSIDE: ManuallyDrop<RefCell<SmallVec<[u64; 4]>>> = ManuallyDrop::default();

    static SERVED: Served = Served::default();
}

#[cfg(not(loom))]
thread_local! {
    /// The timer whose cancelled task this thread drops: the drop of one may cancel another.
    static DROPS: Cell<u64> = const { Cell::new(NONE) };
}

// Its macro does not take a `const`.
#[cfg(loom)]
thread_local! {
    static DROPS: Cell<u64> = Cell::new(NONE);
}

/// Pairs of timers or workers: a thread that stands in the way of the first waits for the second.
///
/// Std's lock in loom's models too: no thread switches while it is held, so nothing waits for it.
static WAITING: Mutex<Vec<(u64, u64)>> = Mutex::new(Vec::new());

fn waiting() -> MutexGuard<'static, Vec<(u64, u64)>> {
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Set in the number of a timer that stands for its worker alone. No timer's own number is so
/// large.
const TURN: u64 = 1 << 63;

/// In `DROPS`: this thread drops no cancelled task. No timer has this number.
const NONE: u64 = 0;

/// In `DROPS`: this thread drops tasks of several timers.
const SEVERAL: u64 = u64::MAX;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_notes_a_timer_that_it_serves_once_and_while_that_lives() {
        let park = || Arc::new(CachePadded::new(Park::new(0)));
        let noted = || -> Vec<u64> {
            SERVED.with(|Served(served)| served.borrow().iter().map(|&(id, _)| id).collect())
        };
        let (first, second) = (park(), park());
        for _ in 0..2 {
            serves(1, &first);
            serves(2, &second);
        }
        assert_eq!(noted(), [1, 2]);
        drop(first);
        serves(2, &second);
        assert_eq!(noted(), [2]);
    }
}
