//! Kafka's purgatory: operations that wait for a condition or for their timeout, whichever is
//! first.

mod broker;

pub use broker::{Ask, Broker, LONGEST_WAIT};

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tickwheel::{ScheduleErrorKind, TimeoutGuard, Timer};

/// Something that waits for a condition.
pub trait Operation: Send + 'static {
    /// Returns whether the condition holds. One thread at a time asks. This must not call the
    /// purgatory.
    fn is_satisfied(&mut self) -> bool;

    /// Ends the operation: exactly one call, with no lock held.
    fn complete(self, end: End);
}

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Its condition holds.
    Satisfied,
    /// Its timeout came first.
    Expired,
    /// [`Purgatory::cancel`] ended it.
    Cancelled,
}

/// Holds operations until they end. Each is watched under some keys, and the thread that changes
/// something under a key [checks](Self::check) it.
///
/// An operation that has ended is dropped at once, and its timeout is cancelled. A small rest of it
/// stays in the lists of its keys until they are purged: when more have ended than wait, and more
/// than a limit. Clones are the same purgatory. Operations that wait when the last clone is dropped
/// expire as they would have.
pub struct Purgatory<K, O> {
    timer: Timer,
    shared: Arc<Shared<K, O>>,
}

struct Shared<K, O> {
    lists: Vec<Mutex<Lists<K, O>>>,
    hasher: RandomState,
    /// The operations that wait.
    delayed: AtomicUsize,
    /// Those, and those that have ended and may be in a list.
    known: AtomicUsize,
    purge_over: usize,
}

type Lists<K, O> = HashMap<K, Vec<Arc<Watched<O>>>>;

/// None when it has ended.
struct Watched<O>(Mutex<Option<Waiting<O>>>);

struct Waiting<O> {
    operation: O,
    /// None until it is scheduled.
    timeout: Option<TimeoutGuard>,
}

impl<K: Hash + Eq + Clone + Send + 'static, O: Operation> Purgatory<K, O> {
    /// Makes a purgatory on `timer`. It purges its lists when more than `purge_over` operations
    /// have ended since it did: Kafka's `purge.interval.requests`, 1,000 there.
    #[must_use]
    pub fn new(timer: &Timer, purge_over: usize) -> Self {
        let lists = (0..SHARDS).map(|_| Mutex::default()).collect();
        let (hasher, delayed, known) = Default::default();
        let shared = Arc::new(Shared { lists, hasher, delayed, known, purge_over });
        Self { timer: timer.clone(), shared }
    }

    /// Completes the operation if its condition holds, or else lets it wait under `keys`, for
    /// `timeout` at most. Returns whether it has ended.
    ///
    /// # Errors
    ///
    /// If the timer has no room, or was stopped. The error gives the operation back.
    pub fn complete_or_watch(
        &self,
        mut operation: O,
        keys: impl IntoIterator<Item = K>,
        timeout: Duration,
    ) -> Result<bool, (ScheduleErrorKind, O)> {
        if operation.is_satisfied() {
            operation.complete(End::Satisfied);
            return Ok(true);
        }
        let waiting = Waiting { operation, timeout: None };
        let watched = Arc::new(Watched(Mutex::new(Some(waiting))));
        let mut state = watched.lock();
        let (shared, expires) = (Arc::clone(&self.shared), Arc::clone(&watched));
        let expire = move || {
            shared.end(&expires, End::Expired, |_| true);
        };
        let timeout = match self.timer.schedule(timeout, expire) {
            Ok(timeout) => timeout.cancel_on_drop(),
            Err(error) => {
                let waiting = state.take().expect("it is locked since it was made");
                return Err((error.kind(), waiting.operation));
            }
        };
        state.as_mut().expect("as above").timeout = Some(timeout);
        self.shared.delayed.fetch_add(1, Relaxed);
        self.shared.known.fetch_add(1, Relaxed);
        drop(state);
        for key in keys {
            self.shared.lists(&key).entry(key).or_default().push(Arc::clone(&watched));
        }
        // What changed before it was in a list was seen by nobody.
        let ended = self.shared.end(&watched, End::Satisfied, O::is_satisfied);
        Ok(ended || watched.lock().is_none())
    }

    /// Completes the operations under `key` whose condition holds, and returns how many. Call it
    /// after each change that could make one hold, without a lock that a condition takes. If one
    /// panics, the others come first, and then the panic.
    pub fn check(&self, key: &K) -> usize {
        self.shared.end_some(key, End::Satisfied, O::is_satisfied)
    }

    /// Ends all operations under `key`, and returns how many: its client has gone, say.
    pub fn cancel(&self, key: &K) -> usize {
        self.shared.end_some(key, End::Cancelled, |_| true)
    }

    /// Returns how many operations wait.
    #[must_use]
    pub fn delayed(&self) -> usize {
        self.shared.delayed.load(Relaxed)
    }

    /// Returns how many entries the lists have: one for each key of an operation that waits, and
    /// some for those that have ended.
    #[must_use]
    pub fn watched(&self) -> usize {
        self.shared
            .lists
            .iter()
            .map(|lists| lock(lists).values().map(Vec::len).sum::<usize>())
            .sum()
    }
}

impl<K: Hash + Eq, O: Operation> Shared<K, O> {
    fn lists(&self, key: &K) -> MutexGuard<'_, Lists<K, O>> {
        lock(&self.lists[self.hasher.hash_one(key) as usize % SHARDS])
    }

    fn end_some(&self, key: &K, end: End, ends: impl Fn(&mut O) -> bool) -> usize {
        // No lock is held while conditions are asked and operations complete.
        let list = self.lists(key).get(key).cloned().unwrap_or_default();
        let (mut ended, mut panic) = (0, None);
        for watched in &list {
            match catch_unwind(AssertUnwindSafe(|| self.end(watched, end, &ends))) {
                Ok(has_ended) => ended += usize::from(has_ended),
                // The others wait for the same change, and nobody else looks.
                Err(reason) => panic = Some(reason),
            }
        }
        if ended != 0 || panic.is_some() {
            let mut lists = self.lists(key);
            if let Some(list) = lists.get_mut(key) {
                list.retain(|watched| !watched.has_ended());
                if list.is_empty() {
                    lists.remove(key);
                }
            }
        }
        panic.map_or(ended, |reason| resume_unwind(reason))
    }

    /// Ends the operation if it waits and `ends` says so, and returns whether it did.
    fn end(&self, watched: &Watched<O>, end: End, ends: impl Fn(&mut O) -> bool) -> bool {
        let taken = watched.lock().take_if(|waiting| ends(&mut waiting.operation));
        let Some(Waiting { operation, timeout }) = taken else { return false };
        drop(timeout);
        self.delayed.fetch_sub(1, Relaxed);
        operation.complete(end);
        self.purge_if_many();
        true
    }

    /// Each purge looks at no more than about twice as many as have ended since the last.
    fn purge_if_many(&self) {
        let (known, delayed) = (self.known.load(Relaxed), self.delayed.load(Relaxed));
        if known.saturating_sub(delayed) <= self.purge_over.max(delayed) {
            return;
        }
        if self.known.compare_exchange(known, delayed, Relaxed, Relaxed).is_err() {
            return; // another thread purges, or an operation came and its end will
        }
        for lists in &self.lists {
            let mut lists = lock(lists);
            lists.retain(|_, list| {
                list.retain(|watched| !watched.has_ended());
                list.shrink_to(list.len() * 2);
                !list.is_empty()
            });
            let room = lists.len() * 2;
            lists.shrink_to(room);
        }
    }
}

impl<O> Watched<O> {
    fn lock(&self) -> MutexGuard<'_, Option<Waiting<O>>> {
        lock(&self.0)
    }

    /// Does not wait: one that is locked is about to end at most.
    fn has_ended(&self) -> bool {
        self.0.try_lock().is_ok_and(|waiting| waiting.is_none())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<K, O> Clone for Purgatory<K, O> {
    fn clone(&self) -> Self {
        Self { timer: self.timer.clone(), shared: Arc::clone(&self.shared) }
    }
}

impl<K, O> std::fmt::Debug for Purgatory<K, O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Purgatory").field("delayed", &self.shared.delayed).finish_non_exhaustive()
    }
}

/// Threads that use other keys seldom meet at a lock.
const SHARDS: usize = 64;
