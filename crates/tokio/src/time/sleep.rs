//! A future that completes at an instant.

use super::{Duration, Instant, at_most_30_years};
#[cfg(feature = "test-util")]
use crate::alarm::LooksAgain;
use crate::alarm::is_one_late;
use crate::clock::is_reached;
use crate::runtime;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker, ready};
use tokio::runtime::{Handle, Id};
use tokio::task::coop;

/// Waits until `deadline`: [`tokio::time::sleep_until`].
///
/// # Panics
///
/// As tokio's: outside of a runtime, or in one without timers.
// In its caller, a sleep is made in its place: it is large, and slow to copy once it was written.
#[inline(always)]
#[track_caller]
pub fn sleep_until(deadline: Instant) -> Sleep {
    let here = runtime::here();
    Sleep {
        deadline,
        inner: here.sleeps.sleep_until(deadline.into_std()),
        runtime: here.runtime,
        of_tokio: None,
        is_watched: false,
        waits: false,
        looks: AtomicBool::new(false),
        last: None,
        #[cfg(feature = "test-util")]
        looks_again: LooksAgain(here.alarm),
    }
}

/// Waits until `duration` has passed: [`tokio::time::sleep`].
///
/// # Panics
///
/// As tokio's: outside of a runtime, or in one without timers.
#[inline]
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
/// A poll panics after the runtime in which the sleep was made has been shut down. While that
/// runtime shuts down, our timer ends before its tasks do. From then on the sleep waits on tokio's
/// timer when a thread of that runtime polls it, and panics there as tokio's does. On other threads
/// it panics at once.
#[derive(Debug)]
#[must_use = "futures do nothing unless you `.await` or poll them"]
pub struct Sleep {
    deadline: Instant,
    inner: tickwheel::Sleep,
    /// In which it was made.
    runtime: Id,
    /// Waits in place of `inner`, whose timer has ended, or is ahead of tokio's.
    of_tokio: Option<Pin<Box<tokio::time::Sleep>>>,
    /// It was polled or moved: it may be elapsed.
    is_watched: bool,
    /// It has waited for its deadline: the driver ends that, and not before tokio's timer has come
    /// there.
    waits: bool,
    /// It was moved, or said that it is elapsed, or ended: the next poll reads the clock, and does
    /// not wait for the driver if the time has come.
    looks: AtomicBool,
    /// Of the poll that was ready last: once it is moved, it wakes that task.
    last: Option<Waker>,
    /// Dropped after `inner`, which is out of the timer then.
    #[cfg(feature = "test-util")]
    looks_again: LooksAgain,
}

impl Sleep {
    /// Returns the instant at which it completes.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Returns whether its time has come. False, as tokio's, before it was polled or moved. After
    /// the end of its runtime, when tokio's is true, it goes by the clock.
    #[must_use]
    pub fn is_elapsed(&self) -> bool {
        let is_elapsed = self.is_watched && self.inner.is_elapsed() && !self.is_ahead();
        if is_elapsed {
            self.looks.store(true, Ordering::Relaxed);
        }
        is_elapsed
    }

    /// Moves the deadline, earlier or later. The task that polled last is woken at the new one,
    /// also if that poll was ready, unless it was woken since that poll. Without the feature
    /// `test-util`, a task whose deadline moves to later may be woken at the old one, too.
    ///
    /// A paused clock does not jump to a sleep that was moved and that no task has polled, unlike
    /// to tokio's.
    pub fn reset(mut self: Pin<&mut Self>, deadline: Instant) {
        match self.last.take() {
            Some(waker) => self.waits_anew(deadline, &waker),
            None => self.move_to(deadline),
        }
    }

    pub(super) fn move_to(&mut self, deadline: Instant) {
        self.deadline = deadline;
        (self.is_watched, self.waits, *self.looks.get_mut()) = (true, false, true);
        // A paused clock would jump to where the waker was. Else a move to later takes no lock:
        // with one it was measured to take half as long again, and on two threads twice as long.
        #[cfg(feature = "test-util")]
        self.inner.reschedule_at(deadline.into_std());
        #[cfg(not(feature = "test-util"))]
        self.inner.reset_at(deadline.into_std());
        #[cfg(feature = "test-util")]
        self.looks_again.looks();
        if let Some(sleep) = &mut self.of_tokio {
            sleep.as_mut().reset(deadline);
        }
    }

    /// Moves the deadline, and makes `waker` wake then, and nothing before. Wakes it at once if the
    /// timer has ended.
    pub(super) fn waits_anew(&mut self, deadline: Instant, waker: &Waker) {
        self.inner.deregister();
        self.move_to(deadline);
        let mut poll =
            || Pin::new(&mut self.inner).poll(&mut Context::from_waker(waker)).is_ready();
        // After many that were ready, a poll is the turn of others, and nothing waits yet.
        if poll() || poll() {
            waker.wake_by_ref();
        }
    }

    /// Returns whether this thread is in the runtime in which it was made.
    fn is_here(&self) -> bool {
        Handle::try_current().is_ok_and(|here| here.id() == self.runtime)
    }

    /// Returns whether tokio's timer has yet to come to the deadline, as far as can be told. Its
    /// time comes, as on tokio, when that does: then the other tasks of the thread, and what a
    /// timeout limits, have had their turn, however late it is.
    fn is_ahead(&self) -> bool {
        self.is_here() && !is_reached(self.deadline)
    }

    /// Waits on tokio's timer, because ours has ended, or is ahead of it.
    #[cold]
    fn poll_of_tokio(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let is_here = self.is_here();
        let sleep = self.of_tokio.get_or_insert_with(|| {
            assert!(is_here, "A Tokio 1.x context was found, but it is being shutdown.");
            Box::pin(tokio::time::sleep_until(self.deadline))
        });
        ready!(sleep.as_mut().poll(context));
        self.of_tokio = None;
        Poll::Ready(())
    }

    /// Polls it, and forgets the task if it is ready.
    pub(super) fn poll_once(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.of_tokio.is_some() {
            return self.poll_of_tokio(context);
        }
        self.is_watched = true;
        let looks = *self.looks.get_mut();
        match Pin::new(&mut self.inner).poll(context) {
            // Its thread was held up before it could wait.
            Poll::Ready(Ok(())) if !self.waits && self.is_ahead() => {
                return self.poll_of_tokio(context);
            }
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(_)) => return self.poll_of_tokio(context),
            // The time has come, and tokio's timer knows, but the driver has yet to have its turn.
            Poll::Pending if (looks || is_one_late()) && self.is_elapsed() => {}
            // After many polls that were ready, that was the turn of others, and nothing waits yet.
            Poll::Pending if looks => {
                *self.looks.get_mut() = false;
                return self.poll_once(context);
            }
            Poll::Pending => {
                self.waits = true;
                return Poll::Pending;
            }
        }
        *self.looks.get_mut() = true;
        // One that waits on takes nothing of the budget.
        let budget = ready!(coop::poll_proceed(context));
        self.inner.deregister();
        budget.made_progress();
        Poll::Ready(())
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        ready!(self.poll_once(context));
        self.last = Some(context.waker().clone());
        Poll::Ready(())
    }
}
