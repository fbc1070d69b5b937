use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use futures_channel::oneshot::Receiver;

use super::calls::Answered;
use super::shared::Threads;
use crate::Error;
use crate::block_on::{block_on, block_on_until};
use crate::keeper::Found;

/// A change that is on its way to the database of a fleet that has its name.
///
/// As [`Commit`](crate::Commit): when it completes, the change survives a crash. If the name is on its
/// way from one database to another, the change waits for it, 10 s at most.
///
/// Dropping it does not take the change back.
#[must_use = "the change is durable when this has completed, and an error is told here only"]
pub struct FleetCommit<T> {
    receiver: Receiver<Answered>,
    done: fn(Found) -> T,
    /// The threads that answer.
    threads: Arc<Threads>,
}

impl<T> FleetCommit<T> {
    pub(super) fn new(
        receiver: Receiver<Answered>,
        done: fn(Found) -> T,
        threads: Arc<Threads>,
    ) -> Self {
        Self { receiver, done, threads }
    }

    /// Blocks the thread until the change is durable, and returns what it did.
    ///
    /// # Errors
    ///
    /// As for [`Commit::wait`](crate::Commit::wait); an error of a database names it. Further, that
    /// the name was on its way for too long ([`Error::Elsewhere`]), that nothing is known of the
    /// database that has it, and that the fleet was opened without the URL of that.
    pub fn wait(self) -> Result<T, Error> {
        self.threads.check()?;
        block_on(self)
    }

    /// Blocks the thread as [`wait`](Self::wait) does, for so long at most. `None`: no answer has come
    /// yet, and the change may or may not be made later. Once it has told what the change did, it is
    /// [`Error::Closed`].
    ///
    /// # Errors
    ///
    /// As for [`wait`](Self::wait).
    pub fn wait_timeout(&mut self, timeout: Duration) -> Option<Result<T, Error>> {
        if let Err(error) = self.threads.check() {
            return Some(Err(error));
        }
        let until = Instant::now().checked_add(timeout);
        block_on_until(self, until)
    }
}

impl<T> Future for FleetCommit<T> {
    type Output = Result<T, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        // When it has completed, there is nothing more to come.
        let reply =
            ready!(Pin::new(&mut this.receiver).poll(context)).unwrap_or(Err(Error::Closed));
        Poll::Ready(reply.map(this.done))
    }
}

impl<T> fmt::Debug for FleetCommit<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FleetCommit").finish_non_exhaustive()
    }
}
