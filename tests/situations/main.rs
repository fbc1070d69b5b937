//! Situations that broke other timers, each a test for both modes.

#[path = "../common/mod.rs"]
#[macro_use]
mod common;

mod cancel;
mod far;
mod iteration;
mod jumps;
mod keys;
mod modes;
mod next;
mod order;
mod reschedule;
