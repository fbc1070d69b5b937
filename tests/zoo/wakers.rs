//! Wakers.

use super::{caught, panics};
use cooked_waker::{IntoWaker, Wake, WakeRef};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Waker};

/// What a waker does besides counting.
#[derive(Clone, Default)]
pub(crate) struct Habits {
    pub(crate) clone: Habit,
    pub(crate) wake: Habit,
    pub(crate) drop: Habit,
}

pub(crate) type Habit = Option<Arc<dyn Fn() + Send + Sync>>;

pub(crate) fn does(action: impl Fn() + Send + Sync + 'static) -> Habit {
    Some(Arc::new(action))
}

pub(crate) fn that_panics() -> Habit {
    does(panics)
}

/// A task, and how its wakers fare.
#[derive(Clone, Default)]
pub(crate) struct Task {
    woken: Arc<AtomicUsize>,
    wakers: Arc<AtomicUsize>,
    habits: Habits,
}

impl Task {
    pub(crate) fn with(habits: Habits) -> Self {
        Self { habits, ..Self::default() }
    }

    /// A waker whose clones are other objects, at other addresses.
    pub(crate) fn waker(&self) -> Waker {
        Box::new(Animal::new(self)).into_waker()
    }

    /// Polls with a waker that does not outlive the poll. The place that it was in is free then.
    /// Returns None if the waker panicked in the poll.
    pub(crate) fn poll<R>(&self, poll: impl FnOnce(&mut Context<'_>) -> R) -> Option<R> {
        let waker = self.waker();
        let polled = caught(|| poll(&mut Context::from_waker(&waker)));
        caught(|| drop(waker));
        polled
    }

    /// Returns how often it was woken since the last call.
    pub(crate) fn woken(&self) -> usize {
        self.woken.swap(0, SeqCst)
    }

    pub(crate) fn is_woken(&self) -> bool {
        0 < self.woken.load(SeqCst)
    }

    /// Returns how many wakers of it there are.
    pub(crate) fn wakers(&self) -> usize {
        self.wakers.load(SeqCst)
    }
}

struct Animal(Task);

impl Animal {
    fn new(task: &Task) -> Self {
        task.wakers.fetch_add(1, SeqCst);
        Self(task.clone())
    }
}

impl Clone for Animal {
    fn clone(&self) -> Self {
        act(&self.0.habits.clone);
        Self::new(&self.0)
    }
}

impl WakeRef for Animal {
    fn wake_by_ref(&self) {
        self.0.woken.fetch_add(1, SeqCst);
        act(&self.0.habits.wake);
    }
}

impl Wake for Animal {}

impl Drop for Animal {
    fn drop(&mut self) {
        self.0.wakers.fetch_sub(1, SeqCst);
        act(&self.0.habits.drop);
    }
}

fn act(habit: &Habit) {
    if let Some(action) = habit {
        action();
    }
}
