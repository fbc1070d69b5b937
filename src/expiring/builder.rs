//! The settings of a map that threads share.

use super::receiver::ExpiredValues;
use super::shard::MapShard;
use super::{ExpiredReceiver, ExpiringMap, Outlet, Shared, Turn};
use crate::timer::PendingLimit;
use crate::{Due, Timer, delay_channel};
use alloc::sync::{Arc, Weak};
use core::fmt;
use core::hash::{BuildHasher, Hash};
use core::num::NonZeroUsize;
use core::sync::atomic::AtomicUsize;
use core::task::Waker;
use core::time::Duration;
use crossbeam_utils::CachePadded;
use std::hash::RandomState;
use std::thread::available_parallelism;

/// Builds an [`ExpiringMap`], from [`ExpiringMap::builder`].
///
/// ```
/// use std::time::Duration;
/// use tickwheel::{ExpiringMap, Timer};
///
/// let timer = Timer::new();
/// let sessions: ExpiringMap<u64, String> = ExpiringMap::builder()
///     .time_to_idle(Duration::from_secs(600))
///     .on_expired(|due| println!("the session {} of {} is over", due.key, due.value))
///     .build(&timer);
/// # drop(sessions);
/// ```
#[must_use]
pub struct ExpiringMapBuilder<K, V, S = RandomState> {
    shards: Option<usize>,
    time_to_idle: Option<Duration>,
    max_len: Option<usize>,
    outlet: Outlet<K, V>,
    hasher: S,
}

impl<K, V> ExpiringMapBuilder<K, V> {
    pub(super) fn new() -> Self {
        let hasher = RandomState::new();
        let (shards, time_to_idle, max_len) = (None, None, None);
        Self { shards, time_to_idle, max_len, outlet: Outlet::Drops, hasher }
    }
}

impl<K, V, S> ExpiringMapBuilder<K, V, S> {
    /// Sets the number of shards, from 1 to 1024, rounded up to a power of two. The default is four
    /// for each core that is available, up to 256. Each shard is a wheel behind a lock, and the
    /// hash of a key chooses the shard.
    pub fn shards(mut self, shards: usize) -> Self {
        self.shards = Some(shards.clamp(1, MOST_SHARDS));
        self
    }

    /// Sets how long a value stays with no call that reads it. By default it stays until its
    /// deadline.
    ///
    /// A value expires at its deadline, or when no call has read it for `time_to_idle`, whichever
    /// is first. [`get`](ExpiringMap::get), [`with`](ExpiringMap::with),
    /// [`update`](ExpiringMap::update), [`touch`](ExpiringMap::touch) and the calls that store or
    /// move a value count as reading it.
    pub fn time_to_idle(mut self, time_to_idle: Duration) -> Self {
        self.time_to_idle = Some(time_to_idle);
        self
    }

    /// Limits how many values there may be at once. By default there is no limit. Storing a value
    /// beyond the limit is an error that gives the value back, and replacing one is not.
    ///
    /// Values that have expired count until the worker has taken them out: if they are dropped, a
    /// call that finds the map full takes some out itself. A value for a
    /// [receiver](Self::build_with_receiver) counts until a call returns it there. With a limit all
    /// threads write one counter.
    pub fn max_len(mut self, values: usize) -> Self {
        self.max_len = Some(values);
        self
    }

    /// Sets what becomes of each value that expires. By default it is dropped. The hook gets it with
    /// its key, and with the deadline at which it ended.
    ///
    /// The timer's worker calls `hook`, or its [`Executor`](crate::Executor), with no lock held.
    /// The timer counts and tells a panic of `hook` as it does a task's. An executor may leave the
    /// call out, and then the value is dropped. The call may come after another value was stored
    /// under the same key, because a value that has expired counts as absent at once.
    ///
    /// Keep the timer: once it is stopped, or all its handles are dropped, nothing calls the hook.
    ///
    /// Who uses the hook last drops what it captured, which may be the timer's worker. A hook that
    /// captures a handle of its own map keeps that map for ever.
    pub fn on_expired(mut self, hook: impl Fn(Due<V, K>) + Send + Sync + 'static) -> Self {
        self.outlet = Outlet::Hook(Arc::new(hook));
        self
    }

    /// Sets what hashes the keys. The default is the hasher of std's `HashMap`.
    pub fn hasher<T>(self, hasher: T) -> ExpiringMapBuilder<K, V, T> {
        let Self { shards, time_to_idle, max_len, outlet, .. } = self;
        ExpiringMapBuilder { shards, time_to_idle, max_len, outlet, hasher }
    }
}

impl<K, V, S> ExpiringMapBuilder<K, V, S>
where
    K: Hash + Eq + Send + 'static,
    V: Send + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Builds an empty map on `timer`, which it does not keep alive. Use [`timer()`](crate::timer())
    /// for the timer of the process.
    #[must_use]
    pub fn build(self, timer: &Timer) -> ExpiringMap<K, V, S> {
        let Self { shards, time_to_idle, max_len, outlet, hasher } = self;
        let limit = max_len.map(|values| Arc::new(PendingLimit::new(values)));
        let timer = Arc::clone(timer.shard());
        let mode = timer.mode();
        let cores = || available_parallelism().map_or(1, NonZeroUsize::get);
        let shards = shards.unwrap_or_else(|| (4 * cores()).min(256)).next_power_of_two();
        ExpiringMap(Arc::new_cyclic(|shared: &Weak<Shared<K, V, S>>| {
            let shard = |number| {
                let turn = Turn { shared: shared.clone(), number };
                CachePadded::new(MapShard::new(&timer, mode, Waker::from(Arc::new(turn))))
            };
            let shards = (0..shards).map(shard).collect();
            let (timer, handles) = (Arc::clone(&timer), AtomicUsize::new(1));
            Shared { shards, timer, hasher, time_to_idle, limit, outlet, handles }
        }))
    }

    /// Builds an empty map on `timer`, and the receiver that gets each value that expires, with its
    /// key and its deadline. There is no hook then.
    ///
    /// Values that no call has returned yet stay in memory: [`max_len`](Self::max_len) counts them,
    /// and without that limit nothing bounds them but how fast values are received. If all
    /// receivers are gone, values that expire are dropped.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tickwheel::{ExpiringMap, Timer};
    ///
    /// let timer = Timer::new();
    /// let (requests, mut unanswered) = ExpiringMap::builder().build_with_receiver(&timer);
    /// requests.insert(7, "question", Duration::from_millis(5))?;
    /// requests.insert(8, "another", Duration::from_secs(60))?;
    /// assert_eq!(requests.remove(&8), Some("another")); // the answer came
    /// drop(requests);
    ///
    /// while let Some(due) = unanswered.recv() { // or `unanswered.next().await`
    ///     let due = due?;
    ///     assert_eq!((due.key, due.value), (7, "question"));
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn build_with_receiver(
        mut self,
        timer: &Timer,
    ) -> (ExpiringMap<K, V, S>, ExpiredReceiver<K, V>) {
        let (sender, receiver) = delay_channel(timer);
        self.outlet = Outlet::Receiver(sender);
        (self.build(timer), receiver.wrap(ExpiredValues))
    }
}

impl<K, V, S> fmt::Debug for ExpiringMapBuilder<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExpiringMapBuilder")
            .field("shards", &self.shards)
            .field("time_to_idle", &self.time_to_idle)
            .finish_non_exhaustive()
    }
}

const MOST_SHARDS: usize = 1_024;
