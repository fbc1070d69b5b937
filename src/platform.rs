//! What std lacks in a browser: a clock and processes.

#[cfg(not(all(target_family = "wasm", target_os = "unknown")))]
pub(crate) use std::{process::id as process_id, time::Instant};
#[cfg(all(target_family = "wasm", target_os = "unknown"))]
pub(crate) use web_time::Instant;

/// Returns the number of the one process that there is.
#[cfg(all(target_family = "wasm", target_os = "unknown"))]
pub(crate) fn process_id() -> u32 {
    1
}
