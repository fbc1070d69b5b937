//! The structures that Varghese and Lauck compare in *Hashed and Hierarchical Timing Wheels*,
//! written plainly, by the names of their paper.
//!
//! A timer is known by the number of its request, and its record is the one of that number. A
//! record is a node of a doubly linked list, so that stopping a timer needs no search.
//!
//! tickwheel is a [`Scheme`] too, for `cargo bench -p classical`, which times them all.

mod heap;
mod lists;
mod tickwheels;
mod wheels;

pub use heap::BinaryHeap;
pub use lists::{SortedList, UnsortedList};
pub use tickwheels::Tickwheel;
pub use wheels::{HashedRounds, HashedSorted, Hierarchical};

/// A way to hold timers, by the routines of the paper. Each begins at tick 0.
pub trait Scheme {
    /// Starts the timer of `request`, which does not run, to expire after `interval` ticks: at
    /// least 1.
    fn start_timer(&mut self, request: u32, interval: u64);

    /// Stops the timer of `request`, which runs.
    fn stop_timer(&mut self, request: u32);

    /// Goes on by a tick, and adds the requests of the timers that expire to `expired`.
    fn per_tick_bookkeeping(&mut self, expired: &mut Vec<u32>);
}
