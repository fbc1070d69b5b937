//! Timing wheels, hierarchical and hashed: hold millions of timeouts, cancel nearly all of them,
//! and never hand one out early.
//!
//! [`Wheel<T>`] holds values until their deadlines. It is driven by its caller: it reads no clock,
//! starts no thread and calls nobody back. Time is a number of ticks, and all of u64 is good.
//!
//! ```
//! use tickwheel::{Mode, Wheel};
//!
//! let mut wheel = Wheel::new(Mode::hierarchical());
//! let request = wheel.schedule(30, "request");
//! wheel.schedule(1_000_000_000_000, "far away");
//!
//! assert!(wheel.expire(29).is_none()); // never early
//! assert_eq!(wheel.cancel(request), Some("request"));
//! assert_eq!(wheel.next_deadline(), Some(1_000_000_000_000));
//! ```
//!
//! [`Mode`] says whether the wheel is hierarchical, as in Kafka, or hashed, as in Netty, and how to
//! choose. Both keep the same promises, which are listed at [`Wheel`], and differ in cost.
//!
//! [`Timer`] runs tasks when their time has come: wheels, a clock and a thread that sleeps until
//! something is due, for any number of threads.
//!
//! ```
//! use std::time::Duration;
//! use tickwheel::Timer;
//!
//! let timer = Timer::new();
//! let request = timer.schedule(Duration::from_secs(30), || println!("no answer"))?;
//! assert!(request.cancel()); // there it is
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! On a timer there are futures for any executor: [`sleep`], [`timeout`], [`interval`], on the
//! timer of the process or on [one of one's own](Timer::sleep). [`DelayQueue`] hands out many
//! values, each when its time has come, to a task or to a blocked thread.
//!
//! ```
//! # futures::executor::block_on(async {
//! tickwheel::sleep(std::time::Duration::from_millis(5)).await?;
//! # Ok::<(), tickwheel::ScheduleErrorKind>(())
//! # }).unwrap();
//! ```
//!
//! # Features
//!
//! - `std` (default): the [`Timer`] and what stands on it; without it the crate is `no_std` and
//!   needs `alloc` only, and 32 KB of stack.
//! - `stream`: [`Interval`] and [`DelayQueue`] are streams, by the crate `futures-core`.
//! - `log`: a timer says through the `log` crate when there are too many of them.
//! - `cli`: the command `tickwheel replay`, which runs a recorded workload through several modes
//!   and compares them, and the module behind it.
#![cfg_attr(not(feature = "std"), no_std)]
#![warn(
    missing_docs,
    clippy::alloc_instead_of_core,
    clippy::std_instead_of_alloc,
    clippy::std_instead_of_core
)]

extern crate alloc;

mod arena;
mod bucket;
#[cfg(feature = "std")]
mod clock;
#[cfg(feature = "std")]
mod delay_queue;
mod digit;
mod front;
#[cfg(feature = "std")]
mod future;
mod growing;
mod hashed;
mod hierarchical;
mod mode;
mod occupancy;
#[cfg(feature = "cli")]
pub mod replay;
mod runs;
#[cfg(feature = "std")]
mod sync;
mod table;
#[cfg(feature = "std")]
mod timer;
mod wheel;

pub use arena::Key;
#[cfg(feature = "std")]
pub use delay_queue::{BlockingIter, DelayQueue, Due};
#[cfg(feature = "std")]
pub use future::{
    Elapsed, Interval, Sleep, Timed, interval, interval_at, sleep, sleep_until, timeout,
    timeout_at, timer,
};
pub use mode::{Mode, ModeError};
#[cfg(feature = "std")]
pub use timer::{
    BuildError, Clock, Executor, Follower, Lateness, ManualClock, MissedTick, MonotonicClock,
    ScheduleError, ScheduleErrorKind, Status, StopError, Task, TaskPanic, Timeout, Timer,
    TimerBuilder, TimerStats, Unfired,
};
pub use wheel::{Drain, Expired, Iter, Wheel, WheelStats};

/// The examples in the documents are run as tests too.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
#[doc = include_str!("../design.md")]
mod documents {}
