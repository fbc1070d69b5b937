//! Foreign code that panics.

use alloc::boxed::Box;
use core::any::Any;
use core::panic::AssertUnwindSafe;
use std::panic::catch_unwind;

/// What foreign code panicked with. Dropping it is foreign code, too.
pub(crate) type Payload = Box<dyn Any + Send>;

/// Runs foreign code, which may leave its own state in disorder.
pub(crate) fn catch<T>(foreign: impl FnOnce() -> T) -> Result<T, Payload> {
    catch_unwind(AssertUnwindSafe(foreign))
}

/// Drops a value, or a panic. A panic of that is dropped, and may panic again.
pub(crate) fn swallow<T>(value: T) {
    let mut outcome = catch(|| drop(value));
    for _ in 0..MOST_PANICS {
        match outcome {
            Ok(()) => return,
            Err(payload) => outcome = catch(|| drop(payload)),
        }
    }
    // It might go on like this for ever.
    core::mem::forget(outcome);
}

/// How many panics are dropped of payloads that panic when dropped.
const MOST_PANICS: usize = 16;
