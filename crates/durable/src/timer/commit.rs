use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use oneshot::{AsyncReceiver, Receiver};

use super::handle::check_thread;
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
    state: State,
    done: fn(Found) -> T,
    /// The thread that answers.
    answers: ThreadId,
}

enum State {
    Waiting(Receiver<Result<Found, Error>>),
    Polled(AsyncReceiver<Result<Found, Error>>),
    Over,
}

impl<T> Commit<T> {
    pub(super) fn new(
        receiver: Receiver<Result<Found, Error>>,
        done: fn(Found) -> T,
        answers: ThreadId,
    ) -> Self {
        Self { state: State::Waiting(receiver), done, answers }
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
        match self.state {
            State::Waiting(receiver) => match receiver.recv() {
                Ok(reply) => reply.map(self.done),
                Err(_) => Err(Error::Closed),
            },
            // It was polled before.
            State::Polled(_) => block_on(self),
            State::Over => Err(Error::Closed),
        }
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
        let mut receiver = match std::mem::replace(&mut this.state, State::Over) {
            State::Waiting(receiver) => receiver.into_future(),
            State::Polled(receiver) => receiver,
            // It has completed; there is nothing more to come.
            State::Over => return Poll::Ready(Err(Error::Closed)),
        };
        match Pin::new(&mut receiver).poll(context) {
            Poll::Pending => {
                this.state = State::Polled(receiver);
                Poll::Pending
            }
            Poll::Ready(Ok(reply)) => Poll::Ready(reply.map(this.done)),
            Poll::Ready(Err(_)) => Poll::Ready(Err(Error::Closed)),
        }
    }
}

impl<T> fmt::Debug for Commit<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Commit").finish_non_exhaustive()
    }
}
