//! Timing wheels, hierarchical and hashed, for millions of timeouts that are mostly cancelled.
//!
//! Scheduling, moving or cancelling a timeout costs the same for every delay, and no timeout is
//! ever early.
//!
//! # What to take
//!
//! | You have | Take |
//! |---|---|
//! | an event loop, `no_std`, or your own clock | [`Wheel`]: the caller passes the time in, and gets back what is due; [`Ticks`] makes ticks of instants |
//! | the same, and values under keys of your own | [`WheelMap`] |
//! | callbacks that run on threads | [`Timer`]: runs tasks when they are due, for any number of threads |
//! | the same, without a thread: an event loop or a runtime | [`Driver`]: takes the turns of a [`Timer`] where its caller wants them |
//! | one delay, one time limit or a heartbeat in async code | [`sleep`], [`timeout`], [`interval`]: futures for any executor |
//! | many values, each with its own deadline, for one task or thread | [`DelayQueue`]: hands out each value at its deadline |
//! | the same, from many threads | [`delay_channel`](delay_channel()) |
//! | many values under keys of your own: sessions, leases, a cache | [`DelayMap`] |
//! | the same, shared by threads and tasks | [`ExpiringMap`]: never returns a value whose deadline has passed |
//!
//! All but the [`Wheel`], the [`WheelMap`] and [`Ticks`] need the feature `std`. [`Mode`] chooses
//! between a hierarchical wheel, as in Kafka, and a hashed one, as in Netty. Both keep the same
//! promises and differ in cost.
//!
//! # Ticks
//!
//! A wheel counts time in *ticks*: a `u64` that begins at 0. The caller of a [`Wheel`] decides how
//! long a tick is, and every `u64` is a valid deadline. [`Ticks`] converts instants to ticks and
//! back. It rounds deadlines up and the present down, because a timeout would be early if both were
//! rounded alike. The [builder](TimerBuilder::tick) of a [`Timer`] sets them, from 1 us to 1 h.
//!
//! # Never early
//!
//! - [`Wheel::expire(now)`](Wheel::expire) never returns a timeout whose deadline is after `now`.
//!   The only time that a wheel knows is the largest `now` that its caller has passed.
//! - A [`Timer`], and each future and [`DelayQueue`] on it, measures a delay by the timer's own
//!   [`Clock`], from the call that schedules. The default clock is the system's monotonic one:
//!   setting the time of day does not move a deadline. [`Clock`] says what other clocks do, in a
//!   suspend for example. A task runs late by less than one tick, or than 1 ms by default, plus the
//!   time to wake the worker thread, plus the tasks ahead of it.
//!
//! # Examples
//!
//! A [`Wheel`] reads no clock, starts no thread and calls no callback:
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
//! A [`Timer`] has wheels, a clock, and a worker thread that sleeps until something is due:
//!
//! ```
//! use std::time::Duration;
//! use tickwheel::Timer;
//!
//! let timer = Timer::new();
//! let request = timer.schedule(Duration::from_secs(30), || println!("no answer"))?;
//! assert!(request.cancel()); // the answer came
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A future waits on [your own timer](Timer::sleep), or on [the default timer](timer()), which the
//! whole process shares:
//!
//! ```
//! # futures::executor::block_on(async {
//! tickwheel::sleep(std::time::Duration::from_millis(5)).await?;
//! # Ok::<(), tickwheel::ScheduleErrorKind>(())
//! # }).unwrap();
//! ```
//!
//! # When not to use it
//!
//! - A few dozen timeouts: a [`BinaryHeap`](alloc::collections::BinaryHeap) is less code, and often
//!   faster.
//! - The program asks for the earliest timeout many times for each one it schedules, and cancels
//!   few: a heap or a [`BTreeMap`](alloc::collections::BTreeMap) keeps them sorted, and a wheel
//!   sorts late.
//! - A few hundred timeouts under tokio: `tokio::time` is there already.
//! - Timeouts must survive a restart: the package `tickwheel-durable` keeps far timeouts in a store
//!   and the near ones in a wheel.
//! - A delay must end at an exact microsecond: the worker is a thread like any other, and the
//!   system wakes it late now and then.
//!
//! # Features
//!
//! - `std` (default): the [`Timer`], the futures, and the queues and maps on a timer. Without it
//!   the crate is `no_std`, and the [`Wheel`] needs `alloc`, and some tens of kilobytes of stack. In
//!   a browser (`wasm32-unknown-unknown`) its instants are those of the crate `web-time`, and a timer
//!   needs a [`Driver`], because there are no threads.
//! - `stream`: [`Interval`], [`DelayQueue`], [`DelayMap`], [`DelayReceiver`] and [`ExpiredReceiver`]
//!   are streams, by the crate `futures-core`.
//! - `hyper`: a [`Timer`] sets the time limits of hyper's servers and clients; not in a browser.
//! - `boot-clock`: `BootClock`, which goes on while the machine is suspended, by the crate
//!   `rustix`.
//! - `record`: `Recorder` and `TimerBuilder::record` write what a program does to its timeouts, as
//!   a trace for `tickwheel replay` and `tickwheel choose`.
//! - `metrics`: `TimerMetrics` publishes the statistics of a timer through the crate `metrics`.
//! - `tracing`: each task runs in a span of the crate `tracing`, and an event tells of a slow one.
//! - `serde`: reads and writes a [`Mode`] as its text, and writes statistics.
//! - `log`: the timer warns through the crate `log`, once, if more than 64 timers have threads.
//!
//! The command `tickwheel replay` runs a recorded workload through several modes and compares them.
//! It is in a package of its own, `tickwheel-cli`.
#![cfg_attr(not(feature = "std"), no_std)]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(
    missing_docs,
    clippy::alloc_instead_of_core,
    clippy::std_instead_of_alloc,
    clippy::std_instead_of_core
)]

extern crate alloc;

#[cfg(feature = "std")]
mod delay;
#[cfg(feature = "std")]
mod expiring;
#[cfg(feature = "std")]
mod future;
mod mode;
mod names;
#[cfg(feature = "std")]
mod panics;
#[cfg(feature = "std")]
mod platform;
#[cfg(feature = "record")]
mod record;
mod steps;
#[cfg(feature = "std")]
mod sync;
mod ticks;
#[cfg(feature = "std")]
mod timer;
mod wheel;
mod wheel_map;

#[cfg(feature = "std")]
pub use delay::{
    DelayKey, DelayMap, DelayQueue, DelayReceiver, DelaySender, Delayed, Due, SendError,
    delay_channel,
};
#[cfg(feature = "std")]
pub use expiring::{
    ExpiredReceiver, ExpiringMap, ExpiringMapBuilder, InsertError, InsertErrorKind,
};
#[cfg(feature = "std")]
pub use future::{
    Elapsed, Interval, Sleep, Sleeps, Timed, WeakSleeps, interval, interval_at, sleep, sleep_until,
    timeout, timeout_at, timer,
};
pub use mode::{Mode, ModeError};
#[cfg(feature = "record")]
pub use record::{Recorded, Recorder};
#[doc(hidden)]
pub use steps::{most_steps_under_a_lock, steps};
pub use ticks::{Moment, Ticks};
#[cfg(feature = "boot-clock")]
pub use timer::BootClock;
#[cfg(feature = "metrics")]
pub use timer::TimerMetrics;
#[cfg(feature = "std")]
pub use timer::{
    BuildError, Clock, Driver, Executor, Follower, Lateness, ManualClock, MissedTick,
    MonotonicClock, Next, Run, ScheduleError, ScheduleErrorKind, Status, StopError, Task,
    TaskPanic, Timeout, TimeoutGuard, Timer, TimerBuilder, TimerStats, Unfired,
};
pub use wheel::{Drain, Expired, ExtractDue, Iter, IterMut, Key, Wheel, WheelStats};
pub use wheel_map::WheelMap;

/// The examples in the README of the package are run as tests too.
#[cfg(doctest)]
#[doc = include_str!("../PACKAGE.md")]
mod package {}
