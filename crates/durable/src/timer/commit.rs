use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use futures_channel::oneshot::Receiver;

use super::handle::check_thread;
use super::shared::Answered;
use crate::Error;
use crate::block_on::{block_on, block_on_until};
use crate::keeper::Found;

/// A change that is on its way to the store.
///
/// When it completes, the change survives a crash. Await it, or call [`wait`](Self::wait) from a
/// thread. Changes that are issued before one completes go into one commit, so a caller with many
/// issues all of them and then waits for each.
///
/// Dropping it does not take the change back.
#[must_use = "the change is durable when this has completed, and an error is told here only"]
pub struct Commit<T> {
    receiver: Receiver<Answered>,
    done: fn(Found) -> T,
    /// The thread that answers.
    answers: ThreadId,
}

impl<T> Commit<T> {
    pub(super) fn new(
        receiver: Receiver<Answered>,
        done: fn(Found) -> T,
        answers: ThreadId,
    ) -> Self {
        Self { receiver, done, answers }
    }

    /// Blocks the thread until the change is durable, and returns what it did.
    ///
    /// # Errors
    ///
    /// The store's error. Nothing was done then, unless the store failed while it committed: then
    /// the change may be there. Making it again is safe. [`Error::Closed`] if the timer was closed
    /// first.
    pub fn wait(self) -> Result<T, Error> {
        check_thread(self.answers)?;
        block_on(self)
    }

    /// Blocks the thread as [`wait`](Self::wait) does, for so long at most. `None`: the store has
    /// not answered yet, and the change may or may not be made later. Once it has told what the
    /// change did, it is [`Error::Closed`].
    ///
    /// # Errors
    ///
    /// As for [`wait`](Self::wait).
    pub fn wait_timeout(&mut self, timeout: Duration) -> Option<Result<T, Error>> {
        if let Err(error) = check_thread(self.answers) {
            return Some(Err(error));
        }
        let until = Instant::now().checked_add(timeout);
        block_on_until(self, until)
    }
}

impl<T> Future for Commit<T> {
    type Output = Result<T, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        // When it has completed, there is nothing more to come.
        let reply =
            ready!(Pin::new(&mut this.receiver).poll(context)).unwrap_or(Err(Error::Closed));
        Poll::Ready(reply.map(this.done))
    }
}

impl<T> fmt::Debug for Commit<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Commit").finish_non_exhaustive()
    }
}
