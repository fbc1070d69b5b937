//! A zoo: foreign code that is odd, and that the API permits. Each animal is here once.
//!
//! | animal | the rule that permits it |
//! |---|---|
//! | `executors` | the table of [`Executor`](tickwheel::Executor): it may run a task now or later, on any thread, drop it, or panic |
//! | `wakers` | std's `Waker`: a clone may be another object, `wake` may run anything, and any of them may panic |
//! | `clocks` | the table of [`Clock`](tickwheel::Clock): a clock may stand still, jump, and begin at any instant; `wait` may answer anything |
//! | `values` | contract of the wheel: `Hash` and `Eq` of a key may lie, and any of its traits may panic or call back |
//! | `threads` | a thread-local value may do in its `Drop` whatever a thread may |
//!
//! Odd writers, loggers and subscribers are beside their only test: `tests/record.rs`,
//! `tests/many_timers.rs`, `tests/tracing.rs`; an allocator that fails is in `tests/no_memory.rs`,
//! and what `fork` leaves in `tests/fork.rs`.
//!
//! The tests of wheels, timers and futures, the fuzz targets, the simulation and the soak include
//! this module by its path. No lock of the zoo is held while it calls somebody, so the threads of
//! the simulation may use it.

#![allow(dead_code, reason = "no program takes all animals")]

pub(crate) mod clocks;
pub(crate) mod executors;
pub(crate) mod threads;
pub(crate) mod values;
pub(crate) mod wakers;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// What odd code panics with, past the panic hook.
#[derive(Debug)]
pub(crate) struct Panic;

/// Panics as odd code does, unless the thread panics already.
pub(crate) fn panics() {
    if !std::thread::panicking() {
        resume_unwind(Box::new(Panic));
    }
}

/// Calls `call`, and returns None if odd code panicked in it. Any other panic goes on.
pub(crate) fn caught<R>(call: impl FnOnce() -> R) -> Option<R> {
    catch_unwind(AssertUnwindSafe(call)).map_err(expect_odd).ok()
}

fn expect_odd(panic: Box<dyn Any + Send>) {
    if !panic.is::<Panic>() {
        resume_unwind(panic);
    }
}
