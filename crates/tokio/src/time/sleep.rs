//! A future that completes at an instant.

use super::{Duration, Instant, at_most_30_years};
use crate::runtime;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::task::coop;

/// Waits until `deadline`: [`tokio::time::sleep_until`].
///
/// # Panics
///
/// As tokio's: outside of a runtime, or in one without timers.
#[track_caller]
pub fn sleep_until(deadline: Instant) -> Sleep {
    let driven = runtime::current();
    Sleep { deadline, inner: driven.timer.sleep_until(deadline.into_std()), is_watched: false }
}

/// Waits until `duration` has passed: [`tokio::time::sleep`].
///
/// # Panics
///
/// As tokio's: outside of a runtime, or in one without timers.
#[track_caller]
pub fn sleep(duration: Duration) -> Sleep {
    sleep_until(Instant::now() + at_most_30_years(duration))
}

/// A future that completes at an instant: [`tokio::time::Sleep`], from [`sleep()`] and
/// [`sleep_until`].
///
/// It is `Unpin`. The methods that take a pin take one for the sake of programs written for tokio.
///
/// # Panics
///
/// A poll panics after the runtime in which the sleep was made has been shut down.
#[derive(Debug)]
#[must_use = "futures do nothing unless you `.await` or poll them"]
pub struct Sleep {
    deadline: Instant,
    inner: tickwheel::Sleep,
    /// It was polled or moved: it may be elapsed.
    is_watched: bool,
}

impl Sleep {
    /// Returns the instant at which it completes.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Returns whether its time has come. False, as tokio's, before it was polled or moved.
    #[must_use]
    pub fn is_elapsed(&self) -> bool {
        self.is_watched && self.inner.is_elapsed()
    }

    /// Moves the deadline, earlier or later, without waking a task that waits.
    pub fn reset(mut self: Pin<&mut Self>, deadline: Instant) {
        self.move_to(deadline);
    }

    pub(super) fn move_to(&mut self, deadline: Instant) {
        self.deadline = deadline;
        self.is_watched = true;
        self.inner.reset_at(deadline.into_std());
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let budget = ready!(coop::poll_proceed(context));
        self.is_watched = true;
        match Pin::new(&mut self.inner).poll(context) {
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(_)) => {
                panic!("A Tokio 1.x context was found, but it is being shutdown.")
            }
            // The time may have come before the driver has its turn.
            Poll::Pending if self.inner.is_elapsed() => {}
            Poll::Pending => return Poll::Pending,
        }
        budget.made_progress();
        Poll::Ready(())
    }
}
