//! Timing wheels, hierarchical and hashed.
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
mod hashed;
mod hierarchical;
mod mode;
mod occupancy;
#[cfg(feature = "cli")]
pub mod replay;
mod table;
mod wheel;

pub use arena::Key;
pub use mode::{Mode, ModeError};
pub use wheel::{Drain, Expired, Iter, Wheel, WheelStats};
