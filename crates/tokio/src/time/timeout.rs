//! A future with a deadline.

use super::error::Elapsed;
use super::{Duration, Instant, Sleep, sleep_until};
use pin_project_lite::pin_project;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::task::coop;

/// Gives `future` that long: [`tokio::time::timeout`](tokio::time::timeout()).
///
/// # Panics
///
/// As tokio's: outside of a runtime, or in one without timers.
#[track_caller]
pub fn timeout<F: IntoFuture>(duration: Duration, future: F) -> Timeout<F::IntoFuture> {
    let future = future.into_future();
    #[expect(clippy::manual_map, reason = "a closure would hide the caller from a panic")]
    let sleep = match Instant::now().checked_add(duration) {
        Some(deadline) => Some(sleep_until(deadline)),
        None => None,
    };
    Timeout { future, sleep }
}

/// Gives `future` until `deadline`: [`tokio::time::timeout_at`].
///
/// # Panics
///
/// As tokio's: outside of a runtime, or in one without timers.
#[track_caller]
pub fn timeout_at<F: IntoFuture>(deadline: Instant, future: F) -> Timeout<F::IntoFuture> {
    Timeout { future: future.into_future(), sleep: Some(sleep_until(deadline)) }
}

pin_project! {
    /// A future with a deadline: [`tokio::time::Timeout`], from [`timeout()`] and [`timeout_at`].
    #[derive(Debug)]
    #[must_use = "futures do nothing unless you `.await` or poll them"]
    pub struct Timeout<T> {
        #[pin]
        future: T,
        // None if no instant can hold the deadline.
        sleep: Option<Sleep>,
    }
}

impl<T> Timeout<T> {
    /// Returns the future.
    pub fn get_ref(&self) -> &T {
        &self.future
    }

    /// Returns the future.
    pub fn get_mut(&mut self) -> &mut T {
        &mut self.future
    }

    /// Returns the future, without its deadline.
    pub fn into_inner(self) -> T {
        self.future
    }
}

impl<T: Future> Future for Timeout<T> {
    type Output = Result<T::Output, Elapsed>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let had_budget = coop::has_budget_remaining();
        if let Poll::Ready(output) = this.future.poll(context) {
            return Poll::Ready(Ok(output));
        }
        let Some(sleep) = this.sleep else { return Poll::Pending };
        // A future that uses up the budget each time must not keep its deadline from coming.
        if had_budget && !coop::has_budget_remaining() {
            ready!(Pin::new(&mut coop::unconstrained(sleep)).poll(context));
        } else {
            ready!(sleep.poll_once(context));
        }
        Poll::Ready(Err(Elapsed(())))
    }
}
