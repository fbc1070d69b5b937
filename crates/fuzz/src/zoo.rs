//! Foreign code that is odd but legal.

use crate::bytes::Bytes;
use allocation_counter::opt_out;
use cooked_waker::{IntoWaker, Wake, WakeRef};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::hash::{Hash, Hasher};
use std::mem::forget;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::Context;

/// What odd code panics with, past the panic hook.
#[derive(Debug)]
pub(crate) struct Odd;

/// Panics as odd code does.
pub(crate) fn odd() -> ! {
    resume_unwind(Box::new(Odd))
}

/// Calls `call`, and returns None if odd code panicked in it. Any other panic goes on.
pub(crate) fn caught<R>(call: impl FnOnce() -> R) -> Option<R> {
    catch_unwind(AssertUnwindSafe(call)).map_err(expect_odd).ok()
}

fn expect_odd(panic: Box<dyn Any + Send>) {
    if !panic.is::<Odd>() {
        resume_unwind(panic);
    }
}

/// Makes values, and knows which of them were dropped.
#[derive(Clone, Debug, Default)]
pub(crate) struct Maker(Rc<Made>);

#[derive(Debug, Default)]
struct Made {
    alive: Cell<usize>,
    dropped: RefCell<Vec<usize>>,
    /// The value that panics when it is dropped.
    armed: Cell<Option<usize>>,
}

impl Maker {
    pub(crate) fn make(&self, id: usize) -> Value {
        self.0.alive.set(self.0.alive.get() + 1);
        Value { id, made: Rc::clone(&self.0) }
    }

    /// Has this value panic when it is dropped, and no other.
    pub(crate) fn arm(&self, id: usize) {
        self.0.armed.set(Some(id));
    }

    pub(crate) fn alive(&self) -> usize {
        self.0.alive.get()
    }

    /// The values that were dropped since the last call, in order of their numbers.
    pub(crate) fn dropped(&self) -> Vec<usize> {
        let mut dropped = self.0.dropped.take();
        dropped.sort_unstable();
        dropped
    }
}

/// A value that notes its drop, and panics in it if it is armed.
#[derive(Debug)]
pub(crate) struct Value {
    pub(crate) id: usize,
    made: Rc<Made>,
}

impl Value {
    /// Drops the value without noting it, and returns its number.
    pub(crate) fn into_id(self) -> usize {
        let (id, made) = (self.id, Rc::clone(&self.made));
        if made.armed.get() == Some(id) {
            made.armed.set(None);
        }
        drop(self);
        assert_eq!(made.dropped.borrow_mut().pop(), Some(id));
        id
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        let Made { alive, dropped, armed } = &*self.made;
        alive.set(alive.get() - 1);
        opt_out(|| dropped.borrow_mut().push(self.id));
        if armed.get() == Some(self.id) && !std::thread::panicking() {
            armed.set(None);
            odd();
        }
    }
}

/// What becomes of an iterator that is not at its end.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Left {
    Dropped,
    Leaked,
}

impl Left {
    pub(crate) fn read(bytes: &mut Bytes<'_>) -> Self {
        [Self::Dropped, Self::Leaked][usize::from(bytes.byte() & 1)]
    }

    pub(crate) fn leave<T>(self, iterator: T) {
        match self {
            Self::Dropped => drop(iterator),
            Self::Leaked => forget(iterator),
        }
    }
}

/// What a key does when it is hashed, compared or dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Hash,
    Eq,
    Drop,
}

impl Act {
    pub(crate) fn read(bytes: &mut Bytes<'_>) -> Self {
        [Self::Hash, Self::Eq, Self::Drop][usize::from(bytes.byte() % 3)]
    }
}

/// Makes keys, and sets what they do.
#[derive(Clone, Debug, Default)]
pub(crate) struct Keys(Rc<Mood>);

#[derive(Debug, Default)]
struct Mood {
    /// The keys that are alive.
    alive: Cell<usize>,
    /// How often a key was hashed or compared.
    calls: Cell<usize>,
    /// An act that panics, and after how many others of its kind.
    fuse: Cell<Option<(Act, usize)>>,
    /// Of 256 hashes and comparisons, so many are wrong.
    lies: Cell<u8>,
}

impl Keys {
    pub(crate) fn make(&self, number: u64) -> OddKey {
        self.0.alive.set(self.0.alive.get() + 1);
        OddKey { number, mood: Rc::clone(&self.0) }
    }

    /// Has an act panic once, after so many of its kind.
    pub(crate) fn panic_at(&self, act: Act, after: usize) {
        self.0.fuse.set(Some((act, after)));
    }

    pub(crate) fn lie(&self, often: u8) {
        self.0.lies.set(often);
    }

    pub(crate) fn alive(&self) -> usize {
        self.0.alive.get()
    }

    pub(crate) fn calls(&self) -> usize {
        self.0.calls.get()
    }
}

impl Mood {
    fn act(&self, act: Act) {
        let Some((kind, after)) = self.fuse.get().filter(|(kind, _)| *kind == act) else { return };
        self.fuse.set(after.checked_sub(1).map(|after| (kind, after)));
        if after == 0 {
            odd();
        }
    }

    /// Notes a call, and returns whether its answer is wrong.
    fn lies(&self) -> bool {
        self.calls.set(self.calls.get() + 1);
        (self.calls.get() * 167 % 256) < self.lies.get().into()
    }
}

/// A key whose `Hash`, `Eq` and `Drop` panic or lie if they are told to.
#[derive(Debug)]
pub(crate) struct OddKey {
    pub(crate) number: u64,
    mood: Rc<Mood>,
}

impl PartialEq for OddKey {
    fn eq(&self, other: &Self) -> bool {
        self.mood.act(Act::Eq);
        (self.number == other.number) != self.mood.lies()
    }
}

impl Eq for OddKey {}

impl Hash for OddKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.mood.act(Act::Hash);
        // Many keys have one hash.
        (self.number / 4 + u64::from(self.mood.lies())).hash(state);
    }
}

impl Drop for OddKey {
    fn drop(&mut self) {
        self.mood.alive.set(self.mood.alive.get() - 1);
        if !std::thread::panicking() {
            self.mood.act(Act::Drop);
        }
    }
}

/// What a waker does that it need not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Habit {
    Honest,
    PanicsInClone,
    PanicsInWake,
    PanicsInDrop,
    /// Calls back when it wakes.
    Calls,
}

impl Habit {
    pub(crate) fn read(bytes: &mut Bytes<'_>) -> Self {
        match bytes.byte() % 8 {
            0 => Self::PanicsInClone,
            1 => Self::PanicsInWake,
            2 => Self::PanicsInDrop,
            3 | 4 => Self::Calls,
            _ => Self::Honest,
        }
    }
}

/// Whether a task was woken.
#[derive(Debug, Default)]
pub(crate) struct Woken(AtomicBool);

impl Woken {
    pub(crate) fn is_woken(&self) -> bool {
        self.0.load(Relaxed)
    }
}

/// A waker with a habit. Each clone is in a place of its own.
pub(crate) struct Animal {
    woken: Arc<Woken>,
    habit: Habit,
    call: Arc<dyn Fn() + Send + Sync>,
}

impl Animal {
    /// Returns a waker that calls `call` if that is its habit, and what it wakes.
    pub(crate) fn new(habit: Habit, call: Arc<dyn Fn() + Send + Sync>) -> (Arc<Woken>, Self) {
        let woken = Arc::<Woken>::default();
        (Arc::clone(&woken), Self { woken, habit, call })
    }

    /// Polls with this waker, and drops it. Returns None if it panicked in the poll.
    pub(crate) fn poll<R>(self, poll: impl FnOnce(&mut Context<'_>) -> R) -> Option<R> {
        let waker = Box::new(self).into_waker();
        let polled = caught(|| poll(&mut Context::from_waker(&waker)));
        caught(|| drop(waker));
        polled
    }

    fn panics(&self, habit: Habit) {
        if self.habit == habit && !std::thread::panicking() {
            odd();
        }
    }
}

impl Clone for Animal {
    fn clone(&self) -> Self {
        self.panics(Habit::PanicsInClone);
        Self { woken: Arc::clone(&self.woken), habit: self.habit, call: Arc::clone(&self.call) }
    }
}

impl WakeRef for Animal {
    fn wake_by_ref(&self) {
        self.woken.0.store(true, Relaxed);
        self.panics(Habit::PanicsInWake);
        if self.habit == Habit::Calls {
            (self.call)();
        }
    }
}

impl Wake for Animal {}

impl Drop for Animal {
    fn drop(&mut self) {
        self.panics(Habit::PanicsInDrop);
    }
}
