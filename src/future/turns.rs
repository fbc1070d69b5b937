//! Futures that are always ready give way to others on their thread.

use crate::timer::Hub;
use core::future::poll_fn;
use core::task::{Context, Poll, Waker};

/// Counts how often a future was ready since it last was not.
///
/// After `MOST` times in a row the future says that it is not ready, and wakes its task at once. So
/// an executor has a chance to poll other tasks of its thread.
#[derive(Default)]
pub(crate) struct Turns<const MOST: u8>(u8);

impl<const MOST: u8> Turns<MOST> {
    /// Takes a turn, in which the future may be ready. Returns Pending if it is the turn of others.
    pub(crate) fn take(&mut self, hub: &Hub, waker: &Waker) -> Poll<()> {
        if self.0 < MOST {
            self.0 += 1;
            return Poll::Ready(());
        }
        self.0 = 0;
        hub.guarded(|| waker.wake_by_ref());
        Poll::Pending
    }
}

/// Waits with a waker that is registered elsewhere.
pub(crate) trait Waits {
    /// Ends a wait, if there is one: drops the waker wherever it is registered.
    fn give_up(&mut self);
}

/// Waits until `poll` is ready. If the caller drops the future before that, the wait is given up.
pub(crate) async fn wait<W: Waits, R>(
    waits: &mut W,
    mut poll: impl FnMut(&mut W, &mut Context<'_>) -> Poll<R>,
) -> R {
    let guard = GivesUp(waits);
    poll_fn(|context| poll(guard.0, context)).await
}

struct GivesUp<'a, W: Waits>(&'a mut W);

impl<W: Waits> Drop for GivesUp<'_, W> {
    fn drop(&mut self) {
        self.0.give_up();
    }
}
