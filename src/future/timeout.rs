//! A future with a time limit.

use super::sleep::Sleep;
use crate::ScheduleErrorKind;
use core::error::Error;
use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll};
use pin_project_lite::pin_project;
use std::io;

pin_project! {
    /// A future with a time limit, from [`Timer::timeout`](crate::Timer::timeout).
    ///
    /// Completes with the output of the inner future, or with [`Elapsed`] if the time is over
    /// before. It polls the inner future first: if that is ready, its output counts, however late
    /// it is.
    ///
    /// If the timer is stopped, or has no room, nothing counts the time any more. Then this future
    /// completes with an [`Elapsed`] that [says so](Elapsed::error), rather than wait for ever.
    ///
    /// Dropping this future drops the inner one, and takes the timeout out of the timer at once. If
    /// the inner future is ready at its first poll, the timer holds nothing of it at all. This
    /// future is `Unpin` if the inner one is, and allocates nothing.
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// use std::time::Duration;
    /// use tickwheel::Timer;
    ///
    /// let timer = Timer::new();
    /// let answer = async { "answer" };
    /// assert_eq!(timer.timeout(Duration::from_secs(30), answer).await?, "answer");
    ///
    /// let silence = std::future::pending::<()>();
    /// let elapsed = timer.timeout(Duration::from_millis(5), silence).await.unwrap_err();
    /// assert_eq!(elapsed.to_string(), "the time is over");
    /// # Ok::<(), tickwheel::Elapsed>(())
    /// # }).unwrap();
    /// ```
    #[derive(Debug)]
    #[must_use = "a future does nothing unless it is awaited"]
    pub struct Timed<F> {
        #[pin]
        future: F,
        sleep: Sleep,
    }
}

impl<F> Timed<F> {
    pub(crate) fn new(future: F, sleep: Sleep) -> Self {
        Self { future, sleep }
    }

    /// Returns the inner future.
    pub fn get_ref(&self) -> &F {
        &self.future
    }

    /// Returns the inner future, to change it.
    pub fn get_mut(&mut self) -> &mut F {
        &mut self.future
    }

    /// Returns the inner future, pinned as this one is.
    pub fn get_pin_mut(self: Pin<&mut Self>) -> Pin<&mut F> {
        self.project().future
    }

    /// Returns the sleep that counts the time, to [reset](Sleep::reset) it, for example.
    pub fn sleep_mut(self: Pin<&mut Self>) -> &mut Sleep {
        self.project().sleep
    }

    /// Returns the inner future, without a time limit.
    pub fn into_inner(self) -> F {
        self.future
    }
}

impl<F: Future> Future for Timed<F> {
    type Output = Result<F::Output, Elapsed>;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Poll::Ready(output) = this.future.poll(context) {
            return Poll::Ready(Ok(output));
        }
        this.sleep.poll_by(context.waker()).map(|slept| Err(Elapsed { error: slept.err() }))
    }
}

/// Says that the time was over before the future completed: the error of a [`Timed`] future.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed {
    error: Option<ScheduleErrorKind>,
}

impl Elapsed {
    pub(crate) fn new(error: Option<ScheduleErrorKind>) -> Self {
        Self { error }
    }

    /// Returns why the timer could not count the time to its end, or None if it did. This is also
    /// the [`source`](Error::source).
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// use std::time::Duration;
    /// use tickwheel::{ScheduleErrorKind, Timer};
    ///
    /// let timer = Timer::new();
    /// timer.stop().expect("not inside a task");
    /// let timed = timer.timeout(Duration::from_secs(30), std::future::pending::<()>());
    /// assert_eq!(timed.await.unwrap_err().error(), Some(ScheduleErrorKind::Stopped));
    /// # });
    /// ```
    #[must_use]
    pub fn error(&self) -> Option<ScheduleErrorKind> {
        self.error
    }
}

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.error {
            None => f.write_str("the time is over"),
            Some(_) => f.write_str("the timer could not count the time to its end"),
        }
    }
}

impl Error for Elapsed {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.error.as_ref().map(|error| error as _)
    }
}

/// An error of the kind [`TimedOut`](io::ErrorKind::TimedOut), with the [`Elapsed`] inside.
///
/// ```
/// # futures::executor::block_on(async {
/// use std::io;
/// use std::time::Duration;
///
/// async fn read() -> io::Result<u32> {
///     let answer = std::future::pending::<io::Result<u32>>();
///     tickwheel::timeout(Duration::from_millis(1), answer).await?
/// }
///
/// assert_eq!(read().await.unwrap_err().kind(), io::ErrorKind::TimedOut);
/// # });
/// ```
impl From<Elapsed> for io::Error {
    fn from(elapsed: Elapsed) -> Self {
        Self::new(io::ErrorKind::TimedOut, elapsed)
    }
}
