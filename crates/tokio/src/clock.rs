//! The present of a runtime.

use std::cell::Cell;
use std::pin::pin;
use std::time::{Duration, Instant};
use tickwheel::Clock;
use tokio::runtime::{Handle, Id};

/// A [`Clock`] that tells the time of a runtime: it stands still while that runtime's clock is
/// paused, and moves with it.
///
/// A timer follows `pause`, `advance`, `resume` and `start_paused` if it has this clock and a
/// [`Driver`](tickwheel::Driver) on that runtime. [`time`](crate::time) has such a timer already;
/// this is for your own. On a thread outside of the runtime it needs the feature `test-util`. A
/// thread that drops its last values reads the real time.
///
/// ```
/// use std::time::Duration;
/// use tickwheel::Timer;
/// use tickwheel_tokio::TokioClock;
///
/// # let mut builder = tokio::runtime::Builder::new_current_thread();
/// # builder.enable_time().start_paused(true).build()?.block_on(
/// // #[tokio::test(start_paused = true)]
/// async {
///     let (timer, driver) = Timer::builder().clock(TokioClock::current()).build_driven()?;
///     tokio::spawn(driver.run(|at| tokio::time::sleep_until(at.into())));
///     timer.sleep(Duration::from_secs(31_536_000)).await?; // a year, at once
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// }
/// # )?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct TokioClock {
    runtime: Handle,
}

impl TokioClock {
    /// Makes the clock of a runtime.
    #[must_use]
    pub fn new(runtime: Handle) -> Self {
        Self { runtime }
    }

    /// Makes the clock of the runtime that this thread is in.
    ///
    /// # Panics
    ///
    /// Outside of a runtime, as [`Handle::current`].
    #[must_use]
    #[track_caller]
    pub fn current() -> Self {
        Self::new(Handle::current())
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Instant {
        #[cfg(feature = "test-util")]
        if is_ending() {
            return Instant::now();
        }
        #[cfg(feature = "test-util")]
        let _inside = self.runtime.enter();
        tokio::time::Instant::now().into_std()
    }
}

/// The clock of a runtime's own timer. In a turn of the driver it stands where tokio's timer does.
pub(crate) struct OwnClock(pub(crate) TokioClock);

impl Clock for OwnClock {
    fn now(&self) -> Instant {
        match TURN.get() {
            Some((runtime, now)) if runtime == self.0.runtime.id() => now,
            _ => self.0.now(),
        }
    }
}

/// Takes a turn of the driver of `runtime`, at an instant that has passed.
pub(crate) fn turn_at<R>(runtime: Id, now: tokio::time::Instant, turn: impl FnOnce() -> R) -> R {
    let _ends = EndsTurn(TURN.replace(Some((runtime, now.into_std()))));
    turn()
}

/// Tells the thread the time that it was told before.
struct EndsTurn(Option<(Id, Instant)>);

impl Drop for EndsTurn {
    fn drop(&mut self) {
        TURN.set(self.0);
    }
}

thread_local! {
    /// The time in a runtime, while this thread takes a turn of its driver. What that wakes may
    /// poll a sleep of another.
    static TURN: Cell<Option<(Id, Instant)>> = const { Cell::new(None) };
}

/// Returns whether the timer of the runtime that this thread is in has come to `instant`.
pub(crate) fn is_reached(instant: tokio::time::Instant) -> bool {
    let mut sleep = pin!(tokio::time::sleep_until(instant));
    sleep.as_mut().reset(instant);
    sleep.is_elapsed()
}

/// Returns the present, or the last instant that tokio's timer has come to, to a millisecond: it
/// comes to the present when a thread waits for events, and not while that thread is held up.
pub(crate) fn reached_now() -> tokio::time::Instant {
    let now = tokio::time::Instant::now();
    let before = |ticks| now.checked_sub(Duration::from_millis(ticks));
    let is_reached = |ticks| before(ticks).is_none_or(is_reached);
    let mut back = 1;
    while !is_reached(back) {
        back *= 2;
    }
    // Reached, and not reached.
    let mut ahead = back / 2;
    while ahead + 1 < back {
        let middle = ahead + (back - ahead) / 2;
        if is_reached(middle) { back = middle } else { ahead = middle }
    }
    before(back - 1).unwrap_or(now)
}

/// Returns whether this thread drops its last values, so that calls of tokio's may panic.
pub(crate) fn is_ending() -> bool {
    Handle::try_current().is_err_and(|error| error.is_thread_local_destroyed())
}
