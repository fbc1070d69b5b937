//! Errors.

use std::fmt;
use std::io;

#[doc(no_inline)]
pub use tokio::time::error::Error;

/// Says that a [`timeout`](super::timeout()) ended before its future.
#[derive(Debug, PartialEq, Eq)]
pub struct Elapsed(pub(super) ());

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("deadline has elapsed")
    }
}

impl std::error::Error for Elapsed {}

impl From<Elapsed> for io::Error {
    fn from(_: Elapsed) -> Self {
        io::ErrorKind::TimedOut.into()
    }
}
