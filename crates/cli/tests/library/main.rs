//! What the library promises that the command does not show alone.

mod page;
mod study;
mod trace;
