//! No test waits for ever.

use rustix::process::Signal;
use std::io::{self, Write};
use std::process::exit;
use std::sync::LazyLock;
use std::time::Duration;
use systems::process::{Target, children};
use tickwheel::{TimeoutGuard, Timer};

/// Ends the process and its children with an error unless the guard is dropped within ten minutes:
/// only what hangs takes as long, however busy the machine is.
pub(crate) fn within_minutes() -> TimeoutGuard {
    let late = || {
        // Past the harness, which would keep it to itself.
        let _ = writeln!(io::stderr(), "a test did not end within ten minutes");
        for child in children().unwrap_or_default() {
            let _ = Target::of(child).signal(Signal::KILL);
        }
        exit(1);
    };
    TIMER.schedule(Duration::from_secs(600), late).expect("it runs").cancel_on_drop()
}

/// Its thread has a name of its own, because a test looks for the threads of other timers.
static TIMER: LazyLock<Timer> = LazyLock::new(|| {
    let builder = Timer::builder().thread_name("limit".to_owned());
    builder.build().expect("in range")
});
