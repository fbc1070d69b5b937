//! The receiver of what expires in a map that threads share.
//!
//! The worker moves a value out of the map into a delay channel, in which it is due at once.

use crate::delay::{Channel, Source};
use crate::timer::PendingLimit;
use crate::{Delayed, Expired};
use alloc::sync::Arc;
use core::fmt;
use core::task::Waker;

/// Hands out the values that expire in an [`ExpiringMap`](crate::ExpiringMap), each with its key and
/// its deadline, in one of the ways of [`Delayed`]. From
/// [`build_with_receiver`](crate::ExpiringMapBuilder::build_with_receiver).
///
/// Clones share the values: each goes to one of them. Values come in no particular order. A wait
/// ends when all clones of the map are gone and no value is left here: dropping the last clone drops
/// the values that have not expired. [`len`](Delayed::len) counts the values that have left the map,
/// and that no call has returned.
///
/// Because the timer's worker brings the values, a thread must not block for them where it must not
/// [stop](crate::Timer::stop) the timer: inside its tasks, and on a thread of its executor. There a
/// call that would block returns [`Deadlock`](crate::ScheduleErrorKind::Deadlock). On the thread that
/// turns the timer's [`Driver`](crate::Driver), such a call does not return.
pub type ExpiredReceiver<K, V> = Delayed<ExpiredValues<K, V>>;

/// The end of a receiver. Nothing outside of this crate can name it.
#[expect(missing_debug_implementations, unnameable_types, reason = "it is sealed")]
pub struct ExpiredValues<K, V>(pub(super) Channel<Unread<K, V>>);

/// A value that no call has returned yet.
pub(super) struct Unread<K, V> {
    expired: Expired<V, K>,
    _place: Place,
}

/// The place that a value has in the limit of its map.
struct Place(Option<Arc<PendingLimit>>);

impl<K, V> Unread<K, V> {
    pub(super) fn new(expired: Expired<V, K>, limit: Option<Arc<PendingLimit>>) -> Self {
        Self { expired, _place: Place(limit) }
    }

    pub(super) fn into_expired(self) -> Expired<V, K> {
        self.expired
    }
}

impl<K, V> Source for ExpiredValues<K, V> {
    type Key = K;
    type Value = V;

    const NEEDS_WORKER: bool = true;

    fn expire(&mut self, now: Option<u64>, work: &mut usize) -> Option<Expired<V, K>> {
        self.0.expire(now, work).map(|expired| expired.value.expired)
    }

    fn expire_some(&mut self, now: u64, most: usize, mut take: impl FnMut(Expired<V, K>)) {
        self.0.expire_some(now, most, |expired| take(expired.value.expired));
    }

    fn watch(&mut self, waker: &Waker) -> Option<u64> {
        self.0.watch(waker)
    }

    fn unwatch(&mut self) {
        self.0.unwatch();
    }

    fn is_over(&self) -> bool {
        self.0.is_over()
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn shrink_to_fit(&mut self) {
        self.0.shrink_to_fit();
    }
}

impl<K, V> Clone for ExpiredValues<K, V> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K, V> fmt::Debug for ExpiredReceiver<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExpiredReceiver").field("len", &self.len()).finish_non_exhaustive()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(limit) = &self.0 {
            limit.give_back(1);
        }
    }
}
