//! [`tokio::time`], on the timing wheels of [`tickwheel`].
//!
//! Names, signatures, panics and semantics are tokio's; [`DelayQueue`] is tokio-util's, and
//! [`IntervalStream`] tokio-stream's. What is only data is tokio's own type: [`Instant`],
//! [`MissedTickBehavior`]. So are the functions that pause the clock.
//!
//! ```
//! use tickwheel_tokio::time::{self, Duration}; // instead of tokio::time
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(
//! // #[tokio::main]
//! async {
//!     time::sleep(Duration::from_millis(5)).await;
//!     let silence = std::future::pending::<()>();
//!     assert!(time::timeout(Duration::from_millis(5), silence).await.is_err());
//! }
//! # );
//! # Ok::<(), std::io::Error>(())
//! ```

pub mod delay_queue;
pub mod error;
mod interval;
mod sleep;
mod timeout;

#[doc(inline)]
pub use delay_queue::DelayQueue;
pub use interval::{Interval, IntervalStream, interval, interval_at};
pub use sleep::{Sleep, sleep, sleep_until};
pub use std::time::Duration;
pub use timeout::{Timeout, timeout, timeout_at};
pub use tokio::time::{Instant, MissedTickBehavior};
#[cfg(feature = "test-util")]
pub use tokio::time::{pause, resume};

/// Lets time pass on the paused clock of the current runtime, and gives the tasks that it wakes a
/// turn: [`tokio::time::advance`].
///
/// # Panics
///
/// As tokio's: if the clock is not paused, or outside of a runtime.
#[cfg(feature = "test-util")]
pub async fn advance(duration: Duration) {
    tokio::time::advance(duration).await;
    // That woke the driver. This lets it fire.
    tokio::task::yield_now().await;
}

/// Gives back the memory that the sleeps of the current runtime needed at a peak that is over,
/// while some of them still wait. When none of a shard waits, that comes by itself.
///
/// This holds the lock of each shard in turn, for a time that grows with the peak.
///
/// # Panics
///
/// As [`sleep()`].
#[track_caller]
pub fn shrink_to_fit() {
    crate::runtime::current().timer.shrink_to_fit();
}

/// Returns a delay that an instant can be moved by: about 30 years, as in tokio.
fn at_most_30_years(delay: Duration) -> Duration {
    delay.min(Duration::from_secs(86_400 * 365 * 30))
}
