//! Situations that broke other timers, each a test for both modes.

#[path = "../common/mod.rs"]
#[macro_use]
mod common;

mod cancel;
mod far;
mod jumps;
mod modes;
mod order;
mod reschedule;
