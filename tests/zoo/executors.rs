//! Executors.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

pub(crate) type BoxedTask = Box<dyn FnOnce() + Send>;

/// What an executor does with a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It runs before the executor returns.
    Runs,
    /// It goes elsewhere: to a pool, to another timer, or to where it waits.
    Leaves,
    IsShed,
    Panics,
}

/// An executor that does with one task after the other what `fates` say, in turn.
pub(crate) fn executor(
    fates: Vec<Fate>,
    elsewhere: impl Fn(BoxedTask) + Send + Sync + 'static,
) -> impl Fn(BoxedTask) + Send + Sync + 'static {
    let nth = AtomicUsize::new(0);
    move |task| match fates[nth.fetch_add(1, Relaxed) % fates.len()] {
        Fate::Runs => task(),
        Fate::Leaves => elsewhere(task),
        Fate::IsShed => drop(task),
        Fate::Panics => super::panics(),
    }
}

/// Where tasks wait, in the order in which they came.
#[derive(Clone, Default)]
pub(crate) struct Kept(Arc<Mutex<VecDeque<BoxedTask>>>);

impl Kept {
    pub(crate) fn put(&self, task: BoxedTask) {
        self.0.lock().unwrap().push_back(task);
    }

    pub(crate) fn next(&self) -> Option<BoxedTask> {
        self.0.lock().unwrap().pop_front()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// An executor that puts each task here.
    pub(crate) fn executor(&self) -> impl Fn(BoxedTask) + Send + Sync + 'static {
        let kept = self.clone();
        move |task| kept.put(task)
    }
}
