//! What tells a timer the time.

#[cfg(feature = "boot-clock")]
mod boot;
mod follower;
mod manual;

#[cfg(feature = "boot-clock")]
pub use boot::BootClock;
pub use follower::Follower;
pub use manual::ManualClock;

use crate::platform::Instant;
use core::time::Duration;

/// Tells a [`Timer`](crate::Timer) the time.
///
/// A clock never goes back. The timer reads it for every timeout that is scheduled and every task
/// that runs, so [`now`](Self::now) should be quick.
///
/// | Called | where | must not |
/// |---|---|---|
/// | `now`, `wait` | on the worker, and on each thread that uses the timer; the timer holds no lock | call the timer, or panic: a panic would end the worker, and nothing would fire any more |
/// | `follow` | on the thread that builds the timer, before the builder returns | wait for the timer; if it panics, the panic reaches the caller and the timer is dropped |
///
/// # What happens with each clock
///
/// | | [`MonotonicClock`], the default | `BootClock`, feature `boot-clock` | [`ManualClock`] |
/// |---|---|---|---|
/// | **the machine is suspended** | stands still on Linux and macOS: a timeout of an hour fires after an hour awake. Goes on on Windows | goes on: what came due in a suspend fires within 10 s of waking up, or what `with_look` says; with a [`Driver`](crate::Driver) when its wait is over | stands still |
/// | **somebody sets the time of day** | nothing | nothing | nothing |
/// | **tokio's clock is paused** | goes on: [below](#under-tokios-paused-clock) | goes on | stands still |
///
/// A timeout at a time of day is a delay that the caller computes. If somebody sets the time of day
/// after that, the timeout keeps its delay: look at the time of day when it fires, and schedule the
/// rest.
///
/// ## Under tokio's paused clock
///
/// tokio *advances* a paused clock whenever all of the runtime's tasks wait: straight to the next
/// of its own timers. A worker thread beside the runtime cannot tell tokio of a deadline before
/// that happens. A [`Driver`](crate::Driver) inside the runtime can: it waits in a tokio sleep
/// until the earliest deadline, and the runtime is not idle before the driver has had its turn. So
/// a clock that reads tokio's, and a driver on that runtime, follow `pause`, `advance`, `resume`
/// and `start_paused`:
///
/// ```
/// use std::time::{Duration, Instant};
/// use tickwheel::{Clock, Timer};
/// use tokio::runtime::Handle;
///
/// /// The present of a runtime, also on a thread outside of it.
/// struct TokioClock(Handle);
///
/// impl Clock for TokioClock {
///     fn now(&self) -> Instant {
///         let _inside = self.0.enter();
///         tokio::time::Instant::now().into_std()
///     }
/// }
///
/// # let mut builder = tokio::runtime::Builder::new_current_thread();
/// # builder.enable_time().start_paused(true).build()?.block_on(
/// // #[tokio::test(start_paused = true)]
/// async {
///     let clock = TokioClock(Handle::current());
///     let (timer, driver) = Timer::builder().clock(clock).build_driven()?;
///     tokio::spawn(driver.run(|at| tokio::time::sleep_until(at.into())));
///
///     // A year goes by at once, and ours comes before tokio's.
///     let year = Duration::from_secs(31_536_000);
///     let start = tokio::time::Instant::now();
///     tokio::select! {
///         slept = timer.sleep(year) => slept?,
///         () = tokio::time::sleep(year * 2) => unreachable!(),
///     }
///     assert!(year <= start.elapsed() && start.elapsed() < year * 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// }
/// # )?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The package `tickwheel-tokio` has this clock, and a module `time` in the place of tokio's on a
/// driver that each runtime starts by itself.
///
/// # Your own clock
///
/// Time is an [`Instant`], because nearly all code that deals with deadlines takes one. A clock
/// that does not run like the system's counts from some instant, as
/// [`ManualClock`] does:
///
/// ```
/// use std::time::{Duration, Instant};
/// use tickwheel::{Clock, Timer};
///
/// /// Runs at a thousand times the speed.
/// struct Fast(Instant);
///
/// impl Clock for Fast {
///     fn now(&self) -> Instant {
///         self.0 + self.0.elapsed() * 1_000
///     }
///
///     fn wait(&self, duration: Duration) -> Option<Duration> {
///         Some(duration / 1_000)
///     }
/// }
///
/// let timer = Timer::builder().clock(Fast(Instant::now())).build()?;
/// let (sender, receiver) = std::sync::mpsc::channel();
/// timer.schedule(Duration::from_secs(30), move || sender.send("after 30 ms").unwrap())?;
/// assert_eq!(receiver.recv(), Ok("after 30 ms"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Clock: Send + Sync + 'static {
    /// Returns the present.
    fn now(&self) -> Instant;

    /// Returns how long a thread has to sleep until `duration` has passed on this clock. None means
    /// until the clock tells the timer: see [`follow`](Self::follow).
    ///
    /// An answer that is too short costs a wake-up. One that is too long makes timeouts late. The
    /// default is `duration` itself.
    fn wait(&self, duration: Duration) -> Option<Duration> {
        Some(duration)
    }

    /// Receives a [`Follower`] of each timer that is built on this clock, so that a clock that
    /// jumps can tell the timers. The default drops it.
    fn follow(&self, follower: Follower) {
        drop(follower);
    }
}

/// The system's monotonic clock: [`Instant::now`].
///
/// It does not go back when somebody sets the time. The system decides what this clock does while
/// the machine is suspended. On Linux and macOS the clock stands still: a timeout of an hour comes
/// after the machine was awake for an hour. On a system where the clock goes on, timeouts that came
/// due meanwhile fire late, when the machine wakes up, and none is lost. `BootClock`, with the
/// feature `boot-clock`, goes on while the machine is suspended. [`Clock`] has a table.
#[derive(Clone, Copy, Debug, Default)]
pub struct MonotonicClock;

impl Clock for MonotonicClock {
    #[inline]
    fn now(&self) -> Instant {
        Instant::now()
    }
}
