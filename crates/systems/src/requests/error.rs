//! Why a call failed, and what was known then.

use std::fmt;
use std::io;
use std::time::Duration;
use tickwheel::ScheduleErrorKind;

/// Says why a call failed, and what the client knew of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallError {
    pub why: Why,
    /// False means that the server has not seen the request, and never will.
    pub is_sent: bool,
    /// How long the caller waited, by the timer's clock.
    pub waited: Duration,
}

/// Why a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// There was no response within the limit.
    TimedOut(Duration),
    /// The connection was closed: `UnexpectedEof` means in the middle of a frame.
    Closed(io::ErrorKind),
    /// The caller dropped the answer, and so does not learn of this.
    GivenUp,
    /// Too many requests wait for the connection to take them.
    Busy,
    /// The body is longer than a frame holds.
    TooLong,
    /// The timer has no room, or was stopped.
    Timer(ScheduleErrorKind),
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.why {
            Why::TimedOut(limit) => write!(f, "no response within {limit:?}")?,
            Why::Closed(kind) => write!(f, "the connection was closed: {kind}")?,
            Why::GivenUp => f.write_str("the caller gave it up")?,
            Why::Busy => f.write_str("too many requests wait for the connection")?,
            Why::TooLong => f.write_str("the request is longer than a frame holds")?,
            Why::Timer(kind) => write!(f, "no time limit can be set: {kind}")?,
        }
        let sent = if self.is_sent { "sent" } else { "not sent" };
        write!(f, " ({sent}, waited {:?})", self.waited)
    }
}

impl std::error::Error for CallError {}
