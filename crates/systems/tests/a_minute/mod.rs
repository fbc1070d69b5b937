//! No test waits for ever.

use std::io::{self, Write};
use std::process::exit;
use std::time::Duration;
use tickwheel::TimeoutGuard;

/// Ends the process with an error unless the guard is dropped within a minute.
pub(crate) fn within_a_minute() -> TimeoutGuard {
    let late = || {
        // Past the harness, which would keep it to itself.
        let _ = writeln!(io::stderr(), "a test did not end within a minute");
        exit(1);
    };
    tickwheel::timer().schedule(Duration::from_secs(60), late).expect("it runs").cancel_on_drop()
}
