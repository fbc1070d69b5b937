//! Durable timers: far timeouts rest in a store, near ones in a timing wheel, and nothing is lost
//! by a crash.
//!
//! [`DurableTimer::open`] opens a timer in one file, with no server. A timeout has a name, a
//! deadline by the wall clock and a payload. It is handed out when it is due, in this process or in
//! a later one, until a consumer [acks](Due::ack) it.
//!
//! ```
//! # fn main() -> Result<(), tickwheel_durable::Error> {
//! use std::time::{Duration, SystemTime};
//! use tickwheel_durable::{Cancelled, DurableTimer};
//!
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("timeouts.redb");
//! let timer = DurableTimer::open(path)?;
//! let month = SystemTime::now() + Duration::from_secs(30 * 86_400);
//! timer.schedule("order-17/payment", month, b"eur 20")?.wait()?; // durable
//! timer.schedule("order-18/payment", SystemTime::now(), b"eur 5")?.wait()?;
//!
//! // The customer paid.
//! assert_eq!(timer.cancel("order-17/payment")?.wait()?, Cancelled::Cancelled);
//!
//! while let Some(due) = timer.recv()? {
//!     println!("{}: {} bytes", due.name(), due.payload().len());
//!     due.ack();
//! #   break;
//! }
//! timer.close()
//! # }
//! ```
//!
//! [`Store`](store::Store) is what another engine must do to carry a timer, and [`suite`] tests it.
//! [`MemoryStore`] is for tests of programs that use a timer.
//!
//! # Features
//!
//! - `redb` (default): [`DurableTimer::open`] and [`RedbStore`].
//! - `postgres`: `DurableTimer::connect` and `PostgresStore`, for many workers on one database, and
//!   `Fleet`, for several databases.
//! - `sqlx`: `schedule_in_sqlx` and `cancel_in_sqlx`, for transactions of `sqlx`; needs Rust 1.94.
//! - `tls`: connections to it with TLS, by rustls.
//! - `cron`: `Recurring::cron`, for timeouts that come again by a cron expression in a time zone.
//! - `metrics`: tells what [`Stats`] has to the recorder of the crate `metrics`, once a second.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod block_on;
mod content;
mod error;
#[cfg(feature = "postgres")]
mod fleet;
mod keeper;
mod moving;
mod recurring;
mod sql;
pub mod store;
pub mod suite;
mod timer;
mod values;

pub use content::Content;
pub use error::Error;
#[cfg(feature = "postgres")]
pub use fleet::{Fleet, FleetCommit, FleetDatabase, FleetDeadLetters, FleetIter, FleetStream};
pub use keeper::{Cancelled, Event, Retried, Scheduled};
pub use moving::{Moved, move_all};
pub use recurring::Recurring;
#[cfg(feature = "postgres")]
pub use sql::{cancel_in_async, schedule_in_async};
#[cfg(feature = "sqlx")]
pub use sql::{cancel_in_sqlx, schedule_in_sqlx};
pub use sql::{cancel_sql, schedule_sql};
#[cfg(feature = "postgres")]
pub use store::postgres::{
    DatabaseId, Home, HomeState, Homes, MIGRATION, MovedPartition, PostgresStore, Worker, Workers,
    abandon_move, cancel_in, join_fleet, move_partition, schedule_in,
};
#[cfg(feature = "redb")]
pub use store::redb::{RedbStore, Report};
pub use store::{MemoryStore, RateLimit};
pub use tickwheel::MissedTick;
#[cfg(feature = "redb")]
pub use timer::Backup;
pub use timer::{
    Backoff, Builder, Commit, DeadLetter, DeadLetters, Due, DueStream, DurableTimer, Iter, Pending,
    Stats,
};

/// The examples in the documents are run as tests too.
#[cfg(all(doctest, feature = "redb"))]
#[doc = include_str!("../README.md")]
mod documents {}

/// The longest name of a timeout, in bytes.
pub const MAX_NAME: usize = 255;

/// The longest payload of a timeout, in bytes.
pub const MAX_PAYLOAD: usize = 65_536;

/// The longest metadata of a timeout, in bytes.
pub const MAX_METADATA: usize = 1_024;
