//! Situations that broke other timers, each a test for both modes.

#[path = "../common/mod.rs"]
#[macro_use]
mod common;

mod modes;
mod order;
